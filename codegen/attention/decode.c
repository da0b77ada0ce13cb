/* Attention of one token (T = 1) and of small batches (T <= HRT_SMALL_BATCH): keys and values are
 * read once, at the rate of memory, and are used as they lie.
 *
 * Work is cut into ranges of HRT_KEYS keys of a key/value head, for all query heads that share it.
 * In a small batch these are the heads of all tokens, copied together into scratch: head j belongs
 * to token j / (H/G), and softmax gives the keys after its token, or before its window, no weight.
 * Ranges begin at multiples of HRT_KEYS; the first range that some token's window reaches may be
 * cut short. A range is computed tile by tile: the scores of the tile's keys, the softmax step, the
 * values. A head's keys are one stream of memory and its values another; each read prefetches what
 * comes later in the same stream. With one token, each step of scores also prefetches its share of
 * the tile's values, and each step of values its share of the next keys, both into the L2:
 * otherwise, in several passes over a tile for several heads, memory would be idle in all but the
 * first.
 *
 * Scores: a block of keys is multiplied with a few query heads, one accumulator per pair of head
 * and key; then a tree of shuffles and adds leaves each pair's sum in a lane of its own.
 *
 * Where values are columns of the rows of keys, and there are many heads, arithmetic is the limit:
 * rows are read from memory once and then from the L2 for eight heads at a time, while each step
 * of scores and values prefetches its share of the tile that follows, a line of each of whose pages
 * was prefetched before. Rows of bf16 may be read as words of two elements (rows.c).
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "codegen/attention/attention_tile.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/stream.h"
#include "codegen/target/prefetch_distance.h"
#include "support/known.h"

enum {
    TILE = HCG_TILE_KEYS,
    CHUNK = 32, /* floats of a key per iteration of the dot product */
    MOST_LANES = 64,
    LEAST_ROWS = 32,  /* of a tile */
    ENOUGH_ROWS = 64, /* hcg_rows_of_tile */
};

static int64_t divide_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static int64_t line_of(const hcg_emit *e) {
    return e->level->machine.line;
}

/* To be called before element `at` of a row is read: prefetches a line further on. */
static void prefetch_after(hcg_emit *e, const hcg_cache *c, LLVMValueRef place, int64_t at) {
    const int64_t line = line_of(e) / (int64_t)hir_dtype_bytes(c->dtype);
    const int64_t ahead = hcg_prefetch_distance(&e->level->machine, HCG_PREFETCH_CACHED);
    hd_known(line > 0);
    if (at % line == 0) hcg_prefetch(e, place, ahead);
}

/* Calls f(first head, how many) for all heads, `most` (a power of two) at once, fewer at the
 * end. */
typedef void each_heads(hcg_emit *e, const hcg_key_tile *t, LLVMValueRef head, unsigned heads,
                        void *with);
static void by_any_heads(hcg_emit *e, const hcg_key_tile *t, unsigned most, each_heads *f,
                         void *with) {
    LLVMValueRef whole = LLVMBuildAnd(e->b, t->heads, hcg_i64(e, -(int64_t)most), "");
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), whole, hcg_i64(e, most), "heads", 0, NULL);
    f(e, t, l.index, most, with);
    hcg_loop_end(e, &l, NULL);
    hcg_loop rest = hcg_loop_begin(e, whole, t->heads, hcg_i64(e, 1), "head", 0, NULL);
    f(e, t, rest.index, 1, with);
    hcg_loop_end(e, &rest, NULL);
}

static void by_heads(hcg_emit *e, const hcg_key_tile *t, unsigned most, each_heads *f, void *with) {
    if (t->small_batch) {
        by_any_heads(e, t, most, f, with);
        return;
    }
    int64_t whole = t->a->per_group / most * most, rest = t->a->per_group - whole;
    if (whole) {
        hcg_loop l =
            hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, whole), hcg_i64(e, most), "heads", 0, NULL);
        f(e, t, l.index, most, with);
        hcg_loop_end(e, &l, NULL);
    }
    if (rest) f(e, t, hcg_i64(e, whole), (unsigned)rest, with);
}

/* ---- scores ---------------------------------------------------------------------------------- */
/* [a0+a1, a2+a3, .. b0+b1, b2+b3, ..] */
static LLVMValueRef add_pairs(hcg_emit *e, LLVMValueRef a, LLVMValueRef b) {
    LLVMValueRef even[MOST_LANES], odd[MOST_LANES];
    unsigned lanes = e->level->lanes;
    for (unsigned i = 0; i < lanes; i++) {
        even[i] = LLVMConstInt(e->i32, 2 * i, false);
        odd[i] = LLVMConstInt(e->i32, 2 * i + 1, false);
    }
    LLVMValueRef x = LLVMBuildShuffleVector(e->b, a, b, LLVMConstVector(even, lanes), "");
    LLVMValueRef y = LLVMBuildShuffleVector(e->b, a, b, LLVMConstVector(odd, lanes), "");
    return hcg_fadd(e, x, y);
}

/* Lanes whose number lacks the bit `apart` come from a, the others from b, each plus the lane
 * whose number differs in that bit alone. Half of the instructions are blends, which need no
 * shuffle port; and where vectors consist of two halves, data crosses from one to the other in the
 * last step only, while each call of add_pairs makes it cross.
 */
static LLVMValueRef add_across(hcg_emit *e, LLVMValueRef a, LLVMValueRef b, unsigned apart) {
    LLVMValueRef own[MOST_LANES], other[MOST_LANES], swap[MOST_LANES];
    const unsigned lanes = e->level->lanes;
    for (unsigned i = 0; i < lanes; i++) {
        const bool of_b = i & apart;
        own[i] = LLVMConstInt(e->i32, of_b ? lanes + i : i, false);
        other[i] = LLVMConstInt(e->i32, of_b ? i : lanes + i, false);
        swap[i] = LLVMConstInt(e->i32, i ^ apart, false);
    }
    LLVMValueRef x = LLVMBuildShuffleVector(e->b, a, b, LLVMConstVector(own, lanes), "");
    LLVMValueRef y = LLVMBuildShuffleVector(e->b, a, b, LLVMConstVector(other, lanes), "");
    y = LLVMBuildShuffleVector(e->b, y, LLVMGetPoison(e->vec), LLVMConstVector(swap, lanes), "");
    return hcg_fadd(e, x, y);
}

