/* Finding the depth mixing matrix: rows and sources come from the data flow, entries from pushing
 * the outputs of sublayers through the linear paths of the graph.
 *
 * Each source is pushed twice. Pushing its own row v gives J v, the source's share of a sublayer's
 * input; the shares of all sources must add up to that input. Pushing a row w of +1 and -1 shows
 * what kind of map J is: a number M if J w = M w; a number for each channel if, with g = (J w) w,
 * both J w = g w and J v = g v; a general map otherwise. */
#include "inspect/mixing.h"

#include <math.h>
#include <string.h>

#include "inspect/format.h"
#include "inspect/svg.h"
#include "ir/eval/private.h"
#include "ir/eval/random.h"

/* ---- rows and sources ------------------------------------------------------------------------ */

static void list_sources(const hir_flow *f, mixing *x) {
    for (size_t k = 0; k < f->program.n; k++) {
        const hir_op *o = hir_op_at(f->m, f->program.at[k]);
        const hir_id v = o->n_results ? o->results[0] : HIR_NONE;
        if (v == HIR_NONE || f->kind[v] != HIR_FLOW_EMBEDDING || f->root[v] != v) continue;
        hd_push(x->arena, &x->sources, v);
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
 * itself (as in DeepNorm) belongs to the residual system and is kept. */
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

/* `u`: the paths to the inputs without any norm, or NULL. */
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
    hir_flow_homes(f, a, crosses);
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
    out->passes = hir_flow_passes(hir_flow_labels(&f, a), f.outputs.n, a);
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
    double *sum;     /* [rows, d]: sum of the sources' parts */
    double *numbers; /* [rows, d]: sum of M v over the sources */
    double *part;    /* [rows, d]: J v of the source that is being pushed */
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

/* Finds the kind of J for one pair of row and source. */
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

/* Records the numbers of a few channels, evenly spread. */
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

/* Computes the part of the inputs that is made of no source, and checks that all parts together
 * make up the inputs. */
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

/* ---- the rank -------------------------------------------------------------------------------- */

/* The semiseparable rank: for each cut l, the block of rows l and later against sources before l
 * has a rank; this is the largest of them. It says how many rows per token a recurrence over depth
 * must carry to give the same matrix: 1 for a plain sum, m for m streams, all of them for full
 * attention. */

static double norm(const double *m, size_t rows, size_t columns, size_t column) {
    double sum = 0;
    for (size_t i = 0; i < rows; i++)
        sum += m[i * columns + column] * m[i * columns + column];
    return sqrt(sum);
}

static size_t largest_column(const double *m, size_t rows, size_t columns, double *length) {
    size_t best = 0;
    *length = 0;
    for (size_t j = 0; j < columns; j++) {
        const double n = norm(m, rows, columns, j);
        if (n > *length) *length = n, best = j;
    }
    return best;
}

/* Removes the direction of column `pivot`, whose length is given, from all columns. */
static void project_out(double *m, size_t rows, size_t columns, size_t pivot, double length) {
    for (size_t j = 0; j < columns; j++) {
        if (j == pivot) continue;
        double dot = 0;
        for (size_t i = 0; i < rows; i++)
            dot += m[i * columns + pivot] / length * m[i * columns + j];
        for (size_t i = 0; i < rows; i++)
            m[i * columns + j] -= dot * (m[i * columns + pivot] / length);
    }
    for (size_t i = 0; i < rows; i++)
        m[i * columns + pivot] = 0;
}

uint32_t mixing_rank_of(double *m, size_t rows, size_t columns) {
    const size_t most = rows < columns ? rows : columns;
    double first = 0;
    for (uint32_t rank = 0; rank < most; rank++) {
        double length;
        const size_t pivot = largest_column(m, rows, columns, &length);
        if (rank == 0) first = length;
        if (length <= MIXING_TOLERANCE * first || length == 0) return rank;
        project_out(m, rows, columns, pivot, length);
    }
    return (uint32_t)most;
}

/* The rank of the block with the rows of sublayer `cut` and later and the columns of sources before
 * it. */
static uint32_t rank_at(const mixing *x, const double *m, uint32_t cut, double *scratch,
                        uint32_t *full) {
    const size_t columns = (size_t)x->starts + cut - 1;
    size_t rows = 0;
    for (size_t r = 0; r < x->rows.n; r++) {
        if (x->rows.at[r].sublayer < cut) continue;
        for (size_t c = 0; c < columns; c++)
            scratch[rows * columns + c] = m[r * x->sources.n + c];
        rows++;
    }
    const uint32_t most = (uint32_t)(rows < columns ? rows : columns);
    if (most > *full) *full = most;
    return mixing_rank_of(scratch, rows, columns);
}

static void take_rank(mixing *x, const double *m, double *scratch) {
    for (uint32_t cut = 1; cut <= x->sublayers + 1; cut++) {
        const uint32_t rank = rank_at(x, m, cut, scratch, &x->full_rank);
        if (rank > x->rank) x->rank = rank;
    }
}

void mixing_find_rank(mixing *x) {
    const size_t size = x->rows.n * x->sources.n;
    double *scratch = hd_new_array(x->arena, double, size);
    x->rank = x->full_rank = 0;
    x->rank_tokens = x->tokens < MIXING_TOKENS ? x->tokens : MIXING_TOKENS;
    for (int64_t t = 0; t < x->rank_tokens; t++) {
        if (x->kind != MIXING_CHANNELS) take_rank(x, x->at + (size_t)t * size, scratch);
        for (int c = 0; x->kind == MIXING_CHANNELS && c < x->channels; c++)
            take_rank(x, x->channel_at + (size_t)(t * x->channels + c) * size, scratch);
    }
}

/* ---- for people: what was found and checked, and the entries --------------------------------- */

enum { PRINTED = 20 }; /* columns of the printed matrix */

static void print_kind(const mixing *x, hd_text *out) {
    switch (x->kind) {
    case MIXING_NUMBER:
        hd_text_add(out, "  entries: numbers; every source arrives as a multiple of itself\n");
        break;
    case MIXING_CHANNELS:
        hd_text_f(out,
                  "  entries: <v, J v> / <v, v>, as every channel has a number of its own (J is "
                  "diagonal); these\n"
                  "    means alone would give the rows to %.2g\n",
                  x->numbers_error);
        break;
    case MIXING_MAP:
        hd_text_f(out,
                  "  entries: <v, J v> / <v, v>, the part of each source that arrives as itself (J "
                  "mixes channels);\n"
                  "    these alone would give the rows to %.2g\n",
                  x->numbers_error);
        break;
    }
}

static void print_facts(const mixing *x, hd_text *out) {
    hd_text_f(
        out,
        "mixing matrix of %s: h_l = sum_i M(l, i) v_i, %zu row%s, %zu source%s, %lld token%s\n"
        "  v is the embedding (e) or the output of sublayer i; h is what sublayer l reads, "
        "before its norm;\n"
        "  the last row is what the head reads\n",
        x->name, x->rows.n, hd_s(x->rows.n), x->sources.n, hd_s(x->sources.n), (long long)x->tokens,
        hd_s((uint64_t)x->tokens));
    if (x->passes) hd_text_f(out, "  layers that run several times, by sublayers: %s\n", x->passes);
    print_kind(x, out);
    if (x->norms)
        hd_text_f(out,
                  "  %u norm%s on the way: each is the multiplication with the inverse norm that "
                  "it had\n",
                  x->norms, x->norms == 1 ? "" : "s");
    if (x->constant > MIXING_TOLERANCE)
        hd_text_f(out, "  up to %.2g of a row is made of no source (biases)\n", x->constant);
    if (x->inside)
        hd_text_f(
            out,
            "  %u sublayer%s also read%s what earlier ones made inside, past the stream: that "
            "is not in M\n",
            x->inside, hd_s(x->inside), x->inside == 1 ? "s" : "");
    hd_text_f(out, "  check: the sources make up the rows to %.2g of their size (limit %g)\n",
              x->error, MIXING_TOLERANCE);
    hd_text_f(
        out,
        "  semiseparable rank: %u of at most %u (blocks of rows >= l, sources < l; %lld token%s",
        x->rank, x->full_rank, (long long)x->rank_tokens, x->rank_tokens == 1 ? "" : "s");
    if (x->kind == MIXING_CHANNELS) hd_text_f(out, ", %d channels", x->channels);
    hd_text_f(out, "; pivots above %g)\n", MIXING_TOLERANCE);
}

void mixing_text(const mixing *x, hd_text *out) {
    print_facts(x, out);
    if (x->sources.n > PRINTED) return;
    hd_text_f(out, "\nmean over tokens\n%8s", "");
    for (size_t i = 0; i < x->sources.n; i++)
        hd_text_f(out, " %7s", x->source_labels[i]);
    hd_text_add(out, "\n");
    for (size_t r = 0; r < x->rows.n; r++) {
        hd_text_f(out, "%8s", x->rows.at[r].label);
        for (size_t i = 0; i < x->sources.n && mixing_is_below(x, r, i); i++)
            hd_text_f(out, " %7.3f", x->mean[r * x->sources.n + i]);
        hd_text_add(out, "\n");
    }
}

/* ---- for programs: the mean over tokens ------------------------------------------------------ */

void mixing_json(const mixing *x, hd_text *out) {
    static const char *const kinds[] = {
        [MIXING_NUMBER] = "number", [MIXING_CHANNELS] = "channels", [MIXING_MAP] = "map"};
    const size_t n = x->sources.n;
    hd_text_add(out, "{\"name\": ");
    inspect_json_string(out, x->name);
    hd_text_f(out, ", \"tokens\": %lld, \"kind\": \"%s\", \"rank\": %u, \"full_rank\": %u",
              (long long)x->tokens, kinds[x->kind], x->rank, x->full_rank);
    hd_text_add(out, ",\n  \"rows\": [");
    for (size_t r = 0; r < x->rows.n; r++) {
        hd_text_add(out, r ? ", " : "");
        inspect_json_string(out, x->rows.at[r].label);
    }
    hd_text_add(out, "],\n  \"columns\": [");
    for (size_t i = 0; i < n; i++) {
        hd_text_add(out, i ? ", " : "");
        inspect_json_string(out, x->source_labels[i]);
    }
    hd_text_add(out, "],\n  \"mean\": [");
    for (size_t r = 0; r < x->rows.n; r++) {
        hd_text_add(out, r ? ",\n    [" : "\n    [");
        for (size_t i = 0; i < n; i++) {
            hd_text_add(out, i ? ", " : "");
            inspect_json_rounded(out, mixing_is_below(x, r, i), x->mean[r * n + i]);
        }
        hd_text_add(out, "]");
    }
    hd_text_add(out, "]}\n");
}

/* ---- as a picture: the mean over tokens ------------------------------------------------------ */

void mixing_svg(const mixing *x, hd_text *out) {
    const size_t n = x->sources.n;
    double *cells = hd_new_array(out->arena, double, x->rows.n *n);
    const char **rows = hd_new_array(out->arena, const char *, x->rows.n);
    for (size_t r = 0; r < x->rows.n; r++) {
        rows[r] = x->rows.at[r].label;
        for (size_t i = 0; i < n; i++)
            cells[r * n + i] = mixing_is_below(x, r, i) ? x->mean[r * n + i] : NAN;
    }
    static const char *const kinds[] = {
        [MIXING_NUMBER] = "exact numbers",
        [MIXING_CHANNELS] = "means over channels",
        [MIXING_MAP] = "the parts that arrive as themselves",
    };
    const char *notes[] = {
        hd_printf(out->arena, "how much of each output a sublayer reads, mean of %lld tokens; %s",
                  (long long)x->tokens, kinds[x->kind]),
        x->passes
            ? hd_printf(out->arena, "semiseparable rank %u; layers that run several times: %s",
                        x->rank, x->passes)
            : hd_printf(out->arena, "semiseparable rank %u", x->rank),
    };
    const svg_panel panel = {
        .rows = x->rows.n,
        .columns = n,
        .at = cells,
        .row_labels = rows,
        .column_labels = x->source_labels,
    };
    const svg_map map = {
        .title = hd_printf(out->arena, "Depth mixing matrix of %s", x->name),
        .notes = notes,
        .n_notes = 2,
        .x_name = "output of sublayer (e: embedding)",
        .y_name = "read by sublayer",
        .scale_name = "weight",
        .panels = &panel,
        .n_panels = 1,
    };
    svg_print(&map, out);
}
