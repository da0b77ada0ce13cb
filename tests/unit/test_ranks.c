/* The runtime of a divided model, on a program made by hand: kernels in C, ranks as threads.
 *
 *   partial[t, j] = (rank + 1) token (j + 1), j < 2      all rows, of each rank its own
 *   sums[t, j]    = the sum of partial over ranks        reduce-scatter: rows of the rank
 *   local[t, j]   = sums + position                      rows of the rank
 *   all[t, j]     = local                                gather
 *   copy[t, j]    = all
 *   mine[t, i]    = 10 copy[t, 0] + copy[t, 1] + 1000 u  units u of the rank, of 5
 *   out[t, u]     = mine                                 gather of units, last rows
 *   back[t, j]    = part of all, gathered in bf16        part, gather: the trace
 *
 * The first five, and the last gather with its copy to the trace, may go tile by tile. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "hadal/hadal_threads.h"
#include "runtime/internal.h"

enum { VOCAB = 50, CHUNK = 12, UNITS = 5, MOST_RANKS = 4, MOST_TOKENS = 40, PATIENT = 20 };
#define SECOND INT64_C(1000000000)

#define KERNEL(name)                                                                               \
    static void name(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1, int64_t c0,    \
                     int64_t c1)
KERNEL(k_partial) {
    (void)f;
    const int32_t *ids = args[0];
    const float *rank = args[1];
    float *y = args[2];
    for (int64_t t = r0; t < r1; t++)
        for (int64_t j = c0; j < c1; j++)
            y[2 * t + j] = (rank[0] + 1) * (float)ids[t] * (float)(j + 1);
}

KERNEL(k_local) {
    (void)c0, (void)c1;
    const float *x = args[0];
    float *y = args[1];
    for (int64_t t = r0; t < r1; t++)
        for (int j = 0; j < 2; j++)
            y[2 * t + j] = x[2 * t + j] + (float)(f->C - f->T + t);
}

KERNEL(k_mine) {
    (void)f, (void)c0, (void)c1;
    const float *x = args[0], *rank = args[1];
    const int64_t local = (int64_t)rank[1]; /* units of a rank */
    float *y = args[2];
    for (int64_t t = r0; t < r1; t++)
        for (int64_t i = 0; i < local; i++)
            y[local * t + i] = 10 * x[2 * t] + x[2 * t + 1] + 1000 * (rank[0] * rank[1] + (float)i);
}

KERNEL(k_out) {
    (void)f, (void)c0, (void)c1;
    for (int64_t t = r0; t < r1; t++)
        memcpy((float *)args[1] + UNITS * t, (const float *)args[0] + UNITS * t, UNITS * 4);
}

KERNEL(k_back) {
    (void)f, (void)c0, (void)c1;
    for (int64_t t = r0; t < r1; t++)
        memcpy((float *)args[1] + 2 * t, (const float *)args[0] + 2 * t, 8);
}

KERNEL(k_copy) {
    (void)f;
    for (int64_t t = r0; t < r1; t++)
        for (int64_t j = c0; j < c1; j++)
            ((float *)args[1])[2 * t + j] = ((const float *)args[0])[2 * t + j];
}

static hrt_kernel *const kernels[] = {k_partial, k_local, k_mine, k_out, k_back, k_copy};
static const hrt_level levels[] = {{.name = "plain", .kernels = kernels}};

/* ---- the tables, for so many ranks ------------------------------------------------------------
 */
typedef struct toy {
    hrt_model model;
    hrt_step steps[12];
    hrt_operand operands[26];
    hrt_exchange exchanges[8];
    hrt_overlap overlaps[2];
    hrt_tensor_info inputs[1], outputs[2];
    uint32_t n_operands, n_steps, n_exchanges;
} toy;

/* Offsets in bytes per token: of all rows, and of a rank's. */
enum { PARTIAL = 0, ALL = 64, MINE = 128, OUT = 192, BACK = 256, COPY = 320, ARENA = 384 };
enum { SUMS = 0, LOCAL = 64, PART = 128, LOCALS = 192 };

static void operand(toy *t, hrt_base base, uint32_t index, uint64_t offset, uint64_t row) {
    t->operands[t->n_operands++] =
        (hrt_operand){.base = base, .index = index, .offset = offset, .row_bytes = row};
}

