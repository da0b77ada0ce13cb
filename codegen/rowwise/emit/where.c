/* Where a row program finds things: buffers by their arguments, this token's row of each, rows of
 * states and of tables that ids name, and the tables of pointers that ROW_MULTI reads. */
#include "codegen/emit/packed.h"
#include "codegen/rowwise/emit/run.h"

static row_size row_bytes(const row_buffer *b) {
    return row_size_scale(b->elements, (int64_t)hir_dtype_bytes(b->dtype));
}

/* The block in scratch, of a prologue or epilogue, whose rows a buffer stands for. */
static const hcg_row_block *block_of(const row_run *r, const row_buffer *b) {
    return b->where == ROW_GIVEN ? &r->stage->given : &r->stage->left;
}

void row_find_bases(row_run *r) {
    hcg_emit *e = r->e;
    for (size_t i = 0; i < r->g->buffers.n; i++) {
        const row_buffer *b = &r->g->buffers.at[i];
        if (!b->used || b->where == ROW_SUM) continue; /* a part has its own */
        if (b->where == ROW_SCRATCH)
            r->base[i] = row_scratch(r, row_bytes(b));
        else if (row_in_block(b))
            r->base[i] = block_of(r, b)->base;
        else
            r->base[i] = hcg_arg(e, r->g->k, b->ref);
        r->pointer[i] = r->base[i];
        r->has_state |= b->where == ROW_STATE;
    }
}

/* The row of the table that ids[token] names. In panels of 16 rows, element k of all rows of a
 * panel lies together. A row of a table in groups or pairs is widened into scratch, once per token.
 */
static LLVMValueRef gathered_row(row_run *r, const row_buffer *b, LLVMValueRef table) {
    hcg_emit *e = r->e;
    LLVMValueRef ids = hcg_arg(e, r->g->k, b->ids);
    LLVMValueRef id = LLVMBuildLoad2(e->b, e->i32, hcg_at(e, e->i32, ids, r->token), "id");
    LLVMSetAlignment(id, 4);
    id = LLVMBuildSExt(e->b, id, e->i64, "");
    const hir_weight *w = &r->g->m->weights.at[b->ref.index];
    if (b->beyond >= 0) {
        LLVMValueRef there =
            LLVMBuildICmp(e->b, LLVMIntSLT, id, hcg_i64(e, w->type.dim[0]), "there");
        id = LLVMBuildSelect(e->b, there, id, hcg_i64(e, b->beyond), "");
    }
    const hir_dtype stored = w->type.dtype;
    if (w->layout == HIR_LAYOUT_PANEL && hir_panel_depth(stored) > 1) {
        LLVMValueRef row = row_scratch(r, row_bytes(b));
        if (hir_is_quantised(stored))
            hcg_quant_row(e, stored, table, id, b->elements.a, row);
        else
            hcg_pair_row(e, table, id, b->elements.a, row);
        return row;
    }
    LLVMValueRef row = id, within = hcg_i64(e, 0);
    row_size elements = b->elements;
    if (b->step == HIR_PANEL) {
        row = LLVMBuildLShr(e->b, id, hcg_i64(e, 4), "");
        within = LLVMBuildAnd(e->b, id, hcg_i64(e, HIR_PANEL - 1), "");
        elements = row_size_scale(elements, HIR_PANEL);
    }
    LLVMValueRef first = LLVMBuildMul(e->b, row, row_i64(r, elements), "");
    first = LLVMBuildAdd(e->b, first, within, "");
    return hcg_at(e, hcg_element(e, b->dtype), table, first);
}

/* Token t of the chunk stands at position C - T + t. */
LLVMValueRef row_position(row_run *r) {
    hcg_emit *e = r->e;
    LLVMValueRef first = LLVMBuildSub(e->b, hcg_frame_c(e), hcg_frame_t(e), "");
    return LLVMBuildAdd(e->b, first, r->token, "position");
}

static LLVMValueRef load_owner(hcg_emit *e, LLVMTypeRef type, LLVMValueRef owner, size_t offset) {
    LLVMValueRef v =
        LLVMBuildLoad2(e->b, type, hcg_at(e, e->i8, owner, hcg_i64(e, (int64_t)offset)), "");
    LLVMSetAlignment(v, 8);
    return v;
}

