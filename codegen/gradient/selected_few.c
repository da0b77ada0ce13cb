/* Gradients of attention over selected rows where few query heads share keys. A tile of queries in
 * lanes (attention_queries.c) would be nearly empty. Here vectors run along the numbers of a row, or
 * along rows, of which each has one score for a head. For a token
 *
 *     1  l = scale q.k, e = dy.v              row by row
 *     2  M, S, D; p = softmax(l), dl = p (e - D)      rows in lanes
 *     3  dq += dl k, dk += dl q, dv += p dy   row by row
 *
 * in the rows where they are: nothing is copied. The scores of all rows of a token stay in scratch.
 * Sums over rows and over heads run in their order.
 */
#include "codegen/gradient/selected_few.h"

#include <float.h>
#include <math.h>

#include "codegen/attention/attention_tile.h"
#include "codegen/attention/query_tile.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"
#include "codegen/gradient/attention_queries.h"

typedef hcg_few few;

enum { CHAINS = 4 }; /* sums that go on at once */

static int64_t smaller_of(int64_t a, int64_t b) {
    return a < b ? a : b;
}

void hcg_few_begin(hcg_emit *e, few *f) {
    const int64_t heads = f->a->per_group, chunk = e->p->chunk;
    const int64_t near = f->rows->entries.base ? chunk : 0;
    const int64_t far = f->rows->list ? f->rows->most : chunk;
    f->ld = hcg_whole_panels(smaller_of(near, f->a->window ? f->a->window : near) + far);
    if (f->ld < e->level->lanes) f->ld = e->level->lanes;
    f->scaled = hcg_floats(e, heads * f->a->n);
    f->dqs = hcg_floats(e, heads * f->a->n);
    f->scores = hcg_floats(e, heads * f->ld);
    f->slopes = hcg_floats(e, heads * f->ld);
    if (f->a->softcap > 0) f->factors = hcg_floats(e, heads * f->ld);
}

/* ---- rows ------------------------------------------------------------------------------------ */
/* A row that the token sees, number `index` of them. */
typedef struct row {
    LLVMValueRef index;
    LLVMValueRef k, v;
    LLVMValueRef token; /* whose rows have the gradients */
    bool entry;         /* k and v are one row, with one gradient */
} row;

static LLVMValueRef floats_at(hcg_emit *e, LLVMValueRef base, LLVMValueRef index) {
    return hcg_at(e, e->f32, base, index);
}

/* Emits `body` for the rows that are positions of the token's window, or for the others. */
static void each_of(hcg_emit *e, const few *f, bool near,
                    void (*body)(hcg_emit *e, const few *f, const row *r)) {
    const hcg_selection *s = f->rows;
    LLVMValueRef all = hcg_add(e, f->seen.near, f->seen.far), zero = hcg_i64(e, 0), number;
    hcg_loop l = hcg_loop_begin(e, near ? zero : f->seen.near, near ? f->seen.near : all,
                                hcg_i64(e, 1), near ? "near" : "far", 0, NULL);
    row r = {.index = l.index, .entry = !near && s->entries.base};
    if (near)
        number = hcg_add(e, f->seen.first, l.index);
    else
        number = hcg_selected_row(e, s, hcg_sub(e, l.index, f->seen.near));
    r.token = number;
    if (r.entry && s->rate > 1)
        r.token =
            hcg_sub(e, hcg_mul_const(e, hcg_add(e, number, hcg_i64(e, 1)), s->rate), hcg_i64(e, 1));
    if (r.entry) {
        r.k = r.v = hcg_row_in(e, &s->entries, s->entries_cap, f->group, number);
    } else {
        r.k = hcg_row_in(e, &f->a->k, f->a->cap, f->group, number);
        r.v = s->same ? r.k : hcg_row_in(e, &f->a->v, f->a->cap, f->group, number);
    }
    body(e, f, &r);
    hcg_loop_end(e, &l, NULL);
}

static void each_row(hcg_emit *e, const few *f,
                     void (*body)(hcg_emit *e, const few *f, const row *r)) {
    if (f->rows->entries.base) each_of(e, f, true, body);
    each_of(e, f, false, body);
}

