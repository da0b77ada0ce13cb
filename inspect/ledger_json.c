/* The ledger for programs: the figures of the text, and every access. */
#include "inspect/format.h"
#include "inspect/ledger.h"
#include "ir/text/text.h"
#include "passes/analysis/crossing.h"

static void print_number(hd_text *out, const char *key, uint64_t n) {
    inspect_json_key(out, key);
    hd_text_f(out, "%llu", (unsigned long long)n);
}

static void print_double(hd_text *out, const char *key, double x) {
    inspect_json_key(out, key);
    hd_text_double(out, x);
}

/* The members of an object. */
static void print_units(hd_text *out, const hir_ledger *l, hir_traffic t) {
    print_double(out, "read", hir_ledger_units(l, t.read));
    hd_text_add(out, ", ");
    print_double(out, "written", hir_ledger_units(l, t.written));
    hd_text_add(out, ", ");
    print_double(out, "total", hir_ledger_units(l, t.read + t.written));
}

void ledger_json_traffic(hd_text *out, const hir_ledger *l, hir_traffic t) {
    hd_text_add(out, "{");
    print_units(out, l, t);
    hd_text_add(out, ", ");
    print_number(out, "read_bytes", t.read);
    hd_text_add(out, ", ");
    print_number(out, "written_bytes", t.written);
    hd_text_add(out, "}");
}

static void print_sublayer(hd_text *out, uint32_t sublayer) {
    inspect_json_key(out, "sublayer");
    if (sublayer == HIR_FLOW_RESULT)
        hd_text_add(out, "\"output\"");
    else
        hd_text_f(out, "%u", sublayer);
}

static void print_accesses(hd_text *out, const hir_ledger *l, const hir_module *m) {
    const uint32_t *lines = hir_op_lines(m, out->arena);
    hd_text_add(out, "\"accesses\": [");
    for (size_t i = 0; i < l->accesses.n; i++) {
        const hir_access *a = &l->accesses.at[i];
        hd_text_add(out, i ? ",\n    {" : "\n    {");
        inspect_json_key(out, "op");
        inspect_json_string(out, ledger_op_name(m, a->op));
        hd_text_f(out, ", \"line\": %u", lines[a->op]);
        hd_text_f(out, ", \"access\": \"%s\", \"phase\": \"%s\", \"kind\": \"%s\", ",
                  a->write ? "write" : "read", hir_phase_name(a->phase),
                  hir_flow_kind_name(a->kind));
        hd_text_f(out, "\"dtype\": \"%s\", ", hir_dtype_name(a->dtype));
        print_number(out, "bytes", a->bytes);
        hd_text_add(out, ", ");
        print_sublayer(out, a->sublayer);
        hd_text_f(out, ", \"block\": %u}", a->block);
    }
    hd_text_add(out, "]");
}

static void print_ledger(hd_text *out, const char *key, const hir_ledger *l, const hir_module *m) {
    hd_text_add(out, ",\n  ");
    inspect_json_key(out, key);
    hd_text_add(out, "{\n   ");
    inspect_json_key(out, "total");
    ledger_json_traffic(out, l, l->total);
    hd_text_add(out, ",\n   ");
    inspect_json_key(out, "as_the_paper_counts");
    ledger_json_traffic(out, l, l->paper);
    hd_text_add(out, ",\n   ");
    print_number(out, "weight_bytes_per_call", l->fixed_bytes);
    hd_text_add(out, ",\n   \"phases\": {");
    for (int p = 0; p < HIR_PHASE_COUNT; p++) {
        hd_text_add(out, p ? ",\n    " : "\n    ");
        inspect_json_key(out, hir_phase_name((hir_phase)p));
        ledger_json_traffic(out, l, l->phase[p]);
    }
    hd_text_add(out, "}");
    if (m) {
        hd_text_add(out, ",\n   ");
        print_accesses(out, l, m);
    }
    hd_text_add(out, "}");
}

static void print_products(hd_text *out, const ledger_report *r) {
    hd_text_add(out, ",\n  \"products_whole\": {\"rows\": ");
    ledger_json_traffic(out, &r->graph, r->products.rows);
    hd_text_add(out, ", \"numbers\": ");
    ledger_json_traffic(out, &r->graph, r->products.numbers);
    hd_text_add(out, "}");
}

