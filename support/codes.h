/* Numbers of few bits as functions of numbers: the nearest number of a code, and the least power of
 * two that is not less. What each op of these names means, in double precision. */
#ifndef HD_CODES_H
#define HD_CODES_H

#include <math.h>

/* The nearest number with `digits` binary digits after the first, of which the least normal one is
 * 2^least, ties to even; beyond `most` it is `most`. NaN stays NaN. */
static inline double hd_nearest_code(double x, int digits, int least, double most) {
    int exponent;
    if (!(fabs(x) <= most)) return isnan(x) ? x : copysign(most, x);
    frexp(x, &exponent); /* x in [2^(exponent - 1), 2^exponent) */
    const int step = (x == 0 || exponent - 1 < least ? least : exponent - 1) - digits;
    return copysign(ldexp(rint(ldexp(x, -step)), step), x);
}

static inline double hd_round_e4m3(double x) {
    return hd_nearest_code(x, 3, -6, 448);
}

static inline double hd_round_e2m1(double x) {
    return hd_nearest_code(x, 1, 0, 6);
}

/* The least power of two from 2^-126 on that is not less than x. NaN stays NaN. */
static inline double hd_power_above(double x) {
    int exponent;
    if (isnan(x) || isinf(x)) return x < 0 ? 0x1p-126 : x;
    if (x <= 0x1p-126) return 0x1p-126;
    return frexp(x, &exponent) == 0.5 ? x : ldexp(1, exponent);
}

static inline double hd_sign(double x) {
    return isnan(x) ? x : copysign(1, x);
}

#endif
