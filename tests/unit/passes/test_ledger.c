/* The data flow of the residual mechanism, and the ledger built on it. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "hadal/hadal.h"
#include "ir/eval/random.h"
#include "passes/analysis/ledger.h"
#include "passes/analysis/paper_forms.h"
#include "tests/unit/arena_fixture.h"
#include "tests/unit/passes/depth_models.h"

#define SPECS TEST_DATA "/../bench/specs/"

TestSuite(ledger, .init = open_arena, .fini = close_arena);

static hir_module *parse(const char *text) {
    hir_module *m = hir_parse(arena, &diags, "test.hir", text);
    if (!m)
        for (size_t i = 0; i < diags.list.n; i++)
            cr_log_error("%s", diags.list.at[i].message);
    cr_assert(m);
    return m;
}

static hir_ledger ledger_of(const char *text) {
    hir_ledger l;
    hir_ledger_find(parse(text), arena, &l);
    return l;
}

static const char *source_text(const hir_flow_input *x) {
    hd_text t;
    hd_text_init(&t, arena);
    hd_text_add(&t, "");
    for (size_t i = 0; i < hir_flow_sources(x); i++) {
        hd_text_add(&t, i == 0 ? "" : i == x->shared ? " | " : " ");
        hir_flow_print_source(hir_flow_source(x, i), &t);
    }
    return t.at;
}

/* ---- small graphs ----------------------------------------------------------------------------
 * Declarations and the embedding; sublayers are a contraction each. */
#define HEAD()                                                                                     \
    "hir 1 graph @m\n\n"                                                                           \
    "weight @embed : f32[20, 16]\n"                                                                \
    "weight @f1 : f32[16, 16]\n"                                                                   \
    "weight @f2 : f32[16, 16]\n"                                                                   \
    "weight @f3 : f32[16, 16]\n"                                                                   \
    "weight @w : f32[1, 16]\n"                                                                     \
    "weight @g : f32[16]\n\n"                                                                      \
    "func(%ids: i32[T]) {\n"                                                                       \
    "  %e = gather @embed, %ids : f32[T, 16]\n"

#define MIX2(to, a, b)                                                                             \
    "  %v" to " = stack " a ", " b " {axis = 1} : f32[T, 2, 16]\n"                                 \
    "  %k" to " = rmsnorm %v" to ", @g {eps = 1e-06} : f32[T, 2, 16]\n"                            \
    "  %l" to " = linear %k" to ", @w, _ : f32[T, 2, 1]\n"                                         \
    "  %a" to " = softmax %l" to " {axis = 1} : f32[T, 2, 1]\n"                                    \
    "  %p" to " = mul %v" to ", %a" to " : f32[T, 2, 16]\n"                                        \
    "  %m" to " = reduce_sum %p" to " {axis = 1} : f32[T, 16]\n"

#define NORM(to, x)   "  %x" to " = rmsnorm " x ", @g {eps = 1e-06} : f32[T, 16]\n"
#define SUB(n)        "  %y" n " = linear %x" n ", @f" n ", _ : f32[T, 16]\n"
#define ADD(to, a, b) "  " to " = add " a ", " b " : f32[T, 16]\n"
#define END(x)                                                                                     \
    NORM("o", x)                                                                                   \
    "  %logits = linear %xo, @embed, _ : f32[T, 20]\n"                                             \
    "  output %logits {name = \"logits\"}\n}\n"

Test(ledger, plain_residual_is_read_and_written_as_in_the_paper) {
    hir_ledger l = ledger_of(HEAD() NORM("1", "%e") SUB("1") ADD("%h1", "%e", "%y1")
                                 NORM("2", "%h1") SUB("2") ADD("%h2", "%h1", "%y2") END("%h2"));
    cr_assert_eq(l.flow.width, 16);
    cr_assert_eq(l.unit, 64);
    cr_assert_eq(l.sublayers, 2);
    cr_assert_eq(l.flow.blocks, 1);
    cr_assert_eq(l.flow.inputs.n, 3);
    cr_assert_str_eq(source_text(&l.flow.inputs.at[0]), "e");
    cr_assert_str_eq(source_text(&l.flow.inputs.at[1]), "e-1");
    cr_assert_str_eq(source_text(&l.flow.inputs.at[2]), "e-2");
    cr_assert_eq(l.flow.inputs.at[2].sublayer, HIR_FLOW_RESULT);
    cr_assert_eq(l.paper.read, 2 * 2 * 64, "h and f");
    cr_assert_eq(l.paper.written, 2 * 64);
    cr_assert_eq(hir_ledger_units(&l, l.paper.read + l.paper.written), 3);
    cr_assert_eq(l.phase[HIR_PHASE_LAYER_INPUT].written, 2 * 64);
    cr_assert_eq(l.phase[HIR_PHASE_OUTPUT].written, 64);
    cr_assert_eq(hir_flow_count_reads(&l.flow, arena).mixes, 0);
}

