/* Cuts of a program into stages: against all cuts that there are, and costs of ops against
 * arithmetic done by hand. */
#include <criterion/criterion.h>

#include "passes/shard/stage_cuts.h"
#include "tests/unit/arena_fixture.h"

TestSuite(stage_cuts, .init = open_arena, .fini = close_arena);

/* ---- all cuts -------------------------------------------------------------------------------- */

enum { MOST = 11, MOST_RUNS = 5 };

typedef struct instance {
    uint64_t work[MOST], at_end[MOST], held[MOST], live[MOST];
    uint32_t layers[MOST];
    stage_places p;
    uint32_t runs;
} instance;

static uint64_t state = 88172645463325252ull;
static uint64_t upto(uint64_t n) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % (n + 1);
}

/* Of all kinds: even and uneven. */
static void make(instance *x) {
    *x = (instance){.p = {.n = 2 + (uint32_t)upto(MOST - 2)}, .runs = 1 + (uint32_t)upto(4)};
    const uint64_t work = 1 + upto(1000), held = upto(1000), live = upto(20);
    for (uint32_t i = 1; i < x->p.n; i++) {
        x->work[i] = x->work[i - 1] + upto(work);
        x->at_end[i] = x->at_end[i - 1] + upto(x->work[i] - x->work[i - 1]);
        x->held[i] = x->held[i - 1] + upto(held);
        x->layers[i] = x->layers[i - 1] + (uint32_t)upto(2);
        x->live[i] = i + 1 < x->p.n ? upto(live) : 0;
    }
    x->p.work = x->work, x->p.at_end = x->at_end, x->p.held = x->held, x->p.live = x->live;
    x->p.layers = x->layers;
}

typedef struct measures {
    uint64_t held, work, live; /* of the fullest run; of that with most work; at all cuts */
} measures;

/* False: a run reads no weights. */
static bool measure(const instance *x, const uint32_t *cut, measures *out) {
    *out = (measures){0};
    for (uint32_t j = 0; j < x->runs; j++) {
        const uint32_t a = cut[j], b = cut[j + 1];
        if (x->layers[a] == x->layers[b]) return false;
        const uint64_t held = x->held[b] - x->held[a];
        const uint64_t *from = b == x->p.n - 1 ? x->at_end : x->work;
        const uint64_t work = from[b] - from[a];
        if (held > out->held) out->held = held;
        if (work > out->work) out->work = work;
        out->live += x->live[a];
    }
    return true;
}

/* Calls visit for all cuts. */
static void each_cut(const instance *x, uint32_t *cut, uint32_t j,
                     void (*visit)(const measures *, measures *), measures *best) {
    if (j < x->runs) {
        for (cut[j] = cut[j - 1] + 1; cut[j] < x->p.n; cut[j]++)
            each_cut(x, cut, j + 1, visit, best);
        return;
    }
    cut[j] = x->p.n - 1;
    measures m;
    if (cut[j] > cut[j - 1] && measure(x, cut, &m)) visit(&m, best);
}

static uint64_t most_held, most_work;

static void least_held(const measures *m, measures *best) {
    if (m->held < best->held) best->held = m->held;
}
static void least_work(const measures *m, measures *best) {
    if (m->held <= most_held && m->work < best->work) best->work = m->work;
}
static void least_live(const measures *m, measures *best) {
    if (m->held > most_held || m->work > most_work || m->live > best->live) return;
    if (m->live < best->live || m->work < best->work) best->work = m->work;
    best->live = m->live;
}

/* True: it can be cut. */
static bool check(const instance *x) {
    uint32_t cut[MOST_RUNS + 1] = {0}, found[MOST_RUNS + 1];
    measures best = {UINT64_MAX, UINT64_MAX, UINT64_MAX}, m;
    each_cut(x, cut, 1, least_held, &best);
    const bool possible = best.held < UINT64_MAX;
    cr_assert_eq(stage_best_cuts(arena, &x->p, x->runs, found), possible);
    if (!possible) return false;
    const uint64_t quarter_more = x->held[x->p.n - 1] / x->runs * 5 / 4;
    most_held = best.held > quarter_more ? best.held * 9 / 8 : quarter_more;
    each_cut(x, cut, 1, least_work, &best);
    most_work = best.work + best.work / 50;
    best.work = UINT64_MAX;
    each_cut(x, cut, 1, least_live, &best);
    cr_assert_eq(found[0], 0);
    cr_assert_eq(found[x->runs], x->p.n - 1);
    cr_assert(measure(x, found, &m), "a run without weights");
    cr_assert_leq(m.held, most_held);
    cr_assert_eq(m.work, best.work, "the most work is %llu, not %llu", (unsigned long long)m.work,
                 (unsigned long long)best.work);
    cr_assert_eq(m.live, best.live, "%llu are live, not %llu", (unsigned long long)m.live,
                 (unsigned long long)best.live);
    return true;
}

Test(stage_cuts, no_cut_is_better) {
    int possible = 0, not = 0;
    for (int i = 0; i < 20000; i++) {
        instance x;
        make(&x);
        *(check(&x) ? &possible : &not ) += 1;
    }
    cr_assert_gt(possible, 5000);
    cr_assert_gt(not, 1000);
}

/* ---- costs by hand --------------------------------------------------------------------------- */

static hir_compile_options options;

