/* hcg_lower: kernel IR to steps, shared kernels, operands, weight offsets and the digest. */
#include <criterion/criterion.h>

#include "passes/pass.h"
#include "tests/unit/arena_fixture.h"
#include "tests/unit/codegen/toy_model.h"

TestSuite(lower, .init = open_arena, .fini = close_arena);

static hcg_program *lower_with(const char *text, const hcg_options *o) {
    hir_module *m = hir_parse(arena, &diags, "test.hir", text);
    if (!m) cr_assert_fail("%s\n%s", diags.list.at[0].message, text);
    return hcg_lower(arena, &diags, m, o);
}

static hcg_program *lower(const char *text) {
    hcg_program *p = lower_with(text, NULL);
    if (!p) cr_assert_fail("%s", diags.list.at[0].message);
    return p;
}

static const hcg_kernel *kernel_named(const hcg_program *p, const char *name) {
    for (size_t i = 0; i < p->kernels.n; i++)
        if (!strcmp(p->kernels.at[i].name, name)) return &p->kernels.at[i];
    return NULL;
}

/* A plain function: one row kernel with this body. */
static const char *function(const char *tables, const char *inputs, const char *type,
                            const char *body) {
    return hd_printf(arena,
                     "hir 1 kernel @f\n\narena 0 per token\nfixed 0\n\n%s\nfunc(%s) {\n"
                     "  %%y = kernel.row {name = \"k\", rows = \"all\", split_decode = \"none\", "
                     "split_prefill = \"rows\"} : %s in output[0] {\n%s  }\n"
                     "  output %%y {name = \"y\"}\n}\n",
                     tables, inputs, type, body);
}

/* ---- what is made ---------------------------------------------------------------------------- */
Test(lower, equal_bodies_share_a_kernel) {
    hcg_program *p = lower(toy_model(arena, "toy", 5, 40));
    cr_assert_eq(p->kernels.n, lower(toy_model(arena, "toy", 2, 40))->kernels.n,
                 "the number of functions does not grow with depth");
    cr_assert_eq(p->steps.n, 2 + 5 * 4 + 1, "each kernel of each layer is a step");
    for (int l = 1; l < 5; l++)
        for (int k = 0; k < 4; k++) {
            const hrt_step *a = &p->steps.at[2 + k], *b = &p->steps.at[2 + 4 * l + k];
            cr_assert_eq(a->kernel_decode, b->kernel_decode);
            cr_assert_eq(a->kernel_prefill, b->kernel_prefill);
            cr_assert_eq(a->n_operands, b->n_operands);
            cr_assert_str_neq(a->name, b->name);
        }
    cr_assert_str_eq(p->kernels.at[p->steps.at[2].kernel_decode].name, "qkv0_decode");
    cr_assert_eq(p->kernels.at[p->steps.at[2].kernel_decode].phase, HIR_DECODE);
    cr_assert_eq(p->kernels.at[p->steps.at[2].kernel_prefill].phase, HIR_PREFILL);
    const hrt_step *attention = &p->steps.at[4];
    cr_assert_eq(attention->small_batch, HRT_SMALL_BATCH);
    cr_assert_eq(p->kernels.at[attention->kernel_small_batch].phase, HIR_SMALL_BATCH);
    cr_assert_eq(p->steps.at[2].small_batch, 0, "contractions take 2 .. as many");
    cr_assert_eq(p->steps.at[0].kernel_decode, p->steps.at[0].kernel_prefill,
                 "row programs have one function for all phases");
}

/* What a contraction multiplies is found out once, and carried by each kernel that is made of it.
 */
Test(lower, facts_of_contractions_are_carried) {
    hcg_program *p = lower(toy_model(arena, "toy", 5, 40));
    size_t contractions = 0;
    for (size_t i = 0; i < p->kernels.n; i++) {
        const hcg_kernel *k = &p->kernels.at[i];
        const bool is = hir_op_at(p->m, k->op)->code == HIR_KERNEL_CONTRACT_OP;
        cr_assert_eq(k->contraction != NULL, is, "%s", k->name);
        cr_assert_eq(k->contraction, p->contractions[k->op]);
        contractions += is;
    }
    cr_assert_gt(contractions, 0);
}

