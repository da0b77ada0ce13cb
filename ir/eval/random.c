/* Seeded streams of random numbers, and the random weights drawn from them. */
#include "ir/eval/random.h"

#include <math.h>

#include "ir/eval/eval.h"
#include "support/tensorfile.h"

uint64_t hir_random_mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* splitmix64, used to seed. */
static uint64_t splitmix(uint64_t *state) {
    return hir_random_mix(*state += 0x9e3779b97f4a7c15u);
}

/* FNV-1a */
static uint64_t hash_name(const char *name) {
    uint64_t h = 0xcbf29ce484222325u;
    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 0x100000001b3u;
    return h;
}

hir_random hir_random_stream(uint64_t seed, const char *name) {
    uint64_t state = seed;
    state = splitmix(&state) ^ hash_name(name);
    hir_random r;
    for (int i = 0; i < 4; i++)
        r.s[i] = splitmix(&state);
    return r;
}

static uint64_t rotate_left(uint64_t x, int k) {
    return (x << k) | (x >> (64 - k));
}

uint64_t hir_random_next(hir_random *r) {
    uint64_t *s = r->s, result = rotate_left(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

double hir_random_normal(hir_random *r) {
    int64_t sum = 0;
    for (int draw = 0; draw < 2; draw++) {
        uint64_t bits = hir_random_next(r);
        for (int i = 0; i < 64; i += 16)
            sum += (int64_t)(bits >> i & 0xffff);
    }
    /* Eight uniforms on 0 .. 65535 have mean 4 * 65535 and variance 8 (65536^2 - 1) / 12; the
     * divisor is its root, written out so that no library function decides the bits. */
    return (double)(sum - 4 * 65535) / 53509.91992145008;
}

uint64_t hir_random_below(hir_random *r, uint64_t n) {
    /* High half of a 64 x 64 product; the bias is below n / 2^64. */
    return (uint64_t)((unsigned __int128)hir_random_next(r) * n >> 64);
}

/* Every value is exact in bf16 and in f16, whatever the weight's storage dtype, so that a pass that
 * narrows the storage of a weight changes no result. (Rounding a bf16 to f16 drops nothing but bits
 * below 2^-24, which leaves a bf16.) */
static double as_half(double x) {
    return (double)hd_f16_to_f32(hd_f16_from_f64(hd_bf16_to_f32(hd_bf16_from_f32((float)x))));
}

bool hir_random_weights(void *context, const hir_module *m, uint32_t w, double *out, hd_diags *d) {
    (void)d;
    const hir_weight *weight = &m->weights.at[w];
    if (hir_is_derived(weight)) return true;
    hir_type type = weight->type;
    hir_random r = hir_random_stream(*(const uint64_t *)context, weight->name);
    int64_t n = hir_type_row_elements(type);
    bool matrix = type.rank >= 2;
    double mean = matrix ? 0 : 1;
    double spread = matrix ? 1 / sqrt((double)type.dim[type.rank - 1]) : 0.1;
    for (int64_t i = 0; i < n; i++)
        out[i] = as_half(mean + spread * hir_random_normal(&r));
    return true;
}
