/* Values as views write them. */
#include "inspect/format.h"

#include <math.h>
#include <string.h>

void inspect_json_key(hd_text *out, const char *key) {
    inspect_json_string(out, key);
    hd_text_add(out, ": ");
}

void inspect_json_rounded(hd_text *out, bool there, double x) {
    if (there && isfinite(x))
        hd_text_f(out, "%.6g", x);
    else
        hd_text_add(out, "null");
}

const char *inspect_bytes(hd_arena *a, uint64_t bytes) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double x = (double)bytes;
    int i = 0;
    for (; x >= 1023.5 && i < 4; i++)
        x /= 1024;
    if (bytes == 1) return "1 byte";
    return hd_printf(a, "%.*f %s", i == 0 || x >= 100 ? 0 : 2, x, units[i]);
}

void inspect_json_words(hd_text *out, const char *words) {
    hd_text_add(out, "[");
    for (bool first = true; *words; first = false) {
        const size_t n = strcspn(words, " ");
        hd_text_f(out, "%s\"%.*s\"", first ? "" : ", ", (int)n, words);
        words += n + (words[n] == ' ');
    }
    hd_text_add(out, "]");
}
