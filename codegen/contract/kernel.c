/* kernel.contract: y = epilogue(x W^T) for columns [c0, c1) of rows [r0, r1).
 *
 * T > 1 (prefill): a block of rows of x stays in the L2 while panels pass; panel group
 * by panel group, gemm leaves a block of sums in scratch and the epilogue stores it. x is read
 * where it lies: no thread packs what another one packs too.
 *
 * T = 1 (decode): a panel is a stream of K * 16 weights, read once; the sums of a few panels go to
 * scratch and through the same epilogue.
 */
#include "codegen/contract/block.h"
#include "codegen/contract/groups.h"
#include "codegen/contract/matrix.h"
#include "codegen/contract/pairs.h"
#include "codegen/library/library.h"

enum {
    BLOCK_BYTES = 768 << 10, /* of x per row block: most of a L2 of 1 MiB */
    MOST_ROWS = 128,         /* per row block: beyond, the sums of a tile leave the first level */
    FEWEST_ROWS = 32,        /* per row block when K is long: panels are read once for each */
    ONE_PANELS = 16,         /* between epilogues of the T = 1 body */
    HEAD_PANELS = 24,        /* between epilogues, where whole heads need more than a tile has */
};

static int64_t row_block(int64_t k) {
    int64_t rows = BLOCK_BYTES / 4 / k;
    return rows > MOST_ROWS ? MOST_ROWS : rows < FEWEST_ROWS ? FEWEST_ROWS : rows;
}

/* The first panel of the group at or behind a column that begins a unit. */
static LLVMValueRef clamp_panels(hcg_emit *e, const hcg_contraction *c, LLVMValueRef column,
                                 const hcg_column_group *g) {
    LLVMValueRef p = LLVMBuildNSWSub(e->b, column, hcg_i64(e, g->first_column), "");
    LLVMValueRef low = hcg_i64(e, 0), high = hcg_i64(e, g->panels);
    if (c->width > 1) p = LLVMBuildNSWMul(e->b, p, hcg_i64(e, c->width), "");
    if (g->unit > c->width) {
        LLVMValueRef unit = hcg_i64(e, g->unit);
        p = LLVMBuildNSWAdd(e->b, p, hcg_i64(e, g->unit - 1), "");
        p = LLVMBuildNSWSub(e->b, p, LLVMBuildSRem(e->b, p, unit, ""), "");
    }
    return hcg_smaller(e, hcg_larger(e, p, low), high);
}

/* n rows in as few blocks of at most `most` as it takes, of one size but for the last: a last block
 * of a few rows would read all panels for little. n > 0. */
static LLVMValueRef even_block(hcg_emit *e, LLVMValueRef n, int64_t most) {
    LLVMValueRef over = LLVMBuildNSWAdd(e->b, n, hcg_i64(e, most - 1), "");
    LLVMValueRef blocks = LLVMBuildUDiv(e->b, over, hcg_i64(e, most), "blocks");
    over = LLVMBuildNSWAdd(e->b, n, LLVMBuildNSWSub(e->b, blocks, hcg_i64(e, 1), ""), "");
    return LLVMBuildUDiv(e->b, over, blocks, "each");
}

typedef struct body {
    hcg_emit *e;
    const hcg_kernel *k;
    const hcg_contraction *c;
    int64_t step;        /* panels that are computed together */
    int64_t ld;          /* of the sums of a group: panels between its epilogues */
    LLVMValueRef *sums;  /* scratch, as many as the largest group has linears */
    int64_t sum_bytes;   /* from one to the next */
    LLVMValueRef kv;     /* K */
    LLVMValueRef x;      /* of `row` */
    LLVMValueRef made_x; /* scratch for x of a block, where a prologue makes it */
    LLVMValueRef row, rows;
    hcg_quant_x quant; /* x for weights in groups */
    hcg_pair_x pairs;  /* and for those in pairs */
    LLVMValueRef wide; /* scratch for `step` panels as f32, where some linear's are widened ahead */
} body;