static hrt_step *step(toy *t, uint32_t kernel, uint32_t n_operands, hrt_split split) {
    hrt_step *s = &t->steps[t->n_steps++];
    *s = (hrt_step){.kernel_decode = kernel,
                    .kernel_prefill = kernel,
                    .first_operand = t->n_operands - n_operands,
                    .n_operands = n_operands,
                    .split_decode = HRT_SPLIT_NONE,
                    .split_prefill = split,
                    .grain = 1,
                    .cols = 1,
                    .name = "k"};
    return s;
}

static hrt_step *exchange(toy *t, hrt_exchange e) {
    hrt_step *s = step(t, 0, 2, HRT_SPLIT_NONE);
    t->exchanges[t->n_exchanges++] = e;
    s->exchange = t->n_exchanges;
    return s;
}

static void make_toy(toy *t, uint32_t ranks, int64_t divide_from) {
    memset(t, 0, sizeof *t);
    const uint64_t mine = (UNITS + ranks - 1) / ranks * 4;
    operand(t, HRT_INPUT, 0, 0, 4);
    operand(t, HRT_WEIGHT, 0, 0, 0);
    operand(t, HRT_ARENA, 0, PARTIAL, 8);
    step(t, 0, 3, HRT_SPLIT_COLS)->cols = 2;
    operand(t, HRT_ARENA, 0, PARTIAL, 8);
    operand(t, HRT_LOCAL, 0, SUMS, 8);
    exchange(t, (hrt_exchange){.kind = HRT_REDUCE_SCATTER, .element = 4, .row = 2});
    operand(t, HRT_LOCAL, 0, SUMS, 8);
    operand(t, HRT_LOCAL, 0, LOCAL, 8);
    step(t, 1, 2, HRT_SPLIT_ROWS)->local = 1;
    operand(t, HRT_LOCAL, 0, LOCAL, 8);
    operand(t, HRT_ARENA, 0, ALL, 8);
    exchange(t, (hrt_exchange){.kind = HRT_GATHER_ROWS, .element = 4, .row = 2});
    operand(t, HRT_ARENA, 0, ALL, 8);
    operand(t, HRT_ARENA, 0, COPY, 8);
    step(t, 5, 2, HRT_SPLIT_COLS)->cols = 2;
    operand(t, HRT_ARENA, 0, COPY, 8);
    operand(t, HRT_WEIGHT, 0, 0, 0);
    operand(t, HRT_ARENA, 0, MINE, mine);
    step(t, 2, 3, HRT_SPLIT_ROWS)->last_rows = 1;
    operand(t, HRT_ARENA, 0, MINE, mine);
    operand(t, HRT_ARENA, 0, OUT, 4 * UNITS);
    exchange(t, (hrt_exchange){.kind = HRT_GATHER_UNITS,
                               .element = 4,
                               .row = mine / 4,
                               .outer = 1,
                               .unit = 1,
                               .groups = 1,
                               .units = UNITS})
        ->last_rows = 1;
    operand(t, HRT_ARENA, 0, OUT, 4 * UNITS);
    operand(t, HRT_OUTPUT, 0, 0, 4 * UNITS);
    step(t, 3, 2, HRT_SPLIT_ROWS)->last_rows = 1;
    operand(t, HRT_ARENA, 0, ALL, 8);
    operand(t, HRT_LOCAL, 0, PART, 8);
    exchange(t, (hrt_exchange){.kind = HRT_PART_ROWS, .element = 4, .row = 2});
    operand(t, HRT_LOCAL, 0, PART, 8);
    operand(t, HRT_ARENA, 0, BACK, 8);
    exchange(t, (hrt_exchange){.kind = HRT_GATHER_ROWS, .narrow = 1, .element = 4, .row = 2});
    operand(t, HRT_ARENA, 0, BACK, 8);
    operand(t, HRT_OUTPUT, 1, 0, 8);
    step(t, 4, 2, HRT_SPLIT_ROWS);
    t->overlaps[0] = (hrt_overlap){0, 1, 2, 3, 4, 5};
    t->overlaps[1] = (hrt_overlap){9, 9, 9, 9, 10, 11};
    t->inputs[0] = (hrt_tensor_info){"tokens", "i32[T]", 4, 0, 1};
    t->outputs[0] = (hrt_tensor_info){"logits", "f32[T, 5]", 4 * UNITS, 0, 1};
    t->outputs[1] = (hrt_tensor_info){"back", "f32[T, 2]", 8, 0, 1};
    t->model = (hrt_model){.version = HRT_VERSION,
                           .name = "toy",
                           .digest = {1, 2, 3},
                           .vocab = VOCAB,
                           .chunk = CHUNK,
                           .arena_per_token = ARENA,
                           .local_per_token = LOCALS,
                           .weights_bytes = 64,
                           .n_steps = t->n_steps,
                           .n_operands = t->n_operands,
                           .n_levels = 1,
                           .n_inputs = 1,
                           .n_outputs = 2,
                           .n_kernels = 6,
                           .steps = t->steps,
                           .operands = t->operands,
                           .levels = levels,
                           .inputs = t->inputs,
                           .outputs = t->outputs,
                           .options = "{}",
                           .ops = "",
                           .ranks = ranks,
                           .stages = 1,
                           .n_exchanges = t->n_exchanges,
                           .divide_from = divide_from,
                           .exchanges = t->exchanges,
                           .n_overlaps = 2,
                           .tiles = 1,
                           .overlaps = t->overlaps};
}

