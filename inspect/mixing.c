/* Finding the depth mixing matrix: rows and sources from the data flow, entries by pushing outputs
 * of sublayers through the linear paths of the graph.
 *
 * Each source is pushed twice. With its own row v it gives J v, the source's share of a sublayer's
 * input; the shares of all sources must add up to that input. A row w of +1 and -1 shows what kind
 * of map J is: a number M if J w = M w; a number for each channel if, with g = (J w) w, both
 * J w = g w and J v = g v; a general map otherwise.
 */
#include "inspect/mixing.h"

#include <math.h>
#include <string.h>

#include "inspect/sublayers.h"
#include "ir/eval_private.h"
#include "ir/random.h"

/* ---- rows and sources ------------------------------------------------------------------------ */

static void list_sources(const hir_flow *f, mixing *x) {
    for (size_t k = 0; k < f->program.n; k++) {
        const hir_op *o = hir_op_at(f->m, f->program.at[k]);
        if (o->code != HIR_GATHER_OP || f->kind[o->results[0]] != HIR_FLOW_EMBEDDING) continue;
        hd_push(x->arena, &x->sources, o->results[0]);
        x->starts++;
    }
    for (size_t i = 0; i < f->outputs.n; i++)
        hd_push(x->arena, &x->sources, f->outputs.at[i]);
    x->source_labels = hd_new_array(x->arena, const char *, x->sources.n + 1);
    for (size_t i = 0; i < x->sources.n; i++)
        x->source_labels[i] = i < x->starts ? "e" : hd_printf(x->arena, "%zu", i - x->starts + 1);
}

static hir_id norm_operand(const hir_module *m, hir_id v) {
    hir_id op = hir_value_at(m, v)->op;
    const hir_op *o = op == HIR_NONE ? NULL : hir_op_at(m, op);
    if (!o || (o->code != HIR_RMSNORM_OP && o->code != HIR_LAYERNORM_OP)) return HIR_NONE;
    return o->args[0].kind == HIR_REF_VALUE ? (hir_id)o->args[0].index : HIR_NONE;
}

/* The input of a sublayer before its own norm. A norm whose result becomes the residual stream
 * itself (DeepNorm) belongs to the residual system and is kept. */
static hir_id before_norm(const hir_module *m, const hir_unroll *u, const hir_uses *uses,
                          hir_id v) {
    const hir_id raw = norm_operand(m, v);
    if (raw == HIR_NONE) return v;
    return u && hir_unroll_passes(u, v) && uses->count[raw] == 1 ? v : raw;
}

static bool has_row(const mixing *x, uint32_t sublayer, hir_id v) {
    for (size_t i = 0; i < x->rows.n; i++)
        if (x->rows.at[i].sublayer == sublayer && x->rows.at[i].value == v) return true;
    return false;
}

static const char *row_label(const mixing *x, uint32_t sublayer) {
    size_t same = 1;
    for (size_t i = 0; i < x->rows.n; i++)
        same += x->rows.at[i].sublayer == sublayer;
    if (sublayer > x->sublayers) return same > 1 ? hd_printf(x->arena, "out (%zu)", same) : "out";
    return same > 1 ? hd_printf(x->arena, "%u (%zu)", sublayer, same)
                    : hd_printf(x->arena, "%u", sublayer);
}

/* `u`: paths to the inputs without any norm, or NULL. */
static void list_rows(const hir_flow *f, const hir_unroll *u, const hir_uses *uses, mixing *x) {
    x->rows.n = 0;
    for (size_t i = 0; i < f->inputs.n; i++) {
        const hir_flow_input *input = &f->inputs.at[i];
        const bool result = input->sublayer == HIR_FLOW_RESULT;
        const uint32_t sublayer = result ? x->sublayers + 1 : input->sublayer;
        const hir_id v = before_norm(f->m, u, uses, input->value);
        if (has_row(x, sublayer, v)) continue;
        mixing_row row = {sublayer, row_label(x, sublayer), v};
        hd_push(x->arena, &x->rows, row);
    }
}

static hir_unroll *unroll(hd_diags *d, const hir_module *m, const mixing *x) {
    hir_id *targets = hd_new_array(x->arena, hir_id, x->rows.n + 1);
    for (size_t i = 0; i < x->rows.n; i++)
        targets[i] = x->rows.at[i].value;
    return hir_unroll_new(x->arena, d, m, x->sources.at, x->sources.n, targets, x->rows.n);
}

static uint32_t count_inside(const hir_flow *f, hd_arena *a) {
    bool *crosses = hd_new_array(a, bool, f->outputs.n + 1);
    sublayer_of_values(f, a, crosses);
    uint32_t n = 0;
    for (size_t i = 1; i <= f->outputs.n; i++)
        n += crosses[i];
    return n;
}

