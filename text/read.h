/* The parts of reading a tokenizer.json. */
#ifndef TEXT_READ_H
#define TEXT_READ_H

#include "text/field.h"
#include "text/tokenizer.h"

typedef struct reader {
    tokenizer *t;
    hd_arena *arena; /* the tokenizer's; messages use the diagnostics' own */
    size_t capacity; /* ids for which t->tokens has space */
} reader;

bool read_model(reader *r, const field *model);       /* read_model.c */
bool read_added_tokens(reader *r, const field *list); /* after the model */
/* Reads what a token has besides its content. */
bool read_token_flags(const field *f, added_token *a);
/* Adds a token with its id; returns false after an error at the field if another token has the
 * id. */
bool add_token(reader *r, const field *at, added_token a);
void finish_added_tokens(reader *r); /* call after all of them, and after the normalizers */

/* The files next to a tokenizer.json (read_tokenizer_config.c); a value is NULL where there is no file. */
typedef struct config_files {
    field config;     /* tokenizer_config.json */
    field map, added; /* special_tokens_map.json and added_tokens.json, of older versions */
} config_files;
bool open_config_files(hd_arena *a, hd_diags *d, const char *path, config_files *out);
bool read_config_tokens(reader *r, const config_files *b); /* after the added tokens */
bool read_config_prefix(reader *r, const config_files *b); /* after the pre_tokenizer */
bool read_config_ends(reader *r, const config_files *b);   /* after the post_processor */
void note_unread_fields(const config_files *b);
/* Notes fields that tokenizer_config.def lacks: of a later version, or of a class with code of its own. */
void note_unknown_fields(const field *file);
/* The field of special_tokens_map.json, or else of tokenizer_config.json. */
field joined_field(const config_files *b, const char *name);
/* Notes steps of tokenizer.json that transformers 5 does not take, after all of them (read_class.c). */
void note_class(reader *r, const field *file, const config_files *b);
/* The name of a class; older versions have "Fast" at its end. */
bool is_class(const char *name, const char *class);
bool read_normalizers(reader *r, const field *f); /* read_steps.c */
bool read_splitters(reader *r, const field *f);
bool read_decoders(reader *r, const field *f);       /* read_decoders.c */
bool read_post_processor(reader *r, const field *f); /* after the added tokens */

/* What steps share (read_steps.c). A kind of step names the fields that may stand next to its
 * type. */
typedef struct step_kind {
    const char *type, *fields;
} step_kind;
typedef bool read_step(reader *r, const field *f, size_t kind);
/* Reads one step of n kinds, or a Sequence of such steps, whose list is called `members`; null is
 * no step. */
bool read_steps(reader *r, const field *f, const step_kind *kinds, size_t n, const char *members,
                read_step *read);
/* Finds a string among n names; returns false after an error that lists the names if it is none of
 * them. */
bool read_choice(const field *f, const char *const *names, size_t n, size_t *out);
bool read_character(reader *r, const field *f, string *out); /* a string of one character */
bool read_pattern(reader *r, const field *f, const pattern **out);
bool read_text(reader *r, const field *f, string *out);
/* Reads a Metaspace step, which both the splitters and the decoders have. */
bool read_metaspace(reader *r, const field *f, string *replacement, prepend_scheme *scheme,
                    bool *split);

#endif
