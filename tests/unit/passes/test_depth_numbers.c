/* Attention over depth on numbers that are not nice, in the compiled code of every CPU level:
 * logits of 1e4, equal sources, queries of zero, sources of norm 1e-20 and 1e20, one that outweighs
 * all others. The two-phase form must agree with the naive form, both in f64 and as compiled in
 * f32.
 */
#include <criterion/criterion.h>

#include "ir/eval/random.h"
#include "passes/pass.h"
#include "tests/unit/codegen/rowwise/row_harness.h"

enum { SOURCES = 6, MEMBERS = 4, D = 40, TOKENS = 5, INPUTS = SOURCES + MEMBERS };

/* Of compiled code against f64. Logits of 1e4 are 1e-3 apart in f32, and weights near a tie with
 * them, in whatever form they are computed: see `within_rounding_of_scores` for what holds there.
 */
static const double usual = 1e-4, coarse = 1e-3;

/* %x0 .. %x5 are sources, %q0 .. %q3 queries. Member k mixes x0 .. x3 and, k > 0, x4 or x5.
 * norm_behind: eps of an rmsnorm of the mix; 0: there is none. */
static const char *naive_text(hd_arena *a, bool sigmoid, bool normed, double norm_behind) {
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
        if (norm_behind > 0)
            hd_text_f(&t, "  %%n%d = rmsnorm %%y%d, _ {eps = %.17g} : f32[T, %d]\n", k, k,
                      norm_behind, D);
        hd_text_f(&t, "  output %%%c%d {name = \"%d\"}\n", norm_behind > 0 ? 'n' : 'y', k, k);
    }
    hd_text_add(&t, "}\n");
    return t.at;
}

static hir_module *parsed(bench *b, bool sigmoid, bool normed, double norm_behind) {
    hir_module *m = hir_parse(b->arena, &b->diags, "test.hir",
                              naive_text(b->arena, sigmoid, normed, norm_behind));
    cr_assert_not_null(m, "%s", bench_errors(b));
    return m;
}

static void compiled_as(bench *b, hir_module *m, bool depth, const hir_compile_options *options,
                        hir_remarks *remarks) {
    hir_pass_id passes[HIR_PASS_COUNT * 2];
    size_t n = 0;
    for (const hir_pass_id *id = hir_pipeline(); *id != HIR_PASS_COUNT; id++)
        if (depth || hir_pass(*id)->stage_out != HIR_STAGE_DEPTH) passes[n++] = *id;
    hir_run run = {.passes = passes, .n_passes = n, .stop_after = HIR_PASS_COUNT, .verify = true};
    cr_assert(hir_run_passes(m, &run, options, remarks, &b->diags), "%s", bench_errors(b));
}

static size_t count_remarks(const hir_remarks *r, const char *text) {
    size_t n = 0;
    for (size_t i = 0; i < r->list.n; i++)
        n += strstr(r->list.at[i].text, text) != NULL;
    return n;
}