/* Where this token's rows of states are: in the states of the call or, where the argument is a
 * state's number, in those of the session that the row of a batch belongs to. Row programs do not
 * handle batches as such: they run row by row, as if each were a call. */
static void find_sessions(row_run *r) {
    hcg_emit *e = r->e;
    size_t n = r->g->buffers.n;
    r->slot = row_position(r);
    r->cap = hcg_frame_cap(e);
    for (size_t i = 0; i < n; i++)
        r->state[i] = r->base[i];
    if (!r->stage) return;
    LLVMValueRef owners = hcg_frame_owners(e), call[2] = {r->slot, r->cap};
    LLVMBasicBlockRef alone = LLVMGetInsertBlock(e->b);
    LLVMBasicBlockRef batch = LLVMAppendBasicBlockInContext(e->cx, e->fn, "batch");
    LLVMBasicBlockRef found = LLVMAppendBasicBlockInContext(e->cx, e->fn, "states");
    LLVMBuildCondBr(e->b, LLVMBuildIsNull(e->b, owners, ""), found, batch);
    LLVMPositionBuilderAtEnd(e->b, batch);
    LLVMValueRef owner = load_owner(e, e->ptr, hcg_at(e, e->ptr, owners, r->token), 0);
    LLVMValueRef own[2] = {load_owner(e, e->i64, owner, offsetof(hrt_owner, length)),
                           load_owner(e, e->i64, owner, offsetof(hrt_owner, cap))};
    LLVMValueRef states = load_owner(e, e->ptr, owner, offsetof(hrt_owner, states));
    for (size_t i = 0; i < n; i++) {
        if (r->g->buffers.at[i].where != ROW_STATE) continue;
        LLVMValueRef number = LLVMBuildPtrToInt(e->b, r->base[i], e->i64, "");
        r->state[i] = load_owner(e, e->ptr, hcg_at(e, e->ptr, states, number), 0);
    }
    LLVMBuildBr(e->b, found);
    LLVMPositionBuilderAtEnd(e->b, found);
    LLVMBasicBlockRef from[] = {alone, batch};
    r->slot = hcg_phi(e, call[0], own[0], from);
    r->cap = hcg_phi(e, call[1], own[1], from);
    for (size_t i = 0; i < n; i++)
        if (r->g->buffers.at[i].where == ROW_STATE)
            r->state[i] = hcg_phi(e, r->base[i], r->state[i], from);
}

/* The row of a state that has one row for each `rate` positions. A token that is not the last of
 * its `rate` positions writes to memory that is never read, so that stores need no branches. */
static void find_rated_row(row_run *r, size_t buffer) {
    hcg_emit *e = r->e;
    const row_buffer *b = &r->g->buffers.at[buffer];
    LLVMValueRef rate = hcg_i64(e, b->rate), one = hcg_i64(e, 1), zero = hcg_i64(e, 0);
    LLVMValueRef end = LLVMBuildAdd(e->b, r->slot, one, "");
    LLVMValueRef writes =
        LLVMBuildICmp(e->b, LLVMIntEQ, LLVMBuildURem(e->b, end, rate, ""), zero, "writes");
    const int64_t bytes = b->heads * b->head * (int64_t)hir_dtype_bytes(b->dtype);
    LLVMValueRef nowhere = row_scratch(r, row_int(bytes));
    LLVMValueRef row = LLVMBuildUDiv(e->b, r->slot, rate, "");
    r->state[buffer] = LLVMBuildSelect(e->b, writes, r->state[buffer], nowhere, "");
    r->row[buffer] = LLVMBuildSelect(e->b, writes, row, zero, "");
    r->apart[buffer] =
        LLVMBuildSelect(e->b, writes, LLVMBuildUDiv(e->b, r->cap, rate, ""), one, "");
}

