/* Facts of a module for people. */
#include "inspect/facts.h"
#include "inspect/units.h"
#include "ir/text.h"

/* 1234567 as "1.23 M", with units a thousand apart. */
static void print_scaled(hd_text *out, double x, const char *unit) {
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P"};
    int i = 0;
    for (; x >= 999.5 && i < 5; i++)
        x /= 1000;
    const int decimals = i == 0 || x >= 99.95 ? 0 : x >= 9.995 ? 1 : 2;
    hd_text_f(out, "%.*f %s%s", decimals, x, prefixes[i], unit);
}

static void print_bytes(hd_text *out, uint64_t bytes) {
    hd_text_add(out, inspect_bytes(out->arena, bytes));
}

static void print_label(hd_text *out, const char *label) {
    hd_text_f(out, "  %-16s", label);
}

static void print_values(const char *label, const facts_value *at, size_t n, hd_text *out) {
    for (size_t i = 0; i < n; i++) {
        print_label(out, i ? "" : label);
        hd_text_f(out, "%s ", at[i].name);
        hir_print_type(out, at[i].type);
        hd_text_add(out, "\n");
    }
}

static void print_size(const module_facts *graph, const module_facts *now, hd_text *out) {
    print_label(out, "parameters");
    hd_text_f(out, "%llu in %u tensors", (unsigned long long)graph->parameters, graph->tensors);
    if (graph->active < graph->parameters)
        hd_text_f(out, ", %llu active per token", (unsigned long long)graph->active);
    if (graph->unused) hd_text_f(out, " (%u more are read by no op)", graph->unused);
    hd_text_add(out, "\n");
    print_label(out, "weights");
    print_bytes(out, now->weight_bytes);
    hd_text_f(out, " (%llu)", (unsigned long long)now->weight_bytes);
    for (int t = 0, n = 0; t < HIR_DTYPE_COUNT; t++) {
        if (!now->dtype_bytes[t]) continue;
        hd_text_add(out, n++ ? ", " : ": ");
        print_bytes(out, now->dtype_bytes[t]);
        hd_text_f(out, " in %s", hir_dtype_name((hir_dtype)t));
    }
    hd_text_add(out, "\n");
    print_label(out, "state");
    print_bytes(out, now->state_bytes);
    hd_text_f(out, " per position (%llu)", (unsigned long long)now->state_bytes);
    if (now->fixed_state_bytes) {
        hd_text_add(out, ", ");
        print_bytes(out, now->fixed_state_bytes);
        hd_text_f(out, " of fixed size (%llu)", (unsigned long long)now->fixed_state_bytes);
    }
    hd_text_add(out, "\n");
}

static void print_work(const facts *x, hd_text *out) {
    const module_facts *f = &x->as_loaded;
    print_label(out, "work per token");
    print_scaled(out, f->linear_flops, "FLOP");
    hd_text_add(out, " in linear ops");
    if (f->attention_flops > 0) {
        hd_text_add(out, ", ");
        print_scaled(out, f->attention_flops, "FLOP");
        hd_text_add(out, " per position looked at\n");
        for (int i = 0; i < FACTS_POSITIONS; i++) {
            print_label(out, "");
            hd_text_f(out, "%6d positions: ", x->work[i].positions);
            print_scaled(out, x->work[i].flops, "FLOP");
            hd_text_add(out, "\n");
        }
    } else {
        hd_text_add(out, "\n");
    }
}

static void print_ops(const hir_module *m, const module_facts *f, hd_text *out) {
    hd_text_f(out, "\nops at the %s stage: %u\n", hir_stage_name(m->stage), f->total_ops);
    for (int code = 0; code < HIR_OPCODE_COUNT; code++)
        if (f->ops[code]) hd_text_f(out, "  %-18s %6u\n", hir_info(code)->name, f->ops[code]);
}

static void print_plan_summary(const memory_plan *plan, hd_text *out) {
    if (!plan->placed) return;
    hd_text_f(out, "\nmemory plan (--emit=plan shows all of it)\n");
    print_label(out, "kernels");
    hd_text_f(out, "%u, leaving %zu values\n", plan->kernels, plan->rows.n);
    print_label(out, "arena");
    hd_text_f(out, "%llu bytes per token, %llu without reuse\n",
              (unsigned long long)plan->m->arena_per_token, (unsigned long long)plan->unshared);
    print_label(out, "fixed");
    hd_text_f(out, "%llu bytes\n", (unsigned long long)plan->m->fixed_bytes);
}

void facts_text(const facts *x, hd_text *out) {
    hd_text_f(out, "%s\n", x->graph->name);
    for (size_t i = 0; i < x->graph->options.n; i++) {
        print_label(out, i ? "" : "options");
        hd_text_f(out, "%s = %s\n", x->graph->options.at[i].key, x->graph->options.at[i].value);
    }
    print_values("inputs", x->inputs.at, x->inputs.n, out);
    print_values("outputs", x->outputs.at, x->outputs.n, out);
    print_size(&x->as_loaded, &x->as_now, out);
    print_work(x, out);
    layers_held_text(&x->layers, out);
    print_ops(x->graph, &x->as_loaded, out);
    if (x->lowered) print_ops(x->now, &x->as_now, out);
    print_plan_summary(&x->plan, out);
}
