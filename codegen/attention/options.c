/* What options of attention do to the scores of a tile and to the start of a query (attention.h):
 *
 *     l = scale q . k        ->  c tanh(l / c)          softcap c
 *                            ->  l + bias[t, h, p - s]  where p - s < extent
 *     M = lowest, S = 0      ->  M = z, S = 1           sink z
 */
#include <float.h>
#include <math.h>

#include "codegen/attention/attention.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"

enum { MOST_LANES = 64 };

LLVMValueRef hcg_soft_cap(hcg_emit *e, const hcg_attention *a, LLVMValueRef x) {
    if (!(a->softcap > 0)) return x;
    LLVMValueRef y = hcg_tanh(e, hcg_fmul(e, x, hcg_splat(e, 1 / a->softcap)));
    return hcg_fmul(e, y, hcg_splat(e, a->softcap));
}

LLVMValueRef hcg_first_seen(hcg_emit *e, const hcg_attention *a, LLVMValueRef position) {
    if (!a->window) return hcg_i64(e, 0);
    return hcg_larger(e, hcg_add(e, position, hcg_i64(e, 1 - a->window)), hcg_i64(e, 0));
}

/* ---- bias ------------------------------------------------------------------------------------ */
static LLVMValueRef reversed(hcg_emit *e, LLVMValueRef v) {
    LLVMValueRef mask[MOST_LANES];
    for (unsigned i = 0; i < e->level->lanes; i++)
        mask[i] = LLVMConstInt(e->i32, e->level->lanes - 1 - i, false);
    return LLVMBuildShuffleVector(e->b, v, LLVMGetPoison(e->vec),
                                  LLVMConstVector(mask, e->level->lanes), "");
}

/* Scores of the keys from .. to - 1, numbers in the tile: `lanes` at once, or one. Distances fall
 * as keys rise, so a vector of the bias is read backwards. */
static LLVMValueRef add_some(hcg_emit *e, const hcg_query *q, LLVMValueRef bias, LLVMValueRef from,
                             LLVMValueRef to, unsigned lanes) {
    LLVMValueRef end = hcg_add(e, to, hcg_i64(e, 1 - (int64_t)lanes));
    hcg_loop l = hcg_loop_begin(e, from, end, hcg_i64(e, lanes), "bias", 0, NULL);
    LLVMValueRef at = hcg_at(e, e->f32, q->scores, hcg_mul_const(e, l.index, q->apart));
    LLVMValueRef key = hcg_add(e, q->first, hcg_add(e, l.index, hcg_i64(e, lanes - 1)));
    LLVMValueRef distance = hcg_sub(e, q->position, key);
    LLVMValueRef place = hcg_at(e, e->f32, bias, distance);
    if (lanes == 1) {
        LLVMValueRef x = hcg_load_scalar(e, HIR_F32, at), y = hcg_load_scalar(e, HIR_F32, place);
        hcg_store(e, at, hcg_fadd(e, x, y), NULL);
    } else {
        LLVMValueRef y = reversed(e, hcg_load(e, HIR_F32, place, NULL));
        hcg_store(e, at, hcg_fadd(e, hcg_load(e, HIR_F32, at, NULL), y), NULL);
    }
    hcg_loop_end(e, &l, NULL);
    return l.index;
}

void hcg_add_bias(hcg_emit *e, const hcg_attention *a, const hcg_query *q) {
    if (!a->bias) return;
    LLVMValueRef zero = hcg_i64(e, 0), own = hcg_sub(e, q->position, q->first);
    LLVMValueRef from = hcg_larger(e, hcg_add(e, own, hcg_i64(e, 1 - a->extent)), zero);
    LLVMValueRef to = hcg_smaller(e, hcg_add(e, own, hcg_i64(e, 1)), q->count);
    LLVMValueRef bias = hcg_at(e, e->f32, a->bias, hcg_mul_const(e, q->number, a->extent));
    if (q->apart == 1) from = add_some(e, q, bias, from, to, e->level->lanes);
    add_some(e, q, bias, from, to, 1);
}

/* ---- sink ------------------------------------------------------------------------------------ */
/* A sink of -inf is none; NaN stays. */
void hcg_softmax_origin(hcg_emit *e, const hcg_attention *a, LLVMValueRef token, LLVMValueRef head,
                        LLVMValueRef *maximum, LLVMValueRef *sum) {
    *maximum = LLVMConstReal(e->f32, -FLT_MAX), *sum = LLVMConstReal(e->f32, 0);
    if (!a->sink) return;
    LLVMValueRef at = a->sink_by_token ? hcg_add(e, hcg_mul_const(e, token, a->heads), head) : head;
    LLVMValueRef z = hcg_load_scalar(e, HIR_F32, hcg_at(e, e->f32, a->sink, at));
    LLVMValueRef none =
        LLVMBuildFCmp(e->b, LLVMRealOEQ, z, LLVMConstReal(e->f32, -INFINITY), "none");
    *sum = LLVMBuildSelect(e->b, none, *sum, LLVMConstReal(e->f32, 1), "");
    *maximum = hcg_min(e, hcg_max(e, z, *maximum), LLVMConstReal(e->f32, FLT_MAX));
}