/* add_across and add_pairs add the same numbers in the same order. */
LLVMValueRef hcg_sum_each(hcg_emit *e, LLVMValueRef *v, unsigned n) {
    const unsigned lanes = e->level->lanes;
    hd_known(n > 0);
    for (unsigned i = n; i < lanes; i++)
        v[i] = LLVMConstNull(e->vec);
    for (unsigned apart = 1; apart < lanes; apart *= 2)
        for (unsigned i = 0, pair = lanes / apart / 2; i < pair; i++)
            v[i] = lanes >= 8 ? add_across(e, v[2 * i], v[2 * i + 1], apart)
                              : add_pairs(e, v[2 * i], v[2 * i + 1]);
    return v[0];
}

static LLVMValueRef some_lanes(hcg_emit *e, LLVMValueRef v, unsigned from, unsigned n) {
    LLVMValueRef mask[MOST_LANES];
    for (unsigned i = 0; i < n; i++)
        mask[i] = LLVMConstInt(e->i32, from + i, false);
    return LLVMBuildShuffleVector(e->b, v, LLVMGetPoison(e->vec), LLVMConstVector(mask, n), "");
}

typedef struct block {  /* of keys in a row */
    LLVMValueRef first; /* number in the tile */
    unsigned keys;
} block;

/* Sums in registers for rows that are read from the L2 if there are 16 registers: the others hold
 * three keys and a vector of one query at a time. Fewer sums would not hide the latency of
 * multiply-adds. */
enum {
    FEW_SUMS = 12,
    MOST_OF_ONE = 8,
    FEW_KEYS = 3, /* of an iteration of values: one computation of addresses serves all */
};

static bool has_few_sums(const hcg_emit *e, const hcg_key_tile *t) {
    return e->level->lanes == HIR_PANEL / 2 && e->level->registers < 32 && t->a->one_row;
}

static unsigned few_sums_of(unsigned heads) {
    return FEW_SUMS / heads < MOST_OF_ONE ? FEW_SUMS / heads : MOST_OF_ONE;
}

static unsigned at_most_group(const hcg_key_tile *t, unsigned most, unsigned least) {
    while (most > least && most > t->a->per_group)
        most /= 2;
    return most;
}

/* Query heads and vectors of columns whose sums of values are kept in registers. Values that come
 * from memory are read in pieces of rows that are as long as possible; values that scores have
 * prefetched are read for more heads at once, and values that scores have read, for as many heads
 * as possible. */
static unsigned value_heads(const hcg_emit *e, const hcg_key_tile *t) {
    if (has_few_sums(e, t)) return at_most_group(t, 4, 1);
    if (e->level->lanes < 16) return 2;
    if (t->small_batch) return 4;
    return at_most_group(t, t->a->one_row ? HCG_MOST_HEADS : t->next ? 4 : 2, 2);
}

static unsigned value_vectors(const hcg_emit *e, const hcg_key_tile *t) {
    const unsigned heads = value_heads(e, t);
    if (!has_few_sums(e, t)) return (e->level->lanes >= 16 ? 16 : 8) / heads;
    return few_sums_of(heads);
}

/* Are the even and the odd vectors of rows in words multiplied in passes of their own? Then an odd
 * number of vectors takes whole blocks of words. */
static bool has_halves(const hcg_emit *e, const hcg_key_tile *t) {
    return t->words && has_few_sums(e, t);
}

/* Columns that the passes over a block of columns take: one pass, or one for each half. */
static int64_t value_block(const hcg_emit *e, const hcg_key_tile *t) {
    return (int64_t)e->level->lanes * value_vectors(e, t) * (has_halves(e, t) ? 2 : 1);
}

/* Query heads and keys of a block: as many pairs of them as a vector has lanes, or as registers
 * hold. */
static unsigned score_heads(const hcg_emit *e, const hcg_key_tile *t) {
    if (has_few_sums(e, t)) return at_most_group(t, 4, 1);
    unsigned most = e->level->lanes < 16 ? 2 : t->a->one_row ? HCG_MOST_HEADS : 4;
    return t->small_batch ? most : at_most_group(t, most, 1);
}

static unsigned score_keys_of(const hcg_emit *e, const hcg_key_tile *t) {
    const unsigned heads = score_heads(e, t);
    if (!has_few_sums(e, t)) return e->level->lanes / heads;
    return few_sums_of(heads);
}

/* The values of a tile are multiplied in passes: each pass takes some columns and some heads, and
 * all rows. */
static int64_t value_passes(const hcg_emit *e, const hcg_key_tile *t) {
    const int64_t blocks = divide_up(t->a->m, value_block(e, t)) * (has_halves(e, t) ? 2 : 1);
    return blocks * divide_up(t->a->per_group, value_heads(e, t));
}

/* Where the rows of a tile are keys and values: how many bytes of the next tile each step
 * prefetches. A step is CHUNK entries of a block of keys, or one key times a block of columns. */
typedef struct shares {
    int64_t score_blocks, score_steps, score_bytes; /* blocks of all heads; steps of a block */
    int64_t value_steps, value_bytes;               /* steps of a block of columns for some heads */
} shares;

/* Keys of a step of values. */
static int64_t keys_at_once(const hcg_key_tile *t) {
    return t->q_pairs ? 2 : 1;
}

static int64_t tile_bytes(const hcg_key_tile *t) {
    return t->most * t->a->k.width * (int64_t)hir_dtype_bytes(t->a->k.dtype);
}

static shares shares_of(const hcg_emit *e, const hcg_key_tile *t) {
    const hcg_attention *a = t->a;
    const int64_t heads = score_heads(e, t), keys = score_keys_of(e, t);
    const int64_t bytes = tile_bytes(t);
    shares s = {.score_blocks = divide_up(t->most, keys), .score_steps = a->n / CHUNK};
    const int64_t scores = divide_up(a->per_group, heads) * s.score_blocks * s.score_steps;
    s.value_steps = t->most / keys_at_once(t);
    const int64_t values = value_passes(e, t) * s.value_steps;
    if (values) s.value_bytes = divide_up(bytes / 2, values); /* select.c has no values */
    if (s.value_bytes > line_of(e)) s.value_bytes = line_of(e);
    if (scores) s.score_bytes = divide_up(bytes - s.value_bytes * values, scores);
    return s;
}

/* The address `offset` bytes into the rows after the tile. */
static LLVMValueRef next_rows(hcg_emit *e, const hcg_key_tile *t, LLVMValueRef offset) {
    return hcg_at(e, e->i8, hcg_at_byte(e, t->keys, tile_bytes(t)), offset);
}

/* Prefetches the shares, of so many bytes each, of `steps` steps from `step` on. */
static void prefetch_share(hcg_emit *e, LLVMValueRef from, LLVMValueRef step, int64_t bytes,
                           int64_t steps) {
    LLVMValueRef at = hcg_at(e, e->i8, from, hcg_mul_const(e, step, bytes));
    for (int64_t i = 0; i < bytes * steps; i += line_of(e))
        hcg_prefetch_l2(e, at, i);
}

