/* How to spread a model over hosts, and what speed to expect: `hadal plan`.
 *
 * A shape cuts the layers into pipeline stages and divides each stage over ranks; every host is one
 * rank of one stage. What a rank holds and does is counted in the module that it would run: each
 * step has its operations and its bytes (inspect/steps.h), each collective its rows. A step takes
 *
 *     max(operations / (rate of its kind of product * share), bytes / (read * share))
 *
 * and besides the time to begin and to wait at the barrier. The shares are what kernels reach of
 * these limits, on this host if `hadal machine` has measured it, or else by a table
 * (inspect/plan_rates.h). `read` is the rate of the caches if they hold all that a pass reads.
 *
 * A collective in which b bytes leave a rank takes latency + b / transport + b / network; a call
 * begins with one of a few bytes, in which the ranks agree on the call. A collective that is
 * overlapped with computing (ir/kernel/overlap.h) is cut into as many tiles as a session chooses,
 * by the same formula (runtime/grid.h). Its latencies and its time on the network run at the same
 * time as kernels; bytes / transport does not, since copying is work of the CPU.
 *
 * Prefill on several stages is a pipeline of chunks. It takes as long as the slowest stage for all
 * chunks and the other stages for one, each with the messages that it sends and receives. Where no
 * chunk size is requested, each shape gets the one that makes its prompt fastest. */
#ifndef INSPECT_PLAN_H
#define INSPECT_PLAN_H

#include "inspect/plan_host.h"
#include "inspect/steps.h"
#include "ir/ir.h"
#include "passes/analysis/crossing.h"

typedef struct plan_step { /* a kernel */
    hd_info_step work;
    hir_dtype matrix; /* type of the matrix, or of the cache that attention reads; else f32 */
    bool other;       /* neither a product with a matrix nor attention */
    bool local;       /* its rows are those of the rank alone */
    bool beside;      /* may run while a collective is under way, as part of an overlap */
} plan_step;

typedef struct plan_crossing {
    hir_crossing x;
    bool beside; /* part of an overlap */
} plan_crossing;

/* What one rank of a pipeline stage holds and does. */
typedef struct plan_stage {
    const hir_module *m; /* has the number of ranks, and from how many tokens on they divide rows */
    HD_VEC(plan_step) steps;
    HD_VEC(plan_crossing) crossings;
    int64_t tiles;   /* of overlaps; 1: nothing is overlapped, 0: as many as pay */
    bool int8, bf16; /* activations may be rounded to these types where that is faster */
    uint64_t weight_bytes;
    uint64_t pair_bytes;                     /* of scores, per row of a call and position */
    uint64_t state_bytes, fixed_state_bytes; /* per position; of fixed size */
    uint64_t arena_per_token, local_per_token, fixed_bytes; /* per row of a call, of a rank; once */
    int64_t runs;                                           /* layer ranges; 0 means 1 */
    uint64_t arena_kept, local_kept; /* of both arenas, what each chunk in flight has for itself */
    double prompt; /* seconds of this stage for all chunks of the prompt; set by plan_predict */
} plan_stage;

enum { PLAN_SHORTEST_CHUNK = 128 }; /* the shortest tried; longer ones are it times powers of two */

typedef struct plan_call {    /* the call that is predicted */
    int64_t prompt, position; /* tokens of the prefill; tokens cached when one is decoded */
    int64_t chunk;            /* 0: the best for each shape */
} plan_call;

/* Seconds of a call by the limit that holds it up. Of two things that run at the same time only the
 * longer one counts. */
typedef struct plan_time {
    double arithmetic, memory, overhead, latency, network;
    double hidden; /* in none of the others: time that ran under something longer */
} plan_time;

typedef struct plan_shape {
    int64_t ranks, stages;
    HD_VEC(plan_stage) stage;
    const char *rejected; /* why the model has no such shape; NULL: the rest is filled */
    int64_t chunk;        /* the most tokens of a pass */
    /* of the host with the most of them */
    uint64_t weight_bytes, state_bytes, arena_bytes, bytes;
    bool fits;
    double prefill_crossing, decode_crossing; /* bytes per token that leave the busiest host */
    plan_time prefill, decode;                /* of the whole prompt; of one token */
    double prefill_rate, decode_rate;         /* tokens per second */
} plan_shape;

typedef struct plan {
    const char *model;
    plan_host host;
    plan_call call;
    HD_VEC(plan_shape) shapes;
    size_t best_prefill, best_decode; /* indices of shapes that fit; shapes.n: none does */
} plan;

/* Fills what is derived from the stages of each shape. */
void plan_predict(plan *p);
double plan_time_all(plan_time t);
const char *plan_binds(plan_time t); /* the largest part: "arithmetic", "memory", .. */

void plan_text(const plan *p, hd_text *out);
void plan_json(const plan *p, hd_text *out);

#endif
