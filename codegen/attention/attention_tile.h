/* The parts of attention of one token: a tile of keys in rows with the query heads that attend to
 * it, and the ranges of keys that heads are cut into (decode.c). Attention over selected rows, and
 * their selection, use the same parts. */
#ifndef HCG_ATTENTION_TILE_H
#define HCG_ATTENTION_TILE_H

#include "codegen/attention/attention.h"

enum {
    HCG_TILE_KEYS = 128, /* between softmax steps; divides HRT_KEYS, at most HCG_KEYS */
    HCG_MOST_HEADS = 8,  /* query heads that are multiplied with a key at once */
};

/* Where rows of a tile lie if they do not follow each other: an address for each row. NULL: they
 * follow each other. Keys and values may be the same rows. */
typedef struct hcg_row_places {
    LLVMValueRef keys, values;
} hcg_row_places;

/* A tile of keys and the query heads that attend to it. */
typedef struct hcg_key_tile {
    const hcg_attention *a;
    LLVMValueRef heads;            /* how many: per_group for each token */
    bool small_batch;              /* heads is not a constant */
    LLVMValueRef q, scores;        /* from the first of the heads on: [heads][n],
                                      [heads][HCG_LD_SCORES] */
    LLVMValueRef partial;          /* likewise O and state, hcg_partial_floats apart */
    LLVMValueRef group;            /* key/value head */
    LLVMValueRef keys, values;     /* rows of the tile's first position */
    LLVMValueRef first, count;     /* its first position, and how many */
    int64_t most;                  /* the most positions of a tile */
    LLVMValueRef next, next_bytes; /* rows of keys that are read after this tile; NULL: not known */
    LLVMValueRef q_pairs, p_pairs, q_row; /* bf16 of q and of weights (rows.c); NULL: as f32 */
    bool words; /* rows are read as words, q and O are in the order of words (rows.c) */
    LLVMValueRef q_words;
    hcg_row_places listed; /* replaces keys and values; a->one_row, rows are read from the L2 */
    hcg_row_places ahead;  /* likewise for the tile that follows */
} hcg_key_tile;

/* scores[head][s] = scale q . k_s of the tile */
void hcg_tile_scores(hcg_emit *e, const hcg_key_tile *t);
/* Lane i: the sum of the lanes of v[i], 0 from `n` on. v, of e->level->lanes vectors, is used up.
 */
LLVMValueRef hcg_sum_each(hcg_emit *e, LLVMValueRef *v, unsigned n);
/* The number of rows of a tile that is read from the L2: they fill a sixth of it, or a third. It
 * divides HRT_KEYS; rows of a list, which has no ranges, make whole blocks of keys instead. */
int64_t hcg_rows_of_tile(const hcg_emit *e, const hcg_key_tile *t);
int64_t hcg_rows_of_listed_tile(const hcg_emit *e, const hcg_key_tile *t);
/* A step of the online softmax: scores become weights, O and state are rescaled to the new
 * maximum. */
void hcg_tile_softmax(hcg_emit *e, const hcg_key_tile *t);
/* O += P V of the tile */
void hcg_tile_values(hcg_emit *e, const hcg_key_tile *t);

/* ---- rows of bf16 in pairs (rows.c) ----------------------------------------------------- */
/* Does the level multiply the cached rows in pairs, with rounded queries and weights? */
bool hcg_rows_in_pairs(const hcg_emit *e, const hcg_attention *a);
/* `begin` takes scratch. `take_queries` is called for each key/value head, `take_weights` for each
 * tile after its softmax step. */
void hcg_pairs_begin(hcg_emit *e, hcg_key_tile *t);
void hcg_pairs_take_queries(hcg_emit *e, const hcg_key_tile *t);
void hcg_pairs_take_weights(hcg_emit *e, const hcg_key_tile *t);
/* acc[head][key] += lane-wise products of the pairs at q and row, `valid` elements */
void hcg_pair_scores(hcg_emit *e, const hcg_key_tile *t, LLVMValueRef q, LLVMValueRef row,
                     unsigned heads, unsigned keys, int64_t valid, LLVMValueRef *acc);
/* acc[head][vector] += weights of two keys times their rows, or (second NULL) of the last key;
 * columns of two vectors at a time are in an order that hcg_pair_columns undoes. */
void hcg_pair_values(hcg_emit *e, LLVMValueRef weights, LLVMValueRef row, LLVMValueRef second,
                     unsigned heads, unsigned vectors, LLVMValueRef *acc);
/* Brings the columns of two vectors of acc back into order. */
void hcg_pair_columns(hcg_emit *e, LLVMValueRef *acc);

