/* Walking through a JSON file that names its faults: a value that knows how it was reached, so that
 * an error has a path ("pre_tokenizer.pretokenizers[1].behavior") and a place. */
#ifndef TEXT_FIELD_H
#define TEXT_FIELD_H

#include "support/json.h"

typedef struct json_file {
    hd_arena *arena;
    hd_diags *diags;
    const char *file, *text;
    json_t *root;
} json_file;

typedef struct field {
    const json_file *json;
    const struct field *in; /* NULL: the whole file */
    const char *name;       /* NULL: an element of a list, */
    size_t index;           /* this one */
    json_t *value;          /* NULL: absent */
} field;

/* A member of an object, an element of a list; `value` is NULL where there is none. Both point to
 * the field that they are in, which has to outlive them. */
field field_get(const field *object, const char *name);
field field_element(const field *list, size_t i);

/* The value of the whole of a file, "the WHAT"; it lives as long as the arena. False, and an error:
 * it cannot be read. */
bool field_open(hd_arena *a, hd_diags *d, const char *what, const char *path, field *out);
void field_close(const field *whole); /* before that, as no value of it is needed any more */

/* An error, or a note, at the value, "PATH: <text>". */
hd_diag *field_error(const field *f, hd_error code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
hd_diag *field_note(const field *f, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Each: false, and an error, if the value is not of that kind. */
bool field_is_object(const field *f);
bool field_is_list(const field *f);
bool field_string(const field *f, const char **out);
bool field_bool(const field *f, bool *out);
bool field_integer(const field *f, int64_t least, int64_t most, int64_t *out);
/* Absent and null leave *out as it is. */
bool field_optional_bool(const field *object, const char *name, bool *out);
bool field_is_null(const field *f); /* or absent */
/* An object's members are all among `names`, which are separated by spaces: any other is an error
 * at its place. */
bool field_known(const field *object, const char *names);

#endif
