/* Attention kernels against double loops: MHA, GQA and MQA, head dims that are no multiple of a
 * vector, tokens before the call, long caches, extreme scores, windows, sinks, a bias by distance,
 * a soft cap, all phases, at every CPU level of this machine, whole and divided into blocks. The
 * function for one token is called once for each row, as if the others came in calls of their own.
 * The matrix unit, emulated where there is none, with f32 activations and rounded ones.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "codegen/attention/attention.h"
#include "codegen/attention/query_amx.h"
#include "codegen/attention/query_tile.h"
#include "codegen/emit/math.h"
#include "codegen/matmul/matrix.h"
#include "tests/unit/codegen/attention/sequence_harness.h"
#include "tests/unit/codegen/tiles_fixture.h"

typedef struct shape {
    int64_t t, past, heads, groups, n, m;
    bool reshaped;          /* q arrives as [T, H * n] and leaves as [T, H * m] */
    hir_dtype dtype;        /* of the cache */
    int64_t window, extent; /* 0: no window, no bias */
    double softcap;         /* 0: none */
    enum { NO_SINK, SINK_BY_HEAD, SINK_BY_TOKEN } sink;
} shape;

typedef struct problem {
    bench b;
    shape s;
    uint64_t seed;
    hir_id kernel;
    double scale;
    float *q, *k, *v; /* k and v are [G][cap][..]: NaN behind the past + t positions of each head,
                       * and before those that some token sees, rounded down to four */
    float *sink, *bias;
    void *stored_k, *stored_v; /* the same in the type of the cache, which holds them exactly */
    bool rounded;              /* q, k, v and p are rounded to bf16 */
    double tolerance;
} problem;

enum { BEHIND = 3 };

static int64_t capacity(const problem *p) {
    return p->s.past + p->s.t + BEHIND;
}

static float *cache(problem *p, int64_t width) {
    int64_t cap = capacity(p), used = cap - BEHIND;
    int64_t first = p->s.window ? (p->s.past + 1 - p->s.window) & -4 : 0;
    float *x = random_floats(&p->seed, (size_t)(p->s.groups * cap * width));
    for (int64_t i = 0; i < p->s.groups * cap * width; i++)
        if (i / width % cap >= used || i / width % cap < first) x[i] = NAN;
    return x;
}

/* x in the type of the cache; x becomes what that holds. */
static void *stored(const problem *p, float *x, int64_t width) {
    size_t n = (size_t)(p->s.groups * capacity(p) * width), bytes = hir_dtype_bytes(p->s.dtype);
    char *to = guarded(n * bytes);
    for (size_t i = 0; i < n; i++)
        store_element(to + i * bytes, p->s.dtype, &x[i]);
    return to;
}

static void store_cache(problem *p) {
    guarded_free(p->stored_k), guarded_free(p->stored_v);
    p->stored_k = stored(p, p->k, p->s.n);
    p->stored_v = stored(p, p->v, p->s.m);
}

/* Position `at` of head g. */
static float *row(const problem *p, float *x, int64_t width, int64_t g, int64_t at) {
    return x + (g * capacity(p) + at) * width;
}

/* A number for the sink or the bias: an input, or a weight if it has no T. */
static hir_ref extra(problem *p, const char *name, uint32_t rank, const int64_t *dims) {
    hir_type type = hir_make_type(HIR_F32, rank, dims);
    if (dims[0] == HIR_T) return hir_value_ref(hir_add_input(p->b.m, name, type));
    return hir_weight_ref(hir_add_weight(p->b.m, name, type, HD_NOWHERE));
}

static hir_ref sink_of(problem *p) {
    const int64_t dims[] = {HIR_T, p->s.heads};
    if (p->s.sink == NO_SINK) return hir_no_ref();
    return p->s.sink == SINK_BY_HEAD ? extra(p, "sink", 1, dims + 1) : extra(p, "sink", 2, dims);
}

