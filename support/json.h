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

/* The value, short, for messages. */
const char *hd_json_show(hd_arena *a, const json_t *value);

/* ---- places in a text that is known to be legal ---------------------------------------------
 * The library that parses does not say where a value stood. */

const char *hd_json_skip_space(const char *p);
/* The member `name` of the object that begins at p: places of key (returned) and value, NULL if it
 * cannot be found (a key written with escapes). */
const char *hd_json_member(const char *p, const char *name, const char **value);
/* Element i of the list that begins at p, or its end. */
const char *hd_json_item(const char *p, size_t i);
/* Line and columns of the value, or key, that begins there. */
hd_loc hd_json_place(const char *file, const char *text, const char *value);

#endif
