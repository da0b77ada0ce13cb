/* posix_spawn, a deadline, and the exit code. */
#include "driver/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/clock.h"

extern char **environ;

/* A process group of its own, so that what it starts ends with it. */
static int start(char *const *argv, const char *errors, pid_t *pid) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    int code = posix_spawn_file_actions_init(&files);
    if (code) return code;
    code = posix_spawnattr_init(&attributes);
    if (!code) {
        const int write = O_WRONLY | O_CREAT | O_TRUNC;
        code = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
        if (!code) code = posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
        if (!code) code = posix_spawn_file_actions_addopen(&files, 2, errors, write, 0600);
        if (!code) code = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
        if (!code) code = posix_spawnattr_setpgroup(&attributes, 0);
        if (!code) code = posix_spawnp(pid, argv[0], &files, &attributes, argv, environ);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&files);
    return code;
}

static void pause_for(long nanoseconds) {
    const struct timespec t = {0, nanoseconds};
    nanosleep(&t, NULL);
}

int run_child(char *const *argv, const char *errors, long long seconds) {
    pid_t pid;
    const int code = start(argv, errors, &pid);
    if (code) {
        errno = code;
        return CHILD_NOT_STARTED;
    }
    const double deadline = hd_seconds() + (double)seconds;
    int status;
    for (long wait = 200000;; wait = wait < 10000000 ? 2 * wait : wait) {
        const pid_t got = waitpid(pid, &status, WNOHANG);
        if (got == pid) break;
        if (got < 0 && errno != EINTR) return CHILD_NOT_STARTED;
        if (hd_seconds() > deadline) {
            kill(-pid, SIGKILL);
            while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                continue;
            return CHILD_TIMED_OUT;
        }
        pause_for(wait);
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