static hir_ref bias_of(problem *p) {
    const int64_t dims[] = {HIR_T, p->s.heads, p->s.extent};
    return p->s.extent ? extra(p, "bias", 3, dims) : hir_no_ref();
}

static void build_body(problem *p, hir_ref q, hir_ref k, hir_ref v, hir_ref sink, hir_ref bias) {
    const shape *s = &p->s;
    hir_builder body = hir_in_body(p->b.m, &p->b.diags, p->kernel);
    hir_attr heads = hir_ints(HIR_A_SHAPE, (int64_t[]){HIR_T, s->heads, s->n}, 3);
    hir_attr flat = hir_ints(HIR_A_SHAPE, (int64_t[]){HIR_T, s->heads * s->m}, 2);
    hir_attr attrs[3] = {hir_float(HIR_A_SCALE, p->scale)};
    uint32_t n = 1;
    if (s->window) attrs[n++] = hir_int(HIR_A_WINDOW, s->window);
    if (s->softcap > 0) attrs[n++] = hir_float(HIR_A_SOFTCAP, s->softcap);
    if (s->reshaped) q = hir_emit(&body, HIR_RESHAPE_OP, &q, 1, &heads, 1);
    hir_ref o = hir_emit(&body, HIR_ATTENTION_OP, (hir_ref[]){q, k, v, sink, bias}, 5, attrs, n);
    if (s->reshaped) o = hir_emit(&body, HIR_RESHAPE_OP, &o, 1, &flat, 1);
    hir_build(&body, HIR_YIELD_OP, &o, 1, NULL, 0);
}

static void build(problem *p, shape s, uint64_t seed) {
    *p = (problem){.b = bench_new(), .s = s, .seed = seed * 2654435761u + 1};
    bench_start(&p->b);
    p->b.exact = HCG_ROUND_ALL;
    p->tolerance = 5e-6;
    p->scale = 1.5 / sqrt((double)s.n);
    int64_t wide[] = {HIR_T, s.heads, s.n}, flat[] = {HIR_T, s.heads * s.n};
    hir_type tq = s.reshaped ? hir_make_type(HIR_F32, 2, flat) : hir_make_type(HIR_F32, 3, wide);
    hir_ref q = hir_value_ref(hir_add_input(p->b.m, "q", tq));
    hir_ref k = state_value(&p->b, "k", s.dtype, s.groups, s.n);
    hir_ref v = state_value(&p->b, "v", s.dtype, s.groups, s.m);
    hir_ref sink = sink_of(p), bias = bias_of(p);
    hir_attr attrs[] = {hir_string(HIR_A_NAME, "sequence0"), hir_string(HIR_A_ROWS, "all"),
                        hir_string(HIR_A_SPLIT_DECODE, "keys"),
                        hir_string(HIR_A_SPLIT_PREFILL, "cyclic"), hir_int(HIR_A_GRAIN, 16)};
    int64_t out[] = {HIR_T, s.heads, s.m}, out_flat[] = {HIR_T, s.heads * s.m};
    hir_type to = s.reshaped ? hir_make_type(HIR_F32, 2, out_flat) : hir_make_type(HIR_F32, 3, out);
    hir_builder top = hir_at_end(p->b.m, &p->b.diags);
    p->kernel = hir_build_kernel(&top, HIR_KERNEL_SEQUENCE_OP, attrs, 5, &to, 1);
    build_body(p, q, k, v, sink, bias);
    cr_assert(!hd_diags_failed(&p->b.diags), "%s", bench_errors(&p->b));
    p->q = random_floats(&p->seed, (size_t)(s.t * s.heads * s.n));
    p->sink = random_floats(&p->seed, (size_t)(s.t * s.heads));
    p->bias = random_floats(&p->seed, (size_t)(s.t * s.heads * s.extent));
    p->k = cache(p, s.n);
    p->v = cache(p, s.m);
    store_cache(p);
}

static void discard(problem *p) {
    guarded_free(p->q), guarded_free(p->k), guarded_free(p->v);
    guarded_free(p->sink), guarded_free(p->bias);
    guarded_free(p->stored_k), guarded_free(p->stored_v);
    bench_free(&p->b);
}

