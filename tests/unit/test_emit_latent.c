/* Latent attention kernels against double loops: heads that fill a panel and that do not, rows of
 * one state and of two, the latent at either end, caches of every type, tokens before the call, at
 * every CPU level of this machine, whole and divided among threads. The function for one token is
 * called once for each row, as if the others came in calls of their own. */
#include <criterion/criterion.h>
#include <math.h>

#include "tests/unit/emit_harness.h"

typedef struct shape {
    int64_t t, past, heads, r, m;
    bool two_states, latent_last;
    hir_dtype dtype;
} shape;

typedef struct problem {
    bench b;
    shape s;
    uint64_t seed;
    hir_id kernel;
    double scale;
    float *q, *q_p, *c, *p; /* [T][H][r], [T][H][m], [cap][r], [cap][m]: NaN behind the keys */
    void *rows, *shared;    /* states as stored */
} problem;

enum { BEHIND = 3, GUARD = 64 };
static const float untouched = -12345.0f;

static int64_t capacity(const problem *p) {
    return p->s.past + p->s.t + BEHIND;
}

static int64_t row_width(const problem *p) {
    return p->s.r + (p->s.two_states ? 0 : p->s.m);
}

/* ---- the kernel ------------------------------------------------------------------------------ */
static hir_ref state(problem *p, const char *name, int64_t n) {
    hir_type type = hir_make_type(p->s.dtype, 3, (int64_t[]){HIR_C, 1, n});
    uint32_t index = hir_add_state(p->b.m, name, HIR_STATE_CACHE, type, HD_NOWHERE);
    hir_id v = hir_add_input(p->b.m, name, type); /* stands for the result of cache_append */
    hir_value_at(p->b.m, v)->place = HIR_PLACE_STATE;
    hir_value_at(p->b.m, v)->offset = index;
    return hir_value_ref(v);
}

static hir_ref query(problem *p, const char *name, int64_t n) {
    hir_type t = hir_make_type(HIR_F32, 3, (int64_t[]){HIR_T, p->s.heads, n});
    return hir_value_ref(hir_add_input(p->b.m, name, t));
}

static void build_kernel(problem *p) {
    const shape *s = &p->s;
    hir_ref args[] = {query(p, "q", s->r), state(p, "rows", row_width(p)), hir_no_ref(),
                      hir_no_ref()};
    if (s->m) args[2] = query(p, "q_p", s->m);
    if (s->two_states && s->m) args[3] = state(p, "shared", s->m);
    const bool last = s->latent_last && s->m && !s->two_states;
    hir_attr attrs[] = {hir_string(HIR_A_NAME, "sequence0"), hir_string(HIR_A_ROWS, "all"),
                        hir_string(HIR_A_SPLIT_DECODE, "keys"),
                        hir_string(HIR_A_SPLIT_PREFILL, "cyclic"), hir_int(HIR_A_GRAIN, 16)};
    hir_attr of[] = {hir_int(HIR_A_START, last ? s->m : 0), hir_float(HIR_A_SCALE, p->scale)};
    hir_type to = hir_make_type(HIR_F32, 3, (int64_t[]){HIR_T, s->heads, s->r});
    hir_builder top = hir_at_end(p->b.m, &p->b.diags);
    p->kernel = hir_build_kernel(&top, HIR_KERNEL_SEQUENCE_OP, attrs, 5, &to, 1);
    hir_builder body = hir_in_body(p->b.m, &p->b.diags, p->kernel);
    hir_ref o = hir_emit(&body, HIR_ATTENTION_LATENT_OP, args, 4, of, 2);
    hir_build(&body, HIR_YIELD_OP, &o, 1, NULL, 0);
    cr_assert(!hd_diags_failed(&p->b.diags), "%s", bench_errors(&p->b));
}

/* ---- the cache --------------------------------------------------------------------------------*/
static float *columns(problem *p, int64_t n) {
    float *x = random_floats(&p->seed, (size_t)(capacity(p) * n));
    for (int64_t i = (p->s.past + p->s.t) * n; i < capacity(p) * n; i++)
        x[i] = NAN;
    return x;
}

/* x as a column of rows of a state of `width`; x becomes what that holds. */
static void store(const problem *p, void *to, int64_t width, int64_t at, float *x, int64_t n) {
    const size_t bytes = hir_dtype_bytes(p->s.dtype);
    for (int64_t i = 0; i < capacity(p) * n; i++) {
        uint16_t half = p->s.dtype == HIR_BF16 ? hd_bf16_from_f32(x[i]) : hd_f16_from_f64(x[i]);
        if (p->s.dtype == HIR_BF16) x[i] = hd_bf16_to_f32(half);
        if (p->s.dtype == HIR_F16) x[i] = hd_f16_to_f32(half);
        char *place = (char *)to + (size_t)(i / n * width + at + i % n) * bytes;
        memcpy(place, p->s.dtype == HIR_F32 ? (void *)&x[i] : (void *)&half, bytes);
    }
}

