/* Integers of GPTQ, AWQ and compressed-tensors' "int-quantized": numbers in every layout, what they
 * are stored as, and what is left out beside them, against arithmetic of the test's own
 * (docs/quantised-checkpoints.md). What is refused: test_packed_faults.c. */
#include "codegen/program/program.h"
#include "codegen/weights/quant.h"

#define FOLDER "/tmp/hadal-integers-XXXXXX"
#include "tests/unit/codegen/weights/packed_fixture.h"
#include "tests/unit/folder_fixture.h"

enum { DATA = 4096 };

/* A weight W[out, in] = (q - z) s, and what q, z and s are, in the order of the weight. */
typedef struct integers {
    hd_tensors stored;
    hd_quantisation config;
    int64_t rows, cols, tile; /* tile: columns with a scale */
    int *q, *z;               /* z: [rows, groups], as the scales */
    double *s;
    int *group; /* of each column */
    double *w;
    hd_packing packing;
} integers;

typedef struct form {
    hd_packing packing;
    bool older; /* GPTQ's first format */
    bool order; /* columns go to groups in an order of their own */
    hd_tensor_dtype scales;
} form;

static int64_t groups_of(const integers *m) {
    return (m->cols + m->tile - 1) / m->tile;
}

static hir_random draws;

static void open_and_seed(void) {
    open_folder();
    draws = hir_random_stream(17, "integers");
}

TestSuite(packed_integers, .init = open_and_seed, .fini = close_folder);

static int below(int n) {
    return (int)hir_random_below(&draws, (uint64_t)n);
}

/* Codes of all values, zero points that the form has, and scales between 2^-8 and 2^-7. */
static integers drawn(form f, int64_t rows, int64_t cols, int64_t tile) {
    const bool four = f.packing == HD_PACKING_GPTQ4 || f.packing == HD_PACKING_AWQ;
    const int all = four ? 16 : 256;
    integers m = {.rows = rows, .cols = cols, .tile = tile, .packing = f.packing};
    const size_t n = (size_t)(rows * cols), g = (size_t)(rows * groups_of(&m));
    m.q = hd_new_array(arena, int, n), m.w = hd_new_array(arena, double, n);
    m.z = hd_new_array(arena, int, g), m.s = hd_new_array(arena, double, g);
    m.group = hd_new_array(arena, int, (size_t)cols);
    for (size_t i = 0; i < n; i++)
        m.q[i] = below(all);
    for (size_t i = 0; i < g; i++) {
        m.z[i] = f.older ? 1 + below(all - 1) : below(all);
        const double s = ldexp(1 + below(1 << 10) / 1024.0, -8);
        m.s[i] = f.scales == HD_T_F32    ? (double)(float)(s * 1.0001)
                 : f.scales == HD_T_BF16 ? (double)hd_bf16_to_f32(hd_bf16_from_f64(s))
                                         : s;
    }
    for (int64_t c = 0; c < cols; c++)
        m.group[c] = f.order ? below((int)groups_of(&m)) : (int)(c / tile);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            const int64_t at = r * groups_of(&m) + m.group[c];
            m.w[r * cols + c] = (m.q[r * cols + c] - m.z[at]) * m.s[at];
        }
    return m;
}

static void put_scales(integers *m, const char *name, hd_tensor_dtype dtype, bool down) {
    const int64_t groups = groups_of(m);
    uint8_t *to = down ? put(&m->stored, name, dtype, SHAPE(groups, m->rows))
                       : put(&m->stored, name, dtype, SHAPE(m->rows, groups));
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t g = 0; g < groups; g++) {
            const double s = m->s[r * groups + g];
            const int64_t at = down ? g * m->rows + r : r * groups + g;
            const float f = (float)s;
            const uint16_t h = dtype == HD_T_BF16 ? hd_bf16_from_f64(s) : hd_f16_from_f64(s);
            if (dtype == HD_T_F32)
                memcpy(to + 4 * at, &f, 4);
            else
                memcpy(to + 2 * at, &h, 2);
        }
}

static void put_order(integers *m, const char *name) {
    uint8_t *to = put(&m->stored, name, HD_T_I32, SHAPE(m->cols));
    for (int64_t c = 0; c < m->cols; c++)
        memcpy(to + 4 * c, &m->group[c], 4);
}

