/* The memory plan as a table: all that kernels leave behind, with its place, size and life, and
 * what it aliases. */
#include <string.h>

#include "inspect/memory_plan.h"
#include "ir/text.h"

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

void memory_plan_text(const memory_plan *plan, hd_text *out) {
    const hir_module *m = plan->m;
    hd_arena *a = out->arena;
    if (!plan->placed) {
        hd_text_f(out, "%s: no memory plan yet (%s stage)\n", m->name, hir_stage_name(m->stage));
        return;
    }
    hd_text_f(out,
              "%s: arena %llu bytes per token (%llu without reuse), fixed %llu bytes, %u kernels\n"
              "bytes are per token; life is from the kernel that makes the value to the last one\n"
              "that reads it; over: whose bytes it takes\n\n",
              m->name, (unsigned long long)m->arena_per_token, (unsigned long long)plan->unshared,
              (unsigned long long)m->fixed_bytes, plan->kernels);
    table_row *rows = hd_new_array(a, table_row, plan->rows.n + 1);
    rows[0] = (table_row){{"value", "kernel", "bytes", "place", "life", "over"}};
    for (size_t i = 0; i < plan->rows.n; i++)
        rows[i + 1] = plan_cells(a, plan, &plan->rows.at[i]);
    print_table(rows, plan->rows.n + 1, out);
}
