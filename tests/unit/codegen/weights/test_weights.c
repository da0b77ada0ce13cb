/* Weights: a checkpoint against a module, packing in every layout and dtype, random checkpoints. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "codegen/program/program.h"
#include "codegen/weights/quant.h"

#define FOLDER "/tmp/hadal-weights-XXXXXX"
#include "tests/unit/folder_fixture.h"

TestSuite(weights, .init = open_folder, .fini = close_folder);

static uint32_t add(hir_module *m, const char *name, hir_dtype dtype, hir_layout layout, uint32_t n,
                    const int64_t *dims) {
    uint32_t w = hir_add_weight(m, name, hir_make_type(dtype, n, dims), HD_NOWHERE);
    m->weights.at[w].layout = layout;
    return w;
}
#define DIMS(...)                                                                                  \
    (sizeof((int64_t[]){__VA_ARGS__}) / 8), (const int64_t[]) {                                    \
        __VA_ARGS__                                                                                \
    }

/* Values that f16, bf16 and f32 all hold exactly. */
static float value_at(uint64_t i) {
    return (float)((int)(i * 37 % 255) - 127) / 16;
}

static void add_tensor(hd_tensors *t, const char *name, hd_tensor_dtype dtype, uint32_t rank,
                       const int64_t *shape) {
    hd_tensor x = {.name = name, .dtype = dtype, .rank = rank, .file = "x.safetensors"};
    memcpy(x.shape, shape, rank * 8);
    cr_assert(hd_tensor_measure(&x));
    uint8_t *data = hd_alloc(arena, x.bytes + 8, 1);
    for (uint64_t i = 0; i < x.elements; i++) {
        float f = value_at(i);
        double f64 = f;
        uint16_t half = dtype == HD_T_F16 ? hd_f16_from_f64(f) : hd_bf16_from_f32(f);
        if (dtype == HD_T_F32)
            memcpy(data + 4 * i, &f, 4);
        else if (dtype == HD_T_F64)
            memcpy(data + 8 * i, &f64, 8);
        else if (x.bytes == 2 * x.elements)
            memcpy(data + 2 * i, &half, 2);
    }
    x.data = data;
    size_t to = t->list.n;
    hd_push(arena, &t->list, x);
    for (; to > 0 && strcmp(t->list.at[to - 1].name, name) > 0; to--)
        t->list.at[to] = t->list.at[to - 1];
    t->list.at[to] = x;
}

/* ---- checking ------------------------------------------------------------------------------ */

Test(weights, a_good_checkpoint_passes) {
    hir_module *m = hir_module_new(arena, "m");
    hd_tensors t = {0};
    static const hd_tensor_dtype dtypes[] = {HD_T_F32, HD_T_BF16, HD_T_F16, HD_T_F64};
    for (int i = 0; i < 4; i++) {
        char *name = hd_printf(arena, "w%d", i);
        add(m, name, HIR_F32, HIR_LAYOUT_ROWS, DIMS(3, 4));
        add_tensor(&t, name, dtypes[i], DIMS(3, 4));
    }
    uint32_t w = add(m, "unused", HIR_F32, HIR_LAYOUT_ROWS, DIMS(5));
    m->weights.at[w].unused = true;
    cr_expect(hcg_check_weights(m, &diags, &t), "an unused weight may be absent");
    cr_expect_eq(diags.list.n, 0);
    hcg_warn_of_absent(m, &diags, &t);
    cr_assert_eq(diags.list.n, 1);
    cr_expect_eq(diags.list.at[0].severity, HD_WARNING);
    cr_expect(find_message("weight 'unused' [5] is missing from the checkpoint"));
    add_tensor(&t, "unused", HD_T_F32, DIMS(5));
    cr_expect(hcg_check_weights(m, &diags, &t), "or there");
    hcg_warn_of_absent(m, &diags, &t);
    cr_expect_eq(diags.list.n, 1);
}

