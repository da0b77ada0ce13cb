/* Matrix times vector: panels as a stream that is read once (matmul/matrix.h). */
#include "codegen/emit/shared.h"
#include "codegen/emit/stream.h"
#include "codegen/matmul/tile.h"
#include "codegen/target/ahead.h"

enum { MOST_CHAINS = 16 };

/* acc[chain][v] += x[k] b[k][v], chain = offset: `steps` of k, each its own chain of adds. */
static void gemv_steps(hcg_emit *e, const tile_kind *d, LLVMValueRef x, LLVMValueRef b,
                       LLVMValueRef index, unsigned steps, LLVMValueRef *acc) {
    unsigned per_panel = HIR_PANEL / e->level->lanes, bytes = tile_line_bytes(d);
    LLVMValueRef first = tile_step_place(e, d, b, index, 0);
    const hd_machine *m = &e->level->machine;
    const int64_t ahead = hcg_prefetch_distance(m, HCG_AHEAD_PANELS);
    for (unsigned u = 0; u < steps; u++) {
        if (u * bytes % m->line == 0 && steps > 1) hcg_prefetch(e, first, u * bytes + ahead);
        for (unsigned round = 0; round < tile_rounds(d); round++) {
            LLVMValueRef xs = tile_load_x(e, d, x, index, u, round);
            for (unsigned v = 0; v < per_panel; v++) {
                LLVMValueRef place = hcg_at_byte(e, first, u * bytes + v * (bytes / per_panel));
                LLVMValueRef *sum = &acc[u * per_panel + v];
                *sum = tile_multiply_add(e, d, xs, tile_load_b(e, d, place, round), *sum);
            }
        }
    }
}

/* One panel: `steps` steps of k at a time, then the rest one by one. */
static void gemv_panel(hcg_emit *e, const tile_kind *d, LLVMValueRef x, LLVMValueRef k,
                       LLVMValueRef b, LLVMValueRef out) {
    unsigned per_panel = HIR_PANEL / e->level->lanes;
    unsigned steps = hcg_tile_of(e->level)->chains / per_panel;
    LLVMValueRef acc[MOST_CHAINS];
    for (unsigned i = 0; i < steps * per_panel; i++)
        acc[i] = LLVMConstNull(e->vec);
    LLVMValueRef whole = LLVMBuildAnd(e->b, k, hcg_i64(e, -(int64_t)steps), "");
    const hcg_streamed w = {.from = b, .steps = whole, .each = steps, .bytes = tile_line_bytes(d)};
    hcg_stream l = hcg_stream_begin(e, &w, "k", steps * per_panel, acc);
    for (unsigned i = 0; i < steps * per_panel; i++)
        acc[i] = l.step.carried[i];
    gemv_steps(e, d, x, b, l.step.index, steps, acc);
    hcg_stream_end(e, &l, acc);
    for (unsigned i = 0; i < steps * per_panel; i++)
        acc[i] = l.page.carried[i];
    for (unsigned half = steps / 2; half; half /= 2)
        for (unsigned i = 0; i < half * per_panel; i++)
            acc[i] = hcg_fadd(e, acc[i], acc[i + half * per_panel]);
    hcg_loop rest = hcg_loop_begin(e, whole, k, hcg_i64(e, 1), "k_rest", per_panel, acc);
    for (unsigned i = 0; i < per_panel; i++)
        acc[i] = rest.carried[i];
    gemv_steps(e, d, x, b, rest.index, 1, acc);
    hcg_loop_end(e, &rest, acc);
    const unsigned n = d->narrow ? tile_join_sums(e, rest.carried, per_panel) : per_panel;
    for (unsigned v = 0; v < n; v++)
        hcg_store(e, hcg_at(e, e->f32, out, hcg_i64(e, v * e->level->lanes)), rest.carried[v],
                  NULL);
}

/* gemv(x, steps of k, b, panels, out) */
static hcg_shared gemv_function(hcg_emit *e, const tile_kind *d) {
    LLVMTypeRef params[] = {e->ptr, e->i64, e->ptr, e->i64, e->ptr};
    hcg_shared s;
    if (!hcg_shared_begin(e, hd_printf(e->arena, "gemv_%s", tile_panel_name(e, d)), params, 5, &s))
        return s;
    LLVMValueRef x = s.param[0], k = s.param[1], b = s.param[2], panels = s.param[3];
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), panels, hcg_i64(e, 1), "panel", 0, NULL);
    LLVMValueRef at = hcg_mul(e, l.index, hcg_mul_const(e, k, tile_line(d)));
    gemv_panel(e, d, x, k, hcg_at(e, hcg_element(e, d->b), b, at),
               hcg_at(e, e->f32, s.param[4], hcg_mul_const(e, l.index, d->outputs)));
    hcg_loop_end(e, &l, NULL);
    hcg_shared_end(e, &s);
    return s;
}

void hcg_call_gemv(hcg_emit *e, const hcg_gemm *g) {
    tile_kind d = tile_kind_of(e, g);
    hcg_shared f = gemv_function(e, &d);
    LLVMValueRef steps = LLVMBuildUDiv(e->b, g->k, hcg_i64(e, d.depth), "");
    LLVMValueRef args[] = {g->x, steps, g->b, g->panels, g->c};
    hcg_shared_call(e, &f, args, 5);
}
