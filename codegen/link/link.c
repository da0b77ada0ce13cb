/* hcg_link: cc -shared through posix_spawn, no shell.
 *
 * The linker writes in a temporary directory; the library appears under its name only once
 * everything has succeeded. What the linker prints on stderr becomes the cause of the diagnostic.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "codegen/program/program.h"
#include "codegen/target/target.h"
#include "support/file.h"
#include "support/scratch.h"

extern char **environ;

enum { MAX_ARGS = 40, KEEP_OUTPUT = 4000 }; /* arguments besides the objects */

/* Where the compiler is built with sanitizers, so is the runtime that is linked here. GCC's macros
 * come first: headers of LLVM define __has_feature for compilers that have none. */
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZE "-fsanitize=address,undefined"
#elif defined(__SANITIZE_THREAD__)
#define SANITIZE "-fsanitize=thread"
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZE "-fsanitize=address,undefined"
#elif __has_feature(thread_sanitizer)
#define SANITIZE "-fsanitize=thread"
#endif
#endif

typedef struct command {
    hd_arena *arena;
    char **argv;
    size_t n, most;
    const char *made; /* path of the library that it writes */
} command;

static void add(command *c, const char *arg) {
    if (c->n + 1 < c->most) c->argv[c->n++] = hd_strdup(c->arena, arg);
}

/* Compilers and linkers take what begins with - for an option, with @ for a file of arguments, and
 * with = for a name below their sysroot. */
static void add_path(command *c, const char *path) {
    add(c, *path == '/' ? path : hd_printf(c->arena, "./%s", path));
}

/* $CC may hold arguments ("ccache gcc"); they are separated by spaces. */
static void add_words(command *c, const char *words) {
    while (*words) {
        size_t n = strcspn(words, " \t");
        if (n > 0) add(c, hd_strndup(c->arena, words, n));
        words += n + (words[n] != '\0');
    }
}

static const char *choose_cc(hd_arena *a, const char *arch, const char *cc) {
    static const char spaces[] = " \t";
    if (cc && *cc) return cc;
    if (hcg_is_foreign(arch)) return hd_printf(a, "%s-linux-gnu-gcc", arch);
    const char *env = getenv("CC");
    return env && env[strspn(env, spaces)] ? env : "cc";
}

/* Everything that decides the library's bytes is part of the command: no build id, no path, no
 * time. It stays empty where the name of the linker is nothing but spaces. */
static void make_command(command *c, const char *arch, const char *cc, const hcg_objects *objects,
                         const char *runtime, const char *soname, const char *out) {
    c->made = out;
    c->most = MAX_ARGS + objects->n;
    c->argv = hd_new_array(c->arena, char *, c->most);
    add_words(c, choose_cc(c->arena, arch, cc));
    if (c->n == 0) return;
    add(c, "-shared");
    add(c, "-o");
    add_path(c, out);
    for (size_t i = 0; i < objects->n; i++)
        add_path(c, objects->at[i]);
    add_path(c, runtime);
    add(c, hd_printf(c->arena, "-Wl,-soname,%s", soname));
    add(c, "-Wl,--no-undefined");
    add(c, "-Wl,-z,noexecstack");
    add(c, "-Wl,-z,relro,-z,now");
    add(c, "-Wl,--build-id=none");
    add(c, "-Wl,--exclude-libs,ALL");
    add(c, "-Wl,--as-needed");
    add(c, "-lgomp");
#ifdef SANITIZE
    if (!hcg_is_foreign(arch)) add(c, SANITIZE);
#endif
}

/* ---- running it ------------------------------------------------------------------------------ */
/* Keeps up to KEEP_OUTPUT bytes of the output; the rest is read and dropped, so that the linker
 * never blocks on a full pipe. */
static void drain(int fd, hd_text *out) {
    char buffer[1024];
    for (;;) {
        ssize_t n = read(fd, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return;
        size_t left = KEEP_OUTPUT - out->n, take = (size_t)n < left ? (size_t)n : left;
        hd_text_add_n(out, buffer, take);
    }
}

/* Starts the program with stdout and stderr in a pipe; 0 or an errno value. */
static int start(command *c, int pipe_write, pid_t *pid) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none;
    int rc = posix_spawn_file_actions_init(&actions);
    if (rc) return rc;
    rc = posix_spawnattr_init(&attr);
    if (rc) {
        posix_spawn_file_actions_destroy(&actions);
        return rc;
    }
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attr, &none);
    sigset_t waited;
    sigemptyset(&waited);
    sigaddset(&waited, SIGCHLD); /* compilers wait for child processes of their own */
    posix_spawnattr_setsigdefault(&attr, &waited);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    rc = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (!rc) rc = posix_spawn_file_actions_adddup2(&actions, pipe_write, 1);
    if (!rc) rc = posix_spawn_file_actions_adddup2(&actions, pipe_write, 2);
    if (!rc) rc = posix_spawnp(pid, c->argv[0], &actions, &attr, c->argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    return rc;
}

static int wait_for(pid_t pid, int *status) {
    while (waitpid(pid, status, 0) < 0)
        if (errno != EINTR) return errno;
    return 0;
}

#define OTHERWISE "name another with --linker or $CC; --emit=obj and run --interpret need none"

static bool reject_tool(command *c, hd_diags *d, const char *what, const char *cause,
                        const char *hint) {
    hd_diag *e = hd_err(d, HD_E_TOOL, HD_NOWHERE, "the linker \"%s\" %s", c->argv[0], what);
    e->cause = cause;
    e->hint = hint;
    return false;
}