Test(weights, every_fault_is_listed_at_once) {
    hir_module *m = hir_module_new(arena, "m");
    hd_tensors t = {0};
    add(m, "layer.0.q_proj.weight", HIR_F32, HIR_LAYOUT_ROWS, DIMS(3, 4));
    add(m, "gone", HIR_F32, HIR_LAYOUT_ROWS, DIMS(7));
    add(m, "shape", HIR_F32, HIR_LAYOUT_ROWS, DIMS(3, 4));
    add(m, "rank", HIR_F32, HIR_LAYOUT_ROWS, DIMS(4));
    add(m, "dtype", HIR_F32, HIR_LAYOUT_ROWS, DIMS(4));
    uint32_t w = add(m, "unused", HIR_F32, HIR_LAYOUT_ROWS, DIMS(5));
    m->weights.at[w].unused = true;
    add_tensor(&t, "layer.0.qproj.weight", HD_T_F32, DIMS(3, 4));
    add_tensor(&t, "shape", HD_T_F32, DIMS(4, 3));
    add_tensor(&t, "rank", HD_T_F32, DIMS(1, 4));
    add_tensor(&t, "dtype", HD_T_I8, DIMS(4));
    add_tensor(&t, "unused", HD_T_F32, DIMS(6));
    add_tensor(&t, "\x1b[31m", HD_T_F32, DIMS(6));
    cr_expect_not(hcg_check_weights(m, &diags, &t));
    cr_expect_eq(diags.errors, 8);
    const hd_diag *g = find_message("'layer.0.q_proj.weight' [3, 4] is missing");
    cr_assert(g && g->hint);
    cr_expect_str_eq(g->hint, "did you mean 'layer.0.qproj.weight'?");
    g = find_message("\"layer.0.qproj.weight\" F32 [3, 4] of the checkpoint is no weight");
    cr_assert(g && g->hint);
    g = find_message("'shape' is F32 [4, 3] in the checkpoint, [3, 4] in the model");
    cr_assert(g && g->hint && strstr(g->hint, "transposed"));
    cr_expect(find_message("'gone' [7] is missing"));
    cr_expect(find_message("'rank' is F32 [1, 4]"));
    cr_expect(find_message("'dtype' has the dtype I8"));
    cr_expect(find_message("'unused' is F32 [6]"));
    cr_expect(find_message("\"\\x1b[31m\""));
    for (size_t i = 0; i < diags.list.n; i++)
        cr_expect_eq(diags.list.at[i].code, HD_E_WEIGHTS);
}

/* The words of a quantised form are no numbers, whatever their type: they would make a model of
 * noise. A table of choices is what integers are for, and it may hold ids as numbers too. */
Test(weights, integers_are_ids_or_nothing) {
    static const char text[] = "hir 1 graph @m\n"
                               "weight @table : f32[8, 2]\n"
                               "weight @matrix : f32[8, 2]\n"
                               "func(%tokens: i32[T]) {\n"
                               "  %0 = gather @table, %tokens : f32[T, 2]\n"
                               "  %1 = to_ids %0 : i32[T, 2]\n"
                               "  %2 = gather @matrix, %tokens : f32[T, 2]\n"
                               "  %3 = pick %2, %1 : f32[T, 2]\n"
                               "  output %3 {name = \"y\"}\n"
                               "}\n";
    hir_module *m = hir_parse(arena, &diags, "m.hir", text);
    cr_assert(m, "%s", said());
    for (hd_tensor_dtype dtype = 0; dtype < HD_T_COUNT; dtype++) {
        const bool number = dtype == HD_T_F16 || dtype == HD_T_BF16 || dtype == HD_T_F32 ||
                            dtype == HD_T_F64,
                   id = dtype == HD_T_I32 || dtype == HD_T_I64;
        hd_tensors table = {0}, matrix = {0};
        add_tensor(&table, "table", dtype, DIMS(8, 2));
        add_tensor(&table, "matrix", HD_T_F32, DIMS(8, 2));
        add_tensor(&matrix, "table", HD_T_F32, DIMS(8, 2));
        add_tensor(&matrix, "matrix", dtype, DIMS(8, 2));
        cr_expect_eq(hcg_check_weights(m, &diags, &table), number || id, "%s",
                     hd_tensor_dtype_name(dtype));
        cr_expect_eq(hcg_check_weights(m, &diags, &matrix), number, "%s",
                     hd_tensor_dtype_name(dtype));
    }
    const hd_diag *g = find_message("weight 'matrix' has the dtype I32, which cannot be");
    cr_assert(g && g->hint);
    cr_expect(strstr(g->hint, "quantization_config"), "%s", g->hint);
}

Test(weights, a_hundred_faults_are_a_hundred_messages) {
    hir_module *m = hir_module_new(arena, "m");
    hd_tensors t = {0};
    for (int i = 0; i < 100; i++)
        add(m, hd_printf(arena, "w%d", i), HIR_F32, HIR_LAYOUT_ROWS, DIMS(7));
    cr_expect_not(hcg_check_weights(m, &diags, &t));
    cr_expect_eq(diags.list.n, 100);
}

