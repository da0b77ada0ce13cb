/* One group of a tile of byte products (int8/group.h). */
#include "codegen/matmul/backends/int8/group.h"

#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"
#include "codegen/emit/packed.h"
#include "codegen/emit/stream.h"

enum {
    WORD = 4,
    STEPS = HIR_GROUP / WORD, /* steps of a group */
    SUMS = HCG_INT8_ROWS * HCG_INT8_VECTORS,
    SHIFTED = 0x4b400000, /* the bits of SHIFT as f32, in whose last places whole numbers lie */
};

#define SHIFT 0x1.8p23

/* With 32 registers the integer and float sums of two vectors fit; signs take more registers. */
unsigned hcg_int8_vectors(const hcg_emit *e, const hcg_int8_tile *t, unsigned all) {
    bool signs = t->dtype == HIR_Q8 && !t->with->dot;
    unsigned most = all < HCG_INT8_VECTORS ? all : HCG_INT8_VECTORS;
    return t->rows == 1 || (e->level->registers >= 32 && !signs) ? most : 1;
}

/* ---- x --------------------------------------------------------------------------------------- */
LLVMValueRef hcg_int8_for_all(hcg_emit *e, LLVMValueRef p, int64_t at, LLVMTypeRef type) {
    LLVMValueRef v = LLVMBuildLoad2(e->b, type, hcg_at_byte(e, p, at), "");
    LLVMSetAlignment(v, 4);
    LLVMTypeRef wide = LLVMVectorType(type, e->level->lanes);
    LLVMValueRef one =
        LLVMBuildInsertElement(e->b, LLVMGetPoison(wide), v, LLVMConstInt(e->i32, 0, false), "");
    LLVMTypeRef mask = LLVMVectorType(e->i32, e->level->lanes);
    return LLVMBuildShuffleVector(e->b, one, LLVMGetPoison(wide), LLVMConstNull(mask), "");
}

/* One of the slab's tables of 4 bytes a row, for all lanes. */
static LLVMValueRef of_row(hcg_emit *e, const hcg_int8_tile *t, unsigned table, unsigned row,
                           LLVMTypeRef type) {
    const int64_t at = ((int64_t)table * t->form.width + row) * 4;
    return hcg_int8_for_all(e, t->x, hcg_int8_before_tables(t->form) + at, type);
}
static LLVMTypeRef words_type(hcg_emit *e) {
    return LLVMVectorType(e->i32, e->level->lanes);
}

static LLVMValueRef as_bytes(hcg_emit *e, LLVMValueRef words) {
    return LLVMBuildBitCast(e->b, words, LLVMVectorType(e->i8, WORD * e->level->lanes), "");
}

/* The four bytes of each output that step `s` multiplies: u of q8 and fp4, q of q4, and of q8
 * where bytes are signed. `in_place`: upper halves of bytes stay where they are, 16 q. */
static LLVMValueRef step_words(hcg_emit *e, const hcg_int8_tile *t, unsigned vector, unsigned s,
                               bool in_place) {
    unsigned v = (t->first + vector) % (HIR_PANEL / e->level->lanes);
    if (t->dtype == HIR_Q8) {
        LLVMValueRef u = hcg_quant_block(e, t->dtype, t->group[vector], s, v);
        return t->with->is_signed
                   ? LLVMBuildXor(e->b, u, hcg_int_like(LLVMTypeOf(u), 0x80808080), "")
                   : u;
    }
    LLVMValueRef words = hcg_quant_block(e, t->dtype, t->group[vector], s / 2, v);
    LLVMTypeRef type = LLVMTypeOf(words);
    if (s % 2 && in_place) return LLVMBuildAnd(e->b, words, hcg_int_like(type, 0xf0f0f0f0), "");
    if (s % 2) words = LLVMBuildLShr(e->b, words, hcg_int_like(type, 4), "");
    words = LLVMBuildAnd(e->b, words, hcg_int_like(type, 0x0f0f0f0f), "");
    return hcg_is_fp4(t->dtype) ? hcg_fp4_bytes(e, t->with->lookup, words) : words;
}

