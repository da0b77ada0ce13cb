/* The model of a generated library whose functions begin with "m_", for programs that do something
 * to their process before they call it. */
#ifndef HOST_MODEL_H
#define HOST_MODEL_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 24, MOST_LOGITS = 1 << 16 };
static const int32_t tokens[TOKENS] = {1, 2, 3, 4, 5};

static int (*weights_open)(const char *path, void **out);
static size_t (*session_size)(int64_t most);
static int (*session_init)(void *mem, size_t size, const void *w, int64_t most, void **out);
static int (*set_threads)(void *s, int threads);
static int (*rewind_to)(void *s, int64_t length);
static int (*forward)(void *s, const int32_t *ids, int64_t n, float *logits, int64_t rows);

static void *weights;
static size_t size; /* of a session */
static float expected[MOST_LOGITS];

static void bind(void *library, const char *name, void *slot) {
    void *address = dlsym(library, name);
    if (!address) fprintf(stderr, "no %s\n", name), exit(2);
    memcpy(slot, &address, sizeof address);
}

static void *open_session(void) {
    size = session_size(TOKENS);
    void *s = NULL, *memory = aligned_alloc(64, size);
    if (!memory || session_init(memory, size, weights, TOKENS, &s) != 0) return NULL;
    return s;
}

/* 0: the logits are those of the first call. */
static int call(void *s, int threads) {
    float *logits = calloc(1, sizeof expected);
    int code = s && logits ? rewind_to(s, 0) : -1;
    if (!code) code = set_threads(s, threads);
    if (!code) code = forward(s, tokens, TOKENS, logits, 1);
    if (!code) code = memcmp(logits, expected, sizeof expected) != 0;
    free(logits);
    return code;
}

/* Opens the model; a session that has made a call on one thread, of which the logits are kept. */
static void *open_model(const char *path, const char *weights_path) {
    void *library = dlopen(path, RTLD_NOW), *s = NULL;
    if (!library) fprintf(stderr, "%s\n", dlerror()), exit(2);
    bind(library, "m_weights_open", &weights_open), bind(library, "m_session_size", &session_size);
    bind(library, "m_session_init", &session_init), bind(library, "m_forward", &forward);
    bind(library, "m_session_set_threads", &set_threads);
    bind(library, "m_session_rewind", &rewind_to);
    if (weights_open(weights_path, &weights) == 0) s = open_session();
    if (!s || set_threads(s, 1) != 0 || forward(s, tokens, TOKENS, expected, 1) != 0) exit(2);
    return s;
}

#endif
