/* What runs have recorded and logged, as JSON: hadal_run_report. Each line of a log is checked, since
 * people cut and join logs; what stands behind the last end of a line is a line that is being
 * written. */
#include <jansson.h>
#include <math.h>

#include "api/train/folder.h"
#include "api/train/record.h"
#include "report/report.h"
#include "support/json.h"

#define API_FAILED NULL

#define SCHEMA "hadal-runs-1"
enum { FILE_LIMIT = 64 << 20 };

typedef struct log_texts { /* elements of lists of JSON, each after a comma */
    hd_text steps, evals, depths;
} log_texts;

typedef struct reader {
    hadal_session *s;
    const char *run, *log; /* RUN, RUN/log.jsonl */
    int64_t line, step;    /* of the log; the last step */
    const char *record;    /* run.json */
    const char *described; /* depth.json; NULL: there is none */
    json_t *depth;         /* the same */
    log_texts texts;
} reader;

/* ---- depth.json ------------------------------------------------------------------------------ */

static bool bad_depth(reader *r, const char *path, const char *why) {
    hd_err(&r->s->diags, HD_E_FORMAT, HD_NOWHERE, "'%s' does not describe magnitudes by depth",
           path)
        ->cause = why;
    return false;
}

static bool are_texts(const json_t *list) {
    bool ok = json_is_array(list) && json_array_size(list) > 0;
    for (size_t i = 0; ok && i < json_array_size(list); i++)
        ok = json_is_string(json_array_get(list, i));
    return ok;
}

static bool is_mix(const json_t *row, size_t columns) {
    const json_t *list = json_object_get(row, "columns");
    bool ok = json_is_string(json_object_get(row, "label")) && json_is_array(list);
    for (size_t i = 0; ok && i < json_array_size(list); i++) {
        const json_t *c = json_array_get(list, i);
        ok = json_is_integer(c) && json_integer_value(c) >= 0 &&
             (size_t)json_integer_value(c) < columns;
    }
    return ok;
}

static bool are_mixes(const json_t *mixes) {
    const json_t *columns = json_object_get(mixes, "columns"),
                 *rows = json_object_get(mixes, "rows");
    bool ok = are_texts(columns) && json_is_array(rows);
    for (size_t i = 0; ok && i < json_array_size(rows); i++)
        ok = is_mix(json_array_get(rows, i), json_array_size(columns));
    return ok;
}

static bool read_depth(reader *r) {
    hadal_session *s = r->s;
    size_t n;
    const char *path = hd_path_join(s->arena, r->run, "depth.json");
    if (!hd_exists(path)) return true;
    r->described = hd_read_text(s->arena, &s->diags, path, FILE_LIMIT, &n);
    if (!r->described) return false;
    r->depth = hd_json_parse(&s->diags, "description by depth", path, r->described, n);
    if (!r->depth) return false;
    const json_t *mixes = json_object_get(r->depth, "mixes");
    if (!are_texts(json_object_get(r->depth, "sublayers")))
        return bad_depth(r, path, "it has no \"sublayers\" that are names");
    if (json_is_null(mixes) || are_mixes(mixes)) return true;
    return bad_depth(r, path, "its \"mixes\" have no columns, or rows of other columns");
}

/* ---- lines of the log ------------------------------------------------------------------------ */

static bool bad_line(const reader *r, unsigned column, const char *why) {
    const hd_loc place = {.file = r->log, .line = (uint32_t)r->line, .column = column};
    hd_err(&r->s->diags, HD_E_FORMAT, place, "this line is none of a log")->cause = why;
    return false;
}

static double number_of(const json_t *line, const char *key) {
    const json_t *x = json_object_get(line, key);
    return json_is_number(x) ? json_number_value(x) : NAN;
}

/* Numbers, and null for what is not finite. */
static bool are_numbers(const json_t *list, size_t n) {
    bool ok = json_is_array(list) && json_array_size(list) == n;
    for (size_t i = 0; ok && i < n; i++)
        ok = json_is_number(json_array_get(list, i)) || json_is_null(json_array_get(list, i));
    return ok;
}

static bool are_weights(const reader *r, const json_t *list) {
    const json_t *mixes = json_object_get(r->depth, "mixes");
    const json_t *rows = json_object_get(mixes, "rows");
    if (json_is_null(mixes)) return !list;
    bool ok = json_is_array(list) && json_array_size(list) == json_array_size(rows);
    for (size_t i = 0; ok && i < json_array_size(rows); i++)
        ok = are_numbers(json_array_get(list, i),
                         json_array_size(json_object_get(json_array_get(rows, i), "columns")));
    return ok;
}

static const char *comma(const hd_text *list) {
    return list->n ? ",\n" : "";
}

static bool add_depth(reader *r, const json_t *line, const char *text, size_t n) {
    const size_t sublayers = json_array_size(json_object_get(r->depth, "sublayers"));
    if (!r->depth) return bad_line(r, 1, "the run has no depth.json to say what it is of");
    if (!are_numbers(json_object_get(line, "out_rms"), sublayers) ||
        !are_numbers(json_object_get(line, "out_grad_rms"), sublayers))
        return bad_line(r, 1, "depth.json has another number of sublayers");
    if (!are_weights(r, json_object_get(line, "mixes")))
        return bad_line(r, 1, "depth.json has other mixes");
    hd_text_add(&r->texts.depths, comma(&r->texts.depths));
    hd_text_add_n(&r->texts.depths, text, n);
    return true;
}

