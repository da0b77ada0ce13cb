/* The body of a row program as a graph of nodes. */
#include <string.h>

#include "codegen/rowwise/graph/build.h"

/* ---- arithmetic ------------------------------------------------------------------------------ */

static bool elementwise(row_graph *g, const hir_op *op, hir_type type, row_view *out) {
    uint32_t node = row_add_node(g, ROW_MAP, op, row_squeeze(g, type, NULL), op->n_args);
    for (uint32_t i = 0; i < op->n_args; i++) {
        row_view x;
        if (!row_view_of(g, op, op->args[i], &x)) return false;
        row_set_arg(g, node, i, row_broadcast(g, &x, type));
    }
    *out = row_view_node(g, node, type);
    return true;
}

/* The `when` op that makes a whole sum depend on one number (rowwise/emit/loops.c); NULL: none. */
static const hir_op *decider(const row_graph *g, const hir_op *op) {
    hir_id made =
        op->args[0].kind == HIR_REF_VALUE ? hir_value_at(g->m, op->args[0].index)->op : HIR_NONE;
    if (made == HIR_NONE || op->code == HIR_REDUCE_MAX_OP) return NULL;
    const hir_op *when = hir_op_at(g->m, made);
    if (when->code != HIR_WHEN_OP || when->parent != g->k->op) return NULL;
    const hir_type c = hir_ref_type(g->m, when->args[0]), x = hir_ref_type(g->m, op->args[0]);
    const hir_type sum = hir_value_at(g->m, op->results[0])->type;
    const bool one = row_squeeze(g, c, NULL).rank == 0 && row_squeeze(g, sum, NULL).rank == 0;
    return one && x.dim[hir_attr_int(op, HIR_A_AXIS, 0)] > 1 ? when : NULL;
}

static bool reduction(row_graph *g, const hir_op *op, hir_type type, row_view *out) {
    row_view x, c;
    const hir_op *when = decider(g, op);
    if (!row_view_of(g, op, when ? when->args[1] : op->args[0], &x)) return false;
    if (when && !row_view_of(g, op, when->args[0], &c)) return false;
    const hir_type whole = hir_ref_type(g->m, op->args[0]);
    if (when) x = row_make_view(g, whole, row_broadcast(g, &x, whole));
    uint32_t axis = (uint32_t)hir_attr_int(op, HIR_A_AXIS, 0);
    int from[HIR_MAX_RANK], to[HIR_MAX_RANK];
    row_squeeze(g, x.type, from);
    row_squeeze(g, type, to);
    row_index map[ROW_VARS] = {0};
    for (uint32_t i = 0; i < x.type.rank; i++)
        if (from[i] >= 0 && i != axis) map[from[i]] = row_var((unsigned)to[i < axis ? i : i - 1]);
    if (from[axis] < 0) { /* a sum over one element is the element */
        *out = row_make_view(g, type, row_through(g, &x.ref, map));
        return true;
    }
    map[from[axis]] = row_var(ROW_INNER);
    uint32_t node = row_add_node(g, ROW_REDUCE, op, row_squeeze(g, type, NULL), when ? 2 : 1);
    row_set_arg(g, node, 0, row_through(g, &x.ref, map));
    if (when) row_set_arg(g, node, 1, c.ref);
    row_at(g, node)->extent = row_dim(g, x.type.dim[axis]);
    row_at(g, node)->last = (uint32_t)from[axis] + 1 == x.shape.rank;
    *out = row_view_node(g, node, type);
    return true;
}

static bool constant(row_graph *g, const hir_op *op, hir_type type, row_view *out) {
    uint32_t node = row_add_node(g, ROW_CONST, op, (row_shape){0}, 0);
    row_at(g, node)->value = hir_attr_float(op, HIR_A_VALUE, 0);
    *out = row_make_view(g, type, (row_ref){.node = node});
    return true;
}

/* ---- what leaves the kernel ------------------------------------------------------------------ */

/* Computes a result in scratch, and copies it to its place after everything else of the token. */
static void deliver_at_the_end(row_graph *g, const hir_op *op, const row_view *v, row_buffer to) {
    uint32_t made = row_add_copy(g, op, v->shape, v->ref);
    row_at(g, made)->token_free = false;
    row_store(g, made);
    row_view kept = row_view_node(g, made, v->type);
    uint32_t copy = row_add_copy(g, op, v->shape, kept.ref);
    row_at(g, copy)->token_free = false;
    row_at(g, copy)->at_the_end = true;
    row_at(g, copy)->buffer = row_add_buffer(g, to);
    row_at(g, copy)->to = row_major(&v->shape);
}

