/* The runtime on a program made by hand (runtime_toy.h). What is tested is what generated code
 * relies on: every row and column is done exactly once however many threads share it, chunks join
 * without a seam, and no bad call changes anything. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xmmintrin.h>

#include "runtime/detect.h"
#include "tests/tools/full.h"
#include "tests/unit/runtime/runtime_toy.h"

/* a pause inside a call, for the test of concurrent misuse */
static atomic_int entered, go_on;
static void k_pause(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1, int64_t c0,
                    int64_t c1) {
    k_copy(f, args, r0, r1, c0, c1);
    atomic_store(&entered, 1);
    while (!atomic_load(&go_on)) {
    }
}

static hrt_kernel *const pausing[] = {k_embed, k_append, k_sum, k_cols, k_fixed, k_out, k_pause};
static const hrt_level pausing_levels[] = {{.name = "plain", .kernels = pausing}};
static const hrt_model pausing_model = MODEL(pausing_levels, 1);

/* ---- shares: every row and column once ------------------------------------------------------- */
enum { MAX_ROWS = 64, MAX_COLS = 24 };
static atomic_int hits[MAX_ROWS][MAX_COLS], cut_rows;
static int64_t all_rows;
static void k_count(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1, int64_t c0,
                    int64_t c1) {
    (void)f, (void)args;
    if (r1 - r0 < all_rows) atomic_fetch_add(&cut_rows, 1);
    for (int64_t r = r0; r < r1; r++)
        for (int64_t c = c0; c < c1; c++)
            atomic_fetch_add(&hits[r][c], 1);
}

Test(runtime, every_share_of_every_split_is_done_once) {
    static hrt_kernel *const counters[] = {k_count};
    static const hrt_level level[] = {{.name = "plain", .kernels = counters}};
    int64_t sizes[] = {1, 2, 5, 16, 17, 31, 64};
    for (int split = HRT_SPLIT_NONE; split <= HRT_SPLIT_HEADS; split++)
        for (int threads = 1; threads <= 17; threads++)
            for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
                for (int64_t cols = 1; cols <= MAX_COLS; cols += 11) {
                    if (!has_turn((unsigned)(split + threads) + k + (uint64_t)cols, 3)) continue;
                    hrt_step step = {.split_decode = (uint32_t)split,
                                     .split_prefill = (uint32_t)split,
                                     .grain = GRAIN,
                                     .last_rows = 1,
                                     .cols = cols};
                    hrt_model m = {.version = HRT_VERSION,
                                   .chunk = 100,
                                   .n_steps = 1,
                                   .n_levels = 1,
                                   .steps = &step,
                                   .levels = level};
                    hrt_session *s = open_session(&m, NULL, MAX_ROWS);
                    int64_t n = sizes[k], rows = (n + 1) / 2;
                    int32_t ids[MAX_ROWS] = {0};
                    float *outs[1] = {NULL};
                    memset(hits, 0, sizeof hits);
                    use_threads(s, threads);
                    all_rows = rows, cut_rows = 0;
                    cr_assert_eq(hrt_forward(s, ids, n, outs, rows), HRT_OK);
                    if (split == HRT_SPLIT_CHANNELS) cr_assert_eq(cut_rows, 0);
                    for (int64_t r = 0; r < MAX_ROWS; r++)
                        for (int64_t c = 0; c < MAX_COLS; c++)
                            cr_assert_eq(hits[r][c], r >= n - rows && r < n && c < cols,
                                         "split %d, %d threads, row %ld of %ld, column %ld", split,
                                         threads, (long)r, (long)n, (long)c);
                    free(s);
                }
}

/* A call of MAX_ROWS tokens of a program of this step alone. */
static void call_step(const hrt_step *step, hrt_kernel *const *kernels, int threads) {
    const hrt_level level = {.name = "plain", .kernels = kernels};
    const hrt_model m = {.version = HRT_VERSION,
                         .chunk = 100,
                         .n_steps = 1,
                         .n_levels = 1,
                         .steps = step,
                         .levels = &level};
    hrt_session *s = open_session(&m, NULL, MAX_ROWS);
    int32_t ids[MAX_ROWS] = {0};
    float *outs[1] = {NULL};
    use_threads(s, threads);
    cr_assert_eq(hrt_forward(s, ids, MAX_ROWS, outs, 1), HRT_OK);
    free(s);
}

/* ---- heads of a causal op ---- */
static _Atomic int64_t cost_of[MAX_ROWS]; /* by the first row of a share: its keys */
static atomic_int shares;
static void k_cost(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1, int64_t c0,
                   int64_t c1) {
    (void)args;
    int64_t keys = 0;
    for (int64_t r = r0; r < r1; r++)
        keys += (f->C - f->T + r + 1) * (c1 - c0);
    atomic_fetch_add(&cost_of[r0], keys);
    atomic_fetch_add(&shares, 1);
}

/* Fewer heads than threads: rows are cut so that all shares meet as many keys, within a row. As
 * many or more: no row is cut, and each thread has one share. */
