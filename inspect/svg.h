/* Heat maps as plain SVG: panels side by side over one colour scale. */
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

#endif
