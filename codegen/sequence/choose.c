/* The k best of a stream of scores (choose.h). */
#include "codegen/sequence/choose.h"

#include "codegen/contract/matrix.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"

hcg_loop hcg_once_if(hcg_emit *e, LLVMValueRef condition, const char *name) {
    LLVMValueRef times = LLVMBuildZExt(e->b, condition, e->i64, "");
    return hcg_loop_begin(e, hcg_i64(e, 0), times, hcg_i64(e, 1), name, 0, NULL);
}

/* ---- small facts ----------------------------------------------------------------------------- */
static LLVMValueRef load(hcg_emit *e, LLVMTypeRef type, LLVMValueRef base, LLVMValueRef index) {
    LLVMValueRef v = LLVMBuildLoad2(e->b, type, hcg_at(e, type, base, index), "");
    LLVMSetAlignment(v, type == e->i64 ? 8 : 4);
    return v;
}

static void store(hcg_emit *e, LLVMTypeRef type, LLVMValueRef base, LLVMValueRef index,
                  LLVMValueRef x) {
    LLVMSetAlignment(LLVMBuildStore(e->b, x, hcg_at(e, type, base, index)), type == e->i64 ? 8 : 4);
}

static LLVMValueRef as_count(hcg_emit *e, LLVMValueRef condition) {
    return LLVMBuildZExt(e->b, condition, e->i64, "");
}

static LLVMValueRef least_key(hcg_emit *e) {
    return LLVMConstInt(e->i32, 1u << 31, false);
}

static LLVMTypeRef key_vector(hcg_emit *e) {
    return LLVMVectorType(e->i32, e->level->lanes);
}

hcg_best hcg_new_best(hcg_emit *e, int64_t k) {
    const uint64_t room = (uint64_t)(2 * k + HCG_OFFERED) * 4;
    hcg_best c = {.k = k};
    c.keys = hcg_scratch(e, room + 64); /* and a vector behind them */
    c.rows = hcg_scratch(e, room);
    c.state = hcg_scratch(e, 16);
    return c;
}

void hcg_best_start(hcg_emit *e, const hcg_best *c) {
    store(e, e->i64, c->state, hcg_i64(e, 0), hcg_i64(e, 0));
    store(e, e->i64, c->state, hcg_i64(e, 1), hcg_i64(e, INT64_MIN));
}

/* ---- the choice ------------------------------------------------------------------------------ */
/* Keys of keys[0 .. n) that are not less than `bound`, or that are greater; behind them is a vector
 * of least ones. */
static LLVMValueRef count_keys(hcg_emit *e, LLVMValueRef keys, LLVMValueRef n, LLVMIntPredicate is,
                               LLVMValueRef bound) {
    LLVMValueRef sum = LLVMConstNull(key_vector(e)), all = hcg_splat_value(e, bound);
    LLVMValueRef lanes = hcg_i64(e, e->level->lanes);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), n, lanes, "count", 1, &sum);
    LLVMValueRef x = LLVMBuildLoad2(e->b, key_vector(e), hcg_at(e, e->i32, keys, l.index), "");
    LLVMSetAlignment(x, 4);
    LLVMValueRef hit = LLVMBuildSExt(e->b, LLVMBuildICmp(e->b, is, x, all, ""), key_vector(e), "");
    sum = LLVMBuildSub(e->b, l.carried[0], hit, "");
    hcg_loop_end(e, &l, &sum);
    LLVMTypeRef type = key_vector(e);
    sum = hcg_intrinsic(e, "llvm.vector.reduce.add", &type, 1, &l.carried[0], 1);
    return LLVMBuildZExt(e->b, sum, e->i64, "");
}

/* The k-th largest key. */
static LLVMValueRef kth_key(hcg_emit *e, LLVMValueRef keys, LLVMValueRef n, LLVMValueRef k) {
    LLVMValueRef t = least_key(e);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, 32), hcg_i64(e, 1), "bit", 1, &t);
    LLVMValueRef back = LLVMBuildTrunc(e->b, hcg_sub(e, hcg_i64(e, 31), l.index), e->i32, "");
    LLVMValueRef bit = LLVMBuildShl(e->b, LLVMConstInt(e->i32, 1, false), back, "");
    LLVMValueRef more = LLVMBuildAdd(e->b, l.carried[0], bit, ""); /* 2^31 may wrap, to 0 */
    LLVMValueRef enough =
        LLVMBuildICmp(e->b, LLVMIntSGE, count_keys(e, keys, n, LLVMIntSGE, more), k, "enough");
    t = LLVMBuildSelect(e->b, enough, more, l.carried[0], "");
    hcg_loop_end(e, &l, &t);
    return l.carried[0];
}

/* Leaves those above the key t and the first `equal` of those with it, in their order. */
static void keep_best(hcg_emit *e, LLVMValueRef keys, LLVMValueRef rows, LLVMValueRef n,
                      LLVMValueRef t, LLVMValueRef equal) {
    LLVMValueRef carried[] = {hcg_i64(e, 0), equal};
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), n, hcg_i64(e, 1), "keep", 2, carried);
    LLVMValueRef key = load(e, e->i32, keys, l.index), row = load(e, e->i32, rows, l.index);
    LLVMValueRef left = LLVMBuildICmp(e->b, LLVMIntSGT, l.carried[1], hcg_i64(e, 0), "");
    LLVMValueRef same = LLVMBuildICmp(e->b, LLVMIntEQ, key, t, "");
    LLVMValueRef above = LLVMBuildICmp(e->b, LLVMIntSGT, key, t, "");
    same = LLVMBuildAnd(e->b, same, left, "");
    store(e, e->i32, keys, l.carried[0], key);
    store(e, e->i32, rows, l.carried[0], row);
    LLVMValueRef next[] = {
        hcg_add(e, l.carried[0], as_count(e, LLVMBuildOr(e->b, same, above, ""))),
        hcg_sub(e, l.carried[1], as_count(e, same)),
    };
    hcg_loop_end(e, &l, next);
}

