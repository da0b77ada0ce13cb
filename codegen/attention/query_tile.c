/* Attention of a tile of queries (tokens times the query heads that share keys): it attends to its
 * keys tile by tile, in strips of a few panels of 16 queries, or of 8 (hcg_query_width), as two matrix
 * products. Queries stand
 * in lanes throughout:
 *
 *     S = K Q^T     [keys][w]      K as it lies; Q scaled and packed once per tile
 *     P             softmax step of S, in place: maxima and sums need no shuffles. S is in units of
 *                   ln 2, so that P are powers of two: Q is scaled by 1 / ln 2 as well
 *     O += V^T P    [m][w]         V as it lies; O is transposed once, at the end
 *
 * So neither keys nor values are packed, however often they are read. A strip's S fits the L1. S
 * is a sum of products where keys consist of parts that lie in different rows.
 *
 * Query j of a tile is token j / (H/G), head j % (H/G). The causal limit differs from token to
 * token: a strip reads the keys that its last token sees, and hides from each query the keys after
 * its own. With a window it begins with the first key that its first token sees, rounded down to
 * KEYS_TOGETHER, and hides from each query the keys before its window. Tiles of keys begin at
 * multiples of their size all the same, so that a query's sums do not depend on the other tokens of
 * its tile.
 *
 * The matrix unit has its own code for both products, and O stands in rows there (query_amx.c).
 */
#include "codegen/attention/query_tile.h"

#include <float.h>

#include "codegen/attention/query_amx.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"
#include "codegen/matmul/matrix.h"

enum { KEYS_TOGETHER = 4 }; /* keys that the softmax step sums at once (attention/softmax.c) */

typedef hcg_query_tile tile;

static LLVMValueRef at_most(hcg_emit *e, LLVMValueRef n, int64_t most) {
    return hcg_smaller(e, n, hcg_i64(e, most));
}

/* x / d for constants d > 0 and x >= 0 */
static LLVMValueRef over(hcg_emit *e, LLVMValueRef x, int64_t d) {
    return LLVMBuildUDiv(e->b, x, hcg_i64(e, d), "");
}

/* Whether scores are brought into units of ln 2 after the product, since the carried scores or the
 * soft cap are in units of 1. Otherwise the queries are scaled by as much more. */
static bool scores_come_plain(const hcg_attention *a) {
    return a->carried || a->softcap > 0;
}

/* Copies scale * q of the tokens of the tile, a row for each token, in which the query heads of a
 * group stand side by side. */
static void scale_queries(hcg_emit *e, const tile *t, const hcg_query_part *p) {
    const hcg_attention *a = t->a;
    LLVMValueRef scale = hcg_splat(e, scores_come_plain(a) ? a->scale : a->scale * HCG_LOG2_E);
    const int64_t n = a->per_group * p->n;
    hcg_loop rows = hcg_loop_begin(e, hcg_i64(e, 0), t->n, hcg_i64(e, 1), "query_row", 0, NULL);
    LLVMValueRef token = hcg_add(e, t->row, rows.index);
    LLVMValueRef at =
        hcg_add(e, hcg_mul_const(e, token, a->heads * p->n), hcg_mul_const(e, t->group, n));
    LLVMValueRef to = hcg_at(e, e->f32, t->rows_q, hcg_mul_const(e, rows.index, n));
    hcg_scale_row(e, hcg_at(e, e->f32, p->q, at), to, n, scale);
    hcg_loop_end(e, &rows, NULL);
}

/* Packs the lines of a part of the queries into all panels. In each panel the lines of several
 * parts follow each other, so then panels are packed one by one. */
static void pack_queries(hcg_emit *e, const tile *t, const hcg_query_part *p) {
    LLVMValueRef n = hcg_i64(e, p->n);
    if (t->parts == 1) {
        hcg_pack_rows(e, (unsigned)t->width, t->rows_q, n, t->queries, n, t->q);
        return;
    }
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), t->panels, hcg_i64(e, 1), "query_panel", 0, NULL);
    LLVMValueRef query = hcg_mul_const(e, l.index, t->width);
    LLVMValueRef rows = hcg_at(e, e->f32, t->rows_q, hcg_mul_const(e, query, p->n));
    LLVMValueRef to = hcg_add(e, hcg_mul_const(e, query, t->lines), hcg_i64(e, p->line * t->width));
    hcg_pack_rows(e, (unsigned)t->width, rows, n,
                  at_most(e, hcg_sub(e, t->queries, query), t->width), n,
                  hcg_at(e, e->f32, t->q, to));
    hcg_loop_end(e, &l, NULL);
}

