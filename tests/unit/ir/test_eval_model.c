/* The evaluator over time and over stages: positions, caches, attention, several calls, kernels,
 * and what it refuses. */
#include <complex.h>

#include "tests/unit/ir/support_eval.h"

TestSuite(eval_model, .init = open_arena, .fini = close_arena);

/* ---- rope ------------------------------------------------------------------------------------ */

static hir_array rope_table(const char *attrs, int64_t tokens, int64_t length) {
    return run_one(graph("", "%x: f32[T]",
                         hd_printf(arena,
                                   "  %%y = rope_table {length = %lld, %s} : f32[T, %lld]\n"
                                   "  output %%y {name = \"y\"}",
                                   (long long)length, attrs, (long long)length)),
                   tokens, INPUTS(hd_new_array(arena, double, (size_t)tokens)));
}

/* Compares a table with frequencies given by another formula. */
static void expect_table(hir_array y, int64_t length, double (*f)(int64_t j), const char *what) {
    int64_t half = length / 2, tokens = y.n / length;
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t j = 0; j < half; j++) {
            double complex turn = cexp(I * ((double)t * f(j)));
            double got[] = {y.at[t * length + j], y.at[t * length + half + j]};
            double want[] = {creal(turn), cimag(turn)};
            expect_near(got, want, 2, 1e-13, what);
        }
}

static double plain_16(int64_t j) {
    return exp(-(double)j / 8 * log(10000));
}
static double linear_16(int64_t j) {
    return plain_16(j) / 4;
}
/* As published: by wavelengths, factor 8, low 1, high 4, 64 original positions; length 16, theta
 * 100 (so that all three cases occur: wavelengths 6.3 .. 353 against limits 16 and 64). */
static double llama3_16(int64_t j) {
    double f = pow(100, -(double)j / 8), wavelength = 2 * acos(-1) / f;
    if (wavelength < 64.0 / 4) return f;
    if (wavelength > 64.0 / 1) return f / 8;
    double smooth = (64 / wavelength - 1) / (4 - 1);
    return (1 - smooth) * (f / 8) + smooth * f;
}

Test(eval_model, rope_table_and_its_scalings) {
    expect_table(rope_table("theta = 10000", 40, 16), 16, plain_16, "plain");
    expect_table(rope_table("theta = 10000, scaling = \"linear\", factor = 4", 40, 16), 16,
                 linear_16, "linear");
    expect_table(rope_table("theta = 100, scaling = \"llama3\", factor = 8, low_freq_factor = 1, "
                            "high_freq_factor = 4, original_positions = 64",
                            40, 16),
                 16, llama3_16, "llama3");
    int kinds[3] = {0};
    for (int64_t j = 0; j < 8; j++) {
        double f = pow(100, -(double)j / 8), s = llama3_16(j);
        kinds[s == f ? 0 : s == f / 8 ? 1 : 2]++;
    }
    cr_assert(kinds[0] && kinds[1] && kinds[2], "the test must reach all three cases");
}

/* The same with cos and sin times `by`, at position p of each row, f by position. */
static void expect_scaled(hir_array y, int64_t length, double (*f)(int64_t j, int64_t p), double by,
                          const char *what) {
    int64_t half = length / 2;
    for (int64_t t = 0; t < y.n / length; t++)
        for (int64_t j = 0; j < half; j++) {
            double complex turn = by * cexp(I * ((double)t * f(j, t)));
            double got[] = {y.at[t * length + j], y.at[t * length + half + j]};
            double want[] = {creal(turn), cimag(turn)};
            expect_near(got, want, 2, 1e-13, what);
        }
}

/* Length 16, theta 10000, factor 4, o = 64. f_j = 10^(-j/2) turns 64 f_j / 2 pi times: beta_fast 32
 * is passed by none, beta_slow 1 between j = 2 (1.02 turns) and 3. Exactly: 8 ln(64 / 64 pi) / ln
 * 1e4 < 0, so l = 0, and 8 ln(64 / 2 pi) / ln 1e4 = 2.0158, so u = 3. */
static double yarn_16(int64_t j, int64_t p) {
    static const double share[] = {0, 1.0 / 3, 2.0 / 3, 1, 1, 1, 1, 1};
    (void)p;
    double f = pow(10, -(double)j / 2);
    return f - share[j] * f * 3 / 4;
}
/* Not rounded, beta_fast 4: l = 8 ln(64 / 8 pi) / ln 1e4 = 0.8118 */
static double yarn_fractions_16(int64_t j, int64_t p) {
    double l = 8 * log(8 / acos(-1)) / log(1e4), u = 8 * log(32 / acos(-1)) / log(1e4);
    double r = j < 1 ? 0 : j > 2 ? 1 : ((double)j - l) / (u - l), f = pow(10, -(double)j / 2);
    (void)p;
    return (1 - r) * f + r * f / 4;
}
static double longrope_4(int64_t j, int64_t p) {
    static const double divisor[2][2] = {{1, 2}, {3, 8}};
    return pow(10000, -(double)j / 2) / divisor[p >= 5][j];
}
static double proportional_8(int64_t j, int64_t p) {
    (void)p;
    return j < 3 ? pow(10, -(double)j) : 0;
}

