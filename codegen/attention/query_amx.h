/* A tile of queries on the matrix unit (query_tile.h, amx/products.h): the functions that replace
 * the products of vectors. */
#ifndef HCG_QUERY_AMX_H
#define HCG_QUERY_AMX_H

#include "codegen/attention/query_tile.h"

enum {
    HCG_AMX_KEYS = 32,  /* keys in a step of P V; keys are read from multiples of it on */
    HCG_AMX_PANELS = 2, /* panels of a strip */
};

/* Whether attention of a level's many queries goes through its matrix unit. */
bool hcg_attends_by_amx(const hcg_level *level);

/* Some panels of a tile of queries, and the keys of a tile of keys that they attend to. */
typedef struct hcg_amx_strip {
    LLVMValueRef number, panel, panels; /* the strip's number; its first panel; how many */
    LLVMValueRef from, to;              /* keys of the tile; from: a multiple of HCG_AMX_KEYS */
    LLVMValueRef later;                 /* 0: o holds nothing yet */
} hcg_amx_strip;

/* Takes scratch; t->amx is to be set afterwards, the parts and segments before. */
void hcg_amx_queries_begin(hcg_emit *e, hcg_query_tile *t);
void hcg_amx_queries_end(hcg_emit *e);
/* Makes tiles of the queries in the panels of t->q. */
void hcg_amx_take_queries(hcg_emit *e, const hcg_query_tile *t);
/* Makes tiles of the rows of t->rows and t->values, where they are no tiles as they lie. */
void hcg_amx_take_keys(hcg_emit *e, const hcg_query_tile *t);
/* Writes the scores S of the strip to t->scores. */
void hcg_amx_scores(hcg_emit *e, const hcg_query_tile *t, const hcg_amx_strip *s);
/* To be called before the softmax step, and after it: the latter makes O += P V. */
void hcg_amx_keep_maxima(hcg_emit *e, const hcg_query_tile *t, const hcg_amx_strip *s);
void hcg_amx_values(hcg_emit *e, const hcg_query_tile *t, const hcg_amx_strip *s);

#endif
