/* The compiler's own threads, for work on items that do not depend on each other. */
#ifndef HCG_WORKERS_H
#define HCG_WORKERS_H

#include <stddef.h>

enum { HCG_MOST_WORKERS = 32 };

/* How many work when `threads` are asked for; 0 or less: one for each CPU the process may use. */
size_t hcg_workers(int threads);
/* Calls `work` for every item 0 .. n-1, in order of their numbers, as soon as a worker is free; the
 * caller is worker 0, so that nothing depends on getting another thread. Back when all are done. */
void hcg_each_item(size_t workers, size_t n,
                   void (*work)(void *context, size_t worker, size_t item), void *context);
/* The same with a second part for each item: `put` is called for one item at a time, in order of
 * their numbers, by the worker that made it, while others make the next ones. */
void hcg_each_in_order(size_t workers, size_t n,
                       void (*make)(void *context, size_t worker, size_t item),
                       void (*put)(void *context, size_t worker, size_t item), void *context);

#endif
