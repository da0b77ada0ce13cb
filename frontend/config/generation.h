/* What the files of a folder say about writing text: generation_config.json, else config.json. */
#ifndef HFE_GENERATION_H
#define HFE_GENERATION_H

#include "support/diag.h"

typedef HD_VEC(int32_t) hfe_token_ids;

/* The tokens that end a text, of the first of the files that says so; none is no failure. What else
 * the files ask for is done by nothing here, and a note names it. False, and an error: a file cannot
 * be read, or holds no ids. */
bool hfe_read_generation(hd_arena *a, hd_diags *d, const char *folder, hfe_token_ids *stops);

#endif
