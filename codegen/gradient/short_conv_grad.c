/* The kernel form short_conv_grad of kernel.sequence: the gradients of x and of the taps of a
 * causal convolution of each channel over its last n rows, d apart.
 *
 *     dx[t - (n-1-j) d, i] += taps[i, j] dy[t, i]      dtaps[i, j] += dy[t, i] x[t - (n-1-j) d, i]
 *
 * for each token t, from the first to the last, and taps j whose row is not before the start. Taps
 * of the token's own have dtaps[t], and taps that the channels of a group share the sum over these.
 *
 * Columns are groups of 16 channels, or, where taps of a group have a gradient, groups: one thread
 * has all that is summed. A vector of channels at a time goes through all tokens. With few taps the
 * sums of the last n - 1 rows of dx, which are not complete yet, and these rows of x are carried in
 * registers from token to token; with more, or d > 1, they are where they lie. Sums over tokens are
 * in f32, with few taps those of blocks of 64 tokens, one after the other.
 */
#include "codegen/gradient/gradient.h"
#include "codegen/recurrence/taps.h"

enum {
    COLUMN = 16,   /* channels: lanes of the widest vectors */
    BLOCK = 64,    /* tokens whose products are summed before they are added to the others' */
    MOST_TAPS = 8, /* whose rows stay in registers */
};

typedef struct conv {
    LLVMValueRef x, dy;
    hcg_taps taps;
    hcg_taps sums; /* what dtaps is made of, transposed as the taps are */
    hcg_gradient_result dx, dtaps;
    int64_t channels, n, apart;
    int64_t
        span; /* channels that columns divide: those of a group, or all where each has its own */
    int64_t part;                /* channels of a column */
    bool sums_groups;            /* dtaps is a sum over the channels of a group */
    LLVMValueRef channel, valid; /* a vector of channels, of `valid` lanes (NULL: all) */
} conv;

/* ---- rows ------------------------------------------------------------------------------------ */
static LLVMValueRef row_at(hcg_emit *e, const conv *c, LLVMValueRef base, LLVMValueRef t) {
    return hcg_at(e, e->f32, base, hcg_add(e, hcg_mul_const(e, t, c->channels), c->channel));
}

static LLVMValueRef load_row(hcg_emit *e, const conv *c, LLVMValueRef base, LLVMValueRef t) {
    return hcg_load(e, HIR_F32, row_at(e, c, base, t), c->valid);
}

static LLVMValueRef sum_at(hcg_emit *e, const conv *c, LLVMValueRef tap) {
    return hcg_turned_at(e, &c->sums, 0, tap);
}

static void clear_sums(hcg_emit *e, const conv *c) {
    hcg_loop l =
        hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, c->n), hcg_i64(e, 1), "clear", 0, NULL);
    hcg_store(e, sum_at(e, c, l.index), hcg_splat(e, 0), NULL);
    hcg_loop_end(e, &l, NULL);
}

static void turn_taps(hcg_emit *e, const conv *c, LLVMValueRef t) {
    if (c->dx.at) hcg_turn_taps(e, &c->taps, t, c->channel, c->valid, 0);
}

/* ---- gradients of taps ----------------------------------------------------------------------- */
static LLVMValueRef dtaps_at(hcg_emit *e, const conv *c, LLVMValueRef t, LLVMValueRef channel) {
    hcg_taps w = c->sums;
    w.at = c->dtaps.at;
    return hcg_taps_at(e, &w, t, channel);
}

/* Adds the lanes of each sum to the taps of a group. */
static void add_lanes(hcg_emit *e, const conv *c, LLVMValueRef to, bool adds) {
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, c->n), hcg_i64(e, 1), "tap", 0, NULL);
    LLVMValueRef sum = hcg_sum_lanes(e, hcg_tap(e, &c->sums, 0, l.index));
    LLVMValueRef at = hcg_at(e, e->f32, to, l.index);
    if (adds) sum = hcg_fadd(e, hcg_load_scalar(e, HIR_F32, at), sum);
    hcg_store(e, at, sum, NULL);
    hcg_loop_end(e, &l, NULL);
}

/* The sums of a token with taps of its own are complete: for its channels, or for these channels of
 * a group. */
static void give_own(hcg_emit *e, const conv *c, LLVMValueRef t) {
    LLVMValueRef to = dtaps_at(e, c, t, c->channel);
    if (c->sums_groups)
        add_lanes(e, c, to, true);
    else
        hcg_turn_back(e, &c->sums, to, c->valid, false);
}

