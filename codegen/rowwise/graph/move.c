/* Ops that only move elements. They become affine index maps, without a node, wherever such a map
 * can express them; stacks of rows become tables of pointers. */
#include "codegen/program/row_family.h"
#include "codegen/rowwise/graph/build.h"

enum { MOST_ENTRIES = 1 << 16 };

/* ---- moving elements ------------------------------------------------------------------------- */

/* Operand `x` stretched to `type` by the rules of elementwise ops: dims aligned at the right. */
row_ref row_broadcast(row_graph *g, const row_view *x, hir_type type) {
    int from[HIR_MAX_RANK], to[HIR_MAX_RANK];
    row_squeeze(g, x->type, from);
    row_squeeze(g, type, to);
    row_index map[ROW_VARS] = {0};
    for (uint32_t i = 0; i < x->type.rank; i++) {
        int place = to[i + type.rank - x->type.rank];
        if (from[i] >= 0 && place >= 0) map[from[i]] = row_var((unsigned)place);
    }
    return row_through(g, &x->ref, map);
}

row_view row_transposed(row_graph *g, const hir_op *op, const row_view *x, hir_type type) {
    const int64_t *perm = hir_find_attr(op, HIR_A_PERM)->ints;
    int from[HIR_MAX_RANK], to[HIR_MAX_RANK];
    row_squeeze(g, x->type, from);
    row_squeeze(g, type, to);
    row_index map[ROW_VARS] = {0};
    for (uint32_t i = 0; i < type.rank; i++)
        if (from[perm[i]] >= 0) map[from[perm[i]]] = row_var((unsigned)to[i]);
    return row_make_view(g, type, row_through(g, &x->ref, map));
}

/* Maps the dims of x to those of y: shifted by `start` along `axis`, where elements of y are
 * `step` apart in x; the other dims are the same (same type rank). */
row_view row_strided(row_graph *g, const row_view *x, uint32_t axis, row_size start, int64_t step,
                     hir_type type) {
    int from[HIR_MAX_RANK], to[HIR_MAX_RANK];
    row_squeeze(g, x->type, from);
    row_squeeze(g, type, to);
    row_index map[ROW_VARS] = {0};
    for (uint32_t i = 0; i < type.rank; i++) {
        if (from[i] < 0) continue;
        if (to[i] >= 0) map[from[i]] = row_var((unsigned)to[i]);
        if (i != axis) continue;
        if (to[i] >= 0) map[from[i]].by[to[i]] = row_int(step);
        map[from[i]].constant = row_size_add(map[from[i]].constant, start);
    }
    return row_make_view(g, type, row_through(g, &x->ref, map));
}

row_view row_sliced(row_graph *g, const row_view *x, uint32_t axis, row_size start, hir_type type) {
    return row_strided(g, x, axis, start, 1, type);
}

row_view row_in_memory(row_graph *g, const hir_op *op, const row_view *x) {
    uint32_t node = row_add_copy(g, op, x->shape, x->ref);
    row_store(g, node);
    if (x->type.dtype == HIR_I32) g->buffers.at[row_at(g, node)->buffer].dtype = HIR_I32;
    uint32_t memory = row_add_memory(g, op, row_at(g, node)->buffer, row_at(g, node)->token_free);
    uint32_t *producer = hd_new(g->arena, uint32_t);
    *producer = node;
    row_at(g, memory)->producers = producer;
    row_at(g, memory)->n_producers = 1;
    row_at(g, node)->fills = memory;
    row_view v = *x;
    v.ref = (row_ref){.node = memory};
    v.ref.at[0] = row_major(&x->shape);
    return v;
}

