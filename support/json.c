#include "support/json.h"

const char *hd_json_fault(hd_arena *a, const json_error_t *e) {
    switch (json_error_code(e)) { /* two whose words are about the parser's own options */
    case json_error_null_character: return "a string holds the character \\u0000";
    case json_error_null_byte_in_key: return "a name holds the character \\u0000";
    default: break;
    }
    char *words = hd_strdup(a, e->text);
    for (char *p = words; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
    return words;
}

json_t *hd_json_parse(hd_diags *d, const char *what, const char *file, const char *text, size_t n) {
    json_error_t error;
    hd_diags_source(d, file, text);
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    if (root) return root;
    const hd_loc at = {file, (uint32_t)error.line, (uint32_t)error.column, 0};
    hd_err(d, HD_E_SYNTAX, at, "the %s is not legal JSON: %s", what,
           hd_json_fault(d->arena, &error));
    return NULL;
}
