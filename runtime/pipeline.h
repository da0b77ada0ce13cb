/* The order in which a pipeline stage computes its layer ranges for the chunks of a call.
 *
 * A stage with one layer range computes all of it for a chunk, sends the result on, and continues
 * with the next chunk: that fills the pipeline. With V layer ranges (`runs`; virtual pipeline
 * stages) a chunk comes back to a stage V times. If one chunk were finished before the next one
 * began, only one stage would compute at a time. So the chunks form groups of as many as there are
 * stages, and a stage computes range v of all chunks of the group before range v + 1 of any (the
 * interleaved schedule of Megatron-LM, forward passes alone):
 *
 *     2 stages of 2 ranges, 4 chunks; v.c: range v of chunk c
 *
 *     time       0    1    2    3    4    5    6    7    8
 *     stage 0   0.0  0.1  1.0  1.1  0.2  0.3  1.2  1.3
 *     stage 1        0.0  0.1  1.0  1.1  0.2  0.3  1.2  1.3
 *
 * Stage s does at time t what stage 0 does at t - s, so that no stage waits except during its first
 * s time units. docs/many-machines.md (The turns of a pipeline) proves that no two stages deadlock,
 * even with a transport that buffers no message, for any number of stages, ranges and chunks. */
#ifndef HRT_PIPELINE_H
#define HRT_PIPELINE_H

#include <stdbool.h>
#include <stdint.h>

/* The pipeline of one call. */
typedef struct hrt_pipeline {
    int64_t stages, runs, chunks;
    int64_t flight; /* chunks in flight, at most: 1 .. stages */
    int64_t stage;  /* number of this stage */
} hrt_pipeline;

typedef struct hrt_turn { /* one layer range of one chunk */
    int64_t run, chunk;
} hrt_turn;

/* The actions of a stage: for each turn it receives, computes and sends. Stages of odd number
 * receive for a turn before they send the result of the preceding turn, where the two turns follow
 * each other without a pause. Their neighbours, of even number, send first, so that each message
 * finds a stage that receives. */
typedef enum hrt_doing { HRT_RECEIVES, HRT_COMPUTES, HRT_SENDS } hrt_doing;

typedef struct hrt_turns { /* an iterator, initially { p, 0 } */
    hrt_pipeline p;
    hrt_turn now, next;
    int at;
    bool more, receives_first;
} hrt_turns;

/* Chunks in flight of a stage with several layer ranges, in calls of `tokens` tokens. */
static inline int64_t hrt_chunks_in_flight(int64_t tokens, int64_t chunk, int64_t stages) {
    const int64_t chunks = (tokens + chunk - 1) / chunk;
    return chunks < stages ? chunks : stages;
}

/* The next action; false: there is none. */
bool hrt_next(hrt_turns *t, hrt_doing *doing, hrt_turn *turn);

/* Which of the slots of chunks in flight the chunk uses. */
int64_t hrt_slot_of(const hrt_pipeline *p, int64_t chunk);

#endif
