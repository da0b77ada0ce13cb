/* The depth mixing matrix for programs: its mean over tokens. */
#include "inspect/json.h"
#include "inspect/mixing.h"

void mixing_json(const mixing *x, hd_text *out) {
    static const char *const kinds[] = {
        [MIXING_NUMBER] = "number", [MIXING_CHANNELS] = "channels", [MIXING_MAP] = "map"};
    const size_t n = x->sources.n;
    hd_text_add(out, "{\"name\": ");
    inspect_json_string(out, x->name);
    hd_text_f(out, ", \"tokens\": %lld, \"kind\": \"%s\", \"rank\": %u, \"full_rank\": %u",
              (long long)x->tokens, kinds[x->kind], x->rank, x->full_rank);
    hd_text_add(out, ",\n  \"rows\": [");
    for (size_t r = 0; r < x->rows.n; r++) {
        hd_text_add(out, r ? ", " : "");
        inspect_json_string(out, x->rows.at[r].label);
    }
    hd_text_add(out, "],\n  \"columns\": [");
    for (size_t i = 0; i < n; i++) {
        hd_text_add(out, i ? ", " : "");
        inspect_json_string(out, x->source_labels[i]);
    }
    hd_text_add(out, "],\n  \"mean\": [");
    for (size_t r = 0; r < x->rows.n; r++) {
        hd_text_add(out, r ? ",\n    [" : "\n    [");
        for (size_t i = 0; i < n; i++) {
            hd_text_add(out, i ? ", " : "");
            inspect_json_rounded(out, mixing_is_below(x, r, i), x->mean[r * n + i]);
        }
        hd_text_add(out, "]");
    }
    hd_text_add(out, "]}\n");
}
