/* Access to a JSON file with precise errors: a field is a value that knows how it was reached, so
 * that an error has a path ("pre_tokenizer.pretokenizers[1].behavior") and a place. */
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
    const char *name;       /* NULL: the field is an element of a list, */
    size_t index;           /* the element's index in it */
    json_t *value;          /* NULL: absent */
} field;

/* Return a member of an object, or an element of a list; `value` is NULL where there is none. The
 * result points to the field that contains it, which must outlive the result. */
field field_get(const field *object, const char *name);
field field_element(const field *list, size_t i);

/* Opens a file, called "the WHAT" in messages; *out is its whole value and lives as long as the
 * arena. Returns false after an error if the file cannot be read. */
bool field_open(hd_arena *a, hd_diags *d, const char *what, const char *path, field *out);
void field_close(const field *whole); /* frees the value early, once nothing of it is needed */

/* Report an error, or a note, at the value, as "PATH: <text>". */
hd_diag *field_error(const field *f, hd_error code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
hd_diag *field_note(const field *f, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Each function returns false after an error if the value is not of the kind in its name. */
bool field_is_object(const field *f);
bool field_is_list(const field *f);
bool field_string(const field *f, const char **out);
bool field_bool(const field *f, bool *out);
bool field_integer(const field *f, int64_t least, int64_t most, int64_t *out);
/* An absent or null member leaves *out unchanged. */
bool field_optional_bool(const field *object, const char *name, bool *out);
bool field_is_null(const field *f); /* true also if absent */
/* Checks that all members of an object are among `names`, which are separated by spaces: any other
 * member is an error at its place. */
bool field_known(const field *object, const char *names);

#endif
