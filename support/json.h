/* JSON from files: the parser's words as diagnostics have them. */
#ifndef HD_JSON_H
#define HD_JSON_H

#include <jansson.h>

#include "support/diag.h"

/* What is wrong, for a message; without control characters that the text may hold. */
const char *hd_json_fault(hd_arena *a, const json_error_t *e);

/* The value of the whole of text[0..n), which is also registered as the source `file` for
 * diagnostics; the caller drops the reference. NULL, and a diagnostic at its place, if it is not
 * legal JSON: "the WHAT is not legal JSON: ...". Keys that stand twice are not legal. */
json_t *hd_json_parse(hd_diags *d, const char *what, const char *file, const char *text, size_t n);

#endif
