/* The tables of kinds and forms of kernels (ir/kernel/kernels.h), and the rules that come from them: every
 * split and every value of rows, on a kernel of every form, is accepted where the table says so and
 * refused elsewhere, with the choices. */
#include <criterion/criterion.h>

#include "ir/kernel/kernels.h"
#include "tests/unit/passes/pass_models.h"

/* A model with a kernel of each form, which has these attributes; the others are as schedule makes
 * them. */
typedef struct attributes {
    const char *rows, *decode, *prefill;
} attributes;

static attributes chosen(hir_kernel_form form) {
    return (attributes){hir_rows_name(HIR_ROWS_ALL), hir_split_name(hir_form(form)->decode),
                        hir_split_name(hir_form(form)->prefill)};
}

static const char *attrs_of(hd_arena *a, const char *name, attributes s) {
    return hd_printf(a,
                     "{name = \"%s\", rows = \"%s\", split_decode = \"%s\", split_prefill = "
                     "\"%s\"}",
                     name, s.rows, s.decode, s.prefill);
}

static const char *model_text(hd_arena *a, hir_kernel_form form, attributes s) {
    attributes of[HIR_KERNEL_FORMS];
    for (int i = 0; i < HIR_KERNEL_FORMS; i++)
        of[i] = i == (int)form ? s : chosen((hir_kernel_form)i);
    attributes last = chosen(HIR_FORM_CONTRACTION), first = chosen(HIR_FORM_ROW_PROGRAM);
    last.rows = hir_rows_name(HIR_ROWS_LAST);
    /* a "last" kernel is read by "last" kernels: the one that is looked at stands at the end */
    return hd_printf(
        a,
        "hir 1 kernel @f\n\nranks 2, rows divided from 2 tokens\n\nweight @e : f32[40, 16]\nweight "
        "@w : f32[16, 16] panel\n"
        "weight @x : f32[4, 16, 16] panel\nweight @taps : f32[16, 2]\n"
        "weight @g : f32[2, 8, 8] panel\nweight @maps : f32[2, 8, 16] panel\n\n"
        "state $k : f32[C, 2, 8]\nstate $l : f32[C, 1, 16]\nstate $tail : window f32[1, 16]\n"
        "state $s : carry f32[2, 8, 8]\nstate $run : window f32[3, 32]\n"
        "state $ids : window f32[1, 1]\nstate $scores : scores f32[C, 2]\n\nfunc(%%t: i32[T]) {\n"
        "  %%q, %%c, %%m, %%beta, %%i, %%y = kernel.row %s : f32[T, 16], f32[C, 2, 8], f32[C, 1, "
        "16], "
        "f32[T, 2], i32[T, 2], i32[T, 2, 2] {\n"
        "    %%1 = gather @e, %%t : f32[T, 16]\n"
        "    %%2 = reshape %%1 {shape = [T, 2, 8]} : f32[T, 2, 8]\n"
        "    %%3 = cache_append %%2, $k : f32[C, 2, 8]\n"
        "    %%20 = reshape %%1 {shape = [T, 1, 16]} : f32[T, 1, 16]\n"
        "    %%21 = cache_append %%20, $l : f32[C, 1, 16]\n"
        "    %%17 = reduce_sum %%2 {axis = 2} : f32[T, 2]\n"
        "    %%18 = topk %%1 {k = 2} : i32[T, 2]\n    %%43 = topk %%2 {k = 2} : i32[T, 2, 2]\n"
        "    yield %%1, %%3, %%21, %%17, %%18, %%43\n  }\n"
        "  %%r = kernel.row %s : f32[T, 16] {\n    %%4 = neg %%q : f32[T, 16]\n    yield %%4\n  }\n"
        "  %%rs = kernel.row %s : f32[16] {\n    %%87 = sum_tokens %%q : f32[16]\n    yield %%87\n "
        " }\n"
        "  %%s = kernel.contract %s : f32[T, 16] {\n"
        "    %%5 = linear %%q, @w, _ : f32[T, 16]\n    yield %%5\n  }\n"
        "  %%x = kernel.contract %s : f32[T, 2, 16] {\n"
        "    %%19 = expert_linear %%q, @x, %%i, _ : f32[T, 2, 16]\n    yield %%19\n  }\n"
        "  %%sum = kernel.comm %s : f32[T, 16] {\n"
        "    %%60 = comm.all_reduce %%q : f32[T, 16]\n    yield %%60\n  }\n"
        "  %%v = kernel.sequence %s : f32[T, 16] {\n"
        "    %%12 = short_conv %%q, @taps, _, $tail : f32[T, 16]\n    yield %%12\n  }\n"
        "  %%n = kernel.sequence %s : f32[T, 1, 16] {\n"
        "    %%46 = ngram_gather %%t, @e, $ids {multipliers = [3, 0, 5, 0], sizes = [40], "
        "offsets = [0], eos = 1} : f32[T, 1, 16]\n    yield %%46\n  }\n"
        "  %%u = kernel.sequence %s : f32[T, 16] {\n"
        "    %%37 = pool %%v, %%q, _, $run {length = 4} : f32[T, 16]\n    yield %%37\n  }\n"
        "  %%z = kernel.sequence %s : i32[T, 2, 5] {\n"
        "    %%38 = reshape %%q {shape = [T, 2, 8]} : f32[T, 2, 8]\n"
        "    %%39 = select %%38, %%c, _ {k = 5} : i32[T, 2, 5]\n    yield %%39\n  }\n"
        "  %%h = kernel.sequence %s : f32[T, 2, 8] {\n"
        "    %%40 = reshape %%q {shape = [T, 2, 8]} : f32[T, 2, 8]\n"
        "    %%41 = attention_selected %%40, %%c, %%c, %%y {scale = 1} : f32[T, 2, 8]\n"
        "    yield %%41\n  }\n"
        "  %%d = kernel.sequence %s : f32[T, 2, 8] {\n"
        "    %%13 = reshape %%n {shape = [T, 2, 8]} : f32[T, 2, 8]\n"
        "    %%14 = reshape %%u {shape = [T, 2, 8]} : f32[T, 2, 8]\n"
        "    %%16 = delta_rule %%13, %%13, %%14, _, %%beta, $s : f32[T, 2, 8]\n"
        "    yield %%16\n  }\n"
        "  %%a = kernel.sequence %s : f32[T, 2, 8] {\n"
        "    %%6 = reshape %%q {shape = [T, 2, 8]} : f32[T, 2, 8]\n"
        "    %%7 = attention %%6, %%c, %%c {scale = 1} : f32[T, 2, 8]\n    yield %%7\n  }\n"
        "  %%carried = kernel.sequence %s : f32[T, 2, 8] {\n"
        "    %%63 = reshape %%q {shape = [T, 2, 8]} : f32[T, 2, 8]\n"
        "    %%64 = attention.carried %%63, %%c, %%c, _, $scores {scale = 1, begin = 1} : f32[T, "
        "2, "
        "8]\n"
        "    yield %%64\n  }\n"
        "  %%b = kernel.blocks %s : f32[T, 2, 8] {\n"
        "    %%22 = reshape %%q {shape = [T, 2, 8]} : f32[T, 2, 8]\n"
        "    %%23 = block_linear %%22, @g : f32[T, 2, 8]\n    yield %%23\n  }\n"
        "  %%l = kernel.sequence %s : f32[T, 1, 16] {\n"
        "    %%24 = reshape %%q {shape = [T, 1, 16]} : f32[T, 1, 16]\n"
        "    %%25 = attention.latent %%24, %%m, _, _ {scale = 1} : f32[T, 1, 16]\n"
        "    yield %%25\n  }\n"
        "  %%k = kernel.sequence %s : f32[T, 2, 8] {\n"
        "    %%26 = reshape %%q {shape = [T, 2, 8]} : f32[T, 2, 8]\n"
        "    %%27 = attention.expanded %%d, %%26, %%m, _, _, @maps, @maps {scale = 1} : f32[T, 2, "
        "8]\n"
        "    yield %%27\n  }\n"
        "  %%g0 = kernel.sequence %s : f32[16] {\n"
        "    %%70 = sum_tokens %%q : f32[16]\n"
        "    yield %%70\n  }\n"
        "  %%g1 = kernel.sequence %s : f32[40, 16] {\n"
        "    %%71 = scatter_rows %%q, %%t {length = 40} : f32[40, 16]\n"
        "    yield %%71\n  }\n"
        "  %%g2 = kernel.sequence %s : f32[16, 16] {\n"
        "    %%72 = linear_grad %%q, %%q : f32[16, 16]\n"
        "    yield %%72\n  }\n"
        "  %%g3 = kernel.sequence %s : f32[2, 8, 8] {\n"
        "    %%73 = reshape %%q {shape = [T, 2, 8]} : f32[T, 2, 8]\n"
        "    %%74 = block_linear_grad %%73, %%73 : f32[2, 8, 8]\n"
        "    yield %%74\n  }\n"
        "  %%g4 = kernel.sequence %s : f32[4, 8, 16] {\n"
        "    %%75 = reshape %%q {shape = [T, 2, 8]} : f32[T, 2, 8]\n"
        "    %%76 = expert_linear_grad %%75, %%q, %%i {length = 4} : f32[4, 8, 16]\n"
        "    yield %%76\n  }\n"
        "  %%g5 = kernel.sequence %s : f32[T, 2, 8] {\n"
        "    %%77 = reshape %%q {shape = [T, 2, 8]} : f32[T, 2, 8]\n"
        "    %%78 = attention_grad %%77, %%c, %%c, _, _, %%77 {scale = 1, of = \"q\"} : f32[T, 2, "
        "8]\n"
        "    yield %%78\n  }\n"
        "  %%g6 = kernel.sequence %s : f32[T, 2, 8] {\n"
        "    %%79 = reshape %%q {shape = [T, 2, 8]} : f32[T, 2, 8]\n"
        "    %%80 = attention_selected_grad %%79, %%c, %%c, %%y, _, _, %%79 {scale = 1, of = "
        "\"q\"} : f32[T, 2, 8]\n"
        "    yield %%80\n  }\n"
        "  %%g7 = kernel.sequence %s : f32[T, 16] {\n"
        "    %%81 = pool_grad %%q, %%q, _, %%q {length = 4, of = \"x\"} : f32[T, 16]\n"
        "    yield %%81\n  }\n"
        "  %%g8 = kernel.sequence %s : f32[16, 2] {\n"
        "    %%82 = short_conv_grad %%q, @taps, %%q {of = \"taps\"} : f32[16, 2]\n"
        "    yield %%82\n  }\n"
        "  %%g9 = kernel.sequence %s : f32[T, 2] {\n"
        "    %%83 = reshape %%q {shape = [T, 2, 8]} : f32[T, 2, 8]\n"
        "    %%84 = delta_rule_grad %%83, %%83, %%83, _, %%beta, %%83 {of = \"beta\"} : f32[T, 2]\n"
        "    yield %%84\n  }\n"
        "  %%g10 = kernel.sequence %s : f32[40, 16] {\n"
        "    %%85 = reshape %%q {shape = [T, 1, 16]} : f32[T, 1, 16]\n"
        "    %%86 = ngram_gather_grad %%t, %%85 {shape = [40, 16], multipliers = [3, 0, 5, 0], "
        "sizes = [40], offsets = [0], eos = 0} : f32[40, 16]\n"
        "    yield %%86\n  }\n"
        "  %%o = kernel.contract %s : f32[T, 16] {\n    %%8 = linear %%r, @w, _ : f32[T, 16]\n"
        "    %%9 = add %%8, %%s : f32[T, 16]\n    yield %%9\n  }\n"
        "  %%p = kernel.row %s : f32[T, 2, 8] {\n    %%10 = reshape %%o {shape = [T, 2, 8]} : "
        "f32[T, 2, 8]\n"
        "    %%11 = add %%a, %%10 : f32[T, 2, 8]\n    %%32 = add %%11, %%b : f32[T, 2, 8]\n"
        "    %%57 = add %%32, %%k : f32[T, 2, 8]\n"
        "    %%33 = reshape %%l {shape = [T, 2, 8]} : f32[T, 2, 8]\n"
        "    %%34 = add %%57, %%33 : f32[T, 2, 8]\n"
        "    %%35 = slice %%x {axis = 2, start = 0, length = 8} : f32[T, 2, 8]\n"
        "    %%36 = add %%34, %%35 : f32[T, 2, 8]\n"
        "    %%42 = add %%36, %%h : f32[T, 2, 8]\n"
        "    %%44 = mark %%z {length = 8} : f32[T, 2, 8]\n"
        "    %%45 = add %%42, %%44 : f32[T, 2, 8]\n"
        "    %%61 = reshape %%sum {shape = [T, 2, 8]} : f32[T, 2, 8]\n"
        "    %%62 = add %%45, %%61 : f32[T, 2, 8]\n"
        "    %%65 = add %%62, %%carried : f32[T, 2, 8]\n    yield %%65\n  }\n"
        "  output %%p {name = \"o\"}\n}\n",
        attrs_of(a, "first", first), attrs_of(a, "row", of[HIR_FORM_ROW_PROGRAM]),
        attrs_of(a, "sums", of[HIR_FORM_ROW_SUMS]),
        attrs_of(a, "contract", of[HIR_FORM_CONTRACTION]),
        attrs_of(a, "experts", of[HIR_FORM_EXPERTS]), attrs_of(a, "sum0", of[HIR_FORM_COMM]),
        attrs_of(a, "conv", of[HIR_FORM_SHORT_CONV]), attrs_of(a, "ngram", of[HIR_FORM_NGRAM]),
        attrs_of(a, "pool", of[HIR_FORM_POOL]), attrs_of(a, "select", of[HIR_FORM_SELECT]),
        attrs_of(a, "selected", of[HIR_FORM_ATTENTION_SELECTED]),
        attrs_of(a, "delta", of[HIR_FORM_DELTA_RULE]),
        attrs_of(a, "sequence", of[HIR_FORM_ATTENTION]),
        attrs_of(a, "carried", of[HIR_FORM_CARRIED]), attrs_of(a, "blocks", of[HIR_FORM_BLOCKS]),
        attrs_of(a, "latent", of[HIR_FORM_LATENT]), attrs_of(a, "made", of[HIR_FORM_EXPANDED]),
        attrs_of(a, "sum", of[HIR_FORM_SUM_TOKENS]), attrs_of(a, "rows", of[HIR_FORM_SCATTER_ROWS]),
        attrs_of(a, "dw", of[HIR_FORM_LINEAR_GRAD]),
        attrs_of(a, "dblocks", of[HIR_FORM_BLOCK_LINEAR_GRAD]),
        attrs_of(a, "dexperts", of[HIR_FORM_EXPERT_LINEAR_GRAD]),
        attrs_of(a, "dattention", of[HIR_FORM_ATTENTION_GRAD]),
        attrs_of(a, "dselected", of[HIR_FORM_ATTENTION_SELECTED_GRAD]),
        attrs_of(a, "dpool", of[HIR_FORM_POOL_GRAD]),
        attrs_of(a, "dconv", of[HIR_FORM_SHORT_CONV_GRAD]),
        attrs_of(a, "ddelta", of[HIR_FORM_DELTA_RULE_GRAD]),
        attrs_of(a, "dngram", of[HIR_FORM_NGRAM_GRAD]), attrs_of(a, "last", last),
        attrs_of(a, "out",
                 (attributes){last.rows, hir_split_name(hir_form(HIR_FORM_ROW_PROGRAM)->decode),
                              hir_split_name(hir_form(HIR_FORM_ROW_PROGRAM)->prefill)}));
}

