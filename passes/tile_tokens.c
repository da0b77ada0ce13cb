/* tile-tokens: runs of kernels that go tile by tile instead of one after the other.
 *
 * Between two attentions everything is local to a token. A run of row programs and contractions may
 * therefore be done for a few tokens from front to end, then for the next few: what one kernel
 * leaves, the next finds in the L2, and threads need not wait for each other
 * between kernels.
 *
 * Needs    kernels in their final order, with threads and rows (schedule); weights with their
 *          layout.
 * Does     cuts the list of kernels into groups so that the most bytes per token are read where the
 *          same group has just written them:
 *              tile_group  number of the group; its kernels stand one after the other
 *              tile_rows   tokens per tile
 *              tile_keeps  1: what several kernels of the group read, and none of it made, stays in
 *                          the cache as well; where there is room
 *          The runtime takes the kernels of a group together when every thread gets a whole tile.
 * Leaves   sequences, kernels that run once or for the last rows only, and runs whose weights are
 *          too many: every tile reads all weights of its group again. That is free while they stay
 *          in the cache that the threads share, or when the arithmetic of a tile,
 *
 *              2 tile_rows multiplications and additions per weight,
 *
 *          takes longer than memory takes to bring the weight.
 *
 * It is off unless options->tile_tokens asks for it: docs/decisions/tiles-of-tokens.md has the
 * figures.
 *
 * The rows that a group keeps between its kernels, alive at once, times tile_rows are to fill half
 * of the L2; the other half is for panels and what streams by.
 */
#include <string.h>

#include "passes/tiles.h"
#include "passes/util.h"

enum { MOST_KERNELS = 32 }; /* of a group; bounds the search */

typedef struct panels {
    uint64_t elements, bytes;
} panels;

typedef struct node {
    hir_id op;
    bool may; /* stand in a group */
    panels weights;
    HD_VEC(uint32_t) readers; /* parallel lists: a kernel .. */
    HD_VEC(uint32_t) read;    /* .. and the result of this one that it reads */
    HD_VEC(hir_id) reads;     /* values with T of kernels before this one, each once */
} node;

typedef struct run { /* kernels [first, end) as one group */
    uint32_t first, end;
    uint64_t gain;  /* bytes per token that are read where they were just written, */
    uint64_t again; /* and where they were just read; 0: such are not kept */
    int64_t rows;
    panels weights;
} run;

typedef struct tiler {
    hir_pass_context *c;
    hir_module *m;
    HD_VEC(node) nodes;
    uint32_t *number; /* by op */
} tiler;

/* ---- what kernels are ---------------------------------------------------------------------- */
static uint64_t row_bytes(hir_type t) {
    int64_t n = pass_elements(t);
    if (n > INT32_MAX) n = INT32_MAX; /* of no use in any tile */
    return (uint64_t)n * hir_dtype_bytes(t.dtype);
}

static bool may_tile(const hir_module *m, hir_id op) {
    const hir_op *k = hir_op_at(m, op);
    return hir_has_form_trait(m, op, HIR_TILES) && hir_rows_of(k) == HIR_ROWS_ALL &&
           hir_split_of(k, HIR_A_SPLIT_PREFILL) != HIR_SPLIT_NONE;
}

static panels panels_of(const hir_module *m, hir_id op) {
    panels sum = {0, 0};
    HIR_EACH(m, inner, hir_op_at(m, op)->body_first) {
        if (hir_op_at(m, inner)->code != HIR_LINEAR_OP) continue;
        hir_ref w = pass_arg(m, inner, 1);
        if (w.kind != HIR_REF_WEIGHT) continue;
        const hir_weight *matrix = &m->weights.at[w.index];
        uint64_t bytes;
        if (!hir_weight_bytes(matrix, &bytes)) bytes = 1ull << 50; /* too many for any tile */
        sum.bytes += bytes;
        sum.elements += (uint64_t)pass_elements(matrix->type);
    }
    return sum;
}

/* The kernel that makes a value; UINT32_MAX: none does. */
static uint32_t maker(const tiler *t, hir_ref x) {
    if (x.kind != HIR_REF_VALUE) return UINT32_MAX;
    hir_id op = hir_value_at(t->m, x.index)->op;
    return op == HIR_NONE || hir_op_at(t->m, op)->parent != HIR_NONE ? UINT32_MAX : t->number[op];
}

