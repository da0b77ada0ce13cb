/* A step of Muon in double precision, as its authors write it, for tests. One matrix w [rows, columns] with its momentum, both changed;
 * x is turned where it has more rows than columns. */
#include <math.h>
#include <stdlib.h>

/* y[n, m] = sum over k of a[n, k] b[k, m] */
static void multiply(const double *a, const double *b, double *y, long n, long k, long m) {
    for (long i = 0; i < n * m; i++)
        y[i] = 0;
    for (long i = 0; i < n; i++)
        for (long l = 0; l < k; l++)
            for (long j = 0; j < m; j++)
                y[i * m + j] += a[i * k + l] * b[l * m + j];
}

static void turn(const double *x, double *y, long n, long m) {
    for (long i = 0; i < n; i++)
        for (long j = 0; j < m; j++)
            y[j * n + i] = x[i * m + j];
}

void muon(double *w, double *momentum, const double *g, long rows, long columns, double rate, double decay, double keep) {
    const int turned = rows > columns;
    const long r = turned ? columns : rows, c = turned ? rows : columns, n = r * c;
    double *x = malloc((size_t)(3 * n + 2 * r * r) * sizeof *x), *t = x + n, *next = t + n, *a = next + n, *square = a + r * r, sum = 0;
    for (long i = 0; i < n; i++) {
        momentum[i] = keep * momentum[i] + g[i];
        t[i] = g[i] + keep * momentum[i];
        sum += t[i] * t[i];
    }
    for (long i = 0; i < n; i++)
        t[i] /= sqrt(sum) + 1e-7;
    if (turned) turn(t, x, rows, columns);
    for (long i = 0; i < n && !turned; i++)
        x[i] = t[i];
    for (int round = 0; round < 5; round++) {
        turn(x, t, r, c);
        multiply(x, t, a, r, c, r);
        multiply(a, a, square, r, r, r);
        for (long i = 0; i < r * r; i++)
            square[i] = 2.0315 * square[i] - 4.7750 * a[i];
        multiply(square, x, next, r, r, c);
        for (long i = 0; i < n; i++)
            x[i] = 3.4445 * x[i] + next[i];
    }
    if (turned) turn(x, t, r, c);
    for (long i = 0; i < n; i++)
        w[i] -= rate * (0.2 * sqrt((double)c) * (turned ? t : x)[i] + decay * w[i]);
    free(x);
}