/* Where prefetching begins for the steps of a block of keys with the heads from `head` on. */
static LLVMValueRef score_share(hcg_emit *e, const hcg_key_tile *t, const block *b,
                                LLVMValueRef head) {
    const shares s = shares_of(e, t);
    const unsigned heads = score_heads(e, t), keys = score_keys_of(e, t);
    LLVMValueRef pass = LLVMBuildUDiv(e->b, head, hcg_i64(e, heads), "");
    LLVMValueRef number = LLVMBuildUDiv(e->b, b->first, hcg_i64(e, keys), "");
    number = hcg_add(e, hcg_mul_const(e, pass, s.score_blocks), number);
    return next_rows(e, t, hcg_mul_const(e, number, s.score_steps * s.score_bytes));
}

/* All `steps` together prefetch the rows of a tile in c, which are `bytes` bytes from `from` on.
 * Prefetches the lines of step `number`; lines beyond the last one are replaced by it. */
static void prefetch_step(hcg_emit *e, const hcg_key_tile *t, const hcg_cache *c, LLVMValueRef from,
                          LLVMValueRef bytes, LLVMValueRef number, int64_t steps) {
    const int64_t whole = t->most * c->width * (int64_t)hir_dtype_bytes(c->dtype);
    const int64_t each = divide_up(whole, steps);
    LLVMValueRef last = hcg_sub(e, bytes, hcg_i64(e, line_of(e))),
                 at = hcg_mul_const(e, number, each);
    for (int64_t i = 0; i < each; i += line_of(e)) {
        LLVMValueRef line = hcg_smaller(e, hcg_add(e, at, hcg_i64(e, i)), last);
        hcg_prefetch_l2(e, hcg_at(e, e->i8, from, line), 0);
    }
}

/* Prefetches a share of the tile's values in iteration `at` of the dot products of a block of keys
 * with the heads from `head` on. Blocks of keys come in order, so that a tile that is cut short
 * prefetches only as many rows as it has. */
static void prefetch_values(hcg_emit *e, const hcg_key_tile *t, const block *b, LLVMValueRef head,
                            LLVMValueRef at) {
    const hcg_cache *v = &t->a->v;
    const int64_t heads = score_heads(e, t), keys = score_keys_of(e, t);
    const int64_t passes = divide_up(t->a->per_group, heads), steps = t->a->n / CHUNK;
    LLVMValueRef pass = LLVMBuildUDiv(e->b, head, hcg_i64(e, heads), "");
    LLVMValueRef number = LLVMBuildUDiv(e->b, b->first, hcg_i64(e, keys), "");
    number = hcg_add(e, hcg_mul_const(e, number, passes), pass);
    number =
        hcg_add(e, hcg_mul_const(e, number, steps), LLVMBuildUDiv(e->b, at, hcg_i64(e, CHUNK), ""));
    LLVMValueRef bytes = hcg_mul_const(e, t->count, v->width * (int64_t)hir_dtype_bytes(v->dtype));
    prefetch_step(e, t, v, t->values, bytes, number, t->most / keys * passes * steps);
}

/* What a step of a dot product multiplies: `valid` elements from `at` on. */
typedef struct step {
    LLVMValueRef q, row;      /* the elements of the first head and of the first key, at `at` */
    const LLVMValueRef *rows; /* where each row begins; NULL: each row follows the one before */
    LLVMValueRef at;
    LLVMValueRef some;  /* NULL: as many as a vector has */
    int64_t offset;     /* at, less whole chunks */
    unsigned half;      /* where rows are words */
    LLVMValueRef zeros; /* where words are interleaved with them */
} step;

static LLVMValueRef load_query(hcg_emit *e, const hcg_key_tile *t, const step *s, unsigned h) {
    return hcg_load(e, HIR_F32, hcg_at(e, e->f32, s->q, hcg_i64(e, h * t->a->k.width)), s->some);
}

static LLVMValueRef load_key(hcg_emit *e, const hcg_key_tile *t, const step *s, unsigned i) {
    const hcg_cache *k = &t->a->k;
    LLVMTypeRef elem = hcg_element(e, k->dtype);
    LLVMValueRef place = s->rows ? hcg_at(e, elem, s->rows[i], s->at)
                                 : hcg_at(e, elem, s->row, hcg_i64(e, i * k->width));
    if (t->words) return hcg_load_words(e, place, s->half, s->zeros);
    LLVMValueRef key = hcg_load(e, k->dtype, place, s->some);
    if (!s->some && !t->a->one_row) prefetch_after(e, k, place, s->offset);
    return key;
}

/* acc[head * keys + key] += lane-wise products. Registers hold the queries and one key at a time;
 * where they hold few sums, the keys and one query if these are fewer. */
static void multiply_step(hcg_emit *e, const hcg_key_tile *t, const block *b, unsigned heads,
                          step *s, LLVMValueRef *acc) {
    const bool keys = has_few_sums(e, t) && b->keys < heads;
    LLVMValueRef held[MOST_LANES];
    if (t->words) s->zeros = hcg_words_zeros(e, acc, heads * b->keys);
    for (unsigned i = 0; i < (keys ? b->keys : heads); i++)
        held[i] = keys ? load_key(e, t, s, i) : load_query(e, t, s, i);
    for (unsigned j = 0; j < (keys ? heads : b->keys); j++) {
        LLVMValueRef x = keys ? load_query(e, t, s, j) : load_key(e, t, s, j);
        for (unsigned i = 0; i < (keys ? b->keys : heads); i++) {
            LLVMValueRef *sum = &acc[keys ? j * b->keys + i : i * b->keys + j];
            *sum = keys ? hcg_fma(e, x, held[i], *sum) : hcg_fma(e, held[i], x, *sum);
        }
    }
}

/* The same of a step at `at`; `offset`: at, less whole chunks. */
static void dot_step(hcg_emit *e, const hcg_key_tile *t, const block *b, LLVMValueRef q,
                     const LLVMValueRef *rows, unsigned heads, LLVMValueRef at, int64_t offset,
                     int64_t valid, LLVMValueRef *acc) {
    LLVMTypeRef elem = hcg_element(e, t->a->k.dtype);
    step s = {.offset = offset, .at = at, .rows = t->listed.keys ? rows : NULL};
    s.some = valid < (int64_t)e->level->lanes ? hcg_i64(e, valid) : NULL;
    s.row = hcg_at(e, elem, rows[0], at);
    if (t->q_pairs) {
        hcg_pair_scores(e, t, hcg_at(e, elem, q, at), s.row, heads, b->keys, valid, acc);
        return;
    }
    s.q = hcg_at(e, e->f32, q, at);
    multiply_step(e, t, b, heads, &s, acc);
    if (!t->words) return;
    s.q = hcg_at(e, e->f32, s.q, hcg_i64(e, e->level->lanes)), s.half = 1;
    multiply_step(e, t, b, heads, &s, acc);
}

