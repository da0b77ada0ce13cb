/* Gradients of attention for a tile of queries (tokens times the query heads that share keys). With
 * the weights p = softmax(l), G the gradient of the result and D = G . o = sum p (G . v):
 *
 *     dv = p^T G     dl = p (G v^T - D)     dq = scale dl k     dk = scale dl^T q
 *
 * dl times 1 - tanh^2 where there is a soft cap; the bias has dl, the sink -(its weight) D. The
 * tile goes over the keys that it sees twice, in tiles of keys:
 *
 *     1  L = K Q^T, E = V G^T      [key][query]    M, S and S D online, as softmax does
 *     2  P, dL = P (E - D)         in place of L and E
 *        dV += P G, dK += dL Q     [key][..]       sums over the queries of the tile, so also over
 *                                                  the heads that share a key
 *        dQ^T += K^T dL^T          [n][query]
 *
 * so o is not needed. L and E of as many keys as fit half of the L2 are kept for the second time;
 * those of the keys after them are computed again. Q is scaled once, which scales dK, too.
 *
 * Queries stand in lanes, so that M, S and D are vectors and sums over keys need no shuffles. All
 * products run along what is adjacent in memory: L and E are rows of queries, which dV and dK
 * multiply with G and Q in panels of columns; for dQ, dL is also written in panels of queries.
 *
 * A query's sums run over keys in their order, a key's over queries in theirs: tile by tile, which
 * begin at fixed tokens and keys whatever the threads.
 */
#include "codegen/gradient/attention_queries.h"

#include <float.h>
#include <math.h>

#include "codegen/attention/query_tile.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"
#include "codegen/matmul/matrix.h"

typedef hcg_gradient_tile tile;

enum { KEYS = HCG_GRADIENT_KEYS, ROWS = 4 /* keys of an iteration; divides KEYS */ };

/* ---- rows ------------------------------------------------------------------------------------ */
void hcg_add_row(hcg_emit *e, LLVMValueRef from, LLVMValueRef to, int64_t n) {
    const int64_t lanes = e->level->lanes, whole = n / lanes * lanes;
    LLVMValueRef rest = hcg_i64(e, whole), left = hcg_i64(e, n - whole);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), rest, hcg_i64(e, lanes), "add", 0, NULL);
    LLVMValueRef at = hcg_at(e, e->f32, to, l.index);
    LLVMValueRef x = hcg_load(e, HIR_F32, hcg_at(e, e->f32, from, l.index), NULL);
    hcg_store(e, at, hcg_fadd(e, hcg_load(e, HIR_F32, at, NULL), x), NULL);
    hcg_loop_end(e, &l, NULL);
    if (whole == n) return;
    at = hcg_at(e, e->f32, to, rest);
    x = hcg_load(e, HIR_F32, hcg_at(e, e->f32, from, rest), left);
    hcg_store(e, at, hcg_fadd(e, hcg_load(e, HIR_F32, at, left), x), left);
}

void hcg_zero_row(hcg_emit *e, LLVMValueRef to, int64_t n) {
    const int64_t lanes = e->level->lanes, whole = n / lanes * lanes;
    LLVMValueRef rest = hcg_i64(e, whole), zero = hcg_splat(e, 0);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), rest, hcg_i64(e, lanes), "zero", 0, NULL);
    hcg_store(e, hcg_at(e, e->f32, to, l.index), zero, NULL);
    hcg_loop_end(e, &l, NULL);
    if (whole < n) hcg_store(e, hcg_at(e, e->f32, to, rest), zero, hcg_i64(e, n - whole));
}

static hcg_loop each(hcg_emit *e, LLVMValueRef n, const char *name) {
    return hcg_loop_begin(e, hcg_i64(e, 0), n, hcg_i64(e, 1), name, 0, NULL);
}

/* The token of the call and the head of query `number` of the tile. */
static void find_query(hcg_emit *e, const tile *t, LLVMValueRef number, LLVMValueRef *token,
                       LLVMValueRef *head) {
    LLVMValueRef per_group = hcg_i64(e, t->a->per_group);
    LLVMValueRef row = LLVMBuildUDiv(e->b, number, per_group, "");
    LLVMValueRef within = hcg_sub(e, number, hcg_mul(e, row, per_group));
    *token = hcg_add(e, t->row, row);
    *head = hcg_add(e, hcg_mul(e, t->group, per_group), within);
}

/* The number of the first head of the group at `token` in [T][H]. */
static LLVMValueRef first_head(hcg_emit *e, const tile *t, LLVMValueRef token) {
    return hcg_add(e, hcg_mul_const(e, token, t->a->heads),
                   hcg_mul_const(e, t->group, t->a->per_group));
}

