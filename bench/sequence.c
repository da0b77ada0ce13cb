/* Attention kernels alone. For T = 1 it measures the rate at which keys and values are read, beside
 * a plain read of memory; for T > 1 the rate of multiply-adds, beside the machine's. Limits are
 * measured in the same rounds, and work is shared among threads as by the runtime. Each call reads
 * the next of several caches: for one token so many that no cache of the CPU holds them all, for
 * many tokens at most 4. Queries and results are the same in all calls, and stay in caches as they
 * do in a model.
 *
 *     sequence [LEVEL|best] [THREADS] [f32|bf16|f16] [ROUNDS] [SHAPE] [exact]
 *
 * Shapes of grain 0 are gradients of attention with respect to q, k and v, as one kernel: five
 * products for the two of attention.
 *
 * SHAPE: only that line of the table, from 0. exact: queries and weights of values stay f32. Bytes
 * and FLOPs are those of the keys that a query attends to. */

#include "bench/kernel_main.h"
#include "codegen/attention/attention.h"

typedef struct shape {
    int64_t t, past, heads, groups, n, grain, window; /* grain 0: gradients */
} shape;

static const shape shapes[] = {
    {1, 511, 16, 8, 128, 1, 0},      {1, 4095, 16, 8, 128, 1, 0},
    {1, 4095, 16, 16, 64, 1, 0},     {1, 4095, 32, 4, 128, 1, 0},
    {1, 16383, 8, 1, 128, 1, 0},     {512, 0, 16, 8, 128, 64, 0},
    {2048, 0, 16, 8, 128, 64, 0},    {512, 0, 16, 16, 64, 128, 0},
    {512, 512, 16, 8, 128, 64, 0},   {512, 4096, 16, 8, 128, 64, 0},
    {16, 4096, 16, 8, 128, 64, 0},   {4, 4096, 16, 1, 128, 8, 0},
    {2, 4096, 16, 8, 128, 64, 0},    {4, 4096, 16, 8, 128, 64, 0},
    {8, 4096, 16, 8, 128, 64, 0},    {8, 4096, 16, 1, 128, 8, 0},
    {1, 1023, 16, 8, 128, 1, 0},     {1, 32767, 16, 8, 128, 1, 1024},
    {512, 512, 16, 8, 128, 64, 512}, {512, 7680, 16, 8, 128, 64, 512},
    {4096, 0, 16, 8, 128, 64, 0},    {64, 0, 2, 1, 32, 16, 0},
    {512, 0, 16, 8, 128, 0, 0},      {512, 0, 8, 8, 64, 0, 0},
    {256, 0, 4, 4, 32, 0, 0},        {2048, 0, 16, 8, 128, 0, 0},
    {4096, 0, 16, 16, 64, 128, 0},   {512, 0, 8, 4, 256, 64, 0},
    {4096, 0, 8, 4, 256, 64, 0},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };
static bool exact;

typedef struct problem {
    kernel_runs k;
    shape s;
    size_t cache_bytes; /* size of the keys; the values have the same */
    char *keys, *values;
    float *q, *o; /* of gradients o is that of q, and q is also that of the result */
    float *dk, *dv;
    int64_t columns;
} problem;

/* ---- the kernel ------------------------------------------------------------------------------ */
static hir_id build(bench *b, shape s, hir_dtype dtype) {
    hir_type type = hir_make_type(HIR_F32, 3, (int64_t[]){HIR_T, s.heads, s.n});
    hir_type rows = hir_make_type(dtype, 3, (int64_t[]){HIR_C, s.groups, s.n});
    hir_ref args[] = {hir_value_ref(hir_add_input(b->m, "q", type)), kernel_cache(b, "k", rows),
                      kernel_cache(b, "v", rows)};
    hir_id kernel = kernel_sequence(b, &type, "keys", "cyclic", s.grain);
    hir_builder body = hir_in_body(b->m, &b->diags, kernel);
    hir_attr options[] = {hir_float(HIR_A_SCALE, 0.1), hir_int(HIR_A_WINDOW, s.window)};
    hir_ref o = hir_emit(&body, HIR_ATTENTION_OP, args, 3, options, s.window ? 2 : 1);
    hir_build(&body, HIR_YIELD_OP, &o, 1, NULL, 0);
    return kernel;
}

