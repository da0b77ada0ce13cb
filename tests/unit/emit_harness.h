/* For tests and benchmarks of kernel emitters: one kernel op of a module, emitted for one CPU
 * level, compiled to an object and loaded into this process. Without the passes, lowering and the
 * runtime: what is tested is the emitter alone.
 */
#ifndef EMIT_HARNESS_H
#define EMIT_HARNESS_H

#include <llvm-c/Analysis.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/emit.h"

typedef struct bench {
    hd_arena *arena;
    hd_diags diags;
    hir_module *m;
} bench;

static inline bench bench_new(void) {
    bench b = {.arena = hd_arena_new()};
    b.m = hir_module_new(b.arena, "test");
    b.m->stage = HIR_STAGE_KERNEL;
    return b;
}

/* hd_diags keeps a pointer to the arena only, but the struct itself must stay where it is. */
static inline void bench_start(bench *b) {
    hd_diags_init(&b->diags, b->arena);
}

static inline void bench_free(bench *b) {
    hd_arena_free(b->arena);
}

static inline const char *bench_errors(bench *b) {
    hd_text t;
    hd_text_init(&t, b->arena);
    hd_text_add(&t, "");
    for (size_t i = 0; i < b->diags.list.n; i++)
        hd_diag_render(&b->diags.list.at[i], false, &t);
    return t.at;
}

/* The levels that this machine can run. */
static inline bool level_runs(const hcg_level *l) {
    if (strcmp(l->arch, "x86_64") != 0) return false;
    if (!strcmp(l->name, "avx512"))
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
    if (!strcmp(l->name, "avx2"))
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    return true;
}

/* ---- operands in the order of hcg_kernel.operands ----------------------------------------------
 */

static inline void add_operand(bench *b, hcg_kernel *k, hir_ref r) {
    if (r.kind == HIR_REF_NONE) return;
    if (r.kind == HIR_REF_VALUE) {
        const hir_value *v = hir_value_at(b->m, r.index);
        if (v->op != HIR_NONE && hir_op_at(b->m, v->op)->parent == k->op) return;
        if (v->place == HIR_PLACE_STATE) r = hir_state_ref((uint32_t)v->offset);
    }
    for (size_t i = 0; i < k->operands.n; i++)
        if (hir_ref_equal(k->operands.at[i], r)) return;
    hd_push(b->arena, &k->operands, r);
}

static inline hcg_kernel kernel_of(bench *b, hcg_kind kind, hir_id op, bool one) {
    hcg_kernel k = {.kind = kind, .name = "kernel", .op = op, .one = one};
    HIR_EACH(b->m, id, hir_op_at(b->m, op)->body_first)
    for (uint32_t i = 0; i < hir_op_at(b->m, id)->n_args; i++)
        add_operand(b, &k, hir_op_at(b->m, id)->args[i]);
    k.n_inputs = (uint32_t)k.operands.n;
    for (uint32_t i = 0; i < hir_op_at(b->m, op)->n_results; i++)
        if (hir_value_at(b->m, hir_op_at(b->m, op)->results[i])->place != HIR_PLACE_STATE)
            hd_push(b->arena, &k.operands, hir_value_ref(hir_op_at(b->m, op)->results[i]));
    return k;
}

/* ---- compiling ---------------------------------------------------------------------------------
 */

typedef struct compiled {
    hcg_kernel k;
    hrt_kernel *call;
    uint64_t scratch;
    size_t code_bytes; /* of the object */
    LLVMOrcLLJITRef jit;
} compiled;

static inline void harness_check(LLVMErrorRef error) {
    if (!error) return;
    fprintf(stderr, "%s\n", LLVMGetErrorMessage(error));
    exit(1);
}

static inline void add_attribute(LLVMContextRef cx, LLVMValueRef fn, const char *key,
                                 const char *value) {
    LLVMAttributeRef a =
        LLVMCreateStringAttribute(cx, key, (unsigned)strlen(key), value, (unsigned)strlen(value));
    LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex, a);
}

static inline LLVMTargetMachineRef machine_for(const hcg_level *level) {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMTargetRef target;
    char *message = NULL;
    if (LLVMGetTargetFromTriple("x86_64-unknown-linux-gnu", &target, &message)) exit(1);
    return LLVMCreateTargetMachine(target, "x86_64-unknown-linux-gnu", level->cpu, "",
                                   LLVMCodeGenLevelAggressive, LLVMRelocPIC, LLVMCodeModelDefault);
}

static inline void enter_function(hcg_emit *e) {
    LLVMTypeRef params[] = {e->ptr, e->ptr, e->i64, e->i64, e->i64, e->i64};
    LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(e->cx), params, 6, false);
    e->fn = LLVMAddFunction(e->mod, "kernel", type);
    add_attribute(e->cx, e->fn, "target-cpu", e->level->cpu);
    if (e->level->lanes == 16) add_attribute(e->cx, e->fn, "prefer-vector-width", "512");
    e->frame = LLVMGetParam(e->fn, 0), e->args = LLVMGetParam(e->fn, 1);
    e->r0 = LLVMGetParam(e->fn, 2), e->r1 = LLVMGetParam(e->fn, 3);
    e->c0 = LLVMGetParam(e->fn, 4), e->c1 = LLVMGetParam(e->fn, 5);
    LLVMPositionBuilderAtEnd(e->b, LLVMAppendBasicBlockInContext(e->cx, e->fn, "entry"));
}

