/* Drawing heat maps. Cells of one colour are one path, so that a map of 100 by 100 stays small; the
 * colours are 48 steps of a scale whose lightness falls evenly.
 */
#include "inspect/svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    STEPS = 48,
    MARGIN = 24,
    BAR = 14,        /* width of the colour bar */
    FULL_WIDTH = 880 /* that all panels together should not exceed */
};

/* ---- colours --------------------------------------------------------------------------------- */

typedef struct rgb {
    double r, g, b;
} rgb;

/* From near white to dark: one hue for positive values, one for negative. */
static const rgb blues[] = {{246, 249, 252}, {200, 222, 240}, {125, 178, 219},
                            {55, 125, 184},  {20, 75, 138},   {8, 36, 84}};
static const rgb reds[] = {{252, 248, 246}, {247, 212, 193}, {238, 155, 118},
                           {212, 92, 62},   {165, 38, 40},   {95, 10, 28}};
enum { STOPS = sizeof blues / sizeof *blues };

static rgb colour(double x) {
    const rgb *stops = x < 0 ? reds : blues;
    const double at = fmin(fabs(x), 1) * (STOPS - 1);
    const int i = at >= STOPS - 1 ? STOPS - 2 : (int)at;
    const double f = at - i;
    const rgb a = stops[i], b = stops[i + 1];
    return (rgb){a.r + f * (b.r - a.r), a.g + f * (b.g - a.g), a.b + f * (b.b - a.b)};
}

static void print_colour(hd_text *out, double x) {
    const rgb c = colour(x);
    hd_text_f(out, "#%02x%02x%02x", (unsigned)lround(c.r), (unsigned)lround(c.g),
              (unsigned)lround(c.b));
}

/* ---- the scale ------------------------------------------------------------------------------- */

typedef struct scale {
    double least, most; /* least < 0: the scale is two-sided, -most .. most */
    double step;        /* between ticks */
    bool root;          /* colours by square root: a few cells are much larger than the rest */
} scale;

double svg_round_up(double x) {
    const double power = pow(10, floor(log10(x)));
    const double lead = x / power;
    return power * (lead <= 1.0001 ? 1 : lead <= 2.0001 ? 2 : lead <= 5.0001 ? 5 : 10);
}

static scale find_scale(const svg_map *map) {
    double largest = 0, sum = 0, cells = 0;
    bool negative = false;
    for (size_t p = 0; p < map->n_panels; p++) {
        const svg_panel *panel = &map->panels[p];
        for (size_t i = 0; i < panel->rows * panel->columns; i++) {
            const double x = panel->at[i];
            if (!isfinite(x)) continue;
            largest = fmax(largest, fabs(x));
            negative |= x < -1e-12;
            sum += fabs(x);
            cells++;
        }
    }
    if (largest <= 0) largest = 1;
    const double step = svg_round_up(largest / 5 / (1 + 1e-9));
    const double most = step * ceil(largest / step - 1e-9);
    return (scale){negative ? -most : 0, most, negative ? 2 * step : step,
                   sum / (cells > 0 ? cells : 1) < largest / 12};
}

/* The position of a value between the ends of the scale, 0 to 1; and the shade at such a
 * position. */
static double place_of(const scale *s, double x) {
    const double part = s->root ? copysign(sqrt(fabs(x) / s->most), x) : x / s->most;
    return s->least < 0 ? (part + 1) / 2 : part;
}

static double shade_at(const scale *s, double place) {
    return s->least < 0 ? 2 * place - 1 : place;
}

/* Which of the STEPS colours a value has, and the shade of one. */
static int step_of(const scale *s, double x) {
    const double at = place_of(s, x) * STEPS;
    return at < 0 ? 0 : at >= STEPS ? STEPS - 1 : (int)at;
}

static double shade_of(const scale *s, int step) {
    return shade_at(s, (step + 0.5) / STEPS);
}

/* ---- layout ---------------------------------------------------------------------------------- */

