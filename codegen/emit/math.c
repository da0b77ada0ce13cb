/* Functions as polynomials, in vector or scalar IR of f32 (sin and cos: f64). Errors are stated in
 * ulp of the exact result where it is a normal number, and were measured over the whole range
 * against double at every level (tests/unit/codegen/emit/test_emit_math.c holds them to it).
 * Results below 2^-126 may lose bits or become zero. The polynomials interpolate at Chebyshev nodes
 * of the interval given; coefficients stand highest power first.
 *
 * NaN in gives NaN out: every clamp is written so that an unordered comparison keeps x.
 */
#include "codegen/emit/math.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/stream.h"
#include "support/known.h"

#define N_OF(array) (sizeof(array) / sizeof(array)[0])

/* ---- short names for what is written often --------------------------------------------------- */

static LLVMValueRef real(LLVMValueRef like, double value) {
    return hcg_real_like(LLVMTypeOf(like), value);
}

static LLVMValueRef quotient(hcg_emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildFDiv(e->b, a, b, "");
}

static LLVMValueRef less(hcg_emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildFCmp(e->b, LLVMRealOLT, a, b, "");
}

static LLVMValueRef pick(hcg_emit *e, LLVMValueRef when, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildSelect(e->b, when, a, b, "");
}

/* ((c0 x + c1) x + c2) ... */
static LLVMValueRef polynomial(hcg_emit *e, LLVMValueRef x, const double *c, size_t n) {
    LLVMValueRef sum = real(x, c[0]);
    for (size_t i = 1; i < n; i++)
        sum = hcg_fma(e, sum, x, real(x, c[i]));
    return sum;
}

static LLVMTypeRef int_type(hcg_emit *e, LLVMValueRef x) {
    return hcg_like(LLVMTypeOf(x), e->i32);
}

static LLVMValueRef bits(hcg_emit *e, LLVMValueRef x) {
    return LLVMBuildBitCast(e->b, x, int_type(e, x), "");
}

/* `magnitude` (not negative) with the sign of `of`. */
static LLVMValueRef with_sign(hcg_emit *e, LLVMValueRef magnitude, LLVMValueRef of) {
    LLVMValueRef mask = hcg_int_like(int_type(e, of), 0x80000000u);
    LLVMValueRef sign = LLVMBuildAnd(e->b, bits(e, of), mask, "");
    LLVMValueRef both = LLVMBuildOr(e->b, bits(e, magnitude), sign, "");
    return LLVMBuildBitCast(e->b, both, LLVMTypeOf(of), "");
}

/* ---- exponential and logarithm --------------------------------------------------------------- */

/* 2^k for integers k in [-126, 127]. */
static LLVMValueRef power_of_two(hcg_emit *e, LLVMValueRef k, LLVMTypeRef type) {
    LLVMTypeRef ints = LLVMTypeOf(k);
    k = LLVMBuildAdd(e->b, k, hcg_int_like(ints, 127), "");
    k = LLVMBuildShl(e->b, k, hcg_int_like(ints, 23), "");
    return LLVMBuildBitCast(e->b, k, type, "");
}

/* e^x = 2^n e^r, n = round(x / ln 2), |r| <= ln 2 / 2, e^r = 1 + r + r^2 P(r). */
typedef struct power {
    LLVMValueRef n; /* integers */
    LLVMValueRef y; /* e^r */
} power;

static power reduced_exp(hcg_emit *e, LLVMValueRef x) {
    static const double p[] = {0.00139262516, 0.00836323295, 0.0416665524, 0.166665763, 0.5};
    const double log2_e = HCG_LOG2_E, ln2_high = 0.6923828125,
                 ln2_low = 0.00076436805994530943; /* n ln2_high is exact */
    /* adding 1.5 2^23 rounds to an integer, which then stands in the low bits */
    LLVMValueRef magic = real(x, 12582912.0);
    LLVMValueRef shifted = hcg_fma(e, x, real(x, log2_e), magic);
    LLVMValueRef n = hcg_fsub(e, shifted, magic);
    LLVMValueRef r = hcg_fma(e, n, real(x, -ln2_high), x);
    r = hcg_fma(e, n, real(x, -ln2_low), r);
    LLVMValueRef y = hcg_fma(e, hcg_fmul(e, r, r), polynomial(e, r, p, N_OF(p)), r);
    LLVMTypeRef ints = int_type(e, x);
    /* an addition, which LLVM joins with that of an exponent's bias */
    return (power){LLVMBuildAdd(e->b, bits(e, shifted), hcg_int_like(ints, 0xb4c00000), ""),
                   hcg_fadd(e, y, real(x, 1))};
}

