/* Schedules of row programs, read as data (codegen/rowwise/schedule/): which loops are unrolled,
 * jammed, blocked and interchanged, what goes together, what is prefetched and stored
 * non-temporally, on machines that are made up. Nothing is compiled, so no CPU need have them. */
#include <criterion/criterion.h>

#include "codegen/program/contraction.h"
#include "codegen/program/keys.h"
#include "codegen/rowwise/schedule/schedule.h"
#include "tests/unit/ir/ir_fixture.h"

TestSuite(row_schedule, .init = open_arena, .fini = close_arena);

static const row_target avx512 = {
    .lanes = 16,
    .registers = 32,
    .nontemporal = true,
    .machine = {.line = 64, .l1 = 32 << 10, .l2 = 1 << 20, .l3 = 16 << 20, .in_flight = 4096}};
static const row_target avx2 = {
    .lanes = 8,
    .registers = 16,
    .nontemporal = true,
    .machine = {.line = 64, .l1 = 32 << 10, .l2 = 256 << 10, .l3 = 8 << 20, .in_flight = 4096}};

/* ---- texts ----------------------------------------------------------------------------------- */

/* A module of one row kernel. `inputs` and `results` are lists with places, `head` names results.
 */
static const char *module_text(const char *tables, const char *inputs, const char *head,
                               const char *results, const char *body) {
    return hd_printf(arena,
                     "hir 1 kernel @t\narena 1048576 per token\nfixed 0\n%sfunc(%s) {\n"
                     "  %s = kernel.row {name = \"row0\", rows = \"all\", split_decode = "
                     "\"none\", "
                     "split_prefill = \"rows\"} : %s {\n%s  }\n}\n",
                     tables, inputs, head, results, body);
}

static hir_module *module_of(const char *text) {
    hir_module *m = parse(text);
    cr_assert_not_null(m, "%s\n%s", said(), text);
    return m;
}

static row_schedule schedule(const hir_module *m, const row_target *target) {
    row_graph *g = hd_new(arena, row_graph);
    hcg_kernel *k = hd_new(arena, hcg_kernel);
    row_schedule s;
    *k = (hcg_kernel){.kind = HIR_KERNEL_ROW, .op = m->first};
    cr_assert(row_schedule_kernel(arena, &diags, m, k, target, g, &s), "%s", said());
    return s;
}

static const char *text_of(const row_schedule *s) {
    hd_text t;
    hd_text_init(&t, arena);
    row_print_schedule(s, "", &t);
    return t.at;
}

/* The nest with the largest domain: the one that a test is about. */
static const row_nest *largest(const row_schedule *s) {
    const row_nest *most = NULL;
    for (size_t i = 0; i < s->per_token.list.n; i++) {
        const row_nest *nest = &s->per_token.list.at[i];
        const bool more =
            !most || row_size_less(row_elements(&most->domain), row_elements(&nest->domain));
        if (nest->roots.n && more) most = nest;
    }
    cr_assert_not_null(most);
    return most;
}

/* `format` with the numbers 0 .. n - 1, as a list. */
static const char *list(int n, const char *format) {
    hd_text t;
    hd_text_init(&t, arena);
    hd_text_add(&t, "");
    for (int i = 0; i < n; i++) {
        if (i) hd_text_add(&t, ", ");
        for (const char *c = format; *c; c++)
            if (*c == '#')
                hd_text_f(&t, "%d", i);
            else
                hd_text_add_n(&t, c, 1);
    }
    return t.at;
}

/* ---- phase 1 of a block ---------------------------------------------------------------------- */

