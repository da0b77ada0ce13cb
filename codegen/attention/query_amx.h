/* A tile of queries on the matrix unit (query_tile.h, amx_products.h): what stands in the place of
 * the products of vectors. */
#ifndef HCG_QUERY_AMX_H
#define HCG_QUERY_AMX_H

#include "codegen/attention/query_tile.h"

enum {
    HCG_AMX_KEYS = 32,  /* in a step of P V: keys are taken from multiples of it on */
    HCG_AMX_PANELS = 2, /* of a strip */
};

/* Whether attention of a level's many queries goes through its matrix unit. */
bool hcg_attends_by_amx(const hcg_level *level);

/* Some panels of a tile of queries and the keys of a tile of keys that they take. */
typedef struct hcg_amx_strip {
    LLVMValueRef number, panel, panels; /* of the strip; its first; how many */
    LLVMValueRef from, to;              /* keys of the tile; from: a multiple of HCG_AMX_KEYS */
    LLVMValueRef later;                 /* 0: o holds nothing yet */
} hcg_amx_strip;

/* Takes scratch, where t->amx is to be set; the parts and segments are. */
void hcg_amx_queries_begin(hcg_emit *e, hcg_query_tile *t);
void hcg_amx_queries_end(hcg_emit *e);
/* The queries that stand in the panels of t->q, as tiles. */
void hcg_amx_take_queries(hcg_emit *e, const hcg_query_tile *t);
/* The rows of t->rows and t->values, as tiles where they are none as they lie. */
void hcg_amx_take_keys(hcg_emit *e, const hcg_query_tile *t);
/* S of the strip, to t->scores. */
void hcg_amx_scores(hcg_emit *e, const hcg_query_tile *t, const hcg_amx_strip *s);
/* Before the softmax step, and behind it: O += P V. */
void hcg_amx_keep_maxima(hcg_emit *e, const hcg_query_tile *t, const hcg_amx_strip *s);
void hcg_amx_values(hcg_emit *e, const hcg_query_tile *t, const hcg_amx_strip *s);

#endif
