/* Every back end of contractions against plain loops: at each CPU level that this machine runs, for
 * each type and layout of weights that its table gives to a row (matmul/backends.def), with
 * activations rounded and not, one token and many, random odd shapes, cut among random numbers of
 * threads by rows and columns. And what the table says, level by level.
 *
 * Bound: with u = 2^-24, a sum of K products makes at most K + 1 rounding errors, each at most u
 * times a partial sum, which is at most S = sum_k |x_k w_k|. They have random signs, so that 2
 * sqrt(K + 1) u S holds with a margin; one lost or doubled product of the K is about S / K, a
 * hundred times as much. Weights in groups are w = s q + m with parts that may cancel: of q4, with
 * S made of the largest |s q| + |m|, for which twice the largest |w| of the matrix stands.
 *
 * Where x is rounded this holds for the rounded x:
 *
 *   bf16   products of bf16 are exact, and an instruction rounds at most once for each of its two;
 *          against x itself the sum is off by at most 2^-8 S more
 *   f32    on the matrix unit products of parts are left out, which are 2.01 u S at most, with f16
 *          weights 1.01 u S (amx/bf16.c); and parts below 2^-126 are zeros, of x, and of f32
 *          weights: 2^-126 sum |w|, and 2^-126 sum |x|
 *   int8   sums of integers are exact; against x itself an element is off by at most t / 2, t the
 *          largest of its group / 127. On the matrix unit x and weights are rounded to bf16 in its
 *          place, and the sum is not further from that of x and weights themselves
 */
#include <criterion/criterion.h>
#include <math.h>

#include "runtime/grid.h"
#include "tests/tools/amx_emulator.h"
#include "tests/unit/codegen/contract/contract_harness.h"

enum { MOST_T = 70, MOST_N = 200, MOST_K = 600, CALLS = 3, SHAPES = 3 };

typedef enum hard { /* numbers, beside plain random ones */
                    PLAIN,
                    CANCELLING, /* sums are 2^-12 of their products, */
                    WIDE,       /* exponents of 80 powers of two, */
                    SMALL_X,    /* parts of x are denormal, or all of it, */
                    SMALL_W,    /* of weights */
} hard;

typedef struct subject { /* y = x w^T, and the sum of a second one, as columns of their own */
    bench b;
    uint64_t seed;
    hir_id kernel;
    hir_dtype dtype;
    hir_layout layout;
    int64_t k, n[2];
    const hcg_level *level; /* that it is compiled for, */
    unsigned rounds;        /* what x is rounded to, HCG_ROUND_* */
    double left_out;        /* it and the weights are split, of whose products some are left out */
    hard kind;
    float *w[2]; /* values as stored */
    void *panels[2];
} subject;

static void harden(subject *s, float *x, int64_t n, bool is_x) {
    for (int64_t i = 0; i < n; i++) {
        const bool second = i % 2;
        switch (s->kind) {
        case PLAIN: return;
        case CANCELLING:
            if (second) x[i] = is_x ? -x[i - 1] * (1 + 0x1p-12f) : x[i - 1];
            break;
        case WIDE: x[i] = ldexpf(x[i], (int)random_below(&s->seed, 81) - 40); break;
        case SMALL_X:
        case SMALL_W:
            x[i] = is_x == (s->kind == SMALL_X)
                       ? ldexpf(x[i], -98 - (int)random_below(&s->seed, 36))
                       : x[i] * 16;
        }
    }
}

static void build(subject *s) {
    s->b = bench_new();
    bench_start(&s->b);
    hir_module *m = s->b.m;
    hir_builder top = hir_at_end(m, &s->b.diags);
    hir_type in = hir_make_type(HIR_F32, 2, (int64_t[]){HIR_T, s->k}), out[2];
    hir_ref x = hir_value_ref(hir_add_input(m, "x", in)), y[2];
    for (int i = 0; i < 2; i++)
        out[i] = hir_make_type(HIR_F32, 2, (int64_t[]){HIR_T, s->n[i]});
    hir_attr attrs[] = {hir_string(HIR_A_NAME, "contract0"), hir_string(HIR_A_ROWS, "all"),
                        hir_string(HIR_A_SPLIT_DECODE, "cols"),
                        hir_string(HIR_A_SPLIT_PREFILL, "cols")};
    s->kernel = hir_build_kernel(&top, HIR_KERNEL_CONTRACT_OP, attrs, 4, out, 2);
    hir_builder body = hir_in_body(m, &s->b.diags, s->kernel);
    for (int i = 0; i < 2; i++) {
        hir_type type = hir_make_type(s->dtype, 2, (int64_t[]){s->n[i], s->k});
        uint32_t w = hir_add_weight(m, i ? "w1" : "w0", type, HD_NOWHERE);
        m->weights.at[w].layout = s->layout;
        s->w[i] = random_floats(&s->seed, (size_t)(s->n[i] * s->k));
        harden(s, s->w[i], s->n[i] * s->k, false);
        s->panels[i] = pack_matrix(s->w[i], s->n[i], s->k, s->dtype, s->layout);
        y[i] = hir_emit(&body, HIR_LINEAR_OP, (hir_ref[]){x, hir_weight_ref(w), hir_no_ref()}, 3,
                        NULL, 0);
    }
    hir_build(&body, HIR_YIELD_OP, y, 2, NULL, 0);
    cr_assert(!hd_diags_failed(&s->b.diags), "%s", bench_errors(&s->b));
}

