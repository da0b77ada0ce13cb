/* Opening what a caller of include/hadal/text.h owns. */
#ifndef TEXT_OPEN_H
#define TEXT_OPEN_H

#include "support/diag.h"

/* Copies a text to the caller, as far as it fits. */
void text_tell(char *message, size_t size, const char *text);
/* Copies the first error to the caller. */
void text_tell_error(hd_arena *a, const hd_diags *d, char *message, size_t size);

/* Reads what lies at `path` into an arena of its own, which is the caller's from then on. NULL after
 * an error, or where memory is exhausted, which the message says. */
typedef void *text_read_fn(hd_arena *a, hd_diags *d, const char *path);
void *text_open(text_read_fn *read, const char *path, char *message, size_t size);

#endif
