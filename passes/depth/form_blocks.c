/* form-blocks: depth.attend ops that share sources become blocks.
 *
 * Needs    depth.attend (recognise-depth-attention).
 * Does     partitions the attends of the program, in the order in which their sources are
 *          complete, into sequences whose members share sources that are complete before the
 *          first member. That is the order of the program but where a layer reads something that
 *          was finished long before, as a later pass of a loop reads the blocks of the one before. The members of a sequence get the
 *          attributes `block` (its number) and `shared`, and their sources are reordered: the
 *          `shared` ones first, then the member's own. A sequence of one is left alone.
 * Leaves   the attends themselves: batch-queries lowers blocks.
 *
 * The pass assumes nothing about where sources come from. Block AttnRes of any size, a short last
 * block, Full AttnRes, where every output is a source and blocks are only a schedule, and sliding
 * windows, where the shared sources are the intersection of the windows, are one problem: partition
 * a sequence so that the traffic is least. Traffic is what the ledger will charge (depth_cost), in
 * bytes of the types in which sources and results are stored:
 *
 *     alone      its sources              for each member
 *     two phases the shared sources       once for all members
 *                + its own sources        for each member
 *                + 1 write, 1 read        of the phase-1 result, for each member but the first, in
 *                                         whose row program phase 1 runs
 *
 * so that a block of m members with s shared sources saves (m - 1)(s banked - result) bytes
 * (depth_cost), and the norms that only this block reads. With everything in f32, reading one or
 * two sources again is cheaper than storing a result, unless there are gradients, which make each
 * source cost five times as much, and a result twice. Dynamic programming finds the best partition.
 */
#include <stdlib.h>

#include "passes/depth/depth.h"

enum {
    MOST_MEMBERS = 32, /* of a block, so that its queries and results fit the caches of a core */
    MOST_SIZES = 2,    /* most different sizes of blocks */
};

typedef struct member {
    hir_id op;
    uint32_t n;      /* sources */
    uint32_t ready;  /* place of the op that makes the last of them */
    uint32_t place;  /* of the attend */
    bool may;        /* the attend may be in a block */
    const char *why; /* why it may not, if that is worth a remark */
    depth_cost cost;
} member;

typedef struct former {
    hir_pass_context *c;
    hir_module *m;
    HD_VEC(member) all;
    uint32_t *readers; /* by value: number of members that read it */
    uint32_t *stamp;   /* by value: `now` of the last scan that found it */
    uint32_t now;
} former;

/* ---- cost ---------------------------------------------------------------------------------- */
static void count_readers(former *f) {
    for (size_t k = 0; k < f->all.n; k++)
        for (uint32_t i = 0; i < f->all.at[k].n; i++)
            f->readers[depth_source(f->m, f->all.at[k].op, i).index]++;
}

/* Bytes that members first .. first + n - 1 move if each is mixed alone. */
static int64_t bytes_alone(const former *f, uint32_t first, uint32_t n) {
    int64_t bytes = 0;
    for (uint32_t k = first; k < first + n; k++) {
        const member *a = &f->all.at[k];
        for (uint32_t i = 0; i < a->n; i++) {
            uint32_t readers = f->readers[depth_source(f->m, a->op, i).index];
            bytes += readers > 1 ? a->cost.banked : a->cost.live;
        }
    }
    return bytes;
}

/* ---- which attends go together -------------------------------------------------------------- */
/* Can one phase 1 serve both members? */
static bool alike(const former *f, const member *a, const member *b) {
    return a->may && b->may && depth_same_kind(f->m, a->op, b->op);
}

static bool read_twice(former *f, const member *a) {
    f->now++;
    for (uint32_t i = 0; i < a->n; i++) {
        uint32_t v = depth_source(f->m, a->op, i).index;
        if (f->stamp[v] == f->now) return true;
        f->stamp[v] = f->now;
    }
    return false;
}

