/* hadal bench: the speed of compiled language models, as a share of what the machine can do at the
 * same time.
 *
 * Prefill is a call of T tokens on an empty session; decode is a call of one token after caches
 * that hold a prefix. Both request the last row of logits only. Every configuration is run in
 * rounds, with the limits of the machine measured between them (machine.h). With two models each
 * round runs both, the first and the second in alternating order, and the ratio is that of two
 * adjacent runs. A call that takes longer than a round should is measured in pieces as well
 * (pieces.h).
 *
 * Memory is what the process grew by, resident, while this model was opened, its caches were filled
 * and its first call ran: pages of the library, of the weights and of the session that were touched
 * so far, and stacks of threads started meanwhile. Configurations come in ascending order on one
 * session, so each figure is the peak up to there; no memory is given back in between. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/bench.h"
#include "api/look.h"
#include "api/pieces.h"
#include "api/ranks.h"
#include "codegen/target/target.h"

#define API_FAILED 1

enum { MODELS = 2, OPENINGS = 7 };

typedef struct memory_use {
    uint64_t resident, huge; /* bytes; of those resident, what lies in huge pages */
} memory_use;

typedef struct subject {
    api_library lib;
    const hadal_bench_model *model;
    const char *name; /* of the module */
    /* the vocabulary of the whole model: a single pipeline stage may have no embedding, and has
     * states of its own */
    int64_t vocab;
    int64_t only_clears; /* not 0: there is state that rewinding can only clear */
    int64_t held;        /* tokens that its caches have been filled with */
    /* a saved copy of the filled session, for states that cannot be shortened; NULL: they can */
    void *kept;
    size_t kept_bytes;
    memory_use use; /* what the process grew by */
    float *logits;
    int32_t *tokens;
} subject;

/* ---- memory ---------------------------------------------------------------------------------- */

/* The bytes that a line of /proc gives after the name of a field; 0: it is of another field. */
static uint64_t bytes_of_line(const char *line, const char *field) {
    unsigned long long value = 0;
    if (strncmp(line, field, strlen(field)) == 0) sscanf(line + strlen(field), "%llu", &value);
    return value * 1024;
}

/* Resident memory from smaps_rollup, which is exact: the counters of /proc/self/status are updated
 * in batches by threads. */
static memory_use memory_now(void) {
    char line[256];
    memory_use now = {0};
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    while (f && fgets(line, sizeof line, f)) {
        now.resident += bytes_of_line(line, "Rss:");
        now.huge += bytes_of_line(line, "AnonHugePages:") + bytes_of_line(line, "FilePmdMapped:");
    }
    if (f) fclose(f);
    return now;
}

static uint64_t peak_resident(void) {
    char line[256];
    uint64_t peak = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        peak += bytes_of_line(line, "VmHWM:");
    if (f) fclose(f);
    return peak;
}

/* Adds what the process grew by since `before` to this model's memory. */
static void charge(subject *s, memory_use before) {
    const memory_use after = memory_now();
    if (after.resident > before.resident) s->use.resident += after.resident - before.resident;
    if (after.huge > before.huge) s->use.huge += after.huge - before.huge;
}

/* ---- subjects -------------------------------------------------------------------------------- */

static bool open_session(const bench_state *b, subject *s, int64_t max_tokens) {
    return api_library_start(&s->lib, s->model->weights, max_tokens, 0, b->cpu_level);
}

static const char *load_of(const subject *s) {
    return s->lib.s->reads_weights ? "read" : "mmap";
}

/* Measures the median times of opening the weights and making a session; both are closed again at
 * the end. Large files that are read, and not mapped, are opened less often. A CPU level that does
 * not run here is found out now, before anything is printed. */
