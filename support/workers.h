/* The compiler's own threads, for work on items that do not depend on each other. */
#ifndef HCG_WORKERS_H
#define HCG_WORKERS_H

#include <stddef.h>

enum { HCG_MOST_WORKERS = 32, HCG_MOST_PLACES = 24 * HCG_MOST_WORKERS };

/* The number of workers for a request of `threads`; 0 or less: one for each CPU that the calling
 * thread may use, by its affinity and by quota. */
size_t hcg_workers(int threads);
/* Calls `work` for every item 0 .. n-1; free workers take items in order of their numbers. The
 * caller is worker 0, so that no further thread is needed to make progress. Returns when all items
 * are done. */
void hcg_each_item(size_t workers, size_t n,
                   void (*work)(void *context, size_t worker, size_t item), void *context);

typedef struct hcg_in_order {
    size_t workers, n;
    size_t places; /* 1 .. HCG_MOST_PLACES */
    void (*make)(void *context, size_t worker, size_t place, size_t item);
    void (*put)(void *context, size_t place, size_t item);
    void *context;
} hcg_in_order;

/* The same with a second step for each item: `put` is called for one item at a time, in order of
 * item numbers, while other workers make the next items. `make` leaves its result for `put` in one
 * of `places` slots, which is reused for a later item after the put. The worker that puts an item
 * need not be the one that made it: no worker waits while there is an item to make and a place for
 * it. */
void hcg_each_in_order(const hcg_in_order *all);

#endif
