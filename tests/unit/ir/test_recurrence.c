/* Ops that carry a state of fixed size from token to token, in the IR: their type rules, and their
 * meaning in the evaluator against the formulas written another way, for every way to cut a prompt
 * into calls. */
#include "tests/unit/ir/state_ops.h"

TestSuite(recurrence, .init = open_arena, .fini = close_arena);

/* ---- type rules ------------------------------------------------------------------------------ */
/* %x %q %k %v %a %b %e have tokens, %n and %m have none. */
static const char preamble[] =
    "hir 1 depth @rules\n"
    "weight @w : f32[6, 4]\nweight @two : f32[2, 4]\nweight @five : f32[5, 4]\n"
    "weight @raw : f32[6, 1, 4]\nweight @one : f32[6, 1]\nweight @n6 : f32[6]\nweight @rows : "
    "f32[3, 3, 4]\n"
    "weight @n3 : f32[3]\n"
    "state $k : f32[C, 2, 3]\nstate $w : window f32[3, 6]\nstate $half : window bf16[3, 6]\n"
    "state $short : window f32[2, 6]\nstate $cw : carry f32[3, 6]\n"
    "state $s : carry f32[4, 3, 5]\nstate $s16 : carry bf16[4, 3, 5]\n"
    "state $far : window f32[6, 6]\nstate $ids : window f32[2, 1]\n"
    "state $turned : carry f32[4, 5, 3]\nstate $ws : window f32[4, 3, 5]\n"
    "func(%ids: i32[T], %x: f32[T, 6], %own: f32[T, 6, 4], %shared: f32[T, 3, 4], %row: f32[6], "
    "%q: f32[T, 2, 3], %v: f32[T, 4, 5], %v3: f32[T, 3, 5], %a: f32[T, 4, 3], %g: f32[T, 4, 1], "
    "%b: f32[T, 4], %q4: f32[T, 2, 4], %still: f32[2, 3, 3]) {\n"
    "  %c = cache_append %q, $k\n";

static const rule_case accepted[] = {
    {"short_conv %x, @w, _, $w", "f32[T, 6]"},
    {"short_conv %x, @w, @n6, $w", "f32[T, 6]"},
    {"short_conv %x, @w, %row, $half", "f32[T, 6]"},
    {"short_conv %x, @two, _, $w", "f32[T, 6]"},
    {"short_conv %x, %own, @n6, $w", "f32[T, 6]"},
    {"short_conv %x, %shared, _, $w", "f32[T, 6]"},
    {"short_conv %x, @w, _, $far {dilation = 2}", "f32[T, 6]"},
    {"ngram_gather %ids, @rows, $ids {multipliers = [3, 0, 5, 1, 4294967295, -1], sizes = [4, 5], "
     "offsets = [0, 4], eos = 2}",
     "f32[T, 2, 4]"},
    {"ngram_gather %ids, @rows, $ids {multipliers = [3, 0, 5, 1, 7, 0], sizes = [4, 5], "
     "offsets = [0, 4], before = 2}",
     "f32[T, 2, 4]"},
    {"ngram_gather_grad %ids, %q4 {shape = [9, 4], multipliers = [3, 0, 5, 1], sizes = [4, 5], "
     "offsets = [0, 4], eos = 2}",
     "f32[9, 4]"},
    {"ngram_gather_grad %ids, %q4 {shape = [3, 3, 4], multipliers = [3, 0, 5, 1], sizes = [4, "
     "5], offsets = [0, 4], before = 2}",
     "f32[3, 3, 4]"},
    {"delta_rule %q, %q, %v, %a, %b, $s", "f32[T, 4, 5]"},
    {"delta_rule %q, %q, %v, %g, %b, $s {scale = 0.5}", "f32[T, 4, 5]"},
    {"delta_rule %q, %q, %v, _, %b, $s16", "f32[T, 4, 5]"},
    {"delta_rule %a, %a, %v, _, %b, $s", "f32[T, 4, 5]"},
    {"delta_rule %q, %q, %v, %g, _, $s {rule = \"additive\"}", "f32[T, 4, 5]"},
    {"delta_rule %q, %q, %v, _, %b, $s {rule = \"delta\"}", "f32[T, 4, 5]"},
};

