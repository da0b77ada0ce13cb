/* Loop nests of a row program. Vectors run along the last dim of a nest's domain: first several
 * side by side, then one at a time, then what is left of one. Sizes are known, so that every tail
 * has a constant mask, but for one that a program may be told. Around the nests stands the loop
 * over tokens. */
#include "codegen/emit/math.h"
#include "codegen/row/emit/run.h"

enum { MOST_SUMS = ROW_MOST_SUMS, MOST_JAM = 24 };

/* Many results of the same rows: elements of a piece, which all of them pass before the next; the
 * rows are read from the L1 then, and few streams of stores are open at once. */
enum { PIECE = 512, MANY_RESULTS = 5 };

/* ---- one nest -------------------------------------------------------------------------------- */

typedef struct lane_loop { /* state of the innermost loop of a nest */
    row_run *r;
    const row_nest *nest;
    const uint32_t *roots; /* of the nest, later ones first */
    size_t first, last;    /* those that this loop computes: [first, last) */
    uint32_t first_sum;    /* reductions along the lanes that other loops have computed before */
    row_jam around;
    uint32_t jam; /* neighbours that go together */
    uint32_t n;   /* reductions along the lanes, each for all neighbours */
    uint32_t reduction[MOST_SUMS];
    row_index own[MOST_JAM][ROW_VARS];        /* loops of the roots, per neighbour */
    row_index loops[MOST_JAM][ROW_VARS];      /* of a reduction: its dims, then the lanes */
    LLVMValueRef acc[MOST_SUMS * ROW_COPIES]; /* copies of one sum together */
} lane_loop;

static bool along_lanes(const row_node *n) {
    return n->kind == ROW_REDUCE && n->last;
}

/* Loop variables as neighbour `j` sees them, and as a reduction of it along the lanes does. */
static void set_loops(lane_loop *l, uint32_t j, row_jam jam) {
    const row_nest *nest = l->nest;
    row_index next[ROW_VARS];
    for (unsigned v = 0; v < ROW_VARS; v++)
        next[v] = row_var(v);
    if (jam.inner > 1) next[nest->domain.rank - 2].constant = j % jam.inner;
    if (jam.outer > 1) next[nest->domain.rank - 3].constant = j / jam.inner;
    for (unsigned v = 0; v < ROW_VARS; v++)
        l->own[j][v] = l->loops[j][v] = row_substitute(&nest->loops[v], next);
    l->loops[j][ROW_INNER] = row_var(nest->domain.rank - 1);
}

/* Stores what a turn has computed; over what it has read, not before all of it is computed. */
static void write_turn(lane_loop *l, const row_pack *made) {
    row_run *r = l->r;
    for (size_t i = l->last; i-- > l->first; made += l->jam)
        for (uint32_t j = 0; j < l->jam; j++) {
            const row_node *n = row_at(r->g, l->roots[i]);
            if (!along_lanes(n) && n->buffer != ROW_NO_BUFFER) row_write(r, n, l->own[j], &made[j]);
        }
}

/* One turn: `copies` vectors at the current index of every root of the nest, in order, for all
 * neighbours: what they all read is loaded once. */
static void turn(lane_loop *l, unsigned copies, LLVMValueRef *acc) {
    row_run *r = l->r;
    row_scope scope = row_scope_begin(r);
    r->copies = copies;
    uint32_t sum = l->first_sum;
    const bool over = row_writes_over(r->g, l->nest);
    row_pack *made = over ? hd_new_array(r->g->arena, row_pack, l->nest->roots.n * l->jam) : NULL;
    if (l->last - l->first < l->nest->roots.n)
        row_sum_together(r, l->roots + l->first, l->last - l->first);
    for (size_t i = l->last; i-- > l->first;) {
        uint32_t root = l->roots[i];
        const row_node *n = row_at(r->g, root);
        for (uint32_t j = 0; j < l->jam; j++) {
            if (along_lanes(n)) {
                row_accumulate(r, n, l->loops[j], true, &acc[sum++ * ROW_COPIES]);
                continue;
            }
            r->loops = l->own[j];
            row_pack p = row_compute(r, root);
            if (over)
                made[(l->last - 1 - i) * l->jam + j] = p;
            else if (n->buffer != ROW_NO_BUFFER)
                row_write(r, n, r->loops, &p);
        }
    }
    if (over) write_turn(l, made);
    r->loops = l->nest->loops;
    row_scope_end(r, scope);
}

