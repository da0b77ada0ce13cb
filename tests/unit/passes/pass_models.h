/* Decoders as .hir text, for tests of passes: the sizes are parameters, the residual system too. */
#ifndef TEST_PASS_MODELS_H
#define TEST_PASS_MODELS_H

#include <stdio.h>
#include <string.h>

#include "ir/eval/eval.h"
#include "passes/pass.h"
#include "tests/unit/diags_text.h"

typedef struct decoder {
    int layers, hidden, heads, kv_heads, head_dim, ff, vocab;
    bool qk_norm, bias, tied, traces;
    int block; /* AttnRes: transformer layers per block; 0: plain residual */
} decoder;

static const decoder small_decoder = {.layers = 3,
                                      .hidden = 32,
                                      .heads = 4,
                                      .kv_heads = 2,
                                      .head_dim = 8,
                                      .ff = 48,
                                      .vocab = 64,
                                      .qk_norm = true};

/* Text under construction: declarations first, then the body. */
typedef struct writer {
    hd_text head, body;
    int next;         /* number of the next value */
    int bank[512];    /* AttnRes: finished blocks */
    int n_bank, live; /* live: the partial sum, -1: empty */
    const decoder *d;
} writer;

static inline int emit_(writer *w, const char *type, const char *op) {
    hd_text_f(&w->body, "  %%v%d = %s : %s\n", w->next, op, type);
    return w->next++;
}

#define EMIT(w, type, ...)                                                                         \
    emit_((w), hd_printf((w)->head.arena, "%s", type), hd_printf((w)->head.arena, __VA_ARGS__))

static inline const char *shape1(writer *w, int n) {
    return hd_printf(w->head.arena, "f32[T, %d]", n);
}

static inline const char *heads_shape(writer *w, int h, int n) {
    return hd_printf(w->head.arena, "f32[T, %d, %d]", h, n);
}

static inline const char *weight(writer *w, const char *name, int n, int k) {
    if (k)
        hd_text_f(&w->head, "weight @%s : f32[%d, %d]\n", name, n, k);
    else
        hd_text_f(&w->head, "weight @%s : f32[%d]\n", name, n);
    return name;
}

static inline const char *named(writer *w, int layer, const char *what) {
    return hd_printf(w->head.arena, "layers.%d.%s", layer, what);
}

static inline int linear_(writer *w, int x, const char *name, int n, int k, bool bias) {
    const char *b = "_";
    weight(w, name, n, k);
    if (bias)
        b = hd_printf(w->head.arena, "@%s",
                      weight(w, hd_printf(w->head.arena, "%s.bias", name), n, 0));
    return EMIT(w, shape1(w, n), "linear %%v%d, @%s, %s", x, name, b);
}

static inline int norm_(writer *w, int x, const char *name, int n, const char *type) {
    return EMIT(w, type, "rmsnorm %%v%d, @%s {eps = 1e-05}", x, weight(w, name, n, 0));
}

/* q or k: heads, norm, rope */
static inline int rotated_(writer *w, int x, int table, int heads, const char *norm) {
    int n = w->d->head_dim;
    const char *t = heads_shape(w, heads, n);
    x = EMIT(w, t, "reshape %%v%d {shape = [T, %d, %d]}", x, heads, n);
    if (norm) x = norm_(w, x, norm, n, t);
    return EMIT(w, t, "rope %%v%d, %%v%d", x, table);
}

static inline int append_(writer *w, int x, const char *name, int g) {
    hd_text_f(&w->head, "state $%s : f32[C, %d, %d]\n", name, g, w->d->head_dim);
    return EMIT(w, hd_printf(w->head.arena, "f32[C, %d, %d]", g, w->d->head_dim),
                "cache_append %%v%d, $%s", x, name);
}

static inline int attention_(writer *w, int x, int l) {
    const decoder *d = w->d;
    int n = d->head_dim, h = d->heads, g = d->kv_heads;
    int table = EMIT(w, shape1(w, n), "rope_table {length = %d, theta = 10000}", n);
    int q = linear_(w, x, named(w, l, "q"), h * n, d->hidden, d->bias);
    q = rotated_(w, q, table, h, d->qk_norm ? named(w, l, "q_norm") : NULL);
    int k = linear_(w, x, named(w, l, "k"), g * n, d->hidden, d->bias);
    k = rotated_(w, k, table, g, d->qk_norm ? named(w, l, "k_norm") : NULL);
    int v = linear_(w, x, named(w, l, "v"), g * n, d->hidden, d->bias);
    v = EMIT(w, heads_shape(w, g, n), "reshape %%v%d {shape = [T, %d, %d]}", v, g, n);
    k = append_(w, k, named(w, l, "kc"), g);
    v = append_(w, v, named(w, l, "vc"), g);
    int o = EMIT(w, heads_shape(w, h, n), "attention %%v%d, %%v%d, %%v%d {scale = 0.35}", q, k, v);
    o = EMIT(w, shape1(w, h * n), "reshape %%v%d {shape = [T, %d]}", o, h * n);
    return linear_(w, o, named(w, l, "o"), d->hidden, h * n, false);
}

static inline int mlp_(writer *w, int x, int l) {
    const decoder *d = w->d;
    int gate = linear_(w, x, named(w, l, "gate"), d->ff, d->hidden, false);
    int up = linear_(w, x, named(w, l, "up"), d->ff, d->hidden, false);
    gate = EMIT(w, shape1(w, d->ff), "silu %%v%d", gate);
    int y = EMIT(w, shape1(w, d->ff), "mul %%v%d, %%v%d", gate, up);
    return linear_(w, y, named(w, l, "down"), d->hidden, d->ff, false);
}

