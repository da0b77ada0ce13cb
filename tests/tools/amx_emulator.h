/* The tile instructions of AMX in software, for tests on machines without the unit, or of which the
 * process has not asked for it: there each of them raises SIGILL, whose handler does what the
 * instruction would.
 *
 * Source: Intel 64 SDM vol. 2, LDTILECFG to TILEZERO, and vol. 1, chapter 18. All of palette 1:
 * LDTILECFG, STTILECFG, TILERELEASE, TILEZERO, TILELOADD, TILELOADDT1, TILESTORED, TDPBF16PS,
 * TDPFP16PS, TDPBSSD, TDPBSUD, TDPBUSD, TDPBUUD. */
#ifndef AMX_EMULATOR_H
#define AMX_EMULATOR_H

#include <stdbool.h>
#include <stdint.h>

enum { AMX_TILES = 8, AMX_ROWS = 16, AMX_ROW_BYTES = 64 };

typedef struct amx_state { /* of a thread */
    uint8_t palette;       /* 0: no tiles are configured */
    uint8_t start_row;     /* where a load or store that has faulted goes on */
    uint16_t line_bytes[AMX_TILES];
    uint8_t rows[AMX_TILES];
    uint8_t tile[AMX_TILES][AMX_ROWS][AMX_ROW_BYTES];
} amx_state;

/* Registers as ModRM numbers them: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 .. r15. */
typedef enum amx_result {
    AMX_DONE,
    AMX_UNDEFINED, /* SIGILL: no such instruction, or not with tiles of these sizes */
    AMX_FAULT,     /* SIGSEGV: a configuration that there is not */
} amx_result;
/* Executes the instruction at `code`; *length: its bytes. */
amx_result amx_execute(amx_state *s, const uint8_t *code, const uint64_t registers[16],
                       unsigned *length);

/* From now on the process has the instructions, if it has AVX and is x86-64 Linux: true. */
bool amx_emulator_start(void);
/* How many instructions the handler has executed, in all threads. */
uint64_t amx_emulator_count(void);

#endif
