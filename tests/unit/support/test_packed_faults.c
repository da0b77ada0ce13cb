/* Quantised checkpoints that are refused: parts that are missing, of another shape or dtype, forms
 * that are not read, and tensors that contradict the config. Each is named. */
#include "tests/unit/codegen/weights/packed_fixture.h"

TestSuite(packed_faults, .init = open_arena, .fini = close_arena);

static void reject_with(const hd_tensors *t, const hd_quantisation *q, const char *part) {
    hd_tensors out;
    diags.errors = diags.list.n = 0;
    cr_assert_not(hd_unpack(arena, &diags, t, q, &out), "no fault: %s", part);
    cr_expect(diags.errors > 0);
    cr_expect(strstr(said(), part), "'%s' is not in:\n%s", part, said());
    cr_expect(strstr(said(), "x.safetensors") || q->given, "%s", said());
}

static void reject(const hd_tensors *t, const char *part) {
    reject_with(t, &no_config, part);
}

static void drop(hd_tensors *t, const char *name) {
    const hd_tensor *x = the(t, name);
    const size_t i = (size_t)(x - t->list.at);
    memmove(&t->list.at[i], &t->list.at[i + 1], (--t->list.n - i) * sizeof *x);
}

/* The tensor anew, of another dtype or shape. */
static void replace(hd_tensors *t, const char *name, hd_tensor_dtype dtype, size_t rank,
                    const int64_t *shape) {
    drop(t, name);
    put(t, name, dtype, rank, shape);
}

/* ---- good ones, to be spoilt --------------------------------------------------------------- */

static hd_tensors blocks(void) {
    hd_tensors t = {0};
    put_e4m3(&t, "m.weight", SHAPE(130, 300));
    put_f32(&t, "m.weight_scale_inv", SHAPE(2, 3));
    return t;
}

static hd_tensors lines(void) {
    hd_tensors t = {0};
    put_e4m3(&t, "x.w2_weight", SHAPE(2, 5, 64));
    put_e8m0(&t, "x.w2_weight_scale", HD_T_U8, SHAPE(2, 5, 2));
    return t;
}

static hd_tensors fours(void) {
    hd_tensors t = {0};
    put_bytes(&t, "m.weight_packed", HD_T_U8, SHAPE(6, 48));
    put_e8m0(&t, "m.weight_scale", HD_T_U8, SHAPE(6, 3));
    return t;
}

static void set_f32(hd_tensors *t, const char *name, size_t i, float x) {
    ((float *)(uintptr_t)the(t, name)->data)[i] = x;
}

/* Of compressed-tensors, of ModelOpt, and a stack of Inkling's. */
static hd_tensors nvfp4(int form) {
    hd_tensors t = {0};
    const char *module = form == 2 ? "x.w2_weight" : "m.weight";
    const int64_t codes[] = {3, 6, 24}, scales[] = {3, 6, 3}, *skip = form == 2 ? codes : codes + 1;
    put_bytes(&t, form ? module : "m.weight_packed", HD_T_U8, form == 2 ? 3 : 2, skip);
    put_e4m3(&t, hd_printf(arena, "%s_scale", module), form == 2 ? 3 : 2,
             form == 2 ? scales : scales + 1);
    const char *factors[][2] = {{"m.weight_global_scale", NULL},
                                {"m.weight_scale_2", NULL},
                                {"x.w2_weight_amax", "x.w2_weight_outer_scale_denominator"}};
    for (int i = 0; i < 2 && factors[form][i]; i++) {
        put(&t, factors[form][i], HD_T_F32, form == 2, codes);
        for (uint64_t k = 0; k < the(&t, factors[form][i])->elements; k++)
            set_f32(&t, factors[form][i], k, 2);
    }
    return t;
}

/* MODULE.weight and MODULE.scale, two weights in a byte */
static hd_tensors pairs(void) {
    hd_tensors t = {0};
    put_bytes(&t, "m.weight", HD_T_I8, SHAPE(6, 32));
    put_e8m0(&t, "m.scale", HD_T_F8_E8M0, SHAPE(6, 2));
    return t;
}

static hd_tensors experts(void) {
    hd_tensors t = {0};
    put_bytes(&t, "x.down_proj_blocks", HD_T_U8, SHAPE(2, 6, 3, 16));
    put_e8m0(&t, "x.down_proj_scales", HD_T_U8, SHAPE(2, 6, 3));
    return t;
}

