/* Online softmax over tiles of keys (attention.h): functions that all attention kernels of a
 * module call, and the start and the end of a query. */
#include <float.h>
#include <math.h>

#include "codegen/attention/attention.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"
#include "codegen/emit/shared.h"

static LLVMValueRef state_at(hcg_emit *e, LLVMValueRef state, int i) {
    return hcg_at(e, e->f32, state, hcg_i64(e, i));
}

/* NaN is left to the exponentials. */
static LLVMValueRef larger(hcg_emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOGT, a, b, ""), a, b, "");
}

/* e^(score - largest): a score of +inf counts as the maximum. */
static LLVMValueRef weight_of(hcg_emit *e, LLVMValueRef score, LLVMValueRef largest) {
    LLVMValueRef zero = hcg_splat(e, 0), x = hcg_fsub(e, score, largest);
    LLVMValueRef over = LLVMBuildFCmp(e->b, LLVMRealOGT, x, zero, "");
    return hcg_exp_weight(e, LLVMBuildSelect(e->b, over, zero, x, ""));
}

/* The greater of the maximum of the scores and the running maximum, a finite number. */
static LLVMValueRef new_maximum(hcg_emit *e, const hcg_softmax *s, LLVMValueRef old) {
    LLVMValueRef zero = hcg_i64(e, 0), lanes = hcg_i64(e, e->level->lanes);
    LLVMValueRef most = hcg_splat(e, -FLT_MAX);
    hcg_loop l = hcg_loop_begin(e, zero, s->n, lanes, "max", 1, &most);
    LLVMValueRef score = hcg_load(e, HIR_F32, hcg_at(e, e->f32, s->scores, l.index), NULL);
    most = larger(e, score, l.carried[0]);
    hcg_loop_end(e, &l, &most);
    most = hcg_min(e, hcg_max_lanes(e, l.carried[0]), LLVMConstReal(e->f32, FLT_MAX));
    return hcg_max(e, old, most);
}

/* Turns scores into p and returns their sum. */
static LLVMValueRef exponentiate(hcg_emit *e, const hcg_softmax *s, LLVMValueRef maximum) {
    LLVMValueRef zero = hcg_i64(e, 0), lanes = hcg_i64(e, e->level->lanes);
    LLVMValueRef sum = hcg_splat(e, 0), all = hcg_splat_value(e, maximum);
    hcg_loop l = hcg_loop_begin(e, zero, s->n, lanes, "exp", 1, &sum);
    LLVMValueRef at = hcg_at(e, e->f32, s->scores, l.index);
    LLVMValueRef p = weight_of(e, hcg_load(e, HIR_F32, at, NULL), all);
    hcg_store(e, at, p, NULL);
    sum = hcg_fadd(e, l.carried[0], p);
    hcg_loop_end(e, &l, &sum);
    return hcg_sum_lanes(e, l.carried[0]);
}

/* After the first few tiles the maximum seldom changes. */
static void scale_output(hcg_emit *e, const hcg_softmax *s, LLVMValueRef by) {
    LLVMBasicBlockRef scale = LLVMAppendBasicBlockInContext(e->cx, e->fn, "scale");
    LLVMBasicBlockRef after = LLVMAppendBasicBlockInContext(e->cx, e->fn, "scaled");
    LLVMValueRef one = LLVMConstReal(e->f32, 1);
    LLVMValueRef same = LLVMBuildFCmp(e->b, LLVMRealOEQ, by, one, "");
    LLVMBuildCondBr(e->b, same, after, scale);
    LLVMPositionBuilderAtEnd(e->b, scale);
    LLVMValueRef all = hcg_splat_value(e, by);
    hcg_loop l =
        hcg_loop_begin(e, hcg_i64(e, 0), s->width, hcg_i64(e, e->level->lanes), "rescale", 0, NULL);
    LLVMValueRef at = hcg_at(e, e->f32, s->o, l.index);
    hcg_store(e, at, hcg_fmul(e, hcg_load(e, HIR_F32, at, NULL), all), NULL);
    hcg_loop_end(e, &l, NULL);
    LLVMBuildBr(e->b, after);
    LLVMPositionBuilderAtEnd(e->b, after);
}