/* ---- ranks as threads ------------------------------------------------------------------------ */
typedef struct weights_file {
    _Alignas(64) unsigned char at[HRT_WEIGHTS_DATA + 64];
} weights_file;

typedef struct rank rank;
struct rank {
    toy *t;
    hadal_threads *group;
    int32_t number;
    void (*body)(rank *r);
    weights_file file;
    hrt_weights *weights;
    hrt_session *session;
    void *memory;
    int init_code;
    int64_t max_tokens, timeout_ns;
    int threads;
    const char *why; /* what was wrong */
    char text[160];
};

#define EXPECT(r, condition, ...)                                                                  \
    do {                                                                                           \
        if (condition) break;                                                                      \
        snprintf((r)->text, sizeof(r)->text, __VA_ARGS__);                                         \
        (r)->why = (r)->text;                                                                      \
        return;                                                                                    \
    } while (0)

static void open_weights(rank *r, uint32_t share) {
    const uint32_t ranks = r->t->model.ranks;
    hrt_weights_header h = {.version = HRT_VERSION,
                            .rank = share,
                            .digest = {1, 2, 3},
                            .data_offset = HRT_WEIGHTS_DATA,
                            .data_bytes = 64,
                            .set = {7}};
    const float numbers[2] = {(float)share, (float)((UNITS + ranks - 1) / ranks)};
    memcpy(h.magic, HRT_WEIGHTS_MAGIC, 8);
    memset(&r->file, 0, sizeof r->file);
    memcpy(r->file.at, &h, sizeof h);
    memcpy(r->file.at + HRT_WEIGHTS_DATA, numbers, sizeof numbers);
    if (r->weights) hrt_weights_close(r->weights);
    r->weights = NULL;
    (void)hrt_weights_from_memory(&r->t->model, &r->file, sizeof r->file, &r->weights);
}

/* With workspace for a few threads more than there are CPUs. */
static size_t session_bytes(const rank *r) {
    return hrt_session_size(&r->t->model, r->max_tokens) + 8 * 4096;
}

static void open_session(rank *r) {
    const size_t size = session_bytes(r);
    r->memory = aligned_alloc(64, size);
    memset(r->memory, 0xff, size); /* nothing may count on zeros */
    r->init_code =
        hrt_session_init_on(&r->t->model, r->memory, size, r->weights, r->max_tokens,
                            hadal_threads_comm(r->group, r->number), r->timeout_ns, &r->session);
    if (r->init_code || r->threads == 1) return;
    (void)hrt_session_set_threads(r->session, r->threads);
    r->session->processors = HRT_MAX_THREADS;
}

static void *run_rank(void *argument) {
    rank *r = argument;
    r->body(r);
    hadal_threads_leave(r->group, r->number);
    return NULL;
}

