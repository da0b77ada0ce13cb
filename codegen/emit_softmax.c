/* Online softmax over tiles of keys (attention.h): one internal function that all attention kernels
 * of a module call, and the start and the end of a query. */
#include <float.h>
#include <math.h>

#include "codegen/attention.h"
#include "codegen/emit_math.h"
#include "codegen/matrix.h"

static LLVMValueRef state_at(hcg_emit *e, LLVMValueRef state, int i) {
    return hcg_at(e, e->f32, state, hcg_i64(e, i));
}

static LLVMValueRef load_clamped(hcg_emit *e, LLVMValueRef p) {
    return hcg_min(e, hcg_load(e, HIR_F32, p, NULL), hcg_splat(e, FLT_MAX));
}

/* The maximum of the scores and the running one. */
static LLVMValueRef new_maximum(hcg_emit *e, const hcg_softmax *s, LLVMValueRef old) {
    LLVMValueRef zero = hcg_i64(e, 0), lanes = hcg_i64(e, e->level->lanes);
    LLVMValueRef least = hcg_splat(e, -FLT_MAX);
    hcg_loop l = hcg_loop_begin(e, zero, s->n, lanes, "max", 1, &least);
    LLVMValueRef v = load_clamped(e, hcg_at(e, e->f32, s->scores, l.index));
    v = hcg_max(e, l.carried[0], v);
    hcg_loop_end(e, &l, &v);
    return hcg_max(e, old, hcg_max_lanes(e, l.carried[0]));
}

/* scores become p; their sum. */
static LLVMValueRef exponentiate(hcg_emit *e, const hcg_softmax *s, LLVMValueRef maximum) {
    LLVMValueRef zero = hcg_i64(e, 0), lanes = hcg_i64(e, e->level->lanes);
    LLVMValueRef sum = hcg_splat(e, 0), all = hcg_splat_value(e, maximum);
    hcg_loop l = hcg_loop_begin(e, zero, s->n, lanes, "exp", 1, &sum);
    LLVMValueRef at = hcg_at(e, e->f32, s->scores, l.index);
    LLVMValueRef p = hcg_exp_not_positive(e, LLVMBuildFSub(e->b, load_clamped(e, at), all, ""));
    hcg_store(e, at, p, NULL);
    sum = LLVMBuildFAdd(e->b, l.carried[0], p, "");
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
    hcg_store(e, at, LLVMBuildFMul(e->b, hcg_load(e, HIR_F32, at, NULL), all, ""), NULL);
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
    LLVMValueRef a = hcg_exp_not_positive(e, LLVMBuildFSub(e->b, old, maximum, ""));
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

/* M' = max(M, N)   S' = S e^(M - M') + R e^(N - M'), likewise O: a range that saw nothing has S = 0
 * and the least M, which adds nothing. */
void hcg_softmax_merge(hcg_emit *e, LLVMValueRef state, LLVMValueRef o, LLVMValueRef other_state,
                       LLVMValueRef other_o, LLVMValueRef width) {
    LLVMValueRef old = hcg_load_scalar(e, HIR_F32, state_at(e, state, 0));
    LLVMValueRef other = hcg_load_scalar(e, HIR_F32, state_at(e, other_state, 0));
    LLVMValueRef maximum = hcg_max(e, old, other);
    LLVMValueRef a = hcg_exp_not_positive(e, LLVMBuildFSub(e->b, old, maximum, ""));
    LLVMValueRef b = hcg_exp_not_positive(e, LLVMBuildFSub(e->b, other, maximum, ""));
    LLVMValueRef s = hcg_load_scalar(e, HIR_F32, state_at(e, state, 1));
    LLVMValueRef r = hcg_load_scalar(e, HIR_F32, state_at(e, other_state, 1));
    s = LLVMBuildFMul(e->b, s, a, "");
    hcg_store(e, state_at(e, state, 0), maximum, NULL);
    hcg_store(e, state_at(e, state, 1), hcg_fma(e, r, b, s), NULL);
    a = hcg_splat_value(e, a), b = hcg_splat_value(e, b);
    hcg_loop l =
        hcg_loop_begin(e, hcg_i64(e, 0), width, hcg_i64(e, e->level->lanes), "merge", 0, NULL);
    LLVMValueRef at = hcg_at(e, e->f32, o, l.index);
    LLVMValueRef x = LLVMBuildFMul(e->b, hcg_load(e, HIR_F32, at, NULL), a, "");
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
    int64_t lanes = e->level->lanes, whole = m / lanes * lanes;
    hcg_loop l =
        hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, whole), hcg_i64(e, lanes), "out", 0, NULL);
    LLVMValueRef v = hcg_load(e, HIR_F32, hcg_at(e, e->f32, o, l.index), NULL);
    hcg_store(e, hcg_at(e, e->f32, out, l.index), LLVMBuildFMul(e->b, v, by, ""), NULL);
    hcg_loop_end(e, &l, NULL);
    if (whole == m) return;
    v = hcg_load(e, HIR_F32, hcg_at(e, e->f32, o, hcg_i64(e, whole)), NULL);
    hcg_store(e, hcg_at(e, e->f32, out, hcg_i64(e, whole)), LLVMBuildFMul(e->b, v, by, ""),
              hcg_i64(e, m - whole));
}
