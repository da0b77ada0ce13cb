/* The kernel form ngram of kernel.sequence: rows of a table that hashes of the last tokens name.
 *
 *     y[t, j] = table[h_m mod sizes[j] + offsets[j]],  h_m = XOR over s < m of id(t - s) M_s
 *
 * in 64 bits, for m = 2 .. N and so many entries j of each. One thread computes everything:
 * finding a row takes some integer arithmetic, and the row is copied. The ids of earlier calls are
 * in the window as f32, the id of position p at p mod N - 1; they are written when all tokens have
 * been read. The contexts, and the entries with their sizes, which are constants, are unrolled.
 */
#include "codegen/recurrence/ngram.h"

#include "codegen/emit/arithmetic.h"
#include "codegen/program/contraction.h"
#include "codegen/program/forms.h"

hcg_ngram hcg_ngram_of(hcg_emit *e, const hir_op *op) {
    hcg_ngram g = {.halves = hir_find_attr(op, HIR_A_MULTIPLIERS),
                   .sizes = hir_find_attr(op, HIR_A_SIZES),
                   .offsets = hir_find_attr(op, HIR_A_OFFSETS),
                   .ends = hir_find_attr(op, HIR_A_EOS)};
    g.n = g.halves->n / 2, g.heads = g.sizes->n;
    g.end = hir_attr_int(op, g.ends ? HIR_A_EOS : HIR_A_BEFORE, 0);
    g.past = hcg_sub(e, hcg_frame_c(e), hcg_frame_t(e));
    return g;
}

LLVMValueRef hcg_ngram_id(hcg_emit *e, const hcg_ngram *g, LLVMValueRef t) {
    LLVMValueRef id = LLVMBuildLoad2(e->b, e->i32, hcg_at(e, e->i32, g->ids, t), "id");
    LLVMSetAlignment(id, 4);
    return LLVMBuildSExt(e->b, id, e->i64, "");
}

static LLVMValueRef window_at(hcg_emit *e, const hcg_ngram *g, LLVMValueRef position) {
    LLVMValueRef row = LLVMBuildURem(e->b, position, hcg_i64(e, g->n - 1), "row");
    return hcg_at(e, e->f32, g->window, row);
}

/* The id `back` positions before token t, which is of this call or in the window; anything where
 * that is before the start. Adding N - 1 keeps the position of the window from being negative. */
static LLVMValueRef earlier_id(hcg_emit *e, const hcg_ngram *g, LLVMValueRef t, int64_t back) {
    LLVMValueRef at = hcg_sub(e, t, hcg_i64(e, back)), zero = hcg_i64(e, 0);
    LLVMValueRef here = LLVMBuildICmp(e->b, LLVMIntSGE, at, zero, "here");
    LLVMValueRef in_call = LLVMBuildSelect(e->b, here, at, zero, "");
    if (!g->window) return hcg_ngram_id(e, g, in_call);
    LLVMValueRef in_window = LLVMBuildSelect(e->b, here, zero, hcg_add(e, g->past, at), "");
    in_window = hcg_add(e, in_window, hcg_i64(e, g->n - 1));
    LLVMValueRef kept = hcg_load_scalar(e, HIR_F32, window_at(e, g, in_window));
    kept = LLVMBuildFPToSI(e->b, kept, e->i64, "");
    return LLVMBuildSelect(e->b, here, hcg_ngram_id(e, g, in_call), kept, "id");
}

/* The ids that token t sees 0 .. N - 1 positions back. */
static void find_context(hcg_emit *e, const hcg_ngram *g, LLVMValueRef t, LLVMValueRef *ids) {
    LLVMValueRef end = hcg_i64(e, g->end), p = hcg_add(e, g->past, t);
    LLVMValueRef ended = LLVMConstInt(e->i1, 0, false);
    ids[0] = hcg_ngram_id(e, g, t);
    for (int64_t s = 1; s < g->n; s++) {
        LLVMValueRef before = LLVMBuildICmp(e->b, LLVMIntSLT, p, hcg_i64(e, s), "before");
        ended = LLVMBuildOr(e->b, ended, before, "ended");
        ids[s] = LLVMBuildSelect(e->b, ended, end, earlier_id(e, g, t, s), "");
        if (!g->ends) continue;
        ended = LLVMBuildOr(e->b, ended, LLVMBuildICmp(e->b, LLVMIntEQ, ids[s], end, ""), "ended");
    }
}

/* id M_s modulo 2^64. */
static LLVMValueRef product(hcg_emit *e, const hcg_ngram *g, LLVMValueRef id, int64_t s) {
    const uint64_t low = (uint64_t)(int64_t)g->halves->floats[2 * s];
    const uint64_t high = (uint64_t)(int64_t)g->halves->floats[2 * s + 1];
    return LLVMBuildMul(e->b, id, LLVMConstInt(e->i64, low + (high << 32), false), "");
}

