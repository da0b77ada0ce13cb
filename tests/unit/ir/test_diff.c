/* hir_diff: pairs of modules that differ in one known way. */
#include "tests/unit/ir/ir_fixture.h"

#include "ir/compare/diff.h"

TestSuite(diff, .init = open_arena, .fini = close_arena);

static hir_diff_counts counts;

static const char *diff(const char *a, const char *b) {
    hir_module *ma = parse(a), *mb = ma ? parse(b) : NULL;
    cr_assert(ma && mb, "%s", said());
    hd_text out;
    hd_text_init(&out, arena);
    hd_text_add(&out, "");
    counts = hir_diff(ma, mb, &out);
    return out.at;
}

static void expect_counts(size_t added, size_t removed, size_t changed, size_t moved,
                          const char *text) {
    cr_expect(counts.added == added && counts.removed == removed && counts.changed == changed &&
                  counts.moved == moved,
              "%zu added, %zu removed, %zu changed, %zu moved:\n%s", counts.added, counts.removed,
              counts.changed, counts.moved, text);
}

static void expect_text(const char *text, const char *part) {
    cr_expect(strstr(text, part), "\"%s\" is not in:\n%s", part, text);
}

#define HEAD                                                                                       \
    "hir 1 graph @m\n\nweight @w : f32[8, 8]\nweight @v : f32[8, 8]\nweight @g : f32[8]\n\n"       \
    "func(%x: f32[T, 8]) {\n"
static const char chain[] = HEAD "  %a = linear %x, @w : f32[T, 8]\n"
                                 "  %b = silu %a : f32[T, 8]\n"
                                 "  %c = rmsnorm %b, @g {eps = 1e-06} : f32[T, 8]\n"
                                 "  %d = add %c, %x : f32[T, 8]\n"
                                 "  output %d {name = \"o\"}\n}\n";

Test(diff, nothing) {
    cr_expect_str_eq(diff(chain, chain), "");
    expect_counts(0, 0, 0, 0, "");
    cr_expect_gt(counts.same, 5);
}

Test(diff, names_and_numbers_are_nothing) {
    const char *other = HEAD "  %0 = linear %x, @w : f32[T, 8]\n"
                             "  %q = silu %0 : f32[T, 8]\n"
                             "  %1 = rmsnorm %q, @g {eps = 1e-06} : f32[T, 8]\n"
                             "  %2 = add %1, %x : f32[T, 8]\n"
                             "  output %2 {name = \"o\"}\n}\n";
    cr_expect_str_eq(diff(chain, other), "");
}

Test(diff, places_in_the_spec_are_nothing) {
    const char *a =
        HEAD "  %b = silu %x : f32[T, 8] loc \"m\":1:2\n  output %b {name = \"o\"}\n}\n";
    const char *b = HEAD "  %b = silu %x : f32[T, 8]\n  output %b {name = \"o\"}\n}\n";
    cr_expect_str_eq(diff(a, b), "");
}

Test(diff, an_attribute) {
    const char *other = HEAD "  %a = linear %x, @w : f32[T, 8]\n"
                             "  %b = silu %a : f32[T, 8]\n"
                             "  %c = rmsnorm %b, @g {eps = 1e-05} : f32[T, 8]\n"
                             "  %d = add %c, %x : f32[T, 8]\n"
                             "  output %d {name = \"o\"}\n}\n";
    const char *text = diff(chain, other);
    expect_counts(0, 0, 1, 0, text);
    expect_text(text, "~ %c = rmsnorm %b, @g {eps = 1e-05} : f32[T, 8]\n    eps: 1e-06 -> 1e-05\n");
}

Test(diff, an_op_put_between) {
    const char *other = HEAD "  %a = linear %x, @w : f32[T, 8]\n"
                             "  %b = silu %a : f32[T, 8]\n"
                             "  %n = neg %b : f32[T, 8]\n"
                             "  %c = rmsnorm %n, @g {eps = 1e-06} : f32[T, 8]\n"
                             "  %d = add %c, %x : f32[T, 8]\n"
                             "  output %d {name = \"o\"}\n}\n";
    const char *text = diff(chain, other);
    expect_counts(1, 0, 1, 0, text);
    expect_text(text, "+ %n = neg %b : f32[T, 8]\n");
    expect_text(text, "    operand 0: %b (silu) -> %n (neg)\n");
    text = diff(other, chain);
    expect_counts(0, 1, 1, 0, text);
    expect_text(text, "- %n = neg %b : f32[T, 8]\n");
}

