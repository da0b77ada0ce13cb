/* Starting a command and hearing what became of it. */
#ifndef DRIVER_CHILD_H
#define DRIVER_CHILD_H

#include "driver/options.h"

enum { CHILD_TIMED_OUT = -1, CHILD_NOT_STARTED = -2 };

/* Runs argv (through $PATH, without a shell) with nothing to read; its standard output is dropped,
 * its standard error goes to the file `errors`. The exit code, 128 + N for signal N, or one of the
 * above; errno says why it was not started. */
int run_child(char *const *argv, const char *errors, long long seconds);

#endif
