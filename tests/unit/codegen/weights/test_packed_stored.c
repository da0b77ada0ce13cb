/* MXFP4 and NVFP4 that are stored as they are published: codes and scales of the packed file are
 * those of the checkpoint, by the words of quant.h, and what f32 cannot hold is still refused. */
#include "codegen/program/program.h"
#include "codegen/weights/quant.h"

#define FOLDER "/tmp/hadal-packed-stored-XXXXXX"
#include "tests/unit/codegen/weights/packed_fixture.h"
#include "tests/unit/folder_fixture.h"

TestSuite(packed_stored, .init = open_folder, .fini = close_folder);

enum { DATA = 4096, E = 3, N = 37, K = 160, GROUPS = K / 32, PANELS = (N + 15) / 16 };

/* The module's last weight is packed, the others are what it is made of. False: it is refused. */
static bool pack(hir_module *m, const hd_tensors *t, int threads, const char *name) {
    hcg_program *p = hd_new(arena, hcg_program);
    *p = (hcg_program){.arena = arena, .m = m, .options.threads = threads};
    for (size_t i = 0; i < m->weights.n; i++)
        hd_push(arena, &p->weight_offsets, i + 1 < m->weights.n ? HCG_UNREAD : 0);
    cr_assert(hir_weight_bytes(&m->weights.at[m->weights.n - 1], &p->weights_bytes));
    return hcg_pack(p, &diags, t, in_folder(name));
}

static const uint8_t *packed_file(const char *name, uint64_t *n) {
    hd_bytes file;
    cr_assert(hd_map_file(arena, &diags, in_folder(name), &file));
    *n = file.n;
    return file.at + DATA;
}

static hir_module *a_matrix(hir_dtype dtype) {
    hir_module *m = hir_module_new(arena, "m");
    hir_add_weight(m, "m.weight", hir_make_type(dtype, 2, (const int64_t[]){N, K}), HD_NOWHERE);
    m->weights.at[0].layout = HIR_LAYOUT_PANEL;
    return m;
}

/* [E, N, K], made of the experts [E, K, N] of a checkpoint, transposed. */
static hir_module *transposed_experts(hir_dtype dtype) {
    hir_module *m = hir_module_new(arena, "m");
    hir_derived_factor *factor = hd_new_array(arena, hir_derived_factor, E);
    hir_derived_row *rows = hd_new_array(arena, hir_derived_row, E);
    hir_add_weight(m, "p", hir_make_type(HIR_F32, 3, (const int64_t[]){E, K, N}), HD_NOWHERE);
    for (int64_t e = 0; e < E; e++) {
        factor[e] = (hir_derived_factor){
            .name = "p", .by = HIR_DERIVED_TRANSPOSED, .first = e * K * N, .n = K * N};
        rows[e] = (hir_derived_row){1, &factor[e]};
    }
    const uint32_t w = hir_add_derived_weight(
        m, "made", hir_make_type(dtype, 3, (const int64_t[]){E, N, K}), rows, E, HD_NOWHERE);
    m->weights.at[w].layout = HIR_LAYOUT_PANEL;
    return m;
}

/* Panels of `matrices` matrices [N, K], whose codes and scales lie one after the other. */
static void expect_copied(const uint8_t *file, const uint8_t *codes, const uint8_t *scales,
                          int matrices) {
    for (int i = 0; i < matrices * PANELS * GROUPS; i++) {
        const uint8_t *group = file + (size_t)i * 272;
        const int matrix = i / GROUPS / PANELS;
        for (int r = 0; r < 16; r++) {
            const int row = i / GROUPS % PANELS * 16 + r;
            const int at = (matrix * N + row) * GROUPS + i % GROUPS;
            cr_assert_eq(group[r], row < N ? scales[at] : 0, "scale of row %d", row);
            for (int k = 0; k < 32; k++) {
                const unsigned byte = group[16 + k / 8 * 64 + r * 4 + k % 4];
                const unsigned want = row < N ? half_of(codes[at * 16 + k / 2], (uint64_t)k) : 0;
                cr_assert_eq(k % 8 < 4 ? byte % 16 : byte / 16, want, "[%d, %d]", row, k);
            }
        }
    }
}

