/* Which chat template a folder has, and what it sees: messages, tools and special tokens. Source:
 * apply_chat_template of transformers 5.24. */
#include "text/chat.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "support/file.h"
#include "text/read.h"

enum { MOST_FILE = 4 << 20 };

/* ---- reading --------------------------------------------------------------------------------- */

static void add_source(hd_arena *a, chat_templates *c, const char *name, const char *file,
                       bool embedded, const char *text, size_t n) {
    chat_source s = {.name = name, .file = file, .embedded = embedded};
    s.template = jinja_parse(a, text, n, &s.error);
    hd_push(a, &c->list, s);
}

static bool read_source(hd_arena *a, hd_diags *d, chat_templates *c, const char *name,
                        const char *file) {
    size_t n;
    const char *text = hd_read_text(a, d, file, MOST_FILE, &n);
    if (!text) return false;
    hd_diags_source(d, file, text);
    add_source(a, c, name, file, false, text, n);
    return true;
}

static int by_name(const void *x, const void *y) {
    return strcmp(*(const char *const *)x, *(const char *const *)y);
}

typedef struct open_folder { /* closed with the arena at the latest */
    DIR *dir;
} open_folder;

static void close_folder(void *what) {
    open_folder *f = what;
    if (f->dir) closedir(f->dir);
    f->dir = NULL;
}

/* Reads the .jinja files of additional_chat_templates, in the order of their names. */
static bool read_additional(hd_arena *a, hd_diags *d, chat_templates *c) {
    enum { MOST = 64 };
    const char *path = hd_path_join(a, c->folder, "additional_chat_templates"), *files[MOST];
    open_folder *f = hd_new(a, open_folder);
    size_t n = 0;
    hd_arena_defer(a, close_folder, f);
    f->dir = opendir(path);
    for (struct dirent *e; f->dir && n < MOST && (e = readdir(f->dir));)
        if (hd_ends_with(e->d_name, ".jinja")) files[n++] = hd_strdup(a, e->d_name);
    close_folder(f);
    if (n) qsort(files, n, sizeof *files, by_name);
    for (size_t i = 0; i < n; i++) {
        const char *name = hd_strndup(a, files[i], strlen(files[i]) - strlen(".jinja"));
        if (!read_source(a, d, c, name, hd_path_join(a, path, files[i]))) return false;
    }
    return true;
}

/* A text, a list of {"name", "template"}, or an object of texts by name. */
static bool read_embedded(hd_arena *a, chat_templates *c, const field *f) {
    const char *text;
    if (field_is_null(f)) return true;
    if (json_is_string(f->value)) {
        add_source(a, c, "default", f->json->file, true, json_string_value(f->value),
                   json_string_length(f->value));
        return true;
    }
    if (json_is_object(f->value)) {
        const char *name;
        json_t *value;
        json_object_foreach(f->value, name, value) {
            const field one = field_get(f, name);
            if (!field_string(&one, &text)) return false;
            add_source(a, c, hd_strdup(a, name), f->json->file, true, text, strlen(text));
        }
        return true;
    }
    if (!json_is_array(f->value)) {
        field_error(f, HD_E_FORMAT, "must be a text, or texts by name in a list or an object");
        return false;
    }
    for (size_t i = 0; i < json_array_size(f->value); i++) {
        const field one = field_element(f, i), name = field_get(&one, "name"),
                    source = field_get(&one, "template");
        const char *called;
        if (!field_is_object(&one) || !field_string(&name, &called) ||
            !field_string(&source, &text))
            return false;
        add_source(a, c, hd_strdup(a, called), f->json->file, true, text, strlen(text));
    }
    return true;
}

/* Strings, and objects with a content, that are called ..._token. */
static void read_tokens(hd_arena *a, chat_templates *c, const field *file) {
    const char *name;
    json_t *value;
    json_object_foreach(file->value, name, value) {
        const json_t *content = json_is_object(value) ? json_object_get(value, "content") : value;
        bool known = !hd_ends_with(name, "_token") || !json_is_string(content);
        for (size_t i = 0; !known && i < c->tokens.n; i++)
            known = strcmp(c->tokens.at[i].name, name) == 0;
        const chat_token t = {name, json_string_value(content)};
        if (!known) hd_push(a, &c->tokens, t);
    }
}