static void softmax_body(hcg_emit *e, const hcg_softmax *s) {
    LLVMValueRef lanes = hcg_i64(e, e->level->lanes);
    hcg_loop pad = hcg_loop_begin(e, s->valid, s->n, lanes, "unseen", 0, NULL);
    hcg_store(e, hcg_at(e, e->f32, s->scores, pad.index), hcg_splat(e, -INFINITY), NULL);
    hcg_loop_end(e, &pad, NULL);
    LLVMValueRef old = hcg_load_scalar(e, HIR_F32, state_at(e, s->state, 0));
    LLVMValueRef maximum = new_maximum(e, s, old);
    LLVMValueRef sum = exponentiate(e, s, maximum);
    LLVMValueRef a = hcg_exp_not_positive(e, hcg_fsub(e, old, maximum));
    LLVMValueRef before = hcg_load_scalar(e, HIR_F32, state_at(e, s->state, 1));
    hcg_store(e, state_at(e, s->state, 0), maximum, NULL);
    hcg_store(e, state_at(e, s->state, 1), hcg_fma(e, before, a, sum), NULL);
    scale_output(e, s, a);
}

/* softmax(scores, valid, n, state, o, width) */
void hcg_softmax_tile(hcg_emit *e, const hcg_softmax *s) {
    LLVMTypeRef params[] = {e->ptr, e->i64, e->i64, e->ptr, e->ptr, e->i64};
    hcg_shared f;
    if (hcg_shared_begin(e, "softmax", params, 6, &f)) {
        hcg_softmax in = {.scores = f.param[0], .valid = f.param[1], .n = f.param[2]};
        in.state = f.param[3], in.o = f.param[4], in.width = f.param[5];
        softmax_body(e, &in);
        hcg_shared_end(e, &f);
    }
    LLVMValueRef args[] = {s->scores, s->valid, s->n, s->state, s->o, s->width};
    hcg_shared_call(e, &f, args, 6);
}

/* ---- strips ---------------------------------------------------------------------------------- */
/* A vector of queries; a query's scores are a panel's width apart from key to key. */
typedef struct column {
    const hcg_softmax_strip *s;
    LLVMValueRef scores, first; /* numbers of its queries in the strip, i32 */
    LLVMValueRef largest, sum;  /* where they are kept */
    LLVMValueRef o;
} column;

enum { ROWS = 4 }; /* keys per iteration; scores are padded to a multiple of it */

static LLVMValueRef score_at(hcg_emit *e, const column *c, LLVMValueRef key, int64_t more) {
    LLVMValueRef at = hcg_mul_const(e, key, c->s->width);
    at = hcg_add(e, at, hcg_i64(e, more * c->s->width));
    return hcg_at(e, e->f32, c->scores, at);
}

/* Writes -inf for the keys before a query's window: query i of the strip sees key k if i < k H/G
 * + below.
 */
static void hide_first_scores(hcg_emit *e, const column *c, LLVMValueRef number) {
    const hcg_softmax_strip *s = c->s;
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), s->shown, hcg_i64(e, 1), "before", 0, NULL);
    LLVMValueRef to = hcg_add(e, hcg_mul_const(e, l.index, s->per_group), s->below);
    to = LLVMBuildTrunc(e->b, to, e->i32, "");
    LLVMValueRef sees = LLVMBuildICmp(e->b, LLVMIntSLT, number, hcg_splat_value(e, to), "");
    LLVMValueRef at = score_at(e, c, l.index, 0), score = hcg_load(e, HIR_F32, at, NULL);
    score = LLVMBuildSelect(e->b, sees, score, hcg_splat(e, -INFINITY), "");
    hcg_store(e, at, score, NULL);
    hcg_loop_end(e, &l, NULL);
}

/* Writes -inf for the keys after a query's own, and for those that only fill up the last
 * iteration. Query i of the strip sees key k if i >= k H/G - own. */
static void hide_scores(hcg_emit *e, const column *c) {
    const hcg_softmax_strip *s = c->s;
    LLVMValueRef none = hcg_splat(e, -INFINITY);
    LLVMValueRef number = LLVMBuildAdd(e->b, hcg_splat_value(e, c->first), hcg_lane_numbers(e), "");
    hcg_loop l = hcg_loop_begin(e, s->hidden, s->count, hcg_i64(e, 1), "hide", 0, NULL);
    LLVMValueRef from = hcg_mul_const(e, l.index, s->per_group);
    from = LLVMBuildTrunc(e->b, hcg_sub(e, from, s->own), e->i32, "");
    LLVMValueRef sees = LLVMBuildICmp(e->b, LLVMIntSGE, number, hcg_splat_value(e, from), "");
    LLVMValueRef at = score_at(e, c, l.index, 0), score = hcg_load(e, HIR_F32, at, NULL);
    hcg_store(e, at, LLVMBuildSelect(e->b, sees, score, none, ""), NULL);
    hcg_loop_end(e, &l, NULL);
    for (int i = 0; i + 1 < ROWS; i++)
        hcg_store(e, score_at(e, c, s->count, i), none, NULL);
    if (s->below) hide_first_scores(e, c, number);
}

