/* How far ahead of its use memory is asked for, in streams that are read once.
 *
 * Memory is busy while a core has as many bytes on their way as it takes from memory in the time
 * that one of them needs (bandwidth of a core times latency, Little's law): machine.in_flight. A
 * stream that a core reads alone is asked for that far ahead. Of others the table says the part of
 * it, in quarters, and why; they were chosen by measurements on Zen 5 (30 to 44 GB/s a core, 150
 * ns) and hold for others as far as the product says what a CPU is like. For weights
 * docs/figures.md (Access to memory) has the figures.
 *
 * Nothing that goes to the L1 is asked for further ahead than a quarter of it: more would be gone
 * when it is used. */
#ifndef HCG_PREFETCH_DISTANCE_H
#define HCG_PREFETCH_DISTANCE_H

#include "support/machine.h"

/* Quarters of machine.in_flight:
 *   along    rows of a mix: four or more streams share what is on its way
 *   slab     f32 panels that one slab of rows meets, most of which come by themselves
 *   panels   panels that one vector meets
 *   groups   those of groups, whose arithmetic comes in longer runs between loads
 *   cached   rows of a cache: while values are read those of keys rest, and back
 *   pages    a line of a page, before its others are asked for: first comes the walk */
typedef enum hcg_prefetch_part {
    HCG_PREFETCH_ALONG = 1,
    HCG_PREFETCH_SLAB = 2,
    HCG_PREFETCH_PANELS = 4,
    HCG_PREFETCH_GROUPS = 6,
    HCG_PREFETCH_CACHED = 8,
    HCG_PREFETCH_PAGES = 16,
} hcg_prefetch_part;

/* Bytes, whole lines. */
static inline int64_t hcg_prefetch_distance(const hd_machine *m, hcg_prefetch_part quarters) {
    const int64_t wanted = (int64_t)m->in_flight * quarters / 4, kept = m->l1 / 4;
    const int64_t bytes = quarters == HCG_PREFETCH_PAGES || wanted < kept ? wanted : kept;
    return m->line ? bytes / m->line * m->line : bytes;
}

#endif
