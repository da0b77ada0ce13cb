/* Gradients of attention against the evaluator in float64: one head and many, heads that share
 * keys, sizes that are no multiple of a vector, one token to many tiles of queries and keys,
 * windows, sinks, a bias by distance, a soft cap, extreme scores, some results or all, at every CPU
 * level of this machine, and in calls of any division into parts of heads.
 *
 * Tolerance: a result is compared relative to the largest entry of its tensor. Entries are sums of
 * up to T H / G products of numbers in [-1, 1] and weights; a product's factors have errors of some
 * 2^-24 times the length of the heads' sums, weights of 2^-23. 5e-6 is five times what is seen.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "ir/eval/eval.h"
#include "tests/unit/codegen/attention/sequence_harness.h"

TestSuite(emit_attention_grad);

enum { Q, K, V, SINK, BIAS, DY, OPERANDS, RESULTS = DY };
static const char *const names[OPERANDS] = {"q", "k", "v", "sink", "bias", "dy"};

typedef struct shape {
    int64_t t, heads, groups, n, m;
    bool reshaped;          /* q, dy and dq are [T, H * n] outside of the kernel */
    int64_t window, extent; /* 0: no window, no bias */
    double softcap;         /* 0: none */
    enum { NO_SINK, SINK_BY_HEAD, SINK_BY_TOKEN } sink;
    unsigned without; /* bits of gradients that are not wanted */
    bool adds;        /* the sink's gradient is added to what is there */
} shape;

typedef struct problem {
    bench b;
    shape s;
    uint64_t seed;
    hir_id kernel;
    double scale;
    hir_ref operand[OPERANDS];
    hir_type type[OPERANDS]; /* of the op's operands; T for C, since results are rows of tokens */
    size_t size[OPERANDS];   /* elements; 0: there is no such operand */
    float *x[OPERANDS];      /* row-major, k and v as [T][G][..] */
    float *cache[2];         /* k and v as [G][cap][..] */
    double *expected[RESULTS];
    double tolerance;
} problem;

enum { BEHIND = 3 };
static const float before = 0.25f; /* what is in a gradient that is added to */

static bool is_wanted(const problem *p, int i) {
    return p->size[i] && !(p->s.without >> i & 1);
}

/* ---- the kernel ------------------------------------------------------------------------------ */
static hir_type flat(const problem *p, hir_type t) {
    if (!p->s.reshaped || t.rank != 3) return t;
    return hir_make_type(HIR_F32, 2, (int64_t[]){HIR_T, t.dim[1] * t.dim[2]});
}

static void set_types(problem *p) {
    const shape *s = &p->s;
    p->type[Q] = hir_make_type(HIR_F32, 3, (int64_t[]){HIR_T, s->heads, s->n});
    p->type[K] = hir_make_type(HIR_F32, 3, (int64_t[]){HIR_T, s->groups, s->n});
    p->type[V] = hir_make_type(HIR_F32, 3, (int64_t[]){HIR_T, s->groups, s->m});
    p->type[DY] = hir_make_type(HIR_F32, 3, (int64_t[]){HIR_T, s->heads, s->m});
    if (s->sink == SINK_BY_HEAD) p->type[SINK] = hir_make_type(HIR_F32, 1, &s->heads);
    if (s->sink == SINK_BY_TOKEN)
        p->type[SINK] = hir_make_type(HIR_F32, 2, (int64_t[]){HIR_T, s->heads});
    if (s->extent)
        p->type[BIAS] = hir_make_type(HIR_F32, 3, (int64_t[]){HIR_T, s->heads, s->extent});
    for (int i = 0; i < OPERANDS; i++) {
        const hir_type t = p->type[i];
        p->size[i] = t.rank ? (size_t)hir_type_row_elements(t) : 0;
        if (t.rank && hir_type_has_t(t)) p->size[i] *= (size_t)s->t;
    }
}

static void add_operands(problem *p) {
    for (int i = 0; i < OPERANDS; i++) {
        p->operand[i] = hir_no_ref();
        if (!p->size[i]) continue;
        if (i == K || i == V)
            p->operand[i] = state_value(&p->b, names[i], HIR_F32, p->s.groups, p->type[i].dim[2]);
        else if (!hir_type_has_t(p->type[i]))
            p->operand[i] =
                hir_weight_ref(hir_add_weight(p->b.m, names[i], p->type[i], HD_NOWHERE));
        else
            p->operand[i] = hir_value_ref(hir_add_input(p->b.m, names[i], flat(p, p->type[i])));
    }
}

