/* The gradients of matrices: the kernel forms linear_grad, block_linear_grad and
 * expert_linear_grad of kernel.sequence.
 *
 *     y[n, k]    (+)= sum_t dy[t, n] x[t, k]           linear: over all rows of a token, too
 *     y[g, n, k] (+)= sum_t dy[t, g, n] x[t, g, k]     a matrix for each group of a row
 *     y[e, n, k] (+)= sum dy[s, n] x[s, k]             over the slots s that chose expert e
 *
 * Sums are f32, over tokens in their order, in blocks (matmul/outer.c). A column of the work
 * is a cell of y: 16 rows of a matrix by at most HCG_OUTER_COLUMNS columns, in strips of nearly
 * equal width. A thread has cells in a row, and does all tokens of each, so that the number of
 * threads changes no bit. Cell c is number p of the P panels of rows, in strip s of columns of
 * matrix m: c = (m S + s) P + p. Cells of a strip that a thread has are one block of y.
 *
 * A matrix of few columns would fill few lanes of a vector. It is made as its transpose, in
 * workspace, a strip of its rows at a time.
 *
 * Experts: slots are sorted by expert, and each expert's rows are read in that order
 * (contract/expert_rows.h). Experts have different numbers of rows, so the cells of an expert weigh
 * as much as its rows and HCG_PANEL_ROWS more, for y. Thread i of n does the cells whose weights,
 * added up from the first cell on, begin in [i / n, (i + 1) / n) of the whole. The gradient of an
 * expert without rows is 0; slots whose id is no expert count for none.
 */
#include "codegen/contract/expert_rows.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/matmul/backend.h"
#include "codegen/matmul/matrix.h"
#include "codegen/program/contraction.h"
#include "codegen/program/forms.h"

enum { FEW_COLUMNS = HIR_PANEL }; /* a matrix with no more is made as its transpose */

typedef struct shape { /* of one kernel, read from its body */
    hir_id op;
    int64_t matrices;       /* groups or experts; 1 */
    int64_t n, k;           /* of a matrix */
    bool turned;            /* it is made as its transpose */
    int64_t panels, strips; /* P, S */
    int64_t wide;           /* columns of a strip, but for the last */
} shape;

typedef struct emission {
    hcg_emit *e;
    const hcg_kernel *k;
    shape s;
    LLVMValueRef y;
    bool adds;              /* to what y holds */
    hcg_outer o;            /* but for n and k: dy and x of a whole matrix */
    int64_t dy_at, x_at;    /* floats from one matrix's dy and x to the next */
    LLVMValueRef turned[2]; /* workspace: the transpose of a strip, and the strip */
} emission;

/* ---- the body -------------------------------------------------------------------------------- */
static shape shape_of(const hir_module *m, hir_id kernel) {
    shape s = {.op = hir_form_op(m, kernel)};
    const hir_op *op = hir_op_at(m, s.op);
    const hir_type y = hir_value_at(m, op->results[0])->type;
    s.matrices = y.rank == 3 ? y.dim[0] : 1;
    s.n = y.dim[y.rank - 2], s.k = y.dim[y.rank - 1];
    s.turned = s.k <= FEW_COLUMNS && s.n > s.k;
    const int64_t rows = s.turned ? s.k : s.n, columns = s.turned ? s.n : s.k;
    s.panels = (rows + HIR_PANEL - 1) / HIR_PANEL;
    s.strips = (columns + HCG_OUTER_COLUMNS - 1) / HCG_OUTER_COLUMNS;
    const int64_t all = (columns + HIR_PANEL - 1) / HIR_PANEL;
    s.wide = (all + s.strips - 1) / s.strips * HIR_PANEL;
    return s;
}

static int64_t count_columns(const hir_module *m, hir_id kernel) {
    const shape s = shape_of(m, kernel);
    return s.matrices * s.strips * s.panels;
}