#define NGRAM(multipliers, sizes, offsets)                                                         \
    " {multipliers = " multipliers ", sizes = " sizes ", offsets = " offsets ", eos = 2}"

static const rule_case rejected[] = {
    {"short_conv %x, @w, $w", "short_conv: has 3 operands, but takes (x taps bias? state$)"},
    {"short_conv %x, @w, _, %x", "short_conv: operand state must be a state ($)"},
    {"short_conv %x, @w, _, $k", "the state must be a window f32[3, 6], not a cache f32[C, 2, 3]"},
    {"short_conv %x, @w, _, $cw", "must be a window f32[3, 6], not a carry f32[3, 6]"},
    {"short_conv %x, @w, _, $short", "must be a window f32[3, 6], not a window f32[2, 6]"},
    {"short_conv %x, @raw, _, $w", "operand taps must be [c, n] or [T, c, n], not f32[6, 1, 4]"},
    {"short_conv %x, %x, _, $w", "operand taps must be [c, n] or [T, c, n], not f32[T, 6]"},
    {"short_conv %x, @five, _, $w", "but x has 6 channels, no multiple of 5"},
    {"short_conv %x, @one, _, $w", "operand taps, f32[6, 1], has fewer than two taps"},
    {"short_conv %x, @w, @n3, $w", "operand bias must be [6], not f32[3]"},
    {"short_conv %x, @w, %x, $w", "operand bias must be [6], not f32[T, 6]"},
    {"short_conv %q, @w, _, $w", "operand x must be [T, c], not f32[T, 2, 3]"},
    {"short_conv @w, @w, _, $w", "operand x must be a value (%), not a weight (@)"},
    {"short_conv %ids, @w, _, $w", "operand x is i32[T]"},
    {"short_conv %x, @w, _, $w {scale = 1}", "short_conv has no attribute 'scale'"},
    {"short_conv %x, @w, _, $w {dilation = 2}",
     "must be a window f32[6, 6], not a window f32[3, 6]"},
    {"short_conv %x, @w, _, $w {dilation = 0}", "'dilation' is 0; it must be from 1 to 715827882"},
    {"ngram_gather %x, @rows, $ids" NGRAM("[3, 0, 5, 0, 7, 0]", "[4, 5]", "[0, 4]"),
     "operand ids must be i32[T] or i32[T, 1], not f32[T, 6]"},
    {"ngram_gather %ids, @rows, $ids {multipliers = [3, 0, 5, 0, 7, 0], sizes = [4, 5], "
     "offsets = [0, 4]}",
     "one of 'eos' and 'before' must be there"},
    {"ngram_gather %ids, @rows, $ids {multipliers = [3, 0, 5, 0, 7, 0], sizes = [4, 5], "
     "offsets = [0, 4], eos = 1, before = 1}",
     "one of 'eos' and 'before' must be there"},
    {"ngram_gather %ids, @n6, $ids" NGRAM("[3, 0, 5, 0, 7, 0]", "[4, 5]", "[0, 4]"),
     "the table must be [rows, n] or [parts, rows, n], not f32[6]"},
    {"ngram_gather %ids, @rows, $w" NGRAM("[3, 0, 5, 0, 7, 0]", "[4, 5]", "[0, 4]"),
     "the state must be a window f32[2, 1], not a window f32[3, 6]"},
    {"ngram_gather %ids, @rows, $ids" NGRAM("[3, 0, 5, 0, 7]", "[4, 5]", "[0, 4]"),
     "'multipliers' has 5 entries; it must have from 4 to 32, two by two"},
    {"ngram_gather %ids, @rows, $ids" NGRAM("[3, 0]", "[4, 5]", "[0, 4]"),
     "'multipliers' has 2 entries"},
    {"ngram_gather %ids, @rows, $ids" NGRAM("[3, 0, 5, 0.5, 7, 0]", "[4, 5]", "[0, 4]"),
     "entry 3 of 'multipliers' is 0.5; it must be a whole number"},
    {"ngram_gather %ids, @rows, $ids" NGRAM("[3, 0, 5, 0, 7, 4294967296]", "[4, 5]", "[0, 4]"),
     "entry 5 of 'multipliers' is 4.29497e+09; it must be a whole number"},
    {"ngram_gather %ids, @rows, $ids" NGRAM("[3, 0, 5, 0, 7, 0]", "[4]", "[0]"),
     "'sizes' has 1 entry, not as many for each length of context, 2 to 3"},
    {"ngram_gather %ids, @rows, $ids" NGRAM("[3, 0, 5, 0, 7, 0]", "[4, 0]", "[0, 4]"),
     "entry 1 of 'sizes' is 0; it must be a whole number from 1"},
    {"ngram_gather %ids, @rows, $ids" NGRAM("[3, 0, 5, 0, 7, 0]", "[4, 5]", "[0]"),
     "there are 2 'sizes' and 1 'offsets'"},
    {"ngram_gather %ids, @rows, $ids" NGRAM("[3, 0, 5, 0, 7, 0]", "[4, 5]", "[-1, 4]"),
     "entry 0 of 'offsets' is -1"},
    {"ngram_gather %ids, @rows, $ids" NGRAM("[3, 0, 5, 0, 7, 0]", "[4, 5]", "[0, 5]"),
     "entry 1 of 'sizes' and 'offsets', 5 and 5, goes beyond the end of the table, which has 9 "
     "rows"},
    {"ngram_gather_grad %ids, %q4 {multipliers = [3, 0, 5, 1], sizes = [4, 5], offsets = [0, 4], "
     "eos = 2}",
     "shape"},
    {"ngram_gather_grad %ids, %q4 {shape = [T, 4], multipliers = [3, 0, 5, 1], sizes = [4, 5], "
     "offsets = [0, 4], eos = 2}",
     "the table must be [rows, n] or [parts, rows, n], not f32[T, 4]"},
    {"ngram_gather_grad %ids, %q4 {shape = [8, 4], multipliers = [3, 0, 5, 1], sizes = [4, 5], "
     "offsets = [0, 4], eos = 2}",
     "goes beyond the end of the table, which has 8 rows"},
    {"ngram_gather_grad %ids, %q4 {shape = [9, 3], multipliers = [3, 0, 5, 1], sizes = [4, 5], "
     "offsets = [0, 4], eos = 2}",
     "operand dy must be f32[T, 2, 3], not f32[T, 2, 4]"},
    {"delta_rule %q, %q, %v, _, $s", "delta_rule: has 5 operands"},
    {"delta_rule %q, %q, %v, _, %b, $k", "must be a carry f32[4, 3, 5], not a cache"},
    {"delta_rule %q, %q, %v, _, %b, $ws", "must be a carry f32[4, 3, 5], not a window"},
    {"delta_rule %q, %q, %v, _, %b, $turned", "must be a carry f32[4, 3, 5], not a carry"},
    {"delta_rule %q, %q4, %v, _, %b, $s", "operand k must be f32[T, 2, 3], not f32[T, 2, 4]"},
    {"delta_rule %q, %a, %v, _, %b, $s", "operand k must be f32[T, 2, 3], not f32[T, 4, 3]"},
    {"delta_rule %q, %c, %v, _, %b, $s", "operand k is f32[C, 2, 3], a cache"},
    {"delta_rule %q, %q, %v3, _, %b, $s", "the heads of q do not divide those of v"},
    {"delta_rule %q, %q, %x, _, %b, $s", "operand v must be [T, H, m], not f32[T, 6]"},
    {"delta_rule %still, %q, %v, _, %b, $s", "operand q must be [T, G, n], not f32[2, 3, 3]"},
    {"delta_rule %q, %q, %v, %q, %b, $s", "operand decay must be f32[T, 4, 3], not f32[T, 2, 3]"},
    {"delta_rule %q, %q, %v, %b, %b, $s", "operand decay must be f32[T, 4, 3], not f32[T, 4]"},
    {"delta_rule %q, %q, %v, %a, %g, $s", "operand beta must be f32[T, 4], not f32[T, 4, 1]"},
    {"delta_rule %q, %q, %v, _, %b, $s {rule = \"hebb\"}",
     "'rule' is \"hebb\"; it must be \"delta\" or \"additive\""},
    {"delta_rule %q, %q, %v, _, %b, $s {rule = 1}", "rule"},
    {"delta_rule %q, %q, %v, _, %b, $s {scale = nan}", "'scale' is nan; it must be finite"},
};

