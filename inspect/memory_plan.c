/* The memory plan, read from the places in the kernel IR. The live range of each value is computed
 * here once more, so that the table shows what plan-memory has decided and not what it intended. */
#include "inspect/memory_plan.h"

#include <string.h>

#include "inspect/format.h"
#include "ir/text/text.h"

/* ---- collecting ------------------------------------------------------------------------------ */

/* Extends the live ranges of the values that the ops from `first` on read to kernel number
 * `step`. */
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
    return place == HIR_PLACE_ARENA || place == HIR_PLACE_LOCAL || place == HIR_PLACE_TILE ||
           place == HIR_PLACE_FIXED;
}

static hir_id aliased_by(const hir_module *m, const memory_plan *plan, const memory_plan_row *row) {
    if (!in_shared_area(m, row->value)) return HIR_NONE;
    for (size_t i = plan->rows.n; i-- > 0;)
        if (shares_bytes(m, row, &plan->rows.at[i])) return plan->rows.at[i].value;
    return HIR_NONE;
}

/* How many results of `op`, and of its body, have no name and so get a number from the printer. */
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
    const hir_id *in_place = hir_in_place(m, op, a);
    for (uint32_t i = 0; i < o->n_results; i++) {
        const hir_value *v = hir_value_at(m, o->results[i]);
        memory_plan_row row = {
            .value = o->results[i],
            .number = number,
            .kernel = hir_attr_string(o, HIR_A_NAME, hir_info(o->code)->name),
            .bytes = value_bytes(v),
            .first = step,
            .leaves = v->place >= HIR_PLACE_OUTPUT,
        };
        number += !v->name;
        row.over = aliased_by(m, plan, &row);
        row.in_place = in_place[i] != HIR_NONE;
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

/* ---- for people ------------------------------------------------------------------------------ */

static const char *value_name(const memory_plan *plan, hd_arena *a, hir_id v) {
    const hir_module *m = plan->m;
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

static table_row plan_cells(hd_arena *a, const memory_plan *plan, const memory_plan_row *row) {
    const hir_value *v = hir_value_at(plan->m, row->value);
    bool per_token = v->type.rank && v->type.dim[0] < 0;
    return (table_row){{
        value_name(plan, a, row->value),
        row->kernel,
        hd_printf(a, "%llu%s", (unsigned long long)row->bytes, per_token ? "" : " once"),
        place_text(v, a),
        row->leaves ? hd_printf(a, "%u-", row->first)
                    : hd_printf(a, "%u-%u", row->first, row->last),
        row->over == HIR_NONE ? "" : value_name(plan, a, row->over),
    }};
}

/* Prints columns as wide as their widest cell, without blanks at the end of a line. */
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

void memory_plan_text(const memory_plan *plan, hd_text *out) {
    const hir_module *m = plan->m;
    hd_arena *a = out->arena;
    if (!plan->placed) {
        hd_text_f(out, "%s: no memory plan yet (%s stage)\n", m->name, hir_stage_name(m->stage));
        return;
    }
    hd_text_f(out,
              "%s: arena %llu bytes per token (%llu without reuse), fixed %llu bytes, %u kernel%s\n"
              "bytes are per token; life is from the kernel that makes the value to the last one\n"
              "that reads it; over: whose bytes it takes\n\n",
              m->name, (unsigned long long)m->arena_per_token, (unsigned long long)plan->unshared,
              (unsigned long long)m->fixed_bytes, plan->kernels, hd_s(plan->kernels));
    table_row *rows = hd_new_array(a, table_row, plan->rows.n + 1);
    rows[0] = (table_row){{"value", "kernel", "bytes", "place", "life", "over"}};
    for (size_t i = 0; i < plan->rows.n; i++)
        rows[i + 1] = plan_cells(a, plan, &plan->rows.at[i]);
    print_table(rows, plan->rows.n + 1, out);
}

/* ---- for programs ---------------------------------------------------------------------------- */

/* By value: its row of the plan; HIR_NONE: it has none. */
static uint32_t *rows_of_values(const memory_plan *x, hd_arena *a) {
    uint32_t *row = hd_new_array(a, uint32_t, x->m->values.n + 1);
    for (size_t i = 0; i < x->m->values.n; i++)
        row[i] = HIR_NONE;
    for (size_t i = 0; i < x->rows.n; i++)
        row[x->rows.at[i].value] = (uint32_t)i;
    return row;
}

static void print_states(const hir_module *m, hd_text *out) {
    hd_text_add(out, ",\n  \"states\": [");
    for (size_t i = 0; i < m->states.n; i++) {
        const hir_state *s = &m->states.at[i];
        const hir_state_kind_info *kind = hir_state_kind_of(s->kind);
        hd_text_add(out, i ? ",\n    {\"name\": " : "\n    {\"name\": ");
        inspect_json_string(out, s->name);
        hd_text_f(out, ", \"kind\": \"%s\", \"type\": \"", kind->word);
        hir_print_type(out, s->type);
        hd_text_f(out, "\", \"per_position\": %s, \"bytes\": %llu}",
                  kind->rows == HIR_ROWS_PER_POSITION ? "true" : "false",
                  (unsigned long long)hir_state_bytes(s));
    }
    hd_text_add(out, "]");
}

static void print_row(const memory_plan *x, const memory_plan_row *row, const uint32_t *lines,
                      const uint32_t *row_of, const uint32_t *numbers, hd_text *out) {
    const hir_value *v = hir_value_at(x->m, row->value);
    const bool per_token = v->type.rank && v->type.dim[0] < 0;
    hd_text name;
    hd_text_init(&name, out->arena);
    hir_print_ref(x->m, hir_value_ref(row->value), numbers, &name);
    hd_text_add(out, "[");
    inspect_json_string(out, name.at);
    hd_text_add(out, ", ");
    inspect_json_string(out, row->kernel);
    hd_text_f(out, ", %u, %llu, %d, \"%s\", %llu, %u, %u, %d, %d, ",
              v->op == HIR_NONE ? 0 : lines[v->op], (unsigned long long)row->bytes, per_token,
              hir_place_name(v->place), (unsigned long long)v->offset, row->first, row->last,
              row->leaves, row->in_place);
    hd_text_f(out, "%d]", row->over == HIR_NONE ? -1 : (int)row_of[row->over]);
}

void memory_plan_json(const memory_plan *x, hd_text *out) {
    const uint32_t *lines = hir_op_lines(x->m, out->arena);
    const uint32_t *row_of = rows_of_values(x, out->arena);
    const uint32_t *numbers = hir_number_values(x->m, out->arena);
    hd_text_f(out,
              "{\"placed\": %s, \"kernels\": %u, \"arena_bytes_per_token\": %llu, "
              "\"arena_bytes_per_token_without_reuse\": %llu, \"fixed_bytes\": %llu",
              x->placed ? "true" : "false", x->kernels, (unsigned long long)x->m->arena_per_token,
              (unsigned long long)x->unshared, (unsigned long long)x->m->fixed_bytes);
    print_states(x->m, out);
    hd_text_add(out,
                ",\n  \"columns\": [\"value\", \"kernel\", \"line\", \"bytes\", \"per_token\", "
                "\"place\", \"offset\", \"first\", \"last\", \"leaves\", \"in_place\", "
                "\"over\"],\n  \"rows\": [");
    for (size_t i = 0; i < x->rows.n; i++) {
        hd_text_add(out, i ? ",\n    " : "\n    ");
        print_row(x, &x->rows.at[i], lines, row_of, numbers, out);
    }
    hd_text_add(out, "]}\n");
}
