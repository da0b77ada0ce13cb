/* `hadal bench`: what is measured and how it is told. */
#ifndef API_BENCH_H
#define API_BENCH_H

#include "api/machine.h"
#include "api/session.h"

typedef struct bench_load { /* of one model */
    const char *model, *types;
    uint64_t weights_bytes;            /* of the file */
    double open_seconds, init_seconds; /* weights_open, session_init: medians */
    uint64_t session_bytes;            /* for the longest sequence measured */
    int64_t session_tokens;
} bench_load;

typedef struct bench_row { /* one model in one configuration */
    const char *model, *types;
    bool decode;
    int64_t past, tokens; /* in the caches before the call, of the call */
    int threads;
    size_t rounds, tried; /* that count, that were run */
    double seconds, spread;
    double flops, bytes;                       /* that a call has to do and to move */
    double fma, fma_spread, read, read_spread; /* limits at the same time: FLOP/s, bytes/s */
    double fma_drift, read_drift;              /* between their first and second half */
    uint64_t resident; /* growth of the process since before the library was opened; 0: unknown */
    /* of two models in turn, on the first one's row: its time over the other's, by pairs */
    bool paired;
    double ratio, ratio_low, ratio_high; /* median and quartiles */
} bench_row;

/* A limit that moved by more than this while it was measured says that the machine was busy. */
#define BENCH_DRIFT 0.15
static inline bool bench_was_busy(const bench_row *r) {
    return r->fma_drift > BENCH_DRIFT || r->read_drift > BENCH_DRIFT;
}

typedef struct bench_state {
    hd_arena *arena;
    machine *m;
    const int64_t *prefill, *decode;
    const int *threads;
    size_t n_prefill, n_decode, n_threads, rounds;
    void (*print)(void *context, const char *text);
    void *context;
    const char *host;
    size_t width; /* of the column of names */
    HD_VEC(bench_load) loads;
    HD_VEC(bench_row) rows;
} bench_state;

/* bench_text.c: as a table, line by line through b->print; and all of it as JSON. */
void bench_print_models(bench_state *b, const bench_load *loads, size_t n);
void bench_print_rows(bench_state *b, const bench_row *rows, size_t n);
void bench_json(const bench_state *b, hd_text *out);
/* Most memory that the process ever had resident (VmHWM), bytes; 0: unknown. */
uint64_t bench_peak_resident(void);

#endif
