/* Target detection on made-up answers of CPUID: which features, caches and levels come out, and for
 * what code is made. */
#include <criterion/criterion.h>

#include "codegen/matmul/backend.h"
#include "codegen/module/module.h"
#include "runtime/detect.h"
#include "runtime/hadal_rt.h"
#include "tests/unit/diags_text.h"

/* ---- a CPU that answers from a table --------------------------------------------------------- */
typedef struct answer {
    uint32_t leaf, subleaf, eax, ebx, ecx, edx;
} answer;

typedef struct made_up {
    answer at[24];
    size_t n;
    uint64_t xcr0;
    bool rejects; /* tiles to those who ask */
} made_up;

static void ask(const void *context, uint32_t leaf, uint32_t subleaf, uint32_t out[4]) {
    const made_up *c = context;
    for (int i = 0; i < 4; i++)
        out[i] = 0;
    for (size_t i = 0; i < c->n; i++)
        if (c->at[i].leaf == leaf && c->at[i].subleaf == subleaf)
            out[0] = c->at[i].eax, out[1] = c->at[i].ebx, out[2] = c->at[i].ecx,
            out[3] = c->at[i].edx;
}

static uint64_t saved(const void *context) {
    return ((const made_up *)context)->xcr0;
}

static bool permit(const void *context) {
    return !((const made_up *)context)->rejects;
}

static hrt_cpuid cpuid_of(const made_up *c) {
    return (hrt_cpuid){ask, saved, permit, c};
}

/* The answer to be changed; it becomes part of the CPU if it was not. */
static answer *at(made_up *c, uint32_t leaf, uint32_t subleaf) {
    for (size_t i = 0; i < c->n; i++)
        if (c->at[i].leaf == leaf && c->at[i].subleaf == subleaf) return &c->at[i];
    cr_assert(c->n < sizeof c->at / sizeof *c->at);
    c->at[c->n] = (answer){.leaf = leaf, .subleaf = subleaf};
    return &c->at[c->n++];
}

enum { L1_DATA = 1 | 1 << 5, L1_CODE = 2 | 1 << 5, L2_ALL = 3 | 2 << 5, L3_ALL = 3 | 3 << 5 };
enum { INTEL_CACHES = 4 };
static const uint32_t AMD_CACHES = 0x8000001d;

static void add_cache(made_up *c, uint32_t leaf, uint32_t subleaf, uint32_t kind, uint32_t ways,
                      uint32_t sets) {
    *at(c, leaf, subleaf) = (answer){leaf, subleaf, kind, (ways - 1) << 22 | (64 - 1), sets - 1, 0};
}

/* Bits of what the levels up to AVX2 ask for, and of AVX-512 as Skylake has it. */
enum {
    LEAF1_ECX = 1 << 0 | 1 << 9 | 1 << 12 | 1 << 13 | 1 << 19 | 1 << 20 | 1 << 22 | 1 << 23 |
                1 << 27 | 1 << 28 | 1 << 29,
    AVX2_EBX = 1 << 3 | 1 << 5 | 1 << 8,
    EXTENDED_ECX = 1 << 0 | 1 << 5,
    TOPOEXT = 1 << 22,
    VNNI_ECX = 1 << 11,
    AVXVNNI_EAX = 1 << 4,
    BF16_EAX = 1 << 5,
};
static const uint32_t AVX512_EBX = AVX2_EBX | 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;
enum { SAVES_AVX = 0x07, SAVES_AVX512 = 0xe7, SAVES_TILES = 0x60000 };
enum { AMX_EDX = 1 << 22 | 1 << 24 | 1 << 25 };

static made_up avx2_cpu(void) {
    made_up c = {.xcr0 = SAVES_AVX};
    at(&c, 0, 0)->eax = 0x1f;
    at(&c, 1, 0)->ecx = LEAF1_ECX;
    at(&c, 7, 0)->ebx = AVX2_EBX;
    at(&c, 0x80000000, 0)->eax = 0x80000008;
    at(&c, 0x80000001, 0)->ecx = EXTENDED_ECX;
    return c;
}

/* Skylake's AVX-512, without any dot products. */
static made_up avx512_cpu(void) {
    made_up c = avx2_cpu();
    c.xcr0 = SAVES_AVX512;
    at(&c, 7, 0)->ebx = AVX512_EBX;
    return c;
}

