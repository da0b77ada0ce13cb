/* Gradients: of each op against differences of the loss, along directions in the space of weights;
 * and what the pass rejects.
 *
 * A case is a body that makes %y, [T, 8], of %x, [T, 8], rows of an embedding. Its head and the
 * loss make a number f of the weights w. For a direction u the gradient g has to give <g, u> =
 * f'(w + t u) at t = 0, which is (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / (12 h) but for terms of
 * h^4: with h = 5e-4 and 64 bits that leaves 1e-9. The directions are those of one
 * weight each, and one of all. */
#include "ir/eval/random.h"
#include "passes/pass.h"
#include "tests/unit/ir/support_eval.h"

TestSuite(gradient, .init = open_arena, .fini = close_arena);

enum { TOKENS = 11, VOCAB = 7 };
static const double tokens[TOKENS] = {0, 3, 6, 1, 1, 5, 2, 4, 0, 3, 2};
static const double targets[TOKENS] = {3, 6, -1, 1, 5, 2, 4, 0, 3, -7, 6};
#define STEP      5e-4
#define TOLERANCE 2e-9

/* Random weights, moved along a direction. */
typedef struct moved {
    uint32_t only; /* weight that is moved; HIR_NONE: all are */
    double by;
} moved;

static void direction(const hir_module *m, uint32_t w, double *out) {
    hir_random r = hir_random_stream(7, m->weights.at[w].name);
    const int64_t n = hir_type_row_elements(m->weights.at[w].type);
    for (int64_t i = 0; i < n; i++)
        out[i] = hir_random_normal(&r);
}

static bool moved_weights(void *context, const hir_module *m, uint32_t w, double *out,
                          hd_diags *d) {
    const moved *move = context;
    uint64_t seed = 5;
    const int64_t n = hir_type_row_elements(m->weights.at[w].type);
    double *u = hd_new_array(arena, double, (size_t)n);
    if (!hir_random_weights(&seed, m, w, out, d)) return false;
    direction(m, w, u);
    for (int64_t i = 0; i < n && (move->only == HIR_NONE || move->only == w); i++)
        out[i] += move->by * u[i];
    return true;
}

static double sum_of_losses(const hir_module *m, moved move) {
    hir_eval *e = hir_eval_new(arena, m, moved_weights, &move);
    const hir_results out = call(e, TOKENS, INPUTS(tokens, targets));
    double sum = 0;
    for (size_t i = 0; i < out.outputs.n; i++)
        for (int64_t t = 0; t < TOKENS && !strcmp(out.outputs.at[i].name, HIR_LOSSES); t++)
            sum += out.outputs.at[i].at[t];
    return sum;
}

static double slope(const hir_module *m, uint32_t only) {
    double f[4];
    for (int i = 0; i < 4; i++)
        f[i] = sum_of_losses(m, (moved){only, STEP * (double[]){1, -1, 2, -2}[i]});
    return (8 * (f[0] - f[1]) - (f[2] - f[3])) / (12 * STEP);
}

static bool differentiate(hir_module *m) {
    static const hir_pass_id passes[] = {HIR_PASS_DIFFERENTIATE, HIR_PASS_CSE, HIR_PASS_DCE};
    const hir_run run = {
        .passes = passes, .n_passes = 3, .stop_after = HIR_PASS_COUNT, .verify = true};
    const hir_compile_options options = {.matrix_dtype = HIR_F32, .chunk = 512};
    return hir_run_passes(m, &run, &options, NULL, &diags);
}

static const hir_array *output(const hir_results *out, const char *name) {
    for (size_t i = 0; i < out->outputs.n; i++)
        if (!strcmp(out->outputs.at[i].name, name)) return &out->outputs.at[i];
    return NULL;
}

/* <gradient of weight w, direction>; 0 where it has no path to the loss. */
static double along(const hir_module *m, const hir_results *out, uint32_t w) {
    const char *name = hd_printf(arena, HIR_GRADIENT "%s", m->weights.at[w].name);
    const hir_array *g = output(out, name);
    double sum = 0;
    if (!g) return 0;
    double *u = hd_new_array(arena, double, (size_t)g->n);
    direction(m, w, u);
    for (int64_t i = 0; i < g->n; i++)
        sum += g->at[i] * u[i];
    return sum;
}

typedef struct op_case {
    const char *tables, *body;
} op_case;

