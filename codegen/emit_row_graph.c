/* The body of a row program as a graph of nodes. Ops that only move elements leave no node behind
 * where an affine map can say where the elements are; rope, concat and stacks of small pieces
 * become a buffer and the nodes that fill it. */
#include "codegen/emit_row.h"

#include <math.h>
#include <string.h>

/* Rows shorter than this are not worth a pointer: a stack of them is copied together. */
enum { SMALL_ROW = 16, MOST_ENTRIES = 1 << 16 };

static bool unsupported(row_graph *g, const hir_op *op, const char *why) {
    hd_err(g->diags, HD_E_UNSUPPORTED, op->loc, "%s in a row program: %s", hir_info(op->code)->name,
           why);
    return false;
}

/* ---- nodes and buffers ------------------------------------------------------------------------
 */

static uint32_t add_node(row_graph *g, row_kind kind, const hir_op *op, row_shape shape,
                         uint32_t n_args) {
    row_node n = {.kind = kind, .op = op, .shape = shape, .token_free = true, .n_args = n_args};
    n.buffer = ROW_NO_BUFFER;
    n.nest = ROW_NO_NEST;
    n.sibling = n.fills = HIR_NONE;
    n.args = hd_new_array(g->arena, row_ref, n_args ? n_args : 1);
    hd_push(g->arena, &g->nodes, n);
    return (uint32_t)(g->nodes.n - 1);
}

static void set_arg(row_graph *g, uint32_t node, uint32_t i, row_ref ref) {
    row_node *n = row_at(g, node);
    n->args[i] = ref;
    n->token_free &= row_at(g, ref.node)->token_free;
}

static uint32_t add_buffer(row_graph *g, row_buffer b) {
    if (!b.step) b.step = 1;
    hd_push(g->arena, &g->buffers, b);
    return (uint32_t)(g->buffers.n - 1);
}

static row_ref identity(uint32_t node, uint32_t rank) {
    row_ref r = {.node = node};
    for (uint32_t i = 0; i < rank; i++)
        r.at[i] = row_var(i);
    return r;
}

/* `ref`, over the dims of a view, over other dims instead: map[i] tells view dim i. */
static row_ref substitute(const row_graph *g, const row_ref *ref, const row_index *map) {
    row_ref r = {.node = ref->node};
    for (uint32_t i = 0; i < g->nodes.at[ref->node].shape.rank; i++)
        r.at[i] = row_substitute(&ref->at[i], map);
    return r;
}

static uint32_t add_memory(row_graph *g, const hir_op *op, uint32_t buffer, bool token_free) {
    row_shape flat = {.rank = 1, .dim = {g->buffers.at[buffer].elements}};
    uint32_t node = add_node(g, ROW_MEMORY, op, flat, 0);
    row_at(g, node)->buffer = buffer;
    row_at(g, node)->to = row_var(0);
    row_at(g, node)->token_free = token_free;
    return node;
}

void row_store(row_graph *g, uint32_t node) {
    if (row_at(g, node)->buffer != ROW_NO_BUFFER) return;
    row_shape shape = row_at(g, node)->shape;
    uint32_t buffer = add_buffer(
        g, (row_buffer){.where = ROW_SCRATCH, .dtype = HIR_F32, .elements = row_elements(&shape)});
    row_at(g, node)->buffer = buffer;
    row_at(g, node)->to = row_major(&shape);
}

static bool can_store(const row_node *n) {
    return n->kind != ROW_MULTI && n->kind != ROW_CONST;
}

/* Element number in the buffer of the node that `ref` reads. */
static row_index linear(const row_graph *g, const row_ref *ref) {
    return row_substitute(&g->nodes.at[ref->node].to, ref->at);
}

/* A copy of a view, computed where it is read unless it gets a buffer. */
static uint32_t add_copy(row_graph *g, const hir_op *op, row_shape shape, row_ref of) {
    uint32_t node = add_node(g, ROW_COPY, op, shape, 1);
    set_arg(g, node, 0, of);
    return node;
}

