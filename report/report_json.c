/* A report as JSON: docs/report-json.md is its schema. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "inspect/format.h"
#include "ir/text/text.h"
#include "report/report.h"
#include "support/known.h"

static const char *const source_names[] = {
    [REPORT_OF_MODEL] = "model", [REPORT_OF_DUMPS] = "dumps", [REPORT_OF_LIBRARY] = "library"};

/* ---- small parts ----------------------------------------------------------------------------- */

static void member(hd_text *out, const char *key, const char *value) {
    inspect_json_key(out, key);
    if (value)
        inspect_json_string(out, value);
    else
        hd_text_add(out, "null");
}

/* A list of numbers, written as runs of consecutive ones: [first, count, ..]. */
typedef struct runs {
    hd_text *out;
    uint32_t first, n;
    bool any;
} runs;

static void flush_run(runs *r) {
    if (r->n) hd_text_f(r->out, "%s%u,%u", r->any ? "," : "", r->first, r->n);
    r->any |= r->n > 0;
    r->n = 0;
}

static void add_to_run(runs *r, uint32_t i) {
    if (r->n && r->first + r->n == i) {
        r->n++;
        return;
    }
    flush_run(r);
    r->first = i;
    r->n = 1;
}

/* ---- diagnostics, files ---------------------------------------------------------------------- */

static void print_diagnostic(const hd_diag *d, hd_text *out) {
    static const char *const severities[] = {"error", "warning", "note"};
    hd_text_f(out, "{\"severity\": \"%s\", ", severities[d->severity]);
    member(out, "kind", hd_error_name(d->code));
    hd_text_add(out, ", ");
    member(out, "file", d->loc.file);
    hd_text_f(out, ", \"line\": %u, \"column\": %u, \"end_column\": %u, ", d->loc.line,
              d->loc.column, d->loc.end_column);
    member(out, "message", d->message);
    hd_text_add(out, ", ");
    member(out, "cause", d->cause);
    hd_text_add(out, ", ");
    member(out, "hint", d->hint);
    hd_text_add(out, ", ");
    member(out, "source_line", d->source_line);
    hd_text_add(out, "}");
}

static void print_diagnostics(const report *r, hd_text *out) {
    hd_text_add(out, ",\n\"diagnostics\": [");
    for (size_t i = 0; r->diags && i < r->diags->list.n; i++) {
        hd_text_add(out, i ? ",\n  " : "\n  ");
        print_diagnostic(&r->diags->list.at[i], out);
    }
    hd_text_add(out, "]");
}

static void print_files(const report *r, hd_text *out) {
    hd_text_add(out, ",\n\"files\": [");
    for (size_t i = 0; i < r->files.n; i++) {
        hd_text_add(out, i ? ",\n  {" : "\n  {");
        member(out, "path", r->files.at[i].path);
        hd_text_add(out, ", ");
        member(out, "text", r->files.at[i].text);
        hd_text_add(out, "}");
    }
    hd_text_add(out, "]");
}

/* ---- history --------------------------------------------------------------------------------- */

static void print_strings(const report_strings *s, hd_text *out) {
    hd_text_add(out, "{\n \"strings\": [");
    for (size_t i = 0; i < s->list.n; i++) {
        hd_text_add(out, i ? ",\n" : "");
        inspect_json_string(out, s->list.at[i]);
    }
    hd_text_add(out, "]");
}

static void print_calls(const report_history *h, hd_text *out) {
    hd_text_add(out, ",\n \"calls\": [");
    for (size_t i = 0; i < h->calls.n; i++) {
        const report_call *c = &h->calls.at[i];
        hd_text_f(out, "%s%u,%u,%u,%u", i ? "," : "", c->op, c->file, c->line, c->column);
    }
    hd_text_add(out, "]");
}

static void print_forms(const report_history *h, hd_text *out) {
    hd_text_add(out, ",\n \"forms\": [");
    for (size_t i = 0; i < h->forms.n; i++) {
        const report_form *f = &h->forms.at[i];
        hd_text_add(out, i ? ",\n[" : "[");
        for (uint32_t k = 0; k < f->n; k++)
            hd_text_f(out, k ? ",%u" : "%u", f->word[k]);
        hd_text_add(out, "]");
    }
    hd_text_add(out, "]");
}

/* Prints the names of values. Values without one are numbered in the order in which a stage makes
 * them. */
static void print_values(const report_history *h, hd_text *out) {
    hd_text_f(out, ",\n \"ops\": %zu, \"values\": %zu, \"inputs\": [", h->ops.n, h->values.n);
    for (size_t i = 0; i < h->inputs.n; i++)
        hd_text_f(out, "%s%u", i ? "," : "", h->inputs.at[i]);
    hd_text_add(out, "], \"names\": [");
    bool any = false;
    for (size_t i = 0; i < h->values.n; i++) {
        if (!h->values.at[i].name) continue;
        hd_text_f(out, "%s[%zu,", any ? "," : "", i);
        inspect_json_string(out, h->values.at[i].name);
        hd_text_add(out, "]");
        any = true;
    }
    hd_text_add(out, "]");
}