static hir_module *model_of(const op_case *c) {
    const char *tables =
        hd_printf(arena, "weight @embed : f32[%d, 8]\nweight @head : f32[%d, 8]\n%s", VOCAB, VOCAB,
                  c->tables);
    const char *body =
        hd_printf(arena,
                  "  %%x = gather @embed, %%tokens\n%s  %%logits = linear %%y, @head, _\n"
                  "  output %%logits {name = \"logits\"}",
                  c->body);
    hir_module *m = graph(tables, "%tokens: i32[T]", body);
    if (!hir_add_loss(m, &diags)) cr_assert_fail("%s", said());
    return m;
}

static void check(const op_case *c) {
    const hir_module *m = model_of(c);
    hir_module *g = hir_module_clone(m, arena);
    if (!differentiate(g)) cr_assert_fail("%s\n%s", said(), c->body);
    moved none = {HIR_NONE, 0};
    const hir_results out =
        call(hir_eval_new(arena, g, moved_weights, &none), TOKENS, INPUTS(tokens, targets));
    const double loss = sum_of_losses(m, none);
    cr_expect_float_eq(output(&out, HIR_LOSS)->at[0], loss, 1e-12 * loss, "%s", c->body);
    double all = 0;
    for (uint32_t w = 0; w < m->weights.n; w++) {
        const double got = along(g, &out, w), want = slope(m, w);
        all += got;
        cr_expect_float_eq(got, want, TOLERANCE * (1 + fabs(want)), "@%s: %.12g, not %.12g\n%s",
                           m->weights.at[w].name, got, want, c->body);
    }
    const double want = slope(m, HIR_NONE);
    cr_expect_float_eq(all, want, TOLERANCE * (1 + fabs(want)), "all: %.12g, not %.12g\n%s", all,
                       want, c->body);
}

#define CHECK(...)                                                                                 \
    do {                                                                                           \
        static const op_case cases[] = {__VA_ARGS__};                                              \
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)                                  \
            check(&cases[i]);                                                                      \
    } while (0)

#define UNARY(op)                                                                                  \
    { "", "  %y = " op " %x\n" }
#define W8 "weight @w : f32[8]\n"

Test(gradient, of_functions) {
    CHECK(UNARY("neg"), UNARY("abs"), UNARY("exp"), UNARY("tanh"), UNARY("sigmoid"), UNARY("silu"),
          UNARY("gelu"), UNARY("gelu_tanh"), UNARY("relu"), UNARY("softplus"), UNARY("erf"),
          {"", "  %s = mul %x, %x\n  %one = const {value = 1, shape = []}\n  %p = add %s, %one\n"
               "  %a = sqrt %p\n  %b = rsqrt %p\n  %c = recip %p\n  %d = log %p\n"
               "  %ab = add %a, %b\n  %cd = sub %c, %d\n  %y = mul %ab, %cd\n"});
}

Test(gradient, of_two_operands) {
    CHECK({W8, "  %y = add %x, @w\n"}, {W8, "  %y = sub @w, %x\n"}, {W8, "  %y = mul %x, @w\n"},
          {W8, "  %e = exp %x\n  %y = div @w, %e\n"}, {W8, "  %e = exp @w\n  %y = div %x, %e\n"},
          {W8, "  %y = max %x, @w\n"}, {W8, "  %y = min %x, @w\n"}, {W8, "  %y = min @w, %x\n"},
          {W8, "  %y = when %x, @w\n"}, {W8, "  %y = when @w, %x\n"}, {W8, "  %y = mul %x, %x\n"},
          {"weight @one : f32[1]\nweight @m : f32[2, 1]\n",
           "  %h = reshape %x {shape = [T, 2, 4]}\n  %a = mul %h, @m\n  %b = mul %a, @one\n"
           "  %y = reshape %b {shape = [T, 8]}\n"});
}

Test(gradient, over_an_axis) {
    CHECK({"", "  %h = reshape %x {shape = [T, 2, 4]}\n  %s = reduce_sum %h {axis = 1}\n"
               "  %m = reduce_mean %h {axis = 1}\n  %y = concat %s, %m {axis = 1}\n"},
          {"", "  %h = reshape %x {shape = [T, 2, 4]}\n  %s = reduce_max %h {axis = 1}\n"
               "  %m = logsumexp %h {axis = 1}\n  %y = concat %s, %m {axis = 1}\n"},
          {"", "  %y = softmax %x {axis = 1}\n"},
          {W8, "  %w = softmax @w {axis = 0}\n  %y = mul %x, %w\n"});
}

