/* Attention of several tokens (T > 1): a tile of queries (tokens times the query heads that share
 * keys) meets a tile of keys, as two matrix products on the micro-kernels of contractions.
 *
 *     S = Q K^T    Q scaled once per tile of queries, keys packed to panels [n][16 keys]
 *     O += P V     P = softmax step of S; values packed to panels [keys][16]
 *
 * Query j of a tile is token j / (H/G), head j % (H/G). The causal limit differs from token to
 * token: softmax gives the scores beyond it no weight. While it works memory would rest: so it asks
 * for the values of this tile and the keys of the next.
 */
#include "codegen/attention.h"
#include "codegen/matrix.h"

enum {
    QUERIES = HCG_QUERIES, /* per tile, unless a group has more heads */
    LINE = 64,             /* bytes */
};

typedef struct tile {
    const hcg_attention *a;
    int64_t tokens;                                        /* most per tile */
    int64_t value_panels;                                  /* of 16 floats in m */
    LLVMValueRef q, wide, keys, values, scores, states, o; /* scratch */
    LLVMValueRef group, row;                               /* key/value head, first token */
    LLVMValueRef rows, queries;                            /* tokens and queries in the tile */
    LLVMValueRef seen;                                     /* keys that the last token sees */
} tile;

static LLVMValueRef mul_const(hcg_emit *e, LLVMValueRef x, int64_t n) {
    return LLVMBuildNSWMul(e->b, x, hcg_i64(e, n), "");
}

static LLVMValueRef plus(hcg_emit *e, LLVMValueRef x, LLVMValueRef y) {
    return LLVMBuildNSWAdd(e->b, x, y, "");
}

static LLVMValueRef at_most(hcg_emit *e, LLVMValueRef n, int64_t most) {
    return hcg_smaller(e, n, hcg_i64(e, most));
}

static LLVMValueRef round_up(hcg_emit *e, LLVMValueRef n, int64_t power_of_two) {
    return LLVMBuildAnd(e->b, plus(e, n, hcg_i64(e, power_of_two - 1)), hcg_i64(e, -power_of_two),
                        "");
}

static void copy_scaled(hcg_emit *e, LLVMValueRef from, LLVMValueRef to, LLVMValueRef n,
                        double scale) {
    LLVMValueRef x = hcg_load(e, HIR_F32, from, n);
    hcg_store(e, to, LLVMBuildFMul(e->b, x, hcg_splat(e, scale), ""), n);
}

/* scale * q of the tile: the query heads of a group stand side by side in a token's row. */
static void scale_queries(hcg_emit *e, const tile *t) {
    const hcg_attention *a = t->a;
    int64_t lanes = e->level->lanes, n = a->per_group * a->n, whole = n / lanes * lanes;
    hcg_loop rows = hcg_loop_begin(e, hcg_i64(e, 0), t->rows, hcg_i64(e, 1), "query_row", 0, NULL);
    LLVMValueRef token = plus(e, t->row, rows.index);
    LLVMValueRef at = plus(e, mul_const(e, token, a->heads * a->n), mul_const(e, t->group, n));
    LLVMValueRef from = hcg_at(e, e->f32, a->q, at);
    LLVMValueRef to = hcg_at(e, e->f32, t->q, mul_const(e, rows.index, n));
    hcg_loop l =
        hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, whole), hcg_i64(e, lanes), "copy", 0, NULL);
    copy_scaled(e, hcg_at(e, e->f32, from, l.index), hcg_at(e, e->f32, to, l.index), NULL,
                a->scale);
    hcg_loop_end(e, &l, NULL);
    LLVMValueRef rest = hcg_i64(e, whole);
    if (whole < n)
        copy_scaled(e, hcg_at(e, e->f32, from, rest), hcg_at(e, e->f32, to, rest),
                    hcg_i64(e, n - whole), a->scale);
    hcg_loop_end(e, &rows, NULL);
}

