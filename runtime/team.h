/* How many threads a call gets, where a process has been forked or threads cannot be created.
 *
 * OpenMP's thread pool does not exist in the child of a fork, and a region there would wait for it
 * for ever; and where a thread cannot be created (a limit of processes or of memory, stacks that
 * are too large) the OpenMP runtime ends the process. A call may do neither. */
#ifndef HRT_TEAM_H
#define HRT_TEAM_H

/* The number of threads that a parallel region of the calling thread will get if it wants
 * `threads`; at least 1. It is 1 in the child of a process that had loaded this code. */
int hrt_team_size(int threads);
/* Each thread of a region calls this in the region, so that hrt_team_size knows which threads
 * OpenMP has for the next one. */
void hrt_team_joined(int index, int count);

#endif
