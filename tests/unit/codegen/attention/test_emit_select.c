/* Kernels of sparse attention against double loops, at every CPU level of this machine: choices of
 * rows with ties, NaN, signed zeros, windows, blocks and weights, and attention over lists, windows
 * and entries, in caches of every type, behind tokens before the call, whole and divided among
 * threads. The function for one token is called once for each row, as if the others came in calls
 * of their own. */
#include <criterion/criterion.h>
#include <math.h>

#include "support/tensorfile.h"
#include "tests/unit/codegen/emit_harness.h"

enum { BEHIND = 3, MOST_OPERANDS = 8, GUARD = 64, ROUNDS = 24, UNTOUCHED = -12345 };

typedef struct cache { /* [G][cap / rate][n] */
    int64_t groups, n, rate, rows;
    hir_dtype dtype;
    float *x; /* what it holds; NaN behind the rows in use */
    void *stored;
} cache;

typedef struct problem {
    bench b;
    uint64_t seed;
    hir_id kernel;
    int64_t t, past, heads, width; /* width: elements of a row of the result */
    cache cache[3];
    unsigned caches;
    void *in[MOST_OPERANDS]; /* operands in order; of a state NULL */
    int64_t row[MOST_OPERANDS], columns;
    unsigned operands;
    hrt_step step; /* list_*, window */
} problem;

/* ---- building -------------------------------------------------------------------------------- */
static hir_ref new_cache(problem *p, int64_t groups, int64_t n, int64_t rate, hir_dtype dtype) {
    const hir_type type = hir_make_type(dtype, 3, (int64_t[]){hir_over_rate(rate), groups, n});
    const char *name = hd_printf(p->b.arena, "cache%u", p->caches);
    const uint32_t index = hir_add_state(p->b.m, name, HIR_STATE_CACHE, type, HD_NOWHERE);
    const hir_id v = hir_add_input(p->b.m, name, type); /* stands for the result of cache_append */
    const int64_t cap = p->past + p->t + BEHIND, used = (p->past + p->t) / rate;
    cache *c = &p->cache[p->caches++];
    *c = (cache){.groups = groups, .n = n, .rate = rate, .rows = cap / rate, .dtype = dtype};
    hir_value_at(p->b.m, v)->place = HIR_PLACE_STATE;
    hir_value_at(p->b.m, v)->offset = index;
    c->x = random_floats(&p->seed, (size_t)(groups * c->rows * n));
    for (int64_t i = 0; i < groups * c->rows * n; i++)
        if (i / n % c->rows >= used) c->x[i] = NAN;
    p->in[p->operands++] = NULL;
    return hir_value_ref(v);
}

static hir_ref new_input(problem *p, const char *name, uint32_t rank, const int64_t *dims) {
    const hir_type t = hir_make_type(HIR_F32, rank, dims);
    p->row[p->operands] = hir_type_row_elements(t);
    p->in[p->operands++] = random_floats(&p->seed, (size_t)(p->t * hir_type_row_elements(t)));
    return hir_value_ref(hir_add_input(p->b.m, name, t));
}

/* As the type of the cache holds it; x becomes what that is. */
static void store(cache *c) {
    const size_t n = (size_t)(c->groups * c->rows * c->n), bytes = hir_dtype_bytes(c->dtype);
    c->stored = guarded(n * bytes);
    for (size_t i = 0; i < n; i++) {
        const uint16_t half =
            c->dtype == HIR_BF16 ? hd_bf16_from_f32(c->x[i]) : hd_f16_from_f64(c->x[i]);
        if (c->dtype == HIR_BF16) c->x[i] = hd_bf16_to_f32(half);
        if (c->dtype == HIR_F16) c->x[i] = hd_f16_to_f32(half);
        memcpy((char *)c->stored + i * bytes,
               c->dtype == HIR_F32 ? (const void *)&c->x[i] : (const void *)&half, bytes);
    }
}

