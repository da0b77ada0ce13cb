/* Attention kernels alone: for T = 1 the rate at which keys and values are read, beside a plain
 * read of memory; for T > 1 the rate of multiply-adds, beside the machine's. Limits are measured in
 * the same rounds, work is shared among threads as the runtime does it. Each call reads the next of
 * several caches, together too large for any cache of the CPU; of many tokens, of at most 4:
 * queries and results of the call before are met again, as they are in a model.
 *
 *     sequence [LEVEL|best] [THREADS] [f32|bf16|f16] [ROUNDS] [SHAPE]
 *
 * SHAPE: only that line of the table, from 0. Bytes and FLOPs are those of the keys that are seen.
 */
#include <omp.h>

#include "bench/kernel.h"
#include "bench/machine.h"
#include "codegen/sequence/attention.h"

typedef struct shape {
    int64_t t, past, heads, groups, n, grain, window;
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
};
enum { SHAPES = sizeof shapes / sizeof *shapes, MOST_THREADS = 64 };

typedef struct problem {
    shape s;
    bench b;
    compiled c;
    int64_t caches;     /* pairs of keys and values */
    size_t cache_bytes; /* of keys, and of values */
    char *keys, *values, *shared;
    float *q, *o;
    char *scratch[MOST_THREADS];
    samples seconds;
} problem;

/* ---- the kernel ------------------------------------------------------------------------------ */
static hir_ref state(bench *b, const char *name, shape s, hir_dtype dtype) {
    hir_type type = hir_make_type(dtype, 3, (int64_t[]){HIR_C, s.groups, s.n});
    uint32_t index = hir_add_state(b->m, name, HIR_STATE_CACHE, type, HD_NOWHERE);
    hir_id v = hir_add_input(b->m, name, type);
    hir_value_at(b->m, v)->place = HIR_PLACE_STATE;
    hir_value_at(b->m, v)->offset = index;
    return hir_value_ref(v);
}

static hir_id build(bench *b, shape s, hir_dtype dtype) {
    hir_builder top = hir_at_end(b->m, &b->diags);
    hir_type type = hir_make_type(HIR_F32, 3, (int64_t[]){HIR_T, s.heads, s.n});
    hir_ref args[] = {hir_value_ref(hir_add_input(b->m, "q", type)), state(b, "k", s, dtype),
                      state(b, "v", s, dtype)};
    hir_attr attrs[] = {hir_string(HIR_A_NAME, "sequence0"), hir_string(HIR_A_ROWS, "all"),
                        hir_string(HIR_A_SPLIT_DECODE, "keys"),
                        hir_string(HIR_A_SPLIT_PREFILL, "cyclic"), hir_int(HIR_A_GRAIN, s.grain)};
    hir_id kernel = hir_build_kernel(&top, HIR_KERNEL_SEQUENCE_OP, attrs, 5, &type, 1);
    hir_builder body = hir_in_body(b->m, &b->diags, kernel);
    hir_attr options[] = {hir_float(HIR_A_SCALE, 0.1), hir_int(HIR_A_WINDOW, s.window)};
    hir_ref o = hir_emit(&body, HIR_ATTENTION_OP, args, 3, options, s.window ? 2 : 1);
    hir_build(&body, HIR_YIELD_OP, &o, 1, NULL, 0);
    return kernel;
}

static void open_problem(problem *p, shape s, const hcg_level *level, hir_dtype dtype) {
    enum { COLD = 192 << 20, MOST_CACHES = 32, CALLS = 4 };
    *p = (problem){.s = s, .b = bench_new()};
    bench_start(&p->b);
    hir_id kernel = build(&p->b, s, dtype);
    p->b.small_batch = s.t > 1 && s.t <= HRT_SMALL_BATCH;
    if (!compile_kernel(&p->b, HIR_KERNEL_SEQUENCE, kernel, s.t == 1, level, &p->c)) {
        fprintf(stderr, "%s\n", bench_errors(&p->b));
        exit(1);
    }
    int64_t length = s.t + s.past;
    p->cache_bytes = (size_t)(length * s.groups * s.n) * hir_dtype_bytes(dtype);
    p->caches = COLD / (int64_t)(2 * p->cache_bytes) + 1;
    const int64_t most = s.t > HRT_SMALL_BATCH ? CALLS : MOST_CACHES;
    if (p->caches > most) p->caches = most;
    p->keys = new_cache(p->cache_bytes * (size_t)p->caches, dtype);
    p->values = new_cache(p->cache_bytes * (size_t)p->caches, dtype);
    uint64_t counters, range, seed = 1;
    shared_in_program(&p->b, kernel, &counters, &range);
    size_t shared = counters + (size_t)(length + HRT_KEYS - 1) / HRT_KEYS * range;
    p->shared = aligned_alloc(64, (shared + 63) / 64 * 64);
    memset(p->shared, 0, shared);
    p->q = random_floats(&seed, (size_t)(s.t * s.heads * s.n));
    p->o = guarded((size_t)(s.t * s.heads * s.n) * 4);
    for (int i = 0; i < MOST_THREADS; i++)
        p->scratch[i] = aligned_alloc(64, (p->c.scratch + 127) / 64 * 64);
}

