/* The spec of a config, as a person would write it: parameters at the top, then the layers in a
 * loop. Parameters that the model has no use for are left out. */
#include "frontend/import_spec.h"

#include <string.h>

static bool is_attnres(const hfe_config *c) {
    return c->block_layers > 0 || c->block_sublayers > 0;
}

static bool is_full(const hfe_config *c) {
    return c->block_sublayers == 1;
}

static bool is_swiglu(const hfe_config *c) {
    return strcmp(c->act, "silu") == 0 || strcmp(c->act, "swish") == 0;
}

static bool qkv_bias(const hfe_config *c) {
    return c->family == QWEN2 || c->attention_bias;
}

static bool o_bias(const hfe_config *c) {
    return c->family != QWEN2 && c->attention_bias;
}

/* A float of the language: it has a point or an exponent. */
static void add_float(hd_text *out, double x) {
    size_t before = out->n;
    hd_text_double(out, x);
    if (!strpbrk(out->at + before, ".e")) hd_text_add(out, ".0");
}

/* ---- head ---------------------------------------------------------------------------------- */

static void add_title(hd_text *out, const hfe_config *c) {
    static const char *const families[] = {[LLAMA] = "Llama", [QWEN2] = "Qwen2", [QWEN3] = "Qwen3"};
    const char *depth = !is_attnres(c) ? ""
                        : is_full(c)   ? " with Full Attention Residuals"
                                       : " with Block Attention Residuals";
    hd_text_f(out, "# A %s model%s, from its config.json.\n", families[c->family], depth);
    hd_text_add(out, "# Weights are named as in the checkpoint.\n\n");
    hd_text_f(out, "use \"layers\"\nuse \"residual/%s\"\n\n",
              is_attnres(c) ? "attnres" : "standard");
}

/* SwiGLU is in the library; the same with another activation is not. */
static void add_gated_mlp(hd_text *out, const hfe_config *c) {
    const char *op = strcmp(c->act, "relu") == 0   ? "relu"
                     : strcmp(c->act, "gelu") == 0 ? "gelu"
                                                   : "gelu_tanh";
    if (is_swiglu(c)) return;
    hd_text_f(out,
              "# y = W_down (%s(W_gate x) * W_up x)\n"
              "fn gated_mlp(x, ff, bias = false) {\n"
              "    at \"mlp\" {\n"
              "        gate = %s(linear(x, \"gate_proj\", ff, bias: bias))\n"
              "        up = linear(x, \"up_proj\", ff, bias: bias)\n"
              "        y = linear(gate * up, \"down_proj\", dim(x, -1), bias: bias)\n"
              "    }\n"
              "    return y\n"
              "}\n\n",
              op, op);
}

static void add_int_parameter(hd_text *out, const char *name, int64_t value) {
    hd_text_f(out, "    %s = %lld,\n", name, (long long)value);
}

static void add_float_parameter(hd_text *out, const char *name, double value) {
    hd_text_f(out, "    %s = ", name);
    add_float(out, value);
    hd_text_add(out, ",\n");
}

static void add_parameters(hd_text *out, const hfe_config *c) {
    add_int_parameter(out, "layers", c->layers);
    add_int_parameter(out, "hidden", c->hidden);
    add_int_parameter(out, "heads", c->heads);
    add_int_parameter(out, "kv_heads", c->kv_heads);
    add_int_parameter(out, "head_dim", c->head_dim ? c->head_dim : c->hidden / c->heads);
    add_int_parameter(out, "ff", c->ff);
    add_int_parameter(out, "vocab", c->vocab);
    add_float_parameter(out, "eps", c->eps);
    add_float_parameter(out, "theta", c->theta);
    if (c->rope != HFE_ROPE_DEFAULT) add_float_parameter(out, "factor", c->factor);
    if (c->rope == HFE_ROPE_LLAMA3) {
        add_float_parameter(out, "low_freq_factor", c->low_freq_factor);
        add_float_parameter(out, "high_freq_factor", c->high_freq_factor);
        add_int_parameter(out, "original_positions", c->original_positions);
    }
    if (c->block_layers)
        add_int_parameter(out, "block_layers", c->block_layers);
    else if (is_attnres(c) && !is_full(c))
        add_int_parameter(out, "block_sublayers", c->block_sublayers);
}

/* ---- body ---------------------------------------------------------------------------------- */

static void add_residual(hd_text *out, const hfe_config *c) {
    const char *embedding = "embed(\"model.embed_tokens\", vocab, hidden)";
    if (c->rope == HFE_ROPE_LINEAR) hd_text_add(out, "    scaling = linear_scaling(factor)\n");
    if (c->rope == HFE_ROPE_LLAMA3)
        hd_text_add(out, "    scaling = llama3_scaling(factor, low_freq_factor, high_freq_factor, "
                         "original_positions)\n");
    if (!is_attnres(c))
        hd_text_f(out, "    r = standard(%s)\n", embedding);
    else if (is_full(c))
        hd_text_f(out, "    r = attnres_full(%s, eps: eps)\n", embedding);
    else {
        const char *size = c->block_layers ? "block_layers" : "block_sublayers";
        hd_text_f(out, "    r = attnres_block(%s, %s: %s, eps: eps)\n", embedding, size, size);
    }
}

static void add_attention(hd_text *out, const hfe_config *c) {
    bool scaled = c->rope != HFE_ROPE_DEFAULT;
    hd_text_add(out, "            y = attention(x, heads, kv_heads, head_dim, theta: theta");
    if (scaled) hd_text_add(out, ", rope_scaling: scaling");
    if (c->family == QWEN3) hd_text_add(out, ", qk_norm: true, eps: eps");
    if (qkv_bias(c)) hd_text_f(out, ",%sqkv_bias: true", scaled ? "\n                " : " ");
    if (o_bias(c)) hd_text_add(out, ", o_bias: true");
    hd_text_add(out, ")\n");
}

/* What a sublayer, or the head, sees. Only residual systems with weights need a name for it. */
static void add_norm(hd_text *out, const hfe_config *c, const char *variable, const char *method,
                     const char *place, const char *norm) {
    hd_text_f(out, "%s = rmsnorm(r.%s(", variable, method);
    if (is_attnres(c)) hd_text_quoted(out, place);
    hd_text_f(out, "), \"%s\", eps: eps)\n", norm);
}

static void add_layers(hd_text *out, const hfe_config *c) {
    hd_text_add(out, "    for l in 0..layers {\n"
                     "        at \"model.layers.{l}\" {\n");
    add_norm(out, c, "            x", "read", "self_attention_res", "input_layernorm");
    add_attention(out, c);
    hd_text_add(out, "            r.write(y)\n");
    add_norm(out, c, "            x", "read", "mlp_res", "post_attention_layernorm");
    hd_text_f(out, "            r.write(%s(x, ff%s))\n", is_swiglu(c) ? "swiglu" : "gated_mlp",
              c->mlp_bias ? ", bias: true" : "");
    hd_text_add(out, "        }\n    }\n");
}

void hfe_write_spec(hd_text *out, const hfe_config *c, const char *name) {
    add_title(out, c);
    add_gated_mlp(out, c);
    hd_text_f(out, "model %s(\n", name);
    add_parameters(out, c);
    hd_text_add(out, ") {\n");
    add_residual(out, c);
    add_layers(out, c);
    add_norm(out, c, "    h", "result", "model.output_attn_res", "model.norm");
    hd_text_f(out, "    output logits = %s(h, vocab)\n}\n", c->tied ? "tied_head" : "head");
}
