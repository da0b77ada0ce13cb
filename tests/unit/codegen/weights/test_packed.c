/* Readers of quantised tensors: every code, every layout, every type that weights are stored in,
 * against arithmetic of the tests' own (packed_fixture.h). What is refused: test_packed_faults.c.
 */
#include "codegen/program/program.h"
#include "codegen/weights/convert.h"

#define FOLDER "/tmp/hadal-packed-XXXXXX"
#include "tests/unit/codegen/weights/packed_fixture.h"
#include "tests/unit/folder_fixture.h"

TestSuite(packed, .init = open_folder, .fini = close_folder);

/* ---- codes --------------------------------------------------------------------------------- */

static bool same(double x, double y) {
    return isnan(x) ? isnan(y) : x == y && signbit(x) == signbit(y);
}

Test(packed, every_code) {
    for (unsigned u = 0; u < 256; u++) {
        cr_expect(same((double)hd_from_e4m3((uint8_t)u), e4m3((uint8_t)u)), "e4m3 %u", u);
        cr_expect(same((double)hd_from_e2m1((uint8_t)u), e2m1(u % 16)), "e2m1 %u", u);
        cr_expect(same((double)hd_from_e8m0((uint8_t)u), e8m0((uint8_t)u)), "e8m0 %u", u);
    }
    cr_expect_eq(e4m3(126), 448.0);
    cr_expect_eq(e2m1(7), 6.0);
}

/* ---- elements of a tensor ------------------------------------------------------------------ */

/* One by one, and in ranges that begin and end anywhere, in all three ways of asking. */
static void expect_elements(const hd_tensor *t, const double *want) {
    const uint64_t n = t->elements;
    double *wide = hd_new_array(arena, double, n);
    float *narrow = hd_new_array(arena, float, n);
    for (uint64_t i = 0; i < n; i++)
        cr_assert(same(hd_tensor_get(t, i), want[i]), "%s element %llu: %a, not %a", t->name,
                  (unsigned long long)i, hd_tensor_get(t, i), want[i]);
    hir_random r = hir_random_stream(3, t->name);
    for (int round = 0; round < 60; round++) {
        const uint64_t first = round ? hir_random_below(&r, n) : 0;
        const uint64_t some = round ? hir_random_below(&r, n - first + 1) : n;
        hd_tensor_to_f64(t, first, some, wide);
        hd_tensor_to_f32(t, first, some, narrow);
        for (uint64_t i = 0; i < some; i++) {
            cr_assert(same(wide[i], want[first + i]));
            cr_assert(same((double)narrow[i], (double)(float)want[first + i]));
        }
    }
}

/* Blocks of fp8, the last ones ragged in both directions. */
static double *add_blocks(hd_tensors *t, const char *name, int64_t rows, int64_t cols) {
    const int64_t across = (cols + 127) / 128;
    const uint8_t *codes = put_e4m3(t, name, SHAPE(rows, cols));
    const float *scales =
        put_f32(t, hd_printf(arena, "%s_scale_inv", name), SHAPE((rows + 127) / 128, across));
    double *want = hd_new_array(arena, double, (size_t)(rows * cols));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            want[r * cols + c] =
                e4m3(codes[r * cols + c]) * (double)scales[r / 128 * across + c / 128];
    return want;
}

Test(packed, blocks_of_fp8) {
    static const int64_t sizes[][2] = {{300, 200}, {128, 128}, {129, 1}, {1, 257}, {5, 7}};
    hd_tensors t = {0};
    double *want[5];
    for (int i = 0; i < 5; i++)
        want[i] = add_blocks(&t, hd_printf(arena, "m%d.weight", i), sizes[i][0], sizes[i][1]);
    const hd_tensors u = unpacked(&t);
    cr_expect_eq(u.list.n, 5, "scales are no tensors of their own");
    for (int i = 0; i < 5; i++)
        expect_elements(the(&u, hd_printf(arena, "m%d.weight", i)), want[i]);
    cr_expect_eq(the(&u, "m0.weight")->dtype, HD_T_F64, "the products are not exact in f32");
}

