/* Code generation: kernel IR to objects, libraries, headers and packed weights. */
#ifndef HCG_CODEGEN_H
#define HCG_CODEGEN_H

#include "ir/ir.h"
#include "support/tensorfile.h"

/* Dot products in one instruction, for which x is rounded. */
enum {
    HCG_DOTS_INT8 = 1, /* of bytes: weights in groups (contract/groups.h) */
    HCG_DOTS_BF16 = 2, /* of pairs: bf16 weights (contract/pairs.h) */
    HCG_DOTS = 3,
};

/* What a part of code generation was and took. */
typedef struct hcg_code_event {
    const char *level;       /* whose body; "": that of no level */
    const char *part;        /* "row programs" */
    size_t functions;        /* with those that only other functions call */
    size_t instructions;     /* of LLVM's IR as it was built */
    size_t bytes;            /* of the object */
    double build, translate; /* seconds of CPU: to LLVM's IR, from there to the object */
} hcg_code_event;

typedef struct hcg_options {
    const char *triple;  /* NULL: this machine's */
    const char *cpu;     /* NULL: one body per level of the triple; "native", a level's name
                            (library/levels.def), or an LLVM CPU name: one body */
    const char *ir_file; /* kernel IR text the line tables point into, NULL: no debug info */
    int threads;         /* for parallel emission; 0: as many as CPUs */
    unsigned dots;       /* set by hcg_lower, of HCG_DOTS: what kernels have use for */
    unsigned exact;      /* of HCG_DOTS: where x stays f32 although these would be faster */
    int64_t chunk;       /* most tokens of one pass through the kernels; 0: 512 */
    /* What passes were asked to do, for the library to tell: */
    const char *weight_types;           /* as --weights-dtype has it; NULL: "f32" */
    hir_dtype bank_dtype, phase1_dtype; /* 0: f32 */
    bool tile_tokens, norm_of_rows;
    /* Hears of all parts of an object in their order, once it is made; NULL: nobody does. */
    void (*event)(void *context, const hcg_code_event *event);
    void *context;
} hcg_options;

/* Everything that the emitters need to agree on, computed once from kernel IR: unique kernels,
 * steps, operands, weight offsets, digest. See codegen/program.h. */
typedef struct hcg_program hcg_program;
hcg_program *hcg_lower(hd_arena *a, hd_diags *d, const hir_module *m, const hcg_options *o);

bool hcg_emit_object(hcg_program *p, hd_diags *d, const char *path);
bool hcg_emit_llvm(hcg_program *p, hd_diags *d,
                   const char *path); /* textual LLVM IR, all levels in one file */
bool hcg_emit_asm(hcg_program *p, hd_diags *d, const char *path);
bool hcg_emit_header(hcg_program *p, hd_diags *d, const char *path);
/* cc -shared: `cc` NULL means $CC, then cc; for another architecture than this machine's
 * ARCH-linux-gnu-gcc. `runtime`: path of libhadalrt.a, made for the same architecture. */
bool hcg_link(hcg_program *p, hd_diags *d, const char *object, const char *cc, const char *runtime,
              const char *path);
/* The archive that comes with the compiler, under its folder of libraries. */
const char *hcg_runtime(const hcg_program *p, const char *lib_dir);
/* The schedules of all row programs at the levels of the target, as comments of IR text. */
bool hcg_print_schedules(hcg_program *p, hd_diags *d, hd_text *out);
/* Checks names, shapes and dtypes (all faults listed at once), converts, lays out, writes. */
bool hcg_pack(hcg_program *p, hd_diags *d, const hd_tensors *weights, const char *path);
/* The check alone: every weight of the module is there with its shape and a float dtype, and every
 * tensor of the file is a weight of the module. Weights marked `unused` may be absent. */
bool hcg_check_weights(const hir_module *m, hd_diags *d, const hd_tensors *weights);
/* A warning for each of those that is absent: it may be the checkpoint of another model. */
void hcg_warn_of_absent(const hir_module *m, hd_diags *d, const hd_tensors *weights);
/* A hir_weight_source (ir/eval.h) over a checkpoint; `context`: const hd_tensors *. */
bool hcg_weight_source(void *context, const hir_module *m, uint32_t w, double *out, hd_diags *d);
/* A checkpoint of seeded random weights for the module, unused ones included. The same arguments
 * give the same bytes on every machine. */
bool hcg_init_weights(const hir_module *m, hd_diags *d, uint64_t seed, hd_tensor_dtype dtype,
                      const char *path);

#endif
