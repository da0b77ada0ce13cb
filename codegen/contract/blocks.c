/* kernel.blocks: y[t, g] = w[g] x[t, g], a matrix for each group of a row.
 *
 * The kernel's columns are the panels of all groups, P panels for each group: column g P + p is
 * panel p of group g, whose last rows are filled up with zeros where N is no whole number of
 * panels. For a group, and a block of rows at a time, the back end that multiplies such panels in
 * other contractions (backend.h) leaves sums in scratch, which go to the group's columns of y.
 */
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/packed.h"
#include "codegen/matmul/backend.h"
#include "codegen/program/contraction.h"
#include "codegen/program/forms.h"

enum { DECODE_PANELS = 16 /* computed together, for one token */ };

typedef struct blocks {
    hcg_emit *e;
    const hcg_kernel *k;
    hcg_product product;
    hir_dtype dtype;
    int64_t groups, n, depth; /* G, N, K */
    int64_t panels, step;     /* panels of a group; panels computed together */
    LLVMValueRef x, w, y, sums;
    LLVMValueRef own_x;            /* scratch for x of a block: back ends want rows without gaps */
    LLVMValueRef group, row, rows; /* of the block */
} blocks;

static int64_t panels_of(int64_t n) {
    return (n + HIR_PANEL - 1) / HIR_PANEL;
}

/* y of the block at the panels from `panel` on, `n` of them. */
static void leave_sums(const blocks *b, LLVMValueRef panel, LLVMValueRef n) {
    hcg_emit *e = b->e;
    LLVMValueRef first = hcg_mul_const(e, panel, HIR_PANEL), lanes = hcg_i64(e, e->level->lanes);
    LLVMValueRef width =
        hcg_smaller(e, hcg_mul_const(e, n, HIR_PANEL), hcg_sub(e, hcg_i64(e, b->n), first));
    hcg_loop r = hcg_loop_begin(e, hcg_i64(e, 0), b->rows, hcg_i64(e, 1), "leave", 0, NULL);
    LLVMValueRef at = hcg_mul_const(e, hcg_add(e, b->row, r.index), b->groups);
    at = hcg_add(e, hcg_mul_const(e, hcg_add(e, at, b->group), b->n), first);
    LLVMValueRef to = hcg_at(e, e->f32, b->y, at);
    LLVMValueRef from = hcg_at(e, e->f32, b->sums, hcg_mul_const(e, r.index, b->step * HIR_PANEL));
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), width, lanes, "column", 0, NULL);
    LLVMValueRef left = b->n % HIR_PANEL ? hcg_sub(e, width, l.index) : NULL;
    LLVMValueRef v = hcg_load(e, HIR_F32, hcg_at(e, e->f32, from, l.index), NULL);
    hcg_store(e, hcg_at(e, e->f32, to, l.index), v, left);
    hcg_loop_end(e, &l, NULL);
    hcg_loop_end(e, &r, NULL);
}

/* Panels from .. to of the group, times the block's rows. */
static void emit_panels(blocks *b, LLVMValueRef from, LLVMValueRef to) {
    hcg_emit *e = b->e;
    const hcg_product *q = &b->product;
    const int64_t bytes = hcg_panel_bytes(b->dtype, b->depth);
    hcg_loop l = hcg_loop_begin(e, from, to, hcg_i64(e, b->step), "panels", 0, NULL);
    LLVMValueRef panel = hcg_add(e, hcg_mul_const(e, b->group, b->panels), l.index);
    hcg_panels p = {.dtype = b->dtype, .sums = b->sums};
    p.n = hcg_smaller(e, hcg_sub(e, to, l.index), hcg_i64(e, b->step));
    p.w = hcg_at(e, e->i8, b->w, hcg_mul_const(e, panel, bytes));
    p.ld = hcg_i64(e, b->step * HIR_PANEL);
    if (q->decode) {
        q->backend->gemv(e, q, &p);
    } else {
        p.next = hcg_at(e, e->i8, p.w, hcg_mul_const(e, p.n, bytes));
        q->backend->gemm(e, q, &p);
    }
    leave_sums(b, l.index, p.n);
    hcg_loop_end(e, &l, NULL);
}

/* Copies x of the block, whose rows lie G K elements apart. */
static LLVMValueRef gather_rows(const blocks *b) {
    hcg_emit *e = b->e;
    LLVMValueRef at = hcg_add(e, hcg_mul_const(e, b->row, b->groups), b->group);
    LLVMValueRef first = hcg_at(e, e->f32, b->x, hcg_mul_const(e, at, b->depth));
    if (!b->own_x) return first;
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), b->rows, hcg_i64(e, 1), "gather", 0, NULL);
    LLVMValueRef from = hcg_mul_const(e, l.index, b->groups * b->depth);
    hcg_scale_row(e, hcg_at(e, e->f32, first, from),
                  hcg_at(e, e->f32, b->own_x, hcg_mul_const(e, l.index, b->depth)), b->depth,
                  hcg_splat(e, 1));
    hcg_loop_end(e, &l, NULL);
    return b->own_x;
}

