/* A JSON file whose values know their places in the text. */
#ifndef HFE_JSON_H
#define HFE_JSON_H

#include <jansson.h>

#include "support/diag.h"

typedef struct hfe_json {
    hd_arena *arena;
    hd_diags *diags;
    const char *file, *text;
    json_t *root; /* an object; freed with the arena */
} hfe_json;

/* Reads and parses; NULL and a diagnostic if the file is no JSON object. Keys stand once. */
hfe_json *hfe_json_open(hd_arena *a, hd_diags *d, const char *path);

/* A field of the object that another field is, or (`object` NULL) of the file. A field that is
 * NULL stands for the file itself. */
typedef struct hfe_field {
    const struct hfe_field *object;
    const char *name;
} hfe_field;

/* Objects of a config that are the language model of a larger whole. */
enum { HFE_LANGUAGE_PARTS = 3 };
extern const char *const hfe_language_parts[HFE_LANGUAGE_PARTS];

json_t *hfe_json_get(const hfe_json *j, const hfe_field *f);      /* NULL if absent */
const char *hfe_json_path(const hfe_json *j, const hfe_field *f); /* for messages: a or a.b */
hd_loc hfe_json_key(const hfe_json *j, const hfe_field *f);       /* place of its name */
hd_loc hfe_json_value(const hfe_json *j, const hfe_field *f);     /* place of its value */
hd_loc hfe_json_element(const hfe_json *j, const hfe_field *f, size_t i); /* of a list's value */
const char *hfe_json_show(const hfe_json *j, const json_t *value);        /* short, for messages */

#endif
