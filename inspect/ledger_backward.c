/* The backward half of a step in the ledger: traffic beside the closed forms, what is kept from the
 * forward half, then by phase, pass and kernel. */
#include <string.h>

#include "inspect/format.h"
#include "inspect/ledger.h"
#include "ir/text/text.h"

/* ---- by kernel ------------------------------------------------------------------------------- */

static void count_access(ledger_back_kernel *k, const hir_back_access *x, hd_arena *a) {
    if (hir_back_phase_is_charged(x->phase))
        *(x->write ? &k->each.written : &k->each.read) += x->bytes;
    for (size_t i = 0; i < k->groups.n; i++)
        if (k->groups.at[i].phase == x->phase && k->groups.at[i].write == x->write) {
            k->groups.at[i].n++;
            return;
        }
    const ledger_back_group g = {1, x->write, x->phase};
    hd_push(a, &k->groups, g);
}

static bool does_the_same(const ledger_back_kernel *a, const ledger_back_kernel *b) {
    bool same = !strcmp(a->name, b->name) && a->groups.n == b->groups.n &&
                a->each.read == b->each.read && a->each.written == b->each.written;
    for (size_t i = 0; same && i < a->groups.n; i++)
        same = a->groups.at[i].n == b->groups.at[i].n &&
               a->groups.at[i].write == b->groups.at[i].write &&
               a->groups.at[i].phase == b->groups.at[i].phase;
    return same;
}

static void add_kernel(ledger_backward *back, const ledger_back_kernel *new, hd_arena *a) {
    for (size_t i = 0; i < back->kernels.n; i++)
        if (does_the_same(&back->kernels.at[i], new)) {
            back->kernels.at[i].times++;
            return;
        }
    hd_push(a, &back->kernels, *new);
}

/* The accesses of one kernel are adjacent in the list. */
void ledger_count_backward(ledger_report *r, hd_arena *a) {
    ledger_backward *back = r->back;
    hir_back_ledger_find(r->compiled_module, &r->compiled, a, &back->compiled);
    const hir_back_ledger *l = &back->compiled;
    for (size_t i = 0; i < l->accesses.n;) {
        const hir_id op = l->accesses.at[i].op;
        ledger_back_kernel new = {.name = ledger_op_name(r->compiled_module, op), .times = 1};
        for (; i < l->accesses.n && l->accesses.at[i].op == op; i++)
            count_access(&new, &l->accesses.at[i], a);
        add_kernel(back, &new, a);
    }
}

/* Bytes in units of d, not divided by the number of sublayers. */
static double rows(const ledger_report *r, uint64_t bytes) {
    return r->graph.unit ? (double)bytes / (double)r->graph.unit : 0;
}

/* The rows that are kept beyond the one sum for each sublayer that a standard residual keeps. */
static double kept_above(const ledger_report *r) {
    const hir_kept *k = &r->back->compiled.kept;
    return rows(r, k->sources + k->mixes) - r->graph.sublayers;
}

/* ---- text ------------------------------------------------------------------------------------ */

enum { LABEL = 38 };

static void print_traffic(const ledger_report *r, hd_text *out, const char *label, hir_traffic t) {
    hd_text_f(out, "  %-*s", LABEL, label);
    ledger_print_units(out, hir_ledger_units(&r->graph, t.read));
    ledger_print_units(out, hir_ledger_units(&r->graph, t.written));
    ledger_print_units(out, hir_ledger_units(&r->graph, t.read + t.written));
    hd_text_f(out, " %12llu\n", (unsigned long long)(t.read + t.written));
}

static void print_head(hd_text *out, const char *title, const char *last) {
    hd_text_f(out, "\n%-*s %9s %9s %9s%s%s\n", LABEL + 2, title, "read", "written", "total",
              *last ? "        " : "", last);
}

static void print_forms(const ledger_report *r, hd_text *out) {
    const hir_back_form *forms;
    const size_t n = hir_back_forms(&forms);
    const hir_paper_parameters p = r->parameters;
    hd_text_f(out, "  closed forms at L = %.0f, N = %.0f, S = %.3g\n", p.sublayers, p.blocks,
              p.per_block);
    for (size_t i = 0; i < n; i++) {
        if (!ledger_form_fits(r, forms[i].of)) continue;
        const char *label = hd_printf(out->arena, "%s: %s", forms[i].name, forms[i].formula);
        hd_text_f(out, "    %-56s %9.3f\n", label, forms[i].rows(p));
    }
}

