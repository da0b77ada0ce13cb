/* The best cut of a program into ranges (`runs`): three searches over the same table.
 *
 * Row j of the table has, for each place, the least cost of j ranges from the beginning to that
 * place; row j + 1 follows from it by trying every beginning of one more range. Ranges are tried
 * from short to long, and no further than the limits, or the best so far, allow: both costs only
 * grow. */
#include "passes/shard/stage_cuts.h"

enum { NEVER = UINT32_MAX };

/* A range may hold a quarter more than the mean, since one layer more or less is a small part of a
 * large model; where no cut achieves that, an eighth more than the least possible. */
uint64_t stage_most_held(uint64_t mean, uint64_t least) {
    const uint64_t of_mean = hd_capped_add(mean, mean / 4);
    const uint64_t of_least = hd_capped_add(least, least / 8);
    return of_mean >= least ? of_mean : of_least;
}

/* A fiftieth more work is allowed if less has to be sent: the costs are not known more precisely.
 */
uint64_t stage_most_work(uint64_t least) {
    return hd_capped_add(least, least / 50);
}

typedef enum aim { LEAST_HELD, LEAST_WORK, LEAST_LIVE } aim;

/* The cost of the ranges up to a place: the first number is minimised; among equal ones, the
 * second. */
typedef struct price {
    uint64_t first, second;
} price;
static const price impossible = {UINT64_MAX, UINT64_MAX};

typedef struct search {
    const stage_places *p;
    uint32_t runs;
    aim aim;
    uint64_t most_held, most_work; /* of a range */
    price *before, *now;           /* two rows of the table, by place */
    uint32_t *from;                /* by row and place: where the last range begins */
} search;

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static bool is_less(price a, price b) {
    return a.first < b.first || (a.first == b.first && a.second < b.second);
}

/* The cost of the ranges up to `from`, and one more from there. */
static price price_of(const search *s, uint32_t from, uint32_t to) {
    const price before = s->before[from];
    const uint64_t held = s->p->held[to] - s->p->held[from];
    const uint64_t work = stage_run_work(s->p, from, to);
    switch (s->aim) {
    case LEAST_HELD: return (price){larger(before.first, held), 0};
    case LEAST_WORK: return (price){larger(before.first, work), 0};
    case LEAST_LIVE: break;
    }
    return (price){hd_capped_add(before.first, s->p->live[from]), larger(before.second, work)};
}

/* Does the range, and with it every longer one, exceed a limit or the best cost? */
static bool is_too_long(const search *s, uint32_t from, uint32_t to, uint64_t best) {
    const uint64_t held = s->p->held[to] - s->p->held[from];
    const uint64_t work = stage_run_work(s->p, from, to);
    if (held > s->most_held || work > s->most_work) return true;
    if (best == UINT64_MAX || s->aim == LEAST_LIVE) return false;
    return (s->aim == LEAST_HELD ? held : work) >= best;
}

static void extend(search *s, uint32_t row, uint32_t to) {
    const stage_places *p = s->p;
    price best = impossible;
    uint32_t at = NEVER;
    for (uint32_t from = to; from-- > 0;) {
        if (is_too_long(s, from, to, best.first)) break;
        if (s->before[from].first == UINT64_MAX || p->layers[from] == p->layers[to]) continue;
        const price v = price_of(s, from, to);
        if (!is_less(v, best)) continue;
        best = v;
        at = from;
    }
    s->now[to] = best;
    s->from[(size_t)row * p->n + to] = at;
}

/* The least cost of all ranges; UINT64_MAX: no cut is possible. */
static uint64_t fill_table(search *s) {
    for (uint32_t i = 0; i < s->p->n; i++)
        s->before[i] = i ? impossible : (price){0, 0};
    for (uint32_t row = 1; row <= s->runs; row++) {
        for (uint32_t to = 0; to < s->p->n; to++)
            extend(s, row, to);
        price *last = s->before;
        s->before = s->now;
        s->now = last;
    }
    return s->before[s->p->n - 1].first;
}

bool stage_best_cuts(hd_arena *a, const stage_places *p, uint32_t runs, uint32_t *cut) {
    if (p->n < 2 || p->layers[p->n - 1] < runs) return false;
    search s = {.p = p, .runs = runs, .most_held = UINT64_MAX, .most_work = UINT64_MAX};
    s.before = hd_new_array(a, price, p->n);
    s.now = hd_new_array(a, price, p->n);
    s.from = hd_new_array(a, uint32_t, ((size_t)runs + 1) * p->n);
    s.aim = LEAST_HELD;
    const uint64_t held = fill_table(&s);
    if (held == UINT64_MAX) return false;
    s.most_held = stage_most_held(p->held[p->n - 1] / runs, held);
    s.aim = LEAST_WORK;
    s.most_work = stage_most_work(fill_table(&s));
    s.aim = LEAST_LIVE;
    fill_table(&s);
    cut[runs] = p->n - 1;
    for (uint32_t row = runs; row > 0; row--)
        cut[row - 1] = s.from[(size_t)row * p->n + cut[row]];
    return true;
}
