/* Block contractions against double loops: groups whose outputs fill panels and do not, K odd and
 * even, weights of every float type, at every CPU level of this machine, columns and rows divided
 * at random. The function for one token is called once for each row. */
#include <criterion/criterion.h>
#include <math.h>

#include "tests/unit/codegen/attention/sequence_harness.h"

typedef struct shape {
    int64_t t, groups, n, k;
    hir_dtype dtype;
    bool flat; /* x and y are [T, G K] and [T, G N] outside of the kernel */
} shape;

typedef struct problem {
    bench b;
    shape s;
    uint64_t seed;
    hir_id kernel;
    float *x, *w;
    void *packed;
} problem;

static void build_kernel(problem *p) {
    const shape *s = &p->s;
    int64_t wide[] = {HIR_T, s->groups, s->k}, flat[] = {HIR_T, s->groups * s->k};
    int64_t out[] = {HIR_T, s->groups, s->n}, out_flat[] = {HIR_T, s->groups * s->n};
    hir_type tx = hir_make_type(HIR_F32, s->flat ? 2 : 3, s->flat ? flat : wide);
    hir_type ty = hir_make_type(HIR_F32, s->flat ? 2 : 3, s->flat ? out_flat : out);
    hir_ref x = hir_value_ref(hir_add_input(p->b.m, "x", tx));
    uint32_t w = hir_add_weight(
        p->b.m, "w", hir_make_type(s->dtype, 3, (int64_t[]){s->groups, s->n, s->k}), HD_NOWHERE);
    p->b.m->weights.at[w].layout = HIR_LAYOUT_PANEL;
    hir_attr attrs[] = {hir_string(HIR_A_NAME, "blocks0"), hir_string(HIR_A_ROWS, "all"),
                        hir_string(HIR_A_SPLIT_DECODE, "cols"),
                        hir_string(HIR_A_SPLIT_PREFILL, "cols")};
    hir_builder top = hir_at_end(p->b.m, &p->b.diags);
    p->kernel = hir_build_kernel(&top, HIR_KERNEL_BLOCKS_OP, attrs, 4, &ty, 1);
    hir_builder body = hir_in_body(p->b.m, &p->b.diags, p->kernel);
    hir_attr cut = hir_ints(HIR_A_SHAPE, wide, 3), joined = hir_ints(HIR_A_SHAPE, out_flat, 2);
    if (s->flat) x = hir_emit(&body, HIR_RESHAPE_OP, &x, 1, &cut, 1);
    hir_ref y = hir_emit2(&body, HIR_BLOCK_LINEAR_OP, x, hir_weight_ref(w));
    if (s->flat) y = hir_emit(&body, HIR_RESHAPE_OP, &y, 1, &joined, 1);
    hir_build(&body, HIR_YIELD_OP, &y, 1, NULL, 0);
    cr_assert(!hd_diags_failed(&p->b.diags), "%s", bench_errors(&p->b));
}

static void open_problem(problem *p, shape s, uint64_t seed) {
    *p = (problem){.b = bench_new(), .s = s, .seed = seed * 2654435761u + 1};
    bench_start(&p->b);
    p->b.exact = ~0u; /* x stays f32: what is rounded is tested with the back ends */
    build_kernel(p);
    p->x = random_floats(&p->seed, (size_t)(s.t * s.groups * s.k));
    p->w = random_floats(&p->seed, (size_t)(s.groups * s.n * s.k));
    p->packed = pack_blocks(p->w, s.groups, s.n, s.k, s.dtype);
}

static void close_problem(problem *p) {
    guarded_free(p->x), guarded_free(p->w), guarded_free(p->packed);
    bench_free(&p->b);
}

static size_t results(const problem *p) {
    return (size_t)(p->s.t * p->s.groups * p->s.n);
}