/* Number i of those in words of n, the first in the lowest bits. */
static void put_number(uint32_t *words, int64_t word, int64_t place, int bits, int x) {
    words[word] |= (uint32_t)x << bits * place;
}

static void store_gptq(integers *m, form f) {
    const int bits = f.packing == HD_PACKING_GPTQ4 ? 4 : 8;
    const int64_t n = 32 / bits, groups = groups_of(m);
    uint32_t *q =
        (uint32_t *)(void *)put(&m->stored, "m.qweight", HD_T_I32, SHAPE(m->cols / n, m->rows));
    uint32_t *z =
        (uint32_t *)(void *)put(&m->stored, "m.qzeros", HD_T_I32, SHAPE(groups, m->rows / n));
    for (int64_t r = 0; r < m->rows; r++) {
        for (int64_t c = 0; c < m->cols; c++)
            put_number(q, c / n * m->rows + r, c % n, bits, m->q[r * m->cols + c]);
        for (int64_t g = 0; g < groups; g++)
            put_number(z, g * (m->rows / n) + r / n, r % n, bits, m->z[r * groups + g] - f.older);
    }
    put_scales(m, "m.scales", f.scales, true);
    put_order(m, "m.g_idx");
}

static void store_awq(integers *m, form f) {
    static const int order[] = {0, 2, 4, 6, 1, 3, 5, 7};
    const int64_t words = m->rows / 8, groups = groups_of(m);
    uint32_t *q = (uint32_t *)(void *)put(&m->stored, "m.qweight", HD_T_I32, SHAPE(m->cols, words));
    uint32_t *z = (uint32_t *)(void *)put(&m->stored, "m.qzeros", HD_T_I32, SHAPE(groups, words));
    for (int64_t w = 0; w < words; w++)
        for (int i = 0; i < 8; i++) {
            const int64_t r = 8 * w + order[i];
            for (int64_t c = 0; c < m->cols; c++)
                put_number(q, c * words + w, i, 4, m->q[r * m->cols + c]);
            for (int64_t g = 0; g < groups; g++)
                put_number(z, g * words + w, i, 4, m->z[r * groups + g]);
        }
    put_scales(m, "m.scales", f.scales, true);
}

static void store_plain(integers *m, form f) {
    const int64_t groups = groups_of(m);
    int8_t *q = (int8_t *)put(&m->stored, "m.weight", HD_T_I8, SHAPE(m->rows, m->cols));
    int8_t *z = (int8_t *)put(&m->stored, "m.weight_zero_point", HD_T_I8, SHAPE(m->rows, groups));
    for (int64_t i = 0; i < m->rows * m->cols; i++)
        q[i] = (int8_t)(m->q[i] - 128);
    for (int64_t i = 0; i < m->rows * groups; i++)
        z[i] = (int8_t)(m->z[i] - 128);
    put_scales(m, "m.weight_scale", f.scales, false);
    if (f.order) put_order(m, "m.weight_g_idx");
}

static integers stored(form f, int64_t rows, int64_t cols, int64_t tile) {
    integers m = drawn(f, rows, cols, tile);
    const hd_quant_group group = {.format = "some-format",
                                  .packing = f.packing,
                                  .tile_known = true,
                                  .tile = {1, (uint64_t)tile},
                                  .targets_known = true,
                                  .zeros_less_one = f.older};
    m.config.given = true;
    hd_push(arena, &m.config.groups, group);
    if (f.packing == HD_PACKING_PLAIN8)
        store_plain(&m, f);
    else if (f.packing == HD_PACKING_AWQ)
        store_awq(&m, f);
    else
        store_gptq(&m, f);
    return m;
}

static hd_tensors read(const integers *m) {
    hd_tensors out;
    cr_assert(hd_unpack(arena, &diags, &m->stored, &m->config, &out), "%s", said());
    return out;
}

