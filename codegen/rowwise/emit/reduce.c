/* Reductions: how an accumulator starts, takes an element and ends; and teams of reductions over a
 * dim that vectors do not run along (schedule.h: row_team). */
#include <math.h>
#include <string.h>

#include "codegen/emit/math.h"
#include "codegen/rowwise/emit/run.h"

LLVMValueRef row_start(row_run *r, const row_node *n) {
    double value = n->op->code == HIR_REDUCE_MAX_OP ? -INFINITY : 0;
    return hcg_real_like(r->lane_var < 0 ? r->e->f32 : r->e->vec, value);
}

LLVMValueRef row_combine(row_run *r, const row_node *n, LLVMValueRef a, LLVMValueRef b) {
    if (n->op->code == HIR_REDUCE_MAX_OP) return hcg_max(r->e, a, b);
    return LLVMBuildFAdd(r->e->b, a, b, "");
}

/* 1 / extent, rounded as a constant would be. */
static LLVMValueRef share_of_any(row_run *r, row_size extent, LLVMTypeRef type) {
    hcg_emit *e = r->e;
    LLVMValueRef n = LLVMBuildSIToFP(e->b, row_i64(r, extent), e->f64, "");
    LLVMValueRef share = LLVMBuildFDiv(e->b, LLVMConstReal(e->f64, 1), n, "");
    share = LLVMBuildFPTrunc(e->b, share, e->f32, "");
    return hcg_lanes(type) ? hcg_splat_value(e, share) : share;
}

LLVMValueRef row_finish(row_run *r, const row_node *n, LLVMValueRef v) {
    if (n->op->code != HIR_REDUCE_MEAN_OP) return v;
    LLVMValueRef share = row_is_dynamic(n->extent)
                             ? share_of_any(r, n->extent, LLVMTypeOf(v))
                             : hcg_real_like(LLVMTypeOf(v), 1.0 / (double)n->extent.a);
    return LLVMBuildFMul(r->e->b, v, share, "");
}

static LLVMValueRef keep_past_tail(row_run *r, LLVMValueRef next, LLVMValueRef before) {
    hcg_emit *e = r->e;
    return LLVMBuildSelect(e->b, hcg_tail_mask(e, r->tail), next, before, "");
}

void row_accumulate(row_run *r, const row_node *n, const row_index *loops, uint32_t chains,
                    LLVMValueRef *acc) {
    row_pack a, b;
    bool scalar = r->lane_var < 0, sum = n->op->code != HIR_REDUCE_MAX_OP;
    bool fuse = sum && row_product(r, &n->args[0], loops, &a, &b);
    if (!fuse) a = row_read(r, &n->args[0], loops);
    row_at_op(r, n);
    for (unsigned u = 0; u < row_width(r, scalar); u++) {
        LLVMValueRef next = row_vector(r, &a, scalar, u), *sum = &acc[chains ? u % chains : u];
        if (fuse)
            next = hcg_fma(r->e, next, row_vector(r, &b, scalar, u), *sum);
        else
            next = row_combine(r, n, *sum, next);
        *sum = chains && r->tail ? keep_past_tail(r, next, *sum) : next;
    }
}

/* ---- teams ----------------------------------------------------------------------------------- */

typedef struct running { /* a team in its loop */
    const row_team *t;
    LLVMValueRef acc[HCG_CARRY]; /* vectors of one member that are computed together */
} running;

/* Accumulates element `inner` of every member. */
static void accumulate_team(row_run *r, running *w, row_index inner) {
    row_index loops[ROW_VARS];
    memcpy(loops, r->loops, sizeof loops);
    loops[ROW_INNER] = inner;
    for (uint32_t m = 0; m < w->t->n; m++)
        row_accumulate(r, row_at(r->g, w->t->member[m]), loops, 0, &w->acc[m * r->unroll]);
}

/* Accumulates `n` elements of every member, from number `first` on. */
static void accumulate_some(row_run *r, running *w, row_index first, int64_t n) {
    for (int64_t i = 0; i < n; i++, first.constant = row_size_add(first.constant, row_int(1)))
        accumulate_team(r, w, first);
}

/* Goes over elements from .. to, `step` at once. */
static void accumulate_loop(row_run *r, running *w, LLVMValueRef from, LLVMValueRef to,
                            int64_t step) {
    hcg_emit *e = r->e;
    hcg_loop l = hcg_loop_begin(e, from, to, hcg_i64(e, step), "i", w->t->n * r->unroll, w->acc);
    row_scope s = row_scope_begin(r);
    r->var[ROW_INNER] = l.index;
    memcpy(w->acc, l.carried, sizeof w->acc);
    accumulate_some(r, w, row_var(ROW_INNER), step);
    hcg_loop_end(e, &l, w->acc);
    memcpy(w->acc, l.carried, sizeof w->acc);
    row_scope_end(r, s);
    r->var[ROW_INNER] = NULL;
}

/* Goes over an extent of dynamic size: iterations take the team's step, which is a power of two,
 * then half as many elements for the rest, and so on down to one. */
static void accumulate_dynamic(row_run *r, running *w, row_size extent) {
    hcg_emit *e = r->e;
    LLVMValueRef n = row_i64(r, extent), from = hcg_i64(e, 0);
    for (int64_t step = w->t->step; step > 0; step /= 2) {
        LLVMValueRef to = LLVMBuildAnd(e->b, n, hcg_i64(e, -step), "whole");
        accumulate_loop(r, w, from, to, step);
        from = to;
    }
}

static void accumulate_all(row_run *r, running *w, row_size extent) {
    hcg_emit *e = r->e;
    const int64_t step = w->t->step, whole = extent.a - extent.a % step;
    row_prefetch_along(r, w->t);
    if (row_is_dynamic(extent)) {
        accumulate_dynamic(r, w, extent);
    } else {
        accumulate_loop(r, w, hcg_i64(e, 0), hcg_i64(e, whole), step);
        accumulate_some(r, w, row_fixed(row_int(whole)), extent.a - whole);
    }
    r->along = NULL;
}

row_pack row_reduce(row_run *r, const row_node *n) {
    running w = {.t = row_team_of(r->nest, (uint32_t)(n - r->g->nodes.at), r->unroll)};
    for (uint32_t m = 0; m < w.t->n; m++)
        for (unsigned u = 0; u < r->unroll; u++)
            w.acc[m * r->unroll + u] = row_start(r, row_at(r->g, w.t->member[m]));
    for (uint32_t m = 0; m < w.t->n; m++)
        row_hoist(r, &row_at(r->g, w.t->member[m])->args[0], r->loops);
    if (w.t->step >= row_bound(n->extent)) /* no loop: other roots can reuse what it loads */
        accumulate_some(r, &w, row_fixed(row_int(0)), n->extent.a);
    else
        accumulate_all(r, &w, n->extent);
    row_pack of_first = {0};
    for (uint32_t m = w.t->n; m-- > 0;) {
        const row_node *member = row_at(r->g, w.t->member[m]);
        row_pack p = {0};
        for (unsigned u = 0; u < r->unroll; u++)
            p.v[u] = row_finish(r, member, w.acc[m * r->unroll + u]);
        if (m == 0)
            of_first = p;
        else
            row_remember(r, w.t->member[m], r->loops, p);
    }
    return of_first;
}
