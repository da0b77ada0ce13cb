/* Gradients of attention against the evaluator at every CPU level of this machine: one head and
 * many, heads that share keys, sizes that are no multiple of a vector, one token to many tiles of
 * queries and keys, windows, sinks, a bias by distance, a soft cap, extreme scores, some results or
 * all.
 *
 * Tolerance: entries are sums of up to T H / G products of numbers in [-1, 1] and weights; a
 * product's factors have errors of some 2^-24 times the length of the heads' sums, weights of
 * 2^-23. 5e-6 of the largest entry of a tensor is twice what is seen. */
#include "tests/unit/codegen/gradient/gradient_harness.h"

enum { Q, K, V, SINK, BIAS, RESULTS };
static const char *const names[RESULTS] = {"q", "k", "v", "sink", "bias"};
enum { IN_Q, IN_K, IN_V, IN_SINK, IN_BIAS }; /* numbers of inputs */

typedef struct shape {
    int64_t t, heads, groups, n, m;
    int64_t window, extent; /* 0: no window, no bias */
    double softcap;         /* 0: none */
    enum { NO_SINK, SINK_BY_HEAD, SINK_BY_TOKEN } sink;
    bool flat;        /* q, dy and dq are [T, H n] outside of the kernel */
    unsigned without; /* bits of results that are not wanted */
} shape;

static bool is_wanted(const shape *s, int i) {
    const bool there = i == SINK ? s->sink != NO_SINK : i != BIAS || s->extent;
    return there && !(s->without >> i & 1);
}

typedef struct types { /* of the operands, without T and C; by head: of a sink */
    const char *of[RESULTS], *dy, *flat_q, *flat_dy;
} types;

static types types_of(hd_arena *a, const shape *s) {
    types t = {.dy = hd_printf(a, "T, %ld, %ld", s->heads, s->m)};
    t.of[Q] = hd_printf(a, "T, %ld, %ld", s->heads, s->n);
    t.of[K] = hd_printf(a, "%ld, %ld", s->groups, s->n);
    t.of[V] = hd_printf(a, "%ld, %ld", s->groups, s->m);
    t.of[SINK] = hd_printf(a, s->sink == SINK_BY_TOKEN ? "T, %ld" : "%ld", s->heads);
    t.of[BIAS] = hd_printf(a, "T, %ld, %ld", s->heads, s->extent ? s->extent : 1);
    t.flat_q = s->flat ? hd_printf(a, "T, %ld", s->heads * s->n) : t.of[Q];
    t.flat_dy = s->flat ? hd_printf(a, "T, %ld", s->heads * s->m) : t.dy;
    return t;
}

/* The type of a result of the kernel: gradients of caches leave it as rows of tokens. */
static const char *result_type(hd_arena *a, const types *t, int i) {
    if (i == Q) return t->flat_q;
    return i == K || i == V ? hd_printf(a, "T, %s", t->of[i]) : t->of[i];
}

static void put_gradient(hd_text *text, const shape *s, const types *t, int i) {
    const bool cache = i == K || i == V;
    hd_text_f(text, "    %%d%s = attention_grad %s, %%k, %%v, %s, %s, %s {scale = %.9g", names[i],
              s->flat ? "%q3" : "%q", s->sink ? "%sink" : "_", s->extent ? "%bias" : "_",
              s->flat ? "%dy3" : "%dy", 1.5 / sqrt((double)s->n));
    if (s->window) hd_text_f(text, ", window = %ld", s->window);
    if (s->softcap > 0) hd_text_f(text, ", softcap = %.9g", s->softcap);
    hd_text_f(text, ", of = \"%s\"} : f32[%s%s]\n", names[i], cache ? "C, " : "", t->of[i]);
}

static void put_body(hd_text *text, hd_arena *a, const shape *s, const types *t) {
    if (s->flat)
        hd_text_f(text,
                  "    %%q3 = reshape %%q {shape = [%s]} : f32[%s]\n"
                  "    %%dy3 = reshape %%dy {shape = [%s]} : f32[%s]\n",
                  t->of[Q], t->of[Q], t->dy, t->dy);
    for (int i = 0; i < RESULTS; i++)
        if (is_wanted(s, i)) put_gradient(text, s, t, i);
    for (int i = 0; i < RESULTS; i++) {
        const char *type = result_type(a, t, i);
        if (!is_wanted(s, i)) continue;
        if (i == K || i == V)
            hd_text_f(text, "    %%r%s = cache_rows %%d%s : f32[%s]\n", names[i], names[i], type);
        if (i == Q && s->flat)
            hd_text_f(text, "    %%rq = reshape %%dq {shape = [%s]} : f32[%s]\n", type, type);
    }
    const char *before = "    yield";
    for (int i = 0; i < RESULTS; i++) {
        if (!is_wanted(s, i)) continue;
        const bool again = i == K || i == V || (i == Q && s->flat);
        hd_text_f(text, "%s %%%s%s", before, again ? "r" : "d", names[i]);
        before = ",";
    }
}