Test(gradient, of_norms) {
    CHECK({W8, "  %y = rmsnorm %x, @w {eps = 0.1}\n"}, {"", "  %y = rmsnorm %x, _ {eps = 1e-5}\n"},
          {W8 "weight @b : f32[8]\n", "  %y = layernorm %x, @w, @b {eps = 0.1}\n"},
          {"weight @b : f32[8]\n", "  %y = layernorm %x, _, @b {eps = 1e-5}\n"},
          {"weight @g : f32[4]\n", "  %h = reshape %x {shape = [T, 2, 4]}\n"
                                   "  %n = rmsnorm %h, @g {eps = 0.1}\n"
                                   "  %y = reshape %n {shape = [T, 8]}\n"});
}

Test(gradient, of_moves) {
    CHECK({"", "  %h = reshape %x {shape = [T, 2, 4]}\n  %t = transpose %h {perm = [0, 2, 1]}\n"
               "  %y = reshape %t {shape = [T, 8]}\n"},
          {"weight @v : f32[1, 8]\n", "  %b = broadcast @v {shape = [T, 8]}\n  %y = mul %x, %b\n"},
          {W8, "  %a = slice %x {axis = 1, start = 1, length = 3}\n"
               "  %b = slice @w {axis = 0, start = 2, length = 5}\n"
               "  %c = broadcast %b {shape = [T, 5]}\n  %y = concat %a, %c {axis = 1}\n"},
          {"", "  %a = slice %x {axis = 1, start = 0, length = 4}\n"
               "  %b = slice %x {axis = 1, start = 3, length = 4}\n"
               "  %s = stack %a, %b, %a {axis = 2}\n"
               "  %m = reduce_sum %s {axis = 2}\n  %e = exp %a\n  %y = concat %m, %e {axis = 1}\n"},
          {"", "  %p = reshape %x {shape = [T, 8, 1]}\n  %y = reshape %p {shape = [T, 8]}\n"});
}

Test(gradient, of_contractions) {
    CHECK({"weight @a : f32[5, 8]\nweight @b : f32[5]\nweight @c : f32[8, 5]\n",
           "  %h = linear %x, @a, @b\n  %y = linear %h, @c, _\n"},
          {"weight @a : f32[4, 4]\nweight @b : f32[2, 8]\n", /* matrices that are no weights */
           "  %h = reshape %x {shape = [T, 2, 4]}\n  %m = tanh @a\n  %l = linear %h, %m, _\n"
           "  %n = linear @b, @b, _\n  %k = reduce_sum %n {axis = 0}\n  %q = reshape %k {shape = "
           "[2, 1]}\n"
           "  %s = mul %l, %q\n  %y = reshape %s {shape = [T, 8]}\n"},
          {"weight @a : f32[2, 4, 4]\n", "  %h = reshape %x {shape = [T, 2, 4]}\n"
                                         "  %l = block_linear %h, @a\n"
                                         "  %y = reshape %l {shape = [T, 8]}\n"});
}

#define EXPERTS                                                                                    \
    "weight @r : f32[6, 8]\nweight @e : f32[6, 5, 8]\nweight @b : f32[6, 5]\nweight @d : f32[6, "  \
    "8, 5]\n"
#define ROUTED                                                                                     \
    "  %s = linear %x, @r, _\n  %p = softmax %s {axis = 1}\n  %i = topk %p {k = 2}\n  %w = pick "  \
    "%p, %i\n"

/* Choices are constant: the router learns through the weights of the chosen. */
Test(gradient, of_experts) {
    CHECK({EXPERTS,
           ROUTED "  %h = expert_linear %x, @e, %i, @b\n  %o = expert_linear %h, @d, %i, _\n"
                  "  %q = reshape %w {shape = [T, 2, 1]}\n  %m = mul %o, %q\n"
                  "  %y = reduce_sum %m {axis = 1}\n"},
          {EXPERTS, ROUTED "  %k = mark %i {length = 6}\n  %z = mul %k, %p\n"
                           "  %v = concat %z, %w {axis = 1}\n  %y = mul %x, %v\n"});
}

#define TABLE "  %t = rope_table {length = 4, theta = 100, attention_factor = 1.5}\n"
#define HEADS "  %q = reshape %x {shape = [T, 2, 4]}\n"

