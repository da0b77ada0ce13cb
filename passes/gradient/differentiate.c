/* differentiate: the gradients of the loss with respect to the weights.
 *
 * Needs    a model with a loss (hir_add_loss), on one rank: as the frontend makes it, or with its
 *          attention over depth in two phases (split-merge).
 * Does     walks the ops from the last to the first. Each op whose result has a gradient gives its
 *          operands theirs, by its rule in rules.def, as ordinary ops at the end of the module; the
 *          gradient of a value is the sum of what its users give, in their order; where these are
 *          slices side by side, their gradients are laid side by side. What does not depend on a
 *          weight gets none.
 *          The outputs become `loss`, the sum of the losses of all tokens, and for each weight with
 *          a path to the loss `grad.NAME`. A weight without one has no output: its gradient is
 *          zero. Outputs after that of the losses are there to be looked at: they stay, and each
 *          with a path to the loss gets `grad_at.NAME`, the gradient of its value.
 * Leaves   the ops of the forward pass, which the gradients read. The tokens of a call are one
 *          sequence from its beginning, with empty states.
 */
#include "passes/gradient/gradient.h"

typedef struct rule_row {
    grad_rule *rule;
    const char *why; /* there is none; NULL, and no rule: nothing flows through the op */
} rule_row;

static const rule_row rules[HIR_OPCODE_COUNT] = {
#define V(id, name)   [HIR_##id##_OP] = {vjp_##name, NULL},
#define STOP(id)      [HIR_##id##_OP] = {NULL, NULL},
#define NONE(id, why) [HIR_##id##_OP] = {NULL, why},
#include "passes/gradient/rules.def"
#undef V
#undef STOP
#undef NONE
};

