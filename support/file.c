/* Files: whole text, read-only maps, and outputs that appear only when they are complete.
 *
 * An output is written in a scratch directory (scratch.h) next to its target and renamed to the
 * target at commit, so that a reader sees all of it or nothing. The file that had the name before
 * is removed when the output is opened: a build that fails later leaves no old artefact that looks
 * fresh. A target that is not a regular file (a pipe, /dev/stdout) is written directly.
 */
#include "support/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/build.h"
#include "support/scratch.h"

enum {
    FIRST_BUFFER = 1 << 16,
    OUTPUT_BUFFER = 2 << 20, /* for outputs that do not fit the first buffer: one huge page */
    WRITE_BEHIND = 16 << 20, /* bytes of a large output between requests to start writing */
};

static const char *advice(bool writing, int error) {
    switch (error) {
    case EISDIR: return writing ? "name a file, this is a folder" : "name a file in this folder";
    case EACCES:
    case EPERM:
        return writing ? "choose a folder that you may write to" : "ask for the right to read it";
    case ENOTDIR: return "a part of this path is a file, and no folder";
    case EROFS: return "the file system is read-only: choose a folder elsewhere";
    case ENOSPC:
    case EDQUOT:
        return "the disk is full, and nothing was left on it: make room, or choose a folder "
               "elsewhere";
    case EFBIG:
        return "it would be larger than this process may write, or than its file system holds: "
               "raise the limit (ulimit -f), or choose a folder elsewhere";
    default: return NULL;
    }
}

static hd_diag *io_error(hd_diags *d, const char *doing, const char *path, int error) {
    hd_diag *g =
        hd_err(d, HD_E_IO, HD_NOWHERE, "cannot %s '%s': %s", doing, path, strerrordesc_np(error));
    g->hint = advice(doing[0] == 'w', error); /* "write" */
    return g;
}

/* ---- paths --------------------------------------------------------------------------------- */