Test(eval_model, rope_tables_with_factors) {
    static const char yarn[] =
        "theta = 10000, scaling = \"yarn\", factor = 4, original_positions = 64";
    expect_scaled(rope_table(yarn, 40, 16), 16, yarn_16, 1, "yarn");
    const char *more =
        hd_printf(arena, "%s, truncate = 0, beta_fast = 4, attention_factor = 1.5", yarn);
    expect_scaled(rope_table(more, 40, 16), 16, yarn_fractions_16, 1.5, "yarn, not rounded");
    expect_scaled(rope_table("theta = 10000, scaling = \"longrope\", original_positions = 5, "
                             "short_factors = [1, 2], long_factors = [3, 8], attention_factor = 2",
                             12, 4),
                  4, longrope_4, 2, "longrope");
    expect_scaled(rope_table("theta = 10000, rotating = 3", 20, 8), 8, proportional_8, 1,
                  "partial");
}

/* One token a head: entries 1 .. 4 of six turn, as halves (1, 3) (2, 4) or as neighbours. */
Test(eval_model, rope_of_some_entries) {
    static const struct {
        const char *attrs;
        int a[2], b[2];
    } cases[] = {{"start = 1", {1, 2}, {3, 4}},
                 {"start = 1, pairs = \"adjacent\"", {1, 3}, {2, 4}},
                 {"start = 0", {0, 1}, {2, 3}},
                 {"start = 2, pairs = \"halves\"", {2, 3}, {4, 5}}};
    double x[4 * 2 * 6], want[4 * 2 * 6];
    for (int i = 0; i < 48; i++)
        x[i] = cos(3 + i);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        hir_module *m = graph(
            "", "%x: f32[T, 2, 6]",
            hd_printf(arena,
                      "  %%r = rope_table {length = 4, theta = 50} : f32[T, 4]\n"
                      "  %%y = rope %%x, %%r {%s} : f32[T, 2, 6]\n  output %%y {name = \"y\"}",
                      cases[k].attrs));
        memcpy(want, x, sizeof x);
        for (int row = 0; row < 8; row++)
            for (int j = 0; j < 2; j++) {
                int a = row * 6 + cases[k].a[j], b = row * 6 + cases[k].b[j];
                double complex z = (x[a] + I * x[b]) * cexp(I * (row / 2) * pow(50, -j / 2.0));
                want[a] = creal(z), want[b] = cimag(z);
            }
        expect(run_one(m, 4, INPUTS(x)), 48, want, cases[k].attrs);
    }
}

Test(eval_model, rope_turns_pairs_of_halves) {
    hir_module *m = graph("", "%x: f32[T, 2, 6]",
                          "  %r = rope_table {length = 6, theta = 50} : f32[T, 6]\n"
                          "  %y = rope %x, %r : f32[T, 2, 6]\n  output %y {name = \"y\"}");
    double x[3 * 2 * 6], want[3 * 2 * 6];
    for (int i = 0; i < 36; i++)
        x[i] = sin(1 + i);
    for (int t = 0; t < 3; t++)
        for (int h = 0; h < 2; h++)
            for (int j = 0; j < 3; j++) { /* (a + ib) e^(i p f) */
                int at = (t * 2 + h) * 6 + j;
                double complex z = (x[at] + I * x[at + 3]) * cexp(I * t * pow(50, -j / 3.0));
                want[at] = creal(z);
                want[at + 3] = cimag(z);
            }
    expect(run_one(m, 3, INPUTS(x)), 36, want, "rope");
}

/* ---- attention ------------------------------------------------------------------------------- */

/* Heads, groups, key size, value size. */
enum { H = 4, G = 2, N = 3, M = 2 };

static const char attention_tables[] = "state $k : f32[C, 2, 3]\nstate $v : f32[C, 2, 2]\n";
static const char attention_inputs[] = "%q: f32[T, 4, 3], %k: f32[T, 2, 3], %v: f32[T, 2, 2]";
static const char attention_body[] = "  %kc = cache_append %k, $k : f32[C, 2, 3]\n"
                                     "  %vc = cache_append %v, $v : f32[C, 2, 2]\n"
                                     "  %y = attention %q, %kc, %vc {scale = 0.7} : f32[T, 4, 2]\n"
                                     "  output %y {name = \"y\"}";

