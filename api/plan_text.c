/* The memory plan, read off the places in kernel IR, with the life of each value worked out anew:
 * the table shows what plan-memory decided and not what it meant to.
 */
#include <string.h>

#include "api/inspect.h"
#include "ir/text.h"

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

static bool shares_bytes(const hir_module *m, const hir_plan_row *a, const hir_plan_row *b) {
    const hir_value *x = hir_value_at(m, a->value), *y = hir_value_at(m, b->value);
    return x->place == y->place && x->offset < y->offset + b->bytes &&
           y->offset < x->offset + a->bytes;
}

static bool in_shared_area(const hir_module *m, hir_id v) {
    hir_place place = hir_value_at(m, v)->place;
    return place == HIR_PLACE_ARENA || place == HIR_PLACE_FIXED;
}

static hir_id laid_over(const hir_module *m, const hir_plan *plan, const hir_plan_row *row) {
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
                       hir_plan *plan) {
    const hir_op *o = hir_op_at(m, op);
    for (uint32_t i = 0; i < o->n_results; i++) {
        const hir_value *v = hir_value_at(m, o->results[i]);
        hir_plan_row row = {
            .value = o->results[i],
            .number = number,
            .kernel = hir_attr_string(o, HIR_A_NAME, hir_info(o->code)->name),
            .bytes = value_bytes(v),
            .first = step,
            .leaves = v->place == HIR_PLACE_OUTPUT || v->place == HIR_PLACE_STATE,
        };
        number += !v->name;
        row.over = laid_over(m, plan, &row);
        row.in_place = hir_in_place_of(m, op, i) != HIR_NONE;
        if (v->place == HIR_PLACE_ARENA) plan->unshared += row.bytes;
        plan->placed |= v->place != HIR_PLACE_NONE;
        hd_push(a, &plan->rows, row);
    }
}

void hir_collect_plan(const hir_module *m, hd_arena *a, hir_plan *out) {
    *out = (hir_plan){0};
    if (m->stage != HIR_STAGE_KERNEL) return;
    uint32_t *last = hd_new_array(a, uint32_t, m->values.n), number = 0;
    for (size_t i = 0; i < m->inputs.n; i++)
        number += !hir_value_at(m, m->inputs.at[i])->name;
    HIR_EACH(m, op, m->first) {
        const hir_op *o = hir_op_at(m, op);
        if (hir_has_trait(o->code, HIR_REGION)) {
            read_at(m, o->body_first, out->kernels, last);
            add_kernel(m, a, op, out->kernels++, number, out);
        }
        number += unnamed_results(m, op);
    }
    for (size_t i = 0; i < out->rows.n; i++) {
        hir_plan_row *row = &out->rows.at[i];
        uint32_t end = last[row->value];
        row->last = end > row->first ? end : row->first;
    }
}

/* ---- printing -------------------------------------------------------------------------------- */

static const char *value_name(const hir_module *m, hd_arena *a, hir_id v, const hir_plan *plan) {
    if (hir_value_at(m, v)->name) return hd_printf(a, "%%%s", hir_value_at(m, v)->name);
    for (size_t i = 0; i < plan->rows.n; i++)
        if (plan->rows.at[i].value == v) return hd_printf(a, "%%%u", plan->rows.at[i].number);
    return "";
}

static const char *place_text(const hir_value *v, hd_arena *a) {
    if (v->place == HIR_PLACE_NONE) return "-";
    return hd_printf(a, "%s[%llu]", hir_place_name(v->place), (unsigned long long)v->offset);
}

enum { COLUMNS = 6 };
typedef struct table_row {
    const char *cell[COLUMNS];
} table_row;

static table_row plan_cells(const hir_module *m, hd_arena *a, const hir_plan *plan,
                            const hir_plan_row *row) {
    const hir_value *v = hir_value_at(m, row->value);
    bool per_token = v->type.rank && v->type.dim[0] < 0;
    return (table_row){{
        value_name(m, a, row->value, plan),
        row->kernel,
        hd_printf(a, "%llu%s", (unsigned long long)row->bytes, per_token ? "" : " once"),
        place_text(v, a),
        row->leaves ? hd_printf(a, "%u-", row->first)
                    : hd_printf(a, "%u-%u", row->first, row->last),
        row->over == HIR_NONE ? "" : value_name(m, a, row->over, plan),
    }};
}

/* Columns as wide as their widest cell, no blanks at the end of a line. */
static void print_table(const table_row *rows, size_t n, hd_text *out) {
    int width[COLUMNS] = {0};
    for (size_t r = 0; r < n; r++)
        for (int c = 0; c < COLUMNS; c++)
            if ((int)strlen(rows[r].cell[c]) > width[c]) width[c] = (int)strlen(rows[r].cell[c]);
    for (size_t r = 0; r < n; r++) {
        int used = COLUMNS;
        while (used > 1 && !rows[r].cell[used - 1][0])
            used--;
        for (int c = 0; c < used; c++)
            hd_text_f(out, "%s%-*s", c ? "  " : "", c + 1 < used ? width[c] : 0, rows[r].cell[c]);
        hd_text_add(out, "\n");
    }
}

void hir_plan_text(const hir_module *m, hd_text *out) {
    hd_arena *a = out->arena;
    hir_plan plan;
    hir_collect_plan(m, a, &plan);
    if (!plan.placed) {
        hd_text_f(out, "%s: no memory plan yet (%s stage)\n", m->name, hir_stage_name(m->stage));
        return;
    }
    hd_text_f(out,
              "%s: arena %llu bytes per token (%llu without reuse), fixed %llu bytes, %u kernels\n"
              "bytes are per token; life is from the kernel that makes the value to the last one\n"
              "that reads it; over: whose bytes it takes\n\n",
              m->name, (unsigned long long)m->arena_per_token, (unsigned long long)plan.unshared,
              (unsigned long long)m->fixed_bytes, plan.kernels);
    table_row *rows = hd_new_array(a, table_row, plan.rows.n + 1);
    rows[0] = (table_row){{"value", "kernel", "bytes", "place", "life", "over"}};
    for (size_t i = 0; i < plan.rows.n; i++)
        rows[i + 1] = plan_cells(m, a, &plan, &plan.rows.at[i]);
    print_table(rows, plan.rows.n + 1, out);
}
