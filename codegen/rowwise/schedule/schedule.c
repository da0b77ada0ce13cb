/* The steps of scheduling a row program, in order (schedule.h). */
#include "codegen/rowwise/schedule/steps.h"

int64_t row_most(const row_graph *g, row_size size) {
    return row_is_dynamic(size) ? size.a + size.b * g->k->size[HCG_N].most : size.a;
}

static void choose_nest(const row_schedule *s, row_nest *nest) {
    if (nest->small || nest->selection || nest->roots.n == 0) return;
    row_choose_loops(s, nest);
    row_choose_groups(s, nest);
}

void row_make_schedule(row_graph *g, const row_target *target, row_schedule *out) {
    *out = (row_schedule){.g = g, .target = *target, .once = {.once = true}};
    out->of = hd_new_array(g->arena, row_scheduled, g->nodes.n + 1);
    row_choose_nests(out);
    row_choose_small(out);
    row_choose_memory(out);
    row_choose_nontemporal(out);
    for (size_t i = 0; i < out->once.list.n; i++)
        choose_nest(out, &out->once.list.at[i]);
    for (size_t i = 0; i < out->per_token.list.n; i++)
        choose_nest(out, &out->per_token.list.at[i]);
    for (size_t i = 0; i < out->per_token.list.n; i++)
        if (!out->per_token.list.at[i].small && !out->per_token.list.at[i].selection)
            row_choose_prefetch(out, &out->per_token.list.at[i]);
}

static bool build(hd_arena *a, hd_diags *d, const hir_module *m, const hcg_kernel *k, bool apart,
                  row_graph *g) {
    *g = (row_graph){
        .arena = a, .diags = d, .m = k->any ? k->any : m, .whole = m, .k = k, .apart = apart};
    return row_build(g);
}

bool row_schedule_kernel(hd_arena *a, hd_diags *d, const hir_module *m, const hcg_kernel *k,
                         const row_target *target, row_graph *g, row_schedule *out) {
    if (!build(a, d, m, k, false, g)) return false;
    row_make_schedule(g, target, out);
    if (row_may_be_in_place(out)) return true;
    if (!build(a, d, m, k, true, g)) return false;
    row_make_schedule(g, target, out);
    return true;
}