static void run_ranks(toy *t, int threads, void (*body)(rank *r)) {
    static rank all[MOST_RANKS];
    const int32_t n = (int32_t)t->model.ranks;
    hadal_threads *group;
    pthread_t started[MOST_RANKS];
    cr_assert_eq(hadal_threads_open(n, &group), HADAL_COMM_OK);
    for (int32_t i = 0; i < n; i++) {
        all[i] = (rank){.t = t,
                        .group = group,
                        .number = i,
                        .body = body,
                        .max_tokens = MOST_TOKENS,
                        .timeout_ns = PATIENT * SECOND,
                        .threads = threads};
        open_weights(&all[i], (uint32_t)i);
        cr_assert_eq(pthread_create(&started[i], NULL, run_rank, &all[i]), 0);
    }
    for (int32_t i = 0; i < n; i++)
        pthread_join(started[i], NULL);
    for (int32_t i = 0; i < n; i++) {
        cr_assert_null(all[i].why, "rank %d of %d: %s", i, n, all[i].why);
        hrt_weights_close(all[i].weights);
        free(all[i].memory);
    }
    hadal_threads_close(group);
}

/* ---- results --------------------------------------------------------------------------------- */
static int32_t token(int64_t position) {
    return (int32_t)((position * 7 + 3) % VOCAB);
}

static float gathered(const rank *r, int64_t position, int j) {
    const float ranks = (float)r->t->model.ranks;
    return ranks * (ranks + 1) / 2 * (float)token(position) * (float)(j + 1) + (float)position;
}

static float rounded(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fffu + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* One call of n tokens behind those there are, with the last `rows` rows. */
static void check_call(rank *r, int64_t n, int64_t rows) {
    int32_t ids[MOST_TOKENS];
    float out[MOST_TOKENS * UNITS], back[MOST_TOKENS * 2];
    const int64_t start = hrt_session_length(r->session);
    float *const outs[2] = {out, back};
    for (int64_t i = 0; i < n; i++)
        ids[i] = token(start + i);
    const int code = hrt_forward(r->session, ids, n, outs, rows);
    EXPECT(r, code == HRT_OK, "%ld tokens: code %d: %s", (long)n, code,
           hrt_session_message(r->session));
    for (int64_t k = 0; k < rows; k++)
        for (int u = 0; u < UNITS; u++) {
            const int64_t p = start + n - rows + k;
            const float want = 10 * gathered(r, p, 0) + gathered(r, p, 1) + 1000 * (float)u;
            EXPECT(r, out[k * UNITS + u] == want, "%ld tokens from %ld: row %ld, unit %d: %g",
                   (long)n, (long)start, (long)k, u, out[k * UNITS + u]);
        }
    for (int64_t i = 0; i < n; i++) {
        const int64_t chunk = i / CHUNK == n / CHUNK ? n % CHUNK : CHUNK;
        const bool divided = chunk >= r->t->model.divide_from; /* or nothing crosses */
        for (int j = 0; j < 2; j++) {
            const float x = gathered(r, start + i, j), want = divided ? rounded(x) : x;
            EXPECT(r, back[2 * i + j] == want, "%ld tokens from %ld: trace %ld: %g", (long)n,
                   (long)start, (long)i, back[2 * i + j]);
        }
    }
}

static void all_calls(rank *r) {
    static const int64_t sizes[][2] = {{1, 1},  {2, 1},   {3, 3},   {4, 0},   {5, 2},
                                       {11, 7}, {12, 12}, {13, 13}, {25, 14}, {40, 40}};
    open_session(r);
    EXPECT(r, r->init_code == HRT_OK, "init: code %d", r->init_code);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes && !r->why; k++) {
        (void)hrt_session_rewind(r->session, 0);
        check_call(r, sizes[k][0], sizes[k][1]);
    }
    (void)hrt_session_rewind(r->session, 0);
    for (int k = 0; k < 6 && !r->why; k++) /* prefill in pieces, then token by token */
        check_call(r, k < 3 ? 7 : 1, 1);
}

Test(ranks, results_are_those_of_the_formula) {
    static toy t;
    for (uint32_t ranks = 2; ranks <= MOST_RANKS; ranks++)
        for (int threads = 1; threads <= 3; threads++)
            for (int64_t from = ranks; from <= 2 * CHUNK; from += 5) {
                make_toy(&t, ranks, from);
                run_ranks(&t, threads, all_calls);
            }
}

/* Chunks of CHUNK rows and less: of 5 tiles of 4 ranks many have rows of some ranks alone, and of
 * 20 some have none at all. */
