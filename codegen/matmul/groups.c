/* The back end groups_as_f32 (matmul/groups.h): weights in groups as f32, in registers for one
 * row of x, whole panels in workspace for many; and single rows of a table of such weights. */
#include "codegen/matmul/groups.h"
#include "codegen/emit/shared.h"
#include "codegen/target/ahead.h"

#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"
#include "codegen/emit/stream.h"
#include "codegen/matmul/backends/vector/multiply_add.h"
#include "codegen/matmul/fp4.h"
#include "codegen/weights/quant.h"

enum {
    WORD = 4,         /* elements of a row that lie side by side */
    BLOCK_BYTES = 64, /* of a panel */
};

/* ---- a group --------------------------------------------------------------------------------- */
static unsigned vectors(const hcg_emit *e) {
    return HIR_PANEL / e->level->lanes;
}

static LLVMValueRef half_at(hcg_emit *e, LLVMValueRef group, unsigned v) {
    return hcg_load(e, HIR_F16, hcg_at_byte(e, group, 2 * (int64_t)(v * e->level->lanes)), NULL);
}

LLVMValueRef hcg_quant_scale(hcg_emit *e, hir_dtype dtype, LLVMValueRef group, unsigned v) {
    return dtype == HIR_MXFP4 ? hcg_fp4_scale(e, group, v) : half_at(e, group, v);
}

LLVMValueRef hcg_quant_least(hcg_emit *e, LLVMValueRef group, unsigned v) {
    return half_at(e, hcg_at_byte(e, group, 2 * HIR_PANEL), v);
}

LLVMValueRef hcg_quant_block(hcg_emit *e, hir_dtype dtype, LLVMValueRef group, unsigned block,
                             unsigned v) {
    int64_t at = (int64_t)hcg_group_first(dtype) + block * BLOCK_BYTES + v * e->level->lanes * WORD;
    LLVMTypeRef type = LLVMVectorType(e->i32, e->level->lanes);
    LLVMValueRef words = LLVMBuildLoad2(e->b, type, hcg_at_byte(e, group, at), "");
    LLVMSetAlignment(words, 16);
    return words;
}

void hcg_quant_prefetch(hcg_emit *e, hir_dtype dtype, LLVMValueRef group) {
    const hd_machine *m = &e->level->machine;
    for (int64_t at = 0; at < (int64_t)hcg_group_bytes(dtype); at += m->line)
        hcg_prefetch(e, group, hcg_prefetch_distance(m, HCG_AHEAD_GROUPS) + at);
}

/* q of element k (0 .. 31) of vector v as f32; q8: its sign included; mxfp4: twice its number.
 * `words` of k's block. */
static LLVMValueRef element(hcg_emit *e, hir_dtype dtype, LLVMValueRef words, unsigned k) {
    LLVMTypeRef type = LLVMTypeOf(words);
    LLVMValueRef q;
    if (dtype == HIR_MXFP4) return hcg_fp4_number(e, words, 8 * (k % WORD) + k % 8 / WORD * 4);
    if (dtype == HIR_Q8) { /* the byte to the top, its lowest sign bit back down */
        q = LLVMBuildXor(e->b, words, hcg_int_like(type, 0x80808080), "");
        q = LLVMBuildShl(e->b, q, hcg_int_like(type, 24 - 8 * (k % WORD)), "");
        q = LLVMBuildAShr(e->b, q, hcg_int_like(type, 24), "");
    } else {
        q = LLVMBuildLShr(e->b, words, hcg_int_like(type, 8 * (k % WORD) + k % 8 / WORD * 4), "");
        q = LLVMBuildAnd(e->b, q, hcg_int_like(type, 15), "");
    }
    return LLVMBuildSIToFP(e->b, q, e->vec, "");
}

static unsigned block_of(hir_dtype dtype, unsigned k) {
    return k / hcg_group_per_block(dtype);
}