/* The naive mix of Block AttnRes: stack, key norm, pseudo-query, softmax, weighted sum. */
static inline int mix_(writer *w, const char *name) {
    int n = w->n_bank + (w->live >= 0), d = w->d->hidden;
    hd_arena *a = w->head.arena;
    if (n == 1) return w->live >= 0 ? w->live : w->bank[0];
    hd_text list;
    hd_text_init(&list, a);
    for (int i = 0; i < w->n_bank; i++)
        hd_text_f(&list, "%s%%v%d", i ? ", " : "", w->bank[i]);
    if (w->live >= 0) hd_text_f(&list, "%s%%v%d", w->n_bank ? ", " : "", w->live);
    const char *stack_type = heads_shape(w, n, d), *norm = hd_printf(a, "%s_norm", name);
    int s = EMIT(w, stack_type, "stack %s {axis = 1}", list.at);
    int k = norm_(w, s, norm, d, stack_type);
    weight(w, hd_printf(a, "%s_proj", name), 1, d);
    int score = EMIT(w, heads_shape(w, n, 1), "linear %%v%d, @%s_proj, _", k, name);
    int p = EMIT(w, heads_shape(w, n, 1), "softmax %%v%d {axis = 1}", score);
    if (w->d->traces) {
        int t = EMIT(w, shape1(w, n), "reshape %%v%d {shape = [T, %d]}", p, n);
        hd_text_f(&w->body, "  trace %%v%d {name = \"depth_weights\"}\n", t);
    }
    int m = EMIT(w, stack_type, "mul %%v%d, %%v%d", p, s);
    return EMIT(w, shape1(w, d), "reduce_sum %%v%d {axis = 1}", m);
}

static inline int read_(writer *w, int l, const char *what, bool boundary) {
    if (!w->d->block) return w->live;
    int x = mix_(w, named(w, l, what));
    if (boundary) {
        w->bank[w->n_bank++] = w->live;
        w->live = -1;
    }
    return x;
}

static inline void write_(writer *w, int y) {
    if (w->live < 0)
        w->live = y;
    else
        w->live = EMIT(w, shape1(w, w->d->hidden), "add %%v%d, %%v%d", w->live, y);
}

static inline const char *decoder_text(hd_arena *a, const decoder *d) {
    writer *w = hd_new(a, writer);
    w->d = d;
    hd_text_init(&w->head, a);
    hd_text_init(&w->body, a);
    weight(w, "embed", d->vocab, d->hidden);
    w->live = EMIT(w, shape1(w, d->hidden), "gather @embed, %%tokens");
    for (int l = 0; l < d->layers; l++) {
        bool boundary = d->block && l % d->block == 0;
        int x = read_(w, l, "attn_res", boundary);
        x = norm_(w, x, named(w, l, "norm1"), d->hidden, shape1(w, d->hidden));
        write_(w, attention_(w, x, l));
        x = read_(w, l, "mlp_res", false);
        x = norm_(w, x, named(w, l, "norm2"), d->hidden, shape1(w, d->hidden));
        write_(w, mlp_(w, x, l));
    }
    int h = read_(w, d->layers, "out_res", false);
    h = norm_(w, h, "norm", d->hidden, shape1(w, d->hidden));
    int logits = d->tied ? EMIT(w, shape1(w, d->vocab), "linear %%v%d, @embed, _", h)
                         : linear_(w, h, "head", d->vocab, d->hidden, false);
    hd_text_f(&w->body, "  output %%v%d {name = \"logits\"}\n", logits);
    return hd_printf(a, "hir 1 graph @decoder\n\n%s\nfunc(%%tokens: i32[T]) {\n%s}\n", w->head.at,
                     w->body.at);
}

/* ---- running passes -------------------------------------------------------------------------- */
typedef struct bench { /* what a test works with */
    hd_arena *arena;
    hd_diags diags;
    hir_remarks remarks;
    hir_module *m;
} bench;

static inline const char *errors_of(bench *b) {
    return diags_text(b->arena, &b->diags);
}

static inline bench new_bench(const char *text) {
    bench b = {.arena = hd_arena_new()};
    hd_diags_init(&b.diags, b.arena);
    b.remarks.arena = b.arena;
    b.m = hir_parse(b.arena, &b.diags, "test.hir", text);
    if (!b.m) fprintf(stderr, "%s\n%s", text, errors_of(&b));
    return b;
}

static inline bool run_list(bench *b, const hir_pass_id *passes, size_t n, bool check,
                            const hir_compile_options *options) {
    hir_run run = {.passes = passes,
                   .n_passes = n,
                   .stop_after = HIR_PASS_COUNT,
                   .verify = true,
                   .check = check};
    return hir_run_passes(b->m, &run, options, &b->remarks, &b->diags);
}

static inline bool run_all(bench *b, bool check, const hir_compile_options *options) {
    const size_t n = hir_pipeline_length();
    return run_list(b, hir_pipeline(), n, check, options);
}

static inline const char *text_of(bench *b) {
    hd_text t;
    hd_text_init(&t, b->arena);
    hir_print(b->m, (hir_print_options){0}, &t);
    return t.at;
}

#endif