/* Accumulators as loops carry them, one copy after the other. */
static void get_sums(const lane_loop *l, unsigned copies, LLVMValueRef *live) {
    for (uint32_t i = 0; i < l->n * l->jam * copies; i++)
        live[i] = l->acc[i / copies * ROW_COPIES + i % copies];
}

static void set_sums(lane_loop *l, unsigned copies, const LLVMValueRef *live) {
    for (uint32_t i = 0; i < l->n * l->jam * copies; i++)
        l->acc[i / copies * ROW_COPIES + i % copies] = live[i];
}

/* Whole vectors from element `from` on, `copies` side by side, `turns` times. */
static void whole_vectors(lane_loop *l, LLVMValueRef from, int64_t turns, unsigned copies) {
    row_run *r = l->r;
    hcg_emit *e = r->e;
    int64_t step = (int64_t)copies * e->level->lanes;
    LLVMValueRef *var = &r->var[r->lane_var], live[HCG_CARRY];
    if (turns == 0) return;
    if (turns == 1) {
        *var = from;
        turn(l, copies, l->acc);
        return;
    }
    get_sums(l, copies, live);
    LLVMValueRef to = LLVMBuildAdd(e->b, from, hcg_i64(e, turns * step), "");
    hcg_loop loop =
        hcg_loop_begin(e, from, to, hcg_i64(e, step), "k", l->n * l->jam * copies, live);
    set_sums(l, copies, loop.carried);
    *var = loop.index;
    turn(l, copies, l->acc);
    get_sums(l, copies, live);
    hcg_loop_end(e, &loop, live);
    set_sums(l, copies, loop.carried);
}

/* One vector at a time along a dim whose size is told: whole ones, then what is left of one. */
static void told_vectors(lane_loop *l, int64_t size) {
    row_run *r = l->r;
    hcg_emit *e = r->e;
    const uint32_t sums = l->n * l->jam;
    LLVMValueRef step = hcg_i64(e, e->level->lanes), live[HCG_CARRY], to[2];
    to[1] = row_i64(r, size);
    to[0] = LLVMBuildAnd(e->b, to[1], hcg_i64(e, -(int64_t)e->level->lanes), "whole");
    for (int part = 0; part < 2; part++) { /* the second runs once or not at all */
        for (uint32_t i = 0; i < sums; i++)
            live[i] = l->acc[(size_t)i * ROW_COPIES];
        LLVMValueRef from = part ? to[0] : hcg_i64(e, 0);
        hcg_loop loop = hcg_loop_begin(e, from, to[part], step, "k", sums, live);
        for (uint32_t i = 0; i < sums; i++)
            l->acc[(size_t)i * ROW_COPIES] = loop.carried[i];
        r->var[r->lane_var] = loop.index;
        if (part) r->tail = LLVMBuildSub(e->b, to[1], loop.index, "");
        turn(l, 1, l->acc);
        r->tail = NULL;
        for (uint32_t i = 0; i < sums; i++)
            live[i] = l->acc[(size_t)i * ROW_COPIES];
        hcg_loop_end(e, &loop, live);
        for (uint32_t i = 0; i < sums; i++)
            l->acc[(size_t)i * ROW_COPIES] = loop.carried[i];
    }
}

/* Accumulators of one reduction become one, the upper half added to the lower. */
static void join_copies(lane_loop *l, unsigned copies) {
    for (uint32_t i = 0; i < l->n * l->jam; i++) {
        LLVMValueRef *acc = &l->acc[i * ROW_COPIES];
        const row_node *n = row_at(l->r->g, l->reduction[i / l->jam]);
        for (unsigned left = copies; left > 1; left = (left + 1) / 2)
            for (unsigned u = 0; u < left / 2; u++)
                acc[u] = row_combine(l->r, n, acc[u], acc[u + (left + 1) / 2]);
    }
}

static bool is_all_sums(const row_run *r, const row_nest *nest) {
    for (size_t i = 0; i < nest->roots.n; i++)
        if (!along_lanes(row_at(r->g, nest->roots.at[i]))) return false;
    return true;
}

