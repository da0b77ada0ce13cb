/* Clocks, and order statistics of measured values. */
#ifndef API_STATS_H
#define API_STATS_H

#include <stdbool.h>
#include <stddef.h>

/* Seconds. For one thread it is the CPU time, so that programs which take turns with it on the same
 * CPU do not count; for several threads it is the time on the wall, since they wait for each
 * other. */
double now(int threads);
double cpu_seconds(void); /* of all threads of the process together */
enum { ON_THE_WALL = 2 }; /* a value for `threads`: the time on the wall, whatever their number */

/* Measured values. When the list is full, the oldest ones are kept and new ones dropped. */
enum { SAMPLES = 512 };
typedef struct samples {
    size_t n;
    double at[SAMPLES];
} samples;

void sample(samples *s, double value);
/* The value below which a share `q` of the samples lies, interpolated; 0 if there are no
 * samples. */
double quantile(const samples *s, double q);
double quantile_of(double *values, size_t n, double q); /* of any number, which are sorted */
static inline double median(const samples *s) {
    return quantile(s, 0.5);
}
/* Drops those samples i of `all` that are not kept[i]. */
void keep_samples(samples *s, const bool *kept, size_t all);
/* Half the distance of the quartiles as a share of the median: how much the samples vary. */
double spread(const samples *s);
/* How far the medians of the first and of the second half of the samples differ: the larger over
 * the smaller one, less 1; 0 with fewer than two samples. */
double drift(const samples *s);

#endif