static void note_read(tiler *t, uint32_t reader, hir_ref x) {
    uint32_t from = maker(t, x);
    if (from == UINT32_MAX || !hir_type_has_t(hir_value_at(t->m, x.index)->type)) return;
    node *n = &t->nodes.at[from];
    for (size_t i = n->readers.n; i > 0 && n->readers.at[i - 1] == reader; i--)
        if (n->read.at[i - 1] == x.index) return;
    hd_push(t->c->scratch, &n->readers, reader);
    hd_push(t->c->scratch, &n->read, x.index);
    hd_push(t->c->scratch, &t->nodes.at[reader].reads, x.index);
}

static void find_nodes(tiler *t) {
    t->number = hd_new_array(t->c->scratch, uint32_t, t->m->ops.n);
    HIR_EACH(t->m, op, t->m->first) {
        if (hir_op_at(t->m, op)->code == HIR_OUTPUT_OP) continue;
        t->number[op] = (uint32_t)t->nodes.n;
        node n = {.op = op, .may = may_tile(t->m, op), .weights = panels_of(t->m, op)};
        hd_push(t->c->scratch, &t->nodes, n);
    }
    for (uint32_t k = 0; k < t->nodes.n; k++)
        HIR_EACH(t->m, inner, hir_op_at(t->m, t->nodes.at[k].op)->body_first) {
            const hir_op *o = hir_op_at(t->m, inner);
            for (uint32_t i = 0; i < o->n_args; i++)
                note_read(t, k, o->args[i]);
        }
}

/* ---- what a group is worth ----------------------------------------------------------------- */
/* Adds to `alive` the bytes of a row of kernel k's result `value` for the kernels that find it
 * there. */
static uint64_t add_crossing(const tiler *t, const node *n, uint32_t k, uint32_t value,
                             uint32_t first, uint32_t end, uint64_t *alive) {
    uint32_t reads = 0, last = k;
    for (size_t i = 0; i < n->readers.n; i++) {
        if (n->read.at[i] != value || n->readers.at[i] >= end) continue;
        reads++;
        if (n->readers.at[i] > last) last = n->readers.at[i];
    }
    uint64_t bytes = row_bytes(hir_value_at(t->m, value)->type);
    for (uint32_t at = k; reads && at <= last; at++)
        alive[at - first] += bytes;
    return reads * bytes;
}

static uint64_t most_of(const run *r, const uint64_t *alive) {
    uint64_t most = 1;
    for (uint32_t k = r->first; k < r->end; k++)
        if (alive[k - r->first] > most) most = alive[k - r->first];
    return most;
}

/* Bytes of what kernel k reads first of all in the run, was made before it, and others read too:
 * they find it there if it is kept until the last of them. */
static uint64_t add_read_again(const tiler *t, const run *r, uint32_t k, uint64_t *alive) {
    const node *n = &t->nodes.at[k];
    uint64_t again = 0;
    for (size_t i = 0; i < n->reads.n; i++) {
        const node *maker_node = &t->nodes.at[maker(t, hir_value_ref(n->reads.at[i]))];
        if (t->number[maker_node->op] >= r->first) continue;
        uint32_t reads = 0, first = UINT32_MAX, last = 0;
        for (size_t j = 0; j < maker_node->readers.n; j++) {
            uint32_t reader = maker_node->readers.at[j];
            if (maker_node->read.at[j] != n->reads.at[i] || reader < r->first || reader >= r->end)
                continue;
            reads++;
            if (reader < first) first = reader;
            if (reader > last) last = reader;
        }
        if (first != k || reads < 2) continue;
        uint64_t bytes = row_bytes(hir_value_at(t->m, n->reads.at[i])->type);
        again += (reads - 1) * bytes;
        for (uint32_t at = k; at <= last; at++)
            alive[at - r->first] += bytes;
    }
    return again;
}

static bool may_be_tile(const run *r) {
    return r->rows > 0 && tile_hides(r->rows, r->weights.elements, r->weights.bytes);
}

/* Fills in what the run gains, and its tile; false: its rows do not fit, or its weights cost. A
 * longer run has more of both. What is read twice is kept too if there is room. */
