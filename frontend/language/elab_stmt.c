/* Statements. After an error in a condition or a list, the variables that the skipped statements
 * would have set are poison, so that no later error follows from them. */
#include <string.h>

#include "frontend/language/elaborate.h"

static hfe_flow run_stmt(hfe_elab *e, const hfe_stmt *s);

hfe_flow hfe_run_block(hfe_elab *e, const hfe_block *b) {
    for (size_t i = 0; i < b->list.n; i++) {
        const hfe_stmt *s = b->list.at[i];
        if (!hfe_enter_eval(e, s->loc)) return HFE_RETURN;
        if (++e->statements > HFE_MAX_STATEMENTS)
            hfe_halt(e, s->loc, hd_printf(e->arena, "%d statements were run", HFE_MAX_STATEMENTS),
                     "this program runs too long");
        hfe_flow flow = e->stop ? HFE_RETURN : run_stmt(e, s);
        e->depth--;
        if (flow == HFE_RETURN || e->stop || e->raised) return HFE_RETURN;
    }
    return HFE_GO_ON;
}

/* ---- skipping ------------------------------------------------------------------------------ */
static void poison_block(hfe_elab *e, const hfe_block *b);

static void poison_stmt(hfe_elab *e, const hfe_stmt *s) {
    for (size_t i = 0; i < s->targets.n; i++)
        *hfe_variable(e, s->targets.at[i].name) = hfe_poison();
    const hfe_expr *x = s->kind == HFE_S_EXPR ? s->value : NULL;
    if (x && x->kind == HFE_X_CALL && x->call.callee->kind == HFE_X_FIELD &&
        /* Without the error, r.write(y) would have changed r. */
        x->call.callee->field.base->kind == HFE_X_NAME) {
        const hfe_value *v = hfe_variable(e, x->call.callee->field.base->name);
        if (v && hfe_is(*v, HFE_OBJECT)) v->object->broken = true;
    }
    poison_block(e, &s->body);
    poison_block(e, &s->otherwise);
}

static void poison_block(hfe_elab *e, const hfe_block *b) {
    for (size_t i = 0; i < b->list.n; i++)
        poison_stmt(e, b->list.at[i]);
}

/* ---- setting ------------------------------------------------------------------------------- */
static void unpack(hfe_elab *e, const hfe_stmt *s, hfe_value v) {
    bool fits = hfe_is(v, HFE_LIST) && v.list->n == s->targets.n;
    if (!fits && hfe_is(v, HFE_LIST))
        hfe_fail(e, HD_E_TYPE, s->value->loc, NULL, NULL,
                 "a list of %zu cannot be assigned to %zu variable%s", v.list->n, s->targets.n,
                 hd_s(s->targets.n));
    else if (!fits && !hfe_is(v, HFE_POISON))
        hfe_fail(e, HD_E_TYPE, s->value->loc, NULL, NULL,
                 "only a list can be assigned to several variables, not %s",
                 hfe_type_with_article(v.type));
    for (size_t i = 0; i < s->targets.n; i++)
        *hfe_variable(e, s->targets.at[i].name) = fits ? hfe_item(v.list, i) : hfe_poison();
}

static void set_element(hfe_elab *e, const hfe_stmt *s) {
    hfe_value *list = hfe_variable(e, s->targets.at[0].name);
    hfe_value index = hfe_eval(e, s->index), item = hfe_eval(e, s->value);
    if (hfe_is(*list, HFE_POISON) || hfe_is(index, HFE_POISON)) {
        *list = hfe_poison();
        return;
    }
    if (!hfe_is(*list, HFE_LIST)) {
        const char *what = hfe_is(*list, HFE_UNSET) ? "a variable without a value"
                                                    : hfe_type_with_article(list->type);
        *list = hfe_fail(e, HD_E_TYPE, s->targets.at[0].loc, NULL, NULL,
                         "%s has no elements to set", what);
        return;
    }
    int64_t n = (int64_t)list->list->n;
    int64_t i = hfe_is(index, HFE_INT) && index.integer < 0 ? index.integer + n : index.integer;
    if (!hfe_is(index, HFE_INT) || i < 0 || i >= n) {
        *list = hfe_fail(
            e, HD_E_VALUE, s->index->loc,
            hd_printf(e->arena, "the list has %lld element%s", (long long)n, hd_s((uint64_t)n)),
            NULL, hfe_is(index, HFE_INT) ? "this index is outside the list" : "an index is an int");
        return;
    }
    hfe_value copy =
        hfe_new_list(e, s->loc, list->list->buffer->items.at + list->list->start, list->list->n);
    if (hfe_is(copy, HFE_LIST)) {
        copy.list->buffer->items.at[i] = item;
        /* makes the list again, so that its depth counts the new item */
        copy = hfe_new_list(e, s->loc, copy.list->buffer->items.at, copy.list->n);
    }
    *list = copy;
}