/* ---- expected -------------------------------------------------------------------------------- */
static double taken(const problem *p, float x) {
    return (double)(p->rounded ? hd_bf16_to_f32(hd_bf16_from_f32(x)) : x);
}

/* scale q . k; q is rounded when it is scaled, without a soft cap to units of ln 2 */
static double scaled_product(const problem *p, const float *q, const float *k) {
    const double unit = p->rounded && !(p->s.softcap > 0) ? HCG_LOG2_E : 1;
    const float scale = (float)(p->scale * unit);
    double sum = 0;
    for (int64_t j = 0; j < p->s.n; j++)
        sum += p->rounded ? taken(p, q[j] * scale) * taken(p, k[j]) : (double)q[j] * (double)k[j];
    return p->rounded ? sum / unit : sum * p->scale;
}

/* o[m] of one token and head; the scores in double, as the rule of the op says */
static void expect(const problem *p, int64_t t, int64_t h, double *o) {
    const shape *s = &p->s;
    int64_t keys = s->past + t + 1, g = h / (s->heads / s->groups), number = t * s->heads + h;
    int64_t first = s->window && keys > s->window ? keys - s->window : 0;
    double *score = malloc((size_t)keys * sizeof *score), most = -INFINITY, sum = 0;
    double sink = s->sink ? p->sink[s->sink == SINK_BY_HEAD ? h : number] : -INFINITY;
    for (int64_t i = first; i < keys; i++) {
        score[i] = scaled_product(p, p->q + number * s->n, row(p, p->k, s->n, g, i));
        if (s->softcap > 0) score[i] = s->softcap * tanh(score[i] / s->softcap);
        if (keys - 1 - i < s->extent) score[i] += p->bias[number * s->extent + keys - 1 - i];
        most = fmax(most, score[i]);
    }
    for (int64_t j = 0; j < s->m; j++)
        o[j] = 0;
    most = fmax(most, sink);
    if (s->sink) sum = exp(sink - most);
    for (int64_t i = first; i < keys; i++) {
        double e = exp(score[i] - most);
        sum += e;
        for (int64_t j = 0; j < s->m; j++)
            o[j] += e * taken(p, row(p, p->v, s->m, g, i)[j]);
    }
    for (int64_t j = 0; j < s->m; j++)
        o[j] /= sum;
    free(score);
}

/* ---- running --------------------------------------------------------------------------------- */

static size_t result_size(const problem *p) {
    return (size_t)(p->s.t * p->s.heads * p->s.m);
}

static float *new_result(const problem *p) {
    return new_results(result_size(p));
}

/* The operands at row t, in the order of the kernel's. */
static void operands_at(const problem *p, const compiled *c, int64_t t, float *o, void **args) {
    const shape *s = &p->s;
    uint32_t n = 0;
    args[n++] = p->q + t * s->heads * s->n;
    args[n++] = p->stored_k, args[n++] = p->stored_v;
    if (s->sink) args[n++] = p->sink + (s->sink == SINK_BY_TOKEN ? t * s->heads : 0);
    if (s->extent) args[n++] = p->bias + t * s->heads * s->extent;
    args[n++] = o + t * s->heads * s->m;
    cr_assert_eq(c->k.operands.n, n);
}

enum { MOST_OPERANDS = 6 };

/* Rows t .. t + n - 1 by the function for one token or a few, its columns divided at random if
 * `cut`, in random order. */
static void call_some(problem *p, const compiled *c, float *o, int64_t t, int64_t n, bool cut) {
    const shape *s = &p->s;
    hrt_frame frame = {.T = n, .C = s->past + t + n, .cap = capacity(p)};
    void *args[MOST_OPERANDS];
    operands_at(p, c, t, o, args);
    shared shared = new_shared(&p->b, p->kernel, capacity(p), s->window);
    frame.shared = shared.at;
    call_columns(&p->seed, c, frame, args, n, key_columns(s->groups, s->window, &frame), cut);
    free_shared(&shared);
}