/* Error at most 2 ulp. exp(-inf) = 0, exp(x > 88.73) = inf.
 * The clamp keeps n in [-151, 131], so 2^n is the product of two powers that are normal numbers. */
LLVMValueRef hcg_exp(hcg_emit *e, LLVMValueRef x) {
    LLVMValueRef low = real(x, -104.5), high = real(x, 90.5);
    x = pick(e, less(e, x, low), low, x);
    x = pick(e, less(e, high, x), high, x);
    power p = reduced_exp(e, x);
    LLVMValueRef half = LLVMBuildAShr(e->b, p.n, hcg_int_like(LLVMTypeOf(p.n), 1), "");
    LLVMValueRef rest = LLVMBuildSub(e->b, p.n, half, "");
    LLVMValueRef y = hcg_fmul(e, p.y, power_of_two(e, half, LLVMTypeOf(x)));
    return hcg_fmul(e, y, power_of_two(e, rest, LLVMTypeOf(x)));
}

/* Above ln 2^-126 n is in [-126, 0] and 2^n a normal number. */
LLVMValueRef hcg_exp_not_positive(hcg_emit *e, LLVMValueRef x) {
    LLVMValueRef none = less(e, x, real(x, -87.336540));
    power p = reduced_exp(e, x);
    LLVMValueRef y = hcg_fmul(e, p.y, power_of_two(e, p.n, LLVMTypeOf(x)));
    return pick(e, none, real(x, 0), y);
}

/* e^x = 2^n 2^f, n = round(z), f = z - n for z = x log2 e, 2^f = 1 + f P(f) for |f| <= 1/2. That
 * log2 e is rounded shifts f by |x| 2^-25, without a fused multiplication twice as much. */
LLVMValueRef hcg_exp_weight(hcg_emit *e, LLVMValueRef x) {
    static const double p[] = {
        0.000154531634, 0.00133908633, 0.00961808302, 0.0555035695, 0.240226507, 0.693147182, 1};
    LLVMValueRef log2_e = real(x, HCG_LOG2_E), magic = real(x, 12582912.0);
    LLVMValueRef none = less(e, x, real(x, -87.336540));
    LLVMValueRef shifted = hcg_fma(e, x, log2_e, magic);
    LLVMValueRef f = hcg_fma(e, x, log2_e, hcg_fsub(e, magic, shifted));
    /* the bits of the magic number are shifted out: n needs no subtraction */
    LLVMValueRef scale = power_of_two(e, bits(e, shifted), LLVMTypeOf(x));
    return pick(e, none, real(x, 0), hcg_fmul(e, polynomial(e, f, p, N_OF(p)), scale));
}

/* 2^-w = 2^-n 2^-f, n = round(w), f = w - n, 2^-f = 1 + f P(f) for |f| <= 1/2. w is at most 127, so
 * that the bits of 2^-n are those of 127 - n in the place of an exponent: of 0 where n is 127. They
 * are the low bits of 127 - w + 1.5 2^23. P is the best there is for the greatest error of 2^-f. */
void hcg_half_to_the(hcg_emit *e, LLVMValueRef *w, unsigned n) {
    static const double p[] = {-0.00132646307, 0.00967149157, -0.0555074438,
                               0.240222409,    -0.693146944,  1};
    LLVMValueRef magic = real(w[0], 12582912.0 + 127), most = real(w[0], 127);
    LLVMValueRef shifted[HCG_MOST_WEIGHTS], f[HCG_MOST_WEIGHTS], y[HCG_MOST_WEIGHTS];
    hd_known(n > 0 && n <= HCG_MOST_WEIGHTS);
    for (unsigned i = 0; i < n; i++) {
        w[i] = pick(e, less(e, most, w[i]), most, w[i]);
        shifted[i] = hcg_fsub(e, magic, w[i]);
        f[i] = hcg_fadd(e, w[i], hcg_fsub(e, shifted[i], magic));
        y[i] = real(w[i], p[0]);
    }
    for (size_t c = 1; c < N_OF(p); c++) {
        for (unsigned i = 0; i < n; i++)
            y[i] = hcg_fma(e, y[i], f[i], real(w[i], p[c]));
        if (n > 1 && e->level->registers < 32) hcg_keep_together(e, y, n);
    }
    for (unsigned i = 0; i < n; i++) {
        LLVMTypeRef ints = int_type(e, w[i]);
        LLVMValueRef scale = LLVMBuildShl(e->b, bits(e, shifted[i]), hcg_int_like(ints, 23), "");
        w[i] = hcg_fmul(e, y[i], LLVMBuildBitCast(e->b, scale, LLVMTypeOf(w[i]), ""));
    }
}