static bool check_widths(const hir_module *m, const mixing *x, hd_diags *d) {
    const int64_t width = hir_type_row_elements(hir_value_at(m, x->sources.at[0])->type);
    for (size_t i = 0; i < x->sources.n + x->rows.n; i++) {
        const hir_id v = i < x->sources.n ? x->sources.at[i] : x->rows.at[i - x->sources.n].value;
        const int64_t n = hir_type_row_elements(hir_value_at(m, v)->type);
        if (n == width) continue;
        hd_err(d, HD_E_UNSUPPORTED, HD_NOWHERE,
               "an input or output of a sublayer has %lld elements, the embedding %lld",
               (long long)n, (long long)width)
            ->cause = "a number says how much of an output an input holds only if both are as wide";
        return false;
    }
    return true;
}

static void count_norms(const hir_module *m, const hir_unroll *u, mixing *x) {
    HIR_EACH(m, op, m->first) {
        const hir_op *o = hir_op_at(m, op);
        if (o->code != HIR_RMSNORM_OP && o->code != HIR_LAYERNORM_OP) continue;
        bool target = false;
        for (size_t i = 0; i < x->rows.n; i++)
            target |= x->rows.at[i].value == o->results[0];
        x->norms += target || hir_unroll_passes(u, o->results[0]);
    }
}

hir_unroll *mixing_plan(hd_arena *a, hd_diags *d, const hir_module *graph, mixing *out) {
    *out = (mixing){.name = graph->name, .arena = a};
    hir_flow f;
    hir_flow_find(graph, a, &f);
    out->sublayers = (uint32_t)f.outputs.n;
    list_sources(&f, out);
    if (!f.width || !f.outputs.n || !out->starts) {
        hd_err(d, HD_E_UNSUPPORTED, HD_NOWHERE, "%s has no residual stream", graph->name)->cause =
            "a stream begins at an embedding, and outputs of sublayers are added to it or mixed";
        return NULL;
    }
    const hir_uses uses = hir_compute_uses(graph, a);
    list_rows(&f, NULL, &uses, out);
    const hir_unroll *first = unroll(d, graph, out);
    if (!first) return NULL;
    list_rows(&f, first, &uses, out);
    if (!check_widths(graph, out, d)) return NULL;
    hir_unroll *u = unroll(d, graph, out);
    if (u) count_norms(graph, u, out);
    out->inside = count_inside(&f, a);
    return u;
}

/* ---- entries --------------------------------------------------------------------------------- */

typedef struct finder {
    mixing *x;
    hir_unroll *u;
    int64_t d;       /* elements of a row */
    double *signs;   /* w */
    double *sum;     /* [rows, d]: of parts */
    double *numbers; /* [rows, d]: of M v */
    double *part;    /* [rows, d]: J v of the source at hand */
} finder;

static double dot(const double *a, const double *b, int64_t n) {
    return eval_dot(a, b, n);
}

/* |a - scale b| */
static double distance(const double *a, double scale, const double *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (a[i] - scale * b[i]) * (a[i] - scale * b[i]);
    return sqrt(sum);
}

static double *entry(mixing *x, int64_t t, size_t row, size_t source) {
    return &x->at[((size_t)t * x->rows.n + row) * x->sources.n + source];
}

/* Finds the kind of J for one pair of source and row. */
static void judge(finder *f, int64_t t, size_t row, size_t source, const double *jv,
                  const double *v, const double *jw) {
    mixing *x = f->x;
    const double m = *entry(x, t, row, source), size = sqrt(dot(jv, jv, f->d));
    const double size_w = sqrt(dot(jw, jw, f->d));
    const bool number = distance(jv, m, v, f->d) <= MIXING_TOLERANCE * size &&
                        distance(jw, m, f->signs, f->d) <= MIXING_TOLERANCE * size_w;
    if (number) return;
    double off = 0;
    for (int64_t i = 0; i < f->d; i++) {
        const double e = jv[i] - jw[i] * f->signs[i] * v[i];
        off += e * e;
    }
    const bool channels = sqrt(off) <= MIXING_TOLERANCE * size;
    const mixing_kind kind = channels ? MIXING_CHANNELS : MIXING_MAP;
    if (kind > x->kind) x->kind = kind;
}

/* Numbers of a few channels, evenly spread. */
static void sample(finder *f, int64_t t, size_t row, size_t source, const double *jw) {
    mixing *x = f->x;
    for (int c = 0; t < MIXING_TOKENS && c < x->channels; c++) {
        const int64_t i = c * f->d / x->channels;
        const size_t at = ((size_t)(t * x->channels + c) * x->rows.n + row) * x->sources.n + source;
        x->channel_at[at] = jw[i] * f->signs[i];
    }
}