static void call(problem *p, const compiled *c, float *o, int64_t r0, int64_t r1, int64_t c0,
                 int64_t c1) {
    int64_t length = p->s.past + p->s.t;
    hrt_frame frame = {.T = p->s.t, .C = length, .cap = capacity(p)};
    void *args[MOST_OPERANDS];
    operands_at(p, c, 0, o, args);
    call_frame(c, frame, args, r0, r1, c0, c1);
}

/* All rows, as many at once as the function takes or, in blocks, fewer. */
static void call_by_rows(problem *p, const compiled *c, float *o, bool cut) {
    for (int64_t t = 0, n; t < p->s.t; t += n) {
        n = c->k.phase == HIR_DECODE ? 1
            : cut                    ? 1 + random_below(&p->seed, HRT_SMALL_BATCH)
                                     : HRT_SMALL_BATCH;
        if (n > p->s.t - t) n = p->s.t - t;
        call_some(p, c, o, t, n, cut);
    }
}

/* All rows and heads. */
static void call_all(problem *p, const compiled *c, float *o) {
    if (c->k.phase != HIR_PREFILL)
        call_by_rows(p, c, o, false);
    else
        call(p, c, o, 0, p->s.t, 0, p->s.groups);
}

static void compare(const problem *p, const float *o, double tolerance, const char *what) {
    const shape *s = &p->s;
    double *e = malloc((size_t)s->m * sizeof *e);
    for (int64_t t = 0; t < s->t; t++)
        for (int64_t h = 0; h < s->heads; h++) {
            expect(p, t, h, e);
            for (int64_t j = 0; j < s->m; j++) {
                double got = o[(t * s->heads + h) * s->m + j];
                cr_assert(
                    fabs(got - e[j]) <= tolerance,
                    "%s: [%ld, %ld, %ld] is %.9g, not %.9g "
                    "(T=%ld past=%ld H=%ld G=%ld n=%ld m=%ld window %ld extent %ld softcap %g "
                    "sink %d)",
                    what, t, h, j, got, e[j], s->t, s->past, s->heads, s->groups, s->n, s->m,
                    s->window, s->extent, s->softcap, (int)s->sink);
            }
        }
    check_guard(o, result_size(p), what);
    free(e);
}

static void run_blocks(problem *p, const compiled *c, float *o) {
    if (c->k.phase != HIR_PREFILL) {
        call_by_rows(p, c, o, true);
        return;
    }
    for (int64_t r0 = 0, r1; r0 < p->s.t; r0 = r1) {
        r1 = r0 + 1 + random_below(&p->seed, p->s.t - r0);
        for (int64_t c0 = 0, c1; c0 < p->s.groups; c0 = c1) {
            c1 = c0 + 1 + random_below(&p->seed, p->s.groups - c0);
            call(p, c, o, r0, r1, c0, c1);
        }
    }
}

enum phase { PREFILL, DECODE, SMALL_BATCH, PHASES };

static void compile(problem *p, const hcg_level *level, enum phase phase, compiled *c) {
    p->b.small_batch = phase == SMALL_BATCH;
    bool ok = compile_kernel(&p->b, HIR_KERNEL_SEQUENCE, p->kernel, phase == DECODE, level, c);
    cr_assert(ok, "%s: %s", level->name, bench_errors(&p->b));
    cr_assert_eq(hcg_columns(p->b.m, p->kernel), p->s.groups);
}

static void check(problem *p, const hcg_level *level, enum phase phase) {
    static const char *const names[] = {"prefill", "decode", "small batch"};
    compiled c;
    compile(p, level, phase, &c);
    char what[64];
    snprintf(what, sizeof what, "%s %s", level->name, names[phase]);
    float *whole = new_result(p), *blocks = new_result(p);
    call_all(p, &c, whole);
    compare(p, whole, p->tolerance, what);
    run_blocks(p, &c, blocks);
    compare(p, blocks, p->tolerance, what);
    if (phase == DECODE || phase == PREFILL)
        cr_assert_eq(memcmp(whole, blocks, result_size(p) * 4), 0, "%s: blocks give other bits",
                     what);
    guarded_free(whole), guarded_free(blocks);
    compiled_free(&c);
}

