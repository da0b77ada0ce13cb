/* kernel.contract: y = epilogue(x W^T) for columns [c0, c1) of rows [r0, r1).
 *
 * Prefill: a block of rows of x stays in the L2 while panels are streamed past it; a few panels at
 * a time, back ends (matmul/backend.h) leave a block of sums in scratch, and the epilogue stores
 * its results. Each thread reads x in place, or prepares its own block for its back ends.
 *
 * Decode: a panel is a stream of K * 16 weights, read once; the sums of a few panels go to
 * scratch and through the same epilogue.
 */
#include "codegen/contract/dynamic.h"
#include "codegen/contract/epilogue.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/packed.h"
#include "codegen/matmul/matrix.h"
#include "codegen/program/forms.h"

enum {
    DECODE_PANELS = 16,   /* panels between epilogues, for one token */
    HEAD_PANELS = 24,     /* between epilogues, where whole heads need more than a tile has */
    ROWS_READ_ONCE = 128, /* rows of a block, where each row of x is read once */
};

/* The first panel of the group, at or after a column, that begins a unit. */
static LLVMValueRef clamp_panels(hcg_emit *e, const hcg_contraction *c, LLVMValueRef column,
                                 const hcg_column_group *g) {
    LLVMValueRef p = hcg_sub(e, column, hcg_i64(e, g->first_column));
    LLVMValueRef low = hcg_i64(e, 0), high = hcg_i64(e, g->panels);
    if (c->width > 1) p = hcg_mul_const(e, p, c->width);
    if (g->unit > c->width) {
        LLVMValueRef unit = hcg_i64(e, g->unit);
        p = hcg_add(e, p, hcg_i64(e, g->unit - 1));
        p = hcg_sub(e, p, LLVMBuildSRem(e->b, p, unit, ""));
    }
    return hcg_smaller(e, hcg_larger(e, p, low), high);
}

/* Rows of a block when n rows are divided into as few blocks of at most `most` as possible, of
 * equal size but for the last: a last block of a few rows would read all panels for little work.
 * Their size is a multiple of `unit`, as `most` is. n > 0. */
static LLVMValueRef even_block(hcg_emit *e, LLVMValueRef n, int64_t most, int64_t unit) {
    LLVMValueRef over = hcg_add(e, n, hcg_i64(e, most - 1));
    LLVMValueRef blocks = LLVMBuildUDiv(e->b, over, hcg_i64(e, most), "blocks");
    over = hcg_add(e, n, hcg_sub(e, blocks, hcg_i64(e, 1)));
    LLVMValueRef each = LLVMBuildUDiv(e->b, over, blocks, "each");
    return unit > 1 ? hcg_mul_const(e, hcg_divide_up(e, each, hcg_i64(e, unit)), unit) : each;
}

typedef struct emission { /* the state while one kernel is emitted */
    hcg_emit *e;
    const hcg_kernel *k;
    const hcg_contraction *c;
    hcg_products products;
    int64_t ld;              /* columns of a group's sums: its panels between epilogues */
    LLVMValueRef *sums;      /* scratch, as many as the largest group has linears */
    int64_t sum_bytes;       /* from one linear's sums to the next */
    LLVMValueRef kv;         /* K */
    LLVMValueRef prologue_x; /* scratch for x of a block, where a prologue makes it */
    LLVMValueRef row, rows;
    hcg_dynamic dynamic;
    LLVMValueRef end, after; /* the panels between epilogues: their end, and the thread's next
                                ones */
} emission;

/* ---- x --------------------------------------------------------------------------------------- */
/* x of the block: read where it lies, or made here by the prologue. */
static bool find_x(emission *p, LLVMValueRef *x) {
    hcg_emit *e = p->e;
    const hcg_contraction *c = p->c;
    if (!c->prologue.n) {
        *x = hcg_arg(e, p->k, c->x);
        *x = hcg_at(e, e->f32, *x, hcg_mul(e, p->row, p->kv));
        return true;
    }
    *x = p->prologue_x;
    return hcg_call_prologue(e, p->k, p->row, p->rows, *x, p->kv);
}

/* Each block of rows is prepared once for all panels. */
static bool prepare_rows(emission *p) {
    LLVMValueRef x;
    if (!find_x(p, &x)) return false;
    hcg_prepare_products(p->e, &p->products, x, p->kv, p->rows);
    return true;
}

/* ---- panels ---------------------------------------------------------------------------------- */
/* First panel at or after `panel` of a linear's weights. */
static LLVMValueRef panel_at(const emission *p, const hcg_linear *l, LLVMValueRef panel) {
    hcg_emit *e = p->e;
    LLVMValueRef bytes = hcg_i64(e, hcg_panel_bytes(l->dtype, p->c->k));
    if (!LLVMIsConstant(p->kv)) bytes = hcg_mul_const(e, p->kv, hcg_panel_bytes(l->dtype, 1));
    LLVMValueRef at = hcg_mul(e, panel, bytes);
    return hcg_at(e, e->i8, hcg_arg(e, p->k, l->w), at);
}

