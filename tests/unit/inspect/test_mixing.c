/* The depth mixing matrix and the weights of depth mixes, against numbers from elsewhere: closed
 * forms, checkpoints, and the golden cases' own depth_weights. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/session.h"
#include "codegen/codegen.h"
#include "inspect/heatmap.h"
#include "inspect/mixing.h"

#define GOLDEN TEST_DATA "/golden/"

/* ---- numerical rank -------------------------------------------------------------------------- */

Test(mixing, rank_of_known_matrices) {
    double zero[6] = {0}, one[6], identity[16] = {0}, two[12], wide[8] = {1, 0, 0, 1, 0, 1, 1, 0};
    for (int i = 0; i < 6; i++)
        one[i] = (i < 3 ? 1 : 2) * (i % 3 - 0.5);
    for (int i = 0; i < 4; i++)
        identity[5 * i] = pow(10, -i);
    for (int i = 0; i < 12; i++) {
        const int row = i / 3, column = i % 3;
        two[i] = row * (column + 1.0) + (row - 1.0) * (column - 1.0);
    }
    cr_expect_eq(mixing_rank_of(zero, 2, 3), 0);
    cr_expect_eq(mixing_rank_of(one, 2, 3), 1);
    cr_expect_eq(mixing_rank_of(identity, 4, 4), 4);
    cr_expect_eq(mixing_rank_of(two, 4, 3), 2);
    cr_expect_eq(mixing_rank_of(wide, 2, 4), 2);
    double small[4] = {1, 0, 0, 1e-10}, enough[4] = {1, 0, 0, 1e-8};
    cr_expect_eq(mixing_rank_of(small, 2, 2), 1, "below 1e-9 is rounding");
    cr_expect_eq(mixing_rank_of(enough, 2, 2), 2);
}

/* ---- golden cases ---------------------------------------------------------------------------- */

typedef struct fixture {
    hadal_session *s;
    hd_tensors expected;
    const double *ids;
    int64_t tokens;
} fixture;

static void open_case(fixture *f, const char *name) {
    char path[512];
    *f = (fixture){.s = hadal_open()};
    snprintf(path, sizeof path, GOLDEN "%s/expected.safetensors", name);
    cr_assert(hd_safetensors_open(f->s->arena, &f->s->diags, path, &f->expected), "%s", path);
    snprintf(path, sizeof path, GOLDEN "%s", name);
    cr_assert_eq(hadal_include_path(f->s, HADAL_SOURCE "/frontend/std"), 0);
    cr_assert_eq(hadal_load(f->s, path, NULL), 0, "%s", name);
    cr_assert(api_need_weights(f->s), "%s", name);
    const hd_tensor *t = hd_tensors_find(&f->expected, "tokens");
    f->tokens = (int64_t)t->elements;
    double *ids = hd_new_array(f->s->arena, double, t->elements);
    for (uint64_t i = 0; i < t->elements; i++)
        ids[i] = hd_tensor_get(t, i);
    f->ids = ids;
}

static mixing matrix_of(fixture *f) {
    hadal_session *s = f->s;
    mixing x;
    hir_unroll *u = mixing_plan(s->arena, &s->diags, s->graph, &x);
    bool ok = u && mixing_find(u, &s->diags, hcg_weight_source, &s->weights, f->ids, f->tokens, &x);
    for (size_t i = 0; !ok && i < hadal_diagnostics(s); i++)
        cr_log_error("%s", hadal_diagnostic_text(s, i, 0));
    cr_assert(ok, "%s", s->graph->name);
    mixing_find_rank(&x);
    return x;
}

static double entry(const mixing *x, int64_t t, size_t row, size_t source) {
    return x->at[((size_t)t * x->rows.n + row) * x->sources.n + source];
}

/* What each system is known to be. Sums with one weight, gate or norm for each source are 1; m
 * streams at most m; N blocks between N and N + S; what reads every source apart has no structure.
 * In the stream of systems that mix values in attention nothing is special. */
