/* AMX in software (amx_emulator.h): decoding, one function for each kind of instruction, and the
 * handler of SIGILL. */
#include "tests/tools/amx_emulator.h"

#include <string.h>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

/* ---- decoding ----------------------------------------------------------------------------------
 * VEX.128 with three bytes: C4, then R X B inverted and the map, W vvvv inverted L pp; opcode,
 * ModRM.
 */
enum { NONE, P66, PF3, PF2 }; /* prefixes */

typedef struct insn {
    uint8_t opcode, prefix;
    unsigned mod, reg, rm, vvvv;
    uint64_t address; /* of the memory operand; with an index, that is what rows are apart by */
    int64_t stride;
    bool indexed; /* by SIB, as loads and stores of tiles must be */
    unsigned length;
} insn;

static int64_t displacement(const uint8_t *p, unsigned bytes) {
    int32_t wide = 0;
    if (bytes == 1) return (int8_t)*p;
    if (bytes == 4) memcpy(&wide, p, 4);
    return wide;
}

/* The memory operand; `p` is behind ModRM. */
static const uint8_t *decode_memory(insn *i, const uint8_t *p, const uint64_t *r, unsigned x,
                                    unsigned b) {
    unsigned bytes = i->mod == 1 ? 1 : i->mod == 2 ? 4 : 0;
    uint64_t base = 0;
    const bool relative = i->rm == 5 && i->mod == 0;
    i->indexed = i->rm == 4;
    if (i->indexed) {
        const unsigned index = (*p >> 3 & 7) | x << 3, at = *p & 7;
        if (index != 4) i->stride = (int64_t)(r[index] << (*p >> 6));
        if (at == 5 && i->mod == 0)
            bytes = 4;
        else
            base = r[at | b << 3];
        p++;
    } else if (relative) {
        bytes = 4;
    } else {
        base = r[i->rm | b << 3];
    }
    i->address = base + (uint64_t)displacement(p, bytes);
    p += bytes;
    if (relative) i->address += (uint64_t)(uintptr_t)p;
    return p;
}

static bool decode(const uint8_t *code, const uint64_t *registers, insn *i) {
    enum { VEX3 = 0xc4, MAP_0F38 = 2 };
    *i = (insn){0};
    if (code[0] != VEX3 || (code[1] & 31) != MAP_0F38) return false;
    if (code[2] & 0x84) return false; /* W0, 128 bits */
    const unsigned extend_r = !(code[1] >> 7), extend_x = !(code[1] >> 6 & 1),
                   extend_b = !(code[1] >> 5 & 1);
    i->prefix = code[2] & 3, i->vvvv = ~(unsigned)(code[2] >> 3) & 15, i->opcode = code[3];
    i->mod = code[4] >> 6, i->reg = (code[4] >> 3 & 7) | extend_r << 3, i->rm = code[4] & 7;
    const uint8_t *end = code + 5;
    if (i->mod != 3)
        end = decode_memory(i, end, registers, extend_x, extend_b);
    else
        i->rm |= extend_b << 3;
    i->length = (unsigned)(end - code);
    return i->reg < AMX_TILES && (i->mod != 3 || i->rm < AMX_TILES);
}

/* ---- configuration --------------------------------------------------------------------------- */
typedef struct configuration { /* what LDTILECFG reads */
    uint8_t palette, start_row, reserved[14];
    uint16_t line_bytes[16]; /* of tiles that there are not: 0 */
    uint8_t rows[16];
} configuration;
_Static_assert(sizeof(configuration) == 64, "LDTILECFG reads 64 bytes");

static amx_result configure(amx_state *s, configuration c) {
    if (c.palette == 0) {
        memset(s, 0, sizeof *s);
        return AMX_DONE;
    }
    if (c.palette != 1) return AMX_FAULT;
    for (unsigned r = 0; r < sizeof c.reserved; r++)
        if (c.reserved[r]) return AMX_FAULT;
    for (unsigned t = 0; t < 16; t++) {
        if (t >= AMX_TILES && (c.line_bytes[t] || c.rows[t])) return AMX_FAULT;
        if (c.line_bytes[t] > AMX_ROW_BYTES || c.rows[t] > AMX_ROWS) return AMX_FAULT;
        if (!c.line_bytes[t] != !c.rows[t]) return AMX_FAULT;
    }
    memset(s, 0, sizeof *s);
    s->palette = c.palette, s->start_row = c.start_row;
    memcpy(s->line_bytes, c.line_bytes, sizeof s->line_bytes);
    memcpy(s->rows, c.rows, sizeof s->rows);
    return AMX_DONE;
}

