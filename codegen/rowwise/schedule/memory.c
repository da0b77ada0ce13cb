/* How a row program accesses memory: which rows it prefetches, and which stores may be
 * non-temporal. */
#include "codegen/rowwise/schedule/steps.h"
#include "codegen/target/prefetch_distance.h"

/* ---- rows that are prefetched ---------------------------------------------------------------- */
/* Which rows are prefetched.
 *
 * Dot products of n sources and S queries take some sources at a time: an iteration of the loop
 * over sources reads their rows from end to end. For every token as many streams of reads start and
 * end as there are sources, which is more than hardware prefetchers follow. So while an iteration
 * reads its rows, it prefetches the same elements of the rows of the next iteration; the last
 * iteration prefetches the next block of the first rows, or the first rows of the next token. If
 * the loops are interchanged, each iteration prefetches the next block of its own rows instead,
 * except in a call of one token, whose rows are in the L2 (prefetching them cost 2 % of its time).
 *
 * Teams of sums over n rows that no nest has read before read some vectors of each row in turn.
 * They prefetch what lies further along the same row, or in the row of the next token
 * (HCG_PREFETCH_ALONG). A single sum does not: it has too little arithmetic to overlap with
 * prefetches.
 */

/* ---- from iteration to iteration ------------------------------------------------------------- */

/* Which of the two loops before the vectors' loop counts the rows of `at`; 0: neither. */
static uint32_t dim_of(const row_nest *nest, const row_index *at) {
    const uint32_t rank = nest->domain.rank;
    row_index rest = *at;
    rest.constant = row_int(0);
    for (uint32_t back = 2; back <= 3 && back <= rank; back++) {
        const row_index self = row_var(rank - back);
        if (row_index_equal(&rest, &self)) return back;
    }
    return 0;
}

static void add_rows(const row_schedule *s, row_nest *nest, uint32_t node, const row_index *at) {
    const uint32_t back = dim_of(nest, at);
    if (back == 0) return;
    const row_prefetch rows = {node, nest->domain.rank - back};
    for (size_t i = 0; i < nest->prefetch.n; i++)
        if (nest->prefetch.at[i].node == node && nest->prefetch.at[i].dim == rows.dim) return;
    hd_push(s->g->arena, &nest->prefetch, rows);
}

/* Notes all rows side by side that `ref` reads in a nest with these loops. */
static void find_rows(const row_schedule *s, row_nest *nest, const row_ref *ref,
                      const row_index *loops) {
    const row_node *n = row_at(s->g, ref->node);
    row_index at[ROW_VARS] = {0};
    for (uint32_t d = 0; d < n->shape.rank; d++)
        at[d] = row_substitute(&ref->at[d], loops);
    if (n->kind == ROW_MULTI) add_rows(s, nest, ref->node, &at[n->axis]);
    for (uint32_t a = 0; !row_of(s, n)->root && a < n->n_args; a++)
        find_rows(s, nest, &n->args[a], at);
}

/* A nest with fewer dims has one query, and so few iterations that prefetching does not pay. */
static void choose_rows(const row_schedule *s, row_nest *nest) {
    row_index loops[ROW_VARS];
    if (!nest->sums || nest->domain.rank < 3) return;
    for (unsigned v = 0; v < ROW_VARS; v++)
        loops[v] = nest->loops[v];
    loops[ROW_INNER] = row_var(nest->domain.rank - 1);
    for (size_t i = nest->roots.n; i-- > 0;) {
        const row_node *n = row_at(s->g, nest->roots.at[i]);
        for (uint32_t a = 0; a < n->n_args; a++)
            find_rows(s, nest, &n->args[a], loops);
    }
}

/* ---- along the rows -------------------------------------------------------------------------- */

static bool reads(const row_schedule *s, const row_node *n, uint32_t node) {
    bool does = false;
    for (uint32_t a = 0; !does && a < n->n_args; a++) {
        const row_node *x = row_at(s->g, n->args[a].node);
        does = n->args[a].node == node || (!row_of(s, x)->root && reads(s, x, node));
    }
    return does;
}

