/* Latent attention kernels against double loops, both forms: over rows as they are cached, and over
 * keys and values that are made of them. Heads that fill a panel and that do not, several latents
 * of a position, heads that share a key, rows of one state and of two, the latent at either end,
 * caches and weights of every type, tokens before the call, windows, sinks, a bias by distance, a
 * soft cap, at every CPU level of this machine, whole and divided among threads. The function for
 * one token is called once for each row, as if the others came in calls of their own. The matrix
 * unit, emulated where there is none, with f32 activations and rounded ones. */
#include <criterion/criterion.h>
#include <math.h>

#include "codegen/attention/attention_tile.h"
#include "tests/unit/codegen/attention/sequence_harness.h"
#include "tests/unit/codegen/tiles_fixture.h"

typedef struct shape {
    int64_t t, past, heads, groups, r, m;
    bool two_states, latent_last;
    hir_dtype dtype;
    int64_t kv_heads, n, v; /* of the expanded form; kv_heads 0: it is the other one */
    hir_dtype weights;
    int64_t window, extent; /* 0: no window, no bias */
    double softcap;         /* 0: none */
    enum { NO_SINK, SINK_BY_HEAD, SINK_BY_TOKEN } sink;
    bool rounded; /* queries and softmax weights may be rounded to bf16 */
} shape;

typedef struct problem {
    bench b;
    shape s;
    uint64_t seed;
    hir_id kernel;
    double scale;
    int64_t n, v, kv_heads; /* entries of q and of o; heads of k and v */
    float *q, *q_p, *c,
        *p; /* [T][H][n], [T][H][m], [G][cap][r], [G][cap][m]: NaN behind the keys */
    float *sink, *bias, *w_k, *w_v;
    void *rows, *shared, *packed_k, *packed_v; /* states and weights as stored */
    double *keys, *values;                     /* [K][positions][n + m], [K][positions][v] */
    bool rounded;                              /* q, rows and p are rounded to bf16 */
    double tolerance;
} problem;

enum { BEHIND = 3, MOST_OPERANDS = 10 };

static int64_t positions(const problem *p) {
    return p->s.past + p->s.t;
}

static int64_t capacity(const problem *p) {
    return positions(p) + BEHIND;
}

static int64_t row_width(const problem *p) {
    return p->s.r + (p->s.two_states ? 0 : p->s.m);
}

static bool is_last(const shape *s) {
    return s->latent_last && s->m && !s->two_states;
}

/* ---- the kernel ------------------------------------------------------------------------------ */
static hir_ref input(problem *p, const char *name, uint32_t rank, const int64_t *dims) {
    return hir_value_ref(hir_add_input(p->b.m, name, hir_make_type(HIR_F32, rank, dims)));
}

static hir_ref query(problem *p, const char *name, int64_t n) {
    return input(p, name, 3, (int64_t[]){HIR_T, p->s.heads, n});
}

static hir_ref sink_of(problem *p) {
    const int64_t dims[] = {HIR_T, p->s.heads};
    if (p->s.sink == NO_SINK) return hir_no_ref();
    if (p->s.sink == SINK_BY_TOKEN) return input(p, "sink", 2, dims);
    hir_type type = hir_make_type(HIR_F32, 1, dims + 1);
    return hir_weight_ref(hir_add_weight(p->b.m, "sink", type, HD_NOWHERE));
}

static hir_ref map(problem *p, const char *name, int64_t n) {
    const shape *s = &p->s;
    hir_type type = hir_make_type(s->weights, 3, (int64_t[]){s->kv_heads, n, s->r});
    uint32_t w = hir_add_weight(p->b.m, name, type, HD_NOWHERE);
    p->b.m->weights.at[w].layout = HIR_LAYOUT_PANEL;
    return hir_weight_ref(w);
}

/* The operands of either op, from q on; gives how many. */
static uint32_t make_operands(problem *p, hir_ref *args) {
    const shape *s = &p->s;
    const hir_ref none = hir_no_ref();
    uint32_t n = 0;
    args[n++] = query(p, "q", p->n);
    args[n++] = state_value(&p->b, "rows", s->dtype, s->groups, row_width(p));
    args[n++] = s->m ? query(p, "q_p", s->m) : none;
    args[n++] =
        s->two_states && s->m ? state_value(&p->b, "shared", s->dtype, s->groups, s->m) : none;
    if (s->kv_heads) args[n++] = map(p, "w_k", s->n);
    if (s->kv_heads) args[n++] = map(p, "w_v", s->v);
    args[n++] = sink_of(p);
    args[n++] = s->extent ? input(p, "bias", 3, (int64_t[]){HIR_T, s->heads, s->extent}) : none;
    return n;
}

