/* Tile instructions by numbers that the manual gives (Intel 64 SDM vol. 2, the operation of each),
 * worked out by hand or by plain loops: of the emulator on every machine, and of the unit where
 * there is one. Signs of bytes, sums that wrap, the order in which numbers of f32 are added and
 * where they are rounded, configurations, and what is left of a load or store that faults. */
#include "tests/unit/codegen/matmul/amx_code.h"

#if defined(__x86_64__)
#include <math.h>
#include <setjmp.h>
#include <signal.h>

#include "support/tensorfile.h"

/* By the emulator, on state of its own; NULL: by the unit. */
static void execute(amx_state *s, const code *c) {
    if (s)
        cr_assert_eq(emulate(s, c), AMX_DONE);
    else
        run(c);
}

static const char *name_of(const amx_state *s) {
    return s ? "emulator" : "unit";
}

static void on_each(void check(amx_state *s)) {
    static amx_state s;
    check(&s);
    if (has_unit()) check(NULL);
}

static void on_registers(amx_state *s, unsigned prefix, unsigned opcode, unsigned reg, unsigned rm,
                         unsigned vvvv) {
    code c;
    begin(&c);
    of_registers(&c, prefix, opcode, reg, rm, vvvv);
    end(&c);
    execute(s, &c);
}

static void configure(amx_state *s, const configuration *wanted) {
    const code c = of_memory(NONE, CONFIGURE, 0, (void *)(uintptr_t)wanted, 0, false);
    execute(s, &c);
}

static configuration stored_configuration(amx_state *s) {
    configuration is;
    memset(&is, 0x5a, sizeof is);
    const code c = of_memory(P66, CONFIGURE, 0, &is, 0, false);
    execute(s, &c);
    return is;
}

static void load(amx_state *s, unsigned tile, const void *from, int64_t stride) {
    const code c = of_memory(PF2, MEMORY, tile, (void *)(uintptr_t)from, stride, true);
    execute(s, &c);
}

static void store(amx_state *s, unsigned tile, void *to, int64_t stride) {
    const code c = of_memory(PF3, MEMORY, tile, to, stride, true);
    execute(s, &c);
}

/* ---- products -------------------------------------------------------------------------------- */
enum { TILE_C = 5, TILE_A = 7, TILE_B = 2 };

typedef struct operands { /* c[rows][columns] += a[rows][depth] b[depth][columns], of words */
    unsigned rows, columns, depth;
    uint32_t a[16][16], b[16][16], c[16][16];
} operands;

static void multiply(amx_state *s, unsigned prefix, unsigned opcode, operands *o) {
    configuration of = {.palette = 1};
    of.rows[TILE_C] = of.rows[TILE_A] = (uint8_t)o->rows, of.rows[TILE_B] = (uint8_t)o->depth;
    of.line_bytes[TILE_C] = of.line_bytes[TILE_B] = (uint16_t)(4 * o->columns);
    of.line_bytes[TILE_A] = (uint16_t)(4 * o->depth);
    configure(s, &of);
    load(s, TILE_A, o->a, 64), load(s, TILE_B, o->b, 64), load(s, TILE_C, o->c, 64);
    on_registers(s, prefix, opcode, TILE_C, TILE_A, TILE_B);
    store(s, TILE_C, o->c, 64);
}

static operands random_sizes(void) {
    return (operands){.rows = 1 + below(16), .columns = 1 + below(16), .depth = 1 + below(16)};
}

/* ---- products of bytes ----------------------------------------------------------------------- */
static const struct {
    unsigned prefix;
    bool a_signed, b_signed;
    const char *name;
} of_bytes[] = {{NONE, false, false, "tdpbuud"},
                {P66, false, true, "tdpbusd"},
                {PF3, true, false, "tdpbsud"},
                {PF2, true, true, "tdpbssd"}};

/* One pair of bytes, in the order of of_bytes. */
static const struct {
    uint8_t a, b;
    int32_t product[4];
} pairs[] = {
    {0x80, 0x80, {16384, -16384, -16384, 16384}}, {0x80, 0xff, {32640, -128, -32640, 128}},
    {0xff, 0x80, {32640, -32640, -128, 128}},     {0xff, 0xff, {65025, -255, -255, 1}},
    {0x7f, 0xff, {32385, -127, 32385, -127}},     {0xff, 0x7f, {32385, 32385, -127, -127}},
    {0x7f, 0x80, {16256, -16256, 16256, -16256}}, {0x80, 0x7f, {16256, 16256, -16256, -16256}},
    {0x7f, 0x7f, {16129, 16129, 16129, 16129}},   {0x01, 0x80, {128, -128, 128, -128}},
    {0x80, 0x01, {128, 128, -128, -128}},         {0x00, 0xff, {0, 0, 0, 0}},
};

