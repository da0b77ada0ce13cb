/* How views write values: strings and numbers of JSON, and sizes for people. */
#ifndef INSPECT_FORMAT_H
#define INSPECT_FORMAT_H

#include "support/text.h"

static inline void inspect_json_string(hd_text *out, const char *s) {
    hd_text_add_json(out, s);
}
/* Words that are separated by " ", as an array of strings. */
void inspect_json_words(hd_text *out, const char *words);
void inspect_json_key(hd_text *out, const char *key); /* "key": */
/* A number with six digits, for pictures; null where there is no number, or none that JSON can
 * hold. */
void inspect_json_rounded(hd_text *out, bool there, double x);

/* Sizes for people. */
const char *inspect_bytes(hd_arena *a, uint64_t bytes); /* "1.50 MiB" */

#endif
