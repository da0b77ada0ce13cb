/* Speed of contraction kernels alone, on any number of threads. GEMM is measured as a fraction of
 * the peak rate of multiply-adds, of the peak of a matrix unit if the level has one, and of its
 * roof: the highest of these peaks, or the rate at which memory can deliver the weights if that is
 * lower. GEMV is measured as a fraction of the read limit. The peak of the matrix unit is that of
 * bf16 or, with `bytes`, that of bytes.
 *
 *     contract [LEVEL|best|all [THREADS [T K N [DTYPE|grad [exact|rounded|bytes [ROUNDS [BLAS]..]]]]]]
 *
 * Without a shape: a table of usual shapes. DTYPE is the type of the weights. grad: the gradient of
 * a matrix [N, K] from T rows, in f32 (rounded: with factors rounded to bf16), instead of a product
 * with it. exact: activations stay f32. BLAS: a library with cblas_sgemm, which multiplies the same
 * matrices in turn with the kernel (f32 products that are neither gated nor gradients); its threads
 * and level are what its own variables of the environment say.
 * bytes: a matrix unit multiplies quantised weights as bytes. From call to call the weights, or the
 * gradients, advance through 256 MB, in huge pages where the system has any, so that they come from
 * memory as they do in a model. Limits are measured in every round beside the kernel; figures are
 * medians of rounds. */
#include <dlfcn.h>
#include <omp.h>

#include "bench/kernel.h"
#include "bench/machine.h"
#include "codegen/emit/packed.h"

enum { AREA_BYTES = 256 << 20 };

/* ---- limits ---------------------------------------------------------------------------------- */

static int n_rounds = 9;

static double unit_of(const hcg_level *l, int threads) { /* 0: there is no matrix unit */
    enum { ITERATIONS = 60000 };
    const bool bytes = l->machine.unit_bytes;
    if (!hcg_has_features(l, bytes ? "amx-tile amx-int8" : "amx-tile amx-bf16")) return 0;
    int64_t turns = 0;
    double start = now(threads);
#pragma omp parallel num_threads(threads) reduction(+ : turns)
    turns += machine_tile_products(bytes, ITERATIONS);
    return (1.0 + bytes) * MACHINE_TILE_FLOPS * (double)turns / (now(threads) - start);
}

/* ---- one kernel ------------------------------------------------------------------------------ */

typedef struct shape {
    int64_t t, k, n;
    hir_dtype dtype;
    bool gated; /* silu(x A) * (x B), where A and B have n columns each */
    bool grad;  /* dy^T x, where dy has n columns */
} shape;

static hir_id build_gradient(bench *b, shape s) {
    b->m = hir_parse(
        b->arena, &b->diags, "bench",
        hd_printf(b->arena,
                  "hir 1 kernel @b\nfunc(%%dy: f32[T, %ld], %%x: f32[T, %ld]) {\n"
                  "  %%y = kernel.sequence {name = \"s\", rows = \"all\", split_decode = "
                  "\"channels\", split_prefill = \"channels\"} : f32[%ld, %ld] {\n"
                  "    %%1 = linear_grad %%dy, %%x : f32[%ld, %ld]\n    yield %%1\n  }\n}\n",
                  s.n, s.k, s.n, s.k, s.n, s.k));
    return b->m ? b->m->first : HIR_NONE;
}

static hir_id build(bench *b, shape s) {
    if (s.grad) return build_gradient(b, s);
    hir_builder top = hir_at_end(b->m, &b->diags);
    hir_type in = hir_make_type(HIR_F32, 2, (int64_t[]){HIR_T, s.k});
    hir_type out = hir_make_type(HIR_F32, 2, (int64_t[]){HIR_T, s.n});
    hir_type wt = hir_make_type(s.dtype, 2, (int64_t[]){s.n, s.k});
    hir_ref x = hir_value_ref(hir_add_input(b->m, "x", in)), y[2];
    hir_attr attrs[] = {hir_string(HIR_A_NAME, "contract0"), hir_string(HIR_A_ROWS, "all"),
                        hir_string(HIR_A_SPLIT_DECODE, "cols"),
                        hir_string(HIR_A_SPLIT_PREFILL, "cols")};
    hir_id kernel = hir_build_kernel(&top, HIR_KERNEL_CONTRACT_OP, attrs, 4, &out, 1);
    hir_builder body = hir_in_body(b->m, &b->diags, kernel);
    for (int i = 0; i < 1 + s.gated; i++) {
        uint32_t w = hir_add_weight(b->m, i ? "w1" : "w0", wt, HD_NOWHERE);
        b->m->weights.at[w].layout = hir_fits_narrow(wt) ? HIR_LAYOUT_NARROW : HIR_LAYOUT_PANEL;
        hir_ref args[] = {x, hir_weight_ref(w), hir_no_ref()};
        y[i] = hir_emit(&body, HIR_LINEAR_OP, args, 3, NULL, 0);
    }
    if (s.gated) y[0] = hir_emit2(&body, HIR_MUL_OP, hir_emit1(&body, HIR_SILU_OP, y[0]), y[1]);
    hir_build(&body, HIR_YIELD_OP, y, 1, NULL, 0);
    return kernel;
}

