/* Muon, the step of matrices (Keller Jordan's, with the scale of Moonlight).
 *
 *     b = momentum b + g     x = g + momentum b     x /= |x| + 1e-7
 *     five times: a = x x^T, x = 3.4445 x + (-4.775 a + 2.0315 a^2) x
 *     w -= learning_rate (0.2 sqrt(max(rows, columns)) x + decay w)
 *
 * x is turned so that it has no more rows than columns. The three products of a round are sums of
 * outer products, for which every level has a generated kernel, that of the gradients of matrices
 * (codegen/contract/weight_grad.c): a of the columns of x, a^2 of the rows of a, and x of the rows of
 * 3.4445 + b a + c a^2 and of x. The first two are symmetric: the kernel makes what is right of the
 * diagonal, and the rest is copied. All else is linear in the size of a matrix, and plain C.
 *
 * A thread takes whole matrices, so that no bit depends on the number of threads, and a matrix stays
 * in its caches from the first product to the last. */
#include <stdatomic.h>

#include "runtime/fp_mode.h"
#include "runtime/lanes.h"
#include "runtime/optimizer.h"

enum { BLOCK = 64 /* columns of a matrix that are turned together */ };

/* ---- elements -------------------------------------------------------------------------------- */
/* b = momentum b + scale g, x = scale g + momentum b, g = 0; gives the sum of the squares of x. */
static double gather(const hrt_optimizer *s, size_t n, float *b, float *g, float *x) {
    size_t i = 0;
    for (; i + HRT_LANES <= n; i += HRT_LANES) {
        const hrt_lanes now = hrt_get(g + i) * s->scale;
        const hrt_lanes sum = hrt_get(b + i) * s->momentum + now;
        hrt_put(b + i, sum);
        hrt_put(x + i, now + sum * s->momentum);
        hrt_put(g + i, (hrt_lanes){0});
    }
    for (; i < n; i++) {
        const float now = g[i] * s->scale;
        b[i] = b[i] * s->momentum + now;
        x[i] = now + b[i] * s->momentum;
        g[i] = 0;
    }
    return hrt_squares(x, n);
}

static void multiply_by(float *x, float by, size_t n) {
    size_t i = 0;
    for (; i + HRT_LANES <= n; i += HRT_LANES)
        hrt_put(x + i, hrt_get(x + i) * by);
    for (; i < n; i++)
        x[i] *= by;
}

/* w = keep w - rate x */
static void leave(float *w, float keep, float rate, const float *x, size_t n) {
    size_t i = 0;
    for (; i + HRT_LANES <= n; i += HRT_LANES)
        hrt_put(w + i, hrt_get(w + i) * keep - hrt_get(x + i) * rate);
    for (; i < n; i++)
        w[i] = w[i] * keep - x[i] * rate;
}

/* square = b a + c square, from the four columns of the diagonal on */
static void add_powers(const float *a, float *square, size_t n, float b, float c) {
    for (size_t i = 0; i < n; i++) {
        const float *x = a + i * n;
        float *y = square + i * n;
        size_t k = i / HRT_LANES * HRT_LANES;
        for (; k + HRT_LANES <= n; k += HRT_LANES)
            hrt_put(y + k, hrt_get(x + k) * b + hrt_get(y + k) * c);
        for (; k < n; k++)
            y[k] = x[k] * b + y[k] * c;
    }
}

/* ---- transposes ------------------------------------------------------------------------------ */
/* Four rows, and four columns of them, `ld` floats apart, to another place. */
static void turn_four(const float *x, size_t ldx, float *y, size_t ldy) {
    const hrt_lanes a = hrt_get(x), b = hrt_get(x + ldx), c = hrt_get(x + 2 * ldx),
                    d = hrt_get(x + 3 * ldx);
    const hrt_lanes ac = __builtin_shufflevector(a, c, 0, 4, 1, 5),
                    ac_high = __builtin_shufflevector(a, c, 2, 6, 3, 7),
                    bd = __builtin_shufflevector(b, d, 0, 4, 1, 5),
                    bd_high = __builtin_shufflevector(b, d, 2, 6, 3, 7);
    hrt_put(y, __builtin_shufflevector(ac, bd, 0, 4, 1, 5));
    hrt_put(y + ldy, __builtin_shufflevector(ac, bd, 2, 6, 3, 7));
    hrt_put(y + 2 * ldy, __builtin_shufflevector(ac_high, bd_high, 0, 4, 1, 5));
    hrt_put(y + 3 * ldy, __builtin_shufflevector(ac_high, bd_high, 2, 6, 3, 7));
}

/* y[columns][rows] of x[rows][columns], columns from .. to of x. */
static void turn_columns(const float *x, size_t rows, size_t columns, size_t from, size_t to,
                         float *y) {
    size_t i = 0, k;
    for (; i + HRT_LANES <= rows; i += HRT_LANES) {
        for (k = from; k + HRT_LANES <= to; k += HRT_LANES)
            turn_four(x + i * columns + k, columns, y + k * rows + i, rows);
        for (; k < to; k++)
            for (size_t r = i; r < i + HRT_LANES; r++)
                y[k * rows + r] = x[r * columns + k];
    }
    for (; i < rows; i++)
        for (k = from; k < to; k++)
            y[k * rows + i] = x[i * columns + k];
}

static void turn(const float *x, size_t rows, size_t columns, float *y) {
    for (size_t k = 0; k < columns; k += BLOCK)
        turn_columns(x, rows, columns, k, columns - k < BLOCK ? columns : k + BLOCK, y);
}

