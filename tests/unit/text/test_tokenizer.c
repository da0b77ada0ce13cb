/* Tokenizers against what the tokenizers and tiktoken libraries say (tests/tools/make_tokenizers.py
 * and make_tiktoken.py made tests/text): ids of a hard corpus, texts of ids, and how patterns cut
 * texts. */
#include <criterion/criterion.h>
#include <string.h>

#include "support/json.h"
#include "tests/unit/arena_fixture.h"
#include "text/tokenizer.h"

TestSuite(tokenizer, .init = open_arena, .fini = close_arena, .timeout = 60);

static json_t *expected_in(const char *file) {
    json_error_t e;
    json_t *root = json_load_file(file, JSON_ALLOW_NUL, &e);
    cr_assert(root, "%s", e.text);
    return root;
}

static json_t *expected(void) {
    return expected_in(TEST_DATA "/text/expected.json");
}

static string from_hex(const char *hex) {
    const size_t n = strlen(hex) / 2;
    char *out = hd_alloc(arena, n + 1, 1);
    for (size_t i = 0; i < n; i++) {
        unsigned byte;
        cr_assert_eq(sscanf(hex + 2 * i, "%2x", &byte), 1);
        out[i] = (char)byte;
    }
    return (string){out, n};
}

static tokenizer *open_tokenizer(const char *name) {
    tokenizer *t = tokenizer_read(arena, &diags, hd_printf(arena, TEST_DATA "/text/%s.json", name));
    cr_assert(t, "%s: %s", name, said());
    return t;
}

static const char *shown(const id_list *ids) {
    hd_text t;
    hd_text_init(&t, arena);
    hd_text_add(&t, "");
    for (size_t i = 0; i < ids->n; i++)
        hd_text_f(&t, "%d ", ids->at[i]);
    return t.at;
}

static id_list ids_of(const json_t *list) {
    id_list ids = {0};
    for (size_t i = 0; i < json_array_size(list); i++)
        hd_push(arena, &ids, (int32_t)json_integer_value(json_array_get(list, i)));
    return ids;
}

static void append(id_list *to, const id_list *ids) {
    for (size_t i = 0; i < ids->n; i++)
        hd_push(arena, to, ids->at[i]);
}

static void same_ids(const char *what, const id_list *got, const id_list *want) {
    const bool same = got->n == want->n &&
                      (got->n == 0 || memcmp(got->at, want->at, got->n * sizeof *got->at) == 0);
    cr_expect(same, "%s\n got: %s\nwant: %s", what, shown(got), shown(want));
}

static string decode(const tokenizer *t, const id_list *ids, bool whole, bool skip_special) {
    hd_text out;
    hd_text_init(&out, arena);
    hd_text_add(&out, "");
    text_stream *s = text_stream_new(arena, t, whole, skip_special);
    for (size_t i = 0; i < ids->n; i++) {
        const string piece = text_stream_add(s, ids->at[i]);
        hd_text_add_n(&out, piece.at, piece.n);
    }
    const string rest = text_stream_end(s);
    hd_text_add_n(&out, rest.at, rest.n);
    return (string){out.at, out.n};
}

static void same_text(const char *what, string got, string want) {
    cr_expect(got.n == want.n && memcmp(got.at, want.at, got.n) == 0,
              "%s\n got: \"%.*s\"\nwant: \"%.*s\"", what, (int)got.n, got.at, (int)want.n, want.at);
}

static string text_at(const json_t *list, size_t i) {
    const json_t *v = json_array_get(list, i);
    return (string){json_string_value(v), json_string_length(v)};
}

/* Well-formed text, as Python has it for the library. */
static string python_text(string bytes) {
    hd_text out;
    hd_text_init(&out, arena);
    hd_text_add(&out, "");
    for (size_t i = 0; i < bytes.n;) {
        const int k = hd_utf8(bytes.at + i, bytes.n - i);
        hd_text_add_n(&out, k > 0 ? bytes.at + i : "\xef\xbf\xbd", k > 0 ? (size_t)k : 3);
        i += k ? (size_t)(k > 0 ? k : -k) : bytes.n - i;
    }
    return (string){out.at, out.n};
}

