/* Tests: what may stand after `is`, and be named in select and reject. */
#include <string.h>

#include "text/jinja_text.h"

typedef bool test_function(jinja *j, jinja_value v, const jinja_value *a);

#define TEST_FN(name, condition)                                                                   \
    static bool name(jinja *j, jinja_value v, const jinja_value *a) {                              \
        (void)j, (void)v, (void)a;                                                                 \
        return condition;                                                                          \
    }

static bool is_whole(jinja_value v) {
    return v.kind == J_INT;
}

static bool is_same(jinja *j, jinja_value x, jinja_value y) {
    if (x.kind != y.kind) return false;
    if (x.kind == J_SEQUENCE) return x.sequence == y.sequence;
    if (x.kind == J_DICT) return x.dict == y.dict;
    return jinja_equal(j, x, y);
}

static bool is_case(jinja *j, jinja_value v, jinja_case to) {
    const jinja_value s = jinja_of(jinja_str(j, v)), same = jinja_cased(j, s.string, to),
                      other = jinja_cased(j, s.string, to == CASE_UPPER ? CASE_LOWER : CASE_UPPER);
    return jinja_equal(j, s, same) && !jinja_equal(j, s, other);
}

/* v % by == rest, which is printf where v is a str. */
static bool leaves(jinja *j, jinja_value v, jinja_value by, int64_t rest) {
    return jinja_equal(j, jinja_operate(j, OPERATOR('%', 0), v, by), jinja_int(rest));
}

TEST_FN(boolean, v.kind == J_BOOL)
TEST_FN(callable, v.kind == J_CALLABLE || v.kind == J_LOOP || v.kind == J_UNDEFINED)
TEST_FN(defined, v.kind != J_UNDEFINED)
TEST_FN(divisibleby, leaves(j, v, a[0], 0))
TEST_FN(equal, jinja_equal(j, v, a[0]))
TEST_FN(escaped, false)
TEST_FN(even, leaves(j, v, jinja_int(2), 0))
TEST_FN(false_, v.kind == J_BOOL && !v.truth)
TEST_FN(filter_, jinja_filter_named(jinja_str(j, v)) != NULL)
TEST_FN(float_, v.kind == J_FLOAT)
TEST_FN(greater, jinja_order(j, v, a[0]) > 0)
TEST_FN(greater_equal, jinja_order(j, v, a[0]) >= 0)
TEST_FN(in, jinja_contains(j, a[0], v))
TEST_FN(integer, is_whole(v))
TEST_FN(iterable, v.kind == J_UNDEFINED || v.kind == J_STRING || v.kind == J_SEQUENCE ||
                      v.kind == J_DICT || v.kind == J_LOOP)
TEST_FN(less, jinja_order(j, v, a[0]) < 0)
TEST_FN(less_equal, jinja_order(j, v, a[0]) <= 0)
TEST_FN(lower, is_case(j, v, CASE_LOWER))
TEST_FN(mapping, v.kind == J_DICT)
TEST_FN(none, v.kind == J_NONE)
TEST_FN(number, jinja_is_number(v))
TEST_FN(odd, leaves(j, v, jinja_int(2), 1))
TEST_FN(sameas, is_same(j, v, a[0]))
TEST_FN(sequence, v.kind == J_UNDEFINED || v.kind == J_STRING || v.kind == J_DICT ||
                      (v.kind == J_SEQUENCE && v.sequence->kind <= SEQ_TUPLE))
TEST_FN(string_, v.kind == J_STRING)
TEST_FN(true_, v.kind == J_BOOL && v.truth)
TEST_FN(undefined, v.kind == J_UNDEFINED)
TEST_FN(unequal, !jinja_equal(j, v, a[0]))
TEST_FN(upper, is_case(j, v, CASE_UPPER))

static const struct {
    const char *name;
    test_function *test;
    size_t arguments;
} tests[] = {
    {"!=", unequal, 1},
    {"<", less, 1},
    {"<=", less_equal, 1},
    {"==", equal, 1},
    {">", greater, 1},
    {">=", greater_equal, 1},
    {"boolean", boolean, 0},
    {"callable", callable, 0},
    {"defined", defined, 0},
    {"divisibleby", divisibleby, 1},
    {"eq", equal, 1},
    {"equalto", equal, 1},
    {"escaped", escaped, 0},
    {"even", even, 0},
    {"false", false_, 0},
    {"filter", filter_, 0},
    {"float", float_, 0},
    {"ge", greater_equal, 1},
    {"greaterthan", greater, 1},
    {"gt", greater, 1},
    {"in", in, 1},
    {"integer", integer, 0},
    {"iterable", iterable, 0},
    {"le", less_equal, 1},
    {"lessthan", less, 1},
    {"lower", lower, 0},
    {"lt", less, 1},
    {"mapping", mapping, 0},
    {"ne", unequal, 1},
    {"none", none, 0},
    {"number", number, 0},
    {"odd", odd, 0},
    {"sameas", sameas, 1},
    {"sequence", sequence, 0},
    {"string", string_, 0},
    {"true", true_, 0},
    {"undefined", undefined, 0},
    {"upper", upper, 0},
};

bool jinja_test(jinja *j, const jinja_string *name, jinja_value v, const jinja_arguments *a) {
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        if (strlen(tests[i].name) != name->n || memcmp(tests[i].name, name->at, name->n) != 0)
            continue;
        if (a->n != tests[i].arguments || a->n_named)
            jinja_fail(j, "the test '%s' takes %zu arguments", tests[i].name, tests[i].arguments);
        return tests[i].test(j, v, a->at);
    }
    jinja_fail(j, "there is no test '%.*s'", (int)(name->n < 80 ? name->n : 80), name->at);
}