/* The sums over all tokens, of channels that have taps each. */
static void give_all(hcg_emit *e, const conv *c) {
    hcg_turn_back(e, &c->sums, dtaps_at(e, c, hcg_i64(e, 0), c->channel), c->valid, c->dtaps.adds);
}

/* ---- few taps -------------------------------------------------------------------------------- */
/* What is loop-carried: rows of dx from t - (n - 1) on that are not complete; those of x; sums of
 * products with each tap. */
typedef struct carried {
    unsigned n; /* values */
    unsigned rows, sums;
    LLVMValueRef at[3 * MOST_TAPS];
} carried;

static carried begin_carried(hcg_emit *e, const conv *c) {
    const unsigned n = (unsigned)c->n;
    carried v = {.rows = c->dx.at ? n - 1 : 0};
    v.sums = v.rows + (c->dtaps.at ? n - 1 : 0);
    v.n = v.sums + (c->dtaps.at && !c->taps.own ? n : 0);
    for (unsigned i = 0; i < v.n; i++)
        v.at[i] = hcg_splat(e, 0);
    return v;
}

static void store_dx(hcg_emit *e, const conv *c, LLVMValueRef t, LLVMValueRef x) {
    hcg_store(e, row_at(e, c, c->dx.at, t), x, c->valid);
}

/* A token's part of dx. The row that it completes is before the start for the first tokens: it goes
 * to the first row then, which is complete later. */
static void spread_token(hcg_emit *e, const conv *c, LLVMValueRef t, LLVMValueRef dy, carried *v) {
    const unsigned last = (unsigned)c->n - 1;
    LLVMValueRef next[MOST_TAPS];
    for (unsigned j = 0; j < last; j++)
        next[j] = hcg_fma(e, hcg_tap(e, &c->taps, 0, hcg_i64(e, j)), dy, v->at[j]);
    next[last] = hcg_fmul(e, hcg_tap(e, &c->taps, 0, hcg_i64(e, last)), dy);
    store_dx(e, c, hcg_larger(e, hcg_sub(e, t, hcg_i64(e, last)), hcg_i64(e, 0)), next[0]);
    for (unsigned j = 0; j < last; j++)
        v->at[j] = next[j + 1];
}

static void multiply_token(hcg_emit *e, const conv *c, LLVMValueRef t, LLVMValueRef dy,
                           carried *v) {
    const unsigned last = (unsigned)c->n - 1;
    LLVMValueRef x = load_row(e, c, c->x, t), *row = &v->at[v->rows];
    for (unsigned j = 0; j <= last; j++) {
        LLVMValueRef other = j < last ? row[j] : x;
        if (c->taps.own)
            hcg_store(e, sum_at(e, c, hcg_i64(e, j)), hcg_fmul(e, dy, other), NULL);
        else
            v->at[v->sums + j] = hcg_fma(e, dy, other, v->at[v->sums + j]);
    }
    if (c->taps.own) give_own(e, c, t);
    for (unsigned j = 0; j + 1 < last; j++)
        row[j] = row[j + 1];
    if (last) row[last - 1] = x;
}

static void emit_tokens(hcg_emit *e, const conv *c, LLVMValueRef from, LLVMValueRef to,
                        carried *v) {
    hcg_loop l = hcg_loop_begin(e, from, to, hcg_i64(e, 1), "token", v->n, v->at);
    carried next = *v;
    for (unsigned i = 0; i < v->n; i++)
        next.at[i] = l.carried[i];
    LLVMValueRef dy = load_row(e, c, c->dy, l.index);
    if (c->taps.own) turn_taps(e, c, l.index);
    if (c->dx.at) spread_token(e, c, l.index, dy, &next);
    if (c->dtaps.at) multiply_token(e, c, l.index, dy, &next);
    hcg_loop_end(e, &l, next.at);
    for (unsigned i = 0; i < v->n; i++)
        v->at[i] = l.carried[i];
}

