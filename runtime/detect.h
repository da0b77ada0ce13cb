/* What CPUID says of a machine: features that code may use, sizes of its caches.
 *
 * One function for the compiler (`--target-cpu native`, `hadal machine`) and for generated
 * libraries, without any state of its own: what it knows are the answers it is given. They come
 * from the instruction, or in tests from a table. A CPU's name and model number are never looked
 * at: hypervisors mask them. */
#ifndef HRT_DETECT_H
#define HRT_DETECT_H

#include "support/machine.h"

typedef struct hrt_cpuid {
    /* eax, ebx, ecx, edx of a leaf. Only asked for leaves up to the largest that leaf 0 and leaf
     * 0x80000000 name. */
    void (*ask)(const void *context, uint32_t leaf, uint32_t subleaf, uint32_t answer[4]);
    /* XCR0: which registers the operating system saves. Only asked if it says that it does. */
    uint64_t (*saved)(const void *context);
    const void *context;
} hrt_cpuid;

typedef struct hrt_machine {
    uint64_t features; /* of HRT_CPU_FEATURES (runtime/hadal_rt.h), as the OS allows them */
    hd_machine caches; /* 0 where nothing, or nonsense, is told */
} hrt_machine;

/* NULL: an architecture without CPUID, of which nothing is known beyond its name. */
hrt_machine hrt_detect(const hrt_cpuid *cpuid);
/* The instruction; NULL where there is none. */
const hrt_cpuid *hrt_cpuid_here(void);

#endif
