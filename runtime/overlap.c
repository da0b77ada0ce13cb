/* Computing while collectives are under way: the steps of an overlap, tile by tile.
 *
 * Tile i is part i of each rank's rows, so that every rank has rows in every tile. Thread 0 makes
 * the collectives, without waiting (hadal_comm.start): it computes as the other threads do, and
 * advances the collective between the parts of its work. The order of collectives is the same on
 * all ranks:
 *
 *     computed      F0   F1   M0   F2   M1   B0   M2   B1   B2           three tiles of
 *     under way          S0   S1   S1,G0     S2,G1    G2                 front, middle, back,
 *                                                                        scatter, gather
 *
 * Threads share a step by claiming parts of it one by one, since thread 0 has less time than the
 * others. A part is a range of rows and columns such as a thread gets in any other step: the
 * results depend neither on which thread computes a part nor on the number of tiles. */
#include "runtime/walk.h"

/* Parts of a tile's step for each thread: after each part thread 0 advances the collective. */
enum { PARTS = 8 };

enum { SCATTER, GATHER };

typedef struct transfer { /* the collective of one tile */
    int what;
    int64_t tile;
} transfer;

/* The collectives of an overlap, which only thread 0 has. One is under way at a time, the others
 * wait in a queue. */
typedef struct flow {
    const hrt_job *job;
    const hrt_place *all;
    const hrt_collective *collective[2];
    void *x[2], *y[2];
    int64_t tiles;
    transfer queue[2 * HRT_MOST_TILES];
    int first, end; /* of the queue: the first is under way, or starts next */
    bool under_way;
    int64_t done[2];
    int code; /* result of the collective that failed */
} flow;

typedef struct overlap { /* as one thread sees it */
    hrt_worker *w;
    hrt_team *c;
    const hrt_overlap *o;
    const hrt_place *all, *mine;
    flow *f; /* NULL: not thread 0 */
} overlap;

/* ---- collectives ----------------------------------------------------------------------------- */
static hrt_tile tile_of(const flow *f, int64_t number) {
    return (hrt_tile){number, f->tiles};
}

static void begin_first(flow *f) {
    const hrt_job *j = f->job;
    const transfer *t = &f->queue[f->first];
    f->code = hrt_start_tile(j->model, j->side, f->collective[t->what], f->x[t->what],
                             f->y[t->what], j->memory->staging, f->all, tile_of(f, t->tile));
    f->under_way = !f->code;
}

static void end_first(flow *f) {
    const hrt_job *j = f->job;
    const transfer *t = &f->queue[f->first++];
    hrt_end_tile(j->model, j->side, f->collective[t->what], f->y[t->what], j->memory->staging,
                 f->all, tile_of(f, t->tile));
    f->done[t->what]++;
    f->under_way = false;
}

/* Advances the collective that is under way as far as possible without waiting. */
static void look_after(flow *f) {
    const hadal_comm *c = f->job->side->comm;
    while (!f->code && f->first < f->end) {
        int over = 0;
        if (!f->under_way) begin_first(f);
        if (!f->code) f->code = c->advance(c->context, &over);
        if (f->code || !over) return;
        end_first(f);
    }
}

static void wait_for(flow *f, int what, int64_t tile) {
    const hadal_comm *c = f->job->side->comm;
    while (!f->code && f->done[what] <= tile) {
        if (!f->under_way) begin_first(f);
        if (!f->code) f->code = c->finish(c->context);
        if (!f->code) end_first(f);
    }
}

/* The rows of the tile are computed: their collective may start. */
static void send_off(const overlap *v, int what, int64_t tile) {
    if (!v->f) return;
    v->f->queue[v->f->end++] = (transfer){what, tile};
    look_after(v->f);
}

/* Waits until the collective of the tile is over. False: a collective has failed. */
static bool arrive(const overlap *v, int what, int64_t tile) {
    const uint32_t step = what == SCATTER ? v->o->scatter : v->o->gather;
    v->w->collectives++;
    if (v->f) {
        wait_for(v->f, what, tile);
        hrt_set_failed(&v->c->failed, v->w->collectives, v->f->code);
        (tile == 0 ? hrt_watch_work : hrt_watch_more)(&v->w->watch, step);
    }
    hrt_team_barrier(v->w, v->c);
    if (v->f) hrt_watch_wait(&v->w->watch, step);
    return !hrt_has_failed(&v->c->failed, v->w->collectives);
}

/* ---- computing ------------------------------------------------------------------------------- */
/* The rows of range `r` of the tile, as the step numbers them: range r of a step over the rows of
 * all ranks holds the tile's rows of rank r; a step over the rows of this rank has one range. */
