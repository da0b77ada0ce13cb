/* What `hadal bench` has measured. */
#ifndef INSPECT_BENCH_H
#define INSPECT_BENCH_H

#include "inspect/views.h"

typedef struct bench_load { /* of one model */
    const char *model, *types;
    const char *load;                  /* mmap or read: how the weights were opened */
    uint64_t weights_bytes;            /* of the weights file */
    double open_seconds, init_seconds; /* of weights_open and of session_init: medians */
    uint64_t session_bytes;            /* of a session for the longest sequence measured */
    int64_t session_tokens;
} bench_load;

typedef struct bench_row { /* one model in one configuration */
    const char *model, *types, *load;
    bool decode;
    int64_t past, tokens; /* tokens in the caches before the call, tokens of the call */
    int threads;
    size_t rounds, tried; /* rounds that count, rounds that were run */
    double seconds, spread;
    /* Seconds of a call whose kernels all run as in the least disturbed tenth, and quarter, of their
     * runs (api/pieces.h); 0: calls were not measured in pieces, as short ones and those of one thread */
    double undisturbed, undisturbed_more;
    double undisturbed_fma, undisturbed_read; /* and limits in the fastest tenth of their samples */
    double flops, bytes;                      /* operations of a call, bytes that it has to move */
    double fma, fma_spread, read, read_spread; /* limits in the same rounds: FLOP/s, bytes/s */
    double fma_drift, read_drift;              /* from the first half of the rounds to the second */
    double of_cores;   /* share of its cores that the process had (machine_of_cores) */
    uint64_t resident; /* growth of the process since before the library was opened; 0: unknown */
    uint64_t huge;     /* of that, what lies in huge pages */
    /* of two models measured in turn, on the row of the first one: its time over the other's, pair
     * by pair */
    bool paired;
    double ratio, ratio_low, ratio_high; /* median and quartiles */
} bench_row;

/* A limit that moved by more than this while it was measured shows that the machine was busy, and so
 * does less than this share of the cores. */
#define BENCH_DRIFT 0.15
#define BENCH_CORES 0.9
static inline bool bench_was_busy(const bench_row *r) {
    return r->fma_drift > BENCH_DRIFT || r->read_drift > BENCH_DRIFT || r->of_cores < BENCH_CORES;
}

typedef struct bench_results {
    const char *host;       /* description of the host in one line */
    uint64_t peak_resident; /* most memory that the process ever had resident; 0: unknown */
    HD_VEC(bench_load) loads;
    HD_VEC(bench_row) rows;
} bench_results;

bool bench_collect(const inspect_subject *s, bench_results *out);
void bench_json(const bench_results *b, hd_text *out);

/* The text table is printed while the benchmark runs: first its head, then the rows of each
 * configuration. The first column is as wide as the longest name. */
int bench_name_width(const bench_load *loads, size_t n);
void bench_loads_text(const bench_load *loads, size_t n, hd_text *out);
void bench_rows_text(const bench_row *rows, size_t n, int width, hd_text *out);

#endif