static bool read_control(hd_arena *a, chat_templates *c, const field *list) {
    if (field_is_null(list)) return true;
    if (!field_is_list(list)) return false;
    c->names_control = true;
    for (size_t i = 0; i < json_array_size(list->value); i++) {
        const field one = field_element(list, i);
        const char *text;
        if (!field_string(&one, &text)) return false;
        hd_push(a, &c->control, text);
    }
    return true;
}

static bool reject_none(hd_arena *a, hd_diags *d, const char *folder) {
    hd_diag *e = hd_err(d, HD_E_CONFIG, HD_NOWHERE, "'%s' has no chat template", folder);
    e->cause =
        "chat_template.jinja, or the field chat_template of tokenizer_config.json, would have it";
    e->hint =
        hd_exists(hd_path_join(a, folder, "chat_template.json"))
            ? "its chat_template.json is of a processor: write its text to chat_template.jinja"
            : "a base model has none, and continues texts: hadal generate";
    return false;
}

chat_templates *chat_read(hd_arena *a, hd_diags *d, const char *folder) {
    chat_templates *c = hd_new(a, chat_templates);
    config_files files;
    c->folder = hd_strdup(a, folder);
    const char *own = hd_path_join(a, folder, "chat_template.jinja");
    if (!open_config_files(a, d, hd_path_join(a, folder, "tokenizer.json"), &files)) return NULL;
    if (hd_exists(own) && !read_source(a, d, c, "default", own)) return NULL;
    if (!read_additional(a, d, c)) return NULL;
    const field embedded = field_get(&files.config, "chat_template"),
                control = field_get(&files.config, "chat_control_tokens");
    if (c->list.n == 0 && !read_embedded(a, c, &embedded)) return NULL;
    if (c->list.n == 0 && !reject_none(a, d, folder)) return NULL;
    read_tokens(a, c, &files.map); /* comes before the config, as for tokenizers */
    read_tokens(a, c, &files.config);
    return read_control(a, c, &control) ? c : NULL;
}

/* ---- choosing -------------------------------------------------------------------------------- */

/* Of two templates of a name the later one counts, as in transformers. */
static const chat_source *named(const chat_templates *c, const char *name) {
    for (size_t i = c->list.n; i-- > 0;)
        if (strcmp(c->list.at[i].name, name) == 0) return &c->list.at[i];
    return NULL;
}

/* The template of that name; without one that for tools where there are tools, else the default. */
static const chat_source *choose(hd_arena *a, hd_diags *d, const chat_templates *c,
                                 const chat_request *r) {
    const chat_source *s = r->name                            ? named(c, r->name)
                           : r->tools && named(c, "tool_use") ? named(c, "tool_use")
                                                              : named(c, "default");
    if (s) return s;
    hd_text names;
    hd_text_init(&names, a);
    for (size_t i = 0; i < c->list.n; i++)
        hd_text_f(&names, "%s%s", i ? ", " : "", c->list.at[i].name);
    hd_err(d, HD_E_NAME, HD_NOWHERE, "'%s' has no chat template called \"%s\"", c->folder,
           r->name ? r->name : "default")
        ->hint = hd_printf(a, "it has %s", names.at);
    return NULL;
}

static bool reject(hd_arena *a, hd_diags *d, const chat_source *s, const jinja_error *e) {
    const hd_loc loc = {
        .file = s->file, .line = s->embedded ? 0 : e->line, .column = s->embedded ? 0 : 1};
    const char *line =
        s->embedded && e->line ? hd_printf(a, "line %u of chat_template: ", e->line) : "";
    if (e->raised)
        hd_err(d, HD_E_VALUE, loc, "%sthe template rejects the messages: %s", line, e->message);
    else
        hd_err(d, e->limit ? HD_E_LIMIT : HD_E_CONFIG, loc, "%s%s", line, e->message);
    return false;
}

/* ---- messages -------------------------------------------------------------------------------- */

static void drop(void *slot) {
    json_decref(*(json_t **)slot);
}

json_t **chat_slot(hd_arena *a) {
    json_t **slot = hd_new(a, json_t *);
    hd_arena_defer(a, drop, slot);
    return slot;
}

static bool reject_messages(hd_diags *d, const char *why) {
    hd_err(d, HD_E_VALUE, HD_NOWHERE, "%s", why);
    return false;
}

/* Names under which a message has its reasoning; templates read the first, and some the second. */
static void name_reasoning(json_t *message) {
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    json_t *reasoning = NULL;
    for (size_t i = 0; !reasoning && i < sizeof names / sizeof *names; i++)
        reasoning = json_object_get(message, names[i]);
    if (!reasoning) return;
    if (!json_object_get(message, "thinking"))
        (void)json_object_set(message, "thinking", reasoning);
    (void)json_object_set(message, "reasoning_content", reasoning);
}

