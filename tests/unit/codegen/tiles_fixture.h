/* For tests of code for the matrix unit, which is emulated where there is none. */
#ifndef TILES_FIXTURE_H
#define TILES_FIXTURE_H

#include <criterion/criterion.h>
#include <string.h>

#include "tests/unit/codegen/emit_harness.h"

/* The level; the test is skipped where the CPU lacks what tiles do not stand for. */
static inline hcg_level with_tiles(void) {
    hcg_level level;
    if (!level_with_tiles(&level)) cr_skip_test("this CPU has no AVX-512");
    return level;
}

/* At the end: the code under test did use tiles. */
static inline void expect_emulated(const hcg_level *level) {
    if (strcmp(level->name, "emulated") == 0)
        cr_assert_gt(amx_emulator_count(), 0, "nothing was emulated");
}

#endif
