/* What filters and methods of strings share (jinja_text.c). */
#ifndef TEXT_JINJA_TEXT_H
#define TEXT_JINJA_TEXT_H

#include "text/jinja_tree.h"

typedef enum jinja_case {
    CASE_UPPER,
    CASE_LOWER,
    CASE_CAPITAL,      /* the first character, and no other */
    CASE_TITLE,        /* of each word, as str.title: what follows no letter */
    CASE_TITLE_FILTER, /* as the filter: what follows a space or a bracket */
    CASE_SWAPPED,
} jinja_case;

/* Each character keeps its place in the mask. */
jinja_value jinja_cased(jinja *j, const jinja_string *s, jinja_case to);
/* Replaces `old` at most `most` times; -1: everywhere. */
jinja_value jinja_replaced(jinja *j, const jinja_string *s, const jinja_string *old,
                           const jinja_string *by, int64_t most);
jinja_value jinja_lines(jinja *j, const jinja_string *s, bool with_ends); /* str.splitlines */
/* int(s, base) and float(s) of Python; false: not a number. */
bool jinja_read_int(const jinja_string *s, int64_t base, int64_t *out);
bool jinja_read_real(const jinja_string *s, double *out);
const char *jinja_chars(jinja *j, const jinja_string *s); /* ended by a NUL */
jinja_value jinja_items(jinja *j, jinja_value dict, sequence_kind kind);

#endif
