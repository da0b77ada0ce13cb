/* Only what may be called in a handler of signals is called there: system calls, on names that were
 * made before. */
#include "driver/interrupt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_FOLDERS = 4 };

static char beside[MOST_FOLDERS][PATH_MAX]; /* folders of outputs */
static volatile sig_atomic_t n_beside;
static char own[PATH_MAX]; /* a temporary folder */
static volatile sig_atomic_t has_own;
static char prefix[40]; /* of this process's temporaries; as support/file.c names them */

static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

static bool is_unfinished(const char *name, bool all) {
    if (all) return strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static void remove_files(const char *dir, bool all) {
    alignas(struct dirent64) char entries[1 << 14];
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ssize_t n;
    if (fd < 0) return;
    while ((n = getdents64(fd, entries, sizeof entries)) > 0) {
        for (ssize_t at = 0; at < n;) {
            const struct dirent64 *e = (const struct dirent64 *)(entries + at);
            if (is_unfinished(e->d_name, all)) (void)unlinkat(fd, e->d_name, 0);
            at += e->d_reclen;
        }
    }
    close(fd);
}

static void on_signal(int number) {
    for (int i = 0; i < n_beside; i++)
        remove_files(beside[i], false);
    if (has_own) {
        remove_files(own, true);
        (void)rmdir(own);
    }
    raise(number); /* its default now, when the handler returns: the caller sees what happened */
}

static void end_on(int number) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    (void)sigaction(number, &action, NULL);
}

void catch_interrupts(void) {
    struct sigaction old;
    snprintf(prefix, sizeof prefix, ".hadal-%ld-", (long)getpid());
    for (int i = 0; i < NUMBERS; i++)
        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL) end_on(numbers[i]);
}

static volatile sig_atomic_t interrupted;

static void on_first_interrupt(int number) {
    interrupted = 1;
    end_on(number);
}

void defer_interrupt(void) {
    struct sigaction action = {.sa_handler = on_first_interrupt, .sa_flags = (int)SA_RESTART}, old;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGINT, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        (void)sigaction(SIGINT, &action, NULL);
}

bool was_interrupted(void) {
    return interrupted != 0;
}

void clean_beside(const char *path) {
    const char *slash = strrchr(path, '/');
    const size_t n = slash ? (size_t)(slash - path) + 1 : 0;
    if (n_beside == MOST_FOLDERS || n >= PATH_MAX) return;
    memcpy(beside[n_beside], n ? path : "./", n ? n : 2);
    beside[n_beside][n ? n : 2] = 0;
    n_beside = n_beside + 1;
}

bool make_clean_folder(char *dir) {
    sigset_t ours, before;
    sigemptyset(&ours);
    for (int i = 0; i < NUMBERS; i++)
        sigaddset(&ours, numbers[i]);
    (void)sigprocmask(SIG_BLOCK, &ours, &before);
    const bool made = mkdtemp(dir) != NULL;
    const int error = errno;
    if (made) {
        snprintf(own, sizeof own, "%s", dir);
        has_own = 1;
    }
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return made;
}

void forget_folder(void) {
    has_own = 0;
}
