#include "inspect/by_depth.h"

#include <math.h>
#include <string.h>

#include "inspect/curves.h"
#include "inspect/format.h"

/* ---- numbers --------------------------------------------------------------------------------- */

void by_depth_start(const taps *x, hd_arena *a, by_depth *out) {
    *out = (by_depth){.taps = x, .squares = hd_new_array(a, double, x->list.n + 1)};
}

#define ADD(name, type)                                                                            \
    void name(by_depth *x, uint32_t shown, const type *at, int64_t row, int64_t rows) {            \
        for (size_t i = 0; i < x->taps->list.n; i++) {                                             \
            const tap *t = &x->taps->list.at[i];                                                   \
            if (!t->measured || t->shown != shown) continue;                                       \
            for (int64_t r = 0; r < rows; r++) {                                                   \
                double sum = 0;                                                                    \
                for (int64_t k = 0; k < t->n; k++) {                                               \
                    const double v = (double)at[r * row + t->first + k * t->stride];               \
                    sum += v * v;                                                                  \
                }                                                                                  \
                x->squares[i] += sum;                                                              \
            }                                                                                      \
        }                                                                                          \
    }
ADD(by_depth_add, float)
ADD(by_depth_add_exact, double)

double by_depth_rms(const by_depth *x, size_t tap) {
    const double elements = (double)x->taps->list.at[tap].n * (double)x->tokens;
    return elements > 0 ? sqrt(x->squares[tap] / elements) : 0;
}

static bool evaluate(const inspect_subject *s, const hir_module *m, by_depth *out) {
    hir_eval *eval = hir_eval_new(s->arena, m, s->weight_source, s->weights);
    hir_results results;
    if (!hir_eval_call(eval, s->arena, s->diags, s->tokens, (const double *const[]){s->ids},
                       &results, NULL, NULL))
        return false;
    uint32_t shown = 0;
    for (size_t i = 0; i < results.outputs.n; i++) {
        const hir_array *a = &results.outputs.at[i];
        if (!taps_is_output(a->name)) continue;
        by_depth_add_exact(out, shown++, a->at, a->n / s->tokens, s->tokens);
    }
    out->tokens = s->tokens;
    return true;
}

bool by_depth_collect(const inspect_subject *s, by_depth *out) {
    taps *x = hd_new(s->arena, taps);
    if (!taps_find(s->graph, s->arena, s->diags, x)) return false;
    taps_measure(x);
    taps_keep(x, s->arena);
    by_depth_start(x, s->arena, out);
    hir_module *m = hir_module_clone(s->graph, s->arena);
    return taps_add_outputs(x, m, s->diags) && evaluate(s, m, out);
}

/* ---- by sublayer ----------------------------------------------------------------------------- */

/* The next tap of this kind at this depth from index *i on, which is set behind it. */
static bool next(const by_depth *x, tap_kind kind, uint32_t at, size_t *i, double *rms) {
    for (; *i < x->taps->list.n; (*i)++) {
        const tap *t = &x->taps->list.at[*i];
        if (!t->measured || t->kind != kind || t->at != at) continue;
        *rms = by_depth_rms(x, (*i)++);
        return true;
    }
    return false;
}

/* ---- for people ------------------------------------------------------------------------------ */

enum { COLUMN = 11 };

static const char *list_of(const by_depth *x, tap_kind kind, uint32_t at, hd_arena *a) {
    hd_text out;
    double rms;
    hd_text_init(&out, a);
    hd_text_add(&out, "");
    for (size_t i = 0; next(x, kind, at, &i, &rms);)
        hd_text_f(&out, "%s%.4g", out.n ? "  " : "", rms);
    return out.at;
}

static size_t widest(const by_depth *x, tap_kind kind, hd_arena *a) {
    size_t most = COLUMN;
    for (uint32_t k = 1; k <= x->taps->sublayers + 1; k++) {
        const size_t n = strlen(list_of(x, kind, k, a));
        if (n > most) most = n;
    }
    return most;
}