/* q[k] for all k of a group, vector v. */
static void load_group(hcg_emit *e, hir_dtype dtype, LLVMValueRef group, unsigned v,
                       LLVMValueRef q[HIR_GROUP]) {
    LLVMValueRef words = NULL;
    for (unsigned k = 0; k < HIR_GROUP; k++) {
        unsigned block = block_of(dtype, k);
        if (!k || block != block_of(dtype, k - 1))
            words = hcg_quant_block(e, dtype, group, block, v);
        q[k] = element(e, dtype, words, k);
    }
}

/* ---- gemv ------------------------------------------------------------------------------------ */
enum { PACKED_ROW = (1 + HIR_GROUP) * 4 }; /* bytes of a group of x */

/* prepare(x, k, out) */
static hcg_shared prepare_function(hcg_emit *e) {
    LLVMTypeRef params[] = {e->ptr, e->i64, e->ptr};
    hcg_shared s;
    if (!hcg_shared_begin(e, "group_row", params, 3, &s)) return s;
    unsigned lanes = e->level->lanes;
    LLVMValueRef x = s.param[0], k = s.param[1];
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), k, hcg_i64(e, HIR_GROUP), "group", 0, NULL);
    LLVMValueRef group = LLVMBuildUDiv(e->b, l.index, hcg_i64(e, HIR_GROUP), "");
    LLVMValueRef out = hcg_at(e, e->i8, s.param[2], hcg_mul_const(e, group, PACKED_ROW)),
                 sum = NULL;
    for (unsigned i = 0; i < HIR_GROUP; i += lanes) {
        LLVMValueRef at = hcg_add(e, l.index, hcg_i64(e, i));
        LLVMValueRef left = hcg_sub(e, k, at);
        LLVMValueRef v = hcg_load(e, HIR_F32, hcg_at(e, e->f32, x, at), left);
        hcg_store(e, hcg_at_byte(e, out, 4 + 4 * (int64_t)i), v, NULL);
        sum = sum ? hcg_fadd(e, sum, v) : v;
    }
    hcg_store(e, out, hcg_sum_lanes(e, sum), NULL);
    hcg_loop_end(e, &l, NULL);
    hcg_shared_end(e, &s);
    return s;
}

/* acc[v] += sum over one group of x w = s sum x q + m sum x */
static void gemv_group(hcg_emit *e, hir_dtype dtype, LLVMValueRef x, LLVMValueRef group,
                       LLVMValueRef *acc) {
    for (unsigned v = 0; v < vectors(e); v++) {
        LLVMValueRef q[HIR_GROUP], chain[WORD], scale = hcg_quant_scale(e, dtype, group, v);
        load_group(e, dtype, group, v, q);
        for (unsigned k = 0; k < HIR_GROUP; k++) {
            LLVMValueRef at = hcg_at_byte(e, x, 4 + 4 * (int64_t)k);
            LLVMValueRef xs = hcg_splat_value(e, hcg_load_scalar(e, HIR_F32, at));
            chain[k % WORD] =
                k < WORD ? hcg_fmul(e, xs, q[k]) : hcg_fma(e, xs, q[k], chain[k % WORD]);
        }
        LLVMValueRef low = hcg_fadd(e, chain[0], chain[1]);
        LLVMValueRef sum = hcg_fadd(e, low, hcg_fadd(e, chain[2], chain[3]));
        acc[v] = hcg_fma(e, sum, scale, acc[v]);
        if (dtype != HIR_Q4) continue;
        LLVMValueRef of_x = hcg_splat_value(e, hcg_load_scalar(e, HIR_F32, x));
        acc[v] = hcg_fma(e, of_x, hcg_quant_least(e, group, v), acc[v]);
    }
}