/* The lanes of each accumulator become the result. */
static void finish_reductions(lane_loop *l) {
    row_run *r = l->r;
    for (uint32_t i = 0; i < l->n * l->jam; i++) {
        row_node *n = row_at(r->g, l->reduction[i / l->jam]);
        LLVMValueRef v = l->acc[i * ROW_COPIES];
        bool max = n->op->code == HIR_REDUCE_MAX_OP;
        v = max ? hcg_max_lanes(r->e, v) : hcg_sum_lanes(r->e, v);
        row_pack p = {.uniform = true, .v = {row_finish(r, n, v)}};
        if (n->shape.rank == 0) n->scalar = p.v[0];
        if (n->buffer != ROW_NO_BUFFER && !row_when(n)) row_write(r, n, l->own[i % l->jam], &p);
    }
}

/* How many vectors to hold at once: several hide the latency of sums and share what a reduction
 * inside the loop reads, or a factor that is the same for all; functions of many instructions fill
 * the machine alone. If that leaves a rest, perhaps a few less do not. */
static unsigned vectors_at_once(const row_run *r, const row_nest *nest, uint32_t jam, uint32_t sums,
                                int64_t vectors) {
    const row_graph *g = r->g;
    size_t values = nest->roots.n * jam;
    bool many_registers = r->e->level->lanes == 16 && sums <= 1;
    unsigned most = values > 8 && !many_registers ? 1 : values > 3 ? 2 : ROW_COPIES;
    for (size_t i = 0; i < nest->roots.n; i++)
        if (row_at(g, nest->roots.at[i])->costly) most = 1;
    if (vectors < most) return vectors > 0 ? (unsigned)vectors : 1;
    for (unsigned copies = most; copies > 1; copies--)
        if (vectors % copies == 0) return copies;
    return most;
}

/* How many of `size` go together, at most `most`: all; else parts of one size, if there are such;
 * else as few parts as can be, of nearly one size. */
static uint32_t share_of(int64_t size, uint32_t most) {
    enum { LEAST = 3 };
    if (most == 0) return 1;
    if (size <= most) return (uint32_t)size;
    for (uint32_t even = most; even >= LEAST; even--)
        if (size % even == 0) return even;
    const int64_t parts = (size + most - 1) / most;
    return (uint32_t)((size + parts - 1) / parts);
}

/* How many neighbours go together. Where there is nothing but sums: m sources meet n queries with m
 * + n loads, and if all queries go together a source is read once, so that memory does not rest
 * while others meet it in a cache. More than JAM_OF_SUMS queries do not: then sources go by fours,
 * as many streams of memory, with as many queries as that leaves room for. Where there is more than
 * sums, all of a few, such as the streams that a small matrix mixes: each is made of the same rows,
 * which memory then gives once. */
row_jam row_jam_of(const hcg_level *level, const row_graph *g, const row_nest *nest) {
    enum { STREAMS = 4, JAM_OF_ALL = 8, JAM_OF_SUMS = 8 };
    const uint32_t most = row_most_sums(level);
    uint32_t sums = 0, roots = (uint32_t)nest->roots.n, rank = nest->domain.rank;
    row_jam jam = {1, 1};
    if (rank < 2 || roots == 0) return jam;
    int64_t inner = nest->domain.dim[rank - 2], outer = rank > 2 ? nest->domain.dim[rank - 3] : 1;
    for (size_t i = 0; i < roots; i++)
        sums += along_lanes(row_at(g, nest->roots.at[i]));
    if (sums < roots) {
        if (inner <= JAM_OF_ALL && inner * roots <= most) jam.inner = (uint32_t)inner;
        return jam;
    }
    uint32_t together = most / roots < JAM_OF_SUMS ? most / roots : JAM_OF_SUMS;
    if (inner > together && outer >= STREAMS && most / roots >= STREAMS * STREAMS)
        together = most / roots / STREAMS;
    jam.inner = share_of(inner, together);
    for (jam.outer = STREAMS; jam.outer > 1; jam.outer /= 2)
        if (jam.outer * jam.inner * roots <= most && jam.outer <= outer) break;
    return jam;
}

/* ---- results in groups ----------------------------------------------------------------------- */

enum { SEVERAL = HIR_NONE - 1 };

/* The root of its own nest that root `of` reads, by way of `n`; HIR_NONE: none. */
static uint32_t own_read(const row_run *r, const row_node *of, const row_node *n) {
    uint32_t one = HIR_NONE;
    for (uint32_t a = 0; a < n->n_args; a++) {
        uint32_t id = n->args[a].node;
        const row_node *x = row_at(r->g, id);
        if (!x->root)
            id = own_read(r, of, x);
        else if (x->nest != of->nest || x->token_free != of->token_free)
            id = HIR_NONE;
        if (id != HIR_NONE) one = one == HIR_NONE || one == id ? id : SEVERAL;
    }
    return one;
}

