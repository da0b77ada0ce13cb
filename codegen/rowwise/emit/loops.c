/* Loop nests of a row program, and the loop over tokens around them. */
#include <string.h>

#include "codegen/rowwise/emit/run.h"

/* ---- the loops around the vectors ------------------------------------------------------------ */

static void outer(row_run *r, uint32_t depth, row_jam jam);

/* The dim that the loop at `depth` goes along, outermost first. */
static uint32_t dim_at(const row_run *r, uint32_t depth) {
    const uint32_t rank = r->nest->domain.rank;
    return row_interchanged(r) && depth + 3 >= rank ? 2 * rank - 5 - depth : depth;
}

static void outer_loop(row_run *r, uint32_t depth, LLVMValueRef from, LLVMValueRef to,
                       uint32_t step, row_jam jam) {
    hcg_emit *e = r->e;
    const uint32_t dim = dim_at(r, depth);
    hcg_loop l = hcg_loop_begin(e, from, to, hcg_i64(e, step), "d", 0, NULL);
    r->var[dim] = l.index;
    outer(r, depth + 1, jam);
    r->var[dim] = NULL;
    hcg_loop_end(e, &l, NULL);
}

/* Goes over elements from .. to of a dim before the last, `step` at once. */
static void outer_range(row_run *r, uint32_t depth, int64_t from, int64_t to, uint32_t step,
                        row_jam jam) {
    hcg_emit *e = r->e;
    const uint32_t dim = dim_at(r, depth);
    if (from == to) return;
    if (from + step == to) {
        r->var[dim] = hcg_i64(e, from);
        outer(r, depth + 1, jam);
        r->var[dim] = NULL;
        return;
    }
    outer_loop(r, depth, hcg_i64(e, from), hcg_i64(e, to), step, jam);
}

/* Goes over a dim of dynamic size: iterations take the largest power of two of elements that the
 * jam allows, then half as many for the rest, and so on down to one. */
static void outer_dynamic(row_run *r, uint32_t depth, row_jam jam) {
    hcg_emit *e = r->e;
    const row_shape *domain = &r->nest->domain;
    const uint32_t dim = dim_at(r, depth);
    uint32_t one = 1, *step = &one;
    if (dim + 2 == domain->rank) step = &jam.inner;
    if (dim + 3 == domain->rank) step = &jam.outer;
    while (*step & (*step - 1))
        *step &= *step - 1;
    LLVMValueRef size = row_i64(r, domain->dim[dim]), from = hcg_i64(e, 0);
    for (; *step > 0; *step /= 2) {
        LLVMValueRef to = LLVMBuildAnd(e->b, size, hcg_i64(e, -(int64_t)*step), "whole");
        outer_loop(r, depth, from, to, *step, jam);
        from = to;
    }
}

/* Makes loops of the dims before the last one; the two innermost loops are jammed. */
static void outer(row_run *r, uint32_t depth, row_jam jam) {
    const row_nest *nest = r->nest;
    uint32_t rank = nest->domain.rank;
    if (depth + 1 >= rank) {
        r->jam = jam;
        row_emit_lanes(r);
        return;
    }
    const uint32_t dim = dim_at(r, depth);
    uint32_t step = dim + 2 == rank ? jam.inner : dim + 3 == rank ? jam.outer : 1;
    const int64_t size = nest->domain.dim[dim].a, whole = size - size % step;
    const uint32_t left = (uint32_t)(size - whole);
    const row_jam rest = {dim + 3 == rank ? left : jam.outer, dim + 2 == rank ? left : jam.inner};
    if (row_is_dynamic(nest->domain.dim[dim])) {
        outer_dynamic(r, depth, jam);
        return;
    }
    outer_range(r, depth, 0, whole, step, jam);
    outer_range(r, depth, whole, size, left, rest);
}

/* ---- sums in blocks -------------------------------------------------------------------------- */

/* Elements from this block to the one that is read next, in this row or in the next token's. */
static LLVMValueRef next_block(row_run *r, LLVMValueRef from, int64_t whole, int64_t length) {
    hcg_emit *e = r->e;
    if (!r->more) return NULL;
    LLVMValueRef there = LLVMBuildMul(e->b, r->more, hcg_i64(e, length), "");
    if (row_interchanged(r)) return there;
    LLVMValueRef here = LLVMBuildICmp(e->b, LLVMIntSLT, from, hcg_i64(e, whole - length), "");
    return LLVMBuildSelect(e->b, here, hcg_i64(e, length), there, "on");
}