/* From the definition, in long double, without any maximum taken out. */
static void plain_attention(const double *q, const double *k, const double *v, int tokens,
                            double *o) {
    for (int t = 0; t < tokens; t++)
        for (int h = 0; h < H; h++) {
            int g = h * G / H;
            long double z = 0, sum[M] = {0};
            for (int s = 0; s <= t; s++) {
                long double dot = 0;
                for (int i = 0; i < N; i++)
                    dot += (long double)q[(t * H + h) * N + i] * k[(s * G + g) * N + i];
                long double e = expl(0.7L * dot);
                z += e;
                for (int i = 0; i < M; i++)
                    sum[i] += e * v[(s * G + g) * M + i];
            }
            for (int i = 0; i < M; i++)
                o[(t * H + h) * M + i] = (double)(sum[i] / z);
        }
}

enum { TOKENS = 11 };
static double q[TOKENS * H * N], k[TOKENS * G * N], v[TOKENS * G * M], o[TOKENS * H * M];

static void attention_open(void) {
    open_arena();
    for (int i = 0; i < TOKENS * H * N; i++)
        q[i] = 2 * sin(1.3 * i);
    for (int i = 0; i < TOKENS * G * N; i++)
        k[i] = 2 * cos(0.9 * i * i);
    for (int i = 0; i < TOKENS * G * M; i++)
        v[i] = sin(0.4 * i * i);
    plain_attention(q, k, v, TOKENS, o);
}
TestSuite(eval_attention, .init = attention_open, .fini = close_arena);

/* Feeds tokens from .. to-1 in one call and compares with the expectation. */
static hir_results feed(hir_eval *e, int from, int to, double tolerance) {
    hir_results out =
        call(e, to - from, INPUTS(q + from * H * N, k + from * G * N, v + from * G * M));
    cr_assert_eq(out.outputs.at[0].n, (to - from) * H * M);
    expect_near(out.outputs.at[0].at, o + from * H * M, out.outputs.at[0].n, tolerance,
                "attention");
    return out;
}

static hir_eval *attention_eval(void) {
    return hir_eval_new(arena, graph(attention_tables, attention_inputs, attention_body), NULL,
                        NULL);
}

Test(eval_attention, one_call) {
    hir_eval *e = attention_eval();
    cr_assert_eq(hir_eval_length(e), 0);
    feed(e, 0, TOKENS, 1e-14);
    cr_assert_eq(hir_eval_length(e), TOKENS);
}

/* Parts of the scores come from two ops: (0.1 + 0.25) 2 = 0.7. */
static hir_eval *carried_eval(void) {
    return hir_eval_new(
        arena,
        parse(hd_printf(arena,
                        "hir 1 depth @t\n\n%sstate $s : scores f32[C, 4]\n\nfunc(%s) {\n"
                        "  %%kc = cache_append %%k, $k : f32[C, 2, 3]\n"
                        "  %%vc = cache_append %%v, $v : f32[C, 2, 2]\n"
                        "  %%x = attention.carried %%q, %%kc, %%vc, _, $s {scale = 0.1, begin = 1, "
                        "window = 3} : "
                        "f32[T, 4, 2]\n"
                        "  %%y = attention.carried %%q, %%kc, %%vc, _, $s {scale = 0.25, factor = "
                        "2} : f32[T, 4, "
                        "2]\n"
                        "  output %%y {name = \"y\"}\n}\n",
                        attention_tables, attention_inputs)),
        NULL, NULL);
}

Test(eval_attention, scores_are_carried_within_a_call) {
    hir_eval *e = carried_eval();
    feed(e, 0, TOKENS, 1e-14);
    cr_assert(hir_eval_rewind(e, 4));
    feed(e, 4, 7, 1e-14);
    for (int t = 7; t < TOKENS; t++)
        feed(e, t, t + 1, 1e-14);
    cr_assert(hir_eval_rewind(e, 0));
    feed(e, 0, 5, 1e-14);
}

/* ---- options of attention: by tables of all logits ------------------------------------------- */
typedef struct options {
    int window, extent; /* 0: none */
    double softcap;
    bool sink, by_token, bias;
} options;

enum { EXTENT = 4 };
static double sinks[TOKENS * H], biases[TOKENS * H * EXTENT];