/* ---- views of values ---------------------------------------------------------------------------
 */

static row_view make_view(hir_type type, row_ref ref) {
    return (row_view){.type = type, .shape = row_squeeze(type, NULL), .ref = ref};
}

/* All elements of a buffer in order, under the shape of `type`. */
static row_view view_buffer(row_graph *g, uint32_t memory, hir_type type) {
    row_view v = make_view(type, (row_ref){.node = memory});
    v.ref.at[0] = row_major(&v.shape);
    (void)g;
    return v;
}

static row_view view_node(row_graph *g, uint32_t node, hir_type type) {
    row_view v = make_view(type, identity(node, row_at(g, node)->shape.rank));
    return v;
}

static bool view_outer_value(row_graph *g, const hir_op *reader, hir_ref ref, row_view *out) {
    hir_type type = hir_ref_type(g->m, ref);
    for (uint32_t i = 0; i < type.rank; i++)
        if (type.dim[i] == HIR_C) return unsupported(g, reader, "it cannot read along the cache");
    if (type.dtype != HIR_F32) return unsupported(g, reader, "it reads f32 values only");
    bool has_t = hir_type_has_t(type);
    uint32_t buffer = add_buffer(g, (row_buffer){.where = ROW_ARG,
                                                 .ref = ref,
                                                 .dtype = HIR_F32,
                                                 .has_t = has_t,
                                                 .elements = hir_type_row_elements(type)});
    *out = view_buffer(g, add_memory(g, reader, buffer, !has_t), type);
    return true;
}

static bool view_weight(row_graph *g, const hir_op *reader, hir_ref ref, row_view *out) {
    const hir_weight *w = &g->m->weights.at[ref.index];
    if (w->layout != HIR_LAYOUT_ROWS)
        return unsupported(g, reader, "it reads weights that lie in rows, but this one is packed");
    if (g->weights[ref.index] == HIR_NONE) {
        uint32_t buffer = add_buffer(g, (row_buffer){.where = ROW_ARG,
                                                     .ref = ref,
                                                     .dtype = w->type.dtype,
                                                     .elements = hir_type_row_elements(w->type)});
        g->weights[ref.index] = add_memory(g, reader, buffer, true);
    }
    *out = view_buffer(g, g->weights[ref.index], w->type);
    return true;
}

/* The view of an operand, made on first sight if it comes from outside. */
static bool view_of(row_graph *g, const hir_op *reader, hir_ref ref, row_view *out) {
    if (ref.kind == HIR_REF_WEIGHT) return view_weight(g, reader, ref, out);
    if (ref.kind != HIR_REF_VALUE) return unsupported(g, reader, "it reads no state");
    row_view **v = &g->views[ref.index];
    if (!*v) {
        *v = hd_new(g->arena, row_view);
        if (!view_outer_value(g, reader, ref, *v)) return false;
    }
    *out = **v;
    return true;
}

/* ---- moving elements ---------------------------------------------------------------------------
 */

/* Operand `x` stretched to `type` by the rules of elementwise ops: dims aligned at the right. */
static row_ref broadcast_to(row_graph *g, const row_view *x, hir_type type) {
    int from[HIR_MAX_RANK], to[HIR_MAX_RANK];
    row_squeeze(x->type, from);
    row_squeeze(type, to);
    row_index map[ROW_VARS] = {0};
    for (uint32_t i = 0; i < x->type.rank; i++) {
        int place = to[i + type.rank - x->type.rank];
        if (from[i] >= 0 && place >= 0) map[from[i]] = row_var((unsigned)place);
    }
    return substitute(g, &x->ref, map);
}