Test(lower, size_does_not_grow_with_depth) {
    size_t n = lower(toy_model(arena, "toy", 1, 40))->kernels.n;
    cr_assert_eq(lower(toy_model(arena, "toy", 64, 40))->kernels.n, n);
}

/* Two kernels, the second with one thing changed, in a module that holds both. */
static size_t kernels_of_pair(const char *first, const char *second) {
    const char *text = hd_printf(arena,
                                 "hir 1 kernel @f\n\narena 1024 per token\nfixed 0\n\n"
                                 "weight @a : f32[8]\nweight @b : f32[8]\n"
                                 "\nfunc(%%x: f32[T, 8], %%z: f32[T, 8]) {\n"
                                 "  %%u = kernel.row {name = \"one\", rows = \"all\", split_decode "
                                 "= \"none\", split_prefill = "
                                 "\"rows\"} : f32[T, 8] in arena[0] {\n%s  }\n"
                                 "  %%y = kernel.row {name = \"two\", rows = \"all\", split_decode "
                                 "= \"none\", split_prefill = "
                                 "\"rows\"} : f32[T, 8] in output[0] {\n%s  }\n"
                                 "  output %%y {name = \"y\"}\n}\n",
                                 first, second);
    return lower(text)->kernels.n;
}

Test(lower, what_makes_kernels_differ) {
    const char *first = "    %p = mul %x, @a : f32[T, 8]\n    yield %p\n";
    cr_assert_eq(kernels_of_pair(first, "    %q = mul %u, @b : f32[T, 8]\n    yield %q\n"), 1);
    cr_assert_eq(kernels_of_pair(first, "    %q = mul @b, %u : f32[T, 8]\n    yield %q\n"), 2);
    cr_assert_eq(kernels_of_pair(first, "    %q = add %u, @b : f32[T, 8]\n    yield %q\n"), 2);
    cr_assert_eq(kernels_of_pair(first, "    %q = mul %u, %z : f32[T, 8]\n    yield %q\n"), 2);
    /* one operand twice is another pattern than two operands */
    cr_assert_eq(kernels_of_pair("    %p = mul %x, %z : f32[T, 8]\n    yield %p\n",
                                 "    %q = mul %u, %x : f32[T, 8]\n    yield %q\n"),
                 1);
    cr_assert_eq(kernels_of_pair("    %p = mul %x, %z : f32[T, 8]\n    yield %p\n",
                                 "    %q = mul %u, %u : f32[T, 8]\n    yield %q\n"),
                 2);
    cr_assert_eq(kernels_of_pair("    %c = const {shape = [], value = 2} : f32[]\n"
                                 "    %p = mul %x, %c : f32[T, 8]\n    yield %p\n",
                                 "    %d = const {shape = [], value = 2.5} : f32[]\n"
                                 "    %q = mul %u, %d : f32[T, 8]\n    yield %q\n"),
                 2);
}

static void expect_operand(const hcg_program *p, const hrt_step *s, uint32_t i, hrt_base base,
                           uint32_t index, uint64_t offset) {
    const hrt_operand *o = &p->operands.at[s->first_operand + i];
    cr_assert_lt(i, s->n_operands);
    cr_assert(o->base == base && o->index == index && o->offset == offset,
              "%s operand %u is base %u index %u offset %lu", s->name, i, o->base, o->index,
              (unsigned long)o->offset);
}

