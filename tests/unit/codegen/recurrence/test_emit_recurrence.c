/* Kernels with a state of fixed size, short_conv, pool and delta_rule, against the evaluator: every
 * CPU level of this machine, however a prompt is cut into calls and columns among threads. Cuts
 * give the same bits, those of calls and those of columns, for one token and for many. */
#include <criterion/criterion.h>
#include <math.h>

#include "ir/eval/eval.h"
#include "tests/unit/codegen/emit_harness.h"

enum { MOST_OPERANDS = 8, MOST_TOKENS = 64 };

typedef struct problem {
    bench b;
    uint64_t seed;
    hir_id kernel;
    int64_t t, width; /* tokens of all calls; elements of a row of the result */
    size_t inputs;
    float *in[MOST_OPERANDS]; /* by input of the module */
    size_t state_bytes;
    double *want; /* result of the evaluator */
    double largest;
} problem;

#define HEAD                                                                                       \
    "kernel.sequence {name = \"s\", rows = \"all\", split_decode = \"channels\", split_prefill = " \
    "\"channels\"}"

static size_t elements(const problem *p, hir_type t) {
    return (size_t)((hir_type_has_t(t) ? p->t : 1) * hir_type_row_elements(t));
}

static void open_problem(problem *p, const char *text, int64_t t, uint64_t seed) {
    *p = (problem){.b = bench_new(), .seed = seed * 2654435761u + 1, .t = t};
    bench_start(&p->b);
    p->b.m = hir_parse(p->b.arena, &p->b.diags, "test.hir", text);
    cr_assert(p->b.m, "%s\n%s", bench_errors(&p->b), text);
    p->kernel = p->b.m->first;
    p->width = hir_type_row_elements(hir_value_at(p->b.m, hir_result(p->b.m, p->kernel))->type);
    p->inputs = p->b.m->inputs.n;
    const hir_type s = p->b.m->states.at[0].type;
    p->state_bytes = (size_t)hir_type_row_elements(s) * hir_dtype_bytes(s.dtype);
    for (size_t i = 0; i < p->inputs; i++) {
        const hir_value *v = hir_value_at(p->b.m, p->b.m->inputs.at[i]);
        p->in[i] = random_floats(&p->seed, elements(p, v->type));
        const double norm = 1 / sqrt((double)v->type.dim[v->type.rank - 1]);
        for (size_t k = 0; k < elements(p, v->type); k++) { /* keys of length 1, factors in 0..1 */
            if (*v->name == 'd' || *v->name == 'b') p->in[i][k] = 0.5f + 0.5f * p->in[i][k];
            if (*v->name == 'k' || *v->name == 'q') p->in[i][k] *= (float)norm;
        }
    }
}

/* What the evaluator makes of all tokens in one call. */
static void evaluate(problem *p) {
    const double *in[MOST_OPERANDS];
    hir_results out;
    for (size_t i = 0; i < p->inputs; i++) {
        const size_t n = elements(p, hir_value_at(p->b.m, p->b.m->inputs.at[i])->type);
        double *x = hd_new_array(p->b.arena, double, n);
        for (size_t k = 0; k < n; k++)
            x[k] = p->in[i][k];
        in[i] = x;
    }
    hir_eval *e = hir_eval_new(p->b.arena, p->b.m, NULL, NULL);
    cr_assert(hir_eval_call(e, p->b.arena, &p->b.diags, p->t, in, &out, NULL, NULL), "%s",
              bench_errors(&p->b));
    p->want = out.outputs.at[0].at;
    p->largest = 0;
    for (int64_t i = 0; i < p->t * p->width; i++)
        p->largest = fmax(p->largest, fabs(p->want[i]));
}

static void close_problem(problem *p) {
    for (size_t i = 0; i < p->inputs; i++)
        guarded_free(p->in[i]);
    bench_free(&p->b);
}

/* ---- running --------------------------------------------------------------------------------- */
typedef struct code { /* one level: for one token, and for more */
    const hcg_level *level;
    compiled one, more;
} code;

static void compile(problem *p, const hcg_level *level, code *c) {
    c->level = level;
    cr_assert(compile_kernel(&p->b, HIR_KERNEL_SEQUENCE, p->kernel, true, level, &c->one), "%s: %s",
              level->name, bench_errors(&p->b));
    cr_assert(compile_kernel(&p->b, HIR_KERNEL_SEQUENCE, p->kernel, false, level, &c->more));
}

static void free_code(code *c) {
    compiled_free(&c->one);
    compiled_free(&c->more);
}

