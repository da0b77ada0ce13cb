/* Curves over numbered places, as plain SVG. */
#ifndef INSPECT_CURVES_H
#define INSPECT_CURVES_H

#include "support/text.h"

typedef struct curve {
    const char *name;
    const double *at; /* by place; NaN: no point, and the curve has a gap */
} curve;

typedef struct curves_chart {
    const char *title;
    const char *const *notes; /* lines below the title */
    size_t n_notes;
    const char *x_name, *y_name;
    const char *const *labels; /* by place */
    size_t n;                  /* places */
    const curve *curves;       /* at most four; the first is the one that matters */
    size_t n_curves;
} curves_chart;

/* The axis of values, which must not be negative, begins at 0; or it is logarithmic, where the
 * largest value is more than 50 times the smallest above 0. */
void curves_svg(const curves_chart *c, hd_text *out);

#endif
