#include "inspect/plan.h"

#include "inspect/format.h"
#include "inspect/plan_rates.h"
#include "runtime/grid.h"
#include "runtime/pipeline.h"

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

/* The rows of a call of T tokens that the fullest rank has. */
static int64_t rows_of_rank(const plan_stage *stage, int64_t T) {
    const int64_t ranks = stage->m->ranks;
    return ranks && T >= stage->m->divide_from ? (T + ranks - 1) / ranks : T;
}

/* The agreement of all ranks at the beginning of a call, where there are several ranks or
 * stages. */
static plan_time agreement(const plan *p, const plan_shape *shape) {
    const bool alone = shape->ranks * shape->stages == 1;
    return (plan_time){.latency = alone ? 0 : p->host.fact[PLAN_LATENCY]};
}

/* ---- time ------------------------------------------------------------------------------------ */

static step_work work_of(const plan_stage *stage, const plan_step *s, int64_t T, int64_t past) {
    const int64_t rows = s->local ? rows_of_rank(stage, T) : T;
    return step_work_of(&s->work, rows, past + T - rows, 1);
}

/* What a step takes besides its work; a collective counts as a step. */
static double overhead(const plan *p) {
    return plan_overhead(p->host.fact[PLAN_BARRIER]);
}

/* One kernel in a pass of T tokens with `past` tokens before them. */
static plan_time kernel_time(const plan *p, const plan_stage *stage, const plan_step *s, int64_t T,
                             int64_t past, double read) {
    const step_work w = work_of(stage, s, T, past);
    const double arithmetic = w.flops / plan_rate(&p->host, stage, s, T > 1);
    const double memory = w.bytes / (read * plan_read_share(&p->host, s->matrix));
    plan_time t = {.overhead = w.flops + w.bytes > 0 ? overhead(p) : 0};
    *(arithmetic > memory ? &t.arithmetic : &t.memory) = arithmetic > memory ? arithmetic : memory;
    return t;
}

/* Bytes per second that a pass reads: caches still hold as much as fits in them since the pass
 * before, the rest comes from memory. */
static double read_rate(const plan *p, const plan_stage *stage, int64_t T, int64_t past) {
    const double *fact = p->host.fact, memory = fact[PLAN_READ];
    const double cached = fact[PLAN_CACHED] > memory ? fact[PLAN_CACHED] : memory;
    double bytes = 0;
    for (size_t i = 0; i < stage->steps.n; i++)
        bytes += work_of(stage, &stage->steps.at[i], T, past).bytes;
    const double held = bytes < fact[PLAN_CACHE] ? bytes : fact[PLAN_CACHE];
    return bytes > 0 ? bytes / (held / cached + (bytes - held) / memory) : memory;
}

/* Bytes cross the network, and before that the transport copies them, which takes time as well. */
static double link_time(const plan *p, double bytes) {
    return bytes > 0 ? bytes * 8 / p->host.fact[PLAN_NETWORK] : 0;
}

static double copying_time(const plan *p, double bytes) {
    const double transport = p->host.fact[PLAN_TRANSPORT];
    return bytes > 0 && transport > 0 ? bytes / transport : 0;
}

/* What a rank sends in a pass of T tokens, and how many messages have to wait for one another. */
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

/* ---- collectives overlapped with computing --------------------------------------------------- */

/* The overlaps of a pass, with all rows in one tile. */
typedef struct beside {
    plan_time kernels, collectives;
    double bytes;
    int64_t n; /* number of collectives */
} beside;

static int64_t tiles_of(const plan_stage *stage, const hrt_beside *b) {
    const bool divided = stage->m->ranks > 1 && b->tokens >= stage->m->divide_from;
    if (!divided || b->collectives == 0 || stage->tiles == 1) return 1;
    return stage->tiles ? stage->tiles : hrt_best_tiles(b);
}

/* Subtracts seconds from the parts of a time, in proportion. */
static plan_time without(plan_time t, double seconds) {
    const double all = plan_time_all(t);
    return all > 0 ? scaled(t, 1 - seconds / all) : t;
}

/* The time of the overlaps in as many tiles as the session would choose. The session measures a
 * collective as a whole; here the work of the CPU in it counts as computing, which cannot be
 * hidden. */
