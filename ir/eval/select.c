/* Evaluator rules of sparse attention: selection of rows of a cache, attention to selected rows,
 * and the pooling of positions that makes such rows. */
#include <math.h>
#include <string.h>

#include "ir/eval/private.h"

/* ---- select ---------------------------------------------------------------------------------- */

/* Does row s come before row t in the order of selection? NaN is less than all else; of equal rows
 * the lower one comes first. */
static bool comes_before(const double *score, int64_t s, int64_t t) {
    const double a = score[s], b = score[t];
    if (isnan(a) || isnan(b)) return isnan(a) == isnan(b) ? s < t : isnan(b);
    return a > b || (a == b && s < t);
}

/* Marks the k best of rows from .. to - 1, with a heap whose root is the worst one kept. */
static void mark_best(const double *score, int64_t from, int64_t to, int64_t k, int64_t *heap,
                      bool *chosen) {
    int64_t n = 0;
    for (int64_t s = from; s < to; s++) {
        if (n == k && !comes_before(score, s, heap[0])) continue;
        int64_t at = n < k ? n++ : 0;
        if (at) { /* up from the end */
            for (int64_t up; at && comes_before(score, heap[up = (at - 1) / 2], s); at = up)
                heap[at] = heap[up];
        } else { /* down from the root */
            for (int64_t down; (down = 2 * at + 1) < n; at = down) {
                if (down + 1 < n && comes_before(score, heap[down], heap[down + 1])) down++;
                if (!comes_before(score, s, heap[down])) break;
                heap[at] = heap[down];
            }
        }
        heap[at] = s;
    }
    for (int64_t i = 0; i < n; i++)
        chosen[heap[i]] = true;
}

typedef struct selection {
    int64_t heads, groups, n, k, rate, width;
    int64_t block; /* rows of one; 0: there are none */
    bool relu, positions, blocks;
} selection;

static double score_of(const selection *a, const hir_array *const *x, int64_t t, int64_t g,
                       int64_t s) {
    const int64_t per_group = a->heads / a->groups;
    const double *key = x[1]->at + (s * a->groups + g) * a->n;
    double sum = 0;
    for (int64_t h = g * per_group; h < (g + 1) * per_group; h++) {
        double dot = eval_dot(x[0]->at + (t * a->heads + h) * a->n, key, a->n);
        if (a->relu && dot < 0) dot = 0;
        sum += dot * (x[2] ? x[2]->at[t * a->heads + h] : 1);
    }
    return sum;
}

/* Writes the list of the selected ones among the first `seen` rows, for the token at position p. */
static void write_list(const selection *a, const bool *chosen, int64_t seen, int64_t p, double *y) {
    int64_t n = 0;
    const int64_t each = a->positions ? a->rate : 1;
    for (int64_t s = 0; s < seen; s++)
        for (int64_t i = 0; chosen[s] && i < each; i++)
            y[n++] = (double)(s * each + i);
    for (int64_t s = seen * each; a->positions && s <= p; s++)
        y[n++] = (double)s;
    while (n < a->width)
        y[n++] = -1;
}

/* Marks the rows below `seen` of the blocks that the list names. */
static void mark_listed(const selection *a, const double *list, int64_t n, int64_t seen,
                        bool *listed) {
    memset(listed, 0, (size_t)seen * sizeof *listed);
    for (int64_t i = 0; i < n; i++) {
        const int64_t from = (int64_t)list[i] * a->block;
        for (int64_t s = from; from >= 0 && s < seen && s - from < a->block; s++)
            listed[s] = true;
    }
}

/* Scores of blocks in the place of those of their rows; returns how many there are. */
static int64_t score_blocks(const selection *a, double *score, int64_t seen) {
    const int64_t blocks = (seen + a->block - 1) / a->block;
    for (int64_t b = 0; b < blocks; b++) {
        int64_t best = b * a->block;
        for (int64_t s = best; s < seen && s / a->block == b; s++)
            if (comes_before(score, s, best)) best = s;
        score[b] = b == blocks - 1 ? INFINITY : score[best];
    }
    return blocks;
}

/* The scores of the rows first .. seen - 1 that may be chosen, side by side, and which they are. */
static int64_t keep_listed(double *score, int64_t *row, const bool *listed, int64_t first,
                           int64_t seen) {
    int64_t n = 0;
    for (int64_t s = first; s < seen; s++)
        if (!listed || listed[s]) {
            score[n] = score[s];
            row[n++] = s;
        }
    return n;
}