/* Scores of +inf become the highest finite number, where `infinite` says that there are some: next
 * to never. */
static void limit_scores(hcg_emit *e, const column *c, LLVMValueRef infinite) {
    LLVMTypeRef mask = LLVMIntTypeInContext(e->cx, e->level->lanes);
    infinite = LLVMBuildBitCast(e->b, infinite, mask, "");
    infinite = LLVMBuildICmp(e->b, LLVMIntNE, infinite, LLVMConstNull(mask), "infinite");
    LLVMValueRef limit = hcg_splat(e, FLT_MAX), zero = hcg_i64(e, 0);
    LLVMValueRef n = LLVMBuildSelect(e->b, infinite, c->s->count, zero, "");
    hcg_loop l = hcg_loop_begin(e, zero, n, hcg_i64(e, 1), "limit", 0, NULL);
    LLVMValueRef at = score_at(e, c, l.index, 0), score = hcg_load(e, HIR_F32, at, NULL);
    LLVMValueRef over = LLVMBuildFCmp(e->b, LLVMRealOGT, score, limit, "");
    hcg_store(e, at, LLVMBuildSelect(e->b, over, limit, score, ""), NULL);
    hcg_loop_end(e, &l, NULL);
}

/* The greater of the maximum of the scores and the running maximum, a finite number; no score is
 * greater afterwards. */
static LLVMValueRef largest_score(hcg_emit *e, const column *c, LLVMValueRef old) {
    LLVMValueRef most[ROWS] = {old, old, old, old};
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), c->s->count, hcg_i64(e, ROWS), "max", ROWS, most);
    for (int i = 0; i < ROWS; i++) {
        LLVMValueRef score = hcg_load(e, HIR_F32, score_at(e, c, l.index, i), NULL);
        most[i] = larger(e, score, l.carried[i]);
    }
    hcg_loop_end(e, &l, most);
    LLVMValueRef all =
        larger(e, larger(e, l.carried[0], l.carried[1]), larger(e, l.carried[2], l.carried[3]));
    LLVMValueRef limit = hcg_splat(e, FLT_MAX);
    LLVMValueRef over = LLVMBuildFCmp(e->b, LLVMRealOGT, all, limit, "");
    limit_scores(e, c, over);
    return LLVMBuildSelect(e->b, over, limit, all, "");
}

/* Turns scores into p and returns their sum. With few registers two keys an iteration are as many
 * as these hold next to the constants. */
static LLVMValueRef weigh(hcg_emit *e, const column *c, LLVMValueRef largest) {
    const unsigned rows = e->level->registers < 32 ? 2 : ROWS;
    LLVMValueRef sum[ROWS], p[ROWS], at[ROWS];
    for (unsigned i = 0; i < rows; i++)
        sum[i] = hcg_splat(e, 0);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), c->s->count, hcg_i64(e, rows), "exp", rows, sum);
    for (unsigned i = 0; i < rows; i++) {
        at[i] = score_at(e, c, l.index, i);
        p[i] = hcg_fsub(e, largest, hcg_load(e, HIR_F32, at[i], NULL));
    }
    hcg_half_to_the(e, p, rows);
    for (unsigned i = 0; i < rows; i++) {
        hcg_store(e, at[i], p[i], NULL);
        sum[i] = hcg_fadd(e, l.carried[i], p[i]);
    }
    hcg_loop_end(e, &l, sum);
    LLVMValueRef all = hcg_fadd(e, l.carried[0], l.carried[1]);
    if (rows == 2) return all;
    return hcg_fadd(e, all, hcg_fadd(e, l.carried[2], l.carried[3]));
}

static void scale_lines(hcg_emit *e, const column *c, LLVMValueRef lines, LLVMValueRef by) {
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), lines, hcg_i64(e, 1), "scale", 0, NULL);
    LLVMValueRef at = hcg_mul_const(e, l.index, c->s->width);
    at = hcg_at(e, e->f32, c->o, at);
    hcg_store(e, at, hcg_fmul(e, hcg_load(e, HIR_F32, at, NULL), by), NULL);
    hcg_loop_end(e, &l, NULL);
}