/* 2 atanh(s) for |s| <= 1/3: 2s + s^3 P(s^2). */
static LLVMValueRef twice_atanh(hcg_emit *e, LLVMValueRef s) {
    static const double p[] = {0.232243299, 0.217065752, 0.28592357, 0.399997056, 0.666666687};
    LLVMValueRef z = hcg_fmul(e, s, s);
    LLVMValueRef cube = hcg_fmul(e, z, s);
    return hcg_fma(e, cube, polynomial(e, z, p, N_OF(p)), hcg_fadd(e, s, s));
}

/* ln x = k ln 2 + ln m, m in [sqrt 1/2, sqrt 2); with f = m - 1: ln m = 2 atanh(f / (2 + f)).
 * Error at most 2 ulp. log 0 = -inf, log of a negative number is NaN, log inf = inf. */
LLVMValueRef hcg_log(hcg_emit *e, LLVMValueRef x) {
    const double ln2_high = 0.6923828125, ln2_low = 0.00076436805994530943, smallest = 0x1p-126;
    LLVMTypeRef type = LLVMTypeOf(x), ints = int_type(e, x);
    LLVMValueRef given = x;
    LLVMValueRef tiny = less(e, x, real(x, smallest));
    x = pick(e, tiny, hcg_fmul(e, x, real(x, 0x1p23)), x);
    LLVMValueRef root_half = hcg_int_like(ints, 0x3f3504f3); /* sqrt 1/2 */
    LLVMValueRef i = LLVMBuildSub(e->b, bits(e, x), root_half, "");
    LLVMValueRef exponent = LLVMBuildAShr(e->b, i, hcg_int_like(ints, 23), "");
    LLVMValueRef k = LLVMBuildSIToFP(e->b, exponent, type, "");
    k = pick(e, tiny, hcg_fsub(e, k, real(x, 23)), k);
    i = LLVMBuildAnd(e->b, i, hcg_int_like(ints, 0x7fffff), "");
    i = LLVMBuildAdd(e->b, i, root_half, "");
    LLVMValueRef f = hcg_fsub(e, LLVMBuildBitCast(e->b, i, type, ""), real(x, 1));
    LLVMValueRef y = twice_atanh(e, quotient(e, f, hcg_fadd(e, f, real(x, 2))));
    y = hcg_fma(e, k, real(x, ln2_low), y);
    y = hcg_fma(e, k, real(x, ln2_high), y);

    LLVMValueRef infinity = real(x, 1.0 / 0.0), zero = real(x, 0);
    LLVMValueRef positive = LLVMBuildFCmp(e->b, LLVMRealOGT, given, zero, "");
    LLVMValueRef finite = less(e, given, infinity);
    LLVMValueRef is_zero = LLVMBuildFCmp(e->b, LLVMRealOEQ, given, zero, "");
    LLVMValueRef below = pick(e, is_zero, real(x, -1.0 / 0.0), real(x, 0.0 / 0.0));
    return pick(e, positive, pick(e, finite, y, infinity), below);
}

/* ---- functions of the exponential ------------------------------------------------------------ */

static LLVMValueRef exp_of_minus(hcg_emit *e, LLVMValueRef x) {
    return hcg_exp(e, LLVMBuildFNeg(e->b, x, ""));
}

/* 1 / (1 + e^-x). Error at most 4 ulp for x > -87; below it becomes 0. */
LLVMValueRef hcg_sigmoid(hcg_emit *e, LLVMValueRef x) {
    return quotient(e, real(x, 1), hcg_fadd(e, real(x, 1), exp_of_minus(e, x)));
}

/* x / (1 + e^-x). Error at most 4 ulp for x > -87; below it becomes -0. */
LLVMValueRef hcg_silu(hcg_emit *e, LLVMValueRef x) {
    return quotient(e, x, hcg_fadd(e, real(x, 1), exp_of_minus(e, x)));
}

/* |x| < 0.625: x + x^3 P(x^2); else 1 - 2 / (e^2|x| + 1) with the sign of x.
 * Error at most 3 ulp. */
