/* In which order a stage of a pipeline does its runs of layers for the chunks of a call.
 *
 * A stage with one run does all of it for a chunk, sends it on, and goes on with the next chunk:
 * that fills the pipeline. With several runs a chunk comes back to a stage V times. If it were done
 * to the end before the next one began, only one stage would compute at a time. So the chunks go in
 * groups of as many as there are stages, and a stage does run v of all chunks of the group before
 * run v + 1 of any (the interleaved schedule of Megatron-LM, forward passes alone):
 *
 *     2 stages of 2 runs, 4 chunks; v.c: run v of chunk c
 *
 *     time       0    1    2    3    4    5    6    7    8
 *     stage 0   0.0  0.1  1.0  1.1  0.2  0.3  1.2  1.3
 *     stage 1        0.0  0.1  1.0  1.1  0.2  0.3  1.2  1.3
 *
 * Stage s does at time t what stage 0 does at t - s, so that nothing waits but for the first s
 * times. docs/many-machines.md (The turns of a pipeline) proves that no two stages wait for each
 * other, with a transport that holds no message, whatever the numbers are. */
#ifndef HRT_PIPELINE_H
#define HRT_PIPELINE_H

#include <stdbool.h>
#include <stdint.h>

/* Of a call. */
typedef struct hrt_pipeline {
    int64_t stages, runs, chunks;
    int64_t flight; /* chunks in flight, at most: 1 .. stages */
    int64_t stage;  /* this one */
} hrt_pipeline;

typedef struct hrt_turn { /* a run of a chunk */
    int64_t run, chunk;
} hrt_turn;

/* What a stage does one after the other: of a turn it receives, computes and sends. Stages of odd
 * number receive for a turn before they send what the one before has made, where the two follow
 * each other without a pause. Their neighbours send first, so that each message finds somebody who
 * receives. */
typedef enum hrt_doing { HRT_RECEIVES, HRT_COMPUTES, HRT_SENDS } hrt_doing;

typedef struct hrt_turns { /* from { p, 0 } on */
    hrt_pipeline p;
    hrt_turn now, next;
    int at;
    bool more, receives_first;
} hrt_turns;

/* Chunks in flight of a stage with several runs, in calls of so many tokens. */
static inline int64_t hrt_chunks_in_flight(int64_t tokens, int64_t chunk, int64_t stages) {
    const int64_t chunks = (tokens + chunk - 1) / chunk;
    return chunks < stages ? chunks : stages;
}

/* What comes next; false: nothing. */
bool hrt_next(hrt_turns *t, hrt_doing *doing, hrt_turn *turn);

/* Which of the chunks in flight it is. */
int64_t hrt_slot_of(const hrt_pipeline *p, int64_t chunk);

#endif