static shape random_shape(uint64_t *s) {
    static const int64_t groups[] = {1, 2, 3, 1, 4}, shared[] = {1, 2, 3, 7, 1};
    int64_t i = random_below(s, 5), g = groups[i], h = g * shared[random_below(s, 5)];
    shape out = {.t = 1 + random_below(s, 40), .heads = h, .groups = g};
    out.past = random_below(s, 3) ? random_below(s, 700) : 0;
    out.n = 1 + random_below(s, 70), out.m = 1 + random_below(s, 150);
    if (random_below(s, 2)) out.n = out.m = 32;
    out.reshaped = random_below(s, 2);
    out.dtype = (hir_dtype[]){HIR_F32, HIR_BF16, HIR_F16}[random_below(s, 3)];
    return out;
}

static void check_level(const char *name) {
    const hcg_level *level = level_named(name);
    uint64_t s = 12345;
    for (int round = 0; round < 24; round++) {
        problem p;
        build(&p, random_shape(&s), random_bits(&s));
        for (enum phase phase = PREFILL; phase < PHASES; phase++)
            if (has_turn((uint64_t)round + phase + level->lanes / 8, 4)) check(&p, level, phase);
        discard(&p);
    }
}

/* The matrix unit; exact as by vectors, and rounded, by turns. Weights p are rounded then, each by
 * 2^-9 of itself, and |v| <= 1. */
static void check_tiles(const hcg_level *level, shape s, uint64_t seed, unsigned turn) {
    for (unsigned rounded = 0; rounded < 2; rounded++) {
        if (!has_turn(turn + rounded, 2)) continue;
        problem p;
        build(&p, s, seed);
        if (rounded) p.rounded = true, p.b.exact = 0, p.tolerance += 0x1p-9;
        check(&p, level, PREFILL);
        discard(&p);
    }
}

Test(emit_sequence, tiles) {
    const hcg_level level = with_tiles();
    uint64_t s = 12345;
    for (int round = 0; round < 12; round++) {
        const shape drawn = random_shape(&s);
        const uint64_t seed = random_bits(&s);
        if (has_turn((unsigned)round, 2)) check_tiles(&level, drawn, seed, (unsigned)round / 2);
    }
    expect_emulated(&level);
}

Test(emit_sequence, avx512) {
    check_level("avx512");
}

Test(emit_sequence, avx2) {
    check_level("avx2");
}

Test(emit_sequence, baseline) {
    check_level("baseline");
}

/* Near the edges of a window or an extent, of a tile of keys (128), a range (256), a strip. */
static int64_t some_reach(uint64_t *s) {
    static const int64_t reaches[] = {1, 2, 3, 7, 16, 63, 127, 128, 129, 255, 256, 257, 400, 1000};
    return reaches[random_below(s, sizeof reaches / sizeof *reaches)];
}

static shape with_options(shape s, uint64_t *seed, int64_t options) {
    s.window = options & 1 ? some_reach(seed) : 0;
    s.extent = options & 2 ? some_reach(seed) : 0;
    s.softcap = options & 4 ? 0.5 + (double)random_below(seed, 4) : 0;
    s.sink = options / 8;
    return s;
}

static void check_options(const hcg_level *level, size_t turn) {
    uint64_t s = 4711;
    for (int64_t options = 1; options < 8 * 3; options++) {
        problem p;
        build(&p, with_options(random_shape(&s), &s, options), random_bits(&s));
        for (enum phase phase = PREFILL; phase < PHASES; phase++)
            if (has_turn((uint64_t)options + phase + turn, 5)) check(&p, level, phase);
        discard(&p);
    }
}

