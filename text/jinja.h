/* Chat templates: programs in Jinja, as Jinja 3.1 with the settings of transformers understands
 * them (immutable sandbox, trim_blocks, lstrip_blocks, loop controls, generation blocks).
 *
 * A template is text of a stranger: its source, the nesting of its syntax, the steps of a
 * rendering, its memory, its depth of calls and its output are bounded, and it reaches nothing but
 * the values that it is given.
 *
 * Every string knows which of its bytes come from a message. The output has a mask of them, so that
 * a tokenizer can take what a message says for text and nothing else. */
#ifndef TEXT_JINJA_H
#define TEXT_JINJA_H

#include <time.h>

#include "support/json.h"

/* ---- strings --------------------------------------------------------------------------------- */

typedef struct jinja_string {
    const char *at; /* UTF-8 */
    size_t n;
    const uint8_t *mask; /* by byte: 1 is a message's; NULL: all bytes are as `content` says */
    bool content;
} jinja_string;

/* ---- templates ------------------------------------------------------------------------------- */

typedef struct jinja_template jinja_template;

/* What goes wrong, and in which line of the template (0: no line). */
typedef struct jinja_error {
    const char *message; /* NULL: nothing */
    unsigned line;
    bool raised; /* the template called raise_exception with the message */
    bool limit;  /* a bound was exceeded */
} jinja_error;

/* Parses source[0..n), which must be UTF-8. The result lives as long as `a` and may be rendered by
 * several threads at once. NULL and *error on failure. */
const jinja_template *jinja_parse(hd_arena *a, const char *source, size_t n, jinja_error *error);
/* True if a literal of the template contains the text: the raw text between tags, or a string. */
bool jinja_mentions(const jinja_template *t, const char *text, size_t n);

/* ---- rendering ------------------------------------------------------------------------------- */

/* Bounds of one rendering; a member that is 0 has the default. */
typedef struct jinja_limits {
    uint64_t steps;  /* expressions, statements and loops; long strings count by their length */
    uint64_t memory; /* bytes of all values */
    uint32_t depth;  /* of expressions, blocks and macros in each other */
    uint64_t output; /* bytes */
} jinja_limits;

typedef struct jinja_variable {
    const char *name;
    const json_t *value;
    bool
        content; /* strings in it are a message's; the role of a message is not, where it is a plain name */
} jinja_variable;

typedef struct jinja_input {
    const jinja_variable *variables;
    size_t n_variables;
    const struct tm *now; /* for strftime_now */
    jinja_limits limits;
} jinja_input;

/* Renders a template to *out, in memory of `a`. False and *error on failure. */
bool jinja_render(hd_arena *a, const jinja_template *t, const jinja_input *in, jinja_string *out,
                  jinja_error *error);

#endif