/* The rows side by side that sum `n` is the first to read, HIR_NONE: none. */
static uint32_t fresh_rows(const row_schedule *s, const row_node *n) {
    const row_graph *g = s->g;
    for (uint32_t id = 0; id < g->nodes.n; id++) {
        if (row_at(g, id)->kind != ROW_MULTI || !reads(s, n, id)) continue;
        bool before = false;
        for (size_t i = row_of(s, n)->nest + 1; !before && i < s->per_token.list.n; i++)
            for (size_t k = 0; !before && k < s->per_token.list.at[i].roots.n; k++)
                before = reads(s, row_at(g, s->per_token.list.at[i].roots.at[k]), id);
        if (!before) return id;
    }
    return HIR_NONE;
}

static void choose_along(const row_schedule *s, const row_nest *nest, row_team *t) {
    const row_node *first = row_at(s->g, t->member[0]);
    if (nest->domain.rank == 0 || t->n == 1 || t->step >= row_bound(first->extent)) return;
    const uint32_t node = fresh_rows(s, first);
    if (node == HIR_NONE) return;
    const int64_t row = row_bound(nest->domain.dim[nest->domain.rank - 1]);
    const int64_t ahead = hcg_prefetch_distance(&s->target.machine, HCG_PREFETCH_ALONG);
    const int64_t on = ahead / (int64_t)hir_dtype_bytes(row_at(s->g, node)->dtype);
    if (row >= 2 * on) t->prefetch = node;
}

void row_choose_prefetch(const row_schedule *s, row_nest *nest) {
    if (s->g->stage) return; /* the rows of a prologue or epilogue are in the caches */
    choose_rows(s, nest);
    for (size_t t = 0; t < nest->teams.n; t++)
        choose_along(s, nest, &nest->teams.at[t]);
}

/* ---- stores that may be non-temporal --------------------------------------------------------- */
/* Stores that may be non-temporal: whole lines of rows that begin on a line, which the kernel
 * itself does not read again and an iteration can fill. Whether they are depends on how much a call stores
 * (emit/nontemporal.c). */

int64_t row_store_unit(const hd_machine *m) {
    int64_t bytes = HRT_ALIGN;
    while (bytes < m->line)
        bytes *= 2;
    return bytes;
}

/* Do elements of so many bytes fill whole store units? */
static bool fills(row_size elements, int64_t bytes, int64_t unit) {
    return row_size_divisible(row_size_scale(elements, bytes), row_int(unit));
}

unsigned row_unit_vectors(const row_schedule *s, const row_node *n) {
    const int64_t element = (int64_t)hir_dtype_bytes(s->g->buffers.at[n->buffer].dtype);
    const int64_t vectors = row_store_unit(&s->target.machine) / (element * s->target.lanes);
    return vectors > 1 ? (unsigned)vectors : 1;
}

static bool may_be(const row_schedule *s, const row_nest *nest, const row_node *n) {
    if (n->buffer == ROW_NO_BUFFER || row_of(s, n)->far_read) return false;
    const row_buffer *b = &s->g->buffers.at[n->buffer];
    const int64_t bytes = (int64_t)hir_dtype_bytes(b->dtype);
    const int64_t unit = row_store_unit(&s->target.machine);
    const int lanes = (int)nest->domain.rank - 1;
    if (b->in_place) return false; /* its lines have just been read */
    if (row_unit_vectors(s, n) > (row_is_costly(s, nest) ? 1 : ROW_UNROLL)) return false;
    if (row_is_dynamic(row_elements(&n->shape))) return false; /* its size is not known */
    bool aligned = fills(n->to.constant, bytes, unit) && fills(b->elements, bytes, unit);
    for (int v = 0; v < ROW_VARS; v++)
        aligned &= v == lanes ? row_size_is(n->to.by[v], 1) : fills(n->to.by[v], bytes, unit);
    return aligned && b->where == ROW_ARG && b->has_t;
}

void row_choose_nontemporal(row_schedule *s) {
    for (size_t i = 0; s->target.nontemporal && i < s->per_token.list.n; i++) {
        const row_nest *nest = &s->per_token.list.at[i];
        for (size_t k = 0;
             !nest->small && !nest->selection && nest->domain.rank && k < nest->roots.n; k++) {
            const row_node *n = row_at(s->g, nest->roots.at[k]);
            row_of(s, n)->nontemporal = may_be(s, nest, n);
        }
    }
}
