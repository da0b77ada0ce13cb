/* Communication between the ranks in a call: the rows of hrt_model.collectives, which are
 * collectives within a group and point-to-point messages between pipeline stages, made with the
 * functions of hadal_comm.h. This file computes ranges of rows, rounds to bf16 and orders units, on
 * one thread; a transport only gets contiguous ranges of values. */
#include <string.h>

#include "runtime/internal.h"
#include "support/halves.h"

typedef struct collective { /* one row of hrt_model.collectives, in one call */
    const hrt_model *m;
    const hrt_side *side;
    const hrt_collective *e;
    const uint8_t *x;
    uint8_t *y, *staging;
    const hrt_place *chunk;
    int64_t wanted; /* first row of the chunk that the step has to do */
} collective;

/* ---- rows ------------------------------------------------------------------------------------ */
hrt_place hrt_place_of(const hrt_model *m, const hrt_place *chunk, int64_t rank) {
    const int64_t first = hd_first_row(chunk->tokens, rank, m->ranks, m->divide_from);
    const int64_t end = hd_end_row(chunk->tokens, rank, m->ranks, m->divide_from);
    return (hrt_place){chunk->start + first, end - first, chunk->slot};
}

int64_t hrt_local_rows(const hrt_model *m, int64_t chunk) {
    if (m->ranks == 0) return 0;
    const int64_t undivided = chunk < m->divide_from ? chunk : m->divide_from - 1;
    const int64_t divided = chunk < m->divide_from ? 0 : (chunk + m->ranks - 1) / m->ranks;
    return undivided > divided ? undivided : divided;
}

static bool is_divided(const collective *x) {
    return x->chunk->tokens >= x->m->divide_from;
}

/* The rows of `rank` that the step does, counted from the start of the chunk. */
static hrt_place rows_of(const collective *x, int64_t rank) {
    const hrt_place all = hrt_place_of(x->m, x->chunk, rank);
    const int64_t first = all.start - x->chunk->start, end = first + all.tokens;
    const int64_t from = first > x->wanted ? first : x->wanted;
    return (hrt_place){from, end > from ? end - from : 0, x->chunk->slot};
}

/* Counts the elements of the rows of each rank. */
static void count_rows(const collective *x, uint64_t *counts) {
    for (int32_t r = 0; r < x->side->group.count; r++)
        counts[r] = (uint64_t)rows_of(x, r).tokens * x->e->row;
}

static uint64_t row_bytes(const collective *x) {
    return x->e->row * x->e->element;
}

/* The number of rows of the chunk that the step does, over all ranks. */
static uint64_t rows_done(const collective *x) {
    return (uint64_t)(x->chunk->tokens - x->wanted);
}

/* ---- bf16 ------------------------------------------------------------------------------------ */
static void narrow_all(const void *from, void *to, uint64_t n) {
    const float *x = from;
    uint16_t *y = to;
    for (uint64_t i = 0; i < n; i++)
        y[i] = hd_bf16_from_f32(x[i]);
}

static void widen_all(const void *from, void *to, uint64_t n) {
    const uint16_t *x = from;
    float *y = to;
    for (uint64_t i = 0; i < n; i++)
        y[i] = hd_bf16_to_f32(x[i]);
}

static hadal_comm_type crossing(const hrt_collective *e) {
    if (e->narrow) return HADAL_COMM_BF16;
    return e->element == 4 ? HADAL_COMM_F32 : e->element == 2 ? HADAL_COMM_BF16 : HADAL_COMM_BYTES;
}

static uint64_t crossing_bytes(const hrt_collective *e) {
    return e->narrow ? 2 : e->element;
}

/* ---- sums ------------------------------------------------------------------------------------ */
static int sum(const collective *x, bool scatter) {
    const hadal_comm *c = x->side->comm;
    const uint64_t n = rows_done(x) * x->e->row;
    const void *from = x->x + (uint64_t)x->wanted * row_bytes(x);
    if (x->e->narrow) {
        narrow_all(from, x->staging, n);
        from = x->staging;
    }
    if (!scatter || !is_divided(x))
        return c->all_reduce(c->context, x->side->group, crossing(x->e), from,
                             (float *)(x->y + (uint64_t)x->wanted * row_bytes(x)), n,
                             x->side->timeout_ns);
    uint64_t counts[HADAL_COMM_MAX_RANKS];
    count_rows(x, counts);
    const int64_t first = hrt_place_of(x->m, x->chunk, x->side->rank).start - x->chunk->start;
    uint8_t *to = x->y + (uint64_t)(rows_of(x, x->side->rank).start - first) * row_bytes(x);
    return c->reduce_scatter(c->context, x->side->group, crossing(x->e), from, (float *)to, counts,
                             x->side->timeout_ns);
}