Test(lower, operands_stand_in_order) {
    hcg_program *p = lower(toy_model(arena, "toy", 2, 40));
    const hir_module *m = p->m;
#define OFFSET(name) p->weight_offsets.at[hir_find_weight(m, name)]
    const hrt_step *embed = &p->steps.at[1], *qkv = &p->steps.at[6], *append = &p->steps.at[7];
    const hrt_step *attention = &p->steps.at[8], *head = &p->steps.at[10];
    expect_operand(p, embed, 0, HRT_WEIGHT, 0, OFFSET("embed"));
    expect_operand(p, embed, 1, HRT_INPUT, 0, 0);
    expect_operand(p, embed, 2, HRT_FIXED, 0, 0);
    expect_operand(p, embed, 3, HRT_ARENA, 0, 0);
    cr_assert_eq(embed->n_operands, 4);
    expect_operand(p, qkv, 0, HRT_ARENA, 0, 1024);
    expect_operand(p, qkv, 1, HRT_WEIGHT, 0, OFFSET("l1.q"));
    expect_operand(p, qkv, 4, HRT_WEIGHT, 0, OFFSET("l1.vb"));
    expect_operand(p, qkv, 5, HRT_ARENA, 0, 256);
    cr_assert_eq(qkv->n_operands, 8);
    cr_assert_eq(kernel_named(p, "qkv0_decode")->n_inputs, 5);
    /* x, state, x, state: the results are the states */
    expect_operand(p, append, 0, HRT_ARENA, 0, 512);
    expect_operand(p, append, 1, HRT_STATE, 3, 0);
    expect_operand(p, append, 3, HRT_STATE, 4, 0);
    cr_assert_eq(append->n_operands, 4);
    expect_operand(p, attention, 1, HRT_STATE, 3, 0);
    expect_operand(p, attention, 2, HRT_STATE, 4, 0);
    expect_operand(p, head, 2, HRT_OUTPUT, 0, 0);
}

/* Together the panels of a matrix are all of it; q and k, v have columns one after the other. */
Test(lower, matrices_say_which_columns_they_are) {
    hcg_program *p = lower(toy_model(arena, "toy", 1, 40));
    const hrt_step *qkv = &p->steps.at[2];
    int64_t end = 0;
    uint32_t matrices = 0;
    for (uint32_t i = 0; i < qkv->n_operands; i++) {
        const hrt_operand *o = &p->operands.at[qkv->first_operand + i];
        if (o->col_bytes == 0) continue;
        uint64_t bytes = 0;
        for (size_t k = 0; k < p->m->weights.n; k++)
            if (p->weight_offsets.at[k] == o->offset)
                hir_weight_bytes(&p->m->weights.at[k], &bytes);
        cr_assert_eq(o->base, HRT_WEIGHT);
        cr_assert_eq(o->cols * o->col_bytes, bytes);
        cr_assert_eq(o->first_col, end);
        end = o->first_col + o->cols;
        matrices++;
    }
    cr_assert_eq(matrices, 3);
    cr_assert_eq(end, qkv->cols);
    cr_assert_eq(p->operands.at[p->steps.at[1].first_operand].col_bytes, 0, "a table of rows");
}

Test(lower, steps_carry_the_schedule) {
    hcg_program *p = lower(toy_model(arena, "toy", 1, 40));
    const hrt_step *gain = &p->steps.at[0], *embed = &p->steps.at[1], *qkv = &p->steps.at[2];
    const hrt_step *attention = &p->steps.at[4], *head = &p->steps.at[6];
    cr_assert(embed->split_decode == HRT_SPLIT_NONE && embed->split_prefill == HRT_SPLIT_ROWS);
    cr_assert(gain->split_prefill == HRT_SPLIT_NONE, "what has no T is done by one thread");
    cr_assert(qkv->split_decode == HRT_SPLIT_NONE, "a few KB are not worth a meeting of threads");
    cr_assert(qkv->split_prefill == HRT_SPLIT_COLS);
    cr_assert(attention->split_prefill == HRT_SPLIT_CYCLIC && attention->grain == 4);
    cr_assert(head->last_rows == 1 && qkv->last_rows == 0);
    cr_assert_eq(embed->cols, 1);
    cr_assert_eq(attention->cols, 1);
    cr_assert_eq(head->cols, 3, "40 columns are three panels");
    cr_assert_eq(lower(toy_model(arena, "toy", 1, 4000))->steps.at[6].split_decode, HRT_SPLIT_COLS);
}

