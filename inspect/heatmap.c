/* The weights of the depth mixes (a depth mix is a weighted sum of earlier outputs): what is traced
 * (inspect/mixes.h), evaluated, by sublayer and by source. */
#include "inspect/heatmap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/format.h"
#include "inspect/mixes.h"
#include "inspect/svg.h"

typedef struct finder {
    depth_weights *x;
    hir_flow flow;
    uint32_t *home;            /* by value: the sublayer that the value belongs to */
    uint32_t *last;            /* by value: the last sublayer whose output goes into the value */
    const hir_source **source; /* by value: what it is as a source; NULL: it is none */
    bool *attends;             /* by sublayer: it reads along the sequence */
} finder;

/* ---- data flow ------------------------------------------------------------------------------- */

static void find_last(finder *f) {
    const hir_module *m = f->flow.m;
    f->last = hd_new_array(f->x->arena, uint32_t, m->values.n);
    for (size_t i = 0; i < f->flow.outputs.n; i++)
        f->last[f->flow.outputs.at[i]] = (uint32_t)i + 1;
    for (size_t k = 0; k < f->flow.program.n; k++) {
        const hir_op *o = hir_op_at(m, f->flow.program.at[k]);
        for (uint32_t i = 0; o->n_results && i < o->n_args; i++) {
            if (o->args[i].kind != HIR_REF_VALUE) continue;
            const uint32_t n = f->last[f->flow.origin[o->args[i].index]];
            if (n > f->last[o->results[0]]) f->last[o->results[0]] = n;
        }
    }
}

/* ---- sources --------------------------------------------------------------------------------- */

static void find_sources(finder *f) {
    f->source = hd_new_array(f->x->arena, const hir_source *, f->flow.m->values.n + 1);
    for (size_t i = 0; i < f->flow.inputs.n; i++)
        for (size_t k = 0; k < hir_flow_sources(&f->flow.inputs.at[i]); k++) {
            const hir_source *s = hir_flow_source(&f->flow.inputs.at[i], k);
            f->source[s->value] = s;
        }
}

/* A finished block and the live partial sum of the same block share the column of their first
 * sublayer. A source that holds the embedding together with later outputs is a state of the stream,
 * whose column is that of the last output in it. */
static depth_source describe(const finder *f, hir_id v) {
    const hir_id origin = f->flow.origin[v];
    const hir_source *s = f->source[origin];
    hd_text label;
    hd_text_init(&label, f->x->arena);
    if (s) {
        hir_flow_print_source(s, &label);
        return (depth_source){.key = s->first ? s->first : s->last, .label = label.at};
    }
    const uint32_t sublayer = f->home[origin] ? f->home[origin] : f->last[origin];
    if (sublayer)
        hd_text_f(&label, "%u", sublayer);
    else
        hd_text_add(&label, "e");
    return (depth_source){.key = sublayer, .label = label.at};
}

