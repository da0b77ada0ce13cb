/* Which values a row program stores, and which nodes share a loop nest.
 *
 * A node is a *root* if a nest computes it for itself; every other node is computed where it is
 * read, in registers. Roots are reductions, nodes that fill a buffer, nodes that are read more than
 * once, and nodes that would be computed again for several elements of their reader.
 *
 * Roots with the same domain share a nest if they read each other at their own index alone. Nests
 * are made from the last to the first: a root goes into the latest nest that is early enough for
 * its readers. A root read only in its own nest, at its own index, needs no memory. A ROW_SELECTION
 * (topk, pick or mark) is alone in its nest.
 */
#include "codegen/rowwise/schedule/steps.h"

enum {
    DEEPEST = 24,        /* nested ops that are computed where they are read */
    MOST_REDUCTIONS = 8, /* reductions along the vectors of one nest: each needs accumulators */
    MOST_ROOTS = 32,     /* roots of one nest */
};

row_shape row_domain(const row_node *n) {
    row_shape s = n->shape;
    if (n->kind == ROW_REDUCE && n->last) s.dim[s.rank++] = n->extent;
    return s;
}

/* ---- roots ----------------------------------------------------------------------------------- */

static bool is_arithmetic(const row_node *n) {
    return n->kind == ROW_MAP || n->kind == ROW_ROTATE || n->kind == ROW_TRIG ||
           n->kind == ROW_COPY;
}

static bool is_costly(const row_node *n) {
    if (n->kind == ROW_TRIG) return true;
    if (n->kind != ROW_MAP) return false;
    switch (n->op->code) {
    case HIR_NEG_OP:
    case HIR_ABS_OP:
    case HIR_RELU_OP:
    case HIR_SIGN_OP:
    case HIR_ADD_OP:
    case HIR_SUB_OP:
    case HIR_MUL_OP:
    case HIR_MAX_OP:
    case HIR_MIN_OP:
    case HIR_CONVERT_OP: return false;
    default: return true;
    }
}

static void count_uses(const row_schedule *s) {
    row_graph *g = s->g;
    for (uint32_t i = 0; i < g->nodes.n; i++) {
        const row_node *n = row_at(g, i);
        row_size elements = row_elements(&n->shape);
        if (n->kind == ROW_REDUCE) elements = row_size_mul(elements, n->extent);
        for (uint32_t a = 0; a < n->n_args; a++) {
            row_node *x = row_at(g, n->args[a].node);
            row_of(s, x)->uses++;
            row_of(s, x)->direct++;
            row_of(s, x)->wide_use |= row_size_less(row_elements(&x->shape), elements);
        }
        for (uint32_t j = 0; j < n->n_entries; j++)
            row_of(s, row_at(g, n->entries[j].node))->uses++;
    }
}

/* Nodes come after what they read, so one sweep sees operands first. */
static void choose_roots(const row_schedule *s) {
    row_graph *g = s->g;
    for (uint32_t i = 0; i < g->nodes.n; i++) {
        row_node *n = row_at(g, i);
        row_of(s, n)->root = n->kind == ROW_REDUCE || n->kind == ROW_SELECTION ||
                             (is_arithmetic(n) && n->buffer != ROW_NO_BUFFER);
        row_of(s, n)->costly = is_costly(n);
        for (uint32_t a = 0; a < n->n_args; a++) {
            row_node *x = row_at(g, n->args[a].node);
            bool worth_once = x->token_free && !n->token_free && row_of(s, x)->costly;
            if (is_arithmetic(x) && worth_once) row_of(s, x)->root = true;
            if (row_of(s, x)->root) continue;
            row_of(s, n)->costly |= row_of(s, x)->costly;
            if (row_of(s, x)->depth >= row_of(s, n)->depth)
                row_of(s, n)->depth = row_of(s, x)->depth + 1;
        }
        bool again =
            row_of(s, n)->uses > 1 || row_of(s, n)->wide_use || row_of(s, n)->depth > DEEPEST;
        if (is_arithmetic(n) && again) row_of(s, n)->root = true;
        if (row_of(s, n)->root) row_of(s, n)->depth = 0;
    }
}