void hcg_widen_row(hcg_emit *e, hir_dtype dtype, LLVMValueRef from, LLVMValueRef to,
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

/* A loop that runs once if `x` is zero, or is not zero, as requested; otherwise never. */
static hcg_loop once_if(hcg_emit *e, LLVMIntPredicate is, LLVMValueRef x, const char *name) {
    LLVMValueRef times = LLVMBuildICmp(e->b, is, x, hcg_i64(e, 0), "");
    times = LLVMBuildZExt(e->b, times, e->i64, "");
    return hcg_loop_begin(e, hcg_i64(e, 0), times, hcg_i64(e, 1), name, 0, NULL);
}

/* Keys of this tile of keys that the token of a query sees. */
static LLVMValueRef seen_by(hcg_emit *e, const tile *t, LLVMValueRef query) {
    LLVMValueRef own =
        hcg_sub(e, hcg_add(e, t->a->past, t->row), t->first); /* keys that the first token sees */
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

/* The multiple of `to` at or before x >= 0. */
static LLVMValueRef rounded_down(hcg_emit *e, LLVMValueRef x, int64_t to) {
    return hcg_mul_const(e, over(e, x, to), to);
}

/* Whole register tiles, of which none repeats a row, also those of wide strips, and whole steps of a
 * softmax. */
int64_t hcg_most_keys(const hcg_level *level) {
    if (hcg_attends_by_amx(level)) return HCG_KEYS;
    int64_t whole = hcg_tile_of(level)->rows;
    while (whole % KEYS_TOGETHER)
        whole += hcg_tile_of(level)->rows;
    return HCG_KEYS / whole * whole;
}

/* A strip reads keys from a multiple of this number on. */
static int64_t keys_together(const tile *t) {
    return t->amx ? HCG_AMX_KEYS : KEYS_TOGETHER;
}

/* A strip: `n` panels of the tile from `panel` on. */
typedef struct strip {
    LLVMValueRef panel, n, query; /* its first query */
    LLVMValueRef count;           /* keys that its last token sees; in emit_strip not 0 */
    LLVMValueRef hidden;          /* the first key that its first token does not see */
    /* with a window, else NULL: */
    LLVMValueRef from;  /* the first key that is read: that of its first token, or before */
    LLVMValueRef shown; /* the first key that its last token sees */
} strip;

/* Key number k of the tile as a number among the keys that the strip reads. */
static LLVMValueRef of_strip(hcg_emit *e, const strip *s, LLVMValueRef k) {
    return s->from ? hcg_sub(e, k, s->from) : k;
}

static LLVMValueRef last_of_panel(hcg_emit *e, const tile *t, LLVMValueRef panel) {
    return hcg_add(e, hcg_mul_const(e, panel, t->width), hcg_i64(e, t->width - 1));
}

static strip strip_of(hcg_emit *e, const tile *t, LLVMValueRef panel, LLVMValueRef n) {
    strip s = {.panel = panel, .n = n};
    s.query = hcg_mul_const(e, panel, t->width);
    LLVMValueRef last = hcg_sub(e, hcg_add(e, panel, s.n), hcg_i64(e, 1));
    s.count = seen_by(e, t, last_of_panel(e, t, last));
    s.hidden = seen_by(e, t, s.query);
    if (!t->a->window) return s;
    s.from = rounded_down(e, before_window(e, t, s.query), keys_together(t));
    s.shown = before_window(e, t, last_of_panel(e, t, last));
    return s;
}

static hcg_softmax_strip softmax_of(hcg_emit *e, const tile *t, LLVMValueRef panel,
                                    LLVMValueRef n) {
    hcg_softmax_strip s = {.panels = n, .scores = t->scores, .per_group = t->a->per_group};
    s.width = t->width;
    s.states = hcg_at(e, e->f32, t->states, hcg_mul_const(e, panel, 2 * t->width));
    s.o = hcg_at(e, e->f32, t->o, hcg_mul_const(e, panel, t->a->m * t->width));
    s.lines = hcg_i64(e, t->amx ? 0 : t->a->m); /* else O is not in lanes */
    return s;
}

/* Scores of the keys from .. to - 1 for the panels from `panel` of the strip on. */
static void emit_scores(hcg_emit *e, const tile *t, const strip *s, LLVMValueRef panel,
                        LLVMValueRef from, LLVMValueRef to) {
    const int64_t ldb = t->lines * t->width;
    for (unsigned i = 0; i < t->sums; i++) {
        const hcg_key_rows *k = &t->rows[i];
        LLVMValueRef skip = hcg_mul_const(e, from, k->ld);
        hcg_strip kq = {.of_queries = true, .ldx = hcg_i64(e, k->ld), .k = hcg_i64(e, k->n)};
        kq.rows = hcg_sub(e, to, from), kq.panels = hcg_sub(e, s->n, panel);
        kq.x = hcg_at(e, e->f32, k->x, skip), kq.next = hcg_at(e, e->f32, k->next, skip);
        LLVMValueRef lines = hcg_mul_const(e, hcg_add(e, s->panel, panel), ldb);
        lines = hcg_add(e, lines, hcg_i64(e, k->line * t->width));
        kq.b = hcg_at(e, e->f32, t->q, lines);
        kq.ldb = hcg_i64(e, ldb), kq.ldc = hcg_i64(e, HCG_LD_SCORES * t->width);
        LLVMValueRef c = hcg_add(e, hcg_mul_const(e, panel, HCG_LD_SCORES * t->width),
                                 hcg_mul_const(e, of_strip(e, s, from), t->width));
        kq.c = hcg_at(e, e->f32, t->scores, c), kq.accumulate = hcg_i64(e, i > 0);
        hcg_call_strip(e, &kq);
    }
}

/* The scores of all keys that some query of a panel sees. Most tiles of keys are seen whole by all
 * panels, which is one product; of the last keys of a strip each panel sees more than the one
 * before. */
static void emit_seen_scores(hcg_emit *e, const tile *t, const strip *s) {
    LLVMValueRef zero = hcg_i64(e, 0), done = s->from ? s->from : zero;
    hcg_loop l = hcg_loop_begin(e, zero, s->n, hcg_i64(e, 1), "seen", 1, &done);
    LLVMValueRef to = seen_by(e, t, last_of_panel(e, t, hcg_add(e, s->panel, l.index)));
    if (s->from) to = hcg_larger(e, to, s->from); /* a token of which no key is here */
    hcg_loop more = once_if(e, LLVMIntNE, hcg_sub(e, to, l.carried[0]), "more");
    emit_scores(e, t, s, l.index, l.carried[0], to);
    hcg_loop_end(e, &more, NULL);
    hcg_loop_end(e, &l, &to);
}

/* Applies the soft cap to all scores of the strip. */
static void cap_scores(hcg_emit *e, const tile *t, const strip *s) {
    if (!(t->a->softcap > 0)) return;
    hcg_loop p = hcg_loop_begin(e, hcg_i64(e, 0), s->n, hcg_i64(e, 1), "panel", 0, NULL);
    LLVMValueRef scores =
        hcg_at(e, e->f32, t->scores, hcg_mul_const(e, p.index, HCG_LD_SCORES * t->width));
    LLVMValueRef n = hcg_mul_const(e, of_strip(e, s, s->count), t->width);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), n, hcg_i64(e, e->level->lanes), "cap", 0, NULL);
    LLVMValueRef at = hcg_at(e, e->f32, scores, l.index);
    LLVMValueRef score = hcg_soft_cap(e, t->a, hcg_load(e, HIR_F32, at, NULL));
    hcg_store(e, at, hcg_fmul(e, score, hcg_splat(e, HCG_LOG2_E)), NULL);
    hcg_loop_end(e, &l, NULL);
    hcg_loop_end(e, &p, NULL);
}