Test(weights, the_evaluators_source_rounds_to_narrow_storage) {
    hir_module *m = hir_module_new(arena, "m");
    hd_tensors t = {0};
    double out[3];
    uint32_t f32 = add(m, "f32", HIR_F32, HIR_LAYOUT_ROWS, DIMS(2));
    uint32_t bf16 = add(m, "bf16", HIR_BF16, HIR_LAYOUT_ROWS, DIMS(2));
    uint32_t f16 = add(m, "f16", HIR_F16, HIR_LAYOUT_ROWS, DIMS(3));
    uint32_t gone = add(m, "gone", HIR_F32, HIR_LAYOUT_ROWS, DIMS(2));
    add_tensor(&t, "f32", HD_T_F64, DIMS(2));
    add_tensor(&t, "bf16", HD_T_F64, DIMS(2));
    add_tensor(&t, "f16", HD_T_F64, DIMS(3));
    static const double values[3] = {1 + 0x1p-24 + 0x1p-40, 1 + 0x1p-8 + 0x1p-40,
                                     1 + 0x1p-11 + 0x1p-40};
    for (size_t i = 0; i < t.list.n; i++)
        t.list.at[i].data = (const uint8_t *)values;
    cr_expect(hcg_weight_source(&t, m, f32, out, &diags));
    cr_expect_eq(out[0], values[0], "what is rounded to f32 is compiled code");
    cr_expect(hcg_weight_source(&t, m, bf16, out, &diags));
    cr_expect_eq(out[1], 1 + 0x1p-7);
    cr_expect(hcg_weight_source(&t, m, f16, out, &diags));
    cr_expect_eq(out[0], 1);
    cr_expect_eq(out[2], 1 + 0x1p-10);
    cr_expect_not(hcg_weight_source(&t, m, gone, out, &diags));
    cr_expect(find_message("missing"));
}

/* ---- weights in groups ----------------------------------------------------------------------- */
/* What the file holds of a matrix in groups is what the evaluator is given. */
Test(weights, groups_in_the_file_are_the_evaluators) {
    for (int dtype = HIR_Q8; dtype <= HIR_NVFP4; dtype++)
        for (int form = 0; form < 4; form++) {
            static const int64_t shapes[][2] = {{16, 32}, {35, 70}, {1, 1}, {17, 2100}};
            const int64_t *dims = shapes[form];
            hir_module *m = hir_module_new(arena, "m");
            hd_tensors t = {0};
            uint32_t w = add(m, "w", (hir_dtype)dtype, HIR_LAYOUT_PANEL, 2, dims);
            add_tensor(&t, "w", form % 2 ? HD_T_F32 : HD_T_BF16, 2, dims);
            hcg_program *p = hd_new(arena, hcg_program);
            p->arena = arena, p->m = m;
            hd_push(arena, &p->weight_offsets, 0);
            cr_assert(hir_weight_bytes(&m->weights.at[w], &p->weights_bytes));
            double *out = hd_new_array(arena, double, (size_t)(dims[0] * dims[1]));
            hd_bytes file;
            cr_assert(hcg_pack(p, &diags, &t, in_folder("g.weights")));
            cr_assert(hd_map_file(arena, &diags, in_folder("g.weights"), &file));
            cr_assert(hcg_weight_source(&t, m, w, out, &diags));
            uint64_t groups = (uint64_t)(dims[1] + 31) / 32,
                     size = hcg_group_bytes((hir_dtype)dtype);
            for (int64_t n = 0; n < dims[0]; n++)
                for (int64_t k = 0; k < dims[1]; k++) {
                    hcg_group g;
                    const uint64_t panel = groups * size + (dtype == HIR_NVFP4 ? 64 : 0);
                    uint64_t at = (uint64_t)n / 16 * panel + (uint64_t)k / 32 * size;
                    hcg_get_group((hir_dtype)dtype, file.at + 4096 + at, (unsigned)n % 16, &g);
                    double x = hcg_group_at((hir_dtype)dtype, &g, (unsigned)k % 32);
                    cr_assert_eq(x, out[n * dims[1] + k], "[%ld, %ld]", (long)n, (long)k);
                    /* a step is at most 127 / 16 / 15 wide, and f16 rounds by 2^-11 */
                    cr_assert(fabs(x - (double)value_at((uint64_t)(n * dims[1] + k))) <
                              (hcg_is_fp4((hir_dtype)dtype) ? 2 : 0.55));
                }
        }
}

Test(weights, numbers_that_fit_no_group_are_rejected) {
    hir_module *m = hir_module_new(arena, "m");
    hd_tensors t = {0};
    uint32_t w = add(m, "w", HIR_Q4, HIR_LAYOUT_PANEL, DIMS(3, 40));
    add_tensor(&t, "w", HD_T_F32, DIMS(3, 40));
    float nan = NAN;
    memcpy((uint8_t *)(uintptr_t)t.list.at[0].data + 4 * 77, &nan, 4);
    hcg_program *p = hd_new(arena, hcg_program);
    p->arena = arena, p->m = m;
    hd_push(arena, &p->weight_offsets, 0);
    cr_assert(hir_weight_bytes(&m->weights.at[w], &p->weights_bytes));
    double out[120];
    cr_expect_not(hcg_pack(p, &diags, &t, in_folder("nan.weights")));
    cr_expect_not(hd_exists(in_folder("nan.weights")));
    cr_expect_not(hcg_weight_source(&t, m, w, out, &diags));
    cr_expect_eq(diags.errors, 2);
    const hd_diag *g = find_message("weight 'w' is not a number at [1, 37]");
    cr_assert(g && g->cause && g->hint);
}

/* ---- packing ------------------------------------------------------------------------------- */