Test(runtime, shares_of_a_head_have_equal_work) {
    static hrt_kernel *const functions[] = {k_cost};
    for (int64_t heads = 1; heads <= 3; heads++) {
        const hrt_step step = {.split_decode = HRT_SPLIT_NONE,
                               .split_prefill = HRT_SPLIT_HEADS,
                               .grain = 1,
                               .last_rows = 0,
                               .cols = heads};
        memset(cost_of, 0, sizeof cost_of), shares = 0;
        call_step(&step, functions, heads == 1 ? 4 : 2);
        cr_expect_eq(shares, heads == 1 ? 4 : 2, "%d shares of %ld heads", shares, (long)heads);
        const int64_t fair = MAX_ROWS * (MAX_ROWS + 1) / 2 / 4;
        for (int64_t r = 0; heads == 1 && r < MAX_ROWS; r++)
            cr_expect(cost_of[r] == 0 || llabs(cost_of[r] - fair) <= MAX_ROWS,
                      "the share from row %ld on meets %ld keys, not %ld", (long)r,
                      (long)cost_of[r], (long)fair);
        for (int64_t r = 1; heads > 1 && r < MAX_ROWS; r++)
            cr_expect_eq(cost_of[r], 0, "rows are cut at %ld", (long)r);
    }
}

/* Columns of which each thread has as many are not cut; those that are left are, into chunks. */
Test(runtime, columns_that_all_threads_have_are_whole) {
    static hrt_kernel *const counters[] = {k_count};
    for (int threads = 1; threads <= 5; threads++)
        for (int64_t cols = 1; cols <= 12; cols++) {
            const hrt_step step = {.split_decode = HRT_SPLIT_CYCLIC,
                                   .split_prefill = HRT_SPLIT_CYCLIC,
                                   .grain = GRAIN,
                                   .last_rows = 0,
                                   .cols = cols};
            all_rows = MAX_ROWS, cut_rows = 0;
            call_step(&step, counters, threads);
            const int64_t chunks = (MAX_ROWS + GRAIN - 1) / GRAIN * (cols % threads);
            cr_expect_eq(cut_rows, chunks, "%d chunks of %ld columns on %d threads, not %ld",
                         cut_rows, (long)cols, threads, (long)chunks);
        }
}

/* Rows of whole pages, placed a line further apart than they are long as plan-memory has it: the
 * same token of two values is not in the same line of a page, where there are many tokens not even
 * in lines side by side, the values do not meet, and the arena of a session holds the last of them. */
enum { PAGE_ROW = 4096, APART = PAGE_ROW + 64, VALUES = 13 };
static char *value_at[VALUES];
static void k_where(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1, int64_t c0,
                    int64_t c1) {
    (void)r0, (void)r1, (void)c0, (void)c1;
    for (int i = 0; i < VALUES; i++) {
        value_at[i] = args[i];
        memset(args[i], i, (size_t)f->T * PAGE_ROW);
    }
}

Test(runtime, rows_of_one_token_lie_apart) {
    static hrt_kernel *const functions[] = {k_where};
    static const hrt_level level[] = {{.name = "plain", .kernels = functions}};
    static const hrt_step step = {.n_operands = VALUES, .grain = 1, .cols = 1};
    hrt_operand places[VALUES];
    for (uint64_t i = 0; i < VALUES; i++)
        places[i] = (hrt_operand){HRT_ARENA, 0, i * APART, PAGE_ROW, 0, 0, 0};
    const hrt_model m = {.version = HRT_VERSION,
                         .chunk = 64,
                         .arena_per_token = VALUES * APART,
                         .n_steps = 1,
                         .n_operands = VALUES,
                         .n_levels = 1,
                         .steps = &step,
                         .operands = places,
                         .levels = level};
    hrt_session *s = open_session(&m, NULL, 64);
    const int32_t ids[64] = {0};
    float *outs[1] = {NULL};
    use_threads(s, 1);
    for (int64_t n = 1; n <= 64; n *= 2) {
        cr_assert_eq(hrt_forward(s, ids, n, outs, n), HRT_OK);
        for (int i = 0; i < VALUES; i++) {
            cr_assert_eq((uintptr_t)value_at[i] % HRT_ALIGN, 0);
            cr_assert_eq(value_at[i][n * PAGE_ROW - 1], i, "value %d of %ld tokens", i, (long)n);
            for (int j = 0; j < i; j++)
                cr_assert_neq((value_at[i] - value_at[j]) % PAGE_ROW, 0,
                              "values %d and %d of %ld tokens", j, i, (long)n);
            const int64_t lines = i > 0 ? (value_at[i] - value_at[i - 1]) / 64 % HD_PAGE_LINES : 0;
            cr_assert(n < HD_FEW_ROWS || i == 0 ||
                          (lines >= HD_LINES_APART && lines <= HD_PAGE_LINES - HD_LINES_APART),
                      "value %d of %ld tokens: %ld lines", i, (long)n, (long)lines);
        }
        cr_assert_eq(hrt_session_rewind(s, 0), HRT_OK);
    }
    free(s);
}

/* Column g R + r for each head g and each of the R ranges that cover the cache, whatever the number
 * of threads; the counters that threads share are zero, and the memory behind them is there. */
enum { KEY_HEADS = 3, KEY_RANGES = 3, COUNTERS = 192, RANGE_BYTES = 320 };
static atomic_int key_hits[KEY_HEADS * KEY_RANGES];
static void k_keys(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1, int64_t c0,
                   int64_t c1) {
    (void)args;
    if (f->T != 1 || r0 != 0 || r1 != 1 || (uintptr_t)f->shared % HRT_ALIGN) return;
    const char *shared = f->shared;
    for (int i = 0; i < COUNTERS; i++)
        if (shared[i]) return;
    for (int64_t c = c0; c < c1 && c < KEY_HEADS * KEY_RANGES; c++)
        atomic_fetch_add(&key_hits[c], 1);
}

