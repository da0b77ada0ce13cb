/* Sessions, diagnostics, and loading a model. */
#include "api/session.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "api/train/folder.h"
#include "frontend/config/family.h"
#include "frontend/config/quantisation.h"
#include "frontend/frontend.h"
#include "support/packed.h"

#define API_FAILED 1

static const char memory_text[] = "out of memory";

const char *hadal_version(void) {
    return HADAL_VERSION;
}

static char own_path[PATH_MAX] = "."; /* not written any more once the library is loaded */

/* The loader knows this library by the name that it was opened with, which may be relative to a
 * working directory that the host leaves later. A program that holds these objects itself is known
 * by argv[0], which can be anything. */
__attribute__((constructor)) static void remember_path(void) {
    Dl_info info;
    struct link_map *map = NULL;
    char real[PATH_MAX];
    if (!dladdr1((const void *)(uintptr_t)hadal_version, &info, (void **)&map, RTLD_DL_LINKMAP))
        return;
    const bool program = !map || !map->l_name || !*map->l_name;
    if (realpath(program ? "/proc/self/exe" : map->l_name, real)) strcpy(own_path, real);
}

/* Finds the directories of library files from where this library lies, in an installation and in a
 * build tree alike; programs that link the objects directly (the unit tests) lie next to lib/. */
static void find_folders(hadal_session *s) {
    const char *dir = hd_path_dir(s->arena, own_path);
    const char *data = hd_path_join(s->arena, dir, HADAL_DATA_FROM_LIB);
    char *real_data = realpath(data, NULL);
    s->data_dir = hd_strdup(s->arena, real_data ? real_data : data);
    free(real_data);
    s->lib_dir = dir;
    if (!hd_exists(hd_path_join(s->arena, dir, "libhadalrt.a")))
        s->lib_dir = hd_path_join(s->arena, dir, "../lib");
}

static hadal_session *set_up(hd_arena *a) {
    jmp_buf here;
    hd_arena_guard(a, &here);
    if (setjmp(here)) return NULL;
    hadal_session *s = hd_new(a, hadal_session);
    s->arena = a;
    hd_diags_init(&s->diags, a);
    s->remarks.arena = a;
    s->pass_options = hir_default_options;
    find_folders(s);
    hd_arena_guard(a, NULL);
    return s;
}

hadal_session *hadal_open(void) {
    hd_arena *a = hd_arena_new();
    if (!a) return NULL;
    hadal_session *s = set_up(a);
    if (!s) hd_arena_free(a);
    return s;
}

void hadal_close(hadal_session *s) {
    if (s) hd_arena_free(s->arena);
}

/* ---- diagnostics ----------------------------------------------------------------------------- */

size_t hadal_diagnostics(const hadal_session *s) {
    return s->diags.list.n + (s->out_of_memory ? 1 : 0);
}

hadal_diagnostic hadal_diagnostic_at(const hadal_session *s, size_t i) {
    if (i >= s->diags.list.n)
        return (hadal_diagnostic){.name = hd_error_name(HD_E_MEMORY), .message = memory_text};
    const hd_diag *d = &s->diags.list.at[i];
    return (hadal_diagnostic){
        .severity = (int)d->severity,
        .name = hd_error_name(d->code),
        .file = d->loc.file,
        .line = d->loc.line,
        .column = d->loc.column,
        .end_column = d->loc.end_column,
        .message = d->message,
        .cause = d->cause,
        .hint = d->hint,
        .source_line = d->source_line,
    };
}

#undef API_FAILED
#define API_FAILED memory_text
const char *hadal_diagnostic_text(hadal_session *s, size_t i, int colour) {
    if (i >= s->diags.list.n) return "error: out of memory [memory]\n";
    API_ENTER(s);
    hd_text text;
    hd_text_init(&text, s->arena);
    hd_diag_render(&s->diags.list.at[i], colour != 0, &text);
    API_RETURN(s, text.at ? text.at : "");
}
#undef API_FAILED
#define API_FAILED 1

int hadal_exit_code(const hadal_session *s) {
    if (hd_diags_failed(&s->diags)) return hd_error_exit_code(hd_diags_first(&s->diags));
    return s->out_of_memory ? hd_error_exit_code(HD_E_MEMORY) : 0;
}