/* The token, in the call, and the head of query `number` of the tile. */
static void find_query(hcg_emit *e, const tile *t, LLVMValueRef number, LLVMValueRef *token,
                       LLVMValueRef *head) {
    const int64_t per_group = t->a->per_group;
    LLVMValueRef row = over(e, number, per_group);
    LLVMValueRef within = hcg_sub(e, number, hcg_mul_const(e, row, per_group));
    *token = hcg_add(e, t->row, row);
    *head = hcg_add(e, hcg_mul_const(e, t->group, per_group), within);
}

/* Adds the bias, query by query: each has a row of its own. */
static void bias_scores(hcg_emit *e, const tile *t, const strip *s) {
    const hcg_attention *a = t->a;
    if (!a->bias) return;
    LLVMValueRef end = hcg_add(e, s->query, hcg_mul_const(e, s->n, t->width)), token, head;
    end = hcg_smaller(e, end, t->queries);
    hcg_loop l = hcg_loop_begin(e, s->query, end, hcg_i64(e, 1), "biased", 0, NULL);
    find_query(e, t, l.index, &token, &head);
    LLVMValueRef in_strip = hcg_sub(e, l.index, s->query), panel = over(e, in_strip, t->width);
    LLVMValueRef lane = hcg_sub(e, in_strip, hcg_mul_const(e, panel, t->width));
    hcg_query q = {.position = hcg_add(e, a->past, token), .apart = t->width, .by_two = true};
    q.number = hcg_add(e, hcg_mul_const(e, token, a->heads), head);
    LLVMValueRef scores =
        hcg_at(e, e->f32, t->scores, hcg_mul_const(e, panel, HCG_LD_SCORES * t->width));
    q.scores = hcg_at(e, e->f32, scores, lane);
    q.first = s->from ? hcg_add(e, t->first, s->from) : t->first;
    q.count = of_strip(e, s, s->count);
    hcg_add_bias(e, a, &q);
    hcg_loop_end(e, &l, NULL);
}

