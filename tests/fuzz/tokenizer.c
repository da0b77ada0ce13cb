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

/* tokenizer.json NUL text NUL tokenizer_config.json; the latter two may be absent. */
static const tokenizer *read_json(hd_arena *a, hd_diags *d, const char *data, size_t file,
                                  const char *config, size_t n) {
    if (!config) config = "{}", n = 2;
    fuzz_write("tokenizer_config.json", config, n);
    return tokenizer_read(a, d, fuzz_write("tokenizer.json", data, file));
}

/* What is no JSON is taken for lines of a tiktoken.model. */
static bool read_and_use(hd_arena *a, hd_diags *d, const char *data, size_t n) {
    static const char usual[] =
        "Hello  w\xc3\xb6rld\xff <s>\xe2\x82\xac 1234\n\n\t'll x\xcc\x81\xcc\xa3";
    const char *nul = memchr(data, 0, n);
    const size_t file = nul ? (size_t)(nul - data) : n;
    const char *second = nul ? memchr(nul + 1, 0, n - file - 1) : NULL;
    const size_t text = !nul ? 0 : second ? (size_t)(second - nul) - 1 : n - file - 1;
    const tokenizer *t = n && memchr("{[ \n", data[0], 4)
                             ? read_json(a, d, data, file, second ? second + 1 : NULL,
                                         second ? n - file - text - 2 : 0)
                             : read_tiktoken(a, d, data, file);
    if (!t) return false;
    use(a, t, usual, sizeof usual - 1);
    if (nul) use(a, t, nul + 1, text);
    return true;
}

int fuzz_tokenizer(const uint8_t *data, size_t n) {
    fuzz_in_arena(read_and_use, data, n);
    return 0;
}
