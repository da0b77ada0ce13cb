/* What the frontend offers to the rest of the compiler: the module of a spec, and the spec of a
 * model folder. */
#ifndef HFE_FRONTEND_H
#define HFE_FRONTEND_H

#include "frontend/language/language.h"

/* Returns the verified module of the model in a file, or NULL and diagnostics on error. Everything
 * lives in `a`. If `options` is NULL, all options have their defaults. */
hir_module *hfe_load_spec(hd_arena *a, hd_diags *d, const char *path, const hfe_options *options);

/* Does the same for text; `file` names it in diagnostics, and `use` looks first in the directory
 * of `file`. */
hir_module *hfe_load_spec_text(hd_arena *a, hd_diags *d, const char *file, const char *text,
                               const hfe_options *options);

/* The importer turns a Hugging Face style folder into a spec that a person could have written. It
 * returns spec text for the config.json in `folder`, made by the page of its family
 * (docs/importing.md), or NULL after it has reported every fault of the config. Pages are searched
 * in the include directories of `options` and in its library. */
char *hfe_import(hd_arena *a, hd_diags *d, const char *folder, const hfe_options *options);

/* Does the same for one folder after another: pages that `p` has read are not read again. */
char *hfe_import_with(struct hfe_program *p, const char *folder);

/* True for a folder that holds a config.json. */
bool hfe_is_folder_model(const char *path);

/* Rejects a folder that holds an adapter (LoRA) alone, and says how it is merged. False: it is none. */
bool hfe_reject_adapter(hd_arena *a, hd_diags *d, const char *folder);

#endif
