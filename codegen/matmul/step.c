/* One step of k of the matrix kernels (matmul/tile.h): what is loaded of x and of b, and how it
 * is multiplied.
 *
 * A narrow panel has 8 outputs and is multiplied with two elements of x at once: both are
 * broadcast, to even and odd lanes, and sums of even and of odd elements are added at the end of a
 * block. So 24 outputs fill as many registers as 48 would, without lanes of zeros. Tiles are as
 * wide as the matrix, up to 40 outputs, and have fewer rows if need be. Such a matrix is one group
 * of panels: each row of x is read once, a kilobyte per block, which is too short for the hardware
 * prefetcher, so each step prefetches a line of the next block of x.
 */
#include "codegen/emit/math.h"
#include "codegen/matmul/matrix.h"
#include "codegen/matmul/tile.h"

enum { MOST_NARROW = 5 }; /* panels of a tile: 40 outputs */

static const hcg_tile tiles[] = {
#define TILE(arch, lanes, fma, rows, panels, unroll, chains, wide_rows)                            \
    {arch, lanes, fma, rows, panels, unroll, chains, wide_rows},
#include "codegen/matmul/tiles.def"
#undef TILE
};

const hcg_tile *hcg_tile_of(const hcg_level *level) {
    const hcg_tile *best = &tiles[0];
    for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; i++) {
        if (tiles[i].lanes != level->lanes) continue;
        if (best->lanes != level->lanes || tiles[i].fma == level->fma) best = &tiles[i];
    }
    return best;
}

/* Steps of k in a block of B. */
int64_t tile_k_block(const hcg_emit *e) {
    return hcg_block_steps(e->level, hcg_tile_of(e->level)->panels);
}

unsigned hcg_narrow_panels(const hcg_level *level) {
    const hcg_tile *tile = hcg_tile_of(level);
    return tile->panels > 1 ? MOST_NARROW : tile->panels;
}

/* The size of a tile: it has at most as many sums as the level's tile, and of a narrow matrix all
 * panels side by side if they fit. It has no more rows, since each row has an address in a
 * register. */
static void choose_tile(tile_kind *d, const hcg_level *level, unsigned panels) {
    const hcg_tile *tile = hcg_tile_of(level);
    const unsigned most = hcg_narrow_panels(level), sums = tile->rows * tile->panels;
    d->panels = !d->narrow ? tile->panels : panels < most ? panels : most;
    d->rows = sums / d->panels < tile->rows ? sums / d->panels : tile->rows;
}

tile_kind tile_kind_of(const hcg_emit *e, const hcg_gemm *g) {
    tile_kind d = {.b = g->dtype, .x = g->x_dtype, .narrow = g->narrow};
    d.depth = g->narrow ? 2 : hir_panel_depth(g->dtype);
    d.outputs = (unsigned)hir_panel_rows(g->narrow ? HIR_LAYOUT_NARROW : HIR_LAYOUT_PANEL);
    choose_tile(&d, e->level, g->narrow);
    d.keeps = g->widened != NULL;
    return d;
}

/* Elements of a panel per step of k, and their bytes. */
unsigned tile_line(const tile_kind *d) {
    return d->outputs * d->depth;
}

unsigned tile_line_bytes(const tile_kind *d) {
    return tile_line(d) * (unsigned)hir_dtype_bytes(d->b);
}

static const char *strip_name(hcg_emit *e, const tile_kind *d) {
    const char *name =
        d->across ? hd_printf(e->arena, "across%lld", (long long)d->across) : "strip";
    if (d->across && d->stride != d->across)
        name = hd_printf(e->arena, "%s_of%lld", name, (long long)d->stride);
    return d->outputs == HIR_PANEL ? name : hd_printf(e->arena, "%s_by%u", name, d->outputs);
}

unsigned tile_panel_vectors(const hcg_emit *e, const tile_kind *d) {
    return (d->strip ? d->outputs : HIR_PANEL) / e->level->lanes;
}

unsigned tile_own_panels(const tile_kind *d) {
    return d->vectors && !d->first ? d->panels - 1 : d->panels;
}