/* Dot products of n sources of d elements with q queries. */
static row_schedule phase1(int n, int q, int d, const row_target *target) {
    const char *body =
        hd_printf(arena,
                  "    %%s = stack %s {axis = 1} : f32[T, %d, %d]\n"
                  "    %%r = reshape %%s {shape = [T, %d, 1, %d]} : f32[T, %d, 1, %d]\n"
                  "    %%p = mul %%r, @w : f32[T, %d, %d, %d]\n"
                  "    %%z = reduce_sum %%p {axis = 3} : f32[T, %d, %d]\n    yield %%z\n",
                  list(n, "%x#"), n, d, n, d, n, d, n, q, d, n, q);
    const char *format = hd_printf(arena, "%%x#: f32[T, %d] in input[#]", d);
    return schedule(
        module_of(module_text(hd_printf(arena, "weight @w : f32[%d, %d]\n", q, d), list(n, format),
                              "%a", hd_printf(arena, "f32[T, %d, %d] in arena[0]", n, q), body)),
        target);
}

/* Queries outnumber sources, so the few sources stay in the L1 while all queries pass. */
Test(row_schedule, phase_1_is_blocked_and_interchanged) {
    const row_schedule s = phase1(4, 32, 4096, &avx512);
    const row_nest *nest = largest(&s);
    cr_assert(nest->sums, "%s", text_of(&s));
    cr_expect_eq(nest->domain.rank, 3);
    cr_expect(nest->block.length > 0 && nest->block.length < 4096, "%s", text_of(&s));
    cr_expect(nest->block.interchanged);
    cr_assert_eq(nest->prefetch.n, 1);
    cr_expect_eq(nest->prefetch.at[0].dim, 0, "sources are prefetched");
}

Test(row_schedule, more_sources_than_queries_are_not_interchanged) {
    const row_schedule s = phase1(32, 4, 4096, &avx512);
    const row_nest *nest = largest(&s);
    cr_expect(nest->block.length > 0 && !nest->block.interchanged, "%s", text_of(&s));
}

/* The rows in use, those that go together and all that they meet, fit into the L1: half as many
 * again do not. */
Test(row_schedule, blocks_follow_the_size_of_the_l1) {
    row_target zen5 = avx512;
    zen5.machine.l1 = 48 << 10;
    for (int q = 8; q <= 32; q += 4) {
        const row_schedule small = phase1(4, q, 8192, &avx512), large = phase1(4, q, 8192, &zen5);
        const row_target *targets[] = {&avx512, &zen5};
        const row_nest *nests[] = {largest(&small), largest(&large)};
        for (int i = 0; i < 2; i++) {
            const row_nest *nest = nests[i];
            int64_t rows =
                1 + (nest->block.interchanged ? nest->jam.inner + 4 : nest->jam.outer + q);
            if (nest->block.interchanged) rows *= 2; /* the next block is prefetched */
            const int64_t bytes = nest->block.length * rows * 4;
            cr_expect(bytes <= targets[i]->machine.l1 || nest->block.length == 512,
                      "%d queries: %lld bytes", q, (long long)bytes);
            cr_expect(2 * bytes > targets[i]->machine.l1, "%d queries: %lld bytes", q,
                      (long long)bytes);
        }
        cr_expect_geq(nests[1]->block.length, nests[0]->block.length);
    }
    const row_schedule a = phase1(2, 8, 8192, &avx512), b = phase1(2, 8, 8192, &zen5);
    cr_expect_lt(largest(&a)->block.length, largest(&b)->block.length, "%s%s", text_of(&a),
                 text_of(&b));
}

Test(row_schedule, rows_that_stay_in_the_l1_are_not_blocked) {
    const row_schedule s = phase1(4, 8, 256, &avx512);
    cr_expect_eq(largest(&s)->block.length, 0, "%s", text_of(&s));
}