Test(lower, facts_of_the_program) {
    hcg_options o = {.compile.chunk = 33};
    hcg_program *p = lower_with(toy_model(arena, "toy", 1, 40), &o);
    cr_assert(p->is_model);
    cr_assert_eq(p->vocab, 40);
    cr_assert_eq(p->chunk, 33);
    cr_assert_eq(p->inputs.n, 1);
    cr_assert_str_eq(p->inputs.at[0].name, "tokens");
    cr_assert_str_eq(p->outputs.at[0].name, "logits");
    cr_assert_eq(p->outputs.at[0].row_bytes, 160);
    p = lower(
        function("", "%x: f32[T, 8]", "f32[T, 8]", "    %a = neg %x : f32[T, 8]\n    yield %a\n"));
    cr_assert_not(p->is_model);
    cr_assert_eq(p->vocab, 0);
    cr_assert_eq(p->weights_bytes, 0);
    cr_assert_eq(p->chunk, 512);
}

Test(lower, weights_lie_aligned_and_in_order) {
    hcg_program *p = lower(toy_model(arena, "toy", 2, 40));
    const hir_module *m = p->m;
    uint64_t end = 0;
    for (size_t i = 0; i < m->weights.n; i++) {
        uint64_t offset = p->weight_offsets.at[i], bytes;
        if (!strcmp(m->weights.at[i].name, "spare")) {
            cr_assert_eq(offset, HCG_UNREAD);
            continue;
        }
        cr_assert_eq(offset % HRT_ALIGN, 0);
        cr_assert(offset >= end && offset < end + HRT_ALIGN);
        cr_assert(hir_weight_bytes(&m->weights.at[i], &bytes));
        end = offset + bytes;
    }
    cr_assert(p->weights_bytes >= end && p->weights_bytes < end + HRT_ALIGN);
    uint64_t bytes;
    cr_assert(hir_weight_bytes(&m->weights.at[0], &bytes));
    cr_assert_eq(bytes, 48 * 64 * 4, "panels are padded to 16 rows");
}

/* Rows of a table that are weights of their own too lie in the table: one of its first row, one of
 * the next two, one of rows that it has not. A row of 10 elements begins on no line. */
Test(lower, rows_of_a_table_lie_in_it) {
    for (int d = 10; d <= 32; d += 22) {
        const char *text =
            hd_printf(arena,
                      "hir 1 kernel @f\n\narena 0 per token\nfixed 0\n\n"
                      "weight @a : f32[%d]\nweight @b : f32[%d]\nweight @c : f32[%d]\n"
                      "weight @second : f32[2, %d] = @b * @a, @c * @a\n"
                      "weight @table : f32[3, %d] = @a * @a, @b * @a, @c * @a\n"
                      "weight @first : f32[%d] = @a * @a\nweight @other : f32[%d] = @a * @b\n"
                      "func(%%x: f32[T, 3, %d]) {\n"
                      "  %%y = kernel.row {name = \"k\", rows = \"all\", split_decode = \"none\", "
                      "split_prefill = \"rows\"} : f32[T, 3, %d] in output[0] {\n"
                      "    %%0 = mul %%x, @table : f32[T, 3, %d]\n"
                      "    %%1 = mul %%0, @first : f32[T, 3, %d]\n"
                      "    %%2 = mul %%1, @other : f32[T, 3, %d]\n"
                      "    %%3 = slice %%2 {axis = 1, start = 1, length = 2} : f32[T, 2, %d]\n"
                      "    %%4 = mul %%3, @second : f32[T, 2, %d]\n"
                      "    %%5 = slice %%2 {axis = 1, start = 0, length = 1} : f32[T, 1, %d]\n"
                      "    %%6 = concat %%5, %%4 {axis = 1} : f32[T, 3, %d]\n    yield %%6\n  }\n"
                      "  output %%y {name = \"y\"}\n}\n",
                      d, d, d, d, d, d, d, d, d, d, d, d, d, d, d, d);
        hcg_program *p = lower(text);
        const uint32_t table = hir_find_weight(p->m, "table");
        const uint64_t at = p->weight_offsets.at[table], row = (uint64_t)d * 4;
        const char *const names[] = {"first", "second", "other"};
        const uint64_t rows[] = {0, 1, 0};
        for (int i = 0; i < 3; i++) {
            const uint32_t w = hir_find_weight(p->m, names[i]);
            const bool held = i < 2 && d == 32;
            cr_expect_eq(p->weight_holders.at[w], held ? table : HIR_NONE, "%s of %d", names[i], d);
            if (held) cr_expect_eq(p->weight_offsets.at[w], at + rows[i] * row);
            cr_expect_eq(p->weight_offsets.at[w] % HRT_ALIGN, 0);
        }
    }
}

