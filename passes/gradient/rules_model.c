/* Gradients of contractions, tokens, positions, attention, and of what passes along the sequence. */
#include "passes/gradient/gradient.h"

static hir_ref arg(const gradient *g, hir_id op, uint32_t i) {
    return pass_arg(g->m, op, i);
}

/* ---- contractions ---------------------------------------------------------------------------- */

/* y = x W^T + b: dx = dy W, dW = dy^T x, db = sum of dy */
bool vjp_linear(gradient *g, hir_id op, hir_ref dy) {
    const hir_ref x = arg(g, op, 0), w = arg(g, op, 1);
    if (grad_wants(g, op, 0))
        grad_give(g, op, 0, grad_2(g, HIR_LINEAR_OP, dy, grad_transpose(g, w, 0, 1)));
    if (grad_wants(g, op, 1)) grad_give(g, op, 1, grad_2(g, HIR_LINEAR_GRAD_OP, dy, x));
    if (grad_wants(g, op, 2)) grad_give(g, op, 2, dy);
    return true;
}

bool vjp_block_linear(gradient *g, hir_id op, hir_ref dy) {
    const hir_ref x = arg(g, op, 0), w = arg(g, op, 1);
    if (grad_wants(g, op, 0))
        grad_give(g, op, 0, grad_2(g, HIR_BLOCK_LINEAR_OP, dy, grad_transpose(g, w, 1, 2)));
    if (grad_wants(g, op, 1)) grad_give(g, op, 1, grad_2(g, HIR_BLOCK_LINEAR_GRAD_OP, dy, x));
    return true;
}

/* x [T, K] is the row of all k experts of a token: their gradients are added. */
bool vjp_expert_linear(gradient *g, hir_id op, hir_ref dy) {
    const hir_ref x = arg(g, op, 0), w = arg(g, op, 1), ids = arg(g, op, 2);
    const hir_attr experts = hir_int(HIR_A_LENGTH, grad_type(g, w).dim[0]);
    if (grad_wants(g, op, 0)) {
        const hir_ref args[] = {dy, grad_transpose(g, w, 1, 2), ids, hir_no_ref()};
        hir_ref dx = grad_op(g, HIR_EXPERT_LINEAR_OP, args, 4, NULL, 0);
        if (grad_type(g, x).rank == 2) {
            const hir_attr axis = hir_int(HIR_A_AXIS, 1);
            dx = grad_op(g, HIR_REDUCE_SUM_OP, &dx, 1, &axis, 1);
        }
        grad_give(g, op, 0, dx);
    }
    if (grad_wants(g, op, 1))
        grad_give(g, op, 1,
                  grad_op(g, HIR_EXPERT_LINEAR_GRAD_OP, (hir_ref[]){dy, x, ids}, 3, &experts, 1));
    if (grad_wants(g, op, 3))
        grad_give(g, op, 3, grad_op(g, HIR_SCATTER_ROWS_OP, (hir_ref[]){dy, ids}, 2, &experts, 1));
    return true;
}

/* ---- selection and tokens -------------------------------------------------------------------- */

bool vjp_pick(gradient *g, hir_id op, hir_ref dy) {
    const hir_type t = grad_type(g, arg(g, op, 0));
    const hir_attr length = hir_int(HIR_A_LENGTH, t.dim[t.rank - 1]);
    if (grad_wants(g, op, 0))
        grad_give(g, op, 0,
                  grad_op(g, HIR_SCATTER_OP, (hir_ref[]){dy, arg(g, op, 1)}, 2, &length, 1));
    return true;
}

bool vjp_gather(gradient *g, hir_id op, hir_ref dy) {
    const hir_attr *beyond = hir_find_attr(hir_op_at(g->m, op), HIR_A_BEYOND);
    const hir_attr attrs[] = {hir_int(HIR_A_LENGTH, grad_type(g, arg(g, op, 0)).dim[0]),
                              hir_int(HIR_A_BEYOND, beyond ? beyond->i : 0)};
    grad_give(
        g, op, 0,
        grad_op(g, HIR_SCATTER_ROWS_OP, (hir_ref[]){dy, arg(g, op, 1)}, 2, attrs, beyond ? 2 : 1));
    return true;
}

/* Ids are constant: the rows that their hashes name have the gradient. */
bool vjp_ngram_gather(gradient *g, hir_id op, hir_ref dy) {
    enum { MOST = 6 };
    const hir_op *o = hir_op_at(g->m, op);
    const hir_type table = grad_type(g, arg(g, op, 1));
    hir_attr attrs[MOST] = {hir_ints(HIR_A_SHAPE, table.dim, table.rank)};
    const uint32_t n = o->n_attrs;
    for (uint32_t i = 0; i < n; i++)
        attrs[1 + i] = o->attrs[i];
    const hir_ref args[] = {arg(g, op, 0), dy};
    grad_give(g, op, 1, grad_op(g, HIR_NGRAM_GATHER_GRAD_OP, args, 2, attrs, 1 + n));
    return true;
}

