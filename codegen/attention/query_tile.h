/* A tile of queries that meets the keys it sees, one tile of keys after the other, as matrix
 * products (query_tile.c says how). Who makes the queries of a tile, and where the rows of keys
 * and values come from, is the form's own: the cache of ordinary attention, the latent rows that
 * are key and value of all heads, keys and values that are made of them for one tile. */
#ifndef HCG_QUERY_TILE_H
#define HCG_QUERY_TILE_H

#include "codegen/attention/attention.h"

enum { HCG_MOST_PARTS = 2 };

typedef struct hcg_query_part { /* some entries of each query */
    LLVMValueRef q;             /* [T][H][n] */
    int64_t n, line;            /* the first of its lines of a packed query */
} hcg_query_part;

typedef struct hcg_key_rows { /* a row for each key of the tile of keys */
    hir_dtype dtype;          /* f32, but on the matrix unit */
    LLVMValueRef x, next;     /* next: what is prefetched meanwhile */
    LLVMValueRef ahead;       /* how many bytes of it; read on the matrix unit only */
    int64_t ld, line, n;      /* the n lines of a packed query from `line` on meet them; of values
                                 line is 0 and n the number of their entries */
} hcg_key_rows;

typedef struct hcg_query_tile hcg_query_tile;
struct hcg_query_tile {
    const hcg_attention *a; /* of its q, k and v nothing is read here */
    int64_t tokens, keys;   /* most of a tile; keys: a power of two */
    hcg_query_part part[HCG_MOST_PARTS];
    unsigned parts;
    int64_t lines; /* of a packed query */
    struct {       /* the lines that rows[i] will meet */
        int64_t line, n;
    } segment[HCG_MOST_PARTS];
    unsigned segments;
    /* Sets the rows of keys and values of `group` at the positions first .. first + count - 1. */
    void (*fetch)(hcg_emit *e, hcg_query_tile *t);
    void *of; /* for fetch */
    hcg_key_rows rows[HCG_MOST_PARTS], values;
    unsigned sums; /* how many rows a score is a sum of products with */
    /* Where the tile is: the first token of the call and how many, the key/value head. */
    LLVMValueRef group, row, n;
    LLVMValueRef first, count; /* keys of the present tile of keys */
    struct hcg_query_amx *amx; /* the matrix unit's; NULL: products are those of vectors */
    /* the rest is the tile's own */
    LLVMValueRef rows_q, q;         /* scratch: queries as rows, and in panels */
    LLVMValueRef scores, states, o; /* of a strip; of all panels */
    LLVMValueRef rows_o;            /* of a panel */
    LLVMValueRef queries, panels;   /* the last panel is filled up with repetitions */
    LLVMValueRef from, to;          /* keys */
    LLVMValueRef block; /* the multiple of `keys` that the tile of keys is at or cut short of */
};

/* Takes scratch; a, tokens, keys, parts and segments are set. With t->amx behind it, rows are
 * fetched as they are stored, and `ahead` is set. */
void hcg_queries_begin(hcg_emit *e, hcg_query_tile *t);
void hcg_queries_end(hcg_emit *e, const hcg_query_tile *t); /* behind all loops */
/* The queries of the tokens row .. row + n - 1 of a group, n at most `tokens`. */
void hcg_queries_take(hcg_emit *e, hcg_query_tile *t);
/* They have met no keys yet; and then, if there are sinks: nothing but their sinks. */
void hcg_queries_start(hcg_emit *e, const hcg_query_tile *t);
void hcg_queries_take_sinks(hcg_emit *e, const hcg_query_tile *t);
/* The keys from .. to - 1 of those that the tokens see; from: a multiple of `keys`, or the first
 * key that the first token sees. */
void hcg_multiply_queries(hcg_emit *e, hcg_query_tile *t, LLVMValueRef from, LLVMValueRef to);
/* O / S of all queries, to a->out. */
void hcg_queries_leave(hcg_emit *e, hcg_query_tile *t);
/* Instead: O, M and S of each query, to [query] partials (hcg_partial_floats). */
void hcg_queries_leave_partials(hcg_emit *e, hcg_query_tile *t, LLVMValueRef to);

/* The first key that a tile at `row` has to meet. */
LLVMValueRef hcg_queries_first_key(hcg_emit *e, const hcg_query_tile *t);

/* A kernel for several tokens: rows r0 .. r1 - 1 of the groups c0 .. c1 - 1, tile by tile, each
 * over all its keys. */
void hcg_queries_all_rows(hcg_emit *e, hcg_query_tile *t);

/* to[0 .. n) = from[0 .. n) as f32; `to` may be written up to whole vectors. */
void hcg_widen_row(hcg_emit *e, hir_dtype dtype, LLVMValueRef from, LLVMValueRef to,
                   LLVMValueRef n);
/* Room for n floats, and n in whole panels. */
LLVMValueRef hcg_floats(hcg_emit *e, int64_t n);
int64_t hcg_whole_panels(int64_t n);

#endif
