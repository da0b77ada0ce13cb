/* The frame of benchmarks of one kind of kernel: arguments, rounds in which all shapes take turns,
 * and calls on all threads. Each call has its own state, so that no call finds what it reads in a
 * cache. */
#ifndef BENCH_KERNEL_MAIN_H
#define BENCH_KERNEL_MAIN_H

#include <omp.h>

#include "bench/kernel.h"
#include "bench/machine.h"

typedef struct kernel_runs { /* the first member of each problem */
    bench b;                 /* made by the frame, which also makes and frees scratch memory */
    compiled c;
    int64_t copies;  /* copies of the state; a round calls the kernel once with each */
    samples seconds; /* of a call */
    char *scratch[MOST_THREADS];
    char *shared; /* scratch memory of all threads; NULL: the kernel needs none */
} kernel_runs;

typedef struct kernel_bench {
    int shapes, rounds;    /* rounds: the default */
    size_t problem;        /* size of a problem in bytes */
    const char *stored[2]; /* words before and after the type of the state */
    /* compiles the kernel, sets the number of copies, and makes what they read */
    void (*open)(void *problem, int shape, const hcg_level *level, hir_dtype dtype);
    /* makes a thread's share of a call */
    void (*call)(const void *problem, int64_t copy, int index, int count);
    void (*print)(const void *problem, const machine *m);
    void (*close)(void *problem);
} kernel_bench;

/* ---- what problems are made of --------------------------------------------------------------- */

/* The number of copies, each of so many bytes, that no cache holds together; at most `most`. */
static inline int64_t kernel_copies(size_t bytes, size_t cold, int64_t most) {
    const int64_t n = (int64_t)(cold / bytes) + 1;
    return n < most ? n : most;
}

static inline hir_ref kernel_cache(bench *b, const char *name, hir_type type) {
    const hir_id v = hir_add_input(b->m, name, type);
    hir_value_at(b->m, v)->place = HIR_PLACE_STATE;
    hir_value_at(b->m, v)->offset = hir_add_state(b->m, name, HIR_STATE_CACHE, type, HD_NOWHERE);
    return hir_value_ref(v);
}

/* An empty kernel that reads along a cache, shared among threads as given. */
static inline hir_id kernel_sequence(bench *b, const hir_type *to, const char *decode,
                                     const char *prefill, int64_t grain) {
    hir_builder top = hir_at_end(b->m, &b->diags);
    const hir_attr attrs[] = {hir_string(HIR_A_NAME, "sequence0"), hir_string(HIR_A_ROWS, "all"),
                              hir_string(HIR_A_SPLIT_DECODE, decode),
                              hir_string(HIR_A_SPLIT_PREFILL, prefill),
                              hir_int(HIR_A_GRAIN, grain)};
    return hir_build_kernel(&top, HIR_KERNEL_SEQUENCE_OP, attrs, 5, to, 1);
}

/* Allocates memory that the threads of a kernel share, for so many ranges of rows. */
static inline void kernel_share(kernel_runs *k, hir_id kernel, size_t ranges) {
    uint64_t counters, range;
    shared_in_program(&k->b, kernel, &counters, &range);
    const size_t bytes = counters + ranges * range;
    k->shared = memset(new_pages(bytes), 0, bytes);
}

static inline size_t kernel_ranges(int64_t rows) {
    return (size_t)(rows + HRT_KEYS - 1) / HRT_KEYS;
}

/* ---- a thread's share of a call -------------------------------------------------------------- */

static inline hrt_frame kernel_frame(const kernel_runs *k, int64_t t, int64_t past, int index) {
    hrt_frame frame = {.T = t, .C = t + past, .cap = t + past};
    frame.scratch = k->scratch[index], frame.shared = k->shared;
    return frame;
}

/* Calls the kernel with all rows of the frame and this thread's share of the columns. */
static inline void kernel_columns(const kernel_runs *k, hrt_frame *frame, void *const *args,
                                  int64_t columns, int index, int count) {
    const int64_t from = columns * index / count, to = columns * (index + 1) / count;
    if (from < to) k->c.call(frame, args, 0, frame->T, from, to);
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static inline void kernel_open(const kernel_bench *b, kernel_runs *k, int shape, int threads,
                               const hcg_level *level, hir_dtype dtype) {
    k->b = bench_new();
    bench_start(&k->b);
    b->open(k, shape, level, dtype);
    new_scratch(k->scratch, threads, &k->c);
}

static inline void kernel_close(const kernel_bench *b, kernel_runs *k, int threads) {
    b->close(k);
    free(k->shared);
    free_scratch(k->scratch, threads);
    compiled_free(&k->c);
    bench_free(&k->b);
}

static inline void kernel_round(const kernel_bench *b, kernel_runs *k, int threads) {
    double start = now(threads);
#pragma omp parallel num_threads(threads)
    for (int64_t i = 0; i < k->copies; i++) {
        b->call(k, i, omp_get_thread_num(), omp_get_num_threads());
#pragma omp barrier
    }
    sample(&k->seconds, (now(threads) - start) / (double)k->copies);
}

static inline kernel_runs *kernel_at(const kernel_bench *b, char *problems, int i) {
    return (kernel_runs *)(void *)(problems + (size_t)i * b->problem);
}

static inline int kernel_shapes(const kernel_bench *b, machine *m, int first, int end, int threads,
                                size_t n_rounds, const hcg_level *level, hir_dtype dtype) {
    char *problems = calloc((size_t)b->shapes, b->problem);
    if (!problems) return 2;
    for (int i = first; i < end; i++)
        kernel_open(b, kernel_at(b, problems, i), i, threads, level, dtype);
    rounds r;
    for (rounds_begin_strict(&r, m, n_rounds); rounds_next(&r);)
        for (int i = first; i < end; i++)
            kernel_round(b, kernel_at(b, problems, i), threads);
    for (int i = first; i < end; i++) {
        kernel_runs *k = kernel_at(b, problems, i);
        rounds_keep(&r, &k->seconds);
        b->print(k, m);
        kernel_close(b, k, threads);
    }
    free(problems);
    return 0;
}

/* Arguments: LEVEL|best THREADS DTYPE ROUNDS SHAPE */
static inline int kernel_main(const kernel_bench *b, int argc, char **argv) {
    const hcg_level *level = kernel_level(argc > 1 ? argv[1] : "best");
    const int threads = argc > 2 ? atoi(argv[2]) : 1;
    const hir_dtype dtype = kernel_dtype(argc > 3 ? argv[3] : "f32");
    if (!level || threads < 1 || threads > MOST_THREADS) return 2;
    machine *m = machine_open(threads);
    if (!m) return 2;
    machine_use_vectors(m, level->lanes);
    machine_print_host();
    printf("%s, %d threads, %s%s%s\n", level->name, threads, b->stored[0], hir_dtype_name(dtype),
           b->stored[1]);
    const int first = argc > 5 ? atoi(argv[5]) : 0, end = argc > 5 ? first + 1 : b->shapes;
    if (first < 0 || end > b->shapes) return 2;
    const size_t n_rounds = argc > 4 ? (size_t)atoi(argv[4]) : (size_t)b->rounds;
    if (kernel_shapes(b, m, first, end, threads, n_rounds, level, dtype)) return 2;
    machine_print(m);
    machine_close(m);
    return 0;
}

#endif