static void try_corpus(const char *name, const tokenizer *t, const json_t *corpus,
                       const json_t *want) {
    const json_t *around = json_object_get(want, "around"), *texts = json_object_get(want, "texts");
    const id_list before = ids_of(json_array_get(around, 0)),
                  after = ids_of(json_array_get(around, 1));
    for (size_t i = 0; i < json_array_size(corpus); i++) {
        const string text = from_hex(json_string_value(json_array_get(corpus, i)));
        const id_list plain = ids_of(json_array_get(json_object_get(want, "ids"), i));
        id_list whole = {0}, got = {0};
        append(&whole, &before), append(&whole, &plain), append(&whole, &after);
        const char *what = hd_printf(arena, "%s, text %zu: \"%.*s\"", name, i,
                                     (int)(text.n < 80 ? text.n : 80), text.at);
        cr_assert(tokenizer_encode(t, arena, text.at, text.n, false, &got));
        same_ids(what, &got, &plain);
        got.n = 0;
        cr_assert(tokenizer_encode(t, arena, text.at, text.n, true, &got));
        same_ids(what, &got, &whole);
        for (int special = 0; special < 2; special++) {
            string made = text_at(json_array_get(texts, i), (size_t)special);
            if (!made.at) made = python_text(text);
            same_text(what, decode(t, &plain, true, special == 0), made);
        }
    }
}

static void try_drawn(const char *name, const tokenizer *t, const json_t *drawn) {
    for (size_t i = 0; i < json_array_size(drawn); i++) {
        const json_t *item = json_array_get(drawn, i);
        const id_list ids = ids_of(json_array_get(item, 0));
        const char *what = hd_printf(arena, "%s, ids %s", name, shown(&ids));
        same_text(what, decode(t, &ids, true, true), text_at(item, 1));
        same_text(what, decode(t, &ids, true, false), text_at(item, 2));
    }
}

Test(tokenizer, like_the_library) {
    json_t *root = expected();
    const char *name;
    json_t *want;
    json_object_foreach(json_object_get(root, "tokenizers"), name, want) {
        const tokenizer *t = open_tokenizer(name);
        try_corpus(name, t, json_object_get(root, "corpus"), want);
        try_drawn(name, t, json_object_get(want, "drawn"));
    }
    json_decref(root);
}

Test(tokenizer, like_tiktoken) {
    json_t *root = expected_in(TEST_DATA "/text/expected_tiktoken.json");
    const char *name;
    json_t *want;
    json_object_foreach(json_object_get(root, "tokenizers"), name, want) {
        const char *folder = hd_printf(arena, TEST_DATA "/text/%s", name);
        const tokenizer *t = tokenizer_read_tiktoken(arena, &diags, folder);
        cr_assert(t, "%s: %s", name, said());
        try_corpus(name, t, json_object_get(root, "corpus"), want);
        try_drawn(name, t, json_object_get(want, "drawn"));
    }
    json_decref(root);
}

/* ---- streams --------------------------------------------------------------------------------- */

static bool is_well_formed(string text) {
    int k = 1;
    for (size_t i = 0; i < text.n && k > 0; i += (size_t)(k > 0 ? k : 0))
        k = hd_utf8(text.at + i, text.n - i);
    return k > 0;
}

/* Token by token comes what comes at once, and no piece ends inside of a character. */
static void stream(const char *name, const tokenizer *t, string text) {
    id_list ids = {0};
    hd_text all;
    hd_text_init(&all, arena);
    hd_text_add(&all, "");
    cr_assert(tokenizer_encode(t, arena, text.at, text.n, true, &ids));
    text_stream *s = text_stream_new(arena, t, false, false);
    for (size_t i = 0; i <= ids.n; i++) {
        const string piece = i < ids.n ? text_stream_add(s, ids.at[i]) : text_stream_end(s);
        cr_expect(is_well_formed(piece), "%s: \"%.*s\"", name, (int)piece.n, piece.at);
        hd_text_add_n(&all, piece.at, piece.n);
    }
    same_text(name, (string){all.at, all.n}, decode(t, &ids, true, false));
}

