/* What the files next to a tokenizer.json add to it. transformers joins these files, and so does
 * this code: tokens that only they list are tokens, their flags take precedence, and where the
 * tokenizer's class reads add_bos_token and add_eos_token these decide which tokens are put around
 * a text. Source: the fast tokenizers of transformers 4.57 (tokens around a text) and 5.24 (all
 * else). */
#include <stdlib.h>
#include <string.h>

#include "support/file.h"
#include "text/read.h"

/* Tokens with a name of their own in the config; the value is a string or an object. */
static const char *const named[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                    "pad_token", "cls_token", "mask_token"};
enum { NAMED = sizeof named / sizeof *named };

static bool ends_with(const char *name, const char *end) {
    const size_t n = strlen(name), k = strlen(end);
    return n >= k && strcmp(name + n - k, end) == 0;
}

static bool open_beside(hd_arena *a, hd_diags *d, const char *path, const char *name, field *out) {
    const char *file = hd_path_join(a, hd_path_dir(a, path), name);
    *out = (field){0};
    if (!hd_exists(file)) return true;
    return field_open(a, d, "tokenizer", file, out) && field_is_object(out);
}

bool open_config_files(hd_arena *a, hd_diags *d, const char *path, config_files *out) {
    *out = (config_files){0};
    if (!open_beside(a, d, path, "tokenizer_config.json", &out->config)) return false;
    const field listed = field_get(&out->config, "added_tokens_decoder");
    /* The other two files belong to older versions; here they are not read. */
    if (!field_is_null(&listed)) return true;
    return open_beside(a, d, path, "special_tokens_map.json", &out->map) &&
           open_beside(a, d, path, "added_tokens.json", &out->added);
}

