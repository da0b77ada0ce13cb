/* The errors that emit/math.c states, measured against libm in double: as vectors and as scalars,
 * at every CPU level of this machine. Samples: bit patterns spread evenly over all floats (so every
 * binade is met), and evenly spaced numbers where the functions bend. */
#include <criterion/criterion.h>

#include "support/codes.h"
#include "tests/unit/codegen/rowwise/row_harness.h"

enum { SPREAD = 1 << 17, DENSE = 1 << 17, SAMPLES = SPREAD + DENSE, ROW = 64 };

typedef struct bound {
    const char *op;
    double (*exact)(double);
    double ulp;      /* error in ulp of the exact result ... */
    double absolute; /* ... or this, where that is larger */
    double from, to; /* dense samples */
} bound;

static double rsqrt_(double x) {
    return 1 / sqrt(x);
}
static double recip_(double x) {
    return 1 / x;
}
static double sigmoid_(double x) {
    return 1 / (1 + exp(-x));
}
static double silu_(double x) {
    return x / (1 + exp(-x));
}
static double gelu_(double x) {
    return 0.5 * x * erfc(-x * 0.70710678118654752440);
}
static double gelu_tanh_(double x) { /* without the cancellation of 1 + tanh */
    double u = 0.79788456080286535588 * (x + 0.044715 * x * x * x);
    return x / (1 + exp(-2 * u));
}
static double relu_(double x) {
    return x < 0 ? 0 : x;
}
static double softplus_(double x) {
    return fmax(x, 0) + log1p(exp(-fabs(x))) + (x - x);
}

/* Codes and powers are exact; what is below 2^-126 may count as 0. */
static double power_above_(double x) {
    return x > 0x1p127 ? INFINITY : hd_power_above(x);
}

/* 1e-38: results of less than 2^-126 may be lost. */
static const bound bounds[] = {
    {"exp", exp, 2, 1e-38, -105, 90},
    {"log", log, 2, 0, 0.25, 4},
    {"tanh", tanh, 3, 1e-38, -10, 10},
    {"sigmoid", sigmoid_, 4, 2e-38, -90, 20},
    {"silu", silu_, 4, 2e-36, -90, 20},
    {"softplus", softplus_, 4, 2e-38, -87, 30},
    {"erf", erf, 4, 1e-38, -5, 5},
    {"gelu", gelu_, 16, 8e-9, -8, 8},
    {"gelu_tanh", gelu_tanh_, 17, 1e-8, -8, 8},
    {"relu", relu_, 0, 0, -1, 1},
    {"sign", hd_sign, 0, 0, -1, 1},
    {"round_e4m3", hd_round_e4m3, 0, 0, -500, 500},
    {"round_e2m1", hd_round_e2m1, 0, 0, -7, 7},
    {"power_above", power_above_, 0, 0, 0, 9},
    {"sqrt", sqrt, 0.51, 1e-38, 0, 4},
    {"rsqrt", rsqrt_, 1.51, 0, 0.1, 4},
    {"recip", recip_, 0.51, 1e-38, -4, 4},
};
enum { N_BOUNDS = sizeof bounds / sizeof bounds[0] };

static float sample(const bound *b, int i) {
    uint32_t bits = (uint32_t)i * (uint32_t)((1ull << 32) / SPREAD) + 77;
    float x;
    memcpy(&x, &bits, 4);
    return i < SPREAD ? x : (float)(b->from + (b->to - b->from) * (i - SPREAD) / DENSE);
}

/* NaN and infinities must be exact; else the error in units of what the bound allows. */
static double excess(const bound *b, float x, float got) {
    double want = b->exact((double)x);
    float rounded = (float)want;
    if (isnan(want)) return isnan(got) ? 0 : INFINITY;
    if (isnan(got)) return INFINITY;
    if (isinf(rounded) || isinf(got)) {
        /* within the bound of overflow, either side may round to infinity */
        return rounded == got || fabs(want) > 3.4028e38 ? 0 : INFINITY;
    }
    int exponent;
    frexp(want, &exponent);
    double ulp = ldexp(1, (exponent < -125 ? -125 : exponent) - 24);
    double allowed = fmax(b->ulp * ulp, b->absolute);
    double error = fabs((double)got - want);
    return error == 0 ? 0 : error / allowed;
}