static void build_kernel(problem *p) {
    const shape *s = &p->s;
    const bool made = s->kv_heads > 0;
    hir_ref args[MOST_OPERANDS];
    if (made) args[0] = query(p, "otherwise", p->v);
    const uint32_t n = made + make_operands(p, args + made);
    hir_attr attrs[] = {hir_string(HIR_A_NAME, "sequence0"), hir_string(HIR_A_ROWS, "all"),
                        hir_string(HIR_A_SPLIT_DECODE, made ? "none" : "keys"),
                        hir_string(HIR_A_SPLIT_PREFILL, made ? "cols" : "cyclic"),
                        hir_int(HIR_A_GRAIN, 16)};
    hir_attr of[4] = {hir_int(HIR_A_START, is_last(s) ? s->m : 0),
                      hir_float(HIR_A_SCALE, p->scale)};
    uint32_t n_of = 2;
    if (s->window) of[n_of++] = hir_int(HIR_A_WINDOW, s->window);
    if (s->softcap > 0) of[n_of++] = hir_float(HIR_A_SOFTCAP, s->softcap);
    hir_type to = hir_make_type(HIR_F32, 3, (int64_t[]){HIR_T, s->heads, p->v});
    hir_builder top = hir_at_end(p->b.m, &p->b.diags);
    p->kernel = hir_build_kernel(&top, HIR_KERNEL_SEQUENCE_OP, attrs, 5, &to, 1);
    hir_builder body = hir_in_body(p->b.m, &p->b.diags, p->kernel);
    hir_ref o = hir_emit(&body, made ? HIR_ATTENTION_EXPANDED_OP : HIR_ATTENTION_LATENT_OP, args, n,
                         of, n_of);
    hir_build(&body, HIR_YIELD_OP, &o, 1, NULL, 0);
    cr_assert(!hd_diags_failed(&p->b.diags), "%s", bench_errors(&p->b));
}

/* ---- the cache --------------------------------------------------------------------------------*/
/* Columns of the rows of all groups. Behind the keys they are NaN, and so are those before all
 * windows, rounded down to four. */
static float *columns(problem *p, int64_t n) {
    const int64_t cap = capacity(p);
    const int64_t first = p->s.window ? (p->s.past + 1 - p->s.window) & -4 : 0;
    float *x = random_floats(&p->seed, (size_t)(p->s.groups * cap * n));
    for (int64_t i = 0; i < p->s.groups * cap * n; i++)
        if (i / n % cap >= positions(p) || i / n % cap < first) x[i] = NAN;
    return x;
}

/* x as a column of rows of a state of `width`; x becomes what that holds. */
static void store(const problem *p, void *to, int64_t width, int64_t at, float *x, int64_t n) {
    const size_t bytes = hir_dtype_bytes(p->s.dtype);
    for (int64_t i = 0; i < p->s.groups * capacity(p) * n; i++)
        store_element((char *)to + (size_t)(i / n * width + at + i % n) * bytes, p->s.dtype, &x[i]);
}

static void store_rows(problem *p) {
    const shape *s = &p->s;
    const size_t bytes = hir_dtype_bytes(s->dtype), rows = (size_t)(s->groups * capacity(p));
    p->c = columns(p, s->r), p->p = columns(p, s->m);
    p->rows = guarded(rows * (size_t)row_width(p) * bytes);
    store(p, p->rows, row_width(p), is_last(s) ? s->m : 0, p->c, s->r);
    if (!s->m) return;
    if (s->two_states) p->shared = guarded(rows * (size_t)s->m * bytes);
    store(p, s->two_states ? p->shared : p->rows, s->two_states ? s->m : row_width(p),
          s->two_states || is_last(s) ? 0 : s->r, p->p, s->m);
}

/* Entry i of a key or value of head j: that of the map, or of the latent. */
static double entry(const problem *p, const float *w, int64_t n, int64_t j, int64_t s, int64_t i) {
    const int64_t r = p->s.r, group = j / (p->kv_heads / p->s.groups);
    const float *c = p->c + (group * capacity(p) + s) * r;
    double sum = 0;
    if (!w) return c[i];
    for (int64_t l = 0; l < r; l++)
        sum += (double)w[(j * n + i) * r + l] * c[l];
    return sum;
}

static void expand(problem *p) {
    const int64_t all = positions(p), m = p->s.m, width = p->n + m;
    p->keys = malloc((size_t)(p->kv_heads * all * width) * sizeof *p->keys);
    p->values = malloc((size_t)(p->kv_heads * all * p->v) * sizeof *p->values);
    for (int64_t j = 0; j < p->kv_heads; j++)
        for (int64_t s = 0; s < all; s++) {
            const int64_t row = j * all + s, group = j / (p->kv_heads / p->s.groups);
            for (int64_t i = 0; i < p->n; i++)
                p->keys[row * width + i] = entry(p, p->w_k, p->n, j, s, i);
            for (int64_t i = 0; i < m; i++)
                p->keys[row * width + p->n + i] = p->p[(group * capacity(p) + s) * m + i];
            for (int64_t i = 0; i < p->v; i++)
                p->values[row * p->v + i] = entry(p, p->w_v, p->v, j, s, i);
        }
}

/* Entries of a map are as small as make keys of the size of latents. */
static float *new_map(problem *p, int64_t n) {
    const size_t all = (size_t)(p->s.kv_heads * n * p->s.r);
    float *w = random_floats(&p->seed, all);
    for (size_t i = 0; i < all; i++)
        w[i] *= 1.7f / sqrtf((float)p->s.r);
    return w;
}

/* To bf16, so that a kernel that rounds them computes with the same numbers. */
static void round_all(float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        x[i] = hd_bf16_to_f32(hd_bf16_from_f32(x[i]));
}

/* The tolerance: sums of up to 700 terms of size 1 (or of 5000 whose weights are as much less) in
 * f32, weights that add up to 1: 5e-6 as in test_emit_sequence.c. Keys and values that are made
 * have errors of their own, sums of up to 70 terms: twice that. */
