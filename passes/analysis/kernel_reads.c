#include "passes/analysis/kernel_reads.h"

#include "ir/signature.h"
#include "passes/util.h"

static uint64_t row_elements(const hir_module *m, hir_id v) {
    return (uint64_t)pass_elements(hir_value_at(m, v)->type);
}

hir_kernel_reads hir_kernel_reads_new(const hir_module *m, hd_arena *a) {
    return (hir_kernel_reads){
        .m = m, .arena = a, .number = hd_new_array(a, uint32_t, m->values.n + 1)};
}

static hir_kernel_read *read_of(hir_kernel_reads *all, hir_id value) {
    if (!all->number[value]) {
        const hir_kernel_read new = {.value = value};
        hd_push(all->arena, &all->list, new);
        all->number[value] = (uint32_t)all->list.n;
    }
    return &all->list.at[all->number[value] - 1];
}

static void note_slice(hir_kernel_reads *all, hir_kernel_read *r, const hir_op *o) {
    for (size_t i = 0; i < r->slices.n; i++)
        if (hir_same_slice(r->slices.at[i], o)) return;
    hd_push(all->arena, &r->slices, o);
    r->sliced = hd_capped_add(r->sliced, row_elements(all->m, o->results[0]));
}

void hir_note_read(hir_kernel_reads *all, hir_id value, const hir_op *o, unsigned bits) {
    hir_kernel_read *r = read_of(all, value);
    r->bits |= bits;
    if (o && o->code == HIR_SLICE_OP)
        note_slice(all, r, o);
    else
        r->whole = true;
}

uint64_t hir_elements_read(const hir_kernel_reads *all, const hir_kernel_read *r) {
    const uint64_t whole = row_elements(all->m, r->value);
    return r->whole || r->sliced > whole ? whole : r->sliced;
}

void hir_forget_reads(hir_kernel_reads *all) {
    for (size_t i = 0; i < all->list.n; i++)
        all->number[all->list.at[i].value] = 0;
    all->list.n = 0;
}

hir_id hir_outer_value(const hir_module *m, hir_id kernel, hir_id v) {
    for (;;) {
        const hir_id op = hir_value_at(m, v)->op;
        if (op == HIR_NONE || hir_op_at(m, op)->parent != kernel) return v;
        const hir_op *o = hir_op_at(m, op);
        if (o->code != HIR_RESHAPE_OP || o->args[0].kind != HIR_REF_VALUE) return HIR_NONE;
        v = o->args[0].index;
    }
}
