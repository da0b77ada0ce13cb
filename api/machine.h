/* What the machine can do at this moment: bandwidths and multiply-add rate, measured in short runs
 * between those of the thing that is being benchmarked. On a shared host the limits move by a
 * factor of two within seconds; a share of a limit only means something if both were measured side
 * by side.
 *
 *   machine *m = machine_open(2);
 *   for (...) { machine_sample(m); measure(); }
 *   machine_limit(m, LIMIT_READ)
 */
#ifndef API_MACHINE_H
#define API_MACHINE_H

#include "api/stats.h"
#include "hadal/hadal_comm.h"
#include "support/text.h"

/* L(ENUM, "name", loop, bytes per thread) */
#define MACHINE_LIMITS(L)                                                                          \
    L(READ, "memory read", STREAM_MEMORY, 64 << 20)                                                \
    L(COPY, "memory copy", STREAM_COPY, 64 << 20)                                                  \
    L(TRIAD, "memory triad", STREAM_TRIAD, 96 << 20)                                               \
    L(L3, "4 MB read", STREAM_READ, 4 << 20)                                                       \
    L(L2, "512 KB read", STREAM_READ, 512 << 10)                                                   \
    L(L1, "16 KB read", STREAM_READ, 16 << 10)                                                     \
    L(FMA, "f32 multiply-add", STREAM_FMA, 0)                                                      \
    L(DOTS, "bf16 dots", STREAM_DOTS, 0)                                                           \
    L(BYTES, "int8 dots", STREAM_BYTES, 0)                                                         \
    L(TILES, "bf16 tile products", STREAM_TILES, 0)

typedef enum limit {
#define L(id, name, kind, bytes) LIMIT_##id,
    MACHINE_LIMITS(L)
#undef L
        LIMIT_COUNT
} limit;

typedef struct machine machine;

/* Room for `threads` OpenMP threads, each with 160 MB of its own, all of which are used until
 * machine_use says otherwise. NULL: no memory. */
machine *machine_open(int threads);
void machine_close(machine *m);            /* NULL is allowed */
void machine_use(machine *m, int threads); /* 1 to those that have memory; forgets all samples */
/* From now on all ranks sample together, and have the same figures: those of the slowest, for which
 * the others wait, or the mean of ranks that take turns on the same CPUs. Ranks of one machine
 * share its CPUs, its memory and its caches; what that leaves to each is seen only while all of
 * them do the same. All make the same calls. Once an exchange has failed there are no more samples.
 */
void machine_share(machine *m, const hadal_comm *c, int64_t timeout_ns);
int machine_threads(const machine *m);    /* those of machine_use */
bool machine_is_shared(const machine *m); /* by machine_share */
/* Of shares that all ranks have measured at once, the figure for all of them, as for limits; 0:
 * some rank has none. Alone: its own. */
double machine_of_ranks(const machine *m, double mine);
/* One short run of every limit, about 60 ms. Once a round, at its end. */
void machine_sample(machine *m);
/* The multiply-add rate at this moment, in 2 ms: how much of the machine we have. */
double machine_pulse(machine *m);
/* Seconds that the threads take to wait for each other, as those of a generated library do. */
double machine_barrier(const machine *m);
/* What caches hold of more that is read again and again, by all threads together, each its part; 0:
 * no cache is faster than memory. A guest of a virtual machine may have less of a cache than its
 * CPU says, and ranks of one machine share it. Some 0.3 s. */
typedef struct machine_cache {
    double bytes, rate; /* rate: bytes/s */
} machine_cache;
machine_cache machine_measure_cache(machine *m);
/* What one core has on its way from memory while it reads, the others idle: its rate times the time
 * that one read takes which waits for the one before (Little's law). 0: no memory. Some 0.3 s. */
typedef struct machine_flight {
    double rate, latency; /* bytes/s, seconds */
} machine_flight;
machine_flight machine_measure_flight(machine *m);
void machine_forget(machine *m);                             /* all samples */
void machine_keep(machine *m, const bool *kept, size_t all); /* rounds, as keep_samples */
/* Median since the last machine_forget: bytes/s, read and written counted, without the reads that
 * a cache makes before it writes; FMA, DOTS and BYTES (vdpbf16ps, vpdpbusd) and TILES (the matrix
 * unit): operations/s, an addition and a multiplication each one. 0: there is none that this
 * process may use. */
double machine_limit(const machine *m, limit l);
/* The last sample; 0: there is none. */
double machine_latest(const machine *m, limit l);
/* How restless the machine was, and how far it has slowed down or sped up: api/stats.h of the
 * samples; 0: there are none. */
double machine_spread(const machine *m, limit l);
double machine_drift(const machine *m, limit l);
const char *machine_limit_name(limit l); /* "memory read" */
/* `turns` times four independent products of tiles, of bf16 16 x 16 x 32 each, of bytes 16 x 16 x
 * 64; only where the process may use tiles. Ends after 20 ms, which an emulated unit would fill
 * many times; how many turns there were. */
int64_t machine_tile_products(bool of_bytes, int64_t turns);
enum { MACHINE_TILE_FLOPS = 4 * 2 * 16 * 16 * 32 }; /* of a turn; of bytes twice as many */
/* So many turns of independent multiply-adds in vectors of `lanes` floats (4 or more), which the CPU must have;
 * how many operations those were. */
double machine_multiply_adds(int lanes, int64_t turns);
/* Limits as lines of text. */
void machine_describe(const machine *m, hd_text *out);
/* Date, CPU, number of CPUs, load. */
void machine_describe_host(hd_text *out);

/* Rounds of measurements. Several threads on a busy machine wait for each other's turns on the
 * CPUs, and tell nothing: rounds with a pulse below 0.85 of the best one do not count. Goes on
 * until enough rounds count, or six times as many have been tried. The limits are sampled before
 * the first round and after each.
 *
 *   rounds r;
 *   rounds_begin(&r, m, 9);
 *   while (rounds_next(&r)) { sample(&a, ...); ... }
 *   rounds_keep(&r, &a); ...
 */
typedef struct rounds {
    machine *m;
    size_t wanted, n;
    double pulse[SAMPLES]; /* the lower one of before and after */
    bool kept[SAMPLES];
    size_t n_kept;
} rounds;

void rounds_begin(rounds *r, machine *m, size_t wanted);
bool rounds_next(rounds *r);                   /* false: done; samples the limits in between */
void rounds_keep(const rounds *r, samples *s); /* one sample a round, in order */

#endif