/* The words of x that step `s` multiplies. */
static LLVMValueRef words_of_x(hcg_emit *e, const hcg_int8_tile *t, unsigned s, unsigned row) {
    return hcg_int8_for_all(e, t->x, ((int64_t)s * t->form.width + row) * WORD, e->i32);
}

/* Steps that have a scale in common: all of a group, or half of them. */
typedef struct span {
    unsigned part, first, end;
} span;

/* What the sum of u p of a row starts from; NULL stands for 0. */
static LLVMValueRef start_of(hcg_emit *e, const hcg_int8_tile *t, unsigned part, unsigned row) {
    if (t->dtype == HIR_Q4 || (t->dtype == HIR_Q8 && t->with->is_signed)) return NULL;
    if (hcg_group_scales(t->dtype) > 1) return of_row(e, t, HCG_INT8_TABLES + part, row, e->i32);
    LLVMValueRef start = of_row(e, t, 2, row, e->i32); /* -128 sum p */
    if (t->dtype == HIR_Q8) return start;
    LLVMTypeRef type = LLVMTypeOf(start);
    start = LLVMBuildAShr(e->b, start, hcg_int_like(type, 5), "");
    return LLVMBuildMul(e->b, start, hcg_int_like(type, HCG_FP4_ADDED / 4), "");
}

/* ---- VNNI and sdot --------------------------------------------------------------------------- */
static LLVMValueRef add_dots(hcg_emit *e, const hcg_int8_tile *t, LLVMValueRef sum, LLVMValueRef q,
                             LLVMValueRef x) {
    LLVMValueRef words[] = {sum, q, x}, bytes[] = {sum, as_bytes(e, q), as_bytes(e, x)};
    LLVMTypeRef types[] = {LLVMTypeOf(sum), LLVMTypeOf(bytes[1])};
    if (t->with->is_signed) return hcg_intrinsic(e, t->with->dot, types, 2, bytes, 3);
    return hcg_intrinsic(e, t->with->dot, NULL, 0, words, 3);
}

/* Where sums are few, each has several chains, so that other products hide the latency of one; the
 * halves of a group are chains of their own. At most 32 * 255 * 127 < 2^21 + 2^19.
 *
 * Chains of q4 that have odd steps only, the upper halves of bytes, sum 16 q p and are shifted once
 * at the end, all together, which saves three of 47 instructions for a group of one row. */
static void sum_dots(hcg_emit *e, const hcg_int8_tile *t, span of, LLVMValueRef *ints) {
    unsigned n = t->rows * t->vectors, all = n * hcg_group_scales(t->dtype);
    const unsigned chains = all >= HCG_INT8_CHAINS ? 1 : HCG_INT8_CHAINS / all;
    const bool in_place = t->dtype == HIR_Q4 && !t->with->is_signed && chains % 2 == 0;
    for (unsigned i = 0; i < n * chains; i++)
        ints[i] = LLVMConstNull(words_type(e));
    for (unsigned r = 0; r < t->rows; r++) {
        LLVMValueRef start = start_of(e, t, of.part, r);
        for (unsigned v = 0; v < t->vectors && start; v++)
            ints[r * t->vectors + v] = start;
    }
    for (unsigned s = of.first; s < of.end; s++) {
        LLVMValueRef q[HCG_INT8_VECTORS];
        for (unsigned v = 0; v < t->vectors; v++)
            q[v] = step_words(e, t, v, s, in_place);
        for (unsigned r = 0; r < t->rows; r++) {
            LLVMValueRef x = words_of_x(e, t, s, r);
            for (unsigned v = 0; v < t->vectors; v++) {
                LLVMValueRef *sum = &ints[s % chains * n + r * t->vectors + v];
                *sum = add_dots(e, t, *sum, q[v], x);
            }
        }
    }
    for (unsigned half = chains / 2; half; half /= 2)
        for (unsigned i = 0; i < half * n; i++) {
            LLVMValueRef other = ints[i + half * n];
            if (half == 1 && in_place)
                other = LLVMBuildAShr(e->b, other, hcg_int_like(words_type(e), 4), "");
            ints[i] = LLVMBuildAdd(e->b, ints[i], other, "");
        }
}