/* Lines of 32 with powers of two, in stacks of matrices too, under both names of the dtype. */
Test(packed, mxfp8) {
    enum { E = 3, N = 5, K = 96 };
    for (int i = 0; i < 2; i++) {
        hd_tensors t = {0};
        const uint8_t *codes = put_e4m3(&t, "experts.w13_weight", SHAPE(E, N, K));
        const uint8_t *scales = put_e8m0(&t, "experts.w13_weight_scale", i ? HD_T_F8_E8M0 : HD_T_U8,
                                         SHAPE(E, N, K / 32));
        double want[E * N * K];
        for (int k = 0; k < E * N * K; k++)
            want[k] = e4m3(codes[k]) * e8m0(scales[k / 32]);
        const hd_tensors u = unpacked(&t);
        expect_elements(the(&u, "experts.w13_weight"), want);
        cr_expect_eq(the(&u, "experts.w13_weight")->dtype, HD_T_F32);
    }
}

/* One scale for a row, and one for all, in every shape that a single number has. */
Test(packed, fp8_by_channel_and_by_tensor) {
    enum { N = 6, K = 40 };
    for (int form = 0; form < 4; form++) {
        hd_tensors t = {0};
        const uint8_t *codes = put_e4m3(&t, "m.weight", SHAPE(N, K));
        static const int64_t ones[] = {1, 1}, rows[] = {N, 1};
        const uint16_t *scales =
            put_bf16(&t, "m.weight_scale", form == 3 ? 2 : (size_t)form, form == 3 ? rows : ones);
        double want[N * K];
        for (int i = 0; i < N * K; i++)
            want[i] = e4m3(codes[i]) * (double)hd_bf16_to_f32(scales[form == 3 ? i / K : 0]);
        const hd_tensors u = unpacked(&t);
        expect_elements(the(&u, "m.weight"), want);
    }
}

Test(packed, mxfp4) {
    enum { N = 7, K = 64 };
    hd_tensors t = {0};
    const uint8_t *codes = put_bytes(&t, "m.weight_packed", HD_T_U8, SHAPE(N, K / 2));
    const uint8_t *scales = put_e8m0(&t, "m.weight_scale", HD_T_U8, SHAPE(N, K / 32));
    double want[N * K];
    for (int i = 0; i < N * K; i++)
        want[i] = e2m1(half_of(codes[i / 2], (uint64_t)i)) * e8m0(scales[i / 32]);
    const hd_tensors u = unpacked(&t);
    cr_expect_eq(u.list.n, 1);
    expect_elements(the(&u, "m.weight"), want);
}

/* ---- NVFP4 --------------------------------------------------------------------------------- */

static const struct nvfp4_form {
    const char *codes, *scales, *name, *factor, *divisor; /* after the module's name */
} nvfp4_forms[] = {
    {".weight_packed", ".weight_scale", ".weight", NULL, ".weight_global_scale"},
    {".weight", ".weight_scale", ".weight", ".weight_scale_2", NULL},
    {".w2_weight", ".w2_weight_scale", ".w2_weight", ".w2_weight_amax",
     ".w2_weight_outer_scale_denominator"},
};

/* Factors of all matrices, or one for all, with every number of dims that one number has. */
static const float *put_factors(hd_tensors *t, const char *name, size_t rank, int64_t n) {
    float *x = (float *)(void *)put(t, name, HD_T_F32, rank, &n);
    for (int64_t i = 0; i < (rank ? n : 1); i++)
        x[i] = 0.37f + (float)i / 3 + (float)strlen(name);
    return x;
}

static double *add_nvfp4(hd_tensors *t, const struct nvfp4_form *f, const char *module, int64_t E,
                         int64_t rows, int64_t cols) {
    const int64_t dims[] = {E, rows, cols / 2}, groups[] = {E, rows, cols / 16};
    const size_t skip = E == 1;
    const uint8_t *codes =
        put_bytes(t, hd_printf(arena, "%s%s", module, f->codes), HD_T_U8, 3 - skip, dims + skip);
    uint8_t *scales =
        put_e4m3(t, hd_printf(arena, "%s%s", module, f->scales), 3 - skip, groups + skip);
    const size_t rank[] = {f->codes[1] == 'w' && f->factor && E > 1, !f->factor};
    const float *factor = NULL, *divisor = NULL;
    if (f->factor) factor = put_factors(t, hd_printf(arena, "%s%s", module, f->factor), rank[0], E);
    if (f->divisor)
        divisor = put_factors(t, hd_printf(arena, "%s%s", module, f->divisor),
                              E > 1 ? rank[0] : rank[1], E);
    double *want = hd_new_array(arena, double, (size_t)(E * rows * cols));
    for (int64_t i = 0; i < E * rows * cols; i++) {
        scales[i / 16] &= 127;
        const size_t e = (size_t)(i / (rows * cols));
        want[i] = e2m1(half_of(codes[i / 2], (uint64_t)i)) * e4m3(scales[i / 16]);
        if (factor) want[i] *= (double)factor[rank[0] ? e : 0];
        if (divisor) want[i] /= (double)divisor[rank[0] ? e : 0];
    }
    return want;
}