Test(recurrence, accepted_types) {
    expect_accepted(preamble, accepted, sizeof accepted / sizeof *accepted);
}

Test(recurrence, rejected_types) {
    expect_rejected(preamble, rejected, sizeof rejected / sizeof *rejected);
}

Test(recurrence, one_op_writes_a_state) {
    cr_assert_null(
        with_op(preamble, "short_conv %x, @w, _, $w\n  %again = short_conv %x, @w, _, $w"));
    cr_assert(strstr(said(), "state $w is written twice"), "%s", said());
}

/* ---- numbers --------------------------------------------------------------------------------- */
/* All rows of the first output, in calls of the given lengths. Inputs have `width` elements a row.
 */
static double *run_cut(hir_eval *e, const int *cut, size_t inputs, const double *const *x,
                       const int *width, int out_width) {
    double *y = hd_new_array(arena, double, (size_t)(TOKENS * out_width));
    for (int at = 0; at < TOKENS; at += *cut++) {
        const double *now[8];
        for (size_t i = 0; i < inputs; i++)
            now[i] = x[i] + at * width[i];
        const hir_results out = call(e, *cut, now);
        memcpy(y + at * out_width, out.outputs.at[0].at, (size_t)(*cut * out_width) * sizeof *y);
    }
    return y;
}

