/* The memory plan for programs: columns, and a row for each value that a kernel leaves behind. */
#include "inspect/json.h"
#include "inspect/memory_plan.h"
#include "ir/text.h"

/* By value: the row of the plan; HIR_NONE. */
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
