/* Kernels that report what they load and store: the code of a module is emitted as always, a call
 * is put in front of every load and store, and the result runs in this process on memory of the
 * test's own. Nothing of it is in the compiler.
 */
#ifndef ACCESS_COUNTER_H
#define ACCESS_COUNTER_H

#include <llvm-c/LLJIT.h>
#include <llvm-c/Target.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/module/module.h"

enum access_kind { ACCESS_LOAD, ACCESS_STORE };

typedef void access_report(const void *p, int64_t bytes, int32_t kind);

typedef struct counted { /* kernels of a program, by number */
    hcg_program *p;
    hrt_kernel **kernels;
    uint64_t scratch;
    LLVMOrcLLJITRef jit;
} counted;

/* ---- putting the calls in -------------------------------------------------------------------- */

typedef struct instrument {
    hcg_llvm *l;
    LLVMTargetDataRef layout;
    LLVMTypeRef i32, i64, type;
    LLVMValueRef report;
    const char *unknown; /* an instruction that touches memory in a way not known here */
} instrument;

static inline LLVMValueRef constant(const instrument *x, uint64_t n) {
    return LLVMConstInt(x->i64, n, false);
}

static inline void put_call(instrument *x, LLVMValueRef p, LLVMValueRef bytes, int kind) {
    LLVMValueRef args[] = {p, bytes, LLVMConstInt(x->i32, (unsigned)kind, false)};
    LLVMBuildCall2(x->l->b, x->type, x->report, args, 3, "");
}

static inline LLVMValueRef size_of(const instrument *x, LLVMTypeRef t) {
    return constant(x, LLVMStoreSizeOfType(x->layout, t));
}

/* Bytes that a masked access of a vector of type `t` touches. */
static inline LLVMValueRef masked_bytes(instrument *x, LLVMTypeRef t, LLVMValueRef mask) {
    LLVMBuilderRef b = x->l->b;
    unsigned lanes = LLVMGetVectorSize(t);
    LLVMTypeRef bits = LLVMIntTypeInContext(x->l->cx, lanes);
    LLVMValueRef m = LLVMBuildZExt(b, LLVMBuildBitCast(b, mask, bits, ""), x->i64, "");
    LLVMTypeRef type = LLVMFunctionType(x->i64, &x->i64, 1, false);
    unsigned id = LLVMLookupIntrinsicID("llvm.ctpop", strlen("llvm.ctpop"));
    LLVMValueRef pop = LLVMGetIntrinsicDeclaration(x->l->mod, id, &x->i64, 1);
    LLVMValueRef n = LLVMBuildCall2(b, type, pop, &m, 1, "");
    uint64_t each = LLVMABISizeOfType(x->layout, LLVMGetElementType(t));
    return LLVMBuildMul(b, n, constant(x, each), "");
}

static inline void at_call(instrument *x, LLVMValueRef call) {
    LLVMValueRef fn = LLVMGetCalledValue(call);
    size_t n;
    const char *name = LLVMGetValueName2(fn, &n);
    LLVMPositionBuilderBefore(x->l->b, call);
    if (strncmp(name, "llvm.masked.load.", 17) == 0) {
        LLVMValueRef bytes = masked_bytes(x, LLVMTypeOf(call), LLVMGetOperand(call, 2));
        put_call(x, LLVMGetOperand(call, 0), bytes, ACCESS_LOAD);
    } else if (strncmp(name, "llvm.masked.store.", 18) == 0) {
        LLVMTypeRef t = LLVMTypeOf(LLVMGetOperand(call, 0));
        LLVMValueRef bytes = masked_bytes(x, t, LLVMGetOperand(call, 3));
        put_call(x, LLVMGetOperand(call, 1), bytes, ACCESS_STORE);
    } else if (strncmp(name, "llvm.memcpy.", 12) == 0) {
        put_call(x, LLVMGetOperand(call, 1), LLVMGetOperand(call, 2), ACCESS_LOAD);
        put_call(x, LLVMGetOperand(call, 0), LLVMGetOperand(call, 2), ACCESS_STORE);
    } else if (strstr(name, "gather") || strstr(name, "scatter") || strstr(name, "memset")) {
        x->unknown = name;
    }
}

static inline void at_instruction(instrument *x, LLVMValueRef i) {
    switch (LLVMGetInstructionOpcode(i)) {
    case LLVMLoad:
        LLVMPositionBuilderBefore(x->l->b, i);
        put_call(x, LLVMGetOperand(i, 0), size_of(x, LLVMTypeOf(i)), ACCESS_LOAD);
        break;
    case LLVMStore:
        LLVMPositionBuilderBefore(x->l->b, i);
        put_call(x, LLVMGetOperand(i, 1), size_of(x, LLVMTypeOf(LLVMGetOperand(i, 0))),
                 ACCESS_STORE);
        break;
    case LLVMCall: at_call(x, i); break;
    default: break;
    }
}