/* ---- nests ----------------------------------------------------------------------------------- */

typedef struct reading { /* reads of roots by one root that has just been given its nest */
    const row_schedule *s;
    row_nests *nests;
    uint32_t root, nest;
} reading;

static bool is_identity(const row_index *at, uint32_t rank) {
    for (uint32_t d = 0; d < rank; d++) {
        row_index self = row_var(d);
        if (!row_index_equal(&at[d], &self)) return false;
    }
    return true;
}

/* Root `p` is read at `at` (over the loops of the reader's nest; NULL: at unknown elements). */
static void note_read(const reading *r, uint32_t p, const row_index *at) {
    const row_schedule *s = r->s;
    const row_node *n = row_at(s->g, p);
    row_shape domain = row_domain(n);
    if (n->token_free && !r->nests->once) { /* it is computed before the first token */
        row_of(s, n)->far_read = true;
        row_of(s, n)->reader = r->nest;
        return;
    }
    const row_nest *nest = &r->nests->list.at[r->nest];
    bool near = at && !(n->kind == ROW_REDUCE && n->last) &&
                row_shape_equal(&domain, &nest->domain) && is_identity(at, domain.rank);
    uint32_t limit = near ? r->nest : r->nest + 1;
    row_of(s, row_at(s->g, r->root))->chained |= near;
    if (row_of(s, n)->limit < limit) row_of(s, n)->limit = limit;
    if (!near || (row_of(s, n)->reader != ROW_NO_NEST && row_of(s, n)->reader != r->nest))
        row_of(s, n)->far_read = true;
    row_of(s, n)->reader = r->nest;
}

/* Calls note_read for every root that `ref`, at an index over `loops`, leads to. */
static void follow(const reading *r, const row_ref *ref, const row_index *loops) {
    const row_schedule *s = r->s;
    const row_node *n = row_at(s->g, ref->node);
    row_index at[ROW_VARS] = {0};
    for (uint32_t d = 0; d < n->shape.rank; d++)
        at[d] = row_substitute(&ref->at[d], loops);
    if (row_of(s, n)->root) {
        note_read(r, ref->node, at);
        return;
    }
    for (uint32_t j = 0; j < n->n_producers; j++)
        note_read(r, n->producers[j], NULL);
    for (uint32_t j = 0; j < n->n_entries; j++) {
        const row_node *entry = row_at(s->g, n->entries[j].node);
        if (row_of(s, entry)->root) note_read(r, n->entries[j].node, NULL);
        for (uint32_t i = 0; i < entry->n_producers; i++)
            note_read(r, entry->producers[i], NULL);
    }
    for (uint32_t a = 0; a < n->n_args; a++)
        follow(r, &n->args[a], at);
}

/* May the root go into the nest, considering that a nest may be skipped for some tokens? Such a
 * nest holds only the sums of one `when`, and what only they read. */
static bool same_tokens(const row_schedule *s, const row_nest *nest, uint32_t place,
                        const row_node *n) {
    const row_ref *when = row_when(n);
    if (!when && nest->when)
        return !row_of(s, n)->far_read && row_of(s, n)->reader == place &&
               n->buffer == ROW_NO_BUFFER;
    if (!when || !nest->when) return when == nest->when;
    bool same = when->node == nest->when->node;
    for (uint32_t d = 0; same && d < row_at(s->g, when->node)->shape.rank; d++)
        same = row_index_equal(&when->at[d], &nest->when->at[d]);
    return same;
}

static bool is_along(const row_node *n) {
    return n->kind == ROW_REDUCE && n->last;
}

static bool has_space(const row_schedule *s, const row_nest *nest, const row_node *n) {
    const uint32_t registers = row_most_sums(&s->target) / row_chains(&nest->domain);
    const uint32_t most = registers < MOST_REDUCTIONS ? registers : MOST_REDUCTIONS;
    return nest->roots.n < MOST_ROOTS && (!is_along(n) || nest->reductions < most);
}

