/* What decisions about code need to know of a machine: the one place that says so.
 *
 * A fact comes from one of three places, the first that has it: what the user says (`--machine`,
 * for experiments), what the CPU itself answers (runtime/detect.h), the row of a CPU level with
 * cautious defaults (codegen/library/levels.def). What is decided when code is made (unrolling,
 * blocks, tiles) is decided for the level's defaults, since a library runs on many machines, and
 * for the machine at hand with `--target-cpu native`. What is decided when code runs (which stores
 * are non-temporal, how much is prefetched) is decided for the machine that it runs on.
 *
 * Passes and emitters read the struct that the level carries, kernels the frame, and know no sizes
 * of their own. 0 in a field: not known. */
#ifndef HD_MACHINE_H
#define HD_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

/* F(name, type, least, most, "what it is"): sizes in bytes. An answer outside of least .. most is
 * nonsense, as hypervisors give it, and counts as none. */
#define HD_MACHINE_FACTS(F)                                                                        \
    F(line, uint32_t, 16, 1024, "a cache line")                                                    \
    F(l1, uint32_t, 4096, 1u << 20, "one core's L1 data cache")                                    \
    F(l2, uint32_t, 65536, 1u << 28, "one core's L2 cache")                                        \
    F(l3, uint64_t, 1u << 20, UINT64_C(1) << 32, "the L3 cache that cores share")

typedef struct hd_machine {
#define F(name, type, least, most, text) type name;
    HD_MACHINE_FACTS(F)
#undef F
} hd_machine;

/* The facts of `first`, and those that it lacks from `second`. */
static inline hd_machine hd_machine_or(hd_machine first, hd_machine second) {
#define F(name, type, least, most, text)                                                           \
    if (first.name == 0) first.name = second.name;
    HD_MACHINE_FACTS(F)
#undef F
    return first;
}

/* Without the facts that no machine has. */
static inline hd_machine hd_machine_sane(hd_machine m) {
#define F(name, type, least, most, text)                                                           \
    if (m.name < (least) || m.name > (most)) m.name = 0;
    HD_MACHINE_FACTS(F)
#undef F
    if (m.line & (m.line - 1)) m.line = 0; /* a power of two */
    return m;
}

/* ---- as text: for the compiler; the runtime has only what stands above -------------------------
 */
struct hd_arena;
struct hd_diags;
struct hd_text;
/* "l2=2M,l3=480M": names of facts, sizes in bytes or with K, M or G behind; the others are 0. */
bool hd_machine_parse(struct hd_arena *a, struct hd_diags *d, const char *text, hd_machine *out);
/* "line 64, l1 32K, l2 1M, l3 32M", and as a JSON object; what is 0 is left out. */
void hd_machine_print(hd_machine m, struct hd_text *out);
void hd_machine_print_json(hd_machine m, struct hd_text *out);

#endif