/* In each of the four bytes alone, and in all of 16 words, which is 64 times as much. */
static void check_signs(amx_state *s) {
    for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++)
        for (unsigned i = 0; i < 4; i++) {
            const uint32_t a = pairs[p].a, b = pairs[p].b, all = 0x01010101;
            for (unsigned byte_at = 0; byte_at < 4; byte_at++) {
                operands o = {.rows = 1, .columns = 1, .depth = 1};
                o.a[0][0] = a << 8 * byte_at, o.b[0][0] = b << 8 * byte_at, o.c[0][0] = 1000;
                multiply(s, of_bytes[i].prefix, BYTES, &o);
                cr_expect_eq((int32_t)o.c[0][0], 1000 + pairs[p].product[i], "%s, %s: %x, %x",
                             name_of(s), of_bytes[i].name, a, b);
                o.b[0][0] = b << 8 * ((byte_at + 1) % 4);
                multiply(s, of_bytes[i].prefix, BYTES, &o);
                cr_expect_eq((int32_t)o.c[0][0], 1000 + pairs[p].product[i],
                             "%s, %s: bytes of other places", name_of(s), of_bytes[i].name);
            }
            operands o = {.rows = 1, .columns = 1, .depth = 16};
            for (unsigned k = 0; k < 16; k++)
                o.a[0][k] = a * all, o.b[k][0] = b * all;
            multiply(s, of_bytes[i].prefix, BYTES, &o);
            cr_expect_eq((int32_t)o.c[0][0], 64 * pairs[p].product[i], "%s, %s: 64 times %x, %x",
                         name_of(s), of_bytes[i].name, a, b);
        }
}

Test(amx_numbers, signs_of_bytes) {
    on_each(check_signs);
}

/* Sums wrap around; nothing saturates, neither a sum of four products nor one with what was there.
 */
static void check_wraps(amx_state *s) {
    static const struct {
        unsigned of; /* of_bytes */
        uint32_t c, a, b, expected;
    } sums[] = {
        {3, 0x7fffffff, 0x01, 0x01, 0x80000000},
        {3, 0x80000000, 0xff, 0x01, 0x7fffffff},
        {1, 0x80000000, 0x01, 0xff, 0x7fffffff},
        {2, 0x80000000, 0xff, 0x01, 0x7fffffff},
        {0, 0xffffffff, 0x01, 0x01, 0x00000000},
        {0, 0x7fffffff, 0x01, 0x01, 0x80000000},
        {0, 0xfffffff0, 0xffffffff, 0xffffffff, 0x0003f7f4}, /* 4 * 255^2 - 16 */
        {1, 0x80000000, 0xffffffff, 0x80808080, 0x7ffe0200}, /* 4 * 255 * -128 less */
        {3, 0x7fffffff, 0x80808080, 0x80808080, 0x8000ffff}, /* 4 * 128^2 more */
    };
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
        operands o = {.rows = 1, .columns = 1, .depth = 1};
        o.a[0][0] = sums[i].a, o.b[0][0] = sums[i].b, o.c[0][0] = sums[i].c;
        multiply(s, of_bytes[sums[i].of].prefix, BYTES, &o);
        cr_expect_eq(o.c[0][0], sums[i].expected, "%s, %s, %zu: %08x, not %08x", name_of(s),
                     of_bytes[sums[i].of].name, i, o.c[0][0], sums[i].expected);
    }
}

Test(amx_numbers, sums_of_bytes_wrap) {
    on_each(check_wraps);
}

static int64_t byte_of(uint32_t word, unsigned at, bool is_signed) {
    const int64_t x = word >> 8 * at & 255;
    return is_signed && x > 127 ? x - 256 : x;
}

static uint32_t sum_of_bytes(const operands *o, unsigned row, unsigned n, bool a_signed,
                             bool b_signed) {
    int64_t sum = o->c[row][n];
    for (unsigned k = 0; k < o->depth; k++)
        for (unsigned i = 0; i < 4; i++)
            sum += byte_of(o->a[row][k], i, a_signed) * byte_of(o->b[k][n], i, b_signed);
    return (uint32_t)(uint64_t)sum;
}

