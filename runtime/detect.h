/* What CPUID reports of a machine: features that code may use, sizes of its caches.
 *
 * The compiler (`--target-cpu native`, `hadal machine`) and generated libraries call the same
 * function. It keeps no state and depends on nothing but the answers of CPUID, which come from the
 * instruction or, in tests, from a table. A CPU's name and model number are never read, since
 * hypervisors mask them. */
#ifndef HRT_DETECT_H
#define HRT_DETECT_H

#include <stdbool.h>

#include "support/machine.h"

typedef struct hrt_cpuid {
    /* Gives eax, ebx, ecx, edx of a leaf. It is called only for leaves up to the largest ones,
     * which leaves 0 and 0x80000000 give. */
    void (*ask)(const void *context, uint32_t leaf, uint32_t subleaf, uint32_t answer[4]);
    /* XCR0: which registers the operating system saves. It is called only if CPUID says that XCR0
     * can be read (OSXSAVE). */
    uint64_t (*saved)(const void *context);
    /* Requests the tile registers from the operating system, for the whole process; false: it
     * rejects the request. */
    bool (*permit)(const void *context);
    const void *context;
} hrt_cpuid;

typedef struct hrt_machine {
    uint64_t
        features; /* of HRT_CPU_FEATURES (runtime/hadal_rt.h), without those that the OS lacks */
    hd_machine facts; /* 0 where CPUID reports nothing plausible */
} hrt_machine;

/* `cpuid` is NULL on an architecture without CPUID: the features are then those that the operating
 * system reports, and no cache sizes are known. */
hrt_machine hrt_detect(const hrt_cpuid *cpuid);
/* Features of aarch64 by the bits of AT_HWCAP and AT_HWCAP2 (Linux,
 * Documentation/arch/arm64/elf_hwcaps.rst). */
uint64_t hrt_features_of_arm64(uint64_t hwcap, uint64_t hwcap2);
/* Those of `features`, which the machine has, that this process may use. Some have to be requested
 * from the operating system; this function requests them, and only if they are among `features`. */
uint64_t hrt_permitted(const hrt_cpuid *cpuid, uint64_t features);
/* CPUID of this machine; NULL if its architecture has no such instruction. */
const hrt_cpuid *hrt_cpuid_here(void);

#endif