/* ---- cells ----------------------------------------------------------------------------------- */
/* to[0 .. n) (+)= from, n a constant or not. */
static void leave(const emission *p, LLVMValueRef from, LLVMValueRef to, LLVMValueRef n) {
    hcg_emit *e = p->e;
    LLVMValueRef lanes = hcg_i64(e, e->level->lanes);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), n, lanes, "leave", 0, NULL);
    LLVMValueRef left = hcg_sub(e, n, l.index), at = hcg_at(e, e->f32, to, l.index);
    LLVMValueRef v =
        from ? hcg_load(e, HIR_F32, hcg_at(e, e->f32, from, l.index), NULL) : hcg_splat(e, 0);
    if (p->adds) v = hcg_fadd(e, hcg_load(e, HIR_F32, at, left), v);
    hcg_store(e, at, v, left);
    hcg_loop_end(e, &l, NULL);
}

typedef struct cells { /* rows first .. of y by columns column .., or of its transpose */
    LLVMValueRef y;    /* of the matrix */
    LLVMValueRef row, rows, column, columns;
} cells;

/* The outer products of what is left of two factors from some columns on. */
static hcg_outer products_of(const emission *p, const cells *c) {
    hcg_emit *e = p->e;
    hcg_outer o = p->o;
    o.a = hcg_at(e, e->f32, o.a, c->row), o.n = c->rows;
    o.b = hcg_at(e, e->f32, o.b, c->column), o.k = c->columns;
    return o;
}

static void emit_straight(const emission *p, const cells *c) {
    hcg_emit *e = p->e;
    hcg_outer o = products_of(p, c);
    LLVMValueRef at = hcg_add(e, hcg_mul_const(e, c->row, p->s.k), c->column);
    o.y = hcg_at(e, e->f32, c->y, at);
    o.ldy = hcg_i64(e, p->s.k), o.add = hcg_i64(e, p->adds);
    hcg_call_outer(e, &o);
}

/* The rows of y from `column` on, which are the columns of its transpose. */
static void emit_turned(const emission *p, const cells *c) {
    hcg_emit *e = p->e;
    hcg_outer o = products_of(p, c);
    enum { BLOCK = 4 }; /* of the transposition: no column of it is done alone */
    o.y = p->turned[0], o.ldy = hcg_i64(e, HCG_OUTER_COLUMNS), o.add = hcg_i64(e, 0);
    hcg_call_outer(e, &o);
    LLVMValueRef whole = hcg_add(e, c->columns, hcg_i64(e, BLOCK - 1));
    whole = LLVMBuildAnd(e->b, whole, hcg_i64(e, -BLOCK), "");
    hcg_pack_rows(e, (unsigned)p->s.k, o.y, o.ldy, hcg_i64(e, p->s.k), whole, p->turned[1]);
    leave(p, p->turned[1], hcg_at(e, e->f32, c->y, hcg_mul_const(e, c->column, p->s.k)),
          hcg_mul_const(e, c->columns, p->s.k));
}

/* The same where there is nothing to add. */
static void emit_nothing(const emission *p, const cells *c) {
    hcg_emit *e = p->e;
    if (p->adds) return;
    if (p->s.turned) {
        leave(p, NULL, hcg_at(e, e->f32, c->y, hcg_mul_const(e, c->column, p->s.k)),
              hcg_mul_const(e, c->columns, p->s.k));
        return;
    }
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), c->rows, hcg_i64(e, 1), "row", 0, NULL);
    LLVMValueRef at = hcg_mul_const(e, hcg_add(e, c->row, l.index), p->s.k);
    leave(p, NULL, hcg_at(e, e->f32, c->y, hcg_add(e, at, c->column)), c->columns);
    hcg_loop_end(e, &l, NULL);
}