/* Ten rows of 64, in words of n. */
static hd_tensors integers_of(int64_t n) {
    hd_tensors t = {0};
    put_bytes(&t, "m.weight_packed", HD_T_I32, SHAPE(10, 64 / n));
    put_bf16(&t, "m.weight_scale", SHAPE(10, 2));
    put_bytes(&t, "m.weight_zero_point", HD_T_I32, SHAPE((10 + n - 1) / n, 2));
    int64_t *shape = (int64_t *)(void *)put(&t, "m.weight_shape", HD_T_I64, SHAPE(2));
    shape[0] = 10, shape[1] = 64;
    return t;
}

static hd_tensors integers(void) {
    return integers_of(8);
}

/* Eight outputs, 64 inputs, two groups. */
static hd_tensors plain_bytes(void) {
    hd_tensors t = {0};
    put_bytes(&t, "m.weight", HD_T_I8, SHAPE(8, 64));
    put_bf16(&t, "m.weight_scale", SHAPE(8, 2));
    put_bytes(&t, "m.weight_zero_point", HD_T_I8, SHAPE(8, 2));
    return t;
}

static hd_tensors gptq(void) {
    hd_tensors t = {0};
    put_bytes(&t, "m.qweight", HD_T_I32, SHAPE(8, 8));
    put_bytes(&t, "m.qzeros", HD_T_I32, SHAPE(2, 1));
    put_bf16(&t, "m.scales", SHAPE(2, 8));
    int32_t *order = (int32_t *)(void *)put(&t, "m.g_idx", HD_T_I32, SHAPE(64));
    for (int i = 0; i < 64; i++)
        order[i] = i % 2;
    return t;
}

static hd_tensors awq(void) {
    hd_tensors t = {0};
    put_bytes(&t, "m.qweight", HD_T_I32, SHAPE(64, 1));
    put_bytes(&t, "m.qzeros", HD_T_I32, SHAPE(2, 1));
    put_bf16(&t, "m.scales", SHAPE(2, 8));
    return t;
}

Test(packed_faults, the_good_ones_are_good) {
    hd_tensors good[] = {blocks(), lines(), fours(), experts(), integers(), integers_of(4)};
    for (int i = 0; i < 6; i++)
        cr_expect_eq(unpacked(&good[i]).list.n, 1);
}

/* ---- parts --------------------------------------------------------------------------------- */

Test(packed_faults, without_scales) {
    hd_tensors t = blocks();
    drop(&t, "m.weight_scale_inv");
    reject(&t, "tensor \"m.weight\" is quantised, and its scales are missing");
    t = lines();
    drop(&t, "x.w2_weight_scale");
    reject(&t, "tensor \"x.w2_weight\" is quantised, and its scales are missing");
    t = fours();
    drop(&t, "m.weight_scale");
    reject(&t, "they should be in \"m.weight_scale\"");
    t = pairs();
    drop(&t, "m.weight");
    reject(&t, "tensor \"m.scale\" belongs to a quantised tensor that is not there");
    put_bf16(&t, "m.weight", SHAPE(6, 64));
    reject(&t, "\"m.weight\" is BF16 [6, 64]");
    t = experts();
    drop(&t, "x.down_proj_scales");
    reject(&t, "they should be in \"x.down_proj_scales\"");
    t = integers();
    drop(&t, "m.weight_scale");
    reject(&t, "they should be in \"m.weight_scale\"");
    t = integers();
    drop(&t, "m.weight_shape");
    reject(&t, "they should be in \"m.weight_shape\"");
}

Test(packed_faults, without_codes) {
    hd_tensors t = blocks();
    replace(&t, "m.weight", HD_T_BF16, SHAPE(130, 300));
    reject(&t, "\"m.weight\" is BF16 [130, 300]");
    drop(&t, "m.weight");
    reject(&t, "tensor \"m.weight_scale_inv\" belongs to a quantised tensor that is not there");
    t = integers();
    drop(&t, "m.weight_packed");
    reject(&t, "\"m.weight_packed\" is missing");
    cr_expect_eq(diags.errors, 3, "scales, zero points, shape");
    put_bf16(&t, "m.weight", SHAPE(10, 64));
    reject(&t, "\"m.weight\" is BF16 [10, 64]");
}

Test(packed_faults, twice) {
    hd_tensors t = integers();
    put_bf16(&t, "m.weight", SHAPE(10, 64));
    reject(&t, "is the quantised form of a tensor that is there as well");
    t = blocks();
    put_f32(&t, "m.weight_scale", SHAPE(2, 3));
    reject(&t, "has scales twice");
    t = blocks();
    put_e8m0(&t, "m.scale", HD_T_F8_E8M0, SHAPE(2, 3));
    reject(&t, "has scales twice");
    t = pairs();
    replace(&t, "m.scale", HD_T_F8_E8M0, SHAPE(6, 3));
    reject(&t, "\"m.scale\" is F8_E8M0 [6, 3], not [6, 2]");
    replace(&t, "m.scale", HD_T_BF16, SHAPE(6, 2));
    reject(&t, "scales of MXFP4 are U8 or F8_E8M0");
    t = pairs();
    replace(&t, "m.weight", HD_T_I8, SHAPE(6, 2, 16));
    reject(&t, "packed weights are a matrix");
}