static void print_comparison(const ledger_report *r, hd_text *out) {
    const ledger_backward *b = r->back;
    print_head(out, "backward half, in all", "    bytes");
    if (r->has_naive) print_traffic(r, out, "ops one at a time", b->ops.total);
    if (r->has_naive) print_traffic(r, out, "kernels, no depth passes", b->naive.total);
    if (r->has_kernels) print_traffic(r, out, "kernels, as compiled", b->compiled.total);
    hd_text_add(out,
                "  counted as the closed forms do: no norms, sums for their gains, and output\n");
    if (r->has_naive) print_traffic(r, out, "  ops one at a time", b->ops.counted);
    if (r->has_naive) print_traffic(r, out, "  kernels, no depth passes", b->naive.counted);
    if (r->has_kernels) print_traffic(r, out, "  kernels, as compiled", b->compiled.counted);
    print_forms(r, out);
}

static void print_kept(const ledger_report *r, hd_text *out) {
    const hir_kept *k = &r->back->compiled.kept;
    const struct {
        const char *what;
        uint64_t bytes;
    } all[] = {{"the embedding, outputs and sums", k->sources},
               {"mixes", k->mixes},
               {"inputs of sublayers", k->inputs},
               {"rows stored for the backward half alone", k->again},
               {"numbers", k->numbers}};
    hd_text_f(out, "\n%-42s %9s %14s\n", "kept from forward to backward", "rows of d",
              "bytes a token");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        hd_text_f(out, "  %-40s %9.2f %14llu\n", all[i].what, rows(r, all[i].bytes),
                  (unsigned long long)all[i].bytes);
    hd_text_f(out, "  %-40s %9.2f", "sources and mixes above the standard's", kept_above(r));
    if (ledger_form_fits(r, PAPER_BLOCK))
        hd_text_f(out, "   closed forms: L + N + 1 = %.0f, with phase 1 again N + 1 = %.0f",
                  hir_back_kept(r->parameters), hir_back_kept_again(r->parameters));
    hd_text_add(out, "\n");
}

static void print_phases(const ledger_report *r, hd_text *out) {
    const hir_back_ledger *l = &r->back->compiled;
    print_head(out, "backward half, by phase", "    bytes");
    for (int p = 0; p < HIR_BACK_PHASE_COUNT; p++) {
        if (!l->phase[p].read && !l->phase[p].written) continue;
        const char *name = hir_back_phase_name((hir_back_phase)p);
        const bool charged = hir_back_phase_is_charged((hir_back_phase)p);
        print_traffic(r, out, charged ? name : hd_printf(out->arena, "(%s)", name), l->phase[p]);
    }
}

static void print_steps(const ledger_report *r, hd_text *out) {
    bool any = false;
    for (size_t i = 0; i < r->steps.n; i++) {
        const ledger_step *step = &r->steps.at[i];
        if (!step->back.read && !step->back.written) continue;
        if (!any) print_head(out, "backward half, after each pass", "    bytes");
        any = true;
        print_traffic(r, out, step->pass, step->back);
    }
}

static void print_kernel(const ledger_report *r, const ledger_back_kernel *k, hd_text *out) {
    const char *label =
        k->times > 1 ? hd_printf(out->arena, "%s, %u times", k->name, k->times) : k->name;
    hd_text_f(out, "  %-*s", LABEL, label);
    ledger_print_units(out, rows(r, k->each.read));
    ledger_print_units(out, rows(r, k->each.written));
    ledger_print_units(out, rows(r, k->each.read + k->each.written));
    for (size_t i = 0; i < k->groups.n; i++) {
        const ledger_back_group *g = &k->groups.at[i];
        hd_text_f(out, "%s%s %zu (%s)", i ? ", " : "  ", g->write ? "writes" : "reads", g->n,
                  hir_back_phase_name(g->phase));
    }
    hd_text_add(out, "\n");
}