/* ---- short convolution ---- */
typedef struct conv {
    const char *state;
    int channels, groups, n;
    bool own, bias;
    int apart; /* dilation; 0: 1, not said */
} conv;

static const conv convs[] = {
    {"f32", 6, 6, 4, false, false, 0}, {"f32", 6, 2, 3, true, true, 0},
    {"f32", 5, 5, 2, false, true, 0},  {"bf16", 4, 4, 4, false, false, 0},
    {"f32", 4, 1, 16, true, false, 0}, {"f16", 3, 3, 5, true, false, 0},
    {"f32", 4, 4, 3, false, true, 2},  {"bf16", 3, 1, 2, true, false, 7},
};

static int apart(const conv *c) {
    return c->apart ? c->apart : 1;
}

static hir_module *conv_module(const conv *c) {
    const char *taps = c->own ? hd_printf(arena, ", %%w: f32[T, %d, %d]", c->groups, c->n)
                              : hd_printf(arena, ", %%w: f32[%d, %d]", c->groups, c->n);
    return graph(
        hd_printf(arena, "state $s : window %s[%d, %d]\n", c->state, (c->n - 1) * apart(c),
                  c->channels),
        hd_printf(arena, "%%x: f32[T, %d], %%b: f32[%d]%s", c->channels, c->channels, taps),
        hd_printf(arena, "  %%y = short_conv %%x, %%w, %s, $s%s\n  output %%y {name = \"y\"}",
                  c->bias ? "%b" : "_",
                  c->apart ? hd_printf(arena, " {dilation = %d}", c->apart) : ""));
}

/* Earlier rows as the state holds them. */
static double kept(const conv *c, double x) {
    const hir_dtype type = !strcmp(c->state, "f32")    ? HIR_F32
                           : !strcmp(c->state, "bf16") ? HIR_BF16
                                                       : HIR_F16;
    return hir_rounded(type, x);
}

/* Row t adds what it gives to rows t, t + d .. t + (n - 1) d: the formula by source instead of by
 * target. */
static void plain_conv(const conv *c, const double *x, const double *b, const double *w,
                       double *y) {
    const int per_group = c->channels / c->groups;
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < c->channels; i++) {
            y[t * c->channels + i] += c->bias ? b[i] : 0;
            for (int back = 0; back < c->n && t + back * apart(c) < TOKENS; back++) {
                const int at = t + back * apart(c),
                          group = (c->own ? at * c->groups : 0) + i / per_group;
                const double now = x[t * c->channels + i];
                y[at * c->channels + i] +=
                    w[group * c->n + c->n - 1 - back] * (back ? kept(c, now) : now);
            }
        }
}