/* Cells from .. to of a matrix, strip by strip. */
static void emit_cells(const emission *p, LLVMValueRef y, LLVMValueRef from, LLVMValueRef to,
                       void (*emit_block)(const emission *p, const cells *c)) {
    hcg_emit *e = p->e;
    const int64_t rows = p->s.turned ? p->s.k : p->s.n, columns = p->s.turned ? p->s.n : p->s.k;
    LLVMValueRef panels = hcg_i64(e, p->s.panels), zero = hcg_i64(e, 0);
    LLVMValueRef first = LLVMBuildUDiv(e->b, from, panels, "");
    hcg_loop l =
        hcg_loop_begin(e, first, hcg_divide_up(e, to, panels), hcg_i64(e, 1), "strip", 0, NULL);
    LLVMValueRef before = hcg_mul(e, l.index, panels), end;
    cells c = {.y = y, .column = hcg_mul_const(e, l.index, HCG_OUTER_COLUMNS)};
    c.columns =
        hcg_smaller(e, hcg_sub(e, hcg_i64(e, columns), c.column), hcg_i64(e, HCG_OUTER_COLUMNS));
    c.row = hcg_mul_const(e, hcg_larger(e, hcg_sub(e, from, before), zero), HIR_PANEL);
    end = hcg_mul_const(e, hcg_smaller(e, hcg_sub(e, to, before), panels), HIR_PANEL);
    c.rows = hcg_sub(e, hcg_smaller(e, end, hcg_i64(e, rows)), c.row);
    emit_block(p, &c);
    hcg_loop_end(e, &l, NULL);
}

static void (*block_of(const emission *p))(const emission *p, const cells *c) {
    return p->s.turned ? emit_turned : emit_straight;
}

static LLVMValueRef matrix_at(const emission *p, LLVMValueRef y, LLVMValueRef matrix,
                              int64_t apart) {
    return hcg_at(p->e, p->e->f32, y, hcg_mul_const(p->e, matrix, apart));
}

/* ---- the kernel ------------------------------------------------------------------------------ */
/* Which of dy and x gives the rows of what is made, and which the columns. */
static void set_factors(emission *p, LLVMValueRef dy, LLVMValueRef x, int64_t dy_row,
                        int64_t x_row) {
    hcg_emit *e = p->e;
    LLVMValueRef base[] = {dy, x}, ld[] = {hcg_i64(e, dy_row), hcg_i64(e, x_row)};
    const int a = p->s.turned;
    p->o.a = base[a], p->o.lda = ld[a], p->o.b = base[!a], p->o.ldb = ld[!a];
}

static LLVMValueRef operand(const emission *p, uint32_t i) {
    const hir_module *m = p->e->p->m;
    return hcg_arg(p->e, p->k, hir_through_reshapes(m, hir_op_at(m, p->s.op)->args[i]));
}

/* A library has only variants that can round (codegen/module/variants.c). */
static bool reject_rounded(hcg_emit *e, hir_id op) {
    hd_err(e->diags, HD_E_INTERNAL, *hir_op_at(e->p->m, op)->loc,
           "products of gradients cannot be rounded to bf16 on %s", e->level->name)
        ->hint = "matmul/backends.def";
    return false;
}

static bool begin(emission *p, hcg_emit *e, const hcg_kernel *k) {
    const size_t errors = e->diags->errors;
    *p = (emission){.e = e, .k = k, .s = shape_of(e->p->m, k->op)};
    hcg_at_op(e, p->s.op);
    const hir_ref y = hcg_result_of(e->p->m, k->op, p->s.op);
    p->y = hcg_arg(e, k, y);
    p->adds = hir_value_at(e->p->m, y.index)->place == HIR_PLACE_GRADIENT;
    p->o.rounds = e->p->options.compile.matmul_dtype == HIR_BF16;
    if (p->o.rounds && !hcg_multiplies_bf16(e->level)) return reject_rounded(e, p->s.op);
    p->o.space =
        hcg_scratch(e, hcg_outer_bytes(e->level, p->o.rounds, p->s.turned ? p->s.k : p->s.n));
    const uint64_t strip = (uint64_t)(p->s.k * HCG_OUTER_COLUMNS) * sizeof(float);
    for (int i = 0; i < 2 && p->s.turned; i++)
        p->turned[i] = hcg_scratch(e, strip + e->level->lanes * sizeof(float));
    return e->diags->errors == errors;
}