int hadal_fail(hadal_session *s, const char *name, const char *message, const char *hint) {
    API_ENTER(s);
    hd_error code = HD_E_USAGE;
    for (int e = 0; e < HD_E_COUNT; e++)
        if (strcmp(hd_error_name((hd_error)e), name) == 0) code = (hd_error)e;
    hd_diag *d = hd_err(&s->diags, code, HD_NOWHERE, "%s", message);
    if (hint) d->hint = hd_strdup(s->arena, hint);
    API_LEAVE(s, false);
}

void hadal_progress(hadal_session *s,
                    void (*report)(void *context, const char *what, uint64_t done, uint64_t total),
                    void *context) {
    s->diags.progress = report;
    s->diags.progress_context = context;
}

/* ---- input ----------------------------------------------------------------------------------- */

int hadal_define(hadal_session *s, const char *name, const char *value) {
    API_ENTER(s);
    hfe_define define = {hd_strdup(s->arena, name), hd_strdup(s->arena, value)};
    hd_push(s->arena, &s->defines, define);
    API_LEAVE(s, true);
}

int hadal_include_path(hadal_session *s, const char *dir) {
    API_ENTER(s);
    if (!hd_is_directory(dir))
        hd_warn(&s->diags, HD_E_IO, HD_NOWHERE,
                "there is no folder '%s' to look for `use` files in", dir);
    hd_push(s->arena, &s->include_dirs, hd_strdup(s->arena, dir));
    API_LEAVE(s, true);
}

static bool is_letter_or_digit(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* The module's name, made from the path: its last component, without .hadal, as a C identifier.
 * "models/llama-1.5b.hadal" gives llama_1_5b. */
static const char *name_from_path(hadal_session *s, const char *path) {
    char *name = hd_strdup(s->arena, hd_path_base(hd_path_trim(s->arena, path)));
    if (hd_ends_with(name, ".hadal")) name[strlen(name) - strlen(".hadal")] = 0;
    for (char *c = name; *c; c++)
        if (!is_letter_or_digit(*c)) *c = '_';
    const bool starts_well = *name && !(*name >= '0' && *name <= '9');
    return starts_well ? name : hd_printf(s->arena, "m%s", name);
}

enum { TEXT_LIMIT = 256 << 20 };

static hir_module *load_hir(hadal_session *s, const char *path) {
    size_t n;
    const char *text = hd_read_text(s->arena, &s->diags, path, TEXT_LIMIT, &n);
    if (!text) return NULL;
    if (s->defines.n) {
        hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "-D %s: %s has no parameters",
               s->defines.at[0].name, path)
            ->hint = "parameters belong to .hadal specs; IR text is already elaborated";
        return NULL;
    }
    hd_diags_source(&s->diags, path, text);
    return hir_parse(s->arena, &s->diags, path, text);
}

/* Says where files of the model language are searched. */
static hfe_options spec_options(hadal_session *s) {
    return (hfe_options){
        .defines = s->defines.at,
        .n_defines = s->defines.n,
        .include_dirs = s->include_dirs.at,
        .n_include_dirs = s->include_dirs.n,
        .std_dir = hd_path_join(s->arena, s->data_dir, "std"),
    };
}

static char *import(hadal_session *s, const char *folder) {
    const hfe_options options = spec_options(s);
    return hfe_import(s->arena, &s->diags, folder, &options);
}

/* The graph in a folder that hadal train has made of a spec; NULL: the folder has none. */
static const char *graph_in(hadal_session *s, const char *folder) {
    const char *graph = hd_path_join(s->arena, folder, "model.hir");
    return !hfe_is_folder_model(folder) && hd_exists(graph) ? graph : NULL;
}

static hir_module *load_folder_graph(hadal_session *s, const char *folder) {
    s->weights_path = hd_strdup(s->arena, folder);
    return load_hir(s, graph_in(s, folder));
}

static hir_module *load_spec(hadal_session *s, const char *path, const char *name) {
    hfe_options options = spec_options(s);
    options.name = name;
    if (!hd_is_directory(path)) return hfe_load_spec(s->arena, &s->diags, path, &options);
    if (graph_in(s, path)) return load_folder_graph(s, path);
    const char *text = import(s, path);
    if (!text) return NULL;
    s->weights_path = hd_strdup(s->arena, path);
    const char *label = hd_path_join(s->arena, path, "config.json.hadal");
    return hfe_load_spec_text(s->arena, &s->diags, label, text, &options);
}

