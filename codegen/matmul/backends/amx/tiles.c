/* Instructions on tile registers (amx/tiles.h). */
#include "codegen/matmul/backends/amx/tiles.h"

#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"

enum { PALETTE = 1, CONFIGURATION = 64, TILES = 8, LINE_BYTES_AT = 16, LINES_AT = 48 };

/* What LDTILECFG reads: the palette; the bytes of each tile's lines, in 16 bits; how many lines
 * each tile has. */
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

/* ---- blocks of sums -------------------------------------------------------------------------- */
static void each_sum(hcg_emit *e, const hcg_amx_sums *s, bool store) {
    LLVMValueRef down = s->down ? s->down : hcg_mul_const(e, s->line, HCG_AMX_LINES);
    for (unsigned i = 0; i < s->rows; i++)
        for (unsigned j = 0; j < s->columns; j++) {
            LLVMValueRef at = i ? hcg_at(e, e->i8, s->c, down) : s->c;
            if (!s->across)
                at = hcg_at_byte(e, at, j * HCG_AMX_LINE);
            else if (j)
                at = hcg_at(e, e->i8, at, s->across);
            if (store)
                hcg_amx_store(e, hcg_amx_sum(i, j), at, s->line);
            else
                hcg_amx_load(e, hcg_amx_sum(i, j), at, s->line, false);
        }
}

void hcg_amx_begin_sums(hcg_emit *e, const hcg_amx_sums *s, LLVMValueRef add) {
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    hcg_loop fresh = hcg_loop_begin(e, add, one, one, "fresh", 0, NULL); /* once or not */
    for (unsigned i = 0; i < s->rows; i++)
        for (unsigned j = 0; j < s->columns; j++)
            hcg_amx_zero(e, hcg_amx_sum(i, j));
    hcg_loop_end(e, &fresh, NULL);
    hcg_loop more = hcg_loop_begin(e, zero, add, one, "more", 0, NULL);
    each_sum(e, s, false);
    hcg_loop_end(e, &more, NULL);
}

void hcg_amx_add_row(hcg_emit *e, const hcg_amx_sums *s, const char *multiply, unsigned row) {
    for (unsigned j = 0; j < s->columns; j++)
        hcg_amx_multiply(e, multiply, hcg_amx_sum(row, j), hcg_amx_x(row), hcg_amx_w(j));
}

void hcg_amx_leave_sums(hcg_emit *e, const hcg_amx_sums *s) {
    each_sum(e, s, true);
}

void hcg_amx_for_size(hcg_emit *e, LLVMValueRef rows, LLVMValueRef columns,
                      void (*emit)(hcg_emit *e, void *of, unsigned rows, unsigned columns),
                      void *of) {
    LLVMValueRef key = hcg_add(e, hcg_mul_const(e, rows, HCG_AMX_ACROSS), columns);
    LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(e->cx, e->fn, "multiplied");
    LLVMValueRef choice = LLVMBuildSwitch(e->b, key, done, HCG_AMX_ACROSS * HCG_AMX_ACROSS);
    for (unsigned i = 1; i <= HCG_AMX_ACROSS; i++)
        for (unsigned j = 1; j <= HCG_AMX_ACROSS; j++) {
            LLVMBasicBlockRef at = LLVMAppendBasicBlockInContext(e->cx, e->fn, "tiles");
            LLVMAddCase(choice, hcg_i64(e, i * HCG_AMX_ACROSS + j), at);
            LLVMPositionBuilderAtEnd(e->b, at);
            emit(e, of, i, j);
            LLVMBuildBr(e->b, done);
        }
    LLVMPositionBuilderAtEnd(e->b, done);
}