typedef struct job {
    const compiled *c;
    shape s;
    machine *m; /* with the vectors of the level */
    int threads;
    int64_t columns; /* number of columns of the kernel */
    size_t weight_bytes;
    char *area;
    float *x, *out; /* out: dy of a gradient */
    char *scratch[MOST_THREADS];
} job;

/* Makes this thread's share of calls, one after the other: it is called for a share of the columns, and
 * offered the work of all threads, as by the runtime. */
static void calls_of_thread(const job *j, size_t calls) {
    static hrt_counter queues[2][HRT_QUEUES]; /* for even and odd calls */
    int64_t me = omp_get_thread_num(), n = omp_get_num_threads();
    int64_t from = j->columns * me / n, to = j->columns * (me + 1) / n;
    size_t linears = j->s.gated ? 2 : 1;
    hrt_frame frame = {.T = j->s.t, .C = j->s.t, .cap = j->s.t, .scratch = j->scratch[me]};
    hrt_dynamic dynamic = {.r1 = j->s.t, .cols = j->columns, .threads = n, .thread = me};
    if (n > 1 && j->s.t > 1 && !j->s.grad) frame.dynamic = &dynamic;
    for (size_t i = 0; i + linears <= calls * linears; i += linears) {
        void *args[] = {j->x, j->area + i * j->weight_bytes, j->area + (i + 1) * j->weight_bytes,
                        j->out};
        if (!j->s.gated) args[2] = j->out;
        if (j->s.grad) args[0] = j->out, args[1] = j->x, args[2] = j->area + i * j->weight_bytes;
        dynamic.queues = queues[i / linears % 2];
        if (from < to) j->c->call(&frame, args, 0, j->s.t, from, to);
#pragma omp barrier
        if (me == 0) memset(dynamic.queues, 0, sizeof queues[0]);
    }
}

/* Seconds per call. */
static double time_calls(const job *j, double peak) {
    size_t linears = j->s.gated ? 2 : 1, calls = AREA_BYTES / j->weight_bytes / linears;
    double work = 2.0 * (double)(j->s.t * j->s.k * j->s.n) * (double)linears;
    size_t enough = (size_t)(30e-3 * peak / work) + 1; /* calls for 30 ms or more */
    if (calls > enough) calls = enough;
    double start = now(j->threads);
#pragma omp parallel num_threads(j->threads)
    calls_of_thread(j, calls);
    return (now(j->threads) - start) / (double)calls;
}

/* ---- other libraries --------------------------------------------------------------------------- */

enum { MOST_LIBRARIES = 4, ROW_MAJOR = 101, AS_IT_IS = 111, TRANSPOSED = 112 };
typedef void cblas_sgemm(int order, int a, int b, int m, int n, int k, float alpha, const float *x,
                         int ldx, const float *w, int ldw, float beta, float *y, int ldy);

typedef struct library {
    const char *file;
    cblas_sgemm *multiply;
    samples time, ratio; /* ratio: of its time to the kernel's, round by round */
} library;

static library libraries[MOST_LIBRARIES];
static int n_libraries;

static bool open_library(const char *file) {
    void *l = n_libraries < MOST_LIBRARIES ? dlopen(file, RTLD_NOW | RTLD_LOCAL) : NULL;
    void *f = l ? dlsym(l, "cblas_sgemm") : NULL;
    if (!f) {
        fprintf(stderr, "%s: no library with cblas_sgemm, or one more than %d\n", file,
                MOST_LIBRARIES);
        return false;
    }
    library *made = &libraries[n_libraries++];
    made->file = file;
    memcpy(&made->multiply, &f, sizeof f);
    return true;
}