/* Row `query` of s->rows as part of panels of columns; the last panel is filled up with zeros. */
static void copy_columns(hcg_emit *e, const tile *t, const hcg_gradient_rows *s,
                         LLVMValueRef query) {
    const int64_t lanes = e->level->lanes, whole = s->n / lanes * lanes;
    LLVMValueRef row = hcg_at(e, e->f32, s->rows, hcg_mul_const(e, query, s->n));
    LLVMValueRef line = hcg_mul_const(e, query, HIR_PANEL), panel = hcg_i64(e, HIR_PANEL);
    hcg_loop l =
        hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, whole), hcg_i64(e, lanes), "column", 0, NULL);
    LLVMValueRef number = LLVMBuildUDiv(e->b, l.index, panel, "");
    LLVMValueRef to = hcg_add(e, hcg_mul(e, hcg_mul(e, number, panel), t->queries), line);
    to = hcg_add(e, to, LLVMBuildURem(e->b, l.index, panel, ""));
    LLVMValueRef x = hcg_load(e, HIR_F32, hcg_at(e, e->f32, row, l.index), NULL);
    hcg_store(e, hcg_at(e, e->f32, s->columns, to), x, NULL);
    hcg_loop_end(e, &l, NULL);
    for (int64_t i = whole; i < hcg_whole_panels(s->n); i += lanes) {
        x = hcg_splat(e, 0);
        if (i < s->n)
            x = hcg_load(e, HIR_F32, hcg_at(e, e->f32, row, hcg_i64(e, i)), hcg_i64(e, s->n - i));
        to = hcg_add(e, hcg_mul_const(e, t->queries, i / HIR_PANEL * HIR_PANEL), line);
        to = hcg_add(e, to, hcg_i64(e, i % HIR_PANEL));
        hcg_store(e, hcg_at(e, e->f32, s->columns, to), x, NULL);
    }
}

/* Copies the rows of the tile's queries, times `scale`, and makes both kinds of panels of them. */
static void take_rows(hcg_emit *e, const tile *t, const hcg_gradient_rows *s, double scale,
                      bool columns) {
    const int64_t n = t->a->per_group * s->n;
    hcg_loop l = each(e, t->n, "token");
    LLVMValueRef at = first_head(e, t, hcg_add(e, t->row, l.index));
    LLVMValueRef to = hcg_at(e, e->f32, s->rows, hcg_mul_const(e, l.index, n));
    hcg_scale_row(e, hcg_at(e, e->f32, s->from, hcg_mul_const(e, at, s->n)), to, n,
                  hcg_splat(e, scale));
    hcg_loop_end(e, &l, NULL);
    LLVMValueRef ld = hcg_i64(e, s->n);
    hcg_pack_rows(e, HIR_PANEL, s->rows, ld, t->queries, ld, s->lanes);
    if (!columns) return;
    hcg_loop q = each(e, t->queries, "query");
    copy_columns(e, t, s, q.index);
    hcg_loop_end(e, &q, NULL);
}

/* ---- scores ---------------------------------------------------------------------------------- */
/* A loop over the vectors of queries: its index is the first query. */
static hcg_loop each_vector(hcg_emit *e, const tile *t) {
    return hcg_loop_begin(e, hcg_i64(e, 0), hcg_mul_const(e, t->panels, HIR_PANEL),
                          hcg_i64(e, e->level->lanes), "vector", 0, NULL);
}

/* &x[key + more][query] of rows of scores. */
static LLVMValueRef score_at(hcg_emit *e, const tile *t, LLVMValueRef x, LLVMValueRef key,
                             int64_t more, LLVMValueRef query) {
    LLVMValueRef at = hcg_mul_const(e, hcg_add(e, key, hcg_i64(e, more)), t->width);
    return hcg_at(e, e->f32, x, hcg_add(e, at, query));
}

/* &x[query / 16][key + more][query % 16] of panels of scores. */
static LLVMValueRef in_panel(hcg_emit *e, LLVMValueRef x, LLVMValueRef key, int64_t more,
                             LLVMValueRef query) {
    LLVMValueRef sixteen = hcg_i64(e, HIR_PANEL);
    LLVMValueRef at = hcg_mul_const(e, LLVMBuildUDiv(e->b, query, sixteen, ""), KEYS * HIR_PANEL);
    at = hcg_add(e, at, LLVMBuildURem(e->b, query, sixteen, ""));
    return hcg_at(e, e->f32, x,
                  hcg_add(e, at, hcg_mul_const(e, hcg_add(e, key, hcg_i64(e, more)), HIR_PANEL)));
}