static row_view transposed(row_graph *g, const hir_op *op, const row_view *x, hir_type type) {
    const int64_t *perm = hir_find_attr(op, HIR_A_PERM)->ints;
    int from[HIR_MAX_RANK], to[HIR_MAX_RANK];
    row_squeeze(x->type, from);
    row_squeeze(type, to);
    row_index map[ROW_VARS] = {0};
    for (uint32_t i = 0; i < type.rank; i++)
        if (from[perm[i]] >= 0) map[from[perm[i]]] = row_var((unsigned)to[i]);
    return make_view(type, substitute(g, &x->ref, map));
}

/* Dims of x shifted by `start` along `axis`; other dims of x are dims of y (same type rank). */
static row_view sliced(row_graph *g, const row_view *x, uint32_t axis, int64_t start,
                       hir_type type) {
    int from[HIR_MAX_RANK], to[HIR_MAX_RANK];
    row_squeeze(x->type, from);
    row_squeeze(type, to);
    row_index map[ROW_VARS] = {0};
    for (uint32_t i = 0; i < type.rank; i++) {
        if (from[i] < 0) continue;
        if (to[i] >= 0) map[from[i]] = row_var((unsigned)to[i]);
        if (i == axis) map[from[i]].constant += start;
    }
    return make_view(type, substitute(g, &x->ref, map));
}