/* Intersects `shared` with the sources of the member; returns the new number. */
static size_t intersect(former *f, hir_ref *shared, size_t n, const member *a) {
    size_t kept = 0;
    f->now++;
    for (uint32_t i = 0; i < a->n; i++)
        f->stamp[depth_source(f->m, a->op, i).index] = f->now;
    for (size_t i = 0; i < n; i++)
        if (f->stamp[shared[i].index] == f->now) shared[kept++] = shared[i];
    return kept;
}

/* Lists the sources of a member; those of a block's first member are complete before it. */
static size_t sources_of(const former *f, const member *a, hir_ref *out) {
    for (uint32_t i = 0; i < a->n; i++)
        out[i] = depth_source(f->m, a->op, i);
    return a->n;
}

/* Bytes that n members from `first` on, which share s sources, save by forming a block. */
static int64_t saved_by(const former *f, uint32_t first, uint32_t n, const hir_ref *shared,
                        size_t s) {
    int64_t own = 0;
    for (size_t i = 0; i < s; i++)
        own += f->readers[shared[i].index] == n;
    return depth_saved(&f->all.at[first].cost, n, (int64_t)s, own);
}

/* ---- the best cuts -------------------------------------------------------------------------- */
typedef struct cut { /* the best partition of the members from one on */
    int64_t saved;   /* bytes per token */
    uint32_t n;      /* members of the sequence that starts here */
} cut;

typedef struct savings {          /* bytes saved by sequences that start with a member */
    int64_t by[MOST_MEMBERS + 1]; /* as a block of this many members; 0: not a block */
} savings;

typedef struct sizes { /* allowed sizes of blocks */
    uint32_t n, at[MOST_MEMBERS];
} sizes;

static savings *find_savings(former *f, uint32_t most_sources) {
    const uint32_t n = (uint32_t)f->all.n;
    savings *all = hd_new_array(f->c->scratch, savings, n + 1);
    hir_ref *shared = hd_new_array(f->c->scratch, hir_ref, most_sources);
    for (uint32_t i = 0; i < n; i++) {
        const member *first = &f->all.at[i];
        size_t s = sources_of(f, first, shared);
        for (uint32_t j = i + 1; j < n && j - i < MOST_MEMBERS; j++) {
            if (!alike(f, first, &f->all.at[j])) break;
            s = intersect(f, shared, s, &f->all.at[j]);
            const int64_t here = saved_by(f, i, j - i + 1, shared, s);
            if (here <= 0) break; /* s can only shrink */
            all[i].by[j - i + 1] = here;
        }
    }
    return all;
}

/* Finds the partition that saves most, with blocks of these sizes. */
static int64_t find_cuts(const former *f, const savings *saved, const sizes *s, cut *best) {
    const uint32_t n = (uint32_t)f->all.n;
    best[n] = (cut){0};
    for (uint32_t i = n; i-- > 0;) {
        best[i] = (cut){best[i + 1].saved, 1};
        for (uint32_t k = 0; k < s->n && s->at[k] <= n - i; k++) {
            const int64_t here = saved[i].by[s->at[k]], all = here + best[i + s->at[k]].saved;
            if (here > 0 && all > best[i].saved) best[i] = (cut){all, s->at[k]};
        }
    }
    return best[0].saved;
}

static sizes sizes_of(const former *f, const cut *cuts) {
    bool has[MOST_MEMBERS + 1] = {0};
    sizes s = {0};
    for (uint32_t i = 0; i < f->all.n; i += cuts[i].n)
        has[cuts[i].n] |= cuts[i].n > 1;
    for (uint32_t m = 2; m <= MOST_MEMBERS; m++)
        if (has[m]) s.at[s.n++] = m;
    return s;
}

static sizes without(const sizes *s, uint32_t k) {
    sizes fewer = {0};
    for (uint32_t i = 0; i < s->n; i++)
        if (i != k) fewer.at[fewer.n++] = s->at[i];
    return fewer;
}

/* Removes the size whose removal costs least. */
static sizes one_fewer(const former *f, const savings *saved, const sizes *s, cut *cuts) {
    sizes best = {0};
    int64_t most = -1;
    for (uint32_t k = s->n; k-- > 0;) {
        const sizes fewer = without(s, k);
        const int64_t here = find_cuts(f, saved, &fewer, cuts);
        if (here > most) most = here, best = fewer;
    }
    return best;
}

