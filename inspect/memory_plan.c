/* The memory plan, read off the places in kernel IR, with the life of each value worked out anew:
 * the table shows what plan-memory decided and not what it meant to.
 */
#include "inspect/memory_plan.h"

/* ---- collecting ------------------------------------------------------------------------------ */

/* Extends the life of the values that the ops from `first` on read to kernel number `step`. */
static void read_at(const hir_module *m, hir_id first, uint32_t step, uint32_t *last) {
    HIR_EACH(m, op, first) {
        const hir_op *o = hir_op_at(m, op);
        for (uint32_t i = 0; i < o->n_args; i++)
            if (o->args[i].kind == HIR_REF_VALUE) last[o->args[i].index] = step;
    }
}

static uint64_t value_bytes(const hir_value *v) {
    int64_t elements = hir_type_row_elements(v->type);
    uint64_t bytes;
    if (elements < 0 || hd_mul_overflow((uint64_t)elements, hir_dtype_bytes(v->type.dtype), &bytes))
        return UINT64_MAX;
    return bytes;
}

static bool shares_bytes(const hir_module *m, const memory_plan_row *a, const memory_plan_row *b) {
    const hir_value *x = hir_value_at(m, a->value), *y = hir_value_at(m, b->value);
    return x->place == y->place && x->offset < y->offset + b->bytes &&
           y->offset < x->offset + a->bytes;
}

static bool in_shared_area(const hir_module *m, hir_id v) {
    hir_place place = hir_value_at(m, v)->place;
    return place == HIR_PLACE_ARENA || place == HIR_PLACE_LOCAL || place == HIR_PLACE_FIXED;
}

static hir_id aliased_by(const hir_module *m, const memory_plan *plan, const memory_plan_row *row) {
    if (!in_shared_area(m, row->value)) return HIR_NONE;
    for (size_t i = plan->rows.n; i-- > 0;)
        if (shares_bytes(m, row, &plan->rows.at[i])) return plan->rows.at[i].value;
    return HIR_NONE;
}

/* How many results the printer would number among those of op, and of its body. */
static uint32_t unnamed_results(const hir_module *m, hir_id op) {
    const hir_op *o = hir_op_at(m, op);
    uint32_t n = 0;
    for (uint32_t i = 0; i < o->n_results; i++)
        n += !hir_value_at(m, o->results[i])->name;
    HIR_EACH(m, inner, o->body_first)
    n += unnamed_results(m, inner);
    return n;
}

static void add_kernel(const hir_module *m, hd_arena *a, hir_id op, uint32_t step, uint32_t number,
                       memory_plan *plan) {
    const hir_op *o = hir_op_at(m, op);
    for (uint32_t i = 0; i < o->n_results; i++) {
        const hir_value *v = hir_value_at(m, o->results[i]);
        memory_plan_row row = {
            .value = o->results[i],
            .number = number,
            .kernel = hir_attr_string(o, HIR_A_NAME, hir_info(o->code)->name),
            .bytes = value_bytes(v),
            .first = step,
            .leaves = v->place == HIR_PLACE_OUTPUT || v->place == HIR_PLACE_STATE,
        };
        number += !v->name;
        row.over = aliased_by(m, plan, &row);
        row.in_place = hir_in_place_of(m, op, i) != HIR_NONE;
        if (v->place == HIR_PLACE_ARENA || v->place == HIR_PLACE_LOCAL) plan->unshared += row.bytes;
        plan->placed |= v->place != HIR_PLACE_NONE;
        hd_push(a, &plan->rows, row);
    }
}

void memory_plan_find(const hir_module *m, hd_arena *a, memory_plan *out) {
    *out = (memory_plan){.m = m};
    if (m->stage != HIR_STAGE_KERNEL) return;
    uint32_t *last = hd_new_array(a, uint32_t, m->values.n), number = 0;
    for (size_t i = 0; i < m->inputs.n; i++)
        number += !hir_value_at(m, m->inputs.at[i])->name;
    HIR_EACH(m, op, m->first) {
        const hir_op *o = hir_op_at(m, op);
        if (hir_is_kernel(o)) {
            read_at(m, o->body_first, out->kernels, last);
            add_kernel(m, a, op, out->kernels++, number, out);
        }
        number += unnamed_results(m, op);
    }
    for (size_t i = 0; i < out->rows.n; i++) {
        memory_plan_row *row = &out->rows.at[i];
        uint32_t end = last[row->value];
        row->last = end > row->first ? end : row->first;
    }
}

bool memory_plan_collect(const inspect_subject *s, memory_plan *out) {
    memory_plan_find(s->now, s->arena, out);
    return true;
}