static hir_id build_gradient(bench *b, shape s) {
    static const char *const of[] = {"q", "k", "v"};
    const hir_type type = hir_make_type(HIR_F32, 3, (int64_t[]){HIR_T, s.heads, s.n});
    const hir_type rows = hir_make_type(HIR_F32, 3, (int64_t[]){HIR_C, s.groups, s.n});
    const hir_type of_rows = hir_make_type(HIR_F32, 3, (int64_t[]){HIR_T, s.groups, s.n});
    const hir_ref none = hir_no_ref();
    const hir_ref args[] = {hir_value_ref(hir_add_input(b->m, "q", type)),
                            kernel_cache(b, "k", rows),
                            kernel_cache(b, "v", rows),
                            none,
                            none,
                            hir_value_ref(hir_add_input(b->m, "dy", type))};
    const hir_attr attrs[] = {hir_string(HIR_A_NAME, "sequence0"), hir_string(HIR_A_ROWS, "all"),
                              hir_string(HIR_A_SPLIT_DECODE, "channels"),
                              hir_string(HIR_A_SPLIT_PREFILL, "channels")};
    hir_builder top = hir_at_end(b->m, &b->diags);
    const hir_id kernel = hir_build_kernel(&top, HIR_KERNEL_SEQUENCE_OP, attrs, 4,
                                           (hir_type[]){type, of_rows, of_rows}, 3);
    hir_builder body = hir_in_body(b->m, &b->diags, kernel);
    hir_ref y[3];
    for (int i = 0; i < 3; i++) {
        const hir_attr options[] = {hir_float(HIR_A_SCALE, 0.1), hir_string(HIR_A_OF, of[i])};
        y[i] = hir_emit(&body, HIR_ATTENTION_GRAD_OP, args, 6, options, 2);
        if (i > 0) y[i] = hir_emit(&body, HIR_CACHE_ROWS_OP, &y[i], 1, NULL, 0);
    }
    hir_build(&body, HIR_YIELD_OP, y, 3, NULL, 0);
    return kernel;
}

static void open_problem(void *problem_at, int shape_at, const hcg_level *level, hir_dtype dtype) {
    problem *p = problem_at;
    const shape s = shapes[shape_at];
    enum { COLD = 192 << 20, MOST_CACHES = 32, CALLS = 4 };
    p->s = s;
    p->k.b.exact = exact ? HCG_ROUND_ALL : 0;
    if (!s.grain) dtype = HIR_F32;
    hir_id kernel = s.grain ? build(&p->k.b, s, dtype) : build_gradient(&p->k.b, s);
    p->k.b.small_batch = s.t > 1 && s.t <= HRT_SMALL_BATCH;
    kernel_compile(&p->k.b, HIR_KERNEL_SEQUENCE, kernel, s.t == 1, level, &p->k.c);
    int64_t length = s.t + s.past;
    p->cache_bytes = (size_t)(length * s.groups * s.n) * hir_dtype_bytes(dtype);
    const int64_t most = s.t > HRT_SMALL_BATCH ? CALLS : MOST_CACHES;
    p->columns = hcg_columns(p->k.b.m, kernel);
    p->k.copies = kernel_copies(2 * p->cache_bytes, COLD, most);
    p->keys = new_cache(p->cache_bytes * (size_t)p->k.copies, dtype);
    p->values = new_cache(p->cache_bytes * (size_t)p->k.copies, dtype);
    kernel_share(&p->k, kernel, kernel_ranges(length));
    uint64_t seed = 1;
    p->q = random_floats(&seed, (size_t)(s.t * s.heads * s.n));
    p->o = guarded((size_t)(s.t * s.heads * s.n) * 4);
    if (!s.grain) p->dk = guarded(p->cache_bytes), p->dv = guarded(p->cache_bytes);
}

