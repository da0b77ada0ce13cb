/* A scratch directory: a private directory in which files are written that are not complete yet,
 * next to what they will become, so that they can be renamed.
 *
 * Its owner holds a lock of it (flock) from its making to its removal, and the system gives the
 * lock back when the owner ends, however it ends. So whoever gets the lock knows that the owner is
 * gone, whichever container the owner ran in and whatever process has its number now. */
#ifndef HD_SCRATCH_H
#define HD_SCRATCH_H

#include <stdbool.h>

#include "support/arena.h"

typedef struct hd_scratch {
    const char *path; /* NULL: there is none */
    int fd;
} hd_scratch;

/* Makes one in the directory `dir`, .hadal-PID-START-N.tmp. False: errno says why not. */
bool hd_scratch_make(hd_arena *a, const char *dir, hd_scratch *out);
/* Removes it with all that is in it, and gives the lock back. */
void hd_scratch_remove(hd_scratch *s);
/* Is this file in a scratch directory? */
bool hd_in_scratch(const char *path);
/* Removes the scratch directories next to the file `path` whose owners have ended without doing
 * so. */
void hd_scratch_collect(const char *path);

#endif