LLVMValueRef hcg_tanh(hcg_emit *e, LLVMValueRef x) {
    static const double p[] = {-0.00609671418, 0.0209971797, -0.0538509078, 0.133327693,
                               -0.333333284};
    LLVMValueRef one = real(x, 1), a = hcg_abs(e, x);
    LLVMValueRef z = hcg_fmul(e, x, x);
    LLVMValueRef small = hcg_fma(e, hcg_fmul(e, z, x), polynomial(e, z, p, N_OF(p)), x);
    LLVMValueRef big = hcg_fadd(e, hcg_exp(e, hcg_fadd(e, a, a)), one);
    big = hcg_fsub(e, one, quotient(e, real(x, 2), big));
    return pick(e, less(e, a, real(x, 0.625)), small, with_sign(e, big, x));
}

/* ln(1 + e^x) = max(x, 0) + ln(1 + z), z = e^-|x| <= 1; ln(1 + z) = 2 atanh(z / (2 + z)).
 * Error at most 4 ulp for x > -87. */
LLVMValueRef hcg_softplus(hcg_emit *e, LLVMValueRef x) {
    LLVMValueRef z = exp_of_minus(e, hcg_abs(e, x));
    LLVMValueRef y = twice_atanh(e, quotient(e, z, hcg_fadd(e, z, real(x, 2))));
    LLVMValueRef zero = real(x, 0);
    return hcg_fadd(e, pick(e, less(e, x, zero), zero, x), y); /* NaN: through x and z */
}

/* ---- the error function ---------------------------------------------------------------------- */

/* erfc a = e^-a^2 t Q(t), t = 1 / (1 + a/2), for a >= 0. The relative error grows with a^2 (that of
 * rounding a^2): at most 2e-7 + 1e-7 a^2. */
static LLVMValueRef erfc_of_positive(hcg_emit *e, LLVMValueRef a) {
    static const double q[] = {-0.0597149208, 0.287768304, -0.493863642, 0.285697699, -0.0318417586,
                               0.204853654,   0.242572889, 0.282445043,  0.282082677};
    LLVMValueRef t = quotient(e, real(a, 1), hcg_fma(e, a, real(a, 0.5), real(a, 1)));
    LLVMValueRef y = hcg_fmul(e, t, polynomial(e, t, q, N_OF(q)));
    return hcg_fmul(e, y, exp_of_minus(e, hcg_fmul(e, a, a)));
}

/* |x| < 1: x P(x^2); else 1 - erfc |x| with the sign of x. Error at most 4 ulp. */
LLVMValueRef hcg_erf(hcg_emit *e, LLVMValueRef x) {
    static const double p[] = {-0.000564805989, 0.00492176181, -0.0267150551,
                               0.112803169,     -0.376123428,  1.12837911};
    LLVMValueRef one = real(x, 1), a = hcg_abs(e, x);
    LLVMValueRef small = hcg_fmul(e, x, polynomial(e, hcg_fmul(e, x, x), p, N_OF(p)));
    LLVMValueRef big = with_sign(e, hcg_fsub(e, one, erfc_of_positive(e, a)), x);
    return pick(e, less(e, a, one), small, big);
}

/* x/2 (1 + erf(x / sqrt 2)) = x/2 erfc(-x / sqrt 2): no difference of near numbers on either side.
 * Error at most 16 ulp or 8e-9, whichever is larger. */
LLVMValueRef hcg_gelu(hcg_emit *e, LLVMValueRef x) {
    LLVMValueRef zero = real(x, 0);
    LLVMValueRef c = erfc_of_positive(e, hcg_fmul(e, hcg_abs(e, x), real(x, 0.70710678118654752)));
    LLVMValueRef two_sided = pick(e, less(e, x, zero), c, hcg_fsub(e, real(x, 2), c));
    return hcg_fmul(e, hcg_fmul(e, x, real(x, 0.5)), two_sided);
}

/* x/2 (1 + tanh u) = x / (1 + e^-2u), u = sqrt(2/pi) (x + 0.044715 x^3).
 * Error at most 17 ulp or 1e-8, whichever is larger. */
LLVMValueRef hcg_gelu_tanh(hcg_emit *e, LLVMValueRef x) {
    const double c = 1.5957691216057308; /* 2 sqrt(2/pi) */
    LLVMValueRef z = hcg_fmul(e, x, x);
    LLVMValueRef u = hcg_fma(e, z, real(x, 0.044715 * c), real(x, c));
    LLVMValueRef d = hcg_fadd(e, real(x, 1), exp_of_minus(e, hcg_fmul(e, u, x)));
    return quotient(e, x, d);
}