Test(packed_stored, codes_and_scales_are_copied) {
    for (int threads = 1; threads < 5; threads++) {
        hd_tensors t = {0};
        uint64_t n;
        const uint8_t *codes = put_bytes(&t, "m.weight_packed", HD_T_U8, SHAPE(N, K / 2));
        const uint8_t *scales = put_e8m0(&t, "m.weight_scale", HD_T_U8, SHAPE(N, GROUPS));
        const hd_tensors u = unpacked(&t);
        cr_assert(pack(a_matrix(HIR_MXFP4), &u, threads, "copied"), "%s", said());
        expect_copied(packed_file("copied", &n), codes, scales, 1);
        cr_expect_eq(n, DATA + PANELS * GROUPS * 272);
    }
}

Test(packed_stored, transposed_blocks_are_copied) {
    hd_tensors t = {0};
    uint64_t n;
    const uint8_t *codes = put_bytes(&t, "p_blocks", HD_T_U8, SHAPE(E, N, GROUPS, 16));
    const uint8_t *scales = put_e8m0(&t, "p_scales", HD_T_U8, SHAPE(E, N, GROUPS));
    const hd_tensors u = unpacked(&t);
    cr_assert(pack(transposed_experts(HIR_MXFP4), &u, 2, "copied"), "%s", said());
    expect_copied(packed_file("copied", &n), codes, scales, E);
    cr_expect_eq(n, DATA + E * PANELS * GROUPS * 272);
}

/* In other types they are what the numbers themselves become, which are transposed one by one. */
Test(packed_stored, transposed_blocks_in_other_types) {
    static const hir_dtype dtypes[] = {HIR_F32, HIR_BF16, HIR_F16, HIR_Q8, HIR_Q4};
    hd_tensors t = {0}, plain = {0};
    put_bytes(&t, "p_blocks", HD_T_U8, SHAPE(E, N, GROUPS, 16));
    memset(put(&t, "p_scales", HD_T_U8, SHAPE(E, N, GROUPS)), 121, E * N * GROUPS);
    const hd_tensors u = unpacked(&t);
    double *all = (double *)(void *)put(&plain, "p", HD_T_F64, SHAPE(E, K, N));
    hd_tensor_to_f64(the(&u, "p"), 0, E * K * N, all);
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        uint64_t n[2];
        cr_assert(pack(transposed_experts(dtypes[i]), &u, 2, "got"), "%s", said());
        cr_assert(pack(transposed_experts(dtypes[i]), &plain, 2, "want"), "%s", said());
        const uint8_t *got = packed_file("got", &n[0]), *want = packed_file("want", &n[1]);
        cr_expect(n[0] == n[1] && memcmp(got, want, n[0] - DATA) == 0, "%s",
                  hir_dtype_name(dtypes[i]));
    }
}

/* Of a scale of 2^126 f32 holds numbers up to 3, of 2^127 up to 1.5; 255 is no number. */
Test(packed_stored, scales_beyond_f32) {
    static const struct {
        uint8_t scale;
        unsigned code;
        const char *says; /* NULL: it is stored */
    } cases[] = {{252, 7, NULL},          {253, 5, NULL},
                 {253, 13, NULL},         {253, 6, "more than mxfp4 holds"},
                 {254, 3, NULL},          {254, 12, "more than mxfp4 holds"},
                 {255, 0, "not a number"}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int transposed = 0; transposed < 2; transposed++) {
            hd_tensors t = {0};
            const int64_t rows = transposed ? E * N : N;
            uint8_t *codes = transposed
                                 ? put_bytes(&t, "p_blocks", HD_T_U8, SHAPE(E, N, GROUPS, 16))
                                 : put_bytes(&t, "m.weight_packed", HD_T_U8, SHAPE(N, K / 2));
            uint8_t *scales = transposed ? put(&t, "p_scales", HD_T_U8, SHAPE(E, N, GROUPS))
                                         : put(&t, "m.weight_scale", HD_T_U8, SHAPE(N, GROUPS));
            memset(scales, 127, (size_t)rows * GROUPS);
            const int at = (int)rows * GROUPS - 2; /* a group of the last row */
            scales[at] = cases[c].scale;
            memset(codes + at * 16, 0, 16);
            codes[at * 16 + 3] = (uint8_t)(cases[c].code << 4); /* column 7 of the group */
            const hd_tensors u = unpacked(&t);
            hd_diags_init(&diags, arena);
            hir_module *m = transposed ? transposed_experts(HIR_MXFP4) : a_matrix(HIR_MXFP4);
            const bool ok = pack(m, &u, 2, "file");
            cr_expect_eq(ok, cases[c].says == NULL, "scale %d, code %u", cases[c].scale,
                         cases[c].code);
            if (cases[c].says) cr_expect(strstr(said(), cases[c].says), "%s", said());
            if (!ok) continue;
            uint64_t n;
            hcg_group g;
            const int panels = transposed ? E * PANELS : PANELS;
            hcg_get_group(HIR_MXFP4, packed_file("file", &n) + (size_t)(panels * GROUPS - 2) * 272,
                          (N - 1) % 16, &g);
            cr_expect_eq(hcg_group_at(HIR_MXFP4, &g, 7),
                         e2m1(cases[c].code) * e8m0(cases[c].scale));
        }
}