static bool add_object(reader *r, const json_t *line, const char *text, size_t n) {
    const json_t *step = json_object_get(line, "step");
    const double loss = number_of(line, "loss"), eval = number_of(line, "eval_loss");
    const double lr = number_of(line, "lr"), norm = number_of(line, "norm");
    const bool taken = json_object_get(line, "loss") != NULL;
    if (!json_is_integer(step) || json_integer_value(step) < 1)
        return bad_line(r, 1, "it has no \"step\" from 1 on");
    const int64_t at = json_integer_value(step);
    if (taken ? at <= r->step : at != r->step)
        return bad_line(r, 1,
                        taken ? "its step is not after that of the line before"
                              : "its step has no line of its own before it");
    r->step = at;
    if (json_object_get(line, "out_rms")) return add_depth(r, line, text, n);
    if (isfinite(eval)) {
        hd_text_f(&r->texts.evals, "%s[%lld, %.9g]", comma(&r->texts.evals), (long long)at, eval);
        return true;
    }
    if (!isfinite(loss) || !isfinite(lr) || !isfinite(norm))
        return bad_line(r, 1,
                        "it has neither \"loss\", \"lr\" and \"norm\", nor \"eval_loss\", nor "
                        "\"out_rms\"");
    hd_text_f(&r->texts.steps, "%s[%lld, %.9g, %.7g, %.9g]", comma(&r->texts.steps), (long long)at,
              loss, lr, norm);
    return true;
}

static bool add_line(reader *r, const char *text, size_t n) {
    json_error_t e;
    json_t *line = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    if (!line)
        return bad_line(r, e.column > 0 ? (unsigned)e.column : 1, hd_json_fault(r->s->arena, &e));
    const bool ok = add_object(r, line, text, n);
    json_decref(line);
    return ok;
}

static bool read_log(reader *r) {
    hadal_session *s = r->s;
    hd_bytes file;
    if (!hd_map_file(s->arena, &s->diags, r->log, &file)) return false;
    const char *text = (const char *)file.at, *end = text + file.n;
    for (const char *newline; text < end && (newline = memchr(text, '\n', (size_t)(end - text)));
         text = newline + 1) {
        r->line++;
        if (!add_line(r, text, (size_t)(newline - text))) return false;
    }
    if (r->texts.steps.n) return true;
    hd_err(&s->diags, HD_E_FORMAT, HD_NOWHERE, "'%s' has no step", r->log)->hint =
        "hadal train writes a line after each step";
    return false;
}

/* ---- a run ----------------------------------------------------------------------------------- */

static bool has_this_version(hadal_session *s, const char *run, const char *version) {
    if (strcmp(version, hadal_version()) == 0) return true;
    hd_err(&s->diags, HD_E_FORMAT, HD_NOWHERE, "'%s' is a run of another version of Hadal", run)
        ->cause =
        hd_printf(s->arena, "it was begun by %s, and this is %s", version, hadal_version());
    return false;
}

static bool need_run(hadal_session *s, const char *path) {
    if (hadal_is_run(path)) return true;
    hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "'%s' is no run", path)->cause =
        hd_is_directory(path) ? "it has no run.json, which hadal train writes" : "it is no folder";
    return false;
}

static bool read_run(reader *r) {
    hadal_session *s = r->s;
    train_record record;
    size_t n;
    const char *path = hd_path_join(s->arena, r->run, "run.json");
    if (!need_run(s, r->run) || !train_record_read(s, path, &record) ||
        !has_this_version(s, r->run, record.hadal) || !read_depth(r) || !read_log(r))
        return false;
    r->record = train_record_text(s->arena, &record, &n);
    return true;
}

static void add_run(const reader *r, hd_text *out) {
    hd_text_add(out, "{\"path\": ");
    hd_text_add_json(out, r->run);
    hd_text_f(out, ",\n\"record\": %s,\n\"depth\": %s,\n\"steps\": [%s],\n", r->record,
              r->described ? r->described : "null", r->texts.steps.at);
    hd_text_f(out, "\"evals\": [%s],\n\"depths\": [%s]}", r->texts.evals.n ? r->texts.evals.at : "",
              r->texts.depths.n ? r->texts.depths.at : "");
}

/* ---- calls ----------------------------------------------------------------------------------- */

int hadal_is_run(const char *path) {
    char record[4096];
    const int n = snprintf(record, sizeof record, "%s/run.json", path);
    return n > 0 && (size_t)n < sizeof record && hd_exists(record);
}

static bool add_report(hadal_session *s, const char *run, hd_text *out) {
    hd_arena *a = s->arena;
    reader r = {.s = s, .run = hd_path_trim(a, run)};
    r.log = hd_path_join(a, r.run, "log.jsonl");
    hd_text_init(&r.texts.steps, a);
    hd_text_init(&r.texts.evals, a);
    hd_text_init(&r.texts.depths, a);
    const bool ok = read_run(&r);
    json_decref(r.depth);
    if (ok) add_run(&r, out);
    return ok;
}

static const char *report_text(hadal_session *s, const char *const *runs, size_t n) {
    hd_text out;
    hd_text_init(&out, s->arena);
    hd_text_f(&out, "{\"schema\": \"" SCHEMA "\", \"hadal\": \"%s\", \"runs\": [", hadal_version());
    for (size_t i = 0; i < n; i++) {
        hd_text_add(&out, i ? ",\n" : "\n");
        if (!add_report(s, runs[i], &out)) return NULL;
    }
    hd_text_add(&out, "]}\n");
    return out.at;
}

const char *hadal_run_report(hadal_session *s, const char *const *runs, size_t n) {
    API_ENTER(s);
    const char *text = report_text(s, runs, n);
    API_RETURN(s, text);
}

const char *hadal_run_page(hadal_session *s, const char *report) {
    API_ENTER(s);
    hd_text text;
    hd_text_init(&text, s->arena);
    report_runs_page(report, &text);
    API_RETURN(s, text.at);
}