static void remark_sizes(former *f, const sizes *s, uint32_t from, int64_t kept, int64_t most) {
    const int64_t alone = bytes_alone(f, 0, (uint32_t)f->all.n);
    hd_text list;
    hd_text_init(&list, f->c->scratch);
    for (uint32_t k = 0; k < s->n; k++)
        hd_text_f(&list, "%s%u", k ? " or " : "", s->at[k]);
    hir_remark_add(f->c, true, f->all.at[0].op,
                   "blocks have %s members, so that they share phases 1: mixes move %.2f %% more "
                   "bytes than with %u size%s",
                   list.at, 100.0 * (double)(most - kept) / (double)(alone - most), from,
                   hd_s(from));
}

/* Every size of block has its own phase 1 in the generated code, shared by all blocks of that size,
 * so the number of sizes is limited. */
static cut *best_cuts(former *f, uint32_t most_sources) {
    const savings *saved = find_savings(f, most_sources);
    cut *cuts = hd_new_array(f->c->scratch, cut, f->all.n + 1);
    sizes s = {0};
    for (uint32_t m = 2; m <= MOST_MEMBERS; m++)
        s.at[s.n++] = m;
    const int64_t most = find_cuts(f, saved, &s, cuts);
    s = sizes_of(f, cuts);
    const uint32_t from = s.n;
    while (s.n > MOST_SIZES)
        s = one_fewer(f, saved, &s, cuts);
    const int64_t kept = find_cuts(f, saved, &s, cuts);
    if (s.n < from) remark_sizes(f, &s, from, kept, most);
    return cuts;
}

/* ---- marking -------------------------------------------------------------------------------- */
/* The bias in the new order of the sources; order[i]: old position of source i. */
static hir_ref permuted(former *f, hir_builder *b, hir_ref bias, const uint32_t *order,
                        uint32_t n) {
    hir_ref *parts = hd_new_array(f->c->scratch, hir_ref, n);
    hir_type one = hir_make_type(HIR_F32, 1, (int64_t[]){1});
    for (uint32_t i = 0; i < n; i++) {
        parts[i] = depth_element(b, bias, 0, order[i]);
        if (parts[i].kind == HIR_REF_NONE) return parts[i];
        parts[i] = pass_reshape(b, parts[i], one);
    }
    hir_attr axis = hir_int(HIR_A_AXIS, 0);
    return hir_emit(b, HIR_CONCAT_OP, parts, n, &axis, 1);
}

/* Reorders a member's sources: shared ones first, in the order of the block's first member. */
static bool order_sources(former *f, const member *a, const hir_ref *shared, uint32_t s) {
    uint32_t *order = hd_new_array(f->c->scratch, uint32_t, a->n), k = s;
    bool moved = false;
    for (uint32_t i = 0; i < a->n; i++) {
        hir_ref x = depth_source(f->m, a->op, i);
        uint32_t j = 0;
        while (j < s && !hir_ref_equal(shared[j], x))
            j++;
        uint32_t to = j < s ? j : k++;
        order[to] = i;
        moved |= to != i;
    }
    if (!moved) return true;
    hir_builder b = hir_before(f->m, f->c->diags, a->op);
    hir_ref bias = pass_arg(f->m, a->op, ATTEND_BIAS);
    if (depth_is_given(bias)) {
        bias = permuted(f, &b, bias, order, a->n);
        if (!depth_is_given(bias)) return false;
        hir_op_at(f->m, a->op)->args[ATTEND_BIAS] = bias;
    }
    hir_ref *old = hd_new_array(f->c->scratch, hir_ref, a->n);
    sources_of(f, a, old);
    for (uint32_t i = 0; i < a->n; i++)
        hir_op_at(f->m, a->op)->args[ATTEND_SOURCES + i] = old[order[i]];
    return true;
}

/* For the remark: bytes saved if members formed blocks of two, the smallest that can share, such as
 * the two sublayers of a layer. With an odd number the last member is mixed alone. */