static const float *row_of(const cache *c, int64_t g, int64_t s) {
    return c->x + (g * c->rows + s) * c->n;
}

static void open_problem(problem *p, uint64_t seed, int64_t t, int64_t past) {
    *p = (problem){.b = bench_new(), .seed = seed * 2654435761u + 1, .t = t, .past = past};
    bench_start(&p->b);
}

static void build_kernel(problem *p, hir_opcode code, const hir_ref *args, uint32_t n,
                         const hir_attr *attrs, uint32_t n_attrs, hir_type to) {
    hir_attr of[] = {hir_string(HIR_A_NAME, "sequence0"), hir_string(HIR_A_ROWS, "all"),
                     hir_string(HIR_A_SPLIT_DECODE, "keys"),
                     hir_string(HIR_A_SPLIT_PREFILL, "cyclic"), hir_int(HIR_A_GRAIN, 1)};
    hir_builder top = hir_at_end(p->b.m, &p->b.diags);
    p->kernel = hir_build_kernel(&top, HIR_KERNEL_SEQUENCE_OP, of, 5, &to, 1);
    hir_builder body = hir_in_body(p->b.m, &p->b.diags, p->kernel);
    hir_ref y = hir_emit(&body, code, args, n, attrs, n_attrs);
    hir_build(&body, HIR_YIELD_OP, &y, 1, NULL, 0);
    cr_assert(!hd_diags_failed(&p->b.diags), "%s", bench_errors(&p->b));
    p->width = hir_type_row_elements(to);
    p->columns = hcg_columns(p->b.m, p->kernel);
    hcg_list_rows(p->b.m, p->kernel, &p->step);
}

static void close_problem(problem *p) {
    for (unsigned i = 0; i < p->operands; i++)
        guarded_free(p->in[i]);
    for (unsigned i = 0; i < p->caches; i++)
        guarded_free(p->cache[i].x), guarded_free(p->cache[i].stored);
    bench_free(&p->b);
}

/* ---- running --------------------------------------------------------------------------------- */
/* Ranges of one token, as the runtime counts them. */
static int64_t ranges_of(const problem *p, int64_t length) {
    const hrt_step *s = &p->step;
    int64_t rows = length / s->list_rate, near = length;
    if (rows > s->list_most) rows = s->list_most;
    if (s->window && near > s->window) near = s->window;
    if (!s->list_only) rows += near;
    const int64_t each = hrt_list_range(rows);
    return rows > 0 ? (rows + each - 1) / each : 1;
}

static void call_frame(const problem *p, const compiled *c, hrt_frame frame, int64_t token,
                       int32_t *out, const int64_t rows[2], const int64_t cols[2]) {
    void *args[MOST_OPERANDS];
    unsigned cache = 0;
    for (unsigned i = 0; i < p->operands; i++)
        args[i] =
            p->in[i] ? (void *)((float *)p->in[i] + token * p->row[i]) : p->cache[cache++].stored;
    args[p->operands] = out + token * p->width;
    cr_assert_eq(c->k.operands.n, p->operands + 1);
    frame.scratch = guarded((c->scratch + 63) / 64 * 64);
    memset(frame.scratch, 0xff, c->scratch);
    c->call(&frame, args, rows[0], rows[1], cols[0], cols[1]);
    guarded_free(frame.scratch);
}