/* The panels that are read after those of linear i: those of the next linear, or the next ones of
 * the first. */
static LLVMValueRef following(emission *p, const hcg_column_group *g, size_t i, LLVMValueRef panel,
                              LLVMValueRef panels) {
    bool more = i + 1 < g->linears.n;
    if (!more) panel = hcg_add(p->e, panel, panels);
    if (!more && p->dynamic.on) {
        LLVMValueRef last = LLVMBuildICmp(p->e->b, LLVMIntEQ, panel, p->end, "");
        panel = LLVMBuildSelect(p->e->b, last, p->after, panel, "");
    }
    return panel_at(p, &p->c->linears.at[g->linears.at[more ? i + 1 : 0]], panel);
}

static unsigned all_narrow_panels(const hcg_column_group *g) {
    const int64_t rows = hir_panel_rows(HIR_LAYOUT_NARROW);
    return (unsigned)((g->n + rows - 1) / rows);
}

/* How many panels of 8 outputs the given panels of 16 hold: two in each, but perhaps one in the
 * group's last. */
static LLVMValueRef narrow_panels(const emission *p, const hcg_column_group *g, LLVMValueRef panel,
                                  LLVMValueRef panels) {
    hcg_emit *e = p->e;
    LLVMValueRef two = hcg_i64(e, HIR_PANEL / hir_panel_rows(HIR_LAYOUT_NARROW));
    LLVMValueRef all = hcg_i64(e, all_narrow_panels(g));
    LLVMValueRef left = hcg_sub(e, all, hcg_mul(e, panel, two));
    return hcg_smaller(e, hcg_mul(e, panels, two), left);
}

/* Is the value f32[T, n], and not made in the kernel? */
static bool is_outer_rows(const emission *p, hir_ref r, int64_t n) {
    const hir_module *m = p->e->p->m;
    if (r.kind != HIR_REF_VALUE) return false;
    hir_id by = hir_value_at(m, r.index)->op;
    if (by != HIR_NONE && hir_op_at(m, by)->parent == p->k->op) return false;
    hir_type t = hir_ref_type(m, r);
    return t.dtype == HIR_F32 && t.rank == 2 && hir_is_tokens(t.dim[0]) && t.dim[1] == n;
}

/* What the epilogue of a group will touch at the panels from `panel` on: a result, and rows that
 * its ops add to the sums. Results of a group with heads lie where its row program puts them. */
static void set_touched(emission *p, const hcg_column_group *g, LLVMValueRef panel, hcg_panels *b) {
    hcg_emit *e = p->e;
    const hir_module *m = e->p->m;
    hir_ref touched[HCG_TOUCHED];
    unsigned n = 0;
    if (g->heads) return;
    if (g->yields.n && hir_value_at(m, g->yields.at[0].result)->type.dtype == HIR_F32)
        touched[n++] = hir_value_ref(g->yields.at[0].result);
    for (size_t i = 0; i < g->ops.n; i++) {
        const hir_op *op = hir_op_at(m, g->ops.at[i]);
        for (uint32_t a = 0; a < op->n_args && n < HCG_TOUCHED; a++) {
            hir_ref r = hir_through_reshapes(m, op->args[a]);
            if (is_outer_rows(p, r, g->n)) touched[n++] = r;
        }
    }
    b->ld_touched = p->k->n_sizes ? hcg_size_arg(e, p->k, HCG_N) : hcg_i64(e, g->n);
    LLVMValueRef at = hcg_mul(e, p->row, b->ld_touched);
    at = hcg_add(e, at, hcg_mul_const(e, panel, HIR_PANEL));
    for (unsigned i = 0; i < n; i++)
        b->touched[i] = hcg_at(e, e->f32, hcg_arg(e, p->k, touched[i]), at);
}

/* The sums of linear i of a group; `at`: the column of the scratch where they begin. */
static void emit_product(emission *p, const hcg_column_group *g, size_t i, LLVMValueRef panel,
                         LLVMValueRef panels, LLVMValueRef at) {
    hcg_emit *e = p->e;
    const hcg_linear *l = &p->c->linears.at[g->linears.at[i]];
    const hcg_product *q = &p->products.at[p->products.of[g->linears.at[i]]];
    const bool narrow = l->layout == HIR_LAYOUT_NARROW;
    hcg_at_op(e, hir_value_at(e->p->m, l->value)->op);
    hcg_panels b = {.dtype = l->dtype, .narrow = narrow ? all_narrow_panels(g) : 0};
    b.w = panel_at(p, l, panel);
    b.sums = hcg_at(e, e->f32, p->sums[i], at);
    b.ld = hcg_i64(e, p->ld * HIR_PANEL);
    b.n = narrow ? narrow_panels(p, g, panel, panels) : panels;
    if (p->k->phase == HIR_DECODE) {
        q->backend->gemv(e, q, &b);
        return;
    }
    if (q->backend->prefetches) {
        b.next = following(p, g, i, panel, panels);
        if (i + 1 == g->linears.n) set_touched(p, g, panel, &b);
    }
    q->backend->gemm(e, q, &b);
}