/* gemv(x, groups, b, panels, out), x as `prepare` leaves it; `pages` of a panel: hcg_streamed */
static hcg_shared gemv_function(hcg_emit *e, hir_dtype dtype, int64_t pages) {
    LLVMTypeRef params[] = {e->ptr, e->i64, e->ptr, e->i64, e->ptr};
    hcg_shared s;
    const char *name = hd_printf(e->arena, "gemv_%s", hir_dtype_name(dtype));
    if (pages) name = hd_printf(e->arena, "%s_pages_%ld", name, (long)pages);
    if (!hcg_shared_begin(e, name, params, 5, &s)) return s;
    LLVMValueRef groups = s.param[1], acc[4], bytes = hcg_i64(e, (int64_t)hcg_group_bytes(dtype));
    LLVMValueRef panel_bytes = hcg_mul(e, groups, bytes);
    hcg_loop lp = hcg_loop_begin(e, hcg_i64(e, 0), s.param[3], hcg_i64(e, 1), "panel", 0, NULL);
    LLVMValueRef b = hcg_at(e, e->i8, s.param[2], hcg_mul(e, lp.index, panel_bytes));
    for (unsigned v = 0; v < vectors(e); v++)
        acc[v] = LLVMConstNull(e->vec);
    const hcg_streamed w = {b, groups, 1, (int64_t)hcg_group_bytes(dtype), pages};
    hcg_stream lg = hcg_stream_begin(e, &w, "group", vectors(e), acc);
    LLVMValueRef group = hcg_at(e, e->i8, b, hcg_mul(e, lg.step.index, bytes));
    LLVMValueRef x = hcg_at(e, e->i8, s.param[0], hcg_mul_const(e, lg.step.index, PACKED_ROW));
    for (unsigned v = 0; v < vectors(e); v++)
        acc[v] = lg.step.carried[v];
    hcg_quant_prefetch(e, dtype, group);
    gemv_group(e, dtype, x, group, acc);
    hcg_stream_end(e, &lg, acc);
    LLVMValueRef out = hcg_at(e, e->f32, s.param[4], hcg_mul_const(e, lp.index, HIR_PANEL));
    for (unsigned v = 0; v < vectors(e); v++)
        hcg_store(e, hcg_at(e, e->f32, out, hcg_i64(e, v * e->level->lanes)), lg.page.carried[v],
                  NULL);
    hcg_loop_end(e, &lp, NULL);
    hcg_shared_end(e, &s);
    return s;
}

/* ---- as f32 ---------------------------------------------------------------------------------- */
/* w = s q (+ m); s q is exact, so that both forms round once. */
static LLVMValueRef number(hcg_emit *e, hir_dtype dtype, LLVMValueRef q, LLVMValueRef scale,
                           LLVMValueRef least) {
    return dtype == HIR_Q4 ? hcg_fma(e, q, scale, least) : hcg_fmul(e, q, scale);
}

void hcg_quant_numbers(hcg_emit *e, hir_dtype dtype, LLVMValueRef group, unsigned v,
                       LLVMValueRef w[HIR_GROUP]) {
    LLVMValueRef scale = hcg_quant_scale(e, dtype, group, v);
    LLVMValueRef least = dtype == HIR_Q4 ? hcg_quant_least(e, group, v) : NULL;
    load_group(e, dtype, group, v, w);
    for (unsigned k = 0; k < HIR_GROUP; k++)
        w[k] = number(e, dtype, w[k], scale, least);
}

/* widen(b, groups, out): a panel as [groups * HIR_GROUP][16] f32 */
static hcg_shared widen_function(hcg_emit *e, hir_dtype dtype) {
    LLVMTypeRef params[] = {e->ptr, e->i64, e->ptr};
    hcg_shared s;
    const char *name = hd_printf(e->arena, "widen_%s", hir_dtype_name(dtype));
    if (!hcg_shared_begin(e, name, params, 3, &s)) return s;
    LLVMValueRef bytes = hcg_i64(e, (int64_t)hcg_group_bytes(dtype)), w[HIR_GROUP];
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), s.param[1], hcg_i64(e, 1), "group", 0, NULL);
    LLVMValueRef group = hcg_at(e, e->i8, s.param[0], hcg_mul(e, l.index, bytes));
    LLVMValueRef size = hcg_i64(e, HIR_GROUP * HIR_PANEL);
    LLVMValueRef out = hcg_at(e, e->f32, s.param[2], hcg_mul(e, l.index, size));
    hcg_quant_prefetch(e, dtype, group);
    for (unsigned v = 0; v < vectors(e); v++) {
        hcg_quant_numbers(e, dtype, group, v, w);
        for (unsigned k = 0; k < HIR_GROUP; k++) {
            int64_t at = (int64_t)k * HIR_PANEL + v * e->level->lanes;
            hcg_store(e, hcg_at(e, e->f32, out, hcg_i64(e, at)), w[k], NULL);
        }
    }
    hcg_loop_end(e, &l, NULL);
    hcg_shared_end(e, &s);
    return s;
}

