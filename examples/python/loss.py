"""How well a compiled model predicts a text: its loss, by the class that --emit=python writes.

    hadal compile examples/jargon --loss --emit=so,weights,python -o out/jargon
    python3 examples/python/loss.py out/jargon README.md [CONTEXT]

The model is one whose tokens are bytes. The text is cut into windows of CONTEXT bytes (256), before which the model knows nothing, as
`hadal eval --context` does; the first byte of each is not predicted. Python alone is needed; numpy is used where it is there.
"""
import importlib
import math
import os
import sys


def losses(model, text, context):
    for at in range(0, len(text), context):
        window = text[at:at + context]
        if len(window) > 1:
            model.reset()
            yield from model.loss(window[:-1], window[1:])


def main(path, file, context=256):
    folder, name = os.path.split(path)
    sys.path.insert(0, folder)
    module = importlib.import_module(name)  # NAME.py; in a program of one's own: from NAME import Model
    with open(file, "rb") as f:
        text = f.read()
    with module.Model.open(max_tokens=context) as model:
        all_losses = [float(x) for x in losses(model, text, context)]
    if not all_losses:
        sys.exit(f"{file} has fewer than two bytes")
    loss = math.fsum(all_losses) / len(all_losses)
    print(f"tokens         {len(all_losses)} of {len(text)}")
    print(f"loss           {loss:.6g} nats")
    print(f"perplexity     {math.exp(loss):.6g}")
    print(f"bits per byte  {loss / math.log(2):.6g}")


if __name__ == "__main__":
    main(*sys.argv[1:3], *map(int, sys.argv[3:4]))
