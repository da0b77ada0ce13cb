/* host LIBRARY WEIGHTS WHAT: a program that has done something to its process, and then calls the
 * model of LIBRARY (its functions begin with "m_") with two threads and more. The logits must be
 * those of a call on one thread before.
 *
 *   fork      calls, and then forks: the child goes on with the session and makes another
 *   stack     OMP_STACKSIZE is larger than memory (set by who starts this)
 *   nproc     no more threads can be made (RLIMIT_NPROC; nobody is root)
 *   thread    calls from a thread with a stack of 64 KiB
 *   affinity  may use one CPU when it loads the library, then all, then one
 *   moved     the session's memory is copied elsewhere: an error code, and the first goes on */
#include <dirent.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/hosts/host_model.h"

enum { THREADS = 2 };

static int in_child(void *s) {
    const pid_t child = fork();
    int status = -1;
    if (child == 0) {
        alarm(20); /* who hangs is ended */
        _exit(call(s, THREADS) || call(open_session(), THREADS));
    }
    if (child < 0 || waitpid(child, &status, 0) != child) return 1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void *call_there(void *s) {
    return (void *)(intptr_t)(call(s, THREADS) || call(open_session(), THREADS));
}

/* The stack is filled with a pattern before, so that it shows afterwards how deep the call went. */
static int in_small_thread(void *s) {
    enum { STACK = 64 << 10, MARK = 0xa5, LEFT = 48 << 10 };
    unsigned char *stack = aligned_alloc(4096, STACK);
    pthread_attr_t a;
    pthread_t thread;
    void *code = (void *)1;
    size_t free_bytes = 0;
    memset(stack, MARK, STACK);
    pthread_attr_init(&a);
    if (pthread_attr_setstack(&a, stack, STACK) != 0) return 1;
    if (pthread_create(&thread, &a, call_there, s) != 0) return 1;
    pthread_join(thread, &code);
    while (free_bytes < STACK && stack[free_bytes] == MARK)
        free_bytes++;
    if (free_bytes < LEFT) printf("%zu bytes of stack\n", STACK - free_bytes);
    return (int)(intptr_t)code;
}

static int threads_now(void) {
    int n = -2; /* . and .. */
    DIR *dir = opendir("/proc/self/task");
    while (dir && readdir(dir))
        n++;
    if (dir) closedir(dir);
    return n;
}

static void use_first_cpus(const cpu_set_t *all, int n) {
    cpu_set_t some;
    CPU_ZERO(&some);
    for (int i = 0; i < CPU_SETSIZE && n > 0; i++)
        if (CPU_ISSET(i, all)) CPU_SET(i, &some), n--;
    sched_setaffinity(0, sizeof some, &some);
}

/* One CPU when the library is loaded, all CPUs when a session gets its number of threads, and one
 * again while it goes on. */
static int affinity(const char *library, const char *weights_path) {
    cpu_set_t all;
    if (sched_getaffinity(0, sizeof all, &all) != 0) return 1;
    use_first_cpus(&all, 1);
    void *s = open_model(library, weights_path);
    if (call(s, THREADS) != 0 || threads_now() != 1) return 1;
    sched_setaffinity(0, sizeof all, &all);
    if (call(s, THREADS) != 0 || threads_now() != (CPU_COUNT(&all) > 1 ? THREADS : 1)) return 1;
    use_first_cpus(&all, 1);
    float *logits = calloc(1, sizeof expected);
    for (int i = 0; i < 3; i++) /* without set_threads: with as many threads as before */
        if (rewind_to(s, 0) != 0 || forward(s, tokens, TOKENS, logits, 1) != 0 ||
            memcmp(logits, expected, sizeof expected) != 0)
            return 1;
    return call(s, THREADS);
}

static int without_processes(void *s) {
    const struct rlimit none = {0, 0};
    if (getuid() == 0 && setresuid(65534, 65534, 65534) != 0) return 1;
    if (setrlimit(RLIMIT_NPROC, &none) != 0) return 1;
    return call(s, THREADS);
}

static int moved(void *s) {
    enum { MOVED = 21 };
    float logits[1];
    void *copy = aligned_alloc(64, size);
    memcpy(copy, s, size);
    if (rewind_to(copy, 0) != MOVED || set_threads(copy, 1) != MOVED) return 1;
    if (forward(copy, tokens, TOKENS, logits, 1) != MOVED) return 1;
    return call(s, THREADS);
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    const char *what = argv[3];
    if (strcmp(what, "affinity") == 0) return affinity(argv[1], argv[2]);
    void *s = open_model(argv[1], argv[2]);
    if (strcmp(what, "nproc") == 0) return without_processes(s);
    if (strcmp(what, "stack") == 0) return call(s, THREADS);
    if (call(s, THREADS) != 0) return 3;
    if (strcmp(what, "thread") == 0) return in_small_thread(s);
    if (strcmp(what, "moved") == 0) return moved(s);
    const int code = in_child(s);
    return code ? code : call(s, THREADS); /* and this process goes on */
}