/* Tokens from .. from + n - 1; columns in shares of random size, the last ones first, if `cut`. */
static void call(problem *p, const code *c, void *state, float *out, int64_t from, int64_t n,
                 bool cut) {
    const compiled *f = n == 1 ? &c->one : &c->more;
    hrt_frame frame = {.T = n, .C = from + n, .cap = p->t};
    void *args[MOST_OPERANDS];
    for (size_t i = 0; i < f->k.operands.n; i++) {
        const hir_ref r = f->k.operands.at[i];
        args[i] = r.kind == HIR_REF_STATE ? state : (void *)(out + from * p->width);
        for (size_t k = 0; r.kind == HIR_REF_VALUE && k < p->inputs; k++)
            if (p->b.m->inputs.at[k] == r.index) {
                const hir_type t = hir_value_at(p->b.m, r.index)->type;
                args[i] = p->in[k] + (hir_type_has_t(t) ? from * hir_type_row_elements(t) : 0);
            }
    }
    const int64_t cols = hcg_columns(p->b.m, p->kernel);
    for (int64_t to = cols, c0; to > 0; to = c0) {
        c0 = cut ? random_below(&p->seed, to) : 0;
        frame.scratch = guarded((f->scratch + 63) / 64 * 64);
        memset(frame.scratch, 0xff, f->scratch);
        f->call(&frame, args, 0, n, c0, to);
        guarded_free(frame.scratch);
    }
}

/* All tokens in calls of the given lengths, the last length again and again. */
static float *run(problem *p, const code *c, const int64_t *lengths, bool cut, void **state) {
    float *out = guarded((size_t)(p->t * p->width) * 4);
    void *s = guarded(p->state_bytes);
    memset(s, 0, p->state_bytes);
    for (int64_t from = 0, n; from < p->t; from += n) {
        n = *lengths < p->t - from ? *lengths : p->t - from;
        if (lengths[1]) lengths++;
        call(p, c, s, out, from, n, cut);
    }
    if (state)
        *state = s;
    else
        guarded_free(s);
    return out;
}

static void compare(const problem *p, const float *out, double tolerance, const char *what) {
    for (int64_t i = 0; i < p->t * p->width; i++)
        cr_assert(fabs(out[i] - p->want[i]) <= tolerance * (1e-3 + p->largest),
                  "%s: token %ld, element %ld is %.9g, not %.9g", what, (long)(i / p->width),
                  (long)(i % p->width), (double)out[i], p->want[i]);
}

static const int64_t cuts[][4] = {
    {MOST_TOKENS}, {1}, {1, MOST_TOKENS}, {7, MOST_TOKENS}, {3, 1, 5}};
enum { CUTS = sizeof cuts / sizeof *cuts };

static void check_cuts(problem *p, const hcg_level *level, double tolerance) {
    code c;
    void *state, *again;
    compile(p, level, &c);
    float *whole = run(p, &c, cuts[0], false, &state);
    compare(p, whole, tolerance, level->name);
    for (size_t i = 0; i < 2 * CUTS; i++) {
        float *other = run(p, &c, cuts[i / 2], i % 2, &again);
        cr_assert_eq(memcmp(whole, other, (size_t)(p->t * p->width) * 4), 0,
                     "%s: cut %zu gives other bits", level->name, i);
        cr_assert_eq(memcmp(state, again, p->state_bytes), 0, "%s: cut %zu: other state",
                     level->name, i);
        guarded_free(other), guarded_free(again);
    }
    guarded_free(whole), guarded_free(state);
    free_code(&c);
}

/* Rounds take turns among the levels; in the full set each has all. */
static void check_in_turn(problem *p, const hcg_level *level, int round, double tolerance) {
    if (!has_turn((unsigned)round + level->lanes / 8, 3)) return;
    evaluate(p);
    check_cuts(p, level, tolerance);
}

/* Rounding of an f32 and of an f64 S to a narrow type differs now and then by a step of that type,
 * which S keeps for some tokens: a few steps of bf16 or f16. */
static double tolerance_of(const char *dtype, double f32) {
    return !strcmp(dtype, "f32") ? f32 : !strcmp(dtype, "bf16") ? 0x1p-5 : 0x1p-8;
}

static const char *const dtypes[] = {"f32", "f32", "bf16", "f16"};

