"""A second, independent implementation of every residual system: plain Python in float64, one token after the other, from
the formulas. Slow, and meant to be read.

    model = Model(config, seed)
    logits, mixes = model.run(tokens)      # mixes[M]: the weights of depth mix M, per token
    model.weights                          # name -> (shape, flat values), made up as they are asked for

Weights are float32 numbers. d, L, eps and so on are those of the config; k counts sublayers, l layers.
"""
import array
import math
import random


# ---- vectors are lists ----------------------------------------------------------------------------

def add(a, b):
    return [x + y for x, y in zip(a, b)]


def times(s, a):
    return [s * x for x in a]


def had(a, b):
    return [x * y for x, y in zip(a, b)]


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def matvec(w, x):
    return [dot(row, x) for row in w]


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def softmax(s):
    e = [math.exp(x - max(s)) for x in s]
    return times(1 / sum(e), e)


def rms(x, gain, eps):
    r = 1 / math.sqrt(dot(x, x) / len(x) + eps)
    return [r * a * g for a, g in zip(x, gain)] if gain else times(r, x)


def mix(weights, vectors):
    out = [0.0] * len(vectors[0])
    for w, v in zip(weights, vectors):
        out = add(out, times(w, v))
    return out


def gelu(x):
    return x / 2 * (1 + math.erf(x / math.sqrt(2)))