/* By row form: a row of the stage that has it; HIR_NONE: no row does. */
static uint32_t *rows_of_forms(const report_history *h, const report_stage *s, hd_arena *a) {
    uint32_t *row = hd_new_array(a, uint32_t, h->forms.n + 1);
    memset(row, 0xff, (h->forms.n + 1) * sizeof *row);
    for (size_t i = 0; s && i < s->rows.n; i++)
        row[s->rows.at[i].form] = (uint32_t)i;
    return row;
}

/* How many rows from row `i` on equal the rows of the stage before from row `from` on. */
static size_t copied(const report_stage *s, size_t i, const report_stage *before, size_t from) {
    hd_known(before); /* the stage before has the row `from` */
    size_t n = 0;
    while (i + n < s->rows.n && from + n < before->rows.n &&
           s->rows.at[i + n].form == before->rows.at[from + n].form)
        n++;
    return n;
}

static size_t consecutive(const report_stage *s, size_t i, const uint32_t *row_before) {
    const uint32_t form = s->rows.at[i].form;
    size_t n = 1;
    while (i + n < s->rows.n && s->rows.at[i + n].form == form + n &&
           row_before[form + n] == HIR_NONE)
        n++;
    return n;
}

/* Prints the rows of a stage as pieces, which are either copied from the stage before (0, its row,
 * count) or new (1, row form, count). */
static void print_rows(const report_history *h, const report_stage *s, const report_stage *before,
                       hd_text *out) {
    const uint32_t *row_before = rows_of_forms(h, before, out->arena);
    hd_text_add(out, ", \"rows\": [");
    for (size_t i = 0, n; i < s->rows.n; i += n) {
        const uint32_t form = s->rows.at[i].form, from = row_before[form];
        n = from == HIR_NONE ? consecutive(s, i, row_before) : copied(s, i, before, from);
        hd_text_f(out, "%s%d,%u,%zu", i ? "," : "", from == HIR_NONE,
                  from == HIR_NONE ? form : from, n);
    }
    hd_text_add(out, "]");
}

static void print_marked(const report_stage *s, hir_diff_mark mark, const char *key, hd_text *out) {
    runs r = {.out = out};
    hd_text_f(out, ", \"%s\": [", key);
    for (size_t i = 0; i < s->rows.n; i++)
        if (s->rows.at[i].mark == mark) add_to_run(&r, (uint32_t)i);
    flush_run(&r);
    hd_text_add(out, "]");
}

static void print_changes(const report_stage *s, hd_text *out) {
    print_marked(s, HIR_DIFF_ADDED, "added", out);
    print_marked(s, HIR_DIFF_CHANGED, "changed_rows", out);
    print_marked(s, HIR_DIFF_MOVED, "moved", out);
    runs r = {.out = out};
    hd_text_add(out, ", \"removed\": [");
    for (size_t i = 0; i < s->removed.n; i++)
        add_to_run(&r, s->removed.at[i]);
    flush_run(&r);
    hd_text_add(out, "], \"heirs\": [");
    for (size_t i = 0; i < s->successors.n; i++)
        hd_text_f(out, "%s%u,%u", i ? "," : "", s->successors.at[i].op,
                  s->successors.at[i].successor);
    const hir_diff_counts c = s->counts;
    hd_text_f(out,
              "], \"counts\": {\"same\": %zu, \"changed\": %zu, \"moved\": %zu, \"added\": %zu, "
              "\"removed\": %zu}",
              c.same, c.changed, c.moved, c.added, c.removed);
}

static void print_stage_ledger(const hir_ledger *l, hd_text *out) {
    if (!l->sublayers) return;
    hd_text_f(out, ",\n  \"ledger\": {\"unit\": %llu, \"sublayers\": %u, \"phases\": {",
              (unsigned long long)l->unit, l->sublayers);
    for (int p = 0; p < HIR_PHASE_COUNT; p++) {
        hd_text_add(out, p ? ", " : "");
        inspect_json_key(out, hir_phase_name((hir_phase)p));
        hd_text_f(out, "[%llu, %llu]", (unsigned long long)l->phase[p].read,
                  (unsigned long long)l->phase[p].written);
    }
    hd_text_f(out, "}, \"total\": [%llu, %llu]}", (unsigned long long)l->total.read,
              (unsigned long long)l->total.written);
}

static void print_seconds(double seconds, hd_text *out) {
    if (seconds < 0)
        hd_text_add(out, "null");
    else
        hd_text_f(out, "%.6f", seconds);
}