/* What is said of the model; NULL: it is accepted. In `a`. */
static const char *said_of(hd_arena *a, hir_kernel_form form, attributes s) {
    bench b = new_bench(model_text(a, form, s));
    const char *said = NULL;
    if (!b.m || !hir_verify_kernels(b.m, &b.diags)) said = hd_strdup(a, errors_of(&b));
    hd_arena_free(b.arena);
    return said;
}

static void check_splits(hd_arena *a, hir_kernel_form form, bool decode, unsigned may) {
    for (int i = 0; i < HIR_SPLITS; i++) {
        attributes s = chosen(form);
        *(decode ? &s.decode : &s.prefill) = hir_split_name((hir_split)i);
        const char *said = said_of(a, form, s), *name = hir_form(form)->name;
        if (may & 1u << i) {
            cr_expect_null(said, "%s may be split by %s:\n%s", name, hir_split_name(i), said);
            continue;
        }
        cr_assert_not_null(said, "%s is split by %s", name, hir_split_name(i));
        hd_text choices;
        hd_text_init(&choices, a);
        hir_list_splits(&choices, may);
        cr_expect(strstr(said, "cannot be split among threads so"), "%s", said);
        cr_expect(strstr(said, choices.at), "no choices (%s) in:\n%s", choices.at, said);
    }
}