/* A contraction of few weights is no work for several threads, if it has one token. */
Test(lower, small_contractions_of_one_token_stay_on_one_thread) {
    static const int widths[] = {512, 528}; /* times 16 outputs: 32 KB, and a panel row more */
    for (int i = 0; i < 2; i++) {
        hcg_program *p = lower(hd_printf(
            arena,
            "hir 1 kernel @f\n\narena 0 per token\nfixed 0\n\nweight @w : f32[16, %d] panel\n"
            "func(%%x: f32[T, %d]) {\n"
            "  %%y = kernel.contract {name = \"c\", rows = \"all\", split_decode = \"cols\", "
            "split_prefill = \"cols\"} : f32[T, 16] in output[0] {\n"
            "    %%0 = linear %%x, @w, _ : f32[T, 16]\n    yield %%0\n  }\n"
            "  output %%y {name = \"y\"}\n}\n",
            widths[i], widths[i]));
        cr_expect_eq(p->steps.at[0].split_decode, i ? HRT_SPLIT_COLS : HRT_SPLIT_NONE);
        cr_expect_eq(p->steps.at[0].split_prefill, HRT_SPLIT_COLS);
    }
}

static bool same_digest(const char *a, const char *b) {
    return !memcmp(lower(a)->digest, lower(b)->digest, 16);
}

static const char *edited(const char *text, const char *what, const char *with) {
    const char *at = strstr(text, what);
    cr_assert_not_null(at, "%s", what);
    return hd_printf(arena, "%.*s%s%s", (int)(at - text), text, with, at + strlen(what));
}

Test(lower, digest_covers_the_table_of_weights) {
    const char *body = "    %a = mul %x, @w : f32[T, 8]\n    yield %a\n";
    const char *plain = function("weight @w : f32[8]\n", "%x: f32[T, 8]", "f32[T, 8]", body);
    const char *sums = "    %a = add %x, @w : f32[T, 8]\n    yield %a\n";
    cr_assert(same_digest(plain, plain));
    cr_assert(
        same_digest(plain, function("weight @w : f32[8]\n", "%x: f32[T, 8]", "f32[T, 8]", sums)),
        "what is computed with the weights does not matter");
    cr_assert(same_digest(plain, function("weight @w : f32[8]\nweight @v : f32[8] unused\n",
                                          "%x: f32[T, 8]", "f32[T, 8]", body)));
    const char *toy = toy_model(arena, "toy", 1, 40);
    cr_assert_not(same_digest(toy, edited(toy, "bf16[64, 64]", "f32[64, 64]")));
    cr_assert_not(
        same_digest(plain, function("weight @w : f32[1]\n", "%x: f32[T, 8]", "f32[T, 8]", body)));
    cr_assert_not(same_digest(plain, function("weight @v : f32[8]\n", "%x: f32[T, 8]", "f32[T, 8]",
                                              "    %a = mul %x, @v : f32[T, 8]\n    yield %a\n")));
    cr_assert_not(same_digest(toy_model(arena, "toy", 1, 40), toy_model(arena, "toy", 1, 41)));
    cr_assert(same_digest(toy_model(arena, "toy", 1, 40), toy_model(arena, "other", 1, 40)));
}

