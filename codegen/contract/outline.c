/* Prologue and epilogue of contractions as functions of their own. A call for each block of rows or
 * panels costs nothing beside their work, and the kernels for one token and for many share them, as
 * do all contractions that have the same (share.c): one function for the projections of all layers,
 * whatever mix over depth is in front of them. */
#include "codegen/contract/epilogue.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/shared.h"
#include "codegen/rowwise/stage.h"

enum { FRAME, ARGS, SCRATCH, ROW, ROWS, OWN };

typedef struct outlined {
    hcg_shared fn;
    hcg_emit outer; /* what the kernel around was at */
} outlined;

/* The parameters that all have come first. Inside, `e` emits into the new function until
 * outline_end. */
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

/* In the unit of functions that kernels share there is no prologue, but what it calls of them is to
 * be there: it is made once more beside them, and left out. */
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
