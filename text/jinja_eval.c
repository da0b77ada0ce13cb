/* Expressions. Names, members and operators mean what they mean in Jinja: a member of a dict by a
 * dot is a method first, and a value that is not there is undefined, which prints nothing and is an
 * error as soon as something is done with it. */
#include <math.h>
#include <string.h>

#include "text/jinja_tree.h"

/* ---- members --------------------------------------------------------------------------------- */

static jinja_value missing(jinja *j, jinja_value of, jinja_value key) {
    if (key.kind == J_STRING)
        return jinja_undefined(hd_printf(j->arena, "a %s has no attribute '%.*s'", jinja_type(of),
                                         (int)(key.string->n < 80 ? key.string->n : 80),
                                         key.string->at));
    return jinja_undefined(hd_printf(j->arena, "a %s has no such element", jinja_type(of)));
}

static bool is(const jinja_string *s, const char *text) {
    return s->n == strlen(text) && memcmp(s->at, text, s->n) == 0;
}

static jinja_value loop_member(jinja_value v, const jinja_string *name) {
    const jinja_loop *l = v.loop;
    const int64_t i = (int64_t)l->i, n = (int64_t)l->n;
    if (is(name, "index")) return jinja_int(i + 1);
    if (is(name, "index0")) return jinja_int(i);
    if (is(name, "revindex")) return jinja_int(n - i);
    if (is(name, "revindex0")) return jinja_int(n - i - 1);
    if (is(name, "first")) return jinja_bool(i == 0);
    if (is(name, "last")) return jinja_bool(i == n - 1);
    if (is(name, "length")) return jinja_int(n);
    if (is(name, "depth")) return jinja_int((int64_t)l->depth + 1);
    if (is(name, "depth0")) return jinja_int((int64_t)l->depth);
    if (is(name, "previtem"))
        return i > 0 ? l->at[i - 1] : jinja_undefined("there is no previous item");
    if (is(name, "nextitem"))
        return i + 1 < n ? l->at[i + 1] : jinja_undefined("there is no next item");
    return (jinja_value){.kind = J_ABSENT};
}

/* What Python's getattr finds; absent: nothing. */
static jinja_value own_attribute(jinja *j, jinja_value v, const jinja_string *name) {
    const char *unsafe = NULL;
    if (v.kind == J_LOOP) {
        const jinja_value found = loop_member(v, name);
        if (found.kind != J_ABSENT) return found;
    }
    if (v.kind == J_NAMESPACE) {
        const jinja_value *found = jinja_find(j, v.dict, jinja_of(name));
        return found ? *found : (jinja_value){.kind = J_ABSENT};
    }
    if (v.kind == J_CALLABLE && v.callable->macro && is(name, "name"))
        return jinja_of(v.callable->macro->text);
    const jinja_builtin *b = jinja_method(v, name, &unsafe);
    if (unsafe)
        return jinja_undefined(hd_printf(j->arena,
                                         "%s of a %s would change it, which templates may not",
                                         unsafe, jinja_type(v)));
    if (!b) return (jinja_value){.kind = J_ABSENT};
    jinja_callable *f = jinja_alloc(j, 1, sizeof *f);
    *f = (jinja_callable){.builtin = b, .self = v};
    return (jinja_value){.kind = J_CALLABLE, .callable = f};
}

static int64_t wrapped(int64_t i, int64_t n) {
    return i < 0 ? i + n : i;
}

/* What v[key] finds; absent: nothing. */
static jinja_value own_item(jinja *j, jinja_value v, jinja_value key) {
    const jinja_value none = {.kind = J_ABSENT};
    if (v.kind == J_DICT) {
        if (key.kind == J_DICT || (key.kind == J_SEQUENCE && key.sequence->kind == SEQ_LIST))
            return none;
        const jinja_value *found = jinja_find(j, v.dict, key);
        return found ? *found : none;
    }
    if (key.kind != J_INT && key.kind != J_BOOL) return none;
    const int64_t i = key.kind == J_INT ? key.number : key.truth;
    if (v.kind == J_SEQUENCE && v.sequence->kind <= SEQ_TUPLE) {
        const int64_t at = wrapped(i, (int64_t)v.sequence->n);
        return at >= 0 && at < (int64_t)v.sequence->n ? v.sequence->at[at] : none;
    }
    if (v.kind == J_STRING) {
        jinja_step(j, v.string->n / 64);
        const int64_t n = (int64_t)jinja_characters(v.string), at = wrapped(i, n);
        if (at < 0 || at >= n) return none;
        const size_t begin = jinja_offset(v.string, (size_t)at);
        return jinja_part_value(j, v.string, begin,
                                begin + (size_t)hd_utf8(v.string->at + begin, v.string->n - begin));
    }
    return none;
}

