/* Code of a scheduled row program: the last of three steps, graph → schedule → emit
 * (docs/row-programs.md). All decisions are the schedule's.
 *
 *   emit/loops.c        loop nests, the loop over tokens around them, nests for some tokens only
 *   emit/sums.c         sums over tokens: parts of the tokens, and what becomes of them
 *   emit/lanes.c        the loop along vectors
 *   emit/value.c        a node at an index: loads, arithmetic
 *   emit/reduce.c       reductions inside of a loop along vectors
 *   emit/small.c        nests of a few elements: whole values in registers, indices as shuffles
 *   emit/prefetch.c     rows that the next iteration reads
 *   emit/nontemporal.c  stores that bypass the caches, where a call stores more than they hold
 *   emit/where.c        arguments, rows of a token, tables of row pointers, sizes that depend on N
 */
#ifndef HCG_EMIT_ROW_H
#define HCG_EMIT_ROW_H

#include "codegen/rowwise/schedule/schedule.h"
#include "codegen/rowwise/stage.h"

row_target row_target_of(const hcg_level *level);
/* `stage` (a prologue or epilogue): that of the schedule's graph; NULL: the program is the whole
 * kernel. */
void row_emit(hcg_emit *e, const row_schedule *s, const hcg_row_stage *stage);

/* Of a kernel that sums over tokens: its columns, and its memory that threads share. */
int64_t row_sum_columns(const hir_module *m, hir_id kernel);
void row_sum_shared(const hir_module *m, hir_id kernel, uint64_t *counters, uint64_t *range);

#endif