/* e^logit of every pair, 0 where it is not seen; no maximum taken out. */
static void plain_options(const options *w, double *out) {
    for (int t = 0; t < TOKENS; t++)
        for (int h = 0; h < H; h++) {
            long double z = 0, sum[M] = {0};
            if (w->sink) z = expl(sinks[w->by_token ? t * H + h : h]);
            for (int s = 0; s < TOKENS; s++) {
                bool seen = s <= t && (!w->window || s > t - w->window);
                long double l = 0;
                for (int i = 0; i < N; i++)
                    l += 0.7L * q[(t * H + h) * N + i] * k[(s * G + h * G / H) * N + i];
                if (w->softcap > 0) l = w->softcap * tanhl(l / w->softcap);
                if (w->bias && s <= t && t - s < EXTENT) l += biases[(t * H + h) * EXTENT + t - s];
                long double e = seen ? expl(l) : 0;
                z += e;
                for (int i = 0; i < M; i++)
                    sum[i] += e * v[(s * G + h * G / H) * M + i];
            }
            for (int i = 0; i < M; i++)
                out[(t * H + h) * M + i] = (double)(sum[i] / z);
        }
}

static hir_eval *eval_with(const options *w) {
    const char *window = w->window ? hd_printf(arena, ", window = %d", w->window) : "";
    const char *cap = w->softcap > 0 ? hd_printf(arena, ", softcap = %g", w->softcap) : "";
    const char *sink = !w->sink ? "_" : w->by_token ? "%sink" : "%sh";
    const char *body = hd_printf(arena,
                                 "  %%kc = cache_append %%k, $k : f32[C, 2, 3]\n"
                                 "  %%vc = cache_append %%v, $v : f32[C, 2, 2]\n"
                                 "  %%y = attention %%q, %%kc, %%vc, %s, %s {scale = 0.7%s%s}\n"
                                 "  output %%y {name = \"y\"}",
                                 sink, w->bias ? "%bias" : "_", window, cap);
    const char *inputs = hd_printf(
        arena, "%s, %%sink: f32[T, 4], %%sh: f32[4], %%bias: f32[T, 4, 4]", attention_inputs);
    return hir_eval_new(arena, graph(attention_tables, inputs, body), NULL, NULL);
}

static void feed_options(hir_eval *e, int from, int to, const double *want) {
    hir_results out = call(e, to - from,
                           INPUTS(q + from * H * N, k + from * G * N, v + from * G * M,
                                  sinks + from * H, sinks, biases + from * H * EXTENT));
    expect_near(out.outputs.at[0].at, want + from * H * M, out.outputs.at[0].n, 1e-14, "options");
}

Test(eval_attention, window_sink_bias_and_softcap) {
    static const int windows[] = {0, 1, 3, TOKENS, TOKENS + 5};
    double want[TOKENS * H * M];
    for (int i = 0; i < TOKENS * H; i++)
        sinks[i] = 2 * sin(2.7 * i);
    for (int i = 0; i < TOKENS * H * EXTENT; i++)
        biases[i] = 3 * cos(1.7 * i);
    for (int i = 0; i < 5 * 3 * 2 * 2; i++) {
        options w = {.window = windows[i % 5], .sink = i / 5 % 3 > 0, .by_token = i / 5 % 3 == 2};
        w.bias = i / 15 % 2, w.softcap = i / 30 ? 1.5 : 0;
        plain_options(&w, want);
        hir_eval *whole = eval_with(&w), *cut = eval_with(&w);
        feed_options(whole, 0, TOKENS, want);
        for (int at = 0; at < TOKENS; at += 4) /* cut where no window ends */
            feed_options(cut, at, at + 4 < TOKENS ? at + 4 : TOKENS, want);
    }
}

Test(eval_attention, any_split_gives_the_same) {
    static const int splits[][TOKENS] = {
        {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {5, 6}, {10, 1}, {2, 7, 1, 1}, {1, 10}};
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        hir_eval *e = attention_eval();
        for (int j = 0, at = 0; at < TOKENS; at += splits[i][j++])
            feed(e, at, at + splits[i][j], 1e-14);
        cr_assert_eq(hir_eval_length(e), TOKENS);
    }
}

Test(eval_attention, rewind_forgets) {
    hir_eval *e = attention_eval();
    feed(e, 0, 4, 1e-14);
    hir_results first = feed(e, 4, 9, 1e-14);
    cr_assert(hir_eval_rewind(e, 3));
    cr_assert_eq(hir_eval_length(e), 3);
    feed(e, 3, 5, 1e-14);
    feed(e, 5, TOKENS, 1e-14);
    cr_assert_not(hir_eval_rewind(e, TOKENS + 1), "there is nothing to go forward to");
    cr_assert_not(hir_eval_rewind(e, -1));
    cr_assert_eq(hir_eval_length(e), TOKENS);
    cr_assert(hir_eval_rewind(e, 0));
    feed(e, 0, TOKENS, 1e-14);
    /* results of an earlier call are copies that later calls do not touch */
    expect_near(first.outputs.at[0].at, o + 4 * H * M, 5 * H * M, 1e-14, "kept result");
}

