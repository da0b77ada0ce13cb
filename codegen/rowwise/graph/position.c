/* Ops that depend on a token's id or position: gather, rope_table, rope. */
#include <math.h>
#include <string.h>

#include "codegen/rowwise/graph/build.h"

static const double pi = 3.14159265358979323846;

static double llama3(const hir_op *op, double f, double factor) {
    double original = (double)hir_attr_int(op, HIR_A_ORIGINAL, 1), wavelength = 2 * pi / f;
    double low = hir_attr_float(op, HIR_A_LOW_FREQ, 1),
           high = hir_attr_float(op, HIR_A_HIGH_FREQ, 4);
    if (wavelength < original / high) return f;
    if (wavelength > original / low) return f / factor;
    double s = (original / wavelength - low) / (high - low);
    return (1 - s) * f / factor + s * f;
}

/* The j, as a fraction, whose frequency f_j makes `times` full turns in the original positions. */
static double yarn_edge(const hir_op *op, double times) {
    double length = (double)hir_attr_int(op, HIR_A_LENGTH, 2);
    double turns = (double)hir_attr_int(op, HIR_A_ORIGINAL, 1) / (times * 2 * pi);
    return length * log(turns) / (2 * log(hir_attr_float(op, HIR_A_THETA, 10000)));
}

static double yarn(const hir_op *op, int64_t j, double f, double factor) {
    const double last = (double)hir_attr_int(op, HIR_A_LENGTH, 2) - 1;
    double from = yarn_edge(op, hir_attr_float(op, HIR_A_BETA_FAST, 32));
    double to = yarn_edge(op, hir_attr_float(op, HIR_A_BETA_SLOW, 1));
    if (hir_attr_int(op, HIR_A_TRUNCATE, 1)) from = floor(from), to = ceil(to);
    if (from < 0) from = 0;
    if (to > last) to = last;
    if (to == from) to += 0.001;
    double share = ((double)j - from) / (to - from);
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    return (1 - share) * f + share * f / factor;
}

/* f_j of rope_table (ir/ops.def); for longrope the one for positions below `original_positions`
 * or, with `beyond`, from there on. */
static double frequency(const hir_op *op, int64_t j, bool beyond) {
    double length = (double)hir_attr_int(op, HIR_A_LENGTH, 2);
    if (j >= hir_attr_int(op, HIR_A_ROTATING, INT64_MAX)) return 0;
    double f = pow(hir_attr_float(op, HIR_A_THETA, 10000), -2.0 * (double)j / length);
    const char *scaling = hir_attr_string(op, HIR_A_SCALING, NULL);
    double factor = hir_attr_float(op, HIR_A_FACTOR, 1);
    if (!scaling) return f;
    if (strcmp(scaling, "linear") == 0) return f / factor;
    if (strcmp(scaling, "llama3") == 0) return llama3(op, f, factor);
    if (strcmp(scaling, "yarn") == 0) return yarn(op, j, f, factor);
    return f / hir_find_attr(op, beyond ? HIR_A_LONG_FACTORS : HIR_A_SHORT_FACTORS)->floats[j];
}

static uint32_t add_table(row_graph *g, const hir_op *op) {
    const bool longrope = hir_find_attr(op, HIR_A_LONG_FACTORS) != NULL;
    const int64_t half = hir_attr_int(op, HIR_A_LENGTH, 2) / 2, padded = (half + 63) / 64 * 64;
    double *f = hd_new_array(g->arena, double, (size_t)padded * 2);
    for (int64_t j = 0; j < half; j++) {
        f[j] = frequency(op, j, false);
        if (longrope) f[padded + j] = frequency(op, j, true);
    }
    row_table table = {.at = f, .n = half, .padded = padded, .scale = 1};
    table.scale = hir_attr_float(op, HIR_A_ATTENTION_FACTOR, 1);
    table.beyond = longrope ? hir_attr_int(op, HIR_A_ORIGINAL, 0) : 0;
    table.offset = hir_attr_int(op, HIR_A_OFFSET, 0);
    hd_push(g->arena, &g->tables, table);
    return (uint32_t)(g->tables.n - 1);
}

