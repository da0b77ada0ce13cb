/* hadal_threads.h: ranks that are threads of one process (libhadal_threads): for tests, for trying
 * out a divided model, and for a process that wants its ranks on different sockets.
 *
 *     hadal_threads *group;
 *     int code = hadal_threads_open(2, &group);
 *     // in thread r of 2:
 *     const hadal_comm *comm = hadal_threads_comm(group, r);
 *     ...
 *     hadal_threads_leave(group, r);
 *     // when all threads have left:
 *     hadal_threads_close(group);
 */
#ifndef HADAL_THREADS_H
#define HADAL_THREADS_H

#include "hadal/hadal_comm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hadal_threads hadal_threads;

/* Makes a group of `ranks` ranks, 1 .. HADAL_COMM_MAX_RANKS. Errors: HADAL_COMM_ARGUMENT,
 * HADAL_COMM_MEMORY. */
HADAL_API int hadal_threads_open(int32_t ranks, hadal_threads **out);

/* The communicator of one rank, 0 .. ranks - 1; NULL: there is no such rank. It lives as long as
 * the group. */
HADAL_API const hadal_comm *hadal_threads_comm(hadal_threads *group, int32_t rank);

/* Simulates slower links, before any communication: messages arrive no sooner than over links that
 * carry so many bits a second out of each rank, with that latency. HADAL_COMM_ARGUMENT: there is no
 * such link, or the links were slowed before. */
HADAL_API int hadal_threads_slow(hadal_threads *group, double bits_per_second, int64_t latency_ns);

/* The rank will not communicate any more; ranks that wait for it get HADAL_COMM_LOST at once. Must
 * not be called while the rank is in a collective. */
HADAL_API void hadal_threads_leave(hadal_threads *group, int32_t rank);

/* Frees the group. No thread may be in a collective. NULL is allowed. */
HADAL_API void hadal_threads_close(hadal_threads *group);

#ifdef __cplusplus
}
#endif

#endif