static hir_ref reshape(hir_builder *body, hir_ref x, hir_type to) {
    const hir_attr shape = hir_ints(HIR_A_SHAPE, to.dim, to.rank);
    return hir_emit(body, HIR_RESHAPE_OP, &x, 1, &shape, 1);
}

static void build_body(problem *p) {
    const shape *s = &p->s;
    hir_builder body = hir_in_body(p->b.m, &p->b.diags, p->kernel);
    hir_ref args[OPERANDS], yielded[RESULTS];
    uint32_t n = 0;
    for (int i = 0; i < OPERANDS; i++) {
        args[i] = p->operand[i];
        if (s->reshaped && p->type[i].rank == 3 && i != K && i != V)
            args[i] = reshape(&body, args[i], p->type[i]);
    }
    for (int i = 0; i < RESULTS; i++) {
        if (!is_wanted(p, i)) continue;
        hir_attr attrs[4] = {hir_string(HIR_A_OF, names[i]), hir_float(HIR_A_SCALE, p->scale)};
        uint32_t n_attrs = 2;
        if (s->window) attrs[n_attrs++] = hir_int(HIR_A_WINDOW, s->window);
        if (s->softcap > 0) attrs[n_attrs++] = hir_float(HIR_A_SOFTCAP, s->softcap);
        hir_ref y = hir_emit(&body, HIR_ATTENTION_GRAD_OP, args, OPERANDS, attrs, n_attrs);
        if (i == K || i == V) y = hir_emit(&body, HIR_CACHE_ROWS_OP, &y, 1, NULL, 0);
        yielded[n++] =
            s->reshaped && p->type[i].rank == 3 ? reshape(&body, y, flat(p, p->type[i])) : y;
    }
    hir_build(&body, HIR_YIELD_OP, yielded, n, NULL, 0);
}

static void build_kernel(problem *p) {
    const hir_attr attrs[] = {hir_string(HIR_A_NAME, "sequence0"), hir_string(HIR_A_ROWS, "all"),
                              hir_string(HIR_A_SPLIT_DECODE, "channels"),
                              hir_string(HIR_A_SPLIT_PREFILL, "channels")};
    hir_type to[RESULTS];
    uint32_t n = 0;
    for (int i = 0; i < RESULTS; i++)
        if (is_wanted(p, i)) to[n++] = flat(p, p->type[i]);
    hir_builder top = hir_at_end(p->b.m, &p->b.diags);
    p->kernel = hir_build_kernel(&top, HIR_KERNEL_SEQUENCE_OP, attrs, 4, to, n);
    build_body(p);
    n = 0;
    for (int i = 0; i < RESULTS; i++) {
        if (!is_wanted(p, i)) continue;
        const hir_id result = hir_op_at(p->b.m, p->kernel)->results[n++];
        const hir_ref r = hir_value_ref(result);
        const hir_attr name = hir_string(HIR_A_NAME, names[i]);
        if (i == SINK && p->s.adds) hir_value_at(p->b.m, result)->place = HIR_PLACE_GRADIENT;
        top = hir_at_end(p->b.m, &p->b.diags);
        hir_build(&top, HIR_OUTPUT_OP, &r, 1, &name, 1);
    }
    cr_assert(!hd_diags_failed(&p->b.diags), "%s", bench_errors(&p->b));
}

static void fill_caches(problem *p) {
    const int64_t t = p->s.t, groups = p->s.groups, cap = t + BEHIND;
    for (int i = 0; i < 2; i++) {
        const int64_t n = p->type[K + i].dim[2];
        if (!p->cache[i]) p->cache[i] = guarded((size_t)(groups * cap * n) * 4);
        memset(p->cache[i], 0xff, (size_t)(groups * cap * n) * 4); /* NaN */
        for (int64_t at = 0; at < t * groups; at++)
            memcpy(p->cache[i] + (at % groups * cap + at / groups) * n, p->x[K + i] + at * n,
                   (size_t)n * 4);
    }
}

static void build(problem *p, shape s, uint64_t seed) {
    *p = (problem){.b = bench_new(), .s = s, .seed = seed * 2654435761u + 1};
    bench_start(&p->b);
    p->tolerance = 5e-6;
    p->scale = 1.5 / sqrt((double)s.n);
    set_types(p);
    add_operands(p);
    build_kernel(p);
    for (int i = 0; i < OPERANDS; i++)
        if (p->size[i]) p->x[i] = random_floats(&p->seed, p->size[i]);
}

