/* topk, to_ids, pick, mark and scatter, from memory to memory: functions that all row programs of a level
 * share.
 *
 * topk: each element becomes a key of 64 bits, and keys of a row are all different,
 *
 *     key(i) = order(x_i) 2^32 + (2^31 - 1 - i)
 *
 * where order() is an integer that is larger for a larger float: so the largest key is the largest
 * element, the one with the lower index among equals, and no comparison needs a second look. k
 * times the largest key is found, its index is written, and the key is replaced by the least. That
 * is k n / lanes steps; k is a few, n a few hundred. NaN has an order below that of -inf.
 */
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"
#include "codegen/emit/shared.h"
#include "codegen/rowwise/emit/run.h"

static LLVMTypeRef keys_type(const hcg_emit *e) {
    return LLVMVectorType(e->i64, e->level->lanes);
}

static void store8(hcg_emit *e, LLVMValueRef v, LLVMValueRef p) {
    LLVMSetAlignment(LLVMBuildStore(e->b, v, p), 8);
}

/* i32, larger for a larger float, whatever the mode of the float unit; -0 as 0. */
static LLVMValueRef order_of(hcg_emit *e, LLVMValueRef x) {
    LLVMTypeRef ints = LLVMVectorType(e->i32, e->level->lanes);
    LLVMValueRef bits = LLVMBuildBitCast(e->b, x, ints, "");
    LLVMValueRef size = LLVMBuildAnd(e->b, bits, hcg_int_like(ints, 0x7fffffff), "");
    LLVMValueRef sign = LLVMBuildAShr(e->b, bits, hcg_int_like(ints, 31), "");
    LLVMValueRef order = LLVMBuildXor(e->b, size, sign, ""); /* size, or -size - 1 */
    order = LLVMBuildSub(e->b, order, sign, "");             /* size, or -size */
    LLVMValueRef nan = LLVMBuildICmp(e->b, LLVMIntUGT, size, hcg_int_like(ints, 0x7f800000), "nan");
    return LLVMBuildSelect(e->b, nan, hcg_int_like(ints, 0x80000001), order, "order");
}

/* 0, 1, 2 .. as i64 */
static LLVMValueRef lane_numbers(hcg_emit *e) {
    LLVMValueRef at[HIR_PANEL];
    for (unsigned i = 0; i < e->level->lanes; i++)
        at[i] = hcg_i64(e, i);
    return LLVMConstVector(at, e->level->lanes);
}

/* keys[0 .. n), and keys that are never chosen up to whole vectors */
static void make_keys(hcg_emit *e, LLVMValueRef x, LLVMValueRef n, LLVMValueRef keys) {
    const int64_t lanes = e->level->lanes;
    LLVMTypeRef type = keys_type(e);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), n, hcg_i64(e, lanes), "key", 0, NULL);
    LLVMValueRef left = hcg_sub(e, n, l.index);
    LLVMValueRef v = hcg_load(e, HIR_F32, hcg_at(e, e->f32, x, l.index), left);
    LLVMValueRef order = LLVMBuildSExt(e->b, order_of(e, v), type, "");
    LLVMValueRef lane = lane_numbers(e), index = hcg_splat_value(e, l.index);
    LLVMValueRef below = hcg_int_like(type, INT32_MAX);
    below = LLVMBuildSub(e->b, below, LLVMBuildAdd(e->b, index, lane, ""), "");
    LLVMValueRef key = LLVMBuildShl(e->b, order, hcg_int_like(type, 32), "");
    key = LLVMBuildAdd(e->b, key, below, "");
    LLVMValueRef in = LLVMBuildICmp(e->b, LLVMIntSLT, lane, hcg_splat_value(e, left), "");
    key = LLVMBuildSelect(e->b, in, key, hcg_int_like(type, (uint64_t)INT64_MIN), "");
    store8(e, key, hcg_at(e, e->i64, keys, l.index));
    hcg_loop_end(e, &l, NULL);
}

/* The largest key, i64. */
static LLVMValueRef largest_key(hcg_emit *e, LLVMValueRef n, LLVMValueRef keys) {
    LLVMTypeRef type = keys_type(e);
    LLVMValueRef most = hcg_int_like(type, (uint64_t)INT64_MIN);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), n, hcg_i64(e, e->level->lanes), "best", 1, &most);
    LLVMValueRef key = LLVMBuildLoad2(e->b, type, hcg_at(e, e->i64, keys, l.index), "");
    LLVMSetAlignment(key, 8);
    LLVMValueRef larger = LLVMBuildICmp(e->b, LLVMIntSGT, key, l.carried[0], "");
    most = LLVMBuildSelect(e->b, larger, key, l.carried[0], "");
    hcg_loop_end(e, &l, &most);
    most = l.carried[0];
    LLVMValueRef best = NULL;
    for (unsigned i = 0; i < e->level->lanes; i++) {
        LLVMValueRef lane = LLVMConstInt(e->i32, i, false);
        LLVMValueRef one = LLVMBuildExtractElement(e->b, most, lane, "");
        best = best ? hcg_larger(e, best, one) : one;
    }
    return best;
}

