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
 * its own. With a window it begins with the first key that its first token sees, rounded down to
 * KEYS_TOGETHER, and hides from each query those before its window. Tiles of keys begin at
 * multiples of HCG_KEYS all the same, so that a query's sums do not depend on the tokens that it
 * meets them with.
 */
#include "codegen/contract/matrix.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/sequence/attention.h"

enum { KEYS_TOGETHER = 4 }; /* what the softmax step sums at once (emit/softmax.c) */

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
    LLVMValueRef block; /* the multiple of HCG_KEYS that the tile of keys is at or cut short of */
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

/* Keys of this tile of keys before the window of a query's token. */
static LLVMValueRef before_window(hcg_emit *e, const tile *t, LLVMValueRef query) {
    query = hcg_smaller(e, query, hcg_sub(e, t->queries, hcg_i64(e, 1)));
    LLVMValueRef token = hcg_add(e, t->row, over(e, query, t->a->per_group));
    LLVMValueRef first = hcg_first_seen(e, t->a, hcg_add(e, t->a->past, token));
    first = hcg_sub(e, first, t->first);
    return hcg_larger(e, hcg_smaller(e, first, t->count), hcg_i64(e, 0));
}

static LLVMValueRef rounded_down(hcg_emit *e, LLVMValueRef x, int64_t to) {
    return LLVMBuildAnd(e->b, x, hcg_i64(e, -to), "");
}

/* Panels `panel` .. of the tile, `n` of them. */
typedef struct strip {
    LLVMValueRef panel, n, query; /* its first query */
    LLVMValueRef count;           /* keys that its last token sees; in emit_strip not 0 */
    LLVMValueRef hidden;          /* the first that its first token does not */
    /* with a window, else NULL: */
    LLVMValueRef from; /* the first that is taken, not behind the first that its first token sees */
    LLVMValueRef shown; /* the first that its last token sees */
} strip;

/* Key number k of the tile, as one of those that the strip takes. */
static LLVMValueRef of_strip(hcg_emit *e, const strip *s, LLVMValueRef k) {
    return s->from ? hcg_sub(e, k, s->from) : k;
}

static LLVMValueRef last_of_panel(hcg_emit *e, LLVMValueRef panel) {
    return hcg_add(e, hcg_mul_const(e, panel, HIR_PANEL), hcg_i64(e, HIR_PANEL - 1));
}

static strip strip_of(hcg_emit *e, const tile *t, LLVMValueRef panel, int64_t most) {
    strip s = {.panel = panel, .n = at_most(e, hcg_sub(e, t->panels, panel), most)};
    s.query = hcg_mul_const(e, panel, HIR_PANEL);
    LLVMValueRef last = hcg_sub(e, hcg_add(e, panel, s.n), hcg_i64(e, 1));
    s.count = seen_by(e, t, last_of_panel(e, last));
    s.hidden = seen_by(e, t, s.query);
    if (!t->a->window) return s;
    s.from = rounded_down(e, before_window(e, t, s.query), KEYS_TOGETHER);
    s.shown = before_window(e, t, last_of_panel(e, last));
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
    LLVMValueRef c = hcg_add(e, hcg_mul_const(e, panel, HCG_STRIP_FLOATS),
                             hcg_mul_const(e, of_strip(e, s, from), HIR_PANEL));
    kq.c = hcg_at(e, e->f32, t->scores, c), kq.accumulate = hcg_i64(e, 0);
    hcg_call_strip(e, &kq);
}

/* All that some query of a panel sees. Most tiles of keys are seen by all panels, which is one
 * product; of the last keys of a strip each panel sees more than the one before. */
static void emit_seen_scores(hcg_emit *e, const tile *t, const strip *s) {
    LLVMValueRef zero = hcg_i64(e, 0), done = s->from ? s->from : zero;
    hcg_loop l = hcg_loop_begin(e, zero, s->n, hcg_i64(e, 1), "seen", 1, &done);
    LLVMValueRef to = seen_by(e, t, last_of_panel(e, hcg_add(e, s->panel, l.index)));
    if (s->from) to = hcg_larger(e, to, s->from); /* a token of which no key is here */
    hcg_loop more = once_if(e, LLVMIntNE, hcg_sub(e, to, l.carried[0]), "more");
    emit_scores(e, t, s, l.index, l.carried[0], to);
    hcg_loop_end(e, &more, NULL);
    hcg_loop_end(e, &l, &to);
}

