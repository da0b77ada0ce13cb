/* Chats: which template a folder has, what it makes of messages, and the tokens of that. */
#ifndef TEXT_CHAT_H
#define TEXT_CHAT_H

#include "text/jinja.h"
#include "text/tokenizer.h"

typedef struct chat_source { /* one of the templates of a folder */
    const char *name;        /* "default", or as the folder calls it */
    const char *file;
    bool embedded; /* in the JSON of tokenizer_config.json: lines are not those of the file */
    const jinja_template *template; /* NULL: it does not parse, as `error` says */
    jinja_error error;
} chat_source;

typedef struct chat_token { /* a variable of all templates, such as bos_token */
    const char *name, *text;
} chat_token;

typedef struct chat_templates {
    const char *folder;
    HD_VEC(chat_source) list;
    HD_VEC(chat_token) tokens;
    HD_VEC(const char *) control; /* chat_control_tokens of the config */
    bool names_control;           /* the config has that list */
} chat_templates;

/* Reads the templates of a model folder, as transformers 5.24 chooses them. NULL and diagnostics
 * where there is none. */
chat_templates *chat_read(hd_arena *a, hd_diags *d, const char *folder);

/* A place for JSON that is freed with the arena. */
json_t **chat_slot(hd_arena *a);

typedef struct chat_request {
    const char *name;                     /* of the template; NULL: the usual one */
    json_t *messages, *tools, *variables; /* the last two may be NULL */
    bool prompts;                         /* add_generation_prompt */
    time_t now;
} chat_request;

/* Renders to *out, in memory of `a`; *used is the template. False, and an error, where the template
 * does not take the messages. */
bool chat_render(hd_arena *a, hd_diags *d, const chat_templates *c, const chat_request *r,
                 jinja_string *out, const chat_source **used);
/* By token of t->added: is it a control token, which stands for more than its text? */
bool *chat_control_tokens(hd_arena *a, const chat_templates *c, const chat_source *used,
                          const tokenizer *t);

/* Opens the templates for include/hadal/text.h; the result lives as long as `a`. */
struct hadal_chat_template *chat_template_open(hd_arena *a, hd_diags *d, const char *folder);

#endif
