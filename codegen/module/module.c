/* One LLVM module: context, target machine, the kernels of a variant, line tables, code generation.
 *
 * LLVM must not end the process, whatever the input. Modules are verified before code is generated;
 * errors that LLVM reports through a context become diagnostics; CPU names and features are checked
 * before LLVM sees them. What remains are defects inside LLVM ("cannot select"): for threads that
 * are inside translate, its fatal error handler is replaced by a longjmp out of LLVM. LLVM's state
 * is unknown then, so the context is abandoned, not freed. */
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/emit/shared.h"
#include "codegen/matmul/matrix.h"
#include "codegen/module/code_cache.h"
#include "codegen/module/module.h"
#include "codegen/program/forms.h"
#include "support/file.h"

/* ---- LLVM's objects -------------------------------------------------------------------------- */
static void on_diagnostic(LLVMDiagnosticInfoRef info, void *context) {
    hcg_llvm *l = context;
    if (LLVMGetDiagInfoSeverity(info) != LLVMDSError) return;
    char *text = LLVMGetDiagInfoDescription(info);
    hd_diag *e = hd_err(l->diags, HD_E_INTERNAL, HD_NOWHERE, "LLVM rejected the generated code");
    e->cause = hd_strdup(l->diags->arena, text);
    LLVMDisposeMessage(text);
}

void hcg_llvm_free(hcg_llvm *l) {
    if (l->lines) LLVMDisposeDIBuilder(l->lines);
    if (l->b) LLVMDisposeBuilder(l->b);
    if (l->tm) LLVMDisposeTargetMachine(l->tm);
    if (l->mod) LLVMDisposeModule(l->mod);
    if (l->cx) LLVMContextDispose(l->cx);
    *l = (hcg_llvm){0};
}

static void free_llvm(void *l) {
    hcg_llvm_free(l);
}

static LLVMTargetMachineRef make_machine(const hcg_target *t, LLVMCodeGenOptLevel level) {
    LLVMTargetRef target;
    char *error = NULL;
    if (LLVMGetTargetFromTriple(t->triple, &target, &error) != 0) {
        LLVMDisposeMessage(error);
        return NULL;
    }
    LLVMTargetMachineOptionsRef o = LLVMCreateTargetMachineOptions();
    LLVMTargetMachineOptionsSetCPU(o, strcmp(t->arch, "x86_64") == 0 ? "x86-64" : "generic");
    LLVMTargetMachineOptionsSetCodeGenOptLevel(o, level);
    LLVMTargetMachineOptionsSetRelocMode(o, LLVMRelocPIC);
    LLVMTargetMachineRef tm = LLVMCreateTargetMachineWithOptions(target, t->triple, o);
    LLVMDisposeTargetMachineOptions(o);
    return tm;
}

static void add_flag(hcg_llvm *l, const char *name, unsigned value) {
    LLVMTypeRef i32 = LLVMInt32TypeInContext(l->cx);
    LLVMAddModuleFlag(l->mod, LLVMModuleFlagBehaviorWarning, name, strlen(name),
                      LLVMValueAsMetadata(LLVMConstInt(i32, value, false)));
}

hcg_llvm *hcg_llvm_new(hd_arena *a, hd_diags *d, const hcg_target *t, const char *name,
                       LLVMCodeGenOptLevel level) {
    if (!hcg_llvm_open(d)) return NULL;
    hcg_llvm *l = hd_new(a, hcg_llvm);
    hd_arena_defer(a, free_llvm, l);
    l->diags = d;
    l->effort = level;
    l->cx = LLVMContextCreate();
    LLVMContextSetDiagnosticHandler(l->cx, on_diagnostic, l);
    l->mod = LLVMModuleCreateWithNameInContext(name, l->cx);
    LLVMSetSourceFileName(l->mod, name, strlen(name));
    LLVMSetTarget(l->mod, t->triple);
    l->b = LLVMCreateBuilderInContext(l->cx);
    l->tm = make_machine(t, level);
    if (!l->tm) {
        hd_err(d, HD_E_TARGET, HD_NOWHERE, "LLVM has no target \"%s\"", t->triple);
        return NULL;
    }
    LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(l->tm);
    LLVMSetModuleDataLayout(l->mod, layout);
    LLVMDisposeTargetData(layout);
    add_flag(l, "PIC Level", 2);
    return l;
}