Test(emit_sequence, options_on_tiles) {
    const hcg_level level = with_tiles();
    uint64_t s = 4711;
    static const int64_t some[] = {1, 2, 4, 8, 16, 3, 15, 23}; /* each alone, and all */
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        check_tiles(&level, with_options(random_shape(&s), &s, some[i]), random_bits(&s),
                    (unsigned)i);
    expect_emulated(&level);
}

Test(emit_sequence, options_crossed) {
    const hcg_level *levels;
    size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++)
        if (vectors_run(&levels[i])) check_options(&levels[i], i);
}

static void check_spoilt(const hcg_level *level, enum phase phase, shape s,
                         void (*spoil)(problem *p), double tolerance) {
    problem p;
    compiled c;
    build(&p, s, 7);
    if (spoil) spoil(&p);
    compile(&p, level, phase, &c);
    float *o = new_result(&p);
    call_all(&p, &c, o);
    compare(&p, o, tolerance, level->name);
    guarded_free(o);
    compiled_free(&c);
    discard(&p);
}

/* With the matrix unit as well. Levels and ways of a call take turns from shape to shape. */
static void each_level(shape s, void (*spoil)(problem *p), double tolerance) {
    static unsigned shapes;
    const hcg_level *levels;
    hcg_level tiles;
    size_t n = hcg_levels(&levels);
    shapes++;
    for (size_t i = 0; i < PHASES * n; i++)
        if (vectors_run(&levels[i / PHASES]) &&
            has_turn(levels[i / PHASES].lanes / 8 + i % PHASES + shapes, 3))
            check_spoilt(&levels[i / PHASES], i % PHASES, s, spoil, tolerance);
    if (has_turn(shapes, 2) && level_with_tiles(&tiles))
        check_spoilt(&tiles, PREFILL, s, spoil, tolerance);
}

Test(emit_sequence, long_cache) {
    each_level((shape){.t = 3, .past = 5000, .heads = 4, .groups = 2, .n = 64, .m = 64}, NULL,
               5e-6);
}

Test(emit_sequence, many_heads_a_group) {
    each_level((shape){.t = 5, .past = 140, .heads = 96, .groups = 1, .n = 16, .m = 24}, NULL,
               5e-6);
}

/* Several strips of queries and tiles of keys, of which each strip ends in another; heads longer
 * than a block of k, and values in no whole register tiles. */
Test(emit_sequence, many_tokens_and_wide_heads) {
    each_level((shape){.t = 150, .past = 60, .heads = 2, .groups = 2, .n = 200, .m = 131}, NULL,
               5e-6);
    each_level((shape){.t = 150, .heads = 3, .groups = 1, .n = 40, .m = 64, .dtype = HIR_BF16},
               NULL, 5e-6);
}

/* Many strips in one tile of queries, windows that end in each of them. */
Test(emit_sequence, windows_over_many_tokens) {
    static const int64_t windows[] = {1, 5, 100, 128, 300};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        shape s = {.t = 300, .past = 130, .heads = 2, .groups = 1, .n = 24, .m = 17};
        s.window = windows[i];
        each_level(s, NULL, 5e-6);
        s.sink = SINK_BY_TOKEN, s.extent = 40, s.heads = 7, s.t = 90;
        each_level(s, NULL, 5e-6);
    }
}

static void no_sink(problem *p) {
    for (int64_t i = 0; i < p->s.heads; i++)
        p->sink[i] = -INFINITY;
}

static void large_sinks(problem *p) {
    for (int64_t i = 0; i < p->s.heads; i++)
        p->sink[i] = i % 2 ? 3e38f : -3e38f;
}

/* Logits of 1e4 that the cap makes 30, and a bias of -inf, which hides a key. */
static void capped(problem *p) {
    for (int64_t i = 0; i < p->s.t * p->s.heads * p->s.n; i++)
        p->q[i] *= 1e4f;
}
static void hidden_by_bias(problem *p) {
    for (int64_t i = 0; i < p->s.t * p->s.heads * p->s.extent; i++)
        if (i % 3 == 2) p->bias[i] = -INFINITY;
}