static const char *module_of(hd_arena *a, const shape *s) {
    const types t = types_of(a, s);
    hd_text text;
    hd_text_init(&text, a);
    hd_text_f(&text,
              "hir 1 kernel @test\nstate $k : f32[C, %s]\nstate $v : f32[C, %s]\n"
              "func(%%q: f32[%s], %%xk: f32[T, %s], %%xv: f32[T, %s], %%sink: f32[%s], "
              "%%bias: f32[%s], %%dy: f32[%s]) {\n",
              t.of[K], t.of[V], t.flat_q, t.of[K], t.of[V], t.of[SINK], t.of[BIAS], t.flat_dy);
    gradient_put_cache(&text, "k", hd_printf(a, "C, %s", t.of[K]));
    gradient_put_cache(&text, "v", hd_printf(a, "C, %s", t.of[V]));
    const char *before = "  ";
    for (int i = 0; i < RESULTS; i++)
        if (is_wanted(s, i)) hd_text_f(&text, "%s%%y%s", before, names[i]), before = ", ";
    before = " = " GRADIENT_KERNEL " : ";
    for (int i = 0; i < RESULTS; i++)
        if (is_wanted(s, i))
            hd_text_f(&text, "%sf32[%s]", before, result_type(a, &t, i)), before = ", ";
    hd_text_f(&text, " {\n");
    put_body(&text, a, s, &t);
    hd_text_f(&text, "\n  }\n");
    for (int i = 0; i < RESULTS; i++) /* the sink by head is added to what is there */
        if (is_wanted(s, i))
            hd_text_f(&text, "  output %%y%s {name = \"%s%s\"}\n", names[i],
                      i == SINK && s->sink == SINK_BY_HEAD ? "grad." : "", names[i]);
    hd_text_f(&text, "}\n");
    return text.at;
}

typedef struct options { /* of a case; 0: as always */
    void (*spoil)(float *x, size_t n);
    int input; /* that is spoilt */
    double tolerance;
    uint32_t l2; /* that levels are taken to have: by it scores are kept or computed again */
} options;

/* In the short set levels take turns from shape to shape. */
static void check_with(shape s, options o) {
    static uint64_t seed;
    gradient_problem p;
    hd_arena *a = hd_arena_new();
    const hcg_level *levels;
    const size_t n = hcg_levels(&levels);
    gradient_open(&p, module_of(a, &s), s.t, 1, ++seed);
    const hir_type spoilt = hir_value_at(p.b.m, p.b.m->inputs.at[o.input])->type;
    if (o.spoil) o.spoil(p.in[o.input], gradient_elements(&p, spoilt));
    gradient_evaluate(&p);
    for (size_t i = 0; i < n; i++) {
        hcg_level level = levels[i];
        if (o.l2) level.machine.l2 = o.l2;
        if (vectors_run(&levels[i]) && has_turn(level.lanes / 8 + seed, 3))
            gradient_check_level(&p, &level, o.tolerance > 0 ? o.tolerance : 5e-6);
    }
    gradient_close(&p);
    hd_arena_free(a);
}

static void check(shape s) {
    check_with(s, (options){0});
}

Test(emit_attention_grad, plain) {
    check((shape){.t = 1, .heads = 1, .groups = 1, .n = 16, .m = 16});
    check((shape){.t = 17, .heads = 3, .groups = 3, .n = 64, .m = 64});
    check((shape){.t = 50, .heads = 8, .groups = 2, .n = 24, .m = 40, .flat = true});
    check((shape){.t = 130, .heads = 2, .groups = 2, .n = 33, .m = 19});
    check((shape){.t = 301, .heads = 2, .groups = 1, .n = 32, .m = 32});
}

/* Groups of more heads than a tile has queries, and of a number that does not divide it; more
 * groups than there are parts. */
Test(emit_attention_grad, many_heads) {
    check((shape){.t = 5, .heads = 50, .groups = 1, .n = 16, .m = 24});
    check((shape){.t = 70, .heads = 14, .groups = 2, .n = 20, .m = 7});
    check((shape){.t = 9, .heads = 17, .groups = 17, .n = 8, .m = 8, .sink = SINK_BY_HEAD});
}

/* Scores of few keys, or of none, are kept: those of the others are computed twice. */
Test(emit_attention_grad, small_caches) {
    shape s = {.t = 310, .heads = 2, .groups = 1, .n = 16, .m = 24};
    check_with(s, (options){.l2 = 1});
    s.window = 200, s.softcap = 2, s.sink = SINK_BY_TOKEN;
    check_with(s, (options){.l2 = 1 << 17});
}

