/* Sparse attention in the IR: type rules of select, attention_selected, pool, caches with a row for
 * several positions and tables of positions apart from the token's, and their meaning in the
 * evaluator against numbers made another way, for every way to cut a prompt into calls. */
#include "tests/unit/ir/state_ops.h"

TestSuite(select, .init = open_arena, .fini = close_arena);

/* ---- type rules ------------------------------------------------------------------------------ */
static const char preamble[] =
    "hir 1 graph @rules\n"
    "weight @place : f32[4, 6]\nweight @sink : f32[4]\n"
    "state $k : f32[C, 2, 3]\nstate $one : f32[C, 1, 3]\nstate $e : f32[C/4, 2, 3]\n"
    "state $eh : bf16[C/4, 2, 3]\n"
    "state $run : window f32[3, 12]\nstate $pair : window f32[7, 12]\n"
    "state $half : window bf16[3, 12]\nstate $cw : carry f32[3, 12]\n"
    "func(%ids: i32[T], %q: f32[T, 4, 3], %kv: f32[T, 2, 3], %w: f32[T, 4], %x: f32[T, 6], "
    "%l: i32[T, 2, 5], %l1: i32[T, 1, 5], %l3: i32[T, 3, 5], %q5: f32[T, 4, 5], %still: f32[4, 4, "
    "3]) {\n"
    "  %c = cache_append %kv, $k\n  %r = cache_append %kv, $e\n"
    "  %rh = cache_append %kv, $eh\n";

static const rule_case accepted[] = {
    {"select %q, %c, _ {k = 5}", "i32[T, 2, 5]"},
    {"select %q, %c, %w {k = 1048576, activation = \"relu\", window = 9}", "i32[T, 2, 1048576]"},
    {"select %q, %r, _ {k = 5}", "i32[T, 2, 5]"},
    {"select %q, %r, %w {k = 5, of = \"positions\"}", "i32[T, 2, 23]"},
    {"select %q, %c, _ {k = 7, of = \"blocks\", block = 4}", "i32[T, 2, 7]"},
    {"select %q, %r, %w {k = 7, of = \"blocks\", block = 1}", "i32[T, 2, 7]"},
    {"select %q, %c, _, %l {k = 9, block = 4}", "i32[T, 2, 9]"},
    {"select %q, %r, %w, %l1 {k = 9, of = \"positions\", block = 4}", "i32[T, 2, 39]"},
    {"attention_selected %q, %c, %c, %l {scale = 1}", "f32[T, 4, 3]"},
    {"attention_selected %q, %c, %c, %l1, @sink {scale = 1, softcap = 3}", "f32[T, 4, 3]"},
    {"attention_selected %q, %c, %c, _, %w, %r {scale = 1, window = 3}", "f32[T, 4, 3]"},
    {"attention_selected %q, %c, %c, %l, _, %r {scale = 1}", "f32[T, 4, 3]"},
    {"pool %x, %x, _, $run {length = 4}", "f32[T, 6]"},
    {"pool %x, %x, @place, $half {length = 4}", "f32[T, 6]"},
    {"pool %x, %x, @place, $pair {length = 4, halves = 1}", "f32[T, 3]"},
    {"rope_table {length = 4, theta = 2, offset = -3}", "f32[T, 4]"},
    {"neg %r", "f32[C/4, 2, 3]"},
    {"reshape %r {shape = [C/4, 6]}", "f32[C/4, 6]"},
};