/* What sublayers add to may be made of the embedding: if nothing else is, the stream begins there. */
Test(ledger, a_stream_begins_behind_what_it_alone_is_made_of) {
#define BEGINS(how)                                                                                \
    ledger_of(HEAD() how NORM("1", "%b") SUB("1") ADD("%h1", "%b", "%y1") NORM("2", "%h1")         \
                  SUB("2") ADD("%h2", "%h1", "%y2") END("%h2"))
#define SECOND "  %f = gather @embed, %ids : f32[T, 16]\n"
    const hir_ledger plain = BEGINS("  %b = reshape %e {shape = [T, 16]} : f32[T, 16]\n");
    const struct {
        const char *what;
        hir_ledger l;
    } all[] = {
        {"a norm", BEGINS("  %b = rmsnorm %e, @g {eps = 1e-06} : f32[T, 16]\n")},
        {"an activation of a map", BEGINS("  %m = linear %e, @f3, _ : f32[T, 16]\n"
                                          "  %b = gelu %m : f32[T, 16]\n")},
        {"a multiple", BEGINS("  %b = mul %e, @g : f32[T, 16]\n")},
        {"a sum of two", BEGINS(SECOND "  %b = add %e, %f : f32[T, 16]\n")},
        {"a blend of two", BEGINS(SECOND "  %m = mul %e, @g : f32[T, 16]\n"
                                         "  %n = mul %f, @g : f32[T, 16]\n"
                                         "  %b = add %m, %n : f32[T, 16]\n")},
        {"a map and another", BEGINS(SECOND "  %m = linear %e, @f3, _ : f32[T, 16]\n"
                                            "  %b = add %m, %f : f32[T, 16]\n")},
        {"a product of two maps", BEGINS("  %m = linear %e, @f3, _ : f32[T, 16]\n"
                                         "  %n = linear %e, @f2, _ : f32[T, 16]\n"
                                         "  %o = sigmoid %n : f32[T, 16]\n"
                                         "  %b = mul %m, %o : f32[T, 16]\n")},
        {"a norm and a map", BEGINS("  %m = linear %e, @f3, _ : f32[T, 16]\n"
                                    "  %n = rmsnorm %e, @g {eps = 1e-06} : f32[T, 16]\n"
                                    "  %b = add %n, %m : f32[T, 16]\n")},
        {"a norm that is written out and a map",
         BEGINS("  %m = mul %e, %e : f32[T, 16]\n"
                "  %n = reduce_mean %m {axis = 1} : f32[T]\n"
                "  %o = rsqrt %n : f32[T]\n"
                "  %p = reshape %o {shape = [T, 1]} : f32[T, 1]\n"
                "  %q = mul %e, %p : f32[T, 16]\n"
                "  %r = linear %e, @f3, _ : f32[T, 16]\n"
                "  %b = sub %q, %r : f32[T, 16]\n")},
        {"a norm that is written out", BEGINS("  %m = mul %e, %e : f32[T, 16]\n"
                                              "  %n = reduce_mean %m {axis = 1} : f32[T]\n"
                                              "  %o = rsqrt %n : f32[T]\n"
                                              "  %p = reshape %o {shape = [T, 1]} : f32[T, 1]\n"
                                              "  %b = mul %e, %p : f32[T, 16]\n")},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const hir_ledger *l = &all[i].l;
        cr_expect_eq(l->sublayers, 2, "%s: %u", all[i].what, l->sublayers);
        cr_expect_str_eq(source_text(&l->flow.inputs.at[2]), "e-2", "%s", all[i].what);
        cr_expect_eq(l->paper.read, plain.paper.read, "%s", all[i].what);
        cr_expect_eq(l->paper.written, plain.paper.written, "%s", all[i].what);
    }
}

/* Where something else reads what the value is made of, the stream begins at the embedding. */
Test(ledger, a_stream_begins_at_the_embedding_if_both_are_read) {
    hir_ledger l =
        ledger_of(HEAD() "  %b = rmsnorm %e, @g {eps = 1e-06} : f32[T, 16]\n" NORM("1", "%b")
                      SUB("1") ADD("%h1", "%b", "%y1") NORM("2", "%h1") SUB("2")
                          ADD("%h2", "%h1", "%y2") ADD("%h3", "%h2", "%e") END("%h3"));
    cr_assert_eq(l.sublayers, 2);
    cr_assert_str_eq(source_text(&l.flow.inputs.at[1]), "e 1");
    l = ledger_of(HEAD() SECOND "  %b = add %e, %f : f32[T, 16]\n" NORM("1", "%b") SUB("1")
                      ADD("%h1", "%b", "%y1") NORM("2", "%h1") SUB("2") ADD("%h2", "%h1", "%y2")
                          ADD("%h3", "%h2", "%f") END("%h3"));
    cr_assert_eq(l.sublayers, 2, "another embedding is no sublayer");
}

/* Where each sublayer is added to the norm of what it reads, the first is one as the others are. */
Test(ledger, a_stream_may_be_normed_around_each_sublayer) {
#define KEPT(to, from) "  %k" to " = rmsnorm " from ", @g {eps = 1e-06} : f32[T, 16]\n"
    hir_ledger l = ledger_of(HEAD() NORM("1", "%e") SUB("1") KEPT("1", "%e")
                                 ADD("%h1", "%k1", "%y1") NORM("2", "%h1") SUB("2") KEPT("2", "%h1")
                                     ADD("%h2", "%k2", "%y2") END("%h2"));
    cr_assert_eq(l.sublayers, 2);
}

Test(ledger, a_mix_has_the_sources_that_it_stacks) {
    hir_ledger l =
        ledger_of(HEAD() NORM("1", "%e") SUB("1") MIX2("2", "%e", "%y1") NORM("2", "%m2") SUB("2")
                      ADD("%b", "%y1", "%y2") MIX2("3", "%e", "%b") NORM("3", "%m3") SUB("3")
                          ADD("%c", "%b", "%y3") MIX2("9", "%e", "%c") END("%m9"));
    cr_assert_eq(l.sublayers, 3);
    cr_assert_eq(l.flow.blocks, 1);
    cr_assert_str_eq(source_text(&l.flow.inputs.at[0]), "e");
    cr_assert_str_eq(source_text(&l.flow.inputs.at[1]), "e | 1");
    cr_assert_str_eq(source_text(&l.flow.inputs.at[2]), "e | 1-2");
    cr_assert_str_eq(source_text(&l.flow.inputs.at[3]), "e 1-3");
    hir_flow_reads r = hir_flow_count_reads(&l.flow, arena);
    cr_assert_eq(r.mixes, 3);
    cr_assert_eq(r.naive, 6);
    cr_assert_eq(r.bank, 1);
    cr_assert_eq(r.live, 2);
    cr_assert_eq(r.output, 2);
}

/* Inputs one after the other have one list of sources, most of them. */
static void check_lists_are_shared(const hir_ledger *l) {
    size_t lists = 1;
    for (size_t i = 1; i < l->flow.inputs.n; i++)
        lists += l->flow.inputs.at[i].sources.at != l->flow.inputs.at[i - 1].sources.at;
    cr_assert_lt(lists, 20, "%zu", lists);
}

/* Each input has all outputs before it among its sources: lists of their own would be the square of
 * the sublayers long. */
