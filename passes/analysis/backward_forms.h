/* Closed forms of the traffic of attention over depth in the backward half of a step, per token and
 * sublayer in units of d. They are derived, not in the paper: of a mix of n sources each source is
 * read, and its gradient read and written, with a row more for the gradient of the mix; in two
 * phases once for a block, with two rows more for the gradients of mixes, written and read again.
 */
#ifndef HIR_PASSES_BACKWARD_FORMS_H
#define HIR_PASSES_BACKWARD_FORMS_H

#include "passes/analysis/paper_forms.h"

typedef struct hir_back_form {
    const char *key, *name;
    const char *formula;
    double (*rows)(hir_paper_parameters p);
    hir_paper_kind of;
} hir_back_form;

size_t hir_back_forms(const hir_back_form **out);

/* Rows of d kept for the backward half above those of a standard residual: with the live sums, and
 * where phase 1 runs again. */
double hir_back_kept(hir_paper_parameters p);
double hir_back_kept_again(hir_paper_parameters p);

#endif