static void carry_scores(hcg_emit *e, const tile *t, const strip *s) {
    if (!t->a->carried) return;
    hcg_scored_panels p = {.panel = s->panel, .n = s->n, .query = s->query};
    p.first = s->from ? hcg_add(e, t->first, s->from) : t->first;
    p.count = of_strip(e, s, s->count);
    hcg_carry_panels(e, t, &p);
}

/* Which of the strip's keys are hidden from which queries. */
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
    /* key k + window is that of a later token */
    LLVMValueRef below = hcg_mul_const(e, hcg_sub(e, hcg_i64(e, a->window), own), a->per_group);
    softmax->below = hcg_sub(e, below, s->query);
}

/* Has the strip already attended to a tile of keys? */
static LLVMValueRef is_later(hcg_emit *e, const tile *t, const strip *s) {
    LLVMValueRef before = t->first, first = t->from;
    if (t->a->window) {
        LLVMValueRef token = hcg_add(e, t->row, over(e, s->query, t->a->per_group));
        LLVMValueRef seen = hcg_first_seen(e, t->a, hcg_add(e, t->a->past, token));
        first = hcg_larger(e, first, rounded_down(e, seen, t->keys)), before = t->block;
    }
    LLVMValueRef later = LLVMBuildICmp(e->b, LLVMIntSGT, before, first, "");
    return LLVMBuildZExt(e->b, later, e->i64, "");
}

/* O += V^T P, queries in lanes. */
static void emit_values(hcg_emit *e, const tile *t, const strip *s,
                        const hcg_softmax_strip *softmax) {
    const hcg_attention *a = t->a;
    LLVMValueRef m = hcg_i64(e, a->m);
    const hcg_key_rows *v = &t->values;
    hcg_strip vp = {
        .of_queries = true, .across = a->m, .stride = v->ld, .ldx = hcg_i64(e, v->ld), .rows = m};
    vp.x = v->x, vp.k = softmax->count, vp.next = v->next;
    if (s->from) vp.x = hcg_at(e, e->f32, vp.x, hcg_mul_const(e, s->from, v->ld));
    vp.panels = s->n, vp.b = t->scores, vp.ldb = hcg_i64(e, HCG_LD_SCORES * t->width);
    vp.c = softmax->o, vp.ldc = hcg_i64(e, a->m * t->width), vp.accumulate = softmax->later;
    hcg_call_strip(e, &vp);
}