static void k_nothing(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1, int64_t c0,
                      int64_t c1) {
    (void)f, (void)args, (void)r0, (void)r1, (void)c0, (void)c1;
}

Test(runtime, every_range_of_keys_is_done_once) {
    static hrt_kernel *const functions[] = {k_keys, k_nothing};
    static const hrt_level level[] = {{.name = "plain", .kernels = functions}};
    static const hrt_step step = {.kernel_prefill = 1,
                                  .split_decode = HRT_SPLIT_KEYS,
                                  .split_prefill = HRT_SPLIT_CYCLIC,
                                  .grain = 4,
                                  .cols = KEY_HEADS};
    static const hrt_model m = {.version = HRT_VERSION,
                                .chunk = 512,
                                .counter_bytes = COUNTERS,
                                .range_bytes = RANGE_BYTES,
                                .n_steps = 1,
                                .n_levels = 1,
                                .steps = &step,
                                .levels = level};
    hrt_model plain = m;
    plain.counter_bytes = plain.range_bytes = 0;
    for (int64_t cap = 1; cap <= 3 * HRT_KEYS; cap += HRT_KEYS - 1) {
        size_t ranges = (size_t)(cap + HRT_KEYS - 1) / HRT_KEYS;
        cr_assert_eq(hrt_session_size(&m, cap),
                     hrt_session_size(&plain, cap) + COUNTERS + ranges * RANGE_BYTES);
    }
    /* kernels with a window leave no more, however long the session is */
    hrt_model both = m;
    both.window_ranges = 2, both.window_range_bytes = 3 * RANGE_BYTES;
    for (int64_t ranges = 1; ranges <= 8; ranges++) {
        const int64_t most = ranges < 2 ? 3 : ranges < 6 ? 6 : ranges;
        cr_assert_eq(hrt_session_size(&both, ranges * HRT_KEYS),
                     hrt_session_size(&plain, ranges * HRT_KEYS) + COUNTERS +
                         (size_t)most * RANGE_BYTES);
    }
    /* ranges of lists may be shorter, so that a short session has more of them */
    hrt_model lists = m;
    lists.least_ranges = HRT_LIST_RANGES;
    for (int64_t cap = 1; cap <= 12 * HRT_KEYS; cap++) {
        int64_t most = (cap + HRT_KEYS - 1) / HRT_KEYS;
        for (int64_t rows = 1; rows <= cap; rows++) {
            const int64_t each = hrt_list_range(rows), n = (rows + each - 1) / each;
            if (n > most) most = n;
        }
        cr_assert_eq(hrt_session_size(&lists, cap),
                     hrt_session_size(&plain, cap) + COUNTERS + (size_t)most * RANGE_BYTES);
    }
    static const int64_t lengths[] = {0, 1, HRT_KEYS - 1, HRT_KEYS, 2 * HRT_KEYS, 3 * HRT_KEYS - 1};
    for (int threads = 1; threads <= 17; threads++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            hrt_session *s = open_session(&m, NULL, 3 * HRT_KEYS);
            static const int32_t ids[3 * HRT_KEYS];
            float *outs[1] = {NULL};
            cr_assert_eq(hrt_session_set_threads(s, threads), HRT_OK);
            if (lengths[i] > 0) cr_assert_eq(hrt_forward(s, ids, lengths[i], outs, 0), HRT_OK);
            for (int c = 0; c < KEY_HEADS * KEY_RANGES; c++)
                atomic_store(&key_hits[c], 0);
            cr_assert_eq(hrt_forward(s, ids, 1, outs, 0), HRT_OK);
            int64_t cols = KEY_HEADS * (lengths[i] / HRT_KEYS + 1);
            for (int c = 0; c < KEY_HEADS * KEY_RANGES; c++)
                cr_assert_eq(key_hits[c], c < cols, "%d threads, length %ld, column %d", threads,
                             (long)lengths[i], c);
            free(s);
        }
}

/* Three kernels in a row, each of which asks whether the one before has done its rows. */
enum { LINE = 3 };
static atomic_int done[LINE][MAX_ROWS][MAX_COLS], out_of_order;

static void pass_row(int kernel, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
    for (int64_t r = r0; r < r1; r++)
        for (int64_t c = c0; c < c1; c++) {
            if (kernel && !atomic_load(&done[kernel - 1][r][0])) atomic_store(&out_of_order, 1);
            atomic_fetch_add(&done[kernel][r][c], 1);
        }
}
#define LINE_KERNEL(i)                                                                             \
    static void k_line##i(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1,           \
                          int64_t c0, int64_t c1) {                                                \
        (void)f, (void)args;                                                                       \
        pass_row(i, r0, r1, c0, c1);                                                               \
    }
LINE_KERNEL(0)
LINE_KERNEL(1)
LINE_KERNEL(2)

static void run_line(const hrt_model *m, int64_t n, int threads) {
    hrt_session *s = open_session(m, NULL, MAX_ROWS);
    int32_t ids[MAX_ROWS] = {0};
    float *outs[1] = {NULL};
    memset(done, 0, sizeof done);
    cr_assert_eq(hrt_session_set_threads(s, threads), HRT_OK);
    cr_assert_eq(hrt_forward(s, ids, n, outs, 1), HRT_OK);
    free(s);
}

