/* Statements: blocks, loops, variables and macros. A scope holds the variables that were given a
 * value in it, and reads those of the scopes around it; each turn of a loop has a scope of its
 * own. */
#include <string.h>

#include "text/jinja_tree.h"

typedef enum flow { ON, BREAK, CONTINUE } flow;

static flow run(jinja *j, const node_list *list);

/* ---- scopes ---------------------------------------------------------------------------------- */

jinja_value jinja_lookup(jinja *j, int32_t name) {
    for (const jinja_scope *s = j->scope; s; s = s->outer) {
        jinja_step(j, s->variables.n / 16);
        for (size_t i = s->variables.n; i-- > 0;)
            if (s->variables.at[i].name == name) return s->variables.at[i].value;
    }
    return (jinja_value){.kind = J_ABSENT};
}

static void bind(jinja *j, jinja_scope *s, int32_t name, jinja_value v) {
    jinja_step(j, s->variables.n / 16);
    for (size_t i = 0; i < s->variables.n; i++)
        if (s->variables.at[i].name == name) {
            s->variables.at[i].value = v;
            return;
        }
    if (s->variables.n == s->variables.cap)
        (void)jinja_alloc(j, s->variables.n + 4, sizeof(jinja_bound));
    hd_push(j->arena, &s->variables, ((jinja_bound){name, v}));
}

static jinja_scope *open_scope(jinja *j, jinja_scope *outer) {
    jinja_scope *s = jinja_alloc(j, 1, sizeof *s);
    s->outer = outer;
    return s;
}

static void assign(jinja *j, const jinja_node *target, jinja_value v) {
    j->line = target->line;
    if (target->kind == N_NAME) {
        bind(j, j->scope, target->name, v);
    } else if (target->kind == N_MEMBER) {
        const jinja_value of = jinja_eval(j, target->a);
        if (of.kind != J_NAMESPACE) jinja_fail(j, "only members of a namespace can be set");
        if (target->text->n && target->text->at[0] == '_')
            jinja_fail(j, "members of a namespace must not begin with '_'");
        jinja_assign(j, of.dict, jinja_of(target->text), v);
    } else {
        const jinja_value all = jinja_elements(j, v);
        if (all.sequence->n != target->list.n)
            jinja_fail(j, "%zu values for %zu names", all.sequence->n, target->list.n);
        for (size_t i = 0; i < target->list.n; i++)
            assign(j, target->list.at[i], all.sequence->at[i]);
    }
}

/* ---- macros ---------------------------------------------------------------------------------- */

static const jinja_string *captured(jinja *j, const node_list *list, jinja_scope *scope) {
    jinja_output own = {0}, *const outer = j->out;
    jinja_scope *const before = j->scope;
    j->out = &own, j->scope = scope;
    (void)run(j, list);
    j->out = outer, j->scope = before;
    return jinja_taken(j, &own);
}

static const jinja_value *named(const jinja_arguments *a, const jinja_string *name, size_t *used) {
    for (size_t i = 0; i < a->n_named; i++)
        if (a->names[i]->n == name->n && memcmp(a->names[i]->at, name->at, name->n) == 0) {
            ++*used;
            return &a->named[i];
        }
    return NULL;
}

jinja_value jinja_call_macro(jinja *j, const jinja_callable *f, const jinja_arguments *a) {
    const jinja_node *m = f->macro;
    static const jinja_string caller = {"caller", 6, NULL, false};
    jinja_scope *own = open_scope(j, f->scope), *const before = j->scope;
    size_t used = 0;
    jinja_enter(j);
    if (a->n > m->parameters.n)
        jinja_fail(j, "the macro '%.*s' takes %zu arguments, not %zu", (int)m->text->n, m->text->at,
                   m->parameters.n, a->n);
    j->scope = own;
    for (size_t i = 0; i < m->parameters.n; i++) {
        const jinja_node *p = m->parameters.at[i];
        const jinja_value *given = i < a->n ? NULL : named(a, p->text, &used);
        bind(j, own, p->name,
             i < a->n ? a->at[i]
             : given  ? *given
             : p->a   ? jinja_eval(j, p->a)
                      : jinja_undefined(hd_printf(j->arena, "the parameter '%.*s' was not given",
                                                  (int)p->text->n, p->text->at)));
    }
    const jinja_value *by = named(a, &caller, &used);
    bind(j, own, j->t->caller, by ? *by : jinja_undefined("no caller is defined"));
    if (used < a->n_named)
        jinja_fail(j, "the macro '%.*s' has no parameter of such a name", (int)m->text->n,
                   m->text->at);
    j->scope = before;
    const jinja_string *out = captured(j, &m->list, own);
    jinja_leave(j);
    return jinja_of(out);
}

