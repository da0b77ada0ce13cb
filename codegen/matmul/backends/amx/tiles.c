/* Instructions on tile registers (amx/tiles.h). */
#include "codegen/matmul/backends/amx/tiles.h"

#include "codegen/emit/math.h"

enum { PALETTE = 1, CONFIGURATION = 64, TILES = 8, LINE_BYTES_AT = 16, LINES_AT = 48 };

/* What LDTILECFG reads: the palette; bytes of a line of each tile, in 16 bits; how many lines each
 * has. */
static LLVMValueRef configuration(hcg_emit *e, unsigned x_bytes) {
    const char *name = hd_printf(e->arena, "amx_tiles_%u", x_bytes);
    LLVMValueRef global = LLVMGetNamedGlobal(e->mod, name), byte[CONFIGURATION];
    if (global) return global;
    for (unsigned i = 0; i < CONFIGURATION; i++)
        byte[i] = LLVMConstInt(e->i8, i ? 0 : PALETTE, false);
    for (unsigned t = 0; t < TILES; t++) {
        const bool is_x = t >= hcg_amx_x(0) && t < hcg_amx_w(0), is_w = t >= hcg_amx_w(0);
        byte[LINE_BYTES_AT + 2 * t] = LLVMConstInt(e->i8, is_x ? x_bytes : HCG_AMX_LINE, false);
        byte[LINES_AT + t] = LLVMConstInt(e->i8, is_w ? x_bytes / 4 : HCG_AMX_LINES, false);
    }
    LLVMValueRef bytes = LLVMConstArray2(e->i8, byte, CONFIGURATION);
    global = LLVMAddGlobal(e->mod, LLVMTypeOf(bytes), name);
    LLVMSetInitializer(global, bytes);
    LLVMSetLinkage(global, LLVMPrivateLinkage);
    LLVMSetGlobalConstant(global, true);
    LLVMSetAlignment(global, CONFIGURATION);
    return global;
}

static LLVMValueRef number(hcg_emit *e, unsigned tile) {
    return LLVMConstInt(e->i8, tile, false);
}

void hcg_amx_configure(hcg_emit *e, unsigned x_bytes) {
    LLVMValueRef args[] = {configuration(e, x_bytes)};
    hcg_intrinsic(e, "llvm.x86.ldtilecfg", NULL, 0, args, 1);
}

void hcg_amx_release(hcg_emit *e) {
    hcg_intrinsic(e, "llvm.x86.tilerelease", NULL, 0, NULL, 0);
}

void hcg_amx_zero(hcg_emit *e, unsigned tile) {
    LLVMValueRef args[] = {number(e, tile)};
    hcg_intrinsic(e, "llvm.x86.tilezero", NULL, 0, args, 1);
}

void hcg_amx_load(hcg_emit *e, unsigned tile, LLVMValueRef p, LLVMValueRef stride, bool streamed) {
    LLVMValueRef args[] = {number(e, tile), p, stride};
    hcg_intrinsic(e, streamed ? "llvm.x86.tileloaddt164" : "llvm.x86.tileloadd64", NULL, 0, args,
                  3);
}

void hcg_amx_store(hcg_emit *e, unsigned tile, LLVMValueRef p, LLVMValueRef stride) {
    LLVMValueRef args[] = {number(e, tile), p, stride};
    hcg_intrinsic(e, "llvm.x86.tilestored64", NULL, 0, args, 3);
}

void hcg_amx_multiply(hcg_emit *e, const char *multiply, unsigned sum, unsigned x, unsigned w) {
    LLVMValueRef args[] = {number(e, sum), number(e, x), number(e, w)};
    hcg_intrinsic(e, multiply, NULL, 0, args, 3);
}
