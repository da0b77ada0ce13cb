/* Stages that have several runs of layers and take turns among the chunks of a call: results are
 * those of one token after the other, whoever is late, and whatever happens nobody waits for ever.
 *
 *   run r of stage s, at each position in turn, from x, what is received or the token:
 *     y = (3 x + 5 kept + 7 state + 10 s + r + position) mod 1021;  state = y
 *
 * where `kept` is what run 0 of the stage has read for the row, and each run has a state of its
 * own, a carry. Rows are so long that a message of a chunk does not fit into the transport at once.
 */
#include "tests/unit/runtime/ranks_toy.h"

TestSuite(turns, .timeout = 240);

enum { ROWS = 3, WIDE = 15000, MOST_RUNS = 3, TOKENS = 21, LINE = WIDE * 4 };
_Static_assert(ROWS *LINE > 128 << 10, "a message takes several pieces");
/* Kernels write and read each element of a row, or, where a sanitizer looks at each access, one of
 * each line of the caches: what carries rows from rank to rank is seen to touch all of them. */
#if defined(__SANITIZE_THREAD__)
enum { EACH = 16 };
#else
enum { EACH = 1 };
#endif
_Static_assert((int)TOKENS <= (int)MOST_TOKENS, "");

static inline float next_value(float x, float kept, float state, int64_t number, int64_t position) {
    const int64_t sum = 3 * (int64_t)x + 5 * (int64_t)kept + 7 * (int64_t)state + number + position;
    return (float)(sum % 1021);
}

KERNEL(k_token) {
    (void)f, (void)c0, (void)c1;
    const int32_t *ids = args[0];
    for (int64_t t = r0; t < r1; t++)
        for (int64_t i = 0; i < WIDE; i += EACH)
            ((float *)args[1])[t * WIDE + i] = (float)ids[t];
}

/* All columns hold the same number: what is not there, or of another chunk, makes it no number. */
static float all_of(const float *row) {
    for (int64_t i = EACH; i < WIDE; i += EACH)
        if (row[i] != row[0]) return -1e9f;
    return row[0];
}

KERNEL(k_run) {
    (void)c0, (void)c1;
    const float *x = args[0], *kept = args[1];
    float *state = args[2], *y = args[4];
    for (int64_t t = r0; t < r1; t++) {
        state[0] = next_value(all_of(x + t * WIDE), all_of(kept + t * WIDE), state[0],
                              (int64_t)(uintptr_t)args[3], f->C - f->T + t);
        for (int64_t i = 0; i < WIDE; i += EACH)
            y[t * WIDE + i] = state[0];
    }
}

KERNEL(k_end) {
    (void)f, (void)c0, (void)c1;
    for (int64_t t = r0; t < r1; t++)
        ((float *)args[1])[t] = all_of((const float *)args[0] + t * WIDE);
}

static hrt_kernel *const run_kernels[] = {k_token, k_run, k_end};
static const hrt_level run_levels[] = {{.name = "plain", .kernels = run_kernels}};

static hrt_layer_range runs_of[MOST_RANKS][MOST_RUNS];
static hrt_state_info states_of[MOST_RUNS];

