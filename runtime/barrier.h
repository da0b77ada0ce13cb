/* Where the threads of a call wait for each other between two steps.
 *
 * A waiter spins first: between the steps of a model the other threads arrive a few microseconds
 * later, and to sleep and be woken takes 5 to 15. It does not spin for ever: when another program
 * has taken a CPU, spinning may keep that CPU from the very thread that is waited for. So after a
 * bounded time it sleeps in the kernel (Linux: futex) or yields (elsewhere), and a wait that ended
 * in sleep halves the time that this thread spins next, down to a floor.
 *
 * The counter that all change and the word that all watch have a cache line each. */
#ifndef HRT_BARRIER_H
#define HRT_BARRIER_H

#include <stdatomic.h>
#include <stdint.h>

#include "runtime/prefetch.h"

enum { HRT_SPIN_MOST = 200000, HRT_SPIN_LEAST = 2000 }; /* nanoseconds */

typedef struct hrt_barrier {
    _Alignas(HRT_LINE) atomic_uint arrived; /* threads that arrived since the last opening */
    _Alignas(HRT_LINE) atomic_uint opened;  /* how often the barrier has opened */
    _Alignas(HRT_LINE) atomic_uint sleepers;
} hrt_barrier; /* all zero: ready */

/* The state of one thread: how long it spins before it sleeps, in nanoseconds. */
typedef struct hrt_patience {
    uint64_t spin;
} hrt_patience;

/* Returns once `threads` threads have called it; all of them pass the same `threads`. What any of
 * them wrote before the call, all see after it. A thread that waits prefetches what `ahead` lists
 * (NULL: nothing). */
void hrt_barrier_wait(hrt_barrier *b, unsigned threads, hrt_patience *p, hrt_prefetch *ahead);

#endif
