/* How to spread a model over hosts, and what to expect of that: `hadal plan`.
 *
 * A shape cuts the layers into stages and each stage over ranks; every host is one rank of one
 * stage. What a rank holds and does is counted in the module that it would run: each step has its
 * operations and its bytes (inspect/steps.h), each exchange its rows. A step takes
 *
 *     max(operations / (rate of its kind of product * share), bytes / (read * share))
 *
 * where the shares are what kernels reach of these limits (inspect/plan_shares.def); an exchange of
 * b bytes that leave a rank takes latency + b / network. Prefill of several stages is a pipeline of
 * chunks: as long as the slowest stage takes for all chunks, and the others for one. */
#ifndef INSPECT_PLAN_H
#define INSPECT_PLAN_H

#include "inspect/plan_host.h"
#include "inspect/steps.h"
#include "ir/ir.h"

/* How the rows that ranks of a stage hold relate to what crosses. */
typedef enum plan_exchange {
    PLAN_NO_EXCHANGE,
    PLAN_ALL_REDUCE,     /* all rows, summed: 2 (P - 1) / P of them leave a rank */
    PLAN_REDUCE_SCATTER, /* (P - 1) / P of the rows leave a rank */
    PLAN_ALL_GATHER,     /* the same */
    PLAN_SEND            /* all rows of a rank, to the next stage */
} plan_exchange;

typedef struct plan_step {
    step_info work;    /* of all rows of a call, or */
    bool rows_of_rank; /* of those of the rank alone */
    hir_dtype matrix;  /* what it multiplies with; f32 where it multiplies with none */
    plan_exchange exchange;
    uint64_t crossing_row_bytes; /* of an exchange: of one row of all ranks together */
} plan_step;

/* What one rank of a stage holds and does. */
typedef struct plan_stage {
    HD_VEC(plan_step) steps;
    uint64_t weight_bytes;
    uint64_t state_bytes, fixed_state_bytes; /* for each position; of fixed size */
    uint64_t arena_per_token, fixed_bytes;
} plan_stage;

typedef struct plan_call {    /* what rates are asked for */
    int64_t prompt, position; /* tokens of a prefill; cached when a token is decoded */
    int64_t chunk;
    bool rounded; /* bf16 weights meet activations rounded to bf16 */
} plan_call;

/* Seconds of a call by what holds it up. */
typedef struct plan_time {
    double arithmetic, memory, latency, network;
} plan_time;

typedef struct plan_shape {
    int64_t ranks, stages;
    HD_VEC(plan_stage) stage;
    const char *refused; /* why the model has no such shape; NULL: the rest is filled */
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
