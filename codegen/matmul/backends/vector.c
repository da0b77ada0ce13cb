/* Back ends of vector multiply-adds, for weights of numbers and of groups. Products of many rows
 * are made by the matrix kernels (matmul/matrix.h).
 *
 *   multiply_add    f32 and f16, x where it lies
 *   groups_as_f32   q8, q4 and mxfp4: for one row of x integers become f32 in registers, for many
 *                   whole panels in workspace. x of one row is prepared, group after group along K:
 *                   sum x, then x[HIR_GROUP], zeros beyond K
 */
#include "codegen/matmul/backends/vector.h"

#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"
#include "codegen/emit/packed.h"
#include "codegen/emit/shared.h"
#include "codegen/emit/stream.h"

int64_t hcg_vector_panels(const hcg_level *level) {
    return hcg_tile_of(level)->panels;
}

int64_t hcg_vector_rows(const hcg_level *level, int64_t k) {
    return hcg_block_rows(level, (int64_t)sizeof(float) * k, hcg_vector_panels(level));
}

hcg_gemm hcg_vector_product(const hcg_product *p, const hcg_panels *b, hir_dtype x_dtype) {
    hcg_gemm g = {.dtype = b->dtype, .x_dtype = x_dtype, .narrow = b->narrow};
    g.x = p->x, g.ldx = p->ldx, g.rows = p->n_rows, g.k = p->length;
    g.b = b->w, g.panels = b->n, g.c = b->sums, g.ldc = b->ld, g.next = b->next;
    g.ld_touched = b->ld_touched;
    for (int i = 0; i < HCG_TOUCHED; i++)
        g.touched[i] = b->touched[i];
    return g;
}

/* ---- multiply_add ---------------------------------------------------------------------------- */
/* Widening f16 takes an instruction or two, which share ports with multiply-adds: blocks are widened
 * once for all slabs of rows (gemm.c). Without an instruction for it, widening takes some 20: then
 * panels are widened once per block of rows, and not once per tile even where rows are few. */
static bool widens_ahead(const hcg_emit *e, const hcg_product *p, hir_dtype dtype) {
    return dtype == HIR_F16 && !p->decode && !hcg_has_f16(e->level);
}

static void begin_multiply_add(hcg_emit *e, hcg_product *p) {
    if (p->decode || !(p->weights & 1u << HIR_F16)) return;
    uint64_t bytes = hcg_widened_bytes(e->level, HIR_F16);
    if (widens_ahead(e, p, HIR_F16)) bytes = (uint64_t)(p->panels * p->k * HIR_PANEL) * 4;
    if (bytes) p->panel_workspace = hcg_scratch(e, bytes);
}

int64_t hcg_wide_panels(const hcg_level *level) {
    return hcg_tile_of(level)->wide_rows ? HCG_WIDE_PANELS : hcg_vector_panels(level);
}

int64_t hcg_wide_unit(const hcg_level *level) {
    const unsigned wide = hcg_tile_of(level)->wide_rows;
    return wide ? wide : 1;
}

/* The panels as f32, in workspace. */
static LLVMValueRef widen_panels(hcg_emit *e, const hcg_product *p, const hcg_panels *b) {
    LLVMValueRef n = hcg_mul_const(e, p->length, HIR_PANEL);
    n = hcg_mul(e, b->n, n);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), n, hcg_i64(e, e->level->lanes), "widen", 0, NULL);
    LLVMValueRef from = hcg_at(e, hcg_element(e, b->dtype), b->w, l.index);
    LLVMValueRef v = hcg_load(e, b->dtype, from, NULL);
    hcg_store(e, hcg_at(e, e->f32, p->panel_workspace, l.index), v, NULL);
    hcg_loop_end(e, &l, NULL);
    return p->panel_workspace;
}

static void multiply_add_gemm(hcg_emit *e, const hcg_product *p, const hcg_panels *b) {
    hcg_gemm g = hcg_vector_product(p, b, HIR_F32);
    if (widens_ahead(e, p, b->dtype)) {
        g.b = widen_panels(e, p, b);
        g.dtype = HIR_F32;
    } else if (b->dtype == HIR_F16) {
        g.widened = p->panel_workspace;
    }
    hcg_call_gemm(e, &g);
}

