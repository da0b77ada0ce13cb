/* Contractions of experts: each token multiplies its row with the k matrices that it has chosen of
 * E, which lie in panels one after the other.
 *
 *     y[t, j] = epilogue(w[ids[t, j]] x[t], ..)        slot t k + j is row t k + j of the result
 *
 * One token: the columns of the kernel are the panels of its k slots, so that all threads together
 * stream what was chosen, each a contiguous share.
 *
 * Many tokens: the slots are sorted by expert (contract/expert_rows.h). Rows of an expert are
 * gathered (or rounded where they lie, if all back ends can), and its panels are read once for each
 * block of them; results go to the rows of their slots, so that nothing is added up here, and
 * neither threads nor other tokens of the call change a bit. The work is divided among threads by
 * panels, each weighted by the number of rows that it is multiplied with, whatever experts were
 * chosen: thread i of n computes the panels whose weights, added up from the first expert's first
 * panel on, begin in [i / n, (i + 1) / n) of the whole.
 *
 * An id outside of 0 .. E-1 is no matrix of zeros: its rows pass the epilogue with sums of 0 and
 * without biases. Experts that nobody has chosen are not touched.
 */
#include "codegen/contract/epilogue.h"
#include "codegen/contract/expert_rows.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/packed.h"
#include "codegen/emit/stream.h"
#include "codegen/matmul/backend.h"
#include "codegen/matmul/matrix.h"
#include "codegen/program/forms.h"

enum { DECODE_PANELS = 16 /* between epilogues, for one token */ };

typedef struct experts { /* one kernel, read from its body */
    hcg_contraction c;   /* one group, with all products of the body */
    hir_ref ids;
    int64_t experts, slots; /* E, k */
    int64_t each;           /* slots that share a row of x: k, or 1 */
} experts;

typedef struct emission {
    hcg_emit *e;
    const hcg_kernel *k;
    const experts *x;
    hcg_products products;
    LLVMValueRef *sums; /* scratch, by product */
    int64_t sum_bytes;  /* from one to the next */
    LLVMValueRef row_of, expert;
    LLVMValueRef row, rows; /* rows of the block: entries of row_of, or rows of results */
} emission;

/* ---- the body -------------------------------------------------------------------------------- */
static void plan_product(experts *x, hd_arena *a, const hir_module *m, const hir_op *op) {
    const hir_weight *w = &m->weights.at[op->args[1].index];
    const hir_type of_x = hir_ref_type(m, op->args[0]), ids = hir_ref_type(m, op->args[2]);
    hcg_column_group *g = &x->c.groups.at[0];
    x->c.x = hir_through_reshapes(m, op->args[0]);
    x->c.k = w->type.dim[2];
    x->ids = op->args[2];
    x->experts = w->type.dim[0], x->slots = ids.dim[1];
    x->each = of_x.rank == 2 ? x->slots : 1;
    g->n = w->type.dim[1], g->panels = (g->n + HIR_PANEL - 1) / HIR_PANEL;
    hd_push(a, &g->linears, (uint32_t)x->c.linears.n);
    hd_push(a, &x->c.linears,
            ((hcg_linear){.value = op->results[0],
                          .w = op->args[1],
                          .bias = op->args[3],
                          .dtype = w->type.dtype,
                          .layout = w->layout}));
}

/* The body has been verified (ir/kernel/rules.c). */
static void plan(experts *x, hd_arena *a, const hir_module *m, hir_id kernel) {
    const hir_op *k = hir_op_at(m, kernel);
    *x = (experts){0};
    hd_push(a, &x->c.groups, ((hcg_column_group){.unit = 1}));
    hcg_column_group *g = &x->c.groups.at[0];
    HIR_EACH(m, id, k->body_first) {
        const hir_op *op = hir_op_at(m, id);
        if (op->code == HIR_EXPERT_LINEAR_OP) plan_product(x, a, m, op);
        if (hir_has_trait(op->code, HIR_ELEMENTWISE)) hd_push(a, &g->ops, id);
    }
    const hir_op *yield = hir_op_at(m, k->body_last);
    for (uint32_t i = 0; i < yield->n_args; i++) {
        const hir_ref r = hir_through_reshapes(m, yield->args[i]);
        hd_push(a, &g->yields, ((hcg_yield){r.index, k->results[i]}));
    }
    x->c.columns = x->slots * g->panels, x->c.width = 1;
}

static int64_t count_columns(const hir_module *m, hir_id kernel) {
    experts x;
    plan(&x, m->arena, m, kernel);
    return x.c.columns;
}

static const hcg_column_group *group_of(const emission *p) {
    return &p->x->c.groups.at[0];
}