field joined_field(const config_files *b, const char *name) {
    const field of_map = field_get(&b->map, name);
    return of_map.value ? of_map : field_get(&b->config, name);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

typedef struct joining {
    reader *r;
    string_map index; /* finds the tokens in r->t->added by content */
    int32_t next;     /* the id of the next new token */
    size_t old;       /* tokens before those that have a name, whose flags count */
    size_t renumbered;
    field first; /* the first token that gets another id than the one in the file */
    int32_t first_id;
} joining;

static added_token *added_of(joining *j, string content) {
    const int32_t i = string_map_find(&j->index, content.at, content.n);
    return i < 0 ? NULL : &j->r->t->added.at[i];
}

/* Adds a token that is not among the added ones yet: with its id in the vocabulary, or else with
 * the next free id. */
static bool add_new(joining *j, const field *at, added_token a) {
    tokenizer *t = j->r->t;
    const int32_t of_vocab = string_map_find(&t->bpe.vocab, a.content.at, a.content.n);
    a.id = of_vocab >= 0 ? of_vocab : j->next;
    if (a.id >= MOST_IDS) {
        field_error(at, HD_E_FORMAT, "there are too many tokens");
        return false;
    }
    if (of_vocab < 0) j->next++;
    string_map_add(&j->index, a.content.at, a.content.n, (int32_t)t->added.n);
    return add_token(j->r, at, a);
}

/* Joins a token with its flags; `stated` is its id in the file, or -1 if the file states none. */
static bool join_token(joining *j, const field *at, added_token a, int64_t stated) {
    added_token *known = added_of(j, a.content);
    if (!a.content.n) return true; /* an empty token is skipped */
    if (known) {
        a.id = known->id;
        *known = a;
        j->r->t->special[a.id] = a.special;
    } else if (!add_new(j, at, a)) {
        return false;
    }
    a.id = added_of(j, a.content)->id;
    if (stated < 0 || stated == a.id) return true;
    if (!j->renumbered++) j->first = *at, j->first_id = a.id;
    return true;
}

/* Joins a token that has a name, or stands in a list of special tokens. */
static bool join_special(joining *j, const field *f) {
    const field object = *f, inner = field_get(&object, "content");
    const field *content = json_is_object(f->value) ? &inner : f;
    added_token a = {.special = true};
    if (field_is_null(f)) return true;
    if (!read_text(j->r, content, &a.content)) return false;
    if (content != f && !read_token_flags(f, &a)) return false;
    a.special = true;
    const added_token *known = added_of(j, a.content);
    const bool old = known && (size_t)(known - j->r->t->added.at) < j->old;
    if (known && (old || content == f)) a = *known, a.special = true;
    return join_token(j, f, a, -1);
}

/* Joins the members of a list or an object. */
static bool join_members(joining *j, const field *members) {
    const char *name;
    json_t *value;
    for (size_t k = 0; k < json_array_size(members->value); k++) {
        const field f = field_element(members, k);
        if (!join_special(j, &f)) return false;
    }
    json_object_foreach(members->value, name, value) {
        const field f = field_get(members, name);
        if (!join_special(j, &f)) return false;
    }
    return true;
}

static bool is_named(const char *name) {
    for (size_t i = 0; i < NAMED; i++)
        if (strcmp(name, named[i]) == 0) return true;
    return false;
}

/* Tokens of a kind of model, such as image_token: any name that ends so and has a string, or an
 * object, which in tokenizer_config.json says that it is a token. */
static bool is_own_name(const char *name, const json_t *value, bool object) {
    return ends_with(name, "_token") && !is_named(name) &&
           (object ? json_is_object(value) : json_is_string(value));
}

/* Joins them: objects of the config, those of the map, and strings of the config; the map has other
 * values for objects, and the config for what are strings there. *any: there are such strings. */
static bool join_own_names(joining *j, const config_files *b, bool *any) {
    const char *name;
    json_t *value;
    json_object_foreach(b->config.value, name, value) {
        const field f = joined_field(b, name);
        if (is_own_name(name, value, true) && json_object_get(value, "__type") &&
            !join_special(j, &f))
            return false;
    }
    json_object_foreach(b->map.value, name, value) {
        const field of_config = field_get(&b->config, name), of_map = field_get(&b->map, name);
        if ((is_own_name(name, value, true) || is_own_name(name, value, false)) &&
            !join_special(j, json_is_string(of_config.value) ? &of_config : &of_map))
            return false;
    }
    json_object_foreach(b->config.value, name, value) {
        const field f = field_get(&b->config, name);
        if (!is_own_name(name, value, false)) continue;
        *any = true;
        if (!join_special(j, &f)) return false;
    }
    return true;
}

static bool is_empty(const field *f) {
    return !json_array_size(f->value) && !json_object_size(f->value);
}

/* Tokens with a name come first, then those of a kind of model, then lists, as transformers adds
 * them; special_tokens_map.json is read over tokenizer_config.json. The older name of the lists
 * counts where the newer one has none. */
static bool join_specials(joining *j, const config_files *b) {
    const field extra = field_get(&b->config, "extra_special_tokens"),
                older = field_get(&b->config, "additional_special_tokens"),
                more = field_get(&b->map, "extra_special_tokens"),
                older_of_map = field_get(&b->map, "additional_special_tokens"),
                of_model = field_get(&b->config, "model_specific_special_tokens"),
                *first = is_empty(&extra) ? &older : &extra;
    bool own = json_object_size(first->value) > 0;
    j->old = j->r->t->added.n;
    for (size_t i = 0; i < NAMED; i++) {
        const field f = joined_field(b, named[i]);
        if (!join_special(j, &f)) return false;
    }
    if (!join_own_names(j, b, &own)) return false;
    if (json_is_object(first->value) && !join_members(j, first)) return false;
    if (!own && !join_members(j, &of_model)) return false;
    if (json_is_object(more.value)) return join_members(j, &more);
    const field *list = json_is_array(first->value) ? first : first == &extra ? &older : NULL;
    if (list && !join_members(j, list)) return false;
    return is_empty(&more) && (!list || is_empty(list)) ? join_members(j, &older_of_map)
                                                        : join_members(j, &more);
}

/* The members of an object sorted by their ids, which are either the names or the values of the
 * members. */
typedef struct numbered {
    int64_t id;
    const char *name;
} numbered;

static int by_id(const void *x, const void *y) {
    const int64_t a = ((const numbered *)x)->id, b = ((const numbered *)y)->id;
    return (a > b) - (a < b);
}

static numbered *in_order(joining *j, const field *object, bool named_so, size_t *n) {
    const char *name;
    json_t *value;
    numbered *list = hd_new_array(j->r->arena, numbered, json_object_size(object->value) + 1);
    *n = 0;
    json_object_foreach(object->value, name, value) {
        const field f = field_get(object, name);
        numbered *one = &list[(*n)++];
        char *end = NULL;
        one->name = name;
        if (!named_so) {
            if (!field_integer(&f, 0, MOST_IDS - 1, &one->id)) return NULL;
            continue;
        }
        one->id = *name >= '0' && *name <= '9' ? strtoll(name, &end, 10) : -1;
        if (one->id >= 0 && one->id < MOST_IDS && !*end) continue;
        field_error(&f, HD_E_FORMAT, "its name is no token id");
        return NULL;
    }
    qsort(list, *n, sizeof *list, by_id);
    return list;
}

static bool join_decoder(joining *j, const field *tokens) {
    size_t n;
    if (field_is_null(tokens)) return true;
    if (!field_is_object(tokens)) return false;
    const numbered *list = in_order(j, tokens, true, &n);
    for (size_t i = 0; list && i < n; i++) {
        const field f = field_get(tokens, list[i].name), content = field_get(&f, "content");
        added_token a = {0};
        if (!field_is_object(&f) || !read_text(j->r, &content, &a.content) ||
            !read_token_flags(&f, &a) || !join_token(j, &f, a, list[i].id))
            return false;
    }
    return list != NULL;
}

/* Joins the tokens of added_tokens.json, which maps content to ids. */
static bool join_ids(joining *j, const field *tokens) {
    size_t n;
    const numbered *list = in_order(j, tokens, false, &n);
    for (size_t i = 0; list && i < n; i++) {
        const field f = field_get(tokens, list[i].name);
        const string content = {hd_strdup(j->r->arena, list[i].name), strlen(list[i].name)};
        const added_token *known = added_of(j, content);
        const added_token a = {.content = content, .normalized = true};
        if (!join_token(j, &f, known ? *known : a, list[i].id)) return false;
    }
    return list != NULL;
}

static void note_renumbered(const joining *j) {
    if (!j->renumbered) return;
    const field content = field_get(&j->first, "content");
    const json_t *token = content.value ? content.value : j->first.value;
    const char *others = j->renumbered > 1
                             ? hd_printf(j->first.json->arena, ", and %zu other%s likewise",
                                         j->renumbered - 1, hd_s(j->renumbered - 1))
                             : "";
    field_note(&j->first, "the token %s has the id %d: by tokenizer.json, or the next one%s",
               hd_json_show(j->first.json->arena, token), j->first_id, others);
}

bool read_config_tokens(reader *r, const config_files *b) {
    tokenizer *t = r->t;
    joining j = {.r = r, .next = (int32_t)t->bpe.vocab.n};
    const field listed = field_get(&b->config, "added_tokens_decoder");
    string_map_init(&j.index, r->arena, t->added.n + 1);
    for (size_t i = 0; i < t->added.n; i++) {
        const added_token *a = &t->added.at[i];
        string_map_add(&j.index, a->content.at, a->content.n, (int32_t)i);
        if (a->id >= j.next) j.next = a->id + 1;
    }
    if (!join_decoder(&j, &listed) || !join_ids(&j, &b->added) || !join_specials(&j, b))
        return false;
    note_renumbered(&j);
    const field apart = joined_field(b, "split_special_tokens");
    if (!field_is_null(&apart) && !field_bool(&apart, &t->splits_special)) return false;
    if (t->splits_special) field_note(&apart, "special tokens in a text are text");
    return true;
}

/* ---- a space before a text ------------------------------------------------------------------- */

/* True if a step other than ByteLevel puts a space, or the character for it, before a text. */
static bool has_prefix(const tokenizer *t) {
    for (size_t i = 0; i < t->normalizers.n; i++)
        if (t->normalizers.at[i].kind == NORMALIZER_PREPEND) return true;
    for (size_t i = 0; i < t->splitters.n; i++)
        if (t->splitters.at[i].kind == SPLITTER_METASPACE &&
            t->splitters.at[i].scheme != PREPEND_NEVER)
            return true;
    return false;
}

/* Two classes follow add_prefix_space (false where it is absent) if texts are split by a ByteLevel
 * step alone; other classes follow tokenizer.json. */
bool read_config_prefix(reader *r, const config_files *b) {
    tokenizer *t = r->t;
    const field prefix = joined_field(b, "add_prefix_space"),
                class = field_get(&b->config, "tokenizer_class");
    const char *name = json_string_value(class.value);
    const bool reads =
        name && (is_class(name, "GPT2Tokenizer") || is_class(name, "Qwen2Tokenizer"));
    bool wanted = false, of_bytes = false;
    if (json_is_null(prefix.value) || (!prefix.value && !reads)) return true;
    if (prefix.value && !field_bool(&prefix, &wanted)) return false;
    for (size_t i = 0; i < t->splitters.n; i++) {
        splitter *s = &t->splitters.at[i];
        of_bytes |= s->kind == SPLITTER_BYTE_LEVEL;
        if (s->kind != SPLITTER_BYTE_LEVEL || s->add_prefix_space == wanted) continue;
        const bool taken = reads && t->splitters.n == 1;
        field_note(prefix.value ? &prefix : &class,
                   "%s space is put before a text; tokenizer.json %s", taken == wanted ? "a" : "no",
                   taken ? "says otherwise" : "decides");
        if (taken) s->add_prefix_space = wanted;
    }
    if (prefix.value && !of_bytes && has_prefix(t) != wanted)
        field_note(&prefix, "%s space is put before a text; tokenizer.json decides",
                   wanted ? "no" : "a");
    return true;
}

/* ---- what is not read ------------------------------------------------------------------------ */

/* A value that requests nothing is null, false or empty. */
static bool asks(const json_t *v) {
    if (json_is_array(v) || json_is_object(v)) return json_array_size(v) || json_object_size(v);
    return v && !json_is_null(v) && !json_is_false(v) &&
           !(json_is_string(v) && !json_string_length(v));
}

void note_unknown_fields(const field *file) {
    static const char *const known[] = {
#define FIELD(group, name) #name,
#include "text/tokenizer_config.def"
    };
    const char *name;
    json_t *value;
    json_object_foreach(file->value, name, value) {
        bool found = ends_with(name, "_token") || !asks(value);
        for (size_t i = 0; !found && i < sizeof known / sizeof *known; i++)
            found = strcmp(name, known[i]) == 0;
        const field f = field_get(file, name);
        if (!found) field_note(&f, "not known, and not applied");
    }
}

/* Notes fields by which other programs choose another tokenizer than that of tokenizer.json. */
void note_unread_fields(const config_files *b) {
    static const char corrupt[] =
        "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output";
    const field map = field_get(&b->config, "auto_map"), code = field_get(&map, "AutoTokenizer"),
                mended = field_get(&b->config, "fix_mistral_regex"),
                files = field_get(&b->config, "fast_tokenizer_files"),
                cleaned = field_get(&b->config, "clean_up_tokenization_spaces"),
                forced = field_get(&b->config, corrupt);
    note_unknown_fields(&b->config);
    note_unknown_fields(&b->map);
    if (!field_is_null(&code))
        field_note(&code, "code of a model's own is not run: tokenizer.json decides");
    if (json_is_true(mended.value))
        field_note(&mended, "the pattern is not replaced: tokenizer.json decides");
    if (json_is_true(forced.value) && json_is_true(cleaned.value))
        field_note(&forced, "spaces before punctuation are not taken out of texts");
    for (size_t i = 0; i < json_array_size(files.value); i++) {
        const field f = field_element(&files, i);
        const char *name = json_string_value(f.value);
        if (!name || strcmp(name, "tokenizer.json") == 0) continue;
        field_note(&f, "files for versions of other programs are not read: tokenizer.json decides");
        return;
    }
}

/* ---- tokens around a text -------------------------------------------------------------------- */

/* Tokenizer classes that read add_bos_token and add_eos_token (false where the latter is absent),
 * and the tokens that they add where the files name none. */
typedef struct class_of_ends {
    const char *class;
    /* `begins` stands for an absent add_bos_token, with `always` also where both fields are
     * absent. */
    bool begins, always;
    const char *first, *last;
} class_of_ends;

static const class_of_ends classes[] = {
    {"LlamaTokenizer", true, false, "<s>", "</s>"},
    {"CodeLlamaTokenizer", true, true, "<s>", "</s>"},
    {"GemmaTokenizer", true, false, "<bos>", "<eos>"},
    {"CohereTokenizer", true, false, "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"},
    {"GPTNeoXTokenizer", false, true, "<|endoftext|>", "<|endoftext|>"},
};

/* Returns NULL for a class that does not read the two fields. A config without a class has that of
 * Llama. */
static const class_of_ends *class_of(const char *name) {
    if (!name) return &classes[0];
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (is_class(name, classes[i].class)) return &classes[i];
    return NULL;
}

/* Finds the content of bos_token or eos_token; the result is "" if the field is null. */
static bool token_named(const config_files *b, const char *name, const char *otherwise,
                        const char **out) {
    const field f = joined_field(b, name), inner = field_get(&f, "content");
    *out = otherwise;
    if (!f.value) return true;
    *out = "";
    return json_is_null(f.value) || field_string(json_is_object(f.value) ? &inner : &f, out);
}

static int32_t token_id(const tokenizer *t, const char *token) {
    const int32_t id = string_map_find(&t->added_ids, token, strlen(token));
    return id >= 0 ? id : string_map_find(&t->bpe.vocab, token, strlen(token));
}

/* A class decides without a field as well, if the token that it begins with is there. */
static bool decides_alone(const tokenizer *t, const config_files *b, const class_of_ends *c) {
    const char *token;
    if (!c || !c->always) return false;
    return !c->begins || (token_named(b, "bos_token", c->first, &token) && token_id(t, token) >= 0);
}

/* Decides whether a token is added at one end of a text, and which. */
static bool read_end(const tokenizer *t, const config_files *b, const char *which, bool otherwise,
                     const char *name, const char *by_class, id_list *out) {
    const field f = field_get(&b->config, which);
    bool wanted = f.value ? false : otherwise; /* null means false */
    const char *token;
    if (!field_optional_bool(&b->config, which, &wanted) || !token_named(b, name, by_class, &token))
        return false;
    if (!wanted) return true;
    if (!*token) {
        field_note(&f, "there is no %s, so that none is added", name);
        return true;
    }
    const int32_t id = token_id(t, token);
    if (id < 0) {
        field_error(&f, HD_E_FORMAT, "there is no token \"%s\" to add", token)->hint =
            hd_printf(f.json->arena, "%s names it", name);
        return false;
    }
    hd_push(t->arena, out, id);
    return true;
}

static bool same_ids(const id_list *a, const id_list *b) {
    return a->n == b->n && (!a->n || memcmp(a->at, b->at, a->n * sizeof *a->at) == 0);
}

static const char *ids_text(hd_arena *a, const tokenizer *t, const id_list *ids) {
    hd_text text;
    hd_text_init(&text, a);
    hd_text_add(&text, ids->n ? "" : "nothing");
    for (size_t i = 0; i < ids->n; i++) {
        if (i) hd_text_add(&text, " ");
        hd_text_quoted(&text, t->tokens[ids->at[i]].at);
    }
    return text.at;
}

bool read_config_ends(reader *r, const config_files *b) {
    tokenizer *t = r->t;
    const field bos = field_get(&b->config, "add_bos_token"),
                eos = field_get(&b->config, "add_eos_token"),
                class = field_get(&b->config, "tokenizer_class");
    const char *name = json_string_value(class.value);
    const class_of_ends *c = class_of(name), *of = c ? c : &classes[0];
    id_list before = {0}, after = {0};
    if (!bos.value && !eos.value && !(name && decides_alone(t, b, c))) return true;
    const field *first = bos.value ? &bos : eos.value ? &eos : &class;
    if (!c) { /* a field that is false or absent requests no token */
        const bool differs = (json_is_true(bos.value) && !t->before.n) ||
                             (json_is_false(bos.value) && t->before.n) ||
                             (json_is_true(eos.value) && !t->after.n) ||
                             (json_is_false(eos.value) && t->after.n);
        if (differs)
            field_note(
                first,
                "not read for tokenizers of the class %s, as in transformers: tokenizer.json "
                "puts %s before a text and %s after it",
                name, ids_text(r->arena, t, &t->before), ids_text(r->arena, t, &t->after));
        return true;
    }
    if (!read_end(t, b, "add_bos_token", of->begins, "bos_token", of->first, &before) ||
        !read_end(t, b, "add_eos_token", false, "eos_token", of->last, &after))
        return false;
    if (same_ids(&before, &t->before) && same_ids(&after, &t->after)) return true;
    field_note(first,
               "%s stands before a text and %s after it; by tokenizer.json alone it is %s and %s",
               ids_text(r->arena, t, &before), ids_text(r->arena, t, &after),
               ids_text(r->arena, t, &t->before), ids_text(r->arena, t, &t->after));
    t->before = before, t->after = after;
    return true;
}
