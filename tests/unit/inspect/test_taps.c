/* Taps against what was computed elsewhere: the magnitudes of outputs that come with the golden
 * cases, their final rows and weights of mixes, and what a residual system makes of its outputs. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/taps.h"
#include "codegen/codegen.h"
#include "inspect/by_depth.h"
#include "tests/unit/diags_text.h"

#define GOLDEN TEST_DATA "/golden/"

typedef struct fixture {
    hadal_session *s;
    hd_tensors expected;
    int64_t tokens;
    taps taps;
    hir_results results;
} fixture;

static void open_case(fixture *f, const char *name) {
    char path[512];
    *f = (fixture){.s = hadal_open()};
    hadal_session *s = f->s;
    snprintf(path, sizeof path, GOLDEN "%s/expected.safetensors", name);
    cr_assert(hd_safetensors_open(s->arena, &s->diags, path, &f->expected), "%s", path);
    snprintf(path, sizeof path, GOLDEN "%s", name);
    cr_assert_eq(hadal_include_path(s, HADAL_SOURCE "/frontend/std"), 0);
    cr_assert_eq(hadal_load(s, path, NULL), 0, "%s", name);
    cr_assert(api_need_weights(s), "%s", name);
}

/* All taps of a case, evaluated on its tokens. */
static void evaluate(fixture *f, const char *name) {
    open_case(f, name);
    hadal_session *s = f->s;
    const hd_tensor *t = hd_tensors_find(&f->expected, "tokens");
    f->tokens = (int64_t)t->elements;
    double *ids = hd_new_array(s->arena, double, t->elements);
    for (uint64_t i = 0; i < t->elements; i++)
        ids[i] = hd_tensor_get(t, i);
    cr_assert(taps_find(s->graph, s->arena, &s->diags, &f->taps), "%s", name);
    for (size_t i = 0; i < f->taps.list.n; i++)
        f->taps.list.at[i].stored = true;
    taps_measure(&f->taps);
    taps_keep(&f->taps, s->arena);
    hir_module *m = hir_module_clone(s->graph, s->arena);
    cr_assert(taps_add_outputs(&f->taps, m, &s->diags));
    hir_eval *eval = hir_eval_new(s->arena, m, hcg_weight_source, &s->weights);
    cr_assert(hir_eval_call(eval, s->arena, &s->diags, f->tokens, (const double *const[]){ids},
                            &f->results, NULL, NULL));
}

static const tap *tap_named(const fixture *f, const char *name) {
    for (size_t i = 0; i < f->taps.list.n; i++)
        if (strcmp(f->taps.list.at[i].name, name) == 0) return &f->taps.list.at[i];
    return NULL;
}

static const hir_array *array_of(const fixture *f, const tap *t) {
    const char *name = taps_output_name(t->shown, f->s->arena);
    for (size_t i = 0; i < f->results.outputs.n; i++)
        if (strcmp(f->results.outputs.at[i].name, name) == 0) return &f->results.outputs.at[i];
    cr_assert_fail("%s", name);
    return NULL;
}

/* The rows of a tap, [tokens, *n]. */
static const double *rows(const fixture *f, const char *format, uint32_t k, int64_t *n) {
    char name[64];
    snprintf(name, sizeof name, format, k);
    const tap *t = tap_named(f, name);
    cr_assert(t, "no %s: %s", name, taps_text(&f->taps, f->s->arena));
    const hir_array *a = array_of(f, t);
    const int64_t row = a->n / f->tokens;
    double *out = hd_new_array(f->s->arena, double, (size_t)(f->tokens * t->n));
    for (int64_t i = 0; i < f->tokens * t->n; i++)
        out[i] = a->at[i / t->n * row + t->first + i % t->n * t->stride];
    if (n) *n = f->tokens * t->n;
    return out;
}

static double rms(const double *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum / (double)n);
}

/* The largest difference to an expected tensor, relative to its largest element. */
static double error_of(const double *got, int64_t n, const hd_tensor *expected) {
    double off = 0, most = 0;
    cr_assert_eq((uint64_t)n, expected->elements);
    for (int64_t i = 0; i < n; i++) {
        const double e = hd_tensor_get(expected, (uint64_t)i);
        off = fmax(off, fabs(got[i] - e));
        most = fmax(most, fabs(e));
    }
    return off / most;
}

