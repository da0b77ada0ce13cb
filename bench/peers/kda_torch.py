#!/usr/bin/env python3
"""The delta rule with a decay for each key channel (KDA) in eager PyTorch: the peer of bench_recurrence.

  kda_torch.py [--tokens 1,512] [--heads 32] [--size 128] [--threads 2] [--rounds 5] [--json]

For each token and head, with S [n, m], e = exp(g):

    S = diag(e) S     S = S + beta k (v - S^T k)^T     o = S^T q

  tokens      token by token, as it is written
  difference  in chunks of 64 (Kimi Team 2025, arXiv 2510.26692): with G the sums of g within a chunk,
              L[i, j] = beta_i sum_d k_i[d] k_j[d] exp(G_i[d] - G_j[d]) below the diagonal, P[i, j] the same
              with q_i in the place of beta_i k_i, up to the diagonal, and A = (I + L)^-1,
                  U = A (beta V)     W = A (beta K exp G)     V' = U - W S
                  O = (Q exp G) S + P V'     S = diag(exp G_last) S + (K exp(G_last - G))^T V'
              where exp(G_i - G_j) is made for each pair, which is safe for any g
  blocks      the same, as kernels for GPUs do it (flash-linear-attention): between blocks of 16 tokens
              the pairs are a product of matrices, (k_i exp(G_i - G_a)) (k_j exp(G_a - G_j)) with a the first
              token of the later block, so that no exponent is positive; within a block as before
  bounded     the same product within a block too, whose exponents reach 15 max |g|: for g > -5.8 only

The chunked forms are compared with float64 before anything is timed. Prints microseconds of a call, the median of
rounds. Needs PyTorch 1.11 or later; without it, says so and ends with 0 (with --json: {"missing": reason}).
"""
import argparse
import json
import statistics
import sys
import time

CHUNK, BLOCK = 64, 16

try:
    import torch
except ImportError:
    torch = None


def tokens(q, k, v, g, beta, S):
    """q, k, g: [H, T, n], v: [H, T, m], beta: [H, T], S: [H, n, m], which is changed."""
    out = torch.empty_like(v)
    for t in range(q.shape[1]):
        S.mul_(g[:, t].exp()[:, :, None])
        e = beta[:, t, None] * (v[:, t] - torch.einsum("hnm,hn->hm", S, k[:, t]))
        S.add_(k[:, t, :, None] * e[:, None, :])
        out[:, t] = torch.einsum("hnm,hn->hm", S, q[:, t])
    return out


def pairs(xs, k, G):
    """For each x in xs: sum_d x_i[d] k_j[d] exp(G_i[d] - G_j[d]) for j <= i, else 0; [.., C, C]."""
    C = G.shape[-2]
    later = torch.ones(C, C, dtype=torch.bool).triu(1)
    d = G[..., :, None, :] - G[..., None, :, :]
    d = d.masked_fill_(later[:, :, None], float("-inf")).exp_().mul_(k[..., None, :, :])
    return [(d @ x[..., None]).squeeze(-1) for x in xs]


def product(xs, k, G, rows, before):
    anchor = G[..., rows.start : rows.start + 1, :]
    right = (k[..., before, :] * (anchor - G[..., before, :]).exp()).transpose(-1, -2)
    left = (G[..., rows, :] - anchor).exp()
    return [(x[..., rows, :] * left) @ right for x in xs]


def pairs_by_block(xs, k, G, bounded=False):
    C, B = G.shape[-2], min(BLOCK, G.shape[-2])
    out = [torch.zeros(*G.shape[:-1], C, dtype=G.dtype) for _ in xs]
    for start in range(0, C, B):
        rows, before = slice(start, start + B), slice(0, start + B if bounded else start)
        if not bounded:
            own = pairs([x[..., rows, :] for x in xs], k[..., rows, :], G[..., rows, :])
            for o, p in zip(out, own):
                o[..., rows, rows] = p
        if before.stop > 0:
            for o, p in zip(out, product(xs, k, G, rows, before)):
                o[..., rows, before] = p
    return [o.tril_() for o in out]


