/* The cost of threads: one model with more and more of them, and what starting costs.
 *
 *     bench_threads [--threads LIST] [--tokens LIST] [--rounds N] MODEL...
 *
 * MODEL is DIR/NAME as given to `hadal compile -o`; no kernel IR is needed. For each model the
 * program prints how long opening the weights and making a session took, and how much memory the
 * process holds that is not the file's. Then, for each number of tokens T, it prints the median
 * time of a call at each number of threads, and its ratio to the first model and number in the same
 * round (quartiles). */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/stats.h"
#include "bench/pages.h"
#include "bench/program.h"

enum { MODELS = 4, CAPACITY = 512 };

typedef struct subject {
    program *p;
    void *session;
    float *logits;
} subject;

/* Megabytes of the process that are not pages of files: RssAnon of /proc/self/status. */
static double own_memory(void) {
    char line[200];
    double kilobytes = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "RssAnon: %lf", &kilobytes) == 1) break;
    if (f) fclose(f);
    return kilobytes / 1024;
}

static void forward(const subject *s, int64_t n) {
    int32_t tokens[CAPACITY];
    for (int64_t i = 0; i < n; i++)
        tokens[i] = (int32_t)(i * 31 % 50);
    program_check(s->p, s->p->forward(s->session, tokens, n, s->logits, 1));
    program_check(s->p, s->p->rewind(s->session, 0));
}

/* Seconds to open the weights file once more. */
static double time_to_open(const program *p, const char *path) {
    char name[4096];
    int (*open)(const char *path, void **out);
    void (*close)(void *weights);
    void *weights;
    snprintf(name, sizeof name, "%s_weights_open", p->name);
    *(void **)&open = dlsym(p->library, name);
    snprintf(name, sizeof name, "%s_weights_close", p->name);
    *(void **)&close = dlsym(p->library, name);
    snprintf(name, sizeof name, "%s.weights", path);
    const double start = now(2);
    if (!open || !close || open(name, &weights)) fail("%s cannot be opened", name);
    const double time = now(2) - start;
    close(weights);
    return time;
}

static subject open_subject(const char *path) {
    subject s = {0};
    s.p = program_load(path);
    if (!s.p->forward) fail("%s is no model of tokens", path);
    const size_t size = s.p->session_size(CAPACITY);
    void *memory = new_pages(size);
    const double opening = time_to_open(s.p, path), before = now(2);
    program_check(s.p, s.p->session_init(memory, size, s.p->weights, CAPACITY, &s.session));
    const double making = now(2) - before;
    s.logits = new_pages((size_t)1 << 22);
    const double own = own_memory();
    forward(&s, 1);
    const double one = own_memory();
    forward(&s, CAPACITY);
    printf(
        "%-12s weights of %.1f MB open in %.3f ms, session in %.3f ms; session of %d tokens %.1f "
        "MB, of which touched by one token %.1f MB, by %d tokens %.1f MB\n",
        s.p->name, (double)s.p->weights_size / (1 << 20), opening * 1e3, making * 1e3, CAPACITY,
        (double)size / (1 << 20), one - own, CAPACITY, own_memory() - own);
    return s;
}

static double once(const subject *s, int64_t threads, int64_t tokens, int times) {
    program_check(s->p, s->p->set_threads(s->session, (int)threads));
    forward(s, tokens); /* wakes the threads */
    const double start = now(2);
    for (int i = 0; i < times; i++)
        forward(s, tokens);
    return (now(2) - start) / times;
}

static void measure(const subject *s, size_t n, const numbers *threads, int64_t tokens,
                    int64_t rounds) {
    static samples times[MODELS][NUMBERS], ratio[MODELS][NUMBERS];
    memset(times, 0, sizeof times), memset(ratio, 0, sizeof ratio);
    const double first = once(&s[0], threads->at[0], tokens, 1);
    const int each = first < 0.02 ? 1 + (int)(0.02 / first) : 1;
    for (int64_t r = 0; r < rounds; r++) {
        double base = 0;
        for (size_t k = 0; k < threads->n; k++)
            for (size_t i = 0; i < n; i++) {
                const double t = once(&s[i], threads->at[k], tokens, each);
                if (i == 0 && k == 0) base = t;
                sample(&times[i][k], t);
                sample(&ratio[i][k], t / base);
            }
    }
    for (size_t k = 0; k < threads->n; k++)
        for (size_t i = 0; i < n; i++)
            printf("%-12s T %4ld  threads %3ld  %10.3f ms  %.3f (%.3f .. %.3f)\n", s[i].p->name,
                   (long)tokens, (long)threads->at[k], median(&times[i][k]) * 1e3,
                   median(&ratio[i][k]), quantile(&ratio[i][k], 0.25),
                   quantile(&ratio[i][k], 0.75));
    fflush(stdout);
}

int main(int argc, char **argv) {
    numbers threads = read_numbers("2,1,4,16,64,256", 1, 256),
            tokens = read_numbers("1,128", 1, CAPACITY);
    numbers rounds = read_numbers("5", 1, SAMPLES);
    subject s[MODELS];
    size_t n = 0;
    for (int i = 1; i < argc; i++) {
        const bool last = i + 1 == argc;
        if (!last && strcmp(argv[i], "--threads") == 0)
            threads = read_numbers(argv[++i], 1, 256);
        else if (!last && strcmp(argv[i], "--tokens") == 0)
            tokens = read_numbers(argv[++i], 1, CAPACITY);
        else if (!last && strcmp(argv[i], "--rounds") == 0)
            rounds = read_numbers(argv[++i], 1, SAMPLES);
        else if (n < MODELS && strncmp(argv[i], "--", 2) != 0)
            s[n++] = open_subject(argv[i]);
        else
            n = MODELS + 1;
    }
    if (n == 0 || n > MODELS)
        fail("usage: bench_threads [--threads LIST] [--tokens LIST] [--rounds N] MODEL...");
    for (size_t i = 0; i < tokens.n; i++)
        measure(s, n, &threads, tokens.at[i], rounds.at[0]);
    for (size_t i = 0; i < n; i++) {
        free(s[i].session); /* the session starts where its memory does */
        free(s[i].logits);
        program_close(s[i].p);
    }
    return 0;
}
