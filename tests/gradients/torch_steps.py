"""Ten steps of libraries of gradients against PyTorch in float64, from the same weights: the module of `hadal compile --emit=torch`, its
AdamW, and Muon as its authors write it.

    torch_steps.py HADAL FOLDER WORK     FOLDER: golden cases

The losses of each step agree to 1e-5 of them, at rates up to 0.001: AdamW divides by the root of the second moment, so that a number whose
gradient is small moves as far as any other, and rounding grows with the rate (at 0.01 losses are off by 2e-5 after nine steps). Exit 77
without PyTorch."""
import importlib.util
import os
import random
import subprocess
import sys

try:
    import torch
except ImportError:
    print("PyTorch is not installed")
    sys.exit(77)

from library import OK, Model, Options, Trainer

hadal, folder, work = sys.argv[1:]
os.makedirs(work, exist_ok=True)
STEPS, CLIP, DECAY, MOST = 10, 1.0, 0.1, 1e-5


class Muon(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                buffer = self.state[p].setdefault("momentum", torch.zeros_like(p))
                buffer.mul_(0.95).add_(p.grad)
                x = p.grad + 0.95 * buffer
                if p.shape[0] > p.shape[1]:
                    x = x.T
                x = x / (x.norm() + 1e-7)
                for _ in range(5):
                    a = x @ x.T
                    x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
                if p.shape[0] > p.shape[1]:
                    x = x.T
                p.mul_(1 - group["lr"] * DECAY).add_(x, alpha=-group["lr"] * 0.2 * max(p.shape)**0.5)


def module(case):
    path = os.path.join(work, case.replace("-", "_"))
    done = subprocess.run([hadal, "compile", os.path.join(folder, case), "--emit=torch", "-o", path, "-q"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    spec = importlib.util.spec_from_file_location("written", path + ".py")
    written = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(written)
    return written.Model().double().load(os.path.join(folder, case))


def check(case, optimizer):
    m = Model(hadal, folder, work, case, "--target-cpu", "native", "--optimizer", optimizer)
    t, model = Trainer(m), module(case)
    parameters, groups = dict(model.named_parameters()), {}
    for p in t.parameters:
        if p.name.decode() in parameters:  # the module has no parameters that nothing reads
            groups.setdefault(p.update, []).append(parameters[p.name.decode()])
    optimizers = [torch.optim.AdamW([{"params": groups.get(b"adamw", []), "weight_decay": DECAY},
                                     {"params": groups.get(b"adamw, no decay", []), "weight_decay": 0.0}], lr=0, betas=(0.9, 0.95), eps=1e-8)]
    if b"muon" in groups:
        optimizers.append(Muon(groups[b"muon"]))
    random.seed(2)
    vocab, worst = m.config["vocab_size"], 0.0
    tokens = [random.randrange(vocab) for _ in range(33)]
    for step in range(1, STEPS + 1):
        code, total, count = t.call([list(zip(tokens, tokens[1:]))])
        assert code == OK, t.message()
        rate = 0.001 * step / STEPS
        assert t.step(Options(step, learning_rate=rate, weight_decay=DECAY, clip=CLIP))[0] == OK, t.message()
        model.zero_grad(set_to_none=False)
        loss = model.loss(torch.tensor(tokens[:-1]), torch.tensor(tokens[1:]))
        loss.backward()
        with torch.no_grad():
            for p in parameters.values():
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            norm = sum((p.grad**2).sum() for p in parameters.values()).sqrt()
            for p in parameters.values():
                p.grad *= min(1.0, CLIP / norm.item())
        for o in optimizers:
            for group in o.param_groups:
                group["lr"] = rate
            o.step()
        off = abs(total / count - loss.item()) / loss.item()
        assert off <= MOST, f"{case}, {optimizer}: the loss of step {step} is {total / count}, not {loss.item()}"
        worst = max(worst, off)
    print(f"{case}, {optimizer}: a loss of {loss.item():.4f} after ten steps, off by at most {worst:.1e} of it")


for case in ("standard", "attnres-block"):
    for optimizer in ("adamw", "muon"):
        check(case, optimizer)
