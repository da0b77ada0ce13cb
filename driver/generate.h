/* What generate and chat share: a model that is ready to run, options of how tokens are chosen, and
 * text that is written as it comes. */
#ifndef DRIVER_GENERATE_H
#define DRIVER_GENERATE_H

#include "driver/prompt.h"
#include "driver/ranks.h"
#include "driver/workspace.h"

enum { EXIT_INTERRUPTED = 128 + 2 };

typedef struct writer {
    hadal_text_stream *stream; /* NULL: token ids are written */
    bool begun, silent;        /* silent: another rank does the writing */
    /* Of a chat: the text is kept as well. A control token in it is shown as the end of a line. */
    const hadal_tokenizer *keeps;
    char *text;
    size_t n, capacity, last; /* last: where the text after the last control token begins */
} writer;

/* Begins a text after these tokens. */
int open_writer(hadal_session *s, const hadal_tokenizer *t, const int32_t *ids, int64_t n,
                writer *w);
int write_token(void *writer, int32_t id); /* as hadal_generate_options.token */
/* Writes what was held back, and a newline. The text, if it was kept, is the caller's. */
void close_writer(writer *w);

void tell_rates(const hadal_generated *g); /* prints how fast the text was read and written */

/* From options of the command line, with `most` where --max-tokens is not given. `folder` is that
 * of the end tokens. */
int generate_options_of(hadal_session *s, const command_line *line, const char *folder,
                        long long most, hadal_generate_options *out);
/* Finds the library that SPEC names, or compiles SPEC into a workspace. */
int prepare_model(hadal_session *s, const command_line *line, workspace *w, ranks *group);

#endif