/* Rows that end in the middle of a group of 32; matrices, and stacks whose factors differ. */
Test(packed, nvfp4) {
    for (size_t form = 0; form < 3; form++)
        for (int64_t E = 1; E <= 3; E += 2) {
            const struct nvfp4_form *f = &nvfp4_forms[form];
            hd_tensors t = {0};
            const double *want = add_nvfp4(&t, f, "m", E, 7, 80);
            put_f32(&t, "m.input_scale", 0, NULL);
            if (form == 2) put_bf16(&t, "m.weight", SHAPE(2, 2));
            const hd_tensors u = unpacked(&t);
            cr_expect_eq(u.list.n, form == 2 ? 3 : 1);
            const hd_tensor *w = the(&u, hd_printf(arena, "m%s", f->name));
            expect_elements(w, want);
            cr_expect_eq(w->dtype, HD_T_F64, "the products are not exact in f32");
        }
}

/* Of every code and every scale. */
Test(packed, all_numbers_of_nvfp4) {
    enum { N = 127, K = 16 };
    hd_tensors t = {0};
    uint8_t *codes = put(&t, "m.weight", HD_T_U8, SHAPE(N, K / 2));
    uint8_t *scales = put(&t, "m.weight_scale", HD_T_F8_E4M3, SHAPE(N, 1));
    ((float *)(void *)put(&t, "m.weight_scale_2", HD_T_F32, SHAPE(1)))[0] = 0x1.fffffep-9f;
    static double want[N * K];
    for (int i = 0; i < N * K; i++) {
        scales[i / K] = (uint8_t)(i / K);
        codes[i / 2] = (uint8_t)(i % K / 2 * 0x22 + 0x10);
        want[i] = e2m1((unsigned)(i % K)) * e4m3((uint8_t)(i / K)) * 0x1.fffffep-9;
    }
    const hd_tensors u = unpacked(&t);
    expect_elements(the(&u, "m.weight"), want);
}

/* Scales that are none: the two codes without a number, and all that have a sign. */
Test(packed, scales_that_nvfp4_has_not) {
    static const uint8_t bad[] = {127, 255, 128, 129, 200};
    for (int i = 0; i < 5; i++) {
        hd_tensors t = {0};
        add_nvfp4(&t, &nvfp4_forms[1], "m", 1, 37, 160);
        ((uint8_t *)(uintptr_t)the(&t, "m.weight_scale")->data)[13] = bad[i];
        const hd_tensors u = unpacked(&t);
        const hd_tensor *w = the(&u, "m.weight");
        cr_expect(isnan(hd_tensor_get(w, 13 * 16)));
        cr_expect(isfinite(hd_tensor_get(w, 12 * 16)));
        const char *said_of_it = hd_packed_fault(arena, w, 13 * 16);
        cr_expect(strstr(said_of_it, "its scale, element 13 of \"m.weight_scale\", is "));
        cr_expect(strstr(said_of_it, i < 2 ? "not a number" : "negative"), "%s", said_of_it);
    }
}

/* Scales that are MODULE.scale: of E4M3 in tiles, ragged ones at the ends, and of pairs of E2M1. A
 * plain .scale is a tensor like any other. */
