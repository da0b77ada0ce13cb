/* Norms of rows of any size, in the compiled code of every CPU level and in the mode that kernels
 * run in (denormals are zero): squares of 1e20 overflow f32, squares of 1e-20 are gone.
 *
 * Tolerance 1e-5 of a row's largest element: rounding of sums of 100 terms, as in test_emit_row. */
#include <criterion/criterion.h>

#include "passes/pass.h"
#include "tests/unit/codegen/rowwise/row_harness.h"

enum { D = 100, TOKENS = 9 };

static const double sizes[TOKENS] = {1, 1e20, 1e-20, 0, 1e24, 1e-26, 1e9, 1e-9, 1e-12};
static const double every_eps[] = {1e-5, 1e-6, 1e-12, 1e-13, 1e-30, 0};
static const double tolerance = 1e-5;

static hir_module *norms(bench *b, double eps) {
    const char *text =
        hd_printf(b->arena,
                  "hir 1 graph @norms\n\nweight @g : f32[%d]\n\nfunc(%%x: f32[T, %d]) {\n"
                  "  %%0 = rmsnorm %%x, @g {eps = %.17g} : f32[T, %d]\n"
                  "  %%1 = layernorm %%x, @g, _ {eps = %.17g} : f32[T, %d]\n"
                  "  output %%0 {name = \"rms\"}\n  output %%1 {name = \"layer\"}\n}\n",
                  D, D, eps, D, eps, D);
    hir_module *m = hir_parse(b->arena, &b->diags, "test.hir", text);
    cr_assert_not_null(m, "%s", bench_errors(b));
    size_t n = 0;
    hir_remarks remarks = {.arena = b->arena};
    for (const hir_pass_id *p = hir_pipeline(); p[n] != HIR_PASS_COUNT;)
        n++;
    hir_run run = {
        .passes = hir_pipeline(), .n_passes = n, .stop_after = HIR_PASS_COUNT, .verify = true};
    cr_assert(hir_run_passes(m, &run, NULL, &remarks, &b->diags), "%s", bench_errors(b));
    return m;
}

static const double *numbers(bench *b) {
    double *x = hd_new_array(b->arena, double, TOKENS *D);
    uint64_t seed = 5;
    for (int i = 0; i < TOKENS * D; i++)
        x[i] = (float)(random_float(&seed) * sizes[i / D]);
    return x;
}

/* One call in the mode of kernels. */
static void call(rows *r, const double *const *inputs) {
#if defined(__x86_64__)
    unsigned mode = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(0x9fc0);
#endif
    rows_call(r, TOKENS, 2, inputs);
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(mode);
#endif
}

static double row_error(const double *want, const float *got) {
    double most = 0, error = 0;
    for (int i = 0; i < D; i++) {
        if (isnan(want[i]) && isnan(got[i])) continue; /* 0 / 0, with eps 0 */
        most = fmax(most, fabs(want[i]));
        error = fmax(error, isfinite(got[i]) ? fabs(want[i] - got[i]) : INFINITY);
    }
    return most < 1e-30 ? error : error / most;
}

static void check(const hcg_level *level, double eps) {
    bench b = bench_new();
    bench_start(&b);
    b.m = norms(&b, eps);
    rows r;
    cr_assert(rows_open(&r, &b, level, 1), "%s", bench_errors(&b));
    const double *const inputs[] = {numbers(&b)};
    call(&r, inputs);
    hir_results y;
    cr_assert(hir_eval_call(r.eval, b.arena, &b.diags, TOKENS, inputs, &y, NULL, NULL));
    size_t o = 0;
    HIR_EACH(b.m, op, b.m->first) {
        if (hir_op_at(b.m, op)->code != HIR_OUTPUT_OP) continue;
        const float *got = r.values[hir_op_at(b.m, op)->args[0].index];
        for (int t = 0; t < TOKENS; t++) {
            if (sizes[t] == 0 && eps == 0) continue; /* no norm: any answer will do */
            double e = row_error(y.outputs.at[o].at + t * D, got + t * D);
            cr_assert_lt(e, tolerance, "%s, output %zu, eps %g, size %g: error %g", level->name, o,
                         eps, sizes[t], e);
        }
        o++;
    }
    cr_assert_eq(o, 2);
    rows_close(&r);
    bench_free(&b);
}

Test(norm_numbers, rows_of_any_size) {
    const hcg_level *all;
    for (size_t i = 0, n = hcg_levels(&all); i < n; i++)
        for (size_t k = 0; k < sizeof every_eps / sizeof *every_eps; k++)
            if (vectors_run(&all[i])) check(&all[i], every_eps[k]);
}