static uint32_t find_nest(const row_schedule *s, row_nests *nests, const row_node *n) {
    row_shape domain = row_domain(n);
    const bool selection = n->kind == ROW_SELECTION;
    for (uint32_t i = row_of(s, n)->limit; i < nests->list.n && !selection; i++)
        if (!nests->list.at[i].selection && row_shape_equal(&nests->list.at[i].domain, &domain) &&
            same_tokens(s, &nests->list.at[i], i, n) && has_space(s, &nests->list.at[i], n))
            return i;
    row_nest fresh = {.domain = domain, .when = row_when(n), .selection = selection};
    for (unsigned v = 0; v < ROW_VARS; v++)
        fresh.loops[v] = row_var(v);
    hd_push(s->g->arena, &nests->list, fresh);
    return (uint32_t)(nests->list.n - 1);
}

/* Puts a root after the nests up to number `behind`, which are made already. */
static void place(row_schedule *s, uint32_t id, uint32_t behind) {
    row_graph *g = s->g;
    row_node *n = row_at(g, id);
    row_nests *nests = n->token_free ? &s->once : &s->per_token;
    if (!nests->once && row_of(s, n)->limit < behind) row_of(s, n)->limit = behind;
    row_of(s, n)->nest = find_nest(s, nests, n);
    row_nest *nest = &nests->list.at[row_of(s, n)->nest];
    hd_push(g->arena, &nest->roots, id);
    nest->reductions += is_along(n);
    row_index loops[ROW_VARS] = {0};
    for (unsigned v = 0; v < ROW_VARS; v++)
        loops[v] = row_var(v);
    if (n->kind == ROW_REDUCE && n->last) loops[ROW_INNER] = row_var(n->shape.rank);
    reading r = {s, nests, id, row_of(s, n)->nest};
    for (uint32_t a = 0; a < n->n_args; a++)
        follow(&r, &n->args[a], loops);
}

/* ---- rows that are read once less ------------------------------------------------------------ */

enum { MOST_ROWS = 16 };

typedef struct row_set { /* rows of tokens: nodes; a ROW_MULTI stands for rows side by side */
    uint32_t n, node[MOST_ROWS + 1];
    row_size bytes; /* bytes of all of them */
} row_set;

/* Adds the rows from outside that `n` is made of, without the rows of other roots. */
static void add_rows(const row_schedule *s, const row_node *n, row_set *set) {
    const row_graph *g = s->g;
    for (uint32_t a = 0; a < n->n_args; a++) {
        const uint32_t id = n->args[a].node;
        const row_node *x = &g->nodes.at[id];
        const bool row = x->kind == ROW_MEMORY && !x->token_free && x->n_producers == 0;
        if (row || x->kind == ROW_MULTI) {
            uint32_t i = 0;
            while (i < set->n && set->node[i] != id)
                i++;
            if (i < set->n || set->n > MOST_ROWS) continue;
            const hir_dtype dtype = row ? g->buffers.at[x->buffer].dtype : x->dtype;
            const row_size bytes =
                row_size_scale(row_elements(&x->shape), (int64_t)hir_dtype_bytes(dtype));
            set->bytes = row_size_add(set->bytes, bytes);
            set->node[set->n++] = id;
        } else if (!row_of(s, x)->root) {
            add_rows(s, x, set);
        }
    }
}

/* Are both of them depth mixes (weighted sums) of the same rows, which are so many that they are
 * evicted from the L1 in between? */
static bool mix_same_rows(const row_schedule *s, const row_node *a, const row_node *b) {
    row_set x = {0}, y = {0};
    if (b->kind != a->kind || (b->kind == ROW_REDUCE && b->last)) return false;
    add_rows(s, a, &x), add_rows(s, b, &y);
    bool same = row_bound(x.bytes) > s->target.machine.l1 && x.n == y.n && x.n <= MOST_ROWS;
    for (uint32_t i = 0; same && i < x.n; i++)
        same = x.node[i] == y.node[i]; /* sums of the same form read them in the same order */
    return same;
}