static void emit_rows(blocks *b, int64_t most, LLVMValueRef from, LLVMValueRef to) {
    hcg_emit *e = b->e;
    hcg_product *q = &b->product;
    hcg_loop l = hcg_loop_begin(e, e->r0, e->r1, hcg_i64(e, most), "rows", 0, NULL);
    b->row = l.index;
    b->rows = hcg_smaller(e, hcg_sub(e, e->r1, l.index), hcg_i64(e, most));
    q->x = gather_rows(b);
    q->ldx = q->length = hcg_i64(e, b->depth);
    q->n_rows = b->rows;
    if (q->backend->prepare) q->backend->prepare(e, q);
    emit_panels(b, from, to);
    hcg_loop_end(e, &l, NULL);
}

/* Groups with columns among c0 .. c1 - 1. */
static void emit_groups(blocks *b, int64_t most) {
    hcg_emit *e = b->e;
    LLVMValueRef panels = hcg_i64(e, b->panels);
    hcg_loop l = hcg_loop_begin(e, LLVMBuildUDiv(e->b, e->c0, panels, ""),
                                hcg_divide_up(e, e->c1, panels), hcg_i64(e, 1), "group", 0, NULL);
    LLVMValueRef first = hcg_mul(e, l.index, panels);
    b->group = l.index;
    emit_rows(b, most, hcg_larger(e, hcg_sub(e, e->c0, first), hcg_i64(e, 0)),
              hcg_smaller(e, hcg_sub(e, e->c1, first), panels));
    hcg_loop_end(e, &l, NULL);
}

static bool find_operands(blocks *b) {
    const hir_module *m = b->e->p->m;
    const hir_id op = hir_op_at(m, b->k->op)->body_first;
    hir_id found = HIR_NONE;
    HIR_EACH(m, id, op) if (hir_op_at(m, id)->code == HIR_BLOCK_LINEAR_OP) found = id;
    if (found == HIR_NONE) {
        hd_err(b->e->diags, HD_E_INTERNAL, *hir_op_at(m, b->k->op)->loc,
               "kernel.blocks cannot be emitted: it has no block_linear");
        return false;
    }
    const hir_op *o = hir_op_at(m, found);
    const hir_weight *w = &m->weights.at[o->args[1].index];
    const size_t errors = b->e->diags->errors;
    hcg_at_op(b->e, found);
    b->groups = w->type.dim[0], b->n = w->type.dim[1], b->depth = w->type.dim[2];
    b->dtype = w->type.dtype, b->panels = panels_of(b->n);
    b->x = hcg_arg(b->e, b->k, hir_through_reshapes(m, o->args[0]));
    b->w = hcg_arg(b->e, b->k, o->args[1]);
    b->y = hcg_arg(b->e, b->k, hir_value_ref(hir_op_at(m, b->k->op)->results[0]));
    return b->e->diags->errors == errors;
}

static bool emit_blocks(hcg_emit *e, const hcg_kernel *k) {
    blocks b = {.e = e, .k = k};
    if (!find_operands(&b)) return false;
    const bool decode = k->phase == HIR_DECODE;
    const hcg_backend_row *row =
        hcg_choose_backend(e->level, hcg_exact_products(&e->p->options), b.dtype, HIR_LAYOUT_PANEL,
                           decode ? HCG_FOR_DECODE : HCG_FOR_PREFILL);
    if (!row) {
        hd_err(e->diags, HD_E_INTERNAL, *hir_op_at(e->p->m, k->op)->loc,
               "no back end multiplies a matrix of %s on %s", hir_dtype_name(b.dtype),
               e->level->name)
            ->hint = "matmul/backends.def";
        return false;
    }
    const hcg_backend *back = row->backend;
    const int64_t rows = decode ? 1 : back->block_rows(e->level, b.depth);
    b.step = decode ? DECODE_PANELS : back->tile_panels(e->level);
    b.product = (hcg_product){.backend = back, .weights = 1u << b.dtype, .decode = decode};
    b.product.k = b.depth, b.product.rows = (uint64_t)rows, b.product.panels = b.step;
    if (back->begin) back->begin(e, &b.product);
    if (!decode && b.groups > 1) b.own_x = hcg_scratch(e, (uint64_t)(rows * b.depth * 4));
    const int64_t tile = decode ? 1 : (int64_t)back->tile_rows;
    const int64_t whole = (rows + tile - 1) / tile * tile;
    b.sums = hcg_scratch(e, (uint64_t)(whole * b.step * HIR_PANEL * 4));
    emit_groups(&b, rows);
    if (back->end) back->end(e, &b.product);
    return true;
}

static int64_t all_panels(const hir_module *m, hir_id kernel) {
    HIR_EACH(m, id, hir_op_at(m, kernel)->body_first) {
        const hir_op *o = hir_op_at(m, id);
        if (o->code != HIR_BLOCK_LINEAR_OP) continue;
        const hir_type w = hir_arg_type(m, id, 1);
        return w.dim[0] * panels_of(w.dim[1]);
    }
    return 1;
}

const hcg_form hcg_form_blocks = {.emit = emit_blocks, .columns = all_panels};
