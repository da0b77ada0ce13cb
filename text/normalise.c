/* Normalisation of text: Unicode's normal forms by utf8proc, and the other normalizers that occur
 * in published files. */
#include <string.h>
#include <utf8proc.h>

#include "text/tokenizer.h"

/* ---- Unicode's normal forms ------------------------------------------------------------------ */

typedef struct characters {
    hd_arena *arena;
    HD_VEC(utf8proc_int32_t) list;
} characters;

static utf8proc_propval_t combining_class(utf8proc_int32_t code) {
    return utf8proc_get_property(code)->combining_class;
}

/* Appends the decomposition of each character. */
static void decompose(string text, utf8proc_option_t options, characters *out) {
    enum { MOST = 32 }; /* the longest decomposition has 18 characters */
    utf8proc_int32_t parts[MOST];
    int last = 0;
    for (size_t i = 0; i < text.n; i += (size_t)hd_utf8(text.at + i, text.n - i)) {
        const utf8proc_int32_t code = (utf8proc_int32_t)hd_utf8_code(text.at + i);
        const utf8proc_ssize_t n = utf8proc_decompose_char(code, parts, MOST, options, &last);
        for (utf8proc_ssize_t k = 0; k < n && k < MOST; k++)
            hd_push(out->arena, &out->list, parts[k]);
    }
}

/* Sorts consecutive marks by their combining classes, marks of one class in the order of the text.
 * This is a counting sort, since the library's own ordering takes quadratic time for many marks. */
static void order_run(utf8proc_int32_t *at, size_t n, utf8proc_int32_t *scratch) {
    size_t begin[257] = {0};
    for (size_t i = 0; i < n; i++)
        begin[combining_class(at[i]) + 1]++;
    for (int c = 0; c < 256; c++)
        begin[c + 1] += begin[c];
    for (size_t i = 0; i < n; i++)
        scratch[begin[combining_class(at[i])]++] = at[i];
    memcpy(at, scratch, n * sizeof *at);
}

static void order(characters *x) {
    utf8proc_int32_t *scratch = hd_new_array(x->arena, utf8proc_int32_t, x->list.n + 1);
    for (size_t i = 0, n; i < x->list.n; i += n + 1) {
        n = 0;
        while (i + n < x->list.n && combining_class(x->list.at[i + n]) != 0)
            n++;
        if (n > 1) order_run(x->list.at + i, n, scratch);
    }
}

static bool is_ascii(string text) {
    for (size_t i = 0; i < text.n; i++)
        if ((uint8_t)text.at[i] >= 0x80) return false;
    return true;
}

string normal_form(hd_arena *a, string text, bool compatible, bool compose) {
    if (is_ascii(text)) return text;
    characters x = {.arena = a};
    utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    if (compatible) options |= UTF8PROC_COMPAT;
    decompose(text, options, &x);
    order(&x);
    utf8proc_ssize_t n = (utf8proc_ssize_t)x.list.n;
    hd_known(x.list.at);
    if (compose) n = utf8proc_normalize_utf32(x.list.at, n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    char *out = hd_alloc(a, (size_t)(n < 0 ? 0 : n) + 1, 4);
    size_t bytes = 0;
    for (utf8proc_ssize_t i = 0; i < n; i++)
        bytes += hd_utf8_put((uint32_t)x.list.at[i], out + bytes);
    return (string){out, bytes};
}

/* ---- other normalizers ----------------------------------------------------------------------- */

static string prepend(hd_arena *a, string text, string before) {
    char *out = hd_alloc(a, text.n + before.n + 1, 1);
    memcpy(out, before.at, before.n);
    memcpy(out + before.n, text.at, text.n);
    return (string){out, text.n + before.n};
}

static string replace(encoder *e, string text, const normalizer *r) {
    hd_text out;
    hd_text_init(&out, e->arena);
    matches state = {0};
    span m;
    size_t done = 0;
    found f;
    while ((f = pattern_next(r->pattern, e->search, text.at, text.n, &state, &m)) == FOUND) {
        e->cut_off |= m.from == 0 && m.to > 0 && r->content.n == 0;
        hd_text_add_n(&out, text.at + done, m.from - done);
        hd_text_add_n(&out, r->content.at, r->content.n);
        done = m.to;
    }
    if (f == FOUND_LIMIT) e->limit = true;
    if (!state.any) return text;
    hd_text_add_n(&out, text.at + done, text.n - done);
    return (string){out.at, out.n};
}

static string strip(encoder *e, string text, const normalizer *s) {
    if (s->right) text.n -= space_at_end(text);
    const size_t n = s->left ? space_at_start(text) : 0;
    e->cut_off |= n > 0;
    return (string){text.at + n, text.n - n};
}

static string step(encoder *e, const normalizer *s, string text) {
    hd_arena *a = e->arena;
    switch (s->kind) {
    case NORMALIZER_NFC: return normal_form(a, text, false, true);
    case NORMALIZER_NFD: return normal_form(a, text, false, false);
    case NORMALIZER_NFKC: return normal_form(a, text, true, true);
    case NORMALIZER_NFKD: return normal_form(a, text, true, false);
    case NORMALIZER_PREPEND: return text.n ? prepend(a, text, s->content) : text;
    case NORMALIZER_REPLACE: return replace(e, text, s);
    case NORMALIZER_STRIP: return strip(e, text, s);
    case NORMALIZER_BYTE_LEVEL: return as_byte_characters(a, text.at, text.n);
    default: return text;
    }
}

string normalise(encoder *e, string text) {
    e->cut_off = false;
    for (size_t i = 0; i < e->t->normalizers.n; i++)
        text = step(e, &e->t->normalizers.at[i], text);
    return text;
}