static void discard(subject *s) {
    for (int i = 0; i < 2; i++)
        guarded_free(s->w[i]), guarded_free(s->panels[i]);
    bench_free(&s->b);
}

/* As the runtime shares a step among `threads`, one after the other. */
static void run_shared(const subject *s, const compiled *c, void *const *args, int64_t t,
                       int threads) {
    int64_t columns = hcg_columns(s->b.m, s->kernel);
    hrt_grid g = hrt_cut(t, columns, threads);
    hrt_frame frame = {.T = t, .C = t, .cap = t, .scratch = guarded((c->scratch + 63) / 64 * 64)};
    memset(frame.scratch, 0xff, c->scratch); /* NaN: scratch must not be read before written */
    for (int64_t i = 0; i < g.rows; i++)
        for (int64_t j = 0; j < g.cols; j++)
            c->call(&frame, args, t * i / g.rows, t * (i + 1) / g.rows, columns * j / g.cols,
                    columns * (j + 1) / g.cols);
    guarded_free(frame.scratch);
}

/* The largest |w| of matrix i, twice, where parts of weights may cancel; 0: they cannot. */
static double cancelling(const subject *s, int i) {
    double most = 0;
    for (int64_t at = 0; at < s->n[i] * s->k && s->dtype == HIR_Q4; at++)
        most = fmax(most, 2 * fabs((double)s->w[i][at]));
    return most;
}

/* What the rounding of x, and of weights, may move x[at] by. */
static double moved(const subject *s, const float *row, int64_t at) {
    float most = 0;
    if (s->rounds == HCG_ROUND_BF16) return ldexp(fabs((double)row[at]), -8);
    if (s->rounds != HCG_ROUND_INT8) return 0;
    for (int64_t k = at / HIR_GROUP * HIR_GROUP; k < s->k && k / HIR_GROUP == at / HIR_GROUP; k++)
        most = fmaxf(most, fabsf(row[k]));
    return (double)most / 127 * 0.5001;
}

/* A row of x as the back end sees it; and what that has moved each of it by. */
typedef struct seen {
    seen_as as;
    const float *row;
    double x[MOST_K], moved[MOST_K];
} seen;

static void see_row(const subject *s, seen_as as, const float *row, seen *out) {
    cr_assert_leq(s->k, MOST_K);
    out->as = as, out->row = row;
    round_row(as, row, s->k, out->x);
    for (int64_t k = 0; k < s->k; k++)
        out->moved[k] = moved(s, row, k);
}

typedef struct sums {
    double plain, rounded, size, off; /* sum x w, the same of x as seen, S, what rounding moves */
    double lost;                      /* with parts that are denormal */
} sums;

static sums sum_products(const subject *s, const seen *x, const float *w, double least) {
    sums sum = {0};
    for (int64_t k = 0; k < s->k; k++) {
        const double wk = (double)w[k], size = fabs(wk);
        sum.plain += (double)x->row[k] * wk, sum.rounded += x->x[k] * rounded_w(x->as, w[k]);
        sum.size += fabs(x->x[k]) * (size > least ? size : least);
        sum.off += x->moved[k] * size;
        if (s->kind != PLAIN) sum.lost += 0x1p-126 * (size + (s->left_out > 0 ? fabs(x->x[k]) : 0));
    }
    return sum;
}

/* A row of the results of matrix i; least: cancelling(s, i). */
static void compare_row(const subject *s, const seen *x, int64_t row, int i, double least,
                        const float *y, const char *what) {
    const double part = 2 * sqrt((double)s->k + 1) * ldexp(1, -24) + s->left_out;
    for (int64_t n = 0; n < s->n[i]; n++) {
        const sums sum = sum_products(s, x, s->w[i] + n * s->k, least);
        const double y_at = (double)y[n];
        cr_assert(fabs(y_at - sum.rounded) <= part * sum.size + sum.lost,
                  "%s N=%ld K=%ld: [%ld, %ld] is %.9g, not %.9g", what, (long)s->n[i], (long)s->k,
                  (long)row, (long)n, y_at, sum.rounded);
        cr_assert(fabs(y_at - sum.plain) <= part * sum.size + sum.off + sum.lost,
                  "%s N=%ld K=%ld: [%ld, %ld] is %.9g, too far from %.9g", what, (long)s->n[i],
                  (long)s->k, (long)row, (long)n, y_at, sum.plain);
    }
}

/* After a call of t tokens, at the level that s was compiled for. */
static void compare(const subject *s, const float *x, float *const *y, int64_t t,
                    const char *what) {
    const seen_as as = seen_by(s->level, s->b.exact, s->dtype, s->layout, t);
    const char *call = hd_printf(s->b.arena, "%s T=%ld", what, (long)t);
    const double least[2] = {cancelling(s, 0), cancelling(s, 1)};
    for (int64_t row = 0; row < t; row++) {
        seen of_x;
        see_row(s, as, x + row * s->k, &of_x);
        for (int i = 0; i < 2; i++)
            compare_row(s, &of_x, row, i, least[i], y[i] + row * s->n[i], call);
    }
}

/* One call of t tokens; every operand ends at a page that may not be touched. */
static void check_call(subject *s, const compiled *c, int64_t t, int threads, const char *what) {
    float *x = random_floats(&s->seed, (size_t)(t * s->k)), *y[2];
    harden(s, x, t * s->k, true);
    for (int i = 0; i < 2; i++) {
        y[i] = guarded((size_t)(t * s->n[i]) * 4);
        memset(y[i], 0xff, (size_t)(t * s->n[i]) * 4);
    }
    run_shared(s, c, (void *[]){x, s->panels[0], s->panels[1], y[0], y[1]}, t, threads);
    compare(s, x, y, t, what);
    guarded_free(x), guarded_free(y[0]), guarded_free(y[1]);
}

