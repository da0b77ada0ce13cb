/* Where the threads of a call wait for each other between two steps.
 *
 * A waiter spins first: between the steps of a model the others are a few microseconds behind, and
 * to sleep and be woken takes 5 to 15. It does not spin for ever: when a CPU is taken away by
 * another program, spinning only keeps it from the thread that is waited for. So after a bounded
 * time it sleeps in the kernel (Linux: futex) or gives its turn away (elsewhere), and a wait that
 * ended in sleep halves the time that this thread spins next, down to a floor.
 *
 * The counter that all change and the word that all watch have a cache line each. */
#ifndef HRT_BARRIER_H
#define HRT_BARRIER_H

#include <stdatomic.h>
#include <stdint.h>

#include "runtime/prefetch.h"

enum { HRT_LINE = 64, HRT_SPIN_MOST = 200000, HRT_SPIN_LEAST = 2000 }; /* bytes; nanoseconds */

typedef struct hrt_barrier {
    _Alignas(HRT_LINE) atomic_uint arrived; /* of the threads, since the last opening */
    _Alignas(HRT_LINE) atomic_uint opened;  /* times */
    _Alignas(HRT_LINE) atomic_uint sleepers;
} hrt_barrier; /* all zero: ready */

/* A thread's own: how long it spins, in nanoseconds. */
typedef struct hrt_patience {
    uint64_t spin;
} hrt_patience;

/* Returns once `threads` threads have called it, the same number in all; what any of them wrote
 * before, all see after. Who waits asks for what is `ahead` (NULL: nothing is). */
void hrt_barrier_wait(hrt_barrier *b, unsigned threads, hrt_patience *p, hrt_prefetch *ahead);

#endif