/* Kept of a chunk: what run 0 has read, and what another run has. */
static void add_run(toy *t, uint32_t stage, uint32_t stages, uint32_t r, uint32_t runs) {
    const uint32_t number = r * stages + stage;
    const bool first = number == 0, last = number + 1 == stages * runs;
    hrt_layer_range *run = &runs_of[stage][r];
    run->first = t->n_steps;
    operand(t, HRT_INPUT, 0, 0, 4);
    operand(t, HRT_KEPT, 0, r ? LINE : 0, LINE);
    if (!first) {
        collective(t, (hrt_collective){.kind = HRT_RECV,
                                       .element = 4,
                                       .row = WIDE,
                                       .peer = (stage + stages - 1) % stages});
        t->steps[t->n_steps - 1].first_operand++; /* y alone */
        t->steps[t->n_steps - 1].n_operands = 1;
    }
    run->work = t->n_steps;
    if (first) step(t, 0, 2, HRT_SPLIT_ROWS);
    operand(t, HRT_KEPT, 0, r ? LINE : 0, LINE);
    operand(t, HRT_KEPT, 0, 0, LINE);
    operand(t, HRT_STATE, r, 0, 0);
    operand(t, HRT_NUMBER, 0, 10 * stage + r, 0);
    operand(t, HRT_ARENA, 0, 0, LINE);
    step(t, 1, 5, HRT_SPLIT_NONE)->by_row = 1;
    operand(t, HRT_ARENA, 0, 0, LINE);
    operand(t, HRT_OUTPUT, 0, 0, 4);
    if (last) step(t, 2, 2, HRT_SPLIT_ROWS)->last_rows = 1;
    run->send = t->n_steps;
    if (!last) {
        collective(t,
                   (hrt_collective){
                       .kind = HRT_SEND, .element = 4, .row = WIDE, .peer = (stage + 1) % stages});
        t->steps[t->n_steps - 1].n_operands = 1; /* x alone */
    }
    run->end = t->n_steps;
}

static void make_line(toy *stages, uint32_t n, uint32_t runs) {
    for (uint32_t r = 0; r < runs; r++)
        states_of[r] = (hrt_state_info){
            .name = "sum", .kind = HRT_STATE_CARRY, .heads = 1, .rows = 1, .row_bytes = 4};
    for (uint32_t i = 0; i < n; i++) {
        toy *t = &stages[i];
        make_toy(t, 1, 2);
        t->n_steps = t->n_operands = t->n_collectives = 0;
        for (uint32_t r = 0; r < runs; r++)
            add_run(t, i, n, r, runs);
        cr_assert(t->n_steps <= sizeof t->steps / sizeof *t->steps);
        cr_assert(t->n_operands <= sizeof t->operands / sizeof *t->operands);
        t->outputs[0] = (hrt_tensor_info){"y", "f32[T]", 4, 0, 1};
        hrt_model *m = &t->model;
        m->chunk = ROWS;
        m->levels = run_levels, m->n_kernels = 3;
        m->n_steps = t->n_steps, m->n_operands = t->n_operands, m->n_collectives = t->n_collectives;
        m->n_outputs = i + 1 == n, m->n_overlaps = 0;
        m->n_states = runs, m->states = states_of;
        m->arena_per_token = LINE, m->local_per_token = 0, m->kept_per_token = 2 * LINE;
        m->runs = runs_of[i], m->n_runs = runs > 1 ? runs : 0;
        m->stage = i, m->stages = n;
    }
    if (runs > 1) return;
    for (uint32_t i = 0; i < n; i++) { /* what has no turns has no chunks in flight */
        for (uint32_t k = 0; k < stages[i].n_operands; k++)
            if (stages[i].operands[k].base == HRT_KEPT) {
                stages[i].operands[k].base = HRT_ARENA;
                stages[i].operands[k].offset += LINE;
            }
        stages[i].model.arena_per_token = 3 * LINE, stages[i].model.kept_per_token = 0;
    }
}

/* Of position p, after those before it. */
static void expected(uint32_t stages, uint32_t runs, int64_t n, float *out) {
    float state[MOST_RANKS][MOST_RUNS] = {{0}}, kept[MOST_RANKS];
    for (int64_t p = 0; p < n; p++) {
        float x = (float)token(p);
        for (uint32_t k = 0; k < stages * runs; k++) {
            const uint32_t s = k % stages, r = k / stages;
            if (r == 0) kept[s] = x;
            x = state[s][r] = next_value(x, kept[s], state[s][r], 10 * s + r, p);
        }
        out[p] = x;
    }
}

/* ---- a transport that is late ---------------------------------------------------------------- */
typedef struct late { /* before messages of a rank, now and then; or it goes away at one */
    hadal_comm interface;
    const hadal_comm *real;
    hadal_threads *group;
    uint64_t random;
    int leaves_at; /* messages until then; below 0: it stays */
} late;

static bool is_late(late *l) {
    l->random = l->random * 6364136223846793005u + 1442695040888963407u;
    if (l->random >> 63)
        nanosleep(&(struct timespec){.tv_nsec = (long)(l->random >> 33) % 2000000}, NULL);
    if (l->leaves_at < 0 || l->leaves_at-- > 0) return false;
    hadal_threads_leave(l->group, l->interface.rank);
    return true;
}

