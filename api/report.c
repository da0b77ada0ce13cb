/* Reports: what a session holds, through the views of inspect/ and the history of its passes. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "api/look.h"
#include "api/report_code.h"
#include "inspect/profile.h"
#include "ir/text.h"
#include "report/report.h"
#include "support/json.h"

#define API_FAILED NULL

enum { REPORT_LIMIT = 256 << 20 };

/* ---- dumps of passes --------------------------------------------------------------------------
 */

typedef struct dump_file {
    int index;
    const char *pass, *path;
} dump_file;
typedef HD_VEC(dump_file) dump_list;

/* "07-fuse.hir"; false: something else. */
static bool read_dump_name(const char *name, int *index, const char **pass) {
    char *end;
    const long n = strtol(name, &end, 10);
    if (end == name || end - name > 4 || *end != '-' || n < 0 || !api_has_suffix(name, ".hir"))
        return false;
    *index = (int)n;
    *pass = end + 1;
    return strlen(*pass) > strlen(".hir");
}

static int by_index(const void *x, const void *y) {
    const dump_file *a = x, *b = y;
    return a->index != b->index ? (a->index > b->index) - (a->index < b->index)
                                : strcmp(a->pass, b->pass);
}

int hadal_is_dumps(const char *path) {
    DIR *dir = opendir(path);
    bool any = false;
    int index;
    const char *pass;
    for (struct dirent *e; dir && !any && (e = readdir(dir));)
        any = read_dump_name(e->d_name, &index, &pass);
    if (dir) closedir(dir);
    return any;
}

static bool list_dumps(hadal_session *s, const char *folder, dump_list *out) {
    DIR *dir = opendir(folder);
    dump_file f;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (!read_dump_name(e->d_name, &f.index, &f.pass)) continue;
        f.path = hd_path_join(s->arena, folder, e->d_name);
        f.pass = hd_strndup(s->arena, f.pass, strlen(f.pass) - strlen(".hir"));
        hd_push(s->arena, out, f);
    }
    if (dir) closedir(dir);
    if (out->n) {
        qsort(out->at, out->n, sizeof *out->at, by_index);
        return true;
    }
    hd_err(&s->diags, HD_E_IO, HD_NOWHERE, "the folder '%s' holds no dumps", folder)->hint =
        "--dump-ir=DIR writes them: 00-input.hir, 01-lower-traces.hir, ..";
    return false;
}

/* "; fuse (unchanged)" stands for the dump before it. */
static bool is_unchanged(const char *text) {
    const char *end = strchr(text, '\n');
    return *text == ';' && end && !end[1] &&
           memmem(text, (size_t)(end - text), "(unchanged)", strlen("(unchanged)"));
}

static bool load_dump(hadal_session *s, const dump_file *f) {
    size_t n;
    const char *text = hd_read_text(s->arena, &s->diags, f->path, REPORT_LIMIT, &n);
    if (!text) return false;
    const bool unchanged = s->m && is_unchanged(text);
    if (!unchanged) {
        hd_diags_source(&s->diags, f->path, text);
        hir_module *m = hir_parse(s->arena, &s->diags, f->path, text);
        if (!m) return false;
        s->m = m;
        if (!s->graph) s->graph = m;
    }
    report_history_add(s->history, f->pass, f->index, s->m, !unchanged, -1);
    hd_push(s->arena, &s->history_remarks, 0);
    return true;
}

static bool load_dumps(hadal_session *s, const char *folder) {
    dump_list files = {0};
    s->spec = hd_strdup(s->arena, folder);
    s->graph = s->m = NULL;
    s->program = NULL;
    if (!list_dumps(s, folder, &files)) return false;
    s->history = report_history_new(s->arena);
    s->from_dumps = true;
    for (size_t i = 0; i < files.n; i++)
        if (!load_dump(s, &files.at[i])) return false;
    return true;
}

#undef API_FAILED
#define API_FAILED 1
int hadal_load_dumps(hadal_session *s, const char *folder) {
    API_ENTER(s);
    API_LEAVE(s, load_dumps(s, folder));
}
#undef API_FAILED
#define API_FAILED NULL