Test(kernels, splits_of_every_form) {
    hd_arena *a = hd_arena_new();
    for (int i = 0; i < HIR_KERNEL_FORMS; i++) {
        const hir_form_info *form = hir_form((hir_kernel_form)i);
        check_splits(a, (hir_kernel_form)i, true, form->may_decode);
        check_splits(a, (hir_kernel_form)i, false, form->may_prefill);
    }
    hd_arena_free(a);
}

/* What schedule chooses is one of the splits that the rules accept. */
Test(kernels, what_is_chosen_is_allowed) {
    for (int i = 0; i < HIR_KERNEL_FORMS; i++) {
        const hir_form_info *form = hir_form((hir_kernel_form)i);
        cr_expect(form->may_decode & 1u << form->decode, "%s", form->name);
        cr_expect(form->may_prefill & 1u << form->prefill, "%s", form->name);
        cr_expect(form->phases & 1u << HIR_PREFILL, "%s: others call that of prefill", form->name);
    }
}

Test(kernels, rows_of_every_form) {
    hd_arena *a = hd_arena_new();
    for (int i = 0; i < HIR_KERNEL_FORMS; i++) {
        attributes s = chosen((hir_kernel_form)i);
        s.rows = hir_rows_name(HIR_ROWS_LAST);
        const bool may = hir_form((hir_kernel_form)i)->traits & HIR_LAST_ROWS;
        const char *said = said_of(a, (hir_kernel_form)i, s);
        cr_expect_eq(said == NULL, may, "%s: %s", hir_form((hir_kernel_form)i)->name,
                     said ? said : "accepted");
    }
    hd_arena_free(a);
}