/* Accumulators leave registers for operands. */
Test(row_schedule, sums_that_registers_hold) {
    const row_target *targets[] = {&avx512, &avx2};
    for (int t = 0; t < 2; t++) {
        const uint32_t most = row_most_products(targets[t]);
        cr_expect_leq(row_most_sums(targets[t]), most);
        for (int n = 2; n <= 9; n++)
            for (int q = 2; q <= 20; q += 3) {
                const row_schedule s = phase1(n, q, 512, targets[t]);
                const row_nest *nest = largest(&s);
                const uint32_t jam = nest->jam.outer * nest->jam.inner;
                const uint32_t stay = nest->outer_stays ? nest->jam.outer : nest->jam.inner;
                cr_expect_leq(jam * nest->unroll[jam], most, "%s", text_of(&s));
                cr_expect_leq(jam * nest->unroll[jam] + stay + 1, targets[t]->registers, "%s",
                              text_of(&s));
                cr_expect_gt(jam, 1, "%s", text_of(&s));
            }
    }
    const row_schedule wide = phase1(8, 16, 512, &avx512), narrow = phase1(8, 16, 512, &avx2);
    const row_jam a = largest(&wide)->jam, b = largest(&narrow)->jam;
    cr_expect_gt(a.outer * a.inner, b.outer * b.inner);
    cr_expect_gt(b.outer, 1, "more loads than products: %s", text_of(&narrow));
}

/* ---- many results of the same rows ----------------------------------------------------------- */

/* n rows x0 + %c y, and with `squares` the sum of squares of each. */
static row_schedule rows_of_two(int n, bool squares, const row_target *target) {
    hd_text body, results, yields;
    hd_text_init(&body, arena), hd_text_init(&results, arena), hd_text_init(&yields, arena);
    for (int i = 0; i < n; i++) {
        hd_text_f(&body,
                  "    %%k%d = const {value = %d, shape = []} : f32[]\n    %%m%d = "
                  "mul %%y, %%k%d : f32[T, "
                  "2048]\n    %%r%d = add %%x, %%m%d : f32[T, 2048]\n",
                  i, i + 2, i, i, i, i);
        if (squares)
            hd_text_f(&body,
                      "    %%q%d = mul %%r%d, %%r%d : f32[T, 2048]\n"
                      "    %%s%d = reduce_sum %%q%d {axis = 1} : f32[T]\n",
                      i, i, i, i, i);
        hd_text_f(&results, "%sf32[T, 2048] in arena[%d]", i ? ", " : "", i * 8192);
        hd_text_f(&yields, "%s%%r%d", i ? ", " : "", i);
    }
    for (int i = 0; squares && i < n; i++) {
        hd_text_f(&results, ", f32[T] in arena[%d]", (n + i) * 8192);
        hd_text_f(&yields, ", %%s%d", i);
    }
    hd_text_f(&body, "    yield %s\n", yields.at);
    return schedule(
        module_of(module_text("", "%x: f32[T, 2048] in input[0], %y: f32[T, 2048] in input[1]",
                              list(squares ? 2 * n : n, "%o#"), results.at, body.at)),
        target);
}

/* No group has more results than are few enough to be one group. */
Test(row_schedule, many_results_go_in_groups) {
    enum { MANY = 10 };
    uint32_t few = 1;
    for (row_schedule s = rows_of_two(2, false, &avx512); largest(&s)->groups.first.n == 0;
         s = rows_of_two((int)few + 1, false, &avx512))
        cr_assert_lt(++few, MANY, "%s", text_of(&s));
    const row_schedule s = rows_of_two(MANY, false, &avx512);
    const row_nest *nest = largest(&s);
    uint32_t end = MANY;
    for (size_t i = 0; i < nest->groups.first.n; end = nest->groups.first.at[i++])
        cr_expect(end - nest->groups.first.at[i] <= few && end > nest->groups.first.at[i]);
    cr_expect_eq(end, 0, "groups cover all results: %s", text_of(&s));
}

/* Does a group begin with this result? */
static bool begins_group(const row_nest *nest, uint32_t i) {
    for (size_t g = 0; g < nest->groups.first.n; g++)
        if (nest->groups.first.at[g] == i) return true;
    return false;
}