/* First panel at or after `panel` of a linear's weights. */
static LLVMValueRef panel_at(const body *p, const hcg_linear *l, LLVMValueRef panel) {
    hcg_emit *e = p->e;
    LLVMValueRef bytes = hcg_i64(e, hcg_panel_bytes(l->dtype, p->c->k));
    if (!LLVMIsConstant(p->kv))
        bytes = LLVMBuildNSWMul(e->b, p->kv, hcg_i64(e, hcg_panel_bytes(l->dtype, 1)), "");
    LLVMValueRef at = LLVMBuildNSWMul(e->b, panel, bytes, "");
    return hcg_at(e, e->i8, hcg_arg(e, p->k, l->w), at);
}

static bool has_quantised(const hcg_contraction *c) {
    for (size_t i = 0; i < c->linears.n; i++)
        if (hir_is_quantised(c->linears.at[i].dtype)) return true;
    return false;
}

static bool has_pairs(const hcg_contraction *c) {
    for (size_t i = 0; i < c->linears.n; i++)
        if (c->linears.at[i].dtype == HIR_BF16) return true;
    return false;
}

/* x of the block: where it lies, or made here by the prologue. */
static bool find_x(body *p) {
    hcg_emit *e = p->e;
    const hcg_contraction *c = p->c;
    if (!c->prologue.n) {
        LLVMValueRef x = hcg_arg(e, p->k, c->x);
        p->x = hcg_at(e, e->f32, x, LLVMBuildNSWMul(e->b, p->row, p->kv, ""));
        return true;
    }
    p->x = p->made_x;
    return hcg_make_x(e, p->k, c, p->row, p->rows, p->made_x, p->kv);
}

/* Each block of rows is prepared once for all panels. */
static bool take_rows(body *p) {
    if (!find_x(p)) return false;
    if (has_quantised(p->c)) hcg_quant_take(p->e, &p->quant, p->x, p->kv, p->rows);
    if (has_pairs(p->c)) hcg_pair_take(p->e, &p->pairs, p->x, p->rows);
    return true;
}

/* Half floats without an instruction for them take some 20: once per block of rows, not per slab.
 */
static bool widens_ahead(const hcg_emit *e, const hcg_linear *l) {
    return l->dtype == HIR_F16 && !hcg_has_f16(e->level);
}

/* The panels from w on as f32, in scratch. */
static LLVMValueRef widen_panels(body *p, hir_dtype dtype, LLVMValueRef w, LLVMValueRef panels) {
    hcg_emit *e = p->e;
    LLVMValueRef n = LLVMBuildNSWMul(e->b, p->kv, hcg_i64(e, HIR_PANEL), "");
    n = LLVMBuildNSWMul(e->b, panels, n, "");
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), n, hcg_i64(e, e->level->lanes), "widen", 0, NULL);
    LLVMValueRef v = hcg_load(e, dtype, hcg_at(e, hcg_element(e, dtype), w, l.index), NULL);
    hcg_store(e, hcg_at(e, e->f32, p->wide, l.index), v, NULL);
    hcg_loop_end(e, &l, NULL);
    return p->wide;
}

/* The panels that gemm meets after those of linear i: those of the next linear, or the next ones
 * of the first. */
static LLVMValueRef following(body *p, const hcg_column_group *g, size_t i, LLVMValueRef panel,
                              LLVMValueRef panels) {
    bool more = i + 1 < g->linears.n;
    if (!more) panel = LLVMBuildNSWAdd(p->e->b, panel, panels, "");
    return panel_at(p, &p->c->linears.at[g->linears.at[more ? i + 1 : 0]], panel);
}

static unsigned all_narrow_panels(const hcg_column_group *g) {
    const int64_t rows = hir_panel_rows(HIR_LAYOUT_NARROW);
    return (unsigned)((g->n + rows - 1) / rows);
}