Test(recurrence, short_conv_is_its_formula_however_it_is_cut) {
    for (size_t k = 0; k < sizeof convs / sizeof *convs; k++) {
        const conv *c = &convs[k];
        const double *x = waves(TOKENS * c->channels, 0.7), *b = waves(c->channels, 2.1);
        const double *w = waves(TOKENS * c->groups * c->n, 1.7);
        const int width[] = {c->channels, 0, c->own ? c->groups * c->n : 0};
        double *want = hd_new_array(arena, double, (size_t)(TOKENS * c->channels));
        plain_conv(c, x, b, w, want);
        for (size_t i = 0; i < CUTS; i++) {
            hir_eval *e = hir_eval_new(arena, conv_module(c), NULL, NULL);
            const double *y = run_cut(e, cuts[i], 3, INPUTS(x, b, w), width, c->channels);
            expect_near(y, want, TOKENS * c->channels, 1e-14, "short_conv");
            cr_assert(hir_eval_rewind(e, 0));
            y = run_cut(e, cuts[i], 3, INPUTS(x, b, w), width, c->channels);
            expect_near(y, want, TOKENS * c->channels, 1e-14, "after rewinding to 0");
        }
    }
}

/* ---- hashes of the last tokens ---- */
/* The row that entry j of a token names, from all ids of the sequence: id s steps back counts as
 * eos before the start, and if one of the ids s .. 1 steps back is eos. The remainder is taken bit
 * by bit: 2^63 in a negative number weighs -2^63. */
static int named_row(const double *ids, int t, int m, const uint64_t *multiplier, int64_t size,
                     int64_t eos) {
    uint64_t hash = 0;
    for (int s = 0; s < m; s++) {
        bool ended = s > t;
        for (int back = 1; back <= s && back <= t; back++)
            ended |= ids[t - back] == (double)eos;
        hash ^= (uint64_t)(ended ? eos : (int64_t)ids[t - s]) * multiplier[s];
    }
    int64_t rest = 0;
    for (int bit = 63; bit >= 0; bit--) {
        const int64_t one = (int64_t)(hash >> bit & 1);
        rest = (2 * rest + (bit == 63 ? -one : one)) % size;
    }
    return (int)((rest + size) % size);
}

Test(recurrence, rows_are_those_that_hashes_name) {
    static const uint64_t multiplier[] = {UINT64_C(0xf234567890abcde1), 107512210695146523u,
                                          UINT64_C(0x8000000000000003)};
    static const int64_t sizes[] = {41, 43, 47, 53}, offsets[] = {0, 41, 84, 131};
    const double *ids = NUMBERS(3, 7, 5, 5, 61, 7, 1, 5, 0, 3, 60);
    double *table = hd_new_array(arena, double, 192), want[TOKENS * 4];
    for (int i = 0; i < 192; i++)
        table[i] = i;
    for (int t = 0; t < TOKENS; t++)
        for (int j = 0; j < 4; j++)
            want[t * 4 + j] =
                (double)(named_row(ids, t, 2 + j / 2, multiplier, sizes[j], 5) + offsets[j]);
    hir_module *m = graph(
        "state $s : window f32[2, 1]\n", "%ids: i32[T], %table: f32[4, 48, 1]",
        "  %y = ngram_gather %ids, %table, $s {multipliers = [2427178465, 4063516280, 931154971, "
        "25032137, 3, 2147483648], sizes = [41, 43, 47, 53], offsets = [0, 41, 84, 131], eos = 5}\n"
        "  output %y {name = \"y\"}");
    for (size_t i = 0; i < CUTS; i++) {
        hir_eval *e = hir_eval_new(arena, m, NULL, NULL);
        const int width[] = {1, 0};
        const double *y = run_cut(e, cuts[i], 2, INPUTS(ids, table), width, 4);
        expect_near(y, want, TOKENS * 4, 0, "ngram_gather");
        cr_assert(hir_eval_rewind(e, 0));
        expect_near(run_cut(e, cuts[i], 2, INPUTS(ids, table), width, 4), want, TOKENS * 4, 0,
                    "after rewinding to 0");
    }
}

