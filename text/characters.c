/* Classes of characters in Unicode, and the characters of byte-level vocabularies. */
#include <utf8proc.h>

#include "text/tokenizer.h"

bool is_space(uint32_t c) {
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

/* Letters that Unicode's categories count as symbols: circled, squared and negative letters. */
static bool is_lettered_symbol(uint32_t c) {
    return (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
           (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
}

/* The set \w of Unicode's technical standard 18: Alphabetic, marks, decimal digits, connectors,
 * joiners. */
bool is_word_character(uint32_t c) {
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return is_lettered_symbol(c) || c == 0x200c || c == 0x200d;
    }
}

bool is_unseen(uint32_t c) {
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return true;
    default: return is_space(c) && c != ' ';
    }
}

size_t space_at_start(string text) {
    size_t n = 0;
    while (n < text.n && is_space(hd_utf8_code(text.at + n)))
        n += (size_t)hd_utf8(text.at + n, text.n - n);
    return n;
}

/* Returns the index at which the last character of text[0..n) begins. */
static size_t last_character(string text) {
    size_t at = text.n - 1;
    while (at > 0 && ((uint8_t)text.at[at] & 0xc0) == 0x80)
        at--;
    return at;
}

size_t space_at_end(string text) {
    const size_t n = text.n;
    while (text.n > 0 && is_space(hd_utf8_code(text.at + last_character(text))))
        text.n = last_character(text);
    return n - text.n;
}

bool ends_in_word(string text) {
    return text.n > 0 && is_word_character(hd_utf8_code(text.at + last_character(text)));
}

/* ---- bytes as characters --------------------------------------------------------------------- */

/* Byte-level vocabularies write bytes as characters (bytes_to_unicode of GPT-2): printable
 * characters of Latin-1 stand for themselves, and the other bytes are assigned characters from
 * U+0100 on, in the order of their values. */
static bool is_printable(unsigned byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xff && byte != 0xad);
}

/* The unprintable bytes are 0x00 to 0x20, 0x7f to 0xa0, and 0xad. */
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
