/* Kinds of state in the IR: text form, types, how they lie in memory; and that what asks whether an
 * op changes state asks its trait. */
#include <ctype.h>
#include <glob.h>

#include "ir/signature.h"
#include "tests/unit/ir/ir_fixture.h"
#include "tests/unit/passes/pass_models.h"

TestSuite(states, .init = open_arena, .fini = close_arena);

#define G "hir 1 graph @m\n\n"
#define F "\nfunc() {\n}\n"

static hir_state state_of(const char *declaration) {
    hir_module *m = parse(hd_printf(arena, G "%s\n" F, declaration));
    cr_assert_not_null(m, "%s", said());
    return m->states.at[0];
}

Test(states, each_kind_has_its_word) {
    const char *text = G "state $k : f32[C, 2, 8]\n"
                         "state $tail : window f32[3, 96] loc \"m.hadal\":1:2\n"
                         "state $keys : window bf16[512, 2, 8]\n"
                         "state $s : carry f16[4, 32, 32]\n"
                         "state $c : scores f32[C, 6]\n" F;
    hir_module *m = parse(text);
    cr_assert_not_null(m, "%s", said());
    const hir_state_kind kinds[] = {HIR_STATE_CACHE, HIR_STATE_WINDOW, HIR_STATE_WINDOW,
                                    HIR_STATE_CARRY, HIR_STATE_SCORES};
    for (size_t i = 0; i < 5; i++)
        cr_assert_eq(m->states.at[i].kind, kinds[i]);
    cr_assert_str_eq(print(m, true), text);
    cr_assert_str_eq(print(hir_module_clone(m, arena), true), text);
    cr_assert_eq(state_of("state $k : cache f32[C, 4]").kind, HIR_STATE_CACHE,
                 "the word of a cache may be written");
}

/* Every kind with types of every other, and with types of none. */
Test(states, a_type_has_to_fit_the_kind) {
    static const struct {
        const char *declaration, *message;
    } rejected[] = {
        {"state $s : f32[3, 96]", "a cache is f32, bf16 or f16 [C, ..]"},
        {"state $s : cache f32[4, 32, 32]", "a cache is f32, bf16 or f16 [C, ..]"},
        {"state $s : f32[C, C]", "C can only be the first dim"},
        {"state $s : f32[T, 2]", "a cache is f32, bf16 or f16 [C, ..]"},
        {"state $s : window f32[C, 96]", "only a cache has C"},
        {"state $s : window f32[T, 96]", "all dims of another state are integers"},
        {"state $s : window f32[3, C]", "C can only be the first dim"},
        {"state $s : carry f32[C]", "only a cache has C"},
        {"state $s : carry f32[]", "at least one dim"},
        {"state $s : window f32[]", "at least one dim"},
        {"state $s : f32[]", "at least one dim"},
        {"state $s : carry i32[4]", "a state is f32, bf16 or f16"},
        {"state $s : window q8[4, 32]", "a state is f32, bf16 or f16"},
        {"state $s : i32[C, 2]", "a state is f32, bf16 or f16"},
        {"state $s : carry f32[2147483647, 2147483647, 2147483647]",
         "more elements than can be counted"},
        {"state $s : scores f32[4, 6]", "scores are f32[C, heads]"},
        {"state $s : scores f32[C]", "scores are f32[C, heads]"},
        {"state $s : scores f32[C, 2, 6]", "scores are f32[C, heads]"},
        {"state $s : scores f32[C/2, 6]", "scores are f32[C, heads]"},
        {"state $s : scores bf16[C, 6]", "scores are f32[C, heads]"},
        {"state $s : scores f32[T, 6]", "scores are f32[C, heads]"},
        {"state $s : windw f32[3, 96]", "there is no kind of state 'windw'"},
        {"state $s : window", "expected"},
        {"state $s : window window f32[3, 96]", "there is no"},
        {"state $s window : f32[3, 96]", "expected ':'"},
    };
    for (size_t i = 0; i < sizeof rejected / sizeof *rejected; i++) {
        cr_expect_null(parse(hd_printf(arena, G "%s\n" F, rejected[i].declaration)), "%s",
                       rejected[i].declaration);
        cr_expect(strstr(said(), rejected[i].message), "%s\n%s", rejected[i].declaration, said());
    }
}