Test(eval_attention, a_failed_call_leaves_state_as_it_was) {
    hir_eval *e = attention_eval();
    feed(e, 0, 4, 1e-14);
    hir_results out;
    cr_assert_not(hir_eval_call(e, arena, &diags, 0, INPUTS(q, k, v), &out, NULL, NULL));
    cr_assert_not(hir_eval_call(e, arena, &diags, 2, INPUTS(q, NULL, v), &out, NULL, NULL));
    cr_assert_eq(out.outputs.n, 0);
    cr_assert_eq(hir_eval_length(e), 4);
    feed(e, 4, TOKENS, 1e-14);
}

Test(eval_attention, scores_that_overflow_exp) {
    hir_eval *e = attention_eval();
    double big_q[2 * H * N], big_k[2 * G * N];
    for (int i = 0; i < 2 * H * N; i++)
        big_q[i] = 100;
    for (int i = 0; i < 2 * G * N; i++)
        big_k[i] = i < G * N ? 100 : 200;
    hir_array y = call(e, 2, INPUTS(big_q, big_k, v)).outputs.at[0];
    for (int h = 0; h < H; h++) /* the second key outweighs the first by e^21000 */
        expect_near(y.at + (H + h) * M, v + (G + h * G / H) * M, M, 1e-14, "winner takes all");
}

/* ---- a small model: positions go on over calls ----------------------------------------------- */

#define MODEL_TABLES                                                                               \
    "weight @embed : f32[11, 8]\n"                                                                 \
    "weight @gain : f32[8]\n"                                                                      \
    "weight @q : f32[8, 8]\n"                                                                      \
    "weight @k : f32[4, 8]\n"                                                                      \
    "weight @v : f32[4, 8] loc \"m.hadal\":3:4\n"                                                  \
    "weight @up : f32[12, 8]\n"                                                                    \
    "weight @down : f32[8, 12]\n"                                                                  \
    "\n"                                                                                           \
    "state $k : f32[C, 1, 4]\n"                                                                    \
    "state $v : f32[C, 1, 4]\n"

static const char model_graph[] = "hir 1 graph @m\n\n" MODEL_TABLES "\n"
                                  "func(%ids: i32[T]) {\n"
                                  "  %h = gather @embed, %ids : f32[T, 8]\n"
                                  "  %n = rmsnorm %h, @gain {eps = 0.01} : f32[T, 8]\n"
                                  "  %q0 = linear %n, @q, _ : f32[T, 8]\n"
                                  "  %k0 = linear %n, @k, _ : f32[T, 4]\n"
                                  "  %v0 = linear %n, @v, _ : f32[T, 4] loc \"m.hadal\":7:9\n"
                                  "  %q1 = reshape %q0 {shape = [T, 2, 4]} : f32[T, 2, 4]\n"
                                  "  %k1 = reshape %k0 {shape = [T, 1, 4]} : f32[T, 1, 4]\n"
                                  "  %v1 = reshape %v0 {shape = [T, 1, 4]} : f32[T, 1, 4]\n"
                                  "  %r = rope_table {length = 4, theta = 100} : f32[T, 4]\n"
                                  "  %q2 = rope %q1, %r : f32[T, 2, 4]\n"
                                  "  %k2 = rope %k1, %r : f32[T, 1, 4]\n"
                                  "  %k3 = cache_append %k2, $k : f32[C, 1, 4]\n"
                                  "  %v3 = cache_append %v1, $v : f32[C, 1, 4]\n"
                                  "  %a = attention %q2, %k3, %v3 {scale = 0.5} : f32[T, 2, 4]\n"
                                  "  %a1 = reshape %a {shape = [T, 8]} : f32[T, 8]\n"
                                  "  %h1 = add %h, %a1 : f32[T, 8]\n"
                                  "  trace %h1 {name = \"hidden\"}\n"
                                  "  %u = linear %h1, @up, _ : f32[T, 12]\n"
                                  "  %g = silu %u : f32[T, 12]\n"
                                  "  %d = linear %g, @down, _ : f32[T, 8]\n"
                                  "  %h2 = add %h1, %d : f32[T, 8]\n"
                                  "  trace %h2 {name = \"hidden\"}\n"
                                  "  %l = linear %h2, @embed, _ : f32[T, 11]\n"
                                  "  output %l {name = \"logits\"}\n"
                                  "}\n";