/* It has not run. `error`: an errno value. */
static bool reject_start(command *c, hd_diags *d, int error) {
    const char *hint = "install a C compiler, or " OTHERWISE;
    if (error == EAGAIN || error == ENOMEM)
        hint = "there is no room for another process: a limit of processes or of memory";
    else if (error != ENOENT)
        hint = OTHERWISE;
    return reject_tool(c, d, "cannot be started", strerrordesc_np(error), hint);
}

/* It has run, and said something or nothing. */
static bool reject_run(command *c, hd_diags *d, const char *what, const hd_text *said) {
    const char *hint = "the cause is in the linker's words; " OTHERWISE;
    if (said->n == 0)
        hint = "it said nothing: is it a C compiler? If not, " OTHERWISE;
    else if (strstr(said->at, "lgomp"))
        hint = "a library needs OpenMP's runtime: install that of GCC (libgomp), or " OTHERWISE;
    return reject_tool(c, d, what, said->n ? said->at : NULL, hint);
}

/* Where the host ignores SIGCHLD, or collects all of its children, this process cannot learn the
 * linker's exit status. But the linker has ended, since its pipe is closed, and it removes what it
 * could not complete. What a linker writes last is at the end of the file, so a complete end means
 * a complete library. */
static bool has_made_library(const command *c, hd_diags *d) {
    hd_bytes file;
    Elf64_Ehdr head;
    if (!hd_exists(c->made) || !hd_map_file(c->arena, d, c->made, &file)) return false;
    if (file.n < sizeof head) return false;
    memcpy(&head, file.at, sizeof head);
    return memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 && head.e_shoff > 0 &&
           head.e_shoff <= file.n && head.e_shnum <= (file.n - head.e_shoff) / sizeof(Elf64_Shdr);
}

static bool run(command *c, hd_diags *d) {
    int ends[2], status = 0;
    pid_t pid;
    if (pipe2(ends, O_CLOEXEC) != 0) return reject_start(c, d, errno);
    int rc = start(c, ends[1], &pid);
    close(ends[1]);
    if (rc != 0) {
        close(ends[0]);
        return reject_start(c, d, rc);
    }
    hd_text said;
    hd_text_init(&said, c->arena);
    hd_text_add(&said, "");
    drain(ends[0], &said);
    close(ends[0]);
    rc = wait_for(pid, &status);
    if (rc == ECHILD) {
        if (has_made_library(c, d)) return true;
        return reject_run(c, d, "failed", &said);
    }
    if (rc != 0) return reject_tool(c, d, "was lost", strerrordesc_np(rc), NULL);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
    while (said.n > 0 && said.at[said.n - 1] == '\n')
        said.at[--said.n] = '\0';
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127 && said.n == 0)
        return reject_start(c, d, ENOENT);
    const char *how = WIFSIGNALED(status)
                          ? hd_printf(c->arena, "was ended by signal %d", WTERMSIG(status))
                          : hd_printf(c->arena, "failed (exit code %d)", WEXITSTATUS(status));
    return reject_run(c, d, how, &said);
}

const char *hcg_runtime(const hcg_program *p, const char *lib_dir) {
    const char *arch = hcg_arch(p->arena, p->options.triple);
    const char *name = "libhadalrt.a";
    if (hcg_is_foreign(arch)) name = hd_printf(p->arena, "hadal/%s-linux-gnu/%s", arch, name);
    return hd_path_join(p->arena, lib_dir, name);
}

static bool reject_runtime(hd_arena *a, hd_diags *d, const char *arch, const char *runtime) {
    hd_diag *e = hd_err(d, HD_E_IO, HD_NOWHERE, "the runtime library %s is not there", runtime);
    e->hint = hcg_is_foreign(arch)
                  ? hd_printf(a,
                              "it is made where %s-linux-gnu-gcc is installed when Hadal is built; "
                              "--emit=obj,header needs none",
                              arch)
                  : "it is installed with the compiler";
    return false;
}

/* Lets the linker write a file of its own next to `output`, which it then becomes, with the mode
 * that linkers give libraries. If this process is ended and its temporary files are removed, the
 * linker, should it still run, finds no directory to leave files in. */
static bool run_for(const char *output, command *c, hd_diags *d) {
    bool ok = run(c, d);
    if (ok && rename(c->made, output) != 0)
        ok = reject_tool(c, d, "has made no library", strerrordesc_np(errno),
                         "is it a C compiler? If not, " OTHERWISE);
    return ok;
}

bool hcg_link(hcg_program *p, hd_diags *d, const hcg_objects *objects, const char *cc,
              const char *runtime, const char *path) {
    const char *arch = hcg_arch(p->arena, p->options.triple);
    if (!hd_exists(runtime)) return reject_runtime(p->arena, d, arch, runtime);
    hd_output *out = hd_output_open(p->arena, d, path);
    if (!out) return false;
    command c = {.arena = p->arena};
    const char *soname = hd_printf(p->arena, "lib%s.so", p->m->name);
    const char *output = hd_output_temporary(out), *made = output;
    const bool direct = !hd_in_scratch(output); /* to a target that is not a regular file */
    if (!direct) made = hd_path_join(p->arena, hd_path_dir(p->arena, output), "library");
    make_command(&c, arch, cc, objects, runtime, soname, made);
    if (c.n == 0) hd_err(d, HD_E_TOOL, HD_NOWHERE, "the linker has no name")->hint = OTHERWISE;
    if (c.n == 0 || !(direct ? run(&c, d) : run_for(output, &c, d))) {
        hd_output_discard(out);
        return false;
    }
    return hd_output_commit(out);
}