Test(runtime, steps_do_every_row_and_column_once_in_order) {
    static hrt_kernel *const line[] = {k_line0, k_line1, k_line2};
    static const hrt_level level[] = {{.name = "plain", .kernels = line}};
    enum { COLUMNS = 7 };
    hrt_step step[LINE];
    for (uint32_t i = 0; i < LINE; i++)
        step[i] = (hrt_step){.kernel_decode = i,
                             .kernel_prefill = i,
                             .split_prefill = i == 1 ? HRT_SPLIT_COLS : HRT_SPLIT_ROWS,
                             .cols = i == 1 ? COLUMNS : 1};
    hrt_model m = {.version = HRT_VERSION, .chunk = MAX_ROWS, .n_steps = LINE, .n_levels = 1};
    m.steps = step, m.levels = level;
    for (int threads = 1; threads <= 6; threads++)
        for (int64_t n = 1; n <= MAX_ROWS; n += 3) {
            run_line(&m, n, threads);
            for (int k = 0; k < LINE; k++)
                for (int64_t r = 0; r < MAX_ROWS; r++)
                    for (int64_t c = 0; c < MAX_COLS; c++)
                        cr_assert_eq(done[k][r][c], r < n && c < (k == 1 ? COLUMNS : 1),
                                     "%d threads, kernel %d, row %ld of %ld, column %ld", threads,
                                     k, (long)r, (long)n, (long)c);
            cr_assert_eq(out_of_order, 0, "%d threads, %ld rows", threads, (long)n);
        }
}

/* ---- forward --------------------------------------------------------------------------------- */
Test(runtime, chunks_rows_and_threads_give_one_answer) {
    hrt_weights *w = toy_weights(&model);
    int32_t ids[N];
    fill_ids(ids);
    for (int threads = 1; threads <= 17; threads += 3)
        for (int64_t n = 1; n <= N; n++)
            for (int64_t rows = 0; rows <= n; rows += 1 + n / 5) {
                hrt_session *s = open_session(&model, w, N);
                float out[2 * N + 2], all[N + 1], *outs[2] = {out, all};
                out[2 * rows] = all[n] = -7;
                use_threads(s, threads);
                cr_assert_eq(hrt_forward(s, ids, n, outs, rows), HRT_OK);
                cr_assert_eq(hrt_session_length(s), n);
                expect_rows(ids, n, rows, out);
                for (int64_t t = 0; t < n; t++)
                    cr_assert_float_eq(all[t], prefix_sum(ids, t), 1e-3);
                cr_assert(out[2 * rows] == -7 && all[n] == -7, "written past the end");
                free(s);
            }
    hrt_weights_close(w);
}

Test(runtime, split_calls_and_rewind) {
    hrt_weights *w = toy_weights(&model);
    int32_t ids[N];
    fill_ids(ids);
    hrt_session *s = open_session(&model, w, N);
    float out[2 * N], *outs[2] = {out, NULL};
    for (int round = 0; round < 3; round++) {
        int64_t at = hrt_session_length(s), sizes[] = {11, 1, 1, 9, 8, 1};
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes && at + sizes[k] <= N; k++) {
            cr_assert_eq(hrt_forward(s, ids + at, sizes[k], outs, sizes[k]), HRT_OK);
            at += sizes[k];
            expect_rows(ids, at, sizes[k], out);
        }
        cr_assert_eq(hrt_session_rewind(s, 5 * round), HRT_OK);
        cr_assert_eq(hrt_session_length(s), 5 * round);
    }
    free(s);
    hrt_weights_close(w);
}

/* ---- profiles -------------------------------------------------------------------------------- */
Test(runtime, a_profile_counts_each_step_once_a_chunk) {
    hrt_weights *w = toy_weights(&model);
    int32_t ids[N];
    fill_ids(ids);
    for (int threads = 1; threads <= 4; threads++) {
        hrt_session *s = open_session(&model, w, N);
        hrt_profile_step p[7] = {{0}};
        float out[2 * N], *outs[2] = {out, NULL};
        use_threads(s, threads);
        cr_assert_eq(hrt_session_profile(s, p, 7), HRT_OK);
        cr_assert_eq(hrt_forward(s, ids, 20, outs, 20), HRT_OK); /* chunks of 8, 8, 4 */
        uint64_t waited = 0, worked = 0;
        for (int i = 0; i < 7; i++) {
            cr_assert_eq(p[i].calls, 3, "step %d: %d calls", i, (int)p[i].calls);
            waited += p[i].wait_ns, worked += p[i].work_ns;
        }
        cr_assert_gt(worked, 0);
        if (threads == 1) cr_assert_eq(waited, 0);
        expect_rows(ids, 20, 20, out);
        /* no rows asked for: the step that makes them does not run */
        cr_assert_eq(hrt_forward(s, ids + 20, 1, outs, 0), HRT_OK);
        for (int i = 0; i < 7; i++)
            cr_assert_eq(p[i].calls, steps[i].last_rows ? 3 : 4);
        cr_assert_eq(hrt_session_profile(s, NULL, 0), HRT_OK);
        cr_assert_eq(hrt_forward(s, ids + 21, 8, outs, 8), HRT_OK);
        for (int i = 0; i < 7; i++)
            cr_assert_eq(p[i].calls, steps[i].last_rows ? 3 : 4, "it is off");
        free(s);
    }
    hrt_weights_close(w);
}

