/* Heat maps as plain SVG: panels side by side over one colour scale; and the parts of which other
 * pictures are made. */
#ifndef INSPECT_SVG_H
#define INSPECT_SVG_H

#include "support/text.h"

typedef struct svg_panel {
    const char *title;
    size_t rows, columns;
    const double *at; /* [rows, columns]; NaN: no cell */
    const char *const *row_labels, *const *column_labels;
    const bool *row_ends, *column_ends; /* by row or column: a block ends after it; NULL: none */
} svg_panel;

typedef struct svg_map {
    const char *title;
    const char *const *notes; /* lines below the title */
    size_t n_notes;
    const char *x_name, *y_name, *scale_name; /* names of the axes and of the colour bar */
    const svg_panel *panels;
    size_t n_panels;
} svg_map;

/* The scale begins at 0 and ends at the largest value; if there are negative values it is
 * two-sided. */
void svg_print(const svg_map *map, hd_text *out);

/* ---- parts of pictures ----------------------------------------------------------------------- */

/* The beginning of a picture, with the styles that its parts have by class: t title, n note, p
 * panel, a axis, l label (of `font` pixels), v value, f frame, g grid, b border. The end is
 * "</svg>\n". */
void svg_begin(hd_text *out, int width, int height, int font);
/* A line of text at x, y; `style`: attributes, each after a space. */
void svg_line(hd_text *out, double x, double y, const char *style, const char *s);
/* Estimates the width of a text: fonts differ, so the estimate is on the wide side. */
int svg_text_width(size_t letters, double size);
double svg_round_up(double x); /* to 1, 2, 5, 10, 20 .. times a power of ten */

#endif