/* Rejects the DIR/NAME of a compiled model where its spec is expected. */
static bool reject_compiled(hadal_session *s, const char *path) {
    const char *library = hd_path_join(s->arena, hd_path_dir(s->arena, path),
                                       hd_printf(s->arena, "lib%s.so", hd_path_base(path)));
    if (!hd_exists(library)) return false;
    hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "'%s' is a compiled model: %s", path, library)->hint =
        "name the spec that it was made of";
    return true;
}

/* Rejects files that are only a part of a model, where a model is expected. */
static bool reject_part(hadal_session *s, const char *path) {
    static const char *const data[] = {".safetensors", ".bin",     ".pth",       ".pt",
                                       ".gguf",        ".weights", ".so",        ".npy",
                                       ".o",           ".h",       ".index.json"};
    const char *hint = NULL;
    if (hd_is_directory(path)) return false;
    if (!hd_exists(path)) {
        if (strchr(hd_path_base(path), '.')) return false; /* a file that cannot be opened */
        if (reject_compiled(s, path)) return true;
        hd_err(&s->diags, HD_E_IO, HD_NOWHERE, "there is no '%s'", path)->hint =
            "a model is a .hadal file, a .hir file, or a folder with a config.json; DIR/NAME "
            "stands for DIR/libNAME.so, which hadal compile -o DIR/NAME makes";
        return true;
    }
    if (strcmp(hd_path_base(path), "config.json") == 0)
        hint =
            hd_printf(s->arena, "name the folder that it is in: %s", hd_path_dir(s->arena, path));
    for (size_t i = 0; i < sizeof data / sizeof *data; i++)
        if (hd_ends_with(path, data[i]))
            hint = "a model is a .hadal file, a .hir file, or a folder with a config.json; weights "
                   "follow --weights";
    if (hint) hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "'%s' is no model", path)->hint = hint;
    return hint;
}

hir_module *api_read_model(hadal_session *s, const char *spec, const char *name) {
    if (reject_part(s, spec)) return NULL;
    const bool is_text = hd_ends_with(spec, ".hir");
    if (!is_text && !name) name = name_from_path(s, spec);
    hir_module *m = is_text ? load_hir(s, spec) : load_spec(s, spec, name);
    if (m && name) m->name = hd_strdup(s->arena, name);
    return m;
}

static bool load(hadal_session *s, const char *spec, const char *name) {
    s->spec = hd_strdup(s->arena, spec);
    s->program = NULL;
    s->m = s->graph = NULL;
    s->weights_open = false; /* which tensors are read depends on the model */
    s->graph = api_read_model(s, spec, name);
    if (!s->graph) {
        const char *hint = train_hint_at_checkpoint(s->arena, spec);
        if (hint && s->diags.list.n) s->diags.list.at[s->diags.list.n - 1].hint = hint;
        return false;
    }
    s->m = hir_module_clone(s->graph, s->arena);
    return true;
}

int hadal_load(hadal_session *s, const char *spec, const char *name) {
    API_ENTER(s);
    API_LEAVE(s, load(s, spec, name));
}

int hadal_weights(hadal_session *s, const char *path) {
    API_ENTER(s);
    if (path) s->weights_path = hd_strdup(s->arena, path);
    s->weights_given |= path != NULL;
    s->weights_open = false;
    API_LEAVE(s, true);
}

const char *hadal_weights_path(const hadal_session *s) {
    return s->weights_path;
}

#undef API_FAILED
#define API_FAILED 0
int hadal_weights_exist(hadal_session *s) {
    API_ENTER(s);
    const int there = s->weights_path && hd_safetensors_exist(s->arena, s->weights_path);
    API_RETURN(s, there);
}

#undef API_FAILED
#define API_FAILED NULL
const char *hadal_import_text(hadal_session *s, const char *folder) {
    API_ENTER(s);
    const char *text = import(s, folder);
    API_RETURN(s, text);
}
#undef API_FAILED
#define API_FAILED 1

#undef API_FAILED
#define API_FAILED NULL
const char *hadal_families_text(hadal_session *s) {
    API_ENTER(s);
    const hfe_options options = spec_options(s);
    hd_text text;
    hd_text_init(&text, s->arena);
    hfe_families_text(s->arena, &s->diags, &options, &text);
    const bool ok = s->diags.errors == api_errors_;
    API_RETURN(s, ok ? text.at : NULL);
}
#undef API_FAILED
#define API_FAILED 1