static void describe_sources(const finder *f, const hir_op *stack, depth_row *row) {
    row->sources = hd_new_array(f->x->arena, depth_source, (size_t)row->n);
    for (int64_t i = 0; i < row->n; i++) {
        const bool known = stack && stack->args[i].kind == HIR_REF_VALUE;
        row->sources[i] =
            known ? describe(f, stack->args[i].index)
                  : (depth_source){.key = (uint32_t)i,
                                   .label = hd_printf(f->x->arena, "%lld", (long long)i)};
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void find_attention(finder *f) {
    f->attends = hd_new_array(f->x->arena, bool, f->flow.outputs.n + 1);
    for (size_t k = 0; k < f->flow.program.n; k++) {
        const hir_op *o = hir_op_at(f->flow.m, f->flow.program.at[k]);
        if (hir_has_trait(o->code, HIR_SEQUENCE)) f->attends[f->home[o->results[0]]] = true;
    }
}

static uint32_t block_of(const hir_flow *f, uint32_t sublayer) {
    for (size_t i = 0; i < f->inputs.n; i++)
        if (f->inputs.at[i].sublayer == sublayer) return f->inputs.at[i].block;
    return f->blocks;
}

static void add_row(finder *f, const depth_mix *mix) {
    depth_weights *x = f->x;
    const hir_type t = hir_ref_type(f->flow.m, mix->weights);
    depth_row row = {.weights = mix->weights, .n = t.dim[t.rank - 1], .ways = 1};
    for (uint32_t i = hir_type_has_t(t) ? 1 : 0; i + 1 < t.rank; i++)
        row.ways *= t.dim[i];
    const bool head = !mix->sublayer;
    row.sublayer = head ? x->sublayers + 1 : mix->sublayer;
    row.label = head ? "out" : hd_printf(x->arena, "%u", mix->sublayer);
    row.attention = !head && f->attends[mix->sublayer];
    row.block = block_of(&f->flow, head ? HIR_FLOW_RESULT : mix->sublayer);
    describe_sources(f, mix->stack, &row);
    hd_push(x->arena, &x->rows, row);
}

/* ---- numbers --------------------------------------------------------------------------------- */

static void take_mean(depth_row *row, const hir_array *a, depth_weights *x) {
    row->mean = hd_new_array(x->arena, double, (size_t)row->n);
    const int64_t count = a->n / row->n;
    double sum = 0;
    for (int64_t i = 0; i < a->n; i++)
        row->mean[i % row->n] += a->at[i] / (double)count;
    for (int64_t i = 0; i < row->n; i++)
        sum += row->mean[i];
    x->normalized &= fabs(sum - 1) < 1e-9;
}

static bool evaluate(depth_weights *x, const hir_module *m, hd_diags *d, hir_weight_source source,
                     void *context, const double *ids) {
    hir_eval *eval = hir_eval_new(x->arena, m, source, context);
    hir_results results;
    if (!hir_eval_call(eval, x->arena, d, x->tokens, (const double *const[]){ids}, &results, NULL,
                       NULL))
        return false;
    size_t row = 0;
    for (size_t i = 0; i < results.traces.n && row < x->rows.n; i++) {
        const hir_array *a = &results.traces.at[i];
        if (strncmp(a->name, "depth_weights.", strlen("depth_weights.")) != 0) continue;
        take_mean(&x->rows.at[row++], a, x);
    }
    return true;
}

static int by_key(const void *a, const void *b) {
    const depth_source *x = a, *y = b;
    return x->key < y->key ? -1 : x->key > y->key;
}

static depth_source *column_of(const depth_weights *x, uint32_t key) {
    const depth_source wanted = {.key = key};
    return bsearch(&wanted, x->columns.at, x->columns.n, sizeof wanted, by_key);
}

/* A column for each key. Of the labels with this key the column has the longest, which is that of
 * the whole block. */
static void find_columns(depth_weights *x) {
    uint32_t most = 0;
    for (size_t r = 0; r < x->rows.n; r++)
        for (int64_t i = 0; i < x->rows.at[r].n; i++)
            if (x->rows.at[r].sources[i].key > most) most = x->rows.at[r].sources[i].key;
    const char **label = hd_new_array(x->arena, const char *, (size_t)most + 1); /* by key */
    for (size_t r = 0; r < x->rows.n; r++)
        for (int64_t i = 0; i < x->rows.at[r].n; i++) {
            const depth_source s = x->rows.at[r].sources[i];
            const char **same = &label[s.key];
            if (!*same || strlen(s.label) > strlen(*same) ||
                (strlen(s.label) == strlen(*same) && strcmp(s.label, *same) > 0))
                *same = s.label;
        }
    for (size_t key = 0; key <= most; key++)
        if (label[key])
            hd_push(x->arena, &x->columns,
                    ((depth_source){.key = (uint32_t)key, .label = label[key]}));
    for (size_t r = 0; r < x->rows.n; r++)
        for (int64_t i = 0; i < x->rows.at[r].n; i++) {
            depth_source *s = &x->rows.at[r].sources[i];
            s->column = (size_t)(column_of(x, s->key) - x->columns.at);
        }
}

/* Sources of one column are added. */
static void fill(depth_weights *x) {
    const size_t n = x->columns.n;
    x->at = hd_new_array(x->arena, double, x->rows.n *n);
    for (size_t k = 0; k < x->rows.n * n; k++)
        x->at[k] = NAN;
    for (size_t r = 0; r < x->rows.n; r++)
        for (int64_t i = 0; i < x->rows.at[r].n; i++) {
            double *at = &x->at[r * n + x->rows.at[r].sources[i].column];
            *at = (isnan(*at) ? 0 : *at) + x->rows.at[r].mean[i];
        }
}

bool heatmap_plan(const hir_module *graph, hd_arena *a, depth_weights *out) {
    *out = (depth_weights){.name = graph->name, .arena = a, .normalized = true};
    finder f = {.x = out};
    hir_flow_find(graph, a, &f.flow);
    out->sublayers = (uint32_t)f.flow.outputs.n;
    out->has_blocks = f.flow.blocks > 1 && 2 * f.flow.blocks <= out->sublayers;
    f.home = hir_flow_homes(&f.flow, a, hd_new_array(a, bool, f.flow.outputs.n + 1));
    find_last(&f);
    find_sources(&f);
    find_attention(&f);
    depth_mixes mixes;
    depth_mixes_find(&f.flow, f.home, a, &mixes);
    for (size_t i = 0; i < mixes.list.n; i++)
        add_row(&f, &mixes.list.at[i]);
    for (size_t i = 0; i < out->rows.n; i++)
        out->has_attention |= out->rows.at[i].attention;
    if (out->rows.n) find_columns(out);
    return out->rows.n > 0;
}

bool heatmap_find(const hir_module *graph, hd_arena *a, hd_diags *d, hir_weight_source source,
                  void *context, const double *ids, int64_t tokens, depth_weights *out) {
    if (!heatmap_plan(graph, a, out)) {
        hd_diag *e = hd_err(d, HD_E_UNSUPPORTED, HD_NOWHERE, "%s has no depth mixes", graph->name);
        e->cause = "nothing is traced as depth_weights";
        e->hint = "in a system of your own: trace(a, \"depth_weights\"), a [T, sources]; "
                  "--mixing-matrix draws any system";
        return false;
    }
    out->tokens = tokens;
    if (!evaluate(out, graph, d, source, context, ids)) return false;
    fill(out);
    return true;
}

bool heatmap_collect(const inspect_subject *s, depth_weights *out) {
    return heatmap_find(s->graph, s->arena, s->diags, s->weight_source, s->weights, s->ids,
                        s->tokens, out);
}

inspect_numbers heatmap_numbers(const depth_weights *x) {
    return (inspect_numbers){x->at, 2, {(int64_t)x->rows.n, (int64_t)x->columns.n}};
}

/* ---- for people ------------------------------------------------------------------------------ */

void heatmap_text(const depth_weights *x, hd_text *out) {
    hd_text_f(out, "weights of the %zu depth mixes of %s, mean of %lld token%s%s\n", x->rows.n,
              x->name, (long long)x->tokens, x->tokens == 1 ? "" : "s",
              x->normalized ? "" : "; they need not add up to 1");
    for (size_t r = 0; r < x->rows.n; r++) {
        const depth_row *row = &x->rows.at[r];
        hd_text_f(out, "  %4s %-9s", row->label,
                  row->sublayer > x->sublayers ? ""
                  : row->attention             ? "attention"
                  : x->has_attention           ? "MLP"
                                               : "");
        for (int64_t i = 0; i < row->n; i++)
            hd_text_f(out, "  %s %.3f", row->sources[i].label, row->mean[i]);
        if (row->ways > 1) hd_text_f(out, "  (mean of %lld)", (long long)row->ways);
        hd_text_add(out, "\n");
    }
}

/* ---- for programs ---------------------------------------------------------------------------- */

static void print_row(const depth_weights *x, size_t r, hd_text *out) {
    const depth_row *row = &x->rows.at[r];
    const size_t n = x->columns.n;
    hd_text_f(out, "{\"sublayer\": %u, \"label\": ", row->sublayer);
    inspect_json_string(out, row->label);
    hd_text_f(out, ", \"attention\": %s, \"block\": %u, \"mean\": [",
              row->attention ? "true" : "false", row->block);
    for (size_t c = 0; c < n; c++) {
        hd_text_add(out, c ? ", " : "");
        inspect_json_rounded(out, !isnan(x->at[r * n + c]), x->at[r * n + c]);
    }
    hd_text_add(out, "]}");
}

void heatmap_json(const depth_weights *x, hd_text *out) {
    hd_text_add(out, "{\"name\": ");
    inspect_json_string(out, x->name);
    hd_text_f(out, ", \"tokens\": %lld, \"normalized\": %s,\n  \"columns\": [",
              (long long)x->tokens, x->normalized ? "true" : "false");
    for (size_t c = 0; c < x->columns.n; c++) {
        hd_text_add(out, c ? ", " : "");
        inspect_json_string(out, x->columns.at[c].label);
    }
    hd_text_add(out, "],\n  \"rows\": [");
    for (size_t r = 0; r < x->rows.n; r++) {
        hd_text_add(out, r ? ",\n    " : "\n    ");
        print_row(x, r, out);
    }
    hd_text_add(out, "]}\n");
}

/* ---- as a picture: attention and MLP in panels of their own ---------------------------------- */

/* The rows of one kind of sublayer; `head` adds the row of what the head reads below the last of
 * them. */
static svg_panel make_panel(const depth_weights *x, bool attention, bool head, const char *title,
                            hd_arena *a) {
    const size_t n = x->columns.n;
    double *at = hd_new_array(a, double, x->rows.n *n);
    const char **rows = hd_new_array(a, const char *, x->rows.n);
    const char **columns = hd_new_array(a, const char *, n);
    bool *ends = hd_new_array(a, bool, x->rows.n);
    svg_panel p = {.title = title, .columns = n, .at = at, .row_labels = rows, .row_ends = ends};
    const depth_row *before = NULL;
    for (size_t r = 0; r < x->rows.n; r++) {
        const depth_row *row = &x->rows.at[r];
        const bool is_head = row->sublayer > x->sublayers;
        if (is_head ? !head : row->attention != attention) continue;
        if (before) ends[p.rows - 1] = is_head || (x->has_blocks && row->block != before->block);
        for (size_t c = 0; c < n; c++)
            at[p.rows * n + c] = x->at[r * n + c];
        rows[p.rows++] = row->label;
        before = row;
    }
    for (size_t c = 0; c < n; c++)
        columns[c] = x->columns.at[c].label;
    p.column_labels = columns;
    return p;
}

static bool any(const depth_weights *x, bool attention) {
    for (size_t r = 0; r < x->rows.n; r++)
        if (x->rows.at[r].sublayer <= x->sublayers && x->rows.at[r].attention == attention)
            return true;
    return false;
}

void heatmap_svg(const depth_weights *x, hd_text *out) {
    svg_panel panels[2];
    size_t n = 0;
    const bool attention = any(x, true), other = any(x, false);
    if (attention) panels[n++] = make_panel(x, true, !other, "Attention sublayers", out->arena);
    if (other || !attention)
        panels[n++] = make_panel(x, false, true, x->has_attention ? "MLP sublayers" : "Sublayers",
                                 out->arena);
    int64_t ways = 1;
    for (size_t r = 0; r < x->rows.n; r++)
        if (x->rows.at[r].ways > ways) ways = x->rows.at[r].ways;
    const char *notes[] = {
        hd_printf(
            out->arena, "mean of %lld token%s%s%s", (long long)x->tokens, x->tokens == 1 ? "" : "s",
            ways > 1 ? hd_printf(out->arena, " and of %lld heads or inputs", (long long)ways) : "",
            x->normalized ? "" : "; rows need not add up to 1"),
    };
    const svg_map map = {
        .title = hd_printf(out->arena, "Depth mixing weights of %s", x->name),
        .notes = notes,
        .n_notes = 1,
        .x_name = "source (e: embedding, else sublayers)",
        .y_name = "sublayer that reads",
        .scale_name = "weight",
        .panels = panels,
        .n_panels = n,
    };
    svg_print(&map, out);
}
