/* Expressions: literals, operators, lists. */
#include <math.h>
#include <string.h>

#include "frontend/language/elaborate.h"

enum { MAX_DEPTH = 4000 }; /* of evaluation; a level takes some hundred bytes of C stack */

bool hfe_enter_eval(hfe_elab *e, hd_loc loc) {
    if (e->stop) return false;
    if (e->depth >= MAX_DEPTH) {
        hfe_halt(e, loc, "calls, blocks and expressions stand inside each other too often",
                 "the evaluation nests too deeply");
        return false;
    }
    e->depth++;
    return true;
}

/* ---- strings and lists --------------------------------------------------------------------- */
static hfe_value eval_string(hfe_elab *e, const hfe_expr *x) {
    if (x->string.pieces.n == 1 && !x->string.pieces.at[0].value)
        return hfe_string(x->string.pieces.at[0].text);
    hd_text text;
    hd_text_init(&text, e->arena);
    for (size_t i = 0; i < x->string.pieces.n; i++) {
        const hfe_piece *piece = &x->string.pieces.at[i];
        if (!piece->value) {
            hd_text_add(&text, piece->text);
            continue;
        }
        hfe_value v = hfe_eval(e, piece->value);
        bool shown =
            v.type == HFE_INT || v.type == HFE_FLOAT || v.type == HFE_BOOL || v.type == HFE_STRING;
        if (hfe_is(v, HFE_POISON)) return v;
        if (!shown)
            return hfe_fail(e, HD_E_TYPE, piece->value->loc, NULL,
                            "ints, floats, bools and strings have text",
                            "%s cannot stand in a string", hfe_type_with_article(v.type));
        hfe_show(v, &text);
        if (text.n > HFE_MAX_STRING) break;
    }
    return hfe_new_string(e, x->loc, text.at ? text.at : "", text.n);
}

static hfe_value eval_list(hfe_elab *e, const hfe_expr *x) {
    size_t n = x->list.list.n;
    hfe_value *items = hd_new_array(e->arena, hfe_value, n);
    for (size_t i = 0; i < n; i++)
        items[i] = hfe_eval(e, x->list.list.at[i]);
    return hfe_new_list(e, x->loc, items, n);
}

/* Counts each step of a loop as a statement, so that every loop ends. */
static bool count_step(hfe_elab *e, hd_loc loc) {
    if (++e->statements > HFE_MAX_STATEMENTS)
        hfe_halt(e, loc, hd_printf(e->arena, "%d statements were run", HFE_MAX_STATEMENTS),
                 "this program runs too long");
    return !e->stop;
}

void hfe_set_loop(hfe_elab *e, const char *index_name, const char *name, size_t i, hfe_value item) {
    if (index_name) *hfe_variable(e, index_name) = hfe_int((int64_t)i);
    if (name) *hfe_variable(e, name) = item;
}

static void fill_comprehension(hfe_elab *e, const hfe_expr *x, const hfe_list *over,
                               hfe_value *out) {
    for (size_t i = 0; i < over->n && count_step(e, x->loc) && hfe_is(*out, HFE_LIST); i++) {
        hfe_set_loop(e, x->each.index_name, x->each.name, i, hfe_item(over, i));
        if (x->each.condition) {
            hfe_value c = hfe_eval(e, x->each.condition);
            if (!hfe_is(c, HFE_BOOL)) {
                if (!hfe_is(c, HFE_POISON))
                    hfe_fail(e, HD_E_TYPE, x->each.condition->loc, NULL, NULL,
                             "a condition is a bool, not %s", hfe_type_with_article(c.type));
                *out = hfe_poison();
                return;
            }
            if (!c.boolean) continue;
        }
        *out = hfe_append(e, x->loc, out->list, hfe_eval(e, x->each.value));
    }
}

/* Evaluates a comprehension; afterwards its variables have their old values again. */
static hfe_value eval_comprehension(hfe_elab *e, const hfe_expr *x) {
    hfe_value over = hfe_eval(e, x->each.over);
    if (!hfe_is(over, HFE_LIST)) {
        return hfe_is(over, HFE_POISON)
                   ? over
                   : hfe_fail(e, HD_E_TYPE, x->each.over->loc, NULL, NULL,
                              "'for' runs over a list, not %s", hfe_type_with_article(over.type));
    }
    hfe_value *index = x->each.index_name ? hfe_variable(e, x->each.index_name) : NULL;
    hfe_value *item = hfe_variable(e, x->each.name);
    hfe_value old_index = index ? *index : hfe_none(), old_item = *item;
    hfe_value out = hfe_new_list(e, x->loc, NULL, 0);
    if (!hfe_is(out, HFE_LIST)) return out;
    fill_comprehension(e, x, over.list, &out);
    *item = old_item;
    if (index) *index = old_index;
    return out;
}

