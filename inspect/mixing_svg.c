/* The depth mixing matrix as a picture: its mean over tokens. */
#include <math.h>

#include "inspect/mixing.h"
#include "inspect/svg.h"

void mixing_svg(const mixing *x, hd_text *out) {
    const size_t n = x->sources.n;
    double *cells = hd_new_array(out->arena, double, x->rows.n *n);
    const char **rows = hd_new_array(out->arena, const char *, x->rows.n);
    for (size_t r = 0; r < x->rows.n; r++) {
        rows[r] = x->rows.at[r].label;
        for (size_t i = 0; i < n; i++)
            cells[r * n + i] = mixing_is_below(x, r, i) ? x->mean[r * n + i] : NAN;
    }
    static const char *const kinds[] = {
        [MIXING_NUMBER] = "exact numbers",
        [MIXING_CHANNELS] = "means over channels",
        [MIXING_MAP] = "the parts that arrive as themselves",
    };
    const char *notes[] = {
        hd_printf(out->arena, "how much of each output a sublayer reads, mean of %lld tokens; %s",
                  (long long)x->tokens, kinds[x->kind]),
        hd_printf(out->arena, "semiseparable rank %u", x->rank),
    };
    const svg_panel panel = {
        .rows = x->rows.n,
        .columns = n,
        .at = cells,
        .row_labels = rows,
        .column_labels = x->source_labels,
    };
    const svg_map map = {
        .title = hd_printf(out->arena, "Depth mixing matrix of %s", x->name),
        .notes = notes,
        .n_notes = 2,
        .x_name = "output of sublayer (e: embedding)",
        .y_name = "read by sublayer",
        .scale_name = "weight",
        .panels = &panel,
        .n_panels = 1,
    };
    svg_print(&map, out);
}