static plan_time beside_time(const plan *p, const plan_stage *stage, const beside *b, int64_t T) {
    const double latency = p->host.fact[PLAN_LATENCY];
    hrt_beside all = {.tokens = T,
                      .ranks = (int64_t)stage->m->ranks,
                      .compute = plan_time_all(b->kernels),
                      .collective = plan_time_all(b->collectives),
                      .latency = latency,
                      .collectives = b->n};
    const int64_t n = tiles_of(stage, &all);
    plan_time waits = {.latency = b->collectives.latency + (double)((n - 1) * b->n) * latency,
                       .network = link_time(p, b->bytes)};
    all.collective = b->collectives.latency + waits.network;
    const hrt_tiled t = hrt_in_tiles(&all, n);
    plan_time works = {.overhead = b->collectives.overhead};
    add(&works, scaled(b->kernels, all.compute > 0 ? t.compute / all.compute : 1));
    plan_time *shorter = t.compute > t.collective ? &waits : &works;
    *shorter = without(*shorter, t.hidden);
    add(&works, waits);
    works.network += copying_time(p, b->bytes);
    works.hidden = t.hidden;
    return works;
}

/* The time that a pipeline stage waits for messages of other stages in a pass: as long as the
 * sender takes, since both ends of a message finish together. */
static plan_time receiving_time(const plan *p, const plan_stage *stage, int64_t T) {
    plan_time sum = {0};
    for (size_t i = 0; i < stage->crossings.n; i++) {
        const hir_crossing *x = &stage->crossings.at[i].x;
        const double bytes = (double)hir_crossing_received(stage->m, x, 0, T, 1);
        if (bytes > 0) add(&sum, crossing_time(p, (sent){bytes, 1}));
    }
    return sum;
}

/* A pass through all steps of a pipeline stage. The time for receiving from other stages is left
 * out, since it is counted where the message is sent. *bytes: what leaves the rank. */
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
        add(c->beside ? &b.collectives : &sum, crossing_time(p, s));
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
                             kept * (double)others +
                             (double)s->pair_bytes * (double)chunk * (double)longest;
        const double all = (double)s->weight_bytes + states + arena;
        if (all <= (double)shape->bytes) continue;
        shape->weight_bytes = s->weight_bytes;
        shape->state_bytes = as_bytes(states);
        shape->arena_bytes = as_bytes(arena);
        shape->bytes = as_bytes(all);
    }
    shape->fits = (double)shape->bytes <= p->host.fact[PLAN_MEMORY];
}

/* All chunks through one pipeline stage; *received: the time for receiving, which is not in the
 * result. */
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

/* The time that the slowest stage waits because the last group of chunks is not full, as a multiple
 * of its time for one chunk (docs/many-machines.md, the turns of a pipeline). */
static double waits_in_last_group(const plan_shape *shape, int64_t chunks, int64_t runs) {
    const int64_t last = chunks % shape->stages;
    return last ? (double)((runs - 1) * (shape->stages - last)) / (double)runs : 0;
}

/* Prefill: the slowest stage for all chunks, plus for one chunk one layer range of each other
 * stage, on average. Stages send and receive at the same boundary, one after the other
 * (docs/many-machines.md, the turns of a pipeline), so a stage in the middle takes the time of two
 * messages for a chunk; but a chunk on its way through the stages waits for each message once. */
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

/* Decode: each token goes through all stages. */
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

/* Tries chunk sizes. Longer chunks read weights less often and need fewer collectives; shorter ones
 * fill a pipeline sooner and need less memory. */
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
        if (s->rejected) continue;
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

/* ---- for people ------------------------------------------------------------------------------ */

/* Says where the shares of the limits come from. */
static const char *what_is_reached(const plan *p, hd_arena *a) {
    const int known = plan_reached_known(&p->host), all = PLAN_FACTS - PLAN_REACHED;
    if (known == 0) return "reach shares of that as a table has them, of the slowest of three CPUs";
    if (known == all) return "reach shares of that as measured there";
    return hd_printf(
        a, "reach %d of %d shares of that as measured there, the others as a table has them", known,
        all);
}