bool vjp_cross_entropy(gradient *g, hir_id op, hir_ref dy) {
    const hir_ref args[] = {arg(g, op, 0), arg(g, op, 1), dy};
    grad_give(g, op, 0, grad_op(g, HIR_CROSS_ENTROPY_GRAD_OP, args, 3, NULL, 0));
    return true;
}

/* ---- positions ------------------------------------------------------------------------------- */

/* The transpose of a rotation is the rotation back: the sines of the table change their sign. A
 * factor of the table is kept. */
bool vjp_rope(gradient *g, hir_id op, hir_ref dy) {
    const hir_ref table = arg(g, op, 1);
    const int64_t half = grad_type(g, table).dim[1] / 2;
    const hir_attr axis = hir_int(HIR_A_AXIS, 1);
    const hir_ref parts[] = {grad_slice(g, table, 1, 0, half),
                             grad_neg(g, grad_slice(g, table, 1, half, half))};
    const hir_ref back = grad_op(g, HIR_CONCAT_OP, parts, 2, &axis, 1);
    hir_attr attrs[2];
    const hir_op *o = hir_op_at(g->m, op);
    const uint32_t n = o->n_attrs;
    for (uint32_t i = 0; i < n; i++)
        attrs[i] = o->attrs[i];
    grad_give(g, op, 0, grad_op(g, HIR_ROPE_OP, (hir_ref[]){dy, back}, 2, attrs, n));
    return true;
}

/* ---- state over time ------------------------------------------------------------------------- */

static bool is_rounded(gradient *g, hir_id op) {
    const hir_op *o = hir_op_at(g->m, op);
    const uint32_t i = hir_state_operand(o->code);
    const hir_state *state = &g->m->states.at[o->args[i].index];
    if (state->type.dtype == HIR_F32) return false;
    hd_err(g->c->diags, HD_E_UNSUPPORTED, *o->loc,
           "state $%s is stored as %s: rounding has no gradient", state->name,
           hir_dtype_name(state->type.dtype))
        ->hint = "store it as f32";
    return true;
}

bool vjp_cache_append(gradient *g, hir_id op, hir_ref dy) {
    if (is_rounded(g, op)) return false;
    grad_give(g, op, 0, grad_1(g, HIR_CACHE_ROWS_OP, dy));
    return true;
}

/* Gives each operand in `operands` its gradient, made by the op `code`: it takes the n first
 * operands of `op`, dy, the attributes of `op`, and which operand's gradient it is. */
static void give_each(gradient *g, hir_id op, hir_ref dy, hir_opcode code, uint32_t n,
                      const uint32_t *operands, const char *const *words, uint32_t count) {
    enum { MOST = 12 };
    hir_ref args[MOST];
    hir_attr attrs[MOST];
    uint32_t n_attrs = hir_op_at(g->m, op)->n_attrs;
    for (uint32_t i = 0; i < n; i++)
        args[i] = arg(g, op, i);
    args[n] = dy;
    for (uint32_t i = 0; i < n_attrs; i++)
        attrs[i] = hir_op_at(g->m, op)->attrs[i];
    for (uint32_t i = 0; i < count; i++) {
        if (!grad_wants(g, op, operands[i])) continue;
        attrs[n_attrs] = hir_string(HIR_A_OF, words[i]);
        grad_give(g, op, operands[i], grad_op(g, code, args, n + 1, attrs, n_attrs + 1));
    }
}

bool vjp_attention(gradient *g, hir_id op, hir_ref dy) {
    static const char *const words[] = {"q", "k", "v", "sink", "bias"};
    give_each(g, op, dy, HIR_ATTENTION_GRAD_OP, 5, (const uint32_t[]){0, 1, 2, 3, 4}, words, 5);
    return true;
}

bool vjp_attention_selected(gradient *g, hir_id op, hir_ref dy) {
    static const char *const words[] = {"q", "k", "v", "sink", "entries"};
    give_each(g, op, dy, HIR_ATTENTION_SELECTED_GRAD_OP, 6, (const uint32_t[]){0, 1, 2, 4, 5},
              words, 5);
    return true;
}

bool vjp_pool(gradient *g, hir_id op, hir_ref dy) {
    static const char *const words[] = {"x", "gate", "place"};
    if (is_rounded(g, op)) return false;
    give_each(g, op, dy, HIR_POOL_GRAD_OP, 3, (const uint32_t[]){0, 1, 2}, words, 3);
    return true;
}

bool vjp_short_conv(gradient *g, hir_id op, hir_ref dy) {
    static const char *const words[] = {"x", "taps"};
    if (is_rounded(g, op)) return false;
    give_each(g, op, dy, HIR_SHORT_CONV_GRAD_OP, 2, (const uint32_t[]){0, 1}, words, 2);
    if (grad_wants(g, op, 2)) grad_give(g, op, 2, dy);
    return true;
}

bool vjp_delta_rule(gradient *g, hir_id op, hir_ref dy) {
    static const char *const words[] = {"q", "k", "v", "decay", "beta"};
    if (is_rounded(g, op)) return false;
    give_each(g, op, dy, HIR_DELTA_RULE_GRAD_OP, 5, (const uint32_t[]){0, 1, 2, 3, 4}, words, 5);
    return true;
}