static hcg_program *program_of(hir_module *m) {
    hcg_program *p = hd_new(arena, hcg_program);
    p->arena = arena;
    p->m = m;
    memset(p->digest, 0xd1, sizeof p->digest);
    for (size_t i = 0; i < m->weights.n; i++) {
        hd_push(arena, &p->weight_offsets, p->weights_bytes);
        uint64_t bytes;
        cr_assert(hir_weight_bytes(&m->weights.at[i], &bytes));
        if (!m->weights.at[i].unused) p->weights_bytes += (bytes + 63) / 64 * 64;
    }
    return p;
}

static hir_module *mixed_module(hd_tensors *t) {
    hir_module *m = hir_module_new(arena, "m");
    static const hd_tensor_dtype dtypes[] = {HD_T_F32, HD_T_BF16, HD_T_F16, HD_T_F64};
    for (int i = 0; i < 16; i++) {
        char *name = hd_printf(arena, "w%x", i);
        /* odd numbers of rows; more columns than one block of the packer */
        int64_t dims[] = {i % 3 ? 19 : 32, i == 7 ? 5000 : 21};
        add(m, name,
            i % 8 == 7 ? HIR_F16
            : i & 4    ? HIR_BF16
                       : HIR_F32,
            i & 8 ? HIR_LAYOUT_PANEL : HIR_LAYOUT_ROWS, 2, dims);
        add_tensor(t, name, dtypes[i & 3], 2, dims);
    }
    for (int i = 0; i < 4; i++) { /* one panel of 8 and a part of one; one block and more */
        char *name = hd_printf(arena, "narrow%d", i);
        int64_t dims[] = {i & 1 ? 8 : 19, i & 2 ? 5000 : 22};
        add(m, name, HIR_F32, HIR_LAYOUT_NARROW, 2, dims);
        add_tensor(t, name, dtypes[i], 2, dims);
    }
    add(m, "gain", HIR_F32, HIR_LAYOUT_ROWS, DIMS(5));
    add_tensor(t, "gain", HD_T_F32, DIMS(5));
    uint32_t w = add(m, "unused", HIR_F32, HIR_LAYOUT_ROWS, DIMS(5));
    m->weights.at[w].unused = true;
    return m;
}

static float element(const uint8_t *base, const hir_weight *w, int64_t n, int64_t k) {
    int64_t N = w->type.dim[0], K = w->type.rank > 1 ? w->type.dim[1] : 1;
    cr_assert(n < (N + 15) / 16 * 16);
    int64_t i = n * K + k;
    if (w->layout == HIR_LAYOUT_PANEL && w->type.dtype == HIR_BF16)
        i = ((n / 16) * ((K + 1) / 2) + k / 2) * 32 + n % 16 * 2 + k % 2;
    else if (w->layout == HIR_LAYOUT_PANEL)
        i = ((n / 16) * K + k) * 16 + n % 16;
    else if (w->layout == HIR_LAYOUT_NARROW)
        i = ((n / 8) * (K / 2) + k / 2) * 16 + n % 8 * 2 + k % 2;
    uint16_t half;
    float x;
    if (w->type.dtype != HIR_F32) {
        memcpy(&half, base + 2 * i, 2);
        return w->type.dtype == HIR_BF16 ? hd_bf16_to_f32(half) : hd_f16_to_f32(half);
    }
    memcpy(&x, base + 4 * i, 4);
    return x;
}

static void check_weight(const uint8_t *base, const hir_weight *w) {
    int64_t N = w->type.dim[0], K = w->type.rank > 1 ? w->type.dim[1] : 1;
    for (int64_t n = 0; n < N; n++)
        for (int64_t k = 0; k < K; k++)
            cr_assert_eq(element(base, w, n, k), value_at((uint64_t)(n * K + k)), "%s [%ld, %ld]",
                         w->name, (long)n, (long)k);
    for (int64_t n = N; w->layout != HIR_LAYOUT_ROWS && n % hir_panel_rows(w->layout); n++)
        for (int64_t k = 0; k < K; k++)
            cr_assert_eq(element(base, w, n, k), 0, "rows beyond N are zero");
    for (int64_t n = 0; w->layout == HIR_LAYOUT_PANEL && w->type.dtype == HIR_BF16 && n < N; n++)
        cr_assert(K % 2 == 0 || element(base, w, n, K) == 0, "what fills the last pair is zero");
}