Test(tokenizer, streams) {
    json_t *root = expected();
    const json_t *corpus = json_object_get(root, "corpus");
    const char *name;
    json_t *want;
    json_object_foreach(json_object_get(root, "tokenizers"), name, want) {
        const tokenizer *t = open_tokenizer(name);
        for (size_t i = 0; i < json_array_size(corpus); i++)
            stream(name, t, from_hex(json_string_value(json_array_get(corpus, i))));
    }
    json_decref(root);
}

/* An unfinished character is held back, and is U+FFFD where nothing more comes. */
Test(tokenizer, unfinished_characters) {
    static const char *const names[] = {"gpt2", "llama2"};
    for (int i = 0; i < 2; i++) {
        const tokenizer *t = open_tokenizer(names[i]);
        text_stream *s = text_stream_new(arena, t, false, true);
        const char *const euro[2][3] = {{"\u00e2", "\u0124", "\u00ac"},
                                        {"<0xE2>", "<0x82>", "<0xAC>"}};
        const char *const *bytes = euro[i];
        int32_t ids[3];
        for (int k = 0; k < 3; k++)
            ids[k] = string_map_find(&t->bpe.vocab, bytes[k], strlen(bytes[k]));
        cr_expect_eq(text_stream_add(s, ids[0]).n, 0);
        cr_expect_eq(text_stream_add(s, ids[1]).n, 0);
        same_text(names[i], text_stream_add(s, ids[2]), (string){"\u20ac", 3});
        cr_expect_eq(text_stream_add(s, ids[0]).n, 0);
        same_text(names[i], text_stream_end(s), (string){"\ufffd", 3});
    }
}

/* Words of one letter and of two in turn, spaces, marks of two classes in turn: time grows like the
 * text. With squared time one of them would take minutes. */
Test(tokenizer, long_texts) {
    static const char *const names[] = {"gpt2", "llama2", "qwen", "odd", "kimi", "gemma"};
    static const char *const repeated[] = {"a", "ab", " ", "a ", "\xcc\x81\xcc\xa3"};
    const size_t n = 1 << 18;
    char *text = hd_alloc(arena, n, 1);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const tokenizer *t = open_tokenizer(names[i]);
        for (size_t kind = 0; kind < sizeof repeated / sizeof *repeated; kind++) {
            for (size_t k = 0; k < n; k++)
                text[k] = repeated[kind][k % strlen(repeated[kind])];
            hd_arena *a = hd_arena_new();
            id_list ids = {0};
            cr_assert(tokenizer_encode(t, a, text, n, true, &ids));
            hd_arena_free(a);
        }
    }
}

/* ---- patterns -------------------------------------------------------------------------------- */

static size_t characters(const char *at, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((uint8_t)at[i] & 0xc0) != 0x80;
    return count;
}

static void add_length(const char *text, size_t from, size_t to, id_list *out) {
    if (to > from) hd_push(arena, out, (int32_t)characters(text + from, to - from));
}

static id_list cut(const pattern *p, search *s, const char *text) {
    id_list out = {0};
    matches state = {0};
    span m;
    size_t done = 0;
    while (pattern_next(p, s, text, strlen(text), &state, &m) == FOUND) {
        add_length(text, done, m.from, &out);
        add_length(text, m.from, m.to, &out);
        done = m.to;
    }
    add_length(text, done, strlen(text), &out);
    return out;
}

Test(tokenizer, patterns_like_the_library) {
    json_t *root = expected();
    const json_t *texts = json_object_get(json_object_get(root, "patterns"), "texts");
    search *s = search_new(arena);
    const char *regex, *why = NULL;
    json_t *cuts;
    json_object_foreach(json_object_get(json_object_get(root, "patterns"), "cuts"), regex, cuts) {
        const pattern *p = pattern_regex(arena, regex, &why);
        cr_expect(p, "%s: %s", regex, why);
        for (size_t i = 0; p && i < json_array_size(texts); i++) {
            const char *text = json_string_value(json_array_get(texts, i));
            const id_list want = ids_of(json_array_get(cuts, i)), got = cut(p, s, text);
            same_ids(hd_printf(arena, "%s (%s) on \"%s\"", regex,
                               pattern_translate(arena, regex, &why), text),
                     &got, &want);
        }
    }
    json_decref(root);
}
