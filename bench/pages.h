/* Memory of benchmarks, in pages as programs have it: libraries map their weights in huge pages where
 * the system has any, and sessions that will be filled lie in them (api/library.c). */
#ifndef BENCH_PAGES_H
#define BENCH_PAGES_H

#include <stdio.h>
#include <stdlib.h>

#include "support/huge_pages.h"

/* `bytes` or more, from the start of a page on, which free() frees. Without memory the program ends. */
static inline void *new_pages(size_t bytes) {
    enum { PAGE_BYTES = 4096 };
    const size_t each = bytes < HD_HUGE_PAGE ? PAGE_BYTES : HD_HUGE_PAGE;
    const size_t whole = (bytes + each) / each * each;
    char *x = aligned_alloc(each, whole);
    if (!x) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
    if (each == HD_HUGE_PAGE) hd_advise_huge_pages(x, whole);
    return x;
}

#endif
