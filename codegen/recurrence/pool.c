/* The kernel form pool of kernel.sequence: one row for each `length` positions, a
 * softmax-weighted sum of their rows.
 *
 *     y[t, c] = sum_i softmax_i(gate[i, c] + place[i mod length, c]) x[i, c],  i = p - length + 1
 * .. p
 *
 * at the tokens whose position p is the last of its `length`; zeros elsewhere. With halves, channel
 * c of y is channel n + c of x over these positions and channel c over the `length` before them.
 *
 * Columns are groups of 16 channels of y; a thread goes through all tokens for its own columns.
 * The weighted sum is made in one pass with a running maximum. Rows of earlier calls are read from
 * the window, a state that holds the last rows: the row of position p is number p mod the number of
 * rows and holds x and gate side by side. Earlier rows of the same call are rounded as the window
 * would round them.
 */
#include <float.h>
#include <math.h>

#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"
#include "codegen/program/contraction.h"
#include "codegen/program/forms.h"

enum { COLUMN = 16 }; /* channels: lanes of the widest vectors */

typedef struct pooling {
    LLVMValueRef side[2], place, window, out; /* side: x and gate; place NULL: none */
    int64_t length, rows, channels, n;        /* rows: of the window; channels: of x; n: of y */
    bool halves;
    hir_dtype dtype;
    LLVMValueRef past;
    LLVMValueRef channel, valid; /* a vector of channels of y, of `valid` lanes (NULL: all) */
} pooling;

/* Positions from .. to - 1, whose channels are those of y plus `shift`. */
typedef struct stretch {
    LLVMValueRef from, to;
    int64_t shift;
} stretch;

static LLVMValueRef channel_of(hcg_emit *e, const pooling *p, int64_t shift) {
    return hcg_add(e, p->channel, hcg_i64(e, shift));
}

static LLVMValueRef window_at(hcg_emit *e, const pooling *p, LLVMValueRef position, int side,
                              int64_t shift) {
    LLVMValueRef row = LLVMBuildURem(e->b, position, hcg_i64(e, p->rows), "row");
    LLVMValueRef at = hcg_add(e, hcg_mul_const(e, row, 2 * p->channels),
                              channel_of(e, p, shift + side * p->channels));
    return hcg_at(e, hcg_element(e, p->dtype), p->window, at);
}

/* x or gate of a token of the call. */
static LLVMValueRef load_token(hcg_emit *e, const pooling *p, LLVMValueRef token, int side,
                               int64_t shift) {
    LLVMValueRef at = hcg_add(e, hcg_mul_const(e, token, p->channels), channel_of(e, p, shift));
    return hcg_load(e, HIR_F32, hcg_at(e, e->f32, p->side[side], at), p->valid);
}

static LLVMValueRef rounded(hcg_emit *e, const pooling *p, LLVMValueRef x) {
    return p->dtype == HIR_F32 ? x : hcg_widen(e, p->dtype, hcg_narrow(e, p->dtype, x));
}

typedef enum source { WINDOW, CALL, PRESENT } source;

static LLVMValueRef element(hcg_emit *e, const pooling *p, LLVMValueRef position, int side,
                            int64_t shift, source from) {
    if (from == WINDOW)
        return hcg_load(e, p->dtype, window_at(e, p, position, side, shift), p->valid);
    LLVMValueRef x = load_token(e, p, hcg_sub(e, position, p->past), side, shift);
    return from == CALL ? rounded(e, p, x) : x;
}

/* ---- the mix --------------------------------------------------------------------------------- */
/* The greatest gate so far; the sums of e^(gate - greatest), and of that times x. */
enum { MOST, SUM, MIX, PARTS };

/* Adds one position. */
static void add_position(hcg_emit *e, const pooling *p, LLVMValueRef position, int64_t shift,
                         source from, LLVMValueRef *mix) {
    LLVMValueRef x = element(e, p, position, 0, shift, from);
    LLVMValueRef gate = element(e, p, position, 1, shift, from);
    if (p->place) {
        LLVMValueRef row = LLVMBuildURem(e->b, position, hcg_i64(e, p->length), "place");
        LLVMValueRef at = hcg_add(e, hcg_mul_const(e, row, p->channels), channel_of(e, p, shift));
        gate = hcg_fadd(e, gate, hcg_load(e, HIR_F32, hcg_at(e, e->f32, p->place, at), p->valid));
    }
    LLVMValueRef most = hcg_max(e, mix[MOST], gate);
    LLVMValueRef old = hcg_exp_not_positive(e, hcg_fsub(e, mix[MOST], most));
    LLVMValueRef own = hcg_exp_not_positive(e, hcg_fsub(e, gate, most));
    mix[MIX] = hcg_fma(e, own, x, hcg_fmul(e, old, mix[MIX]));
    mix[SUM] = hcg_fadd(e, own, hcg_fmul(e, old, mix[SUM]));
    mix[MOST] = most;
}

static void add_positions(hcg_emit *e, const pooling *p, const stretch *s, source from,
                          LLVMValueRef *mix) {
    LLVMValueRef start = s->from, end = s->to;
    if (from == WINDOW)
        end = hcg_smaller(e, end, p->past);
    else
        start = hcg_larger(e, start, p->past);
    hcg_loop l = hcg_loop_begin(e, start, end, hcg_i64(e, 1), "position", PARTS, mix);
    LLVMValueRef next[PARTS] = {l.carried[0], l.carried[1], l.carried[2]};
    add_position(e, p, l.index, s->shift, from, next);
    hcg_loop_end(e, &l, next);
    for (int i = 0; i < PARTS; i++)
        mix[i] = l.carried[i];
}

