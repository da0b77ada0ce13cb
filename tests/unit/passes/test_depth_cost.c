/* The cost by which blocks are cut (passes/depth/depth.h) against the ledger of what is compiled:
 * what a remark of form-blocks says a block saves is what the ledger of the kernels is less by, to
 * the byte.
 */
#include <criterion/criterion.h>

#include "passes/analysis/ledger.h"
#include "tests/unit/arena_fixture.h"
#include "tests/unit/passes/depth_models.h"

TestSuite(depth_cost, .init = open_arena, .fini = close_arena);

/* Without layer inputs: fuse decides which mixes are done by the contraction that reads them, and
 * need not be written; the cost of a block does not know. */
static uint64_t of_mixes(const hir_ledger *l) {
    return l->total.read + l->total.written - l->phase[HIR_PHASE_LAYER_INPUT].written;
}

/* ---- one model, with blocks and without ------------------------------------------------------ */
static uint64_t ledger_bytes(hir_module *m, bool blocks, const hir_compile_options *options,
                             hir_remarks *remarks) {
    hir_pass_id passes[HIR_PASS_COUNT * 2];
    size_t n = 0;
    for (const hir_pass_id *id = hir_pipeline(); *id != HIR_PASS_COUNT; id++)
        if (blocks || *id != HIR_PASS_FORM_BLOCKS) passes[n++] = *id;
    hir_run run = {.passes = passes, .n_passes = n, .stop_after = HIR_PASS_COUNT, .all = true};
    hir_ledger l;
    if (!hir_run_passes(m, &run, options, remarks, &diags)) {
        cr_assert_fail("%s", diags.list.at[0].message);
        return 0;
    }
    hir_ledger_find(m, arena, &l);
    return of_mixes(&l);
}

/* Bytes that the remarks of form-blocks promise; how many blocks there are. `at_least`: one of them
 * has one source, which is worth it where results are narrower. Its phase 1 then stands in the
 * kernel that reads that source for the norm of the first sublayer, which is charged anyway. */
static long long promised(const hir_remarks *r, int *blocks, bool *at_least) {
    long long sum = 0;
    *blocks = 0;
    *at_least = false;
    for (size_t i = 0; i < r->list.n; i++) {
        const char *saves = strstr(r->list.at[i].text, "saves ");
        if (strcmp(r->list.at[i].pass, "form-blocks") || !saves) continue;
        *at_least |= strstr(r->list.at[i].text, "share 1 source:") != NULL;
        sum += strtoll(saves + strlen("saves "), NULL, 10);
        ++*blocks;
    }
    return sum;
}

static int exact; /* models whose ledger was less by what the remarks say */

static int check(depth_style style, const hir_compile_options *options) {
    const char *what = hd_printf(
        arena, "S %d of %d, d %d, norm %d, query %d, sigmoid %d, heads %d, window %d, %s, %s",
        style.block, style.sublayers, style.d, style.norm, style.query, style.sigmoid, style.heads,
        style.window, hir_dtype_name(options->bank_dtype), hir_dtype_name(options->phase1_dtype));
    depth_writer with = depth_model(arena, &diags, style),
                 without = depth_model(arena, &diags, style);
    hir_remarks remarks = {.arena = arena}, none = {.arena = arena};
    const uint64_t alone = ledger_bytes(without.m, false, options, &none);
    const uint64_t in_blocks = ledger_bytes(with.m, true, options, &remarks);
    int blocks;
    bool at_least;
    const long long saved = promised(&remarks, &blocks, &at_least),
                    found = (long long)(alone - in_blocks);
    cr_expect(at_least ? found >= saved : found == saved,
              "%s: the ledger says %lld, remarks say %lld", what, found, saved);
    exact += blocks > 0 && !at_least;
    return blocks;
}

static const hir_dtype types[] = {HIR_F32, HIR_BF16};

static int check_types(depth_style style) {
    int blocks = 0;
    for (int bank = 0; bank < 2; bank++)
        for (int phase1 = 0; phase1 < 2; phase1++)
            blocks += check(style, &(hir_compile_options){.bank_dtype = types[bank],
                                                          .phase1_dtype = types[phase1],
                                                          .chunk = 512});
    return blocks;
}

/* ---- cases ----------------------------------------------------------------------------------- */
Test(depth_cost, remarks_promise_what_the_ledger_saves) {
    static const struct {
        int block, sublayers, window, d;
    } shapes[] = {{4, 17, 0, 24}, {3, 20, 0, 16}, {8, 40, 0, 40}, {1, 13, 0, 24},
                  {1, 24, 5, 24}, {5, 23, 3, 48}, {2, 30, 0, 24}};
    int blocks = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        blocks += check_types((depth_style){.block = shapes[i].block,
                                            .sublayers = shapes[i].sublayers,
                                            .window = shapes[i].window,
                                            .d = shapes[i].d,
                                            .norm = NORM_GAIN});
    cr_assert_gt(blocks, 60);
    cr_assert_gt(exact, 20);
}

Test(depth_cost, kinds_of_mixes) {
    int blocks = 0;
    for (int norm = 0; norm < NORM_KINDS; norm++)
        for (int sigmoid = 0; sigmoid < 2; sigmoid++)
            blocks += check_types((depth_style){.block = 3,
                                                .sublayers = 18,
                                                .d = 24,
                                                .norm = (depth_norm)norm,
                                                .sigmoid = sigmoid});
    blocks += check_types((depth_style){.block = 3, .sublayers = 18, .d = 24, .query = QUERY_NONE});
    blocks += check_types((depth_style){.block = 3, .sublayers = 18, .d = 24, .heads = 3});
    cr_assert_gt(blocks, 60);
    cr_assert_gt(exact, 40);
}
