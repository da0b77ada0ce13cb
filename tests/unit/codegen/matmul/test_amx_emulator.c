/* The emulator of tile instructions (tests/tools/amx_emulator.h): against plain numbers; where the
 * machine has the unit, against that, byte for byte, in registers, memory and faults; and as what
 * it is for, a handler of SIGILL in a process that has not asked for tiles. */
#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/codegen/matmul/amx_code.h"

#if defined(__x86_64__)
/* ---- both, side by side ---------------------------------------------------------------------- */
enum { AREA = 64 * 80 + 64 };
static uint8_t unit_area[AREA], own_area[AREA];

static void fill(uint8_t *p, unsigned kind) {
    for (unsigned i = 0; i < AREA; i += 2) {
        uint16_t half = (uint16_t)random_bits();
        if (kind == 1) half = (uint16_t)(0x3f00 + (half & 0x80ff));  /* bf16 near 1 */
        if (kind == 2) half = (uint16_t)(half & 0x80ff);             /* and tiny */
        if (kind == 3 && half % 3) half = (uint16_t)(half & 0xbfff); /* no infinities */
        memcpy(p + i, &half, 2);
    }
}

static void load_both(amx_state *s, unsigned tile, const uint8_t *from) {
    const int64_t stride = 8 * (int64_t)below(11);
    code c = of_memory(below(2) ? PF2 : P66, MEMORY, tile, (void *)(uintptr_t)from, stride, true);
    run(&c);
    cr_assert_eq(emulate(s, &c), AMX_DONE);
}

static bool is_nan(const uint8_t *p) {
    float x;
    memcpy(&x, p, 4);
    return isnan(x);
}

/* Numbers of f32 where the bytes may be other NaNs. */
static void compare_stored(amx_state *s, unsigned tile, bool floats, const char *what) {
    memset(unit_area, 0x5a, AREA), memset(own_area, 0x5a, AREA);
    random_state += 77;
    const uint64_t before = random_state;
    code c = of_memory(PF3, MEMORY, tile, unit_area, 72, true);
    run(&c);
    random_state = before;
    c = of_memory(PF3, MEMORY, tile, own_area, 72, true);
    cr_assert_eq(emulate(s, &c), AMX_DONE);
    for (unsigned i = 0; i < AREA; i += 4)
        if (memcmp(unit_area + i, own_area + i, 4) &&
            !(floats && is_nan(unit_area + i) && is_nan(own_area + i)))
            cr_assert_fail("%s: tile %u, byte %u: %02x%02x%02x%02x, not %02x%02x%02x%02x", what,
                           tile, i, own_area[i + 3], own_area[i + 2], own_area[i + 1], own_area[i],
                           unit_area[i + 3], unit_area[i + 2], unit_area[i + 1], unit_area[i]);
}

Test(amx, is_what_the_unit_does) {
    static uint8_t data[AREA];
    static const struct {
        unsigned prefix, opcode;
        const char *name;
    } products[] = {{PF3, HALVES, "tdpbf16ps"}, {NONE, BYTES, "tdpbuud"},
                    {P66, BYTES, "tdpbusd"},    {PF3, BYTES, "tdpbsud"},
                    {PF2, BYTES, "tdpbssd"},    {PF2, HALVES, "tdpfp16ps"}};
    if (!has_unit()) cr_skip_test("this machine has no matrix unit");
    const unsigned n_products = unit_has_f16() ? 6 : 5;
    amx_state s = {0};
    for (int round = 0; round < 3000; round++) {
        configuration wanted = random_configuration(), stored[2];
        code c = of_memory(NONE, CONFIGURE, 0, &wanted, 0, false);
        run(&c);
        cr_assert_eq(emulate(&s, &c), AMX_DONE);
        for (unsigned t = 0; t < AMX_TILES; t++) {
            fill(data, (unsigned)round % 4);
            load_both(&s, t, data);
        }
        for (unsigned i = 0; i < 2; i++) { /* twice: sums are added to */
            const unsigned which = below(n_products);
            begin(&c);
            of_registers(&c, products[which].prefix, products[which].opcode, 0, 1, 2);
            end(&c);
            run(&c);
            cr_assert_eq(emulate(&s, &c), AMX_DONE);
            compare_stored(&s, 0, products[which].opcode == HALVES, products[which].name);
            load_both(&s, 0, data);
        }
        begin(&c);
        of_registers(&c, PF2, CONFIGURE, 3, 0, 0); /* TILEZERO */
        end(&c);
        run(&c);
        cr_assert_eq(emulate(&s, &c), AMX_DONE);
        for (unsigned t = 0; t < AMX_TILES; t++)
            compare_stored(&s, t, false, "load and store");
        c = of_memory(P66, CONFIGURE, 0, &stored[0], 0, false);
        run(&c);
        c = of_memory(P66, CONFIGURE, 0, &stored[1], 0, false);
        cr_assert_eq(emulate(&s, &c), AMX_DONE);
        cr_assert_eq(memcmp(&stored[0], &stored[1], sizeof *stored), 0);
    }
    code c;
    begin(&c);
    of_registers(&c, NONE, CONFIGURE, 0, 0, 0); /* TILERELEASE */
    end(&c);
    run(&c);
    cr_assert_eq(emulate(&s, &c), AMX_DONE);
    cr_assert_eq(s.palette, 0);
}