static hrt_span rows_of(const overlap *v, const hrt_step *step, int64_t r, hrt_tile tile) {
    const hrt_job *j = v->c->job;
    const hrt_place *at = step->local ? v->mine : v->all;
    const hrt_place rows = hrt_tile_of(j->model, v->all, step->local ? j->side->rank : r, tile);
    return (hrt_span){rows.start - at->start, rows.start - at->start + rows.tokens};
}

/* Does part `k` of `parts` of the rows, cutting their columns or the rows themselves. */
static void do_part(const overlap *v, const hrt_step *step, hrt_kernel *kernel, hrt_span rows,
                    int64_t k, int64_t parts) {
    hrt_span cols = {0, step->cols};
    if (step->split_prefill == HRT_SPLIT_COLS)
        cols = hrt_share(cols, k, parts);
    else
        rows = hrt_share(rows, k, parts);
    if (rows.from < rows.to && cols.from < cols.to)
        kernel(&v->w->frame, v->w->args, rows.from, rows.to, cols.from, cols.to);
}

static void do_step(const overlap *v, uint32_t number, int64_t tile) {
    const hrt_job *j = v->c->job;
    const hrt_step *step = &j->model->steps[number];
    const hrt_place *at = step->local ? v->mine : v->all;
    const int64_t ranges = step->local ? 1 : j->model->ranks;
    const int64_t each = (PARTS * v->w->count + ranges - 1) / ranges;
    _Atomic int64_t *next = &hrt_next_counters(v->w)->next;
    hrt_kernel *kernel = hrt_step_kernel(j, step, at->tokens);
    hrt_take_step(v->w, j, step, at);
    for (;;) {
        const int64_t part = atomic_fetch_add_explicit(next, 1, memory_order_relaxed);
        if (part >= ranges * each) break;
        const hrt_span rows = rows_of(v, step, part / each, (hrt_tile){tile, v->c->tiles});
        do_part(v, step, kernel, rows, part % each, each);
        if (v->f) look_after(v->f);
    }
    if (v->f) (tile == 0 ? hrt_watch_work : hrt_watch_more)(&v->w->watch, number);
    hrt_team_barrier(v->w, v->c);
    if (v->f) hrt_watch_wait(&v->w->watch, number);
}

static void do_steps(const overlap *v, uint32_t from, uint32_t end, int64_t tile) {
    for (uint32_t i = from; i < end; i++)
        if (!hrt_is_idle(v->c->job, &v->c->job->model->steps[i], v->all, v->mine))
            do_step(v, i, tile);
}

/* ---- the order ------------------------------------------------------------------------------- */
static bool do_middle(const overlap *v, int64_t tile) {
    const hrt_overlap *o = v->o;
    if (o->gather == o->back) return true;
    if (o->scatter < o->middle && !arrive(v, SCATTER, tile)) return false;
    do_steps(v, o->middle, o->gather, tile);
    send_off(v, GATHER, tile);
    return true;
}

static bool run(const overlap *v) {
    const hrt_overlap *o = v->o;
    const int64_t tiles = v->c->tiles;
    for (int64_t i = 0; i < tiles; i++) {
        do_steps(v, o->front, o->scatter, i);
        if (o->scatter < o->middle) send_off(v, SCATTER, i);
        if (i > 0 && !do_middle(v, i - 1)) return false;
    }
    if (o->gather == o->back) return arrive(v, SCATTER, tiles - 1);
    for (int64_t i = 0; i < tiles; i++) {
        if (i == 1 && !do_middle(v, tiles - 1))
            return false; /* the first collective is under way while this computes */
        if (!arrive(v, GATHER, i)) return false;
        do_steps(v, o->back, o->end, i);
    }
    return true;
}

static void find_values(flow *f, const overlap *v, int what, uint32_t number) {
    const hrt_model *m = f->job->model;
    const hrt_step *step = &m->steps[number];
    const hrt_operand *x = &m->operands[step->first_operand], *y = x + step->n_operands - 1;
    f->collective[what] = &m->collectives[step->collective - 1];
    f->x[what] = hrt_operand_base(f->job, x, hrt_is_local(x) ? v->mine : v->all);
    f->y[what] = hrt_operand_base(f->job, y, hrt_is_local(y) ? v->mine : v->all);
}

bool hrt_run_overlap(hrt_worker *w, hrt_team *c, const hrt_overlap *o, const hrt_place *all,
                     const hrt_place *mine) {
    flow f = {.job = c->job, .all = all, .tiles = c->tiles};
    const overlap v = {w, c, o, all, mine, w->index == 0 ? &f : NULL};
    if (o->scatter < o->middle) find_values(&f, &v, SCATTER, o->scatter);
    if (o->gather < o->back) find_values(&f, &v, GATHER, o->gather);
    return run(&v);
}
