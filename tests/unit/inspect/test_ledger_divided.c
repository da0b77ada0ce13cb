/* The ledger of divided models: what ranks move together where they divide rows, and what the
 * stages of a pipeline move each. */
#include <criterion/criterion.h>
#include <string.h>

#include "inspect/ledger.h"
#include "tests/unit/stored_models.h"

TestSuite(ledger_divided, .init = open_arena, .fini = close_arena, .timeout = 300);

static const char *const systems[] = {"standard",
                                      "attnres-block",
                                      "attnres-block-odd",
                                      "attnres-full",
                                      "mhc",
                                      "hyper-connections",
                                      "ddl",
                                      "denseformer",
                                      "muddformer",
                                      "value-residual",
                                      "siamesenorm",
                                      "k3",
                                      "depth-attention",
                                      "kimi-linear"};
enum { SYSTEMS = sizeof systems / sizeof *systems };

static hir_run whole_pipeline(void) {
    const size_t n = hir_pipeline_length();
    return (hir_run){.passes = hir_pipeline(), .n_passes = n, .stop_after = HIR_PASS_COUNT};
}

static ledger_report report_of(const hir_module *graph, hir_compile_options options) {
    static hir_compile_options kept;
    ledger_report r;
    options.chunk = 512;
    kept = options;
    hir_module *now = hir_module_clone(graph, arena);
    const hir_run run = whole_pipeline();
    cr_assert(hir_run_passes(now, &run, &kept, NULL, &diags), "%s", said());
    const inspect_subject s = {
        .arena = arena, .diags = &diags, .graph = graph, .now = now, .pass_options = &kept};
    cr_assert(ledger_collect(&s, &r), "%s", said());
    return r;
}