/* ---- refused --------------------------------------------------------------------------------- */
/* What the CPU makes of it, in a process of its own. */
static amx_result of_unit(const configuration *first, const code *c) {
    const pid_t child = fork();
    cr_assert(child >= 0);
    if (child == 0) {
        signal(SIGILL, SIG_DFL), signal(SIGSEGV, SIG_DFL);
        if (first) {
            code configure = of_memory(NONE, CONFIGURE, 0, (void *)(uintptr_t)first, 0, false);
            run(&configure);
        }
        run(c);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status)) return AMX_DONE;
    return WTERMSIG(status) == SIGILL ? AMX_UNDEFINED : AMX_FAULT;
}

static amx_result of_emulator(const configuration *first, const code *c) {
    amx_state s = {0};
    if (first) {
        code configure = of_memory(NONE, CONFIGURE, 0, (void *)(uintptr_t)first, 0, false);
        cr_assert_eq(emulate(&s, &configure), AMX_DONE);
    }
    return emulate(&s, c);
}

static void check_rejected(const configuration *first, const code *c, amx_result expected,
                           const char *what) {
    cr_expect_eq(of_emulator(first, c), expected, "%s", what);
    if (has_unit()) cr_expect_eq(of_unit(first, c), expected, "%s, by the unit", what);
}

Test(amx, configurations_that_fault) {
    for (unsigned i = 0; i < 9; i++) {
        configuration c = random_configuration();
        c.palette = i == 0 ? 2 : i == 1 ? 255 : 1;
        if (i == 2) c.line_bytes[3] = 65;
        if (i == 3) c.rows[4] = 17;
        if (i == 4) c.rows[5] = 0;
        if (i == 5) c.line_bytes[6] = 0;
        if (i == 6) c.reserved[below(14)] = 1;
        if (i == 7) c.line_bytes[8] = 4, c.rows[8] = 1;
        if (i == 8) c.rows[15] = 1;
        const code load = of_memory(NONE, CONFIGURE, 0, &c, 0, false);
        char what[32];
        snprintf(what, sizeof what, "configuration %u", i);
        check_rejected(NULL, &load, AMX_FAULT, what);
    }
}

Test(amx, instructions_that_are_undefined) {
    static uint8_t data[AREA];
    configuration whole = {.palette = 1}, short_k;
    for (unsigned t = 0; t < 6; t++) /* 6 and 7 are not there */
        whole.line_bytes[t] = 64, whole.rows[t] = 16;
    short_k = whole, short_k.rows[2] = 15;
    code c;
    static const unsigned same[][3] = {{0, 0, 1}, {0, 1, 0}, {0, 1, 1}, {0, 1, 6}, {7, 0, 1}};
    for (unsigned i = 0; i < sizeof same / sizeof *same; i++) {
        begin(&c);
        of_registers(&c, PF3, HALVES, same[i][0], same[i][1], same[i][2]);
        end(&c);
        check_rejected(&whole, &c, AMX_UNDEFINED, "tiles that are one, or none");
    }
    begin(&c);
    of_registers(&c, PF2, BYTES, 0, 1, 2);
    end(&c);
    check_rejected(&whole, &c, AMX_DONE, "a product");
    check_rejected(&short_k, &c, AMX_UNDEFINED, "sizes that do not fit");
    check_rejected(NULL, &c, AMX_UNDEFINED, "without a configuration");
    c = of_memory(PF2, MEMORY, 6, data, 64, true);
    check_rejected(&whole, &c, AMX_UNDEFINED, "a load of a tile that is not there");
    check_rejected(NULL, &c, AMX_UNDEFINED, "a load without a configuration");
    c = of_memory(PF2, MEMORY, 1, data, 64, true);
    check_rejected(&whole, &c, AMX_DONE, "a load");
    configuration late = whole;
    late.start_row = 15;
    check_rejected(&late, &c, AMX_DONE, "a load of the last row");
    late.start_row = 16;
    check_rejected(&late, &c, AMX_UNDEFINED, "a load from behind the last row on");
    code without_sib;
    do
        without_sib = of_memory(PF2, MEMORY, 1, data, 64, false);
    while ((without_sib.at[without_sib.insn + 4] & 7) == 4); /* by r12, which has one */
    check_rejected(&whole, &without_sib, AMX_UNDEFINED, "a load without SIB");
    for (unsigned cut = 1; cut < 4; cut++) {
        configuration odd = whole;
        odd.line_bytes[1] = (uint16_t)(64 - cut);
        check_rejected(&odd, &c, AMX_UNDEFINED, "a load of lines that are no whole words");
    }
}