Test(packed, scales_of_modules) {
    enum { N = 130, K = 192 };
    hd_tensors t = {0};
    const uint8_t *eights = put_e4m3(&t, "m.weight", SHAPE(N, K));
    const uint8_t *tiles = put_e8m0(&t, "m.scale", HD_T_F8_E8M0, SHAPE(2, 2));
    const uint8_t *pairs = put_bytes(&t, "experts.0.w1.weight", HD_T_I8, SHAPE(N, K / 2));
    const uint8_t *lines = put_e8m0(&t, "experts.0.w1.scale", HD_T_F8_E8M0, SHAPE(N, K / 32));
    put_f32(&t, "hc.scale", SHAPE(1, 3));
    double of_eights[N * K], of_pairs[N * K];
    for (int i = 0; i < N * K; i++) {
        of_eights[i] = e4m3(eights[i]) * e8m0(tiles[i / K / 128 * 2 + i % K / 128]);
        of_pairs[i] = e2m1(half_of(pairs[i / 2], (uint64_t)i)) * e8m0(lines[i / 32]);
    }
    const hd_tensors u = unpacked(&t);
    cr_expect_eq(u.list.n, 3);
    expect_elements(the(&u, "m.weight"), of_eights);
    expect_elements(the(&u, "experts.0.w1.weight"), of_pairs);
    cr_expect_eq(the(&u, "m.weight")->dtype, HD_T_F32, "powers of two leave products exact");
}

/* The tensor of gpt_oss is [E, in, out], which is the other way round in the file. */
Test(packed, mxfp4_in_blocks) {
    enum { E = 2, N = 5, K = 96 };
    hd_tensors t = {0};
    const uint8_t *codes =
        put_bytes(&t, "experts.down_proj_blocks", HD_T_U8, SHAPE(E, N, K / 32, 16));
    const uint8_t *scales = put_e8m0(&t, "experts.down_proj_scales", HD_T_U8, SHAPE(E, N, K / 32));
    double want[E * K * N];
    for (int x = 0; x < E; x++)
        for (int r = 0; r < N; r++)
            for (int c = 0; c < K; c++) {
                const int group = (x * N + r) * (K / 32) + c / 32;
                want[(x * K + c) * N + r] =
                    e2m1(half_of(codes[group * 16 + c % 32 / 2], (uint64_t)c)) *
                    e8m0(scales[group]);
            }
    const hd_tensors u = unpacked(&t);
    const hd_tensor *x = the(&u, "experts.down_proj");
    cr_assert_eq(x->rank, 3);
    cr_expect(x->shape[0] == E && x->shape[1] == K && x->shape[2] == N);
    expect_elements(x, want);
}

/* Integers of 4 or 8 bits, n in a word: `groups` of a row share a scale. Bits of the last word and
 * of the last row of zero points that mean nothing are random. */
static double *add_integers(hd_tensors *t, const char *module, int bits, int64_t rows, int64_t cols,
                            int64_t groups, bool zeros, hd_tensor_dtype dtype) {
    const int64_t n = 32 / bits, words = (cols + n - 1) / n;
    const uint32_t most = (1u << bits) - 1;
    uint32_t *codes = (uint32_t *)(void *)put_bytes(t, hd_printf(arena, "%s.weight_packed", module),
                                                    HD_T_I32, SHAPE(rows, words));
    const char *name = hd_printf(arena, "%s.weight_scale", module);
    if (dtype == HD_T_F32)
        put_f32(t, name, SHAPE(rows, groups));
    else
        put_bf16(t, name, SHAPE(rows, groups));
    int64_t *shape =
        (int64_t *)(void *)put(t, hd_printf(arena, "%s.weight_shape", module), HD_T_I64, SHAPE(2));
    shape[0] = rows, shape[1] = cols;
    uint32_t *z = NULL;
    if (zeros)
        z = (uint32_t *)(void *)put_bytes(t, hd_printf(arena, "%s.weight_zero_point", module),
                                          HD_T_I32, SHAPE((rows + n - 1) / n, groups));
    double *want = hd_new_array(arena, double, (size_t)(rows * cols));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            const int64_t g = c / (cols / groups);
            const int q = (int)(codes[r * words + c / n] >> bits * (c % n) & most);
            const int zero =
                z ? (int)(z[r / n * groups + g] >> bits * (r % n) & most) : 1 << (bits - 1);
            want[r * cols + c] =
                (q - zero) * hd_tensor_get(the(t, name), (uint64_t)(r * groups + g));
        }
    return want;
}

static const struct {
    int64_t rows, cols, groups;
    bool zeros;
    hd_tensor_dtype dtype;
} integers[] = {
    {9, 64, 2, false, HD_T_BF16}, {9, 64, 2, true, HD_T_BF16},  {16, 96, 3, true, HD_T_F32},
    {5, 44, 1, false, HD_T_BF16}, {13, 51, 1, true, HD_T_BF16}, {1, 5, 1, true, HD_T_BF16},
};