Test(weights, packed_file) {
    hd_tensors t = {0};
    hir_module *m = mixed_module(&t);
    hcg_program *p = program_of(m);
    hd_bytes file;
    cr_assert(hcg_pack(p, &diags, &t, in_folder("m.weights")));
    cr_assert(hd_map_file(arena, &diags, in_folder("m.weights"), &file));
    hrt_weights_header h;
    memcpy(&h, file.at, sizeof h);
    cr_expect_eq(memcmp(h.magic, HRT_WEIGHTS_MAGIC, 8), 0);
    cr_expect_eq(h.version, HRT_VERSION);
    cr_expect_eq(h.data_offset, 4096);
    cr_expect_eq(h.data_bytes, p->weights_bytes);
    cr_expect_eq(file.n, 4096 + p->weights_bytes);
    cr_expect_eq(memcmp(h.digest, p->digest, 16), 0);
    XXH128_canonical_t content;
    XXH128_canonicalFromHash(&content, XXH3_128bits(file.at + 4096, p->weights_bytes));
    cr_expect_eq(memcmp(h.content, content.digest, 16), 0);
    for (size_t i = sizeof h; i < 4096; i++)
        cr_assert_eq(file.at[i], 0);
    for (size_t i = 0; i < m->weights.n; i++)
        if (!m->weights.at[i].unused)
            check_weight(file.at + 4096 + p->weight_offsets.at[i], &m->weights.at[i]);
}

/* ---- numbers that cannot be stored ---------------------------------------------------------- */

typedef struct bad {
    hd_tensor_dtype from;
    hir_dtype to;
    hir_layout layout;
    double x;
    const char *says; /* NULL: it is stored */
} bad;

static void set(hd_tensor *t, uint64_t i, double x) {
    uint8_t *to = (uint8_t *)(uintptr_t)t->data + i * hd_tensor_dtype_bits(t->dtype) / 8;
    const uint16_t half = t->dtype == HD_T_F16 ? hd_f16_from_f64(x) : hd_bf16_from_f64(x);
    const float f = (float)x;
    const void *from = t->dtype == HD_T_F64   ? (const void *)&x
                       : t->dtype == HD_T_F32 ? (const void *)&f
                                              : (const void *)&half;
    memcpy(to, from, hd_tensor_dtype_bits(t->dtype) / 8);
}

/* The packer and the evaluator's source refuse the same numbers with the same words. */
static void check_bad(const bad *b) {
    hir_module *m = hir_module_new(arena, "m");
    hd_tensors t = {0};
    add(m, "w", b->to, b->layout, DIMS(19, 2100));
    add_tensor(&t, "w", b->from, DIMS(19, 2100));
    set(&t.list.at[0], 17 * 2100 + 2077, b->x); /* beyond the first panel and block */
    hcg_program *p = program_of(m);
    double *out = hd_new_array(arena, double, 19 * 2100);
    hd_diags_init(&diags, arena);
    const bool packed = hcg_pack(p, &diags, &t, in_folder("bad.weights"));
    cr_expect_eq(packed, !b->says, "%g as %s", b->x, hir_dtype_name(b->to));
    cr_expect_eq(hcg_weight_source(&t, m, 0, out, &diags), !b->says);
    if (!b->says) return;
    cr_expect_not(hd_exists(in_folder("bad.weights")));
    cr_assert_eq(diags.errors, 2);
    cr_assert_eq(diags.list.n, 1, "the second has the words and the place of the first");
    const hd_diag *g = &diags.list.at[0];
    cr_expect(strstr(hd_printf(arena, "%s %s", g->message, g->cause), b->says), "%s: %s",
              g->message, g->cause);
    cr_expect_str_eq(g->loc.file, "x.safetensors");
    cr_expect(g->hint);
}

Test(weights, numbers_that_are_not_finite_are_rejected) {
    static const hd_tensor_dtype from[] = {HD_T_F32, HD_T_BF16, HD_T_F16, HD_T_F64};
    static const hir_layout layouts[] = {HIR_LAYOUT_ROWS, HIR_LAYOUT_PANEL};
    for (int i = 0; i < 4; i++)
        for (int to = 0; to < 3; to++)
            for (int l = 0; l < 2; l++) {
                const hir_dtype dtype = to == 0 ? HIR_F32 : to == 1 ? HIR_BF16 : HIR_F16;
                check_bad(&(bad){from[i], dtype, layouts[l], NAN, "not a number at [17, 2077]"});
                check_bad(&(bad){from[i], dtype, layouts[l], INFINITY, "infinite at [17, 2077]"});
                check_bad(&(bad){from[i], dtype, layouts[l], -INFINITY, "minus infinity at [17"});
                check_bad(&(bad){from[i], dtype, layouts[l], 32768, NULL});
            }
    check_bad(&(bad){HD_T_F32, HIR_F32, HIR_LAYOUT_NARROW, NAN, "not a number"});
}

Test(weights, numbers_that_are_too_large_are_rejected) {
    check_bad(&(bad){HD_T_F32, HIR_F16, HIR_LAYOUT_PANEL, 1e6, "1e+06 at [17, 2077]"});
    check_bad(&(bad){HD_T_BF16, HIR_F16, HIR_LAYOUT_ROWS, -65536, "-65536 at [17, 2077]"});
    check_bad(&(bad){HD_T_F32, HIR_BF16, HIR_LAYOUT_ROWS, 3.4e38, "more than bf16 holds"});
    check_bad(&(bad){HD_T_F32, HIR_F32, HIR_LAYOUT_ROWS, 3.4e38, NULL});
    check_bad(&(bad){HD_T_F64, HIR_F32, HIR_LAYOUT_PANEL, 1e300, "1e+300 at [17, 2077]"});
}

