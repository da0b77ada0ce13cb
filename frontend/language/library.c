/* The library as a folder of pages: which there are, and which of them defines a name. Only hints
 * come from here, so what cannot be read is passed over in silence. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/language/ast.h"
#include "support/file.h"

enum { MAX_PAGES = 500, MAX_DEPTH = 3 };

/* ---- pages --------------------------------------------------------------------------------- */
/* An open folder, closed by us or, should memory run out, with the arena. */
typedef struct folder {
    DIR *dir;
} folder;

static void close_folder(void *what) {
    folder *f = what;
    if (f->dir != NULL) {
        closedir(f->dir);
    }
    f->dir = NULL;
}

static bool has_ending(const char *name) {
    size_t n = strlen(name);
    return n > 6 && strcmp(name + n - 6, ".hadal") == 0;
}

/* Pages below std_dir/`inside`, named as `use` names them. */
static void scan(hfe_program *p, const char *inside, int depth) {
    const char *path = hd_path_join(p->arena, p->options->std_dir, inside);
    folder *f = hd_new(p->arena, folder);
    hd_arena_defer(p->arena, close_folder, f);
    f->dir = opendir(path);
    for (struct dirent *entry; f->dir != NULL && (entry = readdir(f->dir)) != NULL;) {
        if (entry->d_name[0] == '.' || p->pages.n >= MAX_PAGES) {
            continue;
        }
        const char *slash = inside[0] != '\0' ? "/" : "";
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
    if (!p->pages_known && p->options->std_dir != NULL) {
        scan(p, "", 1);
        if (p->pages.n > 0) {
            qsort(p->pages.at, p->pages.n, sizeof *p->pages.at, by_name);
        }
    }
    p->pages_known = true;
    out->list.at = p->pages.at;
    out->list.n = out->list.cap = p->pages.n;
}

/* ---- names --------------------------------------------------------------------------------- */
/* The names of lines of a text that begin with `fn NAME(` or `object NAME(`. */
static void list_names(hfe_program *p, const char *text, const char *page) {
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
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

/* Reads all pages, once: every unknown name of a program asks for them. */
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
        if (text != NULL) {
            list_names(p, text, pages.list.at[i]);
        }
    }
    p->library_known = true;
}

const char *hfe_library_page(hfe_program *p, const char *name) {
    if (!p->library_known) {
        list_library(p);
    }
    for (size_t i = 0; i < p->library.n; i++) {
        if (strcmp(p->library.at[i].name, name) == 0) {
            return p->library.at[i].page;
        }
    }
    return NULL;
}
