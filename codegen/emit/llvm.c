/* Loading LLVM (llvm.h). */
#include "codegen/emit/llvm.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

hcg_llvm_functions hcg_llvm_calls;

static bool loaded;
static char reason[300]; /* why LLVM is not loaded */

static const struct {
    const char *name;
    size_t at;
} functions[] = {
#define F(name) {"LLVM" #name, offsetof(hcg_llvm_functions, name)},
#include "codegen/emit/llvm.def"
#undef F
};

static void keep_reason(void) {
    const char *text = dlerror();
    strncpy(reason, text ? text : "no reason is given", sizeof reason - 1);
}

static bool find_functions(void *library) {
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *found = dlsym(library, functions[i].name);
        if (!found) return false;
        memcpy((char *)&hcg_llvm_calls + functions[i].at, &found, sizeof found);
    }
    return true;
}

static void ready_targets(void) {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeAArch64TargetInfo();
    LLVMInitializeAArch64Target();
    LLVMInitializeAArch64TargetMC();
    LLVMInitializeAArch64AsmPrinter();
}

/* The library stays loaded: it may have running threads, and it registers handlers for the end of
 * the process. */
static void load(void) {
    void *library = dlopen(HADAL_LLVM, RTLD_LAZY | RTLD_LOCAL);
    if (!library || !find_functions(library)) {
        keep_reason();
        return;
    }
    ready_targets();
    loaded = true;
}

bool hcg_llvm_open(hd_diags *d) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    if (loaded) return true;
    hd_diag *e = hd_err(d, HD_E_TOOL, HD_NOWHERE, "LLVM, which makes the code, cannot be loaded");
    e->cause = hd_strdup(d->arena, reason);
    e->hint = "install " HADAL_LLVM ", with which Hadal was built (Debian: libllvm19)";
    return false;
}