/* Computes sums block by block; between blocks they are kept in scratch, as vectors. */
static void sums_in_blocks(row_run *r) {
    hcg_emit *e = r->e;
    const row_nest *nest = r->nest;
    const int64_t size = nest->domain.dim[r->lane_var].a, length = nest->block.length;
    const int64_t whole = size / length * length;
    const row_size rows = row_elements_without(&nest->domain, nest->domain.rank - 1);
    const int64_t sums = (int64_t)nest->roots.n;
    row_block_at block = {.length = length, .interchanged = nest->block.interchanged};
    block.kept = row_scratch(r, row_size_scale(rows, sums * e->level->lanes * 4));
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), row_i64(r, rows), hcg_i64(e, 1), "row", 0, NULL);
    for (int64_t i = 0; i < sums; i++) {
        LLVMValueRef at = LLVMBuildMul(e->b, l.index, hcg_i64(e, sums), "");
        at = LLVMBuildAdd(e->b, at, hcg_i64(e, i), "");
        const row_node *n =
            row_at(r->g, nest->roots.at[sums - 1 - i]); /* in the order of lanes.c */
        hcg_store(e, hcg_at(e, e->vec, block.kept, at), row_start(r, n), NULL);
    }
    hcg_loop_end(e, &l, NULL);
    r->block = &block;
    l = hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, whole), hcg_i64(e, length), "block", 0, NULL);
    block.from = l.index;
    block.next = next_block(r, l.index, whole, length);
    outer(r, 0, nest->jam);
    hcg_loop_end(e, &l, NULL);
    block.length = 0, block.done = whole, block.next = NULL;
    outer(r, 0, nest->jam);
    r->block = NULL;
}

/* Computes roots of one element in straight code; the values stay in registers for the rest of the
 * token. */
static void single(row_run *r, const row_nest *nest) {
    for (size_t i = nest->roots.n; i-- > 0;) {
        const row_node *n = row_at(r->g, nest->roots.at[i]);
        row_pack p = row_compute(r, nest->roots.at[i]);
        row_made_of(r, n)->scalar = p.v[0];
        if (n->buffer != ROW_NO_BUFFER) row_write(r, n, r->loops, &p);
    }
}

/* Phis of the one-element sums that both versions of a nest (stores non-temporal or not) make. */
static void join_scalars(row_run *r, const row_nest *nest, LLVMValueRef *const made[2],
                         LLVMBasicBlockRef from[2]) {
    for (size_t i = 0; i < nest->roots.n; i++) {
        if (!made[0][i]) continue;
        LLVMValueRef phi = LLVMBuildPhi(r->e->b, r->e->f32, "");
        LLVMAddIncoming(phi, (LLVMValueRef[]){made[0][i], made[1][i]}, from, 2);
        r->made[nest->roots.at[i]].scalar = phi;
    }
}

/* The loops of a nest. If its stores may be non-temporal there are two versions and a branch. */
static void loops_of(row_run *r, const row_nest *nest) {
    hcg_emit *e = r->e;
    LLVMValueRef when = row_stream_when(r, nest);
    if (!when) {
        if (nest->block.length)
            sums_in_blocks(r);
        else
            outer(r, 0, nest->jam);
        return;
    }
    LLVMBasicBlockRef past = LLVMAppendBasicBlockInContext(e->cx, e->fn, "past");
    LLVMBasicBlockRef through = LLVMAppendBasicBlockInContext(e->cx, e->fn, "through");
    LLVMBasicBlockRef stored = LLVMAppendBasicBlockInContext(e->cx, e->fn, "stored");
    LLVMBasicBlockRef end[2];
    LLVMValueRef *const made[2] = {hd_new_array(e->arena, LLVMValueRef, nest->roots.n),
                                   hd_new_array(e->arena, LLVMValueRef, nest->roots.n)};
    LLVMBuildCondBr(e->b, when, past, through);
    for (int form = 0; form < 2; form++) {
        row_scope scope = row_scope_begin(r);
        LLVMPositionBuilderAtEnd(e->b, form ? through : past);
        r->streaming = form == 0;
        outer(r, 0, nest->jam);
        for (size_t i = 0; i < nest->roots.n; i++)
            made[form][i] = r->made[nest->roots.at[i]].scalar;
        end[form] = LLVMGetInsertBlock(e->b);
        LLVMBuildBr(e->b, stored);
        row_scope_end(r, scope);
    }
    LLVMPositionBuilderAtEnd(e->b, stored);
    join_scalars(r, nest, made, end);
}

