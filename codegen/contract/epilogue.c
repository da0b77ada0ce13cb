/* Epilogue of a contraction: bias, then the elementwise ops of the body on vectors of one row, then
 * the stores. Sums come from scratch (contract/backend.h), not from the micro-kernel's registers: a
 * pass over a block that is still in the L1 costs little next to K multiply-adds an element, and
 * the ops are emitted once instead of once per register tile.
 *
 * The last panel of N % 16 columns has code of its own, in which every tail is known.
 *
 * Where ops need a head at a time (norms of q and k, rope, the write to the cache), they are a row
 * program on the block, head by head; a bias is added to the block before.
 */
#include "codegen/contract/epilogue.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/library/library.h"
#include "codegen/row/stage.h"

#include <string.h>

typedef struct known {
    hir_ref ref; /* a body value, or an operand that is the same for all elements */
    LLVMValueRef v;
} known;

typedef struct epilogue {
    hcg_emit *e;
    const hcg_kernel *k;
    const hcg_block *b;
    HD_VEC(known) known;
    size_t n_constant;        /* of `known`: those that hold for the whole block */
    LLVMValueRef row, column; /* of the vector: token, first output feature */
    LLVMValueRef valid;       /* lanes, NULL: all */
} epilogue;

static LLVMValueRef find_known(const epilogue *p, hir_ref r) {
    for (size_t i = p->known.n; i-- > 0;)
        if (hir_ref_equal(p->known.at[i].ref, r)) return p->known.at[i].v;
    return NULL;
}

static void set_known(epilogue *p, hir_ref r, LLVMValueRef v) {
    hd_push(p->e->arena, &p->known, ((known){r, v}));
}

static bool varies_by_row(hir_type t) {
    return t.rank >= 2 && t.dim[0] == HIR_T;
}

static bool varies_by_column(hir_type t) {
    return t.rank > 0 && t.dim[t.rank - 1] != 1;
}

static const hir_op *made_by(const hir_module *m, hir_ref r) {
    hir_id op = r.kind == HIR_REF_VALUE ? hir_value_at(m, r.index)->op : HIR_NONE;
    return op == HIR_NONE ? NULL : hir_op_at(m, op);
}

/* Constants, and outer operands of one element: splat once. */
static void prepare_operand(epilogue *p, hir_ref r) {
    const hir_module *m = p->e->p->m;
    hir_type type = hir_ref_type(m, r);
    const hir_op *op = made_by(m, hcg_through_reshapes(m, r));
    r = hcg_through_reshapes(m, r);
    if (find_known(p, r)) return;
    if (op && op->code == HIR_CONST_OP)
        set_known(p, r, hcg_splat(p->e, hir_attr_float(op, HIR_A_VALUE, 0)));
    else if (!varies_by_row(type) && !varies_by_column(type) && (!op || op->parent != p->k->op))
        set_known(p, r,
                  hcg_splat_value(p->e, hcg_load_scalar(p->e, HIR_F32, hcg_arg(p->e, p->k, r))));
}

static void prepare(epilogue *p) {
    const hcg_column_group *g = p->b->group;
    for (size_t i = 0; i < g->ops.n; i++) {
        const hir_op *op = hir_op_at(p->e->p->m, g->ops.at[i]);
        for (uint32_t a = 0; a < op->n_args; a++)
            prepare_operand(p, op->args[a]);
    }
    p->n_constant = p->known.n;
}

/* The vector of an outer operand at (row, column), stretched as its type says. */
static LLVMValueRef load_outer(epilogue *p, hir_ref r, hir_type type) {
    hcg_emit *e = p->e;
    LLVMValueRef at = hcg_i64(e, 0), base = hcg_arg(e, p->k, hcg_through_reshapes(e->p->m, r));
    LLVMValueRef width = varies_by_column(type) ? p->b->n : hcg_i64(e, 1);
    if (varies_by_row(type)) at = hcg_mul(e, p->row, width);
    if (!varies_by_column(type))
        return hcg_splat_value(e, hcg_load_scalar(e, HIR_F32, hcg_at(e, e->f32, base, at)));
    at = hcg_add(e, at, p->column);
    return hcg_load(e, HIR_F32, hcg_at(e, e->f32, base, at), p->valid);
}

/* Of experts: that of the expert whose rows these are. */
static LLVMValueRef load_bias(epilogue *p, hir_ref bias) {
    hcg_emit *e = p->e;
    if (!p->b->expert) return load_outer(p, bias, hir_ref_type(e->p->m, bias));
    LLVMValueRef at = hcg_add(e, hcg_mul(e, p->b->expert, p->b->n), p->column);
    return hcg_load(e, HIR_F32, hcg_at(e, e->f32, hcg_arg(e, p->k, bias), at), p->valid);
}

