/* The table of CPU levels (targets.def) as data. */
#include "codegen/emit.h"

static const hcg_level levels[] = {
#define L(id, name, arch, cpu, lanes, registers, fma, dots, features)                              \
    {name, arch, cpu, lanes, registers, fma, dots, features},
#include "codegen/targets.def"
#undef L
};

size_t hcg_levels(const hcg_level **out) {
    *out = levels;
    return sizeof levels / sizeof levels[0];
}
