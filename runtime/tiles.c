/* In how many tiles of rows a divided model computes while collectives are under way. It takes the
 * number with the least time by the formula (grid.h), from what the session itself measures in
 * chunks that go all rows at once; and one tile (all rows at once) where a chunk in tiles took no
 * less time. That happens where ranks have fewer CPUs than there are ranks: no CPU is free while a
 * rank waits.
 *
 *     chunk   goes           gives
 *     0       all at once    figures for the formula, though memory pages are new
 *     1       in tiles       its time
 *     2       all at once    its time, and figures that hold
 *     3       in tiles       only if the formula now gives another number
 *     ..      whichever took less
 *
 * Chunks 16, 32, 64 .. are timed again, and after each of them one of the other kind: a time may
 * have been disturbed, and links and CPUs may become busy. Before the next chunk each rank sends
 * the others what it has timed, and all compute with the figures of all ranks, since all must
 * choose the same number. */
#include "runtime/grid.h"
#include "runtime/internal.h"
#include "support/all_gather.h"

enum { FIRST_CHECK = 16 };

typedef struct word { /* what a rank sends to the others */
    int64_t collective_ns, compute_ns, latency_ns;
} word;

static bool may_overlap(const hrt_model *m, const hrt_side *side) {
    const hadal_comm *c = side->comm;
    return m->n_overlaps > 0 && m->tiles != 1 && c->start && c->advance && c->finish;
}

bool hrt_times_chunk(const hrt_figures *f) {
    return f->timed && !f->taken;
}

/* ---- what the ranks have measured ------------------------------------------------------------ */
/* The times of all ranks together. A rank that waits for another counts the wait as communication:
 * the least of these times includes the least waiting. */
static hrt_whole whole_of(const word *all, int64_t ranks) {
    hrt_whole w = {.compute_ns = all[0].compute_ns, .collective_ns = all[0].collective_ns};
    for (int64_t r = 1; r < ranks; r++) {
        if (all[r].compute_ns > w.compute_ns) w.compute_ns = all[r].compute_ns;
        if (all[r].collective_ns < w.collective_ns) w.collective_ns = all[r].collective_ns;
    }
    return w;
}

static int64_t sum_of(const word *all, int64_t ranks) {
    int64_t sum = 0;
    for (int64_t r = 0; r < ranks; r++)
        sum += all[r].compute_ns + all[r].collective_ns;
    return sum;
}

/* Records the time of the chunk that was timed last, which holds for later chunks like it. */
static void learn(hrt_figures *f, const word *all, int64_t ranks) {
    for (int64_t r = 0; r < ranks; r++)
        if (all[r].latency_ns > f->latency_ns) f->latency_ns = all[r].latency_ns;
    const int64_t sum = sum_of(all, ranks);
    if (f->timed > 1) {
        f->tiled_ns = sum;
    } else {
        f->cold = f->whole.all_ns == 0;
        f->whole = whole_of(all, ranks);
        f->whole.all_ns = sum;
    }
    f->timed = 0;
    f->taken = false;
}

static int tell(const hrt_side *side, hrt_figures *f) {
    const word mine = {f->collective_ns, f->compute_ns, f->latency_ns};
    word all[HADAL_COMM_MAX_RANKS];
    const int code =
        hd_all_gather(side->comm, side->group, side->timeout_ns, &mine, all, sizeof mine);
    if (!code) learn(f, all, side->group.count);
    return code;
}

/* This chunk is longer than all before it: what was measured with shorter ones is only an estimate.
 */
static void lengthen(hrt_figures *f, int64_t tokens) {
    const double by = f->tokens ? (double)tokens / (double)f->tokens : 1;
    f->whole.compute_ns = (int64_t)((double)f->whole.compute_ns * by);
    f->whole.collective_ns = (int64_t)((double)f->whole.collective_ns * by);
    f->whole.all_ns = (int64_t)((double)f->whole.all_ns * by);
    f->cold = true;
    f->tiles = f->tiled_ns = 0;
    f->tokens = tokens;
    f->chunks = f->whole.all_ns > 0;
}

/* ---- the number of tiles --------------------------------------------------------------------- */
static int64_t collectives_of(const hrt_model *m) {
    int64_t n = 0;
    for (uint32_t i = 0; i < m->n_overlaps; i++) {
        const hrt_overlap *o = &m->overlaps[i];
        n += (o->middle - o->scatter) + (o->back - o->gather);
    }
    return n;
}

static int64_t best_of(const hrt_model *m, const hrt_figures *f, int64_t tokens) {
    const double scale = (double)tokens / (double)f->tokens;
    return hrt_best_tiles(&(hrt_beside){.tokens = tokens,
                                        .ranks = (int64_t)m->ranks,
                                        .compute = (double)f->whole.compute_ns * scale,
                                        .collective = (double)f->whole.collective_ns * scale,
                                        .latency = (double)f->latency_ns,
                                        .collectives = collectives_of(m)});
}

static bool is_check(int64_t chunk) {
    return chunk >= FIRST_CHECK && (chunk & (chunk - 1)) == 0;
}

static int64_t timed(hrt_figures *f, int64_t tiles) {
    f->timed = tiles;
    return tiles;
}

/* Whether tiles or all rows at once took less time. */
static int64_t better(const hrt_figures *f) {
    return f->tiled_ns < f->whole.all_ns ? f->tiles : 1;
}

/* The tiles of a chunk as long as those that are compared. */
static int64_t next_tiles(const hrt_model *m, hrt_figures *f) {
    const int64_t chunk = f->chunks++;
    if (f->whole.all_ns == 0) return timed(f, 1);
    const int64_t best = best_of(m, f, f->tokens);
    if (best == 1) return f->cold || is_check(chunk) ? timed(f, 1) : 1;
    if (best != f->tiles) {
        f->tiles = best;
        return timed(f, best);
    }
    if (f->cold) return timed(f, 1);
    const int64_t used = better(f);
    if (is_check(chunk)) return timed(f, used);
    return is_check(chunk - 1) ? timed(f, used == 1 ? best : 1) : used;
}

static int64_t tiles_of(const hrt_model *m, const hrt_figures *f, int64_t tokens) {
    return f->now == 1 || tokens == f->tokens ? f->now : best_of(m, f, tokens);
}

int64_t hrt_choose_tiles(const hrt_model *m, const hrt_side *side, hrt_figures *f, int64_t tokens,
                         bool begins, int *code) {
    *code = HADAL_COMM_OK;
    if (!may_overlap(m, side) || tokens < m->divide_from) return 1;
    if (m->tiles > 1) return m->tiles;
    if (!begins) return tiles_of(m, f, tokens);
    if (f->taken) *code = tell(side, f);
    if (*code) return 1;
    if (tokens > f->tokens) lengthen(f, tokens);
    if (tokens == f->tokens)
        f->now = next_tiles(m, f);
    else
        f->now = f->tiled_ns > 0 ? better(f) : 1;
    return tiles_of(m, f, tokens);
}
