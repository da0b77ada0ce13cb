/* What the compiler finds does not depend on how a user writes a formula: every page of
 * frontend/std/residual, in a model, with every rewriting that applies to it (rewriting.h), has the
 * same ops over depth, the same ledger and the same logits as the page itself.
 */
#define FOLDER "/tmp/hadal-rewritings-XXXXXX"
#include <dirent.h>

#include "frontend/frontend.h"
#include "passes/analysis/ledger.h"
#include "tests/tools/full.h"
#include "tests/unit/folder_fixture.h"
#include "tests/unit/passes/pass_models.h"
#include "tests/unit/passes/rewriting.h"

TestSuite(rewritings, .init = open_folder, .fini = close_folder);

/* The residual systems: the page, and the object `residual` of a config. */
#define SYSTEMS(S)                                                                                 \
    S("affine", "'type': 'affine'")                                                                \
    S("ancre", "'type': 'ancre', 'unit': 'layer', 'temperature': 0.5")                             \
    S("ancre", "'type': 'ancre', 'unit': 'sublayer', 'temperature': 4")                            \
    S("attnres", "'type': 'attnres', 'block_size_sublayers': 3")                                   \
    S("attnres",                                                                                   \
      "'type': 'attnres', 'block_size_sublayers': 2, 'normalization': 'sigmoid', 'num_heads': 4")  \
    S("attnres", "'type': 'attnres', 'block_size_sublayers': 1, 'query': 'input', 'window': 3")    \
    S("attnres",                                                                                   \
      "'type': 'attnres', 'block_size_sublayers': 2, 'query': 'none', 'key_norm': false")          \
    S("attnres-gated", "'type': 'attnres-gated', 'block_size_layers': 1, 'eps': 0.001")            \
    S("attnres-normed", "'type': 'attnres-normed', 'block_size_sublayers': 3, 'eps': 0.001")       \
    S("ddl", "'type': 'ddl', 'value_channels': 1, 'k_eps': 0.1, 'v_sigmoid_scale': 2")             \
    S("ddl", "'type': 'ddl', 'value_channels': 3, 'conv_kernel': 2, 'k_eps': 0.1, "                \
             "'v_sigmoid_scale': 2")                                                               \
    S("deepnorm", "'type': 'deepnorm', 'alpha': 1.5")                                              \
    S("denseformer", "'type': 'denseformer', 'dilation': 1, 'period': 1")                          \
    S("densenet", "'type': 'densenet'")                                                            \
    S("depth-attention", "'type': 'depth-attention', 'stride': 1, 'recent_window': 1, 'loops': "   \
                         "1, 'k_norm_after_rope': false")                                          \
    S("dreamer",                                                                                   \
      "'type': 'dreamer', 'num_heads': 2, 'head_dim': 8, 'loops': 2, 'depth_rope_theta': 100.0")   \
    S("elmo", "'type': 'elmo'")                                                                    \
    S("gain", "'type': 'gain'")                                                                    \
    S("gated-streams", "'type': 'gated-streams', 'num_streams': 3, 'rank': 16")                    \
    S("highway", "'type': 'highway'")                                                              \
    S("hybridnorm", "'type': 'hybridnorm', 'first_block': 'hybrid'")                               \
    S("hyper-connections", "'type': 'hyper-connections', 'num_streams': 3")                        \
    S("ihc", "'type': 'ihc', 'num_streams': 3, 'hc_eps': 0.001, 'magnitude': 2.0")                 \
    S("keel", "'type': 'keel', 'alpha': 2")                                                        \
    S("laurel-lr", "'type': 'laurel-lr', 'rank': 12")                                              \
    S("layerscale", "'type': 'layerscale'")                                                        \
    S("lime", "'type': 'lime'")                                                                    \
    S("mgr", "'type': 'mgr', 'num_streams': 3")                                                    \
    S("mhc",                                                                                       \
      "'type': 'mhc', 'num_streams': 3, 'sinkhorn_iters': 2, 'hc_eps': 0.001, 'post_mult': 2.0")   \
    S("mhc-lite", "'type': 'mhc-lite', 'num_streams': 3")                                          \
    S("mrla", "'type': 'mrla', 'form': 'table', 'num_heads': 4")                                   \
    S("mrla", "'type': 'mrla', 'form': 'base', 'num_heads': 4")                                    \
    S("mrla", "'type': 'mrla', 'form': 'light', 'num_heads': 4")                                   \
    S("muddformer", "'type': 'muddformer', 'expand_last': true, 'round64': false")                 \
    S("normed-residual", "'type': 'normed-residual', 'alpha': 2, 'beta': 0.5")                     \
    S("preserving-gate", "'type': 'preserving-gate', 'temperature': 0.3")                          \
    S("realformer", "'type': 'realformer', 'norm': 'pre', 'scores': 'mean'")                       \
    S("rezero", "'type': 'rezero'")                                                                \
    S("running-mean", "'type': 'running-mean'")                                                    \
    S("siamesenorm", "'type': 'siamesenorm', 'depth_scale': true, 'input_norm': true")             \
    S("standard", "'type': 'standard'")                                                            \
    S("value-residual", "'type': 'value-residual', 'lambda_first': 0.25, 'lambda_own': 0.75")

