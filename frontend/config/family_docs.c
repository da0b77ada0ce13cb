/* Writes docs/families.md from the pages: every family, what its config.json may hold, and the
 * residual systems that a config can name. */
#include <string.h>

#include "frontend/config/family.h"

typedef struct writer {
    hfe_program *p;
    hd_text *out;
    HD_VEC(const hfe_def *) shared; /* configs that families include, or that fields hold */
} writer;

/* ---- pieces of source ---------------------------------------------------------------------- */

/* Returns the source text of an expression that stands on one line. */
static const char *source_of(const writer *w, const hfe_file *file, const hfe_expr *x) {
    const char *line = file->text;
    for (uint32_t n = 1; n < x->loc.line && line; n++) {
        line = strchr(line, '\n');
        line += line != NULL;
    }
    const size_t from = x->loc.column - 1, to = x->loc.end_column - 1;
    return line && to > from && strcspn(line, "\n") >= to
               ? hd_strndup(w->p->arena, line + from, to - from)
               : "...";
}

static const hfe_file *file_of(const hfe_known_field *f) {
    return f->config->file;
}

/* Writes the text of the comment at the head of a page. */
static void add_head_comment(writer *w, const hfe_file *file) {
    const char *line = file->text;
    while (*line == '#') {
        const size_t n = strcspn(line, "\n");
        const char *text = line + 1 + (line[1] == ' ');
        const bool code = strncmp(line, "#     ", 6) == 0;
        hd_text_f(w->out, "%s%.*s\n", code ? "    " : "", (int)(n - (size_t)(text - line)), text);
        line += n + (line[n] == '\n');
    }
    hd_text_add(w->out, "\n");
}

/* ---- fields --------------------------------------------------------------------------------- */

static void add_range(writer *w, const hfe_known_field *f, const char *least, const char *most) {
    const hfe_expr *const *aspect = f->declaration.aspect;
    const hfe_expr *above = aspect[HFE_ASPECT_above];
    if (aspect[HFE_ASPECT_least]) least = source_of(w, file_of(f), aspect[HFE_ASPECT_least]);
    if (aspect[HFE_ASPECT_most]) most = source_of(w, file_of(f), aspect[HFE_ASPECT_most]);
    if (above) {
        hd_text_f(w->out, "above %s", source_of(w, file_of(f), above));
        if (*most) hd_text_f(w->out, " to %s", most);
    } else if (*most) {
        hd_text_f(w->out, "%s to %s", least, most);
    } else {
        hd_text_f(w->out, "%s%s", *least ? "from " : "a number that f32 holds", least);
    }
}

static void add_words(writer *w, const hfe_expr *list) {
    for (size_t i = 0; list->kind == HFE_X_LIST && i < list->list.list.n; i++) {
        const char *word = hfe_literal(list->list.list.at[i]);
        hd_text_f(w->out, "%s`%s`", i > 0 ? ", " : "", word ? word : "...");
    }
}

static void add_allowed(writer *w, const hfe_known_field *f) {
    const hfe_declaration *d = &f->declaration;
    const char *honoured = hfe_literal(d->aspect[HFE_ASPECT_honoured]);
    if (honoured) {
        hd_text_add(w->out, honoured);
        return;
    }
    switch (d->kind) {
    case HFE_KIND_INT: add_range(w, f, "1", "2147483647"); break;
    case HFE_KIND_FLOAT: add_range(w, f, "", ""); break;
    case HFE_KIND_BOOL: hd_text_add(w->out, "true, false"); break;
    case HFE_KIND_WORD: add_words(w, d->aspect[HFE_ASPECT_one_of]); break;
    case HFE_KIND_TEXT: hd_text_add(w->out, "a string"); break;
    case HFE_KIND_INTS:
        hd_text_add(w->out, "a list of ");
        add_range(w, f, "1", "2147483647");
        break;
    case HFE_KIND_FLOATS: hd_text_add(w->out, "a list of numbers"); break;
    case HFE_KIND_BOOLS: hd_text_add(w->out, "a list of true and false"); break;
    case HFE_KIND_WORDS: hd_text_add(w->out, "a list of strings"); break;
    case HFE_KIND_OBJECT:
        hd_text_f(w->out, "an object: [%s](#%s)", d->aspect[HFE_ASPECT_of]->name,
                  d->aspect[HFE_ASPECT_of]->name);
        break;
    case HFE_KIND_NUMBERED:
        hd_text_f(w->out, "an object of objects, by number: [%s](#%s)",
                  d->aspect[HFE_ASPECT_of]->name, d->aspect[HFE_ASPECT_of]->name);
        break;
    case HFE_KIND_SYSTEM:
        hd_text_add(w->out, "an object: [residual systems](#residual-systems)");
        break;
    default: hd_text_add(w->out, "anything"); break;
    }
    hd_text_add(w->out, d->aspect[HFE_ASPECT_null] ? "; null" : "");
}

