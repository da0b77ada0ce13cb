/* Verification with the locations of a text that was just parsed. */
#ifndef HIR_VERIFY_H
#define HIR_VERIFY_H

#include "ir/signature.h"

/* Locations in a .hir text, by index in the module's tables. */
typedef struct hir_text_locs {
    const hd_loc *ops, *inputs, *weights, *states;
    hd_loc module;
} hir_text_locs;

/* hir_verify, with errors at places in the text (NULL: at the locations the module carries). */
bool hir_verify_at(const hir_module *m, hd_diags *d, const hir_text_locs *text);

#endif
