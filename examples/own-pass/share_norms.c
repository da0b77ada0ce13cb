/* share-norms: norms of one value that differ only in their gains become one norm.
 *
 * Needs    a graph.
 * Does     rmsnorm x, a and rmsnorm x, b with the same eps become n = rmsnorm x, _ and the products
 *          n * a and n * b. So a decoder with parallel branches (attention and MLP read the same
 *          row, each through a norm of its own) norms the row once for both.
 * Leaves   a norm whose value has no other norm with the same eps; layernorm; equal norms with equal
 *          gains, which cse makes one in any case.
 */
#include "passes/util.h"

typedef struct norms { /* those of one value with one eps */
    hir_id first;      /* the first in program order */
    double eps;
    uint32_t n;
    hir_ref shared;     /* the norm without a gain; the none ref: not built yet */
    struct norms *next; /* those of the value with another eps */
} norms;

typedef struct sharer {
    hir_pass_context *c;
    hir_module *m;
    norms **of_value; /* the first norms of a value, by value */
    norms **of_op;    /* those that a norm belongs to, by op; NULL: the op is no norm */
    pass_forward forward;
} sharer;

/* The norms to which op belongs; the first of them makes the group. */
static norms *group_of(sharer *s, hir_id op) {
    const double eps = hir_attr_float(hir_op_at(s->m, op), HIR_A_EPS, 0);
    norms **at = &s->of_value[pass_arg(s->m, op, 0).index];
    while (*at && (*at)->eps != eps)
        at = &(*at)->next;
    if (!*at) {
        *at = hd_new(s->c->scratch, norms);
        **at = (norms){.first = op, .eps = eps, .shared = hir_no_ref()};
    }
    return *at;
}

static void find_norms(sharer *s) {
    HIR_EACH(s->m, op, s->m->first) {
        if (hir_op_at(s->m, op)->code != HIR_RMSNORM_OP) continue;
        if (pass_arg(s->m, op, 0).kind != HIR_REF_VALUE) continue;
        s->of_op[op] = group_of(s, op);
        s->of_op[op]->n++;
    }
}

/* One remark for each group; for a lone norm only where its value has others, with another eps. */
static void remark(sharer *s, hir_id op) {
    const norms *g = s->of_op[op];
    if (!g || g->first != op) return;
    const bool others = s->of_value[pass_arg(s->m, op, 0).index]->next != NULL;
    const long long row = (long long)pass_elements(pass_result_type(s->m, op));
    if (g->n > 1)
        hir_remark_add(s->c, true, op,
                       "one norm in the place of %u, which differ in their gains: %lld products "
                       "less for each token",
                       g->n, (long long)(g->n - 1) * row);
    else if (others)
        hir_remark_add(s->c, false, op,
                       "the other norms of its value have another eps; with the same one, %lld "
                       "products for each token would have been saved",
                       row);
}

/* Builds the norm of a group before the first of its norms. */
static bool build_shared(sharer *s, norms *g, hir_id op) {
    hir_builder b = hir_before(s->m, s->c->diags, op);
    const hir_ref args[] = {pass_arg(s->m, op, 0), hir_no_ref()};
    const hir_attr eps = hir_float(HIR_A_EPS, g->eps);
    g->shared = hir_emit(&b, HIR_RMSNORM_OP, args, 2, &eps, 1);
    return g->shared.kind != HIR_REF_NONE;
}

static bool replace(sharer *s, norms *g, hir_id op) {
    if (g->shared.kind == HIR_REF_NONE && !build_shared(s, g, op)) return false;
    const hir_ref gain = pass_arg(s->m, op, 1);
    hir_ref result = g->shared;
    if (gain.kind != HIR_REF_NONE) {
        hir_builder b = hir_before(s->m, s->c->diags, op);
        result = hir_emit2(&b, HIR_MUL_OP, g->shared, gain);
        if (result.kind == HIR_REF_NONE) return false; /* the builder said why */
    }
    pass_forward_op(&s->forward, s->m, op, result);
    s->c->changed = true;
    return true;
}

bool pass_share_norms(hir_pass_context *c) {
    const size_t n_ops = c->m->ops.n; /* ops that are built here come after them */
    sharer s = {
        .c = c,
        .m = c->m,
        .of_value = hd_new_array(c->scratch, norms *, c->m->values.n),
        .of_op = hd_new_array(c->scratch, norms *, n_ops),
        .forward = {.arena = c->scratch},
    };
    find_norms(&s);
    HIR_EACH(s.m, op, s.m->first) remark(&s, op);
    HIR_EACH(s.m, op, s.m->first) {
        pass_forward_args(&s.forward, s.m, op);
        norms *g = op < n_ops ? s.of_op[op] : NULL;
        if (g && g->n > 1 && !replace(&s, g, op)) return false;
    }
    pass_forward_finish(&s.forward, s.m);
    return true;
}