Test(states, how_each_kind_lies_in_memory) {
    static const struct {
        const char *declaration;
        hir_state_shape shape;
    } all[] = {
        {"state $s : f32[C, 2, 8]", {1, 0, 2, 8}},
        {"state $s : f32[C, 7]", {1, 0, 1, 7}},
        {"state $s : f32[C/4, 2, 8]", {4, 0, 2, 8}},
        {"state $s : window f32[3, 96]", {1, 3, 1, 96}},
        {"state $s : window f32[512, 2, 8]", {1, 512, 2, 8}},
        {"state $s : carry f32[4, 32, 32]", {1, 1, 1, 4096}},
        {"state $s : carry f32[5]", {1, 1, 1, 5}},
        {"state $s : scores f32[C, 6]", {1, 0, 1, 6}},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const hir_state s = state_of(all[i].declaration);
        const hir_state_shape shape = hir_shape_of_state(&s);
        cr_expect(shape.rate == all[i].shape.rate && shape.rows == all[i].shape.rows &&
                      shape.heads == all[i].shape.heads && shape.width == all[i].shape.width,
                  "%s: %ld rows, %ld heads of %ld", all[i].declaration, (long)shape.rows,
                  (long)shape.heads, (long)shape.width);
    }
}

Test(states, the_type_of_a_kind_is_that_of_this_kind_alone) {
    hir_module *m = parse(G "state $k : f32[C, 2, 8]\nstate $w : window f32[3, 96]\n"
                            "state $s : carry f32[4]\n" F);
    hir_set_state_dtype(m, HIR_STATE_CACHE, HIR_BF16);
    cr_assert_eq(m->states.at[0].type.dtype, HIR_BF16);
    cr_assert_eq(m->states.at[1].type.dtype, HIR_F32);
    cr_assert_eq(m->states.at[2].type.dtype, HIR_F32);
    hir_set_state_dtype(m, HIR_STATE_CARRY, HIR_F16);
    cr_assert_eq(m->states.at[0].type.dtype, HIR_BF16);
    cr_assert_eq(m->states.at[1].type.dtype, HIR_F32);
    cr_assert_eq(m->states.at[2].type.dtype, HIR_F16);
}

Test(states, an_op_takes_the_kind_that_it_is_for) {
    cr_assert_null(parse("hir 1 graph @m\n\nstate $w : window f32[3, 2, 8]\n\n"
                         "func(%x: f32[T, 2, 8]) {\n  %0 = cache_append %x, $w\n}\n"));
    cr_assert(strstr(said(), "the state must be f32[C, 2, 8], not f32[3, 2, 8]"), "%s", said());
}

/* The table in docs/ir.md is that of states.def. */
Test(states, the_page_is_the_table) {
    FILE *f = fopen(TEST_DATA "/../docs/ir.md", "r");
    cr_assert_not_null(f);
    char *page = hd_alloc(arena, 1, 1 << 20);
    cr_assert_gt(fread(page, 1, (1 << 20) - 1, f), 0);
    fclose(f);
    for (int i = 0; i < HIR_STATE_KINDS; i++) {
        const hir_state_kind_info *k = hir_state_kind_of((hir_state_kind)i);
        const char *row = hd_printf(arena, "| `%s` | %s | %s | %s | %s | %s | %s |\n", k->word,
                                    k->doc, k->dims, k->growth, k->rewinding, k->saved, k->address);
        cr_expect(strstr(page, row), "docs/ir.md lacks:\n%s", row);
    }
}

/* ---- ops ------------------------------------------------------------------------------------- */
Test(states, traits_of_ops_with_state_belong_together) {
    for (int i = 0; i < HIR_OPCODE_COUNT; i++) {
        const hir_opcode code = (hir_opcode)i;
        const char *name = hir_info(code)->name;
        const hir_signature s = hir_signature_of(code);
        uint32_t states = 0, first = HIR_NONE;
        for (uint32_t j = 0; j < s.n_operands; j++) {
            if (s.operands[j].state && !states++) first = j;
            cr_expect_str_neq(s.operands[j].name, s.operands[j].state ? "" : "state", "%s", name);
        }
        cr_expect_eq(first, hir_state_operand(code), "%s", name);
        cr_expect_leq(states, 1, "%s", name);
        if (hir_has_trait(code, HIR_WRITES_STATE)) {
            cr_expect_eq(states, 1, "%s has no state to write", name);
            cr_expect(hir_has_trait(code, HIR_EFFECT), "%s would be dropped", name);
        }
        if (states) /* rows of a batch belong to different states */
            cr_expect(hir_has_trait(code, HIR_POSITION), "%s", name);
        if (hir_has_trait(code, HIR_SEQUENCE))
            cr_expect(!hir_has_trait(code, HIR_LOCAL) && hir_has_trait(code, HIR_POSITION), "%s",
                      name);
    }
}

