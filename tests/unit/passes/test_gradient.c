/* Gradients: of each op against differences of the loss, along directions in the space of weights;
 * and what the pass rejects.
 *
 * A case is a body that makes %y, [T, 8], of %x, [T, 8], rows of an embedding. Its head and the
 * loss make a number f of the weights w. For a direction u the gradient g has to give <g, u> =
 * f'(w + t u) at t = 0, which is (672 d(1) - 168 d(2) + 32 d(3) - 3 d(4)) / (840 h), d(k) being
 * f(k h) - f(-k h), but for terms of h^8: with h = 2.5e-4 and 64 bits that leaves 1e-10. The directions
 * are those of one weight each, and one of all. */
#include "ir/eval/random.h"
#include "passes/pass.h"
#include "tests/unit/ir/support_eval.h"

TestSuite(gradient, .init = open_arena, .fini = close_arena);

enum { TOKENS = 11, VOCAB = 7 };
static const double tokens[TOKENS] = {0, 3, 6, 1, 1, 5, 2, 4, 0, 3, 2};
static const double targets[TOKENS] = {3, 6, -1, 1, 5, 2, 4, 0, 3, -7, 6};
#define TOLERANCE 1e-10
static const double step = 2.5e-4;

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
    static const double factors[] = {672, -168, 32, -3};
    double sum = 0;
    for (int k = 1; k <= 4; k++)
        sum += factors[k - 1] * (sum_of_losses(m, (moved){only, k * step}) -
                                 sum_of_losses(m, (moved){only, -k * step}));
    return sum / (840 * step);
}

static bool run_passes(hir_module *m, const hir_pass_id *passes, size_t n) {
    const hir_run run = {
        .passes = passes, .n_passes = n, .stop_after = HIR_PASS_COUNT, .verify = true};
    const hir_compile_options options = {.matrix_dtype = HIR_F32, .chunk = 512};
    return hir_run_passes(m, &run, &options, NULL, &diags);
}

static bool differentiate(hir_module *m) {
    static const hir_pass_id passes[] = {HIR_PASS_DIFFERENTIATE, HIR_PASS_CSE, HIR_PASS_DCE};
    return run_passes(m, passes, 3);
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
    hir_module *m = parse(
        hd_printf(arena, "hir 1 depth @t\n\n%s\nfunc(%%tokens: i32[T]) {\n%s\n}\n", tables, body));
    if (!hir_add_loss(m, &diags)) cr_assert_fail("%s", said());
    return m;
}

static hir_module *gradients_of(const hir_module *m, const op_case *c) {
    hir_module *g = hir_module_clone(m, arena);
    if (!differentiate(g)) cr_assert_fail("%s\n%s", said(), c->body);
    return g;
}

