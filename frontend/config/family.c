/* Pages of families: finds the page of a config.json, runs its config, and writes out its model. */
#include "frontend/config/family.h"

#include <string.h>

#include "support/file.h"

#define FAMILIES "families"
#define PLAINEST "llama" /* the family that most others are variations of */

/* ---- pages --------------------------------------------------------------------------------- */

static const char *find_page(hfe_program *p, const char *path) {
    const hfe_options *o = p->options;
    for (size_t i = 0; i <= o->n_include_dirs; i++) {
        const char *dir = i < o->n_include_dirs ? o->include_dirs[i] : o->std_dir;
        const char *file =
            dir ? hd_path_join(p->arena, dir, hd_printf(p->arena, "%s.hadal", path)) : NULL;
        if (file && hd_exists(file) && !hd_is_directory(file)) return file;
    }
    return NULL;
}

hfe_file *hfe_read_page(hfe_program *p, const char *path) {
    const char *found = find_page(p, path);
    const size_t known = p->files.n;
    p->words = &hfe_words_of_configs;
    hfe_file *file = found ? hfe_read_program(p, found, NULL) : NULL;
    if (!file) return NULL;
    file->page = hd_strdup(p->arena, path);
    const size_t errors = p->diags->errors;
    for (size_t i = known; i < p->files.n; i++)
        hfe_resolve(p, p->files.at[i]);
    return p->diags->errors == errors ? file : NULL;
}

void hfe_pages_in(hfe_program *p, const char *inside, hfe_candidates *out) {
    hfe_candidates all = {0};
    const size_t n = strlen(inside);
    hfe_library_pages(p, &all);
    for (size_t i = 0; i < all.list.n; i++) {
        const char *name = all.list.at[i];
        if (strncmp(name, inside, n) == 0 && name[n] == '/' && !strchr(name + n + 1, '/'))
            hd_push(p->arena, &out->list, name + n + 1);
    }
}

/* ---- the family of a config ----------------------------------------------------------------- */

/* True for a model type whose letters cannot lead out of the directory of pages. */
static bool is_type(const char *s) {
    return *s && strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") ==
                     strlen(s);
}

const hfe_def *hfe_page_config(hfe_program *p, const hfe_file *page, const char *type) {
    char *id = hd_strdup(p->arena, type);
    for (char *c = id; *c; c++)
        *c = *c == '-' ? '_' : *c;
    for (size_t i = 0; page && i < page->defs.n; i++) {
        const hfe_def *def = page->defs.at[i];
        if (def->kind == HFE_D_CONFIG && strcmp(def->name, id) == 0) return def;
    }
    return NULL;
}

/* Finds the page families/TYPE, or else TYPE, which is a user's own page in an include
 * directory. */
static const hfe_def *find_family(hfe_program *p, const char *type) {
    const char *path = hd_printf(p->arena, FAMILIES "/%s", type);
    if (!is_type(type)) return NULL;
    if (!find_page(p, path)) path = type;
    return find_page(p, path) ? hfe_page_config(p, hfe_read_page(p, path), type) : NULL;
}

/* Returns a hint with the page that is closest by its fields, and the name `near` with a similar
 * spelling if the page of that name accepts the config: the model may be another one in spite of
 * its name. */
static const char *closest_of(hfe_program *p, hfe_json *j, const char *near,
                              const hfe_families *families) {
    const char *closest = hfe_closest_family(p, j, families, PLAINEST, &near);
    const size_t n = near ? strlen(near) : 0;
    if (near && closest && strncmp(closest, near, n) == 0 && closest[n] == ':') {
        return hd_printf(p->arena,
                         "did you mean '%s'? Its page is the closest by its fields, too: " FAMILIES
                         "/%s; a page of your own in a folder DIR is found with -I DIR "
                         "(docs/importing.md)",
                         near, closest);
    }
    if (!closest) return NULL;
    const char *name = near ? hd_printf(p->arena, "did you mean '%s'? By its fields ", near) : "";
    return hd_printf(p->arena,
                     "%sthe closest page is " FAMILIES "/%s; a page of your own in a "
                     "folder DIR is found with -I DIR (docs/importing.md)",
                     name, closest);
}