/* ---- elements ------------------------------------------------------------------------------ */
/* Evaluates an index, which counts from the end if it is negative, to a position in 0 .. limit. */
static bool eval_position(hfe_elab *e, const hfe_expr *x, size_t n, int64_t limit, int64_t *out) {
    hfe_value v = hfe_eval(e, x);
    if (hfe_is(v, HFE_POISON)) return false;
    if (!hfe_is(v, HFE_INT)) {
        hfe_fail(e, HD_E_TYPE, x->loc, NULL, NULL, "an index is an int, not %s",
                 hfe_type_with_article(v.type));
        return false;
    }
    *out = v.integer < 0 ? v.integer + (int64_t)n : v.integer;
    if (*out < 0 || *out > limit) {
        hfe_fail(e, HD_E_VALUE, x->loc,
                 hd_printf(e->arena, "the list has %zu element%s", n, hd_s(n)), NULL,
                 "index %lld is outside the list", (long long)v.integer);
        return false;
    }
    return true;
}

static bool eval_indexed(hfe_elab *e, const hfe_expr *x, const hfe_expr *base, hfe_value *out) {
    *out = hfe_eval(e, base);
    if (hfe_is(*out, HFE_LIST)) return true;
    if (!hfe_is(*out, HFE_POISON)) {
        const char *hint =
            hfe_is(*out, HFE_TENSOR) ? "parts of tensors: slice(x, axis, start, length)" : NULL;
        hfe_fail(e, HD_E_TYPE, x->loc, NULL, hint, "%s has no elements to index",
                 hfe_type_with_article(out->type));
    }
    return false;
}

static hfe_value eval_index(hfe_elab *e, const hfe_expr *x) {
    hfe_value base;
    int64_t i;
    if (!eval_indexed(e, x, x->index.base, &base) ||
        !eval_position(e, x->index.index, base.list->n, (int64_t)base.list->n - 1, &i))
        return hfe_poison();
    return hfe_item(base.list, (size_t)i);
}

static hfe_value eval_slice(hfe_elab *e, const hfe_expr *x) {
    hfe_value base;
    if (!eval_indexed(e, x, x->slice.base, &base)) return hfe_poison();
    int64_t n = (int64_t)base.list->n, from = 0, to = n;
    if ((x->slice.from && !eval_position(e, x->slice.from, base.list->n, n, &from)) ||
        (x->slice.to && !eval_position(e, x->slice.to, base.list->n, n, &to)))
        return hfe_poison();
    hfe_list *part = hd_new(e->arena, hfe_list);
    *part = *base.list;
    part->start += (size_t)from;
    part->n = to > from ? (size_t)(to - from) : 0;
    return (hfe_value){.type = HFE_LIST, .list = part};
}

/* ---- operators on numbers ------------------------------------------------------------------ */
static hfe_value reject_operands(hfe_elab *e, hd_loc loc, hfe_binary op, hfe_value a, hfe_value b) {
    const char *hint = NULL;
    if (hfe_is(a, HFE_DIM) || hfe_is(b, HFE_DIM))
        hint = "T and C have no value at compile time; they stand in shapes only";
    else if (hfe_is(a, HFE_TENSOR) || hfe_is(b, HFE_TENSOR))
        hint = "tensors take + - * / and the ops of the table";
    else if (op == HFE_ADD && (hfe_is(a, HFE_STRING) || hfe_is(b, HFE_STRING)))
        hint = "put values into strings with {}: \"layer {l}\"";
    else if (op == HFE_ADD && (hfe_is(a, HFE_LIST) || hfe_is(b, HFE_LIST)))
        hint = "lists join lists: xs + [x]";
    return hfe_fail(e, HD_E_TYPE, loc, NULL, hint, "'%s' does not take %s and %s",
                    hfe_binary_text(op), hfe_type_with_article(a.type),
                    hfe_type_with_article(b.type));
}

