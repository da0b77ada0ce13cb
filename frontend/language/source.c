/* The files of a program: reads them, finds the files that `use` names, interns names, and finds
 * definitions. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "frontend/language/ast.h"
#include "support/file.h"

/* ---- names --------------------------------------------------------------------------------- */
static uint64_t hash_of(const char *s, size_t n) {
    uint64_t h = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)s[i]) * 1099511628211u;
    return h;
}

static const char **slot_of(const hfe_names *names, const char *s, size_t n) {
    size_t i = hash_of(s, n) & (names->cap - 1);
    while (names->slot[i] && (strncmp(names->slot[i], s, n) != 0 || names->slot[i][n]))
        i = (i + 1) & (names->cap - 1);
    return &names->slot[i];
}

static void grow_names(hfe_program *p) {
    hfe_names old = p->names;
    p->names.cap = old.cap == 0 ? 256 : old.cap * 2;
    p->names.slot = hd_new_array(p->arena, const char *, p->names.cap);
    for (size_t i = 0; i < old.cap; i++)
        if (old.slot[i]) *slot_of(&p->names, old.slot[i], strlen(old.slot[i])) = old.slot[i];
}

const char *hfe_intern(hfe_program *p, const char *s, size_t n) {
    if (2 * p->names.n >= p->names.cap) grow_names(p);
    const char **slot = slot_of(&p->names, s, n);
    if (!*slot) {
        *slot = hd_strndup(p->arena, s, n);
        p->names.n++;
    }
    return *slot;
}

/* ---- reading ------------------------------------------------------------------------------- */
/* Identifies the file that a path leads to; returns false if there is none. */
static bool identify(const char *path, uint64_t *device, uint64_t *inode) {
    struct stat st;
    if (stat(path, &st) != 0 || S_ISDIR(st.st_mode)) return false;
    *device = (uint64_t)st.st_dev;
    *inode = (uint64_t)st.st_ino;
    return true;
}

static hfe_file *read_file(hfe_program *p, const char *path, const char *text, hd_loc from);

/* True for a file other than the one with the `use`: in this way a user's page can be built on the
 * library's page of the same name. */
static bool is_another_file(const hfe_file *file, const char *path) {
    uint64_t device, inode;
    return identify(path, &device, &inode) && !(inode == file->inode && device == file->device);
}

/* Returns the file in the first place that has it, of all places where `use` looks, or NULL. */
static const char *find_used(hfe_program *p, const hfe_file *file, const char *name) {
    size_t n = strlen(name);
    if (n < 6 || strcmp(name + n - 6, ".hadal") != 0) name = hd_printf(p->arena, "%s.hadal", name);
    const hfe_options *o = p->options;
    const char *slash = strrchr(file->path, '/');
    const char *beside =
        !slash ? name : hd_path_join(p->arena, hd_path_dir(p->arena, file->path), name);
    if (is_another_file(file, beside)) return beside;
    for (size_t i = 0; i <= o->n_include_dirs; i++) {
        const char *dir = i < o->n_include_dirs ? o->include_dirs[i] : o->std_dir;
        const char *path = dir ? hd_path_join(p->arena, dir, name) : NULL;
        if (path && is_another_file(file, path)) return path;
    }
    return NULL;
}

static void reject_use(hfe_program *p, const hfe_use *use) {
    hd_diag *d = hd_err(p->diags, HD_E_NAME, use->loc, "there is no file '%s' to use", use->path);
    d->cause = p->options->std_dir
                   ? hd_printf(p->arena, "looked beside this file, in the include folders, in %s",
                               p->options->std_dir)
                   : "looked beside this file and in the include folders";
    hfe_candidates pages = {0};
    hfe_library_pages(p, &pages);
    const char *near = hd_nearest(use->path, pages.list.at, pages.list.n);
    if (near) d->hint = hd_printf(p->arena, "did you mean '%s'?", near);
}

static void read_uses(hfe_program *p, hfe_file *file) {
    for (size_t i = 0; i < file->uses.n; i++) {
        hfe_use *use = &file->uses.at[i];
        const char *path = find_used(p, file, use->path);
        if (!path) {
            reject_use(p, use);
            continue;
        }
        use->file = read_file(p, path, NULL, use->loc);
        if (use->file && use->file->loading) {
            hd_err(p->diags, HD_E_NAME, use->loc, "'%s' is used in a circle", use->path)->cause =
                hd_printf(p->arena, "%s is still being read", use->file->path);
            use->file = NULL;
        }
        if (use->file && !use->file->page) use->file->page = use->path;
    }
}

