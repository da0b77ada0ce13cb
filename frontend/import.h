/* The importer: a Hugging Face style folder to a spec that a person could have written. */
#ifndef HFE_IMPORT_H
#define HFE_IMPORT_H

#include "support/diag.h"

/* Spec text for the config.json in `folder`; NULL and every fault of the config otherwise. What is
 * understood, ignored and refused is listed in docs/importing.md. */
char *hfe_import(hd_arena *a, hd_diags *d, const char *folder);

/* A folder that holds a config.json. */
bool hfe_is_folder_model(const char *path);

#endif