/* Rows of two matrices times one vector, and a row times a number, in panels. */
Test(weights, made_of_matrices) {
    enum { K = 22 };
    static const uint32_t from[] = {0, 11, 14}, end[] = {11, 14, 15};
    hd_tensors t = {0};
    hir_module *m = hir_module_new(arena, "m");
    for (int i = 0; i < 2; i++) {
        add(m, i ? "v" : "w", HIR_F32, HIR_LAYOUT_ROWS, DIMS(i ? 3 : 11, K));
        add_tensor(&t, i ? "v" : "w", i ? HD_T_BF16 : HD_T_F64, DIMS(i ? 3 : 11, K));
    }
    add(m, "g", HIR_F32, HIR_LAYOUT_ROWS, DIMS(K));
    add_tensor(&t, "g", HD_T_F16, DIMS(K));
    add(m, "s", HIR_F32, HIR_LAYOUT_ROWS, DIMS(1));
    add_tensor(&t, "s", HD_T_F32, DIMS(1));
    const hir_derived_row parts[] = {{2, (hir_derived_factor[]){{.name = "w"}, {.name = "g"}}},
                                     {2, (hir_derived_factor[]){{.name = "g"}, {.name = "v"}}},
                                     {2, (hir_derived_factor[]){{.name = "g"}, {.name = "s"}}}};
    int64_t dims[] = {15, K};
    uint32_t made =
        hir_add_derived_weight(m, "made", hir_make_type(HIR_F32, 2, dims), parts, 3, HD_NOWHERE);
    m->weights.at[made].layout = HIR_LAYOUT_NARROW;
    cr_assert(hir_verify(m, &diags));
    hcg_program *p = program_of(m);
    hd_bytes file;
    cr_assert(hcg_pack(p, &diags, &t, in_folder("made.weights")));
    cr_assert(hd_map_file(arena, &diags, in_folder("made.weights"), &file));
    const uint8_t *base = file.at + 4096 + p->weight_offsets.at[made];
    for (uint32_t part = 0; part < 3; part++)
        for (uint32_t n = from[part]; n < end[part]; n++)
            for (uint32_t k = 0; k < K; k++) {
                const float other = part == 2 ? value_at(0) : value_at((n - from[part]) * K + k);
                cr_assert_eq(element(base, &m->weights.at[made], n, k), value_at(k) * other);
            }

    set(&t.list.at[0], 3, INFINITY); /* of g: it is named, and not what is made of it */
    cr_expect_not(hcg_pack(p, &diags, &t, in_folder("made.weights")));
    cr_expect(find_message("weight 'g' is infinite at [3]"));
}

/* What the packer makes of functions and of elements is what the evaluator makes, rounded once:
 * rows of a table, and parts of a vector. */
Test(weights, made_by_functions) {
    hd_tensors t = {0};
    hir_module *m = hir_module_new(arena, "m");
    add(m, "a", HIR_F32, HIR_LAYOUT_ROWS, DIMS(5));
    add_tensor(&t, "a", HD_T_BF16, DIMS(5));
    add(m, "b", HIR_F32, HIR_LAYOUT_ROWS, DIMS(1, 7));
    add_tensor(&t, "b", HD_T_F64, DIMS(1, 7));
    const hir_derived_row parts[] = {{1, (hir_derived_factor[]){{"a", HIR_DERIVED_SOFTMAX, 2, 3}}},
                                     {2, (hir_derived_factor[]){{"b", HIR_DERIVED_SIGMOID, 0, 3},
                                                                {"a", HIR_DERIVED_SOFTMAX, 4, 1}}}};
    const hir_derived_row whole[] = {{1, (hir_derived_factor[]){{"b", HIR_DERIVED_AS_IS, 6, 1}}},
                                     {1, (hir_derived_factor[]){{"a", HIR_DERIVED_SOFTMAX, 0, 0}}}};
    const uint32_t table = hir_add_derived_weight(
        m, "t", hir_make_type(HIR_F32, 2, (int64_t[]){2, 3}), parts, 2, HD_NOWHERE);
    const uint32_t vector = hir_add_derived_weight(
        m, "v", hir_make_type(HIR_F32, 1, (int64_t[]){6}), whole, 2, HD_NOWHERE);
    cr_assert(hir_verify(m, &diags));
    double a[5], b[7];
    for (int i = 0; i < 7; i++) {
        b[i] = value_at((uint64_t)i);
        if (i < 5) a[i] = value_at((uint64_t)i);
    }
    hir_derive_elements(HIR_DERIVED_SOFTMAX, a, 5);
    const double last = b[6];
    hir_derive_elements(HIR_DERIVED_SIGMOID, b, 7);
    hcg_program *p = program_of(m);
    hd_bytes file;
    cr_assert(hcg_pack(p, &diags, &t, in_folder("functions.weights")));
    cr_assert(hd_map_file(arena, &diags, in_folder("functions.weights"), &file));
    const float *x = (const float *)(file.at + 4096 + p->weight_offsets.at[table]),
                *y = (const float *)(file.at + 4096 + p->weight_offsets.at[vector]);
    for (int i = 0; i < 3; i++) {
        cr_expect_eq(x[i], (float)a[2 + i]);
        cr_expect_eq(x[3 + i], (float)(b[i] * a[4]));
    }
    for (int i = 0; i < 6; i++)
        cr_expect_eq(y[i], (float)(i ? a[i - 1] : last));

    set(&t.list.at[0], 1, -INFINITY); /* of a: its softmax would be 0 there */
    cr_expect_not(hcg_pack(p, &diags, &t, in_folder("functions.weights")));
    cr_expect(find_message("weight 'a' is minus infinity at [1]"));
}