static void emit_nest(row_run *r, const row_nest *nest) {
    if (nest->small) {
        row_emit_small(r, nest);
        return;
    }
    if (nest->selection) {
        row_emit_selection(r, row_at(r->g, nest->roots.at[0]));
        return;
    }
    row_scope scope = row_scope_begin(r);
    r->nest = nest;
    r->loops = nest->loops;
    r->lane_var = (int)nest->domain.rank - 1;
    r->unroll = 1;
    r->tail = NULL;
    row_branch branch = row_when_begin(r);
    if (nest->domain.rank)
        loops_of(r, nest);
    else
        single(r, nest);
    row_when_end(r, &branch);
    row_scope_end(r, scope);
}

static void emit_nests(row_run *r, const row_nests *nests) {
    for (size_t i = nests->list.n; i-- > 0;)
        if (nests->list.at[i].roots.n) emit_nest(r, &nests->list.at[i]);
}

/* ---- the program ----------------------------------------------------------------------------- */
/* Frequencies of rope_table as constants of the module. */
static void make_frequencies(row_run *r) {
    hcg_emit *e = r->e;
    for (size_t i = 0; i < r->g->tables.n; i++) {
        const row_table *t = &r->g->tables.at[i];
        const int64_t n = t->beyond ? 2 * t->padded : t->padded;
        LLVMValueRef *f = hd_new_array(e->arena, LLVMValueRef, (size_t)n);
        for (int64_t j = 0; j < n; j++)
            f[j] = LLVMConstReal(e->f64, t->at[j]);
        LLVMTypeRef type = LLVMArrayType2(e->f64, (uint64_t)n);
        LLVMValueRef global = LLVMAddGlobal(e->mod, type, "frequencies");
        r->frequencies[i] = global;
        LLVMSetInitializer(global, LLVMConstArray2(e->f64, f, (uint64_t)n));
        LLVMSetGlobalConstant(global, true);
        LLVMSetLinkage(global, LLVMPrivateLinkage);
        LLVMSetUnnamedAddress(global, LLVMGlobalUnnamedAddr);
        LLVMSetAlignment(global, 64);
    }
}

/* Computes all of one token, or of one head of it. */
static void one_row(row_run *r) {
    row_find_rows(r);
    row_advance_tables(r);
    emit_nests(r, &r->s->per_token);
}

static void each_head(row_run *r) {
    hcg_emit *e = r->e;
    const hcg_row_stage *p = r->stage;
    hcg_loop l = hcg_loop_begin(e, p->head, p->end, hcg_i64(e, 1), "head", 0, NULL);
    r->head = l.index;
    one_row(r);
    hcg_loop_end(e, &l, NULL);
}

static void each_token(row_run *r, LLVMValueRef from, LLVMValueRef to) {
    hcg_emit *e = r->e;
    const hcg_row_stage *p = r->stage;
    hcg_loop l = hcg_loop_begin(e, from, to, hcg_i64(e, 1), "t", 0, NULL);
    r->token = l.index;
    if (!p) {
        LLVMValueRef next = LLVMBuildAdd(e->b, l.index, hcg_i64(e, 1), "");
        r->more = LLVMBuildZExt(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, next, to, ""), e->i64, "");
    }
    if (r->g->tables.n) r->position = LLVMBuildSIToFP(e->b, row_position(r), e->f64, "position");
    if (r->has_state) row_find_states(r);
    if (p && p->of.heads)
        each_head(r);
    else
        one_row(r);
    hcg_loop_end(e, &l, NULL);
}