static void emit_sums(emission *p, const hcg_column_group *g, LLVMValueRef panel,
                      LLVMValueRef panels, LLVMValueRef at) {
    for (size_t i = 0; i < g->linears.n; i++)
        emit_product(p, g, i, panel, panels, at);
}

/* ---- blocks ---------------------------------------------------------------------------------- */
/* Panels between epilogues: as many as are computed together; in a group with heads, whole heads
 * and, if possible, whole tiles. */
static int64_t panels_between(const emission *p, const hcg_column_group *g) {
    int64_t least = (p->products.tile_panels + g->unit - 1) / g->unit * g->unit;
    for (int64_t n = least; n <= HEAD_PANELS; n += g->unit)
        if (n % p->products.tile_panels == 0) return n;
    return least;
}

/* The sums of a block, as many panels at a time as are computed together. */
static void emit_block(emission *p, const hcg_column_group *g, LLVMValueRef panel,
                       LLVMValueRef panels) {
    hcg_emit *e = p->e;
    LLVMValueRef zero = hcg_i64(e, 0), step = hcg_i64(e, p->products.tile_panels);
    if (p->ld == p->products.tile_panels) {
        emit_sums(p, g, panel, panels, zero);
        return;
    }
    hcg_loop l = hcg_loop_begin(e, zero, panels, step, "step", 0, NULL);
    LLVMValueRef n = hcg_smaller(e, hcg_sub(e, panels, l.index), step);
    LLVMValueRef at = hcg_mul_const(e, l.index, HIR_PANEL);
    emit_sums(p, g, hcg_add(e, panel, l.index), n, at);
    hcg_loop_end(e, &l, NULL);
}

static bool emit_group(emission *p, const hcg_column_group *g) {
    hcg_emit *e = p->e;
    p->ld = panels_between(p, g);
    LLVMValueRef from = p->dynamic.c0,
                 to = p->dynamic.c1; /* if sizes are arguments there is one group */
    if (!p->k->n_sizes) from = clamp_panels(e, p->c, from, g), to = clamp_panels(e, p->c, to, g);
    LLVMValueRef most = hcg_i64(e, p->ld), first = hcg_dynamic_first(e, &p->dynamic, from, most);
    hcg_loop l = hcg_loop_begin(e, first, to, most, "panels", 0, NULL);
    LLVMValueRef n = hcg_smaller(e, hcg_sub(e, to, l.index), most);
    LLVMValueRef next = hcg_dynamic_next(e, &p->dynamic, l.index, most);
    p->end = hcg_add(e, l.index, n);
    p->after =
        LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, next, to, ""), next, p->end, "");
    emit_block(p, g, l.index, n);
    hcg_block block = {.plan = p->c, .group = g, .row = p->row, .rows = p->rows};
    block.panel = l.index, block.panels = n, block.sums = p->sums;
    block.ld = hcg_i64(e, p->ld * HIR_PANEL);
    block.sum_bytes = p->sum_bytes;
    bool ok = hcg_call_epilogue(e, p->k, &block);
    hcg_dynamic_done(e, &p->dynamic);
    l.step = hcg_sub(e, next, l.index);
    hcg_loop_end(e, &l, NULL);
    hcg_dynamic_group(e, &p->dynamic, to, most);
    return ok;
}

/* Workspace for blocks of at most `rows` rows: x, what back ends need, sums. */
static void take_workspace(emission *p, uint64_t rows) {
    size_t most = 0;
    int64_t panels = p->products.tile_panels;
    if (p->c->prologue.n) p->prologue_x = hcg_scratch(p->e, rows * (uint64_t)p->c->k * 4);
    hcg_begin_products(p->e, &p->products, rows);
    for (size_t i = 0; i < p->c->groups.n; i++) {
        const hcg_column_group *g = &p->c->groups.at[i];
        if (g->linears.n > most) most = g->linears.n;
        if (panels_between(p, g) > panels) panels = panels_between(p, g);
    }
    p->sums = hd_new_array(p->e->arena, LLVMValueRef, most);
    p->sum_bytes = (int64_t)hcg_rows_of_sums(&p->products, rows) * panels * HIR_PANEL * 4;
    for (size_t i = 0; i < most; i++)
        p->sums[i] = hcg_scratch(p->e, (uint64_t)p->sum_bytes);
}

