/* Where a contraction that appends to a cache writes: row by row of one sequence, or each row of a
 * batch to the cache of its own session. Small enough to be followed by hand:
 *
 *     a[t] = x[t] w^T,  w[j] = {j + 1, 10}      4 outputs of 2 inputs
 *     a[t] is two heads of two; position p of head g lies at (g cap + p) 2 of the state */
#include <criterion/criterion.h>

#include "tests/unit/codegen/emit_harness.h"

enum { K = 2, HEADS = 2, WIDTH = 2, OUT = HEADS * WIDTH, MOST_CAP = 16, UNTOUCHED = -7 };

static const char kernel_text[] =
    "hir 1 kernel @f\n\nweight @w : f32[4, 2] panel\n\nstate $other : f32[C, 1, 3]\n"
    "state $k : f32[C, 2, 2]\n\nfunc(%x: f32[T, 2]) {\n"
    "  %c = kernel.contract {name = \"c\", rows = \"all\", split_decode = \"cols\", split_prefill "
    "= "
    "\"cols\"} : f32[C, 2, 2] in state[1] {\n"
    "    %a = linear %x, @w, _ : f32[T, 4]\n"
    "    %h = reshape %a {shape = [T, 2, 2]} : f32[T, 2, 2]\n"
    "    %k = cache_append %h, $k : f32[C, 2, 2]\n"
    "    yield %k\n  }\n}\n";

typedef struct contraction {
    bench b;
    compiled c;
    float *w;
    char *scratch;
} contraction;

static void set_up(contraction *k, const hcg_level *level) {
    k->b = bench_new();
    bench_start(&k->b);
    k->b.exact = HCG_ROUND_ALL;
    k->b.m = hir_parse(k->b.arena, &k->b.diags, "state.hir", kernel_text);
    cr_assert(k->b.m, "%s", bench_errors(&k->b));
    cr_assert(compile_kernel(&k->b, HIR_KERNEL_CONTRACT, k->b.m->first, false, level, &k->c), "%s",
              bench_errors(&k->b));
    float w[OUT * K];
    for (int j = 0; j < OUT; j++)
        w[j * K] = (float)(j + 1), w[j * K + 1] = 10;
    k->w = pack_panels(w, OUT, K, HIR_F32);
    k->scratch = aligned_alloc(64, (k->c.scratch + 127) / 64 * 64);
}

static void tear_down(contraction *k) {
    compiled_free(&k->c);
    guarded_free(k->w);
    free(k->scratch);
    bench_free(&k->b);
}

static float wanted(const float *x, int j) {
    return x[0] * (float)(j + 1) + x[1] * 10;
}

/* Calls the kernel for rows [r0, r1) with the state as `state`: memory, or its number in a batch.
 */
static void run(const contraction *k, hrt_frame frame, const float *x, const void *state,
                int64_t r0, int64_t r1) {
    void *args[4];
    for (size_t i = 0; i < k->c.k.operands.n; i++) {
        const hir_ref r = k->c.k.operands.at[i];
        args[i] = r.kind == HIR_REF_WEIGHT  ? (void *)k->w
                  : r.kind == HIR_REF_STATE ? (void *)(uintptr_t)state
                                            : (void *)(uintptr_t)x;
    }
    frame.scratch = k->scratch;
    k->c.call(&frame, args, r0, r1, 0, hcg_columns(k->b.m, k->b.m->first));
}

static void clear(float *state) {
    for (int i = 0; i < HEADS * MOST_CAP * WIDTH; i++)
        state[i] = UNTOUCHED;
}

/* Position `from` + t holds row t of x for t < n, and nothing else was touched. */
static void expect_state(const float *state, int64_t cap, int64_t from, int64_t n, const float *x,
                         const char *level) {
    for (int64_t g = 0; g < HEADS; g++)
        for (int64_t p = 0; p < cap; p++)
            for (int i = 0; i < WIDTH; i++) {
                const bool ours = p >= from && p < from + n;
                const float want =
                    ours ? wanted(x + (p - from) * K, (int)g * WIDTH + i) : (float)UNTOUCHED;
                cr_assert_eq(state[(g * cap + p) * WIDTH + i], want,
                             "%s: head %ld, position %ld of %ld, element %d", level, (long)g,
                             (long)p, (long)cap, i);
            }
    for (int64_t i = HEADS * cap * WIDTH; i < HEADS * MOST_CAP * WIDTH; i++)
        cr_assert_eq(state[i], UNTOUCHED, "behind the state");
}

static const float x[] = {1, 2, 3, 4, -5, 6, 7, -8, 9, 10};
enum { TOKENS = 5 };

static void check_one_sequence(const contraction *k, const char *level) {
    float state[HEADS * MOST_CAP * WIDTH];
    for (int64_t past = 0; past <= 4; past += 2)
        for (int64_t cut = 0; cut <= TOKENS; cut++) {
            const hrt_frame frame = {.T = TOKENS, .C = past + TOKENS, .cap = 9};
            clear(state);
            if (cut > 0) run(k, frame, x, state, 0, cut);
            if (cut < TOKENS) run(k, frame, x, state, cut, TOKENS);
            expect_state(state, 9, past, TOKENS, x, level);
        }
}

/* Five sessions of different lengths and sizes, one row each. */
static void check_batch(const contraction *k, const char *level) {
    static const int64_t lengths[TOKENS] = {0, 3, 15, 1, 7}, caps[TOKENS] = {1, 4, 16, 9, 8};
    float other[TOKENS], own[TOKENS][HEADS * MOST_CAP * WIDTH];
    char *states[TOKENS][2];
    hrt_owner owner[TOKENS];
    const hrt_owner *owners[TOKENS];
    for (int64_t cut = 0; cut <= TOKENS; cut++) {
        for (int i = 0; i < TOKENS; i++) {
            other[i] = UNTOUCHED;
            clear(own[i]);
            states[i][0] = (char *)&other[i];
            states[i][1] = (char *)own[i];
            owner[i] = (hrt_owner){lengths[i], caps[i], states[i]};
            owners[i] = &owner[i];
        }
        const hrt_frame frame = {.T = TOKENS, .C = 99, .cap = 99, .owners = owners};
        const void *number = (const void *)(uintptr_t)1;
        if (cut > 0) run(k, frame, x, number, 0, cut);
        if (cut < TOKENS) run(k, frame, x, number, cut, TOKENS);
        for (int i = 0; i < TOKENS; i++) {
            expect_state(own[i], caps[i], lengths[i], 1, x + i * K, level);
            cr_assert_eq(other[i], UNTOUCHED, "another state of the session");
        }
    }
}

static void on_every_level(void (*check)(const contraction *k, const char *level)) {
    const hcg_level *levels;
    const size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++) {
        if (!vectors_run(&levels[i])) continue;
        contraction *k = calloc(1, sizeof *k);
        set_up(k, &levels[i]);
        check(k, levels[i].name);
        tear_down(k);
        free(k);
    }
}

Test(emit_state, rows_of_one_sequence_follow_each_other) {
    on_every_level(check_one_sequence);
}

Test(emit_state, each_row_of_a_batch_goes_to_its_session) {
    on_every_level(check_batch);
}
