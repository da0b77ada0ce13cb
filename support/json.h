/* JSON from files: parsing, with the parser's faults reported as diagnostics. */
#ifndef HD_JSON_H
#define HD_JSON_H

#include <jansson.h>

#include "support/diag.h"

/* What is wrong, for a message; control characters from the text are replaced. */
const char *hd_json_fault(hd_arena *a, const json_error_t *e);

/* Parses the whole of text[0..n), which is also registered as the source `file` for diagnostics;
 * the caller drops the reference to the value. NULL, and a diagnostic at the place of the fault, if
 * the text is not legal JSON: "the WHAT is not legal JSON: ...". Duplicate keys are not legal. */
json_t *hd_json_parse(hd_diags *d, const char *what, const char *file, const char *text, size_t n);

/* The value as text, shortened for messages. */
const char *hd_json_show(hd_arena *a, const json_t *value);

/* ---- places in a text that is known to be legal --------------------------------------------- The
 * parsing library does not report where a value stands in the text. */

const char *hd_json_skip_space(const char *p);
/* Finds the member `name` of the object that begins at p: returns the place of its key and sets
 * *value to that of its value; NULL if it is not found (a key written with escapes). */
const char *hd_json_member(const char *p, const char *name, const char **value);
/* Element i of the list that begins at p, or its end. */
const char *hd_json_item(const char *p, size_t i);
/* Line and columns of the value, or key, that begins at `value`. */
hd_loc hd_json_place(const char *file, const char *text, const char *value);

#endif