static const rule_case rejected[] = {
    {"select %q, %kv, _ {k = 5}", "keys must be [C, G, n] or [C/r, G, n], not f32[T, 2, 3]"},
    {"select %q, $k, _ {k = 5}", "operand keys must be a value (%), not a state"},
    {"select %q5, %c, _ {k = 5}", "the head sizes differ"},
    {"select %still, %c, _ {k = 5}", "operand q must be [T, H, n], not f32[4, 4, 3]"},
    {"select %q, %c, @sink {k = 5}", "operand weights must be [T, 4], not f32[4]"},
    {"select %q, %c, _ {k = 0}", "'k' is 0; it must be from 1 to 1048576"},
    {"select %q, %c, _ {k = 1048577}", "'k' is 1048577; it must be from 1 to 1048576"},
    {"select %q, %r, _ {k = 262144, of = \"positions\"}", "must be from 1 to 262143"},
    {"select %q, %c, _ {k = 5, of = \"positions\"}", "rows of f32[C, 2, 3] are positions"},
    {"select %q, %r, _ {k = 5, of = \"some\"}", "it is one of \"rows\", \"positions\", \"blocks\""},
    {"select %q, %r, _ {k = 5, of = \"blocks\"}", "'block' is 0; it must be from 1"},
    {"select %q, %r, _ {k = 5, of = \"blocks\", block = -3}", "'block' is -3; it must be from 1"},
    {"select %q, %r, _ {k = 5, block = 3}", "'block' means nothing here"},
    {"select %q, %r, _, %l {k = 5}", "'block' is 0; it must be from 1"},
    {"select %q, %r, _, %l {k = 5, of = \"blocks\", block = 3}", "blocks are chosen from all rows"},
    {"select %q, %c, _, %l {k = 5, block = 3, window = 9}",
     "'window' and blocks do not go together"},
    {"select %q, %c, _ {k = 5, of = \"blocks\", block = 3, window = 9}", "do not go together"},
    {"select %q, %c, _, %l3 {k = 5, block = 3}",
     "operand blocks must be i32[T, 2, B] or i32[T, 1, B]"},
    {"select %q, %c, _, %q {k = 5, block = 3}", "operand blocks must be i32[T, 2, B]"},
    {"select %q, %c, _ {k = 5, activation = \"silu\"}", "it is one of \"none\", \"relu\""},
    {"select %q, %r, _ {k = 5, window = 3}", "'window' means nothing here"},
    {"select %q, %c, _ {k = 5, window = 0}", "'window' is 0; it must be from 1"},
    {"attention_selected %q, %c, %c {scale = 1}", "one of select and entries must be there"},
    {"attention_selected %q, %c, %c, %l3 {scale = 1}",
     "select must be i32[T, 2, K] or i32[T, 1, K], not i32[T, 3, 5]"},
    {"attention_selected %q, %c, %c, %q {scale = 1}", "select must be i32[T, 2, K]"},
    {"attention_selected %q, %r, %c, %l {scale = 1}", "operand k must be [C, G, n], not f32[C/4"},
    {"attention_selected %q, %c, %c, %l {scale = 1, window = 2}", "'window' means nothing here"},
    {"attention_selected %q, %c, %c, %l, %x {scale = 1}", "sink must be [H] or [T, 4]"},
    {"attention_selected %q, %c, %c, %l, _, %kv {scale = 1}", "operand entries must be [C, G, n]"},
    {"attention_selected %q, %c, %c, %l, _, %rh {scale = 1}", "the same heads, sizes and types"},
    {"pool %x, %x, _, $run {length = 1}", "'length' is 1; it must be from 2 to 1048576"},
    {"pool %x, %x, _, $run {length = 3}", "must be a window f32[2, 12], not a window f32[3, 12]"},
    {"pool %x, %x, _, $run {length = 4, halves = 1}", "must be a window f32[7, 12]"},
    {"pool %x, %x, _, $run {length = 4, halves = 2}", "'halves' is 2; it must be 0 or 1"},
    {"pool %x, %x, @sink, $run {length = 4}", "operand place must be [4, 6], not f32[4]"},
    {"pool %x, %w, _, $run {length = 4}", "operand gate must be f32[T, 6] like x"},
    {"pool %x, %x, _, $cw {length = 4}", "must be a window f32[3, 12], not a carry"},
    {"pool %q, %x, _, $run {length = 4}", "operand x must be [T, c], not f32[T, 4, 3]"},
    {"cache_append %q, $e", "so the state must be f32[C/4, 4, 3], not f32[C/4, 2, 3]"},
    {"add %c, %r", "do not broadcast"},
    {"rope_table {length = 4, theta = 2, offset = 2147483648}", "'offset' is 2147483648"},
};

Test(select, accepted_types) {
    expect_accepted(preamble, accepted, sizeof accepted / sizeof *accepted);
}

Test(select, rejected_types) {
    expect_rejected(preamble, rejected, sizeof rejected / sizeof *rejected);
}