Test(ledger, inputs_that_read_all_before_them_share_a_list) {
    enum { SUBLAYERS = 300 };
    hd_text t;
    hd_text_init(&t, arena);
    hd_text_add(&t, HEAD() NORM("0", "%e"));
    for (int k = 0; k < SUBLAYERS; k++)
        hd_text_f(&t,
                  "  %%y%d = linear %%x%d, @f1, _ : f32[T, 16]\n"
                  "  %%h%d = add %%x%d, %%y%d : f32[T, 16]\n"
                  "  %%x%d = rmsnorm %%h%d, @g {eps = 1e-06} : f32[T, 16]\n",
                  k, k, k, k, k, k + 1, k);
    hd_text_f(&t, "  %%logits = linear %%x%d, @embed, _ : f32[T, 20]\n", SUBLAYERS);
    hd_text_add(&t, "  output %logits {name = \"logits\"}\n}\n");
    const hir_ledger l = ledger_of(t.at);
    cr_assert_eq(l.sublayers, SUBLAYERS);
    for (size_t i = 0; i <= SUBLAYERS; i++) { /* the first output is added to where it begins */
        const hir_flow_input *x = &l.flow.inputs.at[i];
        const size_t n = i ? i : 1;
        cr_assert_eq(x->sources.n, n, "%zu of input %zu", x->sources.n, i);
        cr_assert_eq(x->sources.at[n - 1].last, i);
        if (i < SUBLAYERS) cr_assert_eq(x->shared, i ? n : 0, "%u of input %zu", x->shared, i);
    }
    check_lists_are_shared(&l);
}

/* Two streams, as in SiameseNorm: a norm of all before, and a sum that is another one in each
 * sublayer, which no list has. */
Test(ledger, inputs_share_a_list_but_for_sources_of_their_own) {
    enum { SUBLAYERS = 300 };
    hd_text t;
    hd_text_init(&t, arena);
    hd_text_add(&t, HEAD() NORM("0", "%e") "  %p0 = reshape %e {shape = [T, 16]} : f32[T, 16]\n");
    for (int k = 0; k < SUBLAYERS; k++)
        hd_text_f(&t,
                  "  %%q%d = rmsnorm %%p%d, @g {eps = 1e-06} : f32[T, 16]\n"
                  "  %%u%d = add %%x%d, %%q%d : f32[T, 16]\n"
                  "  %%y%d = linear %%u%d, @f1, _ : f32[T, 16]\n"
                  "  %%h%d = add %%x%d, %%y%d : f32[T, 16]\n"
                  "  %%x%d = rmsnorm %%h%d, @g {eps = 1e-06} : f32[T, 16]\n"
                  "  %%p%d = add %%p%d, %%y%d : f32[T, 16]\n",
                  k, k, k, k, k, k, k, k, k, k, k + 1, k, k + 1, k, k);
    hd_text_f(&t, "  %%logits = linear %%x%d, @embed, _ : f32[T, 20]\n", SUBLAYERS);
    hd_text_add(&t, "  output %logits {name = \"logits\"}\n}\n");
    const hir_ledger l = ledger_of(t.at);
    cr_assert_eq(l.sublayers, SUBLAYERS);
    for (size_t i = 1; i < SUBLAYERS; i++) {
        const hir_flow_input *x = &l.flow.inputs.at[i];
        cr_assert_eq(hir_flow_sources(x), i + 2, "%s", source_text(x));
        cr_assert_eq(hir_flow_source(x, i)->first, i);
        cr_assert_eq(hir_flow_source(x, i + 1)->first, 0);
        cr_assert_eq(hir_flow_source(x, i + 1)->last, i);
    }
    cr_assert_str_eq(source_text(&l.flow.inputs.at[3]), "e 1 2 3 | e-3");
    check_lists_are_shared(&l);
}

/* A stream that is read through a map, and carried on through another before the output is added: an
 * output that a walk meets before the stream is no source of its own. */
Test(ledger, inputs_of_a_stream_that_is_mapped_share_a_list) {
    enum { SUBLAYERS = 300 };
    hd_text t;
    hd_text_init(&t, arena);
    hd_text_add(&t, HEAD() NORM("0", "%e") "  %s0 = mul %x0, @g : f32[T, 16]\n");
    for (int k = 0; k < SUBLAYERS; k++)
        hd_text_f(&t,
                  "  %%u%d = mul %%s%d, @g : f32[T, 16]\n"
                  "  %%y%d = linear %%u%d, @f1, _ : f32[T, 16]\n"
                  "  %%m%d = rmsnorm %%s%d, @g {eps = 1e-06} : f32[T, 16]\n"
                  "  %%s%d = add %%m%d, %%y%d : f32[T, 16]\n",
                  k, k, k, k, k, k, k + 1, k, k);
    hd_text_f(&t, "  %%logits = linear %%s%d, @embed, _ : f32[T, 20]\n", SUBLAYERS);
    hd_text_add(&t, "  output %logits {name = \"logits\"}\n}\n");
    const hir_ledger l = ledger_of(t.at);
    cr_assert_eq(l.sublayers, SUBLAYERS);
    for (size_t i = 1; i < SUBLAYERS; i++) {
        const hir_flow_input *x = &l.flow.inputs.at[i];
        cr_assert_eq(x->sources.n, i + 1, "%s", source_text(x));
        cr_assert_eq(x->shared, i + 1);
    }
    check_lists_are_shared(&l);
}

/* A stream that a sublayer's input is added to, as in LAuReL: what earlier inputs are made of is met
 * twice. */
Test(ledger, inputs_that_go_on_beside_the_stream_share_a_list) {
    enum { SUBLAYERS = 300 };
    hd_text t;
    hd_text_init(&t, arena);
    hd_text_add(&t, HEAD() "  %h0 = reshape %e {shape = [T, 16]} : f32[T, 16]\n");
    for (int k = 0; k < SUBLAYERS; k++)
        hd_text_f(&t,
                  "  %%x%d = rmsnorm %%h%d, @g {eps = 1e-06} : f32[T, 16]\n"
                  "  %%y%d = linear %%x%d, @f1, _ : f32[T, 16]\n"
                  "  %%s%d = add %%h%d, %%y%d : f32[T, 16]\n"
                  "  %%h%d = add %%s%d, %%x%d : f32[T, 16]\n",
                  k, k, k, k, k, k, k, k + 1, k, k);
    hd_text_f(&t, "  %%logits = linear %%h%d, @embed, _ : f32[T, 20]\n", SUBLAYERS);
    hd_text_add(&t, "  output %logits {name = \"logits\"}\n}\n");
    const hir_ledger l = ledger_of(t.at);
    cr_assert_eq(l.sublayers, SUBLAYERS);
    for (size_t i = 1; i < SUBLAYERS; i++) {
        const hir_flow_input *x = &l.flow.inputs.at[i];
        cr_assert_eq(hir_flow_sources(x), i + 1, "%zu: %s", i, source_text(x));
    }
    check_lists_are_shared(&l);
}