/* Seconds of a call of the library, for weights that advance as the kernel's do. */
static double time_library(const library *l, const job *j, float *y, double peak) {
    const shape s = j->s;
    const double work = 2.0 * (double)(s.t * s.k * s.n);
    size_t calls = AREA_BYTES / j->weight_bytes, enough = (size_t)(30e-3 * peak / work) + 1;
    if (calls > enough) calls = enough;
    const double start = now(1);
    for (size_t i = 0; i < calls; i++)
        l->multiply(ROW_MAJOR, AS_IT_IS, TRANSPOSED, (int)s.t, (int)s.n, (int)s.k, 1, j->x,
                    (int)s.k, (const float *)(j->area + i * j->weight_bytes), (int)s.k, 0, y,
                    (int)s.n);
    return (now(1) - start) / (double)calls;
}

static void time_libraries(const job *j, double seconds, double peak) {
    float *y = n_libraries ? malloc(sizeof(float) * (size_t)(j->s.t * j->s.n)) : NULL;
    for (int i = 0; y && i < n_libraries; i++) {
        const double t = time_library(&libraries[i], j, y, peak);
        sample(&libraries[i].time, t);
        sample(&libraries[i].ratio, t / seconds);
    }
    free(y);
}

static void keep_libraries(const rounds *r) {
    for (int i = 0; i < n_libraries; i++) {
        rounds_keep(r, &libraries[i].time);
        rounds_keep(r, &libraries[i].ratio);
    }
}

static void print_libraries(double work, double peak) {
    for (int i = 0; i < n_libraries; i++) {
        const double rate = work / median(&libraries[i].time);
        printf("  %s: %.1f GFLOP/s, %.2f of peak; the kernel is %.2f times as fast (+-%.0f %%)\n",
               libraries[i].file, rate * 1e-9, rate / peak, median(&libraries[i].ratio),
               100 * spread(&libraries[i].ratio));
    }
}

/* ---- the report -------------------------------------------------------------------------------- */

static void report(const job *j, const hcg_level *level) {
    static samples time, of_peak, of_unit, of_read, of_roof, units;
    units.n = time.n = of_peak.n = of_unit.n = of_read.n = of_roof.n = 0;
    double linears = j->s.gated ? 2 : 1;
    double work = 2.0 * (double)(j->s.t * j->s.k * j->s.n) * linears;
    double bytes = (double)j->weight_bytes * linears;
    rounds r;
    for (rounds_begin_strict(&r, j->m, (size_t)n_rounds); rounds_next(&r);) {
        const double peak = machine_latest(j->m, LIMIT_FMA),
                     read = machine_latest(j->m, LIMIT_READ);
        const double unit = unit_of(level, j->threads), most = unit > peak ? unit : peak;
        sample(&units, unit);
        double t = time_calls(j, most), least = work / most;
        time_libraries(j, t, most);
        if (bytes / read > least) least = bytes / read;
        sample(&time, t);
        sample(&of_peak, work / t / peak);
        sample(&of_unit, unit ? work / t / unit : 0);
        sample(&of_read, bytes / t / read);
        sample(&of_roof, least / t);
    }
    samples *const all[] = {&time, &of_peak, &of_unit, &of_read, &of_roof, &units};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        rounds_keep(&r, all[i]);
    keep_libraries(&r);
    const char *kind = j->s.grad ? "grad " : j->s.gated ? "gated" : "plain";
    printf("%-8s %-4s T=%-4ld K=%-5ld N=%-5ld %s %dt %7.1f GFLOP/s %.2f of peak %.2f of unit "
           "%6.1f GB/s %.2f of read  %.2f of roof (+-%.0f %%)",
           level->name, hir_dtype_name(j->s.dtype), j->s.t, j->s.k, j->s.n, kind, j->threads,
           work / median(&time) * 1e-9, median(&of_peak), median(&of_unit),
           bytes / median(&time) * 1e-9, median(&of_read), median(&of_roof),
           100 * spread(&of_roof));
    if (median(&units) > 0) printf(", its limit %.0f Gop/s", median(&units) * 1e-9);
    printf("\n");
    print_libraries(work, machine_limit(j->m, LIMIT_FMA));
    machine_print_moved(j->m);
}

