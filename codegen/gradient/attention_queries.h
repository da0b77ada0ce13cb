/* A tile of queries and the keys and values that it attends to, for the gradients of attention
 * (attention_queries.c says how). A kernel form decides where the rows of keys and values come
 * from, and where their gradients go. */
#ifndef HCG_ATTENTION_QUERIES_H
#define HCG_ATTENTION_QUERIES_H

#include "codegen/attention/attention.h"

enum { HCG_GRADIENT_KEYS = 64 }; /* the most keys of a tile of keys */

/* Queries, or the gradients of their results: rows of n numbers. */
typedef struct hcg_gradient_rows {
    LLVMValueRef from; /* [T][H][n] */
    int64_t n;
    LLVMValueRef rows;    /* scratch: [query][n], */
    LLVMValueRef lanes;   /* panels of queries, [query / 16][n][16], */
    LLVMValueRef columns; /* and panels of numbers, [n / 16][query][16] */
} hcg_gradient_rows;

/* The gradients of rows of keys or values. */
typedef struct hcg_row_gradients {
    bool wanted;
    LLVMValueRef parts; /* scratch, [key][ld]: what the queries of the tile add to them */
    int64_t ld;
    LLVMValueRef at, stride; /* set by `fetch` if that is added at once, and `parts` not used: the
                                first row, of whole panels, and the distance of rows; else NULL */
} hcg_row_gradients;

typedef struct hcg_gradient_tile hcg_gradient_tile;
struct hcg_gradient_tile {
    const hcg_attention *a; /* its k, v and out are not read here */
    int64_t tokens;         /* the most of a tile */
    bool causal;            /* token t sees the keys up to t; otherwise all that there are */
    hcg_gradient_rows q, dy;
    LLVMValueRef dq, dbias; /* laid out as what they are gradients of; NULL: not wanted */
    LLVMValueRef dsink;     /* the same by token; by head, of the group's heads, and added to; NULL
                               in `begin`: not wanted */
    hcg_row_gradients of_keys, of_values;
    /* Sets `keys` and `values` to the rows of the tile of keys: first .. first + count - 1. */
    void (*fetch)(hcg_emit *e, hcg_gradient_tile *t);
    /* Adds what stands in `parts` to the gradients of those rows. */
    void (*add)(hcg_emit *e, hcg_gradient_tile *t);
    void *of;                  /* for both */
    LLVMValueRef keys, values; /* rows of n and of m numbers, which follow each other */
    /* Where the tile is: the first token of the call and how many, the key/value head. */
    LLVMValueRef group, row, n;
    LLVMValueRef first, count; /* the present tile of keys */
    /* The rest is set by the functions below. */
    int64_t width, kept;          /* scores of a key; keys whose scores are kept */
    LLVMValueRef queries, panels; /* how many */
    LLVMValueRef from, to;        /* keys that the tile sees */
    LLVMValueRef all_scores, all_slopes, all_factors; /* scratch, for `kept` and one tile more: */
    LLVMValueRef scores;                              /* [key][width]: l, then p; */
    LLVMValueRef slopes;                              /* dy v^T, then dl; */
    LLVMValueRef factors;                   /* the derivative of a soft cap, NULL without */
    LLVMValueRef largest, sum, delta, sink; /* of each query: M, S and then 1 / S, D, the sink */
    LLVMValueRef panels_dl, panels_db; /* [query / 16][key][16]: dl as in slopes, and of the bias */
    LLVMValueRef bias, rows_bias;      /* the bias likewise; some of its rows */
    LLVMValueRef panels_dq, rows_dq;   /* [query / 16][n][16]; rows of a panel */
};

/* Takes scratch; the members before `fetch` are set, except q's and dy's scratch. */
void hcg_gradient_begin(hcg_emit *e, hcg_gradient_tile *t);
/* The gradients of the queries of the tokens row .. row + n - 1 of a group, n at most `tokens`, and
 * what they add to those of the keys from .. to - 1. */
void hcg_gradient_queries(hcg_emit *e, hcg_gradient_tile *t, LLVMValueRef from, LLVMValueRef to);
/* The larger of two scores, lane by lane; NaN is left to the exponentials. */
LLVMValueRef hcg_larger_score(hcg_emit *e, LLVMValueRef a, LLVMValueRef b);
/* e^(l - M), with M the largest; a score of +inf counts as M. */
LLVMValueRef hcg_score_weight(hcg_emit *e, LLVMValueRef l, LLVMValueRef largest);
/* to[0 .. n) += from[0 .. n) */
void hcg_add_row(hcg_emit *e, LLVMValueRef from, LLVMValueRef to, int64_t n);
void hcg_zero_row(hcg_emit *e, LLVMValueRef to, int64_t n);

#endif
