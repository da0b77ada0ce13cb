/* 16-bit floats in registers: every value widened, and floats of every binade narrowed, as vectors,
 * tails and scalars, at every CPU level, against support/tensorfile.c; also where denormals are
 * flushed to zero. */
#include <criterion/criterion.h>
#include <math.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "codegen/module/module.h"
#include "support/tensorfile.h"
#include "tests/unit/codegen/emit_harness.h"

/* A row of the test: a whole vector, a tail, and one by itself. */
enum { TAIL = 3 };

static LLVMValueRef arg(hcg_emit *e, unsigned i) {
    return LLVMBuildLoad2(e->b, e->ptr, hcg_at(e, e->ptr, e->args, hcg_i64(e, i)), "");
}

/* args: stored -> f32, f32 -> stored; rows of lanes + TAIL + 1 elements */
static void build_rows(hcg_emit *e, hir_dtype dtype) {
    int64_t lanes = e->level->lanes, row = lanes + TAIL + 1;
    LLVMTypeRef elem = hcg_element(e, dtype);
    LLVMValueRef p[4], n = hcg_i64(e, TAIL), at[4];
    for (unsigned i = 0; i < 4; i++)
        p[i] = arg(e, i);
    hcg_loop l = hcg_loop_begin(e, e->r0, e->r1, hcg_i64(e, 1), "row", 0, NULL);
    LLVMValueRef first = LLVMBuildMul(e->b, l.index, hcg_i64(e, row), "");
    for (int part = 0; part < 3; part++) {
        int64_t offset = part == 0 ? 0 : part == 1 ? lanes : lanes + TAIL;
        LLVMValueRef i = LLVMBuildAdd(e->b, first, hcg_i64(e, offset), "");
        for (unsigned k = 0; k < 4; k++)
            at[k] = hcg_at(e, k == 0 || k == 3 ? elem : e->f32, p[k], i);
        if (part == 2) {
            hcg_store(e, at[1], hcg_load_scalar(e, dtype, at[0]), NULL);
            hcg_store_as(e, dtype, at[3], hcg_load_scalar(e, HIR_F32, at[2]), NULL);
        } else {
            hcg_store(e, at[1], hcg_load(e, dtype, at[0], part ? n : NULL), part ? n : NULL);
            hcg_store_as(e, dtype, at[3], hcg_load(e, HIR_F32, at[2], part ? n : NULL),
                         part ? n : NULL);
        }
    }
    hcg_loop_end(e, &l, NULL);
    LLVMBuildRetVoid(e->b);
}

static compiled compile_rows(bench *b, const hcg_level *level, hir_dtype dtype) {
    hcg_program p = {.arena = b->arena, .m = b->m};
    hcg_emit e = emit_for(b, &p, level);
    compiled c = {0};
    enter_function(&e);
    build_rows(&e, dtype);
    cr_assert(load(b, &c), "%s", bench_errors(b));
    hcg_llvm_free(b->llvm);
    return c;
}

static float to_float(hir_dtype dtype, uint16_t x) {
    return dtype == HIR_BF16 ? hd_bf16_to_f32(x) : hd_f16_to_f32(x);
}

static uint16_t to_half(hir_dtype dtype, float x) {
    return dtype == HIR_BF16 ? hd_bf16_from_f32(x) : hd_f16_from_f64((double)x);
}

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

/* Floats spread over all bit patterns; around every value of f16 (its halfway points and their
 * adjacent numbers); and the rest. */
static float sample(uint32_t i) {
    uint32_t half = i / 4 & 0xffff, bits;
    if (i < 4 * 65536) return float_of(i * 16384 + 77);
    float low = hd_f16_to_f32((uint16_t)half), high = hd_f16_to_f32((uint16_t)(half + 1));
    float middle = isfinite(high) ? (low + high) / 2 : 65520;
    memcpy(&bits, &middle, 4);
    return float_of(bits + i % 4 - 1);
}
enum { SAMPLES = 8 * 65536 };

static bool is_denormal(float x) {
    return fpclassify(x) == FP_SUBNORMAL;
}

static void expect_values(const char *level, hir_dtype dtype, const uint16_t *stored,
                          const float *wide, const float *x, const uint16_t *narrow, int64_t n,
                          bool flushed) {
    for (int64_t i = 0; i < n; i++) {
        float want = to_float(dtype, stored[i]);
        cr_assert(isnan(want) ? isnan(wide[i]) : memcmp(&want, &wide[i], 4) == 0,
                  "%s: %s %04x is %g, not %g", level, hir_dtype_name(dtype), stored[i],
                  (double)wide[i], (double)want);
        uint16_t half = to_half(dtype, x[i]);
        if (isnan(x[i]))
            cr_assert(isnan(to_float(dtype, narrow[i])), "%s: NaN becomes %04x", level, narrow[i]);
        else if (!(flushed && is_denormal(x[i])))
            cr_assert_eq(narrow[i], half, "%s: %s of %a is %04x, not %04x", level,
                         hir_dtype_name(dtype), (double)x[i], narrow[i], half);
    }
}