static LLVMValueRef of_query(hcg_emit *e, LLVMValueRef x, LLVMValueRef query) {
    return hcg_at(e, e->f32, x, query);
}

/* c[key][query] = rows of n numbers times the panels of queries of s */
static void multiply(hcg_emit *e, const tile *t, LLVMValueRef rows, const hcg_gradient_rows *s,
                     LLVMValueRef c) {
    hcg_gemm g = {.dtype = HIR_F32, .x_dtype = HIR_F32, .x = rows, .ldx = hcg_i64(e, s->n)};
    g.rows = t->count, g.k = g.ldx, g.b = s->lanes, g.panels = t->panels;
    g.c = c, g.ldc = hcg_i64(e, t->width);
    hcg_call_gemm(e, &g);
}

/* The query number j of panel `panel` and its row of `scores`, which are `ld` apart. */
static hcg_query biased_query(hcg_emit *e, const tile *t, LLVMValueRef panel, LLVMValueRef j,
                              LLVMValueRef ld) {
    LLVMValueRef token, head;
    find_query(e, t, hcg_add(e, hcg_mul_const(e, panel, HIR_PANEL), j), &token, &head);
    hcg_query q = {.position = token, .first = t->first, .count = t->count, .apart = 1};
    q.number = hcg_add(e, hcg_mul_const(e, token, t->a->heads), head);
    q.scores = hcg_at(e, e->f32, t->rows_bias, hcg_mul(e, j, ld));
    return q;
}

static LLVMValueRef queries_of_panel(hcg_emit *e, const tile *t, LLVMValueRef panel) {
    LLVMValueRef left = hcg_sub(e, t->queries, hcg_mul_const(e, panel, HIR_PANEL));
    return hcg_smaller(e, left, hcg_i64(e, HIR_PANEL));
}

static LLVMValueRef panel_of(hcg_emit *e, LLVMValueRef x, LLVMValueRef panel, int64_t lines) {
    return hcg_at(e, e->f32, x, hcg_mul_const(e, panel, lines * HIR_PANEL));
}

/* The bias of each key and query, as panels: 0 where it does not reach. */
static void take_bias(hcg_emit *e, const tile *t) {
    hcg_loop p = each(e, t->panels, "panel");
    LLVMValueRef n = queries_of_panel(e, t, p.index), ld = hcg_i64(e, KEYS);
    hcg_loop j = each(e, n, "biased");
    const hcg_query q = biased_query(e, t, p.index, j.index, ld);
    hcg_zero_row(e, q.scores, KEYS);
    hcg_add_bias(e, t->a, &q);
    hcg_loop_end(e, &j, NULL);
    hcg_pack_rows(e, HIR_PANEL, t->rows_bias, ld, n, t->count, panel_of(e, t->bias, p.index, KEYS));
    hcg_loop_end(e, &p, NULL);
}

/* dl of the tile, as rows, are elements of the bias' gradient: each of them once. */
static void leave_bias(hcg_emit *e, const tile *t) {
    hcg_loop p = each(e, t->panels, "panel");
    hcg_unpack_panel(e, HIR_PANEL, panel_of(e, t->panels_db, p.index, KEYS), t->count,
                     t->rows_bias);
    hcg_loop j = each(e, queries_of_panel(e, t, p.index), "biased");
    const hcg_query q = biased_query(e, t, p.index, j.index, t->count);
    hcg_leave_bias(e, t->a, &q, t->dbias);
    hcg_loop_end(e, &j, NULL);
    hcg_loop_end(e, &p, NULL);
}

/* The positions of the queries from `query` on, i32. */
static LLVMValueRef positions(hcg_emit *e, const tile *t, LLVMValueRef query) {
    LLVMValueRef number = hcg_splat_value(e, LLVMBuildTrunc(e->b, query, e->i32, ""));
    number = LLVMBuildAdd(e->b, number, hcg_lane_numbers(e), "");
    LLVMValueRef by = LLVMConstInt(e->i32, (unsigned long long)t->a->per_group, false);
    number = LLVMBuildUDiv(e->b, number, hcg_splat_value(e, by), "");
    LLVMValueRef row = hcg_splat_value(e, LLVMBuildTrunc(e->b, t->row, e->i32, ""));
    return LLVMBuildAdd(e->b, number, row, "");
}

