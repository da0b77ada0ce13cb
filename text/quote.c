/* hadal_text_quote writes text in such a way that every character of it can be seen. */
#include <stdio.h>
#include <string.h>

#include "hadal/text.h"
#include "text/tokenizer.h"

typedef struct writer { /* counts every byte, and writes as many as fit */
    char *at;
    size_t size, n;
} writer;

static void put(writer *w, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++, w->n++)
        if (w->n + 1 < w->size) w->at[w->n] = text[i];
}

static void put_byte(writer *w, char byte) {
    static const char names[][2] = {"\nn", "\rr", "\tt", "\"\"", "\\\\"};
    char text[8];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i][0] != byte) continue;
        put(w, (char[]){'\\', names[i][1]}, 2);
        return;
    }
    put(w, text, (size_t)snprintf(text, sizeof text, "\\x%02x", (unsigned char)byte));
}

static void put_character(writer *w, const char *at, size_t n) {
    const uint32_t code = hd_utf8_code(at);
    char text[16];
    if (code < 0x80 && (code < ' ' || code == 0x7f || code == '"' || code == '\\'))
        put_byte(w, *at);
    else if (is_unseen(code))
        put(w, text, (size_t)snprintf(text, sizeof text, "\\u{%x}", (unsigned)code));
    else
        put(w, at, n);
}

size_t hadal_text_quote(const char *text, size_t n, char *out, size_t size) {
    writer w = {out, size, 0};
    put(&w, "\"", 1);
    for (size_t i = 0; i < n;) {
        const int k = hd_utf8(text + i, n - i);
        if (k > 0)
            put_character(&w, text + i, (size_t)k);
        else
            put_byte(&w, text[i]);
        i += k > 0 ? (size_t)k : 1;
    }
    put(&w, "\"", 1);
    if (size) out[w.n < size ? w.n : size - 1] = 0;
    return w.n;
}
