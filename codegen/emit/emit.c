/* Helpers over the LLVM C API (emit.h): arguments of kernels, loops, vectors that know their tail.
 *
 * Instructions are emitted in the form in which they shall be selected: kernels need no optimiser
 * to be fast. Floating point is strict except where written: sums over lanes may be reassociated,
 * multiply-adds may be fused. Nothing ever claims that NaN or infinity cannot occur.
 */
#include "codegen/emit/emit.h"

#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"

#include <string.h>

/* ---- builders over any width ----------------------------------------------------------------- */

unsigned hcg_lanes(LLVMTypeRef type) {
    return LLVMGetTypeKind(type) == LLVMVectorTypeKind ? LLVMGetVectorSize(type) : 0;
}

LLVMTypeRef hcg_like(LLVMTypeRef like, LLVMTypeRef elem) {
    unsigned lanes = hcg_lanes(like);
    return lanes ? LLVMVectorType(elem, lanes) : elem;
}

static LLVMValueRef splat_constant(LLVMTypeRef type, LLVMValueRef scalar) {
    enum { MOST = 64 };
    unsigned lanes = hcg_lanes(type);
    LLVMValueRef all[MOST];
    if (!lanes) return scalar;
    for (unsigned i = 0; i < lanes && i < MOST; i++)
        all[i] = scalar;
    return LLVMConstVector(all, lanes < MOST ? lanes : MOST);
}

static LLVMTypeRef element_type(LLVMTypeRef type) {
    return hcg_lanes(type) ? LLVMGetElementType(type) : type;
}

LLVMValueRef hcg_real_like(LLVMTypeRef type, double value) {
    return splat_constant(type, LLVMConstReal(element_type(type), value));
}

LLVMValueRef hcg_int_like(LLVMTypeRef type, uint64_t value) {
    return splat_constant(type, LLVMConstInt(element_type(type), value, false));
}

LLVMValueRef hcg_intrinsic(hcg_emit *e, const char *name, const LLVMTypeRef *overloads, unsigned n,
                           const LLVMValueRef *args, unsigned n_args) {
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    LLVMValueRef fn = LLVMGetIntrinsicDeclaration(e->mod, id, (LLVMTypeRef *)overloads, n);
    LLVMTypeRef type = LLVMIntrinsicGetType(e->cx, id, (LLVMTypeRef *)overloads, n);
    return LLVMBuildCall2(e->b, type, fn, (LLVMValueRef *)args, n_args, "");
}

static LLVMValueRef intrinsic1(hcg_emit *e, const char *name, LLVMValueRef x) {
    LLVMTypeRef type = LLVMTypeOf(x);
    return hcg_intrinsic(e, name, &type, 1, &x, 1);
}

LLVMValueRef hcg_abs(hcg_emit *e, LLVMValueRef x) {
    return intrinsic1(e, "llvm.fabs", x);
}

LLVMValueRef hcg_sqrt(hcg_emit *e, LLVMValueRef x) {
    return intrinsic1(e, "llvm.sqrt", x);
}

/* a if a is NaN, else (a > b ? a : b), which is b when b is NaN: one compare and blend more than
 * the machine's max, which drops a NaN in its first operand. */
LLVMValueRef hcg_max(hcg_emit *e, LLVMValueRef a, LLVMValueRef b) {
    LLVMValueRef greater = LLVMBuildFCmp(e->b, LLVMRealOGT, a, b, "");
    LLVMValueRef m = LLVMBuildSelect(e->b, greater, a, b, "max");
    LLVMValueRef nan = LLVMBuildFCmp(e->b, LLVMRealUNO, a, a, "");
    return LLVMBuildSelect(e->b, nan, a, m, "max");
}

LLVMValueRef hcg_min(hcg_emit *e, LLVMValueRef a, LLVMValueRef b) {
    LLVMValueRef less = LLVMBuildFCmp(e->b, LLVMRealOLT, a, b, "");
    LLVMValueRef m = LLVMBuildSelect(e->b, less, a, b, "min");
    LLVMValueRef nan = LLVMBuildFCmp(e->b, LLVMRealUNO, a, a, "");
    return LLVMBuildSelect(e->b, nan, a, m, "min");
}

LLVMValueRef hcg_fma(hcg_emit *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c) {
    LLVMTypeRef type = LLVMTypeOf(a);
    LLVMValueRef args[] = {a, b, c};
    return hcg_intrinsic(e, e->level->fma ? "llvm.fma" : "llvm.fmuladd", &type, 1, args, 3);
}

