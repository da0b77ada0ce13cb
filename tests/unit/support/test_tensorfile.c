/* Tensor files: good ones read back exactly, and every way in which one may lie is named. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/halves.h"
#include "support/tensorfile.h"

#define FOLDER "/tmp/hadal-tensor-XXXXXX"
#include "tests/unit/folder_fixture.h"

TestSuite(tensorfile, .init = open_folder, .fini = close_folder);

static char *put(const char *name, const void *data, size_t n) {
    char *path = in_folder(name);
    cr_assert(hd_write_file(arena, &diags, path, data, n));
    return path;
}

/* A safetensors file of this header and `zeros` bytes of data. */
static char *put_tensors(const char *name, const char *header, size_t zeros) {
    size_t n = strlen(header);
    char *file = hd_alloc(arena, 8 + n + zeros, 1);
    for (int i = 0; i < 8; i++)
        file[i] = (char)((uint64_t)n >> (8 * i));
    memcpy(file + 8, header, n);
    return put(name, file, 8 + n + zeros);
}

static bool some_error_has(const char *part) {
    for (size_t i = 0; i < diags.list.n; i++)
        if (diags.list.at[i].severity == HD_ERROR && strstr(diags.list.at[i].message, part))
            return true;
    return false;
}

static void expect_rejected(const char *path, const char *part) {
    hd_tensors t;
    cr_expect_not(hd_safetensors_open(arena, &diags, path, &t), "accepted, expected: %s", part);
    cr_expect(some_error_has(part), "no error has '%s'; the first is: %s", part,
              diags.list.n ? diags.list.at[0].message : "(none)");
}

/* ---- conversions --------------------------------------------------------------------------- */

Test(tensorfile, bf16_rounds_to_even_and_back) {
    for (uint32_t i = 0; i < 0x10000; i++) {
        float f = hd_bf16_to_f32((uint16_t)i);
        if (isnan(f))
            cr_assert(isnan(hd_bf16_to_f32(hd_bf16_from_f32(f))));
        else
            cr_assert_eq(hd_bf16_from_f32(f), i);
        if (!isnan(f)) cr_assert_eq(hd_bf16_from_f64(f), i);
    }
    cr_expect_eq(hd_bf16_from_f32(0x1.01p0f), 0x3f80); /* half way: to even, down */
    cr_expect_eq(hd_bf16_from_f32(0x1.03p0f), 0x3f82); /* half way: to even, up */
    cr_expect_eq(hd_bf16_from_f32(0x1.010002p0f), 0x3f81);
    cr_expect_eq(hd_bf16_from_f32(3.4e38f), 0x7f80);
    uint32_t sneaky = 0x7f800001; /* a NaN whose upper half alone is infinity */
    float nan;
    memcpy(&nan, &sneaky, 4);
    cr_expect(isnan(hd_bf16_to_f32(hd_bf16_from_f32(nan))));
}

Test(tensorfile, bf16_from_double_rounds_once) {
    /* Just above half way: by way of f32 it would fall on the half and then down to even. */
    cr_expect_eq(hd_bf16_from_f64(0x1.0100000001p0), 0x3f81);
    cr_expect_eq(hd_bf16_from_f64(-0x1.0100000001p0), 0xbf81);
    cr_expect_eq(hd_bf16_from_f64(0x1.02ffffffffp0), 0x3f81);
    cr_expect_eq(hd_bf16_from_f64(1e300), 0x7f80);
    cr_expect_eq(hd_bf16_from_f64(1e-300), 0);
}

