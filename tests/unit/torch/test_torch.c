/* Graphs as Python: what becomes a loop and a function, what has no form, and the sources that are
 * copied. What the text computes is compared by tests/tools/torch_witness.py. */
#include <ctype.h>

#include "tests/unit/ir/ir_fixture.h"
#include "torch/program.h"
#include "torch/torch.h"

TestSuite(torch, .init = open_arena, .fini = close_arena);

/* From the names of parameters on. */
static const char *all_written(const char *text) {
    hir_module *m = parse(text);
    cr_assert_not_null(m, "%s", said());
    hd_text out;
    hd_text_init(&out, arena);
    return hpt_write(m, &diags, &out) ? strstr(out.at, "\ndef names():") : NULL;
}

static const char *written(const char *text) {
    const char *all = all_written(text);
    return all ? strstr(all, "# ---- the model ----") : NULL;
}

static void has(const char *text, const char *part) {
    cr_assert_not_null(text, "%s", said());
    cr_assert_not_null(strstr(text, part), "there is no\n%s\nin\n%s", part, text);
}

static const char *source(const char *name) {
    size_t i = 0;
    while (strcmp(hpt_sources[i].name, name) != 0)
        i++;
    return hpt_sources[i].text;
}

/* Does `text` have the word, not as a part of another? */
static bool has_word(const char *text, const char *end, const char *word, size_t n) {
    for (const char *at = text; (at = strstr(at, word)) && at < end; at++)
        if (!isalnum(at[-1]) && at[-1] != '_' && !isalnum(at[n]) && at[n] != '_') return true;
    return false;
}

Test(torch, each_op_that_is_called_has_a_function_with_its_attributes) {
    for (int code = 0; code < HIR_OPCODE_COUNT; code++) {
        const hpt_python *how = hpt_python_of((hir_opcode)code);
        const hir_op_info *info = hir_info((hir_opcode)code);
        cr_assert_eq(how != NULL, info->stage == HIR_STAGE_GRAPH, "%s", info->name);
        if (!how || (how->form != HPT_CALL && how->form != HPT_TOKENS)) continue;
        const char *head = hd_printf(arena, "\ndef %s(", info->name);
        const char *f = strstr(source("ops.py"), head), *end = f ? strstr(f, "):\n") : NULL;
        cr_assert_not_null(end, "torch/ops.py has no function %s", info->name);
        for (const char *a = info->attrs; *a;) {
            const size_t n = strcspn(a, " ?");
            const char *word = hd_strndup(arena, a, n);
            cr_assert(has_word(f, end, word, n), "%s has no argument %s", info->name, word);
            a += n + strspn(a + n, " ?");
        }
    }
}

#define HEAD "hir 1 graph @m\n\n"
#define TAIL "  output %y {name = \"logits\"}\n}\n"

Test(torch, the_same_op_on_its_own_result_is_a_loop) {
    const char *y =
        written(HEAD "weight @t : f32[8, 4]\n\nfunc(%tokens: i32[T]) {\n"
                     "  %a = gather @t, %tokens\n  %b = tanh %a\n  %c = tanh %b\n"
                     "  %d = tanh %c\n  %e = tanh %d\n  %f = tanh %e\n  %y = tanh %f\n" TAIL);
    has(y, "for l in range(6):\n            x = torch.tanh(x)\n        return x");
}

Test(torch, numbers_and_names_of_a_loop_are_computed) {
    const char *y = written(
        HEAD
        "weight @t : f32[8, 4]\nweight @a.1.w : f32[4, 4]\nweight @a.3.w : f32[4, 4]\n"
        "weight @a.5.w : f32[4, 4]\nweight @a.7.w : f32[4, 4]\n\nfunc(%tokens: i32[T]) {\n"
        "  %a = gather @t, %tokens\n  %1 = linear %a, @a.1.w\n  %c1 = const {shape = [], value = "
        "3}\n"
        "  %2 = mul %1, %c1\n  %3 = linear %2, @a.3.w\n  %c2 = const {shape = [], value = 7}\n"
        "  %4 = mul %3, %c2\n  %5 = linear %4, @a.5.w\n  %c3 = const {shape = [], value = 11}\n"
        "  %6 = mul %5, %c3\n  %7 = linear %6, @a.7.w\n  %c4 = const {shape = [], value = 15}\n"
        "  %y = mul %7, %c4\n" TAIL);
    has(y, "for l in range(1, 8, 2):\n            x = linear(x, self[f\"a.{l}.w\"]) * (2 * l + 1)");
}