/* ---- sums and results ------------------------------------------------------------------------ */
/* Panel `panel` of the expert's matrix. */
static LLVMValueRef panel_at(const emission *p, const hcg_linear *l, LLVMValueRef panel) {
    hcg_emit *e = p->e;
    const int64_t bytes = hcg_panel_bytes(l->dtype, p->x->c.k);
    LLVMValueRef first = hcg_mul_const(e, p->expert, group_of(p)->panels);
    LLVMValueRef at = hcg_mul_const(e, hcg_add(e, first, panel), bytes);
    return hcg_at(e, e->i8, hcg_arg(e, p->k, l->w), at);
}

/* The panels that are read after those of product i: the next product's, or the next panels of the
 * first product. The next expert's panels follow an expert's last one. */
static LLVMValueRef following(const emission *p, size_t i, LLVMValueRef panel, LLVMValueRef n) {
    const bool more = i + 1 < p->x->c.linears.n;
    if (!more) panel = hcg_add(p->e, panel, n);
    return panel_at(p, &p->x->c.linears.at[more ? i + 1 : 0], panel);
}

static void multiply(emission *p, LLVMValueRef panel, LLVMValueRef n) {
    hcg_emit *e = p->e;
    for (size_t i = 0; i < p->x->c.linears.n; i++) {
        const hcg_linear *l = &p->x->c.linears.at[i];
        const hcg_product *q = &p->products.at[p->products.of[i]];
        hcg_panels b = {.dtype = l->dtype, .w = panel_at(p, l, panel), .n = n, .sums = p->sums[i]};
        b.ld = hcg_i64(e, p->products.tile_panels * HIR_PANEL);
        hcg_at_op(e, hir_value_at(e->p->m, l->value)->op);
        if (p->products.decode) {
            q->backend->gemv(e, q, &b);
            continue;
        }
        if (q->backend->prefetches) {
            b.next = following(p, i, panel, n);
            b.ld_touched = hcg_i64(e, 0);
        }
        q->backend->gemm(e, q, &b);
    }
}

/* All sums of a block are 0. */
static void clear_sums(emission *p) {
    hcg_emit *e = p->e;
    const int64_t ld = p->products.tile_panels * HIR_PANEL;
    LLVMValueRef n = hcg_mul_const(e, p->rows, ld);
    for (size_t i = 0; i < p->x->c.linears.n; i++) {
        LLVMValueRef step = hcg_i64(e, e->level->lanes);
        hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), n, step, "clear", 0, NULL);
        hcg_store(e, hcg_at(e, e->f32, p->sums[i], l.index), hcg_splat(e, 0), NULL);
        hcg_loop_end(e, &l, NULL);
    }
}

/* Prefetches the lines of results that the epilogue of the panels will write. Where there are no wide
 * tiles, those of one panel: with more, AVX-512 gains nothing. */
static void prefetch_results(emission *p, LLVMValueRef panel) {
    hcg_emit *e = p->e;
    const hcg_column_group *g = group_of(p);
    if (p->products.decode || !g->yields.n) return;
    LLVMValueRef y = hcg_arg(e, p->k, hir_value_ref(g->yields.at[0].result));
    y = hcg_at(e, e->f32, y, hcg_mul_const(e, panel, HIR_PANEL));
    const int64_t panels = hcg_tile_of(e->level)->wide_rows ? p->products.tile_panels : 1;
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), p->rows, hcg_i64(e, 1), "ahead", 0, NULL);
    LLVMValueRef row = hcg_row_number(e, p->row_of, hcg_add(e, p->row, l.index));
    LLVMValueRef at = hcg_at(e, e->f32, y, hcg_mul_const(e, row, g->n));
    for (int64_t i = 0; i < panels; i++)
        hcg_prefetch(e, at, i * HIR_PANEL * (int64_t)sizeof(float));
    hcg_loop_end(e, &l, NULL);
}

/* Panels from .. to of the expert, for the rows of the block; `chosen`: false where the id is no
 * expert. */
static bool emit_panels(emission *p, LLVMValueRef from, LLVMValueRef to, bool chosen) {
    hcg_emit *e = p->e;
    LLVMValueRef most = hcg_i64(e, p->products.tile_panels);
    hcg_loop l = hcg_loop_begin(e, from, to, most, "panels", 0, NULL);
    LLVMValueRef n = hcg_smaller(e, hcg_sub(e, to, l.index), most);
    if (chosen) {
        prefetch_results(p, l.index);
        multiply(p, l.index, n);
    } else
        clear_sums(p);
    hcg_block b = {.plan = &p->x->c, .group = group_of(p), .row = p->row, .rows = p->rows};
    b.panel = l.index, b.panels = n, b.sums = p->sums, b.sum_bytes = p->sum_bytes;
    b.ld = hcg_i64(e, p->products.tile_panels * HIR_PANEL);
    b.n = hcg_i64(e, group_of(p)->n);
    b.row_of = p->row_of, b.expert = p->expert, b.without_bias = !chosen;
    const bool ok = hcg_emit_epilogue(e, p->k, &b);
    hcg_loop_end(e, &l, NULL);
    return ok;
}

