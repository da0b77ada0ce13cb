/* Integers of checkpoints that are stored in groups with their codes (codegen/weights/kept.h),
 * against the rule as the documentation has it; what is rounded instead; what is refused. */
#include "codegen/program/program.h"
#include "codegen/weights/quant.h"

#define FOLDER "/tmp/hadal-kept-XXXXXX"
#include "tests/unit/codegen/weights/packed_fixture.h"
#include "tests/unit/folder_fixture.h"

TestSuite(kept, .init = open_folder, .fini = close_folder);

enum { DATA = 4096, N = 37, K = 192, TILE = 64, GROUPS = K / 32, ZEROS = 1, ONE_GROUP = 2 };

/* The parts of a matrix of integers of `bits`. */
typedef struct matrix {
    hd_tensors stored;
    uint32_t bits;
    uint64_t tile;
    const uint32_t *codes, *zeros;
    uint8_t *scales;
    hd_tensor_dtype dtype; /* of the scales */
} matrix;

static matrix integers(uint32_t bits, int options, hd_tensor_dtype dtype, double scale) {
    const int64_t in_word = 32 / bits, tile = options & ONE_GROUP ? K : TILE;
    matrix m = {.bits = bits, .tile = (uint64_t)tile, .dtype = dtype};
    m.codes = (const uint32_t *)(const void *)put_bytes(&m.stored, "m.weight_packed", HD_T_I32,
                                                        SHAPE(N, K / in_word));
    m.scales = put(&m.stored, "m.weight_scale", dtype, SHAPE(N, K / tile));
    int64_t *shape = (int64_t *)(void *)put(&m.stored, "m.weight_shape", HD_T_I64, SHAPE(2));
    shape[0] = N, shape[1] = K;
    if (options & ZEROS)
        m.zeros =
            (const uint32_t *)(const void *)put_bytes(&m.stored, "m.weight_zero_point", HD_T_I32,
                                                      SHAPE((N + in_word - 1) / in_word, K / tile));
    hir_random r = hir_random_stream(5, "scales");
    for (int64_t i = 0; i < N * (K / tile); i++) {
        const double s = scale * (1 + (double)(hir_random_next(&r) >> 40) / 0x1p24);
        const float f = (float)s;
        const uint16_t h = dtype == HD_T_BF16 ? hd_bf16_from_f64(s) : hd_f16_from_f64(s);
        if (dtype == HD_T_F32)
            memcpy(m.scales + i * 4, &f, 4);
        else
            memcpy(m.scales + i * 2, &h, 2);
    }
    return m;
}

static unsigned field(const uint32_t *words, uint64_t i, uint32_t bits) {
    const uint32_t n = 32 / bits;
    return words[i / n] >> bits * (i % n) & ((1u << bits) - 1);
}

static double scale_of(const matrix *m, uint64_t row, uint64_t col) {
    const uint64_t i = row * (K / m->tile) + col / m->tile;
    return hd_tensor_get(the(&m->stored, "m.weight_scale"), i);
}

static double code_of(const matrix *m, uint64_t row, uint64_t col) {
    return field(m->codes + row * (K * m->bits / 32), col, m->bits);
}

static double zero_of(const matrix *m, uint64_t row, uint64_t col) {
    const uint64_t groups = K / m->tile, n = 32 / m->bits;
    if (!m->zeros) return 1u << (m->bits - 1);
    return m->zeros[row / n * groups + col / m->tile] >> m->bits * (row % n) &
           ((1u << m->bits) - 1);
}

static double f16(double x) {
    return (double)hd_f16_to_f32(hd_f16_from_f64(x));
}

/* The rule: what a group that keeps its codes is. False: it does not. */
static bool kept_by_rule(const matrix *m, hir_dtype dtype, uint64_t row, uint64_t col, double *w) {
    const double s = scale_of(m, row, col), z = zero_of(m, row, col), most = f16(s),
                 low = f16(-z * s);
    const double moved =
        dtype == HIR_Q4 ? 15 * fabs(most - s) + fabs(low + z * s) : 127 * fabs(most - s);
    if (!(moved <= s / 16)) return false;
    for (unsigned k = 0; k < 32; k++) {
        const double q = code_of(m, row, col + k);
        if (dtype == HIR_Q8 && fabs(q - z) > 127) return false;
        w[k] = dtype == HIR_Q4 ? most * q + low : most * (q - z);
    }
    return true;
}

static hir_module *one_weight(hir_dtype dtype) {
    hir_module *m = hir_module_new(arena, "m");
    hir_add_weight(m, "m.weight", hir_make_type(dtype, 2, (const int64_t[]){N, K}), HD_NOWHERE);
    m->weights.at[0].layout = HIR_LAYOUT_PANEL;
    return m;
}

