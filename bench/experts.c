/* Contractions of experts (matrices of which each token uses a few) alone. For one token it
 * measures the rate at which the matrices of its experts are read, beside a plain read of memory;
 * for many tokens the rate of multiply-adds, beside the machine's. Limits are measured in the same
 * rounds, and work is shared among threads as by the runtime. Every call uses other experts.
 *
 *     experts [LEVEL|best] [THREADS] [ROUNDS] [T E K WIDTH D [DTYPE]]
 *
 * up: gate and up with their activation, [T, D] to [T, K, WIDTH]; down: back to [T, K, D]. */
#include <omp.h>

#include "bench/kernel.h"
#include "bench/machine.h"

enum {
    CHOICES = 64, /* selections of experts, after which calls repeat them */
    /* bytes of the matrices that calls of one token go through, as layers do, so that no call finds
     * its matrices in a cache */
    COLD = 1280 << 20,
};

typedef struct shape {
    int64_t t, experts, chosen, width, d;
    hir_dtype dtype;
} shape;

static const shape table[] = {
    {1, 128, 8, 512, 1536, HIR_BF16},  {1, 128, 8, 512, 1536, HIR_Q8},
    {1, 128, 8, 512, 1536, HIR_Q4},    {1, 128, 8, 1024, 2304, HIR_BF16},
    {1, 128, 8, 1024, 2304, HIR_Q8},   {1, 128, 8, 1024, 2304, HIR_Q4},
    {512, 128, 8, 512, 1536, HIR_F32}, {512, 128, 8, 512, 1536, HIR_BF16},
    {512, 128, 8, 512, 1536, HIR_Q8},  {512, 128, 8, 512, 1536, HIR_Q4},
};

typedef struct job {
    shape s;
    bool down;
    int64_t k, n; /* shape of one matrix */
    bench b;
    compiled c;
    int64_t columns;
    size_t weight_bytes; /* of the matrices of all experts; a layer has one or two of this size */
    int64_t layers;
    char *weights;
    float *x, *y;
    int32_t *ids; /* [CHOICES][t][chosen] */
    char *scratch[MOST_THREADS];
    samples seconds;
} job;

/* ---- the kernel ------------------------------------------------------------------------------ */
static hir_id build(job *j) {
    bench *b = &j->b;
    hir_builder top = hir_at_end(b->m, &b->diags);
    const hir_type of_x = j->down ? hir_make_type(HIR_F32, 3, (int64_t[]){HIR_T, j->s.chosen, j->k})
                                  : hir_make_type(HIR_F32, 2, (int64_t[]){HIR_T, j->k});
    const hir_type of_ids = hir_make_type(HIR_I32, 2, (int64_t[]){HIR_T, j->s.chosen});
    const hir_type out = hir_make_type(HIR_F32, 3, (int64_t[]){HIR_T, j->s.chosen, j->n});
    const hir_type wt = hir_make_type(j->s.dtype, 3, (int64_t[]){j->s.experts, j->n, j->k});
    const hir_ref x = hir_value_ref(hir_add_input(b->m, "x", of_x));
    const hir_ref ids = hir_value_ref(hir_add_input(b->m, "ids", of_ids));
    const hir_attr attrs[] = {hir_string(HIR_A_NAME, "contract0"), hir_string(HIR_A_ROWS, "all"),
                              hir_string(HIR_A_SPLIT_DECODE, "cols"),
                              hir_string(HIR_A_SPLIT_PREFILL, "channels")};
    const hir_id kernel = hir_build_kernel(&top, HIR_KERNEL_CONTRACT_OP, attrs, 4, &out, 1);
    hir_builder body = hir_in_body(b->m, &b->diags, kernel);
    hir_ref y[2];
    for (int i = 0; i < 2 - j->down; i++) {
        const uint32_t w = hir_add_weight(b->m, i ? "w1" : "w0", wt, HD_NOWHERE);
        b->m->weights.at[w].layout = HIR_LAYOUT_PANEL;
        const hir_ref args[] = {x, hir_weight_ref(w), ids, hir_no_ref()};
        y[i] = hir_emit(&body, HIR_EXPERT_LINEAR_OP, args, 4, NULL, 0);
    }
    if (!j->down) y[0] = hir_emit2(&body, HIR_MUL_OP, hir_emit1(&body, HIR_SILU_OP, y[0]), y[1]);
    hir_build(&body, HIR_YIELD_OP, y, 1, NULL, 0);
    return kernel;
}

/* Selects different experts for each token, as top-k does. */
static void choose(job *j) {
    uint64_t seed = 1;
    for (int64_t row = 0; row < CHOICES * j->s.t; row++) {
        int32_t *ids = j->ids + row * j->s.chosen;
        for (int64_t i = 0; i < j->s.chosen; i++) {
            bool again = true;
            while (again) {
                ids[i] = (int32_t)random_below(&seed, j->s.experts);
                again = false;
                for (int64_t k = 0; k < i; k++)
                    again |= ids[k] == ids[i];
            }
        }
    }
}

