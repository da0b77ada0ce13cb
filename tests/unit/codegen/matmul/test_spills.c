/* The functions that multiply x with panels keep sums and operands in vector registers: their code
 * neither stores vectors to the stack nor loads them from there. There are registers for what one
 * step multiplies, and none to spare, so that a load that LLVM moves up is a spill. The code is
 * read as text, for levels that this machine need not have. So is where they prefetch weights to. */
#include <criterion/criterion.h>

#include "tests/unit/codegen/emit_harness.h"

static const char *const multiply[] = {"tile_", "gemv_"};
enum { KINDS = sizeof multiply / sizeof *multiply };

/* Expects none in the functions of a module whose names begin so; returns how many these are. */
static size_t check_functions(const char *module, const char *begin) {
    const size_t n = strlen(begin);
    size_t found = 0;
    for (const char *line = module; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        const char *name = line + (*line == '"');
        if (strncmp(name, "test.", 5) != 0 || strncmp(name + 5, begin, n) != 0) continue;
        const char *end = strstr(line, ".Lfunc_end");
        cr_assert_not_null(end);
        cr_expect_eq(count_spills(line, end), 0, "%.*s", (int)strcspn(line, "\n"), line);
        line = end, found++;
    }
    return found;
}

static const hcg_level *level_of(const char *name) {
    const hcg_level *levels;
    size_t i = 0, n = hcg_levels(&levels);
    while (i < n && strcmp(levels[i].name, name) != 0)
        i++;
    cr_assert(i < n, "%s", name);
    return &levels[i];
}

/* y = x w^T */
static hir_id build(bench *b, hir_dtype dtype) {
    enum { K = 96, N = 100 };
    hir_builder top = hir_at_end(b->m, &b->diags);
    const hir_type in = hir_make_type(HIR_F32, 2, (int64_t[]){HIR_T, K});
    const hir_type out = hir_make_type(HIR_F32, 2, (int64_t[]){HIR_T, N});
    const hir_ref x = hir_value_ref(hir_add_input(b->m, "x", in));
    const hir_attr attrs[] = {hir_string(HIR_A_NAME, "contract0"), hir_string(HIR_A_ROWS, "all"),
                              hir_string(HIR_A_SPLIT_DECODE, "cols"),
                              hir_string(HIR_A_SPLIT_PREFILL, "cols")};
    const hir_id kernel = hir_build_kernel(&top, HIR_KERNEL_CONTRACT_OP, attrs, 4, &out, 1);
    hir_builder body = hir_in_body(b->m, &b->diags, kernel);
    const uint32_t w =
        hir_add_weight(b->m, "w", hir_make_type(dtype, 2, (int64_t[]){N, K}), HD_NOWHERE);
    b->m->weights.at[w].layout = HIR_LAYOUT_PANEL;
    hir_ref args[] = {x, hir_weight_ref(w), hir_no_ref()};
    hir_ref y = hir_emit(&body, HIR_LINEAR_OP, args, 3, NULL, 0);
    hir_build(&body, HIR_YIELD_OP, &y, 1, NULL, 0);
    return kernel;
}

static void check(const char *level, hir_dtype dtype) {
    for (int one = 0; one < 2; one++) {
        bench b = bench_new();
        bench_start(&b);
        const hir_id kernel = build(&b, dtype);
        const char *text = assemble_kernel(&b, HIR_KERNEL_CONTRACT, kernel, one, level_of(level));
        size_t found = 0;
        cr_assert_not_null(text, "%s: %s", level, bench_errors(&b));
        for (int i = 0; i < KINDS; i++)
            found += check_functions(text, multiply[i]);
        cr_expect(found > 0, "%s, %s: functions have other names", level, hir_dtype_name(dtype));
        bench_free(&b);
    }
}

Test(spills, none_with_16_registers) {
    static const hir_dtype dtypes[] = {HIR_F32, HIR_BF16, HIR_F16};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        check("avx2", dtypes[i]);
}

Test(spills, none_with_32_registers) {
    check("avx512", HIR_F32);
}

/* The check sees spills where there are some. */
/* ---- where weights are prefetched to --------------------------------------------------------- */
/* How often an instruction stands in the function test.NAME. */
static int count_in(const char *module, const char *name, const char *instruction) {
    const char *at = strstr(module, name);
    cr_assert_not_null(at, "%s", name);
    const char *end = strstr(at, ".Lfunc_end");
    cr_assert_not_null(end);
    int n = 0;
    while ((at = strstr(at, instruction)) && at < end)
        at++, n++;
    return n;
}

