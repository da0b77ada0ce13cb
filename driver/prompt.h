/* The input of a model: token ids, or text that a tokenizer turns into token ids. */
#ifndef DRIVER_PROMPT_H
#define DRIVER_PROMPT_H

#include "driver/options.h"
#include "hadal/text.h"

typedef struct prompt {
    const hadal_tokenizer *tokenizer; /* NULL: no tokenizer was found */
    char folder[4096];                /* the directory of the tokenizer; "": none was found */
    const int32_t *ids;
    int64_t n;
} prompt;

bool has_prompt(const command_line *line); /* was one given by an option? */
/* Reads from --tokens, --prompt or --prompt-file, of which at most one may be given, else from
 * standard input. */
int read_prompt(hadal_session *s, const command_line *line, prompt *out);
/* The tokenizer of --tokenizer, or that next to the model, and its folder; NULL: there is none. */
int find_tokenizer_of_text(hadal_session *s, const command_line *line, prompt *out);
/* The tokenizer and its folder for a command that reads texts: an error if there is none. */
int find_text_model(hadal_session *s, const command_line *line, prompt *out);
void free_prompt(prompt *p);

#endif
