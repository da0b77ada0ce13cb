/* host LIBRARY WEIGHTS WHAT: a program that has done something to its process, and then calls the
 * model of LIBRARY (its functions begin with "m_") with two threads and more. The logits must be
 * those of a call on one thread before.
 *
 *   fork      calls, and then forks: the child goes on with the session and makes another
 *   stack     OMP_STACKSIZE is larger than memory (set by who starts this)
 *   nproc     no more threads can be made (RLIMIT_NPROC; nobody is root)
 *   thread    calls from a thread with a stack of 64 KiB
 *   moved     the session's memory is copied elsewhere: an error code, and the first goes on */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TOKENS = 24, MOST_LOGITS = 1 << 16, THREADS = 2 };
static const int32_t tokens[TOKENS] = {1, 2, 3, 4, 5};

static int (*weights_open)(const char *path, void **out);
static size_t (*session_size)(int64_t most);
static int (*session_init)(void *mem, size_t size, const void *w, int64_t most, void **out);
static int (*set_threads)(void *s, int threads);
static int (*rewind_to)(void *s, int64_t length);
static int (*forward)(void *s, const int32_t *ids, int64_t n, float *logits, int64_t rows);

static void *weights;
static size_t size; /* of a session */
static float expected[MOST_LOGITS], logits[MOST_LOGITS];

static void bind(void *library, const char *name, void *slot) {
    void *address = dlsym(library, name);
    if (!address) fprintf(stderr, "no %s\n", name), exit(2);
    memcpy(slot, &address, sizeof address);
}

static void *open_session(void) {
    size = session_size(TOKENS);
    void *s = NULL, *memory = aligned_alloc(64, size);
    if (!memory || session_init(memory, size, weights, TOKENS, &s) != 0) return NULL;
    return s;
}

/* 0: the logits are as expected. */
static int call(void *s, int threads, float *out) {
    int code = s ? rewind_to(s, 0) : -1;
    if (!code) code = set_threads(s, threads);
    if (!code) code = forward(s, tokens, TOKENS, out, 1);
    return code ? code : memcmp(out, expected, sizeof expected) != 0;
}

static int in_child(void *s) {
    const pid_t child = fork();
    int status = -1;
    if (child == 0) {
        alarm(20); /* who hangs is ended */
        _exit(call(s, THREADS, logits) || call(open_session(), THREADS, logits));
    }
    if (child < 0 || waitpid(child, &status, 0) != child) return 1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void *call_there(void *s) {
    return (void *)(intptr_t)call(s, THREADS, logits);
}

static int in_small_thread(void *s) {
    pthread_attr_t a;
    pthread_t thread;
    void *code = (void *)1;
    pthread_attr_init(&a);
    pthread_attr_setstacksize(&a, 64 << 10);
    if (pthread_create(&thread, &a, call_there, s) != 0) return 1;
    pthread_join(thread, &code);
    return (int)(intptr_t)code;
}

static int without_processes(void *s) {
    const struct rlimit none = {0, 0};
    if (getuid() == 0 && setresuid(65534, 65534, 65534) != 0) return 1;
    if (setrlimit(RLIMIT_NPROC, &none) != 0) return 1;
    return call(s, THREADS, logits);
}

static int moved(void *s) {
    enum { MOVED = 21 };
    void *copy = aligned_alloc(64, size);
    memcpy(copy, s, size);
    if (rewind_to(copy, 0) != MOVED || set_threads(copy, 1) != MOVED) return 1;
    if (forward(copy, tokens, TOKENS, logits, 1) != MOVED) return 1;
    return call(s, THREADS, logits);
}

int main(int argc, char **argv) {
    void *library = argc == 4 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!library) return 2;
    bind(library, "m_weights_open", &weights_open), bind(library, "m_session_size", &session_size);
    bind(library, "m_session_init", &session_init), bind(library, "m_forward", &forward);
    bind(library, "m_session_set_threads", &set_threads);
    bind(library, "m_session_rewind", &rewind_to);
    if (weights_open(argv[2], &weights) != 0) return 2;
    void *s = open_session();
    if (!s || set_threads(s, 1) != 0 || forward(s, tokens, TOKENS, expected, 1) != 0) return 2;
    if (strcmp(argv[3], "nproc") == 0) return without_processes(s);
    if (strcmp(argv[3], "stack") == 0) return call(s, THREADS, logits);
    if (call(s, THREADS, logits) != 0) return 3;
    if (strcmp(argv[3], "thread") == 0) return in_small_thread(s);
    if (strcmp(argv[3], "moved") == 0) return moved(s);
    const int code = in_child(s);
    return code ? code : call(s, THREADS, logits); /* and this process goes on */
}
