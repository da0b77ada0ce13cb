#include "bench/work.h"

#include <stdlib.h>
#include <string.h>

/* ---- traffic of a kernel ------------------------------------------------------------------------
 */

/* Elements of one token's row of an outer value that a body reads: all of it, or if only slices
 * are read, those slices (equal ones once). */
static double elements_read(const hir_module *m, hir_id kernel, hir_ref value) {
    enum { SLICES = 64 };
    int64_t start[SLICES], length[SLICES], axis[SLICES];
    double whole = (double)hir_type_row_elements(hir_ref_type(m, value)), sum = 0;
    size_t n = 0;
    bool read = false;
    HIR_EACH(m, id, hir_op_at(m, kernel)->body_first) {
        const hir_op *o = hir_op_at(m, id);
        for (uint32_t a = 0; a < o->n_args; a++) {
            if (!hir_ref_equal(o->args[a], value)) continue;
            read = true;
            if (o->code != HIR_SLICE_OP || n == SLICES) return whole;
            const hir_type out = hir_value_at(m, o->results[0])->type;
            axis[n] = hir_attr_int(o, HIR_A_AXIS, 0);
            start[n] = hir_attr_int(o, HIR_A_START, 0);
            length[n] = out.dim[axis[n]];
            bool seen = false;
            for (size_t i = 0; i < n; i++)
                seen |= axis[i] == axis[n] && start[i] == start[n] && length[i] == length[n];
            if (!seen) sum += (double)hir_type_row_elements(out);
            n += !seen;
        }
    }
    return !read ? 0 : sum < whole ? sum : whole;
}

static bool is_outer(const hir_module *m, hir_id kernel, hir_ref r) {
    if (r.kind != HIR_REF_VALUE) return false;
    const hir_id op = hir_value_at(m, r.index)->op;
    return op == HIR_NONE || hir_op_at(m, op)->parent != kernel;
}

static bool has_rows(const hir_module *m, hir_ref r) {
    const hir_type t = hir_ref_type(m, r);
    return t.rank > 0 && t.dim[0] == HIR_T && t.dtype == HIR_F32;
}

static double bytes_of_kernel(const hir_module *m, hir_id kernel) {
    const hir_op *k = hir_op_at(m, kernel);
    double elements = 0;
    bool *seen = calloc(m->values.n, sizeof *seen);
    for (uint32_t i = 0; i < k->n_results; i++)
        if (has_rows(m, hir_value_ref(k->results[i])))
            elements += (double)hir_type_row_elements(hir_value_at(m, k->results[i])->type);
    HIR_EACH(m, id, k->body_first) {
        const hir_op *o = hir_op_at(m, id);
        for (uint32_t a = 0; seen && a < o->n_args; a++) {
            const hir_ref r = o->args[a];
            if (!is_outer(m, kernel, r) || !has_rows(m, r) || seen[r.index]) continue;
            seen[r.index] = true;
            elements += elements_read(m, kernel, r);
        }
    }
    free(seen);
    return 4 * elements;
}

/* ---- work of a kernel ---------------------------------------------------------------------------
 */

static void count_contract(const hir_module *m, hir_id kernel, double rows, work *w) {
    HIR_EACH(m, id, hir_op_at(m, kernel)->body_first) {
        const hir_op *o = hir_op_at(m, id);
        if (o->code != HIR_LINEAR_OP) continue;
        const hir_type t = hir_ref_type(m, o->args[1]);
        const double elements = (double)(t.dim[0] * t.dim[1]);
        w->flops += 2 * elements * rows;
        uint64_t bytes;
        if (hir_weight_bytes(&m->weights.at[o->args[1].index], &bytes))
            w->matrix_bytes += (double)bytes;
    }
    w->contracts++;
    w->contract_bytes += bytes_of_kernel(m, kernel) * rows;
}

/* Row t of T sees past + t + 1 positions; each costs two dot products of a head's n. */
static void count_sequence(const hir_module *m, hir_id kernel, double T, double past, work *w) {
    HIR_EACH(m, id, hir_op_at(m, kernel)->body_first) {
        const hir_op *o = hir_op_at(m, id);
        if (o->code != HIR_ATTENTION_OP) continue;
        const hir_type q = hir_arg_type(m, id, 0);
        w->flops += 4 * (T * past + T * (T + 1) / 2) * (double)hir_type_row_elements(q);
    }
    w->sequences++;
    w->contract_bytes += bytes_of_kernel(m, kernel) * T;
}

work count_work(const hir_module *m, int64_t T, int64_t past, int64_t asked) {
    work w = {0};
    HIR_EACH(m, id, m->first) {
        const hir_op *o = hir_op_at(m, id);
        const char *rows = hir_attr_string(o, HIR_A_ROWS, "all");
        const double n = (double)(strcmp(rows, "last") == 0 ? asked : T);
        if (o->code == HIR_KERNEL_CONTRACT_OP) count_contract(m, id, n, &w);
        if (o->code == HIR_KERNEL_SEQUENCE_OP) count_sequence(m, id, n, (double)past, &w);
        if (o->code != HIR_KERNEL_ROW_OP) continue;
        w.rows++;
        w.row_bytes += bytes_of_kernel(m, id) * n;
    }
    return w;
}
