/* In how many tiles of rows a divided model computes beside its exchanges.
 *
 * Of C, what the steps of the overlaps take all rows at once, and X, what their exchanges take, n
 * tiles leave
 *
 *     C(n) + X(n) - (1 - 1/n) min(C(n), X(n))
 *
 * since the first tile has nothing to compute beside. More tiles cost: C(n) has the weights read
 * once for each part of the rows (runtime/grid.c), X(n) a latency for each message more. C, X and
 * the latency are measured by the session itself, in chunks that go all rows at once; then the
 * ranks of the group tell each other, because all must choose the same n. */
#include "runtime/grid.h"
#include "runtime/internal.h"
#include "support/tell.h"

enum { WARM_UP = 1 }; /* chunks: the first finds weights on disk and pages untouched */

/* Where less than this part of the time is saved, all rows go at once. */
static const double least_gain = 0.02;

typedef struct word { /* to the other ranks */
    int64_t exchange_ns, compute_ns, latency_ns;
} word;

static bool may_overlap(const hrt_model *m, const hrt_side *side) {
    const hadal_comm *c = side->comm;
    return m->n_overlaps > 0 && m->tiles != 1 && c->start && c->advance && c->finish;
}

bool hrt_measures_tiles(const hrt_model *m, const hrt_side *side, const hrt_figures *f) {
    return may_overlap(m, side) && m->tiles == 0 && !f->agreed;
}

/* A rank that waits for another counts that as exchange: the least of them waits least. */
static int agree(const hrt_side *side, hrt_figures *f) {
    const word mine = {f->exchange_ns, f->compute_ns, f->latency_ns};
    word all[HADAL_COMM_MAX_RANKS];
    const int code = hd_tell(side->comm, side->group, side->timeout_ns, &mine, all, sizeof mine);
    for (int32_t r = 0; !code && r < side->group.count; r++) {
        if (all[r].exchange_ns < f->exchange_ns) f->exchange_ns = all[r].exchange_ns;
        if (all[r].compute_ns > f->compute_ns) f->compute_ns = all[r].compute_ns;
        if (all[r].latency_ns > f->latency_ns) f->latency_ns = all[r].latency_ns;
    }
    f->agreed = code == HADAL_COMM_OK;
    return code;
}

static int64_t exchanges_of(const hrt_model *m) {
    int64_t n = 0;
    for (uint32_t i = 0; i < m->n_overlaps; i++) {
        const hrt_overlap *o = &m->overlaps[i];
        n += (o->middle - o->scatter) + (o->back - o->gather);
    }
    return n;
}

static double time_of(const hrt_model *m, const hrt_figures *f, int64_t tokens, int64_t n) {
    const double scale = (double)tokens / (double)f->tokens;
    const int64_t calls = n > 1 ? n * (int64_t)m->ranks : 1;
    const double more = hrt_cost_of_calls(tokens, calls) / hrt_cost_of_calls(tokens, 1);
    const double compute = (double)f->compute_ns * scale * more;
    const double exchange = (double)f->exchange_ns * scale +
                            (double)((n - 1) * exchanges_of(m)) * (double)f->latency_ns;
    const double least = compute < exchange ? compute : exchange;
    return compute + exchange - (1 - 1.0 / (double)n) * least;
}

int64_t hrt_choose_tiles(const hrt_model *m, const hrt_side *side, hrt_figures *f, int64_t tokens,
                         int *code) {
    *code = HADAL_COMM_OK;
    if (!may_overlap(m, side) || tokens < m->divide_from) return 1;
    if (m->tiles > 1) return m->tiles;
    if (!f->agreed && f->chunks > WARM_UP) *code = agree(side, f);
    if (!f->agreed) return 1;
    const double whole = time_of(m, f, tokens, 1);
    double least = whole * (1 - least_gain);
    int64_t best = 1;
    for (int64_t n = 2; n <= HRT_MOST_TILES && n * (int64_t)m->ranks <= tokens; n++) {
        const double time = time_of(m, f, tokens, n);
        if (time >= least) continue;
        least = time;
        best = n;
    }
    return best;
}