Test(packed_faults, shapes_of_scales) {
    hd_tensors t = blocks();
    replace(&t, "m.weight_scale_inv", HD_T_F32, SHAPE(2, 2));
    reject(&t, "tensor \"m.weight_scale_inv\" is F32 [2, 2], not [2, 3]");
    replace(&t, "m.weight_scale_inv", HD_T_F32, SHAPE(6));
    reject(&t, "is F32 [6], not [2, 3]");
    t = lines();
    replace(&t, "x.w2_weight_scale", HD_T_U8, SHAPE(3, 5, 2));
    reject(&t, "is U8 [3, 5, 2], not [2, 5, 2]");
    replace(&t, "x.w2_weight_scale", HD_T_U8, SHAPE(2, 5, 1)); /* no power of two is for a row */
    reject(&t, "is U8 [2, 5, 1], not [2, 5, 2]");
    t = fours();
    replace(&t, "m.weight_scale", HD_T_U8, SHAPE(6, 4));
    reject(&t, "is U8 [6, 4], not [6, 3]");
    t = experts();
    replace(&t, "x.down_proj_scales", HD_T_U8, SHAPE(2, 3, 6));
    reject(&t, "is U8 [2, 3, 6], not [2, 6, 3]");
    t = integers();
    replace(&t, "m.weight_scale", HD_T_BF16, SHAPE(9, 2));
    reject(&t, "is BF16 [9, 2], not [10, 2]");
    replace(&t, "m.weight_scale", HD_T_BF16, SHAPE(10, 3)); /* 64 columns in 3 groups */
    reject(&t, "is BF16 [10, 3], not [10, 1]");
}

Test(packed_faults, dtypes_of_scales) {
    hd_tensors t = blocks();
    replace(&t, "m.weight_scale_inv", HD_T_F64, SHAPE(2, 3));
    reject(&t, "tensor \"m.weight_scale_inv\" is F64 [2, 3]; scales of E4M3 are");
    t = fours();
    replace(&t, "m.weight_scale", HD_T_F32, SHAPE(6, 3));
    reject(&t, "scales of MXFP4 are U8");
    t = integers();
    replace(&t, "m.weight_scale", HD_T_U8, SHAPE(10, 2));
    reject(&t, "scales of integers are BF16, F16 or F32");
}

Test(packed_faults, shapes_of_codes) {
    hd_tensors t = {0};
    put_e4m3(&t, "m.weight", SHAPE(4));
    put_f32(&t, "m.weight_scale_inv", SHAPE(1, 1));
    reject(&t, "tensor \"m.weight\" is F8_E4M3 [4]");
    t = (hd_tensors){0};
    put_e4m3(&t, "m.weight", SHAPE(0, 4));
    put_f32(&t, "m.weight_scale_inv", SHAPE(0, 1));
    reject(&t, "tensor \"m.weight\" is F8_E4M3 [0, 4]");
    t = fours();
    replace(&t, "m.weight_packed", HD_T_U8, SHAPE(6, 40));
    reject(&t, "has rows of 80 weights, which is no multiple of 32");
    replace(&t, "m.weight_packed", HD_T_I8, SHAPE(6, 48));
    reject(&t, "is I8 [6, 48], which no quantised form that is read here has");
    t = experts();
    replace(&t, "x.down_proj_blocks", HD_T_U8, SHAPE(2, 6, 48));
    reject(&t, "is U8 [2, 6, 48]; blocks of MXFP4 are");
    replace(&t, "x.down_proj_blocks", HD_T_U8, SHAPE(2, 6, 6, 8));
    reject(&t, "is U8 [2, 6, 6, 8]; blocks of MXFP4 are");
}

static void set_shape(hd_tensors *t, int64_t rows, int64_t cols) {
    int64_t *shape = (int64_t *)(uintptr_t)the(t, "m.weight_shape")->data;
    shape[0] = rows, shape[1] = cols;
}