/* ---- sine and cosine in f64 ------------------------------------------------------------------ */

/* angle = q pi/2 + r, |r| <= pi/4; pi/2 in three parts, of which the first two have 24 bits, so
 * that their products with q < 2^29 are exact. sin r = r + r^3 S(r^2), cos r = 1 - r^2/2 + r^4
 * C(r^2). Error at most 1e-12 for |angle| < 2^29. */
void hcg_sincos(hcg_emit *e, LLVMValueRef angle, LLVMValueRef *sine, LLVMValueRef *cosine) {
    static const double s[] = {-2.4805587179980646e-08, 2.7555990399839905e-06,
                               -0.00019841266915235039, 0.0083333333310774225,
                               -0.16666666666663882};
    static const double c[] = {2.070056539736993e-09, -2.7556369316750491e-07,
                               2.4801585209738397e-05, -0.0013888888887276056, 0.04166666666666468};
    const double part[] = {1.5707962512969971, 7.5497894158615964e-08, 5.390302858158119e-15};
    LLVMTypeRef type = LLVMTypeOf(angle), ints = hcg_like(type, e->i64);
    LLVMValueRef magic = real(angle, 6755399441055744.0); /* 1.5 2^52 */
    LLVMValueRef shifted = hcg_fma(e, angle, real(angle, 0.63661977236758134), magic);
    LLVMValueRef q = hcg_fsub(e, shifted, magic), r = angle;
    for (size_t i = 0; i < N_OF(part); i++)
        r = hcg_fma(e, q, real(angle, -part[i]), r);

    LLVMValueRef z = hcg_fmul(e, r, r);
    LLVMValueRef sr = hcg_fma(e, hcg_fmul(e, z, r), polynomial(e, z, s, N_OF(s)), r);
    LLVMValueRef cr = hcg_fma(e, z, real(angle, -0.5), real(angle, 1));
    cr = hcg_fma(e, hcg_fmul(e, z, z), polynomial(e, z, c, N_OF(c)), cr);

    /* quadrant k: sin is s, c, -s, -c and cos is c, -s, -c, s */
    LLVMValueRef k = LLVMBuildBitCast(e->b, shifted, ints, "");
    LLVMValueRef one = hcg_int_like(ints, 1), zero = hcg_int_like(ints, 0);
    LLVMValueRef odd = LLVMBuildICmp(e->b, LLVMIntNE, LLVMBuildAnd(e->b, k, one, ""), zero, "");
    LLVMValueRef top = hcg_int_like(ints, 62);
    LLVMValueRef high = hcg_int_like(ints, 1ull << 63);
    LLVMValueRef s_sign = LLVMBuildAnd(e->b, LLVMBuildShl(e->b, k, top, ""), high, "");
    LLVMValueRef next = LLVMBuildAdd(e->b, k, one, "");
    LLVMValueRef c_sign = LLVMBuildAnd(e->b, LLVMBuildShl(e->b, next, top, ""), high, "");
    LLVMValueRef sin_bits = LLVMBuildBitCast(e->b, pick(e, odd, cr, sr), ints, "");
    LLVMValueRef cos_bits = LLVMBuildBitCast(e->b, pick(e, odd, sr, cr), ints, "");
    *sine = LLVMBuildBitCast(e->b, LLVMBuildXor(e->b, sin_bits, s_sign, ""), type, "");
    *cosine = LLVMBuildBitCast(e->b, LLVMBuildXor(e->b, cos_bits, c_sign, ""), type, "");
}

/* ---- the op table ---------------------------------------------------------------------------- */

static LLVMValueRef relu(hcg_emit *e, LLVMValueRef x) {
    LLVMValueRef zero = real(x, 0);
    return pick(e, less(e, x, zero), zero, x);
}

/* x rounded to a narrower type, as f32. */
/* The least power of two that is not less: a carry out of the digits reaches the exponent. */
static LLVMValueRef power_above(hcg_emit *e, LLVMValueRef x) {
    LLVMTypeRef ints = int_type(e, x);
    LLVMValueRef least = real(x, 0x1p-126);
    LLVMValueRef up = pick(e, less(e, x, least), least, x); /* NaN stays */
    LLVMValueRef y = LLVMBuildAdd(e->b, bits(e, up), hcg_int_like(ints, 0x7fffff), "");
    y = LLVMBuildAnd(e->b, y, hcg_int_like(ints, 0x7f800000), "");
    y = LLVMBuildBitCast(e->b, y, LLVMTypeOf(x), "");
    return pick(e, LLVMBuildFCmp(e->b, LLVMRealUNO, x, x, ""), x, y);
}

