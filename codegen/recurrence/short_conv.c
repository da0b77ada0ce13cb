/* The kernel form short_conv of kernel.sequence: a causal convolution of each channel over its
 * last n rows.
 *
 *     y[t, i] = bias[i] + sum_{j<n} taps[i, j] x[t - (n - 1 - j) d, i]        d the dilation, or 1
 *
 * Columns are groups of 16 channels; a thread goes through all tokens for its own columns. The
 * last n - 1 rows of a block of channels stay in registers. Where there are too many taps for that,
 * or d is not 1, rows are read again: from x, or from the window, a state that holds the last (n -
 * 1) d rows, in which the row of position p is number p mod (n - 1) d, and which is zero before the
 * start. Earlier rows are always rounded to the window's type, whichever call they belong to, as if
 * the window held them.
 *
 * Elementwise ops that follow in the kernel, an activation or a gate, are computed before y is
 * stored.
 */
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/vector_ops.h"
#include "codegen/program/forms.h"
#include "codegen/recurrence/taps.h"

enum {
    COLUMN = 16,     /* channels: lanes of the widest vectors */
    MOST_ROWS = 7,   /* rows that stay in registers for each vector of a block */
    MOST_VECTORS = 4 /* vectors of a block */
};

typedef struct conv {
    LLVMValueRef x, bias, window; /* bias NULL: none */
    hcg_taps taps;
    hir_id value;          /* y, before the ops that follow in the kernel */
    hcg_vector_ops *after; /* those ops, and what they store */
    int64_t channels, n;
    int64_t apart, kept; /* positions from tap to tap; rows of the window */
    hir_dtype dtype;     /* type of the window */
    LLVMValueRef past;   /* position of the first token */
} conv;

/* A block of channels: vectors side by side, the last one of `valid` lanes (NULL: all). */
typedef struct block {
    LLVMValueRef channel; /* channel of the first lane */
    LLVMValueRef valid;
    unsigned vectors;
} block;

static LLVMValueRef lanes_of(const block *b, unsigned v) {
    return v + 1 == b->vectors ? b->valid : NULL;
}

static LLVMValueRef channel_of(hcg_emit *e, const block *b, unsigned v) {
    return hcg_add(e, b->channel, hcg_i64(e, v * e->level->lanes));
}

/* ---- rows ------------------------------------------------------------------------------------ */
/* Vector v of row t of x or y. */
static LLVMValueRef row_at(hcg_emit *e, const conv *c, LLVMValueRef base, LLVMValueRef t,
                           const block *b, unsigned v) {
    return hcg_at(e, e->f32, base,
                  hcg_add(e, hcg_mul_const(e, t, c->channels), channel_of(e, b, v)));
}

static LLVMValueRef load_x(hcg_emit *e, const conv *c, LLVMValueRef t, const block *b, unsigned v) {
    return hcg_load(e, HIR_F32, row_at(e, c, c->x, t, b, v), lanes_of(b, v));
}

/* Vector v of the window's row of a position, which is not negative. */
static LLVMValueRef window_at(hcg_emit *e, const conv *c, LLVMValueRef position, const block *b,
                              unsigned v) {
    LLVMValueRef row = LLVMBuildURem(e->b, position, hcg_i64(e, c->kept), "row");
    LLVMValueRef at = hcg_add(e, hcg_mul_const(e, row, c->channels), channel_of(e, b, v));
    return hcg_at(e, hcg_element(e, c->dtype), c->window, at);
}

/* The row of x that is `back` positions before token 0 of the call, at most as many as the window
 * has rows. Adding a multiple of the window's rows keeps the position from being negative before
 * the start. */
static LLVMValueRef load_window(hcg_emit *e, const conv *c, LLVMValueRef back, const block *b,
                                unsigned v) {
    LLVMValueRef position = hcg_sub(e, hcg_add(e, c->past, hcg_i64(e, c->kept)), back);
    return hcg_load(e, c->dtype, window_at(e, c, position, b, v), lanes_of(b, v));
}

static LLVMValueRef rounded(hcg_emit *e, const conv *c, LLVMValueRef x) {
    return c->dtype == HIR_F32 ? x : hcg_widen(e, c->dtype, hcg_narrow(e, c->dtype, x));
}

/* ---- taps ------------------------------------------------------------------------------------ */
static void turn_taps(hcg_emit *e, const conv *c, LLVMValueRef t, const block *b) {
    for (unsigned v = 0; v < b->vectors; v++)
        hcg_turn_taps(e, &c->taps, t, channel_of(e, b, v), lanes_of(b, v), v);
}

static LLVMValueRef bias_of(hcg_emit *e, const conv *c, const block *b, unsigned v) {
    if (!c->bias) return LLVMConstNull(e->vec);
    return hcg_load(e, HIR_F32, hcg_at(e, e->f32, c->bias, channel_of(e, b, v)), lanes_of(b, v));
}

