/* Byte-level vocabularies write bytes as characters (bytes_to_unicode of GPT-2): printable ones of
 * Latin-1 are themselves, the others follow from U+0100 on, in the order of their values. */
#include "text/tokenizer.h"

static bool is_printable(unsigned byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xff && byte != 0xad);
}

/* 0x00 to 0x20, 0x7f to 0xa0, 0xad */
uint32_t byte_character(uint8_t byte) {
    if (is_printable(byte)) return byte;
    return 0x100u + (byte <= 0x20 ? byte : byte == 0xad ? 67 : 33 + byte - 0x7fu);
}

int character_byte(uint32_t code) {
    if (code < 0x100) return is_printable(code) ? (int)code : -1;
    if (code > 0x100 + 67) return -1;
    const int i = (int)code - 0x100;
    return i <= 0x20 ? i : i == 67 ? 0xad : 0x7f + i - 33;
}

string as_byte_characters(hd_arena *a, const char *text, size_t n) {
    char *out = hd_alloc(a, n + 1, 2);
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += hd_utf8_put(byte_character((uint8_t)text[i]), out + bytes);
    return (string){out, bytes};
}
