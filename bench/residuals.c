/* The cost of each residual system of the library by itself, and how long it takes to compile.
 *
 *     bench_residuals [--systems LIST] [--hidden LIST] [--tokens LIST] [--threads LIST]
 *                     [--layers N] [--rounds N] [--spec FILE] [--compile yes|no|only]
 *                     [--level LEVEL]
 *
 * The model is bench/specs/residuals.hadal under every system, and under none. The time of the
 * mechanism is the time of a system minus that of none in the same round. Its bytes are the
 * ledger's, from the kernels' own access sets, and those of its weights; its arithmetic is that of
 * its kernels minus that of none's. Each round ends with the limits of the machine, which give the
 * roof: the time of the bytes (rows at the triad limit, weights at the read limit) or of the
 * arithmetic (at the multiply-add limit), whichever is longer. No schedule of these kernels is
 * faster where caches do not help.
 *
 * Compile times are those of 48 layers with attention and SwiGLU, from the spec to the library. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/machine.h"
#include "bench/pages.h"
#include "bench/program.h"
#include "hadal/hadal.h"
#include "passes/analysis/ledger.h"

enum { MOST = 32, NAMES = 512, STAND_IN = 16 /* parameter of the spec */ };

static const char all_systems[] =
    "standard,rezero,layerscale,highway,deepnorm,keel,siamesenorm,elmo,denseformer,laurel-lr,"
    "muddformer,hyper-static,hyper-dynamic,mhc,mhc-lite,ddl,ddl-4,attnres,attnres-full,"
    "attnres-sigmoid,attnres-heads,attnres-static,attnres-window,value-residual,depth-attention";

typedef struct options {
    const char *spec;
    char names[NAMES]; /* names of systems, one string after the other */
    const char *system[MOST];
    size_t n_systems;
    numbers hidden, tokens, threads, layers, rounds; /* `layers` and `rounds` have one number */
    bool run, compile;
} options;

/* ---- subjects -------------------------------------------------------------------------------- */

typedef struct subject {
    program *p;
    void *memory, *session;
    float *out;
    double bytes; /* of the mechanism, per token; 0: the ledger finds no mechanism */
    double flops; /* of the whole model, per token of a call of several */
    int threads;
} subject;

static subject open_subject(const options *o, const char *system, int64_t hidden) {
    char defines[256];
    snprintf(defines, sizeof defines, "system=%s,hidden=%ld,layers=%ld", system, (long)hidden,
             (long)o->layers.at[0]);
    subject s = {.p = program_compile(o->spec, "residuals", defines, NULL)};
    const int64_t tokens = largest(&o->tokens);
    const size_t size = s.p->session_size(tokens);
    s.memory = new_pages(size);
    s.out = new_pages((size_t)(tokens * STAND_IN) * sizeof *s.out);
    program_check(s.p, s.p->session_init(s.memory, size, s.p->weights, tokens, &s.session));
    hir_ledger l;
    hir_ledger_find(s.p->kernels, s.p->arena, &l);
    s.bytes = (double)l.total.read + (double)l.total.written;
    const work w = count_work(s.p->kernels, 1, 0, 1);
    s.flops = w.flops + w.row_flops;
    return s;
}

static void close_subject(subject *s) {
    free(s->memory), free(s->out);
    program_close(s->p);
}

static double once(subject *s, int64_t tokens, int times) {
    static int32_t ids[4096];
    for (int64_t i = 0; i < tokens; i++)
        ids[i] = (int32_t)((i * 7919 + 11) % s->p->vocab);
    const double start = now(s->threads);
    for (int i = 0; i < times; i++) {
        program_check(s->p, s->p->forward(s->session, ids, tokens, s->out, tokens));
        program_check(s->p, s->p->rewind(s->session, 0));
    }
    return (now(s->threads) - start) / times;
}

/* ---- the mechanism --------------------------------------------------------------------------- */

/* The base of a system: the system of the spec that consists of the same sublayers alone. Only
 * systems whose sublayers do more than those of the others need one of their own. */
static const struct {
    const char *system, *base;
} bases[] = {
    {"", "none"}, /* the base of all other systems */
    {"value-residual", "no-values"},
    {"depth-attention", "no-values"},
    {"muddformer", "no-ways"},
};

enum { N_BASES = sizeof bases / sizeof *bases };

static size_t base_of(const char *system) {
    size_t i = N_BASES - 1;
    while (i > 0 && strcmp(bases[i].system, system) != 0)
        i--;
    for (size_t first = 0; first < i; first++)
        if (strcmp(bases[first].base, bases[i].base) == 0) return first; /* opened once */
    return i;
}

