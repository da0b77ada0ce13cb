/* Tokens whose texts are alike: two ids have the same number if their keys are equal. The key of an
 * id is
 *
 *   the string of the vocabulary   if its text is not whole characters (it has U+FFFD),
 *   its text, folded               else: NFKC, then NFD, without marks (Mn), in lower case, each run of
 *                                  space, tab, CR and LF one space, nothing at the ends but where all
 *                                  of it is one space
 *   its text                       if nothing is left of it
 */
#include "text/folded.h"

#include <string.h>
#include <utf8proc.h>

#include "support/file.h"
#include "text/tokenizer.h"

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Without marks, in lower case, with single spaces. */
static string simplified(hd_arena *a, string text) {
    enum { LONGEST = 4 }; /* bytes of a character; in lower case it may have more than it had */
    char *out = hd_alloc(a, LONGEST * text.n + 1, 1);
    size_t n = 0;
    for (size_t i = 0, k; i < text.n; i += k) {
        k = 1;
        if (is_blank(text.at[i])) {
            if (i == 0 || !is_blank(text.at[i - 1])) out[n++] = ' ';
            continue;
        }
        k = (size_t)hd_utf8(text.at + i, text.n - i);
        const utf8proc_int32_t code = (utf8proc_int32_t)hd_utf8_code(text.at + i);
        if (utf8proc_category(code) == UTF8PROC_CATEGORY_MN) continue;
        n += (size_t)hd_utf8_put((uint32_t)utf8proc_tolower(code), out + n);
    }
    return (string){out, n};
}

static string folded(hd_arena *a, string text) {
    string y = normal_form(a, normal_form(a, text, true, true), false, false);
    y = simplified(a, y);
    if (y.n == 1 && y.at[0] == ' ') return y;
    y.n -= space_at_end(y);
    const size_t start = space_at_start(y);
    return (string){y.at + start, y.n - start};
}

static bool has_replacement(string text) {
    return text.n > 0 && memmem(text.at, text.n, "\xef\xbf\xbd", 3);
}

/* The key of an id, whose text is read through `s`. Where an id has no token its text is empty. */
static string key_of(hd_arena *a, const tokenizer *t, text_stream *s, int32_t id) {
    hd_text text;
    hd_text_init(&text, a);
    hd_text_add(&text, "");
    string part = text_stream_add(s, id);
    hd_text_add_n(&text, part.at ? part.at : "", part.n);
    part = text_stream_end(s);
    hd_text_add_n(&text, part.at ? part.at : "", part.n);
    const string whole = {text.at, text.n};
    if (has_replacement(whole) && t->tokens[id].at) return t->tokens[id];
    const string key = folded(a, whole);
    return key.n ? key : whole;
}

bool text_fold_tokens(hd_arena *a, hd_diags *d, const char *folder, text_folds *out) {
    const tokenizer *t = tokenizer_read(a, d, hd_path_join(a, folder, "tokenizer.json"));
    if (!t) return false;
    int32_t *of = hd_new_array(a, int32_t, t->n_ids + 1);
    string_map numbers;
    string_map_init(&numbers, a, t->n_ids);
    text_stream *s = text_stream_new(a, t, true, false);
    *out = (text_folds){.of = of, .ids = (int32_t)t->n_ids};
    for (int32_t id = 0; id < out->ids; id++) {
        const string key = key_of(a, t, s, id);
        of[id] = string_map_find(&numbers, key.at, key.n);
        if (of[id] >= 0) continue;
        of[id] = out->numbers++;
        string_map_add(&numbers, key.at, key.n, of[id]);
    }
    return true;
}
