/* Cached rows of bf16 that are met as words of two elements, in attention of one token whose values
 * are columns of the rows of keys (attention_decode.c): one load and two instructions (a shift for
 * the even elements, a mask for the odd ones) make two vectors of f32 of it. Widened one by one
 * they take two loads and four instructions, all of them of the ports for shuffles, one of which is
 * also one of the two for multiply-adds. The same numbers meet; a score's terms are added in
 * another order.
 *
 * The price is an order: of each two vectors of elements first come the even ones, then the odd
 * ones. Queries are brought into it once a call, sums of values stay in it until a head is
 * finished.
 */
#include "codegen/attention/attention_tile.h"
#include "codegen/emit/arithmetic.h"

static int64_t block_of(const hcg_emit *e) {
    return 2 * (int64_t)e->level->lanes;
}

/* Where there are registers for two words beside the sums, the queries and the mask. */
bool hcg_words_fit(const hcg_emit *e, const hcg_attention *a) {
    const hcg_level *l = e->level;
    return a->one_row && a->k.dtype == HIR_BF16 && l->lanes == HIR_PANEL && l->registers >= 32 &&
           a->n % block_of(e) == 0 && a->m % block_of(e) == 0;
}

bool hcg_rows_in_words(const hcg_emit *e, const hcg_attention *a) {
    return hcg_words_fit(e, a) && !hcg_rows_in_pairs(e, a);
}

/* Two vectors at `from`, lanes of both as `lane` says, become those at `to`. */
static void reorder_block(hcg_emit *e, LLVMValueRef from, LLVMValueRef to,
                          int64_t (*lane)(int64_t of, int64_t i)) {
    const int64_t lanes = e->level->lanes;
    LLVMValueRef x = hcg_load(e, HIR_F32, from, NULL), mask[HIR_PANEL];
    LLVMValueRef y = hcg_load(e, HIR_F32, hcg_at(e, e->f32, from, hcg_i64(e, lanes)), NULL);
    for (int64_t half = 0; half < 2; half++) {
        for (int64_t i = 0; i < lanes; i++)
            mask[i] = LLVMConstInt(e->i32, (uint64_t)lane(lanes, half * lanes + i), false);
        LLVMValueRef v =
            LLVMBuildShuffleVector(e->b, x, y, LLVMConstVector(mask, (unsigned)lanes), "");
        hcg_store(e, hcg_at(e, e->f32, to, hcg_i64(e, half * lanes)), v, NULL);
    }
}

static void reorder(hcg_emit *e, LLVMValueRef from, LLVMValueRef to, int64_t n,
                    int64_t (*lane)(int64_t of, int64_t i)) {
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, n), hcg_i64(e, block_of(e)), "reorder",
                                0, NULL);
    reorder_block(e, hcg_at(e, e->f32, from, l.index), hcg_at(e, e->f32, to, l.index), lane);
    hcg_loop_end(e, &l, NULL);
}

static int64_t apart(int64_t lanes, int64_t i) {
    return i % lanes * 2 + i / lanes;
}

static int64_t in_turn(int64_t lanes, int64_t i) {
    return i % 2 * lanes + i / 2;
}

void hcg_words_begin(hcg_emit *e, hcg_key_tile *t) {
    t->words = true;
    t->q_words = hcg_scratch(e, (uint64_t)(t->a->per_group * t->a->n) * 4);
}

void hcg_words_take_queries(hcg_emit *e, hcg_key_tile *t) {
    reorder(e, t->q, t->q_words, t->a->per_group * t->a->n, apart);
    t->q = t->q_words;
}

LLVMValueRef hcg_load_words(hcg_emit *e, LLVMValueRef place, unsigned half) {
    LLVMTypeRef words = LLVMVectorType(e->i32, e->level->lanes);
    LLVMValueRef each[HIR_PANEL], x = LLVMBuildLoad2(e->b, words, place, "");
    LLVMSetAlignment(x, 2);
    for (unsigned i = 0; i < e->level->lanes; i++)
        each[i] = LLVMConstInt(e->i32, half ? 0xffff0000u : 16, false);
    LLVMValueRef by = LLVMConstVector(each, e->level->lanes);
    x = half ? LLVMBuildAnd(e->b, x, by, "") : LLVMBuildShl(e->b, x, by, "");
    return LLVMBuildBitCast(e->b, x, e->vec, "");
}

void hcg_words_in_order(hcg_emit *e, const hcg_attention *a, LLVMValueRef out) {
    reorder(e, out, out, a->m, in_turn);
}
