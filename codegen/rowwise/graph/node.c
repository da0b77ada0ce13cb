/* Nodes, buffers and views of a row program: what the ops of a body become. */
#include "codegen/rowwise/graph/build.h"

bool row_unsupported(row_graph *g, const hir_op *op, const char *why) {
    hd_err(g->diags, HD_E_UNSUPPORTED, *op->loc, "%s in a row program: %s",
           hir_info(op->code)->name, why);
    return false;
}

/* ---- stages that go head by head ------------------------------------------------------------- */

/* Is `r` divided into the heads of the prologue or epilogue? All values that the kernel makes are,
 * except constants, and so are operands from outside with as many heads. */
bool row_is_by_head(const row_graph *g, hir_ref r) {
    if (!g->stage || !g->stage->heads || r.kind != HIR_REF_VALUE) return false;
    hir_type t = hir_ref_type(g->m, r);
    hir_id op = hir_value_at(g->m, r.index)->op;
    bool made_here = op != HIR_NONE && hir_op_at(g->m, op)->parent == g->k->op;
    return made_here ? t.rank >= 2 : hir_is_by_heads(t, g->stage->heads);
}

hir_type row_type_of(const row_graph *g, hir_ref r) {
    hir_type t = hir_ref_type(g->m, r);
    if (row_is_by_head(g, r)) t.dim[1] /= g->stage->heads;
    return t;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

row_size row_dim(const row_graph *g, int64_t dim) {
    if (!g->k->any || dim < HCG_DYNAMIC) return row_int(dim);
    const hcg_affine size = g->k->dynamic.at[dim - HCG_DYNAMIC];
    return (row_size){.a = size.a, .b = size.b};
}

row_shape row_squeeze(const row_graph *g, hir_type type, int *place) {
    row_shape s = {0};
    for (uint32_t i = 0; i < type.rank; i++) {
        bool kept = type.dim[i] > 1;
        if (place) place[i] = kept ? (int)s.rank : -1;
        if (kept) s.dim[s.rank++] = row_dim(g, type.dim[i]);
    }
    return s;
}

row_size row_type_elements(const row_graph *g, hir_type type) {
    const row_shape s = row_squeeze(g, type, NULL);
    return row_elements(&s);
}

/* ---- nodes and buffers ----------------------------------------------------------------------- */

uint32_t row_add_node(row_graph *g, row_kind kind, const hir_op *op, row_shape shape,
                      uint32_t n_args) {
    row_node n = {.kind = kind, .op = op, .shape = shape, .token_free = true, .n_args = n_args};
    n.at = (hir_id)(op - g->m->ops.at);
    n.buffer = ROW_NO_BUFFER;
    n.sibling = n.fills = HIR_NONE;
    n.args = hd_new_array(g->arena, row_ref, n_args ? n_args : 1);
    hd_push(g->arena, &g->nodes, n);
    return (uint32_t)(g->nodes.n - 1);
}

void row_set_arg(row_graph *g, uint32_t node, uint32_t i, row_ref ref) {
    row_node *n = row_at(g, node);
    n->args[i] = ref;
    n->token_free &= row_at(g, ref.node)->token_free;
}

uint32_t row_add_buffer(row_graph *g, row_buffer b) {
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

/* `ref`, which is over the dims of a view, as a reference over other dims: map[i] gives dim i of
 * the view. */
row_ref row_through(const row_graph *g, const row_ref *ref, const row_index *map) {
    row_ref r = {.node = ref->node};
    for (uint32_t i = 0; i < g->nodes.at[ref->node].shape.rank; i++)
        r.at[i] = row_substitute(&ref->at[i], map);
    return r;
}

uint32_t row_add_memory(row_graph *g, const hir_op *op, uint32_t buffer, bool token_free) {
    row_shape flat = {.rank = 1, .dim = {g->buffers.at[buffer].elements}};
    uint32_t node = row_add_node(g, ROW_MEMORY, op, flat, 0);
    row_at(g, node)->buffer = buffer;
    row_at(g, node)->to = row_var(0);
    row_at(g, node)->token_free = token_free;
    return node;
}

void row_store(row_graph *g, uint32_t node) {
    if (row_at(g, node)->buffer != ROW_NO_BUFFER) return;
    row_shape shape = row_at(g, node)->shape;
    uint32_t buffer = row_add_buffer(
        g, (row_buffer){.where = ROW_SCRATCH, .dtype = HIR_F32, .elements = row_elements(&shape)});
    row_at(g, node)->buffer = buffer;
    row_at(g, node)->to = row_major(&shape);
}

/* Element number in the buffer of the node that `ref` reads. */
row_index row_linear(const row_graph *g, const row_ref *ref) {
    return row_substitute(&g->nodes.at[ref->node].to, ref->at);
}

/* A copy of a view, computed where it is read unless it gets a buffer. */
uint32_t row_add_copy(row_graph *g, const hir_op *op, row_shape shape, row_ref of) {
    uint32_t node = row_add_node(g, ROW_COPY, op, shape, 1);
    row_set_arg(g, node, 0, of);
    return node;
}

/* A buffer of `shape` whose producers are still to be added. */
uint32_t row_add_filled(row_graph *g, const hir_op *op, const row_shape *shape,
                        uint32_t n_producers) {
    uint32_t buffer = row_add_buffer(
        g, (row_buffer){.where = ROW_SCRATCH, .dtype = HIR_F32, .elements = row_elements(shape)});
    uint32_t memory = row_add_memory(g, op, buffer, true);
    row_at(g, memory)->producers = hd_new_array(g->arena, uint32_t, n_producers);
    return memory;
}

/* `producer` writes its elements at `to` of the buffer of `memory`. */
void row_add_producer(row_graph *g, uint32_t memory, uint32_t producer, row_index to) {
    row_node *m = row_at(g, memory), *p = row_at(g, producer);
    p->buffer = m->buffer;
    p->to = to;
    p->fills = memory;
    m->producers[m->n_producers++] = producer;
    m->token_free &= p->token_free;
}

/* ---- views of values ------------------------------------------------------------------------- */

row_view row_make_view(const row_graph *g, hir_type type, row_ref ref) {
    return (row_view){.type = type, .shape = row_squeeze(g, type, NULL), .ref = ref};
}

/* All elements of a buffer in order, under the shape of `type`. */
row_view row_view_buffer(const row_graph *g, uint32_t memory, hir_type type) {
    row_view v = row_make_view(g, type, (row_ref){.node = memory});
    v.ref.at[0] = row_major(&v.shape);
    return v;
}

row_view row_view_node(row_graph *g, uint32_t node, hir_type type) {
    row_view v = row_make_view(g, type, identity(node, row_at(g, node)->shape.rank));
    return v;
}

/* The operands of an operand range as rows side by side. */
static row_view view_run(row_graph *g, const hir_op *reader, const hcg_run *run, hir_type type) {
    int place[HIR_MAX_RANK];
    const row_shape shape = row_squeeze(g, type, place);
    const uint32_t node = row_add_node(g, ROW_MULTI, reader, shape, 0);
    row_node *n = row_at(g, node);
    n->run = run;
    n->axis = (uint32_t)place[run->axis];
    n->dtype = type.dtype;
    n->token_free = false;
    row_shape one = shape;
    one.dim[n->axis] = row_int(1);
    n->within = row_major(&one);
    n->within.by[n->axis] = row_int(0);
    return row_view_node(g, node, type);
}

static const hcg_run *run_of(const row_graph *g, hir_ref ref) {
    for (size_t i = 0; i < g->k->runs.n; i++)
        if (ref.kind == HIR_REF_VALUE && g->k->runs.at[i].value == ref.index)
            return &g->k->runs.at[i];
    return NULL;
}

static bool view_outer_value(row_graph *g, const hir_op *reader, hir_ref ref, row_view *out) {
    hir_type type = row_type_of(g, ref);
    const hcg_run *run = run_of(g, ref);
    if (run) {
        *out = view_run(g, reader, run, type);
        return true;
    }
    for (uint32_t i = 0; i < type.rank; i++)
        if (hir_is_length(type.dim[i]))
            return row_unsupported(g, reader, "it cannot read along the cache");
    bool has_t = hir_type_has_t(type);
    uint32_t buffer = row_add_buffer(g, (row_buffer){.where = ROW_ARG,
                                                     .ref = ref,
                                                     .dtype = type.dtype,
                                                     .has_t = has_t,
                                                     .by_head = row_is_by_head(g, ref),
                                                     .elements = row_type_elements(g, type)});
    *out = row_view_buffer(g, row_add_memory(g, reader, buffer, !has_t), type);
    return true;
}

static bool view_weight(row_graph *g, const hir_op *reader, hir_ref ref, row_view *out) {
    const hir_weight *w = &g->m->weights.at[ref.index];
    if (w->layout != HIR_LAYOUT_ROWS)
        return row_unsupported(g, reader,
                               "it reads weights that lie in rows, but this one is packed");
    if (g->weights[ref.index] == HIR_NONE) {
        uint32_t buffer =
            row_add_buffer(g, (row_buffer){.where = ROW_ARG,
                                           .ref = ref,
                                           .dtype = w->type.dtype,
                                           .elements = row_type_elements(g, w->type)});
        g->weights[ref.index] = row_add_memory(g, reader, buffer, true);
    }
    *out = row_view_buffer(g, g->weights[ref.index], w->type);
    return true;
}

/* The view of an operand, made at its first use if it comes from outside. */
bool row_view_of(row_graph *g, const hir_op *reader, hir_ref ref, row_view *out) {
    if (ref.kind == HIR_REF_WEIGHT) return view_weight(g, reader, ref, out);
    if (ref.kind != HIR_REF_VALUE) return row_unsupported(g, reader, "it reads no state");
    if (g->totals[ref.index])
        return row_unsupported(g, reader, "it reads a sum over tokens before the last token");
    row_view **v = &g->views[ref.index];
    if (!*v) {
        *v = hd_new(g->arena, row_view);
        if (!view_outer_value(g, reader, ref, *v)) return false;
    }
    *out = **v;
    return true;
}
