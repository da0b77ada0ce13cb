/* Code generation: kernel IR to objects, libraries, headers and packed weights.
 *
 * Its folders are a ladder. Each includes those above it in this list alone, which a test holds
 * them to (tests/includes):
 *
 *   target/      CPU levels, their features, the variants of code that a library holds
 *   program/     what is emitted, as plain data: kernels and what they share, steps, weights' places
 *   weights/       (beside) the packer: checkpoints to the file that programs read
 *   emit/        helpers over LLVM, and functions that kernels share
 *   matmul/      matrix kernels; backends/: what multiplies a matrix, by kind of instruction
 *   rowwise/     row programs: graph, schedule, emit
 *   contract/    contractions and experts: blocks of rows and panels, prologue, epilogue
 *   attention/   attention in all its forms, and what chooses the rows that it reads
 *   recurrence/  what carries something from token to token
 *   module/      kernels to LLVM modules, objects and the description of a library; C header
 *   link/        the linker
 *
 * Lowering reaches the emitters by one table, hcg_form (program/forms.h). */
#ifndef HCG_CODEGEN_H
#define HCG_CODEGEN_H

#include "ir/compile_options.h"
#include "support/machine.h"
#include "support/tensorfile.h"

/* What activations may be rounded to: rows of target/activations.def, and sets of them. */
enum {
#define A(id, name, by_default) HCG_ROUNDING_##id,
#include "codegen/target/activations.def"
#undef A
    HCG_ROUNDINGS
};
enum {
#define A(id, name, by_default) HCG_ROUND_##id = 1 << HCG_ROUNDING_##id,
#include "codegen/target/activations.def"
#undef A
    HCG_ROUND_ALL = (1 << HCG_ROUNDINGS) - 1
};
const char *hcg_rounding_name(unsigned i); /* of row i */
/* What stays f32 unless asked otherwise, as hcg_options.exact. */
unsigned hcg_exact_by_default(void);
/* "f32", or a list of what they may be rounded to; false: it is neither. */
bool hcg_read_activations(const char *text, unsigned *exact);

/* Kinds of matrices that contractions read, by storage and layout: a set has a bit for each. */
uint32_t hcg_matrix(hir_dtype dtype, hir_layout layout);
/* What activations are rounded to for them on some CPU level (matmul/backends.def). */
unsigned hcg_roundings_of(uint32_t matrices, unsigned exact);

/* What one unit of compilation is, and what it took. */
typedef struct hcg_code_event {
    const char *level;       /* whose variant; "": no level's */
    const char *part;        /* "row programs" */
    size_t functions;        /* with those that only other functions call */
    size_t instructions;     /* of LLVM's IR as it was built */
    size_t bytes;            /* of the object */
    double build, translate; /* seconds of CPU: to LLVM's IR, from there to the object */
} hcg_code_event;

typedef struct hcg_options {
    const char *triple;  /* NULL: this machine's */
    const char *cpu;     /* NULL: one variant per level of the triple; "native", a level's name
                            (target/levels.def), or an LLVM CPU name: one variant */
    hd_machine machine;  /* facts to assume, and to take for those of the machine that the library
                            runs on; 0: as the level has it, as the machine has it */
    const char *ir_file; /* kernel IR text the line tables point into, NULL: no debug info */
    int threads;         /* for parallel emission; 0: as many as CPUs */
    uint32_t matrices;   /* set by hcg_lower: the kinds of the module's (hcg_matrix); */
    bool attention;      /* and whether queries meet keys in it */
    unsigned exact;      /* of HCG_ROUND_*: what activations are not rounded to where they might */
    hir_compile_options compile; /* as the passes had them; a chunk of 0 is the default */
    const hir_module *whole;     /* as loaded: which the stages were cut from; of a model with
                                  * gradients it tells what is joined in a tensor. NULL: unknown */
    /* In place of this machine, for tests of "native": its answers, and LLVM's name for it. */
    const struct hrt_cpuid *cpuid;
    const char *host_cpu;
    /* Called for each unit of compilation, in their order, once all are compiled; NULL: not wanted.
     */
    void (*event)(void *context, const hcg_code_event *event);
    void *context;
} hcg_options;

/* `exact` for the matrices that contractions read: those of gradients round x where the option says so,
 * which concerns neither caches nor attention. */
static inline unsigned hcg_exact_products(const hcg_options *o) {
    return o->compile.matmul_dtype == HIR_BF16 ? o->exact & ~(unsigned)HCG_ROUND_BF16 : o->exact;
}

/* Everything that the emitters need to agree on, computed once from kernel IR: unique kernels,
 * steps, operands, weight offsets, digest. See codegen/program/program.h. */