/* l, or -inf where the query at `position` does not see `key`. */
static LLVMValueRef hide(hcg_emit *e, const tile *t, LLVMValueRef key, LLVMValueRef position,
                         LLVMValueRef l) {
    if (!t->causal) return l;
    key = hcg_splat_value(e, LLVMBuildTrunc(e->b, hcg_add(e, t->first, key), e->i32, ""));
    LLVMValueRef sees = LLVMBuildICmp(e->b, LLVMIntSLE, key, position, "");
    if (t->a->window) {
        LLVMValueRef window = LLVMConstInt(e->i32, (unsigned long long)t->a->window, false);
        LLVMValueRef end = LLVMBuildAdd(e->b, key, hcg_splat_value(e, window), "");
        sees = LLVMBuildAnd(e->b, sees, LLVMBuildICmp(e->b, LLVMIntSGT, end, position, ""), "");
    }
    return LLVMBuildSelect(e->b, sees, l, hcg_splat(e, -INFINITY), "");
}

/* Is some key of the tile hidden from some query? */
static LLVMValueRef hides(hcg_emit *e, const tile *t) {
    LLVMValueRef one = hcg_i64(e, 1), last = hcg_sub(e, hcg_add(e, t->first, t->count), one);
    LLVMValueRef hides = LLVMBuildICmp(e->b, LLVMIntSGT, last, t->row, "");
    if (!t->a->window) return hides;
    LLVMValueRef last_token = hcg_sub(e, hcg_add(e, t->row, t->n), one);
    LLVMValueRef seen = hcg_first_seen(e, t->a, last_token);
    return LLVMBuildOr(e->b, hides, LLVMBuildICmp(e->b, LLVMIntSLT, t->first, seen, ""), "");
}

static hcg_loop once_if(hcg_emit *e, LLVMValueRef holds, const char *name) {
    return each(e, LLVMBuildZExt(e->b, holds, e->i64, ""), name);
}

/* Soft cap, bias and limits, of all scores of the tile. */
static void finish_scores(hcg_emit *e, const tile *t) {
    const hcg_attention *a = t->a;
    if (!a->bias && !(a->softcap > 0) && !t->causal) return;
    LLVMValueRef some = LLVMConstInt(e->i1, 1, false);
    if (!a->bias && !(a->softcap > 0)) some = hides(e, t);
    hcg_loop if_some = once_if(e, some, "finish");
    hcg_loop v = each_vector(e, t);
    LLVMValueRef position = positions(e, t, v.index);
    hcg_loop k = each(e, t->count, "key");
    LLVMValueRef at = score_at(e, t, t->scores, k.index, 0, v.index);
    LLVMValueRef l = hcg_load(e, HIR_F32, at, NULL);
    if (a->softcap > 0) {
        LLVMValueRef y = hcg_tanh(e, hcg_fmul(e, l, hcg_splat(e, 1 / a->softcap)));
        LLVMValueRef less = LLVMBuildFNeg(e->b, y, ""), one = hcg_splat(e, 1);
        hcg_store(e, score_at(e, t, t->factors, k.index, 0, v.index), hcg_fma(e, less, y, one),
                  NULL);
        l = hcg_fmul(e, y, hcg_splat(e, a->softcap));
    }
    if (a->bias)
        l = hcg_fadd(e, l, hcg_load(e, HIR_F32, in_panel(e, t->bias, k.index, 0, v.index), NULL));
    hcg_store(e, at, hide(e, t, k.index, position, l), NULL);
    hcg_loop_end(e, &k, NULL);
    hcg_loop_end(e, &v, NULL);
    hcg_loop_end(e, &if_some, NULL);
}

/* Rows of no key fill up the last iteration of loops over keys. */
static void fill_up(hcg_emit *e, const tile *t) {
    LLVMValueRef to = hcg_add(e, t->count, hcg_i64(e, ROWS - 1));
    to = LLVMBuildAnd(e->b, to, hcg_i64(e, -ROWS), "");
    hcg_loop k = hcg_loop_begin(e, t->count, to, hcg_i64(e, 1), "none", 0, NULL);
    hcg_loop v = each_vector(e, t);
    hcg_store(e, score_at(e, t, t->scores, k.index, 0, v.index), hcg_splat(e, -INFINITY), NULL);
    hcg_store(e, score_at(e, t, t->slopes, k.index, 0, v.index), hcg_splat(e, 0), NULL);
    hcg_loop_end(e, &v, NULL);
    hcg_loop_end(e, &k, NULL);
}

