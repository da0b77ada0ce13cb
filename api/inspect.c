/* Facts of a module: parameters, work, bytes, op counts; as text and as JSON. */
#include "api/inspect.h"

#include <math.h>

#include "api/json.h"
#include "ir/text.h"

/* ---- collecting ------------------------------------------------------------------------------ */

static uint64_t row_elements(hir_type t) {
    int64_t n = hir_type_row_elements(t);
    return n < 0 ? UINT64_MAX : (uint64_t)n;
}

static uint64_t stored_bytes(const hir_weight *w) {
    uint64_t bytes;
    return hir_weight_bytes(w, &bytes) ? bytes : UINT64_MAX;
}

static void count_weights(const hir_module *m, hir_facts *f) {
    for (size_t i = 0; i < m->weights.n; i++) {
        const hir_weight *w = &m->weights.at[i];
        if (w->unused) {
            f->unused++;
            continue;
        }
        uint64_t bytes = stored_bytes(w), *of_dtype = &f->dtype_bytes[w->type.dtype];
        f->weight_bytes = hd_capped_add(f->weight_bytes, bytes);
        *of_dtype = hd_capped_add(*of_dtype, bytes);
        if (hir_is_derived(w)) continue;
        f->tensors++;
        f->parameters = hd_capped_add(f->parameters, row_elements(w->type));
    }
}

static void count_work(const hir_module *m, hir_id op, hir_facts *f) {
    const hir_op_work work = hir_work_of(m, op);
    f->linear_flops += (double)work.row_flops;
    f->attention_flops += (double)work.pair_flops;
}

static void count_ops(const hir_module *m, hir_id first, hir_facts *f) {
    HIR_EACH(m, op, first) {
        const hir_op *o = hir_op_at(m, op);
        f->ops[o->code]++;
        if (!hir_has_trait(o->code, HIR_REGION)) f->total_ops++;
        count_work(m, op, f);
        count_ops(m, o->body_first, f);
    }
}

void hir_collect_facts(const hir_module *m, hir_facts *out) {
    *out = (hir_facts){0};
    count_weights(m, out);
    for (size_t i = 0; i < m->states.n; i++) {
        const hir_state *s = &m->states.at[i];
        const uint64_t bytes = hd_capped_mul(row_elements(s->type), hir_dtype_bytes(s->type.dtype));
        const bool grows = hir_state_kind_of(s->kind)->rows == HIR_ROWS_PER_POSITION;
        uint64_t *sum = grows ? &out->state_bytes : &out->fixed_state_bytes;
        *sum = hd_capped_add(*sum, bytes);
    }
    count_ops(m, m->first, out);
}

/* Cache lengths for which the work of a token is given. */
static const int positions[] = {1, 256, 1024, 4096, 16384};
enum { POSITIONS = sizeof positions / sizeof *positions };

static double work_at(const hir_facts *f, int length) {
    return f->linear_flops + f->attention_flops * length;
}

static bool stage_differs(const hir_module *graph, const hir_module *now) {
    return now && now != graph && now->stage != graph->stage;
}

/* ---- text ------------------------------------------------------------------------------------ */

/* 1234567 as "1.23 M", with units a thousand apart. */
static void print_scaled(hd_text *out, double x, const char *unit) {
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P"};
    int i = 0;
    for (; x >= 999.5 && i < 5; i++)
        x /= 1000;
    const int decimals = i == 0 || x >= 99.95 ? 0 : x >= 9.995 ? 1 : 2;
    hd_text_f(out, "%.*f %s%s", decimals, x, prefixes[i], unit);
}

const char *inspect_bytes(hd_arena *a, uint64_t bytes) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double x = (double)bytes;
    int i = 0;
    for (; x >= 1023.5 && i < 4; i++)
        x /= 1024;
    return hd_printf(a, "%.*f %s", i == 0 || x >= 100 ? 0 : 2, x, units[i]);
}

static void print_bytes(hd_text *out, uint64_t bytes) {
    hd_text_add(out, inspect_bytes(out->arena, bytes));
}

static void print_label(hd_text *out, const char *label) {
    hd_text_f(out, "  %-16s", label);
}

