/* Facts of a module: parameters, work, bytes, op counts. */
#include "inspect/facts.h"

#include <string.h>

#include "inspect/format.h"
#include "ir/kernel/kernels.h"
#include "ir/text/text.h"

/* ---- collecting ------------------------------------------------------------------------------ */

static uint64_t row_elements(hir_type t) {
    int64_t n = hir_type_row_elements(t);
    return n < 0 ? UINT64_MAX : (uint64_t)n;
}

static uint64_t stored_bytes(const hir_weight *w) {
    uint64_t bytes;
    return hir_weight_bytes(w, &bytes) ? bytes : UINT64_MAX;
}

/* The weight that `r` is, or whose matrices `r` is with each of them transposed; HIR_NONE: `r` is
 * neither. */
static hir_id weight_of(const hir_module *m, hir_ref r) {
    if (r.kind == HIR_REF_WEIGHT) return r.index;
    if (r.kind != HIR_REF_VALUE || hir_value_at(m, r.index)->op == HIR_NONE) return HIR_NONE;
    const hir_op *o = hir_op_at(m, hir_value_at(m, r.index)->op);
    const bool transposed = o->code == HIR_TRANSPOSE_OP && o->args[0].kind == HIR_REF_WEIGHT;
    return transposed && hir_find_attr(o, HIR_A_PERM)->ints[0] == 0 ? o->args[0].index : HIR_NONE;
}

typedef struct reads {
    uint64_t
        *chosen; /* by weight: matrices of it (experts) that a token uses; 0: all of the weight */
    uint64_t *looked_up; /* by weight: elements of the rows of a table that a token uses; 0: all */
    bool *by_op; /* by weight: an op reads it; if not, other weights may be derived from it */
} reads;

static void find_reads(const hir_module *m, hir_id first, reads *r) {
    HIR_EACH(m, op, first) {
        const hir_op *o = hir_op_at(m, op);
        for (uint32_t i = 0; i < o->n_args; i++)
            if (o->args[i].kind == HIR_REF_WEIGHT) r->by_op[o->args[i].index] = true;
        if (o->code == HIR_EXPERT_LINEAR_OP && weight_of(m, o->args[1]) != HIR_NONE)
            r->chosen[weight_of(m, o->args[1])] += (uint64_t)hir_arg_type(m, op, 2).dim[1];
        if (hir_form_by_op(o->code) == HIR_FORM_NGRAM && o->args[1].kind == HIR_REF_WEIGHT)
            r->looked_up[o->args[1].index] += row_elements(hir_value_at(m, o->results[0])->type);
        find_reads(m, o->body_first, r);
    }
}

/* A weight that is stored transposed is read in the place of its source: how many of its matrices a
 * token uses holds for the source as well. */
static void pass_to_sources(const hir_module *m, reads *r) {
    for (size_t i = 0; i < m->weights.n; i++) {
        const hir_id source = hir_transposed_source(m, &m->weights.at[i]);
        if (source != HIR_NONE) r->chosen[source] += r->chosen[i];
    }
}

/* Is the weight only a source that other weights are derived from when they are packed? Then the
 * weight itself is not stored. */
static bool is_only_source(const hir_module *m, const reads *r, size_t weight) {
    const char *name = m->weights.at[weight].name;
    for (size_t i = 0; !r->by_op[weight] && i < m->weights.n; i++) {
        const hir_weight *w = &m->weights.at[i];
        for (uint32_t k = 0; hir_is_derived(w) && k < w->n_rows; k++)
            for (uint32_t f = 0; f < w->rows[k].n; f++)
                if (strcmp(w->rows[k].factor[f].name, name) == 0) return true;
    }
    return false;
}

/* Elements of a weight that one token reads. */
static uint64_t active_elements(hir_type t, uint64_t chosen, uint64_t looked_up) {
    const uint64_t all = row_elements(t);
    if (looked_up) return looked_up < all ? looked_up : all;
    if (!chosen || chosen >= (uint64_t)t.dim[0]) return all;
    return all / (uint64_t)t.dim[0] * chosen;
}

static void count_weights(const hir_module *m, module_facts *f) {
    reads r = {hd_new_array(m->arena, uint64_t, m->weights.n + 1),
               hd_new_array(m->arena, uint64_t, m->weights.n + 1),
               hd_new_array(m->arena, bool, m->weights.n + 1)};
    find_reads(m, m->first, &r);
    pass_to_sources(m, &r);
    for (size_t i = 0; i < m->weights.n; i++) {
        const hir_weight *w = &m->weights.at[i];
        if (w->unused) {
            f->unused++;
            continue;
        }
        uint64_t bytes = is_only_source(m, &r, i) ? 0 : stored_bytes(w),
                 *of_dtype = &f->dtype_bytes[w->type.dtype];
        f->weight_bytes = hd_capped_add(f->weight_bytes, bytes);
        *of_dtype = hd_capped_add(*of_dtype, bytes);
        if (hir_is_derived(w)) continue;
        f->tensors += (uint32_t)hir_parts(w);
        f->active = hd_capped_add(f->active, active_elements(w->type, r.chosen[i], r.looked_up[i]));
        f->parameters = hd_capped_add(f->parameters, row_elements(w->type));
    }
}

