/* Which kernels share a function: those with equal canonical forms (ir/kernel/canonical.h).
 *
 * A canonical form contains everything that an emitter may depend on: the body's ops with
 * attributes, types and operands; kind, type and layout of each operand; which operand a result
 * overwrites. It contains neither the kernel's own attributes (rows, splits, grain), which say how
 * its step is run and do not change its code, nor the identity of the tensors that the kernel reads
 * and writes. */
#include "codegen/program/keys.h"
#include "codegen/program/contraction.h"

enum { FREE = INT32_MIN }; /* stands for a size that is left out: no dim has this value */

void hcg_kernel_key(hir_canonical *c, hir_id kernel) {
    hir_canonical_body(c, kernel);
    hir_canonical_results(c);
}

/* ---- contractions of any size ---------------------------------------------------------------- */
static bool is_in_front(const hcg_contraction *c, hir_id op) {
    for (size_t i = 0; i < c->prologue.n; i++)
        if (c->prologue.at[i] == op) return true;
    return false;
}

/* Is every last dim of the body N or 1, except that of x, which only linears may read, and
 * those of the prologue? */
static bool has_free_sizes(const hir_module *m, hir_id kernel, const hcg_contraction *c) {
    HIR_EACH(m, id, hir_op_at(m, kernel)->body_first) {
        const hir_op *op = hir_op_at(m, id);
        if (is_in_front(c, id)) continue;
        if (op->code == HIR_RESHAPE_OP) return false;
        for (uint32_t i = op->code == HIR_LINEAR_OP; i < op->n_args; i++)
            if (hir_ref_equal(op->args[i], c->x)) return false;
    }
    for (size_t i = 0; i < c->linears.n; i++) {
        const hir_dtype dtype = c->linears.at[i].dtype;
        if (hir_panel_depth(dtype) > 1) return false;                  /* x is prepared by K */
        if (c->linears.at[i].layout != HIR_LAYOUT_PANEL) return false; /* N counts panels */
    }
    const hcg_column_group *g = &c->groups.at[0];
    return c->groups.n == 1 && c->width == 1 && !g->heads && g->n > HIR_PANEL && c->k > 1;
}

/* The code of a prologue depends on its sizes, including K, so the key contains them. */
static void add_prologue_sizes(hir_canonical *k, const hcg_contraction *c) {
    for (size_t i = 0; i < c->prologue.n; i++) {
        const hir_op *op = hir_op_at(k->m, c->prologue.at[i]);
        for (uint32_t j = 0; j < op->n_args; j++)
            hir_canonical_type(k, op->args[j], hir_ref_type(k->m, op->args[j]));
        for (uint32_t j = 0; j < op->n_results; j++)
            hir_canonical_type(k, hir_value_ref(op->results[j]),
                               hir_value_at(k->m, op->results[j])->type);
    }
}

/* A type without N and K, in a body that has_free_sizes accepts. */
static hir_type without_sizes(const hir_module *m, hir_ref of, hir_type t) {
    if (t.rank == 0) return t;
    const bool matrix =
        of.kind == HIR_REF_WEIGHT && m->weights.at[of.index].layout != HIR_LAYOUT_ROWS;
    if (matrix) t.dim[0] = FREE;
    if (t.dim[t.rank - 1] != 1) t.dim[t.rank - 1] = FREE;
    return t;
}

bool hcg_family_key(hir_canonical *k, hir_id kernel, const hcg_contraction *c,
                    int64_t size[HCG_SIZES]) {
    if (!c || !has_free_sizes(k->m, kernel, c)) return false;
    k->type = without_sizes;
    hcg_kernel_key(k, kernel);
    k->type = NULL;
    size[HCG_N] = c->groups.at[0].n;
    size[HCG_K] = c->k;
    add_prologue_sizes(k, c);
    return true;
}

/* ---- prologue and epilogue ------------------------------------------------------------------- */
bool hcg_prologue_key(hir_canonical *k, hir_id kernel, const hcg_contraction *c) {
    uint32_t x;
    if (!c || !c->prologue.n) return false;
    hir_canonical_begin(k, kernel);
    for (size_t i = 0; i < c->prologue.n; i++)
        hir_canonical_op(k, c->prologue.at[i], 0);
    hir_canonical_find(k, c->x, &x);
    hir_canonical_number(k, x);
    hir_canonical_operand_types(k, 0);
    return true;
}

/* Does any op from `from` on read a value that is made earlier, other than x? */
static bool reads_before(const hir_canonical *k, hir_id from) {
    uint32_t number;
    for (hir_id id = from; id != HIR_NONE; id = hir_op_at(k->m, id)->next) {
        const hir_op *op = hir_op_at(k->m, id);
        for (uint32_t i = op->code == HIR_LINEAR_OP; i < op->n_args; i++) {
            if (!hir_canonical_is_local(k, op->args[i])) continue;
            hir_canonical_find(k, op->args[i], &number);
            if (number < k->first_value) return true;
        }
    }
    return false;
}

bool hcg_epilogue_key(hir_canonical *k, hir_id kernel, uint32_t *first) {
    if (hir_kind_of(hir_op_at(k->m, kernel)->code) != HIR_KERNEL_CONTRACT) return false;
    hir_canonical_begin(k, kernel);
    hir_id id = hir_op_at(k->m, kernel)->body_first;
    for (; hir_op_at(k->m, id)->code != HIR_LINEAR_OP; id = hir_op_at(k->m, id)->next)
        hir_canonical_op(k, id, 0);
    hir_canonical_ref(k, hir_op_at(k->m, id)->args[0]);
    hir_canonical_continue(k);
    *first = k->first_operand;
    for (hir_id at = id; at != HIR_NONE; at = hir_op_at(k->m, at)->next) {
        const bool linear = hir_op_at(k->m, at)->code == HIR_LINEAR_OP; /* their x is one */
        hir_canonical_op(k, at, linear);
    }
    hir_canonical_operand_types(k, k->first_operand);
    hir_canonical_results(k);
    return !reads_before(k, id);
}
