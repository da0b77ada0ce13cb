/* What code is made for: the CPU levels of an architecture, their features, and the variants of the
 * code that a library holds. Nothing here knows a program, and nothing calls LLVM. */
#ifndef HCG_TARGET_H
#define HCG_TARGET_H

#include "support/diag.h"
#include "support/machine.h"

struct hrt_cpuid;

/* ---- levels (levels.def) --------------------------------------------------------------------- */
typedef struct hcg_level {
    const char *name, *arch, *cpu;
    unsigned lanes, registers; /* lanes: f32 of a vector; registers: for vectors */
    bool fma;
    const char *features; /* checked at run time */
    hd_machine machine;
} hcg_level;
size_t hcg_levels(const hcg_level **out);
/* Whether the level has the CPU feature `name` (as in runtime/hadal_rt.h). */
bool hcg_has_feature(const hcg_level *level, const char *name);
/* Whether the level has all of these features, with " " between; "": no feature, so it has. */
bool hcg_has_features(const hcg_level *level, const char *names);
bool hcg_has_f16(const hcg_level *level); /* widening f16 is an instruction */

/* ---- variants -------------------------------------------------------------------------------- */
/* Functions that a variant has with the same code as another, by their names without the level. */
typedef struct hcg_same_code {
    const struct hcg_variant *as;
    HD_VEC(const char *) names; /* in the order of the alphabet */
} hcg_same_code;

/* The code of all kernels for one CPU level. The features that it may use and those that the
 * dispatcher checks before it chooses the variant are one set by construction. */
typedef struct hcg_variant {
    hcg_level level;           /* name, vector width, LLVM CPU that the features start from */
    const char *tune;          /* LLVM CPU to schedule for */
    const char *llvm_features; /* "+avx,+avx2,...": all of them, as level.cpu may lack some */
    uint64_t features;         /* HRT_CPU_* that the machine must have */
    const hcg_same_code *same; /* NULL: nothing */
} hcg_variant;

typedef struct hcg_target {
    const char *triple, *arch;
    HD_VEC(hcg_variant) variants; /* best first */
} hcg_target;

/* The first part of a triple, "x86_64"; NULL: this machine's. */
const char *hcg_arch(hd_arena *a, const char *triple);
/* Whether this program runs on another architecture. */
bool hcg_is_foreign(const char *arch);
/* The variant of a level: its features, whatever the machine that compiles has. */
hcg_variant hcg_variant_of_level(hd_arena *a, const hcg_level *level);
/* The best level that has no more than these features; NULL: there is none for the architecture. */
const hcg_level *hcg_best_level(const char *arch, uint64_t features);
/* The level of an architecture that has this name; NULL: there is none. */
const hcg_level *hcg_level_named(const char *arch, const char *name);
/* The features of HRT_CPU_FEATURES that a level needs. */
uint64_t hcg_level_features(const hcg_level *level);
/* Known features by name, " " between. */
const char *hcg_feature_names(hd_arena *a, uint64_t features);

/* What the user requests. */
typedef struct hcg_request {
    const char *triple;            /* NULL: this machine's */
    const char *cpu;               /* NULL: one variant per level; "native", a level or a CPU */
    hd_machine machine;            /* facts to assume; 0: as the level has it */
    const struct hrt_cpuid *cpuid; /* CPUID of the machine that "native" means; NULL: this one */
    const char *host_cpu;          /* LLVM's name for its CPU; NULL: not known */
    /* Whether two levels with the same vectors also have the same code otherwise, so that the
     * better of them can be left out; NULL: they have. */
    bool (*same_code)(const void *context, const hcg_level *a, const hcg_level *b);
    const void *context;
} hcg_request;

/* Chooses the variants. Rejects triples and CPUs that cannot be compiled for, with the nearest
 * names. The target has the triple as it was given. */
bool hcg_choose_variants(const hcg_request *r, hd_arena *a, hd_diags *d, hcg_target *out);

#endif
