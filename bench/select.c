/* Kernels of sparse attention alone: selecting rows of a cache (the indexer), and attention to the
 * selected rows. For T = 1 it measures the rate at which rows are read (all keys of the indexer, or
 * the selected rows alone), beside a plain read of memory; for any T the rate of multiply-adds,
 * beside the machine's. Limits are measured in the same rounds, and work is shared among threads as
 * by the runtime. Each call reads the next of several caches: for one token so many that no cache
 * of the CPU holds them all, for many tokens one.
 *
 *     select [LEVEL|best] [THREADS] [f32|bf16|f16] [ROUNDS] [SHAPE]
 *
 * SHAPE: only that line of the table, from 0. The last lines are gradients of attention to selected
 * rows with respect to q, k and v, of a sequence from its beginning: five products in place of two. */

#include "bench/kernel_main.h"

enum what { SELECTS, ATTENDS, GRADIENTS };
typedef struct shape {
    enum what what; /* selection by the indexer, attention, or its gradients */
    int64_t t, past, heads, n, rate, k;
} shape;

/* Indexers of published models (64 heads: DeepSeek-V3.2, V4; 32: GLM-5; 16: Hy4; blocks of several
 * positions: GLM-5 Next, Qwen4) and one with few heads; attention to rows of latent attention and
 * to one head of grouped-query attention; lists of a few rows, fewer than a range of rows has. */
