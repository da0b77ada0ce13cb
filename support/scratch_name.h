/* How scratch directories (scratch.h) of a process are named: for whoever makes them, and for the
 * command, which removes its own when a signal ends it. */
#ifndef HD_SCRATCH_NAME_H
#define HD_SCRATCH_NAME_H

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { HD_SCRATCH_PREFIX = 64 };

/* The time at which this process started, in ticks since the system did; 0: not known. */
static inline unsigned long long hd_start_of_process(void) {
    enum { BEFORE_START = 20 }; /* fields from the state, which follows the name of the program */
    char text[1024];
    unsigned long long start = 0;
    FILE *f = fopen("/proc/self/stat", "re");
    const size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = '\0';
    const char *at = strrchr(text, ')'); /* the name may hold spaces and parentheses */
    for (int i = 0; at && i < BEFORE_START; i++)
        at = strchr(at + 1, ' ');
    if (at) (void)sscanf(at, " %llu", &start);
    return start;
}

/* .hadal-PID-START-. The number alone does not do: processes in containers that write to one
 * directory often have the same. */
static inline void hd_scratch_prefix(char out[HD_SCRATCH_PREFIX]) {
    snprintf(out, HD_SCRATCH_PREFIX, ".hadal-%ld-%llx-", (long)getpid(), hd_start_of_process());
}

#endif