/* Every place of tiles of any size. */
static void check_places_of_bytes(amx_state *s) {
    for (int round = 0; round < 200; round++) {
        operands o = random_sizes();
        for (unsigned i = 0; i < 16 * 16; i++) {
            o.a[i / 16][i % 16] = (uint32_t)random_bits();
            o.b[i / 16][i % 16] = (uint32_t)random_bits();
            o.c[i / 16][i % 16] = (uint32_t)random_bits();
        }
        const unsigned of = (unsigned)round % 4;
        operands is = o;
        multiply(s, of_bytes[of].prefix, BYTES, &is);
        for (unsigned row = 0; row < 16; row++)
            for (unsigned n = 0; n < 16; n++) {
                const bool within = row < o.rows && n < o.columns;
                const uint32_t expected =
                    within ? sum_of_bytes(&o, row, n, of_bytes[of].a_signed, of_bytes[of].b_signed)
                           : o.c[row][n]; /* nothing is stored */
                cr_assert_eq(is.c[row][n], expected, "%s, %s: %u x %u x %u, [%u, %u]", name_of(s),
                             of_bytes[of].name, o.rows, o.columns, o.depth, row, n);
            }
    }
}

Test(amx_numbers, places_of_bytes) {
    on_each(check_places_of_bytes);
}

/* ---- products of halves ---------------------------------------------------------------------- */
enum { OF_BF16 = PF3, OF_F16 = PF2, MOST_DEPTH = 4 };
#define TINY 0x1p-126f       /* the smallest number that is none of the denormal ones, */
#define MOST 0x1.fffffep127f /* and the largest */

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

/* x must be a bf16, or an f16, denormal ones included. */
static uint32_t half_of(unsigned type, float x) {
    if (type == OF_F16) {
        const uint16_t half = hd_f16_from_f64((double)x);
        cr_assert(isnan(x) || hd_f16_to_f32(half) == x, "%g is no f16", (double)x);
        return half;
    }
    cr_assert_eq(bits_of(x) & 0xffff, 0, "%a is no bf16", (double)x);
    return bits_of(x) >> 16;
}

typedef struct sum_of_halves {
    const char *what;
    float c, expected; /* what is added to, and the sum */
    struct {
        float x, w;
    } even[MOST_DEPTH], odd[MOST_DEPTH]; /* of the pairs along K */
} sum_of_halves;

static void check_sum(amx_state *s, unsigned type, const sum_of_halves *t) {
    operands o = {.rows = 1, .columns = 1, .depth = MOST_DEPTH};
    for (unsigned k = 0; k < MOST_DEPTH; k++) {
        o.a[0][k] = half_of(type, t->even[k].x) | half_of(type, t->odd[k].x) << 16;
        o.b[k][0] = half_of(type, t->even[k].w) | half_of(type, t->odd[k].w) << 16;
    }
    o.c[0][0] = bits_of(t->c);
    multiply(s, type, HALVES, &o);
    const float is = float_of(o.c[0][0]);
    cr_expect(isnan(t->expected) ? isnan(is) : o.c[0][0] == bits_of(t->expected),
              "%s, %s: %s: %a, not %a", name_of(s), type == OF_F16 ? "f16" : "bf16", t->what,
              (double)is, (double)t->expected);
}

/* Products of even and of odd places are added up in a chain each, both chains, and then what was
 * there; each step rounds to nearest, of two to the even one. */
#define LAST  0x1p-23f /* last bit of 1 */
#define SMALL 0x1p-12f /* whose square is half of that */
static const sum_of_halves order[] = {
    {"1 first in a chain", 0, 1, {{1, 1}, {SMALL, SMALL}, {SMALL, SMALL}}, {{0, 0}}},
    {"1 last in a chain", 0, 1 + LAST, {{SMALL, SMALL}, {SMALL, SMALL}, {1, 1}}, {{0, 0}}},
    {"the odd places are a chain", 0, 1 + LAST, {{1, 1}}, {{SMALL, SMALL}, {SMALL, SMALL}}},
    {"the even places are a chain", 0, 1 + LAST, {{SMALL, SMALL}, {SMALL, SMALL}}, {{1, 1}}},
    {"what was there comes last", 1, 1 + LAST, {{SMALL, SMALL}}, {{SMALL, SMALL}}},
    {"both chains come first", 0x1p-24f, 1, {{1, 1}}, {{SMALL, SMALL}}},
    {"of two the even one, upwards",
     0,
     1 + 0x1p-22f,
     {{1, 1}, {SMALL, 0x1p-11f}, {SMALL, SMALL}},
     {{0, 0}}},
    {"of two the even one, below 0", 0, -1, {{-1, 1}, {-SMALL, SMALL}}, {{0, 0}}},
    {"of two the even one, upwards below 0",
     0,
     -1 - 0x1p-22f,
     {{-1, 1}, {-SMALL, 0x1p-11f}, {SMALL, -SMALL}},
     {{0, 0}}},
    {"more than half", 0, 1 + LAST, {{1, 1}, {SMALL, 0x1.02p-12f}}, {{0, 0}}},
    {"less than half", 0, 1, {{1, 1}, {SMALL, 0x1.fcp-13f}}, {{0, 0}}},
    {"the sum with what was there rounds", 1 + LAST, 1 + 0x1p-22f, {{SMALL, SMALL}}, {{0, 0}}},
    {"the sum of chains rounds", -1, 0, {{1, 1}}, {{SMALL, SMALL}}},
};