/* ---- maddubs --------------------------------------------------------------------------------- */
static LLVMValueRef pairs(hcg_emit *e, const hcg_int8_tile *t, LLVMValueRef u, LLVMValueRef p) {
    LLVMValueRef args[] = {u, p};
    return hcg_intrinsic(e, t->with->maddubs, NULL, 0, args, 2);
}

static LLVMValueRef fours(hcg_emit *e, const hcg_int8_tile *t, LLVMValueRef halves) {
    LLVMValueRef args[] = {halves, hcg_int_like(LLVMTypeOf(halves), 1)};
    return hcg_intrinsic(e, t->with->maddwd, NULL, 0, args, 2);
}

static LLVMValueRef as_halves(hcg_emit *e, LLVMValueRef words) {
    return LLVMBuildBitCast(e->b, words, LLVMVectorType(e->i16, 2 * e->level->lanes), "");
}

/* sum + more. Where registers are few the additions stay as they are: LLVM would add sums of steps
 * in pairs, which gives the same number and takes twice the registers. */
static LLVMValueRef add_in_order(hcg_emit *e, const hcg_int8_tile *t, LLVMValueRef sum,
                                 LLVMValueRef more) {
    sum = LLVMBuildAdd(e->b, sum, more, "");
    if (t->rows == 1) return sum;
    sum = LLVMBuildBitCast(e->b, sum, e->vec, "");
    sum = hcg_intrinsic(e, "llvm.arithmetic.fence", &e->vec, 1, &sum, 1);
    return LLVMBuildBitCast(e->b, sum, LLVMTypeOf(more), "");
}

/* Some steps, without widening. starts: what sums of rows start from; NULL: 0. */
static void sum_steps(hcg_emit *e, const hcg_int8_tile *t, unsigned first, unsigned end,
                      const LLVMValueRef *starts, LLVMValueRef *halves) {
    for (unsigned s = first; s < end; s++) {
        LLVMValueRef q[HCG_INT8_VECTORS];
        if (t->rows > 1) hcg_keep_order(e);
        for (unsigned v = 0; v < t->vectors; v++)
            q[v] = as_bytes(e, step_words(e, t, v, s, false));
        for (unsigned r = 0; r < t->rows; r++) {
            LLVMValueRef x = as_bytes(e, words_of_x(e, t, s, r));
            for (unsigned v = 0; v < t->vectors; v++) {
                LLVMValueRef *sum = &halves[r * t->vectors + v], two = pairs(e, t, q[v], x);
                LLVMValueRef before = s > first ? *sum : starts ? starts[r] : NULL;
                *sum = before ? add_in_order(e, t, before, two) : two;
            }
        }
    }
}

/* All products that a lane of 16 bits gathers, 16 of a group, stay below 2^15, so that only their
 * sum is widened; |p| <= 128.
 *
 *   q4     u = q in 0 .. 15: 16 * 15 * 128 = 30720
 *   mxfp4  u = w + 12, |w| <= 12. The sum starts from -12 sum p of the lane's elements: what it
 *          holds is sum w p of those that were added and -12 sum p of the others, within
 *          16 * 12 * 128 = 24576 all the way, and sum w p at the end.
 *   nvfp4  8 products, of half a group, stay within 8 * 24 * 128 = 24576. */