Test(emit_sequence, extreme_options) {
    const shape s = {.t = 20, .past = 200, .heads = 4, .groups = 2, .n = 32, .m = 16};
    shape with = s;
    with.sink = SINK_BY_HEAD;
    each_level(with, no_sink, 5e-6);
    each_level(with, large_sinks, 5e-6);
    with.softcap = 30;
    each_level(with, capped, 1e-4); /* of a logit of 30 as f32, tanh with it */
    with = s, with.extent = 30;
    each_level(with, hidden_by_bias, 5e-6);
    with.window = 30;
    each_level(with, hidden_by_bias, 5e-6);
}

/* One product for a score, of which little is rounded: what is left is the error of the weights, at
 * most 2^-23 of the greatest, and that of their sums. */
Test(emit_sequence, weights_are_exact) {
    for (int turn = 0; turn < 3; turn++) /* which levels and phases have one */
        each_level((shape){.t = 60, .heads = 3, .groups = 1, .n = 1, .m = 8}, NULL, 2.5e-7);
}

/* scores of some 1e5: e^x of either sign of them overflows, their differences do not matter */
static void large_scores(problem *p) {
    for (int64_t i = 0; i < p->s.t * p->s.heads * p->s.n; i++)
        p->q[i] *= 1e5f;
}

Test(emit_sequence, large_scores) {
    /* the scores' own rounding is 1e-2: what is near the maximum is what the loops must agree on */
    each_level((shape){.t = 9, .past = 200, .heads = 4, .groups = 2, .n = 32, .m = 16},
               large_scores, 5e-2);
}

/* Products beyond FLT_MAX of both signs: the double loops know the true order, the kernels must
 * only stay finite. */
Test(emit_sequence, overflowing_scores) {
    const hcg_level *levels;
    size_t n = hcg_levels(&levels);
    shape s = {.t = 17, .past = 150, .heads = 2, .groups = 1, .n = 20, .m = 20};
    hcg_level tiles;
    const bool with = level_with_tiles(&tiles);
    for (size_t i = 0; i < 3 * PHASES * (n + 1); i++) {
        const hcg_level *level = i < 3 * PHASES * n ? &levels[i / (3 * PHASES)] : &tiles;
        if (level == &tiles ? !with : !vectors_run(level)) continue;
        if (!has_turn(i + i / 3 + i / (3 * PHASES), 2)) continue;
        problem p;
        compiled c;
        build(&p, s, 3);
        for (int64_t j = 0; j < s.t * s.heads * s.n; j++)
            p.q[j] = i % 3 == 0 ? 3e38f : i % 3 == 1 ? -3e38f : p.q[j] * 3e38f;
        for (int64_t j = 0; j < (s.t + s.past) * s.n; j++) /* one head: its rows come first */
            p.k[j] = i % 3 == 2 && j % s.n ? 0 : 3e38f; /* third case: one product, no inf - inf */
        store_cache(&p);
        compile(&p, level, i / 3 % PHASES, &c);
        float *o = new_result(&p);
        call_all(&p, &c, o);
        for (size_t j = 0; j < result_size(&p); j++)
            cr_assert(isfinite(o[j]) && fabsf(o[j]) <= 1.0001f, "%s, case %zu: %g", level->name,
                      i % (3 * PHASES), o[j]);
        guarded_free(o);
        compiled_free(&c);
        discard(&p);
    }
}