/* One token, its columns divided at random if `cut`, the later ones first. */
static void call_token(problem *p, const compiled *c, int32_t *out, int64_t t, bool cut) {
    const int64_t cap = p->past + p->t + BEHIND;
    hrt_frame frame = {.T = 1, .C = p->past + t + 1, .cap = cap};
    uint64_t counters, range, ranges = (uint64_t)(cap + HRT_KEYS - 1) / HRT_KEYS;
    uint64_t least = (uint64_t)(cap + HRT_LIST_ROWS - 1) / HRT_LIST_ROWS;
    if (least > HRT_LIST_RANGES) least = HRT_LIST_RANGES; /* hrt_model.least_ranges */
    if (ranges < least) ranges = least;
    shared_in_program(&p->b, p->kernel, &counters, &range);
    char *shared = guarded(counters + ranges * range);
    memset(shared, 0xff, counters + ranges * range);
    memset(shared, 0, counters);
    frame.shared = shared;
    const int64_t cols = p->columns * ranges_of(p, frame.C);
    for (int64_t to = cols, from; to > 0; to = from) {
        from = cut ? random_below(&p->seed, to) : 0;
        call_frame(p, c, frame, t, out, (int64_t[]){0, 1}, (int64_t[]){from, to});
    }
    for (uint64_t i = 0; i < counters; i++)
        cr_assert_eq(shared[i], 0, "a counter is left");
    guarded_free(shared);
}

static void call_rows(problem *p, const compiled *c, int32_t *out, bool cut) {
    const hrt_frame frame = {.T = p->t, .C = p->past + p->t, .cap = p->past + p->t + BEHIND};
    for (int64_t from = 0, to; from < p->t; from = to) {
        to = cut ? from + 1 + random_below(&p->seed, p->t - from) : p->t;
        for (int64_t g = 0, n; c->k.phase != HIR_DECODE && g < p->columns; g += n) {
            n = cut ? 1 + random_below(&p->seed, p->columns - g) : p->columns;
            call_frame(p, c, frame, 0, out, (int64_t[]){from, to}, (int64_t[]){g, g + n});
        }
        for (int64_t t = from; t < to && c->k.phase == HIR_DECODE; t++)
            call_token(p, c, out, t, cut);
    }
}

static int32_t *new_result(const problem *p) {
    const size_t n = (size_t)(p->t * p->width) + GUARD;
    int32_t *out = guarded(n * 4);
    for (size_t i = 0; i < n; i++)
        out[i] = UNTOUCHED;
    return out;
}

typedef void comparison(const problem *p, const int32_t *out, const void *with, const char *what);

static void check_phase(problem *p, const hcg_level *level, bool decode, comparison *compare,
                        const void *with) {
    compiled c;
    bool ok = compile_kernel(&p->b, HIR_KERNEL_SEQUENCE, p->kernel, decode, level, &c);
    cr_assert(ok, "%s: %s", level->name, bench_errors(&p->b));
    const char *what = hd_printf(p->b.arena, "%s %s", level->name, decode ? "decode" : "prefill");
    int32_t *whole = new_result(p), *cut = new_result(p);
    call_rows(p, &c, whole, false);
    compare(p, whole, with, what);
    call_rows(p, &c, cut, true);
    cr_assert_eq(memcmp(whole, cut, (size_t)(p->t * p->width) * 4), 0, "%s: cut, other bits", what);
    for (size_t i = 0; i < GUARD; i++)
        cr_assert_eq(whole[(size_t)(p->t * p->width) + i], UNTOUCHED, "%s: behind the result",
                     what);
    guarded_free(whole), guarded_free(cut);
    compiled_free(&c);
}

static void check(problem *p, const hcg_level *level, comparison *compare, const void *with) {
    check_phase(p, level, false, compare, with);
    check_phase(p, level, true, compare, with);
}

/* ---- select ---------------------------------------------------------------------------------- */
typedef struct choice {
    int64_t groups, n, k, rate, window;
    bool relu, positions, weights, exact;
    int64_t block;         /* rows of a block; 0: there are none */
    bool blocks;           /* blocks are chosen */
    int64_t lists, most;   /* lists of blocks for a token, entries of one */
    const int32_t *listed; /* rows of these blocks are seen; NULL: all */
} choice;

