/* Transparent huge pages (madvise): fewer pages mean fewer walks of page tables. */
#ifndef HD_HUGE_PAGES_H
#define HD_HUGE_PAGES_H

#include <stddef.h>
#include <sys/mman.h>

enum { HD_HUGE_PAGE = 2 << 20 }; /* bytes, with pages of 4 KB: x86-64 and aarch64 */

/* Advises the operating system to back memory that begins with a page by huge pages. Where it cannot,
 * pages have the usual size. */
static inline void hd_advise_huge_pages(void *memory, size_t bytes) {
#ifdef MADV_HUGEPAGE
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
#else
    (void)memory, (void)bytes;
#endif
}

#endif