/* ---- what came with the golden cases --------------------------------------------------------- */

/* Attention over depth that has contractions of its own is an addition to the stream like those of
 * attention and MLP: of three outputs of a layer, which is not among the expected ones? */
static uint32_t third_of(const char *name) {
    if (strncmp(name, "dreamer", 7) == 0) return 2;
    return strcmp(name, "mrla-base") == 0 || strcmp(name, "mrla-light") == 0 ? 3 : 0;
}

static void check_case(const char *name, const hd_tensor *expected) {
    fixture f;
    evaluate(&f, name);
    const uint32_t third = third_of(name), n = f.taps.sublayers;
    cr_assert_eq(third ? n / 3 * 2 : n, expected->elements, "%s: %u", name, n);
    by_depth table;
    by_depth_start(&f.taps, f.s->arena, &table);
    table.tokens = f.tokens;
    for (uint32_t i = 0; i < f.taps.values.n; i++) {
        const tap t = {.shown = i};
        const hir_array *a = array_of(&f, &t);
        by_depth_add_exact(&table, i, a->at, a->n / f.tokens, f.tokens);
    }
    for (uint32_t k = 1, i = 0; k <= n; k++) {
        if (third && (k - 1) % 3 + 1 == third) continue;
        int64_t elements;
        const double *y = rows(&f, "output.%u", k, &elements);
        const double got = rms(y, elements), wanted = hd_tensor_get(expected, i++);
        cr_expect_float_eq(got, wanted, 1e-6 * wanted, "%s, output %u: %.9g, not %.9g", name, k,
                           got, wanted);
    }
    int64_t elements;
    for (size_t j = 0; j < f.taps.list.n; j++) {
        const tap *t = &f.taps.list.at[j];
        if (!t->measured) continue;
        const double *x = rows(&f, t->name, 0, &elements);
        const double wanted = rms(x, elements);
        cr_expect_float_eq(by_depth_rms(&table, j), wanted, 1e-12 * wanted, "%s %s", name, t->name);
    }
    if (strcmp(name, "densenet") == 0) { /* reads by a matrix, which is a part of the reader */
        hadal_close(f.s);
        return;
    }
    const double *head = rows(&f, "normed.head", 0, &elements);
    cr_expect_lt(error_of(head, elements, hd_tensors_find(&f.expected, "hidden_final")), 1e-6, "%s",
                 name);
    hadal_close(f.s);
}

Test(taps, outputs_of_every_golden_case_are_as_large_as_they_should_be) {
    hd_arena *a = hd_arena_new();
    hd_diags d;
    hd_tensors all;
    size_t seen = 0;
    hd_diags_init(&d, a);
    cr_assert(hd_safetensors_open(a, &d, GOLDEN "out_rms.safetensors", &all));
    for (size_t i = 0; i < all.list.n; i++) {
        const char *name = all.list.at[i].name;
        char path[512];
        snprintf(path, sizeof path, GOLDEN "%s/config.json", name);
        if (access(path, R_OK) != 0) continue; /* a case that this tree does not have */
        check_case(name, &all.list.at[i]);
        seen++;
    }
    cr_expect_geq(seen, 40);
    hd_arena_free(a);
}

/* ---- what a system makes of its outputs ------------------------------------------------------ */

static void expect_sum(const fixture *f, const double *sum, const double *a, const double *b,
                       int64_t n, const char *what, uint32_t k) {
    for (int64_t i = 0; i < n; i++)
        cr_assert_float_eq(sum[i], (a ? a[i] : 0) + b[i], 1e-12 * (1 + fabs(sum[i])), "%s %s %u",
                           f->taps.model, what, k);
}