static void count_work(const hir_module *m, hir_id op, module_facts *f) {
    const hir_op_work work = hir_work_of(m, op);
    f->linear_flops += (double)work.row_flops;
    f->attention_flops += (double)work.pair_flops;
}

static void count_ops(const hir_module *m, hir_id first, module_facts *f) {
    HIR_EACH(m, op, first) {
        const hir_op *o = hir_op_at(m, op);
        f->ops[o->code]++;
        if (!hir_is_kernel(o)) f->total_ops++;
        count_work(m, op, f);
        count_ops(m, o->body_first, f);
    }
}

void facts_count(const hir_module *m, module_facts *out) {
    *out = (module_facts){0};
    count_weights(m, out);
    out->state_bytes = hir_all_state_bytes(m, true);
    out->fixed_state_bytes = hir_all_state_bytes(m, false);
    count_ops(m, m->first, out);
}

/* ---- inputs and outputs ---------------------------------------------------------------------- */

static void list_values(const hir_module *m, hd_arena *a, facts *out) {
    for (size_t i = 0; i < m->inputs.n; i++) {
        const hir_value *v = hir_value_at(m, m->inputs.at[i]);
        const facts_value input = {v->name ? v->name : hd_printf(a, "%zu", i), v->type};
        hd_push(a, &out->inputs, input);
    }
    HIR_EACH(m, op, m->first) {
        const hir_op *o = hir_op_at(m, op);
        if (o->code != HIR_OUTPUT_OP) continue;
        const facts_value output = {hir_attr_string(o, HIR_A_NAME, ""), hir_arg_type(m, op, 0)};
        hd_push(a, &out->outputs, output);
    }
}

bool facts_collect(const inspect_subject *s, facts *out) {
    static const int positions[FACTS_POSITIONS] = {1, 256, 1024, 4096, 16384};
    *out = (facts){.graph = s->graph, .now = s->now};
    list_values(s->graph, s->arena, out);
    facts_count(s->graph, &out->as_loaded);
    facts_count(s->now, &out->as_now);
    layers_collect(s->now, s->arena, &out->layers);
    out->lowered = s->now->stage != s->graph->stage;
    for (int i = 0; i < FACTS_POSITIONS; i++)
        out->work[i] =
            (facts_work){positions[i], out->as_loaded.linear_flops +
                                           out->as_loaded.attention_flops * positions[i]};
    return memory_plan_collect(s, &out->plan);
}

/* ---- for people ------------------------------------------------------------------------------ */

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
    hd_text_f(out, "%llu in %u tensor%s", (unsigned long long)graph->parameters, graph->tensors,
              hd_s(graph->tensors));
    if (graph->active < graph->parameters)
        hd_text_f(out, ", %llu active per token", (unsigned long long)graph->active);
    if (graph->unused)
        hd_text_f(out, " (%u more %s read by no op)", graph->unused,
                  graph->unused == 1 ? "is" : "are");
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
            hd_text_f(out, "%6d position%s", x->work[i].positions,
                      x->work[i].positions == 1 ? ":  " : "s: ");
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
    hd_text_f(out, "%u, leaving %zu value%s\n", plan->kernels, plan->rows.n, hd_s(plan->rows.n));
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

/* ---- for programs ---------------------------------------------------------------------------- */

static void print_typed_name(hd_text *out, const char *name, hir_type type) {
    hd_text_add(out, "{\"name\": ");
    inspect_json_string(out, name);
    hd_text_f(out, ", \"type\": \"%s\"}", hir_type_string(out->arena, type));
}

static void json_values(const char *key, const facts_value *at, size_t n, hd_text *out) {
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

static void json_work(const facts *x, hd_text *out) {
    hd_text_f(out,
              "  \"flops_per_token\": {\"linear\": %.0f, \"attention_per_position\": %.0f, "
              "\"total\": [",
              x->as_loaded.linear_flops, x->as_loaded.attention_flops);
    for (int i = 0; i < FACTS_POSITIONS; i++)
        hd_text_f(out, "%s{\"positions\": %d, \"flops\": %.0f}", i ? ", " : "",
                  x->work[i].positions, x->work[i].flops);
    hd_text_add(out, "]},\n");
}

static void json_ops(const hir_module *m, const module_facts *f, hd_text *out) {
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
    json_values("inputs", x->inputs.at, x->inputs.n, out);
    json_values("outputs", x->outputs.at, x->outputs.n, out);
    print_sizes(x, out);
    json_work(x, out);
    hd_text_add(out, "  ");
    layers_json(&x->layers, out);
    hd_text_add(out, ",\n  \"stages\": [");
    json_ops(x->graph, &x->as_loaded, out);
    if (x->lowered) {
        hd_text_add(out, ", ");
        json_ops(x->now, &x->as_now, out);
    }
    hd_text_add(out, "],\n");
    print_plan(&x->plan, out);
    hd_text_add(out, "}\n");
}