/* The same as kernels: places are what plan-memory might give. */
static const char model_kernels[] =
    "hir 1 kernel @m\n\narena 160 per token\nfixed 0\n\n" MODEL_TABLES "\n"
    "func(%ids: i32[T] in input[0]) {\n"
    "  %h, %n = kernel.row {name = \"row0\", rows = \"all\", split_decode = \"none\", "
    "split_prefill = "
    "\"rows\"} : "
    "f32[T, 8] in arena[0], f32[T, 8] in arena[32] {\n"
    "    %h0 = gather @embed, %ids : f32[T, 8]\n"
    "    %s = mul %h0, %h0 : f32[T, 8]\n"
    "    %mean = reduce_mean %s {axis = 1} : f32[T]\n"
    "    %eps = const {value = 0.01, shape = []} : f32[]\n"
    "    %me = add %mean, %eps : f32[T]\n"
    "    %inv = rsqrt %me : f32[T]\n"
    "    %inv1 = reshape %inv {shape = [T, 1]} : f32[T, 1]\n"
    "    %n0 = mul %h0, %inv1 : f32[T, 8]\n"
    "    %n1 = mul %n0, @gain : f32[T, 8]\n"
    "    yield %h0, %n1\n"
    "  }\n"
    "  %q0, %k0, %v0 = kernel.contract {name = \"contract0\", rows = \"all\", split_decode = "
    "\"cols\", split_prefill = \"cols\"} : "
    "f32[T, 8] in arena[64], f32[T, 4] in arena[96], f32[T, 4] in arena[112] {\n"
    "    %qa = linear %n, @q, _ : f32[T, 8]\n"
    "    %ka = linear %n, @k, _ : f32[T, 4]\n"
    "    %va = linear %n, @v, _ : f32[T, 4]\n"
    "    yield %qa, %ka, %va\n"
    "  }\n"
    "  %q2, %k3, %v3 = kernel.row {name = \"row1\", rows = \"all\", split_decode = \"none\", "
    "split_prefill = \"rows\"} : "
    "f32[T, 2, 4] in arena[32], f32[C, 1, 4] in state[0], f32[C, 1, 4] in state[1] {\n"
    "    %r = rope_table {length = 4, theta = 100} : f32[T, 4]\n"
    "    %q1 = reshape %q0 {shape = [T, 2, 4]} : f32[T, 2, 4]\n"
    "    %k1 = reshape %k0 {shape = [T, 1, 4]} : f32[T, 1, 4]\n"
    "    %v1 = reshape %v0 {shape = [T, 1, 4]} : f32[T, 1, 4]\n"
    "    %qr = rope %q1, %r : f32[T, 2, 4]\n"
    "    %kr = rope %k1, %r : f32[T, 1, 4]\n"
    "    %kc = cache_append %kr, $k : f32[C, 1, 4]\n"
    "    %vc = cache_append %v1, $v : f32[C, 1, 4]\n"
    "    yield %qr, %kc, %vc\n"
    "  }\n"
    "  %a = kernel.sequence {name = \"sequence0\", rows = \"all\", split_decode = \"keys\", "
    "split_prefill = \"cyclic\", grain = 16} : "
    "f32[T, 8] in arena[64] {\n"
    "    %a0 = attention %q2, %k3, %v3 {scale = 0.5} : f32[T, 2, 4]\n"
    "    %a1 = reshape %a0 {shape = [T, 8]} : f32[T, 8]\n"
    "    yield %a1\n"
    "  }\n"
    "  %h1 = kernel.row {name = \"row2\", rows = \"all\", split_decode = \"none\", split_prefill = "
    "\"rows\"} : "
    "f32[T, 8] in arena[32] {\n"
    "    %ha = add %h, %a : f32[T, 8]\n"
    "    yield %ha\n"
    "  }\n"
    "  %g = kernel.contract {name = \"contract1\", rows = \"last\", split_decode = \"cols\", "
    "split_prefill = \"cols\"} : "
    "f32[T, 12] in arena[96] {\n"
    "    %u = linear %h1, @up, _ : f32[T, 12]\n"
    "    %ga = silu %u : f32[T, 12]\n"
    "    yield %ga\n"
    "  }\n"
    "  %h2 = kernel.contract {name = \"contract2\", rows = \"last\", split_decode = \"cols\", "
    "split_prefill = \"cols\"} : "
    "f32[T, 8] in arena[0] {\n"
    "    %d = linear %g, @down, _ : f32[T, 8]\n"
    "    %hb = add %d, %h1 : f32[T, 8]\n"
    "    yield %hb\n"
    "  }\n"
    "  %l = kernel.contract {name = \"contract3\", rows = \"last\", split_decode = \"cols\", "
    "split_prefill = \"cols\"} : "
    "f32[T, 11] in output[0] {\n"
    "    %la = linear %h2, @embed, _ : f32[T, 11]\n"
    "    yield %la\n"
    "  }\n"
    "  output %l {name = \"logits\"}\n"
    "}\n";

static const double ids[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 10, 7, 0};
enum { IDS = sizeof ids / sizeof *ids, VOCAB = 11 };
static uint64_t seed = 77;

static hir_eval *model_eval(const char *text) {
    return hir_eval_new(arena, parse(text), hir_random_weights, &seed);
}

