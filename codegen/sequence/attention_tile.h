/* What attention of one token is made of: a tile of keys in rows and the query heads that look at
 * it, and the ranges of keys that heads are cut into (attention_decode.c). Attention over chosen
 * rows, and what chooses them, are made of the same. */
#ifndef HCG_ATTENTION_TILE_H
#define HCG_ATTENTION_TILE_H

#include "codegen/sequence/attention.h"

enum { HCG_TILE_KEYS = 128 }; /* between softmax steps; divides HRT_KEYS, at most HCG_KEYS */

/* A tile of keys and the query heads that look at it. */
typedef struct hcg_key_tile {
    const hcg_attention *a;
    LLVMValueRef heads;        /* how many: per_group for each token */
    bool small_batch;          /* heads is not a constant */
    LLVMValueRef q, scores;    /* of the first of the heads: [heads][n], [..][HCG_LD_SCORES] */
    LLVMValueRef partial;      /* likewise: O and state, hcg_partial_floats apart */
    LLVMValueRef group;        /* key/value head */
    LLVMValueRef keys, values; /* rows of the tile's first position */
    LLVMValueRef first, count; /* its first position, and how many */
} hcg_key_tile;

/* A head's first range has the sink; the others begin with nothing. */
void hcg_start_range(hcg_emit *e, const hcg_key_tile *t, LLVMValueRef range);
/* scores[head][s] = scale q . k_s of the tile */
void hcg_tile_scores(hcg_emit *e, const hcg_key_tile *t);
void hcg_tile_softmax(hcg_emit *e, const hcg_key_tile *t);
/* O += P V of the tile */
void hcg_tile_values(hcg_emit *e, const hcg_key_tile *t);

typedef struct hcg_ranged_head { /* a key/value head: its ranges, and where they leave what */
    LLVMValueRef group, ranges;
    LLVMValueRef partials; /* [range][query head] */
} hcg_ranged_head;
LLVMValueRef hcg_range_at(hcg_emit *e, const hcg_key_tile *t, const hcg_ranged_head *h,
                          LLVMValueRef range);
/* o = the ranges merged from first to last */
void hcg_merge(hcg_emit *e, const hcg_key_tile *t, const hcg_ranged_head *h);
/* Counts `done` ranges of the group and puts the builder where whoever finds them complete goes on;
 * all that was written before the others counted is visible there. */
typedef struct hcg_arrival {
    LLVMBasicBlockRef after;
} hcg_arrival;
hcg_arrival hcg_arrive(hcg_emit *e, LLVMValueRef group, LLVMValueRef ranges, LLVMValueRef done);
void hcg_arrive_end(hcg_emit *e, const hcg_arrival *a);

#endif