/* A model for each op that changes state, in whose kernel something is made that only the logits
 * read: rows that nobody asks for could be left out, if it were not for the state. */
static const struct {
    const char *op, *text;
} writers[] = {
    {"cache_append", "hir 1 graph @m\n\nweight @e : f32[40, 16]\n\nstate $k : f32[C, 2, 8]\n\n"
                     "func(%t: i32[T]) {\n"
                     "  %0 = gather @e, %t : f32[T, 16]\n"
                     "  %1 = reshape %0 {shape = [T, 2, 8]} : f32[T, 2, 8]\n"
                     "  %2 = cache_append %1, $k : f32[C, 2, 8]\n"
                     "  %3 = silu %0 : f32[T, 16]\n"
                     "  output %3 {name = \"logits\"}\n}\n"},
    {"short_conv", "hir 1 graph @m\n\nweight @e : f32[40, 16]\nweight @w : f32[16, 4]\n\n"
                   "state $s : window f32[3, 16]\n\n"
                   "func(%t: i32[T]) {\n"
                   "  %0 = gather @e, %t : f32[T, 16]\n"
                   "  %1 = short_conv %0, @w, _, $s : f32[T, 16]\n"
                   "  %2 = silu %1 : f32[T, 16]\n"
                   "  output %2 {name = \"logits\"}\n}\n"},
    {"ngram_gather", "hir 1 graph @m\n\nweight @e : f32[40, 16]\nstate $s : window f32[1, 1]\n\n"
                     "func(%t: i32[T]) {\n"
                     "  %0 = ngram_gather %t, @e, $s {multipliers = [3, 0, 5, 0], sizes = [40], "
                     "offsets = [0], eos = "
                     "1} : f32[T, 1, 16]\n"
                     "  %1 = reshape %0 {shape = [T, 16]} : f32[T, 16]\n"
                     "  %2 = silu %1 : f32[T, 16]\n"
                     "  output %2 {name = \"logits\"}\n}\n"},
    {"pool", "hir 1 graph @m\n\nweight @e : f32[40, 16]\nstate $s : window f32[3, 32]\n\n"
             "func(%t: i32[T]) {\n"
             "  %0 = gather @e, %t : f32[T, 16]\n"
             "  %1 = pool %0, %0, _, $s {length = 4} : f32[T, 16]\n"
             "  %2 = silu %1 : f32[T, 16]\n"
             "  output %2 {name = \"logits\"}\n}\n"},
    {"delta_rule", "hir 1 graph @m\n\nweight @e : f32[40, 16]\n\n"
                   "state $s : carry f32[2, 8, 8]\n\n"
                   "func(%t: i32[T]) {\n"
                   "  %0 = gather @e, %t : f32[T, 16]\n"
                   "  %1 = reshape %0 {shape = [T, 2, 8]} : f32[T, 2, 8]\n"
                   "  %2 = reduce_mean %1 {axis = 2} : f32[T, 2]\n"
                   "  %3 = delta_rule %1, %1, %1, _, %2, $s : f32[T, 2, 8]\n"
                   "  %4 = reshape %3 {shape = [T, 16]} : f32[T, 16]\n"
                   "  %5 = silu %4 : f32[T, 16]\n"
                   "  output %5 {name = \"logits\"}\n}\n"},
    {"attention.carried",
     "hir 1 depth @m\n\nweight @e : f32[40, 16]\n\n"
     "state $k : f32[C, 2, 8]\nstate $s : scores f32[C, 2]\n\n"
     "func(%t: i32[T]) {\n"
     "  %0 = gather @e, %t : f32[T, 16]\n"
     "  %1 = reshape %0 {shape = [T, 2, 8]} : f32[T, 2, 8]\n"
     "  %2 = cache_append %1, $k : f32[C, 2, 8]\n"
     "  %3 = attention.carried %1, %2, %2, _, $s {scale = 1, begin = 1} : f32[T, 2, 8]\n"
     "  %4 = reshape %3 {shape = [T, 16]} : f32[T, 16]\n"
     "  %5 = silu %4 : f32[T, 16]\n"
     "  output %5 {name = \"logits\"}\n}\n"},
};