static jinja_value macro_value(jinja *j, const jinja_node *n) {
    jinja_callable *f = jinja_alloc(j, 1, sizeof *f);
    *f = (jinja_callable){.macro = n, .scope = j->scope};
    return (jinja_value){.kind = J_CALLABLE, .callable = f};
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static flow run_if(jinja *j, const jinja_node *n) {
    for (size_t i = 0; i + 1 < n->list.n; i += 2)
        if (jinja_true(jinja_eval(j, n->list.at[i]))) return run(j, &n->list.at[i + 1]->list);
    return n->b ? run(j, &n->b->list) : ON;
}

/* Keeps the elements that pass the test of the loop. */
static jinja_value passing(jinja *j, const jinja_node *n, jinja_value all) {
    jinja_scope *const before = j->scope;
    jinja_value out = jinja_list(j, SEQ_LIST, all.sequence->n);
    out.sequence->n = 0;
    for (size_t i = 0; i < all.sequence->n; i++) {
        j->scope = open_scope(j, before);
        assign(j, n->a, all.sequence->at[i]);
        if (jinja_true(jinja_eval(j, n->c)))
            out.sequence->at[out.sequence->n++] = all.sequence->at[i];
    }
    j->scope = before;
    return out;
}

static flow turn(jinja *j, const jinja_node *n, jinja_loop *l, jinja_scope *before) {
    j->scope = open_scope(j, before);
    assign(j, n->a, l->at[l->i]);
    bind(j, j->scope, j->t->loop, (jinja_value){.kind = J_LOOP, .loop = l});
    return run(j, &n->list);
}

static void run_loop(jinja *j, const jinja_node *n, jinja_value over, size_t depth) {
    jinja_scope *const before = j->scope;
    jinja_value all = jinja_elements(j, over);
    if (n->c) all = passing(j, n, all);
    jinja_loop *l = jinja_alloc(j, 1, sizeof *l);
    *l = (jinja_loop){.at = all.sequence->at,
                      .n = all.sequence->n,
                      .depth = depth,
                      .recursive = n->flag ? n : NULL,
                      .scope = before};
    for (; l->i < l->n; l->i++) {
        jinja_step(j, 1);
        if (turn(j, n, l, before) == BREAK) break;
    }
    j->scope = before;
    if (l->n == 0 && n->d) {
        j->scope = open_scope(j, before);
        (void)run(j, &n->d->list);
        j->scope = before;
    }
}

jinja_value jinja_recurse(jinja *j, const jinja_loop *l, jinja_value over) {
    jinja_output own = {0}, *const outer = j->out;
    jinja_scope *const before = j->scope;
    if (!l->recursive) jinja_fail(j, "the loop is not recursive: {%% for .. recursive %%}");
    j->out = &own, j->scope = l->scope;
    run_loop(j, l->recursive, over, l->depth + 1);
    j->out = outer, j->scope = before;
    return jinja_of(jinja_taken(j, &own));
}

static flow run_with(jinja *j, const jinja_node *n) {
    jinja_scope *const before = j->scope, *own = open_scope(j, before);
    for (size_t i = 0; i < n->parameters.n; i++) {
        j->scope = before; /* values do not see the names of the block */
        const jinja_value v = jinja_eval(j, n->parameters.at[i]->b);
        j->scope = own;
        assign(j, n->parameters.at[i]->a, v);
    }
    j->scope = own;
    const flow f = run(j, &n->list);
    j->scope = before;
    return f;
}

static void run_caller(jinja *j, const jinja_node *n) {
    jinja_node call = *n->a, caller = {.kind = N_KEYWORD, .line = n->line, .name = -1};
    jinja_node value = {
        .kind = N_CONST, .line = n->line, .name = -1, .value = macro_value(j, n->b)};
    jinja_node **list = jinja_alloc(j, call.list.n + 1, sizeof(jinja_node *));
    if (call.list.n) memcpy(list, call.list.at, call.list.n * sizeof *list);
    caller.text = n->b->text, caller.a = &value;
    list[call.list.n] = &caller;
    call.list.at = list, call.list.n++;
    jinja_put(j, j->out, jinja_str(j, jinja_eval(j, &call)));
}

static void put_value(jinja *j, jinja_value v) {
    jinja_put(j, j->out, jinja_str(j, v));
}

static flow run_one(jinja *j, const jinja_node *n) {
    switch (n->kind) {
    case N_TEXT: jinja_put(j, j->out, n->text); return ON;
    case N_OUTPUT: put_value(j, jinja_eval(j, n->a)); return ON;
    case N_IF: return run_if(j, n);
    case N_FOR: run_loop(j, n, jinja_eval(j, n->b), 0); return ON;
    case N_SET: assign(j, n->a, jinja_eval(j, n->b)); return ON;
    case N_CAPTURE: {
        const jinja_value text = jinja_of(captured(j, &n->list, open_scope(j, j->scope)));
        assign(j, n->a, n->b ? jinja_filters_of(j, n->b, text) : text);
        return ON;
    }
    case N_MACRO: bind(j, j->scope, n->name, macro_value(j, n)); return ON;
    case N_CALLER: run_caller(j, n); return ON;
    case N_FILTERED: {
        const jinja_value text = jinja_of(captured(j, &n->list, open_scope(j, j->scope)));
        put_value(j, jinja_filters_of(j, n->b, text));
        return ON;
    }
    case N_WITH: return run_with(j, n);
    case N_SCOPE: put_value(j, jinja_of(captured(j, &n->list, open_scope(j, j->scope)))); return ON;
    case N_BREAK: return BREAK;
    case N_CONTINUE: return CONTINUE;
    default: jinja_fail(j, "not a statement");
    }
}

static flow run(jinja *j, const node_list *list) {
    flow f = ON;
    jinja_enter(j);
    for (size_t i = 0; f == ON && i < list->n; i++) {
        jinja_step(j, 1);
        j->line = list->at[i]->line;
        f = run_one(j, list->at[i]);
        if (j->out->n > j->limits.output)
            jinja_exceed(j, hd_printf(j->arena, "%llu bytes of output",
                                      (unsigned long long)j->limits.output));
    }
    jinja_leave(j);
    return f;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void bind_variables(jinja *j) {
    for (size_t i = 0; i < j->in->n_variables; i++) {
        const jinja_variable *v = &j->in->variables[i];
        const int32_t id = string_map_find(&j->t->ids, v->name, strlen(v->name));
        if (id >= 0) bind(j, j->scope, id, jinja_from_json(j, v->value, v->content));
    }
}

bool jinja_render(hd_arena *a, const jinja_template *t, const jinja_input *in, jinja_string *out,
                  jinja_error *error) {
    const jinja_limits *l = &in->limits;
    jinja_output all = {0};
    jinja j = {.arena = a, .t = t, .in = in, .error = error, .out = &all};
    j.limits = (jinja_limits){.steps = l->steps ? l->steps : 5000000,
                              .memory = l->memory ? l->memory : 256u << 20,
                              .depth = l->depth ? l->depth : 500,
                              .output = l->output ? l->output : 64u << 20};
    *error = (jinja_error){0};
    if (setjmp(j.entry)) return false;
    j.scope = open_scope(&j, NULL);
    bind_variables(&j);
    j.scope = open_scope(&j, j.scope);
    (void)run(&j, &t->body);
    *out = *jinja_taken(&j, &all);
    return true;
}