Test(packed_faults, shapes_in_tensors) {
    static const int64_t bad[][2] = {{11, 64}, {10, 65},  {10, 56},
                                     {10, 0},  {-10, 64}, {10, INT64_MAX}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        hd_tensors t = integers();
        set_shape(&t, bad[i][0], bad[i][1]);
        reject(&t, "is I32 [10, 8], which does not go with its shape");
    }
    hd_tensors t = integers(); /* as 16 bits, two in a word, would have it */
    set_shape(&t, 10, 16);
    reject(&t, "integers of other widths than 4 and 8 bits are not read");
    t = integers_of(4);
    set_shape(&t, 10, 65);
    reject(&t, "is I32 [10, 16], which does not go with its shape");
    t = integers();
    replace(&t, "m.weight_shape", HD_T_I64, SHAPE(3));
    reject(&t, "'weight_shape' is I64 [3], not I64 [2]");
    t = fours();
    put(&t, "m.weight_shape", HD_T_I64, SHAPE(2));
    set_shape(&t, 6, 48);
    reject(&t, "contradicts the shape of the codes");
    set_shape(&t, 6, 96);
    cr_expect_eq(unpacked(&t).list.n, 1);
}

Test(packed_faults, zero_points) {
    hd_tensors t = integers();
    replace(&t, "m.weight_zero_point", HD_T_I32, SHAPE(10, 2));
    reject(&t, "tensor \"m.weight_zero_point\" is I32 [10, 2], not I32 [2, 2]");
    replace(&t, "m.weight_zero_point", HD_T_BF16, SHAPE(2, 2));
    reject(&t, "is BF16 [2, 2], not I32 [2, 2]");
    t = integers_of(4); /* those of 4 bits */
    replace(&t, "m.weight_zero_point", HD_T_I32, SHAPE(2, 2));
    reject(&t, "is I32 [2, 2], not I32 [3, 2]");
    cr_expect(strstr(said(), "packed along the rows, 4 in a word"), "%s", said());
}

Test(packed_faults, forms_that_are_not_read) {
    hd_tensors t = integers();
    put(&t, "m.weight_g_idx", HD_T_I64, SHAPE(64));
    reject(&t, "is I64 [64], not I32 [64]: the group of each column");
}

/* ---- NVFP4 --------------------------------------------------------------------------------- */

Test(packed_faults, nvfp4_of_compressed_tensors) {
    hd_tensors t = nvfp4(0);
    drop(&t, "m.weight_scale");
    reject(&t, "they should be in \"m.weight_scale\"");
    t = nvfp4(0);
    drop(&t, "m.weight_global_scale");
    reject(&t, "they should be in \"m.weight_global_scale\"");
    t = nvfp4(0);
    drop(&t, "m.weight_packed");
    reject(&t, "tensor \"m.weight_global_scale\" belongs to a quantised tensor that is not there");
    t = nvfp4(0);
    put_bf16(&t, "m.weight", SHAPE(6, 48));
    reject(&t, "is the quantised form of a tensor that is there as well");
    t = nvfp4(0);
    replace(&t, "m.weight_scale", HD_T_U8, SHAPE(6, 3));
    reject(&t, "\"m.weight_scale\" is U8 [6, 3]; scales of NVFP4 are F8_E4M3");
    replace(&t, "m.weight_scale", HD_T_F8_E4M3, SHAPE(18));
    reject(&t, "\"m.weight_scale\" is F8_E4M3 [18], not [6, 3]");
    replace(&t, "m.weight_scale", HD_T_F8_E4M3, SHAPE(128, 4)); /* for a GPU */
    reject(&t, "is F8_E4M3 [128, 4], not [6, 3]");
    t = nvfp4(0);
    replace(&t, "m.weight_packed", HD_T_U8, SHAPE(6, 20));
    reject(&t, "has rows of 40 weights, which is no multiple of 16");
    replace(&t, "m.weight_packed", HD_T_U8, SHAPE(144));
    reject(&t, "is U8 [144]; what is read quantised are matrices");
    replace(&t, "m.weight_packed", HD_T_I8, SHAPE(6, 24));
    reject(&t, "which no quantised form that is read here has");
    t = nvfp4(0);
    put(&t, "m.weight_shape", HD_T_I64, SHAPE(2));
    set_shape(&t, 6, 24);
    reject(&t, "contradicts the shape of the codes");
    set_shape(&t, 6, 48);
    cr_expect_eq(unpacked(&t).list.n, 1);
}

