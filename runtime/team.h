/* How many threads a call gets, where a process has been forked or threads cannot be made.
 *
 * OpenMP's pool does not live on in the child of a fork, and a region there waits for it for ever;
 * and where a thread cannot be made (a limit of processes or of memory, stacks that are too large)
 * the OpenMP runtime ends the process. A call may do neither. */
#ifndef HRT_TEAM_H
#define HRT_TEAM_H

/* Of `threads` that are wanted, at least 1: those that a parallel region of the calling thread will
 * get. In the child of a process that had loaded this code, one. */
int hrt_team_size(int threads);

#endif
