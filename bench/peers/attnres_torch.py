#!/usr/bin/env python3
"""Block AttnRes and the standard residual alone in eager PyTorch: the peer of bench_depth.

The stand-in of a sublayer is that of bench/specs/depth.hadal, f(x) = x + 0.001 x_0 w,
one w for all. Systems:

  none      the stand-ins by themselves
  standard  residual sum and RMSNorm
  figure    Block AttnRes as the paper's Figure 2 writes it: stack the sources [n, b, t, d], RMSNorm
            of all, one score per source, softmax, weighted sum; RMSNorm and Linear are modules
  stacked   the same in bare functions, without a batch dimension
  lean      the same function written for speed: sources lie in one tensor, a block's sum is built
            where it will stay, nothing of the size of the sources is made; the norm is a factor of
            the score

Prints ns per token and sublayer like bench_depth: as run, and less the stand-ins of the same round.
Needs PyTorch 1.10 or later; without it, says so and ends with 0 (with --json: {"missing": reason}).
"""
import argparse
import json
import statistics
import sys
import time

EPS = 1e-6

try:
    import torch
except ImportError:
    torch = None


def rmsnorm_of_parts(x, gain):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * gain


def rmsnorm_fused(x, gain):
    return torch.nn.functional.rms_norm(x, gain.shape, gain, EPS)


# the best RMSNorm that this PyTorch has; the fused one came with 2.4
rmsnorm = rmsnorm_fused if torch and hasattr(torch.nn.functional, "rms_norm") else rmsnorm_of_parts


class Norm(torch.nn.Module if torch else object):
    def __init__(self, gain):
        super().__init__()
        self.weight = torch.nn.Parameter(gain, requires_grad=False)

    def forward(self, x):
        return rmsnorm(x, self.weight)


def modules(query, key_gain, gain):
    """The projection and norm of a sublayer's mix, as in the figure, and the sublayer's own norm."""
    proj = torch.nn.Linear(len(query), 1, bias=False)
    proj.weight = torch.nn.Parameter(query[None, :], requires_grad=False)
    return proj, Norm(key_gain), Norm(gain)


class Weights:
    def __init__(self, block, blocks, d):
        g = torch.Generator().manual_seed(1)
        self.block, self.blocks, self.sublayers = block, blocks, block * blocks
        self.query = 0.1 * torch.randn(self.sublayers + 1, d, generator=g)
        self.key_gain = 1 + 0.1 * torch.randn(self.sublayers + 1, d, generator=g)
        self.gain = 1 + 0.1 * torch.randn(self.sublayers + 1, d, generator=g)
        self.layers = [modules(*w) for w in zip(self.query, self.key_gain, self.gain)]
        # constants of mix_lean
        self.scaled_query = self.query * self.key_gain * d**0.5
        self.least = torch.tensor((d * EPS) ** 0.5)
        self.scaled_f = 0.001 * torch.randn(d, generator=g)

    def stand_in(self, x):
        return torch.addcmul(x, x[..., :1], self.scaled_f)


def none(x, w):
    for _ in range(w.sublayers):
        x = w.stand_in(x)
    return x


def standard(x, w):
    for i in range(w.sublayers):
        x = x + w.stand_in(rmsnorm(x, w.gain[i]))
    return rmsnorm(x, w.gain[-1])


def mix_figure(blocks, partial, proj, norm):
    v = torch.stack(blocks + [partial])  # [n, b, t, d]
    logits = torch.einsum("d,nbtd->nbt", proj.weight.squeeze(), norm(v))
    return torch.einsum("nbt,nbtd->btd", logits.softmax(0), v)


def figure(x, w):
    x = x[None]  # [b, t, d]
    blocks, partial = [], x
    for i in range(w.sublayers):
        proj, key_norm, norm = w.layers[i]
        h = mix_figure(blocks, partial, proj, key_norm)
        if i % w.block == 0:
            blocks.append(partial)
            partial = None
        y = w.stand_in(norm(h))
        partial = y if partial is None else partial + y
    proj, key_norm, norm = w.layers[-1]
    return norm(mix_figure(blocks, partial, proj, key_norm))[0]


def mix_stacked(sources, query, gain):
    if len(sources) == 1:
        return sources[0]
    v = torch.stack(sources)  # [n, T, d]
    weights = torch.einsum("d,ntd->nt", query, rmsnorm(v, gain)).softmax(0)
    return torch.einsum("nt,ntd->td", weights, v)