static void describe_host(const plan *p, hd_text *out) {
    const double *f = p->host.fact;
    hd_text_f(out, "a host   %s of memory, %.4g GB/s from it, %.4g GFLOP/s",
              inspect_bytes(out->arena, (uint64_t)f[PLAN_MEMORY]), f[PLAN_READ] / 1e9,
              f[PLAN_FMA] / 1e9);
    if (f[PLAN_INT8] > 0) hd_text_f(out, ", %.4g Gop/s in bytes", f[PLAN_INT8] / 1e9);
    if (f[PLAN_TILES] > 0) hd_text_f(out, ", a matrix unit of %.4g GFLOP/s", f[PLAN_TILES] / 1e9);
    if (f[PLAN_NETWORK] > 0)
        hd_text_f(out, "\nnetwork  %.4g Gbit/s, %.4g us", f[PLAN_NETWORK] / 1e9,
                  f[PLAN_LATENCY] * 1e6);
    hd_text_f(out, "\nkernels  %s", what_is_reached(p, out->arena));
    hd_text_f(out, "\ncalls    a prompt of %lld token%s, a token after %lld\n\n",
              (long long)p->call.prompt, hd_s((uint64_t)p->call.prompt),
              (long long)p->call.position);
}

static const char *padded(hd_text *out, uint64_t bytes) {
    return hd_printf(out->arena, "%12s", inspect_bytes(out->arena, bytes));
}

/* Tokens per second: four digits, or all digits before the point if there are more. */
static void add_rate(hd_text *out, int width, double rate) {
    hd_text_f(out, rate < 1e4 ? "%*.4g" : "%*.0f", width, rate);
}

static void print_shape(const plan *p, const plan_shape *s, hd_text *out) {
    const size_t number = (size_t)(s - p->shapes.at);
    hd_text_f(out, "%5lld  %5lld x %-6lld", (long long)(s->ranks * s->stages), (long long)s->ranks,
              (long long)s->stages);
    if (s->rejected) {
        hd_text_f(out, "  %s\n", s->rejected);
        return;
    }
    hd_text_f(out, "%s%s%s%s", padded(out, s->weight_bytes), padded(out, s->state_bytes),
              padded(out, s->arena_bytes), padded(out, s->bytes));
    hd_text_f(out, "%s%s", padded(out, (uint64_t)s->prefill_crossing),
              padded(out, (uint64_t)s->decode_crossing));
    hd_text_f(out, "%9lld", (long long)s->chunk);
    add_rate(out, 11, s->prefill_rate);
    hd_text_f(out, "  %-10s", plan_binds(s->prefill));
    add_rate(out, 10, s->decode_rate);
    hd_text_f(out, "  %-10s", plan_binds(s->decode));
    hd_text_f(out, "%s%s%s\n", s->fits ? "" : "does not fit",
              number == p->best_prefill ? "best prefill" : "",
              number == p->best_decode ? number == p->best_prefill ? ", best decode" : "best decode"
                                       : "");
}

void plan_text(const plan *p, hd_text *out) {
    hd_text_f(out, "%s\n", p->model);
    describe_host(p, out);
    hd_text_add(out,
                "       ranks x       the fullest host holds                          "
                "leave a host for a token       of a  prefill               decode\n"
                "hosts  stages        weights      states       arena      in all"
                "     prefill      decode    chunk   tokens/s  held by    tokens/s  held by\n");
    for (size_t i = 0; i < p->shapes.n; i++)
        print_shape(p, &p->shapes.at[i], out);
    if (p->best_decode == p->shapes.n)
        hd_text_add(out, "\nno shape fits: more hosts, more memory, or smaller types "
                         "(--weights-dtype, --cache-dtype) are needed\n");
}

/* ---- for programs ---------------------------------------------------------------------------- */

static void number(hd_text *out, const char *key, double value, const char *after) {
    inspect_json_key(out, key);
    hd_text_double(out, value);
    hd_text_add(out, after);
}