/* Runs of elements give what single ones give, at the ends of vectors and beyond them. */
Test(tensorfile, runs_of_halves) {
    enum { ALL = 1 << 16, AROUND = 5 };
    static uint16_t x[ALL], got[AROUND * ALL];
    static float wide[ALL], around[AROUND * ALL];
    for (uint32_t i = 0; i < ALL; i++)
        x[i] = (uint16_t)i;
    hd_f16s_to_f32((const uint8_t *)x, ALL, wide);
    for (uint32_t i = 0; i < ALL; i++) {
        const float want = hd_f16_to_f32(x[i]);
        cr_assert_eq(memcmp(&wide[i], &want, 4), 0, "%#x", i);
    }
    /* each half, its neighbours in f32, the middle to the next one, and a neighbour of that */
    for (uint32_t i = 0; i < ALL; i++)
        for (int k = 0; k < AROUND; k++) {
            static const uint32_t steps[AROUND] = {0, 1, 0xfff, 0x1000, 0x1001};
            uint32_t bits;
            memcpy(&bits, i % 2 ? &(float){hd_bf16_to_f32(x[i])} : &wide[i], 4);
            bits += i % 2 ? steps[k] << 3 : steps[k];
            memcpy(&around[AROUND * i + (uint32_t)k], &bits, 4);
        }
    for (uint64_t n = AROUND * ALL, less = 0; less < 9; less++) {
        hd_f16s_from_f32(around + less, n - less * (n / 9), got);
        for (uint64_t i = 0; i < n - less * (n / 9); i++)
            cr_assert_eq(got[i], hd_f16_from_f32(around[less + i]), "%a", (double)around[less + i]);
        hd_bf16s_from_f32(around + less, n - less * (n / 9), got);
        for (uint64_t i = 0; i < n - less * (n / 9); i++)
            cr_assert_eq(got[i], hd_bf16_from_f32(around[less + i]), "%a",
                         (double)around[less + i]);
    }
}

/* Towards zero, with the last bit set for what was cut off. */
Test(tensorfile, runs_of_odd_floats) {
    static const double x[] = {0,
                               -0.0,
                               1,
                               1 + 0x1p-23,
                               1 + 0x1p-40,
                               1 + 0x1p-23 + 0x1p-24,
                               -1 - 0x1p-40,
                               0x1p-149,
                               0x1p-150,
                               -0x1p-160,
                               1e300,
                               -1e300,
                               INFINITY};
    static const float want[] = {0,
                                 -0.0f,
                                 1,
                                 1 + 0x1p-23f,
                                 1 + 0x1p-23f,
                                 1 + 0x1p-23f,
                                 -1 - 0x1p-23f,
                                 0x1p-149f,
                                 0x1p-149f,
                                 -0x1p-149f,
                                 0x1.fffffep127f,
                                 -0x1.fffffep127f,
                                 INFINITY};
    enum { COUNT = sizeof x / sizeof *x };
    float got[COUNT];
    hd_odd_f32s(x, COUNT, got);
    for (int i = 0; i < COUNT; i++)
        cr_expect_eq(memcmp(&got[i], &want[i], 4), 0, "%a: %a", x[i], (double)got[i]);
}

Test(tensorfile, f16_is_exact_both_ways) {
    for (uint32_t i = 0; i < 0x10000; i++) {
        float f = hd_f16_to_f32((uint16_t)i);
        if (isnan(f))
            cr_assert((i & 0x7c00) == 0x7c00 && (i & 1023));
        else
            cr_assert_eq(hd_f16_from_f64(f), i, "%#x", i);
    }
    cr_expect_eq(hd_f16_to_f32(0x3c00), 1.0f);
    cr_expect_eq(hd_f16_to_f32(0x0001), 0x1p-24f);
    cr_expect_eq(hd_f16_to_f32(0x7bff), 65504.0f);
    cr_expect_eq(hd_f16_from_f64(65519.99), 0x7bff);
    cr_expect_eq(hd_f16_from_f64(65520), 0x7c00);
    cr_expect_eq(hd_f16_from_f64(0x1p-25), 0);
    cr_expect_eq(hd_f16_from_f64(0x1.8p-24), 2);
}

/* Bits of f16 by the definition: a multiple of the unit in the last place, rounded to even. */
static uint16_t f16_by_definition(double x) {
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    double a = fabs(x), unit = 0x1p-24;
    if (a >= 65520) return sign | 0x7c00;
    int steps = 0; /* units double with the exponent, 1024 bit patterns further on each time */
    while (a >= unit * 2048)
        unit *= 2, steps++;
    return (uint16_t)(sign + steps * 1024 + (int)nearbyint(a / unit));
}

Test(tensorfile, f16_is_rounded_once) {
    uint64_t bits = 1;
    for (int i = 0; i < 200000; i++) {
        bits = bits * 6364136223846793005u + 1442695040888963407u;
        /* exponents from far below the least f16 to beyond the largest */
        double x = ldexp((double)(int64_t)bits, (int)(bits >> 20 & 63) - 63 - 34);
        float f = (float)x;
        cr_assert_eq(hd_f16_from_f64(x), f16_by_definition(x), "%a", x);
        cr_assert_eq(hd_f16_from_f32(f), f16_by_definition((double)f), "%a", (double)f);
    }
    for (uint32_t i = 0; i < 0x7bff; i++) { /* half way, and next to it */
        double low = hd_f16_to_f32((uint16_t)i),
               half = (low + hd_f16_to_f32((uint16_t)(i + 1))) / 2;
        cr_assert_eq(hd_f16_from_f32((float)half), i + (i & 1));
        cr_assert_eq(hd_f16_from_f64(nextafter(half, 1e9)), i + 1);
        cr_assert_eq(hd_f16_from_f64(nextafter(-half, 0)), 0x8000 + i);
    }
    cr_expect_eq(hd_f16_from_f32(-INFINITY), 0xfc00);
    cr_expect_eq(hd_f16_from_f32(NAN) & 0x7fff, 0x7e00);
}

