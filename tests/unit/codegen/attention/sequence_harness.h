/* What tests of kernels in memory of their own share: results with a guard behind them, memory that
 * threads leave things for each other in, caches in every type, calls of a frame, levels. */
#ifndef TEST_SEQUENCE_HARNESS_H
#define TEST_SEQUENCE_HARNESS_H

#include <criterion/criterion.h>

#include "support/tensorfile.h"
#include "tests/unit/codegen/emit_harness.h"

/* ---- results ------------------------------------------------------------------------------- */
enum { GUARD = 64 };
static const float untouched = -12345.0f;

static inline float *new_results(size_t n) {
    float *o = guarded((n + GUARD) * 4);
    for (size_t i = 0; i < n + GUARD; i++)
        o[i] = untouched;
    return o;
}

static inline void check_guard(const float *o, size_t n, const char *what) {
    for (size_t i = 0; i < GUARD; i++)
        cr_assert(o[n + i] == untouched, "%s: wrote behind the result", what);
}

/* ---- calls --------------------------------------------------------------------------------- */
/* What threads share: counters of zero, then garbage; all counters are zero again behind it. */
typedef struct shared {
    uint64_t counters, bytes;
    char *at;
} shared;

static inline shared new_shared(const bench *b, hir_id kernel, int64_t capacity, int64_t window) {
    shared s;
    uint64_t range, ranges = (uint64_t)(capacity + HRT_KEYS - 1) / HRT_KEYS;
    shared_in_program(b, kernel, &s.counters, &range);
    if (window && ranges > hcg_window_ranges((uint64_t)window))
        ranges = hcg_window_ranges((uint64_t)window);
    s.bytes = s.counters + ranges * range;
    s.at = guarded(s.bytes);
    memset(s.at, 0xff, s.bytes);
    memset(s.at, 0, s.counters);
    return s;
}

static inline void free_shared(const shared *s) {
    for (uint64_t i = 0; i < s->counters; i++)
        cr_assert_eq(s->at[i], 0, "a counter is left");
    guarded_free(s->at);
}

/* In scratch of garbage. */
static inline void call_frame(const compiled *c, hrt_frame frame, void *const *args, int64_t r0,
                              int64_t r1, int64_t c0, int64_t c1) {
    frame.scratch = guarded((c->scratch + 63) / 64 * 64);
    memset(frame.scratch, 0xff, c->scratch);
    c->call(&frame, args, r0, r1, c0, c1);
    guarded_free(frame.scratch);
}

/* Columns of a call for one token or a few, as the runtime counts them. */
static inline int64_t key_columns(int64_t groups, int64_t window, const hrt_frame *f) {
    const int64_t before = f->C - f->T + 1 - window;
    const int64_t first = window && before > 0 ? before / HRT_KEYS : 0;
    return groups * ((f->C + HRT_KEYS - 1) / HRT_KEYS - first);
}

/* Columns 0 .. cols - 1, divided at random if `cut`, in random order. */
static inline void call_columns(uint64_t *seed, const compiled *c, hrt_frame frame,
                                void *const *args, int64_t rows, int64_t cols, bool cut) {
    const int64_t at = cut ? random_below(seed, cols + 1) : 0;
    for (int64_t from = at, to; from < cols; from = to) { /* the later columns first */
        to = cut ? from + 1 + random_below(seed, cols - from) : cols;
        call_frame(c, frame, args, 0, rows, from, to);
    }
    if (at > 0) call_frame(c, frame, args, 0, rows, 0, at);
}

/* ---- caches -------------------------------------------------------------------------------- */
/* A value that stands for the result of cache_append. */
static inline hir_ref state_value(bench *b, const char *name, hir_dtype dtype, int64_t groups,
                                  int64_t n) {
    hir_type type = hir_make_type(dtype, 3, (int64_t[]){HIR_C, groups, n});
    uint32_t index = hir_add_state(b->m, name, HIR_STATE_CACHE, type, HD_NOWHERE);
    hir_id v = hir_add_input(b->m, name, type);
    hir_value_at(b->m, v)->place = HIR_PLACE_STATE;
    hir_value_at(b->m, v)->offset = index;
    return hir_value_ref(v);
}

/* *x as an element of that type; x becomes what that holds. */
static inline void store_element(void *to, hir_dtype dtype, float *x) {
    uint16_t half = dtype == HIR_BF16 ? hd_bf16_from_f32(*x) : hd_f16_from_f64(*x);
    if (dtype == HIR_BF16) *x = hd_bf16_to_f32(half);
    if (dtype == HIR_F16) *x = hd_f16_to_f32(half);
    memcpy(to, dtype == HIR_F32 ? (void *)x : (void *)&half, hir_dtype_bytes(dtype));
}

/* ---- weights ------------------------------------------------------------------------------- */
/* Panels of each of `groups` matrices [n][k] in turn; w becomes what they hold. */
static inline void *pack_blocks(float *w, int64_t groups, int64_t n, int64_t k, hir_dtype dtype) {
    const hir_weight stored = {.type = hir_make_type(dtype, 2, (int64_t[]){n, k}),
                               .layout = HIR_LAYOUT_PANEL};
    uint64_t each;
    cr_assert(hir_weight_bytes(&stored, &each));
    char *packed = guarded((uint64_t)groups * each);
    for (int64_t g = 0; g < groups; g++) {
        void *panels = pack_panels(w + g * n * k, n, k, dtype);
        memcpy(packed + (uint64_t)g * each, panels, each);
        guarded_free(panels);
    }
    return packed;
}

/* ---- levels -------------------------------------------------------------------------------- */
/* The level of this name; the test is skipped where this CPU has no such. */
static inline const hcg_level *level_named(const char *name) {
    const hcg_level *levels;
    const size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(levels[i].name, name) != 0) continue;
        if (!level_runs(&levels[i])) cr_skip_test("this CPU has no %s", name);
        return &levels[i];
    }
    cr_assert_fail("no level %s", name);
    return NULL;
}

#endif
