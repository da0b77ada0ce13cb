/* Weights of depth mixes for programs. */
#include <math.h>

#include "inspect/heatmap.h"
#include "inspect/json.h"

static void print_row(const depth_weights *x, size_t r, hd_text *out) {
    const depth_row *row = &x->rows.at[r];
    const size_t n = x->columns.n;
    hd_text_f(out, "{\"sublayer\": %u, \"label\": ", row->sublayer);
    inspect_json_string(out, row->label);
    hd_text_f(out, ", \"attention\": %s, \"block\": %u, \"mean\": [",
              row->attention ? "true" : "false", row->block);
    for (size_t c = 0; c < n; c++) {
        hd_text_add(out, c ? ", " : "");
        inspect_json_rounded(out, !isnan(x->at[r * n + c]), x->at[r * n + c]);
    }
    hd_text_add(out, "]}");
}

void heatmap_json(const depth_weights *x, hd_text *out) {
    hd_text_add(out, "{\"name\": ");
    inspect_json_string(out, x->name);
    hd_text_f(out, ", \"tokens\": %lld, \"normalized\": %s,\n  \"columns\": [",
              (long long)x->tokens, x->normalized ? "true" : "false");
    for (size_t c = 0; c < x->columns.n; c++) {
        hd_text_add(out, c ? ", " : "");
        inspect_json_string(out, x->columns.at[c].label);
    }
    hd_text_add(out, "],\n  \"rows\": [");
    for (size_t r = 0; r < x->rows.n; r++) {
        hd_text_add(out, r ? ",\n    " : "\n    ");
        print_row(x, r, out);
    }
    hd_text_add(out, "]}\n");
}