void by_depth_text(const by_depth *x, hd_text *out) {
    const taps *t = x->taps;
    size_t name = strlen("sublayer");
    for (uint32_t k = 0; k <= t->sublayers; k++)
        if (strlen(t->names[k]) > name) name = strlen(t->names[k]);
    const int inputs = (int)widest(x, TAP_INPUT, out->arena);
    hd_text_f(out,
              "RMS by depth of %s: root mean square over %lld token%s and all channels\n"
              "%6s  %-*s  %-*s  %-*s  %s\n",
              t->model, (long long)x->tokens, x->tokens == 1 ? "" : "s", "", (int)name, "sublayer",
              inputs, "input", COLUMN, "output", "stream before it");
    for (uint32_t k = 1; k <= t->sublayers + 1; k++) {
        const bool head = k > t->sublayers;
        const char *stream = list_of(x, TAP_STREAM, k, out->arena);
        hd_text_f(out, "%6s  %-*s  %-*s  ", head ? "" : hd_printf(out->arena, "%u", k), (int)name,
                  t->names[k - 1], inputs, list_of(x, TAP_INPUT, k, out->arena));
        const char *output = list_of(x, TAP_OUTPUT, k, out->arena);
        hd_text_f(out, "%-*s%s%s\n", *stream ? COLUMN : 0, output, *stream ? "  " : "", stream);
    }
}

/* ---- for programs ---------------------------------------------------------------------------- */

static void print_number(hd_text *out, double x) {
    if (isfinite(x))
        hd_text_f(out, "%.9g", x);
    else
        hd_text_add(out, "null");
}

static void print_list(const by_depth *x, const char *key, tap_kind kind, uint32_t at,
                       hd_text *out) {
    double rms;
    bool any = false;
    hd_text_f(out, ", \"%s\": [", key);
    for (size_t i = 0; next(x, kind, at, &i, &rms); any = true) {
        hd_text_add(out, any ? ", " : "");
        print_number(out, rms);
    }
    hd_text_add(out, "]");
}

void by_depth_json(const by_depth *x, hd_text *out) {
    const taps *t = x->taps;
    hd_text_add(out, "{\"name\": ");
    inspect_json_string(out, t->model);
    hd_text_f(out, ", \"tokens\": %lld, \"sublayers\": %u,\n  \"rows\": [", (long long)x->tokens,
              t->sublayers);
    for (uint32_t k = 1; k <= t->sublayers + 1; k++) {
        const bool head = k > t->sublayers;
        double rms;
        size_t i = 0;
        hd_text_f(out, "%s{\"sublayer\": %u, \"name\": ", k > 1 ? ",\n    " : "\n    ",
                  head ? 0 : k);
        inspect_json_string(out, t->names[k - 1]);
        print_list(x, "input", TAP_INPUT, k, out);
        hd_text_add(out, ", \"output\": ");
        print_number(out, next(x, TAP_OUTPUT, k, &i, &rms) ? rms : NAN);
        print_list(x, "stream", TAP_STREAM, k, out);
        hd_text_add(out, "}");
    }
    hd_text_add(out, "]}\n");
}

/* ---- as a picture ---------------------------------------------------------------------------- */

/* By depth, the root mean square over all taps of this kind: of inputs and streams that are
 * several, that of all their elements. */
static double *points_of(const by_depth *x, tap_kind kind, hd_arena *a) {
    double *points = hd_new_array(a, double, x->taps->sublayers + 1);
    for (uint32_t k = 1; k <= x->taps->sublayers + 1; k++) {
        double rms, sum = 0;
        int n = 0;
        for (size_t i = 0; next(x, kind, k, &i, &rms); n++)
            sum += rms * rms;
        points[k - 1] = n ? sqrt(sum / n) : NAN;
    }
    return points;
}

void by_depth_svg(const by_depth *x, hd_text *out) {
    hd_arena *a = out->arena;
    const size_t n = (size_t)x->taps->sublayers + 1;
    const char **labels = hd_new_array(a, const char *, n);
    for (size_t i = 0; i < n; i++)
        labels[i] = i + 1 < n ? hd_printf(a, "%zu", i + 1) : "head";
    const curve curves[] = {
        {"output", points_of(x, TAP_OUTPUT, a)},
        {"input, before the norm", points_of(x, TAP_INPUT, a)},
        {"stream", points_of(x, TAP_STREAM, a)},
    };
    const char *notes[] = {
        hd_printf(a, "root mean square over %lld token%s and all channels", (long long)x->tokens,
                  x->tokens == 1 ? "" : "s"),
    };
    const curves_chart chart = {
        .title = hd_printf(a, "Magnitudes by depth of %s", x->taps->model),
        .notes = notes,
        .n_notes = 1,
        .x_name = "sublayer",
        .y_name = "RMS",
        .labels = labels,
        .n = n,
        .curves = curves,
        .n_curves = sizeof curves / sizeof *curves,
    };
    curves_svg(&chart, out);
}