/* The root of its nest that root `n` follows: the row that it is the sum of squares of. */
static uint32_t leader(const row_run *r, const row_node *n) {
    uint32_t lead = HIR_NONE;
    while (n->chained) {
        const uint32_t next = own_read(r, n, n);
        if (next == HIR_NONE || next == SEVERAL) return next == SEVERAL ? next : lead;
        lead = next;
        n = row_at(r->g, next);
    }
    return lead;
}

static bool is_plain(const row_node *n) {
    return (n->kind == ROW_MAP || n->kind == ROW_COPY) && !n->costly;
}

/* Results that go together where a nest has many. 0: all of them. */
static uint32_t results_together(const row_run *r, const row_nest *nest) {
    enum { TOGETHER = 4 };
    if (nest->roots.n <= MANY_RESULTS || r->streaming || row_writes_over(r->g, nest)) return 0;
    for (size_t i = 0; i < nest->roots.n; i++) {
        const row_node *n = row_at(r->g, nest->roots.at[i]);
        if ((!is_plain(n) && !along_lanes(n)) || leader(r, n) == SEVERAL) return 0;
    }
    return TOGETHER;
}

/* The roots in such an order that each is followed by those that read it; later ones first. */
static const uint32_t *with_followers(const row_run *r, const row_nest *nest) {
    uint32_t *out = hd_new_array(r->g->arena, uint32_t, nest->roots.n);
    size_t at = nest->roots.n;
    for (size_t i = nest->roots.n; i-- > 0;) {
        const uint32_t id = nest->roots.at[i];
        if (leader(r, row_at(r->g, id)) != HIR_NONE) continue;
        out[--at] = id;
        for (size_t k = i; k-- > 0;)
            if (leader(r, row_at(r->g, nest->roots.at[k])) == id) out[--at] = nest->roots.at[k];
    }
    return out;
}

/* Vectors of each: that leaves half of 32 registers, or of 16, to rows and weights. */
static unsigned copies_together(const row_run *r) {
    return r->e->level->lanes == 16 ? 4 : 2;
}

/* Where the group that ends with root `last` begins: `together` roots and who follows them. */
static size_t group_of(const lane_loop *l, size_t last, uint32_t together) {
    uint32_t n = 0;
    size_t first = last;
    for (; first > 0; first--) {
        const bool leads = leader(l->r, row_at(l->r->g, l->roots[first - 1])) == HIR_NONE;
        if (leads && n++ == together) break;
    }
    return first;
}

/* Vectors [from, from + turns * copies) of all roots, `together` of them at a time. */
static void groups(lane_loop *l, LLVMValueRef from, int64_t turns, uint32_t together) {
    const size_t n = l->nest->roots.n;
    l->first_sum = 0;
    for (l->last = n; l->last > 0; l->last = l->first) {
        l->first = group_of(l, l->last, together);
        whole_vectors(l, from, turns, copies_together(l->r));
        for (size_t i = l->first; i < l->last; i++)
            l->first_sum += along_lanes(row_at(l->r->g, l->roots[i]));
    }
    l->first = 0, l->last = n, l->first_sum = 0;
}

/* Piece by piece, in each the groups one after the other. Gives the vectors done. */
static int64_t pieces(lane_loop *l, int64_t vectors, uint32_t together) {
    hcg_emit *e = l->r->e;
    const unsigned copies = copies_together(l->r);
    const int64_t step = (int64_t)copies * e->level->lanes, turns = vectors / copies;
    const int64_t each = PIECE / step, whole = turns / each * each;
    LLVMValueRef live[HCG_CARRY];
    if (whole > each) {
        get_sums(l, copies, live);
        hcg_loop piece = hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, whole * step),
                                        hcg_i64(e, each * step), "piece", l->n * copies, live);
        set_sums(l, copies, piece.carried);
        groups(l, piece.index, each, together);
        get_sums(l, copies, live);
        hcg_loop_end(e, &piece, live);
        set_sums(l, copies, piece.carried);
    } else if (whole) {
        groups(l, hcg_i64(e, 0), whole, together);
    }
    if (turns > whole) groups(l, hcg_i64(e, whole * step), turns - whole, together);
    return turns * copies;
}

/* ---- sums in pieces -------------------------------------------------------------------------- */

