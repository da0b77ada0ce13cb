/* Configs: the part of a family page that says what config.json holds.
 *
 *     config NAME(parameter = default, ...) {
 *         field layers = int("num_hidden_layers", "transformer layers", most: 10000)
 *         ...
 *     }
 *
 * A config runs from top to bottom, once per import, on one object of the JSON file. What it leaves
 * is an object of the language whose fields are its variables; the model of the page is written out
 * with their values (specialise/specialise.h). What a config declares is also known without running
 * it: for messages about unknown fields, for docs/importing.md, and for tests. */
#ifndef HFE_CONFIG_H
#define HFE_CONFIG_H

#include "frontend/config/json.h"
#include "frontend/language/value.h"
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
    const char *name, *meaning; /* of the field */
    const hfe_expr *aspect[HFE_N_ASPECTS];
} hfe_declaration;

/* Is this statement a declaration? Faults in it are reported to `p` unless that is NULL. */
bool hfe_is_declaration(hfe_program *p, const hfe_stmt *s, hfe_declaration *out);
const char *hfe_kind_word(hfe_kind kind);
bool hfe_find_rule(const char *name, hfe_rule *out);
const char *hfe_rule_signature(hfe_rule rule);
void hfe_check_rule(hfe_program *p, const hfe_expr *call, hfe_rule rule);
/* The text of a string without expressions in it, else NULL. */
const char *hfe_literal(const hfe_expr *x);

/* A field that a config knows: declared, or named in `only` (exactly one of both), or ignored. */
typedef struct hfe_known_field {
    const char *name, *meaning;
    const hfe_def *config; /* where it is known */
    bool declared;
    hfe_declaration declaration;
    const hfe_expr *only;  /* the call */
    const char *alias_of;  /* it is another name of this field */
    const hfe_def *inside; /* the config that is included for this object */
} hfe_known_field;

typedef struct hfe_known_fields {
    HD_VEC(hfe_known_field) list;
} hfe_known_fields;

/* All of them, those of included configs in their places. A field that is declared twice is listed
 * as it is declared last. */
void hfe_list_fields(hd_arena *a, const hfe_def *config, hfe_known_fields *out);

/* A function of a config, or of one that it includes; NULL: there is none of this name. */
const hfe_def *hfe_config_function(const hfe_def *config, const char *name);
/* The config that `use NAME` in a config of `file` includes, or NULL. */
const hfe_def *hfe_included_config(const hfe_file *file, const hfe_stmt *s);

/* ---- running (run.c) ------------------------------------------------------------------------- */

typedef struct hfe_parameter { /* of the imported spec */
    const hfe_object *of;      /* the config that declares it */
    const char *name;
    bool used;
} hfe_parameter;

/* A field that a file has by its other name. */
typedef struct hfe_alias {
    const hfe_field *field, *other;
} hfe_alias;

typedef struct hfe_reading {
    hfe_json *json;
    hfe_field *object; /* that is being read; NULL: the file itself */
    hfe_object *config;
    HD_VEC(hfe_parameter) params; /* in the order of declaration */
    HD_VEC(hfe_alias) aliases;
    HD_VEC(const char *) remarks;
    HD_VEC(const hfe_expr *) refused; /* rules that have spoken: each does once */
    hd_tensors *tensors;              /* of the folder; NULL: not looked for yet */
} hfe_reading;

/* The config run on an object: OBJECT, or poison. What the config takes is taken by name from the
 * variables of the frame at hand. `selector`: the field that led to this config ("type"), or NULL.
 */
hfe_value hfe_run_config(hfe_elab *e, const hfe_def *config, hfe_field *object,
                         const char *selector);
/* name = ..., with a mark. */
hfe_value hfe_run_marked(hfe_elab *e, const hfe_stmt *s);
void hfe_run_include(hfe_elab *e, const hfe_stmt *s);
hfe_value hfe_run_rule(hfe_elab *e, const hfe_expr *call, hfe_rule rule);

/* One value of JSON by its declaration: poison, and an error at its place, if it is not what it
 * must be (read_value.c). */
hfe_value hfe_read_value(hfe_elab *e, const hfe_declaration *d, hfe_field *f);
/* An error at the value of a field: "rope_scaling.factor: <text>". */
hd_diag *hfe_field_error(hfe_json *j, const hfe_field *f, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- rules about lists and tensors (rules.c) ------------------------------------------------- */

/* Every number from `first` on, `count` of them, stands in one of the lists, once: true, or poison
 * and an error for each that does not. */
hfe_value hfe_each_once(hfe_elab *e, const hfe_expr *call);
/* The shape of a tensor of the folder, as a list; none: it holds no such tensor. */
hfe_value hfe_stored_shape(hfe_elab *e, const char *name);
/* Its elements, if they are whole numbers and few. */
hfe_value hfe_stored_numbers(hfe_elab *e, const char *name);

/* ---- pages (family.c) ------------------------------------------------------------------------ */

/* The page `path`.hadal in the include folders or the library: read, and its names resolved. NULL:
 * it is not there, or it has faults, which are reported. */
hfe_file *hfe_read_page(hfe_program *p, const char *path);
/* The names of the pages in a folder of the library, such as "families"; not of its folders. */
void hfe_pages_in(hfe_program *p, const char *inside, hfe_candidates *out);

#endif
