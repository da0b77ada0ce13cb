/* Which results of a nest are computed together: groups of results, where a nest has many of the
 * same rows, and teams of reductions that run in one loop. */
#include "codegen/rowwise/schedule/steps.h"

/* ---- groups of results -----------------------------------------------------------------------
 *
 * All groups go over one block of the rows before the next block: the rows are then read from the
 * L1, and few streams of stores are open at once. A result that reads another of the nest (a sum
 * of squares, the row) is in its group. */

enum { SEVERAL = HIR_NONE - 1 };

/* The root of the same nest that root `of` reads by way of `n`; HIR_NONE: none. */
static uint32_t own_read(const row_schedule *s, const row_node *of, const row_node *n) {
    uint32_t one = HIR_NONE;
    for (uint32_t a = 0; a < n->n_args; a++) {
        uint32_t id = n->args[a].node;
        const row_node *x = row_at(s->g, id);
        if (!row_of(s, x)->root)
            id = own_read(s, of, x);
        else if (row_of(s, x)->nest != row_of(s, of)->nest || x->token_free != of->token_free)
            id = HIR_NONE;
        if (id != HIR_NONE) one = one == HIR_NONE || one == id ? id : SEVERAL;
    }
    return one;
}

/* The root of its nest that root `n` follows: the row whose sum of squares it is. */
static uint32_t leader(const row_schedule *s, const row_node *n) {
    uint32_t lead = HIR_NONE;
    while (row_of(s, n)->chained) {
        const uint32_t next = own_read(s, n, n);
        if (next == HIR_NONE || next == SEVERAL) return next == SEVERAL ? next : lead;
        lead = next;
        n = row_at(s->g, next);
    }
    return lead;
}

static bool is_plain(const row_schedule *s, const row_node *n) {
    return (n->kind == ROW_MAP || n->kind == ROW_COPY) && !row_of(s, n)->costly;
}

static bool wants_groups(const row_schedule *s, const row_nest *nest) {
    enum { MANY = 5 };
    if (nest->roots.n <= MANY || nest->in_place || nest->block.length) return false;
    if (row_is_dynamic(nest->domain.dim[nest->domain.rank - 1])) return false;
    for (size_t i = 0; i < nest->roots.n; i++) {
        const row_node *n = row_at(s->g, nest->roots.at[i]);
        if ((!is_plain(s, n) && !row_along_lanes(n)) || leader(s, n) == SEVERAL) return false;
    }
    return true;
}

/* The roots in an order in which each is next to those that read it; later ones first. */
static const uint32_t *with_followers(const row_schedule *s, const row_nest *nest) {
    uint32_t *out = hd_new_array(s->g->arena, uint32_t, nest->roots.n);
    size_t at = nest->roots.n;
    for (size_t i = nest->roots.n; i-- > 0;) {
        const uint32_t id = nest->roots.at[i];
        if (leader(s, row_at(s->g, id)) != HIR_NONE) continue;
        out[--at] = id;
        for (size_t k = i; k-- > 0;)
            if (leader(s, row_at(s->g, nest->roots.at[k])) == id) out[--at] = nest->roots.at[k];
    }
    return out;
}

/* Where the group that ends before `end` begins: it has TOGETHER roots and those that follow
 * them. */
static uint32_t group_of(const row_schedule *s, const uint32_t *order, uint32_t end) {
    enum { TOGETHER = 4 };
    uint32_t n = 0, first = end;
    for (; first > 0; first--)
        if (leader(s, row_at(s->g, order[first - 1])) == HIR_NONE && n++ == TOGETHER) break;
    return first;
}

static void choose_groups(const row_schedule *s, row_nest *nest) {
    enum { BLOCK = 512 };
    row_groups *groups = &nest->groups;
    if (!wants_groups(s, nest)) return;
    groups->order = with_followers(s, nest);
    groups->unroll = s->target.lanes == 16 ? 4 : 2; /* leaves half of the registers to operands */
    groups->block = BLOCK;
    for (uint32_t end = (uint32_t)nest->roots.n; end > 0;) {
        end = group_of(s, groups->order, end);
        hd_push(s->g->arena, &groups->first, end);
    }
}

/* ---- teams of reductions --------------------------------------------------------------------- */

/* How many elements of the reduced dim an iteration takes, a power of two; all, if they are few.
 * With one at a time the loop would end, and start again for the next vectors, after little work,
 * unless many sums use each element. */
static int64_t elements_together(const row_team *t, int64_t extent) {
    enum { FEW = 4, SUMS = 32 };
    int64_t n = FEW;
    if (extent <= FEW) return extent;
    while (n > 1 && n * t->n * t->unroll > SUMS)
        n /= 2;
    return n;
}

static bool is_taken(const row_nest *nest, uint32_t node, unsigned unroll) {
    for (size_t i = nest->teams.n; i > 0 && nest->teams.at[i - 1].unroll == unroll; i--) {
        const row_team *t = &nest->teams.at[i - 1];
        for (uint32_t m = 0; m < t->n; m++)
            if (t->member[m] == node) return true;
    }
    return false;
}

static bool in_loop(const row_node *n) {
    return n->kind == ROW_REDUCE && !n->last;
}

/* Makes a team of `first` and of further reductions of the nest over as many elements, as far as
 * registers allow. A reduction that reads other roots of the nest has a team of its own. */
static row_team make_team(const row_schedule *s, const row_nest *nest, uint32_t first,
                          unsigned unroll) {
    const row_node *of = row_at(s->g, first);
    row_team t = {.unroll = unroll, .n = 1, .member = {first}, .prefetch = HIR_NONE};
    for (size_t i = nest->roots.n; !row_of(s, of)->chained && i-- > 0;) {
        const uint32_t id = nest->roots.at[i];
        const row_node *n = row_at(s->g, id);
        if (id == first || !in_loop(n) || row_of(s, n)->chained ||
            !row_size_equal(n->extent, of->extent))
            continue;
        if (is_taken(nest, id, unroll)) continue;
        if ((t.n + 1) * unroll > row_most_sums(&s->target)) break;
        t.member[t.n++] = id;
    }
    t.step = elements_together(&t, row_bound(of->extent));
    return t;
}

static void choose_teams(const row_schedule *s, row_nest *nest, unsigned unroll) {
    for (size_t i = nest->roots.n; i-- > 0;) {
        const uint32_t id = nest->roots.at[i];
        if (!in_loop(row_at(s->g, id)) || is_taken(nest, id, unroll)) continue;
        const row_team team = make_team(s, nest, id, unroll);
        hd_push(s->g->arena, &nest->teams, team);
    }
}

const row_team *row_team_of(const row_nest *nest, uint32_t node, unsigned unroll) {
    for (size_t t = 0; t < nest->teams.n; t++)
        if (nest->teams.at[t].unroll == unroll && nest->teams.at[t].member[0] == node)
            return &nest->teams.at[t];
    return NULL;
}

void row_choose_groups(const row_schedule *s, row_nest *nest) {
    bool used[ROW_UNROLL + 1] = {[1] = true}; /* the rest of a row is computed vector by vector */
    if (nest->domain.rank > 0) choose_groups(s, nest);
    for (uint32_t jam = 1; jam <= nest->jam.outer * nest->jam.inner; jam++)
        used[nest->unroll[jam]] = true;
    for (unsigned unroll = 1; unroll <= ROW_UNROLL; unroll++)
        if (used[unroll]) choose_teams(s, nest, unroll);
}
