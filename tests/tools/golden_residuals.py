"""The residual systems of the golden models in numpy (golden_reference.py): how information travels over depth.

A system is a function of the model and the embedded tokens e [T, d]; it calls the sublayers in order and gives what
the last norm reads. Weights of depth mixes go to m.mixed.
"""
import itertools
import math

import numpy as np

from golden_layers import linear, rope, sigmoid, softmax


def gelu(x):
    """(19.3), the exact form"""
    erf = np.vectorize(math.erf, otypes=[float])
    return x / 2 * (1 + erf(x / math.sqrt(2)).astype(x.dtype))


def sublayers(m):
    return range(2 * m.layers)


def layer_as_usual(m, layer, h):
    for k in (2 * layer, 2 * layer + 1):
        h = h + m.normed(k, h)
    return h


def weighted(a, sources):
    """sum_j a[..., j] sources[j] for a of [T, n] or [n]"""
    return sum(a[..., j, None] * s for j, s in enumerate(sources))


# ---- sections 8 to 16: one stream -------------------------------------------------------------

def standard(m, h):
    for layer in range(m.layers):
        h = layer_as_usual(m, layer, h)
    return h


def rezero(m, h):
    for k in sublayers(m):
        h = h + m.of_layer(k // 2, "alpha", 1) * m.sublayer(k, h)
    return h


def layerscale(m, h):
    for k in sublayers(m):
        h = h + m.at(k, "scale", m.d) * m.normed(k, h)
    return h


def highway(m, h):
    for k in sublayers(m):
        g = sigmoid(linear(m.at(k, "gate.weight", m.d, m.d), h) + m.at(k, "gate.bias", m.d))
        h = (1 - g) * h + g * m.normed(k, h)
    return h


def deepnorm(m, h):
    for k in sublayers(m):
        h = m.norm(m.residual["alpha"] * h + m.sublayer(k, h), m.at(k, "norm.weight", m.d))
    return h


def keel(m, h):
    for k in sublayers(m):
        h = m.norm(m.residual["alpha"] * h + m.normed(k, h), m.at(k, "norm.weight", m.d))
    return h


def siamesenorm(m, e):
    x = y = e
    for k in sublayers(m):
        x = m.norm(x, m.at(k, "post_norm.weight", m.d))                                     # (14.1)
        u = x + m.norm(y, m.at(k, "pre_norm.weight", m.d))
        if m.residual["input_norm"]:
            u = m.norm(u, m.at(k, "input_norm.weight", m.d))
        new = m.sublayer(k, u)
        x = x + new / (math.sqrt(2 * (k // 2 + 1)) if m.residual["depth_scale"] else 1)     # (14.3)
        y = y + new
    return m.norm(x, m.of_model("x_norm.weight", m.d)) + m.norm(y, m.of_model("y_norm.weight", m.d))


def laurel(m, h):
    r = m.residual["rank"]
    for k in sublayers(m):
        normed = m.pre_norm(k, h)
        a = m.norm(m.sublayer(k, normed), m.at(k, "post_norm.weight", m.d))
        if k % 2:                                                                           # (15.2)
            h = h + a
            continue
        low = linear(m.at(k, "up.weight", m.d, r), linear(m.at(k, "down.weight", r, m.d), normed))
        h = (h + a + normed + m.norm(low, m.at(k, "norm.weight", m.d))) / math.sqrt(2)      # (15.1)
    return h


def value_residual(m, h):
    first = []

    def values(q, k, v):
        if not first:
            first.append(v)
            return v
        return m.residual["lambda_first"] * first[0] + m.residual["lambda_own"] * v         # (16.1)

    for layer in range(m.layers):
        h = h + m.sublayer(2 * layer, m.pre_norm(2 * layer, h), values=values)
        h = h + m.normed(2 * layer + 1, h)
    return h


# ---- sections 17 to 19: states after layers ---------------------------------------------------

def elmo(m, h):
    states = [h]
    for layer in range(m.layers):
        h = layer_as_usual(m, layer, h)
        states.append(h)
    p = softmax(m.of_model("weights", m.layers + 1))
    m.mixed(p)
    return m.of_model("gamma", 1) * weighted(p, states)


def denseformer(m, h):
    dilation, period = m.residual["dilation"], m.residual["period"]
    states = [h]
    for i in range(m.layers):
        h = layer_as_usual(m, i, h)
        states.append(h)
        if (i + 1) % period == 0:                                                           # (18.2)
            sources = [s for j, s in enumerate(states) if j % dilation == (i + 1) % dilation]
            alpha = m.of_layer(i, "alpha", len(sources))
            m.mixed(alpha)
            h = weighted(alpha, sources)
    return h


def muddformer(m, e):
    states, ways = [e], None
    for i in range(m.layers):
        is_last = i == m.layers - 1
        if i == 0:
            h = e + m.normed(0, e)
        else:
            name = f"model.layers.{i}.input_layernorm_"
            inputs = tuple(m.gained(ways[c], f"{name}{way}.weight") for c, way in enumerate("qkv"))
            h = ways[3] + m.sublayer(2 * i, None, inputs=inputs)
        h = h + m.normed(2 * i + 1, h)
        states.append(h)
        n, count = i + 2, 1 if is_last else 4
        hidden = n * count * (4 if is_last and m.residual["expand_last"] else 1)
        if m.residual["round64"]:
            hidden = (hidden // 64 + 1) * 64
        a = gelu(linear(m.of_layer(i, "w1.weight", hidden, m.d), m.norm(h)))           # (19.3)
        a = linear(m.of_layer(i, "w2.weight", count * n, hidden), a).reshape(-1, count, n)
        a = a + m.of_layer(i, "bias", count, n)
        m.mixed(a)
        ways = [weighted(a[:, c], states) for c in range(count)]
    return ways[0]


# ---- sections 20 to 23: several streams, or a matrix -------------------------------------------

def hyper_connections(m, e):
    n = m.residual["num_streams"]
    x = np.stack([e] * n, 1)                                                                # [T, n, d]
    for k in sublayers(m):
        normed = m.norm(x, m.at(k, "norm.weight", m.d))
        alpha = m.at(k, "alpha_static", n, n + 1) + m.at(k, "alpha_scale", 1) * np.tanh(normed @ m.at(k, "alpha_fn", n + 1, m.d).T)
        beta = m.at(k, "beta_static", n) + m.at(k, "beta_scale", 1) * np.tanh(normed @ m.at(k, "beta_fn", 1, m.d).T)[..., 0]
        read = np.einsum("ts,tsd->td", alpha[:, :, 0], x)                                   # (20.4)
        kept = np.einsum("tsj,tsd->tjd", alpha[:, :, 1:], x)
        x = kept + beta[:, :, None] * m.normed(k, read)[:, None, :]
    return x.sum(1)


def flat(x):
    return x.reshape(len(x), -1)


def sinkhorn(c, iters, eps):
    """(21.6): rows by softmax, then columns; further rounds divide rows and columns by their sums"""
    c = softmax(c, -1) + eps
    c = c / (c.sum(-2, keepdims=True) + eps)
    for _ in range(iters - 1):
        c = c / (c.sum(-1, keepdims=True) + eps)
        c = c / (c.sum(-2, keepdims=True) + eps)
    return c


def mhc(m, e):
    p = m.residual
    n, eps = p["num_streams"], p["hc_eps"]
    x = np.stack([e] * n, 1)
    for k in sublayers(m):
        mix = linear(m.at(k, "fn", 2 * n + n * n, n * m.d), m.norm(flat(x)))
        b, scale = m.at(k, "base", 2 * n + n * n), m.at(k, "scale", 3)
        pre = sigmoid(scale[0] * mix[:, :n] + b[:n]) + eps
        post = p["post_mult"] * sigmoid(scale[1] * mix[:, n:2 * n] + b[n:2 * n])
        c = sinkhorn((scale[2] * mix[:, 2 * n:] + b[2 * n:]).reshape(-1, n, n), p["sinkhorn_iters"], eps)
        y = m.normed(k, np.einsum("ti,tid->td", pre, x))
        x = post[:, :, None] * y[:, None, :] + np.einsum("tmn,tmd->tnd", c, x)              # (21.7)
    head = linear(m.of_model("head_fn", n, n * m.d), m.norm(flat(x)))
    mix = sigmoid(m.of_model("head_scale", 1) * head + m.of_model("head_base", n)) + eps
    return np.einsum("ti,tid->td", mix, x)


def mhc_lite(m, e):
    n = m.residual["num_streams"]
    permutations = list(itertools.permutations(range(n)))
    matrices = np.zeros((len(permutations), n, n), e.dtype)
    for r, permutation in enumerate(permutations):
        matrices[r, np.arange(n), permutation] = 1
    x = np.stack([e] * n, 1)
    for k in sublayers(m):
        normed = m.norm(flat(x), m.at(k, "norm.weight", n * m.d))
        pre, post, res = (m.at(k, f"{p}_scale", 1) * linear(m.at(k, f"{p}_fn", rows, n * m.d), normed) + m.at(k, f"{p}_base", rows)
                          for p, rows in (("pre", n), ("post", n), ("res", len(permutations))))
        c = np.einsum("tr,rij->tij", softmax(res), matrices)
        y = m.normed(k, np.einsum("ti,tid->td", sigmoid(pre), x))
        x = 2 * sigmoid(post)[:, :, None] * y[:, None, :] + np.einsum("tij,tid->tjd", c, x)
    return x.sum(1)


def compress(x, conv, read):
    """(23.6): X [T, d, c] along its columns, then their sum: x[i] = sum_j read[j] sum_t conv[i, t] X[i, j + t - p]"""
    taps, columns = conv.shape[1], x.shape[2]
    before = (taps - 1) // 2
    padded = np.pad(x, ((0, 0), (0, 0), (before, taps - 1 - before)))
    y = sum(conv[:, t, None] * padded[:, :, t:t + columns] for t in range(taps))
    return y @ read


def ddl(m, e):
    p = m.residual
    columns = p["value_channels"]
    state = np.stack([e] * columns, 2)                                                      # [T, d, c]

    def column(take):
        if columns == 1:
            return state[:, :, 0]
        return compress(state, take("conv", m.d, p["conv_kernel"]), take("read", columns))

    for k in sublayers(m):
        x = column(lambda name, *shape: m.of_layer(k // 2, name, *shape))
        normed = m.pre_norm(k, x)
        y = m.sublayer(k, normed)
        key = y / np.sqrt((y * y).sum(-1, keepdims=True) + p["k_eps"] ** 2)                 # (23.2)
        beta = 2 * sigmoid(linear(m.at(k, "beta.weight", 1, m.d), normed) + m.at(k, "beta.bias", 1))
        v = p["v_sigmoid_scale"] * sigmoid(linear(m.at(k, "v.weight", columns, m.d), x) + m.at(k, "v.bias", columns))
        step = beta * (v - np.einsum("td,tdc->tc", key, state))
        state = state + key[:, :, None] * step[:, None, :]
    return column(m.of_model)


# ---- section 24: Attention Residuals -----------------------------------------------------------

def attnres_mix(m, name, sources):
    p = m.residual
    width, heads = m.d, p.get("num_heads", 1)
    if p.get("window") is not None and len(sources) > p["window"] + 1:                      # (24.5)
        sources = sources[:1] + sources[len(sources) - p["window"]:]
    v = np.stack(sources, 1)                                                                # [T, n, d]
    n = len(sources)
    if p["query"] == "none":
        scores = np.broadcast_to(m.w(name + "_logits.weight", n)[:, None], (len(v), n, 1))
    else:
        keys = m.norm(v, m.w(name + "_norm.weight", width)) if p["key_norm"] else v
        if p["query"] == "learned":
            q = np.broadcast_to(m.w(name + "_proj.weight", 1, width)[0], v[:, -1].shape)
        else:
            q = linear(m.w(name + "_proj.weight", width, width), v[:, -1])             # (24.7)
        scores = (q[:, None, :] * keys).reshape(-1, n, heads, width // heads).sum(-1)       # [T, n, heads]
    if n == 1:                                                                              # (24.4)
        return v[:, 0]
    a = softmax(scores, 1) if p["normalization"] == "softmax" else sigmoid(scores)
    m.mixed(a[:, :, 0] if heads == 1 else a.transpose(0, 2, 1))
    return (np.repeat(a, width // heads, 2) * v).sum(1)


def attnres(m, e):
    size = m.residual["block_size_sublayers"]
    bank, prefix = [], e
    for k in sublayers(m):
        name = f"model.layers.{k // 2}.{('self_attention', 'mlp')[k % 2]}_res"
        read = attnres_mix(m, name, bank + [prefix])
        if k % size == 0:                                                                   # (24.1)
            bank, prefix = bank + [prefix], None
        y = m.normed(k, read)
        prefix = y if prefix is None else prefix + y
    return attnres_mix(m, "model.output_attn_res", bank + [prefix])


# ---- section 25: Depth-Attention ---------------------------------------------------------------

def depth_attention(m, h):
    p = m.residual
    kept = {}                                                                               # (loop, layer) to k, v'

    def layer(loop, l, h):
        def values(q, k, v):
            t, groups, hd = k.shape
            before = [(r, l) for r in range(loop)]
            before += [(loop, i) for i in range(l) if i % p["stride"] == 0 or i >= l - p["recent_window"]]
            if before:                                                                      # (25.3), (25.4)
                mean = q.reshape(t, groups, -1, hd).mean(2)
                keys = [kept[s][0] for s in before] + [k]
                a = softmax(np.stack([(mean * key).sum(-1) / hd ** 0.5 for key in keys], -1))
                m.mixed(a)
                v = weighted(a, [kept[s][1] for s in before] + [v])
            kept[loop, l] = k, v
            return v

        h = h + m.sublayer(2 * l, m.pre_norm(2 * l, h), values=values, k_norm_after_rope=p["k_norm_after_rope"])
        return h + m.normed(2 * l + 1, h)

    for loop in range(p["loops"]):
        for l in range(m.layers):
            h = layer(loop, l, h)
    return h


# ---- sections 28 to 31 ----------------------------------------------------------------------

def densenet(m, e):
    sources = [e]
    for k in sublayers(m):
        read = e if k == 0 else linear(m.at(k, "proj.weight", m.d, (k + 1) * m.d), np.concatenate(sources, 1))
        sources.append(m.normed(k, read))
    return linear(m.of_model("proj.weight", m.d, len(sources) * m.d), np.concatenate(sources, 1))


def cut(x, heads):
    return x.reshape(len(x), heads, -1)


def over_depth(m, scores, values):
    """Softmax of the scores of all sources [T, heads] and the sum of their values [T, heads, width], heads side by side"""
    a = softmax(np.stack(scores, -1))
    if len(scores) > 1:
        m.mixed(a)
    return flat(weighted(a, values))


def mrla(m, e):
    return {"table": mrla_table, "base": mrla_layers, "light": mrla_layers}[m.residual["form"]](m, e)


def mrla_table(m, e):
    heads, read = m.residual["num_heads"], e
    keys, values = [], []
    for k in sublayers(m):
        y = m.normed(k, read)
        q, key, v = (cut(linear(m.at(k, f"{p}_proj.weight", m.d, m.d), y), heads) for p in "qkv")
        keys.append(sigmoid(key))
        values.append(v)
        a = np.stack([(sigmoid(q) * key).sum(-1) for key in keys], -1)                 # (29.3)
        if k:
            m.mixed(a)
        read = flat(weighted(a, values))
    return read


def mrla_layers(m, h):
    heads, is_light = m.residual["num_heads"], m.residual["form"] == "light"
    scale = (m.d // heads) ** 0.5
    keys, values = [], []
    for layer in range(m.layers):
        before = h
        h = layer_as_usual(m, layer, h)
        u = m.norm(h, m.of_layer(layer, "norm.weight", m.d))
        q, key, v = (cut(linear(m.of_layer(layer, f"{p}_proj.weight", m.d, m.d), u), heads) for p in "qkv")
        if is_light:                                                                        # (29.7)
            o = flat(sigmoid((q * key).sum(-1) / scale)[:, :, None] * gelu(v))
            o = o + m.of_layer(layer, "lambda", m.d) * m.norm(before, m.of_layer(layer, "prev_norm.weight", m.d))
        else:
            keys.append(key)
            values.append(v)
            o = over_depth(m, [(q * key).sum(-1) / scale for key in keys], values)
        h = h + o
    return h


def ancre(m, e):
    states = [e]

    def shortcuts(logits):
        p = softmax(logits / m.residual["temperature"])
        if len(p) > 1:
            m.mixed(p)
        return weighted(p, states)

    if m.residual["unit"] == "sublayer":
        for k in sublayers(m):
            states.append(m.normed(k, states[k]) + shortcuts(m.at(k, "logits", k + 1)))     # (30.2)
    else:
        for layer in range(m.layers):
            states.append(layer_as_usual(m, layer, states[layer]) + shortcuts(m.of_layer(layer, "logits", layer + 1)))
    return states[-1]


def dreamer(m, h):
    p = m.residual
    heads, hd, theta = p["num_heads"], p["head_dim"], p["depth_rope_theta"]
    n, keys, values = heads * hd, [], []
    for step in range(p["loops"] * m.layers):
        layer = step % m.layers
        h = h + m.normed(2 * layer, h)
        u = m.norm(h, m.of_layer(layer, "norm.weight", m.d))
        q, key, v = (cut(linear(m.of_layer(layer, f"{w}_proj.weight", n, m.d), u), heads) for w in "qkv")
        if theta is not None:                                                               # (31.3)
            q, key = (rope(y, theta, [step] * len(y)) for y in (q, key))
        keys.append(key)
        values.append(v)
        o = over_depth(m, [(q * key).sum(-1) / hd ** 0.5 for key in keys], values)
        h = h + linear(m.of_layer(layer, "o_proj.weight", m.d, n), o)
        h = h + m.normed(2 * layer + 1, h)
    return h


# ---- sections 32 to 35: inside attention, and gated streams ------------------------------------

def realformer(m, h):
    p, carried = m.residual, []

    def scores(s):
        carried.append(s + carried[-1] if carried else s)                                   # (32.1)
        return carried[-1] / len(carried) if p["scores"] == "mean" else carried[-1]

    for k in sublayers(m):
        options = {} if k % 2 else {"scores": scores}
        if p["norm"] == "pre":
            h = h + m.sublayer(k, m.pre_norm(k, h), **options)
        else:
            h = m.norm(h + m.sublayer(k, h, **options), m.at(k, "norm.weight", m.d))
    return h


def hybridnorm(m, h):
    for layer in range(m.layers):
        a, is_pre = 2 * layer, layer == 0 and m.residual["first_block"] == "pre"

        def values(_q, _k, v):
            return m.norm(v, m.at(a, "v_norm.weight", v.shape[-1]))

        h = h + m.sublayer(a, m.pre_norm(a, h) if is_pre else h, values=values)             # (33.1), (33.3)
        z = m.pre_norm(a + 1, h)
        h = (h if is_pre else z) + m.sublayer(a + 1, z)                                     # (33.2)
    return h


def lime(m, h):
    keys, values = [], []                                                                   # [T, G, hd] of each layer, unmixed
    for layer in range(m.layers):
        def memory(k, v):
            keys.append(k)
            values.append(v)
            if layer == 0:
                return k, v
            groups = k.shape[1]
            router = m.at(2 * layer, "router.weight", groups, len(keys) * groups)
            return tuple(np.einsum("gj,tjc->tgc", router, np.concatenate(x, 1)) for x in (keys, values))

        h = h + m.sublayer(2 * layer, m.pre_norm(2 * layer, h), memory=memory)
        h = h + m.normed(2 * layer + 1, h)
    return h


def mgr(m, e):
    n, streams, h = m.residual["num_streams"], [e], e

    def by_stream(row):
        return np.stack([linear(row, m.norm(s))[:, 0] for s in streams], 1) / m.d ** 0.5

    for k in sublayers(m):
        y = m.normed(k, h)
        if len(streams) < n:
            streams.append(y)                                                               # (35.2)
        else:
            g = sigmoid(by_stream(m.at(k, "gate.weight", 1, m.d)) + m.at(k, "gate.bias", n))[..., None]
            streams = [(1 - g[:, i]) * s + g[:, i] * y for i, s in enumerate(streams)]      # (35.3)
        a = softmax(by_stream(m.at(k, "pool.weight", 1, m.d)))
        m.mixed(a)
        h = weighted(a, streams)                                                            # (35.4)
    return h


SYSTEMS = {
    "standard": standard, "rezero": rezero, "layerscale": layerscale, "highway": highway, "deepnorm": deepnorm, "keel": keel,
    "siamesenorm": siamesenorm, "laurel-lr": laurel, "value-residual": value_residual, "elmo": elmo, "denseformer": denseformer,
    "muddformer": muddformer, "hyper-connections": hyper_connections, "mhc": mhc, "mhc-lite": mhc_lite, "ddl": ddl,
    "attnres": attnres, "depth-attention": depth_attention, "densenet": densenet, "mrla": mrla, "ancre": ancre, "dreamer": dreamer,
    "realformer": realformer, "hybridnorm": hybridnorm, "lime": lime, "mgr": mgr,
}
