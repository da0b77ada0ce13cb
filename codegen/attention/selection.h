/* Which rows a token sees in attention over selected rows (selected.c), for the kernel and for its
 * gradient.
 *
 * The rows that a token sees form a sequence. With entries (a second cache, of a row for several
 * positions) it is the positions of the token's window, then the entries (those listed, or all
 * complete ones); without entries, the listed positions.
 */
#ifndef HCG_SELECTION_H
#define HCG_SELECTION_H

#include "codegen/attention/attention.h"

typedef struct hcg_selection {
    hcg_cache entries;     /* base NULL: none */
    bool same;             /* k and v are one cache */
    LLVMValueRef list;     /* i32 [T][lists][most]; NULL: all entries */
    LLVMValueRef own_list; /* the list of the token and head */
    int64_t lists, most, rate;
    LLVMValueRef entries_cap;
} hcg_selection;

/* What a token sees: positions first .. first + near - 1, then `far` rows of the list, whose numbers
 * are below `rows`. */
typedef struct hcg_sight {
    LLVMValueRef first, near, far, rows;
} hcg_sight;

/* The sizes and attributes of an op, and of its operands all but the queries. */
void hcg_take_selection(hcg_emit *e, const hcg_kernel *k, const hir_op *op, hcg_attention *a,
                        hcg_selection *s);
/* From here on own_list is that of the token and the key/value head. */
void hcg_take_list(hcg_emit *e, hcg_selection *s, LLVMValueRef token, LLVMValueRef group);
hcg_sight hcg_sight_of(hcg_emit *e, const hcg_attention *a, const hcg_selection *s,
                       LLVMValueRef position);
/* The row that entry `at` of own_list names, or entry `at` where all are seen. */
LLVMValueRef hcg_selected_row(hcg_emit *e, const hcg_selection *s, LLVMValueRef at);

#endif
