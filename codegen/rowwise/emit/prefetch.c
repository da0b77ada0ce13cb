/* Prefetches rows that later iterations read, as the schedule says (schedule/memory.c): the row of
 * the next iteration or block, or a place further along the same row. */
#include "codegen/emit/stream.h"
#include "codegen/rowwise/emit/run.h"
#include "codegen/target/prefetch_distance.h"

/* ---- from iteration to iteration ------------------------------------------------------------- */

static LLVMValueRef known(const row_run *r, uint32_t node, const row_index *at) {
    for (size_t i = r->next.n; i-- > 0;)
        if (r->next.at[i].node == node && row_index_equal(&r->next.at[i].index, at))
            return r->next.at[i].value;
    return NULL;
}

/* How many rows, counted by `at`, one iteration takes; 0: they are not prefetched. */
static uint32_t rows_of_iteration(const row_run *r, uint32_t node, const row_index *at) {
    row_index rest = *at;
    rest.constant = row_int(0);
    for (size_t i = 0; i < r->nest->prefetch.n; i++) {
        const row_prefetch *p = &r->nest->prefetch.at[i];
        const row_index self = row_var(p->dim);
        if (p->node == node && row_index_equal(&rest, &self))
            return p->dim + 2 == r->nest->domain.rank ? r->jam.inner : r->jam.outer;
    }
    return 0;
}

/* Bytes from the current elements of a row to those that are read after all rows: the next block's,
 * or the next token's. */
static LLVMValueRef bytes_on(row_run *r, const row_node *n) {
    hcg_emit *e = r->e;
    const row_size elements =
        n->run ? row_elements_without(&n->shape, n->axis)
               : r->g->buffers.at[row_at(r->g, n->entries[0].node)->buffer].elements;
    const int64_t element = (int64_t)hir_dtype_bytes(n->dtype);
    if (r->block && r->block->next)
        return LLVMBuildMul(e->b, r->block->next, hcg_i64(e, element), "");
    return LLVMBuildMul(e->b, r->more, row_i64(r, row_size_scale(elements, element)), "");
}

/* The row that the next iteration reads where this one reads row `at`, each taking `step`. */
static LLVMValueRef next_row(row_run *r, uint32_t node, const row_index *at, uint32_t step) {
    hcg_emit *e = r->e;
    const row_node *n = row_at(r->g, node);
    LLVMValueRef size = row_i64(r, n->shape.dim[n->axis]);
    row_index next = *at;
    next.constant = row_size_add(next.constant, row_int(step));
    LLVMValueRef i = row_number(r, &next, 0);
    LLVMValueRef past = LLVMBuildICmp(e->b, LLVMIntSGE, i, size, "");
    i = LLVMBuildSelect(e->b, past, LLVMBuildSub(e->b, i, size, ""), i, "next");
    LLVMValueRef on = LLVMBuildSelect(e->b, past, bytes_on(r, n), hcg_i64(e, 0), "");
    LLVMValueRef p = LLVMBuildLoad2(e->b, e->ptr, hcg_at(e, e->ptr, r->rows[node], i), "next row");
    if (r->shift[node]) p = LLVMBuildGEP2(e->b, e->i8, p, &r->shift[node], 1, "");
    return LLVMBuildGEP2(e->b, e->i8, p, &on, 1, "");
}

void row_prefetch_find(row_run *r, uint32_t node, const row_index *at, LLVMValueRef row) {
    hcg_emit *e = r->e;
    const row_node *n = row_at(r->g, node);
    if (known(r, node, at)) return;
    const uint32_t step = rows_of_iteration(r, node, at);
    if (step == 0) return;
    row_known k = {.node = node, .index = *at};
    k.value =
        row_interchanged(r) ? hcg_at(e, e->i8, row, bytes_on(r, n)) : next_row(r, node, at, step);
    hd_push(r->g->arena, &r->next, k);
}

/* ---- along the rows -------------------------------------------------------------------------- */

void row_prefetch_along(row_run *r, const row_team *t) {
    hcg_emit *e = r->e;
    r->along = NULL;
    if (t->prefetch == HIR_NONE || r->tail) return;
    const row_node *rows = row_at(r->g, t->prefetch);
    const int64_t ahead = hcg_prefetch_distance(&e->level->machine, HCG_PREFETCH_ALONG);
    const int64_t on = ahead / (int64_t)hir_dtype_bytes(rows->dtype);
    LLVMValueRef last = row_i64(r, row_size_add(r->nest->domain.dim[r->lane_var], row_int(-on)));
    LLVMValueRef here = LLVMBuildICmp(e->b, LLVMIntSLT, r->var[r->lane_var], last, "");
    LLVMValueRef there = LLVMBuildMul(e->b, r->more, hcg_i64(e, ahead), "");
    r->along = LLVMBuildSelect(e->b, here, hcg_i64(e, ahead), there, "along");
    r->along_rows = t->prefetch;
}

/* ---- the instructions ------------------------------------------------------------------------ */

void row_prefetch_issue(row_run *r, uint32_t node, const row_index *at, LLVMValueRef element,
                        LLVMValueRef here) {
    hcg_emit *e = r->e;
    const hir_dtype dtype = row_at(r->g, node)->dtype;
    const int64_t bytes = (int64_t)r->unroll * e->level->lanes * (int64_t)hir_dtype_bytes(dtype);
    LLVMValueRef p = NULL;
    if (r->tail || bytes < ROW_PREFETCH_LEAST) return;
    if (r->along && r->along_rows == node)
        p = LLVMBuildGEP2(e->b, e->i8, here, &r->along, 1, "");
    else if (known(r, node, at))
        p = hcg_at(e, hcg_element(e, dtype), known(r, node, at), element);
    for (int64_t line = 0; p && line < bytes; line += e->level->machine.line)
        hcg_prefetch(e, p, line);
}