static bool measure_load(const bench_state *b, subject *s, int64_t max_tokens, bench_load *out) {
    samples open = {0}, init = {0};
    *out = (bench_load){.model = s->model->label,
                        .types = s->model->types,
                        .load = load_of(s),
                        .weights_bytes = s->lib.info->weights_size,
                        .session_tokens = max_tokens};
    const double enough = 1, began = now(ON_THE_WALL);
    for (int i = 0; i < OPENINGS && (i == 0 || now(ON_THE_WALL) - began < enough); i++) {
        const double start = now(ON_THE_WALL);
        if (!api_library_weights(&s->lib, s->model->weights)) return false;
        const double opened = now(ON_THE_WALL);
        bool ok = api_library_session(&s->lib, max_tokens);
        sample(&open, opened - start);
        sample(&init, now(ON_THE_WALL) - opened);
        ok = ok && api_library_level(&s->lib, b->cpu_level);
        out->session_bytes = s->lib.memory_bytes;
        api_library_end_session(&s->lib);
        if (!ok) return false;
    }
    out->open_seconds = median(&open);
    out->init_seconds = median(&init);
    return true;
}

static int32_t token(const subject *s, int64_t i) {
    return (int32_t)((i * 7919 + 11) % (s->vocab > 0 ? s->vocab : 1));
}

static bool ok(subject *s, int code) {
    return api_library_ok(&s->lib, code, s->model->label);
}

/* Runs n tokens from position `from` on; the logits are those of the last one. */
static bool forward(subject *s, int64_t from, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        s->tokens[i] = token(s, from + i);
    return ok(s, s->lib.forward(s->lib.session, s->tokens, n, s->logits, 1));
}

/* Does the model keep state that rewinding can only clear? */
static bool only_clears(const subject *s) {
    for (size_t i = 0; i < s->lib.info->n_states; i++)
        for (int k = 0; k < HIR_STATE_KINDS; k++) {
            const hir_state_kind_info *kind = hir_state_kind_of((hir_state_kind)k);
            if (strcmp(s->lib.info->states[i].kind, kind->word) == 0 &&
                kind->rewind == HIR_REWIND_CLEAR)
                return true;
        }
    return false;
}

/* Fills the session with `length` tokens from the beginning, and saves a copy of it. */
static bool fill_and_keep(subject *s, int64_t length) {
    if (!ok(s, s->lib.session_rewind(s->lib.session, 0))) return false;
    if (length > 0 && !forward(s, 0, length)) return false;
    s->kept_bytes = s->lib.session_save_size(s->lib.session);
    s->kept = hd_alloc(s->lib.s->arena, 1, s->kept_bytes);
    return ok(s, s->lib.session_save(s->lib.session, s->kept, s->kept_bytes));
}

/* Brings the session back to what `fill` has left. */
static bool go_back(subject *s, int64_t length) {
    return ok(s, s->kept ? s->lib.session_restore(s->lib.session, s->kept, s->kept_bytes)
                         : s->lib.session_rewind(s->lib.session, length));
}

/* Fills the caches with `length` tokens. What they hold already from a shorter filling stays. */
static bool fill(subject *s, int64_t length) {
    if (s->only_clears) return fill_and_keep(s, length);
    if (length > s->held) {
        if (!ok(s, s->lib.session_rewind(s->lib.session, s->held))) return false;
        if (!forward(s, s->held, length - s->held)) return false;
        s->held = length;
    }
    return ok(s, s->lib.session_rewind(s->lib.session, length));
}

/* ---- one configuration ----------------------------------------------------------------------- */

typedef struct job {
    int64_t past, tokens;
    bool decode;
} job;

/* The clock for now(): ranks wait for each other as threads do, so their time is taken on the wall;
 * the time that one waits is not CPU time. */
static int waiting(const subject *s, int threads) {
    return s->lib.s->comm ? ON_THE_WALL : threads;
}

/* Seconds for the job, the mean of `times` executions; the session is left as it was. Negative: a
 * call failed. */
static double once(subject *s, job j, int threads, int times) {
    const double start = now(waiting(s, threads));
    for (int i = 0; i < times; i++)
        if (!forward(s, j.past, j.tokens) || !go_back(s, j.past)) return -1;
    return (now(waiting(s, threads)) - start) / times;
}

/* The same for one execution on several threads, and the times of the call's steps and of the rest of it
 * as pieces, on the wall as well. The clock is read twice for each step, 50 to 100 ns. */