/* Also from one thread to several. */
Test(weights, packing_is_deterministic) {
    hd_tensors t = {0};
    hcg_program *p = program_of(mixed_module(&t));
    hd_bytes x, y;
    p->options.threads = 1;
    cr_assert(hcg_pack(p, &diags, &t, in_folder("x")));
    p->options.threads = 3;
    cr_assert(hcg_pack(p, &diags, &t, in_folder("y")));
    cr_assert(hd_map_file(arena, &diags, in_folder("x"), &x) &&
              hd_map_file(arena, &diags, in_folder("y"), &y));
    cr_assert_eq(x.n, y.n);
    cr_expect_eq(memcmp(x.at, y.at, x.n), 0);
}

Test(weights, packing_that_fails_leaves_nothing) {
    hd_tensors t = {0};
    hir_module *m = mixed_module(&t);
    hcg_program *p = program_of(m);
    cr_expect_not(hcg_pack(p, &diags, &t, "/dev/full"));
    cr_expect(find_message("No space left"));
    cr_expect_not(hcg_pack(p, &diags, &t, in_folder("none/x")));
    p->weight_offsets.at[1] = 0;
    cr_expect_not(hcg_pack(p, &diags, &t, in_folder("x")), "overlapping places");
    add(m, "more", HIR_F32, HIR_LAYOUT_ROWS, DIMS(2));
    cr_expect_not(hcg_pack(program_of(m), &diags, &t, in_folder("x")), "a missing weight");
    cr_expect_not(hd_exists(in_folder("x")));
    cr_expect_eq(diags.errors, 4);
}

Test(weights, packed_sizes) {
    static const struct {
        hir_dtype dtype;
        hir_layout layout;
        uint64_t bytes;
    } sizes[] = {
        {HIR_BF16, HIR_LAYOUT_ROWS, 1190},      {HIR_BF16, HIR_LAYOUT_PANEL, 2304},
        {HIR_F16, HIR_LAYOUT_PANEL, 2240},      {HIR_F32, HIR_LAYOUT_PANEL, 4480},
        {HIR_Q8, HIR_LAYOUT_PANEL, 4 * 544},    {HIR_Q4, HIR_LAYOUT_PANEL, 4 * 320},
        {HIR_MXFP4, HIR_LAYOUT_PANEL, 4 * 272}, {HIR_NVFP4, HIR_LAYOUT_PANEL, 4 * 288 + 2 * 64}};
    int64_t dims[] = {17, 35};
    uint64_t bytes;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        hir_weight w = {.type = hir_make_type(sizes[i].dtype, 2, dims), .layout = sizes[i].layout};
        cr_expect(hir_weight_bytes(&w, &bytes));
        cr_expect_eq(bytes, sizes[i].bytes, "%s: %lu", hir_dtype_name(sizes[i].dtype), bytes);
    }
    hir_weight narrow = {.type = hir_make_type(HIR_F32, 2, (int64_t[]){17, 36}),
                         .layout = HIR_LAYOUT_NARROW};
    cr_expect(hir_weight_bytes(&narrow, &bytes));
    cr_expect_eq(bytes, 24 * 36 * 4);
    int64_t huge[] = {INT32_MAX, INT32_MAX, INT32_MAX};
    hir_weight w = {.type = hir_make_type(HIR_F32, 3, huge)};
    cr_expect_not(hir_weight_bytes(&w, &bytes));
}

static uint64_t reported, of;
static void note_progress(void *context, const char *what, uint64_t done, uint64_t total) {
    (void)context;
    (void)what;
    reported = done;
    of = total;
}

Test(weights, packing_tells_how_far_it_is) {
    hd_tensors t = {0};
    hcg_program *p = program_of(mixed_module(&t));
    diags.progress = note_progress;
    cr_expect(hcg_pack(p, &diags, &t, in_folder("x")));
    cr_expect(reported == p->weights_bytes && of == reported);
}

