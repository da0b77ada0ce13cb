/* What the walk over the steps of a call (run.c) shares with the part of it that runs while
 * collectives are under way (overlap.c). */
#ifndef HRT_WALK_H
#define HRT_WALK_H

#include "runtime/barrier.h"
#include "runtime/internal.h"
#include "runtime/prefetch.h"
#include "runtime/profile.h"

typedef struct hrt_span {
    int64_t from, to;
} hrt_span;

/* The counters of a step. */
typedef hrt_counter hrt_counters[HRT_QUEUES];

typedef struct hrt_worker { /* one thread of a call */
    int index, count;
    hrt_counters *counters; /* [2], shared by all threads (hrt_next_counters) */
    uint32_t turns;         /* of how many steps the call has used counters */
    hrt_frame frame;
    const hrt_place
        *whole;            /* the chunk of which the rows at hand are a tile; NULL: they are none */
    int64_t prefetch_most; /* most bytes of weights to prefetch for a step */
    int64_t collectives;   /* collectives of the call so far, and barriers after collectives of
                            * tiles */
    void **args;
    hrt_patience patience;
    hrt_prefetch ahead;
    hrt_stopwatch watch;
} hrt_worker;

/* Counters at 0, for one step. Steps use the two sets of counters alternately, and a barrier follows
 * each step: the other set is no longer used, and will not be used before the next barrier, so it is
 * cleared meanwhile. */
static inline hrt_counter *hrt_next_counters(hrt_worker *w) {
    const uint32_t turn = w->turns++;
    hrt_counter *other = w->counters[(turn + 1) % 2];
    for (int i = 0; w->index == 0 && i < HRT_QUEUES; i++)
        atomic_store_explicit(&other[i].next, 0, memory_order_relaxed);
    return w->counters[turn % 2];
}

/* How a collective ended, for all threads: its number in the call in the upper bits, the
 * hadal_comm_result in the lower ones. Thread 0 may already be at the next collective when other
 * threads read the result of this one. */
typedef _Atomic int64_t hrt_outcome;
enum { HRT_CODE_BITS = 8 };

static inline void hrt_set_failed(hrt_outcome *o, int64_t number, int code) {
    if (code) atomic_store_explicit(o, number << HRT_CODE_BITS | code, memory_order_relaxed);
}

static inline bool hrt_has_failed(const hrt_outcome *o, int64_t number) {
    const int64_t at = atomic_load_explicit(o, memory_order_relaxed);
    return at != 0 && at >> HRT_CODE_BITS == number;
}

/* What the threads of a call share. The beginning and end of an OpenMP region order their accesses;
 * `begun` and `left` express the same in C11 atomics, which ThreadSanitizer understands. */
typedef struct hrt_team {
    const hrt_job *job;
    hd_machine machine; /* the machine that the call runs on */
    atomic_int begun, left;
    hrt_outcome failed;
    int64_t tiles; /* of this chunk; set by thread 0 */
    hrt_barrier barrier;
    hrt_counters counters[2];
} hrt_team;

/* ---- run.c ---- */
/* Share `index` of `count` nearly equal contiguous shares. */
static inline hrt_span hrt_share(hrt_span all, int64_t index, int64_t count) {
    int64_t n = all.to - all.from, each = n / count, more = n % count;
    int64_t from = all.from + each * index + (index < more ? index : more);
    return (hrt_span){from, from + each + (index < more)};
}
/* Sets the arguments of a step, and what its kernel sees of the rows at hand, to the first row of
 * `at`. */
void hrt_take_step(hrt_worker *w, const hrt_job *j, const hrt_step *step, const hrt_place *at);
void *hrt_operand_base(const hrt_job *j, const hrt_operand *o, const hrt_place *at);
hrt_kernel *hrt_step_kernel(const hrt_job *j, const hrt_step *step, int64_t tokens);
/* Has the step nothing to do in this call? */
bool hrt_is_idle(const hrt_job *j, const hrt_step *step, const hrt_place *all,
                 const hrt_place *mine);
/* Waits for the other threads; returns at once where there are none. */
void hrt_team_barrier(hrt_worker *w, hrt_team *c);

/* ---- overlap.c ---- */
/* Runs the steps of the overlap for the chunk `all`, of which this rank has `mine`. False: a
 * collective has failed; all threads return the same. */
bool hrt_run_overlap(hrt_worker *w, hrt_team *c, const hrt_overlap *o, const hrt_place *all,
                     const hrt_place *mine);

#endif
