/* Sharded modules against the module of one machine: all golden cases, and models of the residual
 * systems, through the evaluator, which runs the ranks side by side. Prompts are cut in three calls
 * (5, 1 and 3 tokens), so that rows are divided raggedly, not at all, and behind an odd length.
 *
 * Sums over ranks are added in another order than those of one machine: a result differs by some
 * roundings of a double, 1e-16 each, amplified by the depth of the model. 1e-11 relative to the
 * largest element leaves room for that; a head, row or bias too many or too few shows at 1e-3. Dory
 * has gains that are squares of weights over the size of new ones, 0.02: of random weights these are
 * some hundreds, and roundings are amplified by as much in each layer. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/eval/eval.h"
#include "passes/pass.h"
#include "tests/tools/full.h"
#include "tests/unit/stored_models.h"

#define TOLERANCE                                                                                  \
    1e-10 /* sums in another order; layers that run several times amplify it, seen 2e-11 */

TestSuite(shard, .init = open_arena, .fini = close_arena, .timeout = 600);

typedef struct case_name {
    char text[64];
} case_name;

static int by_name(const void *a, const void *b) {
    return strcmp(((const case_name *)a)->text, ((const case_name *)b)->text);
}

/* The folders of tests/golden, or of tests/published, that hold a case, by name. */
static size_t cases_in(const char *where, case_name *names, size_t most) {
    DIR *d = opendir(hd_printf(arena, "%s/%s", TEST_DATA, where));
    size_t n = 0;
    cr_assert(d);
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.' && !strchr(e->d_name, '.') && n < most)
            snprintf(names[n++].text, sizeof names->text, "%.63s", e->d_name);
    closedir(d);
    cr_assert_gt(n, 30);
    qsort(names, n, sizeof *names, by_name);
    return n;
}

/* Each case has memory of its own. */
static void next_arena(void) {
    close_arena();
    open_arena();
}

static hir_remarks remarks;

/* The pipeline, or the part of it up to the pass that shards. */
static hir_module *compiled(const hir_module *graph, hir_compile_options options, bool kernels) {
    hir_module *m = hir_module_clone(graph, arena);
    size_t n = 0;
    while (hir_pipeline()[n] != (kernels ? HIR_PASS_COUNT : HIR_PASS_SPLIT_SMALL))
        n++;
    const hir_run run = {
        .passes = hir_pipeline(), .n_passes = n, .stop_after = HIR_PASS_COUNT, .verify = true};
    options.chunk = 512;
    remarks = (hir_remarks){.arena = arena};
    if (!hir_run_passes(m, &run, &options, &remarks, &diags)) cr_assert_fail("%s", said());
    return m;
}

static bool is_there(const hir_module *m, hir_opcode code) {
    HIR_EACH(m, op, m->first) {
        if (hir_op_at(m, op)->code == code) return true;
    }
    return false;
}

/* True: sums are scattered, so that some layer is divided. */
static bool check(const char *name, const hir_module *graph, int64_t ranks, int64_t from) {
    const bool traces = ranks == 3; /* weights of mixes leave the program, too */
    const hir_compile_options one = {.keep_traces = traces};
    const hir_compile_options many = {.ranks = ranks, .divide_from = from, .keep_traces = traces};
    const hir_module *alone = compiled(graph, one, false);
    const hir_module *shared = compiled(graph, many, false);
    const hir_module *kernels = compiled(graph, many, true);
    const double limit = strncmp(name, "dory", 4) == 0 ? 1e-8 : TOLERANCE;
    cr_assert_eq(shared->ranks, ranks);
    cr_assert(hir_same_answer(alone, shared, limit, 7, &diags), "%s, %lld ranks: %s", name,
              (long long)ranks, said());
    cr_assert(hir_verify_kernels(kernels, &diags), "%s: %s", name, said());
    cr_assert(hir_same_answer(alone, kernels, limit, 7, &diags), "%s, kernels of %lld ranks: %s",
              name, (long long)ranks, said());
    return is_there(shared, HIR_COMM_REDUCE_SCATTER_OP);
}

