/* A benchmark in progress (hadal_bench_begin). */
#ifndef API_BENCH_H
#define API_BENCH_H

#include "api/machine.h"
#include "api/session.h"
#include "inspect/bench.h"

typedef struct bench_state {
    hd_arena *arena;
    machine *m;
    const int64_t *prefill, *decode;
    const int *threads;
    size_t n_prefill, n_decode, n_threads, rounds;
    const char *cpu_level; /* NULL: the best one */
    void (*print)(void *context, const char *text);
    void *context;
    const char *host; /* lines about it, which come before the first result */
    int width;        /* of the column of names, in the text table */
    bench_results results;
} bench_state;

#endif
