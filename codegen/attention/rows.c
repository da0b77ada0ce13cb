/* Ways to read cached rows, in attention of one token, other than one after the other as f32: in
 * pairs, as words of two elements, and rows of a list, which lie anywhere. */
#include <string.h>

#include "codegen/attention/attention_tile.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"
#include "codegen/emit/stream.h"
#include "codegen/matmul/backend.h"
#include "support/known.h"

/* ---- in pairs -------------------------------------------------------------------------------- */
/* Cached rows of bf16 are multiplied with queries and weights in pairs (vdpbf16ps), two products
 * to an instruction, in attention of one token whose values are columns of the rows of keys
 * (decode.c). Queries and softmax weights are rounded to bf16 for it, to nearest even; sums are
 * f32.
 *
 *     scores   two neighbours of a row are multiplied with two of a query
 *     values   the rows of two keys are interleaved in registers, and multiplied with both weights
 *
 * A rounded query changes a score by 2^-8 |scale| sum |q_i c_i| at most, rounded weights a result
 * by 2^-8 of the largest value (sums of weights are those of the numbers before rounding).
 *
 * Without rounding this would not pay: a significand of 24 bits is three of bf16, and three
 * instructions take 1.5 times as long as the two multiply-adds that they stand for.
 */

/* The back end that matmul/backends.def names for cached rows. It has no matrix kernels: attention
 * multiplies. */
const hcg_backend hcg_row_pairs = {.name = "row_pairs"};

enum { PAIR_COLUMNS = 2 * HIR_PANEL, MOST_SUMS = 12 /* that zeros go with */ };