Test(eval_model, split_decoding_equals_one_call) {
    hir_results whole = call(model_eval(model_graph), IDS, INPUTS(ids));
    const double *want = whole.outputs.at[0].at;
    hir_eval *e = model_eval(model_graph);
    int cuts[] = {0, 6, 7, 8, 11, IDS};
    for (int i = 0; i < 5; i++) {
        int from = cuts[i], n = cuts[i + 1] - from;
        hir_array part = call(e, n, INPUTS(ids + from)).outputs.at[0];
        cr_assert_eq(part.n, n * VOCAB);
        expect_near(part.at, want + from * VOCAB, part.n, 1e-12, "split");
    }
    double spread = 0;
    for (int i = 0; i < IDS * VOCAB; i++)
        spread = fmax(spread, fabs(want[i]));
    cr_assert_gt(spread, 0.05, "the model says something");
}

Test(eval_model, kernels_mean_what_their_bodies_mean) {
    hir_eval *a = model_eval(model_graph), *b = model_eval(model_kernels);
    for (int from = 0; from < IDS; from += 5) {
        hir_results x = call(a, 5, INPUTS(ids + from)), y = call(b, 5, INPUTS(ids + from));
        cr_assert_str_eq(y.outputs.at[0].name, "logits");
        cr_assert_eq(x.outputs.at[0].n, y.outputs.at[0].n);
        expect_near(y.outputs.at[0].at, x.outputs.at[0].at, x.outputs.at[0].n, 1e-13, "kernel");
    }
}

Test(eval_model, traces_are_numbered_by_name) {
    hir_results out = call(model_eval(model_graph), 2, INPUTS(ids));
    cr_assert_eq(out.traces.n, 2);
    cr_assert_str_eq(out.traces.at[0].name, "hidden.0");
    cr_assert_str_eq(out.traces.at[1].name, "hidden.1");
    cr_assert_eq(out.traces.at[1].n, 16);
    hir_results again = call(model_eval(model_graph), 2, INPUTS(ids));
    cr_assert_str_eq(again.traces.at[0].name, "hidden.0", "counted anew in every call");
}

typedef struct seen {
    int values, kernels;
    double logits;
} seen;
static void watch(void *context, const hir_module *m, hir_id op, hir_id value, const hir_array *a) {
    seen *s = context;
    s->values++;
    s->kernels += hir_is_kernel(hir_op_at(m, op));
    cr_assert_eq(hir_value_at(m, value)->op, op);
    cr_assert_not_null(a->at);
    s->logits = a->at[a->n - 1];
}

Test(eval_model, observers_see_every_value) {
    hir_results out;
    seen s = {0};
    cr_assert(
        hir_eval_call(model_eval(model_graph), arena, &diags, 3, INPUTS(ids), &out, watch, &s));
    cr_assert_eq(s.values, 21);
    cr_assert_eq(s.logits, out.outputs.at[0].at[3 * VOCAB - 1]);
    s = (seen){0};
    cr_assert(
        hir_eval_call(model_eval(model_kernels), arena, &diags, 3, INPUTS(ids), &out, watch, &s));
    cr_assert_eq(s.kernels, 13);
    cr_assert_eq(s.logits, out.outputs.at[0].at[3 * VOCAB - 1]);
}

/* While someone observes, no memory is used twice: the results must not depend on that. */
Test(eval_model, reuse_of_memory_changes_nothing) {
    static const char *const texts[] = {model_graph, model_kernels};
    for (int i = 0; i < 2; i++) {
        hir_eval *plain = model_eval(texts[i]), *observed = model_eval(texts[i]);
        for (int from = 0; from < IDS; from += 3) {
            seen s = {0};
            hir_results x = call(plain, 3, INPUTS(ids + from)), y;
            cr_assert(hir_eval_call(observed, arena, &diags, 3, INPUTS(ids + from), &y, watch, &s));
            expect_near(x.outputs.at[0].at, y.outputs.at[0].at, 3 * VOCAB, 0, "logits");
            cr_assert_eq(x.traces.n, y.traces.n);
            for (size_t t = 0; t < x.traces.n; t++)
                expect_near(x.traces.at[t].at, y.traces.at[t].at, 3 * 8, 0, "trace");
        }
    }
}

/* ---- refused --------------------------------------------------------------------------------- */

static void reject(hir_eval *e, int64_t tokens, const double *const *inputs, hd_error code,
                   const char *part) {
    hir_results out;
    hd_diags_init(&diags, arena);
    cr_assert_not(hir_eval_call(e, arena, &diags, tokens, inputs, &out, NULL, NULL), "%s", part);
    cr_assert_eq(diags.list.n, 1, "one error, not %zu: %s", diags.list.n, said());
    cr_assert_eq(diags.list.at[0].code, code, "%s", said());
    cr_assert_not_null(strstr(said(), part), "'%s' is not in: %s", part, said());
}

