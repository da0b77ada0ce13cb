/* Schedules of row programs in dumps of kernel IR: what the code of each CPU level does. */
#include <string.h>

#include "codegen/module/library.h"
#include "codegen/rowwise/emit/emit_row.h"

typedef struct level_text {
    const char *level, *text;
} level_text;

static bool schedule_text(hcg_program *p, hd_diags *d, const hcg_kernel *k, const hcg_level *level,
                          level_text *out) {
    const row_target target = row_target_of(level);
    row_graph g;
    row_schedule s;
    hd_text text;
    hd_text_init(&text, p->arena);
    if (!row_schedule_kernel(p->arena, d, p->m, k, &target, &g, &s)) return false;
    row_print_schedule(&s, ";   ", &text);
    *out = (level_text){level->name, text.at};
    return true;
}

/* Prints equal schedules once, with the names of all their levels. */
static void add_levels(hd_text *out, const hcg_kernel *k, const level_text *at, size_t n) {
    for (size_t i = 0; i < n; i++) {
        bool before = false;
        for (size_t j = 0; j < i; j++)
            before |= strcmp(at[j].text, at[i].text) == 0;
        if (before) continue;
        hd_text_f(out, "; %s, line %u,", k->name, k->line);
        for (size_t j = i; j < n; j++)
            if (strcmp(at[j].text, at[i].text) == 0) hd_text_f(out, " %s", at[j].level);
        hd_text_f(out, ":\n%s", at[i].text);
    }
}

bool hcg_print_schedules(hcg_program *p, hd_diags *d, hd_text *out) {
    hcg_target t;
    bool any = false;
    if (!hcg_find_target(&p->options, p->arena, d, &t)) return false;
    level_text *at = hd_new_array(p->arena, level_text, t.variants.n);
    for (size_t i = 0; i < p->kernels.n; i++) {
        const hcg_kernel *k = &p->kernels.at[i];
        if (k->kind != HIR_KERNEL_ROW) continue;
        if (!any) hd_text_add(out, "\n; Schedules of row programs (docs/row-programs.md)\n");
        any = true;
        for (size_t l = 0; l < t.variants.n; l++)
            if (!schedule_text(p, d, k, &t.variants.at[l].level, &at[l])) return false;
        add_levels(out, k, at, t.variants.n);
    }
    return true;
}