/* ---- line tables ----------------------------------------------------------------------------- */
static void begin_lines(const hcg_program *p, hcg_llvm *l) {
    if (!p->options.ir_file || l->lines) return;
    add_flag(l, "Debug Info Version", LLVMDebugMetadataVersion());
    add_flag(l, "Dwarf Version", 4); /* from 5 on LLVM adds an index that gdb 13 cannot read */
    /* Only the file's name: its directory must not change the library's bytes. */
    const char *name = hd_path_base(p->options.ir_file), *producer = "hadal " HADAL_VERSION;
    l->lines = LLVMCreateDIBuilder(l->mod);
    l->ir_file = LLVMDIBuilderCreateFile(l->lines, name, strlen(name), ".", 1);
    LLVMDIBuilderCreateCompileUnit(l->lines, LLVMDWARFSourceLanguageC11, l->ir_file, producer,
                                   strlen(producer), true, "", 0, 0, "", 0, LLVMDWARFEmissionFull,
                                   0, false, false, "", 0, "", 0);
}

static void end_lines(hcg_llvm *l) {
    if (!l->lines) return;
    LLVMDIBuilderFinalize(l->lines);
    LLVMDisposeDIBuilder(l->lines);
    l->lines = NULL;
}

/* ---- kernels --------------------------------------------------------------------------------- */
static LLVMTypeRef kernel_type(LLVMContextRef cx) {
    LLVMTypeRef ptr = LLVMPointerTypeInContext(cx, 0), i64 = LLVMInt64TypeInContext(cx);
    LLVMTypeRef params[] = {ptr, ptr, i64, i64, i64, i64};
    return LLVMFunctionType(LLVMVoidTypeInContext(cx), params, 6, false);
}

const char *hcg_kernel_name(const hcg_program *p, hd_arena *a, const hcg_kernel *k) {
    return hd_printf(a, "%s_%s", p->m->name, k->name);
}

static LLVMValueRef declare_kernel(const hcg_program *p, hd_arena *a, LLVMModuleRef mod,
                                   const hcg_variant *v, const hcg_kernel *k) {
    LLVMContextRef cx = LLVMGetModuleContext(mod);
    const char *name = hcg_symbol(a, &v->level, v->same, hcg_kernel_name(p, a, k));
    LLVMValueRef fn = LLVMGetNamedFunction(mod, name);
    if (fn) return fn; /* of a level that has the same code */
    fn = LLVMAddFunction(mod, name, kernel_type(cx));
    LLVMSetVisibility(fn, LLVMHiddenVisibility);
    LLVMSetAlignment(fn, HCG_FUNCTION_ALIGN);
    return fn;
}

void hcg_declare_variant(const hcg_program *p, hd_arena *a, LLVMModuleRef mod, const hcg_variant *v,
                         LLVMValueRef *functions) {
    for (size_t i = 0; i < p->kernels.n; i++)
        functions[i] = declare_kernel(p, a, mod, v, &p->kernels.at[i]);
}

static void add_enum(LLVMContextRef cx, LLVMValueRef fn, LLVMAttributeIndex at, const char *name,
                     uint64_t value) {
    unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
    LLVMAddAttributeAtIndex(fn, at, LLVMCreateEnumAttribute(cx, kind, value));
}

void hcg_set_function_target(LLVMValueRef fn, const hcg_variant *v) {
    LLVMAddTargetDependentFunctionAttr(fn, "target-cpu", v->level.cpu);
    LLVMAddTargetDependentFunctionAttr(fn, "tune-cpu", v->tune);
    if (*v->llvm_features)
        LLVMAddTargetDependentFunctionAttr(fn, "target-features", v->llvm_features);
    if (v->level.lanes == 16) {
        LLVMAddTargetDependentFunctionAttr(fn, "prefer-vector-width", "512");
        LLVMAddTargetDependentFunctionAttr(fn, "min-legal-vector-width", "512");
    }
}

static void add_attributes(LLVMContextRef cx, LLVMValueRef fn, const hcg_variant *v) {
    hcg_set_function_target(fn, v);
    add_enum(cx, fn, LLVMAttributeFunctionIndex, "nounwind", 0);
    add_enum(cx, fn, LLVMAttributeFunctionIndex, "uwtable", 2); /* unwind tables for gdb and perf */
    for (LLVMAttributeIndex i = 1; i <= 2; i++) { /* frame and args: never written, never aliased */
        add_enum(cx, fn, i, "noalias", 0);
        add_enum(cx, fn, i, "readonly", 0);
    }
}

static void set_types(hcg_emit *e) {
    e->i1 = LLVMInt1TypeInContext(e->cx);
    e->i8 = LLVMInt8TypeInContext(e->cx);
    e->i16 = LLVMInt16TypeInContext(e->cx);
    e->i32 = LLVMInt32TypeInContext(e->cx);
    e->i64 = LLVMInt64TypeInContext(e->cx);
    e->f32 = LLVMFloatTypeInContext(e->cx);
    e->f64 = LLVMDoubleTypeInContext(e->cx);
    e->ptr = LLVMPointerTypeInContext(e->cx, 0);
    e->vec = LLVMVectorType(e->f32, e->level->lanes);
}

