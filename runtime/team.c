#include "runtime/team.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/hadal_rt.h"

static pid_t loaded_by; /* the process that loaded the library; no code writes it afterwards */

__attribute__((constructor)) static void remember_process(void) {
    loaded_by = getpid();
}

/* The number of threads that the calling thread has seen start at once. OpenMP keeps them in a pool
 * for the next parallel region, so they need no second trial. */
static _Thread_local int seen __attribute__((tls_model("initial-exec")));

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

int hrt_team_size(int threads) {
    if (threads <= 1 || getpid() != loaded_by) return 1;
    if (threads > seen) {
        const int n = try_threads(threads < HRT_MAX_THREADS ? threads : HRT_MAX_THREADS);
        if (n < threads) return n; /* not kept: there may be more the next time */
        seen = n;
    }
    return threads;
}
