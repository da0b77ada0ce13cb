/* A model that is divided over the processes of an MPI job: each process has its share of the
 * weights, all get the same logits, and the first prints what follows "1 2 3".
 *
 *     mpirun -n 2 ./ranks FOLDER
 *
 * FOLDER has tiny.r0of2.weights and tiny.r1of2.weights; each of two hosts needs only its own
 * file. */
#include <mpi.h>

#include <hadal/hadal_mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "tiny.h"

enum { TOKENS = 16 };
#define SECOND INT64_C(1000000000)

static int32_t largest(const float *logits) {
    int32_t best = 0;
    for (int32_t i = 1; i < TINY_LOGITS; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* Generates until the session is full; every rank makes the same calls. */
static int write_tokens(tiny_session *session, int is_first) {
    static float logits[TINY_LOGITS];
    const int32_t prompt[] = {1, 2, 3};
    int code = tiny_forward(session, prompt, 3, logits, 1);
    while (!code && tiny_session_length(session) < TOKENS) {
        const int32_t next = largest(logits);
        if (is_first) printf("%d ", next);
        code = tiny_forward(session, &next, 1, logits, 1);
    }
    if (is_first) printf("\n");
    return code;
}

static int run(const hadal_comm *comm, const char *folder) {
    char share[4096];
    tiny_weights *weights = NULL;
    tiny_session *session = NULL;
    snprintf(share, sizeof share, "%s/tiny.r%dof%d.weights", folder, comm->rank, comm->size);
    const size_t size = tiny_session_size(TOKENS);
    void *memory = aligned_alloc(TINY_ALIGN, size);
    int code = tiny_weights_open(share, &weights);
    /* A rank without its share of the weights makes this call as well, with NULL, so that the
     * others need not wait for it. */
    const int all =
        tiny_session_init_on(memory, size, weights, TOKENS, comm, 10 * SECOND, &session);
    if (!code) code = all;
    if (!code) code = write_tokens(session, comm->rank == 0);
    if (code)
        fprintf(stderr, "rank %d: %s. %s\n", comm->rank, tiny_strerror(code),
                session ? tiny_session_message(session) : share);
    free(memory);
    tiny_weights_close(weights);
    return code;
}

int main(int argc, char **argv) {
    int provided;
    hadal_mpi *group = NULL;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    int code = hadal_mpi_open(MPI_COMM_WORLD, 10 * SECOND, &group);
    if (!code) code = run(hadal_mpi_comm(group), argc > 1 ? argv[1] : ".");
    if (code || !hadal_mpi_close(group, 10 * SECOND)) MPI_Abort(MPI_COMM_WORLD, 1);
    return MPI_Finalize();
}