/* ---- plain numbers --------------------------------------------------------------------------- */
Test(amx, products_of_halves) {
    const configuration one = {.palette = 1, .line_bytes = {4, 4, 4}, .rows = {1, 1, 1}};
    const uint16_t x[2] = {0x3f80, 0x4000}, w[2] = {0x4040, 0xc0a0}; /* 1, 2; 3, -5 */
    float sum = 0.5f;
    amx_state s = {0};
    code c = of_memory(NONE, CONFIGURE, 0, (void *)(uintptr_t)&one, 0, false);
    cr_assert_eq(emulate(&s, &c), AMX_DONE);
    const void *from[] = {&sum, x, w};
    for (unsigned t = 0; t < 3; t++) {
        c = of_memory(PF2, MEMORY, t, (void *)(uintptr_t)from[t], 0, true);
        cr_assert_eq(emulate(&s, &c), AMX_DONE);
    }
    begin(&c);
    of_registers(&c, PF3, HALVES, 0, 1, 2);
    end(&c);
    cr_assert_eq(emulate(&s, &c), AMX_DONE);
    c = of_memory(PF3, MEMORY, 0, &sum, 0, true);
    cr_assert_eq(emulate(&s, &c), AMX_DONE);
    cr_assert_eq(sum, 0.5f + 3 - 10);
}

/* ---- the handler ----------------------------------------------------------------------------- */
Test(amx, a_process_without_the_unit) {
    static uint8_t from[AREA], to[AREA];
    const configuration whole = {.palette = 1, .line_bytes = {64, 64, 64}, .rows = {16, 16, 16}};
    fill(from, 1);
    cr_assert(amx_emulator_start());
    code c = of_memory(NONE, CONFIGURE, 0, (void *)(uintptr_t)&whole, 0, false);
    run(&c);
    const uint64_t before = amx_emulator_count(); /* 0 where the CPU configures tiles itself */
    cr_assert_leq(before, 1);
    c = of_memory(PF2, MEMORY, 1, from, 64, true);
    run(&c);
    c = of_memory(PF3, MEMORY, 1, to, 80, true);
    run(&c);
    cr_assert_eq(amx_emulator_count(), before + 2, "instructions were not emulated");
    for (unsigned row = 0; row < 16; row++)
        cr_assert_eq(memcmp(from + row * 64, to + row * 80, 64), 0);
}

/* From now on tiles of 16 lines, 1 and 2 full of ones. */
static void take_ones(void) {
    static uint8_t ones[AREA];
    static const configuration whole = {
        .palette = 1, .line_bytes = {64, 64, 64}, .rows = {16, 16, 16}};
    memset(ones, 1, AREA);
    cr_assert(amx_emulator_start());
    code c = of_memory(NONE, CONFIGURE, 0, (void *)(uintptr_t)&whole, 0, false);
    run(&c);
    for (unsigned t = 1; t < 3; t++) {
        c = of_memory(PF2, MEMORY, t, ones, 64, true);
        run(&c);
    }
}

/* Instructions side by side, which one signal may execute: each once, and in their order. */
Test(amx, instructions_behind_one_another) {
    static int32_t sums[16][16];
    take_ones();
    const uint64_t before = amx_emulator_count();
    code c;
    begin(&c);
    of_registers(&c, PF2, BYTES, 0, 1, 2);
    of_registers(&c, PF2, CONFIGURE, 0, 0, 0); /* TILEZERO */
    for (int i = 0; i < 3; i++)
        of_registers(&c, PF2, BYTES, 0, 1, 2);
    end(&c);
    run(&c);
    cr_assert_eq(amx_emulator_count(), before + 5);
    c = of_memory(PF3, MEMORY, 0, sums, 64, true);
    run(&c);
    for (unsigned i = 0; i < 16 * 16; i++)
        cr_assert_eq(sums[i / 16][i % 16], 3 * 64);
}

Test(amx, an_instruction_behind_another_is_rejected, .signal = SIGILL) {
    code c;
    take_ones();
    begin(&c);
    of_registers(&c, PF2, BYTES, 0, 1, 2);
    of_registers(&c, PF2, BYTES, 0, 1, 1); /* tiles that are one */
    end(&c);
    run(&c);
}

Test(amx, what_it_rejects_ends_the_process, .signal = SIGSEGV) {
    const configuration wrong = {.palette = 3};
    cr_assert(amx_emulator_start());
    code c = of_memory(NONE, CONFIGURE, 0, (void *)(uintptr_t)&wrong, 0, false);
    run(&c);
}

Test(amx, other_instructions_are_not_its_business, .signal = SIGILL) {
    cr_assert(amx_emulator_start());
    __asm__ volatile("ud2");
}
#endif
