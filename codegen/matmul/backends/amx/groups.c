/* The back end of a matrix unit for q8, q4 and mxfp4 weights where activations may be rounded to
 * bytes, for many tokens: x and w = s q + m are rounded to bf16, and multiplied as such
 * (amx/bf16.c).
 *
 * That is within what rounding x to bytes may be off by. With t = max |x| / 127 of a group, an
 * element of that is off by t / 2, so that a product is off by
 *
 *     |w| max |x| / 254                                                         matmul/groups.h
 *
 * and here, two factors being off by 2^-9 of themselves each, by |w| |x| (2^-8 + 2^-18), which is
 * less even for the largest |x| of the group. Numbers of mxfp4 are bf16 already.
 *
 * Instead of products of bytes (amx/int8.c): the sum of a group of bytes has to leave the
 * unit to be scaled, 16 lines through memory for each 16 cycles of it, and half of a tile lies
 * idle, since a group is 32 bytes. Sums of bf16 stay in tiles over a slice of K. Counted for a
 * group of 16 outputs: some 96 cycles to bring it into a tile, once for a block of rows, and 16 for
 * each 16 rows, where bytes take 24 and more. Not measured: the machine model's `unit_bytes` asks
 * for bytes.
 *
 * Few tokens go by vectors of VNNI, which take 5.5 cycles a row and 8: below the machine model's
 * `unit_rows` for each matrix. That is asked of the call, not of a block of rows or an expert, so
 * that a token's bits do not depend on what others choose or on how threads share the rows.
 */
#include "codegen/emit/arithmetic.h"
#include "codegen/matmul/backends/amx/bf16.h"
#include "codegen/matmul/backends/few.h"

extern const hcg_backend hcg_int8_vnni_512;

static const hcg_amx_parts groups = {.name = "groups", .x = 1, .w = 1, .n = 1};

/* Also a multiple of what vectors compute together. */
static int64_t tile_panels(const hcg_level *level) {
    const int64_t panels = hcg_amx_tile_panels(level);
    const int64_t vectors = hcg_int8_vnni_512.tile_panels(level);
    return panels % vectors == 0 ? panels : panels * vectors;
}

/* Tokens of a call from which on the unit multiplies. */
static int64_t least_tokens(const hcg_level *level, const hcg_product *p) {
    return (int64_t)level->machine.unit_rows * (p->of_tokens ? p->of_tokens : 1);
}

static LLVMValueRef is_few(hcg_emit *e, const hcg_product *p) {
    LLVMValueRef least = hcg_i64(e, least_tokens(e->level, p));
    return LLVMBuildICmp(e->b, LLVMIntSLT, hcg_frame_t(e), least, "is_few");
}

static void begin(hcg_emit *e, hcg_product *p) {
    const uint64_t least = (uint64_t)least_tokens(e->level, p);
    hcg_amx_begin(e, p);
    if (least < 2) return;
    /* all tokens of a call may choose one expert, and several times */
    hcg_few_begin(e, p, &hcg_int8_vnni_512, p->of_tokens ? p->rows : least - 1);
}

static void prepare(hcg_emit *e, hcg_product *p) {
    if (p->few) hcg_few_prepare(e, p, is_few(e, p), NULL);
}

static void gemm(hcg_emit *e, const hcg_product *p, const hcg_panels *b) {
    if (p->few)
        hcg_few_gemm(e, p, b, is_few(e, p), hcg_amx_gemm);
    else
        hcg_amx_gemm(e, p, b);
}

const hcg_backend hcg_amx_groups = {
    .name = "amx_groups",
    .instructions = &groups,
    .tile_panels = tile_panels,
    .block_rows = hcg_amx_block_rows,
    .tile_rows = HCG_AMX_LINES,
    .prefetches = true,
    .begin = begin,
    .prepare = prepare,
    .gemm = gemm,
    .end = hcg_amx_end,
};