/* The cases take turns with the numbers of ranks; all of them in the full set. */
static void check_all(int64_t ranks, int64_t from) {
    case_name names[128];
    const size_t n = cases_in("golden", names, 128);
    for (size_t i = 0; i < n; i++) {
        if (!has_turn(i + (uint64_t)ranks, 2)) continue;
        cr_assert(check(names[i].text, load("golden", names[i].text), ranks, from),
                  "%s: nothing is divided", names[i].text);
        next_arena();
    }
}

Test(shard, golden_cases_on_two_ranks) {
    check_all(2, 2);
}
Test(shard, golden_cases_on_three_ranks) {
    check_all(3, 3);
}
Test(shard, golden_cases_on_four_ranks) {
    check_all(4, 4);
}
Test(shard, golden_cases_on_more_ranks_than_heads_with_rows_on_all) {
    check_all(7, 100);
}

/* Attention, recurrences, experts and latents as published families have them. */
Test(shard, published_families_on_two_and_on_five_ranks) {
    case_name names[128];
    const size_t n = cases_in("published", names, 128);
    for (size_t i = 0; i < n; i++) {
        if (!has_turn(i / 2, 2)) continue;
        const char *name = names[i].text;
        const bool divided = check(name, load("published", name), i % 2 ? 2 : 5, 5);
        /* Layers that each rank does: projections that lie in one matrix, with biases that are
         * several weights side by side; norms over all heads, and over all of the MLP, before the
         * output matrices. */
        const bool whole = strcmp(name, "hrm_text-hub") == 0 || strncmp(name, "dory", 4) == 0;
        cr_assert_neq(divided, whole, "%s is %sdivided", name, divided ? "" : "not ");
        next_arena();
    }
}

/* Rows that cross as bf16 are rounded by at most 2^-9 of each element, once for each sublayer: seen
 * 0.002 to 0.01 of the largest logit. Where nothing is rounded, nothing differs. */
Test(shard, gathered_rows_may_be_rounded) {
    static const char *const names[] = {"standard", "attnres-block", "mhc", "kimi-linear"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const hir_module *graph = load("golden", names[i]);
        const hir_compile_options exact = {.ranks = 2, .divide_from = 2};
        hir_compile_options rounded = exact;
        rounded.gather_dtype = HIR_BF16;
        hir_difference d;
        cr_assert(hir_first_difference(compiled(graph, exact, false),
                                       compiled(graph, rounded, false), 1e-12, 7, &diags, &d),
                  "%s", said());
        cr_assert(d.found && d.error > 1e-6 && d.error < 0.05, "%s: %g", names[i], d.error);
        rounded.divide_from = 100; /* all rows on all ranks: none is gathered */
        const hir_compile_options whole = {.ranks = 2, .divide_from = 100};
        cr_assert(hir_same_answer(compiled(graph, whole, false), compiled(graph, rounded, false),
                                  TOLERANCE, 7, &diags),
                  "%s: %s", names[i], said());
        next_arena();
    }
}

/* ---- pipelines ------------------------------------------------------------------------------- */

/* All rows of a call are sent: the stage behind has states to write for each of them. */
static void sends_all_rows(const char *name, const hir_module *m) {
    HIR_EACH(m, kernel, m->first) {
        HIR_EACH(m, op, hir_op_at(m, kernel)->body_first) {
            const hir_opcode code = hir_op_at(m, op)->code;
            if (code != HIR_COMM_SEND_OP && code != HIR_COMM_RECV_OP) continue;
            const char *rows = hir_attr_string(hir_op_at(m, kernel), HIR_A_ROWS, "");
            cr_assert_str_eq(rows, "all", "%s", name);
        }
    }
}