static void sum_small(hcg_emit *e, const hcg_int8_tile *t, span of, LLVMValueRef *ints) {
    const bool of_pairs = t->dtype == HIR_MXFP4;
    LLVMValueRef halves[SUMS], starts[HCG_INT8_ROWS];
    for (unsigned r = 0; r < t->rows && of_pairs; r++)
        starts[r] = as_halves(e, of_row(e, t, 2, r, e->i32));
    sum_steps(e, t, of.first, of.end, of_pairs ? starts : NULL, halves);
    for (unsigned i = 0; i < t->rows * t->vectors; i++) {
        LLVMValueRef before = of_pairs ? NULL : start_of(e, t, of.part, i / t->vectors);
        ints[i] = fours(e, t, halves[i]);
        if (before) ints[i] = LLVMBuildAdd(e->b, before, ints[i], "");
    }
}

/* p with the sign of q: -p where q < 0. Where q is 0 it does not matter. */
static LLVMValueRef with_sign(hcg_emit *e, const hcg_int8_tile *t, LLVMValueRef p, LLVMValueRef q) {
    LLVMValueRef args[] = {p, q}, zero = LLVMConstNull(LLVMTypeOf(q));
    if (t->with->sign) return hcg_intrinsic(e, t->with->sign, NULL, 0, args, 2);
    LLVMValueRef below = LLVMBuildICmp(e->b, LLVMIntSLT, q, zero, "");
    return LLVMBuildSelect(e->b, below, LLVMBuildSub(e->b, zero, p, ""), p, "");
}

/* q8: q p = |q| (p with the sign of q). |q| <= 128 (rows beyond N hold -128) and |p| <= 127, so
 * that two products are at most 2 * 128 * 127 = 32512 < 2^15; u p would reach 2 * 255 * 127 and
 * saturate. */
static void sum_signed(hcg_emit *e, const hcg_int8_tile *t, LLVMValueRef *ints) {
    LLVMTypeRef type = words_type(e), bytes = LLVMVectorType(e->i8, WORD * e->level->lanes);
    for (unsigned s = 0; s < STEPS; s++) {
        LLVMValueRef q[HCG_INT8_VECTORS], size[HCG_INT8_VECTORS];
        if (t->rows > 1) hcg_keep_order(e);
        for (unsigned v = 0; v < t->vectors; v++) {
            LLVMValueRef u = step_words(e, t, v, s, false);
            q[v] = as_bytes(e, LLVMBuildXor(e->b, u, hcg_int_like(type, 0x80808080), ""));
            LLVMValueRef args[] = {q[v], LLVMConstInt(e->i1, 0, false)};
            size[v] = hcg_intrinsic(e, "llvm.abs", &bytes, 1, args, 2);
        }
        for (unsigned r = 0; r < t->rows; r++) {
            LLVMValueRef x = as_bytes(e, words_of_x(e, t, s, r));
            for (unsigned v = 0; v < t->vectors; v++) {
                LLVMValueRef *sum = &ints[r * t->vectors + v];
                LLVMValueRef four = fours(e, t, pairs(e, t, size[v], with_sign(e, t, x, q[v])));
                *sum = s ? add_in_order(e, t, *sum, four) : four;
            }
        }
    }
}

/* ---- a group --------------------------------------------------------------------------------- */
/* floats += t s i, for halves of groups, whose sums start from SHIFTED. s i has 19 bits: it is
 * exact, and so is SHIFT s. */
static void add_half(hcg_emit *e, hcg_int8_tile *t, unsigned part, const LLVMValueRef *ints) {
    LLVMValueRef scale[HCG_INT8_VECTORS], shift[HCG_INT8_VECTORS];
    for (unsigned i = 0; i < t->vectors; i++) {
        unsigned v = (t->first + i) % (HIR_PANEL / e->level->lanes);
        scale[i] = hcg_quant_scale(e, t->dtype, t->group[i], v, part);
        shift[i] = hcg_fmul(e, scale[i], hcg_splat(e, -SHIFT));
    }
    for (unsigned r = 0; r < t->rows; r++) {
        LLVMValueRef step = of_row(e, t, 0, r, e->f32);
        for (unsigned v = 0; v < t->vectors; v++) {
            unsigned i = r * t->vectors + v;
            LLVMValueRef y = LLVMBuildBitCast(e->b, ints[i], e->vec, "");
            y = hcg_fma(e, y, scale[v], shift[v]);
            t->floats[i] = hcg_fma(e, y, step, t->floats[i]);
        }
    }
}