/* ---- integers and pointers ------------------------------------------------------------------- */

LLVMValueRef hcg_i64(hcg_emit *e, int64_t v) {
    return LLVMConstInt(e->i64, (unsigned long long)v, true);
}

LLVMValueRef hcg_at(hcg_emit *e, LLVMTypeRef elem, LLVMValueRef base, LLVMValueRef index) {
    return LLVMBuildInBoundsGEP2(e->b, elem, base, &index, 1, "");
}

/* ---- debug locations ------------------------------------------------------------------------- */
LLVMMetadataRef hcg_function_scope(hcg_emit *e, LLVMValueRef fn, unsigned line) {
    LLVMDIBuilderRef b = e->lines;
    if (!b) return NULL;
    size_t n;
    const char *name = LLVMGetValueName2(fn, &n);
    LLVMMetadataRef type =
        LLVMDIBuilderCreateSubroutineType(b, e->ir_file, NULL, 0, LLVMDIFlagZero);
    LLVMMetadataRef scope =
        LLVMDIBuilderCreateFunction(b, e->ir_file, name, n, name, n, e->ir_file, line, type, true,
                                    true, line, LLVMDIFlagZero, true);
    LLVMSetSubprogram(fn, scope);
    return scope;
}

void hcg_at_op(hcg_emit *e, hir_id op) {
    if (!e->di_scope || !e->p->op_lines) return;
    LLVMMetadataRef at =
        LLVMDIBuilderCreateDebugLocation(e->cx, e->p->op_lines[op], 3, e->di_scope, NULL);
    LLVMSetCurrentDebugLocation2(e->b, at);
}

/* ---- kernel arguments ------------------------------------------------------------------------ */

/* A load at the very start of the function, so that its value can be used anywhere. */
static LLVMValueRef load_at_entry(hcg_emit *e, LLVMTypeRef type, LLVMValueRef base, uint64_t offset,
                                  const char *name) {
    LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b);
    LLVMBasicBlockRef entry = LLVMGetEntryBasicBlock(e->fn);
    LLVMMetadataRef loc = LLVMGetCurrentDebugLocation2(e->b);
    LLVMValueRef first = LLVMGetFirstInstruction(entry);
    if (first)
        LLVMPositionBuilderBefore(e->b, first);
    else
        LLVMPositionBuilderAtEnd(e->b, entry);
    LLVMSetCurrentDebugLocation2(e->b, loc);
    LLVMValueRef p = hcg_at(e, e->i8, base, hcg_i64(e, (int64_t)offset));
    LLVMValueRef v = LLVMBuildLoad2(e->b, type, p, name);
    LLVMSetAlignment(v, 8);
    LLVMPositionBuilderAtEnd(e->b, here);
    LLVMSetCurrentDebugLocation2(e->b, loc);
    return v;
}

/* The number of the argument that holds `outer`, or operands.n. A result that is a state is the
 * state's own argument. */
static size_t find_operand(const hcg_emit *e, const hcg_kernel *k, hir_ref outer) {
    size_t i = 0;
    while (i < k->operands.n && !hir_ref_equal(k->operands.at[i], outer))
        i++;
    if (i < k->operands.n || outer.kind != HIR_REF_VALUE) return i;
    const hir_value *v = hir_value_at(e->p->m, outer.index);
    if (v->place != HIR_PLACE_STATE) return i;
    return find_operand(e, k, hir_state_ref((uint32_t)v->offset));
}

/* The argument's offset in bytes from e->args; it is negative, modulo 2^64, for an argument that
 * an epilogue reads before its first one. */
static uint64_t arg_offset(const hcg_emit *e, size_t operand) {
    return ((uint64_t)operand - e->first_arg) * sizeof(void *);
}

LLVMValueRef hcg_arg(hcg_emit *e, const hcg_kernel *k, hir_ref outer) {
    size_t i = find_operand(e, k, outer);
    if (i == k->operands.n) { /* lowering and emission disagree: a defect, reported */
        hd_err(e->diags, HD_E_INTERNAL, *hir_op_at(e->p->m, k->op)->loc,
               "kernel %s reads an operand that is not among its arguments", k->name);
        return LLVMConstNull(e->ptr);
    }
    return load_at_entry(e, e->ptr, e->args, arg_offset(e, i), "arg");
}