/* All of them, and ranges that begin and end anywhere. */
static void expect_numbers(const integers *m, const hd_tensor *t) {
    const uint64_t n = t->elements;
    double *wide = hd_new_array(arena, double, n + 1);
    float *narrow = hd_new_array(arena, float, n + 1);
    cr_assert(t->rank == 2 && t->shape[0] == m->rows && t->shape[1] == m->cols);
    for (int round = 0; round < 30; round++) {
        const uint64_t first = round ? hir_random_below(&draws, n) : 0;
        const uint64_t some = round ? hir_random_below(&draws, n - first + 1) : n;
        hd_tensor_to_f64(t, first, some, wide);
        hd_tensor_to_f32(t, first, some, narrow);
        for (uint64_t i = 0; i < some; i++) {
            cr_assert_eq(wide[i], m->w[first + i], "element %lu", first + i);
            cr_assert_eq((double)narrow[i], (double)(float)m->w[first + i]);
        }
    }
}

static const form all_forms[] = {
    {HD_PACKING_GPTQ4, true, false, HD_T_F16},  {HD_PACKING_GPTQ4, false, false, HD_T_F16},
    {HD_PACKING_GPTQ4, true, true, HD_T_BF16},  {HD_PACKING_GPTQ8, true, false, HD_T_F16},
    {HD_PACKING_GPTQ8, false, true, HD_T_F32},  {HD_PACKING_AWQ, false, false, HD_T_F16},
    {HD_PACKING_AWQ, false, false, HD_T_F32},   {HD_PACKING_PLAIN8, false, false, HD_T_BF16},
    {HD_PACKING_PLAIN8, false, true, HD_T_F32},
};
enum { FORMS = sizeof all_forms / sizeof *all_forms };

Test(packed_integers, numbers) {
    static const int64_t sizes[][3] = {{8, 32, 32},    {24, 96, 32},    {40, 128, 64}, {64, 64, 8},
                                       {16, 352, 128}, {8, 1056, 1056}, {80, 800, 16}};
    for (int i = 0; i < FORMS; i++)
        for (int k = 0; k < 7; k++) {
            const integers m = stored(all_forms[i], sizes[k][0], sizes[k][1], sizes[k][2]);
            const hd_tensors u = read(&m);
            cr_assert_eq(u.list.n, 1);
            cr_expect_str_eq(u.list.at[0].name, "m.weight");
            cr_expect_eq(u.list.at[0].packed->packing, m.packing);
            expect_numbers(&m, &u.list.at[0]);
        }
}

/* ---- stored --------------------------------------------------------------------------------- */

static hir_module *one_weight(const integers *m, hir_dtype dtype) {
    hir_module *module = hir_module_new(arena, "m");
    const int64_t dims[] = {m->rows, m->cols};
    hir_add_weight(module, "m.weight", hir_make_type(dtype, 2, dims), HD_NOWHERE);
    module->weights.at[0].layout = HIR_LAYOUT_PANEL;
    return module;
}

static bool pack(hir_module *module, const hd_tensors *t, int threads) {
    hcg_program *p = hd_new(arena, hcg_program);
    *p = (hcg_program){.arena = arena, .m = module, .options.threads = threads};
    hd_push(arena, &p->weight_offsets, 0);
    cr_assert(hir_weight_bytes(&module->weights.at[0], &p->weights_bytes));
    return hcg_pack(p, &diags, t, in_folder("file"));
}

/* docs/weight-types.md: codes stay if f16 moves no weight by more than a sixteenth of the scale. */
static bool kept_by_rule(const integers *m, hir_dtype dtype, int64_t row, int64_t col, double *w) {
    const int64_t at = row * groups_of(m) + m->group[col];
    const double s = m->s[at], z = m->z[at], half = (double)hd_f16_to_f32(hd_f16_from_f64(s));
    const double low = (double)hd_f16_to_f32(hd_f16_from_f64(-z * s));
    const double moved =
        dtype == HIR_Q4 ? 15 * fabs(half - s) + fabs(low + z * s) : 127 * fabs(half - s);
    if (!(moved <= s / 16)) return false;
    for (int k = 0; k < 32; k++) {
        const int q = m->q[row * m->cols + col + k];
        if (dtype == HIR_Q8 && fabs(q - z) > 127) return false;
        w[k] = dtype == HIR_Q4 ? half * q + low : half * (q - z);
    }
    return true;
}

