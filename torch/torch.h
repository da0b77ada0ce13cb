/* The bridge to PyTorch: graph IR as one Python file, for those who train on GPUs. */
#ifndef HPT_TORCH_H
#define HPT_TORCH_H

#include "ir/ir.h"

/* Writes the module, which must be graph IR as the frontend makes it, as Python. False and
 * diagnostics: something of it has no form in PyTorch, or it is no longer the graph. */
bool hpt_write(const hir_module *m, hd_diags *d, hd_text *out);

#endif
