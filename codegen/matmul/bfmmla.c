/* Tiles of sums by BFMMLA (aarch64, FEAT_BF16): an instruction multiplies 2 rows of 4 elements of x
 * by 4 elements of 2 outputs, and adds to four sums.
 *
 *     sum[i][j] += x[i][0..4) . w[j][0..4)      i, j < 2
 *
 * Panels hold pairs along K, an output in each word: the same words of two steps side by side are
 * what an instruction reads of two outputs. Of x it reads half a vector from each of two rows. Of
 * an odd number of rows the last is multiplied twice, and one of its sums left alone; of an odd
 * number of steps the last is filled up with zeros.
 *
 * Products are exact. Two of them are added, that to the sum, and so for the other two: each time
 * what is lost makes the last bit odd, so that an addition is off by less than 2^-23 of its result,
 * up or down, where one that rounds to nearest is off by half as much. Numbers below 2^-126 count
 * as zeros (Arm Architecture Reference Manual, BFMMLA and shared/functions/float/bfloat). */
#include "codegen/emit/math.h"
#include "codegen/matmul/tile.h"

enum { LANES = 4, ROWS = 2, TILE_ROWS = 4 };

/* Sums of four rows, two steps of the panels and x take 26 of 32 registers; with six rows LLVM
 * keeps sums in memory. */
void tile_choose_squares(const hcg_emit *e, tile_kind *d) {
    if (d->x != HIR_BF16 || e->level->lanes != LANES || !hcg_has_feature(e->level, "bf16")) return;
    d->squares = true, d->rows = TILE_ROWS;
}

unsigned tile_square_sums(unsigned rows, unsigned width) {
    return (rows + 1) / ROWS * (ROWS * width);
}

static LLVMValueRef shuffle(hcg_emit *e, LLVMValueRef a, LLVMValueRef b, const unsigned *lane) {
    LLVMValueRef mask[LANES];
    for (unsigned i = 0; i < LANES; i++)
        mask[i] = LLVMConstInt(e->i32, lane[i], false);
    return LLVMBuildShuffleVector(e->b, a, b, LLVMConstVector(mask, LANES), "");
}

/* The elements of one row: of two steps, or of one and zeros. */
static LLVMValueRef load_row(hcg_emit *e, LLVMValueRef at, bool both) {
    LLVMTypeRef type = both ? e->f64 : e->i32;
    LLVMValueRef x = LLVMBuildLoad2(e->b, type, at, "");
    LLVMSetAlignment(x, 4);
    return both ? x : LLVMBuildBitCast(e->b, LLVMBuildZExt(e->b, x, e->i64, ""), e->f64, "");
}

static LLVMValueRef two_rows(hcg_emit *e, LLVMValueRef first, LLVMValueRef second, bool both) {
    LLVMValueRef x = LLVMGetPoison(LLVMVectorType(e->f64, ROWS));
    LLVMValueRef row = load_row(e, first, both);
    x = LLVMBuildInsertElement(e->b, x, row, LLVMConstInt(e->i32, 0, false), "");
    if (second != first) row = load_row(e, second, both);
    return LLVMBuildInsertElement(e->b, x, row, LLVMConstInt(e->i32, 1, false), "");
}

static LLVMValueRef multiply_add(hcg_emit *e, LLVMValueRef sum, LLVMValueRef x, LLVMValueRef b) {
    LLVMTypeRef elements = LLVMVectorType(LLVMBFloatTypeInContext(e->cx), 2 * LANES);
    LLVMValueRef args[] = {sum, LLVMBuildBitCast(e->b, x, elements, ""),
                           LLVMBuildBitCast(e->b, b, elements, "")};
    return hcg_intrinsic(e, "llvm.aarch64.neon.bfmmla", NULL, 0, args, 3);
}

void tile_add_squares(hcg_emit *e, unsigned rows, unsigned width, const LLVMValueRef *x,
                      const LLVMValueRef *b, const LLVMValueRef *next_b, LLVMValueRef *acc) {
    static const unsigned lanes[ROWS][LANES] = {{0, 4, 1, 5}, {2, 6, 3, 7}};
    LLVMValueRef pair[HCG_CARRY];
    for (unsigned r = 0; r < rows; r += ROWS)
        pair[r / ROWS] = two_rows(e, x[r], x[r + 1 < rows ? r + 1 : r], next_b != NULL);
    for (unsigned v = 0; v < width; v++) {
        LLVMValueRef next = next_b ? next_b[v] : LLVMConstNull(LLVMTypeOf(b[v]));
        for (unsigned half = 0; half < 2; half++) {
            LLVMValueRef two = shuffle(e, b[v], next, lanes[half]);
            for (unsigned r = 0; r < rows; r += ROWS) {
                LLVMValueRef *sum = &acc[r * width + 2 * v + half];
                *sum = multiply_add(e, *sum, pair[r / ROWS], two);
            }
        }
    }
}

void tile_part_squares(hcg_emit *e, unsigned rows, unsigned width, LLVMValueRef *acc) {
    static const unsigned lanes[ROWS][LANES] = {{0, 1, 4, 5}, {2, 3, 6, 7}};
    for (unsigned r = 0; r < rows; r += ROWS) {
        LLVMValueRef of_row[ROWS][HCG_CARRY];
        for (unsigned i = 0; i < ROWS; i++)
            for (unsigned v = 0; v < width; v++) {
                const LLVMValueRef *two = &acc[r * width + 2 * v];
                of_row[i][v] = shuffle(e, two[0], two[1], lanes[i]);
            }
        for (unsigned i = 0; i < ROWS && r + i < rows; i++)
            for (unsigned v = 0; v < width; v++)
                acc[(r + i) * width + v] = of_row[i][v];
    }
}
