"""A hundred steps of hadal train against PyTorch in float64, from the same weights: the module of `hadal compile --emit=torch`, its AdamW, and
Muon as its authors write it.

    torch.py HADAL TESTS WORK [CASE ..]     TESTS: the folder with golden/ and published/

The data are as many windows as a step reads, so that each step reads all of them, in whatever order. Rates by the schedules of
docs/training.md, clipping, tied weights, matrices that a tensor joins. The losses of the first ten steps agree to 1e-5 of them; those of
all hundred, and the norms, to three times what PyTorch in float32 is off by at most. Exit 77 without PyTorch."""
import importlib.util
import json
import math
import os
import random
import shutil
import subprocess
import sys

sys.path.pop(0)  # this file has the name of the library
try:
    import torch
except ImportError:
    print("PyTorch is not installed")
    sys.exit(77)

hadal, tests, work, *wanted = sys.argv[1:]
shutil.rmtree(work, ignore_errors=True)
os.makedirs(work)
torch.set_num_threads(1)
CONTEXT, WINDOWS, STEPS, WARMUP, DECAY = 15, 3, 100, 6, 0.1
# folder, optimizer, schedule, largest rate, clip (0: never)
CASES = [("golden/standard", "adamw", "cosine", 0.0003, 1.0), ("golden/attnres-block", "muon", "wsd", 0.0003, 0.3),
         ("golden/attnres-full", "adamw", "constant", 0.00003, 0.3), ("golden/denseformer", "muon", "cosine", 0.0003, 0.0),
         ("golden/mhc", "adamw", "wsd", 0.0003, 1.0), ("published/llama", "adamw", "cosine", 0.0003, 0.5),
         ("published/qwen3", "muon", "constant", 0.0002, 1.0), ("published/phi3", "muon", "wsd", 0.0003, 1.0),
         ("golden/lime-llama", "muon", "cosine", 0.0003, 1.0)]  # the last one is tied