static void set_function(hcg_emit *e, LLVMValueRef fn) {
    static const char *const names[] = {"frame", "args", "r0", "r1", "c0", "c1"};
    LLVMValueRef *const slots[] = {&e->frame, &e->args, &e->r0, &e->r1, &e->c0, &e->c1};
    e->fn = fn;
    for (unsigned i = 0; i < 6; i++) {
        *slots[i] = LLVMGetParam(fn, i);
        LLVMSetValueName2(*slots[i], names[i], strlen(names[i]));
    }
    LLVMPositionBuilderAtEnd(e->b, LLVMAppendBasicBlockInContext(e->cx, fn, "entry"));
}

bool hcg_emit_kernel(hcg_emit *e, const hcg_kernel *k) {
    const hcg_form *form = hcg_form_of(e->p->m, k->op);
    const hir_op *op = hir_op_at(e->p->m, k->op);
    if (k->products) return hcg_emit_products(e);
    if (form && form->emit) return form->emit(e, k);
    if (form)
        hd_err(e->diags, HD_E_UNSUPPORTED, *op->loc,
               "collectives between ranks are steps of the runtime, and have no code");
    else
        hd_err(e->diags, HD_E_INTERNAL, *op->loc,
               "%s cannot be emitted: it has no op that looks along the sequence",
               hir_info(op->code)->name);
    return false;
}

/* Emits one function, from its declaration to its end. */
static bool emit_function(hcg_emit *e, hcg_llvm *l, const hcg_variant *v, const hcg_kernel *k,
                          LLVMValueRef fn) {
    add_attributes(l->cx, fn, v);
    set_function(e, fn);
    e->di_scope = hcg_function_scope(e, fn, k->line);
    hcg_at_op(e, k->op);
    e->scratch = 0;
    bool ok = hcg_emit_kernel(e, k);
    LLVMBuildRetVoid(l->b);
    LLVMSetCurrentDebugLocation2(l->b, NULL);
    return ok;
}

/* Marks the body of a function that another module holds; hcg_finish_module removes it. */
static void leave_out(LLVMValueRef fn) {
    LLVMSetLinkage(fn, LLVMAvailableExternallyLinkage);
}

/* For a module that was built to find what kernels share: keeps only the shared functions. */
static void keep_shared(LLVMModuleRef mod, int holds) {
    for (LLVMValueRef fn = LLVMGetFirstFunction(mod); fn; fn = LLVMGetNextFunction(fn)) {
        size_t n;
        const char *shared = hcg_shared_name(LLVMGetValueName2(fn, &n));
        const bool kept = shared && hcg_multiplies(shared) == (holds == HCG_TILES);
        if (LLVMIsDeclaration(fn) || kept) continue;
        leave_out(fn);
    }
}

size_t hcg_instructions(LLVMValueRef fn) {
    size_t n = 0;
    for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(fn); b; b = LLVMGetNextBasicBlock(b))
        for (LLVMValueRef i = LLVMGetFirstInstruction(b); i; i = LLVMGetNextInstruction(i))
            n++;
    return n;
}

bool hcg_emit_unit(hcg_program *p, hcg_llvm *l, hd_arena *a, const hcg_unit *unit,
                   LLVMValueRef *functions, hcg_scratch_needs *scratch) {
    const hcg_variant *v = unit->variant;
    hcg_emit e = {.p = p,
                  .same = v->same,
                  .level = &v->level,
                  .arena = a,
                  .diags = l->diags,
                  .cx = l->cx,
                  .mod = l->mod,
                  .b = l->b,
                  .shared_elsewhere = unit->holds == HCG_KERNELS,
                  .outlined_elsewhere = unit->holds == HCG_TILES || unit->holds == HCG_SHARED};
    set_types(&e);
    if (!unit->no_lines) begin_lines(p, l);
    e.lines = l->lines, e.ir_file = l->ir_file;
    for (size_t i = 0; i < unit->n; i++) {
        size_t index = unit->kernels ? unit->kernels[i] : i;
        const hcg_kernel *k = &p->kernels.at[index];
        functions[index] = declare_kernel(p, a, l->mod, v, k);
        if (!emit_function(&e, l, v, k, functions[index])) return false;
        if (e.scratch > scratch->kernels) scratch->kernels = e.scratch;
    }
    if (e.outlined_scratch > scratch->outlined) scratch->outlined = e.outlined_scratch;
    if (e.outlined_elsewhere) keep_shared(l->mod, unit->holds);
    return !hd_diags_failed(l->diags);
}