Test(tensorfile, integers_become_numbers_if_they_are_exact) {
    int64_t v[] = {INT64_C(1) << 53, -(INT64_C(1) << 53), 7, (INT64_C(1) << 53) + 1};
    hd_tensor t = {.name = "x", .dtype = HD_T_I64, .rank = 1, .shape = {3}, .data = (uint8_t *)v};
    cr_assert(hd_tensor_measure(&t));
    cr_expect(hd_tensor_is_number(&t));
    cr_expect_eq(hd_tensor_get(&t, 1), -0x1p53);
    t.shape[0] = 4;
    hd_tensor_measure(&t);
    cr_expect_not(hd_tensor_is_number(&t));
    t.dtype = HD_T_U64;
    cr_expect_not(hd_tensor_is_number(&t));
    t.dtype = HD_T_F8_E4M3;
    cr_expect_not(hd_tensor_is_number(&t));
}

Test(tensorfile, every_dtype_gives_its_elements) {
    int8_t i8[] = {-128, 5};
    uint16_t u16[] = {65535, 1}, half[] = {0xc000, 0x3800};
    double f64[] = {1 + 0x1p-24, -0.5};
    float out[2];
    hd_tensor t = {.rank = 1, .shape = {2}, .dtype = HD_T_I8, .data = (uint8_t *)i8};
    cr_expect_eq(hd_tensor_get(&t, 0), -128);
    t.dtype = HD_T_U8;
    cr_expect_eq(hd_tensor_get(&t, 0), 128);
    t.dtype = HD_T_U16, t.data = (uint8_t *)u16;
    cr_expect_eq(hd_tensor_get(&t, 0), 65535);
    t.dtype = HD_T_I16;
    cr_expect_eq(hd_tensor_get(&t, 0), -1);
    t.dtype = HD_T_F16, t.data = (uint8_t *)half;
    hd_tensor_to_f32(&t, 0, 2, out);
    cr_expect(out[0] == -2 && out[1] == 0.5);
    t.dtype = HD_T_BF16;
    cr_expect_eq(hd_tensor_get(&t, 0), -2);
    t.dtype = HD_T_F64, t.data = (uint8_t *)f64;
    hd_tensor_to_f32(&t, 0, 2, out);
    cr_expect(out[0] == 1 && out[1] == -0.5f, "halves round to even");
}

/* ---- safetensors: good files --------------------------------------------------------------- */

Test(tensorfile, safetensors_round_trip) {
    float x[6] = {1, -2, 3, INFINITY, 5, 6};
    uint16_t y[2] = {0x3f80, 0xbf80};
    int32_t z = 7;
    hd_tensor list[] = {
        {.name = "z\"\\\n\xc3\xa9", .dtype = HD_T_I32, .rank = 0, .data = (uint8_t *)&z},
        {.name = "x", .dtype = HD_T_F32, .rank = 2, .shape = {2, 3}, .data = (uint8_t *)x},
        {.name = "empty", .dtype = HD_T_F32, .rank = 2, .shape = {0, 3}},
        {.name = "y", .dtype = HD_T_BF16, .rank = 1, .shape = {2}, .data = (uint8_t *)y},
    };
    cr_assert(hd_safetensors_write(arena, &diags, in_folder("t.safetensors"), list, 4));
    hd_tensors t;
    cr_assert(hd_safetensors_open(arena, &diags, in_folder("t.safetensors"), &t));
    cr_assert_eq(t.list.n, 4);
    const hd_tensor *got = hd_tensors_find(&t, "x");
    cr_assert(got && got->rank == 2 && got->shape[1] == 3 && got->bytes == 24);
    cr_expect_eq(memcmp(got->data, x, 24), 0);
    got = hd_tensors_find(&t, "z\"\\\n\xc3\xa9");
    cr_assert(got && got->rank == 0 && hd_tensor_get(got, 0) == 7);
    cr_expect_eq(((uintptr_t)got->data & 63), 0, "data begins at a multiple of 64");
    cr_expect_eq(hd_tensor_get(hd_tensors_find(&t, "y"), 1), -1);
    cr_expect_eq(hd_tensors_find(&t, "empty")->elements, 0);
    cr_expect_null(hd_tensors_find(&t, "w"));
    for (size_t i = 1; i < t.list.n; i++)
        cr_expect_lt(strcmp(t.list.at[i - 1].name, t.list.at[i].name), 0);
}

