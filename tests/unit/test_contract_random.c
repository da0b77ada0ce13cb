/* Contraction kernels of random shapes at every CPU level, with every way to store weights, cut
 * among random numbers of threads by rows and columns, against sums in double.
 *
 * Bound: with u = 2^-24, a sum of K products makes at most K + 1 rounding errors, each at most u
 * times a partial sum, which is at most S = sum_k |x_k w_k|. They have random signs, so that 2
 * sqrt(K + 1) u S holds with room; one lost or doubled product of the K is about S / K, a hundred
 * times as much.
 *
 * Where x is rounded to bf16 (contract/pairs.h) this holds for the rounded x, as products of bf16
 * are exact and an instruction rounds at most once for each of its two; and against x itself the
 * sum is off by at most 2^-8 S more. */
#include <criterion/criterion.h>
#include <criterion/theories.h>
#include <math.h>

#include "codegen/contract/pairs.h"
#include "runtime/grid.h"
#include "tests/unit/emit_harness.h"

enum { MOST_T = 70, MOST_N = 200, MOST_K = 600, ROUNDS = 4 };

typedef struct subject { /* y = x w^T, and the sum of a second one, as columns of their own */
    bench b;
    uint64_t seed;
    hir_id kernel;
    int64_t k, n[2];
    bool rounds_x; /* to bf16 */
    float *w[2];   /* values as stored */
    void *panels[2];
} subject;

static void build(subject *s, hir_dtype dtype) {
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
        hir_type type = hir_make_type(dtype, 2, (int64_t[]){s->n[i], s->k});
        uint32_t w = hir_add_weight(m, i ? "w1" : "w0", type, HD_NOWHERE);
        const hir_layout layout = random_layout(&s->seed, s->k, dtype);
        m->weights.at[w].layout = layout;
        s->w[i] = random_floats(&s->seed, (size_t)(s->n[i] * s->k));
        s->panels[i] = pack_matrix(s->w[i], s->n[i], s->k, dtype, layout);
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

/* Each sum is within `part` of S of that over x. */
static void compare(const subject *s, const float *x, float *const *y, int64_t t, double part,
                    const char *what) {
    for (int i = 0; i < 2; i++)
        for (int64_t at = 0; at < t * s->n[i]; at++) {
            const float *row = x + at / s->n[i] * s->k, *w = s->w[i] + at % s->n[i] * s->k;
            double sum = 0, size = 0;
            for (int64_t k = 0; k < s->k; k++) {
                sum += (double)row[k] * w[k];
                size += fabs((double)row[k] * w[k]);
            }
            cr_assert(fabs(y[i][at] - sum) <= part * size,
                      "%s T=%ld N=%ld K=%ld: [%ld, %ld] is %.9g, not %.9g", what, (long)t,
                      (long)s->n[i], (long)s->k, (long)(at / s->n[i]), (long)(at % s->n[i]),
                      (double)y[i][at], sum);
        }
}

/* One call of t tokens; every operand ends at a page that may not be touched. */
static void check_call(subject *s, const compiled *c, int64_t t, int threads, const char *what) {
    float *x = random_floats(&s->seed, (size_t)(t * s->k)), *y[2];
    for (int i = 0; i < 2; i++) {
        y[i] = guarded((size_t)(t * s->n[i]) * 4);
        memset(y[i], 0xff, (size_t)(t * s->n[i]) * 4);
    }
    run_shared(s, c, (void *[]){x, s->panels[0], s->panels[1], y[0], y[1]}, t, threads);
    const double u = ldexp(1, -24), part = 2 * sqrt((double)s->k + 1) * u;
    if (s->rounds_x) {
        compare(s, x, y, t, ldexp(1, -8) + part, what);
        for (int64_t i = 0; i < t * s->k; i++)
            x[i] = hd_bf16_to_f32(hd_bf16_from_f32(x[i]));
    }
    compare(s, x, y, t, part, what);
    guarded_free(x), guarded_free(y[0]), guarded_free(y[1]);
}

static void check_level(const hcg_level *level, hir_dtype dtype, uint64_t seed) {
    subject s = {.seed = seed * 2654435761u + 1};
    for (int i = 0; i < 8; i++)
        random_bits(&s.seed);
    s.k = 1 + random_below(&s.seed, seed % 3 ? MOST_K : 20);
    s.n[0] = 1 + random_below(&s.seed, seed % 2 ? MOST_N : 40);
    s.n[1] = 1 + random_below(&s.seed, 60);
    build(&s, dtype);
    s.b.exact = seed % 5 ? 0 : HCG_DOTS;
    s.rounds_x = dtype == HIR_BF16 && hcg_has_feature(level, "avx512bf16") && !s.b.exact;
    char what[64];
    snprintf(what, sizeof what, "%s %s%s", level->name, hir_dtype_name(dtype),
             s.rounds_x ? " x too" : "");
    for (int one = 0; one < 2; one++) {
        compiled c;
        bool ok = compile_kernel(&s.b, HIR_KERNEL_CONTRACT, s.kernel, one, level, &c);
        cr_assert(ok, "%s: %s", what, bench_errors(&s.b));
        for (int round = 0; round < (one ? 1 : ROUNDS); round++)
            check_call(&s, &c, one ? 1 : 1 + random_below(&s.seed, MOST_T),
                       1 + (int)random_below(&s.seed, 40), what);
        compiled_free(&c);
    }
    discard(&s);
}

TheoryDataPoints(contract, random_shapes) = {
    DataPoints(uint64_t, 1, 2, 3, 4, 5, 6),
    DataPoints(int, HIR_F32, HIR_BF16, HIR_F16),
};

Theory((uint64_t seed, int dtype), contract, random_shapes) {
    const hcg_level *levels;
    size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++)
        if (level_runs(&levels[i])) check_level(&levels[i], (hir_dtype)dtype, seed * 7 + i);
}

/* Every number of rows around the heights of tiles and blocks of rows. */
Test(contract, every_number_of_rows) {
    const hcg_level *levels;
    size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++) {
        if (!level_runs(&levels[i])) continue;
        subject s = {.seed = i + 1, .k = 37, .n = {49, 16}};
        s.rounds_x = hcg_has_feature(&levels[i], "avx512bf16");
        build(&s, s.rounds_x ? HIR_BF16 : HIR_F32);
        compiled c;
        cr_assert(compile_kernel(&s.b, HIR_KERNEL_CONTRACT, s.kernel, false, &levels[i], &c));
        for (int64_t t = 1; t <= 2 * MOST_T; t++)
            check_call(&s, &c, t, 1, levels[i].name);
        compiled_free(&c);
        discard(&s);
    }
}
