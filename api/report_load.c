/* Inputs of reports besides specs: dumps of passes, compiled libraries, profiles, and reports that
 * were written before. */
#include "api/report.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "api/library.h"
#include "inspect/format.h"
#include "inspect/profile.h"
#include "ir/text/text.h"
#include "report/report.h"
#include "support/json.h"

#define API_FAILED 1

enum { REPORT_LIMIT = 256 << 20 };

/* ---- dumps of passes ------------------------------------------------------------------------- */

typedef struct dump_file {
    int index;
    const char *pass, *path;
} dump_file;
typedef HD_VEC(dump_file) dump_list;

/* Is it a name such as "07-fuse.hir"? */
bool api_is_dump(const char *name, int *index, const char **pass) {
    char *end;
    const long n = strtol(name, &end, 10);
    if (end == name || end - name > 4 || *end != '-' || n < 0 || !hd_ends_with(name, ".hir"))
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
        any = api_is_dump(e->d_name, &index, &pass);
    if (dir) closedir(dir);
    return any;
}

static bool list_dumps(hadal_session *s, const char *folder, dump_list *out) {
    DIR *dir = opendir(folder);
    dump_file f;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (!api_is_dump(e->d_name, &f.index, &f.pass)) continue;
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

/* Is the text "; fuse (unchanged)", which stands for the dump before it? */
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

static void start_history(hadal_session *s, const char *path) {
    s->spec = hd_strdup(s->arena, path);
    s->graph = s->m = NULL;
    s->program = NULL;
    s->history = report_history_new(s->arena);
    s->history_remarks.n = 0;
    s->from_dumps = true;
}

static bool load_dumps(hadal_session *s, const char *folder) {
    dump_list files = {0};
    start_history(s, folder);
    if (!list_dumps(s, folder, &files)) return false;
    for (size_t i = 0; i < files.n; i++)
        if (!load_dump(s, &files.at[i])) return false;
    return true;
}

int hadal_load_dumps(hadal_session *s, const char *folder) {
    API_ENTER(s);
    API_LEAVE(s, load_dumps(s, folder));
}
/* ---- a profile from a file ------------------------------------------------------------------- */

static bool reject_profile(hadal_session *s, const char *path, const char *why) {
    hd_diag *e =
        hd_err(&s->diags, HD_E_FORMAT, HD_NOWHERE, "'%s' is no profile of this model", path);
    e->cause = hd_strdup(s->arena, why);
    e->hint = "hadal run SPEC --profile=FILE.json writes one, with the same options";
    return false;
}

/* Is there a kernel of that name in that line of the kernel IR? */
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
            return reject_profile(s, path, "an entry lacks its kernel or its time");
        if (!is_kernel_at(s->m, at, line, name))
            return reject_profile(s, path,
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
        return reject_profile(s, path, "its schema is not " PROFILE_SCHEMA);
    if (!model || strcmp(model, s->m->name) != 0)
        return reject_profile(s, path,
                              hd_printf(s->arena, "it is of %s, and this is %s",
                                        model ? model : "nothing", s->m->name));
    if (!json_is_array(phases)) return reject_profile(s, path, "it has no phases");
    json_array_foreach(phases, i, phase) {
        json_t *lines = json_object_get(phase, "lines");
        if (!json_is_array(lines) || !json_is_array(json_object_get(phase, "kernels")) ||
            !json_is_string(json_object_get(phase, "phase")) ||
            !json_is_number(json_object_get(phase, "seconds")))
            return reject_profile(s, path, "a phase lacks its tables");
        if (!check_profile_lines(s, path, lines)) return false;
    }
    return true;
}

const char *api_read_profile(hadal_session *s, const char *path) {
    size_t n;
    const char *text = hd_read_text(s->arena, &s->diags, path, REPORT_LIMIT, &n);
    json_t *root = text ? hd_json_parse(&s->diags, "profile", path, text, n) : NULL;
    const bool ok = root && api_need_kernels(s) && check_profile(s, path, root);
    json_decref(root);
    return ok ? text : NULL;
}

/* ---- libraries ------------------------------------------------------------------------------- */

/* The parts DIR and NAME of DIR/libNAME.so; NULL: the path is no such name. */
static const char *library_name(hd_arena *a, const char *path) {
    const char *base = hd_path_base(path);
    const size_t n = strlen(base);
    if (n <= strlen("lib.so") || strncmp(base, "lib", 3) != 0 || !hd_ends_with(base, ".so"))
        return NULL;
    return hd_strndup(a, base + 3, n - strlen("lib.so"));
}

/* Is the kernel IR next to a library the one that the library was made from? */
static bool check_steps(hadal_session *s, const hd_info *info, const char *ir) {
    const uint32_t *lines = hir_op_lines(s->m, s->arena);
    for (size_t i = 0; i < info->n_steps; i++) {
        if (is_kernel_at(s->m, lines, (json_int_t)info->steps[i].line, info->steps[i].name))
            continue;
        hd_diag *e =
            hd_err(&s->diags, HD_E_FORMAT, HD_NOWHERE, "%s is not the IR of this library", ir);
        e->cause = hd_printf(s->arena, "line %llu is no kernel %s",
                             (unsigned long long)info->steps[i].line, info->steps[i].name);
        e->hint = "compile both at once: --emit=so,header,graph,depth,kernel";
        return false;
    }
    return true;
}

/* What the library states about itself, as JSON for the report. */
static const char *info_json(hadal_session *s, const hd_info *info) {
    hd_text out;
    hd_text_init(&out, s->arena);
    hd_text_add(&out, "{\"version\": ");
    inspect_json_string(&out, info->version);
    hd_text_add(&out, ", \"digest\": ");
    inspect_json_string(&out, info->digest);
    hd_text_f(&out, ", \"max_chunk\": %zu, \"options\": %s, \"levels\": [", info->max_chunk,
              info->options);
    for (size_t i = 0; i < info->n_levels; i++) {
        hd_text_add(&out, i ? ", " : "");
        inspect_json_string(&out, info->levels[i]);
    }
    hd_text_add(&out, "]}");
    return out.at;
}

static bool read_info(hadal_session *s, const char *ir) {
    api_library l;
    if (!api_library_open(&l, s, s->library_path, s->m->name)) return false;
    const bool ok = check_steps(s, l.info, ir);
    if (ok) s->library_info = info_json(s, l.info);
    api_library_close(&l);
    return ok;
}

/* Loads the IR that `compile --emit=graph,depth,kernel` has written next to a library. */
static bool load_library(hadal_session *s, const char *path) {
    const char *name = library_name(s->arena, path), *ir = NULL;
    start_history(s, path);
    for (int i = 0; name && i < HIR_STAGE_COUNT; i++) {
        const char *stage = hir_stage_name((hir_stage)i);
        ir = hd_path_join(s->arena, hd_path_dir(s->arena, path),
                          hd_printf(s->arena, "%s.%s.hir", name, stage));
        const dump_file f = {i, stage, ir};
        if (hd_exists(ir) && !load_dump(s, &f)) return false;
    }
    if (!s->m || s->m->stage != HIR_STAGE_KERNEL) {
        hd_err(&s->diags, HD_E_IO, HD_NOWHERE, "there is no kernel IR beside '%s'", path)->hint =
            "--emit=so,header,graph,depth,kernel of compile leaves it there";
        return false;
    }
    s->library_path = hd_strdup(s->arena, path);
    return read_info(s, ir);
}

int hadal_load_library(hadal_session *s, const char *path) {
    API_ENTER(s);
    API_LEAVE(s, load_library(s, path));
}

/* ---- reports that were written before -------------------------------------------------------- */

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

#undef API_FAILED
#define API_FAILED NULL

const char *hadal_read_report(hadal_session *s, const char *path) {
    API_ENTER(s);
    const char *text = read_report(s, path);
    API_RETURN(s, text);
}
