/* The semiseparable rank: of all blocks that lie wholly below a cut, rows l and later against
 * sources before l, the largest rank. It says how many rows per token a recurrence over depth must
 * carry to give the same matrix: 1 for a plain sum, m for m streams, all of them for full
 * attention.
 */
#include <math.h>

#include "inspect/mixing.h"

static double norm(const double *m, size_t rows, size_t columns, size_t column) {
    double sum = 0;
    for (size_t i = 0; i < rows; i++)
        sum += m[i * columns + column] * m[i * columns + column];
    return sqrt(sum);
}

static size_t largest_column(const double *m, size_t rows, size_t columns, double *length) {
    size_t best = 0;
    *length = 0;
    for (size_t j = 0; j < columns; j++) {
        const double n = norm(m, rows, columns, j);
        if (n > *length) *length = n, best = j;
    }
    return best;
}

/* Takes the direction of column `pivot`, of this length, out of all columns. */
static void project_out(double *m, size_t rows, size_t columns, size_t pivot, double length) {
    for (size_t j = 0; j < columns; j++) {
        if (j == pivot) continue;
        double dot = 0;
        for (size_t i = 0; i < rows; i++)
            dot += m[i * columns + pivot] / length * m[i * columns + j];
        for (size_t i = 0; i < rows; i++)
            m[i * columns + j] -= dot * (m[i * columns + pivot] / length);
    }
    for (size_t i = 0; i < rows; i++)
        m[i * columns + pivot] = 0;
}

uint32_t mixing_rank_of(double *m, size_t rows, size_t columns) {
    const size_t most = rows < columns ? rows : columns;
    double first = 0;
    for (uint32_t rank = 0; rank < most; rank++) {
        double length;
        const size_t pivot = largest_column(m, rows, columns, &length);
        if (rank == 0) first = length;
        if (length <= MIXING_TOLERANCE * first || length == 0) return rank;
        project_out(m, rows, columns, pivot, length);
    }
    return (uint32_t)most;
}

/* Rows of sublayer `cut` and later, columns before it. */
static uint32_t rank_at(const mixing *x, const double *m, uint32_t cut, double *scratch,
                        uint32_t *full) {
    const size_t columns = (size_t)x->starts + cut - 1;
    size_t rows = 0;
    for (size_t r = 0; r < x->rows.n; r++) {
        if (x->rows.at[r].sublayer < cut) continue;
        for (size_t c = 0; c < columns; c++)
            scratch[rows * columns + c] = m[r * x->sources.n + c];
        rows++;
    }
    const uint32_t most = (uint32_t)(rows < columns ? rows : columns);
    if (most > *full) *full = most;
    return mixing_rank_of(scratch, rows, columns);
}

static void take_rank(mixing *x, const double *m, double *scratch) {
    for (uint32_t cut = 1; cut <= x->sublayers + 1; cut++) {
        const uint32_t rank = rank_at(x, m, cut, scratch, &x->full_rank);
        if (rank > x->rank) x->rank = rank;
    }
}

void mixing_find_rank(mixing *x) {
    const size_t size = x->rows.n * x->sources.n;
    double *scratch = hd_new_array(x->arena, double, size);
    x->rank = x->full_rank = 0;
    x->rank_tokens = x->tokens < MIXING_TOKENS ? x->tokens : MIXING_TOKENS;
    for (int64_t t = 0; t < x->rank_tokens; t++) {
        if (x->kind != MIXING_CHANNELS) take_rank(x, x->at + (size_t)t * size, scratch);
        for (int c = 0; x->kind == MIXING_CHANNELS && c < x->channels; c++)
            take_rank(x, x->channel_at + (size_t)(t * x->channels + c) * size, scratch);
    }
}
