/* The importer: a Hugging Face style folder to a spec that a person could have written. */
#ifndef HFE_IMPORT_H
#define HFE_IMPORT_H

#include "frontend/frontend.h"

/* Spec text for the config.json in `folder`, by the page of its family (docs/importing.md); NULL
 * and every fault of the config otherwise. Pages are looked for in the include folders of `options`
 * and in its library. */
char *hfe_import(hd_arena *a, hd_diags *d, const char *folder, const hfe_options *options);

/* The same for one folder after another: pages that `p` has read are not read again. */
struct hfe_program;
char *hfe_import_with(struct hfe_program *p, const char *folder);

/* A folder that holds a config.json. */
bool hfe_is_folder_model(const char *path);

#endif