static void multiply_add_gemv(hcg_emit *e, const hcg_product *p, const hcg_panels *b) {
    hcg_gemm g = hcg_vector_product(p, b, HIR_F32);
    hcg_call_gemv(e, &g);
}

const hcg_backend hcg_multiply_add = {
    .name = "multiply_add",
    .tile_panels = hcg_wide_panels,
    .block_rows = hcg_vector_rows,
    .row_unit = hcg_wide_unit,
    .tile_rows = 1,
    .prefetches = true,
    .begin = begin_multiply_add,
    .gemm = multiply_add_gemm,
    .gemv = multiply_add_gemv,
};

/* ---- groups_as_f32 --------------------------------------------------------------------------- */
static unsigned vectors(const hcg_emit *e) {
    return HIR_PANEL / e->level->lanes;
}

enum {
    WORD = 4,                         /* elements of a row that lie side by side */
    PACKED_ROW = (1 + HIR_GROUP) * 4, /* bytes of a group of x */
};

/* group_row(x, k, out) */
static hcg_shared group_row_function(hcg_emit *e) {
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

/* The sum of x q over n elements from `first` on. */
static LLVMValueRef part_sum(hcg_emit *e, LLVMValueRef x, const LLVMValueRef *q, unsigned first,
                             unsigned n) {
    LLVMValueRef chain[WORD];
    for (unsigned i = 0; i < n; i++) {
        LLVMValueRef at = hcg_at_byte(e, x, 4 + 4 * (int64_t)(first + i));
        LLVMValueRef xs = hcg_splat_value(e, hcg_load_scalar(e, HIR_F32, at));
        chain[i % WORD] = i < WORD ? hcg_fmul(e, xs, q[first + i])
                                   : hcg_fma(e, xs, q[first + i], chain[i % WORD]);
    }
    LLVMValueRef low = hcg_fadd(e, chain[0], chain[1]);
    return hcg_fadd(e, low, hcg_fadd(e, chain[2], chain[3]));
}

/* acc[v] += sum over one group of x w = s sum x q + m sum x, or s over each of its parts */
static void gemv_group(hcg_emit *e, hir_dtype dtype, LLVMValueRef x, LLVMValueRef group,
                       LLVMValueRef *acc) {
    const unsigned parts = hcg_group_scales(dtype), each = HIR_GROUP / parts;
    for (unsigned v = 0; v < vectors(e); v++) {
        LLVMValueRef q[HIR_GROUP];
        hcg_quant_integers(e, dtype, group, v, q);
        for (unsigned part = 0; part < parts; part++)
            acc[v] = hcg_fma(e, part_sum(e, x, q, part * each, each),
                             hcg_quant_scale(e, dtype, group, v, part), acc[v]);
        if (dtype != HIR_Q4) continue;
        LLVMValueRef of_x = hcg_splat_value(e, hcg_load_scalar(e, HIR_F32, x));
        acc[v] = hcg_fma(e, of_x, hcg_quant_least(e, group, v), acc[v]);
    }
}

/* gemv(x, groups, b, panels, out), x as `prepare` leaves it; `pages` of a panel: hcg_streamed */
static hcg_shared groups_gemv_function(hcg_emit *e, hir_dtype dtype, int64_t pages) {
    LLVMTypeRef params[] = {e->ptr, e->i64, e->ptr, e->i64, e->ptr};
    hcg_shared s;
    const char *name = hd_printf(e->arena, "gemv_%s", hir_dtype_name(dtype));
    if (pages) name = hd_printf(e->arena, "%s_pages_%ld", name, (long)pages);
    if (!hcg_shared_begin(e, name, params, 5, &s)) return s;
    LLVMValueRef groups = s.param[1], acc[4], bytes = hcg_i64(e, (int64_t)hcg_group_bytes(dtype));
    LLVMValueRef of_groups = hcg_mul(e, groups, bytes);
    LLVMValueRef panel_bytes = hcg_add(e, of_groups, hcg_i64(e, hcg_panel_end(dtype)));
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
    LLVMValueRef end = hcg_at(e, e->i8, b, of_groups);
    for (unsigned v = 0; v < vectors(e); v++) {
        LLVMValueRef sums = hcg_quant_times_factor(e, dtype, end, v, lg.page.carried[v]);
        hcg_store(e, hcg_at(e, e->f32, out, hcg_i64(e, v * e->level->lanes)), sums, NULL);
    }
    hcg_loop_end(e, &lp, NULL);
    hcg_shared_end(e, &s);
    return s;
}

/* widen(b, groups, out): a panel as [groups * HIR_GROUP][16] f32 */
static hcg_shared widen_function(hcg_emit *e, hir_dtype dtype) {
    LLVMTypeRef params[] = {e->ptr, e->i64, e->ptr};
    hcg_shared s;
    const char *name = hd_printf(e->arena, "widen_%s", hir_dtype_name(dtype));
    if (!hcg_shared_begin(e, name, params, 3, &s)) return s;
    LLVMValueRef bytes = hcg_i64(e, (int64_t)hcg_group_bytes(dtype)), w[HIR_GROUP], factor[4];
    LLVMValueRef end = hcg_at(e, e->i8, s.param[0], hcg_mul(e, s.param[1], bytes));
    const unsigned n = vectors(e);
    for (unsigned v = 0; v < n; v++)
        factor[v] = hcg_quant_factor(e, dtype, end, v);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), s.param[1], hcg_i64(e, 1), "group", 0, NULL);
    LLVMValueRef group = hcg_at(e, e->i8, s.param[0], hcg_mul(e, l.index, bytes));
    LLVMValueRef size = hcg_i64(e, HIR_GROUP * HIR_PANEL);
    LLVMValueRef out = hcg_at(e, e->f32, s.param[2], hcg_mul(e, l.index, size));
    hcg_quant_prefetch(e, dtype, group);
    for (unsigned v = 0; v < n; v++) {
        hcg_quant_numbers(e, dtype, group, v, factor[v], w);
        for (unsigned k = 0; k < HIR_GROUP; k++) {
            int64_t at = (int64_t)k * HIR_PANEL + v * e->level->lanes;
            hcg_store(e, hcg_at(e, e->f32, out, hcg_i64(e, at)), w[k], NULL);
        }
    }
    hcg_loop_end(e, &l, NULL);
    hcg_shared_end(e, &s);
    return s;
}