class Model:
    def __init__(self, config, seed):
        self.c, self.seed, self.weights = config, seed, {}
        self.d, self.L, self.eps = config["hidden_size"], config["num_hidden_layers"], config["rms_norm_eps"]
        self.r = config["residual"]

    # ---- weights, made when they are first asked for ----

    def w(self, name, *shape):
        if name not in self.weights:
            rng = random.Random(f"{self.seed} {name}")
            n = math.prod(shape)
            norm = name.endswith("norm.weight") or "layernorm" in name
            scale = 0.3 if norm else 1.5 / math.sqrt(shape[1]) if len(shape) == 2 and shape[1] > 1 else 0.6
            flat = [(1 if norm else 0) + scale * rng.gauss(0, 1) for _ in range(n)]
            self.weights[name] = (shape, array.array("f", flat))
        stored, flat = self.weights[name]
        assert stored == shape, name
        if len(shape) == 1:
            return list(flat)
        return [list(flat[i * shape[1]:(i + 1) * shape[1]]) for i in range(shape[0])]

    def norm(self, x, name):
        return rms(x, self.w(name, len(x)), self.eps)

    def linear(self, x, name, out, bias=False):
        y = matvec(self.w(name + ".weight", out, len(x)), x)
        return add(y, self.w(name + ".bias", out)) if bias else y

    # ---- sublayers ----

    def attention(self, l, xq, xk, xv, run, system):
        c, p, heads, groups = self.c, f"model.layers.{l}.self_attn.", self.c["num_attention_heads"], self.c["num_key_value_heads"]
        n = c["head_dim"]

        def project(x, name, count):
            y = self.linear(x, p + name, count * n)
            return [y[i * n:(i + 1) * n] for i in range(count)]

        def normed(x, name):
            return [self.norm(h, p + name + ".weight") for h in x] if c["model_type"] == "qwen3" else x

        def rotated(x):
            out = []
            for h in x:
                a, b = h[:n // 2], h[n // 2:]
                phi = [self.t * c["rope_theta"] ** (-2 * j / n) for j in range(n // 2)]
                out.append([a[j] * math.cos(f) - b[j] * math.sin(f) for j, f in enumerate(phi)] +
                           [b[j] * math.cos(f) + a[j] * math.sin(f) for j, f in enumerate(phi)])
            return out

        q = rotated(normed(project(xq, "q_proj", heads), "q_norm"))
        k, v = system.memory(l, project(xk, "k_proj", groups), project(xv, "v_proj", groups))
        k = normed(rotated(k), "k_norm") if self.r.get("k_norm_after_rope") else rotated(normed(k, "k_norm"))
        v = system.values(l, q, k, v)
        keys, values = self.caches.setdefault((run, l), ([], []))
        keys.append(k)
        values.append(v)
        out = []
        for h in range(heads):
            g = h // (heads // groups)
            a = softmax(system.scores(l, h, [dot(q[h], key[g]) / math.sqrt(n) for key in keys]))
            out += mix(a, [value[g] for value in values])
        return self.linear(out, p + "o_proj", self.d)

    def mlp(self, l, x):
        p, f = f"model.layers.{l}.mlp.", self.c["intermediate_size"]
        gate, up = self.linear(x, p + "gate_proj", f), self.linear(x, p + "up_proj", f)
        return self.linear([g * sigmoid(g) * u for g, u in zip(gate, up)], p + "down_proj", self.d)

    # ---- the model ----

    def run(self, tokens):
        self.caches, self.mixes, logits = {}, [], []
        table = self.w("model.embed_tokens.weight", self.c["vocab_size"], self.d)
        head = table if self.c["tie_word_embeddings"] else self.w("lm_head.weight", self.c["vocab_size"], self.d)
        for self.t, token in enumerate(tokens):
            self.mix_number = 0
            system = SYSTEMS[self.r["type"]](self, table[token])
            for loop in range(self.r.get("loops", 1)):
                for l in range(self.L):
                    self.layer(system, l, loop)
            logits.append(matvec(head, self.norm(system.result(), "model.norm.weight")))
        return logits, self.mixes

    def layer(self, system, l, loop):
        for part in (0, 1):
            k, p = 2 * l + part, f"model.layers.{l}."
            x = system.read(k)
            if system.pre_norm:
                x = system.normed(x, p + ("post_attention_layernorm" if part else "input_layernorm"), k)
            y = self.mlp(l, x) if part else self.attention(l, *(x if isinstance(x, tuple) else (x, x, x)), loop, system)
            system.write(k, y, x)

    def trace(self, weights):
        if self.mix_number == len(self.mixes):
            self.mixes.append([])
        self.mixes[self.mix_number].append(weights)
        self.mix_number += 1


def place(k):
    return f"model.layers.{k // 2}.{'mlp' if k % 2 else 'attn'}_residual."


# ---- residual systems: one object per token ---------------------------------------------------------

class Standard:
    pre_norm = True

    def __init__(self, model, e):
        self.m, self.e, self.h, self.p = model, e, e, model.r
        self.start()

    def start(self):
        pass

    def normed(self, x, name, k):
        return self.m.norm(x, name + ".weight")

    def memory(self, l, k, v):
        return k, v

    def values(self, l, q, k, v):
        return v

    def scores(self, l, head, s):
        return s

    def read(self, k):
        return self.h

    def write(self, k, y, x):
        self.h = add(self.h, y)

    def result(self):
        return self.h


class ReZero(Standard):
    pre_norm = False

    def write(self, k, y, x):
        self.h = add(self.h, times(self.m.w(f"model.layers.{k // 2}.residual.alpha", 1)[0], y))


class LayerScale(Standard):
    def write(self, k, y, x):
        self.h = add(self.h, had(self.m.w(place(k) + "scale", self.m.d), y))


class Affine(Standard):
    def write(self, k, y, x):
        at = f"model.layers.{k // 2}.post_{'mlp' if k % 2 else 'attention'}_residual_scale."
        def moved(v, what):
            return had(add(v, self.m.w(at + what + "_bias", self.m.d)), self.m.w(at + what + "_scale", self.m.d))
        self.h = add(moved(y, "hidden_states"), moved(self.h, "residual"))


class Gain(Standard):
    def write(self, k, y, x):
        at = f"model.layers.{k // 2}." + ("post_attention_residual" if k % 2 else "input_residual")
        self.h = add(had(self.m.w(at, self.m.d), self.h), y)


class RunningMean(Standard):
    def write(self, k, y, x):
        i = k + 2
        self.h = add(times(math.sqrt((i - 1) / i), self.h), times(1 / math.sqrt(i), y))


class PreservingGate(Standard):
    def write(self, k, y, x):
        at = f"model.layers.{k // 2}." + ("post_feedforward_residual_gate" if k % 2 else "post_attention_residual_gate")
        b = [sigmoid(g / self.m.r.get("temperature", 0.3)) for g in self.m.w(at + ".gate", self.m.d)]
        a = [math.sqrt(max((1 - v) * (1 + v), 0.001)) for v in b]
        self.h = add(had(a, self.h), had(b, y))


class NormedResidual(Standard):
    def write(self, k, y, x):
        self.h = add(times(self.m.r.get("alpha", 1.0), x), times(self.m.r.get("beta", 1.0), y))


class Highway(Standard):
    def write(self, k, y, x):
        z = self.m.linear(self.h, place(k) + "gate", self.m.d, bias=True)
        self.h = [(1 - sigmoid(a)) * h + sigmoid(a) * b for a, h, b in zip(z, self.h, y)]


class Keel(Standard):
    def write(self, k, y, x):
        self.h = self.m.norm(add(times(self.p["alpha"], self.h), y), place(k) + "norm.weight")


class DeepNorm(Keel):
    pre_norm = False


class Siamese(Standard):
    pre_norm = False

    def start(self):
        self.x, self.y = self.e, self.e

    def read(self, k):
        self.x = self.m.norm(self.x, place(k) + "post_norm.weight")
        u = add(self.x, self.m.norm(self.y, place(k) + "pre_norm.weight"))
        return self.m.norm(u, place(k) + "input_norm.weight") if self.p["input_norm"] else u

    def write(self, k, y, x):
        c = math.sqrt(2 * (k // 2 + 1)) if self.p["depth_scale"] else 1
        self.x, self.y = add(self.x, times(1 / c, y)), add(self.y, y)

    def result(self):
        return add(self.m.norm(self.x, "model.residual.x_norm.weight"), self.m.norm(self.y, "model.residual.y_norm.weight"))


class Laurel(Standard):
    def write(self, k, y, x):
        a = self.m.norm(y, place(k) + "post_norm.weight")
        if k % 2:
            self.h = add(self.h, a)
            return
        z = self.m.linear(self.m.linear(x, place(k) + "down", self.p["rank"]), place(k) + "up", self.m.d)
        low = add(x, self.m.norm(z, place(k) + "norm.weight"))
        self.h = times(1 / math.sqrt(2), add(add(self.h, a), low))


class ValueResidual(Standard):
    def values(self, l, q, k, v):
        if l == 0:
            self.v0 = v
            return v
        return [add(times(self.p["lambda_first"], a), times(self.p["lambda_own"], b)) for a, b in zip(self.v0, v)]


class Lime(Standard):
    def start(self):
        self.keys, self.vals = [], []

    def memory(self, l, k, v):
        self.keys += k
        self.vals += v
        if l == 0:
            return k, v
        router = self.m.w(place(2 * l) + "router.weight", len(k), len(self.keys))
        return [mix(row, self.keys) for row in router], [mix(row, self.vals) for row in router]


class RealFormer(Standard):
    def start(self):
        self.pre_norm, self.carried = self.p["norm"] == "pre", {}

    def scores(self, l, head, s):
        self.carried[head] = add(s, self.carried.get(head, [0.0] * len(s)))
        return times(1 / (l + 1) if self.p["scores"] == "mean" else 1, self.carried[head])

    def write(self, k, y, x):
        self.h = add(self.h, y) if self.pre_norm else self.m.norm(add(self.h, y), place(k) + "norm.weight")


class HybridNorm(Standard):
    def is_pre(self, k):
        return k < 2 and self.p["first_block"] == "pre"

    def normed(self, x, name, k):
        return self.m.norm(x, name + ".weight") if k % 2 or self.is_pre(k) else x

    def values(self, l, q, k, v):
        return [self.m.norm(head, place(2 * l) + "v_norm.weight") for head in v]

    def write(self, k, y, x):
        self.h = add(x if k % 2 and not self.is_pre(k) else self.h, y)


class Elmo(Standard):
    def start(self):
        self.states = [self.e]

    def write(self, k, y, x):
        self.h = add(self.h, y)
        if k % 2:
            self.states.append(self.h)

    def result(self):
        a = softmax(self.m.w("model.residual.weights", self.m.L + 1))
        self.m.trace(a)
        return times(self.m.w("model.residual.gamma", 1)[0], mix(a, self.states))


class DenseFormer(Elmo):
    def write(self, k, y, x):
        super().write(k, y, x)
        if k % 2 == 0 or (k // 2 + 1) % self.p["period"]:
            return
        i, step = k // 2, self.p["dilation"]
        chosen = [s for j, s in enumerate(self.states) if j % step == (i + 1) % step]
        assert len(chosen) == (i + 1 + step) // step
        a = self.m.w(f"model.layers.{i}.residual.alpha", len(chosen))
        self.m.trace(a)
        self.h = mix(a, chosen)

    def result(self):
        return self.h


class Mudd(Standard):
    def start(self):
        self.states, self.ways = [self.e], None

    def normed(self, x, name, k):
        if k % 2 or k == 0:
            return self.m.norm(x, name + ".weight")
        return tuple(self.m.norm(w, f"{name}_{c}.weight") for c, w in zip("qkv", self.ways))

    def write(self, k, y, x):
        self.h = add(self.h, y)
        if k % 2 == 0:
            return
        i, m, last = k // 2, self.m, k // 2 == self.m.L - 1
        n, c = i + 2, 1 if last else 4
        hidden = n * c * (4 if last and self.p["expand_last"] else 1)
        if self.p["round64"]:
            hidden = (hidden // 64 + 1) * 64
        p = f"model.layers.{i}.residual."
        self.states.append(self.h)
        z = [gelu(a) for a in m.linear(rms(self.h, None, m.eps), p + "w1", hidden)]
        flat, bias = m.linear(z, p + "w2", c * n), m.w(p + "bias", c, n)
        a = [[flat[r * n + j] + bias[r][j] for j in range(n)] for r in range(c)]
        m.trace(sum(a, []))
        ways = [mix(row, self.states) for row in a]
        self.h, self.ways = ways[-1], ways[:3]


class HyperConnections(Standard):
    def start(self):
        self.n = self.p["num_streams"]
        self.X = [self.e] * self.n

    def read(self, k):
        m, n, p, d = self.m, self.n, place(k), self.m.d
        N = [m.norm(x, p + "norm.weight") for x in self.X]
        static, fn, scale = m.w(p + "alpha_static", n, n + 1), m.w(p + "alpha_fn", n + 1, d), m.w(p + "alpha_scale", 1)[0]
        alpha = [[static[s][j] + scale * math.tanh(dot(fn[j], N[s])) for j in range(n + 1)] for s in range(n)]
        static, fn, scale = m.w(p + "beta_static", n), m.w(p + "beta_fn", 1, d)[0], m.w(p + "beta_scale", 1)[0]
        self.beta = [static[s] + scale * math.tanh(dot(fn, N[s])) for s in range(n)]
        columns = [mix([alpha[s][j] for s in range(n)], self.X) for j in range(n + 1)]
        self.kept = columns[1:]
        return columns[0]

    def write(self, k, y, x):
        self.X = [add(r, times(b, y)) for r, b in zip(self.kept, self.beta)]

    def result(self):
        return mix([1] * self.n, self.X)


class MHC(HyperConnections):
    def flat(self):
        return rms(sum(self.X, []), None, self.m.eps)

    def sinkhorn(self, c):
        n, eps = self.n, self.p["hc_eps"]

        def columns(c):
            total = [sum(c[i][j] for i in range(n)) + eps for j in range(n)]
            return [[c[i][j] / total[j] for j in range(n)] for i in range(n)]

        c = columns([[a + eps for a in softmax(row)] for row in c])
        for _ in range(self.p["sinkhorn_iters"] - 1):
            c = columns([times(1 / (sum(row) + eps), row) for row in c])
        return c

    def read(self, k):
        m, n, p = self.m, self.n, place(k)
        z = matvec(m.w(p + "fn", 2 * n + n * n, n * m.d), self.flat())
        base, scale = m.w(p + "base", 2 * n + n * n), m.w(p + "scale", 3)
        a = [scale[min(i // n, 2)] * z[i] + base[i] for i in range(2 * n + n * n)]
        pre = [sigmoid(x) + self.p["hc_eps"] for x in a[:n]]
        self.beta = [self.p["post_mult"] * sigmoid(x) for x in a[n:2 * n]]
        c = self.sinkhorn([a[2 * n + i * n:2 * n + i * n + n] for i in range(n)])
        self.kept = [mix([c[i][j] for i in range(n)], self.X) for j in range(n)]
        if not self.p.get("lagged"):
            return mix(pre, self.X)
        x = mix(self.next, self.X)
        self.next = pre
        return x

    def start(self):
        super().start()
        self.next = [1] + [0] * (self.n - 1)    # lagged: of the next read

    def result(self):
        m, n = self.m, self.n
        if self.p.get("lagged"):
            return mix(self.next, self.X)
        if self.p.get("collapse") == "mean":
            return mix([1 / n] * n, self.X)
        z = matvec(m.w("model.residual.head_fn", n, n * m.d), self.flat())
        scale, base = m.w("model.residual.head_scale", 1)[0], m.w("model.residual.head_base", n)
        return mix([sigmoid(scale * a + b) + self.p["hc_eps"] for a, b in zip(z, base)], self.X)


class IHC(MHC):
    def read(self, k):
        m, n, p, eps = self.m, self.n, place(k), self.p["hc_eps"]
        z = matvec(m.w(p + "fn", 2 * n, n * m.d), self.flat())
        base, scale = m.w(p + "base", 2 * n), m.w(p + "scale", 2)
        self.beta = [self.p["magnitude"] * sigmoid(scale[1] * z[n + i] + base[n + i]) + eps for i in range(n)]
        self.kept = self.X
        return mix([sigmoid(scale[0] * z[i] + base[i]) + eps for i in range(n)], self.X)


class GatedStreams(HyperConnections):
    pre_norm = False

    def mixed(self, p):
        m, n, d, rank = self.m, self.n, self.m.d, self.p["rank"]
        w = m.w(p + "hc_norm.weight", n * d)
        Y = [had([1 + g for g in w[s * d:s * d + d]], rms(x, None, m.eps)) for s, x in enumerate(self.X)]
        self.z = times(1 / n, sum(Y, []))
        low = [a * sigmoid(a) for a in m.linear(self.z, p + "input_mix_weight_down", rank)]
        c = [sigmoid(a) for a in m.linear(low, p + "input_mix_weight_up", n * d)]
        return mix([1 / n] * n, [had(c[s * d:s * d + d], y) for s, y in enumerate(Y)])

    def read(self, k):
        p = f"model.layers.{k // 2}.{'mlp' if k % 2 else 'attn'}_hyper_connection."
        y = self.mixed(p)
        self.beta = [2 * sigmoid(a) for a in self.m.linear(self.z, p + "block_inject_weight", self.n)]
        self.kept = self.X
        return y

    def result(self):
        return self.mixed("model.hyper_connection_mixer.")


class MGR(Standard):
    def start(self):
        self.S = [self.e]

    def by_stream(self, name, x):
        w = self.m.w(name + ".weight", 1, self.m.d)[0]
        return [dot(w, rms(s, None, self.m.eps)) / math.sqrt(self.m.d) for s in x]

    def write(self, k, y, x):
        n = self.p["num_streams"]
        if len(self.S) < n:
            self.S.append(y)
        else:
            g = [sigmoid(a) for a in add(self.by_stream(place(k) + "gate", self.S), self.m.w(place(k) + "gate.bias", n))]
            self.S = [add(times(1 - a, s), times(a, y)) for a, s in zip(g, self.S)]
        a = softmax(self.by_stream(place(k) + "pool", self.S))
        self.m.trace(a)
        self.h = mix(a, self.S)


class MHCLite(HyperConnections):
    def read(self, k):
        from itertools import permutations
        m, n, p = self.m, self.n, place(k)
        z = m.norm(sum(self.X, []), p + "norm.weight")

        def head(name, size):
            a = matvec(m.w(f"{p}{name}_fn", size, n * m.d), z)
            scale, base = m.w(f"{p}{name}_scale", 1)[0], m.w(f"{p}{name}_base", size)
            return [scale * x + b for x, b in zip(a, base)]

        self.beta = [2 * sigmoid(a) for a in head("post", n)]
        q = softmax(head("res", math.factorial(n)))
        self.kept = [[0.0] * m.d for _ in range(n)]
        for weight, pi in zip(q, permutations(range(n))):
            for i in range(n):
                self.kept[pi[i]] = add(self.kept[pi[i]], times(weight, self.X[i]))
        return mix([sigmoid(a) for a in head("pre", n)], self.X)


class DDL(Standard):
    def start(self):
        self.channels = self.p["value_channels"]
        self.X = [self.e] * self.channels     # columns

    def compress(self, name):
        c, d = self.channels, self.m.d
        if c == 1:
            return self.X[0]
        kernel = self.p["conv_kernel"]
        conv, read = self.m.w(name + ".conv", d, kernel), self.m.w(name + ".read", c)
        before, out = (kernel - 1) // 2, [0.0] * d
        for i in range(d):
            for j in range(c):
                y = sum(conv[i][t] * self.X[j + t - before][i] for t in range(kernel) if 0 <= j + t - before < c)
                out[i] += read[j] * y
        return out

    def read(self, k):
        self.x = self.compress(f"model.layers.{k // 2}.residual")
        return self.x

    def write(self, k, y, x):
        p = place(k)
        kappa = times(1 / math.sqrt(dot(y, y) + self.p["k_eps"] ** 2), y)
        beta = 2 * sigmoid(self.m.linear(x, p + "beta", 1, bias=True)[0])
        v = [self.p["v_sigmoid_scale"] * sigmoid(a) for a in self.m.linear(self.x, p + "v", self.channels, bias=True)]
        self.X = [add(col, times(beta * (v[j] - dot(kappa, col)), kappa)) for j, col in enumerate(self.X)]

    def result(self):
        return self.compress("model.residual")


class AttnRes(Standard):
    def start(self):
        self.bank, self.prefix = [], self.e

    def mix(self, k):
        p, m, d = self.p, self.m, self.m.d
        name = "model.output_attn_res" if k == 2 * m.L else f"model.layers.{k // 2}.{'mlp' if k % 2 else 'self_attention'}_res"
        v = self.bank + ([self.prefix] if self.prefix else [])
        if p.get("window") and len(v) > p["window"] + 1:
            v = v[:1] + v[-p["window"]:]
        normalize = softmax if p["normalization"] == "softmax" else lambda s: [sigmoid(x) for x in s]
        gain = m.w(name + "_norm.weight", d) if p["key_norm"] else None
        if p["query"] == "none":
            scores = [m.w(name + "_logits.weight", len(v))]
        else:
            keys = [rms(x, gain, m.eps) for x in v] if gain else v
            proj = m.w(name + "_proj.weight", d if p["query"] == "input" else 1, d)
            q = matvec(proj, v[-1]) if p["query"] == "input" else proj[0]
            n = d // p["num_heads"]
            scores = [[dot(q[h:h + n], key[h:h + n]) for key in keys] for h in range(0, d, n)]
        if len(v) == 1:
            return v[0]
        a = [normalize(s) for s in scores]
        m.trace(sum(a, []))
        n = d // len(a)
        return sum((mix(a[h], [x[h * n:h * n + n] for x in v]) for h in range(len(a))), [])

    def read(self, k):
        x = self.mix(k)
        if k % self.p["block_size_sublayers"] == 0:
            self.bank, self.prefix = self.bank + [self.prefix], None
        return x

    def write(self, k, y, x):
        self.prefix = add(self.prefix, y) if self.prefix else y

    def result(self):
        return self.mix(2 * self.m.L)


class NormedAttnRes(AttnRes):
    def mix(self, k):
        m, d = self.m, self.m.d
        name = "model.output_attn_res" if k == 2 * m.L else f"model.layers.{k // 2}.{'mlp' if k % 2 else 'self_attention'}_res"
        v = self.bank + ([self.prefix] if self.prefix else [])
        query = m.w(name + "_proj.weight", 1, d)[0]
        if len(v) == 1:
            return v[0]
        normed = [rms(x, None, self.p["eps"]) for x in v]
        a = softmax([dot(query, x) / math.sqrt(d) for x in normed])
        m.trace(a)
        return mix(a, normed)


class GatedAttnRes(Standard):
    def start(self):
        self.h, self.done = self.e, [self.e]

    def read(self, k):
        p, m, d = self.p, self.m, self.m.d
        if k % 2:
            return self.h
        name = f"model.layers.{k // 2}.attn_res"
        query = m.w(name + ".pseudo_query", d)
        gate = math.tanh(m.w(name + ".gate", 1)[0]) if p.get("gated", True) else 1.0
        if k:
            v = self.done + [self.h]
            a = softmax([dot(query, rms(x, None, p["eps"])) for x in v])
            m.trace(a)
            self.h = add(self.h, times(gate, add(mix(a, v), times(-1, self.h))))
        return self.h

    def write(self, k, y, x):
        self.h = add(self.h, y)
        if (k + 1) % (2 * self.p["block_size_layers"]) == 0:
            self.done = self.done + [self.h]


class DepthAttention(Standard):
    def start(self):
        self.runs = []                        # per (loop, layer): keys and mixed values

    def values(self, l, q, k, v):
        L, p, n = self.m.L, self.p, len(k[0])
        loop = len(self.runs) // L
        sources = [r * L + l for r in range(loop)]
        sources += [loop * L + i for i in range(l) if i % p["stride"] == 0 or i >= l - p["recent_window"]]
        self.runs.append((k, v))
        if not sources:
            return v
        sources, share, out, all_weights = sources + [len(self.runs) - 1], len(q) // len(k), [], []
        for g in range(len(k)):
            mean = times(1 / share, mix([1] * share, q[g * share:(g + 1) * share]))
            a = softmax([dot(mean, self.runs[j][0][g]) / math.sqrt(n) for j in sources])
            all_weights += a
            out.append(mix(a, [self.runs[j][1][g] for j in sources]))
        self.m.trace(all_weights)
        self.runs[-1] = (k, out)
        return out


class DenseNet(Standard):
    def start(self):
        self.sources = [self.e]

    def joined(self, name):
        return self.m.linear(sum(self.sources, []), name, self.m.d)

    def read(self, k):
        return self.joined(place(k) + "proj") if k else self.e

    def write(self, k, y, x):
        self.sources.append(y)

    def result(self):
        return self.joined("model.residual.proj")


def cut(x, heads):
    n = len(x) // heads
    return [x[h * n:h * n + n] for h in range(heads)]


class Mrla(Standard):
    def start(self):
        self.heads, self.keys, self.vals, self.before = self.p["num_heads"], [], [], self.e

    def projections(self, u, p, n):
        q, key, v = (cut(self.m.linear(u, p + name, n), self.heads) for name in ("q_proj", "k_proj", "v_proj"))
        self.keys.append(key)
        self.vals.append(v)
        return q

    def over_depth(self, weights):
        a = [weights(h) for h in range(self.heads)]
        if len(self.keys) > 1:
            self.m.trace(sum(a, []))
        return sum((mix(a[h], [v[h] for v in self.vals]) for h in range(self.heads)), [])

    def table(self, k, y):
        q = self.projections(y, place(k), self.m.d)
        def entries(z):
            return [sigmoid(x) for x in z]
        return self.over_depth(lambda h: [dot(entries(q[h]), entries(key[h])) for key in self.keys])

    def softmax_over_depth(self, q):
        return self.over_depth(lambda h: softmax([dot(q[h], key[h]) / math.sqrt(len(q[h])) for key in self.keys]))

    def light(self, q, p):
        out = []
        for h, v in enumerate(self.vals[-1]):
            out += times(sigmoid(dot(q[h], self.keys[-1][h]) / math.sqrt(len(v))), [gelu(x) for x in v])
        return add(out, had(self.m.w(p + "lambda", self.m.d), self.m.norm(self.before, p + "prev_norm.weight")))

    def write(self, k, y, x):
        p, form = f"model.layers.{k // 2}.residual.", self.p["form"]
        if form == "table":
            self.h = self.table(k, y)
            return
        self.h = add(self.h, y)
        if k % 2:
            q = self.projections(self.m.norm(self.h, p + "norm.weight"), p, self.m.d)
            self.h = add(self.h, self.softmax_over_depth(q) if form == "base" else self.light(q, p))
            self.before = self.h


class Dreamer(Mrla):
    def turned(self, z):
        if self.p["depth_rope_theta"] is None:
            return z
        n, t, out = self.p["head_dim"], len(self.keys) - 1, []
        for head in z:
            half = n // 2
            phi = [t * self.p["depth_rope_theta"] ** (-2 * j / n) for j in range(half)]
            out.append([head[j] * math.cos(f) - head[half + j] * math.sin(f) for j, f in enumerate(phi)] +
                       [head[half + j] * math.cos(f) + head[j] * math.sin(f) for j, f in enumerate(phi)])
        return out

    def write(self, k, y, x):
        p, n = f"model.layers.{k // 2}.residual.", self.heads * self.p["head_dim"]
        self.h = add(self.h, y)
        if k % 2 == 0:
            q = self.turned(self.projections(self.m.norm(self.h, p + "norm.weight"), p, n))
            self.keys[-1] = self.turned(self.keys[-1])
            self.h = add(self.h, self.m.linear(self.softmax_over_depth(q), p + "o_proj", self.m.d))


class Ancre(Standard):
    def start(self):
        self.states = [self.e]

    def shortcuts(self, p):
        a = softmax(times(1 / self.p["temperature"], self.m.w(p + "logits", len(self.states))))
        if len(a) > 1:
            self.m.trace(a)
        return mix(a, self.states)

    def write(self, k, y, x):
        if self.p["unit"] == "sublayer":
            self.h = add(y, self.shortcuts(place(k)))
            self.states.append(self.h)
            return
        self.h = add(self.h, y)
        if k % 2:
            self.h = add(self.h, self.shortcuts(f"model.layers.{k // 2}.residual."))
            self.states.append(self.h)


SYSTEMS = {"standard": Standard, "rezero": ReZero, "layerscale": LayerScale, "affine": Affine, "gain": Gain, "running-mean": RunningMean, "preserving-gate": PreservingGate, "normed-residual": NormedResidual, "highway": Highway, "deepnorm": DeepNorm,
           "keel": Keel, "siamesenorm": Siamese, "laurel-lr": Laurel, "value-residual": ValueResidual, "elmo": Elmo,
           "denseformer": DenseFormer, "muddformer": Mudd, "hyper-connections": HyperConnections, "mhc": MHC, "ihc": IHC,
           "mhc-lite": MHCLite, "gated-streams": GatedStreams, "ddl": DDL, "attnres": AttnRes, "attnres-normed": NormedAttnRes, "attnres-gated": GatedAttnRes, "depth-attention": DepthAttention,
           "densenet": DenseNet, "mrla": Mrla, "dreamer": Dreamer, "ancre": Ancre, "mgr": MGR, "hybridnorm": HybridNorm,
           "realformer": RealFormer, "lime": Lime}