Test(lower, lines_are_those_of_the_printed_module) {
    hcg_options o = {.ir_file = "toy.kernel.hir"};
    hcg_program *p = lower_with(toy_model(arena, "toy", 3, 40), &o);
    hd_text text;
    hd_text_init(&text, arena);
    hir_print(p->m, (hir_print_options){0}, &text);
    HIR_EACH(p->m, id, p->m->first) {
        const char *line = text.at;
        for (uint32_t n = 1; n < p->op_lines[id]; n++)
            line = strchr(line, '\n') + 1;
        const char *name = hir_attr_string(hir_op_at(p->m, id), HIR_A_NAME, "?");
        const char *found = strstr(line, hd_printf(arena, "name = \"%s\"", name));
        cr_assert(found && found < strchr(line, '\n'), "line %u is not that of %s", p->op_lines[id],
                  name);
    }
    cr_assert_eq(kernel_named(p, "head_prefill")->line,
                 p->op_lines[kernel_named(p, "head_prefill")->op]);
}

Test(lower, kernel_names_become_symbols) {
    const char *text =
        "hir 1 kernel @f\n\narena 1024 per token\nfixed 0\n\n"
        "func(%x: f32[T, 8]) {\n"
        "  %u = kernel.row {name = \"a b\", rows = \"all\", split_decode = \"none\", "
        "split_prefill = \"rows\"} : f32[T, 8] in arena[0] {\n"
        "    %p = neg %x : f32[T, 8]\n    yield %p\n  }\n"
        "  %y = kernel.row {name = \"a-b\", rows = \"all\", split_decode = \"none\", "
        "split_prefill = \"rows\"} : f32[T, 8] in output[0] {\n"
        "    %q = abs %u : f32[T, 8]\n    yield %q\n  }\n"
        "  output %y {name = \"y\"}\n}\n";
    hcg_program *p = lower(text);
    cr_assert_str_eq(p->kernels.at[0].name, "a_b");
    cr_assert_str_eq(p->kernels.at[1].name, "a_b_2");
}

/* ---- what is refused ------------------------------------------------------------------------- */
static void rejected(const char *text, hd_error code, const char *part) {
    diags.list.n = 0;
    diags.errors = 0;
    hir_module *m = hir_parse(arena, &diags, "test.hir", text);
    if (!m) cr_assert_fail("%s\n%s", diags.list.at[0].message, text);
    cr_assert_null(hcg_lower(arena, &diags, m, NULL), "accepted: %s", part);
    cr_assert_eq(hd_diags_first(&diags), code, "%s", diags.list.at[0].message);
    cr_assert_not_null(strstr(diags.list.at[0].message, part), "\"%s\" is not in \"%s\"", part,
                       diags.list.at[0].message);
}

Test(lower, rejects_what_is_no_kernel_ir) {
    rejected("hir 1 graph @g\n\nfunc(%x: f32[T, 8]) {\n  %a = neg %x : f32[T, 8]\n"
             "  output %a {name = \"y\"}\n}\n",
             HD_E_TYPE, "kernel IR");
    rejected("hir 1 kernel @g\n\narena 0 per token\nfixed 0\n\nfunc(%x: f32[T, 8]) {\n"
             "  %a = neg %x : f32[T, 8]\n  output %a {name = \"y\"}\n}\n",
             HD_E_TYPE, "outside of a kernel");
    const char *toy = toy_model(arena, "toy", 1, 40);
    rejected(edited(toy, " in arena[1024]", ""), HD_E_TYPE, "no place");
    rejected(edited(toy, " in output[0]", " in arena[0]"), HD_E_TYPE, "output[n]");
}

Test(lower, rejects_names_that_cannot_be_prefixes) {
    rejected(toy_model(arena, "hrt", 1, 40), HD_E_NAME, "hrt");
    rejected(toy_model(arena, "hrt_session", 1, 40), HD_E_NAME, "hrt");
    lower(toy_model(arena, "hrtx", 1, 40));
}

Test(lower, rejects_models_that_forward_cannot_serve) {
    const char *toy = toy_model(arena, "toy", 1, 40);
    rejected(edited(toy, "rows = \"last\"", "rows = \"all\""), HD_E_TYPE, "first output");
    rejected(
        edited(toy, "%tokens: i32[T] in input[0]", "%tokens: i32[T] in input[0], %x: f32[T, 2]"),
        HD_E_TYPE, "only kernels of a model");
    rejected("hir 1 kernel @g\n\narena 0 per token\nfixed 0\n\nfunc(%x: f32[T, 8]) {\n}\n",
             HD_E_UNSUPPORTED, "no output");
}

