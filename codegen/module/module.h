/* What the files that make libraries share: variants.c, module.c, constants.c, describe.c,
 * object.c, header.c. */
#ifndef HCG_MODULE_H
#define HCG_MODULE_H

#include "codegen/emit/emit.h"

/* ---- variants.c ------------------------------------------------------------------------------ */
/* The variants that the options request, without those whose code would equal that of the next
 * level. It does not call LLVM: the triple is as given, and a "native" CPU has its name from the
 * options alone. */
bool hcg_find_variants(const hcg_options *o, hd_arena *a, hd_diags *d, hcg_target *out);
/* The same with the triple and the CPU as LLVM calls them: what code is generated for. */
bool hcg_find_target(const hcg_options *o, hd_arena *a, hd_diags *d, hcg_target *out);

/* ---- constants.c ----------------------------------------------------------------------------- */
/* Makes the two structs that describe a library, with all that they point to, as globals of a
 * module. functions[level * n_kernels + kernel]: the `kernels` of each level. */
LLVMValueRef hcg_model_constant(hd_arena *a, LLVMModuleRef mod, const hrt_model *m,
                                LLVMValueRef *functions);
LLVMValueRef hcg_info_constant(hd_arena *a, LLVMModuleRef mod, const hd_info *i);

/* ---- describe.c ------------------------------------------------------------------------------ */
/* Adds the constant hrt_model, hadal_info and the public functions to a module that holds (or
 * declares) all kernels: functions[variant * kernels + kernel]. */
void hcg_describe(hcg_program *p, const hcg_target *t, LLVMModuleRef mod, LLVMBuilderRef b,
                  LLVMValueRef *functions);
/* The hrt_model that it describes, without the `kernels` of its levels. */
hrt_model hcg_model_of(hcg_program *p, const hcg_target *t);
/* "options" of the model: the options it was compiled with, as JSON. */
const char *hcg_options_json(hcg_program *p, const hcg_target *t);
/* Does the library have functions for weights? Models always do. */
static inline bool hcg_has_weights(const hcg_program *p) {
    return p->is_model || (p->weights_bytes > 0 && !hcg_has_gradients(p));
}
/* Does a plain function take a number of tokens? */
bool hcg_has_tokens(const hcg_program *p);

/* ---- module.c -------------------------------------------------------------------------------- */
/* LLVM's objects, freed with the arena at the latest (an arena may end by longjmp). */
typedef struct hcg_llvm {
    LLVMContextRef cx;
    LLVMModuleRef mod;
    LLVMTargetMachineRef tm;
    LLVMBuilderRef b;
    LLVMDIBuilderRef lines; /* NULL: no line tables, or they are complete */
    LLVMMetadataRef ir_file;
    LLVMCodeGenOptLevel effort;
    hd_diags *diags;
} hcg_llvm;
/* Makes a module. LLVMCodeGenLevelDefault is for loops whose order of instructions matters; Less
 * omits a second scheduling of instructions, which takes a tenth of the time and makes no
 * difference to row programs. */
hcg_llvm *hcg_llvm_new(hd_arena *a, hd_diags *d, const hcg_target *t, const char *name,
                       LLVMCodeGenOptLevel level);
void hcg_llvm_free(hcg_llvm *l);

/* Some kernels of one variant, and which of their functions a module holds. */
typedef struct hcg_unit {
    const hcg_variant *variant;
    const uint32_t *kernels; /* indices into program.kernels; NULL: 0 .. n - 1 */
    size_t n;
    enum {
        HCG_WHOLE,
        HCG_KERNELS, /* with prologues and epilogues, without the shared functions (matrix.h) */
        HCG_TILES,   /* of the shared functions, the products of contractions, which many models
                      * have in common */
        HCG_SHARED,  /* the other shared functions */
    } holds;
    bool no_lines; /* without line tables, whatever the options say */
} hcg_unit;

/* The most bytes of scratch that a kernel uses, and that a prologue or epilogue uses after it. */
typedef struct hcg_scratch_needs {
    uint64_t kernels, outlined;
} hcg_scratch_needs;

/* NAME_kernel: what the function of a kernel is called, without the level. */
const char *hcg_kernel_name(const hcg_program *p, hd_arena *a, const hcg_kernel *k);
/* Emits the body of a kernel's function (program/forms.h). False, with a diagnostic: it has none.
 */
bool hcg_emit_kernel(hcg_emit *e, const hcg_kernel *k);
/* Sets the CPU for which a function is compiled. The function has exactly the features of the
 * variant: what LLVM knows of a CPU by its name neither adds to them nor removes any. Vectors of
 * the level's width are legal, whatever width the CPU's tuning prefers for loops. */
void hcg_set_function_target(LLVMValueRef fn, const hcg_variant *v);
/* Emits the unit into l->mod; functions[kernel] becomes the function of each kernel, and *scratch
 * grows to what they need. It only reads the program: several units may be emitted at the same
 * time, each with an arena of its own. */
bool hcg_emit_unit(hcg_program *p, hcg_llvm *l, hd_arena *a, const hcg_unit *unit,
                   LLVMValueRef *functions, hcg_scratch_needs *scratch);
/* The number of instructions of a function; 0 for a declaration. */
size_t hcg_instructions(LLVMValueRef fn);
/* Declares all kernels of a variant in a module that only refers to them. */
void hcg_declare_variant(const hcg_program *p, hd_arena *a, LLVMModuleRef mod, const hcg_variant *v,
                         LLVMValueRef *functions);
/* Completes the line tables, runs LLVM's verifier and the few passes that pay. */
bool hcg_finish_module(hcg_llvm *l);
/* Finishes the module and generates code. kind: LLVMObjectFile or LLVMAssemblyFile. An object may
 * come from a cache (code_cache.h). */
bool hcg_generate(hcg_llvm *l, LLVMCodeGenFileType kind, LLVMMemoryBufferRef *out);

#endif