/* Of S: products of parts that a back end leaves out. */
static double left_out(const hcg_backend_row *c) {
    if (strcmp(c->backend->name, "amx_f32") == 0) return ldexp(2.01, -24);
    if (strcmp(c->backend->name, "amx_f16") == 0) return ldexp(1.01, -24);
    return 0;
}

/* ---- every back end -------------------------------------------------------------------------- */
static void check_shape(const hcg_level *level, unsigned exact, hir_dtype dtype, hir_layout layout,
                        uint64_t seed) {
    static const int64_t ks[] = {1, 3, 31, 32, 33, 64, 95};
    subject s = {.seed = (seed + 31 * (uint64_t)dtype) * 2654435761u + 1};
    for (int i = 0; i < 8; i++)
        random_bits(&s.seed);
    s.dtype = dtype, s.layout = layout;
    s.k = seed % 3 ? 1 + random_below(&s.seed, MOST_K) : ks[random_below(&s.seed, 7)];
    if (layout == HIR_LAYOUT_NARROW) s.k += s.k % 2;
    s.n[0] = 1 + random_below(&s.seed, seed % 2 ? MOST_N : 40);
    s.n[1] = 1 + random_below(&s.seed, 60);
    build(&s);
    s.b.exact = exact;
    s.level = level, s.rounds = rounds_of(level, exact, dtype, layout);
    for (int one = 0; one < 2; one++) {
        const unsigned tokens = one ? HCG_FOR_DECODE : HCG_FOR_PREFILL;
        const hcg_backend_row *row = hcg_choose_backend(level, exact, dtype, layout, tokens);
        s.left_out = left_out(row);
        char what[96];
        snprintf(what, sizeof what, "%s on %s: %s, %s, seed %d", row->backend->name, level->name,
                 hir_dtype_name(dtype), one ? "one" : "many", (int)seed);
        compiled c;
        cr_assert(compile_kernel(&s.b, HIR_KERNEL_CONTRACT, s.kernel, one, level, &c), "%s: %s",
                  what, bench_errors(&s.b));
        for (int i = 0; i < (one ? 1 : CALLS); i++)
            check_call(&s, &c, one ? 1 : 1 + random_below(&s.seed, MOST_T),
                       1 + (int)random_below(&s.seed, 40), what);
        compiled_free(&c);
    }
    discard(&s);
}

/* With everything rounded that may be, and again with nothing, where that is another back end. */
static void check_matrix(const hcg_level *level, hir_dtype dtype, hir_layout layout) {
    const hcg_backend_row *fast = hcg_choose_backend(level, 0, dtype, layout, HCG_FOR_PREFILL);
    const hcg_backend_row *exact =
        hcg_choose_backend(level, HCG_ROUND_ALL, dtype, layout, HCG_FOR_PREFILL);
    static unsigned turn; /* shapes take turns with levels and layouts */
    for (uint64_t seed = 0; seed < SHAPES && fast; seed++) {
        if (!has_turn(turn++, 2)) continue;
        if (products_run(level, 0, dtype, layout)) check_shape(level, 0, dtype, layout, seed * 7);
        if (exact != fast && products_run(level, HCG_ROUND_ALL, dtype, layout))
            check_shape(level, HCG_ROUND_ALL, dtype, layout, seed * 7 + 1);
    }
}

static void check_levels(hir_dtype dtype) {
    const hcg_level *levels;
    size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++)
        for (int layout = 0; layout < HIR_LAYOUTS && level_runs(&levels[i]); layout++)
            check_matrix(&levels[i], dtype, (hir_layout)layout);
}

Test(backends, f32) {
    check_levels(HIR_F32);
}

Test(backends, bf16) {
    check_levels(HIR_BF16);
}

Test(backends, f16) {
    check_levels(HIR_F16);
}

Test(backends, q8) {
    check_levels(HIR_Q8);
}

Test(backends, q4) {
    check_levels(HIR_Q4);
}

Test(backends, mxfp4) {
    check_levels(HIR_MXFP4);
}

Test(backends, nvfp4) {
    check_levels(HIR_NVFP4);
}

/* ---- without the unit --------------------------------------------------------------------------
 * The back ends of the matrix unit, their tile instructions emulated, beside the other features of
 * each AVX-512 level that there is. This process must not ask for the unit, so no test of levels
 * runs in it.
 */
#if defined(__x86_64__)
static hcg_level emulated(hcg_level level) {
    static char features[512];
    snprintf(features, sizeof features, "%s amx-tile amx-bf16 amx-int8", level.features);
    level.features = features, level.name = "emulated";
    level.machine.matrix_unit = 1600, level.machine.unit_rows = 4;
    return level;
}

static void check_emulated_on(hcg_level level, hir_dtype dtype) {
    static unsigned turn; /* shapes take turns with what is rounded */
    for (unsigned rounds = 0; rounds <= HCG_ROUND_ALL; rounds += HCG_ROUND_ALL)
        if (strstr(hcg_choose_backend(&level, rounds, dtype, HIR_LAYOUT_PANEL, HCG_FOR_PREFILL)
                       ->backend->name,
                   "amx"))
            for (uint64_t seed = 0; seed < SHAPES; seed++)
                if (has_turn(turn++, 2))
                    check_shape(&level, rounds, dtype, HIR_LAYOUT_PANEL, seed * 7 + rounds);
}

