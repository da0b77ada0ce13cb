/* Sums over tokens: what a token adds to them.
 *
 * A sum is not made of nodes, since these are of one token. What a token adds is: the row of
 * sum_tokens, the products of linear_grad. A result that is a sum gets a buffer to which each token
 * adds its row; emit/sums.c says which tokens share one, and adds these up. */
#include "codegen/rowwise/graph/build.h"

/* Rows that are added to each other before they are added to a sum: one load and store of the sum for
 * all of them. More would have to be computed apart (schedule/nests.c, DEEPEST). */
enum { MOST_TOGETHER = 16 };

static const hir_op product = {.code = HIR_MUL_OP}, sum = {.code = HIR_ADD_OP};

static row_total *total_of(const row_graph *g, hir_ref r) {
    return r.kind == HIR_REF_VALUE ? g->totals[r.index] : NULL;
}

bool row_makes_total(const row_graph *g, const hir_op *op) {
    if (hir_has_trait(op->code, HIR_REDUCES_TOKENS)) return true;
    const bool keeps = op->code == HIR_RESHAPE_OP || op->code == HIR_ADD_OP;
    return keeps && total_of(g, op->args[0]);
}

/* y[n, k] = dy[n] x[k], of a token */
static bool products(row_graph *g, const hir_op *op, row_total *out) {
    row_view factor[2];
    for (uint32_t i = 0; i < 2; i++)
        if (!row_view_of(g, op, op->args[i], &factor[i])) return false;
    const int64_t n = factor[0].type.dim[1], k = factor[1].type.dim[1];
    const hir_type one = hir_make_type(HIR_F32, 3, (int64_t[]){HIR_T, n, 1});
    const hir_type other = hir_make_type(HIR_F32, 3, (int64_t[]){HIR_T, 1, k});
    const hir_type all = hir_make_type(HIR_F32, 3, (int64_t[]){HIR_T, n, k});
    factor[0] = row_make_view(g, one, factor[0].ref);
    factor[1] = row_make_view(g, other, factor[1].ref);
    const uint32_t node = row_add_node(g, ROW_MAP, op, row_squeeze(g, all, NULL), 2);
    row_at(g, node)->op = &product;
    for (uint32_t i = 0; i < 2; i++)
        row_set_arg(g, node, i, row_broadcast(g, &factor[i], all));
    hd_push(g->arena, &out->rows, node);
    return true;
}

static bool rows(row_graph *g, const hir_op *op, row_total *out) {
    row_view x;
    if (!row_view_of(g, op, op->args[0], &x)) return false;
    hd_push(g->arena, &out->rows, row_add_copy(g, op, x.shape, x.ref));
    return true;
}

/* A sum of sums has the rows of all of them. */
static bool of_totals(row_graph *g, const hir_op *op, row_total *out) {
    for (uint32_t i = 0; i < op->n_args; i++) {
        const row_total *x = total_of(g, op->args[i]);
        if (!x) return row_unsupported(g, op, "it adds something to a sum over tokens");
        for (size_t k = 0; k < x->rows.n; k++)
            hd_push(g->arena, &out->rows, x->rows.at[k]);
    }
    return true;
}

bool row_make_total(row_graph *g, const hir_op *op) {
    row_total *out = hd_new(g->arena, row_total);
    g->totals[op->results[0]] = out;
    if (op->code == HIR_LINEAR_GRAD_OP) return products(g, op, out);
    if (op->code == HIR_SUM_TOKENS_OP) return rows(g, op, out);
    if (hir_has_trait(op->code, HIR_REDUCES_TOKENS))
        return row_unsupported(g, op, "it has a kernel of its own");
    return of_totals(g, op, out);
}

static row_ref whole(const row_graph *g, uint32_t node) {
    row_ref r = {.node = node};
    for (uint32_t d = 0; d < g->nodes.at[node].shape.rank; d++)
        r.at[d] = row_var(d);
    return r;
}

/* Rows `from` to `to` - 1, added to each other. */
static uint32_t added(row_graph *g, const hir_op *op, const row_total *t, size_t from, size_t to) {
    uint32_t node = t->rows.at[from];
    for (size_t k = from + 1; k < to; k++) {
        const uint32_t next = row_add_node(g, ROW_MAP, op, row_at(g, node)->shape, 2);
        row_at(g, next)->op = &sum;
        row_set_arg(g, next, 0, whole(g, node));
        row_set_arg(g, next, 1, whole(g, t->rows.at[k]));
        node = next;
    }
    return node;
}

/* Rows of whole pages would have equal columns in one set of the L1, and a load of one would wait for
 * the store to the one before: they are a line apart. */
static int64_t apart(int64_t rows, int64_t width) {
    enum { PAGE = 4096, LINE = 64, FLOAT = 4 };
    return rows > 1 && width * FLOAT % PAGE == 0 ? width + LINE / FLOAT : width;
}

/* Where an element is in the buffer. */
static row_index place(const row_shape *shape, const row_sum *s) {
    row_shape padded = *shape;
    if (shape->rank > 1) padded.dim[shape->rank - 1] = row_int(s->apart);
    return row_major(&padded);
}

void row_give_total(row_graph *g, const hir_op *op, hir_id value, hir_ref result, bool adds) {
    const row_total *t = g->totals[value];
    const row_shape shape = row_at(g, t->rows.at[0])->shape;
    row_sum s = {.result = result, .rows = 1, .width = 1, .adds = adds};
    for (uint32_t d = 0; d < shape.rank; d++)
        *(d + 1 < shape.rank ? &s.rows : &s.width) *= shape.dim[d].a;
    s.apart = apart(s.rows, s.width);
    s.buffer = row_add_buffer(g, (row_buffer){.where = ROW_SUM,
                                              .dtype = HIR_F32,
                                              .elements = row_int(s.rows * s.apart),
                                              .adds = true});
    for (size_t from = 0; from < t->rows.n; from += MOST_TOGETHER) {
        const size_t left = t->rows.n - from, n = left < MOST_TOGETHER ? left : MOST_TOGETHER;
        const uint32_t node = added(g, op, t, from, from + n);
        const uint32_t adder = row_add_copy(g, op, shape, whole(g, node));
        row_at(g, adder)->buffer = s.buffer;
        row_at(g, adder)->to = place(&shape, &s);
        row_at(g, adder)->token_free = false;
    }
    hd_push(g->arena, &g->sums, s);
}