/* Where sum `i` of neighbour `j` waits from piece to piece. */
static LLVMValueRef kept_at(const lane_loop *l, uint32_t i, uint32_t j) {
    hcg_emit *e = l->r->e;
    const uint32_t rank = l->nest->domain.rank;
    LLVMValueRef row = hcg_i64(e, 0);
    for (uint32_t d = 0; d + 1 < rank; d++) {
        int64_t beside = 0;
        if (d + 2 == rank) beside = j % l->around.inner;
        if (d + 3 == rank) beside = j / l->around.inner;
        row = LLVMBuildMul(e->b, row, row_i64(l->r, l->nest->domain.dim[d]), "");
        row = LLVMBuildAdd(e->b, row, l->r->var[d], "");
        row = LLVMBuildAdd(e->b, row, hcg_i64(e, beside), "");
    }
    row = LLVMBuildMul(e->b, row, hcg_i64(e, l->n), "");
    row = LLVMBuildAdd(e->b, row, hcg_i64(e, i), "");
    return hcg_at(e, e->vec, l->r->piece->kept, row);
}

/* The first copy of each sum goes on from the piece before. */
static void load_kept(lane_loop *l) {
    for (uint32_t i = 0; i < l->n * l->jam; i++)
        l->acc[i * ROW_COPIES] =
            hcg_load(l->r->e, HIR_F32, kept_at(l, i / l->jam, i % l->jam), NULL);
}

static void store_kept(lane_loop *l) {
    for (uint32_t i = 0; i < l->n * l->jam; i++)
        hcg_store(l->r->e, kept_at(l, i / l->jam, i % l->jam), l->acc[i * ROW_COPIES], NULL);
}

static void lanes(row_run *r, const row_nest *nest, row_jam around) {
    hcg_emit *e = r->e;
    uint32_t jam = around.outer * around.inner;
    lane_loop l = {.r = r, .nest = nest, .last = nest->roots.n, .around = around, .jam = jam};
    const uint32_t together = jam == 1 && !r->piece ? results_together(r, nest) : 0;
    l.roots = together ? with_followers(r, nest) : nest->roots.at;
    for (uint32_t j = 0; j < jam; j++)
        set_loops(&l, j, around);
    row_scope scope = row_scope_begin(r);
    r->turns = is_all_sums(r, nest) ? &around : NULL;
    for (size_t i = nest->roots.n; i-- > 0;) {
        const row_node *n = row_at(r->g, l.roots[i]);
        bool along = along_lanes(n);
        if (along) l.reduction[l.n++] = l.roots[i];
        for (uint32_t j = 0; j < jam; j++)
            for (uint32_t a = 0; a < n->n_args; a++)
                row_hoist(r, &n->args[a], along ? l.loops[j] : l.own[j]);
    }
    int64_t size = nest->domain.dim[r->lane_var], width = e->level->lanes;
    int64_t vectors = size / width;
    unsigned copies = vectors_at_once(r, nest, r->turns ? 1 : jam, l.n, vectors);
    while (jam > 1 && copies > 1 && jam * l.n * copies > row_most_sums(r->e->level))
        copies /= 2;
    if (r->piece && copies == 3) copies = 2; /* pieces are powers of two */
    if (together) copies = copies_together(r);
    for (uint32_t i = 0; i < l.n * jam * ROW_COPIES; i++)
        l.acc[i] = row_start(r, row_at(r->g, l.reduction[i / ROW_COPIES / jam]));
    if (r->piece) load_kept(&l);
    if (row_is_any(r->g, size)) {
        told_vectors(&l, size);
        r->var[r->lane_var] = NULL;
        r->turns = NULL;
        row_scope_end(r, scope);
        finish_reductions(&l);
        return;
    }
    int64_t before = r->piece ? r->piece->done / width : 0;
    int64_t turns = (vectors - before) / copies, done = before + turns * copies;
    if (r->piece && r->piece->length) {
        whole_vectors(&l, r->piece->from, r->piece->length / width / copies, copies);
        join_copies(&l, copies);
        store_kept(&l);
        r->var[r->lane_var] = NULL;
        r->turns = NULL;
        row_scope_end(r, scope);
        return;
    }
    if (together)
        done = pieces(&l, vectors, together);
    else
        whole_vectors(&l, hcg_i64(e, before * width), turns, copies);
    if (turns > 0) join_copies(&l, copies);
    whole_vectors(&l, hcg_i64(e, done * width), vectors - done, 1);
    if (size % width) {
        r->tail = hcg_i64(e, size % width);
        r->var[r->lane_var] = hcg_i64(e, vectors * width);
        turn(&l, 1, l.acc);
        r->tail = NULL;
    }
    r->var[r->lane_var] = NULL;
    r->turns = NULL;
    row_scope_end(r, scope);
    finish_reductions(&l);
}

