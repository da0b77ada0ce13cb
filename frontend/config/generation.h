/* What the files of a folder say about generating text: generation_config.json, or else
 * config.json. */
#ifndef HFE_GENERATION_H
#define HFE_GENERATION_H

#include "support/diag.h"

typedef HD_VEC(int32_t) hfe_token_ids;

/* Reads the tokens that end a text from the first file that names them; it is no failure if none
 * does. A note names settings that would change the text and are not applied. Returns false after
 * an error if a file cannot be read, or has something else in the place of ids. */
bool hfe_read_generation(hd_arena *a, hd_diags *d, const char *folder, hfe_token_ids *stops);

#endif