/* Are all roots that root `n` reads complete before nest number `nest` begins? */
static bool is_ready(const row_schedule *s, const row_node *n, uint32_t nest) {
    const row_graph *g = s->g;
    bool all = true;
    for (uint32_t a = 0; all && a < n->n_args; a++) {
        const row_node *x = &g->nodes.at[n->args[a].node];
        all =
            row_of(s, x)->root ? x->token_free || row_of(s, x)->nest > nest : is_ready(s, x, nest);
        for (uint32_t j = 0; all && j < x->n_producers; j++) {
            const row_node *p = &g->nodes.at[x->producers[j]];
            all = p->token_free || row_of(s, p)->nest > nest;
        }
        for (uint32_t j = 0; all && j < x->n_entries; j++) {
            const row_node *p = &g->nodes.at[x->entries[j].node];
            all = !row_of(s, p)->root && p->n_producers == 0;
        }
    }
    return all;
}

/* A nest before number `from` that reads the same rows as root `n`, which nothing in the kernel
 * reads; ROW_NO_NEST: there is none. */
static uint32_t earlier_nest(const row_schedule *s, const row_nests *nests, uint32_t from,
                             const row_node *n) {
    const row_graph *g = s->g;
    const bool mix = n->kind == ROW_MAP || (n->kind == ROW_REDUCE && !n->last);
    if (!mix || n->at_the_end || row_of(s, n)->reader != ROW_NO_NEST) return ROW_NO_NEST;
    for (uint32_t i = from + 1; i < nests->list.n; i++) {
        const row_nest *nest = &nests->list.at[i];
        bool same = row_shape_equal(&nest->domain, &n->shape) && same_tokens(s, nest, i, n) &&
                    has_space(s, nest, n) && is_ready(s, n, i);
        for (size_t k = 0; same && k < nest->roots.n; k++)
            if (mix_same_rows(s, n, &g->nodes.at[nest->roots.at[k]])) return i;
    }
    return ROW_NO_NEST;
}

static bool share_a_row(const row_schedule *s, const row_node *a, const row_node *b) {
    row_set x = {0}, y = {0};
    add_rows(s, a, &x), add_rows(s, b, &y);
    for (uint32_t i = 0; i < x.n; i++)
        for (uint32_t j = 0; j < y.n; j++)
            if (x.node[i] == y.node[j]) return true;
    return false;
}

/* The same for a sum along the lanes, whatever reads it: a nest that makes another sum of a
 * row that root `n` is made of. */
static uint32_t earlier_sums(const row_schedule *s, const row_nests *nests, uint32_t from,
                             const row_node *n) {
    if (!is_along(n) || n->at_the_end) return ROW_NO_NEST;
    const row_shape domain = row_domain(n);
    for (uint32_t i = from + 1; i < nests->list.n; i++) {
        const row_nest *nest = &nests->list.at[i];
        const bool may = row_shape_equal(&nest->domain, &domain) && same_tokens(s, nest, i, n) &&
                         has_space(s, nest, n) && is_ready(s, n, i);
        for (size_t k = 0; may && k < nest->roots.n; k++) {
            const row_node *other = row_at(s->g, nest->roots.at[k]);
            if (is_along(other) && share_a_row(s, n, other)) return i;
        }
    }
    return ROW_NO_NEST;
}

/* Sorts the roots of a nest: later ones first. */
static void add_root(row_graph *g, row_nest *nest, uint32_t id) {
    size_t i = nest->roots.n;
    hd_push(g->arena, &nest->roots, id);
    for (; i > 0 && nest->roots.at[i - 1] < id; i--)
        nest->roots.at[i] = nest->roots.at[i - 1];
    nest->roots.at[i] = id;
    nest->reductions += is_along(row_at(g, id));
}

/* Depth mixes and sums are in the last nest that is early enough for their readers. If one mix of
 * some rows has to be earlier than the others (since a norm follows it), this moves the others to
 * its nest, so that the rows are read once. */
static void mix_together(row_schedule *s, row_nests *nests) {
    row_graph *g = s->g;
    for (uint32_t i = 0; i < nests->list.n; i++) {
        size_t kept = 0;
        for (size_t k = 0; k < nests->list.at[i].roots.n; k++) {
            const uint32_t id = nests->list.at[i].roots.at[k];
            uint32_t to = earlier_nest(s, nests, i, row_at(g, id));
            if (to == ROW_NO_NEST) to = earlier_sums(s, nests, i, row_at(g, id));
            if (to == ROW_NO_NEST) {
                nests->list.at[i].roots.at[kept++] = id;
                continue;
            }
            row_of(s, row_at(g, id))->nest = to;
            nests->list.at[i].reductions -= is_along(row_at(g, id));
            add_root(g, &nests->list.at[to], id);
        }
        nests->list.at[i].roots.n = kept;
    }
}