/* Are the outputs of g the loss of the case and its gradients? */
static void check_against(const hir_module *m, const hir_module *g, const op_case *c) {
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

static void check(const op_case *c) {
    const hir_module *m = model_of(c);
    check_against(m, gradients_of(m, c), c);
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
          {W8, "  %y = max %x, @w\n"}, {"", "  %y = max %x, %x\n"}, {W8, "  %y = min %x, @w\n"},
          {W8, "  %y = min @w, %x\n"}, {W8, "  %y = when %x, @w\n"}, {W8, "  %y = when @w, %x\n"},
          {W8, "  %y = mul %x, %x\n"},
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
          {"", "  %h = reshape %x {shape = [T, 1, 8]}\n" /* each is the largest, twice */
               "  %s = concat %h, %h {axis = 1}\n  %y = reduce_max %s {axis = 1}\n"},
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
          {"", "  %a = slice %x {axis = 1, start = 0, length = 4}\n"
               "  %b = slice %x {axis = 1, start = 4, length = 4}\n"
               "  %c = concat %b, %a {axis = 1}\n  %y = mul %c, %x\n"},
          {"weight @o : f32[3, 8]\n", /* ids from 3 on have row 1 */
           "  %o = gather @o, %tokens {beyond = 1}\n  %y = mul %x, %o\n"},
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

/* ---- attention over depth -------------------------------------------------------------------- */

#define SOURCES W8 "weight @o : f32[8, 12]\nweight @o4 : f32[8, 4]\n"
#define MADE                                                                                       \
    "  %a = mul %x, @w\n  %b = tanh %a\n  %ra = depth.inverse_rms %a {eps = 0.1}\n"                \
    "  %rb = depth.inverse_rms %b {eps = 0.01}\n  %r = concat %ra, %rb {axis = 1}\n"

Test(gradient, of_scores_over_depth) {
    CHECK({W8, "  %a = mul %x, @w\n  %r = depth.inverse_rms %a {eps = 0.1}\n"
               "  %y = mul %x, %r\n"},
          {SOURCES "weight @q : f32[3, 8]\nweight @bias : f32[2, 3]\n",
           MADE "  %s = depth.scores @q, @bias, %r, %a, %b {heads = 2, scale = 0.7}\n"
                "  %t = reshape %s {shape = [T, 12]}\n  %y = linear %t, @o, _\n"},
          {SOURCES "weight @q : f32[2, 8]\nweight @bias : f32[2, 2]\n",
           MADE "  %s = depth.scores @q, @bias, %r, %a, %b\n"
                "  %t = reshape %s {shape = [T, 4]}\n  %y = linear %t, @o4, _\n"},
          {SOURCES "weight @q : f32[1, 8]\n",
           MADE "  %s = depth.scores @q, _, _, %a, %b {heads = 2}\n"
                "  %t = reshape %s {shape = [T, 4]}\n  %y = linear %t, @o4, _\n"},
          {SOURCES "weight @q : f32[8, 8]\nweight @bias : f32[2, 1]\n",
           MADE "  %q = linear %x, @q, _\n  %s = depth.scores %q, @bias, %r, %a, %b {heads = 2}\n"
                "  %t = reshape %s {shape = [T, 4]}\n  %y = linear %t, @o4, _\n"});
}

#define TWO_SCORES "  %ab = concat %a, %b {axis = 1}\n  %s = linear %ab, @s, _\n"

Test(gradient, of_mixes_over_depth) {
    CHECK({SOURCES "weight @s : f32[2, 16]\n", MADE TWO_SCORES "  %y = depth.mix %s, %a, %b\n"},
          {SOURCES "weight @s : f32[4, 16]\n",
           MADE TWO_SCORES "  %t = reshape %s {shape = [T, 2, 2]}\n"
                           "  %y = depth.mix %t, %a, %b {heads = 2}\n"},
          {SOURCES "weight @s : f32[3]\n", MADE "  %y = depth.mix @s, %a, %b, %a\n"},
          {SOURCES "weight @s : f32[4, 16]\n",
           MADE TWO_SCORES "  %l = slice %s {axis = 1, start = 0, length = 2}\n"
                           "  %t = slice %s {axis = 1, start = 2, length = 2}\n"
                           "  %y = depth.merge %a, %l, %b, %t {heads = 2}\n"},
          {SOURCES "weight @l : f32[1]\nweight @t : f32[1]\n",
           MADE "  %y = depth.merge %a, @l, %b, @t\n"});
}

/* Parts of one table weigh the same sources: all of its mixes go back together. Or they do not: a
 * part that weighs others, or is used twice; a part that no mix uses, or one whose mix has no
 * gradient, has none. */
#define TABLE_OF(n)                                                                                \
    "  %ab = concat %a, %b {axis = 1}\n  %s = linear %ab, @s, _\n"                                 \
    "  %k = reshape %s {shape = [T, 2, " n "]}\n"
#define PART(k, form)                                                                              \
    "  %p" k " = slice %k {axis = 2, start = " k ", length = 1}\n"                                 \
    "  %w" k " = reshape %p" k " {shape = [T, 2" form "]}\n"

Test(gradient, of_mixes_of_one_table) {
    CHECK(
        {SOURCES "weight @s : f32[4, 16]\n",
         MADE TABLE_OF("2") PART("0", "") "  %m = depth.mix %w0, %a, %b\n" PART(
             "1", "") "  %n = depth.mix %w1, %a, %b\n  %e = exp %m\n  %y = mul %e, %n\n"},
        {SOURCES "weight @s : f32[12, 16]\n",
         MADE TABLE_OF("3, 2") PART("2", ", 2") "  %m = depth.mix %w2, %a, %b {heads = 2}\n" PART(
             "0", ", 2") "  %n = depth.mix %w0, %a, %b {heads = 2}\n"
                         "  %e = exp %m\n  %y = mul %e, %n\n"},
        {SOURCES "weight @s : f32[6, 16]\n",
         MADE TABLE_OF("3") PART("0", "") PART("1", "") PART(
             "2", "") "  %m = depth.mix %w0, %a, %b\n  %n = depth.mix %w1, %a, %x\n"
                      "  %o = depth.mix %w1, %a, %b\n  %u = depth.mix %w2, %a, %b\n  %d = sign %u\n"
                      "  %e = exp %m\n  %f = mul %e, %n\n  %h = mul %f, %d\n  %y = add %h, %o\n"},
        {SOURCES "weight @s : f32[6, 16]\n",
         MADE TABLE_OF("3") PART("0", "") PART("1", "")
             PART("2", "") "  %u = depth.mix %w2, %a, %b\n  %m = depth.mix %w0, %a, %b\n"
                           "  %n = depth.mix %w1, %a, %b\n  %d = sign %u\n"
                           "  %e = exp %m\n  %f = mul %e, %n\n  %y = mul %f, %d\n"},
        {SOURCES "weight @s : f32[2, 2]\n",
         MADE "  %p0 = slice @s {axis = 0, start = 0, length = 1}\n"
              "  %z = softmax @s {axis = 1}\n  %p1 = slice %z {axis = 0, start = 1, length = 1}\n"
              "  %p2 = slice %z {axis = 0, start = 0, length = 1}\n"
              "  %w0 = reshape %p0 {shape = [2]}\n  %w1 = reshape %p1 {shape = [2]}\n"
              "  %w2 = reshape %p2 {shape = [2]}\n  %m = depth.mix %w0, %a, %b\n"
              "  %n = depth.mix %w1, %a, %b\n  %o = depth.mix %w2, %a, %b\n"
              "  %e = exp %m\n  %f = mul %e, %n\n  %y = mul %f, %o\n"});
}

/* A block of three sublayers over two finished sources and their own running sum, in every form of a
 * mix: depth.attend goes through its passes, the gradients are those of depth.attend as it is
 * written. */
#define SUBLAYER(h, f)                                                                             \
    "  %n" f " = rmsnorm %" h ", @g {eps = 0.001}\n  %t" f " = linear %n" f ", @m, _\n  %" f       \
    " = tanh %t" f "\n"
#define BLOCK_OF(how, q0, b0, q1, b1, q2, b2)                                                      \
    "  %a = mul %x, @w\n  %h0 = depth.attend " q0 ", " b0 ", _, _, _, %x, %a {block = 0, shared "  \
    "= 2, " how "}\n" SUBLAYER(                                                                    \
        "h0", "s0") "  %h1 = depth.attend " q1 ", " b1                                             \
                    ", _, _, _, %x, %a, %s0 {block = 0, shared = 2, " how "}\n" SUBLAYER(          \
                        "h1", "f1") "  %s1 = add %s0, %f1\n  %h2 = depth.attend " q2 ", " b2       \
                                    ", _, _, _, %x, %a, %s1, %s0 {block = 0, shared = 2, " how     \
                                    "}\n" SUBLAYER("h2", "f2") "  %y = add %s1, %f2\n"
#define BLOCK_WEIGHTS                                                                              \
    W8 "weight @g : f32[8]\nweight @m : f32[8, 8]\nweight @q0 : f32[8]\nweight @q1 : f32[8]\n"     \
       "weight @q2 : f32[8]\nweight @b0 : f32[2]\nweight @b1 : f32[3]\nweight @b2 : f32[4]\n"
#define BLOCK(how)  BLOCK_OF(how, "@q0", "_", "@q1", "_", "@q2", "_")
#define BIASED(how) BLOCK_OF(how, "@q0", "@b0", "@q1", "@b1", "@q2", "@b2")

static void check_in_phases(const op_case *c) {
    static const hir_pass_id passes[] = {HIR_PASS_BATCH_QUERIES, HIR_PASS_SPLIT_MERGE, HIR_PASS_CSE,
                                         HIR_PASS_DCE};
    const hir_module *m = model_of(c);
    hir_module *two = hir_module_clone(m, arena);
    if (!run_passes(two, passes, 4)) cr_assert_fail("%s\n%s", said(), c->body);
    check_against(m, gradients_of(two, c), c);
}

Test(gradient, of_a_block_in_two_phases) {
    static const op_case cases[] = {
        {BLOCK_WEIGHTS, BLOCK("normalization = \"softmax\", eps = 0.01")},
        {BLOCK_WEIGHTS, BLOCK("normalization = \"softmax\"")},
        {BLOCK_WEIGHTS, BIASED("normalization = \"softmax\", eps = 0.01, scale = 0.6")},
        {BLOCK_WEIGHTS, BIASED("normalization = \"softmax\", eps = 0.01, heads = 2")},
        {BLOCK_WEIGHTS, BIASED("normalization = \"sigmoid\", eps = 0.01, heads = 4")},
        {BLOCK_WEIGHTS, BLOCK("normalization = \"sigmoid\"")},
        {BLOCK_WEIGHTS, BLOCK("normalization = \"none\", eps = 0.01, scale = 2")},
        {BLOCK_WEIGHTS, BLOCK_OF("normalization = \"none\"", "_", "@b0", "_", "@b1", "_", "@b2")},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_in_phases(&cases[i]);
}

/* A query that depends on the token, and a mix without a block. */
Test(gradient, of_mixes_alone) {
    static const op_case cases[] = {
        {BLOCK_WEIGHTS,
         "  %a = mul %x, @w\n  %b = tanh %a\n  %q = linear %b, @m, _\n"
         "  %y = depth.attend %q, @b1, _, _, _, %x, %a, %b {normalization = \"softmax\", eps = "
         "0.01, heads = 2, scale = 0.5}\n"},
        {BLOCK_WEIGHTS, "  %a = mul %x, @w\n  %b = tanh %a\n  %h = depth.attend @q0, @b1, _, _, _, "
                        "%x, %a, %b {normalization = \"softmax\", eps = 0.01}\n"
                        "  %y = depth.attend @q1, _, _, _, _, %x, %h {normalization = "
                        "\"sigmoid\", eps = 0.01}\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_in_phases(&cases[i]);
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

/* Differences of the loss take it for the constant that it is; where there is none, they say so. */
Test(gradient, is_held_against_differences) {
    const op_case constant = {"", "  %d = detach %x\n  %y = add %x, %d\n"};
    const op_case none = {"", "  %y = add %x, %x\n"};
    const hir_module *m = model_of(&constant), *other = model_of(&none);
    const hir_module *g = gradients_of(m, &constant);
    cr_expect(hir_right_gradients(m, g, 1e-6, 3, arena, &diags), "%s", said());
    cr_expect_not(hir_right_gradients(other, g, 1e-6, 3, arena, &diags));
    cr_expect(strstr(said(), "differences of the loss say"), "%s", said());
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