/* (keys, rows, state, k): leaves the k best of more than k candidates. */
static void emit_drop(hcg_emit *e, hcg_shared *s) {
    LLVMValueRef keys = s->param[0], rows = s->param[1], state = s->param[2], k = s->param[3];
    LLVMValueRef n = load(e, e->i64, state, hcg_i64(e, 0));
    LLVMValueRef behind =
        LLVMBuildStore(e->b, hcg_splat_value(e, least_key(e)), hcg_at(e, e->i32, keys, n));
    LLVMSetAlignment(behind, 4);
    LLVMValueRef t = kth_key(e, keys, n, k);
    LLVMValueRef above = count_keys(e, keys, n, LLVMIntSGT, t);
    keep_best(e, keys, rows, n, t, hcg_sub(e, k, above));
    store(e, e->i64, state, hcg_i64(e, 0), k);
    store(e, e->i64, state, hcg_i64(e, 1), LLVMBuildSExt(e->b, t, e->i64, ""));
}

/* Drops all but the k best where there are `most` or more. */
static void drop_from(hcg_emit *e, const hcg_best *c, int64_t most) {
    LLVMTypeRef params[] = {e->ptr, e->ptr, e->ptr, e->i64};
    LLVMValueRef args[] = {c->keys, c->rows, c->state, hcg_i64(e, c->k)};
    LLVMValueRef n = load(e, e->i64, c->state, hcg_i64(e, 0));
    hcg_loop full =
        hcg_once_if(e, LLVMBuildICmp(e->b, LLVMIntSGE, n, hcg_i64(e, most), ""), "full");
    hcg_shared s;
    if (hcg_shared_begin(e, "choose", params, 4, &s)) {
        emit_drop(e, &s);
        hcg_shared_end(e, &s);
    }
    hcg_shared_call(e, &s, args, 4);
    hcg_loop_end(e, &full, NULL);
}

/* ---- candidates ------------------------------------------------------------------------------ */
static LLVMValueRef key_of(hcg_emit *e, LLVMValueRef score) {
    LLVMValueRef x = hcg_fadd(e, score, LLVMConstReal(e->f32, 0));
    LLVMValueRef bits = LLVMBuildBitCast(e->b, x, e->i32, "");
    LLVMValueRef sign = LLVMBuildAShr(e->b, bits, LLVMConstInt(e->i32, 31, false), "");
    LLVMValueRef flip = LLVMBuildAnd(e->b, sign, LLVMConstInt(e->i32, INT32_MAX, false), "");
    LLVMValueRef nan = LLVMBuildFCmp(e->b, LLVMRealUNO, x, x, "");
    return LLVMBuildSelect(e->b, nan, least_key(e), LLVMBuildXor(e->b, bits, flip, ""), "");
}

void hcg_best_offer(hcg_emit *e, const hcg_best *c, LLVMValueRef scores, LLVMValueRef first,
                    LLVMValueRef count) {
    LLVMValueRef zero = hcg_i64(e, 0), n = load(e, e->i64, c->state, zero);
    LLVMValueRef above = load(e, e->i64, c->state, hcg_i64(e, 1));
    hcg_loop l = hcg_loop_begin(e, zero, count, hcg_i64(e, 1), "offer", 1, &n);
    LLVMValueRef key = key_of(e, hcg_load_scalar(e, HIR_F32, hcg_at(e, e->f32, scores, l.index)));
    LLVMValueRef row = LLVMBuildTrunc(e->b, hcg_add(e, first, l.index), e->i32, "");
    store(e, e->i32, c->keys, l.carried[0], key);
    store(e, e->i32, c->rows, l.carried[0], row);
    LLVMValueRef wide = LLVMBuildSExt(e->b, key, e->i64, "");
    LLVMValueRef taken = LLVMBuildICmp(e->b, LLVMIntSGT, wide, above, "");
    n = hcg_add(e, l.carried[0], as_count(e, taken));
    hcg_loop_end(e, &l, &n);
    store(e, e->i64, c->state, zero, l.carried[0]);
    drop_from(e, c, 2 * c->k);
}

void hcg_best_all(hcg_emit *e, const hcg_best *c, LLVMValueRef first, LLVMValueRef count) {
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), count, hcg_i64(e, 1), "all", 0, NULL);
    LLVMValueRef row = LLVMBuildTrunc(e->b, hcg_add(e, first, l.index), e->i32, "");
    store(e, e->i32, c->rows, l.index, row);
    hcg_loop_end(e, &l, NULL);
    store(e, e->i64, c->state, hcg_i64(e, 0), count);
}

LLVMValueRef hcg_best_end(hcg_emit *e, const hcg_best *c) {
    drop_from(e, c, c->k + 1);
    return load(e, e->i64, c->state, hcg_i64(e, 0));
}