/* Makes the elements of `v` the contents of buffer `to`: they are computed there if they have no
 * other buffer yet, else copied. */
static void deliver(row_graph *g, const hir_op *op, const row_view *v, row_buffer to) {
    if (to.in_place && g->apart) {
        deliver_at_the_end(g, op, v, to);
        return;
    }
    row_node *n = row_at(g, v->ref.node);
    /* what is added to the buffer's contents is not its contents, so that no other node reads it there */
    bool computed = !to.adds && n->kind != ROW_CONST && n->kind != ROW_MULTI &&
                    (n->kind != ROW_MEMORY || n->n_producers > 0);
    if (computed && n->token_free != to.has_t) {
        row_index wanted = row_major(&v->shape), to_memory = row_major(&n->shape);
        bool fresh = n->buffer == ROW_NO_BUFFER;
        row_index at = row_substitute(fresh ? &to_memory : &n->to, v->ref.at);
        bool whole =
            row_index_equal(&wanted, &at) && row_size_equal(row_elements(&n->shape), to.elements);
        if (whole && fresh) row_store(g, v->ref.node);
        row_buffer *home = whole ? &g->buffers.at[row_at(g, v->ref.node)->buffer] : NULL;
        if (home && home->where == ROW_SCRATCH && row_size_equal(home->elements, to.elements)) {
            *home = to;
            n = row_at(g, v->ref.node);
            for (uint32_t i = 0; i < n->n_producers;
                 i++) /* producers that are the same for all tokens */
                row_at(g, n->producers[i])->token_free = n->token_free;
            return;
        }
    }
    uint32_t copy = row_add_copy(g, op, v->shape, v->ref);
    row_at(g, copy)->buffer = row_add_buffer(g, to);
    row_at(g, copy)->to = row_major(&v->shape);
    row_at(g, copy)->token_free = !to.has_t;
}

static row_buffer block_buffer(row_where where, row_size elements) {
    return (row_buffer){
        .where = where, .dtype = HIR_F32, .has_t = true, .elements = elements, .step = 1};
}

/* Always copies: in a state the heads of a row are not contiguous and may be rounded, so that no
 * other op could read the row from there. */
static bool write_state(row_graph *g, const hir_op *op) {
    row_view x;
    const hir_ref to = op->args[hir_state_operand(op->code)];
    if (to.kind != HIR_REF_STATE) return row_unsupported(g, op, "it writes no state");
    /* Tokens of a call may be computed in any order, so that each needs a row of its own. */
    if (hir_state_kind_of(g->m->states.at[to.index].kind)->rows != HIR_ROWS_PER_POSITION)
        return row_unsupported(g, op, "it writes a state that has no row for each position");
    if (!row_view_of(g, op, op->args[0], &x)) return false;
    hir_type state = hir_ref_type(g->m, to);
    bool by_head = g->stage && g->stage->heads;
    uint32_t copy = row_add_copy(g, op, x.shape, x.ref);
    row_at(g, copy)->buffer = row_add_buffer(g, (row_buffer){.where = ROW_STATE,
                                                             .ref = to,
                                                             .dtype = state.dtype,
                                                             .has_t = true,
                                                             .elements = row_elements(&x.shape),
                                                             .by_head = by_head,
                                                             .head = state.dim[2],
                                                             .heads = state.dim[1],
                                                             .rate = hir_rate(state.dim[0])});
    row_at(g, copy)->to = row_major(&x.shape);
    row_at(g, copy)->token_free = false;
    return true;
}

/* Delivers what a prologue or epilogue makes: results of the kernel, and a block in scratch. */
static bool leave(row_graph *g) {
    const row_stage_ops *p = g->stage;
    const hir_op *kernel = hir_op_at(g->m, g->k->op);
    row_view v;
    for (size_t i = 0; i < p->n_yields; i++) {
        hir_ref result = hir_value_ref(p->yields[i].result);
        if (!row_view_of(g, kernel, hir_value_ref(p->yields[i].value), &v)) return false;
        deliver(g, kernel, &v,
                (row_buffer){.where = ROW_ARG,
                             .ref = result,
                             .dtype = hir_ref_type(g->m, result).dtype,
                             .has_t = true,
                             .by_head = p->heads > 0,
                             .elements = row_elements(&v.shape),
                             .step = 1});
    }
    if (p->left == HIR_NONE) return true;
    if (!row_view_of(g, kernel, hir_value_ref(p->left), &v)) return false;
    deliver(g, kernel, &v, block_buffer(ROW_LEFT, row_elements(&v.shape)));
    return true;
}