Test(taps, the_standard_stream_is_what_is_read) {
    fixture f;
    int64_t n;
    evaluate(&f, "standard");
    for (uint32_t k = 1; k <= 8; k++) {
        const double *h = rows(&f, "stream.%u", k, &n);
        cr_expect_arr_eq(h, rows(&f, "input.%u", k, NULL), (size_t)n * sizeof *h);
        const double *next =
            k < 8 ? rows(&f, "stream.%u", k + 1, &n) : rows(&f, "stream.head", 0, &n);
        expect_sum(&f, next, h, rows(&f, "output.%u", k, NULL), n, "stream", k + 1);
    }
    cr_expect_not(tap_named(&f, "mix.2"));
    cr_expect_not(tap_named(&f, "stream.2.1"));
    hadal_close(f.s);
}

/* Blocks of four sublayers: the stream is the live sum, finished blocks are sources. */
Test(taps, the_stream_of_block_attention_residuals_is_the_live_sum) {
    static const char *const labels[] = {"e",   "1",   "1-2", "1-3",  "1-4",  "5",   "5-6",
                                         "5-7", "5-8", "9",   "9-10", "9-11", "9-12"};
    fixture f;
    int64_t n;
    evaluate(&f, "attnres-block");
    for (uint32_t k = 1; k <= 12; k++) {
        const double *y = rows(&f, "output.%u", k, &n), *h = rows(&f, "stream.%u", k, &n);
        const double *next =
            k < 12 ? rows(&f, "stream.%u", k + 1, &n) : rows(&f, "stream.head", 0, &n);
        expect_sum(&f, next, (k - 1) % 4 ? h : NULL, y, n, "stream", k + 1);
    }
    for (uint32_t i = 0; i < sizeof labels / sizeof *labels; i++) {
        char name[32];
        snprintf(name, sizeof name, "source.%u", i);
        cr_assert(tap_named(&f, name), "%s", name);
        cr_expect_str_eq(tap_named(&f, name)->label, labels[i]);
    }
    cr_expect_not(tap_named(&f, "source.13"));
    cr_expect_not(tap_named(&f, "mix.1"), "sublayer 1 reads the embedding alone");
    for (uint32_t k = 2; k <= 13; k++) {
        char trace[32];
        snprintf(trace, sizeof trace, "depth_weights.%u", k - 2);
        const double *a = k < 13 ? rows(&f, "mix.%u", k, &n) : rows(&f, "mix.head", 0, &n);
        cr_expect_lt(error_of(a, n, hd_tensors_find(&f.expected, trace)), 1e-6, "%s", trace);
    }
    /* sublayer 7 mixes e, 1-4 and 5-6 */
    int64_t d;
    const double *h = rows(&f, "input.%u", 7, &d), *a = rows(&f, "mix.%u", 7, &n);
    const double *v[] = {rows(&f, "source.%u", 0, NULL), rows(&f, "source.%u", 4, NULL),
                         rows(&f, "source.%u", 6, NULL)};
    cr_assert_eq(n, 3 * f.tokens);
    for (int64_t i = 0; i < d; i++) {
        const double *w = a + i / (d / f.tokens) * 3;
        cr_assert_float_eq(h[i], w[0] * v[0][i] + w[1] * v[1][i] + w[2] * v[2][i], 1e-12);
    }
    hadal_close(f.s);
}

/* Both end with the sum of their streams. */
static void check_streams(const char *name, uint32_t sublayers) {
    fixture f;
    int64_t n;
    evaluate(&f, name);
    cr_assert_eq(f.taps.sublayers, sublayers);
    const double *head = rows(&f, "input.head", 0, &n);
    double *sum = hd_new_array(f.s->arena, double, (size_t)n);
    for (uint32_t s = 1; s <= 4; s++) {
        const double *x = rows(&f, "stream.head.%u", s, NULL);
        for (int64_t i = 0; i < n; i++)
            sum[i] += x[i];
    }
    expect_sum(&f, head, NULL, sum, n, "head", 0);
    for (uint32_t k = 2; k <= sublayers; k++) {
        cr_expect(tap_named(&f, hd_printf(f.s->arena, "stream.%u.4", k)));
        cr_expect_not(tap_named(&f, hd_printf(f.s->arena, "stream.%u.5", k)));
    }
    hadal_close(f.s);
}

Test(taps, streams_are_apart) {
    check_streams("hyper-connections", 8);
    check_streams("mhc-lite", 6);
}