Test(packed_faults, nvfp4_of_modelopt) {
    hd_tensors t = nvfp4(1);
    drop(&t, "m.weight_scale");
    reject(&t, "they should be in \"m.weight_scale\"");
    t = nvfp4(1);
    drop(&t, "m.weight_scale_2");
    reject(&t, "they should be in \"m.weight_scale_2\"");
    t = nvfp4(1);
    replace(&t, "m.weight", HD_T_BF16, SHAPE(6, 48));
    reject(&t, "\"m.weight\" is BF16 [6, 48]");
    t = nvfp4(1);
    replace(&t, "m.weight_scale_2", HD_T_BF16, SHAPE(1));
    reject(&t, "\"m.weight_scale_2\" is BF16 [1], not F32 with one number");
    replace(&t, "m.weight_scale_2", HD_T_F32, SHAPE(6));
    reject(&t, "is F32 [6], not F32 with one number");
    static const char *const foreign[] = {"pre_quant_scale", "svdquant_lora_a", "svdquant_lora_b",
                                          "weight_zero_point", "weight_g_idx"};
    for (int i = 0; i < 5; i++) {
        t = nvfp4(1);
        put_bf16(&t, hd_printf(arena, "m.%s", foreign[i]), SHAPE(6));
        reject(&t, "belongs to a weight in NVFP4, where it cannot be honoured");
    }
    t = nvfp4(1);
    put_f32(&t, "m.input_scale", 0, NULL);
    put_bf16(&t, "n.pre_quant_scale", SHAPE(6)); /* of a module that is not quantised */
    cr_expect_eq(unpacked(&t).list.n, 2);
}

Test(packed_faults, nvfp4_of_experts) {
    hd_tensors t = nvfp4(2);
    drop(&t, "x.w2_weight_scale");
    reject(&t, "they should be in \"x.w2_weight_scale\"");
    t = nvfp4(2);
    drop(&t, "x.w2_weight_amax");
    reject(&t, "they should be in \"x.w2_weight_amax\"");
    t = nvfp4(2);
    drop(&t, "x.w2_weight_outer_scale_denominator");
    reject(&t, "they should be in \"x.w2_weight_outer_scale_denominator\"");
    t = nvfp4(2);
    drop(&t, "x.w2_weight");
    reject(&t, "tensor \"x.w2_weight_amax\" belongs to a quantised tensor that is not there");
    t = nvfp4(2);
    replace(&t, "x.w2_weight_amax", HD_T_F32, SHAPE(2));
    reject(&t, "is F32 [2], not F32 with one number, or one for each matrix");
    replace(&t, "x.w2_weight_amax", HD_T_F32, SHAPE(3, 1));
    reject(&t, "is F32 [3, 1], not F32 with one number");
    t = nvfp4(2);
    replace(&t, "x.w2_weight_scale", HD_T_F8_E4M3, SHAPE(3, 6, 2));
    reject(&t, "is F8_E4M3 [3, 6, 2], not [3, 6, 3]");
}

/* Factors that are none; scales that are none are found when the weight is read (test_packed.c). */
Test(packed_faults, nvfp4_factors) {
    static const float bad[] = {-1, NAN, INFINITY, -INFINITY, 0};
    for (int i = 0; i < 5; i++) {
        hd_tensors t = nvfp4(0);
        set_f32(&t, "m.weight_global_scale", 0, bad[i]);
        reject(&t, "and NVFP4 is divided by a positive number");
        t = nvfp4(2);
        set_f32(&t, "x.w2_weight_outer_scale_denominator", 2, bad[i]);
        reject(&t, "and NVFP4 is divided by a positive number");
        if (bad[i] == 0) continue; /* a matrix of zeros */
        t = nvfp4(1);
        set_f32(&t, "m.weight_scale_2", 0, bad[i]);
        reject(&t, "and NVFP4 is multiplied by a positive number");
        t = nvfp4(2);
        set_f32(&t, "x.w2_weight_amax", 1, bad[i]);
        reject(&t, "and NVFP4 is multiplied by a positive number");
    }
}

/* ---- against the config -------------------------------------------------------------------- */

static hd_quantisation says(hd_packing packing, hd_tile tile, const char *target,
                            const char *ignored) {
    hd_quantisation q = {.given = true, .loc = {.file = "config.json", .line = 3}};
    hd_quant_group g = {.format = "some-format", .packing = packing, .tile_known = true};
    const char *why;
    g.tile = tile;
    g.symmetric = g.targets_known = true;
    q.ignore_loc = (hd_loc){.file = "config.json", .line = 9};
    q.ignore_field = "ignore";
    if (target) cr_assert(hd_add_modules(arena, &g.targets, target, &why));
    if (ignored) cr_assert(hd_add_modules(arena, &q.ignore, ignored, &why));
    hd_push(arena, &q.groups, g);
    return q;
}

static void accept_with(const hd_tensors *t, hd_quantisation q) {
    hd_tensors out;
    cr_expect(hd_unpack(arena, &diags, t, &q, &out), "%s", said());
}

Test(packed_faults, another_form_than_the_config_says) {
    const hd_tensors t = blocks();
    const hd_quantisation q = says(HD_PACKING_INT4, (hd_tile){1, 32}, "Linear", NULL);
    reject_with(&t, &q,
                "tensor \"m.weight\" is quantised (e4m3), of which the config does not tell");
    cr_expect(strstr(said(), "config.json:3"), "%s", said());
    cr_expect(strstr(said(), "it has some-format for \"Linear\""), "%s", said());
}