/* All stages, each compiled by itself, evaluated together. */
static void check_stages(const char *name, const hir_module *graph, int64_t stages, int64_t parts,
                         int64_t ranks) {
    const hir_compile_options one = {0};
    const hir_module *alone = compiled(graph, one, false), *of[8];
    for (int kernels = 0; kernels < 2; kernels++) {
        for (int64_t i = 0; i < stages; i++) {
            const hir_compile_options o = {
                .ranks = ranks, .stages = stages, .virtual_stages = parts, .stage = i};
            of[i] = compiled(graph, o, kernels);
            sends_all_rows(name, of[i]);
            cr_assert(is_there(of[i], HIR_COMM_SEND_OP) || kernels || i + 1 == stages, "%s", name);
        }
        cr_assert(hir_same_answer_of_stages(alone, of, (size_t)stages, TOLERANCE, 3, &diags),
                  "%s, %lld stages of %lld, %lld ranks%s: %s", name, (long long)stages,
                  (long long)parts, (long long)ranks, kernels ? ", kernels" : "", said());
    }
}

static void check_pipelines(int64_t stages, int64_t parts, int64_t ranks) {
    case_name names[128];
    const size_t n = cases_in("golden", names, 128);
    for (size_t i = 0; i < n; i++) {
        if (!has_turn(i + (uint64_t)(parts + ranks), 2)) continue;
        check_stages(names[i].text, load("golden", names[i].text), stages, parts, ranks);
        next_arena();
    }
}

Test(shard, golden_cases_on_two_stages_of_two_parts) {
    check_pipelines(2, 2, 1);
}
Test(shard, golden_cases_on_two_stages_of_two_ranks) {
    check_pipelines(2, 1, 2);
}
Test(shard, golden_cases_on_two_stages_of_two_parts_and_two_ranks) {
    check_pipelines(2, 2, 2);
}

/* ---- losses ---------------------------------------------------------------------------------- */
/* A head that ranks share, with odd shares and padding; one that they do not, whose rows are divided;
 * and a vocabulary so small that its logits are gathered. */
Test(shard, losses_on_ranks_and_stages) {
    static const struct {
        const char *vocab;
        bool parts;
    } heads[] = {{"1003", true}, {"192", true}, {"24", false}, {"7", false}};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        const hfe_define vocab = {"vocab", heads[i].vocab};
        const hfe_options options = {
            .std_dir = TEST_DATA "/../frontend/std", .defines = &vocab, .n_defines = 1};
        hir_module *graph = hfe_load_spec(arena, &diags, TEST_DATA "/loss/heads.hadal", &options);
        cr_assert(graph, "%s", said());
        cr_assert(hir_add_loss(graph, &diags), "%s", said());
        for (int64_t ranks = 2; ranks <= 5; ranks++) {
            check(heads[i].vocab, graph, ranks, ranks % 2 ? ranks : 100);
            const hir_compile_options o = {.ranks = ranks, .divide_from = ranks};
            cr_assert_eq(is_there(compiled(graph, o, false), HIR_CROSS_ENTROPY_MERGE_OP),
                         heads[i].parts, "%s, %lld", heads[i].vocab, (long long)ranks);
        }
        check_stages(heads[i].vocab, graph, 2, 1, 2);
        check_stages(heads[i].vocab, graph, 2, 2, 1);
        next_arena();
    }
}

/* Columns over ranks are not built: the remark says what they would save, and what wait for: a
 * norm behind each of the 8 sublayers. */
Test(shard, columns_over_ranks_are_weighed) {
    const hir_compile_options o = {.ranks = 4, .divide_from = 4};
    (void)compiled(load("golden", "standard"), o, false);
    bool said_so = false;
    for (size_t i = 0; i < remarks.list.n; i++)
        said_so |= !remarks.list.at[i].taken &&
                   strstr(remarks.list.at[i].text, "columns over ranks would save each") &&
                   strstr(remarks.list.at[i].text, "wait for 8 messages more at least");
    cr_assert(said_so);
}