static configuration configuration_of(const amx_state *s) {
    configuration c = {.palette = s->palette, .start_row = s->start_row};
    memcpy(c.line_bytes, s->line_bytes, sizeof s->line_bytes);
    memcpy(c.rows, s->rows, sizeof s->rows);
    return c;
}

/* ---- memory ---------------------------------------------------------------------------------- */
static bool is_configured(const amx_state *s, unsigned t) {
    return s->palette && s->rows[t];
}

/* Only whole words are moved. */
static bool is_movable(const amx_state *s, const insn *i) {
    return i->indexed && is_configured(s, i->reg) && s->line_bytes[i->reg] % 4 == 0 &&
           s->start_row < s->rows[i->reg];
}

static uint8_t *line_at(const amx_state *s, const insn *i) {
    return (uint8_t *)(uintptr_t)(i->address + (uint64_t)(s->start_row * i->stride));
}

/* Memory that may not be touched raises SIGSEGV here, in the middle of it. A line is moved as a
 * whole or not at all, and start_row tells where the instruction goes on. What lies beyond a tile's
 * rows and lines becomes zeros. */
static amx_result load(amx_state *s, const insn *i) {
    const unsigned t = i->reg;
    if (!is_movable(s, i)) return AMX_UNDEFINED;
    memset(s->tile[t][s->start_row], 0, sizeof s->tile[t] - s->start_row * sizeof s->tile[t][0]);
    for (; s->start_row < s->rows[t]; s->start_row++) {
        uint8_t line[AMX_ROW_BYTES];
        memcpy(line, line_at(s, i), s->line_bytes[t]);
        memcpy(s->tile[t][s->start_row], line, s->line_bytes[t]);
    }
    s->start_row = 0;
    return AMX_DONE;
}

static amx_result store(amx_state *s, const insn *i) {
    const unsigned t = i->reg;
    if (!is_movable(s, i)) return AMX_UNDEFINED;
    for (; s->start_row < s->rows[t]; s->start_row++) {
        uint8_t *line = line_at(s, i);
        volatile uint8_t *first = line, *last = line + s->line_bytes[t] - 1;
        *first = *first, *last = *last; /* may they be written? */
        memcpy(line, s->tile[t][s->start_row], s->line_bytes[t]);
    }
    s->start_row = 0;
    return AMX_DONE;
}

/* ---- products -------------------------------------------------------------------------------- */
static bool fit(const amx_state *s, unsigned c, unsigned a, unsigned b) {
    if (!is_configured(s, c) || !is_configured(s, a) || !is_configured(s, b)) return false;
    return c != a && c != b && a != b && s->line_bytes[c] % 4 == 0 && s->line_bytes[a] % 4 == 0 &&
           s->rows[c] == s->rows[a] && s->line_bytes[c] == s->line_bytes[b] &&
           s->line_bytes[a] / 4 == s->rows[b];
}

/* Products and sums as vectors of the host do them, by instructions where it has fmaf as one, so
 * that tests take seconds and not minutes. Flags of MXCSR: denormal numbers are zeros on the way in
 * and out, no exceptions, to nearest. */
#define WITH_FMA __attribute__((target("avx2,fma")))
#define INLINE   static inline __attribute__((always_inline))
enum { MXCSR_OF_TILES = 0x9fc0 };

