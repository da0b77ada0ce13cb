/* Evaluator rules of the gradients of attention. One query at a time: its weights are computed
 * again, then what it adds to the gradient of one operand. */
#include <math.h>
#include <string.h>

#include "ir/eval/private.h"

/* What a query sees: rows of keys and values, and where their gradients are summed (NULL: this
 * operand's gradient is not wanted). `distance` chooses an element of a row of bias; -1: none. */
typedef struct seen_row {
    const double *k, *v;
    double *dk, *dv;
    int64_t distance;
} seen_row;

typedef struct query {
    const double *q, *bias, *dy;
    double *dq, *dbias, *dsink; /* NULL: not wanted */
    double sink;                /* -inf: none */
    double scale, softcap;
    int64_t n, m, rows;
    seen_row *row;
    double *l; /* for each row: its logit, then its weight */
} query;

static double logit(const query *a, const seen_row *row) {
    double l = a->scale * eval_dot(a->q, row->k, a->n);
    if (a->softcap > 0) l = a->softcap * tanh(l / a->softcap);
    return row->distance >= 0 ? l + a->bias[row->distance] : l;
}

/* Makes weights of logits; the weight of the sink is returned. */
static double weigh(const query *a) {
    double max = a->sink;
    for (int64_t i = 0; i < a->rows; i++) {
        a->l[i] = logit(a, &a->row[i]);
        if (a->l[i] > max) max = a->l[i];
    }
    double sum = a->sink > -INFINITY ? exp(a->sink - max) : 0;
    const double sink = sum;
    for (int64_t i = 0; i < a->rows; i++)
        sum += a->l[i] = exp(a->l[i] - max);
    for (int64_t i = 0; i < a->rows; i++)
        a->l[i] /= sum;
    return sink / sum;
}

static void add_scaled(double *y, double by, const double *x, int64_t n) {
    for (int64_t i = 0; i < n && y; i++)
        y[i] += by * x[i];
}

/* dl is the gradient of a logit before the bias: 1 - tanh^2 of what the cap has made of it. */
static double through_cap(const query *a, const seen_row *row, double dl) {
    if (!(a->softcap > 0)) return dl;
    const double t = tanh(a->scale * eval_dot(a->q, row->k, a->n) / a->softcap);
    return dl * (1 - t * t);
}

static void query_grad(const query *a) {
    const double of_sink = weigh(a);
    double delta = 0; /* dy . o */
    for (int64_t i = 0; i < a->rows; i++)
        delta += a->l[i] * eval_dot(a->dy, a->row[i].v, a->m);
    for (int64_t i = 0; i < a->rows; i++) {
        const seen_row *row = &a->row[i];
        const double dl = a->l[i] * (eval_dot(a->dy, row->v, a->m) - delta);
        const double ds = a->scale * through_cap(a, row, dl);
        add_scaled(row->dv, a->l[i], a->dy, a->m);
        add_scaled(row->dk, ds, a->q, a->n);
        add_scaled(a->dq, ds, row->k, a->n);
        if (a->dbias && row->distance >= 0) a->dbias[row->distance] += dl;
    }
    if (a->dsink) *a->dsink -= of_sink * delta;
}

static query new_query(eval_call *c, const hir_op *op, int64_t n, int64_t m, int64_t rows) {
    return (query){.n = n,
                   .m = m,
                   .scale = hir_attr_float(op, HIR_A_SCALE, 1),
                   .softcap = hir_attr_float(op, HIR_A_SOFTCAP, 0),
                   .row = hd_new_array(c->scratch, seen_row, (size_t)rows),
                   .l = hd_new_array(c->scratch, double, (size_t)rows)};
}

static double *offset(double *at, int64_t by) {
    return at ? at + by : NULL;
}

/* The sink of head h at token t: its score, and where its gradient is added. */
static void see_sink(query *a, const hir_array *sink, double *dsink, int64_t heads, int64_t t,
                     int64_t h) {
    a->sink = -INFINITY, a->dsink = NULL;
    if (!sink) return;
    const int64_t at = sink->type.rank == 2 ? t * heads + h : h;
    a->sink = sink->at[at], a->dsink = offset(dsink, at);
}