/* A sum of K products of size 1 in f32: its rounding errors stay below K 2^-23. */
static void compare(const problem *p, const float *y, const char *what) {
    const shape *s = &p->s;
    for (int64_t t = 0; t < s->t; t++)
        for (int64_t g = 0; g < s->groups; g++)
            for (int64_t n = 0; n < s->n; n++) {
                double sum = 0, got = y[(t * s->groups + g) * s->n + n];
                for (int64_t k = 0; k < s->k; k++)
                    sum += (double)p->x[(t * s->groups + g) * s->k + k] *
                           p->w[(g * s->n + n) * s->k + k];
                cr_assert(fabs(got - sum) <= (double)s->k * 0x1p-23,
                          "%s: [%ld, %ld, %ld] is %.9g, not %.9g (T=%ld G=%ld N=%ld K=%ld %s)",
                          what, t, g, n, got, sum, s->t, s->groups, s->n, s->k,
                          hir_dtype_name(s->dtype));
            }
    check_guard(y, results(p), what);
}

static void call(problem *p, const compiled *c, float *y, int64_t r0, int64_t r1, int64_t c0,
                 int64_t c1) {
    const bool one = c->k.phase == HIR_DECODE;
    for (int64_t t = r0; t < r1; t += one ? 1 : r1 - r0) {
        const int64_t at = one ? t : 0;
        hrt_frame frame = {.T = one ? 1 : p->s.t, .C = p->s.t, .cap = p->s.t};
        void *args[] = {p->x + at * p->s.groups * p->s.k, p->packed, y + at * p->s.groups * p->s.n};
        call_frame(c, frame, args, one ? 0 : r0, one ? 1 : r1, c0, c1);
    }
}

static void call_cut(problem *p, const compiled *c, float *y) {
    const int64_t cols = hcg_columns(p->b.m, p->kernel);
    for (int64_t r0 = 0, r1; r0 < p->s.t; r0 = r1) {
        r1 = r0 + 1 + random_below(&p->seed, p->s.t - r0);
        for (int64_t c0 = 0, c1; c0 < cols; c0 = c1) {
            c1 = c0 + 1 + random_below(&p->seed, cols - c0);
            call(p, c, y, r0, r1, c0, c1);
        }
    }
}

static void check(problem *p, const hcg_level *level, bool decode) {
    compiled c;
    bool ok = compile_kernel(&p->b, HIR_KERNEL_BLOCKS, p->kernel, decode, level, &c);
    cr_assert(ok, "%s: %s", level->name, bench_errors(&p->b));
    char what[64];
    snprintf(what, sizeof what, "%s %s", level->name, decode ? "decode" : "prefill");
    float *y[2];
    for (int i = 0; i < 2; i++) {
        y[i] = new_results(results(p));
        if (i)
            call_cut(p, &c, y[i]);
        else
            call(p, &c, y[i], 0, p->s.t, 0, hcg_columns(p->b.m, p->kernel));
        compare(p, y[i], what);
    }
    cr_assert_eq(memcmp(y[0], y[1], results(p) * 4), 0, "%s: other bits when cut", what);
    guarded_free(y[0]), guarded_free(y[1]);
    compiled_free(&c);
}

static shape random_shape(uint64_t *s) {
    shape out = {.t = 1 + random_below(s, 40), .groups = 1 + random_below(s, 6)};
    out.n = 1 + random_below(s, 90), out.k = 1 + random_below(s, 70);
    if (random_below(s, 2)) out.n = 48, out.k = 64;
    out.dtype = (hir_dtype[]){HIR_F32, HIR_BF16, HIR_F16}[random_below(s, 3)];
    out.flat = random_below(s, 2);
    return out;
}

static void check_level(const char *name) {
    const hcg_level *level = level_named(name);
    uint64_t s = 815;
    for (int round = 0; round < 20; round++) {
        problem p;
        open_problem(&p, random_shape(&s), random_bits(&s));
        for (unsigned decode = 0; decode < 2; decode++)
            if (has_turn((unsigned)round + decode + level->lanes / 8, 2)) check(&p, level, decode);
        close_problem(&p);
    }
}

Test(emit_blocks, avx512bf16) {
    if (full_set()) check_level("avx512bf16"); /* no products of pairs are in these kernels */
}

Test(emit_blocks, avx512) {
    check_level("avx512");
}

Test(emit_blocks, avx2) {
    check_level("avx2");
}

Test(emit_blocks, baseline) {
    check_level("baseline");
}
