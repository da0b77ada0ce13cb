/* The loop along the vectors of a nest: iterations of several vectors side by side, then of one,
 * then the tail. Masks of tails are constants, unless the size depends on N. */
#include "codegen/emit/math.h"
#include "codegen/rowwise/emit/run.h"

typedef struct lane_loop {
    row_run *r;
    const row_nest *nest;
    const uint32_t *roots; /* roots of the nest, later ones first */
    size_t first, last;    /* the roots that this loop computes: [first, last) */
    uint32_t first_sum;    /* reductions along the lanes of earlier loops of this nest */
    uint32_t jam;          /* rows jammed into one iteration */
    uint32_t n;            /* reductions along the lanes, each for all jammed rows */
    uint32_t reduction[ROW_MOST_SUMS];
    row_index own[ROW_MOST_JAM][ROW_VARS];   /* the loop variables of the roots, per row */
    row_index loops[ROW_MOST_JAM][ROW_VARS]; /* of a reduction: its dims, then the lanes */
    uint32_t chains; /* accumulators of a reduction (schedule.h: row_chains) */
    LLVMValueRef
        acc[ROW_MOST_SUMS * ROW_CHAINS]; /* those of a sum together, the next vector's first */
} lane_loop;

/* Sets the loop variables for row `j` of an iteration, and for its reductions along the lanes. */
static void set_loops(lane_loop *l, uint32_t j) {
    const row_nest *nest = l->nest;
    const row_jam jam = l->r->jam;
    row_index next[ROW_VARS];
    for (unsigned v = 0; v < ROW_VARS; v++)
        next[v] = row_var(v);
    if (jam.inner > 1) next[nest->domain.rank - 2].constant = row_int(j % jam.inner);
    if (jam.outer > 1) next[nest->domain.rank - 3].constant = row_int(j / jam.inner);
    for (unsigned v = 0; v < ROW_VARS; v++)
        l->own[j][v] = l->loops[j][v] = row_substitute(&nest->loops[v], next);
    l->loops[j][ROW_INNER] = row_var(nest->domain.rank - 1);
}

/* ---- one iteration --------------------------------------------------------------------------- */

static void store_all(lane_loop *l, const row_pack *computed) {
    row_run *r = l->r;
    for (size_t i = l->last; i-- > l->first; computed += l->jam)
        for (uint32_t j = 0; j < l->jam; j++) {
            const row_node *n = row_at(r->g, l->roots[i]);
            if (!row_along_lanes(n) && n->buffer != ROW_NO_BUFFER)
                row_write(r, n, l->own[j], &computed[j]);
        }
}

/* After an odd number of vectors the other accumulator of each sum is the next one's. */
static void next_chain(const lane_loop *l, LLVMValueRef *acc) {
    for (uint32_t i = 0; i < l->n * l->jam; i++, acc += ROW_CHAINS) {
        LLVMValueRef first = acc[0];
        acc[0] = acc[1], acc[1] = first;
    }
}

/* The row that an iteration computes k-th. */
static uint32_t jammed_row(const lane_loop *l, uint32_t k) {
    const row_jam jam = l->r->jam;
    return l->nest->outer_stays ? k % jam.outer * jam.inner + k / jam.outer : k;
}

/* Computes `unroll` vectors at the current index of every root of the nest, in order, for all
 * jammed rows, which share their loads. In a nest that writes in place nothing is stored before all
 * is computed. */
