/* Communication between ranks in a call: exact bytes, computed from the comm ops of a module by the
 * rules of hadal_comm.h. Bytes that a transport adds, and what ranks report to each other at the
 * beginning of a call, are not counted. A "crossing" is one collective or point-to-point message.
 */
#ifndef HIR_PASSES_CROSSING_H
#define HIR_PASSES_CROSSING_H

#include "passes/util.h"

typedef struct hir_crossing { /* one collective or message */
    hir_id op;
    hir_opcode code;
    uint64_t row;           /* elements of a row of the value, over all ranks */
    uint64_t local;         /* all_gather of elements: those of a row of this rank; otherwise 0 */
    uint64_t element_bytes; /* size of an element as it is sent */
    bool rows_of_rank;      /* a message between pipeline stages: only the rank's rows are sent */
    bool last;              /* only the last rows of a call, which the caller requested, are sent */
} hir_crossing;

typedef struct hir_crossings {
    HD_VEC(hir_crossing) list;
} hir_crossings;

void hir_find_crossings(const hir_module *m, hd_arena *a, hir_crossings *out);
/* Bytes of values that a rank sends in this crossing, in a call of `tokens` tokens (at most a
 * chunk) of which the caller requests the last `rows`. */
uint64_t hir_crossing_sent(const hir_module *m, const hir_crossing *x, int64_t rank, int64_t tokens,
                           int64_t rows);
/* For a message from another pipeline stage, which this rank does not send: the bytes received. For
 * everything else 0: a collective receives as many bytes as it sends, and they are counted as sent.
 */
uint64_t hir_crossing_received(const hir_module *m, const hir_crossing *x, int64_t rank,
                               int64_t tokens, int64_t rows);
/* The number of message rounds that wait for each other; 0: nothing is sent. */
int hir_crossing_messages(const hir_module *m, const hir_crossing *x, int64_t tokens, int64_t rows);
/* The bytes that a rank sends in all crossings. */
uint64_t hir_bytes_sent(const hir_module *m, const hir_crossings *all, int64_t rank, int64_t tokens,
                        int64_t rows);

#endif
