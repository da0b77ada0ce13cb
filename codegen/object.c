/* Objects, assembly and LLVM text of a program: every body and the description in one module. */
#include <string.h>

#include "codegen/library.h"
#include "support/file.h"

/* The whole library in one module. */
static hcg_llvm *build_library(hcg_program *p, hd_diags *d, const hcg_target *t) {
    hcg_llvm *l = hcg_llvm_new(p->arena, d, t, p->m->name);
    if (!l) return NULL;
    size_t n = p->kernels.n;
    LLVMValueRef *functions = hd_new_array(p->arena, LLVMValueRef, t->bodies.n * n + 1);
    p->scratch_bytes = 0;
    for (size_t i = 0; i < t->bodies.n; i++) {
        uint64_t scratch;
        if (!hcg_emit_body(p, l, p->arena, &t->bodies.at[i], functions + i * n, &scratch)) {
            hcg_llvm_free(l);
            return NULL;
        }
        if (scratch > p->scratch_bytes) p->scratch_bytes = scratch;
    }
    hcg_describe(p, t, l->mod, l->b, functions);
    return l;
}

static bool emit_code(hcg_program *p, hd_diags *d, LLVMCodeGenFileType kind, const char *path) {
    hcg_target t;
    if (!hcg_find_target(&p->options, p->arena, d, &t)) return false;
    hcg_llvm *l = build_library(p, d, &t);
    LLVMMemoryBufferRef code;
    if (!l) return false;
    bool ok = hcg_generate(l, kind, &code);
    hcg_llvm_free(l);
    if (!ok) return false;
    ok = hd_write_file(p->arena, d, path, LLVMGetBufferStart(code), LLVMGetBufferSize(code));
    LLVMDisposeMemoryBuffer(code);
    return ok;
}

bool hcg_emit_object(hcg_program *p, hd_diags *d, const char *path) {
    return emit_code(p, d, LLVMObjectFile, path);
}

bool hcg_emit_asm(hcg_program *p, hd_diags *d, const char *path) {
    return emit_code(p, d, LLVMAssemblyFile, path);
}

bool hcg_emit_llvm(hcg_program *p, hd_diags *d, const char *path) {
    hcg_target t;
    if (!hcg_find_target(&p->options, p->arena, d, &t)) return false;
    hcg_llvm *l = build_library(p, d, &t);
    if (!l) return false;
    bool ok = hcg_verify_module(l);
    char *text = ok ? LLVMPrintModuleToString(l->mod) : NULL;
    hcg_llvm_free(l);
    if (!ok) return false;
    ok = hd_write_file(p->arena, d, path, text, strlen(text));
    LLVMDisposeMessage(text);
    return ok;
}
