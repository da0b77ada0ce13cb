/* A compiled model, loaded by name: the library, its weights, and the kernel IR that tells what it
 * has to do. All functions that can fail say why on stderr and end the program: a benchmark without
 * its subject has nothing to go on with. */
#ifndef BENCH_PROGRAM_H
#define BENCH_PROGRAM_H

#include "bench/work.h"
#include "hadal/hadal.h"

/* Of a generated header; the structs are the same for every model. */
typedef struct program {
    const char *name;
    hd_arena *arena;
    const hir_module *kernels; /* NULL: not known */
    void *library, *weights;
    size_t weights_size;
    int64_t vocab;
    const char *(*strerror)(int code);
    /* models of tokens */
    size_t (*session_size)(int64_t max_tokens);
    int (*session_init)(void *mem, size_t size, const void *w, int64_t max_tokens, void **out);
    int (*set_threads)(void *session, int threads);
    int (*rewind)(void *session, int64_t length);
    int (*forward)(void *session, const int32_t *tokens, int64_t n, float *logits, int64_t rows);
    int (*forward_batch)(void *const *sessions, const int32_t *tokens, int64_t n, float *logits);
    /* plain functions of one tensor, with weights; NULL for models of tokens */
    size_t (*work_size)(int64_t tokens);
    int (*call)(const void *w, int64_t tokens, const float *x, float *y, void *work, size_t size);
} program;

/* What `hadal compile -o PATH` left: DIR/libNAME.so, DIR/NAME.weights, and, if it is there,
 * DIR/NAME.kernel.hir. */
program *program_load(const char *path);
void program_close(program *p);

/* Facts to assume of the machine in what is compiled, as --machine of hadal; NULL: its own. */
extern const char *program_machine;

/* Compiles a spec in a folder of its own, which goes afterwards, with random weights, and loads it.
 * `defines`: "name=value,name=value"; `pipeline`: NULL for the default one. */
program *program_compile(const char *spec, const char *name, const char *defines,
                         const hadal_pipeline *pipeline);

/* Of a function of the program's; 0: it was done. */
void program_check(const program *p, int code);
/* Of one of the compiler's, which was to do `what`. */
void compiler_check(hadal_session *s, int failed, const char *what);

void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
void *new_memory(size_t size); /* in whole lines; freed by free */

enum { NUMBERS = 32 };
typedef struct numbers { /* of an argument like "8,16": one or more */
    int64_t at[NUMBERS];
    size_t n;
} numbers;
numbers read_numbers(const char *text, int64_t least, int64_t most); /* what each may be */
int64_t largest(const numbers *l);

#endif
