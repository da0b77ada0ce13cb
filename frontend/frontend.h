/* What the rest of the compiler asks of the frontend: the module of a spec, and the spec of a
 * folder. */
#ifndef HFE_FRONTEND_H
#define HFE_FRONTEND_H

#include "frontend/language/language.h"

/* The module of the model in a file, verified; NULL and diagnostics when there is none to be had.
 * Everything lives in `a`. `options` NULL: all defaults. */
hir_module *hfe_load_spec(hd_arena *a, hd_diags *d, const char *path, const hfe_options *options);

/* The same from text; `file` names it in diagnostics, and its folder is where `use` looks first. */
hir_module *hfe_load_spec_text(hd_arena *a, hd_diags *d, const char *file, const char *text,
                               const hfe_options *options);

/* The importer: a Hugging Face style folder to a spec that a person could have written. Spec text
 * for the config.json in `folder`, by the page of its family (docs/importing.md); NULL and every
 * fault of the config otherwise. Pages are looked for in the include folders of `options` and in
 * its library. */
char *hfe_import(hd_arena *a, hd_diags *d, const char *folder, const hfe_options *options);

/* The same for one folder after another: pages that `p` has read are not read again. */
char *hfe_import_with(struct hfe_program *p, const char *folder);

/* A folder that holds a config.json. */
bool hfe_is_folder_model(const char *path);

#endif
