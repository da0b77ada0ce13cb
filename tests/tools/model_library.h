/* A compiled model of tokens, opened by its path: its functions, under whatever prefix. For
 * programs that test libraries of several names at once. */
#ifndef TESTS_MODEL_LIBRARY_H
#define TESTS_MODEL_LIBRARY_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "hadal/hadal_comm.h"

/* Of the info that every library tells (its header): the first output's type, and vocab. */
typedef struct info {
    size_t struct_size;
    const char *version, *name, *digest, *options, *ops;
    size_t weights_size, max_chunk, n_levels;
    const char *const *levels;
    size_t n_inputs;
    const char *const (*inputs)[2];
    size_t n_outputs;
    const char *const (*outputs)[2];
    size_t vocab;
} info;

typedef struct library {
    void *handle;
    char prefix[200];
    int (*weights_open)(const char *path, void **out);
    void (*weights_close)(void *w);
    size_t (*session_size)(int64_t max);
    int (*session_init)(void *mem, size_t size, const void *w, int64_t max, void **out);
    int (*session_init_on)(void *mem, size_t size, const void *w, int64_t max,
                           const hadal_comm *comm, int64_t timeout_ns, void **out);
    int (*set_threads)(void *s, int threads);
    int (*rewind)(void *s, int64_t length);
    int (*forward)(void *s, const int32_t *tokens, int64_t n, float *logits, int64_t rows);
    int (*loss)(void *s, const int32_t *tokens, const int32_t *targets, int64_t n, float *losses);
    int (*batch)(void *const *sessions, const int32_t *tokens, int64_t count, float *logits);
    const char *(*message)(const void *s);
    const char *(*strerror)(int code);
    const void *(*info)(void);
} library;

static inline void *symbol(library *l, const char *name) {
    char full[300];
    snprintf(full, sizeof full, "%s_%s", l->prefix, name);
    return dlsym(l->handle, full);
}

static inline int open_library(library *l, const char *path) {
    const char *file = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    l->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!l->handle) return fprintf(stderr, "%s\n", dlerror()), 1;
    snprintf(l->prefix, sizeof l->prefix, "%.*s", (int)(strlen(file) - 6), file + 3);
#define FIND(field, name)                                                                          \
    do {                                                                                           \
        void *at = symbol(l, name);                                                                \
        memcpy(&l->field, &at, sizeof at);                                                         \
    } while (0)
    FIND(weights_open, "weights_open");
    FIND(weights_close, "weights_close");
    FIND(session_size, "session_size");
    FIND(session_init, "session_init");
    FIND(session_init_on, "session_init_on");
    FIND(set_threads, "session_set_threads");
    FIND(rewind, "session_rewind");
    FIND(forward, "forward");
    FIND(loss, "loss"); /* NULL: compiled without --loss */
    FIND(batch, "forward_batch");
    FIND(message, "session_message");
    FIND(strerror, "strerror");
    FIND(info, "info");
    return l->forward ? 0 : (fprintf(stderr, "%s is no model\n", path), 1);
}

#endif