static int64_t saved_in_pairs(const former *f, uint32_t first, uint32_t n, const hir_ref *shared,
                              size_t s) {
    return n == 2 ? saved_by(f, first, n, shared, s)
                  : n / 2 * depth_saved(&f->all.at[first].cost, 2, (int64_t)s, 0);
}

static void remark_block(former *f, uint32_t first, uint32_t n, uint32_t number,
                         const hir_ref *shared, size_t s) {
    const double unit = (double)f->all.at[first].cost.row;
    const int64_t alone = bytes_alone(f, first, n), saved = saved_by(f, first, n, shared, s);
    hir_remark_add(
        f->c, true, f->all.at[first].op,
        "block %u: %u mixes share %zu source%s: %.4g d per token in two phases, %.4g d if a phase "
        "1 "
        "serves two of them, %.4g d if each is mixed alone, over which it saves %lld bytes",
        number, n, s, hd_s(s), (double)(alone - saved) / unit,
        (double)(alone - saved_in_pairs(f, first, n, shared, s)) / unit, (double)alone / unit,
        (long long)saved);
}

static bool mark_block(former *f, uint32_t first, uint32_t n, uint32_t number, hir_ref *shared) {
    size_t s = sources_of(f, &f->all.at[first], shared);
    for (uint32_t i = first + 1; i < first + n; i++)
        s = intersect(f, shared, s, &f->all.at[i]);
    for (uint32_t i = first; i < first + n; i++) {
        const member *a = &f->all.at[i];
        if (!order_sources(f, a, shared, (uint32_t)s)) return false;
        hir_set_attr(f->m, a->op, hir_int(HIR_A_BLOCK, number));
        hir_set_attr(f->m, a->op, hir_int(HIR_A_SHARED, (int64_t)s));
    }
    remark_block(f, first, n, number, shared, s);
    f->c->changed = true;
    return true;
}

/* For the remark: what a phase 1 for the member and the next one would have saved; mostly it would
 * have cost more. */
static const char *gain_in_a_pair(former *f, uint32_t i, hir_ref *shared) {
    if (i + 1 >= f->all.n) return ": it is the last one, so that nothing would have been gained";
    if (!alike(f, &f->all.at[i], &f->all.at[i + 1]))
        return ": the next one is of another kind, so that nothing would have been gained";
    const size_t s = intersect(f, shared, sources_of(f, &f->all.at[i], shared), &f->all.at[i + 1]);
    const int64_t saved = saved_by(f, i, 2, shared, s);
    const double d = (double)(saved < 0 ? -saved : saved) / (double)f->all.at[i].cost.row;
    return hd_printf(
        f->c->scratch, ": for it and the next one, which share %zu, it would move %s", s,
        saved == 0 ? "as much"
                   : hd_printf(f->c->scratch, "%.4g d %s", d, saved > 0 ? "less" : "more"));
}

/* Lists the distinct sources of a member. */
static size_t distinct_sources(former *f, const member *a, hir_ref *out) {
    size_t n = 0;
    f->now++;
    for (uint32_t i = 0; i < a->n; i++) {
        const hir_ref x = depth_source(f->m, a->op, i);
        if (f->stamp[x.index] != f->now) out[n++] = x;
        f->stamp[x.index] = f->now;
    }
    return n;
}

/* The block that saves most among those of member i with the members after it, or before it. */
typedef struct best_block {
    int64_t saved; /* bytes saved, per member */
    uint32_t n;    /* number of members; 0: no block saves anything */
} best_block;

static void try_blocks(former *f, uint32_t i, int step, hir_ref *shared, best_block *best) {
    const member *a = &f->all.at[i];
    size_t s = distinct_sources(f, a, shared);
    uint32_t j = i;
    for (uint32_t n = 2; n <= MOST_MEMBERS; n++) {
        if (step < 0 ? j == 0 : j + 1 >= f->all.n) return;
        j = step < 0 ? j - 1 : j + 1;
        if (!depth_same_kind(f->m, a->op, f->all.at[j].op)) return;
        s = intersect(f, shared, s, &f->all.at[j]);
        const int64_t saved = saved_by(f, i, n, shared, s) / n;
        if (saved > best->saved) *best = (best_block){saved, n};
    }
}

