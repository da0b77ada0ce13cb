/* hadal reduce: tries smaller modules on a command, and keeps those for which the command fails as
 * before. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "driver/commands.h"
#include "driver/pipeline.h"
#include "driver/report.h"
#include "support/clock.h"

/* ---- starting a command and waiting for it --------------------------------------------------- */

extern char **environ;

enum { CHILD_TIMED_OUT = -1, CHILD_NOT_STARTED = -2 };

/* Starts the command in a process group of its own, so that all processes that it starts end with
 * it. */
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

/* Runs argv (found in $PATH, without a shell) with empty standard input; its standard output is
 * dropped, and its standard error goes to the file `errors`. Returns the exit code, 128 + N for
 * signal N, or one of the above; errno says why the command was not started. */
static int run_child(char *const *argv, const char *errors, long long seconds) {
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

typedef struct hunt {
    hadal_session *s;
    char dir[4096], candidate[4200], errors[4200]; /* paths of temporary files */
    char output[4200];
    char **argv;
    const char *match; /* text that the failing command prints; NULL: any */
    int code;          /* the exit code that counts as failure */
    long long runs, max_runs, timeout;
} hunt;

/* ---- one execution of the command ------------------------------------------------------------ */
/* Does the file contain a text? The file is read as a whole, so that a text is found at any
 * position. */
static bool file_holds(const char *path, const char *text) {
    FILE *f = fopen(path, "rb");
    if (!f) return false;
    size_t size = 0, n = 0;
    char *all = NULL;
    for (;;) {
        if (n + 1 >= size) {
            char *more = realloc(all, size = 2 * size + 65536);
            if (!more) break;
            all = more;
        }
        const size_t left = size - n - 1, got = fread(all + n, 1, left, f);
        n += got;
        if (got < left) break; /* the end of the file, or a read error */
    }
    fclose(f);
    const bool found = all && memmem(all, n, text, strlen(text));
    free(all);
    return found;
}

static int failed_to_start(hunt *h) {
    char message[4300];
    snprintf(message, sizeof message, "%.4000s cannot be started: %s", h->argv[0], strerror(errno));
    return hadal_fail(h->s, "tool", message, NULL);
}

/* Runs the command on a module's text. 0: *code is the command's exit code. */
static int run_on(hunt *h, const char *text, int *code) {
    if (hadal_write_text(h->s, h->candidate, text)) return 1;
    h->runs++;
    *code = run_child(h->argv, h->errors, h->timeout);
    return *code == CHILD_NOT_STARTED ? failed_to_start(h) : 0;
}

static bool is_failure(const hunt *h, int code) {
    return code == h->code && (!h->match || file_holds(h->errors, h->match));
}

/* ---- setting up ------------------------------------------------------------------------------ */
/* Puts the candidate's file name into the command. */
static int make_arguments(hunt *h, const command_line *line) {
    const size_t n = line->n_positional - 1;
    bool named = false;
    h->argv = calloc(n + 2, sizeof *h->argv);
    if (!h->argv) return hadal_fail(h->s, "memory", "out of memory", NULL);
    for (size_t i = 0; i < n; i++) {
        const char *arg = line->positional[i + 1];
        const bool here = strcmp(arg, "@@") == 0;
        h->argv[i] = here ? h->candidate : (char *)arg;
        named = named || here;
    }
    if (!named) h->argv[n] = h->candidate;
    return 0;
}

static int make_files(hunt *h, const command_line *line) {
    const char *output = option_get(line, OPTION_OUTPUT), *input = line->positional[0];
    const size_t n = strlen(input), stem = n > 4 && !strcmp(input + n - 4, ".hir") ? n - 4 : n;
    const char *name = output ? output : input;
    if (strlen(name) > 4000) return hadal_fail(h->s, "usage", "a path is too long", NULL);
    if (output)
        snprintf(h->output, sizeof h->output, "%s", output);
    else
        snprintf(h->output, sizeof h->output, "%.*s.reduced.hir", (int)stem, input);
    if (make_temporary_folder(h->s, h->dir, sizeof h->dir)) return 1;
    snprintf(h->candidate, sizeof h->candidate, "%s/candidate.hir", h->dir);
    snprintf(h->errors, sizeof h->errors, "%s/stderr", h->dir);
    return 0;
}

static void remove_files(hunt *h) {
    if (h->dir[0]) {
        remove(h->candidate);
        remove(h->errors);
        remove_temporary_folder(h->dir);
    }
    free(h->argv);
}

/* Runs the command on the unchanged file: the failure to keep. */
static int find_failure(hunt *h, size_t *ops) {
    const char *text = hadal_reduce_best(h->s, ops);
    char message[512];
    if (!text || run_on(h, text, &h->code)) return 1;
    if (h->code == CHILD_TIMED_OUT) {
        snprintf(message, sizeof message, "the command takes longer than %lld second%s", h->timeout,
                 h->timeout == 1 ? "" : "s");
        return hadal_fail(h->s, "usage", message, "--timeout sets how long it may take");
    }
    if (h->code == 0)
        return hadal_fail(h->s, "usage", "the command does not fail: there is nothing to reduce",
                          "a command that looks for something must fail when it is there");
    if (is_failure(h, h->code)) return 0;
    snprintf(message, sizeof message,
             "the command fails with exit code %d but does not say the text of --match", h->code);
    return hadal_fail(h->s, "usage", message, NULL);
}

/* ---- the search ------------------------------------------------------------------------------ */
static int reduce(hunt *h) {
    size_t ops, left;
    if (hadal_reduce_begin(h->s) || find_failure(h, &ops)) return 1;
    if (hadal_write_text(h->s, h->output, hadal_reduce_best(h->s, &left))) return 1;
    const char *text;
    while (h->runs < h->max_runs && (text = hadal_reduce_next(h->s))) {
        int code;
        if (run_on(h, text, &code)) return 1;
        const bool fails = is_failure(h, code);
        hadal_reduce_answer(h->s, fails);
        if (!fails) continue;
        const char *best = hadal_reduce_best(h->s, &left);
        if (!best || hadal_write_text(h->s, h->output, best)) return 1;
        char step[128];
        snprintf(step, sizeof step, "%lld run%s, %zu of %zu ops left", h->runs,
                 h->runs == 1 ? "" : "s", left, ops);
        report_step(step);
    }
    report_end();
    printf("%s: %zu op%s of %zu, after %lld run%s%s\n", h->output, left, left == 1 ? "" : "s", ops,
           h->runs, h->runs == 1 ? "" : "s", h->runs >= h->max_runs ? " (--max-runs)" : "");
    return 0;
}

int cmd_reduce(hadal_session *s, const command_line *line) {
    hunt h = {.s = s, .match = option_get(line, OPTION_MATCH)};
    if (!option_number(s, line, OPTION_MAX_RUNS, 2000, 1, 1LL << 40, &h.max_runs)) return 1;
    if (!option_number(s, line, OPTION_TIMEOUT, 60, 1, 1 << 20, &h.timeout)) return 1;
    if (hadal_load(s, line->positional[0], NULL)) return 1;
    const int failed = make_files(&h, line) || make_arguments(&h, line) || reduce(&h);
    remove_files(&h);
    return failed;
}