static void close_problem(void *problem_at) {
    problem *p = problem_at;
    free(p->keys), free(p->values);
    guarded_free(p->q), guarded_free(p->o);
    guarded_free(p->dk), guarded_free(p->dv);
}

/* ---- one call, shared as by runtime/run.c ---------------------------------------------------- */
static void call_share(const void *problem_at, int64_t cache, int index, int count) {
    const problem *p = problem_at;
    const shape *s = &p->s;
    hrt_frame frame = kernel_frame(&p->k, s->t, s->past, index);
    char *keys = p->keys + cache * (int64_t)p->cache_bytes;
    char *values = p->values + cache * (int64_t)p->cache_bytes;
    if (!s->grain) {
        void *args[] = {p->q, keys, values, p->q, p->o, p->dk, p->dv};
        kernel_columns(&p->k, &frame, args, p->columns, index, count);
        return;
    }
    void *args[] = {p->q, keys, values, p->o};
    if (s->t <= HRT_SMALL_BATCH) {
        int64_t before = s->window ? frame.C - s->t + 1 - s->window : 0;
        int64_t skipped = before > 0 ? before / HRT_KEYS : 0;
        int64_t cols = s->groups * ((int64_t)kernel_ranges(frame.C) - skipped);
        kernel_columns(&p->k, &frame, args, cols, index, count);
        return;
    }
    const int64_t whole = s->groups - s->groups % count, chunks = (s->t + s->grain - 1) / s->grain;
    kernel_columns(&p->k, &frame, args, whole, index, count);
    for (int64_t i = index; i < chunks * (s->groups - whole); i += count) {
        int64_t c = whole + i / chunks, k = i % chunks, r = (c % 2 ? chunks - 1 - k : k) * s->grain;
        p->k.c.call(&frame, args, r, r + s->grain < s->t ? r + s->grain : s->t, c, c + 1);
    }
}

static void print_problem(const void *problem_at, const machine *m) {
    const problem *p = problem_at;
    const shape *s = &p->s;
    double t = median(&p->k.seconds), pairs = 0;
    for (int64_t i = 0; i < s->t; i++) {
        const int64_t seen = s->past + i + 1;
        pairs += (double)(s->window && seen > s->window ? s->window : seen);
    }
    double flops = (s->grain ? 4.0 : 10.0) * pairs * (double)(s->heads * s->n) / t,
           bytes = 2.0 * (double)p->cache_bytes / t;
    if (s->window) bytes *= (double)s->window / (double)(s->past + s->t);
    printf("T=%-4ld C=%-5ld window %-4ld H=%-2ld G=%-2ld n=%-3ld grain %-3ld %9.1f us", s->t,
           s->past + s->t, s->window, s->heads, s->groups, s->n, s->grain, t * 1e6);
    if (!s->grain) printf(" gradients");
    if (s->t == 1)
        printf(" %7.1f GB/s %5.2f of read\n", bytes * 1e-9, bytes / machine_limit(m, LIMIT_READ));
    else
        printf(" %7.1f GFLOP/s %5.2f of multiply-add", flops * 1e-9,
               flops / machine_limit(m, LIMIT_FMA));
    if (s->t > 1 && machine_limit(m, LIMIT_TILES) > 0)
        printf(" %5.2f of unit", flops / machine_limit(m, LIMIT_TILES));
    if (s->t > 1) printf("\n");
}

int main(int argc, char **argv) {
    static const kernel_bench bench = {SHAPES,       9,          sizeof(problem), {"", " cache"},
                                       open_problem, call_share, print_problem,   close_problem};
    exact = argc > 6 && strcmp(argv[6], "exact") == 0;
    return kernel_main(&bench, argc, argv);
}
