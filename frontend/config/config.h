/* Configs: the part of a family page that says what config.json holds.
 *
 *     config NAME(parameter = default, ...) {
 *         field layers = int("num_hidden_layers", "transformer layers", most: 10000)
 *         ...
 *     }
 *
 * A config runs from top to bottom, once per import, on one object of the JSON file. The result is
 * an object of the language whose fields are the variables of the config; the model of the page is
 * written out with their values (specialise/specialise.h). The declarations of a config are also
 * known without running it: for messages about unknown fields, for docs/importing.md, and for
 * tests. */
#ifndef HFE_CONFIG_H
#define HFE_CONFIG_H

#include "frontend/config/json.h"
#include "frontend/language/elaborate.h"
#include "frontend/specialise/specialise.h"
#include "support/tensorfile.h"

typedef enum hfe_kind {
#define KIND(id, word, what) HFE_KIND_##id,
#include "frontend/config/config.def"
    HFE_N_KINDS
} hfe_kind;

typedef enum hfe_aspect {
#define ASPECT(name) HFE_ASPECT_##name,
#include "frontend/config/config.def"
    HFE_N_ASPECTS
} hfe_aspect;

typedef enum hfe_rule {
#define RULE(id, word, least, most, signature) HFE_RULE_##id,
#include "frontend/config/config.def"
    HFE_N_RULES
} hfe_rule;

/* ---- what is declared (declare.c) ------------------------------------------------------------ */

typedef struct hfe_declaration {
    hfe_kind kind;
    const char *name, *meaning; /* of the field in config.json */
    const hfe_expr *aspect[HFE_N_ASPECTS];
} hfe_declaration;

/* True if the statement is a declaration. Faults in it are reported to `p` unless that is NULL. */
bool hfe_is_declaration(hfe_program *p, const hfe_stmt *s, hfe_declaration *out);
/* True if the expression is a call of a rule. `x` may be NULL. */
bool hfe_is_rule(const hfe_expr *x, hfe_rule *out);
/* These two are members of hfe_config_words. */
bool hfe_check_rule(hfe_program *p, const hfe_expr *x);
bool hfe_check_declaration(hfe_program *p, const hfe_stmt *s, hfe_parts *out);

/* A field that a config knows: declared, or named in `only` (exactly one of both), or ignored. */
typedef struct hfe_known_field {
    const char *name, *meaning;
    const hfe_def *config; /* the config in which it is known */
    bool declared;
    hfe_declaration declaration;
    const hfe_expr *only;  /* the call of `only` */
    const char *alias_of;  /* NULL, or the field for which this is another name */
    const hfe_def *inside; /* the config that is included for the object in this field */
} hfe_known_field;

typedef struct hfe_known_fields {
    HD_VEC(hfe_known_field) list;
} hfe_known_fields;

/* Lists all fields that a config knows, fields of included configs where they are included. A field
 * that is declared twice is listed as in its last declaration. */
void hfe_list_fields(hd_arena *a, const hfe_def *config, hfe_known_fields *out);

/* ---- running (run.c) ------------------------------------------------------------------------- */

/* A field that a file has under its other name. */
typedef struct hfe_alias {
    const hfe_field *field, *other;
} hfe_alias;

typedef struct hfe_reading {
    hfe_json *json;
    hfe_field *object;  /* the object that is being read; NULL: the file itself */
    hfe_bindings bound; /* what the model's names stand for; its config is the one being run */
    HD_VEC(hfe_alias) aliases;
    HD_VEC(const hfe_expr *) rejected; /* rules that have reported an error; each reports once */
    hd_tensors *tensors;               /* of the folder; NULL: not opened yet */
} hfe_reading;

/* Runs a config on an object, and returns an OBJECT, or poison. The config's parameters get their
 * values by name from the variables of the current frame. `selector` is the field that led to this
 * config ("type"), or NULL. */
hfe_value hfe_run_config(hfe_elab *e, const hfe_def *config, hfe_field *object,
                         const char *selector);
/* The meaning of statements in configs, for programs that read pages. */
extern const hfe_config_words hfe_words_of_configs;

/* Reads one JSON value by its declaration. The result is poison, after an error at the place of the
 * value, if the declaration does not allow the value (read_value.c). */
hfe_value hfe_read_value(hfe_elab *e, const hfe_declaration *d, hfe_field *f);
/* Reports an error at the value of a field: "rope_scaling.factor: <text>". */
hd_diag *hfe_field_error(hfe_json *j, const hfe_field *f, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- rules (rules.c) ------------------------------------------------------------------------- */

/* This is a member of hfe_config_words. */
bool hfe_run_rule(hfe_elab *e, const hfe_expr *x, hfe_value *out);

/* ---- pages (family.c) ------------------------------------------------------------------------ */

/* Reads the page `path`.hadal from the include directories or the library, and resolves its names.
 * Returns NULL if it is not there, or has faults, which are reported. */
hfe_file *hfe_read_page(hfe_program *p, const char *path);
/* Lists the pages directly in a directory of the library, such as "families". */
void hfe_pages_in(hfe_program *p, const char *inside, hfe_candidates *out);

#endif