/* Panels one behind the other in workspace, [k][16] each: the last group of each may reach beyond,
 * into the place of the next, which is written after it. */
static void widen_panels(hcg_emit *e, const hcg_product *p, const hcg_panels *b) {
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), b->n, hcg_i64(e, 1), "widen", 0, NULL);
    LLVMValueRef from = hcg_mul_const(e, l.index, hcg_panel_bytes(b->dtype, p->k));
    LLVMValueRef to = hcg_mul_const(e, l.index, p->k * HIR_PANEL);
    LLVMValueRef args[] = {hcg_at(e, e->i8, b->w, from), hcg_i64(e, hcg_groups(p->k)),
                           hcg_at(e, e->f32, p->panel_workspace, to)};
    hcg_shared f = widen_function(e, b->dtype);
    hcg_shared_call(e, &f, args, 3);
    hcg_loop_end(e, &l, NULL);
}

/* row(panel, row in it, k, out): element by element, as a call reads one row a token */
static hcg_shared row_function(hcg_emit *e, hir_dtype dtype) {
    LLVMTypeRef params[] = {e->ptr, e->i64, e->i64, e->ptr};
    hcg_shared s;
    const char *name = hd_printf(e->arena, "row_%s", hir_dtype_name(dtype));
    if (!hcg_shared_begin(e, name, params, 4, &s)) return s;
    LLVMValueRef row = s.param[1], at_half = LLVMBuildShl(e->b, row, hcg_i64(e, 1), "");
    int64_t bytes = (int64_t)hcg_group_bytes(dtype);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), s.param[2], hcg_i64(e, 1), "k", 0, NULL);
    LLVMValueRef k = l.index, within = LLVMBuildAnd(e->b, k, hcg_i64(e, HIR_GROUP - 1), "");
    LLVMValueRef g = LLVMBuildLShr(e->b, k, hcg_i64(e, 5), "");
    LLVMValueRef group = hcg_at(e, e->i8, s.param[0], hcg_mul_const(e, g, bytes));
    LLVMValueRef halves = hcg_at(e, e->i8, group, at_half);
    LLVMValueRef scale = dtype == HIR_MXFP4 ? hcg_fp4_scale_at(e, hcg_at(e, e->i8, group, row))
                                            : hcg_load_scalar(e, HIR_F16, halves);
    const int64_t per_block = hcg_group_per_block(dtype);
    LLVMValueRef block = LLVMBuildUDiv(e->b, within, hcg_i64(e, per_block), "");
    LLVMValueRef at = LLVMBuildShl(e->b, block, hcg_i64(e, 6), "");
    at = LLVMBuildAdd(e->b, at, LLVMBuildShl(e->b, row, hcg_i64(e, 2), ""), "");
    at = LLVMBuildAdd(e->b, at, LLVMBuildAnd(e->b, k, hcg_i64(e, WORD - 1), ""), "");
    at = LLVMBuildAdd(e->b, at, hcg_i64(e, (int64_t)hcg_group_first(dtype)), "");
    LLVMValueRef q = LLVMBuildLoad2(e->b, e->i8, hcg_at(e, e->i8, group, at), "q");
    q = LLVMBuildZExt(e->b, q, e->i32, "");
    LLVMValueRef least = NULL;
    if (dtype == HIR_Q8) {
        q = hcg_sub(e, q, LLVMConstInt(e->i32, 128, false));
    } else {
        LLVMValueRef half = LLVMBuildAnd(e->b, k, hcg_i64(e, WORD), ""); /* 4: the high half */
        q = LLVMBuildLShr(e->b, q, LLVMBuildTrunc(e->b, half, e->i32, ""), "");
        q = LLVMBuildAnd(e->b, q, LLVMConstInt(e->i32, 15, false), "");
    }
    if (dtype == HIR_Q4) least = hcg_load_scalar(e, HIR_F16, hcg_at_byte(e, halves, 2 * HIR_PANEL));
    q = dtype == HIR_MXFP4 ? hcg_fp4_number(e, q, 0) : LLVMBuildSIToFP(e->b, q, e->f32, "");
    hcg_store(e, hcg_at(e, e->f32, s.param[3], k), number(e, dtype, q, scale, least), NULL);
    hcg_loop_end(e, &l, NULL);
    hcg_shared_end(e, &s);
    return s;
}