Test(ledger, a_query_made_of_the_input_is_no_source_and_no_sublayer) {
    hir_ledger l = ledger_of(HEAD() NORM("1", "%e") SUB("1") NORM(
        "2", "%y1") "  %q = linear %x2, @f2, _ : f32[T, 16]\n"
                    "  %s0 = mul %q, %e : f32[T, 16]\n"
                    "  %s1 = mul %q, %y1 : f32[T, 16]\n"
                    "  %t0 = reduce_sum %s0 {axis = 1} : f32[T]\n"
                    "  %t1 = reduce_sum %s1 {axis = 1} : f32[T]\n"
                    "  %d = sub %t0, %t1 : f32[T]\n"
                    "  %a = sigmoid %d : f32[T]\n"
                    "  %r = reshape %a {shape = [T, 1]} : f32[T, 1]\n"
                    "  %c = sub %e, %y1 : f32[T, 16]\n"
                    "  %u = mul %c, %r : f32[T, 16]\n"
                    "  %h = add %u, %y1 : f32[T, 16]\n"
                    "  %x3 = rmsnorm %h, @g {eps = 1e-06} : f32[T, 16]\n" SUB("3")
                                 MIX2("9", "%e", "%y3") END("%m9"));
    cr_assert_eq(l.sublayers, 2, "%u", l.sublayers);
    hir_flow_input *third = NULL;
    for (size_t i = 0; i < l.flow.inputs.n; i++)
        if (l.flow.inputs.at[i].sublayer == 2) third = &l.flow.inputs.at[i];
    cr_assert(third);
    for (size_t i = 0; i < third->sources.n; i++)
        cr_assert_leq(third->sources.at[i].last, 1);
}

Test(ledger, parts_of_one_output_are_one_sublayer) {
    hir_ledger l = ledger_of(HEAD() NORM("1", "%e") SUB(
        "1") "  %s = linear %x1, @f2, _ : f32[T, 16]\n" ADD("%y", "%y1", "%s") ADD("%h", "%e", "%y")
                                 NORM("3", "%h") SUB("3") ADD("%i", "%h", "%y3") END("%i"));
    cr_assert_eq(l.sublayers, 2);
    cr_assert_str_eq(source_text(&l.flow.inputs.at[1]), "e-1");
    cr_assert_str_eq(source_text(&l.flow.inputs.at[2]), "e-2");
}

/* h <- (1 - g) h + g y, g = sigmoid(W h): as wide as an output, and none. */
Test(ledger, a_gate_of_every_channel_is_no_sublayer) {
#define GATED(to, h, y, w)                                                                         \
    "  %l" to " = linear " h ", " w ", _ : f32[T, 16]\n"                                           \
    "  %g" to " = sigmoid %l" to " : f32[T, 16]\n"                                                 \
    "  %i" to " = sub %one, %g" to " : f32[T, 16]\n"                                               \
    "  %c" to " = mul %i" to ", " h " : f32[T, 16]\n"                                              \
    "  %t" to " = mul %g" to ", " y " : f32[T, 16]\n"                                              \
    "  %h" to " = add %c" to ", %t" to " : f32[T, 16]\n"
    hir_ledger l =
        ledger_of(HEAD() "  %one = const {shape = [], value = 1} : f32[]\n" NORM("1", "%e") SUB("1")
                      GATED("1", "%e", "%y1", "@f3") NORM("2", "%h1") SUB("2")
                          GATED("2", "%h1", "%y2", "@f3") END("%h2"));
    cr_assert_eq(l.sublayers, 2);
    cr_assert_eq(l.flow.inputs.n, 3, "the gates' contractions are no sublayers");
    cr_assert_str_eq(source_text(&l.flow.inputs.at[1]), "e 1");
    cr_assert_str_eq(source_text(&l.flow.inputs.at[2]), "e 1 2");
}

Test(ledger, scores_as_wide_as_the_stream_are_numbers) {
    hd_text t;
    hd_text_init(&t, arena);
    hd_text_add(&t, HEAD() "  %s0 = mul %e, @g : f32[T, 16]\n  %t0 = reduce_sum %s0 {axis = 1} : "
                           "f32[T]\n  %r0 = reshape %t0 {shape = [T, 1]} : f32[T, 1]\n"
                           "  %many = concat ");
    for (int i = 0; i < 32; i++)
        hd_text_add(&t, i ? ", %r0" : "%r0");
    hd_text_add(&t, " {axis = 1} : f32[T, 32]\n  %a = softmax %many {axis = 1} : f32[T, 32]\n"
                    "  %a0 = slice %a {axis = 1, start = 3, length = 1} : f32[T, 1]\n"
                    "  %m = mul %e, %a0 : f32[T, 16]\n" NORM("1", "%m") SUB("1")
                        ADD("%h", "%e", "%y1") END("%h"));
    hir_ledger l = ledger_of(t.at);
    cr_assert_str_eq(source_text(&l.flow.inputs.at[0]), "e");
    cr_assert_eq(l.flow.inputs.n, 2);
}

Test(ledger, programs_without_a_stream_have_no_ledger) {
    hir_ledger l = ledger_of("hir 1 graph @m\n\nfunc(%ids: i32[T]) {\n"
                             "  %0 = rope_table {length = 4, theta = 10000} : f32[T, 4]\n"
                             "  output %0 {name = \"y\"}\n}\n");
    cr_assert_eq(l.flow.width, 0);
    cr_assert_eq(l.accesses.n, 0);
    cr_assert_eq(hir_ledger_units(&l, 100), 0);
}