Test(runtime, a_profile_of_the_wrong_size_is_rejected) {
    hrt_weights *w = toy_weights(&model);
    hrt_session *s = open_session(&model, w, N);
    hrt_profile_step p[8] = {{0}};
    cr_assert_eq(hrt_session_profile(NULL, p, 7), HRT_ARGUMENT);
    cr_assert_eq(hrt_session_profile(s, p, 8), HRT_ARGUMENT);
    cr_assert(strstr(hrt_session_message(s), "a profile of 8 steps: the model has 7"));
    cr_assert_eq(hrt_session_profile(s, p, 0), HRT_ARGUMENT);
    cr_assert_eq(hrt_session_profile(s, NULL, 7), HRT_ARGUMENT);
    cr_assert(strstr(hrt_session_message(s), "there is no memory"));
    int32_t ids[N];
    fill_ids(ids);
    float out[2], *outs[2] = {out, NULL};
    cr_assert_eq(hrt_forward(s, ids, 3, outs, 1), HRT_OK);
    for (int i = 0; i < 8; i++)
        cr_assert_eq(p[i].calls, 0, "a refused profile is off");
    free(s);
    hrt_weights_close(w);
}

Test(runtime, unwanted_outputs_may_be_null) {
    hrt_weights *w = toy_weights(&model);
    int32_t ids[N];
    fill_ids(ids);
    hrt_session *s = open_session(&model, w, N);
    float out[4], *none[2] = {NULL, NULL}, *outs[2] = {out, NULL};
    cr_assert_eq(hrt_forward(s, ids, 20, none, 0), HRT_OK);
    cr_assert_eq(hrt_forward(s, ids + 20, 20, outs, 2), HRT_OK);
    expect_rows(ids, N, 2, out);
    free(s);
    hrt_weights_close(w);
}

Test(runtime, floating_point_settings_come_back) {
    hrt_weights *w = toy_weights(&model);
    int32_t ids[N];
    fill_ids(ids);
    hrt_session *s = open_session(&model, w, N);
    float out[2], *outs[2] = {out, NULL};
    unsigned before = _mm_getcsr();
    _mm_setcsr((before & ~0x3fu) | 0x6000u); /* rounds towards zero */
    unsigned mine = _mm_getcsr();
    cr_assert_eq(hrt_forward(s, ids, 9, outs, 1), HRT_OK);
    cr_assert_eq(_mm_getcsr(), mine);
    _mm_setcsr(before);
    free(s);
    hrt_weights_close(w);
}

Test(runtime, works_inside_a_parallel_region_of_the_caller) {
    hrt_weights *w = toy_weights(&model);
    int32_t ids[N];
    fill_ids(ids);
    int good = 0;
#pragma omp parallel num_threads(3) reduction(+ : good)
    {
        size_t size = hrt_session_size(&model, N);
        void *mem = aligned_alloc(64, size);
        hrt_session *s;
        float out[2] = {0}, *outs[2] = {out, NULL};
        good += hrt_session_init(&model, mem, size, w, N, &s) == HRT_OK &&
                hrt_session_set_threads(s, 4) == HRT_OK &&
                hrt_forward(s, ids, N, outs, 1) == HRT_OK && out[1] == N - 1;
        free(mem);
    }
    cr_assert_eq(good, 3);
    hrt_weights_close(w);
}

/* ---- misuse ---------------------------------------------------------------------------------- */
Test(runtime, bad_calls_change_nothing) {
    hrt_weights *w = toy_weights(&model);
    int32_t ids[N];
    fill_ids(ids);
    hrt_session *s = open_session(&model, w, 20);
    float out[2 * N], *outs[2] = {out, NULL}, *none[2] = {NULL, NULL};
    for (int i = 0; i < 2 * N; i++)
        out[i] = -7;
    cr_assert_str_eq(hrt_session_message(s), "");
    cr_assert_eq(hrt_forward(NULL, ids, 1, outs, 1), HRT_ARGUMENT);
    cr_assert_eq(hrt_forward(s, NULL, 1, outs, 1), HRT_ARGUMENT);
    cr_assert_eq(hrt_forward(s, ids, 0, outs, 0), HRT_ARGUMENT);
    cr_assert_eq(hrt_forward(s, ids, -4, outs, 0), HRT_ARGUMENT);
    cr_assert_eq(hrt_forward(s, ids, 4, outs, -1), HRT_ARGUMENT);
    cr_assert_eq(hrt_forward(s, ids, 4, outs, 5), HRT_ARGUMENT);
    cr_assert_eq(hrt_forward(s, ids, 4, NULL, 0), HRT_ARGUMENT);
    cr_assert_eq(hrt_forward(s, ids, 4, none, 1), HRT_ARGUMENT);
    cr_assert(strlen(hrt_session_message(s)) > 0);
    cr_assert_eq(hrt_forward(s, ids, 21, outs, 1), HRT_FULL);
    cr_assert_eq(hrt_forward(s, ids, INT64_MAX, outs, 1), HRT_FULL);
    ids[6] = VOCAB;
    cr_assert_eq(hrt_forward(s, ids, 9, outs, 1), HRT_TOKEN);
    cr_assert_str_eq(hrt_session_message(s), "token 6 is 50: ids are 0 .. 49 (vocabulary of 50)");
    ids[6] = -1;
    cr_assert_eq(hrt_forward(s, ids, 9, outs, 1), HRT_TOKEN);
    ids[6] = VOCAB - 1;
    for (int i = 0; i < 2 * N; i++)
        cr_assert_eq(out[i], -7);
    cr_assert_eq(hrt_session_length(s), 0);

    cr_assert_eq(hrt_forward(s, ids, 20, outs, 1), HRT_OK);
    cr_assert_str_eq(hrt_session_message(s), "");
    cr_assert_eq(hrt_forward(s, ids, 1, outs, 1), HRT_FULL);
    cr_assert_str_eq(hrt_session_message(s), "no room for 1 more tokens: 20 of 20 are taken");
    cr_assert_eq(hrt_session_rewind(s, 21), HRT_LENGTH);
    cr_assert_eq(hrt_session_rewind(s, -1), HRT_ARGUMENT);
    cr_assert_eq(hrt_session_length(s), 20);
    free(s);
    hrt_weights_close(w);
}