static void print_paper(const ledger_report *r, hd_text *out) {
    const hir_paper_form *forms;
    size_t n = hir_paper_forms(&forms);
    const hir_paper_parameters p = r->parameters;
    hd_text_f(out,
              ",\n  \"paper\": {\"L\": %.0f, \"N\": %.0f, \"S\": %.9g, \"m\": %.0f, \"forms\": {",
              p.sublayers, p.blocks, p.per_block, p.streams);
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        if (!ledger_form_fits(r, forms[i].of)) continue;
        hd_text_add(out, any ? ",\n    " : "\n    ");
        any = true;
        inspect_json_key(out, forms[i].key);
        hd_text_add(out, "{");
        print_double(out, "read", forms[i].read(p));
        hd_text_add(out, ", ");
        print_double(out, "written", forms[i].write(p));
        hd_text_add(out, ", ");
        print_double(out, "total", forms[i].read(p) + forms[i].write(p));
        hd_text_add(out, ", ");
        print_double(out, "numbers", forms[i].elements ? forms[i].elements(p) : 0);
        hd_text_add(out, "}");
    }
    hd_text_add(out, "}}");
}

static void print_sources(const ledger_report *r, hd_text *out) {
    const hir_flow_reads reads = r->reads;
    hd_text_f(out,
              ",\n  \"sources\": {\"mixes\": %u, \"naive\": %llu, \"bank\": %llu, \"live\": %llu, "
              "\"output\": %llu}",
              reads.mixes, (unsigned long long)reads.naive, (unsigned long long)reads.bank,
              (unsigned long long)reads.live, (unsigned long long)reads.output);
    const ledger_schedule *s = &r->schedule;
    if (s->blocks)
        hd_text_f(out, ",\n  \"schedule\": {\"blocks\": %u, \"shared\": %llu, \"single\": %llu}",
                  s->blocks, (unsigned long long)s->shared, (unsigned long long)s->single);
}

static void print_table_traffic(const ledger_report *r, hd_text *out, const char *key,
                                hir_traffic t) {
    inspect_json_key(out, key);
    hd_text_add(out, "{");
    print_units(out, &r->graph, t);
    hd_text_add(out, "}");
}

static void print_table(const ledger_report *r, hd_text *out) {
    const ledger_table *t = &r->table;
    if (!t->n) return;
    const hir_paper_parameters p = t->parameters;
    hd_text_add(out, ",\n  \"table_1\": {\"row\": ");
    inspect_json_string(out, t->form->key);
    hd_text_add(out, ", \"closed_form\": ");
    hd_text_double(out, t->form->read(p) + t->form->write(p));
    hd_text_add(out, ", ");
    print_table_traffic(r, out, "rules", t->paper);
    hd_text_add(out, ", ");
    print_table_traffic(r, out, "kernels", t->kernels);
    hd_text_add(out, ", \"lines\": [");
    for (size_t i = 0; i < t->n; i++) {
        const ledger_line *line = &t->line[i];
        hd_text_add(out, i ? ",\n    {\"what\": " : "\n    {\"what\": ");
        inspect_json_string(out, line->what);
        hd_text_add(out, ", ");
        print_table_traffic(r, out, "rules", line->paper);
        if (t->by_line) hd_text_add(out, ", ");
        if (t->by_line) print_table_traffic(r, out, "kernels", line->kernels);
        hd_text_add(out, ", \"why\": ");
        inspect_json_string(out, line->why);
        hd_text_add(out, "}");
    }
    hd_text_add(out, "]}");
}

