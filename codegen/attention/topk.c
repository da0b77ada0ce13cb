/* The k best of a stream of scores (topk.h). */
#include "codegen/attention/topk.h"

#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"
#include "codegen/emit/shared.h"

hcg_loop hcg_once_if(hcg_emit *e, LLVMValueRef condition, const char *name) {
    LLVMValueRef times = LLVMBuildZExt(e->b, condition, e->i64, "");
    return hcg_loop_begin(e, hcg_i64(e, 0), times, hcg_i64(e, 1), name, 0, NULL);
}

LLVMValueRef hcg_list_range(hcg_emit *e, LLVMValueRef rows) {
    LLVMValueRef pieces = hcg_i64(e, HRT_LIST_ROWS * HRT_LIST_RANGES);
    LLVMValueRef each = hcg_mul_const(e, hcg_divide_up(e, rows, pieces), HRT_LIST_ROWS);
    each = hcg_larger(e, each, hcg_i64(e, HRT_LIST_ROWS));
    return hcg_smaller(e, each, hcg_i64(e, HRT_KEYS));
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
    c.keys = hcg_scratch(e, room + 64); /* and a vector after them */
    c.rows = hcg_scratch(e, room + 64); /* likewise */
    c.state = hcg_scratch(e, 16);
    return c;
}

void hcg_best_start(hcg_emit *e, const hcg_best *c) {
    store(e, e->i64, c->state, hcg_i64(e, 0), hcg_i64(e, 0));
    store(e, e->i64, c->state, hcg_i64(e, 1), hcg_i64(e, INT32_MIN));
}

/* ---- the selection --------------------------------------------------------------------------- */
/* How many of keys[0 .. n) are not less than `bound`, or are greater; after them in memory is a
 * vector of least keys. */
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

/* The least and the greatest of keys[0 .. n), n > 0. The vector after the keys is filled with
 * copies of the first key. */
static void find_extremes(hcg_emit *e, LLVMValueRef keys, LLVMValueRef n, LLVMValueRef out[2]) {
    static const char *const of[] = {"llvm.smin", "llvm.smax"}, *const all[] = {
                                                                    "llvm.vector.reduce.smin",
                                                                    "llvm.vector.reduce.smax"};
    LLVMTypeRef type = key_vector(e);
    LLVMValueRef first = load(e, e->i32, keys, hcg_i64(e, 0)), lanes = hcg_i64(e, e->level->lanes);
    LLVMValueRef behind =
        LLVMBuildStore(e->b, hcg_splat_value(e, first), hcg_at(e, e->i32, keys, n));
    LLVMSetAlignment(behind, 4);
    LLVMValueRef most[] = {hcg_splat_value(e, first), hcg_splat_value(e, first)};
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), n, lanes, "extremes", 2, most);
    LLVMValueRef x = LLVMBuildLoad2(e->b, type, hcg_at(e, e->i32, keys, l.index), "");
    LLVMSetAlignment(x, 4);
    for (int i = 0; i < 2; i++)
        most[i] = hcg_intrinsic(e, of[i], &type, 1, (LLVMValueRef[]){l.carried[i], x}, 2);
    hcg_loop_end(e, &l, most);
    for (int i = 0; i < 2; i++)
        out[i] = hcg_intrinsic(e, all[i], &type, 1, &l.carried[i], 1);
}

/* The k-th largest key. It begins with the bits that all keys begin with; the bits after them are
 * found one by one. */
static LLVMValueRef kth_key(hcg_emit *e, LLVMValueRef keys, LLVMValueRef n, LLVMValueRef k) {
    LLVMValueRef most[2], none = hcg_i64(e, 0), one = LLVMConstInt(e->i32, 1, false);
    find_extremes(e, keys, n, most);
    LLVMValueRef behind =
        LLVMBuildStore(e->b, hcg_splat_value(e, least_key(e)), hcg_at(e, e->i32, keys, n));
    LLVMSetAlignment(behind, 4);
    LLVMValueRef differ = LLVMBuildXor(e->b, most[0], most[1], "");
    LLVMTypeRef type = e->i32;
    LLVMValueRef zeros[] = {differ, LLVMConstInt(e->i1, 0, false)}; /* of 0: 32 */
    LLVMValueRef same = hcg_intrinsic(e, "llvm.ctlz", &type, 1, zeros, 2);
    LLVMValueRef bits = hcg_sub(e, hcg_i64(e, 32), LLVMBuildZExt(e->b, same, e->i64, ""));
    LLVMValueRef begin = LLVMBuildShl(e->b, hcg_i64(e, -1), bits, "");
    /* in the order of unsigned numbers, whose least is 0 */
    LLVMValueRef t = LLVMBuildXor(e->b, most[0], least_key(e), "");
    t = LLVMBuildAnd(e->b, t, LLVMBuildTrunc(e->b, begin, e->i32, ""), "");
    t = LLVMBuildXor(e->b, t, least_key(e), "");
    hcg_loop l = hcg_loop_begin(e, none, bits, hcg_i64(e, 1), "bit", 1, &t);
    LLVMValueRef back = hcg_sub(e, hcg_sub(e, bits, hcg_i64(e, 1)), l.index);
    LLVMValueRef bit = LLVMBuildShl(e->b, one, LLVMBuildTrunc(e->b, back, e->i32, ""), "");
    LLVMValueRef more = LLVMBuildAdd(e->b, l.carried[0], bit, ""); /* 2^31 may wrap, to 0 */
    LLVMValueRef enough =
        LLVMBuildICmp(e->b, LLVMIntSGE, count_keys(e, keys, n, LLVMIntSGE, more), k, "enough");
    t = LLVMBuildSelect(e->b, enough, more, l.carried[0], "");
    hcg_loop_end(e, &l, &t);
    return l.carried[0];
}