static void check_level(const hcg_level *level, hir_dtype dtype, bool flush) {
    bench b = bench_new();
    bench_start(&b);
    compiled c = compile_rows(&b, level, dtype);
    int64_t row = level->lanes + TAIL + 1, rows = (SAMPLES + row - 1) / row, n = rows * row;
    uint16_t *stored = guarded((size_t)n * 2), *narrow = guarded((size_t)n * 2);
    float *wide = guarded((size_t)n * 4), *x = guarded((size_t)n * 4);
    for (int64_t i = 0; i < n; i++)
        stored[i] = (uint16_t)i, x[i] = sample((uint32_t)(i % SAMPLES));
    hrt_frame frame = {.T = rows};
#if defined(__x86_64__)
    unsigned mode = _mm_getcsr();
    if (flush) _mm_setcsr(mode | 0x8040);
    c.call(&frame, (void *[]){stored, wide, x, narrow}, 0, rows, 0, 1);
    _mm_setcsr(mode);
#else
    c.call(&frame, (void *[]){stored, wide, x, narrow}, 0, rows, 0, 1);
#endif
    /* the instruction for bf16 takes denormals for zero, whatever the mode */
    bool instruction = dtype == HIR_BF16 && hcg_has_feature(level, "avx512bf16");
    expect_values(level->name, dtype, stored, wide, x, narrow, n, flush || instruction);
    guarded_free(stored), guarded_free(narrow), guarded_free(wide), guarded_free(x);
    compiled_free(&c);
    bench_free(&b);
}

static void check_all(hir_dtype dtype) {
    const hcg_level *levels;
    size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++)
        for (int flush = 0; flush < 2 && level_runs(&levels[i]); flush++)
            check_level(&levels[i], dtype, flush);
}

Test(emit_half, f16) {
    check_all(HIR_F16);
}

Test(emit_half, bf16) {
    check_all(HIR_BF16);
}

/* Instructions for bf16, which no level has but this machine's CPU may: they take denormals for
 * zero, as kernels run. */
Test(emit_half, bf16_of_this_cpu) {
    hd_arena *a = hd_arena_new();
    hd_diags d;
    hd_diags_init(&d, a);
    hcg_target t;
    cr_assert(hcg_find_target(&(hcg_options){.cpu = "native"}, a, &d, &t));
    hcg_level level = t.variants.at[0].level;
    level.cpu = t.variants.at[0].tune; /* with all that it has */
    if (hcg_has_feature(&level, "avx512bf16")) check_level(&level, HIR_BF16, true);
    hd_arena_free(a);
}

/* A hypervisor that masks a CPU's model number makes LLVM name an older one, which lacks what the
 * CPU has. The code is that of the features all the same: the instruction, no call. */
Test(emit_half, features_not_names) {
    const hcg_level *levels;
    size_t n = hcg_levels(&levels), tried = 0;
    for (size_t i = 0; i < n; i++) {
        if (!hcg_has_feature(&levels[i], "avx512bf16")) continue;
        hcg_level masked = levels[i];
        masked.cpu = "rocketlake";
        bench b = bench_new();
        bench_start(&b);
        hcg_program p = {.arena = b.arena, .m = b.m};
        hcg_emit e = emit_for(&b, &p, &masked);
        enter_function(&e);
        build_rows(&e, HIR_BF16);
        LLVMMemoryBufferRef code = generate(&b, LLVMAssemblyFile);
        const char *text = hd_strndup(b.arena, LLVMGetBufferStart(code), LLVMGetBufferSize(code));
        cr_expect(strstr(text, "vcvtneps2bf16"), "%s", masked.name);
        cr_expect(!strstr(text, "\tcallq\t"), "%s", text);
        LLVMDisposeMemoryBuffer(code);
        hcg_llvm_free(b.llvm);
        bench_free(&b);
        tried++;
    }
    cr_expect(tried > 0);
}

/* Without F16C, and on the other architecture: nothing is called. */
Test(emit_half, calls_nothing) {
    const hcg_level *levels;
    size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++) {
        bench b = bench_new();
        bench_start(&b);
        hcg_program p = {.arena = b.arena, .m = b.m};
        hcg_emit e = emit_for(&b, &p, &levels[i]);
        enter_function(&e);
        build_rows(&e, HIR_F16);
        LLVMMemoryBufferRef code = generate(&b, LLVMObjectFile);
        const char *call = wanted_symbol(LLVMGetBufferStart(code));
        cr_expect(!call, "%s calls %s", levels[i].name, call);
        LLVMDisposeMemoryBuffer(code);
        hcg_llvm_free(b.llvm);
        bench_free(&b);
    }
}

Test(emit_half, features_are_whole_words) {
    hcg_level level = {.features = "sse3 avx512f f16c"};
    cr_expect(hcg_has_feature(&level, "avx512f") && hcg_has_feature(&level, "f16c"));
    cr_expect(hcg_has_feature(&level, "sse3"));
    cr_expect_not(hcg_has_feature(&level, "avx512"));
    cr_expect_not(hcg_has_feature(&level, "sse"));
    cr_expect_not(hcg_has_feature(&level, "f16"));
}
