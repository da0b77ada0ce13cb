/* hadal_mpi.h: ranks that are processes of an MPI job (libhadal_mpi), on one machine or on many.
 *
 *     MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
 *     hadal_mpi *group;
 *     int code = hadal_mpi_open(MPI_COMM_WORLD, 10 * INT64_C(1000000000), &group);
 *     if (!code) code = NAME_session_init_on(memory, size, weights, max_tokens,
 *                                            hadal_mpi_comm(group), timeout_ns, &session);
 *     ...
 *     if (!hadal_mpi_close(group, timeout_ns)) MPI_Abort(MPI_COMM_WORLD, 1);
 *     MPI_Finalize();
 *
 * Compiled for one MPI: a library made with Open MPI works in Open MPI jobs only, and one made with
 * MPICH in jobs of MPICH. All communication is done by the thread that calls the model:
 * MPI_THREAD_FUNNELED is enough if that is the main thread. The error handler of the communicator
 * does not matter: this library uses one of its own. */
#ifndef HADAL_MPI_H
#define HADAL_MPI_H

#include "hadal/hadal_comm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hadal_mpi hadal_mpi;

#ifdef MPI_VERSION /* where <mpi.h> was included before */
/* Ranks of a communicator, in their order; all of them call this. HADAL_COMM_ARGUMENT: more than
 * HADAL_COMM_MAX_RANKS, or MPI is not initialised; HADAL_COMM_TIMEOUT: some rank has not called it
 * in time; HADAL_COMM_MEMORY, HADAL_COMM_TRANSPORT. */
HADAL_API int hadal_mpi_open(MPI_Comm comm, int64_t timeout_ns, hadal_mpi **out);
#endif

/* For programs that do not use MPI themselves: initialises it if nobody has, and opens all
 * processes of the job; a process that was started by itself is a job of one. */
HADAL_API int hadal_mpi_open_world(int64_t timeout_ns, hadal_mpi **out);

/* The communicator of this rank; it lives as long as the group. */
HADAL_API const hadal_comm *hadal_mpi_comm(hadal_mpi *group);

/* Simulates a slower network. Call it before any communication; all ranks call it, with the same
 * numbers. From then on messages arrive no sooner than over links that carry so many bits a second
 * out of each rank, with that latency. HADAL_COMM_ARGUMENT: there is no such link, the links were
 * slowed before, or the ranks are on several machines, whose clocks differ. */
HADAL_API int hadal_mpi_slow(hadal_mpi *group, double bits_per_second, int64_t latency_ns,
                             int64_t timeout_ns);

/* All ranks call it. 1: all ranks have finished communicating, and if hadal_mpi_open_world has
 * initialised MPI, MPI is finalised. 0: some rank has not finished, or a collective had failed:
 * MPI_Finalize might then wait for ever, so end the process without it, or the job with MPI_Abort;
 * memory that MPI may still use is not freed. Sessions must not be used afterwards. NULL is
 * allowed: 1. */
HADAL_API int hadal_mpi_close(hadal_mpi *group, int64_t timeout_ns);

#ifdef __cplusplus
}
#endif

#endif