/* ---- fewer loops ----------------------------------------------------------------------------- */

typedef struct merge { /* of loop `outer` with the dim `inner`, which has `size` elements by now */
    const row_schedule *s;
    const row_nests *nests;
    uint32_t nest;
    uint32_t outer, inner;
    row_size size;
} merge;

static bool steps_on(const merge *m, const row_index *element) {
    return row_size_equal(element->by[m->outer], row_size_mul(element->by[m->inner], m->size));
}

/* Would one loop in place of the two reach the same elements through `ref`? */
static bool reads_on(const merge *m, const row_ref *ref, const row_index *loops) {
    const row_schedule *s = m->s;
    const row_node *n = row_at(s->g, ref->node);
    row_index at[ROW_VARS] = {0};
    for (uint32_t d = 0; d < n->shape.rank; d++)
        at[d] = row_substitute(&ref->at[d], loops);
    if (row_of(s, n)->root) {
        bool own = row_of(s, n)->nest == m->nest && n->token_free == m->nests->once;
        row_index element = row_substitute(&n->to, at);
        return own || steps_on(m, &element);
    }
    if (n->kind == ROW_MEMORY) {
        row_index element = row_substitute(&n->to, at);
        return steps_on(m, &element);
    }
    if (n->kind == ROW_MULTI) {
        row_index within = row_substitute(&n->within, at);
        return row_size_is(at[n->axis].by[m->outer], 0) &&
               row_size_is(at[n->axis].by[m->inner], 0) && steps_on(m, &within);
    }
    bool all = n->kind != ROW_TRIG;
    for (uint32_t a = 0; all && a < n->n_args; a++)
        all = reads_on(m, &n->args[a], at);
    return all;
}

static bool can_merge(const merge *m, const row_nest *nest) {
    row_index loops[ROW_VARS];
    for (unsigned v = 0; v < ROW_VARS; v++)
        loops[v] = row_var(v);
    for (size_t i = 0; i < nest->roots.n; i++) {
        const row_node *n = row_at(m->s->g, nest->roots.at[i]);
        bool stored = n->buffer != ROW_NO_BUFFER;
        if ((n->kind == ROW_REDUCE && n->last) || n->kind == ROW_TRIG || n->kind == ROW_SELECTION)
            return false;
        if (stored && !steps_on(m, &n->to)) return false;
        if (stored && m->s->g->buffers.at[n->buffer].where == ROW_STATE)
            return false; /* heads are not contiguous */
        for (uint32_t a = 0; a < n->n_args; a++)
            if (!reads_on(m, &n->args[a], loops)) return false;
    }
    return true;
}

/* Merges two loops whose elements are contiguous in all memory that the nest touches, so that
 * vectors do not end with each short row. */
