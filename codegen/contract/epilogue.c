/* Prologue and epilogue of a contraction: from sums to stored results, and as separate functions
 * (epilogue.h). */
#include "codegen/contract/epilogue.h"

#include <math.h>
#include <string.h>

#include "codegen/emit/arithmetic.h"
#include "codegen/emit/shared.h"
#include "codegen/emit/vector_ops.h"
#include "codegen/rowwise/stage.h"

/* ---- epilogues ------------------------------------------------------------------------------- */
/* Epilogue of a contraction: bias, then the elementwise ops of the body on vectors of one row, then
 * the stores. Sums come from scratch (matmul/backend.h), not from the micro-kernel's registers: a
 * pass over a block that is still in the L1 costs little next to K multiply-adds an element, and
 * the ops are emitted once instead of once per register tile.
 *
 * The last panel of N % 16 columns has code of its own, in which every tail is known.
 *
 * Where ops need a head at a time (norms of q and k, rope, the write to the cache), they are a row
 * program on the block, head by head; a bias is added to the block before.
 */

typedef struct epilogue {
    hcg_emit *e;
    const hcg_block *b;
    hcg_vector_ops ops; /* the ops of the group */
    LLVMValueRef
        own_logits; /* columns that are no padding, for a loss on several ranks; else NULL */
} epilogue;

/* For experts, the bias of the expert that these rows have chosen. */
static LLVMValueRef load_bias(epilogue *p, hir_ref bias) {
    hcg_emit *e = p->e;
    if (!p->b->expert) return hcg_vector_operand(&p->ops, bias);
    LLVMValueRef at = hcg_add(e, hcg_mul(e, p->b->expert, p->b->n), p->ops.column);
    return hcg_load(e, HIR_F32, hcg_at(e, e->f32, hcg_arg(e, p->ops.k, bias), at), p->ops.valid);
}

/* In a group with heads, adds the bias to the sums in scratch. */
static void emit_bias(epilogue *p, LLVMValueRef at) {
    hcg_emit *e = p->e;
    hir_ref bias = p->b->plan->linears.at[p->b->group->linears.at[0]].bias;
    LLVMValueRef place = hcg_at(e, e->f32, p->b->sums[0], at);
    LLVMValueRef v = hcg_load(e, HIR_F32, place, NULL);
    v = hcg_fadd(e, v, hcg_vector_operand(&p->ops, bias));
    hcg_store(e, place, v, p->ops.valid);
}

LLVMValueRef hcg_row_number(hcg_emit *e, LLVMValueRef row_of, LLVMValueRef i) {
    LLVMValueRef row = LLVMBuildLoad2(e->b, e->i32, hcg_at(e, e->i32, row_of, i), "row");
    LLVMSetAlignment(row, 4);
    return LLVMBuildZExt(e->b, row, e->i64, "");
}

/* Puts logits in the place of their sums; columns beyond the last are -inf, which no sum counts. So
 * are those that pad the share of a rank. */
static void keep_logits(epilogue *p, LLVMValueRef at) {
    hcg_emit *e = p->e;
    const hir_op *parts = hir_op_at(e->p->m, hir_value_at(e->p->m, p->b->group->parts.index)->op);
    LLVMValueRef v = hcg_vector_ops_value(&p->ops, parts->args[0]), none = hcg_splat(e, -INFINITY);
    if (p->ops.valid) v = LLVMBuildSelect(e->b, hcg_tail_mask(e, p->ops.valid), v, none, "");
    if (p->own_logits) {
        LLVMValueRef left = hcg_sub(e, p->own_logits, p->ops.column);
        v = LLVMBuildSelect(e->b, hcg_tail_mask(e, left), v, none, "");
    }
    hcg_store(e, hcg_at(e, e->f32, p->b->sums[0], at), v, NULL);
}

/* Everything for `lanes` columns of one row; `at` is the place of the sums in scratch. */
static void emit_vector(epilogue *p, LLVMValueRef at) {
    hcg_emit *e = p->e;
    const hcg_column_group *g = p->b->group;
    if (g->heads) {
        emit_bias(p, at);
        return;
    }
    hcg_vector_ops_next(&p->ops);
    for (size_t i = 0; i < g->linears.n; i++) {
        const hcg_linear *l = &p->b->plan->linears.at[g->linears.at[i]];
        LLVMValueRef v = hcg_load(e, HIR_F32, hcg_at(e, e->f32, p->b->sums[i], at), NULL);
        if (l->bias.kind != HIR_REF_NONE && !p->b->without_bias)
            v = hcg_fadd(e, v, load_bias(p, l->bias));
        hcg_vector_ops_give(&p->ops, l->value, v);
    }
    hcg_vector_ops_emit(&p->ops);
    if (g->parts.kind != HIR_REF_NONE) keep_logits(p, at);
}