static void open_problem(problem *p, shape s, uint64_t seed) {
    *p = (problem){.b = bench_new(), .s = s, .seed = seed * 2654435761u + 1};
    bench_start(&p->b);
    p->b.exact = s.rounded ? 0 : ~0u; /* x of maps stays f32: that is tested with the back ends */
    p->tolerance = s.kv_heads ? 1e-5 : 5e-6;
    p->n = s.kv_heads ? s.n : s.r, p->v = s.kv_heads ? s.v : s.r;
    p->kv_heads = s.kv_heads ? s.kv_heads : s.groups;
    p->scale = 1.5 / sqrt((double)(p->n + s.m));
    build_kernel(p);
    p->q = random_floats(&p->seed, (size_t)(s.t * s.heads * p->n));
    p->q_p = random_floats(&p->seed, (size_t)(s.t * s.heads * s.m));
    if (s.rounded) round_all(p->q, s.t * s.heads * p->n), round_all(p->q_p, s.t * s.heads * s.m);
    p->sink = random_floats(&p->seed, (size_t)(s.t * s.heads));
    p->bias = random_floats(&p->seed, (size_t)(s.t * s.heads * s.extent));
    store_rows(p);
    if (s.kv_heads) {
        p->w_k = new_map(p, s.n), p->w_v = new_map(p, s.v);
        p->packed_k = pack_blocks(p->w_k, s.kv_heads, s.n, s.r, s.weights);
        p->packed_v = pack_blocks(p->w_v, s.kv_heads, s.v, s.r, s.weights);
    }
    expand(p);
}

static void close_problem(problem *p) {
    void *const all[] = {p->q,    p->q_p,    p->c,   p->p,   p->sink,     p->bias,
                         p->rows, p->shared, p->w_k, p->w_v, p->packed_k, p->packed_v};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        guarded_free(all[i]);
    free(p->keys), free(p->values);
    bench_free(&p->b);
}

/* ---- expected -------------------------------------------------------------------------------- */
/* scale q . k, of n elements; q is rounded when it is scaled. */
static double scaled_product(const problem *p, const float *q, const double *k, int64_t n) {
    const float scale = (float)p->scale;
    double sum = 0;
    for (int64_t j = 0; j < n; j++)
        sum += p->rounded ? (double)hd_bf16_to_f32(hd_bf16_from_f32(q[j] * scale)) * k[j]
                          : (double)q[j] * k[j];
    return p->rounded ? sum : sum * p->scale;
}

static double score(const problem *p, int64_t t, int64_t h, int64_t at) {
    const shape *s = &p->s;
    const int64_t number = t * s->heads + h, apart = s->past + t - at, width = p->n + s->m;
    const double *k = p->keys + (h / (s->heads / p->kv_heads) * positions(p) + at) * width;
    double sum = scaled_product(p, p->q + number * p->n, k, p->n);
    sum += scaled_product(p, p->q_p + number * s->m, k + p->n, s->m);
    if (s->softcap > 0) sum = s->softcap * tanh(sum / s->softcap);
    return apart < s->extent ? sum + p->bias[number * s->extent + apart] : sum;
}

/* o[v] of one token and head, in double, and behind them sums of the sizes of their terms */
static void expect(const problem *p, int64_t t, int64_t h, double *o) {
    const shape *s = &p->s;
    const int64_t end = s->past + t + 1, number = t * s->heads + h;
    const int64_t first = s->window && end > s->window ? end - s->window : 0;
    const double *v = p->values + h / (s->heads / p->kv_heads) * positions(p) * p->v;
    double *l = malloc((size_t)end * sizeof *l), sum = 0;
    const double sink = s->sink ? p->sink[s->sink == SINK_BY_HEAD ? h : number] : -INFINITY;
    double most = sink;
    for (int64_t i = first; i < end; i++)
        most = fmax(most, l[i] = score(p, t, h, i));
    memset(o, 0, 2 * (size_t)p->v * sizeof *o);
    if (s->sink) sum = exp(sink - most);
    for (int64_t i = first; i < end; i++) {
        const double e = exp(l[i] - most);
        sum += e;
        for (int64_t j = 0; j < p->v; j++) {
            o[j] += e * v[i * p->v + j];
            o[p->v + j] += e * fabs(v[i * p->v + j]);
        }
    }
    for (int64_t j = 0; j < 2 * p->v; j++)
        o[j] /= sum;
    free(l);
}

static size_t result_size(const problem *p) {
    return (size_t)(p->s.t * p->s.heads * p->v);
}

static void compare(const problem *p, const float *o, const char *what) {
    const shape *s = &p->s;
    const double tolerance = p->tolerance;
    double *e = malloc(2 * (size_t)p->v * sizeof *e);
    for (int64_t t = 0; t < s->t; t++)
        for (int64_t h = 0; h < s->heads; h++) {
            expect(p, t, h, e);
            for (int64_t j = 0; j < p->v; j++) {
                double got = o[(t * s->heads + h) * p->v + j];
                const double rounding = s->rounded ? 0x1p-8 * e[p->v + j] : 0;
                cr_assert(fabs(got - e[j]) <= tolerance + rounding,
                          "%s: [%ld, %ld, %ld] is %.9g, not %.9g (T=%ld past=%ld H=%ld G=%ld r=%ld "
                          "m=%ld K=%ld n=%ld v=%ld window %ld extent %ld softcap %g sink %d)",
                          what, t, h, j, got, e[j], s->t, s->past, s->heads, s->groups, s->r, s->m,
                          s->kv_heads, s->n, s->v, s->window, s->extent, s->softcap, (int)s->sink);
            }
        }
    check_guard(o, result_size(p), what);
    free(e);
}