/* ---- tokens ---------------------------------------------------------------------------------- */
/* Stores y, after the ops that follow in the kernel, while it is in a register. */
static void store_y(hcg_emit *e, const conv *c, LLVMValueRef t, const block *b, unsigned v,
                    LLVMValueRef y) {
    hcg_vector_ops *p = c->after;
    p->row = t, p->column = channel_of(e, b, v), p->valid = lanes_of(b, v);
    hcg_vector_ops_next(p);
    hcg_vector_ops_give(p, c->value, y);
    hcg_vector_ops_emit(p);
}

/* With few taps, earlier rows are loop-carried in registers from token to token, oldest first. */
static void emit_carried(hcg_emit *e, const conv *c, const block *b) {
    const unsigned rows = (unsigned)c->n - 1, n = rows * b->vectors;
    LLVMValueRef row[MOST_ROWS * MOST_VECTORS], next[MOST_ROWS * MOST_VECTORS];
    for (unsigned v = 0; v < b->vectors; v++)
        for (unsigned j = 0; j < rows; j++)
            row[v * rows + j] = load_window(e, c, hcg_i64(e, rows - j), b, v);
    hcg_loop l = hcg_loop_begin(e, e->r0, e->r1, hcg_i64(e, 1), "token", n, row);
    if (c->taps.own) turn_taps(e, c, l.index, b);
    for (unsigned v = 0; v < b->vectors; v++) {
        LLVMValueRef x = load_x(e, c, l.index, b, v), y = bias_of(e, c, b, v);
        for (unsigned j = 0; j < rows; j++)
            y = hcg_fma(e, hcg_tap(e, &c->taps, v, hcg_i64(e, j)), l.carried[v * rows + j], y);
        y = hcg_fma(e, hcg_tap(e, &c->taps, v, hcg_i64(e, rows)), x, y);
        store_y(e, c, l.index, b, v, y);
        for (unsigned j = 0; j + 1 < rows; j++)
            next[v * rows + j] = l.carried[v * rows + j + 1];
        next[v * rows + rows - 1] = rounded(e, c, x);
    }
    hcg_loop_end(e, &l, next);
}

/* The sum over taps from .. to - 1 for token t, with rows of the window or of the call. */
static LLVMValueRef sum_taps(hcg_emit *e, const conv *c, const block *b, LLVMValueRef t,
                             LLVMValueRef from, LLVMValueRef to, bool window, LLVMValueRef y) {
    hcg_loop l = hcg_loop_begin(e, from, to, hcg_i64(e, 1), "tap", 1, &y);
    LLVMValueRef back = hcg_mul_const(e, hcg_sub(e, hcg_i64(e, c->n - 1), l.index), c->apart);
    LLVMValueRef row = hcg_sub(e, t, back), x;
    if (window)
        x = load_window(e, c, hcg_sub(e, hcg_i64(e, 0), row), b, 0);
    else
        x = rounded(e, c, load_x(e, c, row, b, 0));
    y = hcg_fma(e, hcg_tap(e, &c->taps, 0, l.index), x, l.carried[0]);
    hcg_loop_end(e, &l, &y);
    return l.carried[0];
}

/* With any number of taps, earlier rows are read where they lie, one vector at a time. */
static void emit_read(hcg_emit *e, const conv *c, const block *b) {
    LLVMValueRef zero = hcg_i64(e, 0), last = hcg_i64(e, c->n - 1);
    hcg_loop l = hcg_loop_begin(e, e->r0, e->r1, hcg_i64(e, 1), "token", 0, NULL);
    if (c->taps.own) turn_taps(e, c, l.index, b);
    LLVMValueRef turns = LLVMBuildUDiv(e->b, l.index, hcg_i64(e, c->apart), "");
    LLVMValueRef inside = hcg_larger(e, hcg_sub(e, last, turns), zero); /* first tap in x */
    LLVMValueRef y = bias_of(e, c, b, 0);
    y = sum_taps(e, c, b, l.index, zero, inside, true, y);
    y = sum_taps(e, c, b, l.index, inside, last, false, y);
    store_y(e, c, l.index, b, 0,
            hcg_fma(e, hcg_tap(e, &c->taps, 0, last), load_x(e, c, l.index, b, 0), y));
    hcg_loop_end(e, &l, NULL);
}

/* The last rows of the call go to the window, once all of its old rows have been read. */
static void keep_rows(hcg_emit *e, const conv *c, const block *b) {
    LLVMValueRef first = hcg_larger(e, hcg_sub(e, e->r1, hcg_i64(e, c->kept)), e->r0);
    hcg_loop l = hcg_loop_begin(e, first, e->r1, hcg_i64(e, 1), "keep", 0, NULL);
    for (unsigned v = 0; v < b->vectors; v++)
        hcg_store_as(e, c->dtype, window_at(e, c, hcg_add(e, c->past, l.index), b, v),
                     load_x(e, c, l.index, b, v), lanes_of(b, v));
    hcg_loop_end(e, &l, NULL);
}

static bool is_carried(const conv *c) {
    return c->kept <= MOST_ROWS && c->apart == 1;
}

static void emit_block(hcg_emit *e, const conv *c, const block *b) {
    if (!c->taps.own) turn_taps(e, c, hcg_i64(e, 0), b);
    if (is_carried(c))
        emit_carried(e, c, b);
    else
        emit_read(e, c, b);
    keep_rows(e, c, b);
}

