#include "support/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/file.h"
#include "support/scratch_name.h"
#include "support/text.h"

enum {
    MOST_NAMES = 10000, /* names tried before giving up */
    MOST_DEPTH = 3,     /* of directories in a scratch directory */
};

static int open_directory(int at, const char *name) {
    return openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* ---- making ---------------------------------------------------------------------------------- */

/* Is `name` in the directory `at` still what `fd` is open on? Until there is a lock, another process
 * may have removed it, and one of the same name may have been made since. */
static bool is_still(int fd, int at, const char *name) {
    struct stat mine, there;
    return fstat(fd, &mine) == 0 && fstatat(at, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

/* 0, or an errno value; EEXIST: another name may do. */
static int make_directory(const char *path, int *fd) {
    if (mkdir(path, 0700) != 0) return errno;
    (void)chmod(path, 0700); /* whatever the umask of the process is */
    *fd = open_directory(AT_FDCWD, path);
    if (*fd < 0) {
        const int error = errno;
        (void)rmdir(path);
        return error == ENOENT ? EEXIST : error;
    }
    /* a file system without locks has no collectors that get them either */
    const bool lost = flock(*fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!lost && is_still(*fd, AT_FDCWD, path)) return 0;
    close(*fd);
    return EEXIST;
}

bool hd_scratch_make(hd_arena *a, const char *dir, hd_scratch *out) {
    char prefix[HD_SCRATCH_PREFIX];
    int error = EEXIST;
    hd_scratch_prefix(prefix);
    *out = (hd_scratch){NULL, -1};
    for (int i = 0; i < MOST_NAMES && error == EEXIST; i++) {
        out->path = hd_path_join(a, dir, hd_printf(a, "%s%d.tmp", prefix, i));
        error = make_directory(out->path, &out->fd);
    }
    if (error) out->path = NULL;
    errno = error;
    return error == 0;
}

/* ---- removing -------------------------------------------------------------------------------- */

static void remove_all(int fd, int depth);

/* An entry of the open directory `fd`, and what is in it. */
static void remove_entry(int fd, const char *name, int depth) {
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || unlinkat(fd, name, 0) == 0) return;
    const int inner = depth < MOST_DEPTH ? open_directory(fd, name) : -1;
    if (inner < 0) return;
    remove_all(inner, depth + 1);
    close(inner);
    (void)unlinkat(fd, name, AT_REMOVEDIR);
}

/* The directory `fd` as a list of its own, which does not move the position of `fd`. */
static DIR *list(int fd) {
    const int own = open_directory(fd, ".");
    DIR *dir = own >= 0 ? fdopendir(own) : NULL;
    if (!dir && own >= 0) close(own);
    return dir;
}

static void remove_all(int fd, int depth) {
    DIR *dir = list(fd);
    if (!dir) return;
    for (const struct dirent *e = readdir(dir); e; e = readdir(dir))
        remove_entry(fd, e->d_name, depth);
    closedir(dir);
}

void hd_scratch_remove(hd_scratch *s) {
    if (!s->path) return;
    if (rmdir(s->path) != 0 && errno != ENOENT) {
        remove_all(s->fd, 1);
        (void)rmdir(s->path);
    }
    close(s->fd);
    *s = (hd_scratch){NULL, -1};
}

/* ---- collecting ------------------------------------------------------------------------------ */

static bool is_scratch_name(const char *name) {
    static const char begin[] = ".hadal-";
    return hd_begins_with(name, begin) && hd_ends_with(name, ".tmp");
}

bool hd_in_scratch(const char *path) {
    const char *slash = strrchr(path, '/'), *from = slash;
    while (from && from > path && from[-1] != '/')
        from--;
    return slash && hd_begins_with(from, ".hadal-");
}

/* Removes the scratch directory `name` of the open directory `fd`, if its owner was this user and
 * has ended. */
static void collect(int fd, const char *name) {
    struct stat st;
    const int inner = open_directory(fd, name);
    if (inner < 0) return;
    if (fstat(inner, &st) == 0 && st.st_uid == geteuid() && flock(inner, LOCK_EX | LOCK_NB) == 0 &&
        is_still(inner, fd, name)) {
        remove_all(inner, 1);
        (void)unlinkat(fd, name, AT_REMOVEDIR);
    }
    close(inner);
}

void hd_scratch_collect(const char *path) {
    const char *slash = strrchr(path, '/');
    char *dir = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    const int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    free(dir);
    DIR *entries = fd >= 0 ? list(fd) : NULL;
    for (const struct dirent *e = entries ? readdir(entries) : NULL; e; e = readdir(entries))
        if (is_scratch_name(e->d_name)) collect(fd, e->d_name);
    if (entries) closedir(entries);
    if (fd >= 0) close(fd);
}