static void print_stage(const report_history *h, const report_stage *s, const report_stage *before,
                        hd_text *out) {
    hd_text_add(out, "{");
    member(out, "pass", s->pass);
    hd_text_f(out, ", \"index\": %d, \"ir\": \"%s\", \"changed\": %s, \"seconds\": ", s->index,
              hir_stage_name(s->ir), s->changed ? "true" : "false");
    print_seconds(s->seconds, out);
    hir_pass_id pass;
    hd_text_add(out, ", ");
    member(out, "doc", hir_pass_by_name(s->pass, &pass) ? hir_pass(pass)->doc : "");
    if (s->changed) {
        hd_text_f(out, ", \"first_line\": %u", s->rows.n ? s->line[s->rows.at[0].op] : 0);
        print_rows(h, s, before, out);
        if (before) print_changes(s, out);
        print_stage_ledger(&s->ledger, out);
    }
    hd_text_add(out, "}");
}

static void print_weight(const hir_weight *w, hd_text *out) {
    hd_text derived;
    hd_text_init(&derived, out->arena);
    hir_print_derived(&derived, w);
    hd_text_add(out, "{");
    member(out, "name", w->name);
    hd_text_add(out, ", \"type\": \"");
    hir_print_type(out, w->type);
    hd_text_f(out, "\", \"layout\": \"%s\"", hir_layout_name(w->layout));
    if (w->unused) hd_text_add(out, ", \"unused\": true");
    if (w->stacked) hd_text_add(out, ", \"stacked\": true");
    if (derived.n) {
        hd_text_add(out, ", ");
        member(out, "derived", derived.at + strlen(" = "));
    }
    if (w->loc.file) {
        hd_text_add(out, ", ");
        member(out, "file", w->loc.file);
        hd_text_f(out, ", \"line\": %u", w->loc.line);
    }
    hd_text_add(out, "}");
}

static void print_weights(const hir_module *m, hd_text *out) {
    hd_text_add(out, ",\n \"weights\": [");
    for (size_t i = 0; i < m->weights.n; i++) {
        hd_text_add(out, i ? ",\n  " : "\n  ");
        print_weight(&m->weights.at[i], out);
    }
    hd_text_add(out, "]");
}

static void print_history(const report_history *h, hd_text *out) {
    hd_text_add(out, ",\n\"history\": ");
    print_strings(&h->strings, out);
    print_calls(h, out);
    print_forms(h, out);
    print_values(h, out);
    print_weights(report_last(h)->m, out);
    hd_text_add(out, ",\n \"stages\": [");
    const report_stage *before = NULL;
    for (size_t i = 0; i < h->stages.n; i++) {
        const report_stage *s = &h->stages.at[i];
        hd_text_add(out, i ? ",\n  " : "\n  ");
        print_stage(h, s, before, out);
        if (s->changed) before = s;
    }
    hd_text_add(out, "]}");
}

/* ---- remarks --------------------------------------------------------------------------------- */

static void print_remarks(const report *r, hd_text *out) {
    hd_text_add(out, ",\n\"remarks\": [");
    for (size_t i = 0; i < r->remarks.n; i++) {
        const report_remark *x = &r->remarks.at[i];
        const hir_remark *m = &x->remark;
        const uint32_t op = report_op_number(r->history, x->stage, m->op);
        hd_text_f(out, "%s{\"stage\": %u, ", i ? ",\n  " : "\n  ", x->stage);
        member(out, "pass", m->pass);
        hd_text_f(out, ", \"taken\": %s, \"op\": ", m->taken ? "true" : "false");
        if (op == HIR_NONE)
            hd_text_add(out, "null, ");
        else
            hd_text_f(out, "%u, ", op);
        member(out, "code", m->op_name);
        hd_text_add(out, ", ");
        member(out, "weight", m->weight);
        hd_text_add(out, ", ");
        if (m->layer_pass) hd_text_f(out, "\"layer_pass\": %u, ", m->layer_pass);
        member(out, "file", m->loc.file);
        hd_text_f(out, ", \"line\": %u, \"column\": %u, ", m->loc.line, m->loc.column);
        if (m->loc.call) {
            hd_text_add(out, "\"call\": {");
            member(out, "file", m->loc.call->file);
            hd_text_f(out, ", \"line\": %u, \"column\": %u}, ", m->loc.call->line,
                      m->loc.call->column);
        }
        member(out, "text", m->text);
        hd_text_add(out, "}");
    }
    hd_text_add(out, "]");
}

static void add_base64(const unsigned char *at, size_t n, hd_text *out) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        const unsigned a = at[i], b = i + 1 < n ? at[i + 1] : 0, c = i + 2 < n ? at[i + 2] : 0;
        const char four[4] = {
            digits[a >> 2],
            digits[(a & 3) << 4 | b >> 4],
            i + 1 < n ? digits[(b & 15) << 2 | c >> 6] : '=',
            i + 2 < n ? digits[c & 63] : '=',
        };
        hd_text_add_n(out, four, sizeof four);
    }
}

