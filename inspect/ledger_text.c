/* The ledger for people: traffic beside the closed forms of the paper (docs/ledger.md), then by
 * phase, residual block and kernel. */
#include "inspect/format.h"
#include "inspect/ledger.h"
#include "ir/text/text.h"
#include "passes/analysis/crossing.h"

enum { LABEL = 38 };

void ledger_print_units(hd_text *out, double units) {
    if (units == 0)
        hd_text_f(out, " %9s", "-");
    else
        hd_text_f(out, " %9.3f", units);
}

static void print_row(hd_text *out, const char *label, double read, double written) {
    hd_text_f(out, "  %-*s", LABEL, label);
    ledger_print_units(out, read);
    ledger_print_units(out, written);
    ledger_print_units(out, read + written);
}

static void print_traffic(hd_text *out, const hir_ledger *l, const char *label, hir_traffic t) {
    print_row(out, label, hir_ledger_units(l, t.read), hir_ledger_units(l, t.written));
    hd_text_f(out, " %12llu\n", (unsigned long long)(t.read + t.written));
}

static void print_head(hd_text *out, const char *title) {
    hd_text_f(out, "\n%-*s %9s %9s %9s %12s\n", LABEL + 2, title, "read", "written", "total",
              "bytes");
}

/* ---- the comparison -------------------------------------------------------------------------- */

static void print_paper(const ledger_report *r, hd_text *out) {
    const hir_paper_form *forms;
    size_t n = hir_paper_forms(&forms);
    const hir_paper_parameters p = r->parameters;
    hd_text_f(out, "  closed forms of the paper at L = %.0f, N = %.0f, S = %.3g, m = %.0f\n",
              p.sublayers, p.blocks, p.per_block, p.streams);
    for (size_t i = 0; i < n; i++) {
        if (!ledger_form_fits(r, forms[i].of)) continue;
        const char *label = hd_printf(out->arena, "  %s: %s", forms[i].name, forms[i].formula);
        print_row(out, label, forms[i].read(p), forms[i].write(p));
        if (forms[i].elements) hd_text_f(out, "  + %.0f numbers", forms[i].elements(p));
        hd_text_add(out, "\n");
    }
    if (r->has_kernels && ledger_kind_of(r) == LEDGER_OTHER &&
        r->reads.direct_mixes < r->reads.mixes)
        hd_text_add(out, "    the paper has no closed form for mixes that read earlier mixes\n");
}

/* `rows`: of the stream alone; `numbers`: counted as the closed forms count them. */
static void print_products(const ledger_report *r, hd_text *out) {
    const hir_traffic rows = r->products.rows, numbers = r->products.numbers;
    const double each = (double)(numbers.read + numbers.written) /
                        (double)hir_dtype_bytes(HIR_F32) / r->graph.sublayers;
    print_row(out, "  ops, products whole", hir_ledger_units(&r->graph, rows.read),
              hir_ledger_units(&r->graph, rows.written));
    hd_text_f(out, " %12llu  + %.0f numbers\n", (unsigned long long)(rows.read + rows.written),
              each);
}

static void print_comparison(const ledger_report *r, hd_text *out) {
    print_head(out, "in all");
    if (r->has_ops) print_traffic(out, &r->graph, "ops one at a time", r->graph.total);
    if (r->has_naive) print_traffic(out, &r->naive, "kernels, no depth passes", r->naive.total);
    if (r->has_kernels) print_traffic(out, &r->compiled, "kernels, as compiled", r->compiled.total);
    hd_text_add(out,
                "  counted as the paper does: sums as often as they are written, no norms, layer\n"
                "  inputs and output\n");
    if (r->has_ops) print_traffic(out, &r->graph, "  ops one at a time", r->graph.paper);
    if (r->has_ops) print_products(r, out);
    if (r->has_naive) print_traffic(out, &r->naive, "  kernels, no depth passes", r->naive.paper);
    if (r->has_kernels)
        print_traffic(out, &r->compiled, "  kernels, as compiled", r->compiled.paper);
    print_paper(r, out);
}

/* ---- sources --------------------------------------------------------------------------------- */