/* As a hypervisor shows it that keeps the matrix unit for itself. */
static made_up granite_rapids(void) {
    made_up c = avx512_cpu();
    at(&c, 7, 0)->eax = 1;
    at(&c, 7, 0)->ecx = VNNI_ECX;
    at(&c, 7, 1)->eax = BF16_EAX | AVXVNNI_EAX;
    add_cache(&c, INTEL_CACHES, 0, L1_DATA, 12, 64);
    add_cache(&c, INTEL_CACHES, 1, L1_CODE, 16, 64);
    add_cache(&c, INTEL_CACHES, 2, L2_ALL, 16, 2048);
    add_cache(&c, INTEL_CACHES, 3, L3_ALL, 20, 393216);
    return c;
}

static made_up with_tiles(void) {
    made_up c = granite_rapids();
    c.xcr0 |= SAVES_TILES;
    at(&c, 7, 0)->edx = AMX_EDX;
    return c;
}

static made_up genoa(void) {
    made_up c = avx512_cpu();
    at(&c, 7, 0)->eax = 1;
    at(&c, 7, 0)->ecx = VNNI_ECX;
    at(&c, 7, 1)->eax = BF16_EAX;
    at(&c, 0x80000000, 0)->eax = 0x80000021;
    at(&c, 0x80000001, 0)->ecx = EXTENDED_ECX | TOPOEXT;
    add_cache(&c, AMD_CACHES, 0, L1_DATA, 8, 64);
    add_cache(&c, AMD_CACHES, 1, L1_CODE, 8, 64);
    add_cache(&c, AMD_CACHES, 2, L2_ALL, 8, 2048);
    add_cache(&c, AMD_CACHES, 3, L3_ALL, 16, 32768);
    return c;
}

/* ---- what comes out -------------------------------------------------------------------------- */
static hd_arena *arena;
static void start(void) {
    arena = hd_arena_new();
}
static void stop(void) {
    hd_arena_free(arena);
}
TestSuite(machine, .init = start, .fini = stop);

/* The variant that `--target-cpu native` makes on this CPU, which LLVM calls `name`. */
static hcg_variant native(const made_up *c, const char *name, hd_machine said) {
    hd_diags d;
    hd_diags_init(&d, arena);
    hcg_target t;
    const hrt_cpuid cpuid = cpuid_of(c);
    const hcg_options o = {.triple = "x86_64-linux-gnu",
                           .cpu = "native",
                           .cpuid = &cpuid,
                           .host_cpu = name,
                           .machine = said};
    cr_assert(hcg_find_target(&o, arena, &d, &t), "%s", diags_text(arena, &d));
    cr_assert_eq(t.variants.n, 1);
    return t.variants.at[0];
}

static bool has(const hcg_variant *v, const char *feature) {
    return hcg_has_feature(&v->level, feature);
}

static hd_machine caches_of(const made_up *c) {
    const hrt_cpuid cpuid = cpuid_of(c);
    return hrt_detect(&cpuid).facts;
}

static hd_machine defaults(const char *level) {
    const hcg_level *levels;
    for (size_t i = 0, n = hcg_levels(&levels); i < n; i++)
        if (strcmp(levels[i].name, level) == 0) return levels[i].machine;
    cr_assert(false, "there is no level %s", level);
    return (hd_machine){0};
}

#define SAME_CACHES(a, b)                                                                          \
    do {                                                                                           \
        const hd_machine one = (a), two = (b);                                                     \
        cr_assert_eq(one.line, two.line);                                                          \
        cr_assert_eq(one.l1, two.l1);                                                              \
        cr_assert_eq(one.l2, two.l2);                                                              \
        cr_assert_eq(one.l3, two.l3);                                                              \
    } while (0)

#if defined(__x86_64__)
Test(machine, a_masked_name_takes_nothing_away) {
    made_up c = granite_rapids();
    hcg_variant v = native(&c, "rocketlake", (hd_machine){0});
    cr_assert(has(&v, "avx512bf16") && has(&v, "avxvnni") && has(&v, "avx512vnni"));
    cr_assert_str_eq(v.level.name, "avx512bf16", "an older CPU's name is not this one's");
    cr_assert_str_eq(v.tune, "cooperlake");
    cr_assert_str_eq(v.level.cpu, "cooperlake");
    cr_assert_not_null(strstr(v.llvm_features, "+avx512bf16"));
}