/* ---- running --------------------------------------------------------------------------------- */
/* The operands at row t, in the order of the kernel's. */
static void operands_at(const problem *p, const compiled *c, int64_t t, float *o, void **args) {
    const shape *s = &p->s;
    const bool made = s->kv_heads > 0;
    float *to = o + t * s->heads * p->v;
    uint32_t n = 0;
    if (made) args[n++] = to; /* nothing of `otherwise` is read */
    args[n++] = p->q + t * s->heads * p->n;
    args[n++] = p->rows;
    if (s->m) args[n++] = p->q_p + t * s->heads * s->m;
    if (s->m && s->two_states) args[n++] = p->shared;
    if (made) args[n++] = p->packed_k, args[n++] = p->packed_v;
    if (s->sink) args[n++] = p->sink + (s->sink == SINK_BY_TOKEN ? t * s->heads : 0);
    if (s->extent) args[n++] = p->bias + t * s->heads * s->extent;
    args[n++] = to;
    cr_assert_eq(c->k.operands.n, n);
}

static void call_token(problem *p, const compiled *c, float *o, int64_t t, bool cut) {
    hrt_frame frame = {.T = 1, .C = p->s.past + t + 1, .cap = capacity(p)};
    void *args[MOST_OPERANDS + 1];
    shared shared = new_shared(&p->b, p->kernel, capacity(p), p->s.window);
    operands_at(p, c, t, o, args);
    frame.shared = shared.at;
    call_columns(&p->seed, c, frame, args, 1, key_columns(p->s.groups, p->s.window, &frame), cut);
    free_shared(&shared);
}

static void call_rows(problem *p, const compiled *c, float *o, bool cut) {
    const shape *s = &p->s;
    const int64_t cols = hcg_columns(p->b.m, p->kernel);
    hrt_frame frame = {.T = s->t, .C = positions(p), .cap = capacity(p)};
    void *args[MOST_OPERANDS + 1];
    operands_at(p, c, 0, o, args);
    for (int64_t from = 0, to; from < s->t; from = to) {
        to = cut ? from + 1 + random_below(&p->seed, s->t - from) : s->t;
        const int64_t middle = cut ? random_below(&p->seed, cols) : 0;
        if (middle) call_frame(c, frame, args, from, to, middle, cols);
        call_frame(c, frame, args, from, to, 0, middle ? middle : cols);
    }
}

static void call_all(problem *p, const compiled *c, float *o, bool cut) {
    for (int64_t t = 0; t < p->s.t && c->k.phase == HIR_DECODE; t++)
        call_token(p, c, o, t, cut);
    if (c->k.phase != HIR_DECODE) call_rows(p, c, o, cut);
}

static void check(problem *p, const hcg_level *level, bool decode) {
    compiled c;
    bool ok = compile_kernel(&p->b, HIR_KERNEL_SEQUENCE, p->kernel, decode, level, &c);
    cr_assert(ok, "%s: %s", level->name, bench_errors(&p->b));
    char what[64];
    snprintf(what, sizeof what, "%s %s", level->name, decode ? "decode" : "prefill");
    float *whole = new_results(result_size(p)), *blocks = new_results(result_size(p));
    call_all(p, &c, whole, false);
    compare(p, whole, what);
    call_all(p, &c, blocks, true);
    compare(p, blocks, what);
    if (decode)
        cr_assert_eq(memcmp(whole, blocks, result_size(p) * 4), 0, "%s: other bits in blocks",
                     what);
    guarded_free(whole), guarded_free(blocks);
    compiled_free(&c);
}

/* ---- shapes ---------------------------------------------------------------------------------- */
static const hir_dtype floats[] = {HIR_F32, HIR_BF16, HIR_F16};

static shape random_shape(uint64_t *s, int round) {
    static const int64_t heads[] = {1, 2, 5, 16, 24, 33, 130};
    shape out = {.t = 1 + random_below(s, 20), .heads = heads[random_below(s, 7)], .groups = 1};
    if (random_below(s, 3) == 0) out.groups = 3, out.heads = 3 * (1 + random_below(s, 9));
    out.past = random_below(s, 3) ? random_below(s, 600) : 0;
    out.r = 1 + random_below(s, 70), out.m = round % 4 ? 1 + random_below(s, 40) : 0;
    if (random_below(s, 2)) out.r = 64, out.m = out.m ? 16 : 0;
    out.two_states = random_below(s, 2), out.latent_last = random_below(s, 2);
    out.dtype = floats[random_below(s, 3)];
    return out;
}

/* The same rows, with keys and values made of them: for each head, or for several. */
static shape made_of(shape out, uint64_t *s) {
    out.kv_heads = random_below(s, 2) ? out.heads : out.groups;
    out.n = 1 + random_below(s, 40), out.v = 1 + random_below(s, 60);
    if (random_below(s, 2)) out.n = 32, out.v = 48;
    out.weights = floats[random_below(s, 3)];
    return out;
}