/* The file and the evaluator: codes that are kept, or what rounding makes of the numbers. */
static int expect_stored(const integers *m, hir_dtype dtype, bool may_keep) {
    const hd_tensors u = read(m);
    hir_module *module = one_weight(m, dtype);
    double *x = hd_new_array(arena, double, (size_t)(m->rows * m->cols));
    hd_bytes file;
    int kept = 0;
    cr_assert(pack(module, &u, 1 + below(3)), "%s", said());
    cr_assert(hd_map_file(arena, &diags, in_folder("file"), &file));
    cr_assert(hcg_weight_source((void *)(uintptr_t)&u, module, 0, x, &diags), "%s", said());
    for (int64_t row = 0; row < m->rows; row++)
        for (int64_t col = 0; col < m->cols; col += 32) {
            double want[32];
            hcg_group got, rounded;
            float numbers[32];
            const int64_t at = row / 16 * (m->cols / 32) + col / 32;
            hcg_get_group(dtype, file.at + DATA + (uint64_t)at * hcg_group_bytes(dtype),
                          (unsigned)(row % 16), &got);
            if (may_keep && kept_by_rule(m, dtype, row, col, want)) {
                kept++;
            } else {
                for (int k = 0; k < 32; k++)
                    numbers[k] = (float)m->w[row * m->cols + col + k];
                cr_assert(hcg_quantise(dtype, numbers, &rounded));
                for (unsigned k = 0; k < 32; k++)
                    want[k] = hcg_group_at(dtype, &rounded, k);
            }
            for (unsigned k = 0; k < 32; k++) {
                cr_assert_eq(hcg_group_at(dtype, &got, k), want[k], "[%ld, %ld]", row, col + k);
                cr_assert_eq(x[row * m->cols + col + k], want[k], "[%ld, %ld]", row, col + k);
            }
        }
    return kept;
}

static bool is_in_order(const integers *m) {
    for (int64_t c = 0; c < m->cols; c++)
        if (m->group[c] != c / m->tile) return false;
    return true;
}

/* A panel has 16 rows; the last one here 8. */
Test(packed_integers, kept_or_rounded) {
    for (int i = 0; i < FORMS; i++) {
        const bool eight =
            all_forms[i].packing == HD_PACKING_GPTQ8 || all_forms[i].packing == HD_PACKING_PLAIN8;
        for (int round = 0; round < 6; round++) {
            const int64_t tile = round % 2 ? 64 : 32;
            integers m = stored(all_forms[i], 8 * (1 + below(6)), 64 * (1 + below(4)), tile);
            const bool may = is_in_order(&m);
            expect_stored(&m, HIR_Q4, may && !eight);
            expect_stored(&m, HIR_Q8, may);
        }
    }
}

/* Zero points in the middle: every code of int8 but the least stays in q8, and moves nothing. */
Test(packed_integers, symmetric_bytes_stay) {
    integers m = drawn((form){HD_PACKING_PLAIN8, .scales = HD_T_BF16}, 24, 96, 96);
    for (int64_t i = 0; i < m.rows; i++)
        m.z[i] = 128;
    for (int64_t i = 0; i < m.rows * m.cols; i++) {
        m.q[i] += m.q[i] == 0;
        m.w[i] = (m.q[i] - 128) * m.s[i / m.cols];
    }
    store_plain(&m, (form){HD_PACKING_PLAIN8, .scales = HD_T_BF16});
    cr_expect_eq(expect_stored(&m, HIR_Q8, true), 24 * 3);
}

/* ---- scales of other shapes ------------------------------------------------------------------ */

/* One for all in each of its shapes, and tiles of rows and columns. */
Test(packed_integers, bytes_by_tensor_and_by_block) {
    enum { N = 6, K = 40 };
    static const int64_t shape[] = {1, 1}, blocks[] = {2, 2};
    for (int rank = 0; rank < 4; rank++) {
        hd_tensors t = {0}, u;
        const int8_t *q = (const int8_t *)put_bytes(&t, "m.weight", HD_T_I8, SHAPE(N, K));
        const uint16_t *s = put_bf16(&t, "m.weight_scale", rank == 3 ? 2 : (size_t)rank,
                                     rank == 3 ? blocks : shape);
        hd_quantisation config = {.given = rank == 3};
        const hd_quant_group group = {.packing = HD_PACKING_PLAIN8,
                                      .tile_known = true,
                                      .symmetric = true,
                                      .tile = {4, 32},
                                      .targets_known = true};
        if (rank == 3) hd_push(arena, &config.groups, group);
        cr_assert(hd_unpack(arena, &diags, &t, &config, &u), "%s", said());
        for (int i = 0; i < N * K; i++) {
            const int at = rank == 3 ? i / K / 4 * 2 + i % K / 32 : 0;
            cr_assert_eq(hd_tensor_get(&u.list.at[0], (uint64_t)i),
                         q[i] * (double)hd_bf16_to_f32(s[at]));
        }
    }
}

