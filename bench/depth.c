/* The residual mechanism alone: what reading across depth costs when sublayers cost almost nothing.
 *
 *     bench_depth [--shape S,N,d]... [--tokens LIST] [--threads LIST] [--rounds N] [--spec FILE]
 *                 [--machine FACTS] [--level LEVEL]
 *
 * The model is bench/specs/depth.hadal under six systems: "none" (stand-ins for the sublayers,
 * without a residual mechanism), the standard residual, Block AttnRes with the depth passes left
 * out (every mix reads every source), Block AttnRes as the passes schedule it, the same with norms
 * of merges computed from their rows, and the same with results of phase 1 in bf16. Each round runs
 * all six one after the other, and then measures the limits of the machine. The time of the
 * mechanism is the time of a system minus that of "none" in the same round; so are its bytes. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/machine.h"
#include "bench/pages.h"
#include "bench/program.h"
#include "passes/pass.h"

enum { SYSTEMS = 6, NONE = 0, STANDARD, NAIVE, PHASES, ROWS, HALVES };
enum { MOST = 16, COMPARED = 3 /* number of tokens, for all systems */ };

typedef struct shape {
    int64_t block, blocks, hidden;
} shape;

static const struct {
    const char *name, *system;
    bool depth_passes;
} systems[SYSTEMS] = {
    {"none", "none", true},         {"standard", "standard", true}, {"naive", "attnres", false},
    {"two-phase", "attnres", true}, {"row norm", "attnres", true},  {"bf16", "attnres", true},
};

typedef struct options {
    const char *spec;
    shape shapes[MOST];
    size_t n_shapes;
    numbers tokens, threads;
    int64_t rounds;
} options;

/* ---- programs -------------------------------------------------------------------------------- */

/* Makes the list of the default pipeline without the passes that make depth IR. False: there are no
 * such passes. */
static bool without_depth_passes(char *list, size_t size) {
    bool found = false;
    size_t n = 0;
    list[0] = 0;
    for (const hir_pass_id *id = hir_pipeline(); *id != HIR_PASS_COUNT; id++) {
        const hir_pass_info *pass = hir_pass(*id);
        if (pass->stage_out == HIR_STAGE_DEPTH) {
            found = true;
            continue;
        }
        n += (size_t)snprintf(list + n, size - n, "%s%s", n ? "," : "", pass->name);
    }
    return found;
}

static program *compile(const options *o, int system, shape s) {
    char defines[256], passes[1024], name[32];
    snprintf(defines, sizeof defines, "system=%s,block=%ld,sublayers=%ld,hidden=%ld",
             systems[system].system, (long)s.block, (long)(s.block * s.blocks), (long)s.hidden);
    snprintf(name, sizeof name, "depth%d", system);
    const bool has = without_depth_passes(passes, sizeof passes);
    if (system >= PHASES && !has) return NULL;
    const hadal_pipeline p = {.struct_size = sizeof p,
                              .passes = system == NAIVE ? passes : NULL,
                              .phase1_dtype = system == HALVES ? "bf16" : NULL,
                              .merge_norm = system == ROWS ? "row" : "dots"};
    return program_compile(o->spec, name, defines, &p);
}

/* ---- executions ------------------------------------------------------------------------------ */

typedef struct arena {
    float *x, *y;
    void *work;
    size_t work_size;
    int threads;
} arena;

static double once(const program *p, int64_t tokens, const arena *a, int times) {
    const double start = now(a->threads);
    for (int i = 0; i < times; i++) {
        program_check(p, p->call(p->weights, tokens, a->x, a->y, a->work, a->work_size));
    }
    return (now(a->threads) - start) / times;
}

/* The largest difference of two answers, as a share of the largest value. */
static double difference(const float *a, const float *b, size_t n) {
    double most = 0, off = 0;
    for (size_t i = 0; i < n; i++) {
        const double value = a[i] < 0 ? -a[i] : a[i], d = a[i] - b[i];
        if (value > most) most = value;
        if ((d < 0 ? -d : d) > off) off = d < 0 ? -d : d;
    }
    return most > 0 ? off / most : off;
}

