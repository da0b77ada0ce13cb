/* layout: how each weight is stored.
 *
 * Needs    kernels.
 * Does     decides layout and storage dtype of every weight by who reads it:
 *            linear in a contraction kernel   panels, options->matrix_dtype
 *            gather only                      rows, options->matrix_dtype
 *            gather and linear (tied heads)   panels: kept once, gather reads panels too
 *            anything else                    rows in f32: gains, biases, pseudo-queries, and
 *                                             tables that row programs read element by element
 * Leaves   weights that no op reads, and a matrix that both a contraction and a row program's
 *          arithmetic read: refused (split-small-contractions turns such a contraction into row
 *          operations, so that this happens in hand-written kernels only).
 */
#include "passes/util.h"

typedef struct reads { /* of one weight; an op for the message, HIR_NONE: no such read */
    hir_id contracted, gathered, by_element;
} reads;

static void note_read(reads *r, hir_opcode kernel, hir_opcode code, uint32_t arg, hir_id op) {
    if (code == HIR_LINEAR_OP && arg == 1 && kernel == HIR_KERNEL_CONTRACT_OP)
        r->contracted = op;
    else if (code == HIR_GATHER_OP && arg == 0)
        r->gathered = op;
    else
        r->by_element = op;
}

static reads *find_reads(hir_pass_context *c) {
    const hir_module *m = c->m;
    reads *all = hd_new_array(c->scratch, reads, m->weights.n);
    for (size_t w = 0; w < m->weights.n; w++)
        all[w] = (reads){HIR_NONE, HIR_NONE, HIR_NONE};
    HIR_EACH(m, kernel, m->first) {
        HIR_EACH(m, op, hir_op_at(m, kernel)->body_first) {
            const hir_op *o = hir_op_at(m, op);
            for (uint32_t i = 0; i < o->n_args; i++)
                if (o->args[i].kind == HIR_REF_WEIGHT)
                    note_read(&all[o->args[i].index], hir_op_at(m, kernel)->code, o->code, i, op);
        }
    }
    return all;
}

static bool conflict(hir_pass_context *c, const hir_weight *w, const reads *r) {
    hd_diag *e = hd_err(c->diags, HD_E_UNSUPPORTED, hir_op_at(c->m, r->contracted)->loc,
                        "weight '%s' is wanted in two layouts", w->name);
    e->cause = hd_printf(c->diags->arena,
                         "a contraction reads panels of it, and its elements are "
                         "read by: %s",
                         pass_op_text(c->m, r->by_element, c->diags->arena));
    e->hint = "give the row program's matrix a name of its own, or run split-small-contractions "
              "before fuse";
    return false;
}

static bool decide(hir_pass_context *c, hir_weight *w, const reads *r) {
    bool contracted = r->contracted != HIR_NONE, by_element = r->by_element != HIR_NONE;
    if (contracted && by_element) return conflict(c, w, r);
    bool matrix = w->type.rank >= 2 && !by_element && (contracted || r->gathered != HIR_NONE);
    hir_layout layout = contracted ? HIR_LAYOUT_PANEL : HIR_LAYOUT_ROWS;
    hir_dtype dtype = matrix ? c->options->matrix_dtype : HIR_F32;
    if (by_element && r->gathered != HIR_NONE)
        hir_remark_add(c, false, r->by_element, "weight '%s' stays f32: its elements are read",
                       w->name);
    if (contracted && r->gathered != HIR_NONE)
        hir_remark_add(c, true, r->gathered, "weight '%s' is kept once, as panels", w->name);
    c->changed |= w->layout != layout || w->type.dtype != dtype;
    w->layout = layout;
    w->type.dtype = dtype;
    return true;
}

bool pass_layout(hir_pass_context *c) {
    reads *all = find_reads(c);
    for (size_t w = 0; w < c->m->weights.n; w++) {
        const reads *r = &all[w];
        bool read =
            r->contracted != HIR_NONE || r->gathered != HIR_NONE || r->by_element != HIR_NONE;
        if (read && !decide(c, &c->m->weights.at[w], r)) return false;
    }
    return true;
}