/* Panels of 8 outputs in as many of 16: two in each, but perhaps one in the group's last. */
static LLVMValueRef narrow_panels(const body *p, const hcg_column_group *g, LLVMValueRef panel,
                                  LLVMValueRef panels) {
    hcg_emit *e = p->e;
    LLVMValueRef two = hcg_i64(e, HIR_PANEL / hir_panel_rows(HIR_LAYOUT_NARROW));
    LLVMValueRef all = hcg_i64(e, all_narrow_panels(g));
    LLVMValueRef left = LLVMBuildNSWSub(e->b, all, LLVMBuildNSWMul(e->b, panel, two, ""), "");
    return hcg_smaller(e, LLVMBuildNSWMul(e->b, panels, two, ""), left);
}

/* f32[T, n], which is not made in the kernel? */
static bool is_outer_rows(const body *p, hir_ref r, int64_t n) {
    const hir_module *m = p->e->p->m;
    if (r.kind != HIR_REF_VALUE) return false;
    hir_id by = hir_value_at(m, r.index)->op;
    if (by != HIR_NONE && hir_op_at(m, by)->parent == p->k->op) return false;
    hir_type t = hir_ref_type(m, r);
    return t.dtype == HIR_F32 && t.rank == 2 && t.dim[0] == HIR_T && t.dim[1] == n;
}

/* What the epilogue of a group will touch at the panels from `panel` on: a result, and rows that
 * its ops add to the sums. Those of heads lie where their row program puts them. */
static void set_rests(body *p, const hcg_column_group *g, LLVMValueRef panel, hcg_gemm *gemm) {
    hcg_emit *e = p->e;
    const hir_module *m = e->p->m;
    hir_ref rests[HCG_RESTS];
    unsigned n = 0;
    if (g->heads) return;
    if (g->yields.n && hir_value_at(m, g->yields.at[0].result)->type.dtype == HIR_F32)
        rests[n++] = hir_value_ref(g->yields.at[0].result);
    for (size_t i = 0; i < g->ops.n; i++) {
        const hir_op *op = hir_op_at(m, g->ops.at[i]);
        for (uint32_t a = 0; a < op->n_args && n < HCG_RESTS; a++) {
            hir_ref r = hcg_through_reshapes(m, op->args[a]);
            if (is_outer_rows(p, r, g->n)) rests[n++] = r;
        }
    }
    gemm->ldr = p->k->n_sizes ? hcg_size_arg(e, p->k, HCG_N) : hcg_i64(e, g->n);
    LLVMValueRef at = LLVMBuildNSWMul(e->b, p->row, gemm->ldr, "");
    at = LLVMBuildNSWAdd(e->b, at, LLVMBuildNSWMul(e->b, panel, hcg_i64(e, HIR_PANEL), ""), "");
    for (unsigned i = 0; i < n; i++)
        gemm->rests[i] = hcg_at(e, e->f32, hcg_arg(e, p->k, rests[i]), at);
}

