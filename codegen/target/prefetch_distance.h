/* How far ahead of its use memory is prefetched, in streams that are read once.
 *
 * Memory is busy while a core has as many bytes in flight as it receives during the latency of one
 * access (bandwidth of a core times latency, Little's law): machine.in_flight. A stream that a core
 * reads alone is prefetched that far ahead. For other streams the table has the part of that
 * distance, in quarters, and the reason; the parts were chosen by measurements on Zen 5 (30 to 44
 * GB/s a core, 150 ns) and hold for other CPUs as far as bandwidth times latency describes them.
 * For weights docs/figures/kernels.md (Access to memory) has the figures.
 *
 * What is prefetched into the L1 is at most a quarter of the L1 ahead: more would be evicted
 * before its use. */
#ifndef HCG_PREFETCH_DISTANCE_H
#define HCG_PREFETCH_DISTANCE_H

#include "support/machine.h"

/* Quarters of machine.in_flight:
 *   along    rows of a depth mix (a weighted sum of earlier outputs): four or more streams share it
 *   slab     f32 panels read for one slab of rows; the hardware prefetches most of them
 *   panels   panels that one vector is multiplied with
 *   groups   panels of groups, with more arithmetic between loads
 *   cached   rows of a cache: while values are read no keys are, and vice versa
 *   pages    a line of a page, before its other lines are prefetched: its page walk comes first */
typedef enum hcg_prefetch_part {
    HCG_PREFETCH_ALONG = 1,
    HCG_PREFETCH_SLAB = 2,
    HCG_PREFETCH_PANELS = 4,
    HCG_PREFETCH_GROUPS = 6,
    HCG_PREFETCH_CACHED = 8,
    HCG_PREFETCH_PAGES = 16,
} hcg_prefetch_part;

/* The distance in bytes, in whole lines. */
static inline int64_t hcg_prefetch_distance(const hd_machine *m, hcg_prefetch_part quarters) {
    const int64_t wanted = (int64_t)m->in_flight * quarters / 4, kept = m->l1 / 4;
    const int64_t bytes = quarters == HCG_PREFETCH_PAGES || wanted < kept ? wanted : kept;
    return m->line ? bytes / m->line * m->line : bytes;
}

#endif