static const stage_cost *costs_of(const char *text, uint32_t *n) {
    hir_module *m = hir_parse(arena, &diags, "test.hir", text);
    cr_assert(m, "%s", said());
    hir_pass_context *c = hd_new(arena, hir_pass_context);
    *c = (hir_pass_context){.m = m, .diags = &diags, .options = &options, .scratch = arena};
    hir_id *program = hd_new_array(arena, hir_id, m->ops.n);
    bool *free = hd_new_array(arena, bool, m->ops.n);
    *n = 0;
    HIR_EACH(m, op, m->first) program[(*n)++] = op;
    return stage_costs(c, program, *n, free);
}

/* A matrix of 8 by 16 for 4096 rows: 2 * 8 * 16 operations each; in 8 chunks it is read 8 times,
 * 4 bytes an element; of each row 16 elements are read, which a row program has made, and of its 8
 * the next one reads. That one reads %0, and %1, and leaves %2 to nobody. */
Test(stage_cuts, cost_of_a_contraction_and_of_rows) {
    options = (hir_compile_options){.matrix_dtype = HIR_F32};
    uint32_t n;
    const stage_cost *cost = costs_of("hir 1 graph @a\n"
                                      "weight @w : f32[8, 16]\n"
                                      "func(%x: f32[T, 16]) {\n"
                                      "  %0 = neg %x : f32[T, 16]\n"
                                      "  %1 = linear %0, @w, _ : f32[T, 8]\n"
                                      "  %2 = silu %1 : f32[T, 8]\n"
                                      "  output %2 {name = \"y\"}\n"
                                      "}\n",
                                      &n);
    cr_assert_eq(n, 4);
    const uint64_t row16 = 4096 * 16 * 4 * 8, row8 = row16 / 2;
    cr_assert_eq(cost[0].work, row16);
    cr_assert_eq(cost[1].work, 4096 * 2 * 8 * 16 + 8 * (8 * 16 * 4) * 8 + row16 + row8);
    cr_assert_eq(cost[1].held, 8 * 16 * 4);
    cr_assert(cost[1].layer && cost[1].contracted);
    cr_assert_eq(cost[2].work, row8);
    cr_assert_not(cost[2].layer || cost[2].contracted);
}

/* Types by rule; and what a token does not choose is held and hardly read. */
Test(stage_cuts, cost_of_experts) {
    const hir_weight_rule rule = {.pattern = "*experts*", .dtype = HIR_BF16};
    options = (hir_compile_options){.weight_rules = &rule, .n_weight_rules = 1};
    uint32_t n;
    const stage_cost *cost = costs_of("hir 1 graph @a\n"
                                      "weight @experts : f32[4096, 8, 16]\n"
                                      "weight @router : f32[4096, 16]\n"
                                      "func(%x: f32[T, 16]) {\n"
                                      "  %0 = linear %x, @router, _ : f32[T, 4096]\n"
                                      "  %1 = topk %0 {k = 1} : i32[T, 1]\n"
                                      "  %2 = expert_linear %x, @experts, %1 : f32[T, 1, 8]\n"
                                      "  output %2 {name = \"y\"}\n"
                                      "}\n",
                                      &n);
    const uint64_t all = 4096 * 8 * 16 * 2;
    cr_assert_eq(cost[2].held, all);
    /* 512 tokens choose 1 - (1 - 1/4096)^512 = 0.11752 of them; the op reads the choice besides,
     * and leaves 8 elements */
    const double read = (double)(cost[2].work - 4096 * 2 * 8 * 16 - 4096 * 4 * 8) / 8 / 8;
    cr_assert_float_eq(read / (double)all, 0.11752, 1e-4, "%g", read / (double)all);
}

/* In the last run, what only logits are made of is done for one token. */
Test(stage_cuts, cost_of_last_rows) {
    options = (hir_compile_options){.matrix_dtype = HIR_F32};
    uint32_t n;
    const stage_cost *cost = costs_of("hir 1 graph @a\n"
                                      "weight @e : f32[64, 16]\n"
                                      "weight @k : f32[16, 16]\n"
                                      "weight @h : f32[64, 16]\n"
                                      "state $keys : f32[C, 1, 16]\n"
                                      "func(%t: i32[T]) {\n"
                                      "  %0 = gather @e, %t : f32[T, 16]\n"
                                      "  %1 = linear %0, @k, _ : f32[T, 16]\n"
                                      "  %2 = reshape %1 {shape = [T, 1, 16]} : f32[T, 1, 16]\n"
                                      "  %3 = cache_append %2, $keys : f32[C, 1, 16]\n"
                                      "  %4 = linear %0, @h, _ : f32[T, 64]\n"
                                      "  output %4 {name = \"logits\"}\n"
                                      "}\n",
                                      &n);
    const uint64_t operations = 2 * 64 * 16, bytes = 64 * 16 * 4, row = 16 * 4;
    cr_assert_eq(cost[4].at_end, operations + (bytes + row) * 8);
    cr_assert_eq(cost[4].work, 4096 * operations + (8 * bytes + 4096 * row) * 8);
    cr_assert_eq(cost[1].at_end, cost[1].work); /* every token has a key */
    cr_assert_eq(cost[1].work, 4096 * 2 * 16 * 16 + 8 * (16 * 16 * 4) * 8 +
                                   4096 * 2 * row * 8); /* its row is read, and left */
    cr_assert_eq(cost[3].held, 4096 * row);
    cr_assert_eq(cost[0].held, 64 * row);
    cr_assert_not(cost[0].layer);
}