bool hcg_rows_in_pairs(const hcg_emit *e, const hcg_attention *a) {
    const hcg_backend_row *c = hcg_choose_backend(e->level, e->p->options.exact, a->k.dtype,
                                                  HIR_LAYOUT_ROWS, HCG_FOR_DECODE);
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

/* A row of q may end inside a vector: the last vector of a row is read from a copy. */
void hcg_pairs_take_queries(hcg_emit *e, const hcg_key_tile *t) {
    const int64_t n = t->a->n;
    hcg_loop h = hcg_each_head(e, t);
    LLVMValueRef at = hcg_mul_const(e, h.index, n);
    hcg_scale_row(e, hcg_at(e, e->f32, t->q, at), t->q_row, n, hcg_splat(e, 1));
    round_row(e, t->q_row, hcg_at(e, e->i16, t->q_pairs, at), hcg_i64(e, n));
    hcg_loop_end(e, &h, NULL);
}

/* Writes zeros after the last key of a row, which the last pair needs. */
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

/* A vector of pairs, of which `valid` elements exist, as a vector of words. */
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

/* Pairs (a[i], b[i]) of 32 columns: the first four of each eight columns in one vector, the others
 * in the second. */
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

/* Brings columns into order again: two vectors of sums that hold them by fours become two in
 * order. */
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

/* ---- as words -------------------------------------------------------------------------------- */
/* Cached rows of bf16 are read as words of two elements, in attention of one token whose values
 * are columns of the rows of keys (decode.c): one load and two instructions (a shift for the even
 * elements, a mask for the odd ones) make two vectors of f32. Widened one by one, two vectors take
 * two loads and four instructions, all of them on the ports for shuffles, one of which is also one
 * of the two for multiply-adds. The same numbers are multiplied; a score's terms are added in
 * another order.
 *
 * The price is an order: of each two vectors of elements first come the even ones, then the odd
 * ones. Queries are brought into it once a call, sums of values stay in it until a head is
 * finished.
 *
 * With vectors of 8 lanes and 16 registers there is none for the mask. Elements are interleaved
 * with zeros instead, in one instruction that reads memory and does not run on the ports for
 * multiply-adds: first those in the lower half of each eight elements, then the others.
 */

/* Whether words are interleaved with zeros. */
static bool are_interleaved(const hcg_emit *e) {
    return e->level->lanes == HIR_PANEL / 2;
}

static int64_t block_of(const hcg_emit *e) {
    return 2 * (int64_t)e->level->lanes;
}

/* True where there are registers for two words besides the sums, the queries and the mask, and
 * where words are interleaved with zeros. */
bool hcg_words_fit(const hcg_emit *e, const hcg_attention *a) {
    const hcg_level *l = e->level;
    const bool masked = l->lanes == HIR_PANEL && l->registers >= 32;
    return a->one_row && a->k.dtype == HIR_BF16 && (masked || are_interleaved(e)) &&
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

static int64_t even_then_odd(int64_t lanes, int64_t i) {
    return i % lanes * 2 + i / lanes;
}

static int64_t interleaved(int64_t lanes, int64_t i) {
    return i % 2 * lanes + i / 2;
}

/* The first four of each eight elements, then the others; twice, it is the order of before. */
static int64_t by_fours(int64_t lanes, int64_t i) {
    return i % lanes / 4 * 8 + i / lanes * 4 + i % 4;
}

void hcg_words_begin(hcg_emit *e, hcg_key_tile *t) {
    t->words = true;
    t->q_words = hcg_scratch(e, (uint64_t)(t->a->per_group * t->a->n) * 4);
}

void hcg_words_take_queries(hcg_emit *e, hcg_key_tile *t) {
    reorder(e, t->q, t->q_words, t->a->per_group * t->a->n,
            are_interleaved(e) ? by_fours : even_then_odd);
    t->q = t->q_words;
}

/* The sums of a step, what it multiplies and the zeros are as many vectors as there are registers.
 * LLVM would keep the zeros throughout a loop, and begin a step before the one before has ended: it
 * would spill sums. So zeros and sums pass through what LLVM cannot look into, which is no
 * instruction. */
LLVMValueRef hcg_words_zeros(hcg_emit *e, LLVMValueRef *sums, unsigned n) {
    if (!are_interleaved(e)) return NULL;
    LLVMValueRef values[1 + MOST_SUMS];
    hd_known(n <= MOST_SUMS);
    values[0] = LLVMConstNull(LLVMVectorType(e->i16, 2 * e->level->lanes));
    memcpy(values + 1, sums, n * sizeof *sums);
    hcg_keep_together(e, values, 1 + n);
    memcpy(sums, values + 1, n * sizeof *sums);
    return values[0];
}

static LLVMValueRef load_with_zeros(hcg_emit *e, LLVMValueRef place, unsigned half,
                                    LLVMValueRef zeros) {
    const unsigned n = 2 * e->level->lanes;
    LLVMValueRef lane[2 * HIR_PANEL], x = LLVMBuildLoad2(e->b, LLVMTypeOf(zeros), place, "");
    LLVMSetAlignment(x, 2);
    for (unsigned i = 0; i < n; i++) {
        const unsigned element = i / 8 * 8 + half * 4 + i % 8 / 2;
        lane[i] = LLVMConstInt(e->i32, i % 2 ? n + element : element, false);
    }
    x = LLVMBuildShuffleVector(e->b, zeros, x, LLVMConstVector(lane, n), "");
    return LLVMBuildBitCast(e->b, x, e->vec, "");
}

LLVMValueRef hcg_load_words(hcg_emit *e, LLVMValueRef place, unsigned half, LLVMValueRef zeros) {
    if (zeros) return load_with_zeros(e, place, half, zeros);
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
    reorder(e, out, out, a->m, are_interleaved(e) ? by_fours : interleaved);
}

/* ---- of a list ------------------------------------------------------------------------------- */
/* Rows of a list, which lie anywhere in a cache, for attention of one token: each is read where it
 * lies, by its address, and is prefetched one tile before.
 *
 * No prefetcher of a CPU knows where the next row of a list is, and an L1 has places for few
 * misses. The list says it: while a tile is computed, each step of its scores and values
 * prefetches its share of the rows of the next tile into the L2, so that memory is as busy as
 * arithmetic lets it be. Of a row that is key and value, scores prefetch the first half and values
 * the second.
 */

static int64_t lines_of(const hcg_emit *e, const hcg_cache *c) {
    const int64_t bytes = c->width * (int64_t)hir_dtype_bytes(c->dtype);
    return (bytes + e->level->machine.line - 1) / e->level->machine.line;
}

static bool are_same(const hcg_key_tile *t) {
    return t->ahead.keys == t->ahead.values;
}

LLVMValueRef hcg_gathered_row(hcg_emit *e, LLVMValueRef places, LLVMValueRef row) {
    LLVMValueRef place = LLVMBuildLoad2(e->b, e->ptr, hcg_at(e, e->ptr, places, row), "place");
    LLVMSetAlignment(place, 8);
    return place;
}

static void ask_for(hcg_emit *e, LLVMValueRef places, LLVMValueRef row, LLVMValueRef line) {
    LLVMValueRef at = hcg_mul_const(e, line, e->level->machine.line);
    hcg_prefetch_l2(e, hcg_at(e, e->i8, hcg_gathered_row(e, places, row), at), 0);
}

/* Steps beyond the number of lines repeat the last one. */
void hcg_prefetch_key_rows(hcg_emit *e, const hcg_key_tile *t, bool values, LLVMValueRef first,
                           int64_t rows, LLVMValueRef number, int64_t steps) {
    const int64_t all = lines_of(e, values ? &t->a->v : &t->a->k), half = all / 2;
    const int64_t from = are_same(t) && values ? half : 0, to = are_same(t) && !values ? half : all;
    const int64_t lines = to - from, total = lines * rows;
    if (total == 0 || steps == 0) return;
    const int64_t each = (total + steps - 1) / steps;
    LLVMValueRef places = values ? t->ahead.values : t->ahead.keys;
    for (int64_t i = 0; i < each; i++) {
        LLVMValueRef n = hcg_add(e, hcg_mul_const(e, number, each), hcg_i64(e, i));
        n = hcg_smaller(e, n, hcg_i64(e, total - 1));
        LLVMValueRef row = LLVMBuildUDiv(e->b, n, hcg_i64(e, lines), "");
        LLVMValueRef line = hcg_sub(e, n, hcg_mul_const(e, row, lines));
        ask_for(e, places, hcg_add(e, first, row), hcg_add(e, line, hcg_i64(e, from)));
    }
}

static void ask_for_rows(hcg_emit *e, LLVMValueRef places, int64_t lines, LLVMValueRef n) {
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    hcg_loop r = hcg_loop_begin(e, zero, n, one, "ask_row", 0, NULL);
    hcg_loop l = hcg_loop_begin(e, zero, hcg_i64(e, lines), one, "prefetch", 0, NULL);
    ask_for(e, places, r.index, l.index);
    hcg_loop_end(e, &l, NULL);
    hcg_loop_end(e, &r, NULL);
}

void hcg_ask_all(hcg_emit *e, const hcg_key_tile *t, LLVMValueRef n) {
    ask_for_rows(e, t->ahead.keys, lines_of(e, &t->a->k), n);
    if (!are_same(t)) ask_for_rows(e, t->ahead.values, lines_of(e, &t->a->v), n);
}
