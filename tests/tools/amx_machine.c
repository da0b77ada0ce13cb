/* A machine whose CPU has the matrix unit and whose system grants it, for generated libraries in
 * tests: linked in front of the runtime's own hrt_cpuid_here, it answers for this machine's CPUID,
 * with the unit beside AVX-512 and the tile instructions emulated. With HADAL_TEST_UNIT=refused the
 * system refuses the unit, with =unsaved it does not save its registers. */
#include <cpuid.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/detect.h"
#include "tests/tools/amx_emulator.h"

enum { EBX = 1, EDX = 3, EXTENDED_FEATURES = 7 };
static const uint32_t avx512f = 1u << 16, unit = 1u << 22 | 1u << 24 | 1u << 25;
static const uint64_t tiles = 0x60000;

static bool unit_is(const char *what) {
    const char *is = getenv("HADAL_TEST_UNIT");
    return is && strcmp(is, what) == 0;
}

static void ask(const void *context, uint32_t leaf, uint32_t subleaf, uint32_t answer[4]) {
    (void)context;
    __cpuid_count(leaf, subleaf, answer[0], answer[1], answer[2], answer[3]);
    if (leaf == EXTENDED_FEATURES && !subleaf && answer[EBX] & avx512f) answer[EDX] |= unit;
}

static uint64_t saved(const void *context) {
    uint32_t low, high;
    (void)context;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    const uint64_t here = ((uint64_t)high << 32 | low) & ~tiles;
    return unit_is("unsaved") ? here : here | tiles;
}

static bool permit(const void *context) {
    (void)context;
    return !unit_is("refused") && amx_emulator_start();
}

const hrt_cpuid *hrt_cpuid_here(void) {
    static const hrt_cpuid here = {ask, saved, permit, NULL};
    return &here;
}