Test(torch, a_list_grows_in_a_loop_and_is_read_after_it) {
    const char *y =
        written(HEAD "weight @t : f32[8, 4]\n\nfunc(%tokens: i32[T]) {\n  %a = gather @t, %tokens\n"
                     "  %s1 = stack %a {axis = 1}\n  %1 = reduce_sum %s1 {axis = 1}\n"
                     "  %s2 = stack %a, %1 {axis = 1}\n  %2 = reduce_sum %s2 {axis = 1}\n"
                     "  %s3 = stack %a, %1, %2 {axis = 1}\n  %3 = reduce_sum %s3 {axis = 1}\n"
                     "  %s4 = stack %a, %1, %2, %3 {axis = 1}\n  %4 = reduce_sum %s4 {axis = 1}\n"
                     "  %s = concat %a, %1, %2, %3, %4 {axis = 1}\n  %y = tanh %s\n" TAIL);
    has(y, "xs = [x]\n        for l in range(4):\n            y = torch.stack(xs, 1).sum(1)\n"
           "            xs = xs + [y]\n        return torch.tanh(torch.cat(xs, 1))");
}

Test(torch, results_of_earlier_rounds_are_kept_where_they_are_read) {
    const char *y = written(HEAD "weight @t : f32[8, 4]\n\nfunc(%tokens: i32[T]) {\n"
                                 "  %a = gather @t, %tokens\n  %b = tanh %a\n  %c = tanh %b\n"
                                 "  %d = tanh %c\n  %e = tanh %d\n  %1 = tanh %e\n  %2 = tanh %1\n"
                                 "  %3 = tanh %2\n  %f = add %3, %c\n  %y = add %f, %a\n" TAIL);
    has(y, "for l in range(7):");
    has(y, "xs = xs + [");
    has(y, " + xs[1] + ");
}

/* Nodes that read what two iterations before have made are no loop that carries one iteration's. */
Test(torch, what_does_not_fit_a_loop_is_none) {
    const char *y = written(HEAD "weight @t : f32[8, 4]\n\nfunc(%tokens: i32[T]) {\n"
                                 "  %a = gather @t, %tokens\n  %b = tanh %a\n  %c = add %a, %b\n"
                                 "  %d = add %b, %c\n  %e = add %c, %d\n  %y = add %d, %e\n" TAIL);
    cr_assert_not_null(y);
    cr_assert_null(strstr(y, "for l in"), "%s", y);
}

Test(torch, results_that_only_traces_read_vanish) {
    const char *y = written(HEAD "weight @t : f32[8, 4]\n\nfunc(%tokens: i32[T]) {\n"
                                 "  %a = gather @t, %tokens\n  %b = exp %a\n"
                                 "  trace %b {name = \"seen\"}\n  %y = tanh %a\n" TAIL);
    has(y, "torch.tanh");
    cr_assert_null(strstr(y, "torch.exp"), "%s", y);
}

Test(torch, a_module_without_tokens_is_a_checkpoint_with_a_forward) {
    const char *y = written(HEAD "weight @w : f32[4, 4]\n\nfunc(%x: f32[T, 4]) {\n"
                                 "  %1 = linear %x, @w\n  output %1 {name = \"a\"}\n"
                                 "  %2 = neg %1\n  output %2 {name = \"b\"}\n}\n");
    has(y, "class Model(Checkpoint):\n    def sequence(self, x):");
    has(y, "return {\"a\": ");
    has(y, "def forward(self, *inputs):");
}

/* Names are written so that they are read as they are, whatever they hold. */
Test(torch, names_with_quotes_braces_and_lines_are_texts_of_python) {
    const char *text = HEAD "weight @\"a\\\"b\\n{c}\\\\\" : f32[4, 4]\n\n"
                            "func(%\"not a word\": f32[T, 4]) {\n"
                            "  %1 = linear %\"not a word\", @\"a\\\"b\\n{c}\\\\\"\n"
                            "  output %1 {name = \"y\"}\n}\n";
    has(written(text), "def sequence(self, x):");
    has(written(text), "self[\"a\\\"b\\x0a{c}\\\\\"]");
}