/* check(level, dtype) for the best AVX-512 level, in the full set for each, with an emulated unit. */
static void on_emulated(void check(hcg_level level, hir_dtype dtype), hir_dtype dtype) {
    const hcg_level *levels;
    const uint64_t have = hrt_detect(hrt_cpuid_here()).features;
    const size_t n = hcg_levels(&levels);
    cr_assert(amx_emulator_start());
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        const uint64_t need = hcg_level_features(&levels[i]);
        if (levels[i].lanes != 16 || strstr(levels[i].features, "amx") || (need & ~have)) continue;
        if (!any || full_set()) check(emulated(levels[i]), dtype);
        any = true;
    }
    if (!any) cr_skip_test("this CPU has no AVX-512");
    cr_assert_gt(amx_emulator_count(), 0, "nothing was emulated");
}

/* The other way to multiply groups. */
static void check_emulated_bytes(hcg_level level, hir_dtype dtype) {
    level.machine.unit_bytes = 1;
    check_emulated_on(level, dtype);
}

static void check_emulated(hir_dtype dtype) {
    on_emulated(check_emulated_on, dtype);
    if (hir_is_quantised(dtype)) on_emulated(check_emulated_bytes, dtype);
}

Test(backends, emulated_f32) {
    check_emulated(HIR_F32);
}

Test(backends, emulated_bf16) {
    check_emulated(HIR_BF16);
}

Test(backends, emulated_f16) {
    check_emulated(HIR_F16);
}

Test(backends, emulated_q8) {
    check_emulated(HIR_Q8);
}

Test(backends, emulated_q4) {
    check_emulated(HIR_Q4);
}

Test(backends, emulated_mxfp4) {
    check_emulated(HIR_MXFP4);
}

Test(backends, emulated_nvfp4) {
    check_emulated(HIR_NVFP4);
}
#endif

/* Every number of rows around the heights of tiles and blocks of rows. */
static void check_every_number_of_rows(const hcg_level *level, unsigned exact, hir_dtype dtype) {
    subject s = {.seed = 1, .dtype = dtype, .layout = HIR_LAYOUT_PANEL, .k = 37, .n = {49, 16}};
    s.level = level, s.rounds = rounds_of(level, exact, dtype, s.layout);
    build(&s);
    s.b.exact = exact;
    compiled c;
    cr_assert(compile_kernel(&s.b, HIR_KERNEL_CONTRACT, s.kernel, false, level, &c));
    for (int64_t t = 1; t <= 2 * MOST_T; t++)
        if (t < MOST_T || has_turn((uint64_t)t, 3)) check_call(&s, &c, t, 1, level->name);
    static const int64_t blocks[] = {255, 256, 257, 300, 513}; /* the largest block has 256 */
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        check_call(&s, &c, blocks[i], 1, level->name);
    compiled_free(&c);
    discard(&s);
}

Test(backends, every_number_of_rows) {
    const hcg_level *levels;
    size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++) {
        if (!level_runs(&levels[i])) continue;
        check_every_number_of_rows(&levels[i], 0, HIR_F32);
        if (levels[i].lanes < 16) check_every_number_of_rows(&levels[i], 0, HIR_F16);
        if (rounds_of(&levels[i], 0, HIR_BF16, HIR_LAYOUT_PANEL))
            check_every_number_of_rows(&levels[i], 0, HIR_BF16);
        if (hcg_has_feature(&levels[i], "amx-bf16"))
            check_every_number_of_rows(&levels[i], HCG_ROUND_ALL, HIR_BF16);
        if (rounds_of(&levels[i], 0, HIR_Q8, HIR_LAYOUT_PANEL)) {
            check_every_number_of_rows(&levels[i], 0, HIR_Q8);
            check_every_number_of_rows(&levels[i], 0, HIR_MXFP4);
            check_every_number_of_rows(&levels[i], 0, HIR_NVFP4);
        }
    }
}

/* Activations at the ends of f32, which stay f32: an infinity keeps its sign, whatever parts a back
 * end splits it into, NaN stays NaN, the largest number is none of both, and what parts are below
 * 2^-126 moves a sum by less than that times the weights. */
static void check_ends(const hcg_level *level, hir_dtype dtype) {
    enum { ROWS = 5, AT = 17 };
    subject s = {.seed = 5, .dtype = dtype, .layout = HIR_LAYOUT_PANEL, .k = 37, .n = {20, 16}};
    build(&s);
    s.b.exact = HCG_ROUND_ALL;
    compiled c;
    cr_assert(compile_kernel(&s.b, HIR_KERNEL_CONTRACT, s.kernel, false, level, &c));
    float *x = guarded(ROWS * (size_t)s.k * 4), *y[2];
    const float ends[ROWS] = {INFINITY, -INFINITY, NAN, 0x1.fffffep127f, 0x1.23456p-120f};
    memset(x, 0, ROWS * (size_t)s.k * 4);
    for (int r = 0; r < ROWS; r++)
        x[r * s.k + AT] = ends[r];
    for (int i = 0; i < 2; i++)
        y[i] = guarded(ROWS * (size_t)s.n[i] * 4);
    run_shared(&s, &c, (void *[]){x, s.panels[0], s.panels[1], y[0], y[1]}, ROWS, 1);
    for (int64_t n = 0; n < s.n[0]; n++) {
        const double w = (double)s.w[0][n * s.k + AT];
        cr_assert_eq(y[0][0 * s.n[0] + n], w > 0 ? INFINITY : -INFINITY, "%s", level->name);
        cr_assert_eq(y[0][1 * s.n[0] + n], w > 0 ? -INFINITY : INFINITY, "%s", level->name);
        cr_assert(isnan(y[0][2 * s.n[0] + n]), "%s", level->name);
        for (int r = 3; r < ROWS; r++) {
            const double expected = (double)ends[r] * w;
            cr_assert_float_eq((double)y[0][r * s.n[0] + n], expected,
                               fabs(expected) * 0x1p-22 + 0x1p-125, "%s", level->name);
        }
    }
    guarded_free(x), guarded_free(y[0]), guarded_free(y[1]);
    compiled_free(&c);
    discard(&s);
}