jinja_value jinja_attribute(jinja *j, jinja_value v, const jinja_string *name) {
    if (v.kind == J_UNDEFINED) jinja_fail(j, "%s", v.why);
    jinja_value found = own_attribute(j, v, name);
    if (found.kind == J_ABSENT && v.kind == J_DICT) found = own_item(j, v, jinja_of(name));
    return found.kind == J_ABSENT ? missing(j, v, jinja_of(name)) : found;
}

jinja_value jinja_item(jinja *j, jinja_value v, jinja_value key) {
    if (v.kind == J_UNDEFINED) jinja_fail(j, "%s", v.why);
    jinja_value found = own_item(j, v, key);
    if (found.kind == J_ABSENT && key.kind == J_STRING && v.kind != J_NAMESPACE)
        found = own_attribute(j, v, key.string);
    return found.kind == J_ABSENT ? missing(j, v, key) : found;
}

/* ---- slices ---------------------------------------------------------------------------------- */

static bool slice_bound(jinja *j, const jinja_node *n, int64_t *out) {
    const jinja_value v = n ? jinja_eval(j, n) : jinja_none();
    if (v.kind == J_NONE) return false;
    *out = jinja_integer(j, v, "the bound of a slice");
    return true;
}

static int64_t within(int64_t i, int64_t least, int64_t most) {
    return i < least ? least : i > most ? most : i;
}

