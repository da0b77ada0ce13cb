#include <string.h>

#include "support/file.h"
#include "tests/fuzz/fuzz.h"
#include "text/tokenizer.h"

/* Text becomes ids of the vocabulary, and these become well-formed text. */
static void use(hd_arena *a, const tokenizer *t, const char *text, size_t n) {
    id_list ids = {0};
    if (!tokenizer_encode(t, a, text, n, true, &ids)) return;
    text_stream *s = text_stream_new(a, t, false, false);
    for (size_t i = 0; i <= ids.n; i++) {
        if (i < ids.n) (void)text_stream_bytes(s, ids.at[i]); /* of any kind, and leaves no trace */
        const string piece = i < ids.n ? text_stream_add(s, ids.at[i]) : text_stream_end(s);
        if (i < ids.n &&
            (ids.at[i] < 0 || (size_t)ids.at[i] >= t->n_ids || !t->tokens[ids.at[i]].at))
            fuzz_fail("an id is none");
        for (size_t k = 0; k < piece.n;) {
            const int bytes = hd_utf8(piece.at + k, piece.n - k);
            if (bytes <= 0) fuzz_fail("text that is no UTF-8 was made");
            k += (size_t)bytes;
        }
    }
}

/* A tiktoken.model of all bytes and what is in `data`, with the config of a code that is known. */
static const tokenizer *read_tiktoken(hd_arena *a, hd_diags *d, const char *data, size_t n) {
    static const char config[] = "{\"auto_map\": {\"AutoTokenizer\": "
                                 "\"tokenization_kimi.TikTokenTokenizer\"}, "
                                 "\"added_tokens_decoder\": {}}",
                      letters[] =
                          "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    hd_text model;
    hd_text_init(&model, a);
    for (size_t i = 0; i < 256; i++)
        hd_text_f(&model, "%c%c== %zu\n", letters[i >> 2], letters[(i & 3) << 4], i);
    hd_text_add_n(&model, data, n);
    fuzz_write("tokenizer_config.json", config, sizeof config - 1);
    const char *path = fuzz_write("tiktoken.model", model.at, model.n);
    return tokenizer_read_tiktoken(a, d, hd_path_dir(a, path));
}

/* What stands between two NULs; `at` NULL: there is nothing. */
typedef struct part {
    const char *at;
    size_t n;
} part;

/* The first part of what is left, which goes on behind its NUL. */
static part next_part(part *left) {
    const char *nul = left->at ? memchr(left->at, 0, left->n) : NULL;
    const part p = {left->at, nul ? (size_t)(nul - left->at) : left->n};
    *left = nul ? (part){nul + 1, left->n - p.n - 1} : (part){NULL, 0};
    return p;
}

static void write_part(const char *name, part p) {
    fuzz_write(name, p.at ? p.at : "{}", p.at ? p.n : 2);
}

static const tokenizer *read_json(hd_arena *a, hd_diags *d, part file, part config, part map) {
    write_part("tokenizer_config.json", config);
    write_part("special_tokens_map.json", map);
    return tokenizer_read(a, d, fuzz_write("tokenizer.json", file.at, file.n));
}

/* tokenizer.json NUL text NUL tokenizer_config.json NUL special_tokens_map.json; all but the first
 * may be absent. What is no JSON is taken for lines of a tiktoken.model. */
static bool read_and_use(hd_arena *a, hd_diags *d, const char *data, size_t n) {
    static const char usual[] =
        "Hello  w\xc3\xb6rld\xff <s>\xe2\x82\xac 1234\n\n\t'll x\xcc\x81\xcc\xa3";
    part left = {data, n};
    const part file = next_part(&left), text = next_part(&left), config = next_part(&left);
    const tokenizer *t = n && memchr("{[ \n", data[0], 4) ? read_json(a, d, file, config, left)
                                                          : read_tiktoken(a, d, data, file.n);
    if (!t) return false;
    use(a, t, usual, sizeof usual - 1);
    if (text.at) use(a, t, text.at, text.n);
    return true;
}

int fuzz_tokenizer(const uint8_t *data, size_t n) {
    fuzz_in_arena(read_and_use, data, n);
    return 0;
}
