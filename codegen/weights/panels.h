/* Panels of a matrix [N, K] (hir_layout in ir.h): rows of the checkpoint, converted or rounded,
 * side by side. */
#ifndef HCG_PANELS_H
#define HCG_PANELS_H

#include "ir/ir.h"
#include "support/tensorfile.h"

/* How elements of a panel lie: for each of `rows` rows, `depth` adjacent elements along K. */
typedef struct hcg_panel_form {
    hir_dtype dtype;
    uint64_t rows, depth;
} hcg_panel_form;

hcg_panel_form hcg_panel_form_of(const hir_weight *w);
/* Bytes of one panel of [N, K]. */
uint64_t hcg_bytes_of_panel(const hcg_panel_form *f, uint64_t k);

enum {
    HCG_PANEL_DEPTH = 256, /* elements of each row that are converted at a time: whole groups */
    HCG_PANEL_WORKSPACE = HCG_PANEL_DEPTH * HIR_PANEL * 4, /* bytes, as floats are aligned */
};
/* The panel of rows first .. of t, [N, K]. False: a number that cannot be stored so. */
bool hcg_make_panel(const hd_tensor *t, const hcg_panel_form *f, uint64_t first, void *workspace,
                    uint8_t *out);

#endif