/* The rows of the block: each of them, or only the first if the others follow it. */
static void find_rows(hcg_emit *e, const hcg_key_tile *t, const block *b, LLVMValueRef *rows) {
    const hcg_cache *k = &t->a->k;
    if (!t->listed.keys) {
        LLVMValueRef at = hcg_mul_const(e, b->first, k->width);
        rows[0] = hcg_at(e, hcg_element(e, k->dtype), t->keys, at);
        return;
    }
    hd_known(b->keys > 0);
    for (unsigned i = 0; i < b->keys; i++)
        rows[i] = hcg_gathered_row(e, t->listed.keys, hcg_add(e, b->first, hcg_i64(e, i)));
}

/* Prefetches a share of a list's next tile, in iteration `at` of a block's dot products with the
 * heads from `head` on.
 */
static void ask_with_scores(hcg_emit *e, const hcg_key_tile *t, const block *b, LLVMValueRef head,
                            LLVMValueRef at) {
    const int64_t heads = score_heads(e, t), steps = t->a->n / CHUNK;
    LLVMValueRef pass = LLVMBuildUDiv(e->b, head, hcg_i64(e, heads), "");
    LLVMValueRef number = LLVMBuildUDiv(e->b, at, hcg_i64(e, CHUNK), "");
    number = hcg_add(e, hcg_mul_const(e, pass, steps), number);
    hcg_prefetch_key_rows(e, t, false, b->first, b->keys, number,
                          divide_up(t->a->per_group, heads) * steps);
}

/* acc[head * keys + key] = lane-wise products, summed over n */
static void dot_products(hcg_emit *e, const hcg_key_tile *t, const block *b, LLVMValueRef head,
                         unsigned heads, LLVMValueRef *acc) {
    const int64_t n = t->a->n, whole = n / CHUNK * CHUNK;
    const int64_t step = (int64_t)e->level->lanes * (t->q_pairs || t->words ? 2 : 1);
    unsigned pairs = heads * b->keys;
    LLVMValueRef at = hcg_mul_const(e, head, n);
    LLVMValueRef q = t->q_pairs ? hcg_at(e, e->i16, t->q_pairs, at) : hcg_at(e, e->f32, t->q, at);
    LLVMValueRef rows[MOST_LANES];
    find_rows(e, t, b, rows);
    for (unsigned i = 0; i < pairs; i++)
        acc[i] = LLVMConstNull(e->vec);
    LLVMValueRef next[HCG_MOST_HEADS];
    const unsigned each = score_heads(e, t);
    const unsigned n_next = t->a->one_row && !t->listed.keys ? (heads + each - 1) / each : 0;
    const int64_t bytes = n_next ? shares_of(e, t).score_bytes : 0;
    for (unsigned i = 0; i < n_next; i++) /* a key that is left over is met by several passes */
        next[i] = score_share(e, t, b, hcg_add(e, head, hcg_i64(e, i * each)));
    hcg_loop l =
        hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, whole), hcg_i64(e, CHUNK), "dot", pairs, acc);
    for (unsigned i = 0; i < pairs; i++)
        acc[i] = l.carried[i];
    for (unsigned i = 0; i < n_next; i++)
        prefetch_share(e, next[i], LLVMBuildUDiv(e->b, l.index, hcg_i64(e, CHUNK), ""), bytes, 1);
    if (t->next) prefetch_values(e, t, b, head, l.index);
    if (t->ahead.keys) ask_with_scores(e, t, b, head, l.index);
    for (int64_t j = 0; j < CHUNK; j += step)
        dot_step(e, t, b, q, rows, heads, hcg_add(e, l.index, hcg_i64(e, j)), j, step, acc);
    hcg_loop_end(e, &l, acc);
    for (unsigned i = 0; i < pairs; i++)
        acc[i] = l.carried[i];
    for (int64_t j = whole; j < n; j += step)
        dot_step(e, t, b, q, rows, heads, hcg_i64(e, j), j, n - j < step ? n - j : step, acc);
}

/* Each tree adds up the sums of as many heads as fit a vector, with a power of two of lanes for
 * each head. A store may write lanes after a head's last key: there the head's next scores follow,
 * or the slack after its row of scores. */
static void score_some(hcg_emit *e, const hcg_key_tile *t, LLVMValueRef head, unsigned heads,
                       void *with) {
    const block *b = with;
    LLVMValueRef acc[MOST_LANES], tree[MOST_LANES], scale = hcg_splat(e, t->a->scale);
    unsigned each = 1;
    while (each < b->keys)
        each *= 2;
    dot_products(e, t, b, head, heads, acc);
    LLVMValueRef to = hcg_at(e, e->f32, t->scores, hcg_mul_const(e, head, HCG_LD_SCORES));
    to = hcg_at(e, e->f32, to, b->first);
    for (unsigned first = 0, n; first < heads; first += n) {
        n = e->level->lanes / each < heads - first ? e->level->lanes / each : heads - first;
        for (unsigned i = 0; i < n * each; i++)
            tree[i] = i % each < b->keys ? acc[(first + i / each) * b->keys + i % each]
                                         : LLVMConstNull(e->vec);
        LLVMValueRef sums = hcg_fmul(e, hcg_sum_each(e, tree, n * each), scale);
        sums = hcg_soft_cap(e, t->a, sums);
        for (unsigned h = 0; h < n; h++)
            hcg_store(e, hcg_at(e, e->f32, to, hcg_i64(e, (first + h) * HCG_LD_SCORES)),
                      some_lanes(e, sums, h * each, each), NULL);
    }
}

/* The scores of a block of keys for `heads` heads from `head` on, or for all heads where that is
 * NULL, as many at once as registers hold. */
static void score_block(hcg_emit *e, const hcg_key_tile *t, LLVMValueRef head, unsigned heads,
                        block b) {
    const unsigned most = b.keys == 1 && head ? HCG_MOST_HEADS : score_heads(e, t);
    if (!head) {
        by_heads(e, t, most, score_some, &b);
        return;
    }
    for (unsigned h = 0; h < heads; h += most)
        score_some(e, t, hcg_add(e, head, hcg_i64(e, h)), heads - h < most ? heads - h : most, &b);
}