/* The matrices that all rows of x are multiplied with: one, or one for each group of a row. */
static bool emit_all_rows(hcg_emit *e, const hcg_kernel *k) {
    emission p;
    if (!begin(&p, e, k)) return false;
    const hir_type t = hir_arg_type(e->p->m, p.s.op, 0);
    const int64_t groups = p.s.matrices, cells_of = p.s.panels * p.s.strips;
    int64_t of_token = hir_type_row_elements(t) / (groups * p.s.n);
    LLVMValueRef dy = operand(&p, 0), x = operand(&p, 1), zero = hcg_i64(e, 0);
    p.o.rows = hcg_i64(e, of_token);
    if (hir_type_has_t(t)) p.o.rows = hcg_mul_const(e, e->r1, of_token);
    LLVMValueRef all = hcg_i64(e, cells_of);
    hcg_loop l = hcg_loop_begin(e, LLVMBuildUDiv(e->b, e->c0, all, ""),
                                hcg_divide_up(e, e->c1, all), hcg_i64(e, 1), "matrix", 0, NULL);
    LLVMValueRef before = hcg_mul(e, l.index, all);
    set_factors(&p, matrix_at(&p, dy, l.index, p.s.n), matrix_at(&p, x, l.index, p.s.k),
                groups * p.s.n, groups * p.s.k);
    emit_cells(&p, matrix_at(&p, p.y, l.index, p.s.n * p.s.k),
               hcg_larger(e, hcg_sub(e, e->c0, before), zero),
               hcg_smaller(e, hcg_sub(e, e->c1, before), all), block_of(&p));
    hcg_loop_end(e, &l, NULL);
    return true;
}

/* How many of an expert's cells begin before `share` of the sum of weights, if its first begins at
 * `before` and each has weight `weight`. */
static LLVMValueRef cells_before(const emission *p, LLVMValueRef share, LLVMValueRef before,
                                 LLVMValueRef weight) {
    hcg_emit *e = p->e;
    LLVMValueRef left = hcg_larger(e, hcg_sub(e, share, before), hcg_i64(e, 0));
    return hcg_smaller(e, hcg_divide_up(e, left, weight), hcg_i64(e, p->s.panels * p->s.strips));
}

/* Cells from .. to of an expert, which may have no rows. */
static void emit_expert(const emission *p, LLVMValueRef y, LLVMValueRef from, LLVMValueRef to) {
    hcg_emit *e = p->e;
    LLVMBasicBlockRef some = LLVMAppendBasicBlockInContext(e->cx, e->fn, "some");
    LLVMBasicBlockRef none = LLVMAppendBasicBlockInContext(e->cx, e->fn, "none");
    LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(e->cx, e->fn, "done");
    LLVMBuildCondBr(e->b, LLVMBuildICmp(e->b, LLVMIntSGT, p->o.rows, hcg_i64(e, 0), ""), some,
                    none);
    LLVMPositionBuilderAtEnd(e->b, some);
    emit_cells(p, y, from, to, block_of(p));
    LLVMBuildBr(e->b, done);
    LLVMPositionBuilderAtEnd(e->b, none);
    emit_cells(p, y, from, to, emit_nothing);
    LLVMBuildBr(e->b, done);
    LLVMPositionBuilderAtEnd(e->b, done);
}