/* A table whose rows are looked up has powers of two for lines of 32 beside matrices in tiles. */
Test(packed_faults, lines_beside_tiles) {
    const hd_quantisation q = says(HD_PACKING_E4M3, (hd_tile){32, 32}, "Linear", NULL);
    static const int64_t lines_of[] = {70, 2}, tiles_of[] = {3, 2};
    for (int in_lines = 0; in_lines < 2; in_lines++) {
        hd_tensors t = {0}, out;
        put_e4m3(&t, "m.weight", SHAPE(70, 64));
        put_e8m0(&t, "m.scale", HD_T_F8_E8M0, 2, in_lines ? lines_of : tiles_of);
        cr_assert(hd_unpack(arena, &diags, &t, &q, &out), "%s", said());
        cr_expect_eq(the(&out, "m.weight")->packed->tile.rows, in_lines ? 1 : 32);
        cr_expect_eq(the(&out, "m.weight")->packed->tile.cols, 32);
    }
    hd_tensors t = {0};
    put_e4m3(&t, "m.weight", SHAPE(70, 64));
    put_f32(&t, "m.weight_scale_inv", SHAPE(70, 2));
    reject_with(&t, &q, "\"m.weight_scale_inv\" is F32 [70, 2], not [3, 2]");
}

Test(packed_faults, another_width_than_the_config_says) {
    hd_tensors t = integers();
    hd_quantisation q = says(HD_PACKING_INT8, (hd_tile){1, 32}, "Linear", NULL);
    reject_with(&t, &q, "tensor \"m.weight_packed\" is quantised (int4), of which the config");
    t = integers_of(4);
    drop(&t, "m.weight_zero_point");
    accept_with(&t, q);
    q = says(HD_PACKING_INT4, (hd_tile){1, 32}, "Linear", NULL);
    reject_with(&t, &q, "is quantised (int8), of which the config does not tell");
}

Test(packed_faults, modules_that_the_config_leaves_out) {
    const hd_tensors t = fours();
    const hd_tile group = {1, 32};
    accept_with(&t, says(HD_PACKING_MXFP4, group, NULL, NULL));
    accept_with(&t, says(HD_PACKING_MXFP4, group, "Linear", "lm_head"));
    accept_with(&t, says(HD_PACKING_MXFP4, group, "m", "re:x.*"));
    hd_quantisation q = says(HD_PACKING_MXFP4, group, "Linear", "m");
    reject_with(&t, &q, "is quantised (mxfp4), and the config says that it is not");
    cr_expect(strstr(said(), "config.json:9"), "%s", said());
    q = says(HD_PACKING_MXFP4, group, "re:.*experts", NULL);
    reject_with(&t, &q, "of which the config does not tell");
}

Test(packed_faults, other_sizes_than_the_config_says) {
    hd_tensors t = blocks();
    hd_quantisation q = says(HD_PACKING_E4M3, (hd_tile){64, 128}, NULL, NULL);
    reject_with(&t, &q, "is F32 [2, 3], not [3, 3]");
    q = says(HD_PACKING_E4M3, (hd_tile){128, 100}, NULL, NULL);
    accept_with(&t, q); /* other tiles of as many scales */
    t = integers();
    drop(&t, "m.weight_zero_point");
    accept_with(&t, says(HD_PACKING_INT4, (hd_tile){1, 32}, NULL, NULL));
    q = says(HD_PACKING_INT4, (hd_tile){1, 16}, NULL, NULL);
    reject_with(&t, &q, "is BF16 [10, 2], not [10, 4]");
    q = says(HD_PACKING_INT4, (hd_tile){1, 48}, NULL, NULL);
    reject_with(&t, &q, "has rows of 64 weights, no multiple of the groups of 48");
    q = says(HD_PACKING_INT4, (hd_tile){1, 0}, NULL, NULL); /* by channel */
    reject_with(&t, &q, "is BF16 [10, 2], not [10, 1]");
}

Test(packed_faults, other_zero_points_than_the_config_says) {
    hd_tensors t = integers();
    hd_quantisation q = says(HD_PACKING_INT4, (hd_tile){1, 32}, NULL, NULL);
    reject_with(&t, &q, "holds zero points, and the config says 'symmetric'");
    q.groups.at[0].symmetric = false;
    accept_with(&t, q);
    drop(&t, "m.weight_zero_point");
    reject_with(&t, &q, "tensor \"m.weight_packed\" has no zero points");
}

/* ---- int-quantized, GPTQ, AWQ --------------------------------------------------------------- */

