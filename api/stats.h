/* Time and order statistics of benchmarks. */
#ifndef API_STATS_H
#define API_STATS_H

#include <stdbool.h>
#include <stddef.h>

/* Seconds. For one thread those that it had a CPU, so that programs which take turns with it on the
 * same CPU do not count; for several the time on the wall, since they wait for each other. */
double now(int threads);
double cpu_seconds(void); /* of all threads of the process together */
enum { ON_THE_WALL = 2 }; /* threads: the time on the wall, whatever their number */

/* Measured values; the oldest are kept when it is full. */
enum { SAMPLES = 512 };
typedef struct samples {
    size_t n;
    double at[SAMPLES];
} samples;

void sample(samples *s, double value);
/* The value below which a share `q` of the samples lies, interpolated; 0 if there are none. */
double quantile(const samples *s, double q);
static inline double median(const samples *s) {
    return quantile(s, 0.5);
}
/* Forgets the samples i of `all` that are not kept[i]. */
void keep_samples(samples *s, const bool *kept, size_t all);
/* Half the distance of the quartiles as a share of the median: how restless the machine was. */
double spread(const samples *s);
/* How far the medians of the first and of the second half of the samples are apart: the larger one
 * over the smaller one, less 1; 0 with fewer than two samples. */
double drift(const samples *s);

#endif