/* Copies what is right of the diagonal to the left of it. */
static void mirror(float *a, size_t n) {
    const size_t whole = n / HRT_LANES * HRT_LANES;
    for (size_t i = 0; i < whole; i += HRT_LANES)
        for (size_t k = i + HRT_LANES; k < whole; k += HRT_LANES)
            turn_four(a + i * n + k, n, a + k * n + i, n);
    for (size_t k = whole; k < n; k++)
        for (size_t i = 0; i < k; i++)
            a[k * n + i] = a[i * n + k];
}

/* ---- products -------------------------------------------------------------------------------- */
typedef struct team_member {
    const hrt_optimizer *s;
    hrt_kernel *kernel;
    hrt_frame frame;
    float *space; /* x, and x turned or the next x; a and a^2 (muon_bytes) */
} team_member;

/* y[n][k] = sum over `depth` rows of a[depth][n] and b[depth][k]. symmetric: what is left of the
 * diagonal need not be made. */
static void multiply(const team_member *t, const float *a, size_t n, const float *b, size_t k,
                     size_t depth, float *y, bool symmetric) {
    void *const args[] = {(void *)(uintptr_t)a, (void *)(uintptr_t)b, y, (void *)(uintptr_t)k,
                          (void *)(uintptr_t)symmetric};
    t->kernel(&t->frame, args, 0, (int64_t)depth, 0, (int64_t)n);
}

/* Makes x nearly orthogonal: its singular values come near 1. Returns where x is then: in `x` or in
 * `other`. */
static float *make_orthogonal(const team_member *t, float *x, float *other, size_t rows,
                              size_t columns) {
    float *a = t->space + 2 * rows * columns, *square = a + rows * rows;
    for (int round = 0; round < HRT_MUON_ROUNDS; round++) {
        turn(x, rows, columns, other);
        multiply(t, other, rows, other, rows, columns, a, true);
        mirror(a, rows);
        multiply(t, a, rows, a, rows, rows, square, true);
        add_powers(a, square, rows, -4.775F, 2.0315F);
        for (size_t i = 0; i < rows; i++)
            square[i * rows + i] += 3.4445F;
        mirror(square, rows);
        multiply(t, square, rows, x, columns, rows, other, false);
        float *const next = other;
        other = x, x = next;
    }
    return x;
}

/* The matrix of so many rows that begins at element `at` of the parameter. */
static void change_rows(const team_member *t, const hrt_parameter *p, size_t at, size_t rows) {
    const hrt_optimizer *s = t->s;
    const size_t columns = (size_t)p->columns, n = rows * columns;
    const size_t larger = rows > columns ? rows : columns;
    const bool turned = rows > columns;
    void *const weights = s->t->weights + p->offset, *const gradients = s->t->gradients + p->offset;
    float *const w = (float *)weights + at, *const g = (float *)gradients + at;
    float *x = t->space, *other = x + n;
    const double sum = gather(s, n, hrt_moment(s->t, p, HRT_MOMENTUM, at), g, turned ? other : x);
    if (turned) turn(other, rows, columns, x);
    multiply_by(x, (float)(1 / (hrt_root_of(sum) + 1e-7)), n);
    x = make_orthogonal(t, x, other, turned ? columns : rows, larger);
    if (turned) {
        float *const back = x == t->space ? x + n : t->space;
        turn(x, columns, rows, back);
        x = back;
    }
    leave(w, s->keep[p->update], (float)(s->learning_rate * 0.2 * hrt_root_of((double)larger)), x,
          n);
}

/* A matrix of a checkpoint, or, where that is several joined row by row, each of them. */
static void change(const team_member *t, const hrt_parameter *p, uint64_t matrix) {
    const hrt_model *m = t->s->t->session.model;
    size_t at = (size_t)(matrix * p->rows * p->columns);
    if (!p->n_parts) change_rows(t, p, at, (size_t)p->rows);
    for (uint32_t i = 0; i < p->n_parts; i++) {
        const size_t rows = (size_t)m->parts[p->first_part + i].rows;
        change_rows(t, p, at, rows);
        at += rows * (size_t)p->columns;
    }
}

/* Those of a parameter that this rank changes, which has them whole. */
static hrt_span matrices_of(const hrt_trainer *t, const hrt_parameter *p) {
    if (hrt_part_of(p) != HRT_MATRICES) return (hrt_span){0, 0};
    const int64_t each = (int64_t)(p->rows * p->columns);
    const hrt_span mine = hrt_mine_of(t, p);
    return (hrt_span){mine.from / each, mine.to / each};
}

/* Takes matrices in their order until none is left. */
void hrt_by_muon(hrt_optimizer *s, int index) {
    const hrt_trainer *t = s->t;
    const hrt_memory *memory = &t->session.memory;
    const hrt_model *m = t->session.model;
    if (!m->muon_bytes || (size_t)index >= t->space_threads) return;
    void *const space = t->space + m->muon_bytes * (size_t)index;
    team_member me = {
        .s = s,
        .kernel = t->session.level->kernels[m->products],
        .frame = {.scratch =
                      memory->workers + memory->worker_bytes * (size_t)index + memory->args_bytes},
        .space = space,
    };
    uint64_t first = 0, mine = atomic_fetch_add(&s->next, 1);
    for (uint32_t i = 0; i < m->n_parameters; i++) {
        const hrt_span all = matrices_of(t, &m->parameters[i]);
        const uint64_t n = (uint64_t)(all.to - all.from);
        for (; mine < first + n; mine = atomic_fetch_add(&s->next, 1))
            change(&me, &m->parameters[i], (uint64_t)all.from + mine - first);
        first += n;
    }
}
