/* Kernels with a state of fixed size alone: the delta rule and the short convolution. For one token
 * it measures the rate at which the state (and what else is as large) is read and written, beside a
 * plain read of memory; for more tokens the rate of multiply-adds, beside the machine's, where a
 * token and head count as 7 n m FLOPs, and its gradients as three times that. Limits are measured in the same rounds, and work is shared
 * among threads as by the runtime. Each call of one token uses the next of several states, as
 * layers of a model do.
 *
 *     recurrence [LEVEL|best] [THREADS] [f32|bf16|f16] [ROUNDS] [SHAPE]
 *
 * SHAPE: only that line of the table, from 0. */

#include "bench/kernel_main.h"
#include <math.h>

typedef struct shape {
    const char *op;
    int64_t t, heads, groups, n, m; /* short_conv: m channels, n taps */
    int64_t decays;
} shape;

#define GRADIENTS "delta_rule_grad" /* of all operands */
static const shape shapes[] = {
    {"delta_rule", 1, 32, 32, 128, 128, 128},   {"delta_rule", 512, 32, 32, 128, 128, 128},
    {"delta_rule", 1, 32, 16, 128, 128, 1},     {"delta_rule", 512, 32, 16, 128, 128, 1},
    {"delta_rule", 16, 32, 32, 128, 128, 128},  {"delta_rule", 512, 32, 32, 128, 128, 0},
    {"delta_rule", 512, 16, 16, 256, 256, 256}, {"short_conv", 1, 1, 1, 4, 12288, 0},
    {"short_conv", 512, 1, 1, 4, 12288, 0},     {"delta_rule", 1, 2, 2, 16, 16, 16},
    {"delta_rule", 16, 2, 2, 16, 16, 16}, /* goals.py --quick runs this line and the next */
    {GRADIENTS, 512, 32, 32, 128, 128, 128},    {GRADIENTS, 512, 1, 1, 128, 128, 128},
    {GRADIENTS, 512, 8, 1, 128, 16, 1},
};
enum { SHAPES = sizeof shapes / sizeof *shapes, MOST_OPERANDS = 12 };

typedef struct problem {
    kernel_runs k;
    shape s;
    hir_id kernel;
    size_t state_bytes;
    char *state;
    float *operand[MOST_OPERANDS]; /* in the order of the kernel's operands; NULL: the state */
} problem;

static bool is_gradients(const shape *s) {
    return !strcmp(s->op, GRADIENTS);
}

/* ---- the kernel ------------------------------------------------------------------------------ */
static const char *gradients_text(hd_arena *a, const shape *s, const char *head) {
    static const char *const of[] = {"q", "k", "v", "decay", "beta"};
    const char *keys = hd_printf(a, "f32[T, %ld, %ld]", s->groups, s->n),
               *values = hd_printf(a, "f32[T, %ld, %ld]", s->heads, s->m),
               *decays = hd_printf(a, "f32[T, %ld, %ld]", s->heads, s->decays),
               *beta = hd_printf(a, "f32[T, %ld]", s->heads);
    const char *const types[] = {keys, keys, values, decays, beta};
    hd_text t;
    hd_text_init(&t, a);
    hd_text_f(&t,
              "hir 1 kernel @b\nfunc(%%q: %s, %%k: %s, %%v: %s, %%d: %s, %%b: %s, %%dy: %s) {\n",
              keys, keys, values, decays, beta, values);
    hd_text_f(&t, "  %%0, %%1, %%2, %%3, %%4 = %s : %s, %s, %s, %s, %s {\n", head, keys, keys,
              values, decays, beta);
    for (int i = 0; i < 5; i++)
        hd_text_f(&t,
                  "    %%g%d = delta_rule_grad %%q, %%k, %%v, %%d, %%b, %%dy {of = \"%s\", scale = "
                  "0.1} : %s\n",
                  i, of[i], types[i]);
    hd_text_add(&t, "    yield %g0, %g1, %g2, %g3, %g4\n  }\n}\n");
    return t.at;
}

static const char *kernel_text(hd_arena *a, const shape *s, const char *dtype) {
    static const char head[] =
        "kernel.sequence {name = \"s\", rows = \"all\", split_decode = \"channels\", "
        "split_prefill = \"channels\"}";
    if (!strcmp(s->op, "short_conv"))
        return hd_printf(
            a,
            "hir 1 kernel @b\nweight @w : f32[%ld, %ld]\n"
            "state $s : window %s[%ld, %ld]\nfunc(%%x: f32[T, %ld]) {\n"
            "  %%y = %s : f32[T, %ld] {\n"
            "    %%1 = short_conv %%x, @w, _, $s : f32[T, %ld]\n    yield %%1\n  }\n}\n",
            s->m, s->n, dtype, s->n - 1, s->m, s->m, head, s->m, s->m);
    if (is_gradients(s)) return gradients_text(a, s, head);
    const char *decay =
        s->decays ? hd_printf(a, ", %%d: f32[T, %ld, %ld]", s->heads, s->decays) : "";
    return hd_printf(
        a,
        "hir 1 kernel @b\nstate $s : carry %s[%ld, %ld, %ld]\n"
        "func(%%q: f32[T, %ld, %ld], %%k: f32[T, %ld, %ld], %%v: f32[T, %ld, %ld], %%b: f32[T, "
        "%ld]%s) "
        "{\n  %%y = %s : f32[T, %ld, %ld] {\n"
        "    %%1 = delta_rule %%q, %%k, %%v, %s, %%b, $s {scale = 0.1} : f32[T, %ld, %ld]\n"
        "    yield %%1\n  }\n}\n",
        dtype, s->heads, s->n, s->m, s->groups, s->n, s->groups, s->n, s->heads, s->m, s->heads,
        decay, head, s->heads, s->m, s->decays ? "%d" : "_", s->heads, s->m);
}

