/* Helpers over the LLVM C API that every kernel emitter uses: vectors of the level's width, loops,
 * loads that widen, polynomials. No libm, no calls except intrinsics that become instructions.
 *
 * A vector value is <lanes x float>; "n" arguments are i64 counts of valid lanes (tail), where
 * lanes beyond n are neither read nor written in memory and are 0 in registers.
 */
#ifndef HCG_EMIT_H
#define HCG_EMIT_H

#include "codegen/emit/llvm.h"
#include "codegen/program/program.h"
#include "codegen/target/target.h"

/* Functions begin at cache lines: the speed of a short loop depends on where in a line it begins,
 * and should not depend on what else is in the library. */
enum { HCG_FUNCTION_ALIGN = 64 };

typedef struct hcg_emit { /* emission of kernels for one level: one LLVM module */
    hcg_program *p;
    const hcg_level *level;
    const hcg_same_code *same; /* functions that are those of another level; NULL: none */
    hd_arena *arena;
    hd_diags *diags;
    LLVMContextRef cx;
    LLVMModuleRef mod;
    LLVMBuilderRef b;
    LLVMTypeRef i1, i8, i16, i32, i64, f32, f64, ptr, vec; /* vec: <lanes x float> */
    LLVMValueRef fn;                                       /* the function being emitted; its
                                                              parameters: */
    LLVMValueRef frame, args, r0, r1, c0, c1;
    uint32_t first_arg;      /* `args` begins with this operand of the kernel */
    bool shared_elsewhere;   /* declare, and do not define, what kernels share (matrix.h) */
    bool outlined_elsewhere; /* the same for their prologues and epilogues (contract/epilogue.c) */
    uint64_t scratch;        /* bytes of scratch that the current function uses (hcg_scratch) */
    LLVMValueRef scratch_base; /* where the scratch of a prologue or epilogue begins; NULL, in a
                                  kernel: at frame->scratch */
    uint64_t outlined_scratch; /* the most that a prologue or epilogue adds to its kernel's */
    LLVMDIBuilderRef lines;    /* NULL without debug info, as are ir_file and di_scope */
    LLVMMetadataRef ir_file, di_scope;
} hcg_emit;

/* ---- debug locations ------------------------------------------------------------------------- */
/* Line tables: the location of an op in the kernel IR text becomes that of the instructions built
 * next. Without line tables it does nothing. */
void hcg_at_op(hcg_emit *e, hir_id op);
/* The scope of a function that begins at a line; NULL without line tables. */
LLVMMetadataRef hcg_function_scope(hcg_emit *e, LLVMValueRef fn, unsigned line);

/* ---- kernel arguments ------------------------------------------------------------------------ */
LLVMValueRef hcg_arg(hcg_emit *e, const hcg_kernel *k,
                     hir_ref outer); /* the argument args[i] of an outer ref or a result value */
/* Size number `i` of the kernels that share `k`, i64; a constant where it is one for all. */
LLVMValueRef hcg_size_arg(hcg_emit *e, const hcg_kernel *k, uint32_t i);
LLVMValueRef hcg_frame_t(hcg_emit *e); /* loads frame->T; likewise C, cap, scratch */
LLVMValueRef hcg_frame_c(hcg_emit *e);
LLVMValueRef hcg_frame_cap(hcg_emit *e);
LLVMValueRef hcg_frame_l3(hcg_emit *e);
LLVMValueRef hcg_frame_rank(hcg_emit *e);
LLVMValueRef hcg_frame_shared(hcg_emit *e);
LLVMValueRef hcg_frame_ranges(hcg_emit *e); /* the part of it after the counters of all kernels */
LLVMValueRef hcg_frame_owners(hcg_emit *e);
LLVMValueRef hcg_frame_dynamic(hcg_emit *e);
LLVMValueRef hcg_scratch(hcg_emit *e,
                         uint64_t bytes); /* the next `bytes` of scratch, 64-byte aligned */

/* ---- integers and pointers ------------------------------------------------------------------- */
LLVMValueRef hcg_i64(hcg_emit *e, int64_t v);
LLVMValueRef hcg_at(hcg_emit *e, LLVMTypeRef elem, LLVMValueRef base,
                    LLVMValueRef index); /* &base[index] */

/* ---- control flow ---------------------------------------------------------------------------- */
/* for (i = from; i < to; i += step) with carried values:
 *   hcg_loop l = hcg_loop_begin(e, from, to, step, "k", n, init);  ... l.index, l.carried[i] ...
 *   hcg_loop_end(e, &l, next);   then l.carried[i] are the final values
 * At most HCG_CARRY carried values. The loop may run zero times. */
enum { HCG_CARRY = 48 };
typedef struct hcg_loop {
    LLVMBasicBlockRef head, body, exit;
    LLVMValueRef index, to, step;
    unsigned n;
    LLVMValueRef carried[HCG_CARRY];
} hcg_loop;
hcg_loop hcg_loop_begin(hcg_emit *e, LLVMValueRef from, LLVMValueRef to, LLVMValueRef step,
                        const char *name, unsigned n, const LLVMValueRef *init);
