/* The order in which stages of a pipeline take turns among chunks, without computing anything: a
 * message passes only while both stages are at it, so that any wait of stages for each other shows.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "runtime/pipeline.h"

TestSuite(pipeline, .timeout = 60);

enum { MOST_STAGES = 7, MOST_RUNS = 4, MOST_CHUNKS = 3 * MOST_STAGES + 2 };

typedef struct stage {
    hrt_turns turns;
    hrt_doing doing;
    hrt_turn turn;
    bool over;
    int64_t clock;             /* turns' worth of computing and waiting */
    int64_t done[MOST_RUNS];   /* chunks of each run */
    int64_t inputs[MOST_RUNS]; /* and those received for it */
} stage;

typedef struct line { /* of stages */
    stage at[MOST_STAGES];
    int64_t stages, runs, chunks, flight;
} line;

static bool has_message(const line *l, const stage *s) {
    const int64_t number = s->turn.run * l->stages + s->turns.p.stage; /* of the run, of all */
    return s->doing == HRT_SENDS ? number + 1 < l->stages * l->runs : number > 0;
}

static bool take_next(stage *s) {
    s->over = !hrt_next(&s->turns, &s->doing, &s->turn);
    return !s->over;
}

static void start(line *l, int64_t stages, int64_t runs, int64_t chunks, int64_t flight) {
    memset(l, 0, sizeof *l);
    l->stages = stages, l->runs = runs, l->chunks = chunks, l->flight = flight;
    for (int64_t i = 0; i < stages; i++) {
        l->at[i].turns.p = (hrt_pipeline){stages, runs, chunks, flight, i};
        cr_assert(take_next(&l->at[i]));
    }
}

static void compute(const line *l, stage *s) {
    const int64_t r = s->turn.run, c = s->turn.chunk;
    const bool first = r == 0 && s->turns.p.stage == 0;
    cr_assert(first || s->inputs[r] > c, "run %ld of chunk %ld has no input", (long)r, (long)c);
    cr_assert_eq(s->done[r], c, "run %ld: chunk %ld behind %ld", (long)r, (long)c,
                 (long)s->done[r]);
    cr_assert(r == 0 || s->done[r - 1] > c);
    /* its seat is free: the chunk that had it before is done */
    cr_assert(r > 0 || c < l->flight || s->done[l->runs - 1] > c - l->flight);
    s->done[r]++;
    s->clock++;
}

/* What a stage can do alone. */
static bool goes_on(const line *l, stage *s) {
    if (s->over || (s->doing != HRT_COMPUTES && has_message(l, s))) return false;
    if (s->doing == HRT_COMPUTES) compute(l, s);
    (void)take_next(s);
    return true;
}

/* A message from s to the next stage. */
static bool passes(line *l, int64_t i) {
    stage *s = &l->at[i], *to = &l->at[(i + 1) % l->stages];
    if (s->over || to->over || s->doing != HRT_SENDS || !has_message(l, s)) return false;
    if (to->doing != HRT_RECEIVES || !has_message(l, to)) return false;
    const int64_t run = s->turn.run + (i + 1 == l->stages);
    cr_assert_eq(to->turn.run, run, "the message is for another run");
    cr_assert_eq(to->turn.chunk, s->turn.chunk, "the message is of another chunk");
    to->inputs[run]++;
    s->clock = to->clock = s->clock > to->clock ? s->clock : to->clock;
    (void)take_next(s);
    (void)take_next(to);
    return true;
}

/* Lets stages go on in any order, until none can. */
static void run_line(line *l, uint64_t *random) {
    for (int idle = 0; idle < 2 * MOST_STAGES;) {
        *random = *random * 6364136223846793005u + 1442695040888963407u;
        const int64_t first = (int64_t)(*random >> 33) % l->stages;
        bool moved = false;
        for (int64_t k = 0; k < l->stages && !moved; k++) {
            const int64_t i = (first + k) % l->stages;
            moved = (*random >> 62 & 1) ? goes_on(l, &l->at[i]) || passes(l, i)
                                        : passes(l, i) || goes_on(l, &l->at[i]);
        }
        idle = moved ? 0 : idle + 1;
    }
    for (int64_t i = 0; i < l->stages; i++) {
        cr_assert(l->at[i].over,
                  "%ld stages of %ld runs, %ld chunks, %ld in flight: stage %ld waits",
                  (long)l->stages, (long)l->runs, (long)l->chunks, (long)l->flight, (long)i);
        for (int64_t r = 0; r < l->runs; r++)
            cr_assert_eq(l->at[i].done[r], l->chunks);
    }
}

/* In turns: each group but the last takes a turn for each of its chunks and runs; in the last one
 * each run begins when the first of its chunks has come round. */
static int64_t least_time(const line *l) {
    const int64_t groups = (l->chunks - 1) / l->flight, last = l->chunks - groups * l->flight;
    const int64_t round = l->flight < l->stages ? l->stages : l->flight;
    return groups * l->runs * round + (l->runs - 1) * l->stages + last + l->stages - 1;
}

Test(pipeline, no_stages_wait_for_each_other_and_none_waits_long) {
    static line l;
    uint64_t random = 1;
    for (int64_t stages = 2; stages <= MOST_STAGES; stages++)
        for (int64_t runs = 1; runs <= MOST_RUNS; runs++)
            for (int64_t chunks = 1; chunks <= 3 * stages + 2; chunks++)
                for (int64_t flight = runs > 1 ? 1 : stages; flight <= stages; flight++) {
                    start(&l, stages, runs, chunks, flight);
                    run_line(&l, &random);
                    int64_t end = 0;
                    for (int64_t i = 0; i < stages; i++)
                        if (l.at[i].clock > end) end = l.at[i].clock;
                    const int64_t time = runs > 1 ? least_time(&l) : chunks + stages - 1;
                    cr_assert_leq(end, time,
                                  "%ld stages of %ld runs, %ld chunks, %ld in flight: "
                                  "%ld turns, not %ld",
                                  (long)stages, (long)runs, (long)chunks, (long)flight, (long)end,
                                  (long)time);
                }
}