static bool pack_all(hir_module *m, const hd_tensors *t, int threads) {
    hcg_program *p = hd_new(arena, hcg_program);
    *p = (hcg_program){.arena = arena, .m = m, .options.threads = threads};
    hd_push(arena, &p->weight_offsets, 0);
    cr_assert(hir_weight_bytes(&m->weights.at[0], &p->weights_bytes));
    return hcg_pack(p, &diags, t, in_folder("file"));
}

static const uint8_t *pack(hir_module *m, const hd_tensors *t, int threads) {
    hd_bytes file;
    if (!pack_all(m, t, threads)) return NULL;
    cr_assert(hd_map_file(arena, &diags, in_folder("file"), &file));
    return file.at + DATA;
}

/* How many groups keep their codes; file and evaluator have what the rule says, or what rounding
 * makes of the numbers. */
static int expect_by_rule(const matrix *m, hir_dtype dtype) {
    static double x[N * K];
    int kept = 0;
    const hd_tensors u = unpacked(&m->stored);
    hir_module *module = one_weight(dtype);
    const uint8_t *file = pack(module, &u, 1 + (int)m->bits % 3);
    cr_assert(file, "%s", said());
    cr_assert(hcg_weight_source((void *)(uintptr_t)&u, module, 0, x, &diags), "%s", said());
    for (uint64_t row = 0; row < N; row++)
        for (uint64_t g = 0; g < GROUPS; g++) {
            double want[32];
            hcg_group got, rounded;
            const uint64_t at = row * K + g * 32, size = hcg_group_bytes(dtype);
            hcg_get_group(dtype, file + (row / 16 * GROUPS + g) * size, row % 16, &got);
            if (kept_by_rule(m, dtype, row, g * 32, want)) {
                kept++;
            } else {
                float numbers[32];
                hd_tensor_to_f32(the(&u, "m.weight"), at, 32, numbers);
                cr_assert(hcg_quantise(dtype, numbers, &rounded));
                for (unsigned k = 0; k < 32; k++)
                    want[k] = hcg_group_at(dtype, &rounded, k);
            }
            for (unsigned k = 0; k < 32; k++) {
                cr_assert_eq(hcg_group_at(dtype, &got, k), want[k], "[%lu, %lu]", row, g * 32 + k);
                cr_assert_eq(x[at + k], want[k], "[%lu, %lu]", row, g * 32 + k);
            }
        }
    return kept;
}

/* Rows beyond the matrix are zeros. */
static void expect_zeros(hir_dtype dtype, const uint8_t *file) {
    const uint64_t size = hcg_group_bytes(dtype);
    for (unsigned row = N % 16; row < 16; row++) {
        hcg_group g;
        hcg_get_group(dtype, file + N / 16 * GROUPS * size, row, &g);
        cr_assert(g.scale == 0 && g.least == 0);
        for (int k = 0; k < 32; k++)
            cr_assert_eq(g.q[k], 0);
    }
}

static const struct {
    uint32_t bits;
    hir_dtype dtype;
} pairs[] = {{4, HIR_Q4}, {4, HIR_Q8}, {8, HIR_Q8}};

/* Without zero points, scales in bf16: nothing moves. All of int4, and of int8 all groups without
 * its least code, some nine of ten. */
Test(kept, exact) {
    for (int p = 0; p < 3; p++)
        for (int options = 0; options <= ONE_GROUP; options += ONE_GROUP) {
            const matrix m = integers(pairs[p].bits, options, HD_T_BF16, 0x1p-12);
            const int kept = expect_by_rule(&m, pairs[p].dtype);
            const hd_tensors u = unpacked(&m.stored);
            if (pairs[p].bits == 4)
                cr_expect_eq(kept, N * GROUPS);
            else
                cr_expect(kept > N * GROUPS * 8 / 10 && kept < N * GROUPS);
            hir_module *module = one_weight(pairs[p].dtype);
            static double x[N * K];
            cr_assert(hcg_weight_source((void *)(uintptr_t)&u, module, 0, x, &diags));
            for (uint64_t i = 0; pairs[p].bits == 4 && i < N * K; i++)
                cr_assert_eq(x[i], hd_tensor_get(the(&u, "m.weight"), i));
            expect_zeros(pairs[p].dtype, pack(module, &u, 2));
        }
}

/* Zero points and scales of every dtype, of sizes where all, some or none of the scales are near
 * enough to an f16. */
