/* Threads that take items from a counter (workers.h). pthreads rather than OpenMP: ThreadSanitizer
 * sees them start and end. */
#include "codegen/library/workers.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

typedef struct crew {
    void (*work)(void *, size_t, size_t);
    void *context;
    size_t n;
    atomic_size_t next;
} crew;

typedef struct member {
    crew *all;
    size_t number;
} member;

size_t hcg_workers(int threads) {
    cpu_set_t allowed;
    size_t n = threads > 0 ? (size_t)threads : 1;
    if (threads <= 0 && sched_getaffinity(0, sizeof allowed, &allowed) == 0)
        n = (size_t)CPU_COUNT(&allowed);
    return n > HCG_MOST_WORKERS ? HCG_MOST_WORKERS : n;
}

static void *take_items(void *argument) {
    const member *m = argument;
    for (;;) {
        size_t i = atomic_fetch_add(&m->all->next, 1);
        if (i >= m->all->n) return NULL;
        m->all->work(m->all->context, m->number, i);
    }
}

void hcg_each_item(size_t workers, size_t n,
                   void (*work)(void *context, size_t worker, size_t item), void *context) {
    crew all = {.work = work, .context = context, .n = n};
    member members[HCG_MOST_WORKERS];
    pthread_t threads[HCG_MOST_WORKERS];
    size_t started = 1;
    if (workers > n) workers = n;
    for (size_t i = 0; i < HCG_MOST_WORKERS; i++)
        members[i] = (member){&all, i};
    while (started < workers &&
           pthread_create(&threads[started], NULL, take_items, &members[started]) == 0)
        started++;
    take_items(&members[0]);
    for (size_t i = 1; i < started; i++)
        pthread_join(threads[i], NULL);
}

/* ---- in order -------------------------------------------------------------------------------- */
typedef struct line {
    void (*make)(void *, size_t, size_t), (*put)(void *, size_t, size_t);
    void *context;
    size_t next; /* item that is to be put */
    pthread_mutex_t lock;
    pthread_cond_t moved;
} line;

/* Items are taken in order: whoever has the next one to be put waits for nobody. */
static void make_and_put(void *context, size_t worker, size_t item) {
    line *l = context;
    l->make(l->context, worker, item);
    pthread_mutex_lock(&l->lock);
    while (l->next != item)
        pthread_cond_wait(&l->moved, &l->lock);
    pthread_mutex_unlock(&l->lock);
    l->put(l->context, worker, item);
    pthread_mutex_lock(&l->lock);
    l->next++;
    pthread_cond_broadcast(&l->moved);
    pthread_mutex_unlock(&l->lock);
}

void hcg_each_in_order(size_t workers, size_t n, void (*make)(void *, size_t, size_t),
                       void (*put)(void *, size_t, size_t), void *context) {
    line l = {.make = make,
              .put = put,
              .context = context,
              .lock = PTHREAD_MUTEX_INITIALIZER,
              .moved = PTHREAD_COND_INITIALIZER};
    hcg_each_item(workers, n, make_and_put, &l);
    pthread_mutex_destroy(&l.lock);
    pthread_cond_destroy(&l.moved);
}