static bool yield(row_graph *g, const hir_op *op) {
    const hir_op *kernel = hir_op_at(g->m, g->k->op);
    const hir_id *in_place = hir_in_place(g->whole, g->k->op, g->arena);
    for (uint32_t i = 0; i < op->n_args; i++) {
        hir_ref result = hir_value_ref(kernel->results[i]);
        const hir_value *value = hir_value_at(g->m, result.index);
        row_view v;
        if (value->place == HIR_PLACE_STATE) continue; /* the op that writes the state stores it */
        const hir_id own = hir_op_at(g->whole, g->k->op)->results[i];
        const bool adds = hir_value_at(g->whole, own)->place == HIR_PLACE_GRADIENT;
        if (op->args[i].kind == HIR_REF_VALUE && g->totals[op->args[i].index]) {
            row_give_total(g, op, op->args[i].index, result, adds);
            continue;
        }
        if (!row_view_of(g, op, op->args[i], &v)) return false;
        bool has_t = hir_type_has_t(value->type);
        if (!has_t && !row_at(g, v.ref.node)->token_free)
            return row_unsupported(g, op, "a result without T depends on the token");
        const hir_id over = in_place[i];
        deliver(g, op, &v,
                (row_buffer){.where = ROW_ARG,
                             .ref = result,
                             .dtype = value->type.dtype,
                             .has_t = has_t,
                             .elements = row_elements(&v.shape),
                             .step = 1,
                             .adds = adds,
                             .in_place = over != HIR_NONE,
                             .over = over});
    }
    return true;
}

/* ---- the body -------------------------------------------------------------------------------- */

/* A type without T in it, for shapes of rows. T counts as a dim of size 1. */
static bool row_type(row_graph *g, const hir_op *op, hir_type *type) {
    if (type->dtype != HIR_F32 && op->code != HIR_CONVERT_OP && op->code != HIR_TOPK_OP &&
        op->code != HIR_TO_IDS_OP && op->code != HIR_RESHAPE_OP)
        return row_unsupported(g, op, "its result is not f32");
    for (uint32_t i = 0; i < type->rank; i++)
        if (hir_is_length(type->dim[i]))
            return row_unsupported(g, op, "its result is as long as the cache");
    return true;
}

/* Makes the view of what an op makes, of this type. */
typedef bool row_builder(row_graph *g, const hir_op *op, hir_type type, row_view *out);

static bool reshaped(row_graph *g, const hir_op *op, hir_type type, row_view *out) {
    row_view x;
    if (!row_view_of(g, op, op->args[0], &x)) return false;
    *out = row_reshaped(g, op, x, type);
    return true;
}

static bool transposed(row_graph *g, const hir_op *op, hir_type type, row_view *out) {
    row_view x;
    if (!row_view_of(g, op, op->args[0], &x)) return false;
    *out = row_transposed(g, op, &x, type);
    return true;
}

static bool stretched(row_graph *g, const hir_op *op, hir_type type, row_view *out) {
    row_view x;
    if (!row_view_of(g, op, op->args[0], &x)) return false;
    *out = row_make_view(g, type, row_broadcast(g, &x, type));
    return true;
}

static bool sliced(row_graph *g, const hir_op *op, hir_type type, row_view *out) {
    row_view x;
    if (!row_view_of(g, op, op->args[0], &x)) return false;
    const row_size start = row_dim(g, hir_attr_int(op, HIR_A_START, 0));
    *out = row_sliced(g, &x, (uint32_t)hir_attr_int(op, HIR_A_AXIS, 0), start, type);
    return true;
}

/* Makes the nodes of ops that are neither elementwise nor reductions. */
static row_builder *const builders[HIR_OPCODE_COUNT] = {
    [HIR_CONST_OP] = constant,
    [HIR_STACK_OP] = row_side_by_side,
    [HIR_CONCAT_OP] = row_side_by_side,
    [HIR_SLICE_OP] = sliced,
    [HIR_RESHAPE_OP] = reshaped,
    [HIR_TRANSPOSE_OP] = transposed,
    [HIR_BROADCAST_OP] = stretched,
    [HIR_GATHER_OP] = row_gather,
    [HIR_ROPE_TABLE_OP] = row_rope_table,
    [HIR_ROPE_OP] = row_rope,
    [HIR_TOPK_OP] = row_selection,
    [HIR_TO_IDS_OP] = row_selection,
    [HIR_PICK_OP] = row_selection,
    [HIR_MARK_OP] = row_selection,
    [HIR_SCATTER_OP] = row_selection,
};