/* ---- rows of all ranks ----------------------------------------------------------------------- */
/* Copies rows in a place where each rank's rows lie contiguously: this rank's rows out of the rows
 * of all ranks, or (to_all) into their place among them. */
static void copy_rows(const collective *x, bool to_all) {
    const hrt_place all = hrt_place_of(x->m, x->chunk, x->side->rank);
    const hrt_place done = rows_of(x, x->side->rank);
    const uint64_t in_all = (uint64_t)done.start * row_bytes(x);
    const uint64_t in_part = in_all - (uint64_t)(all.start - x->chunk->start) * row_bytes(x);
    memcpy(x->y + (to_all ? in_all : in_part), x->x + (to_all ? in_part : in_all),
           (size_t)((uint64_t)done.tokens * row_bytes(x)));
}

static int gather_rows(const collective *x) {
    const hadal_comm *c = x->side->comm;
    uint64_t counts[HADAL_COMM_MAX_RANKS];
    if (!is_divided(x)) {
        copy_rows(x, true);
        return HADAL_COMM_OK;
    }
    count_rows(x, counts);
    const hrt_place all = hrt_place_of(x->m, x->chunk, x->side->rank);
    const hrt_place mine = rows_of(x, x->side->rank);
    const uint8_t *from =
        x->x + (uint64_t)(mine.start - (all.start - x->chunk->start)) * row_bytes(x);
    uint8_t *to = x->y + (uint64_t)x->wanted * row_bytes(x);
    if (!x->e->narrow && crossing(x->e) != HADAL_COMM_BYTES)
        return c->all_gather(c->context, x->side->group, crossing(x->e), from, to, counts,
                             x->side->timeout_ns);
    if (!x->e->narrow) {
        for (int32_t r = 0; r < x->side->group.count; r++)
            counts[r] *= x->e->element;
        return c->all_gather(c->context, x->side->group, HADAL_COMM_BYTES, from, to, counts,
                             x->side->timeout_ns);
    }
    uint8_t *place = x->staging + (uint64_t)(mine.start - x->wanted) * x->e->row * 2;
    narrow_all(from, place, counts[x->side->rank]);
    const int code = c->all_gather(c->context, x->side->group, HADAL_COMM_BF16, place, x->staging,
                                   counts, x->side->timeout_ns);
    if (!code) widen_all(x->staging, to, rows_done(x) * x->e->row);
    return code;
}

/* ---- units ----------------------------------------------------------------------------------- */
static hd_share share_of(const collective *x) {
    return (hd_share){.ranks = x->m->ranks,
                      .whole = (int64_t)(x->e->groups * x->e->units),
                      .groups = (int64_t)x->e->groups,
                      .units = (int64_t)x->e->units,
                      .repeat = x->e->repeat};
}

static uint64_t local_units(const hd_share *s) {
    return (uint64_t)(hd_local_groups(s) * hd_local_units(s));
}

/* Staging holds one block of elements after the other, one block per rank. This brings the units of
 * all blocks into the order of a row and writes them to y. A row consists of `n` repetitions of the
 * units. */
static void order_units(const collective *x, const hd_share *s, uint64_t n) {
    const uint64_t local = local_units(s), unit = x->e->unit;
    const uint64_t block = n * local * unit; /* elements of one rank */
    for (int64_t u = 0; u < s->whole; u++) {
        int64_t at;
        const uint64_t rank = (uint64_t)hd_owner_of(s, u, &at);
        for (uint64_t i = 0; i < n; i++) {
            const uint64_t from = rank * block + (i * local + (uint64_t)at) * unit;
            const uint64_t to = (i * (uint64_t)s->whole + (uint64_t)u) * unit;
            if (x->e->narrow)
                widen_all(x->staging + from * 2, x->y + to * 4, unit);
            else
                memcpy(x->y + to * x->e->element, x->staging + from * x->e->element,
                       (size_t)(unit * x->e->element));
        }
    }
}

