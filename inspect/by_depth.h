/* How large things are at which depth: the root mean square, over tokens and channels, of what each
 * sublayer reads and gives and of the streams between sublayers (Attention Residuals paper, figure
 * 5b: the magnitude of outputs by depth). */
#ifndef INSPECT_BY_DEPTH_H
#define INSPECT_BY_DEPTH_H

#include "inspect/taps.h"
#include "inspect/views.h"

typedef struct by_depth {
    const taps *taps;
    int64_t tokens;
    double *squares; /* by tap: the sum of squares of its elements over the tokens */
} by_depth;

/* `x`: with measured taps, after taps_keep. */
void by_depth_start(const taps *x, hd_arena *a, by_depth *out);
/* Adds `rows` rows of `row` elements each of value `shown`. */
void by_depth_add(by_depth *x, uint32_t shown, const float *at, int64_t row, int64_t rows);
void by_depth_add_exact(by_depth *x, uint32_t shown, const double *at, int64_t row, int64_t rows);
double by_depth_rms(const by_depth *x, size_t tap); /* index in taps.list */

/* Of the subject's graph on its tokens, by the evaluator. */
bool by_depth_collect(const inspect_subject *s, by_depth *out);
void by_depth_text(const by_depth *x, hd_text *out);
void by_depth_json(const by_depth *x, hd_text *out);
void by_depth_svg(const by_depth *x, hd_text *out);

#endif