/* The same with all keys of the tile. */
static void score_keys(hcg_emit *e, const hcg_key_tile *t, LLVMValueRef head, unsigned heads,
                       void *with) {
    (void)with;
    const unsigned keys = score_keys_of(e, t);
    LLVMValueRef to = hcg_add(e, t->count, hcg_i64(e, 1 - (int64_t)keys));
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), to, hcg_i64(e, keys), "keys", 0, NULL);
    score_block(e, t, head, heads, (block){l.index, keys});
    hcg_loop_end(e, &l, NULL);
    hcg_loop rest = hcg_loop_begin(e, l.index, t->count, hcg_i64(e, 1), "key", 0, NULL);
    score_block(e, t, head, heads, (block){rest.index, 1});
    hcg_loop_end(e, &rest, NULL);
}

/* A block of keys that comes from memory is multiplied with all heads before the next block. Where
 * the queries of all heads are more than the L1 holds, some heads go over all of the tile's rows
 * before the others do: so many that their queries stay in the L1, and that a row that has come
 * from the L2 for some of them is in the L1 for the others. */
void hcg_tile_scores(hcg_emit *e, const hcg_key_tile *t) {
    if (t->a->one_row)
        by_heads(e, t, at_most_group(t, HCG_MOST_HEADS, 1), score_keys, NULL);
    else
        score_keys(e, t, NULL, 0, NULL);
}

/* ---- values ---------------------------------------------------------------------------------- */
typedef struct columns { /* of the values: `n` vectors from `at` on, the last with `valid` lanes */
    LLVMValueRef at, valid;
    unsigned n;
    unsigned half; /* where has_halves: `n` blocks of two vectors, of which the pass takes one */
} columns;

/* The number of the pass's vector i among the vectors from c->at on. */
static unsigned vector_of(const hcg_emit *e, const hcg_key_tile *t, const columns *c, unsigned i) {
    return has_halves(e, t) ? 2 * i + c->half : i;
}

static LLVMValueRef output_place(hcg_emit *e, const hcg_key_tile *t, const columns *c,
                                 LLVMValueRef head, unsigned h, unsigned i) {
    int64_t ld = hcg_partial_floats(t->a->m);
    LLVMValueRef o = hcg_at(e, e->f32, t->partial, hcg_mul_const(e, head, ld));
    o = hcg_at(e, e->f32, o, c->at);
    const unsigned at = vector_of(e, t, c, i) * e->level->lanes;
    return hcg_at(e, e->f32, o, hcg_i64(e, h * ld + at));
}

/* The number of the pass of these columns and the heads from `head` on. */
static LLVMValueRef value_pass(hcg_emit *e, const hcg_key_tile *t, const columns *c,
                               LLVMValueRef head) {
    const int64_t heads = value_heads(e, t);
    LLVMValueRef number = LLVMBuildUDiv(e->b, c->at, hcg_i64(e, value_block(e, t)), "");
    if (has_halves(e, t)) number = hcg_add(e, hcg_mul_const(e, number, 2), hcg_i64(e, c->half));
    number = hcg_mul_const(e, number, divide_up(t->a->per_group, heads));
    return hcg_add(e, number, LLVMBuildUDiv(e->b, head, hcg_i64(e, heads), ""));
}

/* The same of a block of columns. */
static LLVMValueRef value_share(hcg_emit *e, const hcg_key_tile *t, const columns *c,
                                LLVMValueRef head) {
    const shares s = shares_of(e, t);
    const int64_t scores = s.score_blocks * s.score_steps * s.score_bytes *
                           divide_up(t->a->per_group, score_heads(e, t));
    LLVMValueRef number =
        hcg_mul_const(e, value_pass(e, t, c, head), s.value_steps * s.value_bytes);
    return next_rows(e, t, hcg_add(e, number, hcg_i64(e, scores)));
}

/* Prefetches a share of the keys that are read next, with row `row` of the values, for the heads
 * from `head` on.
 */
static void prefetch_keys(hcg_emit *e, const hcg_key_tile *t, const columns *c, LLVMValueRef head,
                          LLVMValueRef row) {
    LLVMValueRef number = hcg_mul_const(e, value_pass(e, t, c, head), t->most);
    prefetch_step(e, t, &t->a->k, t->next, t->next_bytes, hcg_add(e, number, row),
                  value_passes(e, t) * t->most);
}

/* Prefetches a share of a list's next tile, with row `row` of the values. */
static void ask_with_values(hcg_emit *e, const hcg_key_tile *t, const columns *c, LLVMValueRef head,
                            LLVMValueRef row) {
    hcg_prefetch_key_rows(e, t, true, row, 1, value_pass(e, t, c, head), value_passes(e, t));
}

/* The weight of a head, at `weights` of the first, in all lanes. */
static LLVMValueRef load_weight(hcg_emit *e, LLVMValueRef weights, LLVMValueRef key, unsigned h) {
    LLVMValueRef at = hcg_at(e, e->f32, weights, hcg_i64(e, h * HCG_LD_SCORES));
    return hcg_splat_value(e, hcg_load_scalar(e, HIR_F32, hcg_at(e, e->f32, at, key)));
}

static LLVMValueRef load_value(hcg_emit *e, const hcg_key_tile *t, const columns *c,
                               LLVMValueRef row, LLVMValueRef zeros, unsigned i) {
    const hcg_cache *v = &t->a->v;
    const unsigned number = vector_of(e, t, c, i), first = t->words ? number / 2 * 2 : number;
    LLVMValueRef at = hcg_i64(e, first * e->level->lanes);
    LLVMValueRef place = hcg_at(e, hcg_element(e, v->dtype), row, at);
    if (t->words) return hcg_load_words(e, place, number % 2, zeros);
    LLVMValueRef x = hcg_load(e, v->dtype, place, i + 1 == c->n ? c->valid : NULL);
    if (!t->a->one_row) prefetch_after(e, v, place, i * e->level->lanes);
    return x;
}