/* An id that stands before the start, and ends nothing where a token has it. */
Test(recurrence, ids_before_the_start) {
    const double *ids = NUMBERS(3, 7, 5, 5, 61, 7, 1, 5, 0, 3, 60);
    double *table = hd_new_array(arena, double, 41), want[TOKENS];
    for (int i = 0; i < 41; i++)
        table[i] = i;
    for (int t = 0; t < TOKENS; t++) {
        const uint64_t last = t ? (uint64_t)ids[t - 1] : 5;
        want[t] = (double)(((uint64_t)ids[t] * 1000003 ^ last * 77) % 41);
    }
    hir_module *m = graph(
        "state $s : window f32[1, 1]\n", "%x: f32[T, 1], %table: f32[41, 1]",
        "  %ids = to_ids %x\n  %y = ngram_gather %ids, %table, $s {multipliers = [1000003, 0, 77, "
        "0], sizes = [41], offsets = [0], before = 5}\n  output %y {name = \"y\"}");
    for (size_t i = 0; i < CUTS; i++) {
        hir_eval *e = hir_eval_new(arena, m, NULL, NULL);
        const int width[] = {1, 0};
        expect_near(run_cut(e, cuts[i], 2, INPUTS(ids, table), width, 1), want, TOKENS, 0,
                    "before");
    }
}

/* ---- delta rule ---- */
typedef struct delta {
    int heads, groups, n, m, decays; /* decays: n, 1, or 0 for none */
    double scale;
    bool additive, no_beta;
} delta;

static const delta deltas[] = {
    {4, 2, 3, 5, 3, 0.5, false, false}, {2, 2, 4, 4, 1, 1, false, false},
    {3, 1, 5, 2, 0, -2, false, false},  {1, 1, 1, 1, 1, 1, false, false},
    {2, 1, 3, 4, 3, 0.5, false, true},  {4, 2, 3, 5, 1, 1, true, true},
    {3, 3, 5, 2, 0, 2, true, false},    {2, 1, 4, 3, 4, -1, true, true},
};

static hir_module *delta_module(const delta *d, const char *state) {
    const char *inputs = hd_printf(
        arena, "%%q: f32[T, %d, %d], %%k: f32[T, %d, %d], %%v: f32[T, %d, %d], %%b: f32[T, %d]",
        d->groups, d->n, d->groups, d->n, d->heads, d->m, d->heads);
    if (d->decays)
        inputs = hd_printf(arena, "%s, %%a: f32[T, %d, %d]", inputs, d->heads, d->decays);
    return graph(hd_printf(arena, "state $s : carry %s[%d, %d, %d]\n", state, d->heads, d->n, d->m),
                 inputs,
                 hd_printf(arena,
                           "  %%y = delta_rule %%q, %%k, %%v, %s, %s, $s {scale = %g%s}\n"
                           "  output %%y {name = \"y\"}",
                           d->decays ? "%a" : "_", d->no_beta ? "_" : "%b", d->scale,
                           d->additive ? ", rule = \"additive\"" : ""));
}

/* One head, from the equation S' = (I - beta k k^T) D S + beta k v^T with matrices written out, in
 * long double; without k k^T where the rule is additive. */
static void plain_delta(const delta *d, int h, const double *q, const double *k, const double *v,
                        const double *a, const double *b, double *o) {
    long double s[8][8] = {{0}}, next[8][8];
    for (int t = 0; t < TOKENS; t++) {
        const int g = t * d->groups + h * d->groups / d->heads, at = t * d->heads + h;
        const double *kt = k + g * d->n, *at_decay = a + at * d->decays;
        for (int i = 0; i < d->n; i++)
            for (int j = 0; j < d->m; j++) {
                const long double beta = d->no_beta ? 1 : b[at];
                next[i][j] = beta * kt[i] * v[at * d->m + j];
                for (int l = 0; l < d->n; l++) {
                    const long double back = d->additive ? 0 : beta * kt[i] * kt[l];
                    const long double factor = (i == l) - back;
                    const double decay = d->decays == 0 ? 1 : at_decay[d->decays == 1 ? 0 : l];
                    next[i][j] += factor * decay * s[l][j];
                }
            }
        memcpy(s, next, sizeof s);
        for (int j = 0; j < d->m; j++) {
            long double sum = 0;
            for (int i = 0; i < d->n; i++)
                sum += s[i][j] * q[g * d->n + i];
            o[at * d->m + j] = (double)(d->scale * sum);
        }
    }
}

