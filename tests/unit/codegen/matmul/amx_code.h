/* For tests of tile instructions: instructions in machine code, run by the CPU or by the emulator
 * (tests/tools/amx_emulator.h), and configurations of tiles. */
#ifndef AMX_CODE_H
#define AMX_CODE_H

#if defined(__x86_64__)
#include <cpuid.h>
#include <criterion/criterion.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/detect.h"
#include "runtime/hadal_rt.h"
#include "tests/tools/amx_emulator.h"

enum { NONE, P66, PF3, PF2 }; /* prefixes, as VEX has them */
enum { CONFIGURE = 0x49, MEMORY = 0x4b, HALVES = 0x5c, BYTES = 0x5e };
enum { RSP = 4, RBP = 5 };

static uint64_t random_state = 1;
static inline uint64_t random_bits(void) {
    random_state ^= random_state >> 12, random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return random_state * 2685821657736338717u;
}
static inline unsigned below(unsigned n) {
    return (unsigned)((random_bits() >> 33) % n);
}

/* ---- encoding -------------------------------------------------------------------------------- */
typedef struct code {
    uint8_t at[128];
    unsigned n;
    unsigned insn; /* where the instruction begins */
    uint64_t registers[16];
} code;

static inline void byte(code *c, unsigned b) {
    c->at[c->n++] = (uint8_t)b;
}

static inline void bytes(code *c, const void *p, unsigned n) {
    memcpy(c->at + c->n, p, n), c->n += n;
}

static inline void vex(code *c, unsigned r, unsigned x, unsigned b, unsigned vvvv, unsigned prefix,
                       unsigned opcode) {
    c->insn = c->n;
    byte(c, 0xc4);
    byte(c, 2u | (r < 8 ? 0x80u : 0) | (x < 8 ? 0x40u : 0) | (b < 8 ? 0x20u : 0));
    byte(c, (~vvvv & 15u) << 3 | prefix);
    byte(c, opcode);
}

static inline void of_registers(code *c, unsigned prefix, unsigned opcode, unsigned reg,
                                unsigned rm, unsigned vvvv) {
    vex(c, reg, 0, rm, vvvv, prefix, opcode);
    byte(c, 0xc0u | (reg & 7) << 3 | (rm & 7));
}

static const unsigned saved[] = {3, 5, 12, 13, 14, 15}; /* that a function must give back */

static inline void push_or_pop(code *c, unsigned first, unsigned r) {
    if (r >= 8) byte(c, 0x41);
    byte(c, first + (r & 7));
}

static inline void begin(code *c) {
    *c = (code){0};
    for (unsigned i = 0; i < 6; i++)
        push_or_pop(c, 0x50, saved[i]);
}

static inline void set(code *c, unsigned r, uint64_t value) {
    c->registers[r] = value;
    byte(c, 0x48u | r >> 3), byte(c, 0xb8u + (r & 7));
    bytes(c, &value, 8);
}

static inline void end(code *c) {
    for (unsigned i = 6; i-- > 0;)
        push_or_pop(c, 0x58, saved[i]);
    byte(c, 0xc3);
}

static inline unsigned other_than(unsigned a, unsigned b) {
    unsigned r;
    do
        r = below(16);
    while (r == a || r == b);
    return r;
}

/* [base + index + displacement], or [base] and [rip], with registers of any number. */
static inline code of_memory(unsigned prefix, unsigned opcode, unsigned reg, void *p,
                             int64_t stride, bool indexed) {
    const int32_t away[] = {0, -64, 100000};
    const unsigned mod = below(3), scale = below(4);
    code c;
    unsigned base = other_than(RSP, RSP), index = indexed ? other_than(RSP, base) : RSP;
    begin(&c);
    if ((base & 7) == RBP && mod == 0) base = 0, index = index == 0 ? 1 : index;
    set(&c, base, (uint64_t)(uintptr_t)p - (uint64_t)(int64_t)away[mod]);
    if (indexed) set(&c, index, (uint64_t)(stride >> scale));
    vex(&c, reg, indexed ? index : 0, base, 0, prefix, opcode);
    const bool sib = indexed || (base & 7) == RSP;
    byte(&c, mod << 6 | (reg & 7) << 3 | (sib ? 4 : base & 7));
    if (sib) byte(&c, scale << 6 | (index & 7) << 3 | (base & 7));
    if (mod) bytes(&c, &away[mod], mod == 1 ? 1 : 4);
    end(&c);
    return c;
}

/* The instruction as the CPU does it: the page is the code. */
static inline void run(const code *c) {
    static uint8_t *page;
    if (!page)
        page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                    0);
    cr_assert(page != MAP_FAILED);
    memcpy(page, c->at, c->n);
    void (*call)(void);
    memcpy(&call, &page, sizeof call);
    call();
}

static inline amx_result emulate(amx_state *s, const code *c) {
    unsigned length = 0;
    const amx_result result = amx_execute(s, c->at + c->insn, c->registers, &length);
    const unsigned pops = 6 + 4 + 1; /* four of the saved registers have a prefix */
    if (result == AMX_DONE && c->n > c->insn + pops)
        cr_assert_eq(length, c->n - pops - c->insn, "length of the instruction");
    return result;
}

/* ---- configurations -------------------------------------------------------------------------- */
typedef struct configuration {
    uint8_t palette, start_row, reserved[14];
    uint16_t line_bytes[16];
    uint8_t rows[16];
} configuration;

/* C = A B for tiles 0, 1, 2; the others of any size. */
static inline configuration random_configuration(void) {
    configuration c = {.palette = 1};
    const unsigned m = 1 + below(16), n = 1 + below(16), k = 1 + below(16);
    for (unsigned t = 0; t < AMX_TILES; t++)
        c.line_bytes[t] = (uint16_t)(4 + 4 * below(16)), c.rows[t] = (uint8_t)(1 + below(16));
    c.rows[0] = c.rows[1] = (uint8_t)m, c.rows[2] = (uint8_t)k;
    c.line_bytes[0] = c.line_bytes[2] = (uint16_t)(4 * n), c.line_bytes[1] = (uint16_t)(4 * k);
    return c;
}

static inline bool has_unit(void) {
    const uint64_t need = HRT_CPU_AMXTILE | HRT_CPU_AMXBF16 | HRT_CPU_AMXINT8;
    const uint64_t have = hrt_detect(hrt_cpuid_here()).features & need;
    return hrt_permitted(hrt_cpuid_here(), have) == need;
}

/* TDPFP16PS is a feature of its own, which no CPU level asks for. */
static inline bool unit_has_f16(void) {
    enum { F16 = 1u << 21 };
    uint32_t a = 0, b, c, d;
    return has_unit() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && a & F16;
}
#endif

#endif
