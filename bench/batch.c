/* Batched decoding: tokens per second of one model at several batch sizes.
 *
 *     bench_batch [--batch LIST] [--past N] [--threads LIST] [--rounds N] MODEL
 *
 * MODEL is DIR/NAME as given to `hadal compile -o`. Each session holds N tokens. A round measures
 * every batch size, one after the other, and the machine's limits; a speed-up is the ratio to the
 * first size in the same round. In a step, weights are read once in total, and caches once for each
 * session. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/machine.h"
#include "bench/pages.h"
#include "bench/program.h"

enum { CHUNK = 512 };

typedef struct options {
    numbers batch, threads, past, rounds; /* `past` and `rounds` have one number */
    const char *model;
} options;

typedef struct fleet { /* the sessions of one model */
    program *p;
    void **sessions;
    int32_t *tokens;
    float *logits;
    int64_t n, past;
} fleet;

static void fill(fleet *f, void *session) {
    int32_t tokens[CHUNK];
    for (int64_t done = 0; done < f->past;) {
        const int64_t part = f->past - done < CHUNK ? f->past - done : CHUNK;
        for (int64_t i = 0; i < part; i++)
            tokens[i] = (int32_t)(((done + i) * 7919 + 11) % f->p->vocab);
        program_check(f->p, f->p->forward(session, tokens, part, NULL, 0));
        done += part;
    }
}

static fleet open_fleet(const options *o) {
    fleet f = {.p = program_load(o->model), .past = o->past.at[0]};
    if (!f.p->forward_batch || !f.p->kernels || f.p->vocab < 1)
        fail("%s is no model of tokens with its kernel IR beside it", o->model);
    f.n = largest(&o->batch);
    const int64_t capacity =
        f.past + 1 > f.n ? f.past + 1 : f.n; /* one pass, also for the largest batch */
    const size_t size = f.p->session_size(capacity);
    f.sessions = new_pages((size_t)f.n * sizeof *f.sessions);
    f.tokens = new_pages((size_t)f.n * sizeof *f.tokens);
    f.logits = new_pages((size_t)(f.n * f.p->vocab) * sizeof *f.logits);
    for (int64_t i = 0; i < f.n; i++) {
        program_check(
            f.p, f.p->session_init(new_pages(size), size, f.p->weights, capacity, &f.sessions[i]));
        fill(&f, f.sessions[i]);
        f.tokens[i] = (int32_t)((i * 31 + 7) % f.p->vocab);
    }
    return f;
}

static void close_fleet(fleet *f) {
    for (int64_t i = 0; i < f->n; i++)
        free(f->sessions[i]); /* a session starts where its memory does */
    free(f->sessions), free(f->tokens), free(f->logits);
    program_close(f->p);
}

/* Seconds of one decoding step of the first `n` sessions. */
static double step(const fleet *f, int64_t n, int threads, int times) {
    const double start = now(threads);
    for (int i = 0; i < times; i++) {
        program_check(f->p, f->p->forward_batch(f->sessions, f->tokens, n, f->logits));
        for (int64_t k = 0; k < n; k++)
            program_check(f->p, f->p->rewind(f->sessions[k], f->past));
    }
    return (now(threads) - start) / times;
}

static void report(const fleet *f, int64_t n, const samples *times, const samples *gain,
                   const machine *m) {
    const work w = count_work(f->p->kernels, 1, f->past, 1);
    const double t = median(times);
    double caches = 0;
    for (size_t i = 0; i < f->p->kernels->states.n; i++)
        caches +=
            4 * (double)hir_type_row_elements(f->p->kernels->states.at[i].type) * (double)f->past;
    const double bytes = w.matrix_bytes + (double)n * (w.contract_bytes + caches);
    printf("%-12s %d %5ld %5ld %9.2f ms +-%2.0f %% %9.1f tok/s  x %5.2f %8.1f GFLOP/s %5.2f %7.1f "
           "GB/s %5.2f\n",
           f->p->name, machine_threads(m), (long)f->past, (long)n, t * 1e3, 100 * spread(times),
           (double)n / t, median(gain), (double)n * w.flops / t * 1e-9,
           (double)n * w.flops / t / machine_limit(m, LIMIT_FMA), bytes / t * 1e-9,
           bytes / t / machine_limit(m, LIMIT_READ));
}

static void measure(const options *o, const fleet *f, machine *m) {
    static samples times[NUMBERS], gain[NUMBERS];
    static rounds r;
    const int threads = machine_threads(m);
    int each[NUMBERS];
    memset(times, 0, sizeof times), memset(gain, 0, sizeof gain);
    program_check(f->p, f->p->set_threads(f->sessions[0], threads));
    for (size_t i = 0; i < o->batch.n; i++) {
        const double first = step(f, o->batch.at[i], threads, 1), enough = 0.05;
        each[i] = first < enough ? 1 + (int)(enough / first) : 1;
    }
    rounds_begin_strict(&r, m, (size_t)o->rounds.at[0]);
    while (rounds_next(&r)) {
        double rate[NUMBERS];
        for (size_t i = 0; i < o->batch.n; i++) {
            const double t = step(f, o->batch.at[i], threads, each[i]);
            rate[i] = (double)o->batch.at[i] / t;
            sample(&times[i], t);
            sample(&gain[i], rate[i] / rate[0]);
        }
    }
    for (size_t i = 0; i < o->batch.n; i++) {
        rounds_keep(&r, &times[i]), rounds_keep(&r, &gain[i]);
        report(f, o->batch.at[i], &times[i], &gain[i], m);
    }
    machine_print(m);
    fflush(stdout);
}

static numbers read_list(const char *text, int64_t least) {
    return read_numbers(text, least, INT32_MAX);
}

int main(int argc, char **argv) {
    options o = {.batch = read_list("1,2,4,8,16,32", 1),
                 .threads = read_list("1,2", 1),
                 .past = read_list("0", 0),
                 .rounds = read_list("5", 1)};
    for (int i = 1; i < argc; i++) {
        const bool last = i + 1 == argc;
        if (!last && strcmp(argv[i], "--batch") == 0)
            o.batch = read_list(argv[++i], 1);
        else if (!last && strcmp(argv[i], "--threads") == 0)
            o.threads = read_list(argv[++i], 1);
        else if (!last && strcmp(argv[i], "--past") == 0)
            o.past = read_list(argv[++i], 0);
        else if (!last && strcmp(argv[i], "--rounds") == 0)
            o.rounds = read_list(argv[++i], 1);
        else
            o.model = argv[i];
    }
    if (!o.model || strncmp(o.model, "--", 2) == 0)
        fail("usage: bench_batch [--batch LIST] [--past N] [--threads LIST] [--rounds N] MODEL");
    machine_print_host();
    fleet f = open_fleet(&o);
    printf("model       th  past batch      time               speed      x batch of %ld    "
           "arithmetic  share   weights and caches, share of read\n",
           (long)o.batch.at[0]);
    for (size_t t = 0; t < o.threads.n; t++) {
        machine *m = machine_open((int)o.threads.at[t]);
        if (!m) fail("out of memory");
        measure(&o, &f, m);
        machine_close(m);
    }
    close_fleet(&f);
    return 0;
}