/* Near the edges of a window or an extent, of a tile of keys (32 to 128), a range (256). */
static int64_t some_reach(uint64_t *s) {
    static const int64_t reaches[] = {1, 2, 3, 7, 16, 31, 33, 63, 127, 128, 129, 255, 257, 400};
    return reaches[random_below(s, sizeof reaches / sizeof *reaches)];
}

static shape with_options(shape s, uint64_t *seed, int64_t options) {
    s.window = options & 1 ? some_reach(seed) : 0;
    s.extent = options & 2 ? some_reach(seed) : 0;
    s.softcap = options & 4 ? 0.5 + (double)random_below(seed, 4) : 0;
    s.sink = options / 8;
    return s;
}

static void check_shape(shape s, const hcg_level *level, uint64_t seed) {
    problem p;
    open_problem(&p, s, seed);
    check(&p, level, false);
    if (!s.kv_heads) check(&p, level, true);
    close_problem(&p);
}

/* So many ranges that they are merged in several blocks, the last of them shorter; heads that are
 * no whole number of those that meet a row together; rows of the size that models have. */
static void check_long(const hcg_level *level) {
    static const shape shapes[] = {
        {.t = 2, .past = 4700, .heads = 12, .groups = 1, .r = 64, .m = 16},
        {.t = 1, .past = 5200, .heads = 3, .groups = 1, .r = 33, .m = 7, .dtype = HIR_BF16},
        {.t = 1, .past = 4400, .heads = 36, .groups = 2, .r = 40, .window = 4250},
        {.t = 1, .past = 1500, .heads = 19, .groups = 1, .r = 512, .m = 64, .dtype = HIR_BF16},
        {.t = 2, .past = 2600, .heads = 8, .groups = 1, .r = 24, .m = 8, .two_states = true},
        {.t = 2, .past = 297, .heads = 7, .groups = 1, .r = 288, .m = 34},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (has_turn(i + level->lanes / 8, 2)) check_shape(shapes[i], level, 100 + i);
}

/* With dot products of pairs: an odd number of keys, of heads, rows that end in half a vector,
 * columns that are no whole block; shapes that cannot be met in pairs are met as f32. */
Test(emit_latent, rounded_to_pairs) {
    static const shape shapes[] = {
        {.t = 3, .past = 700, .heads = 8, .r = 512, .m = 64},
        {.t = 2, .past = 300, .heads = 33, .r = 96, .m = 10, .latent_last = true},
        {.t = 5, .past = 0, .heads = 5, .r = 32, .m = 0},
        {.t = 1, .past = 401, .heads = 16, .r = 64, .m = 16, .window = 130, .softcap = 2},
        {.t = 2, .past = 600, .heads = 12, .r = 160, .m = 2, .sink = SINK_BY_HEAD, .extent = 9},
        {.t = 2, .past = 200, .heads = 4, .r = 48, .m = 16},
        {.t = 2, .past = 200, .heads = 4, .r = 64, .m = 5},
    };
    const hcg_level *level = level_named("avx512bf16");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        shape s = shapes[i];
        s.groups = 1, s.dtype = HIR_BF16, s.rounded = true;
        check_shape(s, level, 200 + i);
    }
}

/* As words of two elements: several latents, heads that are no whole number of those that meet a
 * row together, the latent at either end, a last block of fewer columns; a row or a latent that is
 * no whole number of words in vectors is widened instead. */
