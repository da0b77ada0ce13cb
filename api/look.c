/* Looking at a model: prepares what a view of inspect/ needs, collects its data, and writes them in
 * the requested form. */
#include "api/look.h"

#include <string.h>

#include "api/bench.h"
#include "inspect/profile.h"
#include "ir/text/text.h"
#include "passes/util.h"

/* ---- what views need ------------------------------------------------------------------------- */

/* Prepares a graph that no pass has lowered, with weights that fit it. */
static bool need_graph(hadal_session *s) {
    if (!api_need_module(s)) return false;
    if (s->graph->stage != HIR_STAGE_GRAPH) {
        hd_err(&s->diags, HD_E_UNSUPPORTED, HD_NOWHERE, "%s is %s IR", s->graph->name,
               hir_stage_name(s->graph->stage))
            ->hint = "take the spec, or IR that no pass has lowered";
        return false;
    }
    if (!hir_is_model(s->graph)) {
        hd_err(&s->diags, HD_E_UNSUPPORTED, HD_NOWHERE,
               "%s is a plain function: models have one input, i32[T] tokens", s->graph->name);
        return false;
    }
    const bool fit = api_need_weights(s) && hcg_check_weights(s->graph, &s->diags, &s->weights);
    if (fit) hcg_warn_of_absent(s->graph, &s->diags, &s->weights);
    return fit;
}

static bool need(hadal_session *s, inspect_view view) {
    switch (inspect_needs(view)) {
    case INSPECT_NEEDS_MODULE: return api_need_module(s);
    case INSPECT_NEEDS_TOKENS: return need_graph(s);
    case INSPECT_NEEDS_PROFILE: return s->profile != NULL;
    case INSPECT_NEEDS_BENCH: return s->bench != NULL;
    }
    return false;
}

static const double *as_doubles(hadal_session *s, const int32_t *tokens, int64_t n) {
    double *ids = hd_new_array(s->arena, double, (size_t)n);
    for (int64_t i = 0; i < n; i++)
        ids[i] = tokens[i];
    return ids;
}

static const void *collect(hadal_session *s, inspect_view view, const int32_t *tokens, int64_t n) {
    if (!need(s, view)) return NULL;
    const inspect_subject subject = {
        .arena = s->arena,
        .diags = &s->diags,
        .graph = s->graph,
        .now = s->m ? s->m : s->graph,
        .pass_options = &s->pass_options,
        .weight_source = hcg_weight_source,
        .weights = &s->weights,
        .ids = as_doubles(s, tokens, n),
        .tokens = n,
        .profile = s->profile,
        .bench = s->bench ? &s->bench->results : NULL,
    };
    return inspect_collect(view, &subject);
}

static const char *written(hadal_session *s, inspect_view view, inspect_form form,
                           const void *data) {
    hd_text text;
    hd_text_init(&text, s->arena);
    hd_text_add(&text, "");
    return data && inspect_write(view, form, data, &text) ? text.at : NULL;
}

const char *api_look(hadal_session *s, inspect_view view, inspect_form form) {
    return api_look_at_work(s, view, form, NULL, 0);
}

const char *api_look_at_work(hadal_session *s, inspect_view view, inspect_form form,
                             const int32_t *tokens, int64_t n) {
    return written(s, view, form, collect(s, view, tokens, n));
}

/* ---- views of a module ----------------------------------------------------------------------- */

#define API_FAILED NULL

static const char *look(hadal_session *s, inspect_view view, int json) {
    API_ENTER(s);
    const char *text = api_look(s, view, json ? INSPECT_JSON : INSPECT_TEXT);
    API_RETURN(s, text);
}

const char *hadal_stage(const hadal_session *s) {
    const hir_module *m = s->m ? s->m : s->graph;
    return m ? hir_stage_name(m->stage) : NULL;
}

const char *hadal_inspect(hadal_session *s, int json) {
    return s->graph ? look(s, INSPECT_FACTS, json) : "";
}

const char *hadal_plan_text(hadal_session *s) {
    return s->m ? look(s, INSPECT_MEMORY_PLAN, 0) : "";
}

const char *hadal_ledger_text(hadal_session *s, int json) {
    return look(s, INSPECT_LEDGER, json);
}

const char *hadal_depth_map_text(hadal_session *s) {
    return look(s, INSPECT_DEPTH_MAP, 0);
}

/* ---- views that evaluate the model ----------------------------------------------------------- */

static bool is_picture(hadal_session *s, const char *path, bool *svg) {
    *svg = hd_ends_with(path, ".svg");
    if (*svg || hd_ends_with(path, ".npy")) return true;
    hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "%s is neither .svg nor .npy", path)->hint =
        "OUT.svg is a picture, OUT.npy the numbers";
    return false;
}

static bool write_numbers(hadal_session *s, inspect_view view, const void *data, const char *path) {
    inspect_numbers x;
    if (!inspect_numbers_of(view, data, &x)) return false;
    hd_tensor t = {.name = "", .dtype = HD_T_F64, .rank = x.rank, .data = (const uint8_t *)x.at};
    memcpy(t.shape, x.shape, x.rank * sizeof *x.shape);
    return hd_tensor_measure(&t) && hd_npy_write(s->arena, &s->diags, path, &t);
}

static bool write_picture(hadal_session *s, inspect_view view, const void *data, const char *path) {
    const char *svg = written(s, view, INSPECT_SVG, data);
    return svg && hd_write_file(s->arena, &s->diags, path, svg, strlen(svg));
}

/* Writes a picture or numbers to the file, and returns the findings as text. */
static const char *look_at_work(hadal_session *s, inspect_view view, const int32_t *tokens,
                                int64_t n, const char *path) {
    bool svg;
    if (!is_picture(s, path, &svg)) return NULL;
    const void *data = collect(s, view, tokens, n);
    if (!data) return NULL;
    const bool ok = svg ? write_picture(s, view, data, path) : write_numbers(s, view, data, path);
    return ok ? written(s, view, INSPECT_TEXT, data) : NULL;
}

static const char *take_look(hadal_session *s, inspect_view view, const int32_t *tokens, int64_t n,
                             const char *path) {
    API_ENTER(s);
    const char *text = look_at_work(s, view, tokens, n, path);
    hd_arena_guard(s->arena, api_outer_);
    if (!text && s->diags.errors == api_errors_)
        hd_err(&s->diags, HD_E_INTERNAL, HD_NOWHERE, "a step failed without saying why");
    return text;
}

const char *hadal_mixing_matrix(hadal_session *s, const int32_t *tokens, int64_t n,
                                const char *path) {
    return take_look(s, INSPECT_MIXING_MATRIX, tokens, n, path);
}

const char *hadal_heatmap(hadal_session *s, const int32_t *tokens, int64_t n, const char *path) {
    return take_look(s, INSPECT_HEATMAP, tokens, n, path);
}
