/* The table of CPU levels (levels.def) as data, and queries on its rows. */
#include "codegen/target/target.h"

#include <stdio.h>
#include <string.h>

/* The number of rows from which on a matrix unit is faster than vectors of bytes
 * (matmul/backends/amx/int8.c). */
enum { UNIT_ROWS = 16 };

#define MACHINE(l1_kb, l2_kb, l3_mb, flight_kb, dots, unit)                                        \
    {                                                                                              \
        .line = 64, .l1 = (l1_kb) << 10, .l2 = (l2_kb) << 10, .l3 = UINT64_C(l3_mb) << 20,         \
        .bf16_dots = (dots), .matrix_unit = (unit), .unit_rows = (unit) ? UNIT_ROWS : 0,           \
        .in_flight = (flight_kb) << 10                                                             \
    }

static const hcg_level levels[] = {
#define L(id, name, arch, cpu, lanes, registers, fma, l1_kb, l2_kb, l3_mb, flight_kb, dots, unit,  \
          features)                                                                                \
    {name,      arch, cpu,      lanes,                                                             \
     registers, fma,  features, MACHINE(l1_kb, l2_kb, l3_mb, flight_kb, dots, unit)},
#include "codegen/target/levels.def"
#undef L
};

size_t hcg_levels(const hcg_level **out) {
    *out = levels;
    return sizeof levels / sizeof levels[0];
}

bool hcg_has_feature(const hcg_level *level, const char *name) {
    size_t n = strlen(name);
    for (const char *at = level->features; (at = strstr(at, name)); at += n)
        if ((at == level->features || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
    return false;
}

bool hcg_has_features(const hcg_level *level, const char *names) {
    char name[32];
    for (size_t n; *names; names += n + strspn(names + n, " ")) {
        n = strcspn(names, " ");
        snprintf(name, sizeof name, "%.*s", (int)n, names);
        if (!hcg_has_feature(level, name)) return false;
    }
    return true;
}

bool hcg_has_f16(const hcg_level *level) {
    return strcmp(level->arch, "aarch64") == 0 || hcg_has_feature(level, "f16c");
}