/* The panel's vectors; `columns` of its 16 exist. */
static void emit_panel(epilogue *p, LLVMValueRef at, LLVMValueRef column, unsigned columns) {
    hcg_emit *e = p->e;
    const bool logits = p->b->group->parts.kind != HIR_REF_NONE;
    for (unsigned v = 0; v < (logits ? HIR_PANEL : columns); v += e->level->lanes) {
        LLVMValueRef place = hcg_add(e, at, hcg_i64(e, v));
        if (v >= columns) {
            hcg_store(e, hcg_at(e, e->f32, p->b->sums[0], place), hcg_splat(e, -INFINITY), NULL);
            continue;
        }
        unsigned left = columns - v;
        p->ops.valid = left < e->level->lanes ? hcg_i64(e, left) : NULL;
        p->ops.column = hcg_add(e, column, hcg_i64(e, v));
        emit_vector(p, place);
    }
}

static void emit_panel_or_edge(epilogue *p, LLVMValueRef at, LLVMValueRef column) {
    hcg_emit *e = p->e;
    int64_t n = p->b->group->n, edge = n % HIR_PANEL;
    if (!edge) {
        emit_panel(p, at, column, HIR_PANEL);
        return;
    }
    LLVMBasicBlockRef rest = LLVMAppendBasicBlockInContext(e->cx, e->fn, "edge");
    LLVMBasicBlockRef full = LLVMAppendBasicBlockInContext(e->cx, e->fn, "panel");
    LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(e->cx, e->fn, "stored");
    LLVMValueRef last = hcg_sub(e, p->b->n, hcg_i64(e, HIR_PANEL));
    LLVMValueRef is_edge = LLVMBuildICmp(e->b, LLVMIntSGT, column, last, "is_edge");
    LLVMBuildCondBr(e->b, is_edge, rest, full);
    LLVMPositionBuilderAtEnd(e->b, rest);
    emit_panel(p, at, column, (unsigned)edge);
    LLVMBuildBr(e->b, done);
    LLVMPositionBuilderAtEnd(e->b, full);
    if (n > HIR_PANEL) emit_panel(p, at, column, HIR_PANEL);
    LLVMBuildBr(e->b, done);
    LLVMPositionBuilderAtEnd(e->b, done);
}

static void emit_columns(epilogue *p) {
    hcg_emit *e = p->e;
    const hcg_block *b = p->b;
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    hcg_loop rows = hcg_loop_begin(e, zero, b->rows, one, "epilogue_row", 0, NULL);
    p->ops.row = hcg_add(e, b->row, rows.index);
    if (b->row_of) p->ops.row = hcg_row_number(e, b->row_of, p->ops.row);
    hcg_loop panels = hcg_loop_begin(e, zero, b->panels, one, "epilogue_panel", 0, NULL);
    LLVMValueRef offset = hcg_mul_const(e, panels.index, HIR_PANEL);
    LLVMValueRef at = hcg_add(e, hcg_mul(e, rows.index, b->ld), offset);
    LLVMValueRef panel = hcg_add(e, b->panel, panels.index);
    emit_panel_or_edge(p, at, hcg_mul_const(e, panel, HIR_PANEL));
    hcg_loop_end(e, &panels, NULL);
    if (b->group->parts.kind != HIR_REF_NONE) {
        LLVMValueRef logits = hcg_at(e, e->f32, b->sums[0], hcg_mul(e, rows.index, b->ld));
        hcg_emit_loss_parts(e, p->ops.k, b, p->ops.row, logits);
    }
    hcg_loop_end(e, &rows, NULL);
}

/* The number of heads before `panel`, at which a head begins, or at the end: the number of all
 * heads. */
