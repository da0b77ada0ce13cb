/* Decodes the answers of CPUID (detect.h).
 *
 * Sources: Intel 64 SDM vol. 2A, CPUID, leaves 1, 4, 7, 80000001h; AMD64 APM vol. 3, appendix E,
 * leaves 8000_0001h, 8000_001Dh. Everything in this file is baseline code. */
#include "runtime/detect.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "runtime/hadal_rt.h"

enum { EAX, EBX, ECX, EDX };

/* The registers that a feature's instructions use must be saved by the operating system when it
 * switches threads. */
enum {
    ALWAYS = 0,
    YMM = 0x06,      /* XCR0: xmm and ymm */
    ZMM = 0xe6,      /* opmask, the upper halves of zmm and the upper sixteen too */
    TILES = 0x60000, /* tile configuration and data: only for processes that request them,
                      * hrt_permitted */
};

/* X(feature, leaf, subleaf, register, bit, registers that must be saved) */
#define FEATURE_BITS(X)                                                                            \
    X(SSE3, 1, 0, ECX, 0, ALWAYS)                                                                  \
    X(SSSE3, 1, 0, ECX, 9, ALWAYS)                                                                 \
    X(SSE41, 1, 0, ECX, 19, ALWAYS)                                                                \
    X(SSE42, 1, 0, ECX, 20, ALWAYS)                                                                \
    X(POPCNT, 1, 0, ECX, 23, ALWAYS)                                                               \
    X(CX16, 1, 0, ECX, 13, ALWAYS)                                                                 \
    X(MOVBE, 1, 0, ECX, 22, ALWAYS)                                                                \
    X(AVX, 1, 0, ECX, 28, YMM)                                                                     \
    X(F16C, 1, 0, ECX, 29, YMM)                                                                    \
    X(FMA, 1, 0, ECX, 12, YMM)                                                                     \
    X(AVX2, 7, 0, EBX, 5, YMM)                                                                     \
    X(BMI, 7, 0, EBX, 3, ALWAYS)                                                                   \
    X(BMI2, 7, 0, EBX, 8, ALWAYS)                                                                  \
    X(AVX512F, 7, 0, EBX, 16, ZMM)                                                                 \
    X(AVX512DQ, 7, 0, EBX, 17, ZMM)                                                                \
    X(AVX512CD, 7, 0, EBX, 28, ZMM)                                                                \
    X(AVX512BW, 7, 0, EBX, 30, ZMM)                                                                \
    X(AVX512VL, 7, 0, EBX, 31, ZMM)                                                                \
    X(AVX512VNNI, 7, 0, ECX, 11, ZMM)                                                              \
    X(AVX512BF16, 7, 1, EAX, 5, ZMM)                                                               \
    X(AVXVNNI, 7, 1, EAX, 4, YMM)                                                                  \
    X(AMXTILE, 7, 0, EDX, 24, TILES)                                                               \
    X(AMXBF16, 7, 0, EDX, 22, TILES)                                                               \
    X(AMXINT8, 7, 0, EDX, 25, TILES)                                                               \
    X(SAHF, 0x80000001, 0, ECX, 0, ALWAYS)                                                         \
    X(LZCNT, 0x80000001, 0, ECX, 5, ALWAYS)

static const struct {
    uint64_t feature;
    uint32_t leaf, subleaf, at, bit, saved;
} feature_bits[] = {
#define X(id, leaf, subleaf, at, bit, saved) {HRT_CPU_##id, leaf, subleaf, at, bit, saved},
    FEATURE_BITS(X)
#undef X
};
enum { N_FEATURE_BITS = sizeof feature_bits / sizeof *feature_bits };

/* The answers of CPUID so far. Under a hypervisor each CPUID takes microseconds, so none is
 * executed twice. The array is large enough for all leaves that are read here: at most sixteen
 * subleaves of each of the two leaves that describe caches. */
typedef struct reader {
    const hrt_cpuid *cpuid;
    uint32_t n;
    struct {
        uint32_t leaf, subleaf, answer[4];
    } known[48];
} reader;