static void add_absent(writer *w, const hfe_known_field *f) {
    const hfe_expr *x = f->declaration.aspect[HFE_ASPECT_default];
    if (f->declaration.kind == HFE_KIND_SYSTEM)
        hd_text_add(w->out, "the standard stream");
    else if (!x)
        hd_text_add(w->out, "required");
    else if (x->kind == HFE_X_NONE)
        hd_text_add(w->out, "none");
    else
        hd_text_f(w->out, "`%s`", source_of(w, file_of(f), x));
}

static void add_field(writer *w, const hfe_known_field *f) {
    const char *also = hfe_literal(f->declaration.aspect[HFE_ASPECT_also]);
    hd_text_f(w->out, "| `%s`%s%s%s | ", f->name, also ? ", or `" : "", also ? also : "",
              also ? "`" : "");
    add_allowed(w, f);
    hd_text_add(w->out, " | ");
    add_absent(w, f);
    hd_text_f(w->out, " | %s |\n", f->meaning);
}

static void add_single(writer *w, const hfe_known_field *f) {
    hd_text_f(w->out, "- `%s`, only ", f->name);
    for (size_t i = 2; i < f->only->call.args.n; i++) {
        const hfe_expr *x = f->only->call.args.at[i].value;
        hd_text_f(w->out, "%s%s", i > 2 ? " or " : "",
                  x->kind == HFE_X_NONE ? "null" : source_of(w, file_of(f), x));
    }
    hd_text_f(w->out, ": %s\n", f->meaning);
}

/* Writes the ignored fields, grouped by their meaning. */
static void add_ignored(writer *w, const hfe_def *config, const hfe_known_fields *fields) {
    const char *meaning = NULL;
    for (size_t i = 0; i < fields->list.n; i++) {
        const hfe_known_field *f = &fields->list.at[i];
        if (f->config != config || f->declared || f->only || f->alias_of || f->inside) continue;
        if (!meaning || strcmp(meaning, f->meaning) != 0)
            hd_text_f(w->out, "%s- ignored, %s: ", meaning ? "\n" : "", f->meaning);
        else
            hd_text_add(w->out, ", ");
        hd_text_f(w->out, "`%s`", f->name);
        meaning = f->meaning;
    }
    hd_text_add(w->out, meaning ? "\n" : "");
}

/* Writes the fields that a config declares itself. */
static void add_own_fields(writer *w, const hfe_def *config) {
    hfe_known_fields fields;
    bool head = false, list = false;
    hfe_list_fields(w->p->arena, config, &fields);
    for (size_t i = 0; i < fields.list.n; i++) {
        const hfe_known_field *f = &fields.list.at[i];
        if (f->config == config && f->declared) {
            hd_text_add(w->out,
                        head ? "" : "| field | honoured | absent | meaning |\n|---|---|---|---|\n");
            add_field(w, f);
            head = true;
        }
    }
    hd_text_add(w->out, head ? "\n" : "");
    for (size_t i = 0; i < fields.list.n; i++) {
        const hfe_known_field *f = &fields.list.at[i];
        if (f->config == config && f->only) add_single(w, f);
        if (f->config == config && f->inside)
            hd_text_f(w->out, "- `%s`: %s, those of [%s](#%s)\n", f->name, f->meaning,
                      f->inside->name, f->inside->name);
        list |= f->config == config && !f->declared && !f->alias_of;
    }
    add_ignored(w, config, &fields);
    hd_text_add(w->out, list ? "\n" : "");
}

/* ---- configs --------------------------------------------------------------------------------- */

static void add_shared(writer *w, const hfe_def *config) {
    for (size_t i = 0; i < w->shared.n; i++)
        if (w->shared.at[i] == config) return;
    hd_push(w->p->arena, &w->shared, config);
}