/* ---- a profile from a file --------------------------------------------------------------------
 */

static bool refuse_profile(hadal_session *s, const char *path, const char *why) {
    hd_diag *e =
        hd_err(&s->diags, HD_E_FORMAT, HD_NOWHERE, "'%s' is no profile of this model", path);
    e->cause = hd_strdup(s->arena, why);
    e->hint = "hadal run SPEC --profile=FILE.json writes one, with the same options";
    return false;
}

/* Is a kernel of that name in that line of the kernel IR? */
static bool is_kernel_at(const hir_module *m, const uint32_t *lines, json_int_t line,
                         const char *name) {
    HIR_EACH(m, op, m->first) {
        if ((json_int_t)lines[op] == line)
            return strcmp(hir_attr_string(hir_op_at(m, op), HIR_A_NAME, ""), name) == 0;
    }
    return false;
}

static bool check_profile_lines(hadal_session *s, const char *path, json_t *lines) {
    const uint32_t *at = hir_op_lines(s->m, s->arena);
    size_t i;
    json_t *row;
    json_array_foreach(lines, i, row) {
        const char *name = json_string_value(json_object_get(row, "kernel"));
        const json_int_t line = json_integer_value(json_object_get(row, "line"));
        if (!name || !json_is_number(json_object_get(row, "work_ns")) ||
            !json_is_number(json_object_get(row, "wait_ns")))
            return refuse_profile(s, path, "an entry lacks its kernel or its time");
        if (!is_kernel_at(s->m, at, line, name))
            return refuse_profile(s, path,
                                  hd_printf(s->arena, "line %lld of the kernel IR is no kernel %s",
                                            (long long)line, name));
    }
    return true;
}

static bool check_profile(hadal_session *s, const char *path, json_t *root) {
    const char *schema = json_string_value(json_object_get(root, "schema"));
    const char *model = json_string_value(json_object_get(root, "model"));
    json_t *phases = json_object_get(root, "phases"), *phase;
    size_t i;
    if (!schema || strcmp(schema, PROFILE_SCHEMA) != 0)
        return refuse_profile(s, path, "its schema is not " PROFILE_SCHEMA);
    if (!model || strcmp(model, s->m->name) != 0)
        return refuse_profile(s, path,
                              hd_printf(s->arena, "it is of %s, and this is %s",
                                        model ? model : "nothing", s->m->name));
    if (!json_is_array(phases)) return refuse_profile(s, path, "it has no phases");
    json_array_foreach(phases, i, phase) {
        json_t *lines = json_object_get(phase, "lines");
        if (!json_is_array(lines) || !json_is_array(json_object_get(phase, "kernels")) ||
            !json_is_string(json_object_get(phase, "phase")) ||
            !json_is_number(json_object_get(phase, "seconds")))
            return refuse_profile(s, path, "a phase lacks its tables");
        if (!check_profile_lines(s, path, lines)) return false;
    }
    return true;
}

static const char *read_profile(hadal_session *s, const char *path) {
    size_t n;
    const char *text = hd_read_text(s->arena, &s->diags, path, REPORT_LIMIT, &n);
    json_t *root = text ? hd_json_parse(&s->diags, "profile", path, text, n) : NULL;
    const bool ok = root && api_need_kernels(s) && check_profile(s, path, root);
    json_decref(root);
    return ok ? text : NULL;
}

/* ---- collecting -------------------------------------------------------------------------------
 */

/* A view that this model has not is no failure of its report: the reason stays as a note. */
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

/* Texts that locations of ops point into: the spec and the pages that it uses. */
static void add_files(hadal_session *s, report *r) {
    for (size_t i = 0; i < s->diags.sources.n; i++) {
        const report_file file = {s->diags.sources.at[i].file, s->diags.sources.at[i].text};
        if (hir_names_find(&s->history->strings.index, file.path))
            hd_push(s->arena, &r->files, file);
    }
}