/* Numbers below 2^-126 are zeros, of their sign, on the way in and out; a product is not rounded
 * before it is added. */
static const sum_of_halves range_of_bf16[] = {
    {"a product is exact", 0, 1 + 0x1p-6f + 0x1p-14f, {{1 + 0x1p-7f, 1 + 0x1p-7f}}, {{0, 0}}},
    {"a product beyond f32 within a sum", 0, 0x1p127f, {{-0x1p127f, 1}, {0x1p127f, 2}}, {{0, 0}}},
    {"a product below 2^-126 within a sum", 0, 1.5f * TINY, {{TINY, 1}, {TINY, 0.5f}}, {{0, 0}}},
    {"x below 2^-126", 0, 0, {{TINY / 2, 0x1p100f}}, {{0, 0}}},
    {"w below 2^-126", 0, 0, {{0x1p100f, -TINY / 64}}, {{0, 0}}},
    {"the largest x below 2^-126", 0, 0, {{0x1.fcp-127f, 0x1p100f}}, {{0, 0}}},
    {"x of 2^-126", 0, 0x1p-26f, {{TINY, 0x1p100f}}, {{0, 0}}},
    {"what was there below 2^-126", TINY / 2, TINY, {{TINY, 1}}, {{0, 0}}},
    {"a chain below 2^-126", 0, 0, {{0x1p-64f, 0x1p-63f}, {0x1p-64f, 0x1p-63f}}, {{0, 0}}},
    {"the sum of chains below 2^-126", TINY, TINY, {{1.5f * TINY, 1}}, {{TINY, -1}}},
    {"a sum below 2^-126", -TINY, 0, {{1.5f * TINY, 1}}, {{0, 0}}},
    {"a sum below 2^-126 and 0", TINY, -0.0f, {{1.5f * TINY, -1}}, {{0, 0}}},
    /* as with vectors: a sum is below 2^-126 if it is so before the exponent limits its bits */
    {"2^-126 less half of its last bit", 0, 0, {{TINY, 1}, {0x1p-75f, -0x1p-75f}}, {{0, 0}}},
    {"2^-126 less a quarter of that", 0, TINY, {{TINY, 1}, {0x1p-76f, -0x1p-75f}}, {{0, 0}}},
    {"zeros below 0", -0.0f, 0, {{-1, 0}}, {{-1, 0}}},
    {"beyond f32 by half of the last bit", MOST, INFINITY, {{0x1p52f, 0x1p51f}}, {{0, 0}}},
    {"by less", MOST, MOST, {{0x1p51f, 0x1p51f}}, {{0, 0}}},
    {"an infinity", 1, INFINITY, {{INFINITY, 1}}, {{-0x1p127f, 1}}},
    {"an infinity below 0", 1, -INFINITY, {{1, 1}}, {{INFINITY, -1}}},
    {"an infinity times 0", 0, NAN, {{INFINITY, 0}}, {{0, 0}}},
    {"an infinity times less than 2^-126", 0, NAN, {{INFINITY, TINY / 2}}, {{0, 0}}},
    {"infinities of both signs", 0, NAN, {{INFINITY, 1}}, {{INFINITY, -1}}},
    {"an infinity less what was there", INFINITY, NAN, {{-INFINITY, 1}}, {{0, 0}}},
    {"NaN", 0, NAN, {{1, 1}, {NAN, 0}}, {{0, 0}}},
    {"NaN that was there", NAN, NAN, {{1, 1}}, {{0, 0}}},
};

/* Of f16 the denormal ones are numbers; f32 is as above. */
static const sum_of_halves range_of_f16[] = {
    {"the smallest numbers", 0, 0x1p-48f, {{0x1p-24f, 0x1p-24f}}, {{0, 0}}},
    {"the largest below 2^-14", 0, 0x1.ff401p+1f, {{0, 0}}, {{1023 * 0x1p-24f, 65504}}},
    {"the largest numbers", 0, -4290774016.0f, {{65504, -65504}}, {{0, 0}}},
    {"a product is exact", 0, 1 + 0x1p-9f + 0x1p-20f, {{1 + 0x1p-10f, 1 + 0x1p-10f}}, {{0, 0}}},
    {"what was there below 2^-126", TINY / 2, 0, {{0, 0}}, {{0, 0}}},
    {"what was there below 2^-126 and 0", -0x1.8p-127f, 0, {{0, 0}}, {{-0.0f, 1}}},
    {"an infinity below 0", 1, -INFINITY, {{1, 1}}, {{INFINITY, -0x1p-24f}}},
    {"an infinity times 0", 0, NAN, {{-INFINITY, 0}}, {{0, 0}}},
    {"NaN", 0, NAN, {{0, 0}}, {{NAN, 1}}},
};

