/* The canonical form of a kernel's body: a sequence of numbers that is the same for two bodies if
 * and only if they are the same but for which tensors they touch.
 *
 * Values of the body are numbered as they are made, operands from outside (values, weights, states)
 * as they are first used; ops come with their attributes, operands and result types. What else
 * counts is the policy of whoever asks:
 *
 *   schedule          names of kernels            the body
 *   program_key.c     functions of a library      the body, and where results lie
 *                     of any N and K              ... with a type rule that leaves sizes out
 *                     of a prologue or epilogue   ... of some of the ops, numbered from there on
 *   row/family.c      of any number of sources    sizes aside, in a list of their own; a run of
 *                                                 stacked operands as one
 */
#ifndef HIR_CANONICAL_H
#define HIR_CANONICAL_H

#include "ir/ir.h"

typedef struct hir_operands {
    HD_VEC(hir_ref) list; /* what is read of others in order of first use, then results */
    uint32_t n_inputs;    /* how many are read */
} hir_operands;

typedef struct hir_canonical {
    hd_arena *arena;
    const hir_module *m;
    /* Policy: what of a type counts. NULL: all of it. */
    hir_type (*type)(const hir_module *m, hir_ref of, hir_type t);
    hir_id kernel; /* whose body it is */
    HD_VEC(uint64_t) numbers;
    hir_operands operands;
    uint32_t n_values;                   /* made by the ops so far */
    uint32_t first_value, first_operand; /* that count as number 0 (hir_canonical_continue) */
    /* By kind of ref and index: the form it was last seen in, and its number there. */
    uint32_t form;
    uint32_t *seen[HIR_REF_STATE + 1], *number[HIR_REF_STATE + 1];
} hir_canonical;

/* One for all kernels of a module, one after the other. */
hir_canonical *hir_canonical_new(hd_arena *a, const hir_module *m);
/* Begins the form of (a part of) this kernel's body; the one before is lost. */
void hir_canonical_begin(hir_canonical *c, hir_id kernel);
/* The form begins here, behind ops that are not part of it: values and operands are numbered from
 * here on, and an operand that was used before brings its type where it is used. */
void hir_canonical_continue(hir_canonical *c);
/* All of the body: the kernel's kind, its ops, the types of its operands. */
void hir_canonical_body(hir_canonical *c, hir_id kernel);

/* The parts of that. An op with its operands from number `from` on; its values get the next
 * numbers. */
void hir_canonical_op(hir_canonical *c, hir_id op, uint32_t from);
void hir_canonical_number(hir_canonical *c, uint64_t number);
void hir_canonical_attr(hir_canonical *c, const hir_attr *attr);
void hir_canonical_type(hir_canonical *c, hir_ref of, hir_type t);
void hir_canonical_ref(hir_canonical *c, hir_ref r);
/* Kind, type and layout of the operands from number `from` on. */
void hir_canonical_operand_types(hir_canonical *c, size_t from);
/* Where the kernel's results lie: in a state, in the place of an operand, in places of their own.
 * Those are operands behind the ones that are read; a result in a state is the state's. */
void hir_canonical_results(hir_canonical *c);

/* What a reference is: these, with a number from the ninth bit on. OTHER: of whoever makes a form
 * of another kind. */
enum { HIR_CANONICAL_NOTHING, HIR_CANONICAL_LOCAL, HIR_CANONICAL_OPERAND, HIR_CANONICAL_OTHER };

/* It is made by an op of the kernel. */
bool hir_canonical_is_local(const hir_canonical *c, hir_ref r);
/* The number of an operand that has one. */
bool hir_canonical_find(const hir_canonical *c, hir_ref operand, uint32_t *number);
/* A value of the body gets the next number. */
void hir_canonical_make(hir_canonical *c, hir_id value);

/* ---- sets of forms ------------------------------------------------------------------------- */
typedef struct hir_canonical_set { /* forms are numbered as they come */
    hd_arena *arena;
    HD_VEC(struct hir_canonical_key {
        const uint64_t *at;
        size_t n;
    })
    keys;
    HD_VEC(uint32_t) buckets; /* open addressing: number plus 1 */
} hir_canonical_set;

/* The number of a form; keys.n before the call if it is new. */
uint32_t hir_canonical_index(hir_canonical_set *set, const hir_canonical *c);

#endif