static void check_words(const hcg_level *level, unsigned turn) {
    static const shape shapes[] = {
        {.t = 2, .past = 700, .heads = 8, .r = 512, .m = 64},
        {.t = 3, .past = 300, .heads = 33, .r = 96, .m = 32, .latent_last = true},
        {.t = 5, .past = 0, .heads = 5, .r = 32, .m = 0},
        {.t = 1, .past = 401, .heads = 16, .r = 64, .m = 32, .window = 130, .softcap = 2},
        {.t = 2, .past = 600, .heads = 12, .r = 160, .m = 64, .sink = SINK_BY_HEAD, .extent = 9},
        {.t = 2, .past = 200, .heads = 6, .groups = 2, .r = 96, .m = 96, .latent_last = true},
        {.t = 2, .past = 200, .heads = 4, .r = 48, .m = 16},
        {.t = 2, .past = 200, .heads = 9, .r = 64, .m = 5},
        {.t = 2, .past = 100, .heads = 1, .r = 80, .m = 16},
        {.t = 2, .past = 330, .heads = 2, .r = 208, .m = 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        shape s = shapes[i];
        if (!has_turn(i + turn, 2)) continue;
        s.groups = s.groups ? s.groups : 1, s.dtype = HIR_BF16;
        check_shape(s, level, 300 + i);
    }
}

/* They are met so where they should be: nothing widens elements one by one. */
static void expect_words(const hcg_level *level, int64_t m, bool words) {
    problem p;
    const shape s = {
        .t = 1, .past = 9, .heads = 8, .groups = 1, .r = 64, .m = m, .dtype = HIR_BF16};
    open_problem(&p, s, 1);
    const char *text = assemble_kernel(&p.b, HIR_KERNEL_SEQUENCE, p.kernel, true, level);
    cr_assert_not_null(text, "%s: %s", level->name, bench_errors(&p.b));
    cr_expect_eq(strstr(text, "vpmovzxwd") == NULL, words, "%s, m = %ld", level->name, (long)m);
    close_problem(&p);
}

static void check_words_of(const char *name, unsigned turn) {
    const hcg_level *level = level_named(name);
    check_words(level, turn);
    expect_words(level, 2 * level->lanes, true);
    expect_words(level, level->lanes, false);
}

Test(emit_latent, words_avx512bf16) {
    check_words_of("avx512bf16", 0);
}

Test(emit_latent, words_avx512) {
    check_words_of("avx512", 1);
}

Test(emit_latent, words_avx2) {
    check_words_of("avx2", 0);
    check_words(level_named("avx2"), 1);
}

/* Ranges consist of whole tiles: each step of a tile prefetches its share of the one that follows,
 * so that a tile that is cut short would leave some of those shares out, and would prefetch other
 * rows than those that follow it. Rows of a list make whole blocks of keys. */
Test(emit_latent, ranges_are_whole_tiles) {
    static const hir_dtype dtypes[] = {HIR_F32, HIR_BF16, HIR_F16};
    const hcg_level *levels;
    const size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < 3; k++)
            for (int64_t heads = 1; heads <= 33; heads++)
                for (int64_t width = 16; width <= 2048; width *= 2) {
                    const hcg_emit e = {.level = &levels[i]};
                    hcg_attention a = {.per_group = heads, .one_row = true};
                    a.k = a.v = (hcg_cache){.dtype = dtypes[k], .width = width};
                    const hcg_key_tile t = {.a = &a};
                    const int64_t rows = hcg_rows_of_tile(&e, &t);
                    const int64_t bytes = rows * width * (int64_t)hir_dtype_bytes(dtypes[k]);
                    cr_expect(rows > 0 && rows <= HCG_TILE_KEYS && HRT_KEYS % rows == 0);
                    cr_expect(rows == 32 || 3 * bytes <= (int64_t)levels[i].machine.l2);
                    cr_expect_leq(hcg_rows_of_listed_tile(&e, &t), HCG_TILE_KEYS);
                }
    const hcg_emit e = {.level = level_named("avx2")};
    hcg_attention a = {.per_group = 8, .one_row = true, .k = {.dtype = HIR_F32, .width = 576}};
    a.v = a.k;
    const hcg_key_tile t = {.a = &a};
    cr_expect_eq(hcg_rows_of_tile(&e, &t), 64);
    cr_expect_eq(hcg_rows_of_listed_tile(&e, &t), 66, "blocks of three keys");
}

/* Sums, what is multiplied and the zeros of words are as many vectors as there are registers: one
 * more would be moved to the stack and back in each step. */
Test(emit_latent, nothing_is_spilled_with_16_registers) {
    static const hir_dtype dtypes[] = {HIR_F32, HIR_BF16};
    static const int64_t heads[] = {1, 4, 8};
    for (int i = 0; i < 6; i++) {
        const shape s = {.t = 1,
                         .past = 9,
                         .heads = heads[i / 2],
                         .groups = 1,
                         .r = 512,
                         .m = 64,
                         .dtype = dtypes[i % 2]};
        problem p;
        open_problem(&p, s, 1);
        const char *text =
            assemble_kernel(&p.b, HIR_KERNEL_SEQUENCE, p.kernel, true, level_named("avx2"));
        cr_assert_not_null(text, "%s", bench_errors(&p.b));
        const char *kernel = strstr(text, "\nkernel:");
        cr_assert_not_null(kernel);
        cr_expect_eq(count_spills(kernel, strstr(kernel, ".Lfunc_end")), 0, "%s, %ld heads",
                     hir_dtype_name(s.dtype), (long)s.heads);
        close_problem(&p);
    }
}

/* The products of attention of many tokens. */
Test(emit_latent, tiles_spill_nothing_with_16_registers) {
    const shape s = {.t = 40, .past = 9, .heads = 4, .groups = 1, .r = 64, .m = 16};
    problem p;
    open_problem(&p, s, 1);
    const char *text =
        assemble_kernel(&p.b, HIR_KERNEL_SEQUENCE, p.kernel, false, level_named("avx2"));
    cr_assert_not_null(text, "%s", bench_errors(&p.b));
    size_t found = 0;
    for (const char *at = text; (at = strstr(at, "\ntest.tile_")); at++, found++)
        cr_expect_eq(count_spills(at, strstr(at, ".Lfunc_end")), 0, "%.40s", at + 1);
    cr_expect(found > 2, "functions have other names");
    close_problem(&p);
}

static void check_level(const char *name) {
    const hcg_level *level = level_named(name);
    uint64_t s = 4711;
    check_long(level);
    for (int round = 0; round < 12; round++) {
        const shape plain = random_shape(&s, round);
        const shape made = made_of(plain, &s);
        const uint64_t seeds[] = {random_bits(&s), random_bits(&s)};
        if (!has_turn((unsigned)round + level->lanes / 8, 3)) continue;
        check_shape(plain, level, seeds[0]);
        check_shape(made, level, seeds[1]);
    }
}