static void print_signature(const hir_module *m, hd_text *out) {
    for (size_t i = 0; i < m->inputs.n; i++) {
        const hir_value *v = hir_value_at(m, m->inputs.at[i]);
        print_label(out, i ? "" : "inputs");
        hd_text_f(out, "%s ", v->name ? v->name : hd_printf(out->arena, "%zu", i));
        hir_print_type(out, v->type);
        hd_text_add(out, "\n");
    }
    bool first = true;
    HIR_EACH(m, op, m->first) {
        const hir_op *o = hir_op_at(m, op);
        if (o->code != HIR_OUTPUT_OP) continue;
        print_label(out, first ? "outputs" : "");
        first = false;
        hd_text_f(out, "%s ", hir_attr_string(o, HIR_A_NAME, ""));
        hir_print_type(out, hir_arg_type(m, op, 0));
        hd_text_add(out, "\n");
    }
}

static void print_size(const hir_facts *graph, const hir_facts *now, hd_text *out) {
    print_label(out, "parameters");
    hd_text_f(out, "%llu in %u tensors", (unsigned long long)graph->parameters, graph->tensors);
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

static void print_work(const hir_facts *f, hd_text *out) {
    print_label(out, "work per token");
    print_scaled(out, f->linear_flops, "FLOP");
    hd_text_add(out, " in linear ops");
    if (f->attention_flops > 0) {
        hd_text_add(out, ", ");
        print_scaled(out, f->attention_flops, "FLOP");
        hd_text_add(out, " per position looked at\n");
        for (int i = 0; i < POSITIONS; i++) {
            print_label(out, "");
            hd_text_f(out, "%6d positions: ", positions[i]);
            print_scaled(out, work_at(f, positions[i]), "FLOP");
            hd_text_add(out, "\n");
        }
    } else {
        hd_text_add(out, "\n");
    }
}

static void print_ops(const hir_module *m, const hir_facts *f, hd_text *out) {
    hd_text_f(out, "\nops at the %s stage: %u\n", hir_stage_name(m->stage), f->total_ops);
    for (int code = 0; code < HIR_OPCODE_COUNT; code++)
        if (f->ops[code]) hd_text_f(out, "  %-18s %6u\n", hir_info(code)->name, f->ops[code]);
}

static void print_plan_summary(const hir_module *m, hd_text *out) {
    hir_plan plan;
    hir_collect_plan(m, out->arena, &plan);
    if (!plan.placed) return;
    hd_text_f(out, "\nmemory plan (--emit=plan shows all of it)\n");
    print_label(out, "kernels");
    hd_text_f(out, "%u, leaving %zu values\n", plan.kernels, plan.rows.n);
    print_label(out, "arena");
    hd_text_f(out, "%llu bytes per token, %llu without reuse\n",
              (unsigned long long)m->arena_per_token, (unsigned long long)plan.unshared);
    print_label(out, "fixed");
    hd_text_f(out, "%llu bytes\n", (unsigned long long)m->fixed_bytes);
}

static void inspect_as_text(const hir_module *graph, const hir_module *now, hd_text *out) {
    hir_facts as_loaded, as_now;
    hir_collect_facts(graph, &as_loaded);
    hir_collect_facts(now, &as_now);
    hd_text_f(out, "%s\n", graph->name);
    for (size_t i = 0; i < graph->options.n; i++) {
        print_label(out, i ? "" : "options");
        hd_text_f(out, "%s = %s\n", graph->options.at[i].key, graph->options.at[i].value);
    }
    print_signature(graph, out);
    print_size(&as_loaded, &as_now, out);
    print_work(&as_loaded, out);
    print_ops(graph, &as_loaded, out);
    if (stage_differs(graph, now)) print_ops(now, &as_now, out);
    print_plan_summary(now, out);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void json_typed_name(hd_text *out, const char *name, hir_type type) {
    hd_text type_text;
    hd_text_init(&type_text, out->arena);
    hir_print_type(&type_text, type);
    hd_text_add(out, "{\"name\": ");
    api_json_string(out, name);
    hd_text_f(out, ", \"type\": \"%s\"}", type_text.at);
}

static void json_signature(const hir_module *m, hd_text *out) {
    hd_text_add(out, "  \"inputs\": [");
    for (size_t i = 0; i < m->inputs.n; i++) {
        const hir_value *v = hir_value_at(m, m->inputs.at[i]);
        hd_text_add(out, i ? ", " : "");
        json_typed_name(out, v->name ? v->name : hd_printf(out->arena, "%zu", i), v->type);
    }
    hd_text_add(out, "],\n  \"outputs\": [");
    bool first = true;
    HIR_EACH(m, op, m->first) {
        const hir_op *o = hir_op_at(m, op);
        if (o->code != HIR_OUTPUT_OP) continue;
        hd_text_add(out, first ? "" : ", ");
        first = false;
        json_typed_name(out, hir_attr_string(o, HIR_A_NAME, ""), hir_arg_type(m, op, 0));
    }
    hd_text_add(out, "],\n");
}

static void json_options(const hir_module *m, hd_text *out) {
    hd_text_add(out, "  \"options\": {");
    for (size_t i = 0; i < m->options.n; i++) {
        hd_text_add(out, i ? ", " : "");
        api_json_key(out, m->options.at[i].key);
        api_json_string(out, m->options.at[i].value);
    }
    hd_text_add(out, "},\n");
}

static void json_work(const hir_facts *f, hd_text *out) {
    hd_text_f(out,
              "  \"flops_per_token\": {\"linear\": %.0f, \"attention_per_position\": %.0f, "
              "\"total\": [",
              f->linear_flops, f->attention_flops);
    for (int i = 0; i < POSITIONS; i++)
        hd_text_f(out, "%s{\"positions\": %d, \"flops\": %.0f}", i ? ", " : "", positions[i],
                  work_at(f, positions[i]));
    hd_text_add(out, "]},\n");
}

static void json_ops(const hir_module *m, const hir_facts *f, hd_text *out) {
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

static void json_plan(const hir_module *m, hd_text *out) {
    hir_plan plan;
    hir_collect_plan(m, out->arena, &plan);
    if (!plan.placed) {
        hd_text_add(out, "  \"plan\": null\n");
        return;
    }
    hd_text_f(out,
              "  \"plan\": {\"kernels\": %u, \"values\": %zu, \"arena_bytes_per_token\": %llu, "
              "\"arena_bytes_per_token_without_reuse\": %llu, \"fixed_bytes\": %llu}\n",
              plan.kernels, plan.rows.n, (unsigned long long)m->arena_per_token,
              (unsigned long long)plan.unshared, (unsigned long long)m->fixed_bytes);
}

static void inspect_as_json(const hir_module *graph, const hir_module *now, hd_text *out) {
    hir_facts as_loaded, as_now;
    hir_collect_facts(graph, &as_loaded);
    hir_collect_facts(now, &as_now);
    hd_text_add(out, "{\n  ");
    api_json_key(out, "name");
    api_json_string(out, graph->name);
    hd_text_add(out, ",\n");
    json_options(graph, out);
    json_signature(graph, out);
    hd_text_f(out,
              "  \"parameters\": %llu,\n"
              "  \"weights\": {\"tensors\": %u, \"unused\": %u, \"bytes\": %llu",
              (unsigned long long)as_loaded.parameters, as_loaded.tensors, as_loaded.unused,
              (unsigned long long)as_now.weight_bytes);
    for (int t = 0; t < HIR_DTYPE_COUNT; t++)
        if (as_now.dtype_bytes[t])
            hd_text_f(out, ", \"%s\": %llu", hir_dtype_name((hir_dtype)t),
                      (unsigned long long)as_now.dtype_bytes[t]);
    hd_text_f(
        out,
        "},\n"
        "  \"state\": {\"tensors\": %zu, \"bytes_per_position\": %llu, \"fixed_bytes\": %llu},\n",
        now->states.n, (unsigned long long)as_now.state_bytes,
        (unsigned long long)as_now.fixed_state_bytes);
    json_work(&as_loaded, out);
    hd_text_add(out, "  \"stages\": [");
    json_ops(graph, &as_loaded, out);
    if (stage_differs(graph, now)) {
        hd_text_add(out, ", ");
        json_ops(now, &as_now, out);
    }
    hd_text_add(out, "],\n");
    json_plan(now, out);
    hd_text_add(out, "}\n");
}

void hir_inspect_text(const hir_module *graph, const hir_module *now, bool json, hd_text *out) {
    if (!now) now = graph;
    if (json)
        inspect_as_json(graph, now, out);
    else
        inspect_as_text(graph, now, out);
}
