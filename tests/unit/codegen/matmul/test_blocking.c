/* Sizes of a contraction's blocks (matmul/matrix.h): what they are on levels of the table, and
 * that they fit the caches of any machine; how far ahead streams are asked for
 * (codegen/target/prefetch_distance.h).
 */
#include <criterion/criterion.h>

#include "codegen/matmul/matrix.h"
#include "codegen/target/prefetch_distance.h"

static hcg_level machine(uint32_t l1, uint32_t l2) {
    return (hcg_level){.machine = {.line = 64, .l1 = l1, .l2 = l2, .l3 = 16 << 20}};
}

Test(blocking, of_a_server_core) {
    const hcg_level l = machine(32 << 10, 1 << 20);
    cr_expect_eq(hcg_block_rows(&l, 4 * 1024, 3), 128);
    cr_expect_eq(hcg_block_rows(&l, 4 * 3072, 3), 64);
    cr_expect_eq(hcg_block_rows(&l, 4 * 14336, 3), 32);
    cr_expect_eq(hcg_block_rows(&l, 4 * 1, 1), 128);
    cr_expect_eq(hcg_block_steps(&l, 3), 128);
    cr_expect_eq(hcg_block_steps(&l, 1), 128);
}

/* Long rows: as few as are worth reading panels for, in whole tiles. */
Test(blocking, of_whole_tiles) {
    const hcg_level *level;
    const size_t n = hcg_levels(&level);
    for (size_t i = 0; i < n; i++) {
        const int64_t rows = hcg_block_rows(&level[i], 4 * 16384, 1);
        cr_expect_eq(rows % hcg_tile_of(&level[i])->rows, 0, "%s", level[i].name);
        cr_expect(rows >= 32 && rows < 40, "%s", level[i].name);
    }
}

Test(blocking, larger_caches_hold_more) {
    const hcg_level small = machine(32 << 10, 256 << 10), large = machine(48 << 10, 2 << 20);
    cr_expect_eq(hcg_block_rows(&small, 4 * 1024, 1), 48);
    cr_expect_eq(hcg_block_rows(&large, 4 * 3072, 3), 128);
    cr_expect_eq(hcg_block_rows(&large, 4 * 1024, 16), 36, "the sums of 16 panels stay in the L1");
    cr_expect_eq(hcg_block_steps(&small, 16), 24);
}

/* Blocks fit, or are as small as they may be; no size of a cache makes one empty. */
Test(blocking, of_any_machine) {
    for (uint32_t l1 = 0; l1 <= 128 << 10; l1 += 16 << 10)
        for (uint32_t l2 = 0; l2 <= 4 << 20; l2 += 128 << 10)
            for (int64_t k = 1; k < 40000; k = k * 3 + 1)
                for (int64_t panels = 1; panels <= 32; panels *= 2) {
                    const hcg_level l = machine(l1, l2);
                    const int64_t rows = hcg_block_rows(&l, 4 * k, panels);
                    const int64_t steps = hcg_block_steps(&l, panels);
                    cr_assert(rows >= 32 && rows <= 128);
                    cr_assert(rows == 32 || (rows * k * 4 <= l2 && rows * panels * 64 <= l1));
                    cr_assert(steps >= 16 && steps <= 128);
                    cr_assert(steps == 16 || steps * panels * 64 <= l1);
                }
}

/* On a core that has 4 KB on their way, as the table of levels says of all; on one that has more,
 * and on one whose L1 keeps less. */
Test(ahead, of_a_core) {
    const hcg_level *level;
    const size_t n = hcg_levels(&level);
    for (size_t i = 0; i < n; i++) {
        const hd_machine *m = &level[i].machine;
        cr_expect_eq(hcg_prefetch_distance(m, HCG_PREFETCH_ALONG), 1024, "%s", level[i].name);
        cr_expect_eq(hcg_prefetch_distance(m, HCG_PREFETCH_SLAB), 2048, "%s", level[i].name);
        cr_expect_eq(hcg_prefetch_distance(m, HCG_PREFETCH_PANELS), 4096, "%s", level[i].name);
        cr_expect_eq(hcg_prefetch_distance(m, HCG_PREFETCH_GROUPS), 6144, "%s", level[i].name);
        cr_expect_eq(hcg_prefetch_distance(m, HCG_PREFETCH_CACHED), 8192, "%s", level[i].name);
        cr_expect_eq(hcg_prefetch_distance(m, HCG_PREFETCH_PAGES), 16384, "%s", level[i].name);
    }
}

Test(ahead, by_the_machine) {
    hd_machine m = {.line = 64, .l1 = 32 << 10, .in_flight = 6000};
    cr_expect_eq(hcg_prefetch_distance(&m, HCG_PREFETCH_PANELS), 5952, "whole lines");
    cr_expect_eq(hcg_prefetch_distance(&m, HCG_PREFETCH_CACHED), 8192, "a quarter of the L1");
    cr_expect_eq(hcg_prefetch_distance(&m, HCG_PREFETCH_PAGES), 24000 / 64 * 64, "into the L2");
    m.l1 = 16 << 10;
    cr_expect_eq(hcg_prefetch_distance(&m, HCG_PREFETCH_PANELS), 4096);
    m.line = 256;
    cr_expect_eq(hcg_prefetch_distance(&m, HCG_PREFETCH_SLAB), 2816, "lines of 256 bytes");
}
