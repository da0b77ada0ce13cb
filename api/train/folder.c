#include "api/train/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/scratch.h"

static const char lock_name[] = "lock", record_name[] = "run.json", log_name[] = "log.jsonl",
                  checkpoint_name[] = "checkpoint-";

bool train_io_error(hadal_session *s, const char *doing, const char *path, int error) {
    hd_diag *e = hd_err(&s->diags, HD_E_IO, HD_NOWHERE, "cannot %s '%s': %s", doing, path,
                        strerrordesc_np(error));
    if (error == ENOSPC || error == EDQUOT)
        e->hint = "the disk is full: make room, and the same command goes on";
    if (error == ENOTDIR) e->hint = "a run is a folder, and a part of this path is a file";
    if (error == EFBIG)
        e->hint = "it would be larger than this process may write, or than its file system holds: "
                  "raise the limit (ulimit -f), and the same command goes on";
    return false;
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

static const char *checkpoint_named(hd_arena *a, int64_t step) {
    return hd_printf(a, "%s%lld", checkpoint_name, (long long)step);
}

const char *train_checkpoint_path(hd_arena *a, const train_folder *f, int64_t step) {
    return hd_path_join(a, f->path, checkpoint_named(a, step));
}

/* The step of a name; 0: it is no name of a checkpoint. */
static int64_t step_of(const char *name) {
    enum { DIGITS = 18 };
    const size_t before = sizeof checkpoint_name - 1;
    if (strncmp(name, checkpoint_name, before) != 0) return 0;
    const size_t n = strspn(name + before, "0123456789");
    const bool is_number = n > 0 && n <= DIGITS && !name[before + n] && name[before] != '0';
    return is_number ? strtoll(name + before, NULL, 10) : 0;
}

/* The folder as a list; NULL: errno says why not. */
static DIR *list(const train_folder *f) {
    const int fd = openat(f->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir && fd >= 0) close(fd);
    return dir;
}

static int64_t last_step(DIR *dir) {
    int64_t last = 0;
    for (const struct dirent *e = readdir(dir); e; e = readdir(dir))
        if (step_of(e->d_name) > last) last = step_of(e->d_name);
    closedir(dir);
    return last;
}

int64_t train_last_checkpoint(const train_folder *f) {
    DIR *dir = list(f);
    if (!dir) return train_io_error(f->s, "read", f->path, errno) ? 0 : -1;
    return last_step(dir);
}

const char *train_hint_at_checkpoint(hd_arena *a, const char *path) {
    DIR *dir = hadal_is_run(path) ? opendir(path) : NULL;
    const int64_t last = dir ? last_step(dir) : 0;
    if (!last) return NULL;
    return hd_printf(a, "this is a run of hadal train; its checkpoints are models: %s",
                     hd_path_join(a, path, checkpoint_named(a, last)));
}

/* A checkpoint loses its name before its files go, so that what has the name is always whole. */
static void remove_checkpoint(const train_folder *f, int64_t step) {
    hd_arena *a = hd_arena_new();
    jmp_buf here;
    hd_scratch scratch;
    if (!a) return;
    (void)hd_arena_guard(a, &here);
    if (!setjmp(here) && hd_scratch_make(a, f->path, &scratch)) {
        const char *gone = hd_path_join(a, hd_path_base(scratch.path), "gone");
        (void)renameat(f->fd, checkpoint_named(a, step), f->fd, gone);
        hd_scratch_remove(&scratch);
    }
    hd_arena_free(a);
}

/* The step of the oldest checkpoint, and how many there are. */
static size_t find_oldest(const train_folder *f, int64_t *oldest) {
    size_t n = 0;
    *oldest = INT64_MAX;
    DIR *dir = list(f);
    for (const struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
        const int64_t step = step_of(e->d_name);
        if (step <= 0) continue;
        n++;
        if (step < *oldest) *oldest = step;
    }
    if (dir) closedir(dir);
    return n;
}

void train_remove_old(const train_folder *f, int64_t keep) {
    int64_t oldest;
    for (size_t n = find_oldest(f, &oldest), left; keep && n > (size_t)keep; n = left) {
        remove_checkpoint(f, oldest);
        left = find_oldest(f, &oldest);
        if (left >= n) return; /* it cannot be removed */
    }
}

/* ---- opening --------------------------------------------------------------------------------- */

static bool is_own(const char *name) {
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, lock_name) == 0 ||
           hd_begins_with(name, ".hadal-");
}

/* Is there a run, or nothing at all? */
static bool is_for_runs(train_folder *f) {
    bool others = false;
    DIR *dir = list(f);
    if (!dir) return train_io_error(f->s, "read", f->path, errno);
    for (const struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        f->has_run |= strcmp(e->d_name, record_name) == 0;
        others |= !is_own(e->d_name);
    }
    closedir(dir);
    if (f->has_run || !others) return true;
    hd_err(&f->s->diags, HD_E_USAGE, HD_NOWHERE, "'%s' has files in it, and no run", f->path)
        ->hint = "name a folder that is not there, or that of a run, which has a run.json";
    return false;
}

/* Is the lock that is open still the one in the folder? */
static bool is_still(const train_folder *f) {
    struct stat mine, there;
    return fstat(f->lock, &mine) == 0 && fstatat(f->fd, lock_name, &there, 0) == 0 &&
           mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

static bool take_lock(train_folder *f) {
    f->lock = openat(f->fd, lock_name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (f->lock < 0) return train_io_error(f->s, "write", f->path, errno);
    const int error = flock(f->lock, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    if (error && error != EWOULDBLOCK)
        hd_warn(&f->s->diags, HD_E_IO, HD_NOWHERE,
                "the file system of '%s' has no locks: start no second process on this run",
                f->path);
    if (error != EWOULDBLOCK && is_still(f)) {
        f->has_run = hd_exists(f->record); /* now that no other process makes one */
        return true;
    }
    close(f->lock);
    f->lock = -1;
    hd_err(&f->s->diags, HD_E_IO, HD_NOWHERE, "another process trains in '%s'", f->path)->hint =
        "it goes on by itself; a run in another folder may go on beside it";
    return false;
}

static bool open_folder(train_folder *f) {
    f->made = mkdir(f->path, 0777) == 0;
    if (!f->made && errno != EEXIST) return train_io_error(f->s, "make", f->path, errno);
    f->fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->fd < 0) return train_io_error(f->s, "open", f->path, errno);
    return is_for_runs(f) && take_lock(f);
}

bool train_folder_open(train_folder *f, hadal_session *s, const char *path) {
    path = hd_path_trim(s->arena, path);
    *f = (train_folder){.s = s,
                        .path = path,
                        .record = hd_path_join(s->arena, path, record_name),
                        .log = hd_path_join(s->arena, path, log_name),
                        .fd = -1,
                        .lock = -1};
    if (!open_folder(f)) return false;
    hd_scratch_collect(f->record);
    return true;
}

void train_folder_close(train_folder *f) {
    if (f->made && !f->has_run && f->lock >= 0) {
        (void)unlinkat(f->fd, lock_name, 0);
        (void)rmdir(f->path);
    }
    if (f->lock >= 0) close(f->lock);
    if (f->fd >= 0) close(f->fd);
    f->fd = f->lock = -1;
}
