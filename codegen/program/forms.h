/* The code generator of each form of kernels (ir/kernel/kernels.def): hcg_form_NAME, in the folder of
 * its kind, of which lowering knows nothing but this table. */
#ifndef HCG_FORMS_H
#define HCG_FORMS_H

#include "codegen/program/program.h"

struct hcg_emit;

typedef struct hcg_form {
    /* Starts with the builder in the entry block of e->fn and must leave it in a block that the
     * caller ends with `ret void`. False, with a diagnostic: it cannot be emitted. NULL: there is
     * no code for it. */
    bool (*emit)(struct hcg_emit *e, const hcg_kernel *k);
    /* hrt_step.cols: what ir/kernel/kernels.def calls a column. NULL: there is one. */
    int64_t (*columns)(const hir_module *m, hir_id kernel);
    /* Bytes of hrt_frame.shared: of counters, and for each range of HRT_KEYS positions. NULL: none
     */
    void (*shared)(const hir_module *m, hir_id kernel, uint64_t *counters, uint64_t *range);
    /* Where ranges of `keys` are those of other rows than positions: hrt_step.list_*. NULL: they
     * are of positions. */
    void (*list)(const hir_module *m, hir_id kernel, hrt_step *step);
    /* hcg_matrix of cached rows that are met as a matrix. NULL: there are none. */
    uint32_t (*cached)(const hir_module *m, hir_id kernel);
} hcg_form;

#define K(id, name, several, doc)
#define F(id, name, kind, op, decode, prefill, may_decode, may_prefill, phases, traits, column,    \
          doc)                                                                                     \
    extern const hcg_form hcg_form_##name;
#include "ir/kernel/kernels.def"
#undef K
#undef F

/* NULL: the kernel has no op that makes a form. */
const hcg_form *hcg_form_of(const hir_module *m, hir_id kernel);
int64_t hcg_columns(const hir_module *m, hir_id kernel);
void hcg_list_rows(const hir_module *m, hir_id kernel, hrt_step *step);
uint32_t hcg_cached_matrices(const hir_module *m, hir_id kernel);
void hcg_shared_bytes(const hir_module *m, hir_id kernel, uint64_t *counters, uint64_t *range);
/* The most ranges of HRT_KEYS positions that a kernel meets whose rows see `window` of them: the
 * few rows that are cut by ranges see window + HRT_SMALL_BATCH - 1, from anywhere in a range on. */
static inline uint64_t hcg_window_ranges(uint64_t window) {
    return (window + HRT_SMALL_BATCH - 3) / HRT_KEYS + 2;
}

#endif
