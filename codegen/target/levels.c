/* The table of CPU levels (levels.def) as data. */
#include "codegen/emit/emit.h"

/* Rows from which on a matrix unit is faster than vectors of bytes (matmul/backends/amx/groups.c). */
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