Test(kept, by_the_rule) {
    static const hd_tensor_dtype dtypes[] = {HD_T_BF16, HD_T_F16, HD_T_F32};
    static const double sizes[] = {0x1p-30, 0x1p-20, 0x1p-18, 0x1p-16, 0x1p-14, 0.02, 3, 400};
    for (int p = 0; p < 3; p++) {
        int kept = 0, all = 0;
        for (int d = 0; d < 3; d++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
                for (int options = 0; options < 2; options++, all += N * GROUPS) {
                    if (dtypes[d] == HD_T_F16 && s < 2) continue;
                    const matrix m = integers(pairs[p].bits, options, dtypes[d], sizes[s]);
                    kept += expect_by_rule(&m, pairs[p].dtype);
                }
        cr_expect(kept > all / 4 && kept < all, "%d of %d", kept, all);
    }
}

/* A group may be rounded for one row and kept for its neighbours. */
Test(kept, rows_side_by_side) {
    for (int p = 0; p < 3; p++) {
        /* zero points of int8 put most codes beyond those of q8 */
        matrix m = integers(pairs[p].bits, pairs[p].bits == 4 ? ZEROS : 0, HD_T_F32, 0.01);
        for (int i = 0; i < N * (K / TILE); i += 3) {
            const float tiny = 1e-7f * (float)(1 + i % 7);
            memcpy(m.scales + i * 4, &tiny, 4);
        }
        const int kept = expect_by_rule(&m, pairs[p].dtype);
        cr_expect(kept > N * GROUPS / 8 && kept < N * GROUPS * 3 / 4, "%d", kept);
    }
}

/* ---- shares of ranks ------------------------------------------------------------------------- */
/* Each rank's file against the numbers of the whole weight, where the whole has them: all of them
 * are those, whether their group keeps its codes or is rounded. */
static void expect_shares(const matrix *m, hir_dtype dtype, uint32_t dim, hd_share share) {
    static double x[N * K];
    const hd_tensors u = unpacked(&m->stored);
    cr_assert(hcg_weight_source((void *)(uintptr_t)&u, one_weight(dtype), 0, x, &diags));
    hir_module *part = one_weight(dtype);
    hir_shard_weight(&part->weights.at[0], dim, share);
    part->ranks = (uint32_t)share.ranks;
    cr_assert(pack_all(part, &u, 1), "%s", said());
    const int64_t *d = part->weights.at[0].type.dim, unit = hd_unit_elements(&share);
    for (int64_t rank = 0; rank < share.ranks; rank++) {
        hd_bytes file;
        const char *path = hcg_share_path(arena, in_folder("file"), rank, share.ranks);
        cr_assert(hd_map_file(arena, &diags, path, &file));
        for (int64_t i = 0; i < d[0] * d[1]; i++) {
            int64_t at[2] = {i / d[1], i % d[1]};
            hcg_group g;
            const int64_t groups = d[1] / 32, place = at[0] / 16 * groups + at[1] / 32;
            hcg_get_group(dtype, file.at + DATA + (uint64_t)place * hcg_group_bytes(dtype),
                          (unsigned)(at[0] % 16), &g);
            const double got = hcg_group_at(dtype, &g, (unsigned)(at[1] % 32));
            const int64_t from = hd_unit_of(&share, rank, at[dim] / unit);
            at[dim] = from * unit + at[dim] % unit;
            cr_assert_eq(got, from < 0 ? 0 : x[at[0] * K + at[1]], "rank %ld of %ld, element %ld",
                         rank, share.ranks, i);
        }
    }
}

/* Rows, and columns along groups of 32: along the tiles that share a scale, and through them. */
Test(kept, shares_keep_the_codes_of_the_whole) {
    static const struct {
        uint32_t dim;
        hd_share share;
    } cuts[] = {{0, {.ranks = 2, .whole = N, .groups = 1, .units = N}},
                {0, {.ranks = 5, .whole = N, .groups = N, .units = 1}},
                {1, {.ranks = 2, .whole = K, .groups = 1, .units = 6}},
                {1, {.ranks = 2, .whole = K, .groups = 1, .units = 3}},
                {1, {.ranks = 4, .whole = K, .groups = 1, .units = 6}}};
    for (int p = 0; p < 3; p++)
        for (int options = 0; options < 4; options++)
            for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
                matrix m = integers(pairs[p].bits, options, HD_T_F32, 0.01);
                const float tiny = 1e-7f; /* one of the groups is rounded */
                memcpy(m.scales + 4, &tiny, 4);
                expect_shares(&m, pairs[p].dtype, cuts[c].dim, cuts[c].share);
            }
}

/* A scale that is no number, or that f16 does not hold, is refused in both. */
Test(kept, scales_that_are_rejected) {
    static const struct {
        float scale;
        const char *says;
    } cases[] = {{NAN, "is not a number"}, {INFINITY, "infinite"}, {1e9f, "too large for a scale"}};
    for (int p = 0; p < 3; p++)
        for (size_t c = 0; c < 3; c++)
            for (int in_file = 0; in_file < 2; in_file++) {
                matrix m = integers(pairs[p].bits, 0, HD_T_F32, 0.01);
                static double x[N * K];
                memcpy(m.scales + (N * (K / TILE) - 2) * 4, &cases[c].scale, 4);
                const hd_tensors u = unpacked(&m.stored);
                hd_diags_init(&diags, arena);
                if (in_file)
                    cr_expect_null(pack(one_weight(pairs[p].dtype), &u, 2));
                else
                    cr_expect_not(hcg_weight_source((void *)(uintptr_t)&u,
                                                    one_weight(pairs[p].dtype), 0, x, &diags));
                cr_expect(strstr(said(), cases[c].says), "%s", said());
            }
}