/* y = op x on rows of ROW elements, or of one (which is computed as a scalar). */
static void measure(const bound *b, const hcg_level *level, int row) {
    bench t = bench_new();
    bench_start(&t);
    t.m = hir_parse(
        t.arena, &t.diags, "test.hir",
        hd_printf(t.arena,
                  "hir 1 kernel @t\narena 0 per token\nfixed 0\n"
                  "func(%%x: f32[T, %d] in input[0]) {\n"
                  "  %%y = kernel.row {name = \"row0\", rows = \"all\", split_decode = \"none\", "
                  "split_prefill = \"rows\"} : f32[T, %d] in output[0] {\n"
                  "    %%z = %s %%x : f32[T, %d]\n    yield %%z\n  }\n"
                  "  output %%y {name = \"y\"}\n}\n",
                  row, row, b->op, row));
    cr_assert(t.m, "%s", bench_errors(&t));
    compiled c;
    cr_assert(compile_kernel(&t, HIR_KERNEL_ROW, t.m->first, false, level, &c), "%s",
              bench_errors(&t));
    float *x = guarded(SAMPLES * 4), *y = guarded(SAMPLES * 4);
    for (int i = 0; i < SAMPLES; i++)
        x[i] = sample(b, i);
    char scratch[4096] __attribute__((aligned(64)));
    hrt_frame frame = {.T = SAMPLES / row, .C = SAMPLES / row, .cap = 1, .scratch = scratch};
    cr_assert_leq(c.scratch, sizeof scratch);
    c.call(&frame, (void *[]){x, y}, 0, frame.T, 0, 1);
    double worst = 0;
    float at = 0, gave = 0;
    for (int i = 0; i < SAMPLES; i++) {
        double d = excess(b, x[i], y[i]);
        if (d > worst) worst = d, at = x[i], gave = y[i];
    }
    if (getenv("MATH_PRINT"))
        fprintf(stderr, "%-9s %-9s row %2d: %.2f of the bound at %.9g\n", b->op, level->name, row,
                worst, (double)at);
    cr_assert(worst <= 1, "%s at %s: %s(%.9g) = %.9g, expected %.9g: %g times the bound", b->op,
              level->name, row > 1 ? "vector" : "scalar", (double)at, (double)gave,
              b->exact((double)at), worst);
    guarded_free(x), guarded_free(y);
    compiled_free(&c);
    bench_free(&t);
}

static void measure_all(int row) {
    const hcg_level *levels;
    for (size_t l = 0, n = hcg_levels(&levels); l < n; l++)
        for (int i = 0; vectors_run(&levels[l]) && i < N_BOUNDS; i++)
            measure(&bounds[i], &levels[l], row);
}

Test(emit_math, vectors) {
    measure_all(ROW);
}
Test(emit_math, scalars) {
    measure_all(1);
}

/* cos and sin of positions up to 2^20 times frequencies from 1 down: rounded to f32 from f64. */
Test(emit_math, sine_and_cosine) {
    enum { LENGTH = 34, TOKENS = 64 };
    const hcg_level *levels;
    for (size_t l = 0, n = hcg_levels(&levels); l < n; l++) {
        if (!vectors_run(&levels[l])) continue;
        bench t = bench_new();
        bench_start(&t);
        t.m = hir_parse(
            t.arena, &t.diags, "test.hir",
            "hir 1 kernel @t\narena 0 per token\nfixed 0\n"
            "func(%x: f32[T] in input[0]) {\n"
            "  %y = kernel.row {name = \"row0\", rows = \"all\", split_decode = \"none\", "
            "split_prefill = \"rows\"} : f32[T, 34] in output[0] {\n"
            "    %z = rope_table {length = 34, theta = 10000} : f32[T, 34]\n    yield %z\n  }\n"
            "  output %y {name = \"y\"}\n}\n");
        cr_assert(t.m, "%s", bench_errors(&t));
        compiled c;
        cr_assert(compile_kernel(&t, HIR_KERNEL_ROW, t.m->first, false, &levels[l], &c), "%s",
                  bench_errors(&t));
        static float y[TOKENS * LENGTH];
        for (int64_t past = 0; past < 1 << 20; past = past * 3 + 1000) {
            hrt_frame frame = {.T = TOKENS, .C = past + TOKENS, .cap = 1};
            c.call(&frame, (void *[]){y}, 0, TOKENS, 0, 1);
            for (int i = 0; i < TOKENS; i++)
                for (int j = 0; j < LENGTH / 2; j++) {
                    double angle = (double)(past + i) * pow(10000, -2.0 * j / LENGTH);
                    double e = fmax(fabs(y[i * LENGTH + j] - cos(angle)),
                                    fabs(y[i * LENGTH + LENGTH / 2 + j] - sin(angle)));
                    cr_assert(e < 1e-7, "%s: position %lld, frequency %d: error %g", levels[l].name,
                              (long long)(past + i), j, e);
                }
        }
        compiled_free(&c);
        bench_free(&t);
    }
}