Test(packed_faults, bytes) {
    const hd_tile tile = {1, 32};
    hd_quantisation q = says(HD_PACKING_PLAIN8, tile, "Linear", NULL);
    hd_tensors t = plain_bytes();
    cr_expect_eq(unpacked(&t).list.n, 1);
    reject_with(&t, &q, "holds zero points, and the config says 'symmetric'");
    q.groups.at[0].symmetric = false;
    accept_with(&t, q);
    drop(&t, "m.weight_zero_point");
    reject_with(&t, &q, "tensor \"m.weight\" has no zero points");
    q.groups.at[0].symmetric = true;
    accept_with(&t, q);
    q.groups.at[0].tile = (hd_tile){1, 0};
    reject_with(&t, &q, "is BF16 [8, 2], not [8, 1]");
    q = says(HD_PACKING_INT8, tile, "Linear", NULL);
    reject_with(&t, &q, "is quantised (int8 in bytes), of which the config does not tell");
    q = says(HD_PACKING_PLAIN8, tile, "Linear", "m");
    reject_with(&t, &q, "and the config says that it is not");
    drop(&t, "m.weight_scale");
    q = says(HD_PACKING_PLAIN8, tile, "Linear", NULL);
    reject_with(&t, &q, "they should be in \"m.weight_scale\"");
    t = plain_bytes();
    replace(&t, "m.weight_zero_point", HD_T_I32, SHAPE(1, 2));
    reject(&t, "is I32 [1, 2], not I8 and as many as the scales, BF16 [8, 2]");
    t = plain_bytes();
    replace(&t, "m.weight_scale", HD_T_U8, SHAPE(8, 2));
    reject(&t, "is U8 [8, 2]; scales of integers are BF16, F16 or F32");
    t = plain_bytes();
    replace(&t, "m.weight", HD_T_I8, SHAPE(2, 8, 64));
    reject(&t, "what is read quantised so are matrices");
    t = plain_bytes();
    replace(&t, "m.weight_scale", HD_T_BF16, SHAPE(8, 3));
    reject(&t, "is BF16 [8, 3], not [8, 1]");
}

Test(packed_faults, orders) {
    const hd_quantisation q = says(HD_PACKING_GPTQ4, (hd_tile){1, 32}, NULL, NULL);
    hd_tensors t = gptq();
    accept_with(&t, q);
    replace(&t, "m.g_idx", HD_T_I32, SHAPE(63));
    reject_with(&t, &q, "is I32 [63], not I32 [64]: the group of each column");
    t = gptq();
    ((int32_t *)(uintptr_t)the(&t, "m.g_idx")->data)[5] = 2;
    reject_with(&t, &q, "has group 2 for column 5, and there are 2");
    ((int32_t *)(uintptr_t)the(&t, "m.g_idx")->data)[5] = -1;
    reject_with(&t, &q, "has group -1 for column 5");
    drop(&t, "m.g_idx");
    accept_with(&t, q);
    drop(&t, "m.qweight");
    reject_with(&t, &q, "tensor \"m.qzeros\" belongs to a quantised tensor that is not there");
}

Test(packed_faults, gptq) {
    hd_quantisation q = says(HD_PACKING_GPTQ4, (hd_tile){1, 32}, "Linear", NULL);
    hd_tensors t = gptq();
    reject(&t, "is of GPTQ, and there is no config that says how its zero points are stored");
    drop(&t, "m.qzeros");
    reject_with(&t, &q, "its zero points are missing");
    t = gptq();
    drop(&t, "m.scales");
    reject_with(&t, &q, "they should be in \"m.scales\"");
    t = gptq();
    replace(&t, "m.qzeros", HD_T_I32, SHAPE(2, 2));
    reject_with(&t, &q, "is I32 [2, 2], not I32 [2, 1]");
    t = gptq();
    replace(&t, "m.scales", HD_T_BF16, SHAPE(8, 2));
    reject_with(&t, &q, "is BF16 [8, 2], not [2, 8]");
    t = gptq();
    replace(&t, "m.qweight", HD_T_I32, SHAPE(8, 12));
    reject_with(&t, &q, "has 12 outputs, no multiple of the 8 zero points of a word");
    t = gptq();
    replace(&t, "m.qweight", HD_T_F32, SHAPE(8, 8));
    reject_with(&t, &q, "is F32 [8, 8], which no quantised form that is read here has");
    t = gptq();
    put_bf16(&t, "m.weight", SHAPE(8, 64));
    reject_with(&t, &q, "is the quantised form of a tensor that is there as well");
    t = gptq();
    q = says(HD_PACKING_GPTQ4, (hd_tile){1, 16}, NULL, NULL);
    reject_with(&t, &q, "is BF16 [2, 8], not [4, 8]");
    q = says(HD_PACKING_GPTQ8, (hd_tile){1, 32}, NULL, NULL); /* half as many inputs */
    reject_with(&t, &q, "not [1, 8]");
    q = says(HD_PACKING_INT4, (hd_tile){1, 32}, NULL, NULL);
    reject_with(&t, &q, "is quantised (GPTQ int4), of which the config does not tell");
}