/* ---- rows of a list (rows.c) -----------------------------------------------------------
 */
/* The address of a row of the tile. */
LLVMValueRef hcg_gathered_row(hcg_emit *e, LLVMValueRef places, LLVMValueRef row);
/* Prefetches, in step `number` of `steps` that multiply `rows` rows of the tile from `first` on,
 * the step's share of as many rows of the next tile. Steps of scores prefetch keys, or the first
 * half of rows that are values as well; steps of values prefetch the rest. */
void hcg_prefetch_key_rows(hcg_emit *e, const hcg_key_tile *t, bool values, LLVMValueRef first,
                           int64_t rows, LLVMValueRef number, int64_t steps);
/* Prefetches rows 0 .. n - 1 of the next tile at once. */
void hcg_ask_all(hcg_emit *e, const hcg_key_tile *t, LLVMValueRef n);

/* ---- rows of bf16 as words (rows.c) ----------------------------------------------------- */
/* Is the level faster if it reads rows of bf16 as words of two elements? The functions below are
 * for such levels. */
bool hcg_rows_in_words(const hcg_emit *e, const hcg_attention *a);
/* The same, where rows are not multiplied in pairs. */
bool hcg_words_fit(const hcg_emit *e, const hcg_attention *a);
/* `begin` takes scratch; then, for each key/value head, q is replaced by a copy in the order of
 * words. */
void hcg_words_begin(hcg_emit *e, hcg_key_tile *t);
void hcg_words_take_queries(hcg_emit *e, hcg_key_tile *t);
/* One half of the elements of a vector of words at `place`, as f32: the even or the odd ones, or
 * those that are interleaved with zeros. */
LLVMValueRef hcg_load_words(hcg_emit *e, LLVMValueRef place, unsigned half, LLVMValueRef zeros);
/* The zeros of the loads of a step, which adds to n sums; NULL: the level needs none. */
LLVMValueRef hcg_words_zeros(hcg_emit *e, LLVMValueRef *sums, unsigned n);
/* Brings a head's result from the order of words into its own order. */
void hcg_words_in_order(hcg_emit *e, const hcg_attention *a, LLVMValueRef out);

/* ---- ranges of keys (ranges.c) --------------------------------------------------------------- */
typedef struct hcg_partial { /* the partial result of a query head over a range */
    LLVMValueRef o, state;
} hcg_partial;
/* The partial result of head number `head` of the tile, where those of all heads begin at
 * `first`. */
hcg_partial hcg_partial_of(hcg_emit *e, const hcg_key_tile *t, LLVMValueRef first,
                           LLVMValueRef head);
/* Floats of O in whole vectors. */
LLVMValueRef hcg_output_width(hcg_emit *e, const hcg_attention *a);
/* A loop over the heads that attend to the tile. For head j it gives its token in the call and its
 * number in q or out, which count the heads of all tokens. */
hcg_loop hcg_each_head(hcg_emit *e, const hcg_key_tile *t);
LLVMValueRef hcg_token_of(hcg_emit *e, const hcg_key_tile *t, LLVMValueRef j);
LLVMValueRef hcg_head_number(hcg_emit *e, const hcg_key_tile *t, LLVMValueRef group,
                             LLVMValueRef j);

typedef struct hcg_ranged_head { /* a key/value head: its ranges and their partial results */
    LLVMValueRef group, ranges;
    LLVMValueRef partials; /* [range][query head] */
} hcg_ranged_head;
/* Where the partial results of a range's query heads are. */
LLVMValueRef hcg_range_at(hcg_emit *e, const hcg_key_tile *t, const hcg_ranged_head *h,
                          LLVMValueRef range);
/* Starts the partial results at t->partial: empty, or with the sinks if it is the head's first
 * range. */
void hcg_start_range(hcg_emit *e, const hcg_key_tile *t, LLVMValueRef range);
/* Calls f for each of the ranges from .. to - 1 of a head, at least one; f writes its partial
 * results to `partials`. The thread that finishes a head's last range merges them. */
typedef void hcg_range(hcg_emit *e, void *with, LLVMValueRef range, LLVMValueRef partials);
void hcg_each_range(hcg_emit *e, const hcg_key_tile *t, const hcg_ranged_head *h, LLVMValueRef from,
                    LLVMValueRef to, hcg_range *f, void *with);
/* o = the merged result, which is in the place of the head's first range */
void hcg_finish_heads(hcg_emit *e, const hcg_key_tile *t, const hcg_ranged_head *h);

#endif