/* x laid out in memory, its elements in order. */
static row_view in_memory(row_graph *g, const hir_op *op, const row_view *x) {
    uint32_t node = add_copy(g, op, x->shape, x->ref);
    row_store(g, node);
    uint32_t memory = add_memory(g, op, row_at(g, node)->buffer, row_at(g, node)->token_free);
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

static row_view reshaped(row_graph *g, const hir_op *op, row_view x, hir_type type) {
    row_shape shape = row_squeeze(type, NULL);
    row_view y = make_view(type, (row_ref){.node = x.ref.node});
    row_index map[ROW_VARS] = {0};
    if (row_split(&x.shape, &shape, map)) {
        y.ref = substitute(g, &x.ref, map);
        return y;
    }
    if (row_at(g, x.ref.node)->kind != ROW_MEMORY ||
        !row_reshape(&x.ref.at[0], &x.shape, &shape, &y.ref.at[0])) {
        x = in_memory(g, op, &x);
        y.ref.node = x.ref.node;
        row_reshape(&x.ref.at[0], &x.shape, &shape, &y.ref.at[0]);
    }
    return y;
}

/* ---- stack, concat: pieces side by side --------------------------------------------------------
 */

/* A buffer of `shape` whose producers are still to be added. */
static uint32_t add_filled(row_graph *g, const hir_op *op, const row_shape *shape,
                           uint32_t n_parts) {
    uint32_t buffer = add_buffer(
        g, (row_buffer){.where = ROW_SCRATCH, .dtype = HIR_F32, .elements = row_elements(shape)});
    uint32_t memory = add_memory(g, op, buffer, true);
    row_at(g, memory)->producers = hd_new_array(g->arena, uint32_t, n_parts);
    return memory;
}

/* `part` writes its elements at `to` of the buffer of `memory`. */
static void add_part(row_graph *g, uint32_t memory, uint32_t part, row_index to) {
    row_node *m = row_at(g, memory), *p = row_at(g, part);
    p->buffer = m->buffer;
    p->to = to;
    p->fills = memory;
    m->producers[m->n_producers++] = part;
    m->token_free &= p->token_free;
}

typedef struct piece { /* of a stack or concat: where it begins along the axis, how far it goes */
    row_view view;
    int64_t start, length;
} piece;

static row_view copy_pieces(row_graph *g, const hir_op *op, const piece *pieces, uint32_t axis,
                            bool stacked, hir_type type) {
    row_shape shape = row_squeeze(type, NULL);
    int place[HIR_MAX_RANK], from[HIR_MAX_RANK];
    row_squeeze(type, place);
    row_index whole = row_major(&shape);
    uint32_t memory = add_filled(g, op, &shape, op->n_args);
    for (uint32_t j = 0; j < op->n_args; j++) {
        const row_view *x = &pieces[j].view;
        row_squeeze(x->type, from);
        row_index to = row_fixed(0);
        if (place[axis] >= 0) to.constant = pieces[j].start * whole.by[place[axis]];
        for (uint32_t i = 0; i < x->type.rank; i++) {
            int there = place[stacked && i >= axis ? i + 1 : i];
            if (from[i] >= 0) to.by[from[i]] = whole.by[there];
        }
        add_part(g, memory, add_copy(g, op, x->shape, x->ref), to);
    }
    return view_buffer(g, memory, type);
}

/* Element numbers of the row that `ref`, whose dims are those of the multi node but `axis`, reads:
 * a node with a buffer and an affine map. False if there is none. */
static bool locate(row_graph *g, row_ref ref, row_entry *entry, row_index *at) {
    const row_node *n = row_at(g, ref.node);
    if (n->kind == ROW_MULTI) { /* a stack in a stack, one row of it */
        const row_index *which = &ref.at[n->axis];
        row_index fixed = row_fixed(which->constant);
        if (!row_index_equal(&fixed, which)) return false;
        entry->node = n->entries[which->constant].node;
        *at = row_substitute(&n->within, ref.at);
        entry->offset = n->entries[which->constant].offset + at->constant;
        at->constant = 0;
        return true;
    }
    if (!can_store(n)) return false;
    row_store(g, ref.node);
    *at = linear(g, &ref);
    entry->node = ref.node;
    entry->offset = at->constant;
    at->constant = 0;
    const row_buffer *b = &g->buffers.at[row_at(g, ref.node)->buffer];
    return b->dtype == HIR_F32 && b->step == 1;
}

/* Rows side by side without moving them: possible when the same map finds the elements of each. */
static bool point_to_pieces(row_graph *g, const hir_op *op, const piece *pieces, uint32_t axis,
                            bool stacked, hir_type type, row_view *out) {
    int place[HIR_MAX_RANK], from[HIR_MAX_RANK];
    row_shape shape = row_squeeze(type, place);
    uint32_t along = (uint32_t)place[axis];
    row_entry *entries = hd_new_array(g->arena, row_entry, (size_t)shape.dim[along]);
    row_index within = {0};
    int64_t n = 0;
    bool token_free = true;
    for (uint32_t j = 0; j < op->n_args; j++) {
        const row_view *x = &pieces[j].view;
        row_squeeze(x->type, from);
        for (int64_t i = 0; i < pieces[j].length; i++, n++) {
            row_index map[ROW_VARS] = {0}, at;
            for (uint32_t d = 0; d < x->type.rank; d++) {
                if (from[d] < 0) continue;
                if (!stacked && d == axis)
                    map[from[d]] = row_fixed(i);
                else
                    map[from[d]] = row_var((unsigned)place[stacked && d >= axis ? d + 1 : d]);
            }
            if (!locate(g, substitute(g, &x->ref, map), &entries[n], &at)) return false;
            if (n == 0) within = at;
            if (!row_index_equal(&within, &at)) return false;
            token_free &= row_at(g, entries[n].node)->token_free;
        }
    }
    uint32_t node = add_node(g, ROW_MULTI, op, shape, 0);
    row_node *m = row_at(g, node);
    m->axis = along;
    m->within = within;
    m->entries = entries;
    m->n_entries = (uint32_t)n;
    m->token_free = token_free;
    *out = view_node(g, node, type);
    return true;
}

static bool side_by_side(row_graph *g, const hir_op *op, hir_type type, row_view *out) {
    bool stacked = op->code == HIR_STACK_OP;
    uint32_t axis = (uint32_t)hir_attr_int(op, HIR_A_AXIS, 0);
    piece *pieces = hd_new_array(g->arena, piece, op->n_args);
    int64_t start = 0, row = 1;
    for (uint32_t j = 0; j < op->n_args; j++) {
        if (!view_of(g, op, op->args[j], &pieces[j].view)) return false;
        pieces[j].start = start;
        pieces[j].length = stacked ? 1 : pieces[j].view.type.dim[axis];
        start += pieces[j].length;
    }
    for (uint32_t i = axis + 1; i < type.rank; i++)
        row *= type.dim[i];
    if (row >= SMALL_ROW && start > 1 && start <= MOST_ENTRIES &&
        point_to_pieces(g, op, pieces, axis, stacked, type, out))
        return true;
    *out = copy_pieces(g, op, pieces, axis, stacked, type);
    return true;
}

/* ---- positions ---------------------------------------------------------------------------------
 */

/* f_j of rope_table (ir/ops.def). */
static double frequency(const hir_op *op, int64_t j) {
    const double pi = 3.14159265358979323846;
    double length = (double)hir_attr_int(op, HIR_A_LENGTH, 2);
    double f = pow(hir_attr_float(op, HIR_A_THETA, 10000), -2.0 * (double)j / length);
    const char *scaling = hir_attr_string(op, HIR_A_SCALING, NULL);
    double factor = hir_attr_float(op, HIR_A_FACTOR, 1);
    if (!scaling) return f;
    if (strcmp(scaling, "linear") == 0) return f / factor;
    double original = (double)hir_attr_int(op, HIR_A_ORIGINAL, 1);
    double low = hir_attr_float(op, HIR_A_LOW_FREQ, 1),
           high = hir_attr_float(op, HIR_A_HIGH_FREQ, 4);
    double wavelength = 2 * pi / f;
    if (wavelength < original / high) return f;
    if (wavelength > original / low) return f / factor;
    double s = (original / wavelength - low) / (high - low);
    return (1 - s) * f / factor + s * f;
}

static bool rope_table(row_graph *g, const hir_op *op, hir_type type, row_view *out) {
    const char *scaling = hir_attr_string(op, HIR_A_SCALING, NULL);
    if (scaling && strcmp(scaling, "linear") != 0 && strcmp(scaling, "llama3") != 0)
        return unsupported(g, op, "this scaling of frequencies is not known");
    int64_t half = hir_attr_int(op, HIR_A_LENGTH, 2) / 2, padded = (half + 63) / 64 * 64;
    double *f = hd_new_array(g->arena, double, (size_t)padded);
    for (int64_t j = 0; j < half; j++)
        f[j] = frequency(op, j);
    row_table table = {.at = f, .n = half, .padded = padded};
    hd_push(g->arena, &g->tables, table);
    hir_type half_type = hir_make_type(HIR_F32, 1, &half);
    row_shape shape = row_squeeze(type, NULL), half_shape = row_squeeze(half_type, NULL);
    uint32_t memory = add_filled(g, op, &shape, 2);
    uint32_t cosine = add_node(g, ROW_TRIG, op, half_shape, 0);
    uint32_t sine = add_node(g, ROW_TRIG, op, half_shape, 0);
    uint32_t pair[] = {cosine, sine};
    for (int i = 0; i < 2; i++) {
        row_node *n = row_at(g, pair[i]);
        n->is_sine = i == 1;
        n->sibling = pair[1 - i];
        n->token_free = false;
        n->frequencies = (uint32_t)(g->tables.n - 1);
        row_index to = row_major(&half_shape);
        to.constant = i * half;
        add_part(g, memory, pair[i], to);
    }
    *out = view_buffer(g, memory, type);
    return true;
}

/* [a cos - b sin, b cos + a sin], a and b the halves of the last dim of x [T, H, n]. */
static bool rope(row_graph *g, const hir_op *op, hir_type type, row_view *out) {
    row_view x, table;
    if (!view_of(g, op, op->args[0], &x) || !view_of(g, op, op->args[1], &table)) return false;
    uint32_t last = type.rank - 1, table_last = table.type.rank - 1;
    int64_t half = type.dim[last] / 2;
    if (type.dim[last] % 2 != 0) return unsupported(g, op, "the last dim is odd");
    hir_type half_type = type, half_table = table.type;
    half_type.dim[last] = half_table.dim[table_last] = half;
    row_view a = sliced(g, &x, last, 0, half_type), b = sliced(g, &x, last, half, half_type);
    row_view c = sliced(g, &table, table_last, 0, half_table);
    row_view s = sliced(g, &table, table_last, half, half_table);
    /* the table's [T, n] stands at the right of x's dims, T apart */
    hir_type one_head = half_type;
    for (uint32_t i = 1; i < last; i++)
        one_head.dim[i] = 1;
    c.type = s.type = one_head;
    row_ref cosine = broadcast_to(g, &c, half_type), sine = broadcast_to(g, &s, half_type);

    row_shape shape = row_squeeze(type, NULL);
    uint32_t memory = add_filled(g, op, &shape, 2);
    int place[HIR_MAX_RANK];
    row_squeeze(type, place);
    for (int i = 0; i < 2; i++) {
        uint32_t node = add_node(g, ROW_ROTATE, op, row_squeeze(half_type, NULL), 4);
        set_arg(g, node, 0, i ? b.ref : a.ref);
        set_arg(g, node, 1, cosine);
        set_arg(g, node, 2, i ? a.ref : b.ref);
        set_arg(g, node, 3, sine);
        row_at(g, node)->value = i ? 1 : -1;
        /* dims of the half are those of x, except that a half of size 1 has no dim */
        row_index to = row_major(&shape);
        if (half == 1) to.by[place[last]] = 0;
        to.constant = i * half;
        add_part(g, memory, node, to);
    }
    *out = view_buffer(g, memory, type);
    return true;
}

static bool gather(row_graph *g, const hir_op *op, hir_type type, row_view *out) {
    hir_ref table = op->args[0], ids = op->args[1];
    if (table.kind != HIR_REF_WEIGHT) return unsupported(g, op, "the table is not a weight");
    if (ids.kind != HIR_REF_VALUE || hir_value_at(g->m, ids.index)->op != HIR_NONE)
        return unsupported(g, op, "the ids are not an input");
    const hir_weight *w = &g->m->weights.at[table.index];
    bool panel = w->layout == HIR_LAYOUT_PANEL;
    row_buffer b = {.where = ROW_GATHER,
                    .ref = table,
                    .ids = ids,
                    .dtype = w->type.dtype,
                    .has_t = true,
                    .elements = hir_type_row_elements(type),
                    .step = panel ? HIR_PANEL : 1};
    row_view v = view_buffer(g, add_memory(g, op, add_buffer(g, b), false), type);
    /* elements of a panel lie apart: read once, kept if read again */
    if (panel) v = view_node(g, add_copy(g, op, v.shape, v.ref), type);
    *out = v;
    return true;
}

/* ---- arithmetic --------------------------------------------------------------------------------
 */

static bool elementwise(row_graph *g, const hir_op *op, hir_type type, row_view *out) {
    uint32_t node = add_node(g, ROW_MAP, op, row_squeeze(type, NULL), op->n_args);
    for (uint32_t i = 0; i < op->n_args; i++) {
        row_view x;
        if (!view_of(g, op, op->args[i], &x)) return false;
        set_arg(g, node, i, broadcast_to(g, &x, type));
    }
    *out = view_node(g, node, type);
    return true;
}

static bool reduction(row_graph *g, const hir_op *op, hir_type type, row_view *out) {
    row_view x;
    if (!view_of(g, op, op->args[0], &x)) return false;
    uint32_t axis = (uint32_t)hir_attr_int(op, HIR_A_AXIS, 0);
    int from[HIR_MAX_RANK], to[HIR_MAX_RANK];
    row_squeeze(x.type, from);
    row_squeeze(type, to);
    row_index map[ROW_VARS] = {0};
    for (uint32_t i = 0; i < x.type.rank; i++)
        if (from[i] >= 0 && i != axis) map[from[i]] = row_var((unsigned)to[i < axis ? i : i - 1]);
    if (from[axis] < 0) { /* of one element: the element */
        *out = make_view(type, substitute(g, &x.ref, map));
        return true;
    }
    map[from[axis]] = row_var(ROW_INNER);
    uint32_t node = add_node(g, ROW_REDUCE, op, row_squeeze(type, NULL), 1);
    set_arg(g, node, 0, substitute(g, &x.ref, map));
    row_at(g, node)->extent = x.type.dim[axis];
    row_at(g, node)->last = (uint32_t)from[axis] + 1 == x.shape.rank;
    *out = view_node(g, node, type);
    return true;
}

static row_view constant(row_graph *g, const hir_op *op, hir_type type) {
    uint32_t node = add_node(g, ROW_CONST, op, (row_shape){0}, 0);
    row_at(g, node)->value = hir_attr_float(op, HIR_A_VALUE, 0);
    return make_view(type, (row_ref){.node = node});
}

/* ---- what leaves the kernel --------------------------------------------------------------------
 */

/* The elements of `v` shall be in the buffer `to`: where they are computed, if they have no other
 * home yet, else by a copy. */
static void deliver(row_graph *g, const hir_op *op, const row_view *v, row_buffer to) {
    row_node *n = row_at(g, v->ref.node);
    bool computed = n->kind != ROW_CONST && n->kind != ROW_MULTI &&
                    (n->kind != ROW_MEMORY || n->n_producers > 0);
    if (computed && n->token_free != to.has_t) {
        row_index wanted = row_major(&v->shape), to_memory = row_major(&n->shape);
        bool fresh = n->buffer == ROW_NO_BUFFER;
        row_index at = row_substitute(fresh ? &to_memory : &n->to, v->ref.at);
        bool whole = row_index_equal(&wanted, &at) && row_elements(&n->shape) == to.elements;
        if (whole && fresh) row_store(g, v->ref.node);
        row_buffer *home = whole ? &g->buffers.at[row_at(g, v->ref.node)->buffer] : NULL;
        if (home && home->where == ROW_SCRATCH && home->elements == to.elements) {
            *home = to;
            n = row_at(g, v->ref.node);
            for (uint32_t i = 0; i < n->n_producers;
                 i++) /* parts that are the same for all tokens */
                row_at(g, n->producers[i])->token_free = n->token_free;
            return;
        }
    }
    uint32_t copy = add_copy(g, op, v->shape, v->ref);
    row_at(g, copy)->buffer = add_buffer(g, to);
    row_at(g, copy)->to = row_major(&v->shape);
    row_at(g, copy)->token_free = !to.has_t;
}

static bool cache_append(row_graph *g, const hir_op *op) {
    row_view x;
    if (op->args[1].kind != HIR_REF_STATE) return unsupported(g, op, "it appends to a state");
    if (!view_of(g, op, op->args[0], &x)) return false;
    deliver(g, op, &x,
            (row_buffer){.where = ROW_STATE,
                         .ref = op->args[1],
                         .dtype = HIR_F32,
                         .has_t = true,
                         .elements = row_elements(&x.shape),
                         .step = 1});
    return true;
}

static bool yield(row_graph *g, const hir_op *op) {
    const hir_op *kernel = hir_op_at(g->m, g->k->op);
    for (uint32_t i = 0; i < op->n_args; i++) {
        hir_ref result = hir_value_ref(kernel->results[i]);
        const hir_value *value = hir_value_at(g->m, result.index);
        row_view v;
        if (value->place == HIR_PLACE_STATE) continue; /* cache_append has put it there */
        if (!view_of(g, op, op->args[i], &v)) return false;
        bool has_t = hir_type_has_t(value->type);
        if (!has_t && !row_at(g, v.ref.node)->token_free)
            return unsupported(g, op, "a result without T depends on the token");
        deliver(g, op, &v,
                (row_buffer){.where = ROW_ARG,
                             .ref = result,
                             .dtype = HIR_F32,
                             .has_t = has_t,
                             .elements = row_elements(&v.shape),
                             .step = 1});
    }
    return true;
}

/* ---- the body ----------------------------------------------------------------------------------
 */

/* A type without T in it, for shapes of rows. T counts as a dim of size 1. */
static bool row_type(row_graph *g, const hir_op *op, hir_type *type) {
    if (type->dtype != HIR_F32) return unsupported(g, op, "its result is not f32");
    for (uint32_t i = 0; i < type->rank; i++)
        if (type->dim[i] == HIR_C) return unsupported(g, op, "its result is as long as the cache");
    return true;
}

static bool build_value(row_graph *g, const hir_op *op, hir_type type, row_view *out) {
    row_view x;
    uint32_t axis = (uint32_t)hir_attr_int(op, HIR_A_AXIS, 0);
    if (hir_has_trait(op->code, HIR_ELEMENTWISE)) return elementwise(g, op, type, out);
    if (hir_has_trait(op->code, HIR_REDUCE)) return reduction(g, op, type, out);
    switch (op->code) {
    case HIR_CONST_OP: *out = constant(g, op, type); return true;
    case HIR_STACK_OP:
    case HIR_CONCAT_OP: return side_by_side(g, op, type, out);
    case HIR_GATHER_OP: return gather(g, op, type, out);
    case HIR_ROPE_TABLE_OP: return rope_table(g, op, type, out);
    case HIR_ROPE_OP: return rope(g, op, type, out);
    case HIR_RESHAPE_OP:
    case HIR_TRANSPOSE_OP:
    case HIR_BROADCAST_OP:
    case HIR_SLICE_OP: break;
    default: return unsupported(g, op, "it does not belong there");
    }
    if (!view_of(g, op, op->args[0], &x)) return false;
    if (op->code == HIR_RESHAPE_OP)
        *out = reshaped(g, op, x, type);
    else if (op->code == HIR_TRANSPOSE_OP)
        *out = transposed(g, op, &x, type);
    else if (op->code == HIR_SLICE_OP)
        *out = sliced(g, &x, axis, hir_attr_int(op, HIR_A_START, 0), type);
    else
        *out = make_view(type, broadcast_to(g, &x, type));
    return true;
}

bool row_build(row_graph *g) {
    const hir_op *kernel = hir_op_at(g->m, g->k->op);
    g->views = hd_new_array(g->arena, row_view *, g->m->values.n);
    g->weights = hd_new_array(g->arena, uint32_t, g->m->weights.n + 1);
    memset(g->weights, 0xff, (g->m->weights.n + 1) * sizeof *g->weights);
    for (uint32_t i = 0; i < kernel->n_results; i++) {
        hir_type t = hir_value_at(g->m, kernel->results[i])->type;
        g->has_t |= t.rank > 0 && t.dim[0] < 0;
    }
    HIR_EACH(g->m, id, kernel->body_first) {
        const hir_op *op = hir_op_at(g->m, id);
        if (op->code == HIR_YIELD_OP) return yield(g, op);
        if (op->code == HIR_CACHE_APPEND_OP) {
            if (!cache_append(g, op)) return false;
            continue;
        }
        hir_type type = op->n_results ? hir_value_at(g->m, op->results[0])->type : (hir_type){0};
        if (op->n_results != 1) return unsupported(g, op, "it does not belong there");
        row_view *v = hd_new(g->arena, row_view);
        if (!row_type(g, op, &type) || !build_value(g, op, type, v)) return false;
        g->views[op->results[0]] = v;
    }
    return true;
}