/* The facts about the machine that kernels get: from the library's options, then from the CPU, then
 * from the level. */
static int64_t l3_seen;
static void k_l3(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1, int64_t c0,
                 int64_t c1) {
    (void)args, (void)r0, (void)r1, (void)c0, (void)c1;
    l3_seen = f->l3;
}

Test(runtime, facts_about_the_machine) {
    static hrt_kernel *const functions[] = {k_l3};
    const hd_machine found = hrt_detect(hrt_cpuid_here()).facts,
                     assumed = {.line = 128, .l1 = 1111, .l2 = 2222, .l3 = 3333};
    const hrt_level level[] = {{.name = "plain", .kernels = functions, .machine = assumed}};
    static const hrt_step step = {.grain = 1, .cols = 1};
    hrt_model m = {.version = HRT_VERSION,
                   .chunk = 4,
                   .n_steps = 1,
                   .n_levels = 1,
                   .steps = &step,
                   .levels = level,
                   .machine = {.l2 = 777, .bf16_dots = 55}};
    const int32_t ids[1] = {0};
    float *outs[1] = {NULL};
    for (int said = 0; said < 2; said++) {
        m.machine.l3 = said ? 5555 : 0;
        const int64_t expected = said ? 5555 : (int64_t)hd_machine_or(found, assumed).l3;
        hrt_session *s = open_session(&m, NULL, 4);
        cr_assert_eq(hrt_forward(s, ids, 1, outs, 0), HRT_OK);
        cr_assert_eq(l3_seen, expected);
        char text[200];
        snprintf(text, sizeof text, "\"l2\": 777, \"l3\": %" PRId64 ", \"bf16_dots\": 55}",
                 expected);
        cr_assert_not_null(strstr(hrt_session_machine(s), text), "%s", hrt_session_machine(s));
        cr_assert_eq(hrt_session_set_cpu(s, "plain"), HRT_OK);
        cr_assert_not_null(strstr(hrt_session_machine(s), text));
        free(s);
    }
    cr_assert_str_eq(hrt_session_machine(NULL), "");
}

/* A level whose dot products are slower here than its code was chosen for is the last choice, but
 * can be asked for. */
Test(runtime, levels_that_would_be_slow) {
    static hrt_kernel *const functions[] = {k_l3};
    static const hrt_step step = {.grain = 1, .cols = 1};
    const hrt_level levels[] = {
        {.name = "dots", .kernels = functions, .machine = {.bf16_dots = 200}},
        {.name = "plain", .kernels = functions}};
    hrt_model m = {.version = HRT_VERSION, .chunk = 4, .n_steps = 1, .steps = &step};
    m.levels = levels;
    for (m.n_levels = 1; m.n_levels <= 2; m.n_levels++)
        for (m.machine.bf16_dots = 199; m.machine.bf16_dots <= 200; m.machine.bf16_dots++) {
            const bool plain = m.n_levels == 2 && m.machine.bf16_dots < 200;
            hrt_session *s = open_session(&m, NULL, 4);
            cr_assert_str_eq(hrt_session_cpu(s), plain ? "plain" : "dots");
            cr_assert_eq(hrt_session_set_cpu(s, "dots"), HRT_OK);
            cr_assert_str_eq(hrt_session_cpu(s), "dots");
            cr_assert_eq(hrt_session_set_cpu(s, NULL), HRT_OK);
            cr_assert_str_eq(hrt_session_cpu(s), plain ? "plain" : "dots");
            free(s);
        }
}

Test(runtime, settings) {
    hrt_weights *w = toy_weights(&model);
    hrt_session *s = open_session(&model, w, 4);
    cr_assert_str_eq(hrt_session_cpu(s), "plain", "a level that this CPU lacks was chosen");
    cr_assert_eq(hrt_session_set_cpu(s, "plain"), HRT_OK);
    cr_assert_eq(hrt_session_set_cpu(s, "impossible"), HRT_CPU);
    cr_assert_str_eq(hrt_session_message(s),
                     "level \"impossible\" does not run here: the CPU lacks feature 63");
    cr_assert_not_null(strstr(hrt_session_machine(s),
                              "{\"level\": \"plain\", \"passed_over\": {\"impossible\": "
                              "\"the CPU lacks feature 63\"}, \"line\": "));
    cr_assert_eq(hrt_session_set_cpu(s, "avx9"), HRT_CPU);
    cr_assert_str_eq(hrt_session_message(s),
                     "there is no level \"avx9\" in this library, which has: impossible, plain");
    cr_assert_eq(hrt_session_set_cpu(s, NULL), HRT_OK);
    cr_assert_eq(hrt_session_set_threads(s, 0), HRT_ARGUMENT);
    cr_assert_eq(hrt_session_set_threads(s, HRT_MAX_THREADS + 1), HRT_ARGUMENT);
    cr_assert_eq(hrt_session_set_threads(s, HRT_MAX_THREADS), HRT_OK);
    cr_assert_eq(hrt_session_set_threads(NULL, 1), HRT_ARGUMENT);
    cr_assert_eq(hrt_session_set_cpu(NULL, NULL), HRT_ARGUMENT);
    cr_assert_eq(hrt_session_rewind(NULL, 0), HRT_ARGUMENT);
    free(s);
    hrt_weights_close(w);
}

