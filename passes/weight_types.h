/* Storage types of weights: the value of `--weights-dtype`. */
#ifndef HIR_PASSES_WEIGHT_TYPES_H
#define HIR_PASSES_WEIGHT_TYPES_H

#include "ir/ir.h"

/* Weights whose names match are stored as `dtype`. */
typedef struct hir_weight_rule {
    const char *pattern; /* with the wildcards `*` and `?` */
    hir_dtype dtype;
    bool offered;       /* by the checkpoint, not the user: no remark where it is not applied */
    bool of_transposed; /* the rule only applies to transposes of such a weight */
} hir_weight_rule;

typedef struct hir_weight_types {
    hir_dtype matrices;            /* of matrices that linear and gather read and no rule matches */
    bool given;                    /* `matrices` was given; otherwise it is f32 */
    HD_VEC(hir_weight_rule) rules; /* a later rule overrides an earlier one */
} hir_weight_types;

/* "q4", "q4,lm_head=q8,*norm*=f32": comma-separated items, each a dtype for matrices (at most one)
 * or PATTERN=DTYPE. NULL: f32. False and diagnostics for an unknown dtype, a pattern given twice
 * with different dtypes, and anything else. */
bool hir_parse_weight_types(hd_arena *a, hd_diags *d, const char *text, hir_weight_types *out);

/* Does the pattern match the whole name, or the name without ".weight" at its end? */
bool hir_rule_matches(const hir_weight_rule *r, const char *name);

#endif
