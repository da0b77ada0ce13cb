/* check LIBRARY NAME WEIGHTS THREADS: one prompt and some tokens behind it with one thread, then
 * the same with THREADS threads: the same bits, and how much more time of CPUs it took.
 *
 * With more threads than CPUs a step ends when the last of them had its turn. A wait spins for 0.2
 * ms at most, half as long after each wait that ended in sleep, and then gives its CPU away: so a
 * call takes the work itself and, for each barrier, some switches of context for each thread. The
 * bound allows 20 us for each thread and barrier, several times what sleeping and waking take, and
 * four times the work. Threads that spin until the last one has come take the slices of the
 * scheduler (3 ms and more) for each barrier.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PROMPT = 70, MORE = 6, CAPACITY = 128, VOCAB = 256 };

typedef struct library {
    int (*weights_open)(const char *path, void **out);
    size_t (*session_size)(int64_t max_tokens);
    int (*session_init)(void *mem, size_t size, const void *w, int64_t max_tokens, void **out);
    int (*set_threads)(void *s, int threads);
    int (*forward)(void *s, const int32_t *tokens, int64_t n, float *logits, int64_t rows);
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

int main(int argc, char **argv) {
    static float one[(MORE + 1) * VOCAB], many[(MORE + 1) * VOCAB];
    enum { BARRIERS = 200 * (MORE + 1) }; /* at most, of this model */
    library l;
    void *weights = NULL;
    if (argc != 5) return 2;
    void *lib = dlopen(argv[1], RTLD_NOW);
    if (!lib) return fprintf(stderr, "check: %s\n", dlerror()), 1;
    *(void **)&l.weights_open = symbol(lib, argv[2], "weights_open");
    *(void **)&l.session_size = symbol(lib, argv[2], "session_size");
    *(void **)&l.session_init = symbol(lib, argv[2], "session_init");
    *(void **)&l.set_threads = symbol(lib, argv[2], "session_set_threads");
    *(void **)&l.forward = symbol(lib, argv[2], "forward");
    expect(l.weights_open(argv[3], &weights), "weights_open");
    const int threads = atoi(argv[4]);
    run(&l, weights, 1, one); /* pages of the weights */
    const double alone = run(&l, weights, 1, one);
    memset(many, 0xff, sizeof many);
    run(&l, weights, threads, many); /* starts the threads */
    const double together = run(&l, weights, threads, many);
    if (tasks() != threads)
        return fprintf(stderr, "check: %d threads, not %d\n", tasks(), threads), 1;
    printf("%d threads: %.2f ms, one %.2f ms\n", threads, 1e3 * together, 1e3 * alone);
    if (memcmp(one, many, sizeof one) != 0)
        return fprintf(stderr, "check: %d threads give other bits than one\n", threads), 1;
    if (together > 4 * alone + BARRIERS * threads * 20e-6)
        return fprintf(stderr, "check: %d threads lose too much\n", threads), 1;
    return 0;
}