/* The number of the token's first head of the group in [T][H]. */
static LLVMValueRef first_head(hcg_emit *e, const few *f) {
    return hcg_add(e, hcg_mul_const(e, f->row, f->a->heads),
                   hcg_mul_const(e, f->group, f->a->per_group));
}

static LLVMValueRef dy_rows(hcg_emit *e, const few *f) {
    return floats_at(e, f->dy, hcg_mul_const(e, first_head(e, f), f->a->m));
}

/* &x[head][index] */
static LLVMValueRef score_at(hcg_emit *e, const few *f, LLVMValueRef x, LLVMValueRef head,
                             LLVMValueRef index) {
    return floats_at(e, x, hcg_add(e, hcg_mul_const(e, head, f->ld), index));
}

/* ---- scores ---------------------------------------------------------------------------------- */
/* sum += the products of `chains` vectors from number `at` on, with the rows [head][n] of x. */
static void add_products(hcg_emit *e, const few *f, LLVMValueRef of, LLVMValueRef x, int64_t n,
                         LLVMValueRef at, int64_t chains, LLVMValueRef valid, LLVMValueRef *sum) {
    const int64_t lanes = e->level->lanes, heads = f->a->per_group;
    for (int64_t c = 0; c < chains; c++) {
        LLVMValueRef i = hcg_add(e, at, hcg_i64(e, c * lanes));
        LLVMValueRef y = hcg_load(e, HIR_F32, floats_at(e, of, i), valid);
        for (int64_t h = 0; h < heads; h++) {
            LLVMValueRef own = floats_at(e, x, hcg_add(e, i, hcg_i64(e, h * n)));
            LLVMValueRef *s = &sum[c * heads + h];
            *s = hcg_fma(e, y, hcg_load(e, HIR_F32, own, valid), *s);
        }
    }
}

/* The dot products of a row of n numbers with those of the heads: to[head]. */
static void multiply(hcg_emit *e, const few *f, LLVMValueRef of, LLVMValueRef x, int64_t n,
                     LLVMValueRef to, LLVMValueRef index) {
    const int64_t lanes = e->level->lanes, heads = f->a->per_group;
    const int64_t chains = heads < CHAINS ? CHAINS / heads : 1, sums = chains * heads;
    const int64_t wide = n / (chains * lanes) * chains * lanes, whole = n / lanes * lanes;
    LLVMValueRef sum[CHAINS], zero = hcg_i64(e, 0);
    for (int64_t i = 0; i < sums; i++)
        sum[i] = hcg_splat(e, 0);
    hcg_loop l = hcg_loop_begin(e, zero, hcg_i64(e, wide), hcg_i64(e, chains * lanes), "products",
                                (unsigned)sums, sum);
    for (int64_t i = 0; i < sums; i++)
        sum[i] = l.carried[i];
    add_products(e, f, of, x, n, l.index, chains, NULL, sum);
    hcg_loop_end(e, &l, sum);
    for (int64_t i = 0; i < sums; i++)
        sum[i] = l.carried[i];
    for (int64_t at = wide; at < whole; at += lanes)
        add_products(e, f, of, x, n, hcg_i64(e, at), 1, NULL, sum);
    if (whole < n) add_products(e, f, of, x, n, hcg_i64(e, whole), 1, hcg_i64(e, n - whole), sum);
    for (int64_t h = 0; h < heads; h++) {
        LLVMValueRef all = sum[h];
        for (int64_t c = 1; c < chains; c++)
            all = hcg_fadd(e, all, sum[c * heads + h]);
        hcg_store(e, score_at(e, f, to, hcg_i64(e, h), index), hcg_sum_lanes(e, all), NULL);
    }
}

static void score_row(hcg_emit *e, const few *f, const row *r) {
    multiply(e, f, r->k, f->scaled, f->a->n, f->scores, r->index);
    multiply(e, f, r->v, dy_rows(e, f), f->a->m, f->slopes, r->index);
}