/* Older programs wrote the zeros of symmetric weights. */
Test(packed_integers, zero_points_that_are_zeros) {
    hd_tensors t = {0};
    put_bytes(&t, "m.weight", HD_T_I8, SHAPE(8, 32));
    put_bf16(&t, "m.weight_scale", SHAPE(8, 1));
    put(&t, "m.weight_zero_point", HD_T_I8, SHAPE(8, 1));
    cr_expect_null(the(&(hd_tensors){.list = unpacked(&t).list}, "m.weight")->packed->zeros);
}

/* ---- beside them ----------------------------------------------------------------------------- */

/* What rounds activations and the cache is left out, and told; a plain model keeps tensors of such
 * names. */
Test(packed_integers, scales_that_are_left_out) {
    hd_tensors t = {0};
    put_f32(&t, "l.self_attn.k_scale", SHAPE(1));
    put_bf16(&t, "l.self_attn.k_proj.weight", SHAPE(8, 32));
    cr_expect_eq(unpacked(&t).list.n, 2, "nothing is quantised");
    put_bytes(&t, "l.self_attn.q_proj.weight", HD_T_I8, SHAPE(8, 32));
    put_bf16(&t, "l.self_attn.q_proj.weight_scale", SHAPE(8, 1));
    put_f32(&t, "l.self_attn.q_proj.input_scale", SHAPE(1));
    put_f32(&t, "l.self_attn.q_proj.input_zero_point", SHAPE(1));
    put_f32(&t, "l.self_attn.v_scale", SHAPE(2, 1, 1));
    put_f32(&t, "l.mixer.k_scale", SHAPE(1));
    const hd_tensors u = unpacked(&t);
    cr_expect_eq(u.list.n, 3, "the mixer has no k_proj");
    cr_expect(strstr(said(),
                     "note: 2 scales of activations (\"l.self_attn.q_proj.input_scale\" ..) "
                     "are left out"),
              "%s", said());
    cr_expect(
        strstr(said(), "note: 2 scales of the cache (\"l.self_attn.k_scale\" ..) are left out"),
        "%s", said());
}

/* A bias of zeros beside GPTQ's codes is none that a model without biases misses. */
Test(packed_integers, needless_biases) {
    for (int i = 0; i < 2; i++) {
        integers m = stored(all_forms[0], 8, 32, 32);
        uint8_t *bias = put(&m.stored, "m.bias", HD_T_F16, SHAPE(8));
        bias[5] = (uint8_t)i;
        const hd_tensors u = read(&m);
        cr_expect_eq(the(&u, "m.bias")->optional, i == 0);
        cr_expect_eq(hcg_check_weights(one_weight(&m, HIR_Q4), &diags, &u), i == 0);
    }
    cr_expect(strstr(said(), "tensor \"m.bias\" f16 [8] of the checkpoint is no weight") ||
                  strstr(said(), "is no weight of the model"),
              "%s", said());
}

/* GPTQ's first format has one code for the zero points 0 and 16. */
Test(packed_integers, zero_points_that_are_two) {
    static const hir_dtype dtypes[] = {HIR_Q4, HIR_Q8, HIR_BF16};
    integers m = stored(all_forms[0], 16, 64, 32);
    ((uint32_t *)(uintptr_t)the(&m.stored, "m.qzeros")->data)[1] |= 0xf0;
    const hd_tensors u = read(&m);
    for (int i = 0; i < 3; i++) {
        hd_diags_init(&diags, arena);
        cr_expect_not(pack(one_weight(&m, dtypes[i]), &u, 1));
        cr_expect(strstr(said(), "weight 'm.weight' is not a number at [9, 0]"), "%s", said());
        cr_expect(strstr(said(), "its zero point is stored as all ones"), "%s", said());
    }
}