bool row_rope_table(row_graph *g, const hir_op *op, hir_type type, row_view *out) {
    static const char *const known[] = {"linear", "llama3", "yarn", "longrope"};
    const char *scaling = hir_attr_string(op, HIR_A_SCALING, known[0]);
    size_t i = 0;
    while (i < sizeof known / sizeof *known && strcmp(scaling, known[i]) != 0)
        i++;
    if (i == sizeof known / sizeof *known)
        return row_unsupported(g, op, "this scaling of frequencies is not known");
    int64_t half = hir_attr_int(op, HIR_A_LENGTH, 2) / 2;
    const uint32_t frequencies = add_table(g, op);
    hir_type half_type = hir_make_type(HIR_F32, 1, &half);
    row_shape shape = row_squeeze(g, type, NULL), half_shape = row_squeeze(g, half_type, NULL);
    uint32_t memory = row_add_filled(g, op, &shape, 2);
    uint32_t cosine = row_add_node(g, ROW_TRIG, op, half_shape, 0);
    uint32_t sine = row_add_node(g, ROW_TRIG, op, half_shape, 0);
    uint32_t pair[] = {cosine, sine};
    for (int k = 0; k < 2; k++) {
        row_node *n = row_at(g, pair[k]);
        n->is_sine = k == 1;
        n->sibling = pair[1 - k];
        n->token_free = false;
        n->frequencies = frequencies;
        row_index to = row_major(&half_shape);
        to.constant = row_int(k * half);
        row_add_producer(g, memory, pair[k], to);
    }
    *out = row_view_buffer(g, memory, type);
    return true;
}

/* ---- rope ------------------------------------------------------------------------------------ */
/* An op rope: elements of its last dim, `count` of them, `step` apart from `from` on. */
typedef struct part {
    int64_t from, count, step;
} part;

typedef struct turning {
    row_graph *g;
    const hir_op *op;
    hir_type type;
    row_view x;
    uint32_t memory; /* the result's buffer, filled part by part */
} turning;

static hir_type part_type(const turning *t, const part *p) {
    hir_type type = t->type;
    type.dim[type.rank - 1] = p->count;
    return type;
}

static row_ref read_part(const turning *t, const part *p) {
    return row_strided(t->g, &t->x, t->type.rank - 1, row_int(p->from), p->step, part_type(t, p))
        .ref;
}

/* `node` makes the part; its dims are those of x, but a part of one element has no last dim. */
static void fill_part(const turning *t, uint32_t node, const part *p) {
    const uint32_t last = t->type.rank - 1;
    int place[HIR_MAX_RANK];
    row_shape shape = row_squeeze(t->g, t->type, place);
    row_index to = row_major(&shape);
    if (place[last] >= 0) to.by[place[last]] = p->count == 1 ? row_int(0) : row_int(p->step);
    to.constant = row_int(p->from);
    row_add_producer(t->g, t->memory, node, to);
}

/* cos or sin for all heads: the dims of the table's [T, m / 2], except T, are the last of x's
 * dims. */
static row_ref read_table(const turning *t, const row_view *table, const part *p, int64_t from) {
    const uint32_t last = t->type.rank - 1, table_last = table->type.rank - 1;
    hir_type half = table->type, one_head = part_type(t, p);
    half.dim[table_last] = p->count;
    row_view v = row_sliced(t->g, table, table_last, row_int(from), half);
    for (uint32_t i = 1; i < last; i++)
        one_head.dim[i] = 1;
    v.type = one_head;
    return row_broadcast(t->g, &v, part_type(t, p));
}

/* Makes one member of each pair: a cos - b sin, or b cos + a sin. */
static void add_rotation(const turning *t, const row_view *table, const part *own,
                         const part *other, double sign) {
    row_shape shape = row_squeeze(t->g, part_type(t, own), NULL);
    uint32_t node = row_add_node(t->g, ROW_ROTATE, t->op, shape, 4);
    row_set_arg(t->g, node, 0, read_part(t, own));
    row_set_arg(t->g, node, 1, read_table(t, table, own, 0));
    row_set_arg(t->g, node, 2, read_part(t, other));
    row_set_arg(t->g, node, 3, read_table(t, table, own, own->count));
    row_at(t->g, node)->value = sign;
    fill_part(t, node, own);
}