/* ---- memory that threads share --------------------------------------------------------------- */
/* One layer that attends, as `op` says, over caches of keys and of entries; after these passes. */
static hcg_program *attending_after(const hir_pass_id *passes, const char *stage, const char *op) {
    hir_module *m =
        hir_parse(arena, &diags, "test.hir",
                  hd_printf(arena,
                            "hir 1 %s @m\nweight @w : f32[10, 16]\nstate $k : f32[C, 1, 8]\n"
                            "state $e : f32[C/4, 1, 8]\nfunc(%%ids: i32[T]) {\n"
                            "  %%x = gather @w, %%ids : f32[T, 16]\n"
                            "  %%q = reshape %%x {shape = [T, 2, 8]} : f32[T, 2, 8]\n"
                            "  %%r = slice %%q {axis = 1, start = 0, length = 1} : f32[T, 1, 8]\n"
                            "  %%c = cache_append %%r, $k : f32[C, 1, 8]\n"
                            "  %%d = cache_append %%r, $e : f32[C/4, 1, 8]\n"
                            "  %%o = %s : f32[T, 2, 8]\n"
                            "  %%y = reshape %%o {shape = [T, 16]} : f32[T, 16]\n"
                            "  output %%y {name = \"logits\"}\n}\n",
                            stage, op));
    cr_assert(m, "%s", diags.list.n ? diags.list.at[0].message : "");
    hir_compile_options options = {.chunk = 512};
    hir_run run = {.passes = passes, .stop_after = HIR_PASS_COUNT};
    while (run.passes[run.n_passes] != HIR_PASS_COUNT)
        run.n_passes++;
    cr_assert(hir_run_passes(m, &run, &options, NULL, &diags), "%s",
              diags.list.n ? diags.list.at[0].message : "");
    hcg_program *p = hcg_lower(arena, &diags, m, NULL);
    cr_assert(p, "%s", diags.list.n ? diags.list.at[0].message : "");
    return p;
}

static hcg_program *attending(const char *op) {
    return attending_after(hir_pipeline(), "graph", op);
}

/* A window limits the ranges of attention, but not those of a list, which has entries of the whole
 * sequence beside the window, nor of gradients, which are of the whole sequence. */
Test(lower, only_ranges_of_positions_are_limited_by_a_window) {
    const hcg_program *all = attending("attention %q, %c, %c, _, _ {scale = 1}");
    cr_expect_gt(all->range_bytes, 0);
    cr_expect_eq(all->window_ranges, 0);
    const hcg_program *some = attending("attention %q, %c, %c, _, _ {scale = 1, window = 300}");
    cr_expect_eq(some->range_bytes, 0);
    cr_expect_eq(some->window_ranges, 3); /* 307 positions, from the last of a range on */
    cr_expect_eq(some->window_range_bytes, all->range_bytes);
    const hcg_program *list =
        attending("attention_selected %q, %c, %c, _, _, %d {scale = 1, window = 300}");
    cr_expect_gt(list->range_bytes, 0);
    cr_expect_eq(list->window_ranges, 0);
    static const hir_pass_id passes[] = {HIR_PASS_FUSE,     HIR_PASS_EXPAND,      HIR_PASS_LAYOUT,
                                         HIR_PASS_SCHEDULE, HIR_PASS_PLAN_MEMORY, HIR_PASS_COUNT};
    const hcg_program *gradient = attending_after(
        passes, "depth",
        "attention_grad %q, %c, %c, _, _, %q {scale = 1, window = 300, of = \"q\"}");
    cr_expect_gt(gradient->range_bytes, 0);
    cr_expect_eq(gradient->window_ranges, 0);
    cr_expect_eq(all->least_ranges, 0);
    cr_expect_eq(list->least_ranges, HRT_LIST_RANGES);
}
