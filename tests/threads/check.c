/* check LIBRARY NAME WEIGHTS THREADS: one prompt and some tokens behind it with one thread, then
 * the same with THREADS threads: the same bits, and how much more time of CPUs it took.
 *
 * With more threads than CPUs a step ends when the last of them had its turn. A thread that waits
 * for it spins for 0.2 ms at most, half as long after each wait that ended in sleep and down to 2
 * us (runtime/barrier.h), and then gives its CPU away. So a call may take, beside the work,
 *
 *     of each thread 2 x 0.2 ms, the sum of those halves, and for each step
 *     2 x 2 us, the floor and a look at the clock behind it, and what it takes to sleep and wake.
 *
 * The last differs from machine to machine, and is measured here, with as many threads that do
 * nothing but wait at barriers of libc, which sleep at once. The bound has twice that and four
 * times the work: half a second of 64 threads where 0.35 to 0.46 were seen. Threads that spin for
 * 10 us more in each wait are beyond it.
 *
 * Time of CPUs is that of this process, of which other programs take nothing. But on a guest what
 * its host gave to others may count, and caches are cold behind a turn of another: of five tries
 * the one that took least counts. Threads that lose too much do so in all of them.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/barrier.h"

enum { PROMPT = 70, MORE = 6, CAPACITY = 128, VOCAB = 256, TRIES = 5, MOST_THREADS = 256 };

/* Of the info that every library tells (its header), as far as it is read here. */
typedef struct info {
    size_t struct_size;
    const char *text[5];
    size_t weights_size, max_chunk, n_levels;
    const void *levels;
    size_t n_inputs;
    const void *inputs;
    size_t n_outputs;
    const void *outputs;
    size_t vocab, n_steps;
} info;

typedef struct library {
    int (*weights_open)(const char *path, void **out);
    size_t (*session_size)(int64_t max_tokens);
    int (*session_init)(void *mem, size_t size, const void *w, int64_t max_tokens, void **out);
    int (*set_threads)(void *s, int threads);
    int (*forward)(void *s, const int32_t *tokens, int64_t n, float *logits, int64_t rows);
    const info *(*info)(void);
} library;

static void *symbol(void *lib, const char *name, const char *what) {
    char full[200];
    snprintf(full, sizeof full, "%s_%s", name, what);
    void *p = dlsym(lib, full);
    if (!p) fprintf(stderr, "check: no %s\n", full), exit(1);
    return p;
}

/* Of the process, those of OpenMP's pool included. */
static int tasks(void) {
    char line[200];
    int n = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Threads: %d", &n) == 1) break;
    if (f) fclose(f);
    return n;
}

static void expect(int code, const char *what) {
    if (code) fprintf(stderr, "check: %s gave %d\n", what, code), exit(1);
}

/* Of all threads: what others do on the machine does not count. */
static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of CPUs; logits of the prompt's last token and of each behind it. */
static double run(const library *l, const void *weights, int threads, float *logits) {
    const size_t size = (l->session_size(CAPACITY) + 63) / 64 * 64;
    void *memory = aligned_alloc(64, size), *s = NULL;
    int32_t tokens[PROMPT + MORE];
    for (int i = 0; i < PROMPT + MORE; i++)
        tokens[i] = (i * 37 + 11) % 96;
    if (!memory) fprintf(stderr, "check: no memory\n"), exit(1);
    expect(l->session_init(memory, size, weights, CAPACITY, &s), "session_init");
    expect(l->set_threads(s, threads), "set_threads");
    const double start = cpu_seconds();
    expect(l->forward(s, tokens, PROMPT, logits, 1), "forward");
    for (int i = 0; i < MORE; i++)
        expect(l->forward(s, tokens + PROMPT + i, 1, logits + (i + 1) * VOCAB, 1), "forward");
    const double seconds = cpu_seconds() - start;
    free(memory);
    return seconds;
}

/* ---- what waiting costs ---------------------------------------------------------------------- */
static pthread_barrier_t barrier;
static int waits;

static void *wait_often(void *unused) {
    (void)unused;
    for (int i = 0; i < waits; i++)
        pthread_barrier_wait(&barrier);
    return NULL;
}

/* Seconds of CPUs in which so many threads have slept and woken `times` times. */
static double cost_of_waits(int threads, int times) {
    pthread_t started[MOST_THREADS];
    waits = times;
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    const double start = cpu_seconds();
    for (int i = 0; i < threads; i++)
        expect(pthread_create(&started[i], NULL, wait_often, NULL), "pthread_create");
    for (int i = 0; i < threads; i++)
        pthread_join(started[i], NULL);
    const double seconds = cpu_seconds() - start;
    pthread_barrier_destroy(&barrier);
    return seconds;
}

/* ---- the bound ------------------------------------------------------------------------------- */
typedef struct taken {
    double alone, spinning, waiting, together; /* seconds of CPUs; spinning: at most */
} taken;

/* Seconds that so many threads may spin in the calls of `run`. */
static double most_of_spinning(int threads, int steps) {
    return 1e-9 * threads * (MORE + 1) * (2.0 * HRT_SPIN_MOST + 2.0 * HRT_SPIN_LEAST * steps);
}

static bool is_little(const taken *t) {
    return t->together <= 4 * t->alone + t->spinning + 2 * t->waiting;
}

/* One try; false: other bits. */
static bool compare(const library *l, const void *weights, int threads, taken *t) {
    static float one[(MORE + 1) * VOCAB], many[(MORE + 1) * VOCAB];
    t->alone = run(l, weights, 1, one);
    const int steps = (int)l->info()->n_steps;
    t->spinning = most_of_spinning(threads, steps);
    t->waiting = cost_of_waits(threads, (MORE + 1) * steps);
    memset(many, 0xff, sizeof many);
    run(l, weights, threads, many); /* starts the threads */
    t->together = run(l, weights, threads, many);
    printf("%d threads: %.2f ms, one %.2f ms, spinning %.2f ms, waiting %.2f ms\n", threads,
           1e3 * t->together, 1e3 * t->alone, 1e3 * t->spinning, 1e3 * t->waiting);
    return memcmp(one, many, sizeof one) == 0;
}

int main(int argc, char **argv) {
    static float warm[(MORE + 1) * VOCAB];
    library l;
    taken t;
    void *weights = NULL;
    if (argc != 5) return 2;
    void *lib = dlopen(argv[1], RTLD_NOW);
    if (!lib) return fprintf(stderr, "check: %s\n", dlerror()), 1;
    *(void **)&l.weights_open = symbol(lib, argv[2], "weights_open");
    *(void **)&l.session_size = symbol(lib, argv[2], "session_size");
    *(void **)&l.session_init = symbol(lib, argv[2], "session_init");
    *(void **)&l.set_threads = symbol(lib, argv[2], "session_set_threads");
    *(void **)&l.forward = symbol(lib, argv[2], "forward");
    *(void **)&l.info = symbol(lib, argv[2], "info");
    expect(l.weights_open(argv[3], &weights), "weights_open");
    const int threads = atoi(argv[4]);
    if (threads < 1 || threads > MOST_THREADS) return 2;
    run(&l, weights, 1, warm); /* pages of the weights */
    for (int i = 0; i < TRIES; i++) {
        if (!compare(&l, weights, threads, &t))
            return fprintf(stderr, "check: %d threads give other bits than one\n", threads), 1;
        if (tasks() != threads)
            return fprintf(stderr, "check: %d threads, not %d\n", tasks(), threads), 1;
        if (is_little(&t)) return 0;
    }
    return fprintf(stderr, "check: %d threads lose too much\n", threads), 1;
}