typedef struct hcg_program hcg_program;
hcg_program *hcg_lower(hd_arena *a, hd_diags *d, const hir_module *m, const hcg_options *o);

/* What --activations lets be rounded and some level of the target does not: a line for each level;
 * and what it leaves out though it would be rounded by default. "" if there is none. */
bool hcg_activations_not_rounded(hcg_program *p, hd_diags *d, hd_text *out);
/* All code as one piece, all levels in it, made on one thread; needs no linker. */
typedef enum hcg_code_form {
    HCG_CODE_LLVM, /* textual LLVM IR */
    HCG_CODE_ASM,
    HCG_CODE_OBJECT
} hcg_code_form;
bool hcg_write_code(hcg_program *p, hd_diags *d, hcg_code_form form, hd_text *out);
bool hcg_emit_code(hcg_program *p, hd_diags *d, hcg_code_form form, const char *path);
/* All code as objects STEM.000.o, .. for hcg_link, made on all CPUs. On failure none is left. */
typedef struct hcg_objects {
    const char **at; /* paths */
    size_t n;
} hcg_objects;
bool hcg_emit_units(hcg_program *p, hd_diags *d, const char *stem, hcg_objects *out);
void hcg_remove_objects(hcg_objects *objects);
bool hcg_emit_header(hcg_program *p, hd_diags *d, const char *path);
/* A class of Python for a library of a model that is not divided: ctypes. */
bool hcg_emit_python(hcg_program *p, hd_diags *d, const char *path);
/* cc -shared: `cc` NULL means $CC, then cc; for another architecture than this machine's
 * ARCH-linux-gnu-gcc. `runtime`: path of libhadalrt.a, made for the same architecture. */
bool hcg_link(hcg_program *p, hd_diags *d, const hcg_objects *objects, const char *cc,
              const char *runtime, const char *path);
/* The archive that comes with the compiler, under its folder of libraries. */
const char *hcg_runtime(const hcg_program *p, const char *lib_dir);
/* What the code of each variant assumes of the machine, as comments of IR text. */
bool hcg_print_assumed(hcg_program *p, hd_diags *d, hd_text *out);
/* The schedules of all row programs at the levels of the target, as comments of IR text. */
bool hcg_print_schedules(hcg_program *p, hd_diags *d, hd_text *out);
/* Checks names, shapes and dtypes (all faults listed at once), converts, lays out, writes. */
bool hcg_pack(hcg_program *p, hd_diags *d, const hd_tensors *weights, const char *path);
/* The file of a rank of a divided model: m.r0of4.weights for m.weights. */
const char *hcg_share_path(hd_arena *a, const char *path, int64_t rank, int64_t ranks);
/* The check alone: every weight of the module is there with its shape and a float dtype, and every
 * tensor of the file is a weight of the module. Weights marked `unused` may be absent. */
bool hcg_check_weights(const hir_module *m, hd_diags *d, const hd_tensors *weights);
/* Before that: tensors get the names that the model has for them where only the beginnings differ,
 * and those are taken out of the list that are no weights and yet no fault, each kind with a note.
 * False, and an error: a head that is not the embedding that it is tied to. */
bool hcg_settle_weights(const hir_module *m, hd_diags *d, hd_tensors *weights);
/* A warning for each of those that is absent: it may be the checkpoint of another model; and how
 * many tensors are left out because their names begin as those of other parts do. */
void hcg_warn_of_absent(const hir_module *m, hd_diags *d, const hd_tensors *weights);
/* A hir_weight_source (ir/eval/eval.h) over a checkpoint; `context`: const hd_tensors *. */
bool hcg_weight_source(void *context, const hir_module *m, uint32_t w, double *out, hd_diags *d);
/* The same for a module as it was before the passes, whose weights are rounded as those of
 * `packed`, which the passes made of it, are stored. */
typedef struct hcg_rounded_weights {
    const hd_tensors *checkpoint;
    const hir_module *packed;
} hcg_rounded_weights;
bool hcg_rounded_source(void *context, const hir_module *m, uint32_t w, double *out, hd_diags *d);
/* The values of a tensor of the checkpoint (hir_part_of) as it is before training. */
void hcg_begin_weight(const hir_weight *part, uint64_t seed, float *out);
/* A checkpoint of such weights for the module, or of random ones (`draw_all`), unused ones
 * included. The same arguments give the same bytes on every machine. */
bool hcg_init_weights(const hir_module *m, hd_diags *d, uint64_t seed, bool draw_all,
                      hd_tensor_dtype dtype, const char *path);

#endif
