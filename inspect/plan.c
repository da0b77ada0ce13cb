#include "inspect/plan_rates.h"

#include "runtime/pipeline.h"
#include "runtime/tile_time.h"

/* ---- times ----------------------------------------------------------------------------------- */

static void add(plan_time *sum, plan_time t) {
    sum->arithmetic += t.arithmetic;
    sum->memory += t.memory;
    sum->overhead += t.overhead;
    sum->latency += t.latency;
    sum->network += t.network;
    sum->hidden += t.hidden;
}

static plan_time scaled(plan_time t, double by) {
    return (plan_time){t.arithmetic * by, t.memory * by,  t.overhead * by,
                       t.latency * by,    t.network * by, t.hidden * by};
}

double plan_time_all(plan_time t) {
    return t.arithmetic + t.memory + t.overhead + t.latency + t.network;
}

const char *plan_binds(plan_time t) {
    const double parts[] = {t.arithmetic, t.memory, t.overhead, t.latency, t.network};
    static const char *const names[] = {"arithmetic", "memory", "overhead", "latency", "network"};
    size_t most = 0;
    for (size_t i = 1; i < sizeof parts / sizeof *parts; i++)
        if (parts[i] > parts[most]) most = i;
    return names[most];
}

/* Of a call of T: as many as the rank has that has most. */
static int64_t rows_of_rank(const plan_stage *stage, int64_t T) {
    const int64_t ranks = stage->m->ranks;
    return ranks && T >= stage->m->divide_from ? (T + ranks - 1) / ranks : T;
}

/* What a call begins with where there are several ranks or stages. */
static plan_time agreement(const plan *p, const plan_shape *shape) {
    const bool alone = shape->ranks * shape->stages == 1;
    return (plan_time){.latency = alone ? 0 : p->host.fact[PLAN_LATENCY]};
}

/* ---- time ------------------------------------------------------------------------------------ */

static step_work work_of(const plan_stage *stage, const plan_step *s, int64_t T, int64_t past) {
    const int64_t rows = s->local ? rows_of_rank(stage, T) : T;
    return step_work_of(&s->work, rows, past + T - rows, 1);
}

/* What a step takes besides its work; an exchange is one like others. */
static double overhead(const plan *p) {
    return plan_overhead(p->host.fact[PLAN_BARRIER]);
}

/* One kernel in a pass of T tokens behind `past` others. */
static plan_time kernel_time(const plan *p, const plan_stage *stage, const plan_step *s, int64_t T,
                             int64_t past, double read) {
    const step_work w = work_of(stage, s, T, past);
    const double arithmetic = w.flops / plan_rate(&p->host, stage, s, T > 1);
    const double memory = w.bytes / (read * plan_read_share(&p->host, s->matrix));
    plan_time t = {.overhead = w.flops + w.bytes > 0 ? overhead(p) : 0};
    *(arithmetic > memory ? &t.arithmetic : &t.memory) = arithmetic > memory ? arithmetic : memory;
    return t;
}

/* Bytes per second that a pass reads: as much as caches hold is there since the pass before, the
 * rest comes from memory. */
static double read_rate(const plan *p, const plan_stage *stage, int64_t T, int64_t past) {
    const double *fact = p->host.fact, memory = fact[PLAN_READ];
    const double cached = fact[PLAN_CACHED] > memory ? fact[PLAN_CACHED] : memory;
    double bytes = 0;
    for (size_t i = 0; i < stage->steps.n; i++)
        bytes += work_of(stage, &stage->steps.at[i], T, past).bytes;
    const double held = bytes < fact[PLAN_CACHE] ? bytes : fact[PLAN_CACHE];
    return bytes > 0 ? bytes / (held / cached + (bytes - held) / memory) : memory;
}

/* Bytes go over the link, and through the transport, which takes its time by copying them. */
static double link_time(const plan *p, double bytes) {
    return bytes > 0 ? bytes * 8 / p->host.fact[PLAN_NETWORK] : 0;
}

static double copying_time(const plan *p, double bytes) {
    const double transport = p->host.fact[PLAN_TRANSPORT];
    return bytes > 0 && transport > 0 ? bytes / transport : 0;
}

/* What leaves a rank in a pass of T tokens, and the messages that wait for each other. */
typedef struct sent {
    double bytes;
    int messages;
} sent;

static sent sent_in(const plan_stage *stage, const plan_crossing *c, int64_t T) {
    return (sent){(double)hir_crossing_sent(stage->m, &c->x, 0, T, 1),
                  hir_crossing_messages(stage->m, &c->x, T, 1)};
}

static plan_time crossing_time(const plan *p, sent s) {
    return (plan_time){.overhead = s.messages ? overhead(p) : 0,
                       .latency = s.messages * p->host.fact[PLAN_LATENCY],
                       .network = link_time(p, s.bytes) + copying_time(p, s.bytes)};
}

/* ---- computing beside exchanges -------------------------------------------------------------- */

