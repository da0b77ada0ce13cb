/* How many functions a program has (codegen/program/share.c): not a matter of how deep it is. That
 * shared functions compute what they should, test_row_family.c and tests/residuals (group "deep")
 * show. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "api/session.h"
#include "codegen/program/program.h"
#include "hadal/hadal.h"
#include "tests/tools/full.h"

#define SPEC TEST_DATA "/../bench/specs/residuals.hadal"

TestSuite(share, .timeout = 120);

typedef struct counts {
    size_t rows, contractions, sequences;
    size_t epilogues; /* outlined epilogues of contractions */
} counts;

/* Of a model with attention and SwiGLU under one of the library's residual systems, with blocks of
 * so many sublayers where it has blocks. */
static counts count_in_blocks(const char *system, int layers, int block) {
    char text[16], size[16];
    snprintf(text, sizeof text, "%d", layers);
    snprintf(size, sizeof size, "%d", block);
    hadal_session *s = hadal_open();
    const hadal_pipeline pipeline = {.struct_size = sizeof pipeline};
    cr_assert(s && hadal_include_path(s, HADAL_SOURCE "/frontend/std") == 0);
    cr_assert(hadal_define(s, "system", system) == 0 && hadal_define(s, "work", "model") == 0);
    cr_assert(hadal_define(s, "block", size) == 0);
    cr_assert(hadal_define(s, "layers", text) == 0 && hadal_load(s, SPEC, "m") == 0);
    cr_assert_eq(hadal_run_passes(s, &pipeline), 0, "%s", system);
    const hcg_program *p = hcg_lower(s->arena, &s->diags, s->m, NULL);
    cr_assert_not_null(p, "%s", system);
    counts n = {0};
    for (size_t i = 0; i < p->kernels.n; i++) {
        n.rows += p->kernels.at[i].kind == HIR_KERNEL_ROW;
        n.contractions += p->kernels.at[i].kind == HIR_KERNEL_CONTRACT;
        n.sequences += p->kernels.at[i].kind == HIR_KERNEL_SEQUENCE;
        n.epilogues += p->kernels.at[i].holds_epilogue;
    }
    hadal_close(s);
    return n;
}

static counts count_functions(const char *system, int layers) {
    return count_in_blocks(system, layers, 8);
}

static size_t all_functions(const counts *n) {
    return n->rows + n->contractions + n->sequences;
}

/* What a layer does is the same in each of them, but for how many sources it mixes. */
Test(share, most_systems_have_the_same_functions_at_any_depth) {
    static const char *const systems[] = {"standard",
                                          "rezero",
                                          "layerscale",
                                          "highway",
                                          "deepnorm",
                                          "keel",
                                          "siamesenorm",
                                          "elmo",
                                          "denseformer",
                                          "laurel-lr",
                                          "hyper-static",
                                          "hyper-dynamic",
                                          "mhc",
                                          "mhc-lite",
                                          "ddl",
                                          "ddl-4",
                                          "attnres-window",
                                          "value-residual",
                                          "depth-attention"};
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++) {
        const counts a = count_functions(systems[i], 24), b = count_functions(systems[i], 48),
                     c = has_turn(i, 4) ? count_functions(systems[i], 96) : b;
        cr_expect_eq(a.rows, b.rows, "%s: %zu and %zu row programs", systems[i], a.rows, b.rows);
        cr_expect_eq(b.rows, c.rows, "%s: %zu and %zu row programs", systems[i], b.rows, c.rows);
        cr_expect_eq(all_functions(&a), all_functions(&b), "%s", systems[i]);
        cr_expect_eq(all_functions(&b), all_functions(&c), "%s", systems[i]);
    }
}

/* Row programs, of as many sources each as there are layers before: one for all of them. */
Test(share, numbers_of_sources_make_no_functions) {
    static const char *const systems[] = {"denseformer", "muddformer", "depth-attention"};
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++) {
        const counts a = count_functions(systems[i], 24), b = count_functions(systems[i], 48),
                     c = count_functions(systems[i], 96);
        cr_expect_eq(a.rows, b.rows, "%s: %zu and %zu row programs", systems[i], a.rows, b.rows);
        cr_expect_eq(b.rows, c.rows, "%s: %zu and %zu row programs", systems[i], b.rows, c.rows);
    }
}