/* Is each row of x read once, where it lies, for a narrow matrix that fits one group of panels?
 * Then no block of rows has to stay in a cache. */
static bool passes_once(const emission *p) {
    const hcg_column_group *g = &p->c->groups.at[0];
    return p->c->linears.n == 1 && p->c->linears.at[0].layout == HIR_LAYOUT_NARROW &&
           !p->c->prologue.n && all_narrow_panels(g) <= hcg_narrow_panels(p->e->level);
}

/* Blocks of `each` rows, the last of the rows that are left; with one token `each` is 1. The first
 * begins at row `from`, the others `step` rows further on. */
static bool emit_rows(emission *p, LLVMValueRef from, LLVMValueRef step, LLVMValueRef each) {
    hcg_emit *e = p->e;
    hcg_loop l = hcg_loop_begin(e, from, p->dynamic.r1, step, "rows", 0, NULL);
    LLVMBasicBlockRef next = NULL;
    p->row = l.index, p->rows = each;
    if (p->k->phase != HIR_DECODE)
        p->rows = hcg_smaller(e, hcg_sub(e, p->dynamic.r1, l.index), each);
    if (p->dynamic.on) {
        LLVMBasicBlockRef block = LLVMAppendBasicBlockInContext(e->cx, e->fn, "block");
        next = LLVMAppendBasicBlockInContext(e->cx, e->fn, "next_block");
        LLVMBuildCondBr(e->b, hcg_dynamic_passes(e, &p->dynamic, l.index), next, block);
        LLVMPositionBuilderAtEnd(e->b, block);
    }
    bool ok = prepare_rows(p);
    for (size_t i = 0; i < p->c->groups.n && ok; i++)
        ok = emit_group(p, &p->c->groups.at[i]);
    if (next) {
        LLVMBuildBr(e->b, next);
        LLVMMoveBasicBlockAfter(next, LLVMGetInsertBlock(e->b));
        LLVMPositionBuilderAtEnd(e->b, next);
    }
    hcg_loop_end(e, &l, NULL);
    return ok;
}

/* The work items of a block of rows: one for the panels between two epilogues. */
static LLVMValueRef items_of_block(const emission *p) {
    hcg_emit *e = p->e;
    int64_t n = 0;
    for (size_t i = 0; i < p->c->groups.n; i++) {
        const hcg_column_group *g = &p->c->groups.at[i];
        const int64_t most = panels_between(p, g);
        if (p->k->n_sizes) return hcg_divide_up(e, p->dynamic.c1, hcg_i64(e, most));
        n += (g->panels + most - 1) / most;
    }
    return hcg_i64(e, n);
}

static bool emit_prefill(emission *p) {
    hcg_emit *e = p->e;
    const int64_t wanted = hcg_block_of_products(e, &p->products);
    const int64_t block = passes_once(p) ? ROWS_READ_ONCE : wanted;
    const int64_t unit = block % p->products.row_unit ? 1 : p->products.row_unit;
    take_workspace(p, (uint64_t)block);
    LLVMValueRef own = even_block(e, hcg_sub(e, e->r1, e->r0), block, unit);
    hcg_dynamic_offer(e, &p->dynamic);
    LLVMValueRef each = even_block(e, hcg_sub(e, p->dynamic.r1, p->dynamic.r0), block, unit);
    hcg_dynamic_begin(e, &p->dynamic, each, items_of_block(p), own);
    hcg_loop l =
        hcg_loop_begin(e, hcg_i64(e, 0), p->dynamic.queues, hcg_i64(e, 1), "queue", 0, NULL);
    hcg_dynamic_queue(e, &p->dynamic, l.index);
    const bool ok = emit_rows(p, p->dynamic.row, p->dynamic.step, p->dynamic.each);
    hcg_loop_end(e, &l, NULL);
    return ok;
}

static bool emit_decode(emission *p) {
    const hcg_emit *e = p->e;
    p->products.tile_panels = DECODE_PANELS;
    p->dynamic = (hcg_dynamic){.r0 = e->r0, .r1 = e->r1, .c0 = e->c0, .c1 = e->c1};
    take_workspace(p, 1);
    return emit_rows(p, e->r0, hcg_i64(p->e, 1), hcg_i64(p->e, 1));
}

static bool emit(hcg_emit *e, const hcg_kernel *k) {
    emission p = {.e = e, .k = k, .c = k->contraction};
    if (!hcg_choose_products(e, k, p.c, &p.products)) return false;
    p.kv = k->n_sizes ? hcg_size_arg(e, k, HCG_K) : hcg_i64(e, p.c->k);
    if (!(k->phase == HIR_DECODE ? emit_decode(&p) : emit_prefill(&p))) return false;
    hcg_end_products(e, &p.products);
    return true;
}

const hcg_form hcg_form_contraction = {.emit = emit, .columns = hcg_contraction_columns};