Test(diff, another_op) {
    const char *other = HEAD "  %a = linear %x, @w : f32[T, 8]\n"
                             "  %b = gelu %a : f32[T, 8]\n"
                             "  %c = rmsnorm %b, @g {eps = 1e-06} : f32[T, 8]\n"
                             "  %d = add %c, %x : f32[T, 8]\n"
                             "  output %d {name = \"o\"}\n}\n";
    const char *text = diff(chain, other);
    expect_counts(1, 1, 1, 0, text);
    expect_text(text, "- %b = silu");
    expect_text(text, "+ %b = gelu");
}

Test(diff, another_weight) {
    const char *other = HEAD "  %a = linear %x, @v : f32[T, 8]\n"
                             "  %b = silu %a : f32[T, 8]\n"
                             "  %c = rmsnorm %b, @g {eps = 1e-06} : f32[T, 8]\n"
                             "  %d = add %c, %x : f32[T, 8]\n"
                             "  output %d {name = \"o\"}\n}\n";
    const char *text = diff(chain, other);
    expect_counts(0, 0, 1, 0, text);
    expect_text(text, "    operand 1: @w -> @v\n");
}

Test(diff, operands_swapped) {
    const char *a = HEAD "  %a = silu %x : f32[T, 8]\n  %b = neg %x : f32[T, 8]\n"
                         "  %s = sub %a, %b : f32[T, 8]\n  output %s {name = \"o\"}\n}\n";
    const char *b = HEAD "  %a = silu %x : f32[T, 8]\n  %b = neg %x : f32[T, 8]\n"
                         "  %s = sub %b, %a : f32[T, 8]\n  output %s {name = \"o\"}\n}\n";
    const char *text = diff(a, b);
    expect_counts(0, 0, 1, 0, text);
    expect_text(text, "operand 0: %a (silu) -> %b (neg)");
    expect_text(text, "operand 1: %b (neg) -> %a (silu)");
}

Test(diff, order) {
    const char *a = HEAD "  %a = silu %x : f32[T, 8]\n  %b = neg %x : f32[T, 8]\n"
                         "  %c = exp %x : f32[T, 8]\n  output %a {name = \"a\"}\n"
                         "  output %b {name = \"b\"}\n  output %c {name = \"c\"}\n}\n";
    const char *b = HEAD "  %b = neg %x : f32[T, 8]\n  %c = exp %x : f32[T, 8]\n"
                         "  %a = silu %x : f32[T, 8]\n  output %a {name = \"a\"}\n"
                         "  output %b {name = \"b\"}\n  output %c {name = \"c\"}\n}\n";
    const char *text = diff(a, b);
    expect_counts(0, 0, 0, 1, text);
    expect_text(text, "> %a = silu %x : f32[T, 8]  (another order)\n");
}

Test(diff, one_of_many_equal_ops) {
    /* the second of three equal expressions goes: its reader tells which it was */
    const char *a = HEAD "  %1 = neg %x : f32[T, 8]\n  %a = silu %1 : f32[T, 8]\n"
                         "  %2 = neg %x : f32[T, 8]\n  %b = exp %2 : f32[T, 8]\n"
                         "  %3 = neg %x : f32[T, 8]\n  %c = tanh %3 : f32[T, 8]\n"
                         "  output %a {name = \"a\"}\n  output %b {name = \"b\"}\n"
                         "  output %c {name = \"c\"}\n}\n";
    const char *b = HEAD "  %1 = neg %x : f32[T, 8]\n  %a = silu %1 : f32[T, 8]\n"
                         "  %3 = neg %x : f32[T, 8]\n  %c = tanh %3 : f32[T, 8]\n"
                         "  output %a {name = \"a\"}\n  output %c {name = \"c\"}\n}\n";
    const char *text = diff(a, b);
    expect_counts(0, 3, 0, 0, text);
    expect_text(text, "- %1 = neg %x"); /* unnamed values are printed as 0, 1, 2 */
    expect_text(text, "- %b = exp %1");
}