/* to[0 .. 16) = from[0 .. count), then zeros */
static void copy_panel_row(hcg_emit *e, hir_dtype dtype, LLVMValueRef from, LLVMValueRef to,
                           int64_t count) {
    int64_t lanes = e->level->lanes;
    for (int64_t j = 0; j < HIR_PANEL; j += lanes) {
        LLVMValueRef x = hcg_splat(e, 0), at = hcg_i64(e, j);
        if (j < count)
            x = hcg_load(e, dtype, hcg_at(e, hcg_element(e, dtype), from, at),
                         count - j < lanes ? hcg_i64(e, count - j) : NULL);
        hcg_store(e, hcg_at(e, e->f32, to, at), x, NULL);
    }
}

/* values[panel][s][16] = v[first + s][group][panel * 16 ..], zeros beyond m */
static void pack_values(hcg_emit *e, const tile *t, LLVMValueRef first, LLVMValueRef count) {
    const hcg_attention *a = t->a;
    LLVMValueRef from = hcg_cache_row(e, a, &a->v, t->group, first);
    LLVMValueRef whole = hcg_i64(e, a->m / HIR_PANEL);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), count, hcg_i64(e, 1), "value", 0, NULL);
    LLVMTypeRef elem = hcg_element(e, a->v.dtype);
    LLVMValueRef row = hcg_at(e, elem, from, mul_const(e, l.index, a->m));
    LLVMValueRef to = hcg_at(e, e->f32, t->values, mul_const(e, l.index, HIR_PANEL));
    hcg_loop p = hcg_loop_begin(e, hcg_i64(e, 0), whole, hcg_i64(e, 1), "panel", 0, NULL);
    LLVMValueRef panel = LLVMBuildNSWMul(e->b, p.index, mul_const(e, count, HIR_PANEL), "");
    copy_panel_row(e, a->v.dtype, hcg_at(e, elem, row, mul_const(e, p.index, HIR_PANEL)),
                   hcg_at(e, e->f32, to, panel), HIR_PANEL);
    hcg_loop_end(e, &p, NULL);
    if (a->m % HIR_PANEL) {
        panel = LLVMBuildNSWMul(e->b, whole, mul_const(e, count, HIR_PANEL), "");
        copy_panel_row(e, a->v.dtype, hcg_at(e, elem, row, mul_const(e, whole, HIR_PANEL)),
                       hcg_at(e, e->f32, to, panel), a->m % HIR_PANEL);
    }
    hcg_loop_end(e, &l, NULL);
}

/* to[0 .. n) = from[0 .. n), as f32 */
static void widen(hcg_emit *e, hir_dtype dtype, LLVMValueRef from, LLVMValueRef to,
                  LLVMValueRef n) {
    LLVMTypeRef elem = hcg_element(e, dtype);
    LLVMValueRef lanes = hcg_i64(e, e->level->lanes);
    LLVMValueRef end = plus(e, n, hcg_i64(e, 1 - (int64_t)e->level->lanes));
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), end, lanes, "widen", 0, NULL);
    LLVMValueRef x = hcg_load(e, dtype, hcg_at(e, elem, from, l.index), NULL);
    hcg_store(e, hcg_at(e, e->f32, to, l.index), x, NULL);
    hcg_loop_end(e, &l, NULL);
    hcg_loop rest = hcg_loop_begin(e, l.index, n, hcg_i64(e, 1), "rest", 0, NULL);
    x = hcg_load_scalar(e, dtype, hcg_at(e, elem, from, rest.index));
    hcg_store(e, hcg_at(e, e->f32, to, rest.index), x, NULL);
    hcg_loop_end(e, &rest, NULL);
}