/* The soft cap, for all scores of the strip. */
static void cap_scores(hcg_emit *e, const tile *t, const strip *s) {
    if (!(t->a->softcap > 0)) return;
    hcg_loop p = hcg_loop_begin(e, hcg_i64(e, 0), s->n, hcg_i64(e, 1), "panel", 0, NULL);
    LLVMValueRef scores = hcg_at(e, e->f32, t->scores, hcg_mul_const(e, p.index, HCG_STRIP_FLOATS));
    LLVMValueRef n = hcg_mul_const(e, of_strip(e, s, s->count), HIR_PANEL);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), n, hcg_i64(e, e->level->lanes), "cap", 0, NULL);
    LLVMValueRef at = hcg_at(e, e->f32, scores, l.index);
    hcg_store(e, at, hcg_soft_cap(e, t->a, hcg_load(e, HIR_F32, at, NULL)), NULL);
    hcg_loop_end(e, &l, NULL);
    hcg_loop_end(e, &p, NULL);
}

/* Query `number` of the tile: its token in the call, its head. */
static void find_query(hcg_emit *e, const tile *t, LLVMValueRef number, LLVMValueRef *token,
                       LLVMValueRef *head) {
    const int64_t per_group = t->a->per_group;
    LLVMValueRef row = over(e, number, per_group);
    LLVMValueRef within = hcg_sub(e, number, hcg_mul_const(e, row, per_group));
    *token = hcg_add(e, t->row, row);
    *head = hcg_add(e, hcg_mul_const(e, t->group, per_group), within);
}

/* The bias, query by query: each has a row of its own. */
static void bias_scores(hcg_emit *e, const tile *t, const strip *s) {
    const hcg_attention *a = t->a;
    if (!a->bias) return;
    LLVMValueRef end = hcg_add(e, s->query, hcg_mul_const(e, s->n, HIR_PANEL)), token, head;
    end = hcg_smaller(e, end, t->queries);
    hcg_loop l = hcg_loop_begin(e, s->query, end, hcg_i64(e, 1), "biased", 0, NULL);
    find_query(e, t, l.index, &token, &head);
    LLVMValueRef in_strip = hcg_sub(e, l.index, s->query), panel = over(e, in_strip, HIR_PANEL);
    LLVMValueRef lane = hcg_sub(e, in_strip, hcg_mul_const(e, panel, HIR_PANEL));
    hcg_query q = {.position = hcg_add(e, a->past, token), .apart = HIR_PANEL};
    q.number = hcg_add(e, hcg_mul_const(e, token, a->heads), head);
    LLVMValueRef scores = hcg_at(e, e->f32, t->scores, hcg_mul_const(e, panel, HCG_STRIP_FLOATS));
    q.scores = hcg_at(e, e->f32, scores, lane);
    q.first = s->from ? hcg_add(e, t->first, s->from) : t->first;
    q.count = of_strip(e, s, s->count);
    hcg_add_bias(e, a, &q);
    hcg_loop_end(e, &l, NULL);
}

/* What of the strip's keys is hidden from whom. */
static void set_limits(hcg_emit *e, const tile *t, const strip *s, hcg_softmax_strip *softmax) {
    const hcg_attention *a = t->a;
    softmax->count = of_strip(e, s, s->count), softmax->hidden = of_strip(e, s, s->hidden);
    /* key k is that of token past + row + q / (H/G) if it is not before (k - own) (H/G) */
    LLVMValueRef own = hcg_sub(e, hcg_add(e, a->past, t->row), t->first);
    own = of_strip(e, s, own);
    softmax->own = hcg_add(e, hcg_mul_const(e, own, a->per_group), s->query);
    if (!a->window) return;
    softmax->hidden = hcg_larger(e, softmax->hidden, hcg_i64(e, 0));
    softmax->shown = of_strip(e, s, s->shown);
    /* key k + window is that of a token behind it */
    LLVMValueRef below = hcg_mul_const(e, hcg_sub(e, hcg_i64(e, a->window), own), a->per_group);
    softmax->below = hcg_sub(e, below, s->query);
}

/* Has a tile of keys before this one been of the strip? */
static LLVMValueRef is_later(hcg_emit *e, const tile *t, const strip *s) {
    LLVMValueRef before = t->first, first = hcg_i64(e, 0);
    if (t->a->window) {
        LLVMValueRef token = hcg_add(e, t->row, over(e, s->query, t->a->per_group));
        first = hcg_first_seen(e, t->a, hcg_add(e, t->a->past, token));
        first = rounded_down(e, first, HCG_KEYS), before = t->block;
    }
    LLVMValueRef later = LLVMBuildICmp(e->b, LLVMIntSGT, before, first, "");
    return LLVMBuildZExt(e->b, later, e->i64, "");
}

