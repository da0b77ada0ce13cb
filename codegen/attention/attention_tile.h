/* What attention of one token is made of: a tile of keys in rows and the query heads that look at
 * it, and the ranges of keys that heads are cut into (attention_decode.c). Attention over chosen
 * rows, and what chooses them, are made of the same. */
#ifndef HCG_ATTENTION_TILE_H
#define HCG_ATTENTION_TILE_H

#include "codegen/attention/attention.h"

enum {
    HCG_TILE_KEYS = 128, /* between softmax steps; divides HRT_KEYS, at most HCG_KEYS */
    HCG_MOST_HEADS = 8,  /* that meet a key at once */
};

/* Where rows of a tile lie that do not follow each other: addresses, one for each row; NULL: they
 * do. Keys and values may be the same rows. */
typedef struct hcg_row_places {
    LLVMValueRef keys, values;
} hcg_row_places;

/* A tile of keys and the query heads that look at it. */
typedef struct hcg_key_tile {
    const hcg_attention *a;
    LLVMValueRef heads;            /* how many: per_group for each token */
    bool small_batch;              /* heads is not a constant */
    LLVMValueRef q, scores;        /* of the first of the heads: [heads][n], [..][HCG_LD_SCORES] */
    LLVMValueRef partial;          /* likewise: O and state, hcg_partial_floats apart */
    LLVMValueRef group;            /* key/value head */
    LLVMValueRef keys, values;     /* rows of the tile's first position */
    LLVMValueRef first, count;     /* its first position, and how many */
    int64_t most;                  /* the most that there are */
    LLVMValueRef next, next_bytes; /* rows of keys that are read after this tile; NULL: not known */
    LLVMValueRef q_pairs, p_pairs, q_row; /* bf16 of q and of weights (rows.c); NULL: as f32 */
    bool words; /* rows are met as words, q and O are in their order (rows.c) */
    LLVMValueRef q_words;
    hcg_row_places listed; /* instead of keys and values; a->one_row, rows are met from the L2 */
    hcg_row_places ahead;  /* likewise: of the tile that follows */
} hcg_key_tile;

/* scores[head][s] = scale q . k_s of the tile */
void hcg_tile_scores(hcg_emit *e, const hcg_key_tile *t);
/* Lane i: the sum of the lanes of v[i], 0 from `n` on. v, of e->level->lanes vectors, is used up.
 */
LLVMValueRef hcg_sum_each(hcg_emit *e, LLVMValueRef *v, unsigned n);
/* Rows of a tile that are met from the L2: a sixth of it holds them. */
int64_t hcg_rows_of_tile(const hcg_emit *e, const hcg_key_tile *t);
/* A step of the online softmax: scores become weights, O and state go over to the new maximum. */
void hcg_tile_softmax(hcg_emit *e, const hcg_key_tile *t);
/* O += P V of the tile */
void hcg_tile_values(hcg_emit *e, const hcg_key_tile *t);

/* ---- rows of bf16 in pairs (rows.c) ----------------------------------------------------- */
/* Does the level multiply the cached rows in pairs, with rounded queries and weights? */
bool hcg_rows_in_pairs(const hcg_emit *e, const hcg_attention *a);
/* Takes scratch; then, for each head of rows and for each tile behind its softmax step. */
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
/* The columns of two vectors of acc in order again. */
void hcg_pair_columns(hcg_emit *e, LLVMValueRef *acc);

/* ---- rows of a list (rows.c) -----------------------------------------------------------
 */
/* The address of a row of the tile. */
LLVMValueRef hcg_gathered_row(hcg_emit *e, LLVMValueRef places, LLVMValueRef row);
/* Step `number` of `steps` that meet `rows` rows of the tile from `first` on asks for its share of
 * as many rows of the tile ahead: scores for keys, or the first half of rows that are values as
 * well, steps of values for the rest. */
void hcg_prefetch_key_rows(hcg_emit *e, const hcg_key_tile *t, bool values, LLVMValueRef first,
                           int64_t rows, LLVMValueRef number, int64_t steps);