static void ask_once(reader *r, uint32_t leaf, uint32_t subleaf, uint32_t answer[4]) {
    enum { MOST = sizeof r->known / sizeof *r->known };
    uint32_t i = 0;
    while (i < r->n && (r->known[i].leaf != leaf || r->known[i].subleaf != subleaf))
        i++;
    if (i < r->n) {
        memcpy(answer, r->known[i].answer, sizeof r->known[i].answer);
        return;
    }
    r->cpuid->ask(r->cpuid->context, leaf, subleaf, answer);
    if (r->n == MOST) return;
    r->known[r->n].leaf = leaf, r->known[r->n].subleaf = subleaf;
    memcpy(r->known[r->n++].answer, answer, sizeof r->known->answer);
}

/* Reads a leaf. Gives zeros beyond the largest leaf, where CPUs return the data of another leaf, or
 * none. */
static void ask(reader *r, uint32_t leaf, uint32_t subleaf, uint32_t answer[4]) {
    uint32_t most[4] = {0};
    ask_once(r, leaf & 0x80000000u, 0, most);
    memset(answer, 0, 4 * sizeof *answer);
    if (leaf <= most[EAX]) ask_once(r, leaf, subleaf, answer);
}

static uint64_t saved_registers(reader *r) {
    enum { OSXSAVE = 27 };
    uint32_t answer[4];
    ask(r, 1, 0, answer);
    return answer[ECX] >> OSXSAVE & 1 ? r->cpuid->saved(r->cpuid->context) : 0;
}

/* Reads a subleaf. Gives zeros beyond the largest subleaf, whose number subleaf 0 reports. */
static void ask_subleaf(reader *r, uint32_t leaf, uint32_t subleaf, uint32_t answer[4]) {
    ask(r, leaf, 0, answer);
    if (subleaf == 0) return;
    const bool has = answer[EAX] >= subleaf;
    memset(answer, 0, 4 * sizeof *answer);
    if (has) ask(r, leaf, subleaf, answer);
}

static uint64_t find_features(reader *r) {
    const uint64_t saved = saved_registers(r);
    uint64_t features = 0;
    for (size_t i = 0; i < N_FEATURE_BITS; i++) {
        uint32_t answer[4];
        ask_subleaf(r, feature_bits[i].leaf, feature_bits[i].subleaf, answer);
        const bool usable = (saved & feature_bits[i].saved) == feature_bits[i].saved;
        if (usable && (answer[feature_bits[i].at] >> feature_bits[i].bit & 1))
            features |= feature_bits[i].feature;
    }
    return features;
}

/* ---- caches ---------------------------------------------------------------------------------- */
/* Each subleaf describes a cache, in the same format on Intel and AMD. EAX: type in bits 0 to 4 (0:
 * there are no more), level in 5 to 7; EBX: line, partitions and ways, each less one; ECX: sets
 * less one. */
static hd_machine read_caches(reader *r, uint32_t leaf) {
    enum { NO_MORE = 0, DATA = 1, UNIFIED = 3, MOST = 16 };
    hd_machine m = {0};
    for (uint32_t i = 0; i < MOST; i++) {
        uint32_t a[4];
        ask(r, leaf, i, a);
        const uint32_t type = a[EAX] & 31, level = a[EAX] >> 5 & 7;
        if (type == NO_MORE) break;
        if (type != DATA && type != UNIFIED) continue;
        const uint64_t line = (a[EBX] & 0xfff) + 1, partitions = (a[EBX] >> 12 & 0x3ff) + 1,
                       ways = (a[EBX] >> 22) + 1;
        uint64_t bytes = 0; /* 0, that is unknown, if the product overflows */
        if (__builtin_mul_overflow(line * partitions * ways, (uint64_t)a[ECX] + 1, &bytes))
            continue;
        const uint32_t small = bytes > UINT32_MAX ? 0 : (uint32_t)bytes;
        if (level == 1) m.l1 = small, m.line = (uint32_t)line;
        if (level == 2) m.l2 = small;
        if (level == 3) m.l3 = bytes;
    }
    return hd_machine_sane(m);
}

