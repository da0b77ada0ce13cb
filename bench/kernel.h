/* Code shared by benchmarks of one kernel: their arguments, the compiled kernel, and its memory. */
#ifndef BENCH_KERNEL_H
#define BENCH_KERNEL_H

#define EMIT_EFFORT LLVMCodeGenLevelDefault
#include "bench/pages.h"
#include "tests/unit/codegen/emit_harness.h"

enum { MOST_THREADS = 64 };

/* The best level that runs here, or the level of this name; NULL: neither exists. */
static inline const hcg_level *kernel_level(const char *name) {
    const hcg_level *levels;
    const size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++)
        if (level_runs(&levels[i]) && (!strcmp(name, "best") || !strcmp(name, levels[i].name)))
            return &levels[i];
    return NULL;
}

/* The type of a cache: f32, bf16, else f16. */
static inline hir_dtype kernel_dtype(const char *name) {
    return !strcmp(name, "f32") ? HIR_F32 : !strcmp(name, "bf16") ? HIR_BF16 : HIR_F16;
}

/* The type of weights; f32 for an unknown name. */
static inline hir_dtype kernel_weights_dtype(const char *name) {
    for (int t = 0; t < HIR_DTYPE_COUNT; t++)
        if (t != HIR_I32 && !strcmp(name, hir_dtype_name((hir_dtype)t))) return (hir_dtype)t;
    return HIR_F32;
}

/* Compiles the kernel; on failure it ends the program with the compiler's message. b->m: NULL if
 * its text could not be read. */
static inline void kernel_compile(bench *b, hir_kernel_kind kind, hir_id kernel, bool one,
                                  const hcg_level *level, compiled *c) {
    if (b->m && compile_kernel(b, kind, kernel, one, level, c)) return;
    fprintf(stderr, "%s\n", bench_errors(b));
    exit(1);
}

static inline void new_scratch(char **scratch, int threads, const compiled *c) {
    for (int i = 0; i < threads; i++)
        scratch[i] = new_pages(c->scratch);
}

static inline void free_scratch(char **scratch, int threads) {
    for (int i = 0; i < threads; i++)
        free(scratch[i]);
}

/* Allocates a cache of small positive numbers: random bits of any of the types, with the exponent
 * fixed. */
static inline char *new_cache(size_t bytes, hir_dtype dtype) {
    static const uint64_t keep[] = {[HIR_F32] = 0x007fffff007fffffull,
                                    [HIR_BF16] = 0x007f007f007f007full,
                                    [HIR_F16] = 0x03ff03ff03ff03ffull},
                          one[] = {[HIR_F32] = 0x3d8000003d800000ull,
                                   [HIR_BF16] = 0x3d803d803d803d80ull,
                                   [HIR_F16] = 0x2c002c002c002c00ull};
    char *x = new_pages(bytes);
    uint64_t seed = 1;
    for (size_t i = 0; i < bytes; i += 8) {
        const uint64_t bits = (random_bits(&seed) & keep[dtype]) | one[dtype];
        memcpy(x + i, &bits, 8);
    }
    return x;
}

#endif