/* ---- some lanes of a vector ------------------------------------------------------------------ */
/* Does the level have an instruction that compresses selected lanes of a vector? */
static bool packs_lanes(const hcg_emit *e) {
    return e->level->lanes == 16 && hcg_has_feature(e->level, "avx512f");
}

static LLVMValueRef key_lanes(hcg_emit *e, LLVMValueRef base, LLVMValueRef index) {
    LLVMValueRef x = LLVMBuildLoad2(e->b, key_vector(e), hcg_at(e, e->i32, base, index), "");
    LLVMSetAlignment(x, 4);
    return x;
}

/* Writes the lanes of x that `some` names, in their order, to base[at ..]; up to a whole vector is
 * overwritten. */
static void store_some(hcg_emit *e, LLVMValueRef base, LLVMValueRef at, LLVMValueRef x,
                       LLVMValueRef some) {
    LLVMTypeRef type = key_vector(e);
    LLVMValueRef args[] = {x, LLVMConstNull(type), some};
    x = hcg_intrinsic(e, "llvm.x86.avx512.mask.compress", &type, 1, args, 3);
    LLVMSetAlignment(LLVMBuildStore(e->b, x, hcg_at(e, e->i32, base, at)), 4);
}

static LLVMValueRef count_lanes(hcg_emit *e, LLVMValueRef some) {
    LLVMTypeRef type = LLVMIntTypeInContext(e->cx, e->level->lanes);
    LLVMValueRef bits = LLVMBuildBitCast(e->b, some, type, "");
    return LLVMBuildZExt(e->b, hcg_intrinsic(e, "llvm.ctpop", &type, 1, &bits, 1), e->i64, "");
}

/* ---- dropping -------------------------------------------------------------------------------- */
/* Keeps all candidates whose key is t or more, in their order. */
static void keep_from(hcg_emit *e, LLVMValueRef keys, LLVMValueRef rows, LLVMValueRef n,
                      LLVMValueRef t) {
    LLVMValueRef kept = hcg_i64(e, 0), least = hcg_splat_value(e, t);
    hcg_loop l = hcg_loop_begin(e, kept, n, hcg_i64(e, e->level->lanes), "keep", 1, &kept);
    LLVMValueRef key = key_lanes(e, keys, l.index), row = key_lanes(e, rows, l.index);
    LLVMValueRef some = LLVMBuildAnd(e->b, LLVMBuildICmp(e->b, LLVMIntSGE, key, least, ""),
                                     hcg_tail_mask(e, hcg_sub(e, n, l.index)), "");
    store_some(e, keys, l.carried[0], key, some);
    store_some(e, rows, l.carried[0], row, some);
    kept = hcg_add(e, l.carried[0], count_lanes(e, some));
    hcg_loop_end(e, &l, &kept);
}

/* Keeps the candidates above the key t and the first `equal` of those with that key, in their
 * order. */
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

