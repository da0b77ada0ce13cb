/* Row programs that are the same but for one size, N: how many sources a mix has.
 *
 * What a form of row program is falls apart into a key, which holds no size and takes a run of
 * stacked operands for one, and the sizes in order. Forms of one key are a family if each size is
 * the same in all of them, or a + b N for some a and b. */
#ifndef HCG_ROW_FAMILY_H
#define HCG_ROW_FAMILY_H

#include "codegen/program_key.h"

/* Rows shorter than this are not worth a pointer: a stack of them is copied together. */
enum { HCG_SMALL_ROW = 16 };

typedef struct hcg_row_place { /* whose sizes begin at number `first` of the form */
    hir_ref ref;               /* the dims of a value or weight ... */
    hir_id op;                 /* ... or where a slice starts; HIR_NONE */
    size_t first;
} hcg_row_place;

typedef struct hcg_row_list { /* operands that are stacked */
    hir_opcode code;          /* how */
    uint32_t axis;
    hir_type type; /* of all together */
    const hir_ref *at;
    uint32_t n;
    bool replaced; /* a result has the place of one of them */
} hcg_row_list;

typedef struct hcg_row_args { /* what an op reads in the place of its operands */
    hir_id op;
    hir_ref *at;
    uint32_t n;
} hcg_row_args;

typedef struct hcg_row_form {
    HD_VEC(int64_t) numbers;
    HD_VEC(hcg_row_place) places;
    HD_VEC(hcg_row_list) lists; /* number i is value m->values.n + i */
    HD_VEC(hcg_row_args) args;
    hir_operands operands; /* without those of lists: read, then results */
} hcg_row_form;

/* Leaves the key in `c`. False: this kernel shares its function with kernels of its own sizes only.
 */
bool hcg_find_row_form(hir_canonical *c, hir_id kernel, hcg_row_form *form);

typedef struct hcg_row_model {
    size_t n;             /* number of the size that is N */
    const int64_t *a, *b; /* of every size */
} hcg_row_model;

/* The family of two forms of one key, false: there is none. */
bool hcg_find_row_model(hd_arena *arena, const hcg_row_form *x, const hcg_row_form *y,
                        hcg_row_model *model);
bool hcg_fits_row_model(const hcg_row_model *model, const hcg_row_form *x);

/* Fills k->any and k->runs of the function that the family shares; k->op has form `x`. */
void hcg_make_row_family(hcg_program *p, const hcg_row_model *model, const hcg_row_form *x,
                         hcg_kernel *k);

#endif
