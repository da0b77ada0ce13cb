/* The limits of the machine (api/machine.h), printed. */
#ifndef BENCH_MACHINE_H
#define BENCH_MACHINE_H

#include "api/machine.h"

/* To stdout: the limits as lines of text; date, CPU and load as one line. */
void machine_print(const machine *m);
void machine_print_host(void);

#endif
