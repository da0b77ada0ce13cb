/* The frame of benchmarks of kernels of one form: arguments, rounds in which all shapes take turns,
 * and calls on all threads, each on state of its own, so that no call finds what it reads in a
 * cache. */
#ifndef BENCH_KERNEL_MAIN_H
#define BENCH_KERNEL_MAIN_H

#include <omp.h>

#include "bench/kernel.h"
#include "bench/machine.h"

enum { MOST_THREADS = 64 };

typedef struct kernel_runs { /* what each problem begins with */
    int64_t copies;          /* of the state, each of which a round calls the kernel with */
    samples seconds;         /* of a call */
} kernel_runs;

typedef struct kernel_bench {
    int shapes, rounds;    /* rounds: unless the arguments say */
    size_t problem;        /* bytes */
    const char *stored[2]; /* words around the type that state is stored in */
    void (*open)(void *problem, int shape, const hcg_level *level, hir_dtype dtype);
    void (*call)(const void *problem, int64_t copy, int index, int count); /* a thread's share */
    void (*print)(const void *problem, const machine *m);
    void (*close)(void *problem);
} kernel_bench;

static inline void kernel_round(const kernel_bench *b, kernel_runs *p, int threads) {
    double start = now(threads);
#pragma omp parallel num_threads(threads)
    for (int64_t i = 0; i < p->copies; i++) {
        b->call(p, i, omp_get_thread_num(), omp_get_num_threads());
#pragma omp barrier
    }
    sample(&p->seconds, (now(threads) - start) / (double)p->copies);
}

static inline int kernel_shapes(const kernel_bench *b, machine *m, int first, int end, int threads,
                                size_t n_rounds, const hcg_level *level, hir_dtype dtype) {
    char *problems = calloc((size_t)b->shapes, b->problem);
    if (!problems) return 2;
    for (int i = first; i < end; i++)
        b->open(problems + (size_t)i * b->problem, i, level, dtype);
    rounds r;
    for (rounds_begin(&r, m, n_rounds); rounds_next(&r);)
        for (int i = first; i < end; i++)
            kernel_round(b, (kernel_runs *)(void *)(problems + (size_t)i * b->problem), threads);
    for (int i = first; i < end; i++) {
        kernel_runs *p = (kernel_runs *)(void *)(problems + (size_t)i * b->problem);
        rounds_keep(&r, &p->seconds);
        b->print(p, m);
        b->close(p);
    }
    free(problems);
    return 0;
}

/* LEVEL|best THREADS DTYPE ROUNDS SHAPE */
static inline int kernel_main(const kernel_bench *b, int argc, char **argv) {
    const hcg_level *level = kernel_level(argc > 1 ? argv[1] : "best");
    const int threads = argc > 2 ? atoi(argv[2]) : 1;
    const hir_dtype dtype = kernel_dtype(argc > 3 ? argv[3] : "f32");
    if (!level || threads < 1 || threads > MOST_THREADS) return 2;
    machine *m = machine_open(threads);
    if (!m) return 2;
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