/* O is scaled where some maximum grew, unless there is none yet. */
static void scale_column(hcg_emit *e, const column *c, LLVMValueRef old, LLVMValueRef largest,
                         LLVMValueRef by) {
    LLVMTypeRef mask = LLVMIntTypeInContext(e->cx, e->level->lanes);
    LLVMValueRef grew = LLVMBuildFCmp(e->b, LLVMRealUNE, largest, old, "");
    grew = LLVMBuildBitCast(e->b, grew, mask, "");
    grew = LLVMBuildICmp(e->b, LLVMIntNE, grew, LLVMConstNull(mask), "grew");
    grew = LLVMBuildAnd(e->b, grew, LLVMBuildICmp(e->b, LLVMIntNE, c->s->later, hcg_i64(e, 0), ""),
                        "");
    LLVMValueRef lines = LLVMBuildSelect(e->b, grew, c->s->lines, hcg_i64(e, 0), "");
    scale_lines(e, c, lines, by);
}

static void softmax_column(hcg_emit *e, const column *c) {
    hide_scores(e, c);
    LLVMValueRef old = hcg_load(e, HIR_F32, c->largest, NULL);
    LLVMValueRef largest = largest_score(e, c, old), sum = weigh(e, c, largest);
    LLVMValueRef a = hcg_fsub(e, largest, old);
    hcg_half_to_the(e, &a, 1);
    LLVMValueRef before = hcg_load(e, HIR_F32, c->sum, NULL);
    hcg_store(e, c->largest, largest, NULL);
    hcg_store(e, c->sum, hcg_fma(e, before, a, sum), NULL);
    scale_column(e, c, old, largest, a);
}

/* Vector v of a strip: it belongs to panel v / vectors, since a panel has `vectors` of them. */
static column column_of(hcg_emit *e, const hcg_softmax_strip *s, LLVMValueRef v) {
    const int64_t lanes = e->level->lanes, vectors = s->width / lanes;
    LLVMValueRef panel = LLVMBuildUDiv(e->b, v, hcg_i64(e, vectors), "");
    LLVMValueRef lane = LLVMBuildURem(e->b, v, hcg_i64(e, vectors), "");
    lane = hcg_mul_const(e, lane, lanes);
    LLVMValueRef scores = hcg_mul_const(e, panel, HCG_LD_SCORES * s->width);
    LLVMValueRef state = hcg_mul_const(e, panel, 2 * s->width);
    LLVMValueRef o = hcg_mul_const(e, s->lines, s->width);
    column c = {.s = s};
    c.scores = hcg_at(e, e->f32, s->scores, hcg_add(e, scores, lane));
    c.largest = hcg_at(e, e->f32, s->states, hcg_add(e, state, lane));
    c.sum = hcg_at(e, e->f32, c.largest, hcg_i64(e, s->width));
    o = hcg_add(e, hcg_mul(e, panel, o), lane);
    c.o = hcg_at(e, e->f32, s->o, o);
    c.first = hcg_mul_const(e, v, lanes);
    c.first = LLVMBuildTrunc(e->b, c.first, e->i32, "");
    return c;
}

static LLVMValueRef columns(hcg_emit *e, const hcg_softmax_strip *s) {
    return hcg_mul_const(e, s->panels, s->width / e->level->lanes);
}

/* softmax_strip(scores, count, hidden, own, panels, states, o, lines, later), and with a window
 * softmax_window(.., below, shown) */
void hcg_softmax_strip_tile(hcg_emit *e, const hcg_softmax_strip *s) {
    enum { PARAMS = 9, WITH_WINDOW = 11 };
    LLVMTypeRef params[WITH_WINDOW] = {e->ptr, e->i64, e->i64, e->i64, e->i64, e->ptr,
                                       e->ptr, e->i64, e->i64, e->i64, e->i64};
    hcg_shared f;
    const unsigned n = s->below ? WITH_WINDOW : PARAMS;
    const char *name = hd_printf(e->arena, s->below ? "softmax_window%lld" : "softmax_strip%lld",
                                 (long long)s->per_group);
    if (hcg_shared_begin(e, name, params, n, &f)) {
        hcg_softmax_strip in = {.scores = f.param[0], .count = f.param[1], .hidden = f.param[2]};
        in.own = f.param[3], in.panels = f.param[4], in.states = f.param[5], in.o = f.param[6];
        in.lines = f.param[7], in.later = f.param[8], in.per_group = s->per_group;
        in.width = s->width;
        if (s->below) in.below = f.param[9], in.shown = f.param[10];
        hcg_loop l =
            hcg_loop_begin(e, hcg_i64(e, 0), columns(e, &in), hcg_i64(e, 1), "column", 0, NULL);
        column c = column_of(e, &in, l.index);
        softmax_column(e, &c);
        hcg_loop_end(e, &l, NULL);
        hcg_shared_end(e, &f);
    }
    LLVMValueRef args[WITH_WINDOW] = {s->scores, s->count,  s->hidden, s->own,
                                      s->panels, s->states, s->o,      s->lines,
                                      s->later,  s->below,  s->shown};
    hcg_shared_call(e, &f, args, n);
}