/* Computes y of a token that is the last of its `length` positions. */
static void pool_token(hcg_emit *e, const pooling *p, LLVMValueRef token) {
    LLVMValueRef position = hcg_add(e, p->past, token), length = hcg_i64(e, p->length);
    LLVMValueRef from = hcg_sub(e, position, hcg_i64(e, p->length - 1));
    LLVMValueRef before = hcg_larger(e, hcg_sub(e, from, length), hcg_i64(e, 0));
    const stretch own = {from, position, p->halves ? p->n : 0}, other = {before, from, 0};
    LLVMValueRef mix[PARTS] = {hcg_splat(e, -FLT_MAX), hcg_splat(e, 0), hcg_splat(e, 0)};
    for (int source = WINDOW; source <= CALL; source++)
        if (p->halves) add_positions(e, p, &other, source, mix);
    for (int source = WINDOW; source <= CALL; source++)
        add_positions(e, p, &own, source, mix);
    add_position(e, p, position, own.shift, PRESENT, mix);
    LLVMValueRef at = hcg_add(e, hcg_mul_const(e, token, p->n), p->channel);
    hcg_store(e, hcg_at(e, e->f32, p->out, at), LLVMBuildFDiv(e->b, mix[MIX], mix[SUM], ""),
              p->valid);
}

/* ---- channels -------------------------------------------------------------------------------- */
static void clear_rows(hcg_emit *e, const pooling *p) {
    hcg_loop l = hcg_loop_begin(e, e->r0, e->r1, hcg_i64(e, 1), "clear", 0, NULL);
    LLVMValueRef at = hcg_add(e, hcg_mul_const(e, l.index, p->n), p->channel);
    hcg_store(e, hcg_at(e, e->f32, p->out, at), hcg_splat(e, 0), p->valid);
    hcg_loop_end(e, &l, NULL);
}

/* The last rows of the call go to the window, once all of its old rows have been read. */
static void keep_rows(hcg_emit *e, const pooling *p) {
    LLVMValueRef first = hcg_larger(e, hcg_sub(e, e->r1, hcg_i64(e, p->rows)), e->r0);
    hcg_loop l = hcg_loop_begin(e, first, e->r1, hcg_i64(e, 1), "keep", 0, NULL);
    for (int64_t shift = 0; shift < p->channels; shift += p->n)
        for (int side = 0; side < 2; side++)
            hcg_store_as(e, p->dtype, window_at(e, p, hcg_add(e, p->past, l.index), side, shift),
                         load_token(e, p, l.index, side, shift), p->valid);
    hcg_loop_end(e, &l, NULL);
}

static void emit_vector(hcg_emit *e, const pooling *p) {
    LLVMValueRef length = hcg_i64(e, p->length);
    LLVMValueRef rest = LLVMBuildURem(e->b, p->past, length, "");
    LLVMValueRef first = hcg_sub(e, hcg_i64(e, p->length - 1), rest);
    clear_rows(e, p);
    hcg_loop l = hcg_loop_begin(e, first, e->r1, length, "pool", 0, NULL);
    pool_token(e, p, l.index);
    hcg_loop_end(e, &l, NULL);
    keep_rows(e, p);
}

static void emit_channel(hcg_emit *e, const void *context, LLVMValueRef at, LLVMValueRef valid) {
    pooling p = *(const pooling *)context;
    p.channel = at, p.valid = valid;
    emit_vector(e, &p);
}

static bool emit_pool(hcg_emit *e, const hcg_kernel *k) {
    const hir_module *m = e->p->m;
    const hir_id id = hir_form_op(m, k->op);
    const hir_op *op = hir_op_at(m, id);
    const hir_type x = hir_ref_type(m, op->args[0]), state = hir_ref_type(m, op->args[3]);
    const size_t errors = e->diags->errors;
    pooling p = {.channels = x.dim[1], .n = hir_value_at(m, op->results[0])->type.dim[1]};
    LLVMValueRef *const operands[] = {&p.side[0], &p.side[1], &p.place, &p.window};
    for (uint32_t i = 0; i < 4; i++)
        if (op->args[i].kind != HIR_REF_NONE)
            *operands[i] = hcg_arg(e, k, hir_through_reshapes(m, op->args[i]));
    p.out = hcg_arg(e, k, hir_value_ref(hir_op_at(m, k->op)->results[0]));
    if (e->diags->errors != errors) return false;
    p.length = hir_attr_int(op, HIR_A_LENGTH, 2), p.rows = state.dim[0];
    p.halves = p.n != p.channels;
    p.dtype = state.dtype;
    p.past = hcg_sub(e, hcg_frame_c(e), hcg_frame_t(e));
    hcg_at_op(e, id);
    LLVMValueRef from = hcg_mul_const(e, e->c0, COLUMN);
    LLVMValueRef to = hcg_smaller(e, hcg_mul_const(e, e->c1, COLUMN), hcg_i64(e, p.n));
    hcg_each_vector(e, from, to, p.n, emit_channel, &p);
    return true;
}

static int64_t columns(const hir_module *m, hir_id kernel) {
    const hir_id y = hir_op_at(m, hir_form_op(m, kernel))->results[0];
    return (hir_value_at(m, y)->type.dim[1] + COLUMN - 1) / COLUMN;
}

const hcg_form hcg_form_pool = {.emit = emit_pool, .columns = columns};