Test(select, rates_in_the_text) {
    static const rule_case bad[] = {
        {"state $s : f32[C/1, 8]", "a row cannot stand for 1 positions"},
        {"state $s : f32[C/0, 8]", "a row cannot stand for 0 positions"},
        {"state $s : f32[C/2000000, 8]", "they are 2 to 1048576"},
        {"state $s : f32[C/, 8]", "expected the number of positions of a row"},
        {"state $s : window f32[C/4, 8]", "only a cache has C"},
        {"state $s : f32[4, C/2]", "C can only be the first dim"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        hd_diags_init(&diags, arena);
        cr_assert_null(hir_parse(arena, &diags, "t.hir",
                                 hd_printf(arena,
                                           "hir 1 graph @m\n%s\nfunc(%%x: f32[T]) {\n  "
                                           "output %%x {name = \"x\"}\n}\n",
                                           bad[i].op)));
        cr_expect(strstr(said(), bad[i].expected), "%s\n%s", bad[i].op, said());
    }
}

/* ---- numbers --------------------------------------------------------------------------------- */
/* All rows of the first output of all cuts are `want`. */
static void expect_cuts(const char *tables, const char *inputs, const char *body, size_t n,
                        const double *const *x, const int *width, int out, const double *want) {
    for (int k = 0; k < CUTS; k++) {
        hir_eval *e = hir_eval_new(arena, graph(tables, inputs, body), NULL, NULL);
        const int *cut = cuts[k];
        for (int at = 0; at < TOKENS; at += *cut++) {
            const double *now[4];
            for (size_t i = 0; i < n; i++)
                now[i] = x[i] + at * width[i];
            const hir_results y = call(e, *cut, now);
            expect_near(y.outputs.at[0].at, want + at * out, (size_t)(*cut * out), 1e-13,
                        hd_printf(arena, "cut %d, token %d", k, at));
        }
    }
}

/* Blocks of three rows by their best ones, with a tie; the block of the newest row in any case. Then the
 * best rows of these blocks alone. */
Test(select, blocks_of_rows) {
    static const double rows[TOKENS] = {3, 1, 4, -1, 4, NAN, 2, 2, 2, 9, 0};
    static const double blocks[TOKENS][2] = {{0, -1}, {0, -1}, {0, -1}, {0, 1}, {0, 1}, {0, 1},
                                             {0, 2},  {0, 2},  {0, 2},  {0, 3}, {0, 3}};
    static const double chosen[TOKENS][3] = {{0, -1, -1}, {0, 1, -1}, {0, 1, 2}, {0, 1, 2},
                                             {0, 2, 4},   {0, 2, 4},  {0, 2, 6}, {0, 2, 6},
                                             {0, 2, 6},   {0, 2, 9},  {0, 2, 9}};
    double ones[TOKENS], marks[TOKENS * 4] = {0}, rows_marked[TOKENS * 12] = {0};
    for (int t = 0; t < TOKENS; t++) {
        ones[t] = 1;
        for (int i = 0; i < 2; i++)
            if (blocks[t][i] >= 0) marks[4 * t + (int)blocks[t][i]] = 1;
        for (int i = 0; i < 3; i++)
            if (chosen[t][i] >= 0) rows_marked[12 * t + (int)chosen[t][i]] = 1;
    }
    const char *state = "state $k : f32[C, 1, 1]\n", *in = "%q: f32[T, 1, 1], %x: f32[T, 1, 1]";
    const double *x[] = {ones, rows};
    const int width[] = {1, 1};
    const char *body = "  %c = cache_append %x, $k\n"
                       "  %b = select %q, %c, _ {k = 2, of = \"blocks\", block = 3}\n";
    expect_cuts(
        state, in,
        hd_printf(arena, "%s  %%m = mark %%b {length = 4}\n  output %%m {name = \"y\"}", body), 2,
        x, width, 4, marks);
    expect_cuts(state, in,
                hd_printf(arena,
                          "%s  %%r = select %%q, %%c, _, %%b {k = 3, block = 3}\n"
                          "  %%m = mark %%r {length = 12}\n  output %%m {name = \"y\"}",
                          body),
                2, x, width, 12, rows_marked);
}

/* Six rows of one number, which is their score; ties, and one that is no number. */
Test(select, the_best_rows_in_rising_order) {
    static const double rows[TOKENS] = {3, 1, 3, -0.0, 0, NAN, 3, 2, 5, 3, 3};
    static const double want[TOKENS][3] = {
        {0, -1, -1}, {0, 1, -1}, {0, 1, 2}, {0, 1, 2}, {0, 1, 2}, {0, 1, 2},
        {0, 2, 6},   {0, 2, 6},  {0, 2, 8}, {0, 2, 8}, {0, 2, 8},
    };
    double ones[TOKENS], list[TOKENS * 3];
    for (int i = 0; i < TOKENS; i++)
        ones[i] = 1;
    for (int i = 0; i < TOKENS * 3; i++)
        list[i] = want[i / 3][i % 3];
    const char *tables = "state $k : f32[C, 1, 1]\n";
    const char *body = "  %c = cache_append %x, $k\n  %s = select %q, %c, _ {k = 3}\n"
                       "  %m = mark %s {length = 12}\n  output %m {name = \"y\"}";
    double marks[TOKENS * 12] = {0};
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < 3; i++)
            if (list[3 * t + i] >= 0) marks[12 * t + (int)list[3 * t + i]] = 1;
    const double *x[] = {rows, ones};
    expect_cuts(tables, "%x: f32[T, 1, 1], %q: f32[T, 1, 1]", body, 2, x, (int[]){1, 1}, 12, marks);
}