static const struct {
    const char *name;
    mixing_kind kind;
    uint32_t least, most;
} known[] = {
    {"standard", MIXING_NUMBER, 1, 1},
    {"rezero", MIXING_NUMBER, 1, 1},
    {"layerscale", MIXING_CHANNELS, 1, 1},
    {"highway", MIXING_CHANNELS, 1, 1},
    {"deepnorm", MIXING_CHANNELS, 1, 1},
    {"keel", MIXING_CHANNELS, 1, 1},
    {"siamesenorm", MIXING_CHANNELS, 2, 2},
    {"siamesenorm-published", MIXING_CHANNELS, 2, 2},
    {"elmo", MIXING_NUMBER, 2, 2},
    {"value-residual", MIXING_NUMBER, 1, 1},
    {"depth-attention", MIXING_NUMBER, 1, 1},
    {"depth-attention-looped", MIXING_NUMBER, 1, 1},
    {"laurel-lr", MIXING_MAP, 1, 5},
    {"hybridnorm", MIXING_CHANNELS, 1, 1},
    {"lime", MIXING_NUMBER, 1, 1},
    {"realformer", MIXING_CHANNELS, 1, 1},
    {"realformer-pre", MIXING_NUMBER, 1, 1},
    {"mgr", MIXING_NUMBER, 4, 4},
    {"hyper-connections", MIXING_NUMBER, 2, 4},
    {"mhc", MIXING_NUMBER, 2, 4},
    {"mhc-lite", MIXING_NUMBER, 2, 4},
    {"ddl", MIXING_NUMBER, 1, 1},
    {"ddl-dv4", MIXING_CHANNELS, 2, 4},
    {"ancre", MIXING_NUMBER, 2, 8},
    {"mrla-light", MIXING_CHANNELS, 1, 2},
    {"denseformer", MIXING_NUMBER, 2, 6},
    {"muddformer", MIXING_NUMBER, 2, 6},
    {"attnres-block", MIXING_NUMBER, 3, 3 + 4},
    {"attnres-block-odd", MIXING_NUMBER, 4, 4 + 3},
    {"attnres-nokeynorm", MIXING_NUMBER, 4, 5 + 2},
    {"attnres-multihead", MIXING_CHANNELS, 3, 3 + 4},
    {"attnres-full", MIXING_NUMBER, 6, 6},
    {"attnres-sigmoid", MIXING_NUMBER, 5, 5},
    {"attnres-static", MIXING_NUMBER, 5, 5},
    {"attnres-inputquery", MIXING_NUMBER, 4, 4},
    {"attnres-swa", MIXING_NUMBER, 4, 4}, /* the embedding and a window of 3 */
};

Test(mixing, every_system_is_what_it_is_known_to_be) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        fixture f;
        open_case(&f, known[i].name);
        const mixing x = matrix_of(&f);
        cr_expect_lt(x.error, 1e-12, "%s: %g", known[i].name, x.error);
        cr_expect_eq(x.kind, known[i].kind, "%s: %d", known[i].name, x.kind);
        cr_expect_geq(x.rank, known[i].least, "%s: %u", known[i].name, x.rank);
        cr_expect_leq(x.rank, known[i].most, "%s: %u", known[i].name, x.rank);
        cr_expect_eq(x.constant, 0, "%s: %g", known[i].name, x.constant);
        if (x.kind == MIXING_NUMBER) cr_expect_lt(x.numbers_error, 1e-12, "%s", known[i].name);
        if (x.kind != MIXING_NUMBER) cr_expect_gt(x.numbers_error, 1e-3, "%s", known[i].name);
        hadal_close(f.s);
    }
}