static void iteration(lane_loop *l, unsigned unroll, LLVMValueRef *acc) {
    row_run *r = l->r;
    row_scope scope = row_scope_begin(r);
    r->unroll = unroll;
    uint32_t sum = l->first_sum;
    const bool late = l->nest->in_place;
    row_pack *all = late ? hd_new_array(r->g->arena, row_pack, l->nest->roots.n * l->jam) : NULL;
    if (l->last - l->first < l->nest->roots.n)
        row_sum_together(r, l->roots + l->first, l->last - l->first);
    for (size_t i = l->last; i-- > l->first;) {
        uint32_t root = l->roots[i];
        const row_node *n = row_at(r->g, root);
        for (uint32_t k = 0; k < l->jam; k++) {
            const uint32_t j = jammed_row(l, k);
            if (row_along_lanes(n)) {
                row_accumulate(r, n, l->loops[j], l->chains, &acc[(sum + j) * ROW_CHAINS]);
                continue;
            }
            r->loops = l->own[j];
            row_pack p = row_compute(r, root);
            if (late)
                all[(l->last - 1 - i) * l->jam + j] = p;
            else if (n->buffer != ROW_NO_BUFFER)
                row_write(r, n, r->loops, &p);
        }
        if (row_along_lanes(n)) sum += l->jam;
    }
    if (late) store_all(l, all);
    if (unroll % l->chains) next_chain(l, acc);
    r->loops = l->nest->loops;
    row_scope_end(r, scope);
}

/* ---- iterations ------------------------------------------------------------------------------ */

/* How many accumulators there are. */
static uint32_t carried(const lane_loop *l) {
    return l->n * l->jam * l->chains;
}

/* Accumulators as loop-carried values, one after the other. */
static void get_sums(const lane_loop *l, LLVMValueRef *live) {
    for (uint32_t i = 0; i < carried(l); i++)
        live[i] = l->acc[i / l->chains * ROW_CHAINS + i % l->chains];
}

static void set_sums(lane_loop *l, const LLVMValueRef *live) {
    for (uint32_t i = 0; i < carried(l); i++)
        l->acc[i / l->chains * ROW_CHAINS + i % l->chains] = live[i];
}

/* Computes whole vectors from element `from` on, `unroll` side by side, `iterations` times. */
static void whole_vectors(lane_loop *l, LLVMValueRef from, int64_t iterations, unsigned unroll) {
    row_run *r = l->r;
    hcg_emit *e = r->e;
    int64_t step = (int64_t)unroll * e->level->lanes;
    LLVMValueRef *var = &r->var[r->lane_var], live[HCG_CARRY];
    if (iterations == 0) return;
    if (iterations == 1) {
        *var = from;
        iteration(l, unroll, l->acc);
        return;
    }
    get_sums(l, live);
    LLVMValueRef to = LLVMBuildAdd(e->b, from, hcg_i64(e, iterations * step), "");
    hcg_loop loop = hcg_loop_begin(e, from, to, hcg_i64(e, step), "k", carried(l), live);
    set_sums(l, loop.carried);
    *var = loop.index;
    iteration(l, unroll, l->acc);
    get_sums(l, live);
    hcg_loop_end(e, &loop, live);
    set_sums(l, loop.carried);
}

/* Computes one vector at a time along a dim of dynamic size: whole vectors, then the tail. */
static void dynamic_vectors(lane_loop *l, row_size size) {
    row_run *r = l->r;
    hcg_emit *e = r->e;
    LLVMValueRef step = hcg_i64(e, e->level->lanes), live[HCG_CARRY], to[2];
    to[1] = row_i64(r, size);
    to[0] = LLVMBuildAnd(e->b, to[1], hcg_i64(e, -(int64_t)e->level->lanes), "whole");
    for (int rest = 0; rest < 2; rest++) { /* the second runs once or not at all */
        get_sums(l, live);
        LLVMValueRef from = rest ? to[0] : hcg_i64(e, 0);
        hcg_loop loop = hcg_loop_begin(e, from, to[rest], step, "k", carried(l), live);
        set_sums(l, loop.carried);
        r->var[r->lane_var] = loop.index;
        if (rest) r->tail = LLVMBuildSub(e->b, to[1], loop.index, "");
        iteration(l, 1, l->acc);
        r->tail = NULL;
        get_sums(l, live);
        hcg_loop_end(e, &loop, live);
        set_sums(l, loop.carried);
    }
}

/* ---- results in groups ----------------------------------------------------------------------- */