static bool emit_experts(hcg_emit *e, const hcg_kernel *k) {
    emission p;
    if (!begin(&p, e, k)) return false;
    const hir_module *m = e->p->m;
    const int64_t experts = p.s.matrices, cells_of = p.s.panels * p.s.strips;
    const int64_t slots = hir_arg_type(m, p.s.op, 2).dim[1];
    const int64_t x_each = hir_arg_type(m, p.s.op, 1).rank == 2 ? slots : 1;
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), first, end, valid;
    set_factors(&p, operand(&p, 0), operand(&p, 1), p.s.n, p.s.k);
    p.o.a_each = hcg_i64(e, p.s.turned ? x_each : 1);
    p.o.b_each = hcg_i64(e, p.s.turned ? 1 : x_each);
    const hcg_expert_rows rows = hcg_sort_by_expert(
        e, operand(&p, 2), zero, hcg_mul_const(e, e->r1, slots), e->p->chunk * slots, experts);
    hcg_rows_of_expert(e, &rows, hcg_i64(e, experts - 1), &first, &valid);
    LLVMValueRef whole = hcg_add(e, valid, hcg_i64(e, experts * HCG_PANEL_ROWS)), share[2];
    for (int i = 0; i < 2; i++) {
        share[i] = hcg_mul(e, hcg_mul_const(e, whole, cells_of), i ? e->c1 : e->c0);
        share[i] = LLVMBuildUDiv(e->b, share[i], hcg_i64(e, experts * cells_of), "share");
    }
    hcg_loop l = hcg_loop_begin(e, zero, hcg_i64(e, experts), one, "expert", 1, &zero);
    hcg_rows_of_expert(e, &rows, l.index, &first, &end);
    p.o.rows = hcg_sub(e, end, first);
    p.o.list = hcg_at(e, e->i32, rows.list, first);
    LLVMValueRef weight = hcg_add(e, p.o.rows, hcg_i64(e, HCG_PANEL_ROWS));
    emit_expert(&p, matrix_at(&p, p.y, l.index, p.s.n * p.s.k),
                cells_before(&p, share[0], l.carried[0], weight),
                cells_before(&p, share[1], l.carried[0], weight));
    LLVMValueRef next = hcg_add(e, l.carried[0], hcg_mul_const(e, weight, cells_of));
    hcg_loop_end(e, &l, &next);
    return true;
}

/* ---- of any size ----------------------------------------------------------------------------- */
enum { ARG_A, ARG_B, ARG_Y, ARG_COLUMNS, ARG_SYMMETRIC };

static LLVMValueRef argument(hcg_emit *e, LLVMTypeRef type, int64_t i) {
    const int64_t at = i * (int64_t)sizeof(void *);
    LLVMValueRef v = LLVMBuildLoad2(e->b, type, hcg_at(e, e->i8, e->args, hcg_i64(e, at)), "arg");
    LLVMSetAlignment(v, sizeof(void *));
    return v;
}

/* y[n, k] = sum_t a[t, n] b[t, k] for the products of Muon (runtime/muon.c): rows r1 of a and b, n of
 * c1, a, b, y, k and whether y is symmetric in args. Then what is left of the diagonal is not made. */
bool hcg_emit_products(hcg_emit *e) {
    LLVMValueRef n = e->c1, columns = argument(e, e->i64, ARG_COLUMNS), zero = hcg_i64(e, 0);
    LLVMValueRef b = argument(e, e->ptr, ARG_B), y = argument(e, e->ptr, ARG_Y);
    LLVMValueRef symmetric =
        LLVMBuildICmp(e->b, LLVMIntNE, argument(e, e->i64, ARG_SYMMETRIC), zero, "symmetric");
    LLVMValueRef most = hcg_i64(e, HCG_OUTER_COLUMNS);
    hcg_outer o = {.a = argument(e, e->ptr, ARG_A), .lda = n, .ldb = columns, .rows = e->r1};
    o.ldy = columns, o.add = zero;
    o.space = hcg_scratch(e, hcg_outer_bytes(e->level, false, INT32_MAX));
    hcg_loop l = hcg_loop_begin(e, zero, columns, most, "strip", 0, NULL);
    o.b = hcg_at(e, e->f32, b, l.index), o.y = hcg_at(e, e->f32, y, l.index);
    o.k = hcg_smaller(e, hcg_sub(e, columns, l.index), most);
    LLVMValueRef rows = hcg_smaller(e, n, hcg_add(e, l.index, o.k));
    o.n = LLVMBuildSelect(e->b, symmetric, rows, n, "");
    o.below = LLVMBuildSelect(e->b, symmetric, l.index, hcg_i64(e, INT64_MAX / 2), "");
    hcg_call_outer(e, &o);
    hcg_loop_end(e, &l, NULL);
    return true;
}

const hcg_form hcg_form_linear_grad = {.emit = emit_all_rows, .columns = count_columns};
const hcg_form hcg_form_block_linear_grad = {.emit = emit_all_rows, .columns = count_columns};
const hcg_form hcg_form_expert_linear_grad = {.emit = emit_experts, .columns = count_columns};