static bool has_fma(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static uint32_t exchange_mxcsr(uint32_t wanted) {
    uint32_t before;
    __asm__ volatile("stmxcsr %0\n\tldmxcsr %1" : "=m"(before) : "m"(wanted) : "memory");
    return before;
}

enum { COLUMNS = AMX_ROW_BYTES / 4 };

/* x[0] and x[1]: even and odd elements of each pair, [lines of a or b][columns] */
typedef struct halves {
    float a[2][AMX_ROWS][COLUMNS], b[2][AMX_ROWS][COLUMNS];
} halves;

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

/* Denormals are numbers. */
static float of_f16(uint32_t half) {
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    float x =
        exponent ? ldexpf((float)(1024 + fraction), exponent - 25) : ldexpf((float)fraction, -24);
    if (exponent == 31) x = fraction ? NAN : INFINITY;
    return half >> 15 ? -x : x;
}

static void take_pairs(const uint8_t tile[AMX_ROWS][AMX_ROW_BYTES], bool bf16,
                       float out[2][AMX_ROWS][COLUMNS]) {
    for (unsigned row = 0; row < AMX_ROWS; row++) {
        uint32_t words[COLUMNS];
        memcpy(words, tile[row], sizeof words);
        for (unsigned n = 0; n < COLUMNS; n++) {
            out[0][row][n] = bf16 ? float_of(words[n] << 16) : of_f16(words[n] & 0xffff);
            out[1][row][n] = bf16 ? float_of(words[n] & 0xffff0000) : of_f16(words[n] >> 16);
        }
    }
}

/* A row of c: even and odd elements of each pair in a chain of their own, then both, then what was
 * there; each step rounds once. */
INLINE void add_halves(const halves *x, unsigned row, unsigned depth, float sum[COLUMNS]) {
    float chain[2][COLUMNS] = {{0}, {0}};
    for (unsigned k = 0; k < depth; k++)
        for (unsigned i = 0; i < 2; i++)
            for (unsigned n = 0; n < COLUMNS; n++)
                chain[i][n] = fmaf(x->a[i][row][k], x->b[i][k][n], chain[i][n]);
    for (unsigned n = 0; n < COLUMNS; n++)
        sum[n] += chain[0][n] + chain[1][n];
}

__attribute__((noinline)) WITH_FMA static void add_halves_by_fma(const halves *x, unsigned row,
                                                                 unsigned depth, float *sum) {
    add_halves(x, row, depth, sum);
}

__attribute__((noinline)) static void add_halves_by_calls(const halves *x, unsigned row,
                                                          unsigned depth, float *sum) {
    add_halves(x, row, depth, sum);
}

/* Of the four bytes of each word, [byte][line][column] */
typedef struct bytes {
    int32_t a[4][AMX_ROWS][COLUMNS], b[4][AMX_ROWS][COLUMNS];
} bytes;

static void take_bytes(const amx_state *s, unsigned a, unsigned b, bool a_signed, bool b_signed,
                       bytes *out) {
    for (unsigned row = 0; row < AMX_ROWS; row++)
        for (unsigned n = 0; n < COLUMNS; n++)
            for (unsigned i = 0; i < 4; i++) {
                const uint8_t x = s->tile[a][row][4 * n + i], w = s->tile[b][row][4 * n + i];
                out->a[i][row][n] = a_signed ? (int8_t)x : x;
                out->b[i][row][n] = b_signed ? (int8_t)w : w;
            }
}

static void add_bytes(const bytes *x, unsigned row, unsigned depth, int32_t sum[COLUMNS]) {
    for (unsigned k = 0; k < depth; k++)
        for (unsigned i = 0; i < 4; i++)
            for (unsigned n = 0; n < COLUMNS; n++)
                sum[n] = (int32_t)((uint32_t)sum[n] + (uint32_t)(x->a[i][row][k] * x->b[i][k][n]));
}

/* All rows of c. */
static void multiply_halves(amx_state *s, unsigned c, unsigned a, unsigned b, bool bf16) {
    halves x;
    take_pairs(s->tile[a], bf16, x.a), take_pairs(s->tile[b], bf16, x.b);
    const uint32_t mxcsr = exchange_mxcsr(MXCSR_OF_TILES);
    for (unsigned row = 0; row < s->rows[c]; row++) {
        float sum[COLUMNS];
        memcpy(sum, s->tile[c][row], sizeof sum);
        (has_fma() ? add_halves_by_fma : add_halves_by_calls)(&x, row, s->rows[b], sum);
        memcpy(s->tile[c][row], sum, sizeof sum);
    }
    (void)exchange_mxcsr(mxcsr);
}

static void multiply_bytes(amx_state *s, unsigned c, unsigned a, unsigned b, bool a_signed,
                           bool b_signed) {
    bytes x;
    take_bytes(s, a, b, a_signed, b_signed, &x);
    for (unsigned row = 0; row < s->rows[c]; row++) {
        int32_t sum[COLUMNS];
        memcpy(sum, s->tile[c][row], sizeof sum);
        add_bytes(&x, row, s->rows[b], sum);
        memcpy(s->tile[c][row], sum, sizeof sum);
    }
}

static amx_result multiply(amx_state *s, const insn *i) {
    enum { HALVES = 0x5c };
    static const bool a_signed[] = {false, false, true, true},
                      b_signed[] = {false, true, false, true};
    const unsigned c = i->reg, a = i->rm, b = i->vvvv;
    if (i->mod != 3 || b >= AMX_TILES || !fit(s, c, a, b)) return AMX_UNDEFINED;
    if (i->opcode == HALVES && i->prefix < PF3) return AMX_UNDEFINED;
    if (i->opcode == HALVES)
        multiply_halves(s, c, a, b, i->prefix == PF3);
    else
        multiply_bytes(s, c, a, b, a_signed[i->prefix], b_signed[i->prefix]);
    for (unsigned row = 0; row < AMX_ROWS; row++) /* beyond c's rows and lines: zeros */
        for (unsigned n = row < s->rows[c] ? s->line_bytes[c] : 0; n < AMX_ROW_BYTES; n++)
            s->tile[c][row][n] = 0;
    s->start_row = 0;
    return AMX_DONE;
}

/* ---- instructions ---------------------------------------------------------------------------- */
static amx_result configuration_group(amx_state *s, const insn *i) {
    if (i->vvvv != 0) return AMX_UNDEFINED;
    if (i->mod != 3 && i->reg == 0 && i->prefix == NONE) {
        configuration c;
        memcpy(&c, (const void *)(uintptr_t)i->address, sizeof c);
        return configure(s, c);
    }
    if (i->mod != 3 && i->reg == 0 && i->prefix == P66) {
        const configuration c = configuration_of(s);
        memcpy((void *)(uintptr_t)i->address, &c, sizeof c);
        return AMX_DONE;
    }
    if (i->mod == 3 && i->prefix == NONE && i->reg == 0 && i->rm == 0) {
        memset(s, 0, sizeof *s);
        return AMX_DONE;
    }
    if (i->mod == 3 && i->prefix == PF2 && i->rm == 0 && is_configured(s, i->reg)) {
        memset(s->tile[i->reg], 0, sizeof s->tile[i->reg]);
        s->start_row = 0;
        return AMX_DONE;
    }
    return AMX_UNDEFINED;
}

amx_result amx_execute(amx_state *s, const uint8_t *code, const uint64_t registers[16],
                       unsigned *length) {
    insn i;
    if (!decode(code, registers, &i)) return AMX_UNDEFINED;
    *length = i.length;
    switch (i.opcode) {
    case 0x49: return configuration_group(s, &i);
    case 0x4b:
        if (i.mod == 3 || i.vvvv != 0 || i.prefix == NONE) return AMX_UNDEFINED;
        return i.prefix == PF3 ? store(s, &i) : load(s, &i);
    case 0x5c:
    case 0x5e: return multiply(s, &i);
    default: return AMX_UNDEFINED;
    }
}

/* ---- the handler ----------------------------------------------------------------------------- */
/* Tiles of each thread, in pages of their own: a library that the emulator is linked into is loaded
 * with dlopen, which has little room for thread-local memory, and mmap may be called where an
 * instruction has trapped. */
static amx_state *tiles_of_thread(void) {
    static _Thread_local amx_state *tiles;
    if (!tiles) {
        void *pages =
            mmap(NULL, sizeof *tiles, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages == MAP_FAILED) abort();
        tiles = pages;
    }
    return tiles;
}

static _Atomic uint64_t executed;

/* A CPU that has the unit, which the process has not asked for, withholds the tiles alone: it
 * executes LDTILECFG, STTILECFG and TILERELEASE itself. What it is configured to stands in the
 * signal frame, in the standard form of XSAVE (vol. 1, 13.4), whose last bytes of the legacy region
 * say what it holds. Where that changes, tiles become zeros. */
static void follow_the_unit(const ucontext_t *u) {
    enum { CONFIGURATION = 17, SOFTWARE = 464, MAGIC = 0x46505853, HEADER = 512 };
    const uint8_t *area = (const uint8_t *)u->uc_mcontext.fpregs;
    uint32_t a, offset, c, d, magic;
    uint64_t kept, present;
    memcpy(&magic, area + SOFTWARE, 4), memcpy(&kept, area + SOFTWARE + 8, 8);
    if (magic != MAGIC || !(kept >> CONFIGURATION & 1)) return;
    configuration here = {0}, ours = configuration_of(tiles_of_thread());
    ours.start_row = 0; /* of a load that has faulted, which is none of the CPU's */
    memcpy(&present, area + HEADER, 8);
    if (present >> CONFIGURATION & 1) {
        __cpuid_count(0xd, CONFIGURATION, a, offset, c, d);
        memcpy(&here, area + offset, sizeof here);
    }
    if (memcmp(&here, &ours, sizeof here) != 0) configure(tiles_of_thread(), here);
}

/* Kernels have tile instructions side by side, and a signal takes far longer than any of them:
 * those that follow at once are executed with the first. Not those about the configuration, which a
 * CPU with the unit executes itself; nor what cannot be executed, which raises a signal of its own.
 */
static const uint8_t *execute_those_behind(const uint8_t *code, const uint64_t registers[16]) {
    enum { VEX3 = 0xc4, CONFIGURATION_GROUP = 0x49 };
    unsigned length = 0;
    while (code[0] == VEX3 && (code[3] != CONFIGURATION_GROUP || (code[2] & 3) == PF2)) {
        if (amx_execute(tiles_of_thread(), code, registers, &length) != AMX_DONE) break;
        code += length;
        atomic_fetch_add_explicit(&executed, 1, memory_order_relaxed);
    }
    return code;
}

/* What is no instruction of ours, or one that the unit would not do, gets the signal that it would
 * have raised: the default action when it is executed again, or now. */
static void on_sigill(int signal_number, siginfo_t *info, void *context) {
    static const int order[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                  REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                  REG_R12, REG_R13, REG_R14, REG_R15};
    ucontext_t *u = context;
    uint64_t registers[16];
    unsigned length = 0;
    (void)info;
    for (int i = 0; i < 16; i++)
        registers[i] = (uint64_t)u->uc_mcontext.gregs[order[i]];
    follow_the_unit(u);
    const uint8_t *code = (const uint8_t *)(uintptr_t)u->uc_mcontext.gregs[REG_RIP];
    const amx_result result = amx_execute(tiles_of_thread(), code, registers, &length);
    if (result == AMX_DONE) {
        atomic_fetch_add_explicit(&executed, 1, memory_order_relaxed);
        code = execute_those_behind(code + length, registers);
        u->uc_mcontext.gregs[REG_RIP] = (greg_t)(uintptr_t)code;
        return;
    }
    signal(signal_number, SIG_DFL);
    if (result == AMX_FAULT) {
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
    }
}

bool amx_emulator_start(void) {
    struct sigaction action = {.sa_sigaction = on_sigill, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigemptyset(&action.sa_mask);
    return sigaction(SIGILL, &action, NULL) == 0;
}

uint64_t amx_emulator_count(void) {
    return atomic_load_explicit(&executed, memory_order_relaxed);
}
#else
amx_result amx_execute(amx_state *s, const uint8_t *code, const uint64_t registers[16],
                       unsigned *length) {
    (void)s, (void)code, (void)registers, (void)length;
    return AMX_UNDEFINED;
}

bool amx_emulator_start(void) {
    return false;
}

uint64_t amx_emulator_count(void) {
    return 0;
}
#endif