void row_find_states(row_run *r) {
    find_sessions(r);
    for (size_t i = 0; i < r->g->buffers.n; i++) {
        const row_buffer *b = &r->g->buffers.at[i];
        r->row[i] = r->slot, r->apart[i] = r->cap;
        if (b->where == ROW_STATE && b->used && b->rate > 1) find_rated_row(r, i);
    }
}

/* base + which * bytes */
static LLVMValueRef bytes_on(row_run *r, LLVMValueRef base, LLVMValueRef which, row_size bytes) {
    hcg_emit *e = r->e;
    return hcg_at(e, e->i8, base, LLVMBuildMul(e->b, which, row_i64(r, bytes), ""));
}

/* This token's row of a state, in the first head that is computed. */
static LLVMValueRef find_state_row(row_run *r, size_t buffer) {
    hcg_emit *e = r->e;
    const row_buffer *b = &r->g->buffers.at[buffer];
    const row_size bytes = row_int(b->head * (int64_t)hir_dtype_bytes(b->dtype));
    LLVMValueRef row = r->row[buffer], heads = r->apart[buffer];
    if (b->by_head) row = LLVMBuildAdd(e->b, row, LLVMBuildMul(e->b, r->head, heads, ""), "");
    return bytes_on(r, r->state[buffer], row, bytes);
}

static LLVMValueRef find_block_row(row_run *r, const row_buffer *b) {
    hcg_emit *e = r->e;
    const hcg_row_stage *p = r->stage;
    LLVMValueRef row = LLVMBuildSub(e->b, r->token, p->row, "");
    LLVMValueRef at = LLVMBuildMul(e->b, row, block_of(r, b)->ld, "");
    if (p->of.heads) {
        LLVMValueRef head = LLVMBuildSub(e->b, r->head, p->head, "");
        head = LLVMBuildMul(e->b, head, row_i64(r, b->elements), "");
        at = LLVMBuildAdd(e->b, at, head, "");
    }
    return hcg_at(e, e->f32, block_of(r, b)->base, at);
}

/* Where this token's row of a buffer is, or the part of this head. */
static LLVMValueRef find_row(row_run *r, size_t buffer) {
    const row_buffer *b = &r->g->buffers.at[buffer];
    if (!b->has_t) return r->base[buffer];
    if (b->where == ROW_GATHER && !r->gathered[buffer])
        r->gathered[buffer] = gathered_row(r, b, r->base[buffer]);
    if (b->where == ROW_GATHER) return r->gathered[buffer];
    if (b->where == ROW_STATE) return find_state_row(r, buffer);
    if (row_in_block(b)) return find_block_row(r, b);
    int64_t heads = b->by_head ? r->stage->of.heads : 1;
    LLVMValueRef p = bytes_on(r, r->base[buffer], r->token, row_size_scale(row_bytes(b), heads));
    return b->by_head ? bytes_on(r, p, r->head, row_bytes(b)) : p;
}

void row_find_rows(row_run *r) {
    for (size_t i = 0; i < r->g->buffers.n; i++)
        if (r->g->buffers.at[i].direct) r->pointer[i] = find_row(r, i);
}

/* ---- tables of row pointers ------------------------------------------------------------------ */

/* Bytes that rows of a ROW_MULTI advance by from token to token: most rows are values with T of
 * one size. Entries that advance differently are written anew for each token. 0: no row has T. */
static row_size stride_of(const row_run *r, const row_node *n) {
    if (n->run)
        return row_size_scale(row_elements_without(&n->shape, n->axis),
                              (int64_t)hir_dtype_bytes(n->dtype));
    for (uint32_t j = 0; j < n->n_entries; j++) {
        const row_buffer *b = &r->g->buffers.at[row_at(r->g, n->entries[j].node)->buffer];
        if (b->where == ROW_ARG && b->has_t && !b->by_head) return row_bytes(b);
    }
    return row_int(0);
}

static bool advances_by(const row_buffer *b, row_size stride) {
    if (!b->has_t) return row_size_is(stride, 0);
    return b->where == ROW_ARG && !b->by_head && row_size_equal(row_bytes(b), stride);
}

/* Fills the table's entries whose pointers advance by `shift` from token to token (`fixed`), or
 * the other entries, which are written for each token. */
