/* One rank of a scenario under mpirun:
 *
 *     mpirun -n 3 ranks SCENARIO OUT
 *
 * What came out goes to OUT.<rank>, "ok" or what was wrong: where an exchange has failed, processes
 * end without MPI_Finalize, and mpirun reports an error however well they did. The scenario "kill"
 * is of this file: rank 1 kills itself. */
#include <mpi.h>

#include "hadal/hadal_mpi.h"
#include "support/clock.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/comm/scenarios.h"

#define SECOND INT64_C(1000000000)

static int report(const char *out, int rank, const char *what) {
    char path[4096];
    snprintf(path, sizeof path, "%s.%d", out, rank);
    FILE *f = fopen(path, "w");
    if (!f || fprintf(f, "%s\n", what) < 0 || fclose(f)) return 1;
    return strcmp(what, "ok") != 0;
}

static const char *survive(const hadal_comm *c) {
    float x = 1, y = 0;
    const hadal_comm_group all = {0, c->size};
    int code = c->all_reduce(c->context, all, HADAL_COMM_F32, &x, &y, 1, 20 * SECOND);
    if (code) return c->message(c->context);
    if (c->rank == 1) kill(getpid(), SIGKILL);
    const int64_t begun = hd_nanoseconds();
    code = c->all_reduce(c->context, all, HADAL_COMM_F32, &x, &y, 1, 2 * SECOND);
    if (code == HADAL_COMM_OK) return "no error";
    return hd_nanoseconds() - begun < 3 * SECOND ? "ok" : "the error came long after the deadline";
}

static const char *run(const hadal_comm *c, const scenario *s) {
    const char *why = "ok";
    return s->run(c, &why) ? "ok" : why;
}

int main(int argc, char **argv) {
    hadal_mpi *group = NULL;
    int provided;
    if (argc != 3) return fprintf(stderr, "usage: ranks SCENARIO OUT\n"), 2;
    const scenario *s = find_scenario(argv[1]);
    if (!s && strcmp(argv[1], "kill") != 0)
        return fprintf(stderr, "there is no scenario \"%s\"\n", argv[1]), 2;
    if (hadal_mpi_open(MPI_COMM_WORLD, SECOND, &group) != HADAL_COMM_ARGUMENT || group)
        return fprintf(stderr, "opened before MPI was initialised\n"), 1;
    if (MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) return 1;
    const int code = hadal_mpi_open(MPI_COMM_WORLD, 20 * SECOND, &group);
    if (code) return fprintf(stderr, "opening: code %d\n", code), 1;

    const int rank = hadal_mpi_comm(group)->rank;
    if (!s) _exit(report(argv[2], rank, survive(hadal_mpi_comm(group))));
    const char *what = run(hadal_mpi_comm(group), s);
    const int closed = hadal_mpi_close(group, 5 * SECOND);
    if (closed != s->ends_well && strcmp(what, "ok") == 0)
        what = closed ? "closed well after an error" : "did not close well";
    const int failed = report(argv[2], rank, what);
    if (s->ends_well) return MPI_Finalize() != MPI_SUCCESS || failed;
    MPI_Barrier(MPI_COMM_WORLD); /* mpirun ends all once one has ended so */
    _exit(failed);
}