/* Schedules of one mechanism must agree, or the speed of the faster one proves nothing. `limit` is
 * a share of the largest value: for rounding in f32, or for results of phase 1 stored in bf16. */
static void compare(program *const *p, int system, double limit, shape s, const arena *a) {
    const size_t n = (size_t)(COMPARED * s.hidden);
    if (!p[system]) return;
    once(p[NAIVE], COMPARED, a, 1);
    float *naive = new_pages(n * sizeof *naive);
    memcpy(naive, a->y, n * sizeof *naive);
    once(p[system], COMPARED, a, 1);
    const double e = difference(naive, a->y, n);
    printf("  %s differs from naive by %.1e of the largest value\n", systems[system].name, e);
    if (!(e < limit)) fail("that is too much");
    free(naive);
}

static arena make_arena(program *const *p, int64_t tokens, shape s) {
    arena a = {.threads = 1};
    for (int i = 0; i < SYSTEMS; i++)
        if (p[i] && p[i]->work_size(tokens) > a.work_size) a.work_size = p[i]->work_size(tokens);
    a.work_size = (a.work_size + 63) / 64 * 64;
    const size_t bytes = (size_t)(tokens * s.hidden) * sizeof(float);
    a.x = new_pages(bytes), a.y = new_pages(bytes);
    a.work = new_pages(a.work_size);
    memset(a.work, 0, a.work_size);
    uint32_t seed = 1;
    for (int64_t i = 0; i < tokens * s.hidden; i++) {
        seed = seed * 1664525u + 1013904223u;
        a.x[i] = (float)(int32_t)seed * 0x1p-31f;
    }
    return a;
}

/* ---- one line of the table ------------------------------------------------------------------- */

static double mechanism_bytes(const program *p, const program *none, int64_t tokens) {
    hd_known(none); /* the rows before PHASES are always compiled */
    const work w = count_work(p->kernels, tokens, 0, tokens);
    const work n = count_work(none->kernels, tokens, 0, tokens);
    return w.row_bytes + w.contract_bytes - n.row_bytes - n.contract_bytes;
}

static void report(program *const *p, shape s, int64_t tokens, const machine *m,
                   samples (*times)[SYSTEMS], samples (*own)[SYSTEMS], samples (*ratio)[SYSTEMS]) {
    const double layers = (double)(s.block * s.blocks * tokens);
    const double unit = 4.0 * (double)s.hidden * layers;
    for (int i = 0; i < SYSTEMS; i++) {
        if (!p[i]) continue;
        const double bytes = mechanism_bytes(p[i], p[NONE], tokens), t = median(&(*own)[i]);
        printf("%4ld %3ld %5ld %4ld %d  %-10s %8.0f", (long)s.block, (long)s.blocks, (long)s.hidden,
               (long)tokens, machine_threads(m), systems[i].name,
               median(&(*times)[i]) / layers * 1e9);
        if (i != NONE)
            printf(" %8.0f  %5.2f d %6.1f GB/s  %4.2f", t / layers * 1e9, bytes / unit,
                   bytes / t * 1e-9, bytes / t / machine_limit(m, LIMIT_TRIAD));
        if (i != NONE && p[NAIVE])
            printf("   %5.2f (%.2f .. %.2f)", median(&(*ratio)[i]), quantile(&(*ratio)[i], 0.25),
                   quantile(&(*ratio)[i], 0.75));
        printf("\n");
    }
}