int hadal_import(hadal_session *s, const char *folder, const char *out_path) {
    API_ENTER(s);
    const char *text = import(s, folder);
    API_LEAVE(s, text && hd_write_file(s->arena, &s->diags, out_path, text, strlen(text)));
}

bool api_need_module(hadal_session *s) {
    if (s->m) return true;
    hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "no model is loaded");
    return false;
}

/* Opens the tensors of the files, and decodes quantised ones. The config next to a file is read
 * only if it belongs to these weights: a file that is no checkpoint's may lie next to anything. */
static bool open_weights(hadal_session *s) {
    hd_arena *a = s->arena;
    const char *path = s->weights_path;
    hd_quantisation how = {0};
    s->weights = s->stored = (hd_tensors){0};
    if (!hd_safetensors_open(a, &s->diags, path, &s->stored)) return false;
    const bool ask = hd_is_directory(path) || hd_holds_packed(&s->stored);
    if (ask && !hfe_quantisation_of(a, &s->diags, path, &how)) return false;
    return hd_unpack(a, &s->diags, &s->stored, &how, &s->weights) && api_add_token_map(s) &&
           (!s->graph || hcg_settle_weights(s->graph, &s->diags, &s->weights));
}

const hd_tensor *api_find_codes(const hadal_session *s) {
    for (size_t i = 0; i < s->weights.list.n; i++)
        if (s->weights.list.at[i].packed) return &s->weights.list.at[i];
    return NULL;
}

bool api_need_weights(hadal_session *s) {
    if (s->weights_open) return true;
    if (!s->weights_path) {
        hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "no weights are given")->hint =
            "--weights FILE takes a .safetensors file, an index, or a folder";
        return false;
    }
    s->weights_open = open_weights(s);
    return s->weights_open;
}

bool api_may_write(hadal_session *s, const char *path) {
    const char *read = hd_same_file(path, s->spec) ? s->spec : NULL;
    if (hd_same_file(path, s->weights_path)) read = s->weights_path;
    const char *last = NULL; /* tensors of one file are adjacent, so each file is tested once */
    for (size_t i = 0; s->weights_open && i < s->stored.list.n && !read; i++) {
        const char *file = s->stored.list.at[i].file;
        if (file != last && hd_same_file(path, file)) read = file;
        last = file;
    }
    if (!read) return true;
    hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "'%s' is read here, and would be replaced", read)
        ->hint = "give the output another name";
    return false;
}

/* ---- filters --------------------------------------------------------------------------------- */

static void free_filter(void *what) {
    api_filter *f = what;
    if (f->text) regfree(&f->regex);
}

const api_filter *api_filter_new(hadal_session *s, const char *what, const char *text) {
    api_filter *f = hd_new(s->arena, api_filter);
    if (!text) return f;
    const char *copy = hd_strdup(s->arena, text);
    hd_arena_defer(s->arena, free_filter, f);
    const int code = regcomp(&f->regex, text, REG_EXTENDED | REG_NOSUB);
    if (code == 0) {
        f->text = copy;
        return f;
    }
    char why[256];
    regerror(code, &f->regex, why, sizeof why);
    hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "the filter of %s \"%s\" is no regular expression",
           what, text)
        ->cause = hd_strdup(s->arena, why);
    return NULL;
}

/* The expression without what anchors it, which is no part of a name. */
static const char *word_of(hd_arena *a, const char *regex) {
    const size_t from = *regex == '^', n = strlen(regex + from);
    return hd_strndup(a, regex + from, n - (n > 0 && regex[from + n - 1] == '$'));
}

bool api_filter_takes_any(hadal_session *s, const api_filter *f, const char *what,
                          const char *const *names, size_t n, const char *lists) {
    for (size_t i = 0; i < n; i++)
        if (api_filter_takes(f, names[i])) return true;
    const char *near = hd_nearest(word_of(s->arena, f->text), names, n);
    hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "the filter \"%s\" matches the name of no %s",
           f->text, what)
        ->hint = near ? hd_printf(s->arena, "did you mean \"%s\"?", near) : lists;
    return false;
}

bool api_filter_takes(const api_filter *f, const char *name) {
    return !f->text || (name && regexec(&f->regex, name, 0, NULL, 0) == 0);
}