Test(runtime, session_memory_is_checked) {
    hrt_weights *w = toy_weights(&model);
    size_t size = hrt_session_size(&model, 10);
    char *mem = aligned_alloc(64, size + 64);
    hrt_session *s = (hrt_session *)1;
    cr_assert_eq(hrt_session_init(&model, mem, size - 1, w, 10, &s), HRT_SIZE);
    cr_assert_null(s);
    cr_assert_eq(hrt_session_init(&model, mem, size, w, 11, &s), HRT_SIZE);
    cr_assert_eq(hrt_session_init(&model, mem + 32, size, w, 10, &s), HRT_ALIGNMENT);
    cr_assert_eq(hrt_session_init(&model, NULL, size, w, 10, &s), HRT_ARGUMENT);
    cr_assert_eq(hrt_session_init(&model, mem, size, NULL, 10, &s), HRT_ARGUMENT);
    cr_assert_eq(hrt_session_init(&model, mem, size, w, 0, &s), HRT_ARGUMENT);
    cr_assert_eq(hrt_session_init(&model, mem, size, w, 10, NULL), HRT_ARGUMENT);
    hrt_model other = model;
    other.digest[0] ^= 1;
    cr_assert_eq(hrt_session_init(&other, mem, size, w, 10, &s), HRT_DIGEST);
    other = model;
    other.levels = levels;
    other.n_levels = 1;
    cr_assert_eq(hrt_session_init(&other, mem, size, w, 10, &s), HRT_CPU);
    cr_assert_eq(hrt_session_init(&model, mem, size, w, 10, &s), HRT_OK);
    free(mem);
    hrt_weights_close(w);
}

Test(runtime, sizes_that_do_not_fit_are_rejected) {
    cr_assert_eq(hrt_session_size(&model, 0), 0);
    cr_assert_eq(hrt_session_size(&model, -1), 0);
    cr_assert_eq(hrt_session_size(&model, INT64_MAX), 0);
    cr_assert_eq(hrt_session_size(&model, INT64_MAX / 16 + 1), 0);
    cr_assert_eq(hrt_session_size(NULL, 1), 0);
    hrt_model other = model;
    other.version++;
    cr_assert_eq(hrt_session_size(&other, 1), 0);
    cr_assert_gt(hrt_session_size(&model, INT32_MAX), 16u * INT32_MAX);
    cr_assert_leq(hrt_session_size(&model, 10), hrt_session_size(&model, 11));
}

/* ---- concurrency ----------------------------------------------------------------------------- */
typedef struct task {
    hrt_session *s;
    const int32_t *ids;
    float out[2];
    int rc;
} task;

static void *forward_all(void *p) {
    task *t = p;
    float *outs[2] = {t->out, NULL};
    for (int64_t i = 0; i < N && t->rc == HRT_OK; i++)
        t->rc = hrt_forward(t->s, t->ids + i, 1, outs, 1);
    return NULL;
}

Test(runtime, sessions_on_several_threads_share_weights) {
    hrt_weights *w = toy_weights(&model);
    int32_t ids[N];
    fill_ids(ids);
    task tasks[4] = {0};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        tasks[i].s = open_session(&model, w, N);
        tasks[i].ids = ids;
        use_threads(tasks[i].s, 1 + i % 2);
        pthread_create(&threads[i], NULL, forward_all, &tasks[i]);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        cr_assert_eq(tasks[i].rc, HRT_OK);
        expect_rows(ids, N, 1, tasks[i].out);
        free(tasks[i].s);
    }
    hrt_weights_close(w);
}

static void *forward_once(void *p) {
    task *t = p;
    float *outs[2] = {t->out, NULL};
    t->rc = hrt_forward(t->s, t->ids, 1, outs, 1);
    return NULL;
}

Test(runtime, a_session_in_use_says_so) {
    hrt_weights *w = toy_weights(&pausing_model);
    int32_t ids[N];
    fill_ids(ids);
    task t = {.s = open_session(&pausing_model, w, N), .ids = ids};
    float out[2], *outs[2] = {out, NULL};
    hrt_session_set_threads(t.s, 1);
    pthread_t thread;
    pthread_create(&thread, NULL, forward_once, &t);
    while (!atomic_load(&entered)) {
    }
    cr_assert_eq(hrt_forward(t.s, ids, 1, outs, 1), HRT_BUSY);
    cr_assert_eq(hrt_session_rewind(t.s, 0), HRT_BUSY);
    cr_assert_eq(hrt_session_set_threads(t.s, 2), HRT_BUSY);
    cr_assert_eq(hrt_session_set_cpu(t.s, NULL), HRT_BUSY);
    atomic_store(&go_on, 1);
    pthread_join(thread, NULL);
    cr_assert_eq(t.rc, HRT_OK);
    cr_assert_eq(hrt_session_length(t.s), 1);
    cr_assert_eq(hrt_forward(t.s, ids + 1, 1, outs, 1), HRT_OK);
    expect_rows(ids, 2, 1, out);
    free(t.s);
    hrt_weights_close(w);
}

/* ---- plain functions ------------------------------------------------------------------------- */
/* y[t] = x[t] + table[ids[t]] + position */
static void k_function(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1, int64_t c0,
                       int64_t c1) {
    (void)c0, (void)c1;
    const float *x = args[0], *table = args[2];
    const int32_t *ids = args[1];
    float *y = args[3];
    for (int64_t t = r0; t < r1; t++) {
        ((float *)f->scratch)[0] = (float)(f->C - f->T + t);
        y[t] = x[t] + table[ids[t]] + ((float *)f->scratch)[0];
    }
}