Test(packed, integers_of_both_widths) {
    for (int bits = 4; bits <= 8; bits += 4)
        for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
            hd_tensors t = {0};
            const double *want =
                add_integers(&t, "m", bits, integers[i].rows, integers[i].cols, integers[i].groups,
                             integers[i].zeros, integers[i].dtype);
            const hd_tensors u = unpacked(&t);
            cr_expect_eq(u.list.n, 1);
            expect_elements(the(&u, "m.weight"), want);
            cr_expect_eq(the(&u, "m.weight")->packed->packing,
                         bits == 4 ? HD_PACKING_INT4 : HD_PACKING_INT8);
        }
}

/* A word holds three weights of either width: the config says which, and without one 4 bits are
 * taken. */
Test(packed, integers_of_a_word) {
    for (int bits = 4; bits <= 8; bits += 4)
        for (int said = 0; said < 2; said++) {
            hd_tensors t = {0}, u;
            const double *want = add_integers(&t, "m", bits, 6, 3, 1, false, HD_T_BF16);
            hd_quantisation q = {.given = said != 0};
            const hd_quant_group group = {.format = "pack-quantized",
                                          .packing = bits == 4 ? HD_PACKING_INT4 : HD_PACKING_INT8,
                                          .symmetric = true,
                                          .targets_known = true};
            if (said) hd_push(arena, &q.groups, group);
            cr_assert(hd_unpack(arena, &diags, &t, &q, &u), "%s", "refused");
            if (said || bits == 4) expect_elements(the(&u, "m.weight"), want);
        }
}

/* A matrix of a stack is a tensor of its own, decoded or not, transposed or not. */
Test(packed, matrices_of_stacks) {
    enum { E = 3, N = 5, K = 64 };
    hd_tensors t = {0};
    put_e4m3(&t, "a", SHAPE(E, N, K));
    put_e8m0(&t, "a_scale", HD_T_U8, SHAPE(E, N, K / 32));
    put_bytes(&t, "b_blocks", HD_T_U8, SHAPE(E, N, K / 32, 16));
    put_e8m0(&t, "b_scales", HD_T_U8, SHAPE(E, N, K / 32));
    put_f32(&t, "c", SHAPE(E, N, K));
    const hd_tensors u = unpacked(&t);
    for (int i = 0; i < 3; i++) {
        const hd_tensor *x = &u.list.at[i];
        double all[E * N * K];
        hd_tensor_to_f64(x, 0, x->elements, all);
        for (int e = 0; e < E; e++) {
            const hd_tensor one = hd_tensor_at(x, e);
            cr_expect(one.rank == 2 && one.shape[0] == x->shape[1] && one.shape[1] == x->shape[2]);
            expect_elements(&one, all + e * N * K);
        }
    }
}

/* Everything that is not quantised stays as it is, in order. */
Test(packed, other_tensors_stay) {
    hd_tensors t = {0};
    put_bf16(&t, "a.weight", SHAPE(3, 4));
    cr_expect_not(hd_holds_packed(&t));
    add_blocks(&t, "b.weight", 4, 4);
    put_f32(&t, "c.bias", SHAPE(3));
    put_f32(&t, "b.input_scale", SHAPE(1)); /* of activations: no part of the weights */
    cr_expect(hd_holds_packed(&t));
    put_bytes(&t, "b.pairs.weight", HD_T_I8, SHAPE(4, 32));
    put_e8m0(&t, "b.pairs.scale", HD_T_U8, SHAPE(4, 2));
    put_f32(&t, "b.pairs.input_scale", SHAPE(1));
    put_bytes(&t, "b.two.weight_packed", HD_T_U8, SHAPE(4, 32));
    put_e8m0(&t, "b.two.weight_scale", HD_T_U8, SHAPE(4, 2));
    put_f32(&t, "b.two.input_scale", SHAPE(1));
    const hd_tensors u = unpacked(&t);
    cr_assert_eq(u.list.n, 5);
    cr_expect_str_eq(u.list.at[0].name, "a.weight");
    cr_expect_null(u.list.at[0].packed);
    cr_expect_str_eq(u.list.at[2].name, "b.two.weight");
    cr_expect_str_eq(u.list.at[4].name, "c.bias");
}

/* ---- every type of storage ----------------------------------------------------------------- */

enum { ROWS = 37, COLS = 160 };