static void discard(problem *p) {
    for (int i = 0; i < OPERANDS; i++)
        guarded_free(p->x[i]);
    guarded_free(p->cache[0]), guarded_free(p->cache[1]);
    bench_free(&p->b);
}

/* ---- expected -------------------------------------------------------------------------------- */
static double *as_doubles(const problem *p, const float *x, size_t n) {
    double *y = hd_new_array(p->b.arena, double, n);
    for (size_t i = 0; i < n; i++)
        y[i] = (double)x[i];
    return y;
}

/* The sink by head, the one weight that there is. */
static bool give_weights(void *context, const hir_module *m, uint32_t w, double *out, hd_diags *d) {
    const problem *p = context;
    (void)m, (void)w, (void)d;
    for (size_t i = 0; i < p->size[SINK]; i++)
        out[i] = (double)p->x[SINK][i];
    return true;
}

static void expect(problem *p) {
    const double *inputs[OPERANDS];
    size_t n = 0;
    for (int i = 0; i < OPERANDS; i++)
        if (p->operand[i].kind == HIR_REF_VALUE) inputs[n++] = as_doubles(p, p->x[i], p->size[i]);
    hir_eval *e = hir_eval_new(p->b.arena, p->b.m, give_weights, p);
    hir_results out;
    cr_assert(hir_eval_call(e, p->b.arena, &p->b.diags, p->s.t, inputs, &out, NULL, NULL), "%s",
              bench_errors(&p->b));
    for (int i = 0; i < RESULTS; i++) {
        if (!is_wanted(p, i)) continue;
        const hir_array *y = hir_find_output(&out, names[i]);
        cr_assert(y && (size_t)y->n == p->size[i]);
        p->expected[i] = y->at;
        for (int64_t j = 0; j < y->n && i == SINK && p->s.adds; j++)
            y->at[j] += (double)before;
    }
}

/* ---- running --------------------------------------------------------------------------------- */
typedef struct results {
    float *y[RESULTS];
} results;

static results start_results(const problem *p) {
    results r = {0};
    for (int i = 0; i < RESULTS; i++) {
        if (!is_wanted(p, i)) continue;
        r.y[i] = new_results(p->size[i]);
        for (size_t j = 0; j < p->size[i] && i == SINK && p->s.adds; j++)
            r.y[i][j] = before;
    }
    return r;
}

static void free_results(results *r) {
    for (int i = 0; i < RESULTS; i++)
        guarded_free(r->y[i]);
}

/* The memory of an operand of the kernel; the order of those is that of their use in its body. */
static float *memory_of(const problem *p, hir_ref operand) {
    if (operand.kind == HIR_REF_STATE) return p->cache[operand.index];
    for (int i = 0; i < OPERANDS; i++)
        if (p->size[i] && hir_ref_equal(p->operand[i], operand)) return p->x[i];
    cr_assert_fail("an operand that the kernel does not have");
    return NULL;
}

static results call(problem *p, const compiled *c, bool cut) {
    hrt_frame frame = {.T = p->s.t, .C = p->s.t, .cap = p->s.t + BEHIND};
    const shared shared = new_shared(&p->b, p->kernel, frame.cap, 0);
    results r = start_results(p);
    frame.shared = shared.at;
    void *args[OPERANDS + RESULTS];
    uint32_t n = 0;
    while (n < c->k.n_inputs)
        args[n] = memory_of(p, c->k.operands.at[n]), n++;
    for (int i = 0; i < RESULTS; i++)
        if (is_wanted(p, i)) args[n++] = r.y[i];
    cr_assert_eq(c->k.operands.n, n);
    call_columns(&p->seed, c, frame, args, p->s.t, hcg_columns(p->b.m, p->kernel), cut);
    free_shared(&shared);
    return r;
}