/* A sum of squares is in the group of its row, behind it: the row is in registers then. */
Test(row_schedule, results_that_read_a_result_follow_it) {
    const row_schedule s = rows_of_two(8, true, &avx512);
    const row_nest *nest = largest(&s);
    cr_assert_gt(nest->groups.first.n, 1, "%s", text_of(&s));
    const uint32_t *order = nest->groups.order; /* later ones first */
    for (uint32_t i = 0; i < nest->roots.n; i++) {
        const row_node *n = row_at(s.g, order[i]);
        if (!row_along_lanes(n)) continue;
        cr_expect(!row_along_lanes(row_at(s.g, order[i + 1])));
        cr_expect_not(begins_group(nest, i + 1), "%s", text_of(&s));
    }
}

/* ---- reductions over rows -------------------------------------------------------------------- */

/* q mixes of n rows by weights. */
static row_schedule mixes(int n, int q, const row_target *target) {
    hd_text body, results;
    hd_text_init(&body, arena), hd_text_init(&results, arena);
    hd_text_f(&body, "    %%s = stack %s {axis = 1} : f32[T, %d, 1024]\n", list(n, "%x#"), n);
    for (int i = 0; i < q; i++) {
        hd_text_f(&body,
                  "    %%l%d = slice @w {axis = 0, start = %d, length = %d} : f32[%d]\n"
                  "    %%c%d = reshape %%l%d {shape = [%d, 1]} : f32[%d, 1]\n"
                  "    %%p%d = mul %%s, %%c%d : f32[T, %d, 1024]\n"
                  "    %%r%d = reduce_sum %%p%d {axis = 1} : f32[T, 1024]\n",
                  i, i * n, n, n, i, i, n, n, i, i, n, i, i);
        hd_text_f(&results, "%sf32[T, 1024] in arena[%d]", i ? ", " : "", i * 4096);
    }
    hd_text_f(&body, "    yield %s\n", list(q, "%r#"));
    return schedule(module_of(module_text(hd_printf(arena, "weight @w : f32[%d]\n", n * q),
                                          list(n, "%x#: f32[T, 1024] in input[#]"), list(q, "%o#"),
                                          results.at, body.at)),
                    target);
}

/* Every mix is in one team for each unroll, and no team has more accumulators than registers. */
Test(row_schedule, mixes_of_the_same_rows_are_teams) {
    const row_target *targets[] = {&avx512, &avx2};
    for (int t = 0; t < 2; t++)
        for (int q = 1; q <= 20; q++) {
            const row_schedule s = mixes(9, q, targets[t]);
            const row_nest *nest = largest(&s);
            uint32_t members[ROW_UNROLL + 1] = {0};
            for (size_t i = 0; i < nest->teams.n; i++) {
                const row_team *team = &nest->teams.at[i];
                cr_expect(team->n == 1 || team->n * team->unroll <= row_most_sums(targets[t]));
                cr_expect_eq(row_team_of(nest, team->member[0], team->unroll), team);
                members[team->unroll] += team->n;
            }
            cr_expect_eq(members[1], (uint32_t)q, "%s", text_of(&s));
            cr_expect_eq(members[nest->unroll[1]], (uint32_t)q, "%s", text_of(&s));
        }
}

/* The first to read rows prefetches further along them; a mix alone does not. */
Test(row_schedule, teams_prefetch_along_fresh_rows) {
    const row_schedule two = mixes(9, 2, &avx512), one = mixes(9, 1, &avx512);
    const row_nest *nest = largest(&two);
    const row_team *team = row_team_of(nest, nest->roots.at[1], nest->unroll[1]);
    cr_assert_not_null(team, "%s", text_of(&two));
    cr_assert_neq(team->prefetch, HIR_NONE);
    cr_expect_eq(row_at(two.g, team->prefetch)->kind, ROW_MULTI);
    cr_expect_eq(largest(&one)->teams.at[0].prefetch, HIR_NONE);
}

