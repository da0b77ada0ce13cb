/* Latent attention as text, in the ways in which it may be written: plain functions of q, of the
 * latent and of the part of k that all heads share. */
#ifndef TEST_LATENT_MODELS_H
#define TEST_LATENT_MODELS_H

#include "support/text.h"

typedef struct latent_model {
    int heads, nope, rope, value, latent;
    bool two_states;   /* latent and shared part in states of their own */
    bool shared_first; /* of the one state: [k_p | c] */
    bool rope_first;   /* of heads of q and k: [k_p | k_n] */
    bool value_first;  /* of heads of the map: [v | k_n] */
    bool apart;        /* two maps, W_k and W_v */
    bool stretched;    /* k_p becomes that of all heads by an addition of zeros */
    bool normed;       /* the latent is normed behind the cache, which has no absorbed form */
    /* options of attention; 0: not there */
    int kv_heads; /* of k and v; 0: as many as of q */
    int window, extent;
    double softcap;
    enum { LATENT_NO_SINK, LATENT_SINK, LATENT_SINK_BY_TOKEN } sink;
} latent_model;

static inline int latent_kv_heads(const latent_model *l) {
    return l->kv_heads ? l->kv_heads : l->heads;
}

static inline int latent_row(const latent_model *l) {
    return l->latent + l->rope;
}

/* A line of the body; L: "%NAME = TEXT". */
#define L(...) hd_text_f(text, "  " __VA_ARGS__)

static inline void latent_state(hd_text *text, const latent_model *l) {
    const bool two = l->two_states || !l->rope;
    hd_text_f(text, "state $latent : f32[C, 1, %d]\n", two ? l->latent : latent_row(l));
    if (l->two_states && l->rope) hd_text_f(text, "state $shared : f32[C, 1, %d]\n", l->rope);
}

static inline void latent_weights(hd_text *text, const latent_model *l) {
    if (l->sink == LATENT_SINK) hd_text_f(text, "weight @sink : f32[%d]\n", l->heads);
    if (!l->apart) {
        hd_text_f(text, "weight @kv_b : f32[%d, %d]\n", latent_kv_heads(l) * (l->nope + l->value),
                  l->latent);
        return;
    }
    hd_text_f(text, "weight @k_b : f32[%d, %d]\n", latent_kv_heads(l) * l->nope, l->latent);
    hd_text_f(text, "weight @v_b : f32[%d, %d]\n", latent_kv_heads(l) * l->value, l->latent);
}

/* %latents [C, 1, latent] and %shared [C, 1, rope] */
static inline void latent_cached(hd_text *text, const latent_model *l) {
    const int c_at = l->shared_first ? l->rope : 0, p_at = l->shared_first ? 0 : l->latent;
    if (l->two_states || !l->rope) {
        L("%%latents = cache_append %%c, $latent\n");
        if (l->rope) L("%%shared = cache_append %%p, $shared\n");
        return;
    }
    L("%%row = concat %s {axis = 2}\n", l->shared_first ? "%p, %c" : "%c, %p");
    L("%%rows = cache_append %%row, $latent\n");
    L("%%latents = slice %%rows {axis = 2, start = %d, length = %d}\n", c_at, l->latent);
    L("%%shared = slice %%rows {axis = 2, start = %d, length = %d}\n", p_at, l->rope);
}

/* %kn [C, heads, nope] and %v [C, heads, value] */
static inline void latent_expanded(hd_text *text, const latent_model *l) {
    const int both = l->nope + l->value, heads = latent_kv_heads(l);
    L("%%flat = reshape %%latents {shape = [C, %d]}\n", l->latent);
    if (l->normed) L("%%mapped = rmsnorm %%flat, _ {eps = 1e-6}\n");
    const char *of = l->normed ? "%mapped" : "%flat";
    if (l->apart) {
        L("%%kflat = linear %s, @k_b, _\n", of);
        L("%%vflat = linear %s, @v_b, _\n", of);
        L("%%kn = reshape %%kflat {shape = [C, %d, %d]}\n", heads, l->nope);
        L("%%v = reshape %%vflat {shape = [C, %d, %d]}\n", heads, l->value);
        return;
    }
    L("%%kvflat = linear %s, @kv_b, _\n", of);
    L("%%kv = reshape %%kvflat {shape = [C, %d, %d]}\n", heads, both);
    L("%%kn = slice %%kv {axis = 2, start = %d, length = %d}\n", l->value_first ? l->value : 0,
      l->nope);
    L("%%v = slice %%kv {axis = 2, start = %d, length = %d}\n", l->value_first ? 0 : l->nope,
      l->value);
}