Test(runtime, plain_function) {
    static hrt_kernel *const kernel[] = {k_function};
    static const hrt_level level[] = {{.name = "plain", .kernels = kernel}};
    static const hrt_operand args[] = {
        {.base = HRT_INPUT, .index = 0, .offset = 0, .row_bytes = 4},
        {.base = HRT_INPUT, .index = 1, .offset = 0, .row_bytes = 4},
        {.base = HRT_WEIGHT, .index = 0, .offset = 64, .row_bytes = 0},
        {.base = HRT_OUTPUT, .index = 0, .offset = 0, .row_bytes = 4}};
    static const hrt_step step[] = {STEP(0, 0, 4, NONE, ROWS, 0, 0, 1)};
    static const hrt_tensor_info result[] = {{"y", "f32[T]", 4, 0, 1}};
    static const hrt_tensor_info ins[] = {{"x", "f32[T]", 4, 0, 1}, {"ids", "i32[T]", 4, 0, 1}};
    hrt_model m = model;
    m.vocab = 2;
    m.n_steps = 1;
    m.steps = step;
    m.operands = args;
    m.levels = level;
    m.n_levels = 1;
    m.n_inputs = 2;
    m.inputs = ins;
    m.n_states = 0;
    m.n_outputs = 1;
    m.outputs = result;
    hrt_weights *w = toy_weights(&m);
    float x[N], y[N];
    int32_t ids[N];
    for (int i = 0; i < N; i++)
        x[i] = (float)(100 * i), ids[i] = i % 2;
    const void *in[2] = {x, ids};
    void *out[1] = {y};
    size_t size = hrt_work_size(&m, N);
    char *work = aligned_alloc(64, size + 64);
    for (int64_t n = 1; n <= N; n++) {
        memset(y, 0xff, sizeof y);
        cr_assert_eq(hrt_call(&m, w, n, in, out, work, size), HRT_OK);
        for (int64_t t = 0; t < n; t++)
            cr_assert_eq(y[t], (float)(100 * t + 2 * (t % 2) + t));
        cr_assert(n == N || isnan(y[n]));
    }
    cr_assert_eq(hrt_call(&m, NULL, N, in, out, work, size), HRT_ARGUMENT);
    cr_assert_eq(hrt_call(&m, w, 0, in, out, work, size), HRT_ARGUMENT);
    cr_assert_eq(hrt_call(&m, w, N, in, out, work, 64), HRT_SIZE);
    cr_assert_eq(hrt_call(&m, w, N, in, out, work + 4, size), HRT_ALIGNMENT);
    cr_assert_eq(hrt_call(&m, w, N, in, out, NULL, size), HRT_ARGUMENT);
    ids[3] = 2;
    cr_assert_eq(hrt_call(&m, w, N, in, out, work, size), HRT_TOKEN);
    out[0] = NULL;
    cr_assert_eq(hrt_call(&m, w, N, in, out, work, size), HRT_ARGUMENT);
    cr_assert_eq(hrt_work_size(&m, 0), 0);
    free(work);
    hrt_weights_close(w);
}

/* ---- facts ----------------------------------------------------------------------------------- */
Test(runtime, texts_and_pinned_codes) {
    cr_assert_eq(HRT_OK, 0);
    cr_assert_eq(HRT_TOKEN, 2);
    cr_assert_eq(HRT_BUSY, 12);
    cr_assert_eq(HRT_MIXED, 14);
    cr_assert_eq(HRT_REWIND, 15);
    cr_assert_eq(HRT_SAVED, 16);
    cr_assert_eq(HRT_BUILD, 17);
    cr_assert_eq(HRT_RANKS, 18);
    cr_assert_eq(HRT_COLLECTIVE, 19);
    cr_assert_eq(HRT_PEER, 20);
    cr_assert_eq(HRT_MOVED, 21);
    cr_assert_eq(HRT_FINITE, 22);
    cr_assert_eq(HRT_COUNT, 23);
    for (int i = 0; i <= HRT_COUNT; i++)
        cr_assert_str_neq(hrt_strerror(i), "unknown error code");
    cr_assert_str_eq(hrt_strerror(24), "unknown error code");
    cr_assert_str_eq(hrt_strerror(-1), "unknown error code");
}

Test(runtime, cpu_features_agree_with_the_compiler) {
#if defined(__x86_64__)
    uint64_t have = hrt_cpu_features();
#define SAME(id, name)                                                                             \
    cr_assert_eq((have & HRT_CPU_##id) != 0, __builtin_cpu_supports(name) != 0, name)
    SAME(SSE3, "sse3");
    SAME(SSSE3, "ssse3");
    SAME(SSE41, "sse4.1");
    SAME(SSE42, "sse4.2");
    SAME(POPCNT, "popcnt");
    SAME(AVX, "avx");
    SAME(AVX2, "avx2");
    SAME(BMI, "bmi");
    SAME(BMI2, "bmi2");
    SAME(FMA, "fma");
    SAME(AVX512F, "avx512f");
    SAME(AVX512BW, "avx512bw");
    SAME(AVX512CD, "avx512cd");
    SAME(AVX512DQ, "avx512dq");
    SAME(AVX512VL, "avx512vl");
    SAME(AVX512VNNI, "avx512vnni");
    SAME(AVX512BF16, "avx512bf16");
#endif
}
