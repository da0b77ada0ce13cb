/* Results in place of what they replace (passes/kernels/plan_memory.c): row t of the result
 * overwrites row t of a value that the kernel reads, such as the streams of a residual system.
 *
 * No element of a token's row may be overwritten before everything that needs it has read it. So a
 * nest may write in place if it comes after every nest that reads the old row, and if it reads the
 * old row itself, only if
 *   - it reads the old row at the element that it writes, and nowhere else, or
 *   - an iteration makes whole columns: all loops except the one along the vectors are jammed into
 *     it (row_nest.jam), and it reads and writes the elements at its own lanes alone. Such an
 *     iteration computes everything before it stores anything.
 * Any other kernel is built again with the result in scratch, from where it is copied after
 * everything else of the token.
 */
#include "codegen/rowwise/schedule/steps.h"

/* One nest that writes elements over those of another buffer. */
typedef struct overwriting {
    const row_schedule *s;
    const row_graph *g;
    const row_nest *nest;
    hir_id old;   /* the value that is overwritten */
    row_index to; /* the element that it writes, over the loops of the nest */
    bool columns; /* an iteration makes whole columns */
} overwriting;

static bool is_old(const row_graph *g, uint32_t buffer, hir_id old) {
    if (buffer == ROW_NO_BUFFER) return false;
    const row_buffer *b = &g->buffers.at[buffer];
    return b->where == ROW_ARG && b->ref.kind == HIR_REF_VALUE && b->ref.index == old;
}

/* Is this element at the lanes of the iteration? Then the other loops add whole rows to it. */
static bool in_column(const overwriting *o, const row_index *element) {
    const row_shape *s = &o->nest->domain;
    const row_size row = s->dim[s->rank - 1];
    bool whole =
        row_size_is(element->by[s->rank - 1], 1) && row_size_divisible(element->constant, row);
    for (uint32_t v = 0; v < ROW_VARS; v++)
        whole &= v == s->rank - 1 || row_size_divisible(element->by[v], row);
    return whole;
}

static bool may_read(const overwriting *o, const row_index *element) {
    if (row_index_equal(element, &o->to)) return true;
    return o->columns && in_column(o, element) && in_column(o, &o->to);
}

/* Do the reads of the old row through `ref`, in a nest with these loops, allow it to be
 * overwritten? For a nest that does not write it: is it not read at all? */
static bool allows(const overwriting *o, const row_ref *ref, const row_index *loops) {
    const row_node *n = row_at(o->g, ref->node);
    row_index at[ROW_VARS] = {0}, element;
    for (uint32_t d = 0; d < n->shape.rank; d++)
        at[d] = row_substitute(&ref->at[d], loops);
    if (is_old(o->g, n->buffer, o->old)) {
        element = row_substitute(&n->to, at);
        return o->nest && may_read(o, &element);
    }
    for (uint32_t j = 0; j < n->n_entries; j++) {
        if (!is_old(o->g, row_at(o->g, n->entries[j].node)->buffer, o->old)) continue;
        element = row_substitute(&n->within, at);
        element.constant = row_size_add(element.constant, n->entries[j].offset);
        if (!o->nest || !may_read(o, &element)) return false;
    }
    if (n->run && n->run->replaced) { /* for any of its elements */
        element = row_substitute(&n->within, at);
        if (!o->nest || !may_read(o, &element)) return false;
    }
    for (uint32_t a = 0; !row_of(o->s, n)->root && a < n->n_args; a++)
        if (!allows(o, &n->args[a], at)) return false;
    return true;
}

static bool root_allows(const overwriting *o, const row_nest *nest, const row_node *n) {
    row_index loops[ROW_VARS];
    for (unsigned v = 0; v < ROW_VARS; v++)
        loops[v] = nest->loops[v];
    /* a sum inside the loops runs over its own variable; a sum along the lanes runs over theirs */
    if (n->kind == ROW_REDUCE) loops[ROW_INNER] = row_var(ROW_INNER);
    if (n->kind == ROW_REDUCE && n->last) loops[ROW_INNER] = row_var(nest->domain.rank - 1);
    for (uint32_t a = 0; a < n->n_args; a++)
        if (!allows(o, &n->args[a], loops)) return false;
    return true;
}

static bool nest_allows(const overwriting *o, const row_nest *nest) {
    for (size_t i = 0; i < nest->roots.n; i++)
        if (!root_allows(o, nest, row_at(o->g, nest->roots.at[i]))) return false;
    return true;
}

/* Checks root `n`, which writes in nest number `place`, counted from the one that runs last. */
static bool may_write(const row_schedule *s, uint32_t place, const row_node *n) {
    const row_graph *g = s->g;
    const row_nest *nest = &s->per_token.list.at[place];
    overwriting o = {.s = s, .g = g, .old = g->buffers.at[n->buffer].over};
    for (uint32_t later = 0; later < place; later++)
        if (!nest_allows(&o, &s->per_token.list.at[later])) return false;
    if (nest_allows(&o, nest)) return true;
    if (nest->small || nest->selection || nest->domain.rank == 0 ||
        (n->kind == ROW_REDUCE && n->last))
        return false;
    o.nest = nest;
    o.to = row_substitute(&n->to, nest->loops);
    const row_shape *d = &nest->domain;
    o.columns = d->rank <= 3 &&
                (d->rank < 2 || row_size_is(d->dim[d->rank - 2], nest->jam.inner)) &&
                (d->rank < 3 || row_size_is(d->dim[0], nest->jam.outer));
    return nest_allows(&o, nest);
}

bool row_may_be_in_place(const row_schedule *s) {
    const row_graph *g = s->g;
    for (uint32_t place = 0; place < s->per_token.list.n; place++) {
        const row_nest *nest = &s->per_token.list.at[place];
        for (size_t i = 0; i < nest->roots.n; i++) {
            const row_node *n = row_at(g, nest->roots.at[i]);
            if (n->buffer == ROW_NO_BUFFER || !g->buffers.at[n->buffer].in_place) continue;
            if (!may_write(s, place, n)) return false;
        }
    }
    return true;
}