static void compare(const problem *p, const results *r, const char *level) {
    const shape *s = &p->s;
    for (int i = 0; i < RESULTS; i++) {
        if (!is_wanted(p, i)) continue;
        double most = 0, error = 0;
        size_t at = 0;
        for (size_t j = 0; j < p->size[i]; j++) {
            const double off = fabs((double)r->y[i][j] - p->expected[i][j]);
            most = fmax(most, fabs(p->expected[i][j]));
            if (!(off <= error)) error = off, at = j;
        }
        if (getenv("SHOW_ERRORS")) fprintf(stderr, "%s d%s %g\n", level, names[i], error / most);
        cr_assert(error <= p->tolerance * most,
                  "%s, d%s[%zu] is %.9g, not %.9g, of at most %g (T=%ld H=%ld G=%ld n=%ld m=%ld "
                  "window %ld extent %ld softcap %g sink %d)",
                  level, names[i], at, (double)r->y[i][at], p->expected[i][at], most, s->t,
                  s->heads, s->groups, s->n, s->m, s->window, s->extent, s->softcap, (int)s->sink);
        check_guard(r->y[i], p->size[i], names[i]);
    }
}

static void check(problem *p, const hcg_level *level) {
    compiled c;
    bool ok = compile_kernel(&p->b, HIR_KERNEL_SEQUENCE, p->kernel, false, level, &c);
    cr_assert(ok, "%s: %s", level->name, bench_errors(&p->b));
    if (!p->cache[0]) fill_caches(p), expect(p);
    results whole = call(p, &c, false), parts = call(p, &c, true);
    compare(p, &whole, level->name);
    for (int i = 0; i < RESULTS; i++)
        if (is_wanted(p, i))
            cr_assert_eq(memcmp(whole.y[i], parts.y[i], p->size[i] * 4), 0,
                         "%s: parts alone give other bits of d%s", level->name, names[i]);
    free_results(&whole), free_results(&parts);
    compiled_free(&c);
}

/* In the short set levels take turns from shape to shape. l2: 0, or the size that levels are taken
 * to have, by which scores are kept or computed again. */
static void each_level(shape s, void (*spoil)(problem *p), double tolerance, uint32_t l2) {
    static uint64_t seed;
    const hcg_level *levels;
    const size_t n = hcg_levels(&levels);
    problem p;
    build(&p, s, ++seed);
    if (tolerance > 0) p.tolerance = tolerance;
    if (spoil) spoil(&p);
    for (size_t i = 0; i < n; i++) {
        hcg_level level = levels[i];
        if (!vectors_run(&levels[i]) || !has_turn(level.lanes / 8 + seed, 3)) continue;
        if (l2) level.machine.l2 = l2;
        check(&p, &level);
    }
    discard(&p);
}

/* ---- cases ----------------------------------------------------------------------------------- */
Test(emit_attention_grad, plain) {
    each_level((shape){.t = 1, .heads = 1, .groups = 1, .n = 16, .m = 16}, NULL, 0, 0);
    each_level((shape){.t = 17, .heads = 3, .groups = 3, .n = 64, .m = 64}, NULL, 0, 0);
    each_level((shape){.t = 50, .heads = 8, .groups = 2, .n = 24, .m = 40, .reshaped = true}, NULL,
               0, 0);
    each_level((shape){.t = 130, .heads = 2, .groups = 2, .n = 33, .m = 19}, NULL, 0, 0);
    each_level((shape){.t = 301, .heads = 2, .groups = 1, .n = 32, .m = 32}, NULL, 0, 0);
}

/* Groups of more heads than a tile has queries, and of a number that does not divide it. */
Test(emit_attention_grad, many_heads_a_group) {
    each_level((shape){.t = 5, .heads = 50, .groups = 1, .n = 16, .m = 24}, NULL, 0, 0);
    each_level((shape){.t = 70, .heads = 14, .groups = 2, .n = 20, .m = 7}, NULL, 0, 0);
}

/* Scores of few keys, or of none, are kept: those of the others are computed twice. */
Test(emit_attention_grad, small_caches) {
    shape s = {.t = 310, .heads = 2, .groups = 1, .n = 16, .m = 24};
    each_level(s, NULL, 0, 1);
    each_level(s, NULL, 0, 1 << 17);
    s.window = 200, s.softcap = 2, s.sink = SINK_BY_TOKEN;
    each_level(s, NULL, 0, 1);
    each_level(s, NULL, 0, 1 << 17);
}