Test(ranks, results_do_not_depend_on_tiles) {
    static const uint32_t tiles[] = {0, 2, 3, 5, 20};
    static toy t;
    for (uint32_t ranks = 2; ranks <= MOST_RANKS; ranks++)
        for (int threads = 1; threads <= 3; threads++)
            for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
                make_toy(&t, ranks, ranks);
                t.model.tiles = tiles[i];
                run_ranks(&t, threads, all_calls);
            }
}

/* Over exchanges that cannot go on by themselves all rows go at once. */
static void without_start(rank *r) {
    hadal_comm face = *hadal_threads_comm(r->group, r->number);
    face.start = NULL;
    face.advance = NULL;
    face.finish = NULL;
    const size_t size = session_bytes(r);
    r->memory = aligned_alloc(64, size);
    r->init_code = hrt_session_init_on(&r->t->model, r->memory, size, r->weights, r->max_tokens,
                                       &face, r->timeout_ns, &r->session);
    EXPECT(r, r->init_code == HRT_OK, "init: code %d", r->init_code);
    check_call(r, 25, 14);
}

Test(ranks, a_transport_need_not_overlap) {
    static toy t;
    make_toy(&t, 3, 3);
    t.model.tiles = 3;
    run_ranks(&t, 1, without_start);
}

static hadal_comm_traffic traffic[MOST_RANKS][HADAL_COMM_EXCHANGE_COUNT];
static void count_one_call(rank *r) {
    const hadal_comm *c = hadal_threads_comm(r->group, r->number);
    open_session(r);
    EXPECT(r, r->init_code == HRT_OK, "init: code %d", r->init_code);
    check_call(r, 25, 14);
    c->count(c->context, traffic[r->number]);
}

Test(ranks, tiles_cross_in_more_messages_of_the_same_bytes) {
    static toy t;
    static hadal_comm_traffic whole[MOST_RANKS][HADAL_COMM_EXCHANGE_COUNT];
    for (uint32_t ranks = 2; ranks <= MOST_RANKS; ranks++) {
        make_toy(&t, ranks, ranks);
        run_ranks(&t, 1, count_one_call);
        memcpy(whole, traffic, sizeof whole);
        t.model.tiles = 3;
        run_ranks(&t, 2, count_one_call);
        for (uint32_t r = 0; r < ranks; r++)
            for (int k = 0; k < HADAL_COMM_EXCHANGE_COUNT; k++) {
                cr_assert_eq(traffic[r][k].sent, whole[r][k].sent);
                cr_assert_eq(traffic[r][k].received, whole[r][k].received);
            }
        /* chunks of 12 and 12; what is left, 1, is not divided */
        const int scatter = HADAL_COMM_REDUCE_SCATTER;
        cr_assert_eq(whole[0][scatter].calls, 2);
        cr_assert_eq(traffic[0][scatter].calls, 6);
    }
}

/* ---- how many tiles ---------------------------------------------------------------------------
 */
static int64_t tiles_for(toy *t, hrt_figures f, int64_t tokens) {
    static hadal_threads *group;
    if (!group) cr_assert_eq(hadal_threads_open(2, &group), HADAL_COMM_OK);
    const hrt_side side = {.comm = hadal_threads_comm(group, 0), .group = {0, 2}};
    int code = -1;
    const int64_t n = hrt_choose_tiles(&t->model, &side, &f, tokens, &code);
    cr_assert_eq(code, HADAL_COMM_OK);
    return n;
}