static void outer(row_run *r, const row_nest *nest, uint32_t depth, row_jam jam);

/* The dim that the loop at `depth` goes along, outermost first. */
static uint32_t dim_at(const row_run *r, const row_nest *nest, uint32_t depth) {
    const uint32_t rank = nest->domain.rank;
    return row_exchanged(r) && depth + 3 >= rank ? 2 * rank - 5 - depth : depth;
}

static void outer_loop(row_run *r, const row_nest *nest, uint32_t depth, LLVMValueRef from,
                       LLVMValueRef to, uint32_t step, row_jam jam) {
    hcg_emit *e = r->e;
    const uint32_t dim = dim_at(r, nest, depth);
    hcg_loop l = hcg_loop_begin(e, from, to, hcg_i64(e, step), "d", 0, NULL);
    r->var[dim] = l.index;
    outer(r, nest, depth + 1, jam);
    r->var[dim] = NULL;
    hcg_loop_end(e, &l, NULL);
}

/* Elements from .. to of a dim before the last, `step` at once. */
static void outer_part(row_run *r, const row_nest *nest, uint32_t depth, int64_t from, int64_t to,
                       uint32_t step, row_jam jam) {
    hcg_emit *e = r->e;
    const uint32_t dim = dim_at(r, nest, depth);
    if (from == to) return;
    if (from + step == to) {
        r->var[dim] = hcg_i64(e, from);
        outer(r, nest, depth + 1, jam);
        r->var[dim] = NULL;
        return;
    }
    outer_loop(r, nest, depth, hcg_i64(e, from), hcg_i64(e, to), step, jam);
}

/* All elements of a dim whose size is told: as many at once as go together, a power of two of them,
 * and of what is left half as many, until it is one by one. */
static void told_outer(row_run *r, const row_nest *nest, uint32_t depth, row_jam jam) {
    hcg_emit *e = r->e;
    const uint32_t dim = dim_at(r, nest, depth);
    uint32_t one = 1, *step = &one;
    if (dim + 2 == nest->domain.rank) step = &jam.inner;
    if (dim + 3 == nest->domain.rank) step = &jam.outer;
    while (*step & (*step - 1))
        *step &= *step - 1;
    LLVMValueRef size = row_i64(r, nest->domain.dim[dim]), from = hcg_i64(e, 0);
    for (; *step > 0; *step /= 2) {
        LLVMValueRef to = LLVMBuildAnd(e->b, size, hcg_i64(e, -(int64_t)*step), "whole");
        outer_loop(r, nest, depth, from, to, *step, jam);
        from = to;
    }
}

/* Dims before the last one as loops, the two innermost of them by neighbours. */
static void outer(row_run *r, const row_nest *nest, uint32_t depth, row_jam jam) {
    uint32_t rank = nest->domain.rank;
    if (depth + 1 >= rank) {
        lanes(r, nest, jam);
        return;
    }
    const uint32_t dim = dim_at(r, nest, depth);
    uint32_t step = dim + 2 == rank ? jam.inner : dim + 3 == rank ? jam.outer : 1;
    int64_t size = nest->domain.dim[dim], whole = size - size % step;
    const uint32_t left = (uint32_t)(size - whole);
    const row_jam rest = {dim + 3 == rank ? left : jam.outer, dim + 2 == rank ? left : jam.inner};
    if (row_is_any(r->g, size)) {
        told_outer(r, nest, depth, jam);
        return;
    }
    outer_part(r, nest, depth, 0, whole, step, jam);
    outer_part(r, nest, depth, whole, size, left, rest);
}

/* Rows that sums of n rows with m others have in hand until all have met: those that go together,
 * and all that they are about to meet. As the loops stand, these are the m (phase 1: queries, while
 * sources pass four at a time); if they change places, the n. */
static int64_t rows_in_hand(const row_run *r, const row_nest *nest, bool exchanged) {
    const row_jam jam = row_jam_of(r->e->level, r->g, nest);
    const uint32_t rank = nest->domain.rank;
    const int64_t *dim = nest->domain.dim;
    if (rank < 3) return jam.inner;
    return exchanged ? jam.inner + row_most(r->g, dim[rank - 3])
                     : jam.outer + row_most(r->g, dim[rank - 2]);
}