Test(ledger, a_long_chain_is_no_trouble) {
    hd_text t;
    hd_text_init(&t, arena);
    hd_text_add(&t, "hir 1 graph @m\n\nfunc(%x: f32[T, 8], %y: f32[T]) {\n"
                    "  %c0 = reshape %y {shape = [T, 1]} : f32[T, 1]\n");
    enum { LONG = 100000 };
    for (int i = 0; i < LONG; i++)
        hd_text_f(&t, "  %%c%d = exp %%c%d : f32[T, 1]\n", i + 1, i);
    hd_text_f(&t, "  %%z = mul %%x, %%c%d : f32[T, 8]\n  output %%z {name = \"z\"}\n}\n", LONG);
    hir_ledger l = ledger_of(t.at);
    cr_assert_eq(l.flow.width, 8);
    cr_assert_eq(l.sublayers, 0);
}

/* ---- kernels --------------------------------------------------------------------------------- */
#define ROW(name, types)                                                                           \
    " = kernel.row {name = \"" name                                                                \
    "\", rows = \"all\", split_decode = \"none\", split_prefill = \"rows\"} : " types " {\n"
#define CONTRACT(name)                                                                             \
    " = kernel.contract {name = \"" name                                                           \
    "\", rows = \"all\", split_decode = \"cols\", split_prefill = \"cols\"} : f32[T, 16] {\n"

static const char two_phase[] =
    "hir 1 kernel @m\n\n"
    "weight @embed : f32[20, 16]\n"
    "weight @f1 : f32[16, 16] panel\n"
    "weight @f2 : f32[16, 16] panel\n"
    "weight @f3 : f32[16, 16] panel\n"
    "weight @w : f32[16]\n\n"
    "func(%ids: i32[T]) {\n"
    "  %e, %x1, %o" ROW("start", "f32[T, 16], f32[T, 16], f32[T, 3, 16]") /* phase 1: three rows */
    "    %0 = gather @embed, %ids : f32[T, 16]\n"
    "    %1 = exp %0 : f32[T, 16]\n"
    "    %17 = sigmoid %0 : f32[T, 16]\n"
    "    %2 = mul %17, @w : f32[T, 16]\n"
    "    %3 = stack %2, %17, %2 {axis = 1} : f32[T, 3, 16]\n"
    "    yield %0, %1, %3\n"
    "  }\n"
    "  %y1" CONTRACT(
        "c1") "    %4 = linear %x1, @f1, _ : f32[T, 16]\n"
              "    yield %4\n"
              "  }\n"
              "  %x2" ROW(
                  "merge",
                  "f32[T, 16]") "    %5 = slice %o {axis = 1, start = 1, length = 1} : f32[T, 1, "
                                "16]\n"
                                "    %6 = slice %o {axis = 1, start = 1, length = 1} : f32[T, 1, "
                                "16]\n"
                                "    %7 = mul %5, %6 : f32[T, 1, 16]\n"
                                "    %8 = reshape %7 {shape = [T, 16]} : f32[T, 16]\n"
                                "    %9 = max %8, %y1 : f32[T, 16]\n"
                                "    yield %9\n"
                                "  }\n"
                                "  %b" CONTRACT(
                                    "c2") "    %10 = linear %x2, @f2, _ : f32[T, 16]\n"
                                          "    %11 = add %10, %y1 : f32[T, 16]\n"
                                          "    yield %11\n"
                                          "  }\n"
                                          "  %x3" ROW(
                                              "both",
                                              "f32[T, 16]") "    %12 = stack %b, %e {axis = 1} : "
                                                            "f32[T, 2, 16]\n"
                                                            "    %13 = reduce_max %12 {axis = 1} : "
                                                            "f32[T, 16]\n"
                                                            "    yield %13\n"
                                                            "  }\n"
                                                            "  %y3" CONTRACT(
                                                                "c3") "    %14 = linear %x3, @f3, "
                                                                      "_ : f32[T, 16]\n"
                                                                      "    yield %14\n"
                                                                      "  }\n"
                                                                      "  %z" ROW(
                                                                          "last",
                                                                          "f32[T, 16]") "    %15 = "
                                                                                        "add %y3, "
                                                                                        "%b : "
                                                                                        "f32[T, "
                                                                                        "16]\n"
                                                                                        "    %16 = "
                                                                                        "exp %15 : "
                                                                                        "f32[T, "
                                                                                        "16]\n"
                                                                                        "    yield "
                                                                                        "%16\n"
                                                                                        "  }\n"
                                                                                        "  output "
                                                                                        "%z {name "
                                                                                        "= \"z\"}\n"
                                                                                        "}\n";

static uint64_t bytes_of(const hir_ledger *l, const char *kernel, bool write, hir_phase phase) {
    uint64_t sum = 0;
    for (size_t i = 0; i < l->accesses.n; i++) {
        const hir_access *a = &l->accesses.at[i];
        const char *name = hir_attr_string(hir_op_at(l->flow.m, a->op), HIR_A_NAME, "");
        if (a->write == write && a->phase == phase && strcmp(name, kernel) == 0) sum += a->bytes;
    }
    return sum;
}

Test(ledger, kernels_are_charged_with_what_they_read_and_leave) {
    hir_ledger l = ledger_of(two_phase);
    enum { D = 64 };
    cr_assert_eq(l.sublayers, 3);
    cr_assert_eq(bytes_of(&l, "start", true, HIR_PHASE_OWN), D, "the embedding is its own");
    cr_assert_eq(bytes_of(&l, "start", true, HIR_PHASE_LAYER_INPUT), D);
    cr_assert_eq(bytes_of(&l, "start", true, HIR_PHASE_PHASE_1), 3 * D);
    cr_assert_eq(bytes_of(&l, "c1", true, HIR_PHASE_OWN), D);
    cr_assert_eq(bytes_of(&l, "merge", false, HIR_PHASE_PHASE_2), 2 * D,
                 "one slice, once, and the live source");
    cr_assert_eq(bytes_of(&l, "c2", false, HIR_PHASE_ACCUMULATE), D);
    cr_assert_eq(bytes_of(&l, "c2", true, HIR_PHASE_OWN_SUM), D);
    cr_assert_eq(bytes_of(&l, "c2", true, HIR_PHASE_OWN), 0);
    cr_assert_eq(bytes_of(&l, "both", false, HIR_PHASE_MIX), 2 * D);
    cr_assert_eq(bytes_of(&l, "last", false, HIR_PHASE_OUTPUT), 2 * D);
    cr_assert_eq(bytes_of(&l, "last", true, HIR_PHASE_OUTPUT), D);
    cr_assert_eq(l.total.read, 7 * D);
    cr_assert_eq(l.total.written, (1 + 3 + 1 + 1 + 1) * D);
    cr_assert_eq(l.paper.written, (3 + 1) * D);
    cr_assert_eq(l.paper.read, 5 * D);
    cr_assert_eq(l.fixed_bytes, D, "the weight w, by row programs only");
}