/* ---- weights --------------------------------------------------------------------------------- */
/* A loop over vectors of rows, of a head whose first elements are at `scores` and so on. */
static hcg_loop each_vector(hcg_emit *e, LLVMValueRef rows, unsigned n,
                            const LLVMValueRef *carried) {
    return hcg_loop_begin(e, hcg_i64(e, 0), rows, hcg_i64(e, e->level->lanes), "vector", n,
                          carried);
}

typedef struct head {
    LLVMValueRef number;                  /* of the group's heads */
    LLVMValueRef rows;                    /* that the token sees */
    LLVMValueRef scores, slopes, factors; /* of it */
} head;

/* The soft cap; then rows of no key fill up the last vector. */
static void finish_scores(hcg_emit *e, const few *f, const head *h) {
    if (f->factors) {
        hcg_loop l = each_vector(e, h->rows, 0, NULL);
        LLVMValueRef at = floats_at(e, h->scores, l.index), x = hcg_load(e, HIR_F32, at, NULL);
        LLVMValueRef y = hcg_tanh(e, hcg_fmul(e, x, hcg_splat(e, 1 / f->a->softcap)));
        LLVMValueRef slope = hcg_fma(e, LLVMBuildFNeg(e->b, y, ""), y, hcg_splat(e, 1));
        hcg_store(e, floats_at(e, h->factors, l.index), slope, NULL);
        hcg_store(e, at, hcg_fmul(e, y, hcg_splat(e, f->a->softcap)), NULL);
        hcg_loop_end(e, &l, NULL);
    }
    LLVMValueRef lanes = hcg_i64(e, e->level->lanes);
    LLVMValueRef end = hcg_mul(e, hcg_divide_up(e, h->rows, lanes), lanes);
    hcg_loop l = hcg_loop_begin(e, h->rows, end, hcg_i64(e, 1), "none", 0, NULL);
    hcg_store(e, floats_at(e, h->scores, l.index), LLVMConstReal(e->f32, -INFINITY), NULL);
    hcg_store(e, floats_at(e, h->slopes, l.index), LLVMConstReal(e->f32, 0), NULL);
    if (f->factors) hcg_store(e, floats_at(e, h->factors, l.index), LLVMConstReal(e->f32, 0), NULL);
    hcg_loop_end(e, &l, NULL);
}

/* -(the weight of the sink) D */
static void leave_sink(hcg_emit *e, const few *f, const head *h, LLVMValueRef weight,
                       LLVMValueRef delta) {
    LLVMValueRef x = LLVMBuildFNeg(e->b, hcg_fmul(e, weight, delta), "");
    if (f->a->sink_by_token) {
        LLVMValueRef at = hcg_add(e, first_head(e, f), h->number);
        hcg_store(e, floats_at(e, f->dsink, at), x, NULL);
        return;
    }
    LLVMValueRef at = floats_at(e, f->dsink, h->number);
    hcg_store(e, at, hcg_fadd(e, hcg_load_scalar(e, HIR_F32, at), x), NULL);
}

/* In all lanes. */
static LLVMValueRef weight(hcg_emit *e, LLVMValueRef l, LLVMValueRef largest) {
    return hcg_score_weight(e, l, hcg_splat_value(e, largest));
}

static LLVMValueRef one_weight(hcg_emit *e, LLVMValueRef l, LLVMValueRef largest) {
    LLVMValueRef all = weight(e, hcg_splat_value(e, l), largest);
    return LLVMBuildExtractElement(e->b, all, LLVMConstInt(e->i32, 0, false), "");
}

