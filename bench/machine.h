/* Printing the limits of the machine (api/machine.h). */
#ifndef BENCH_MACHINE_H
#define BENCH_MACHINE_H

#include "api/machine.h"

/* Prints to stdout: the limits as lines of text, and which of them moved; then date, CPU and load
 * as one line. */
void machine_print(const machine *m);
void machine_print_host(void);

/* Rounds of some milliseconds: what the machine has before and after tells of all of a round, so that
 * rounds count only where that is nearly the most. */
void rounds_begin_strict(rounds *r, machine *m, size_t wanted);

/* Prints to stdout lines that bench/goals.py reads: the limits that differed between the first and
 * the second half of the samples (api/stats.h), so that shares of them mean nothing; and that other
 * work had a part of the cores. Prints nothing if neither is so. */
void machine_print_moved(const machine *m);

#endif