Test(ranks, as_many_tiles_as_pay) {
    static toy t;
    const int64_t ms = 1000000;
    make_toy(&t, 2, 2);
    t.model.tiles = 0;
    hrt_figures f = {.chunks = 2, .tokens = 512, .agreed = true, .latency_ns = ms / 100};
    f.compute_ns = 100 * ms;
    cr_assert_eq(tiles_for(&t, f, 512), 1); /* nothing to hide */
    f.exchange_ns = ms;
    cr_assert_eq(tiles_for(&t, f, 512), 1); /* less than weights read once more */
    f.exchange_ns = 60 * ms;
    const int64_t some = tiles_for(&t, f, 512);
    cr_assert(some >= 2 && some <= 16, "%ld", (long)some);
    const int64_t more = tiles_for(&t, f, 8192); /* with more rows a tile costs less */
    cr_assert(more > some, "%ld of 8192 rows, %ld of 512", (long)more, (long)some);
    cr_assert_eq(tiles_for(&t, f, 2), 1); /* of one row each is */
    f.latency_ns = 30 * ms;
    cr_assert_eq(tiles_for(&t, f, 512), 1); /* a message more takes longer than it hides */
    cr_assert_eq(tiles_for(&t, f, 1), 1);   /* not divided */
    f.latency_ns = 0;
    t.model.n_overlaps = 0;
    cr_assert_eq(tiles_for(&t, f, 512), 1);
    t.model.n_overlaps = 2;
    t.model.tiles = 7;
    cr_assert_eq(tiles_for(&t, f, 512), 7); /* as it was told */
    f.agreed = false;
    f.chunks = 1;
    t.model.tiles = 0;
    cr_assert_eq(tiles_for(&t, f, 512), 1); /* not measured yet */
}

/* ---- sessions that cannot be ----------------------------------------------------------------- */
static int expected;
static void expect_init(rank *r) {
    open_session(r);
    EXPECT(r, r->init_code == expected, "code %d", r->init_code);
}

static void other_share(rank *r) {
    if (r->number == 1) open_weights(r, 0);
    expect_init(r);
}

static void no_memory(rank *r) {
    if (r->number == 2) {
        _Alignas(64) char little[64];
        hrt_session *s;
        const int code = hrt_session_init_on(&r->t->model, little, sizeof little, r->weights, 8,
                                             hadal_threads_comm(r->group, 2), SECOND, &s);
        EXPECT(r, code == HRT_SIZE && !s, "code %d", code);
    } else {
        expect_init(r);
    }
}

static void other_length(rank *r) {
    r->max_tokens += r->number;
    expect_init(r);
}

static void other_packing(rank *r) {
    if (r->number == 0) r->weights->set[3] = 1;
    expect_init(r);
}

static void other_build(rank *r) {
    static toy another;
    if (r->number == 2) {
        another = *r->t;
        another.model.build[5] = 1;
        r->t = &another;
        open_weights(r, 2);
    }
    expect_init(r);
}

static void absent(rank *r) {
    r->timeout_ns = SECOND / 5;
    if (r->number != 1) expect_init(r);
    if (r->number == 1) nanosleep(&(struct timespec){.tv_nsec = 400000000}, NULL);
}

Test(ranks, all_ranks_get_the_same_error_if_they_do_not_fit_together) {
    static toy t;
    make_toy(&t, 3, 4);
    expected = HRT_RANKS;
    run_ranks(&t, 1, other_share);
    run_ranks(&t, 1, other_length);
    run_ranks(&t, 1, other_packing);
    run_ranks(&t, 1, other_build);
    expected = HRT_SIZE;
    run_ranks(&t, 1, no_memory);
    expected = HRT_EXCHANGE;
    run_ranks(&t, 1, absent);
}

static void without_others(rank *r) {
    hrt_session *s = (void *)r;
    const size_t size = hrt_session_size(&r->t->model, 8);
    r->memory = aligned_alloc(64, size);
    EXPECT(r, hrt_session_init(&r->t->model, r->memory, size, r->weights, 8, &s) == HRT_RANKS && !s,
           "session_init of a divided model");
    EXPECT(r,
           hrt_session_init_on(&r->t->model, r->memory, size, r->weights, 8, NULL, SECOND, &s) ==
               HRT_ARGUMENT,
           "no exchanges");
    hadal_comm other = *hadal_threads_comm(r->group, r->number);
    other.version++;
    EXPECT(r,
           hrt_session_init_on(&r->t->model, r->memory, size, r->weights, 8, &other, SECOND, &s) ==
               HRT_ARGUMENT,
           "exchanges of another version");
}

Test(ranks, a_divided_model_needs_ranks) {
    static toy t;
    make_toy(&t, 2, 2);
    run_ranks(&t, 1, without_others);
}

