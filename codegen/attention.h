/* The parts of emit_sequence.c: causal attention of token rows over the cache by online softmax.
 *
 * Keys are taken in tiles. For one query with running maximum M, sum S and O[m] = sum e^(s - M) v,
 * a tile of scores s_0 .. s_{n-1} gives
 *
 *     M' = max(M, max s)   a = e^(M - M')   p_i = e^(s_i - M')
 *     S' = a S + sum p_i   O' = a O + sum p_i v_i            and at the end o = O / S
 *
 * M starts at the lowest finite number and scores are clamped to the highest, so that no difference
 * is inf - inf; keys that a token may not see have the score -inf and p = 0.
 */
#ifndef HCG_ATTENTION_H
#define HCG_ATTENTION_H

#include "codegen/emit.h"

typedef struct hcg_attention {
    LLVMValueRef q, k, v, out; /* base pointers */
    int64_t heads, groups;     /* query heads H; key and value heads G */
    int64_t per_group;         /* H / G */
    int64_t n, m;              /* head dims of q and k; of v and out */
    double scale;
    LLVMValueRef past; /* C - T: token t sees keys 0 .. past + t */
} hcg_attention;

/* Scores, probabilities and outputs of a tile in scratch are f32. */
enum {
    HCG_KEYS = 128, /* per tile */
    HCG_SLACK = 16, /* floats after a row of scores that softmax may write */
    HCG_LD_SCORES = HCG_KEYS + HCG_SLACK,
};

void hcg_attention_one(hcg_emit *e, const hcg_attention *a);  /* key and value heads stream by */
void hcg_attention_many(hcg_emit *e, const hcg_attention *a); /* tiles of queries, as two gemms */

/* One step of online softmax for one query. `scores`: `valid` of them, the rest up to `n` (rounded
 * up to whole vectors) are not seen; they become p. `state` is M, S; O of `width` floats (whole
 * vectors) is scaled by a. */
typedef struct hcg_softmax {
    LLVMValueRef scores, valid, n, state, o, width;
} hcg_softmax;
void hcg_softmax_tile(hcg_emit *e, const hcg_softmax *s);
void hcg_softmax_start(hcg_emit *e, LLVMValueRef state, LLVMValueRef o, LLVMValueRef width);
/* out[0 .. m) = O / S */
void hcg_softmax_end(hcg_emit *e, LLVMValueRef state, LLVMValueRef o, int64_t m, LLVMValueRef out);

#endif
