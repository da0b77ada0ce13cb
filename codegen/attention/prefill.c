/* Attention of several tokens (T > 1): tiles of queries of one key/value head meet the rows of the
 * cache (query_tile.h). Rows are used where they lie; vectors want those of 16 bits widened, once
 * for all queries of the tile. */
#include "codegen/attention/query_tile.h"
#include "codegen/emit/arithmetic.h"

typedef struct cached { /* keys and values */
    const hcg_attention *a;
    LLVMValueRef wide_k, wide_v; /* scratch: those of 16 bits as f32 */
} cached;

/* Rows of the tile of keys: where they lie, or as f32 in `wide`. Behind them the next ones lie; who
 * asks for as many bytes as the rows of this tile take as f32 asks for those of 16 bits and as many
 * behind them. */
static hcg_key_rows rows_of(hcg_emit *e, const hcg_query_tile *t, const hcg_cache *c,
                            LLVMValueRef wide) {
    const cached *of = t->of;
    hcg_key_rows rows = {.dtype = c->dtype, .ld = c->width, .n = c->width};
    LLVMValueRef next = hcg_add(e, t->first, hcg_i64(e, t->keys));
    rows.x = hcg_cache_row(e, of->a, c, t->group, t->first);
    rows.next = hcg_cache_row(e, of->a, c, t->group, next);
    rows.ahead = hcg_i64(e, t->keys * c->width * (int64_t)hir_dtype_bytes(c->dtype));
    if (c->dtype == HIR_F32 || t->amx) return rows;
    hcg_widen_row(e, c->dtype, rows.x, wide, hcg_mul_const(e, t->count, c->width));
    rows.x = wide, rows.dtype = HIR_F32;
    return rows;
}

static void fetch(hcg_emit *e, hcg_query_tile *t) {
    const cached *of = t->of;
    t->rows[0] = rows_of(e, t, &of->a->k, of->wide_k), t->sums = 1;
    t->values = rows_of(e, t, &of->a->v, of->wide_v);
}

void hcg_attention_prefill(hcg_emit *e, const hcg_attention *a) {
    cached of = {.a = a};
    hcg_query_tile t = {.a = a, .keys = HCG_KEYS, .parts = 1, .fetch = fetch, .of = &of};
    t.tokens = HIR_QUERY_TILE / a->per_group;
    if (t.tokens < 1) t.tokens = 1; /* a group of more heads */
    t.part[0] = (hcg_query_part){.q = a->q, .n = a->n};
    t.segment[0].n = a->n, t.segments = 1;
    hcg_queries_begin(e, &t);
    if (a->k.dtype != HIR_F32 && !t.amx) of.wide_k = hcg_floats(e, t.keys * a->n);
    if (a->v.dtype != HIR_F32 && !t.amx) of.wide_v = hcg_floats(e, t.keys * a->m);
    hcg_queries_all_rows(e, &t);
}