/* What is computed of weights alone is a property of their scope; what only moves elements is not. */
Test(torch, derived_weights_are_properties) {
    const char *text = "weight @layers.0.log : f32[4]\nweight @layers.1.log : f32[4]\n"
                       "weight @layers.0.w : f32[2, 2]\n\nfunc(%x: f32[T, 4]) {\n"
                       "  %0 = exp @layers.0.log\n  %1 = mul %x, %0\n"
                       "  %2 = exp @layers.1.log\n  %3 = mul %1, %2\n"
                       "  %4 = reshape @layers.0.w {shape = [4]}\n  %5 = mul %3, %4\n"
                       "  output %5 {name = \"y\"}\n}\n";
    const char *y = all_written(hd_printf(arena, "%s%s", HEAD, text));
    has(y, "# layers.*\ndef derived_log(w):\n    return torch.exp(w[\"log\"])\n");
    has(y, "Weights.derived_log = property(derived_log)\n");
    has(y, "x * self[\"layers.0\"].derived_log * self[\"layers.1\"].derived_log * "
           "self[\"layers.0.w\"].reshape(4)");
}

/* Numbers that differ from layer to layer leave the layers one function. */
Test(torch, expressions_with_numbers_of_their_own_stay) {
    const char *y =
        all_written(HEAD "weight @layers.0.log : f32[4]\nweight @layers.1.log : f32[4]\n\n"
                         "func(%x: f32[T, 4]) {\n"
                         "  %c = const {value = 2, shape = []}\n  %0 = mul @layers.0.log, %c\n"
                         "  %1 = mul %x, %0\n  %d = const {value = 3, shape = []}\n"
                         "  %2 = mul @layers.1.log, %d\n  %3 = mul %1, %2\n"
                         "  output %3 {name = \"y\"}\n}\n");
    cr_assert_not(strstr(y, "derived"), "%s", y);
    has(y, "self[\"layers.1.log\"] * 3");
}

/* Weights that a pass has derived, in all forms that ir/derived.def has. */
Test(torch, weights_derived_by_passes_are_properties) {
    const char *y = all_written(
        HEAD "weight @m.a : f32[4]\nweight @m.b : f32[2, 4]\n"
             "weight @m.f : f32[2, 4] = @m.a * @m.b\n"
             "weight @m.g : f32[4, 4] = softmax(@m.b)[0:8], @m.b * neg_exp(@m.a)[1:2]\n"
             "weight @m.t : f32[4, 2] = transposed(@m.b[0:8])\n\nfunc(%x: f32[T, 4]) {\n"
             "  %1 = linear %x, @m.f\n  output %1 {name = \"p\"}\n"
             "  %2 = linear %x, @m.g\n  output %2 {name = \"q\"}\n"
             "  %3 = linear %1, @m.t\n  output %3 {name = \"r\"}\n}\n");
    has(y, "# m\ndef derived_f(w):\n    return (w[\"a\"].flatten().reshape(-1, 4) * "
           "w[\"b\"].flatten().reshape(-1, 4)).reshape(2, 4)\n");
    has(y, "return torch.cat([w[\"b\"].flatten().softmax(0)[0:8],\n");
    has(y, "(w[\"b\"].flatten().reshape(-1, 4) * "
           "(-torch.exp(w[\"a\"].flatten()))[1:2].reshape(1, 1)).flatten()]).reshape(4, 4)\n");
    has(y, "return w[\"b\"].flatten()[0:8].reshape(-1, 4).T.flatten().reshape(4, 2)\n");
    has(y, "linear(x, self[\"m\"].derived_f)");
    has(y, "yield \"m.b\", (2, 4)");
    cr_assert_not(strstr(y, "yield \"m.f\""), "%s", y);
}

static void rejected(const char *text, const char *message) {
    cr_assert_null(written(text));
    has(said(), message);
}

Test(torch, what_has_no_form_is_rejected_with_a_reason) {
    rejected("hir 1 depth @m\n\nfunc(%x: f32[T, 4]) {\n"
             "  %1 = depth.inverse_rms %x {eps = 1e-06}\n  output %1 {name = \"a\"}\n}\n",
             "PyTorch is written from the graph, and this is no longer one");
    rejected(HEAD "weight @\"a.#.b\" : f32[4]\n\nfunc(%x: f32[T, 4]) {\n"
                  "  %1 = mul %x, @\"a.#.b\"\n  output %1 {name = \"a\"}\n}\n",
             "weight a.#.b has a # as a part of its name");
    rejected(HEAD "state $k : bf16[C, 1, 4]\n\nfunc(%x: f32[T, 1, 4]) {\n"
                  "  %1 = cache_append %x, $k\n  %2 = attention %x, %1, %1 {scale = 1}\n"
                  "  output %2 {name = \"a\"}\n}\n",
             "state k is bf16: what is stored in it is rounded");
}
