/* The canonical form of a kernel's body: a sequence of numbers. Two bodies have equal forms if and
 * only if they compute the same, apart from which tensors they read and write.
 *
 * The form lists the ops with their attributes, operands and result types. Values of the body are
 * numbered in the order in which they are made, operands from outside of it (values, weights,
 * states) in the order of their first use. What else the form contains depends on its purpose:
 *
 *   user            kernels with equal forms        the form contains
 *   schedule        have one name                   the body
 *   keys.c          share a function                the body, and where results lie
 *                   share one for all N and K       the same without sizes (hir_canonical.type)
 *                   share a prologue or epilogue    the ops of that alone, with their own numbering
 *   row_family.c    may share one for any number    the body; sizes in a separate list, a run of
 *                   of sources                      stacked operands as a single one
 */
#ifndef HIR_CANONICAL_H
#define HIR_CANONICAL_H

#include "ir/ir.h"

typedef struct hir_operands {
    HD_VEC(hir_ref) list; /* inputs in the order of first use, then results */
    uint32_t n_inputs;
} hir_operands;

typedef struct hir_canonical {
    hd_arena *arena;
    const hir_module *m;
    /* Maps a type to what the form contains of it; NULL: all of it. */
    hir_type (*type)(const hir_module *m, hir_ref of, hir_type t);
    hir_id kernel;
    HD_VEC(uint64_t) numbers;
    hir_operands operands;
    uint32_t n_values;                   /* that the ops so far have made */
    uint32_t first_value, first_operand; /* those with number 0 (hir_canonical_continue) */
    /* For each value, weight and state: the last form in which it has a number, and the number. */
    uint32_t form;
    uint32_t *seen[HIR_REF_STATE + 1], *number[HIR_REF_STATE + 1];
} hir_canonical;

/* Serves all kernels of a module, one after the other: it holds one form at a time. */
hir_canonical *hir_canonical_new(hd_arena *a, const hir_module *m);
/* Begins the form of this kernel's body, or of some of its ops, in place of the form before. */
void hir_canonical_begin(hir_canonical *c, hir_id kernel);
/* Drops the ops added so far from the form, but not what they have made: the numbering of values
 * and operands starts again, and an operand that they have used is followed by its type where a
 * later op uses it, since no list of operand types contains it. */
void hir_canonical_continue(hir_canonical *c);
/* The form of a whole body: the kernel's kind, its ops, the types of its operands. */
void hir_canonical_body(hir_canonical *c, hir_id kernel);

/* What forms are composed of. An op, with its operands from number `from` on; its results get the
 * next numbers. */
void hir_canonical_op(hir_canonical *c, hir_id op, uint32_t from);
void hir_canonical_number(hir_canonical *c, uint64_t number);
void hir_canonical_attr(hir_canonical *c, const hir_attr *attr);
void hir_canonical_type(hir_canonical *c, hir_ref of, hir_type t);
void hir_canonical_ref(hir_canonical *c, hir_ref r);
/* Kind, type and (of weights) layout of the operands from number `from` on. */
void hir_canonical_operand_types(hir_canonical *c, size_t from);
/* Where each result of the kernel lies: in a state, in the place of an operand, or in a place of
 * its own. Results become operands after the inputs, except results in a state, which is an operand
 * already. */
void hir_canonical_results(hir_canonical *c);

/* How forms write a reference: one of these in the low eight bits, the number above them. OTHER is
 * free for users of this header. */
enum { HIR_CANONICAL_NOTHING, HIR_CANONICAL_LOCAL, HIR_CANONICAL_OPERAND, HIR_CANONICAL_OTHER };

/* Is `r` a value that an op of the kernel's body makes? */
bool hir_canonical_is_local(const hir_canonical *c, hir_ref r);
/* The number of an operand; false: it has none in this form. */
bool hir_canonical_find(const hir_canonical *c, hir_ref operand, uint32_t *number);
/* Gives a value of the body the next number. */
void hir_canonical_make(hir_canonical *c, hir_id value);

/* ---- sets of forms ------------------------------------------------------------------------- */
typedef struct hir_canonical_set { /* distinct forms, numbered in the order of their first use */
    hd_arena *arena;
    HD_VEC(struct hir_canonical_key {
        const uint64_t *at;
        size_t n;
    })
    keys;
    HD_VEC(uint32_t) buckets; /* open addressing: a form's number plus 1, 0: empty */
} hir_canonical_set;

/* The number of the form that `c` holds. A new one is added and gets the number keys.n. */
uint32_t hir_canonical_index(hir_canonical_set *set, const hir_canonical *c);

#endif