static jinja_value slice_of(jinja *j, jinja_value v, const jinja_node *n) {
    int64_t step = 1, begin, end;
    if (v.kind == J_UNDEFINED) jinja_fail(j, "%s", v.why);
    const bool string = v.kind == J_STRING;
    if (!string && (v.kind != J_SEQUENCE || v.sequence->kind > SEQ_TUPLE))
        jinja_fail(j, "a %s has no slices", jinja_type(v));
    const int64_t length = jinja_length(j, v);
    if (slice_bound(j, n->c, &step) && step == 0) jinja_fail(j, "the step of a slice is 0");
    const int64_t least = step > 0 ? 0 : -1, most = step > 0 ? length : length - 1;
    begin = slice_bound(j, n->a, &begin) ? within(wrapped(begin, length), least, most)
            : step > 0                   ? 0
                                         : length - 1;
    end = slice_bound(j, n->b, &end) ? within(wrapped(end, length), least, most)
          : step > 0                 ? length
                                     : -1;
    if (string && step == 1) {
        const size_t from = jinja_offset(v.string, (size_t)begin);
        const jinja_string rest = jinja_part(v.string, from, v.string->n);
        return jinja_part_value(j, v.string, from,
                                from +
                                    (end > begin ? jinja_offset(&rest, (size_t)(end - begin)) : 0));
    }
    const jinja_value all = jinja_elements(j, v);
    jinja_value out = jinja_list(j, string ? SEQ_LIST : v.sequence->kind, (size_t)length);
    size_t k = 0;
    for (int64_t i = begin; step > 0 ? i < end : i > end;) {
        out.sequence->at[k++] = all.sequence->at[i];
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    out.sequence->n = k;
    jinja_step(j, k);
    if (!string) return out;
    jinja_output text = {0};
    for (size_t i = 0; i < k; i++)
        jinja_put(j, &text, out.sequence->at[i].string);
    return jinja_of(jinja_taken(j, &text));
}

/* ---- operators ------------------------------------------------------------------------------- */

static _Noreturn void cannot(jinja *j, unsigned op, jinja_value x, jinja_value y) {
    if (x.kind == J_UNDEFINED) jinja_fail(j, "%s", x.why);
    if (y.kind == J_UNDEFINED) jinja_fail(j, "%s", y.why);
    jinja_fail(j, "'%c%.1s' cannot be applied to a %s and a %s", (char)op,
               (char[]){(char)(op >> 8), 0}, jinja_type(x), jinja_type(y));
}

static int64_t floor_divided(int64_t a, int64_t b) {
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static int64_t int_power(jinja *j, int64_t a, int64_t n) {
    int64_t out = 1;
    if (n == 0 || a == 1) return 1;
    if (a == 0) return 0;
    if (a == -1) return n % 2 ? -1 : 1;
    for (; n > 0; n--) /* ends soon, since the result doubles at least */
        if (__builtin_mul_overflow(out, a, &out)) jinja_fail(j, "a number is too large");
    return out;
}

static jinja_value of_ints(jinja *j, unsigned op, int64_t a, int64_t b) {
    int64_t out = 0;
    bool over = false;
    if ((op == OPERATOR('/', 0) || op == OPERATOR('/', '/') || op == OPERATOR('%', 0)) && b == 0)
        jinja_fail(j, "division by zero");
    switch (op) {
    case OPERATOR('+', 0): over = __builtin_add_overflow(a, b, &out); break;
    case OPERATOR('-', 0): over = __builtin_sub_overflow(a, b, &out); break;
    case OPERATOR('*', 0): over = __builtin_mul_overflow(a, b, &out); break;
    case OPERATOR('/', 0): return jinja_real((double)a / (double)b);
    case OPERATOR('/', '/'):
        over = a == INT64_MIN && b == -1;
        if (!over) out = floor_divided(a, b);
        break;
    case OPERATOR('%', 0): out = b == -1 ? 0 : a - floor_divided(a, b) * b; break;
    default:
        if (b < 0) return jinja_real(pow((double)a, (double)b));
        out = int_power(j, a, b);
    }
    if (over) jinja_fail(j, "a number is too large");
    return jinja_int(out);
}

static jinja_value of_reals(jinja *j, unsigned op, double a, double b) {
    if ((op == OPERATOR('/', 0) || op == OPERATOR('/', '/') || op == OPERATOR('%', 0)) && b == 0)
        jinja_fail(j, "division by zero");
    double rest;
    switch (op) {
    case OPERATOR('+', 0): return jinja_real(a + b);
    case OPERATOR('-', 0): return jinja_real(a - b);
    case OPERATOR('*', 0): return jinja_real(a * b);
    case OPERATOR('/', 0): return jinja_real(a / b);
    case OPERATOR('/', '/'): return jinja_real(floor(a / b));
    case OPERATOR('%', 0):
        rest = fmod(a, b);
        return jinja_real(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
    default: return jinja_real(pow(a, b));
    }
}

static jinja_value repeated(jinja *j, jinja_value v, int64_t times) {
    const uint64_t n = times > 0 ? (uint64_t)times : 0;
    jinja_step(j, n);
    if (v.kind == J_STRING) {
        jinja_output out = {0};
        for (uint64_t i = 0; i < n; i++)
            jinja_put(j, &out, v.string);
        return jinja_of(jinja_taken(j, &out));
    }
    jinja_value out = jinja_list(j, v.sequence->kind, hd_capped_mul(v.sequence->n, n));
    for (size_t i = 0; i < out.sequence->n; i++)
        out.sequence->at[i] = v.sequence->at[i % v.sequence->n];
    return out;
}

static jinja_value joined(jinja *j, jinja_value x, jinja_value y) {
    if (x.kind == J_STRING) {
        jinja_output out = {0};
        jinja_put(j, &out, x.string);
        jinja_put(j, &out, y.string);
        return jinja_of(jinja_taken(j, &out));
    }
    const size_t n = x.sequence->n;
    jinja_value out = jinja_list(j, x.sequence->kind, n + y.sequence->n);
    if (n) memcpy(out.sequence->at, x.sequence->at, n * sizeof x);
    if (y.sequence->n) memcpy(out.sequence->at + n, y.sequence->at, y.sequence->n * sizeof x);
    return out;
}

static bool is_series(jinja_value v) {
    return v.kind == J_STRING || (v.kind == J_SEQUENCE && v.sequence->kind <= SEQ_TUPLE);
}

static bool is_int(jinja_value v) {
    return v.kind == J_INT || v.kind == J_BOOL;
}

static int64_t int_of(jinja_value v) {
    return v.kind == J_INT ? v.number : v.truth;
}

jinja_value jinja_operate(jinja *j, unsigned op, jinja_value x, jinja_value y) {
    if (is_int(x) && is_int(y)) return of_ints(j, op, int_of(x), int_of(y));
    if (jinja_is_number(x) && jinja_is_number(y))
        return of_reals(j, op, jinja_double(x), jinja_double(y));
    if (op == OPERATOR('%', 0) && x.kind == J_STRING) return jinja_percent(j, x.string, y);
    if (op == OPERATOR('*', 0) && is_series(x) && is_int(y)) return repeated(j, x, int_of(y));
    if (op == OPERATOR('*', 0) && is_int(x) && is_series(y)) return repeated(j, y, int_of(x));
    const bool alike = is_series(x) && x.kind == y.kind &&
                       (x.kind == J_STRING || x.sequence->kind == y.sequence->kind);
    if (op == OPERATOR('+', 0) && alike) return joined(j, x, y);
    cannot(j, op, x, y);
}

static bool compare(jinja *j, unsigned op, jinja_value x, jinja_value y) {
    switch (op) {
    case OPERATOR('=', '='): return jinja_equal(j, x, y);
    case OPERATOR('!', '='): return !jinja_equal(j, x, y);
    case 'i': return jinja_contains(j, y, x);
    case 'n': return !jinja_contains(j, y, x);
    default: break;
    }
    const bool nan = (x.kind == J_FLOAT && isnan(x.real)) || (y.kind == J_FLOAT && isnan(y.real));
    const int order = jinja_order(j, x, y);
    if (nan) return false;
    switch (op) {
    case OPERATOR('<', 0): return order < 0;
    case OPERATOR('<', '='): return order <= 0;
    case OPERATOR('>', 0): return order > 0;
    default: return order >= 0;
    }
}

static jinja_value comparison(jinja *j, const jinja_node *n) {
    jinja_value left = jinja_eval(j, n->a);
    for (size_t i = 0; i < n->list.n; i++) {
        const jinja_node *o = n->list.at[i];
        const jinja_value right = jinja_eval(j, o->a);
        j->line = o->line;
        if (!compare(j, o->op, left, right)) return jinja_bool(false);
        left = right;
    }
    return jinja_bool(true);
}

static jinja_value negative(jinja *j, const jinja_node *n) {
    const jinja_value v = jinja_eval(j, n->a);
    if (v.kind == J_FLOAT) return jinja_real(n->kind == N_MINUS ? -v.real : v.real);
    const int64_t i = jinja_integer(j, v, "what has a sign");
    if (n->kind == N_MINUS && i == INT64_MIN) jinja_fail(j, "a number is too large");
    return jinja_int(n->kind == N_MINUS ? -i : i);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void take_arguments(jinja *j, const node_list *list, jinja_arguments *out) {
    size_t capacity = list->n;
    jinja_sequence all = {.at = jinja_alloc(j, list->n, sizeof(jinja_value))};
    *out = (jinja_arguments){.named = jinja_alloc(j, list->n, sizeof(jinja_value)),
                             .names = jinja_alloc(j, list->n, sizeof(jinja_string *))};
    for (size_t i = 0; i < list->n; i++) {
        const jinja_node *n = list->at[i];
        if (n->kind == N_KEYWORD) {
            for (size_t k = 0; k < out->n_named; k++)
                if (out->names[k]->n == n->text->n &&
                    memcmp(out->names[k]->at, n->text->at, n->text->n) == 0)
                    jinja_fail(j, "the argument '%.*s' is given twice", (int)n->text->n,
                               n->text->at);
            out->names[out->n_named] = n->text;
            out->named[out->n_named++] = jinja_eval(j, n->a);
        } else if (n->kind == N_STAR) {
            const jinja_value more = jinja_elements(j, jinja_eval(j, n->a));
            for (size_t k = 0; k < more.sequence->n; k++)
                jinja_append(j, &all, &capacity, more.sequence->at[k]);
        } else {
            jinja_append(j, &all, &capacity, jinja_eval(j, n));
        }
    }
    out->at = all.at, out->n = all.n;
}

enum { MOST_PARAMETERS = 8 };

jinja_value jinja_call_builtin(jinja *j, const jinja_builtin *b, jinja_value self,
                               const jinja_arguments *a) {
    jinja_value bound[MOST_PARAMETERS] = {{0}};
    size_t i = 0, used = 0;
    if (b->parameters[0] == '*') return b->call(j, self, bound, a);
    for (const char *p = b->parameters; *p; i++) {
        const size_t n = strcspn(p, " !"), all = strcspn(p, " ");
        if (i < a->n) bound[i] = a->at[i];
        for (size_t k = 0; k < a->n_named; k++)
            if (a->names[k]->n == n && memcmp(a->names[k]->at, p, n) == 0) {
                if (i < a->n) jinja_fail(j, "%s: '%.*s' is given twice", b->name, (int)n, p);
                bound[i] = a->named[k], used++;
            }
        if (p[n] == '!' && bound[i].kind == J_ABSENT)
            jinja_fail(j, "%s: the argument '%.*s' is missing", b->name, (int)n, p);
        p += all + (p[all] == ' ');
    }
    if (a->n > i) jinja_fail(j, "%s takes at most %zu arguments, not %zu", b->name, i, a->n);
    if (used < a->n_named) jinja_fail(j, "%s has no argument of such a name", b->name);
    return b->call(j, self, bound, a);
}

jinja_value jinja_call(jinja *j, jinja_value f, const jinja_arguments *a) {
    if (f.kind == J_UNDEFINED) jinja_fail(j, "%s", f.why);
    if (f.kind == J_LOOP) {
        if (a->n != 1 || a->n_named) jinja_fail(j, "loop() takes one argument");
        return jinja_recurse(j, f.loop, a->at[0]);
    }
    if (f.kind != J_CALLABLE) jinja_fail(j, "a %s cannot be called", jinja_type(f));
    if (!f.callable->builtin) return jinja_call_macro(j, f.callable, a);
    return jinja_call_builtin(j, f.callable->builtin, f.callable->self, a);
}

static jinja_value call(jinja *j, const jinja_node *n) {
    jinja_arguments a;
    const jinja_value f = jinja_eval(j, n->a);
    take_arguments(j, &n->list, &a);
    j->line = n->line;
    return jinja_call(j, f, &a);
}

jinja_value jinja_filter(jinja *j, const jinja_string *name, jinja_value v,
                         const jinja_arguments *a) {
    const jinja_builtin *b = jinja_filter_named(name);
    if (!b)
        jinja_fail(j, "there is no filter '%.*s'", (int)(name->n < 80 ? name->n : 80), name->at);
    return jinja_call_builtin(j, b, v, a);
}

/* Applies the filters of a set or filter block, of which the innermost has no value of its own. */
jinja_value jinja_filters_of(jinja *j, const jinja_node *n, jinja_value v) {
    jinja_arguments a;
    jinja_enter(j);
    if (n->a) v = jinja_filters_of(j, n->a, v);
    take_arguments(j, &n->list, &a);
    j->line = n->line;
    v = jinja_filter(j, n->text, v, &a);
    jinja_leave(j);
    return v;
}

static jinja_value test_value(jinja *j, const jinja_node *n) {
    jinja_arguments a;
    const jinja_value v = jinja_eval(j, n->a);
    take_arguments(j, &n->list, &a);
    j->line = n->line;
    return jinja_bool(jinja_test(j, n->text, v, &a) != n->flag);
}

/* ---- names and literals ---------------------------------------------------------------------- */

static jinja_value name_value(jinja *j, const jinja_node *n) {
    const jinja_value v = jinja_lookup(j, n->name);
    if (v.kind != J_ABSENT) return v;
    const jinja_string *name = j->t->names.at[n->name];
    const jinja_builtin *b = jinja_global(name);
    if (!b)
        return jinja_undefined(hd_printf(j->arena, "'%.*s' is undefined",
                                         (int)(name->n < 80 ? name->n : 80), name->at));
    jinja_callable *f = jinja_alloc(j, 1, sizeof *f);
    *f = (jinja_callable){.builtin = b};
    return (jinja_value){.kind = J_CALLABLE, .callable = f};
}

static jinja_value list_value(jinja *j, const jinja_node *n, sequence_kind kind) {
    jinja_value out = jinja_list(j, kind, n->list.n);
    for (size_t i = 0; i < n->list.n; i++)
        out.sequence->at[i] = jinja_eval(j, n->list.at[i]);
    return out;
}

static jinja_value dict_value(jinja *j, const jinja_node *n) {
    jinja_value out = jinja_new_dict(j);
    for (size_t i = 0; i + 1 < n->list.n; i += 2) {
        const jinja_value key = jinja_eval(j, n->list.at[i]);
        jinja_assign(j, out.dict, key, jinja_eval(j, n->list.at[i + 1]));
    }
    return out;
}

static jinja_value concatenation(jinja *j, const jinja_node *n) {
    jinja_output out = {0};
    for (size_t i = 0; i < n->list.n; i++)
        jinja_put(j, &out, jinja_str(j, jinja_eval(j, n->list.at[i])));
    return jinja_of(jinja_taken(j, &out));
}

static jinja_value conditional(jinja *j, const jinja_node *n) {
    if (jinja_true(jinja_eval(j, n->b))) return jinja_eval(j, n->a);
    if (n->c) return jinja_eval(j, n->c);
    return jinja_undefined("the condition is false and there is no 'else'");
}

static jinja_value value_of(jinja *j, const jinja_node *n) {
    jinja_value v;
    switch (n->kind) {
    case N_CONST: return n->value;
    case N_NAME: return name_value(j, n);
    case N_LIST: return list_value(j, n, SEQ_LIST);
    case N_TUPLE: return list_value(j, n, SEQ_TUPLE);
    case N_DICT: return dict_value(j, n);
    case N_COND: return conditional(j, n);
    case N_AND: return jinja_true(v = jinja_eval(j, n->a)) ? jinja_eval(j, n->b) : v;
    case N_OR: return jinja_true(v = jinja_eval(j, n->a)) ? v : jinja_eval(j, n->b);
    case N_NOT: return jinja_bool(!jinja_true(jinja_eval(j, n->a)));
    case N_COMPARE: return comparison(j, n);
    case N_CONCAT: return concatenation(j, n);
    case N_BINARY:
        v = jinja_eval(j, n->a);
        {
            const jinja_value right = jinja_eval(j, n->b);
            j->line = n->line;
            return jinja_operate(j, n->op, v, right);
        }
    case N_MINUS:
    case N_PLUS: return negative(j, n);
    case N_ATTRIBUTE:
        v = jinja_eval(j, n->a);
        j->line = n->line;
        return jinja_attribute(j, v, n->text);
    case N_ITEM:
        v = jinja_eval(j, n->a);
        if (n->b->kind == N_SLICE) return slice_of(j, v, n->b);
        {
            const jinja_value key = jinja_eval(j, n->b);
            j->line = n->line;
            return jinja_item(j, v, key);
        }
    case N_CALL: return call(j, n);
    case N_FILTER:
        v = jinja_eval(j, n->a);
        {
            jinja_arguments a;
            take_arguments(j, &n->list, &a);
            j->line = n->line;
            return jinja_filter(j, n->text, v, &a);
        }
    case N_TEST: return test_value(j, n);
    default: jinja_fail(j, "not an expression");
    }
}

jinja_value jinja_eval(jinja *j, const jinja_node *n) {
    jinja_enter(j);
    const jinja_value v = value_of(j, n);
    jinja_leave(j);
    return v;
}