/* ---- data ------------------------------------------------------------------------------------ */
static size_t bytes_of(const problem *p, hir_ref r) {
    const hir_type t = hir_ref_type(p->k.b.m, r);
    const int64_t rows = hir_type_has_t(t) ? p->s.t : 1;
    return (size_t)(rows * hir_type_row_elements(t)) * hir_dtype_bytes(t.dtype);
}

/* Numbers for which the state S keeps an ordinary size: keys of length 1, factors within 0..1. */
static float *new_operand(const problem *p, hir_ref r, uint64_t *seed) {
    const size_t n = bytes_of(p, r) / 4;
    const double width = 1 / sqrt((double)p->s.n);
    float *x = new_pages(n * 4);
    const char *name = r.kind == HIR_REF_VALUE ? hir_value_at(p->k.b.m, r.index)->name : "";
    const bool factor = name && (*name == 'd' || *name == 'b');
    for (size_t i = 0; i < n; i++)
        x[i] = factor ? 0.95f + 0.05f * random_float(seed) : (float)(width * random_float(seed));
    return x;
}

static void open_problem(void *problem_at, int shape_at, const hcg_level *level, hir_dtype dtype) {
    problem *p = problem_at;
    const shape s = shapes[shape_at];
    enum { COLD = 640 << 20, MOST_STATES = 512, CALLS = 2 };
    bench *b = &p->k.b;
    p->s = s;
    b->m =
        hir_parse(b->arena, &b->diags, "bench", kernel_text(b->arena, &s, hir_dtype_name(dtype)));
    if (b->m) p->kernel = b->m->first;
    kernel_compile(b, HIR_KERNEL_SEQUENCE, p->kernel, s.t == 1, level, &p->k.c);
    if (is_gradients(&s)) kernel_share(&p->k, p->kernel, kernel_ranges(s.t));
    uint64_t seed = 1;
    for (size_t i = 0; i < p->k.c.k.operands.n; i++) {
        const hir_ref r = p->k.c.k.operands.at[i];
        if (r.kind != HIR_REF_STATE)
            p->operand[i] = new_operand(p, r, &seed);
        else
            p->state_bytes = (bytes_of(p, r) + 63) / 64 * 64;
    }
    p->k.copies = s.t > 1 ? CALLS : kernel_copies(p->state_bytes, COLD, MOST_STATES);
    p->state = new_pages((size_t)p->k.copies * p->state_bytes);
    memset(p->state, 0, (size_t)p->k.copies * p->state_bytes);
}

static void close_problem(void *problem_at) {
    problem *p = problem_at;
    for (size_t i = 0; i < MOST_OPERANDS; i++)
        free(p->operand[i]);
    free(p->state);
}

/* ---- one call, shared as by runtime/run.c ---------------------------------------------------- */
static void call_share(const void *problem_at, int64_t state, int index, int count) {
    const problem *p = problem_at;
    hrt_frame frame = kernel_frame(&p->k, p->s.t, 1000, index);
    void *args[MOST_OPERANDS];
    for (size_t i = 0; i < p->k.c.k.operands.n; i++)
        args[i] = p->operand[i] ? (void *)p->operand[i]
                                : (void *)(p->state + state * (int64_t)p->state_bytes);
    kernel_columns(&p->k, &frame, args, hcg_columns(p->k.b.m, p->kernel), index, count);
}

static void print_problem(const void *problem_at, const machine *m) {
    const problem *p = problem_at;
    const shape *s = &p->s;
    const double t = median(&p->k.seconds);
    const bool conv = !strcmp(s->op, "short_conv");
    double flops = (conv              ? 2.0
                    : is_gradients(s) ? 21.0
                                      : 7.0) *
                   (double)(s->t * s->heads * s->n * s->m) / t;
    double bytes = 2.0 * (double)p->state_bytes;
    if (conv) bytes += 4.0 * (double)(s->n * s->m) + 8.0 * (double)(s->t * s->m);
    printf("%s T=%-3ld H=%-2ld G=%-2ld n=%-3ld m=%-5ld d=%-3ld %9.1f us", s->op, s->t, s->heads,
           s->groups, s->n, s->m, s->decays, t * 1e6);
    if (s->t == 1 || conv)
        printf(" %7.1f GB/s %5.2f of read\n", bytes / t * 1e-9,
               bytes / t / machine_limit(m, LIMIT_READ));
    else
        printf(" %7.1f GFLOP/s %5.2f of multiply-add\n", flops * 1e-9,
               flops / machine_limit(m, LIMIT_FMA));
}

int main(int argc, char **argv) {
    static const kernel_bench bench = {
        SHAPES,       9,          sizeof(problem), {"states of ", ""},
        open_problem, call_share, print_problem,   close_problem};
    return kernel_main(&bench, argc, argv);
}
