/* Listings are long and alike: they are a tenth of their size in a report, and are only read when
 * somebody looks at one. */
#include <stdlib.h>
#include <zlib.h>

#include "report/report.h"

static void add_base64(const unsigned char *at, size_t n, hd_text *out) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        const unsigned a = at[i], b = i + 1 < n ? at[i + 1] : 0, c = i + 2 < n ? at[i + 2] : 0;
        const char four[4] = {
            digits[a >> 2],
            digits[(a & 3) << 4 | b >> 4],
            i + 1 < n ? digits[(b & 15) << 2 | c >> 6] : '=',
            i + 2 < n ? digits[c & 63] : '=',
        };
        hd_text_add_n(out, four, sizeof four);
    }
}

bool report_compress(const char *text, size_t n, hd_text *out) {
    uLongf size = compressBound((uLong)n);
    unsigned char *packed = hd_new_array(out->arena, unsigned char, size);
    if (compress2(packed, &size, (const unsigned char *)text, (uLong)n, Z_BEST_COMPRESSION) != Z_OK)
        return false;
    add_base64(packed, size, out);
    return true;
}