/* Few rows, of which memory is waited for, have the next weights brought into the L2; up to three rows
 * of f32, and many, into the L1 (gemm.c). */
Test(spills, few_rows_prefetch_into_the_l2) {
    bench b = bench_new();
    bench_start(&b);
    const hir_id kernel = build(&b, HIR_F32);
    const char *text = assemble_kernel(&b, HIR_KERNEL_CONTRACT, kernel, false, level_of("avx2"));
    cr_assert_not_null(text, "%s", bench_errors(&b));
    const char *few = "\ntest.tile_f32_6x16_far_avx2:", *many = "\ntest.tile_f32_6x16_avx2:";
    const char *near = "\ntest.tile_f32_3x16_far_avx2:";
    cr_expect(count_in(text, few, "prefetcht1") > 0 && !count_in(text, few, "prefetcht0"));
    cr_expect(count_in(text, many, "prefetcht0") > 0 && !count_in(text, many, "prefetcht1"));
    cr_expect(count_in(text, near, "prefetcht0") > 0 && !count_in(text, near, "prefetcht1"));
    cr_expect_null(strstr(text, "tile_f32_3x16_avx2:"), "many rows have no slabs of three");
    bench_free(&b);
}

/* Tiles of one and a half panels: of four steps and of one, three vectors of weights and an element of
 * each row for twelve products; where a panel is one vector there are none. */
Test(spills, wide_tiles) {
    static const char *const names[] = {
        "\ntest.tile_f32_4x24_avx2:", "\ntest.tile_f32_4x24_second_avx2:",
        "\ntest.tile_f32_4x24_far_avx2:", "\ntest.tile_f32_4x24_second_far_avx2:"};
    bench b = bench_new();
    bench_start(&b);
    const hir_id kernel = build(&b, HIR_F32);
    const char *text = assemble_kernel(&b, HIR_KERNEL_CONTRACT, kernel, false, level_of("avx2"));
    cr_assert_not_null(text, "%s", bench_errors(&b));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        cr_expect_eq(count_in(text, names[i], "\tvfmadd"), 5 * 12);
        cr_expect_eq(count_in(text, names[i], "\tvbroadcastss"), 5 * 4);
    }
    text = assemble_kernel(&b, HIR_KERNEL_CONTRACT, kernel, false, level_of("avx512"));
    cr_assert_not_null(text, "%s", bench_errors(&b));
    cr_expect_null(strstr(text, "x24"));
    bench_free(&b);
}

/* Of 16 bits the first wide tile widens and stores each vector of weights, one step at a time, and
 * the others load what it has stored. */
static void check_kept(hir_dtype dtype, int depth, const char *widens) {
    bench b = bench_new();
    bench_start(&b);
    const hir_id kernel = build(&b, dtype);
    const char *text = assemble_kernel(&b, HIR_KERNEL_CONTRACT, kernel, false, level_of("avx2"));
    cr_assert_not_null(text, "%s", bench_errors(&b));
    for (int i = 0; i < 2; i++) {
        char first[64], next[64];
        const char *name = hir_dtype_name(dtype), *second = i ? "_second" : "";
        snprintf(first, sizeof first, "\ntest.tile_%s_kept_4x24%s_avx2:", name, second);
        snprintf(next, sizeof next, "\ntest.tile_%s_widened_4x24%s_avx2:", name, second);
        cr_expect_eq(count_in(text, first, "\tvfmadd"), 12 * depth, "%s", first);
        cr_expect_eq(count_in(text, first, widens), 3, "%s", first);
        cr_expect_eq(count_in(text, next, "\tvfmadd"), 5 * 12 * depth, "%s", next);
        cr_expect_eq(count_in(text, next, widens), 0, "%s", next);
    }
    bench_free(&b);
}

Test(spills, wide_tiles_of_16_bits) {
    check_kept(HIR_F16, 1, "\tvcvtph2ps");
    check_kept(HIR_BF16, 2, "\tvpslld");
}

Test(spills, are_seen) {
    const char text[] =
        "test.tile_x:\n\tvmovups\t%ymm3, -32(%rsp)\n\tmovq\t8(%rsp), %rax\n"
        "\tvmovups\t64(%rdi), %ymm3\n\tvaddps\t32(%rsp), %ymm3, %ymm3\n.Lfunc_end0:\n";
    cr_expect_eq(count_spills(text, text + sizeof text - 1), 2);
}
