/* The final hidden rows of a model as an additional output. */
#ifndef API_HIDDEN_H
#define API_HIDDEN_H

#include "ir/ir.h"

/* The name of the output. It has no conflict: outputs of a spec are identifiers, those of traces
 * end with a number. */
#define API_HIDDEN "hidden.final"

/* Adds the output, [T, d], after the others. False, and a diagnostic, if the logits are not made by
 * one linear op. */
bool api_add_hidden(hir_module *m, hd_diags *d);

#endif