/* Copies the elements that are not rotated. */
static void add_rest(const turning *t, const part *p) {
    if (p->count == 0) return;
    row_shape shape = row_squeeze(t->g, part_type(t, p), NULL);
    fill_part(t, row_add_copy(t->g, t->op, shape, read_part(t, p)), p);
}

bool row_rope(row_graph *g, const hir_op *op, hir_type type, row_view *out) {
    turning t = {.g = g, .op = op, .type = type};
    row_view table;
    if (!row_view_of(g, op, op->args[0], &t.x) || !row_view_of(g, op, op->args[1], &table))
        return false;
    const int64_t n = type.dim[type.rank - 1], m = table.type.dim[table.type.rank - 1];
    const int64_t start = hir_attr_int(op, HIR_A_START, 0), end = start + m;
    const bool adjacent = strcmp(hir_attr_string(op, HIR_A_PAIRS, "halves"), "adjacent") == 0;
    const int64_t step = adjacent ? 2 : 1, apart = adjacent ? 1 : m / 2;
    const part a = {start, m / 2, step}, b = {start + apart, m / 2, step};
    const part before = {0, start, 1}, behind = {end, n - end, 1};
    row_shape shape = row_squeeze(g, type, NULL);
    t.memory = row_add_filled(g, op, &shape, 2 + (start > 0) + (end < n));
    add_rotation(&t, &table, &a, &b, -1);
    add_rotation(&t, &table, &b, &a, 1);
    add_rest(&t, &before);
    add_rest(&t, &behind);
    *out = row_view_buffer(g, t.memory, type);
    return true;
}

/* Only ids that the caller has given are known to lie in the table: those of an input, or of a
 * rank's part of one. */
static bool are_given(const hir_module *m, hir_ref ids) {
    if (ids.kind != HIR_REF_VALUE) return false;
    const hir_id kernel = hir_value_at(m, ids.index)->op;
    if (kernel == HIR_NONE) return true;
    const hir_op *of = hir_op_at(m, kernel);
    if (of->code != HIR_KERNEL_COMM_OP) return false;
    const hir_op *part = hir_op_at(m, of->body_first);
    return part->code == HIR_COMM_PART_OP && part->args[0].kind == HIR_REF_VALUE &&
           hir_value_at(m, part->args[0].index)->op == HIR_NONE;
}

bool row_gather(row_graph *g, const hir_op *op, hir_type type, row_view *out) {
    hir_ref table = op->args[0], ids = op->args[1];
    if (table.kind != HIR_REF_WEIGHT) return row_unsupported(g, op, "the table is not a weight");
    if (!are_given(g->m, ids)) return row_unsupported(g, op, "the ids are not an input");
    const hir_weight *w = &g->m->weights.at[table.index];
    /* rows whose elements are not at a fixed distance are widened to f32 when they are found */
    bool panel = w->layout == HIR_LAYOUT_PANEL;
    bool together = panel && hir_panel_depth(w->type.dtype) > 1;
    panel = panel && !together;
    row_buffer b = {.where = ROW_GATHER,
                    .ref = table,
                    .ids = ids,
                    .beyond = hir_attr_int(op, HIR_A_BEYOND, -1),
                    .dtype = together ? HIR_F32 : w->type.dtype,
                    .has_t = true,
                    .elements = row_type_elements(g, type),
                    .step = panel ? HIR_PANEL : 1};
    row_view v = row_view_buffer(g, row_add_memory(g, op, row_add_buffer(g, b), false), type);
    /* elements of a panel's row are not contiguous: they are read once, and kept if read again */
    if (panel) v = row_view_node(g, row_add_copy(g, op, v.shape, v.ref), type);
    *out = v;
    return true;
}
