/* Ranks as processes of an MPI job (hadal_mpi.h). Messages are non-blocking sends and receives that
 * are polled, since no blocking call of MPI has a deadline. Collectives of MPI are not used: they
 * cannot be cancelled, and MPI does not specify in which order they add.
 *
 * A communicator of our own has two tags: DATA for the messages, and NOTICE for the notice that a
 * rank has given up, which overtakes them. */
#include <mpi.h>

#include "hadal/hadal_mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/collective.h"
#include "comm/slow_link.h"
#include "support/all_gather.h"
#include "support/clock.h"

enum { PIECE = 1 << 20, SLOT = COMM_HEAD + PIECE, DATA = 1, NOTICE = 2 };
enum { NOTICE_EVERY = 32 }; /* polls between two looks at notices: each look is a call of MPI */

typedef struct peer {
    uint8_t *out, *in;
    MPI_Request sending, receiving; /* MPI_REQUEST_NULL: none is under way */
    size_t arrived;                 /* bytes of the message in `in`; 0: none */
    bool gone;
    int notice; /* sent when this rank gives up: it outlives the call */
} peer;

struct hadal_mpi {
    comm_collective collective;
    comm_slow slow;
    MPI_Comm comm;
    int size, rank;
    peer *peers; /* [size] */
    comm_ends *ends;
    uint8_t *slots;
    MPI_Request notices;
    int notice;
    unsigned asked;
    bool owns_mpi;
};

/* ---- the link (collective.h) ----------------------------------------------------------------- */
/* Is the operation over? True for none. */
static bool is_over(MPI_Request *request, int *code) {
    int over = 0;
    if (*request == MPI_REQUEST_NULL) return true;
    if (MPI_Test(request, &over, MPI_STATUS_IGNORE) == MPI_SUCCESS) return over;
    *code = HADAL_COMM_TRANSPORT;
    return false;
}

static uint8_t *room(void *self, int32_t rank) {
    hadal_mpi *g = self;
    int code = HADAL_COMM_OK;
    peer *p = &g->peers[rank];
    return is_over(&p->sending, &code) ? p->out : NULL;
}

static int post(void *self, int32_t rank, size_t bytes) {
    hadal_mpi *g = self;
    peer *p = &g->peers[rank];
    const int rc = MPI_Isend(p->out, (int)bytes, MPI_BYTE, rank, DATA, g->comm, &p->sending);
    return rc == MPI_SUCCESS ? HADAL_COMM_OK : HADAL_COMM_TRANSPORT;
}

static bool has_left(void *self, int32_t rank) {
    return room(self, rank) != NULL;
}

static const uint8_t *look(void *self, int32_t rank, size_t *bytes, int *code) {
    hadal_mpi *g = self;
    peer *p = &g->peers[rank];
    MPI_Status status;
    int over = 0, n = 0;
    if (p->arrived == 0) {
        if (p->receiving == MPI_REQUEST_NULL &&
            MPI_Irecv(p->in, SLOT, MPI_BYTE, rank, DATA, g->comm, &p->receiving) != MPI_SUCCESS)
            *code = HADAL_COMM_TRANSPORT;
        else if (MPI_Test(&p->receiving, &over, &status) != MPI_SUCCESS)
            *code = HADAL_COMM_TRANSPORT;
        if (*code || !over) return NULL;
        MPI_Get_count(&status, MPI_BYTE, &n);
        p->arrived = n > 0 ? (size_t)n : 0;
        if (n <= 0) *code = HADAL_COMM_TRANSPORT;
    }
    *bytes = p->arrived;
    return p->arrived ? p->in : NULL;
}

static void drop(void *self, int32_t rank) {
    hadal_mpi *g = self;
    g->peers[rank].arrived = 0;
}

static void read_notices(hadal_mpi *g) {
    MPI_Status status;
    int over = 1;
    while (g->notices != MPI_REQUEST_NULL && MPI_Test(&g->notices, &over, &status) == MPI_SUCCESS &&
           over) {
        g->peers[status.MPI_SOURCE].gone = true;
        if (MPI_Irecv(&g->notice, 1, MPI_INT, MPI_ANY_SOURCE, NOTICE, g->comm, &g->notices) !=
            MPI_SUCCESS)
            g->notices = MPI_REQUEST_NULL;
    }
}

/* A notice may overtake messages that its rank has sent before. That does no harm: the rank gave up
 * in a collective that the other ranks cannot complete either, or in an earlier one. */
static bool is_gone(void *self, int32_t rank) {
    hadal_mpi *g = self;
    if (g->asked++ % NOTICE_EVERY == 0) read_notices(g);
    return g->peers[rank].gone;
}

static void give_up(void *self) {
    hadal_mpi *g = self;
    for (int r = 0; r < g->size; r++) {
        MPI_Request request;
        if (r == g->rank) continue;
        g->peers[r].notice = g->rank;
        if (MPI_Isend(&g->peers[r].notice, 1, MPI_INT, r, NOTICE, g->comm, &request) == MPI_SUCCESS)
            MPI_Request_free(&request);
    }
}

/* ---- opening --------------------------------------------------------------------------------- */
static bool allocate(hadal_mpi *g) {
    const size_t n = (size_t)g->size;
    g->peers = calloc(n, sizeof *g->peers);
    g->ends = calloc(n, sizeof *g->ends);
    g->slots = aligned_alloc(64, n * 2 * SLOT); /* allocated pages are touched only where ranks
                                                 * communicate */
    if (!g->peers || !g->ends || !g->slots) return false;
    for (size_t i = 0; i < n; i++) {
        peer *p = &g->peers[i];
        p->out = g->slots + 2 * i * SLOT;
        p->in = p->out + SLOT;
        p->sending = p->receiving = MPI_REQUEST_NULL;
    }
    return true;
}

