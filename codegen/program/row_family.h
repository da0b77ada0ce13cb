/* Families of row programs that differ in one size N alone, such as the number of a mix's sources.
 * A family shares one function, which takes N as an argument.
 *
 * The canonical form of a row program is kept in two parts: a key without any size, in which a run
 * of stacked operands counts as one operand, and a list of the sizes. Forms with equal keys are a
 * family if every size is a + b N, with an a and a b that are the same for all of them. */
#ifndef HCG_ROW_FAMILY_H
#define HCG_ROW_FAMILY_H

#include "codegen/program/keys.h"

/* Rows shorter than this are copied to stack them, longer ones are reached by pointers. */
enum { HCG_SMALL_ROW = 16 };

typedef struct hcg_row_place { /* whose sizes are numbers `first` .. of the form */
    hir_ref ref;               /* a value or weight: its dims, */
    hir_id op;                 /* or a slice: its start; HIR_NONE: it is `ref` */
    size_t first;
} hcg_row_place;

typedef struct hcg_row_list { /* a run of stacked operands */
    hir_opcode code;          /* stack or concat */
    uint32_t axis;
    hir_type type; /* of the stack */
    const hir_ref *at;
    uint32_t n;
    bool replaced; /* a result overwrites one of them */
} hcg_row_list;

typedef struct hcg_row_args { /* operands of an op, with a list in place of a run of them */
    hir_id op;
    hir_ref *at;
    uint32_t n;
} hcg_row_args;

typedef struct hcg_row_form {
    HD_VEC(int64_t) numbers;
    HD_VEC(hcg_row_place) places;
    HD_VEC(hcg_row_list) lists; /* number i is value m->values.n + i */
    HD_VEC(hcg_row_args) args;
    hir_operands operands; /* inputs without those in lists, then results */
} hcg_row_form;

/* Makes the form, and its key in `c`. False: the kernel cannot be in a family. */
bool hcg_find_row_form(hir_canonical *c, hir_id kernel, hcg_row_form *form);

typedef struct hcg_row_model {
    size_t n;             /* which number of the form is N */
    const int64_t *a, *b; /* number i of a form is a[i] + b[i] N */
} hcg_row_model;

/* The model of a family that has both forms, whose keys are equal. False: there is none. */
bool hcg_find_row_model(hd_arena *arena, const hcg_row_form *x, const hcg_row_form *y,
                        hcg_row_model *model);
bool hcg_fits_row_model(const hcg_row_model *model, const hcg_row_form *x);

/* Fills k->any and k->runs of the function that the family shares; k->op has form `x`. */
void hcg_make_row_family(hcg_program *p, const hcg_row_model *model, const hcg_row_form *x,
                         hcg_kernel *k);

#endif
