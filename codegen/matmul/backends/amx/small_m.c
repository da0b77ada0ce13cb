/* Few rows by vectors (amx/small_m.h). */
#include "codegen/matmul/backends/amx/small_m.h"

void hcg_small_m_begin(hcg_emit *e, hcg_product *p, const hcg_backend *by, uint64_t rows) {
    if (!rows) return;
    p->few = hd_new(e->arena, hcg_product);
    *p->few = (hcg_product){.backend = by, .weights = p->weights, .k = p->k, .panels = p->panels};
    p->few->rows = p->rows < rows ? p->rows : rows;
    if (by->begin) by->begin(e, p->few);
}

typedef struct either { /* few rows or many: code for the few comes first */
    LLVMBasicBlockRef many, done;
} either;

static either if_few(hcg_emit *e, LLVMValueRef is_few) {
    LLVMBasicBlockRef few = LLVMAppendBasicBlockInContext(e->cx, e->fn, "few");
    const either b = {LLVMAppendBasicBlockInContext(e->cx, e->fn, "many"),
                      LLVMAppendBasicBlockInContext(e->cx, e->fn, "either")};
    LLVMBuildCondBr(e->b, is_few, few, b.many);
    LLVMPositionBuilderAtEnd(e->b, few);
    return b;
}

static void or_many(hcg_emit *e, const either *b) {
    LLVMBuildBr(e->b, b->done);
    LLVMPositionBuilderAtEnd(e->b, b->many);
}

static void end_either(hcg_emit *e, const either *b) {
    LLVMBuildBr(e->b, b->done);
    LLVMPositionBuilderAtEnd(e->b, b->done);
}

void hcg_small_m_prepare(hcg_emit *e, hcg_product *p, LLVMValueRef is_few,
                         void (*prepare)(hcg_emit *e, hcg_product *p)) {
    p->few->x = p->x, p->few->ldx = p->ldx, p->few->n_rows = p->n_rows;
    p->few->length = p->length;
    const either b = if_few(e, is_few);
    if (p->few->backend->prepare) p->few->backend->prepare(e, p->few);
    or_many(e, &b);
    if (prepare) prepare(e, p);
    end_either(e, &b);
}

void hcg_small_m_gemm(hcg_emit *e, const hcg_product *p, const hcg_panels *panels,
                      LLVMValueRef is_few,
                      void (*gemm)(hcg_emit *e, const hcg_product *p, const hcg_panels *b)) {
    const either b = if_few(e, is_few);
    p->few->backend->gemm(e, p->few, panels);
    or_many(e, &b);
    gemm(e, p, panels);
    end_either(e, &b);
}