Test(ledger, phases_sum_up_to_the_total) {
    hir_ledger l = ledger_of(two_phase);
    hir_traffic sum = {0};
    for (int p = 0; p < HIR_PHASE_COUNT; p++) {
        if (!hir_phase_is_charged((hir_phase)p)) continue;
        sum.read += l.phase[p].read;
        sum.written += l.phase[p].written;
    }
    cr_assert_eq(sum.read, l.total.read);
    cr_assert_eq(sum.written, l.total.written);
}

/* ---- the closed forms ------------------------------------------------------------------------ */

static double form_total(const char *key, hir_paper_parameters p) {
    const hir_paper_form *forms;
    size_t n = hir_paper_forms(&forms);
    for (size_t i = 0; i < n; i++)
        if (strcmp(forms[i].key, key) == 0) return forms[i].read(p) + forms[i].write(p);
    return NAN;
}

Test(ledger, closed_forms_give_table_1) {
    hir_paper_parameters p = {.sublayers = 128, .blocks = 8, .per_block = 16, .streams = 4};
    cr_assert_eq(form_total("standard", p), 3);
    cr_assert_eq(form_total("mhc", p), 34);
    cr_assert_eq(form_total("full", p), 24);
    cr_assert_eq(form_total("block", p), 5.5);
    cr_assert_float_eq(form_total("block_exact", p), 5.28125, 1e-12);
    p.streams = 2;
    cr_assert_eq(form_total("mhc", p), 18);
}

/* ---- whole models ---------------------------------------------------------------------------- */

static hadal_session *open_session(void) {
    hadal_session *s = hadal_open();
    cr_assert_eq(hadal_include_path(s, HADAL_SOURCE "/frontend/std"), 0);
    return s;
}

static json_t *ledger_json(const char *spec, const char *key, const char *value, bool passes) {
    hadal_session *s = open_session();
    if (key) cr_assert_eq(hadal_define(s, key, value), 0);
    int failed = hadal_load(s, spec, NULL);
    hadal_pipeline p = {.struct_size = sizeof p};
    if (!failed && passes) failed = hadal_run_passes(s, &p);
    for (size_t i = 0; i < hadal_diagnostics(s); i++)
        cr_log_error("%s", hadal_diagnostic_text(s, i, 0));
    cr_assert_eq(failed, 0);
    const char *text = hadal_ledger_text(s, 1);
    cr_assert(text);
    json_error_t error;
    json_t *j = json_loads(text, 0, &error);
    cr_assert(j, "%s at %d: %s", error.text, error.line, text);
    hadal_close(s);
    return j;
}

static double number(const json_t *j, const char *a, const char *b, const char *c) {
    const json_t *x = json_object_get(j, a);
    if (b) x = json_object_get(x, b);
    if (c) x = json_object_get(x, c);
    cr_assert(json_is_number(x), "%s.%s.%s", a, b ? b : "", c ? c : "");
    return json_number_value(x);
}

Test(ledger, reads_of_kimi_k3) {
    json_t *j = ledger_json(SPECS "k3.hadal", NULL, NULL, true);
    cr_assert_eq(number(j, "sublayers", NULL, NULL), 186);
    cr_assert_eq(number(j, "blocks", NULL, NULL), 8);
    cr_assert_eq(number(j, "longest_block", NULL, NULL), 24);
    cr_assert_eq(number(j, "sources", "mixes", NULL), 186);
    cr_assert_eq(number(j, "sources", "naive", NULL), 1002);
    cr_assert_eq(number(j, "sources", "bank", NULL), 36);
    cr_assert_eq(number(j, "sources", "live", NULL), 178);
    cr_assert_eq(number(j, "sources", "output", NULL), 9);
    json_decref(j);
}

Test(ledger, block_attnres_at_the_sizes_of_table_1) {
    json_t *j = ledger_json(SPECS "paper.hadal", NULL, NULL, true);
    cr_assert_eq(number(j, "paper", "L", NULL), 128);
    cr_assert_eq(number(j, "paper", "N", NULL), 8);
    cr_assert_eq(number(j, "paper", "S", NULL), 16);
    json_t *forms = json_object_get(json_object_get(j, "paper"), "forms");
    cr_assert_eq(number(forms, "block", "total", NULL), 5.5);
    cr_assert_eq(number(forms, "full", "total", NULL), 24);
    /* naive: sources of 127 mixes of sublayers (704 with the output's 9), 120 sums read by
     * contractions, 112 layer inputs written (16 of two sources or one are made where they are
     * read), the output's 9 reads and its write */
    const double naive = (704 - 9) + 120 + 112 + 9 + 1;
    cr_assert_float_eq(number(j, "naive_kernels", "total", "total"), naive / 128, 1e-12);
    /* the goal with the output of a sublayer added by its contraction, and merges done where the
     * next one reads them */
    cr_assert_leq(number(j, "kernels", "total", "total"), 4.2);
    cr_assert_leq(number(j, "kernels", "as_the_paper_counts", "total"), 5.28125);
    json_decref(j);
}

Test(ledger, standard_residual_at_the_sizes_of_table_1) {
    json_t *j = ledger_json(SPECS "paper.hadal", "system", "standard", true);
    cr_assert_eq(number(j, "sublayers", NULL, NULL), 128);
    cr_assert_eq(number(j, "ops", "as_the_paper_counts", "total"), 3);
    cr_assert_eq(number(j, "sources", "mixes", NULL), 0);
    json_decref(j);
}

/* 34 d of the rows, from the graph of mHC as it is written, at the paper's L = 128 and m = 4. What
 * is left beside them is the start, where the embedding is copied (5 d once), and numbers: the
 * paper counts the matrices that mix the streams, and here every op of Sinkhorn's iteration counts.
 */