/* emit_panels for a chosen expert, and for rows whose id is no expert. */
static bool emit_either(emission *p, LLVMValueRef from, LLVMValueRef to) {
    hcg_emit *e = p->e;
    LLVMBasicBlockRef chosen = LLVMAppendBasicBlockInContext(e->cx, e->fn, "chosen");
    LLVMBasicBlockRef none = LLVMAppendBasicBlockInContext(e->cx, e->fn, "none");
    LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(e->cx, e->fn, "done");
    LLVMValueRef all = hcg_i64(e, p->x->experts);
    LLVMBuildCondBr(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, p->expert, all, ""), chosen, none);
    LLVMPositionBuilderAtEnd(e->b, chosen);
    bool ok = emit_panels(p, from, to, true);
    LLVMBuildBr(e->b, done);
    LLVMPositionBuilderAtEnd(e->b, none);
    ok &= emit_panels(p, from, to, false);
    LLVMBuildBr(e->b, done);
    LLVMPositionBuilderAtEnd(e->b, done);
    return ok;
}

/* Workspace for blocks of at most `rows` rows. */
static void take_workspace(emission *p, uint64_t rows) {
    hcg_begin_products(p->e, &p->products, rows);
    p->sums = hd_new_array(p->e->arena, LLVMValueRef, p->x->c.linears.n);
    p->sum_bytes = (int64_t)hcg_rows_of_sums(&p->products, rows) * p->products.tile_panels *
                   HIR_PANEL * (int64_t)sizeof(float);
    for (size_t i = 0; i < p->x->c.linears.n; i++)
        p->sums[i] = hcg_scratch(p->e, (uint64_t)p->sum_bytes);
}

/* ---- one token ------------------------------------------------------------------------------- */
static void prepare_row(emission *p, LLVMValueRef row) {
    hcg_emit *e = p->e;
    LLVMValueRef k = hcg_i64(e, p->x->c.k), x = hcg_arg(e, p->k, p->x->c.x);
    x = hcg_at(e, e->f32, x, hcg_mul(e, row, k));
    hcg_prepare_products(e, &p->products, x, k, hcg_i64(e, 1));
}

static bool emit_decode(emission *p) {
    hcg_emit *e = p->e;
    LLVMValueRef one = hcg_i64(e, 1), zero = hcg_i64(e, 0), all = hcg_i64(e, group_of(p)->panels);
    p->products.tile_panels = DECODE_PANELS;
    take_workspace(p, 1);
    if (p->x->each > 1) prepare_row(p, zero);
    LLVMValueRef first = LLVMBuildUDiv(e->b, e->c0, all, "first");
    LLVMValueRef end = hcg_divide_up(e, e->c1, all);
    hcg_loop l = hcg_loop_begin(e, first, end, one, "slot", 0, NULL);
    LLVMValueRef before = hcg_mul(e, l.index, all);
    LLVMValueRef from = hcg_larger(e, hcg_sub(e, e->c0, before), zero);
    LLVMValueRef to = hcg_smaller(e, hcg_sub(e, e->c1, before), all);
    if (p->x->each == 1) prepare_row(p, l.index);
    p->row = l.index, p->rows = one;
    LLVMValueRef experts = hcg_i64(e, p->x->experts);
    p->expert = hcg_chosen_expert(e, hcg_arg(e, p->k, p->x->ids), l.index, experts);
    const bool ok = emit_either(p, from, to);
    hcg_loop_end(e, &l, NULL);
    return ok;
}

/* ---- many tokens ----------------------------------------------------------------------------- */
/* How many of an expert's panels begin before `share` of the sum of weights, if the expert's first
 * panel begins at `before` and each has weight `weight`. */
static LLVMValueRef panels_before(emission *p, LLVMValueRef share, LLVMValueRef before,
                                  LLVMValueRef weight) {
    hcg_emit *e = p->e;
    LLVMValueRef left = hcg_larger(e, hcg_sub(e, share, before), hcg_i64(e, 0));
    LLVMValueRef n = hcg_divide_up(e, left, hcg_larger(e, weight, hcg_i64(e, 1)));
    return hcg_smaller(e, n, hcg_i64(e, group_of(p)->panels));
}