Test(eval_model, bad_calls_are_rejected) {
    hir_eval *e = model_eval(model_graph);
    reject(e, 0, INPUTS(ids), HD_E_VALUE, "at least one token");
    reject(e, -3, INPUTS(ids), HD_E_VALUE, "at least one token");
    reject(e, 3, INPUTS(NUMBERS(1, 2, 11)), HD_E_VALUE, "token 2 of the call is 11");
    reject(e, 3, INPUTS(NUMBERS(1, -1, 2)), HD_E_VALUE, "token 1 of the call is -1");
    reject(e, 2, INPUTS(NUMBERS(0.5, 1)), HD_E_VALUE, "element 0 of input 'ids' is 0.5");
    reject(e, 2, INPUTS(NUMBERS(1, NAN)), HD_E_VALUE, "element 1 of input 'ids'");
    reject(e, 2, INPUTS(NUMBERS(1, 1e10)), HD_E_VALUE, "element 1 of input 'ids'");
    reject(e, 2, INPUTS(NULL), HD_E_VALUE, "input 0 is missing");
    reject(e, 2, NULL, HD_E_VALUE, "input 0 is missing");
    reject(e, INT64_MAX, INPUTS(ids), HD_E_LIMIT, "too many");
    cr_assert_eq(hir_eval_length(e), 0);
    call(e, 3, INPUTS(NUMBERS(0, 10, 5)));
}

Test(eval_model, sizes_are_limited) {
    hir_module *m = graph("", "%x: f32[T, 1, 1]",
                          "  %y = broadcast %x {shape = [T, 2000000, 40000]} : "
                          "f32[T, 2000000, 40000] loc \"big.hadal\":4:2\n"
                          "  output %y {name = \"y\"}");
    double x[8] = {0};
    reject(hir_eval_new(arena, m, NULL, NULL), 1, INPUTS(x), HD_E_LIMIT,
           "broadcast is too large to evaluate: f32[1, 2000000, 40000]");
    cr_assert_eq(diags.list.at[0].loc.line, 4);
    reject(hir_eval_new(arena, m, NULL, NULL), 8, INPUTS(x), HD_E_LIMIT, "broadcast");
    m = graph("state $big : f32[C, 40000, 40000]\n", "%x: f32[T, 40000, 40000]",
              "  %y = cache_append %x, $big : f32[C, 40000, 40000]\n  output %x {name = \"y\"}");
    reject(hir_eval_new(arena, m, NULL, NULL), 1, INPUTS(x), HD_E_LIMIT, "state $big");
    m = graph("weight @w : f32[2000000, 2000000]\n", "%x: f32[T, 2000000]",
              "  %y = linear %x, @w, _ : f32[T, 2000000]\n  output %y {name = \"y\"}");
    double *row = hd_new_array(arena, double, 2000000);
    reject(hir_eval_new(arena, m, hir_random_weights, &seed), 1, INPUTS(row), HD_E_LIMIT,
           "weight @w");
}

Test(eval_model, a_weight_that_is_missing_fails_the_call) {
    givens none = {NULL, 0};
    reject(hir_eval_new(arena, parse(model_graph), given_weights, &none), 1, INPUTS(ids),
           HD_E_WEIGHTS, "'embed'");
}

static int asked;
static bool counting(void *context, const hir_module *m, uint32_t w, double *out, hd_diags *d) {
    asked++;
    return hir_random_weights(context, m, w, out, d);
}

Test(eval_model, weights_are_read_once) {
    hir_eval *e = hir_eval_new(arena, parse(model_graph), counting, &seed);
    for (int i = 0; i < 3; i++)
        call(e, 1, INPUTS(ids + i));
    cr_assert_eq(asked, 7, "the embedding is read by two ops");
}

Test(eval_model, exhausted_memory_leaves_the_evaluator_usable) {
    hir_eval *e = model_eval(model_graph);
    hd_arena *scratch = hd_arena_new();
    jmp_buf here;
    volatile int failed = 0;
    for (volatile size_t n = 1; n < 40; n++) {
        hd_arena_guard(scratch, &here);
        if (setjmp(here)) {
            failed++;
            continue;
        }
        hd_arena_fail_after(scratch, n);
        hir_results out;
        hir_eval_call(e, scratch, &diags, 2, INPUTS(ids), &out, NULL, NULL);
        break;
    }
    cr_assert_eq(failed, 39);
    cr_assert_eq(hir_eval_length(e), 0);
    hd_arena_free(scratch);
    hir_array y = call(e, 3, INPUTS(ids)).outputs.at[0];
    hir_array fresh = call(model_eval(model_graph), 3, INPUTS(ids)).outputs.at[0];
    expect(y, fresh.n, fresh.at, "after exhaustion");
}