static int late_send(void *context, int32_t to, const void *data, uint64_t bytes,
                     int64_t timeout_ns) {
    late *l = context;
    if (is_late(l)) return HADAL_COMM_LOST;
    return l->real->send(l->real->context, to, data, bytes, timeout_ns);
}

static int late_recv(void *context, int32_t from, void *data, uint64_t bytes, int64_t timeout_ns) {
    late *l = context;
    if (is_late(l)) return HADAL_COMM_LOST;
    return l->real->recv(l->real->context, from, data, bytes, timeout_ns);
}

static int pass_gather(void *context, hadal_comm_group group, hadal_comm_type type, const void *in,
                       void *out, const uint64_t *counts, int64_t timeout_ns) {
    const hadal_comm *real = ((late *)context)->real;
    return real->all_gather(real->context, group, type, in, out, counts, timeout_ns);
}

static const char *pass_message(void *context) {
    const hadal_comm *real = ((late *)context)->real;
    return real->message(real->context);
}

static void make_late(late *l, rank *r) {
    const hadal_comm *real = hadal_threads_comm(r->group, r->number);
    *l = (late){.interface = *real, .real = real, .group = r->group, .leaves_at = -1};
    l->random = (uint64_t)r->number + 1;
    l->interface.context = l;
    l->interface.send = late_send;
    l->interface.recv = late_recv;
    l->interface.all_gather = pass_gather;
    l->interface.message = pass_message;
}

/* ---- results --------------------------------------------------------------------------------- */
static int64_t call(rank *r, int64_t n, float *out) {
    int32_t ids[MOST_TOKENS];
    float *const outs[1] = {out};
    const int64_t start = hrt_session_length(r->session);
    for (int64_t i = 0; i < n; i++)
        ids[i] = token(start + i);
    return hrt_forward(r->session, ids, n, outs, n);
}

static void reads_in_calls(rank *r, int64_t a, int64_t b) {
    const hrt_model *m = &r->t->model;
    float out[MOST_TOKENS], want[MOST_TOKENS];
    const int64_t all = a + b;
    expected(m->stages, m->n_runs ? m->n_runs : 1, all, want);
    int64_t code = call(r, a, out);
    if (!code && b) code = call(r, b, out + a);
    EXPECT(r, code == HRT_OK, "code %ld: %s", (long)code, hrt_session_message(r->session));
    for (int64_t i = 0; i < all && m->stage + 1 == m->stages; i++)
        EXPECT(r, out[i] == want[i],
               "%u stages of %u runs, calls of %ld and %ld tokens, logit of token %ld: %g, not %g",
               m->stages, m->n_runs, (long)a, (long)b, (long)i, out[i], want[i]);
}

static void in_turns(rank *r) {
    static const int64_t calls[][2] = {
        {TOKENS, 0}, {1, 2 * ROWS}, {7, 11}, {ROWS, 1}, {4 * ROWS, 5}};
    late l;
    make_late(&l, r);
    r->max_tokens = TOKENS;
    open_session(r);
    EXPECT(r, r->init_code == HRT_OK, "init: code %d", r->init_code);
    r->session->side.comm = &l.interface;
    for (size_t i = 0; i < sizeof calls / sizeof *calls && !r->why; i++) {
        EXPECT(r, hrt_session_rewind(r->session, 0) == HRT_OK, "rewind");
        reads_in_calls(r, calls[i][0], calls[i][1]);
    }
}

static toy line[MOST_RANKS];

Test(turns, results_do_not_depend_on_who_is_late) {
    for (uint32_t stages = 2; stages <= MOST_RANKS; stages++)
        for (uint32_t runs = 1; runs <= MOST_RUNS; runs++)
            for (int threads = 1; threads <= 2; threads++) {
                if (!is_tried(stages + runs + (unsigned)threads)) continue;
                make_line(line, stages, runs);
                run_ranks(line, threads, in_turns);
            }
}

