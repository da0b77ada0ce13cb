/* Gradients of what passes along the sequence, pool, short_conv, ngram_gather and delta_rule,
 * against the evaluator at every CPU level of this machine: random shapes, options and operands
 * whose gradients are wanted, together in one kernel. */
#include "tests/unit/codegen/gradient/gradient_harness.h"

typedef struct wanted {
    const char *of, *type; /* an operand and its type; as rows, if it is a state */
} wanted;

/* A kernel with the gradients of some operands of an op, at least one; those that sum over tokens
 * are outputs grad.NAME, which are added to what is there, or not. */
static const char *kernel_text(hd_arena *a, uint64_t *s, const char *inputs, const char *op,
                               const char *attrs, const wanted *of, size_t n) {
    hd_text names, types, body, outputs;
    hd_text *const all[] = {&names, &types, &body, &outputs};
    const size_t first = (size_t)random_below(s, (int64_t)n);
    size_t count = 0;
    for (size_t i = 0; i < 4; i++)
        hd_text_init(all[i], a);
    for (size_t i = 0; i < n; i++) {
        if (!of[i].of || (i != first && random_below(s, 3) == 0)) continue;
        const char *comma = count++ ? ", " : "";
        const bool adds = of[i].type[4] != 'T' && random_below(s, 2);
        hd_text_f(&names, "%s%%d%s", comma, of[i].of);
        hd_text_f(&types, "%s%s", comma, of[i].type);
        hd_text_f(&body, "    %%y%s = %s {%s, of = \"%s\"} : %s\n", of[i].of, op, attrs, of[i].of,
                  of[i].type);
        hd_text_f(&outputs, "  output %%d%s {name = \"%s%s\"}\n", of[i].of, adds ? "grad." : "",
                  of[i].of);
    }
    hd_text_f(&body, "    yield");
    for (size_t i = 0; i < n; i++) {
        const char *mark = of[i].of ? hd_printf(a, "%%y%s =", of[i].of) : NULL;
        if (mark && strstr(body.at, mark))
            hd_text_f(&body, "%s %%y%s", strstr(body.at, "yield %") ? "," : "", of[i].of);
    }
    return hd_printf(
        a, "hir 1 kernel @g\nfunc(%s) {\n  %s = " GRADIENT_KERNEL " : %s {\n%s\n  }\n%s}\n", inputs,
        names.at, types.at, body.at, outputs.at);
}

/* One token, few, odd and many: more than blocks of 64 and chunks of 16. */
static int64_t random_tokens(uint64_t *s) {
    return (int64_t[]){1, 2, 15, 16, 17, 33, 64, 71, 130}[random_below(s, 9)];
}

/* ---- short convolution ----------------------------------------------------------------------- */
typedef struct conv_shape {
    int64_t each, groups, n, apart; /* channels of a group */
    bool own;                       /* taps of each token */
    int64_t tokens;
} conv_shape;

static const char *conv_text(hd_arena *a, uint64_t *s, const conv_shape *c) {
    const char *rows = hd_printf(a, "f32[T, %ld]", c->each * c->groups);
    const char *taps = hd_printf(a, "f32[%s%ld, %ld]", c->own ? "T, " : "", c->groups, c->n);
    return kernel_text(a, s, hd_printf(a, "%%x: %s, %%w: %s, %%dy: %s", rows, taps, rows),
                       "short_conv_grad %x, %w, %dy", hd_printf(a, "dilation = %ld", c->apart),
                       (wanted[]){{"x", rows}, {"taps", taps}}, 2);
}

static conv_shape random_conv(uint64_t *s) {
    static const int64_t group[] = {1, 1, 1, 2, 16, 24, 48};
    conv_shape c = {.each = group[random_below(s, 7)], .apart = 1};
    c.groups = 1 + random_below(s, 90 / c.each);
    c.n = random_below(s, 4) ? 2 + random_below(s, 7) : 9 + random_below(s, 9);
    if (!random_below(s, 3)) c.apart = 2 + random_below(s, 5);
    c.own = !random_below(s, 3);
    c.tokens = random_tokens(s);
    return c;
}

/* Sums of at most 17 products, or of those of 130 tokens and 48 channels, 64 tokens at a time or
 * not. */
Test(emit_recurrence_grad, short_conv) {
    /* few taps, in blocks of tokens; taps that are apart, and many */
    static const conv_shape shapes[] = {
        {1, 20, 4, 1, false, 130}, {4, 5, 3, 1, true, 71},  {1, 20, 4, 3, false, 33},
        {4, 5, 4, 2, true, 17},    {3, 7, 9, 1, false, 71}, {5, 4, 5, 4, false, 64},
    };
    enum { SHAPES = sizeof shapes / sizeof *shapes };
    uint64_t s = 9176;
    hd_arena *a = hd_arena_new();
    for (int round = 0; round < (full_set() ? 64 : 4) + SHAPES; round++) {
        const conv_shape c = round < SHAPES ? shapes[round] : random_conv(&s);
        uint64_t all = 1; /* the gradients of both */
        gradient_check(conv_text(a, round < SHAPES ? &all : &s, &c), c.tokens, 1, random_bits(&s),
                       3e-6);
    }
    hd_arena_free(a);
}

