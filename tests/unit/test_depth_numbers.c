/* Attention over depth on numbers that are not nice, in the compiled code of every CPU level:
 * logits of 1e4, equal sources, queries of zero, sources of norm 1e-20 and 1e20, one that outweighs
 * all others. The two-phase form must agree with the naive form, both in f64 and as compiled in
 * f32.
 */
#include <criterion/criterion.h>

#include "ir/random.h"
#include "passes/pass.h"
#include "tests/unit/row_harness.h"

enum { SOURCES = 6, MEMBERS = 4, D = 40, TOKENS = 5, INPUTS = SOURCES + MEMBERS };

/* Of compiled code against f64. Logits of 1e4 are 1e-3 apart in f32, and weights near a tie with
 * them, in whatever form they are computed. */
static const double usual = 1e-4, coarse = 1e-3;

/* %x0 .. %x5 are sources, %q0 .. %q3 queries. Member k mixes x0 .. x3 and, k > 0, x4 or x5. */
static const char *naive_text(hd_arena *a, bool sigmoid, bool normed) {
    hd_text t;
    hd_text_init(&t, a);
    hd_text_add(&t, "hir 1 graph @numbers\nfunc(");
    for (int i = 0; i < SOURCES; i++)
        hd_text_f(&t, "%%x%d: f32[T, %d], ", i, D);
    for (int k = 0; k < MEMBERS; k++)
        hd_text_f(&t, "%%q%d: f32[1, %d]%s", k, D, k + 1 < MEMBERS ? ", " : ") {\n");
    for (int k = 0; k < MEMBERS; k++) {
        int n = k ? 5 : 4;
        hd_text_f(&t, "  %%s%d = stack %%x0, %%x1, %%x2, %%x3", k);
        if (k) hd_text_f(&t, ", %%x%d", 4 + k % 2);
        hd_text_f(&t, " {axis = 1} : f32[T, %d, %d]\n", n, D);
        hd_text_f(&t, "  %%k%d = rmsnorm %%s%d, _ {eps = 1e-06} : f32[T, %d, %d]\n", k, k, n, D);
        hd_text_f(&t, "  %%l%d = linear %%%c%d, %%q%d, _ : f32[T, %d, 1]\n", k, normed ? 'k' : 's',
                  k, k, n);
        hd_text_f(&t, "  %%a%d = %s %%l%d%s : f32[T, %d, 1]\n", k, sigmoid ? "sigmoid" : "softmax",
                  k, sigmoid ? "" : " {axis = 1}", n);
        hd_text_f(&t, "  %%m%d = mul %%a%d, %%s%d : f32[T, %d, %d]\n", k, k, k, n, D);
        hd_text_f(&t, "  %%y%d = reduce_sum %%m%d {axis = 1} : f32[T, %d]\n", k, k, D);
        hd_text_f(&t, "  output %%y%d {name = \"%d\"}\n", k, k);
    }
    hd_text_add(&t, "}\n");
    return t.at;
}

static hir_module *parsed(bench *b, bool sigmoid, bool normed) {
    hir_module *m =
        hir_parse(b->arena, &b->diags, "test.hir", naive_text(b->arena, sigmoid, normed));
    cr_assert_not_null(m, "%s", bench_errors(b));
    return m;
}

static void compiled_form(bench *b, hir_module *m) {
    size_t n = 0;
    hir_remarks remarks = {.arena = b->arena};
    for (const hir_pass_id *p = hir_pipeline(); p[n] != HIR_PASS_COUNT;)
        n++;
    hir_run run = {
        .passes = hir_pipeline(), .n_passes = n, .stop_after = HIR_PASS_COUNT, .verify = true};
    cr_assert(hir_run_passes(m, &run, NULL, &remarks, &b->diags), "%s", bench_errors(b));
    bool two_phases = false;
    for (size_t i = 0; i < remarks.list.n; i++)
        two_phases |= strstr(remarks.list.at[i].text, "4 mixes share 4 sources") != NULL;
    cr_assert(two_phases);
}

/* ---- inputs ---------------------------------------------------------------------------------- */
typedef struct numbers {
    double *at[INPUTS];
} numbers;

static numbers ordinary(hd_arena *a) {
    numbers x;
    hir_random r = hir_random_stream(7, "numbers");
    for (int i = 0; i < INPUTS; i++) {
        int n = i < SOURCES ? TOKENS * D : D;
        x.at[i] = hd_new_array(a, double, n);
        for (int k = 0; k < n; k++)
            x.at[i][k] = (float)(hir_random_normal(&r) / (i < SOURCES ? 1 : 6));
    }
    return x;
}

static void scale(numbers *x, int i, double factor) {
    for (int k = 0; k < (i < SOURCES ? TOKENS * D : D); k++)
        x->at[i][k] = (float)(x->at[i][k] * factor);
}