/* L and E of the tile of keys. */
static void compute_scores(hcg_emit *e, tile *t) {
    multiply(e, t, t->keys, &t->q, t->scores);
    multiply(e, t, t->values, &t->dy, t->slopes);
    if (t->a->bias) take_bias(e, t);
    finish_scores(e, t);
    fill_up(e, t);
}

/* ---- the first time -------------------------------------------------------------------------- */
LLVMValueRef hcg_larger_score(hcg_emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOGT, a, b, ""), a, b, "");
}

static LLVMValueRef at_most(hcg_emit *e, LLVMValueRef x, double most) {
    LLVMValueRef limit = hcg_splat(e, most);
    return LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOGT, x, limit, ""), limit, x, "");
}

LLVMValueRef hcg_score_weight(hcg_emit *e, LLVMValueRef l, LLVMValueRef largest) {
    return hcg_exp_weight(e, at_most(e, hcg_fsub(e, l, largest), 0));
}

static LLVMValueRef largest_score(hcg_emit *e, const tile *t, LLVMValueRef query,
                                  LLVMValueRef old) {
    LLVMValueRef most[ROWS] = {old, old, old, old};
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), t->count, hcg_i64(e, ROWS), "max", ROWS, most);
    for (int i = 0; i < ROWS; i++) {
        LLVMValueRef at = score_at(e, t, t->scores, l.index, i, query);
        most[i] = hcg_larger_score(e, hcg_load(e, HIR_F32, at, NULL), l.carried[i]);
    }
    hcg_loop_end(e, &l, most);
    LLVMValueRef low = hcg_larger_score(e, l.carried[0], l.carried[1]);
    return at_most(e, hcg_larger_score(e, low, hcg_larger_score(e, l.carried[2], l.carried[3])),
                   FLT_MAX);
}

static LLVMValueRef sum_of_four(hcg_emit *e, const LLVMValueRef *x) {
    return hcg_fadd(e, hcg_fadd(e, x[0], x[1]), hcg_fadd(e, x[2], x[3]));
}

/* Adds the tile of keys to M, S and S D of a vector of queries. */
static void measure(hcg_emit *e, const tile *t, LLVMValueRef query) {
    LLVMValueRef at_largest = of_query(e, t->largest, query), zero = hcg_splat(e, 0);
    LLVMValueRef at_sum = of_query(e, t->sum, query), at_delta = of_query(e, t->delta, query);
    LLVMValueRef old = hcg_load(e, HIR_F32, at_largest, NULL);
    LLVMValueRef largest = largest_score(e, t, query, old), sums[2 * ROWS];
    for (int i = 0; i < 2 * ROWS; i++)
        sums[i] = zero;
    hcg_loop l =
        hcg_loop_begin(e, hcg_i64(e, 0), t->count, hcg_i64(e, ROWS), "sum", 2 * ROWS, sums);
    for (int i = 0; i < ROWS; i++) {
        LLVMValueRef at = score_at(e, t, t->scores, l.index, i, query);
        LLVMValueRef slope = score_at(e, t, t->slopes, l.index, i, query);
        LLVMValueRef p = hcg_score_weight(e, hcg_load(e, HIR_F32, at, NULL), largest);
        sums[i] = hcg_fadd(e, l.carried[i], p);
        sums[ROWS + i] = hcg_fma(e, p, hcg_load(e, HIR_F32, slope, NULL), l.carried[ROWS + i]);
    }
    hcg_loop_end(e, &l, sums);
    LLVMValueRef by = hcg_score_weight(e, old, largest);
    LLVMValueRef sum = hcg_load(e, HIR_F32, at_sum, NULL);
    LLVMValueRef delta = hcg_load(e, HIR_F32, at_delta, NULL);
    hcg_store(e, at_largest, largest, NULL);
    hcg_store(e, at_sum, hcg_fma(e, sum, by, sum_of_four(e, l.carried)), NULL);
    hcg_store(e, at_delta, hcg_fma(e, delta, by, sum_of_four(e, l.carried + ROWS)), NULL);
}