static void merge_loops(const row_schedule *s, row_nests *nests) {
    for (uint32_t i = 0; i < nests->list.n; i++) {
        row_nest *nest = &nests->list.at[i];
        row_shape *d = &nest->domain;
        uint32_t inner = d->rank - 1;
        while (d->rank > 1) {
            merge m = {s, nests, i, d->rank - 2, inner, d->dim[d->rank - 1]};
            if (!can_merge(&m, nest)) break;
            d->dim[d->rank - 2] = row_size_mul(d->dim[d->rank - 2], d->dim[d->rank - 1]);
            d->rank--;
            nest->loops[m.outer] = row_fixed(row_int(0));
            nest->loops[inner] = row_var(m.outer);
        }
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* A root that is read in another nest, or before it is complete, needs memory, unless it stays in
 * a register: a single number does, and the value of a small nest that only small nests read. */
static void choose_memory(const row_schedule *s, uint32_t id) {
    row_graph *g = s->g;
    const row_node *n = row_at(g, id);
    bool near = (!row_of(s, n)->far_read && row_of(s, n)->reader == row_of(s, n)->nest) ||
                (row_of(s, n)->small && !row_of(s, n)->from_memory);
    if (!near && row_of(s, n)->reader != ROW_NO_NEST && n->shape.rank > 0) row_store(g, id);
}

static void mark_used(const row_schedule *s) {
    row_graph *g = s->g;
    for (uint32_t i = 0; i < g->nodes.n; i++) {
        const row_node *n = row_at(g, i);
        bool read = n->kind == ROW_MEMORY && row_of(s, n)->uses > 0;
        if (n->buffer == ROW_NO_BUFFER || (!read && !row_of(s, n)->root)) continue;
        g->buffers.at[n->buffer].used = true;
        g->buffers.at[n->buffer].direct |= row_of(s, n)->root || row_of(s, n)->direct > 0;
    }
}

/* Is the node dead? Then nothing reads it, or the buffer that it fills, and it writes nothing
 * visible. */
static bool is_dead(const row_schedule *s, const row_node *n) {
    const row_graph *g = s->g;
    bool writes = n->buffer != ROW_NO_BUFFER && g->buffers.at[n->buffer].where != ROW_SCRATCH;
    bool read = row_of(s, n)->uses > 0 ||
                (n->fills != HIR_NONE && row_of(s, row_at(g, n->fills))->uses > 0);
    return !writes && !read;
}

/* Reads by dead nodes do not count. Every reader of a buffer comes after what fills it. */
static void drop_dead(const row_schedule *s) {
    row_graph *g = s->g;
    for (uint32_t i = (uint32_t)g->nodes.n; i-- > 0;) {
        const row_node *n = row_at(g, i);
        if (!is_dead(s, n)) continue;
        for (uint32_t a = 0; a < n->n_args; a++)
            row_of(s, row_at(g, n->args[a].node))->uses--;
        for (uint32_t j = 0; j < n->n_entries; j++)
            row_of(s, row_at(g, n->entries[j].node))->uses--;
    }
}

void row_choose_nests(row_schedule *s) {
    row_graph *g = s->g;
    count_uses(s);
    drop_dead(s);
    choose_roots(s);
    for (uint32_t i = 0; i < g->nodes.n; i++) {
        const row_node *n = row_at(g, i);
        row_of(s, n)->nest = row_of(s, n)->reader = ROW_NO_NEST;
        row_of(s, n)->root &= !is_dead(s, n);
    }
    for (uint32_t i = (uint32_t)g->nodes.n; i-- > 0;)
        if (row_of(s, row_at(g, i))->root && row_at(g, i)->at_the_end) place(s, i, 0);
    const uint32_t behind = (uint32_t)s->per_token.list.n;
    for (uint32_t i = (uint32_t)g->nodes.n; i-- > 0;)
        if (row_of(s, row_at(g, i))->root && !row_at(g, i)->at_the_end) place(s, i, behind);
    mix_together(s, &s->per_token);
}

void row_choose_memory(row_schedule *s) {
    row_graph *g = s->g;
    for (uint32_t i = 0; i < g->nodes.n; i++)
        if (row_of(s, row_at(g, i))->root) choose_memory(s, i);
    merge_loops(s, &s->once);
    merge_loops(s, &s->per_token);
    mark_used(s);
}

/* ---- small nests ----------------------------------------------------------------------------- */
/* Which nests are small: gates, weights of a depth mix, the n x n matrices between residual
 * streams. Loops over a few elements cost more than their arithmetic, so that the values of such a
 * nest stay in registers as a whole for the rest of the token (emit/small.c). Only what other nests
 * read is stored. */

static bool plain_memory(const row_graph *g, const row_node *n) {
    const row_buffer *b = &g->buffers.at[n->buffer];
    bool rows =
        b->where == ROW_SCRATCH || b->where == ROW_ARG || b->where == ROW_SUM || row_in_block(b);
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
    enum { MOST_VECTORS = 4 /* vectors that all elements of a value fill, at most */ };
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

/* Notes that the roots that `ref` leads to are read from memory. */
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
