/* The kernel form pool_grad of kernel.sequence: the gradients of x, gate and place of pool.
 *
 *     w = softmax over a window of gate + place     y = sum w x     dx = w dy
 *     dgate = w (x - y) dy                          dplace[s mod length] = sum of dgate[s]
 *
 * for the window of each so many positions that is complete. With halves, channel c of y has
 * channel n + c of x over its own positions and channel c over those before.
 *
 * Columns are groups of 16 channels of y, as in pool; a thread goes through all windows for its own
 * columns, and through each twice: for the largest logit, the sum of the powers and y with a
 * running maximum, then for the gradients. Each row of x is in one window, so that its gradients
 * are stored and not added; rows that are in none have zeros.
 */
#include <float.h>

#include "codegen/emit/math.h"
#include "codegen/gradient/gradient.h"

enum { COLUMN = 16 }; /* channels: lanes of the widest vectors */

typedef struct pooling {
    LLVMValueRef x, gate, place, dy; /* place NULL: none */
    hcg_gradient_result dx, dgate, dplace;
    int64_t length, channels, n; /* channels: of x; n: of y */
    bool halves;
    LLVMValueRef channel, valid; /* a vector of channels of y, of `valid` lanes (NULL: all) */
} pooling;

/* Positions from .. to - 1, whose channels are those of y plus `shift`. */
typedef struct stretch {
    LLVMValueRef from, to;
    int64_t shift;
} stretch;

/* The vector of a row of x, gate or place, or of their gradients. */
static LLVMValueRef row_at(hcg_emit *e, const pooling *p, LLVMValueRef base, LLVMValueRef row,
                           int64_t shift) {
    LLVMValueRef at = hcg_add(e, p->channel, hcg_i64(e, shift));
    return hcg_at(e, e->f32, base, hcg_add(e, hcg_mul_const(e, row, p->channels), at));
}

static LLVMValueRef place_of(hcg_emit *e, const pooling *p, LLVMValueRef position) {
    return LLVMBuildURem(e->b, position, hcg_i64(e, p->length), "place");
}

static LLVMValueRef load_x(hcg_emit *e, const pooling *p, LLVMValueRef position, int64_t shift) {
    return hcg_load(e, HIR_F32, row_at(e, p, p->x, position, shift), p->valid);
}

static LLVMValueRef load_logit(hcg_emit *e, const pooling *p, LLVMValueRef position,
                               int64_t shift) {
    LLVMValueRef gate = hcg_load(e, HIR_F32, row_at(e, p, p->gate, position, shift), p->valid);
    if (!p->place) return gate;
    LLVMValueRef at = row_at(e, p, p->place, place_of(e, p, position), shift);
    return hcg_fadd(e, gate, hcg_load(e, HIR_F32, at, p->valid));
}

/* ---- a window -------------------------------------------------------------------------------- */
/* The greatest logit so far; the sums of e^(logit - greatest), and of that times x. */
enum { MOST, SUM, MIX, PARTS };

static void mix_positions(hcg_emit *e, const pooling *p, const stretch *s, LLVMValueRef *mix) {
    hcg_loop l = hcg_loop_begin(e, s->from, s->to, hcg_i64(e, 1), "mix", PARTS, mix);
    LLVMValueRef logit = load_logit(e, p, l.index, s->shift), x = load_x(e, p, l.index, s->shift);
    LLVMValueRef most = hcg_max(e, l.carried[MOST], logit), next[PARTS];
    LLVMValueRef old = hcg_exp_not_positive(e, hcg_fsub(e, l.carried[MOST], most));
    LLVMValueRef own = hcg_exp_not_positive(e, hcg_fsub(e, logit, most));
    next[MOST] = most;
    next[SUM] = hcg_fadd(e, own, hcg_fmul(e, old, l.carried[SUM]));
    next[MIX] = hcg_fma(e, own, x, hcg_fmul(e, old, l.carried[MIX]));
    hcg_loop_end(e, &l, next);
    for (int i = 0; i < PARTS; i++)
        mix[i] = l.carried[i];
}

static void give_positions(hcg_emit *e, const pooling *p, const stretch *s, LLVMValueRef most,
                           LLVMValueRef by, LLVMValueRef y, LLVMValueRef dy) {
    hcg_loop l = hcg_loop_begin(e, s->from, s->to, hcg_i64(e, 1), "give", 0, NULL);
    LLVMValueRef logit = load_logit(e, p, l.index, s->shift), x = load_x(e, p, l.index, s->shift);
    LLVMValueRef w = hcg_fmul(e, hcg_exp_not_positive(e, hcg_fsub(e, logit, most)), by);
    LLVMValueRef dx = hcg_fmul(e, w, dy), dlogit = hcg_fmul(e, hcg_fsub(e, x, y), dx);
    if (p->dx.at) hcg_store(e, row_at(e, p, p->dx.at, l.index, s->shift), dx, p->valid);
    if (p->dgate.at) hcg_store(e, row_at(e, p, p->dgate.at, l.index, s->shift), dlogit, p->valid);
    if (p->dplace.at) {
        LLVMValueRef at = row_at(e, p, p->dplace.at, place_of(e, p, l.index), s->shift);
        hcg_store(e, at, hcg_fadd(e, hcg_load(e, HIR_F32, at, p->valid), dlogit), p->valid);
    }
    hcg_loop_end(e, &l, NULL);
}

