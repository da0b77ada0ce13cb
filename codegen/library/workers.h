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

#endif
