#!/usr/bin/env python3
"""Peer of bench_depth: Block AttnRes and the standard residual in eager PyTorch.

    attnres_torch.py [--shape S,N,d]... [--tokens 1,16,128,512] [--threads 2] [--rounds 5]

The stand-in of a sublayer is that of bench/specs/depth.hadal, f(x) = x + 0.001 x_0 w, and every mix
is written as one does it in a training script: stack the sources, RMSNorm, one score per source,
softmax, weighted sum. Prints ns per token and sublayer like bench_depth: as run, and less the
stand-ins alone. Needs python3-torch; without it, says so and ends with 0.
"""
import argparse
import statistics
import sys
import time

try:
    import torch
except ImportError:
    print("attnres_torch: skipped, there is no torch for this python3")
    sys.exit(0)

EPS = 1e-6


def rmsnorm(x, gain):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * gain


def mix(sources, query, gain):
    if len(sources) == 1:
        return sources[0]
    v = torch.stack(sources)  # [n, T, d]
    weights = torch.einsum("d,ntd->nt", query, rmsnorm(v, gain)).softmax(0)
    return torch.einsum("nt,ntd->td", weights, v)


class Weights:
    def __init__(self, sublayers, d):
        g = torch.Generator().manual_seed(1)
        self.query = 0.1 * torch.randn(sublayers + 1, d, generator=g)
        self.key_gain = torch.ones(sublayers + 1, d)
        self.gain = torch.ones(sublayers + 1, d)
        self.f = torch.randn(sublayers, d, generator=g)
        self.sublayers = sublayers

    def stand_in(self, x, i):
        return x + x[:, :1] * self.f[i] * 0.001


def none(x, w, _block):
    for i in range(w.sublayers):
        x = w.stand_in(x, i)
    return x


def standard(x, w, _block):
    for i in range(w.sublayers):
        x = x + w.stand_in(rmsnorm(x, w.gain[i]), i)
    return rmsnorm(x, w.gain[-1])


def attnres(x, w, block):
    bank, live = [], x
    for i in range(w.sublayers):
        h = mix(bank + ([] if live is None else [live]), w.query[i], w.key_gain[i])
        if i % block == 0:
            bank.append(live)
            live = None
        y = w.stand_in(rmsnorm(h, w.gain[i]), i)
        live = y if live is None else live + y
    return rmsnorm(mix(bank + [live], w.query[-1], w.key_gain[-1]), w.gain[-1])


def seconds(system, x, w, block):
    start = time.perf_counter()
    system(x, w, block)
    return time.perf_counter() - start


def measure(block, blocks, d, tokens, rounds):
    w = Weights(block * blocks, d)
    x = torch.rand(tokens, d) * 2 - 1
    systems = (none, standard, attnres)
    times = {s: [] for s in systems}
    for s in systems:
        seconds(s, x, w, block)
    for _ in range(rounds):
        for s in systems:
            times[s].append(seconds(s, x, w, block) * 1e9 / (tokens * w.sublayers))
    base = times[none]
    for s in systems:
        own = statistics.median(t - b for t, b in zip(times[s], base))
        print(f"{block:4d} {blocks:3d} {d:5d} {tokens:4d} {torch.get_num_threads():2d}  torch {s.__name__:10s}"
              f" {statistics.median(times[s]):10.0f} {own:10.0f}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--shape", action="append")
    p.add_argument("--tokens", default="1,16,128,512")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=5)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    print("   S   N     d    T th  system             ns total     ns own")
    with torch.inference_mode():
        for shape in a.shape or ["16,8,1024", "16,8,2048", "6,9,1024", "6,9,2048"]:
            block, blocks, d = (int(n) for n in shape.split(","))
            for tokens in a.tokens.split(","):
                measure(block, blocks, d, int(tokens), a.rounds)


if __name__ == "__main__":
    main()