def stacked(x, w):
    bank, live = [], x
    for i in range(w.sublayers):
        h = mix_stacked(bank + ([] if live is None else [live]), w.query[i], w.key_gain[i])
        if i % w.block == 0:
            bank.append(live)
            live = None
        y = w.stand_in(rmsnorm(h, w.gain[i]))
        live = y if live is None else live + y
    return rmsnorm(mix_stacked(bank + [live], w.query[-1], w.key_gain[-1]), w.gain[-1])


def mix_lean(v, scaled_query, least):
    """v: [T, n, d]. query . (g v / rms(v)) = (query g sqrt(d)) . v / hypot(|v|, sqrt(d eps))"""
    if v.shape[1] == 1:
        return v[:, 0]
    size = torch.hypot(torch.linalg.vector_norm(v, dim=-1), least)
    weights = torch.matmul(v, scaled_query).div_(size).softmax(-1)  # [T, n]
    return torch.bmm(weights.unsqueeze(1), v).squeeze(1)


def lean(x, w):
    v = x.new_empty(x.shape[0], w.blocks + 1, x.shape[1])
    v[:, 0] = x
    n = 1  # number of sources so far; while a block's sum grows it is v[:, n - 1]
    for i in range(w.sublayers):
        h = mix_lean(v[:, :n], w.scaled_query[i], w.least)
        y = w.stand_in(rmsnorm(h, w.gain[i]))
        if i % w.block == 0:
            v[:, n] = y
            n += 1
        else:
            v[:, n - 1] += y
    return rmsnorm(mix_lean(v, w.scaled_query[-1], w.least), w.gain[-1])


SYSTEMS = (none, standard, figure, stacked, lean)


def check(w, x):
    """Checks that all ways to write AttnRes give the same answer, or the speed of the faster ones proves nothing."""
    a = figure(x, w)
    for other in stacked, lean:
        off = ((a - other(x, w)).abs().max() / a.abs().max()).item()
        if not off < 1e-4:
            sys.exit(f"attnres_torch: {other.__name__} is {off:.1e} of the largest value off")


def seconds(system, x, w, times):
    """For one thread its CPU time, as in bench_depth; for several the time on the wall."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    for _ in range(times):
        system(x, w)
    return (clock() - start) / times


def measure(w, d, tokens, rounds):
    x = torch.rand(tokens, d) * 2 - 1
    times = {s: [] for s in SYSTEMS}
    first = {s: seconds(s, x, w, 1) for s in SYSTEMS}  # warms up as well
    enough = 0.05  # least seconds of a sample
    for _ in range(rounds):
        for s in SYSTEMS:
            t = seconds(s, x, w, 1 + int(enough / first[s]))
            times[s].append(t * 1e9 / (tokens * w.sublayers))
    rows = []
    for s in SYSTEMS:
        own = [t - b for t, b in zip(times[s], times[none])]
        rows.append({"block": w.block, "blocks": w.blocks, "hidden": d, "tokens": tokens,
                     "threads": torch.get_num_threads(), "system": s.__name__,
                     "total": statistics.median(times[s]), "own": statistics.median(own)})
    return rows


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shape", action="append", metavar="S,N,d")
    p.add_argument("--tokens", default="1,16,128,512", metavar="LIST")
    p.add_argument("--threads", type=int, default=2, metavar="N")
    p.add_argument("--rounds", type=int, default=5, metavar="N")
    p.add_argument("--json", action="store_true", help="one object instead of the table")
    a = p.parse_args()
    if torch is None:
        reason = "there is no torch for this python3"
        print(json.dumps({"missing": reason}) if a.json else f"attnres_torch: skipped, {reason}")
        return
    torch.set_num_threads(a.threads)
    version = torch.__version__.split("+")[0]
    if not a.json:
        print(f"PyTorch {version}\n   S   N     d    T th  system       ns total     ns own")
    every = []
    with torch.inference_mode():
        for shape in a.shape or ["16,8,1024", "16,8,2048", "6,9,1024", "6,9,2048"]:
            block, blocks, d = (int(n) for n in shape.split(","))
            w = Weights(block, blocks, d)
            check(w, torch.rand(3, d) * 2 - 1)
            for tokens in a.tokens.split(","):
                rows = measure(w, d, int(tokens), a.rounds)
                every += rows
                for r in rows if not a.json else []:
                    print(f"{block:4d} {blocks:3d} {d:5d} {r['tokens']:4d} {r['threads']:2d}  "
                          f"{r['system']:10s} {r['total']:10.0f} {r['own']:10.0f}", flush=True)
    if a.json:
        print(json.dumps({"torch": version, "rows": every}))


if __name__ == "__main__":
    main()