/* acc[head * n + vector] += weights of a key times its row; registers are used as above. */
static void multiply_value(hcg_emit *e, const hcg_key_tile *t, const columns *c, unsigned heads,
                           LLVMValueRef row, LLVMValueRef weights, LLVMValueRef key,
                           LLVMValueRef *acc) {
    const bool values = has_few_sums(e, t) && c->n < heads;
    LLVMValueRef held[MOST_LANES], zeros = NULL;
    if (t->words) zeros = hcg_words_zeros(e, acc, heads * c->n);
    for (unsigned i = 0; i < (values ? c->n : heads); i++)
        held[i] = values ? load_value(e, t, c, row, zeros, i) : load_weight(e, weights, key, i);
    for (unsigned j = 0; j < (values ? heads : c->n); j++) {
        LLVMValueRef x =
            values ? load_weight(e, weights, key, j) : load_value(e, t, c, row, zeros, j);
        for (unsigned i = 0; i < (values ? c->n : heads); i++) {
            LLVMValueRef *sum = &acc[values ? j * c->n + i : i * c->n + j];
            *sum = values ? hcg_fma(e, x, held[i], *sum) : hcg_fma(e, held[i], x, *sum);
        }
    }
}

/* Adds the values of `each` keys an iteration, from key `from` on, while so many are left; gives
 * the first key that is left. */
static LLVMValueRef add_some_values(hcg_emit *e, const hcg_key_tile *t, const columns *c,
                                    LLVMValueRef head, unsigned heads, LLVMValueRef from,
                                    unsigned each, LLVMValueRef *acc) {
    const hcg_cache *v = &t->a->v;
    LLVMTypeRef elem = hcg_element(e, v->dtype);
    LLVMValueRef scores = hcg_at(e, e->f32, t->scores, hcg_mul_const(e, head, HCG_LD_SCORES));
    LLVMValueRef next = t->a->one_row && !t->listed.values ? value_share(e, t, c, head) : NULL;
    LLVMValueRef to = hcg_add(e, t->count, hcg_i64(e, 1 - (int64_t)each));
    hcg_loop l = hcg_loop_begin(e, from, to, hcg_i64(e, each), "value", heads * c->n, acc);
    memcpy(acc, l.carried, heads * c->n * sizeof *acc);
    if (next) prefetch_share(e, next, l.index, shares_of(e, t).value_bytes, each);
    for (unsigned i = 0; i < each; i++) {
        LLVMValueRef key = hcg_add(e, l.index, hcg_i64(e, i));
        LLVMValueRef row = t->listed.values
                               ? hcg_gathered_row(e, t->listed.values, key)
                               : hcg_at(e, elem, t->values, hcg_mul_const(e, key, v->width));
        if (t->ahead.values) ask_with_values(e, t, c, head, key);
        if (t->next) prefetch_keys(e, t, c, head, key);
        if (i > 0) hcg_keep_order(e);
        multiply_value(e, t, c, heads, hcg_at(e, elem, row, c->at), scores, key, acc);
    }
    hcg_loop_end(e, &l, acc);
    memcpy(acc, l.carried, heads * c->n * sizeof *acc);
    return l.index;
}

/* o[head][columns] += sum over the tile's keys of p[head][s] v_s[columns] */
static void add_values(hcg_emit *e, const hcg_key_tile *t, LLVMValueRef head, unsigned heads,
                       void *with) {
    const columns *c = with;
    LLVMValueRef acc[HCG_CARRY], key = hcg_i64(e, 0);
    for (unsigned i = 0; i < heads * c->n; i++)
        acc[i] = hcg_load(e, HIR_F32, output_place(e, t, c, head, i / c->n, i % c->n), NULL);
    if (has_few_sums(e, t)) key = add_some_values(e, t, c, head, heads, key, FEW_KEYS, acc);
    add_some_values(e, t, c, head, heads, key, 1, acc);
    for (unsigned i = 0; i < heads * c->n; i++)
        hcg_store(e, output_place(e, t, c, head, i / c->n, i % c->n), acc[i], NULL);
}

/* The same in pairs of keys; the last key may be left over. */
static void add_value_pairs(hcg_emit *e, const hcg_key_tile *t, LLVMValueRef head, unsigned heads,
                            void *with) {
    const columns *c = with;
    const int64_t width = t->a->v.width;
    const unsigned n = heads * c->n;
    LLVMValueRef acc[HCG_CARRY], next = value_share(e, t, c, head), two = hcg_i64(e, 2);
    LLVMValueRef weights = hcg_at(e, e->i16, t->p_pairs, hcg_mul_const(e, head, HCG_LD_SCORES));
    LLVMValueRef rows = hcg_at(e, e->i16, t->values, c->at);
    for (unsigned i = 0; i < n; i++)
        acc[i] = LLVMConstNull(e->vec);
    LLVMValueRef even = LLVMBuildAnd(e->b, t->count, hcg_i64(e, -2), "");
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), even, two, "values", n, acc);
    LLVMValueRef row = hcg_at(e, e->i16, rows, hcg_mul_const(e, l.index, width));
    prefetch_share(e, next, LLVMBuildUDiv(e->b, l.index, two, ""), shares_of(e, t).value_bytes, 1);
    memcpy(acc, l.carried, n * sizeof *acc);
    hcg_pair_values(e, hcg_at(e, e->i16, weights, l.index), row,
                    hcg_at(e, e->i16, row, hcg_i64(e, width)), heads, c->n, acc);
    hcg_loop_end(e, &l, acc);
    hcg_loop rest = hcg_loop_begin(e, even, t->count, two, "value", n, l.carried);
    row = hcg_at(e, e->i16, rows, hcg_mul_const(e, rest.index, width));
    memcpy(acc, rest.carried, n * sizeof *acc);
    hcg_pair_values(e, hcg_at(e, e->i16, weights, rest.index), row, NULL, heads, c->n, acc);
    hcg_loop_end(e, &rest, acc);
    memcpy(acc, rest.carried, n * sizeof *acc);
    for (unsigned i = 0; i < n; i += 2)
        hcg_pair_columns(e, acc + i);
    for (unsigned i = 0; i < n; i++) {
        LLVMValueRef place = output_place(e, t, c, head, i / c->n, i % c->n);
        hcg_store(e, place, hcg_fadd(e, hcg_load(e, HIR_F32, place, NULL), acc[i]), NULL);
    }
}

static void add_columns(hcg_emit *e, const hcg_key_tile *t, columns *c) {
    each_heads *add = t->q_pairs ? add_value_pairs : add_values;
    for (c->half = 0; c->half < (has_halves(e, t) ? 2 : 1); c->half++)
        by_heads(e, t, value_heads(e, t), add, c);
}

void hcg_tile_values(hcg_emit *e, const hcg_key_tile *t) {
    if (t->q_pairs) hcg_pairs_take_weights(e, t);
    const int64_t lanes = e->level->lanes, m = t->a->m, block = value_block(e, t);
    const int64_t whole = m / block * block, left = m - whole, each = has_halves(e, t) ? 2 : 1;
    columns c = {.n = value_vectors(e, t)};
    if (whole) {
        hcg_loop l =
            hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, whole), hcg_i64(e, block), "m", 0, NULL);
        c.at = l.index;
        add_columns(e, t, &c);
        hcg_loop_end(e, &l, NULL);
    }
    if (!left) return;
    c.at = hcg_i64(e, whole);
    c.n = (unsigned)divide_up(left, lanes * each);
    c.valid = left % lanes ? hcg_i64(e, left % lanes) : NULL;
    add_columns(e, t, &c);
}

