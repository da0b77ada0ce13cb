/* What crosses between machines, counted in the IR: exchanges to the byte, and pipelines of
 * Attention Residuals against the closed forms of the paper (Eq. 7 and 8). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "frontend/frontend.h"
#include "passes/analysis/crossing.h"
#include "tests/unit/arena_fixture.h"

TestSuite(crossing, .init = open_arena, .fini = close_arena, .timeout = 300);

static const hir_module *with_collective(const char *op, const char *type, hir_crossings *all) {
    const char *text = hd_printf(arena,
                                 "hir 1 depth @m\n\nranks 3, rows divided from 4 tokens\n\n"
                                 "func(%%x: f32[T, 10]) {\n  %%p = comm.part %%x : f32[T/3, 10]\n"
                                 "  %%y = %s : %s\n  output %%x {name = \"x\"}\n}\n",
                                 op, type);
    hir_module *m = hir_parse(arena, &diags, "t.hir", text);
    cr_assert(m, "%s", said());
    hir_find_crossings(m, arena, all);
    cr_assert_eq(all->list.n, 1);
    return m;
}

static uint64_t sent(const char *op, const char *type, int64_t rank, int64_t tokens) {
    hir_crossings all;
    const hir_module *m = with_collective(op, type, &all);
    return hir_bytes_sent(m, &all, rank, tokens, tokens);
}

static uint64_t received(const char *op, const char *type, int64_t rank, int64_t tokens) {
    hir_crossings all;
    const hir_module *m = with_collective(op, type, &all);
    return hir_crossing_received(m, &all.list.at[0], rank, tokens, tokens);
}

/* 7 tokens on 3 ranks are 2, 2 and 3 rows. */
Test(crossing, collectives_to_the_byte) {
    const int64_t rows[] = {2, 2, 3};
    for (int64_t r = 0; r < 3; r++) {
        const uint64_t mine = (uint64_t)rows[r];
        cr_expect_eq(sent("comm.reduce_scatter %x", "f32[T/3, 10]", r, 7), (7 - mine) * 10 * 4);
        cr_expect_eq(sent("comm.reduce_scatter %x {dtype = \"bf16\"}", "f32[T/3, 10]", r, 7),
                     (7 - mine) * 10 * 2);
        cr_expect_eq(sent("comm.all_gather %p", "f32[T, 10]", r, 7), 2 * mine * 10 * 4);
        cr_expect_eq(sent("comm.all_reduce %x", "f32[T, 10]", r, 7), 2 * 7 * 10 * 4);
        cr_expect_eq(sent("comm.send %p {to = 1}", "f32[T/3, 10]", r, 7), mine * 10 * 4);
        cr_expect_eq(sent("comm.send %x {to = 1}", "f32[T, 10]", r, 7), 7 * 10 * 4);
        cr_expect_eq(sent("comm.all_gather %x {axis = 1, length = 28, groups = 14, units = 1}",
                          "f32[T, 28]", r, 7),
                     2 * 7 * 10 * 4);
    }
}

Test(crossing, what_comes_from_another_stage) {
    const char *part = "comm.recv {from = 0, shape = [T/3, 10]}";
    cr_expect_eq(sent(part, "f32[T/3, 10]", 1, 7), 0, "nothing leaves");
    cr_expect_eq(received(part, "f32[T/3, 10]", 2, 7), 3 * 10 * 4);
    cr_expect_eq(received("comm.recv {from = 0, shape = [T, 10]}", "f32[T, 10]", 2, 7), 7 * 10 * 4);
    cr_expect_eq(received("comm.send %p {to = 1}", "f32[T/3, 10]", 2, 7), 0);
}

/* Fewer tokens than rows are divided from: sums are all-reduced, and rows are everywhere. */
Test(crossing, few_tokens) {
    cr_expect_eq(sent("comm.reduce_scatter %x", "f32[T/3, 10]", 1, 3), 2 * 3 * 10 * 4);
    cr_expect_eq(sent("comm.all_gather %p", "f32[T, 10]", 1, 3), 0);
    cr_expect_eq(sent("comm.send %p {to = 1}", "f32[T/3, 10]", 1, 3), 3 * 10 * 4);
}

/* Many elements are summed in two steps: of 10000 a rank sums 3333 or 3334, and sends each sum to
 * two others. */