/* ---- NVFP4 --------------------------------------------------------------------------------- */

enum { LONG = 176, LONG_GROUPS = (LONG + 31) / 32, LONG_PANEL = LONG_GROUPS * 288 + 64 };

/* Codes, scales and factors of E matrices [N, LONG], whose rows end in the middle of a group. One
 * scale in twenty is 0. */
static hd_tensors nvfp4(bool divides) {
    hd_tensors t = {0};
    put_bytes(&t, "x.w2_weight", HD_T_U8, SHAPE(E, N, LONG / 2));
    uint8_t *scales = put_e4m3(&t, "x.w2_weight_scale", SHAPE(E, N, LONG / 16));
    for (int i = 0; i < E * N * LONG / 16; i++)
        scales[i] = i % 20 == 3 ? 0 : scales[i] & 127;
    static const float factors[E] = {0x1.234566p-7f, 3, 0};
    static const float divisors[E] = {0x1.abcdeep3f, 1, 7};
    memcpy(put(&t, "x.w2_weight_amax", HD_T_F32, SHAPE(E)), factors, sizeof factors);
    uint8_t *d = put(&t, "x.w2_weight_outer_scale_denominator", HD_T_F32, SHAPE(E));
    for (int i = 0; i < E; i++)
        memcpy(d + 4 * i, divides ? &divisors[i] : &(float){1}, 4);
    return t;
}

static hir_module *experts_of(hir_dtype dtype) {
    hir_module *m = hir_module_new(arena, "m");
    hir_add_weight(m, "x.w2_weight", hir_make_type(dtype, 3, (const int64_t[]){E, N, LONG}),
                   HD_NOWHERE);
    m->weights.at[0].layout = HIR_LAYOUT_PANEL;
    return m;
}

/* The number of a byte of a scale in the file, by the words of program/packed.h. */
static double small(uint8_t byte) {
    return (1 + byte % 8 / 8.0) * ldexp(1, byte / 8 - 18);
}

static double in_matrices(const uint8_t *file, int64_t n, int64_t cols, int64_t e, int64_t row,
                          int64_t k) {
    const int64_t groups = (cols + 31) / 32, panels = (n + 15) / 16;
    const uint8_t *panel = file + (e * panels + row / 16) * (groups * 288 + 64);
    const uint8_t *group = panel + k / 32 * 288;
    const unsigned byte = group[32 + k % 32 / 8 * 64 + row % 16 * 4 + k % 4];
    float factor;
    memcpy(&factor, panel + groups * 288 + row % 16 * 4, 4);
    return e2m1(k % 8 < 4 ? byte % 16 : byte / 16) * small(group[k % 32 / 16 * 16 + row % 16]) *
           (double)factor;
}

static double at_in_file(const uint8_t *file, int e, int row, int k) {
    return in_matrices(file, N, LONG, e, row, k);
}

/* The evaluator is given the numbers of the checkpoint, and the file holds them with the factor in
 * f32: exact where nothing is divided. */
Test(packed_stored, nvfp4_is_copied) {
    for (int divides = 0; divides < 2; divides++) {
        const hd_tensors t = nvfp4(divides), u = unpacked(&t);
        const hd_tensor *w = the(&u, "x.w2_weight");
        uint64_t n;
        static double x[E * N * LONG];
        hir_module *m = experts_of(HIR_NVFP4);
        cr_assert(pack(m, &u, 1 + divides, "copied"), "%s", said());
        const uint8_t *file = packed_file("copied", &n);
        cr_expect_eq(n, DATA + E * PANELS * LONG_PANEL);
        cr_assert(hcg_weight_source((void *)(uintptr_t)&u, m, 0, x, &diags), "%s", said());
        for (int i = 0; i < E * N * LONG; i++) {
            const int e = i / LONG / N, row = i / LONG % N, k = i % LONG;
            const double want = hd_tensor_get(w, (uint64_t)i);
            const double got = at_in_file(file, e, row, k);
            cr_assert(fabs(x[i] - want) <= 0x1p-52 * fabs(want), "[%d, %d, %d]", e, row, k);
            cr_assert_eq(signbit(got), signbit(want));
            if (divides)
                cr_assert(fabs(got - want) <= 0x1p-24 * fabs(want), "[%d, %d, %d]", e, row, k);
            else
                cr_assert(got == want && x[i] == want, "[%d, %d, %d]", e, row, k);
        }
    }
}

