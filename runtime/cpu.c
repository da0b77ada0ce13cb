/* The machine that this library runs on: which level it can run, and the sizes of its caches.
 *
 * A level is chosen only when the CPU has every feature that the code of the level may use, so that
 * no kernel executes an instruction which the machine lacks. Everything in this file is baseline
 * code. */
#include <stdio.h>
#include <string.h>

#include "runtime/detect.h"
#include "runtime/internal.h"

/* The machine is detected once, when the library is loaded: under a hypervisor every cpuid
 * instruction is a trap of microseconds, and plain functions choose their level in every call. */
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
    return hd_machine_or(hd_machine_or(m->machine, machine_here().facts), level->machine);
}

uint64_t hrt_level_lacks(const hrt_level *level, bool *rejected) {
    const uint64_t lacks = level->features & ~hrt_cpu_features();
    *rejected = false;
    if (lacks) return lacks;
    const uint64_t withheld = level->features & ~hrt_permitted(hrt_cpuid_here(), level->features);
    *rejected = withheld != 0;
    return withheld;
}

/* True if the machine is worse at the operations for which the compiler chose the level. A lower
 * level then has a faster way. */
static bool is_slow(const hrt_model *m, const hrt_level *level) {
    return hrt_machine_facts(m, level).bf16_dots < level->machine.bf16_dots;
}

const hrt_level *hrt_pick_level(const hrt_model *m, const char *name) {
    const hrt_level *slow = NULL;
    bool rejected;
    for (uint32_t i = 0; i < m->n_levels; i++) {
        const hrt_level *level = &m->levels[i];
        if (name && strcmp(name, level->name) != 0) continue;
        if (hrt_level_lacks(level, &rejected) != 0) continue;
        if (name || !is_slow(m, level)) return level;
        if (!slow) slow = level;
    }
    return slow;
}

void hrt_levels_here(const hrt_model *m, uint32_t *runs, uint32_t *slow) {
    bool rejected;
    *runs = *slow = 0;
    for (uint32_t i = 0; i < m->n_levels; i++) {
        if (hrt_level_lacks(&m->levels[i], &rejected) != 0) continue;
        *runs |= 1u << i;
        if (is_slow(m, &m->levels[i])) *slow |= 1u << i;
    }
}

size_t hrt_print_lacks(const hrt_level *level, char *out, size_t size) {
    static const struct {
        uint64_t bit;
        const char *name;
    } names[] = {
#define C(id, bit, name) {HRT_CPU_##id, name},
        HRT_CPU_FEATURES(C)
#undef C
    };
    bool rejected;
    const uint64_t lacks = hrt_level_lacks(level, &rejected);
    if (!lacks || !size) return 0;
    const char *who = rejected ? "the operating system does not allow" : "the CPU lacks";
    size_t n = (size_t)snprintf(out, size, "%s", who);
    for (size_t i = 0; i < sizeof names / sizeof *names && n < size; i++)
        if (lacks & names[i].bit) n += (size_t)snprintf(out + n, size - n, " %s", names[i].name);
    for (unsigned i = sizeof names / sizeof *names; i < 64 && n < size; i++)
        if (lacks >> i & 1) n += (size_t)snprintf(out + n, size - n, " feature %u", i);
    return n < size ? n : size - 1;
}