static LLVMValueRef heads_before(hcg_emit *e, const hcg_column_group *g, LLVMValueRef panel) {
    LLVMValueRef columns = hcg_mul_const(e, panel, HIR_PANEL);
    LLVMValueRef more = LLVMBuildICmp(e->b, LLVMIntSGT, columns, hcg_i64(e, g->n), "");
    columns = LLVMBuildSelect(e->b, more, hcg_i64(e, g->n), columns, "");
    return LLVMBuildUDiv(e->b, columns, hcg_i64(e, g->n / g->heads), "heads");
}

static bool emit_heads(epilogue *p) {
    hcg_emit *e = p->e;
    const hcg_block *b = p->b;
    const hcg_column_group *g = b->group;
    const hcg_linear *l = &b->plan->linears.at[g->linears.at[0]];
    if (l->bias.kind != HIR_REF_NONE) emit_columns(p);
    LLVMValueRef end = hcg_add(e, b->panel, b->panels);
    hcg_row_stage stage = {
        .of = {.ops = g->ops.at,
               .n_ops = g->ops.n,
               .given = l->value,
               .left = HIR_NONE,
               .yields = g->yields.at,
               .n_yields = g->yields.n,
               .heads = g->heads},
        .given = {b->sums[0], b->ld},
        .row = b->row,
        .rows = b->rows,
        .head = heads_before(e, g, b->panel),
        .end = heads_before(e, g, end),
    };
    return hcg_emit_row_stage(e, p->ops.k, &stage);
}

bool hcg_emit_epilogue(hcg_emit *e, const hcg_kernel *k, const hcg_block *b) {
    size_t errors = e->diags->errors;
    const hcg_column_group *g = b->group;
    epilogue p = {.e = e, .b = b};
    p.ops = (hcg_vector_ops){.e = e, .k = k, .n = b->n};
    if (g->heads) return emit_heads(&p);
    p.ops.ops = g->ops.at, p.ops.n_ops = g->ops.n;
    p.ops.yields = g->yields.at, p.ops.n_yields = g->yields.n;
    hcg_vector_ops_begin(&p.ops);
    if (g->parts.kind != HIR_REF_NONE) p.own_logits = hcg_own_logits(e, g);
    emit_columns(&p);
    return e->diags->errors == errors;
}

/* ---- functions of their own ------------------------------------------------------------------ */
/* Prologue and epilogue of contractions as functions of their own. A call for each block of rows or
 * panels costs nothing beside their work, and the kernels for one token and for many share them, as
 * do all contractions that have the same prologue or epilogue (share.c): one function serves the
 * projections of all layers, whatever depth mix (softmax-weighted sum of earlier outputs) makes
 * their input. */

enum { FRAME, ARGS, SCRATCH, ROW, ROWS, OWN };

typedef struct outlined {
    hcg_shared fn;
    hcg_emit outer; /* the emission of the calling kernel */
} outlined;

/* The parameters that all such functions have come first. Inside, `e` emits into the new function
 * until outline_end. */
static bool outline_begin(hcg_emit *e, const hcg_kernel *k, const char *name, bool here,
                          LLVMTypeRef *params, unsigned n, outlined *p) {
    params[FRAME] = params[ARGS] = params[SCRATCH] = e->ptr;
    params[ROW] = params[ROWS] = e->i64;
    p->outer = *e;
    if (!hcg_shared_begin_if(e, here, name, params, n, &p->fn)) return false;
    e->frame = p->fn.param[FRAME], e->args = p->fn.param[ARGS],
    e->scratch_base = p->fn.param[SCRATCH];
    e->scratch = 0;
    e->di_scope = hcg_function_scope(e, e->fn, k->line);
    hcg_at_op(e, k->op);
    return true;
}

static void outline_end(hcg_emit *e, outlined *p) {
    if (e->scratch > e->outlined_scratch) e->outlined_scratch = e->scratch;
    hcg_shared_end(e, &p->fn);
    e->frame = p->outer.frame, e->args = p->outer.args, e->scratch_base = p->outer.scratch_base;
    e->scratch = p->outer.scratch, e->first_arg = p->outer.first_arg;
    e->di_scope = p->outer.di_scope;
}

static void outline_call(hcg_emit *e, const outlined *p, LLVMValueRef row, LLVMValueRef rows,
                         LLVMValueRef *args, unsigned n) {
    args[FRAME] = e->frame, args[SCRATCH] = hcg_scratch(e, 0);
    args[ROW] = row, args[ROWS] = rows;
    hcg_shared_call(e, &p->fn, args, n);
}