/* A token does not see the tokens after it, whatever they hold. */
Test(emit_sequence, causal) {
    const hcg_level *levels;
    size_t n = hcg_levels(&levels);
    shape s = {.t = 30, .past = 115, .heads = 4, .groups = 2, .n = 24, .m = 24};
    hcg_level tiles;
    const bool with = level_with_tiles(&tiles);
    for (size_t i = 0; i < PHASES * (n + 1); i++) {
        const hcg_level *level = i < PHASES * n ? &levels[i / PHASES] : &tiles;
        if (level == &tiles ? !with : !vectors_run(level)) continue;
        problem p;
        compiled c;
        build(&p, s, 4);
        compile(&p, level, i % PHASES, &c);
        float *before = new_result(&p), *after = new_result(&p);
        call_all(&p, &c, before);
        int64_t from = s.past + 12;
        for (int64_t g = 0; g < s.groups; g++)
            for (int64_t j = from * s.n; j < (s.past + s.t) * s.n; j++)
                row(&p, p.k, s.n, g, 0)[j] = 1e20f, row(&p, p.v, s.n, g, 0)[j] = -1e20f;
        store_cache(&p);
        call_all(&p, &c, after);
        cr_assert_eq(memcmp(before, after, (size_t)(12 * s.heads * s.m) * 4), 0, "%s", level->name);
        cr_assert_neq(memcmp(before, after, result_size(&p) * 4), 0);
        guarded_free(before), guarded_free(after);
        compiled_free(&c);
        discard(&p);
    }
}

/* No product with the keys of a whole tile repeats a row, at any level with vectors; a softmax takes
 * four keys at once. */
Test(emit_sequence, tiles_of_keys_are_whole_tiles_of_registers) {
    const hcg_level *levels;
    const size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++) {
        const int64_t keys = hcg_most_keys(&levels[i]), rows = hcg_tile_of(&levels[i])->rows;
        cr_expect(keys <= HCG_KEYS && keys > HCG_KEYS - 4 * rows, "%s: %ld keys", levels[i].name,
                  (long)keys);
        cr_expect_eq(keys % 4, 0, "%s: %ld keys", levels[i].name, (long)keys);
        if (!hcg_attends_by_amx(&levels[i]))
            cr_expect_eq(keys % rows, 0, "%s: %ld keys", levels[i].name, (long)keys);
    }
}

/* Of one token, steps of scores ask for values and steps of values for the next keys, where a row
 * has whole steps. */
Test(emit_sequence, rows_are_asked_for) {
    const hcg_level *levels;
    const size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(levels[i].arch, "x86_64") != 0) continue;
        for (int64_t width = 24; width <= 64; width += 40) {
            problem p;
            build(&p, (shape){.t = 1, .heads = 8, .groups = 2, .n = width, .m = width}, 1);
            const char *one =
                assemble_kernel(&p.b, HIR_KERNEL_SEQUENCE, p.kernel, true, &levels[i]);
            cr_assert(one, "%s", bench_errors(&p.b));
            cr_expect_eq(strstr(one, "prefetcht1") != NULL, width == 64, "%s", levels[i].name);
            discard(&p);
        }
    }
}

/* Levels of other machines: the code is generated, and calls nothing that is not there. */
Test(emit_sequence, every_architecture) {
    const hcg_level *levels;
    size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++) {
        if (level_runs(&levels[i])) continue;
        problem p;
        build(&p, (shape){.t = 2, .past = 3, .heads = 6, .groups = 2, .n = 24, .m = 37}, 1);
        for (int one = 0; one < 2; one++) {
            const char *call = calls_outside(&p.b, HIR_KERNEL_SEQUENCE, p.kernel, one, &levels[i]);
            cr_assert(!call, "%s calls %s %s", levels[i].name, call, bench_errors(&p.b));
        }
        discard(&p);
    }
}

Test(emit_sequence, rejected) {
    const hcg_level *levels;
    hcg_levels(&levels);
    problem p;
    compiled c;
    build(&p, (shape){.t = 2, .heads = 2, .groups = 1, .n = 8, .m = 8}, 1);
    for (size_t i = 0; i < p.b.m->inputs.n; i++)
        hir_value_at(p.b.m, p.b.m->inputs.at[i])->place = HIR_PLACE_INPUT;
    cr_assert_not(compile_kernel(&p.b, HIR_KERNEL_SEQUENCE, p.kernel, false, &levels[0], &c));
    cr_assert_eq(hd_diags_first(&p.b.diags), HD_E_INTERNAL);
    discard(&p);
}