/* Computes vectors [from, from + iterations * unroll) of all roots, a group of roots at a time. */
static void all_groups(lane_loop *l, LLVMValueRef from, int64_t iterations) {
    const row_groups *groups = &l->nest->groups;
    const size_t n = l->nest->roots.n;
    l->first_sum = 0;
    l->last = n;
    for (size_t g = 0; g < groups->first.n; g++, l->last = l->first) {
        l->first = groups->first.at[g];
        whole_vectors(l, from, iterations, groups->unroll);
        for (size_t i = l->first; i < l->last; i++)
            l->first_sum += row_along_lanes(row_at(l->r->g, l->roots[i]));
    }
    l->first = 0, l->last = n, l->first_sum = 0;
}

/* Goes block by block, in each block through the groups of roots in order. Returns how many
 * vectors are computed. */
static int64_t blocks_of_groups(lane_loop *l, int64_t vectors) {
    hcg_emit *e = l->r->e;
    const unsigned unroll = l->nest->groups.unroll;
    const int64_t step = (int64_t)unroll * e->level->lanes, iterations = vectors / unroll;
    const int64_t each = l->nest->groups.block / step, whole = iterations / each * each;
    LLVMValueRef live[HCG_CARRY];
    if (whole > each) {
        get_sums(l, live);
        hcg_loop block = hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, whole * step),
                                        hcg_i64(e, each * step), "block", carried(l), live);
        set_sums(l, block.carried);
        all_groups(l, block.index, each);
        get_sums(l, live);
        hcg_loop_end(e, &block, live);
        set_sums(l, block.carried);
    } else if (whole) {
        all_groups(l, hcg_i64(e, 0), whole);
    }
    if (iterations > whole) all_groups(l, hcg_i64(e, whole * step), iterations - whole);
    return iterations * unroll;
}

/* ---- sums in blocks -------------------------------------------------------------------------- */

/* Where sum `i` of row `j` is kept from block to block. */
static LLVMValueRef kept_at(const lane_loop *l, uint32_t i, uint32_t j) {
    row_run *r = l->r;
    hcg_emit *e = r->e;
    const uint32_t rank = l->nest->domain.rank;
    LLVMValueRef row = hcg_i64(e, 0);
    for (uint32_t d = 0; d + 1 < rank; d++) {
        int64_t beside = 0;
        if (d + 2 == rank) beside = j % r->jam.inner;
        if (d + 3 == rank) beside = j / r->jam.inner;
        row = LLVMBuildMul(e->b, row, row_i64(r, l->nest->domain.dim[d]), "");
        row = LLVMBuildAdd(e->b, row, r->var[d], "");
        row = LLVMBuildAdd(e->b, row, hcg_i64(e, beside), "");
    }
    row = LLVMBuildMul(e->b, row, hcg_i64(e, l->n), "");
    row = LLVMBuildAdd(e->b, row, hcg_i64(e, i), "");
    return hcg_at(e, e->vec, r->block->kept, row);
}

/* Loads the sums of the previous block: those of nests with blocks have one accumulator. */
static void load_kept(lane_loop *l) {
    for (uint32_t i = 0; i < l->n * l->jam; i++)
        l->acc[i * ROW_CHAINS] =
            hcg_load(l->r->e, HIR_F32, kept_at(l, i / l->jam, i % l->jam), NULL);
}

static void store_kept(lane_loop *l) {
    for (uint32_t i = 0; i < l->n * l->jam; i++)
        hcg_store(l->r->e, kept_at(l, i / l->jam, i % l->jam), l->acc[i * ROW_CHAINS], NULL);
}

/* ---- the results of sums --------------------------------------------------------------------- */

/* Combines the accumulators of each reduction, and then their lanes, into the result. An accumulator
 * that no vector was added to is left out. */