bool hd_is_directory(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

const char *hd_pointer_hint(const void *file, size_t n) {
    static const char begins[] = "version https://git-lfs";
    if (n < sizeof begins - 1 || memcmp(file, begins, sizeof begins - 1) != 0) return NULL;
    return "this is a pointer of Git LFS, not the file: fetch it with git lfs pull";
}

bool hd_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

bool hd_same_file(const char *x, const char *y) {
    struct stat a, b;
    return x && y && stat(x, &a) == 0 && stat(y, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

char *hd_path_join(hd_arena *a, const char *dir, const char *name) {
    size_t n = strlen(dir);
    if (n == 0 || name[0] == '/') return hd_strdup(a, name);
    return hd_printf(a, "%s%s%s", dir, dir[n - 1] == '/' ? "" : "/", name);
}

const char *hd_path_base(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

char *hd_path_trim(hd_arena *a, const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    return hd_strndup(a, path, n);
}

char *hd_path_dir(hd_arena *a, const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return hd_strdup(a, ".");
    return slash == path ? hd_strdup(a, "/") : hd_strndup(a, path, (size_t)(slash - path));
}

/* ---- reading ------------------------------------------------------------------------------- */

/* A descriptor that the arena closes if it is still open when the arena is freed. */
typedef struct descriptor {
    int fd;
} descriptor;

static void close_descriptor(void *what) {
    descriptor *f = what;
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
}

/* Opens a file for reading and fills `st` with its kind and size; NULL and a diagnostic on failure.
 */
static descriptor *open_to_read(hd_arena *a, hd_diags *d, const char *path, int flags,
                                struct stat *st) {
    descriptor *f = hd_new(a, descriptor);
    f->fd = -1;
    hd_arena_defer(a, close_descriptor, f);
    f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | flags);
    if (f->fd < 0 || fstat(f->fd, st) != 0) {
        io_error(d, "open", path, errno);
    } else if (S_ISDIR(st->st_mode)) {
        io_error(d, "read", path, EISDIR);
    } else {
        return f;
    }
    close_descriptor(f);
    return NULL;
}

/* Bytes read, at most n, fewer only at the end of the file; -1 on error. */
static ssize_t read_fully(int fd, char *to, size_t n) {
    size_t done = 0;
    while (done < n) {
        ssize_t got = read(fd, to + done, n - done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (got == 0) break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

static char *too_large(hd_diags *d, const char *path, size_t limit) {
    hd_err(d, HD_E_LIMIT, HD_NOWHERE, "'%s' is larger than the %zu bytes allowed here", path,
           limit);
    return NULL;
}

static bool check_text(hd_diags *d, const char *path, const char *text, size_t n) {
    const char *nul = memchr(text, 0, n);
    if (nul) {
        hd_diag *g = hd_err(d, HD_E_FORMAT, HD_NOWHERE, "'%s' is not a text file: byte %zu is NUL",
                            path, (size_t)(nul - text));
        const bool marked = memcmp(text, "\xff\xfe", 2) == 0 || memcmp(text, "\xfe\xff", 2) == 0;
        if (nul - text < 2 || marked) g->hint = "if it is UTF-16, save it as UTF-8";
        return false;
    }
    const size_t i = hd_utf8_span(text, n);
    if (i == n) return true;
    hd_err(d, HD_E_FORMAT, HD_NOWHERE, "'%s' is not UTF-8 text: byte %zu is 0x%02x", path, i,
           (unsigned)(uint8_t)text[i])
        ->hint = "save it as UTF-8";
    return false;
}

char *hd_read_text(hd_arena *a, hd_diags *d, const char *path, size_t limit, size_t *n) {
    struct stat st;
    descriptor *f = open_to_read(a, d, path, 0, &st);
    if (!f) return NULL;
    if (S_ISREG(st.st_mode) && (uint64_t)st.st_size > limit) {
        close_descriptor(f);
        return too_large(d, path, limit);
    }
    /* A pipe has no size, and a file may grow: read until the end, one byte beyond the limit. */
    size_t capacity = S_ISREG(st.st_mode) ? (size_t)st.st_size + 1 : FIRST_BUFFER, used = 0;
    char *text = hd_alloc(a, capacity + 1, 1);
    for (;;) {
        ssize_t got = read_fully(f->fd, text + used, capacity - used);
        if (got < 0) {
            io_error(d, "read", path, errno);
            close_descriptor(f);
            return NULL;
        }
        used += (size_t)got;
        if (used < capacity || used > limit) break;
        char *larger = hd_alloc(a, 2 * capacity + 1, 1);
        memcpy(larger, text, used);
        text = larger;
        capacity *= 2;
    }
    close_descriptor(f);
    text[used] = '\0';
    if (used > limit) return too_large(d, path, limit);
    if (used >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        text += 3, used -= 3; /* skips the byte order mark */
    if (!check_text(d, path, text, used)) return NULL;
    if (n) *n = used;
    return text;
}

typedef struct mapping {
    void *at;
    size_t n;
} mapping;

static void unmap(void *what) {
    mapping *m = what;
    if (m->n) munmap(m->at, m->n);
}

bool hd_map_file(hd_arena *a, hd_diags *d, const char *path, hd_bytes *out) {
    struct stat st;
    mapping *m = hd_new(a, mapping);
    hd_arena_defer(a, unmap, m);
    descriptor *f =
        open_to_read(a, d, path, O_NONBLOCK, &st); /* a pipe is rejected, not waited for */
    if (!f) return false;
    bool ok = S_ISREG(st.st_mode);
    if (!ok) {
        hd_err(d, HD_E_IO, HD_NOWHERE, "cannot map '%s': it is not a regular file", path);
    } else if (st.st_size > 0) {
        void *at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, f->fd, 0);
        ok = at != MAP_FAILED;
        if (ok)
            *m = (mapping){at, (size_t)st.st_size};
        else
            io_error(d, "map", path, errno);
    }
    close_descriptor(f);
    *out = (hd_bytes){m->n ? m->at : (const void *)"", m->n};
    return ok;
}

bool hd_read_beginning(hd_arena *a, hd_diags *d, const char *path, void *to, size_t n,
                       size_t *got) {
    struct stat st;
    descriptor *f = open_to_read(a, d, path, O_NONBLOCK, &st); /* as for a map */
    if (!f) return false;
    ssize_t have = 0;
    const bool regular = S_ISREG(st.st_mode);
    if (!regular)
        hd_err(d, HD_E_IO, HD_NOWHERE, "cannot read '%s': it is not a regular file", path);
    else if ((have = read_fully(f->fd, to, n)) < 0)
        io_error(d, "read", path, errno);
    close_descriptor(f);
    *got = have > 0 ? (size_t)have : 0;
    return regular && have >= 0;
}

/* ---- writing ------------------------------------------------------------------------------- */

struct hd_output {
    hd_arena *arena;
    hd_diags *diags;
    const char *path;      /* as the caller named it, for messages */
    const char *target;    /* what the temporary becomes; links in `path` are followed */
    hd_scratch scratch;    /* holds the temporary */
    char *temporary;       /* NULL: written directly */
    int fd;                /* -1 once committed or discarded */
    int error;             /* errno of the first failure */
    size_t held, capacity; /* bytes waiting in the buffer; size of the buffer */
    uint8_t *buffer;
    bool large;
    uint64_t written, started; /* bytes written; of them, bytes sent to the disk */
};

static void discard_deferred(void *what) {
    hd_output_discard(what);
}

/* The file that a path stands for: the end of its links, so that a linked output stays linked and
 * /dev/stdout is not replaced. */
static const char *follow_links(hd_arena *a, const char *path) {
    struct stat st;
    char real[PATH_MAX];
    if (lstat(path, &st) != 0 || !S_ISLNK(st.st_mode) || !realpath(path, real)) return path;
    return hd_strdup(a, real);
}

static bool create_temporary(hd_output *o) {
    if (!hd_scratch_make(o->arena, hd_path_dir(o->arena, o->target), &o->scratch)) return false;
    char *name = hd_path_join(o->arena, o->scratch.path, "output");
    o->fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    const int error = errno;
    if (o->fd < 0) hd_scratch_remove(&o->scratch);
    if (o->fd >= 0) o->temporary = name;
    errno = error;
    return o->fd >= 0;
}

/* Does the output wait for the other files of a build? Temporaries that another output made do not.
 */
static bool waits(const hd_output *o) {
    return o->diags->build && !hd_in_scratch(o->target);
}

static int give_name(hd_output *o) {
    if (waits(o)) /* the build has the scratch directory from then on */
        return hd_build_add(o->diags->build, &o->scratch, o->temporary, o->target) ? 0 : ENOMEM;
    if (rename(o->temporary, o->target) != 0) return errno;
    hd_scratch_remove(&o->scratch);
    return 0;
}

static void reject_place(hd_diags *d, const char *path, int error) {
    hd_diag *g = io_error(d, "write", path, error);
    if (error == ENOENT) g->hint = "the folder does not exist; create it first";
}

static void remove_deferred(void *what) {
    hd_scratch_remove(what);
}

struct hd_scratch *hd_scratch_open(hd_arena *a, hd_diags *d, const char *path) {
    hd_scratch *s = hd_new(a, hd_scratch);
    hd_arena_defer(a, remove_deferred, s);
    if (hd_scratch_make(a, hd_path_dir(a, path), s)) return s;
    reject_place(d, path, errno);
    return NULL;
}

hd_output *hd_output_open(hd_arena *a, hd_diags *d, const char *path) {
    hd_output *o = hd_new(a, hd_output);
    o->arena = a;
    o->diags = d;
    o->path = hd_strdup(a, path);
    o->fd = -1;
    o->capacity = FIRST_BUFFER;
    o->buffer = hd_new_array(a, uint8_t, FIRST_BUFFER);
    hd_arena_defer(a, discard_deferred, o);
    o->target = follow_links(a, o->path);

    struct stat st;
    if (stat(o->target, &st) == 0 && !S_ISREG(st.st_mode)) {
        if (S_ISDIR(st.st_mode)) return io_error(d, "write", path, EISDIR), NULL;
        o->fd = open(o->target, O_WRONLY | O_CLOEXEC | O_NOCTTY);
        if (o->fd < 0) return io_error(d, "open", path, errno), NULL;
        return o;
    }
    if (!waits(o) && unlink(o->target) != 0 && errno != ENOENT) {
        io_error(d, "replace", path, errno);
        return NULL;
    }
    if (!create_temporary(o)) return reject_place(d, path, errno), NULL;
    return o;
}

/* Asks the kernel to start writing to disk what is complete; otherwise all of it would be written
 * at the end, by fsync. The result does not depend on this. */
static void start_writing(hd_output *o) {
    if (!o->large || !o->temporary || o->written - o->started < WRITE_BEHIND) return;
    sync_file_range(o->fd, (off_t)o->started, (off_t)(o->written - o->started),
                    SYNC_FILE_RANGE_WRITE);
    o->started = o->written;
}

static bool write_fully(hd_output *o, const uint8_t *data, size_t n) {
    o->written += n;
    while (n > 0) {
        ssize_t put = write(o->fd, data, n);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) {
            o->error = put < 0 ? errno : EIO;
            return false;
        }
        data += put;
        n -= (size_t)put;
    }
    start_writing(o);
    return true;
}

static bool flush(hd_output *o) {
    size_t n = o->held;
    o->held = 0;
    return o->error == 0 && write_fully(o, o->buffer, n);
}

static void take_large_buffer(hd_output *o) {
    if (o->capacity == OUTPUT_BUFFER) return;
    uint8_t *larger = hd_new_array(o->arena, uint8_t, OUTPUT_BUFFER);
    memcpy(larger, o->buffer, o->held);
    o->buffer = larger, o->capacity = OUTPUT_BUFFER;
}

/* Called when the buffer is full: enlarges it once, then flushes it. */
static void make_room(hd_output *o) {
    if (o->capacity == OUTPUT_BUFFER)
        flush(o);
    else
        take_large_buffer(o);
}

void hd_output_is_large(hd_output *o) {
    take_large_buffer(o);
    o->large = true;
}

/* Writes end at multiples of a huge page: file systems that can (ext4, XFS) then keep the file in
 * huge pages, and programs that map the file read it faster. */
bool hd_output_write(hd_output *o, const void *data, size_t n) {
    const uint8_t *from = data;
    while (n > 0 && o->error == 0) {
        size_t part = n < o->capacity - o->held ? n : o->capacity - o->held;
        if (o->held == 0 && n >= OUTPUT_BUFFER) {
            part = n - n % OUTPUT_BUFFER;
            write_fully(o, from, part);
        } else {
            memcpy(o->buffer + o->held, from, part);
            o->held += part;
            if (o->held == o->capacity) make_room(o);
        }
        from += part, n -= part;
    }
    return o->error == 0;
}

bool hd_output_rewrite(hd_output *o, uint64_t offset, const void *data, size_t n) {
    if (!flush(o)) return false;
    const uint8_t *at = data;
    while (n > 0) {
        ssize_t put = pwrite(o->fd, at, n, (off_t)offset);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) {
            o->error = put < 0 ? errno : EIO;
            return false;
        }
        at += put;
        offset += (uint64_t)put;
        n -= (size_t)put;
    }
    return true;
}

int hd_sync(int fd) {
    return fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP ? 0 : errno;
}

/* Syncs the temporary to disk. Another program (the linker) may have put a new file under its name,
 * so the name is opened again: the file that is synced is then the one that will be renamed. */
static int sync_temporary(const hd_output *o) {
    int fd = open(o->temporary, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno;
    const int error = hd_sync(fd);
    close(fd);
    return error;
}

bool hd_output_commit(hd_output *o) {
    flush(o);
    if (o->error == 0 && o->temporary) o->error = sync_temporary(o);
    if (o->error == 0) {
        int fd = o->fd;
        o->fd = -1;
        if (close(fd) != 0) o->error = errno; /* network file systems report a full disk here */
    }
    if (o->error == 0 && o->temporary) o->error = give_name(o);
    if (o->error != 0) {
        io_error(o->diags, "write", o->path, o->error);
        hd_output_discard(o);
        return false;
    }
    o->temporary = NULL;
    return true;
}

void hd_output_discard(hd_output *o) {
    if (o->fd >= 0) close(o->fd);
    o->fd = -1;
    hd_scratch_remove(&o->scratch);
    o->temporary = NULL;
    o->held = 0;
    if (o->error == 0) o->error = EBADF; /* later writes fail */
}

const char *hd_output_temporary(hd_output *o) {
    return o->temporary ? o->temporary : o->target;
}

bool hd_write_file(hd_arena *a, hd_diags *d, const char *path, const void *data, size_t n) {
    hd_output *o = hd_output_open(a, d, path);
    if (!o) return false;
    hd_output_write(o, data, n);
    return hd_output_commit(o);
}