row_view row_reshaped(row_graph *g, const hir_op *op, row_view x, hir_type type) {
    row_shape shape = row_squeeze(g, type, NULL);
    row_view y = row_make_view(g, type, (row_ref){.node = x.ref.node});
    row_index map[ROW_VARS] = {0};
    if (row_split(&x.shape, &shape, map)) {
        y.ref = row_through(g, &x.ref, map);
        return y;
    }
    if (row_at(g, x.ref.node)->kind != ROW_MEMORY ||
        !row_reshape(&x.ref.at[0], &x.shape, &shape, &y.ref.at[0])) {
        x = row_in_memory(g, op, &x);
        y.ref.node = x.ref.node;
        row_reshape(&x.ref.at[0], &x.shape, &shape, &y.ref.at[0]);
    }
    return y;
}

/* ---- stack, concat: operands side by side ---------------------------------------------------- */

typedef struct operand { /* an operand of a stack or concat: where it begins along the axis, and
                            its length there */
    row_view view;
    row_size start, length;
    bool stacked; /* the operand's view has no dim for the axis */
} operand;

static row_view copy_operands(row_graph *g, const hir_op *op, const operand *operands,
                              uint32_t axis, hir_type type) {
    row_shape shape = row_squeeze(g, type, NULL);
    int place[HIR_MAX_RANK], from[HIR_MAX_RANK];
    row_squeeze(g, type, place);
    row_index whole = row_major(&shape);
    uint32_t memory = row_add_filled(g, op, &shape, op->n_args);
    for (uint32_t j = 0; j < op->n_args; j++) {
        const row_view *x = &operands[j].view;
        row_squeeze(g, x->type, from);
        row_index to = {0};
        if (place[axis] >= 0) to.constant = row_size_mul(operands[j].start, whole.by[place[axis]]);
        for (uint32_t i = 0; i < x->type.rank; i++) {
            int there = place[operands[j].stacked && i >= axis ? i + 1 : i];
            if (from[i] >= 0) to.by[from[i]] = whole.by[there];
        }
        row_add_producer(g, memory, row_add_copy(g, op, x->shape, x->ref), to);
    }
    return row_view_buffer(g, memory, type);
}

static bool can_store(const row_node *n) {
    return n->kind != ROW_MULTI && n->kind != ROW_CONST;
}

/* Element numbers of the row that `ref`, whose dims are those of the multi node but `axis`, reads:
 * a node with a buffer and an affine map. False if there is none. */
static bool locate(row_graph *g, row_ref ref, row_entry *entry, row_index *at) {
    const row_node *n = row_at(g, ref.node);
    if (n->kind == ROW_MULTI) { /* a stack in a stack, one row of it */
        if (n->run) return false;
        const row_index *which = &ref.at[n->axis];
        row_index fixed = row_fixed(which->constant);
        if (!row_index_equal(&fixed, which) || row_is_dynamic(which->constant)) return false;
        const row_entry *inner = &n->entries[which->constant.a];
        entry->node = inner->node;
        *at = row_substitute(&n->within, ref.at);
        entry->offset = row_size_add(inner->offset, at->constant);
        at->constant = row_int(0);
        return true;
    }
    if (!can_store(n)) return false;
    row_store(g, ref.node);
    *at = row_linear(g, &ref);
    entry->node = ref.node;
    entry->offset = at->constant;
    at->constant = row_int(0);
    const row_buffer *b = &g->buffers.at[row_at(g, ref.node)->buffer];
    return b->step == 1;
}

static bool same_entries(const row_node *a, const row_node *b) {
    if (a->kind != ROW_MULTI || a->run || a->n_entries != b->n_entries || a->axis != b->axis)
        return false;
    for (uint32_t j = 0; j < a->n_entries; j++)
        if (a->entries[j].node != b->entries[j].node ||
            !row_size_equal(a->entries[j].offset, b->entries[j].offset))
            return false;
    return row_shape_equal(&a->shape, &b->shape) && row_index_equal(&a->within, &b->within);
}

/* The node of a stack; an existing one, if it stacks the same rows. So depth mixes (weighted sums
 * of earlier outputs) of many queries over the same sources share a table of pointers, and loads of
 * the rows. */