/* topk(x, n, k, rows, keys, out) */
static hcg_shared topk_function(hcg_emit *e) {
    LLVMTypeRef params[] = {e->ptr, e->i64, e->i64, e->i64, e->ptr, e->ptr};
    hcg_shared s;
    if (!hcg_shared_begin(e, "topk", params, 6, &s)) return s;
    LLVMValueRef n = s.param[1], k = s.param[2], keys = s.param[4];
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    hcg_loop lr = hcg_loop_begin(e, zero, s.param[3], one, "row", 0, NULL);
    make_keys(e, hcg_at(e, e->f32, s.param[0], hcg_mul(e, lr.index, n)), n, keys);
    LLVMValueRef out = hcg_at(e, e->i32, s.param[5], hcg_mul(e, lr.index, k));
    hcg_loop lk = hcg_loop_begin(e, zero, k, one, "place", 0, NULL);
    LLVMValueRef best = largest_key(e, n, keys);
    LLVMValueRef id = LLVMBuildAnd(e->b, best, hcg_i64(e, INT32_MAX), "");
    id = hcg_sub(e, hcg_i64(e, INT32_MAX), id);
    LLVMValueRef stored = LLVMBuildTrunc(e->b, id, e->i32, "");
    LLVMSetAlignment(LLVMBuildStore(e->b, stored, hcg_at(e, e->i32, out, lk.index)), 4);
    store8(e, hcg_i64(e, INT64_MIN), hcg_at(e, e->i64, keys, id));
    hcg_loop_end(e, &lk, NULL);
    hcg_loop_end(e, &lr, NULL);
    hcg_shared_end(e, &s);
    return s;
}

/* ids[i] as i64, and whether it is one of 0 .. n-1 */
static LLVMValueRef load_id(hcg_emit *e, LLVMValueRef ids, LLVMValueRef i, LLVMValueRef n,
                            LLVMValueRef *in) {
    LLVMValueRef id = LLVMBuildLoad2(e->b, e->i32, hcg_at(e, e->i32, ids, i), "id");
    LLVMSetAlignment(id, 4);
    id = LLVMBuildSExt(e->b, id, e->i64, "");
    *in = LLVMBuildICmp(e->b, LLVMIntULT, id, n, "in");
    return LLVMBuildSelect(e->b, *in, id, hcg_i64(e, 0), "");
}

/* pick(x, x_stride, n, ids, k, rows, out) */
static hcg_shared pick_function(hcg_emit *e) {
    LLVMTypeRef params[] = {e->ptr, e->i64, e->i64, e->ptr, e->i64, e->i64, e->ptr};
    hcg_shared s;
    if (!hcg_shared_begin(e, "pick", params, 7, &s)) return s;
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), k = s.param[4], in;
    hcg_loop lr = hcg_loop_begin(e, zero, s.param[5], one, "row", 0, NULL);
    LLVMValueRef x = hcg_at(e, e->f32, s.param[0], hcg_mul(e, lr.index, s.param[1]));
    hcg_loop lk = hcg_loop_begin(e, zero, k, one, "place", 0, NULL);
    LLVMValueRef at = hcg_add(e, hcg_mul(e, lr.index, k), lk.index);
    LLVMValueRef id = load_id(e, s.param[3], at, s.param[2], &in);
    LLVMValueRef y = hcg_load_scalar(e, HIR_F32, hcg_at(e, e->f32, x, id));
    y = LLVMBuildSelect(e->b, in, y, LLVMConstReal(e->f32, 0), "");
    LLVMSetAlignment(LLVMBuildStore(e->b, y, hcg_at(e, e->f32, s.param[6], at)), 4);
    hcg_loop_end(e, &lk, NULL);
    hcg_loop_end(e, &lr, NULL);
    hcg_shared_end(e, &s);
    return s;
}

/* to_ids(x, n, out), n elements in all */
static hcg_shared to_ids_function(hcg_emit *e) {
    LLVMTypeRef params[] = {e->ptr, e->i64, e->ptr};
    hcg_shared s;
    if (!hcg_shared_begin(e, "to_ids", params, 3, &s)) return s;
    LLVMValueRef n = s.param[1], step = hcg_i64(e, e->level->lanes);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), n, step, "id", 0, NULL);
    LLVMValueRef left = hcg_sub(e, n, l.index);
    LLVMValueRef x = hcg_load(e, HIR_F32, hcg_at(e, e->f32, s.param[0], l.index), left);
    hcg_store_as(e, HIR_I32, hcg_at(e, e->i32, s.param[2], l.index), x, left);
    hcg_loop_end(e, &l, NULL);
    hcg_shared_end(e, &s);
    return s;
}