static void run(const hcg_level *level, machine *m, shape s, unsigned exact, int threads,
                char *area) {
    bench b = bench_new();
    b.exact = exact;
    if (s.grad && !(exact & HCG_ROUND_BF16)) b.matmul = HIR_BF16;
    bench_start(&b);
    hir_id kernel = build(&b, s);
    compiled c;
    const hir_kernel_kind kind = s.grad ? HIR_KERNEL_SEQUENCE : HIR_KERNEL_CONTRACT;
    kernel_compile(&b, kind, kernel, s.t == 1 && !s.grad, level, &c);
    uint64_t seed = 1;
    uint64_t bytes = (uint64_t)(s.n * s.k) * sizeof(float); /* of one matrix; all are equal */
    if (!s.grad) (void)hir_weight_bytes(&b.m->weights.at[0], &bytes);
    job j = {
        .c = &c, .s = s, .m = m, .threads = threads, .area = area, .weight_bytes = (size_t)bytes};
    j.columns = hcg_columns(b.m, kernel);
    j.x = random_floats(&seed, (size_t)(s.t * s.k));
    j.out = random_floats(&seed, (size_t)(s.t * s.n));
    new_scratch(j.scratch, threads, &c);
    report(&j, level);
    free_scratch(j.scratch, threads);
    guarded_free(j.x), guarded_free(j.out);
    compiled_free(&c);
    bench_free(&b);
}

static const shape table[] = {
    {512, 1024, 1024, HIR_F32, 0, 0},  {512, 1024, 3072, HIR_F32, 1, 0},
    {512, 3072, 1024, HIR_F32, 0, 0},  {512, 1024, 3072, HIR_F32, 0, 1},
    {512, 1024, 3072, HIR_BF16, 1, 0}, {128, 1024, 3072, HIR_F32, 0, 0},
    {16, 1024, 3072, HIR_F32, 0, 0},   {16, 3072, 1024, HIR_F32, 0, 0},
    {16, 1024, 3072, HIR_BF16, 0, 0},  {4, 1024, 3072, HIR_F32, 0, 0},
    {4, 1024, 3072, HIR_BF16, 0, 0},   {1, 1024, 3072, HIR_F32, 0, 0},
    {1, 1024, 3072, HIR_BF16, 1, 0},
};

int main(int argc, char **argv) {
    const hcg_level *levels;
    size_t n = hcg_levels(&levels);
    int threads = argc > 2 ? atoi(argv[2]) : 1;
    if (threads < 1 || threads > MOST_THREADS) {
        fprintf(stderr, "1 to %d threads\n", MOST_THREADS);
        return 2;
    }
    if (argc > 9 && strcmp(argv[6], "f32") != 0) {
        fprintf(stderr, "libraries with cblas_sgemm multiply f32 alone\n");
        return 2;
    }
    for (int at = 9; at < argc; at++)
        if (!open_library(argv[at])) return 2;
    float *area = (float *)new_pages(AREA_BYTES);
    for (size_t i = 0; i < AREA_BYTES / 4; i++)
        area[i] = 0.01f;
    bool none = true;
    for (size_t i = 0; i < n; i++) {
        const char *name = argc > 1 ? argv[1] : "all";
        const bool asked = !strcmp(name, "all") || (!strcmp(name, "best") && none) ||
                           !strcmp(name, levels[i].name);
        if (!level_runs(&levels[i]) || !asked) continue;
        none = false;
        machine *m = machine_open(threads);
        if (!m) return 2;
        machine_use_features(m, levels[i].lanes, hcg_level_features(&levels[i]));
        if (argc > 5) {
            const hir_dtype d = argc > 6 ? kernel_weights_dtype(argv[6]) : HIR_F32;
            if (argc > 8 && atoi(argv[8]) > 0) n_rounds = atoi(argv[8]);
            hcg_level level = levels[i];
            level.machine.unit_bytes = argc > 7 && !strcmp(argv[7], "bytes");
            const bool grad = argc > 6 && !strcmp(argv[6], "grad");
            const char *how = argc > 7 ? argv[7] : grad ? "exact" : "rounded";
            run(&level, m, (shape){atol(argv[3]), atol(argv[4]), atol(argv[5]), d, 0, grad},
                !strcmp(how, "exact") ? HCG_ROUND_ALL : 0, threads, (char *)area);
        } else {
            for (size_t j = 0; j < sizeof table / sizeof table[0]; j++)
                run(&levels[i], m, table[j], table[j].grad ? HCG_ROUND_ALL : 0, threads,
                    (char *)area);
        }
        machine_close(m);
    }
    free(area);
    if (none) fprintf(stderr, "no level \"%s\" that this machine can run\n", argv[1]);
    return none ? 2 : 0;
}