/* keys[panel][n][16] = k[first + panel * 16 ..][group] */
static void pack_keys(hcg_emit *e, const tile *t, LLVMValueRef first, LLVMValueRef count) {
    const hcg_attention *a = t->a;
    LLVMValueRef rows = hcg_cache_row(e, a, &a->k, t->group, first), n = hcg_i64(e, a->n);
    if (a->k.dtype != HIR_F32) {
        widen(e, a->k.dtype, rows, t->wide, mul_const(e, count, a->n));
        rows = t->wide;
    }
    hcg_pack_rows(e, HIR_PANEL, rows, n, count, n, t->keys);
}

typedef struct each_query { /* a loop over tokens, and in it one over heads */
    hcg_loop rows, heads;
    LLVMValueRef number, state, o;
} each_query;

static each_query each_query_begin(hcg_emit *e, const tile *t) {
    each_query q;
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), heads = hcg_i64(e, t->a->per_group);
    q.rows = hcg_loop_begin(e, zero, t->rows, one, "token", 0, NULL);
    q.heads = hcg_loop_begin(e, zero, heads, one, "head", 0, NULL);
    q.number = plus(e, mul_const(e, q.rows.index, t->a->per_group), q.heads.index);
    q.state = hcg_at(e, e->f32, t->states, mul_const(e, q.number, 2));
    q.o = hcg_at(e, e->f32, t->o, mul_const(e, q.number, t->value_panels * HIR_PANEL));
    return q;
}

static void each_query_end(hcg_emit *e, each_query *q) {
    hcg_loop_end(e, &q->heads, NULL);
    hcg_loop_end(e, &q->rows, NULL);
}

/* Query `number` asks for its part of a tile of keys or values, of QUERIES parts. */
static void fetch_part(hcg_emit *e, const hcg_cache *c, LLVMValueRef tile, LLVMValueRef number) {
    int64_t bytes = HCG_KEYS * c->width * (int64_t)hir_dtype_bytes(c->dtype);
    int64_t part = (bytes + QUERIES * LINE - 1) / (QUERIES * LINE) * LINE;
    LLVMValueRef at = hcg_at(e, e->i8, tile, mul_const(e, number, part));
    for (int64_t i = 0; i < part; i += LINE)
        hcg_prefetch(e, at, i);
}

/* Softmax step of every query on `count` keys from `first` on. */
static void softmax_queries(hcg_emit *e, const tile *t, LLVMValueRef first, LLVMValueRef count) {
    LLVMValueRef zero = hcg_i64(e, 0);
    LLVMValueRef before = LLVMBuildNSWSub(e->b, plus(e, t->a->past, t->row), first, "");
    const hcg_attention *a = t->a;
    LLVMValueRef values = hcg_cache_row(e, a, &a->v, t->group, first);
    LLVMValueRef keys = hcg_cache_row(e, a, &a->k, t->group, plus(e, first, hcg_i64(e, HCG_KEYS)));
    each_query q = each_query_begin(e, t);
    fetch_part(e, &a->v, values, q.number);
    fetch_part(e, &a->k, keys, q.number);
    LLVMValueRef valid = plus(e, plus(e, before, q.rows.index), hcg_i64(e, 1));
    valid = hcg_larger(e, hcg_smaller(e, valid, count), zero);
    hcg_softmax s = {.valid = valid, .state = q.state, .o = q.o};
    s.scores = hcg_at(e, e->f32, t->scores, mul_const(e, q.number, HCG_LD_SCORES));
    s.n = round_up(e, count, e->level->lanes);
    s.width = hcg_i64(e, t->value_panels * HIR_PANEL);
    hcg_softmax_tile(e, &s);
    each_query_end(e, &q);
}