static const shape shapes[] = {
    {SELECTS, 1, 4095, 64, 128, 1, 2048},   {SELECTS, 1, 32767, 64, 128, 1, 2048},
    {SELECTS, 1, 4095, 32, 128, 1, 2048},   {SELECTS, 1, 32767, 32, 128, 1, 2048},
    {SELECTS, 1, 131071, 32, 128, 1, 2048}, {SELECTS, 1, 32767, 16, 128, 1, 2048},
    {SELECTS, 1, 131071, 16, 128, 1, 2048}, {SELECTS, 1, 32767, 32, 128, 16, 128},
    {SELECTS, 1, 32767, 6, 256, 1, 2048},   {SELECTS, 256, 4096, 16, 128, 1, 2048},
    {SELECTS, 256, 4096, 64, 128, 1, 2048}, {SELECTS, 256, 4096, 6, 256, 1, 192},
    {ATTENDS, 1, 32767, 32, 576, 1, 2048},  {ATTENDS, 1, 131071, 32, 576, 1, 2048},
    {ATTENDS, 1, 32767, 64, 576, 1, 2048},  {ATTENDS, 1, 32767, 8, 256, 1, 2048},
    {ATTENDS, 1, 1055, 4, 384, 1, 194},     {ATTENDS, 256, 4096, 32, 576, 1, 2048},
    {GRADIENTS, 1024, 0, 1, 128, 1, 256},   {GRADIENTS, 1024, 0, 4, 128, 1, 256},
    {GRADIENTS, 1024, 0, 32, 576, 1, 256},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

typedef struct problem {
    kernel_runs k;
    shape s;
    hrt_step step;
    size_t cache_bytes, row_bytes;
    char *rows;
    float *q, *w;
    int32_t *list, *out;
    float *dq, *dk, *dv; /* of gradients, whose dy is q */
    int64_t columns;
} problem;

/* ---- the kernel ------------------------------------------------------------------------------ */
static hir_ref input(bench *b, const char *name, hir_dtype dtype, int64_t n, int64_t m) {
    const hir_type t = hir_make_type(dtype, m ? 3 : 2, (int64_t[]){HIR_T, n, m});
    return hir_value_ref(hir_add_input(b->m, name, t));
}

static hir_id build(bench *b, const shape *s, hir_dtype dtype) {
    hir_type to = hir_make_type(HIR_I32, 3, (int64_t[]){HIR_T, 1, s->k});
    if (s->what == ATTENDS) to = hir_make_type(HIR_F32, 3, (int64_t[]){HIR_T, s->heads, s->n});
    hir_type rows = hir_make_type(dtype, 3, (int64_t[]){hir_over_rate(s->rate), 1, s->n});
    hir_ref q = input(b, "q", HIR_F32, s->heads, s->n);
    hir_ref r = kernel_cache(b, "rows", rows);
    hir_ref other = s->what == SELECTS ? input(b, "w", HIR_F32, s->heads, 0)
                                       : input(b, "list", HIR_I32, 1, s->k);
    hir_id kernel = kernel_sequence(b, &to, "keys", "cyclic", 1);
    hir_builder body = hir_in_body(b->m, &b->diags, kernel);
    hir_attr choice[] = {hir_int(HIR_A_K, s->k), hir_string(HIR_A_ACTIVATION, "relu")};
    hir_attr scale = hir_float(HIR_A_SCALE, 0.01);
    hir_ref y =
        s->what == SELECTS
            ? hir_emit(&body, HIR_SELECT_OP, (hir_ref[]){q, r, other}, 3, choice, 2)
            : hir_emit(&body, HIR_ATTENTION_SELECTED_OP, (hir_ref[]){q, r, r, other}, 4, &scale, 1);
    hir_build(&body, HIR_YIELD_OP, &y, 1, NULL, 0);
    return kernel;
}

static hir_id build_gradients(bench *b, const shape *s) {
    static const char *const of[] = {"q", "k", "v"};
    const hir_type heads = hir_make_type(HIR_F32, 3, (int64_t[]){HIR_T, s->heads, s->n});
    const hir_type rows = hir_make_type(HIR_F32, 3, (int64_t[]){HIR_C, 1, s->n});
    const hir_type to = hir_make_type(HIR_F32, 3, (int64_t[]){HIR_T, 1, s->n});
    const hir_ref q = input(b, "q", HIR_F32, s->heads, s->n), r = kernel_cache(b, "rows", rows);
    const hir_ref list = input(b, "list", HIR_I32, 1, s->k), none = hir_no_ref();
    const hir_ref dy = input(b, "dy", HIR_F32, s->heads, s->n);
    const hir_ref args[] = {q, r, r, list, none, none, dy};
    const hir_attr attrs[] = {hir_string(HIR_A_NAME, "sequence0"), hir_string(HIR_A_ROWS, "all"),
                              hir_string(HIR_A_SPLIT_DECODE, "channels"),
                              hir_string(HIR_A_SPLIT_PREFILL, "channels")};
    hir_builder top = hir_at_end(b->m, &b->diags);
    const hir_id kernel =
        hir_build_kernel(&top, HIR_KERNEL_SEQUENCE_OP, attrs, 4, (hir_type[]){heads, to, to}, 3);
    hir_builder body = hir_in_body(b->m, &b->diags, kernel);
    hir_ref y[3];
    for (int i = 0; i < 3; i++) {
        const hir_attr options[] = {hir_float(HIR_A_SCALE, 0.01), hir_string(HIR_A_OF, of[i])};
        y[i] = hir_emit(&body, HIR_ATTENTION_SELECTED_GRAD_OP, args, 7, options, 2);
        if (i > 0) y[i] = hir_emit(&body, HIR_CACHE_ROWS_OP, &y[i], 1, NULL, 0);
    }
    hir_build(&body, HIR_YIELD_OP, y, 3, NULL, 0);
    return kernel;
}

/* Fills a list with ascending rows, spaced about as widely as possible. */
static void fill_list(const problem *p, uint64_t *seed) {
    const int64_t length = p->s.t + p->s.past, step = length / p->s.k;
    for (int64_t i = 0; p->s.what == GRADIENTS && i < p->s.t * p->s.k; i++) {
        const int64_t token = i / p->s.k, at = i % p->s.k; /* rows up to its own, each once */
        p->list[i] =
            (int32_t)(at > token ? -1 : at * ((token + 1) / p->s.k ? (token + 1) / p->s.k : 1));
    }
    for (int64_t i = 0; p->s.what != GRADIENTS && i < p->s.t * p->s.k; i++)
        p->list[i] = (int32_t)(i % p->s.k * step + random_below(seed, step));
}

static void open_problem(void *problem_at, int shape_at, const hcg_level *level, hir_dtype dtype) {
    problem *p = problem_at;
    const shape s = shapes[shape_at];
    enum { COLD = 192 << 20, MOST_CACHES = 24 };
    p->s = s;
    if (s.what == GRADIENTS) dtype = HIR_F32;
    hir_id kernel = s.what == GRADIENTS ? build_gradients(&p->k.b, &s) : build(&p->k.b, &s, dtype);
    kernel_compile(&p->k.b, HIR_KERNEL_SEQUENCE, kernel, s.t == 1, level, &p->k.c);
    if (s.what != GRADIENTS) hcg_list_rows(p->k.b.m, kernel, &p->step);
    p->columns = hcg_columns(p->k.b.m, kernel);
    const int64_t length = s.t + s.past;
    p->row_bytes = (size_t)s.n * hir_dtype_bytes(dtype);
    p->cache_bytes = (size_t)(length / s.rate) * p->row_bytes;
    p->k.copies = kernel_copies(p->cache_bytes, COLD, s.t > 1 ? 1 : MOST_CACHES);
    p->rows = new_cache(p->cache_bytes * (size_t)p->k.copies, dtype);
    kernel_share(&p->k, kernel, kernel_ranges(length) + HRT_LIST_RANGES);
    uint64_t seed = 1;
    p->q = random_floats(&seed, (size_t)(s.t * s.heads * s.n));
    p->w = random_floats(&seed, (size_t)(s.t * s.heads));
    p->list = guarded((size_t)(s.t * s.k) * 4);
    fill_list(p, &seed);
    p->out = guarded((size_t)(s.t * (s.what == SELECTS ? s.k : s.heads * s.n)) * 4);
    if (s.what != GRADIENTS) return;
    p->dq = guarded((size_t)(s.t * s.heads * s.n) * 4);
    p->dk = guarded(p->cache_bytes), p->dv = guarded(p->cache_bytes);
}

static void close_problem(void *problem_at) {
    problem *p = problem_at;
    free(p->rows);
    guarded_free(p->q), guarded_free(p->w), guarded_free(p->list), guarded_free(p->out);
    guarded_free(p->dq), guarded_free(p->dk), guarded_free(p->dv);
}

/* ---- one call, shared as by runtime/run.c ---------------------------------------------------- */
static int64_t listed(const problem *p) { /* length of the list that is divided into ranges */
    const int64_t rows = (p->s.t + p->s.past) / p->step.list_rate;
    return rows < p->step.list_most ? rows : p->step.list_most;
}

static void call_share(const void *problem_at, int64_t cache, int index, int count) {
    const problem *p = problem_at;
    const shape *s = &p->s;
    hrt_frame frame = kernel_frame(&p->k, s->t, s->past, index);
    char *rows = p->rows + cache * (int64_t)p->cache_bytes;
    if (s->what == GRADIENTS) {
        void *args[] = {p->q, rows, p->list, p->q, p->dq, p->dk, p->dv};
        kernel_columns(&p->k, &frame, args, p->columns, index, count);
        return;
    }
    void *args[] = {p->q, rows, s->what == SELECTS ? (void *)p->w : (void *)p->list, p->out};
    if (s->t == 1) {
        const int64_t each = hrt_list_range(listed(p)), cols = (listed(p) + each - 1) / each;
        kernel_columns(&p->k, &frame, args, cols, index, count);
        return;
    }
    for (int64_t r = index; r < s->t; r += count)
        p->k.c.call(&frame, args, r, r + 1, 0, 1);
}

static void print_problem(const void *problem_at, const machine *m) {
    const problem *p = problem_at;
    const shape *s = &p->s;
    const double t = median(&p->k.seconds);
    static const char *const names[] = {"select", "attention", "gradients"};
    static const double products[] = {1, 2, 5};
    const double all = (double)s->past + 0.5 * (double)(s->t + 1);
    double seen = s->what == SELECTS ? all / (double)s->rate : (double)s->k;
    if (s->what == GRADIENTS) /* the first tokens see fewer */
        seen -= 0.5 * (double)(s->k * s->k) / (double)s->t;
    const double flops =
        2.0 * (double)s->t * seen * (double)(s->heads * s->n) * products[s->what] / t;
    const double bytes = s->t == 1 ? (double)listed(p) * (double)p->row_bytes / t : 0;
    printf("%-9s T=%-4ld C=%-6ld H=%-3ld n=%-3ld C/%-3ld k=%-4ld %10.1f us %7.1f GFLOP/s %5.2f of "
           "multiply-add",
           names[s->what], s->t, s->past + s->t, s->heads, s->n, s->rate, s->k, t * 1e6,
           flops * 1e-9, flops / machine_limit(m, LIMIT_FMA));
    if (s->t == 1)
        printf(" %7.1f GB/s %5.2f of read", bytes * 1e-9, bytes / machine_limit(m, LIMIT_READ));
    printf("\n");
}

int main(int argc, char **argv) {
    static const kernel_bench bench = {SHAPES,       5,          sizeof(problem), {"", " cache"},
                                       open_problem, call_share, print_problem,   close_problem};
    return kernel_main(&bench, argc, argv);
}