/* ---- code generation ------------------------------------------------------------------------- */
static _Thread_local jmp_buf *fatal_exit;
static _Thread_local char fatal_reason[300];

static void on_fatal(const char *reason) {
    if (!fatal_exit) return; /* not our thread: LLVM continues as it would without the handler */
    snprintf(fatal_reason, sizeof fatal_reason, "%s", reason);
    longjmp(*fatal_exit, 1);
}

static void install_fatal_handler(void) {
    LLVMInstallFatalErrorHandler(on_fatal);
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Puts the declarations in the order of their names. In that of their first uses, which may be in
 * functions that are left out, equal units of two models would be two entries of the cache. */
static void sort_declarations(hcg_llvm *l) {
    HD_VEC(const char *) names = {0};
    for (LLVMValueRef fn = LLVMGetFirstFunction(l->mod); fn; fn = LLVMGetNextFunction(fn)) {
        size_t n;
        if (!LLVMIsDeclaration(fn)) continue;
        const char *name = LLVMGetValueName2(fn, &n);
        hd_push(l->diags->arena, &names, hd_strndup(l->diags->arena, name, n));
    }
    if (names.n) qsort(names.at, names.n, sizeof *names.at, by_name);
    for (size_t i = 0; i < names.n; i++) {
        LLVMValueRef old = LLVMGetNamedFunction(l->mod, names.at[i]);
        LLVMSetValueName2(old, "", 0);
        LLVMValueRef fn = LLVMAddFunction(l->mod, names.at[i], LLVMGlobalGetValueType(old));
        LLVMSetVisibility(fn, LLVMGetVisibility(old));
        LLVMReplaceAllUsesWith(old, fn);
        LLVMDeleteFunction(old);
    }
}

/* Kernels are emitted in the form in which they are to run, so no optimiser runs. What belongs to
 * functions that are left out goes with them. Eliminating common subexpressions (addresses, mostly)
 * pays for itself: a twentieth less code, made in a twentieth less time. More passes cost more than
 * they gain. */
static void simplify(hcg_llvm *l) {
    LLVMPassBuilderOptionsRef o = LLVMCreatePassBuilderOptions();
    LLVMErrorRef error =
        LLVMRunPasses(l->mod, "elim-avail-extern,globaldce,function(early-cse)", l->tm, o);
    if (error) LLVMConsumeError(error); /* the module is unchanged */
    LLVMDisposePassBuilderOptions(o);
    sort_declarations(l);
}

bool hcg_finish_module(hcg_llvm *l) {
    char *text = NULL;
    end_lines(l);
    bool bad = LLVMVerifyModule(l->mod, LLVMReturnStatusAction, &text) != 0;
    if (bad)
        hd_err(l->diags, HD_E_INTERNAL, HD_NOWHERE, "the generated LLVM IR is illegal")->cause =
            hd_strdup(l->diags->arena, text);
    LLVMDisposeMessage(text);
    if (!bad) simplify(l);
    return !bad;
}

static bool translate(hcg_llvm *l, LLVMCodeGenFileType kind, LLVMMemoryBufferRef *out) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install_fatal_handler);
    char *text = NULL;
    jmp_buf here;
    fatal_exit = &here;
    if (setjmp(here)) {
        fatal_exit = NULL;
        l->cx = NULL, l->mod = NULL, l->tm = NULL, l->b = NULL;
        hd_err(l->diags, HD_E_INTERNAL, HD_NOWHERE, "LLVM gave up on the generated code")->cause =
            hd_strdup(l->diags->arena, fatal_reason);
        return false;
    }
    bool bad = LLVMTargetMachineEmitToMemoryBuffer(l->tm, l->mod, kind, &text, out) != 0;
    fatal_exit = NULL;
    if (!bad) return true;
    hd_err(l->diags, HD_E_INTERNAL, HD_NOWHERE, "LLVM made no code")->cause =
        hd_strdup(l->diags->arena, text ? text : "");
    LLVMDisposeMessage(text);
    return false;
}

bool hcg_generate(hcg_llvm *l, LLVMCodeGenFileType kind, LLVMMemoryBufferRef *out) {
    if (!hcg_finish_module(l)) return false;
    hcg_cached entry = {0};
    if (kind == LLVMObjectFile && !hcg_cache_entry(l, &entry)) return false;
    *out = hcg_cache_read(&entry);
    if (*out) return true;
    return translate(l, kind, out) && hcg_cache_write(l, &entry, *out);
}
