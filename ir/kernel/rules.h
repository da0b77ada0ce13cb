/* What the rules of kernel IR share: those of one kernel (rules.c) and those of places in
 * memory (place_rules.c). Every rule is looked at, and each that is broken is an error. */
#ifndef HIR_KERNEL_RULES_H
#define HIR_KERNEL_RULES_H

#include "ir/ir.h"

typedef struct hir_rules {
    const hir_module *m;
    hd_diags *d;
    hir_id kernel; /* being looked at; HIR_NONE: what stands at the top */
    bool model;    /* one i32[T] input: NAME_forward */
    bool ok;
} hir_rules;

/* An error at the op, which names the kernel; always false. `hint` (NULL: none) is not copied. */
bool hir_rules_reject(hir_rules *r, hir_id op, const char *what, const char *hint);
/* `holds`; an error if not. */
bool hir_rules_require(hir_rules *r, hir_id op, bool holds, const char *what);

/* Of a module whose values have places: plan-memory has run. */
void hir_check_places(hir_rules *r);
void hir_check_runs(hir_rules *r);

#endif