/* A copy of the messages without members that are null. NULL, and an error, if they are no list of
 * objects. */
static json_t *plain_messages(hd_arena *a, hd_diags *d, const json_t *messages) {
    json_t **const slot = chat_slot(a), *out = *slot = json_deep_copy(messages), *one;
    size_t i;
    if (!json_is_array(out) || json_array_size(out) == 0) {
        reject_messages(d, "messages must be a list of at least one");
        return NULL;
    }
    json_array_foreach(out, i, one) {
        const char *name;
        json_t *value;
        void *after;
        if (!json_is_object(one)) {
            reject_messages(
                d,
                "a message must be an object, such as {\"role\": \"user\", \"content\": \"..\"}");
            return NULL;
        }
        json_object_foreach_safe(one, after, name, value) if (json_is_null(value))(void)
            json_object_del(one, name);
        name_reasoning(one);
    }
    return out;
}

/* ---- rendering ------------------------------------------------------------------------------- */

typedef struct variable_list {
    HD_VEC(jinja_variable) list;
} variable_list;

static void add(hd_arena *a, variable_list *v, const char *name, json_t *value, bool content) {
    const jinja_variable one = {name, value, content};
    hd_push(a, &v->list, one);
}

static bool add_all(hd_arena *a, hd_diags *d, const chat_templates *c, const chat_request *r,
                    variable_list *v) {
    static const char *const own[] = {"messages", "tools", "add_generation_prompt"};
    const char *name;
    json_t *value, *messages = plain_messages(a, d, r->messages);
    if (!messages) return false;
    if (r->tools && !json_is_array(r->tools)) return reject_messages(d, "tools must be a list");
    if (r->variables && !json_is_object(r->variables))
        return reject_messages(d, "the variables of a template must be an object");
    for (size_t i = 0; i < c->tokens.n; i++) {
        json_t **slot = chat_slot(a);
        *slot = json_string(c->tokens.at[i].text);
        add(a, v, c->tokens.at[i].name, *slot, false);
    }
    add(a, v, "documents", json_null(), false);
    json_object_foreach(r->variables, name, value) {
        for (size_t i = 0; i < sizeof own / sizeof *own; i++)
            if (strcmp(name, own[i]) == 0)
                return reject_messages(d, hd_printf(a, "%s is no variable that can be set", name));
        add(a, v, name, value, true);
    }
    add(a, v, "messages", messages, true);
    add(a, v, "tools", r->tools ? r->tools : json_null(), true);
    add(a, v, "add_generation_prompt", json_boolean(r->prompts), false);
    return true;
}

bool chat_render(hd_arena *a, hd_diags *d, const chat_templates *c, const chat_request *r,
                 jinja_string *out, const chat_source **used) {
    variable_list v = {0};
    jinja_error e;
    struct tm now;
    const chat_source *s = choose(a, d, c, r);
    *used = s;
    if (!s) return false;
    if (!s->template) return reject(a, d, s, &s->error);
    if (!add_all(a, d, c, r, &v)) return false;
    const jinja_input in = {
        .variables = v.list.at, .n_variables = v.list.n, .now = localtime_r(&r->now, &now)};
    return jinja_render(a, s->template, &in, out, &e) || reject(a, d, s, &e);
}

/* ---- control tokens -------------------------------------------------------------------------- */

static bool is_blank(string s) {
    return space_at_start(s) == s.n;
}

static bool is_named(const chat_templates *c, string s) {
    for (size_t i = 0; i < c->control.n; i++)
        if (strlen(c->control.at[i]) == s.n && memcmp(c->control.at[i], s.at, s.n) == 0)
            return true;
    return false;
}

/* Special tokens are, and those that the config lists; where it has no list those that the template
 * itself writes, but for white space. */
bool *chat_control_tokens(hd_arena *a, const chat_templates *c, const chat_source *used,
                          const tokenizer *t) {
    bool *control = hd_new_array(a, bool, t->added.n + 1);
    for (size_t i = 0; i < t->added.n; i++) {
        const string text = t->added.at[i].content;
        control[i] =
            t->added.at[i].special ||
            (c->names_control ? is_named(c, text)
                              : !is_blank(text) && jinja_mentions(used->template, text.at, text.n));
    }
    return control;
}
