/* MPI is loaded at run time, by libhadal_mpi, so that the command needs MPI for divided models only
 * (docs/decisions/transport.md). */
#include "driver/ranks.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "hadal/hadal_comm.h"

static const char library_name[] = "libhadal_mpi.so";

/* Was this process started by the mpirun of Open MPI, of MPICH, or of another MPI that uses PMI?
 * These set environment variables. */
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

/* POSIX lets dlsym's result be stored through a void **; ISO C has no cast for it. */
static void find(void *library, const char *name, void *slot) {
    void *address = dlsym(library, name);
    memcpy(slot, &address, sizeof address);
}

typedef struct functions {
    int (*open)(int64_t timeout_ns, void **out);
    const hadal_comm *(*comm)(void *group);
    int (*slow)(void *group, double bits_per_second, int64_t latency_ns, int64_t timeout_ns);
} functions;

/* RTLD_GLOBAL: some MPIs load parts of themselves later, which look for their symbols. */
static int open_mpi(hadal_session *s, ranks *r, functions *f) {
    r->library = dlopen(library_name, RTLD_NOW | RTLD_GLOBAL);
    if (!r->library)
        return fail(s, "processes that work together need MPI, which cannot be loaded", dlerror(),
                    "libhadal_mpi is built where CMake finds an MPI: tools/deps.sh --mpi");
    find(r->library, "hadal_mpi_open_world", &f->open);
    find(r->library, "hadal_mpi_comm", &f->comm);
    find(r->library, "hadal_mpi_slow", &f->slow);
    find(r->library, "hadal_mpi_close", &r->close);
    if (f->open && f->comm && f->slow && r->close) return 0;
    return fail(s, "libhadal_mpi lacks functions", NULL, "it is of another version of hadal");
}

static int enter(hadal_session *s, const functions *f, ranks *r) {
    char text[120];
    const int code = f->open(r->timeout_ns, &r->group);
    if (code) {
        snprintf(text, sizeof text, "code %d", code);
        return fail(s, "the processes of the job do not come together", text,
                    "all of them have to be started with the same command");
    }
    const hadal_comm *comm = f->comm(r->group);
    r->rank = comm->rank;
    r->count = comm->size;
    r->silent = comm->rank > 0;
    hadal_use_ranks(s, comm, r->timeout_ns);
    return 0;
}

/* --link: delays messages as a slower network would. */
static int slow_down(hadal_session *s, const command_line *line, const functions *f, ranks *r) {
    double bits_per_second;
    int64_t latency_ns;
    const char *text = option_get(line, OPTION_LINK);
    if (!text) return 0;
    if (hadal_read_link(s, text, &bits_per_second, &latency_ns)) return 1;
    if (f->slow(r->group, bits_per_second, latency_ns, r->timeout_ns) == 0) return 0;
    return fail(s, "--link is for processes of one machine", NULL,
                "between machines there is a network: tc qdisc slows it");
}

int join_job(hadal_session *s, const command_line *line, ranks *out) {
    long long seconds;
    functions f = {0};
    *out = (ranks){0};
    if (!option_number(s, line, OPTION_COMM_TIMEOUT, 60, 1, 1000000, &seconds)) return 1;
    out->timeout_ns = seconds * INT64_C(1000000000);
    return open_mpi(s, out, &f) || enter(s, &f, out) || slow_down(s, line, &f, out);
}

/* Finds this rank's pipeline stage. Ranks are in the order of the stages; the last stage has the
 * logits. */
static int choose_stage(hadal_session *s, const char *spec, compiled_files *files, ranks *r) {
    const int stages = files->stages > 0 ? files->stages : 1, each = r->count / stages;
    if (r->count % stages)
        return fail(s, "the stages are not those of one compilation", NULL,
                    "compile all of them again");
    r->silent = r->rank != r->count - each;
    return files->stages > 0 && !find_stage(spec, r->rank / each, files);
}

static int reject_options(hadal_session *s, const command_line *line, const char *what,
                          const char *hint) {
    static const option_id of_ranks[] = {OPTION_COMM_TIMEOUT, OPTION_LINK};
    for (size_t i = 0; i < sizeof of_ranks / sizeof *of_ranks; i++) {
        if (!option_given(line, of_ranks[i])) continue;
        char message[128];
        snprintf(message, sizeof message, "--%s is for %s", option_name(of_ranks[i]), what);
        return hadal_fail(s, "usage", message, hint);
    }
    return 0;
}

int reject_rank_options(hadal_session *s, const command_line *line) {
    return reject_options(s, line, "a model that is divided over ranks",
                          "this one runs in one process; hadal compile --ranks P divides it");
}

int join_measuring(hadal_session *s, const command_line *line, ranks *out) {
    *out = (ranks){0};
    if (is_in_job()) return join_job(s, line, out);
    return reject_options(s, line, "processes that measure together",
                          "mpirun -n RANKS hadal machine .. starts them");
}

int join_training(hadal_session *s, const command_line *line, ranks *out) {
    *out = (ranks){0};
    if (is_in_job()) return join_job(s, line, out);
    return reject_options(s, line, "processes that train together",
                          "mpirun -n RANKS hadal train .. starts them");
}

int join_ranks(hadal_session *s, const command_line *line, const char *spec, compiled_files *files,
               ranks *out) {
    int64_t wanted;
    char text[120];
    *out = (ranks){0};
    if (hadal_library_ranks(s, files->library, &wanted)) return 1;
    if (wanted == 0) return reject_rank_options(s, line);
    if (!is_in_job()) {
        snprintf(text, sizeof text, "mpirun -n %lld hadal ... starts one for each",
                 (long long)wanted);
        return fail(s, "the model is divided over ranks, and this process is alone", NULL, text);
    }
    if (join_job(s, line, out)) return 1;
    if (out->count == wanted) return choose_stage(s, spec, files, out);
    snprintf(text, sizeof text, "the model is divided over %lld ranks, the job has %d",
             (long long)wanted, out->count);
    return fail(s, text, NULL, "start as many processes as ranks: mpirun -n RANKS hadal ...");
}

int leave_ranks(ranks *r, int failed) {
    if (!r->group || failed) return failed;
    return !r->close(r->group, r->timeout_ns);
}
