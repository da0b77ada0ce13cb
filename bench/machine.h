/* The limits of the machine (api/machine.h), printed. */
#ifndef BENCH_MACHINE_H
#define BENCH_MACHINE_H

#include "api/machine.h"

/* To stdout: the limits as lines of text, and which of them moved; date, CPU and load as one line.
 */
void machine_print(const machine *m);
void machine_print_host(void);

/* To stdout, a line that bench/goals.py reads: the limits that were not the same in the first and
 * in the second half of the samples, so that shares of them say nothing. Nothing where all were. */
typedef struct moving {
    const char *limit;
    double drift; /* api/stats.h */
} moving;
void print_moved(const moving *of, size_t n);
void machine_print_moved(const machine *m);

#endif
