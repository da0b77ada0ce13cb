/* Compiled models of tokens: prefill and decode, as a share of what the machine can do at the same
 * time.
 *
 *     bench_forward [--prefill LIST] [--decode LIST] [--threads LIST] [--rounds N] MODEL [OTHER]
 *
 * MODEL is DIR/NAME as given to `hadal compile -o`: DIR/libNAME.so and DIR/NAME.weights, and
 * DIR/NAME.kernel.hir (--emit=so,weights,kernel) from which the work is counted. With OTHER, runs
 * of both follow each other in every round, now one first, now the other, and the ratio is that of
 * neighbours.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/machine.h"
#include "bench/program.h"

enum { MOST = 16, CHUNK = 512 };

typedef struct options {
    int64_t prefill[MOST], decode[MOST], threads[MOST], rounds;
    size_t n_prefill, n_decode, n_threads;
} options;

typedef struct subject {
    program *p;
    void *memory, *session;
    int64_t held; /* tokens that its caches have been filled with */
    float *logits;
    int threads;
} subject;

static int64_t most_tokens(const options *o) {
    int64_t most = 1;
    for (size_t i = 0; i < o->n_prefill; i++)
        if (o->prefill[i] > most) most = o->prefill[i];
    for (size_t i = 0; i < o->n_decode; i++)
        if (o->decode[i] + 1 > most) most = o->decode[i] + 1;
    return most;
}

static void check(const subject *s, int code) {
    if (code) fail("%s: %s", s->p->name, s->p->strerror(code));
}

static subject open_subject(const options *o, const char *path) {
    subject s = {.p = program_load(path)};
    if (!s.p->forward) fail("%s is no model of tokens", path);
    if (!s.p->kernels || s.p->vocab < 1)
        fail("%s.kernel.hir: not there, or without an embedding; compile with "
             "--emit=so,weights,kernel",
             path);
    const int64_t most = most_tokens(o);
    const size_t size = s.p->session_size(most);
    s.memory = size ? aligned_alloc(64, size) : NULL;
    s.logits = malloc((size_t)s.p->vocab * sizeof(float));
    if (!s.memory || !s.logits) fail("out of memory");
    check(&s, s.p->session_init(s.memory, size, s.p->weights, most, &s.session));
    return s;
}

static void close_subject(subject *s) {
    free(s->memory);
    free(s->logits);
    program_close(s->p);
}

/* ---- one measurement ----------------------------------------------------------------------------
 */

static int32_t token(const subject *s, int64_t i) {
    return (int32_t)((i * 7919 + 11) % s->p->vocab);
}

static void forward(subject *s, int64_t from, int64_t n) {
    int32_t tokens[CHUNK];
    for (int64_t done = 0; done < n;) {
        const int64_t part = n - done < CHUNK ? n - done : CHUNK;
        for (int64_t i = 0; i < part; i++)
            tokens[i] = token(s, from + done + i);
        const int64_t rows = done + part == n;
        check(s, s->p->forward(s->session, tokens, part, s->logits, rows));
        done += part;
    }
}

/* Caches as long as the longest decode wants; what they hold stays when others are measured. */
static void fill(subject *s, int64_t length) {
    if (length > s->held) {
        check(s, s->p->rewind(s->session, s->held));
        forward(s, s->held, length - s->held);
        s->held = length;
    }
    check(s, s->p->rewind(s->session, length));
}

/* Seconds for n tokens behind `past`; the caches are as before. */
static double once(subject *s, int64_t past, int64_t n, int times) {
    const double start = now(s->threads);
    for (int i = 0; i < times; i++) {
        forward(s, past, n);
        check(s, s->p->rewind(s->session, past));
    }
    return (now(s->threads) - start) / times;
}

typedef struct job {
    int64_t past, tokens;
} job;

static work count(const subject *s, job j) {
    work sum = {0};
    for (int64_t done = 0; done < j.tokens;) {
        const int64_t n = j.tokens - done < CHUNK ? j.tokens - done : CHUNK;
        const work w = count_work(s->p->kernels, n, j.past + done, done + n == j.tokens);
        sum.flops += w.flops, sum.matrix_bytes += w.matrix_bytes;
        done += n;
    }
    /* keys and values of all positions, once a chunk */
    for (size_t i = 0; i < s->p->kernels->states.n; i++)
        sum.contract_bytes +=
            4 * (double)hir_type_row_elements(s->p->kernels->states.at[i].type) * (double)j.past;
    return sum;
}