void hcg_softmax_strip_start(hcg_emit *e, const hcg_softmax_strip *s) {
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), columns(e, s), hcg_i64(e, 1), "start", 0, NULL);
    column c = column_of(e, s, l.index);
    hcg_store(e, c.largest, hcg_splat(e, -FLT_MAX), NULL);
    hcg_store(e, c.sum, hcg_splat(e, 0), NULL);
    hcg_loop_end(e, &l, NULL);
}

void hcg_softmax_strip_end(hcg_emit *e, const hcg_softmax_strip *s) {
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), columns(e, s), hcg_i64(e, 1), "end", 0, NULL);
    column c = column_of(e, s, l.index);
    LLVMValueRef sum = hcg_max(e, hcg_load(e, HIR_F32, c.sum, NULL), hcg_splat(e, FLT_MIN));
    scale_lines(e, &c, s->lines, LLVMBuildFDiv(e->b, hcg_splat(e, 1), sum, ""));
    hcg_loop_end(e, &l, NULL);
}

/* ---- single queries again -------------------------------------------------------------------- */
/* M' = max(M, N), S' = S e^(M - M') + R e^(N - M'), likewise O. A range without any seen key has
 * S = 0 and the least M, which adds nothing. */
void hcg_softmax_merge(hcg_emit *e, LLVMValueRef state, LLVMValueRef o, LLVMValueRef other_state,
                       LLVMValueRef other_o, LLVMValueRef width) {
    LLVMValueRef old = hcg_load_scalar(e, HIR_F32, state_at(e, state, 0));
    LLVMValueRef other = hcg_load_scalar(e, HIR_F32, state_at(e, other_state, 0));
    LLVMValueRef maximum = hcg_max(e, old, other);
    LLVMValueRef a = hcg_exp_not_positive(e, hcg_fsub(e, old, maximum));
    LLVMValueRef b = hcg_exp_not_positive(e, hcg_fsub(e, other, maximum));
    LLVMValueRef s = hcg_load_scalar(e, HIR_F32, state_at(e, state, 1));
    LLVMValueRef r = hcg_load_scalar(e, HIR_F32, state_at(e, other_state, 1));
    s = hcg_fmul(e, s, a);
    hcg_store(e, state_at(e, state, 0), maximum, NULL);
    hcg_store(e, state_at(e, state, 1), hcg_fma(e, r, b, s), NULL);
    a = hcg_splat_value(e, a), b = hcg_splat_value(e, b);
    hcg_loop l =
        hcg_loop_begin(e, hcg_i64(e, 0), width, hcg_i64(e, e->level->lanes), "merge", 0, NULL);
    LLVMValueRef at = hcg_at(e, e->f32, o, l.index);
    LLVMValueRef x = hcg_fmul(e, hcg_load(e, HIR_F32, at, NULL), a);
    LLVMValueRef y = hcg_load(e, HIR_F32, hcg_at(e, e->f32, other_o, l.index), NULL);
    hcg_store(e, at, hcg_fma(e, y, b, x), NULL);
    hcg_loop_end(e, &l, NULL);
}

void hcg_softmax_start(hcg_emit *e, LLVMValueRef state, LLVMValueRef o, LLVMValueRef width) {
    hcg_store(e, state_at(e, state, 0), LLVMConstReal(e->f32, -FLT_MAX), NULL);
    hcg_store(e, state_at(e, state, 1), LLVMConstReal(e->f32, 0), NULL);
    hcg_loop l =
        hcg_loop_begin(e, hcg_i64(e, 0), width, hcg_i64(e, e->level->lanes), "zero", 0, NULL);
    hcg_store(e, hcg_at(e, e->f32, o, l.index), hcg_splat(e, 0), NULL);
    hcg_loop_end(e, &l, NULL);
}

/* S is at least 1 unless every score overflowed to -inf: then 0, not 0/0. */
void hcg_softmax_end(hcg_emit *e, LLVMValueRef state, LLVMValueRef o, int64_t m, LLVMValueRef out) {
    LLVMValueRef sum = hcg_load_scalar(e, HIR_F32, state_at(e, state, 1));
    sum = hcg_max(e, sum, LLVMConstReal(e->f32, FLT_MIN));
    LLVMValueRef by = hcg_splat_value(e, LLVMBuildFDiv(e->b, LLVMConstReal(e->f32, 1), sum, ""));
    hcg_scale_row(e, o, out, m, by);
}