LLVMValueRef hcg_size_arg(hcg_emit *e, const hcg_kernel *k, uint32_t i) {
    if (k->size[i].least == k->size[i].most) return hcg_i64(e, k->size[i].most);
    return load_at_entry(e, e->i64, e->args, arg_offset(e, k->operands.n + i), "size");
}

LLVMValueRef hcg_frame_t(hcg_emit *e) {
    return load_at_entry(e, e->i64, e->frame, offsetof(hrt_frame, T), "T");
}

LLVMValueRef hcg_frame_c(hcg_emit *e) {
    return load_at_entry(e, e->i64, e->frame, offsetof(hrt_frame, C), "C");
}

LLVMValueRef hcg_frame_cap(hcg_emit *e) {
    return load_at_entry(e, e->i64, e->frame, offsetof(hrt_frame, cap), "cap");
}

LLVMValueRef hcg_frame_l3(hcg_emit *e) {
    return load_at_entry(e, e->i64, e->frame, offsetof(hrt_frame, l3), "l3");
}

LLVMValueRef hcg_frame_rank(hcg_emit *e) {
    return load_at_entry(e, e->i64, e->frame, offsetof(hrt_frame, rank), "rank");
}

LLVMValueRef hcg_frame_shared(hcg_emit *e) {
    return load_at_entry(e, e->ptr, e->frame, offsetof(hrt_frame, shared), "shared");
}

/* Counters are 0 whenever no kernel uses them, so no kernel may write anything else where another
 * has counters: the partial results of ranges of keys lie after the most counters that any kernel
 * of the program has. */
LLVMValueRef hcg_frame_ranges(hcg_emit *e) {
    return hcg_at(e, e->i8, hcg_frame_shared(e), hcg_i64(e, (int64_t)e->p->counter_bytes));
}

LLVMValueRef hcg_frame_owners(hcg_emit *e) {
    return load_at_entry(e, e->ptr, e->frame, offsetof(hrt_frame, owners), "owners");
}

LLVMValueRef hcg_frame_dynamic(hcg_emit *e) {
    return load_at_entry(e, e->ptr, e->frame, offsetof(hrt_frame, dynamic), "dynamic");
}

LLVMValueRef hcg_scratch(hcg_emit *e, uint64_t bytes) {
    const uint64_t at = hrt_aligned(e->scratch);
    e->scratch = at + bytes;
    LLVMValueRef base = e->scratch_base;
    if (!base) base = load_at_entry(e, e->ptr, e->frame, offsetof(hrt_frame, scratch), "scratch");
    return hcg_at(e, e->i8, base, hcg_i64(e, (int64_t)at));
}

/* ---- control flow ---------------------------------------------------------------------------- */

hcg_loop hcg_loop_begin(hcg_emit *e, LLVMValueRef from, LLVMValueRef to, LLVMValueRef step,
                        const char *name, unsigned n, const LLVMValueRef *init) {
    hcg_loop l = {.to = to, .step = step, .n = n};
    LLVMBasicBlockRef before = LLVMGetInsertBlock(e->b);
    l.head = LLVMAppendBasicBlockInContext(e->cx, e->fn, name);
    l.body = LLVMAppendBasicBlockInContext(e->cx, e->fn, "body");
    l.exit = LLVMAppendBasicBlockInContext(e->cx, e->fn, "done");
    LLVMBuildBr(e->b, l.head);
    LLVMPositionBuilderAtEnd(e->b, l.head);
    l.index = LLVMBuildPhi(e->b, LLVMTypeOf(from), name);
    LLVMAddIncoming(l.index, &from, &before, 1);
    for (unsigned i = 0; i < n; i++) {
        l.carried[i] = LLVMBuildPhi(e->b, LLVMTypeOf(init[i]), "");
        LLVMAddIncoming(l.carried[i], (LLVMValueRef *)&init[i], &before, 1);
    }
    LLVMValueRef more = LLVMBuildICmp(e->b, LLVMIntSLT, l.index, to, "");
    LLVMBuildCondBr(e->b, more, l.body, l.exit);
    LLVMPositionBuilderAtEnd(e->b, l.body);
    return l;
}