static void print_sources(const ledger_report *r, hd_text *out) {
    const hir_flow_reads reads = r->reads;
    const uint32_t others = reads.mixes - reads.direct_mixes;
    if (others)
        hd_text_f(
            out,
            "\n%u mix%s of a token %s earlier mixes, not the outputs of sublayers themselves\n",
            others, others == 1 ? "" : "es", others == 1 ? "reads" : "read");
    if (!reads.direct_mixes) return;
    hd_text_f(out,
              "\nreads of sources by the %u mix%s of a token\n"
              "  %-*s %9llu\n",
              reads.direct_mixes, reads.direct_mixes == 1 ? "" : "es", LABEL,
              "naive: each reads its own", (unsigned long long)reads.direct);
    if (others) return;
    /* Without attention over depth there are no phases, nor where it is in the output's mix alone. */
    if (!(reads.bank + reads.live) || (r->has_naive && !r->has_attends)) return;
    const ledger_schedule *s = &r->schedule;
    if (s->blocks) {
        hd_text_f(out, "  %-*s %9llu = %llu, once in each of %u block%s + %llu by single mixes\n",
                  LABEL, "two phases, as form-blocks cuts",
                  (unsigned long long)(s->shared + s->single), (unsigned long long)s->shared,
                  s->blocks, hd_s(s->blocks), (unsigned long long)s->single);
        return;
    }
    hd_text_f(out, "  %-*s %9llu = %llu of finished blocks + %llu live + %llu by the output\n",
              LABEL, "two phases: finished ones once",
              (unsigned long long)(reads.bank + reads.live + reads.output),
              (unsigned long long)reads.bank, (unsigned long long)reads.live,
              (unsigned long long)reads.output);
}

/* ---- Table 1 --------------------------------------------------------------------------------- */

enum { TABLE_LABEL = 50 };

static void print_cells(const ledger_report *r, hd_text *out, const hir_traffic *t) {
    if (t)
        hd_text_f(out, " %9.3f %9.3f", hir_ledger_units(&r->graph, t->read + t->written),
                  hir_ledger_units(&r->graph, t->written));
    else
        hd_text_f(out, " %9s %9s", "", "");
}

static void print_table_line(const ledger_report *r, hd_text *out, const char *what,
                             const hir_traffic *paper, const hir_traffic *kernels,
                             const char *why) {
    hd_text_f(out, "  %-*s", TABLE_LABEL, what);
    print_cells(r, out, paper);
    print_cells(r, out, kernels);
    hd_text_f(out, "%s%s\n", *why ? "  " : "", why);
}

/* Lines that lead from the sum of the table to what the ledger charges. */
static void print_rest(const ledger_report *r, const ledger_table *t, hd_text *out) {
    const hir_ledger *l = &r->compiled;
    hir_traffic rest = {0};
    for (int p = 0; p < HIR_PHASE_COUNT; p++) {
        if (!hir_phase_is_charged((hir_phase)p) || hir_phase_is_in_paper((hir_phase)p)) continue;
        if (p == HIR_PHASE_LAYER_INPUT && t->has_inputs) continue;
        rest.read = hd_capped_add(rest.read, l->phase[p].read);
        rest.written = hd_capped_add(rest.written, l->phase[p].written);
    }
    print_table_line(r, out, "+ norms, layer inputs, the output's mix", NULL, &rest,
                     "not in Table 1");
    if (l->phase[HIR_PHASE_OWN_SUM].written)
        print_table_line(r, out, "- sums as the contractions' own writes", NULL,
                         &l->phase[HIR_PHASE_OWN_SUM],
                         "any sublayer writes once, under any residual");
    print_table_line(r, out, "= the ledger of the kernels", NULL, &l->total, "");
}

static void print_table(const ledger_report *r, hd_text *out) {
    const ledger_table *t = &r->table;
    if (!t->n) return;
    const hir_paper_parameters p = t->parameters;
    hd_text_f(out,
              "\nTable 1, %s, counted in this IR by the paper's rules, and what kernels move\n"
              "%-*s %9s %9s %9s %9s\n",
              t->form->name, TABLE_LABEL + 2, "in d per token per sublayer", "rules", "written",
              "kernels", "written");
    for (size_t i = 0; i < t->n; i++)
        print_table_line(r, out, t->line[i].what, &t->line[i].paper,
                         t->by_line ? &t->line[i].kernels : NULL, t->line[i].why);
    print_table_line(r, out, "in all", &t->paper, &t->kernels, "");
    hd_text_f(out, "  closed form %s at L = %.0f, N = %.4g, S = %.4g, m = %.0f: %.4g\n",
              t->form->formula, p.sublayers, p.blocks, p.per_block, p.streams,
              t->form->read(p) + t->form->write(p));
    if (t->form->elements && r->graph.sublayers) {
        const hir_traffic n = r->products.numbers;
        hd_text_f(
            out,
            "  and numbers, %.0f in the closed form, %llu in this IR: every op counts of those "
            "that make the\n  matrices from them\n",
            t->form->elements(p),
            (unsigned long long)((n.read + n.written) / hir_dtype_bytes(HIR_F32) /
                                 r->graph.sublayers));
    }
    print_rest(r, t, out);
}