static double *sigmoids(int n, double speed) {
    double *x = waves(n, speed);
    for (int i = 0; i < n; i++)
        x[i] = 1 / (1 + exp(-2 * x[i]));
    return x;
}

Test(recurrence, delta_rule_is_its_formula_however_it_is_cut) {
    for (size_t c = 0; c < sizeof deltas / sizeof *deltas; c++) {
        const delta *d = &deltas[c];
        const int width[] = {d->groups * d->n, d->groups * d->n, d->heads * d->m, d->heads,
                             d->heads * d->decays};
        const double *q = waves(TOKENS * width[0], 0.9), *k = waves(TOKENS * width[1], 0.4);
        const double *v = waves(TOKENS * width[2], 1.1), *b = sigmoids(TOKENS * width[3], 0.6);
        const double *a = sigmoids(TOKENS * width[4] + 1, 2.3);
        double *want = hd_new_array(arena, double, (size_t)(TOKENS * width[2]));
        for (int h = 0; h < d->heads; h++)
            plain_delta(d, h, q, k, v, a, b, want);
        for (size_t i = 0; i < CUTS; i++) {
            hir_eval *e = hir_eval_new(arena, delta_module(d, "f32"), NULL, NULL);
            const double *y =
                run_cut(e, cuts[i], d->decays ? 5 : 4, INPUTS(q, k, v, b, a), width, width[2]);
            expect_near(y, want, TOKENS * width[2], 1e-12, "delta_rule");
            cr_assert(hir_eval_rewind(e, 0));
            cr_assert_not(hir_eval_rewind(e, 1));
        }
    }
}

/* A narrow carry is rounded behind every token, so that calls may be cut anywhere. */
Test(recurrence, a_narrow_carry_does_not_depend_on_the_cut) {
    const delta *d = &deltas[0];
    const int width[] = {d->groups * d->n, d->groups * d->n, d->heads * d->m, d->heads,
                         d->heads * d->decays};
    const double *q = waves(TOKENS * width[0], 0.9), *k = waves(TOKENS * width[1], 0.4);
    const double *v = waves(TOKENS * width[2], 1.1), *b = sigmoids(TOKENS * width[3], 0.6);
    const double *a = sigmoids(TOKENS * width[4], 2.3), *exact = NULL, *first = NULL;
    for (size_t i = 0; i < CUTS; i++) {
        hir_eval *e = hir_eval_new(arena, delta_module(d, "bf16"), NULL, NULL);
        const double *y = run_cut(e, cuts[i], 5, INPUTS(q, k, v, b, a), width, width[2]);
        if (!first) first = y;
        expect_near(y, first, TOKENS * width[2], 0, "cut");
    }
    exact = run_cut(hir_eval_new(arena, delta_module(d, "f32"), NULL, NULL), cuts[0], 5,
                    INPUTS(q, k, v, b, a), width, width[2]);
    expect_near(first, exact, TOKENS * width[2], 0.05, "rounded");
    cr_assert(memcmp(first, exact, sizeof(double) * (size_t)(TOKENS * width[2])) != 0);
}

/* ---- the error of a narrow carry ---- */
enum { LONG = 600, N = 8, M = 3 };

typedef struct long_input {
    double q[LONG * N], k[LONG * N], v[LONG * M], b[LONG], a[LONG * N];
} long_input;

static void of_length_one(double *x) {
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += x[i] * x[i];
    for (int i = 0; i < N; i++)
        x[i] /= sqrt(sum);
}

/* Keys and queries of length 1, beta in 0 .. 1, decays of at most `most`. */
static long_input *long_inputs(double most) {
    long_input *x = hd_new(arena, long_input);
    for (int t = 0; t < LONG; t++) {
        for (int i = 0; i < N; i++) {
            x->q[t * N + i] = wave(t * N + i, 0.9), x->k[t * N + i] = wave(t * N + i, 0.4);
            x->a[t * N + i] = most * (0.97 + 0.03 * sin(1.7 * (t * N + i)));
        }
        of_length_one(x->q + t * N), of_length_one(x->k + t * N);
        for (int j = 0; j < M; j++)
            x->v[t * M + j] = wave(t * M + j, 1.1);
        x->b[t] = 0.5 + 0.5 * sin(0.6 * t);
    }
    return x;
}

