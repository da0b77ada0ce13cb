"""Trained with PyTorch, compiled with Hadal: the round trip of README, on the CPU.

    torch_round_trip.py HADAL SPEC OUT

Writes SPEC as a PyTorch module, loads seeded weights, trains two steps, saves, compiles the saved weights, and
compares the logits of the library with those of the module (f32: 1e-4 of the largest). Exit 77: no PyTorch.
"""
import os
import sys

try:
    import torch
except ImportError:
    print("PyTorch is not installed")
    sys.exit(77)

from torch_witness import apart, module_of, read, read_npy, run


def main(hadal, spec, out):
    os.makedirs(out, exist_ok=True)
    first, trained = os.path.join(out, "first.safetensors"), os.path.join(out, "trained.safetensors")
    run(hadal, "init-weights", spec, "-o", first)
    model = module_of(hadal, spec, out).Model().load(first)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    tokens = torch.randint(0, 200, (2, 17), generator=torch.Generator().manual_seed(1))
    losses = []
    for _ in range(2):
        loss = model.loss(tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    after = model.loss(tokens[:, :-1], tokens[:, 1:]).item()
    model.save(trained)
    names = set(read(first)), set(read(trained))
    listed = ",".join(str(t) for t in tokens[0].tolist())
    run(hadal, "run", spec, "--weights", trained, "--tokens", listed, "--logits", os.path.join(out, "logits.npy"))
    e = apart(model(tokens[0]).detach(), read_npy(os.path.join(out, "logits.npy")))
    print(f"loss {losses[0]:.4f}, {losses[1]:.4f}, {after:.4f}; logits of the library {e:.1e} from the module's")
    return 0 if names[0] == names[1] and after < losses[0] and e <= 1e-4 else 1


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main(*sys.argv[1:]))