/* Asks for rows 0 .. n - 1 of the tile ahead at once. */
void hcg_ask_all(hcg_emit *e, const hcg_key_tile *t, LLVMValueRef n);

/* ---- rows of bf16 as words (rows.c) ----------------------------------------------------- */
/* Is the level faster at rows of bf16 as words of two? What is said below is for such. */
bool hcg_rows_in_words(const hcg_emit *e, const hcg_attention *a);
/* The same where rows are not met in pairs. */
bool hcg_words_fit(const hcg_emit *e, const hcg_attention *a);
/* Takes scratch; then, for each head of rows, q becomes a copy in the order of words. */
void hcg_words_begin(hcg_emit *e, hcg_key_tile *t);
void hcg_words_take_queries(hcg_emit *e, hcg_key_tile *t);
/* Of a vector of words at `place` the elements at even places (half 0) or at odd ones, as f32. */
LLVMValueRef hcg_load_words(hcg_emit *e, LLVMValueRef place, unsigned half);
/* A head's result in the order of words becomes one in its own order. */
void hcg_words_in_order(hcg_emit *e, const hcg_attention *a, LLVMValueRef out);

/* ---- ranges of keys (ranges.c) --------------------------------------------------------------- */
typedef struct hcg_partial { /* what a query head leaves of a range */
    LLVMValueRef o, state;
} hcg_partial;
/* Those of head number `head` of the tile, in what all of them leave from `first` on. */
hcg_partial hcg_partial_of(hcg_emit *e, const hcg_key_tile *t, LLVMValueRef first,
                           LLVMValueRef head);
/* Floats of O in whole vectors. */
LLVMValueRef hcg_output_width(hcg_emit *e, const hcg_attention *a);
/* A loop over the heads that look at the tile; of number j its token in the call, and its number in
 * q or out, in heads of all tokens. */
hcg_loop hcg_each_head(hcg_emit *e, const hcg_key_tile *t);
LLVMValueRef hcg_token_of(hcg_emit *e, const hcg_key_tile *t, LLVMValueRef j);
LLVMValueRef hcg_head_number(hcg_emit *e, const hcg_key_tile *t, LLVMValueRef group,
                             LLVMValueRef j);

typedef struct hcg_ranged_head { /* a key/value head: its ranges, and where they leave what */
    LLVMValueRef group, ranges;
    LLVMValueRef partials; /* [range][query head] */
} hcg_ranged_head;
/* Where a range leaves what its query heads have. */
LLVMValueRef hcg_range_at(hcg_emit *e, const hcg_key_tile *t, const hcg_ranged_head *h,
                          LLVMValueRef range);
/* At t->partial: nothing yet, or what the sinks are for the head's first range. */
void hcg_start_range(hcg_emit *e, const hcg_key_tile *t, LLVMValueRef range);
/* f for each of the ranges from .. to - 1 of a head, at least one, which leaves it at hcg_range_at.
 * Whoever does a head's last one finishes it. */
typedef void hcg_range(hcg_emit *e, void *with, LLVMValueRef range);
void hcg_each_range(hcg_emit *e, const hcg_key_tile *t, const hcg_ranged_head *h, LLVMValueRef from,
                    LLVMValueRef to, hcg_range *f, void *with);
/* o = what the head's first range holds */
void hcg_finish_heads(hcg_emit *e, const hcg_key_tile *t, const hcg_ranged_head *h);

/* Adds `done` to a counter of frame->shared and puts the builder where whoever finds `all` of them
 * goes on; all that was written before the others counted is visible there. */
typedef struct hcg_arrival {
    LLVMBasicBlockRef after;
} hcg_arrival;
hcg_arrival hcg_arrive(hcg_emit *e, LLVMValueRef counter, LLVMValueRef all, LLVMValueRef done);
void hcg_arrive_end(hcg_emit *e, const hcg_arrival *a);

#endif
