/* In how many tiles of rows a divided model computes beside its exchanges: as many as take least
 * (tile_time.h), of what the session itself measures in chunks that go all rows at once. Then the
 * ranks of the group tell each other, because all must choose the same number. */
#include "runtime/internal.h"
#include "runtime/tile_time.h"
#include "support/tell.h"

enum { WARM_UP = 1 }; /* chunks: the first finds weights on disk and pages untouched */

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

static int64_t best_of(const hrt_model *m, const hrt_figures *f, int64_t tokens) {
    const double scale = (double)tokens / (double)f->tokens;
    return hrt_best_tiles(&(hrt_beside){.tokens = tokens,
                                        .ranks = (int64_t)m->ranks,
                                        .compute = (double)f->compute_ns * scale,
                                        .exchange = (double)f->exchange_ns * scale,
                                        .latency = (double)f->latency_ns,
                                        .exchanges = exchanges_of(m)});
}

int64_t hrt_choose_tiles(const hrt_model *m, const hrt_side *side, hrt_figures *f, int64_t tokens,
                         int *code) {
    *code = HADAL_COMM_OK;
    if (!may_overlap(m, side) || tokens < m->divide_from) return 1;
    if (m->tiles > 1) return m->tiles;
    if (!f->agreed && f->chunks > WARM_UP) *code = agree(side, f);
    return f->agreed ? best_of(m, f, tokens) : 1;
}