void ledger_backward_text(const ledger_report *r, hd_text *out) {
    if (!r->back) return;
    print_comparison(r, out);
    print_steps(r, out);
    if (!r->has_kernels) return;
    print_kept(r, out);
    print_phases(r, out);
    print_head(out, "backward half, by kernel, in d per token", "");
    for (size_t i = 0; i < r->back->kernels.n; i++)
        print_kernel(r, &r->back->kernels.at[i], out);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void json_traffic(const ledger_report *r, hd_text *out, const char *key, hir_traffic t) {
    inspect_json_key(out, key);
    ledger_json_traffic(out, &r->graph, t);
}

static void json_accesses(const hir_back_ledger *l, const hir_module *m, hd_text *out) {
    const uint32_t *lines = hir_op_lines(m, out->arena);
    hd_text_add(out, ",\n    \"accesses\": [");
    for (size_t i = 0; i < l->accesses.n; i++) {
        const hir_back_access *a = &l->accesses.at[i];
        hd_text_add(out, i ? ",\n     {\"op\": " : "\n     {\"op\": ");
        inspect_json_string(out, ledger_op_name(m, a->op));
        hd_text_f(out, ", \"line\": %u, \"access\": \"%s\", \"phase\": \"%s\", \"bytes\": %llu}",
                  lines[a->op], a->write ? "write" : "read", hir_back_phase_name(a->phase),
                  (unsigned long long)a->bytes);
    }
    hd_text_add(out, "]");
}

static void json_ledger(const ledger_report *r, const char *key, const hir_back_ledger *l,
                        const hir_module *m, hd_text *out) {
    hd_text_add(out, ",\n   ");
    inspect_json_key(out, key);
    hd_text_add(out, "{");
    json_traffic(r, out, "total", l->total);
    hd_text_add(out, ",\n    ");
    json_traffic(r, out, "as_closed_forms_count", l->counted);
    hd_text_add(out, ",\n    \"phases\": {");
    for (int p = 0; p < HIR_BACK_PHASE_COUNT; p++) {
        hd_text_add(out, p ? ",\n     " : "\n     ");
        json_traffic(r, out, hir_back_phase_name((hir_back_phase)p), l->phase[p]);
    }
    hd_text_add(out, "}");
    if (m) json_accesses(l, m, out);
    hd_text_add(out, "}");
}

static void json_kept(const ledger_report *r, hd_text *out) {
    const hir_kept *k = &r->back->compiled.kept;
    hd_text_f(out,
              ",\n   \"kept\": {\"sources_bytes\": %llu, \"mixes_bytes\": %llu, "
              "\"inputs_bytes\": %llu, \"again_bytes\": %llu, \"numbers_bytes\": %llu, "
              "\"rows_above_standard\": ",
              (unsigned long long)k->sources, (unsigned long long)k->mixes,
              (unsigned long long)k->inputs, (unsigned long long)k->again,
              (unsigned long long)k->numbers);
    hd_text_double(out, kept_above(r));
    hd_text_add(out, "}");
}

static void json_forms(const ledger_report *r, hd_text *out) {
    const hir_back_form *forms;
    const size_t n = hir_back_forms(&forms);
    bool any = false;
    hd_text_add(out, "{\n   \"forms\": {");
    for (size_t i = 0; i < n; i++) {
        if (!ledger_form_fits(r, forms[i].of)) continue;
        hd_text_add(out, any ? ", " : "");
        any = true;
        inspect_json_key(out, forms[i].key);
        hd_text_double(out, forms[i].rows(r->parameters));
    }
    hd_text_add(out, "}");
}

static void json_steps(const ledger_report *r, hd_text *out) {
    bool any = false;
    hd_text_add(out, ",\n   \"passes\": [");
    for (size_t i = 0; i < r->steps.n; i++) {
        const ledger_step *step = &r->steps.at[i];
        if (!step->back.read && !step->back.written) continue;
        hd_text_add(out, any ? ",\n    {\"pass\": " : "\n    {\"pass\": ");
        any = true;
        inspect_json_string(out, step->pass);
        hd_text_f(out, ", \"stage\": \"%s\", ", hir_stage_name(step->stage));
        json_traffic(r, out, "total", step->back);
        hd_text_add(out, "}");
    }
    hd_text_add(out, "]");
}

void ledger_backward_json(const ledger_report *r, hd_text *out) {
    if (!r->back) return;
    hd_text_add(out, ",\n  \"backward\": ");
    json_forms(r, out);
    if (r->has_naive) json_ledger(r, "ops", &r->back->ops, NULL, out);
    if (r->has_naive) json_ledger(r, "naive_kernels", &r->back->naive, NULL, out);
    if (r->has_kernels) json_ledger(r, "kernels", &r->back->compiled, r->compiled_module, out);
    if (r->has_kernels) json_kept(r, out);
    json_steps(r, out);
    hd_text_add(out, "}");
}