/* The ranges of which a call of columns from .. to - 1 writes partial results, as bits. */
static unsigned ranges_written(problem *p, const compiled *c, int64_t from, int64_t to) {
    uint64_t counters, range;
    void *args[MOST_OPERANDS + 1];
    float *o = new_results(result_size(p));
    hrt_frame frame = {.T = 1, .C = positions(p), .cap = capacity(p)};
    shared shared = new_shared(&p->b, p->kernel, capacity(p), 0);
    shared_in_program(&p->b, p->kernel, &counters, &range);
    frame.shared = shared.at;
    operands_at(p, c, 0, o, args);
    call_frame(c, frame, args, 0, 1, from, to);
    unsigned written = 0;
    for (uint64_t i = 0; i < shared.bytes - counters; i++)
        if (shared.at[counters + i] != (char)0xff) written |= 1u << i / range;
    guarded_free(shared.at), guarded_free(o);
    return written;
}

/* Eight ranges are two blocks. The thread that computes all of a block keeps the results of two
 * ranges, whatever the block has; those of a part of a block stay for the thread that merges. */
Test(emit_latent, whole_blocks_take_two_places) {
    const hcg_level *levels;
    const size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++)
        for (int64_t heads = 8; heads <= 40; heads += 32) {
            if (!level_runs(&levels[i])) continue;
            const shape s = {
                .t = 1, .past = 8 * HRT_KEYS - 1, .heads = heads, .groups = 1, .r = 64, .m = 16};
            problem p;
            compiled c;
            open_problem(&p, s, 7);
            cr_assert(compile_kernel(&p.b, HIR_KERNEL_SEQUENCE, p.kernel, true, &levels[i], &c));
            cr_expect_eq(ranges_written(&p, &c, 0, 8), 0x33, "%s", levels[i].name);
            cr_expect_eq(ranges_written(&p, &c, 0, 7), 0x73, "%s", levels[i].name);
            cr_expect_eq(ranges_written(&p, &c, 1, 8), 0x3e, "%s", levels[i].name);
            compiled_free(&c);
            close_problem(&p);
        }
}

/* ---- prefetches ------------------------------------------------------------------------------ */
/* The lines of the cache that a call prefetched. */
enum { LINE = 64, MOST_LINES = 1 << 15 };
static const char *noted_from;
static unsigned char noted[MOST_LINES];

static void note(const char *at) {
    const ptrdiff_t line = (at - noted_from) / LINE;
    if (at >= noted_from && line < MOST_LINES) noted[line] = 1;
}

/* Each prefetch becomes a call of note. */
static void note_prefetches(LLVMModuleRef mod) {
    LLVMContextRef cx = LLVMGetModuleContext(mod);
    LLVMTypeRef ptr = LLVMPointerTypeInContext(cx, 0);
    LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(cx), &ptr, 1, false);
    LLVMValueRef number = LLVMConstInt(LLVMInt64TypeInContext(cx), (uintptr_t)note, false);
    LLVMBuilderRef b = LLVMCreateBuilderInContext(cx);
    LLVMValueRef prefetch = LLVMGetNamedFunction(mod, "llvm.prefetch.p0");
    cr_assert_not_null(prefetch);
    for (LLVMUseRef use = LLVMGetFirstUse(prefetch), after; use; use = after) {
        LLVMValueRef call = LLVMGetUser(use), at = LLVMGetOperand(call, 0);
        after = LLVMGetNextUse(use);
        LLVMPositionBuilderBefore(b, call);
        LLVMBuildCall2(b, type, LLVMConstIntToPtr(number, ptr), &at, 1, "");
        LLVMInstructionEraseFromParent(call);
    }
    LLVMDisposeBuilder(b);
}

/* The steps of each tile prefetch all of the tile that follows, up to the end of the cache. */
static void check_prefetches(const hcg_level *level, int64_t heads, hir_dtype dtype) {
    enum { C = 4 * HRT_KEYS };
    const shape s = {
        .t = 1, .past = C - 1, .heads = heads, .groups = 1, .r = 96, .m = 32, .dtype = dtype};
    problem p;
    compiled c;
    open_problem(&p, s, 5);
    cr_assert(compile_kernel(&p.b, HIR_KERNEL_SEQUENCE, p.kernel, true, level, &c));
    const int64_t bytes = row_width(&p) * (int64_t)hir_dtype_bytes(dtype);
    const char *rows = p.rows;
    noted_from = rows - (uintptr_t)rows % LINE;
    memset(noted, 0, sizeof noted);
    ranges_written(&p, &c, 0, C / HRT_KEYS);
    const int64_t from = (rows + HCG_TILE_KEYS * bytes - noted_from) / LINE,
                  to = (rows + C * bytes - 1 - noted_from) / LINE;
    int64_t missing = 0;
    cr_assert(to < MOST_LINES);
    for (int64_t i = from; i <= to; i++)
        missing += !noted[i];
    cr_expect_eq(missing, 0, "%s, %ld heads, %s: %ld lines of %ld", level->name, (long)heads,
                 hir_dtype_name(dtype), (long)missing, (long)(to - from));
    compiled_free(&c);
    close_problem(&p);
}

Test(emit_latent, each_line_is_prefetched) {
    static const int64_t heads[] = {1, 2, 3, 4, 5, 7, 8};
    const hcg_level *levels;
    const size_t n = hcg_levels(&levels);
    change_module = note_prefetches;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < sizeof heads / sizeof *heads && level_runs(&levels[i]); k++) {
            check_prefetches(&levels[i], heads[k], HIR_F32);
            check_prefetches(&levels[i], heads[k], HIR_BF16);
        }
    change_module = NULL;
}

