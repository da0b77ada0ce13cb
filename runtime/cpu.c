/* What this CPU can run, as far as the operating system saves the registers for it.
 *
 * A level is chosen only when the CPU has every feature its code may use, so that no kernel can
 * meet an instruction the machine lacks. Everything in this file is baseline code. */
#include <string.h>

#include "runtime/internal.h"

#if defined(__x86_64__)
#include <cpuid.h>

enum { XCR0_AVX = 0x06, XCR0_AVX512 = 0xe6 }; /* xmm and ymm; opmask, upper zmm too */

/* Register sets that the operating system saves (XCR0); only with OSXSAVE. */
static uint64_t saved_registers(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

typedef struct cpu_leaves {
    unsigned c1, b7, c7, a71, c81; /* leaf 1 ecx, leaf 7 ebx ecx, leaf 7.1 eax, 0x80000001 ecx */
} cpu_leaves;

static cpu_leaves read_leaves(void) {
    cpu_leaves l = {0};
    unsigned a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d)) l.c1 = c;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        l.b7 = b;
        l.c7 = c;
        if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) l.a71 = a;
    }
    if (__get_cpuid(0x80000001, &a, &b, &c, &d)) l.c81 = c;
    return l;
}

static uint64_t find_features(void) {
    cpu_leaves l = read_leaves();
    uint64_t saved = (l.c1 >> 27 & 1) ? saved_registers() : 0;
    bool avx = (saved & XCR0_AVX) == XCR0_AVX, avx512 = (saved & XCR0_AVX512) == XCR0_AVX512;
    const struct {
        unsigned word, bit;
        bool usable;
        uint64_t feature;
    } table[] = {
        {l.c1, 0, true, HRT_CPU_SSE3},          {l.c1, 9, true, HRT_CPU_SSSE3},
        {l.c1, 19, true, HRT_CPU_SSE41},        {l.c1, 20, true, HRT_CPU_SSE42},
        {l.c1, 23, true, HRT_CPU_POPCNT},       {l.c1, 13, true, HRT_CPU_CX16},
        {l.c1, 22, true, HRT_CPU_MOVBE},        {l.c1, 28, avx, HRT_CPU_AVX},
        {l.c1, 29, avx, HRT_CPU_F16C},          {l.c1, 12, avx, HRT_CPU_FMA},
        {l.b7, 5, avx, HRT_CPU_AVX2},           {l.b7, 3, true, HRT_CPU_BMI},
        {l.b7, 8, true, HRT_CPU_BMI2},          {l.b7, 16, avx512, HRT_CPU_AVX512F},
        {l.b7, 17, avx512, HRT_CPU_AVX512DQ},   {l.b7, 28, avx512, HRT_CPU_AVX512CD},
        {l.b7, 30, avx512, HRT_CPU_AVX512BW},   {l.b7, 31, avx512, HRT_CPU_AVX512VL},
        {l.c7, 11, avx512, HRT_CPU_AVX512VNNI}, {l.a71, 5, avx512, HRT_CPU_AVX512BF16},
        {l.a71, 4, avx, HRT_CPU_AVXVNNI},       {l.c81, 0, true, HRT_CPU_SAHF},
        {l.c81, 5, true, HRT_CPU_LZCNT},
    };
    uint64_t features = 0;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].usable && (table[i].word >> table[i].bit & 1)) features |= table[i].feature;
    return features;
}
#else
static uint64_t find_features(void) {
    return 0; /* aarch64: vectors are part of the base architecture, nothing is asked for */
}
#endif

/* Asked once, when the library is loaded: under a hypervisor every cpuid is a trap of microseconds,
 * and plain functions choose their level in every call. */
static uint64_t features_at_load;
static bool asked;
__attribute__((constructor)) static void ask_at_load(void) {
    features_at_load = find_features();
    asked = true;
}

uint64_t hrt_cpu_features(void) {
    return asked ? features_at_load : find_features();
}

const hrt_level *hrt_pick_level(const hrt_model *m, const char *name) {
    uint64_t have = hrt_cpu_features();
    for (uint32_t i = 0; i < m->n_levels; i++) {
        const hrt_level *level = &m->levels[i];
        if (name && strcmp(name, level->name) != 0) continue;
        if ((level->features & ~have) == 0) return level;
    }
    return NULL;
}
