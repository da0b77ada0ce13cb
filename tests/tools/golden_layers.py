"""The sublayers of the golden models in numpy (golden_reference.py): grouped-query attention, gated MLP,
Kimi Delta Attention, multi-head latent attention, mixture of experts. Every x is [T, d]."""
import numpy as np


# ---- the parts of layers ---------------------------------------------------------------------

def sigmoid(x):
    return 0.5 * (1 + np.tanh(0.5 * x))


def silu(x):
    return x * sigmoid(x)


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def linear(w, x):
    return x @ w.T


def rope(x, theta, positions):
    """(2.3) for x [T, heads, hd] and one position a token: halves a, b become a cos - b sin, b cos + a sin"""
    half = x.shape[-1] // 2
    j = np.arange(half)
    phi = (np.asarray(positions, float)[:, None] * theta ** (-2 * j / (2 * half)))[:, None, :]
    cos, sin = np.cos(phi).astype(x.dtype), np.sin(phi).astype(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def causal(scores):
    """Softmax over the last axis of [..., T, T], each row over the positions up to its own"""
    t = scores.shape[-1]
    return softmax(np.where(np.tril(np.ones((t, t), bool)), scores, -np.inf))


# ---- section 2: grouped-query attention ------------------------------------------------------

def grouped(m, layer, x, inputs=None, values=None, k_norm_after_rope=False, memory=None, scores=None):
    """`inputs`: what W_q, W_k, W_v read, where it is not x (19.1). `values(q, k, v)`: what takes the place of v (2.5).
    `memory(k, v)`: of k and v before (2.2). `scores(s)`: of the scores [H, T, T] (2.5)."""
    c = m.c
    heads, groups, hd = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    name = f"model.layers.{layer}.self_attn."
    xq, xk, xv = inputs or (x, x, x)
    t = len(xq)
    q = linear(m.w(name + "q_proj.weight", heads * hd, m.d), xq).reshape(t, heads, hd)
    k = linear(m.w(name + "k_proj.weight", groups * hd, m.d), xk).reshape(t, groups, hd)
    v = linear(m.w(name + "v_proj.weight", groups * hd, m.d), xv).reshape(t, groups, hd)
    if memory:
        k, v = memory(k, v)
    has_norm = c["model_type"] == "qwen3"                                                   # (2.2)
    if has_norm:
        q = m.gained(q, name + "q_norm.weight")
        if not k_norm_after_rope:
            k = m.gained(k, name + "k_norm.weight")
    q, k = (rope(y, c["rope_theta"], range(t)) for y in (q, k))
    if has_norm and k_norm_after_rope:                                                      # (25.6)
        k = m.gained(k, name + "k_norm.weight")
    if values:
        v = values(q, k, v)
    each = heads // groups
    k, v = np.repeat(k, each, 1), np.repeat(v, each, 1)                                     # (2.4)
    s = np.einsum("thc,shc->hts", q, k) / hd ** 0.5
    p = causal(scores(s) if scores else s)
    o = np.einsum("hts,shc->thc", p, v).reshape(t, heads * hd)
    return linear(m.w(name + "o_proj.weight", m.d, heads * hd), o)


# ---- section 3: gated MLP --------------------------------------------------------------------

def act(m, g, u):
    if m.c["hidden_act"] == "silu":
        return silu(g) * u
    assert m.c["hidden_act"] == "situ"
    beta, lam = m.c["activation_situ_beta"], m.c["activation_situ_linear_beta"]
    return beta * np.tanh(g / beta) * sigmoid(g) * (u if lam is None else lam * np.tanh(u / lam))


def gated(m, name, width, x):
    g = linear(m.w(name + "gate_proj.weight", width, m.d), x)
    u = linear(m.w(name + "up_proj.weight", width, m.d), x)
    return linear(m.w(name + "down_proj.weight", m.d, width), act(m, g, u))


# ---- section 5: Kimi Delta Attention ---------------------------------------------------------

def short_conv(w, x):
    """(5.2): the last of the c taps meets the current token"""
    taps = w.shape[-1]
    padded = np.concatenate([np.zeros((taps - 1, x.shape[1]), x.dtype), x])
    return sum(w[:, 0, j] * padded[j:j + len(x)] for j in range(taps))


def kda(m, layer, x):
    c = m.c["linear_attn_config"]
    heads, width = c["num_heads"], c["head_dim"]
    n, t = heads * width, len(x)
    name = f"model.layers.{layer}.self_attn."
    q, k, v = (silu(short_conv(m.w(f"{name}{p}_conv1d.weight", n, 1, c["short_conv_kernel_size"]),
                                    linear(m.w(f"{name}{p}_proj.weight", n, m.d), x))).reshape(t, heads, width)
               for p in "qkv")
    q, k = (y / np.sqrt((y * y).sum(-1, keepdims=True) + 1e-6) for y in (q, k))             # (5.4)
    q = q * width ** -0.5
    z = linear(m.w(name + "f_b_proj.weight", n, width), linear(m.w(name + "f_a_proj.weight", width, m.d), x))
    z = (z + m.w(name + "dt_bias", n)).reshape(t, heads, width)
    a = np.exp(m.w(name + "A_log", (1, 1, heads, 1), (None,)).reshape(-1)[:heads])[:, None]
    bound = c.get("gate_lower_bound")
    decay = np.exp(-a * np.logaddexp(0, z) if bound is None else bound * sigmoid(a * z))
    beta = sigmoid(linear(m.w(name + "b_proj.weight", heads, m.d), x))
    s = np.zeros((heads, width, width), x.dtype)
    o = np.zeros_like(v)
    for i in range(t):                                                                      # (5.8)
        s = decay[i][:, :, None] * s
        err = v[i] - np.einsum("hij,hi->hj", s, k[i])
        s = s + np.einsum("hi,hj->hij", beta[i][:, None] * k[i], err)
        o[i] = np.einsum("hij,hi->hj", s, q[i])
    if c.get("use_full_rank_gate", False):
        gate = linear(m.w(name + "g_proj.weight", n, m.d), x)
    else:
        gate = linear(m.w(name + "g_b_proj.weight", n, width),
                           linear(m.w(name + "g_a_proj.weight", width, m.d), x))
    o = m.gained(o, name + "o_norm.weight").reshape(t, n) * sigmoid(gate)              # (5.9)
    return linear(m.w(name + "o_proj.weight", m.d, n), o)


# ---- section 6: multi-head latent attention --------------------------------------------------

def latent(m, layer, x):
    c = m.c
    heads, nope, shared, width = c["num_attention_heads"], c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    rank, q_rank, t = c["kv_lora_rank"], c["q_lora_rank"], len(x)
    eps = c.get("mla_norm_eps", 1e-6)
    name = f"model.layers.{layer}.self_attn."
    if q_rank is None:
        q = linear(m.w(name + "q_proj.weight", heads * (nope + shared), m.d), x)
    else:
        low = linear(m.w(name + "q_a_proj.weight", q_rank, m.d), x)
        low = m.norm(low, m.w(name + "q_a_layernorm.weight", q_rank), eps)
        q = linear(m.w(name + "q_b_proj.weight", heads * (nope + shared), q_rank), low)
    q = q.reshape(t, heads, nope + shared)
    u = linear(m.w(name + "kv_a_proj_with_mqa.weight", rank + shared, m.d), x)
    low = m.norm(u[:, :rank], m.w(name + "kv_a_layernorm.weight", rank), eps)
    kv = linear(m.w(name + "kv_b_proj.weight", heads * (nope + width), rank), low).reshape(t, heads, nope + width)
    scores = np.einsum("thc,shc->hts", q[..., :nope], kv[..., :nope])
    scores = (scores + np.einsum("thc,sc->hts", q[..., nope:], u[:, rank:])) / (nope + shared) ** 0.5
    o = np.einsum("hts,shc->thc", causal(scores), kv[..., nope:]).reshape(t, heads * width)
    if c.get("mla_use_output_gate", False):
        o = o * sigmoid(linear(m.w(name + "g_proj.weight", heads * width, m.d), x))
    return linear(m.w(name + "o_proj.weight", m.d, heads * width), o)


# ---- section 7: mixture of experts -----------------------------------------------------------

def experts(m, layer, x):
    c = m.c
    count, picked, width = c["num_experts"], c["num_experts_per_token"], c["moe_intermediate_size"]
    is_latent = c.get("routed_expert_hidden_size") is not None
    z = c["routed_expert_hidden_size"] if is_latent else m.d
    name = f"model.layers.{layer}.block_sparse_moe."
    s = sigmoid(linear(m.w(name + "gate.weight", count, m.d), x))                 # (7.1)
    biased = s + m.w(name + "gate.e_score_correction_bias", count)
    order = np.argsort(-biased, -1, kind="stable")
    if picked < count:
        ranked = np.take_along_axis(biased, order, -1)
        m.margins.append(float((ranked[:, picked - 1] - ranked[:, picked]).min()))
    chosen = order[:, :picked]
    weights = np.take_along_axis(s, chosen, -1)                                             # (7.3), (7.4)
    if c["moe_renormalize"]:
        weights = weights / (weights.sum(-1, keepdims=True) + 1e-20)
    weights = weights * c["routed_scaling_factor"]
    xz = linear(m.w(name + "routed_expert_down_proj.weight", z, m.d), x) if is_latent else x
    r = np.zeros_like(xz)
    for i in range(count):                                                                  # (7.5)
        w1, w3, w2 = (m.w(f"{name}experts.{i}.{n}.weight", *shape) for n, shape in (("w1", (width, z)), ("w3", (width, z)), ("w2", (z, width))))
        share = (weights * (chosen == i)).sum(-1, keepdims=True)
        r = r + share * linear(w2, act(m, linear(w1, xz), linear(w3, xz)))
    if is_latent:                                                                           # (7.6)
        if c.get("latent_moe_use_norm", False):
            r = m.gained(r, name + "routed_expert_norm.weight")
        r = linear(m.w(name + "routed_expert_up_proj.weight", m.d, z), r)
    return r + gated(m, name + "shared_experts.", width * c["num_shared_experts"], x)       # (7.7)


# ---- which of them a layer has ---------------------------------------------------------------

def attention(m, layer, x, **options):
    if m.c["model_type"] != "kimi_linear":
        return grouped(m, layer, x, **options)
    lists = m.c["linear_attn_config"]
    return (kda if layer + 1 in lists["kda_layers"] else latent)(m, layer, x)


def mlp(m, layer, x):
    c = m.c
    if c["model_type"] == "kimi_linear" and layer >= c["first_k_dense_replace"] and layer % c["moe_layer_freq"] == 0:
        return experts(m, layer, x)
    return gated(m, f"model.layers.{layer}.mlp.", c["intermediate_size"], x)
