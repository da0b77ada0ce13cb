/* The tile registers of a matrix unit (AMX: Intel SDM vol. 1, chapter 18), for back ends of
 * contractions: 8 registers of up to 16 lines of 64 bytes. Each product configures them as it needs
 * them; they are given back at the end of a kernel, since the system switches a thread more slowly
 * while its tiles are in use. Only back ends use tile registers.
 *
 * Tiles 0 to 3 are sums, of 16 rows x 16 outputs in f32 or i32, 4 and 5 of x (16 rows), 6 and 7 of
 * weights (lines of 4 bytes along K of each of 16 outputs: what panels of pairs and of groups have
 * already).
 */
#ifndef HCG_AMX_TILES_H
#define HCG_AMX_TILES_H

#include "codegen/matmul/backend.h"

enum {
    HCG_AMX_LINES = 16,
    HCG_AMX_LINE = 64, /* bytes */
    HCG_AMX_TILE = HCG_AMX_LINES * HCG_AMX_LINE,
    HCG_AMX_ACROSS = 2, /* tiles of a block, each way */
};

/* Numbers of registers: of sums, of x and of weights. */
static inline unsigned hcg_amx_sum(unsigned row, unsigned panel) {
    return row * HCG_AMX_ACROSS + panel;
}
static inline unsigned hcg_amx_x(unsigned row) {
    return 4 + row;
}
static inline unsigned hcg_amx_w(unsigned panel) {
    return 6 + panel;
}

/* x_bytes: bytes of a line of x, 64 or less; a tile of weights has lines for as many bytes of
 * K. */
void hcg_amx_configure(hcg_emit *e, unsigned x_bytes);
void hcg_amx_release(hcg_emit *e);
void hcg_amx_zero(hcg_emit *e, unsigned tile);
/* Lines are `stride` bytes (i64) apart. streamed: the tile need not stay in the L1. */
void hcg_amx_load(hcg_emit *e, unsigned tile, LLVMValueRef p, LLVMValueRef stride, bool streamed);
void hcg_amx_store(hcg_emit *e, unsigned tile, LLVMValueRef p, LLVMValueRef stride);
/* sum += x w; `multiply`: the instruction's intrinsic. */
void hcg_amx_multiply(hcg_emit *e, const char *multiply, unsigned sum, unsigned x, unsigned w);

/* ---- blocks of sums -------------------------------------------------------------------------- */
/* Sums in registers: `rows` x `columns` tiles of c, each 1 or HCG_AMX_ACROSS. */
typedef struct hcg_amx_sums {
    unsigned rows, columns;
    LLVMValueRef c, line;      /* the first tile; bytes from line to line, */
    LLVMValueRef down, across; /* and to the next row and column of tiles; NULL: c is a matrix, in
                                  rows of f32 */
} hcg_amx_sums;
/* The sums start from what is in c where `add` (i64) is 1, or from zeros where it is 0. */
void hcg_amx_begin_sums(hcg_emit *e, const hcg_amx_sums *s, LLVMValueRef add);
/* The sums of a row of tiles += products of its x and the weights of each column, both of which
 * are in registers; `multiply` as above. */
void hcg_amx_add_row(hcg_emit *e, const hcg_amx_sums *s, const char *multiply, unsigned row);
void hcg_amx_leave_sums(hcg_emit *e, const hcg_amx_sums *s);
/* Emits code for each size of a block, of which that for `rows` x `columns` is executed. */
void hcg_amx_for_size(hcg_emit *e, LLVMValueRef rows, LLVMValueRef columns,
                      void (*emit)(hcg_emit *e, void *of, unsigned rows, unsigned columns),
                      void *of);

#endif