/* (keys, rows, state, k): keeps the k best of more than k candidates. */
static void emit_drop(hcg_emit *e, hcg_shared *s) {
    LLVMValueRef keys = s->param[0], rows = s->param[1], state = s->param[2], k = s->param[3];
    LLVMValueRef n = load(e, e->i64, state, hcg_i64(e, 0)), zero = hcg_i64(e, 0);
    LLVMValueRef t = kth_key(e, keys, n, k);
    LLVMValueRef above = count_keys(e, keys, n, LLVMIntSGT, t), some = n;
    if (packs_lanes(e)) { /* as vectors where none of those with the key t is left out */
        LLVMValueRef from = count_keys(e, keys, n, LLVMIntSGE, t);
        LLVMValueRef all = LLVMBuildICmp(e->b, LLVMIntEQ, from, k, "all");
        keep_from(e, keys, rows, LLVMBuildSelect(e->b, all, n, zero, ""), t);
        some = LLVMBuildSelect(e->b, all, zero, n, "");
    }
    keep_best(e, keys, rows, some, t, hcg_sub(e, k, above));
    store(e, e->i64, state, zero, k);
    LLVMValueRef next = LLVMBuildSExt(e->b, t, e->i64, "");
    store(e, e->i64, state, hcg_i64(e, 1), hcg_add(e, next, hcg_i64(e, 1)));
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
/* The key of a score, or the keys of a vector of scores. */
static LLVMValueRef key_of(hcg_emit *e, LLVMValueRef score) {
    LLVMTypeRef type = LLVMTypeOf(score), keys = hcg_like(type, e->i32);
    LLVMValueRef x = hcg_fadd(e, score, hcg_real_like(type, 0));
    LLVMValueRef bits = LLVMBuildBitCast(e->b, x, keys, "");
    LLVMValueRef sign = LLVMBuildAShr(e->b, bits, hcg_int_like(keys, 31), "");
    LLVMValueRef flip = LLVMBuildAnd(e->b, sign, hcg_int_like(keys, INT32_MAX), "");
    LLVMValueRef nan = LLVMBuildFCmp(e->b, LLVMRealUNO, x, x, "");
    return LLVMBuildSelect(e->b, nan, hcg_int_like(keys, 1u << 31),
                           LLVMBuildXor(e->b, bits, flip, ""), "");
}

typedef struct offered {
    LLVMValueRef scores, first;
    LLVMValueRef least; /* i32: lesser keys are not taken */
} offered;

/* Takes candidates, from number n on, of the scores from `at` on, one by one; returns how many
 * there are then. */
static LLVMValueRef take_each(hcg_emit *e, const hcg_best *c, const offered *o, LLVMValueRef at,
                              LLVMValueRef end, LLVMValueRef n) {
    hcg_loop l = hcg_loop_begin(e, at, end, hcg_i64(e, 1), "offer", 1, &n);
    LLVMValueRef key =
        key_of(e, hcg_load_scalar(e, HIR_F32, hcg_at(e, e->f32, o->scores, l.index)));
    LLVMValueRef row = LLVMBuildTrunc(e->b, hcg_add(e, o->first, l.index), e->i32, "");
    store(e, e->i32, c->keys, l.carried[0], key);
    store(e, e->i32, c->rows, l.carried[0], row);
    LLVMValueRef taken = LLVMBuildICmp(e->b, LLVMIntSGE, key, o->least, "");
    n = hcg_add(e, l.carried[0], as_count(e, taken));
    hcg_loop_end(e, &l, &n);
    return l.carried[0];
}

/* The same for a vector of scores at once. */
static LLVMValueRef take_vector(hcg_emit *e, const hcg_best *c, const offered *o, LLVMValueRef at,
                                LLVMValueRef key, LLVMValueRef some, LLVMValueRef n) {
    LLVMValueRef row = LLVMBuildTrunc(e->b, hcg_add(e, o->first, at), e->i32, "");
    row = LLVMBuildAdd(e->b, hcg_splat_value(e, row), hcg_lane_numbers(e), "");
    store_some(e, c->keys, n, key, some);
    store_some(e, c->rows, n, row, some);
    return hcg_add(e, n, count_lanes(e, some));
}

/* Where the level cannot compress lanes: a vector of which no lane is taken, as most soon are,
 * costs one comparison. */
static LLVMValueRef take_if_any(hcg_emit *e, const hcg_best *c, const offered *o, LLVMValueRef at,
                                LLVMValueRef some, LLVMValueRef n) {
    LLVMTypeRef type = key_vector(e);
    LLVMValueRef any = LLVMBuildSExt(e->b, some, type, "");
    any = hcg_intrinsic(e, "llvm.vector.reduce.or", &type, 1, &any, 1);
    any = LLVMBuildICmp(e->b, LLVMIntNE, any, LLVMConstNull(e->i32), "any");
    LLVMValueRef end = hcg_add(e, at, hcg_i64(e, e->level->lanes));
    end = LLVMBuildSelect(e->b, any, end, at, "");
    return take_each(e, c, o, at, end, n);
}

void hcg_best_offer(hcg_emit *e, const hcg_best *c, LLVMValueRef scores, LLVMValueRef first,
                    LLVMValueRef count) {
    LLVMValueRef zero = hcg_i64(e, 0), n = load(e, e->i64, c->state, zero);
    offered o = {.scores = scores, .first = first};
    LLVMValueRef least = load(e, e->i64, c->state, hcg_i64(e, 1));
    o.least = LLVMBuildTrunc(e->b, least, e->i32, "");
    LLVMValueRef lanes = hcg_i64(e, e->level->lanes), from = hcg_splat_value(e, o.least);
    LLVMValueRef whole = LLVMBuildAnd(e->b, count, hcg_i64(e, -(int64_t)e->level->lanes), "");
    hcg_loop l = hcg_loop_begin(e, zero, whole, lanes, "offers", 1, &n);
    LLVMValueRef key = key_of(e, hcg_load(e, HIR_F32, hcg_at(e, e->f32, scores, l.index), NULL));
    LLVMValueRef some = LLVMBuildICmp(e->b, LLVMIntSGE, key, from, "");
    n = packs_lanes(e) ? take_vector(e, c, &o, l.index, key, some, l.carried[0])
                       : take_if_any(e, c, &o, l.index, some, l.carried[0]);
    hcg_loop_end(e, &l, &n);
    n = take_each(e, c, &o, whole, count, l.carried[0]);
    store(e, e->i64, c->state, zero, n);
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