static double score_of(const problem *p, const choice *c, int64_t t, int64_t g, int64_t s) {
    const float *q = p->in[0], *w = c->weights ? p->in[2] : NULL;
    const int64_t per_group = p->heads / c->groups;
    double sum = 0;
    for (int64_t h = g * per_group; h < (g + 1) * per_group; h++) {
        double dot = 0;
        for (int64_t i = 0; i < c->n; i++)
            dot += (double)q[(t * p->heads + h) * c->n + i] * row_of(&p->cache[0], g, s)[i];
        if (c->relu && dot < 0) dot = 0;
        sum += dot * (w ? w[t * p->heads + h] : 1);
    }
    return sum;
}

static bool is_better(double a, int64_t s, double b, int64_t r) {
    if (isnan(a) || isnan(b)) return isnan(a) == isnan(b) ? s < r : isnan(b);
    return a > b || (a == b && s < r);
}

/* Whether row s is chosen of the rows from .. to - 1; NaN of a difference below what f32 may be off
 * by: then it may be or not. */
static double is_chosen(const problem *p, const choice *c, const double *score, int64_t from,
                        int64_t to, int64_t s) {
    int64_t surely = 0, perhaps = 0;
    /* sums of 70 products of size 1, weights to 1: 5e-6 for each head */
    const double near = c->exact ? 0 : 6e-6 * (double)(p->heads / c->groups);
    for (int64_t r = from; r < to; r++) {
        const bool close = near > 0 && fabs(score[r] - score[s]) <= near;
        surely += r != s && !close && is_better(score[r], r, score[s], s);
        perhaps += r != s && close;
    }
    return surely >= c->k ? 0 : surely + perhaps < c->k ? 1 : NAN;
}

static bool is_listed(const choice *c, int64_t t, int64_t g, int64_t s) {
    const int32_t *list = c->listed + (t * c->lists + g % c->lists) * c->most;
    for (int64_t i = 0; i < c->most; i++)
        if (list[i] == s / c->block) return true;
    return false;
}

/* What is chosen from, by number, and its scores: rows that are seen, or their blocks. */
static int64_t find_offered(const problem *p, const choice *c, int64_t t, int64_t g, double *score,
                            int64_t *number) {
    const int64_t to = (p->past + t + 1) / c->rate;
    const int64_t from = c->window && to > c->window ? to - c->window : 0;
    int64_t n = 0;
    for (int64_t s = from; s < to; s++) {
        if (c->listed && !is_listed(c, t, g, s)) continue;
        const double x = score_of(p, c, t, g, s);
        const bool same = c->blocks && n > 0 && number[n - 1] == s / c->block;
        if (!same) score[n] = NAN, number[n++] = c->blocks ? s / c->block : s;
        if (isnan(score[n - 1]) || x > score[n - 1]) score[n - 1] = x;
        if (c->blocks && s == to - 1) score[n - 1] = INFINITY;
    }
    return n;
}

static void compare_choice(const problem *p, const int32_t *out, const void *with,
                           const char *what) {
    const choice *c = with;
    const int64_t list = p->width / c->groups, each = c->positions ? c->rate : 1;
    double *score = malloc((size_t)(p->past + p->t) * sizeof *score);
    int64_t *number = malloc((size_t)(p->past + p->t) * sizeof *number);
    for (int64_t i = 0; i < p->t * c->groups; i++) {
        const int64_t t = i / c->groups, g = i % c->groups, at = p->past + t;
        const int32_t *row = out + i * list;
        const int64_t all = find_offered(p, c, t, g, score, number);
        int64_t n = 0;
        for (int64_t s = 0; s < all; s++) {
            const double chosen = is_chosen(p, c, score, 0, all, s);
            const bool listed = n < list && row[n] == number[s] * each;
            cr_assert(isnan(chosen) || listed == (chosen > 0),
                      "%s: token %ld group %ld: %ld is %slisted (of %ld, k %ld, block %ld)", what,
                      (long)t, (long)g, (long)number[s], listed ? "" : "not ", (long)all,
                      (long)c->k, (long)c->block);
            for (int64_t j = 0; listed && j < each; j++, n++)
                cr_assert_eq(row[n], number[s] * each + j);
        }
        cr_assert_eq(n, each * (all < c->k ? all : c->k), "%s: %ld listed", what, (long)n);
        for (int64_t s = (at + 1) / c->rate * each; c->positions && s <= at; s++, n++)
            cr_assert_eq(row[n], s, "%s: the tail", what);
        for (; n < list; n++)
            cr_assert_eq(row[n], -1, "%s: behind the list", what);
    }
    free(score), free(number);
}

