/* A tile of queries that attends to the keys it sees, one tile of keys after the other, as matrix
 * products (query_tile.c says how). Each kernel form decides what the queries of a tile are and
 * where the rows of keys and values come from: the cache of ordinary attention, the latent rows
 * that are key and value of all heads, or keys and values that are made of latent rows for one
 * tile. */
#ifndef HCG_QUERY_TILE_H
#define HCG_QUERY_TILE_H

#include "codegen/attention/attention.h"

enum { HCG_MOST_PARTS = 2 };

typedef struct hcg_query_part { /* some entries of each query */
    LLVMValueRef q;             /* [T][H][n] */
    int64_t n, line;            /* line: the first of its lines in a packed query */
} hcg_query_part;

typedef struct hcg_key_rows { /* a row for each key of the tile of keys */
    hir_dtype dtype;          /* f32, except on the matrix unit */
    LLVMValueRef x, next;     /* next: the rows that are prefetched meanwhile */
    LLVMValueRef ahead;       /* how many bytes of them; read on the matrix unit only */
    int64_t ld, line, n;      /* rows are multiplied with the n lines of a packed query from `line`
                                 on; for values line is 0 and n is their number of entries */
} hcg_key_rows;

typedef struct hcg_query_tile hcg_query_tile;
struct hcg_query_tile {
    const hcg_attention *a; /* its q, k and v are not read here */
    int64_t tokens, keys;   /* the most of a tile; keys: a multiple of 4 */
    int64_t width;          /* queries of a panel, set by hcg_queries_begin */
    hcg_query_part part[HCG_MOST_PARTS];
    unsigned parts;
    int64_t lines; /* lines of a packed query */
    struct {       /* the lines that rows[i] will be multiplied with */
        int64_t line, n;
    } segment[HCG_MOST_PARTS];
    unsigned segments;
    /* Sets the rows of keys and values of `group` at the positions first .. first + count - 1. */
    void (*fetch)(hcg_emit *e, hcg_query_tile *t);
    void *of; /* for fetch */
    hcg_key_rows rows[HCG_MOST_PARTS], values;
    unsigned sums; /* a score is the sum of products with so many rows */
    /* Where the tile is: the first token of the call and how many, the key/value head. */
    LLVMValueRef group, row, n;
    LLVMValueRef first, count; /* keys of the present tile of keys */
    struct hcg_query_amx *amx; /* state of the matrix unit; NULL: vectors make the products */
    /* The rest is set by the functions below. */
    LLVMValueRef rows_q, q;         /* scratch: queries as rows, and in panels */
    LLVMValueRef scores, states, o; /* scores of a strip; states and O of all panels */
    LLVMValueRef rows_o;            /* O of a panel */
    LLVMValueRef queries, panels;   /* the last panel is filled up with repetitions */
    LLVMValueRef from, to;          /* keys */
    LLVMValueRef block; /* where the tile of keys begins, rounded down to a multiple of `keys` */
};

/* The most keys of a tile. */
int64_t hcg_most_keys(const hcg_level *level);
/* Takes scratch; a, tokens, keys, parts and segments are set. If it sets t->amx, `fetch` gives
 * rows as they are stored, and has to set `ahead`. */
void hcg_queries_begin(hcg_emit *e, hcg_query_tile *t);
void hcg_queries_end(hcg_emit *e, const hcg_query_tile *t); /* to be called after all loops */
/* Reads the queries of the tokens row .. row + n - 1 of a group, n at most `tokens`. */
void hcg_queries_take(hcg_emit *e, hcg_query_tile *t);
/* Starts the queries without any key; afterwards, if there are sinks, `take_sinks` adds those. */
void hcg_queries_start(hcg_emit *e, const hcg_query_tile *t);
void hcg_queries_take_sinks(hcg_emit *e, const hcg_query_tile *t);
/* Attends to the keys from .. to - 1 of those that the tokens see; from: a multiple of `keys`, or
 * the first key that the first token sees. */
void hcg_multiply_queries(hcg_emit *e, hcg_query_tile *t, LLVMValueRef from, LLVMValueRef to);
/* Writes O / S of all queries to a->out. */
void hcg_queries_leave(hcg_emit *e, hcg_query_tile *t);
/* Writes, instead, the partial O, M and S of each query to [query] partials
 * (hcg_partial_floats). */
void hcg_queries_leave_partials(hcg_emit *e, hcg_query_tile *t, LLVMValueRef to);

/* The first key that a tile of queries at `row` has to read. */
LLVMValueRef hcg_queries_first_key(hcg_emit *e, const hcg_query_tile *t);

/* The body of a kernel for several tokens: rows r0 .. r1 - 1 of the groups c0 .. c1 - 1, tile by
 * tile, each over all its keys. */
void hcg_queries_all_rows(hcg_emit *e, hcg_query_tile *t);

/* Some panels of a tile whose scores of the keys first .. first + count - 1 lie at t->scores. */
typedef struct hcg_scored_panels {
    LLVMValueRef panel, n, query; /* query: the first one of panel number `panel` of the tile */
    LLVMValueRef first, count;
} hcg_scored_panels;
/* Adds the carried scores to those of the panels, which become scores in units of ln 2, and carries
 * on the sums (carried.c). */
void hcg_carry_panels(hcg_emit *e, const hcg_query_tile *t, const hcg_scored_panels *s);

/* to[0 .. n) = from[0 .. n) as f32; `to` may be written up to whole vectors. */
void hcg_widen_row(hcg_emit *e, hir_dtype dtype, LLVMValueRef from, LLVMValueRef to,
                   LLVMValueRef n);
/* Scratch for n floats, and n rounded up to whole panels. */
LLVMValueRef hcg_floats(hcg_emit *e, int64_t n);
int64_t hcg_whole_panels(int64_t n);

#endif