/* `at`: the column of the sums where they begin. */
static void emit_sums(body *p, const hcg_column_group *g, LLVMValueRef panel, LLVMValueRef panels,
                      LLVMValueRef at) {
    hcg_emit *e = p->e;
    const hcg_pair_x plain = {.x = p->x, .ld = p->kv};
    LLVMValueRef ld = hcg_i64(e, p->ld * HIR_PANEL);
    for (size_t i = 0; i < g->linears.n; i++) {
        const hcg_linear *l = &p->c->linears.at[g->linears.at[i]];
        const hcg_pair_x *x = l->dtype == HIR_BF16 ? &p->pairs : &plain;
        LLVMValueRef k = x == &plain ? p->kv : hcg_i64(e, x->even);
        hcg_at_op(e, hir_value_at(e->p->m, l->value)->op);
        LLVMValueRef w = panel_at(p, l, panel);
        LLVMValueRef sums = hcg_at(e, e->f32, p->sums[i], at);
        if (hir_is_quantised(l->dtype) && p->k->phase == HIR_DECODE) {
            hcg_quant_gemv(e, &p->quant, l->dtype, w, panels, sums);
        } else if (hir_is_quantised(l->dtype)) {
            hcg_quant_gemm(e, &p->quant, l->dtype, w, panels, sums, ld);
        } else {
            hcg_gemm gemm = {.dtype = l->dtype, .x_dtype = x->dtype, .x = x->x, .ldx = x->ld};
            gemm.narrow = l->narrow ? all_narrow_panels(g) : 0;
            gemm.rows = p->rows, gemm.k = k;
            gemm.b = w, gemm.c = sums, gemm.ldc = ld;
            gemm.panels = l->narrow ? narrow_panels(p, g, panel, panels) : panels;
            if (p->k->phase == HIR_DECODE) {
                hcg_call_gemv(e, &gemm);
                continue;
            }
            if (widens_ahead(e, l)) {
                gemm.b = widen_panels(p, l->dtype, w, panels);
                gemm.dtype = HIR_F32;
            }
            gemm.next = following(p, g, i, panel, panels);
            if (i + 1 == g->linears.n) set_rests(p, g, panel, &gemm);
            hcg_call_gemm(e, &gemm);
        }
    }
}

/* Panels between epilogues: as many as are computed together, or whole heads and, if it can be,
 * whole tiles. */
static int64_t panels_between(const body *p, const hcg_column_group *g) {
    int64_t least = (p->step + g->unit - 1) / g->unit * g->unit;
    for (int64_t n = least; n <= HEAD_PANELS; n += g->unit)
        if (n % p->step == 0) return n;
    return least;
}

/* The sums of a block, `step` panels at a time. */
static void emit_block(body *p, const hcg_column_group *g, LLVMValueRef panel,
                       LLVMValueRef panels) {
    hcg_emit *e = p->e;
    LLVMValueRef zero = hcg_i64(e, 0), step = hcg_i64(e, p->step);
    if (p->ld == p->step) {
        emit_sums(p, g, panel, panels, zero);
        return;
    }
    hcg_loop l = hcg_loop_begin(e, zero, panels, step, "step", 0, NULL);
    LLVMValueRef n = hcg_smaller(e, LLVMBuildNSWSub(e->b, panels, l.index, ""), step);
    LLVMValueRef at = LLVMBuildNSWMul(e->b, l.index, hcg_i64(e, HIR_PANEL), "");
    emit_sums(p, g, LLVMBuildNSWAdd(e->b, panel, l.index, ""), n, at);
    hcg_loop_end(e, &l, NULL);
}

static bool emit_group(body *p, const hcg_column_group *g) {
    hcg_emit *e = p->e;
    p->ld = panels_between(p, g);
    LLVMValueRef from = e->c0, to = e->c1; /* of sizes known in the call only: one group */
    if (!p->k->n_sizes) from = clamp_panels(e, p->c, from, g), to = clamp_panels(e, p->c, to, g);
    LLVMValueRef most = hcg_i64(e, p->ld);
    hcg_loop l = hcg_loop_begin(e, from, to, most, "panels", 0, NULL);
    LLVMValueRef n = hcg_smaller(e, LLVMBuildNSWSub(e->b, to, l.index, ""), most);
    emit_block(p, g, l.index, n);
    hcg_block block = {.plan = p->c, .group = g, .row = p->row, .rows = p->rows};
    block.panel = l.index, block.panels = n, block.sums = p->sums;
    block.ld = hcg_i64(e, p->ld * HIR_PANEL);
    block.sum_bytes = p->sum_bytes;
    bool ok = hcg_finish_block(e, p->k, &block);
    hcg_loop_end(e, &l, NULL);
    return ok;
}

