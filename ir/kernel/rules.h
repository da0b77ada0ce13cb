/* What the rules of kernel IR share: the rules of one kernel (rules.c) and the rules of places in
 * memory (place_rules.c). Every rule is checked, and each violation is an error. */
#ifndef HIR_KERNEL_RULES_H
#define HIR_KERNEL_RULES_H

#include "ir/ir.h"

typedef struct hir_rules {
    const hir_module *m;
    hd_diags *d;
    hir_id kernel; /* being checked; HIR_NONE: an op at the top level */
    bool model;    /* one i32[T] input: NAME_forward */
    bool ok;
} hir_rules;

/* An error at the op, which names the kernel; always false. `hint` (NULL: none) is not copied. */
bool hir_rules_reject(hir_rules *r, hir_id op, const char *what, const char *hint);
/* Adds an error if `holds` is false; returns `holds`. */
bool hir_rules_require(hir_rules *r, hir_id op, bool holds, const char *what);

/* Checks a module whose values have places: plan-memory has run. */
void hir_check_places(hir_rules *r);
void hir_check_runs(hir_rules *r);

#endif
