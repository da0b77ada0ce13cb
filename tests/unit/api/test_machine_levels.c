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

#define EXPECT_IN(text, part) cr_expect(strstr(text, part), "\"%s\" is not in:\n%s", part, text)

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