typedef struct layout {
    int cell_w, cell_h;       /* size of a cell */
    int top, left, gap;       /* of the first panel; between panels, row labels included */
    int label_h;              /* height of column labels */
    bool upright;             /* column labels stand upright, since they do not fit side by side */
    int width, height;        /* size of the picture */
    int bar_x, bar_h, plot_h; /* size of the colour bar; height of the highest panel */
    int font;                 /* size of labels */
} layout;

static size_t longest(const char *const *labels, size_t n) {
    size_t most = 0;
    for (size_t i = 0; i < n; i++)
        if (strlen(labels[i]) > most) most = strlen(labels[i]);
    return most;
}

static int at_most(int x, int limit) {
    return x < limit ? x : limit;
}

static int at_least(int x, int limit) {
    return x > limit ? x : limit;
}

int svg_text_width(size_t letters, double size) {
    return (int)ceil((double)letters * size * 0.62);
}

static int widest_line(const svg_map *map) {
    int width = svg_text_width(strlen(map->title), 18);
    for (size_t i = 0; i < map->n_notes; i++)
        width = at_least(width, svg_text_width(strlen(map->notes[i]), 12));
    return width;
}

/* Sizes the cells as large as the picture allows, within bounds. */
static void size_cells(layout *l, size_t rows, size_t columns, size_t label) {
    l->cell_w = at_most(at_least(FULL_WIDTH / (int)columns, 4), 38);
    l->cell_h = at_most(at_least(640 / (int)rows, 4), 26);
    if (l->cell_h > l->cell_w) l->cell_h = l->cell_w;
    l->upright = label > 3 && svg_text_width(label, l->font) + 2 > l->cell_w;
    l->label_h = l->upright ? svg_text_width(label, l->font) + 10 : 18;
}