/* The lower bound of a mechanism's time. */
typedef struct roof {
    double rows, weights; /* bytes of a call: of rows, of weights */
    double bytes, flops;  /* seconds that they and the arithmetic take at the limits */
} roof;

static roof roof_of(const subject *s, const subject *none, int64_t tokens, const machine *m) {
    roof r = {.rows = s->bytes * (double)tokens};
    r.weights = (double)s->p->weights_size - (double)none->p->weights_size;
    r.bytes = r.rows / machine_limit(m, LIMIT_TRIAD) + r.weights / machine_limit(m, LIMIT_READ);
    r.flops = (s->flops - none->flops) * (double)tokens / machine_limit(m, LIMIT_FMA);
    return r;
}

/* Prints rows of d floats per token and sublayer, and per sublayer; the rate and its share of the
 * triad limit; the roof in ns per token and sublayer, the limit that sets it, and the share of the
 * roof that `t` reaches. */
static void print_roof(const roof *r, double t, int64_t sublayers, int64_t tokens, int64_t hidden,
                       const machine *m) {
    const double row = 4.0 * (double)(hidden * sublayers), bytes = r->rows + r->weights;
    const double most = r->bytes > r->flops ? r->bytes : r->flops;
    printf("  %6.2f %7.2f %6.1f GB/s %5.2f %8.0f %-5s %5.2f", r->rows / (double)tokens / row,
           r->weights / row, bytes / t * 1e-9, bytes / t / machine_limit(m, LIMIT_TRIAD),
           most / (double)(sublayers * tokens) * 1e9, r->bytes > r->flops ? "bytes" : "flops",
           most / t);
}

/* Measures one line of the table: a system and its base, which run in turn. */
static void measure(const options *o, const char *system, subject *s, subject *none, int64_t hidden,
                    int64_t tokens, machine *m) {
    static samples own, total, share;
    memset(&own, 0, sizeof own), memset(&total, 0, sizeof total), memset(&share, 0, sizeof share);
    static rounds r;
    s->threads = none->threads = machine_threads(m);
    program_check(s->p, s->p->set_threads(s->session, s->threads));
    program_check(none->p, none->p->set_threads(none->session, s->threads));
    once(none, tokens, 1), once(s, tokens, 1);
    const double first = once(s, tokens, 1), enough = 0.01; /* least seconds of a sample */
    const int times = first > enough ? 1 : 1 + (int)(enough / first);
    rounds_begin_strict(&r, m, (size_t)o->rounds.at[0]);
    while (rounds_next(&r)) {
        const double before = once(none, tokens, times), t = once(s, tokens, times);
        const double after = once(none, tokens, times);
        sample(&total, t), sample(&own, t - (before + after) / 2);
        sample(&share, (t - (before + after) / 2) / t);
    }
    rounds_keep(&r, &own), rounds_keep(&r, &total), rounds_keep(&r, &share);
    const double sublayers = (double)(2 * o->layers.at[0] * tokens), t = median(&own);
    printf("%-16s %5ld %4ld %d %8.0f %8.0f", system, (long)hidden, (long)tokens, machine_threads(m),
           median(&total) / sublayers * 1e9, t / sublayers * 1e9);
    if (s->bytes > 0) {
        const roof limit = roof_of(s, none, tokens, m);
        print_roof(&limit, t, 2 * o->layers.at[0], tokens, hidden, m);
    }
    printf("\n");
    machine_print_moved(m);
    fflush(stdout);
}

static void run(const options *o, int64_t hidden) {
    subject base[N_BASES] = {{0}};
    for (size_t th = 0; th < o->threads.n; th++) {
        machine *m = program_limits((int)o->threads.at[th]);
        printf("system               d    T th ns total   ns own    rows weights         own share"
               "  ns roof binds share\n");
        for (size_t k = 0; k < o->n_systems; k++) {
            subject s = open_subject(o, o->system[k], hidden);
            subject *none = &base[base_of(o->system[k])];
            if (!none->p) *none = open_subject(o, bases[none - base].base, hidden);
            for (size_t i = 0; i < o->tokens.n; i++)
                measure(o, o->system[k], &s, none, hidden, o->tokens.at[i], m);
            close_subject(&s);
        }
        machine_print(m);
        machine_close(m);
    }
    for (size_t i = 0; i < N_BASES; i++)
        if (base[i].p) close_subject(&base[i]);
}

/* ---- compile times --------------------------------------------------------------------------- */