/* ---- random checkpoints -------------------------------------------------------------------- */

static void expect_spread(const hd_tensor *x, double mean, double deviation) {
    double sum = 0, squares = 0, n = (double)x->elements;
    for (uint64_t j = 0; j < x->elements; j++) {
        const double v = hd_tensor_get(x, j) - mean;
        sum += v;
        squares += v * v;
    }
    cr_expect_leq(fabs(sum / n), 0.15 * deviation, "%s", x->name);
    cr_expect_leq(fabs(sqrt(squares / n) - deviation), 0.1 * deviation, "%s", x->name);
}

Test(weights, random_checkpoints_fit_their_module) {
    hd_tensors unneeded = {0}, t;
    hir_module *m = mixed_module(&unneeded);
    add(m, "big", HIR_F32, HIR_LAYOUT_ROWS, DIMS(100, 400));
    add(m, "x.bias", HIR_F32, HIR_LAYOUT_ROWS, DIMS(1000));
    add(m, "x.weight", HIR_F32, HIR_LAYOUT_ROWS, DIMS(1000));
    static const hd_tensor_dtype dtypes[] = {HD_T_F32, HD_T_BF16, HD_T_F16, HD_T_F64};
    for (int i = 0; i < 4; i++) {
        cr_assert(hcg_init_weights(m, &diags, 7, false, dtypes[i], in_folder("x.safetensors")));
        cr_assert(hd_safetensors_open(arena, &diags, in_folder("x.safetensors"), &t));
        cr_expect(hcg_check_weights(m, &diags, &t));
        cr_expect(hd_tensors_find(&t, "unused"), "unused weights are there too");
        cr_expect_eq(t.list.at[0].dtype, dtypes[i]);
    }
    static const struct {
        const char *name;
        double mean, deviation, drawn; /* as training begins, and where all are drawn */
    } expected[] = {{"big", 0, 1 / 20.0, 1 / 20.0}, {"x.bias", 0, 0, 0.1}, {"x.weight", 1, 0, 0.1}};
    for (int i = 0; i < 6; i++) {
        const bool all = i >= 3;
        const char *path = in_folder(all ? "all.safetensors" : "begun.safetensors");
        cr_assert(hcg_init_weights(m, &diags, 7, all, HD_T_F32, path));
        cr_assert(hd_safetensors_open(arena, &diags, path, &t));
        expect_spread(hd_tensors_find(&t, expected[i % 3].name), expected[i % 3].mean,
                      all ? expected[i % 3].drawn : expected[i % 3].deviation);
    }
}

Test(weights, a_tensor_begins_as_in_the_checkpoint) {
    hd_tensors unneeded = {0}, t;
    hir_module *m = mixed_module(&unneeded);
    static const double numbers[] = {1, 0, -0.1};
    add(m, "list", HIR_F32, HIR_LAYOUT_ROWS, DIMS(3));
    m->weights.at[m->weights.n - 1].init = (hir_init){.n = 3, .numbers = numbers};
    cr_assert(hcg_init_weights(m, &diags, 3, false, HD_T_F32, in_folder("x.safetensors")));
    cr_assert(hd_safetensors_open(arena, &diags, in_folder("x.safetensors"), &t));
    const float *list = (const float *)hd_tensors_find(&t, "list")->data;
    for (int i = 0; i < 3; i++)
        cr_expect_eq(list[i], (float)numbers[i]);
    for (size_t i = 0; i < m->weights.n; i++) {
        const hir_weight *w = &m->weights.at[i];
        const hd_tensor *stored = hd_tensors_find(&t, w->name);
        if (hir_is_derived(w) || !stored) continue;
        float *begun = hd_new_array(arena, float, stored->elements);
        hcg_begin_weight(w, 3, begun);
        cr_expect_eq(memcmp(begun, stored->data, stored->bytes), 0, "%s", w->name);
    }
}

Test(weights, seeds_decide_random_checkpoints) {
    hd_tensors unneeded = {0};
    hir_module *m = mixed_module(&unneeded);
    hd_bytes file[3];
    for (uint64_t i = 0; i < 3; i++) {
        char *path = in_folder(hd_printf(arena, "%d.safetensors", (int)i));
        cr_assert(hcg_init_weights(m, &diags, i / 2, false, HD_T_F32, path));
        cr_assert(hd_map_file(arena, &diags, path, &file[i]));
    }
    cr_expect_eq(memcmp(file[0].at, file[1].at, file[0].n), 0);
    cr_expect_neq(memcmp(file[0].at, file[2].at, file[0].n), 0);
    cr_expect_not(hcg_init_weights(m, &diags, 1, false, HD_T_I8, in_folder("x")));
    cr_expect_not(hcg_init_weights(m, &diags, 1, false, HD_T_F32, "/dev/full"));
    cr_expect_eq(diags.errors, 2);
}
