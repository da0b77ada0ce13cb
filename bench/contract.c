/* Speed of contraction kernels on one thread, alone: GEMM as a fraction of the FMA peak of an
 * adjacent loop, GEMV in GB/s of weights beside a plain read of the same memory.
 *
 *     contract [LEVEL] [T] [K] [N] [f32|bf16|f16]
 *
 * Without arguments: a table of usual shapes for every level of this machine, with the time LLVM
 * took for the kernel. Weights of T = 1 are 256 MB, so that they come from memory.
 */
#include <time.h>

#include "tests/unit/emit_harness.h"

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- limits ------------------------------------------------------------------------------------
 */

/* Twelve independent chains, written out: compilers keep such an array on the stack. */
#define CHAINS(f) f(2) f(3) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11) f(12) f(13)
#define FMA512(i) "vfmadd231ps %%zmm0, %%zmm1, %%zmm" #i "\n\t"
#define FMA256(i) "vfmadd231ps %%ymm0, %%ymm1, %%ymm" #i "\n\t"
#define MULADD(i)                                                                                  \
    "movaps %%xmm0, %%xmm14\n\tmulps %%xmm1, %%xmm14\n\taddps %%xmm14, %%xmm" #i "\n\t"
#define PEAK(name, step, width)                                                                    \
    static double name(void) {                                                                     \
        int64_t n = 20000000;                                                                      \
        double start = now();                                                                      \
        __asm__ volatile("1:\n\t" CHAINS(step) "dec %0\n\tjnz 1b\n\t"                              \
                         : "+r"(n)::"xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6",        \
                           "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",    \
                           "cc");                                                                  \
        return 20000000.0 * 12 * width * 2 / (now() - start);                                      \
    }
PEAK(peak_avx512, FMA512, 16)
PEAK(peak_avx2, FMA256, 8)
PEAK(peak_baseline, MULADD, 4)

static double peak_of(const hcg_level *l) {
    return l->lanes == 16 ? peak_avx512() : l->lanes == 8 ? peak_avx2() : peak_baseline();
}

typedef float wide __attribute__((vector_size(32)));
__attribute__((target("avx2"), noinline)) static double read_speed(const float *x, size_t n) {
    double best = 0;
    for (int round = 0; round < 3; round++) {
        wide s[8] = {{0}};
        double start = now();
        for (size_t i = 0; i + 64 <= n; i += 64)
            for (int j = 0; j < 8; j++)
                s[j] += *(const wide *)(x + i + j * 8);
        __asm__ volatile("" ::"x"(s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7]));
        double speed = (double)n * 4 / (now() - start);
        if (speed > best) best = speed;
    }
    return best;
}

/* ---- one kernel --------------------------------------------------------------------------------
 */

typedef struct shape {
    int64_t t, k, n;
    hir_dtype dtype;
    bool gated; /* silu(x A) * (x B), n columns each */
} shape;

static hir_id build(bench *b, shape s) {
    hir_builder top = hir_at_end(b->m, &b->diags);
    hir_type in = hir_make_type(HIR_F32, 2, (int64_t[]){HIR_T, s.k});
    hir_type out = hir_make_type(HIR_F32, 2, (int64_t[]){HIR_T, s.n});
    hir_type wt = hir_make_type(s.dtype, 2, (int64_t[]){s.n, s.k});
    hir_ref x = hir_value_ref(hir_add_input(b->m, "x", in)), y[2];
    hir_attr attrs[] = {hir_string(HIR_A_NAME, "contract0"), hir_string(HIR_A_ROWS, "all"),
                        hir_string(HIR_A_SPLIT_ONE, "cols"), hir_string(HIR_A_SPLIT_MANY, "cols")};
    hir_id kernel = hir_build_kernel(&top, HIR_KERNEL_CONTRACT_OP, attrs, 4, &out, 1);
    hir_builder body = hir_in_body(b->m, &b->diags, kernel);
    for (int i = 0; i < 1 + s.gated; i++) {
        uint32_t w = hir_add_weight(b->m, i ? "w1" : "w0", wt, HD_NOWHERE);
        b->m->weights.at[w].layout = HIR_LAYOUT_PANEL;
        hir_ref args[] = {x, hir_weight_ref(w), hir_no_ref()};
        y[i] = hir_emit(&body, HIR_LINEAR_OP, args, 3, NULL, 0);
    }
    if (s.gated) y[0] = hir_emit2(&body, HIR_MUL_OP, hir_emit1(&body, HIR_SILU_OP, y[0]), y[1]);
    hir_build(&body, HIR_YIELD_OP, y, 1, NULL, 0);
    return kernel;
}