Test(emit_attention_grad, options) {
    static const int64_t reaches[] = {1, 2, 7, 16, 47, 64, 65, 200}, shared[] = {1, 2, 3, 7};
    uint64_t s = 99;
    for (int64_t options = 1; options < 8 * 3; options++) {
        shape x = {.t = 1 + random_below(&s, 110), .groups = 1 + random_below(&s, 2)};
        x.heads = x.groups * shared[random_below(&s, 4)];
        x.n = 1 + random_below(&s, 40), x.m = 1 + random_below(&s, 40);
        x.window = options & 1 ? reaches[random_below(&s, 8)] : 0;
        x.extent = options & 2 ? reaches[random_below(&s, 8)] : 0;
        x.softcap = options & 4 ? 0.5 + (double)random_below(&s, 4) : 0;
        x.sink = options / 8, x.flat = random_below(&s, 2);
        if (has_turn((unsigned)options, 4)) check(x);
    }
}

/* Each result alone: what the others need is not computed. */
Test(emit_attention_grad, some_results) {
    for (unsigned i = 0; i < RESULTS; i++) {
        shape x = {.t = 70, .heads = 4, .groups = 2, .n = 12, .m = 20, .sink = SINK_BY_HEAD};
        x.extent = 9, x.softcap = i % 2 ? 2 : 0, x.without = ~(1u << i);
        check(x);
    }
}

/* Queries by which one key takes all, whose scores are 1e4 apart. */
static void make_large(float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        x[i] *= 1e5f;
}

static void remove_all(float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        x[i] = -INFINITY;
}

static void make_extreme(float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        x[i] = i % 2 ? 3e38f : -3e38f;
}

static void enlarge(float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        x[i] *= 30;
}

/* Two of three distances are seen, the own key among them. */
static void remove_some(float *x, size_t n) {
    for (size_t i = 2; i < n; i += 3)
        x[i] = -INFINITY;
}

Test(emit_attention_grad, extremes) {
    const shape s = {.t = 31, .heads = 4, .groups = 2, .n = 32, .m = 16};
    shape with = s;
    with.n = 1; /* one product: scores have no rounding beside their own */
    check_with(with, (options){make_large, IN_Q, 1e-4, 0});
    with = s, with.sink = SINK_BY_HEAD;
    check_with(with, (options){remove_all, IN_SINK, 0, 0});
    check_with(with, (options){make_extreme, IN_SINK, 0, 0});
    with = s, with.softcap = 5;
    check_with(with, (options){enlarge, IN_Q, 1e-4, 0}); /* 1 - tanh^2 of what is nearly 1 */
    with = s, with.extent = 30;
    check_with(with, (options){remove_some, IN_BIAS, 0, 0});
}

/* Levels of other machines: the code is generated, and calls nothing that is not there. */
Test(emit_attention_grad, every_architecture) {
    shape s = {.t = 2, .heads = 6, .groups = 2, .n = 24, .m = 37, .extent = 5, .softcap = 3};
    s.sink = SINK_BY_HEAD;
    const hcg_level *levels;
    const size_t n = hcg_levels(&levels);
    hd_arena *a = hd_arena_new();
    for (size_t i = 0, done = 0; i < n && (full_set() || !done); i++) {
        if (level_runs(&levels[i])) continue;
        gradient_problem p;
        gradient_open(&p, module_of(a, &s), s.t, 1, 1);
        const char *call = calls_outside(&p.b, HIR_KERNEL_SEQUENCE, p.kernel, false, &levels[i]);
        cr_assert(!call, "%s calls %s %s", levels[i].name, call, bench_errors(&p.b));
        gradient_close(&p);
        done++;
    }
    hd_arena_free(a);
}

Test(emit_attention_grad, rejected) {
    shape s = {.t = 2, .heads = 2, .groups = 1, .n = 8, .m = 8};
    const hcg_level *levels;
    hcg_levels(&levels);
    hd_arena *a = hd_arena_new();
    gradient_problem p;
    compiled c;
    gradient_open(&p, module_of(a, &s), s.t, 1, 1);
    const hir_op *op = hir_op_at(p.b.m, hir_form_op(p.b.m, p.kernel));
    hir_value_at(p.b.m, op->args[K].index)->type.dtype = HIR_BF16;
    cr_assert_not(compile_kernel(&p.b, HIR_KERNEL_SEQUENCE, p.kernel, false, &levels[0], &c));
    cr_assert_eq(hd_diags_first(&p.b.diags), HD_E_INTERNAL);
    gradient_close(&p);
    hd_arena_free(a);
}
