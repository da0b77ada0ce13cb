#include "bench/work.h"

#include <string.h>

#include "codegen/program/program.h"

/* Operations of a kernel. These are lower bounds: a square root counts as much as an addition. */
static double operations(const hir_module *m, hir_id kernel) {
    double sum = 0;
    HIR_EACH(m, id, hir_op_at(m, kernel)->body_first) {
        const hir_op *o = hir_op_at(m, id);
        if (hir_has_trait(o->code, HIR_ELEMENTWISE))
            sum += (double)hir_type_row_elements(hir_value_at(m, o->results[0])->type);
        else if (hir_has_trait(o->code, HIR_REDUCE))
            sum += (double)hir_type_row_elements(hir_arg_type(m, id, 0));
    }
    return sum;
}

/* Pairs of a row and a position that it attends to: row t of T attends to past + t + 1
 * positions. */
static double pairs(double T, double past) {
    return T * past + T * (T + 1) / 2;
}

work count_work(const hir_module *m, int64_t T, int64_t past, int64_t asked) {
    work w = {0};
    hd_arena *a = hd_arena_new();
    if (!a) return w;
    HIR_EACH(m, id, m->first) {
        const hir_op *o = hir_op_at(m, id);
        const bool contract = o->code == HIR_KERNEL_CONTRACT_OP, row = o->code == HIR_KERNEL_ROW_OP;
        const bool sequence = o->code == HIR_KERNEL_SEQUENCE_OP;
        if (!contract && !row && !sequence) continue;
        const bool last = strcmp(hir_attr_string(o, HIR_A_ROWS, "all"), "last") == 0;
        const double n = (double)(last ? asked : T);
        const hcg_step_work s = hcg_count_work(a, m, id, NULL);
        w.flops += (double)s.row_flops * n + (double)s.pair_flops * pairs(n, (double)past);
        w.rows += row, w.contracts += contract, w.sequences += sequence;
        if (contract) w.matrix_bytes += (double)s.pass_bytes;
        if (row) w.row_flops += operations(m, id) * n;
        *(row ? &w.row_bytes : &w.contract_bytes) += (double)s.row_bytes * n;
    }
    hd_arena_free(a);
    return w;
}