#if defined(__x86_64__)
static void check_emulated_ends(hcg_level level, hir_dtype dtype) {
    level.machine.unit_rows = 1; /* so that the unit multiplies few tokens, too */
    check_ends(&level, dtype);
}

Test(backends, numbers_at_the_ends_emulated_f32) {
    on_emulated(check_emulated_ends, HIR_F32);
}

Test(backends, numbers_at_the_ends_emulated_f16) {
    on_emulated(check_emulated_ends, HIR_F16);
}

Test(backends, numbers_at_the_ends_emulated_bf16) {
    on_emulated(check_emulated_ends, HIR_BF16);
}

/* Around the heights of tiles, slabs and blocks; bytes of weights in groups are rounded. */
static void check_emulated_rows(hcg_level level, hir_dtype dtype) {
    static const int64_t rows[] = {1, 15, 16, 17, 31, 32, 33, 48, 255, 256, 257, 513};
    subject s = {.seed = 9, .dtype = dtype, .layout = HIR_LAYOUT_PANEL, .k = 321, .n = {49, 16}};
    const unsigned exact = hir_is_quantised(dtype) ? 0 : HCG_ROUND_ALL;
    const hcg_backend_row *row =
        hcg_choose_backend(&level, exact, dtype, s.layout, HCG_FOR_PREFILL);
    if (!strstr(row->backend->name, "amx")) return; /* a level without byte products */
    build(&s);
    s.level = &level, s.b.exact = exact, s.left_out = left_out(row);
    s.rounds = rounds_of(&level, exact, dtype, s.layout);
    compiled c;
    cr_assert(compile_kernel(&s.b, HIR_KERNEL_CONTRACT, s.kernel, false, &level, &c));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_call(&s, &c, rows[i], 1, level.name);
    compiled_free(&c);
    discard(&s);
}

Test(backends, numbers_of_rows_emulated_f16) {
    on_emulated(check_emulated_rows, HIR_F16);
}

Test(backends, numbers_of_rows_emulated_f32) {
    on_emulated(check_emulated_rows, HIR_F32);
}

static void check_emulated_rows_of_bytes(hcg_level level, hir_dtype dtype) {
    level.machine.unit_bytes = 1;
    check_emulated_rows(level, dtype);
}

Test(backends, numbers_of_rows_emulated_q8) {
    on_emulated(check_emulated_rows, HIR_Q8);
    on_emulated(check_emulated_rows_of_bytes, HIR_Q8);
}

Test(backends, numbers_of_rows_emulated_q4) {
    on_emulated(check_emulated_rows, HIR_Q4);
    on_emulated(check_emulated_rows_of_bytes, HIR_Q4);
}

/* Sums of parts, of numbers that are hard for them. */
static void check_hard(hcg_level level, hir_dtype dtype) {
    for (int kind = CANCELLING; kind <= SMALL_W; kind++) {
        if (kind == SMALL_W && dtype != HIR_F32) continue; /* bf16 weights have no parts, */
        if (kind == WIDE && dtype == HIR_F16) continue;    /* f16 not so many powers of two */
        subject s = {.seed = 77, .dtype = dtype, .layout = HIR_LAYOUT_PANEL, .k = 96};
        s.n[0] = 40, s.n[1] = 16, s.kind = (hard)kind, s.level = &level;
        s.left_out =
            left_out(hcg_choose_backend(&level, HCG_ROUND_ALL, dtype, s.layout, HCG_FOR_PREFILL));
        build(&s);
        s.b.exact = HCG_ROUND_ALL;
        compiled c;
        cr_assert(compile_kernel(&s.b, HIR_KERNEL_CONTRACT, s.kernel, false, &level, &c));
        for (int i = 0; i < 4; i++)
            check_call(&s, &c, 40, 1, hd_printf(s.b.arena, "%s, kind %d", level.name, kind));
        compiled_free(&c);
        discard(&s);
    }
}

Test(backends, hard_numbers_emulated_f32) {
    on_emulated(check_hard, HIR_F32);
}

Test(backends, hard_numbers_emulated_f16) {
    on_emulated(check_hard, HIR_F16);
}

Test(backends, hard_numbers_emulated_bf16) {
    on_emulated(check_hard, HIR_BF16);
}
#endif

Test(backends, numbers_at_the_ends) {
    const hcg_level *levels;
    const size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++) {
        if (!level_runs(&levels[i])) continue;
        check_ends(&levels[i], HIR_F32);
        check_ends(&levels[i], HIR_BF16);
    }
}

/* ---- dynamic scheduling ---------------------------------------------------------------------- */
/* A step of `threads` threads that are offered all of it and called for their shares, at once or,
 * alone, only the last one. queues: the items that were taken of each. */