/* The same numbers in F64, which no format is too wide for. */
static void add_plain(hd_tensors *t, const double *want) {
    memcpy(put(t, "m.weight", HD_T_F64, SHAPE(ROWS, COLS)), want, ROWS * COLS * sizeof *want);
}

static hir_module *one_weight(hir_dtype dtype, hir_layout layout) {
    hir_module *m = hir_module_new(arena, "m");
    const int64_t dims[] = {ROWS, COLS};
    const uint32_t w = hir_add_weight(m, "m.weight", hir_make_type(dtype, 2, dims), HD_NOWHERE);
    m->weights.at[w].layout = layout;
    return m;
}

static char *pack(hir_module *m, const hd_tensors *t, const char *name, size_t *n) {
    hcg_program *p = hd_new(arena, hcg_program);
    p->arena = arena;
    p->m = m;
    hd_push(arena, &p->weight_offsets, 0);
    cr_assert(hir_weight_bytes(&m->weights.at[0], &p->weights_bytes));
    cr_assert(hcg_pack(p, &diags, t, in_folder(name)), "%s", said());
    FILE *f = fopen(in_folder(name), "rb");
    cr_assert(f);
    char *bytes = hd_alloc(arena, 1 << 20, 1);
    *n = fread(bytes, 1, 1 << 20, f);
    fclose(f);
    return bytes;
}

/* The packed file and the evaluator's weights are what they are for the numbers themselves.
 * Integers in groups of integers are not (test_kept.c). */
static void expect_stored_alike(const hd_tensors *quantised, const hd_tensors *plain) {
    static const hir_dtype dtypes[] = {HIR_F32,   HIR_BF16, HIR_F16, HIR_MXFP4,
                                       HIR_NVFP4, HIR_Q8,   HIR_Q4};
    const hd_packing packing = the(quantised, "m.weight")->packed->packing;
    const size_t n_dtypes = packing == HD_PACKING_INT4 ? 5 : 7;
    for (size_t i = 0; i < n_dtypes; i++)
        for (int panel = 0; panel < 2; panel++) {
            if (!panel && hir_is_quantised(dtypes[i])) continue;
            if (packing == HD_PACKING_NVFP4 && dtypes[i] == HIR_NVFP4) continue;
            hir_module *m = one_weight(dtypes[i], panel ? HIR_LAYOUT_PANEL : HIR_LAYOUT_ROWS);
            size_t n[2];
            const char *got = pack(m, quantised, "got", &n[0]);
            const char *want = pack(m, plain, "want", &n[1]);
            cr_assert_eq(n[0], n[1]);
            cr_expect(memcmp(got, want, n[0]) == 0, "%s", hir_dtype_name(dtypes[i]));
            static double x[2][ROWS * COLS];
            cr_assert(hcg_weight_source((void *)(uintptr_t)quantised, m, 0, x[0], &diags));
            cr_assert(hcg_weight_source((void *)(uintptr_t)plain, m, 0, x[1], &diags));
            cr_expect(memcmp(x[0], x[1], sizeof x[0]) == 0, "%s", hir_dtype_name(dtypes[i]));
        }
}

Test(packed, stored_in_every_type) {
    hd_tensors blocks = {0}, integers = {0}, fours = {0}, plain[3];
    memset(plain, 0, sizeof plain);
    add_plain(&plain[0], add_blocks(&blocks, "m.weight", ROWS, COLS));
    add_plain(&plain[1], add_integers(&integers, "m", 4, ROWS, COLS, 5, true, HD_T_BF16));
    add_plain(&plain[2], add_nvfp4(&fours, &nvfp4_forms[0], "m", 1, ROWS, COLS));
    const hd_tensors u[3] = {unpacked(&blocks), unpacked(&integers), unpacked(&fours)};
    for (int i = 0; i < 3; i++)
        expect_stored_alike(&u[i], &plain[i]);
}