void hcg_loop_end(hcg_emit *e, hcg_loop *l, const LLVMValueRef *next) {
    LLVMBasicBlockRef latch = LLVMGetInsertBlock(e->b);
    LLVMValueRef index = LLVMBuildNSWAdd(e->b, l->index, l->step, "");
    LLVMAddIncoming(l->index, &index, &latch, 1);
    for (unsigned i = 0; i < l->n; i++)
        LLVMAddIncoming(l->carried[i], (LLVMValueRef *)&next[i], &latch, 1);
    LLVMBuildBr(e->b, l->head);
    LLVMMoveBasicBlockAfter(l->exit, latch); /* blocks stand in program order */
    LLVMPositionBuilderAtEnd(e->b, l->exit);
}

hcg_either hcg_either_begin(hcg_emit *e, LLVMValueRef condition, const char *name,
                            const char *other) {
    LLVMBasicBlockRef first = LLVMAppendBasicBlockInContext(e->cx, e->fn, name);
    const hcg_either b = {LLVMAppendBasicBlockInContext(e->cx, e->fn, other),
                          LLVMAppendBasicBlockInContext(e->cx, e->fn, "either")};
    LLVMBuildCondBr(e->b, condition, first, b.other);
    LLVMPositionBuilderAtEnd(e->b, first);
    return b;
}

void hcg_either_other(hcg_emit *e, const hcg_either *b) {
    LLVMBuildBr(e->b, b->done);
    LLVMPositionBuilderAtEnd(e->b, b->other);
}

void hcg_either_end(hcg_emit *e, const hcg_either *b) {
    LLVMBuildBr(e->b, b->done);
    LLVMPositionBuilderAtEnd(e->b, b->done);
}

void hcg_each_vector(hcg_emit *e, LLVMValueRef from, LLVMValueRef to, int64_t width,
                     hcg_vector_fn *make, const void *context) {
    const int64_t lanes = e->level->lanes, rest = width % lanes;
    LLVMValueRef whole = hcg_sub(e, to, hcg_i64(e, lanes - 1));
    hcg_loop l = hcg_loop_begin(e, from, whole, hcg_i64(e, lanes), "vector", 0, NULL);
    make(e, context, l.index, NULL);
    hcg_loop_end(e, &l, NULL);
    if (!rest) return;
    hcg_loop last = hcg_loop_begin(e, l.index, to, hcg_i64(e, lanes), "rest", 0, NULL);
    make(e, context, last.index, hcg_i64(e, rest));
    hcg_loop_end(e, &last, NULL);
}

LLVMValueRef hcg_smaller(hcg_emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, a, b, ""), a, b, "");
}

LLVMValueRef hcg_larger(hcg_emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntSGT, a, b, ""), a, b, "");
}

LLVMValueRef hcg_phi(hcg_emit *e, LLVMValueRef a, LLVMValueRef b, LLVMBasicBlockRef from[2]) {
    LLVMValueRef phi = LLVMBuildPhi(e->b, LLVMTypeOf(a), "");
    LLVMAddIncoming(phi, (LLVMValueRef[]){a, b}, from, 2);
    return phi;
}

hcg_arrival hcg_arrive(hcg_emit *e, LLVMValueRef counter, LLVMValueRef all, LLVMValueRef done) {
    counter = hcg_mul_const(e, counter, HCG_COUNTER_BYTES);
    counter = hcg_at(e, e->i8, hcg_frame_shared(e), counter);
    LLVMValueRef before = LLVMBuildAtomicRMW(e->b, LLVMAtomicRMWBinOpAdd, counter, done,
                                             LLVMAtomicOrderingAcquireRelease, false);
    LLVMBasicBlockRef last = LLVMAppendBasicBlockInContext(e->cx, e->fn, "last");
    hcg_arrival a = {LLVMAppendBasicBlockInContext(e->cx, e->fn, "arrived")};
    LLVMValueRef complete =
        LLVMBuildICmp(e->b, LLVMIntEQ, hcg_add(e, before, done), all, "complete");
    LLVMBuildCondBr(e->b, complete, last, a.after);
    LLVMPositionBuilderAtEnd(e->b, last);
    LLVMBuildStore(e->b, hcg_i64(e, 0), counter);
    return a;
}

void hcg_arrive_end(hcg_emit *e, const hcg_arrival *a) {
    LLVMBuildBr(e->b, a->after);
    LLVMPositionBuilderAtEnd(e->b, a->after);
}

/* ---- vectors --------------------------------------------------------------------------------- */

LLVMValueRef hcg_splat(hcg_emit *e, double value) {
    return hcg_real_like(e->vec, value);
}

