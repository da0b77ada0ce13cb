/* `--weights-dtype`: what it means, what it refuses, and which weights the layout pass follows it
 * for. */
#include <criterion/criterion.h>
#include <string.h>

#include "passes/pass.h"
#include "tests/unit/arena_fixture.h"

TestSuite(weight_types, .init = open_arena, .fini = close_arena);

Test(weight_types, texts) {
    hir_weight_types t;
    cr_assert(hir_parse_weight_types(arena, &diags, NULL, &t));
    cr_expect(t.matrices == HIR_F32 && t.rules.n == 0);
    cr_assert(hir_parse_weight_types(arena, &diags, "q4,lm_head=q8,*norm*=f32", &t));
    cr_expect(t.matrices == HIR_Q4 && t.rules.n == 2);
    cr_expect_str_eq(t.rules.at[0].pattern, "lm_head");
    cr_expect_eq(t.rules.at[0].dtype, HIR_Q8);
    cr_expect_str_eq(t.rules.at[1].pattern, "*norm*");
    cr_assert(hir_parse_weight_types(arena, &diags, "*=bf16", &t));
    cr_expect(t.matrices == HIR_F32 && t.rules.n == 1);
    cr_assert(hir_parse_weight_types(arena, &diags, "x=q4,f16,x=q4", &t), "the same twice");
    cr_expect_eq(t.matrices, HIR_F16);
    cr_assert(hir_parse_weight_types(arena, &diags, "a=b=q8", &t), "the last = counts");
    cr_expect_str_eq(t.rules.at[0].pattern, "a=b");
    cr_expect_eq(diags.errors, 0);
}

Test(weight_types, rejected_texts) {
    static const char *const texts[][2] = {
        {"q5", "cannot be stored as \"q5\""},
        {"i32", "cannot be stored as \"i32\""},
        {"Q4", "cannot be stored as \"Q4\""},
        {"x=int8", "cannot be stored as \"int8\""},
        {"", "an empty item"},
        {"q4,", "an empty item"},
        {",q4", "an empty item"},
        {"q4,,x=q8", "an empty item"},
        {"q4,q8", "two types"},
        {"=q4", "without a pattern"},
        {"x=q4,x=q8", "to be both q4 and q8"},
        {"x=", "cannot be stored as \"\""},
        {"q4 ", "cannot be stored as \"q4 \""},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        hir_weight_types t;
        size_t before = diags.list.n;
        cr_expect_not(hir_parse_weight_types(arena, &diags, texts[i][0], &t), "%s", texts[i][0]);
        cr_assert_eq(diags.list.n, before + 1);
        cr_expect(strstr(diags.list.at[before].message, texts[i][1]), "%s: %s", texts[i][0],
                  diags.list.at[before].message);
        cr_expect_eq(diags.list.at[before].code, HD_E_USAGE);
    }
}