Test(gradient, of_rotations) {
    CHECK({"", HEADS TABLE "  %r = rope %q, %t\n  %y = reshape %r {shape = [T, 8]}\n"},
          {"", "  %q = reshape %x {shape = [T, 1, 8]}\n" TABLE
               "  %r = rope %q, %t {start = 2, pairs = \"adjacent\"}\n"
               "  %y = reshape %r {shape = [T, 8]}\n"});
}

#define CACHES "state $k : f32[C, 1, 4]\nstate $v : f32[C, 1, 4]\n"
#define APPEND                                                                                     \
    "  %ks = slice %q {axis = 1, start = 1, length = 1}\n  %e = tanh %ks\n"                        \
    "  %k = cache_append %ks, $k\n  %v = cache_append %e, $v\n"
#define FLAT "  %y = reshape %o {shape = [T, 8]}\n"

/* Two query heads that share a head of keys, of which one is its slice: keys have several users. */
Test(gradient, of_attention) {
    CHECK({CACHES, HEADS APPEND "  %o = attention %q, %k, %v, _, _ {scale = 0.7}\n" FLAT},
          {CACHES "weight @s : f32[2]\nweight @r : f32[10, 8]\n",
           HEADS APPEND "  %b = linear %x, @r, _\n  %bias = reshape %b {shape = [T, 2, 5]}\n"
                        "  %o = attention %q, %k, %v, @s, %bias {scale = 0.7, window = 4}\n" FLAT},
          {CACHES "weight @s : f32[2, 8]\n",
           HEADS APPEND "  %s = linear %x, @s, _\n"
                        "  %o = attention %q, %k, %v, %s, _ {scale = 0.7, softcap = 0.5}\n" FLAT},
          /* keys and values that are made of the rows of a cache */
          {"state $k : f32[C, 1, 4]\nweight @g : f32[4]\nweight @w : f32[4, 4]\n",
           HEADS "  %ks = slice %q {axis = 1, start = 0, length = 1}\n  %c = cache_append %ks, $k\n"
                 "  %k = rmsnorm %c, @g {eps = 0.1}\n  %v = linear %c, @w, _\n"
                 "  %o = attention %q, %k, %v, _, _ {scale = 0.7}\n" FLAT});
}

/* A key for each three positions, of which each token sees the two best. */
#define POOLED                                                                                     \
    "state $p : window f32[2, 8]\nstate $c : f32[C/3, 1, 4]\nweight @gate : f32[4, 8]\n"           \
    "weight @place : f32[3, 4]\n"
#define POOL                                                                                       \
    "  %e4 = slice %x {axis = 1, start = 0, length = 4}\n  %g = linear %x, @gate, _\n"             \
    "  %l = pool %e4, %g, @place, $p {length = 3}\n  %lh = reshape %l {shape = [T, 1, 4]}\n"       \
    "  %entries = cache_append %lh, $c\n"

Test(gradient, of_chosen_positions) {
    CHECK({CACHES POOLED "weight @s : f32[2]\n",
           HEADS APPEND POOL "  %i = select %q, %entries, _ {k = 2}\n"
                             "  %o = attention_selected %q, %k, %k, %i, @s, %entries {scale = 0.7, "
                             "window = 2}\n" FLAT},
          {CACHES POOLED, HEADS APPEND POOL
           "  %o = attention_selected %q, %k, %k, _, _, %entries {scale = 0.7, window = 2}\n" FLAT},
          {CACHES,
           HEADS APPEND "  %i = select %q, %k, _ {k = 3}\n"
                        "  %o = attention_selected %q, %k, %v, %i, _, _ {scale = 0.7, softcap "
                        "= 0.5}\n" FLAT},
          {"state $p : window f32[3, 32]\nweight @gate : f32[16, 8]\nweight @place : f32[2, 16]\n",
           "  %xx = concat %x, %x {axis = 1}\n  %g = linear %x, @gate, _\n"
           "  %l = pool %xx, %g, @place, $p {length = 2, halves = 1}\n  %y = add %l, %x\n"});
}

#define STATE "state $s : carry f32[2, 4, 4]\nweight @a : f32[8, 8]\nweight @b : f32[2, 8]\n"
#define GATES                                                                                      \
    "  %al = linear %x, @a, _\n  %as = sigmoid %al\n  %decay = reshape %as {shape = [T, 2, 4]}\n"  \
    "  %bl = linear %x, @b, _\n  %beta = sigmoid %bl\n  %k = tanh %q\n  %v = exp %q\n"