static void emit_strip(hcg_emit *e, const tile *t, const strip *s) {
    hcg_softmax_strip softmax = softmax_of(e, t, s->panel, s->n);
    hcg_amx_strip by_amx = {.panel = s->panel, .panels = s->n, .to = s->count};
    softmax.later = by_amx.later = is_later(e, t, s);
    by_amx.number = over(e, s->panel, HCG_AMX_PANELS), by_amx.from = s->from;
    if (!s->from) by_amx.from = hcg_i64(e, 0);
    set_limits(e, t, s, &softmax);
    if (t->amx)
        hcg_amx_scores(e, t, &by_amx);
    else
        emit_seen_scores(e, t, s);
    carry_scores(e, t, s);
    cap_scores(e, t, s);
    bias_scores(e, t, s);
    if (t->amx) hcg_amx_keep_maxima(e, t, &by_amx);
    hcg_softmax_strip_tile(e, &softmax);
    if (t->amx)
        hcg_amx_values(e, t, &by_amx);
    else
        emit_values(e, t, s, &softmax);
}

/* A loop over the panels of the tile, at most `most` at a time: on the matrix unit as many as there
 * are, for vectors nearly equally many, since one panel alone has few sums in registers. */
static hcg_loop each_strip(hcg_emit *e, const tile *t, int64_t most, strip *out) {
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    if (t->amx) {
        hcg_loop l = hcg_loop_begin(e, zero, t->panels, hcg_i64(e, most), "strip", 0, NULL);
        *out = strip_of(e, t, l.index, at_most(e, hcg_sub(e, t->panels, l.index), most));
        return l;
    }
    LLVMValueRef strips = hcg_divide_up(e, t->panels, hcg_i64(e, most));
    LLVMValueRef each = LLVMBuildUDiv(e->b, t->panels, strips, "each");
    LLVMValueRef more = hcg_sub(e, t->panels, hcg_mul(e, each, strips));
    hcg_loop l = hcg_loop_begin(e, zero, strips, one, "strip", 0, NULL);
    LLVMValueRef first = hcg_add(e, hcg_mul(e, l.index, each), hcg_smaller(e, l.index, more));
    LLVMValueRef longer = LLVMBuildICmp(e->b, LLVMIntSLT, l.index, more, "");
    *out = strip_of(e, t, first, hcg_add(e, each, LLVMBuildZExt(e->b, longer, e->i64, "")));
    return l;
}

/* Attends to the tile of keys at `first`, a multiple of the tile's size. */
static void multiply_keys(hcg_emit *e, tile *t, LLVMValueRef first) {
    const hcg_attention *a = t->a;
    const int64_t panels = t->amx ? HCG_AMX_PANELS : hcg_query_panels(e->level);
    t->block = t->first = first;
    LLVMValueRef most = hcg_i64(e, t->keys);
    if (a->window) {
        LLVMValueRef low = hcg_first_seen(e, a, hcg_add(e, a->past, t->row));
        t->first = hcg_larger(e, first, rounded_down(e, low, keys_together(t)));
        most = hcg_sub(e, hcg_add(e, first, most), t->first);
    }
    t->count = hcg_smaller(e, hcg_sub(e, t->to, t->first), most);
    t->fetch(e, t);
    if (t->amx) hcg_amx_take_keys(e, t);
    strip s;
    hcg_loop l = each_strip(e, t, panels, &s);
    /* or all keys are after, or before, those that the strip sees */
    LLVMValueRef taken = of_strip(e, &s, s.count);
    hcg_loop some = once_if(e, s.from ? LLVMIntSGT : LLVMIntNE, taken, "some");
    emit_strip(e, t, &s);
    hcg_loop_end(e, &some, NULL);
    hcg_loop_end(e, &l, NULL);
}

/* A loop over the queries of the tile: the query's number, and its row of O. */
typedef struct one_query {
    hcg_loop panels, queries;
    LLVMValueRef number, o;
    LLVMValueRef state; /* M; S is t->width floats after it */
} one_query;