/* ---- stores ---------------------------------------------------------------------------------- */

static row_schedule sum_of_rows(int d, int offset, const row_target *target) {
    const char *type = hd_printf(arena, "f32[T, %d]", d);
    return schedule(
        module_of(module_text(
            "", hd_printf(arena, "%%x: %s in input[0], %%y: %s in input[1]", type, type), "%o",
            hd_printf(arena, "%s in arena[%d]", type, offset),
            hd_printf(arena, "    %%a = add %%x, %%y : %s\n    yield %%a\n", type))),
        target);
}

static bool is_nontemporal(const row_schedule *s) {
    bool is = false;
    for (uint32_t i = 0; i < s->g->nodes.n; i++)
        is |= s->of[i].nontemporal;
    return is;
}

/* Whole lines, and a machine that has such stores. */
Test(row_schedule, nontemporal_stores_are_of_whole_lines) {
    row_target none = avx512;
    none.nontemporal = false;
    const row_schedule whole = sum_of_rows(1024, 0, &avx512), other = sum_of_rows(1028, 0, &avx512);
    const row_schedule neon = sum_of_rows(1024, 0, &none);
    cr_expect(is_nontemporal(&whole));
    cr_expect_not(is_nontemporal(&other), "a row is no whole number of lines");
    cr_expect_not(is_nontemporal(&neon));
    cr_expect_not_null(strstr(text_of(&whole), "non-temporal stores"));
}

/* Vectors are shorter than a line with AVX2: an iteration stores two of each result, however many
 * results there are. */
Test(row_schedule, iterations_fill_what_is_stored_non_temporally) {
    for (int n = 1; n <= 17; n += 4) {
        const row_schedule s = rows_of_two(n, false, &avx2);
        const int64_t bytes = (int64_t)largest(&s)->unroll[1] * avx2.lanes * 4;
        cr_expect(is_nontemporal(&s));
        cr_expect_eq(bytes % row_store_unit(&avx2.machine), 0, "%s", text_of(&s));
    }
}

/* A vector of 64 bytes must lie in one unit on machines with shorter lines, too. */
Test(row_schedule, nontemporal_stores_are_of_whole_vectors) {
    row_target narrow = avx512, wide = avx512;
    narrow.machine.line = 32, wide.machine.line = 96;
    const row_schedule some = sum_of_rows(1032, 0, &narrow), whole = sum_of_rows(1024, 0, &narrow);
    cr_expect_not(is_nontemporal(&some), "rows begin 32 bytes from a multiple of 64");
    cr_expect(is_nontemporal(&whole));
    cr_expect_eq(row_store_unit(&narrow.machine), 64);
    cr_expect_eq(row_store_unit(&wide.machine), 128);
}

/* What the kernel reads again shall stay in the caches. */
Test(row_schedule, what_is_read_again_is_stored_as_usual) {
    const row_schedule s =
        schedule(module_of(module_text("", "%x: f32[T, 1024] in input[0]", "%o, %p",
                                       "f32[T, 1024] in arena[0], f32[T, 1024] in arena[4096]",
                                       "    %a = mul %x, %x : f32[T, 1024]\n"
                                       "    %s = reduce_sum %a {axis = 1} : f32[T]\n"
                                       "    %r = reshape %s {shape = [T, 1]} : f32[T, 1]\n"
                                       "    %b = mul %a, %r : f32[T, 1024]\n    yield %a, %b\n")),
                 &avx512);
    uint32_t nontemporal = 0, stored = 0;
    for (uint32_t i = 0; i < s.g->nodes.n; i++) {
        const row_node *n = row_at(s.g, i);
        stored += s.of[i].root && n->buffer != ROW_NO_BUFFER;
        nontemporal += s.of[i].nontemporal;
    }
    cr_expect_eq(stored, 2, "%s", text_of(&s));
    cr_expect_eq(nontemporal, 1, "%s", text_of(&s));
}

