#include "api/machine_kernels.h"

#include <string.h>

#include "api/machine_models.h"
#include "api/plan.h"
#include "inspect/format.h"
#include "inspect/plan_rates.h"

enum { MEASURED = PLAN_FACTS - PLAN_REACHED };

/* ---- one call -------------------------------------------------------------------------------- */

typedef struct done { /* what belongs to one fact: flops or bytes of its steps, and their seconds */
    double work, seconds;
} done;

typedef struct call {
    machine_model *model;
    plan_calls calls; /* the kind of products that the call measures */
    int64_t tokens, past;
    int times;
} call;

enum { MOST_CALLS = 100 };

typedef struct timed { /* of all calls of one kind, one after the other */
    step_time *steps;
    size_t n_steps; /* of all calls together */
    double own[MOST_CALLS];
    bool whole; /* most steps run without interruption */
    float *logits;
} timed;

static bool is_rounded(const machine_model *m, hir_dtype matrix) {
    return plan_may_round(matrix, m->rounds_int8, m->rounds_bf16);
}

/* The fact that a step measures; PLAN_FACTS: none. Attention counts only in calls of many rows. */
static plan_fact fact_of(const call *c, const plan_step *s) {
    if (s->other) return PLAN_FACTS;
    if (!s->work.pair_flops)
        return plan_reached(c->calls, s->matrix, is_rounded(c->model, s->matrix));
    return c->calls == PLAN_CALLS_MANY ? plan_reached(PLAN_CALLS_ATTENTION, HIR_F32, false)
                                       : PLAN_FACTS;
}

/* Seconds of a step without the time in which other programs had the CPUs. The steps of one token
 * are so short that most are not interrupted, so the median counts; steps of a prompt are, so the
 * mean of the call's own time counts. Turns of other ranks are part of it, as they are of the
 * limits. The overhead that is subtracted is at most half of the time. 0: no call counts. */
static double seconds_of(const call *c, const timed *t, size_t step, double overhead) {
    samples all = {0};
    double sum = 0;
    for (int k = 0; k < c->times; k++) {
        const step_time *s = &t->steps[(size_t)k * c->model->library.info->n_steps + step];
        const double x = 1e-9 * (double)(s->work_ns + s->wait_ns) * t->own[k];
        if (x > 0) sample(&all, x), sum += x;
    }
    if (all.n == 0) return 0;
    const double x = t->whole ? median(&all) : sum / (double)all.n, rest = x - overhead;
    return rest > x / 2 ? rest : x / 2;
}

/* The work of a step in a call, in the unit of the limit that the fact is a share of. */
static double work_of(const call *c, const plan_step *s) {
    const step_work w = step_work_of(&s->work, c->tokens, c->past, c->tokens);
    return c->calls == PLAN_CALLS_READ ? w.bytes : w.flops;
}

static void collect(const call *c, const timed *t, double overhead, done *out) {
    const hcg_program *p = c->model->program;
    for (size_t i = 0; i < p->steps.n; i++) {
        const plan_step s = api_plan_step(p, i);
        const plan_fact f = fact_of(c, &s);
        if (f == PLAN_FACTS) continue;
        out[f - PLAN_REACHED].work += work_of(c, &s);
        out[f - PLAN_REACHED].seconds += seconds_of(c, t, i, overhead);
    }
}

/* The share of the wall-clock time that is the call's own. On one thread it is the time for which
 * the thread had a CPU, by which limits are taken as well. Several threads wait for each other, so
 * the call counts only if all of them had CPUs nearly all the time. Ranks take turns, and measure
 * limits over several turns. */
static double own_share(const call *c, const machine *m, double wall, double cpus) {
    const double had = cpus / wall / machine_threads(m), least = 0.95;
    if (machine_is_shared(m) || c->tokens == 1) return 1;
    if (machine_threads(m) == 1) return had < 1 ? had : 1;
    return had >= least;
}