static one_query each_query(hcg_emit *e, const tile *t) {
    const int64_t m = t->a->m;
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    one_query q = {.panels = hcg_loop_begin(e, zero, t->panels, one, "leave", 0, NULL)};
    LLVMValueRef query = hcg_mul_const(e, q.panels.index, t->width);
    LLVMValueRef from = hcg_at(e, e->f32, t->o, hcg_mul_const(e, query, m));
    LLVMValueRef state = hcg_at(e, e->f32, t->states, hcg_mul_const(e, query, 2));
    if (!t->amx) hcg_unpack_panel(e, (unsigned)t->width, from, hcg_i64(e, m), t->rows_o);
    LLVMValueRef n = at_most(e, hcg_sub(e, t->queries, query), t->width);
    q.queries = hcg_loop_begin(e, zero, n, one, "query", 0, NULL);
    q.number = hcg_add(e, query, q.queries.index);
    if (t->amx)
        q.o = hcg_at(e, e->f32, t->o, hcg_mul_const(e, q.number, hcg_whole_panels(m)));
    else
        q.o = hcg_at(e, e->f32, t->rows_o, hcg_mul_const(e, q.queries.index, m));
    q.state = hcg_at(e, e->f32, state, q.queries.index);
    return q;
}

static void end_query(hcg_emit *e, one_query *q) {
    hcg_loop_end(e, &q->queries, NULL);
    hcg_loop_end(e, &q->panels, NULL);
}

void hcg_queries_start(hcg_emit *e, const tile *t) {
    hcg_softmax_strip all = softmax_of(e, t, hcg_i64(e, 0), t->panels);
    hcg_softmax_strip_start(e, &all);
}

void hcg_queries_take_sinks(hcg_emit *e, const tile *t) {
    if (!t->a->sink) return;
    LLVMValueRef token, head, maximum, sum;
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), t->queries, hcg_i64(e, 1), "sink", 0, NULL);
    find_query(e, t, l.index, &token, &head);
    hcg_softmax_origin(e, t->a, token, head, &maximum, &sum);
    LLVMValueRef panel = over(e, l.index, t->width), at = hcg_mul_const(e, panel, t->width);
    at = hcg_add(e, at, l.index); /* M and S of the panels before it */
    LLVMValueRef state = hcg_at(e, e->f32, t->states, at);
    maximum = hcg_fmul(e, maximum, LLVMConstReal(e->f32, HCG_LOG2_E));
    maximum = hcg_max(e, maximum, LLVMConstReal(e->f32, -FLT_MAX));
    hcg_store(e, state, hcg_min(e, maximum, LLVMConstReal(e->f32, FLT_MAX)), NULL);
    hcg_store(e, hcg_at(e, e->f32, state, hcg_i64(e, t->width)), sum, NULL);
    hcg_loop_end(e, &l, NULL);
}

/* ---- the tile -------------------------------------------------------------------------------- */
LLVMValueRef hcg_floats(hcg_emit *e, int64_t n) {
    return hcg_scratch(e, (uint64_t)n * 4);
}

int64_t hcg_whole_panels(int64_t n) {
    return (n + HIR_PANEL - 1) / HIR_PANEL * HIR_PANEL;
}

void hcg_queries_begin(hcg_emit *e, tile *t) {
    const hcg_attention *a = t->a;
    const int64_t queries = hcg_whole_panels(t->tokens * a->per_group);
    int64_t widest = 0, panels = hcg_query_panels(e->level);
    t->lines = 0, t->width = hcg_query_width(e->level);
    for (unsigned i = 0; i < t->parts; i++) {
        if (t->part[i].n > widest) widest = t->part[i].n;
        t->lines += t->part[i].n;
    }
    t->rows_q = hcg_floats(e, queries * widest);
    t->q = hcg_floats(e, queries * t->lines);
    if (hcg_attends_by_amx(e->level)) {
        hcg_amx_queries_begin(e, t);
        panels = HCG_AMX_PANELS;
    }
    t->scores = hcg_floats(e, panels * HCG_LD_SCORES * t->width);
    t->states = hcg_floats(e, queries * 2);
    t->o = hcg_floats(e, queries * (t->amx ? hcg_whole_panels(a->m) : a->m));
    if (!t->amx) t->rows_o = hcg_floats(e, t->width * a->m);
}

void hcg_queries_end(hcg_emit *e, const tile *t) {
    if (t->amx) hcg_amx_queries_end(e);
}

void hcg_queries_take(hcg_emit *e, tile *t) {
    t->queries = hcg_mul_const(e, t->n, t->a->per_group);
    t->panels = over(e, hcg_add(e, t->queries, hcg_i64(e, t->width - 1)), t->width);
    for (unsigned i = 0; i < t->parts; i++) {
        scale_queries(e, t, &t->part[i]);
        pack_queries(e, t, &t->part[i]);
    }
    if (t->amx) hcg_amx_take_queries(e, t);
}