static void run_offered(const subject *s, const compiled *c, void *const *args, int64_t t,
                        int threads, bool alone, hrt_counter *queues) {
    const int64_t columns = hcg_columns(s->b.m, s->kernel);
    const hrt_grid g = hrt_cut(t, columns, threads);
    const int cells = g.rows * g.cols;
    const size_t scratch = (c->scratch + 63) / 64 * 64;
    char *all = guarded(scratch * (size_t)cells);
    memset(all, 0xff, scratch * (size_t)cells);
    memset(queues, 0, sizeof *queues * HRT_QUEUES);
#pragma omp parallel for num_threads(cells) schedule(static, 1)
    for (int n = alone ? cells - 1 : 0; n < cells; n++) {
        const int i = n / g.cols, j = n % g.cols;
        const hrt_dynamic dynamic = {queues, 0, t, columns, cells, n};
        const hrt_frame frame = {
            .T = t, .C = t, .cap = t, .scratch = all + scratch * (size_t)n, .dynamic = &dynamic};
        c->call(&frame, args, t * i / g.rows, t * (i + 1) / g.rows, columns * j / g.cols,
                columns * (j + 1) / g.cols);
    }
    guarded_free(all);
}

static int queues_in_use(const hrt_counter *queues) {
    int n = 0;
    for (int i = 0; i < HRT_QUEUES; i++)
        n += queues[i].next > 0;
    return n;
}

/* The same bits as alone. Many items for few threads are scheduled dynamically, in `queues` queues
 * at most; few for many are not (0). One thread by itself does all of them. */
static void check_offered(hcg_level level, hir_dtype dtype) {
    enum { MOST = 600 };
    subject s = {.seed = 3, .dtype = dtype, .layout = HIR_LAYOUT_PANEL, .k = 37, .n = {1500, 700}};
    const bool by_vectors = !hcg_has_feature(&level, "amx-tile"); /* else items are larger */
    if (!by_vectors) s.n[0] = 2900;
    build(&s);
    compiled c;
    cr_assert(compile_kernel(&s.b, HIR_KERNEL_CONTRACT, s.kernel, false, &level, &c));
    float *x = random_floats(&s.seed, (size_t)(MOST * s.k)), *y[2][2];
    for (int i = 0; i < 4; i++)
        y[i / 2][i % 2] = guarded((size_t)(MOST * s.n[i % 2]) * 4);
    static const struct {
        int64_t t;
        int threads, queues;
        bool alone;
    } calls[] = {{MOST, 2, 2, false}, {MOST, 4, 4, false}, {513, 3, 3, false},   {MOST, 3, 3, true},
                 {40, 2, 1, false},   {40, 2, 1, true},    {MOST, 63, 0, false}, {5, 2, 0, false}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        const int64_t t = calls[i].t;
        for (int k = 0; k < 4; k++)
            memset(y[k / 2][k % 2], 0xff, (size_t)(t * s.n[k % 2]) * 4);
        run_shared(&s, &c, (void *[]){x, s.panels[0], s.panels[1], y[0][0], y[0][1]}, t, 1);
        hrt_counter queues[HRT_QUEUES];
        run_offered(&s, &c, (void *[]){x, s.panels[0], s.panels[1], y[1][0], y[1][1]}, t,
                    calls[i].threads, calls[i].alone, queues);
        const int n = queues_in_use(queues);
        cr_expect(by_vectors ? n == calls[i].queues : n <= calls[i].queues,
                  "%s, %s, T=%d, %d threads: %d queues", level.name, hir_dtype_name(dtype), (int)t,
                  calls[i].threads, n);
        if (calls[i].alone && n == 0) continue; /* a share, not all of it */
        for (int k = 0; k < 2; k++)
            cr_expect_eq(memcmp(y[0][k], y[1][k], (size_t)(t * s.n[k]) * 4), 0,
                         "%s, %s, T=%d, %d threads", level.name, hir_dtype_name(dtype), (int)t,
                         calls[i].threads);
    }
    for (int i = 0; i < 4; i++)
        guarded_free(y[i / 2][i % 2]);
    guarded_free(x);
    compiled_free(&c);
    discard(&s);
}

Test(backends, dynamic) {
    const hcg_level *levels;
    const size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++)
        for (int dtype = 0; dtype < HIR_DTYPE_COUNT; dtype++)
            if (has_turn(i + (unsigned)dtype, 2) &&
                products_run(&levels[i], 0, (hir_dtype)dtype, HIR_LAYOUT_PANEL) &&
                hcg_choose_backend(&levels[i], 0, (hir_dtype)dtype, HIR_LAYOUT_PANEL,
                                   HCG_FOR_PREFILL))
                check_offered(levels[i], (hir_dtype)dtype);
}

/* ---- the table ------------------------------------------------------------------------------- */
static const hcg_level *level_of(const char *name) {
    const hcg_level *levels;
    size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++)
        if (strcmp(levels[i].name, name) == 0) return &levels[i];
    cr_assert_fail("no level %s", name);
    return NULL;
}

static const char *chosen(const char *level, unsigned exact, hir_dtype dtype) {
    const hcg_backend_row *c =
        hcg_choose_backend(level_of(level), exact, dtype, HIR_LAYOUT_PANEL, HCG_FOR_PREFILL);
    return c ? c->backend->name : "none";
}

