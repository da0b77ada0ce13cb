/* The ledger for people: what is moved, beside the closed forms; then by phase, block, kernel. */
#include <string.h>

#include "api/ledger.h"

const char *ledger_op_name(const hir_module *m, hir_id op) {
    const hir_op *o = hir_op_at(m, op);
    return hir_attr_string(o, HIR_A_NAME, hir_info(o->code)->name);
}

enum { LABEL = 38 };

/* 8.4375 as "8.44", 0 as "-". */
static void print_units(hd_text *out, double units) {
    if (units == 0)
        hd_text_f(out, " %9s", "-");
    else
        hd_text_f(out, " %9.3f", units);
}

static void print_row(hd_text *out, const char *label, double read, double written) {
    hd_text_f(out, "  %-*s", LABEL, label);
    print_units(out, read);
    print_units(out, written);
    print_units(out, read + written);
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
    const bool mixes = hir_flow_count_reads(&r->graph.flow).mixes > 0;
    for (size_t i = 0; i < n; i++) {
        if (forms[i].needs_mixes && !mixes) continue;
        const char *label = hd_printf(out->arena, "  %s: %s", forms[i].name, forms[i].formula);
        print_row(out, label, forms[i].read(p), forms[i].write(p));
        if (forms[i].elements) hd_text_f(out, "  + %.0f numbers", forms[i].elements(p));
        hd_text_add(out, "\n");
    }
}

/* Rows alone, and numbers as the closed forms have them. */
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
    const hir_flow_reads reads = hir_flow_count_reads(&r->graph.flow);
    if (!reads.mixes) return;
    hd_text_f(out,
              "\nreads of sources by the %u mixes of a token\n"
              "  %-*s %9llu\n",
              reads.mixes, LABEL, "naive: each reads its own", (unsigned long long)reads.naive);
    if (r->has_naive && !r->has_attends) return; /* no attention over depth: no phases */
    const ledger_schedule *s = &r->schedule;
    if (s->blocks) {
        hd_text_f(out, "  %-*s %9llu = %llu, once in each of %u blocks + %llu by single mixes\n",
                  LABEL, "two phases, as form-blocks cuts",
                  (unsigned long long)(s->shared + s->single), (unsigned long long)s->shared,
                  s->blocks, (unsigned long long)s->single);
        return;
    }
    hd_text_f(out, "  %-*s %9llu = %llu of finished blocks + %llu live + %llu by the output\n",
              LABEL, "two phases: finished ones once",
              (unsigned long long)(reads.bank + reads.live + reads.output),
              (unsigned long long)reads.bank, (unsigned long long)reads.live,
              (unsigned long long)reads.output);
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

/* Bytes in units of d, not divided among sublayers. */
static double rows(const hir_ledger *l, uint64_t bytes) {
    return l->unit ? (double)bytes / (double)l->unit : 0;
}

static void print_blocks(const hir_ledger *l, hd_text *out) {
    if (l->flow.blocks < 2) return;
    hir_traffic *of = hd_new_array(out->arena, hir_traffic, l->flow.blocks + 1);
    for (size_t i = 0; i < l->accesses.n; i++) {
        const hir_access *a = &l->accesses.at[i];
        if (!hir_phase_is_charged(a->phase) || a->block > l->flow.blocks) continue;
        hir_traffic *t = a->phase == HIR_PHASE_OUTPUT ? &of[0] : &of[a->block];
        *(a->write ? &t->written : &t->read) += a->bytes;
    }
    print_head(out, "by block, in d per token");
    for (uint32_t b = 1; b <= l->flow.blocks + 1; b++) {
        bool last = b > l->flow.blocks;
        hir_traffic t = of[last ? 0 : b];
        const char *label = last ? "output" : hd_printf(out->arena, "block %u", b);
        print_row(out, label, rows(l, t.read), rows(l, t.written));
        hd_text_f(out, " %12llu\n", (unsigned long long)(t.read + t.written));
    }
}

static bool alike(const hir_access *x, const hir_access *y) {
    return x->phase == y->phase && x->kind == y->kind && x->write == y->write &&
           x->dtype == y->dtype;
}