/* The sum Y, and X, which is normed behind its sum. */
Test(taps, both_streams_of_siamesenorm_are_there) {
    fixture f;
    int64_t n;
    evaluate(&f, "siamesenorm");
    for (uint32_t k = 2; k < 8; k++) {
        const double *y = rows(&f, "output.%u", k, &n);
        expect_sum(&f, rows(&f, "stream.%u.1", k + 1, NULL), rows(&f, "stream.%u.1", k, NULL), y, n,
                   "Y", k + 1);
    }
    hadal_close(f.s);
}

/* Outputs are the sublayer's own: scales and norms on the way into the stream come after them. */
Test(taps, scales_and_norms_of_the_system_are_not_in_outputs) {
    fixture f;
    int64_t n;
    evaluate(&f, "layerscale");
    const hd_tensor *scale = hd_tensors_find(&f.s->weights, "model.layers.1.attn_residual.scale");
    const double *y = rows(&f, "output.%u", 3, &n), *h = rows(&f, "stream.%u", 3, &n);
    const double *next = rows(&f, "stream.%u", 4, &n);
    for (int64_t i = 0; i < n; i++)
        cr_assert_float_eq(
            next[i], h[i] + hd_tensor_get(scale, (uint64_t)i % scale->elements) * y[i], 1e-12);
    hadal_close(f.s);
    evaluate(&f, "deepnorm"); /* without a pre-norm: nothing is normed but what the head reads */
    cr_expect_not(tap_named(&f, "normed.3"));
    cr_expect(tap_named(&f, "normed.head"));
    const double *read = rows(&f, "input.%u", 3, &n);
    cr_expect_arr_eq(read, rows(&f, "stream.%u", 3, NULL), (size_t)n * sizeof *read);
    hadal_close(f.s);
}

/* Queries, keys and values of a layer read mixes of their own; the fourth is the stream. */
Test(taps, a_sublayer_may_read_several_inputs) {
    fixture f;
    evaluate(&f, "muddformer");
    cr_expect(tap_named(&f, "input.1") && tap_named(&f, "input.2"));
    cr_expect_not(tap_named(&f, "input.3"));
    for (int i = 1; i <= 3; i++) {
        cr_expect(tap_named(&f, hd_printf(f.s->arena, "input.3.%d", i)));
        cr_expect(tap_named(&f, hd_printf(f.s->arena, "normed.3.%d", i)));
    }
    hadal_close(f.s);
}

/* Experts and the shared expert read the same, side by side: no stream is between them. */
Test(taps, sublayers_side_by_side_have_one_input) {
    taps x;
    hadal_session *s = hadal_open();
    cr_assert_eq(hadal_include_path(s, HADAL_SOURCE "/frontend/std"), 0);
    cr_assert_eq(hadal_load(s, TEST_DATA "/published/qwen3_next", NULL), 0);
    cr_assert(taps_find(s->graph, s->arena, &s->diags, &x));
    const fixture f = {.s = s, .taps = x};
    const tap *experts = tap_named(&f, "input.2"), *shared = tap_named(&f, "input.3");
    cr_assert(experts && shared && tap_named(&f, "normed.3"));
    cr_expect(hir_ref_equal(experts->value, shared->value));
    cr_expect_not(tap_named(&f, "stream.3"));
    cr_expect(tap_named(&f, "stream.4"));
    hadal_close(s);
}

/* ---- lists ----------------------------------------------------------------------------------- */

static size_t chosen(fixture *f, const char *list) {
    taps x;
    size_t n = 0;
    cr_assert(taps_find(f->s->graph, f->s->arena, &f->s->diags, &x));
    if (!taps_store(&x, list, f->s->arena, &f->s->diags)) return 0;
    for (size_t i = 0; i < x.list.n; i++)
        n += x.list.at[i].stored;
    return n;
}