static int gather_units(const collective *whole) {
    const hadal_comm *c = whole->side->comm;
    const hd_share s = share_of(whole);
    collective x = *whole;
    const uint64_t runs = rows_done(&x) * x.e->outer,
                   row = x.e->outer * local_units(&s) * x.e->unit;
    const uint64_t y_row = x.e->outer * (uint64_t)s.whole * x.e->unit;
    const uint64_t n = runs * local_units(&s) * x.e->unit;
    uint64_t counts[HADAL_COMM_MAX_RANKS];
    for (int32_t r = 0; r < x.side->group.count; r++)
        counts[r] = crossing(x.e) == HADAL_COMM_BYTES ? n * x.e->element : n;
    const void *from = x.x + (uint64_t)x.wanted * row * x.e->element;
    if (x.e->narrow) {
        uint8_t *place = x.staging + (uint64_t)x.side->rank * n * 2;
        narrow_all(from, place, n);
        from = place;
    }
    const int code = c->all_gather(c->context, x.side->group, crossing(x.e), from, x.staging,
                                   counts, x.side->timeout_ns);
    x.y += (uint64_t)x.wanted * y_row * x.e->element;
    if (!code) order_units(&x, &s, runs);
    return code;
}

static void part_units(const collective *x) {
    const hd_share s = share_of(x);
    const uint64_t local = local_units(&s), unit = x->e->unit * x->e->element;
    const uint64_t first = (uint64_t)x->wanted * x->e->outer;
    const uint64_t end = (uint64_t)x->chunk->tokens * x->e->outer;
    for (uint64_t i = first; i < end; i++)
        for (uint64_t k = 0; k < local; k++) {
            const int64_t from = hd_unit_of(&s, x->side->rank, (int64_t)k);
            uint8_t *to = x->y + (i * local + k) * unit;
            if (from < 0)
                memset(to, 0, (size_t)unit);
            else
                memcpy(to, x->x + (i * (uint64_t)s.whole + (uint64_t)from) * unit, (size_t)unit);
        }
}

/* ---- stages ---------------------------------------------------------------------------------- */
/* The number of elements to send to another pipeline stage: all rows of the value, or the rows of
 * this rank where each rank holds only its own. */
static uint64_t stage_elements(const collective *x) {
    const hrt_place mine = hrt_place_of(x->m, x->chunk, x->side->rank);
    return (uint64_t)(x->e->local ? mine.tokens : x->chunk->tokens) * x->e->row;
}

static int send_rows(const collective *x) {
    const hadal_comm *c = x->side->comm;
    const uint64_t n = stage_elements(x);
    const void *from = x->x;
    if (x->e->narrow) {
        narrow_all(from, x->staging, n);
        from = x->staging;
    }
    const int32_t to = (int32_t)(x->e->peer * x->m->ranks) + x->side->rank;
    return c->send(c->context, to, from, n * crossing_bytes(x->e), x->side->timeout_ns);
}

static int receive_rows(const collective *x) {
    const hadal_comm *c = x->side->comm;
    const uint64_t n = stage_elements(x);
    const int32_t from = (int32_t)(x->e->peer * x->m->ranks) + x->side->rank;
    const int code = c->recv(c->context, from, x->e->narrow ? x->staging : x->y,
                             n * crossing_bytes(x->e), x->side->timeout_ns);
    if (!code && x->e->narrow) widen_all(x->staging, x->y, n);
    return code;
}

/* ---- tiles ----------------------------------------------------------------------------------- */
hrt_place hrt_tile_of(const hrt_model *m, const hrt_place *chunk, int64_t rank, hrt_tile tile) {
    const hrt_place all = hrt_place_of(m, chunk, rank);
    const int64_t from = all.tokens * tile.number / tile.count;
    const int64_t end = all.tokens * (tile.number + 1) / tile.count;
    return (hrt_place){all.start + from, end - from, chunk->slot};
}

/* For the part of the tile that each rank has: how many elements it holds, and at which element it
 * begins, as the transport counts them. */
static void place_tile(const collective *x, hrt_tile tile, uint64_t *counts, uint64_t *starts) {
    const uint64_t row = x->e->row * (crossing(x->e) == HADAL_COMM_BYTES ? x->e->element : 1);
    for (int32_t r = 0; r < x->side->group.count; r++) {
        const hrt_place rows = hrt_tile_of(x->m, x->chunk, r, tile);
        counts[r] = (uint64_t)rows.tokens * row;
        starts[r] = (uint64_t)(rows.start - x->chunk->start) * row;
    }
}

