/* Patterns of a tokenizer: literal strings, and regular expressions in the syntax of the tokenizers
 * library, which is that of Oniguruma for Ruby. */
#ifndef TEXT_PATTERN_H
#define TEXT_PATTERN_H

#include "support/diag.h"

typedef struct pattern pattern;

/* Translates a regular expression to PCRE2 (pattern_translate.c) with the same meaning, and
 * compiles it. Returns NULL, with the reason in `*why`, if some of it is unknown or wrong. The
 * pattern is freed with the arena. */
pattern *pattern_regex(hd_arena *a, const char *text, const char **why);
pattern *pattern_literal(hd_arena *a, const char *text);

/* The memory that a search needs; each thread has its own. */
typedef struct search search;
search *search_new(hd_arena *a);

typedef struct span {
    size_t from, to;
} span;

typedef enum found { FOUND, NOT_FOUND, FOUND_LIMIT /* backtracked beyond the limits */ } found;

/* Iterates over the matches in text[0..n), which is UTF-8, from left to right; the first call takes
 * *state = {0}. An empty match directly after the last match does not count. */
typedef struct matches {
    size_t at, last_end;
    bool any;
} matches;
found pattern_next(const pattern *p, search *s, const char *text, size_t n, matches *state,
                   span *out);

/* Only the translation of pattern_regex, for tests: returns the pattern in PCRE2's syntax. */
const char *pattern_translate(hd_arena *a, const char *text, const char **why);

#endif
