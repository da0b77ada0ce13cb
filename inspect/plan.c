#include "inspect/plan.h"

static const double share[] = {
#define S(id, value, text) value,
#include "inspect/plan_shares.def"
#undef S
};
enum {
#define S(id, value, text) SHARE_##id,
#include "inspect/plan_shares.def"
#undef S
};

/* ---- steps ----------------------------------------------------------------------------------- */

/* Operations per second in products with a matrix so stored. One row is a matrix-vector product,
 * which no unit but that of multiply-adds is tried for: memory holds it up. */
static double rate(const plan *p, const plan_stage *stage, const plan_step *s, bool many) {
    const double *fact = p->host.fact;
    const hir_dtype matrix = s->matrix;
    double best = fact[PLAN_FMA] * share[SHARE_FMA];
    if (many && s->work.pair_flops) return fact[PLAN_FMA] * share[SHARE_ATTEND];
    const bool groups = matrix == HIR_Q8 || matrix == HIR_Q4 || matrix == HIR_MXFP4;
    const bool bytes = stage->int8 && groups, pairs = stage->bf16 && matrix == HIR_BF16;
    const double ways[] = {
        bytes ? fact[PLAN_INT8] * share[SHARE_INT8] : 0,
        pairs ? fact[PLAN_BF16] * share[SHARE_BF16] : 0,
        pairs && many ? fact[PLAN_TILES] * share[SHARE_TILES] : 0,
        matrix == HIR_BF16 && many ? fact[PLAN_TILES] * share[SHARE_EXACT] : 0,
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (ways[i] > best) best = ways[i];
    return best;
}

static void add(plan_time *sum, plan_time t) {
    sum->arithmetic += t.arithmetic;
    sum->memory += t.memory;
    sum->overhead += t.overhead;
    sum->latency += t.latency;
    sum->network += t.network;
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

/* What a kernel takes besides its work; an exchange is a step like others. */
static double overhead(const plan *p) {
    return share[SHARE_BEGIN] + p->host.fact[PLAN_BARRIER];
}

/* One kernel in a pass of T tokens behind `past` others. */
static plan_time kernel_time(const plan *p, const plan_stage *stage, const plan_step *s, int64_t T,
                             int64_t past, double read) {
    const step_work w = work_of(stage, s, T, past);
    const double arithmetic = w.flops / rate(p, stage, s, T > 1);
    const double memory = w.bytes / (read * share[SHARE_READ]);
    plan_time t = {.overhead = w.flops + w.bytes > 0 ? overhead(p) : 0};
    *(arithmetic > memory ? &t.arithmetic : &t.memory) = arithmetic > memory ? arithmetic : memory;
    return t;
}

/* Where a pass finds what it reads: in caches, if all of it stays there until the next. */
static double read_rate(const plan *p, const plan_stage *stage, int64_t T, int64_t past) {
    const double *fact = p->host.fact;
    double bytes = 0;
    for (size_t i = 0; i < stage->steps.n; i++)
        bytes += work_of(stage, &stage->steps.at[i], T, past).bytes;
    return bytes <= fact[PLAN_CACHE] && fact[PLAN_CACHED] > fact[PLAN_READ] ? fact[PLAN_CACHED]
                                                                            : fact[PLAN_READ];
}

/* Bytes go through the transport, which takes its time by copying them, and over the link. */
static double network_time(const plan *p, double bytes) {
    const double transport = p->host.fact[PLAN_TRANSPORT];
    if (bytes <= 0) return 0;
    return bytes * 8 / p->host.fact[PLAN_NETWORK] + (transport > 0 ? bytes / transport : 0);
}

static plan_time crossing_time(const plan *p, const plan_stage *stage, const hir_crossing *x,
                               int64_t T, double *bytes) {
    const double sent = (double)hir_crossing_sent(stage->m, x, 0, T, 1);
    const int messages = hir_crossing_messages(stage->m, x, T, 1);
    *bytes += sent;
    return (plan_time){.overhead = messages ? overhead(p) : 0,
                       .latency = messages * p->host.fact[PLAN_LATENCY],
                       .network = network_time(p, sent)};
}

/* A pass through all steps; *bytes: what leaves the rank. */
static plan_time stage_time(const plan *p, const plan_stage *stage, int64_t T, int64_t past,
                            double *bytes) {
    plan_time sum = {0};
    const double read = read_rate(p, stage, T, past);
    for (size_t i = 0; i < stage->steps.n; i++)
        add(&sum, kernel_time(p, stage, &stage->steps.at[i], T, past, read));
    for (size_t i = 0; i < stage->crossings.list.n; i++)
        add(&sum, crossing_time(p, stage, &stage->crossings.list.at[i], T, bytes));
    return sum;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static uint64_t as_bytes(double x) {
    return x < 0x1p63 ? (uint64_t)x : UINT64_MAX;
}

static void count_memory(const plan *p, plan_shape *shape) {
    const int64_t longest =
        p->call.position + 1 > p->call.prompt ? p->call.position + 1 : p->call.prompt;
    const int64_t chunk = p->call.chunk < longest ? p->call.chunk : longest;
    const int64_t chunks = (longest + chunk - 1) / chunk;
    const int64_t others = (chunks < shape->stages ? chunks : shape->stages) - 1; /* in flight */
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

/* All chunks through one stage. */
static plan_time prompt_time(const plan *p, const plan_stage *s, double *bytes) {
    plan_time sum = {0};
    for (int64_t past = 0; past < p->call.prompt; past += p->call.chunk) {
        const int64_t left = p->call.prompt - past;
        const int64_t T = left < p->call.chunk ? left : p->call.chunk;
        add(&sum, stage_time(p, s, T, past, bytes));
    }
    return sum;
}

static plan_time scaled(plan_time t, double by) {
    return (plan_time){t.arithmetic * by, t.memory * by, t.overhead * by, t.latency * by,
                       t.network * by};
}

/* Of the slowest stage's time for a chunk, what it waits because the last group of chunks is not
 * full (docs/decisions/interleaved-chunks.md). */
static double waits_in_last_group(const plan_shape *shape, int64_t chunks, int64_t runs) {
    const int64_t last = chunks % shape->stages;
    return last ? (double)((runs - 1) * (shape->stages - last)) / (double)runs : 0;
}

/* The slowest stage for all chunks, and a run of each of the others for one, in the mean. */
static void predict_prefill(const plan *p, plan_shape *shape) {
    const int64_t runs =
        shape->stage.n && shape->stage.at[0].runs > 1 ? shape->stage.at[0].runs : 1;
    const int64_t whole = (p->call.prompt + p->call.chunk - 1) / p->call.chunk;
    const double chunks = (double)whole;
    plan_time slowest = {0}, all = {0};
    for (size_t i = 0; i < shape->stage.n; i++) {
        double bytes = 0;
        const plan_time t = prompt_time(p, &shape->stage.at[i], &bytes);
        if (plan_time_all(t) > plan_time_all(slowest)) slowest = t;
        if (bytes > shape->prefill_crossing) shape->prefill_crossing = bytes;
        add(&all, t);
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

void plan_predict(plan *p) {
    p->best_prefill = p->best_decode = p->shapes.n;
    for (size_t i = 0; i < p->shapes.n; i++) {
        plan_shape *s = &p->shapes.at[i];
        if (s->refused) continue;
        count_memory(p, s);
        predict_prefill(p, s);
        predict_decode(p, s);
        if (!s->fits) continue;
        const size_t none = p->shapes.n;
        if (p->best_prefill == none || s->prefill_rate > p->shapes.at[p->best_prefill].prefill_rate)
            p->best_prefill = i;
        if (p->best_decode == none || s->decode_rate > p->shapes.at[p->best_decode].decode_rate)
            p->best_decode = i;
    }
}