/* ---- control ------------------------------------------------------------------------------- */
/* Weights are the same in all passes of a loop, since their names are; states are those of one. */
static hfe_flow run_pass(hfe_elab *e, const hfe_stmt *s, size_t i) {
    const hfe_pass outer = e->pass;
    e->pass.number = outer.number ? hd_printf(e->arena, "%s_%zu", outer.number, i)
                                  : hd_printf(e->arena, "%zu", i);
    e->pass.again = outer.again || i > 0;
    hfe_flow flow = hfe_run_block(e, &s->body);
    e->pass = outer;
    return flow;
}

/* Runs the body of a loop once. */
static hfe_flow run_step(hfe_elab *e, const hfe_stmt *s, size_t i, hfe_value item) {
    if (++e->statements > HFE_MAX_STATEMENTS) { /* counted here, since the body may be empty */
        hfe_halt(e, s->loc, hd_printf(e->arena, "%d statements were run", HFE_MAX_STATEMENTS),
                 "this program runs too long");
        return HFE_RETURN;
    }
    hfe_set_loop(e, s->targets.n == 2 ? s->targets.at[0].name : NULL,
                 s->targets.at[s->targets.n - 1].name, i, item);
    return s->kind == HFE_S_LOOP ? run_pass(e, s, i) : hfe_run_block(e, &s->body);
}

static bool is_range(const hfe_expr *x) {
    return x->kind == HFE_X_BINARY && x->binary.op == HFE_RANGE;
}

/* Runs for i in a..b without making the list. */
static hfe_flow run_count(hfe_elab *e, const hfe_stmt *s, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; i++)
        if (run_step(e, s, (size_t)((uint64_t)i - (uint64_t)from), hfe_int(i)) == HFE_RETURN)
            return HFE_RETURN;
    return HFE_GO_ON;
}

static hfe_flow run_for(hfe_elab *e, const hfe_stmt *s) {
    hfe_value over;
    if (is_range(s->value)) {
        hfe_value from = hfe_eval(e, s->value->binary.left);
        hfe_value to = hfe_eval(e, s->value->binary.right);
        if (hfe_is(from, HFE_INT) && hfe_is(to, HFE_INT)) {
            if (!hfe_range_is_legal(e, s->value->loc, from.integer, to.integer)) {
                poison_stmt(e, s);
                return HFE_GO_ON;
            }
            return run_count(e, s, from.integer, to.integer);
        }
        over = hfe_binary_value(e, s->value->loc, HFE_RANGE, from, to); /* reports the error */
    } else {
        over = hfe_eval(e, s->value);
    }
    if (!hfe_is(over, HFE_LIST)) {
        if (!hfe_is(over, HFE_POISON))
            hfe_fail(e, HD_E_TYPE, s->value->loc, NULL,
                     hfe_is(over, HFE_INT) ? "count with a range: for i in 0..n" : NULL,
                     "'%s' runs over a list, not %s", s->kind == HFE_S_LOOP ? "loop" : "for",
                     hfe_type_with_article(over.type));
        poison_stmt(e, s);
        return HFE_GO_ON;
    }
    for (size_t i = 0; i < over.list->n; i++)
        if (run_step(e, s, i, hfe_item(over.list, i)) == HFE_RETURN) return HFE_RETURN;
    return HFE_GO_ON;
}

static hfe_flow run_if(hfe_elab *e, const hfe_stmt *s) {
    hfe_value c = hfe_eval(e, s->value);
    if (hfe_is(c, HFE_BOOL)) return hfe_run_block(e, c.boolean ? &s->body : &s->otherwise);
    if (!hfe_is(c, HFE_POISON)) {
        hfe_fail(e, HD_E_TYPE, s->value->loc, NULL,
                 hfe_is(c, HFE_TENSOR) ? "numbers inside tensors are not known at compile time"
                                       : "compare it with something",
                 "a condition is a bool, not %s", hfe_type_with_article(c.type));
    }
    poison_stmt(e, s);
    return HFE_GO_ON;
}