static void add_to_floats(hcg_emit *e, hcg_int8_tile *t, const LLVMValueRef *ints) {
    LLVMValueRef scale[HCG_INT8_VECTORS], least[HCG_INT8_VECTORS];
    for (unsigned i = 0; i < t->vectors; i++) {
        unsigned v = (t->first + i) % (HIR_PANEL / e->level->lanes);
        scale[i] = hcg_quant_scale(e, t->dtype, t->group[i], v, 0);
        least[i] = t->dtype == HIR_Q4 ? hcg_quant_least(e, t->group[i], v) : NULL;
    }
    for (unsigned r = 0; r < t->rows; r++) {
        LLVMValueRef of_x = t->dtype == HIR_Q4 ? of_row(e, t, 1, r, e->f32) : NULL;
        LLVMValueRef step = of_row(e, t, 0, r, e->f32);
        for (unsigned v = 0; v < t->vectors; v++) {
            unsigned i = r * t->vectors + v;
            LLVMValueRef y = LLVMBuildSIToFP(e->b, ints[i], e->vec, "");
            y = hcg_fmul(e, y, step);
            t->floats[i] = hcg_fma(e, y, scale[v], t->floats[i]);
            if (of_x) t->floats[i] = hcg_fma(e, of_x, least[v], t->floats[i]);
        }
    }
}

void hcg_int8_group(hcg_emit *e, hcg_int8_tile *t) {
    const unsigned parts = hcg_group_scales(t->dtype), steps = STEPS / parts;
    for (unsigned part = 0; part < parts; part++) {
        const span of = {part, part * steps, (part + 1) * steps};
        LLVMValueRef ints[SUMS * HCG_INT8_CHAINS] = {NULL};
        if (t->with->dot)
            sum_dots(e, t, of, ints);
        else if (t->dtype != HIR_Q8)
            sum_small(e, t, of, ints);
        else
            sum_signed(e, t, ints);
        if (parts > 1)
            add_half(e, t, part, ints);
        else
            add_to_floats(e, t, ints);
    }
}

/* ---- x --------------------------------------------------------------------------------------- */
/* y to the nearest integer, |y| < 2^22: adding SHIFT leaves it in the low bits. */
static LLVMValueRef nearest(hcg_emit *e, LLVMValueRef y) {
    LLVMTypeRef ints = LLVMVectorType(e->i32, e->level->lanes);
    LLVMValueRef shifted = hcg_fadd(e, y, hcg_splat(e, SHIFT));
    shifted = LLVMBuildBitCast(e->b, shifted, ints, "");
    return LLVMBuildSub(e->b, shifted, hcg_int_like(ints, SHIFTED), "");
}

/* Largest |x|, NaN if there is one: the bits of positive floats are ordered as these are, and those
 * of NaN come last. */
static LLVMValueRef largest(hcg_emit *e, const LLVMValueRef *x, unsigned n) {
    LLVMTypeRef ints = LLVMVectorType(e->i32, e->level->lanes);
    LLVMValueRef most = NULL;
    for (unsigned i = 0; i < n; i++) {
        LLVMValueRef args[] = {LLVMBuildBitCast(e->b, hcg_abs(e, x[i]), ints, ""), most};
        most = i ? hcg_intrinsic(e, "llvm.smax", &ints, 1, args, 2) : args[0];
    }
    most = hcg_intrinsic(e, "llvm.vector.reduce.smax", &ints, 1, &most, 1);
    return LLVMBuildBitCast(e->b, most, e->f32, "");
}

static LLVMValueRef sum_of_lanes(hcg_emit *e, LLVMValueRef v) {
    LLVMTypeRef type = LLVMTypeOf(v);
    return hcg_intrinsic(e, "llvm.vector.reduce.add", &type, 1, &v, 1);
}