def rate(schedule, lr, t):
    if t <= WARMUP:
        return lr * t / WARMUP
    if schedule == "cosine":
        return lr * (0.1 + 0.9 * (1 + math.cos(math.pi * (t - WARMUP) / (STEPS - WARMUP))) / 2)
    last = min(STEPS // 5, STEPS - WARMUP)
    return lr * (STEPS + 1 - t) / (last + 1) if schedule == "wsd" and t > STEPS - last else lr


def orthogonal(x):
    turned = x.shape[0] > x.shape[1]
    x = (x.T if turned else x) / (x.norm() + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if turned else x


class Muon:
    """rows: those of the matrices that are joined in a parameter."""

    def __init__(self, parameters):
        self.all = [(p, rows, torch.zeros_like(p)) for p, rows in parameters]

    def step(self, lr):
        for p, rows, buffer in self.all:
            buffer.mul_(0.95).add_(p.grad)
            x = p.grad + 0.95 * buffer
            parts = zip(*(y.split(rows) for y in (p, x))) if p.dim() == 2 else zip(p.flatten(0, -3), x.flatten(0, -3))
            for w, g in parts:
                w.mul_(1 - lr * DECAY).add_(orthogonal(g), alpha=-lr * 0.2 * max(g.shape)**0.5)


def losses_of(written, folder, updates, tokens, case, dtype):
    """By step the loss and the norm."""
    _, _, schedule, lr, clip = case
    model = written.Model().to(dtype).load(folder)
    parameters, out = dict(model.named_parameters()), []
    groups = {False: [], True: []}
    muon = []
    for u in updates:
        p = parameters.get(u["name"])
        if p is None:
            continue  # nothing reads it
        if u["update"].startswith("muon"):
            rows = [int(n) for n in u["update"].partition(", by rows: ")[2].split(", ") if n]
            muon.append((p, rows or [p.shape[0]]))
        else:
            groups[u["update"] == "adamw"].append(p)
    assert len(muon) + sum(map(len, groups.values())) == len(parameters), "parameters that are not in updates.json"
    adamw = torch.optim.AdamW([{"params": groups[False], "weight_decay": 0.0}, {"params": groups[True], "weight_decay": DECAY}], lr=0, betas=(0.9, 0.95), eps=1e-8)
    muon = Muon(muon)
    for step in range(1, STEPS + 1):
        model.zero_grad(set_to_none=False)
        windows = [tokens[i * CONTEXT:][:CONTEXT + 1] for i in range(WINDOWS)]
        loss = sum(model.loss(torch.tensor(w[:-1]), torch.tensor(w[1:])) for w in windows) / WINDOWS
        loss.backward()
        with torch.no_grad():
            for p in parameters.values():
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            norm = sum((p.grad.double()**2).sum() for p in parameters.values()).sqrt().item()
            for p in parameters.values():
                p.grad *= min(1.0, (clip or math.inf) / norm)
            for group in adamw.param_groups:
                group["lr"] = rate(schedule, lr, step)
            adamw.step()
            muon.step(rate(schedule, lr, step))
        out.append((loss.item(), norm))
    return out


def run(*command):
    done = subprocess.run([hadal, *command, "-q"], capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr}"


def check(case):
    name, optimizer, schedule, lr, clip = case
    folder, to = os.path.join(tests, name), os.path.join(work, name.replace("/", "_").replace("-", "_"))
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        vocab = json.load(f)["vocab_size"]
    draw = random.Random(name)
    tokens = [draw.randrange(vocab) for _ in range(CONTEXT * WINDOWS + 1)]
    with open(to + ".i32", "wb") as f:
        f.write(b"".join(t.to_bytes(4, "little") for t in tokens))
    run("train", folder, "--data", to + ".i32", "--context", str(CONTEXT), "--batch", str(WINDOWS), "--steps", str(STEPS), "--warmup", str(WARMUP), "--optimizer",
        optimizer, "--schedule", schedule, "--lr", str(lr), "--clip", str(clip), "--save-every", "0", "-o", to)
    run("compile", folder, "--emit=torch", "-o", to)
    with open(os.path.join(to, "log.jsonl"), encoding="ascii") as f:
        log = [json.loads(line) for line in f]
    with open(os.path.join(to, "updates.json"), encoding="utf-8") as f:
        updates = json.load(f)
    spec = importlib.util.spec_from_file_location("written", to + ".py")
    written = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(written)
    exact, single = (losses_of(written, folder, updates, tokens, case, dtype) for dtype in (torch.float64, torch.float32))
    for t, line in enumerate(log, 1):
        assert abs(line["lr"] - rate(schedule, lr, t)) <= 1e-6 * lr, f"the rate of step {t} is {line['lr']}"
    off, band = ([max(abs(a[k] - b[k]) / b[k] for a, b in zip(x, exact)) for k in (0, 1)] for x in ([(x["loss"], x["norm"]) for x in log], single))
    first = max(abs(x["loss"] - y[0]) / y[0] for x, y in zip(log[:10], exact))
    assert first <= 1e-5, f"a loss of the first ten steps is off by {first:.1e} of it"
    assert band[0] <= 1e-4, f"float32 is off by {band[0]:.1e}: a run like this says nothing"
    for k, what in enumerate(("loss", "norm")):
        assert off[k] <= max(1e-5, 3 * band[k]), f"a {what} is off by {off[k]:.1e} of it, in float32 by {band[k]:.1e}"
    print(f"{name}, {optimizer}, {schedule}: from {exact[0][0]:.3f} to {exact[-1][0]:.3f}; losses off by {first:.1e} in ten steps, {off[0]:.1e} in all (float32: {band[0]:.1e}), "
          f"norms by {off[1]:.1e} ({band[1]:.1e})", flush=True)


for case in CASES:
    if wanted and not any(w in case[0] for w in wanted):
        continue
    try:
        check(case)
    except AssertionError as e:
        sys.exit(f"{case[0]}: {e}")