Test(ledger, mhc_at_the_sizes_of_table_1) {
    json_t *j = ledger_json(SPECS "paper.hadal", "system", "mhc", true);
    json_t *forms = json_object_get(json_object_get(j, "paper"), "forms");
    cr_assert_eq(number(forms, "mhc", "total", NULL), 34);
    json_t *products = json_object_get(j, "products_whole");
    cr_assert_float_eq(number(products, "rows", "read", NULL), 21, 0.15);
    cr_assert_float_eq(number(products, "rows", "written", NULL), 13, 0.1);
    cr_assert_gt(number(products, "rows", "total", NULL), 34);
    cr_assert_gt(number(products, "numbers", "total", NULL), 48.0 / 1024);
    cr_assert_lt(number(j, "kernels", "total", "total"), 14.5);
    json_decref(j);
}

/* A plain sum has no products, and counts as it did. */
Test(ledger, products_of_a_plain_residual) {
    json_t *j = ledger_json(SPECS "paper.hadal", "system", "standard", true);
    json_t *products = json_object_get(j, "products_whole");
    cr_assert_eq(number(products, "rows", "total", NULL), 3);
    cr_assert_eq(number(products, "numbers", "total", NULL), 0);
    json_decref(j);
}

/* The rows of Table 1 counted in the IR by the paper's rules: at the paper's sizes they are its
 * closed forms, and the lines of the kernels are what the ledger counts as the paper does. */
Test(ledger, table_1_line_by_line) {
    static const struct {
        const char *system, *row;
        double rules;
    } rows[] = {{"block", "block", 5.5}, {"full", "full", 24}, {"standard", "standard", 3}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *j = ledger_json(SPECS "paper.hadal", "system", rows[i].system, true);
        const json_t *table = json_object_get(j, "table_1"), *line;
        cr_assert_str_eq(json_string_value(json_object_get(table, "row")), rows[i].row);
        cr_assert_eq(number(table, "closed_form", NULL, NULL), rows[i].rules);
        cr_assert_eq(number(table, "rules", "total", NULL), rows[i].rules);
        double rules = 0, kernels = 0, inputs = 0;
        size_t k;
        json_array_foreach(json_object_get(table, "lines"), k, line) {
            rules += number(line, "rules", "total", NULL);
            kernels += number(line, "kernels", "total", NULL);
            if (!strcmp(json_string_value(json_object_get(line, "what")), "merged results written"))
                inputs = number(line, "kernels", "total", NULL);
        }
        cr_assert_float_eq(rules, rows[i].rules, 1e-9);
        cr_assert_float_eq(kernels, number(table, "kernels", "total", NULL), 1e-9);
        cr_assert_float_eq(kernels - inputs, number(j, "kernels", "as_the_paper_counts", "total"),
                           1e-9);
        json_decref(j);
    }
    json_t *j = ledger_json(SPECS "paper.hadal", "system", "mhc", true);
    const json_t *line = json_array_get(json_object_get(json_object_get(j, "table_1"), "lines"), 0);
    cr_assert_eq(number(line, "rules", "read", NULL), 21);
    cr_assert_eq(number(line, "rules", "written", NULL), 13);
    json_decref(j);
}

/* The mix before sublayer 63 has 64 sources of 64 channels. */
Test(ledger, as_many_sources_as_channels) {
    hadal_session *s = open_session();
    cr_assert_eq(hadal_define(s, "hidden", "64"), 0);
    cr_assert_eq(hadal_define(s, "system", "full"), 0);
    cr_assert_eq(hadal_load(s, SPECS "paper.hadal", NULL), 0);
    hir_ledger l = ledger_of(hd_strdup(arena, hadal_ir_text(s, 0)));
    cr_assert_eq(l.sublayers, 128);
    cr_assert_eq(hir_flow_count_reads(&l.flow, arena).naive, 129 * 130 / 2 - 1);
    hadal_close(s);
}

Test(ledger, full_attnres_is_less_than_the_paper_says) {
    json_t *j = ledger_json(SPECS "paper.hadal", "system", "full", true);
    cr_assert_eq(number(j, "sources", "mixes", NULL), 128);
    const int naive = 129 * 130 / 2 - 1;
    cr_assert_eq(number(j, "sources", "naive", NULL), naive);
    double single = number(j, "schedule", "single", NULL),
           shared = number(j, "schedule", "shared", NULL);
    cr_assert_eq(number(j, "schedule", "blocks", NULL), number(j, "paper", "N", NULL));
    cr_assert_gt(shared, 0);
    cr_assert_lt(single + shared, naive);
    json_t *forms = json_object_get(json_object_get(j, "paper"), "forms");
    cr_assert_lt(number(j, "kernels", "as_the_paper_counts", "total"),
                 number(forms, "full", "total", NULL));
    cr_assert_lt(number(j, "kernels", "total", "total"),
                 number(j, "naive_kernels", "total", "total"));
    json_decref(j);
}

/* Depth-Attention keeps its mixed values in the place of the plain ones: as many bytes of state as
 * a standard residual with the same heads, and none of it the mechanism's. Its arena is larger. */
Test(ledger, depth_attention_keeps_no_state_of_its_own) {
    json_t *j = ledger_json(TEST_DATA "/golden/depth-attention", NULL, NULL, true);
    json_t *m = json_object_get(j, "memory");
    const double layers = 5, kv_heads = 2, head_dim = 12; /* of its config.json */
    cr_assert_eq(number(m, "state_bytes_per_token", NULL, NULL),
                 layers * 2 * kv_heads * head_dim * 4);
    cr_assert_eq(number(m, "mechanism_state_bytes_per_token", NULL, NULL), 0);
    cr_assert_eq(number(m, "tokens", NULL, NULL), 131072);
    cr_assert_eq(number(m, "chunk", NULL, NULL), 512);
    cr_assert_eq(number(m, "session_bytes", NULL, NULL),
                 131072 * number(m, "state_bytes_per_token", NULL, NULL) +
                     512 * number(m, "arena_bytes_per_token", NULL, NULL) +
                     number(m, "fixed_bytes", NULL, NULL));
    json_decref(j);
}

/* Rows of the mechanism are part of the arena: a plain residual has its stream and what a sublayer
 * reads there, mHC its four streams, which sublayers change in place, and what one reads and
 * writes. */