static ledger_report of_ranks(const hir_module *graph, int64_t ranks) {
    return report_of(graph, (hir_compile_options){.ranks = ranks, .divide_from = ranks});
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* By hand: sublayer k of L reads the stream and the output before it (the first: nothing, its input
 * is made with the embedding), and writes its sum and the input of the next; the last sum is not
 * kept, its norm is. A rank has all of that for its rows, so that all together move it once. */
Test(ledger_divided, a_plain_residual_by_hand) {
    const hir_module *graph = load("golden", "standard");
    const uint64_t d = 48 * 4, sublayers = 8;
    for (int64_t ranks = 2; ranks <= 7; ranks++) {
        const hir_ledger l = of_ranks(graph, ranks).compiled;
        cr_assert_eq(l.sublayers, sublayers);
        cr_assert_eq(l.phase[HIR_PHASE_ACCUMULATE].read, 2 * (sublayers - 1) * d);
        cr_assert_eq(l.phase[HIR_PHASE_ACCUMULATE].written, (sublayers - 1) * d);
        cr_assert_eq(l.phase[HIR_PHASE_LAYER_INPUT].written, sublayers * d);
        cr_assert_eq(l.phase[HIR_PHASE_OUTPUT].read, 2 * d);
        cr_assert_eq(l.phase[HIR_PHASE_OUTPUT].written, d);
        cr_assert_eq(l.phase[HIR_PHASE_OWN].written, (sublayers + 1) * d,
                     "the outputs, summed up by the exchange, and the embedding");
        cr_assert_eq(l.total.read + l.total.written, 4 * sublayers * d);
    }
}

/* All of a system is local to a row, so that no number of ranks moves more than another. */
Test(ledger_divided, ranks_together_move_each_row_once) {
    for (int i = 0; i < SYSTEMS; i++) {
        const hir_module *graph = load("golden", systems[i]);
        const hir_ledger two = of_ranks(graph, 2).compiled;
        for (int64_t ranks = 3; ranks <= 5; ranks++) {
            const hir_ledger l = of_ranks(graph, ranks).compiled;
            cr_assert_eq(l.total.read, two.total.read, "%s on %lld ranks", systems[i],
                         (long long)ranks);
            cr_assert_eq(l.total.written, two.total.written, "%s on %lld ranks", systems[i],
                         (long long)ranks);
        }
        cr_assert_gt(two.total.read, 0, "%s", systems[i]);
    }
}

/* A value that every rank has all rows of is moved by each of them. */
Test(ledger_divided, rows_that_all_ranks_have_count_for_each) {
    static const char text[] = "hir 1 depth @m\n\n"
                               "ranks 3, rows divided from 3 tokens\n\n"
                               "weight @embed : f32[20, 16]\n"
                               "weight @f : f32[16, 16]\n\n"
                               "func(%ids: i32[T]) {\n"
                               "  %e = gather @embed, %ids : f32[T, 16]\n"
                               "  %y = linear %e, @f, _ : f32[T, 16]\n"
                               "  %s = add %e, %y : f32[T, 16]\n"
                               "  %l = comm.part %s : f32[T/3, 16]\n"
                               "  %h = exp %l : f32[T/3, 16]\n"
                               "  %z = comm.all_gather %h : f32[T, 16]\n"
                               "  output %z {name = \"z\"}\n}\n";
    hir_module *m = hir_parse(arena, &diags, "test.hir", text);
    cr_assert(m, "%s", said());
    hir_ledger l;
    hir_ledger_find(m, arena, &l);
    cr_assert_eq(l.sublayers, 1);
    cr_assert_eq(l.phase[HIR_PHASE_ACCUMULATE].read, 3 * 2 * 64);
    cr_assert_eq(l.phase[HIR_PHASE_ACCUMULATE].written, 3 * 64);
}

/* ---- what reads what ------------------------------------------------------------------------- */

static const char *flow_text(const hir_flow *f) {
    hd_text t;
    hd_text_init(&t, arena);
    hd_text_f(&t, "%llu wide, %zu outputs, %u blocks\n", (unsigned long long)f->width, f->outputs.n,
              f->blocks);
    for (size_t i = 0; i < f->inputs.n; i++) {
        hd_text_f(&t, "%u in block %u:", f->inputs.at[i].sublayer, f->inputs.at[i].block);
        for (size_t k = 0; k < f->inputs.at[i].sources.n; k++) {
            hd_text_add(&t, " ");
            hir_flow_print_source(&f->inputs.at[i].sources.at[k], &t);
        }
        hd_text_add(&t, "\n");
    }
    return t.at;
}

static void same_flow(const hir_module *graph, const char *name) {
    const hir_compile_options options = {.ranks = 3, .divide_from = 3, .chunk = 512};
    hir_module *m = hir_module_clone(graph, arena);
    const hir_run run = whole_pipeline();
    hir_flow before, after;
    hir_flow_find(graph, arena, &before);
    cr_assert(hir_run_passes(m, &run, &options, NULL, &diags), "%s", said());
    hir_flow_find(m, arena, &after);
    cr_assert_str_eq(flow_text(&after), flow_text(&before), "%s:\n%snot\n%s", name,
                     flow_text(&after), flow_text(&before));
}

Test(ledger_divided, dividing_does_not_change_what_reads_what) {
    for (int i = 0; i < SYSTEMS; i++)
        same_flow(load("golden", systems[i]), systems[i]);
}

/* Of a large table each rank has a share of the features: the stream begins where they come
 * together, and is as wide. */
Test(ledger_divided, an_embedding_looked_up_by_features) {
    hd_text t;
    hd_text_init(&t, arena);
    hd_text_add(&t, "use \"layers\"\n"
                    "model m(hidden = 256, vocab = 60000) {\n"
                    "    x = embed(\"e\", vocab, hidden)\n"
                    "    x = x + swiglu(rmsnorm(x, \"n\"), 512)\n"
                    "    output logits = linear(rmsnorm(x, \"o\"), \"lm_head\", vocab)\n"
                    "}\n");
    const hfe_options options = {.std_dir = TEST_DATA "/../frontend/std"};
    hir_module *m = hfe_load_spec_text(arena, &diags, "m.hadal", t.at, &options);
    cr_assert(m, "%s", said());
    same_flow(m, "by features");
    const hir_ledger l = of_ranks(m, 2).compiled;
    cr_assert_eq(l.flow.width, 256);
    cr_assert_eq(l.phase[HIR_PHASE_LAYER_INPUT].written, 256 * 4);
}

/* ---- stages ---------------------------------------------------------------------------------- */

/* As it is when it is cut. */
static const hir_module *before_the_cut(const hir_module *graph) {
    hir_module *m = hir_module_clone(graph, arena);
    hir_run run = whole_pipeline();
    run.stop_after = HIR_PASS_SHARD_PIPELINE; /* which does nothing for one stage */
    cr_assert(hir_run_passes(m, &run, NULL, NULL, &diags), "%s", said());
    return m;
}

/* Rows of the stream are all that crosses between two stages, not those inside of a sublayer. */
static bool only_rows_cross(const hir_module *graph) {
    const hir_compile_options o = {.stages = 2, .virtual_stages = 1, .chunk = 512};
    hir_module *m = hir_module_clone(graph, arena);
    hir_flow f;
    hir_run run = whole_pipeline();
    hir_flow_find(m, arena, &f);
    run.stop_after = HIR_PASS_SHARD_PIPELINE;
    cr_assert(hir_run_passes(m, &run, &o, NULL, &diags), "%s", said());
    HIR_EACH(m, op, m->first) {
        if (hir_op_at(m, op)->code != HIR_COMM_SEND_OP) continue;
        const hir_type t = hir_arg_type(m, op, 0);
        if (t.rank != 2 || t.dim[1] != (int64_t)f.width) return false;
    }
    return true;
}

/* Each sublayer is in one stage. Where what crosses are sources and sums of them, a stage reads
 * what these sublayers read in the whole; other systems may be cut inside of a mix, whose parts are
 * then sources of the next stage, and any inside of a sublayer. */
Test(ledger_divided, stages_together_are_the_whole) {
    int at_sources = 0;
    for (int i = 0; i < SYSTEMS; i++) {
        const hir_module *graph = before_the_cut(load("golden", systems[i]));
        const bool cut_at_sources =
            only_rows_cross(graph) &&
            (strncmp(systems[i], "attnres", 7) == 0 || strcmp(systems[i], "standard") == 0 ||
             strcmp(systems[i], "k3") == 0 || strcmp(systems[i], "value-residual") == 0);
        at_sources += cut_at_sources;
        const ledger_report whole = report_of(graph, (hir_compile_options){0});
        uint64_t sublayers = 0, reads = 0;
        hir_traffic paper = {0};
        for (int64_t stage = 0; stage < 2; stage++) {
            const hir_compile_options o = {.stages = 2, .virtual_stages = 1, .stage = stage};
            const ledger_report r = report_of(graph, o);
            cr_assert_eq(r.stages, 2);
            cr_assert_eq(r.graph.flow.width, whole.graph.flow.width, "%s", systems[i]);
            cr_assert_eq(r.graph.sublayers, r.compiled.sublayers, "%s", systems[i]);
            sublayers += r.compiled.sublayers;
            reads += r.reads.naive;
            paper.read += r.graph.paper.read;
            paper.written += r.graph.paper.written;
        }
        cr_assert_eq(sublayers, whole.graph.sublayers, "%s: %llu", systems[i],
                     (unsigned long long)sublayers);
        if (!cut_at_sources) continue;
        cr_assert_eq(reads, whole.reads.naive, "%s", systems[i]);
        cr_assert_eq(paper.read, whole.graph.paper.read, "%s", systems[i]);
        cr_assert_eq(paper.written, whole.graph.paper.written, "%s", systems[i]);
    }
    cr_assert_geq(at_sources, 2);
}