Test(mixing, values_mixed_inside_attention_are_told) {
    static const struct {
        const char *name;
        uint32_t inside;
    } cases[] = {{"standard", 0},        {"mhc", 0},        {"mgr", 0},  {"value-residual", 3},
                 {"depth-attention", 4}, {"hybridnorm", 0}, {"lime", 3}, {"realformer", 3},
                 {"realformer-pre", 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture f;
        open_case(&f, cases[i].name);
        cr_expect_eq(matrix_of(&f).inside, cases[i].inside, "%s", cases[i].name);
        hadal_close(f.s);
    }
}

Test(mixing, standard_is_all_ones) {
    fixture f;
    open_case(&f, "standard");
    const mixing x = matrix_of(&f);
    cr_assert_eq(x.rows.n, 9);
    for (int64_t t = 0; t < x.tokens; t++)
        for (size_t l = 0; l < x.rows.n; l++)
            for (size_t i = 0; i < x.sources.n; i++)
                cr_assert_float_eq(entry(&x, t, l, i), i <= l ? 1 : 0, 1e-12);
    hadal_close(f.s);
}

/* h <- h + alpha y, one alpha for both sublayers of a layer. */
Test(mixing, rezero_is_its_weights) {
    fixture f;
    open_case(&f, "rezero");
    const mixing x = matrix_of(&f);
    for (size_t i = 1; i < x.sources.n; i++) {
        char name[64];
        snprintf(name, sizeof name, "model.layers.%zu.residual.alpha", (i - 1) / 2);
        const double alpha = hd_tensor_get(hd_tensors_find(&f.s->weights, name), 0);
        for (size_t l = i; l < x.rows.n; l++)
            cr_assert_float_eq(entry(&x, 3, l, i), alpha, 1e-12 * fabs(alpha));
    }
    hadal_close(f.s);
}

/* Numbers of channels: h <- h + scale y. */
Test(mixing, layerscale_has_its_weights_in_the_channels) {
    fixture f;
    open_case(&f, "layerscale");
    const mixing x = matrix_of(&f);
    const hd_tensor *scale = hd_tensors_find(&f.s->weights, "model.layers.1.attn_residual.scale");
    cr_assert(scale);
    const size_t size = x.rows.n * x.sources.n, source = 3, row = 5;
    for (int c = 0; c < x.channels; c++) {
        const uint64_t channel = (uint64_t)c * scale->elements / (uint64_t)x.channels;
        const double got =
            x.channel_at[(size_t)(2 * x.channels + c) * size + row * x.sources.n + source];
        cr_assert_float_eq(got, hd_tensor_get(scale, channel), 1e-12);
    }
    hadal_close(f.s);
}

/* Rows of Full AttnRes are the weights of its mixes: depth_weights.M belongs to the mix before
 * sublayer M + 2. Stored in f32, so equal to 1e-6 of 1. */
static void check_full(const char *name) {
    fixture f;
    open_case(&f, name);
    const mixing x = matrix_of(&f);
    for (size_t l = 1; l < x.rows.n; l++) {
        char trace[64];
        snprintf(trace, sizeof trace, "depth_weights.%zu", l - 1);
        const hd_tensor *a = hd_tensors_find(&f.expected, trace);
        cr_assert(a, "%s", trace);
        cr_assert_eq(a->elements, (uint64_t)x.tokens * (l + 1));
        for (int64_t t = 0; t < x.tokens; t++)
            for (size_t i = 0; i <= l; i++)
                cr_assert_float_eq(entry(&x, t, l, i), hd_tensor_get(a, (uint64_t)t * (l + 1) + i),
                                   1e-6, "%s: token %d, row %zu, source %zu", name, (int)t, l, i);
    }
    hadal_close(f.s);
}

Test(mixing, full_attnres_is_its_weights) {
    check_full("attnres-full");
    check_full("attnres-sigmoid");
    check_full("attnres-static");
    check_full("attnres-inputquery");
}

/* Block AttnRes: every output of a block arrives with the weight of the block. */
Test(mixing, block_attnres_shares_the_weights_of_its_blocks) {
    fixture f;
    open_case(&f, "attnres-block");
    const mixing x = matrix_of(&f);
    const size_t S = 4;
    for (size_t l = 1; l < x.rows.n; l++) {
        char trace[64];
        snprintf(trace, sizeof trace, "depth_weights.%zu", l - 1);
        const hd_tensor *a = hd_tensors_find(&f.expected, trace);
        const size_t n = (l + S - 1) / S + 1;
        cr_assert_eq(a->elements, (uint64_t)x.tokens * n);
        for (int64_t t = 0; t < x.tokens; t++)
            for (size_t i = 0; i <= l; i++) {
                const size_t block = i == 0 ? 0 : 1 + (i - 1) / S;
                cr_assert_float_eq(entry(&x, t, l, i), hd_tensor_get(a, (uint64_t)t * n + block),
                                   1e-6);
            }
    }
    hadal_close(f.s);
}

/* ---- graphs by hand -------------------------------------------------------------------------- */

#define HEAD                                                                                       \
    "hir 1 graph @m\n\n"                                                                           \
    "weight @embed : f32[20, 16]\n"                                                                \
    "weight @f1 : f32[16, 16]\n"                                                                   \
    "weight @f2 : f32[16, 16]\n"                                                                   \
    "weight @b : f32[16]\n\n"                                                                      \
    "func(%ids: i32[T]) {\n"                                                                       \
    "  %e = gather @embed, %ids : f32[T, 16]\n"
#define NORM(to, x)        "  %x" to " = rmsnorm " x ", _ {eps = 1e-06} : f32[T, 16]\n"
#define SUB(n)             "  %y" n " = linear %x" n ", @f" n ", _ : f32[T, 16]\n"
#define CONST(name, value) "  %" name " = const {shape = [], value = " value "} : f32[]\n"
#define MUL(to, a, b)      "  " to " = mul " a ", " b " : f32[T, 16]\n"
#define ADD(to, a, b)      "  " to " = add " a ", " b " : f32[T, 16]\n"
#define END(x)                                                                                     \
    NORM("o", x)                                                                                   \
    "  %logits = linear %xo, @embed, _ : f32[T, 20]\n"                                             \
    "  output %logits {name = \"logits\"}\n}\n"

typedef struct by_hand {
    hd_arena *arena;
    hd_diags diags;
    mixing x;
    bool ok;
} by_hand;

static by_hand matrix_of_text(const char *text) {
    by_hand h = {.arena = hd_arena_new()};
    hd_diags_init(&h.diags, h.arena);
    hir_module *m = hir_parse(h.arena, &h.diags, "test.hir", text);
    for (size_t i = 0; i < h.diags.list.n; i++)
        cr_log_error("%s", h.diags.list.at[i].message);
    cr_assert(m);
    const uint64_t seed = 7;
    const double ids[] = {3, 1, 19};
    hir_unroll *u = mixing_plan(h.arena, &h.diags, m, &h.x);
    h.ok = u && mixing_find(u, &h.diags, hir_random_weights, (void *)&seed, ids, 3, &h.x);
    return h;
}

/* Two streams a, b with constant mixing, as in hyper-connections: M = beta^T A .. A alpha.
 *   sublayer 1 reads 0.25 a + 0.5 b of a = b = e and writes a += 2 y, b += 3 y
 *   then a, b <- 0.5 a + 4 b, 8 a; sublayer 2 reads a + b; the head reads b + y2 */
Test(mixing, two_streams_are_products_of_small_matrices) {
    by_hand h = matrix_of_text(
        HEAD CONST("quarter", "0.25") CONST("half", "0.5") CONST("two", "2") CONST("three", "3")
            CONST("four", "4") CONST("eight", "8") MUL("%r0", "%e", "%quarter")
                MUL("%r1", "%e", "%half") ADD("%r", "%r0", "%r1") NORM("1", "%r") SUB("1")
                    MUL("%wa", "%y1", "%two") MUL("%wb", "%y1", "%three") ADD("%a1", "%e", "%wa")
                        ADD("%b1", "%e", "%wb") MUL("%ah", "%a1", "%half")
                            MUL("%b4", "%b1", "%four") ADD("%a2", "%ah", "%b4")
                                MUL("%b2", "%a1", "%eight") ADD("%s", "%a2", "%b2") NORM("2", "%s")
                                    SUB("2") ADD("%h", "%b2", "%y2") END("%h"));
    cr_assert(h.ok);
    static const double expected[3][3] = {{0.75, 0, 0}, {12.5, 29, 0}, {8, 16, 1}};
    cr_assert_eq(h.x.rows.n, 3);
    cr_assert_eq(h.x.sources.n, 3);
    for (size_t l = 0; l < 3; l++)
        for (size_t i = 0; i < 3; i++)
            cr_expect_float_eq(entry(&h.x, 1, l, i), expected[l][i], 1e-12, "%zu %zu", l, i);
    hd_arena_free(h.arena);
}

Test(mixing, what_is_made_of_no_source_is_told_apart) {
    by_hand h = matrix_of_text(HEAD ADD("%h0", "%e", "@b") NORM("1", "%h0") SUB("1")
                                   ADD("%h1", "%h0", "%y1") END("%h1"));
    cr_assert(h.ok);
    cr_expect_gt(h.x.constant, 0.1);
    cr_expect_lt(h.x.error, 1e-12);
    cr_expect_float_eq(entry(&h.x, 0, 1, 0), 1, 1e-12, "the bias is no part of the embedding");
    hd_arena_free(h.arena);
}

Test(mixing, a_product_of_two_values_of_the_stream_is_rejected) {
    by_hand h = matrix_of_text(HEAD NORM("1", "%e") SUB("1") ADD("%h1", "%e", "%y1") MUL(
        "%p", "%h1", "%e") NORM("2", "%p") SUB("2") ADD("%h2", "%p", "%y2") END("%h2"));
    cr_assert_not(h.ok);
    cr_assert_eq(h.diags.list.n, 1);
    cr_expect(strstr(h.diags.list.at[0].message, "a product of two values of the stream"));
    cr_expect_eq(h.diags.list.at[0].loc.line, 13);
    hd_arena_free(h.arena);
}

/* The norm of a number of the stream: h <- h + (w . h) y is linear in y, with a known number. */
Test(mixing, the_narrower_of_two_factors_is_the_weight) {
    by_hand h = matrix_of_text(HEAD NORM("1", "%e") SUB("1") MUL(
        "%q", "%e", "@b") "  %g = reduce_sum %q {axis = 1} : f32[T]\n"
                          "  %g1 = reshape %g {shape = [T, 1]} : f32[T, 1]\n" MUL(
                              "%z", "%y1", "%g1") ADD("%h1", "%e", "%z") END("%h1"));
    cr_assert(h.ok);
    cr_expect_eq(h.x.kind, MIXING_NUMBER);
    cr_expect_float_eq(entry(&h.x, 0, 1, 0), 1, 1e-12);
    cr_expect_neq(entry(&h.x, 0, 1, 1), entry(&h.x, 1, 1, 1), "of each token its own");
    hd_arena_free(h.arena);
}

/* ---- weights of mixes ------------------------------------------------------------------------ */

static double mean_of(const hd_tensor *a, uint64_t n, uint64_t source) {
    double sum = 0;
    for (uint64_t i = source; i < a->elements; i += n)
        sum += hd_tensor_get(a, i);
    return sum / ((double)a->elements / (double)n);
}

static void check_weights(const char *name, size_t mixes) {
    fixture f;
    open_case(&f, name);
    depth_weights x;
    cr_assert(heatmap_find(f.s->graph, f.s->arena, &f.s->diags, hcg_weight_source, &f.s->weights,
                           f.ids, f.tokens, &x),
              "%s", name);
    cr_expect_eq(x.rows.n, mixes, "%s: %zu", name, x.rows.n);
    for (size_t r = 0; r < x.rows.n; r++) {
        char trace[64];
        snprintf(trace, sizeof trace, "depth_weights.%zu", r);
        const hd_tensor *a = hd_tensors_find(&f.expected, trace);
        const int64_t n = x.rows.at[r].n;
        cr_assert_eq(a->shape[a->rank - 1], n);
        for (int64_t i = 0; i < n; i++)
            cr_expect_float_eq(x.rows.at[r].mean[i], mean_of(a, (uint64_t)n, (uint64_t)i), 1e-6,
                               "%s: mix %zu, source %d", name, r, (int)i);
        for (int64_t i = 1; i < n; i++)
            cr_expect_neq(x.rows.at[r].sources[i].key, x.rows.at[r].sources[i - 1].key,
                          "%s: mix %zu: each source has its column", name, r);
    }
    hadal_close(f.s);
}

Test(heatmap, weights_are_those_of_the_golden_cases) {
    static const struct {
        const char *name;
        size_t mixes;
    } cases[] = {{"attnres-block", 12},
                 {"attnres-block-odd", 10},
                 {"attnres-full", 10},
                 {"attnres-multihead", 10},
                 {"attnres-swa", 10},
                 {"attnres-static", 8},
                 {"attnres-inputquery", 6},
                 {"attnres-sigmoid", 8},
                 {"denseformer", 5},
                 {"denseformer-dilated", 2},
                 {"elmo", 1},
                 {"muddformer", 4},
                 {"depth-attention", 4},
                 {"depth-attention-looped", 11}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_weights(cases[i].name, cases[i].mixes);
}

/* The window shuts out sources: their cells stay empty, and rows are of attention or of an MLP. */
Test(heatmap, rows_and_columns) {
    fixture f;
    open_case(&f, "attnres-swa");
    depth_weights x;
    cr_assert(heatmap_find(f.s->graph, f.s->arena, &f.s->diags, hcg_weight_source, &f.s->weights,
                           f.ids, f.tokens, &x));
    cr_assert_eq(x.columns.n, 11);
    cr_assert_str_eq(x.columns.at[0].label, "e");
    cr_assert_str_eq(x.columns.at[10].label, "10");
    for (size_t r = 0; r < x.rows.n; r++) {
        const uint32_t k = (uint32_t)r + 2; /* sublayer */
        cr_assert_eq(x.rows.at[r].sublayer, k);
        cr_assert_eq(x.rows.at[r].attention, k % 2 == 1 && k <= 10);
        for (uint32_t c = 0; c < 11; c++) {
            const bool in_window = c == 0 || (c < k && c + 3 >= k);
            cr_assert_eq(!isnan(x.at[r * 11 + c]), in_window, "%u %u", k, c);
        }
    }
    cr_assert(x.normalized);
    hadal_close(f.s);
}
