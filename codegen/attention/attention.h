/* The parts of attention/attention.c: causal attention of token rows over the cache by online
 * softmax.
 *
 * Keys are read in tiles. For one query with running maximum M, sum S and O[m] = sum e^(s - M) v,
 * a tile of scores s_0 .. s_{n-1} gives
 *
 *     M' = max(M, max s)   a = e^(M - M')   p_i = e^(s_i - M')
 *     S' = a S + sum p_i   O' = a O + sum p_i v_i            and at the end o = O / S
 *
 * M starts at the lowest finite number and scores are clamped to the highest, so that no difference
 * is inf - inf; keys that a token may not see have the score -inf and p = 0.
 *
 * A sink z is one more logit, whose value vector is 0: with it a query starts from M = z, S = 1, O
 * = 0. A soft cap and a bias change the scores of a tile before its softmax step (attention.c).
 * With a window w, a token at position p sees the keys p - w + 1 .. p: tiles of keys that no token
 * of the call sees are not read.
 */
#ifndef HCG_ATTENTION_H
#define HCG_ATTENTION_H

#include "codegen/emit/emit.h"

/* Keys or values: a state, [G][cap][width]. A head's rows follow each other in memory, so that a
 * loop over positions reads a stream. */
typedef struct hcg_cache {
    LLVMValueRef base;
    hir_dtype dtype;
    int64_t width;
} hcg_cache;

/* Can rows of this width, and the values among them, be multiplied in pairs (rows.c)? */
static inline bool hcg_pairs_fit(int64_t width, int64_t values) {
    return width % 2 == 0 && values % (2 * HIR_PANEL) == 0;
}

hcg_cache hcg_cache_of(hcg_emit *e, const hcg_kernel *k, hir_ref r);

typedef struct hcg_attention {
    LLVMValueRef q, out; /* base pointers, [T][H][n] and [T][H][m] */
    hcg_cache k, v;
    int64_t heads, groups; /* query heads H; key and value heads G */
    int64_t per_group;     /* H / G */
    int64_t n, m;          /* head dim of q and k; of v and out */
    double scale;
    double softcap;    /* 0: none */
    int64_t window;    /* 0: none, token t sees keys 0 .. past + t; else the last `window` of
                          these */
    bool one_row;      /* values are columns of the rows of keys, which are read once for both */
    LLVMValueRef sink; /* NULL: none; [H], or [T][H] if sink_by_token */
    bool sink_by_token;
    LLVMValueRef bias; /* NULL: none; [T][H][extent] */
    int64_t extent;
    LLVMValueRef carried; /* NULL: none; scores of earlier layers (carried.c) */
    bool begins;          /* they hold nothing yet */
    double factor;        /* of the sums with them */
    LLVMValueRef cap;     /* capacity of the cache in positions */
    LLVMValueRef past;    /* C - T: token t stands at position past + t */
} hcg_attention;

/* ---- options (attention.c) ----------------------------------------------------------- */
/* One query: its token's position, its number in [T][H], and its scores for `count` keys from
 * position `first` on, which are `apart` floats apart. */
typedef struct hcg_query {
    LLVMValueRef position, number, scores, first, count;
    int64_t apart;
    bool by_two; /* scores are in units of ln 2 (query_tile.c) */
} hcg_query;
/* c tanh(x / c) of a vector of scores; x without a soft cap. */
LLVMValueRef hcg_soft_cap(hcg_emit *e, const hcg_attention *a, LLVMValueRef x);
/* Adds the bias for the distances of the query's keys. */
void hcg_add_bias(hcg_emit *e, const hcg_attention *a, const hcg_query *q);
/* Writes the query's scores to `bias`, [T][H][extent], where hcg_add_bias reads what it adds to
 * them. */
void hcg_leave_bias(hcg_emit *e, const hcg_attention *a, const hcg_query *q, LLVMValueRef bias);
/* Adds the carried scores to those of a query, in rows for each token and head, and carries on the
 * sums. */
void hcg_carry_row(hcg_emit *e, const hcg_attention *a, const hcg_query *q);
/* M and S that a query starts with: those of the sink, or of no key at all. `token` and `head` as
 * in [T][H]. */
void hcg_softmax_origin(hcg_emit *e, const hcg_attention *a, LLVMValueRef token, LLVMValueRef head,
                        LLVMValueRef *maximum, LLVMValueRef *sum);
/* The first position that the token at `position` sees. */
LLVMValueRef hcg_first_seen(hcg_emit *e, const hcg_attention *a, LLVMValueRef position);