static void check_sums(amx_state *s, unsigned type, const sum_of_halves *sums, size_t n) {
    for (size_t i = 0; i < n; i++)
        check_sum(s, type, &sums[i]);
}

static void check_bf16(amx_state *s) {
    check_sums(s, OF_BF16, order, sizeof order / sizeof *order);
    check_sums(s, OF_BF16, range_of_bf16, sizeof range_of_bf16 / sizeof *range_of_bf16);
}

static void check_f16(amx_state *s) {
    if (!s && !unit_has_f16()) return;
    check_sums(s, OF_F16, order, sizeof order / sizeof *order);
    check_sums(s, OF_F16, range_of_f16, sizeof range_of_f16 / sizeof *range_of_f16);
}

Test(amx_numbers, sums_of_bf16) {
    on_each(check_bf16);
}

Test(amx_numbers, sums_of_f16) {
    on_each(check_f16);
}

/* Every place of tiles of any size. With exponents this close together all sums are exact in f64,
 * which rounds them to f32 once. */
static float chain_of(const operands *o, unsigned type, unsigned row, unsigned n, unsigned at) {
    float sum = 0;
    for (unsigned k = 0; k < o->depth; k++) {
        const uint16_t x = (uint16_t)(o->a[row][k] >> 16 * at),
                       w = (uint16_t)(o->b[k][n] >> 16 * at);
        const float fx = type == OF_F16 ? hd_f16_to_f32(x) : hd_bf16_to_f32(x);
        const float fw = type == OF_F16 ? hd_f16_to_f32(w) : hd_bf16_to_f32(w);
        sum = (float)((double)sum + (double)fx * (double)fw);
    }
    return sum;
}

static uint32_t random_halves(unsigned type) { /* of 1/8 to 8 */
    uint32_t word = 0;
    for (unsigned i = 0; i < 2; i++) {
        const uint32_t bits = (uint32_t)random_bits(), sign = bits >> 15 & 1;
        const uint32_t exponent = (type == OF_F16 ? 12 : 124) + below(6);
        const uint32_t half =
            type == OF_F16 ? exponent << 10 | (bits & 1023) : exponent << 7 | (bits & 127);
        word |= (half | sign << 15) << 16 * i;
    }
    return word;
}

static void check_places(amx_state *s, unsigned type) {
    for (int round = 0; round < 100; round++) {
        operands o = random_sizes();
        for (unsigned i = 0; i < 16 * 16; i++) {
            o.a[i / 16][i % 16] = random_halves(type), o.b[i / 16][i % 16] = random_halves(type);
            o.c[i / 16][i % 16] = bits_of((float)below(1000) / 7);
        }
        operands is = o;
        multiply(s, type, HALVES, &is);
        for (unsigned row = 0; row < o.rows; row++)
            for (unsigned n = 0; n < o.columns; n++) {
                const float both = chain_of(&o, type, row, n, 0) + chain_of(&o, type, row, n, 1);
                const float expected = float_of(o.c[row][n]) + both;
                cr_assert_eq(is.c[row][n], bits_of(expected), "%s, %s: %u x %u x %u, [%u, %u]",
                             name_of(s), type == OF_F16 ? "f16" : "bf16", o.rows, o.columns,
                             o.depth, row, n);
            }
    }
}

static void check_places_of_halves(amx_state *s) {
    check_places(s, OF_BF16);
    if (s || unit_has_f16()) check_places(s, OF_F16);
}

Test(amx_numbers, places_of_halves) {
    on_each(check_places_of_halves);
}

/* What the program has in MXCSR means nothing to tiles, and stays: rounding towards zero, denormal
 * numbers, no flag; and rounding up with both kept from being numbers. */
