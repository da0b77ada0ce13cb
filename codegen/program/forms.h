/* The code generator of each kernel form (ir/kernel/kernels.def): hcg_form_NAME, in the directory
 * of its kind. Lowering knows of the forms only what is in this table. */
#ifndef HCG_FORMS_H
#define HCG_FORMS_H

#include "codegen/program/program.h"

struct hcg_emit;

typedef struct hcg_form {
    /* Emits the code. The builder stands in the entry block of e->fn, and must be left in a block
     * that the caller ends with `ret void`. False, with a diagnostic: the kernel cannot be emitted.
     * NULL: the form has no code. */
    bool (*emit)(struct hcg_emit *e, const hcg_kernel *k);
    /* The number of columns, hrt_step.cols: ir/kernel/kernels.def says what a column is. NULL:
     * there is one. */
    int64_t (*columns)(const hir_module *m, hir_id kernel);
    /* Bytes of hrt_frame.shared: for counters, and for each range of HRT_KEYS positions. NULL:
     * none. */
    void (*shared)(const hir_module *m, hir_id kernel, uint64_t *counters, uint64_t *range);
    /* Sets hrt_step.list_* where ranges are ranges of other rows than positions. NULL: they are
     * ranges of positions. */
    void (*list)(const hir_module *m, hir_id kernel, hrt_step *step);
    /* The kind of matrix (hcg_matrix) that cached rows are multiplied as. NULL: they are not. */
    uint32_t (*cached)(const hir_module *m, hir_id kernel);
} hcg_form;

#define K(id, name, noun, doc)
#define F(id, name, kind, op, decode, prefill, may_decode, may_prefill, phases, traits, column,    \
          doc)                                                                                     \
    extern const hcg_form hcg_form_##name;
#include "ir/kernel/kernels.def"
#undef K
#undef F

/* The form of a kernel; NULL: the kernel has no op that defines a form. */
const hcg_form *hcg_form_of(const hir_module *m, hir_id kernel);
/* Emits the kernel hcg_kernel.products (codegen/contract/weight_grad.c). */
bool hcg_emit_products(struct hcg_emit *e);
int64_t hcg_columns(const hir_module *m, hir_id kernel);
void hcg_list_rows(const hir_module *m, hir_id kernel, hrt_step *step);
uint32_t hcg_cached_matrices(const hir_module *m, hir_id kernel);
void hcg_shared_bytes(const hir_module *m, hir_id kernel, uint64_t *counters, uint64_t *range);
/* The most ranges of HRT_KEYS positions that a kernel with a window reads: the few rows whose work
 * is cut into ranges see window + HRT_SMALL_BATCH - 1 positions, which may begin anywhere in a
 * range. */
static inline uint64_t hcg_window_ranges(uint64_t window) {
    return (window + HRT_SMALL_BATCH - 3) / HRT_KEYS + 2;
}

#endif