static void store_rows(problem *p) {
    const shape *s = &p->s;
    const size_t bytes = hir_dtype_bytes(s->dtype), cap = (size_t)capacity(p);
    const bool last = s->latent_last && !s->two_states;
    p->c = columns(p, s->r), p->p = columns(p, s->m);
    p->rows = guarded(cap * (size_t)row_width(p) * bytes);
    store(p, p->rows, row_width(p), last ? s->m : 0, p->c, s->r);
    if (!s->m) return;
    if (s->two_states) p->shared = guarded(cap * (size_t)s->m * bytes);
    store(p, s->two_states ? p->shared : p->rows, s->two_states ? s->m : row_width(p),
          s->two_states || last ? 0 : s->r, p->p, s->m);
}

static void open_problem(problem *p, shape s, uint64_t seed) {
    *p = (problem){.b = bench_new(), .s = s, .seed = seed * 2654435761u + 1};
    bench_start(&p->b);
    p->scale = 1.5 / sqrt((double)(s.r + s.m));
    build_kernel(p);
    p->q = random_floats(&p->seed, (size_t)(s.t * s.heads * s.r));
    p->q_p = random_floats(&p->seed, (size_t)(s.t * s.heads * s.m));
    store_rows(p);
}

static void close_problem(problem *p) {
    guarded_free(p->q), guarded_free(p->q_p), guarded_free(p->c), guarded_free(p->p);
    guarded_free(p->rows), guarded_free(p->shared);
    bench_free(&p->b);
}

/* ---- expected -------------------------------------------------------------------------------- */
/* o[r] of one token and head, in double */
static void expect(const problem *p, int64_t t, int64_t h, double *o) {
    const shape *s = &p->s;
    int64_t keys = s->past + t + 1;
    double *score = malloc((size_t)keys * sizeof *score), most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < keys; i++) {
        score[i] = 0;
        for (int64_t j = 0; j < s->r; j++)
            score[i] += (double)p->q[(t * s->heads + h) * s->r + j] * p->c[i * s->r + j];
        for (int64_t j = 0; j < s->m; j++)
            score[i] += (double)p->q_p[(t * s->heads + h) * s->m + j] * p->p[i * s->m + j];
        score[i] *= p->scale;
        most = fmax(most, score[i]);
    }
    memset(o, 0, (size_t)s->r * sizeof *o);
    for (int64_t i = 0; i < keys; i++) {
        double e = exp(score[i] - most);
        sum += e;
        for (int64_t j = 0; j < s->r; j++)
            o[j] += e * p->c[i * s->r + j];
    }
    for (int64_t j = 0; j < s->r; j++)
        o[j] /= sum;
    free(score);
}

/* Sums of up to 700 terms of size 1 in f32, weights that add up to 1: 5e-6 as in
 * test_emit_sequence.c. */
static void compare(const problem *p, const float *o, const char *what) {
    const shape *s = &p->s;
    double *e = malloc((size_t)s->r * sizeof *e);
    for (int64_t t = 0; t < s->t; t++)
        for (int64_t h = 0; h < s->heads; h++) {
            expect(p, t, h, e);
            for (int64_t j = 0; j < s->r; j++) {
                double got = o[(t * s->heads + h) * s->r + j];
                cr_assert(fabs(got - e[j]) <= 5e-6,
                          "%s: [%ld, %ld, %ld] is %.9g, not %.9g (T=%ld past=%ld H=%ld r=%ld "
                          "m=%ld)",
                          what, t, h, j, got, e[j], s->t, s->past, s->heads, s->r, s->m);
            }
        }
    for (size_t i = 0; i < GUARD; i++)
        cr_assert(o[(size_t)(s->t * s->heads * s->r) + i] == untouched,
                  "%s: wrote behind the result", what);
    free(e);
}

/* ---- running --------------------------------------------------------------------------------- */
static float *new_result(const problem *p) {
    size_t n = (size_t)(p->s.t * p->s.heads * p->s.r) + GUARD;
    float *o = guarded(n * 4);
    for (size_t i = 0; i < n; i++)
        o[i] = untouched;
    return o;
}

static void call_frame(const problem *p, const compiled *c, hrt_frame frame, int64_t token,
                       float *o, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
    const shape *s = &p->s;
    void *args[5], *given[] = {p->q + token * s->heads * s->r, p->rows,
                               p->q_p + token * s->heads * s->m, p->shared};
    size_t n = 0;
    for (int i = 0; i < 4; i++)
        if (i < 2 || (i == 2 && s->m) || (i == 3 && s->m && s->two_states)) args[n++] = given[i];
    args[n++] = o + token * s->heads * s->r;
    cr_assert_eq(c->k.operands.n, n);
    frame.scratch = guarded((c->scratch + 63) / 64 * 64);
    memset(frame.scratch, 0xff, c->scratch);
    c->call(&frame, args, r0, r1, c0, c1);
    guarded_free(frame.scratch);
}

