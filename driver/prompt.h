/* What a model reads: token ids, or text by a tokenizer. */
#ifndef DRIVER_PROMPT_H
#define DRIVER_PROMPT_H

#include "driver/options.h"
#include "hadal/text.h"

typedef struct prompt {
    const hadal_tokenizer *tokenizer; /* NULL: there is none */
    char folder[4096];                /* of the tokenizer; "": there is none */
    const int32_t *ids;
    int64_t n;
} prompt;

bool has_prompt(const command_line *line); /* by an option */
/* From --tokens, --prompt or --prompt-file (of which there must be one at most), else from standard
 * input. */
int read_prompt(hadal_session *s, const command_line *line, prompt *out);
void free_prompt(prompt *p);

#endif
