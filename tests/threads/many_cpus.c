/* Loaded before a program (LD_PRELOAD), makes it believe that it has as many CPUs as
 * HADAL_TEST_CPUS says, so that calls run with more threads than there are CPUs: the runtime takes
 * no more than it counts. */
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static long pretended(void) {
    const char *text = getenv("HADAL_TEST_CPUS");
    const long n = text ? atol(text) : 0;
    return n > 0 ? n : 0;
}

#define SEEN __attribute__((visibility("default")))

SEEN int omp_get_num_procs(void);
int omp_get_num_procs(void) {
    int (*real)(void);
    if (pretended()) return (int)pretended();
    *(void **)&real = dlsym(RTLD_NEXT, "omp_get_num_procs");
    return real ? real() : 1;
}

SEEN long sysconf(int name) {
    long (*real)(int);
    if (pretended() && (name == _SC_NPROCESSORS_CONF || name == _SC_NPROCESSORS_ONLN))
        return pretended();
    *(void **)&real = dlsym(RTLD_NEXT, "sysconf");
    return real(name);
}