/* ---- calls that are not the same on all ranks ------------------------------------------------ */
static void bad_calls(rank *r) {
    const int32_t good[3] = {1, 2, 3}, bad[3] = {1, VOCAB, 3}, other[3] = {1, 2, 4};
    float out[3 * UNITS];
    float *const outs[2] = {out, NULL};
    open_session(r);
    EXPECT(r, r->init_code == HRT_OK, "init: code %d", r->init_code);
    const bool odd = r->number == 1;
    int code = hrt_forward(r->session, odd ? bad : good, 3, outs, 1);
    EXPECT(r, code == (odd ? HRT_TOKEN : HRT_PEER), "a bad token: code %d", code);
    code = hrt_forward(r->session, odd ? other : good, 3, outs, 1);
    EXPECT(r, code == HRT_PEER, "other tokens: code %d", code);
    code = hrt_forward(r->session, good, odd ? 2 : 3, outs, 1);
    EXPECT(r, code == HRT_PEER, "fewer tokens: code %d", code);
    code = hrt_forward(r->session, good, 3, outs, odd ? 2 : 1);
    EXPECT(r, code == HRT_PEER, "other rows: code %d", code);
    EXPECT(r, hrt_session_length(r->session) == 0, "a refused call has changed the session");
    check_call(r, 9, 3); /* nothing is lost */
}

Test(ranks, a_call_that_differs_is_refused_and_changes_nothing) {
    static toy t;
    make_toy(&t, 3, 4);
    run_ranks(&t, 2, bad_calls);
}

/* A rank that goes away: the others return in time, and again at once. */
static void one_leaves(rank *r) {
    int32_t ids[9] = {1};
    float out[3 * UNITS];
    float *const outs[2] = {out, NULL};
    open_session(r);
    EXPECT(r, r->init_code == HRT_OK, "init: code %d", r->init_code);
    check_call(r, 9, 3);
    if (r->number == 2) return;
    for (int k = 0; k < 2; k++) {
        const int code = hrt_forward(r->session, ids, 9, outs, 1);
        EXPECT(r, code == HRT_EXCHANGE, "code %d", code);
        EXPECT(r, hrt_session_message(r->session)[0], "there is no message");
    }
    EXPECT(r, hrt_session_length(r->session) == 9, "the length has changed");
}

Test(ranks, a_rank_that_leaves_is_an_error_on_the_others) {
    static toy t;
    make_toy(&t, 3, 4);
    for (int threads = 1; threads <= 3; threads++)
        run_ranks(&t, threads, one_leaves);
}

/* ---- an exchange that fails in the middle of a call -------------------------------------------
 */
typedef struct flaky { /* over the exchanges of a rank: the one of a number fails */
    hadal_comm face;
    const hadal_comm *real;
    int left;
    bool later; /* one that is started fails not at once, but while it is under way */
    int64_t sleep_ns;
} flaky;

static int flaky_gather(void *context, hadal_comm_group group, hadal_comm_type type, const void *in,
                        void *out, const uint64_t *counts, int64_t timeout_ns) {
    flaky *f = context;
    if (f->left-- <= 0) return HADAL_COMM_TIMEOUT;
    return f->real->all_gather(f->real->context, group, type, in, out, counts, timeout_ns);
}

static int flaky_scatter(void *context, hadal_comm_group group, hadal_comm_type type,
                         const void *in, float *out, const uint64_t *counts, int64_t timeout_ns) {
    flaky *f = context;
    if (f->left-- <= 0) return HADAL_COMM_TIMEOUT;
    return f->real->reduce_scatter(f->real->context, group, type, in, out, counts, timeout_ns);
}

static int flaky_start(void *context, hadal_comm_exchange what, hadal_comm_group group,
                       hadal_comm_type type, const void *in, void *out, const uint64_t *counts,
                       const uint64_t *starts, int64_t timeout_ns) {
    flaky *f = context;
    if (f->left-- <= 0 && !f->later) {
        nanosleep(
            &(struct timespec){.tv_sec = f->sleep_ns / SECOND, .tv_nsec = f->sleep_ns % SECOND},
            NULL);
        return HADAL_COMM_TIMEOUT;
    }
    return f->real->start(f->real->context, what, group, type, in, out, counts, starts, timeout_ns);
}

static int flaky_advance(void *context, int *over) {
    flaky *f = context;
    if (f->left < 0) return HADAL_COMM_TIMEOUT;
    return f->real->advance(f->real->context, over);
}

static int flaky_finish(void *context) {
    flaky *f = context;
    if (f->left < 0) return HADAL_COMM_TIMEOUT;
    return f->real->finish(f->real->context);
}