Test(tensorfile, safetensors_good_forms) {
    hd_tensors t;
    cr_expect(hd_safetensors_open(arena, &diags, put_tensors("e.safetensors", "{}   ", 0), &t));
    cr_expect_eq(t.list.n, 0);
    char *path = put_tensors("m.safetensors",
                             "{\"b\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[4,12]},"
                             "\"__metadata__\":{\"format\":\"pt\"},"
                             "\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}} ",
                             12);
    cr_expect(hd_safetensors_open(arena, &diags, path, &t));
    cr_expect_eq(t.list.n, 2);
    cr_expect_str_eq(t.list.at[0].name, "a");
    cr_expect_eq(diags.errors, 0);
}

Test(tensorfile, safetensors_writer_rejects_bad_lists) {
    hd_tensor twice[] = {{.name = "a", .dtype = HD_T_U8, .rank = 1, .shape = {0}},
                         {.name = "a", .dtype = HD_T_U8, .rank = 1, .shape = {0}}};
    cr_expect_not(hd_safetensors_write(arena, &diags, in_folder("x.safetensors"), twice, 2));
    cr_expect(some_error_has("twice"));
    hd_tensor huge = {.name = "a", .dtype = HD_T_F32, .rank = 2, .shape = {INT64_MAX, 9}};
    cr_expect_not(hd_safetensors_write(arena, &diags, in_folder("x.safetensors"), &huge, 1));
    hd_tensor meta = {.name = "__metadata__", .dtype = HD_T_U8, .rank = 1, .shape = {0}};
    cr_expect_not(hd_safetensors_write(arena, &diags, in_folder("x.safetensors"), &meta, 1));
    cr_expect_not(hd_exists(in_folder("x.safetensors")));
}

Test(tensorfile, safetensors_writer_reports_a_full_disk) {
    float x = 1;
    hd_tensor t = {.name = "a", .dtype = HD_T_F32, .data = (uint8_t *)&x};
    cr_expect_not(hd_safetensors_write(arena, &diags, "/dev/full", &t, 1));
    cr_expect(some_error_has("No space left"));
    cr_expect_not(hd_npy_write(arena, &diags, "/dev/full", &t));
    cr_expect_eq(diags.errors, 2);
}

/* ---- safetensors: attacks ------------------------------------------------------------------ */

typedef struct attack {
    const char *header;
    size_t zeros;
    const char *error;
} attack;

