/* The final hidden rows of a model as one output more. */
#ifndef API_HIDDEN_H
#define API_HIDDEN_H

#include "ir/ir.h"

/* Its name: outputs of a spec are identifiers, those of traces end with a number. */
#define API_HIDDEN "hidden.final"

/* Adds the output, [T, d], behind the others; false, and a diagnostic, where the logits are not
 * made by one linear op. */
bool api_add_hidden(hir_module *m, hd_diags *d);

#endif
