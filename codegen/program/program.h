/* What is emitted, as plain data, decided before any LLVM is touched, so that it can be tested and
 * printed. codegen/program/lower.c makes it from kernel IR. */
#ifndef HCG_PROGRAM_H
#define HCG_PROGRAM_H

#include "codegen/codegen.h"
#include "ir/kernel/kernels.h"
#include "runtime/hadal_rt.h"
#include "support/library_info.h"

typedef struct hcg_contraction hcg_contraction; /* program/contraction.h */

/* A size that differs between kernels that share a function, and so is an argument of its own
 * (HRT_NUMBER). Of a contraction: N, then K. Of a row program: N, such as the number of sources of
 * a depth mix (a softmax-weighted sum of earlier outputs). */
enum { HCG_N, HCG_K, HCG_SIZES };
typedef struct hcg_size {
    int64_t least, most; /* least and largest size among those kernels */
} hcg_size;

/* A size, stride or offset of a row program that depends on N: a + b N. In the types of
 * hcg_kernel.any it is written as HCG_DYNAMIC plus its index in hcg_kernel.dynamic
 * (program/row_family.h). */
typedef struct hcg_affine {
    int64_t a, b;
} hcg_affine;
#define HCG_DYNAMIC (INT64_C(1) << 40) /* more than any size */

/* A range of stacked operands of a row program: N rows of one type, wherever they lie in memory.
 * The arguments of these ranges come after all other arguments, those of one range consecutively.
 */
typedef struct hcg_run {
    hir_id value; /* of hcg_kernel.any: the stack of all these operands along dim `axis` */
    uint32_t axis;
    hcg_affine first; /* number of the first argument */
    bool replaced;    /* a result overwrites one of them */
} hcg_run;

/* One emitted function. Kernels whose bodies are equal up to the identity of their outer operands
 * (same ops, attributes, types, layouts) share one. Contractions that differ in N and K alone, and
 * row programs that differ in N alone, share one, too, where there are many of them (share.c). */
typedef struct hcg_kernel {
    hir_kernel_kind kind;
    const char *name;       /* symbol without prefix and level */
    hir_id op;              /* the first kernel op with this body: what is emitted */
    hir_kernel_phase phase; /* which numbers of tokens it is for; prefill where one function is for
                             * all */
    const hcg_contraction *contraction; /* what `op` multiplies; NULL: it is no contraction */
    HD_VEC(hir_ref)
    operands; /* outer refs of `op` in argument order: args[i] of hrt_kernel.
               * Inputs first (values read, weights, states), in order of first use in the body,
               * each once; then the kernel's results in order (results that are state are not
               * repeated: cache_append's state operand is the argument). */
    /* The prologue and epilogue of a contraction are functions of their own (contract/epilogue.c),
     * shared by all contractions whose prologue or epilogue is equal. The name of the prologue is
     * NULL if x comes from outside. The name of the epilogue lacks the number of its group; its
     * arguments begin with operand number `epilogue_first_arg` of the kernel. The module of the
     * kernel that holds such a function defines it, other modules declare it. */
    const char *prologue_name, *epilogue_name;
    uint32_t epilogue_first_arg;
    bool holds_prologue, holds_epilogue;
    uint32_t n_inputs; /* how many of the operands are read; the rest are results */
    uint32_t n_sizes;  /* arguments after the operands; 0: all sizes are those of `op` */
    hcg_size size[HCG_SIZES];
    /* Of a row program with n_sizes: the module in which `op` is emitted. Its types have dynamic
     * sizes, and it has one value for each range of stacked operands. */
    const hir_module *any;
    HD_VEC(hcg_affine) dynamic; /* sizes of `any` that depend on N, each once */
    HD_VEC(hcg_run) runs;
    uint32_t line; /* of the op in the kernel IR text, 0: unknown */
    bool products; /* it is no step, but multiplies for those of Muon (runtime/muon.c); `op` is a
                    * kernel of the gradient of a matrix */
} hcg_kernel;

/* The work of a step, counted from the kernel's body (step_work.c). For a pass of T tokens that
 * ends with C positions in the caches, over n rows (T, or the number of wanted last rows where a
 * step does only those):
 *   FLOPs  n row_flops + pair_flops for each row and position that the row attends to
 *   bytes  pass_bytes + n row_bytes + C position_bytes
 *          + the part of expert_bytes, of `experts` matrices, that n rows read, each of which
 *          selects `chosen` experts */