/* Whatever mix over depth stands in front of a contraction: behind it is the same. */
Test(share, what_follows_sums_is_the_same_at_any_depth) {
    static const char *const systems[] = {"standard", "attnres", "attnres-static", "attnres-full"};
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++) {
        const counts a = count_functions(systems[i], 12), b = count_functions(systems[i], 48);
        cr_expect_eq(a.epilogues, b.epilogues, "%s: %zu and %zu", systems[i], a.epilogues,
                     b.epilogues);
        cr_expect_lt(a.epilogues, a.contractions, "%s", systems[i]);
    }
}

/* MUDDFormer has a matrix of another N and K in every sublayer. Those of few outputs may lie in
 * narrow panels, whose number is known when code is made: a deeper model has more of these until it
 * has all of them, and no more functions from then on. */
Test(share, sizes_of_matrices_make_no_functions) {
    const size_t deepest = count_functions("muddformer", 96).contractions;
    size_t before = 0;
    for (int layers = 8; layers <= 48; layers += layers < 32 ? 4 : 16) {
        const size_t n = count_functions("muddformer", layers).contractions;
        cr_expect_leq(before, n, "%d layers: %zu", layers, n);
        before = n;
    }
    cr_expect_eq(before, deepest, "48 layers: %zu, 96: %zu", before, deepest);
}

/* Row programs of a model four times as deep: at most one more for LAYERS_PER_FUNCTION layers more.
 * A model whose layers had functions of their own would have several for each. */
static void expect_hardly_more(const char *system, int block) {
    enum { LAYERS_PER_FUNCTION = 8, LAYERS = 24, DEEP = 96 };
    const size_t few = count_in_blocks(system, LAYERS, block).rows,
                 many = count_in_blocks(system, DEEP, block).rows;
    cr_expect_leq(many, few + (DEEP - LAYERS) / LAYERS_PER_FUNCTION,
                  "%s, blocks of %d: %zu row programs of %d layers, %zu of %d", system, block, few,
                  LAYERS, many, DEEP);
}

/* A block more has a source more: a phase 1 and a merge with another number of logits, or fewer.
 * All phases 1 of one number of queries share; there are two such numbers (form_blocks.c). */
Test(share, blocks_of_one_size_share_their_members) {
    static const char *const systems[] = {"attnres", "attnres-sigmoid", "attnres-heads"};
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++) {
        expect_hardly_more(systems[i], 8);
        const counts b = count_functions(systems[i], 48), c = count_functions(systems[i], 96);
        cr_expect_eq(c.contractions, b.contractions, "%s: %zu and %zu", systems[i], b.contractions,
                     c.contractions);
    }
}

/* Small blocks are joined to larger ones late in a deep model, whose members have finished blocks
 * among their own sources: merges of a few one by one, and one for more, before a norm that is
 * stored and before others. */
Test(share, blocks_of_other_sizes_have_hardly_more_functions_in_deeper_models) {
    static const int blocks[] = {2, 4, 7, 16};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        expect_hardly_more("attnres", blocks[i]);
}

/* What static logits decide is made when weights are packed: a merge in front of a contraction
 * reads one number, of however many sources. Mixes go over their sources in a loop: few forms have
 * functions of their own, more share one. */
Test(share, static_logits_make_no_functions) {
    enum { LAYERS_OF_A_BLOCK = 4 };
    const counts deepest = count_functions("attnres-static", 96);
    const int more = (full_set() ? 2 : 4) * LAYERS_OF_A_BLOCK;
    for (int layers = 4 * LAYERS_OF_A_BLOCK; layers <= 96; layers += more)
        cr_expect_eq(count_functions("attnres-static", layers).contractions, deepest.contractions,
                     "%d layers", layers);
    expect_hardly_more("attnres-static", 8);
}

/* Full Attention Residuals cut their sublayers into groups of two sizes, whatever the depth, and
 * the members of a group share with those of the next. */
Test(share, groups_of_two_sizes_have_two_phases_1) {
    const counts a = count_functions("attnres-full", 24), b = count_functions("attnres-full", 48),
                 c = count_functions("attnres-full", 96);
    expect_hardly_more("attnres-full", 8);
    cr_expect_eq(a.contractions, b.contractions);
    cr_expect_eq(b.contractions, c.contractions);
}
