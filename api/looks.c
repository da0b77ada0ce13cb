/* hadal_mixing_matrix and hadal_heatmap: what a model does over depth on given tokens. */
#include <string.h>

#include "api/heatmap.h"
#include "api/mixing.h"
#include "api/session.h"
#include "codegen/codegen.h"
#include "ir/text.h"
#include "passes/util.h"

/* ---- what both need -------------------------------------------------------------------------- */

static bool is_picture(hadal_session *s, const char *path, bool *svg) {
    *svg = api_has_suffix(path, ".svg");
    if (*svg || api_has_suffix(path, ".npy")) return true;
    hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "%s is neither .svg nor .npy", path)->hint =
        "OUT.svg is a picture, OUT.npy the numbers";
    return false;
}

/* The graph as loaded, with weights that fit it. */
static const hir_module *need_graph(hadal_session *s) {
    if (!api_need_module(s)) return NULL;
    if (s->graph->stage != HIR_STAGE_GRAPH) {
        hd_err(&s->diags, HD_E_UNSUPPORTED, HD_NOWHERE, "%s is %s IR", s->graph->name,
               hir_stage_name(s->graph->stage))
            ->hint = "take the spec, or IR that no pass has lowered";
        return NULL;
    }
    if (!pass_is_model(s->graph)) {
        hd_err(&s->diags, HD_E_UNSUPPORTED, HD_NOWHERE,
               "%s is a plain function: models have one input, i32[T] tokens", s->graph->name);
        return NULL;
    }
    const bool fit = api_need_weights(s) && hcg_check_weights(s->graph, &s->diags, &s->weights);
    if (fit) hcg_warn_of_absent(s->graph, &s->diags, &s->weights);
    return fit ? s->graph : NULL;
}

static const double *as_doubles(hadal_session *s, const int32_t *tokens, int64_t n) {
    double *ids = hd_new_array(s->arena, double, (size_t)n);
    for (int64_t i = 0; i < n; i++)
        ids[i] = tokens[i];
    return ids;
}

static bool write_numbers(hadal_session *s, const char *path, const double *at,
                          const int64_t *shape, uint32_t rank) {
    hd_tensor t = {.name = "", .dtype = HD_T_F64, .rank = rank, .data = (const uint8_t *)at};
    memcpy(t.shape, shape, rank * sizeof *shape);
    return hd_tensor_measure(&t) && hd_npy_write(s->arena, &s->diags, path, &t);
}

static bool write_picture(hadal_session *s, const char *path, const hd_text *svg) {
    return hd_write_file(s->arena, &s->diags, path, svg->at, svg->n);
}

/* ---- the mixing matrix ----------------------------------------------------------------------- */

static bool mixing_matrix(hadal_session *s, const int32_t *tokens, int64_t n, const char *path,
                          hd_text *report) {
    bool svg;
    if (!is_picture(s, path, &svg)) return false;
    const hir_module *graph = need_graph(s);
    mixing x;
    hir_unroll *u = graph ? mixing_plan(s->arena, &s->diags, graph, &x) : NULL;
    if (!u ||
        !mixing_find(u, &s->diags, hcg_weight_source, &s->weights, as_doubles(s, tokens, n), n, &x))
        return false;
    mixing_find_rank(&x);
    mixing_print(&x, report);
    if (!svg)
        return write_numbers(s, path, x.at, (int64_t[]){n, (int64_t)x.rows.n, (int64_t)x.sources.n},
                             3);
    hd_text picture;
    hd_text_init(&picture, s->arena);
    mixing_draw(&x, &picture);
    return write_picture(s, path, &picture);
}

/* ---- the heat map ---------------------------------------------------------------------------- */

static bool heatmap(hadal_session *s, const int32_t *tokens, int64_t n, const char *path,
                    hd_text *report) {
    bool svg;
    if (!is_picture(s, path, &svg)) return false;
    const hir_module *graph = need_graph(s);
    depth_weights x;
    if (!graph || !heatmap_find(graph, s->arena, &s->diags, hcg_weight_source, &s->weights,
                                as_doubles(s, tokens, n), n, &x))
        return false;
    heatmap_print(&x, report);
    if (!svg)
        return write_numbers(s, path, x.at, (int64_t[]){(int64_t)x.rows.n, (int64_t)x.columns.n},
                             2);
    hd_text picture;
    hd_text_init(&picture, s->arena);
    heatmap_draw(&x, &picture);
    return write_picture(s, path, &picture);
}

/* ---- the functions --------------------------------------------------------------------------- */

#define API_FAILED NULL

typedef bool look(hadal_session *s, const int32_t *tokens, int64_t n, const char *path,
                  hd_text *report);

static const char *take_look(hadal_session *s, look *what, const int32_t *tokens, int64_t n,
                             const char *path) {
    API_ENTER(s);
    hd_text report;
    hd_text_init(&report, s->arena);
    const bool ok = what(s, tokens, n, path, &report);
    hd_arena_guard(s->arena, api_outer_);
    if (!ok && s->diags.errors == api_errors_)
        hd_err(&s->diags, HD_E_INTERNAL, HD_NOWHERE, "a step failed without saying why");
    return ok ? report.at : NULL;
}

const char *hadal_mixing_matrix(hadal_session *s, const int32_t *tokens, int64_t n,
                                const char *path) {
    return take_look(s, mixing_matrix, tokens, n, path);
}

const char *hadal_heatmap(hadal_session *s, const int32_t *tokens, int64_t n, const char *path) {
    return take_look(s, heatmap, tokens, n, path);
}