/* A name for the step's types and panel, whatever the number of panels. */
const char *tile_panel_name(hcg_emit *e, const tile_kind *d) {
    const char *b = hir_dtype_name(d->b);
    if (d->across && !d->strip)
        return tile_is_dot(d) ? "outer_bf16" : "outer"; /* of the level's tile */
    if (d->strip) return strip_name(e, d);
    if (d->narrow) return hd_printf(e->arena, "%s_narrow", b);
    if (d->squares) return hd_printf(e->arena, "%s_squares", b);
    if (d->keeps) return hd_printf(e->arena, "%s_kept", b);
    if (d->kept) return hd_printf(e->arena, "%s_widened", b);
    return d->x == HIR_F32 ? b : hd_printf(e->arena, "%s_%s", b, hir_dtype_name(d->x));
}

/* Narrow matrices have a gemm for each number of panels. */
const char *tile_kind_name(hcg_emit *e, const tile_kind *d) {
    const char *name = tile_panel_name(e, d);
    if (d->strip && d->outputs != HIR_PANEL)
        return hd_printf(e->arena, "%s_%ux%u", name, d->rows, d->panels * d->outputs);
    return d->narrow ? hd_printf(e->arena, "%s%u", name, d->panels) : name;
}

bool tile_is_dot(const tile_kind *d) {
    return d->x == HIR_BF16;
}

/* Rounds of multiply-adds that a step takes. */
unsigned tile_rounds(const tile_kind *d) {
    return tile_is_dot(d) || d->narrow ? 1 : d->depth;
}

/* &b[step][vector v] */
LLVMValueRef tile_step_place(hcg_emit *e, const tile_kind *d, LLVMValueRef b, LLVMValueRef step,
                             unsigned v) {
    const unsigned per_panel = tile_panel_vectors(e, d);
    LLVMValueRef at = hcg_at(e, hcg_element(e, d->b), b, hcg_mul_const(e, step, tile_line(d)));
    return hcg_at(e, hcg_element(e, d->b), at, hcg_i64(e, v * (tile_line(d) / per_panel)));
}

/* A vector of b for one round: in pairs, the lower or the upper half of each word, or both. */
LLVMValueRef tile_load_b(hcg_emit *e, const tile_kind *d, LLVMValueRef p, unsigned round) {
    if (d->depth == 1 || d->narrow) return hcg_load(e, d->b, p, NULL);
    LLVMTypeRef type = LLVMVectorType(e->i32, e->level->lanes);
    LLVMValueRef words = LLVMBuildLoad2(e->b, type, p, "");
    LLVMSetAlignment(words, 4);
    if (tile_is_dot(d)) return words;
    if (round)
        words = LLVMBuildAnd(e->b, words, hcg_int_like(type, 0xffff0000), "");
    else
        words = LLVMBuildShl(e->b, words, hcg_int_like(type, 16), "");
    return LLVMBuildBitCast(e->b, words, e->vec, "");
}

/* Two floats in even and in odd lanes. */
static LLVMValueRef splat_two(hcg_emit *e, LLVMValueRef p) {
    LLVMTypeRef type = LLVMVectorType(e->f64, e->level->lanes / 2);
    LLVMTypeRef lanes = LLVMVectorType(e->i32, e->level->lanes / 2);
    LLVMValueRef both = LLVMBuildLoad2(e->b, e->f64, p, "");
    LLVMSetAlignment(both, 4);
    LLVMValueRef none = LLVMGetPoison(type), first = LLVMConstInt(e->i32, 0, false);
    LLVMValueRef v = LLVMBuildInsertElement(e->b, none, both, first, "");
    v = LLVMBuildShuffleVector(e->b, v, none, LLVMConstNull(lanes), "");
    return LLVMBuildBitCast(e->b, v, e->vec, "");
}

/* The element, or pair, of the row x that it is multiplied with, in all lanes. */
LLVMValueRef tile_load_x(hcg_emit *e, const tile_kind *d, LLVMValueRef x, LLVMValueRef step,
                         unsigned offset, unsigned round) {
    const int64_t stride = d->across ? d->stride * d->depth : d->depth;
    LLVMValueRef at = hcg_at(e, hcg_element(e, d->x), x, hcg_mul_const(e, step, stride));
    at = hcg_at(e, hcg_element(e, d->x), at, hcg_i64(e, offset * stride + round));
    if (d->narrow) return splat_two(e, at);
    LLVMValueRef one =
        tile_is_dot(d) ? LLVMBuildLoad2(e->b, e->f32, at, "") : hcg_load_scalar(e, HIR_F32, at);
    LLVMSetAlignment(one, 4);
    return hcg_splat_value(e, one);
}