/* Accesses of one kernel, those of a phase and kind together. */
static const char *describe(const hir_ledger *l, size_t from, size_t to, hd_arena *a) {
    const hir_access *all = l->accesses.at;
    hd_text text;
    hd_text_init(&text, a);
    for (size_t i = from; i < to; i++) {
        size_t n = 0, earlier = from;
        while (earlier < i && !alike(&all[earlier], &all[i]))
            earlier++;
        if (earlier < i) continue;
        for (size_t k = i; k < to; k++)
            n += alike(&all[k], &all[i]);
        hd_text_f(&text, "%s%s %zu %s %s (%s)", i > from ? ", " : "",
                  all[i].write ? "writes" : "reads", n, hir_flow_kind_name(all[i].kind),
                  hir_dtype_name(all[i].dtype), hir_phase_name(all[i].phase));
    }
    return text.at;
}

typedef struct kernel_line { /* kernels of one name that do the same */
    const char *name, *what;
    uint32_t times;
    hir_traffic each;
} kernel_line;
typedef HD_VEC(kernel_line) kernel_lines;

static void add_kernel(const ledger_report *r, size_t from, size_t to, hd_arena *a,
                       kernel_lines *lines) {
    const hir_ledger *l = &r->compiled;
    kernel_line new = {.times = 1, .what = describe(l, from, to, a)};
    new.name = ledger_op_name(r->compiled_module, l->accesses.at[from].op);
    for (size_t i = from; i < to; i++) {
        const hir_access *x = &l->accesses.at[i];
        if (!hir_phase_is_charged(x->phase)) continue;
        *(x->write ? &new.each.written : &new.each.read) += x->bytes;
    }
    for (size_t i = 0; i < lines->n; i++) {
        kernel_line *old = &lines->at[i];
        if (strcmp(old->name, new.name) || strcmp(old->what, new.what)) continue;
        if (old->each.read != new.each.read || old->each.written != new.each.written) continue;
        old->times++;
        return;
    }
    hd_push(a, lines, new);
}

static void print_kernels(const ledger_report *r, hd_text *out) {
    const hir_ledger *l = &r->compiled;
    kernel_lines lines = {0};
    for (size_t i = 0; i < l->accesses.n;) {
        size_t end = i;
        while (end < l->accesses.n && l->accesses.at[end].op == l->accesses.at[i].op)
            end++;
        add_kernel(r, i, end, out->arena, &lines);
        i = end;
    }
    hd_text_f(out, "\n%-*s %9s %9s %9s\n", LABEL + 2, "by kernel, in d per token", "read",
              "written", "total");
    for (size_t i = 0; i < lines.n; i++) {
        const kernel_line *k = &lines.at[i];
        const char *label =
            k->times > 1 ? hd_printf(out->arena, "%s, %u times", k->name, k->times) : k->name;
        print_row(out, label, rows(l, k->each.read), rows(l, k->each.written));
        hd_text_f(out, "  %s\n", k->what);
    }
}

static void print_steps(const ledger_report *r, hd_text *out) {
    if (!r->steps.n) return;
    hd_text_f(out, "\n%-*s %9s %9s %9s %12s\n", LABEL + 2, "after each pass that changed something",
              "read", "written", "total", "bytes");
    print_traffic(out, &r->graph, "(as loaded)", r->graph.total);
    for (size_t i = 0; i < r->steps.n; i++)
        print_traffic(out, &r->graph, r->steps.at[i].pass, r->steps.at[i].total);
}

void ledger_print_text(const ledger_report *r, hd_text *out) {
    const hir_ledger *l = &r->graph;
    if (!l->flow.width || !l->sublayers) {
        hd_text_f(out, "%s has no residual stream: nothing that sublayers add to\n", r->name);
        return;
    }
    hd_text_f(out,
              "ledger of %s: d = %llu, %u sublayers in %u block%s of at most %u\n"
              "residual mechanism alone, per token per sublayer, in units of d (a row of f32)\n",
              r->name, (unsigned long long)l->flow.width, l->sublayers, l->flow.blocks,
              l->flow.blocks == 1 ? "" : "s", l->flow.longest_block);
    print_comparison(r, out);
    const ledger_table table = ledger_count_table(r);
    ledger_print_table(r, &table, out);
    print_sources(r, out);
    print_steps(r, out);
    if (!r->has_kernels) return;
    print_phases(&r->compiled, out);
    hd_text_f(out, "  weights read by the mechanism, once per call: %llu bytes\n",
              (unsigned long long)r->compiled.fixed_bytes);
    if (r->memory) ledger_print_memory(r->memory, out);
    print_blocks(&r->compiled, out);
    print_kernels(r, out);
}