Test(diff, tables) {
    const char *a =
        "hir 1 graph @m\n\noption n = \"1\"\noption gone = \"x\"\n\nweight @w : f32[8, 8]\n"
        "weight @old : f32[4]\n\nfunc(%x: f32[T, 8]) {\n"
        "  %a = linear %x, @w : f32[T, 8]\n  output %a {name = \"o\"}\n}\n";
    const char *b =
        "hir 1 graph @m\n\noption n = \"2\"\n\nweight @new : f32[4]\n"
        "weight @w : bf16[8, 8]\n\nstate $k : f32[C, 4]\n\nfunc(%y: f32[T, 8], %z: f32[T]) "
        "{\n  %a = linear %y, @w : f32[T, 8]\n  output %a {name = \"o\"}\n}\n";
    const char *text = diff(a, b);
    expect_counts(3, 2, 3, 0, text);
    expect_text(text, "~ option n = \"1\" -> \"2\"\n");
    expect_text(text, "- option gone = \"x\"\n");
    expect_text(text, "- weight @old : f32[4]\n+ weight @new : f32[4]\n");
    expect_text(text, "~ weight @w\n    type: f32[8, 8] -> bf16[8, 8]\n");
    expect_text(text, "+ state $k : f32[C, 4]\n");
    expect_text(text, "~ input 0\n    name: x -> y\n");
    expect_text(text, "+ input %z : f32[T]\n");
}

Test(diff, derived_weights) {
#define MADE(how)                                                                                  \
    "hir 1 graph @m\n\nweight @a : f32[8]\nweight @b : f32[8]\nweight @m : f32[2, 8]" how          \
    "\n\nfunc(%x: f32[T, 8]) {\n  %y = linear %x, @m : f32[T, 2]\n"                                \
    "  output %y {name = \"o\"}\n}\n"
    const char *text = diff(MADE(" = @a, @b"), MADE(" = @b, @a"));
    expect_counts(0, 0, 1, 0, text);
    expect_text(text, "~ weight @m\n    derived from: @a, @b -> @b, @a\n");
}

/* ---- kernels --------------------------------------------------------------------------------- */
#define KERNEL_HEAD                                                                                \
    "hir 1 kernel @m\n\narena 64 per token\nfixed 0\n\nfunc(%x: f32[T, 8] in input[0]) {\n"
#define ROW(name, split)                                                                           \
    "kernel.row {name = \"" name                                                                   \
    "\", rows = \"all\", split_decode = \"none\", split_prefill = \"" split "\"}"

static const char two_kernels[] = KERNEL_HEAD "  %k = " ROW(
    "r0", "rows") " : f32[T, 8] in arena[0] {\n"
                  "    %a = silu %x : f32[T, 8]\n    yield %a\n  }\n"
                  "  %l = " ROW("r1", "rows") " : f32[T, 8] in output[0] {\n"
                                              "    %b = neg %k : f32[T, 8]\n    yield %b\n  }\n"
                                              "  output %l {name = \"o\"}\n}\n";

Test(diff, kernel_places_and_attributes) {
    const char *other = KERNEL_HEAD "  %q = " ROW(
        "r7", "none") " : f32[T, 8] in arena[32] {\n"
                      "    %a = silu %x : f32[T, 8]\n    yield %a\n  }\n"
                      "  %l = " ROW("r1", "rows") " : f32[T, 8] in output[0] {\n"
                                                  "    %b = neg %q : f32[T, 8]\n    yield %b\n  }\n"
                                                  "  output %l {name = \"o\"}\n}\n";
    const char *text = diff(two_kernels, other);
    expect_counts(0, 0, 1, 0, text);
    expect_text(text, "    name: \"r0\" -> \"r7\"\n");
    expect_text(text, "    split_prefill: \"rows\" -> \"none\"\n");
    expect_text(text, "    place of result 0: arena[0] -> arena[32]\n");
}

Test(diff, kernel_bodies) {
    const char *other = KERNEL_HEAD "  %k = " ROW(
        "r0", "rows") " : f32[T, 8] in arena[0] {\n"
                      "    %a = silu %x : f32[T, 8]\n    yield %a\n  }\n"
                      "  %l = " ROW("r1", "rows") " : f32[T, 8] in output[0] {\n"
                                                  "    %b = neg %k : f32[T, 8]\n"
                                                  "    %c = exp %b : f32[T, 8]\n    yield %c\n  }\n"
                                                  "  output %l {name = \"o\"}\n}\n";
    const char *text = diff(two_kernels, other);
    expect_text(text, "in r1:\n  + %c = exp %b : f32[T, 8]\n");
    expect_text(text, "lost result: %l (neg)");
    expect_text(text, "new result: %l (exp)");
    cr_expect(!strstr(text, "r0"), "%s", text);
}

