/* Threads that take items by an atomic counter (workers.h). pthreads rather than OpenMP:
 * ThreadSanitizer sees them start and end. */
#include "support/workers.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "support/host.h"
#include "support/quota.h"

typedef struct team {
    void (*work)(void *, size_t, size_t);
    void *context;
    size_t n;
    atomic_size_t next;
} team;

typedef struct member {
    team *all;
    size_t number;
} member;

size_t hcg_workers(int threads) {
    cpu_set_t allowed;
    if (threads <= 0) {
        const bool known = sched_getaffinity(0, sizeof allowed, &allowed) == 0;
        threads = known ? CPU_COUNT(&allowed) : (int)sysconf(_SC_NPROCESSORS_ONLN);
        if (threads > hd_quota()) threads = hd_quota();
    }
    if (threads > HCG_MOST_WORKERS) threads = HCG_MOST_WORKERS;
    return threads > 1 ? (size_t)threads : 1;
}

static void *take_items(void *argument) {
    const member *m = argument;
    HD_ISOLATED_FROM_HOST; /* a new thread begins with the locale of the process */
    for (;;) {
        size_t i = atomic_fetch_add(&m->all->next, 1);
        if (i >= m->all->n) return NULL;
        m->all->work(m->all->context, m->number, i);
    }
}

void hcg_each_item(size_t workers, size_t n,
                   void (*work)(void *context, size_t worker, size_t item), void *context) {
    team all = {.work = work, .context = context, .n = n};
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
    const hcg_in_order *all;
    size_t made, put; /* number of items that were begun; number of items that were put */
    bool putting;     /* a worker is in `put` */
    size_t waiting;   /* workers */
    bool *ready;      /* for each place: its item was made but not yet put */
    pthread_mutex_t lock;
    pthread_cond_t moved;
} line;

/* Puts the next item if it is made and no other worker is putting; returns whether it did. Like all
 * functions below, it is called, and returns, with the lock held. */
static bool put_next(line *l) {
    const hcg_in_order *all = l->all;
    const size_t place = l->put % all->places;
    if (l->putting || !l->ready[place]) return false;
    l->putting = true;
    pthread_mutex_unlock(&l->lock);
    all->put(all->context, place, l->put);
    pthread_mutex_lock(&l->lock);
    l->ready[place] = l->putting = false;
    l->put++;
    if (l->waiting) pthread_cond_broadcast(&l->moved);
    return true;
}

/* Makes one more item if there is a place for it. */
static bool make_next(line *l, size_t worker) {
    const hcg_in_order *all = l->all;
    if (l->made == all->n || l->made - l->put == all->places) return false;
    const size_t item = l->made++, place = item % all->places;
    pthread_mutex_unlock(&l->lock);
    all->make(all->context, worker, place, item);
    pthread_mutex_lock(&l->lock);
    l->ready[place] = true;
    return true;
}

/* A worker may leave as soon as every item was begun: the worker that makes or puts an earlier item
 * goes on and puts the rest. */
static void make_and_put(void *context, size_t worker, size_t item) {
    line *l = context;
    (void)item;
    pthread_mutex_lock(&l->lock);
    for (;;) {
        if (put_next(l) || make_next(l, worker)) continue;
        if (l->made == l->all->n) break;
        l->waiting++;
        pthread_cond_wait(&l->moved, &l->lock);
        l->waiting--;
    }
    pthread_mutex_unlock(&l->lock);
}

void hcg_each_in_order(const hcg_in_order *all) {
    bool ready[HCG_MOST_PLACES] = {false};
    line l = {.all = all,
              .ready = ready,
              .lock = PTHREAD_MUTEX_INITIALIZER,
              .moved = PTHREAD_COND_INITIALIZER};
    const size_t workers = all->workers < all->n ? all->workers : all->n;
    hcg_each_item(workers, workers, make_and_put, &l);
    pthread_mutex_destroy(&l.lock);
    pthread_cond_destroy(&l.moved);
}
