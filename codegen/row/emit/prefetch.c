/* Rows are asked for before they are read.
 *
 * Dot products of n sources and S queries go some sources at a time, each turn along their rows,
 * and stop and start as many streams of reads as there are sources, for every token anew: more than
 * the machine fetches ahead by itself. So each turn asks for the same elements of the rows that the
 * next turn reads, and the last turn for the first rows' next piece, or for those of the next
 * token. Where the loops have changed places all rows have their turns again and again: each turn
 * asks for the next piece of its own rows; not for one token alone, whose rows are in the second
 * level cache (asking was 2 % of its time).
 *
 * Sums of n rows that nothing has read before go through all of them side by side, some vectors of
 * each: they ask for what comes DISTANCE further on in the same row, or in that of the next token.
 */
#include "codegen/contract/matrix.h"
#include "codegen/row/emit/run.h"

enum { LINE = 64, LEAST = LINE / 2 /* bytes of a row that a turn of the lanes loads */ };
enum { DISTANCE = 1024 };

/* ---- from turn to turn ------------------------------------------------------------------------
 */

static LLVMValueRef known(const row_run *r, uint32_t node, const row_index *at) {
    for (size_t i = r->next.n; i-- > 0;)
        if (r->next.at[i].node == node && row_index_equal(&r->next.at[i].index, at))
            return r->next.at[i].value;
    return NULL;
}

/* Rows that a turn takes of those that `at` counts; 0: it is not the loop around that counts them.
 */
static uint32_t rows_of_turn(const row_run *r, const row_index *at) {
    const uint32_t rank = r->nest->domain.rank;
    row_index rest = *at;
    rest.constant = 0;
    for (uint32_t back = 2; back <= 3 && back <= rank; back++) {
        row_index self = row_var(rank - back);
        if (row_index_equal(&rest, &self)) return back == 2 ? r->turns->inner : r->turns->outer;
    }
    return 0;
}

/* Bytes from a row's elements at hand to those that follow when all rows have had their turn. */
static LLVMValueRef bytes_on(row_run *r, const row_node *n) {
    hcg_emit *e = r->e;
    const int64_t elements =
        n->run ? row_elements(&n->shape) / n->shape.dim[n->axis]
               : r->g->buffers.at[row_at(r->g, n->entries[0].node)->buffer].elements;
    const int64_t element = (int64_t)hir_dtype_bytes(n->dtype);
    if (r->piece && r->piece->next)
        return LLVMBuildMul(e->b, r->piece->next, hcg_i64(e, element), "");
    return LLVMBuildMul(e->b, r->more, row_i64(r, elements * element), "");
}

/* The row that the next turn reads where this one reads row `at`, `step` of them a turn. */
static LLVMValueRef next_row(row_run *r, uint32_t node, const row_index *at, uint32_t step) {
    hcg_emit *e = r->e;
    const row_node *n = row_at(r->g, node);
    LLVMValueRef size = row_i64(r, n->shape.dim[n->axis]);
    row_index next = *at;
    next.constant += step;
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
    if (!r->turns || !r->more || known(r, node, at)) return;
    if (r->nest->domain.rank < 3) return; /* one query: there are few turns, and a mix comes next */
    const uint32_t step = rows_of_turn(r, at);
    if (step == 0) return;
    row_known k = {.node = node, .index = *at};
    k.value =
        row_exchanged(r) ? hcg_at(e, e->i8, row, bytes_on(r, n)) : next_row(r, node, at, step);
    hd_push(r->g->arena, &r->next, k);
}

/* ---- along the rows ---------------------------------------------------------------------------
 */

static bool reads(const row_graph *g, const row_node *n, uint32_t node) {
    bool does = false;
    for (uint32_t a = 0; !does && a < n->n_args; a++) {
        const row_node *x = &g->nodes.at[n->args[a].node];
        does = n->args[a].node == node || (!x->root && reads(g, x, node));
    }
    return does;
}

/* The rows side by side that sum `n` is the first to read, HIR_NONE: none. */
static uint32_t fresh_rows(const row_run *r, const row_node *n) {
    const row_graph *g = r->g;
    for (uint32_t id = 0; id < g->nodes.n; id++) {
        if (g->nodes.at[id].kind != ROW_MULTI || !reads(g, n, id)) continue;
        bool before = false;
        for (size_t i = n->nest + 1; !before && i < g->per_token.list.n; i++)
            for (size_t k = 0; !before && k < g->per_token.list.at[i].roots.n; k++)
                before = reads(g, &g->nodes.at[g->per_token.list.at[i].roots.at[k]], id);
        if (!before) return id;
    }
    return HIR_NONE;
}

void row_prefetch_along(row_run *r, const row_node *n) {
    hcg_emit *e = r->e;
    r->along = NULL;
    if (!r->more || r->lane_var < 0 || r->tail || n->token_free) return;
    const uint32_t node = fresh_rows(r, n);
    if (node == HIR_NONE) return;
    const row_node *rows = row_at(r->g, node);
    const int64_t row = r->nest->domain.dim[r->lane_var];
    const int64_t on = DISTANCE / (int64_t)hir_dtype_bytes(rows->dtype);
    if (row < 2 * on) return;
    LLVMValueRef last = row_i64(r, row - on);
    LLVMValueRef here = LLVMBuildICmp(e->b, LLVMIntSLT, r->var[r->lane_var], last, "");
    LLVMValueRef there = LLVMBuildMul(e->b, r->more, hcg_i64(e, DISTANCE), "");
    r->along = LLVMBuildSelect(e->b, here, hcg_i64(e, DISTANCE), there, "along");
    r->along_rows = node;
}

/* ---- asking -----------------------------------------------------------------------------------
 */

void row_prefetch_ask(row_run *r, uint32_t node, const row_index *at, LLVMValueRef element,
                      LLVMValueRef here) {
    hcg_emit *e = r->e;
    const hir_dtype dtype = row_at(r->g, node)->dtype;
    const int64_t bytes = (int64_t)r->copies * e->level->lanes * (int64_t)hir_dtype_bytes(dtype);
    LLVMValueRef p = NULL;
    if (r->tail || bytes < LEAST) return;
    if (r->along && r->along_rows == node)
        p = LLVMBuildGEP2(e->b, e->i8, here, &r->along, 1, "");
    else if (r->turns && known(r, node, at))
        p = hcg_at(e, hcg_element(e, dtype), known(r, node, at), element);
    for (int64_t line = 0; p && line < bytes; line += LINE)
        hcg_prefetch(e, p, line);
}