/* For the remark: what a member that may not be in a block would have saved in one. */
static const char *gain_in_a_block(former *f, uint32_t i, hir_ref *shared) {
    best_block best = {0};
    try_blocks(f, i, 1, shared, &best);
    try_blocks(f, i, -1, shared, &best);
    if (!best.n)
        return "; nothing would have been gained: it shares too few sources with those beside it";
    return hd_printf(f->c->scratch,
                     "; as one of a block of %u it would move %lld bytes, %.4g d, less for each "
                     "token",
                     best.n, (long long)best.saved,
                     (double)best.saved / (double)f->all.at[i].cost.row);
}

static void remark_alone(former *f, uint32_t i, hir_ref *shared) {
    const member *a = &f->all.at[i];
    if (a->why)
        hir_remark_add(f->c, false, a->op, "in no block: %s%s", a->why,
                       gain_in_a_block(f, i, shared));
    if (!a->may) return;
    hir_remark_add(f->c, false, a->op,
                   "mixed alone, %u source%s: with the next mixes it shares too few for results of "
                   "a first phase to be worth a write and a read%s",
                   a->n, hd_s(a->n), gain_in_a_pair(f, i, shared));
}

/* ---- the pass ------------------------------------------------------------------------------- */
static bool may_share(former *f, member *a) {
    const hir_op *o = hir_op_at(f->m, a->op);
    if (depth_is_given(o->args[ATTEND_QUERY]) && depth_query_has_t(f->m, a->op))
        a->why = "its query depends on the token, so that its scores cannot be made ahead of it";
    else if (read_twice(f, a))
        a->why = "it reads a source twice";
    return !a->why && !depth_is_given(o->args[ATTEND_PARTIAL]) &&
           !depth_is_given(o->args[ATTEND_INVERSE]) && !hir_find_attr(o, HIR_A_BLOCK);
}

static uint32_t ready_at(const former *f, hir_id op, const uint32_t *place) {
    uint32_t last = 0;
    for (uint32_t i = 0; i < depth_sources(f->m, op); i++) {
        const hir_id made = pass_def(f->m, depth_source(f->m, op, i));
        if (made != HIR_NONE && place[made] > last) last = place[made];
    }
    return last;
}

static int by_readiness(const void *x, const void *y) {
    const member *a = x, *b = y;
    if (a->ready != b->ready) return a->ready < b->ready ? -1 : 1;
    return a->place < b->place ? -1 : a->place > b->place;
}

/* Returns the largest number of sources that an attend has. */
static uint32_t list_members(former *f) {
    uint32_t *place = hd_new_array(f->c->scratch, uint32_t, f->m->ops.n), at = 1, most = 0;
    HIR_EACH(f->m, op, f->m->first) {
        place[op] = at++;
        if (hir_op_at(f->m, op)->code != HIR_DEPTH_ATTEND_OP) continue;
        member a = {.op = op, .n = depth_sources(f->m, op), .place = place[op]};
        a.ready = ready_at(f, op, place);
        a.may = may_share(f, &a);
        a.cost = depth_cost_of(f->m, op, f->c->options);
        if (a.n > most) most = a.n;
        hd_push(f->c->scratch, &f->all, a);
    }
    if (f->all.n) qsort(f->all.at, f->all.n, sizeof *f->all.at, by_readiness);
    return most;
}

bool pass_form_blocks(hir_pass_context *c) {
    former f = {.c = c, .m = c->m};
    uint32_t blocks = 0;
    f.stamp = hd_new_array(c->scratch, uint32_t, c->m->values.n);
    const uint32_t most = list_members(&f);
    f.readers = hd_new_array(c->scratch, uint32_t, c->m->values.n);
    count_readers(&f);
    cut *best = best_cuts(&f, most);
    hir_ref *shared = hd_new_array(c->scratch, hir_ref, most);
    for (uint32_t i = 0; i < f.all.n; i += best[i].n) {
        if (best[i].n == 1)
            remark_alone(&f, i, shared);
        else if (!mark_block(&f, i, best[i].n, blocks++, shared))
            return false;
    }
    return true;
}