bool eval_select(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    const hir_type q = x[0]->type;
    selection a = {.heads = q.dim[1], .n = q.dim[2], .groups = x[1]->type.dim[1]};
    a.k = hir_attr_int(op, HIR_A_K, 1);
    a.rate = hir_rate(hir_ref_type(c->m, op->args[1]).dim[0]);
    a.width = y->type.dim[2];
    a.relu = strcmp(hir_attr_string(op, HIR_A_ACTIVATION, "none"), "relu") == 0;
    const char *of = hir_attr_string(op, HIR_A_OF, "rows");
    a.positions = strcmp(of, "positions") == 0, a.blocks = strcmp(of, "blocks") == 0;
    a.block = hir_attr_int(op, HIR_A_BLOCK, 0);
    const hir_array *list = x[3];
    const int64_t rows = c->C / a.rate, window = hir_attr_int(op, HIR_A_WINDOW, c->C);
    const int64_t most = list ? list->type.dim[2] : 0, lists = list ? list->type.dim[1] : 1;
    double *score = hd_new_array(c->scratch, double, (size_t)rows + 1);
    int64_t *heap = hd_new_array(c->scratch, int64_t, (size_t)(a.k < rows ? a.k : rows) + 1);
    int64_t *row = hd_new_array(c->scratch, int64_t, (size_t)rows + 1);
    bool *chosen = hd_new_array(c->scratch, bool, (size_t)rows + 1);
    bool *listed = list ? hd_new_array(c->scratch, bool, (size_t)rows + 1) : NULL;
    bool *best = hd_new_array(c->scratch, bool, (size_t)rows + 1);
    for (int64_t t = 0; t < c->T; t++)
        for (int64_t g = 0; g < a.groups; g++) {
            const int64_t p = c->C - c->T + t, seen = (p + 1) / a.rate;
            const int64_t first = seen > window ? seen - window : 0;
            if (list)
                mark_listed(&a, list->at + (t * lists + g % lists) * most, most, seen, listed);
            for (int64_t s = first; s < seen; s++)
                score[s] = score_of(&a, x, t, g, s);
            const int64_t end = a.blocks ? score_blocks(&a, score, seen) : seen;
            const int64_t n = keep_listed(score, row, listed, first, end);
            memset(best, 0, (size_t)rows * sizeof *best);
            memset(chosen, 0, (size_t)rows * sizeof *chosen);
            mark_best(score, 0, n, a.k, heap, best);
            for (int64_t i = 0; i < n; i++)
                chosen[row[i]] = best[i];
            write_list(&a, chosen, end, p, y->at + (t * a.groups + g) * a.width);
        }
    return true;
}

/* ---- attention to selected rows -------------------------------------------------------------- */

/* The rows that a query attends to, one after the other. */
typedef struct seen {
    const double **k, **v;
    int64_t n;
} seen;

static void see(seen *s, const double *k, const double *v) {
    s->k[s->n] = k;
    s->v[s->n++] = v;
}

/* Adds the rows of the list, up to the first that is not among `rows`. */
static void see_gathered(seen *s, const double *list, int64_t n, int64_t rows, const double *k,
                         int64_t k_row, const double *v, int64_t v_row) {
    for (int64_t i = 0; i < n && i < rows; i++) {
        if (!(list[i] >= 0 && list[i] < (double)rows)) break;
        see(s, k + (int64_t)list[i] * k_row, v + (int64_t)list[i] * v_row);
    }
}

static void attend_to(const seen *s, const hir_op *op, const double *q, int64_t n, double sink,
                      double *l, double *o, int64_t m) {
    const double cap = hir_attr_float(op, HIR_A_SOFTCAP, 0);
    double max = sink, sum = 0;
    for (int64_t i = 0; i < s->n; i++) {
        l[i] = hir_attr_float(op, HIR_A_SCALE, 1) * eval_dot(q, s->k[i], n);
        if (cap > 0) l[i] = cap * tanh(l[i] / cap);
        if (l[i] > max) max = l[i];
    }
    sum = sink > -INFINITY ? exp(sink - max) : sink == -INFINITY ? 0 : NAN;
    for (int64_t i = 0; i < s->n; i++) {
        const double weight = exp(l[i] - max);
        sum += weight;
        for (int64_t j = 0; j < m; j++)
            o[j] += weight * s->v[i][j];
    }
    for (int64_t j = 0; j < m && s->n > 0; j++)
        o[j] /= sum;
}