static void print_memory(const ledger_memory *x, hd_text *out) {
    hd_text_f(out,
              ",\n  \"memory\": {\"tokens\": %llu, \"chunk\": %llu, "
              "\"state_bytes_per_token\": %llu, \"mechanism_state_bytes_per_token\": %llu,\n"
              "   \"arena_bytes_per_token\": %llu, \"mechanism_arena_bytes_per_token\": %llu, "
              "\"fixed_bytes\": %llu, \"fixed_state_bytes\": %llu, \"scores_bytes_per_pair\": "
              "%llu, \"session_bytes\": %llu,\n"
              "   \"ranks\": %llu, \"local_arena_bytes_per_row\": %llu, \"local_rows\": %llu,\n"
              "   \"kept_bytes_per_token\": %llu, \"local_kept_bytes_per_row\": %llu, "
              "\"chunks_in_flight\": %llu}",
              (unsigned long long)x->tokens, (unsigned long long)x->chunk,
              (unsigned long long)x->state, (unsigned long long)x->mechanism_state,
              (unsigned long long)x->arena, (unsigned long long)x->mechanism_arena,
              (unsigned long long)x->fixed, (unsigned long long)x->fixed_state,
              (unsigned long long)x->call_state, (unsigned long long)x->session,
              (unsigned long long)x->ranks, (unsigned long long)x->local,
              (unsigned long long)x->local_rows, (unsigned long long)x->kept,
              (unsigned long long)x->local_kept, (unsigned long long)x->in_flight);
}

/* For each rank: bytes sent in a call of one token and in a call of one chunk. Both calls request
 * the last row of logits. */
static void print_collectives(const ledger_report *r, hd_text *out) {
    const hir_module *m = r->compiled_module;
    hir_crossings all;
    hir_find_crossings(m, out->arena, &all);
    if (!all.list.n) return;
    hd_text_f(out, ",\n  \"exchanges\": {\"number\": %zu, \"divide_from\": %lld, \"sent\": [",
              all.list.n, (long long)m->divide_from);
    const int64_t ranks = m->ranks ? m->ranks : 1; /* a stage that is not sharded has one */
    for (int64_t rank = 0; rank < ranks; rank++)
        hd_text_f(out, "%s{\"token\": %llu, \"chunk\": %llu}", rank ? ", " : "",
                  (unsigned long long)hir_bytes_sent(m, &all, rank, 1, 1),
                  (unsigned long long)hir_bytes_sent(m, &all, rank, r->chunk, 1));
    hd_text_add(out, "]}");
}

void ledger_json(const ledger_report *r, hd_text *out) {
    const hir_ledger *l = &r->graph;
    hd_text_add(out, "{\n  ");
    inspect_json_key(out, "name");
    inspect_json_string(out, r->name);
    hd_text_add(out, ",\n  ");
    print_number(out, "d", l->flow.width);
    hd_text_f(out, ", \"sublayers\": %u, \"blocks\": %u, \"longest_block\": %u", l->sublayers,
              l->flow.blocks, l->flow.longest_block);
    hd_text_f(out, ", \"ranks\": %llu, \"stage\": %lld, \"stages\": %lld",
              (unsigned long long)(r->compiled_module->ranks ? r->compiled_module->ranks : 1),
              (long long)r->stage, (long long)r->stages);
    print_sources(r, out);
    print_paper(r, out);
    print_table(r, out);
    if (r->has_ops) print_ledger(out, "ops", l, NULL);
    if (r->has_ops) print_products(out, r);
    if (r->has_naive) print_ledger(out, "naive_kernels", &r->naive, NULL);
    if (r->has_kernels) print_ledger(out, "kernels", &r->compiled, r->compiled_module);
    ledger_backward_json(r, out);
    if (r->optimizer) ledger_optimizer_json(r->optimizer, out);
    if (r->memory) print_memory(r->memory, out);
    print_collectives(r, out);
    hd_text_add(out, ",\n  \"layers\": {");
    layers_json(&r->layers, out);
    hd_text_add(out, "}");
    hd_text_add(out, ",\n  \"passes\": [");
    for (size_t i = 0; i < r->steps.n; i++) {
        hd_text_add(out, i ? ",\n    {" : "\n    {");
        inspect_json_key(out, "pass");
        inspect_json_string(out, r->steps.at[i].pass);
        hd_text_f(out, ", \"stage\": \"%s\", \"total\": ", hir_stage_name(r->steps.at[i].stage));
        ledger_json_traffic(out, l, r->steps.at[i].total);
        hd_text_add(out, "}");
    }
    hd_text_add(out, "]\n}\n");
}