/* Each op has one row: this does not compile where one is missing, or there are two. */
enum {
#define V(id, name)   IS_IN_RULES_##id,
#define STOP(id)      IS_IN_RULES_##id,
#define NONE(id, why) IS_IN_RULES_##id,
#include "passes/gradient/rules.def"
#undef V
#undef STOP
#undef NONE
    RULES
};
#define OP(id, name, stage, traits, operands, attrs, rule, doc)                                    \
    _Static_assert(IS_IN_RULES_##id < RULES, "an op without a row in rules.def");
#include "ir/ops.def"
#undef OP
_Static_assert((int)RULES == (int)HIR_OPCODE_COUNT, "a row of rules.def that is no op");

/* ---- what depends on weights ----------------------------------------------------------------- */

static void find_dependent(gradient *g) {
    HIR_EACH(g->m, op, g->m->first) {
        const hir_op *o = hir_op_at(g->m, op);
        const bool stops = !rules[o->code].rule && !rules[o->code].why;
        bool depends = false;
        for (uint32_t i = 0; i < o->n_args && !depends && !stops; i++)
            depends = grad_wants(g, op, i);
        for (uint32_t i = 0; i < o->n_results; i++)
            g->depends[o->results[i]] = depends;
    }
}

/* ---- the walk -------------------------------------------------------------------------------- */

/* A summand that is zero but for elements from `start` on along an axis: the gradient of a
 * slice. */
static bool is_padded(const gradient *g, const grad_part *part, uint32_t axis, int64_t *start) {
    const hir_id op = pass_def_if(g->m, part->x, HIR_PAD_OP);
    if (op == HIR_NONE) return false;
    const hir_op *o = hir_op_at(g->m, op);
    *start = hir_attr_int(o, HIR_A_START, 0);
    return hir_attr_int(o, HIR_A_AXIS, 0) == axis;
}

/* The summand that begins at `at`. */
static const grad_part *part_at(const gradient *g, const grad_part *parts, uint32_t axis,
                                int64_t at) {
    for (int64_t start; parts; parts = parts->next)
        if (is_padded(g, parts, axis, &start) && start == at) return parts;
    return NULL;
}

/* The gradients of slices that lie side by side and are all of a value are its gradient, one after
 * the other. The none ref: they are not. */
static hir_ref side_by_side(gradient *g, const grad_part *parts) {
    enum { MOST = 64 };
    hir_ref args[MOST];
    uint32_t n = 0, summands = 0;
    const hir_id first = pass_def_if(g->m, parts->x, HIR_PAD_OP);
    if (first == HIR_NONE || !parts->next) return hir_no_ref();
    const uint32_t axis = (uint32_t)hir_attr_int(hir_op_at(g->m, first), HIR_A_AXIS, 0);
    const int64_t length = grad_type(g, parts->x).dim[axis];
    for (const grad_part *part = parts; part; part = part->next)
        summands++;
    for (int64_t at = 0; at < length;) {
        const grad_part *part = part_at(g, parts, axis, at);
        if (!part || n == MOST) return hir_no_ref();
        args[n] = pass_arg(g->m, pass_def(g->m, part->x), 0);
        at += grad_type(g, args[n++]).dim[axis];
        if (at > length) return hir_no_ref();
    }
    const hir_attr attr = hir_int(HIR_A_AXIS, axis);
    return n == summands ? grad_op(g, HIR_CONCAT_OP, args, n, &attr, 1) : hir_no_ref();
}

/* The summand that was made first comes first, so that a value with many users, as a source of mixes
 * is, keeps one running sum and not a summand for each of them. */
static hir_ref sum_of(gradient *g, const grad_part *part) {
    hir_ref x = side_by_side(g, part);
    if (x.kind != HIR_REF_NONE) return x;
    HD_VEC(hir_ref) parts = {0};
    for (; part; part = part->next)
        hd_push(g->c->scratch, &parts, part->x);
    x = parts.at[parts.n - 1];
    for (size_t i = parts.n - 1; i-- > 0;)
        x = grad_add(g, x, parts.at[i]);
    return x;
}

static bool no_rule(gradient *g, hir_id op) {
    const hir_op *o = hir_op_at(g->m, op);
    hd_diag *e = hd_err(g->c->diags, HD_E_UNSUPPORTED, hir_place_of(g->m, op), "%s has no gradient",
                        hir_info(o->code)->name);
    e->cause = rules[o->code].why;
    e->hint = "a weight reaches the loss through it";
    return false;
}

static bool through(gradient *g, hir_id op) {
    const hir_op *o = hir_op_at(g->m, op);
    if (o->n_results != 1 || o->results[0] >= g->n_values || !g->depends[o->results[0]])
        return true;
    const grad_part *parts = g->of_value[o->results[0]];
    if (!parts) return true;
    g->b.loc = *o->loc;
    if (!rules[o->code].rule) return no_rule(g, op);
    const hir_ref dy = sum_of(g, parts);
    g->sum[hir_result(g->m, op)] = dy;
    return !g->failed && rules[hir_op_at(g->m, op)->code].rule(g, op, dy) && !g->failed;
}

/* The losses of the tokens are added, so that each has the gradient 1. */
static bool walk(gradient *g, hir_id loss, hir_id last) {
    const hir_ref losses = pass_arg(g->m, loss, 0);
    g->b.loc = *hir_op_at(g->m, loss)->loc;
    const hir_type t = grad_type(g, losses);
    const hir_attr attrs[] = {hir_float(HIR_A_VALUE, 1), hir_ints(HIR_A_SHAPE, t.dim, t.rank)};
    grad_give(g, loss, 0, grad_op(g, HIR_CONST_OP, NULL, 0, attrs, 2));
    for (hir_id op = last; op != HIR_NONE && !g->failed; op = hir_op_at(g->m, op)->prev)
        if (!through(g, op) || !grad_end_phase(g, op)) return false;
    return !g->failed;
}

/* ---- outputs --------------------------------------------------------------------------------- */

static bool put_out(gradient *g, hir_ref x, const char *name) {
    const hir_attr attr = hir_string(HIR_A_NAME, name);
    return !g->failed && hir_build(&g->b, HIR_OUTPUT_OP, &x, 1, &attr, 1) != HIR_NONE;
}

static bool put_gradients(gradient *g) {
    for (uint32_t w = 0; w < g->m->weights.n; w++) {
        if (!g->of_weight[w]) continue;
        g->b.loc = g->m->weights.at[w].loc;
        const hir_ref dw = sum_of(g, g->of_weight[w]);
        if (!put_out(g, dw, hd_printf(g->m->arena, HIR_GRADIENT "%s", g->m->weights.at[w].name)))
            return false;
    }
    return true;
}

/* Outputs up to that of the losses go, and traces. The others get gradients. */
static bool settle_outputs(gradient *g, hir_id loss, hir_id last) {
    bool after = false;
    for (hir_id op = g->m->first, next = HIR_NONE; op != HIR_NONE; op = next) {
        const hir_op o = *hir_op_at(g->m, op);
        next = op == last ? HIR_NONE : o.next;
        if (o.code == HIR_OUTPUT_OP && after) {
            const char *name = hir_attr_string(&o, HIR_A_NAME, "");
            const hir_ref x = o.args[0];
            if (x.kind == HIR_REF_VALUE && g->sum[x.index].kind != HIR_REF_NONE &&
                !put_out(g, g->sum[x.index], hd_printf(g->m->arena, HIR_GRADIENT_AT "%s", name)))
                return false;
            continue;
        }
        after |= op == loss;
        if (o.code == HIR_OUTPUT_OP || o.code == HIR_TRACE_OP) hir_erase(g->m, op);
    }
    return true;
}

/* ---- the pass -------------------------------------------------------------------------------- */

static bool reject(hir_pass_context *c, const char *why, const char *hint) {
    hd_diag *e = hd_err(c->diags, HD_E_UNSUPPORTED, HD_NOWHERE, "%s has no gradients", c->m->name);
    e->cause = why;
    e->hint = hint;
    return false;
}

bool pass_differentiate(hir_pass_context *c) {
    hir_module *m = c->m;
    const hir_id loss = hir_loss_output(m), last = m->last;
    if (m->ranks || m->stage == HIR_STAGE_KERNEL)
        return reject(c, m->ranks ? "it is divided over ranks" : "it is no graph any more",
                      "differentiate before fuse, on one rank");
    if (loss == HIR_NONE) return reject(c, "it has no loss", "ask for one: --loss");
    gradient g = {.c = c, .m = m, .b = hir_at_end(m, c->diags), .n_values = m->values.n};
    g.depends = hd_new_array(c->scratch, bool, m->values.n);
    g.of_value = hd_new_array(c->scratch, grad_part *, m->values.n);
    g.of_weight = hd_new_array(c->scratch, grad_part *, m->weights.n);
    g.sum = hd_new_array(c->scratch, hir_ref, m->values.n);
    find_dependent(&g);
    grad_find_phases(&g);
    const hir_ref losses = pass_arg(m, loss, 0);
    m->stage = HIR_STAGE_DEPTH;
    if (!walk(&g, loss, last)) return false;
    g.b.loc = *hir_op_at(m, loss)->loc;
    if (!put_out(&g, grad_1(&g, HIR_SUM_TOKENS_OP, losses), HIR_LOSS) || !put_gradients(&g))
        return false;
    c->changed = true;
    return settle_outputs(&g, loss, last);
}
