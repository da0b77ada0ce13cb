/* Panels of a matrix [N, K] (hir_layout in ir.h): rows of the checkpoint, converted or rounded,
 * interleaved. */
#ifndef HCG_PANELS_H
#define HCG_PANELS_H

#include "ir/ir.h"
#include "support/tensorfile.h"

/* The order of elements in a panel: for each of `rows` rows, `depth` adjacent elements along K. */
typedef struct hcg_panel_form {
    hir_dtype dtype;
    uint64_t rows, depth;
} hcg_panel_form;

hcg_panel_form hcg_panel_form_of(const hir_weight *w);
/* Bytes of one panel of [N, K]. */
uint64_t hcg_bytes_of_panel(const hcg_panel_form *f, uint64_t k);

enum {
    HCG_PANEL_DEPTH = 256, /* elements of each row that are converted at a time: whole groups */
    HCG_PANEL_WORKSPACE = HCG_PANEL_DEPTH * HIR_PANEL * 4, /* bytes, aligned as floats */
};
/* Makes the panel of rows first .. of t, [N, K]. False: a number cannot be stored in this type. */
bool hcg_make_panel(const hd_tensor *t, const hcg_panel_form *f, uint64_t first, void *workspace,
                    uint8_t *out);

#endif
