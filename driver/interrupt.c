/* The signal handlers call only what is safe there: system calls, on names that were prepared
 * before. */
#include "driver/interrupt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "driver/report.h"
#include "support/scratch_name.h"

enum { MOST_FOLDERS = 12 };

static char beside[MOST_FOLDERS][PATH_MAX]; /* directories of outputs */
static volatile sig_atomic_t n_beside;
static char own[PATH_MAX]; /* a temporary directory */
static volatile sig_atomic_t has_own;
static char prefix[HD_SCRATCH_PREFIX]; /* of the names of this process's temporaries */

static volatile sig_atomic_t has_outputs;

/* All signals that end a process by default and can be caught. They include limits of CPU time and
 * file size, timers, and faults (such as a file of weights that is truncated while it is
 * mapped). */
static const int numbers[] = {SIGINT,    SIGTERM, SIGHUP,  SIGPIPE, SIGQUIT,   SIGALRM,
                              SIGVTALRM, SIGPROF, SIGXCPU, SIGXFSZ, SIGUSR1,   SIGUSR2,
                              SIGIO,     SIGPWR,  SIGTRAP, SIGSYS,  SIGSTKFLT, SIGBUS,
                              SIGSEGV,   SIGFPE,  SIGILL,  SIGABRT};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

/* ---- removing -------------------------------------------------------------------------------- */

typedef bool name_test(const char *name, const char *of, size_t n);

static bool is_any(const char *name, const char *of, size_t n) {
    (void)of, (void)n;
    return strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static bool begins_with(const char *name, const char *of, size_t n) {
    return strncmp(name, of, n) == 0;
}

static int remove_from(int folder, name_test *is_wanted, const char *of, size_t n);

/* Removes a temporary directory, in which another program (the linker) may have made files. */
static bool remove_folder(int folder, const char *name) {
    const int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)remove_from(fd, is_any, NULL, 0);
        close(fd);
    }
    return unlinkat(folder, name, AT_REMOVEDIR) == 0;
}

/* Removes files of an open directory, and returns how many. */
static int remove_from(int folder, name_test *is_wanted, const char *of, size_t n) {
    alignas(struct dirent64) char entries[1 << 12];
    int removed = 0;
    ssize_t size;
    (void)lseek(folder, 0, SEEK_SET);
    while ((size = getdents64(folder, entries, sizeof entries)) > 0) {
        for (ssize_t at = 0; at < size;) {
            const struct dirent64 *e = (const struct dirent64 *)(entries + at);
            at += e->d_reclen;
            if (!is_wanted(e->d_name, of, n)) continue;
            const bool gone = unlinkat(folder, e->d_name, 0) == 0;
            removed += gone || (errno == EISDIR && remove_folder(folder, e->d_name));
        }
    }
    return removed;
}

static int open_folder(const char *dir) {
    return open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* ---- outputs --------------------------------------------------------------------------------- */

void begin_outputs(void) {
    has_outputs = 1;
}

void end_outputs(void) {
    has_outputs = 0;
}

/* ---- signals --------------------------------------------------------------------------------- */

/* Removes temporary files until none is found, since other threads go on and make more. Once the
 * directories are open, the limit of open files is set to 0, so that these threads open no further
 * ones. */
static void remove_temporaries(void) {
    const struct rlimit none = {0, 0};
    int fds[MOST_FOLDERS];
    const int n = n_beside;
    for (int i = 0; i < n; i++) {
        fds[i] = open_folder(beside[i]);
        if (fds[i] >= 0) (void)remove_from(fds[i], begins_with, prefix, strlen(prefix));
    }
    (void)setrlimit(RLIMIT_NOFILE, &none);
    for (int i = 0; i < n; i++)
        while (fds[i] >= 0 && remove_from(fds[i], begins_with, prefix, strlen(prefix)) > 0) {
        }
}

static void on_signal(int number) {
    if (has_own) (void)remove_folder(AT_FDCWD, own);
    remove_temporaries();
    if (number != SIGPIPE) report_interrupt(has_outputs); /* whoever closed a pipe knows */
    raise(number); /* the default action, when the handler returns: the parent sees the signal */
}

static void end_on(int number) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    (void)sigaction(number, &action, NULL);
}

void catch_interrupts(void) {
    struct sigaction old;
    hd_scratch_prefix(prefix);
    for (int i = 0; i < NUMBERS; i++)
        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL) end_on(numbers[i]);
}

static volatile sig_atomic_t interrupted; /* by which signal; 0: by none */

static void on_first_interrupt(int number);

static bool is_deferred(int number) {
    struct sigaction now;
    return sigaction(number, NULL, &now) == 0 && now.sa_handler == on_first_interrupt;
}

/* Whichever of them comes next ends the command. */
static void on_first_interrupt(int number) {
    interrupted = number;
    if (is_deferred(SIGINT)) end_on(SIGINT);
    if (is_deferred(SIGTERM)) end_on(SIGTERM);
}

static void defer(int number) {
    struct sigaction action = {.sa_handler = on_first_interrupt, .sa_flags = (int)SA_RESTART}, old;
    sigemptyset(&action.sa_mask);
    if (sigaction(number, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        (void)sigaction(number, &action, NULL);
}

void defer_interrupt(void) {
    interrupted = 0;
    defer(SIGINT);
}

void defer_ends(void) {
    interrupted = 0;
    defer(SIGINT);
    defer(SIGTERM);
}

void resume_interrupts(void) {
    struct sigaction old;
    if (sigaction(SIGINT, NULL, &old) == 0 && old.sa_handler != SIG_IGN) end_on(SIGINT);
}

int interrupted_by(void) {
    return interrupted;
}

bool was_interrupted(void) {
    return interrupted != 0;
}

static void clean_folder(const char *dir, size_t n) {
    if (n_beside == MOST_FOLDERS || n + 1 >= PATH_MAX) return;
    memcpy(beside[n_beside], dir, n);
    strcpy(beside[n_beside] + n, n && dir[n - 1] != '/' ? "/" : "");
    n_beside = n_beside + 1;
}

void clean_beside(const char *path) {
    const char *slash = strrchr(path, '/');
    clean_folder(slash ? path : ".", slash ? (size_t)(slash - path) + 1 : 1);
}

void clean_in(const char *dir) {
    clean_folder(dir, strlen(dir));
}

static sigset_t before_hold;

void hold_signals(void) {
    sigset_t ours;
    sigemptyset(&ours);
    for (int i = 0; i < NUMBERS; i++)
        sigaddset(&ours, numbers[i]);
    (void)sigprocmask(SIG_BLOCK, &ours, &before_hold);
}

void let_signals(void) {
    (void)sigprocmask(SIG_SETMASK, &before_hold, NULL);
}

bool make_clean_folder(char *dir) {
    hold_signals();
    const bool made = mkdtemp(dir) != NULL;
    const int error = errno;
    if (made) {
        snprintf(own, sizeof own, "%s", dir);
        has_own = 1;
    }
    let_signals();
    errno = error;
    return made;
}

void forget_folder(void) {
    has_own = 0;
}