/* ---- memory --------------------------------------------------------------------------------- */

static void print_bytes(hd_text *out, const char *label, uint64_t per_token, uint64_t tokens) {
    const uint64_t bytes = hd_capped_mul(per_token, tokens);
    hd_text_f(out, "  %-40s %12llu %10llu %14llu   %s\n", label, (unsigned long long)per_token,
              (unsigned long long)tokens, (unsigned long long)bytes,
              inspect_bytes(out->arena, bytes));
}

static void print_memory(const ledger_memory *x, hd_text *out) {
    hd_text_f(out, "\n%-42s %12s %10s %14s\n", "memory of a session of 128K tokens", "per token",
              "tokens", "bytes");
    print_bytes(out, "states, kept for all tokens", x->state, x->tokens);
    print_bytes(out, "  of the residual mechanism", x->mechanism_state, x->tokens);
    if (x->fixed_state) print_bytes(out, "states of fixed size", x->fixed_state, 1);
    if (x->call_state)
        print_bytes(out, "scores of a chunk, for all positions",
                    hd_capped_mul(x->call_state, x->chunk), x->tokens);
    print_bytes(out, "arena, for a chunk", x->arena, x->chunk);
    print_bytes(out, "  of the residual mechanism, at most", x->mechanism_arena, x->mechanism_rows);
    if (x->local) print_bytes(out, "arena of the rows of a rank", x->local, x->local_rows);
    const uint64_t more = x->in_flight - 1;
    if (more) print_bytes(out, "kept of other chunks in flight", x->kept, more * x->chunk);
    if (more && x->local_kept)
        print_bytes(out, "  of the rows of a rank", x->local_kept, more * x->local_rows);
    print_bytes(out, "fixed", x->fixed, 1);
    print_bytes(out, "in all", x->session, 1);
    print_bytes(out, "the mechanism's rows, all tokens at once", x->mechanism_arena, x->all_rows);
}

/* ---- machines -------------------------------------------------------------------------------- */

/* The bytes that a rank sends in a call of one token and in a call of one chunk. */
static void print_collectives(const ledger_report *r, hd_text *out) {
    const hir_module *m = r->compiled_module;
    hir_crossings all;
    hir_find_crossings(m, out->arena, &all);
    if (!all.list.n) return;
    /* A pipeline stage that is not sharded has one rank. */
    const int64_t chunk = r->chunk, ranks = m->ranks ? m->ranks : 1;
    hd_text_f(out, "\ncollectives of a call: %zu", all.list.n);
    if (ranks > 1)
        hd_text_f(out, "; %lld ranks divide rows from %lld tokens on", (long long)ranks,
                  (long long)m->divide_from);
    hd_text_f(out, "\n  bytes that a rank sends       %14s %14s\n", "1 token",
              hd_printf(out->arena, "%lld tokens", (long long)chunk));
    for (int64_t rank = 0; rank < ranks; rank++)
        hd_text_f(out, "  rank %-24lld %14llu %14llu\n", (long long)rank,
                  (unsigned long long)hir_bytes_sent(m, &all, rank, 1, 1),
                  (unsigned long long)hir_bytes_sent(m, &all, rank, chunk, 1));
}

/* ---- details --------------------------------------------------------------------------------- */

static bool is_zero(hir_traffic t) {
    return t.read == 0 && t.written == 0;
}

static void print_phases(const hir_ledger *l, hd_text *out) {
    print_head(out, "by phase");
    for (int p = 0; p < HIR_PHASE_COUNT; p++) {
        if (is_zero(l->phase[p])) continue;
        const char *name = hir_phase_name((hir_phase)p);
        bool charged = hir_phase_is_charged((hir_phase)p);
        print_traffic(out, l, charged ? name : hd_printf(out->arena, "(%s)", name), l->phase[p]);
    }
}

/* Bytes in units of d (one row of the stream), in total: not divided by the number of sublayers. */
static double rows(const hir_ledger *l, uint64_t bytes) {
    return l->unit ? (double)bytes / (double)l->unit : 0;
}

