/* Packing of rows into slabs [K][width] (matrix.h), and back: a transposition, done on blocks of
 * 4 x 4 in registers. */
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/shared.h"
#include "codegen/matmul/matrix.h"

enum { BLOCK = 4, WIDEST = 16 };

static LLVMValueRef shuffle(hcg_emit *e, LLVMValueRef a, LLVMValueRef b, const unsigned *lane,
                            unsigned n) {
    LLVMValueRef mask[BLOCK];
    for (unsigned i = 0; i < n; i++)
        mask[i] = LLVMConstInt(e->i32, lane[i], false);
    return LLVMBuildShuffleVector(e->b, a, b, LLVMConstVector(mask, n), "");
}

/* rows a b c d of a 4 x 4 block become its columns */
static void transpose(hcg_emit *e, LLVMValueRef at[BLOCK]) {
    static const unsigned low[] = {0, 4, 1, 5}, high[] = {2, 6, 3, 7};
    LLVMValueRef ac_low = shuffle(e, at[0], at[2], low, 4);
    LLVMValueRef ac_high = shuffle(e, at[0], at[2], high, 4);
    LLVMValueRef bd_low = shuffle(e, at[1], at[3], low, 4);
    LLVMValueRef bd_high = shuffle(e, at[1], at[3], high, 4);
    at[0] = shuffle(e, ac_low, bd_low, low, 4);
    at[1] = shuffle(e, ac_low, bd_low, high, 4);
    at[2] = shuffle(e, ac_high, bd_high, low, 4);
    at[3] = shuffle(e, ac_high, bd_high, high, 4);
}

/* Packs 4 rows of the slab from `first` on (or what is left of `width`) at k .. k+3. */
static void pack_block(hcg_emit *e, unsigned width, unsigned first, const LLVMValueRef *row,
                       LLVMValueRef k, LLVMValueRef column[BLOCK]) {
    LLVMTypeRef four = LLVMVectorType(e->f32, BLOCK);
    for (unsigned i = 0; i < BLOCK; i++) {
        if (first + i >= width) {
            column[i] = LLVMGetPoison(four);
            continue;
        }
        column[i] = LLVMBuildLoad2(e->b, four, hcg_at(e, e->f32, row[first + i], k), "");
        LLVMSetAlignment(column[i], 4);
    }
    transpose(e, column);
}

static void store_lanes(hcg_emit *e, LLVMValueRef v, unsigned n, LLVMValueRef p) {
    static const unsigned lane[] = {0, 1, 2, 3};
    if (n < BLOCK) v = shuffle(e, v, v, lane, n);
    LLVMSetAlignment(LLVMBuildStore(e->b, v, p), 4);
}

/* out[k][0 .. width) of the slab whose rows start at row[0 .. width) */
static void pack_slab(hcg_emit *e, unsigned width, const LLVMValueRef *row, LLVMValueRef k,
                      LLVMValueRef out) {
    LLVMValueRef wide = hcg_i64(e, width);
    LLVMValueRef to = hcg_add(e, k, hcg_i64(e, 1 - BLOCK));
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), to, hcg_i64(e, BLOCK), "k", 0, NULL);
    LLVMValueRef base = hcg_at(e, e->f32, out, hcg_mul(e, l.index, wide));
    for (unsigned first = 0; first < width; first += BLOCK) {
        LLVMValueRef column[BLOCK];
        pack_block(e, width, first, row, l.index, column);
        unsigned n = width - first < BLOCK ? width - first : BLOCK;
        for (unsigned i = 0; i < BLOCK; i++)
            store_lanes(e, column[i], n,
                        hcg_at(e, e->f32, base, hcg_i64(e, (int64_t)i * width + first)));
    }
    hcg_loop_end(e, &l, NULL);
    hcg_loop rest = hcg_loop_begin(e, l.index, k, hcg_i64(e, 1), "k_rest", 0, NULL);
    base = hcg_at(e, e->f32, out, hcg_mul(e, rest.index, wide));
    for (unsigned i = 0; i < width; i++) {
        LLVMValueRef x = hcg_load_scalar(e, HIR_F32, hcg_at(e, e->f32, row[i], rest.index));
        LLVMSetAlignment(LLVMBuildStore(e->b, x, hcg_at(e, e->f32, base, hcg_i64(e, i))), 4);
    }
    hcg_loop_end(e, &rest, NULL);
}