static const double *long_run(const long_input *x, const char *state) {
    static const delta d = {1, 1, N, M, N, 1, false, false};
    hir_eval *e = hir_eval_new(arena, delta_module(&d, state), NULL, NULL);
    return call(e, LONG, INPUTS(x->q, x->k, x->v, x->b, x->a)).outputs.at[0].at;
}

/* The longest that column j of the exact S is behind any token. */
static double longest_column(const long_input *x, int j) {
    double s[N] = {0}, longest = 0;
    for (int t = 0; t < LONG; t++) {
        double dot = 0, sum = 0;
        for (int i = 0; i < N; i++)
            dot += x->k[t * N + i] * (s[i] *= x->a[t * N + i]);
        for (int i = 0; i < N; i++) {
            s[i] += x->b[t] * x->k[t * N + i] * (x->v[t * M + j] - dot);
            sum += s[i] * s[i];
        }
        longest = fmax(longest, sqrt(sum));
    }
    return longest;
}

/* Rounding S to a type of p bits changes it by at most u = 2^-p of each element. What a rounding
 * has left is multiplied by (I - beta k k^T) diag(d) in each token, whose norm is at most the
 * largest d, so that a column is off by no more than u max|S_j| (1 + d + d^2 + ..), and o by |q|
 * times that:
 *
 *     |o_j - exact| <= scale |q| u max_t |S_j| / (1 - d)
 *
 * The bound is that of roundings which all go the same way; they do not, and what is seen is a
 * tenth of it. */
Test(recurrence, the_error_of_a_narrow_carry_is_bounded) {
    static const struct {
        const char *state;
        double u;
    } types[] = {{"bf16", 0x1p-8}, {"f16", 0x1p-11}};
    static const double decays[] = {0.5, 0.9, 0.99};
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < 3; k++) {
            const long_input *x = long_inputs(decays[k]);
            const double *exact = long_run(x, "f32"), *y = long_run(x, types[i].state);
            for (int j = 0; j < M; j++) {
                const double bound = types[i].u * longest_column(x, j) / (1 - decays[k]);
                for (int t = 0; t < LONG; t++)
                    cr_expect_leq(fabs(y[t * M + j] - exact[t * M + j]), bound,
                                  "%s, decays up to %g: token %d is off by %g of at most %g",
                                  types[i].state, decays[k], t,
                                  fabs(y[t * M + j] - exact[t * M + j]), bound);
            }
        }
}

/* A decay that takes less than half a step of the type off an element takes nothing off it: S is
 * rounded back to what it was. In bf16 nothing fades whose decay is within 2^-9 of one. */
Test(recurrence, a_narrow_carry_does_not_feel_decays_close_to_one) {
    static const struct {
        const char *state;
        double decay;
        bool fades;
    } cases[] = {
        {"bf16", 1 - 0x1p-10, false}, {"bf16", 1 - 0x1p-7, true}, {"f16", 1 - 0x1p-13, false},
        {"f16", 1 - 0x1p-10, true},   {"f32", 1 - 0x1p-10, true},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        long_input *x = long_inputs(1);
        for (int i = 0; i < LONG * N; i++)
            x->a[i] = cases[c].decay;
        for (int t = 0; t < LONG; t++)
            x->b[t] = t == 0; /* the first token writes, the others read */
        memcpy(x->k, (double[N]){1}, N * sizeof *x->k);
        for (int t = 0; t < LONG; t++)
            memcpy(x->q + t * N, (double[N]){1}, N * sizeof *x->q);
        for (int j = 0; j < M; j++)
            x->v[j] = 1;
        const double *y = long_run(x, cases[c].state);
        const double last = y[(LONG - 1) * M];
        if (cases[c].fades)
            cr_expect_lt(last, 0.8, "%s: %g", cases[c].state, last);
        else
            cr_expect_eq(last, cases[c].decay, "%s: %g", cases[c].state, last); /* of an S of 1 */
    }
}