/* The unit that holds the functions shared by kernels has no prologues, but it must have the
 * shared functions that prologues call: so the prologue is emitted there too, and then left out. */
static bool is_made_for_calls(const hcg_emit *e, const hcg_kernel *k) {
    const hcg_contraction *c = k->contraction;
    for (size_t i = 0; e->outlined_elsewhere && i < c->prologue.n; i++)
        if (hcg_op_calls_shared(hir_op_at(e->p->m, c->prologue.at[i])->code)) return true;
    return false;
}

bool hcg_call_prologue(hcg_emit *e, const hcg_kernel *k, LLVMValueRef row, LLVMValueRef rows,
                       LLVMValueRef x, LLVMValueRef ld) {
    const hcg_contraction *c = k->contraction;
    enum { X = OWN, LD, PARAMS };
    LLVMTypeRef params[PARAMS] = {[X] = e->ptr, [LD] = e->i64};
    LLVMValueRef args[PARAMS] = {[ARGS] = e->args, [X] = x, [LD] = ld};
    bool ok = true;
    outlined f;
    const bool only_calls = is_made_for_calls(e, k);
    const bool here = k->holds_prologue && (!e->outlined_elsewhere || only_calls);
    if (outline_begin(e, k, k->prologue_name, here, params, PARAMS, &f)) {
        const LLVMValueRef *own = f.fn.param;
        hcg_row_stage stage = {.of = {.ops = c->prologue.at, .n_ops = c->prologue.n}};
        stage.of.given = HIR_NONE, stage.of.left = c->x.index;
        stage.left = (hcg_row_block){own[X], own[LD]};
        stage.row = own[ROW], stage.rows = own[ROWS];
        ok = hcg_emit_row_stage(e, k, &stage);
        outline_end(e, &f);
        if (only_calls) LLVMSetLinkage(f.fn.fn, LLVMAvailableExternallyLinkage);
    }
    outline_call(e, &f, row, rows, args, PARAMS);
    return ok;
}

bool hcg_call_epilogue(hcg_emit *e, const hcg_kernel *k, const hcg_block *b) {
    enum { PANEL = OWN, PANELS, SUMS, SUM_BYTES, LD, PARAMS };
    LLVMTypeRef params[PARAMS] = {
        [PANEL] = e->i64, [PANELS] = e->i64, [SUMS] = e->ptr, [SUM_BYTES] = e->i64, [LD] = e->i64};
    LLVMValueRef first = hcg_at(e, e->ptr, e->args, hcg_i64(e, k->epilogue_first_arg));
    LLVMValueRef args[PARAMS] = {[ARGS] = first,
                                 [PANEL] = b->panel,
                                 [PANELS] = b->panels,
                                 [SUMS] = b->sums[0],
                                 [SUM_BYTES] = hcg_i64(e, b->sum_bytes),
                                 [LD] = b->ld};
    const char *name =
        hd_printf(e->arena, "%s_of%zu", k->epilogue_name, (size_t)(b->group - b->plan->groups.at));
    bool ok = true;
    outlined f;
    const bool here = k->holds_epilogue && !e->outlined_elsewhere;
    if (outline_begin(e, k, name, here, params, PARAMS, &f)) {
        e->first_arg = k->epilogue_first_arg;
        const LLVMValueRef *own = f.fn.param;
        hcg_block inner = {.plan = b->plan, .group = b->group, .row = own[ROW], .rows = own[ROWS]};
        inner.panel = own[PANEL], inner.panels = own[PANELS], inner.ld = own[LD];
        inner.n = k->n_sizes ? hcg_size_arg(e, k, HCG_N) : hcg_i64(e, b->group->n);
        inner.sums = hd_new_array(e->arena, LLVMValueRef, b->group->linears.n);
        for (size_t i = 0; i < b->group->linears.n; i++) {
            LLVMValueRef at = hcg_mul_const(e, own[SUM_BYTES], (int64_t)i);
            inner.sums[i] = hcg_at(e, e->i8, own[SUMS], at);
        }
        ok = hcg_emit_epilogue(e, k, &inner);
        outline_end(e, &f);
    }
    outline_call(e, &f, b->row, b->rows, args, PARAMS);
    return ok;
}