void hcg_quant_row(hcg_emit *e, hir_dtype dtype, LLVMValueRef table, LLVMValueRef row, int64_t k,
                   LLVMValueRef out) {
    LLVMValueRef panel = LLVMBuildLShr(e->b, row, hcg_i64(e, 4), "");
    panel = hcg_mul_const(e, panel, hcg_panel_bytes(dtype, k));
    LLVMValueRef within = LLVMBuildAnd(e->b, row, hcg_i64(e, HIR_PANEL - 1), "");
    LLVMValueRef args[] = {hcg_at(e, e->i8, table, panel), within, hcg_i64(e, k), out};
    hcg_shared f = row_function(e, dtype);
    hcg_shared_call(e, &f, args, 4);
}

/* ---- the back end ---------------------------------------------------------------------------- */
int64_t hcg_groups(int64_t k) {
    return (k + HIR_GROUP - 1) / HIR_GROUP;
}

int64_t hcg_panel_bytes(hir_dtype dtype, int64_t k) {
    int64_t depth = hir_panel_depth(dtype), along_k = (k + depth - 1) / depth * depth;
    if (!hir_is_quantised(dtype)) return along_k * HIR_PANEL * (int64_t)hir_dtype_bytes(dtype);
    return hcg_groups(k) * (int64_t)hcg_group_bytes(dtype);
}

static void begin_groups(hcg_emit *e, hcg_product *p) {
    if (p->decode) {
        p->x_workspace = hcg_scratch(e, (uint64_t)hcg_groups(p->k) * PACKED_ROW);
        return;
    }
    uint64_t elements = (uint64_t)p->panels * (uint64_t)p->k + HIR_GROUP;
    p->panel_workspace = hcg_scratch(e, elements * HIR_PANEL * 4);
}

static void prepare_groups(hcg_emit *e, hcg_product *p) {
    if (!p->decode) return;
    LLVMValueRef args[] = {p->x, hcg_i64(e, p->k), p->x_workspace};
    hcg_shared f = prepare_function(e);
    hcg_shared_call(e, &f, args, 3);
}

static void groups_gemm(hcg_emit *e, const hcg_product *p, const hcg_panels *b) {
    widen_panels(e, p, b);
    hcg_gemm g = hcg_vector_product(p, b, HIR_F32);
    g.dtype = HIR_F32, g.b = g.next = p->panel_workspace;
    hcg_call_gemm(e, &g);
}

static void groups_gemv(hcg_emit *e, const hcg_product *p, const hcg_panels *b) {
    LLVMValueRef groups = hcg_i64(e, hcg_groups(p->k));
    LLVMValueRef args[] = {p->x_workspace, groups, b->w, b->n, b->sums};
    const int64_t pages = hcg_stream_pages(hcg_panel_bytes(b->dtype, p->k));
    hcg_shared f = gemv_function(e, b->dtype, pages);
    hcg_shared_call(e, &f, args, 5);
}

const hcg_backend hcg_groups_as_f32 = {
    .name = "groups_as_f32",
    .tile_panels = hcg_vector_panels,
    .block_rows = hcg_vector_rows,
    .tile_rows = 1,
    .begin = begin_groups,
    .prepare = prepare_groups,
    .gemm = groups_gemm,
    .gemv = groups_gemv,
};