static const char *read_text(hfe_program *p, const char *path) {
    size_t n = 0;
    const char *text = hd_read_text(p->arena, p->diags, path, HFE_MAX_FILE, &n);
    if (text && strlen(text) != n) {
        hd_loc loc = {.file = path};
        hd_err(p->diags, HD_E_SYNTAX, loc, "this is not a text file")->cause =
            hd_printf(p->arena, "byte %zu is zero", strlen(text));
        return NULL;
    }
    return text;
}

static hfe_file *read_file(hfe_program *p, const char *path, const char *text, hd_loc from) {
    uint64_t device = 0, inode = 0;
    if (!text && identify(path, &device, &inode)) {
        for (size_t i = 0; i < p->files.n; i++) {
            hfe_file *known = p->files.at[i];
            if (known->device == device && known->inode == inode && known->inode != 0) return known;
        }
    }
    if (p->files.n >= HFE_MAX_FILES) {
        hd_err(p->diags, HD_E_LIMIT, from, "more than %d files use each other", HFE_MAX_FILES);
        return NULL;
    }
    hfe_file *file = hd_new(p->arena, hfe_file);
    file->path = hd_strdup(p->arena, path);
    file->device = device;
    file->inode = inode;
    file->text = text ? text : read_text(p, file->path);
    if (!file->text) return NULL;
    hd_diags_source(p->diags, file->path, file->text);
    hd_push(p->arena, &p->files, file);
    file->loading = true;
    file->failed = !hfe_parse(p, file);
    read_uses(p, file);
    file->loading = false;
    return file;
}

hfe_file *hfe_read_program(hfe_program *p, const char *path, const char *text) {
    size_t errors = p->diags->errors;
    if (text && strlen(text) > HFE_MAX_FILE) {
        hd_err(p->diags, HD_E_LIMIT, HD_NOWHERE, "%s is too long", path)->cause =
            hd_printf(p->arena, "a spec may have %d bytes", HFE_MAX_FILE);
        return NULL;
    }
    hfe_file *file = read_file(p, path, text, HD_NOWHERE);
    return p->diags->errors == errors ? file : NULL;
}

/* ---- definitions --------------------------------------------------------------------------- */
static hfe_def *find_own(const hfe_file *file, const char *name, bool config) {
    for (size_t i = 0; i < file->defs.n; i++) {
        const bool is_config = file->defs.at[i]->kind == HFE_D_CONFIG;
        if (file->defs.at[i]->name == name && is_config == config) return file->defs.at[i];
    }
    return NULL;
}

/* Nothing can name a model, so a model hides no function of a used file that has its name. */
static hfe_def *find_callable(const hfe_file *file, const char *name) {
    hfe_def *def = file ? find_own(file, name, false) : NULL;
    return def && def->kind != HFE_D_MODEL ? def : NULL;
}

hfe_def *hfe_find_def(const hfe_file *file, const char *name) {
    hfe_def *def = find_callable(file, name);
    for (size_t i = 0; !def && i < file->uses.n; i++)
        def = find_callable(file->uses.at[i].file, name);
    return def;
}

hfe_def *hfe_find_config(const hfe_file *file, const char *name) {
    hfe_def *def = find_own(file, name, true);
    for (size_t i = 0; !def && i < file->uses.n; i++) {
        const hfe_file *used = file->uses.at[i].file;
        def = used ? find_own(used, name, true) : NULL;
    }
    return def;
}

/* ---- configs ------------------------------------------------------------------------------- */
const hfe_def *hfe_included_config(const hfe_file *file, const hfe_stmt *s) {
    const hfe_expr *x = s->value;
    x = x->kind == HFE_X_CALL ? x->call.callee : x;
    return x->kind == HFE_X_NAME ? hfe_find_config(file, x->name) : NULL;
}

static const hfe_def *find_function(const hfe_def *config, const char *name, int depth) {
    for (size_t i = 0; i < config->methods.n; i++)
        if (config->methods.at[i]->name == name) return config->methods.at[i];
    for (size_t i = 0; depth < HFE_MAX_INCLUDED && i < config->body.list.n; i++) {
        const hfe_stmt *s = config->body.list.at[i];
        const hfe_def *other =
            s->kind == HFE_S_INCLUDE ? hfe_included_config(config->file, s) : NULL;
        const hfe_def *found = other ? find_function(other, name, depth + 1) : NULL;
        if (found) return found;
    }
    return NULL;
}

