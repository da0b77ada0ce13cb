/* The machine that this library runs on: which level it can run, and the sizes of its caches.
 *
 * A level is chosen only when the CPU has every feature its code may use, so that no kernel can
 * meet an instruction the machine lacks. Everything in this file is baseline code. */
#include <string.h>

#include "runtime/detect.h"
#include "runtime/internal.h"

/* Asked once, when the library is loaded: under a hypervisor every cpuid is a trap of microseconds,
 * and plain functions choose their level in every call. */
static hrt_machine machine_at_load;
static bool asked;
__attribute__((constructor)) static void ask_at_load(void) {
    machine_at_load = hrt_detect(hrt_cpuid_here());
    asked = true;
}

static hrt_machine machine_here(void) {
    return asked ? machine_at_load : hrt_detect(hrt_cpuid_here());
}

uint64_t hrt_cpu_features(void) {
    return machine_here().features;
}

hd_machine hrt_machine_facts(const hrt_model *m, const hrt_level *level) {
    return hd_machine_or(hd_machine_or(m->machine, machine_here().caches), level->machine);
}

const hrt_level *hrt_pick_level(const hrt_model *m, const char *name) {
    uint64_t have = hrt_cpu_features();
    for (uint32_t i = 0; i < m->n_levels; i++) {
        const hrt_level *level = &m->levels[i];
        if (name && strcmp(name, level->name) != 0) continue;
        if ((level->features & ~have) == 0) return level;
    }
    return NULL;
}