static layout lay_out(const svg_map *map) {
    layout l = {.font = 11};
    size_t columns = 0, rows = 1, row_label = 1, column_label = 1;
    for (size_t p = 0; p < map->n_panels; p++) {
        const svg_panel *panel = &map->panels[p];
        columns += panel->columns;
        if (panel->rows > rows) rows = panel->rows;
        const size_t row = longest(panel->row_labels, panel->rows);
        const size_t column = longest(panel->column_labels, panel->columns);
        if (row > row_label) row_label = row;
        if (column > column_label) column_label = column;
    }
    size_cells(&l, rows, columns ? columns : 1, column_label);
    const int labels = svg_text_width(row_label, l.font) + 10;
    l.left = MARGIN + 22 + labels;
    l.gap = labels + 26;
    l.top = MARGIN + 30 + 17 * (int)map->n_notes + 30;
    l.plot_h = (int)rows * l.cell_h;
    l.bar_x = l.left + (int)columns * l.cell_w + ((int)map->n_panels - 1) * l.gap + 30;
    l.bar_h = at_least(at_most(l.plot_h, 260), 110);
    l.width = at_least(l.bar_x + BAR + 116, widest_line(map) + 2 * MARGIN);
    l.height = l.top + at_least(l.plot_h + l.label_h + 30, l.bar_h + 30) + MARGIN / 2;
    return l;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static void print_text(hd_text *out, const char *s) {
    for (; *s; s++) {
        const char *entity = *s == '&' ? "&amp;" : *s == '<' ? "&lt;" : *s == '>' ? "&gt;" : NULL;
        if (entity)
            hd_text_add(out, entity);
        else
            hd_text_add_n(out, s, 1);
    }
}

void svg_line(hd_text *out, double x, double y, const char *style, const char *s) {
    hd_text_f(out, "<text x=\"%g\" y=\"%g\"%s>", x, y, style);
    print_text(out, s);
    hd_text_add(out, "</text>\n");
}

/* Show every k-th label, so that labels are at least `spacing` pixels from each other: this is
 * k. */
static size_t stride_of(int cell, int spacing) {
    size_t stride = 1;
    static const size_t nice[] = {1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 128};
    for (size_t i = 0; i < sizeof nice / sizeof *nice && (int)stride * cell < spacing; i++)
        stride = nice[i];
    return stride;
}

static void print_row_labels(const svg_panel *p, const layout *l, int x, hd_text *out) {
    const size_t stride = stride_of(l->cell_h, l->font + 2);
    for (size_t i = 0; i < p->rows; i += stride)
        svg_line(out, x - 6, l->top + ((double)i + 0.5) * l->cell_h + 4,
                 " text-anchor=\"end\" class=\"l\"", p->row_labels[i]);
}

static void print_column_labels(const svg_panel *p, const layout *l, int x, hd_text *out) {
    const bool upright = l->upright;
    const int spacing = svg_text_width(longest(p->column_labels, p->columns), l->font) + 2;
    const size_t stride = stride_of(l->cell_w, upright ? l->font + 2 : spacing);
    const double y = l->top + (double)p->rows * l->cell_h + (upright ? 8 : 15);
    for (size_t i = 0; i < p->columns; i += stride) {
        const double at = x + ((double)i + 0.5) * l->cell_w + (upright ? 4 : 0);
        const char *style = " text-anchor=\"middle\" class=\"l\"";
        if (upright)
            style = hd_printf(out->arena,
                              " text-anchor=\"end\" transform=\"rotate(-90 %g %g)\" class=\"l\"",
                              at, y);
        svg_line(out, at, y, style, p->column_labels[i]);
    }
}

static void print_cells(const svg_panel *p, const layout *l, const scale *s, int x, hd_text *out) {
    for (int step = 0; step < STEPS; step++) {
        bool any = false;
        for (size_t i = 0; i < p->rows * p->columns; i++) {
            if (!isfinite(p->at[i]) || step_of(s, p->at[i]) != step) continue;
            if (!any) {
                hd_text_add(out, "<path fill=\"");
                print_colour(out, shade_of(s, step));
                hd_text_add(out, "\" d=\"");
            }
            any = true;
            const size_t row = i / p->columns, column = i % p->columns;
            hd_text_f(out, "M%d %dh%dv%dh-%dz", x + (int)column * l->cell_w,
                      l->top + (int)row * l->cell_h, l->cell_w, l->cell_h, l->cell_w);
        }
        if (any) hd_text_add(out, "\"/>\n");
    }
}

/* Prints the values in the cells, where they fit. */
static void print_values(const svg_panel *p, const layout *l, const scale *s, int x, hd_text *out) {
    if (l->cell_w < 28 || l->cell_h < 13) return;
    for (size_t i = 0; i < p->rows * p->columns; i++) {
        const double value = p->at[i];
        const size_t row = i / p->columns, column = i % p->columns;
        if (!isfinite(value)) continue;
        char text[32];
        snprintf(text, sizeof text, fabs(value) >= 9.995 ? "%.1f" : "%.2f", value);
        if (strcmp(text, "-0.00") == 0) memcpy(text, "0.00", sizeof "0.00");
        const bool dark = fabs(shade_of(s, step_of(s, value))) > 0.5;
        svg_line(out, x + ((double)column + 0.5) * l->cell_w,
                 l->top + ((double)row + 0.5) * l->cell_h + 3.5,
                 dark ? " class=\"v w\"" : " class=\"v\"", text);
    }
}

/* Draws lines across the panel where blocks end. */
static void print_blocks(const svg_panel *p, const layout *l, int x, hd_text *out) {
    const int w = (int)p->columns * l->cell_w, h = (int)p->rows * l->cell_h;
    for (size_t i = 0; p->row_ends && i + 1 < p->rows; i++)
        if (p->row_ends[i])
            hd_text_f(out, "<path class=\"b\" d=\"M%d %dh%d\"/>\n", x,
                      l->top + (int)(i + 1) * l->cell_h, w);
    for (size_t i = 0; p->column_ends && i + 1 < p->columns; i++)
        if (p->column_ends[i])
            hd_text_f(out, "<path class=\"b\" d=\"M%d %dv%d\"/>\n", x + (int)(i + 1) * l->cell_w,
                      l->top, h);
    hd_text_f(out, "<path class=\"f\" d=\"M%d %dh%dv%dh-%dz\"/>\n", x, l->top, w, h, w);
}

static void print_panel(const svg_map *map, const svg_panel *p, const layout *l, const scale *s,
                        int x, hd_text *out) {
    print_cells(p, l, s, x, out);
    print_blocks(p, l, x, out);
    print_values(p, l, s, x, out);
    print_row_labels(p, l, x, out);
    print_column_labels(p, l, x, out);
    const double middle = x + (double)p->columns * l->cell_w / 2;
    if (p->title) svg_line(out, x, l->top - 9, " class=\"p\"", p->title);
    svg_line(out, middle, l->top + (double)p->rows * l->cell_h + l->label_h + 16,
             " text-anchor=\"middle\" class=\"a\"", map->x_name);
}

static void print_bar(const svg_map *map, const layout *l, const scale *s, hd_text *out) {
    hd_text_add(out, "<defs><linearGradient id=\"g\" x1=\"0\" y1=\"1\" x2=\"0\" y2=\"0\">\n");
    const int parts = 2 * (STOPS - 1);
    for (int i = 0; i <= parts; i++) {
        hd_text_f(out, "<stop offset=\"%g\" stop-color=\"", (double)i / parts);
        print_colour(out, shade_at(s, (double)i / parts));
        hd_text_add(out, "\"/>\n");
    }
    hd_text_f(out,
              "</linearGradient></defs>\n<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" "
              "fill=\"url(#g)\"/>\n",
              l->bar_x, l->top, BAR, l->bar_h);
    hd_text_f(out, "<path class=\"f\" d=\"M%d %dh%dv%dh-%dz\"/>\n", l->bar_x, l->top, BAR, l->bar_h,
              BAR);
    const int ticks = (int)lround((s->most - s->least) / s->step);
    for (int i = 0; i <= ticks; i++) {
        const double value = s->least + i * s->step;
        const double y = l->top + l->bar_h * (1 - place_of(s, value));
        hd_text_f(out, "<path class=\"f\" d=\"M%d %.1fh4\"/>\n", l->bar_x + BAR, y);
        svg_line(out, l->bar_x + BAR + 7, y + 4, " class=\"l\"",
                 hd_printf(out->arena, "%g", fabs(value) < 1e-12 ? 0 : value));
    }
    svg_line(out, l->bar_x, l->top - 9, " class=\"a\"",
             s->root ? hd_printf(out->arena, "%s, root scale", map->scale_name) : map->scale_name);
}

void svg_begin(hd_text *out, int width, int height, int font) {
    hd_text_f(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
        "viewBox=\"0 0 %d %d\" font-family=\"Helvetica, Arial, sans-serif\">\n"
        "<style>text{fill:#222}.t{font-size:17px;font-weight:bold}.n{font-size:12px;fill:#555}"
        ".p{font-size:13px;font-weight:bold}.a{font-size:12px;fill:#444}"
        ".l{font-size:%dpx;fill:#444}.v{font-size:10px;text-anchor:middle}.w{fill:#fff}"
        ".b{stroke:#e0872e;stroke-width:1.5;fill:none}"
        ".f{stroke:#777;stroke-width:1;fill:none}.g{stroke:#ddd;stroke-width:1;fill:none}</style>\n"
        "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
        width, height, width, height, font, width, height);
}

/* ---- the picture ----------------------------------------------------------------------------- */

void svg_print(const svg_map *map, hd_text *out) {
    const layout l = lay_out(map);
    const scale s = find_scale(map);
    svg_begin(out, l.width, l.height, l.font);
    svg_line(out, MARGIN, MARGIN + 14, " class=\"t\"", map->title);
    for (size_t i = 0; i < map->n_notes; i++)
        svg_line(out, MARGIN, MARGIN + 36 + 17 * (double)i, " class=\"n\"", map->notes[i]);
    int x = l.left;
    for (size_t p = 0; p < map->n_panels; p++) {
        print_panel(map, &map->panels[p], &l, &s, x, out);
        x += (int)map->panels[p].columns * l.cell_w + l.gap;
    }
    const double y = l.top + l.plot_h / 2.0;
    svg_line(out, MARGIN, y,
             hd_printf(out->arena,
                       " text-anchor=\"middle\" transform=\"rotate(-90 %d %g)\" class=\"a\"",
                       MARGIN, y),
             map->y_name);
    print_bar(map, &l, &s, out);
    hd_text_add(out, "</svg>\n");
}