/* The nearest number of a code of `digits` binary digits after the first, whose least normal number
 * is `least`: added to 1.5 2^(23 - digits) times the power of two below |x|, the sum has no more
 * digits than that. */
static LLVMValueRef nearest_code(hcg_emit *e, LLVMValueRef x, int digits, double least,
                                 double most) {
    LLVMTypeRef ints = int_type(e, x);
    LLVMValueRef size = hcg_abs(e, x), highest = real(x, most), lowest = real(x, least);
    size = pick(e, less(e, highest, size), highest, size);
    LLVMValueRef power = pick(e, less(e, size, lowest), lowest, size);
    power = LLVMBuildAnd(e->b, bits(e, power), hcg_int_like(ints, 0x7f800000), "");
    power = LLVMBuildBitCast(e->b, power, LLVMTypeOf(x), "");
    LLVMValueRef far = hcg_fmul(e, power, real(x, 1.5 * (double)(1 << (23 - digits))));
    return with_sign(e, hcg_fsub(e, hcg_fadd(e, size, far), far), x);
}

static LLVMValueRef rounded_to(hcg_emit *e, const hir_op *op, LLVMValueRef x) {
    const hir_dtype dtype = hir_value_at(e->p->m, op->results[0])->type.dtype;
    return dtype == HIR_F32 ? x : hcg_widen(e, dtype, hcg_narrow(e, dtype, x));
}

LLVMValueRef hcg_elementwise(hcg_emit *e, const hir_op *op, LLVMValueRef x, LLVMValueRef y) {
    switch (op->code) {
    case HIR_NEG_OP: return LLVMBuildFNeg(e->b, x, "");
    case HIR_ABS_OP: return hcg_abs(e, x);
    case HIR_SQRT_OP: return hcg_sqrt(e, x);
    case HIR_RSQRT_OP: return quotient(e, real(x, 1), hcg_sqrt(e, x)); /* 1 ulp */
    case HIR_RECIP_OP: return quotient(e, real(x, 1), x);
    case HIR_EXP_OP: return hcg_exp(e, x);
    case HIR_LOG_OP: return hcg_log(e, x);
    case HIR_TANH_OP: return hcg_tanh(e, x);
    case HIR_SIGMOID_OP: return hcg_sigmoid(e, x);
    case HIR_SILU_OP: return hcg_silu(e, x);
    case HIR_GELU_OP: return hcg_gelu(e, x);
    case HIR_GELU_TANH_OP: return hcg_gelu_tanh(e, x);
    case HIR_RELU_OP: return relu(e, x);
    case HIR_SOFTPLUS_OP: return hcg_softplus(e, x);
    case HIR_ERF_OP: return hcg_erf(e, x);
    case HIR_SIGN_OP: {
        LLVMValueRef nan = LLVMBuildFCmp(e->b, LLVMRealUNO, x, x, "");
        return pick(e, nan, x, with_sign(e, real(x, 1), x));
    }
    case HIR_ROUND_E4M3_OP: return nearest_code(e, x, 3, 0x1p-6, 448);
    case HIR_ROUND_E2M1_OP: return nearest_code(e, x, 1, 1, 6);
    case HIR_POWER_ABOVE_OP: return power_above(e, x);
    case HIR_ADD_OP: return hcg_fadd(e, x, y);
    case HIR_SUB_OP: return hcg_fsub(e, x, y);
    case HIR_MUL_OP: return hcg_fmul(e, x, y);
    case HIR_DIV_OP: return quotient(e, x, y);
    case HIR_MAX_OP: return hcg_max(e, x, y);
    case HIR_MIN_OP: return hcg_min(e, x, y);
    case HIR_WHEN_OP: return pick(e, less(e, real(x, 0), x), y, real(y, 0));
    case HIR_CONVERT_OP: return rounded_to(e, op, x);
    default:
        hd_err(e->diags, HD_E_UNSUPPORTED, *op->loc, "%s is not an elementwise op",
               hir_info(op->code)->name);
        return real(x, 0);
    }
}