static bool collect_views(hadal_session *s, const hadal_report_options *o, report *r) {
    r->facts = api_look(s, INSPECT_FACTS, INSPECT_JSON);
    r->ledger = r->facts ? look_if_there(s, INSPECT_LEDGER, NULL, 0) : NULL;
    r->depth = r->facts ? look_if_there(s, INSPECT_DEPTH_MAP, NULL, 0) : NULL;
    r->memory = r->facts ? api_look(s, INSPECT_MEMORY_PLAN, INSPECT_JSON) : NULL;
    if (!r->memory) return false;
    if (o->n_tokens > 0) {
        r->heatmap = look_if_there(s, INSPECT_HEATMAP, o->tokens, o->n_tokens);
        r->mixing = look_if_there(s, INSPECT_MIXING_MATRIX, o->tokens, o->n_tokens);
    }
    if (o->profile) return (r->profile = read_profile(s, o->profile)) != NULL;
    if (s->profile) r->profile = api_look(s, INSPECT_PROFILE, INSPECT_JSON);
    return true;
}

static bool collect(hadal_session *s, const hadal_report_options *o, report *r) {
    *r = (report){.source = s->from_dumps ? REPORT_OF_DUMPS : REPORT_OF_MODEL,
                  .path = o->path,
                  .name = s->graph ? s->graph->name : NULL,
                  .diags = &s->diags,
                  .machine = o->machine};
    if (hd_diags_failed(&s->diags)) return true; /* the report of what is wrong */
    if (!s->history) {
        hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "no passes have run for a report");
        return false;
    }
    r->history = s->history;
    add_remarks(s, r);
    add_files(s, r);
    if (!collect_views(s, o, r)) return false;
    if (o->target && s->m->stage == HIR_STAGE_KERNEL)
        return (r->code = api_report_code(s, o->target)) != NULL;
    return true;
}

const char *hadal_report(hadal_session *s, const hadal_report_options *o) {
    API_ENTER(s);
    (void)api_errors_;
    hadal_report_options all = {0}; /* what an older caller does not know is 0 */
    memcpy(&all, o, o->struct_size < sizeof all ? o->struct_size : sizeof all);
    report r;
    hd_text text;
    hd_text_init(&text, s->arena);
    const bool ok = collect(s, &all, &r);
    if (ok) report_json(&r, &text);
    hd_arena_guard(s->arena, api_outer_);
    return ok ? text.at : NULL;
}

/* ---- reports that were written before ---------------------------------------------------------
 */

static const char *read_report(hadal_session *s, const char *path) {
    size_t n;
    const char *text = hd_read_text(s->arena, &s->diags, path, REPORT_LIMIT, &n);
    json_t *root = text ? hd_json_parse(&s->diags, "report", path, text, n) : NULL;
    const char *schema = json_string_value(json_object_get(root, "schema"));
    const bool ok = schema && strcmp(schema, REPORT_SCHEMA) == 0;
    if (root && !ok) {
        hd_diag *e = hd_err(&s->diags, HD_E_FORMAT, HD_NOWHERE,
                            "'%s' is no report that this "
                            "version can show",
                            path);
        e->cause = schema ? hd_printf(s->arena, "its schema is %.40s, not " REPORT_SCHEMA, schema)
                          : "it has no schema";
        e->hint = "hadal report SPEC --json -o FILE.json writes one";
    }
    json_decref(root);
    return ok ? text : NULL;
}

const char *hadal_read_report(hadal_session *s, const char *path) {
    API_ENTER(s);
    (void)api_errors_;
    const char *text = read_report(s, path);
    hd_arena_guard(s->arena, api_outer_);
    return text;
}

const char *hadal_report_page(hadal_session *s, const char *report, const char *against) {
    API_ENTER(s);
    (void)api_errors_;
    hd_text text;
    hd_text_init(&text, s->arena);
    report_page(report, against, &text);
    hd_arena_guard(s->arena, api_outer_);
    return text.at;
}

const char *hadal_explain(hadal_session *s, const char *what) {
    API_ENTER(s);
    (void)api_errors_;
    report r;
    hd_text text;
    hd_text_init(&text, s->arena);
    const bool ok = collect(s, &(hadal_report_options){.path = s->spec}, &r) &&
                    !hd_diags_failed(&s->diags) && report_explain(&r, what, &s->diags, &text);
    hd_arena_guard(s->arena, api_outer_);
    return ok ? text.at : NULL;
}
