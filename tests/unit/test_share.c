/* How many functions a program has (codegen/share.c): not a matter of how deep it is. That shared
 * functions compute what they should, tests/residuals shows (group "deep"). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "api/session.h"
#include "codegen/program.h"
#include "hadal/hadal.h"

#define SPEC TEST_DATA "/../bench/specs/residuals.hadal"

TestSuite(share, .timeout = 120);

typedef struct counts {
    size_t rows, contractions, sequences;
    size_t finishes; /* functions for what follows the sums of contractions */
} counts;

/* Of a model with attention and SwiGLU under one of the library's residual systems. */
static counts count_functions(const char *system, int layers) {
    char text[16];
    snprintf(text, sizeof text, "%d", layers);
    hadal_session *s = hadal_open();
    const hadal_pipeline pipeline = {.struct_size = sizeof pipeline};
    cr_assert(s && hadal_include_path(s, HADAL_SOURCE "/frontend/std") == 0);
    cr_assert(hadal_define(s, "system", system) == 0 && hadal_define(s, "work", "model") == 0);
    cr_assert(hadal_define(s, "layers", text) == 0 && hadal_load(s, SPEC, "m") == 0);
    cr_assert_eq(hadal_run_passes(s, &pipeline), 0, "%s", system);
    const hcg_program *p = hcg_lower(s->arena, &s->diags, s->m, NULL);
    cr_assert_not_null(p, "%s", system);
    counts n = {0};
    for (size_t i = 0; i < p->kernels.n; i++) {
        n.rows += p->kernels.at[i].kind == HCG_ROW;
        n.contractions += p->kernels.at[i].kind == HCG_CONTRACT;
        n.sequences += p->kernels.at[i].kind == HCG_SEQUENCE;
        n.finishes += p->kernels.at[i].makes_y;
    }
    hadal_close(s);
    return n;
}

/* What a layer does is the same in each of them. */
Test(share, most_systems_have_the_same_functions_at_any_depth) {
    static const char *const systems[] = {
        "standard",      "rezero", "highway",  "siamesenorm", "elmo",           "laurel-lr",
        "hyper-dynamic", "mhc",    "mhc-lite", "ddl",         "value-residual", "attnres-window"};
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++) {
        const counts a = count_functions(systems[i], 12), b = count_functions(systems[i], 48);
        cr_expect_eq(a.rows, b.rows, "%s: %zu and %zu row programs", systems[i], a.rows, b.rows);
        cr_expect_eq(a.contractions, b.contractions, "%s", systems[i]);
        cr_expect_eq(a.sequences, b.sequences, "%s", systems[i]);
    }
}

/* Whatever mix over depth stands in front of a contraction: behind it is the same. */
Test(share, what_follows_sums_is_the_same_at_any_depth) {
    static const char *const systems[] = {"standard", "attnres", "attnres-static", "attnres-full"};
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++) {
        const counts a = count_functions(systems[i], 12), b = count_functions(systems[i], 48);
        cr_expect_eq(a.finishes, b.finishes, "%s: %zu and %zu", systems[i], a.finishes, b.finishes);
        cr_expect_lt(a.finishes, a.contractions, "%s", systems[i]);
    }
}

/* MUDDFormer has a matrix of another N and K in every sublayer. */
Test(share, sizes_of_matrices_make_no_functions) {
    const counts a = count_functions("muddformer", 24), b = count_functions("muddformer", 48);
    cr_expect_leq(b.contractions, a.contractions, "%zu and %zu", a.contractions, b.contractions);
}

/* A block more has a source more: a phase 1 and a merge with another number of logits, or fewer. */
Test(share, blocks_of_one_size_share_their_members) {
    enum { LAYERS_OF_A_BLOCK = 4, PER_BLOCK = 2 };
    static const char *const systems[] = {"attnres", "attnres-static", "attnres-sigmoid",
                                          "attnres-heads"};
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++) {
        const counts a = count_functions(systems[i], 24), b = count_functions(systems[i], 48);
        const size_t blocks = 24 / LAYERS_OF_A_BLOCK;
        cr_expect_leq(b.rows, a.rows + PER_BLOCK * blocks, "%s: %zu and %zu", systems[i], a.rows,
                      b.rows);
        /* those whose x is the merge before them: one for a token and one for many */
        cr_expect_leq(b.contractions, a.contractions + 2 * PER_BLOCK * blocks, "%s: %zu and %zu",
                      systems[i], a.contractions, b.contractions);
    }
}
