/* The compiler's own threads, for work on items that do not depend on each other. */
#ifndef HCG_WORKERS_H
#define HCG_WORKERS_H

#include <stddef.h>

enum { HCG_MOST_WORKERS = 32, HCG_MOST_PLACES = 24 * HCG_MOST_WORKERS };

/* How many work when `threads` are asked for; 0 or less: one for each CPU the process may use. */
size_t hcg_workers(int threads);
/* Calls `work` for every item 0 .. n-1, in order of their numbers, as soon as a worker is free; the
 * caller is worker 0, so that nothing depends on getting another thread. Back when all are done. */
void hcg_each_item(size_t workers, size_t n,
                   void (*work)(void *context, size_t worker, size_t item), void *context);

typedef struct hcg_in_order {
    size_t workers, n;
    size_t places; /* 1 .. HCG_MOST_PLACES */
    void (*make)(void *context, size_t worker, size_t place, size_t item);
    void (*put)(void *context, size_t place, size_t item);
    void *context;
} hcg_in_order;

/* The same with a second part for each item: `put` is called for one item at a time, in order of
 * their numbers, while others make the next ones. What one leaves for the other lies in one of some
 * places, which the next item gets once it was put. Whoever puts may not be who made: nobody waits
 * while there is something to make and a place for it. */
void hcg_each_in_order(const hcg_in_order *all);

#endif