static void open_job(job *j, const hcg_level *level, int threads) {
    uint64_t bytes, seed = 1;
    j->k = j->down ? j->s.width : j->s.d, j->n = j->down ? j->s.d : j->s.width;
    j->b = bench_new();
    bench_start(&j->b);
    const hir_id kernel = build(j);
    kernel_compile(&j->b, HIR_KERNEL_CONTRACT, kernel, j->s.t == 1, level, &j->c);
    (void)hir_weight_bytes(&j->b.m->weights.at[0], &bytes);
    j->columns = hcg_columns(j->b.m, kernel);
    j->weight_bytes = (size_t)bytes;
    const size_t layer = (size_t)(2 - j->down) * j->weight_bytes;
    j->layers = j->s.t == 1 ? (int64_t)(COLD / layer) + 1 : 1;
    j->weights = new_pages((size_t)j->layers * layer);
    memset(j->weights, 0x3c, (size_t)j->layers * layer); /* small numbers in every type */
    j->x = random_floats(&seed, (size_t)(j->s.t * j->s.chosen * j->k));
    j->y = guarded((size_t)(j->s.t * j->s.chosen * j->n) * 4);
    j->ids = guarded((size_t)(CHOICES * j->s.t * j->s.chosen) * 4);
    choose(j);
    new_scratch(j->scratch, threads, &j->c);
}

static void close_job(job *j, int threads) {
    free_scratch(j->scratch, threads);
    guarded_free(j->ids), guarded_free(j->y), guarded_free(j->x), free(j->weights);
    compiled_free(&j->c);
    bench_free(&j->b);
}

/* ---- time ------------------------------------------------------------------------------------ */
static void calls_of_thread(const job *j, int calls) {
    const int64_t me = omp_get_thread_num(), n = omp_get_num_threads();
    const int64_t from = j->columns * me / n, to = j->columns * (me + 1) / n;
    hrt_frame frame = {.T = j->s.t, .C = j->s.t, .cap = j->s.t, .scratch = j->scratch[me]};
    for (int i = 0; i < calls; i++) {
        int32_t *ids = j->ids + (int64_t)(i % CHOICES) * j->s.t * j->s.chosen;
        char *w = j->weights + (size_t)((i % j->layers) * (2 - j->down)) * j->weight_bytes;
        void *up[] = {j->x, w, ids, w + j->weight_bytes, j->y}, *down[] = {j->x, w, ids, j->y};
        j->c.call(&frame, j->down ? down : up, 0, j->s.t, from, to);
#pragma omp barrier
    }
}

static double seconds_of_call(const job *j, int threads) {
    const int calls = j->s.t == 1 ? CHOICES : 2;
    const double start = now(threads);
#pragma omp parallel num_threads(threads)
    calls_of_thread(j, calls);
    return (now(threads) - start) / calls;
}

static void report(job *j, machine *m, const hcg_level *level, size_t wanted) {
    const int threads = machine_threads(m);
    rounds r;
    seconds_of_call(j, threads);
    for (rounds_begin_strict(&r, m, wanted); rounds_next(&r);)
        sample(&j->seconds, seconds_of_call(j, threads));
    rounds_keep(&r, &j->seconds);
    const double t = median(&j->seconds), products = 2 - j->down;
    const double flops = 2.0 * (double)(j->s.t * j->s.chosen * j->k * j->n) * products;
    const double bytes = (double)j->weight_bytes * products * (double)j->s.chosen /
                         (double)j->s.experts; /* for one token */
    printf("%-10s %-4s %-4s T=%-3ld E=%ld k=%ld width=%-4ld d=%-4ld %dt %9.1f us %7.1f GFLOP/s "
           "%.3f of multiply-add",
           level->name, j->down ? "down" : "up", hir_dtype_name(j->s.dtype), (long)j->s.t,
           (long)j->s.experts, (long)j->s.chosen, (long)j->s.width, (long)j->s.d, threads, t * 1e6,
           flops / t * 1e-9, flops / t / machine_limit(m, LIMIT_FMA));
    if (j->s.t == 1)
        printf(" %6.1f GB/s %.3f of read", bytes / t * 1e-9,
               bytes / t / machine_limit(m, LIMIT_READ));
    printf(" (+-%.0f %%)\n", 100 * spread(&j->seconds));
    machine_print_moved(m);
    fflush(stdout);
}

static void run(const hcg_level *level, machine *m, size_t rounds, shape s) {
    for (int down = 0; down < 2; down++) {
        job *j = calloc(1, sizeof *j);
        j->s = s, j->down = down;
        open_job(j, level, machine_threads(m));
        report(j, m, level, rounds);
        close_job(j, machine_threads(m));
        free(j);
    }
}

int main(int argc, char **argv) {
    const hcg_level *level = kernel_level(argc > 1 ? argv[1] : "best");
    const int threads = argc > 2 ? atoi(argv[2]) : 2;
    const size_t rounds = argc > 3 ? (size_t)atoi(argv[3]) : 7;
    machine *m = level && threads >= 1 && threads <= MOST_THREADS ? machine_open(threads) : NULL;
    if (!m || (argc > 4 && argc < 9)) {
        fprintf(stderr, "experts [LEVEL|best] [THREADS] [ROUNDS] [T E K WIDTH D [DTYPE]]\n");
        return 2;
    }
    machine_use_vectors(m, level->lanes);
    machine_print_host();
    if (argc > 8)
        run(level, m, rounds,
            (shape){atol(argv[4]), atol(argv[5]), atol(argv[6]), atol(argv[7]), atol(argv[8]),
                    argc > 9 ? kernel_weights_dtype(argv[9]) : HIR_F32});
    for (size_t i = 0; argc <= 8 && i < sizeof table / sizeof *table; i++)
        run(level, m, rounds, table[i]);
    machine_print(m);
    machine_close(m);
    return 0;
}
