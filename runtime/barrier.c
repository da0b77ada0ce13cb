/* The barrier between steps (barrier.h): it counts arrivals and numbers its openings. */
#include "runtime/barrier.h"

#include "support/clock.h"

#if defined(__linux__)
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#include <sched.h>
#endif

static void rest(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" : : : "memory");
#endif
}

static unsigned openings(hrt_barrier *b) {
    return atomic_load_explicit(&b->opened, memory_order_acquire);
}

/* Prefetches one block. False: there is nothing left to prefetch. */
static bool ask(hrt_prefetch *ahead) {
    const uint8_t *p = ahead ? hrt_prefetch_next(ahead) : NULL;
    for (int i = 0; p && i < HRT_PREFETCH_BLOCK; i += HRT_LINE)
        __builtin_prefetch(p + i, 0, 2);
    return p != NULL;
}

/* False: the time to spin is over. The clock is read only now and then, since a reading takes as
 * long as several looks at the word. */
static int spin(hrt_barrier *b, unsigned before, uint64_t limit, hrt_prefetch *ahead) {
    enum { LOOKS = 64 };
    uint64_t start = 0;
    for (;;) {
        for (int i = 0; i < LOOKS; i++) {
            if (openings(b) != before) return 1;
            if (!ask(ahead)) rest();
        }
        uint64_t now = (uint64_t)hd_nanoseconds();
        if (!start) start = now;
        if (now - start >= limit) return 0;
    }
}

/* A waker that does not see the sleeper counted has already changed `opened`: the kernel then finds
 * that `opened` is no longer what the sleeper read, and does not let it sleep. */
#if defined(__linux__)
_Static_assert(sizeof(atomic_uint) == 4, "the kernel looks at 32 bits");

static void sleep_until_opened(hrt_barrier *b, unsigned before) {
    atomic_fetch_add(&b->sleepers, 1);
    while (openings(b) == before)
        syscall(SYS_futex, &b->opened, FUTEX_WAIT_PRIVATE, before, NULL, NULL, 0);
    atomic_fetch_sub(&b->sleepers, 1);
}

static void wake_sleepers(hrt_barrier *b) {
    if (atomic_load(&b->sleepers))
        syscall(SYS_futex, &b->opened, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}
#else
static void sleep_until_opened(hrt_barrier *b, unsigned before) {
    while (openings(b) == before)
        sched_yield();
}

static void wake_sleepers(hrt_barrier *b) {
    (void)b;
}
#endif

void hrt_barrier_wait(hrt_barrier *b, unsigned threads, hrt_patience *p, hrt_prefetch *ahead) {
    unsigned before = openings(b);
    if (atomic_fetch_add_explicit(&b->arrived, 1, memory_order_acq_rel) + 1 == threads) {
        atomic_store_explicit(&b->arrived, 0, memory_order_relaxed);
        atomic_fetch_add(&b->opened, 1);
        wake_sleepers(b);
        return;
    }
    if (spin(b, before, p->spin, ahead)) {
        if (p->spin < HRT_SPIN_MOST) p->spin *= 2;
    } else {
        sleep_until_opened(b, before);
        if (p->spin > HRT_SPIN_LEAST) p->spin /= 2;
    }
}
