/* The machine model: facts about a machine that decisions about code need.
 *
 * A fact comes from the first of three sources that has it: the user (`--machine`, for
 * experiments), CPUID (runtime/detect.h), the cautious defaults of the CPU level
 * (codegen/target/levels.def). Decisions of the compiler (unrolling, blocks, tiles) use the
 * defaults of the level, since a library runs on many machines, or with `--target-cpu native` the
 * facts of the machine that compiles. Decisions of generated code and the runtime (which stores are
 * non-temporal, how much is prefetched) use the facts of the machine that they run on.
 *
 * Passes and emitters read these facts from hcg_level, kernels from hrt_frame; no other file has
 * sizes of caches. A field that is 0 is not known.
 *
 * Rates are relative, since they are only used to decide which of two ways is faster, and they are
 * the same at any clock: multiply-adds of one kind that are done in the time of 100 with f32
 * vectors. `hadal machine` measures both sides.
 *
 * `in_flight`, what a core has on its way from memory, is the product of its bandwidth and memory's
 * latency. It is the distance at which streams are prefetched ahead of their use
 * (codegen/target/prefetch_distance.h). CPUID does not report it; it changes no bit of a result. */
#ifndef HD_MACHINE_H
#define HD_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

/* F(name, type, least, most, "what it is"): sizes in bytes, and rates. A value outside of least ..
 * most (hypervisors report such) counts as not known. */
#define HD_MACHINE_FACTS(F)                                                                        \
    F(line, uint32_t, 16, 1024, "a cache line")                                                    \
    F(l1, uint32_t, 4096, 1u << 20, "one core's L1 data cache")                                    \
    F(l2, uint32_t, 65536, 1u << 28, "one core's L2 cache")                                        \
    F(l3, uint64_t, 1u << 20, UINT64_C(1) << 32, "the L3 cache that cores share")                  \
    F(bf16_dots, uint32_t, 1, 10000, "the rate of bf16 dot products")                              \
    F(matrix_unit, uint32_t, 1, 100000, "the rate of the matrix unit with bf16")                   \
    F(unit_rows, uint32_t, 1, 1000, "rows from which it multiplies q8, q4, mxfp4; f32: 4 times")   \
    F(unit_bytes, uint32_t, 1, 1, "1: it multiplies q8, q4 and mxfp4 as bytes, not as bf16")       \
    F(in_flight, uint32_t, 256, 65536, "what one core has on its way from memory")

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

/* The facts with implausible values cleared. */
static inline hd_machine hd_machine_sane(hd_machine m) {
#define F(name, type, least, most, text)                                                           \
    if (m.name < (least) || m.name > (most)) m.name = 0;
    HD_MACHINE_FACTS(F)
#undef F
    if (m.line & (m.line - 1)) m.line = 0; /* a power of two */
    return m;
}

/* ---- as text: for the compiler; the runtime has only what stands above ----------------------- */
struct hd_arena;
struct hd_diags;
struct hd_text;
/* Parses "l2=2M,bf16_dots=100": names of facts with plain numbers, or numbers followed by K, M or
 * G. Facts that are not named are 0. */
bool hd_machine_parse(struct hd_arena *a, struct hd_diags *d, const char *text, hd_machine *out);
/* Prints "line 64, l1 32K, l2 1M, l3 32M, bf16_dots 200", or a JSON object; facts that are 0 are
 * left out. */
void hd_machine_print(hd_machine m, struct hd_text *out);
void hd_machine_print_json(hd_machine m, struct hd_text *out);

#endif