Test(machine, a_name_that_fits_is_tuned_for) {
    made_up c = granite_rapids();
    hcg_variant v = native(&c, "graniterapids", (hd_machine){0});
    cr_assert_str_eq(v.tune, "graniterapids");
    cr_assert_str_eq(v.level.name, "graniterapids");
    c = genoa();
    v = native(&c, "znver4", (hd_machine){0});
    cr_assert_str_eq(v.tune, "znver4");
}

Test(machine, a_name_adds_no_features) {
    made_up c = avx2_cpu(); /* a Genoa whose AVX-512 the hypervisor keeps for itself */
    hcg_variant v = native(&c, "znver4", (hd_machine){0});
    cr_assert_str_eq(v.tune, "znver4");
    cr_assert_eq(v.level.lanes, 8);
    cr_assert(has(&v, "avx2") && !has(&v, "avx512f") && !has(&v, "avx512vnni"));
}

/* What the level rounds activations to beside q8 and bf16 weights: its dot products, without the
 * byte products that every AVX2 and AVX-512 CPU has. */
static unsigned rounds_of(const hcg_level *level) {
    const hcg_backend_row *bytes =
        hcg_choose_backend(level, 0, HIR_Q8, HIR_LAYOUT_PANEL, HCG_FOR_PREFILL);
    const hcg_backend_row *pairs =
        hcg_choose_backend(level, 0, HIR_BF16, HIR_LAYOUT_PANEL, HCG_FOR_PREFILL);
    const bool vnni = strstr(bytes->features, "vnni") != NULL;
    return (vnni ? bytes->rounds : 0) | pairs->rounds;
}

Test(machine, names_that_nobody_knows) {
    made_up c = avx512_cpu();
    hcg_variant v = native(&c, "quantumlake", (hd_machine){0});
    cr_assert_str_eq(v.tune, "x86-64-v4");
    v = native(&c, NULL, (hd_machine){0});
    cr_assert_str_eq(v.tune, "x86-64-v4");
}

Test(machine, avx512_without_dot_products) {
    made_up c = avx512_cpu();
    hcg_variant v = native(&c, "skylake-avx512", (hd_machine){0});
    cr_assert_eq(v.level.lanes, 16);
    cr_assert_eq(rounds_of(&v.level), 0);
    cr_assert(has(&v, "avx512f") && !has(&v, "avx512vnni") && !has(&v, "avx512bf16"));
}

Test(machine, avx2_only) {
    made_up c = avx2_cpu();
    hcg_variant v = native(&c, "haswell", (hd_machine){0});
    cr_assert_eq(v.level.lanes, 8);
    cr_assert_eq(rounds_of(&v.level), 0);
    cr_assert(has(&v, "avx2") && has(&v, "fma") && has(&v, "f16c") && !has(&v, "avx512f"));
}

Test(machine, dot_products_of_avx2) {
    made_up c = avx2_cpu();
    at(&c, 7, 0)->eax = 1;
    at(&c, 7, 1)->eax = AVXVNNI_EAX;
    hcg_variant v = native(&c, "alderlake", (hd_machine){0});
    cr_assert_eq(v.level.lanes, 8);
    cr_assert_eq(rounds_of(&v.level), HCG_ROUND_INT8);
}

/* The CPU has the instructions; the operating system does not save their registers. */
Test(machine, features_that_the_system_does_not_save) {
    made_up c = granite_rapids();
    c.xcr0 = SAVES_AVX;
    hcg_variant v = native(&c, "graniterapids", (hd_machine){0});
    cr_assert_eq(v.level.lanes, 8);
    cr_assert(has(&v, "avxvnni") && !has(&v, "avx512f") && !has(&v, "avx512bf16"));
    c.xcr0 = 0x03; /* not even ymm */
    v = native(&c, "graniterapids", (hd_machine){0});
    cr_assert_eq(v.level.lanes, 4);
    cr_assert(has(&v, "sse4.2") && !has(&v, "avx") && !has(&v, "fma") && !has(&v, "f16c"));
    c = granite_rapids();
    at(&c, 1, 0)->ecx &= ~(1u << 27); /* no XGETBV at all */
    v = native(&c, "graniterapids", (hd_machine){0});
    cr_assert_eq(v.level.lanes, 4);
}