/* Intel's leaf is 4; AMD's has the same format and exists if topoext (bit 22) is there. */
static hd_machine find_caches(reader *r) {
    enum { INTEL = 4, TOPOEXT = 22 };
    const uint32_t AMD = 0x8000001d;
    hd_machine caches = read_caches(r, INTEL);
    uint32_t extended[4];
    ask(r, 0x80000001, 0, extended);
    if (extended[ECX] >> TOPOEXT & 1) caches = hd_machine_or(caches, read_caches(r, AMD));
    return caches;
}

/* ---- rates ----------------------------------------------------------------------------------- */
/* The rate of bf16 dot products, in percent of the rate of f32 multiply-adds. CPUID reports no such
 * number, but the vendor of the CPU implies it. Hypervisors mask model numbers but not the vendor,
 * since kernels of guests depend on it. 0: the CPU has no such instructions, or its vendor is not
 * known. */
static uint32_t rate_of_dots(reader *r, uint64_t features) {
    static const struct {
        uint32_t first_letters, rate; /* first letters of the vendor's name */
    } makers[] = {{0x756e6547, 100 /* Genu: at best; one takes two steps of a port */},
                  {0x68747541, 200 /* Auth: from Zen 4 on, as fast as a multiply-add */}};
    uint32_t answer[4];
    ask(r, 0, 0, answer);
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++)
        if (features & HRT_CPU_AVX512BF16 && answer[EBX] == makers[i].first_letters)
            return makers[i].rate;
    return 0;
}

/* ---- without CPUID --------------------------------------------------------------------------- */
uint64_t hrt_features_of_arm64(uint64_t hwcap, uint64_t hwcap2) {
    enum { ASIMDDP = 20, BF16 = 14 };
    const uint64_t bytes = hwcap >> ASIMDDP & 1 ? HRT_CPU_DOTPROD : 0;
    return bytes | (hwcap2 >> BF16 & 1 ? HRT_CPU_BF16 : 0);
}

#if defined(__aarch64__)
#include <sys/auxv.h>

static uint64_t system_features(void) {
    return hrt_features_of_arm64(getauxval(AT_HWCAP), getauxval(AT_HWCAP2));
}
#else
static uint64_t system_features(void) {
    return 0;
}
#endif

hrt_machine hrt_detect(const hrt_cpuid *cpuid) {
    if (!cpuid) return (hrt_machine){.features = system_features()};
    reader r = {.cpuid = cpuid};
    hrt_machine m = {.features = find_features(&r)};
    m.facts = find_caches(&r);
    m.facts.bf16_dots = rate_of_dots(&r, m.features);
    return m;
}

/* ---- features that a process must request ---------------------------------------------------- */
uint64_t hrt_permitted(const hrt_cpuid *cpuid, uint64_t features) {
    const uint64_t tiles = HRT_CPU_AMXTILE | HRT_CPU_AMXBF16 | HRT_CPU_AMXINT8;
    if (!(features & tiles) || (cpuid && cpuid->permit(cpuid->context))) return features;
    return features & ~tiles;
}

/* ---- the instruction ------------------------------------------------------------------------- */
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

static void ask_here(const void *context, uint32_t leaf, uint32_t subleaf, uint32_t answer[4]) {
    (void)context;
    __cpuid_count(leaf, subleaf, answer[EAX], answer[EBX], answer[ECX], answer[EDX]);
}

static uint64_t saved_here(const void *context) {
    uint32_t low, high;
    (void)context;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* Linux, Documentation/arch/x86/xstate.rst: a signal frame with tiles is 8 KB larger, so a process
 * gets tiles only if it requests them. Kernels before 5.16 do not know the request; later ones
 * reject it where an alternate signal stack is too small. Requesting again changes nothing. */
static bool permit_here(const void *context) {
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    (void)context;
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

const hrt_cpuid *hrt_cpuid_here(void) {
    static const hrt_cpuid here = {ask_here, saved_here, permit_here, NULL};
    return &here;
}
#else
const hrt_cpuid *hrt_cpuid_here(void) {
    return NULL; /* aarch64: the operating system reports the features of the CPU */
}
#endif