/* Both in f64 on the same numbers: max |naive - two phases| / max |naive|. */
static double f64_error(bench *b, const hir_module *naive, const hir_module *m, const numbers *x) {
    hir_results y[2];
    const hir_module *both[] = {naive, m};
    uint64_t seed = 1;
    for (int i = 0; i < 2; i++) {
        hir_eval *e = hir_eval_new(b->arena, both[i], hir_random_weights, &seed);
        cr_assert(hir_eval_call(e, b->arena, &b->diags, TOKENS, (const double *const *)x->at, &y[i],
                                NULL, NULL));
    }
    double worst = 0;
    for (size_t o = 0; o < y[0].outputs.n; o++) {
        double error = 0, most = 0;
        for (int64_t i = 0; i < y[0].outputs.at[o].n; i++) {
            double p = y[0].outputs.at[o].at[i], q = y[1].outputs.at[o].at[i];
            cr_assert(isfinite(p) && isfinite(q));
            most = fmax(most, fabs(p));
            error = fmax(error, fabs(p - q));
        }
        worst = fmax(worst, error / fmax(most, 1e-300));
    }
    return worst;
}

static void check(const char *what, bool sigmoid, bool normed, void (*change)(numbers *),
                  double limit) {
    const hcg_level *all;
    int levels = 0;
    for (size_t i = 0, n = hcg_levels(&all); i < n; i++) {
        const hcg_level *l = &all[i];
        if (!level_runs(l)) continue;
        bench b = bench_new();
        bench_start(&b);
        hir_module *naive = parsed(&b, sigmoid, normed);
        b.m = parsed(&b, sigmoid, normed);
        compiled_form(&b, b.m);
        numbers x = ordinary(b.arena);
        if (change) change(&x);
        double f64 = f64_error(&b, naive, b.m, &x);
        cr_assert_lt(f64, 1e-9, "%s: %g in f64", what, f64);
        rows r;
        cr_assert(rows_open(&r, &b, l, 1), "%s", bench_errors(&b));
        double f32 = rows_call(&r, TOKENS, 2, (const double *const *)x.at);
        cr_assert_lt(f32, limit, "%s, %s: %g in f32", what, l->name, f32);
        rows_close(&r);
        bench_free(&b);
        levels++;
    }
    cr_assert_gt(levels, 0);
}

static void all_kinds_within(const char *what, void (*change)(numbers *), double limit) {
    check(what, false, true, change, limit);
    check(what, true, true, change, limit);
}

static void all_kinds(const char *what, void (*change)(numbers *)) {
    all_kinds_within(what, change, usual);
}

/* ---- cases ----------------------------------------------------------------------------------- */
Test(depth_numbers, ordinary) {
    all_kinds("ordinary", NULL);
    check("without key norm", false, false, NULL, usual);
    check("without key norm", true, false, NULL, usual);
}

/* Logits of some 1e4, of both signs: every softmax is a choice. */
static void large_logits(numbers *x) {
    for (int k = 0; k < MEMBERS; k++)
        scale(x, SOURCES + k, k & 1 ? -1e4 : 1e4);
}
Test(depth_numbers, logits_of_1e4) {
    all_kinds_within("large logits", large_logits, coarse);
}

static void equal(numbers *x) {
    for (int i = 1; i < SOURCES; i++)
        memcpy(x->at[i], x->at[0], sizeof(double) * TOKENS * D);
}
Test(depth_numbers, equal_sources) {
    all_kinds("equal sources", equal);
}

static void zero_queries(numbers *x) {
    for (int k = 0; k < MEMBERS; k++)
        scale(x, SOURCES + k, 0);
}
Test(depth_numbers, queries_of_zero) {
    all_kinds("zero queries", zero_queries);
}

static void tiny_and_huge(numbers *x) {
    for (int i = 0; i < SOURCES; i++)
        scale(x, i, i % 2 ? 1e-20 / sqrt(D) : 1e20 / sqrt(D));
}
Test(depth_numbers, norms_of_1e_20_and_1e20) {
    all_kinds("tiny and huge", tiny_and_huge);
}

static void all_tiny(numbers *x) {
    for (int i = 0; i < SOURCES; i++)
        scale(x, i, 1e-20 / sqrt(D));
}
static void all_huge(numbers *x) {
    for (int i = 0; i < SOURCES; i++)
        scale(x, i, 1e20 / sqrt(D));
}
Test(depth_numbers, all_of_one_size) {
    all_kinds("tiny", all_tiny);
    all_kinds("huge", all_huge);
}

static void zero_sources(numbers *x) {
    scale(x, 1, 0);
    scale(x, 4, 0);
}
Test(depth_numbers, sources_of_zero) {
    all_kinds("zero sources", zero_sources);
}

/* One shared source, then the live ones, are what every query looks for. */
static void dominating(numbers *x, int source) {
    for (int k = 0; k < MEMBERS; k++)
        for (int i = 0; i < D; i++)
            x->at[SOURCES + k][i] = (float)(x->at[source][i] * 30);
}
static void shared_dominates(numbers *x) {
    dominating(x, 2);
}
static void live_dominates(numbers *x) {
    dominating(x, 4);
}
Test(depth_numbers, one_source_dominates) {
    all_kinds("a shared source dominates", shared_dominates);
    all_kinds("a live source dominates", live_dominates);
}