static uint32_t add_multi(row_graph *g, const hir_op *op, const row_node *m) {
    for (uint32_t i = (uint32_t)g->nodes.n; i-- > 0;)
        if (same_entries(row_at(g, i), m)) return i;
    uint32_t node = row_add_node(g, ROW_MULTI, op, m->shape, 0);
    row_node *n = row_at(g, node);
    n->axis = m->axis;
    n->within = m->within;
    n->dtype = m->dtype;
    n->entries = m->entries;
    n->n_entries = m->n_entries;
    n->token_free = m->token_free;
    return node;
}

/* Stacks rows without moving them, which is possible if one map gives the elements of every
 * row. */
static bool point_to_operands(row_graph *g, const hir_op *op, const operand *operands,
                              uint32_t axis, bool stacked, hir_type type, row_view *out) {
    int place[HIR_MAX_RANK], from[HIR_MAX_RANK];
    row_shape shape = row_squeeze(g, type, place);
    uint32_t along = (uint32_t)place[axis];
    row_entry *entries = hd_new_array(g->arena, row_entry, (size_t)shape.dim[along].a);
    row_index within = {0};
    int64_t n = 0;
    bool token_free = true;
    hir_dtype dtype = HIR_F32;
    for (uint32_t j = 0; j < op->n_args; j++) {
        const row_view *x = &operands[j].view;
        row_squeeze(g, x->type, from);
        for (int64_t i = 0; i < operands[j].length.a; i++, n++) {
            row_index map[ROW_VARS] = {0}, at;
            for (uint32_t d = 0; d < x->type.rank; d++) {
                if (from[d] < 0) continue;
                if (!stacked && d == axis)
                    map[from[d]] = row_fixed(row_int(i));
                else
                    map[from[d]] = row_var((unsigned)place[stacked && d >= axis ? d + 1 : d]);
            }
            if (!locate(g, row_through(g, &x->ref, map), &entries[n], &at)) return false;
            hir_dtype own = g->buffers.at[row_at(g, entries[n].node)->buffer].dtype;
            if (n == 0) within = at;
            if (n == 0) dtype = own;
            if (!row_index_equal(&within, &at) || own != dtype) return false;
            token_free &= row_at(g, entries[n].node)->token_free;
        }
    }
    row_node m = {.kind = ROW_MULTI, .shape = shape, .axis = along, .within = within};
    m.dtype = dtype;
    m.entries = entries;
    m.n_entries = (uint32_t)n;
    m.token_free = token_free;
    *out = row_view_node(g, add_multi(g, op, &m), type);
    return true;
}

bool row_side_by_side(row_graph *g, const hir_op *op, hir_type type, row_view *out) {
    bool stacked = op->code == HIR_STACK_OP;
    uint32_t axis = (uint32_t)hir_attr_int(op, HIR_A_AXIS, 0);
    operand *operands = hd_new_array(g->arena, operand, op->n_args);
    row_size start = row_int(0), row = row_int(1);
    for (uint32_t j = 0; j < op->n_args; j++) {
        if (!row_view_of(g, op, op->args[j], &operands[j].view)) return false;
        operands[j].start = start;
        operands[j].stacked = stacked && operands[j].view.type.rank < type.rank; /* an operand
                                                                                    range has it */
        operands[j].length = row_int(1);
        if (!operands[j].stacked) operands[j].length = row_dim(g, operands[j].view.type.dim[axis]);
        start = row_size_add(start, operands[j].length);
    }
    for (uint32_t i = axis + 1; i < type.rank; i++)
        row = row_size_mul(row, row_dim(g, type.dim[i]));
    const bool is_long = row_bound(row) >= HCG_SMALL_ROW;
    if (is_long && op->n_args == 1 && !operands[0].stacked) {
        *out = operands[0].view;
        return true;
    }
    if (is_long && row_bound(start) > 1 && row_bound(start) <= MOST_ENTRIES &&
        point_to_operands(g, op, operands, axis, stacked, type, out))
        return true;
    *out = copy_operands(g, op, operands, axis, type);
    return true;
}
