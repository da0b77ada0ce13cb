/* Text that grows: the one way to build output of unknown length (IR text, headers, messages). */
#ifndef HD_TEXT_H
#define HD_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "support/arena.h"
#include "support/utf8.h"

typedef struct hd_text {
    hd_arena *arena;
    char *at; /* always NUL-terminated after the first append */
    size_t n, cap;
} hd_text;

void hd_text_init(hd_text *t, hd_arena *a);
void hd_text_add(hd_text *t, const char *s);
void hd_text_add_n(hd_text *t, const char *s, size_t n);
void hd_text_add_json(hd_text *t, const char *s); /* as a string of JSON, in quotes */
void hd_text_f(hd_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Shortest decimal that reads back to the same double; inf, -inf and nan by these names. */
void hd_text_double(hd_text *t, double value);
/* Reads the whole of s[0..n) as a double, independent of the locale; false if it is not a number.
 * An exponent out of range gives inf or 0. */
bool hd_read_double(const char *s, size_t n, double *out);
/* A whole number with an optional K, M or G (1024, its square and cube); 0: malformed or too large.
 * And the shortest text of one. */
uint64_t hd_read_size(const char *text, size_t n);
void hd_text_add_size(hd_text *t, uint64_t size);
/* "text" with \" \\ \n \t and \xNN escapes. */
void hd_text_quoted(hd_text *t, const char *s);

/* hd_utf8_code: the code point of the character at `text`, which must be valid UTF-8. hd_utf8_put:
 * writes the bytes of a code point (at most 4) and returns their number. */
uint32_t hd_utf8_code(const char *text);
size_t hd_utf8_put(uint32_t code, char *out);

bool hd_begins_with(const char *text, const char *beginning);
bool hd_ends_with(const char *text, const char *end);

/* Nearest of `n` candidates to `word` (edit distance at most a third of its length), or NULL:
 * the "did you mean" of every diagnostic. Never the word itself. */
const char *hd_nearest(const char *word, const char *const *candidates, size_t n);
/* The same with an edit distance of at most `most`: long names made of several words are close to
 * each other when one word differs, but mean different things. */
const char *hd_nearest_within(const char *word, const char *const *candidates, size_t n,
                              size_t most);

/* The length of the leading components that two dotted names share: the first n characters of a,
 * and b. */
size_t hd_shared_components(const char *a, size_t n, const char *b);
/* The length of a dotted name up to its first component that begins with a digit, "model.layers.3" of
 * "model.layers.3.self_attn"; 0: it has none. */
size_t hd_layer_length(const char *name);

#endif