Test(taps, lists_name_one_or_many) {
    fixture f;
    open_case(&f, "mhc"); /* 6 sublayers, 4 streams */
    static const struct {
        const char *list;
        size_t n;
    } cases[] = {{"output.3", 1},          {"output", 6},       {"output.*", 6},
                 {"output.2-4", 3},        {"input.*", 7},      {"input.6-head", 2},
                 {"input.head", 1},        {"stream.1", 1},     {"stream.2", 4},
                 {"stream.2.3", 1},        {"stream.*.3", 6},   {"stream.2-3.4", 2},
                 {"source.0", 1},          {"source.0-2", 3},   {"output.1,output.1", 1},
                 {"output.1,normed.2", 2}, {"normed.1-head", 7}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_expect_eq(chosen(&f, cases[i].list), cases[i].n, "%s: %zu", cases[i].list,
                     chosen(&f, cases[i].list));
    hadal_close(f.s);
}

Test(taps, lists_with_errors_are_rejected) {
    static const struct {
        const char *list, *message, *more;
    } cases[] = {
        {"", "has an empty place", "there are input.1 to input.6, input.head"},
        {"output.1,", "has an empty place", NULL},
        {",output.1", "has an empty place", NULL},
        {"outputs.1", "\"outputs.1\" is no tap", "did you mean output.1?"},
        {"head", "is no tap", "what the head reads is input.head"},
        {"output.", "does not say which", NULL},
        {"output.0", "does not say which", "sublayers count from 1"},
        {"output.1.0", "does not say which", NULL},
        {"output.4-2", "does not say which", NULL},
        {"output.1-", "does not say which", NULL},
        {"output.-1", "does not say which", NULL},
        {"output.1 ", "does not say which", NULL},
        {"output.headx", "does not say which", NULL},
        {"source.head", "does not say which", NULL},
        {"output.99999999999999999999", "does not say which", NULL},
        {"output.7", "mhc has no output.7", "output.1 to output.6;"},
        {"input.7", "mhc has no input.7", "input.6, input.head"},
        {"output.head", "mhc has no output.head", "what the head gives are the logits"},
        {"output.9", "mhc has no output.9", "output.1 to output.6;"},
        {"output.5-9", "mhc has no output.9", NULL},
        {"stream.9-head", "mhc has no stream.9", NULL},
        {"stream.head-2", "does not say which", NULL},
        {"source.7", "mhc has no source.7", "source.0 to source.6"},
        {"stream.2.5", "mhc has no stream.2.5", "(in up to 4 parts, as stream.2.4)"},
        {"mix.2", "mhc has no mix.2", "no mix whose weights the spec traces"},
        {"mix", "mhc has no mix", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture f;
        open_case(&f, "mhc");
        cr_expect_eq(chosen(&f, cases[i].list), 0, "%s", cases[i].list);
        const char *text = diags_text(f.s->arena, &f.s->diags);
        cr_expect(strstr(text, cases[i].message), "%s: %s", cases[i].list, text);
        cr_expect(!cases[i].more || strstr(text, cases[i].more), "%s: %s", cases[i].list, text);
        hadal_close(f.s);
    }
}

/* ---- their size ------------------------------------------------------------------------------ */

Test(taps, what_is_too_large_is_said_before) {
    fixture f;
    open_case(&f, "standard");
    hadal_session *s = f.s;
    const hadal_pipeline p = {.struct_size = sizeof p, .taps = "output.1-2,input.2"};
    cr_assert(api_choose_taps(s, &p));
    const uint64_t row =
        3 * sizeof(float) *
        (uint64_t)hir_type_row_elements(hir_ref_type(s->graph, s->taps->list.at[0].value));
    cr_expect_eq(taps_bytes(s->taps, s->graph, 10), 10 * row);
    cr_expect(api_check_taps(s, 10, 10 * row));
    cr_expect_eq(s->diags.list.n, 0);
    cr_expect_not(api_check_taps(s, 11, 10 * row));
    const char *text = diags_text(s->arena, &s->diags);
    cr_expect(strstr(text, "more than the memory of this machine"), "%s", text);
    cr_expect(strstr(text, "fewer tokens"), "%s", text);
    cr_expect(api_check_taps(s, (1 << 30) / (int64_t)row, UINT64_MAX));
    cr_expect_eq(s->diags.list.at[s->diags.list.n - 1].severity, HD_NOTE);
    cr_expect_gt(api_memory(), 1 << 20);
    hadal_close(s);
}