/* p and dl of a head, in place of l and e. */
static void weigh_head(hcg_emit *e, const few *f, const head *h) {
    LLVMValueRef least, start, token = f->row, zero = LLVMConstReal(e->f32, 0);
    LLVMValueRef number = hcg_add(e, hcg_mul_const(e, f->group, f->a->per_group), h->number);
    finish_scores(e, f, h);
    hcg_softmax_origin(e, f->a, token, number, &least, &start);
    LLVMValueRef most = hcg_splat_value(e, least);
    hcg_loop m = each_vector(e, h->rows, 1, &most);
    most = hcg_larger_score(e, hcg_load(e, HIR_F32, floats_at(e, h->scores, m.index), NULL),
                            m.carried[0]);
    hcg_loop_end(e, &m, &most);
    LLVMValueRef largest = hcg_max_lanes(e, m.carried[0]), finite = LLVMConstReal(e->f32, FLT_MAX);
    LLVMValueRef above = LLVMBuildFCmp(e->b, LLVMRealOGT, largest, finite, "");
    largest = LLVMBuildSelect(e->b, above, finite, largest, "");
    LLVMValueRef sums[] = {hcg_splat(e, 0), hcg_splat(e, 0)};
    hcg_loop s = each_vector(e, h->rows, 2, sums);
    LLVMValueRef p =
        weight(e, hcg_load(e, HIR_F32, floats_at(e, h->scores, s.index), NULL), largest);
    sums[0] = hcg_fadd(e, s.carried[0], p);
    sums[1] =
        hcg_fma(e, p, hcg_load(e, HIR_F32, floats_at(e, h->slopes, s.index), NULL), s.carried[1]);
    hcg_loop_end(e, &s, sums);
    LLVMValueRef sum =
        hcg_fma(e, start, one_weight(e, least, largest), hcg_sum_lanes(e, s.carried[0]));
    LLVMValueRef none = LLVMBuildFCmp(e->b, LLVMRealOLT, sum, LLVMConstReal(e->f32, FLT_MIN), "");
    sum = LLVMBuildSelect(e->b, none, LLVMConstReal(e->f32, FLT_MIN), sum, "");
    LLVMValueRef inverse = LLVMBuildFDiv(e->b, LLVMConstReal(e->f32, 1), sum, "");
    LLVMValueRef delta = hcg_fmul(e, hcg_sum_lanes(e, s.carried[1]), inverse);
    if (f->dsink) { /* a sink of -inf has S = 0 to start with */
        LLVMValueRef w = hcg_fmul(e, one_weight(e, least, largest), inverse);
        LLVMValueRef off = LLVMBuildFCmp(e->b, LLVMRealOEQ, start, zero, "");
        leave_sink(e, f, h, LLVMBuildSelect(e->b, off, zero, w, ""), delta);
    }
    hcg_loop w = each_vector(e, h->rows, 0, NULL);
    LLVMValueRef at = floats_at(e, h->scores, w.index), slope = floats_at(e, h->slopes, w.index);
    p = hcg_fmul(e, weight(e, hcg_load(e, HIR_F32, at, NULL), largest),
                 hcg_splat_value(e, inverse));
    LLVMValueRef dl = hcg_fsub(e, hcg_load(e, HIR_F32, slope, NULL), hcg_splat_value(e, delta));
    dl = hcg_fmul(e, p, dl);
    if (f->factors)
        dl = hcg_fmul(e, dl, hcg_load(e, HIR_F32, floats_at(e, h->factors, w.index), NULL));
    hcg_store(e, at, p, NULL);
    hcg_store(e, slope, dl, NULL);
    hcg_loop_end(e, &w, NULL);
}

/* ---- gradients ------------------------------------------------------------------------------- */
/* What a row gives and gets, for as many numbers as a vector has from number i on. */
typedef struct piece {
    LLVMValueRef i, valid;
    const LLVMValueRef *dl, *p; /* by head, in all lanes */
} piece;

/* y + the sum over heads of by[head] x[head][i ..] */
static LLVMValueRef add_heads(hcg_emit *e, const few *f, const piece *x, LLVMValueRef rows,
                              int64_t n, const LLVMValueRef *by, LLVMValueRef y) {
    for (int64_t h = 0; h < f->a->per_group; h++) {
        LLVMValueRef at = floats_at(e, rows, hcg_add(e, x->i, hcg_i64(e, h * n)));
        y = hcg_fma(e, by[h], hcg_load(e, HIR_F32, at, x->valid), y);
    }
    return y;
}

static void add_to(hcg_emit *e, const few *f, const piece *x, const hcg_gathered *g,
                   LLVMValueRef token, LLVMValueRef rows, int64_t n, const LLVMValueRef *by) {
    LLVMValueRef at = floats_at(e, hcg_gathered_at(e, g, token), x->i);
    LLVMValueRef y = hcg_load(e, HIR_F32, at, x->valid);
    hcg_store(e, at, add_heads(e, f, x, rows, n, by, y), x->valid);
}