static const char *enter_scope(hfe_elab *e, const hfe_stmt *s) {
    hfe_value v = hfe_eval(e, s->value);
    if (hfe_is(v, HFE_STRING) && hfe_is_name(v.string))
        return !e->scope[0] ? v.string : hd_printf(e->arena, "%s.%s", e->scope, v.string);
    if (hfe_is(v, HFE_STRING))
        hfe_fail(e, HD_E_VALUE, s->value->loc, NULL, NULL, "a scope is text, and not empty");
    else if (!hfe_is(v, HFE_POISON))
        hfe_fail(e, HD_E_TYPE, s->value->loc, NULL, NULL, "a scope is a string, not %s",
                 hfe_type_with_article(v.type));
    return hd_printf(e->arena, "error %zu", e->diags->errors); /* no weight has such a name */
}

static hfe_flow run_at(hfe_elab *e, const hfe_stmt *s) {
    const char *outer = e->scope;
    const char *inner = enter_scope(e, s);
    e->strings += strlen(inner);
    if (strlen(inner) > HFE_MAX_STRING || e->strings > HFE_MAX_STRINGS) {
        hfe_halt(e, s->loc, NULL, "the name of this scope grows too long");
        return HFE_RETURN;
    }
    e->scope = inner;
    hfe_flow flow = hfe_run_block(e, &s->body);
    e->scope = outer;
    return flow;
}

/* ---- results ------------------------------------------------------------------------------- */
static bool is_output_name(const char *s) {
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
    return n > 0 && !s[n] && !(s[0] >= '0' && s[0] <= '9');
}

static bool output_exists(const hir_module *m, const char *name) {
    HIR_EACH(m, op, m->first) {
        const hir_op *o = hir_op_at(m, op);
        if (o->code == HIR_OUTPUT_OP && strcmp(hir_attr_string(o, HIR_A_NAME, ""), name) == 0)
            return true;
    }
    return false;
}

static void run_output(hfe_elab *e, const hfe_stmt *s) {
    hfe_value v = hfe_eval(e, s->value), name = hfe_eval(e, s->name);
    if (s->targets.n == 1) *hfe_variable(e, s->targets.at[0].name) = v;
    if (hfe_is(v, HFE_POISON) || hfe_is(name, HFE_POISON)) return;
    if (!hfe_is(v, HFE_TENSOR)) {
        hfe_fail(e, HD_E_TYPE, s->value->loc, NULL, NULL, "an output is a tensor, not %s",
                 hfe_type_with_article(v.type));
        return;
    }
    if (v.tensor.kind != HIR_REF_VALUE) {
        hfe_fail(e, HD_E_TYPE, s->value->loc,
                 "an output is computed, a weight or a state is stored",
                 "reshape(w, shape(w)) makes a value of a weight", "this is not an output");
        return;
    }
    if (!is_output_name(name.string) || output_exists(e->m, name.string)) {
        bool twice = is_output_name(name.string);
        hfe_fail(e, HD_E_NAME, s->name->loc,
                 twice ? NULL : "it becomes a name in C: letters, digits and '_'", NULL,
                 twice ? "there are two outputs '%s'" : "'%s' cannot name an output", name.string);
        return;
    }
    hir_attr attr = hir_string(HIR_A_NAME, name.string);
    hfe_emit(e, s->value->loc, HIR_OUTPUT_OP, &v.tensor, 1, &attr, 1);
}

static hfe_flow run_stmt(hfe_elab *e, const hfe_stmt *s) {
    switch (s->kind) {
    case HFE_S_EXPR: hfe_eval(e, s->value); return HFE_GO_ON;
    case HFE_S_ASSIGN: {
        hfe_value v =
            s->mark != HFE_PLAIN
                ? e->p->words->run_marked(e, s)
                : hfe_eval(e, s->value); /* may move the variable: look it up afterwards */
        *hfe_variable(e, s->targets.at[0].name) = v;
        return HFE_GO_ON;
    }
    case HFE_S_UNPACK: unpack(e, s, hfe_eval(e, s->value)); return HFE_GO_ON;
    case HFE_S_ASSIGN_INDEX: set_element(e, s); return HFE_GO_ON;
    case HFE_S_FOR:
    case HFE_S_LOOP: return run_for(e, s);
    case HFE_S_IF: return run_if(e, s);
    case HFE_S_AT: return run_at(e, s);
    case HFE_S_RETURN:
        e->frame->result = s->value ? hfe_eval(e, s->value) : hfe_none();
        return HFE_RETURN;
    case HFE_S_OUTPUT: run_output(e, s); return HFE_GO_ON;
    case HFE_S_INCLUDE: e->p->words->run_include(e, s); return HFE_GO_ON;
    }
    return HFE_GO_ON;
}