static double once_in_pieces(subject *s, job j, int threads, pieces *p) {
    const size_t n = s->lib.info->n_steps;
    step_time *steps = hd_new_array(p->arena, step_time, n + 1);
    double *at = hd_new_array(p->arena, double, n + 1);
    if (!ok(s, s->lib.session_profile(s->lib.session, steps, n))) return -1;
    const double start = now(ON_THE_WALL), seconds = once(s, j, threads, 1);
    at[n] = now(ON_THE_WALL) - start;
    if (!ok(s, s->lib.session_profile(s->lib.session, NULL, 0))) return -1;
    for (size_t i = 0; i < n; i++) {
        at[i] = 1e-9 * (double)(steps[i].work_ns + steps[i].wait_ns);
        at[n] -= at[i];
    }
    pieces_add(p, at);
    return seconds;
}

/* Steps of one kernel do the same where they have as much work; the rest of a call is alone. */
static const size_t *kinds_of(const subject *s, job j, hd_arena *a) {
    const hd_info *info = s->lib.info;
    const size_t n = info->n_steps;
    step_work *work = hd_new_array(a, step_work, n + 1);
    size_t *kind = hd_new_array(a, size_t, n + 1);
    for (size_t i = 0; i < n; i++) {
        work[i] = api_step_work(info, i, j.tokens, j.past, 1);
        for (kind[i] = 0; kind[i] < i; kind[i]++)
            if (strcmp(info->steps[i].name, info->steps[kind[i]].name) == 0 &&
                work[i].flops == work[kind[i]].flops && work[i].bytes == work[kind[i]].bytes)
                break;
    }
    kind[n] = n;
    return kind;
}

/* The number of calls until a session on ranks has settled on the tiles of its overlaps: it tries
 * them out on its first chunks (runtime/tiles.c). */
static int calls_to_settle(const subject *s, job j) {
    enum { CHUNKS = 4 };
    const int64_t chunk = (int64_t)s->lib.info->max_chunk;
    const int64_t each = chunk > 0 ? (j.tokens + chunk - 1) / chunk : 1;
    return s->lib.s->comm && !j.decode ? (int)((CHUNKS + each - 1) / each) : 0;
}

/* Fills caches and warms up. The second call shows how long one takes, which gives the number of
 * executions for each sample. 0: a call failed. */
static int prepare(const bench_state *b, subject *s, job j, int threads) {
    const double enough = 0.05;
    const memory_use before = memory_now();
    int most = threads;
    for (size_t i = 0; i < b->n_threads; i++)
        if (b->threads[i] > most) most = b->threads[i];
    if (!ok(s, s->lib.session_set_threads(s->lib.session, most)) || !fill(s, j.past) ||
        !ok(s, s->lib.session_set_threads(s->lib.session, threads)) || once(s, j, threads, 1) < 0)
        return 0;
    charge(s, before);
    const double first = once(s, j, threads, 1);
    if (first < 0) return 0;
    for (int calls = 2; calls < calls_to_settle(s, j); calls++)
        if (once(s, j, threads, 1) < 0) return 0;
    int64_t wanted = first < enough && first > 0 ? 1 + (int)(enough / first) : 1;
    return api_most_of_ranks(&s->lib, wanted, &wanted) ? (int)wanted : 0;
}

/* The work of a call. For a pipeline it is the work of one rank of each stage. */
static bool work_of_call(subject *s, job j, step_work *sum) {
    step_work all[HADAL_COMM_MAX_RANKS];
    const step_work mine = api_call_work(s->lib.info, j.tokens, j.past, 1);
    *sum = (step_work){0};
    if (!api_all_gather(&s->lib, &mine, all, sizeof mine)) return false;
    for (int32_t i = 0; i < api_ranks_here(&s->lib); i++)
        if (api_is_first_of_stage(&s->lib, i)) step_work_add(sum, all[i]);
    return true;
}

