/* Few rows by vectors (amx/small_m.h). */
#include "codegen/matmul/backends/amx/small_m.h"

void hcg_small_m_begin(hcg_emit *e, hcg_product *p, const hcg_backend *by, uint64_t rows) {
    if (!rows) return;
    p->few = hd_new(e->arena, hcg_product);
    *p->few = (hcg_product){.backend = by, .weights = p->weights, .k = p->k, .panels = p->panels};
    p->few->rows = p->rows < rows ? p->rows : rows;
    if (by->begin) by->begin(e, p->few);
}

void hcg_small_m_prepare(hcg_emit *e, hcg_product *p, LLVMValueRef is_few,
                         void (*prepare)(hcg_emit *e, hcg_product *p)) {
    p->few->x = p->x, p->few->ldx = p->ldx, p->few->n_rows = p->n_rows;
    p->few->length = p->length;
    const hcg_either b = hcg_either_begin(e, is_few, "few", "many");
    if (p->few->backend->prepare) p->few->backend->prepare(e, p->few);
    hcg_either_other(e, &b);
    if (prepare) prepare(e, p);
    hcg_either_end(e, &b);
}

void hcg_small_m_gemm(hcg_emit *e, const hcg_product *p, const hcg_panels *panels,
                      LLVMValueRef is_few,
                      void (*gemm)(hcg_emit *e, const hcg_product *p, const hcg_panels *b)) {
    const hcg_either b = hcg_either_begin(e, is_few, "few", "many");
    p->few->backend->gemm(e, p->few, panels);
    hcg_either_other(e, &b);
    gemm(e, p, panels);
    hcg_either_end(e, &b);
}
