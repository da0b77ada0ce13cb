/* A schedule as text, a line a nest in the order in which they run:
 *
 *     once, nest 1 [768]: ...
 *     nest 2 [8, 16, 2048]: 2 sums, vectors along 2048, unroll 2, jam 4x2, blocks of 1024 ...
 *
 * docs/row-programs.md explains the words. */
#include <stdlib.h>

#include "codegen/rowwise/schedule/schedule.h"

static void add_size(hd_text *t, row_size size) {
    if (!row_is_dynamic(size)) {
        hd_text_f(t, "%lld", (long long)size.a);
        return;
    }
    if (size.b != 1) hd_text_f(t, "%lld ", (long long)size.b);
    hd_text_add(t, "N");
    if (size.a) hd_text_f(t, size.a < 0 ? " - %lld" : " + %lld", llabs((long long)size.a));
}

static void add_count(hd_text *t, uint32_t n, const char *one, const char **comma) {
    if (n == 0) return;
    hd_text_f(t, "%s%u %s%s", *comma, n, one, n == 1 ? "" : "s");
    *comma = ", ";
}

/* Prints what a nest computes: sums and maxima along the vectors, reductions across them,
 * elements. */
static void add_roots(hd_text *t, const row_graph *g, const row_nest *nest) {
    uint32_t sums = 0, reductions = 0;
    const char *comma = "";
    if (nest->selection) {
        hd_text_add(t, hir_info(row_at(g, nest->roots.at[0])->op->code)->name);
        return;
    }
    for (size_t i = 0; i < nest->roots.n; i++) {
        const row_node *n = row_at(g, nest->roots.at[i]);
        sums += row_along_lanes(n);
        reductions += n->kind == ROW_REDUCE && !n->last;
    }
    add_count(t, sums, "sum", &comma);
    add_count(t, reductions, "reduction", &comma);
    add_count(t, (uint32_t)nest->roots.n - sums - reductions, "map", &comma);
}

static void add_groups(hd_text *t, const row_nest *nest) {
    const row_groups *groups = &nest->groups;
    uint32_t end = (uint32_t)nest->roots.n;
    if (groups->first.n == 0) return;
    hd_text_add(t, ", groups of");
    for (size_t i = 0; i < groups->first.n; end = groups->first.at[i++])
        hd_text_f(t, " %u", end - groups->first.at[i]);
    hd_text_f(t, " in blocks of %lld", (long long)groups->block);
}

/* Prints the teams of the unrolled iterations; a reduction alone is not printed. */
static void add_teams(hd_text *t, const row_nest *nest, unsigned unroll) {
    bool along = false;
    for (size_t i = 0; i < nest->teams.n; i++) {
        const row_team *team = &nest->teams.at[i];
        if (team->unroll != unroll) continue;
        if (team->n > 1)
            hd_text_f(t, ", %u reductions at once by %lld", team->n, (long long)team->step);
        along |= team->prefetch != HIR_NONE;
    }
    if (along) hd_text_add(t, ", prefetch along rows");
}

static void add_stores(hd_text *t, const row_schedule *s, const row_nest *nest) {
    bool nontemporal = false;
    for (size_t i = 0; i < nest->roots.n; i++)
        nontemporal |= s->of[nest->roots.at[i]].nontemporal;
    if (nest->in_place) hd_text_add(t, ", in place");
    if (nontemporal) hd_text_add(t, ", non-temporal stores");
}

static void add_loops(hd_text *t, const row_nest *nest) {
    const row_jam jam = nest->jam;
    const unsigned unroll =
        nest->groups.first.n ? nest->groups.unroll : nest->unroll[jam.outer * jam.inner];
    hd_text_add(t, ", vectors along ");
    add_size(t, nest->domain.dim[nest->domain.rank - 1]);
    if (unroll > 1) hd_text_f(t, ", unroll %u", unroll);
    if (jam.outer * jam.inner > 1) hd_text_f(t, ", jam %ux%u", jam.outer, jam.inner);
    if (nest->block.length)
        hd_text_f(t, ", blocks of %lld%s", (long long)nest->block.length,
                  nest->block.interchanged ? " interchanged" : "");
    add_groups(t, nest);
    if (nest->prefetch.n)
        hd_text_f(t, ", prefetch next %s", nest->block.interchanged ? "block" : "rows");
    add_teams(t, nest, unroll);
}

static void add_nest(hd_text *t, const row_schedule *s, const row_nest *nest) {
    hd_text_add(t, "[");
    for (uint32_t d = 0; d < nest->domain.rank; d++) {
        if (d) hd_text_add(t, ", ");
        add_size(t, nest->domain.dim[d]);
    }
    hd_text_add(t, "]: ");
    add_roots(t, s->g, nest);
    if (nest->when) hd_text_add(t, ", for some tokens");
    if (nest->small)
        hd_text_add(t, ", in registers");
    else if (nest->selection)
        ;
    else if (nest->domain.rank)
        add_loops(t, nest);
    add_stores(t, s, nest);
    hd_text_add(t, "\n");
}

/* Returns the number of the next nest. */
static uint32_t add_nests(hd_text *t, const row_schedule *s, const row_nests *nests,
                          uint32_t number, const char *indent) {
    for (size_t i = nests->list.n; i-- > 0;) {
        if (nests->list.at[i].roots.n == 0) continue;
        hd_text_f(t, "%s%snest %u ", indent, nests->once ? "once, " : "", number++);
        add_nest(t, s, &nests->list.at[i]);
    }
    return number;
}

static int64_t scratch_bytes(const row_graph *g) {
    int64_t bytes = 0;
    for (size_t i = 0; i < g->buffers.n; i++) {
        const row_buffer *b = &g->buffers.at[i];
        if (b->used && b->where == ROW_SCRATCH)
            bytes += row_most(g, b->elements) * (int64_t)hir_dtype_bytes(b->dtype);
    }
    return bytes;
}

void row_print_schedule(const row_schedule *s, const char *indent, hd_text *out) {
    const uint32_t first = add_nests(out, s, &s->once, 1, indent);
    add_nests(out, s, &s->per_token, first, indent);
    const long long bytes = (long long)scratch_bytes(s->g);
    if (bytes) hd_text_f(out, "%s%lld bytes in scratch\n", indent, bytes);
}