typedef struct hcg_step_work {
    uint64_t row_flops, pair_flops;
    uint64_t pass_bytes, row_bytes, position_bytes;
    uint64_t expert_bytes, experts, chosen;
    uint64_t state_bytes; /* part of pass_bytes: windows and carries (recurrent states), read and
                           * written */
    hir_kernel_kind kind;
    /* of the names of its weights and caches: "model.layers.3", ""; of a layer that runs several
     * times with the pass: "model.layers.3, pass 2" */
    const char *scope;
    uint32_t line; /* of the kernel in the kernel IR text */
} hcg_step_work;
struct hir_layer_passes;
/* Leaves `line` 0. `passes` may be NULL. */
hcg_step_work hcg_count_work(hd_arena *a, const hir_module *m, hir_id kernel,
                             const struct hir_layer_passes *passes);
/* The same together with the condition on which the step runs, as a library reports it. */
hd_info_step hcg_step_info(const hcg_program *p, size_t step);

/* An input or output of the program. */
typedef struct hcg_port {
    const char *name;
    hir_type type;
    uint64_t row_bytes; /* of one token; of the whole tensor if there is no T */
    uint64_t offset;    /* an output that is a gradient: that of its parameter */
} hcg_port;

#define HCG_UNREAD UINT64_MAX /* offset of a weight that no kernel reads: not in the file */

struct hcg_program {
    hd_arena *arena;
    const hir_module *m;
    hcg_options options;
    const hcg_contraction *const *contractions; /* per op; NULL: it is no contraction */
    HD_VEC(hcg_kernel) kernels;
    HD_VEC(hrt_step) steps;
    HD_VEC(hcg_step_work) work; /* of each step */
    HD_VEC(hrt_operand) operands;
    HD_VEC(hrt_collective) collectives; /* rows of the steps that communicate and have no kernel */
    HD_VEC(hrt_overlap) overlaps;       /* the steps that run while those are under way */
    HD_VEC(hrt_layer_range) runs;       /* layer ranges of a pipeline stage that has several */
    HD_VEC(hrt_tiled_steps) tiled;      /* steps that do tile after tile of the tokens, of */
    int64_t tile_tokens;                /* so many at most */
    HD_VEC(uint64_t) weight_offsets;    /* per module weight, HCG_UNREAD or a multiple of 64 */
    HD_VEC(uint32_t)
    weight_holders; /* per module weight: the weight of which it is a range of rows, and in which it
                     * lies; HIR_NONE: none. Empty: every weight has a place of its own */
    HD_VEC(hcg_port) inputs;
    HD_VEC(hcg_port) outputs;
    uint64_t weights_bytes;
    uint64_t scratch_bytes; /* the largest scratch of any kernel, filled in while kernels are
                             * emitted */
    uint64_t counter_bytes, range_bytes;        /* of hrt_frame.shared: the largest of any kernel */
    uint64_t window_ranges, window_range_bytes; /* the same of kernels with a window */
    uint64_t least_ranges;                      /* hrt_model.least_ranges */
    uint8_t digest[16];
    uint8_t id[16];     /* the program's part of the build id (program/build_id.h) */
    bool packed;        /* the weights were packed into one file, or one for each rank, */
    uint8_t values[16]; /* whose hrt_weights_header has these bytes as `content` or, of ranks, as
                         * `set` */
    /* With gradients: the weights are parameters (program/parameters.c). */
    uint64_t parameters_bytes; /* 0: the program has no gradients */
    int64_t targets;           /* logits of a row: ids of targets are below */
    HD_VEC(hrt_parameter) parameters;
    HD_VEC(hrt_part) parts;
    HD_VEC(hrt_packing) packings;
    uint64_t muon_offset, moments_bytes; /* hrt_model */
    uint64_t muon_bytes;                 /* workspace of a thread in a step of Muon */
    uint32_t products;                   /* number of the kernel that multiplies for it */
    bool is_model; /* one i32[T] input and perhaps state: NAME_forward; else NAME_call */
    int64_t vocab;
    int64_t chunk;
    const uint32_t *op_lines; /* per op, its line in the kernel IR text, 0: unknown */
};

/* Has the library NAME_gradients, and nothing else to call? */
static inline bool hcg_has_gradients(const hcg_program *p) {
    return hir_has_gradients(p->m);
}
/* Has the library NAME_loss? */
static inline bool hcg_has_loss(const hcg_program *p) {
    return hir_has_loss(p->m);
}
/* The number of stages of the pipeline that the module belongs to; 1: of none. */
static inline uint32_t hcg_stages(const hcg_program *p) {
    const int64_t stages = p->options.compile.stages;
    return stages ? (uint32_t)stages : 1;
}
/* The number of ranks that share each layer of a divided program; 1 where only the layers are
 * divided, into pipeline stages; 0: the program is not divided. */
static inline uint32_t hcg_ranks(const hcg_program *p) {
    return p->m->ranks ? p->m->ranks : hcg_stages(p) > 1 ? 1 : 0;
}

#endif