/* The window of which `token` is the last. */
static void emit_window(hcg_emit *e, const pooling *p, LLVMValueRef token) {
    LLVMValueRef end = hcg_add(e, token, hcg_i64(e, 1)), length = hcg_i64(e, p->length);
    LLVMValueRef from = hcg_sub(e, end, length);
    LLVMValueRef before = hcg_larger(e, hcg_sub(e, from, length), hcg_i64(e, 0));
    const stretch own = {from, end, p->halves ? p->n : 0}, other = {before, from, 0};
    LLVMValueRef mix[PARTS] = {hcg_splat(e, -FLT_MAX), hcg_splat(e, 0), hcg_splat(e, 0)};
    if (p->halves) mix_positions(e, p, &other, mix);
    mix_positions(e, p, &own, mix);
    LLVMValueRef by = LLVMBuildFDiv(e->b, hcg_splat(e, 1), mix[SUM], "");
    LLVMValueRef y = hcg_fmul(e, mix[MIX], by);
    LLVMValueRef at = hcg_add(e, hcg_mul_const(e, token, p->n), p->channel);
    LLVMValueRef dy = hcg_load(e, HIR_F32, hcg_at(e, e->f32, p->dy, at), p->valid);
    if (p->halves) give_positions(e, p, &other, mix[MOST], by, y, dy);
    give_positions(e, p, &own, mix[MOST], by, y, dy);
}

/* ---- channels -------------------------------------------------------------------------------- */
static void clear_rows(hcg_emit *e, const pooling *p, const hcg_gradient_result *y,
                       LLVMValueRef from, LLVMValueRef to, int64_t shift) {
    if (!y->at) return;
    hcg_loop l = hcg_loop_begin(e, from, to, hcg_i64(e, 1), "clear", 0, NULL);
    hcg_store(e, row_at(e, p, y->at, l.index, shift), hcg_splat(e, 0), p->valid);
    hcg_loop_end(e, &l, NULL);
}

/* Zeros for what is in no window: rows after the last one, of the channels that are read for the
 * window after theirs those of the last one, too; and where places begin to be summed. */
static void clear(hcg_emit *e, const pooling *p) {
    LLVMValueRef length = hcg_i64(e, p->length), zero = hcg_i64(e, 0);
    LLVMValueRef rest = LLVMBuildURem(e->b, e->r1, length, "");
    for (int64_t shift = 0; shift < p->channels; shift += p->n) {
        LLVMValueRef from = hcg_sub(e, e->r1, rest);
        if (p->halves && !shift) from = hcg_larger(e, hcg_sub(e, from, length), zero);
        clear_rows(e, p, &p->dx, from, e->r1, shift);
        clear_rows(e, p, &p->dgate, from, e->r1, shift);
        if (!p->dplace.adds) clear_rows(e, p, &p->dplace, zero, length, shift);
    }
}

static void emit_vector(hcg_emit *e, const pooling *p) {
    LLVMValueRef length = hcg_i64(e, p->length);
    clear(e, p);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, p->length - 1), e->r1, length, "window", 0, NULL);
    emit_window(e, p, l.index);
    hcg_loop_end(e, &l, NULL);
}

static void emit_channel(hcg_emit *e, const void *context, LLVMValueRef at, LLVMValueRef valid) {
    pooling p = *(const pooling *)context;
    p.channel = at, p.valid = valid;
    emit_vector(e, &p);
}

static bool emit_pool_grad(hcg_emit *e, const hcg_kernel *k) {
    const hir_module *m = e->p->m;
    const hir_id id = hir_form_op(m, k->op);
    const hir_op *op = hir_op_at(m, id);
    const size_t errors = e->diags->errors;
    pooling p = {.channels = hir_arg_type(m, id, 0).dim[1], .n = hir_arg_type(m, id, 3).dim[1]};
    LLVMValueRef *const operands[] = {&p.x, &p.gate, &p.place, &p.dy};
    for (uint32_t i = 0; i < 4; i++)
        *operands[i] = hcg_gradient_operand(e, k, op, i);
    p.dx = hcg_take_gradient(e, k, "x");
    p.dgate = hcg_take_gradient(e, k, "gate");
    p.dplace = hcg_take_gradient(e, k, "place");
    if (e->diags->errors != errors) return false;
    p.length = hir_attr_int(op, HIR_A_LENGTH, 2);
    p.halves = p.n != p.channels;
    hcg_at_op(e, id);
    LLVMValueRef from = hcg_mul_const(e, e->c0, COLUMN);
    LLVMValueRef to = hcg_smaller(e, hcg_mul_const(e, e->c1, COLUMN), hcg_i64(e, p.n));
    hcg_each_vector(e, from, to, p.n, emit_channel, &p);
    return true;
}

static int64_t columns(const hir_module *m, hir_id kernel) {
    return (hir_arg_type(m, hir_form_op(m, kernel), 3).dim[1] + COLUMN - 1) / COLUMN;
}

const hcg_form hcg_form_pool_grad = {.emit = emit_pool_grad, .columns = columns};