static void finish_reductions(lane_loop *l) {
    row_run *r = l->r;
    for (uint32_t i = 0; i < l->n * l->jam; i++) {
        const row_node *n = row_at(r->g, l->reduction[i / l->jam]);
        LLVMValueRef v = l->acc[i * ROW_CHAINS], w = l->acc[i * ROW_CHAINS + l->chains - 1];
        if (w != v && !LLVMIsConstant(w)) v = LLVMIsConstant(v) ? w : row_combine(r, n, v, w);
        bool max = n->op->code == HIR_REDUCE_MAX_OP;
        v = max ? hcg_max_lanes(r->e, v) : hcg_sum_lanes(r->e, v);
        row_pack p = {.uniform = true, .v = {row_finish(r, n, v)}};
        if (n->shape.rank == 0) row_made_of(r, n)->scalar = p.v[0];
        if (n->buffer != ROW_NO_BUFFER && !row_when(n)) row_write(r, n, l->own[i % l->jam], &p);
    }
}

/* ---- all of a row ---------------------------------------------------------------------------- */

/* Reads what is known before the loop, and starts the sums. */
static void prologue(lane_loop *l) {
    row_run *r = l->r;
    for (size_t i = l->nest->roots.n; i-- > 0;) {
        const row_node *n = row_at(r->g, l->roots[i]);
        const bool along = row_along_lanes(n);
        if (along) l->reduction[l->n++] = l->roots[i];
        for (uint32_t j = 0; j < l->jam; j++)
            for (uint32_t a = 0; a < n->n_args; a++)
                row_hoist(r, &n->args[a], along ? l->loops[j] : l->own[j]);
    }
    for (uint32_t i = 0; i < l->n * l->jam * ROW_CHAINS; i++)
        l->acc[i] = row_start(r, row_at(r->g, l->reduction[i / ROW_CHAINS / l->jam]));
    if (r->block) load_kept(l);
}

/* Computes the vectors from the end of the blocks on, or all of them. */
static void known_vectors(lane_loop *l, int64_t size, unsigned unroll, bool grouped) {
    row_run *r = l->r;
    hcg_emit *e = r->e;
    const int64_t width = e->level->lanes, vectors = size / width;
    const int64_t before = r->block ? r->block->done / width : 0;
    const int64_t iterations = (vectors - before) / unroll;
    int64_t done = before + iterations * unroll;
    if (grouped)
        done = blocks_of_groups(l, vectors);
    else
        whole_vectors(l, hcg_i64(e, before * width), iterations, unroll);
    whole_vectors(l, hcg_i64(e, done * width), vectors - done, 1);
    if (size % width) {
        r->tail = hcg_i64(e, size % width);
        r->var[r->lane_var] = hcg_i64(e, vectors * width);
        iteration(l, 1, l->acc);
        r->tail = NULL;
    }
}

void row_emit_lanes(row_run *r) {
    const row_nest *nest = r->nest;
    const uint32_t jam = r->jam.outer * r->jam.inner;
    const bool grouped = jam == 1 && nest->groups.first.n && !r->streaming;
    const unsigned unroll = grouped ? nest->groups.unroll : nest->unroll[jam];
    const bool in_block = r->block && r->block->length;
    const row_size size = nest->domain.dim[r->lane_var];
    lane_loop l = {.r = r, .nest = nest, .last = nest->roots.n, .jam = jam};
    l.chains = row_chains(&nest->domain);
    l.roots = grouped ? nest->groups.order : nest->roots.at;
    for (uint32_t j = 0; j < jam; j++)
        set_loops(&l, j);
    row_scope scope = row_scope_begin(r);
    prologue(&l);
    if (in_block) {
        const int64_t vectors = r->block->length / r->e->level->lanes;
        whole_vectors(&l, r->block->from, vectors / unroll, unroll);
        store_kept(&l);
    } else if (row_is_dynamic(size)) {
        dynamic_vectors(&l, size);
    } else {
        known_vectors(&l, size.a, unroll, grouped);
    }
    r->var[r->lane_var] = NULL;
    row_scope_end(r, scope);
    if (!in_block) finish_reductions(&l);
}