/* Compiles a spec to a linked library, for one CPU level or all: seconds on the wall, and of all
 * CPUs. */
static void compile_once(const options *o, const char *system, const char *cpu, const char *path,
                         double *wall, double *work) {
    const double from = now(ON_THE_WALL), busy = cpu_seconds();
    hadal_session *s = hadal_open();
    if (!s) fail("out of memory");
    compiler_check(s, hadal_define(s, "system", system), "a definition");
    compiler_check(s, hadal_define(s, "work", "model"), "a definition");
    compiler_check(s, hadal_define(s, "layers", "48"), "a definition");
    compiler_check(s, hadal_load(s, o->spec, "residuals"), "reading the spec");
    const hadal_pipeline p = {.struct_size = sizeof p};
    compiler_check(s, hadal_run_passes(s, &p), "the pipeline");
    const hadal_target t = {.struct_size = sizeof t, .cpu = cpu};
    compiler_check(s, hadal_emit(s, &t, "so", path), "emitting the library");
    hadal_close(s);
    *wall = now(ON_THE_WALL) - from;
    *work = cpu_seconds() - busy;
}

static void compile_all(const options *o) {
    const char *const cpus[] = {program_cpu, NULL};
    char path[] = "/tmp/hadal-bench-XXXXXX";
    const int file = mkstemp(path);
    if (file < 0) fail("no file in /tmp can be made");
    close(file);
    printf("48 layers, spec to library, s  native: wall   CPU   all levels: wall   CPU\n");
    for (size_t k = 0; k < o->n_systems; k++) {
        printf("%-16s", o->system[k]);
        for (int c = 0; c < 2; c++) {
            static samples wall, work;
            wall.n = work.n = 0;
            for (int i = 0; i < 3; i++) {
                double w, b;
                compile_once(o, o->system[k], cpus[c], path, &w, &b);
                sample(&wall, w), sample(&work, b);
            }
            printf("%*.2f %5.2f", c ? 18 : 27, median(&wall), median(&work));
        }
        printf("\n");
        fflush(stdout);
    }
    unlink(path);
}

/* ---- arguments ------------------------------------------------------------------------------- */

static void choose_systems(options *o, const char *list) {
    snprintf(o->names, sizeof o->names, "%s", list);
    o->n_systems = 0;
    char *rest = o->names;
    for (char *s = strtok_r(o->names, ",", &rest); s && o->n_systems < MOST;
         s = strtok_r(NULL, ",", &rest))
        o->system[o->n_systems++] = s;
}

int main(int argc, char **argv) {
    static options o = {.spec = BENCH_SPECS "/residuals.hadal",
                        .hidden = {{1024, 2048}, 2},
                        .tokens = {{1, 512}, 2},
                        .threads = {{1}, 1},
                        .layers = {{16}, 1},
                        .rounds = {{5}, 1},
                        .run = true,
                        .compile = true};
    choose_systems(&o, all_systems);
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "", *option = argv[i];
        if (strcmp(option, "--systems") == 0)
            choose_systems(&o, value);
        else if (strcmp(option, "--hidden") == 0)
            o.hidden = read_numbers(value, 1, INT32_MAX);
        else if (strcmp(option, "--tokens") == 0)
            o.tokens = read_numbers(value, 1, INT32_MAX);
        else if (strcmp(option, "--threads") == 0)
            o.threads = read_numbers(value, 1, INT32_MAX);
        else if (strcmp(option, "--spec") == 0 && *value)
            o.spec = value;
        else if (strcmp(option, "--level") == 0 && *value)
            program_cpu = value;
        else if (strcmp(option, "--compile") == 0)
            o.run = strcmp(value, "only") != 0, o.compile = strcmp(value, "no") != 0;
        else if (strcmp(option, "--layers") == 0)
            o.layers = read_numbers(value, 1, INT32_MAX);
        else if (strcmp(option, "--rounds") == 0)
            o.rounds = read_numbers(value, 1, INT32_MAX);
        else
            fail("usage: bench_residuals [--systems LIST] [--hidden LIST] [--tokens LIST] "
                 "[--threads LIST] [--layers N] [--rounds N] [--spec FILE] "
                 "[--compile yes|no|only] [--level LEVEL]");
    }
    if (largest(&o.tokens) > 4096) fail("at most 4096 tokens");
    machine_print_host();
    for (size_t i = 0; o.run && i < o.hidden.n; i++)
        run(&o, o.hidden.at[i]);
    if (o.compile) compile_all(&o);
    return 0;
}
