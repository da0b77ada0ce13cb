/* MPI is found at run time, in libhadal_mpi, so that the command needs it for divided models alone
 * (docs/decisions/mpi-at-run-time.md). */
#include "driver/ranks.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "hadal/hadal_comm.h"

static const char library_name[] = "libhadal_mpi.so";

/* Set by the mpirun of Open MPI, of MPICH, and of others that speak PMI. */
bool is_in_job(void) {
    static const char *const set[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "PMI_RANK"};
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        if (getenv(set[i])) return true;
    return false;
}

static int fail(hadal_session *s, const char *what, const char *detail, const char *hint) {
    char message[600];
    snprintf(message, sizeof message, "%s%s%.400s", what, detail ? ": " : "", detail ? detail : "");
    hadal_fail(s, "runtime", message, hint);
    return 1;
}

/* POSIX lets dlsym's result be stored through a void ** where ISO C has no cast for it. */
static void find(void *library, const char *name, void *slot) {
    void *address = dlsym(library, name);
    memcpy(slot, &address, sizeof address);
}

typedef struct functions {
    int (*open)(int64_t timeout_ns, void **out);
    const hadal_comm *(*comm)(void *group);
    int (*slow)(void *group, double bits_per_second, int64_t latency_ns, int64_t timeout_ns);
} functions;

/* RTLD_GLOBAL: parts of some MPIs are opened later, and look for its symbols. */
static int open_mpi(hadal_session *s, ranks *r, functions *f) {
    r->library = dlopen(library_name, RTLD_NOW | RTLD_GLOBAL);
    if (!r->library)
        return fail(s, "a divided model needs MPI, which cannot be loaded", dlerror(),
                    "libhadal_mpi is built where CMake finds an MPI: tools/deps.sh --mpi");
    find(r->library, "hadal_mpi_open_world", &f->open);
    find(r->library, "hadal_mpi_comm", &f->comm);
    find(r->library, "hadal_mpi_slow", &f->slow);
    find(r->library, "hadal_mpi_close", &r->close);
    if (f->open && f->comm && f->slow && r->close) return 0;