static void reject_family(hfe_program *p, hfe_json *j, const hfe_field *f) {
    const json_t *v = hfe_json_get(j, f);
    hfe_candidates all = {0}, pages = {0};
    hfe_families families = {0};
    hfe_pages_in(p, FAMILIES, &all);
    for (size_t i = 0; i < all.list.n; i++) {
        const hfe_family one = {all.list.at[i], find_family(p, all.list.at[i])};
        if (one.config) {
            hd_push(p->arena, &pages.list, one.name);
            hd_push(p->arena, &families.list, one);
        }
    }
    hd_diag *g =
        hfe_field_error(j, f, "%s cannot be imported by this version", hfe_json_show(j, v));
    g->cause = pages.list.n > 0
                   ? "there is no page for this family; `hadal families` lists those that there are"
                   : "the library has no pages of families";
    const char *near =
        json_is_string(v) ? hd_nearest(json_string_value(v), pages.list.at, pages.list.n) : NULL;
    g->hint = closest_of(p, j, near, &families);
}

/* ---- the model ------------------------------------------------------------------------------ */

/* Returns the page's own model, or else that of the first used page which has one: a variation of a
 * family keeps the model. */
static const hfe_def *model_of(const hfe_file *page, int depth) {
    enum { DEEPEST = 20 };
    for (size_t i = 0; i < page->defs.n; i++)
        if (page->defs.at[i]->kind == HFE_D_MODEL) return page->defs.at[i];
    for (size_t i = 0; depth < DEEPEST && i < page->uses.n; i++) {
        const hfe_file *used = page->uses.at[i].file;
        const hfe_def *model = used ? model_of(used, depth + 1) : NULL;
        if (model) return model;
    }
    return NULL;
}

const hfe_def *hfe_page_model(const hfe_file *page) {
    return model_of(page, 0);
}

static char *write_out(hfe_elab *e, const hfe_def *config, const char *name) {
    const hfe_def *model = hfe_page_model(config->file);
    if (!model) {
        hd_err(e->diags, HD_E_NAME, config->loc, "the family '%s' has no model", config->name);
        return NULL;
    }
    return hfe_specialise(e, model, &e->import->bound, name);
}

/* Finds the family of a config. For a file that names none, the plainest family follows, so that
 * fields which any family would miss are reported as well. */
static const hfe_def *family_of(hfe_program *p, hfe_json *j, hfe_field *object) {
    hfe_field *f = hd_new(p->arena, hfe_field);
    *f = (hfe_field){object, "model_type"};
    const json_t *type = hfe_json_get(j, f);
    if (!type) {
        hd_err(j->diags, HD_E_CONFIG, (hd_loc){.file = j->file},
               "the field 'model_type' is missing: the family");
        return find_family(p, PLAINEST);
    }
    const size_t errors = p->diags->errors;
    const hfe_def *config = json_is_string(type) ? find_family(p, json_string_value(type)) : NULL;
    if (!config && p->diags->errors == errors) reject_family(p, j, f);
    return config;
}

char *hfe_import_family(hfe_program *p, hfe_json *j, const char *name) {
    const size_t errors = p->diags->errors;
    const hfe_def *config = family_of(p, j, NULL);
    char *text = config ? hfe_import_as(p, j, config, name) : NULL;
    return p->diags->errors > errors ? NULL : text;
}

char *hfe_import_as(hfe_program *p, hfe_json *j, const hfe_def *config, const char *name) {
    const size_t errors = p->diags->errors;
    hfe_reading im = {.json = j};
    hfe_elab e = {.p = p,
                  .arena = p->arena,
                  .diags = p->diags,
                  .spec = config->file,
                  .scope = "",
                  .import = &im};
    hd_diags_init(&e.trial, p->arena);
    e.m = hir_module_new(p->arena, "import");
    e.b = hir_at_end(e.m, &e.trial);
    hfe_run_config(&e, config, NULL, "model_type");
    return p->diags->errors > errors ? NULL : write_out(&e, config, name);
}