Test(gradient, of_recurrences) {
    CHECK(
        {STATE, HEADS GATES "  %o = delta_rule %q, %k, %v, %decay, %beta, $s {scale = 0.5}\n" FLAT},
        {STATE, HEADS GATES "  %o = delta_rule %q, %k, %v, _, _, $s {rule = \"additive\"}\n" FLAT},
        /* heads that share keys, and one decay for all rows */
        {STATE, HEADS GATES "  %q1 = slice %q {axis = 1, start = 0, length = 1}\n"
                            "  %k1 = slice %k {axis = 1, start = 1, length = 1}\n"
                            "  %d1 = slice %decay {axis = 2, start = 0, length = 1}\n"
                            "  %o = delta_rule %q1, %k1, %v, %d1, %beta, $s\n" FLAT},
        {"state $w : window f32[2, 8]\nweight @t : f32[8, 3]\nweight @b : f32[8]\n",
         "  %y = short_conv %x, @t, @b, $w\n"},
        {"state $w : window f32[4, 8]\nweight @t : f32[12, 8]\n",
         "  %l = linear %x, @t, _\n  %t = reshape %l {shape = [T, 4, 3]}\n"
         "  %y = short_conv %x, %t, _, $w {dilation = 2}\n"});
}

/* Rows that n-grams name: one several times, one by several tokens, some by none; a table in parts; of
 * which a token 0 ends the context, and of which it does not. */
Test(gradient, of_rows_that_hashes_name) {
    CHECK({"state $n : window f32[2, 1]\nweight @table : f32[14, 4]\n",
           "  %g = ngram_gather %tokens, @table, $n {multipliers = [3, 0, 5, 1, 4294967295, -1], "
           "sizes = [4, 5], offsets = [1, 6], eos = 0}\n"
           "  %r = reshape %g {shape = [T, 8]}\n  %e = exp %r\n  %y = mul %x, %e\n"},
          {"state $n : window f32[1, 1]\nweight @table : f32[3, 5, 2]\n",
           "  %g = ngram_gather %tokens, @table, $n {multipliers = [3, 0, 5, 0], sizes = [7, 3, 5, "
           "7], offsets = [0, 7, 10, 8], before = 2}\n"
           "  %r = reshape %g {shape = [T, 8]}\n  %y = add %x, %r\n"});
}

/* ---- what is no derivative ------------------------------------------------------------------- */

/* y = x + detach(x) is 2 x, but has the gradient of x. */
Test(gradient, stops_at_detach) {
    const op_case c = {"", "  %d = detach %x\n  %y = add %x, %d\n"};
    const hir_module *m = model_of(&c);
    hir_module *g = hir_module_clone(m, arena);
    cr_assert(differentiate(g), "%s", said());
    moved none = {HIR_NONE, 0};
    const hir_results out =
        call(hir_eval_new(arena, g, moved_weights, &none), TOKENS, INPUTS(tokens, targets));
    const uint32_t embed = hir_find_weight(m, "embed");
    const double got = along(g, &out, embed), whole = slope(m, embed);
    cr_assert_float_eq(2 * got, whole, TOLERANCE * (1 + fabs(whole)), "%g, half of %g", got, whole);
}

static hir_results results_of(const op_case *c) {
    hir_module *g = model_of(c);
    moved none = {HIR_NONE, 0};
    cr_assert(differentiate(g), "%s", said());
    return call(hir_eval_new(arena, g, moved_weights, &none), TOKENS, INPUTS(tokens, targets));
}

/* y = round(x) has the gradients of x + detach(round(x) - x): rounding is a constant beside x. */
Test(gradient, goes_straight_through_codes) {
    static const char *const codes[] = {"round_e4m3", "round_e2m1"};
    for (int i = 0; i < 2; i++) {
        const char *begin = hd_printf(arena, "  %%r = %s %%x\n", codes[i]);
        const op_case straight = {W8, hd_printf(arena, "%s  %%y = mul %%r, @w\n", begin)};
        const op_case apart = {W8, hd_printf(arena,
                                             "%s  %%e = sub %%r, %%x\n  %%d = detach %%e\n"
                                             "  %%s = add %%x, %%d\n  %%y = mul %%s, @w\n",
                                             begin)};
        const hir_results a = results_of(&straight), b = results_of(&apart);
        cr_assert_eq(a.outputs.n, b.outputs.n);
        for (size_t k = 0; k < a.outputs.n; k++)
            for (int64_t j = 0; j < a.outputs.at[k].n; j++)
                cr_assert_float_eq(a.outputs.at[k].at[j], b.outputs.at[k].at[j], 1e-12, "%s",
                                   a.outputs.at[k].name);
    }
}