/* NULL, or the name of an instruction that it does not know. */
static inline const char *instrument_module(hcg_llvm *l) {
    instrument x = {.l = l, .layout = LLVMCreateTargetDataLayout(l->tm)};
    x.i32 = LLVMInt32TypeInContext(l->cx), x.i64 = LLVMInt64TypeInContext(l->cx);
    LLVMTypeRef params[] = {LLVMPointerTypeInContext(l->cx, 0), x.i64, x.i32};
    x.type = LLVMFunctionType(LLVMVoidTypeInContext(l->cx), params, 3, false);
    x.report = LLVMAddFunction(l->mod, "report_access", x.type);
    for (LLVMValueRef f = LLVMGetFirstFunction(l->mod); f; f = LLVMGetNextFunction(f))
        for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(f); b; b = LLVMGetNextBasicBlock(b))
            for (LLVMValueRef i = LLVMGetFirstInstruction(b), next; i; i = next) {
                next = LLVMGetNextInstruction(i);
                at_instruction(&x, i);
            }
    LLVMDisposeTargetData(x.layout);
    return x.unknown;
}

/* ---- loading --------------------------------------------------------------------------------- */

static inline void jit_check(LLVMErrorRef error) {
    if (!error) return;
    fprintf(stderr, "%s\n", LLVMGetErrorMessage(error));
    exit(1);
}

static inline void define_report(LLVMOrcLLJITRef jit, access_report *report) {
    LLVMOrcCSymbolMapPair pair = {
        LLVMOrcLLJITMangleAndIntern(jit, "report_access"),
        {(LLVMOrcExecutorAddress)(uintptr_t)report,
         {LLVMJITSymbolGenericFlagsExported | LLVMJITSymbolGenericFlagsCallable, 0}}};
    LLVMOrcJITDylibRef lib = LLVMOrcLLJITGetMainJITDylib(jit);
    jit_check(LLVMOrcJITDylibDefine(lib, LLVMOrcAbsoluteSymbols(&pair, 1)));
}

static inline void load_kernels(counted *c, hd_arena *a, LLVMMemoryBufferRef object,
                                const char *const *names, access_report *report) {
    jit_check(LLVMOrcCreateLLJIT(&c->jit, NULL));
    define_report(c->jit, report);
    jit_check(LLVMOrcLLJITAddObjectFile(c->jit, LLVMOrcLLJITGetMainJITDylib(c->jit), object));
    c->kernels = hd_new_array(a, hrt_kernel *, c->p->kernels.n);
    for (size_t i = 0; i < c->p->kernels.n; i++) {
        LLVMOrcExecutorAddress at;
        jit_check(LLVMOrcLLJITLookup(c->jit, &at, names[i]));
        c->kernels[i] = (hrt_kernel *)(uintptr_t)at;
    }
}

/* All kernels of the program for one CPU level; false with diagnostics. */
static inline bool counted_compile(counted *c, hcg_program *p, hd_arena *a, hd_diags *d,
                                   access_report *report) {
    *c = (counted){.p = p};
    hcg_target t;
    if (!hcg_find_target(&p->options, a, d, &t)) return false;
    /* the reports stand in what is emitted: how LLVM optimises it changes no count */
    hcg_llvm *l = hcg_llvm_new(a, d, &t, "counted", LLVMCodeGenLevelNone);
    if (!l) return false;
    size_t n = p->kernels.n;
    LLVMValueRef *functions = hd_new_array(a, LLVMValueRef, n + 1);
    uint32_t *all = hd_new_array(a, uint32_t, n + 1);
    for (size_t i = 0; i < n; i++)
        all[i] = (uint32_t)i;
    const hcg_unit unit = {.variant = &t.variants.at[0], .kernels = all, .n = n};
    hcg_scratch_needs scratch = {0};
    if (!hcg_emit_unit(p, l, a, &unit, functions, &scratch)) return false;
    c->scratch = scratch.kernels + scratch.outlined;
    if (!hcg_finish_module(l)) return false; /* LLVM's passes first: what they leave is counted */
    const char **names = hd_new_array(a, const char *, n + 1);
    for (size_t i = 0; i < n; i++) {
        size_t length;
        names[i] = hd_strdup(a, LLVMGetValueName2(functions[i], &length));
        LLVMSetVisibility(functions[i], LLVMDefaultVisibility);
    }
    const char *unknown = instrument_module(l);
    if (unknown) {
        hd_err(d, HD_E_INTERNAL, HD_NOWHERE, "accesses of %s are not counted", unknown);
        return false;
    }
    LLVMMemoryBufferRef object;
    if (!hcg_generate(l, LLVMObjectFile, &object)) return false;
    load_kernels(c, a, object, names, report);
    hcg_llvm_free(l);
    return true;
}

static inline void counted_free(counted *c) {
    LLVMErrorRef error = LLVMOrcDisposeLLJIT(c->jit);
    if (error) LLVMConsumeError(error);
}

#endif