static const char *flaky_message(void *context) {
    (void)context;
    return "made to fail";
}

static void make_flaky(flaky *f, const hadal_comm *real, bool later) {
    *f = (flaky){.face = *real, .real = real, .left = 1000, .later = later};
    f->face.context = f;
    f->face.all_gather = flaky_gather;
    f->face.reduce_scatter = flaky_scatter;
    f->face.start = flaky_start;
    f->face.advance = flaky_advance;
    f->face.finish = flaky_finish;
    f->face.message = flaky_message;
}

static void open_flaky(rank *r, flaky *f) {
    const size_t size = session_bytes(r);
    r->memory = aligned_alloc(64, size);
    r->init_code = hrt_session_init_on(&r->t->model, r->memory, size, r->weights, r->max_tokens,
                                       &f->face, r->timeout_ns, &r->session);
    EXPECT(r, r->init_code == HRT_OK, "init: code %d", r->init_code);
    (void)hrt_session_set_threads(r->session, r->threads);
    r->session->processors = HRT_MAX_THREADS;
}

static int fail_at;
static bool fail_later;
static void fails_inside(rank *r) {
    int32_t ids[30] = {1};
    float out[3 * UNITS];
    float *const outs[2] = {out, NULL};
    flaky f;
    make_flaky(&f, hadal_threads_comm(r->group, r->number), fail_later);
    open_flaky(r, &f);
    if (r->why) return;
    f.left = fail_at; /* on all ranks, so that none waits for another */
    const int code = hrt_forward(r->session, ids, 30, outs, 1);
    EXPECT(r, code == HRT_EXCHANGE, "failing at %d: code %d", fail_at, code);
    EXPECT(r, strstr(hrt_session_message(r->session), "made to fail"), "message: %s",
           hrt_session_message(r->session));
}

Test(ranks, threads_leave_the_call_wherever_an_exchange_fails) {
    static toy t;
    make_toy(&t, 2, 4);
    for (int threads = 1; threads <= 4; threads += 3)
        for (fail_at = 0; fail_at < 9; fail_at++) /* the call's word, then those of three chunks */
            run_ranks(&t, threads, fails_inside);
    t.model.tiles = 3;
    for (int threads = 1; threads <= 4; threads += 3)
        for (int later = 0; later < 2; later++)
            for (fail_at = 1; fail_at < 22; fail_at++) {
                fail_later = later;
                run_ranks(&t, threads, fails_inside);
            }
}

/* One rank fails in an exchange of tiles and goes away, or stalls there: the others learn of it. */
static int64_t sleeps_ns;
static void one_fails_inside(rank *r) {
    int32_t ids[30] = {1};
    float out[3 * UNITS];
    float *const outs[2] = {out, NULL};
    flaky f;
    struct timespec begun, end;
    if (sleeps_ns) r->timeout_ns = SECOND / 5;
    make_flaky(&f, hadal_threads_comm(r->group, r->number), false);
    open_flaky(r, &f);
    if (r->why) return;
    if (r->number == 1) {
        f.left = fail_at;
        f.sleep_ns = sleeps_ns;
    }
    clock_gettime(CLOCK_MONOTONIC, &begun);
    const int code = hrt_forward(r->session, ids, 30, outs, 1);
    clock_gettime(CLOCK_MONOTONIC, &end);
    EXPECT(r, code == HRT_EXCHANGE, "code %d", code);
    EXPECT(r, end.tv_sec - begun.tv_sec < PATIENT / 2, "%ld s until the others knew",
           (long)(end.tv_sec - begun.tv_sec));
    EXPECT(r, hrt_forward(r->session, ids, 30, outs, 1) == HRT_EXCHANGE, "the session goes on");
}

Test(ranks, a_rank_that_fails_in_a_tile_is_an_error_on_the_others) {
    static toy t;
    make_toy(&t, 3, 3);
    t.model.tiles = 3;
    for (int threads = 1; threads <= 3; threads++)
        for (fail_at = 1; fail_at < 12; fail_at += 3) {
            sleeps_ns = 0;
            run_ranks(&t, threads, one_fails_inside);
            sleeps_ns = SECOND;
            if (fail_at == 4) run_ranks(&t, threads, one_fails_inside);
        }
}
