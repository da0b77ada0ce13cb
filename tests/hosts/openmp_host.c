/* openmp_host LIBRARY WEIGHTS WHAT: a program that uses OpenMP itself and calls the model of
 * LIBRARY with many threads. The logits must be those of a call on one thread, and the process
 * must go on.
 *
 *   inside    calls from a parallel region, each thread with a session of its own
 *   nested    the same where regions in regions have threads (OMP_MAX_ACTIVE_LEVELS is set)
 *   settings  omp_set_num_threads and omp_set_dynamic between calls
 *   shrunk    a region of few threads ends most threads of the pool, and then none can be made
 *   fewer     a call on few threads does, of the same library
 *   nested-limit   as nested, and no threads can be made */
#include <omp.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/hosts/host_model.h"

enum { MANY = 8, FEW = 2, CALLS = 4 };

static int no_more_threads(void) {
    const struct rlimit none = {0, 0};
    if (getuid() == 0 && setresuid(65534, 65534, 65534) != 0) return 1;
    return setrlimit(RLIMIT_NPROC, &none);
}

static int from_a_region(int threads, int limit) {
    int failed = 0;
#pragma omp parallel num_threads(FEW) reduction(+ : failed)
    {
        void *own = open_session();
#pragma omp barrier
#pragma omp single
        failed += limit && no_more_threads() != 0;
        for (int i = 0; i < CALLS; i++)
            failed += call(own, threads) != 0;
    }
    return failed;
}

static int settings(void *s) {
    int failed = 0;
    for (int i = 1; i < CALLS; i++) {
        omp_set_dynamic(i % 2);
        omp_set_num_threads(i);
        failed += call(s, MANY) != 0;
        failed += call(open_session(), MANY) != 0;
    }
    return failed;
}

/* Other work of the host, on the threads that it asks for. */
static int region(int threads) {
    int sum = 0;
#pragma omp parallel num_threads(threads) reduction(+ : sum)
    sum++;
    return sum;
}

static int shrunk(void *s) {
    if (call(s, MANY) != 0 || region(FEW) != FEW) return 1;
    usleep(50000); /* the threads that are not needed end by themselves */
    return no_more_threads() != 0 || call(s, MANY) != 0 || call(s, MANY) != 0;
}

static int fewer(void *s) {
    if (call(s, MANY) != 0 || call(s, FEW) != 0) return 1;
    return no_more_threads() != 0 || call(s, MANY) != 0 || call(s, FEW) != 0 || call(s, MANY) != 0;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    const char *what = argv[3];
    void *s = open_model(argv[1], argv[2]);
    if (strcmp(what, "inside") == 0) return from_a_region(MANY, 0) || call(s, MANY);
    if (strcmp(what, "nested") == 0) return from_a_region(FEW, 0) || call(s, MANY);
    if (strcmp(what, "nested-limit") == 0) return from_a_region(FEW, 1);
    if (strcmp(what, "settings") == 0) return settings(s);
    if (strcmp(what, "shrunk") == 0) return shrunk(s);
    if (strcmp(what, "fewer") == 0) return fewer(s);
    return 2;
}
