/* What the machine can do at this moment: bandwidths and multiply-add rate, measured in short loops
 * between executions of what is being benchmarked. On a shared host the limits move by a factor of
 * two within seconds; a share of a limit only means something if both were measured side by side.
 *
 *   machine *m = machine_open(2);
 *   for (...) { machine_sample(m); measure(); }
 *   machine_limit(m, LIMIT_READ) */
#ifndef API_MACHINE_H
#define API_MACHINE_H

#include <stdint.h>

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
    L(LOADS, "multiply-add with loads", STREAM_LOADS, 0)                                           \
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

/* Allocates 160 MB for each of `threads` OpenMP threads, all of which are used until machine_use
 * says otherwise. NULL: there is no memory. */
machine *machine_open(int threads);
void machine_close(machine *m);            /* NULL is allowed */
void machine_use(machine *m, int threads); /* at most those of machine_open; forgets all samples */
/* Measures with vectors of at most so many floats, as code of a CPU level has them; forgets all
 * samples. */
void machine_use_vectors(machine *m, unsigned lanes);
/* The same, with the dot products and the matrix unit of these features (HRT_CPU_*) alone. */
void machine_use_features(machine *m, unsigned lanes, uint64_t features);
/* From now on all ranks sample together and get the same figures: those of the slowest rank, for
 * which the others wait, or the mean of ranks that take turns on the same CPUs. Ranks of one
 * machine share its CPUs, memory and caches; what that leaves to each rank is seen only while all
 * of them do the same. All ranks make the same calls. Once a collective has failed there are no
 * more samples. */
void machine_share(machine *m, const hadal_comm *c, int64_t timeout_ns);
int machine_threads(const machine *m);    /* the number set by machine_use */
bool machine_is_shared(const machine *m); /* was machine_share called? */
/* One figure for a share that all ranks have measured at once, formed as for limits; 0: some rank
 * has none. Without other ranks it is `mine`. */
double machine_of_ranks(const machine *m, double mine);
/* Runs the loop of every limit once, about 60 ms in total. Call it once a round, at the round's
 * end. */
void machine_sample(machine *m);
/* The rate of multiply-adds with loads at this moment, measured in 2 ms: how much of the machine this
 * process has. The multiply-adds alone take two of the four to six instructions that a core begins
 * in a cycle, and lose nothing to another thread of the core; what kernels execute does. */
double machine_pulse(machine *m);
/* Seconds of a barrier of the threads, as in a generated library. */
double machine_barrier(const machine *m);
/* How many bytes the caches hold of a larger area that all threads read repeatedly, each its part,
 * and at what rate; 0: no cache is faster than memory. A guest of a virtual machine may have less
 * of a cache than its CPU states, and ranks of one machine share it. Takes some 0.3 s. */
typedef struct machine_cache {
    double bytes, rate; /* rate: bytes/s */
} machine_cache;
machine_cache machine_measure_cache(machine *m);
/* How many bytes one core has in flight from memory while it reads and the others are idle: its
 * rate times the latency of a read that waits for the one before (Little's law). 0: there is no
 * memory. Takes some 0.3 s. */
typedef struct machine_flight {
    double rate, latency; /* bytes/s, seconds */
} machine_flight;
machine_flight machine_measure_flight(machine *m);
void machine_forget(machine *m);                             /* forgets all samples */
void machine_keep(machine *m, const bool *kept, size_t all); /* of some rounds, as keep_samples */
/* The median since the last machine_forget. Bandwidths are bytes/s, read and written bytes counted,
 * without the reads that a cache makes before it writes. FMA, LOADS, DOTS and BYTES (vdpbf16ps, vpdpbusd)
 * and TILES (the matrix unit) are operations/s; a multiply-add counts as two. 0: the machine has no
 * such unit that this process may use. */
double machine_limit(const machine *m, limit l);
/* The rate that a share `q` of these samples lies below. */
double machine_quantile(const machine *m, limit l, double q);
/* The share of its cores that this process had, at most 1: the rate of multiply-adds with loads over
 * that without them, which are equal on a core that has no other work. A guest of a virtual machine
 * cannot see that another one runs on the same core. */
double machine_of_cores(const machine *m);
/* The last sample; 0: there is none. */
double machine_latest(const machine *m, limit l);
/* How much the samples differ, and how far the machine has slowed down or sped up meanwhile, by the
 * functions of api/stats.h; 0: there are no samples. */
double machine_spread(const machine *m, limit l);
double machine_drift(const machine *m, limit l);
const char *machine_limit_name(limit l); /* "memory read" */
/* Runs `turns` times four independent products of tiles, each 16 x 16 x 32 in bf16 or 16 x 16 x 64
 * in bytes, and returns how many turns were run. Only where the process may use tiles. Ends after
 * 20 ms, which an emulated unit would exceed many times. */
int64_t machine_tile_products(bool of_bytes, int64_t turns);
enum { MACHINE_TILE_FLOPS = 4 * 2 * 16 * 16 * 32 }; /* of a turn in bf16; in bytes twice as many */
/* Runs so many turns of independent multiply-adds in vectors of `lanes` floats (4 or more), which
 * the CPU must have. Returns the number of operations. */
double machine_multiply_adds(int lanes, int64_t turns);
/* The multiply-adds per second, counted as two operations each, of so many threads with vectors of at
 * most `lanes` floats. Takes some 2 ms. */
double machine_multiply_add_rate(int threads, unsigned lanes);
/* Prints the limits as lines of text. */
void machine_describe(const machine *m, hd_text *out);
/* Prints date, CPU, number of CPUs and load. */
void machine_describe_host(hd_text *out);

/* Rounds of measurements. On a busy machine several threads wait for each other's turns on the
 * CPUs, and such a round shows nothing: rounds with a pulse below 0.85 of the best one (`threshold`)
 * do not count. Rounds continue until enough of them count, or six times as many have been tried. The
 * limits are sampled before the first round and after each.
 *
 *   rounds r;
 *   rounds_begin(&r, m, 9);
 *   while (rounds_next(&r)) { sample(&a, ...); ... }
 *   rounds_keep(&r, &a); ... */
typedef struct rounds {
    machine *m;
    size_t wanted, n;
    /* The lowest pulse of a round that counts, as a share of the best one. rounds_begin sets it to
     * 0.85; a caller may raise it. */
    double threshold;
    double pulse[SAMPLES]; /* the lower one of those before and after the round */
    bool kept[SAMPLES];
    size_t n_kept;
} rounds;

void rounds_begin(rounds *r, machine *m, size_t wanted);
bool rounds_next(rounds *r);                   /* false: done; samples the limits in between */
void rounds_keep(const rounds *r, samples *s); /* one sample per round, in order */

#endif