static void free_memory(hadal_mpi *g) {
    free(g->peers);
    free(g->ends);
    free(g->slots);
    free(g);
}

/* False: the operation did not complete in time. */
static bool over_by(MPI_Request *request, int64_t timeout_ns, int *code) {
    const int64_t begun = hd_nanoseconds();
    while (!is_over(request, code)) {
        if (*code || hd_nanoseconds() - begun >= timeout_ns) return false;
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
    return true;
}

/* Makes a communicator of our own: its messages cannot match those of others, and its errors are
 * return values. */
static int duplicate(MPI_Comm comm, int64_t timeout_ns, MPI_Comm *out) {
    MPI_Request request;
    int code = HADAL_COMM_OK;
    if (MPI_Comm_idup(comm, out, &request) != MPI_SUCCESS) return HADAL_COMM_TRANSPORT;
    if (!over_by(&request, timeout_ns, &code)) return code ? code : HADAL_COMM_TIMEOUT;
    return MPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN) == MPI_SUCCESS ? HADAL_COMM_OK
                                                                           : HADAL_COMM_TRANSPORT;
}

static int start(hadal_mpi *g, MPI_Comm comm, int64_t timeout_ns) {
    int rc = duplicate(comm, timeout_ns, &g->comm);
    if (rc) return rc;
    g->notices = MPI_REQUEST_NULL;
    if (MPI_Irecv(&g->notice, 1, MPI_INT, MPI_ANY_SOURCE, NOTICE, g->comm, &g->notices) !=
        MPI_SUCCESS)
        return HADAL_COMM_TRANSPORT;
    const comm_link link = {g, PIECE, room, post, has_left, look, drop, is_gone, give_up};
    comm_collective_start(&g->collective, link, g->rank, g->size, g->ends);
    return HADAL_COMM_OK;
}

int hadal_mpi_open(MPI_Comm comm, int64_t timeout_ns, hadal_mpi **out) {
    int begun = 0, over = 0, size = 0, rank = 0;
    if (out) *out = NULL;
    if (!out || MPI_Initialized(&begun) != MPI_SUCCESS || !begun ||
        MPI_Finalized(&over) != MPI_SUCCESS || over || comm == MPI_COMM_NULL)
        return HADAL_COMM_ARGUMENT;
    if (MPI_Comm_size(comm, &size) != MPI_SUCCESS || MPI_Comm_rank(comm, &rank) != MPI_SUCCESS)
        return HADAL_COMM_TRANSPORT;
    if (size > HADAL_COMM_MAX_RANKS) return HADAL_COMM_ARGUMENT;
    hadal_mpi *g = calloc(1, sizeof *g);
    if (!g) return HADAL_COMM_MEMORY;
    g->size = size;
    g->rank = rank;
    if (!allocate(g)) {
        free_memory(g);
        return HADAL_COMM_MEMORY;
    }
    const int rc = start(g, comm, timeout_ns);
    if (rc) return rc; /* MPI may still write to it: it is not freed */
    *out = g;
    return HADAL_COMM_OK;
}

int hadal_mpi_open_world(int64_t timeout_ns, hadal_mpi **out) {
    int begun = 0, provided;
    if (out) *out = NULL;
    if (!out || MPI_Initialized(&begun) != MPI_SUCCESS) return HADAL_COMM_ARGUMENT;
    if (!begun && MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
        return HADAL_COMM_TRANSPORT;
    const int rc = hadal_mpi_open(MPI_COMM_WORLD, timeout_ns, out);
    if (!rc) (*out)->owns_mpi = !begun;
    return rc;
}

const hadal_comm *hadal_mpi_comm(hadal_mpi *g) {
    return g ? &g->collective.interface : NULL;
}

/* ---- slow links ------------------------------------------------------------------------------ */
/* Clocks can only be compared within one machine and one boot of it. */
int hadal_mpi_slow(hadal_mpi *g, double bits_per_second, int64_t latency_ns, int64_t timeout_ns) {
    char mine[HD_BOOT_ID], all[HADAL_COMM_MAX_RANKS * HD_BOOT_ID];
    if (!g) return HADAL_COMM_ARGUMENT;
    hd_read_boot_id(mine);
    const hadal_comm *c = &g->collective.interface;
    const int rc = hd_all_gather(c, hd_all_ranks(c), timeout_ns, mine, all, HD_BOOT_ID);
    if (rc) return rc;
    for (int r = 0; r < g->size; r++)
        if (!mine[0] || memcmp(all + r * HD_BOOT_ID, mine, HD_BOOT_ID) != 0)
            return HADAL_COMM_ARGUMENT;
    return comm_slow_down(&g->slow, &g->collective, bits_per_second, latency_ns);
}

/* ---- closing --------------------------------------------------------------------------------- */
int hadal_mpi_close(hadal_mpi *g, int64_t timeout_ns) {
    if (!g) return 1;
    if (!comm_collective_end(&g->collective, timeout_ns)) return 0;
    if (g->notices != MPI_REQUEST_NULL) { /* nobody has given up: no notice has matched it */
        MPI_Cancel(&g->notices);
        MPI_Wait(&g->notices, MPI_STATUS_IGNORE);
    }
    MPI_Comm_free(&g->comm);
    const bool owns_mpi = g->owns_mpi;
    free_memory(g);
    return !owns_mpi || MPI_Finalize() == MPI_SUCCESS;
}