/* ---- short convolution ----------------------------------------------------------------------- */
/* What may follow y: an activation, a gate in memory, a number and a row for all tokens. */
static const char *after_conv(hd_arena *a, uint64_t *s, int64_t c) {
    static const char *const texts[] = {
        "    yield %%1\n",
        "    %%2 = silu %%1 : f32[T, %ld]\n    yield %%2\n",
        "    %%2 = silu %%1 : f32[T, %ld]\n    %%3 = mul %%g, %%2 : f32[T, %ld]\n    yield %%3\n",
        ("    %%2 = const {shape = [], value = 0.5} : f32[]\n    %%3 = mul %%1, %%2 : f32[T, %ld]\n"
         "    %%4 = add %%3, %%a : f32[T, %ld]\n    yield %%4\n"),
    };
    return hd_printf(a, texts[random_below(s, 4)], c, c);
}

static const char *conv_text(hd_arena *a, uint64_t *s, const char *dtype) {
    static const int64_t group[] = {1, 1, 2, 16, 24, 48};
    const int64_t each = group[random_below(s, 6)], groups = 1 + random_below(s, 90 / each);
    const int64_t n = random_below(s, 4) ? 2 + random_below(s, 7) : 9 + random_below(s, 12);
    const int64_t c = each * groups;
    const bool own = random_below(s, 2), bias = random_below(s, 2);
    const int64_t apart = random_below(s, 3) ? 1 : 2 + random_below(s, 5);
    return hd_printf(
        a,
        "hir 1 kernel @c\nstate $s : window %s[%ld, %ld]\n"
        "func(%%x: f32[T, %ld], %%w: f32[%s%ld, %ld], %%a: f32[%ld], %%g: f32[T, %ld]) {\n"
        "  %%y = " HEAD
        " : f32[T, %ld] {\n    %%1 = short_conv %%x, %%w, %s, $s {dilation = %ld} : "
        "f32[T, %ld]\n%s"
        "  }\n  output %%y {name = \"y\"}\n}\n",
        dtype, (n - 1) * apart, c, c, own ? "T, " : "", groups, n, c, c, c, bias ? "%a" : "_",
        apart, c, after_conv(a, s, c));
}

static void check_convs(const hcg_level *level) {
    uint64_t s = 977;
    for (int round = 0; round < 32; round++) {
        problem p;
        hd_arena *a = hd_arena_new();
        const char *dtype = dtypes[random_below(&s, 4)];
        open_problem(&p, conv_text(a, &s, dtype), 1 + random_below(&s, 40), random_bits(&s));
        /* sums of at most 20 products, 2e-6, whose rows are rounded alike; silu changes them by
         * at most 1.1 and is itself good to some units in the last place */
        check_in_turn(&p, level, round, 3e-6);
        close_problem(&p);
        hd_arena_free(a);
    }
}

/* ---- runs of positions ----------------------------------------------------------------------- */
static const char *pool_text(hd_arena *a, uint64_t *s, const char *dtype) {
    const int64_t n = 1 + random_below(s, 90), r = 2 + random_below(s, 7);
    const bool halves = random_below(s, 2), place = random_below(s, 2);
    const int64_t wide = halves ? 2 * n : n;
    return hd_printf(a,
                     "hir 1 kernel @p\nstate $s : window %s[%ld, %ld]\n"
                     "func(%%x: f32[T, %ld], %%g: f32[T, %ld], %%w: f32[%ld, %ld]) {\n  %%y = " HEAD
                     " : f32[T, %ld] {\n    %%1 = pool %%x, %%g, %s, $s {length = %ld%s} : f32[T, "
                     "%ld]\n    yield %%1\n  }\n  output %%y {name = \"y\"}\n}\n",
                     dtype, (halves ? 2 * r : r) - 1, 2 * wide, wide, wide, r, wide, n,
                     place ? "%w" : "_", r, halves ? ", halves = 1" : "", n);
}

/* Logits that lie far apart, and beyond what e^x can hold: only their differences matter. */
static void spread_gates(problem *p) {
    const hir_type gate = hir_value_at(p->b.m, p->b.m->inputs.at[1])->type;
    for (size_t k = 0; k < elements(p, gate); k++)
        p->in[1][k] = p->in[1][k] * 40 + 200;
}

static void check_pools(const hcg_level *level) {
    uint64_t s = 1231;
    for (int round = 0; round < 16; round++) {
        problem p;
        hd_arena *a = hd_arena_new();
        open_problem(&p, pool_text(a, &s, dtypes[random_below(&s, 4)]), 1 + random_below(&s, 40),
                     random_bits(&s));
        if (round % 4 == 0) spread_gates(&p);
        /* weights of at most 16 rows, two exponentials each; rows are rounded alike; an f32 logit
         * of 240 is off by 2^-17 */
        check_in_turn(&p, level, round, round % 4 ? 2e-6 : 4e-5);
        close_problem(&p);
        hd_arena_free(a);
    }
}

