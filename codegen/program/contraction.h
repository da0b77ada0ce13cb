/* What a kernel.contract computes, read off its body before any LLVM is touched: plain data.
 *
 * The linears of a body form groups: linears that one epilogue combines (gate and up of a gated
 * MLP) share their columns; other linears (q, k and v) have columns of their own. A group consists
 * of panels of HIR_PANEL output features; where it has a per-head epilogue, panels that hold whole
 * heads stay together (`unit`). A column of the kernel is `width` panels, a number that divides the
 * units of all groups; the columns of all groups are numbered consecutively:
 *
 *     group 0: columns [0, C0)    group 1: [C0, C0 + C1)    ...     C = ceil(ceil(N / 16) / width)
 */
#ifndef HCG_CONTRACTION_H
#define HCG_CONTRACTION_H

#include "codegen/program/program.h"

typedef struct hcg_linear {
    hir_id value;      /* its result, a value of the body */
    hir_ref w, bias;   /* panels of [N, K]; f32[N] or none */
    hir_dtype dtype;   /* of the panels */
    hir_layout layout; /* narrow: panels of 8 outputs, two make a panel of the kernel's columns */
    uint32_t group;
} hcg_linear;

typedef struct hcg_yield { /* a value of the body that leaves the kernel */
    hir_id value;          /* after reshapes are looked through */
    hir_id result;         /* the kernel's result, [T, N] row-major under some shape */
} hcg_yield;

typedef struct hcg_column_group {
    int64_t n;                    /* output features of each of its linears */
    int64_t first_column, panels; /* its columns of the kernel */
    int64_t heads;                /* of a per-head epilogue; 0: it is elementwise */
    int64_t unit;                 /* panels that one thread does together */
    HD_VEC(uint32_t) linears;     /* indices into hcg_contraction.linears; one if there are heads */
    HD_VEC(hir_id) ops;           /* of its epilogue, in order */
    HD_VEC(hcg_yield) yields;     /* none is a state: cache_append writes those */
    /* What a cross_entropy.parts gives that ends the epilogue (none: there is no such op), and the
     * result of the kernel: its logits are not stored, and a unit of panels is a part. */
    hir_ref parts;
    hir_id parts_result;
} hcg_column_group;

struct hcg_contraction {
    hir_ref x; /* [T, K] row-major under some shape */
    int64_t k;
    HD_VEC(hir_id) prologue; /* ops that make x; none: x comes from outside */
    HD_VEC(hcg_linear) linears;
    HD_VEC(hcg_column_group) groups;
    int64_t columns, width; /* width: panels of one column */
};

/* False, with a diagnostic, if the body is not one that passes may produce. */
bool hcg_plan_contraction(hd_arena *a, hd_diags *d, const hir_module *m, hir_id kernel_op,
                          hcg_contraction *out);
/* The number of columns of a contraction's work (hrt_step.cols). */
int64_t hcg_contraction_columns(const hir_module *m, hir_id kernel_op);

/* Fills p->contractions. Everything else that is made of the kernels reads them. */
bool hcg_plan_contractions(hcg_program *p, hd_diags *d);

/* The result of the kernel that is the result of this op of its body, perhaps reshaped, or the rows
 * of it; the none ref: there is none. */
hir_ref hcg_result_of(const hir_module *m, hir_id kernel, hir_id op);

#endif