/* Whole numbers, so that f32 has no error and rows tie; signed zeros, and keys of NaN. */
static void make_exact(problem *p, const choice *c) {
    cache *keys = &p->cache[0];
    for (int64_t i = 0; i < keys->groups * keys->rows * keys->n; i++)
        if (!isnan(keys->x[i])) keys->x[i] = rintf(2 * keys->x[i]);
    for (int64_t i = 0; i < p->t * p->heads * c->n; i++)
        ((float *)p->in[0])[i] = rintf(2 * ((float *)p->in[0])[i]);
    for (int64_t i = 0; c->weights && i < p->t * p->heads; i++)
        ((float *)p->in[2])[i] = rintf(3 * ((float *)p->in[2])[i]);
    const int64_t used = (p->past + p->t) / c->rate;
    for (int64_t s = 0; s < used; s++)
        if (random_below(&p->seed, 12) == 0 && !c->relu)
            keys->x[random_below(&p->seed, keys->groups) * keys->rows * keys->n + s * keys->n] =
                NAN;
}

/* Lists of blocks, rising, some beyond what a token sees, and then none. */
static hir_ref new_blocks(problem *p, choice *c, uint64_t *s) {
    const int64_t blocks = (p->past + p->t) / c->rate / c->block + 2;
    c->lists = random_below(s, 2) ? 1 : c->groups, c->most = 1 + random_below(s, 40);
    int32_t *list = guarded((size_t)(p->t * c->lists * c->most) * 4);
    for (int64_t i = 0; i < p->t * c->lists; i++) {
        int64_t block = random_below(&p->seed, 2), n = 0;
        for (; n < c->most && block < blocks; n++, block += 1 + random_below(&p->seed, 3))
            list[i * c->most + n] = (int32_t)block;
        for (; n < c->most; n++)
            list[i * c->most + n] = -1;
    }
    c->listed = list;
    p->row[p->operands] = c->lists * c->most, p->in[p->operands++] = list;
    const hir_type t = hir_make_type(HIR_I32, 3, (int64_t[]){HIR_T, c->lists, c->most});
    return hir_value_ref(hir_add_input(p->b.m, "blocks", t));
}

