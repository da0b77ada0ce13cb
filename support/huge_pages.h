/* Huge pages: fewer pages mean fewer walks of page tables. */
#ifndef HD_HUGE_PAGES_H
#define HD_HUGE_PAGES_H

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

enum { HD_HUGE_PAGE = 2 << 20 };

/* Asks for huge pages from the first boundary of one on. It is a hint, which some kernels reject: then
 * pages have the usual size. */
static inline void hd_ask_for_huge_pages(void *memory, size_t bytes) {
#ifdef MADV_HUGEPAGE
    const size_t before = -(uintptr_t)memory % HD_HUGE_PAGE;
    if (bytes > before) (void)madvise((char *)memory + before, bytes - before, MADV_HUGEPAGE);
#else
    (void)memory, (void)bytes;
#endif
}

#endif