static void report(const subject *s, job j, const samples *times, const machine *m) {
    const work w = count(s, j);
    const double t = median(times), bytes = w.matrix_bytes + w.contract_bytes;
    const double flops = w.flops / t / machine_limit(m, LIMIT_FMA);
    const double read = bytes / t / machine_limit(m, LIMIT_READ);
    printf("%-14s %d %5ld %5ld  %9.2f ms +-%2.0f %% %9.1f tok/s %7.1f GFLOP/s %5.2f %7.1f GB/s "
           "%5.2f\n",
           s->p->name, machine_threads(m), (long)j.past, (long)j.tokens, t * 1e3,
           100 * spread(times), (double)j.tokens / t, w.flops / t * 1e-9, flops, bytes / t * 1e-9,
           read);
}

static void measure(const options *o, subject *s, int n, job j, machine *m) {
    static samples times[2], ratio;
    memset(times, 0, sizeof times), memset(&ratio, 0, sizeof ratio);
    static rounds r;
    int each = 1;
    for (int i = 0; i < n; i++) {
        s[i].threads = machine_threads(m);
        check(&s[i], s[i].p->set_threads(s[i].session, s[i].threads));
        fill(&s[i], j.past);
        const double first = once(&s[i], j.past, j.tokens, 1), enough = 0.05;
        if (first < enough && enough / first > each) each = 1 + (int)(enough / first);
    }
    rounds_begin(&r, m, (size_t)o->rounds);
    while (rounds_next(&r)) {
        double t[2] = {0};
        for (int k = 0; k < n; k++) {
            const int i = r.n % 2 ? n - 1 - k : k;
            sample(&times[i], t[i] = once(&s[i], j.past, j.tokens, each));
        }
        if (n == 2) sample(&ratio, t[1] / t[0]);
    }
    rounds_keep(&r, &ratio);
    for (int i = 0; i < n; i++)
        rounds_keep(&r, &times[i]);
    for (int i = 0; i < n; i++)
        report(&s[i], j, &times[i], m);
    if (n == 2)
        printf("%s / %s: %.4f (quartiles %.4f .. %.4f, %zu pairs)\n", s[1].p->name, s[0].p->name,
               median(&ratio), quantile(&ratio, 0.25), quantile(&ratio, 0.75), ratio.n);
    machine_print(m);
    fflush(stdout);
}

/* ---- arguments ---------------------------------------------------------------------------------
 */

static size_t numbers(const char *text, int64_t least, int64_t *out, size_t most) {
    size_t n = 0;
    while (*text && n < most) {
        char *end;
        out[n] = strtol(text, &end, 10);
        if (end == text || out[n++] < least || (*end && *end != ','))
            fail("\"%s\" is not a list of numbers", text);
        text = *end ? end + 1 : end;
    }
    return n;
}

static const char usage[] =
    "usage: bench_forward [--prefill LIST] [--decode LIST] [--threads LIST] [--rounds N] "
    "MODEL [OTHER]\nLIST may be empty (\"\"); MODEL is DIR/NAME as given to `hadal compile -o`";

static int parse(int argc, char **argv, options *o, const char **models) {
    int n = 0;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strncmp(argv[i], "--", 2) != 0) {
            if (n == 2) fail("%s", usage);
            models[n++] = argv[i];
            continue;
        }
        if (!value) fail("%s", usage);
        if (strcmp(argv[i], "--prefill") == 0)
            o->n_prefill = numbers(value, 1, o->prefill, MOST);
        else if (strcmp(argv[i], "--decode") == 0)
            o->n_decode = numbers(value, 0, o->decode, MOST);
        else if (strcmp(argv[i], "--threads") == 0)
            o->n_threads = numbers(value, 1, o->threads, MOST);
        else if (strcmp(argv[i], "--rounds") != 0 || numbers(value, 1, &o->rounds, 1) != 1)
            fail("%s", usage);
        i++;
    }
    if (n == 0) fail("%s", usage);
    return n;
}

int main(int argc, char **argv) {
    options o = {.prefill = {1, 16, 128, 512},
                 .n_prefill = 4,
                 .decode = {0, 512, 4096},
                 .n_decode = 3,
                 .threads = {1, 2},
                 .n_threads = 2,
                 .rounds = 5};
    const char *models[2];
    const int n = parse(argc, argv, &o, models);
    machine_print_host();
    subject s[2];
    for (int i = 0; i < n; i++)
        s[i] = open_subject(&o, models[i]);
    printf("model         th  past     T       time               speed           arithmetic  "
           "share    "
           "weights and caches, share of read\n");
    for (size_t t = 0; t < o.n_threads; t++) {
        machine *m = machine_open((int)o.threads[t]);
        if (!m) fail("out of memory");
        for (size_t i = 0; i < o.n_prefill; i++)
            measure(&o, s, n, (job){0, o.prefill[i]}, m);
        for (size_t i = 0; i < o.n_decode; i++)
            measure(&o, s, n, (job){o.decode[i], 1}, m);
        machine_close(m);
    }
    for (int i = 0; i < n; i++)
        close_subject(&s[i]);
    return 0;
}