/* pack_W(x, ldx, rows, k, out) */
static hcg_shared pack_function(hcg_emit *e, unsigned width) {
    LLVMTypeRef params[] = {e->ptr, e->i64, e->i64, e->i64, e->ptr};
    hcg_shared s;
    if (!hcg_shared_begin(e, hd_printf(e->arena, "pack_%u", width), params, 5, &s)) return s;
    LLVMValueRef x = s.param[0], ldx = s.param[1], rows = s.param[2], k = s.param[3];
    LLVMValueRef last = LLVMBuildNSWSub(e->b, rows, hcg_i64(e, 1), "last"), row[WIDEST];
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), rows, hcg_i64(e, width), "row", 0, NULL);
    for (unsigned i = 0; i < width; i++) {
        LLVMValueRef r = hcg_add(e, l.index, hcg_i64(e, i));
        LLVMValueRef in = LLVMBuildICmp(e->b, LLVMIntSLT, r, last, "");
        r = LLVMBuildSelect(e->b, in, r, last, "");
        row[i] = hcg_at(e, e->f32, x, hcg_mul(e, r, ldx));
    }
    pack_slab(e, width, row, k, hcg_at(e, e->f32, s.param[4], hcg_mul(e, l.index, k)));
    hcg_loop_end(e, &l, NULL);
    hcg_shared_end(e, &s);
    return s;
}

void hcg_pack_rows(hcg_emit *e, unsigned width, LLVMValueRef x, LLVMValueRef ldx, LLVMValueRef rows,
                   LLVMValueRef k, LLVMValueRef out) {
    hcg_shared f = pack_function(e, width);
    LLVMValueRef args[] = {x, ldx, rows, k, out};
    hcg_shared_call(e, &f, args, 5);
}

/* unpack_W(panel, k, out) */
static hcg_shared unpack_function(hcg_emit *e, unsigned width) {
    LLVMTypeRef params[] = {e->ptr, e->i64, e->ptr}, four = LLVMVectorType(e->f32, BLOCK);
    hcg_shared s;
    if (!hcg_shared_begin(e, hd_printf(e->arena, "unpack_%u", width), params, 3, &s)) return s;
    LLVMValueRef k = s.param[1], to = hcg_add(e, k, hcg_i64(e, 1 - BLOCK));
    LLVMValueRef zero = hcg_i64(e, 0), wide = hcg_i64(e, width), row[WIDEST];
    for (unsigned i = 0; i < width; i++)
        row[i] = hcg_at(e, e->f32, s.param[2], hcg_mul_const(e, k, i));
    hcg_loop l = hcg_loop_begin(e, zero, to, hcg_i64(e, BLOCK), "k", 0, NULL);
    LLVMValueRef base = hcg_at(e, e->f32, s.param[0], hcg_mul(e, l.index, wide));
    for (unsigned first = 0; first < width; first += BLOCK) {
        LLVMValueRef line[BLOCK];
        for (unsigned i = 0; i < BLOCK; i++) {
            LLVMValueRef at = hcg_at(e, e->f32, base, hcg_i64(e, (int64_t)i * width + first));
            line[i] = LLVMBuildLoad2(e->b, four, at, "");
            LLVMSetAlignment(line[i], 4);
        }
        transpose(e, line);
        for (unsigned i = 0; i < BLOCK; i++)
            store_lanes(e, line[i], BLOCK, hcg_at(e, e->f32, row[first + i], l.index));
    }
    hcg_loop_end(e, &l, NULL);
    hcg_loop rest = hcg_loop_begin(e, l.index, k, hcg_i64(e, 1), "k_rest", 0, NULL);
    base = hcg_at(e, e->f32, s.param[0], hcg_mul(e, rest.index, wide));
    for (unsigned i = 0; i < width; i++) {
        LLVMValueRef x = hcg_load_scalar(e, HIR_F32, hcg_at(e, e->f32, base, hcg_i64(e, i)));
        LLVMValueRef at = hcg_at(e, e->f32, row[i], rest.index);
        LLVMSetAlignment(LLVMBuildStore(e->b, x, at), 4);
    }
    hcg_loop_end(e, &rest, NULL);
    hcg_shared_end(e, &s);
    return s;
}

void hcg_unpack_panel(hcg_emit *e, unsigned width, LLVMValueRef panel, LLVMValueRef k,
                      LLVMValueRef out) {
    hcg_shared f = unpack_function(e, width);
    LLVMValueRef args[] = {panel, k, out};
    hcg_shared_call(e, &f, args, 3);
}
