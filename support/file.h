/* Files: read whole or mapped, and written so that a reader sees the old one, the new one, or
 * (after a failure) none, but never half of one. */
#ifndef HD_FILE_H
#define HD_FILE_H

#include "support/diag.h"

typedef struct hd_bytes {
    const uint8_t *at;
    size_t n;
} hd_bytes;

/* Whole text file in arena memory, NUL-terminated, without the mark that UTF-8 may begin with; NULL
 * and a diagnostic on failure. Directories, files over `limit` bytes, and what is not UTF-8 or
 * holds a NUL are refused. */
char *hd_read_text(hd_arena *a, hd_diags *d, const char *path, size_t limit, size_t *n);

/* Read-only map that lives as long as the arena. */
bool hd_map_file(hd_arena *a, hd_diags *d, const char *path, hd_bytes *out);

/* An output that appears under `path` only when committed. The old file of that name is removed at
 * open: after a failure nothing stale is left that looks fresh. Dropping the arena without a commit
 * deletes the temporary. With diags->build set, it is committed to that build, appears with the
 * others of it, and leaves the old one until then (build.h). */
typedef struct hd_output hd_output;
/* NULL and a diagnostic on failure. The output belongs to the arena. */
hd_output *hd_output_open(hd_arena *a, hd_diags *d, const char *path);
bool hd_output_write(hd_output *o, const void *data,
                     size_t n); /* sticky failure, reported at commit */
/* It becomes a large one: memory is taken now, and none later. Then, one at a time, threads may
 * write that must not run out of memory. What is written goes on to the disk while more is made. */
void hd_output_is_large(hd_output *o);
/* Writes over bytes that were written before; the same sticky failure. */
bool hd_output_rewrite(hd_output *o, uint64_t offset, const void *data, size_t n);
/* Writes what is left, waits for the disk, and gives it its name; false and a diagnostic, and
 * nothing under that name, if this or a write before it failed. */
bool hd_output_commit(hd_output *o);
void hd_output_discard(hd_output *o);          /* deletes the temporary; later writes fail */
const char *hd_output_temporary(hd_output *o); /* path under which other programs may write it */

/* An output of these n bytes alone; false and a diagnostic on failure. */
bool hd_write_file(hd_arena *a, hd_diags *d, const char *path, const void *data, size_t n);
bool hd_is_directory(const char *path); /* or a link to one */
/* What to do where a file is a pointer of Git LFS, which people have in its place; else NULL. */
const char *hd_pointer_hint(const void *file, size_t n);
bool hd_exists(const char *path);                /* false for a link to nothing */
bool hd_same_file(const char *x, const char *y); /* both exist and are one; NULL is none */
/* Of "a/b.c": what is behind the last slash, in `path` itself; what is before it ("." without one),
 * in `a`. */
const char *hd_path_base(const char *path);
char *hd_path_dir(hd_arena *a, const char *path);
char *hd_path_join(hd_arena *a, const char *dir, const char *name);

#endif