bool eval_attention_grad(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    const int64_t heads = x[0]->type.dim[1], n = x[0]->type.dim[2], m = x[2]->type.dim[2];
    const int64_t groups = x[1]->type.dim[1], window = hir_attr_int(op, HIR_A_WINDOW, c->C);
    const hir_array *sink = x[3], *bias = x[4];
    const int64_t extent = bias ? bias->type.dim[2] : 0;
    double *dq = eval_wanted(op, "q", y), *dk = eval_wanted(op, "k", y),
           *dv = eval_wanted(op, "v", y);
    double *dsink = eval_wanted(op, "sink", y), *dbias = eval_wanted(op, "bias", y);
    if (!eval_from_the_start(c, op)) return false;
    query a = new_query(c, op, n, m, c->C);
    for (int64_t h = 0; h < heads; h++)
        for (int64_t t = 0; t < c->T; t++) {
            const int64_t g = h / (heads / groups), at = t * heads + h;
            a.q = x[0]->at + at * n, a.dq = offset(dq, at * n), a.dy = x[5]->at + at * m;
            a.bias = bias ? bias->at + at * extent : NULL, a.dbias = offset(dbias, at * extent);
            see_sink(&a, sink, dsink, heads, t, h);
            a.rows = 0;
            for (int64_t s = t >= window ? t - window + 1 : 0; s <= t; s++) {
                const int64_t row = s * groups + g;
                a.row[a.rows++] =
                    (seen_row){x[1]->at + row * n, x[2]->at + row * m, offset(dk, row * n),
                               offset(dv, row * m), t - s < extent ? t - s : -1};
            }
            query_grad(&a);
        }
    return true;
}

/* ---- attention to selected rows -------------------------------------------------------------- */

typedef struct selected {
    const hir_array *k, *v, *entries, *list;
    double *dk, *dv, *de;
    int64_t groups, n, m, rate, most, lists, window;
} selected;

static void see_row(const selected *s, query *a, int64_t position, int64_t g) {
    const int64_t row = position * s->groups + g;
    a->row[a->rows++] = (seen_row){s->k->at + row * s->n, s->v->at + row * s->m,
                                   offset(s->dk, row * s->n), offset(s->dv, row * s->m), -1};
}

static void see_entry(const selected *s, query *a, int64_t entry, int64_t g) {
    const int64_t at = (entry * s->groups + g) * s->n;
    const double *e = s->entries->at + at;
    a->row[a->rows++] = (seen_row){e, e, offset(s->de, at), offset(s->de, at), -1};
}

/* The rows that the token at p sees: as in attention_selected. */
static void see(const selected *s, query *a, int64_t p, int64_t g) {
    const int64_t rows = s->entries ? (p + 1) / s->rate : p + 1;
    a->rows = 0;
    for (int64_t i = p >= s->window ? p - s->window + 1 : 0; s->entries && i <= p; i++)
        see_row(s, a, i, g);
    if (!s->list) {
        hd_known(s->entries); /* the op's rule requires one of the two */
        for (int64_t i = 0; i < rows; i++)
            see_entry(s, a, i, g);
        return;
    }
    const double *chosen = s->list->at + (p * s->lists + g % s->lists) * s->most;
    for (int64_t i = 0; i < s->most && i < rows; i++) {
        if (!(chosen[i] >= 0 && chosen[i] < (double)rows)) return;
        if (s->entries)
            see_entry(s, a, (int64_t)chosen[i], g);
        else
            see_row(s, a, (int64_t)chosen[i], g);
    }
}

bool eval_attention_selected_grad(eval_call *c, const hir_op *op, const hir_array *const *x,
                                  hir_array *y) {
    const int64_t heads = x[0]->type.dim[1];
    const hir_array *sink = x[4];
    double *dq = eval_wanted(op, "q", y), *dsink = eval_wanted(op, "sink", y);
    selected s = {.k = x[1], .v = x[2], .list = x[3], .entries = x[5]};
    s.groups = x[1]->type.dim[1], s.n = x[0]->type.dim[2], s.m = x[2]->type.dim[2];
    s.dk = eval_wanted(op, "k", y), s.dv = eval_wanted(op, "v", y),
    s.de = eval_wanted(op, "entries", y);
    s.rate = s.entries ? hir_rate(hir_ref_type(c->m, op->args[5]).dim[0]) : 1;
    s.most = s.list ? s.list->type.dim[2] : 0, s.lists = s.list ? s.list->type.dim[1] : 1;
    s.window = hir_attr_int(op, HIR_A_WINDOW, c->C);
    if (!eval_from_the_start(c, op)) return false;
    query a = new_query(c, op, s.n, s.m, c->C + c->C / s.rate + s.most);
    for (int64_t t = 0; t < c->T; t++)
        for (int64_t h = 0; h < heads; h++) {
            const int64_t at = t * heads + h;
            a.q = x[0]->at + at * s.n, a.dq = offset(dq, at * s.n), a.dy = x[6]->at + at * s.m;
            see_sink(&a, sink, dsink, heads, t, h);
            see(&s, &a, t, h / (heads / s.groups));
            if (a.rows) query_grad(&a);
        }
    return true;
}