static void check_control(amx_state *s) {
    static const uint32_t controls[] = {0x7f80, 0xdfc0};
    for (unsigned i = 0; i < 2; i++) {
        uint32_t before, after;
        __asm__ volatile("stmxcsr %0\n\tldmxcsr %1" : "=m"(before) : "m"(controls[i]));
        operands o = {.rows = 1, .columns = 1, .depth = 3},
                 small = {1, 1, 1, {{0, 0}}, {{0}}, {{0, 0}}};
        o.a[0][0] = 0x3f80, o.b[0][0] = 0x3f80; /* 1, */
        o.a[0][1] = 0x3980, o.b[1][0] = 0x3a00; /* 2^-23 */
        o.a[0][2] = 0x3980, o.b[2][0] = 0x3980; /* and 2^-24: 1 + 2^-22 */
        multiply(s, OF_BF16, HALVES, &o);
        small.a[0][0] = 0x1f80, small.b[0][0] = 0x2000; /* 2^-127 */
        multiply(s, OF_BF16, HALVES, &small);
        __asm__ volatile("stmxcsr %0\n\tldmxcsr %1" : "=m"(after) : "m"(before));
        cr_expect_eq(o.c[0][0], bits_of(1 + 0x1p-22f), "%s: %08x", name_of(s), o.c[0][0]);
        cr_expect_eq(small.c[0][0], 0, "%s: %08x", name_of(s), small.c[0][0]);
        cr_expect_eq(after, controls[i], "%s: %04x, not %04x", name_of(s), after, controls[i]);
    }
}

Test(amx_numbers, control_of_vectors) {
    on_each(check_control);
}

/* ---- configurations -------------------------------------------------------------------------- */
static void expect_configuration(amx_state *s, const configuration *expected, const char *what) {
    const configuration is = stored_configuration(s);
    cr_expect_eq(memcmp(&is, expected, sizeof is), 0, "%s: %s", name_of(s), what);
}

static const configuration none;

static configuration of_whole_tiles(unsigned start_row) {
    configuration c = {.palette = 1, .start_row = (uint8_t)start_row};
    for (unsigned t = 0; t < AMX_TILES; t++)
        c.line_bytes[t] = 64, c.rows[t] = 16;
    return c;
}

static void check_stored_configuration(amx_state *s) {
    on_registers(s, NONE, CONFIGURE, 0, 0, 0); /* TILERELEASE */
    expect_configuration(s, &none, "none");
    for (unsigned start_row = 0; start_row < 16; start_row += 5) {
        configuration c = random_configuration();
        c.start_row = (uint8_t)start_row, c.line_bytes[4] = 0, c.rows[4] = 0;
        configure(s, &c);
        expect_configuration(s, &c, "what was loaded");
    }
    configure(s, &none);
    expect_configuration(s, &none, "palette 0");
    configuration c = random_configuration();
    configure(s, &c);
    on_registers(s, NONE, CONFIGURE, 0, 0, 0);
    expect_configuration(s, &none, "after TILERELEASE");
}

Test(amx_numbers, configurations_that_are_stored) {
    on_each(check_stored_configuration);
}

typedef uint8_t lines[16][64];

static void fill(lines x) {
    for (unsigned i = 0; i < 16 * 64; i++)
        x[i / 64][i % 64] = (uint8_t)(1 + below(255));
}

static bool are_zeros(const void *p, size_t n) {
    const uint8_t *x = p;
    for (size_t i = 0; i < n; i++)
        if (x[i]) return false;
    return true;
}

static void expect_tile(amx_state *s, unsigned tile, const lines expected, const char *what) {
    lines is;
    store(s, tile, is, 64);
    for (unsigned row = 0; row < 16; row++)
        cr_expect_eq(memcmp(is[row], expected[row], 64), 0, "%s: %s, row %u", name_of(s), what,
                     row);
}

/* TILEZERO of one tile; a configuration, also the same again, of all. */
static void check_zeros(amx_state *s) {
    static const lines zeros;
    const configuration whole = of_whole_tiles(0);
    lines data[AMX_TILES];
    configure(s, &whole);
    for (unsigned t = 0; t < AMX_TILES; t++)
        fill(data[t]), load(s, t, data[t], 64);
    on_registers(s, PF2, CONFIGURE, 6, 0, 0);
    for (unsigned t = 0; t < AMX_TILES; t++)
        expect_tile(s, t, t == 6 ? zeros : data[t], "TILEZERO of tile 6");
    configure(s, &whole);
    for (unsigned t = 0; t < AMX_TILES; t++)
        expect_tile(s, t, zeros, "LDTILECFG");
}

Test(amx_numbers, tiles_that_become_zeros) {
    on_each(check_zeros);
}

/* A configuration that is refused changes nothing. */
Test(amx_numbers, rejected_configurations) {
    static amx_state s;
    const configuration whole = of_whole_tiles(0);
    lines data;
    configure(&s, &whole), fill(data), load(&s, 3, data, 64);
    configuration wrong = whole;
    wrong.rows[7] = 17;
    const code c = of_memory(NONE, CONFIGURE, 0, &wrong, 0, false);
    cr_assert_eq(emulate(&s, &c), AMX_FAULT);
    expect_configuration(&s, &whole, "after another that is refused");
    expect_tile(&s, 3, data, "after a configuration that is refused");
}

