/* Files: read whole or mapped, and written so that a reader sees the old file, the new one, or
 * (after a failure) none, but never half of one. */
#ifndef HD_FILE_H
#define HD_FILE_H

#include "support/diag.h"

typedef struct hd_bytes {
    const uint8_t *at;
    size_t n;
} hd_bytes;

/* Reads a whole text file into arena memory, NUL-terminated, without the byte order mark that UTF-8
 * may begin with; NULL and a diagnostic on failure. Directories, files over `limit` bytes, text
 * that is not UTF-8, and text with a NUL are rejected. */
char *hd_read_text(hd_arena *a, hd_diags *d, const char *path, size_t limit, size_t *n);

/* Maps the file read-only for as long as the arena lives. */
bool hd_map_file(hd_arena *a, hd_diags *d, const char *path, hd_bytes *out);

/* Reads the first bytes of a file, at most n, into `to`, and stores how many there are in *got. */
bool hd_read_beginning(hd_arena *a, hd_diags *d, const char *path, void *to, size_t n, size_t *got);

/* An output that appears under `path` only when it is committed. The old file of that name is
 * removed at open: after a failure nothing stale is left that looks fresh. Freeing the arena
 * without a commit deletes the temporary. With diags->build set, the output is committed to that
 * build, appears together with the build's other files, and the old file stays until then
 * (build.h). */
typedef struct hd_output hd_output;
/* NULL and a diagnostic on failure. The output belongs to the arena. */
hd_output *hd_output_open(hd_arena *a, hd_diags *d, const char *path);
bool hd_output_write(hd_output *o, const void *data,
                     size_t n); /* sticky failure, reported at commit */
/* Marks the output as large: its memory is allocated now, and none later, so that threads that must
 * not run out of memory may write to it (one at a time). What has been written goes to the disk
 * while more is produced. */
void hd_output_is_large(hd_output *o);
/* Overwrites bytes that were written before; fails in the same sticky way. */
bool hd_output_rewrite(hd_output *o, uint64_t offset, const void *data, size_t n);
/* Writes what is left, waits for the disk, and renames the temporary to the target. If this or an
 * earlier write failed: false, a diagnostic, and no file of that name. */
bool hd_output_commit(hd_output *o);
void hd_output_discard(hd_output *o);          /* deletes the temporary; later writes fail */
const char *hd_output_temporary(hd_output *o); /* path that other programs may write to */

/* A scratch directory next to the file `path`, for parts of it, until it is removed or the arena
 * is. NULL and a diagnostic on failure. */
struct hd_scratch *hd_scratch_open(hd_arena *a, hd_diags *d, const char *path);
/* Writes an output of exactly these n bytes; false and a diagnostic on failure. */
bool hd_write_file(hd_arena *a, hd_diags *d, const char *path, const void *data, size_t n);
bool hd_is_directory(const char *path); /* or a link to one */
/* A hint for a file that is only a pointer of Git LFS, which checkouts without LFS have in the
 * file's place; otherwise NULL. */
const char *hd_pointer_hint(const void *file, size_t n);
bool hd_exists(const char *path);                /* false for a link to nothing */
bool hd_same_file(const char *x, const char *y); /* both exist and are one file; false for NULL */
/* Waits until the file is on the disk; 0 also where the file system cannot tell. An errno if not. */
int hd_sync(int fd);
/* For "a/b.c": hd_path_base is the part after the last slash, a pointer into `path`; hd_path_dir is
 * the part before it ("." without a slash), allocated in `a`. */
const char *hd_path_base(const char *path);
char *hd_path_dir(hd_arena *a, const char *path);
char *hd_path_join(hd_arena *a, const char *dir, const char *name);
char *hd_path_trim(hd_arena *a, const char *path); /* without slashes at the end; "/" stays */

#endif
