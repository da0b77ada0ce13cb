/* Which nests are small: gates, weights of a mix, the n x n matrices between streams. Loops over a
 * few elements cost more than their arithmetic, so that the values of such a nest stay in registers
 * as a whole for the rest of the token (emit/small.c). Only what other nests read is stored. */
#include "codegen/rowwise/schedule/steps.h"

static bool plain_memory(const row_graph *g, const row_node *n) {
    const row_buffer *b = &g->buffers.at[n->buffer];
    bool rows = b->where == ROW_SCRATCH || b->where == ROW_ARG || row_in_block(b);
    return rows && b->dtype == HIR_F32 && b->step == 1;
}

/* Can all that `ref` reads, down to other roots, be computed in one vector? */
static bool readable(const row_schedule *s, const row_ref *ref) {
    const row_graph *g = s->g;
    const row_node *n = row_at(g, ref->node);
    if (n->kind == ROW_CONST) return true;
    if (n->kind == ROW_MEMORY) return plain_memory(g, n);
    if (row_of(s, n)->root) return true;
    bool can = n->kind == ROW_COPY || (n->kind == ROW_MAP && n->op->code != HIR_CONVERT_OP);
    for (uint32_t a = 0; can && a < n->n_args; a++)
        can = readable(s, &n->args[a]);
    return can;
}

static bool is_small(const row_schedule *s, const row_node *n) {
    enum { MOST_VECTORS = 4 /* that all elements fill */ };
    const row_graph *g = s->g;
    bool reduced = n->kind == ROW_REDUCE;
    row_size elements = row_elements(&n->shape);
    if (reduced) elements = row_size_mul(elements, n->extent);
    bool plain = n->kind == ROW_COPY || (n->kind == ROW_MAP && n->op->code != HIR_CONVERT_OP);
    if (row_bound(elements) > MOST_VECTORS * s->target.lanes || (!plain && !reduced) || row_when(n))
        return false;
    if (n->buffer != ROW_NO_BUFFER && !plain_memory(g, n)) return false;
    for (uint32_t a = 0; a < n->n_args; a++)
        if (!readable(s, &n->args[a])) return false;
    return true;
}

/* Roots that `ref` leads to are read from memory. */
static void read_from_memory(const row_schedule *s, const row_ref *ref) {
    const row_graph *g = s->g;
    const row_node *n = row_at(g, ref->node);
    if (row_of(s, n)->root) row_of(s, n)->from_memory = true;
    for (uint32_t a = 0; !row_of(s, n)->root && a < n->n_args; a++)
        read_from_memory(s, &n->args[a]);
    for (uint32_t j = 0; j < n->n_entries; j++)
        row_of(s, row_at(g, n->entries[j].node))->from_memory = true;
}

void row_choose_small(row_schedule *s) {
    row_graph *g = s->g;
    for (size_t i = 0; i < s->per_token.list.n; i++) {
        row_nest *nest = &s->per_token.list.at[i];
        nest->small = !nest->when;
        for (size_t j = 0; nest->small && j < nest->roots.n; j++)
            nest->small = is_small(s, row_at(g, nest->roots.at[j]));
        for (size_t j = 0; nest->small && j < nest->roots.n; j++)
            row_of(s, row_at(g, nest->roots.at[j]))->small = true;
    }
    for (uint32_t i = 0; i < g->nodes.n; i++) {
        const row_node *n = row_at(g, i);
        for (uint32_t a = 0; row_of(s, n)->root && !row_of(s, n)->small && a < n->n_args; a++)
            read_from_memory(s, &n->args[a]);
    }
}
