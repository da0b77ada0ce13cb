/* Attention of several tokens (T > 1): a tile of queries (tokens times the query heads that share
 * keys) meets a tile of keys, strip by strip of a few panels of 16 queries, as two matrix products.
 * Queries stand in lanes throughout:
 *
 *     S = K Q^T     [keys][16]     K as it lies in the cache; Q scaled and packed once per tile
 *     P             softmax step of S, in place: maxima and sums need no shuffles
 *     O += V^T P    [m][16]        V as it lies; O is transposed once, at the end
 *
 * so neither keys nor values are packed, however often they are met; only those of 16 bits are
 * widened. A strip's S fits the L1.
 *
 * Query j of a tile is token j / (H/G), head j % (H/G). The causal limit differs from token to
 * token: a strip takes the keys that its last token sees, and hides from each query those behind
 * its own.
 */
#include "codegen/contract/matrix.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/sequence/attention.h"

typedef struct tile {
    const hcg_attention *a;
    int64_t tokens;                 /* most per tile */
    LLVMValueRef rows_q, q;         /* scratch: queries as rows, and in panels */
    LLVMValueRef wide_k, wide_v;    /* of 16 bits as f32 */
    LLVMValueRef scores, states, o; /* of a strip; of all panels */
    LLVMValueRef rows_o;            /* of a panel */
    LLVMValueRef group, row;        /* key/value head, first token */
    LLVMValueRef rows, queries;     /* tokens and queries in the tile */
    LLVMValueRef panels;            /* of queries, the last filled up with repetitions */
    LLVMValueRef seen;              /* keys that the last token sees */
    LLVMValueRef keys, values;      /* rows of the tile of keys at `first` */
    LLVMValueRef next_keys, next_values;
    LLVMValueRef first, count;
} tile;

static LLVMValueRef at_most(hcg_emit *e, LLVMValueRef n, int64_t most) {
    return hcg_smaller(e, n, hcg_i64(e, most));
}

/* x / d for constants d > 0 and x >= 0 */
static LLVMValueRef over(hcg_emit *e, LLVMValueRef x, int64_t d) {
    return LLVMBuildUDiv(e->b, x, hcg_i64(e, d), "");
}

/* scale * q of the tile: the query heads of a group stand side by side in a token's row. */
static void take_queries(hcg_emit *e, const tile *t) {
    const hcg_attention *a = t->a;
    int64_t n = a->per_group * a->n;
    hcg_loop rows = hcg_loop_begin(e, hcg_i64(e, 0), t->rows, hcg_i64(e, 1), "query_row", 0, NULL);
    LLVMValueRef token = hcg_add(e, t->row, rows.index);
    LLVMValueRef at =
        hcg_add(e, hcg_mul_const(e, token, a->heads * a->n), hcg_mul_const(e, t->group, n));
    LLVMValueRef to = hcg_at(e, e->f32, t->rows_q, hcg_mul_const(e, rows.index, n));
    hcg_scale_row(e, hcg_at(e, e->f32, a->q, at), to, n, hcg_splat(e, a->scale));
    hcg_loop_end(e, &rows, NULL);
    LLVMValueRef length = hcg_i64(e, a->n);
    hcg_pack_rows(e, HIR_PANEL, t->rows_q, length, t->queries, length, t->q);
}

/* to[0 .. n) = from[0 .. n), as f32 */
static void widen(hcg_emit *e, hir_dtype dtype, LLVMValueRef from, LLVMValueRef to,
                  LLVMValueRef n) {
    LLVMTypeRef elem = hcg_element(e, dtype);
    LLVMValueRef lanes = hcg_i64(e, e->level->lanes);
    LLVMValueRef end = hcg_add(e, n, hcg_i64(e, 1 - (int64_t)e->level->lanes));
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), end, lanes, "widen", 0, NULL);
    LLVMValueRef x = hcg_load(e, dtype, hcg_at(e, elem, from, l.index), NULL);
    hcg_store(e, hcg_at(e, e->f32, to, l.index), x, NULL);
    hcg_loop_end(e, &l, NULL);
    hcg_loop rest = hcg_loop_begin(e, l.index, n, hcg_i64(e, 1), "rest", 0, NULL);
    x = hcg_load_scalar(e, dtype, hcg_at(e, elem, from, rest.index));
    hcg_store(e, hcg_at(e, e->f32, to, rest.index), x, NULL);
    hcg_loop_end(e, &rest, NULL);
}

