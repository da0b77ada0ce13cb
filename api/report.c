/* Reports: the contents of a session, through the views of inspect/ and the history of its
 * passes. */
#include <string.h>

#include "api/look.h"
#include "api/report.h"
#include "inspect/format.h"
#include "ir/text/text.h"
#include "report/report.h"

#define API_FAILED NULL

/* ---- collecting ------------------------------------------------------------------------------ */

/* Collects a view. That a model does not have it is no failure of the report: the reason becomes a
 * note. */
static const char *look_if_there(hadal_session *s, inspect_view view, const int32_t *tokens,
                                 int64_t n) {
    const size_t before = s->diags.list.n, errors = s->diags.errors;
    const char *text = api_look_at_work(s, view, INSPECT_JSON, tokens, n);
    for (size_t i = before; !text && i < s->diags.list.n; i++)
        s->diags.list.at[i].severity = HD_NOTE;
    s->diags.errors = errors;
    return text;
}

static void add_remarks(hadal_session *s, report *r) {
    uint32_t stage = 0;
    for (size_t i = 0; i < s->remarks.list.n; i++) {
        while (stage + 1 < s->history_remarks.n && s->history_remarks.at[stage] <= i)
            stage++;
        const report_remark remark = {stage, s->remarks.list.at[i]};
        hd_push(s->arena, &r->remarks, remark);
    }
}

/* Adds the texts that locations of ops point into: the spec and the library files that it uses. */
static void add_files(hadal_session *s, report *r) {
    for (size_t i = 0; i < s->diags.sources.n; i++) {
        const report_file file = {s->diags.sources.at[i].file, s->diags.sources.at[i].text};
        if (hir_names_find(&s->history->strings.index, file.path))
            hd_push(s->arena, &r->files, file);
    }
}

static bool collect_views(hadal_session *s, const hadal_report_options *o, report *r) {
    if (r->source == REPORT_OF_MODEL) {
        hd_text settings;
        hd_text_init(&settings, s->arena);
        hir_options_print_settings(&s->pass_options, &settings);
        r->settings = settings.at;
    }
    r->facts = api_look(s, INSPECT_FACTS, INSPECT_JSON);
    r->ledger = r->facts ? look_if_there(s, INSPECT_LEDGER, NULL, 0) : NULL;
    r->depth = r->facts ? look_if_there(s, INSPECT_DEPTH_MAP, NULL, 0) : NULL;
    r->memory = r->facts ? api_look(s, INSPECT_MEMORY_PLAN, INSPECT_JSON) : NULL;
    if (!r->memory) return false;
    if (o->n_tokens > 0 && s->library_info && !s->weights_path) {
        hd_note(&s->diags, HD_NOWHERE,
                "weights of mixes, the mixing matrix and magnitudes by depth are made of the "
                "checkpoint: --weights");
    } else if (o->n_tokens > 0) {
        r->heatmap = look_if_there(s, INSPECT_HEATMAP, o->tokens, o->n_tokens);
        r->mixing = look_if_there(s, INSPECT_MIXING_MATRIX, o->tokens, o->n_tokens);
        r->by_depth = look_if_there(s, INSPECT_BY_DEPTH, o->tokens, o->n_tokens);
    }
    if (o->profile) return (r->profile = api_read_profile(s, o->profile)) != NULL;
    if (s->profile) r->profile = api_look(s, INSPECT_PROFILE, INSPECT_JSON);
    return true;
}

static bool collect(hadal_session *s, const hadal_report_options *o, report *r) {
    *r = (report){.source = s->library_info ? REPORT_OF_LIBRARY
                            : s->from_dumps ? REPORT_OF_DUMPS
                                            : REPORT_OF_MODEL,
                  .path = o->path,
                  .name = s->graph ? s->graph->name : NULL,
                  .diags = &s->diags,
                  .machine = o->machine,
                  .library = s->library_info};
    if (hd_diags_failed(&s->diags)) return true; /* the report then describes what is wrong */
    if (!s->history) {
        hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "no passes have run for a report");
        return false;
    }
    r->history = s->history;
    add_remarks(s, r);
    add_files(s, r);
    if (!collect_views(s, o, r)) return false;
    if (o->target && s->m->stage == HIR_STAGE_KERNEL)
        return (r->code = api_report_code(s, o->target, true)) != NULL;
    return true;
}

const char *hadal_report(hadal_session *s, const hadal_report_options *o) {
    API_ENTER(s);
    API_TAKE(hadal_report_options, all, o);
    report r;
    hd_text text;
    hd_text_init(&text, s->arena);
    const bool ok = collect(s, &all, &r);
    if (ok) report_json(&r, &text);
    API_RETURN(s, ok ? text.at : NULL);
}

/* ---- two models ------------------------------------------------------------------------------ */

enum { MOST_LINES = 4000 };

/* Adds the beginning of a text, and says how many more lines there are. */
static void add_lines(hd_text *out, const char *text) {
    const char *end = text;
    size_t n = 0, more = 0;
    for (; *end && n < MOST_LINES; n++)
        end += strcspn(end, "\n") + 1;
    for (const char *c = end; *c; c++)
        more += *c == '\n';
    hd_text_add(out, "\"text\": ");
    inspect_json_string(out, hd_strndup(out->arena, text, (size_t)(end - text)));
    hd_text_f(out, ", \"more\": %zu", more);
}

static void add_difference(hd_text *out, const char *key, const hir_module *a,
                           const hir_module *b) {
    hd_text text;
    hd_text_init(&text, out->arena);
    hd_text_add(&text, "");
    const hir_diff_counts c = hir_diff(a, b, &text);
    hd_text_f(out,
              "\"%s\": {\"counts\": {\"same\": %zu, \"changed\": %zu, \"moved\": %zu, "
              "\"added\": %zu, \"removed\": %zu}, ",
              key, c.same, c.changed, c.moved, c.added, c.removed);
    add_lines(out, text.at);
    hd_text_add(out, "}");
}

/* How the two models differ, as `hadal diff` prints it: the graphs as loaded, and the modules that
 * were made of them. */
static const char *difference(hadal_session *s, const hadal_session *other) {
    hd_text out;
    hd_text_init(&out, s->arena);
    if (!s->m || !other->m) return NULL;
    hd_text_add(&out, "{");
    add_difference(&out, "written", s->graph, other->graph);
    hd_text_add(&out, ",\n");
    add_difference(&out, "compiled", s->m, other->m);
    hd_text_add(&out, "}");
    return out.at;
}

const char *hadal_report_page(hadal_session *s, const char *report, hadal_session *other,
                              const char *against) {
    API_ENTER(s);
    hd_text text;
    hd_text_init(&text, s->arena);
    report_page(report, against, other ? difference(s, other) : NULL, &text);
    API_RETURN(s, text.at);
}

const char *hadal_explain(hadal_session *s, const char *what, const hadal_target *target) {
    API_ENTER(s);
    const hadal_report_options o = {.path = s->spec};
    report r;
    hd_text text;
    hd_text_init(&text, s->arena);
    bool ok = collect(s, &o, &r) && !hd_diags_failed(&s->diags);
    if (ok && target && s->m->stage == HIR_STAGE_KERNEL)
        ok = (r.code = api_report_code(s, target, false)) != NULL;
    ok = ok && report_explain(&r, what, &s->diags, &text);
    API_RETURN(s, ok ? text.at : NULL);
}
