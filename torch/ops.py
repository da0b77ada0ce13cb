# The graph ops that are more than a call of PyTorch. `hadal compile --emit=torch` copies those that
# a model uses, each with its formula of ir/ops.def. A call begins at position 0: T tokens stand at
# positions 0 .. T-1, and caches hold what this call has appended.
import math

import torch
import torch.nn.functional as F


def nearest_code(x, digits, least, most):
    size = torch.clamp(torch.abs(x), max=most)
    step = torch.exp2(torch.floor(torch.log2(torch.clamp(size, min=least))) - digits)
    code = torch.copysign(torch.round(size / step) * step, x)
    return code.detach() + (x - x.detach())  # the gradient of x is that of what is made of it


def round_e4m3(x):
    return nearest_code(x, 3, 2.0**-6, 448.0)


def round_e2m1(x):
    return nearest_code(x, 1, 1.0, 6.0)


def power_above(x):
    digits, exponent = torch.frexp(torch.clamp(x, min=2.0**-126))
    return torch.ldexp(torch.ones_like(digits), torch.where(digits == 0.5, exponent - 1, exponent))


def softplus(x):
    return torch.relu(x) + torch.log1p(torch.exp(-torch.abs(x)))


def when(c, x):
    return torch.where(c > 0, x, torch.zeros((), dtype=x.dtype, device=x.device))


def rmsnorm(x, gain=None, eps=0.0):
    y = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
    return y if gain is None else y * gain


def layernorm(x, gain=None, bias=None, eps=0.0):
    x = x - x.mean(-1, keepdim=True)
    y = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
    y = y if gain is None else y * gain
    return y if bias is None else y + bias


def linear(x, w, bias=None):
    return F.linear(x, w, bias)


def block_linear(x, w):
    return torch.einsum("...gk,gnk->...gn", x, w)


def expert_linear(x, w, ids, bias=None):
    T, k = ids.shape
    rows = (x if x.dim() == 3 else x[:, None].expand(T, k, x.shape[-1])).flatten(0, 1)
    y, slots = rows.new_zeros(T * k, w.shape[1]), ids.flatten()
    for e in slots.unique().tolist():
        if 0 <= e < w.shape[0]:
            at = (slots == e).nonzero()[:, 0]
            y = y.index_copy(0, at, F.linear(rows[at], w[e], None if bias is None else bias[e]))
    return y.reshape(T, k, -1)


def topk(x, k):
    x = torch.where(x.isnan(), torch.full_like(x, -math.inf), x)
    return x.detach().sort(dim=-1, descending=True, stable=True).indices[..., :k]


def to_ids(x):
    return x.detach().trunc().long()


def pick(x, ids):
    x = x.expand(*ids.shape[:-1], x.shape[-1])
    there = (ids >= 0) & (ids < x.shape[-1])
    return torch.where(there, x.gather(-1, torch.where(there, ids, 0).long()), 0)


def mark(like, ids, length):
    return (ids[..., None] == torch.arange(length, device=ids.device)).any(-2).to(like.dtype)


def cross_entropy(logits, targets):
    counted = targets >= 0
    target = logits.gather(-1, torch.where(counted, targets, 0).long()[:, None])[:, 0]
    return torch.where(counted, logits.logsumexp(-1) - target, 0)


def gather(table, ids, beyond=None):
    if beyond is not None:
        ids = torch.where(ids >= len(table), beyond, ids)
    return F.embedding(ids, table)


def rope_table(like, length, theta, scaling="", factor=1.0, low_freq_factor=1.0,
               high_freq_factor=1.0, original_positions=1, beta_fast=32.0, beta_slow=1.0,
               truncate=1, short_factors=None, long_factors=None, attention_factor=1.0,
               rotating=None, offset=0):
    half, device = length // 2, like.device
    p = torch.arange(len(like), dtype=torch.float64, device=device)[:, None] + offset
    j = torch.arange(half, dtype=torch.float64, device=device)
    f = theta ** (-2 * j / length)
    if scaling == "linear":
        f = f / factor
    elif scaling == "llama3":
        turns = original_positions * f / (2 * math.pi)
        s = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor)
        f = torch.where(turns > high_freq_factor, f,
                        torch.where(turns < low_freq_factor, f / factor,
                                    (1 - s) * f / factor + s * f))
    elif scaling == "yarn":
        low, high = (half * math.log(original_positions / (2 * math.pi * b)) / math.log(theta)
                     for b in (beta_fast, beta_slow))
        if truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, length - 1)
        r = ((j - low) / (high - low if high != low else 0.001)).clamp(0, 1)
        f = f * (1 - r) + f / factor * r
    elif scaling == "longrope":
        short, long = (torch.tensor(x, dtype=torch.float64, device=device)
                       for x in (short_factors, long_factors))
        f = torch.where(p < original_positions, f / short, f / long)
    if rotating is not None:
        f = torch.where(j < rotating, f, 0)
    table = torch.cat([torch.cos(p * f), torch.sin(p * f)], -1) * attention_factor
    return table.to(like.dtype)