bool eval_attention_selected(eval_call *c, const hir_op *op, const hir_array *const *x,
                             hir_array *y) {
    const int64_t heads = x[0]->type.dim[1], n = x[0]->type.dim[2], m = x[2]->type.dim[2];
    const int64_t groups = x[1]->type.dim[1], window = hir_attr_int(op, HIR_A_WINDOW, c->C);
    const hir_array *list = x[3], *sink = x[4], *entries = x[5];
    const int64_t most = list ? list->type.dim[2] : 0, lists = list ? list->type.dim[1] : 1;
    const int64_t rate = entries ? hir_rate(hir_ref_type(c->m, op->args[5]).dim[0]) : 1;
    const size_t rows = (size_t)(c->C + c->C / rate + most);
    seen s = {.k = hd_new_array(c->scratch, const double *, rows),
              .v = hd_new_array(c->scratch, const double *, rows)};
    double *l = hd_new_array(c->scratch, double, rows);
    for (int64_t t = 0; t < c->T; t++)
        for (int64_t h = 0; h < heads; h++) {
            const int64_t g = h / (heads / groups), p = c->C - c->T + t, at = t * heads + h;
            const double *k = x[1]->at + g * n, *v = x[2]->at + g * m;
            const double *e = entries ? entries->at + g * n : NULL;
            const double *chosen = list ? list->at + (t * lists + g % lists) * most : NULL;
            s.n = 0;
            for (int64_t i = p >= window ? p - window + 1 : 0; entries && i <= p; i++)
                see(&s, k + i * groups * n, v + i * groups * m);
            if (entries && list)
                see_gathered(&s, chosen, most, (p + 1) / rate, e, groups * n, e, groups * n);
            else if (list)
                see_gathered(&s, chosen, most, p + 1, k, groups * n, v, groups * m);
            for (int64_t i = 0; entries && !list && i < (p + 1) / rate; i++)
                see(&s, e + i * groups * n, e + i * groups * n);
            const double z = sink ? sink->at[sink->type.rank == 2 ? at : h] : -INFINITY;
            attend_to(&s, op, x[0]->at + at * n, n, z, l, y->at + at * m, m);
        }
    return true;
}

/* ---- pool ------------------------------------------------------------------------------------ */

/* Element i of x or (side 1) of gate, at a position up to p, which is that of the present token. */
static double element(const eval_call *c, const hir_array *const *x, hir_dtype dtype, int side,
                      int64_t position, int64_t p, int64_t i) {
    const int64_t channels = x[0]->type.dim[1], past = c->C - c->T, rows = x[3]->type.dim[0];
    if (position < past) return x[3]->at[(position % rows * 2 + side) * channels + i];
    const double y = x[side]->at[(position - past) * channels + i];
    return position == p ? y : hir_rounded(dtype, y);
}

/* Channel i of the softmax-weighted sum of positions from .. p; positions before `half` use channel
 * i, the others channel i + shift. */
static double pooled(const eval_call *c, const hir_op *op, const hir_array *const *x, int64_t from,
                     int64_t half, int64_t shift, int64_t p, int64_t i) {
    const int64_t length = hir_attr_int(op, HIR_A_LENGTH, 2), channels = x[0]->type.dim[1];
    const hir_dtype dtype = hir_ref_type(c->m, op->args[3]).dtype;
    double max = -INFINITY, sum = 0, y = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t s = from; s <= p; s++) {
            const int64_t at = s < half ? i : i + shift;
            double a = element(c, x, dtype, 1, s, p, at);
            if (x[2]) a += x[2]->at[s % length * channels + at];
            if (pass == 0) {
                max = fmax(max, a);
                continue;
            }
            const double e = exp(a - max);
            sum += e;
            y += e * element(c, x, dtype, 0, s, p, at);
        }
    return y / sum;
}

bool eval_pool_rows(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    const int64_t length = hir_attr_int(op, HIR_A_LENGTH, 2), n = y->type.dim[1];
    const bool halves = hir_attr_int(op, HIR_A_HALVES, 0) != 0;
    const int64_t channels = x[0]->type.dim[1], past = c->C - c->T, rows = x[3]->type.dim[0];
    const hir_dtype dtype = hir_ref_type(c->m, op->args[3]).dtype;
    for (int64_t t = 0; t < c->T; t++) {
        const int64_t p = past + t, half = p - length + 1;
        const int64_t from = halves && half >= length ? half - length : half;
        if ((p + 1) % length != 0) continue;
        for (int64_t i = 0; i < n; i++)
            y->at[t * n + i] = pooled(c, op, x, from, half, halves ? n : 0, p, i);
    }
    for (int64_t t = c->T > rows ? c->T - rows : 0; t < c->T; t++)
        for (int side = 0; side < 2; side++)
            for (int64_t i = 0; i < channels; i++)
                x[3]->at[((past + t) % rows * 2 + side) * channels + i] =
                    hir_rounded(dtype, x[side]->at[t * channels + i]);
    return true;
}