LLVMValueRef tile_multiply_add(hcg_emit *e, const tile_kind *d, LLVMValueRef x, LLVMValueRef b,
                               LLVMValueRef sum) {
    if (!tile_is_dot(d)) return hcg_fma(e, x, b, sum);
    LLVMTypeRef pairs = LLVMVectorType(LLVMBFloatTypeInContext(e->cx), 2 * e->level->lanes);
    LLVMTypeRef types[] = {e->vec, pairs};
    LLVMValueRef args[] = {sum, LLVMBuildBitCast(e->b, b, pairs, ""),
                           LLVMBuildBitCast(e->b, x, pairs, "")};
    if (e->level->lanes == HIR_PANEL)
        return hcg_intrinsic(e, "llvm.x86.avx512bf16.dpbf16ps.512", NULL, 0, args, 3);
    return hcg_intrinsic(e, "llvm.aarch64.neon.bfdot", types, 2, args, 3);
}

/* Adds sums of even and of odd elements, side by side in n vectors, which gives half as many
 * vectors; a vector left over gives half a vector. Returns how many there are. */
unsigned tile_join_sums(hcg_emit *e, LLVMValueRef *acc, unsigned n) {
    for (unsigned i = 0; i < n; i += 2) {
        LLVMValueRef v[2], other = acc[i + 1 < n ? i + 1 : i], lane[HIR_PANEL];
        const unsigned lanes = e->level->lanes / (i + 1 < n ? 1 : 2);
        for (unsigned odd = 0; odd < 2; odd++) {
            for (unsigned j = 0; j < lanes; j++)
                lane[j] = LLVMConstInt(e->i32, 2 * j + odd, false);
            v[odd] = LLVMBuildShuffleVector(e->b, acc[i], other, LLVMConstVector(lane, lanes), "");
        }
        acc[i / 2] = hcg_fadd(e, v[0], v[1]);
    }
    return (n + 1) / 2;
}

/* ---- two rows of x and two outputs at a time ------------------------------------------------- */
/* Tiles of sums by BFMMLA (aarch64, FEAT_BF16): an instruction multiplies 2 rows of 4 elements of x
 * by 4 elements of 2 outputs, and adds to four sums.
 *
 *     sum[i][j] += x[i][0..4) . w[j][0..4)      i, j < 2
 *
 * Panels hold pairs along K, an output in each word: the same words of two steps side by side are
 * what an instruction reads of two outputs. Of x it reads half a vector from each of two rows. If
 * the number of rows is odd, the last row is multiplied twice and one of its sums is not used; if
 * the number of steps is odd, the last is filled up with zeros.
 *
 * Products are exact. Two of them are added and their sum is added to the accumulator, then
 * likewise the other two: each addition rounds to odd (if anything is lost the last bit becomes 1),
 * so that it is off by less than 2^-23 of its result, up or down, twice what rounding to nearest
 * allows. Numbers below 2^-126 count as zeros (Arm Architecture Reference Manual, BFMMLA and
 * shared/functions/float/bfloat). */
enum { SQUARE_LANES = 4, SQUARE_ROWS = 2, SQUARE_TILE_ROWS = 4 };

/* Sums of four rows, two steps of the panels and x take 26 of 32 registers; with six rows LLVM
 * keeps sums in memory. */
void tile_choose_squares(const hcg_emit *e, tile_kind *d) {
    if (d->x != HIR_BF16 || e->level->lanes != SQUARE_LANES || !hcg_has_feature(e->level, "bf16"))
        return;
    d->squares = true, d->rows = SQUARE_TILE_ROWS;
}

unsigned tile_square_sums(unsigned rows, unsigned width) {
    return (rows + 1) / SQUARE_ROWS * (SQUARE_ROWS * width);
}