static void print_time(hd_text *out, const char *key, plan_time t) {
    inspect_json_key(out, key);
    hd_text_add(out, "{");
    number(out, "arithmetic", t.arithmetic, ", ");
    number(out, "memory", t.memory, ", ");
    number(out, "overhead", t.overhead, ", ");
    number(out, "latency", t.latency, ", ");
    number(out, "network", t.network, ", ");
    number(out, "hidden", t.hidden, ", ");
    number(out, "all", plan_time_all(t), ", ");
    hd_text_f(out, "\"held_by\": \"%s\"}", plan_binds(t));
}

/* Prints how evenly the layers are divided. */
static void print_stages(hd_text *out, const plan_shape *s) {
    inspect_json_key(out, "stages_prefill_seconds");
    hd_text_add(out, "[");
    for (size_t i = 0; i < s->stage.n; i++) {
        hd_text_add(out, i ? ", " : "");
        hd_text_double(out, s->stage.at[i].prompt);
    }
    hd_text_add(out, "],\n     ");
}

static void json_shape(const plan *p, size_t i, hd_text *out) {
    const plan_shape *s = &p->shapes.at[i];
    hd_text_f(out, "%s\n    {\"hosts\": %lld, \"ranks\": %lld, \"stages\": %lld, ", i ? "," : "",
              (long long)(s->ranks * s->stages), (long long)s->ranks, (long long)s->stages);
    if (s->rejected) {
        inspect_json_key(out, "refused");
        inspect_json_string(out, s->rejected);
        hd_text_add(out, "}");
        return;
    }
    hd_text_f(out, "\"fits\": %s, \"chunk\": %lld,\n     \"bytes\": {", s->fits ? "true" : "false",
              (long long)s->chunk);
    number(out, "weights", (double)s->weight_bytes, ", ");
    number(out, "states", (double)s->state_bytes, ", ");
    number(out, "arena", (double)s->arena_bytes, ", ");
    number(out, "all", (double)s->bytes, "}, ");
    hd_text_add(out, "\"leave_a_host_for_a_token\": {");
    number(out, "prefill", s->prefill_crossing, ", ");
    number(out, "decode", s->decode_crossing, "},\n     ");
    print_time(out, "prefill_seconds", s->prefill);
    hd_text_add(out, ", ");
    number(out, "prefill_tokens_per_second", s->prefill_rate, ",\n     ");
    print_stages(out, s);
    print_time(out, "decode_seconds", s->decode);
    hd_text_add(out, ", ");
    number(out, "decode_tokens_per_second", s->decode_rate, "}");
}

static void print_best(const plan *p, const char *key, size_t best, hd_text *out) {
    inspect_json_key(out, key);
    if (best < p->shapes.n)
        hd_text_f(out, "%zu", best);
    else
        hd_text_add(out, "null");
}

/* Of the shares that kernels reach, only those known of the host are printed: the others come from
 * the table. */
static void print_host(const plan *p, hd_text *out) {
    const char *between = "";
    for (int f = 0; f < PLAN_REACHED; f++)
        number(out, plan_fact_name((plan_fact)f), p->host.fact[f], ", ");
    hd_text_add(out, "\"reached\": {");
    for (int f = PLAN_REACHED; f < PLAN_FACTS; f++) {
        if (p->host.fact[f] <= 0) continue;
        hd_text_add(out, between);
        number(out, plan_fact_key((plan_fact)f), p->host.fact[f], "");
        between = ", ";
    }
    hd_text_add(out, "}},\n  ");
}

void plan_json(const plan *p, hd_text *out) {
    hd_text_add(out, "{\"schema\": \"hadal-plan-1\", ");
    inspect_json_key(out, "model");
    inspect_json_string(out, p->model);
    hd_text_add(out, ",\n  \"host\": {");
    print_host(p, out);
    hd_text_f(out, "\"prompt\": %lld, \"position\": %lld,\n  \"shapes\": [",
              (long long)p->call.prompt, (long long)p->call.position);
    for (size_t i = 0; i < p->shapes.n; i++)
        json_shape(p, i, out);
    hd_text_add(out, "],\n  ");
    print_best(p, "best_prefill", p->best_prefill, out);
    hd_text_add(out, ", ");
    print_best(p, "best_decode", p->best_decode, out);
    hd_text_add(out, "}\n");
}
