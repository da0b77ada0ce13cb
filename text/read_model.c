/* Reads the vocabulary, the merges, and the tokens that were added to them. */
#include <string.h>

#include "text/read.h"

static string copied(reader *r, const char *text, size_t n) {
    return (string){hd_strndup(r->arena, text, n), n};
}

/* ---- vocabulary ------------------------------------------------------------------------------ */

static void need_ids(reader *r, size_t n) {
    tokenizer *t = r->t;
    if (n <= r->capacity) return;
    while (r->capacity < n)
        r->capacity = r->capacity ? 2 * r->capacity : 1024;
    string *tokens = hd_new_array(t->arena, string, r->capacity);
    bool *special = hd_new_array(t->arena, bool, r->capacity);
    if (t->n_ids) {
        memcpy(tokens, t->tokens, t->n_ids * sizeof *tokens);
        memcpy(special, t->special, t->n_ids * sizeof *special);
    }
    t->tokens = tokens, t->special = special;
}

/* Returns false after an error at `at` if another token has this id. */
static bool claim_id(reader *r, const field *at, int64_t id, string content) {
    tokenizer *t = r->t;
    need_ids(r, (size_t)id + 1);
    if ((size_t)id >= t->n_ids) t->n_ids = (size_t)id + 1;
    string *slot = &t->tokens[id];
    if (slot->at && (slot->n != content.n || memcmp(slot->at, content.at, content.n) != 0)) {
        field_error(at, HD_E_FORMAT, "id %lld is that of another token", (long long)id)->cause =
            hd_printf(at->json->arena, "\"%.*s\" has it", (int)(slot->n < 60 ? slot->n : 60),
                      slot->at);
        return false;
    }
    *slot = content;
    return true;
}

static bool read_vocab(reader *r, const field *vocab) {
    const char *name;
    json_t *value;
    if (!field_is_object(vocab)) return false;
    string_map_init(&r->t->bpe.vocab, r->arena, json_object_size(vocab->value));
    json_object_foreach(vocab->value, name, value) {
        const field f = {vocab->json, vocab, name, 0, value};
        int64_t id;
        if (!field_integer(&f, 0, MOST_IDS - 1, &id)) return false;
        const string content = copied(r, name, strlen(name));
        if (!claim_id(r, &f, id, content)) return false;
        string_map_add(&r->t->bpe.vocab, content.at, content.n, (int32_t)id);
    }
    return true;
}

/* ---- merges ---------------------------------------------------------------------------------- */

/* Reads the two parts of a merge, written as "left right" or as ["left", "right"]. */
static bool merge_parts(const field *f, string *left, string *right) {
    if (json_is_string(f->value)) {
        const char *text = json_string_value(f->value), *space = strchr(text, ' ');
        if (space && !strchr(space + 1, ' ')) {
            *left = (string){text, (size_t)(space - text)};
            *right = (string){space + 1, strlen(space + 1)};
            return true;
        }
    } else if (json_array_size(f->value) == 2) {
        const json_t *a = json_array_get(f->value, 0), *b = json_array_get(f->value, 1);
        if (json_is_string(a) && json_is_string(b)) {
            *left = (string){json_string_value(a), json_string_length(a)};
            *right = (string){json_string_value(b), json_string_length(b)};
            return true;
        }
    }
    field_error(f, HD_E_FORMAT, "must be two tokens, \"a b\" or [\"a\", \"b\"]");
    return false;
}

static bool token_of(const bpe *b, const field *f, string token, const char *what, int32_t *id) {
    *id = string_map_find(&b->vocab, token.at, token.n);
    if (*id >= 0 && token.n > 0) return true;
    field_error(f, HD_E_FORMAT, "%s, \"%.*s\", is not in the vocabulary", what,
                (int)(token.n < 60 ? token.n : 60), token.at);
    return false;
}

/* A merge produces the token that is the concatenation of its parts, so that each token is longer
 * than its parts: there are no cycles. */
static bool read_merge(reader *r, const field *f, size_t rank, hd_text *both) {
    bpe *b = &r->t->bpe;
    string left, right;
    int32_t ids[3];
    if (!merge_parts(f, &left, &right)) return false;
    both->n = 0;
    hd_text_add_n(both, left.at, left.n);
    hd_text_add_n(both, right.at, right.n);
    if (!token_of(b, f, left, "its first part", &ids[0]) ||
        !token_of(b, f, right, "its second part", &ids[1]) ||
        !token_of(b, f, (string){both->at, both->n}, "what it makes", &ids[2]))
        return false;
    bpe_add_merge(b, (uint32_t)ids[0], (uint32_t)ids[1], (uint32_t)rank, ids[2]);
    return true;
}

static bool read_merges(reader *r, const field *merges) {
    if (!field_is_list(merges)) return false;
    hd_text both;
    hd_text_init(&both, r->arena);
    const size_t n = json_array_size(merges->value);
    bpe_merges_init(&r->t->bpe, r->arena, n);
    for (size_t i = 0; i < n; i++) {
        const field f = field_element(merges, i);
        if (!read_merge(r, &f, i, &both)) return false;
    }
    return true;
}

/* ---- the model ------------------------------------------------------------------------------- */

/* Checks that a setting is null or has a value that means the same. */
static bool must_be_off(const field *model, const char *name) {
    const field f = field_get(model, name);
    const char *text = json_string_value(f.value);
    if (field_is_null(&f) || (text && !*text) ||
        (json_is_number(f.value) && json_number_value(f.value) == 0))
        return true;
    field_error(&f, HD_E_UNSUPPORTED, "%s cannot be honoured by this version",
                hd_json_show(f.json->arena, f.value));
    return false;
}

