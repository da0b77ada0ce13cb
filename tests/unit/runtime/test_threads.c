/* Threads of a call: the barrier between steps, how many run, and what they leave behind. */
#include <fenv.h>
#include <omp.h>
#include <pthread.h>
#include <unistd.h>
#include <xmmintrin.h>

#include "runtime/barrier.h"
#include "support/quota.h"
#include "tests/unit/runtime/runtime_toy.h"

/* ---- the barrier ----------------------------------------------------------------------------- */
enum { ROUNDS = 300, MOST_THREADS = 16 };

typedef struct meeting {
    hrt_barrier barrier;
    unsigned threads;
    uint64_t spin;
    int board[MOST_THREADS]; /* plain memory: the barrier alone orders it */
    atomic_int wrong;
} meeting;

typedef struct guest {
    meeting *m;
    unsigned index;
    pthread_t thread;
} guest;

/* Everybody writes, all meet, everybody reads all, all meet. Late guests come late in turn, so that
 * others spin, sleep and are woken. */
static void *attend(void *p) {
    guest *g = p;
    meeting *m = g->m;
    hrt_patience patience = {.spin = m->spin};
    for (int round = 1; round <= ROUNDS; round++) {
        if (round % 50 == (int)g->index) usleep(300);
        m->board[g->index] = round;
        hrt_barrier_wait(&m->barrier, m->threads, &patience, NULL);
        for (unsigned i = 0; i < m->threads; i++)
            if (m->board[i] != round) atomic_fetch_add(&m->wrong, 1);
        hrt_barrier_wait(&m->barrier, m->threads, &patience, NULL);
    }
    cr_assert(patience.spin >= 1 && patience.spin < 2 * HRT_SPIN_MOST);
    return NULL;
}

Test(threads, nobody_passes_the_barrier_early) {
    const uint64_t spins[] = {1, HRT_SPIN_LEAST, HRT_SPIN_MOST};
    for (unsigned n = 1; n <= MOST_THREADS; n = n * 2 + (n == 1))
        for (size_t k = 0; k < sizeof spins / sizeof *spins; k++) {
            meeting m = {.threads = n, .spin = spins[k]};
            guest guests[MOST_THREADS];
            for (unsigned i = 0; i < n; i++) {
                guests[i] = (guest){.m = &m, .index = i};
                pthread_create(&guests[i].thread, NULL, attend, &guests[i]);
            }
            for (unsigned i = 0; i < n; i++)
                pthread_join(guests[i].thread, NULL);
            cr_assert_eq(m.wrong, 0, "%u threads, spinning %lu ns", n, (unsigned long)spins[k]);
        }
}

Test(threads, counters_have_lines_of_their_own) {
    cr_assert_geq(offsetof(hrt_barrier, opened) - offsetof(hrt_barrier, arrived), HRT_LINE);
    cr_assert_geq(offsetof(hrt_barrier, sleepers) - offsetof(hrt_barrier, opened), HRT_LINE);
    cr_assert_eq(_Alignof(hrt_barrier), HRT_LINE);
}

/* ---- what comes next ------------------------------------------------------------------------- */
/* Columns 0 .. 2 are panels of two matrices, 3 .. 6 those of a third. */
static const hrt_operand some_operands[] = {
    {.base = HRT_ARENA, .row_bytes = 64},
    {.base = HRT_WEIGHT, .offset = 0, .first_col = 0, .cols = 3, .col_bytes = 640},
    {.base = HRT_WEIGHT, .offset = 4096, .first_col = 0, .cols = 3, .col_bytes = 512},
    {.base = HRT_WEIGHT, .offset = 8192},
    {.base = HRT_WEIGHT, .offset = 65536, .first_col = 3, .cols = 4, .col_bytes = 1 << 20},
};
static const hrt_step some_steps[] = {{.first_operand = 0, .n_operands = 5, .cols = 7},
                                      {.first_operand = 0, .n_operands = 1, .cols = 7}};
enum { MOST = 256 << 10 };
static const hrt_model some_model = {.n_steps = 2, .steps = some_steps, .operands = some_operands};

Test(threads, panels_are_asked_for_in_the_order_of_columns) {
    static uint8_t weights[1];
    const size_t expected[] = {1280, 1536, 1792, 4096 + 1024, 4096 + 1280, 65536, 65536 + 256};
    hrt_prefetch a = {.step = UINT32_MAX};
    hrt_prefetch_aim(&a, &some_model, weights, 0, 2, 4, MOST);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        cr_assert_eq((uintptr_t)hrt_prefetch_next(&a) - (uintptr_t)weights, expected[i], "%zu", i);
        hrt_prefetch_aim(&a, &some_model, weights, 0, 2, 4, MOST); /* the same again: goes on */
    }
    size_t n = sizeof expected / sizeof *expected;
    while (hrt_prefetch_next(&a))
        n++;
    cr_assert_eq(n * HRT_PREFETCH_BLOCK, MOST, "bounded, however large the panels are");
    cr_assert_null(hrt_prefetch_next(&a));
}

