/* The cut of a directed graph that costs least: which edges, of the smallest capacity together, divide
 * the source from the sink. */
#ifndef HIR_MIN_CUT_H
#define HIR_MIN_CUT_H

#include <stdbool.h>

#include "support/arena.h"

typedef struct min_cut min_cut;

/* The capacity of an edge that is not cut. */
#define MIN_CUT_WHOLE (UINT64_MAX / 4)

/* A graph of so many nodes without edges; node 0 is the source, node 1 the sink. */
min_cut *min_cut_new(hd_arena *a, uint32_t nodes);
void min_cut_edge(min_cut *g, uint32_t from, uint32_t to, uint64_t capacity);
/* The capacity that is cut; more than MIN_CUT_WHOLE: every cut divides an edge that is not cut. Of
 * the cuts of this capacity it is the one next to the source: side[n] of node n is true on that side
 * of it. Edges cannot be added after that. */
uint64_t min_cut_find(min_cut *g, bool *side);

#endif
