/* Weights of depth mixes for people. */
#include "inspect/heatmap.h"

void heatmap_text(const depth_weights *x, hd_text *out) {
    hd_text_f(out, "weights of the %zu depth mixes of %s, mean of %lld token%s%s\n", x->rows.n,
              x->name, (long long)x->tokens, x->tokens == 1 ? "" : "s",
              x->normalized ? "" : "; they need not add up to 1");
    for (size_t r = 0; r < x->rows.n; r++) {
        const depth_row *row = &x->rows.at[r];
        hd_text_f(out, "  %4s %-9s", row->label,
                  row->sublayer > x->sublayers ? ""
                  : row->attention             ? "attention"
                  : x->has_attention           ? "MLP"
                                               : "");
        for (int64_t i = 0; i < row->n; i++)
            hd_text_f(out, "  %s %.3f", row->sources[i].label, row->mean[i]);
        if (row->ways > 1) hd_text_f(out, "  (mean of %lld)", (long long)row->ways);
        hd_text_add(out, "\n");
    }
}