/* Words that are in no table are refused with all that are. */
Test(kernels, unknown_words) {
    hd_arena *a = hd_arena_new();
    for (int i = 0; i < HIR_KERNEL_FORMS; i++) {
        attributes rows = chosen((hir_kernel_form)i), decode = rows, prefill = rows;
        rows.rows = "lats", decode.decode = "key", prefill.prefill = "";
        const char *of_rows = said_of(a, (hir_kernel_form)i, rows);
        const char *of_decode = said_of(a, (hir_kernel_form)i, decode);
        const char *of_prefill = said_of(a, (hir_kernel_form)i, prefill);
        cr_assert(of_rows && of_decode && of_prefill);
        for (int k = 0; k < HIR_ROWS; k++)
            cr_expect(strstr(of_rows, hir_rows_name((hir_rows)k)), "%s", of_rows);
        for (int k = 0; k < HIR_SPLITS; k++) {
            cr_expect(strstr(of_decode, hir_split_name((hir_split)k)), "%s", of_decode);
            cr_expect(strstr(of_prefill, hir_split_name((hir_split)k)), "%s", of_prefill);
        }
        cr_expect(strstr(of_decode, "did you mean \"keys\"?"), "%s", of_decode);
        cr_expect(strstr(of_rows, "did you mean \"last\"?"), "%s", of_rows);
    }
    hd_arena_free(a);
}