/* Which level uses which, written a second time: f32, bf16 and q8, all that may be rounded. */
Test(backends, of_each_level) {
    static const char *const want[][4] = {
        {"amx", "amx_f32", "amx_rounded", "amx_groups"},
        {"avx512bf16", "multiply_add", "bf16_dots", "int8_vnni_512"},
        {"avx512vnni", "multiply_add", "pairs_as_f32", "int8_vnni_512"},
        {"avx512", "multiply_add", "pairs_as_f32", "int8_maddubs_512"},
        {"avxvnni", "multiply_add", "pairs_as_f32", "int8_vnni_256"},
        {"avx2", "multiply_add", "pairs_as_f32", "int8_maddubs_256"},
        {"baseline", "multiply_add", "pairs_as_f32", "groups_as_f32"},
        {"neonbf16", "multiply_add", "bfmmla", "int8_sdot"},
        {"dotprod", "multiply_add", "pairs_as_f32", "int8_sdot"},
        {"neon", "multiply_add", "pairs_as_f32", "groups_as_f32"},
    };
    const hcg_level *levels;
    cr_assert_eq(hcg_levels(&levels), sizeof want / sizeof *want, "a level is missing here");
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        cr_expect_str_eq(chosen(want[i][0], 0, HIR_F32), want[i][1], "%s", want[i][0]);
        cr_expect_str_eq(chosen(want[i][0], 0, HIR_F16), i ? "multiply_add" : "amx_f16");
        cr_expect_str_eq(chosen(want[i][0], 0, HIR_BF16), want[i][2], "%s", want[i][0]);
        cr_expect_str_eq(chosen(want[i][0], 0, HIR_Q8), want[i][3], "%s", want[i][0]);
        cr_expect_str_eq(chosen(want[i][0], 0, HIR_Q4), want[i][3], "%s", want[i][0]);
        cr_expect_str_eq(chosen(want[i][0], 0, HIR_MXFP4), want[i][3], "%s", want[i][0]);
        cr_expect_str_eq(chosen(want[i][0], 0, HIR_NVFP4), want[i][3], "%s", want[i][0]);
        cr_expect_str_eq(chosen(want[i][0], HCG_ROUND_INT8, HIR_Q8), "groups_as_f32");
        cr_expect_str_eq(chosen(want[i][0], HCG_ROUND_BF16, HIR_BF16),
                         i ? "pairs_as_f32" : "amx_exact");
        cr_expect_str_eq(chosen(want[i][0], HCG_ROUND_BF16, HIR_Q8), want[i][3]);
        cr_expect_str_eq(chosen(want[i][0], HCG_ROUND_ALL, HIR_MXFP4),
                         i ? "groups_as_f32" : "amx_exact");
        cr_expect_str_eq(chosen(want[i][0], HCG_ROUND_ALL, HIR_NVFP4),
                         i ? "groups_as_f32" : "amx_exact");
        cr_expect_str_eq(chosen(want[i][0], 0, HIR_I32), "none");
    }
    cr_expect_null(hcg_choose_backend(&levels[0], 0, HIR_BF16, HIR_LAYOUT_NARROW, HCG_FOR_DECODE));
    cr_expect_null(hcg_choose_backend(&levels[0], 0, HIR_F32, HIR_LAYOUT_ROWS, HCG_FOR_DECODE));
}

static bool uses(const hcg_level *level, const hcg_backend_row *row) {
    bool used = false;
    for (unsigned exact = 0; exact <= HCG_ROUND_ALL; exact++)
        for (int d = 0; d < HIR_DTYPE_COUNT; d++)
            for (int l = 0; l < HIR_LAYOUTS; l++)
                for (unsigned t = HCG_FOR_DECODE; t <= HCG_FOR_PREFILL; t++)
                    used |= hcg_choose_backend(level, exact, (hir_dtype)d, (hir_layout)l, t) == row;
    return used;
}

/* Every row is the first that fits somewhere: a level of the table multiplies some matrix by it, as
 * it is or where the machine is said to be better at bytes. */
Test(backends, no_row_is_out_of_reach) {
    const hcg_backend_row *rows;
    const hcg_level *levels;
    const size_t n = hcg_backend_rows(&rows), n_levels = hcg_levels(&levels);
    for (size_t row = 0; row < n; row++) {
        bool used = false;
        for (size_t i = 0; i < n_levels; i++) {
            hcg_level level = levels[i];
            used |= uses(&level, &rows[row]);
            level.machine.unit_bytes = 1;
            used |= uses(&level, &rows[row]);
        }
        cr_expect(used, "no level uses row %zu, %s", row, rows[row].backend->name);
    }
}

static const char *levels_with(uint32_t matrices, unsigned exact, hd_machine machine) {
    static char list[128];
    hd_arena *a = hd_arena_new();
    hd_diags d;
    hd_diags_init(&d, a);
    hcg_options o = {.triple = "x86_64-linux-gnu", .exact = exact, .machine = machine};
    o.matrices = matrices | hcg_matrix(HIR_F32, HIR_LAYOUT_PANEL);
    hcg_target t;
    cr_assert(hcg_find_target(&o, a, &d, &t));
    *list = 0;
    for (size_t i = 0; i < t.variants.n; i++) {
        if (i) strcat(list, " ");
        strcat(list, t.variants.at[i].level.name);
    }
    hd_arena_free(a);
    return list;
}

/* With matrices of f32 beside those of `dtype`. */
static const char *levels_in_library(hir_dtype dtype, unsigned exact, hd_machine machine) {
    return levels_with(hcg_matrix(dtype, HIR_LAYOUT_PANEL), exact, machine);
}

