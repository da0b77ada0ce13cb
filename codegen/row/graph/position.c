/* Ops that depend on a token's id or position: gather, rope_table, rope. */
#include <math.h>
#include <string.h>

#include "codegen/row/graph/build.h"

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

bool row_rope_table(row_graph *g, const hir_op *op, hir_type type, row_view *out) {
    const char *scaling = hir_attr_string(op, HIR_A_SCALING, NULL);
    if (scaling && strcmp(scaling, "linear") != 0 && strcmp(scaling, "llama3") != 0)
        return row_unsupported(g, op, "this scaling of frequencies is not known");
    int64_t half = hir_attr_int(op, HIR_A_LENGTH, 2) / 2, padded = (half + 63) / 64 * 64;
    double *f = hd_new_array(g->arena, double, (size_t)padded);
    for (int64_t j = 0; j < half; j++)
        f[j] = frequency(op, j);
    row_table table = {.at = f, .n = half, .padded = padded};
    hd_push(g->arena, &g->tables, table);
    hir_type half_type = hir_make_type(HIR_F32, 1, &half);
    row_shape shape = row_squeeze(g, type, NULL), half_shape = row_squeeze(g, half_type, NULL);
    uint32_t memory = row_add_filled(g, op, &shape, 2);
    uint32_t cosine = row_add_node(g, ROW_TRIG, op, half_shape, 0);
    uint32_t sine = row_add_node(g, ROW_TRIG, op, half_shape, 0);
    uint32_t pair[] = {cosine, sine};
    for (int i = 0; i < 2; i++) {
        row_node *n = row_at(g, pair[i]);
        n->is_sine = i == 1;
        n->sibling = pair[1 - i];
        n->token_free = false;
        n->frequencies = (uint32_t)(g->tables.n - 1);
        row_index to = row_major(&half_shape);
        to.constant = row_int(i * half);
        row_add_producer(g, memory, pair[i], to);
    }
    *out = row_view_buffer(g, memory, type);
    return true;
}

/* [a cos - b sin, b cos + a sin], a and b the halves of the last dim of x [T, H, n]. */
bool row_rope(row_graph *g, const hir_op *op, hir_type type, row_view *out) {
    row_view x, table;
    if (!row_view_of(g, op, op->args[0], &x) || !row_view_of(g, op, op->args[1], &table))
        return false;
    uint32_t last = type.rank - 1, table_last = table.type.rank - 1;
    int64_t half = type.dim[last] / 2;
    if (type.dim[last] % 2 != 0) return row_unsupported(g, op, "the last dim is odd");
    hir_type half_type = type, half_table = table.type;
    half_type.dim[last] = half_table.dim[table_last] = half;
    row_view a = row_sliced(g, &x, last, row_int(0), half_type),
             b = row_sliced(g, &x, last, row_int(half), half_type);
    row_view c = row_sliced(g, &table, table_last, row_int(0), half_table);
    row_view s = row_sliced(g, &table, table_last, row_int(half), half_table);
    /* the table's [T, n] stands at the right of x's dims, T apart */
    hir_type one_head = half_type;
    for (uint32_t i = 1; i < last; i++)
        one_head.dim[i] = 1;
    c.type = s.type = one_head;
    row_ref cosine = row_broadcast(g, &c, half_type), sine = row_broadcast(g, &s, half_type);

    row_shape shape = row_squeeze(g, type, NULL);
    uint32_t memory = row_add_filled(g, op, &shape, 2);
    int place[HIR_MAX_RANK];
    row_squeeze(g, type, place);
    for (int i = 0; i < 2; i++) {
        uint32_t node = row_add_node(g, ROW_ROTATE, op, row_squeeze(g, half_type, NULL), 4);
        row_set_arg(g, node, 0, i ? b.ref : a.ref);
        row_set_arg(g, node, 1, cosine);
        row_set_arg(g, node, 2, i ? a.ref : b.ref);
        row_set_arg(g, node, 3, sine);
        row_at(g, node)->value = i ? 1 : -1;
        /* dims of the half are those of x, except that a half of size 1 has no dim */
        row_index to = row_major(&shape);
        if (half == 1) to.by[place[last]] = row_int(0);
        to.constant = row_int(i * half);
        row_add_producer(g, memory, node, to);
    }
    *out = row_view_buffer(g, memory, type);
    return true;
}

bool row_gather(row_graph *g, const hir_op *op, hir_type type, row_view *out) {
    hir_ref table = op->args[0], ids = op->args[1];
    if (table.kind != HIR_REF_WEIGHT) return row_unsupported(g, op, "the table is not a weight");
    if (ids.kind != HIR_REF_VALUE || hir_value_at(g->m, ids.index)->op != HIR_NONE)
        return row_unsupported(g, op, "the ids are not an input");
    const hir_weight *w = &g->m->weights.at[table.index];
    /* rows whose elements do not lie at one distance are made f32 when they are found */
    bool panel = w->layout == HIR_LAYOUT_PANEL;
    bool together = panel && hir_panel_depth(w->type.dtype) > 1;
    panel = panel && !together;
    row_buffer b = {.where = ROW_GATHER,
                    .ref = table,
                    .ids = ids,
                    .dtype = together ? HIR_F32 : w->type.dtype,
                    .has_t = true,
                    .elements = row_type_elements(g, type),
                    .step = panel ? HIR_PANEL : 1};
    row_view v = row_view_buffer(g, row_add_memory(g, op, row_add_buffer(g, b), false), type);
    /* elements of a panel lie apart: read once, kept if read again */
    if (panel) v = row_view_node(g, row_add_copy(g, op, v.shape, v.ref), type);
    *out = v;
    return true;
}