/* Blocks of three with a score of their own, of which the best is taken, and the tail; two heads
 * with weights, the negative products of which count as nothing. */
Test(select, positions_of_blocks_and_the_tail) {
    static const double of_block[3] = {1, -2, 4}; /* key of blocks 0, 1, 2 */
    double rows[TOKENS], q[2 * TOKENS], w[2 * TOKENS], marks[TOKENS * 12] = {0};
    for (int t = 0; t < TOKENS; t++) {
        rows[t] = t % 3 == 2 ? of_block[t / 3] : 1000 + t; /* others are not kept */
        q[2 * t] = 1, q[2 * t + 1] = -1, w[2 * t] = 1, w[2 * t + 1] = 0.75;
    }
    for (int t = 0; t < TOKENS; t++) { /* scores 1, 1.5, 4 */
        const int blocks = (t + 1) / 3, best = blocks == 1 ? 0 : blocks == 2 ? 1 : 2;
        for (int i = 0; blocks && i < 3; i++)
            marks[12 * t + 3 * best + i] = 1;
        for (int s = 3 * blocks; s <= t; s++)
            marks[12 * t + s] = 1;
    }
    const double *x[] = {rows, q, w};
    expect_cuts("state $k : f32[C/3, 1, 1]\n", "%x: f32[T, 1, 1], %q: f32[T, 2, 1], %w: f32[T, 2]",
                "  %c = cache_append %x, $k\n"
                "  %s = select %q, %c, %w {k = 1, activation = \"relu\", of = \"positions\"}\n"
                "  %m = mark %s {length = 12}\n  output %m {name = \"y\"}",
                3, x, (int[]){1, 2, 2}, 12, marks);
}

/* A list of all positions is attention; and entries beside a window of one, attention over what
 * they hold, written with a cache of as many rows. */
Test(select, a_list_of_everything_is_attention) {
    const double *x = waves(TOKENS * 6, 0.7), *q = waves(TOKENS * 12, 1.9), *in[] = {x, q};
    const char *inputs = "%x: f32[T, 2, 3], %q: f32[T, 4, 3]",
               *tables = "state $k : f32[C, 2, 3]\n";
    const hir_module *m = graph(tables, inputs,
                                "  %c = cache_append %x, $k\n"
                                "  %y = attention %q, %c, %c {scale = 0.7, softcap = 2}\n"
                                "  output %y {name = \"y\"}");
    const double *want = run_one(m, TOKENS, in).at;
    expect_cuts(tables, inputs,
                "  %c = cache_append %x, $k\n  %s = select %q, %c, _ {k = 40}\n"
                "  %y = attention_selected %q, %c, %c, %s {scale = 0.7, softcap = 2}\n"
                "  output %y {name = \"y\"}",
                2, in, (int[]){6, 12}, 12, want);
}

/* Entries by hand: a token sees itself and every second token before it. */
static void attend_to_entries(const double *x, const double *q, int t, double *y) {
    double sum = 0;
    for (int i = 0; i < 2; i++)
        y[i] = 0;
    for (int s = 0; s <= t; s++) {
        const bool entry = s % 2 == 1;
        for (int times = 0; times < (s == t) + entry; times++) {
            const double e = exp(0.5 * (q[2 * t] * x[2 * s] + q[2 * t + 1] * x[2 * s + 1]));
            sum += e;
            y[0] += e * x[2 * s], y[1] += e * x[2 * s + 1];
        }
    }
    y[0] /= sum, y[1] /= sum;
}

