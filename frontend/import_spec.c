/* The spec of a config, as a person would write it: parameters at the top, then the layers in a
 * loop. Parameters that the model has no use for are left out. */
#include "frontend/import_spec.h"

#include <string.h>

static const hfe_system *system_of(const hfe_config *c) {
    return &hfe_systems[c->residual.type];
}

static bool has(const hfe_config *c, unsigned trait) {
    return system_of(c)->traits & trait;
}

static bool is_attnres(const hfe_config *c) {
    return c->residual.type == HFE_ATTNRES;
}

static bool is_full(const hfe_config *c) {
    return is_attnres(c) && c->block_sublayers == 1;
}

static bool is_looped(const hfe_config *c) {
    return hfe_residual_value(&c->residual, "loops")->number > 1;
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

/* ---- calls that may need more than a line --------------------------------------------------- */

enum { WIDTH = 120 };

typedef struct call {
    hd_text *out;
    const char *indent; /* of further lines */
    size_t line;        /* where the present line began */
    bool first;
} call;

/* `start` begins the line and ends with the opening bracket. */
static call begin_call(hd_text *out, const char *indent, const char *start) {
    call k = {out, indent, out->n, true};
    hd_text_add(out, start);
    return k;
}

static void argument(call *k, const char *text) {
    bool fits = k->out->n - k->line + strlen(text) + strlen(", ),") <= WIDTH;
    if (!k->first) hd_text_add(k->out, fits ? ", " : ",\n");
    if (!k->first && !fits) {
        k->line = k->out->n;
        hd_text_add(k->out, k->indent);
    }
    hd_text_add(k->out, text);
    k->first = false;
}

static void named_argument(call *k, const char *name, const char *value) {
    argument(k, hd_printf(k->out->arena, "%s: %s", name, value));
}

static void end_call(call *k) {
    hd_text_add(k->out, ")\n");
}

/* ---- head ---------------------------------------------------------------------------------- */

static void add_title(hd_text *out, const hfe_config *c) {
    static const char *const families[] = {[LLAMA] = "Llama", [QWEN2] = "Qwen2", [QWEN3] = "Qwen3"};
    const hfe_system *system = system_of(c);
    const char *title = is_full(c) ? "Full Attention Residuals" : system->title;
    hd_text_f(out, "# A %s model%s%s, from its config.json.\n", families[c->family],
              *title ? " with " : "", title);
    hd_text_add(out, "# Weights are named as in the checkpoint.\n\nuse \"layers\"\n");
    if (has(c, VALUES)) hd_text_add(out, "use \"residual/standard\"\n");
    hd_text_f(out, "use \"residual/%s\"\n\n", system->page);
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
    hfe_add_float(out, value);
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
    size_t n;
    const hfe_parameter *p = hfe_parameters_of(c->residual.type, &n);
    for (size_t i = 0; i < n; i++)
        if (*p[i].name && c->residual.value[i].text)
            hd_text_f(out, "    %s = %s,\n", p[i].name, c->residual.value[i].text);
}

/* ---- body ---------------------------------------------------------------------------------- */

#define EMBEDDING "embed(\"model.embed_tokens\", vocab, hidden)"

static void add_scaling(hd_text *out, const hfe_config *c) {
    if (c->rope == HFE_ROPE_LINEAR) hd_text_add(out, "    scaling = linear_scaling(factor)\n");
    if (c->rope == HFE_ROPE_LLAMA3)
        hd_text_add(out, "    scaling = llama3_scaling(factor, low_freq_factor, high_freq_factor, "
                         "original_positions)\n");
}

/* r = SYSTEM(embedding, ...), or a standard stream and values = SYSTEM(...) */
static void add_residual(hd_text *out, const hfe_config *c) {
    const hfe_system *system = system_of(c);
    bool values = has(c, VALUES);
    if (values) hd_text_add(out, "    r = standard(" EMBEDDING ")\n");
    const char *function = is_full(c) ? "attnres_full" : system->function;
    call k = begin_call(out, "        ", values ? "    values = " : "    r = ");
    hd_text_f(out, "%s(", function);
    if (!values) argument(&k, EMBEDDING);
    if (has(c, TAKES_LAYERS)) argument(&k, "layers");
    if (is_attnres(c) && !is_full(c)) {
        const char *size = c->block_layers ? "block_layers" : "block_sublayers";
        named_argument(&k, size, size);
    }
    size_t n;
    const hfe_parameter *p = hfe_parameters_of(c->residual.type, &n);
    for (size_t i = 0; i < n; i++)
        if (*p[i].argument && c->residual.value[i].text)
            named_argument(&k, p[i].argument, p[i].name);
    if (has(c, TAKES_EPS)) argument(&k, "eps: eps");
    end_call(&k);
}

static void add_attention(hd_text *out, const hfe_config *c) {
    bool ways = has(c, WAYS);
    call k = begin_call(out, "                ", "            y = attention(");
    argument(&k, ways ? "q" : "x");
    argument(&k, "heads");
    argument(&k, "kv_heads");
    argument(&k, "head_dim");
    argument(&k, "theta: theta");
    if (c->rope != HFE_ROPE_DEFAULT) argument(&k, "rope_scaling: scaling");
    if (c->family == QWEN3) argument(&k, "qk_norm: true");
    if (c->family == QWEN3) argument(&k, "eps: eps");
    if (qkv_bias(c)) argument(&k, "qkv_bias: true");
    if (o_bias(c)) argument(&k, "o_bias: true");
    if (ways) argument(&k, "keys_of: k");
    if (ways) argument(&k, "values_of: v");
    if (hfe_residual_value(&c->residual, "k_norm_after_rope")->number)
        argument(&k, "k_norm_last: true");
    if (has(c, VALUES)) argument(&k, "values: values");
    if (is_looped(c)) argument(&k, "turn: turn");
    end_call(&k);
}

/* r.METHOD("place") */
static void add_reading(hd_text *out, const char *method, const char *place) {
    hd_text_f(out, "r.%s(", method);
    if (*place) hd_text_quoted(out, place);
    hd_text_add(out, ")");
}

/* What a sublayer sees, normed unless the system says otherwise. */
static void add_input(hd_text *out, const hfe_config *c, const char *place, const char *norm) {
    hd_text_f(out, "            x = %s", has(c, NO_PRE_NORM) ? "" : "rmsnorm(");
    add_reading(out, "read", place);
    if (!has(c, NO_PRE_NORM)) hd_text_f(out, ", \"%s\", eps: eps)", norm);
    hd_text_add(out, "\n");
}

static void add_layer(hd_text *out, const hfe_config *c) {
    const hfe_system *system = system_of(c);
    hd_text_add(out, "        at \"model.layers.{l}\" {\n");
    if (has(c, WAYS))
        hd_text_add(out, "            q, k, v = r.read_ways(\"input_layernorm\")\n");
    else
        add_input(out, c, system->attention, "input_layernorm");
    add_attention(out, c);
    hd_text_f(out, "            r.write(y%s)\n", has(c, ATTENTION_INPUT) ? ", x" : "");
    add_input(out, c, system->mlp, "post_attention_layernorm");
    hd_text_f(out, "            r.write(%s(x, ff%s)%s)\n", is_swiglu(c) ? "swiglu" : "gated_mlp",
              c->mlp_bias ? ", bias: true" : "", has(c, MLP_INPUT) ? ", x" : "");
    hd_text_add(out, "        }\n");
}

static void add_indented(hd_text *out, const char *lines) {
    while (*lines) {
        size_t n = strcspn(lines, "\n") + 1;
        hd_text_f(out, "    %.*s", (int)n, lines);
        lines += n;
    }
}

static void add_layers(hd_text *out, const hfe_config *c) {
    hd_text loop;
    hd_text_init(&loop, out->arena);
    hd_text_add(&loop, "    for l in 0..layers {\n");
    add_layer(&loop, c);
    hd_text_add(&loop, "    }\n");
    if (!is_looped(c)) {
        hd_text_add(out, loop.at);
        return;
    }
    hd_text_add(out, "    for turn in 0..loops {\n");
    add_indented(out, loop.at);
    hd_text_add(out, "    }\n");
}

void hfe_write_spec(hd_text *out, const hfe_config *c, const char *name) {
    add_title(out, c);
    add_gated_mlp(out, c);
    hd_text_f(out, "model %s(\n", name);
    add_parameters(out, c);
    hd_text_add(out, ") {\n");
    add_scaling(out, c);
    add_residual(out, c);
    add_layers(out, c);
    hd_text_add(out, "    h = rmsnorm(");
    add_reading(out, "result", system_of(c)->result);
    hd_text_add(out, ", \"model.norm\", eps: eps)\n");
    hd_text_f(out, "    output logits = %s(h, vocab)\n}\n", c->tied ? "tied_head" : "head");
}