static inline void latent_keys(hd_text *text, const latent_model *l) {
    if (!l->rope) return;
    if (l->stretched) {
        L("%%zeros = const {shape = [%d, 1], value = 0}\n", latent_kv_heads(l));
        L("%%kp = add %%shared, %%zeros\n");
    } else {
        L("%%kp = broadcast %%shared {shape = [C, %d, %d]}\n", latent_kv_heads(l), l->rope);
    }
    L("%%k = concat %s {axis = 2}\n", l->rope_first ? "%kp, %kn" : "%kn, %kp");
}

static inline void latent_attention(hd_text *text, const latent_model *l) {
    static const char *const sinks[] = {"_", "@sink", "%z"};
    L("%%o = attention %%q, %s, %%v, %s, %s {scale = 0.3", l->rope ? "%k" : "%kn", sinks[l->sink],
      l->extent ? "%b" : "_");
    if (l->window) hd_text_f(text, ", window = %d", l->window);
    if (l->softcap > 0) hd_text_f(text, ", softcap = %g", l->softcap);
    hd_text_add(text, "}\n");
}

/* q [T, H, nope + rope], c [T, 1, latent], p [T, 1, rope] (only with rope) -> o [T, H, value]; b
 * [T, H, extent] and z [T, H] with options */
static inline const char *latent_text(hd_arena *a, const latent_model *l) {
    hd_text it, *text = &it;
    hd_text_init(text, a);
    hd_text_add(text, "hir 1 graph @latent\n\n");
    latent_weights(text, l);
    latent_state(text, l);
    hd_text_f(text, "\nfunc(%%q: f32[T, %d, %d], %%c: f32[T, 1, %d]", l->heads, l->nope + l->rope,
              l->latent);
    if (l->rope) hd_text_f(text, ", %%p: f32[T, 1, %d]", l->rope);
    if (l->extent) hd_text_f(text, ", %%b: f32[T, %d, %d]", l->heads, l->extent);
    if (l->sink == LATENT_SINK_BY_TOKEN) hd_text_f(text, ", %%z: f32[T, %d]", l->heads);
    hd_text_add(text, ") {\n");
    latent_cached(text, l);
    latent_expanded(text, l);
    latent_keys(text, l);
    latent_attention(text, l);
    L("output %%o {name = \"o\"}\n}\n");
    return text->at;
}
#undef L

/* Every way, in odd sizes. */
static const latent_model latent_models[] = {
    {.heads = 3, .nope = 5, .rope = 4, .value = 7, .latent = 11},
    {.heads = 3, .nope = 5, .rope = 4, .value = 7, .latent = 11, .two_states = true},
    {.heads = 2, .nope = 4, .rope = 0, .value = 4, .latent = 6},
    {.heads = 1, .nope = 3, .rope = 2, .value = 9, .latent = 20, .shared_first = true},
    {.heads = 4, .nope = 8, .rope = 2, .value = 3, .latent = 16, .rope_first = true},
    {.heads = 4, .nope = 8, .rope = 6, .value = 8, .latent = 32, .value_first = true},
    {.heads = 5, .nope = 6, .rope = 3, .value = 2, .latent = 4, .apart = true, .two_states = true},
    {.heads = 3, .nope = 5, .rope = 4, .value = 7, .latent = 11, .stretched = true},
    {.heads = 2,
     .nope = 7,
     .rope = 8,
     .value = 5,
     .latent = 12,
     .apart = true,
     .rope_first = true,
     .shared_first = true,
     .stretched = true},
    {.heads = 3, .nope = 5, .rope = 4, .value = 7, .latent = 11, .window = 3},
    {.heads = 3, .nope = 5, .rope = 4, .value = 7, .latent = 11, .sink = LATENT_SINK},
    {.heads = 3, .nope = 5, .rope = 4, .value = 7, .latent = 11, .sink = LATENT_SINK_BY_TOKEN},
    {.heads = 3, .nope = 5, .rope = 4, .value = 7, .latent = 11, .softcap = 1.5},
    {.heads = 3, .nope = 5, .rope = 4, .value = 7, .latent = 11, .extent = 4},
    {.heads = 6, .nope = 5, .rope = 4, .value = 3, .latent = 11, .kv_heads = 3},
    {.heads = 6,
     .nope = 7,
     .rope = 2,
     .value = 4,
     .latent = 9,
     .kv_heads = 2,
     .window = 4,
     .extent = 3,
     .softcap = 2,
     .sink = LATENT_SINK_BY_TOKEN,
     .apart = true,
     .two_states = true},
    /* k and v of a head are as long as two latents: there is nothing to gain by making them */
    {.heads = 4, .nope = 12, .rope = 2, .value = 12, .latent = 12},
};
enum { LATENT_MODELS = sizeof latent_models / sizeof *latent_models };

#endif