typedef struct residual_system {
    const char *page, *config;
} residual_system;

static const residual_system systems[] = {
#define S(page, config) {page, config},
    SYSTEMS(S)
#undef S
};
enum { N_SYSTEMS = sizeof systems / sizeof *systems };

static hir_module *model_of(const char *residual) {
    const hfe_options options = {.std_dir = TEST_DATA "/../frontend/std"};
    char *config =
        hd_printf(arena,
                  "{\"model_type\": \"qwen3\", \"vocab_size\": 40, \"hidden_size\": 32, "
                  "\"intermediate_size\": 48, \"num_hidden_layers\": 3, "
                  "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 8, "
                  "\"hidden_act\": \"silu\", \"rms_norm_eps\": 0.01, "
                  "\"rope_theta\": 100.0, \"tie_word_embeddings\": false, \"residual\": {%s}}",
                  residual);
    for (char *c = config; *c; c++)
        if (*c == '\'') *c = '"';
    cr_assert(hd_write_file(arena, &diags, in_folder("config.json"), config, strlen(config)), "%s",
              said());
    const char *text = hfe_import(arena, &diags, folder, &options);
    cr_assert(text, "%s: %s", residual, said());
    hir_module *m = hfe_load_spec_text(arena, &diags, in_folder("model.hadal"), text, &options);
    cr_assert(m, "%s: %s", residual, said());
    return m;
}

/* ---- what is compared ------------------------------------------------------------------------- */
typedef struct findings {
    /* of the graph, of the ops over depth, of the kernels */
    const char *sublayers, *graph, *ops, *ledger;
    hir_module *kernels;
} findings;

static void describe_graph(const hir_module *m, findings *out) {
    hir_flow f;
    hd_text t;
    hir_flow_find(m, arena, &f);
    out->sublayers = hd_printf(arena, "%zu sublayers", f.outputs.n);
    const hir_flow_reads r = hir_flow_count_reads(&f, arena);
    hd_text_init(&t, arena);
    hd_text_f(&t, "%u blocks, %u mixes read %llu, by blocks %llu %llu %llu:", f.blocks, r.mixes,
              (unsigned long long)r.naive, (unsigned long long)r.bank, (unsigned long long)r.live,
              (unsigned long long)r.output);
    for (size_t i = 0; i < f.inputs.n; i++)
        for (size_t k = 0; k < hir_flow_sources(&f.inputs.at[i]); k++) {
            hd_text_add(&t, k ? " " : ", ");
            hir_flow_print_source(hir_flow_source(&f.inputs.at[i], k), &t);
        }
    out->graph = t.at;
}

static const char *depth_ops_of(const hir_module *m) {
    hd_text t;
    hd_text_init(&t, arena);
    hd_text_add(&t, "");
    HIR_EACH(m, op, m->first) {
        const hir_op *o = hir_op_at(m, op);
        const char *name = hir_info(o->code)->name;
        if (strncmp(name, "depth.", 6) != 0) continue;
        hd_text_f(&t, "%s of %u %s;", name, o->n_args, hir_attr_string(o, HIR_A_NORMALIZATION, ""));
    }
    return t.at;
}

