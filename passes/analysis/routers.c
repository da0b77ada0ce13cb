/* Finds routers: matrices whose products decide a top-k selection (util.h).
 *
 * The search goes back from the operand of a topk through elementwise ops and views with equally
 * many elements, across kernels, to linear ops; and from the operand of a to_ids to the table of
 * ids of which it is a row. Operands with another number of elements, such as the sum that a score
 * is divided by, are computed from the same products or from none, and are skipped. */
#include "passes/util.h"

typedef struct search {
    const hir_module *m;
    bool *decides; /* by value */
    bool *router;  /* by weight */
} search;

static void mark_operands(search *s, const hir_op *o, int64_t elements) {
    for (uint32_t i = 0; i < o->n_args; i++)
        if (o->args[i].kind == HIR_REF_VALUE &&
            pass_elements(hir_ref_type(s->m, o->args[i])) == elements)
            s->decides[o->args[i].index] = true;
}

static void visit(search *s, hir_id op) {
    const hir_op *o = hir_op_at(s->m, op);
    if (o->code == HIR_TOPK_OP) {
        mark_operands(s, o, pass_elements(hir_arg_type(s->m, op, 0)));
        return;
    }
    if (o->code == HIR_TO_IDS_OP) mark_operands(s, o, pass_elements(hir_arg_type(s->m, op, 0)));
    if (o->n_results != 1 || !s->decides[o->results[0]]) return;
    if (o->code == HIR_GATHER_OP && o->args[0].kind == HIR_REF_WEIGHT)
        s->router[o->args[0].index] = true;
    if (o->code == HIR_LINEAR_OP && o->args[1].kind == HIR_REF_WEIGHT)
        s->router[o->args[1].index] = true;
    else if (hir_has_trait(o->code, HIR_ELEMENTWISE) || o->code == HIR_RESHAPE_OP)
        mark_operands(s, o, pass_elements(pass_result_type(s->m, op)));
}

/* Walks from the last op to the first, so that a reader is visited before the values that it reads.
 */
bool *pass_find_routers(hir_pass_context *c) {
    search s = {c->m, hd_new_array(c->scratch, bool, c->m->values.n + 1),
                hd_new_array(c->scratch, bool, c->m->weights.n + 1)};
    for (hir_id kernel = c->m->last; kernel != HIR_NONE; kernel = hir_op_at(c->m, kernel)->prev) {
        const hir_op *k = hir_op_at(c->m, kernel);
        const hir_op *yield = k->body_last == HIR_NONE ? NULL : hir_op_at(c->m, k->body_last);
        for (uint32_t i = 0; yield && i < yield->n_args; i++)
            if (s.decides[k->results[i]] && yield->args[i].kind == HIR_REF_VALUE)
                s.decides[yield->args[i].index] = true;
        for (hir_id op = k->body_last; op != HIR_NONE; op = hir_op_at(c->m, op)->prev)
            visit(&s, op);
    }
    return s.router;
}