void row_emit(hcg_emit *e, const row_schedule *s, const hcg_row_stage *stage) {
    const row_graph *g = s->g;
    row_run r = {.e = e, .g = s->g, .s = s, .stage = stage};
    r.made = hd_new_array(e->arena, row_made, g->nodes.n + 1);
    r.frequencies = hd_new_array(e->arena, LLVMValueRef, g->tables.n + 1);
    r.base = hd_new_array(e->arena, LLVMValueRef, g->buffers.n + 1);
    r.pointer = hd_new_array(e->arena, LLVMValueRef, g->buffers.n + 1);
    r.gathered = hd_new_array(e->arena, LLVMValueRef, g->buffers.n + 1);
    r.state = hd_new_array(e->arena, LLVMValueRef, g->buffers.n + 1);
    r.row = hd_new_array(e->arena, LLVMValueRef, g->buffers.n + 1);
    r.apart = hd_new_array(e->arena, LLVMValueRef, g->buffers.n + 1);
    r.rows = hd_new_array(e->arena, LLVMValueRef, g->nodes.n + 1);
    r.shift = hd_new_array(e->arena, LLVMValueRef, g->nodes.n + 1);
    row_find_bases(&r);
    row_make_tables(&r);
    make_frequencies(&r);
    emit_nests(&r, &s->once);
    if (stage)
        each_token(&r, stage->row, LLVMBuildAdd(e->b, stage->row, stage->rows, ""));
    else if (g->sums.n)
        row_emit_parts(&r, each_token);
    else if (g->has_t)
        each_token(&r, e->r0, e->r1);
    row_stream_end(&r);
}

row_target row_target_of(const hcg_level *level) {
    return (row_target){.lanes = level->lanes,
                        .registers = level->registers,
                        .nontemporal = strcmp(level->arch, "x86_64") == 0,
                        .machine = level->machine};
}

/* ---- nests that run for some tokens ---------------------------------------------------------- */
/* Sums that are computed for some tokens only.
 *
 *     %1 = when %c, %x      %2 = reduce_sum %1          %c: one number, %2: one number
 *
 * is 0 unless c > 0, and then the loop over x is skipped. Its nest holds only such sums of one c
 * and what they alone read (schedule/nests.c), inside a branch. c > 0 is mostly the same from token
 * to token, so that the branch is predicted well.
 */

row_branch row_when_begin(row_run *r) {
    hcg_emit *e = r->e;
    row_branch b = {0};
    if (!r->nest->when) return b;
    LLVMValueRef c = row_read(r, r->nest->when, r->loops).v[0];
    c = LLVMBuildFCmp(e->b, LLVMRealOGT, c, LLVMConstReal(e->f32, 0), "when");
    b.from = LLVMGetInsertBlock(e->b);
    b.past = LLVMAppendBasicBlockInContext(e->cx, e->fn, "summed");
    LLVMBasicBlockRef sums = LLVMAppendBasicBlockInContext(e->cx, e->fn, "sums");
    LLVMBuildCondBr(e->b, c, sums, b.past);
    LLVMPositionBuilderAtEnd(e->b, sums);
    b.scope = row_scope_begin(r);
    return b;
}

void row_when_end(row_run *r, const row_branch *b) {
    hcg_emit *e = r->e;
    if (!b->past) return;
    row_scope_end(r, b->scope);
    LLVMBasicBlockRef last = LLVMGetInsertBlock(e->b);
    LLVMBuildBr(e->b, b->past);
    LLVMPositionBuilderAtEnd(e->b, b->past);
    LLVMBasicBlockRef from[] = {b->from, last};
    for (size_t i = 0; i < r->nest->roots.n; i++) {
        row_made *made = &r->made[r->nest->roots.at[i]];
        if (!row_when(row_at(r->g, r->nest->roots.at[i]))) continue;
        LLVMValueRef sums[] = {LLVMConstReal(e->f32, 0), made->scalar};
        made->scalar = LLVMBuildPhi(e->b, e->f32, "sum");
        LLVMAddIncoming(made->scalar, sums, from, 2);
    }
    for (size_t i = 0; i < r->nest->roots.n; i++) { /* stores, after all joins */
        const row_node *n = row_at(r->g, r->nest->roots.at[i]);
        row_pack p = {.uniform = true, .v = {row_made_of(r, n)->scalar}};
        if (row_when(n) && n->buffer != ROW_NO_BUFFER) row_write(r, n, r->loops, &p);
    }
}
