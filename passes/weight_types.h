/* How weights are to be stored: what `--weights-dtype` says. */
#ifndef HIR_PASSES_WEIGHT_TYPES_H
#define HIR_PASSES_WEIGHT_TYPES_H

#include "ir/ir.h"

/* Weights whose names match are stored as `dtype`. */
typedef struct hir_weight_rule {
    const char *pattern; /* `*` and `?` stand for any characters, and for one */
    hir_dtype dtype;
} hir_weight_rule;

typedef struct hir_weight_types {
    hir_dtype matrices; /* of matrices that linear and gather read, where no rule says otherwise */
    HD_VEC(hir_weight_rule) rules; /* later ones count */
} hir_weight_types;

/* "q4", "q4,lm_head=q8,*norm*=f32": items with commas between, each a dtype for matrices (at most
 * one) or PATTERN=DTYPE. NULL: f32. False and diagnostics for a dtype that is none, a pattern twice
 * with different dtypes, and what is neither. */
bool hir_parse_weight_types(hd_arena *a, hd_diags *d, const char *text, hir_weight_types *out);

/* Whether the pattern means this weight: it matches the whole name, or the name without ".weight"
 * at its end. */
bool hir_rule_matches(const hir_weight_rule *r, const char *name);

#endif
