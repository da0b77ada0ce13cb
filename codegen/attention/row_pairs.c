/* Cached rows of bf16 that meet queries and weights in pairs (vdpbf16ps), two products to an
 * instruction, in attention of one token whose values are columns of the rows of keys
 * (attention_decode.c). Queries and softmax weights are rounded to bf16 for it, to nearest even;
 * sums are f32.
 *
 *     scores   two neighbours of a row meet two of a query
 *     values   the rows of two keys are interleaved in registers, and meet the weights of both
 *
 * A rounded query changes a score by 2^-8 |scale| sum |q_i c_i| at most, rounded weights a result
 * by 2^-8 of the largest value (sums of weights are those of the numbers before rounding).
 *
 * Exactly it would not pay: a significand of 24 bits is three of bf16, and three instructions take
 * 1.5 times as long as the two multiply-adds that they stand for.
 */
#include "codegen/attention/attention_tile.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"
#include "codegen/matmul/backend.h"

/* In matmul/backends.def for cached rows. It has no matrix kernels: attention multiplies. */
const hcg_backend hcg_row_pairs = {.name = "row_pairs"};

enum { PAIR_COLUMNS = 2 * HIR_PANEL };

bool hcg_rows_in_pairs(const hcg_emit *e, const hcg_attention *a) {
    const hcg_choice *c =
        hcg_choose(e->level, e->p->options.exact, a->k.dtype, HIR_LAYOUT_ROWS, HCG_FOR_DECODE);
    return a->one_row && hcg_pairs_fit(a->k.width, a->m) && c && c->backend == &hcg_row_pairs;
}

/* ---- rounding -------------------------------------------------------------------------------- */
/* to[0 .. n) = from[0 .. n) as bf16; both may be touched up to whole vectors. */
static void round_row(hcg_emit *e, LLVMValueRef from, LLVMValueRef to, LLVMValueRef n) {
    LLVMValueRef lanes = hcg_i64(e, e->level->lanes);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), n, lanes, "round", 0, NULL);
    LLVMValueRef v = hcg_load(e, HIR_F32, hcg_at(e, e->f32, from, l.index), NULL);
    v = hcg_intrinsic(e, "llvm.x86.avx512bf16.cvtneps2bf16.512", NULL, 0, &v, 1);
    LLVMSetAlignment(LLVMBuildStore(e->b, v, hcg_at(e, e->i16, to, l.index)), 2);
    hcg_loop_end(e, &l, NULL);
}

static int64_t whole_vectors(int64_t n) {
    return (n + HIR_PANEL - 1) / HIR_PANEL * HIR_PANEL;
}

void hcg_pairs_begin(hcg_emit *e, hcg_key_tile *t) {
    const hcg_attention *a = t->a;
    t->q_pairs = hcg_scratch(e, (uint64_t)(a->per_group * a->n + HIR_PANEL) * 2);
    t->p_pairs = hcg_scratch(e, (uint64_t)(a->per_group * HCG_LD_SCORES) * 2);
    t->q_row = hcg_scratch(e, (uint64_t)whole_vectors(a->n) * 4);
}

/* Rows of q end where no vector does: the last one of a row is read from a copy. */
void hcg_pairs_take_queries(hcg_emit *e, const hcg_key_tile *t) {
    const int64_t n = t->a->n;
    hcg_loop h = hcg_each_head(e, t);
    LLVMValueRef at = hcg_mul_const(e, h.index, n);
    hcg_scale_row(e, hcg_at(e, e->f32, t->q, at), t->q_row, n, hcg_splat(e, 1));
    round_row(e, t->q_row, hcg_at(e, e->i16, t->q_pairs, at), hcg_i64(e, n));
    hcg_loop_end(e, &h, NULL);
}

/* Behind the last key of a row are zeros, which a pair with it needs. */
void hcg_pairs_take_weights(hcg_emit *e, const hcg_key_tile *t) {
    hcg_loop h = hcg_each_head(e, t);
    LLVMValueRef at = hcg_mul_const(e, h.index, HCG_LD_SCORES);
    round_row(e, hcg_at(e, e->f32, t->scores, at), hcg_at(e, e->i16, t->p_pairs, at), t->count);
    hcg_loop_end(e, &h, NULL);
}

/* ---- products -------------------------------------------------------------------------------- */
static LLVMValueRef add_pairs(hcg_emit *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef sum) {
    LLVMTypeRef pairs = LLVMVectorType(LLVMBFloatTypeInContext(e->cx), 2 * e->level->lanes);
    LLVMValueRef args[] = {sum, LLVMBuildBitCast(e->b, a, pairs, ""),
                           LLVMBuildBitCast(e->b, b, pairs, "")};
    return hcg_intrinsic(e, "llvm.x86.avx512bf16.dpbf16ps.512", NULL, 0, args, 3);
}