/* One token, its ranges divided at random if `cut`, the later ones first. */
static void call_token(problem *p, const compiled *c, float *o, int64_t t, bool cut) {
    hrt_frame frame = {.T = 1, .C = p->s.past + t + 1, .cap = capacity(p)};
    uint64_t counters, range, ranges = (uint64_t)(capacity(p) + HRT_KEYS - 1) / HRT_KEYS;
    shared_in_program(&p->b, p->kernel, &counters, &range);
    char *shared = guarded(counters + ranges * range);
    memset(shared, 0xff, counters + ranges * range);
    memset(shared, 0, counters);
    frame.shared = shared;
    int64_t cols = (frame.C + HRT_KEYS - 1) / HRT_KEYS, at = cut ? cols / 2 : 0, from = at;
    while (from < cols) {
        int64_t to = cut ? from + 1 + random_below(&p->seed, cols - from) : cols;
        call_frame(p, c, frame, t, o, 0, 1, from, to);
        from = to;
    }
    if (at > 0) call_frame(p, c, frame, t, o, 0, 1, 0, at);
    for (uint64_t i = 0; i < counters; i++)
        cr_assert_eq(shared[i], 0, "a counter is left");
    guarded_free(shared);
}

static void call_rows(problem *p, const compiled *c, float *o, bool cut) {
    const shape *s = &p->s;
    hrt_frame frame = {.T = s->t, .C = s->past + s->t, .cap = capacity(p)};
    for (int64_t from = 0, to; from < s->t; from = to) {
        to = cut ? from + 1 + random_below(&p->seed, s->t - from) : s->t;
        if (c->k.phase != HIR_DECODE) call_frame(p, c, frame, 0, o, from, to, 0, 1);
        for (int64_t t = from; t < to && c->k.phase == HIR_DECODE; t++)
            call_token(p, c, o, t, cut);
    }
}

static void check(problem *p, const hcg_level *level, bool decode) {
    compiled c;
    bool ok = compile_kernel(&p->b, HIR_KERNEL_SEQUENCE, p->kernel, decode, level, &c);
    cr_assert(ok, "%s: %s", level->name, bench_errors(&p->b));
    char what[64];
    snprintf(what, sizeof what, "%s %s", level->name, decode ? "decode" : "prefill");
    float *whole = new_result(p), *blocks = new_result(p);
    call_rows(p, &c, whole, false);
    compare(p, whole, what);
    call_rows(p, &c, blocks, true);
    compare(p, blocks, what);
    size_t bytes = (size_t)(p->s.t * p->s.heads * p->s.r) * 4;
    if (decode) cr_assert_eq(memcmp(whole, blocks, bytes), 0, "%s: other bits in blocks", what);
    guarded_free(whole), guarded_free(blocks);
    compiled_free(&c);
}

static shape random_shape(uint64_t *s, int round) {
    static const int64_t heads[] = {1, 2, 5, 16, 24, 33, 130};
    shape out = {.t = 1 + random_below(s, 20), .heads = heads[random_below(s, 7)]};
    out.past = random_below(s, 3) ? random_below(s, 600) : 0;
    out.r = 1 + random_below(s, 70), out.m = round % 4 ? 1 + random_below(s, 40) : 0;
    if (random_below(s, 2)) out.r = 64, out.m = out.m ? 16 : 0;
    out.two_states = random_below(s, 2), out.latent_last = random_below(s, 2);
    out.dtype = (hir_dtype[]){HIR_F32, HIR_BF16, HIR_F16}[random_below(s, 3)];
    return out;
}

static void check_level(const char *name) {
    const hcg_level *levels;
    size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(levels[i].name, name) != 0) continue;
        if (!level_runs(&levels[i])) cr_skip_test("this CPU has no %s", name);
        uint64_t s = 4711;
        for (int round = 0; round < 16; round++) {
            problem p;
            open_problem(&p, random_shape(&s, round), random_bits(&s));
            check(&p, &levels[i], false);
            check(&p, &levels[i], true);
            close_problem(&p);
        }
        return;
    }
    cr_assert_fail("no level %s", name);
}

Test(emit_latent, avx512) {
    check_level("avx512");
}

Test(emit_latent, avx2) {
    check_level("avx2");
}

Test(emit_latent, baseline) {
    check_level("baseline");
}

/* Nothing is called that a generated library does not have, on a level of another architecture,
 * too. */
Test(emit_latent, no_foreign_calls) {
    const hcg_level *levels;
    size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++)
        for (int decode = 0; decode < 2; decode++) {
            problem p;
            open_problem(&p, (shape){.t = 2, .heads = 4, .r = 20, .m = 4, .dtype = HIR_BF16}, 1);
            const char *text =
                assemble_kernel(&p.b, HIR_KERNEL_SEQUENCE, p.kernel, decode, &levels[i]);
            cr_assert_not_null(text, "%s: %s", levels[i].name, bench_errors(&p.b));
            const char *call = foreign_call(&p.b, text);
            cr_assert_null(call, "%s calls %s", levels[i].name, call);
            close_problem(&p);
        }
}