/* Rows of the tile of keys: where they lie, or as f32 in `wide`. */
static LLVMValueRef cache_rows(hcg_emit *e, const tile *t, const hcg_cache *c, LLVMValueRef wide) {
    LLVMValueRef rows = hcg_cache_row(e, t->a, c, t->group, t->first);
    if (c->dtype == HIR_F32) return rows;
    widen(e, c->dtype, rows, wide, hcg_mul_const(e, t->count, c->width));
    return wide;
}

/* Where the next tile of keys begins. Who asks for as many bytes as the rows of this one take as
 * f32 asks for those of 16 bits and as many behind them. */
static LLVMValueRef next_rows(hcg_emit *e, const tile *t, const hcg_cache *c) {
    return hcg_cache_row(e, t->a, c, t->group, hcg_add(e, t->first, hcg_i64(e, HCG_KEYS)));
}

/* A loop that runs once or, unless `x` is zero or not as asked, never. */
static hcg_loop once_if(hcg_emit *e, LLVMIntPredicate is, LLVMValueRef x, const char *name) {
    LLVMValueRef times = LLVMBuildICmp(e->b, is, x, hcg_i64(e, 0), "");
    times = LLVMBuildZExt(e->b, times, e->i64, "");
    return hcg_loop_begin(e, hcg_i64(e, 0), times, hcg_i64(e, 1), name, 0, NULL);
}

/* Keys of this tile of keys that the token of a query sees. */
static LLVMValueRef seen_by(hcg_emit *e, const tile *t, LLVMValueRef query) {
    LLVMValueRef own =
        hcg_sub(e, hcg_add(e, t->a->past, t->row), t->first); /* of the first token */
    query = hcg_smaller(e, query, hcg_sub(e, t->queries, hcg_i64(e, 1)));
    LLVMValueRef n = hcg_add(e, hcg_add(e, own, over(e, query, t->a->per_group)), hcg_i64(e, 1));
    return hcg_larger(e, hcg_smaller(e, n, t->count), hcg_i64(e, 0));
}

/* Panels `panel` .. of the tile, `n` of them. */
typedef struct strip {
    LLVMValueRef panel, n, query; /* its first query */
    LLVMValueRef count;           /* keys that its last token sees; in emit_strip not 0 */
    LLVMValueRef hidden;          /* the first that its first token does not */
} strip;

static LLVMValueRef last_of_panel(hcg_emit *e, LLVMValueRef panel) {
    return hcg_add(e, hcg_mul_const(e, panel, HIR_PANEL), hcg_i64(e, HIR_PANEL - 1));
}

static strip strip_of(hcg_emit *e, const tile *t, LLVMValueRef panel, int64_t most) {
    strip s = {.panel = panel, .n = at_most(e, hcg_sub(e, t->panels, panel), most)};
    s.query = hcg_mul_const(e, panel, HIR_PANEL);
    LLVMValueRef last = hcg_sub(e, hcg_add(e, panel, s.n), hcg_i64(e, 1));
    s.count = seen_by(e, t, last_of_panel(e, last));
    s.hidden = seen_by(e, t, s.query);
    return s;
}

static hcg_softmax_strip softmax_of(hcg_emit *e, const tile *t, LLVMValueRef panel,
                                    LLVMValueRef n) {
    hcg_softmax_strip s = {.panels = n, .scores = t->scores, .per_group = t->a->per_group};
    s.states = hcg_at(e, e->f32, t->states, hcg_mul_const(e, panel, 2 * HIR_PANEL));
    s.o = hcg_at(e, e->f32, t->o, hcg_mul_const(e, panel, t->a->m * HIR_PANEL));
    s.lines = hcg_i64(e, t->a->m);
    return s;
}