LLVMValueRef hcg_queries_first_key(hcg_emit *e, const tile *t) {
    return hcg_first_seen(e, t->a, hcg_add(e, t->a->past, t->row));
}

void hcg_multiply_queries(hcg_emit *e, tile *t, LLVMValueRef from, LLVMValueRef to) {
    t->from = t->a->window ? rounded_down(e, from, t->keys) : from, t->to = to;
    hcg_loop l = hcg_loop_begin(e, t->from, to, hcg_i64(e, t->keys), "keys", 0, NULL);
    multiply_keys(e, t, l.index);
    hcg_loop_end(e, &l, NULL);
}

/* 1 / S of a query whose O is a row. */
static LLVMValueRef inverse_sum(hcg_emit *e, const one_query *q) {
    LLVMValueRef sum =
        hcg_load_scalar(e, HIR_F32, hcg_at(e, e->f32, q->state, hcg_i64(e, HIR_PANEL)));
    sum = hcg_max(e, sum, LLVMConstReal(e->f32, FLT_MIN)); /* as hcg_softmax_strip_end */
    return hcg_splat_value(e, LLVMBuildFDiv(e->b, LLVMConstReal(e->f32, 1), sum, ""));
}

void hcg_queries_leave(hcg_emit *e, tile *t) {
    const hcg_attention *a = t->a;
    hcg_softmax_strip all = softmax_of(e, t, hcg_i64(e, 0), t->panels);
    LLVMValueRef token, head;
    if (!t->amx) hcg_softmax_strip_end(e, &all);
    one_query q = each_query(e, t);
    find_query(e, t, q.number, &token, &head);
    LLVMValueRef at = hcg_add(e, hcg_mul_const(e, token, a->heads), head);
    hcg_scale_row(e, q.o, hcg_at(e, e->f32, a->out, hcg_mul_const(e, at, a->m)), a->m,
                  t->amx ? inverse_sum(e, &q) : hcg_splat(e, 1));
    end_query(e, &q);
}

static void copy_number(hcg_emit *e, LLVMValueRef from, double factor, LLVMValueRef to) {
    LLVMValueRef x = hcg_load_scalar(e, HIR_F32, from);
    hcg_store(e, to, hcg_fmul(e, x, LLVMConstReal(e->f32, factor)), NULL);
}

void hcg_queries_leave_partials(hcg_emit *e, tile *t, LLVMValueRef to) {
    const int64_t m = t->a->m, each = hcg_partial_floats(m);
    one_query q = each_query(e, t);
    LLVMValueRef o = hcg_at(e, e->f32, to, hcg_mul_const(e, q.number, each));
    LLVMValueRef state = hcg_at(e, e->f32, o, hcg_i64(e, each - HIR_PANEL));
    hcg_scale_row(e, q.o, o, m, hcg_splat(e, 1));
    copy_number(e, q.state, 1 / HCG_LOG2_E, state);
    copy_number(e, hcg_at(e, e->f32, q.state, hcg_i64(e, t->width)), 1,
                hcg_at(e, e->f32, state, hcg_i64(e, 1)));
    end_query(e, &q);
}

void hcg_queries_all_rows(hcg_emit *e, tile *t) {
    LLVMValueRef one = hcg_i64(e, 1), step = hcg_i64(e, t->tokens);
    hcg_loop groups = hcg_loop_begin(e, e->c0, e->c1, one, "group", 0, NULL);
    hcg_loop rows = hcg_loop_begin(e, e->r0, e->r1, step, "rows", 0, NULL);
    t->group = groups.index, t->row = rows.index;
    t->n = hcg_smaller(e, hcg_sub(e, e->r1, rows.index), step);
    hcg_queries_take(e, t);
    hcg_queries_start(e, t);
    hcg_queries_take_sinks(e, t);
    hcg_multiply_queries(e, t, hcg_queries_first_key(e, t),
                         hcg_add(e, hcg_add(e, t->a->past, t->row), t->n));
    hcg_queries_leave(e, t);
    hcg_loop_end(e, &rows, NULL);
    hcg_loop_end(e, &groups, NULL);
    hcg_queries_end(e, t);
}
