/* Weights of depth mixes as the panels of a picture: attention and MLP apart. */
#include "inspect/heatmap.h"
#include "inspect/svg.h"

/* Rows of one kind, and what the head reads below the last of them. */
static svg_panel make_panel(const depth_weights *x, bool attention, bool head, const char *title,
                            hd_arena *a) {
    const size_t n = x->columns.n;
    double *at = hd_new_array(a, double, x->rows.n *n);
    const char **rows = hd_new_array(a, const char *, x->rows.n);
    const char **columns = hd_new_array(a, const char *, n);
    bool *ends = hd_new_array(a, bool, x->rows.n);
    svg_panel p = {.title = title, .columns = n, .at = at, .row_labels = rows, .row_ends = ends};
    const depth_row *before = NULL;
    for (size_t r = 0; r < x->rows.n; r++) {
        const depth_row *row = &x->rows.at[r];
        const bool is_head = row->sublayer > x->sublayers;
        if (is_head ? !head : row->attention != attention) continue;
        if (before) ends[p.rows - 1] = is_head || (x->has_blocks && row->block != before->block);
        for (size_t c = 0; c < n; c++)
            at[p.rows * n + c] = x->at[r * n + c];
        rows[p.rows++] = row->label;
        before = row;
    }
    for (size_t c = 0; c < n; c++)
        columns[c] = x->columns.at[c].label;
    p.column_labels = columns;
    return p;
}

static bool any(const depth_weights *x, bool attention) {
    for (size_t r = 0; r < x->rows.n; r++)
        if (x->rows.at[r].sublayer <= x->sublayers && x->rows.at[r].attention == attention)
            return true;
    return false;
}

void heatmap_svg(const depth_weights *x, hd_text *out) {
    svg_panel panels[2];
    size_t n = 0;
    const bool attention = any(x, true), other = any(x, false);
    if (attention) panels[n++] = make_panel(x, true, !other, "Attention sublayers", out->arena);
    if (other || !attention)
        panels[n++] = make_panel(x, false, true, x->has_attention ? "MLP sublayers" : "Sublayers",
                                 out->arena);
    int64_t ways = 1;
    for (size_t r = 0; r < x->rows.n; r++)
        if (x->rows.at[r].ways > ways) ways = x->rows.at[r].ways;
    const char *notes[] = {
        hd_printf(
            out->arena, "mean of %lld token%s%s%s", (long long)x->tokens, x->tokens == 1 ? "" : "s",
            ways > 1 ? hd_printf(out->arena, " and of %lld heads or inputs", (long long)ways) : "",
            x->normalized ? "" : "; rows need not add up to 1"),
    };
    const svg_map map = {
        .title = hd_printf(out->arena, "Depth mixing weights of %s", x->name),
        .notes = notes,
        .n_notes = 1,
        .x_name = "source (e: embedding, else sublayers)",
        .y_name = "sublayer that reads",
        .scale_name = "weight",
        .panels = panels,
        .n_panels = n,
    };
    svg_print(&map, out);
}