/* Scores of the keys from .. to - 1 for the panels from `panel` of the strip on. */
static void emit_scores(hcg_emit *e, const tile *t, const strip *s, LLVMValueRef panel,
                        LLVMValueRef from, LLVMValueRef to) {
    const int64_t n = t->a->n, ldb = n * HIR_PANEL;
    LLVMValueRef k = hcg_i64(e, n), skip = hcg_mul_const(e, from, n);
    hcg_strip kq = {
        .ldx = k, .k = k, .rows = hcg_sub(e, to, from), .panels = hcg_sub(e, s->n, panel)};
    kq.x = hcg_at(e, e->f32, t->keys, skip), kq.next = hcg_at(e, e->f32, t->next_keys, skip);
    kq.b = hcg_at(e, e->f32, t->q, hcg_mul_const(e, hcg_add(e, s->panel, panel), ldb));
    kq.ldb = hcg_i64(e, ldb), kq.ldc = hcg_i64(e, HCG_STRIP_FLOATS);
    LLVMValueRef c =
        hcg_add(e, hcg_mul_const(e, panel, HCG_STRIP_FLOATS), hcg_mul_const(e, from, HIR_PANEL));
    kq.c = hcg_at(e, e->f32, t->scores, c), kq.accumulate = hcg_i64(e, 0);
    hcg_call_strip(e, &kq);
}

/* All that some query of a panel sees. Most tiles of keys are seen by all panels, which is one
 * product; of the last keys of a strip each panel sees more than the one before. */
static void emit_seen_scores(hcg_emit *e, const tile *t, const strip *s) {
    LLVMValueRef zero = hcg_i64(e, 0), done = zero;
    hcg_loop l = hcg_loop_begin(e, zero, s->n, hcg_i64(e, 1), "seen", 1, &done);
    LLVMValueRef to = seen_by(e, t, last_of_panel(e, hcg_add(e, s->panel, l.index)));
    hcg_loop more = once_if(e, LLVMIntNE, hcg_sub(e, to, l.carried[0]), "more");
    emit_scores(e, t, s, l.index, l.carried[0], to);
    hcg_loop_end(e, &more, NULL);
    hcg_loop_end(e, &l, &to);
}

static void emit_strip(hcg_emit *e, const tile *t, const strip *s) {
    const hcg_attention *a = t->a;
    hcg_softmax_strip softmax = softmax_of(e, t, s->panel, s->n);
    LLVMValueRef m = hcg_i64(e, a->m);
    LLVMValueRef later = LLVMBuildICmp(e->b, LLVMIntSGT, t->first, hcg_i64(e, 0), "");
    softmax.later = LLVMBuildZExt(e->b, later, e->i64, "");
    softmax.count = s->count, softmax.hidden = s->hidden;
    /* key k is that of token past + row + q / (H/G) if it is not before (k - own) (H/G) */
    LLVMValueRef own = hcg_sub(e, hcg_add(e, a->past, t->row), t->first);
    softmax.own = hcg_add(e, hcg_mul_const(e, own, a->per_group), s->query);
    emit_seen_scores(e, t, s);
    hcg_softmax_strip_tile(e, &softmax);
    hcg_strip vp = {.across = a->m, .x = t->values, .ldx = m, .rows = m, .k = s->count};
    vp.panels = s->n, vp.b = t->scores, vp.ldb = hcg_i64(e, HCG_STRIP_FLOATS);
    vp.c = softmax.o, vp.ldc = hcg_i64(e, a->m * HIR_PANEL), vp.accumulate = softmax.later;
    vp.next = t->next_values;
    hcg_call_strip(e, &vp);
}

/* A loop over the panels of the tile, `step` at a time. */
static hcg_loop each_strip(hcg_emit *e, const tile *t, int64_t step) {
    return hcg_loop_begin(e, hcg_i64(e, 0), t->panels, hcg_i64(e, step), "strip", 0, NULL);
}

static void emit_keys(hcg_emit *e, tile *t, LLVMValueRef first) {
    const hcg_attention *a = t->a;
    const int64_t most = hcg_strip_panels(e->level);
    t->first = first, t->count = at_most(e, hcg_sub(e, t->seen, first), HCG_KEYS);
    t->keys = cache_rows(e, t, &a->k, t->wide_k);
    t->values = cache_rows(e, t, &a->v, t->wide_v);
    t->next_keys = next_rows(e, t, &a->k), t->next_values = next_rows(e, t, &a->v);
    hcg_loop l = each_strip(e, t, most);
    strip s = strip_of(e, t, l.index, most);
    hcg_loop some = once_if(e, LLVMIntNE, s.count, "some"); /* or they are behind all of its own */
    emit_strip(e, t, &s);
    hcg_loop_end(e, &some, NULL);
    hcg_loop_end(e, &l, NULL);
}