/* What an op writes for the tokens of its call alone is read for these tokens alone. */
static bool is_of_call(const hir_module *m) {
    return m->states.n > 1 && hir_is_of_call(&m->states.at[1]);
}

static const char *model_with(const char *op) {
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++)
        if (strcmp(writers[i].op, op) == 0) return writers[i].text;
    cr_assert_fail("a model with %s belongs into `writers`: every op that changes state is tested",
                   op);
    return NULL;
}

static void expect_all_rows(bench *b, hir_opcode code) {
    bool found = false;
    HIR_EACH(b->m, kernel, b->m->first)
    HIR_EACH(b->m, op, hir_op_at(b->m, kernel)->body_first) {
        if (hir_op_at(b->m, op)->code != code) continue;
        found = true;
        cr_expect(hir_writes_state(b->m, kernel));
        if (code != HIR_CACHE_APPEND_OP && is_of_call(b->m)) {
            cr_expect(hir_may_skip_rows(b->m, kernel));
            cr_expect_str_eq(hir_attr_string(hir_op_at(b->m, kernel), HIR_A_ROWS, ""), "last");
            cr_assert(hir_verify_kernels(b->m, &b->diags), "%s", errors_of(b));
            return;
        }
        cr_expect_not(hir_may_skip_rows(b->m, kernel));
        cr_expect_str_eq(hir_attr_string(hir_op_at(b->m, kernel), HIR_A_ROWS, ""), "all");
        cr_expect_not(hir_runs_once(b->m, kernel));
        cr_assert(hir_verify_kernels(b->m, &b->diags), "%s", errors_of(b));
        hir_set_attr(b->m, kernel, hir_string(HIR_A_ROWS, "last"));
        cr_expect_not(hir_verify_kernels(b->m, &b->diags));
        cr_expect(strstr(errors_of(b), "state is written for all rows"), "%s", errors_of(b));
        return;
    }
    cr_assert(found, "%s is in no kernel:\n%s", hir_info(code)->name, text_of(b));
}

Test(states, what_changes_state_does_all_rows) {
    for (int i = 0; i < HIR_OPCODE_COUNT; i++) {
        if (!hir_has_trait((hir_opcode)i, HIR_WRITES_STATE)) continue;
        bench b = new_bench(model_with(hir_info((hir_opcode)i)->name));
        cr_assert(b.m && run_all(&b, true, NULL), "%s", errors_of(&b));
        expect_all_rows(&b, (hir_opcode)i);
        hd_arena_free(b.arena);
    }
}

/* The text of a source file says whether it asks for an op that changes state by its name. A row of
 * a table by op, [NAME] = .., is no question. */
static void expect_no_name(const char *path) {
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f, "%s", path);
    char *text = hd_alloc(arena, 1, 1 << 20);
    cr_assert_gt(fread(text, 1, (1 << 20) - 1, f), 0);
    fclose(f);
    for (int i = 0; i < HIR_OPCODE_COUNT; i++) {
        if (!hir_has_trait((hir_opcode)i, HIR_WRITES_STATE)) continue;
        char *name = hd_printf(arena, "HIR_%s_OP", hir_info((hir_opcode)i)->name);
        for (char *c = name; *c; c++)
            *c = *c == '.' ? '_' : (char)toupper((unsigned char)*c);
        for (const char *at = text; (at = strstr(at, name)); at++)
            cr_expect(at > text && at[-1] == '[', "%s asks for %s, not for the trait", path, name);
    }
}

Test(states, nobody_asks_for_such_an_op_by_its_name) {
    static const char *const patterns[] = {
        "ir/*.c",      "ir/*/*.c",    "passes/*.c",    "passes/*/*.c",    "api/*.c",
        "inspect/*.c", "codegen/*.c", "codegen/*/*.c", "codegen/*/*/*.c", "codegen/*/*/*/*.c"};
    size_t files = 0;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        glob_t all;
        if (glob(hd_printf(arena, TEST_DATA "/../%s", patterns[i]), 0, NULL, &all) != 0) continue;
        for (size_t k = 0; k < all.gl_pathc; k++)
            expect_no_name(all.gl_pathv[k]);
        files += all.gl_pathc;
        globfree(&all);
    }
    cr_expect_gt(files, 50);
}