/* M, S and S D of queries that have seen no key. */
static void start_queries(hcg_emit *e, const tile *t) {
    hcg_loop v = each_vector(e, t);
    hcg_store(e, of_query(e, t->largest, v.index), hcg_splat(e, -FLT_MAX), NULL);
    hcg_store(e, of_query(e, t->sum, v.index), hcg_splat(e, 0), NULL);
    hcg_store(e, of_query(e, t->delta, v.index), hcg_splat(e, 0), NULL);
    if (t->dsink) hcg_store(e, of_query(e, t->sink, v.index), hcg_splat(e, -INFINITY), NULL);
    hcg_loop_end(e, &v, NULL);
    if (!t->a->sink) return;
    LLVMValueRef token, head, largest, sum;
    hcg_loop q = each(e, t->queries, "sink");
    find_query(e, t, q.index, &token, &head);
    hcg_softmax_origin(e, t->a, token, head, &largest, &sum);
    hcg_store(e, of_query(e, t->largest, q.index), largest, NULL);
    hcg_store(e, of_query(e, t->sum, q.index), sum, NULL);
    if (t->dsink) { /* a sink of -inf has M = the least number, S = 0 */
        LLVMValueRef none = LLVMBuildFCmp(e->b, LLVMRealOEQ, sum, LLVMConstReal(e->f32, 0), "");
        LLVMValueRef least = LLVMConstReal(e->f32, -INFINITY);
        hcg_store(e, of_query(e, t->sink, q.index), LLVMBuildSelect(e->b, none, least, largest, ""),
                  NULL);
    }
    hcg_loop_end(e, &q, NULL);
}

/* 1 / S, D, and -(its weight) D for the sink. S is at least 1 unless every score was -inf. */
static void finish_queries(hcg_emit *e, const tile *t) {
    hcg_loop v = each_vector(e, t);
    LLVMValueRef at_sum = of_query(e, t->sum, v.index), at_delta = of_query(e, t->delta, v.index);
    LLVMValueRef sum = hcg_max(e, hcg_load(e, HIR_F32, at_sum, NULL), hcg_splat(e, FLT_MIN));
    LLVMValueRef inverse = LLVMBuildFDiv(e->b, hcg_splat(e, 1), sum, "");
    LLVMValueRef delta = hcg_fmul(e, hcg_load(e, HIR_F32, at_delta, NULL), inverse);
    hcg_store(e, at_sum, inverse, NULL);
    hcg_store(e, at_delta, delta, NULL);
    if (t->dsink) {
        LLVMValueRef at = of_query(e, t->sink, v.index);
        LLVMValueRef largest = hcg_load(e, HIR_F32, of_query(e, t->largest, v.index), NULL);
        LLVMValueRef w = hcg_score_weight(e, hcg_load(e, HIR_F32, at, NULL), largest);
        w = hcg_fmul(e, hcg_fmul(e, w, inverse), delta);
        hcg_store(e, at, LLVMBuildFNeg(e->b, w, ""), NULL);
    }
    hcg_loop_end(e, &v, NULL);
}

/* ---- the second time ------------------------------------------------------------------------- */
/* P and dL of a vector of queries. */
static void weigh(hcg_emit *e, const tile *t, LLVMValueRef query) {
    LLVMValueRef largest = hcg_load(e, HIR_F32, of_query(e, t->largest, query), NULL);
    LLVMValueRef inverse = hcg_load(e, HIR_F32, of_query(e, t->sum, query), NULL);
    LLVMValueRef delta = hcg_load(e, HIR_F32, of_query(e, t->delta, query), NULL);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), t->count, hcg_i64(e, ROWS), "weigh", 0, NULL);
    for (int i = 0; i < ROWS; i++) {
        LLVMValueRef at = score_at(e, t, t->scores, l.index, i, query);
        LLVMValueRef slope = score_at(e, t, t->slopes, l.index, i, query);
        LLVMValueRef p = hcg_score_weight(e, hcg_load(e, HIR_F32, at, NULL), largest);
        p = hcg_fmul(e, p, inverse);
        LLVMValueRef dl = hcg_fsub(e, hcg_load(e, HIR_F32, slope, NULL), delta);
        dl = hcg_fmul(e, p, dl);
        hcg_store(e, at, p, NULL);
        if (t->panels_db != t->panels_dl)
            hcg_store(e, in_panel(e, t->panels_db, l.index, i, query), dl, NULL);
        if (t->factors) {
            LLVMValueRef f = score_at(e, t, t->factors, l.index, i, query);
            dl = hcg_fmul(e, dl, hcg_load(e, HIR_F32, f, NULL));
        }
        hcg_store(e, slope, dl, NULL);
        hcg_store(e, in_panel(e, t->panels_dl, l.index, i, query), dl, NULL);
    }
    hcg_loop_end(e, &l, NULL);
}