/* ---- the softmax step ------------------------------------------------------------------------ */
/* Keys of the tile up to the position of a head's token. */
static LLVMValueRef seen_keys(hcg_emit *e, const hcg_key_tile *t, LLVMValueRef token) {
    if (!t->small_batch) return t->count;
    LLVMValueRef seen = hcg_add(e, hcg_add(e, t->a->past, token), hcg_i64(e, 1));
    return hcg_larger(e, hcg_smaller(e, hcg_sub(e, seen, t->first), t->count), hcg_i64(e, 0));
}

/* Writes -inf for the keys of the tile before the window of a head's token. With one token there
 * are no such keys. */
static void hide_first_keys(hcg_emit *e, const hcg_key_tile *t, LLVMValueRef token,
                            LLVMValueRef scores) {
    if (!t->small_batch || !t->a->window) return;
    LLVMValueRef none = hcg_splat(e, -INFINITY);
    unsigned lanes = e->level->lanes;
    LLVMValueRef first = hcg_first_seen(e, t->a, hcg_add(e, t->a->past, token));
    LLVMValueRef n = hcg_smaller(e, hcg_sub(e, first, t->first), t->count);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), n, hcg_i64(e, lanes), "before", 0, NULL);
    LLVMValueRef left = LLVMBuildTrunc(e->b, hcg_sub(e, n, l.index), e->i32, "");
    LLVMValueRef sees =
        LLVMBuildICmp(e->b, LLVMIntSGE, hcg_lane_numbers(e), hcg_splat_value(e, left), "");
    LLVMValueRef at = hcg_at(e, e->f32, scores, l.index), x = hcg_load(e, HIR_F32, at, NULL);
    hcg_store(e, at, LLVMBuildSelect(e->b, sees, x, none, ""), NULL);
    hcg_loop_end(e, &l, NULL);
}

void hcg_tile_softmax(hcg_emit *e, const hcg_key_tile *t) {
    int64_t lanes = e->level->lanes;
    hcg_loop l = hcg_each_head(e, t);
    hcg_partial p = hcg_partial_of(e, t, t->partial, l.index);
    LLVMValueRef token = hcg_token_of(e, t, l.index);
    hcg_softmax s = {.valid = seen_keys(e, t, token), .state = p.state, .o = p.o};
    s.scores = hcg_at(e, e->f32, t->scores, hcg_mul_const(e, l.index, HCG_LD_SCORES));
    hcg_query q = {.scores = s.scores, .first = t->first, .count = t->count, .apart = 1};
    if (t->a->bias || t->a->carried) {
        q.position = hcg_add(e, t->a->past, token);
        q.number = hcg_head_number(e, t, t->group, l.index);
        hcg_carry_row(e, t->a, &q);
        hcg_add_bias(e, t->a, &q);
    }
    hide_first_keys(e, t, token, s.scores);
    s.n = LLVMBuildAnd(e->b, hcg_add(e, t->count, hcg_i64(e, lanes - 1)), hcg_i64(e, -lanes), "");
    s.width = hcg_output_width(e, t->a);
    hcg_softmax_tile(e, &s);
    hcg_loop_end(e, &l, NULL);
}

/* With one token, scores and values prefetch each other's rows where dot products have whole
 * steps; a small batch has as many passes as tokens, and its arithmetic takes longer than memory.
 * Rows that are both keys and values have shares of their own (shares_of). */
static bool prefetches_key_rows(const hcg_key_tile *t) {
    return !t->a->one_row && !t->small_batch && t->a->n >= CHUNK;
}

/* ---- columns --------------------------------------------------------------------------------- */
/* Copies the queries of all tokens' heads of a group, one after the other. */
static void gather_queries(hcg_emit *e, const hcg_key_tile *t, const hcg_ranged_head *h) {
    const hcg_attention *a = t->a;
    int64_t lanes = e->level->lanes;
    hcg_loop l = hcg_each_head(e, t);
    LLVMValueRef number = hcg_head_number(e, t, h->group, l.index);
    LLVMValueRef from = hcg_at(e, e->f32, a->q, hcg_mul_const(e, number, a->n));
    LLVMValueRef to = hcg_at(e, e->f32, t->q, hcg_mul_const(e, l.index, a->n));
    for (int64_t i = 0; i < a->n; i += lanes) {
        LLVMValueRef at = hcg_i64(e, i), left = a->n - i < lanes ? hcg_i64(e, a->n - i) : NULL;
        LLVMValueRef x = hcg_load(e, HIR_F32, hcg_at(e, e->f32, from, at), left);
        hcg_store(e, hcg_at(e, e->f32, to, at), x, left);
    }
    hcg_loop_end(e, &l, NULL);
}

/* Computes columns c0 .. c1 - 1: column g R + r is range r of head g, where R ranges cover the
 * part of the cache that is seen. */
typedef struct key_ranges { /* of a head: range 0 begins `skipped` ranges after position 0 */
    hcg_key_tile *t;
    hcg_ranged_head h;
    LLVMValueRef skipped, seen; /* the first position that is seen */
    LLVMValueRef left;          /* columns from this head's first on */
} key_ranges;

/* What is read after the tile: the head's next keys, or the first ones of the next head; nothing
 * after the last of the columns. */
static void find_next_keys(hcg_emit *e, const key_ranges *k, LLVMValueRef range, LLVMValueRef to) {
    hcg_key_tile *t = k->t;
    const hcg_attention *a = t->a;
    LLVMValueRef one = hcg_i64(e, 1), at = hcg_add(e, t->first, hcg_i64(e, t->most));
    LLVMValueRef same_range = LLVMBuildICmp(e->b, LLVMIntSLT, at, to, "");
    LLVMValueRef more = LLVMBuildICmp(e->b, LLVMIntSLT, hcg_add(e, range, one), k->left, "");
    LLVMValueRef any = LLVMBuildOr(e->b, same_range, more, "");
    LLVMValueRef same_head = LLVMBuildICmp(e->b, LLVMIntSLT, at, hcg_frame_c(e), "");
    LLVMValueRef group = LLVMBuildSelect(e->b, same_head, t->group, hcg_add(e, t->group, one), "");
    at = LLVMBuildSelect(e->b, same_head, at, k->seen, "");
    t->next = hcg_cache_row(e, a, &a->k, group, at);
    LLVMValueRef rows = hcg_smaller(e, hcg_sub(e, hcg_frame_c(e), at), hcg_i64(e, t->most));
    rows = LLVMBuildSelect(e->b, any, rows, hcg_i64(e, 0), "");
    t->next_bytes = hcg_mul_const(e, rows, a->k.width * (int64_t)hir_dtype_bytes(a->k.dtype));
}

