/* Patterns of a tokenizer: literal strings, and regular expressions as the tokenizers library has
 * them, which are those of Oniguruma in Ruby's syntax. */
#ifndef TEXT_PATTERN_H
#define TEXT_PATTERN_H

#include "support/diag.h"

typedef struct pattern pattern;

/* Written again for PCRE2 (pattern_translate.c), with the same meaning. NULL, and `*why` says what
 * is not known or wrong. The pattern is freed with the arena. */
pattern *pattern_regex(hd_arena *a, const char *text, const char **why);
pattern *pattern_literal(hd_arena *a, const char *text);

/* What a search needs; one for each thread. */
typedef struct search search;
search *search_new(hd_arena *a);

typedef struct span {
    size_t from, to;
} span;

typedef enum found { FOUND, NOT_FOUND, FOUND_LIMIT /* backtracked beyond all measure */ } found;

/* The matches in text[0..n), which is UTF-8, from left to right: call with *state = {0} first. An
 * empty match right behind the last one does not count. */
typedef struct matches {
    size_t at, last_end;
    bool any;
} matches;
found pattern_next(const pattern *p, search *s, const char *text, size_t n, matches *state,
                   span *out);

/* What pattern_regex does, for tests: the pattern in PCRE2's syntax. */
const char *pattern_translate(hd_arena *a, const char *text, const char **why);

#endif