static bench_row row_of(const bench_state *b, const subject *s, job j, step_work w,
                        const samples *times, const rounds *r) {
    return (bench_row){
        .model = s->model->label,
        .types = s->model->types,
        .load = load_of(s),
        .decode = j.decode,
        .past = j.past,
        .tokens = j.tokens,
        .threads = machine_threads(b->m),
        .rounds = times->n,
        .tried = r->n,
        .seconds = median(times),
        .spread = spread(times),
        .flops = w.flops,
        .bytes = w.bytes,
        .fma = machine_limit(b->m, LIMIT_FMA),
        .fma_spread = machine_spread(b->m, LIMIT_FMA),
        .fma_drift = machine_drift(b->m, LIMIT_FMA),
        .read_drift = machine_drift(b->m, LIMIT_READ),
        .of_cores = machine_of_cores(b->m),
        .read = machine_limit(b->m, LIMIT_READ),
        .read_spread = machine_spread(b->m, LIMIT_READ),
        .undisturbed_fma = machine_quantile(b->m, LIMIT_FMA, 1 - PIECES_LEAST),
        .undisturbed_read = machine_quantile(b->m, LIMIT_READ, 1 - PIECES_LEAST),
        .resident = s->use.resident,
        .huge = s->use.huge,
    };
}

typedef struct timing { /* of all models measured, in one configuration */
    rounds r;
    samples times[MODELS], ratio;
    pieces pieces[MODELS];
} timing;

/* All ranks measure, and agree on what they do next, since they have to make the same calls. A call
 * has ended on all of them when it has ended on the speaker, the rank that has the logits and
 * reports. */
static bool run_rounds(bench_state *b, subject *s, size_t n, job j, int each, timing *t) {
    const bool in_pieces = each == 1 && machine_threads(b->m) > 1 && !s->lib.s->comm;
    for (size_t i = 0; i < n; i++)
        pieces_begin(&t->pieces[i], b->arena, s[i].lib.info->n_steps + 1);
    rounds_begin(&t->r, b->m, b->rounds);
    while (rounds_next(&t->r)) {
        double at[MODELS] = {0};
        for (size_t k = 0; k < n; k++) {
            const size_t i = t->r.n % 2 ? n - 1 - k : k;
            at[i] = in_pieces ? once_in_pieces(&s[i], j, machine_threads(b->m), &t->pieces[i])
                              : once(&s[i], j, machine_threads(b->m), each);
            if (at[i] < 0) return false;
            sample(&t->times[i], at[i]);
        }
        if (n == 2) sample(&t->ratio, at[0] / at[1]);
    }
    return true;
}

static bool measure(bench_state *b, subject *s, size_t n, job j, int threads) {
    timing *t = hd_new(b->arena, timing);
    machine_use(b->m, threads);
    int each = 1;
    for (size_t i = 0; i < n; i++) {
        const int wanted = prepare(b, &s[i], j, threads);
        if (!wanted) return false;
        if (wanted > each) each = wanted;
    }
    if (!run_rounds(b, s, n, j, each, t)) return false;
    step_work work[MODELS];
    for (size_t i = 0; i < n; i++)
        if (!work_of_call(&s[i], j, &work[i])) return false;
    if (!api_is_speaker(&s->lib)) return true;
    rounds_keep(&t->r, &t->ratio);
    bench_row rows[MODELS];
    for (size_t i = 0; i < n; i++) {
        rounds_keep(&t->r, &t->times[i]);
        rows[i] = row_of(b, &s[i], j, work[i], &t->times[i], &t->r);
        if (t->pieces[i].rounds == 0) continue;
        const size_t *kind = kinds_of(&s[i], j, b->arena);
        rows[i].undisturbed = pieces_seconds(&t->pieces[i], kind, PIECES_LEAST);
        rows[i].undisturbed_more = pieces_seconds(&t->pieces[i], kind, PIECES_MORE);
    }
    if (n == 2) {
        rows[0].paired = true;
        rows[0].ratio = median(&t->ratio);
        rows[0].ratio_low = quantile(&t->ratio, 0.25);
        rows[0].ratio_high = quantile(&t->ratio, 0.75);
    }
    for (size_t i = 0; i < n; i++)
        hd_push(b->arena, &b->results.rows, rows[i]);
    hd_text text;
    hd_text_init(&text, b->arena);
    bench_rows_text(rows, n, b->width, &text);
    if (b->print) b->print(b->context, text.at);
    return true;
}