static hfe_value overflow(hfe_elab *e, hd_loc loc, hfe_binary op, int64_t a, int64_t b) {
    return hfe_fail(e, HD_E_VALUE, loc, "ints have 64 bits", NULL, "%lld %s %lld overflows",
                    (long long)a, hfe_binary_text(op), (long long)b);
}

/* Divides and rounds down; the remainder has the sign of b. */
static int64_t floor_div(int64_t a, int64_t b) {
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static hfe_value int_division(hfe_elab *e, hd_loc loc, hfe_binary op, int64_t a, int64_t b) {
    if (b == 0) return hfe_fail(e, HD_E_VALUE, loc, NULL, NULL, "division by zero");
    if (a == INT64_MIN && b == -1) return op == HFE_MOD ? hfe_int(0) : overflow(e, loc, op, a, b);
    if (op == HFE_DIV && a % b != 0)
        return hfe_fail(e, HD_E_VALUE, loc, "'/' of two ints must come out even",
                        "'//' rounds down; float(a) / b is the quotient",
                        "%lld is not a multiple of %lld", (long long)a, (long long)b);
    return hfe_int(op == HFE_MOD ? a - floor_div(a, b) * b : floor_div(a, b));
}

static hfe_value int_arithmetic(hfe_elab *e, hd_loc loc, hfe_binary op, int64_t a, int64_t b) {
    int64_t y = 0;
    bool wrong = false;
    switch (op) {
    case HFE_ADD: wrong = hd_add_overflow(a, b, &y); break;
    case HFE_SUB: wrong = __builtin_sub_overflow(a, b, &y); break;
    case HFE_MUL: wrong = hd_mul_overflow(a, b, &y); break;
    default: return int_division(e, loc, op, a, b);
    }
    return wrong ? overflow(e, loc, op, a, b) : hfe_int(y);
}

static hfe_value float_arithmetic(hfe_elab *e, hd_loc loc, hfe_binary op, double a, double b) {
    if (b == 0 && (op == HFE_DIV || op == HFE_FLOOR_DIV || op == HFE_MOD))
        return hfe_fail(e, HD_E_VALUE, loc, NULL, NULL, "division by zero");
    switch (op) {
    case HFE_ADD: return hfe_float(a + b);
    case HFE_SUB: return hfe_float(a - b);
    case HFE_MUL: return hfe_float(a * b);
    case HFE_DIV: return hfe_float(a / b);
    case HFE_FLOOR_DIV: return hfe_float(floor(a / b));
    default: return hfe_float(a - floor(a / b) * b);
    }
}

/* Returns the length C / r, which has one entry for each r whole positions. */
static hfe_value length_over(hfe_elab *e, hd_loc loc, hfe_value length, int64_t by) {
    int64_t rate;
    if (by < 1 || hd_mul_overflow(hir_rate(length.integer), by, &rate) || rate > HIR_MAX_RATE)
        return hfe_fail(e, HD_E_VALUE, loc, "C / r is one for each r positions", NULL,
                        "a row cannot stand for that many positions; they are 1 to %d",
                        HIR_MAX_RATE);
    return hfe_dim(hir_over_rate(rate));
}

static hfe_value compare(hfe_elab *e, hd_loc loc, hfe_binary op, hfe_value a, hfe_value b) {
    int order;
    if (hfe_is(a, HFE_INT) && hfe_is(b, HFE_INT)) {
        order = (a.integer > b.integer) - (a.integer < b.integer);
    } else if (hfe_is_number(a) && hfe_is_number(b)) {
        double x = hfe_as_number(a), y = hfe_as_number(b);
        order = (x > y) - (x < y);
    } else if (hfe_is(a, HFE_STRING) && hfe_is(b, HFE_STRING)) {
        order = strcmp(a.string, b.string);
    } else {
        return reject_operands(e, loc, op, a, b);
    }
    switch (op) {
    case HFE_LT: return hfe_bool(order < 0);
    case HFE_LE: return hfe_bool(order <= 0);
    case HFE_GT: return hfe_bool(order > 0);
    default: return hfe_bool(order >= 0);
    }
}

bool hfe_range_is_legal(hfe_elab *e, hd_loc loc, int64_t from, int64_t to) {
    if (to >= from) return true;
    hfe_fail(e, HD_E_VALUE, loc, NULL, "a..a is an empty range",
             "the range %lld..%lld ends before it begins", (long long)from, (long long)to);
    return false;
}

static hfe_value make_range(hfe_elab *e, hd_loc loc, hfe_value a, hfe_value b) {
    if (!hfe_is(a, HFE_INT) || !hfe_is(b, HFE_INT)) return reject_operands(e, loc, HFE_RANGE, a, b);
    if (!hfe_range_is_legal(e, loc, a.integer, b.integer)) return hfe_poison();
    int64_t n;
    if (__builtin_sub_overflow(b.integer, a.integer, &n) || n > HFE_MAX_LIST)
        return hfe_fail(e, HD_E_LIMIT, loc,
                        hd_printf(e->arena, "a list may have %d elements", HFE_MAX_LIST), NULL,
                        "%lld..%lld is too long", (long long)a.integer, (long long)b.integer);
    hfe_value *items = hd_new_array(e->arena, hfe_value, (size_t)n);
    for (int64_t i = 0; i < n; i++)
        items[i] = hfe_int(a.integer + i);
    return hfe_new_list(e, loc, items, (size_t)n);
}

/* ---- operators on other values ------------------------------------------------------------- */
static hfe_value join_lists(hfe_elab *e, hd_loc loc, const hfe_list *a, const hfe_list *b) {
    hfe_value out = {.type = HFE_LIST, .list = a};
    for (size_t i = 0; i < b->n && hfe_is(out, HFE_LIST); i++)
        out = hfe_append(e, loc, out.list, hfe_item(b, i));
    return out;
}

static hfe_value join_strings(hfe_elab *e, hd_loc loc, const char *a, const char *b) {
    hd_text text;
    hd_text_init(&text, e->arena);
    hd_text_add(&text, a);
    hd_text_add(&text, b);
    return hfe_new_string(e, loc, text.at ? text.at : "", text.n);
}

static hfe_value tensor_operator(hfe_elab *e, hd_loc loc, hfe_binary op, hfe_value a, hfe_value b) {
    static const hir_opcode codes[] = {[HFE_ADD] = HIR_ADD_OP,
                                       [HFE_SUB] = HIR_SUB_OP,
                                       [HFE_MUL] = HIR_MUL_OP,
                                       [HFE_DIV] = HIR_DIV_OP};
    hir_ref args[2];
    bool fits = (hfe_is(a, HFE_TENSOR) || hfe_is_number(a)) &&
                (hfe_is(b, HFE_TENSOR) || hfe_is_number(b)) && op <= HFE_DIV;
    if (!fits) return reject_operands(e, loc, op, a, b);
    if (!hfe_operand(e, loc, a, "left", &args[0]) || !hfe_operand(e, loc, b, "right", &args[1]))
        return hfe_poison();
    return hfe_emit(e, loc, codes[op], args, 2, NULL, 0);
}

static bool is_arithmetic(hfe_binary op) {
    return op <= HFE_MOD;
}

hfe_value hfe_binary_value(hfe_elab *e, hd_loc loc, hfe_binary op, hfe_value a, hfe_value b) {
    if (hfe_is(a, HFE_POISON) || hfe_is(b, HFE_POISON)) return hfe_poison();
    if (op == HFE_EQ || op == HFE_NE) return hfe_bool(hfe_equal(a, b) == (op == HFE_EQ));
    if (op == HFE_RANGE) return make_range(e, loc, a, b);
    if (!is_arithmetic(op)) return compare(e, loc, op, a, b);
    if (hfe_is(a, HFE_INT) && hfe_is(b, HFE_INT))
        return int_arithmetic(e, loc, op, a.integer, b.integer);
    if (hfe_is_number(a) && hfe_is_number(b))
        return float_arithmetic(e, loc, op, hfe_as_number(a), hfe_as_number(b));
    if (op == HFE_ADD && hfe_is(a, HFE_LIST) && hfe_is(b, HFE_LIST))
        return join_lists(e, loc, a.list, b.list);
    if (op == HFE_ADD && hfe_is(a, HFE_STRING) && hfe_is(b, HFE_STRING))
        return join_strings(e, loc, a.string, b.string);
    const bool length = hfe_is(a, HFE_DIM) && hir_is_length(a.integer);
    if (op == HFE_DIV && length && hfe_is(b, HFE_INT)) return length_over(e, loc, a, b.integer);
    return tensor_operator(e, loc, op, a, b);
}

static hfe_value need_bool(hfe_elab *e, hd_loc loc, const char *what, hfe_value v) {
    if (hfe_is(v, HFE_BOOL) || hfe_is(v, HFE_POISON)) return v;
    return hfe_fail(e, HD_E_TYPE, loc, NULL,
                    hfe_is(v, HFE_TENSOR) ? "numbers inside tensors are not known at compile time"
                                          : NULL,
                    "'%s' takes bools, not %s", what, hfe_type_with_article(v.type));
}

static hfe_value eval_binary(hfe_elab *e, const hfe_expr *x) {
    hfe_binary op = x->binary.op;
    hfe_value a = hfe_eval(e, x->binary.left);
    if (op == HFE_OR_ELSE) return hfe_is(a, HFE_NONE) ? hfe_eval(e, x->binary.right) : a;
    if (op == HFE_AND || op == HFE_OR) {
        a = need_bool(e, x->binary.left->loc, hfe_binary_text(op), a);
        if (hfe_is(a, HFE_POISON) || a.boolean == (op == HFE_OR)) return a;
        return need_bool(e, x->binary.right->loc, hfe_binary_text(op),
                         hfe_eval(e, x->binary.right));
    }
    return hfe_binary_value(e, x->loc, op, a, hfe_eval(e, x->binary.right));
}

static hfe_value eval_neg(hfe_elab *e, const hfe_expr *x) {
    hfe_value v = hfe_eval(e, x->operand);
    hir_ref arg;
    switch (v.type) {
    case HFE_INT: return int_arithmetic(e, x->loc, HFE_SUB, 0, v.integer);
    case HFE_FLOAT: return hfe_float(-v.number);
    case HFE_TENSOR:
        return hfe_operand(e, x->loc, v, "operand", &arg)
                   ? hfe_emit(e, x->loc, HIR_NEG_OP, &arg, 1, NULL, 0)
                   : hfe_poison();
    case HFE_POISON: return v;
    default:
        return hfe_fail(e, HD_E_TYPE, x->loc, NULL, NULL, "'-' does not take %s",
                        hfe_type_with_article(v.type));
    }
}

static hfe_value eval_choice(hfe_elab *e, const hfe_expr *x) {
    hfe_value c = need_bool(e, x->choice.condition->loc, "if", hfe_eval(e, x->choice.condition));
    if (hfe_is(c, HFE_POISON)) return c;
    return hfe_eval(e, c.boolean ? x->choice.yes : x->choice.no);
}

/* ---- all expressions ----------------------------------------------------------------------- */
static hfe_value eval_inner(hfe_elab *e, const hfe_expr *x) {
    switch (x->kind) {
    case HFE_X_NONE: return hfe_none();
    case HFE_X_BOOL: return hfe_bool(x->boolean);
    case HFE_X_INT: return hfe_int(x->integer);
    case HFE_X_FLOAT: return hfe_float(x->number);
    case HFE_X_STRING: return eval_string(e, x);
    case HFE_X_NAME:
    case HFE_X_OP_NAME: return hfe_lookup(e, x);
    case HFE_X_LIST: return eval_list(e, x);
    case HFE_X_COMPREHENSION: return eval_comprehension(e, x);
    case HFE_X_NEG: return eval_neg(e, x);
    case HFE_X_NOT: {
        hfe_value v = need_bool(e, x->loc, "not", hfe_eval(e, x->operand));
        return hfe_is(v, HFE_BOOL) ? hfe_bool(!v.boolean) : v;
    }
    case HFE_X_BINARY: return eval_binary(e, x);
    case HFE_X_IF: return eval_choice(e, x);
    case HFE_X_CALL: return hfe_eval_call(e, x);
    case HFE_X_INDEX: return eval_index(e, x);
    case HFE_X_SLICE: return eval_slice(e, x);
    case HFE_X_FIELD: return hfe_eval_field(e, x);
    default: return hfe_poison();
    }
}

hfe_value hfe_eval(hfe_elab *e, const hfe_expr *x) {
    if (!hfe_enter_eval(e, x->loc)) return hfe_poison();
    hfe_value v = eval_inner(e, x);
    e->depth--;
    return v;
}