Test(kernels, names_are_read_back) {
    hir_split split;
    hir_rows rows;
    for (int i = 0; i < HIR_SPLITS; i++)
        cr_expect(hir_split_by_name(hir_split_name((hir_split)i), &split) && split == (hir_split)i);
    for (int i = 0; i < HIR_ROWS; i++)
        cr_expect(hir_rows_by_name(hir_rows_name((hir_rows)i), &rows) && rows == (hir_rows)i);
    cr_expect_not(hir_split_by_name("", &split));
    cr_expect_not(hir_rows_by_name("none", &rows));
}

/* Every kernel op is a kind, and every kind has a form. */
Test(kernels, kinds_cover_kernel_ops) {
    for (int code = 0; code < HIR_OPCODE_COUNT; code++) {
        const hir_kernel_kind kind = hir_kind_of((hir_opcode)code);
        const bool region = hir_has_trait((hir_opcode)code, HIR_REGION);
        cr_expect_eq(kind != HIR_KERNEL_KINDS, region, "%s", hir_info((hir_opcode)code)->name);
        bool any = false;
        for (int i = 0; i < HIR_KERNEL_FORMS; i++)
            any |= hir_form((hir_kernel_form)i)->kind == kind;
        cr_expect(!region || any, "%s has no form", hir_info((hir_opcode)code)->name);
    }
}