Test(threads, nothing_is_asked_for_where_nothing_is_cut) {
    static uint8_t weights[1];
    hrt_prefetch a = {.step = UINT32_MAX};
    cr_assert_null(hrt_prefetch_next(&a), "no aim");
    hrt_prefetch_aim(&a, &some_model, weights, 1, 0, 7, MOST);
    cr_assert_null(hrt_prefetch_next(&a), "no matrices");
    hrt_prefetch_aim(&a, &some_model, weights, 0, 5, 5, MOST);
    cr_assert_null(hrt_prefetch_next(&a), "no columns");
    hrt_prefetch_aim(&a, &some_model, weights, 0, 0, 1, MOST);
    size_t n = 0;
    while (hrt_prefetch_next(&a))
        n++;
    cr_assert_eq(n, 3 + 2, "a column of two matrices, and then none");
}

/* ---- how many -------------------------------------------------------------------------------- */
static int started_by(int threads, int processors) {
    hrt_weights *w = toy_weights(&model);
    size_t size = hrt_session_size(&model, N);
    void *mem = aligned_alloc(64, size);
    hrt_session *s = NULL;
    cr_assert_eq(hrt_session_init(&model, mem, size, w, N, &s), HRT_OK);
    cr_assert_eq(hrt_session_set_threads(s, threads), HRT_OK);
    if (processors) s->processors = processors;
    int n = hrt_workers(s), code, ids[N];
    float out[2], *outs[2] = {out, NULL};
    fill_ids(ids);
    code = hrt_forward(s, ids, N, outs, 1);
    cr_assert_eq(code, HRT_OK);
    expect_rows(ids, N, 1, out);
    free(mem);
    hrt_weights_close(w);
    return n;
}

Test(threads, any_number_fits_what_session_size_says) {
    int processors = hrt_processors();
    cr_assert_leq(processors, omp_get_num_procs());
    cr_assert_leq(processors, hd_quota());
    for (int threads = 1; threads <= HRT_MAX_THREADS; threads += threads < 20 ? 1 : 59)
        cr_assert_eq(started_by(threads, 0), threads < processors ? threads : processors);
    cr_assert_eq(started_by(HRT_MAX_THREADS, 1), 1);
    long configured = sysconf(_SC_NPROCESSORS_CONF);
    int most = configured > HRT_MAX_THREADS ? HRT_MAX_THREADS : (int)configured;
    cr_assert_eq(started_by(HRT_MAX_THREADS, HRT_MAX_THREADS), most,
                 "more than memory is there for");
}

/* ---- floating point -------------------------------------------------------------------------- */
enum { MODE_ROWS = 64 };
static unsigned modes[MODE_ROWS];
static float products[MODE_ROWS];

static void k_mode(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1, int64_t c0,
                   int64_t c1) {
    (void)f, (void)args, (void)c0, (void)c1;
    volatile float tiny = 1e-30f;
    for (int64_t r = r0; r < r1; r++) {
        modes[r] = _mm_getcsr() & ~0x3fu; /* without the flags of what has happened */
        products[r] = tiny * tiny * 1e30f;
    }
}

/* The regions of a caller, whose order ThreadSanitizer does not know. */
enum { THREADS = 4 };
__attribute__((no_sanitize("thread"))) static void set_modes(unsigned *own) {
#pragma omp parallel num_threads(THREADS)
    {
        int i = omp_get_thread_num();
        _mm_setcsr(0x1f80u | (unsigned)i << 13); /* each another direction of rounding */
        own[i] = _mm_getcsr();
    }
}

__attribute__((no_sanitize("thread"))) static void get_modes(unsigned *modes_now) {
#pragma omp parallel num_threads(THREADS)
    modes_now[omp_get_thread_num()] = _mm_getcsr();
}

Test(threads, every_worker_has_the_kernels_mode_and_gets_its_own_back) {
    static hrt_kernel *const kernel[] = {k_mode};
    static const hrt_level level[] = {{.name = "plain", .kernels = kernel}};
    const hrt_step step = {
        .split_decode = HRT_SPLIT_NONE, .split_prefill = HRT_SPLIT_ROWS, .cols = 1};
    const hrt_model m = {.version = HRT_VERSION,
                         .chunk = MODE_ROWS,
                         .n_steps = 1,
                         .n_levels = 1,
                         .steps = &step,
                         .levels = level};
    unsigned own[THREADS], after[THREADS];
    int32_t ids[MODE_ROWS] = {0};
    float *outs[1] = {NULL};
    hrt_session *s = open_session(&m, NULL, MODE_ROWS);
    use_threads(s, THREADS);
    omp_set_dynamic(0);
    set_modes(own);
    for (int64_t n = 1; n <= MODE_ROWS; n += MODE_ROWS - 1) {
        memset(modes, 0, sizeof modes);
        cr_assert_eq(hrt_forward(s, ids, n, outs, 0), HRT_OK);
        cr_assert_eq(hrt_session_rewind(s, 0), HRT_OK);
        for (int64_t r = 0; r < n; r++) {
            cr_assert_eq(modes[r], 0x9fc0u, "row %ld: round to nearest, FTZ and DAZ", (long)r);
            cr_assert_eq(products[r], 0);
        }
        get_modes(after);
        for (int i = 0; i < THREADS; i++)
            cr_assert_eq(after[i], own[i], "thread %d", i);
    }
    free(s);
}