static void emit_carried(hcg_emit *e, const conv *c) {
    const unsigned last = (unsigned)c->n - 1;
    LLVMValueRef zero = hcg_i64(e, 0);
    carried v = begin_carried(e, c);
    hcg_loop l = hcg_loop_begin(e, e->r0, e->r1, hcg_i64(e, BLOCK), "block", v.n, v.at);
    LLVMValueRef end = hcg_smaller(e, hcg_add(e, l.index, hcg_i64(e, BLOCK)), e->r1);
    carried block = v;
    for (unsigned i = 0; i < v.n; i++)
        block.at[i] = i < v.sums ? l.carried[i] : hcg_splat(e, 0);
    emit_tokens(e, c, l.index, end, &block);
    for (unsigned i = v.sums; i < v.n; i++)
        block.at[i] = hcg_fadd(e, l.carried[i], block.at[i]);
    hcg_loop_end(e, &l, block.at);
    for (unsigned j = 0; c->dx.at && j < last; j++) /* those before the start come first */
        store_dx(e, c, hcg_larger(e, hcg_sub(e, e->r1, hcg_i64(e, last - j)), zero), l.carried[j]);
    for (unsigned i = v.sums; i < v.n; i++) {
        LLVMValueRef to = sum_at(e, c, hcg_i64(e, i - v.sums));
        hcg_store(e, to, hcg_fadd(e, hcg_load(e, HIR_F32, to, NULL), l.carried[i]), NULL);
    }
}

/* ---- any number of taps ---------------------------------------------------------------------- */
static void add_to(hcg_emit *e, LLVMValueRef at, LLVMValueRef a, LLVMValueRef b,
                   LLVMValueRef valid) {
    hcg_store(e, at, hcg_fma(e, a, b, hcg_load(e, HIR_F32, at, valid)), valid);
}

static void emit_where_it_lies(hcg_emit *e, const conv *c) {
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), last = hcg_i64(e, c->n - 1);
    hcg_loop clear = hcg_loop_begin(e, e->r0, c->dx.at ? e->r1 : e->r0, one, "clear", 0, NULL);
    if (c->dx.at) store_dx(e, c, clear.index, hcg_splat(e, 0));
    hcg_loop_end(e, &clear, NULL);
    hcg_loop l = hcg_loop_begin(e, e->r0, e->r1, one, "token", 0, NULL);
    LLVMValueRef dy = load_row(e, c, c->dy, l.index), row;
    LLVMValueRef turns = LLVMBuildUDiv(e->b, l.index, hcg_i64(e, c->apart), "");
    LLVMValueRef inside = hcg_larger(e, hcg_sub(e, last, turns), zero); /* first tap in x */
    if (c->taps.own) turn_taps(e, c, l.index);
    if (c->taps.own && c->dtaps.at) clear_sums(e, c);
    hcg_loop tap = hcg_loop_begin(e, inside, hcg_i64(e, c->n), one, "tap", 0, NULL);
    row = hcg_sub(e, l.index, hcg_mul_const(e, hcg_sub(e, last, tap.index), c->apart));
    if (c->dx.at)
        add_to(e, row_at(e, c, c->dx.at, row), hcg_tap(e, &c->taps, 0, tap.index), dy, c->valid);
    if (c->dtaps.at) add_to(e, sum_at(e, c, tap.index), load_row(e, c, c->x, row), dy, NULL);
    hcg_loop_end(e, &tap, NULL);
    if (c->taps.own && c->dtaps.at) give_own(e, c, l.index);
    hcg_loop_end(e, &l, NULL);
}

/* ---- channels -------------------------------------------------------------------------------- */
static void emit_vector(hcg_emit *e, const conv *c) {
    const bool each = c->dtaps.at && !c->taps.own && !c->sums_groups;
    if (each) clear_sums(e, c);
    if (!c->taps.own) turn_taps(e, c, hcg_i64(e, 0));
    if (c->n <= MOST_TAPS && c->apart == 1)
        emit_carried(e, c);
    else
        emit_where_it_lies(e, c);
    if (each) give_all(e, c);
}

static void clear_own(hcg_emit *e, const conv *c, LLVMValueRef first) {
    hcg_loop l = hcg_loop_begin(e, e->r0, e->r1, hcg_i64(e, 1), "clear", 0, NULL);
    LLVMValueRef to = dtaps_at(e, c, l.index, first);
    hcg_loop tap =
        hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, c->n), hcg_i64(e, 1), "tap", 0, NULL);
    hcg_store(e, hcg_at(e, e->f32, to, tap.index), LLVMConstReal(e->f32, 0), NULL);
    hcg_loop_end(e, &tap, NULL);
    hcg_loop_end(e, &l, NULL);
}