/* Who made the CPU says how fast its dot products of bf16 are, where it has them, and with that
 * whether they are used. */
Test(machine, dot_products_by_their_maker) {
    made_up intel = granite_rapids(), amd = genoa();
    at(&intel, 0, 0)->ebx = 0x756e6547, at(&amd, 0, 0)->ebx = 0x68747541;
    cr_assert_eq(caches_of(&intel).bf16_dots, 100);
    cr_assert_eq(caches_of(&amd).bf16_dots, 200);
    hcg_variant v = native(&intel, NULL, (hd_machine){0});
    cr_assert_eq(rounds_of(&v.level) & HCG_ROUND_BF16, 0, "they gain nothing there");
    cr_assert_eq(v.level.machine.bf16_dots, 100);
    v = native(&intel, NULL, (hd_machine){.bf16_dots = 180});
    cr_assert_eq(rounds_of(&v.level) & HCG_ROUND_BF16, HCG_ROUND_BF16, "the user knows better");
    v = native(&amd, NULL, (hd_machine){0});
    cr_assert_eq(rounds_of(&v.level) & HCG_ROUND_BF16, HCG_ROUND_BF16);
    at(&amd, 0, 0)->ebx = 0x12345678; /* nobody */
    cr_assert_eq(caches_of(&amd).bf16_dots, 0);
    v = native(&amd, NULL, (hd_machine){0});
    cr_assert_eq(v.level.machine.bf16_dots, defaults("avx512bf16").bf16_dots);
    at(&amd, 0, 0)->ebx = 0x68747541;
    at(&amd, 7, 1)->eax = 0;
    cr_assert_eq(caches_of(&amd).bf16_dots, 0, "there are none");
}

/* The matrix unit: its three features, the registers that the system saves, and its permission. */
Test(machine, a_matrix_unit) {
    made_up c = with_tiles();
    hcg_variant v = native(&c, "graniterapids", (hd_machine){0});
    cr_assert_str_eq(v.level.name, "graniterapids");
    cr_assert_str_eq(v.level.cpu, "cooperlake", "LLVM may use no more than the level asks for");
    cr_assert(has(&v, "amx-tile") && has(&v, "amx-bf16") && has(&v, "amx-int8"));
    v = native(&c, "rocketlake", (hd_machine){0});
    cr_assert_str_eq(v.level.name, "amx");
    cr_assert_not_null(strstr(v.llvm_features, "+amx-bf16"));
}

Test(machine, tiles_that_the_system_rejects) {
    made_up c = with_tiles();
    c.rejects = true;
    hcg_variant v = native(&c, "rocketlake", (hd_machine){0});
    cr_assert_str_eq(v.level.name, "avx512bf16");
    cr_assert(!has(&v, "amx-tile") && !has(&v, "amx-bf16") && !has(&v, "amx-int8"));
    const hrt_cpuid cpuid = cpuid_of(&c);
    const uint64_t features = hrt_detect(&cpuid).features, plain = HRT_CPU_AVX2 | HRT_CPU_FMA;
    cr_assert(features & HRT_CPU_AMXTILE, "the CPU has them");
    cr_assert_eq(hrt_permitted(&cpuid, features) ^ features,
                 HRT_CPU_AMXTILE | HRT_CPU_AMXBF16 | HRT_CPU_AMXINT8);
    cr_assert_eq(hrt_permitted(&cpuid, plain), plain);
    cr_assert_eq(hrt_permitted(NULL, plain), plain);
}

/* Old systems save no tiles, or their configuration alone. */
Test(machine, tiles_that_the_system_does_not_save) {
    static const uint64_t part[] = {0, 0x20000, 0x40000};
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        made_up c = with_tiles();
        c.xcr0 = SAVES_AVX512 | part[i];
        hcg_variant v = native(&c, "rocketlake", (hd_machine){0});
        cr_assert_str_eq(v.level.name, "avx512bf16");
        cr_assert(!has(&v, "amx-tile"));
    }
}