/* ---- pool ------------------------------------------------------------------------------------ */
static const char *pool_text(hd_arena *a, uint64_t *s) {
    const int64_t n = 1 + random_below(s, 50), r = 2 + random_below(s, 7);
    const bool halves = random_below(s, 2), place = random_below(s, 2);
    const char *rows = hd_printf(a, "f32[T, %ld]", halves ? 2 * n : n);
    const char *places = hd_printf(a, "f32[%ld, %ld]", r, halves ? 2 * n : n);
    return kernel_text(
        a, s, hd_printf(a, "%%x: %s, %%g: %s, %%w: %s, %%dy: f32[T, %ld]", rows, rows, places, n),
        hd_printf(a, "pool_grad %%x, %%g, %s, %%dy", place ? "%w" : "_"),
        hd_printf(a, "length = %ld%s", r, halves ? ", halves = 1" : ""),
        (wanted[]){{"x", rows}, {"gate", rows}, {place ? "place" : NULL, places}}, place ? 3 : 2);
}

/* Logits that lie far apart, and beyond what e^x can hold: only their differences matter. */
static void spread_gates(gradient_problem *p) {
    const hir_type gate = hir_value_at(p->b.m, p->b.m->inputs.at[1])->type;
    for (size_t k = 0; k < gradient_elements(p, gate); k++)
        p->in[1][k] = p->in[1][k] * 40 + 200;
}

/* Weights of at most 16 rows; an f32 logit of 240 is off by 2^-17. */
Test(emit_recurrence_grad, pool) {
    uint64_t s = 1733;
    hd_arena *a = hd_arena_new();
    for (int round = 0; round < (full_set() ? 32 : 6); round++)
        gradient_check_of(pool_text(a, &s), random_tokens(&s), 1, random_bits(&s),
                          round % 4 ? 3e-6 : 6e-5, round % 4 ? NULL : spread_gates);
    hd_arena_free(a);
}

/* ---- rows of n-grams ------------------------------------------------------------------------- */
/* Ids from -2 to 8, so that contexts come again, and rows that several hashes name. */
Test(emit_recurrence_grad, ngram_gather) {
    static const char *const tables[] = {"14, 4", "2, 7, 37", "14, 16", "14, 1"};
    uint64_t s = 377;
    hd_arena *a = hd_arena_new();
    for (int i = 0; i < 8; i++) {
        const char *table = tables[i % 4], *width = strrchr(table, ' ') + 1;
        const char *text = hd_printf(
            a,
            "hir 1 kernel @n\nfunc(%%ids: i32[T], %%dy: f32[T, 2, %s]) {\n  %%d = " GRADIENT_KERNEL
            " : f32[%s] {\n    %%1 = ngram_gather_grad %%ids, %%dy {shape = [%s], multipliers = "
            "[3, 0, 5, 1, 4294967295, -1], sizes = [4, 5], offsets = [1, %d], %s = 3} : f32[%s]\n"
            "    yield %%1\n  }\n  output %%d {name = \"%s\"}\n}\n",
            width, table, table, i % 2 ? 2 : 6, i % 3 ? "eos" : "before", table,
            i % 2 ? "grad.table" : "y");
        gradient_check(text, random_tokens(&s), 9, random_bits(&s), 1e-6);
    }
    hd_arena_free(a);
}

/* ---- delta rule ------------------------------------------------------------------------------ */
static const char *delta_text(hd_arena *a, uint64_t *s, bool large) {
    const int64_t groups = 1 + random_below(s, 3), heads = groups * (1 + random_below(s, 3));
    const int64_t n = large ? 128 : 1 + random_below(s, 40);
    const int64_t m = large ? 128 : 1 + random_below(s, 90);
    const int64_t decays = (int64_t[]){n, 1, 0}[random_below(s, 3)];
    const bool beta = random_below(s, 3);
    const char *keys = hd_printf(a, "f32[T, %ld, %ld]", groups, n);
    const char *values = hd_printf(a, "f32[T, %ld, %ld]", heads, m);
    const char *factors = hd_printf(a, "f32[T, %ld, %ld]", heads, decays ? decays : 1);
    const char *betas = hd_printf(a, "f32[T, %ld]", heads);
    return kernel_text(a, s,
                       hd_printf(a, "%%q: %s, %%k: %s, %%v: %s, %%d: %s, %%b: %s, %%o: %s", keys,
                                 keys, values, factors, betas, values),
                       hd_printf(a, "delta_rule_grad %%q, %%k, %%v, %s, %s, %%o",
                                 decays ? "%d" : "_", beta ? "%b" : "_"),
                       (const char *[]){"scale = 0.25", "scale = 1", "rule = \"additive\"",
                                        "scale = 0.25, rule = \"additive\""}[random_below(s, 4)],
                       (wanted[]){{"q", keys},
                                  {"k", keys},
                                  {"v", values},
                                  {decays ? "decay" : NULL, factors},
                                  {beta ? "beta" : NULL, betas}},
                       5);
}

/* Keys of length 1 and factors in 0..1, as layers have them: S stays of the size of its values. */
static void as_in_layers(gradient_problem *p) {
    for (size_t i = 0; i < p->b.m->inputs.n; i++) {
        const hir_value *v = hir_value_at(p->b.m, p->b.m->inputs.at[i]);
        const double norm = 1 / sqrt((double)v->type.dim[v->type.rank - 1]);
        for (size_t k = 0; k < gradient_elements(p, v->type); k++) {
            if (*v->name == 'd' || *v->name == 'b') p->in[i][k] = 0.5f + 0.5f * p->in[i][k];
            if (*v->name == 'k' || *v->name == 'q') p->in[i][k] *= (float)norm;
        }
    }
}

/* States and their gradients pass through as many roundings as there are tokens, which keys of
 * length 1 and decays do not magnify. */
Test(emit_recurrence_grad, delta_rule) {
    uint64_t s = 47110;
    hd_arena *a = hd_arena_new();
    for (int round = 0; round < (full_set() ? 64 : 8); round++)
        gradient_check_of(delta_text(a, &s, round % 8 == 1), random_tokens(&s), 1, random_bits(&s),
                          1e-5, as_in_layers);
    hd_arena_free(a);
}