/* Panels follow each other in workspace, [k][16] each: the last group of each may reach into the
 * place of the next panel, which is written after it. */
static void widen_groups(hcg_emit *e, const hcg_product *p, const hcg_panels *b) {
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), b->n, hcg_i64(e, 1), "widen", 0, NULL);
    LLVMValueRef from = hcg_mul_const(e, l.index, hcg_panel_bytes(b->dtype, p->k));
    LLVMValueRef to = hcg_mul_const(e, l.index, p->k * HIR_PANEL);
    LLVMValueRef args[] = {hcg_at(e, e->i8, b->w, from), hcg_i64(e, hcg_groups(p->k)),
                           hcg_at(e, e->f32, p->panel_workspace, to)};
    hcg_shared f = widen_function(e, b->dtype);
    hcg_shared_call(e, &f, args, 3);
    hcg_loop_end(e, &l, NULL);
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
    hcg_shared f = group_row_function(e);
    hcg_shared_call(e, &f, args, 3);
}

static void groups_gemm(hcg_emit *e, const hcg_product *p, const hcg_panels *b) {
    widen_groups(e, p, b);
    hcg_gemm g = hcg_vector_product(p, b, HIR_F32);
    g.dtype = HIR_F32, g.b = g.next = p->panel_workspace;
    hcg_call_gemm(e, &g);
}

static void groups_gemv(hcg_emit *e, const hcg_product *p, const hcg_panels *b) {
    LLVMValueRef groups = hcg_i64(e, hcg_groups(p->k));
    LLVMValueRef args[] = {p->x_workspace, groups, b->w, b->n, b->sums};
    const int64_t pages = hcg_stream_pages(hcg_panel_bytes(b->dtype, p->k));
    hcg_shared f = groups_gemv_function(e, b->dtype, pages);
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