static void close_problem(problem *p) {
    free(p->keys), free(p->values), free(p->shared);
    guarded_free(p->q), guarded_free(p->o);
    for (int i = 0; i < MOST_THREADS; i++)
        free(p->scratch[i]);
    compiled_free(&p->c);
    bench_free(&p->b);
}

/* ---- one call, as runtime/run.c shares it ---------------------------------------------------- */
static void call_share(const problem *p, int64_t cache, int index, int count) {
    const shape *s = &p->s;
    hrt_frame frame = {.T = s->t, .C = s->t + s->past, .cap = s->t + s->past};
    frame.scratch = p->scratch[index], frame.shared = p->shared;
    void *args[] = {p->q, p->keys + cache * (int64_t)p->cache_bytes,
                    p->values + cache * (int64_t)p->cache_bytes, p->o};
    if (s->t <= HRT_SMALL_BATCH) {
        int64_t before = s->window ? frame.C - s->t + 1 - s->window : 0;
        int64_t skipped = before > 0 ? before / HRT_KEYS : 0;
        int64_t cols = s->groups * ((frame.C + HRT_KEYS - 1) / HRT_KEYS - skipped);
        int64_t from = cols * index / count, to = cols * (index + 1) / count;
        if (from < to) p->c.call(&frame, args, 0, s->t, from, to);
        return;
    }
    int64_t chunks = (s->t + s->grain - 1) / s->grain;
    for (int64_t i = index; i < chunks * s->groups; i += count) {
        int64_t c = i / chunks, k = i % chunks, r = (c % 2 ? chunks - 1 - k : k) * s->grain;
        p->c.call(&frame, args, r, r + s->grain < s->t ? r + s->grain : s->t, c, c + 1);
    }
}

static void time_round(problem *p, int threads) {
    double start = now(threads);
#pragma omp parallel num_threads(threads)
    for (int64_t i = 0; i < p->caches; i++) {
        call_share(p, i, omp_get_thread_num(), omp_get_num_threads());
#pragma omp barrier
    }
    sample(&p->seconds, (now(threads) - start) / (double)p->caches);
}

static void print_problem(const problem *p, const machine *m) {
    const shape *s = &p->s;
    double t = median(&p->seconds), pairs = 0;
    for (int64_t i = 0; i < s->t; i++) {
        const int64_t seen = s->past + i + 1;
        pairs += (double)(s->window && seen > s->window ? s->window : seen);
    }
    double flops = 4.0 * pairs * (double)(s->heads * s->n) / t,
           bytes = 2.0 * (double)p->cache_bytes / t;
    if (s->window) bytes *= (double)s->window / (double)(s->past + s->t);
    printf("T=%-4ld C=%-5ld window %-4ld H=%-2ld G=%-2ld n=%-3ld grain %-3ld %9.1f us", s->t,
           s->past + s->t, s->window, s->heads, s->groups, s->n, s->grain, t * 1e6);
    if (s->t == 1)
        printf(" %7.1f GB/s %5.2f of read\n", bytes * 1e-9, bytes / machine_limit(m, LIMIT_READ));
    else
        printf(" %7.1f GFLOP/s %5.2f of multiply-add\n", flops * 1e-9,
               flops / machine_limit(m, LIMIT_FMA));
}

int main(int argc, char **argv) {
    static problem problems[SHAPES];
    const hcg_level *level = kernel_level(argc > 1 ? argv[1] : "best");
    int threads = argc > 2 ? atoi(argv[2]) : 1;
    hir_dtype dtype = kernel_dtype(argc > 3 ? argv[3] : "f32");
    if (!level || threads < 1 || threads > MOST_THREADS) return 2;
    machine *m = machine_open(threads);
    if (!m) return 2;
    machine_print_host();
    printf("%s, %d threads, %s cache\n", level->name, threads, hir_dtype_name(dtype));
    const int first = argc > 5 ? atoi(argv[5]) : 0, end = argc > 5 ? first + 1 : SHAPES;
    if (first < 0 || end > SHAPES) return 2;
    for (int i = first; i < end; i++)
        open_problem(&problems[i], shapes[i], level, dtype);
    rounds r;
    for (rounds_begin(&r, m, argc > 4 ? (size_t)atoi(argv[4]) : 9); rounds_next(&r);)
        for (int i = first; i < end; i++)
            time_round(&problems[i], threads);
    for (int i = first; i < end; i++) {
        rounds_keep(&r, &problems[i].seconds);
        print_problem(&problems[i], m);
        close_problem(&problems[i]);
    }
    machine_print(m);
    machine_close(m);
    return 0;
}