static void compiled_form(bench *b, hir_module *m, bool depth) {
    hir_remarks remarks = {.arena = b->arena};
    compiled_as(b, m, depth, NULL, &remarks);
    cr_assert_eq(count_remarks(&remarks, "4 mixes share 4 sources"), depth);
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

static void check_form(const char *what, bool sigmoid, bool normed, double norm_behind,
                       void (*change)(numbers *), double limit) {
    const hcg_level *all;
    int levels = 0;
    for (size_t i = 0, n = hcg_levels(&all); i < n; i++) {
        const hcg_level *l = &all[i];
        if (!vectors_run(l)) continue;
        bench b = bench_new();
        bench_start(&b);
        hir_module *naive = parsed(&b, sigmoid, normed, norm_behind);
        b.m = parsed(&b, sigmoid, normed, norm_behind);
        compiled_form(&b, b.m, true);
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

static void check(const char *what, bool sigmoid, bool normed, void (*change)(numbers *),
                  double limit) {
    check_form(what, sigmoid, normed, 0, change, limit);
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

static void zero_queries(numbers *x) {
    for (int k = 0; k < MEMBERS; k++)
        scale(x, SOURCES + k, 0);
}
/* Logits of some 1e4, of both signs: every softmax is a choice. */
static void large_logits(numbers *x) {
    for (int k = 0; k < MEMBERS; k++)
        scale(x, SOURCES + k, k & 1 ? -1e4 : 1e4);
}
Test(depth_numbers, logits_of_1e4) {
    all_kinds_within("large logits", large_logits, coarse);
}

/* What f32 can promise of logits s_i = r_i sum_c q_c x_ic of any size: each sum is off by at most
 * `delta` = ROUNDINGS 2^-24 r_i sum_c |q_c x_ic|, however it is scheduled. Weights are then off by
 * e^(2 delta) - 1 in sum, or 2; where one source is ahead of all others by more than that and 20,
 * the others weigh nothing and the mix is that source. ROUNDINGS: a product, the sums of one of 4
 * lanes (D / 4) and of the lanes, the mean and its root. */
enum { ROUNDINGS = D / 4 + 8 };

typedef struct exact_mix {
    double y[D], largest[D]; /* of a source's channel */
    double delta, ahead;     /* of the best source, over the next */
} exact_mix;

static exact_mix mix_in_f64(const numbers *x, int k, int token) {
    const int sources[] = {0, 1, 2, 3, 4 + k % 2}, n = k ? 5 : 4;
    const double *q = x->at[SOURCES + k];
    double s[5], best = -INFINITY, next = -INFINITY, sum = 0;
    exact_mix m = {0};
    for (int i = 0; i < n; i++) {
        const double *v = x->at[sources[i]] + token * D;
        double squares = 0, dot = 0, size = 0;
        for (int c = 0; c < D; c++) {
            squares += v[c] * v[c], dot += q[c] * v[c], size += fabs(q[c] * v[c]);
            m.largest[c] = fmax(m.largest[c], fabs(v[c]));
        }
        const double r = 1 / sqrt(squares / D + 1e-6);
        s[i] = r * dot;
        m.delta = fmax(m.delta, ROUNDINGS * 0x1p-24 * r * size);
        next = fmax(next, fmin(best, s[i]));
        best = fmax(best, s[i]);
    }
    for (int i = 0; i < n; i++)
        sum += exp(s[i] - best);
    for (int i = 0; i < n; i++)
        for (int c = 0; c < D; c++)
            m.y[c] += exp(s[i] - best) / sum * x->at[sources[i]][token * D + c];
    m.ahead = best - next;
    return m;
}

/* Of all mixes of all tokens; how many of them had one source ahead. */
static int within_rounding_of_scores(rows *r, const numbers *x, const char *level) {
    int decided = 0, k = 0;
    HIR_EACH(r->b->m, op, r->b->m->first) {
        const hir_op *o = hir_op_at(r->b->m, op);
        if (o->code != HIR_OUTPUT_OP) continue;
        const float *got = r->values[o->args[0].index];
        for (int t = 0; t < TOKENS; t++) {
            const exact_mix m = mix_in_f64(x, k, t);
            const bool clear = m.ahead > 2 * m.delta + 20;
            const double share = clear ? 0 : fmin(2, expm1(2 * m.delta));
            decided += clear;
            for (int c = 0; c < D; c++)
                cr_assert_leq(fabs(got[t * D + c] - m.y[c]), (share + 1e-6) * m.largest[c],
                              "%s, mix %d, token %d, channel %d: %g for %g, delta %g", level, k, t,
                              c, got[t * D + c], m.y[c], m.delta);
        }
        k++;
    }
    cr_assert_eq(k, MEMBERS);
    return decided;
}

/* Both forms, naive and in two phases, at every level, with logits from 1 to 1e5. */
Test(depth_numbers, any_logits_within_the_rounding_of_scores) {
    static const double sizes[] = {1, 1e2, 1e4, 1e5};
    const hcg_level *all;
    for (size_t i = 0, n = hcg_levels(&all); i < n; i++)
        for (int depth = 0; depth < 2 && vectors_run(&all[i]); depth++) {
            bench b = bench_new();
            bench_start(&b);
            b.m = parsed(&b, false, true, 0);
            compiled_form(&b, b.m, depth);
            rows r;
            cr_assert(rows_open(&r, &b, &all[i], 1), "%s", bench_errors(&b));
            for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
                numbers x = ordinary(b.arena);
                for (int q = 0; q < MEMBERS; q++)
                    scale(&x, SOURCES + q, q & 1 ? -sizes[k] : sizes[k]);
                rows_call(&r, TOKENS, 2, (const double *const *)x.at);
                int decided = within_rounding_of_scores(&r, &x, all[i].name);
                cr_expect(sizes[k] < 1e4 || decided > 15, "%d of 20 mixes are decided", decided);
            }
            rows_close(&r);
            bench_free(&b);
        }
}

/* The result of phase 1 and the live source all but cancel: h is 1e-3 of them, so off by 1e-3 of
 * 2^-24 and some, and its norm as much. |h|^2 of their dot products would be off by a tenth. */
static void cancelling(numbers *x) {
    zero_queries(x);
    for (int i = 1; i < 4; i++)
        memcpy(x->at[i], x->at[0], sizeof(double) * TOKENS * D);
    for (int i = 4; i < SOURCES; i++)
        for (int k = 0; k < TOKENS * D; k++)
            x->at[i][k] = (float)(-4 * x->at[0][k] * (1 + 1e-3 * (k % 7)));
}
Test(depth_numbers, norm_of_a_merge_that_cancels) {
    check_form("cancelling", false, true, 1e-20, cancelling, 5e-3);
}

static void equal(numbers *x) {
    for (int i = 1; i < SOURCES; i++)
        memcpy(x->at[i], x->at[0], sizeof(double) * TOKENS * D);
}
Test(depth_numbers, equal_sources) {
    all_kinds("equal sources", equal);
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

/* ---- a query for each token ------------------------------------------------------------------ */
/* One mix over n sources, with the query that the token brings. */
static const char *token_query_text(hd_arena *a, int n) {
    hd_text t;
    hd_text_init(&t, a);
    hd_text_add(&t, "hir 1 graph @numbers\nfunc(");
    for (int i = 0; i < n; i++)
        hd_text_f(&t, "%%x%d: f32[T, %d], ", i, D);
    hd_text_f(&t, "%%q: f32[T, %d]) {\n  %%s = stack %%x0", D);
    for (int i = 1; i < n; i++)
        hd_text_f(&t, ", %%x%d", i);
    hd_text_f(&t, " {axis = 1} : f32[T, %d, %d]\n", n, D);
    hd_text_f(&t, "  %%k = rmsnorm %%s, _ {eps = 1e-06} : f32[T, %d, %d]\n", n, D);
    hd_text_f(&t, "  %%r = reshape %%q {shape = [T, 1, %d]} : f32[T, 1, %d]\n", D, D);
    hd_text_f(&t, "  %%p = mul %%k, %%r : f32[T, %d, %d]\n", n, D);
    hd_text_f(&t, "  %%l = reduce_sum %%p {axis = 2} : f32[T, %d]\n", n);
    hd_text_f(&t, "  %%a = softmax %%l {axis = 1} : f32[T, %d]\n", n);
    hd_text_f(&t, "  %%b = reshape %%a {shape = [T, %d, 1]} : f32[T, %d, 1]\n", n, n);
    hd_text_f(&t, "  %%m = mul %%b, %%s : f32[T, %d, %d]\n", n, D);
    hd_text_f(&t, "  %%y = reduce_sum %%m {axis = 1} : f32[T, %d]\n", D);
    hd_text_add(&t, "  output %y {name = \"y\"}\n}\n");
    return t.at;
}

/* A query made of a huge source is as huge: q v is beyond f32 where q RMSNorm(v) is not. */
Test(depth_numbers, token_queries_as_huge_as_their_source) {
    static const double sizes[] = {1, 1e-20, 1e20};
    const hcg_level *all;
    for (size_t i = 0, count = hcg_levels(&all); i < count; i++)
        for (int n = 3; n < INPUTS && vectors_run(&all[i]); n += 6) { /* few, and stacked */
            bench b = bench_new();
            bench_start(&b);
            hir_remarks remarks = {.arena = b.arena};
            b.m = hir_parse(b.arena, &b.diags, "test.hir", token_query_text(b.arena, n));
            cr_assert_not_null(b.m, "%s", bench_errors(&b));
            compiled_as(&b, b.m, true, NULL, &remarks);
            cr_assert_eq(count_remarks(&remarks, "query"), 1, "the mix is recognised");
            rows r;
            cr_assert(rows_open(&r, &b, &all[i], 1), "%s", bench_errors(&b));
            for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
                numbers x;
                hir_random random = hir_random_stream(9, "token queries");
                for (int v = 0; v <= n; v++) {
                    x.at[v] = hd_new_array(b.arena, double, TOKENS *D);
                    for (int c = 0; c < TOKENS * D; c++)
                        x.at[v][c] = (float)(hir_random_normal(&random) / (v < n ? 1 : 6));
                }
                for (int v = n - 1; v <= n; v++) /* the last source, and the query made of it */
                    for (int c = 0; c < TOKENS * D; c++)
                        x.at[v][c] = (float)(x.at[v][c] * sizes[k]);
                const double error = rows_call(&r, TOKENS, 2, (const double *const *)x.at);
                cr_assert_lt(error, usual, "%d sources, %s, size %g: %g", n, all[i].name, sizes[k],
                             error);
            }
            rows_close(&r);
            bench_free(&b);
        }
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

/* ---- norms of merges from dot products ------------------------------------------------------- */
/* The three merges of the program and their norms, of eps 1e-6, in both forms at one level. */
enum { FROM_DOTS, OF_ROWS, FORMS };

typedef struct both {
    bench b[FORMS];
    rows r[FORMS];
} both;

static void open_both(both *x, const hcg_level *l) {
    for (int form = 0; form < FORMS; form++) {
        bench *b = &x->b[form];
        const hir_compile_options options = {.chunk = 512, .merge_norm = form == OF_ROWS};
        *b = bench_new();
        bench_start(b);
        hir_remarks remarks = {.arena = b->arena};
        b->m = parsed(b, false, true, 1e-6);
        compiled_as(b, b->m, true, &options, &remarks);
        cr_assert_eq(count_remarks(&remarks, "from three dot products"), form == OF_ROWS ? 0 : 3);
        cr_assert(rows_open(&x->r[form], b, l, 1), "%s", bench_errors(b));
    }
}

static void close_both(both *x) {
    for (int form = 0; form < FORMS; form++) {
        rows_close(&x->r[form]);
        bench_free(&x->b[form]);
    }
}

static const float *output(const rows *r, const char *name) {
    HIR_EACH(r->b->m, op, r->b->m->first) {
        const hir_op *o = hir_op_at(r->b->m, op);
        if (o->code == HIR_OUTPUT_OP && !strcmp(hir_attr_string(o, HIR_A_NAME, ""), name))
            return r->values[o->args[0].index];
    }
    cr_assert_fail("no output %s", name);
    return NULL;
}

/* Runs both: error of the form from dots against f64, and how far apart the forms are, in shares of
 * the largest value. */
static double run_both(both *x, const numbers *in, double *apart) {
    double error[FORMS];
    for (int form = 0; form < FORMS; form++) {
        x->r[form].worst = 0;
        error[form] = rows_call(&x->r[form], TOKENS, 2, (const double *const *)in->at);
    }
    double most = 0, off = 0;
    for (int k = 1; k < MEMBERS; k++) {
        const char name[] = {(char)('0' + k), 0};
        const float *p = output(&x->r[FROM_DOTS], name), *q = output(&x->r[OF_ROWS], name);
        for (int i = 0; i < TOKENS * D; i++) {
            cr_assert(isfinite(p[i]) && isfinite(q[i]));
            most = fmax(most, fabs((double)q[i]));
            off = fmax(off, fabs((double)p[i] - q[i]));
        }
    }
    *apart = most > 0 ? off / most : off;
    return error[FROM_DOTS];
}

/* 4 g + g / 2 of expand_blend.c, for lanes that sum D / 4 terms and then each other. */
static const double both_forms = 4.5 * (D / 4.0 + 2 + 2) * 0x1p-24;

/* Live sources as opposite to the result of phase 1, which weighs four times as much, as says
 * `against`: 1 leaves nothing but `rest` of them. */
static numbers opposed(hd_arena *a, double against, double rest) {
    numbers x = ordinary(a), other = ordinary(a);
    zero_queries(&x);
    for (int i = 1; i < 4; i++)
        memcpy(x.at[i], x.at[0], sizeof(double) * TOKENS * D);
    for (int i = 4; i < SOURCES; i++)
        for (int k = 0; k < TOKENS * D; k++)
            x.at[i][k] = (float)(-4 * against * x.at[0][k] + rest * other.at[i][k]);
    return x;
}

static void each_level(void (*check_one)(both *x, const char *level)) {
    const hcg_level *all;
    for (size_t i = 0, n = hcg_levels(&all); i < n; i++) {
        if (!vectors_run(&all[i])) continue;
        both x;
        open_both(&x, &all[i]);
        check_one(&x, all[i].name);
        close_both(&x);
    }
}

static void check_sizes(both *x, const char *level) {
    void (*const change[])(numbers *) = {
        NULL,     equal,         zero_queries, large_logits,     all_tiny,
        all_huge, tiny_and_huge, zero_sources, shared_dominates, live_dominates};
    for (size_t i = 0; i < sizeof change / sizeof *change; i++) {
        numbers in = ordinary(x->b[0].arena);
        if (change[i]) change[i](&in);
        double apart, e = run_both(x, &in, &apart);
        cr_expect_lt(e, change[i] == large_logits ? coarse : usual, "%s, case %zu: %g", level, i,
                     e);
        cr_expect_leq(apart, both_forms, "%s, case %zu: the forms are %g apart", level, i, apart);
    }
}
Test(depth_numbers, norm_from_dots_of_any_size) {
    each_level(check_sizes);
}

/* From equal rows to opposite ones that leave nothing, with and without other parts: the guard is
 * met on the way (|h|^2 = A / 4 at 0.48), and no step shows. */
static void check_way_to_opposite(both *x, const char *level) {
    for (double rest = 0; rest < 0.2; rest += 0.1)
        for (double against = -1; against < 0.99; against += 0.03) {
            numbers in = opposed(x->b[0].arena, against, rest);
            double apart, e = run_both(x, &in, &apart);
            cr_expect_lt(e, usual, "%s, %g against: %g", level, against, e);
            cr_expect_leq(apart, both_forms, "%s, %g against: %g apart", level, against, apart);
        }
}
Test(depth_numbers, norm_from_dots_on_the_way_to_opposite_rows) {
    each_level(check_way_to_opposite);
}

/* Parts that leave 1e-3, or nothing but rounding, whatever their size. */
static void check_cancelling(both *x, const char *level) {
    double apart;
    for (double size = 1e-20; size < 1e21; size *= 1e20)
        for (double left = 0; left < 0.1; left += 0.03) {
            numbers in = opposed(x->b[0].arena, 1 - left, 0);
            for (int i = 0; i < SOURCES; i++)
                scale(&in, i, size);
            run_both(x, &in, &apart);
            cr_expect_leq(apart, both_forms, "%s, %g left of %g: %g", level, left, size, apart);
        }
    numbers in = ordinary(x->b[0].arena);
    cancelling(&in);
    cr_expect_lt(run_both(x, &in, &apart), 5e-3);
    cr_expect_leq(apart, both_forms, "%s: %g apart", level, apart);
}
Test(depth_numbers, norm_from_dots_that_cancel) {
    each_level(check_cancelling);
}

/* One merge by itself, of weight 1/2, whose norm is all that its kernel makes. */
static void run_merge(const hcg_level *l, int d, bool of_rows, const double *const *in, float *y) {
    bench b = bench_new();
    bench_start(&b);
    b.m = hir_parse(
        b.arena, &b.diags, "test.hir",
        hd_printf(b.arena,
                  "hir 1 kernel @t\narena 0 per token\nfixed 0\n"
                  "func(%%o: f32[T, %d] in input[0], %%l: f32[T, 1] in input[1], %%x: "
                  "f32[T, %d] in input[2]) {\n  %%y = kernel.row {name = \"row0\", rows "
                  "= \"all\", split_decode = \"none\", split_prefill = \"rows\"} : f32[T, %d] "
                  "in output[0] {\n"
                  "    %%h = depth.merge %%o, %%l, %%x, %%l : f32[T, %d]\n"
                  "    %%n = rmsnorm %%h, _ {eps = 1e-06} : f32[T, %d]\n"
                  "    yield %%n\n  }\n  output %%y {name = \"y\"}\n}\n",
                  d, d, d, d, d));
    cr_assert_not_null(b.m, "%s", bench_errors(&b));
    const hir_compile_options options = {.chunk = 512, .merge_norm = of_rows};
    const hir_pass_id passes[] = {HIR_PASS_EXPAND};
    hir_remarks remarks = {.arena = b.arena};
    hir_run run = {.passes = passes, .n_passes = 1, .stop_after = HIR_PASS_COUNT, .verify = true};
    cr_assert(hir_run_passes(b.m, &run, &options, &remarks, &b.diags), "%s", bench_errors(&b));
    cr_assert_eq(count_remarks(&remarks, "from three dot products"), !of_rows);
    rows r;
    cr_assert(rows_open(&r, &b, l, 1), "%s", bench_errors(&b));
    rows_call(&r, TOKENS, 2, in);
    memcpy(y, output(&r, "y"), sizeof(float) * (size_t)(TOKENS * d));
    rows_close(&r);
    bench_free(&b);
}

/* Behind the guard the bits are those of the row form. The second and fourth token cancel, to
 * nothing and to a thousandth; the others do not, and there the bits differ somewhere, or the test
 * would compare the row form with itself. Rows of up to four vectors are summed in another order
 * where nothing leaves them out. */
Test(depth_numbers, behind_the_guard_stands_the_row_form) {
    static const int sizes[] = {65, 72, 100, 300};
    static const double rests[TOKENS] = {2, 0, 1, 1e-3, 0.7};
    enum { MOST = 300 };
    static double o[TOKENS * MOST], x[TOKENS * MOST], l[TOKENS];
    static float y[FORMS][TOKENS * MOST];
    const hcg_level *all;
    hir_random random = hir_random_stream(3, "merge");
    bool differ = false;
    for (size_t i = 0, n = hcg_levels(&all); i < n; i++) {
        for (int k = 0; k < 4 && vectors_run(&all[i]); k++) {
            const int d = sizes[k];
            for (int j = 0; j < TOKENS * d; j++) {
                o[j] = (float)hir_random_normal(&random);
                x[j] = (float)(rests[j / d] * hir_random_normal(&random) - o[j]);
            }
            for (int form = 0; form < FORMS; form++)
                run_merge(&all[i], d, form == OF_ROWS, (const double *const[]){o, l, x}, y[form]);
            for (int t = 0; t < TOKENS; t++) {
                bool same = !memcmp(&y[0][t * d], &y[1][t * d], sizeof(float) * (size_t)d);
                cr_expect(same || t % 2 == 0, "%s, d = %d, token %d", all[i].name, d, t);
                differ |= !same;
            }
        }
    }
    cr_expect(differ, "the dot products are never used");
}