static bool push_source(finder *f, int64_t t, size_t source) {
    mixing *x = f->x;
    int64_t n;
    const double *v = hir_unroll_row(f->u, x->sources.at[source], t, &n);
    const double square = dot(v, v, n);
    if (!hir_unroll_push(f->u, t, (ptrdiff_t)source, v)) return false;
    memset(f->part, 0, x->rows.n * (size_t)n * sizeof *f->part);
    for (size_t r = 0; r < x->rows.n; r++) {
        const double *jv = hir_unroll_pushed(f->u, r);
        if (!jv) continue;
        memcpy(f->part + (int64_t)r * n, jv, (size_t)n * sizeof *jv);
        const double m = square > 0 ? dot(v, jv, n) / square : 0;
        *entry(x, t, r, source) = m;
        for (int64_t i = 0; i < n; i++) {
            f->sum[(int64_t)r * n + i] += jv[i];
            f->numbers[(int64_t)r * n + i] += m * v[i];
        }
    }
    if (!hir_unroll_push(f->u, t, (ptrdiff_t)source, f->signs)) return false;
    for (size_t r = 0; r < x->rows.n; r++) {
        const double *jw = hir_unroll_pushed(f->u, r);
        if (!jw) continue;
        judge(f, t, r, source, f->part + (int64_t)r * n, v, jw);
        sample(f, t, r, source, jw);
    }
    return true;
}

/* What of the inputs is made of no source, and whether all of it makes up the inputs. */
static bool check_token(finder *f, int64_t t) {
    mixing *x = f->x;
    if (!hir_unroll_push(f->u, t, HIR_UNROLL_CONSTANT, NULL)) return false;
    for (size_t r = 0; r < x->rows.n; r++) {
        int64_t n;
        const double *h = hir_unroll_row(f->u, x->rows.at[r].value, t, &n);
        const double *constant = hir_unroll_pushed(f->u, r), size = sqrt(dot(h, h, n));
        double *sum = f->sum + (int64_t)r * n, *numbers = f->numbers + (int64_t)r * n;
        for (int64_t i = 0; constant && i < n; i++) {
            sum[i] += constant[i];
            numbers[i] += constant[i];
        }
        if (size == 0) continue;
        if (constant) x->constant = fmax(x->constant, sqrt(dot(constant, constant, n)) / size);
        /* not fmax, which hides a NaN */
        const double error = distance(sum, 1, h, n) / size;
        if (!(error <= x->error)) x->error = error;
        const double numbers_error = distance(numbers, 1, h, n) / size;
        if (!(numbers_error <= x->numbers_error)) x->numbers_error = numbers_error;
    }
    return true;
}

static bool find_token(finder *f, int64_t t) {
    const size_t size = f->x->rows.n * (size_t)f->d * sizeof(double);
    memset(f->sum, 0, size);
    memset(f->numbers, 0, size);
    for (size_t i = 0; i < f->x->sources.n; i++)
        if (!push_source(f, t, i)) return false;
    return check_token(f, t);
}

static void take_mean(mixing *x) {
    const size_t size = x->rows.n * x->sources.n;
    x->mean = hd_new_array(x->arena, double, size);
    for (int64_t t = 0; t < x->tokens; t++)
        for (size_t i = 0; i < size; i++)
            x->mean[i] += x->at[(size_t)t * size + i] / (double)x->tokens;
}

bool mixing_find(hir_unroll *u, hd_diags *d, hir_weight_source source, void *context,
                 const double *ids, int64_t tokens, mixing *out) {
    out->tokens = tokens;
    if (!hir_unroll_evaluate(u, source, context, tokens, ids)) return false;
    finder f = {.x = out, .u = u};
    hir_unroll_row(u, out->sources.at[0], 0, &f.d);
    const size_t size = out->rows.n * out->sources.n, wide = out->rows.n * (size_t)f.d;
    out->at = hd_new_array(out->arena, double, (size_t)tokens *size);
    out->channels = f.d < MIXING_SAMPLE ? (int)f.d : MIXING_SAMPLE;
    out->channel_at =
        hd_new_array(out->arena, double, (size_t)(MIXING_TOKENS * out->channels) * size);
    f.signs = hd_new_array(out->arena, double, (size_t)f.d);
    f.sum = hd_new_array(out->arena, double, wide);
    f.numbers = hd_new_array(out->arena, double, wide);
    f.part = hd_new_array(out->arena, double, wide);
    hir_random random = hir_random_stream(1, "signs");
    for (int64_t i = 0; i < f.d; i++)
        f.signs[i] = hir_random_below(&random, 2) ? 1 : -1;
    for (int64_t t = 0; t < tokens; t++)
        if (!find_token(&f, t)) return false;
    take_mean(out);
    if (out->error <= MIXING_TOLERANCE) return true;
    hd_err(d, HD_E_UNSUPPORTED, HD_NOWHERE,
           "the inputs of the sublayers are not what their sources make of them: off by %.3g of "
           "their size",
           out->error)
        ->cause = hd_printf(d->arena, "at most %g is rounding", MIXING_TOLERANCE);
    return false;
}

bool mixing_collect(const inspect_subject *s, mixing *out) {
    hir_unroll *u = mixing_plan(s->arena, s->diags, s->graph, out);
    if (!u || !mixing_find(u, s->diags, s->weight_source, s->weights, s->ids, s->tokens, out))
        return false;
    mixing_find_rank(out);
    return true;
}

inspect_numbers mixing_numbers(const mixing *x) {
    return (inspect_numbers){x->at, 3, {x->tokens, (int64_t)x->rows.n, (int64_t)x->sources.n}};
}
