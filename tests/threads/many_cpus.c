/* Loaded before a program (LD_PRELOAD), makes it believe that it has as many CPUs as
 * HADAL_TEST_CPUS says, so that calls run with more threads than there are CPUs: the runtime takes
 * no more than it counts. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
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

/* No quota, however many CPUs this test is allowed: the runtime finds it in files. */
SEEN int open(const char *path, int flags, ...);
int open(const char *path, int flags, ...) {
    int (*real)(const char *, int, ...);
    va_list more;
    va_start(more, flags);
    const int mode = flags & O_CREAT ? va_arg(more, int) : 0;
    va_end(more);
    if (pretended() && strcmp(path, "/proc/self/mountinfo") == 0) return -1;
    *(void **)&real = dlsym(RTLD_NEXT, "open");
    return real(path, flags, mode);
}

SEEN long sysconf(int name) {
    long (*real)(int);
    if (pretended() && (name == _SC_NPROCESSORS_CONF || name == _SC_NPROCESSORS_ONLN))
        return pretended();
    *(void **)&real = dlsym(RTLD_NEXT, "sysconf");
    return real(name);
}