/* A vector of pairs, `valid` elements of it, as one of words. */
static LLVMValueRef load_pairs(hcg_emit *e, LLVMValueRef p, int64_t valid) {
    LLVMValueRef words = valid < PAIR_COLUMNS ? hcg_i64(e, valid / 2) : NULL;
    return hcg_load(e, HIR_F32, p, words);
}

void hcg_pair_scores(hcg_emit *e, const hcg_key_tile *t, LLVMValueRef q, LLVMValueRef row,
                     unsigned heads, unsigned keys, int64_t valid, LLVMValueRef *acc) {
    LLVMValueRef x[HCG_MOST_HEADS];
    for (unsigned h = 0; h < heads; h++)
        x[h] = load_pairs(e, hcg_at(e, e->i16, q, hcg_i64(e, h * t->a->n)), valid);
    for (unsigned i = 0; i < keys; i++) {
        LLVMValueRef place = hcg_at(e, e->i16, row, hcg_i64(e, i * t->a->k.width));
        LLVMValueRef key = load_pairs(e, place, valid);
        for (unsigned h = 0; h < heads; h++)
            acc[h * keys + i] = add_pairs(e, x[h], key, acc[h * keys + i]);
    }
}

/* Pairs (a[i], b[i]) of 32 columns: of each eight the first four, and the others. */
static LLVMValueRef interleave(hcg_emit *e, LLVMValueRef a, LLVMValueRef b, unsigned half) {
    LLVMTypeRef elements = LLVMVectorType(e->i16, PAIR_COLUMNS);
    LLVMValueRef lane[PAIR_COLUMNS];
    for (unsigned i = 0; i < PAIR_COLUMNS; i++) {
        const unsigned column = i / 8 * 8 + half * 4 + i % 8 / 2;
        lane[i] = LLVMConstInt(e->i32, column + i % 2 * PAIR_COLUMNS, false);
    }
    return LLVMBuildShuffleVector(e->b, LLVMBuildBitCast(e->b, a, elements, ""),
                                  LLVMBuildBitCast(e->b, b, elements, ""),
                                  LLVMConstVector(lane, PAIR_COLUMNS), "");
}

void hcg_pair_values(hcg_emit *e, LLVMValueRef weights, LLVMValueRef row, LLVMValueRef second,
                     unsigned heads, unsigned vectors, LLVMValueRef *acc) {
    LLVMValueRef p[HCG_MOST_HEADS];
    for (unsigned h = 0; h < heads; h++) {
        LLVMValueRef at = hcg_at(e, e->i16, weights, hcg_i64(e, h * HCG_LD_SCORES));
        LLVMValueRef both = LLVMBuildLoad2(e->b, e->f32, at, "");
        LLVMSetAlignment(both, 2);
        p[h] = hcg_splat_value(e, both);
    }
    for (unsigned i = 0; i < vectors; i += 2) {
        LLVMValueRef at = hcg_i64(e, i / 2 * PAIR_COLUMNS), zero = LLVMConstNull(e->vec);
        LLVMValueRef a = load_pairs(e, hcg_at(e, e->i16, row, at), PAIR_COLUMNS);
        LLVMValueRef b = second ? load_pairs(e, hcg_at(e, e->i16, second, at), PAIR_COLUMNS) : zero;
        for (unsigned half = 0; half < 2; half++) {
            LLVMValueRef pair = interleave(e, a, b, half);
            for (unsigned h = 0; h < heads; h++) {
                LLVMValueRef *sum = &acc[h * vectors + i + half];
                *sum = add_pairs(e, p[h], pair, *sum);
            }
        }
    }
}

/* Columns as they were: two vectors of sums that hold them by fours become two in order. */
void hcg_pair_columns(hcg_emit *e, LLVMValueRef *acc) {
    LLVMValueRef sums[2];
    for (unsigned v = 0; v < 2; v++) {
        LLVMValueRef lane[HIR_PANEL];
        for (unsigned i = 0; i < HIR_PANEL; i++) {
            const unsigned column = v * HIR_PANEL + i, of_half = column / 8 * 4 + column % 4;
            lane[i] = LLVMConstInt(e->i32, of_half + column / 4 % 2 * HIR_PANEL, false);
        }
        sums[v] =
            LLVMBuildShuffleVector(e->b, acc[0], acc[1], LLVMConstVector(lane, HIR_PANEL), "");
    }
    acc[0] = sums[0], acc[1] = sums[1];
}