static void print_blocks(const ledger_report *r, hd_text *out) {
    if (!r->by_block) return;
    const hir_ledger *l = &r->compiled;
    print_head(out, "by block, in d per token");
    for (uint32_t b = 1; b <= l->flow.blocks + 1; b++) {
        bool last = b > l->flow.blocks;
        hir_traffic t = r->by_block[last ? 0 : b];
        const char *label = last ? "output" : hd_printf(out->arena, "block %u", b);
        print_row(out, label, rows(l, t.read), rows(l, t.written));
        hd_text_f(out, " %12llu\n", (unsigned long long)(t.read + t.written));
    }
}

static void print_kernel(const hir_ledger *l, const ledger_kernel *k, hd_text *out) {
    const char *label =
        k->times > 1 ? hd_printf(out->arena, "%s, %u times", k->name, k->times) : k->name;
    print_row(out, label, rows(l, k->each.read), rows(l, k->each.written));
    for (size_t i = 0; i < k->groups.n; i++) {
        const ledger_group *g = &k->groups.at[i];
        hd_text_f(out, "%s%s %zu %s %s (%s)", i ? ", " : "  ", g->write ? "writes" : "reads", g->n,
                  hir_flow_kind_name(g->kind), hir_dtype_name(g->dtype), hir_phase_name(g->phase));
    }
    hd_text_add(out, "\n");
}

static void print_kernels(const ledger_report *r, hd_text *out) {
    hd_text_f(out, "\n%-*s %9s %9s %9s\n", LABEL + 2, "by kernel, in d per token", "read",
              "written", "total");
    for (size_t i = 0; i < r->kernels.n; i++)
        print_kernel(&r->compiled, &r->kernels.at[i], out);
}

static void print_steps(const ledger_report *r, hd_text *out) {
    if (!r->steps.n) return;
    hd_text_f(out, "\n%-*s %9s %9s %9s %12s\n", LABEL + 2, "after each pass that changed something",
              "read", "written", "total", "bytes");
    print_traffic(out, &r->graph, "(as loaded)", r->graph.total);
    for (size_t i = 0; i < r->steps.n; i++)
        print_traffic(out, &r->graph, r->steps.at[i].pass, r->steps.at[i].total);
}

static void print_title(const ledger_report *r, hd_text *out) {
    const hir_ledger *l = &r->graph;
    const uint32_t ranks = r->has_kernels ? (uint32_t)r->compiled_module->ranks : 0;
    const char *passes =
        hir_flow_passes(hir_flow_labels(&l->flow, out->arena), l->flow.outputs.n, out->arena);
    hd_text_f(out, "ledger of %s", r->name);
    if (r->stages > 1)
        hd_text_f(out, ", stage %lld of %lld", (long long)r->stage, (long long)r->stages);
    hd_text_f(out,
              ": d = %llu, %u sublayer%s in %u block%s of at most %u\n"
              "residual mechanism alone, per token per sublayer, in units of d (a row of f32)\n",
              (unsigned long long)l->flow.width, l->sublayers, hd_s(l->sublayers), l->flow.blocks,
              hd_s(l->flow.blocks), l->flow.longest_block);
    if (r->back)
        hd_text_add(out,
                    "a training step: first the forward half, as the loss needs it and with what "
                    "it stores for\nthe other half; then the backward half\n");
    if (passes) hd_text_f(out, "layers that run several times, by sublayers: %s\n", passes);
    if (ranks > 1)
        hd_text_f(
            out, "kernels as compiled: of all %u ranks together, in calls whose rows they divide\n",
            ranks);
}

void ledger_text(const ledger_report *r, hd_text *out) {
    const hir_ledger *l = &r->graph;
    if (!l->flow.width || !l->sublayers) {
        hd_text_f(out, "%s has no residual stream: nothing that sublayers add to\n", r->name);
        layers_traffic_text(&r->layers, out);
        print_collectives(r, out);
        if (r->optimizer) ledger_optimizer_text(r->optimizer, out);
        return;
    }
    print_title(r, out);
    print_comparison(r, out);
    print_table(r, out);
    print_sources(r, out);
    print_steps(r, out);
    if (!r->has_kernels) ledger_backward_text(r, out);
    if (!r->has_kernels) return;
    print_phases(&r->compiled, out);
    hd_text_f(out, "  weights read by the mechanism, once per call: %llu bytes\n",
              (unsigned long long)r->compiled.fixed_bytes);
    layers_traffic_text(&r->layers, out);
    if (r->memory) print_memory(r->memory, out);
    print_collectives(r, out);
    print_blocks(r, out);
    print_kernels(r, out);
    ledger_backward_text(r, out);
    if (r->optimizer) ledger_optimizer_text(r->optimizer, out);
}