/* A piece such that the rows in hand stay in the L1; loops change places in it if
 * that is fewer rows. Of no length: they stay anyway, or there is little to meet. */
static row_piece piece_of_sums(const row_run *r, const row_nest *nest) {
    enum { FIRST_LEVEL = 48 << 10, FEW = 8 };
    const row_piece none = {0};
    const int64_t size = nest->domain.dim[r->lane_var], roots = (int64_t)nest->roots.n;
    if (row_is_any(r->g, size) || row_elements(&nest->domain) / size < FEW) return none;
    if (!is_all_sums(r, nest)) return none;
    row_piece piece = {.length = PIECE};
    int64_t rows = roots + rows_in_hand(r, nest, false);
    if (size <= PIECE || size * rows * 4 <= FIRST_LEVEL) return none;
    const int64_t other = roots + rows_in_hand(r, nest, true);
    piece.exchanged = nest->domain.rank > 2 && other < rows;
    if (piece.exchanged) rows = 2 * other; /* the next piece is asked for meanwhile */
    while (2 * piece.length * rows * 4 <= FIRST_LEVEL)
        piece.length *= 2;
    return size > piece.length ? piece : none;
}

/* Elements to the next piece: rows of a token lie behind each other. */
static LLVMValueRef next_piece(row_run *r, LLVMValueRef from, int64_t whole, int64_t length) {
    hcg_emit *e = r->e;
    if (!r->more) return NULL;
    LLVMValueRef there = LLVMBuildMul(e->b, r->more, hcg_i64(e, length), "");
    if (row_exchanged(r)) return there;
    LLVMValueRef here = LLVMBuildICmp(e->b, LLVMIntSLT, from, hcg_i64(e, whole - length), "");
    return LLVMBuildSelect(e->b, here, hcg_i64(e, length), there, "on");
}

static void sums_in_pieces(row_run *r, const row_nest *nest, row_piece piece) {
    hcg_emit *e = r->e;
    const row_jam jam = row_jam_of(r->e->level, r->g, nest);
    const int64_t size = nest->domain.dim[r->lane_var], length = piece.length;
    const int64_t whole = size / length * length;
    const int64_t rows = row_elements(&nest->domain) / size, sums = (int64_t)nest->roots.n;
    piece.kept = row_scratch(r, rows * sums * e->level->lanes * 4);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), row_i64(r, rows), hcg_i64(e, 1), "row", 0, NULL);
    for (int64_t i = 0; i < sums; i++) {
        LLVMValueRef at = LLVMBuildMul(e->b, l.index, hcg_i64(e, sums), "");
        at = LLVMBuildAdd(e->b, at, hcg_i64(e, i), "");
        const row_node *n = row_at(r->g, nest->roots.at[sums - 1 - i]); /* as lanes() counts them */
        hcg_store(e, hcg_at(e, e->vec, piece.kept, at), row_start(r, n), NULL);
    }
    hcg_loop_end(e, &l, NULL);
    r->piece = &piece;
    l = hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, whole), hcg_i64(e, length), "piece", 0, NULL);
    piece.from = l.index;
    piece.next = next_piece(r, l.index, whole, length);
    outer(r, nest, 0, jam);
    hcg_loop_end(e, &l, NULL);
    piece.length = 0, piece.done = whole, piece.next = NULL;
    outer(r, nest, 0, jam);
    r->piece = NULL;
}

/* Roots of one element: straight code; the values stay in registers for the rest of the token. */
static void single(row_run *r, const row_nest *nest) {
    for (size_t i = nest->roots.n; i-- > 0;) {
        row_node *n = row_at(r->g, nest->roots.at[i]);
        row_pack p = row_compute(r, nest->roots.at[i]);
        n->scalar = p.v[0];
        if (n->buffer != ROW_NO_BUFFER) row_write(r, n, r->loops, &p);
    }
}

/* Sums of one element that both forms of a nest have made: whichever did. */
static void join_scalars(row_run *r, const row_nest *nest, LLVMValueRef *const made[2],
                         LLVMBasicBlockRef from[2]) {
    for (size_t i = 0; i < nest->roots.n; i++) {
        row_node *n = row_at(r->g, nest->roots.at[i]);
        if (!made[0][i]) continue;
        n->scalar = LLVMBuildPhi(r->e->b, r->e->f32, "");
        LLVMAddIncoming(n->scalar, (LLVMValueRef[]){made[0][i], made[1][i]}, from, 2);
    }
}

