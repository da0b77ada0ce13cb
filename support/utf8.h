/* Where a UTF-8 character ends: one check for the libraries and for the command, which does not
 * link the sources of support/. */
#ifndef HD_UTF8_H
#define HD_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* The number of bytes of a character whose first byte is c; 0: no character begins with c. The
 * second byte must be in *least .. *most, which excludes overlong forms, surrogates, and code
 * points beyond the last (Unicode 15, table 3-7). */
static inline int hd_utf8_lead(uint8_t c, uint8_t *least, uint8_t *most) {
    *least = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
    *most = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    if (c < 0x80) return 1;
    if (c < 0xc2 || c > 0xf4) return 0;
    return c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

/* The number of bytes of the UTF-8 character at the beginning of text (n at least 1). If there is
 * none: minus the number of bytes that count as one fault, the "maximal subpart" of Unicode 3.9
 * (which decoders replace by one U+FFFD); 0 if further bytes could complete the character. */
static inline int hd_utf8(const char *text, size_t n) {
    uint8_t least, most;
    const int bytes = hd_utf8_lead((uint8_t)text[0], &least, &most);
    if (bytes == 0) return -1;
    for (int i = 1; i < bytes; i++) {
        if ((size_t)i == n) return 0;
        const uint8_t c = (uint8_t)text[i];
        if (c < least || c > most) return -i;
        least = 0x80, most = 0xbf;
    }
    return bytes;
}

/* The number of bytes before the first that begins no UTF-8 character; n: there is none. */
static inline size_t hd_utf8_span(const char *text, size_t n) {
    size_t at = 0;
    for (int bytes = 1; at < n && (bytes = hd_utf8(text + at, n - at)) > 0;)
        at += (size_t)bytes;
    return at;
}

#endif