/* Keys from .. to of a head: one of its ranges. */
static void emit_range(hcg_emit *e, const key_ranges *k, LLVMValueRef range, LLVMValueRef from,
                       LLVMValueRef to) {
    hcg_key_tile *t = k->t;
    const hcg_attention *a = t->a;
    hcg_start_range(e, t, range);
    hcg_loop l = hcg_loop_begin(e, from, to, hcg_i64(e, t->most), "tile", 0, NULL);
    t->first = l.index;
    t->count = hcg_smaller(e, hcg_sub(e, to, l.index), hcg_i64(e, t->most));
    t->keys = hcg_cache_row(e, a, &a->k, t->group, l.index);
    t->values = hcg_cache_row(e, a, &a->v, t->group, l.index);
    if (prefetches_key_rows(t)) find_next_keys(e, k, range, to);
    if (a->one_row)
        hcg_translate_pages(e, hcg_at_byte(e, t->keys, tile_bytes(t)), hcg_i64(e, tile_bytes(t)));
    hcg_tile_scores(e, t);
    hcg_tile_softmax(e, t);
    hcg_tile_values(e, t);
    hcg_loop_end(e, &l, NULL);
}

static void do_range(hcg_emit *e, void *with, LLVMValueRef range, LLVMValueRef partials) {
    const key_ranges *k = with;
    const bool window = k->t->a->window;
    LLVMValueRef keys = hcg_i64(e, HRT_KEYS);
    LLVMValueRef start = hcg_mul(e, window ? hcg_add(e, range, k->skipped) : range, keys);
    LLVMValueRef stop = hcg_smaller(e, hcg_add(e, start, keys), hcg_frame_c(e));
    k->t->partial = partials;
    emit_range(e, k, range, window ? hcg_larger(e, start, k->seen) : start, stop);
}

static void emit_columns(hcg_emit *e, hcg_key_tile *t) {
    const hcg_attention *a = t->a;
    LLVMValueRef one = hcg_i64(e, 1), keys = hcg_i64(e, HRT_KEYS);
    key_ranges k = {.t = t, .seen = hcg_first_seen(e, a, a->past)};
    k.skipped = LLVMBuildUDiv(e->b, k.seen, keys, "");
    LLVMValueRef ranges = hcg_divide_up(e, hcg_frame_c(e), keys), partials = hcg_frame_ranges(e);
    if (a->window) ranges = hcg_sub(e, ranges, k.skipped);
    LLVMValueRef first = LLVMBuildUDiv(e->b, e->c0, ranges, "");
    hcg_loop l = hcg_loop_begin(e, first, hcg_divide_up(e, e->c1, ranges), one, "group", 0, NULL);
    LLVMValueRef column = hcg_mul(e, l.index, ranges);
    k.h = (hcg_ranged_head){.group = l.index, .ranges = ranges, .partials = partials};
    k.h.partials = hcg_range_at(e, t, &k.h, column);
    t->group = l.index;
    k.left = hcg_sub(e, e->c1, column);
    if (t->small_batch)
        gather_queries(e, t, &k.h);
    else
        t->q = hcg_at(e, e->f32, a->q, hcg_mul_const(e, l.index, a->per_group * a->n));
    if (t->q_pairs) hcg_pairs_take_queries(e, t);
    if (t->words) hcg_words_take_queries(e, t);
    hcg_each_range(e, t, &k.h, hcg_larger(e, hcg_sub(e, e->c0, column), hcg_i64(e, 0)),
                   hcg_smaller(e, k.left, ranges), do_range, &k);
    hcg_loop_end(e, &l, NULL);
}

static LLVMValueRef floats(hcg_emit *e, int64_t n) {
    return hcg_scratch(e, (uint64_t)n * 4);
}

/* The next tile (or the values of this one) comes into the L2 meanwhile, and the one before is
 * still there; sums and queries are read as often. So a tile fills a sixth of the L2. Each tile also
 * costs a softmax step and the reading of all sums, so that one of up to ENOUGH_ROWS may fill a
 * third. Ranges consist of whole tiles: a tile that is cut short has fewer steps than the next one
 * has shares, and does not lie where the tile before prefetched. A key that fills no block is
 * multiplied with more heads at once. */
int64_t hcg_rows_of_tile(const hcg_emit *e, const hcg_key_tile *t) {
    const hcg_attention *a = t->a;
    const int64_t width = a->k.width > a->v.width ? a->k.width : a->v.width;
    const int64_t row = width * (int64_t)hir_dtype_bytes(a->k.dtype);
    int64_t rows = TILE;
    while (rows > LEAST_ROWS &&
           (rows > ENOUGH_ROWS ? 6 : 3) * rows * row > (int64_t)e->level->machine.l2)
        rows /= 2;
    return rows;
}

int64_t hcg_rows_of_listed_tile(const hcg_emit *e, const hcg_key_tile *t) {
    const int64_t keys = score_keys_of(e, t), rows = divide_up(hcg_rows_of_tile(e, t), keys) * keys;
    return rows > TILE ? TILE / keys * keys : rows;
}

void hcg_attention_decode(hcg_emit *e, const hcg_attention *a) {
    hcg_key_tile t = {.a = a, .heads = hcg_i64(e, a->per_group)};
    t.scores = floats(e, a->per_group * HCG_LD_SCORES);
    t.most = a->one_row || prefetches_key_rows(&t) ? hcg_rows_of_tile(e, &t) : TILE;
    if (hcg_rows_in_pairs(e, a)) hcg_pairs_begin(e, &t);
    if (hcg_rows_in_words(e, a)) hcg_words_begin(e, &t);
    emit_columns(e, &t);
}

void hcg_attention_small_batch(hcg_emit *e, const hcg_attention *a) {
    hcg_key_tile t = {.a = a,
                      .most = TILE,
                      .small_batch = true,
                      .heads = hcg_mul_const(e, hcg_frame_t(e), a->per_group)};
    t.scores = floats(e, HRT_SMALL_BATCH * a->per_group * HCG_LD_SCORES);
    t.q = floats(e, HRT_SMALL_BATCH * a->per_group * a->n);
    emit_columns(e, &t);
}