/* Lists the configs that a config includes, or that its fields hold, each as the source has it. */
static void add_inclusions(writer *w, const hfe_def *config, bool said) {
    for (size_t i = 0; i < config->body.list.n; i++) {
        const hfe_stmt *s = config->body.list.at[i];
        hfe_declaration d;
        const hfe_def *other = NULL;
        if (s->kind == HFE_S_INCLUDE) {
            other = hfe_included_config(config->file, s);
            const hfe_expr *x = s->value;
            const bool given = x->kind == HFE_X_CALL;
            const bool inside = s->name; /* a field holds this object */
            if (inside && other && other->file != config->file)
                continue; /* it is a family with a page of its own, which is listed */
            if (said && !inside && other)
                hd_text_f(w->out, "Fields of [%s](#%s)%s%s%s.\n", other->name, other->name,
                          given ? ", as `" : "", given ? source_of(w, config->file, x) : "",
                          given ? "`" : "");
        } else if (hfe_is_declaration(NULL, s, &d) &&
                   (d.kind == HFE_KIND_OBJECT || d.kind == HFE_KIND_NUMBERED)) {
            other = hfe_find_config(config->file, d.aspect[HFE_ASPECT_of]->name);
        }
        if (other) add_shared(w, other);
    }
    hd_text_add(w->out, said ? "\n" : "");
}

static void add_pages(writer *w, const char *folder) {
    hfe_candidates pages = {0};
    hfe_pages_in(w->p, folder, &pages);
    for (size_t i = 0; i < pages.list.n; i++) {
        const char *name = pages.list.at[i];
        const hfe_file *page = hfe_read_page(w->p, hd_printf(w->p->arena, "%s/%s", folder, name));
        const hfe_def *config = page ? hfe_page_config(w->p, page, name) : NULL;
        if (!config || strcmp(name, "system") == 0 || !hfe_page_model(page)) continue;
        hd_text_f(w->out, "### `%s`\n\n", name);
        add_head_comment(w, page);
        add_inclusions(w, config, true);
        add_own_fields(w, config);
    }
}

static void add_systems(writer *w) {
    hfe_candidates pages = {0};
    hfe_pages_in(w->p, "residual", &pages);
    for (size_t i = 0; i < pages.list.n; i++) {
        const char *name = pages.list.at[i];
        const hfe_file *page = hfe_read_page(w->p, hd_printf(w->p->arena, "residual/%s", name));
        const hfe_def *config = page ? hfe_page_config(w->p, page, name) : NULL;
        if (!config || strcmp(name, "system") == 0) continue;
        hd_text_f(w->out, "### type `%s`\n\n", name);
        hfe_known_fields fields;
        hfe_list_fields(w->p->arena, config, &fields);
        if (fields.list.n == 0) hd_text_add(w->out, "No other field.\n\n");
        add_own_fields(w, config);
    }
}

void hfe_families_text(hd_arena *a, hd_diags *d, const hfe_options *options, hd_text *out) {
    hfe_program p = {.arena = a, .diags = d, .options = options, .errors = d->errors};
    writer w = {.p = &p, .out = out};
    hd_text_add(
        out,
        "# Families of models that can be imported\n\n"
        "Made by `hadal families` from the pages in `frontend/std/families/` and "
        "`frontend/std/residual/`; how a folder is imported: [importing.md](importing.md), how a "
        "page is written: [language.md](language.md#families). The name of a page is the "
        "`model_type` of the "
        "config. A field that is listed nowhere here is an error.\n\n## Families\n\n");
    add_pages(&w, "families");
    hd_text_add(out, "## Fields of several families\n\nA default that is a name is said by the "
                     "family, or by the config in whose parameters it stands.\n\n");
    for (size_t i = 0; i < w.shared.n; i++) {
        const hfe_def *config = w.shared.at[i];
        hd_text_f(out, "### %s\n\n", config->name);
        add_inclusions(&w, config, true);
        add_own_fields(&w, config);
    }
    hd_text_add(
        out, "## Residual systems\n\nWithout `attn_res_block_size` and `residual` a model has the "
             "standard residual stream. `attn_res_block_size` alone is Block Attention Residuals "
             "with blocks of that "
             "many transformer layers. `residual` names a system in `type`; its other fields are "
             "those of the type. "
             "What the systems do is said on their pages.\n\n");
    add_systems(&w);
}