#define F4(name, from, to)                                                                         \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[" #from "," #to "]}"
#define WITH(shape, offsets)                                                                       \
    "{\"a\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static const attack attacks[] = {
    {"", 4, "does not begin with '{'"},
    {" {}", 0, "does not begin with '{'"},
    {"[]", 0, "does not begin with '{'"},
    {"{", 0, "not legal JSON"},
    {"{} x", 0, "not legal JSON"},
    {"{\"a\":\"\xff\"}", 0, "not legal JSON"},
    {"{\"a\\u0000b\":1}", 0, "not legal JSON: a name holds the character \\u0000"},
    {"{\"a\x1b\":1}", 0, "not legal JSON"},
    {"{" F4("a", 0, 4) "," F4("a", 0, 4) "}", 4, "duplicate object key"},
    {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
     "duplicate object key"},
    {"{\"a\":3}", 0, "the entry of tensor \"a\" is not an object"},
    {"{\"a\":{}}", 0, "has no dtype string"},
    {"{\"a\":{\"dtype\":\"F32\"}}", 0, "has no shape array"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 0, "has no data_offsets"},
    {"{\"a\":{\"dtype\":\"F99\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
     "the unknown dtype \"F99\""},
    {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "has no dtype string"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4,
     "unknown field \"x\""},
    {WITH("[-1]", "[0,4]"), 4, "dim 0 of the shape"},
    {WITH("[1.0]", "[0,4]"), 4, "dim 0 of the shape"},
    {WITH("[\"1\"]", "[0,4]"), 4, "dim 0 of the shape"},
    {WITH("[99999999999999999999]", "[0,4]"), 4, "not legal JSON: too big integer"},
    {WITH("[4294967296,4294967296,4]", "[0,0]"), 0, "its size overflows"},
    {WITH("[4611686018427387904,4]", "[0,0]"), 0, "its size overflows"},
    {WITH("[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, "has 9 dims"},
    {WITH("[2]", "[0,4]"), 4, "takes 8 bytes, but its data_offsets span 4"},
    {WITH("[1]", "[-4,0]"), 4, "negative offset"},
    {WITH("[1]", "[0.0,4.0]"), 4, "not whole numbers"},
    {WITH("[1]", "[4,0]"), 4, "ends before it begins"},
    {WITH("[1]", "[0,4,8]"), 4, "no data_offsets of two numbers"},
    {WITH("[1]", "{}"), 4, "no data_offsets of two numbers"},
    {WITH("[1]", "[9223372036854775803,9223372036854775807]"), 4, "a gap of 9223372036854775803"},
    {"{" F4("a", 0, 4) "," F4("b", 2, 6) "}", 6, "tensor \"b\" overlaps tensor \"a\""},
    {"{" F4("a", 0, 4) "," F4("b", 0, 4) "}", 4, "overlaps"},
    {"{" F4("a", 0, 4) "," F4("b", 8, 12) "}", 12, "a gap of 4 bytes"},
    {"{" F4("a", 4, 8) "}", 8, "a gap of 4 bytes"},
    {"{" F4("a", 0, 4) "," F4("b", 4, 8) "}", 7, "truncated"},
    {"{" F4("a", 0, 4) "}", 5, "1 trailing bytes"},
    {"{}", 1, "1 trailing bytes"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "the __metadata__ field \"a\" is not a string"},
    {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object"},
    {"{\"\\u001b[2J\":3}", 0, "\"\\x1b[2J\""}, /* nothing reaches the terminal unescaped */
};

Test(tensorfile, safetensors_attacks_are_named) {
    for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++) {
        hd_diags_init(&diags, arena);
        expect_rejected(put_tensors("x.safetensors", attacks[i].header, attacks[i].zeros),
                        attacks[i].error);
    }
}

Test(tensorfile, safetensors_deep_json) {
    enum { N = 100000 };
    char *deep = hd_alloc(arena, N + 16, 1);
    strcpy(deep, "{\"a\":");
    memset(deep + 5, '[', N);
    expect_rejected(put_tensors("x.safetensors", deep, 0), "maximum parsing depth");
}

Test(tensorfile, safetensors_header_lengths) {
    static const uint64_t lengths[] = {3, 100000001, UINT64_MAX, UINT64_MAX - 7, INT64_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint8_t file[10] = {0, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
        memcpy(file, &lengths[i], 8);
        hd_diags_init(&diags, arena);
        expect_rejected(put("x.safetensors", file, 10), "the header length");
    }
    expect_rejected(put("x.safetensors", "1234567", 7), "too short");
    expect_rejected(put("x.safetensors", "", 0), "too short");
}

Test(tensorfile, safetensors_faults_are_all_listed) {
    expect_rejected(put_tensors("x.safetensors",
                                "{\"a\":{\"dtype\":\"F99\",\"shape\":[-1],\"data_offsets\":[0,4]},"
                                "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,12]}}",
                                20),
                    "unknown dtype");
    cr_expect(some_error_has("dim 0"));
    cr_expect(some_error_has("takes 8 bytes"));
    cr_expect(some_error_has("a gap of 4"));
    cr_expect(some_error_has("8 trailing bytes"));
    cr_expect_eq(diags.errors, 5);
}

Test(tensorfile, a_bad_range_brings_no_talk_of_gaps) {
    expect_rejected(put_tensors("x.safetensors",
                                "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-1,4]}}",
                                4),
                    "negative offset");
    cr_expect_eq(diags.errors, 1);
}

/* ---- sharded ------------------------------------------------------------------------------- */

#define INDEX "model.safetensors.index.json"
#define ONE   "{" F4("a", 0, 4) "}"
#define TWO   "{" F4("b", 0, 4) "}"

static void put_index(const char *text) {
    put(INDEX, text, strlen(text));
}

static void put_shards(void) {
    put_tensors("1.safetensors", ONE, 4);
    put_tensors("2.safetensors", TWO, 4);
}

Test(tensorfile, sharded_folder) {
    put_shards();
    put_index("{\"metadata\":{\"total_size\":8},\"weight_map\":"
              "{\"b\":\"2.safetensors\",\"a\":\"1.safetensors\"}}");
    hd_tensors t;
    cr_assert(hd_safetensors_open(arena, &diags, folder, &t));
    cr_expect_eq(t.list.n, 2);
    cr_expect_eq(diags.list.n, 0);
    cr_expect(strstr(hd_tensors_find(&t, "b")->file, "2.safetensors"));
    cr_expect(hd_safetensors_open(arena, &diags, in_folder(INDEX), &t));
    put_tensors("model.safetensors", ONE, 4);
    cr_assert(hd_safetensors_open(arena, &diags, folder, &t));
    cr_expect_eq(t.list.n, 1, "a single file goes before the index");
}

Test(tensorfile, a_wrong_total_size_is_a_warning) {
    put_shards();
    put_index("{\"metadata\":{\"total_size\":9},\"weight_map\":"
              "{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}");
    hd_tensors t;
    cr_expect(hd_safetensors_open(arena, &diags, folder, &t));
    cr_expect_eq(diags.list.n, 1);
    cr_expect_eq(diags.list.at[0].severity, HD_WARNING);
}

Test(tensorfile, sharded_attacks_are_named) {
    static const struct {
        const char *index, *error;
    } cases[] = {
        {"{", "not legal JSON"},
        {"[]", "no object \"weight_map\""},
        {"{\"weight_map\":[]}", "no object \"weight_map\""},
        {"{\"weight_map\":{\"a\":1}}", "tensor \"a\" is not a string"},
        {"{\"weight_map\":{\"a\":{\"file\":\"1.safetensors\"}}}", "tensor \"a\" is not a string"},
        {"{\"weight_map\":{\"a\":\"1.safetensors\",\"a\":\"1.safetensors\"}}", "duplicate"},
        {"{\"weight_map\":{\"a\":\"../1.safetensors\"}}", "no plain .safetensors file name"},
        {"{\"weight_map\":{\"a\":\"sub/1.safetensors\"}}", "no plain .safetensors file name"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "no plain .safetensors file name"},
        {"{\"weight_map\":{\"a\":\"..\"}}", "no plain .safetensors file name"},
        {"{\"weight_map\":{\"a\":\"\"}}", "no plain .safetensors file name"},
        {"{\"weight_map\":{\"a\":\"pytorch_model.bin\"}}", "no plain .safetensors file name"},
        {"{\"weight_map\":{\"a\":\"1.safetensors\\u0000\"}}",
         "not legal JSON: a string holds the character \\u0000"},
        {"{\"weight_map\":{\"a\":\"3.safetensors\"}}",
         "shard \"3.safetensors\" of the checkpoint is missing"},
        {"{\"weight_map\":{\"c\":\"1.safetensors\"}}", "tensor \"c\" is not in \"1.safetensors\""},
        {"{\"weight_map\":{\"a\":\"2.safetensors\",\"b\":\"2.safetensors\"}}",
         "tensor \"a\" is not in \"2.safetensors\""},
        {"{\"weight_map\":{\"c\":\"1.safetensors\"}}",
         "tensor \"a\" is in \"1.safetensors\", where the weight_map does not have it"},
        {"{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"bad.safetensors\"}}", "truncated"},
    };
    put_shards();
    put_tensors("bad.safetensors", TWO, 3);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hd_diags_init(&diags, arena);
        put_index(cases[i].index);
        expect_rejected(folder, cases[i].error);
    }
}

/* The index, the place in it, what is lost and what to do. */
Test(tensorfile, a_missing_shard) {
    put_tensors("1.safetensors", ONE, 4);
    put_index("{\"weight_map\":\n  {\"a\": \"1.safetensors\",\n   \"b\": \"2.safetensors\",\n"
              "   \"c\": \"2.safetensors\", \"d\": \"3.safetensors\"}}");
    expect_rejected(folder, "the shard \"2.safetensors\" of the checkpoint is missing");
    cr_assert_eq(diags.list.n, 2, "every one is named");
    const hd_diag *g = &diags.list.at[0];
    cr_expect(strstr(g->loc.file, INDEX));
    cr_expect_eq(g->loc.line, 3);
    cr_expect_eq(g->loc.column, 9);
    cr_expect_eq(g->loc.end_column, 24);
    cr_expect_eq(hd_error_exit_code(g->code), 1);
    cr_expect(strstr(g->cause, "2 tensors in it, \"b\" among them"), "%s", g->cause);
    cr_expect(g->hint);
    cr_expect(strstr(diags.list.at[1].cause, "tensor \"d\""), "%s", diags.list.at[1].cause);
}

Test(tensorfile, a_tensor_in_two_shards) {
    put_tensors("1.safetensors", ONE, 4);
    put_tensors("2.safetensors", "{" F4("a", 0, 4) "," F4("b", 4, 8) "}", 8);
    put_index("{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}");
    expect_rejected(folder, "tensor \"a\" is in \"2.safetensors\"");
}

Test(tensorfile, files_of_other_kinds_are_known) {
    static const char *const cases[][2] = {
        {"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n", "git lfs pull"},
        {"PK\x03\x04 and more of it", "convert it to safetensors"},
        {"GGUF and more of it", "GGUF"},
        {"<!DOCTYPE html><html>", "web page"},
        {"something else, and long", "downloaded"},
        {"short", "downloaded"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hd_diags_init(&diags, arena);
        put("x.safetensors", cases[i][0], strlen(cases[i][0]));
        expect_rejected(in_folder("x.safetensors"), "");
        cr_expect(strstr(diags.list.at[0].hint, cases[i][1]), "%s", diags.list.at[0].hint);
    }
}

Test(tensorfile, folders_without_one_clear_file) {
    expect_rejected(folder, "holds no .safetensors file");
    cr_expect(strstr(diags.list.at[0].hint, "is the download complete?"));
    put("pytorch_model.bin", "x", 1);
    hd_diags_init(&diags, arena);
    expect_rejected(folder, "holds no .safetensors file");
    cr_expect(strstr(diags.list.at[0].hint, "pickled"));
    put_tensors("1.safetensors", ONE, 4);
    hd_tensors t;
    cr_expect(hd_safetensors_open(arena, &diags, folder, &t));
    put_tensors("2.safetensors", TWO, 4);
    hd_diags_init(&diags, arena);
    expect_rejected(folder, "holds 2 .safetensors files and no index");
    expect_rejected(in_folder("none"), "No such file");
}

/* ---- npy ----------------------------------------------------------------------------------- */

static char *put_npy(int version, const char *header, size_t zeros) {
    size_t n = strlen(header), start = version == 1 ? 10 : 12;
    char *file = hd_alloc(arena, start + n + zeros, 1);
    memcpy(file, "\x93NUMPY", 6);
    file[6] = (char)version;
    for (size_t i = 8; i < start; i++)
        file[i] = (char)(n >> (8 * (i - 8)));
    memcpy(file + start, header, n);
    return put("x.npy", file, start + n + zeros);
}

Test(tensorfile, npy_round_trip) {
    float x[6] = {1, 2, 3, 4, 5, 6};
    for (uint32_t rank = 0; rank <= 2; rank++) {
        hd_tensor t = {.dtype = HD_T_F32, .rank = rank, .shape = {rank == 1 ? 6 : 2, 3}}, got;
        t.data = (uint8_t *)x;
        cr_assert(hd_npy_write(arena, &diags, in_folder("t.npy"), &t));
        cr_assert(hd_npy_read(arena, &diags, in_folder("t.npy"), &got));
        cr_expect(got.rank == rank && got.dtype == HD_T_F32);
        cr_expect(rank == 0 || (got.shape[0] == t.shape[0] && got.elements == 6));
        cr_expect_eq(hd_tensor_get(&got, got.elements - 1), rank ? 6 : 1);
        cr_expect_eq(((uintptr_t)got.data & 63), 0);
    }
    hd_tensor bf16 = {.dtype = HD_T_BF16, .rank = 1, .shape = {1}, .data = (uint8_t *)x};
    cr_expect_not(hd_npy_write(arena, &diags, in_folder("b.npy"), &bf16));
}

Test(tensorfile, npy_good_forms) {
    static const char *const headers[] = {
        "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }      \n",
        "{\"shape\":(2,3,),\"descr\":\"<i4\",\"fortran_order\":True}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (6,)}",
    };
    hd_tensor t;
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        for (int version = 1; version <= 3; version++)
            cr_expect(hd_npy_read(arena, &diags, put_npy(version, headers[i], 24), &t), "%s",
                      headers[i]);
    cr_expect(hd_npy_read(arena, &diags,
                          put_npy(1, "{'descr':'<f8','fortran_order':False,'shape':()}", 8), &t));
    cr_expect(hd_npy_read(
        arena, &diags, put_npy(1, "{'descr':'<f8','fortran_order':False,'shape':(0,5)}", 0), &t));
    cr_expect_eq(diags.errors, 0);
}

Test(tensorfile, npy_fortran_order) {
    static const char header[] = "{'descr':'|u1','fortran_order':True,'shape':(2,3,2),}";
    char *path = put_npy(1, header, 12), *text = hd_alloc(arena, 10 + sizeof header + 12, 1);
    hd_bytes file;
    cr_assert(hd_map_file(arena, &diags, path, &file));
    memcpy(text, file.at, file.n);
    for (int i = 0; i < 12; i++)
        text[file.n - 12 + (size_t)i] = (char)i;
    size_t n = file.n;
    path = put("y.npy", text, n);
    hd_tensor t;
    cr_assert(hd_npy_read(arena, &diags, path, &t));
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 2; k++)
                cr_expect_eq(hd_tensor_get(&t, (uint64_t)((i * 3 + j) * 2 + k)), i + 2 * j + 6 * k);
}

Test(tensorfile, npy_attacks_are_named) {
#define NPY(descr, order, shape)                                                                   \
    "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }\n"
    static const struct {
        const char *header;
        size_t zeros;
        const char *error;
    } cases[] = {
        {NPY("'|O'", "False", "(1,)"), 8, "element type \"|O\" is not read"},
        {NPY("'>f4'", "False", "(1,)"), 4, "element type \">f4\""},
        {NPY("'<c8'", "False", "(1,)"), 8, "element type"},
        {NPY("[('a', '<f4')]", "False", "(1,)"), 4, "structured"},
        {NPY("'<f4'", "None", "(1,)"), 4, "no True or False"},
        {NPY("'<f4'", "False", "(1)"), 4, "no ',' in a shape of one dim"},
        {NPY("'<f4'", "False", "(-1,)"), 4, "no dim"},
        {NPY("'<f4'", "False", "[1]"), 4, "no '(' of the shape"},
        {NPY("'<f4'", "False", "(1, 2"), 8, "no dim at"},
        {NPY("'<f4'", "False", "(99999999999999999999,)"), 4, "less than 2^63"},
        {NPY("'<f4'", "False", "(4294967296, 4294967296, 4)"), 4, "overflows"},
        {NPY("'<f4'", "False", "(1,1,1,1,1,1,1,1,1)"), 4, "at most 8 dims"},
        {NPY("'<f4'", "False", "(2,)"), 7, "truncated"},
        {NPY("'<f4'", "False", "(2,)"), 9, "trailing bytes"},
        {NPY("__import__('os').system('true')", "False", "(2,)"), 8, "no string"},
        {"{'descr': '<f4', 'shape': (1,)}", 4, "no fortran_order"},
        {"{'descr': '<f4', 'descr': '<f4', 'shape': (1,), 'fortran_order': False}", 4,
         "'descr' twice"},
        {"{'descr': '<f4', 'x': 1}", 4, "'x', which the format does not know"},
        {"{'descr': '<f4' 'shape': (1,)}", 4, "no ',' or '}'"},
        {"", 0, "no '{'"},
        {"{'descr", 0, "no plain string"},
        {NPY("'<f4'", "False", "(1,)") "x", 4, "no end after the dict"},
    };
    hd_tensor t;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hd_diags_init(&diags, arena);
        cr_expect_not(hd_npy_read(arena, &diags, put_npy(1, cases[i].header, cases[i].zeros), &t));
        cr_expect(some_error_has(cases[i].error), "no '%s' in: %s", cases[i].error,
                  diags.list.n ? diags.list.at[0].message : "(none)");
    }
    hd_diags_init(&diags, arena);
    cr_expect_not(hd_npy_read(arena, &diags, put_npy(4, "{}", 0), &t));
    cr_expect(some_error_has("version 4.0"));
    cr_expect_not(
        hd_npy_read(arena, &diags, put("x.npy", "\x93NUMPY\2\0\xff\xff\xff\xff", 12), &t));
    cr_expect(some_error_has("header length"));
    cr_expect_not(hd_npy_read(arena, &diags, put("x.npy", "PK\3\4", 4), &t));
    cr_expect(some_error_has("does not begin"));
    cr_expect_not(hd_npy_read(arena, &diags, put("x.npy", "\x93NUMPY\1\0", 8), &t));
    cr_expect_not(hd_npy_read(arena, &diags, in_folder("none.npy"), &t));
    cr_expect_eq(diags.errors, 5);
}