/* ---- small nests ----------------------------------------------------------------------------- */

Test(row_schedule, small_matrices_stay_in_registers) {
    const row_schedule s = schedule(
        module_of(module_text("", "%x: f32[T, 4, 4] in input[0]", "%o", "f32[T, 4, 4] in arena[0]",
                              "    %s = reduce_sum %x {axis = 1} : f32[T, 4]\n"
                              "    %r = reshape %s {shape = [T, 1, 4]} : f32[T, 1, 4]\n"
                              "    %y = div %x, %r : f32[T, 4, 4]\n    yield %y\n")),
        &avx512);
    for (size_t i = 0; i < s.per_token.list.n; i++)
        cr_expect(s.per_token.list.at[i].small, "%s", text_of(&s));
    for (size_t i = 0; i < s.g->buffers.n; i++)
        cr_expect(!s.g->buffers.at[i].used || s.g->buffers.at[i].where != ROW_SCRATCH);
}

/* ---- dynamic sizes --------------------------------------------------------------------------- */

/* Mixes of 2 .. 9 sources, which share a function. */
static const hcg_program *shared_mixes(void) {
    hd_text t;
    hd_text_init(&t, arena);
    hd_text_add(&t, "hir 1 kernel @t\narena 1048576 per token\nfixed 0\n");
    for (int n = 2; n < 10; n++)
        hd_text_f(&t, "weight @w%d : f32[%d]\n", n, n);
    hd_text_f(&t, "func(%s) {\n", list(9, "%x#: f32[T, 1024] in input[#]"));
    for (int n = 2; n < 10; n++)
        hd_text_f(&t,
                  "  %%o%d = kernel.row {name = \"k%d\", rows = \"all\", "
                  "split_decode = \"none\", "
                  "split_prefill = \"rows\"} : f32[T, 1024] in arena[%d] {\n"
                  "    %%s%d = stack %s {axis = 1} : f32[T, %d, 1024]\n"
                  "    %%c%d = reshape @w%d {shape = [%d, 1]} : f32[%d, 1]\n"
                  "    %%p%d = mul %%s%d, %%c%d : f32[T, %d, 1024]\n"
                  "    %%r%d = reduce_sum %%p%d {axis = 1} : f32[T, 1024]\n    "
                  "yield %%r%d\n  }\n",
                  n, n, n * 4096, n, list(n, "%x#"), n, n, n, n, n, n, n, n, n, n, n, n);
    hd_text_add(&t, "}\n");
    hcg_program *p = hd_new(arena, hcg_program);
    p->arena = arena;
    p->m = module_of(t.at);
    p->chunk = 512;
    p->op_lines = hd_new_array(arena, uint32_t, p->m->ops.n + 1);
    cr_assert(hcg_plan_contractions(p, &diags), "%s", said());
    hcg_share_kernels(p);
    return p;
}

Test(row_schedule, dynamic_sizes_are_a_plus_b_n) {
    const hcg_program *p = shared_mixes();
    row_graph g;
    row_schedule s;
    cr_assert_eq(p->kernels.n, 1);
    const hcg_kernel *k = &p->kernels.at[0];
    cr_assert_not_null(k->any);
    cr_assert(row_schedule_kernel(arena, &diags, p->m, k, &avx512, &g, &s), "%s", said());
    const row_nest *nest = largest(&s);
    cr_assert_eq(nest->teams.n, 2, "%s", text_of(&s));
    const row_node *sum = row_at(&g, nest->roots.at[0]);
    cr_expect(row_is_dynamic(sum->extent));
    cr_expect_eq(row_most(&g, sum->extent), 9);
    cr_expect_not(row_is_dynamic(nest->domain.dim[0]), "vectors run along known elements");
    cr_expect_not_null(strstr(text_of(&s), "[1024]: 1 reduction"), "%s", text_of(&s));
}
