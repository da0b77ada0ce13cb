#include "runtime/team.h"

#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/hadal_rt.h"

static pid_t loaded_by; /* the process that loaded the library; no code writes it afterwards */

__attribute__((constructor)) static void remember_process(void) {
    loaded_by = getpid();
}

/* ---- trying ---------------------------------------------------------------------------------- */

/* Returns the bytes of stack that OpenMP gives its threads by its environment variables, which hold
 * a number of KiB, or a number followed by B, K, M or G. 0 means the default. */
static size_t stack_size(void) {
    const char *at = getenv("OMP_STACKSIZE");
    size_t n = 0;
    if (!at) at = getenv("GOMP_STACKSIZE");
    while (at && *at == ' ')
        at++;
    for (; at && *at >= '0' && *at <= '9'; at++)
        n = n > SIZE_MAX / 10 - 1 ? SIZE_MAX : n * 10 + (size_t)(*at - '0');
    while (at && *at == ' ')
        at++;
    const char unit = at ? (char)(*at | 0x20) : 0;
    const int shift = unit == 'b' ? 0 : unit == 'm' ? 20 : unit == 'g' ? 30 : 10;
    return n > SIZE_MAX >> shift ? SIZE_MAX : n << shift;
}

/* A thread of the trial waits here until the thread that started it unlocks the gate. */
static void *wait_at_gate(void *gate) {
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

/* Returns how many of `threads` threads can exist at once, the caller among them. */
static int try_threads(int threads) {
    pthread_t started[HRT_MAX_THREADS];
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_attr_t attributes;
    const size_t stack = stack_size();
    int n = 1;
    if (pthread_attr_init(&attributes) != 0) return 1;
    if (stack) (void)pthread_attr_setstacksize(&attributes, stack);
    pthread_mutex_lock(&gate);
    while (n < threads && pthread_create(&started[n], &attributes, wait_at_gate, &gate) == 0)
        n++;
    pthread_mutex_unlock(&gate);
    for (int i = 1; i < n; i++)
        pthread_join(started[i], NULL);
    pthread_attr_destroy(&attributes);
    pthread_mutex_destroy(&gate);
    return n;
}

/* ---- the pool -------------------------------------------------------------------------------- */

/* The number of threads that ran a region of this library as part of OpenMP's pool, and then
 * ended. A region of the host, or of another library, that needs fewer threads than the pool has
 * ends the others. Threads that end write this number; calls only read it. */
static atomic_uint ended;
static pthread_key_t at_end;
static bool counts_ends;

static void count_end(void *nothing) {
    (void)nothing;
    atomic_fetch_add_explicit(&ended, 1, memory_order_relaxed);
}

__attribute__((constructor)) static void begin_counting(void) {
    counts_ends = pthread_key_create(&at_end, count_end) == 0;
}

/* Threads of the pool may outlive this library. */
__attribute__((destructor)) static void end_counting(void) {
    if (counts_ends) pthread_key_delete(at_end);
}

/* What the calling thread knows of its pool. */
static _Thread_local struct {
    int threads; /* how many took part in its last region: the pool keeps them for the next one */
    unsigned ended; /* the number above when threads were tried */
} pool __attribute__((tls_model("initial-exec")));

void hrt_team_joined(int index, int count) {
    if (omp_get_level() != 1) return; /* threads of a region in a region are in no pool */
    if (index == 0)
        pool.threads = count;
    else if (counts_ends && !pthread_getspecific(at_end))
        (void)pthread_setspecific(at_end, &counts_ends);
}

/* A region in a region of the host creates its threads each time, if it may have any. */
static int nested_size(int threads) {
    return omp_get_active_level() < omp_get_max_active_levels() ? try_threads(threads) : 1;
}

int hrt_team_size(int threads) {
    if (threads <= 1 || getpid() != loaded_by) return 1;
    if (threads > HRT_MAX_THREADS) threads = HRT_MAX_THREADS;
    if (omp_get_level() > 0) return nested_size(threads);
    const unsigned now = atomic_load_explicit(&ended, memory_order_relaxed);
    if (threads <= pool.threads && now == pool.ended && counts_ends) return threads;
    const int n = try_threads(threads);
    pool.ended = now;
    if (n < threads) pool.threads = 0; /* the next call tries again: there may be more then */
    return n;
}