const hfe_def *hfe_config_function(const hfe_def *config, const char *name) {
    return find_function(config, name, 0);
}

/* ---- strings ------------------------------------------------------------------------------- */
const char *hfe_literal(const hfe_expr *x) {
    if (!x || x->kind != HFE_X_STRING || x->string.pieces.n > 1) return NULL;
    if (x->string.pieces.n == 0) return "";
    return !x->string.pieces.at[0].value ? x->string.pieces.at[0].text : NULL;
}

/* ---- the library -------------------------------------------------------------------------------
 *
 * This part finds the pages of the library, and the page that defines a name. It only serves hints,
 * so a page that cannot be read is skipped without a message. */

enum { MAX_PAGES = 500, MAX_DEPTH = 3 };

/* An open directory, which is closed here or, if memory runs out, with the arena. */
typedef struct folder {
    DIR *dir;
} folder;

static void close_folder(void *what) {
    folder *f = what;
    if (f->dir) closedir(f->dir);
    f->dir = NULL;
}

static bool has_ending(const char *name) {
    size_t n = strlen(name);
    return n > 6 && strcmp(name + n - 6, ".hadal") == 0;
}

bool hfe_is_library(const hfe_program *p, const hfe_file *file) {
    const char *dir = p->options->std_dir;
    const size_t n = dir ? strlen(dir) : 0;
    return n && strncmp(file->path, dir, n) == 0 && file->path[n] == '/';
}

/* Lists the pages below std_dir/`inside`, named as `use` names them. */
static void scan(hfe_program *p, const char *inside, int depth) {
    const char *path = hd_path_join(p->arena, p->options->std_dir, inside);
    folder *f = hd_new(p->arena, folder);
    hd_arena_defer(p->arena, close_folder, f);
    f->dir = opendir(path);
    for (struct dirent *entry; f->dir && (entry = readdir(f->dir));) {
        if (entry->d_name[0] == '.' || p->pages.n >= MAX_PAGES) continue;
        const char *slash = inside[0] ? "/" : "";
        char *name = hd_printf(p->arena, "%s%s%s", inside, slash, entry->d_name);
        if (has_ending(name)) {
            name[strlen(name) - 6] = '\0';
            hd_push(p->arena, &p->pages, name);
        } else if (depth < MAX_DEPTH &&
                   hd_is_directory(hd_path_join(p->arena, p->options->std_dir, name))) {
            scan(p, name, depth + 1);
        }
    }
    close_folder(f);
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void hfe_library_pages(hfe_program *p, hfe_candidates *out) {
    if (!p->pages_known && p->options->std_dir) {
        scan(p, "", 1);
        if (p->pages.n > 0) qsort(p->pages.at, p->pages.n, sizeof *p->pages.at, by_name);
    }
    p->pages_known = true;
    out->list.at = p->pages.at;
    out->list.n = out->list.cap = p->pages.n;
}

/* Lists the names in lines that begin with `fn NAME(` or `object NAME(`. */
static void list_names(hfe_program *p, const char *text, const char *page) {
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const size_t word = strncmp(line, "fn ", 3) == 0       ? 3
                            : strncmp(line, "object ", 7) == 0 ? 7
                                                               : 0;
        const size_t n = word > 0 ? strcspn(line + word, "( \n") : 0;
        if (n > 0 && line[word + n] == '(') {
            const hfe_library_name known = {hd_strndup(p->arena, line + word, n), page};
            hd_push(p->arena, &p->library, known);
        }
    }
}

/* Reads all pages once, since every unknown name of a program is searched in them. */
static void list_library(hfe_program *p) {
    hfe_candidates pages = {0};
    hd_diags unheard;
    hd_diags_init(&unheard, p->arena);
    hfe_library_pages(p, &pages);
    for (size_t i = 0; i < pages.list.n; i++) {
        size_t n;
        const char *path = hd_path_join(p->arena, p->options->std_dir,
                                        hd_printf(p->arena, "%s.hadal", pages.list.at[i]));
        const char *text = hd_read_text(p->arena, &unheard, path, HFE_MAX_FILE, &n);
        if (text) list_names(p, text, pages.list.at[i]);
    }
    p->library_known = true;
}

const char *hfe_library_page(hfe_program *p, const char *name) {
    if (!p->library_known) list_library(p);
    for (size_t i = 0; i < p->library.n; i++)
        if (strcmp(p->library.at[i].name, name) == 0) return p->library.at[i].page;
    return NULL;
}
