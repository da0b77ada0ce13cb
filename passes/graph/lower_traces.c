/* lower-traces: ops that compute nothing are removed; `trace` ops become outputs on request.
 *
 * Needs    a graph.
 * Does     With keep_traces, each trace becomes an `output` named name.M, M counting the traces of
 *          that name in program order; they come after all other outputs, so that the numbers of
 *          those do not change. Without, traces are removed. A detach is its operand: gradients,
 *          which alone see it, have been taken if they are wanted.
 * Leaves   everything else, also ops that only a removed trace used (dce removes them).
 */
#include <string.h>

#include "passes/util.h"

typedef struct counter {
    const char *name;
    int64_t n;
} counter;

typedef struct lowering {
    hir_pass_context *c;
    HD_VEC(counter) counters;
    HD_VEC(const char *) outputs; /* names in use */
} lowering;

static int64_t next_number(lowering *l, const char *name) {
    for (size_t i = 0; i < l->counters.n; i++)
        if (!strcmp(l->counters.at[i].name, name)) return l->counters.at[i].n++;
    counter first = {name, 1};
    hd_push(l->c->scratch, &l->counters, first);
    return 0;
}

static bool is_taken(const lowering *l, const char *name) {
    for (size_t i = 0; i < l->outputs.n; i++)
        if (!strcmp(l->outputs.at[i], name)) return true;
    return false;
}

static bool lower(lowering *l, hir_id op) {
    hir_module *m = l->c->m;
    hir_builder b = hir_at_end(m, l->c->diags);
    b.loc = *hir_op_at(m, op)->loc;
    const char *name = hir_attr_string(hir_op_at(m, op), HIR_A_NAME, "");
    name = hd_printf(l->c->scratch, "%s.%lld", name, (long long)next_number(l, name));
    if (is_taken(l, name)) {
        hd_err(l->c->diags, HD_E_NAME, b.loc, "a trace needs the name '%s', which an output has",
               name)
            ->hint = "give the output another name";
        return false;
    }
    hir_ref x = pass_arg(m, op, 0);
    hir_attr attr = hir_string(HIR_A_NAME, name);
    return hir_build(&b, HIR_OUTPUT_OP, &x, 1, &attr, 1) != HIR_NONE;
}

static bool drop_detached(hir_pass_context *c) {
    pass_forward f = {.arena = c->scratch};
    bool any = false;
    HIR_EACH(c->m, op, c->m->first) {
        if (hir_op_at(c->m, op)->code != HIR_DETACH_OP) continue;
        pass_forward_op(&f, c->m, op, pass_arg(c->m, op, 0));
        any = true;
    }
    if (any) pass_forward_finish(&f, c->m);
    return any;
}

bool pass_lower_traces(hir_pass_context *c) {
    lowering l = {.c = c};
    HD_VEC(hir_id) traces = {0};
    HIR_EACH(c->m, op, c->m->first) {
        const hir_op *o = hir_op_at(c->m, op);
        if (o->code == HIR_TRACE_OP) hd_push(c->scratch, &traces, op);
        if (o->code == HIR_OUTPUT_OP)
            hd_push(c->scratch, &l.outputs, hir_attr_string(o, HIR_A_NAME, ""));
    }
    for (size_t i = 0; i < traces.n; i++) {
        if (c->options->keep_traces && !lower(&l, traces.at[i])) return false;
        hir_erase(c->m, traces.at[i]);
    }
    c->changed = drop_detached(c) || traces.n > 0;
    if (traces.n && c->options->keep_traces)
        hir_remark_add(c, true, HIR_NONE,
                       traces.n == 1 ? "%zu trace becomes an output" : "%zu traces become outputs",
                       traces.n);
    else if (traces.n)
        hir_remark_add(c, true, HIR_NONE,
                       traces.n == 1 ? "%zu trace is dropped" : "%zu traces are dropped", traces.n);
    return true;
}