/* ---- CPU levels ------------------------------------------------------------------------------ */
/* The machine of stage 1 cannot run the best level: the others do. */
static void at_own_level(rank *r) {
    r->max_tokens = TOKENS;
    open_session(r);
    EXPECT(r, r->init_code == HRT_OK, "init: code %d", r->init_code);
    const char *level = hrt_session_cpu(r->session);
    EXPECT(r, strcmp(level, r->number == 1 ? "plain" : "best") == 0, "level %s", level);
    reads_in_calls(r, 7, 11);
}

Test(turns, each_stage_has_the_best_level_of_its_own_ranks) {
    static const hrt_level both[] = {{.name = "best", .kernels = run_kernels},
                                     {.name = "plain", .kernels = run_kernels}};
    static const hrt_level one[] = {
        {.name = "best", .kernels = run_kernels, .features = UINT64_C(1) << 63},
        {.name = "plain", .kernels = run_kernels}};
    make_line(line, 3, 2);
    for (int i = 0; i < 3; i++)
        line[i].model.levels = i == 1 ? one : both, line[i].model.n_levels = 2;
    run_ranks(line, 1, at_own_level);
}

/* ---- memory ---------------------------------------------------------------------------------- */
/* A session of so many chunks has what is kept of as many, and of no more than there are stages. */
Test(turns, each_chunk_in_flight_has_its_own_memory) {
    make_line(line, 3, 2);
    hrt_model alone = line[0].model;
    alone.kept_per_token = 0;
    for (int64_t tokens = 1; tokens <= TOKENS; tokens++) {
        const int64_t chunks = (tokens + ROWS - 1) / ROWS, flight = chunks < 3 ? chunks : 3;
        const uint64_t rows = hd_arena_rows(tokens < ROWS ? tokens : ROWS);
        const size_t of_one = ((size_t)rows * 2 * LINE + HRT_ALIGN - 1) / HRT_ALIGN * HRT_ALIGN;
        cr_assert_eq(hrt_session_size(&line[0].model, tokens),
                     hrt_session_size(&alone, tokens) + (size_t)flight * of_one, "%ld tokens",
                     (long)tokens);
    }
}

/* ---- what is lost ---------------------------------------------------------------------------- */
static int leaves, leaves_at;

static void one_leaves(rank *r) {
    struct timespec begun, end;
    float out[MOST_TOKENS];
    late l;
    make_late(&l, r);
    open_session(r);
    EXPECT(r, r->init_code == HRT_OK, "init: code %d", r->init_code);
    r->session->side.comm = &l.interface;
    r->session->side.timeout_ns = SECOND / 4; /* not before all are here */
    if (r->number == leaves) l.leaves_at = leaves_at;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (int k = 0; k < 2; k++) {
        const int64_t code = call(r, TOKENS, out);
        EXPECT(r, code == HRT_COLLECTIVE, "leaving at message %d of rank %d: code %ld", leaves_at,
               leaves, (long)code);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    EXPECT(r, end.tv_sec - begun.tv_sec < 3, "%ld s until it was known",
           (long)(end.tv_sec - begun.tv_sec));
    EXPECT(r, hrt_session_length(r->session) == 0, "the length has changed");
}

Test(turns, a_stage_that_leaves_is_an_error_on_all_others) {
    for (uint32_t stages = 2; stages <= 3; stages++)
        for (leaves = 0; leaves < (int)stages; leaves++)
            for (leaves_at = 0; leaves_at < 20; leaves_at += 5) {
                make_line(line, stages, 2);
                run_ranks(line, 1, one_leaves);
            }
}

/* ---- what does not fit together -------------------------------------------------------------- */
static void is_rejected(rank *r) {
    open_session(r);
    EXPECT(r, r->init_code == HRT_RANKS, "code %d", r->init_code);
}

Test(turns, stages_of_other_runs_or_chunks_are_rejected) {
    make_line(line, 2, 2);
    line[1].model.n_runs = 1;
    run_ranks(line, 1, is_rejected);
    make_line(line, 2, 2);
    line[1].model.chunk = ROWS + 1;
    run_ranks(line, 1, is_rejected);
}