def chunked(q, k, v, g, beta, S, of_pairs):
    H, T, n = q.shape
    C, m = min(CHUNK, T), v.shape[-1]
    q, k, v, g = (x.reshape(H, T // C, C, -1) for x in (q, k, v, g))
    beta = beta.reshape(H, T // C, C, 1)
    G = g.cumsum(-2)
    one = torch.eye(C, dtype=G.dtype)
    L, P = of_pairs([k, q], k, G)
    L = (beta * L).tril(-1)
    A = torch.linalg.solve_triangular(one + L, one.expand_as(L), upper=False, unitriangular=True)
    U, W = A @ (beta * v), A @ (beta * k * G.exp())
    last = G[:, :, -1:, :]
    q, k = q * G.exp(), k * (last - G).exp()
    out = torch.empty(H, T // C, C, m, dtype=v.dtype)
    for c in range(T // C):
        w = U[:, c] - W[:, c] @ S
        out[:, c] = q[:, c] @ S + P[:, c] @ w
        S.mul_(last[:, c].exp().transpose(-1, -2)).add_(k[:, c].transpose(-1, -2) @ w)
    return out.reshape(H, T, m)


SYSTEMS = {
    "tokens": tokens,
    "difference": lambda *a: chunked(*a, pairs),
    "blocks": lambda *a: chunked(*a, pairs_by_block),
    "bounded": lambda *a: chunked(*a, lambda xs, k, G: pairs_by_block(xs, k, G, bounded=True)),
}


def problem(T, H, n, dtype=None):
    """Keys of length 1 and decays of 0.95 to 1, as bench_recurrence has them."""
    r = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(H, T, n, generator=r) for _ in range(3))
    k = k / k.norm(dim=-1, keepdim=True)
    g = (0.95 + 0.05 * torch.rand(H, T, n, generator=r)).log()
    beta = 0.95 + 0.05 * torch.rand(H, T, generator=r)
    return [x.to(dtype or torch.float32) for x in (q, k, v, g, beta, torch.zeros(H, n, n))]


def check():
    """The tolerance is 1e-4 of the largest value, for f32 sums of 64 products over two chunks."""
    exact = problem(2 * CHUNK, 2, 32, torch.float64)
    want, S = tokens(*exact), exact[5]
    for name, system in SYSTEMS.items():
        rough = problem(2 * CHUNK, 2, 32)
        off = max((system(*rough) - want).abs().max() / want.abs().max(),
                  (rough[5] - S).abs().max() / S.abs().max())
        if not off < 1e-4:
            sys.exit(f"kda_torch.py: {name} is off by {off:.3g} of the largest number")


def measure(a, T):
    x = problem(T, a.heads, a.size)
    for name, system in SYSTEMS.items():
        if T == 1 and name != "tokens":
            continue
        calls = 20 if T == 1 else 1
        seconds = []
        for _ in range(a.rounds + 1):  # the first round touches memory
            start = time.perf_counter()
            for _ in range(calls):
                system(*x)
            seconds.append((time.perf_counter() - start) / calls)
        yield {"tokens": T, "system": name, "us": 1e6 * statistics.median(seconds[1:])}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tokens", default="1,512", help="multiples of 64, or less")
    p.add_argument("--heads", type=int, default=32)
    p.add_argument("--size", type=int, default=128, help="n = m")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--json", action="store_true")
    a = p.parse_args()
    if torch is None:
        print(json.dumps({"missing": "no PyTorch"}) if a.json else f"{sys.executable} has no PyTorch")
        return
    torch.set_num_threads(a.threads)
    with torch.inference_mode():
        check()
        rows = [r for T in a.tokens.split(",") for r in measure(a, int(T))]
    if a.json:
        print(json.dumps({"torch": torch.__version__, "rows": rows}))
        return
    for r in rows:
        print(f"PyTorch {torch.__version__} T={r['tokens']:<4d} {r['system']:10s} {r['us']:10.1f} us")


if __name__ == "__main__":
    main()