Test(ledger, rows_of_the_mechanism_in_the_arena) {
    double rows[2];
    static const char *const systems[] = {"standard", "mhc"};
    for (int i = 0; i < 2; i++) {
        json_t *j = ledger_json(SPECS "paper.hadal", "system", systems[i], true);
        json_t *m = json_object_get(j, "memory");
        rows[i] = number(m, "mechanism_arena_bytes_per_token", NULL, NULL) / 4096;
        cr_assert_leq(number(m, "mechanism_arena_bytes_per_token", NULL, NULL),
                      number(m, "arena_bytes_per_token", NULL, NULL));
        json_decref(j);
    }
    cr_assert_geq(rows[0], 2, "the stream and what a sublayer reads: %g", rows[0]);
    cr_assert_leq(rows[0], 3, "%g", rows[0]);
    cr_assert_geq(rows[1], 5, "four streams and what a sublayer reads: %g", rows[1]);
    cr_assert_leq(rows[1], 7, "%g", rows[1]);
}

Test(ledger, without_passes_there_are_no_kernels_as_compiled) {
    json_t *j = ledger_json(SPECS "paper.hadal", "sublayers", "6", false);
    cr_assert_null(json_object_get(j, "kernels"));
    cr_assert(json_object_get(j, "naive_kernels"));
    json_decref(j);
}

/* ---- the same at every stage ----------------------------------------------------------------- */

typedef struct stage_watch {
    const hir_flow *graph;
    const char *what;
    int passes;
} stage_watch;

static const char *flow_text(const hir_flow *f) {
    hd_text t;
    hd_text_init(&t, arena);
    hd_text_f(&t, "%zu outputs, %u blocks of at most %u\n", f->outputs.n, f->blocks,
              f->longest_block);
    for (size_t i = 0; i < f->inputs.n; i++)
        hd_text_f(&t, "%u in block %u: %s\n", f->inputs.at[i].sublayer, f->inputs.at[i].block,
                  source_text(&f->inputs.at[i]));
    return t.at;
}

static bool compare_stage(void *context, int index, hir_pass_id id, const hir_module *m,
                          bool changed, double seconds, hd_diags *d) {
    (void)changed, (void)seconds, (void)d;
    stage_watch *w = context;
    hir_flow f;
    hir_flow_find(m, arena, &f);
    w->passes++;
    cr_assert_str_eq(flow_text(&f), flow_text(w->graph), "%s after pass %d, %s:\n%snot\n%s",
                     w->what, index, hir_pass(id)->name, flow_text(&f), flow_text(w->graph));
    return true;
}

/* Runs the pipeline over m and compares after each pass. */
static void check_every_stage(hir_module *m, const char *what) {
    hir_flow graph;
    hir_flow_find(hir_module_clone(m, arena), arena, &graph);
    cr_assert_gt(graph.outputs.n, 0, "%s", what);
    stage_watch watch = {&graph, what, 0};
    const size_t n = hir_pipeline_length();
    hir_run run = {.passes = hir_pipeline(),
                   .n_passes = n,
                   .stop_after = HIR_PASS_COUNT,
                   .hooks = {.context = &watch, .after = compare_stage}};
    cr_assert(hir_run_passes(m, &run, NULL, NULL, &diags), "%s", what);
    cr_assert_eq(watch.passes, (int)n);
}

static void check_spec(const char *spec) {
    hadal_session *s = open_session();
    cr_assert_eq(hadal_load(s, spec, NULL), 0, "%s", spec);
    hir_module *m = parse(hd_strdup(arena, hadal_ir_text(s, 0)));
    hadal_close(s);
    check_every_stage(m, spec);
}

Test(ledger, passes_do_not_change_who_reads_what) {
    static const char *const specs[] = {
        TEST_DATA "/golden/standard",
        TEST_DATA "/golden/standard-llama",
        TEST_DATA "/golden/attnres-block",
        TEST_DATA "/golden/attnres-block-odd",
        TEST_DATA "/golden/attnres-full",
        TEST_DATA "/golden/highway",
        TEST_DATA "/../examples/tiny/tiny.hadal",
        TEST_DATA "/../examples/large/attnres-1.5b.hadal",
    };
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        check_spec(specs[i]);
}

/* Every way to write attention over depth: the sources of sublayer k of blocks of S are known. */
static void check_style(depth_style style) {
    const char *what = hd_printf(
        arena, "norm %d sum %d bias %d query %d sigmoid %d heads %d one_by_one %d S %d of %d",
        style.norm, style.sum, style.bias, style.query, style.sigmoid, style.heads,
        style.one_by_one, style.block, style.sublayers);
    depth_writer w = depth_model(arena, &diags, style);
    hir_flow f;
    hir_flow_find(w.m, arena, &f);
    cr_assert_eq(f.outputs.n, (size_t)style.sublayers, "%s: %zu outputs", what, f.outputs.n);
    cr_assert_eq(f.inputs.n, (size_t)style.sublayers + 1, "%s", what);
    uint64_t reads = 0;
    for (int k = 0; k <= style.sublayers; k++) {
        const hir_flow_input *x = &f.inputs.at[k];
        const int finished = k / style.block,
                  all = k == 0 ? 1 : finished + 1 + (k % style.block > 0);
        const int n = k == 0 ? 1 : k % style.block ? all : finished + 1;
        cr_assert_eq(hir_flow_sources(x), (size_t)n, "%s, sublayer %d: %s", what, k + 1,
                     source_text(x));
        reads += n > 1 ? (uint64_t)n : 0;
    }
    cr_assert_eq(hir_flow_count_reads(&f, arena).naive, reads, "%s", what);
    check_every_stage(w.m, what);
}

Test(ledger, any_way_of_writing_it) {
    hir_random r = hir_random_stream(5, "ledger styles");
    for (int i = 0; i < 120; i++)
        check_style(depth_random_style(&r, 24));
}

Test(ledger, text_is_given_for_every_model) {
    hadal_session *s = open_session();
    cr_assert_null(hadal_ledger_text(s, 0), "there is no model");
    cr_assert_null(hadal_depth_map_text(s));
    cr_assert_eq(hadal_load(s, TEST_DATA "/golden/attnres-block", NULL), 0);
    cr_assert(strstr(hadal_ledger_text(s, 0), "12 sublayers in 3 blocks of at most 4"));
    cr_assert(strstr(hadal_depth_map_text(s), "e 1-4 5-8 | 9-11"));
    hadal_close(s);
}
