/* What the tests of the evaluator share: a module from text, weights given as numbers, one call,
 * and a comparison that says where it failed. */
#ifndef TEST_SUPPORT_EVAL_H
#define TEST_SUPPORT_EVAL_H

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "ir/eval/eval.h"
#include "tests/unit/arena_fixture.h"

static inline hir_module *parse(const char *text) {
    hir_module *m = hir_parse(arena, &diags, "test.hir", text);
    if (!m) cr_assert_fail("%s\n%s", said(), text);
    return m;
}

/* A module of one function: its header and tables, then the body. */
static inline hir_module *graph(const char *tables, const char *inputs, const char *body) {
    return parse(
        hd_printf(arena, "hir 1 graph @t\n\n%s\nfunc(%s) {\n%s\n}\n", tables, inputs, body));
}

/* Weights by name, as numbers. */
typedef struct given {
    const char *name;
    const double *at;
} given;
typedef struct givens {
    const given *list;
    size_t n;
} givens;

static inline bool given_weights(void *context, const hir_module *m, uint32_t w, double *out,
                                 hd_diags *d) {
    const givens *all = context;
    int64_t n = hir_type_row_elements(m->weights.at[w].type);
    for (size_t i = 0; i < all->n; i++)
        if (!strcmp(all->list[i].name, m->weights.at[w].name)) {
            memcpy(out, all->list[i].at, (size_t)n * sizeof *out);
            return true;
        }
    hd_err(d, HD_E_WEIGHTS, HD_NOWHERE, "weight '%s' is missing", m->weights.at[w].name);
    return false;
}

static inline hir_results call(hir_eval *e, int64_t tokens, const double *const *inputs) {
    hir_results out;
    if (!hir_eval_call(e, arena, &diags, tokens, inputs, &out, NULL, NULL))
        cr_assert_fail("%s", said());
    return out;
}
#define INPUTS(...)  ((const double *const[]){__VA_ARGS__})
#define NUMBERS(...) ((const double[]){__VA_ARGS__})

/* The first output of a module without weights, or with random ones of seed 1. */
static inline hir_array run_one(const hir_module *m, int64_t tokens, const double *const *inputs) {
    static uint64_t seed = 1;
    hir_eval *e = hir_eval_new(arena, m, hir_random_weights, &seed);
    hir_results out = call(e, tokens, inputs);
    cr_assert_geq(out.outputs.n, 1);
    return out.outputs.at[0];
}

static inline void expect_near(const double *got, const double *want, int64_t n, double tolerance,
                               const char *what) {
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= tolerance * (1 + fabs(want[i]))))
            cr_assert_fail("%s: element %lld is %.17g, expected %.17g", what, (long long)i, got[i],
                           want[i]);
}

static inline void expect(hir_array got, int64_t n, const double *want, const char *what) {
    cr_assert_eq(got.n, n, "%s: %lld elements", what, (long long)got.n);
    expect_near(got.at, want, n, 1e-14, what);
}
#define EXPECT(got, what, ...)                                                                     \
    expect((got), (int64_t)(sizeof NUMBERS(__VA_ARGS__) / sizeof(double)), NUMBERS(__VA_ARGS__),   \
           (what))

#endif