Test(crossing, many_elements_are_summed_in_two_steps) {
    cr_expect_eq(sent("comm.all_reduce %x", "f32[T, 10]", 0, 1000),
                 (10000 - 3333) * 4 + 2 * 3333 * 4);
    cr_expect_eq(sent("comm.all_reduce %x", "f32[T, 10]", 2, 1000),
                 (10000 - 3334) * 4 + 2 * 3334 * 4);
}

/* ---- pipelines ------------------------------------------------------------------------------- */
enum { WIDTH = 8 };

/* Blocks of `block` layers, of which each run finishes as many as another: layers are alike,
 * wide enough that what mixes read counts for little, and the second output wants all rows of the
 * last ones, too. */
static hir_module *attention_residuals(int64_t layers, int64_t block) {
    const hfe_options options = {.std_dir = TEST_DATA "/../frontend/std"};
    const char *text =
        hd_printf(arena,
                  "use \"layers\"\nuse \"residual/attnres\"\n"
                  "model m(layers = %lld, hidden = %d, vocab = 16) {\n"
                  "  r = attnres_block(embed(\"e\", vocab, hidden), block_layers: %lld)\n"
                  "  for l in 0..layers { at \"l.{l}\" {\n"
                  "    r.write(swiglu(rmsnorm(r.read(\"a\"), \"n\"), 65536))\n"
                  "    r.write(swiglu(rmsnorm(r.read(\"b\"), \"o\"), 65536)) } }\n"
                  "  x = rmsnorm(r.result(\"c\"), \"p\")\n"
                  "  output logits = linear(x, \"h\", vocab)\n"
                  "  output rows = x\n}\n",
                  (long long)layers, WIDTH, (long long)block);
    hir_module *m = hfe_load_spec_text(arena, &diags, "m.hadal", text, &options);
    cr_assert(m, "%s", said());
    return m;
}

/* Of all stages; *whole is what would cross if none kept what it was sent, by the remark. */
static uint64_t elements_sent(const hir_module *graph, int64_t stages, int64_t parts,
                              long long *whole) {
    uint64_t sum = 0;
    hir_remarks remarks = {.arena = arena};
    for (int64_t i = 0; i < stages; i++) {
        hir_module *m = hir_module_clone(graph, arena);
        const hir_compile_options o = {
            .stages = stages, .virtual_stages = parts, .stage = i, .chunk = 512};
        const hir_run run = {
            .passes = hir_pipeline(), .n_passes = 8, .stop_after = HIR_PASS_SHARD_PIPELINE};
        cr_assert(hir_run_passes(m, &run, &o, &remarks, &diags), "%s", said());
        hir_crossings all;
        hir_find_crossings(m, arena, &all);
        sum += hir_bytes_sent(m, &all, 0, 1, 1) / sizeof(float);
    }
    int found = 0;
    for (size_t i = 0; i < remarks.list.n && found == 0; i++) {
        const char *of = strstr(remarks.list.at[i].text, "stages; ");
        found = of && sscanf(of, "stages; %lld would", whole) == 1;
    }
    cr_assert_eq(found, 1);
    return sum;
}

/* Each run finishes n blocks of WIDTH elements. The embedding is a source beside them, which the
 * paper's forms leave out: it crosses to every stage but the first one, or at every cut. Without
 * keeping, Eq. 7 holds. With it, Eq. 8 counts S blocks for each cut behind the first S - 1, and one
 * of them is of the run that the stage has done itself: it is not sent back. */
Test(crossing, blocks_cross_as_in_the_paper) {
    static const int64_t cases[][4] = {
        {4, 2, 1, 1}, {2, 2, 1, 1}, {2, 3, 2, 1}, {3, 2, 1, 1}, {2, 4, 1, 1},
        {4, 1, 2, 1}, {4, 4, 1, 1}, {8, 2, 1, 1}, {4, 2, 1, 8}, /* L = 128, N = 8, P = 4, V = 2 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t s = cases[i][0], v = cases[i][1], n = cases[i][2], runs = s * v;
        const int64_t kept = s * (s - 1) / 2 + (v - 1) * s * (s - 1);
        long long whole = 0;
        cr_expect_eq(
            elements_sent(attention_residuals(runs * n * cases[i][3], cases[i][3]), s, v, &whole),
            (uint64_t)((n * kept + s - 1) * WIDTH), "%lld stages of %lld runs of %lld blocks",
            (long long)s, (long long)v, (long long)n);
        cr_expect_eq(whole, (n * runs * (runs - 1) / 2 + runs - 1) * WIDTH, "%lld", whole);
        cr_expect_leq(kept, s * (s - 1) / 2 + (v - 1) * s * s);
    }
}