/* The overlaps of a pass, all rows at once. */
typedef struct beside {
    plan_time kernels, exchanges;
    double bytes;
    int64_t n; /* exchanges */
} beside;

static int64_t tiles_of(const plan_stage *stage, const hrt_beside *b) {
    const bool divided = stage->m->ranks > 1 && b->tokens >= stage->m->divide_from;
    if (!divided || b->exchanges == 0 || stage->tiles == 1) return 1;
    return stage->tiles ? stage->tiles : hrt_best_tiles(b);
}

/* Takes seconds off the parts of a time, in proportion. */
static plan_time without(plan_time t, double seconds) {
    const double all = plan_time_all(t);
    return all > 0 ? scaled(t, 1 - seconds / all) : t;
}

/* The overlaps in as many tiles as the session would choose, which measures an exchange as a whole;
 * what the CPU does in it is computing. */
static plan_time beside_time(const plan *p, const plan_stage *stage, const beside *b, int64_t T) {
    const double latency = p->host.fact[PLAN_LATENCY];
    hrt_beside all = {.tokens = T,
                      .ranks = (int64_t)stage->m->ranks,
                      .compute = plan_time_all(b->kernels),
                      .exchange = plan_time_all(b->exchanges),
                      .latency = latency,
                      .exchanges = b->n};
    const int64_t n = tiles_of(stage, &all);
    plan_time waits = {.latency = b->exchanges.latency + (double)((n - 1) * b->n) * latency,
                       .network = link_time(p, b->bytes)};
    all.exchange = b->exchanges.latency + waits.network;
    const hrt_tiled t = hrt_in_tiles(&all, n);
    plan_time works = {.overhead = b->exchanges.overhead};
    add(&works, scaled(b->kernels, all.compute > 0 ? t.compute / all.compute : 1));
    plan_time *shorter = t.compute > t.exchange ? &waits : &works;
    *shorter = without(*shorter, t.hidden);
    add(&works, waits);
    works.network += copying_time(p, b->bytes);
    works.hidden = t.hidden;
    return works;
}

/* What a stage waits for the messages of another one in a pass: as long as that one sends them,
 * since a message is no further on one side than on the other. */
static plan_time receiving_time(const plan *p, const plan_stage *stage, int64_t T) {
    plan_time sum = {0};
    for (size_t i = 0; i < stage->crossings.n; i++) {
        const hir_crossing *x = &stage->crossings.at[i].x;
        const double bytes = (double)hir_crossing_received(stage->m, x, 0, T, 1);
        if (bytes > 0) add(&sum, crossing_time(p, (sent){bytes, 1}));
    }
    return sum;
}

/* A pass through all steps, but for what it receives of other stages, which is counted where it is
 * sent; *bytes: what leaves the rank. */