static bool build_value(row_graph *g, const hir_op *op, hir_type type, row_view *out) {
    row_builder *build = builders[op->code];
    if (hir_has_trait(op->code, HIR_ELEMENTWISE)) build = elementwise;
    if (hir_has_trait(op->code, HIR_REDUCE)) build = reduction;
    return build ? build(g, op, type, out) : row_unsupported(g, op, "it does not belong there");
}

/* Views of what an op makes. */
static bool build_op(row_graph *g, const hir_op *op) {
    if (hir_has_trait(op->code, HIR_WRITES_STATE)) return write_state(g, op);
    if (row_makes_total(g, op)) return row_make_total(g, op);
    if (op->n_results != 1) return row_unsupported(g, op, "it does not belong there");
    hir_type type = row_type_of(g, hir_value_ref(op->results[0]));
    row_view *v = hd_new(g->arena, row_view);
    if (!row_type(g, op, &type) || !build_value(g, op, type, v)) return false;
    g->views[op->results[0]] = v;
    return true;
}

static bool build_stage(row_graph *g) {
    const row_stage_ops *p = g->stage;
    g->has_t = true;
    if (p->given != HIR_NONE) {
        hir_type type = row_type_of(g, hir_value_ref(p->given));
        uint32_t buffer = row_add_buffer(g, block_buffer(ROW_GIVEN, row_type_elements(g, type)));
        row_view *v = hd_new(g->arena, row_view);
        *v = row_view_buffer(g, row_add_memory(g, hir_op_at(g->m, g->k->op), buffer, false), type);
        g->views[p->given] = v;
    }
    for (size_t i = 0; i < p->n_ops; i++)
        if (!build_op(g, hir_op_at(g->m, p->ops[i]))) return false;
    return leave(g);
}

bool row_build(row_graph *g) {
    const hir_op *kernel = hir_op_at(g->m, g->k->op);
    g->views = hd_new_array(g->arena, row_view *, g->m->values.n);
    g->totals = hd_new_array(g->arena, row_total *, g->m->values.n);
    g->weights = hd_new_array(g->arena, uint32_t, g->m->weights.n + 1);
    memset(g->weights, 0xff, (g->m->weights.n + 1) * sizeof *g->weights);
    if (g->stage) return build_stage(g);
    for (uint32_t i = 0; i < kernel->n_results; i++) {
        hir_type t = hir_value_at(g->m, kernel->results[i])->type;
        g->has_t |= t.rank > 0 && t.dim[0] < 0;
    }
    g->has_t |= hir_reduces_tokens(g->m, g->k->op);
    HIR_EACH(g->m, id, kernel->body_first) {
        const hir_op *op = hir_op_at(g->m, id);
        if (op->code == HIR_YIELD_OP) return yield(g, op);
        if (!build_op(g, op)) return false;
    }
    return true;
}

/* ---- topk, pick, mark and scatter ------------------------------------------------------------ */
/* topk, to_ids, pick, mark and scatter work with element numbers that are only known at run time. No index
 * map can express them: each reads its operands in memory and fills a buffer. */

enum { MOST_ELEMENTS = 1 << 24 /* the longest axis: ids pass through f32 where they are copied */ };

/* Are all elements of x in memory, contiguous from the first on? */
static bool is_plain(const row_graph *g, const row_view *x) {
    const row_node *n = &g->nodes.at[x->ref.node];
    if (n->kind != ROW_MEMORY) return false;
    const row_buffer *b = &g->buffers.at[n->buffer];
    const row_index wanted = row_major(&x->shape), at = row_linear(g, &x->ref);
    return b->step == 1 && (b->dtype == HIR_F32 || b->dtype == HIR_I32) && b->where != ROW_STATE &&
           row_index_equal(&wanted, &at);
}

/* Operand i, whose dims before the last are stretched to those of `type` unless it has only one
 * row.
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

bool row_selection(row_graph *g, const hir_op *op, hir_type type, row_view *out) {
    row_view x[2];
    const row_shape shape = row_squeeze(g, type, NULL);
    for (uint32_t i = 0; i < op->n_args; i++)
        if (!operand(g, op, i, type, &x[i])) return false;
    const uint32_t memory = row_add_filled(g, op, &shape, 1);
    g->buffers.at[row_at(g, memory)->buffer].dtype = type.dtype;
    const uint32_t node = row_add_node(g, ROW_SELECTION, op, shape, op->n_args);
    for (uint32_t i = 0; i < op->n_args; i++)
        row_set_arg(g, node, i, (row_ref){.node = x[i].ref.node});
    row_add_producer(g, memory, node, row_major(&shape));
    *out = row_view_buffer(g, memory, type);
    return true;
}