static void emit_strip(hcg_emit *e, const tile *t, const strip *s) {
    const hcg_attention *a = t->a;
    hcg_softmax_strip softmax = softmax_of(e, t, s->panel, s->n);
    LLVMValueRef m = hcg_i64(e, a->m);
    softmax.later = is_later(e, t, s);
    set_limits(e, t, s, &softmax);
    emit_seen_scores(e, t, s);
    cap_scores(e, t, s);
    bias_scores(e, t, s);
    hcg_softmax_strip_tile(e, &softmax);
    hcg_strip vp = {.across = a->m, .x = t->values, .ldx = m, .rows = m, .k = softmax.count};
    if (s->from) vp.x = hcg_at(e, e->f32, vp.x, hcg_mul_const(e, s->from, a->m));
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
    const int64_t panels = hcg_strip_panels(e->level);
    t->block = t->first = first;
    LLVMValueRef most = hcg_i64(e, HCG_KEYS);
    if (a->window) {
        LLVMValueRef low = hcg_first_seen(e, a, hcg_add(e, a->past, t->row));
        t->first = hcg_larger(e, first, rounded_down(e, low, KEYS_TOGETHER));
        most = hcg_sub(e, hcg_add(e, first, most), t->first);
    }
    t->count = hcg_smaller(e, hcg_sub(e, t->seen, t->first), most);
    t->keys = cache_rows(e, t, &a->k, t->wide_k);
    t->values = cache_rows(e, t, &a->v, t->wide_v);
    t->next_keys = next_rows(e, t, &a->k), t->next_values = next_rows(e, t, &a->v);
    hcg_loop l = each_strip(e, t, panels);
    strip s = strip_of(e, t, l.index, panels);
    /* or they are behind, or before, all of its own */
    LLVMValueRef taken = of_strip(e, &s, s.count);
    hcg_loop some = once_if(e, s.from ? LLVMIntSGT : LLVMIntNE, taken, "some");
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
    LLVMValueRef token, head;
    find_query(e, t, hcg_add(e, query, l.index), &token, &head);
    LLVMValueRef at = hcg_add(e, hcg_mul_const(e, token, a->heads), head);
    hcg_scale_row(e, hcg_at(e, e->f32, t->rows_o, hcg_mul_const(e, l.index, a->m)),
                  hcg_at(e, e->f32, a->out, hcg_mul_const(e, at, a->m)), a->m, hcg_splat(e, 1));
    hcg_loop_end(e, &l, NULL);
}

/* Queries begin with their sink. */
static void take_sinks(hcg_emit *e, const tile *t) {
    if (!t->a->sink) return;
    LLVMValueRef token, head, maximum, sum;
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), t->queries, hcg_i64(e, 1), "sink", 0, NULL);
    find_query(e, t, l.index, &token, &head);
    hcg_softmax_origin(e, t->a, token, head, &maximum, &sum);
    LLVMValueRef panel = over(e, l.index, HIR_PANEL), at = hcg_mul_const(e, panel, HIR_PANEL);
    at = hcg_add(e, at, l.index); /* 2 panels of 16 before it */
    LLVMValueRef state = hcg_at(e, e->f32, t->states, at);
    hcg_store(e, state, maximum, NULL);
    hcg_store(e, hcg_at(e, e->f32, state, hcg_i64(e, HIR_PANEL)), sum, NULL);
    hcg_loop_end(e, &l, NULL);
}

/* Tokens row .. row + rows - 1 of one group. */
static void emit_tile(hcg_emit *e, tile *t) {
    hcg_softmax_strip all = softmax_of(e, t, hcg_i64(e, 0), t->panels);
    LLVMValueRef low = hcg_first_seen(e, t->a, hcg_add(e, t->a->past, t->row));
    if (t->a->window) low = rounded_down(e, low, HCG_KEYS);
    hcg_softmax_strip_start(e, &all);
    take_sinks(e, t);
    take_queries(e, t);
    hcg_loop l = hcg_loop_begin(e, low, t->seen, hcg_i64(e, HCG_KEYS), "keys", 0, NULL);
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