/* ---- memory ---------------------------------------------------------------------------------- */
/* Any registers, sizes and strides, below 0 too; T1 and not. */
static void check_addresses(amx_state *s) {
    static uint8_t memory[16 * 256];
    for (unsigned i = 0; i < sizeof memory; i++)
        memory[i] = (uint8_t)random_bits();
    for (int round = 0; round < 200; round++) {
        const configuration sizes = random_configuration();
        const int64_t stride = 8 * ((int64_t)below(61) - 30);
        const unsigned t = below(AMX_TILES), rows = sizes.rows[t], n = sizes.line_bytes[t];
        uint8_t *from = stride < 0 ? memory + sizeof memory - 64 : memory;
        const code c = of_memory(round % 2 ? PF2 : P66, MEMORY, t, from, stride, true);
        lines is;
        configure(s, &sizes);
        execute(s, &c);
        memset(is, 0x5a, sizeof is);
        store(s, t, is, 64);
        for (unsigned row = 0; row < 16; row++)
            for (unsigned i = 0; i < 64; i++)
                cr_assert_eq(is[row][i],
                             row < rows && i < n ? from[row * stride + (int64_t)i] : 0x5a,
                             "%s: stride %d, row %u, byte %u", name_of(s), (int)stride, row, i);
    }
}

Test(amx_numbers, addresses) {
    on_each(check_addresses);
}

/* Without an index register lines are 0 apart: [rbx], with and without r12's bit, which is an index
 * of its own. */
static void check_no_stride(amx_state *s) {
    const configuration whole = of_whole_tiles(0);
    lines data, expected;
    configure(s, &whole), fill(data);
    for (unsigned with_r12 = 0; with_r12 < 2; with_r12++) {
        code c;
        begin(&c);
        set(&c, 3, (uint64_t)(uintptr_t)data), set(&c, 12, 64);
        vex(&c, 1, with_r12 ? 12 : 0, 3, 0, PF2, MEMORY);
        byte(&c, 1 << 3 | 4), byte(&c, 4 << 3 | 3);
        end(&c);
        execute(s, &c);
        for (unsigned row = 0; row < 16; row++)
            memcpy(expected[row], data[with_r12 ? row : 0], 64);
        expect_tile(s, 1, expected, with_r12 ? "64 apart" : "0 apart");
    }
}

Test(amx_numbers, lines_that_are_one) {
    on_each(check_no_stride);
}

/* start_row of a configuration: lines before it are not touched, and then it is 0 again. */
static void check_start_row(amx_state *s) {
    static const lines zeros;
    const configuration whole = of_whole_tiles(0), later = of_whole_tiles(5);
    lines data, expected = {{0}}, to;
    fill(data);
    memcpy(expected[5], data[5], 11 * 64);
    configure(s, &later);
    load(s, 2, data, 64);
    expect_configuration(s, &whole, "after a load");
    expect_tile(s, 2, expected, "a load from row 5 on");

    configure(s, &later);
    memset(to, 0x5a, sizeof to);
    store(s, 2, to, 64);
    expect_configuration(s, &whole, "after a store");
    cr_expect(to[0][0] == 0x5a && memcmp(to[0], to[0] + 1, 5 * 64 - 1) == 0, "%s: rows before 5",
              name_of(s));
    cr_expect(are_zeros(to[5], 11 * 64), "%s: rows from 5 on", name_of(s));

    configure(s, &later);
    on_registers(s, PF2, CONFIGURE, 1, 0, 0); /* TILEZERO */
    expect_configuration(s, &whole, "after TILEZERO");
    configure(s, &later);
    on_registers(s, PF2, BYTES, 0, 1, 2);
    expect_configuration(s, &whole, "after a product");
    expect_tile(s, 0, zeros, "a product of zeros");
}

Test(amx_numbers, start_row) {
    on_each(check_start_row);
}

/* ---- faults ---------------------------------------------------------------------------------- */
enum { PAGE = 4096, ROW = 5 /* of which some is in a page that may not be touched */ };
static uint8_t *pages;
static sigjmp_buf before_fault;

static void leave(int number) {
    (void)number;
    siglongjmp(before_fault, 1);
}

static void let(int number) {
    (void)number;
    mprotect(pages + PAGE, PAGE, PROT_READ | PROT_WRITE);
}

/* Two pages of 1 to 255, the second as `protection` says; a fault calls f. */
static void take_pages(int protection, void f(int)) {
    pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert(pages != MAP_FAILED);
    for (unsigned i = 0; i < 2 * PAGE; i++)
        pages[i] = (uint8_t)(1 + i % 255);
    cr_assert_eq(mprotect(pages + PAGE, PAGE, protection), 0);
    struct sigaction action = {.sa_handler = f};
    cr_assert_eq(sigaction(SIGSEGV, &action, NULL), 0);
}