static LLVMValueRef splat_to(hcg_emit *e, LLVMTypeRef type, LLVMValueRef scalar) {
    LLVMValueRef one = LLVMBuildInsertElement(e->b, LLVMGetPoison(type), scalar,
                                              LLVMConstInt(e->i32, 0, false), "");
    LLVMTypeRef mask = LLVMVectorType(e->i32, hcg_lanes(type));
    return LLVMBuildShuffleVector(e->b, one, LLVMGetPoison(type), LLVMConstNull(mask), "splat");
}

LLVMValueRef hcg_splat_value(hcg_emit *e, LLVMValueRef scalar) {
    return splat_to(e, LLVMVectorType(LLVMTypeOf(scalar), e->level->lanes), scalar);
}

LLVMValueRef hcg_lane_numbers(const hcg_emit *e) {
    LLVMValueRef at[64];
    for (unsigned i = 0; i < e->level->lanes; i++)
        at[i] = LLVMConstInt(e->i32, i, false);
    return LLVMConstVector(at, e->level->lanes);
}

LLVMValueRef hcg_tail_mask(hcg_emit *e, LLVMValueRef n) {
    unsigned lanes = e->level->lanes;
    LLVMValueRef at[64];
    if (LLVMIsAConstantInt(n)) {
        int64_t valid = LLVMConstIntGetSExtValue(n);
        for (unsigned i = 0; i < lanes; i++)
            at[i] = LLVMConstInt(e->i1, i < valid, false);
        return LLVMConstVector(at, lanes);
    }
    LLVMValueRef count = LLVMBuildTrunc(e->b, n, e->i32, "");
    LLVMValueRef all = splat_to(e, LLVMVectorType(e->i32, lanes), count);
    return LLVMBuildICmp(e->b, LLVMIntSLT, hcg_lane_numbers(e), all, "tail");
}

static bool is_all_lanes(hcg_emit *e, LLVMValueRef n) {
    return !n || (LLVMIsAConstantInt(n) && LLVMConstIntGetSExtValue(n) >= e->level->lanes);
}

/* Masked access is an instruction: vmaskmov for 4-byte elements from AVX on, any size with AVX-512.
 * Elsewhere a tail of known length is accessed lane by lane; one of unknown length is left to the
 * code generator, which makes a branch for each lane. */
static bool has_masked(const hcg_emit *e, unsigned element_bytes) {
    return e->level->lanes == 16 || (e->level->lanes == 8 && element_bytes == 4);
}

static LLVMValueRef load_lanes(hcg_emit *e, LLVMTypeRef elem, unsigned bytes, LLVMValueRef p,
                               LLVMValueRef n) {
    LLVMTypeRef type = LLVMVectorType(elem, e->level->lanes);
    if (is_all_lanes(e, n)) {
        LLVMValueRef v = LLVMBuildLoad2(e->b, type, p, "");
        LLVMSetAlignment(v, bytes);
        return v;
    }
    if (!has_masked(e, bytes) && LLVMIsAConstantInt(n)) {
        LLVMValueRef v = LLVMConstNull(type);
        for (int64_t i = 0; i < LLVMConstIntGetSExtValue(n); i++) {
            LLVMValueRef x = LLVMBuildLoad2(e->b, elem, hcg_at(e, elem, p, hcg_i64(e, i)), "");
            LLVMSetAlignment(x, bytes);
            v = LLVMBuildInsertElement(e->b, v, x, LLVMConstInt(e->i32, (unsigned)i, false), "");
        }
        return v;
    }
    LLVMTypeRef overloads[] = {type, e->ptr};
    LLVMValueRef args[] = {p, LLVMConstInt(e->i32, bytes, false), hcg_tail_mask(e, n),
                           LLVMConstNull(type)};
    return hcg_intrinsic(e, "llvm.masked.load", overloads, 2, args, 4);
}

LLVMValueRef hcg_load(hcg_emit *e, hir_dtype dtype, LLVMValueRef p, LLVMValueRef n) {
    unsigned bytes = (unsigned)hir_dtype_bytes(dtype);
    return hcg_widen(e, dtype, load_lanes(e, hcg_element(e, dtype), bytes, p, n));
}