/* ---- all configurations ---------------------------------------------------------------------- */

static int64_t largest(const int64_t *list, size_t n) {
    int64_t most = 0;
    for (size_t i = 0; i < n; i++)
        if (list[i] > most) most = list[i];
    return most;
}

/* Measures all configurations of one kind, on a fresh session of each model. */
static bool measure_kind(bench_state *b, subject *s, size_t n, bool decode) {
    const int64_t *list = decode ? b->decode : b->prefill;
    const size_t count = decode ? b->n_decode : b->n_prefill;
    if (count == 0) return true;
    const int64_t capacity = largest(list, count) + decode;
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        const memory_use before = memory_now();
        ok = open_session(b, &s[i], capacity);
        s[i].held = 0;
        s[i].kept = NULL;
        charge(&s[i], before);
    }
    for (size_t k = 0; k < count && ok; k++)
        for (size_t t = 0; t < b->n_threads && ok; t++) {
            const job j = {decode ? list[k] : 0, decode ? 1 : list[k], decode};
            ok = measure(b, s, n, j, b->threads[t]);
        }
    return ok;
}

static bool open_subject(bench_state *b, hadal_session *session, const hadal_bench_model *model,
                         int64_t capacity, subject *s) {
    *s = (subject){.model = model, .name = api_library_model(session, model->library)};
    const memory_use before = memory_now();
    if (!s->name || !api_library_open(&s->lib, session, model->library, s->name)) return false;
    charge(s, before);
    if (!api_most_of_ranks(&s->lib, (int64_t)s->lib.info->vocab, &s->vocab) ||
        !api_most_of_ranks(&s->lib, only_clears(s), &s->only_clears))
        return false;
    s->logits = hd_alloc(b->arena, api_logits_row(s->lib.info), sizeof *s->logits);
    s->tokens = hd_alloc(b->arena, (size_t)capacity, sizeof *s->tokens);
    return true;
}

static void tell_loads(bench_state *b, const bench_load *loads, size_t n) {
    hd_text text;
    hd_text_init(&text, b->arena);
    if (b->results.loads.n == 0) hd_text_add(&text, b->host);
    for (size_t i = 0; i < n; i++)
        hd_push(b->arena, &b->results.loads, loads[i]);
    b->width = bench_name_width(loads, n);
    bench_loads_text(loads, n, &text);
    if (b->print) b->print(b->context, text.at);
}

static bool run(hadal_session *session, bench_state *b, const hadal_bench_model *models, size_t n) {
    subject s[MODELS] = {0};
    bench_load loads[MODELS];
    const int64_t decode = largest(b->decode, b->n_decode) + 1,
                  prefill = largest(b->prefill, b->n_prefill);
    const int64_t capacity = decode > prefill ? decode : prefill;
    memory_use library[MODELS] = {0};
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        ok = open_subject(b, session, &models[i], capacity, &s[i]) &&
             measure_load(b, &s[i], capacity, &loads[i]);
        library[i] = s[i].use;
    }
    if (ok) tell_loads(b, loads, n);
    for (int decoding = 0; decoding <= 1 && ok; decoding++) {
        ok = measure_kind(b, s, n, decoding);
        for (size_t i = 0; i < n; i++) {
            api_library_end_session(&s[i].lib);
            s[i].use = library[i];
        }
    }
    for (size_t i = 0; i < n; i++)
        api_library_close(&s[i].lib);
    return ok;
}

