/* Functions that the kernels of one variant share (shared.h). They are hidden symbols of the
 * library, since a variant may be compiled as several modules, and have the attributes (CPU and
 * features) of the kernel that uses them first, which are those of all kernels of the variant. */
#include "codegen/emit/shared.h"

#include <string.h>

/* Copies target-cpu, target-features and whatever else decides how a kernel's code is made. */
static void copy_attributes(LLVMValueRef from, LLVMValueRef to) {
    enum { MOST = 64 };
    LLVMAttributeRef all[MOST];
    unsigned n = LLVMGetAttributeCountAtIndex(from, LLVMAttributeFunctionIndex);
    if (n > MOST) n = 0; /* never: kernels carry a handful */
    if (n) LLVMGetAttributesAtIndex(from, LLVMAttributeFunctionIndex, all);
    for (unsigned i = 0; i < n; i++)
        LLVMAddAttributeAtIndex(to, LLVMAttributeFunctionIndex, all[i]);
}

bool hcg_shared_begin(hcg_emit *e, const char *name, const LLVMTypeRef *params, unsigned n,
                      hcg_shared *s) {
    return hcg_shared_begin_if(e, !e->shared_elsewhere, name, params, n, s);
}

bool hcg_has_same_code(const hcg_same_code *same, const char *name) {
    size_t from = 0, to = same ? same->names.n : 0;
    while (from < to) {
        const size_t at = from + (to - from) / 2;
        const int order = strcmp(name, same->names.at[at]);
        if (order == 0) return true;
        if (order < 0)
            to = at;
        else
            from = at + 1;
    }
    return false;
}

const char *hcg_symbol(hd_arena *a, const hcg_level *level, const hcg_same_code *same,
                       const char *name) {
    for (; hcg_has_same_code(same, name); same = same->as->same)
        level = &same->as->level;
    char *symbol = hd_printf(a, "%s_%s", name, level->name);
    for (char *c = symbol; *c; c++) /* names of CPUs have dashes */
        if (*c == '-') *c = '_';
    return symbol;
}

/* With a dot, which names of kernels do not have. */
static const char *full_name(const hcg_emit *e, const char *name) {
    return hd_printf(e->arena, "%s.%s", e->p->m->name, name);
}

static LLVMValueRef declare(hcg_emit *e, const char *name, const LLVMTypeRef *params, unsigned n) {
    const char *symbol = hcg_symbol(e->arena, e->level, e->same, full_name(e, name));
    LLVMValueRef fn = LLVMGetNamedFunction(e->mod, symbol);
    if (fn) return fn;
    LLVMTypeRef type =
        LLVMFunctionType(LLVMVoidTypeInContext(e->cx), (LLVMTypeRef *)params, n, false);
    fn = LLVMAddFunction(e->mod, symbol, type);
    LLVMSetVisibility(fn, LLVMHiddenVisibility);
    LLVMSetAlignment(fn, HCG_FUNCTION_ALIGN);
    return fn;
}

bool hcg_shared_begin_if(hcg_emit *e, bool here, const char *name, const LLVMTypeRef *params,
                         unsigned n, hcg_shared *s) {
    memset(s, 0, sizeof *s);
    s->fn = declare(e, name, params, n);
    if (!here || !LLVMIsDeclaration(s->fn)) return false;
    if (hcg_has_same_code(e->same, full_name(e, name))) return false;
    copy_attributes(e->fn, s->fn);
    for (unsigned i = 0; i < n && i < HCG_SHARED_PARAMS; i++)
        s->param[i] = LLVMGetParam(s->fn, i);
    s->outer_fn = e->fn;
    s->outer_block = LLVMGetInsertBlock(e->b);
    s->outer_loc = LLVMGetCurrentDebugLocation2(e->b);
    e->fn = s->fn;
    LLVMPositionBuilderAtEnd(e->b, LLVMAppendBasicBlockInContext(e->cx, s->fn, "entry"));
    LLVMSetCurrentDebugLocation2(e->b, NULL); /* no line of the kernel IR is this function's */
    return true;
}

const char *hcg_shared_name(const char *symbol) {
    const char *dot = strchr(symbol, '.');
    return dot ? dot + 1 : NULL;
}

void hcg_shared_end(hcg_emit *e, hcg_shared *s) {
    LLVMBuildRetVoid(e->b);
    e->fn = s->outer_fn;
    LLVMPositionBuilderAtEnd(e->b, s->outer_block);
    LLVMSetCurrentDebugLocation2(e->b, s->outer_loc);
}

void hcg_shared_call(hcg_emit *e, const hcg_shared *s, const LLVMValueRef *args, unsigned n) {
    LLVMBuildCall2(e->b, LLVMGlobalGetValueType(s->fn), s->fn, (LLVMValueRef *)args, n, "");
}
