"""Seconds of a prefill and of the losses of as many tokens, in turn, in one process that has done both before.

  loss_in_turn.py LIBRARY TOKENS VOCABULARY THREADS ROUNDS

LIBRARY is what `hadal compile --loss --emit=so,weights,python -o LIBRARY` has written. Prints one line of JSON: lists of
`prefill` and `loss`, a pair for each round. A prefill asks for the logits of its last row.
"""
import importlib
import json
import os
import sys
import time


def main(library, T, vocabulary, threads, rounds):
    folder, name = os.path.split(os.path.abspath(library))
    sys.path.insert(0, folder)
    tokens = [37 * i % vocabulary for i in range(T + 1)]
    seconds = {"prefill": [], "loss": []}
    with importlib.import_module(name).Model.open(max_tokens=T) as model:
        model.set_threads(threads)
        calls = {"prefill": lambda: model.forward(tokens[:T]), "loss": lambda: model.loss(tokens[:T], tokens[1:])}
        for i in range(rounds + 1):  # the first round maps weights and memory
            for what, call in calls.items():
                model.reset()
                start = time.perf_counter()
                call()
                if i:
                    seconds[what].append(time.perf_counter() - start)
    print(json.dumps(seconds))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:6]))
