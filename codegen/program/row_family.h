/* Families of row programs that differ in one size N alone, such as the number of sources of a
 * depth mix. A family shares one function, which takes N as an argument.
 *
 * The canonical form of a row program has two parts: a key without any size, in which a range of
 * stacked operands counts as one operand, and a list of the sizes. Forms with equal keys are a
 * family if every size is a + b N, with an a and a b that are the same for all of them. */
#ifndef HCG_ROW_FAMILY_H
#define HCG_ROW_FAMILY_H

#include "codegen/program/keys.h"

/* Rows shorter than this are copied to stack them; longer ones are accessed through pointers. */
enum { HCG_SMALL_ROW = 16 };

typedef struct hcg_row_place { /* the sizes of this reference are numbers `first` .. of the form */
    hir_ref ref;               /* a value or weight, whose dims are sizes, */
    hir_id op;                 /* or a slice, whose start is one; HIR_NONE: it is `ref` */
    size_t first;
} hcg_row_place;

typedef struct hcg_row_list { /* a range of stacked operands */
    hir_opcode code;          /* stack or concat */
    uint32_t axis;
    hir_type type; /* of the stack */
    const hir_ref *at;
    uint32_t n;
    bool replaced; /* a result overwrites one of them */
} hcg_row_list;

typedef struct hcg_row_args { /* the operands of an op, with one list in place of each range */
    hir_id op;
    hir_ref *at;
    uint32_t n;
} hcg_row_args;

typedef struct hcg_row_form {
    HD_VEC(int64_t) numbers;
    HD_VEC(hcg_row_place) places;
    HD_VEC(hcg_row_list) lists; /* number i is value m->values.n + i */
    HD_VEC(hcg_row_args) args;
    HD_VEC(hir_id) views;  /* of rows that lists have */
    hir_operands operands; /* inputs without those in lists, then results */
} hcg_row_form;

/* By op: is it a reshape, in a row program, of a row from outside that only ranges of stacked operands
 * read? There is one for each of them, so that it is no part of a form. */
const bool *hcg_find_row_views(hd_arena *arena, const hir_module *m);
/* Makes the form, and leaves its key in `c`. False: the kernel cannot be in a family. */
bool hcg_find_row_form(hir_canonical *c, const bool *views, hir_id kernel, hcg_row_form *form);

typedef struct hcg_row_model {
    size_t n;             /* index of the size of the form that is N */
    const int64_t *a, *b; /* size i of a form is a[i] + b[i] N */
} hcg_row_model;

/* The model of a family that contains both forms, whose keys are equal. False: there is none. */
bool hcg_find_row_model(hd_arena *arena, const hcg_row_form *x, const hcg_row_form *y,
                        hcg_row_model *model);
bool hcg_fits_row_model(const hcg_row_model *model, const hcg_row_form *x);

/* Fills k->any and k->runs of the function that the family shares; k->op has form `x`. */
void hcg_make_row_family(hcg_program *p, const hcg_row_model *model, const hcg_row_form *x,
                         hcg_kernel *k);

#endif