static LLVMValueRef row_of(hcg_emit *e, const hcg_ngram *g, LLVMValueRef hash, int64_t head) {
    LLVMValueRef size = hcg_i64(e, (int64_t)g->sizes->floats[head]);
    LLVMValueRef rest = LLVMBuildSRem(e->b, hash, size, "rest");
    LLVMValueRef negative = LLVMBuildICmp(e->b, LLVMIntSLT, rest, hcg_i64(e, 0), "");
    rest = LLVMBuildSelect(e->b, negative, hcg_add(e, rest, size), rest, "");
    return hcg_add(e, rest, hcg_i64(e, (int64_t)g->offsets->floats[head]));
}

void hcg_ngram_rows(hcg_emit *e, const hcg_ngram *g, LLVMValueRef t, LLVMValueRef *rows) {
    LLVMValueRef ids[HCG_MOST_IDS] = {NULL};
    const int64_t each = g->heads / (g->n - 1);
    find_context(e, g, t, ids);
    LLVMValueRef hash = product(e, g, ids[0], 0);
    for (int64_t j = 0; j < g->heads; j++) {
        const int64_t s = j / each + 1;
        if (j % each == 0) hash = LLVMBuildXor(e->b, hash, product(e, g, ids[s], s), "hash");
        rows[j] = row_of(e, g, hash, j);
    }
}

/* ---- the kernel ------------------------------------------------------------------------------ */
typedef struct lookup {
    hcg_ngram g;
    LLVMValueRef table, out;
    int64_t width;
} lookup;

static void copy_row(hcg_emit *e, const lookup *l, LLVMValueRef row, LLVMValueRef to) {
    LLVMValueRef from = hcg_at(e, e->f32, l->table, hcg_mul_const(e, row, l->width));
    LLVMValueRef n = hcg_i64(e, l->width), step = hcg_i64(e, e->level->lanes);
    hcg_loop loop = hcg_loop_begin(e, hcg_i64(e, 0), n, step, "copy", 0, NULL);
    LLVMValueRef left = hcg_sub(e, n, loop.index);
    LLVMValueRef x = hcg_load(e, HIR_F32, hcg_at(e, e->f32, from, loop.index), left);
    hcg_store(e, hcg_at(e, e->f32, to, loop.index), x, left);
    hcg_loop_end(e, &loop, NULL);
}

static void emit_token(hcg_emit *e, const lookup *l, LLVMValueRef t) {
    LLVMValueRef *rows = hd_new_array(e->arena, LLVMValueRef, (size_t)l->g.heads);
    LLVMValueRef out = hcg_at(e, e->f32, l->out, hcg_mul_const(e, t, l->g.heads * l->width));
    hcg_ngram_rows(e, &l->g, t, rows);
    for (int64_t j = 0; j < l->g.heads; j++)
        copy_row(e, l, rows[j], hcg_at(e, e->f32, out, hcg_i64(e, j * l->width)));
}

static void keep_ids(hcg_emit *e, const hcg_ngram *g) {
    LLVMValueRef first = hcg_larger(e, hcg_sub(e, e->r1, hcg_i64(e, g->n - 1)), e->r0);
    hcg_loop l = hcg_loop_begin(e, first, e->r1, hcg_i64(e, 1), "keep", 0, NULL);
    LLVMValueRef id = LLVMBuildSIToFP(e->b, hcg_ngram_id(e, g, l.index), e->f32, "");
    LLVMValueRef to = window_at(e, g, hcg_add(e, g->past, l.index));
    LLVMSetAlignment(LLVMBuildStore(e->b, id, to), 4);
    hcg_loop_end(e, &l, NULL);
}

static bool emit_ngram(hcg_emit *e, const hcg_kernel *k) {
    const hir_module *m = e->p->m;
    const hir_id id = hir_form_op(m, k->op);
    const hir_op *op = hir_op_at(m, id);
    const size_t errors = e->diags->errors;
    lookup l = {.g = hcg_ngram_of(e, op)};
    LLVMValueRef *const operands[] = {&l.g.ids, &l.table, &l.g.window};
    for (uint32_t i = 0; i < 3; i++)
        *operands[i] = hcg_arg(e, k, op->args[i]);
    l.out = hcg_arg(e, k, hir_value_ref(hir_op_at(m, k->op)->results[0]));
    if (e->diags->errors != errors) return false;
    l.width = hir_value_at(m, op->results[0])->type.dim[2];
    hcg_at_op(e, id);
    hcg_loop loop = hcg_loop_begin(e, e->r0, e->r1, hcg_i64(e, 1), "token", 0, NULL);
    emit_token(e, &l, loop.index);
    hcg_loop_end(e, &loop, NULL);
    keep_ids(e, &l.g);
    return true;
}

const hcg_form hcg_form_ngram = {.emit = emit_ngram};
