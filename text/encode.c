/* From text to tokens. */
#include "text/tokenizer.h"

#include <string.h>

/* Returns the text as well-formed UTF-8; text that is well-formed already keeps its bytes. */
static string well_formed(hd_arena *a, const char *text, size_t n) {
    size_t i = hd_utf8_span(text, n);
    if (i == n) return (string){text, n};
    hd_text out;
    hd_text_init(&out, a);
    hd_text_add_n(&out, text, i);
    while (i < n) {
        const int k = hd_utf8(text + i, n - i);
        hd_text_add_n(&out, k > 0 ? text + i : "\xef\xbf\xbd", k > 0 ? (size_t)k : 3);
        i += k > 0 ? (size_t)k : k < 0 ? (size_t)-k : n - i;
    }
    return (string){out.at, out.n};
}

/* The mask of a piece after normalisation: where that changed it, no byte is known to be the
 * template's if any is a message's. */
static const uint8_t *mask_after(const encoder *e, const uint8_t *mask, string before,
                                 string after) {
    if (!mask || (before.n == after.n && memcmp(before.at, after.at, after.n) == 0)) return mask;
    if (!memchr(mask, 1, before.n)) return NULL;
    uint8_t *all = hd_alloc(e->arena, after.n + 1, 1);
    memset(all, 1, after.n);
    return all;
}

/* Added tokens of the raw set are cut out of the text as it is, then those of the normalised set
 * out of the normalised rest. */
static void cut(encoder *e, string text, piece_list *out) {
    piece_list raw = {0};
    cut_added(e, &e->t->raw, (piece){text.at, text.n, -1, true}, e->mask, &raw);
    for (size_t i = 0; i < raw.n; i++) {
        piece p = raw.at[i];
        if (p.id >= 0) {
            hd_push(e->arena, out, p);
            continue;
        }
        const string before = {p.at, p.n}, s = normalise(e, before);
        const uint8_t *mask = mask_after(e, e->mask ? e->mask + (p.at - text.at) : NULL, before, s);
        p.at = s.at, p.n = s.n;
        p.first &= !e->cut_off;
        cut_added(e, &e->t->normalized, p, mask, out);
    }
}

static void add_ids(hd_arena *a, const id_list *ids, id_list *out) {
    for (size_t i = 0; i < ids->n; i++)
        hd_push(a, out, ids->at[i]);
}

static bool encode(encoder *e, string text, bool with_template, id_list *out) {
    const tokenizer *t = e->t;
    hd_arena *a = e->arena;
    piece_list pieces = {0};
    cut(e, text, &pieces);
    for (size_t i = 0; i < t->splitters.n; i++)
        split_pieces(e, &t->splitters.at[i], &pieces);
    if (e->limit) return false;
    if (with_template) add_ids(a, &t->before, out);
    bpe_scratch *scratch = bpe_scratch_new(a);
    for (size_t i = 0; i < pieces.n; i++) {
        const piece *p = &pieces.at[i];
        if (p->id >= 0)
            hd_push(a, out, p->id);
        else if (p->n)
            bpe_encode(&t->bpe, scratch, a, p->at, p->n, out);
    }
    if (with_template) add_ids(a, &t->after, out);
    return true;
}

bool tokenizer_encode(const tokenizer *t, hd_arena *a, const char *text, size_t n,
                      bool with_template, id_list *out) {
    encoder e = {.t = t, .arena = a, .search = search_new(a)};
    return encode(&e, well_formed(a, text, n), with_template, out);
}

bool tokenizer_encode_chat(const tokenizer *t, hd_arena *a, const char *text, size_t n,
                           const uint8_t *mask, const bool *control, id_list *out) {
    encoder e = {.t = t, .arena = a, .search = search_new(a), .mask = mask, .control = control};
    return encode(&e, (string){text, n}, false, out);
}
