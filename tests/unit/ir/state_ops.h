/* What the tests of ops that look along the sequence share: ops with the type that they give or
 * what is said against them, and the ways to cut a prompt into calls of the evaluator. */
#ifndef TEST_STATE_OPS_H
#define TEST_STATE_OPS_H

#include "tests/unit/ir/support_eval.h"

typedef struct rule_case {
    const char *op, *expected; /* the type, or a part of the message */
} rule_case;

/* `preamble`: a module up to the place of the op, with an input %x. */
static inline hir_module *with_op(const char *preamble, const char *op) {
    return hir_parse(
        arena, &diags, "test.hir",
        hd_printf(arena, "%s  %%result = %s\n  output %%x {name = \"x\"}\n}\n", preamble, op));
}

static inline void expect_accepted(const char *preamble, const rule_case *cases, size_t n) {
    for (size_t i = 0; i < n; i++) {
        hir_module *m = with_op(preamble, cases[i].op);
        cr_assert_not_null(m, "%s", said());
        hd_text t;
        hd_text_init(&t, arena);
        hir_print_type(&t, hir_value_at(m, (hir_id)m->values.n - 1)->type);
        cr_expect_str_eq(t.at, cases[i].expected, "%s gives %s", cases[i].op, t.at);
    }
}

static inline void expect_rejected(const char *preamble, const rule_case *cases, size_t n) {
    for (size_t i = 0; i < n; i++) {
        hd_diags_init(&diags, arena);
        cr_assert_null(with_op(preamble, cases[i].op), "%s", cases[i].op);
        const char *text = said();
        cr_expect(strstr(text, cases[i].expected), "%s\nexpected: %s\n%s", cases[i].op,
                  cases[i].expected, text);
    }
}

enum { TOKENS = 11 };

/* The ways in which TOKENS tokens are given to the evaluator; a row ends with 0. */
static const int cuts[][TOKENS + 1] = {
    {TOKENS}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {1, TOKENS - 1}, {7, TOKENS - 7}, {3, 1, 2, 5},
};
enum { CUTS = sizeof cuts / sizeof *cuts };

static inline double wave(int i, double speed) {
    return sin(1.3 + speed * i) + 0.25 * cos(0.37 * i);
}

static inline double *waves(int n, double speed) {
    double *x = hd_new_array(arena, double, (size_t)n);
    for (int i = 0; i < n; i++)
        x[i] = wave(i, speed);
    return x;
}

#endif
