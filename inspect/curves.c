#include "inspect/curves.h"

#include <math.h>
#include <string.h>

#include "inspect/svg.h"

enum { MARGIN = 24, LEFT = 76, PLOT_H = 300, LEAST_W = 420, MOST_W = 980, LEGEND = 22 };

static const char *const colours[] = {"#1f6db4", "#d2622a", "#7a7a7a", "#2f8f5b"};

/* ---- the axis of values ---------------------------------------------------------------------- */

typedef struct axis {
    double least, most; /* of a logarithmic axis their logarithms to base 10 */
    bool logarithmic;
} axis;

static axis find_axis(const curves_chart *c) {
    double most = 0, least = INFINITY;
    for (size_t k = 0; k < c->n_curves; k++)
        for (size_t i = 0; i < c->n; i++) {
            const double v = c->curves[k].at[i];
            if (!isfinite(v) || v <= 0) continue;
            most = fmax(most, v);
            least = fmin(least, v);
        }
    if (most <= 0) return (axis){0, 1, false};
    if (most > 50 * least) return (axis){floor(log10(least)), ceil(log10(most)), true};
    const double step = svg_round_up(most / 5 / (1 + 1e-9));
    return (axis){0, step * ceil(most / step - 1e-9), false};
}

/* Where between the ends a value lies, 0 to 1. A value of 0 is at the lower end. */
static double place_of(const axis *a, double v) {
    const double at = a->logarithmic ? v > 0 ? log10(v) : a->least : v;
    return fmax(0, (at - a->least) / (a->most - a->least));
}

/* ---- parts ----------------------------------------------------------------------------------- */

typedef struct frame {
    double x, y, w, h;
} frame;

static double x_of(const curves_chart *c, const frame *f, size_t i) {
    return f->x + ((double)i + 0.5) * f->w / (double)c->n;
}

static void print_ticks(const axis *a, const frame *f, hd_text *out) {
    const double step = a->logarithmic ? 1 : svg_round_up(a->most / 5 / (1 + 1e-9));
    const int n = (int)lround((a->most - a->least) / step);
    for (int i = 0; i <= n; i++) {
        const double at = a->least + i * step, value = a->logarithmic ? pow(10, at) : at;
        const double y = f->y + f->h * (1 - place_of(a, value));
        hd_text_f(out, "<path class=\"g\" d=\"M%g %.1fh%g\"/>\n", f->x, y, f->w);
        svg_line(out, f->x - 7, y + 4, " text-anchor=\"end\" class=\"l\"",
                 hd_printf(out->arena, "%g", value));
    }
}

static void print_labels(const curves_chart *c, const frame *f, hd_text *out) {
    size_t every = 1, longest = 1;
    for (size_t i = 0; i < c->n; i++)
        if (strlen(c->labels[i]) > longest) longest = strlen(c->labels[i]);
    while ((double)every * f->w / (double)c->n < 7.0 * (double)longest + 8)
        every++;
    for (size_t i = 0; i < c->n; i++) {
        const bool last = i + 1 == c->n;
        if (!last && (i % every || c->n - 1 - i < every)) continue;
        svg_line(out, x_of(c, f, i), f->y + f->h + 17, " text-anchor=\"middle\" class=\"l\"",
                 c->labels[i]);
    }
    svg_line(out, f->x + f->w / 2, f->y + f->h + 38, " text-anchor=\"middle\" class=\"a\"",
             c->x_name);
}

static void print_curve(const curves_chart *c, size_t k, const axis *a, const frame *f,
                        hd_text *out) {
    bool on = false;
    hd_text_f(out, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"%s\" d=\"", colours[k],
              k ? "1.4" : "2.4");
    for (size_t i = 0; i < c->n; i++) {
        const double v = c->curves[k].at[i];
        if (isfinite(v))
            hd_text_f(out, "%c%.1f %.1f", on ? 'L' : 'M', x_of(c, f, i),
                      f->y + f->h * (1 - place_of(a, v)));
        on = isfinite(v);
    }
    hd_text_add(out, "\"/>\n");
    for (size_t i = 0; i < c->n; i++)
        if (isfinite(c->curves[k].at[i]))
            hd_text_f(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%s\" fill=\"%s\"/>\n",
                      x_of(c, f, i), f->y + f->h * (1 - place_of(a, c->curves[k].at[i])),
                      k ? "1.8" : "2.6", colours[k]);
}

static void print_legend(const curves_chart *c, double x, double y, hd_text *out) {
    for (size_t k = 0; k < c->n_curves; k++) {
        hd_text_f(out, "<path stroke=\"%s\" stroke-width=\"%s\" d=\"M%g %gh18\"/>\n", colours[k],
                  k ? "1.4" : "2.4", x, y - 4);
        svg_line(out, x + 24, y, " class=\"l\"", c->curves[k].name);
        x += 24 + svg_text_width(strlen(c->curves[k].name), 11) + 22;
    }
}

void curves_svg(const curves_chart *c, hd_text *out) {
    const axis a = find_axis(c);
    frame f = {.x = LEFT, .y = MARGIN + 30 + 17 * (double)c->n_notes + LEGEND, .h = PLOT_H};
    f.w = fmin(fmax(26.0 * (double)c->n, LEAST_W), MOST_W);
    int width = (int)(f.x + f.w) + MARGIN;
    const int title = svg_text_width(strlen(c->title), 18) + 2 * MARGIN;
    if (title > width) width = title;
    svg_begin(out, width, (int)(f.y + f.h) + 38 + MARGIN, 11);
    svg_line(out, MARGIN, MARGIN + 14, " class=\"t\"", c->title);
    for (size_t i = 0; i < c->n_notes; i++)
        svg_line(out, MARGIN, MARGIN + 36 + 17 * (double)i, " class=\"n\"", c->notes[i]);
    print_legend(c, f.x, f.y - 14, out);
    print_ticks(&a, &f, out);
    hd_text_f(out, "<path class=\"f\" d=\"M%g %gh%gv%gh-%gz\"/>\n", f.x, f.y, f.w, f.h, f.w);
    for (size_t k = c->n_curves; k-- > 0;)
        print_curve(c, k, &a, &f, out);
    print_labels(c, &f, out);
    const double y = f.y + f.h / 2;
    svg_line(out, MARGIN, y,
             hd_printf(out->arena,
                       " text-anchor=\"middle\" transform=\"rotate(-90 %d %g)\" class=\"a\"",
                       MARGIN, y),
             a.logarithmic ? hd_printf(out->arena, "%s, logarithmic", c->y_name) : c->y_name);
    hd_text_add(out, "</svg>\n");
}