static void piece_of_k(hcg_emit *e, const few *f, const row *r, const piece *x) {
    const hcg_gathered *g = r->entry ? f->entry : f->k;
    LLVMValueRef k = hcg_load(e, HIR_F32, floats_at(e, r->k, x->i), x->valid);
    for (int64_t h = 0; f->dq && h < f->a->per_group; h++) {
        LLVMValueRef at = floats_at(e, f->dqs, hcg_add(e, x->i, hcg_i64(e, h * f->a->n)));
        LLVMValueRef y = hcg_load(e, HIR_F32, at, x->valid);
        hcg_store(e, at, hcg_fma(e, x->dl[h], k, y), x->valid);
    }
    if (g->result) add_to(e, f, x, g, r->token, f->scaled, f->a->n, x->dl);
}

static void piece_of_v(hcg_emit *e, const few *f, const row *r, const piece *x) {
    const hcg_gathered *g = r->entry ? f->entry : f->v;
    if (g->result) add_to(e, f, x, g, r->token, dy_rows(e, f), f->a->m, x->p);
}

static void each_piece(hcg_emit *e, const few *f, const row *r, int64_t n, const LLVMValueRef *dl,
                       const LLVMValueRef *p,
                       void (*body)(hcg_emit *e, const few *f, const row *r, const piece *x)) {
    const int64_t lanes = e->level->lanes, whole = n / lanes * lanes;
    hcg_loop l =
        hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, whole), hcg_i64(e, lanes), "piece", 0, NULL);
    piece x = {.i = l.index, .dl = dl, .p = p};
    body(e, f, r, &x);
    hcg_loop_end(e, &l, NULL);
    x.i = hcg_i64(e, whole), x.valid = hcg_i64(e, n - whole);
    if (whole < n) body(e, f, r, &x);
}

static void give_row(hcg_emit *e, const few *f, const row *r) {
    LLVMValueRef dl[HCG_FEW_HEADS], p[HCG_FEW_HEADS];
    for (int64_t h = 0; h < f->a->per_group; h++) {
        LLVMValueRef at = score_at(e, f, f->slopes, hcg_i64(e, h), r->index);
        dl[h] = hcg_splat_value(e, hcg_load_scalar(e, HIR_F32, at));
        at = score_at(e, f, f->scores, hcg_i64(e, h), r->index);
        p[h] = hcg_splat_value(e, hcg_load_scalar(e, HIR_F32, at));
    }
    each_piece(e, f, r, f->a->n, dl, p, piece_of_k);
    each_piece(e, f, r, f->a->m, dl, p, piece_of_v);
}

/* ---- a token --------------------------------------------------------------------------------- */
void hcg_few_token(hcg_emit *e, const few *f) {
    const int64_t heads = f->a->per_group, n = heads * f->a->n;
    LLVMValueRef at = hcg_mul_const(e, first_head(e, f), f->a->n);
    hcg_scale_row(e, floats_at(e, f->q, at), f->scaled, n, hcg_splat(e, f->a->scale));
    hcg_zero_row(e, f->dqs, n);
    each_row(e, f, score_row);
    hcg_loop l =
        hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, heads), hcg_i64(e, 1), "head", 0, NULL);
    head h = {.number = l.index, .rows = hcg_add(e, f->seen.near, f->seen.far)};
    h.scores = score_at(e, f, f->scores, l.index, hcg_i64(e, 0));
    h.slopes = score_at(e, f, f->slopes, l.index, hcg_i64(e, 0));
    if (f->factors) h.factors = score_at(e, f, f->factors, l.index, hcg_i64(e, 0));
    weigh_head(e, f, &h);
    hcg_loop_end(e, &l, NULL);
    each_row(e, f, give_row);
    if (f->dq) hcg_scale_row(e, f->dqs, floats_at(e, f->dq, at), n, hcg_splat(e, f->a->scale));
}