/* By turns of rows, of blocks, and of rows of listed blocks. */
static void open_choice(problem *p, choice *c, uint64_t *s, int round) {
    /* few ones, and those that fill panels, more than fit a strip, some lanes of the last empty */
    static const int64_t per_group[] = {1, 2, 3, 5, 8, 11, 13, 16, 31, 36, 48, 70};
    open_problem(p, random_bits(s), 1 + random_below(s, 14),
                 random_below(s, 3) ? random_below(s, 900) : 0);
    *c = (choice){.groups = 1 + random_below(s, 3), .n = 1 + random_below(s, 70)};
    c->rate = random_below(s, 2) ? 1 : 2 + random_below(s, 6);
    c->k = random_below(s, 2) ? 1 + random_below(s, 9) : 1 + random_below(s, 200);
    if (round % 3) c->block = 1 + random_below(s, random_below(s, 2) ? 9 : 300);
    c->blocks = round % 3 == 1;
    if (c->rate == 1 && !c->block && random_below(s, 3) == 0) c->window = 1 + random_below(s, 400);
    c->relu = random_below(s, 2), c->weights = random_below(s, 2), c->exact = round % 2;
    c->positions = c->rate > 1 && !c->blocks && random_below(s, 2);
    p->heads = c->groups * per_group[random_below(s, 12)];
    const hir_dtype dtype = (hir_dtype[]){HIR_F32, HIR_BF16, HIR_F16}[random_below(s, 3)];
    hir_ref args[4] = {new_input(p, "q", 3, (int64_t[]){HIR_T, p->heads, c->n}),
                       new_cache(p, c->groups, c->n, c->rate, dtype), hir_no_ref(), hir_no_ref()};
    if (c->weights) args[2] = new_input(p, "w", 2, (int64_t[]){HIR_T, p->heads});
    if (c->exact) make_exact(p, c);
    store(&p->cache[0]);
    if (round % 3 == 2) args[3] = new_blocks(p, c, s);
    const char *of = c->positions ? "positions" : c->blocks ? "blocks" : "rows";
    hir_attr attrs[4] = {
        hir_int(HIR_A_K, c->k), hir_string(HIR_A_ACTIVATION, c->relu ? "relu" : "none"),
        hir_string(HIR_A_OF, of),
        c->block ? hir_int(HIR_A_BLOCK, c->block) : hir_int(HIR_A_WINDOW, c->window)};
    const int64_t list = c->positions ? c->k * c->rate + c->rate - 1 : c->k;
    build_kernel(p, HIR_SELECT_OP, args, 4, attrs, c->window || c->block ? 4 : 3,
                 hir_make_type(HIR_I32, 3, (int64_t[]){HIR_T, c->groups, list}));
}

/* ---- attention over chosen rows -------------------------------------------------------------- */
typedef struct lists {
    int64_t groups, n, m, most, each, rate, window; /* each: lists of a token; most 0: none */
    bool entries, same;
    double scale, softcap;
    enum { NO_SINK, BY_HEAD, BY_TOKEN } sink;
    float *sinks;
} lists;

static double attend(const problem *p, const lists *l, int64_t t, int64_t h, double *o) {
    const int64_t g = h / (p->heads / l->groups), at = p->past + t, most = p->past + p->t;
    const float *q = (float *)p->in[0] + (t * p->heads + h) * l->n;
    const int32_t *list =
        l->most ? (int32_t *)p->in[l->same ? 2 : 3] + (t * l->each + g % l->each) * l->most : NULL;
    const cache *k = &p->cache[0], *v = &p->cache[l->same ? 0 : 1], *e = &p->cache[l->same ? 1 : 2];
    const float **key = malloc((size_t)(3 * most) * sizeof *key);
    const float **value = malloc((size_t)(3 * most) * sizeof *value);
    double *score = malloc((size_t)(3 * most) * sizeof *score), sum = 0, max = -INFINITY;
    int64_t n = 0;
    for (int64_t s = l->window && at >= l->window ? at - l->window + 1 : 0; l->entries && s <= at;
         s++)
        key[n] = row_of(k, g, s), value[n++] = row_of(v, g, s);
    const int64_t rows = (at + 1) / l->rate;
    for (int64_t i = 0; i < (list ? l->most : rows) && i < rows; i++) {
        const int64_t s = list ? list[i] : i;
        if (s < 0 || s >= rows) break;
        key[n] = row_of(l->entries ? e : k, g, s), value[n++] = row_of(l->entries ? e : v, g, s);
    }
    const double sink =
        l->sink == NO_SINK ? -INFINITY : l->sinks[l->sink == BY_HEAD ? h : t * p->heads + h];
    max = sink;
    for (int64_t i = 0; i < n; i++) {
        score[i] = 0;
        for (int64_t j = 0; j < l->n; j++)
            score[i] += (double)q[j] * key[i][j];
        score[i] *= l->scale;
        if (l->softcap > 0) score[i] = l->softcap * tanh(score[i] / l->softcap);
        max = fmax(max, score[i]);
    }
    memset(o, 0, (size_t)l->m * sizeof *o);
    sum = l->sink == NO_SINK ? 0 : exp(sink - max);
    for (int64_t i = 0; i < n; i++) {
        const double w = exp(score[i] - max);
        sum += w;
        for (int64_t j = 0; j < l->m; j++)
            o[j] += w * value[i][j];
    }
    free(key), free(value), free(score);
    return sum;
}