/* The rows of the block, side by side in `gathered` if a back end needs that. */
static void prepare_rows(emission *p, const hcg_expert_rows *s, LLVMValueRef gathered) {
    hcg_emit *e = p->e;
    LLVMValueRef x = hcg_arg(e, p->k, p->x->c.x), k = hcg_i64(e, p->x->c.k);
    if (!gathered) {
        LLVMValueRef list = hcg_at(e, e->i32, s->list, p->row);
        hcg_prepare_listed(e, &p->products, x, k, p->rows, list, p->x->each);
        return;
    }
    hcg_gather_rows(e, x, s->list, p->row, p->rows, p->x->each, p->x->c.k, gathered);
    hcg_prepare_products(e, &p->products, gathered, k, p->rows);
}

/* Rows from .. to of the list in as few blocks as possible, of nearly one size. */
static bool emit_blocks(emission *p, const hcg_expert_rows *s, LLVMValueRef gathered, int64_t block,
                        LLVMValueRef rows[2], LLVMValueRef panels[2]) {
    hcg_emit *e = p->e;
    LLVMValueRef one = hcg_i64(e, 1), n = hcg_larger(e, hcg_sub(e, rows[1], rows[0]), one);
    LLVMValueRef blocks = hcg_divide_up(e, n, hcg_i64(e, block));
    LLVMValueRef each = hcg_divide_up(e, n, blocks);
    hcg_loop l = hcg_loop_begin(e, rows[0], rows[1], each, "rows", 0, NULL);
    p->row = l.index, p->rows = hcg_smaller(e, hcg_sub(e, rows[1], l.index), each);
    prepare_rows(p, s, gathered);
    const bool ok = emit_either(p, panels[0], panels[1]);
    hcg_loop_end(e, &l, NULL);
    return ok;
}

/* Where this thread's columns begin or end among the weights of all panels. */
static LLVMValueRef share_at(emission *p, const hcg_expert_rows *s, LLVMValueRef column) {
    hcg_emit *e = p->e;
    LLVMValueRef all = hcg_mul_const(e, s->weight, group_of(p)->panels);
    return LLVMBuildUDiv(e->b, hcg_mul(e, all, column), hcg_i64(e, p->x->c.columns), "share");
}

static bool emit_prefill(emission *p) {
    hcg_emit *e = p->e;
    const experts *x = p->x;
    const int64_t block = hcg_block_of_products(e, &p->products), most = e->p->chunk * x->slots;
    take_workspace(p, (uint64_t)block);
    LLVMValueRef gathered = NULL;
    if (!hcg_products_gather(&p->products))
        gathered = hcg_scratch(e, (uint64_t)(block * x->c.k) * sizeof(float));
    LLVMValueRef ids = hcg_arg(e, p->k, x->ids), zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    const hcg_expert_rows s =
        hcg_sort_by_expert(e, ids, hcg_mul_const(e, e->r0, x->slots),
                           hcg_mul_const(e, e->r1, x->slots), most, x->experts);
    LLVMValueRef from = share_at(p, &s, e->c0), to = share_at(p, &s, e->c1);
    LLVMValueRef end = hcg_i64(e, x->experts + 1), rows[2];
    p->row_of = s.list;
    hcg_loop l = hcg_loop_begin(e, zero, end, one, "expert", 1, &zero);
    p->expert = l.index;
    hcg_rows_of_expert(e, &s, l.index, &rows[0], &rows[1]);
    LLVMValueRef n = hcg_sub(e, rows[1], rows[0]);
    LLVMValueRef any = LLVMBuildICmp(e->b, LLVMIntSGT, n, zero, "");
    LLVMValueRef weight = hcg_add(e, n, hcg_i64(e, HCG_PANEL_ROWS));
    weight = LLVMBuildSelect(e->b, any, weight, zero, "");
    LLVMValueRef panels[] = {panels_before(p, from, l.carried[0], weight),
                             panels_before(p, to, l.carried[0], weight)};
    LLVMValueRef mine = LLVMBuildICmp(e->b, LLVMIntSLT, panels[0], panels[1], "");
    rows[1] = LLVMBuildSelect(e->b, mine, rows[1], rows[0], "");
    const bool ok = emit_blocks(p, &s, gathered, block, rows, panels);
    LLVMValueRef next = hcg_add(e, l.carried[0], hcg_mul_const(e, weight, group_of(p)->panels));
    hcg_loop_end(e, &l, &next);
    return ok;
}

static bool emit(hcg_emit *e, const hcg_kernel *k) {
    experts x;
    plan(&x, e->arena, e->p->m, k->op);
    emission p = {.e = e, .k = k, .x = &x};
    if (!hcg_choose_products(e, k, &x.c, &p.products)) return false;
    p.products.of_tokens = (x.experts + x.slots - 1) / x.slots;
    if (!(k->phase == HIR_DECODE ? emit_decode(&p) : emit_prefill(&p))) return false;
    hcg_end_products(e, &p.products);
    return true;
}

const hcg_form hcg_form_experts = {.emit = emit, .columns = count_columns};