/* ---- the kernel ------------------------------------------------------------------------------ */
/* Vectors whose rows fit into registers together. */
static unsigned block_vectors(const hcg_emit *e, const conv *c) {
    const int64_t fit = e->level->registers / 2 / c->n;
    if (!is_carried(c) || fit < 2) return 1;
    return fit < MOST_VECTORS ? 2 : MOST_VECTORS;
}

static LLVMValueRef emit_blocks(hcg_emit *e, const conv *c, LLVMValueRef from, LLVMValueRef to,
                                unsigned vectors) {
    const int64_t width = (int64_t)vectors * e->level->lanes;
    LLVMValueRef end = hcg_sub(e, to, hcg_i64(e, width - 1));
    hcg_loop l = hcg_loop_begin(e, from, end, hcg_i64(e, width), "block", 0, NULL);
    emit_block(e, c, &(block){.channel = l.index, .vectors = vectors});
    hcg_loop_end(e, &l, NULL);
    return l.index;
}

static void emit_channels(hcg_emit *e, const conv *c) {
    const int64_t lanes = e->level->lanes, rest = c->channels % lanes;
    const unsigned most = block_vectors(e, c);
    LLVMValueRef from = hcg_mul_const(e, e->c0, COLUMN);
    LLVMValueRef to = hcg_smaller(e, hcg_mul_const(e, e->c1, COLUMN), hcg_i64(e, c->channels));
    if (most > 1) from = emit_blocks(e, c, from, to, most);
    from = emit_blocks(e, c, from, to, 1);
    if (!rest) return;
    hcg_loop l = hcg_loop_begin(e, from, to, hcg_i64(e, lanes), "rest", 0, NULL);
    emit_block(e, c, &(block){.channel = l.index, .vectors = 1, .valid = hcg_i64(e, rest)});
    hcg_loop_end(e, &l, NULL);
}

typedef struct body { /* what follows y */
    HD_VEC(hir_id) ops;
    HD_VEC(hcg_yield) yields;
} body;

static body read_body(hcg_emit *e, const hcg_kernel *k) {
    const hir_module *m = e->p->m;
    const hir_op *kernel = hir_op_at(m, k->op), *yield = hir_op_at(m, kernel->body_last);
    body b = {0};
    HIR_EACH(m, id, kernel->body_first) {
        if (hir_has_trait(hir_op_at(m, id)->code, HIR_ELEMENTWISE)) hd_push(e->arena, &b.ops, id);
    }
    for (uint32_t i = 0; i < yield->n_args; i++) {
        const hir_ref r = hir_through_reshapes(m, yield->args[i]);
        hd_push(e->arena, &b.yields, ((hcg_yield){r.index, kernel->results[i]}));
    }
    return b;
}

static bool emit_short_conv(hcg_emit *e, const hcg_kernel *k) {
    const hir_module *m = e->p->m;
    const hir_id id = hir_form_op(m, k->op);
    const hir_op *op = hir_op_at(m, id);
    const hir_type x = hir_ref_type(m, op->args[0]), taps = hir_ref_type(m, op->args[1]);
    conv c = {.channels = x.dim[1], .n = taps.dim[taps.rank - 1]};
    LLVMValueRef *const operands[] = {&c.x, &c.taps.at, &c.bias, &c.window};
    const size_t errors = e->diags->errors;
    c.taps.channels = c.channels, c.taps.groups = taps.dim[taps.rank - 2], c.taps.n = c.n;
    c.taps.own = hir_type_has_t(taps);
    c.taps.shared = c.channels / c.taps.groups % e->level->lanes == 0;
    c.dtype = hir_ref_type(m, op->args[3]).dtype;
    c.apart = hir_attr_int(op, HIR_A_DILATION, 1), c.kept = (c.n - 1) * c.apart;
    for (uint32_t i = 0; i < 4; i++)
        if (op->args[i].kind != HIR_REF_NONE)
            *operands[i] = hcg_arg(e, k, hir_through_reshapes(m, op->args[i]));
    const body b = read_body(e, k);
    hcg_vector_ops after = {.e = e, .k = k, .n = hcg_i64(e, c.channels)};
    after.ops = b.ops.at, after.n_ops = b.ops.n;
    after.yields = b.yields.at, after.n_yields = b.yields.n;
    hcg_vector_ops_begin(&after);
    c.value = op->results[0], c.after = &after;
    if (e->diags->errors != errors) return false;
    c.taps.turned = hcg_scratch(e, (uint64_t)(block_vectors(e, &c) * c.n * e->level->lanes) * 4);
    c.past = hcg_sub(e, hcg_frame_c(e), hcg_frame_t(e));
    hcg_at_op(e, id);
    emit_channels(e, &c);
    return true;
}

static int64_t columns(const hir_module *m, hir_id kernel) {
    return (hir_arg_type(m, hir_form_op(m, kernel), 0).dim[1] + COLUMN - 1) / COLUMN;
}

const hcg_form hcg_form_short_conv = {.emit = emit_short_conv, .columns = columns};