static void make_sums(body *p, uint64_t rows) {
    size_t most = 0;
    const uint64_t room = rows;
    int64_t panels = p->step;
    if (p->c->prologue.n) p->made_x = hcg_scratch(p->e, rows * (uint64_t)p->c->k * 4);
    if (has_quantised(p->c)) {
        p->quant = hcg_quant_room(p->e, p->c->k, rows, p->step);
        rows = hcg_quant_rows(p->e, rows);
    }
    if (has_pairs(p->c)) p->pairs = hcg_pair_room(p->e, p->c->k, room);
    for (size_t i = 0; i < p->c->groups.n; i++)
        if (p->c->groups.at[i].linears.n > most) most = p->c->groups.at[i].linears.n;
    for (size_t i = 0; i < p->c->groups.n; i++)
        if (panels_between(p, &p->c->groups.at[i]) > panels)
            panels = panels_between(p, &p->c->groups.at[i]);
    p->sums = hd_new_array(p->e->arena, LLVMValueRef, most);
    p->sum_bytes = (int64_t)rows * panels * HIR_PANEL * 4;
    for (size_t i = 0; i < most; i++)
        p->sums[i] = hcg_scratch(p->e, (uint64_t)p->sum_bytes);
}

/* Of all kernels that share the function. */
static int64_t longest_k(const body *p) {
    return p->k->n_sizes ? p->k->size[HCG_K].most : p->c->k;
}

/* Is each row of x read once, where it lies, for a narrow matrix that fits one group of panels?
 * Then no block of rows has to stay in a cache. */
static bool passes_once(const body *p) {
    const hcg_column_group *g = &p->c->groups.at[0];
    return p->c->linears.n == 1 && p->c->linears.at[0].narrow && !p->c->prologue.n &&
           all_narrow_panels(g) <= hcg_narrow_panels(p->e->level);
}

static bool emit_prefill(body *p) {
    hcg_emit *e = p->e;
    int64_t k = longest_k(p), block = passes_once(p) ? MOST_ROWS : row_block(k);
    bool ok = true;
    p->step = hcg_tile_of(e->level)->panels;
    make_sums(p, (uint64_t)block);
    for (size_t i = 0; i < p->c->linears.n && !p->wide; i++)
        if (widens_ahead(e, &p->c->linears.at[i]))
            p->wide = hcg_scratch(e, (uint64_t)(p->step * k * HIR_PANEL) * 4);
    LLVMValueRef all = LLVMBuildNSWSub(e->b, e->r1, e->r0, "");
    LLVMValueRef each = even_block(e, all, block);
    hcg_loop l = hcg_loop_begin(e, e->r0, e->r1, each, "rows", 0, NULL);
    LLVMValueRef left = LLVMBuildNSWSub(e->b, e->r1, l.index, "");
    p->row = l.index, p->rows = hcg_smaller(e, left, each);
    ok = take_rows(p);
    for (size_t i = 0; i < p->c->groups.n && ok; i++)
        ok = emit_group(p, &p->c->groups.at[i]);
    hcg_loop_end(e, &l, NULL);
    return ok;
}

static bool emit_decode(body *p) {
    hcg_emit *e = p->e;
    bool ok = true;
    p->step = ONE_PANELS;
    make_sums(p, 1);
    hcg_loop l = hcg_loop_begin(e, e->r0, e->r1, hcg_i64(e, 1), "row", 0, NULL);
    p->row = l.index, p->rows = hcg_i64(e, 1);
    ok = take_rows(p);
    for (size_t i = 0; i < p->c->groups.n && ok; i++)
        ok = emit_group(p, &p->c->groups.at[i]);
    hcg_loop_end(e, &l, NULL);
    return ok;
}

bool hcg_emit_contract(hcg_emit *e, const hcg_kernel *k) {
    hcg_contraction c;
    if (!hcg_plan_contraction(e->arena, e->diags, e->p->m, k->op, &c)) return false;
    body p = {.e = e, .k = k, .c = &c};
    p.kv = k->n_sizes ? hcg_size_arg(e, k, HCG_K) : hcg_i64(e, c.k);
    return k->phase == HIR_DECODE ? emit_decode(&p) : emit_prefill(&p);
}
