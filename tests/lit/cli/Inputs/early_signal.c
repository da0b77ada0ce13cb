/* Loaded before libc: a temporary folder is made, and at once there is a signal. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <string.h>

char *mkdtemp(char *name) {
    void *found = dlsym(RTLD_NEXT, "mkdtemp");
    char *(*make)(char *);
    memcpy(&make, &found, sizeof make);
    char *made = make(name);
    raise(SIGTERM);
    return made;
}
