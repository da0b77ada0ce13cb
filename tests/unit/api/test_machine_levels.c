/* What `hadal machine` says of CPU levels, on machines that are not this one. */
#include <criterion/criterion.h>
#include <string.h>

#include "api/machine_levels.h"
#include "runtime/hadal_rt.h"

static hadal_session *s;

static void begin(void) {
    s = hadal_open();
}

static void end(void) {
    hadal_close(s);
}

TestSuite(machine_levels, .init = begin, .fini = end, .timeout = 60);

static uint64_t features_of(const char *name) {
    const hcg_level *all;
    const size_t n = hcg_levels(&all);
    for (size_t i = 0; i < n; i++)
        if (strcmp(all[i].name, name) == 0) return hcg_level_features(&all[i]);
    return 0;
}

static const char *written(const machine_levels *x, bool json) {
    hd_text text;
    hd_text_init(&text, s->arena);
    (json ? machine_levels_json : machine_levels_text)(x, &text);
    return text.at;
}

#define EXPECT_IN(text, part) cr_expect(strstr(text, part), "\"%s\" is not in:\n%s", part, text)

/* Cooper Lake: dot products of bf16 without tiles, at the rate of multiply-adds. */
Test(machine_levels, slow_dot_products_are_told) {
    const machine_levels x =
        machine_levels_of("x86_64", features_of("avx512bf16"), (hd_machine){.bf16_dots = 100});
    const char *text = written(&x, false), *json = written(&x, true);
    EXPECT_IN(text,
              "avx512bf16 runs, but is passed over: bf16_dots is 100 here, its code is for 200\n");
    EXPECT_IN(text, "avx512vnni runs\n");
    EXPECT_IN(text, "avx2       runs\n");
    EXPECT_IN(text, "amx        lacks amx-tile amx-bf16 amx-int8\n");
    cr_expect_null(strstr(text, "neon"), "of another architecture");
    EXPECT_IN(json, "{\"name\": \"avx512bf16\", \"runs\": true, \"lacks\": [], \"passed_over\": "
                    "{\"bf16_dots\": 100, \"assumed\": 200}}");
    EXPECT_IN(json, "{\"name\": \"avx512vnni\", \"runs\": true, \"lacks\": []}");
}

/* Zen 4, a machine with tiles, whose code counts on no more, and one of an unknown maker. */
Test(machine_levels, others_are_not) {
    const hd_machine amd = {.bf16_dots = 200}, intel = {.bf16_dots = 100}, unknown = {0};
    const machine_levels zen = machine_levels_of("x86_64", features_of("avx512bf16"), amd);
    cr_expect_null(strstr(written(&zen, false), "passed over"));
    const machine_levels other = machine_levels_of("x86_64", features_of("avx512bf16"), unknown);
    cr_expect_null(strstr(written(&other, false), "passed over"));
    const machine_levels old = machine_levels_of("x86_64", features_of("avx2"), intel);
    cr_expect_null(strstr(written(&old, false), "passed over"), "what it cannot run it lacks");
    const machine_levels tiles = machine_levels_of("x86_64", features_of("amx"), intel);
    EXPECT_IN(written(&tiles, false), "levels        amx        runs\n");
}

Test(machine_levels, a_level_by_its_name) {
    const machine_levels x = machine_levels_of("x86_64", features_of("avx2"), (hd_machine){0});
    const hcg_level *found = machine_find_level(s, &x, "avx2");
    cr_assert_not_null(found);
    cr_expect_str_eq(found->name, "avx2");
    cr_expect_eq(hadal_diagnostics(s), 0);
    cr_expect_null(machine_find_level(s, &x, "avx512"));
    const hd_diag lacks = s->diags.list.at[0];
    cr_expect_eq(lacks.code, HD_E_RUNTIME);
    EXPECT_IN(lacks.message, "the CPU level avx512 does not run on this machine");
    EXPECT_IN(lacks.cause, "it lacks avx512f");
    EXPECT_IN(lacks.hint, "levels that run here: avx2, baseline");
    cr_expect_null(machine_find_level(s, &x, "neon"), "of another architecture");
    const hd_diag unknown = s->diags.list.at[1];
    cr_expect_eq(unknown.code, HD_E_USAGE);
    EXPECT_IN(unknown.cause, "levels: amx, avx512bf16");
}