static void emit_keys(hcg_emit *e, const tile *t, LLVMValueRef first) {
    const hcg_attention *a = t->a;
    LLVMValueRef n = hcg_i64(e, a->n), ld = hcg_i64(e, HCG_LD_SCORES);
    LLVMValueRef count = at_most(e, LLVMBuildNSWSub(e->b, t->seen, first, ""), HCG_KEYS);
    pack_keys(e, t, first, count);
    hcg_gemm qk = {.dtype = HIR_F32, .x = t->q, .ldx = n, .rows = t->queries, .k = n, .b = t->keys};
    qk.panels = LLVMBuildLShr(e->b, round_up(e, count, HIR_PANEL), hcg_i64(e, 4), "");
    qk.c = t->scores, qk.ldc = ld;
    hcg_call_gemm(e, &qk);
    softmax_queries(e, t, first, count);
    pack_values(e, t, first, count);
    hcg_gemm pv = {.dtype = HIR_F32,
                   .x = t->scores,
                   .ldx = ld,
                   .rows = t->queries,
                   .k = count,
                   .b = t->values};
    pv.panels = hcg_i64(e, t->value_panels);
    pv.c = t->o, pv.ldc = hcg_i64(e, t->value_panels * HIR_PANEL), pv.accumulate = true;
    hcg_call_gemm(e, &pv);
}

/* Tokens row .. row + rows - 1 of one group. */
static void emit_tile(hcg_emit *e, const tile *t) {
    const hcg_attention *a = t->a;
    each_query start = each_query_begin(e, t);
    hcg_softmax_start(e, start.state, start.o, hcg_i64(e, t->value_panels * HIR_PANEL));
    each_query_end(e, &start);
    scale_queries(e, t);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), t->seen, hcg_i64(e, HCG_KEYS), "keys", 0, NULL);
    emit_keys(e, t, l.index);
    hcg_loop_end(e, &l, NULL);
    each_query end = each_query_begin(e, t);
    LLVMValueRef token = plus(e, t->row, end.rows.index);
    LLVMValueRef head = plus(e, mul_const(e, t->group, a->per_group), end.heads.index);
    LLVMValueRef at = plus(e, mul_const(e, token, a->heads), head);
    hcg_softmax_end(e, end.state, end.o, a->m, hcg_at(e, e->f32, a->out, mul_const(e, at, a->m)));
    each_query_end(e, &end);
}

static LLVMValueRef floats(hcg_emit *e, uint64_t n) {
    return hcg_scratch(e, n * 4);
}

static void make_scratch(hcg_emit *e, tile *t) {
    const hcg_attention *a = t->a;
    uint64_t queries = (uint64_t)(t->tokens * a->per_group), n = (uint64_t)a->n;
    uint64_t width = (uint64_t)t->value_panels * HIR_PANEL;
    t->q = floats(e, queries * n);
    if (a->k.dtype != HIR_F32) t->wide = floats(e, HCG_KEYS * n);
    t->keys = floats(e, HCG_KEYS * n);
    t->values = floats(e, HCG_KEYS * width);
    t->scores = floats(e, queries * HCG_LD_SCORES);
    t->states = floats(e, queries * 2);
    t->o = floats(e, queries * width);
}

void hcg_attention_many(hcg_emit *e, const hcg_attention *a) {
    tile t = {.a = a, .tokens = QUERIES / a->per_group};
    if (t.tokens < 1) t.tokens = 1;
    t.value_panels = (a->m + HIR_PANEL - 1) / HIR_PANEL;
    make_scratch(e, &t);
    hcg_loop groups = hcg_loop_begin(e, e->c0, e->c1, hcg_i64(e, 1), "group", 0, NULL);
    hcg_loop rows = hcg_loop_begin(e, e->r0, e->r1, hcg_i64(e, t.tokens), "rows", 0, NULL);
    t.group = groups.index, t.row = rows.index;
    t.rows = at_most(e, LLVMBuildNSWSub(e->b, e->r1, rows.index, ""), t.tokens);
    t.queries = mul_const(e, t.rows, a->per_group);
    t.seen = plus(e, plus(e, a->past, rows.index), t.rows);
    emit_tile(e, &t);
    hcg_loop_end(e, &rows, NULL);
    hcg_loop_end(e, &groups, NULL);
}