/* Zeros, n of them. */
static void clear_row(hcg_emit *e, LLVMValueRef out, LLVMValueRef n) {
    LLVMValueRef step = hcg_i64(e, e->level->lanes);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), n, step, "clear", 0, NULL);
    hcg_store(e, hcg_at(e, e->f32, out, l.index), hcg_splat(e, 0), hcg_sub(e, n, l.index));
    hcg_loop_end(e, &l, NULL);
}

/* mark(ids, k, rows, n, out), scatter(ids, k, rows, n, out, x); an id outside stores what is
 * there */
static hcg_shared places_function(hcg_emit *e, bool scatter) {
    LLVMTypeRef params[] = {e->ptr, e->i64, e->i64, e->i64, e->ptr, e->ptr};
    hcg_shared s;
    if (!hcg_shared_begin(e, scatter ? "scatter" : "mark", params, scatter ? 6 : 5, &s)) return s;
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), k = s.param[1], n = s.param[3], in;
    hcg_loop lr = hcg_loop_begin(e, zero, s.param[2], one, "row", 0, NULL);
    LLVMValueRef out = hcg_at(e, e->f32, s.param[4], hcg_mul(e, lr.index, n));
    clear_row(e, out, n);
    hcg_loop lk = hcg_loop_begin(e, zero, k, one, "place", 0, NULL);
    LLVMValueRef at = hcg_add(e, hcg_mul(e, lr.index, k), lk.index);
    LLVMValueRef id = load_id(e, s.param[0], at, n, &in), place = hcg_at(e, e->f32, out, id);
    LLVMValueRef was = hcg_load_scalar(e, HIR_F32, place), y = LLVMConstReal(e->f32, 1);
    if (scatter)
        y = hcg_fadd(e, was, hcg_load_scalar(e, HIR_F32, hcg_at(e, e->f32, s.param[5], at)));
    y = LLVMBuildSelect(e->b, in, y, was, "");
    LLVMSetAlignment(LLVMBuildStore(e->b, y, place), 4);
    hcg_loop_end(e, &lk, NULL);
    hcg_loop_end(e, &lr, NULL);
    hcg_shared_end(e, &s);
    return s;
}

/* ---- a nest ---------------------------------------------------------------------------------- */
static int64_t last_dim(const row_run *r, hir_ref x) {
    const hir_type t = hir_ref_type(r->g->m, x);
    return t.dim[t.rank - 1];
}

static LLVMValueRef place_of(const row_run *r, uint32_t node) {
    return r->pointer[row_at(r->g, node)->buffer];
}

void row_emit_selection(row_run *r, const row_node *n) {
    hcg_emit *e = r->e;
    const hir_op *op = n->op;
    const int64_t last = last_dim(r, hir_value_ref(op->results[0]));
    const int64_t rows = row_elements(&n->shape).a / last, in = last_dim(r, op->args[0]);
    LLVMValueRef out = r->pointer[n->buffer], x = place_of(r, n->args[0].node);
    row_at_op(r, n);
    if (op->code == HIR_TOPK_OP) {
        const int64_t lanes = e->level->lanes, whole = (in + lanes - 1) / lanes * lanes;
        LLVMValueRef keys = row_scratch(r, row_int(whole * 8));
        LLVMValueRef args[] = {x, hcg_i64(e, in), hcg_i64(e, last), hcg_i64(e, rows), keys, out};
        hcg_shared f = topk_function(e);
        hcg_shared_call(e, &f, args, 6);
    } else if (op->code == HIR_TO_IDS_OP) {
        LLVMValueRef args[] = {x, hcg_i64(e, last * rows), out};
        hcg_shared f = to_ids_function(e);
        hcg_shared_call(e, &f, args, 3);
    } else if (op->code == HIR_PICK_OP) {
        const row_size all = r->g->buffers.at[row_at(r->g, n->args[0].node)->buffer].elements;
        LLVMValueRef args[] = {x,
                               hcg_i64(e, row_size_is(all, in) ? 0 : in),
                               hcg_i64(e, in),
                               place_of(r, n->args[1].node),
                               hcg_i64(e, last),
                               hcg_i64(e, rows),
                               out};
        hcg_shared f = pick_function(e);
        hcg_shared_call(e, &f, args, 7);
    } else {
        const bool scatter = op->code == HIR_SCATTER_OP;
        LLVMValueRef ids = scatter ? place_of(r, n->args[1].node) : x;
        LLVMValueRef args[] = {ids, hcg_i64(e, in), hcg_i64(e, rows), hcg_i64(e, last), out, x};
        hcg_shared f = places_function(e, scatter);
        hcg_shared_call(e, &f, args, scatter ? 6 : 5);
    }
}