/* -12 sum p of the first two and of the last two elements of each four, side by side. all: sums of
 * elements `lanes` apart; sum: of all. */
static LLVMValueRef pair_start(hcg_emit *e, LLVMValueRef all, LLVMValueRef sum) {
    LLVMValueRef keep[HIR_PANEL], added = LLVMConstInt(e->i32, (uint64_t)-HCG_FP4_ADDED, true);
    for (unsigned i = 0; i < e->level->lanes; i++)
        keep[i] = LLVMConstInt(e->i32, i % WORD < WORD / 2 ? 0 : UINT32_MAX, false);
    LLVMValueRef last = LLVMBuildAnd(e->b, all, LLVMConstVector(keep, e->level->lanes), "");
    last = hcg_mul(e, sum_of_lanes(e, last), added);
    LLVMValueRef first = hcg_sub(e, hcg_mul(e, sum, added), last);
    first = LLVMBuildAnd(e->b, first, LLVMConstInt(e->i32, UINT16_MAX, false), "");
    return LLVMBuildOr(e->b, LLVMBuildShl(e->b, last, LLVMConstInt(e->i32, 16, false), ""), first,
                       "");
}

hcg_int8_x hcg_int8_round(hcg_emit *e, LLVMValueRef x, LLVMValueRef n, unsigned with) {
    const unsigned lanes = e->level->lanes, vectors = HIR_GROUP / lanes;
    LLVMValueRef v[HIR_GROUP] = {NULL}, half[2] = {NULL}, sum;
    hcg_int8_x g = {0};
    for (unsigned i = 0; i < vectors; i++) {
        LLVMValueRef left = n ? hcg_sub(e, n, hcg_i64(e, i * lanes)) : NULL;
        v[i] = hcg_load(e, HIR_F32, hcg_at(e, e->f32, x, hcg_i64(e, i * lanes)), left);
    }
    LLVMValueRef most = largest(e, v, vectors), zero = LLVMConstReal(e->f32, 0);
    /* below, the inverse would not be finite; NaN is not below */
    LLVMValueRef small = LLVMBuildFCmp(e->b, LLVMRealOLT, most, LLVMConstReal(e->f32, 1e-30), "");
    LLVMValueRef t = hcg_fmul(e, most, LLVMConstReal(e->f32, 1.0 / 127));
    LLVMValueRef inverse = LLVMBuildFDiv(e->b, LLVMConstReal(e->f32, 127), most, "");
    g.step = LLVMBuildSelect(e->b, small, zero, t, "t");
    inverse = hcg_splat_value(e, LLVMBuildSelect(e->b, small, zero, inverse, ""));
    for (unsigned i = 0; i < vectors; i++) {
        LLVMValueRef p = nearest(e, hcg_fmul(e, v[i], inverse));
        LLVMValueRef *of = &half[2 * i / vectors];
        *of = *of ? LLVMBuildAdd(e->b, *of, p, "") : p;
        g.p[i] = p;
    }
    LLVMValueRef all = LLVMBuildAdd(e->b, half[0], half[1], "");
    if (with & HCG_INT8_HALVES) {
        half[0] = sum_of_lanes(e, half[0]), half[1] = sum_of_lanes(e, half[1]);
        sum = hcg_add(e, half[0], half[1]);
        for (unsigned i = 0; i < 2; i++) {
            LLVMValueRef added = LLVMConstInt(e->i32, (uint64_t)-HCG_FP4_ADDED, true);
            g.half_start[i] =
                hcg_add(e, hcg_mul(e, half[i], added), LLVMConstInt(e->i32, SHIFTED, false));
        }
    } else {
        sum = sum_of_lanes(e, all);
    }
    if (with & HCG_INT8_PAIRS) g.pair_start = pair_start(e, all, sum);
    g.of_x = hcg_fmul(e, LLVMBuildSIToFP(e->b, sum, e->f32, ""), g.step);
    g.start = hcg_mul(e, sum, LLVMConstInt(e->i32, (uint64_t)-128, true));
    return g;
}
