#include "runtime/pipeline.h"

#include "runtime/internal.h"

int64_t hrt_most_in_flight(const hrt_model *m, int64_t cap, int64_t chunk) {
    return m->n_runs < 2 ? 1 : hrt_chunks_in_flight(cap, chunk, m->stages);
}

int64_t hrt_slot_of(const hrt_pipeline *p, int64_t chunk) {
    return chunk % p->flight;
}

/* Moves to the next turn. The first turn is layer range 0 of chunk 0, and all stages take the turns
 * in the same order. False: this was the last turn. */
static bool next_turn(const hrt_pipeline *p, hrt_turn *turn) {
    const int64_t first = turn->chunk - hrt_slot_of(p, turn->chunk); /* first chunk of the group */
    const int64_t next = turn->chunk + 1;
    if (next < first + p->flight && next < p->chunks) {
        turn->chunk = next;
        return true;
    }
    turn->chunk = first;
    if (++turn->run < p->runs) return true;
    *turn = (hrt_turn){0, first + p->flight};
    return turn->chunk < p->chunks;
}

/* When stage 0 takes the turn, counted in turns. Each group takes the time of as many chunks as
 * there are stages, though the last one may have fewer chunks. */
static int64_t time_of(const hrt_pipeline *p, hrt_turn t) {
    const int64_t group = t.chunk / p->flight;
    return (group * p->runs + t.run) * p->stages + hrt_slot_of(p, t.chunk);
}

static void look_ahead(hrt_turns *t) {
    t->next = t->now;
    t->more = next_turn(&t->p, &t->next);
    t->receives_first = t->more && t->p.runs > 1 && t->p.stage % 2 == 1 &&
                        time_of(&t->p, t->next) == time_of(&t->p, t->now) + 1;
}

bool hrt_next(hrt_turns *t, hrt_doing *doing, hrt_turn *turn) {
    enum { START, WORK, EARLY, SEND, LATE, END };
    for (;;) {
        *turn = t->now;
        switch (t->at++) {
        case START: *doing = HRT_RECEIVES; return true;
        case WORK:
            look_ahead(t);
            *doing = HRT_COMPUTES;
            return true;
        case SEND: *doing = HRT_SENDS; return true;
        case EARLY:
        case LATE:
            if (!t->more || t->receives_first != (t->at == EARLY + 1)) break;
            *turn = t->next;
            *doing = HRT_RECEIVES;
            return true;
        default:
            if (!t->more) return false;
            t->now = t->next;
            t->at = WORK;
        }
    }
}
