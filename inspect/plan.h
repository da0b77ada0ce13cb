/* How to spread a model over hosts, and what to expect of that: `hadal plan`.
 *
 * A shape cuts the layers into stages and each stage over ranks; every host is one rank of one
 * stage. What a rank holds and does is counted in the module that it would run: each step has its
 * operations and its bytes (inspect/steps.h), each exchange its rows. A step takes
 *
 *     max(operations / (rate of its kind of product * share), bytes / (read * share))
 *
 * where the shares are what kernels reach of these limits, on this host as `hadal machine` has
 * measured it, or as a table has it (inspect/plan_rates.h), and besides
 * what it takes to begin and until the threads have met; `read` is that of caches if they hold all
 * that a pass reads. An exchange of b bytes that leave a rank takes latency + b / transport + b /
 * network, and those of a call begin with one of a few bytes, in which ranks agree on it. What goes
 * on beside computing (ir/kernel/overlap.h) is in as many tiles as a session chooses, by the same
 * formula (runtime/grid.h): of it, latencies and the time on the network go on at once with
 * kernels; bytes / transport do not, since they are work of the CPU. Prefill of several stages is a pipeline
 * of chunks: as long as the slowest stage takes for all chunks, and the others for one; it takes
 * the time of the messages that it sends and of those that it receives. Where no chunk is asked
 * for, each shape has the one that makes its prompt fastest. */
#ifndef INSPECT_PLAN_H
#define INSPECT_PLAN_H

#include "inspect/plan_host.h"
#include "inspect/steps.h"
#include "ir/ir.h"
#include "passes/analysis/crossing.h"

typedef struct plan_step { /* a kernel */
    hd_info_step work;
    hir_dtype matrix; /* what it multiplies with, or what attention has cached; else f32 */
    bool other;       /* neither a product with a matrix nor attention */
    bool local;       /* goes over the rows of the rank */
    bool beside;      /* may go on while rows cross, as part of an overlap */
} plan_step;

typedef struct plan_crossing {
    hir_crossing x;
    bool beside; /* of an overlap */
} plan_crossing;

/* What one rank of a stage holds and does. */
typedef struct plan_stage {
    const hir_module *m; /* how many ranks it has, and when they divide rows */
    HD_VEC(plan_step) steps;
    HD_VEC(plan_crossing) crossings;
    int64_t tiles;   /* of overlaps: 1: none, 0: as many as pay */
    bool int8, bf16; /* activations are rounded to these where that is faster */
    uint64_t weight_bytes;
    uint64_t state_bytes, fixed_state_bytes;                /* for each position; of fixed size */
    uint64_t arena_per_token, local_per_token, fixed_bytes; /* of all rows, of a rank's */
    int64_t runs;                                           /* of layers; 0 means 1 */
    uint64_t arena_kept, local_kept; /* of the arenas, what each chunk in flight has for itself */
    double prompt; /* seconds that all chunks of the prompt take it; filled by plan_predict */
} plan_stage;

enum { PLAN_SHORTEST_CHUNK = 128 }; /* that is tried; longer ones are powers of two times that */

typedef struct plan_call {    /* what rates are asked for */
    int64_t prompt, position; /* tokens of a prefill; cached when a token is decoded */
    int64_t chunk;            /* 0: as each shape likes best */
} plan_call;

/* Seconds of a call by what holds it up; of what goes on at once, the longer. */
typedef struct plan_time {
    double arithmetic, memory, overhead, latency, network;
    double hidden; /* in none of these: went on beside something longer */
} plan_time;

typedef struct plan_shape {
    int64_t ranks, stages;
    HD_VEC(plan_stage) stage;
    const char *rejected; /* why the model has no such shape; NULL: the rest is filled */
    int64_t chunk;        /* tokens of a pass */
    /* of the fullest host */
    uint64_t weight_bytes, state_bytes, arena_bytes, bytes;
    bool fits;
    double prefill_crossing, decode_crossing; /* bytes that leave the busiest host, for a token */
    plan_time prefill, decode;                /* of the prompt; of a token */
    double prefill_rate, decode_rate;         /* tokens per second */
} plan_shape;

typedef struct plan {
    const char *model;
    plan_host host;
    plan_call call;
    HD_VEC(plan_shape) shapes;
    size_t best_prefill, best_decode; /* numbers of shapes that fit; shapes.n: none does */
} plan;

/* Fills what is derived from the stages of each shape. */
void plan_predict(plan *p);
double plan_time_all(plan_time t);
const char *plan_binds(plan_time t); /* the largest of them: "arithmetic", "memory", .. */

void plan_text(const plan *p, hd_text *out);
void plan_json(const plan *p, hd_text *out);

#endif