/* Where one of the three is missing, what is there multiplies nothing by the unit. */
Test(machine, parts_of_a_matrix_unit) {
    static const uint32_t bits[] = {1u << 22, 1u << 24, 1u << 25};
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
        made_up c = with_tiles();
        at(&c, 7, 0)->edx &= ~bits[i];
        hcg_variant v = native(&c, "rocketlake", (hd_machine){0});
        cr_assert_str_eq(v.level.name, "avx512bf16");
        const hcg_backend_row *by = hcg_choose_backend(&v.level, HCG_ROUND_ALL, HIR_BF16,
                                                       HIR_LAYOUT_PANEL, HCG_FOR_PREFILL);
        const bool amx = strstr(by->backend->name, "amx") != NULL;
        cr_assert_eq(amx, bits[i] == 1u << 25, "bf16 products need tiles and their own feature");
    }
}

Test(machine, cpus_with_a_matrix_unit_by_name) {
    static const char *const names[] = {"sapphirerapids", "emeraldrapids", "graniterapids",
                                        "graniterapids-d"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        hd_diags d;
        hd_diags_init(&d, arena);
        hcg_target t;
        const hcg_options o = {.triple = "x86_64-linux-gnu", .cpu = names[i]};
        cr_assert(hcg_find_target(&o, arena, &d, &t));
        cr_assert_eq(t.variants.n, 1);
        cr_assert_eq(t.variants.at[0].level.machine.l2, 2 << 20);
        cr_assert(has(&t.variants.at[0], "amx-int8"));
        cr_assert_str_eq(t.variants.at[0].level.cpu, "cooperlake");
    }
}