static const char *ledger_of(const hir_module *m) {
    hir_ledger l;
    hd_text t;
    hir_ledger_find(m, arena, &l);
    hd_text_init(&t, arena);
    hd_text_f(&t, "%llu read, %llu written", (unsigned long long)l.total.read,
              (unsigned long long)l.total.written);
    for (int p = 0; p < HIR_PHASE_COUNT; p++)
        hd_text_f(&t, "; %s %llu %llu", hir_phase_name((hir_phase)p),
                  (unsigned long long)l.phase[p].read, (unsigned long long)l.phase[p].written);
    return t.at;
}

static findings find(hir_module *m) {
    findings f = {.kernels = m};
    describe_graph(m, &f);
    hir_module *depth = hir_module_clone(m, arena);
    hir_run run = {.passes = hir_pipeline(),
                   .n_passes = hir_pipeline_length(),
                   .stop_after = HIR_PASS_SPLIT_MERGE};
    cr_assert(hir_run_passes(depth, &run, NULL, NULL, &diags), "%s", said());
    f.ops = depth_ops_of(depth);
    run.stop_after = HIR_PASS_COUNT;
    cr_assert(hir_run_passes(m, &run, NULL, NULL, &diags), "%s", said());
    f.ledger = ledger_of(m);
    return f;
}

static bool same(const char *what, const char *got, const char *expected) {
    if (strcmp(got, expected) == 0) return true;
    cr_log_error("  %s\n    got      %s\n    expected %s", what, got, expected);
    return false;
}

/* ---- the test --------------------------------------------------------------------------------- */
enum { DRAWN = 8 }; /* of these the short set has one for each system */

static void compare(const residual_system *s, const hir_module *page, const findings *expected,
                    size_t number) {
    const char *name = s->config;
    hir_module *m = hir_module_clone(page, arena);
    if (!rewrite(m, number, &diags, arena)) return;
    cr_assert(hir_verify(m, &diags), "%s: %s", name, said());
    const findings got = find(m);
    bool all = same("sublayers", got.sublayers, expected->sublayers);
    all &= number >= N_REWRITINGS || rewritings[number].other_sums ||
           same("the graph", got.graph, expected->graph);
    all &= same("ops over depth", got.ops, expected->ops);
    all &= same("the ledger", got.ledger, expected->ledger);
    all &= hir_same_answer(page, got.kernels, 1e-9, 1, &diags);
    const char *how = number < N_REWRITINGS ? rewritings[number].what
                                            : hd_printf(arena, "drawn rewritings %zu", number);
    cr_expect(all, "%s: %s: %s", name, how, said());
}

Test(rewritings, each_page_is_found_however_it_is_written, .timeout = 600) {
    for (size_t i = 0; i < N_SYSTEMS; i++) {
        close_folder();
        open_folder();
        const hir_module *page = model_of(systems[i].config);
        const findings expected = find(hir_module_clone(page, arena));
        for (size_t number = 0; number < N_REWRITINGS + DRAWN; number++)
            if (has_turn(number + i, 5)) compare(&systems[i], page, &expected, number);
    }
}

/* altup is of the family gemma3n_text alone; the others are parts of pages. */
Test(rewritings, no_page_is_forgotten) {
    DIR *pages = opendir(TEST_DATA "/../frontend/std/residual");
    cr_assert(pages);
    for (const struct dirent *e; (e = readdir(pages));) {
        bool known = e->d_name[0] == '.';
        for (size_t i = 0; i < N_SYSTEMS; i++)
            known |= strcmp(hd_printf(arena, "%s.hadal", systems[i].page), e->d_name) == 0;
        for (const char *const *part =
                 (const char *const[]){"altup", "heads", "streams", "system", NULL};
             *part; part++)
            known |= strcmp(hd_printf(arena, "%s.hadal", *part), e->d_name) == 0;
        cr_expect(known, "frontend/std/residual/%s has no config in this file", e->d_name);
    }
    closedir(pages);
}