static LLVMValueRef operand(epilogue *p, hir_ref r) {
    LLVMValueRef v = find_known(p, hcg_through_reshapes(p->e->p->m, r));
    return v ? v : load_outer(p, r, hir_ref_type(p->e->p->m, r));
}

/* Of a group with heads: adds the bias to the sums in scratch. */
static void emit_bias(epilogue *p, LLVMValueRef at) {
    hcg_emit *e = p->e;
    hir_ref bias = p->b->plan->linears.at[p->b->group->linears.at[0]].bias;
    LLVMValueRef place = hcg_at(e, e->f32, p->b->sums[0], at);
    LLVMValueRef v = hcg_load(e, HIR_F32, place, NULL);
    v = hcg_fadd(e, v, load_outer(p, bias, hir_ref_type(e->p->m, bias)));
    hcg_store(e, place, v, p->valid);
}

LLVMValueRef hcg_row_number(hcg_emit *e, LLVMValueRef row_of, LLVMValueRef i) {
    LLVMValueRef row = LLVMBuildLoad2(e->b, e->i32, hcg_at(e, e->i32, row_of, i), "row");
    LLVMSetAlignment(row, 4);
    return LLVMBuildZExt(e->b, row, e->i64, "");
}

/* Everything for `lanes` columns of one row; `at` is the place of the sums in scratch. */
static void emit_vector(epilogue *p, LLVMValueRef at) {
    hcg_emit *e = p->e;
    const hcg_column_group *g = p->b->group;
    if (g->heads) {
        emit_bias(p, at);
        return;
    }
    p->known.n = p->n_constant;
    for (size_t i = 0; i < g->linears.n; i++) {
        const hcg_linear *l = &p->b->plan->linears.at[g->linears.at[i]];
        LLVMValueRef v = hcg_load(e, HIR_F32, hcg_at(e, e->f32, p->b->sums[i], at), NULL);
        if (l->bias.kind != HIR_REF_NONE && !p->b->without_bias)
            v = hcg_fadd(e, v, load_bias(p, l->bias));
        set_known(p, hir_value_ref(l->value), v);
    }
    for (size_t i = 0; i < g->ops.n; i++) {
        const hir_op *op = hir_op_at(e->p->m, g->ops.at[i]);
        hcg_at_op(e, g->ops.at[i]);
        LLVMValueRef x = operand(p, op->args[0]);
        LLVMValueRef y = op->n_args > 1 ? operand(p, op->args[1]) : NULL;
        set_known(p, hir_value_ref(op->results[0]), hcg_elementwise(e, op, x, y));
    }
    LLVMValueRef place = hcg_mul(e, p->row, p->b->n);
    place = hcg_add(e, place, p->column);
    for (size_t i = 0; i < g->yields.n; i++) {
        const hir_dtype dtype = hir_value_at(e->p->m, g->yields.at[i].result)->type.dtype;
        LLVMValueRef base = hcg_arg(e, p->k, hir_value_ref(g->yields.at[i].result));
        hcg_store_as(e, dtype, hcg_at(e, hcg_element(e, dtype), base, place),
                     find_known(p, hir_value_ref(g->yields.at[i].value)), p->valid);
    }
}

/* The panel's vectors; `columns` of its 16 exist. */
static void emit_panel(epilogue *p, LLVMValueRef at, LLVMValueRef column, unsigned columns) {
    hcg_emit *e = p->e;
    for (unsigned v = 0; v < columns; v += e->level->lanes) {
        unsigned left = columns - v;
        p->valid = left < e->level->lanes ? hcg_i64(e, left) : NULL;
        p->column = hcg_add(e, column, hcg_i64(e, v));
        emit_vector(p, hcg_add(e, at, hcg_i64(e, v)));
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
    p->row = hcg_add(e, b->row, rows.index);
    if (b->row_of) p->row = hcg_row_number(e, b->row_of, p->row);
    hcg_loop panels = hcg_loop_begin(e, zero, b->panels, one, "epilogue_panel", 0, NULL);
    LLVMValueRef offset = hcg_mul_const(e, panels.index, HIR_PANEL);
    LLVMValueRef at = hcg_add(e, hcg_mul(e, rows.index, b->ld), offset);
    LLVMValueRef panel = hcg_add(e, b->panel, panels.index);
    emit_panel_or_edge(p, at, hcg_mul_const(e, panel, HIR_PANEL));
    hcg_loop_end(e, &panels, NULL);
    hcg_loop_end(e, &rows, NULL);
}

/* Number of heads in front of a panel with which one begins; at the end, of all. */
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
    return hcg_emit_row_stage(e, p->k, &stage);
}

bool hcg_emit_epilogue(hcg_emit *e, const hcg_kernel *k, const hcg_block *b) {
    size_t errors = e->diags->errors;
    epilogue p = {.e = e, .k = k, .b = b};
    if (b->group->heads) return emit_heads(&p);
    prepare(&p);
    emit_columns(&p);
    return e->diags->errors == errors;
}
