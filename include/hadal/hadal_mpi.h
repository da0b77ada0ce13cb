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
 * Compiled for one MPI: a library made with Open MPI serves Open MPI jobs only, and so with MPICH.
 * Exchanges are made by the thread that calls the model: MPI_THREAD_FUNNELED if that is the main
 * thread. Nothing here needs the communicator's errors to be fatal or not: it has one of its own.
 */
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

/* For programs that know nothing of MPI: initialises it if nobody has, and opens all processes of
 * the job; a process that was started by itself is a job of one. */
HADAL_API int hadal_mpi_open_world(int64_t timeout_ns, hadal_mpi **out);

/* What this rank exchanges with; it lives as long as the group. */
HADAL_API const hadal_comm *hadal_mpi_comm(hadal_mpi *group);

/* Before anything else is exchanged; all ranks call it, with the same numbers. From then on
 * messages arrive no sooner than over links that carry so many bits a second out of each rank, with
 * that latency: what a model would do on a network that is not there. HADAL_COMM_ARGUMENT: there is
 * no such link, they were slowed before, or the ranks are on several machines, whose clocks differ.
 */
HADAL_API int hadal_mpi_slow(hadal_mpi *group, double bits_per_second, int64_t latency_ns,
                             int64_t timeout_ns);

/* All ranks call it; 1: all are done with each other, and if hadal_mpi_open_world has initialised
 * MPI, it is finalised. 0: some rank is not done, or an exchange had failed: MPI_Finalize might
 * then wait for ever, so the process ends without it, or the job with MPI_Abort; memory that MPI
 * may still use is not given back. Sessions must not be used afterwards. NULL is allowed: 1. */
HADAL_API int hadal_mpi_close(hadal_mpi *group, int64_t timeout_ns);

#ifdef __cplusplus
}
#endif

#endif