/* A sink, if there is one. */
void hcg_take_sink(hcg_emit *e, const hcg_kernel *k, hir_ref sink, hcg_attention *a);
/* Window, soft cap, sink and bias of an op, the last two from operand `first` on. */
void hcg_take_attention_options(hcg_emit *e, const hcg_kernel *k, const hir_op *op, uint32_t first,
                                hcg_attention *a);

/* Row `at` of head `group`, in a cache of `cap` rows for each head; in that of keys or values. */
LLVMValueRef hcg_row_in(hcg_emit *e, const hcg_cache *c, LLVMValueRef cap, LLVMValueRef group,
                        LLVMValueRef at);
LLVMValueRef hcg_cache_row(hcg_emit *e, const hcg_attention *a, const hcg_cache *c,
                           LLVMValueRef group, LLVMValueRef at);

/* Scores, probabilities and outputs of a tile in scratch are f32. */
enum {
    HCG_KEYS = 128, /* the most keys of a tile */
    HCG_SLACK = 16, /* floats after a row of scores, or lines after a panel, that may be written */
    HCG_LD_SCORES = HCG_KEYS + HCG_SLACK,
    HCG_STRIP_FLOATS = HCG_LD_SCORES * HIR_PANEL, /* from panel to panel of a strip of scores */
    HCG_COUNTERS = 17, /* counters of a key/value head: for blocks of ranges, and for the merge of
                          blocks (ranges.c) */
};

static inline uint64_t hcg_counter_bytes(int64_t groups) {
    return (uint64_t)groups * HCG_COUNTERS * HCG_COUNTER_BYTES;
}

/* The size in floats of the partial result of a query head over a range of keys, in frame->shared:
 * O, then M and S in separate lines. */
static inline int64_t hcg_partial_floats(int64_t m) {
    return (m + HIR_PANEL - 1) / HIR_PANEL * HIR_PANEL + HIR_PANEL;
}

/* One token, or up to HRT_SMALL_BATCH (all rows of the call at once). Columns are ranges of
 * HRT_KEYS keys of key/value heads (HRT_SPLIT_KEYS). Each range writes its partial M, S and O to
 * frame->shared, and the thread that finishes a head's last range merges them in their order: the
 * result is the same for any number of threads. */
void hcg_attention_decode(hcg_emit *e, const hcg_attention *a);
void hcg_attention_small_batch(hcg_emit *e, const hcg_attention *a);
/* Tiles of queries, as two gemms. Columns are key/value heads. */
void hcg_attention_prefill(hcg_emit *e, const hcg_attention *a);

/* One step of online softmax for one query. `scores`: the first `valid` are seen, the rest up to
 * `n` (rounded up to whole vectors) are not; the scores become p. `state` is M, S; O of `width`
 * floats (whole vectors) is scaled by a. */
typedef struct hcg_softmax {
    LLVMValueRef scores, valid, n, state, o, width;
} hcg_softmax;
void hcg_softmax_tile(hcg_emit *e, const hcg_softmax *s);
/* The same for a strip, a few panels of `width` queries, of which scores and maxima are in units of
 * ln 2: a weight is 2^(score - maximum). Scores, O and states have queries in their lanes, in panels
 * side by side. scores[panel][key][width], HCG_LD_SCORES lines apart; states[panel] is M[width],
 * S[width]; O[panel][lines][width]. Query i sees key k if i >= k per_group - own: all queries see the
 * keys before `hidden`. With a window, also i < k per_group + below must hold: all queries see the
 * keys from `shown` on. */
typedef struct hcg_softmax_strip {
    LLVMValueRef scores, count, states, o, lines, panels;
    LLVMValueRef hidden, own;
    LLVMValueRef below, shown; /* NULL: no window */
    int64_t per_group, width;
    LLVMValueRef later; /* 0: these are the first keys, and O holds nothing yet */
} hcg_softmax_strip;
void hcg_softmax_strip_start(hcg_emit *e, const hcg_softmax_strip *s); /* reads states, panels, */
void hcg_softmax_strip_tile(hcg_emit *e, const hcg_softmax_strip *s);
void hcg_softmax_strip_end(hcg_emit *e, const hcg_softmax_strip *s); /* O / S */
/* Merges the other partial result into `state` and `o` of a query. */
void hcg_softmax_merge(hcg_emit *e, LLVMValueRef state, LLVMValueRef o, LLVMValueRef other_state,
                       LLVMValueRef other_o, LLVMValueRef width);
void hcg_softmax_start(hcg_emit *e, LLVMValueRef state, LLVMValueRef o, LLVMValueRef width);
/* out[0 .. m) = O / S */
void hcg_softmax_end(hcg_emit *e, LLVMValueRef state, LLVMValueRef o, int64_t m, LLVMValueRef out);

#endif