/* ---- delta rule ------------------------------------------------------------------------------ */
typedef struct delta {
    int64_t heads, groups, n, m, decays;
    const char *dtype, *scale, *beta;
} delta;

static const char *delta_text(hd_arena *a, delta d) {
    return hd_printf(
        a,
        "hir 1 kernel @d\nstate $s : carry %s[%ld, %ld, %ld]\n"
        "func(%%q: f32[T, %ld, %ld], %%k: f32[T, %ld, %ld], %%v: f32[T, %ld, %ld], "
        "%%b: f32[T, %ld], %%d: f32[T, %ld, %ld]) {\n  %%y = " HEAD " : f32[T, %ld, %ld] {\n"
        "    %%1 = delta_rule %%q, %%k, %%v, %s, %s, $s %s : f32[T, %ld, %ld]\n    yield %%1\n"
        "  }\n  output %%y {name = \"y\"}\n}\n",
        d.dtype, d.heads, d.n, d.m, d.groups, d.n, d.groups, d.n, d.heads, d.m, d.heads, d.heads,
        d.decays ? d.decays : 1, d.heads, d.m, d.decays ? "%d" : "_", d.beta, d.scale, d.heads,
        d.m);
}

static delta random_delta(uint64_t *s) {
    delta d = {.groups = 1 + random_below(s, 3), .dtype = dtypes[random_below(s, 4)]};
    d.heads = d.groups * (1 + random_below(s, 3));
    d.n = 1 + random_below(s, 70), d.m = 1 + random_below(s, 150);
    if (random_below(s, 3) == 0) d.n = 128, d.m = 128;
    d.decays = (int64_t[]){d.n, 1, 0}[random_below(s, 3)];
    d.scale = (const char *[]){"{scale = 0.25}", "", "{rule = \"additive\"}",
                               "{scale = 0.25, rule = \"additive\"}"}[random_below(s, 4)];
    d.beta = random_below(s, 3) ? "%b" : "_";
    return d;
}

static void check_deltas(const hcg_level *level) {
    uint64_t s = 4711;
    for (int round = 0; round < 32; round++) {
        problem p;
        hd_arena *a = hd_arena_new();
        const delta d = random_delta(&s);
        open_problem(&p, delta_text(a, d), 1 + random_below(&s, 40), random_bits(&s));
        check_in_turn(&p, level, round, tolerance_of(d.dtype, 1e-5));
        close_problem(&p);
        hd_arena_free(a);
    }
}

static void check_level(const char *name) {
    const hcg_level *levels;
    size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(levels[i].name, name) != 0) continue;
        if (!level_runs(&levels[i])) cr_skip_test("this CPU has no %s", name);
        check_convs(&levels[i]);
        check_pools(&levels[i]);
        check_deltas(&levels[i]);
        return;
    }
    cr_assert_fail("no level %s", name);
}

Test(emit_recurrence, avx512) {
    check_level("avx512");
}

Test(emit_recurrence, avx2) {
    check_level("avx2");
}

Test(emit_recurrence, baseline) {
    check_level("baseline");
}

/* The code of other architectures is generated, and calls nothing. */
Test(emit_recurrence, neon_code_calls_nothing) {
    const hcg_level *levels;
    size_t n = hcg_levels(&levels);
    const delta d = {2, 1, 24, 20, 24, "bf16", "", "%b"};
    for (size_t i = 0; i < n; i++) {
        if (strcmp(levels[i].arch, "x86_64") == 0) continue;
        uint64_t s = 5;
        for (int conv = 0; conv < 2; conv++) {
            problem p;
            hd_arena *a = hd_arena_new();
            open_problem(&p, conv ? conv_text(a, &s, "f32") : delta_text(a, d), 1, 1);
            const char *call =
                calls_outside(&p.b, HIR_KERNEL_SEQUENCE, p.kernel, false, &levels[i]);
            cr_assert_null(call, "%s calls %s %s", levels[i].name, call, bench_errors(&p.b));
            close_problem(&p);
            hd_arena_free(a);
        }
    }
}

