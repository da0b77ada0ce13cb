/* The cost by which blocks are cut (passes/depth.h) against the ledger of what is compiled: what a
 * remark of form-blocks says a block saves is what the ledger of the kernels is less by, to the
 * byte.
 */
#include <criterion/criterion.h>

#include "hadal/hadal.h"
#include "passes/ledger.h"
#include "tests/unit/arena_fixture.h"
#include "tests/unit/depth_models.h"

TestSuite(depth_cost, .init = open_arena, .fini = close_arena);

/* Without layer inputs: fuse decides which mixes are done by the contraction that reads them, and
 * need not be written; the cost of a block does not know. */
static uint64_t of_mixes(const hir_ledger *l) {
    return l->total.read + l->total.written - l->phase[HIR_PHASE_LAYER_INPUT].written;
}

/* ---- one model, with blocks and without ------------------------------------------------------ */
static uint64_t ledger_bytes(hir_module *m, bool blocks, const hir_pass_options *options,
                             hir_remarks *remarks) {
    hir_pass_id passes[HIR_PASS_COUNT * 2];
    size_t n = 0;
    for (const hir_pass_id *id = hir_pipeline(); *id != HIR_PASS_COUNT; id++)
        if (blocks || *id != HIR_PASS_FORM_BLOCKS) passes[n++] = *id;
    hir_run run = {.passes = passes, .n_passes = n, .stop_after = HIR_PASS_COUNT};
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
        *at_least |= strstr(r->list.at[i].text, "share 1 sources") != NULL;
        sum += strtoll(saves + strlen("saves "), NULL, 10);
        ++*blocks;
    }
    return sum;
}

static int exact; /* models whose ledger was less by what the remarks say */

static int check(depth_style style, const hir_pass_options *options) {
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
            blocks += check(style, &(hir_pass_options){.bank_dtype = types[bank],
                                                       .phase1_dtype = types[phase1],
                                                       .chunk = 512});
    return blocks;
}

/* ---- cases -------------------------------------------------------------------------------------
 */
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

/* ---- tiles of tokens ---------------------------------------------------------------------------
 */
/* The model of bench/specs/qwen3.hadal, Block AttnRes, of another width. */
static hir_module *layers(int hidden, int block, const char *system) {
    hadal_session *s = hadal_open();
    cr_assert_eq(hadal_include_path(s, HADAL_SOURCE "/frontend/std"), 0);
    const char *defines[][2] = {{"system", system},
                                {"layers", "14"},
                                {"heads", "4"},
                                {"kv_heads", "2"},
                                {"head_dim", "32"},
                                {"hidden", hd_printf(arena, "%d", hidden)},
                                {"ff", hd_printf(arena, "%d", 3 * hidden)},
                                {"block", hd_printf(arena, "%d", block)}};
    for (size_t i = 0; i < sizeof defines / sizeof *defines; i++)
        cr_assert_eq(hadal_define(s, defines[i][0], defines[i][1]), 0);
    cr_assert_eq(hadal_load(s, HADAL_SOURCE "/bench/specs/qwen3.hadal", NULL), 0);
    hir_module *m = hir_parse(arena, &diags, "qwen3.hir", hd_strdup(arena, hadal_ir_text(s, 0)));
    hadal_close(s);
    cr_assert(m, "%s", said());
    return m;
}

/* What leaves the L2, with blocks cut for tiles or as without them; how many pairs
 * of mixes share a tile. */
static uint64_t memory_bytes(hir_module *m, bool cut_for_tiles, int *pairs) {
    const hir_pass_options plain = {.chunk = 512}, tiles = {.chunk = 512, .tile_tokens = true};
    hir_remarks remarks = {.arena = arena};
    size_t n = 0, at = 0;
    for (; hir_pipeline()[n] != HIR_PASS_COUNT; n++)
        if (hir_pipeline()[n] == HIR_PASS_FORM_BLOCKS) at = n + 1;
    hir_run run = {.passes = hir_pipeline(), .n_passes = at, .stop_after = HIR_PASS_COUNT};
    cr_assert(hir_run_passes(m, &run, cut_for_tiles ? &tiles : &plain, &remarks, &diags));
    run.passes += at;
    run.n_passes = n - at;
    cr_assert(hir_run_passes(m, &run, &tiles, &remarks, &diags));
    *pairs = 0;
    for (size_t i = 0; i < remarks.list.n; i++)
        *pairs += strstr(remarks.list.at[i].text, "mixed in one tile with the next") != NULL;
    hir_ledger l;
    hir_ledger_find(m, arena, &l);
    return of_mixes(&l) - l.local;
}

static void check_pairs(hir_module *m, hir_module *same, bool chosen, const char *what) {
    int none, pairs;
    const uint64_t without = memory_bytes(m, false, &none), with = memory_bytes(same, true, &pairs);
    cr_expect_eq(none, 0);
    cr_expect_eq(pairs > 0, chosen, "%s: %d pairs", what, pairs);
    cr_expect(chosen ? with < without : with == without, "%s: %llu for %llu", what,
              (unsigned long long)with, (unsigned long long)without);
}

/* Pairs are formed where sources are few and rows narrow, and then less leaves the cache; where
 * rows are too wide for a tile there are none, and nothing changes. */
Test(depth_cost, pairs_of_mixes_in_a_tile) {
    static const struct {
        int hidden, block;
        bool chosen;
    } cases[] = {{96, 4, true},  {96, 8, true},   {256, 4, true},
                 {256, 6, true}, {512, 4, false}, {1024, 8, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_pairs(layers(cases[i].hidden, cases[i].block, "attnres"),
                    layers(cases[i].hidden, cases[i].block, "attnres"), cases[i].chosen,
                    hd_printf(arena, "d = %d, S = %d", cases[i].hidden, cases[i].block));
    depth_style style = {.block = 4, .sublayers = 28, .d = 64, .norm = NORM_GAIN};
    check_pairs(depth_model(arena, &diags, style).m, depth_model(arena, &diags, style).m, false,
                "no attention: which kernels share a tile is not known");
}