/* out of the queries of a panel */
static void leave_panel(hcg_emit *e, const tile *t, LLVMValueRef panel) {
    const hcg_attention *a = t->a;
    LLVMValueRef from = hcg_at(e, e->f32, t->o, hcg_mul_const(e, panel, a->m * HIR_PANEL));
    LLVMValueRef query = hcg_mul_const(e, panel, HIR_PANEL);
    hcg_unpack_panel(e, from, hcg_i64(e, a->m), t->rows_o);
    LLVMValueRef n = at_most(e, hcg_sub(e, t->queries, query), HIR_PANEL);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), n, hcg_i64(e, 1), "query", 0, NULL);
    LLVMValueRef number = hcg_add(e, query, l.index), token = over(e, number, a->per_group);
    LLVMValueRef head = hcg_sub(e, number, hcg_mul_const(e, token, a->per_group));
    head = hcg_add(e, hcg_mul_const(e, t->group, a->per_group), head);
    LLVMValueRef at = hcg_add(e, hcg_mul_const(e, hcg_add(e, t->row, token), a->heads), head);
    hcg_scale_row(e, hcg_at(e, e->f32, t->rows_o, hcg_mul_const(e, l.index, a->m)),
                  hcg_at(e, e->f32, a->out, hcg_mul_const(e, at, a->m)), a->m, hcg_splat(e, 1));
    hcg_loop_end(e, &l, NULL);
}

/* Tokens row .. row + rows - 1 of one group. */
static void emit_tile(hcg_emit *e, tile *t) {
    hcg_softmax_strip all = softmax_of(e, t, hcg_i64(e, 0), t->panels);
    hcg_softmax_strip_start(e, &all);
    take_queries(e, t);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), t->seen, hcg_i64(e, HCG_KEYS), "keys", 0, NULL);
    emit_keys(e, t, l.index);
    hcg_loop_end(e, &l, NULL);
    hcg_softmax_strip_end(e, &all);
    hcg_loop panels = each_strip(e, t, 1);
    leave_panel(e, t, panels.index);
    hcg_loop_end(e, &panels, NULL);
}

static LLVMValueRef floats(hcg_emit *e, int64_t n) {
    return hcg_scratch(e, (uint64_t)n * 4);
}

static void make_scratch(hcg_emit *e, tile *t) {
    const hcg_attention *a = t->a;
    int64_t queries = (t->tokens * a->per_group + HIR_PANEL - 1) / HIR_PANEL * HIR_PANEL;
    t->rows_q = floats(e, queries * a->n);
    t->q = floats(e, queries * a->n);
    if (a->k.dtype != HIR_F32) t->wide_k = floats(e, HCG_KEYS * a->n);
    if (a->v.dtype != HIR_F32) t->wide_v = floats(e, HCG_KEYS * a->m);
    t->scores = floats(e, hcg_strip_panels(e->level) * HCG_STRIP_FLOATS);
    t->states = floats(e, queries * 2);
    t->o = floats(e, queries * a->m);
    t->rows_o = floats(e, HIR_PANEL * a->m);
}

void hcg_attention_prefill(hcg_emit *e, const hcg_attention *a) {
    tile t = {.a = a, .tokens = HIR_QUERY_TILE / a->per_group};
    if (t.tokens < 1) t.tokens = 1; /* a group of more heads */
    make_scratch(e, &t);
    hcg_loop groups = hcg_loop_begin(e, e->c0, e->c1, hcg_i64(e, 1), "group", 0, NULL);
    hcg_loop rows = hcg_loop_begin(e, e->r0, e->r1, hcg_i64(e, t.tokens), "rows", 0, NULL);
    t.group = groups.index, t.row = rows.index;
    t.rows = at_most(e, hcg_sub(e, e->r1, rows.index), t.tokens);
    t.queries = hcg_mul_const(e, t.rows, a->per_group);
    t.panels = over(e, hcg_add(e, t.queries, hcg_i64(e, HIR_PANEL - 1)), HIR_PANEL);
    t.seen = hcg_add(e, hcg_add(e, a->past, rows.index), t.rows);
    emit_tile(e, &t);
    hcg_loop_end(e, &rows, NULL);
    hcg_loop_end(e, &groups, NULL);
}
