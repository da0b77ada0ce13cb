/* Latent attention kernels alone. For T = 1 it measures the rate at which cached rows are read,
 * beside a plain read of memory; for any T the rate of multiply-adds, beside the machine's. Kernels
 * attend to the cached rows themselves (absorbed form) or, with n and v not 0, to keys and values
 * made of the rows (expanded form), where the multiply-adds that make them are counted. With many
 * heads arithmetic is the limit: a row of r + m numbers takes 2 H (2 r + m) operations, so for T =
 * 1 a second figure says what share of the read limit arithmetic leaves. Limits are measured in the
 * same rounds, and work is shared among threads as by the runtime. Each call reads the next of
 * several caches: for one token so many that no cache of the CPU holds them all, for many tokens a
 * few.
 *
 *     latent [LEVEL|best] [THREADS] [f32|bf16|f16] [ROUNDS] [SHAPE] [rounded]
 *
 * SHAPE: only that line of the table, from 0. rounded: queries and weights of values may be rounded
 * to bf16, as with --activations bf16. */

#include "bench/kernel_main.h"

typedef struct shape {
    int64_t t, past, heads, r, m;
    int64_t n, v; /* sizes of keys and values in the expanded form; 0: absorbed form */
} shape;

static const shape shapes[] = {
    {1, 32767, 32, 512, 64, 0, 0},   {1, 4095, 32, 512, 64, 0, 0},
    {1, 32767, 8, 512, 64, 0, 0},    {1, 32767, 1, 512, 64, 0, 0},
    {512, 0, 32, 512, 64, 0, 0},     {512, 4096, 32, 512, 64, 0, 0},
    {8, 4096, 32, 512, 64, 0, 0},    {1, 32767, 128, 512, 64, 0, 0},
    {512, 0, 32, 512, 64, 128, 128}, {512, 4096, 32, 512, 64, 128, 128},
    {1, 32767, 16, 512, 64, 0, 0},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static bool rounded;

static int64_t entries_of_q(const shape *s) {
    return s->n ? s->n : s->r;
}

static int64_t entries_of_o(const shape *s) {
    return s->v ? s->v : s->r;
}

typedef struct problem {
    kernel_runs k;
    shape s;
    int64_t grain;
    size_t cache_bytes;
    char *rows;
    float *q, *q_shared, *o, *w; /* w: keys of all heads, then values; any numbers will do */
} problem;

/* ---- the kernel ------------------------------------------------------------------------------ */
static hir_ref map(bench *b, const char *name, shape s, int64_t n) {
    hir_type type = hir_make_type(HIR_F32, 3, (int64_t[]){s.heads, n, s.r});
    const uint32_t w = hir_add_weight(b->m, name, type, HD_NOWHERE);
    b->m->weights.at[w].layout = HIR_LAYOUT_PANEL;
    return hir_weight_ref(w);
}

static hir_id build(bench *b, shape s, hir_dtype dtype, int64_t grain) {
    hir_type to = hir_make_type(HIR_F32, 3, (int64_t[]){HIR_T, s.heads, entries_of_o(&s)});
    hir_type from = hir_make_type(HIR_F32, 3, (int64_t[]){HIR_T, s.heads, entries_of_q(&s)});
    hir_type shared = hir_make_type(HIR_F32, 3, (int64_t[]){HIR_T, s.heads, s.m});
    hir_type rows = hir_make_type(dtype, 3, (int64_t[]){HIR_C, 1, s.r + s.m});
    hir_ref q = hir_value_ref(hir_add_input(b->m, "q", from));
    hir_ref state = kernel_cache(b, "rows", rows);
    hir_ref p = hir_value_ref(hir_add_input(b->m, "q_shared", shared));
    hir_id kernel = kernel_sequence(b, &to, s.n ? "none" : "keys", s.n ? "cols" : "cyclic", grain);
    hir_builder body = hir_in_body(b->m, &b->diags, kernel);
    hir_attr scale = hir_float(HIR_A_SCALE, 0.01);
    hir_ref args[] = {hir_no_ref(), q, state, p, hir_no_ref(), hir_no_ref(), hir_no_ref()};
    hir_ref o;
    if (s.n) {
        args[0] = hir_value_ref(hir_add_input(b->m, "otherwise", to));
        args[5] = map(b, "w_k", s, s.n), args[6] = map(b, "w_v", s, s.v);
        o = hir_emit(&body, HIR_ATTENTION_EXPANDED_OP, args, 7, &scale, 1);
    } else {
        o = hir_emit(&body, HIR_ATTENTION_LATENT_OP, args + 1, 4, &scale, 1);
    }
    hir_build(&body, HIR_YIELD_OP, &o, 1, NULL, 0);
    return kernel;
}

static void open_problem(void *problem_at, int shape_at, const hcg_level *level, hir_dtype dtype) {
    problem *p = problem_at;
    const shape s = shapes[shape_at];
    enum { COLD = 192 << 20, MOST_CACHES = 32, CALLS = 4 };
    p->s = s, p->grain = HIR_QUERY_TILE / s.heads;
    p->k.b.exact = rounded ? 0 : HCG_ROUND_ALL;
    if (p->grain < 1) p->grain = 1;
    hir_id kernel = build(&p->k.b, s, dtype, p->grain);
    kernel_compile(&p->k.b, HIR_KERNEL_SEQUENCE, kernel, s.t == 1, level, &p->k.c);
    const int64_t length = s.t + s.past;
    p->cache_bytes = (size_t)(length * (s.r + s.m)) * hir_dtype_bytes(dtype);
    const int64_t most = s.t > 1 ? 1 : s.heads > 32 ? CALLS : MOST_CACHES;
    p->k.copies = kernel_copies(p->cache_bytes, COLD, most);
    p->rows = new_cache(p->cache_bytes * (size_t)p->k.copies, dtype);
    kernel_share(&p->k, kernel, kernel_ranges(length));
    uint64_t seed = 1;
    p->q = random_floats(&seed, (size_t)(s.t * s.heads * entries_of_q(&s)));
    p->w = random_floats(&seed, (size_t)(s.heads * (s.n + s.v) * s.r));
    p->q_shared = random_floats(&seed, (size_t)(s.t * s.heads * s.m));
    p->o = guarded((size_t)(s.t * s.heads * entries_of_o(&s)) * 4);
}

static void close_problem(void *problem_at) {
    problem *p = problem_at;
    free(p->rows);
    guarded_free(p->q), guarded_free(p->q_shared), guarded_free(p->o), guarded_free(p->w);
}

/* ---- one call, shared as by runtime/run.c ---------------------------------------------------- */
static void call_share(const void *problem_at, int64_t cache, int index, int count) {
    const problem *p = problem_at;
    const shape *s = &p->s;
    hrt_frame frame = kernel_frame(&p->k, s->t, s->past, index);
    void *args[] = {p->q, p->rows + cache * (int64_t)p->cache_bytes, p->q_shared, p->o};
    if (s->n) {
        void *made[] = {p->o, p->q, args[1], p->q_shared, p->w, p->w + s->heads * s->n * s->r,
                        p->o};
        kernel_columns(&p->k, &frame, made, s->heads, index, count);
        return;
    }
    if (s->t == 1) {
        kernel_columns(&p->k, &frame, args, (int64_t)kernel_ranges(frame.C), index, count);
        return;
    }
    const int64_t chunks = (s->t + p->grain - 1) / p->grain;
    for (int64_t i = index; i < chunks; i += count) {
        const int64_t r = i * p->grain, end = r + p->grain;
        p->k.c.call(&frame, args, r, end < s->t ? end : s->t, 0, 1);
    }
}

static void print_problem(const void *problem_at, const machine *m) {
    const problem *p = problem_at;
    const shape *s = &p->s;
    const double t = median(&p->k.seconds);
    const double pairs = (double)s->t * ((double)s->past + 0.5 * (double)(s->t + 1));
    const int64_t each = s->n ? s->n + s->m + s->v : 2 * s->r + s->m;
    const double made = (double)((s->past + s->t) * s->r) * (double)(s->n + s->v);
    const double work = 2.0 * (double)s->heads * (pairs * (double)each + made), flops = work / t;
    const double bytes = (double)p->cache_bytes / t;
    printf(
        "T=%-4ld C=%-5ld H=%-3ld r=%-3ld m=%-3ld %s %10.1f us %7.1f GFLOP/s %5.2f of multiply-add",
        s->t, s->past + s->t, s->heads, s->r, s->m, s->n ? "made  " : "cached", t * 1e6,
        flops * 1e-9, flops / machine_limit(m, LIMIT_FMA));
    if (s->t == 1)
        printf(" %7.1f GB/s %5.2f of read (%.2f at most by arithmetic)", bytes * 1e-9,
               bytes / machine_limit(m, LIMIT_READ),
               (double)p->cache_bytes / work * machine_limit(m, LIMIT_FMA) /
                   machine_limit(m, LIMIT_READ));
    printf("\n");
}

int main(int argc, char **argv) {
    static const kernel_bench bench = {SHAPES,       5,          sizeof(problem), {"", " cache"},
                                       open_problem, call_share, print_problem,   close_problem};
    rounded = argc > 6 && strcmp(argv[6], "rounded") == 0;
    return kernel_main(&bench, argc, argv);
}