Test(gradient, is_zero_without_targets) {
    const op_case c = {W8, "  %y = mul %x, @w\n"};
    hir_module *g = model_of(&c);
    double none[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        none[i] = -1;
    cr_assert(differentiate(g), "%s", said());
    moved still = {HIR_NONE, 0};
    const hir_results out =
        call(hir_eval_new(arena, g, moved_weights, &still), TOKENS, INPUTS(tokens, none));
    cr_assert_eq(out.outputs.n, 4, "the loss and three weights");
    for (size_t i = 0; i < out.outputs.n; i++)
        for (int64_t k = 0; k < out.outputs.at[i].n; k++)
            cr_assert_eq(out.outputs.at[i].at[k], 0, "%s", out.outputs.at[i].name);
}

/* A weight without a path to the loss gets no output; one that is used twice gets one. */
Test(gradient, has_an_output_for_each_weight_with_a_path) {
    const op_case c = {W8 "weight @idle : f32[8]\nweight @choice : f32[3, 8]\n",
                       "  %s = linear %x, @choice, _\n  %i = topk %s {k = 1}\n"
                       "  %k = mark %i {length = 3}\n  %m = reduce_sum %k {axis = 1}\n"
                       "  %r = reshape %m {shape = [T, 1]}\n  %t = mul %x, @w\n  %u = mul %t, @w\n"
                       "  %y = mul %u, %r\n"};
    hir_module *g = model_of(&c);
    cr_assert(differentiate(g), "%s", said());
    moved none = {HIR_NONE, 0};
    const hir_results out =
        call(hir_eval_new(arena, g, moved_weights, &none), TOKENS, INPUTS(tokens, targets));
    cr_expect_eq(out.outputs.n, 4);
    cr_expect(output(&out, "grad.w") && output(&out, "grad.embed") && output(&out, "grad.head"));
    cr_expect(!output(&out, "grad.idle") && !output(&out, "grad.choice"));
}

/* One call says nothing of the tokens before it. */
Test(gradient, is_of_whole_sequences) {
    const op_case c = {CACHES,
                       HEADS APPEND "  %o = attention %q, %k, %v, _, _ {scale = 0.7}\n" FLAT};
    hir_module *g = model_of(&c);
    cr_assert(differentiate(g), "%s", said());
    moved none = {HIR_NONE, 0};
    hir_eval *e = hir_eval_new(arena, g, moved_weights, &none);
    hir_results out;
    (void)call(e, TOKENS, INPUTS(tokens, targets));
    cr_assert_not(hir_eval_call(e, arena, &diags, 2, INPUTS(tokens, targets), &out, NULL, NULL));
    cr_assert(strstr(said(), "gradients are of whole sequences"), "%s", said());
}

/* ---- what has none --------------------------------------------------------------------------- */

static void rejects(hir_module *m, const char *message) {
    cr_assert_not(differentiate(m), "%s", message);
    cr_assert(strstr(said(), message), "%s\nnot \"%s\"", said(), message);
}

Test(gradient, is_none_of_a_model_without_a_loss) {
    rejects(graph("", "%tokens: i32[T]",
                  "  %y = const {value = 1, shape = [T, 2]}\n  output %y {name = \"y\"}"),
            "it has no loss");
}

Test(gradient, is_none_through_rounding) {
    rejects(
        model_of(&(op_case){"state $k : bf16[C, 1, 8]\n",
                            "  %q = reshape %x {shape = [T, 1, 8]}\n  %k = cache_append %q, $k\n"
                            "  %o = attention %q, %k, %k, _, _ {scale = 1}\n" FLAT}),
        "state $k is stored as bf16: rounding has no gradient");
    rejects(model_of(&(op_case){"state $s : carry bf16[1, 8, 8]\n",
                                "  %q = reshape %x {shape = [T, 1, 8]}\n"
                                "  %o = delta_rule %q, %q, %q, _, _, $s\n" FLAT}),
            "state $s is stored as bf16");
}

/* A row of rules.def that says why there is none. */
Test(gradient, is_none_where_there_is_no_rule) {
    rejects(model_of(&(op_case){"", "  %y = power_above %x\n"}), "power_above has no gradient");
}
