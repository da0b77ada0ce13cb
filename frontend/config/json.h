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

/* Reads and parses a file; returns NULL and a diagnostic if it is no JSON object, or has a key
 * twice in one object. */
hfe_json *hfe_json_open(hd_arena *a, hd_diags *d, const char *path);

/* A field of an object, which is itself a field (`object`; NULL: the file's own object). Where a
 * pointer to a field is NULL, the file itself is meant. */
typedef struct hfe_field {
    const struct hfe_field *object;
    const char *name;
} hfe_field;

/* Names of the objects that hold the language model of a larger model. */
enum { HFE_LANGUAGE_PARTS = 3 };
extern const char *const hfe_language_parts[HFE_LANGUAGE_PARTS];

json_t *hfe_json_get(const hfe_json *j, const hfe_field *f);      /* NULL if absent */
const char *hfe_json_path(const hfe_json *j, const hfe_field *f); /* for messages: a or a.b */
hd_loc hfe_json_key(const hfe_json *j, const hfe_field *f);       /* place of its name */
hd_loc hfe_json_value(const hfe_json *j, const hfe_field *f);     /* place of its value */
hd_loc hfe_json_element(const hfe_json *j, const hfe_field *f, size_t i); /* of element i */
const char *hfe_json_show(const hfe_json *j, const json_t *value);        /* short, for messages */

#endif