static bool read_unk(reader *r, const field *model) {
    const field f = field_get(model, "unk_token");
    const char *text;
    r->t->bpe.unk = -1;
    if (field_is_null(&f)) return true;
    return field_string(&f, &text) &&
           token_of(&r->t->bpe, &f, (string){text, strlen(text)}, "it", &r->t->bpe.unk);
}

static void find_bytes(bpe *b) {
    char name[8];
    for (unsigned i = 0; i < 256; i++) {
        snprintf(name, sizeof name, "<0x%02X>", i);
        b->bytes[i] = string_map_find(&b->vocab, name, 6);
    }
}

static bool is_bpe(const field *model) {
    const field type = field_get(model, "type");
    const char *name = json_string_value(type.value);
    /* older files have no type; of all models, only BPE has merges */
    if (field_is_null(&type) && json_object_get(model->value, "merges")) return true;
    if (name && strcmp(name, "BPE") == 0) return true;
    field_error(&type, HD_E_UNSUPPORTED, "only byte pair encoding (\"BPE\") is known, not %s",
                type.value ? hd_json_show(type.json->arena, type.value) : "a model without a type");
    return false;
}

bool read_model(reader *r, const field *model) {
    static const char known[] = "type dropout unk_token continuing_subword_prefix "
                                "end_of_word_suffix fuse_unk byte_fallback ignore_merges vocab "
                                "merges";
    bpe *b = &r->t->bpe;
    if (!field_is_object(model) || !is_bpe(model) || !field_known(model, known)) return false;
    const field vocab = field_get(model, "vocab"), merges = field_get(model, "merges");
    if (!must_be_off(model, "dropout") || !must_be_off(model, "continuing_subword_prefix") ||
        !must_be_off(model, "end_of_word_suffix") ||
        !field_optional_bool(model, "fuse_unk", &b->fuse_unk) ||
        !field_optional_bool(model, "byte_fallback", &b->byte_fallback) ||
        !field_optional_bool(model, "ignore_merges", &b->ignore_merges) || !read_vocab(r, &vocab) ||
        !read_merges(r, &merges) || !read_unk(r, model))
        return false;
    find_bytes(b);
    return true;
}

/* ---- added tokens ---------------------------------------------------------------------------- */

bool read_token_flags(const field *f, added_token *a) {
    return field_optional_bool(f, "single_word", &a->single_word) &&
           field_optional_bool(f, "lstrip", &a->strip_left) &&
           field_optional_bool(f, "rstrip", &a->strip_right) &&
           field_optional_bool(f, "normalized", &a->normalized) &&
           field_optional_bool(f, "special", &a->special);
}

bool add_token(reader *r, const field *at, added_token a) {
    if (!claim_id(r, at, a.id, a.content)) return false;
    string_map_add(&r->t->added_ids, a.content.at, a.content.n, a.id);
    r->t->special[a.id] = a.special;
    hd_push(r->arena, &r->t->added, a);
    return true;
}

/* Returns a property of the first of two tokens with one content that the second lacks, or NULL if
 * they are equal. */
static const char *difference(const added_token *a, const added_token *b) {
    if (a->id != b->id) return "id";
    if (a->special != b->special) return "value of special";
    if (a->single_word != b->single_word) return "value of single_word";
    if (a->strip_left != b->strip_left) return "value of lstrip";
    if (a->strip_right != b->strip_right) return "value of rstrip";
    return a->normalized != b->normalized ? "value of normalized" : NULL;
}

/* Handles a token that is listed already: an equal entry is accepted and ignored. */
static bool read_again(const reader *r, const field *at, const added_token *a) {
    const added_token *first = r->t->added.at;
    while (first->content.n != a->content.n ||
           memcmp(first->content.at, a->content.at, a->content.n) != 0)
        first++;
    const char *what = difference(first, a);
    if (what) field_error(at, HD_E_FORMAT, "stands twice, with another %s", what);
    return !what;
}

static bool read_added(reader *r, const field *f) {
    added_token a = {0};
    int64_t id = 0;
    const field content = field_get(f, "content"), number = field_get(f, "id");
    if (!field_known(f, "id content single_word lstrip rstrip normalized special") ||
        !field_integer(&number, 0, MOST_IDS - 1, &id) || !read_text(r, &content, &a.content) ||
        !read_token_flags(f, &a))
        return false;
    a.id = (int32_t)id;
    if (!a.content.n) {
        field_error(&content, HD_E_FORMAT, "is empty");
        return false;
    }
    if (string_map_find(&r->t->added_ids, a.content.at, a.content.n) >= 0)
        return read_again(r, &content, &a);
    const int32_t of_vocab = string_map_find(&r->t->bpe.vocab, a.content.at, a.content.n);
    if (of_vocab >= 0 && of_vocab != a.id) {
        field_error(&number, HD_E_FORMAT, "the vocabulary has this token with id %d", of_vocab);
        return false;
    }
    return add_token(r, &number, a);
}

bool read_added_tokens(reader *r, const field *list) {
    if (!field_is_null(list) && !field_is_list(list)) return false;
    const size_t n = json_array_size(list->value);
    string_map_init(&r->t->added_ids, r->arena, n);
    for (size_t i = 0; i < n; i++) {
        const field f = field_element(list, i);
        if (!read_added(r, &f)) return false;
    }
    return true;
}

void finish_added_tokens(reader *r) {
    tokenizer *t = r->t;
    encoder e = {.t = t, .arena = r->arena, .search = search_new(r->arena)};
    for (size_t i = 0; i < t->added.n; i++) {
        added_token *a = &t->added.at[i];
        a->pattern = a->normalized ? normalise(&e, a->content) : a->content;
        /* A token is decoded to its content as added, as in the tokenizers library. */
        t->tokens[a->id] = a->pattern;
    }
    t->raw = added_set_of(t, false);
    t->normalized = added_set_of(t, true);
}