Test(select, entries_beside_a_window) {
    const double *x = waves(TOKENS * 2, 0.7), *q = waves(TOKENS * 2, 1.9), *in[] = {x, q};
    double want[TOKENS * 2];
    for (int t = 0; t < TOKENS; t++)
        attend_to_entries(x, q, t, want + 2 * t);
    expect_cuts("state $k : f32[C, 1, 2]\nstate $e : f32[C/2, 1, 2]\n",
                "%x: f32[T, 1, 2], %q: f32[T, 1, 2]",
                "  %c = cache_append %x, $k\n  %e = cache_append %x, $e\n"
                "  %y = attention_selected %q, %c, %c, _, _, %e {scale = 0.5, window = 1}\n"
                "  output %y {name = \"y\"}",
                2, in, (int[]){2, 2}, 2, want);
}

/* y of a block from the sums of e^gate and e^gate x over all its tokens; the gates are small. */
static void expect_pool(bool halves) {
    enum { LENGTH = 3, WIDE = 4 };
    const int n = halves ? WIDE / 2 : WIDE;
    const double *x = waves(TOKENS * WIDE, 0.7), *g = waves(TOKENS * WIDE, 1.9), *in[] = {x, g};
    double want[TOKENS * WIDE] = {0};
    for (int t = LENGTH - 1; t < TOKENS; t += LENGTH)
        for (int i = 0; i < n; i++) {
            double sum = 0, y = 0;
            for (int s = halves ? t - 2 * LENGTH + 1 : t - LENGTH + 1; s <= t; s++) {
                const int at = s * WIDE + i + (halves && s > t - LENGTH ? n : 0);
                if (s < 0) continue;
                sum += exp(g[at]), y += exp(g[at]) * x[at];
            }
            want[t * n + i] = y / sum;
        }
    expect_cuts(halves ? "state $s : window f32[5, 8]\n" : "state $s : window f32[2, 8]\n",
                "%x: f32[T, 4], %g: f32[T, 4]",
                hd_printf(arena,
                          "  %%y = pool %%x, %%g, _, $s {length = 3%s}\n"
                          "  output %%y {name = \"y\"}",
                          halves ? ", halves = 1" : ""),
                2, in, (int[]){WIDE, WIDE}, n, want);
}

Test(select, pool_is_its_formula_however_it_is_cut) {
    expect_pool(false);
    expect_pool(true);
}

/* Going back to an earlier length takes rows of later positions away, whole blocks alone count. */
Test(select, a_cache_of_blocks_rewinds) {
    hir_eval *e = hir_eval_new(arena,
                               graph("state $k : f32[C/3, 1, 1]\n", "%x: f32[T, 1, 1]",
                                     "  %c = cache_append %x, $k\n"
                                     "  %s = select %x, %c, _ {k = 2, of = \"positions\"}\n"
                                     "  %m = mark %s {length = 9}\n  output %m {name = \"y\"}"),
                               NULL, NULL);
    static const double first[] = {1, 1, 2, 1, 1, 9}, second[] = {1, 1};
    static const double marks[] = {1, 1, 1, 1, 1, 0, 0, 0, 0};
    call(e, 6, INPUTS(first));
    cr_assert(hir_eval_rewind(e, 4));
    expect_near(call(e, 1, INPUTS(second)).outputs.at[0].at, marks, 9, 0, "behind rewinding");
}

/* The table of position p - 3 is that of the token three before. */
Test(select, a_table_apart_from_the_position) {
    double none[TOKENS] = {0};
    const double *in[] = {none};
    const hir_array all =
        run_one(graph("", "%x: f32[T]",
                      "  %y = rope_table {length = 6, theta = 50}\n  output %y {name = \"y\"}"),
                TOKENS, in);
    const hir_array apart = run_one(
        graph(
            "", "%x: f32[T]",
            "  %y = rope_table {length = 6, theta = 50, offset = -3}\n  output %y {name = \"y\"}"),
        TOKENS, in);
    expect_near(apart.at + 3 * 6, all.at, (TOKENS - 3) * 6, 1e-15, "three positions apart");
    cr_assert_float_eq(apart.at[3], sin(-3), 1e-15);
}