/* x^T of the queries in s, for each key: in `parts`, or added to the rows. */
static void sum_queries(hcg_emit *e, const tile *t, LLVMValueRef x, const hcg_gradient_rows *s,
                        const hcg_row_gradients *to) {
    hcg_gemm g = {.dtype = HIR_F32, .x_dtype = HIR_F32, .x = x, .ldx = hcg_i64(e, t->width)};
    g.rows = t->count, g.k = t->queries, g.b = s->columns;
    g.panels = hcg_i64(e, to->ld / HIR_PANEL), g.accumulate = to->at != NULL;
    g.c = to->at ? to->at : to->parts, g.ldc = to->at ? to->stride : hcg_i64(e, to->ld);
    if (to->wanted) hcg_call_gemm(e, &g);
}

/* dQ^T += K^T dL^T */
static void sum_keys(hcg_emit *e, const tile *t) {
    const int64_t n = t->q.n, most = hcg_strip_panels(e->level);
    hcg_strip s = {.across = n, .x = t->keys, .ldx = hcg_i64(e, n), .rows = hcg_i64(e, n)};
    s.k = t->count, s.ldb = hcg_i64(e, KEYS * HIR_PANEL), s.ldc = hcg_i64(e, n * HIR_PANEL);
    s.accumulate = hcg_i64(e, 1);
    s.next = hcg_at(e, e->f32, t->keys, hcg_i64(e, KEYS * n));
    hcg_loop p = hcg_loop_begin(e, hcg_i64(e, 0), t->panels, hcg_i64(e, most), "strip", 0, NULL);
    s.panels = hcg_smaller(e, hcg_sub(e, t->panels, p.index), hcg_i64(e, most));
    s.b = panel_of(e, t->panels_dl, p.index, KEYS), s.c = panel_of(e, t->panels_dq, p.index, n);
    hcg_call_strip(e, &s);
    hcg_loop_end(e, &p, NULL);
}

static void differentiate_keys(hcg_emit *e, tile *t) {
    hcg_loop v = each_vector(e, t);
    weigh(e, t, v.index);
    hcg_loop_end(e, &v, NULL);
    sum_queries(e, t, t->slopes, &t->q, &t->of_keys);
    sum_queries(e, t, t->scores, &t->dy, &t->of_values);
    if (t->dq) sum_keys(e, t);
    if (t->dbias) leave_bias(e, t);
    t->add(e, t);
}

/* ---- the tile -------------------------------------------------------------------------------- */
void hcg_gradient_begin(hcg_emit *e, tile *t) {
    const hcg_attention *a = t->a;
    const int64_t queries = t->tokens * a->per_group;
    const bool capped = a->softcap > 0;
    t->width = hcg_whole_panels(queries);
    const int64_t key_bytes = t->width * 4 * (capped ? 3 : 2);
    t->kept = (int64_t)e->level->machine.l2 / 2 / key_bytes / KEYS * KEYS;
    const int64_t all = (t->kept + KEYS) * t->width;
    hcg_gradient_rows *const rows[] = {&t->q, &t->dy};
    for (int i = 0; i < 2; i++) {
        rows[i]->rows = hcg_floats(e, queries * rows[i]->n);
        rows[i]->lanes = hcg_floats(e, t->width * rows[i]->n);
        rows[i]->columns = hcg_floats(e, queries * hcg_whole_panels(rows[i]->n));
    }
    t->all_scores = hcg_floats(e, all), t->all_slopes = hcg_floats(e, all);
    if (capped) t->all_factors = hcg_floats(e, all);
    t->largest = hcg_floats(e, t->width), t->sum = hcg_floats(e, t->width);
    t->delta = hcg_floats(e, t->width), t->sink = hcg_floats(e, t->width);
    t->panels_dl = t->panels_db = hcg_floats(e, t->width * KEYS);
    if (t->dbias && capped) t->panels_db = hcg_floats(e, t->width * KEYS);
    if (a->bias) {
        t->bias = hcg_floats(e, t->width * KEYS);
        t->rows_bias = hcg_floats(e, HIR_PANEL * KEYS);
    }
    t->panels_dq = hcg_floats(e, t->width * t->q.n);
    t->rows_dq = hcg_floats(e, HIR_PANEL * t->q.n);
    hcg_row_gradients *const of[] = {&t->of_keys, &t->of_values};
    for (int i = 0; i < 2; i++) {
        of[i]->ld = hcg_whole_panels(rows[i]->n);
        if (of[i]->wanted) of[i]->parts = hcg_floats(e, KEYS * of[i]->ld);
    }
}

