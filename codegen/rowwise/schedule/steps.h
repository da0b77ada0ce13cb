/* The steps that make a schedule (private to schedule/; schedule.c calls them in this order). */
#ifndef HCG_ROW_STEPS_H
#define HCG_ROW_STEPS_H

#include "codegen/rowwise/schedule/schedule.h"

/* nests.c: decides which nodes are roots, and the nests that they share. */
void row_choose_nests(row_schedule *s);
/* nests.c: decides which nests are small, and which of their roots need memory all the same. */
void row_choose_small(row_schedule *s);
/* nests.c: decides which roots are stored, which loops are merged, and which buffers are used. */
void row_choose_memory(row_schedule *s);
/* memory.c: decides which stores may be non-temporal; before row_choose_loops, since iterations fill
 * whole units of them. */
void row_choose_nontemporal(row_schedule *s);
/* loops.c: decides unroll, jam and blocks. */
void row_choose_loops(const row_schedule *s, row_nest *nest);
/* loops.c: does a root hold functions of many instructions? Then an iteration takes one vector. */
bool row_is_costly(const row_schedule *s, const row_nest *nest);
/* groups.c: makes groups of results and teams of reductions; after row_choose_loops. */
void row_choose_groups(const row_schedule *s, row_nest *nest);
/* memory.c: decides which rows are prefetched; after row_choose_groups. */
void row_choose_prefetch(const row_schedule *s, row_nest *nest);

#endif