static bool forward_once(const call *c, step_time *steps, float *logits) {
    const api_library *l = &c->model->library;
    int32_t tokens[MACHINE_PROMPT];
    for (int i = 0; i < MACHINE_PROMPT; i++)
        tokens[i] = i * 37 % 512;
    return l->session_rewind(l->session, c->past) == 0 &&
           l->session_profile(l->session, steps, l->info->n_steps) == 0 &&
           l->forward(l->session, tokens, c->tokens, logits, c->tokens) == 0 &&
           l->session_profile(l->session, NULL, 0) == 0;
}

static bool forward(const call *c, const machine *m, timed *t) {
    t->whole = c->tokens == 1 && !machine_is_shared(m);
    for (int k = 0; k < c->times; k++) {
        step_time *steps = t->steps + (size_t)k * c->model->library.info->n_steps;
        const double wall = now(ON_THE_WALL), cpus = cpu_seconds();
        if (!forward_once(c, steps, t->logits)) return false;
        t->own[k] = own_share(c, m, now(ON_THE_WALL) - wall, cpu_seconds() - cpus);
    }
    return true;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

typedef struct kernels {
    machine *m;
    machine_model model[MACHINE_MODELS];
    double overhead;
    timed timed;
    samples share[MEASURED], limit[LIMIT_COUNT];
} kernels;

/* Allocates memory for the calls of any of the models. */
static void make_room(timed *t, const machine_model *models, hd_arena *a) {
    size_t row = 0;
    for (int i = 0; i < MACHINE_MODELS; i++) {
        const hd_info *info = models[i].library.info;
        if (info->n_steps * MOST_CALLS > t->n_steps) t->n_steps = info->n_steps * MOST_CALLS;
        if (api_logits_row(info) > row) row = api_logits_row(info);
    }
    t->steps = hd_new_array(a, step_time, t->n_steps);
    t->logits = hd_new_array(a, float, MACHINE_PROMPT *row);
}

static bool run(kernels *k, const call *c, done *out) {
    memset(k->timed.steps, 0, k->timed.n_steps * sizeof *k->timed.steps);
    if (!forward(c, k->m, &k->timed)) return false;
    collect(c, &k->timed, k->overhead, out);
    return true;
}

/* Runs all calls of a round. The prompt is read in parts, whose steps take some milliseconds
 * each. */
static bool run_all(kernels *k, done *out) {
    enum { PART = 128, BEHIND = MACHINE_PROMPT - PART };
    machine_model *large = &k->model[MACHINE_MODEL_LARGE], *small = &k->model[MACHINE_MODEL_SMALL];
    const call calls[] = {
        {large, PLAN_CALLS_MANY, PART, BEHIND, 5},
        {large, PLAN_CALLS_READ, 1, BEHIND, 15},
        {&k->model[MACHINE_MODEL_OTHER], PLAN_CALLS_MANY, PART, 0, 5},
        {small, PLAN_CALLS_ROW, 1, 0, MOST_CALLS},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (!run(k, &calls[i], out)) return false;
    return true;
}

/* Runs all calls once, which touches memory and fills caches of keys and values. */
static bool run_first(kernels *k) {
    done none[MEASURED] = {0};
    const call whole = {&k->model[MACHINE_MODEL_LARGE], PLAN_CALLS_MANY, MACHINE_PROMPT, 0, 1};
    return run(k, &whole, none) && run_all(k, none);
}

static limit limit_of(int fact) {
    const bool reads = fact + PLAN_REACHED >= PLAN_READ_F32;
    return reads ? LIMIT_READ : LIMIT_FMA;
}
_Static_assert(PLAN_READ_MXFP4 == PLAN_FACTS - 1, "shares of `memory read` are the last facts");

/* Adds a round. The limit is the higher one of those sampled before and after it, since one of the
 * two may have been disturbed. */
static void take_round(kernels *k, const done *d, const double *before) {
    double of[LIMIT_COUNT];
    for (int l = 0; l < LIMIT_COUNT; l++) {
        const double after = machine_latest(k->m, (limit)l);
        of[l] = before[l] > after ? before[l] : after;
        sample(&k->limit[l], of[l]);
    }
    for (int i = 0; i < MEASURED; i++) {
        const double limit = of[limit_of(i)];
        const bool known = d[i].seconds > 0 && limit > 0;
        sample(&k->share[i], machine_of_ranks(k->m, known ? d[i].work / d[i].seconds / limit : 0));
    }
}

/* Ends the measurement where the machine is too busy for rounds to count: then those that there are
 * have to do. */
static bool is_over(const kernels *k, double begun) {
    const double most = machine_is_shared(k->m) ? 8 : 3; /* seconds; ranks take turns */
    const double passed = machine_of_ranks(k->m, now(ON_THE_WALL) - begun);
    return passed <= 0 || passed > most;
}

/* Runs the rounds. All ranks make the same calls, also if one of them has failed. */
static bool run_rounds(kernels *k, rounds *r, bool ok) {
    enum { WANTED = 4 };
    const double begun = now(ON_THE_WALL);
    ok = ok && run_first(k);
    rounds_begin(r, k->m, WANTED);
    for (bool more = rounds_next(r); more;) {
        done d[MEASURED] = {0};
        double before[LIMIT_COUNT];
        for (int l = 0; l < LIMIT_COUNT; l++)
            before[l] = machine_latest(k->m, (limit)l);
        ok = ok && run_all(k, d);
        more = rounds_next(r);
        take_round(k, d, before);
        if (!more || !is_over(k, begun)) continue;
        r->n--; /* the round was begun, but not run */
        break;
    }
    return ok;
}

/* A share that no kernel reaches: above it, something slowed down the measurement of the limit. */
static double most_of(limit l) {
    return l == LIMIT_READ ? 1.2 : 50;
}

/* The median share of a fact; 0: the share or its limit differed from round to round, or was hardly
 * measured at all. */
static double settled(const kernels *k, int fact) {
    const limit l = limit_of(fact);
    const double most = 0.1;
    samples s = {0};
    for (size_t i = 0; i < k->share[fact].n; i++)
        if (k->share[fact].at[i] > 0) sample(&s, k->share[fact].at[i]);
    const bool quiet = s.n > 1 && spread(&s) <= most && spread(&k->limit[l]) <= most;
    return quiet && median(&s) <= most_of(l) ? median(&s) : 0;
}

/* Measures on so many threads. False: a call failed. */
static bool measure_on(kernels *k, int threads, rounds *r, double *share) {
    memset(k->share, 0, sizeof k->share);
    memset(k->limit, 0, sizeof k->limit);
    machine_use(k->m, threads);
    bool ok = true;
    for (int i = 0; i < MACHINE_MODELS; i++) {
        const api_library *l = &k->model[i].library;
        ok = ok && l->session_set_threads(l->session, threads) == 0;
    }
    ok = run_rounds(k, r, ok);
    for (int l = 0; l < LIMIT_COUNT; l++)
        rounds_keep(r, &k->limit[l]);
    for (int i = 0; i < MEASURED; i++) {
        rounds_keep(r, &k->share[i]);
        share[i] = settled(k, i);
    }
    return ok;
}

/* One thread is measured correctly however busy the machine is, and its share is used for several
 * threads where their measurement was disturbed. */
static bool measure_both(kernels *k, rounds *r, machine_kernels *out) {
    const int threads = machine_threads(k->m);
    double one[MEASURED] = {0};
    const bool alone = threads > 1 && !machine_is_shared(k->m);
    if ((alone && !measure_on(k, 1, r, one)) || !measure_on(k, threads, r, out->share))
        return false;
    for (int i = 0; i < MEASURED; i++) {
        if (out->share[i] > 0 || one[i] <= 0) continue;
        out->share[i] = one[i];
        out->on_one_thread++;
    }
    return true;
}

static const char *measure(kernels *k, hd_arena *a, const char *cpu, const char *folder,
                           machine_kernels *out) {
    const char *why = NULL;
    for (int i = 0; i < MACHINE_MODELS && !why; i++)
        if (!machine_model_open(&k->model[i], (machine_model_id)i, cpu, folder,
                                machine_threads(k->m)))
            why = machine_model_failure(&k->model[i], a);
    if (machine_of_ranks(k->m, why ? 0 : 1) <= 0) return why ? why : "another rank could not";
    make_room(&k->timed, k->model, a);
    return measure_both(k, hd_new(a, rounds), out) ? NULL : "a call of a model failed";
}

static int known(const double *share) {
    int n = 0;
    for (int i = 0; i < MEASURED; i++)
        n += share[i] > 0;
    return n;
}

void machine_measure_kernels(machine *m, hd_arena *a, const char *cpu, const char *folder,
                             double barrier, machine_kernels *out) {
    const int threads = machine_threads(m);
    kernels *k = hd_new(a, kernels);
    *k = (kernels){.m = m, .overhead = plan_overhead(barrier)};
    *out = (machine_kernels){.tried = true};
    out->why_not = measure(k, a, cpu, folder, out);
    out->left_out = MEASURED - known(out->share);
    if (out->left_out == MEASURED && !out->why_not) out->why_not = "the machine is too busy";
    machine_use(m, threads);
    for (int i = 0; i < MACHINE_MODELS; i++)
        machine_model_close(&k->model[i]);
}

/* ---- text ------------------------------------------------------------------------------------ */

/* The shares whose keys begin with `first` ("": those of many rows), printed without it. */
static void print_shares(const machine_kernels *k, const char *first, const char *prefix,
                         hd_text *out) {
    bool none = true;
    for (int i = 0; i < MEASURED; i++) {
        const char *key = plan_fact_key((plan_fact)(PLAN_REACHED + i));
        const bool row = hd_begins_with(key, "row."), read = hd_begins_with(key, "read.");
        const bool mine = *prefix ? hd_begins_with(key, prefix) : !row && !read;
        if (!mine || k->share[i] <= 0) continue;
        hd_text_f(out, "%s%s %.2f", none ? first : ", ", key + strlen(prefix), k->share[i]);
        none = false;
    }
    if (!none) hd_text_add(out, "\n");
}

void machine_describe_kernels(const machine_kernels *k, hd_text *out) {
    if (!k->tried) return;
    if (k->why_not) {
        hd_text_f(out, "kernels were not measured, hadal plan goes by a table: %s\n", k->why_not);
        return;
    }
    print_shares(k, "kernels reach, of f32 multiply-adds: ", "", out);
    print_shares(k, "with one row, of weights in caches: ", "row.", out);
    print_shares(k, "and of memory read: ", "read.", out);
    if (k->on_one_thread)
        hd_text_f(out,
                  "%d of these on one thread: on all of them they changed from round to round\n",
                  k->on_one_thread);
    if (k->left_out)
        hd_text_f(out,
                  "%d other%s changed from round to round: hadal plan takes those of a table\n",
                  k->left_out, hd_s((uint64_t)k->left_out));
}

void machine_kernels_json(const machine_kernels *k, hd_text *out) {
    const char *between = "";
    if (!k->tried) return;
    hd_text_add(out, ",\n  \"reached\": {");
    for (int i = 0; i < MEASURED; i++) {
        if (k->share[i] <= 0) continue;
        hd_text_f(out, "%s\"%s\": ", between, plan_fact_key((plan_fact)(PLAN_REACHED + i)));
        hd_text_double(out, k->share[i]);
        between = ", ";
    }
    hd_text_f(out, "}, \"reached_on_one_thread\": %d", k->on_one_thread);
    if (!k->left_out) return;
    hd_text_add(out, ", \"not_reached\": ");
    inspect_json_string(out, k->why_not ? k->why_not : "other shares changed from round to round");
}