/* Experts in one tensor, and in one for each: both are packed as the numbers themselves are. */
Test(packed, stacks_in_every_type) {
    enum { E = 3 };
    static const hir_dtype dtypes[] = {HIR_F32, HIR_BF16, HIR_F16, HIR_Q8, HIR_Q4, HIR_MXFP4};
    hd_tensors stack = {0}, each = {0}, plain = {0};
    put_e4m3(&stack, "m.0.weight", SHAPE(E, ROWS, COLS));
    put_e8m0(&stack, "m.0.weight_scale", HD_T_U8, SHAPE(E, ROWS, COLS / 32));
    memset((uint8_t *)(uintptr_t)the(&stack, "m.0.weight_scale")->data, 120, E * ROWS * COLS / 32);
    const hd_tensors u = unpacked(&stack);
    double *all = (double *)(void *)put(&plain, "m.0.weight", HD_T_F64, SHAPE(E, ROWS, COLS));
    hd_tensor_to_f64(the(&u, "m.0.weight"), 0, E * ROWS * COLS, all);
    for (int e = 0; e < E; e++) {
        hd_tensor one = hd_tensor_at(the(&u, "m.0.weight"), e);
        one.name = hd_printf(arena, "m.%d.weight", e);
        hd_push(arena, &each.list, one);
    }
    for (size_t i = 0; i < 6; i++) {
        const int64_t dims[] = {E, ROWS, COLS};
        hir_module *m = hir_module_new(arena, "m");
        hir_add_weight(m, "m.0.weight", hir_make_type(dtypes[i], 3, dims), HD_NOWHERE);
        m->weights.at[0].layout = HIR_LAYOUT_PANEL;
        size_t n[3];
        const char *want = pack(m, &plain, "want", &n[0]), *got = pack(m, &u, "got", &n[1]);
        cr_expect(n[0] == n[1] && memcmp(got, want, n[0]) == 0, "%s", hir_dtype_name(dtypes[i]));
        m->weights.at[0].name = "m.*.weight";
        m->weights.at[0].stacked = true;
        char *parts = pack(m, &each, "parts", &n[2]);
        /* another program, as its weight has another name: all else is the same */
        memcpy(((hrt_weights_header *)parts)->program, ((const hrt_weights_header *)want)->program,
               sizeof((hrt_weights_header *)parts)->program);
        cr_expect(n[0] == n[2] && memcmp(parts, want, n[0]) == 0, "%s", hir_dtype_name(dtypes[i]));
    }
}

/* Numbers beyond f32 are exact until they are stored, and then refused with the number. */
Test(packed, powers_beyond_f32) {
    hd_tensors t = {0};
    uint8_t *codes = put_bytes(&t, "m.weight_packed", HD_T_U8, SHAPE(ROWS, COLS / 2));
    memset(put(&t, "m.weight_scale", HD_T_U8, SHAPE(ROWS, COLS / 32)), 127, ROWS * COLS / 32);
    ((uint8_t *)(uintptr_t)the(&t, "m.weight_scale")->data)[7] = 254;
    codes[7 * 16] = 0x47; /* 6 and 2: the first is more than f32 holds */
    const hd_tensors u = unpacked(&t);
    cr_expect_eq(hd_tensor_get(the(&u, "m.weight"), 7 * 32), 6 * 0x1p127);
    static double x[ROWS * COLS];
    cr_expect_not(hcg_weight_source((void *)(uintptr_t)&u, one_weight(HIR_F32, HIR_LAYOUT_ROWS), 0,
                                    x, &diags));
    cr_expect(strstr(said(), "it is 1.02085e+39 at [1, 64], more than f32 holds"), "%s", said());
}

/* A scale that is no number is named, wherever it is met. */
Test(packed, scales_that_are_no_numbers) {
    hd_tensors t = {0};
    add_blocks(&t, "m.weight", ROWS, COLS);
    ((float *)(uintptr_t)the(&t, "m.weight_scale_inv")->data)[1] = NAN;
    hd_tensors u = unpacked(&t);
    static double x[ROWS * COLS];
    cr_expect_not(hcg_weight_source((void *)(uintptr_t)&u, one_weight(HIR_F32, HIR_LAYOUT_ROWS), 0,
                                    x, &diags));
    cr_expect(strstr(said(), "weight 'm.weight' is not a number at [0, 128]"), "%s", said());
    cr_expect(strstr(said(), "its scale, element 1 of \"m.weight_scale_inv\", is not a number"),
              "%s", said());
    ((float *)(uintptr_t)the(&t, "m.weight_scale_inv")->data)[1] = 1;
    ((uint8_t *)(uintptr_t)the(&t, "m.weight")->data)[3] = 255;
    cr_expect_not(hcg_weight_source((void *)(uintptr_t)&u, one_weight(HIR_F32, HIR_LAYOUT_ROWS), 0,
                                    x, &diags));
    cr_expect(strstr(said(), "its code in \"m.weight\" is no number"), "%s", said());
}
