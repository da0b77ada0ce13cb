/* The monotonic clock: the same for the runtime, communication between ranks, and the tool. */
#ifndef HD_CLOCK_H
#define HD_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t hd_nanoseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline double hd_seconds(void) {
    return 1e-9 * (double)hd_nanoseconds();
}

#endif
