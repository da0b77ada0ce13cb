/* How long each step of a forward took, as the region's first thread sees it.
 *
 * Every thread owns a stopwatch, and only that of thread 0 has a table to write to, and only while
 * a profile is on: otherwise each call here is one branch that is always taken the same way. A lap
 * reads the clock once (20 to 40 ns), so a step costs two readings. */
#ifndef HRT_PROFILE_H
#define HRT_PROFILE_H

#include "runtime/hadal_rt.h"
#include "support/clock.h"

typedef struct hrt_stopwatch {
    hrt_profile_step *steps; /* NULL: no profile is on */
    uint64_t at;             /* end of the last lap, nanoseconds */
} hrt_stopwatch;

/* Nanoseconds since the last lap. */
static inline uint64_t hrt_lap(hrt_stopwatch *w) {
    const uint64_t now = (uint64_t)hd_nanoseconds(), before = w->at;
    w->at = now;
    return now - before;
}

static inline void hrt_watch_start(hrt_stopwatch *w) {
    if (w->steps) (void)hrt_lap(w);
}

/* The thread's own share of step i is done. */
static inline void hrt_watch_work(hrt_stopwatch *w, uint32_t i) {
    if (!w->steps) return;
    w->steps[i].calls++;
    w->steps[i].work_ns += hrt_lap(w);
}

/* The thread continues step i in the same call: this time is added to its own share. */
static inline void hrt_watch_more(hrt_stopwatch *w, uint32_t i) {
    if (w->steps) w->steps[i].work_ns += hrt_lap(w);
}

/* The others' shares are done too. */
static inline void hrt_watch_wait(hrt_stopwatch *w, uint32_t i) {
    if (w->steps) w->steps[i].wait_ns += hrt_lap(w);
}

#endif
