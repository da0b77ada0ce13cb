#include "api/pieces.h"

#include <string.h>

void pieces_begin(pieces *p, hd_arena *a, size_t n) {
    memset(p, 0, sizeof *p);
    p->arena = a;
    p->n = n;
}

void pieces_add(pieces *p, const double *seconds) {
    if (p->rounds == SAMPLES) return;
    double *row = hd_new_array(p->arena, double, p->n);
    memcpy(row, seconds, p->n * sizeof *row);
    p->at[p->rounds++] = row;
}

/* The quantile of n values, which are sorted. Below the second lowest value it is that one, or the
 * median of two: the lowest one may be lower than what a kernel can be relied on to reach. */
static double low_quantile(double *at, size_t n, double q) {
    const double second = n > 2 ? 1 / (double)(n - 1) : 0.5;
    return quantile_of(at, n, q > second ? q : second);
}

double pieces_seconds(const pieces *p, const size_t *kind, double q) {
    if (p->rounds == 0) return 0;
    double *runs = hd_new_array(p->arena, double, p->n * p->rounds), sum = 0;
    for (size_t k = 0; k < p->n; k++) {
        size_t n = 0, members = 0;
        if (kind[k] != k) continue;
        for (size_t i = k; i < p->n; i++) {
            if (kind[i] != k) continue;
            members++;
            for (size_t r = 0; r < p->rounds; r++)
                runs[n++] = p->at[r][i];
        }
        sum += (double)members * low_quantile(runs, n, q);
    }
    return sum;
}