LLVMValueRef hcg_load_scalar(hcg_emit *e, hir_dtype dtype, LLVMValueRef p) {
    LLVMValueRef v = LLVMBuildLoad2(e->b, hcg_element(e, dtype), p, "");
    LLVMSetAlignment(v, (unsigned)hir_dtype_bytes(dtype));
    return hcg_widen(e, dtype, v);
}

void hcg_store_as(hcg_emit *e, hir_dtype dtype, LLVMValueRef p, LLVMValueRef v, LLVMValueRef n) {
    LLVMTypeRef elem = hcg_element(e, dtype);
    unsigned bytes = (unsigned)hir_dtype_bytes(dtype);
    v = hcg_narrow(e, dtype, v);
    if (!hcg_lanes(LLVMTypeOf(v)) || is_all_lanes(e, n)) {
        LLVMSetAlignment(LLVMBuildStore(e->b, v, p), bytes);
        return;
    }
    if (!has_masked(e, bytes) && LLVMIsAConstantInt(n)) {
        for (int64_t i = 0; i < LLVMConstIntGetSExtValue(n); i++) {
            LLVMValueRef lane = LLVMConstInt(e->i32, (unsigned)i, false);
            LLVMValueRef x = LLVMBuildExtractElement(e->b, v, lane, "");
            LLVMSetAlignment(LLVMBuildStore(e->b, x, hcg_at(e, elem, p, hcg_i64(e, i))), bytes);
        }
        return;
    }
    LLVMTypeRef overloads[] = {LLVMTypeOf(v), e->ptr};
    LLVMValueRef args[] = {v, p, LLVMConstInt(e->i32, bytes, false), hcg_tail_mask(e, n)};
    hcg_intrinsic(e, "llvm.masked.store", overloads, 2, args, 4);
}

void hcg_store(hcg_emit *e, LLVMValueRef p, LLVMValueRef v, LLVMValueRef n) {
    hcg_store_as(e, HIR_F32, p, v, n);
}

LLVMValueRef hcg_sum_lanes(hcg_emit *e, LLVMValueRef v) {
    LLVMTypeRef type = LLVMTypeOf(v);
    LLVMValueRef args[] = {LLVMConstReal(e->f32, -0.0), v};
    LLVMValueRef sum = hcg_intrinsic(e, "llvm.vector.reduce.fadd", &type, 1, args, 2);
    LLVMSetFastMathFlags(sum, LLVMFastMathAllowReassoc); /* a tree of shuffles, not a chain */
    return sum;
}

/* Combines the upper half of the lanes with the lower half until one lane is left. */
LLVMValueRef hcg_max_lanes(hcg_emit *e, LLVMValueRef v) {
    LLVMValueRef at[64];
    for (unsigned half = hcg_lanes(LLVMTypeOf(v)) / 2; half; half /= 2) {
        for (unsigned i = 0; i < half; i++)
            at[i] = LLVMConstInt(e->i32, half + i, false);
        LLVMValueRef high = LLVMBuildShuffleVector(e->b, v, LLVMGetPoison(LLVMTypeOf(v)),
                                                   LLVMConstVector(at, half), "");
        for (unsigned i = 0; i < half; i++)
            at[i] = LLVMConstInt(e->i32, i, false);
        LLVMValueRef low = LLVMBuildShuffleVector(e->b, v, LLVMGetPoison(LLVMTypeOf(v)),
                                                  LLVMConstVector(at, half), "");
        v = hcg_max(e, low, high);
    }
    return LLVMBuildExtractElement(e->b, v, LLVMConstInt(e->i32, 0, false), "");
}

void hcg_scale_row(hcg_emit *e, LLVMValueRef from, LLVMValueRef to, int64_t n, LLVMValueRef by) {
    int64_t lanes = e->level->lanes, whole = n / lanes * lanes;
    LLVMValueRef rest = hcg_i64(e, whole), left = hcg_i64(e, n - whole);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), rest, hcg_i64(e, lanes), "scale", 0, NULL);
    LLVMValueRef x = hcg_load(e, HIR_F32, hcg_at(e, e->f32, from, l.index), NULL);
    hcg_store(e, hcg_at(e, e->f32, to, l.index), hcg_fmul(e, x, by), NULL);
    hcg_loop_end(e, &l, NULL);
    if (whole == n) return;
    x = hcg_load(e, HIR_F32, hcg_at(e, e->f32, from, rest), left);
    hcg_store(e, hcg_at(e, e->f32, to, rest), hcg_fmul(e, x, by), left);
}
