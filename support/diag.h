/* Diagnostics: errors are values. Nothing below driver/ prints.
 *
 * A function that can fail takes an `hd_diags *`, adds to it, and returns false (or NULL).
 * Several errors may be reported in one run; `hd_diags_failed` says whether any was.
 */
#ifndef HD_DIAG_H
#define HD_DIAG_H

#include <stdbool.h>

#include "support/arena.h"
#include "support/text.h"

typedef enum hd_error {
#define E(id, name, exit_code, when) HD_E_##id,
#include "support/errors.def"
#undef E
    HD_E_COUNT
} hd_error;

const char *hd_error_name(hd_error e);
int hd_error_exit_code(hd_error e);

/* A range in a source text. `file` NULL: no place is known. Lines and columns count from 1,
 * columns in bytes; `end_column` is one past the last byte, 0 for "just one". A place in a page
 * that a model uses has the call in the model that led there. */
typedef struct hd_loc {
    const char *file;
    uint32_t line, column, end_column;
    const struct hd_loc *call; /* NULL: the place is in the model itself, or there is no model */
} hd_loc;

typedef enum hd_severity { HD_ERROR, HD_WARNING, HD_NOTE } hd_severity;

typedef struct hd_diag {
    hd_severity severity;
    hd_error code;
    hd_loc loc;
    const char *message;     /* what is wrong, one sentence without a full stop, lower case */
    const char *cause;       /* why, or NULL */
    const char *hint;        /* what to do, or NULL */
    const char *source_line; /* the line at loc, or NULL */
} hd_diag;

typedef struct hd_diags {
    hd_arena *arena;
    HD_VEC(hd_diag) list;
    size_t errors;
    size_t limit; /* errors kept (0: 20); the rest are only counted */
    HD_VEC(struct {
        const char *file;
        const char *text;
    })
    sources;
    struct hd_build *build; /* outputs of a build appear together; NULL: each appears at once */
    /* Long work reports its progress here; `total` 0: unknown. NULL: progress is not reported. */
    void (*progress)(void *context, const char *what, uint64_t done, uint64_t total);
    void *progress_context;
} hd_diags;

static inline void hd_progress(const hd_diags *d, const char *what, uint64_t done, uint64_t total) {
    if (d->progress) d->progress(d->progress_context, what, done, total);
}

void hd_diags_init(hd_diags *d, hd_arena *a);

/* Adds an error and returns it, to be given a cause and a hint; never NULL. */
hd_diag *hd_err(hd_diags *d, hd_error code, hd_loc loc, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
hd_diag *hd_warn(hd_diags *d, hd_error code, hd_loc loc, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
hd_diag *hd_note(hd_diags *d, hd_loc loc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define HD_NOWHERE ((hd_loc){0})
/* A copy of `call` for hd_loc.call: `last` where that is the same place, so that neighbours share
 * one. */
const hd_loc *hd_kept_call(hd_arena *a, const hd_loc *last, hd_loc call);

static inline bool hd_diags_failed(const hd_diags *d) {
    return d->errors > 0;
}
hd_error hd_diags_first(const hd_diags *d); /* code of the first error, HD_E_OK if none */

/* Registers a source text, so that diagnostics in it show their line. `text` is kept, not copied.
 */
void hd_diags_source(hd_diags *d, const char *file, const char *text);

/* file:line:column: error: message [name] / source line / caret range / cause / hint */
void hd_diag_render(const hd_diag *diag, bool colour, hd_text *out);

#endif