/* Each name of cpus.def is one variant with the features of its level and those beyond. */
Test(machine, cpus_by_name) {
    static const struct {
        const char *arch, *level, *beyond, *names;
    } rows[] = {
#define C(arch, level, beyond, names) {arch, level, beyond, names},
#include "codegen/target/cpus.def"
#undef C
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const hcg_request level = {.triple = hd_printf(arena, "%s-linux-gnu", rows[i].arch),
                                   .cpu = rows[i].level};
        hd_diags d;
        hd_diags_init(&d, arena);
        hcg_target of_level, t;
        cr_assert(hcg_choose_variants(&level, arena, &d, &of_level), "%s", rows[i].level);
        char *list = hd_strdup(arena, rows[i].names), *rest = list;
        for (char *name = strtok_r(list, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
            hcg_request r = level;
            r.cpu = name;
            cr_assert(hcg_choose_variants(&r, arena, &d, &t) && t.variants.n == 1, "%s", name);
            const hcg_variant *v = &t.variants.at[0];
            cr_expect_str_eq(v->level.name, name);
            cr_expect_str_eq(v->tune, name);
            cr_expect_eq(v->level.lanes, of_level.variants.at[0].level.lanes, "%s", name);
            cr_expect_eq(of_level.variants.at[0].features & ~v->features, 0, "%s", name);
            cr_expect(hcg_has_features(&v->level, rows[i].beyond), "%s", name);
        }
    }
}

Test(machine, names_that_are_no_cpus) {
    static const struct {
        const char *arch, *name, *hint;
    } cases[] = {
        {"x86_64", "skylak", "did you mean \"skylake\"?"},
        {"x86_64", "?", "native, amx, avx512bf16, "},
        {"x86_64", "nocona", "native, amx, avx512bf16, "},
        {"x86_64", "", "native, amx, avx512bf16, "},
        {"x86_64", "haswell broadwell", "native, amx, avx512bf16, "},
        {"aarch64", "neoverse", "neoverse-"},
        {"aarch64", "haswell", "native, neonbf16, dotprod, neon, ampere1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const hcg_request r = {.triple = hd_printf(arena, "%s-linux-gnu", cases[i].arch),
                               .cpu = cases[i].name};
        hd_diags d;
        hd_diags_init(&d, arena);
        hcg_target t;
        cr_expect_not(hcg_choose_variants(&r, arena, &d, &t), "%s", cases[i].name);
        cr_expect(d.list.n == 1 && strstr(d.list.at[0].hint, cases[i].hint), "%s: %s",
                  cases[i].name, d.list.n ? d.list.at[0].hint : "");
    }
}

/* Leaf 7 beyond the largest leaf, subleaf 1 beyond the largest subleaf: what a CPU answers there
 * means nothing. */
Test(machine, leaves_that_are_not_there) {
    made_up c = granite_rapids();
    at(&c, 7, 0)->eax = 0;
    hcg_variant v = native(&c, NULL, (hd_machine){0});
    cr_assert(has(&v, "avx512vnni") && !has(&v, "avx512bf16") && !has(&v, "avxvnni"));
    at(&c, 0, 0)->eax = 2;
    v = native(&c, NULL, (hd_machine){0});
    cr_assert_eq(v.level.lanes, 4);
    SAME_CACHES(v.level.machine, defaults("baseline")); /* leaf 4 neither */
    made_up nothing = {0};
    v = native(&nothing, NULL, (hd_machine){0});
    cr_assert_str_eq(v.level.name, "baseline");
    cr_assert_eq(v.features, 0);
}

Test(machine, rejects_native_of_another_architecture) {
    hd_diags d;
    hd_diags_init(&d, arena);
    hcg_target t;
    const hcg_options o = {.triple = "aarch64-linux-gnu", .cpu = "native"};
    cr_assert(!hcg_find_target(&o, arena, &d, &t));
    cr_assert_not_null(strstr(diags_text(arena, &d), "\"native\" is not a CPU of aarch64"));
}
#endif

Test(machine, caches_of_both_makers) {
    made_up c = granite_rapids();
    SAME_CACHES(caches_of(&c),
                ((hd_machine){.line = 64, .l1 = 48 << 10, .l2 = 2 << 20, .l3 = 480u << 20}));
    c = genoa();
    SAME_CACHES(caches_of(&c),
                ((hd_machine){.line = 64, .l1 = 32 << 10, .l2 = 1 << 20, .l3 = 32u << 20}));
    at(&c, 0x80000001, 0)->ecx &= ~TOPOEXT; /* then the leaf means nothing */
    SAME_CACHES(caches_of(&c), ((hd_machine){0}));
}

Test(machine, what_is_not_told_is_as_the_level_assumes) {
    made_up c = avx512_cpu(); /* without leaf 4 */
    SAME_CACHES(caches_of(&c), ((hd_machine){0}));
    hcg_variant v = native(&c, NULL, (hd_machine){0});
    SAME_CACHES(v.level.machine, defaults("avx512"));
    add_cache(&c, INTEL_CACHES, 0, L2_ALL, 16, 2048); /* of all facts this one */
    v = native(&c, NULL, (hd_machine){0});
    hd_machine expected = defaults("avx512");
    expected.l2 = 2 << 20;
    SAME_CACHES(v.level.machine, expected);
}

Test(machine, what_the_user_says_comes_first) {
    made_up c = granite_rapids();
    hcg_variant v = native(&c, NULL, (hd_machine){.l3 = 32 << 20});
    SAME_CACHES(v.level.machine,
                ((hd_machine){.line = 64, .l1 = 48 << 10, .l2 = 2 << 20, .l3 = 32 << 20}));
    hd_diags d;
    hd_diags_init(&d, arena);
    hcg_target t;
    const hcg_options o = {.triple = "x86_64-linux-gnu", .machine = {.l2 = 3 << 20}};
    cr_assert(hcg_find_target(&o, arena, &d, &t));
    for (size_t i = 0; i < t.variants.n; i++)
        cr_assert_eq(t.variants.at[i].level.machine.l2, 3 << 20);
}

Test(machine, sizes_that_no_cache_has) {
    made_up c = genoa();
    add_cache(&c, AMD_CACHES, 0, L1_DATA, 1, 1);            /* 64 bytes */
    add_cache(&c, AMD_CACHES, 2, L2_ALL, 1024, 0xffffffff); /* 256 TB */
    add_cache(&c, AMD_CACHES, 3, L3_ALL, 1024, 1u << 20);   /* 64 GB */
    at(&c, AMD_CACHES, 0)->ebx = 0;                         /* a line of one byte */
    SAME_CACHES(caches_of(&c), ((hd_machine){0}));
    c = genoa();
    at(&c, AMD_CACHES, 0)->ebx = 7 << 22 | (48 - 1); /* no power of two */
    cr_assert_eq(caches_of(&c).line, 0);
    at(&c, AMD_CACHES, 3)->ebx = 0xffffffff; /* line, partitions and ways: all ones */
    at(&c, AMD_CACHES, 3)->ecx = 0xffffffff;
    cr_assert_eq(caches_of(&c).l3, 0);
}

/* A leaf whose every subleaf describes one more cache ends all the same. */
static void ask_endlessly(const void *context, uint32_t leaf, uint32_t subleaf, uint32_t out[4]) {
    (void)context, (void)subleaf;
    out[0] = leaf == 0 ? 0x1f : L1_DATA;
    out[1] = 7 << 22 | 63, out[2] = 63, out[3] = 0;
}

Test(machine, a_list_of_caches_without_end) {
    made_up c = {0};
    const hrt_cpuid cpuid = {ask_endlessly, saved, permit, &c};
    cr_assert_eq(hrt_detect(&cpuid).facts.l1, 32 << 10);
}

Test(machine, no_cpuid) {
    const hrt_machine m = hrt_detect(NULL);
    cr_assert_eq(m.features, 0);
    SAME_CACHES(m.facts, ((hd_machine){0}));
    hd_diags d;
    hd_diags_init(&d, arena);
    hcg_target t;
    const hcg_options o = {.triple = "aarch64-linux-gnu"};
    cr_assert(hcg_find_target(&o, arena, &d, &t));
    SAME_CACHES(t.variants.at[0].level.machine, defaults("neon"));
}

/* aarch64 has no CPUID: the operating system's bits, of which one is looked at in each word. */
Test(machine, features_of_arm64) {
    const uint64_t bytes = UINT64_C(1) << 20, halves = UINT64_C(1) << 14;
    cr_assert_eq(hrt_features_of_arm64(0, 0), 0);
    cr_assert_eq(hrt_features_of_arm64(bytes, 0), HRT_CPU_DOTPROD);
    cr_assert_eq(hrt_features_of_arm64(0, halves), HRT_CPU_BF16);
    cr_assert_eq(hrt_features_of_arm64(bytes, halves), HRT_CPU_DOTPROD | HRT_CPU_BF16);
    cr_assert_eq(hrt_features_of_arm64(~bytes, ~halves), 0);
    cr_assert_eq(hrt_features_of_arm64(halves, bytes), 0, "bits of the other word");
}

/* A library for aarch64 has the level with dot products of bytes if it has weights in groups, that
 * with products of bf16 if it has weights of bf16 whose activations may be rounded to it, and by a
 * CPU's name what that CPU has. */
Test(machine, levels_of_arm64) {
    hd_diags d;
    hd_diags_init(&d, arena);
    hcg_target t;
    hcg_options o = {.triple = "aarch64-linux-gnu",
                     .matrices = hcg_matrix(HIR_F32, HIR_LAYOUT_PANEL)};
    cr_assert(hcg_find_target(&o, arena, &d, &t));
    cr_assert_eq(t.variants.n, 1);
    cr_assert_str_eq(t.variants.at[0].level.name, "neon");
    o.matrices |= hcg_matrix(HIR_Q4, HIR_LAYOUT_PANEL);
    cr_assert(hcg_find_target(&o, arena, &d, &t));
    cr_assert_eq(t.variants.n, 2);
    cr_assert_str_eq(t.variants.at[0].level.name, "dotprod");
    cr_assert_str_eq(t.variants.at[0].llvm_features, "+dotprod");
    o.exact = HCG_ROUND_ALL;
    cr_assert(hcg_find_target(&o, arena, &d, &t));
    cr_assert_eq(t.variants.n, 1, "nothing may be rounded");
    o.matrices = hcg_matrix(HIR_BF16, HIR_LAYOUT_PANEL);
    cr_assert(hcg_find_target(&o, arena, &d, &t));
    cr_assert_eq(t.variants.n, 1);
    o.exact = 0;
    cr_assert(hcg_find_target(&o, arena, &d, &t));
    cr_assert_eq(t.variants.n, 2);
    cr_assert_str_eq(t.variants.at[0].level.name, "neonbf16");
    cr_assert_str_eq(t.variants.at[0].llvm_features, "+dotprod,+bf16");
    cr_assert_str_eq(t.variants.at[1].level.name, "neon");
    o.machine.bf16_dots = 149; /* too slow to be worth the rounding */
    cr_assert(hcg_find_target(&o, arena, &d, &t));
    cr_assert_eq(t.variants.n, 1);
    o = (hcg_options){.triple = "aarch64-linux-gnu", .cpu = "neoverse-n1"};
    cr_assert(hcg_find_target(&o, arena, &d, &t));
    cr_assert(has(&t.variants.at[0], "dotprod"));
    cr_assert_not(has(&t.variants.at[0], "bf16"));
    o.cpu = "neoverse-v1";
    cr_assert(hcg_find_target(&o, arena, &d, &t));
    cr_assert(has(&t.variants.at[0], "dotprod"));
    cr_assert(has(&t.variants.at[0], "bf16"));
    cr_assert_eq(t.variants.at[0].level.machine.bf16_dots, 200);
    o.cpu = "cortex-a53";
    cr_assert(hcg_find_target(&o, arena, &d, &t));
    cr_assert_not(has(&t.variants.at[0], "dotprod"));
}

Test(machine, this_one) {
    const hrt_machine m = hrt_detect(hrt_cpuid_here());
    cr_assert_eq(m.features, hrt_cpu_features(), "compiler and runtime see the same");
    SAME_CACHES(m.facts, hd_machine_sane(m.facts));
}

Test(machine, every_level_knows_all_facts) {
    const hcg_level *levels;
    for (size_t i = 0, n = hcg_levels(&levels); i < n; i++) {
        const hd_machine m = levels[i].machine;
        SAME_CACHES(m, hd_machine_sane(m));
        cr_assert(m.line && m.l1 && m.l2 && m.l3, "%s", levels[i].name);
    }
}

/* ---- facts as text --------------------------------------------------------------------------- */
static const char *printed(hd_machine m, bool json) {
    hd_text text;
    hd_text_init(&text, arena);
    (json ? hd_machine_print_json : hd_machine_print)(m, &text);
    return text.at ? text.at : "";
}

Test(machine, facts_are_read_and_printed) {
    hd_diags d;
    hd_diags_init(&d, arena);
    hd_machine m;
    cr_assert(hd_machine_parse(arena, &d, "l2=2M,l3=480M", &m));
    SAME_CACHES(m, ((hd_machine){.l2 = 2 << 20, .l3 = 480u << 20}));
    cr_assert_str_eq(printed(m, false), "l2 2M, l3 480M");
    cr_assert_str_eq(printed(m, true), "{\"l2\": 2097152, \"l3\": 503316480}");
    cr_assert(hd_machine_parse(arena, &d, "line=64,l1=32769,l3=4G", &m));
    SAME_CACHES(m, ((hd_machine){.line = 64, .l1 = 32769, .l3 = UINT64_C(4) << 30}));
    cr_assert_str_eq(printed(m, false), "line 64, l1 32769, l3 4G");
    cr_assert(hd_machine_parse(arena, &d, "bf16_dots=100,matrix_unit=1600,unit_rows=8", &m));
    cr_assert_str_eq(printed(m, false), "bf16_dots 100, matrix_unit 1600, unit_rows 8");
    cr_assert_str_eq(printed((hd_machine){0}, true), "{}");
    cr_assert_eq(d.errors, 0);
}

Test(machine, facts_that_are_rejected) {
    static const char *const texts[] = {"",
                                        "l2",
                                        "l4=1M",
                                        "l2=",
                                        "l2=M",
                                        "l2=2X",
                                        "l2=-2M",
                                        "l2=2M,",
                                        "=2M",
                                        "l2=2 M",
                                        "l2=0",
                                        "l1=1",
                                        "l3=5G",
                                        "l3=1K",
                                        "line=48",
                                        "bf16_dots=0",
                                        "bf16_dots=10001",
                                        "matrix_unit=1.5",
                                        "l2=1KM",
                                        "l2=2M;l1=1",
                                        "l3=99999999999999999999",
                                        "l3=17179869184G"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        hd_diags d;
        hd_diags_init(&d, arena);
        hd_machine m;
        cr_expect(!hd_machine_parse(arena, &d, texts[i], &m), "\"%s\"", texts[i]);
        cr_expect_eq(d.errors, 1, "\"%s\": %zu errors", texts[i], d.errors);
        cr_expect_not_null(strstr(diags_text(arena, &d), "hint"), "\"%s\"", texts[i]);
    }
}