/* Goes to the tile of keys at `first`. */
static void take_keys(hcg_emit *e, tile *t, LLVMValueRef first) {
    t->first = first;
    t->count = hcg_smaller(e, hcg_sub(e, t->to, first), hcg_i64(e, KEYS));
    LLVMValueRef slot = hcg_smaller(e, hcg_sub(e, first, t->from), hcg_i64(e, t->kept));
    slot = hcg_mul_const(e, slot, t->width);
    t->scores = hcg_at(e, e->f32, t->all_scores, slot);
    t->slopes = hcg_at(e, e->f32, t->all_slopes, slot);
    if (t->all_factors) t->factors = hcg_at(e, e->f32, t->all_factors, slot);
    t->fetch(e, t);
}

static hcg_loop each_tile_of_keys(hcg_emit *e, tile *t) {
    hcg_loop l = hcg_loop_begin(e, t->from, t->to, hcg_i64(e, KEYS), "keys", 0, NULL);
    take_keys(e, t, l.index);
    return l;
}

/* Writes dQ and the gradients of sinks of the tile. */
static void leave_queries(hcg_emit *e, const tile *t) {
    const int64_t n = t->q.n;
    LLVMValueRef token, head;
    hcg_loop p = each(e, t->panels, "leave");
    if (t->dq)
        hcg_unpack_panel(e, HIR_PANEL, panel_of(e, t->panels_dq, p.index, n), hcg_i64(e, n),
                         t->rows_dq);
    hcg_loop j = each(e, queries_of_panel(e, t, p.index), "query");
    LLVMValueRef query = hcg_add(e, hcg_mul_const(e, p.index, HIR_PANEL), j.index);
    find_query(e, t, query, &token, &head);
    LLVMValueRef number = hcg_add(e, hcg_mul_const(e, token, t->a->heads), head);
    if (t->dq)
        hcg_scale_row(e, hcg_at(e, e->f32, t->rows_dq, hcg_mul_const(e, j.index, n)),
                      hcg_at(e, e->f32, t->dq, hcg_mul_const(e, number, n)), n,
                      hcg_splat(e, t->a->scale));
    if (t->dsink) {
        LLVMValueRef x = hcg_load_scalar(e, HIR_F32, of_query(e, t->sink, query));
        LLVMValueRef of = number;
        if (!t->a->sink_by_token)
            of = hcg_sub(e, head, hcg_mul_const(e, t->group, t->a->per_group));
        LLVMValueRef at = hcg_at(e, e->f32, t->dsink, of);
        if (!t->a->sink_by_token) x = hcg_fadd(e, hcg_load_scalar(e, HIR_F32, at), x);
        hcg_store(e, at, x, NULL);
    }
    hcg_loop_end(e, &j, NULL);
    hcg_loop_end(e, &p, NULL);
}

/* Elements of the bias' gradient that no key reaches stay 0. */
static void zero_bias(hcg_emit *e, const tile *t) {
    const hcg_attention *a = t->a;
    hcg_loop l = each(e, t->n, "token");
    LLVMValueRef at = first_head(e, t, hcg_add(e, t->row, l.index));
    hcg_zero_row(e, hcg_at(e, e->f32, t->dbias, hcg_mul_const(e, at, a->extent)),
                 a->per_group * a->extent);
    hcg_loop_end(e, &l, NULL);
}

void hcg_gradient_queries(hcg_emit *e, tile *t, LLVMValueRef from, LLVMValueRef to) {
    t->queries = hcg_mul_const(e, t->n, t->a->per_group);
    t->panels = hcg_divide_up(e, t->queries, hcg_i64(e, HIR_PANEL));
    t->from = from, t->to = to;
    take_rows(e, t, &t->q, t->a->scale, t->of_keys.wanted);
    take_rows(e, t, &t->dy, 1, t->of_values.wanted);
    if (t->dq) hcg_zero_row(e, t->panels_dq, t->width * t->q.n);
    if (t->dbias) zero_bias(e, t);
    start_queries(e, t);
    hcg_loop k = each_tile_of_keys(e, t);
    compute_scores(e, t);
    hcg_loop v = each_vector(e, t);
    measure(e, t, v.index);
    hcg_loop_end(e, &v, NULL);
    hcg_loop_end(e, &k, NULL);
    finish_queries(e, t);
    k = each_tile_of_keys(e, t);
    LLVMValueRef lost = hcg_sub(e, t->first, t->from);
    lost = LLVMBuildICmp(e->b, LLVMIntSGE, lost, hcg_i64(e, t->kept), "lost");
    hcg_loop again = once_if(e, lost, "again");
    compute_scores(e, t);
    hcg_loop_end(e, &again, NULL);
    differentiate_keys(e, t);
    hcg_loop_end(e, &k, NULL);
    leave_queries(e, t);
}