static inline hcg_emit emit_for(bench *b, hcg_program *p, const hcg_level *level) {
    hcg_emit e = {.p = p, .level = level, .arena = b->arena, .diags = &b->diags};
    e.cx = LLVMContextCreate();
    e.mod = LLVMModuleCreateWithNameInContext("test", e.cx);
    e.b = LLVMCreateBuilderInContext(e.cx);
    e.i1 = LLVMInt1TypeInContext(e.cx), e.i8 = LLVMInt8TypeInContext(e.cx);
    e.i16 = LLVMInt16TypeInContext(e.cx), e.i32 = LLVMInt32TypeInContext(e.cx);
    e.i64 = LLVMInt64TypeInContext(e.cx), e.f32 = LLVMFloatTypeInContext(e.cx);
    e.f64 = LLVMDoubleTypeInContext(e.cx), e.ptr = LLVMPointerTypeInContext(e.cx, 0);
    e.vec = LLVMVectorType(e.f32, level->lanes);
    return e;
}

/* Emits, verifies and loads. With the environment variable EMIT_DUMP, the LLVM IR and the object
 * are left in files of that prefix. */
static inline bool compile_kernel(bench *b, hcg_kind kind, hir_id op, bool one,
                                  const hcg_level *level, compiled *out) {
    hcg_program p = {.arena = b->arena, .m = b->m};
    hcg_emit e = emit_for(b, &p, level);
    out->k = kernel_of(b, kind, op, one);
    enter_function(&e);
    bool ok = kind == HCG_SEQUENCE ? hcg_emit_sequence(&e, &out->k)
              : kind == HCG_ROW    ? hcg_emit_row(&e, &out->k)
                                   : hcg_emit_contract(&e, &out->k);
    if (ok) LLVMBuildRetVoid(e.b);
    char *message = NULL;
    const char *dump = getenv("EMIT_DUMP");
    if (ok && dump) LLVMPrintModuleToFile(e.mod, hd_printf(b->arena, "%s.ll", dump), &message);
    if (ok && LLVMVerifyModule(e.mod, LLVMReturnStatusAction, &message)) {
        hd_err(&b->diags, HD_E_INTERNAL, HD_NOWHERE, "%s", message);
        ok = false;
    }
    if (ok) {
        LLVMTargetMachineRef machine = machine_for(level);
        LLVMSetTarget(e.mod, "x86_64-unknown-linux-gnu");
        LLVMMemoryBufferRef object;
        if (LLVMTargetMachineEmitToMemoryBuffer(machine, e.mod, LLVMObjectFile, &message, &object))
            exit(1);
        if (dump) {
            FILE *f = fopen(hd_printf(b->arena, "%s.o", dump), "wb");
            fwrite(LLVMGetBufferStart(object), 1, LLVMGetBufferSize(object), f);
            fclose(f);
        }
        out->code_bytes = LLVMGetBufferSize(object);
        harness_check(LLVMOrcCreateLLJIT(&out->jit, NULL));
        LLVMOrcJITDylibRef lib = LLVMOrcLLJITGetMainJITDylib(out->jit);
        harness_check(LLVMOrcLLJITAddObjectFile(out->jit, lib, object));
        LLVMOrcExecutorAddress at;
        harness_check(LLVMOrcLLJITLookup(out->jit, &at, "kernel"));
        out->call = (hrt_kernel *)(uintptr_t)at;
        out->scratch = e.scratch;
        LLVMDisposeTargetMachine(machine);
    }
    LLVMDisposeBuilder(e.b);
    LLVMDisposeModule(e.mod);
    LLVMContextDispose(e.cx);
    return ok;
}

static inline void compiled_free(compiled *c) {
    LLVMErrorRef error = LLVMOrcDisposeLLJIT(c->jit);
    if (error) LLVMConsumeError(error);
}

/* ---- data --------------------------------------------------------------------------------------
 */

static inline uint64_t random_bits(uint64_t *state) { /* xorshift64* */
    *state ^= *state >> 12, *state ^= *state << 25, *state ^= *state >> 27;
    return *state * 2685821657736338717u;
}

static inline int64_t random_below(uint64_t *state, int64_t n) {
    return (int64_t)((random_bits(state) >> 11) % (uint64_t)n);
}

static inline float random_float(uint64_t *state) { /* [-1, 1) */
    return (float)((double)(random_bits(state) >> 11) / (double)(1ull << 52) - 1.0);
}

static inline void *aligned(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!p) exit(1);
    return p;
}

static inline float *random_floats(uint64_t *state, size_t n) {
    float *x = aligned(n * 4);
    for (size_t i = 0; i < n; i++)
        x[i] = random_float(state);
    return x;
}

/* The panel layout of ir.h; w keeps the values as stored. */
static inline void *pack_panels(float *w, int64_t n, int64_t k, hir_dtype dtype) {
    int64_t panels = (n + HIR_PANEL - 1) / HIR_PANEL;
    size_t size = dtype == HIR_BF16 ? 2 : 4;
    char *out = aligned((size_t)(panels * k * HIR_PANEL) * size);
    for (int64_t p = 0; p < panels * HIR_PANEL; p++)
        for (int64_t i = 0; i < k; i++) {
            int64_t at = (p / HIR_PANEL * k + i) * HIR_PANEL + p % HIR_PANEL;
            uint32_t bits = 0;
            if (p < n) memcpy(&bits, &w[p * k + i], 4);
            if (dtype == HIR_BF16) {
                uint16_t half = (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
                memcpy(out + at * 2, &half, 2);
                bits = (uint32_t)half << 16;
                if (p < n) memcpy(&w[p * k + i], &bits, 4);
            } else {
                memcpy(out + at * 4, &bits, 4);
            }
        }
    return out;
}

#endif