static LLVMValueRef shuffle(hcg_emit *e, LLVMValueRef a, LLVMValueRef b, const unsigned *lane) {
    LLVMValueRef mask[SQUARE_LANES];
    for (unsigned i = 0; i < SQUARE_LANES; i++)
        mask[i] = LLVMConstInt(e->i32, lane[i], false);
    return LLVMBuildShuffleVector(e->b, a, b, LLVMConstVector(mask, SQUARE_LANES), "");
}

/* The elements of one row: those of two steps, or of one step and zeros. */
static LLVMValueRef load_row(hcg_emit *e, LLVMValueRef at, bool both) {
    LLVMTypeRef type = both ? e->f64 : e->i32;
    LLVMValueRef x = LLVMBuildLoad2(e->b, type, at, "");
    LLVMSetAlignment(x, 4);
    return both ? x : LLVMBuildBitCast(e->b, LLVMBuildZExt(e->b, x, e->i64, ""), e->f64, "");
}

static LLVMValueRef two_rows(hcg_emit *e, LLVMValueRef first, LLVMValueRef second, bool both) {
    LLVMValueRef x = LLVMGetPoison(LLVMVectorType(e->f64, SQUARE_ROWS));
    LLVMValueRef row = load_row(e, first, both);
    x = LLVMBuildInsertElement(e->b, x, row, LLVMConstInt(e->i32, 0, false), "");
    if (second != first) row = load_row(e, second, both);
    return LLVMBuildInsertElement(e->b, x, row, LLVMConstInt(e->i32, 1, false), "");
}

static LLVMValueRef add_square(hcg_emit *e, LLVMValueRef sum, LLVMValueRef x, LLVMValueRef b) {
    LLVMTypeRef elements = LLVMVectorType(LLVMBFloatTypeInContext(e->cx), 2 * SQUARE_LANES);
    LLVMValueRef args[] = {sum, LLVMBuildBitCast(e->b, x, elements, ""),
                           LLVMBuildBitCast(e->b, b, elements, "")};
    return hcg_intrinsic(e, "llvm.aarch64.neon.bfmmla", NULL, 0, args, 3);
}

void tile_add_squares(hcg_emit *e, unsigned rows, unsigned width, const LLVMValueRef *x,
                      const LLVMValueRef *b, const LLVMValueRef *next_b, LLVMValueRef *acc) {
    static const unsigned lanes[SQUARE_ROWS][SQUARE_LANES] = {{0, 4, 1, 5}, {2, 6, 3, 7}};
    LLVMValueRef pair[HCG_CARRY];
    for (unsigned r = 0; r < rows; r += SQUARE_ROWS)
        pair[r / SQUARE_ROWS] = two_rows(e, x[r], x[r + 1 < rows ? r + 1 : r], next_b != NULL);
    for (unsigned v = 0; v < width; v++) {
        LLVMValueRef next = next_b ? next_b[v] : LLVMConstNull(LLVMTypeOf(b[v]));
        for (unsigned half = 0; half < 2; half++) {
            LLVMValueRef two = shuffle(e, b[v], next, lanes[half]);
            for (unsigned r = 0; r < rows; r += SQUARE_ROWS) {
                LLVMValueRef *sum = &acc[r * width + 2 * v + half];
                *sum = add_square(e, *sum, pair[r / SQUARE_ROWS], two);
            }
        }
    }
}

void tile_part_squares(hcg_emit *e, unsigned rows, unsigned width, LLVMValueRef *acc) {
    static const unsigned lanes[SQUARE_ROWS][SQUARE_LANES] = {{0, 1, 4, 5}, {2, 3, 6, 7}};
    for (unsigned r = 0; r < rows; r += SQUARE_ROWS) {
        LLVMValueRef of_row[SQUARE_ROWS][HCG_CARRY];
        for (unsigned i = 0; i < SQUARE_ROWS; i++)
            for (unsigned v = 0; v < width; v++) {
                const LLVMValueRef *two = &acc[r * width + 2 * v];
                of_row[i][v] = shuffle(e, two[0], two[1], lanes[i]);
            }
        for (unsigned i = 0; i < SQUARE_ROWS && r + i < rows; i++)
            for (unsigned v = 0; v < width; v++)
                acc[(r + i) * width + v] = of_row[i][v];
    }
}