/* Levels that multiply nothing of the library in a way of their own are left out. */
Test(backends, levels_in_a_library) {
    const hd_machine any = {0};
    cr_expect_str_eq(levels_in_library(HIR_F32, 0, any), "amx avx512 avx2 baseline");
    cr_expect_str_eq(levels_in_library(HIR_F16, 0, any), "amx avx512 avx2 baseline");
    cr_expect_str_eq(levels_in_library(HIR_Q4, 0, any),
                     "amx avx512vnni avx512 avxvnni avx2 baseline");
    cr_expect_str_eq(levels_in_library(HIR_Q8, HCG_ROUND_ALL, any), "amx avx512 avx2 baseline");
    cr_expect_str_eq(levels_in_library(HIR_BF16, 0, any), "amx avx512bf16 avx512 avx2 baseline");
    cr_expect_str_eq(levels_in_library(HIR_BF16, hcg_exact_by_default(), any),
                     "amx avx512 avx2 baseline");
    const uint32_t cached = hcg_matrix(HIR_BF16, HIR_LAYOUT_ROWS);
    cr_expect_str_eq(levels_with(cached, 0, any), "amx avx512bf16 avx512 avx2 baseline");
    cr_expect_str_eq(levels_with(cached, hcg_exact_by_default(), any), "amx avx512 avx2 baseline");
    const hd_machine slow_dots = {.bf16_dots = 149};
    cr_expect_str_eq(levels_with(cached, 0, slow_dots), "amx avx512 avx2 baseline");
}

/* What the rates of a machine decide: six products in the place of one, and dot products that round
 * x for nothing. */
Test(backends, rates_of_the_machine) {
    const hd_machine slow_unit = {.matrix_unit = 899}, fast_unit = {.matrix_unit = 900};
    const hd_machine slow_dots = {.bf16_dots = 149};
    cr_expect_str_eq(levels_in_library(HIR_F32, 0, slow_unit), "avx512 avx2 baseline");
    cr_expect_str_eq(levels_in_library(HIR_F32, 0, fast_unit), "amx avx512 avx2 baseline");
    cr_expect_str_eq(levels_in_library(HIR_BF16, 0, slow_dots), "amx avx512 avx2 baseline");
    hcg_level bf16 = *level_of("avx512bf16"), amx = *level_of("amx");
    for (unsigned tokens = HCG_FOR_DECODE; tokens <= HCG_FOR_PREFILL; tokens++) {
        bf16.machine.bf16_dots = 150;
        cr_expect_str_eq(
            hcg_choose_backend(&bf16, 0, HIR_BF16, HIR_LAYOUT_PANEL, tokens)->backend->name,
            "bf16_dots");
        bf16.machine.bf16_dots = 149;
        cr_expect_str_eq(
            hcg_choose_backend(&bf16, 0, HIR_BF16, HIR_LAYOUT_PANEL, tokens)->backend->name,
            "pairs_as_f32");
    }
    /* beside the unit, which rounds x, dot products do so too, however slow they are */
    amx.machine.bf16_dots = 100;
    cr_expect_eq(rounds_of(&amx, 0, HIR_BF16, HIR_LAYOUT_PANEL), HCG_ROUND_BF16);
}

/* --activations, as text. */
Test(backends, activations) {
    static const struct {
        const char *text;
        unsigned exact;
    } good[] = {{"f32", HCG_ROUND_ALL},
                {"int8", HCG_ROUND_BF16},
                {"bf16", HCG_ROUND_INT8},
                {"int8,bf16", 0},
                {"bf16,int8", 0}};
    static const char *const bad[] = {"",     "int8,", ",int8", "f32,int8",  "int8,f32",
                                      "int4", "int",   "INT8",  "int8 bf16", "f32,"};
    unsigned exact;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        cr_expect(hcg_read_activations(good[i].text, &exact), "%s", good[i].text);
        cr_expect_eq(exact, good[i].exact, "%s", good[i].text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_expect_not(hcg_read_activations(bad[i], &exact), "\"%s\"", bad[i]);
    cr_expect_eq(hcg_exact_by_default(), HCG_ROUND_BF16);
}

/* --matmul-dtype bf16 is for levels that gain by it: a library of gradients has no others. */
Test(backends, levels_of_bf16_gradients) {
    const hd_machine machines[] = {{0}, {.bf16_dots = 149}};
    static const char *const want[] = {"amx avx512bf16", "amx"};
    for (int i = 0; i < 2; i++) {
        hd_arena *a = hd_arena_new();
        hd_diags d;
        hd_diags_init(&d, a);
        hcg_options o = {.triple = "x86_64-linux-gnu",
                         .exact = hcg_exact_by_default(),
                         .compile.matmul_dtype = HIR_BF16,
                         .matrices = hcg_matrix(HIR_BF16, HIR_LAYOUT_PANEL)};
        hcg_target t;
        hd_text names;
        hd_text_init(&names, a);
        o.machine = machines[i];
        cr_assert(hcg_find_target(&o, a, &d, &t));
        for (size_t k = 0; k < t.variants.n; k++)
            hd_text_f(&names, "%s%s", k ? " " : "", t.variants.at[k].level.name);
        cr_expect_str_eq(names.at, want[i]);
        o.cpu = "avx512vnni";
        cr_expect_not(hcg_find_target(&o, a, &d, &t));
        cr_expect(strstr(d.list.at[0].message, "--matmul-dtype bf16 is not for avx512vnni"));
        hd_arena_free(a);
    }
    const hcg_level *levels;
    const size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++)
        if (strcmp(levels[i].name, "neonbf16") == 0) cr_expect(hcg_multiplies_bf16(&levels[i]));
}
