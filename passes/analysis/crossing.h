/* What crosses between machines in a call: from the comm ops of a module, by the rules of
 * hadal_comm.h, to the byte. What a transport adds, and what ranks tell each other at the beginning
 * of a call, is not counted.
 */
#ifndef HIR_PASSES_CROSSING_H
#define HIR_PASSES_CROSSING_H

#include "passes/util.h"

typedef struct hir_crossing { /* an exchange */
    hir_id op;
    hir_opcode code;
    uint64_t row;           /* elements of a row of the value, of all ranks */
    uint64_t local;         /* of an element gather: of a row of this rank; else 0 */
    uint64_t element_bytes; /* as they cross */
    bool rows_of_rank;      /* of a message between stages: only the rows of a rank cross */
    bool last;              /* only the last rows of a call, which the caller asks for */
} hir_crossing;

typedef struct hir_crossings {
    HD_VEC(hir_crossing) list;
} hir_crossings;

void hir_find_crossings(const hir_module *m, hd_arena *a, hir_crossings *out);
/* Bytes of values that a rank sends in this exchange, in a call of so many tokens (at most a chunk)
 * of which the caller asks for the last `rows`. */
uint64_t hir_crossing_sent(const hir_module *m, const hir_crossing *x, int64_t rank, int64_t tokens,
                           int64_t rows);
/* Of a message from another stage, which this rank does not send: those that come. Else 0, though
 * as many come as leave. */
uint64_t hir_crossing_received(const hir_module *m, const hir_crossing *x, int64_t rank,
                               int64_t tokens, int64_t rows);
/* Messages of it that wait for each other; 0: nothing crosses. */
int hir_crossing_messages(const hir_module *m, const hir_crossing *x, int64_t tokens, int64_t rows);
/* Of all exchanges. */
uint64_t hir_bytes_sent(const hir_module *m, const hir_crossings *all, int64_t rank, int64_t tokens,
                        int64_t rows);

#endif