static void fill_table(row_run *r, uint32_t node, bool fixed) {
    hcg_emit *e = r->e;
    const row_node *n = row_at(r->g, node);
    const row_size stride = stride_of(r, n);
    for (uint32_t j = 0; j < n->n_entries; j++) {
        uint32_t buffer = row_at(r->g, n->entries[j].node)->buffer;
        const row_buffer *b = &r->g->buffers.at[buffer];
        if (advances_by(b, stride) != fixed) continue;
        LLVMValueRef p = fixed ? r->base[buffer] : find_row(r, buffer);
        p = hcg_at(e, hcg_element(e, n->dtype), p, row_i64(r, n->entries[j].offset));
        if (!fixed && r->shift[node]) {
            LLVMValueRef back = LLVMBuildNeg(e->b, r->shift[node], "");
            p = LLVMBuildGEP2(e->b, e->i8, p, &back, 1, "");
        }
        LLVMBuildStore(e->b, p, hcg_at(e, e->ptr, r->rows[node], hcg_i64(e, j)));
    }
}

void row_make_tables(row_run *r) {
    for (uint32_t i = 0; i < r->g->nodes.n; i++) {
        const row_node *n = row_at(r->g, i);
        if (n->kind != ROW_MULTI || row_of(r->s, n)->uses == 0) continue;
        if (n->run) { /* the arguments are such a table */
            r->rows[i] = hcg_at(r->e, r->e->ptr, r->e->args,
                                row_i64(r, (row_size){.a = n->run->first.a, .b = n->run->first.b}));
            continue;
        }
        r->rows[i] = hcg_scratch(r->e, (uint64_t)n->n_entries * sizeof(void *));
        fill_table(r, i, true);
    }
}

void row_advance_tables(row_run *r) {
    hcg_emit *e = r->e;
    for (uint32_t i = 0; i < r->g->nodes.n; i++) {
        if (!r->rows[i]) continue;
        const row_size stride = stride_of(r, row_at(r->g, i));
        if (!row_size_is(stride, 0))
            r->shift[i] = LLVMBuildMul(e->b, r->token, row_i64(r, stride), "");
        fill_table(r, i, false);
    }
}

/* ---- sizes that depend on N ------------------------------------------------------------------ */
/* Sizes as code: a + b N, with N from the arguments, computed once at the start of the function. */

/* Computes it in the entry block, after the load of N. */
static LLVMValueRef computed_at_entry(row_run *r, row_size s) {
    hcg_emit *e = r->e;
    LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b);
    LLVMBasicBlockRef entry = LLVMGetEntryBasicBlock(e->fn);
    if (!r->n) r->n = hcg_size_arg(e, r->g->k, HCG_N);
    LLVMValueRef next = LLVMIsAInstruction(r->n) ? LLVMGetNextInstruction(r->n) : NULL;
    if (next)
        LLVMPositionBuilderBefore(e->b, next);
    else
        LLVMPositionBuilderAtEnd(e->b, entry);
    LLVMValueRef v = LLVMBuildMul(e->b, r->n, hcg_i64(e, s.b), "");
    v = LLVMBuildAdd(e->b, v, hcg_i64(e, s.a), "size");
    LLVMPositionBuilderAtEnd(e->b, here);
    return v;
}

LLVMValueRef row_i64(row_run *r, row_size size) {
    if (size.not_affine)
        hd_err(r->e->diags, HD_E_INTERNAL, HD_NOWHERE,
               "a row program multiplies two sizes that are not known");
    if (!row_is_dynamic(size)) return hcg_i64(r->e, size.a);
    for (size_t i = 0; i < r->sizes.n; i++)
        if (row_size_equal(r->sizes.at[i].size, size)) return r->sizes.at[i].value;
    row_size_value s = {size, computed_at_entry(r, size)};
    hd_push(r->g->arena, &r->sizes, s);
    return s.value;
}

LLVMValueRef row_scratch(row_run *r, row_size bytes) {
    return hcg_scratch(r->e, (uint64_t)row_most(r->g, bytes));
}