/* The offset of this rank's part of the tile among the rows of this rank, in bytes of x or y. */
static uint64_t own_tile(const collective *x, hrt_tile tile) {
    const int64_t first = hrt_place_of(x->m, x->chunk, x->side->rank).start;
    const hrt_place mine = hrt_tile_of(x->m, x->chunk, x->side->rank, tile);
    return (uint64_t)(mine.start - first) * row_bytes(x);
}

int hrt_start_tile(const hrt_model *m, const hrt_side *side, const hrt_collective *e, const void *x,
                   void *y, void *staging, const hrt_place *chunk, hrt_tile tile) {
    const collective it = {m, side, e, x, y, staging, chunk, 0};
    const hadal_comm *c = side->comm;
    uint64_t counts[HADAL_COMM_MAX_RANKS], starts[HADAL_COMM_MAX_RANKS];
    place_tile(&it, tile, counts, starts);
    const bool scatters = e->kind == HRT_REDUCE_SCATTER;
    const uint8_t *in = it.x + (scatters ? 0 : own_tile(&it, tile));
    uint8_t *out = it.y + (scatters ? own_tile(&it, tile) : 0);
    for (int32_t r = 0; scatters && e->narrow && r < side->group.count; r++)
        narrow_all(it.x + starts[r] * e->element, it.staging + starts[r] * 2, counts[r]);
    if (scatters && e->narrow) in = it.staging;
    if (!scatters && e->narrow) {
        uint8_t *place = it.staging + starts[side->rank] * 2;
        narrow_all(in, place, counts[side->rank]);
        in = place;
        out = it.staging;
    }
    return c->start(c->context, scatters ? HADAL_COMM_REDUCE_SCATTER : HADAL_COMM_ALL_GATHER,
                    side->group, crossing(e), in, out, counts, starts, side->timeout_ns);
}

void hrt_end_tile(const hrt_model *m, const hrt_side *side, const hrt_collective *e, void *y,
                  void *staging, const hrt_place *chunk, hrt_tile tile) {
    const collective it = {m, side, e, NULL, y, staging, chunk, 0};
    uint64_t counts[HADAL_COMM_MAX_RANKS], starts[HADAL_COMM_MAX_RANKS];
    if (e->kind != HRT_GATHER_ROWS || !e->narrow) return;
    place_tile(&it, tile, counts, starts);
    for (int32_t r = 0; r < side->group.count; r++)
        widen_all(it.staging + starts[r] * 2, it.y + starts[r] * e->element, counts[r]);
}

/* ---- any ------------------------------------------------------------------------------------- */
int hrt_make_collective(const hrt_model *m, const hrt_side *side, const hrt_collective *e,
                        const void *x, void *y, void *staging, const hrt_place *chunk,
                        int64_t wanted) {
    const collective it = {m, side, e, x, y, staging, chunk, wanted};
    switch ((hrt_collective_kind)e->kind) {
    case HRT_ALL_REDUCE: return sum(&it, false);
    case HRT_REDUCE_SCATTER: return sum(&it, true);
    case HRT_GATHER_ROWS: return gather_rows(&it);
    case HRT_GATHER_UNITS: return gather_units(&it);
    case HRT_PART_ROWS: copy_rows(&it, false); return HADAL_COMM_OK;
    case HRT_PART_UNITS: part_units(&it); return HADAL_COMM_OK;
    case HRT_SEND: return send_rows(&it);
    case HRT_RECV: return receive_rows(&it);
    }
    return HADAL_COMM_ARGUMENT;
}

/* Elements of one row in staging; where each rank has its own elements, those of all ranks
 * together. */
static uint64_t staged_elements(const hrt_model *m, const hrt_collective *e) {
    const hd_share s = {m->ranks, (int64_t)(e->groups * e->units), (int64_t)e->groups,
                        (int64_t)e->units, e->repeat};
    if (e->kind == HRT_GATHER_UNITS) return m->ranks * e->outer * local_units(&s) * e->unit;
    return e->narrow ? e->row : 0;
}

bool hrt_staging_bytes(const hrt_model *m, int64_t chunk, uint64_t *bytes) {
    *bytes = 0;
    for (uint32_t i = 0; i < m->n_collectives; i++) {
        const hrt_collective *e = &m->collectives[i];
        uint64_t n;
        if (__builtin_mul_overflow(staged_elements(m, e) * crossing_bytes(e), (uint64_t)chunk, &n))
            return false;
        if (n > *bytes) *bytes = n;
    }
    return true;
}