/* Begins so that the second page begins in row ROW, `behind` bytes behind its beginning. */
static uint8_t *with_fault(unsigned behind) {
    return pages + PAGE - ROW * 64 - behind;
}

static bool faults(amx_state *s, const code *c) {
    if (sigsetjmp(before_fault, 1)) return true;
    execute(s, c);
    return false;
}

/* Rows before the one that faults are there, of that one nothing is, though a part of it could be;
 * start_row is where the same instruction goes on. */
static void check_load_that_faults(unsigned behind) {
    static amx_state s;
    const configuration whole = of_whole_tiles(0), stopped = of_whole_tiles(ROW);
    lines old, expected = {{0}};
    take_pages(PROT_NONE, leave), fill(old);
    configure(&s, &whole), load(&s, 4, old, 64);
    uint8_t *from = with_fault(behind);
    memcpy(expected, from, ROW * 64);
    const code c = of_memory(PF2, MEMORY, 4, from, 64, true);
    cr_assert(faults(&s, &c));
    expect_configuration(&s, &stopped, "a load that has faulted");
    cr_expect_eq(memcmp(s.tile[4], expected, sizeof expected), 0, "%u bytes behind", behind);

    let(0);
    memset(from, 0, 64); /* has been read */
    memcpy(expected[ROW], from + ROW * 64, (16 - ROW) * 64);
    cr_assert_not(faults(&s, &c));
    expect_configuration(&s, &whole, "a load that has gone on");
    expect_tile(&s, 4, expected, "a load that has gone on");
}

Test(amx_numbers, loads_that_fault) {
    check_load_that_faults(0);
    check_load_that_faults(36);
}

static void check_store_that_faults(unsigned behind, int protection) {
    static amx_state s;
    const configuration whole = of_whole_tiles(0), stopped = of_whole_tiles(ROW);
    lines data;
    uint8_t untouched[64];
    take_pages(protection, leave), fill(data);
    configure(&s, &whole), load(&s, 4, data, 64);
    uint8_t *to = with_fault(behind);
    memcpy(untouched, to + ROW * 64, behind);
    const code c = of_memory(PF3, MEMORY, 4, to, 64, true);
    cr_assert(faults(&s, &c));
    expect_configuration(&s, &stopped, "a store that has faulted");
    cr_expect_eq(memcmp(to, data, ROW * 64), 0, "rows before the fault");
    cr_expect_eq(memcmp(to + ROW * 64, untouched, behind), 0, "of the row that faults");

    let(0);
    memset(to, 0x5a, 64); /* has been written */
    cr_assert_not(faults(&s, &c));
    expect_configuration(&s, &whole, "a store that has gone on");
    cr_expect_eq(memcmp(to + 64, data[1], 15 * 64), 0, "all rows but the first");
    cr_expect(to[0] == 0x5a && to[63] == 0x5a, "the first row");
}

Test(amx_numbers, stores_that_fault) {
    check_store_that_faults(0, PROT_NONE);
    check_store_that_faults(36, PROT_NONE);
    check_store_that_faults(36, PROT_READ);
}

/* In a program: SIGSEGV as the instruction raises it, of its address; the handler brings the page,
 * and the program sees nothing of it. */
static void check_page_that_comes(void) {
    const configuration whole = of_whole_tiles(0);
    lines expected;
    take_pages(PROT_NONE, let);
    configure(NULL, &whole);
    load(NULL, 4, with_fault(36), 64);
    memcpy(expected, with_fault(36), sizeof expected);
    expect_tile(NULL, 4, expected, "a load from a page that comes");
    cr_assert_eq(mprotect(pages + PAGE, PAGE, PROT_NONE), 0);
    memset(with_fault(36), 0, ROW * 64 + 36);
    store(NULL, 4, with_fault(36), 64);
    cr_expect_eq(memcmp(with_fault(36), expected, sizeof expected), 0, "a store to such a page");
}

Test(amx_numbers, a_page_that_comes_emulated) {
    cr_assert(amx_emulator_start());
    check_page_that_comes();
    cr_expect_gt(amx_emulator_count(), 0, "nothing was emulated");
}

Test(amx_numbers, a_page_that_comes) {
    if (!has_unit()) cr_skip_test("this machine has no matrix unit");
    check_page_that_comes();
}

Test(amx_numbers, a_page_that_does_not_come, .signal = SIGSEGV) {
    const configuration whole = of_whole_tiles(0);
    cr_assert(amx_emulator_start());
    take_pages(PROT_NONE, SIG_DFL);
    configure(NULL, &whole);
    load(NULL, 4, with_fault(0), 64);
}
#endif