/* The loops of a nest; twice, with a choice between them, if the stores may go past the caches. */
static void loops_of(row_run *r, const row_nest *nest) {
    hcg_emit *e = r->e;
    LLVMValueRef when = row_stream_when(r, nest);
    if (!when) {
        const row_piece piece = piece_of_sums(r, nest);
        if (piece.length)
            sums_in_pieces(r, nest, piece);
        else
            outer(r, nest, 0, row_jam_of(r->e->level, r->g, nest));
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
        outer(r, nest, 0, row_jam_of(r->e->level, r->g, nest));
        for (size_t i = 0; i < nest->roots.n; i++)
            made[form][i] = row_at(r->g, nest->roots.at[i])->scalar;
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
    row_scope scope = row_scope_begin(r);
    r->nest = nest;
    r->loops = nest->loops;
    r->lane_var = (int)nest->domain.rank - 1;
    r->copies = 1;
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

/* ---- the program ------------------------------------------------------------------------------
 */
/* Frequencies of rope_table as constants of the module. */
static void make_frequencies(row_run *r) {
    hcg_emit *e = r->e;
    for (size_t i = 0; i < r->g->tables.n; i++) {
        row_table *t = &r->g->tables.at[i];
        LLVMValueRef *f = hd_new_array(e->arena, LLVMValueRef, (size_t)t->padded);
        for (int64_t j = 0; j < t->padded; j++)
            f[j] = LLVMConstReal(e->f64, t->at[j]);
        LLVMTypeRef type = LLVMArrayType2(e->f64, (uint64_t)t->padded);
        t->global = LLVMAddGlobal(e->mod, type, "frequencies");
        LLVMSetInitializer(t->global, LLVMConstArray2(e->f64, f, (uint64_t)t->padded));
        LLVMSetGlobalConstant(t->global, true);
        LLVMSetLinkage(t->global, LLVMPrivateLinkage);
        LLVMSetUnnamedAddress(t->global, LLVMGlobalUnnamedAddr);
        LLVMSetAlignment(t->global, 64);
    }
}

/* All of one token, or of one head of it. */
static void one_row(row_run *r) {
    row_find_rows(r);
    row_advance_tables(r);
    emit_nests(r, &r->g->per_token);
}

static void each_head(row_run *r) {
    hcg_emit *e = r->e;
    const hcg_row_part *p = r->g->part;
    hcg_loop l = hcg_loop_begin(e, p->head, p->end, hcg_i64(e, 1), "head", 0, NULL);
    r->head = l.index;
    one_row(r);
    hcg_loop_end(e, &l, NULL);
}

static void each_token(row_run *r) {
    hcg_emit *e = r->e;
    const hcg_row_part *p = r->g->part;
    LLVMValueRef from = p ? p->row : e->r0;
    LLVMValueRef to = p ? LLVMBuildAdd(e->b, p->row, p->rows, "") : e->r1;
    hcg_loop l = hcg_loop_begin(e, from, to, hcg_i64(e, 1), "t", 0, NULL);
    r->token = l.index;
    if (!p) {
        LLVMValueRef next = LLVMBuildAdd(e->b, l.index, hcg_i64(e, 1), "");
        r->more = LLVMBuildZExt(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, next, to, ""), e->i64, "");
    }
    if (r->g->tables.n) r->position = LLVMBuildSIToFP(e->b, row_position(r), e->f64, "position");
    if (r->has_state) row_find_states(r);
    if (p && p->heads)
        each_head(r);
    else
        one_row(r);
    hcg_loop_end(e, &l, NULL);
}

void row_emit_loops(hcg_emit *e, row_graph *g) {
    row_run r = {.e = e, .g = g};
    r.base = hd_new_array(e->arena, LLVMValueRef, g->buffers.n + 1);
    r.pointer = hd_new_array(e->arena, LLVMValueRef, g->buffers.n + 1);
    r.gathered = hd_new_array(e->arena, LLVMValueRef, g->buffers.n + 1);
    r.state = hd_new_array(e->arena, LLVMValueRef, g->buffers.n + 1);
    r.rows = hd_new_array(e->arena, LLVMValueRef, g->nodes.n + 1);
    r.shift = hd_new_array(e->arena, LLVMValueRef, g->nodes.n + 1);
    row_find_bases(&r);
    row_make_tables(&r);
    make_frequencies(&r);
    emit_nests(&r, &g->once);
    if (g->has_t) each_token(&r);
    row_stream_end(&r);
}