/* Seconds per call, best of several; weights advance through `area` bytes from call to call. */
static double time_kernel(const compiled *c, shape s, int64_t columns, char *area,
                          size_t area_bytes, size_t weight_bytes, float *x, float *out) {
    hrt_frame frame = {
        .T = s.t, .C = s.t, .cap = s.t, .scratch = guarded((c->scratch + 63) / 64 * 64)};
    size_t calls = area_bytes / weight_bytes, linears = s.gated ? 2 : 1;
    if (calls > 64) calls = 64;
    double best = 1e9;
    for (int round = 0; round < 5; round++) {
        double start = now();
        for (size_t i = 0; i + linears <= calls; i += linears) {
            void *args[] = {x, area + i * weight_bytes, area + (i + 1) * weight_bytes, out};
            if (!s.gated) args[2] = out;
            c->call(&frame, args, 0, s.t, 0, columns);
        }
        double t = (now() - start) / (double)(calls / linears);
        if (t < best) best = t;
    }
    guarded_free(frame.scratch);
    return best;
}

static void run(const hcg_level *level, shape s, char *area, size_t area_bytes) {
    bench b = bench_new();
    bench_start(&b);
    hir_id kernel = build(&b, s);
    compiled c;
    double start = now();
    if (!compile_kernel(&b, HCG_CONTRACT, kernel, s.t == 1, level, &c)) {
        fprintf(stderr, "%s\n", bench_errors(&b));
        exit(1);
    }
    double took = now() - start;
    uint64_t seed = 1;
    float *x = random_floats(&seed, (size_t)(s.t * s.k)), *out = guarded((size_t)(s.t * s.n) * 4);
    int64_t panels = (s.n + HIR_PANEL - 1) / HIR_PANEL;
    size_t weight_bytes = (size_t)(panels * HIR_PANEL * s.k) * hir_dtype_bytes(s.dtype);
    double peak = s.t > 1 ? peak_of(level) : 0;
    double t = time_kernel(&c, s, panels, area, area_bytes, weight_bytes, x, out);
    double work = 2.0 * (double)(s.t * s.k * s.n) * (1 + s.gated);
    printf("%-8s %-4s T=%-4ld K=%-5ld N=%-5ld %s ", level->name, hir_dtype_name(s.dtype), s.t, s.k,
           s.n, s.gated ? "gated" : "plain");
    if (s.t > 1) printf("%7.1f GFLOP/s  %.2f of peak", work / t * 1e-9, work / t / peak);
    printf(" %6.1f GB/s  compile %.0f ms, %zu bytes\n",
           (double)weight_bytes * (1 + s.gated) / t * 1e-9, took * 1e3, c.code_bytes);
    guarded_free(x), guarded_free(out);
    compiled_free(&c);
    bench_free(&b);
}

int main(int argc, char **argv) {
    const hcg_level *levels;
    size_t n = hcg_levels(&levels), area_bytes = 256u << 20;
    float *area = guarded(area_bytes);
    for (size_t i = 0; i < area_bytes / 4; i++)
        area[i] = 0.01f;
    printf("read: %.1f GB/s\n", read_speed(area, area_bytes / 4) * 1e-9);
    static const shape table[] = {
        {512, 1024, 1024, HIR_F32, 0}, {512, 1024, 3072, HIR_F32, 1},
        {512, 3072, 1024, HIR_F32, 0}, {512, 4096, 1536, HIR_BF16, 0},
        {128, 1024, 3072, HIR_F32, 0}, {16, 1024, 3072, HIR_F32, 0},
        {4, 1024, 3072, HIR_F32, 0},   {1, 1024, 3072, HIR_F32, 0},
        {1, 1024, 3072, HIR_BF16, 1},  {1, 4096, 1024, HIR_F32, 0},
    };
    for (size_t i = 0; i < n; i++) {
        if (!level_runs(&levels[i]) || (argc > 1 && strcmp(argv[1], levels[i].name) != 0)) continue;
        if (argc > 4) {
            hir_dtype d = HIR_F32;
            for (int t = 0; argc > 5 && t < HIR_DTYPE_COUNT; t++)
                if (t != HIR_I32 && !strcmp(argv[5], hir_dtype_name((hir_dtype)t)))
                    d = (hir_dtype)t;
            run(&levels[i], (shape){atol(argv[2]), atol(argv[3]), atol(argv[4]), d, 0},
                (char *)area, area_bytes);
            continue;
        }
        for (size_t j = 0; j < sizeof table / sizeof table[0]; j++)
            run(&levels[i], table[j], (char *)area, area_bytes);
    }
    guarded_free(area);
    return 0;
}
