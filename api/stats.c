#include "api/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double seconds_of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double now(int threads) {
    return seconds_of(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC);
}

double cpu_seconds(void) {
    return seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}

void sample(samples *s, double value) {
    if (s->n < SAMPLES) s->at[s->n++] = value;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double quantile_of(double *values, size_t n, double q) {
    if (n == 0) return 0;
    qsort(values, n, sizeof *values, ascending);
    const double at = q * (double)(n - 1);
    const size_t below = (size_t)floor(at), above = below + 1 < n ? below + 1 : below;
    return values[below] + (at - (double)below) * (values[above] - values[below]);
}

double quantile(const samples *s, double q) {
    double sorted[SAMPLES];
    memcpy(sorted, s->at, s->n * sizeof *sorted);
    return quantile_of(sorted, s->n, q);
}

double spread(const samples *s) {
    const double middle = median(s);
    return middle > 0 ? (quantile(s, 0.75) - quantile(s, 0.25)) / (2 * middle) : 0;
}

void keep_samples(samples *s, const bool *kept, size_t all) {
    size_t n = 0;
    for (size_t i = 0; i < s->n && i < all; i++)
        if (kept[i]) s->at[n++] = s->at[i];
    s->n = n;
}

double drift(const samples *s) {
    samples half[2] = {0};
    for (size_t i = 0; i < s->n; i++)
        sample(&half[i >= s->n / 2], s->at[i]);
    const double before = median(&half[0]), after = median(&half[1]);
    if (half[0].n == 0 || before <= 0 || after <= 0) return 0;
    return before < after ? after / before - 1 : before / after - 1;
}
