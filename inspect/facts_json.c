/* Facts of a module for programs. */
#include "inspect/facts.h"
#include "inspect/json.h"
#include "ir/text.h"

static void print_typed_name(hd_text *out, const char *name, hir_type type) {
    hd_text_add(out, "{\"name\": ");
    inspect_json_string(out, name);
    hd_text_f(out, ", \"type\": \"%s\"}", hir_type_string(out->arena, type));
}

static void print_values(const char *key, const facts_value *at, size_t n, hd_text *out) {
    hd_text_f(out, "  \"%s\": [", key);
    for (size_t i = 0; i < n; i++) {
        hd_text_add(out, i ? ", " : "");
        print_typed_name(out, at[i].name, at[i].type);
    }
    hd_text_add(out, "],\n");
}

static void print_options(const hir_module *m, hd_text *out) {
    hd_text_add(out, "  \"options\": {");
    for (size_t i = 0; i < m->options.n; i++) {
        hd_text_add(out, i ? ", " : "");
        inspect_json_key(out, m->options.at[i].key);
        inspect_json_string(out, m->options.at[i].value);
    }
    hd_text_add(out, "},\n");
}

static void print_work(const facts *x, hd_text *out) {
    hd_text_f(out,
              "  \"flops_per_token\": {\"linear\": %.0f, \"attention_per_position\": %.0f, "
              "\"total\": [",
              x->as_loaded.linear_flops, x->as_loaded.attention_flops);
    for (int i = 0; i < FACTS_POSITIONS; i++)
        hd_text_f(out, "%s{\"positions\": %d, \"flops\": %.0f}", i ? ", " : "",
                  x->work[i].positions, x->work[i].flops);
    hd_text_add(out, "]},\n");
}

static void print_ops(const hir_module *m, const module_facts *f, hd_text *out) {
    hd_text_f(out, "{\"stage\": \"%s\", \"total\": %u, \"ops\": {", hir_stage_name(m->stage),
              f->total_ops);
    bool first = true;
    for (int code = 0; code < HIR_OPCODE_COUNT; code++) {
        if (!f->ops[code]) continue;
        hd_text_f(out, "%s\"%s\": %u", first ? "" : ", ", hir_info(code)->name, f->ops[code]);
        first = false;
    }
    hd_text_add(out, "}}");
}

static void print_plan(const memory_plan *plan, hd_text *out) {
    if (!plan->placed) {
        hd_text_add(out, "  \"plan\": null\n");
        return;
    }
    hd_text_f(out,
              "  \"plan\": {\"kernels\": %u, \"values\": %zu, \"arena_bytes_per_token\": %llu, "
              "\"arena_bytes_per_token_without_reuse\": %llu, \"fixed_bytes\": %llu}\n",
              plan->kernels, plan->rows.n, (unsigned long long)plan->m->arena_per_token,
              (unsigned long long)plan->unshared, (unsigned long long)plan->m->fixed_bytes);
}

static void print_sizes(const facts *x, hd_text *out) {
    hd_text_f(out,
              "  \"parameters\": %llu,\n"
              "  \"active_parameters\": %llu,\n"
              "  \"weights\": {\"tensors\": %u, \"unused\": %u, \"bytes\": %llu",
              (unsigned long long)x->as_loaded.parameters, (unsigned long long)x->as_loaded.active,
              x->as_loaded.tensors, x->as_loaded.unused,
              (unsigned long long)x->as_now.weight_bytes);
    for (int t = 0; t < HIR_DTYPE_COUNT; t++)
        if (x->as_now.dtype_bytes[t])
            hd_text_f(out, ", \"%s\": %llu", hir_dtype_name((hir_dtype)t),
                      (unsigned long long)x->as_now.dtype_bytes[t]);
    hd_text_f(
        out,
        "},\n"
        "  \"state\": {\"tensors\": %zu, \"bytes_per_position\": %llu, \"fixed_bytes\": %llu},\n",
        x->now->states.n, (unsigned long long)x->as_now.state_bytes,
        (unsigned long long)x->as_now.fixed_state_bytes);
}

void facts_json(const facts *x, hd_text *out) {
    hd_text_add(out, "{\n  ");
    inspect_json_key(out, "name");
    inspect_json_string(out, x->graph->name);
    hd_text_add(out, ",\n");
    print_options(x->graph, out);
    print_values("inputs", x->inputs.at, x->inputs.n, out);
    print_values("outputs", x->outputs.at, x->outputs.n, out);
    print_sizes(x, out);
    print_work(x, out);
    hd_text_add(out, "  ");
    layers_json(&x->layers, out);
    hd_text_add(out, ",\n  \"stages\": [");
    print_ops(x->graph, &x->as_loaded, out);
    if (x->lowered) {
        hd_text_add(out, ", ");
        print_ops(x->now, &x->as_now, out);
    }
    hd_text_add(out, "],\n");
    print_plan(&x->plan, out);
    hd_text_add(out, "}\n");
}