Test(packed_faults, awq) {
    hd_quantisation q = says(HD_PACKING_AWQ, (hd_tile){1, 32}, "Linear", NULL);
    hd_tensors t = awq();
    cr_expect_eq(unpacked(&t).list.n, 1);
    accept_with(&t, q);
    q = says(HD_PACKING_GPTQ4, (hd_tile){1, 32}, "Linear", NULL);
    reject_with(&t, &q, "has 1 outputs, no multiple of the 8");
    q = says(HD_PACKING_E4M3, (hd_tile){1, 32}, "Linear", NULL);
    reject_with(&t, &q, "is quantised (AWQ int4), of which the config does not tell");
    q = says(HD_PACKING_AWQ, (hd_tile){1, 32}, "Linear", "m");
    reject_with(&t, &q, "and the config says that it is not");
}

/* The tensors decide: a config that speaks of more is told, not obeyed. */
Test(packed_faults, a_config_without_quantised_tensors) {
    hd_tensors t = {0};
    put_bf16(&t, "m.weight", SHAPE(3, 4));
    accept_with(&t, says(HD_PACKING_INT4, (hd_tile){1, 32}, NULL, NULL));
    cr_expect(strstr(said(), "warning: the config says that weights are quantised"), "%s", said());
}

/* ---- names of modules ---------------------------------------------------------------------- */

static bool matches(const char *pattern, const char *module) {
    hd_module_list l = {0};
    const char *why = NULL;
    cr_assert(hd_add_modules(arena, &l, pattern, &why), "%s: %s", pattern, why);
    return hd_find_modules(&l, module) != NULL;
}

Test(packed_faults, patterns) {
    static const struct {
        const char *pattern, *module;
        bool matches;
    } cases[] = {
        {"lm_head", "lm_head", true},
        {"lm_head", "language_model.lm_head", true},
        {"lm_head", "my_lm_head", false},
        {"model.layers.0", "model.layers.0.mlp.gate", true},
        {"model.layers.1", "model.layers.10.mlp.gate", false},
        {"gate", "model.layers.0.mlp.gate_proj", false},
        {"mlp.gate", "model.layers.0.mlp.gate", true},
        {"model.layers.*.self_attn", "model.layers.12.self_attn.q_proj", true},
        {"model.layers.*.self_attn", "model.layers.12.mlp.experts", false},
        {"model.layers.*.mlp.router", "model.layers.3.mlp.router", true},
        {"Linear", "anything.at.all", false}, /* a class, which no name says */
        {"re:.*self_attn.*", "language_model.model.layers.1.self_attn.q_proj", true},
        {"re:.*mlp\\.(gate|up|gate_up|down)_proj.*", "model.layers.0.mlp.gate_up_proj", true},
        {"re:.*mlp\\.(gate|up|gate_up|down)_proj.*", "model.layers.0.mlpXup_proj", false},
        {"re:lm_head", "lm_head_2", true}, /* match() begins at the beginning ... */
        {"re:lm_head$", "lm_head_2", false},
        {"re:head", "lm_head", false},
        {"re:model\\.layers\\.\\d+\\.mlp\\.gate$", "model.layers.17.mlp.gate", true},
        {"re:(?:a|b)+?c", "ababc", true},
        {"re:[\\w.]+_proj", "layers.0.q_proj", true},
        {"re:[^.]+$", "a.b", false},
        {"re:a\\-b\\'c", "a-b'c", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_expect_eq(matches(cases[i].pattern, cases[i].module), cases[i].matches, "%s, %s",
                     cases[i].pattern, cases[i].module);
}

Test(packed_faults, patterns_that_are_not_read) {
    static const char *const bad[] = {
        "re:(?!.*mlp).*", "re:(?<=x)y", "re:(?i)lm", "re:a{2,3}", "re:(a)\\1", "re:\\bx", "re:[",
        "re:[a",          "re:(a",      "re:a++b",   "re:[[:x]",  "re:[\\]]",  "re:\\"};
    hd_module_list l = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *why = NULL;
        cr_expect_not(hd_add_modules(arena, &l, bad[i], &why), "%s", bad[i]);
        cr_expect(why, "%s", bad[i]);
    }
    char *longest = hd_alloc(arena, 2000, 1);
    memcpy(memset(longest, 'a', 1500), "re:", 3);
    const char *why = NULL;
    cr_expect_not(hd_add_modules(arena, &l, longest, &why));
    cr_expect_eq(l.list.n, 0);
}