static plan_time stage_time(const plan *p, const plan_stage *stage, int64_t T, int64_t past,
                            double *bytes) {
    plan_time sum = {0};
    beside b = {0};
    const double read = read_rate(p, stage, T, past);
    for (size_t i = 0; i < stage->steps.n; i++) {
        const plan_step *s = &stage->steps.at[i];
        add(s->beside ? &b.kernels : &sum, kernel_time(p, stage, s, T, past, read));
    }
    for (size_t i = 0; i < stage->crossings.n; i++) {
        const plan_crossing *c = &stage->crossings.at[i];
        const sent s = sent_in(stage, c, T);
        *bytes += s.bytes;
        add(c->beside ? &b.exchanges : &sum, crossing_time(p, s));
        if (!c->beside) continue;
        b.bytes += s.bytes;
        b.n++;
    }
    add(&sum, beside_time(p, stage, &b, T));
    return sum;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static uint64_t as_bytes(double x) {
    return x < 0x1p63 ? (uint64_t)x : UINT64_MAX;
}

static void count_memory(const plan *p, plan_shape *shape) {
    const int64_t longest =
        p->call.position + 1 > p->call.prompt ? p->call.position + 1 : p->call.prompt;
    const int64_t chunk = shape->chunk < longest ? shape->chunk : longest;
    const int64_t others = hrt_chunks_in_flight(longest, chunk, shape->stages) - 1;
    shape->bytes = 0;
    for (size_t i = 0; i < shape->stage.n; i++) {
        const plan_stage *s = &shape->stage.at[i];
        const double states =
            (double)s->state_bytes * (double)longest + (double)s->fixed_state_bytes;
        const int64_t local = rows_of_rank(s, chunk);
        const double kept =
            (double)s->arena_kept * (double)chunk + (double)s->local_kept * (double)local;
        const double arena = (double)s->arena_per_token * (double)chunk +
                             (double)s->local_per_token * (double)local + (double)s->fixed_bytes +
                             kept * (double)others;
        const double all = (double)s->weight_bytes + states + arena;
        if (all <= (double)shape->bytes) continue;
        shape->weight_bytes = s->weight_bytes;
        shape->state_bytes = as_bytes(states);
        shape->arena_bytes = as_bytes(arena);
        shape->bytes = as_bytes(all);
    }
    shape->fits = (double)shape->bytes <= p->host.fact[PLAN_MEMORY];
}

/* All chunks through one stage; *received: that it receives them is no part of it. */
static plan_time prompt_time(const plan *p, const plan_stage *s, int64_t chunk, double *bytes,
                             plan_time *received) {
    plan_time sum = {0};
    *received = (plan_time){0};
    for (int64_t past = 0; past < p->call.prompt; past += chunk) {
        const int64_t left = p->call.prompt - past;
        const int64_t T = left < chunk ? left : chunk;
        add(&sum, stage_time(p, s, T, past, bytes));
        add(received, receiving_time(p, s, T));
    }
    return sum;
}

/* Of the slowest stage's time for a chunk, what it waits because the last group of chunks is not
 * full (docs/decisions/interleaved-chunks.md). */
static double waits_in_last_group(const plan_shape *shape, int64_t chunks, int64_t runs) {
    const int64_t last = chunks % shape->stages;
    return last ? (double)((runs - 1) * (shape->stages - last)) / (double)runs : 0;
}

/* The slowest stage for all chunks, and a run of each of the others for one, in the mean. Stages
 * send and receive at the same boundary, one after the other
 * (docs/decisions/interleaved-chunks.md), so a stage in the middle takes two messages' time for a
 * chunk; but on its way through the stages a chunk meets each message once. */
static void predict_prefill(const plan *p, plan_shape *shape) {
    const int64_t runs =
        shape->stage.n && shape->stage.at[0].runs > 1 ? shape->stage.at[0].runs : 1;
    const int64_t whole = (p->call.prompt + shape->chunk - 1) / shape->chunk;
    const double chunks = (double)whole;
    plan_time slowest = {0}, all = {0};
    shape->prefill_crossing = 0;
    for (size_t i = 0; i < shape->stage.n; i++) {
        double bytes = 0;
        plan_time received;
        const plan_time t = prompt_time(p, &shape->stage.at[i], shape->chunk, &bytes, &received);
        add(&all, t);
        add(&received, t);
        shape->stage.at[i].prompt = plan_time_all(received);
        if (plan_time_all(received) > plan_time_all(slowest)) slowest = received;
        if (bytes > shape->prefill_crossing) shape->prefill_crossing = bytes;
    }
    shape->prefill_crossing /= (double)p->call.prompt;
    shape->prefill = agreement(p, shape);
    add(&shape->prefill, slowest);
    add(&shape->prefill, scaled(all, 1 / chunks / (double)runs));
    add(&shape->prefill, scaled(slowest, -1 / chunks / (double)runs));
    add(&shape->prefill, scaled(slowest, waits_in_last_group(shape, whole, runs) / chunks));
    shape->prefill_rate = (double)p->call.prompt / plan_time_all(shape->prefill);
}

/* A token goes through all stages. */
static void predict_decode(const plan *p, plan_shape *shape) {
    shape->decode = agreement(p, shape);
    for (size_t i = 0; i < shape->stage.n; i++) {
        double bytes = 0;
        add(&shape->decode, stage_time(p, &shape->stage.at[i], 1, p->call.position, &bytes));
        if (bytes > shape->decode_crossing) shape->decode_crossing = bytes;
    }
    shape->decode_rate = 1 / plan_time_all(shape->decode);
}

static void predict_with(const plan *p, plan_shape *shape, int64_t chunk) {
    shape->chunk = chunk;
    count_memory(p, shape);
    predict_prefill(p, shape);
}

/* Longer chunks read weights less often and make fewer exchanges; shorter ones fill a pipeline
 * sooner and need less memory. */
static void choose_chunk(const plan *p, plan_shape *shape) {
    int64_t best = PLAN_SHORTEST_CHUNK;
    double most = 0;
    for (int64_t chunk = best; chunk < 2 * p->call.prompt; chunk *= 2) {
        predict_with(p, shape, chunk);
        if (!shape->fits || shape->prefill_rate <= most) continue;
        most = shape->prefill_rate;
        best = chunk;
    }
    predict_with(p, shape, best);
}

void plan_predict(plan *p) {
    p->best_prefill = p->best_decode = p->shapes.n;
    for (size_t i = 0; i < p->shapes.n; i++) {
        plan_shape *s = &p->shapes.at[i];
        if (s->refused) continue;
        if (p->call.chunk)
            predict_with(p, s, p->call.chunk);
        else
            choose_chunk(p, s);
        predict_decode(p, s);
        if (!s->fits) continue;
        const size_t none = p->shapes.n;
        if (p->best_prefill == none || s->prefill_rate > p->shapes.at[p->best_prefill].prefill_rate)
            p->best_prefill = i;
        if (p->best_decode == none || s->decode_rate > p->shapes.at[p->best_decode].decode_rate)
            p->best_decode = i;
    }
}
