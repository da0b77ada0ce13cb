/* Reading tokenizer.json: the parts of it. */
#ifndef TEXT_READ_H
#define TEXT_READ_H

#include "text/field.h"
#include "text/tokenizer.h"

typedef struct reader {
    tokenizer *t;
    hd_arena *arena; /* of the tokenizer; messages have the diagnostics' own */
    size_t capacity; /* ids that t->tokens has room for */
} reader;

bool read_model(reader *r, const field *model);       /* read_model.c */
bool read_added_tokens(reader *r, const field *list); /* after the model */
/* What a token has beside its content. */
bool read_token_flags(const field *f, added_token *a);
/* One with its id, which no other token has yet; else an error at the field. */
bool add_token(reader *r, const field *at, added_token a);
void finish_added_tokens(reader *r); /* after all of them, and the normalizers */

/* What stands beside a tokenizer.json (read_beside.c); values are NULL where there is no file. */
typedef struct files_beside {
    field config;     /* tokenizer_config.json */
    field map, added; /* special_tokens_map.json and added_tokens.json, of older versions */
} files_beside;
bool open_files_beside(hd_arena *a, hd_diags *d, const char *path, files_beside *out);
bool read_tokens_beside(reader *r, const files_beside *b); /* after the added tokens */
bool read_prefix_beside(reader *r, const files_beside *b); /* after the pre_tokenizer */
bool read_ends_beside(reader *r, const files_beside *b);   /* after the post_processor */
void note_unread_beside(const files_beside *b);
bool read_normalizers(reader *r, const field *f); /* read_steps.c */
bool read_splitters(reader *r, const field *f);
bool read_decoders(reader *r, const field *f);       /* read_decoders.c */
bool read_post_processor(reader *r, const field *f); /* after the added tokens */

/* What steps share (read_steps.c). A kind of step: what may stand beside its type. */
typedef struct step_kind {
    const char *type, *fields;
} step_kind;
typedef bool read_step(reader *r, const field *f, size_t kind);
/* A step of one of n kinds, or a Sequence of such, whose list is called `members`; null is none. */
bool read_steps(reader *r, const field *f, const step_kind *kinds, size_t n, const char *members,
                read_step *read);
/* The index of a string among n; false, and an error that lists them, if it is none of them. */
bool read_choice(const field *f, const char *const *names, size_t n, size_t *out);
bool read_character(reader *r, const field *f, string *out); /* a string of one character */
bool read_pattern(reader *r, const field *f, const pattern **out);
bool read_text(reader *r, const field *f, string *out);
/* Metaspace, of both pipelines. */
bool read_metaspace(reader *r, const field *f, string *replacement, prepend_scheme *scheme,
                    bool *split);

#endif