Test(weight_types, patterns) {
    static const struct {
        const char *pattern, *name;
        bool matches;
    } cases[] = {
        {"lm_head", "lm_head.weight", true},
        {"lm_head", "lm_head", true},
        {"lm_head", "model.lm_head.weight", false},
        {"lm_head.weight", "lm_head.weight", true},
        {"*norm*", "model.norm.weight", true},
        {"*norm*", "model.layers.0.input_layernorm.weight", true},
        {"*norm", "model.norm.weight", true},
        {"*norm", "model.norm.bias", false},
        {"model.layers.?.mlp.*", "model.layers.7.mlp.up_proj.weight", true},
        {"model.layers.?.mlp.*", "model.layers.17.mlp.up_proj.weight", false},
        {"*", "", true},
        {"?", "", false},
        {"", "x", false},
        {"**a**", "bab", true},
        {"*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
        {".weight", ".weight", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hir_weight_rule r = {.pattern = cases[i].pattern, .dtype = HIR_Q8};
        cr_expect_eq(hir_rule_matches(&r, cases[i].name), cases[i].matches, "%s on %s",
                     cases[i].pattern, cases[i].name);
    }
}

/* ---- the layout pass ------------------------------------------------------------------------- */
static const char source[] = "hir 1 graph @m\n"
                             "weight @emb.weight : f32[40, 64]\n"
                             "weight @norm.weight : f32[64]\n"
                             "weight @up.weight : f32[96, 64]\n"
                             "weight @down.weight : f32[64, 96]\n"
                             "weight @spare : f32[3] unused\n"
                             "func(%ids: i32[T]) {\n"
                             "  %0 = gather @emb.weight, %ids : f32[T, 64]\n"
                             "  %1 = rmsnorm %0, @norm.weight {eps = 1e-06} : f32[T, 64]\n"
                             "  %2 = linear %1, @up.weight, _ : f32[T, 96]\n"
                             "  %3 = linear %2, @down.weight, _ : f32[T, 64]\n"
                             "  %4 = linear %3, @emb.weight, _ : f32[T, 40]\n"
                             "  output %4 {name = \"logits\"}\n"
                             "}\n";

static hir_module *laid_out(const char *types) {
    hir_weight_types t;
    hir_module *m = hir_parse(arena, &diags, "t.hir", source);
    cr_assert(m, "%s", diags.list.n ? diags.list.at[0].message : "");
    cr_assert(hir_parse_weight_types(arena, &diags, types, &t));
    hir_compile_options options = {.matrix_dtype = t.matrices, .chunk = 512};
    options.weight_rules = t.rules.at, options.n_weight_rules = t.rules.n;
    const size_t n = hir_pipeline_length();
    hir_run run = {.passes = hir_pipeline(), .n_passes = n, .stop_after = HIR_PASS_COUNT};
    run.verify = run.check = true;
    return hir_run_passes(m, &run, &options, NULL, &diags) ? m : NULL;
}

static hir_dtype type_of(const hir_module *m, const char *name) {
    return m->weights.at[hir_find_weight(m, name)].type.dtype;
}

Test(weight_types, layout_follows) {
    hir_module *m = laid_out("q4,emb=q8,down.weight=f16");
    cr_assert(m);
    cr_expect_eq(type_of(m, "emb.weight"), HIR_Q8);
    cr_expect_eq(type_of(m, "up.weight"), HIR_Q4);
    cr_expect_eq(type_of(m, "down.weight"), HIR_F16);
    cr_expect_eq(type_of(m, "norm.weight"), HIR_F32);
    for (size_t i = 0; i < m->weights.n; i++)
        if (hir_is_quantised(m->weights.at[i].type.dtype))
            cr_expect_eq(m->weights.at[i].layout, HIR_LAYOUT_PANEL);
    m = laid_out("*.weight=bf16,*w?=q4,up=q8");
    cr_assert(m);
    cr_expect_eq(type_of(m, "up.weight"), HIR_Q8, "later rules count");
    cr_expect_eq(diags.errors, 0);
}

Test(weight_types, layout_warns_and_rejects) {
    cr_assert(laid_out("q8,lm_haed=q4"));
    cr_assert_eq(diags.list.n, 1);
    cr_expect_eq(diags.list.at[0].severity, HD_WARNING);
    cr_expect(strstr(diags.list.at[0].message, "no weight matches \"lm_haed\""));
    cr_assert(laid_out("*o*=q4"), "norm and down");
    cr_assert_eq(diags.list.n, 2);
    cr_expect_eq(diags.list.at[1].severity, HD_WARNING);
    cr_expect(strstr(diags.list.at[1].message, "1 of 2"), "%s", diags.list.at[1].message);
    cr_assert_not(laid_out("norm=q4"));
    cr_expect(strstr(diags.list.at[2].message, "'norm.weight' cannot be stored as q4"));
    cr_assert_not(laid_out("*norm*=bf16"));
    cr_assert(laid_out("*norm*=f32"));
    cr_expect_eq(diags.errors, 2);
}

/* Text of what only panels can hold, as rows. */
Test(weight_types, groups_are_panels) {
    cr_assert_not(
        hir_parse(arena, &diags, "t.hir", "hir 1 graph @m\nweight @w : q8[2, 3]\nfunc() {\n}\n"));
    cr_expect(strstr(diags.list.at[0].message, "stored in panels only"));
    cr_assert_not(hir_parse(arena, &diags, "t.hir",
                            "hir 1 graph @m\nweight @w : q4[2] panel\nfunc() {\n}\n"));
    cr_assert(hir_parse(arena, &diags, "t.hir",
                        "hir 1 graph @m\nweight @w : q4[2, 3] panel\nfunc() {\n}\n"));
}