Test(emit_latent, avx512bf16) {
    if (full_set()) check_level("avx512bf16"); /* pairs are above; all else is as of avx512 */
}

Test(emit_latent, avx512) {
    check_level("avx512");
}

Test(emit_latent, avx2) {
    check_level("avx2");
}

Test(emit_latent, baseline) {
    check_level("baseline");
}

/* Rows that are rounded to bf16; behind the keys they stay NaN. */
static void round_rows(problem *p) {
    const int64_t all = p->kv_heads * positions(p);
    for (int64_t i = 0; i < all * (p->n + p->s.m); i++)
        p->keys[i] = (double)hd_bf16_to_f32(hd_bf16_from_f32((float)p->keys[i]));
    for (int64_t i = 0; i < all * p->v; i++)
        p->values[i] = (double)hd_bf16_to_f32(hd_bf16_from_f32((float)p->values[i]));
}

/* The matrix unit; exact as by vectors, and rounded, by turns. Weights p are rounded then, each by
 * 2^-9 of itself, and values are at most 1. Keys and values that are made are rounded as they are in
 * f32, and so may be the other of two neighbours: of that exact ones tell enough. */
static void check_tiles(shape s, const hcg_level *level, uint64_t seed) {
    static unsigned turns;
    const unsigned turn = turns++;
    if (s.kv_heads || has_turn(turn, 2)) check_shape(s, level, seed);
    if (s.kv_heads || !has_turn(turn + 1, 2)) return;
    problem p;
    open_problem(&p, s, seed);
    p.rounded = true, p.b.exact = 0, p.tolerance += 0x1p-9;
    round_rows(&p);
    check(&p, level, false);
    /* few heads go as those of ordinary attention do, by vectors */
    if (s.heads / s.groups > HIR_PANEL / 2 || (s.two_states && s.m)) check(&p, level, true);
    close_problem(&p);
}

Test(emit_latent, tiles) {
    const hcg_level level = with_tiles();
    uint64_t s = 4711;
    for (int round = 0; round < 8; round++) {
        const shape plain = random_shape(&s, round);
        const shape drawn = round % 4 == 3 ? made_of(plain, &s) : plain;
        const uint64_t seed = random_bits(&s);
        if (has_turn((unsigned)(round + round / 4), 2)) check_tiles(drawn, &level, seed);
    }
    expect_emulated(&level);
}

/* As in DeepSeek-V3, by size: rows of 576 that are tiles as they lie. */
Test(emit_latent, wide_rows_on_tiles) {
    const hcg_level level = with_tiles();
    shape s = {.t = 2, .past = 290, .heads = 32, .groups = 1, .r = 512, .m = 64};
    for (int i = 0; i < 2; i++) {
        s.dtype = floats[i];
        check_tiles(s, &level, 99);
    }
    expect_emulated(&level);
}

Test(emit_latent, options_on_tiles) {
    const hcg_level level = with_tiles();
    uint64_t s = 815;
    static const int64_t some[] = {1, 2, 4, 8, 16, 15, 23}; /* each alone, and all */
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        const shape plain = with_options(random_shape(&s, (int)i), &s, some[i]);
        check_tiles(i % 2 ? made_of(plain, &s) : plain, &level, random_bits(&s));
    }
    expect_emulated(&level);
}

/* Each option alone, and all together, crossed with the others once. */
Test(emit_latent, options_crossed) {
    const hcg_level *levels;
    size_t n = hcg_levels(&levels);
    uint64_t s = 815;
    for (int64_t options = 1; options < 8 * 3; options++) {
        const hcg_level *level = &levels[(size_t)options % n];
        const shape plain = with_options(random_shape(&s, (int)options), &s, options);
        if (!level_runs(level)) continue;
        const shape made = made_of(plain, &s);
        const uint64_t seed = random_bits(&s), turn = (uint64_t)options + (uint64_t)options / 8;
        if (has_turn(turn, 2)) check_shape(plain, level, seed);
        if (has_turn(turn + 1, 2)) check_shape(made, level, seed);
    }
}

/* Nothing is called that a generated library does not have, on a level of another architecture,
 * too. */
Test(emit_latent, no_foreign_calls) {
    const shape all[] = {
        {.t = 2, .heads = 4, .groups = 1, .r = 20, .m = 4, .dtype = HIR_BF16},
        {.t = 2,
         .heads = 4,
         .groups = 1,
         .r = 20,
         .m = 4,
         .dtype = HIR_BF16,
         .kv_heads = 4,
         .n = 8,
         .v = 9,
         .softcap = 2,
         .sink = SINK_BY_HEAD,
         .window = 5,
         .extent = 3},
    };
    const hcg_level *levels;
    size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < 3; k++) {
            if (level_runs(&levels[i])) continue;
            problem p;
            open_problem(&p, all[k / 2], 1);
            const char *call =
                calls_outside(&p.b, HIR_KERNEL_SEQUENCE, p.kernel, k == 1, &levels[i]);
            cr_assert_null(call, "%s calls %s %s", levels[i].name, call, bench_errors(&p.b));
            close_problem(&p);
        }
}