void hcg_loop_end(hcg_emit *e, hcg_loop *l, const LLVMValueRef *next);

/* What follows `begin` is done where the condition holds, what follows `other` elsewhere. The code of
 * the first comes first. */
typedef struct hcg_either {
    LLVMBasicBlockRef other, done;
} hcg_either;
hcg_either hcg_either_begin(hcg_emit *e, LLVMValueRef condition, const char *name,
                            const char *other);
void hcg_either_other(hcg_emit *e, const hcg_either *b);
void hcg_either_end(hcg_emit *e, const hcg_either *b);

/* Calls `make` for the vectors of elements from .. to - 1 of a row of `width`: `at` is the first
 * element, and `valid` how many lanes there are (NULL: all). Only the last vector of a row has fewer. */
typedef void hcg_vector_fn(hcg_emit *e, const void *context, LLVMValueRef at, LLVMValueRef valid);
void hcg_each_vector(hcg_emit *e, LLVMValueRef from, LLVMValueRef to, int64_t width,
                     hcg_vector_fn *make, const void *context);
/* The smaller, or the larger, of two i64. */
LLVMValueRef hcg_smaller(hcg_emit *e, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef hcg_larger(hcg_emit *e, LLVMValueRef a, LLVMValueRef b);
/* In a block that has two predecessors: a if it is reached from the first, b from the second. */
LLVMValueRef hcg_phi(hcg_emit *e, LLVMValueRef a, LLVMValueRef b, LLVMBasicBlockRef from[2]);

enum { HCG_COUNTER_BYTES = 64 }; /* from a counter in frame->shared to the next */
/* Adds `done` to a counter of frame->shared. Code that is built next runs only in the thread whose
 * addition completes `all`; everything that other threads wrote before their additions is visible
 * there. */
typedef struct hcg_arrival {
    LLVMBasicBlockRef after;
} hcg_arrival;
hcg_arrival hcg_arrive(hcg_emit *e, LLVMValueRef counter, LLVMValueRef all, LLVMValueRef done);
void hcg_arrive_end(hcg_emit *e, const hcg_arrival *a);

/* ---- 16-bit floats (emit/half.c) ------------------------------------------------------------- */
/* The LLVM type of elements of this dtype in memory: float, i32, or i16 for the 16-bit floats. */
LLVMTypeRef hcg_element(hcg_emit *e, hir_dtype dtype);
/* f32 of stored elements, and back (i32: ids below 2^24); exact, and rounded once to nearest even
 * (NaN stays NaN, what is beyond the largest number becomes infinite). Scalars and vectors of any
 * length. */
LLVMValueRef hcg_widen(hcg_emit *e, hir_dtype dtype, LLVMValueRef stored);
LLVMValueRef hcg_narrow(hcg_emit *e, hir_dtype dtype, LLVMValueRef x);
/* ---- vectors --------------------------------------------------------------------------------- */
LLVMValueRef hcg_splat(hcg_emit *e, double value);
LLVMValueRef hcg_splat_value(hcg_emit *e, LLVMValueRef scalar); /* of any type */
/* `lanes` consecutive elements of type `dtype` from p, widened to f32. n NULL: all lanes.
 * Unaligned. */
LLVMValueRef hcg_load(hcg_emit *e, hir_dtype dtype, LLVMValueRef p, LLVMValueRef n);
void hcg_store(hcg_emit *e, LLVMValueRef p, LLVMValueRef v, LLVMValueRef n);
LLVMValueRef hcg_lane_numbers(const hcg_emit *e);        /* i32 0, 1, 2, .. */
LLVMValueRef hcg_tail_mask(hcg_emit *e, LLVMValueRef n); /* lanes [0, n) are true */
/* Stores lanes as elements of `dtype`, rounded; otherwise as hcg_load. */
void hcg_store_as(hcg_emit *e, hir_dtype dtype, LLVMValueRef p, LLVMValueRef v, LLVMValueRef n);
LLVMValueRef hcg_load_scalar(hcg_emit *e, hir_dtype dtype, LLVMValueRef p);
/* a*b + c, fused where the level has it. Works on vectors and scalars. */
LLVMValueRef hcg_fma(hcg_emit *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c);
LLVMValueRef hcg_sum_lanes(hcg_emit *e, LLVMValueRef v); /* scalar float */
LLVMValueRef hcg_max_lanes(hcg_emit *e, LLVMValueRef v);
/* to[0 .. n) = by * from[0 .. n); `by` is the same in all lanes. */
void hcg_scale_row(hcg_emit *e, LLVMValueRef from, LLVMValueRef to, int64_t n, LLVMValueRef by);
/* an elementwise op of the table on vectors or scalars (scalars go through the same polynomials) */
LLVMValueRef hcg_elementwise(hcg_emit *e, const hir_op *op, LLVMValueRef x, LLVMValueRef y);
LLVMValueRef hcg_exp(hcg_emit *e, LLVMValueRef x);

#endif