/* 5e-6 as in test_emit_sequence.c: weights that add up to 1, scores of up to 70 products in f32. */
static void compare_attention(const problem *p, const int32_t *out, const void *with,
                              const char *what) {
    const lists *l = with;
    double *o = malloc((size_t)l->m * sizeof *o);
    for (int64_t t = 0; t < p->t; t++)
        for (int64_t h = 0; h < p->heads; h++) {
            const double sum = attend(p, l, t, h, o);
            for (int64_t j = 0; j < l->m; j++) {
                float got;
                memcpy(&got, out + (t * p->heads + h) * l->m + j, 4);
                if (sum == 0) { /* nothing is seen */
                    cr_assert_eq(got, 0);
                    continue;
                }
                cr_assert(fabs(got - o[j] / sum) <= 5e-6,
                          "%s: [%ld, %ld, %ld] is %.9g, not %.9g (past %ld, list %ld of %ld, "
                          "rate %ld, entries %d, window %ld)",
                          what, (long)t, (long)h, (long)j, (double)got, o[j] / sum, (long)p->past,
                          (long)l->each, (long)l->most, (long)l->rate, l->entries, (long)l->window);
            }
        }
    free(o);
}

/* Rising rows, some behind what a token sees, and then none; now and then none at all. */
static void fill_lists(problem *p, const lists *l, int32_t *list) {
    const int64_t rows = (p->past + p->t) / l->rate + 2;
    for (int64_t i = 0; i < p->t * l->each; i++) {
        const int64_t step = 1 + random_below(&p->seed, 2 * rows / l->most + 2);
        int64_t row = random_below(&p->seed, 3), n = 0;
        for (; n < l->most && row < rows; n++, row += 1 + random_below(&p->seed, step))
            list[i * l->most + n] = (int32_t)row;
        if (random_below(&p->seed, 9) == 0) n = 0;
        for (; n < l->most; n++)
            list[i * l->most + n] = random_below(&p->seed, 4) ? -1 : INT32_MAX;
    }
}