static bool judge(const tiler *t, run *r) {
    uint64_t alive[MOST_KERNELS] = {0};
    r->gain = r->again = 0;
    for (uint32_t k = r->first; k < r->end; k++) {
        const node *n = &t->nodes.at[k];
        const hir_op *op = hir_op_at(t->m, n->op);
        for (uint32_t i = 0; i < op->n_results; i++)
            r->gain += add_crossing(t, n, k, op->results[i], r->first, r->end, alive);
    }
    r->rows = tile_rows(most_of(r, alive));
    if (!may_be_tile(r)) return false;
    run kept = *r;
    for (uint32_t k = r->first; k < r->end; k++)
        kept.again += add_read_again(t, r, k, alive);
    kept.rows = tile_rows(most_of(r, alive));
    if (kept.again && may_be_tile(&kept)) *r = kept;
    return true;
}

/* The groups of greatest gain in sum: best[n] for the first n kernels is the best of those where
 * kernel n - 1 stands alone, and those where it ends a group. */
static run *find_groups(const tiler *t) {
    hd_arena *a = t->c->scratch;
    uint32_t n = (uint32_t)t->nodes.n;
    uint64_t *best = hd_new_array(a, uint64_t, (size_t)n + 1);
    run *ending = hd_new_array(a, run, (size_t)n + 1);
    for (uint32_t end = 1; end <= n; end++) {
        best[end] = best[end - 1];
        ending[end] = (run){.first = end - 1, .end = end, .weights = t->nodes.at[end - 1].weights};
        run r = {.end = end};
        const uint32_t least = end > MOST_KERNELS ? end - MOST_KERNELS : 0;
        for (uint32_t first = end; first-- > least;) {
            const node *n = &t->nodes.at[first];
            r.first = first;
            r.weights.bytes += n->weights.bytes;
            r.weights.elements += n->weights.elements;
            if (!n->may || !judge(t, &r)) break;
            if (best[first] + r.gain + r.again <= best[end]) continue;
            best[end] = best[first] + r.gain + r.again;
            ending[end] = r;
        }
    }
    return ending;
}

/* ---- the pass ------------------------------------------------------------------------------ */
static void mark(tiler *t, const run *r, int64_t group) {
    for (uint32_t k = r->first; k < r->end; k++) {
        hir_set_attr(t->m, t->nodes.at[k].op, hir_int(HIR_A_TILE_GROUP, group));
        hir_set_attr(t->m, t->nodes.at[k].op, hir_int(HIR_A_TILE_ROWS, r->rows));
        if (r->again) hir_set_attr(t->m, t->nodes.at[k].op, hir_int(HIR_A_TILE_KEEPS, 1));
    }
    t->c->changed = true;
    const char *again = r->again ? hd_printf(t->c->scratch, ", %llu where they were just read",
                                             (unsigned long long)r->again)
                                 : "";
    hir_remark_add(t->c, true, t->nodes.at[r->first].op,
                   "%u kernels go together, %lld tokens at a time: %llu bytes per token are read "
                   "where they were just written%s; %llu bytes of weights are read for each tile",
                   r->end - r->first, (long long)r->rows, (unsigned long long)r->gain, again,
                   (unsigned long long)r->weights.bytes);
}

static void explain(const tiler *t, const run *r) {
    const node *n = &t->nodes.at[r->first];
    if (!n->may || n->weights.bytes <= TILE_WEIGHT_BYTES) return;
    hir_remark_add(t->c, false, n->op,
                   "goes for all tokens at once: what it reads and leaves is not worth reading its "
                   "%llu bytes of weights again for each tile",
                   (unsigned long long)n->weights.bytes);
}

static bool clear(hir_module *m, hir_id op) {
    hir_remove_attr(m, op, HIR_A_TILE_ROWS);
    hir_remove_attr(m, op, HIR_A_TILE_KEEPS);
    return hir_remove_attr(m, op, HIR_A_TILE_GROUP);
}

bool pass_tile_tokens(hir_pass_context *c) {
    if (!c->options->tile_tokens) return true;
    tiler t = {.c = c, .m = c->m};
    find_nodes(&t);
    for (size_t k = 0; k < t.nodes.n; k++)
        c->changed |= clear(c->m, t.nodes.at[k].op);
    const run *ending = find_groups(&t);
    HD_VEC(run) groups = {0};
    for (uint32_t end = (uint32_t)t.nodes.n; end > 0; end = ending[end].first)
        hd_push(c->scratch, &groups, ending[end]);
    int64_t number = 0;
    for (size_t i = groups.n; i-- > 0;) {
        if (groups.at[i].gain + groups.at[i].again > 0)
            mark(&t, &groups.at[i], number++);
        else
            explain(&t, &groups.at[i]);
    }
    return true;
}
