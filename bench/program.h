/* A compiled model, loaded by name: the library, its weights, and the kernel IR, which says what
 * work it does. All functions that can fail print why to stderr and end the program, since a
 * benchmark cannot go on without its subject. */
#ifndef BENCH_PROGRAM_H
#define BENCH_PROGRAM_H

#include "bench/work.h"
#include "hadal/hadal.h"

/* The functions of a generated header; the structs are the same for every model. */
typedef struct program {
    const char *name;
    hd_arena *arena;
    const hir_module *kernels; /* NULL: there is no kernel IR */
    void *library, *weights;
    size_t weights_size;
    int64_t vocab;
    const char *(*strerror)(int code);
    /* for language models */
    size_t (*session_size)(int64_t max_tokens);
    int (*session_init)(void *mem, size_t size, const void *w, int64_t max_tokens, void **out);
    int (*set_threads)(void *session, int threads);
    int (*rewind)(void *session, int64_t length);
    int (*forward)(void *session, const int32_t *tokens, int64_t n, float *logits, int64_t rows);
    int (*forward_batch)(void *const *sessions, const int32_t *tokens, int64_t n, float *logits);
    /* for plain functions of one tensor, with weights; NULL for language models */
    size_t (*work_size)(int64_t tokens);
    int (*call)(const void *w, int64_t tokens, const float *x, float *y, void *work, size_t size);
} program;

/* Loads what `hadal compile -o PATH` has written: DIR/libNAME.so, DIR/NAME.weights and, if it
 * exists, DIR/NAME.kernel.hir. */
program *program_load(const char *path);
void program_close(program *p);

/* Facts about the machine to assume in what is compiled, as --machine of hadal; NULL: those of this
 * machine. */
extern const char *program_machine;
/* What programs are compiled for, as --target-cpu of hadal: "native", or a CPU level. */
extern const char *program_cpu;
/* The limits of this machine on so many threads, for code of program_cpu. */
struct machine *program_limits(int threads);

/* Compiles a spec with random weights in a temporary directory, and loads it; the directory is then
 * removed. `defines`: "name=value,name=value"; `pipeline`: NULL for the default one. */
program *program_compile(const char *spec, const char *name, const char *defines,
                         const hadal_pipeline *pipeline);

/* Ends the program if `code`, of a function of the model's library, is an error; 0: success. */
void program_check(const program *p, int code);
/* Ends the program if a call of the compiler, which was to do `what`, has failed. */
void compiler_check(hadal_session *s, int failed, const char *what);

void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

enum { NUMBERS = 32 };
typedef struct numbers { /* one or more numbers, from an argument such as "8,16" */
    int64_t at[NUMBERS];
    size_t n;
} numbers;
numbers read_numbers(const char *text, int64_t least, int64_t most); /* bounds of each number */
int64_t largest(const numbers *l);

#endif