static void open_lists(problem *p, lists *l, uint64_t *s) {
    static const int64_t per_group[] = {1, 2, 3, 4, 7, 16, 33};
    open_problem(p, random_bits(s), 1 + random_below(s, 12),
                 random_below(s, 3) ? random_below(s, 900) : 0);
    *l = (lists){.groups = 1 + random_below(s, 3), .n = 1 + random_below(s, 70), .rate = 1};
    if (random_below(s, 3) == 0) l->n = 32 * (1 + random_below(s, 3)); /* met as words of bf16 */
    l->entries = random_below(s, 2), l->same = random_below(s, 2);
    l->m = l->same || l->entries || random_below(s, 3) == 0 ? l->n : 1 + random_below(s, 70);
    if (l->entries) l->rate = 1 + random_below(s, 6);
    if (l->entries && random_below(s, 2)) l->window = 1 + random_below(s, 300);
    if (!l->entries || random_below(s, 2)) l->most = 1 + random_below(s, 500);
    l->each = random_below(s, 2) ? 1 : l->groups;
    l->sink = random_below(s, 3);
    l->softcap = random_below(s, 4) ? 0 : 3;
    l->scale = 1.5 / sqrt((double)l->n);
    p->heads = l->groups * per_group[random_below(s, 7)];
    const hir_dtype dtype = (hir_dtype[]){HIR_F32, HIR_BF16, HIR_F16}[random_below(s, 3)];
    hir_ref args[6] = {new_input(p, "q", 3, (int64_t[]){HIR_T, p->heads, l->n}),
                       new_cache(p, l->groups, l->n, 1, dtype)};
    args[2] = l->same ? args[1] : new_cache(p, l->groups, l->m, 1, dtype);
    args[3] = args[4] = args[5] = hir_no_ref();
    if (l->most) {
        const hir_type t = hir_make_type(HIR_I32, 3, (int64_t[]){HIR_T, l->each, l->most});
        int32_t *list = guarded((size_t)(p->t * l->each * l->most) * 4);
        fill_lists(p, l, list);
        p->row[p->operands] = l->each * l->most, p->in[p->operands++] = list;
        args[3] = hir_value_ref(hir_add_input(p->b.m, "list", t));
    }
    if (l->sink == BY_TOKEN) args[4] = new_input(p, "sink", 2, (int64_t[]){HIR_T, p->heads});
    if (l->sink == BY_HEAD) {
        const hir_type t = hir_make_type(HIR_F32, 1, &p->heads);
        p->in[p->operands++] = random_floats(&p->seed, (size_t)p->heads);
        args[4] = hir_weight_ref(hir_add_weight(p->b.m, "sink", t, HD_NOWHERE));
    }
    if (l->sink) l->sinks = p->in[p->operands - 1];
    if (l->entries) args[5] = new_cache(p, l->groups, l->n, l->rate, dtype);
    for (unsigned i = 0; i < p->caches; i++)
        store(&p->cache[i]);
    hir_attr attrs[3] = {hir_float(HIR_A_SCALE, l->scale)};
    uint32_t n = 1;
    if (l->window) attrs[n++] = hir_int(HIR_A_WINDOW, l->window);
    if (l->softcap > 0) attrs[n++] = hir_float(HIR_A_SOFTCAP, l->softcap);
    p->step.window = (uint32_t)l->window;
    build_kernel(p, HIR_ATTENTION_SELECTED_OP, args, 6, attrs, n,
                 hir_make_type(HIR_F32, 3, (int64_t[]){HIR_T, p->heads, l->m}));
}

/* ---- levels ---------------------------------------------------------------------------------- */
static const hcg_level *level_of(const char *name) {
    const hcg_level *levels;
    const size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++)
        if (strcmp(levels[i].name, name) == 0) {
            if (!level_runs(&levels[i])) cr_skip_test("this CPU has no %s", name);
            return &levels[i];
        }
    cr_assert_fail("no level %s", name);
    return NULL;
}

static void check_level(const char *name) {
    const hcg_level *level = level_of(name);
    uint64_t s = 8128;
    for (int round = 0; round < ROUNDS; round++) {
        problem p;
        choice c;
        open_choice(&p, &c, &s, round);
        if (has_turn((unsigned)round + level->lanes / 8, 3)) check(&p, level, compare_choice, &c);
        close_problem(&p);
    }
    for (int round = 0; round < ROUNDS; round++) {
        problem p;
        lists l;
        open_lists(&p, &l, &s);
        if (has_turn((unsigned)round + level->lanes / 8, 3))
            check(&p, level, compare_attention, &l);
        close_problem(&p);
    }
}

Test(emit_select, avx512) {
    check_level("avx512");
}

Test(emit_select, avx2) {
    check_level("avx2");
}

Test(emit_select, baseline) {
    check_level("baseline");
}

/* Nothing is called that a generated library does not have, on levels of other machines, too. */
Test(emit_select, no_foreign_calls) {
    const hcg_level *levels;
    const size_t n = hcg_levels(&levels);
    uint64_t s = 5;
    for (size_t i = 0; i < n; i++)
        for (int of = 0; of < 4 && !level_runs(&levels[i]); of++) {
            problem p;
            choice c;
            lists l;
            if (of < 2)
                open_choice(&p, &c, &s, of);
            else
                open_lists(&p, &l, &s);
            const char *call =
                calls_outside(&p.b, HIR_KERNEL_SEQUENCE, p.kernel, of % 2, &levels[i]);
            cr_assert_null(call, "%s calls %s %s", levels[i].name, call, bench_errors(&p.b));
            close_problem(&p);
        }
}
