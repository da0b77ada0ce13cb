/* Conversion of 16-bit and 8-bit floats from and to f32, one in each lane of a vector. The file
 * that includes this defines `lanes` and `words` first: vectors (GCC's vector extension) of equally
 * many floats and int32_t, of any width. Every conversion is exact or rounded once, so that the
 * width does not change results. Arguments are pointers, since functions compiled for different
 * CPUs cannot pass vectors to each other by value. Selections are masks: compilers turn selections
 * between floats into branches. */
#ifndef HD_NARROW_H
#define HD_NARROW_H

#define HD_NARROW static inline __attribute__((always_inline, unused)) void

#define HD_CHOOSE(which, yes, no) (((which) & (yes)) | (~(which) & (no)))

/* The same as hd_f16_to_f32, on bits in the low half of each word. */
HD_NARROW hd_lanes_from_f16(const words *h, lanes *out) {
    const words exponent = *h & 0x7c00, fraction = *h & 0x3ff;
    const words small = (words)(__builtin_convertvector(fraction, lanes) * 0x1p-24f);
    words y = ((*h & 0x7fff) << 13) + (112 << 23);
    y = HD_CHOOSE(exponent == 0, small, y);
    y = HD_CHOOSE(exponent == 0x7c00, (fraction << 13) | 0x7f800000, y);
    *out = (lanes)(y | (*h & 0x8000) << 16);
}

/* The same as hd_f16_from_f32, where the formula is explained. */
HD_NARROW hd_lanes_to_f16(const lanes *x, words *out) {
    const words sign = (words)*x >> 16 & 0x8000, size = (words)*x & INT32_MAX;
    const words none = size > 0x7f800000, a = size & ~none;
    const words small = (words)((lanes)(a & (a < 0x38800000)) + .5f) - 0x3f000000;
    words h = (a + 0xfff + (a >> 13 & 1) - 0x38000000) >> 13;
    h = HD_CHOOSE(a < 0x38800000, small, h);
    h = HD_CHOOSE(a >= 0x477ff000, (a & 0) + 0x7c00, h);
    h = HD_CHOOSE(none, (a & 0) + 0x7e00, h);
    *out = h | sign;
}

/* E4M3: exponent e and mantissa m are put into their places in a float, with 120 more than e should
 * have as exponent: 2^(e - 7) (1 + m / 8). Where e is 0 the number is 2^-6 m / 8, which is the code
 * itself times 2^-9. */
HD_NARROW hd_lanes_from_e4m3(const words *code, lanes *out) {
    const words size = *code & 127, normal = (size << 20) + (120 << 23);
    const words small = (words)(__builtin_convertvector(size, lanes) * 0x1p-9f);
    const words none = (size == 127) & 0x7fc00000; /* NaN */
    *out = (lanes)(HD_CHOOSE(size < 8, small, normal) | none | (*code & 128) << 24);
}

#endif