/* Channels from .. to - 1 of a span; `first` is the span's first one. */
static void emit_channels(hcg_emit *e, conv *c, LLVMValueRef first, LLVMValueRef from,
                          LLVMValueRef to) {
    const int64_t lanes = e->level->lanes, rest = c->span % lanes;
    if (c->sums_groups && c->taps.own)
        clear_own(e, c, first);
    else if (c->sums_groups)
        clear_sums(e, c);
    hcg_loop l = hcg_loop_begin(e, from, hcg_sub(e, to, hcg_i64(e, lanes - 1)), hcg_i64(e, lanes),
                                "channels", 0, NULL);
    c->channel = l.index, c->valid = NULL;
    emit_vector(e, c);
    hcg_loop_end(e, &l, NULL);
    if (rest) {
        hcg_loop last = hcg_loop_begin(e, l.index, to, hcg_i64(e, lanes), "rest", 0, NULL);
        c->channel = last.index, c->valid = hcg_i64(e, rest);
        emit_vector(e, c);
        hcg_loop_end(e, &last, NULL);
    }
    if (c->sums_groups && !c->taps.own)
        add_lanes(e, c, dtaps_at(e, c, hcg_i64(e, 0), first), c->dtaps.adds);
}

static int64_t columns_of_span(int64_t span, int64_t part) {
    return (span + part - 1) / part;
}

/* The columns c0 .. c1 - 1, span by span. */
static void emit_spans(hcg_emit *e, conv *c) {
    const int64_t n = columns_of_span(c->span, c->part);
    LLVMValueRef zero = hcg_i64(e, 0), each = hcg_i64(e, n);
    LLVMValueRef from = LLVMBuildUDiv(e->b, e->c0, each, ""), to = hcg_divide_up(e, e->c1, each);
    hcg_loop l = hcg_loop_begin(e, from, to, hcg_i64(e, 1), "span", 0, NULL);
    LLVMValueRef first = hcg_mul_const(e, l.index, c->span), done = hcg_mul_const(e, l.index, n);
    LLVMValueRef begin = hcg_mul_const(e, hcg_larger(e, hcg_sub(e, e->c0, done), zero), c->part);
    LLVMValueRef end = hcg_mul_const(e, hcg_sub(e, e->c1, done), c->part);
    end = hcg_smaller(e, end, hcg_i64(e, c->span));
    emit_channels(e, c, first, hcg_add(e, first, begin), hcg_add(e, first, end));
    hcg_loop_end(e, &l, NULL);
}

/* ---- the kernel ------------------------------------------------------------------------------ */
/* Where taps are a group's, a vector has channels of one group. */
static void divide(const hir_module *m, hir_id kernel, conv *c) {
    const hir_id id = hir_form_op(m, kernel);
    const hir_type x = hir_arg_type(m, id, 0), taps = hir_arg_type(m, id, 1);
    c->channels = x.dim[1], c->n = taps.dim[taps.rank - 1];
    c->taps = (hcg_taps){.channels = c->channels, .groups = taps.dim[taps.rank - 2], .n = c->n};
    c->taps.own = hir_type_has_t(taps);
    c->taps.shared = c->taps.groups != c->channels;
    c->sums_groups = c->taps.shared && hcg_gradient_of(m, kernel, "taps") != HIR_NONE;
    c->span = c->taps.shared ? c->channels / c->taps.groups : c->channels;
    c->part = c->sums_groups ? c->span : COLUMN;
}

static bool emit_short_conv_grad(hcg_emit *e, const hcg_kernel *k) {
    const hir_module *m = e->p->m;
    const hir_id id = hir_form_op(m, k->op);
    const hir_op *op = hir_op_at(m, id);
    const uint64_t turned = (uint64_t)e->level->lanes * 4;
    const size_t errors = e->diags->errors;
    conv c = {.apart = hir_attr_int(op, HIR_A_DILATION, 1)};
    divide(m, k->op, &c);
    c.x = hcg_gradient_operand(e, k, op, 0);
    c.taps.at = hcg_gradient_operand(e, k, op, 1);
    c.dy = hcg_gradient_operand(e, k, op, 2);
    c.dx = hcg_take_gradient(e, k, "x");
    c.dtaps = hcg_take_gradient(e, k, "taps");
    if (e->diags->errors != errors) return false;
    c.sums_groups &= c.dtaps.at != NULL;
    c.sums = c.taps;
    c.taps.turned = hcg_scratch(e, (uint64_t)c.n * turned);
    c.sums.turned = hcg_scratch(e, (uint64_t)c.n * turned);
    hcg_at_op(e, id);
    emit_spans(e, &c);
    return true;
}

static int64_t columns(const hir_module *m, hir_id kernel) {
    conv c = {0};
    divide(m, kernel, &c);
    return c.channels / c.span * columns_of_span(c.span, c.part);
}

const hcg_form hcg_form_short_conv_grad = {.emit = emit_short_conv_grad, .columns = columns};