/* A sequence kernel without an op that looks along the sequence, and with two. */
Test(kernels, a_sequence_kernel_has_one_form) {
    hd_arena *a = hd_arena_new();
    static const char *const bodies[][2] = {
        {"    %b = reshape %q {shape = [T, 2, 8]} : f32[T, 2, 8]\n",
         "it is one of attention, attention.carried, attention.latent, attention.expanded, select, "
         "attention_selected, pool, short_conv, "
         "ngram_gather, delta_rule"},
        {"    %a = attention %q, %c, %c {scale = 1} : f32[T, 2, 8]\n"
         "    %b = attention %q, %c, %c {scale = 2} : f32[T, 2, 8]\n",
         "has one op that looks along the sequence"},
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        bench b = new_bench(hd_printf(
            a,
            "hir 1 kernel @f\n\nstate $k : f32[C, 2, 8]\n\nfunc(%%x: f32[T, 2, 8]) {\n"
            "  %%q, %%c = kernel.row {name = \"r\", rows = \"all\", split_decode = \"none\", "
            "split_prefill = \"rows\"} : f32[T, 2, 8], f32[C, 2, 8] {\n"
            "    %%1 = neg %%x : f32[T, 2, 8]\n"
            "    %%2 = cache_append %%1, $k : f32[C, 2, 8]\n    yield %%1, %%2\n  }\n"
            "  %%o = kernel.sequence {name = \"s\", rows = \"all\", split_decode = \"keys\", "
            "split_prefill = \"cols\"} : f32[T, 2, 8] {\n%s    yield %%b\n  }\n"
            "  output %%o {name = \"o\"}\n}\n",
            bodies[i][0]));
        cr_assert_not_null(b.m, "%s", errors_of(&b));
        cr_expect_not(hir_verify_kernels(b.m, &b.diags), "%s", bodies[i][0]);
        cr_expect(strstr(errors_of(&b), bodies[i][1]), "%s", errors_of(&b));
        hd_arena_free(b.arena);
    }
    hd_arena_free(a);
}