/* A scale that is none is named, and numbers whose factor f32 does not hold are rounded like any.
 */
Test(packed_stored, nvfp4_that_is_not_copied) {
    static double x[E * N * LONG];
    hd_tensors t = nvfp4(false);
    hd_tensors u = unpacked(&t);
    const float tiny = 0x1p-130f;
    memcpy((uint8_t *)(uintptr_t)the(&t, "x.w2_weight_amax")->data + 4, &tiny, 4);
    cr_assert(pack(experts_of(HIR_NVFP4), &u, 1, "tiny"), "%s", said());
    cr_assert(hcg_weight_source((void *)(uintptr_t)&u, experts_of(HIR_NVFP4), 0, x, &diags));
    for (int i = 0; i < N * LONG; i++) {
        uint64_t n;
        cr_assert_eq(x[N * LONG + i], at_in_file(packed_file("tiny", &n), 1, i / LONG, i % LONG));
        cr_assert(fabs(x[N * LONG + i]) < 0x1p-40);
    }
    ((uint8_t *)(uintptr_t)the(&t, "x.w2_weight_scale")->data)[N * LONG / 16 + 5] = 0x81;
    cr_expect_not(pack(experts_of(HIR_NVFP4), &u, 1, "none"));
    cr_expect(strstr(said(), "not a number at [1, 0, 80]") || strstr(said(), "[0, 80]"), "%s",
              said());
    cr_expect(strstr(said(), "negative, which no scale of NVFP4 is"), "%s", said());
    cr_expect_not(hd_exists(in_folder("none")));
    cr_expect_not(hcg_weight_source((void *)(uintptr_t)&u, experts_of(HIR_NVFP4), 0, x, &diags));
}

/* Ranks' files hold the numbers of the whole, divided along experts, rows, and columns in units of
 * a scale, of which the last rank lacks some. */
Test(packed_stored, shares_of_nvfp4) {
    static const struct {
        uint32_t dim;
        hd_share share;
    } cuts[] = {{0, {.ranks = 3, .whole = E, .groups = E, .units = 1}},
                {1, {.ranks = 2, .whole = N, .groups = 1, .units = N}},
                {2, {.ranks = 2, .whole = LONG, .groups = 1, .units = LONG / 16}},
                {2, {.ranks = 4, .whole = LONG, .groups = 1, .units = LONG / 16}}};
    const hd_tensors t = nvfp4(false), u = unpacked(&t);
    const hd_tensor *w = the(&u, "x.w2_weight");
    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
        const hd_share share = cuts[c].share;
        hir_module *m = experts_of(HIR_NVFP4);
        hir_shard_weight(&m->weights.at[0], cuts[c].dim, share);
        m->ranks = (uint32_t)share.ranks;
        cr_assert(pack(m, &u, 1, "shares"), "%s", said());
        const int64_t *d = m->weights.at[0].type.dim, unit = hd_unit_elements(&share);
        for (int64_t rank = 0; rank < share.ranks; rank++) {
            hd_bytes file;
            const char *path = hcg_share_path(arena, in_folder("shares"), rank, share.ranks);
            cr_assert(hd_map_file(arena, &diags, path, &file));
            for (int64_t i = 0; i < d[0] * d[1] * d[2]; i++) {
                int64_t at[3] = {i / d[2] / d[1], i / d[2] % d[1], i % d[2]};
                const double got = in_matrices(file.at + DATA, d[1], d[2], at[0], at[1], at[2]);
                const int64_t from = hd_unit_of(&share, rank, at[cuts[c].dim] / unit);
                at[cuts[c].dim] = from * unit + at[cuts[c].dim] % unit;
                const uint64_t place = (uint64_t)((at[0] * N + at[1]) * LONG + at[2]);
                cr_assert_eq(got, from < 0 ? 0 : hd_tensor_get(w, place), "cut %zu, rank %ld, %ld",
                             c, rank, i);
            }
        }
    }
}