Test(emit_attention_grad, options) {
    uint64_t s = 99;
    static const int64_t reaches[] = {1, 2, 7, 16, 47, 64, 65, 200};
    for (int64_t options = 1; options < 8 * 3; options++) {
        static const int64_t shared[] = {1, 2, 3, 7};
        shape x = {.t = 1 + random_below(&s, 150), .groups = 1 + random_below(&s, 2)};
        x.heads = x.groups * shared[random_below(&s, 4)];
        x.n = 1 + random_below(&s, 40), x.m = 1 + random_below(&s, 40);
        x.window = options & 1 ? reaches[random_below(&s, 8)] : 0;
        x.extent = options & 2 ? reaches[random_below(&s, 8)] : 0;
        x.softcap = options & 4 ? 0.5 + (double)random_below(&s, 4) : 0;
        x.sink = options / 8, x.reshaped = random_below(&s, 2);
        x.adds = x.sink == SINK_BY_HEAD && random_below(&s, 2);
        if (full_set() || has_turn((unsigned)options, 3)) each_level(x, NULL, 0, 0);
    }
}

/* Each result alone: what the others need is not computed. */
Test(emit_attention_grad, some_results) {
    for (unsigned i = 0; i < RESULTS; i++) {
        shape x = {.t = 70, .heads = 4, .groups = 2, .n = 12, .m = 20, .sink = SINK_BY_HEAD};
        x.extent = 9, x.softcap = i % 2 ? 2 : 0, x.without = ~(1u << i);
        each_level(x, NULL, 0, 0);
    }
}

static void multiply(float *x, size_t n, float by) {
    for (size_t i = 0; i < n; i++)
        x[i] *= by;
}

/* Scores of some 1e5, of which one takes all: weights are 0 and 1 up to their own rounding, which
 * is 1e-2 in the score. The keys are few and far from each other. */
static void large_scores(problem *p) {
    for (size_t i = 0; i < p->size[Q]; i++)
        p->x[Q][i] = 1e5f;
    for (size_t i = 0; i < p->size[K]; i++)
        p->x[K][i] = (float)(i / (size_t)(p->s.groups * p->s.n) * 7 % 31);
}

static void no_sink(problem *p) {
    for (size_t i = 0; i < p->size[SINK]; i++)
        p->x[SINK][i] = -INFINITY;
}

static void large_sinks(problem *p) {
    for (size_t i = 0; i < p->size[SINK]; i++)
        p->x[SINK][i] = i % 2 ? 3e38f : -3e38f;
}

static void capped(problem *p) {
    multiply(p->x[Q], p->size[Q], 30);
}

static void hidden_by_bias(problem *p) {
    for (size_t i = 0; i < p->size[BIAS]; i++)
        if (i % 3 == 2) p->x[BIAS][i] = -INFINITY;
}

Test(emit_attention_grad, extremes) {
    const shape s = {.t = 31, .heads = 4, .groups = 2, .n = 32, .m = 16};
    shape with = s;
    each_level(s, large_scores, 1e-5, 0);
    with.sink = SINK_BY_HEAD;
    each_level(with, no_sink, 0, 0);
    each_level(with, large_sinks, 0, 0);
    with = s, with.softcap = 5;
    each_level(with, capped, 1e-4, 0); /* 1 - tanh^2 of what is nearly 1 */
    with = s, with.extent = 30;
    each_level(with, hidden_by_bias, 0, 0);
}

/* Levels of other machines: the code is generated, and calls nothing that is not there. */
Test(emit_attention_grad, every_architecture) {
    const hcg_level *levels;
    const size_t n = hcg_levels(&levels);
    shape s = {.t = 2, .heads = 6, .groups = 2, .n = 24, .m = 37, .extent = 5, .softcap = 3};
    s.sink = SINK_BY_HEAD;
    for (size_t i = 0; i < n; i++) {
        if (level_runs(&levels[i])) continue;
        problem p;
        build(&p, s, 1);
        const char *text = assemble_kernel(&p.b, HIR_KERNEL_SEQUENCE, p.kernel, false, &levels[i]);
        cr_assert(text, "%s: %s", levels[i].name, bench_errors(&p.b));
        const char *call = foreign_call(&p.b, text);
        cr_assert(!call, "%s calls %s", levels[i].name, call);
        discard(&p);
        if (!full_set()) break;
    }
}

Test(emit_attention_grad, rejected) {
    const hcg_level *levels;
    hcg_levels(&levels);
    problem p;
    compiled c;
    build(&p, (shape){.t = 2, .heads = 2, .groups = 1, .n = 8, .m = 8}, 1);
    hir_value_at(p.b.m, p.operand[K].index)->type.dtype = HIR_BF16;
    cr_assert_not(compile_kernel(&p.b, HIR_KERNEL_SEQUENCE, p.kernel, false, &levels[0], &c));
    cr_assert_eq(hd_diags_first(&p.b.diags), HD_E_INTERNAL);
    discard(&p);
}
