/* The ledger of single ops, with small matrix products counted as one operation.
 *
 * In the graph a small matrix times the streams is a multiplication and a sum over an axis, with
 * all products in between: n times as many elements as the operands or the result. No
 * implementation would store all products; the closed forms of the Attention Residuals paper
 * (paper_forms.h) count such a product as one operation that reads its operands and writes its
 * result. Here a multiplication whose only user is a reduction is counted together with it. Rows of
 * the stream, and traffic that does not grow with d, are counted separately, as in the paper.
 */
#include "passes/analysis/ledger.h"

/* By value: is it a product whose only user is a reduction? */
static bool *find_joined(const hir_ledger *l, const hir_module *m, hd_arena *a) {
    const hir_flow *f = &l->flow;
    bool *joined = hd_new_array(a, bool, m->values.n);
    uint32_t *readers = hd_new_array(a, uint32_t, m->values.n);
    uint32_t *reductions = hd_new_array(a, uint32_t, m->values.n);
    for (size_t k = 0; k < f->program.n; k++) {
        const hir_op *o = hir_op_at(m, f->program.at[k]);
        for (uint32_t i = 0; i < o->n_args; i++) {
            if (o->args[i].kind != HIR_REF_VALUE) continue;
            readers[f->origin[o->args[i].index]]++;
            reductions[f->origin[o->args[i].index]] +=
                o->code == HIR_REDUCE_SUM_OP || o->code == HIR_REDUCE_MEAN_OP;
        }
    }
    for (size_t k = 0; k < f->program.n; k++) {
        const hir_op *o = hir_op_at(m, f->program.at[k]);
        if (o->code != HIR_MUL_OP) continue;
        hir_id y = o->results[0];
        joined[y] = readers[y] == 1 && reductions[y] == 1;
    }
    return joined;
}

static void charge(hir_traffic *t, bool write, uint64_t bytes) {
    uint64_t *sum = write ? &t->written : &t->read;
    *sum = hd_capped_add(*sum, bytes);
}

hir_products hir_ledger_products(const hir_ledger *l, const hir_module *m, hd_arena *a) {
    hir_products p = {0};
    if (m->stage == HIR_STAGE_KERNEL) return p;
    const bool *joined = find_joined(l, m, a);
    for (size_t i = 0; i < l->accesses.n; i++) {
        const hir_access *x = &l->accesses.at[i];
        if (!hir_phase_is_in_paper(x->phase) || joined[l->flow.origin[x->value]]) continue;
        const bool between = x->sublayer > 1 && x->sublayer != HIR_FLOW_RESULT;
        hir_traffic *t = x->kind == HIR_FLOW_NUMBERS ? &p.numbers : &p.rows;
        charge(t, x->write, x->bytes);
        if (between && t == &p.rows) charge(&p.between, x->write, x->bytes);
    }
    return p;
}