/* Adds text compressed by zlib, in base64. Listings are long and repetitive: compressed they take a
 * tenth of the size in a report, and are only unpacked when somebody looks at one. */
static bool add_compressed(const char *text, size_t n, hd_text *out) {
    uLongf size = compressBound((uLong)n);
    unsigned char *packed = hd_new_array(out->arena, unsigned char, size);
    if (compress2(packed, &size, (const unsigned char *)text, (uLong)n, Z_BEST_COMPRESSION) != Z_OK)
        return false;
    add_base64(packed, size, out);
    return true;
}

/* ---- code ------------------------------------------------------------------------------------ */

static void print_listing(const char *key, const report_listing *l, hd_text *out) {
    hd_text_f(out, ", \"%s\": {\"encoding\": \"zlib base64\", \"text\": \"", key);
    if (l->text.n) add_compressed(l->text.at, l->text.n, out);
    hd_text_add(out, "\", \"lines\": [");
    for (size_t i = 0; i < l->lines.n;) { /* line of the IR, number of listing lines made for it */
        size_t n = 1;
        while (i + n < l->lines.n && l->lines.at[i + n] == l->lines.at[i])
            n++;
        hd_text_f(out, "%s%u,%zu", i ? "," : "", l->lines.at[i], n);
        i += n;
    }
    hd_text_add(out, "]}");
}

static void print_ranges(const report_function *f, hd_text *out) {
    hd_text_add(out, ", \"ranges\": [");
    for (size_t i = 0; i < f->ranges.n; i++) {
        const report_range *r = &f->ranges.at[i];
        hd_text_f(out, "%s%u,%u,%u,%u", i ? "," : "", r->line, r->first, r->bytes, r->listed);
    }
    hd_text_add(out, "]");
}

static void print_step(const report_step *s, hd_text *out) {
    hd_text_f(out, "{\"line\": %u, ", s->line);
    member(out, "kernel", s->name);
    hd_text_add(out, ", ");
    member(out, "scope", s->scope);
    hd_text_add(out, ", \"functions\": [");
    for (int i = 0; i < 3; i++) {
        hd_text_add(out, i ? ", " : "");
        inspect_json_string(out, s->function[i]);
    }
    hd_text_f(out,
              "], \"row_flops\": %llu, \"pair_flops\": %llu, \"pass_bytes\": %llu, "
              "\"row_bytes\": %llu, \"position_bytes\": %llu}",
              (unsigned long long)s->row_flops, (unsigned long long)s->pair_flops,
              (unsigned long long)s->pass_bytes, (unsigned long long)s->row_bytes,
              (unsigned long long)s->position_bytes);
}

static void print_code(const report_code *c, hd_text *out) {
    hd_text_add(out, ",\n\"code\": {");
    member(out, "level", c->level);
    hd_text_add(out, ", \"steps\": [");
    for (size_t i = 0; i < c->steps.n; i++) {
        hd_text_add(out, i ? ",\n  " : "\n  ");
        print_step(&c->steps.at[i], out);
    }
    hd_text_add(out, "],\n \"functions\": [");
    for (size_t i = 0; i < c->functions.n; i++) {
        const report_function *f = &c->functions.at[i];
        hd_text_add(out, i ? ",\n  {" : "\n  {");
        member(out, "name", f->name);
        hd_text_f(out, ", \"offset\": %llu, \"bytes\": %llu", (unsigned long long)f->offset,
                  (unsigned long long)f->bytes);
        print_listing("llvm", &f->llvm, out);
        print_listing("assembly", &f->assembly, out);
        print_ranges(f, out);
        hd_text_add(out, "}");
    }
    hd_text_add(out, "]}");
}

/* ---- the whole report ------------------------------------------------------------------------ */

void report_json(const report *r, hd_text *out) {
    hd_text_add(out, "{");
    member(out, "schema", REPORT_SCHEMA);
    hd_text_add(out, ", ");
    member(out, "hadal", HADAL_VERSION);
    hd_text_add(out, ", ");
    member(out, "made_of", source_names[r->source]);
    hd_text_add(out, ", ");
    member(out, "path", r->path);
    hd_text_add(out, ", ");
    member(out, "name", r->name);
    print_diagnostics(r, out);
    print_files(r, out);
#define V(view)                                                                                    \
    if (r->view) hd_text_f(out, ",\n\"%s\": %s", #view, r->view);
    REPORT_VIEWS(V)
#undef V
    if (r->history) {
        print_history(r->history, out);
        print_remarks(r, out);
    }
    if (r->code) print_code(r->code, out);
    hd_text_add(out, "}\n");
}