def rope(x, table, start=0, pairs="halves"):
    m = table.shape[1]
    cos, sin = table[:, None, :m // 2], table[:, None, m // 2:]
    turned = x[..., start:start + m]
    if pairs == "adjacent":
        a, b = turned[..., 0::2], turned[..., 1::2]
        turned = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    else:
        a, b = turned[..., :m // 2], turned[..., m // 2:]
        turned = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    return torch.cat([x[..., :start], turned, x[..., start + m:]], -1)


def cache_append(x, rate):
    return x[rate - 1::rate]


def distances(T, device):
    # p - s of the token at p and the position s
    p = torch.arange(T, device=device)
    return p[:, None] - p


def attend(logits, seen, values, sink):
    # logits [H, T, S], seen [H or 1, T, S], values [H, S, m]: softmax over what is seen and the sink
    logits = logits.masked_fill(~seen, -math.inf)
    if sink is not None:
        sink = sink.expand(logits.shape[1], logits.shape[0]).T[..., None]
        logits = torch.cat([logits, sink], -1)
    most = logits.detach().amax(-1, keepdim=True)
    weights = torch.exp(logits - torch.where(most == -math.inf, 0, most))
    total = weights.sum(-1, keepdim=True)
    weights = weights[..., :values.shape[1]] / torch.where(total > 0, total, 1)
    return (weights @ values).transpose(0, 1)


def attention(q, k, v, sink=None, bias=None, scale=1.0, window=None, softcap=None):
    T, each = len(q), q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(each, 1).transpose(0, 1) for x in (k, v))
    logits = scale * (q.transpose(0, 1) @ k.transpose(1, 2))
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    back = distances(T, q.device)
    if bias is not None:
        at = back.clamp(0, bias.shape[2] - 1).expand(bias.shape[1], T, T)
        near = (back >= 0) & (back < bias.shape[2])
        logits = logits + torch.where(near, bias.transpose(0, 1).gather(2, at), 0)
    seen = back >= 0 if window is None else (back >= 0) & (back < window)
    return attend(logits, seen[None], v, sink)


def select(q, keys, weights=None, blocks=None, k=1, activation="none", of="rows", window=None, block=None, rate=1):
    T, G, device = len(q), keys.shape[1], q.device
    scores = torch.einsum("tgjn,sgn->tgjs", q.reshape(T, G, -1, q.shape[2]), keys)
    if activation == "relu":
        scores = torch.relu(scores)
    if weights is not None:
        scores = scores * weights.reshape(T, G, -1, 1)
    scores = scores.sum(2).detach()
    scores = torch.where(scores.isnan(), -math.inf, scores)
    rows, n = torch.arange(len(keys), device=device), (torch.arange(T, device=device) + 1) // rate
    seen = rows < n[:, None]
    if window is not None:
        seen = seen & (rows >= n[:, None] - window)
    seen = seen[:, None].expand(T, G, len(keys))
    if blocks is not None:  # rows of these alone
        listed = (rows // block)[:, None] == blocks.expand(T, G, -1)[:, :, None]
        seen = seen & listed.any(-1)
    if of == "blocks":  # each by its best row that is seen; the newest always
        count = -(-len(keys) // block)
        scores = torch.where(seen, scores, -math.inf)
        scores = F.pad(scores, (0, count * block - len(keys)), value=-math.inf).unflatten(-1, (count, block)).amax(-1)
        rows, n = torch.arange(count, device=device), (n + block - 1) // block
        scores = torch.where(rows == (n - 1)[:, None, None], math.inf, scores)
        seen = (rows < n[:, None])[:, None].expand(T, G, count)
    # seen rows first, then by score, of equal scores the lower row
    order = scores.sort(dim=-1, descending=True, stable=True).indices
    first = seen.gather(-1, order).long().sort(dim=-1, descending=True, stable=True).indices
    order = order.gather(-1, first)[..., :k]
    order = F.pad(order, (0, k - order.shape[-1]))
    there = torch.arange(k, device=device) < seen.sum(-1, keepdim=True)
    ids = torch.where(there, order, seen.shape[-1]).sort(-1).values
    if of == "positions":
        ids = (ids[..., None] * rate + torch.arange(rate, device=device)).flatten(-2)
        ids = torch.where(ids < len(keys) * rate, ids, T)
        tail = n[:, None] * rate + torch.arange(rate - 1, device=device)
        tail = torch.where(tail <= torch.arange(T, device=device)[:, None], tail, T)
        ids = torch.cat([ids, tail[:, None].expand(T, G, rate - 1)], -1).sort(-1).values
        return torch.where(ids < T, ids, -1)
    return torch.where(ids < seen.shape[-1], ids, -1)


def attention_selected(q, k, v, select=None, sink=None, entries=None, scale=1.0, window=None,
                       softcap=None, rate=1):
    T, G, device = len(q), k.shape[1], q.device
    rows = k if entries is None else entries
    p = torch.arange(T, device=device)
    n = p + 1 if entries is None else (p + 1) // rate
    if select is None:
        seen = (torch.arange(len(rows), device=device) < n[:, None])[:, None].expand(T, G, -1)
    else:
        listed = ((select >= 0) & (select < n[:, None, None])).long().cumprod(-1).bool()
        at = torch.where(listed, select, len(rows)).expand(T, G, -1).long()
        seen = torch.zeros(T, G, len(rows) + 1, dtype=torch.bool, device=device)
        seen = seen.scatter(2, at, True)[..., :-1]
    keys, values = rows, v if entries is None else rows
    if entries is not None:
        back = distances(T, device)
        near = (back >= 0) & (back < (T if window is None else window))
        seen = torch.cat([near[:, None].expand(T, G, T), seen], -1)
        keys, values = torch.cat([k, keys]), torch.cat([v, values])
    each = q.shape[1] // G
    keys, values, seen = (x.repeat_interleave(each, 1).transpose(0, 1)
                          for x in (keys, values, seen))
    logits = scale * (q.transpose(0, 1) @ keys.transpose(1, 2))
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    return attend(logits, seen, values, sink)


def pool(x, gate, place=None, length=2, halves=0):
    T, c = x.shape
    whole = T // length
    if place is not None:
        gate = gate + place[torch.arange(T, device=x.device) % length]
    x, gate = (y[:whole * length].reshape(whole, length, c) for y in (x, gate))
    if halves:  # the first half of the channels belongs to the run before
        n = c // 2
        x = torch.cat([F.pad(x[..., :n], (0, 0, 0, 0, 1, 0))[:-1], x[..., n:]], 1)
        gate = torch.cat([F.pad(gate[..., :n], (0, 0, 0, 0, 1, 0), value=-math.inf)[:-1],
                          gate[..., n:]], 1)
    y = (gate.softmax(1) * x).sum(1)
    runs = F.pad(y[:, None], (0, 0, length - 1, 0)).flatten(0, 1)
    return F.pad(runs, (0, 0, 0, T - whole * length))


def short_conv(x, taps, bias=None, dilation=1):
    T, c, n = len(x), x.shape[1], taps.shape[-1]
    taps = taps.repeat_interleave(c // taps.shape[-2], -2)
    before = F.pad(x, (0, 0, (n - 1) * dilation, 0))
    y = sum(taps[..., j] * before[j * dilation:j * dilation + T] for j in range(n))
    return y if bias is None else y + bias


def ngram_gather(ids, table, multipliers, sizes, offsets, eos=None, before=None):
    T, n = len(ids), len(multipliers) // 2
    table = table.flatten(0, -2)
    ids = ids.long().flatten()
    parts, ended = [ids], torch.zeros(T, dtype=torch.bool, device=ids.device)
    for s in range(1, n):
        ended = ended | (torch.arange(T, device=ids.device) < s)
        seen = torch.where(ended, before if eos is None else eos, F.pad(ids, (s, 0))[:T])
        if eos is not None:
            ended = ended | (seen == eos)
        parts.append(seen)
    # 64 bits, whose products wrap around
    by = [(int(multipliers[2 * s]) + (int(multipliers[2 * s + 1]) << 32) + 2**63) % 2**64 - 2**63
          for s in range(n)]
    hashed, rows = parts[0] * by[0], []
    for j, (size, offset) in enumerate(zip(sizes, offsets)):
        s = j // (len(sizes) // (n - 1)) + 1
        if j % (len(sizes) // (n - 1)) == 0:
            hashed = hashed ^ (parts[s] * by[s])
        rows.append(hashed % int(size) + int(offset))
    return F.embedding(torch.stack(rows, 1), table)


def delta_rule(q, k, v, decay=None, beta=None, scale=1.0, rule="delta"):
    each = v.shape[1] // q.shape[1]
    q, k = (x.repeat_interleave(each, 1) for x in (q, k))
    S, rows = v.new_zeros(v.shape[1], q.shape[2], v.shape[2]), []
    for t in range(len(v)):
        S = S if decay is None else decay[t][..., None] * S
        e = v[t] if rule == "additive" else v[t] - (k[t][..., None] * S).sum(1)
        e = e if beta is None else beta[t][:, None] * e
        S = S + k[t][..., None] * e[:, None]
        rows.append(scale * (q[t][..., None] * S).sum(1))
    return torch.stack(rows)
