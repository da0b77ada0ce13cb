/* topk, to_ids, pick, mark: which elements of a row, which are only known at run time. No index map
 * can say so: each reads its operands in memory and fills a buffer. */
#include "codegen/rowwise/graph/build.h"

enum { MOST_ELEMENTS = 1 << 24 /* of an axis: ids pass through f32 where they are copied */ };

/* Are all elements of x in memory, one behind the other from the first on? */
static bool is_plain(const row_graph *g, const row_view *x) {
    const row_node *n = &g->nodes.at[x->ref.node];
    if (n->kind != ROW_MEMORY) return false;
    const row_buffer *b = &g->buffers.at[n->buffer];
    const row_index wanted = row_major(&x->shape), at = row_linear(g, &x->ref);
    return b->step == 1 && (b->dtype == HIR_F32 || b->dtype == HIR_I32) && b->where != ROW_STATE &&
           row_index_equal(&wanted, &at);
}

/* Operand i, its dims in front of the last stretched to those of `type` unless it has but one row.
 */
static bool operand(row_graph *g, const hir_op *op, uint32_t i, hir_type type, row_view *x) {
    if (!row_view_of(g, op, op->args[i], x)) return false;
    const int64_t last = x->type.dim[x->type.rank - 1];
    if (last > MOST_ELEMENTS) return row_unsupported(g, op, "its axis is too long");
    type.dtype = x->type.dtype;
    type.dim[type.rank - 1] = last;
    const row_size all = row_type_elements(g, type), own = row_elements(&x->shape);
    if (!row_size_equal(own, row_int(last)) && !row_size_equal(own, all))
        *x = row_make_view(g, type, row_broadcast(g, x, type));
    if (!is_plain(g, x)) *x = row_in_memory(g, op, x);
    return true;
}

bool row_choice(row_graph *g, const hir_op *op, hir_type type, row_view *out) {
    row_view x[2];
    const row_shape shape = row_squeeze(g, type, NULL);
    for (uint32_t i = 0; i < op->n_args; i++)
        if (!operand(g, op, i, type, &x[i])) return false;
    const uint32_t memory = row_add_filled(g, op, &shape, 1);
    g->buffers.at[row_at(g, memory)->buffer].dtype = type.dtype;
    const uint32_t node = row_add_node(g, ROW_CHOICE, op, shape, op->n_args);
    for (uint32_t i = 0; i < op->n_args; i++)
        row_set_arg(g, node, i, (row_ref){.node = x[i].ref.node});
    row_add_producer(g, memory, node, row_major(&shape));
    *out = row_view_buffer(g, memory, type);
    return true;
}