/* ---- numbers at their limits ----------------------------------------------------------------- */
static void each_level(delta d, int64_t t, void (*set)(problem *p),
                       void (*check)(problem *p, const float *out, const char *level)) {
    const hcg_level *levels;
    size_t n = hcg_levels(&levels);
    hd_arena *a = hd_arena_new();
    for (size_t i = 0; i < n; i++) {
        if (!vectors_run(&levels[i])) continue;
        problem p;
        code c;
        open_problem(&p, delta_text(a, d), t, 3);
        set(&p);
        evaluate(&p);
        compile(&p, &levels[i], &c);
        float *out = run(&p, &c, (int64_t[]){512, 0}, false, NULL);
        check(&p, out, levels[i].name);
        guarded_free(out);
        free_code(&c);
        close_problem(&p);
    }
    hd_arena_free(a);
}

enum { Q, K, V, B, D }; /* inputs of delta_text */

static void fill(problem *p, int input, float value) {
    const size_t n = elements(p, hir_value_at(p->b.m, p->b.m->inputs.at[input])->type);
    for (size_t i = 0; i < n; i++)
        p->in[input][i] = value;
}

static void close_to_the_evaluator(problem *p, const float *out, const char *level) {
    compare(p, out, 1e-5, level);
}

static void forget_all(problem *p) {
    fill(p, D, 0);
}
static void keep_all(problem *p) {
    fill(p, D, 1);
}
static void nothing(problem *p) {
    for (int i = 0; i < 5; i++)
        fill(p, i, 0);
}
/* v of 1e30 and decays of 1e-30 and less. */
static void far_apart(problem *p) {
    const size_t v = elements(p, hir_value_at(p->b.m, p->b.m->inputs.at[V])->type);
    const size_t d = elements(p, hir_value_at(p->b.m, p->b.m->inputs.at[D])->type);
    for (size_t i = 0; i < v; i++)
        p->in[V][i] *= 1e30f;
    for (size_t i = 0; i < d; i++)
        p->in[D][i] *= i % 3 ? 1 : 1e-30f;
}

Test(emit_recurrence, decays_and_inputs_at_their_limits) {
    const delta wide = {2, 1, 20, 40, 20, "f32", "", "%b"},
                one = {2, 2, 16, 16, 1, "f32", "", "%b"};
    void (*const sets[])(problem *) = {forget_all, keep_all, nothing, far_apart};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        each_level(wide, 30, sets[i], close_to_the_evaluator);
        each_level(one, 30, sets[i], close_to_the_evaluator);
    }
}

/* NaN from token 4 on in k of the first of two heads: that head is NaN from there on, the other as
 * if nothing had been. */
enum { NAN_HEADS = 2, NAN_N = 20, NAN_M = 40, NAN_FROM = 4 };
static void nan_in_a_head(problem *p) {
    p->in[K][NAN_FROM * NAN_HEADS * NAN_N + 3] = NAN;
}

static void other_head_is_well(problem *p, const float *out, const char *level) {
    for (int64_t t = 0; t < p->t; t++)
        for (int64_t h = 0; h < NAN_HEADS; h++)
            for (int64_t j = 0; j < NAN_M; j++) {
                const double x = out[(t * NAN_HEADS + h) * NAN_M + j];
                cr_assert_eq(isnan(x) != 0, h == 0 && t >= NAN_FROM, "%s: token %ld, head %ld",
                             level, (long)t, (long)h);
            }
}

Test(emit_recurrence, nan_stays_in_its_head) {
    const delta d = {NAN_HEADS, NAN_HEADS, NAN_N, NAN_M, NAN_N, "f32", "", "%b"};
    each_level(d, 10, nan_in_a_head, other_head_is_well);
}

/* 100,000 tokens. S forgets: what an error of 2^-24 of one token leaves is multiplied by decays and
 * by I - beta k k^T, whose norms are at most 1, so that errors add up no further than to what the
 * last few tokens of a decay of 0.5 .. 1 make, and are no larger at the end than at the start. */
static void long_lived(problem *p) {
    const size_t n = elements(p, hir_value_at(p->b.m, p->b.m->inputs.at[D])->type);
    for (size_t i = 0; i < n; i++)
        p->in[D][i] = 0.99f + 0.01f * p->in[D][i];
}

static void close_to_the_end(problem *p, const float *out, const char *level) {
    compare(p, out, 2e-5, level);
}

Test(emit_recurrence, a_hundred_thousand_tokens) {
    each_level((delta){2, 1, 8, 16, 8, "f32", "", "%b"}, 100000, long_lived, close_to_the_end);
}