/* Two kernels become one: the grouping changed, no op did. */
Test(diff, kernels_merged) {
    const char *other =
        KERNEL_HEAD "  %l = " ROW("r1", "rows") " : f32[T, 8] in output[0] {\n"
                                                "    %a = silu %x : f32[T, 8]\n"
                                                "    %b = neg %a : f32[T, 8]\n    yield %b\n  }\n"
                                                "  output %l {name = \"o\"}\n}\n";
    const char *text = diff(two_kernels, other);
    cr_expect_eq(counts.added, 0, "%s", text);
    cr_expect_eq(counts.removed, 1, "%s", text);
    expect_text(text, "(from ");
    cr_expect(!strstr(text, "- %a"), "%s", text);
    cr_expect(!strstr(text, "- %b"), "%s", text);
}

/* Graph to kernels: everything moved, nothing else. */
Test(diff, grouping_is_no_new_op) {
    const char *graph = "hir 1 kernel @m\n\narena 64 per token\nfixed 0\n\n"
                        "func(%x: f32[T, 8] in input[0]) {\n"
                        "  %a = silu %x : f32[T, 8]\n  %b = neg %a : f32[T, 8]\n"
                        "  output %b {name = \"o\"}\n}\n";
    const char *text = diff(graph, two_kernels);
    expect_counts(2, 0, 0, 2, text); /* the kernels */
    expect_text(text, "> 1 ops that were elsewhere");
}

/* A module against itself with one op gone, for every op of a few hundred: never more than that op
 * and its readers. */
Test(diff, long_chain) {
    enum { N = 400 };
    for (int gone = 1; gone < N; gone += 37) {
        hd_text a, b;
        hd_text_init(&a, arena);
        hd_text_init(&b, arena);
        hd_text_add(&a, HEAD "  %v0 = silu %x : f32[T, 8]\n");
        hd_text_add(&b, HEAD "  %v0 = silu %x : f32[T, 8]\n");
        for (int i = 1; i < N; i++) {
            const char *op = i % 3 ? (i % 3 == 1 ? "neg" : "silu") : "tanh";
            hd_text_f(&a, "  %%v%d = %s %%v%d : f32[T, 8]\n", i, op, i - 1);
            if (i == gone) continue;
            hd_text_f(&b, "  %%v%d = %s %%v%d : f32[T, 8]\n", i, op, i - 1 == gone ? i - 2 : i - 1);
        }
        hd_text_f(&a, "  output %%v%d {name = \"o\"}\n}\n", N - 1);
        hd_text_f(&b, "  output %%v%d {name = \"o\"}\n}\n", N - 1);
        const char *text = diff(a.at, b.at);
        expect_counts(0, 1, 1, 0, text);
    }
}

/* Each op of a stage is marked as it is counted. */
Test(diff, marks_are_what_is_counted) {
    const char *other = HEAD "  %a = linear %x, @w : f32[T, 8]\n"
                             "  %b = gelu %a : f32[T, 8]\n"
                             "  %e = relu %b : f32[T, 8]\n"
                             "  %c = rmsnorm %e, @g {eps = 1e-05} : f32[T, 8]\n"
                             "  %d = add %c, %x : f32[T, 8]\n"
                             "  output %d {name = \"o\"}\n}\n";
    hir_module *a = parse(chain), *b = parse(other);
    hd_text out;
    hd_text_init(&out, arena);
    hir_diff_found found;
    hir_diff_find(a, b, &out, &found);
    size_t marks[HIR_DIFF_REMOVED + 1] = {0};
    HIR_EACH(b, op, b->first) {
        marks[found.mark_b[op]]++;
    }
    HIR_EACH(a, op, a->first) {
        marks[HIR_DIFF_REMOVED] += found.mark_a[op] == HIR_DIFF_REMOVED;
    }
    cr_expect_eq(marks[HIR_DIFF_ADDED], found.counts.added);
    cr_expect_eq(marks[HIR_DIFF_CHANGED], found.counts.changed);
    cr_expect_eq(marks[HIR_DIFF_MOVED], found.counts.moved);
    cr_expect_eq(marks[HIR_DIFF_REMOVED], found.counts.removed);
    cr_expect_gt(found.counts.added + found.counts.changed, 1, "%s", out.at);
}
