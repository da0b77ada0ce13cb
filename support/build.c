#include "support/build.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "support/text.h"

typedef struct file {
    struct file *next;
    char *target;
    char *temporary;    /* NULL: the file is of an earlier build */
    hd_scratch scratch; /* the directory of the temporary */
} file;

struct hd_build {
    file *earlier, *made;
    file **last; /* where the next file of this build is linked in */
};

hd_build *hd_build_new(void) {
    hd_build *b = calloc(1, sizeof *b);
    if (b) b->last = &b->made;
    return b;
}

/* With the temporary, unless it has its name. */
static void free_file(file *f) {
    char *path = (char *)(uintptr_t)f->scratch.path;
    hd_scratch_remove(&f->scratch);
    free(path);
    free(f->temporary);
    free(f->target);
    free(f);
}

static void free_files(file *f) {
    while (f) {
        file *next = f->next;
        free_file(f);
        f = next;
    }
}

static void forget_made(hd_build *b) {
    free_files(b->made);
    b->made = NULL, b->last = &b->made;
}

void hd_build_free(hd_build *b) {
    if (!b) return;
    free_files(b->made);
    free_files(b->earlier);
    free(b);
}

/* A path from the root on: a host may leave its working directory before it publishes. */
static char *absolute(const char *path) {
    char here[PATH_MAX], *out = NULL;
    if (path[0] == '/' || !getcwd(here, sizeof here)) return strdup(path);
    return asprintf(&out, "%s/%s", here, path) < 0 ? NULL : out;
}

bool hd_build_replaces(hd_build *b, const char *path) {
    file *f = calloc(1, sizeof *f);
    if (f) f->target = absolute(path);
    if (!f || !f->target) return free(f), false;
    f->next = b->earlier;
    b->earlier = f;
    return true;
}

bool hd_build_add(hd_build *b, hd_scratch *scratch, const char *temporary, const char *target) {
    file *f = calloc(1, sizeof *f);
    char *path = absolute(scratch->path);
    if (f) f->target = absolute(target);
    if (f) f->temporary = absolute(temporary);
    if (!f || !path || !f->target || !f->temporary) {
        if (f) free_file(f);
        free(path);
        return false;
    }
    f->scratch = (hd_scratch){path, scratch->fd};
    *scratch = (hd_scratch){NULL, -1};
    *b->last = f;
    b->last = &f->next;
    return true;
}

/* ---- the lock -------------------------------------------------------------------------------- */

/* Opens the directory of a file; -1 if that fails. */
static int open_folder(const char *path) {
    const char *slash = strrchr(path, '/');
    char *dir = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    const int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    free(dir);
    return fd;
}

/* The descriptor that holds the lock; closing the descriptor releases the lock, and so does the end
 * of the process. */
static int take_lock(const hd_build *b) {
    const file *any = b->made ? b->made : b->earlier;
    const int fd = any ? open_folder(any->target) : -1;
    while (fd >= 0 && flock(fd, LOCK_EX) != 0 && errno == EINTR) {
    }
    return fd;
}

static void give_lock(int fd) {
    if (fd >= 0) close(fd);
}

/* ---- files of an earlier build --------------------------------------------------------------- */

/* The text after the number that begins at `at`; "" if there is no number. */
static const char *after_number(const char *at) {
    const size_t n = strspn(at, "0123456789");
    return n ? at + n : "";
}

/* Is `name` a rank's share of NAME.weights, such as NAME.r0of4.weights? NAME is the first n letters
 * of `of`. */
static bool is_share(const char *name, const char *of, size_t n) {
    if (strncmp(name, of, n) != 0 || strncmp(name + n, ".r", 2) != 0) return false;
    const char *end = after_number(name + n + 2);
    return strncmp(end, "of", 2) == 0 && strcmp(after_number(end + 2), ".weights") == 0;
}

static void remove_shares(const char *path) {
    static const char end[] = ".weights";
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (!hd_ends_with(name, end)) return;
    const int fd = open_folder(path);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    if (!folder && fd >= 0) close(fd);
    if (!folder) return;
    for (const struct dirent *e = readdir(folder); e; e = readdir(folder))
        if (is_share(e->d_name, name, strlen(name) + 1 - sizeof end))
            (void)unlinkat(fd, e->d_name, 0);
    closedir(folder);
}

/* Also what builds that were killed have left here. */
static void remove_earlier(const hd_build *b) {
    const file *any = b->earlier;
    if (any) hd_scratch_collect(any->target);
    for (const file *f = b->earlier; f; f = f->next) {
        (void)unlink(f->target);
        remove_shares(f->target);
    }
}

void hd_build_remove_earlier(hd_build *b) {
    const int lock = take_lock(b);
    remove_earlier(b);
    give_lock(lock);
}

/* ---- publishing ------------------------------------------------------------------------------ */

/* Renames the temporaries of the libraries, or of all other files, to their targets. NULL: all
 * succeeded; otherwise the file that could not be renamed. */
static const file *name_files(const hd_build *b, bool libraries) {
    for (const file *f = b->made; f; f = f->next)
        if (hd_ends_with(f->target, ".so") == libraries && rename(f->temporary, f->target) != 0)
            return f;
    return NULL;
}

bool hd_build_publish(hd_build *b, hd_diags *d) {
    const int lock = take_lock(b);
    remove_earlier(b);
    const file *fault = name_files(b, false);
    if (!fault) fault = name_files(b, true);
    const int error = errno;
    for (const file *f = b->made; fault && f; f = f->next)
        (void)unlink(f->target);
    give_lock(lock);
    if (fault)
        hd_err(d, HD_E_IO, HD_NOWHERE, "cannot write '%s': %s", fault->target,
               strerrordesc_np(error));
    forget_made(b);
    return !fault;
}