static void measure(const options *o, program *const *p, shape s, int64_t tokens, machine *m,
                    arena *a) {
    static samples times[SYSTEMS], own[SYSTEMS], ratio[SYSTEMS];
    memset(times, 0, sizeof times), memset(own, 0, sizeof own), memset(ratio, 0, sizeof ratio);
    static rounds r;
    a->threads = machine_threads(m);
    omp_set_num_threads(a->threads);
    double first[SYSTEMS] = {0};
    for (int i = 0; i < SYSTEMS; i++)
        if (p[i]) once(p[i], tokens, a, 1), first[i] = once(p[i], tokens, a, 1);
    rounds_begin_strict(&r, m, (size_t)o->rounds);
    while (rounds_next(&r)) {
        double t[SYSTEMS] = {0};
        for (int i = 0; i < SYSTEMS; i++) {
            const double enough = 0.05; /* least seconds of a sample, as in attnres_torch.py */
            const int times_each = first[i] > enough ? 1 : 1 + (int)(enough / first[i]);
            if (p[i]) sample(&times[i], t[i] = once(p[i], tokens, a, times_each));
        }
        for (int i = 1; i < SYSTEMS; i++)
            if (p[i]) sample(&own[i], t[i] - t[NONE]);
        for (int i = 1; i < SYSTEMS; i++)
            if (p[i]) sample(&ratio[i], (t[i] - t[NONE]) / (t[NAIVE] - t[NONE]));
    }
    for (int i = 0; i < SYSTEMS; i++)
        rounds_keep(&r, &times[i]), rounds_keep(&r, &own[i]), rounds_keep(&r, &ratio[i]);
    report(p, s, tokens, m, &times, &own, &ratio);
    machine_print(m);
    fflush(stdout);
}

static void run(const options *o, shape s) {
    program *p[SYSTEMS];
    int64_t most = largest(&o->tokens);
    if (most < COMPARED) most = COMPARED;
    for (int i = 0; i < SYSTEMS; i++)
        p[i] = compile(o, i, s);
    arena a = make_arena(p, most, s);
    printf("S=%ld N=%ld d=%ld: %ld sublayers%s\n", (long)s.block, (long)s.blocks, (long)s.hidden,
           (long)(s.block * s.blocks), p[PHASES] ? "" : " (this compiler has no depth passes)");
    compare(p, PHASES, 1e-4, s, &a);
    compare(p, ROWS, 1e-4, s, &a);
    compare(p, HALVES, 5e-2, s, &a);
    printf("   S   N     d    T th system     ns total ns own  bytes        own    triad  ratio to "
           "naive (quartiles)\n");
    for (size_t t = 0; t < o->threads.n; t++) {
        machine *m = program_limits((int)o->threads.at[t]);
        for (size_t i = 0; i < o->tokens.n; i++)
            measure(o, p, s, o->tokens.at[i], m, &a);
        machine_close(m);
    }
    free(a.x), free(a.y), free(a.work);
    for (int i = 0; i < SYSTEMS; i++)
        program_close(p[i]);
}

/* ---- arguments ------------------------------------------------------------------------------- */

int main(int argc, char **argv) {
    options o = {.spec = BENCH_SPECS "/depth.hadal",
                 .shapes = {{16, 8, 1024}, {16, 8, 2048}, {6, 9, 1024}, {6, 9, 2048}},
                 .tokens = {{1, 16, 128, 512}, 4},
                 .threads = {{1, 2}, 2},
                 .rounds = 7};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "", *option = argv[i++];
        numbers list;
        if (strcmp(option, "--shape") == 0 && o.n_shapes < MOST &&
            (list = read_numbers(value, 1, INT32_MAX)).n == 3)
            o.shapes[o.n_shapes++] = (shape){list.at[0], list.at[1], list.at[2]};
        else if (strcmp(option, "--tokens") == 0)
            o.tokens = read_numbers(value, 1, INT32_MAX);
        else if (strcmp(option, "--threads") == 0)
            o.threads = read_numbers(value, 1, INT32_MAX);
        else if (strcmp(option, "--rounds") == 0 &&
                 (list = read_numbers(value, 1, INT32_MAX)).n == 1)
            o.rounds = list.at[0];
        else if (strcmp(option, "--spec") == 0 && *value)
            o.spec = value;
        else if (strcmp(option, "--machine") == 0 && *value)
            program_machine = value;
        else if (strcmp(option, "--level") == 0 && *value)
            program_cpu = value;
        else
            fail("usage: bench_depth [--shape S,N,d]... [--tokens LIST] [--threads LIST] "
                 "[--rounds N] [--spec FILE] [--machine FACTS] [--level LEVEL]");
    }
    if (o.n_shapes == 0) o.n_shapes = 4;
    machine_print_host();
    printf(
        "ns: per token and sublayer; own: less the stand-ins; bytes: of the mechanism, in rows of "
        "d floats per token and sublayer\n");
    for (size_t i = 0; i < o.n_shapes; i++)
        run(&o, o.shapes[i]);
    return 0;
}