/* ---- public ---------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static const int64_t *sorted(hd_arena *a, const int64_t *list, size_t n) {
    int64_t *copy = hd_new_array(a, int64_t, n + 1);
    for (size_t i = 0; i < n; i++)
        copy[i] = list[i];
    qsort(copy, n, sizeof *copy, ascending);
    return copy;
}

static void close_machine(void *m) {
    machine_close(m);
}

static bool in_range(hadal_session *s, const char *what, long long n, long long least,
                     long long most) {
    if (n >= least && n <= most) return true;
    hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "%s of %lld: from %lld to %lld can be measured", what,
           n, least, most);
    return false;
}

static bool check_options(hadal_session *s, const hadal_bench_options *o) {
    enum { TOKENS = 1 << 24, THREADS = 256, ROUNDS = 80 };
    for (size_t i = 0; i < o->n_prefill; i++)
        if (!in_range(s, "a prefill", o->prefill[i], 1, TOKENS)) return false;
    for (size_t i = 0; i < o->n_decode; i++)
        if (!in_range(s, "a cache length", o->decode[i], 0, TOKENS)) return false;
    for (size_t i = 0; i < o->n_threads; i++)
        if (!in_range(s, "a thread count", o->threads[i], 1, THREADS)) return false;
    if (!in_range(s, "a number of rounds", o->rounds, 1, ROUNDS)) return false;
    if (o->n_threads > 0 && o->n_prefill + o->n_decode > 0) return true;
    hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "there is nothing to measure")->hint =
        "at least one thread count, and one prefill or one cache length";
    return false;
}

/* Shares are of what the code that runs could reach. An unknown level is rejected later, when the
 * levels of the library are known. */
static void limit_to_level(hd_arena *a, machine *m, const char *name) {
    const hcg_level *level = hcg_level_named(hcg_arch(a, NULL), name);
    if (level) machine_use_features(m, level->lanes, hcg_level_features(level));
}

static bool begin(hadal_session *s, const hadal_bench_options *o) {
    if (!check_options(s, o)) return false;
    int threads = 1;
    for (size_t i = 0; i < o->n_threads; i++)
        if (o->threads[i] > threads) threads = o->threads[i];
    bench_state *b = hd_new(s->arena, bench_state);
    b->m = machine_open(threads);
    if (!b->m) {
        hd_err(&s->diags, HD_E_MEMORY, HD_NOWHERE, "no memory to measure the machine with");
        return false;
    }
    hd_arena_defer(s->arena, close_machine, b->m);
    if (o->cpu_level) limit_to_level(s->arena, b->m, o->cpu_level);
    if (s->comm && s->comm->size > 1) machine_share(b->m, s->comm, s->comm_timeout);
    int *list = hd_new_array(s->arena, int, o->n_threads);
    memcpy(list, o->threads, o->n_threads * sizeof *list);
    hd_text host;
    hd_text_init(&host, s->arena);
    machine_describe_host(&host);
    b->arena = s->arena;
    b->prefill = sorted(s->arena, o->prefill, o->n_prefill);
    b->decode = sorted(s->arena, o->decode, o->n_decode);
    b->threads = list;
    b->n_prefill = o->n_prefill, b->n_decode = o->n_decode, b->n_threads = o->n_threads;
    b->rounds = (size_t)o->rounds;
    b->cpu_level = o->cpu_level ? hd_strdup(s->arena, o->cpu_level) : NULL;
    b->print = o->print, b->context = o->context;
    b->host = host.at;
    b->results.host = hd_strndup(s->arena, host.at, strcspn(host.at, "\n"));
    s->bench = b;
    return true;
}

static bool need_bench(hadal_session *s, size_t models) {
    if (s->bench && models >= 1 && models <= MODELS) return true;
    hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "one model, or two, after hadal_bench_begin");
    return false;
}

int hadal_bench_begin(hadal_session *s, const hadal_bench_options *o) {
    API_ENTER(s);
    API_TAKE(hadal_bench_options, all, o);
    API_LEAVE(s, begin(s, &all));
}

int hadal_bench_run(hadal_session *s, const hadal_bench_model *models, size_t n) {
    API_ENTER(s);
    API_LEAVE(s, need_bench(s, n) && run(s, s->bench, models, n));
}

#undef API_FAILED
#define API_FAILED ""
const char *hadal_bench_json(hadal_session *s) {
    API_ENTER(s);
    if (s->bench) s->bench->results.peak_resident = peak_resident();
    const char *text = s->bench ? api_look(s, INSPECT_BENCH, INSPECT_JSON) : "";
    API_RETURN(s, text);
}
