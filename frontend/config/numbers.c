/* numpy's generator of random numbers, and primes.
 *
 * default_rng(seed) is PCG64 (O'Neill 2014, "PCG: a family of simple fast space-efficient
 * statistically good algorithms for random number generation") seeded by SeedSequence, which mixes
 * the words of the seed. A number below a bound is made by Lemire's method (2019, "Fast random
 * integer generation in an interval"), of 32 bits where the bound allows it.
 */
#include "frontend/config/numbers.h"

typedef unsigned __int128 wide;

/* ---- the seed -------------------------------------------------------------------------------- */

enum { POOL = 4 };

static uint32_t hash_word(uint32_t x, uint32_t *factor, uint32_t step) {
    x ^= *factor;
    *factor *= step;
    x *= *factor;
    return x ^ x >> 16;
}

static uint32_t mix_words(uint32_t x, uint32_t y) {
    const uint32_t z = 0xca01f9ddu * x - 0x4973f715u * y;
    return z ^ z >> 16;
}

static void fill_pool(uint64_t seed, uint32_t pool[POOL]) {
    const uint32_t step = 0x931e8875u, words[POOL] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t factor = 0x43b0d7e5u;
    for (int i = 0; i < POOL; i++)
        pool[i] = hash_word(words[i], &factor, step);
    for (int from = 0; from < POOL; from++)
        for (int to = 0; to < POOL; to++)
            if (from != to) pool[to] = mix_words(pool[to], hash_word(pool[from], &factor, step));
}

/* ---- the generator --------------------------------------------------------------------------- */

typedef struct generator {
    wide state, step;
    bool has_half; /* the high half of a number of 64 bits is left */
    uint32_t half;
} generator;

static void advance(generator *g) {
    const wide factor = (wide)0x2360ed051fc65da4u << 64 | 0x4385df649fccf645u;
    g->state = g->state * factor + g->step;
}

static generator new_generator(uint64_t seed) {
    uint32_t pool[POOL], factor = 0x8b51f9ddu;
    uint64_t words[4] = {0};
    fill_pool(seed, pool);
    for (int i = 0; i < 8; i++)
        words[i / 2] |= (uint64_t)hash_word(pool[i % POOL], &factor, 0x58f38dedu) << 32 * (i % 2);
    generator g = {.step = ((wide)words[2] << 64 | words[3]) << 1 | 1};
    advance(&g);
    g.state += (wide)words[0] << 64 | words[1];
    advance(&g);
    return g;
}

static uint64_t next64(generator *g) {
    advance(g);
    const uint64_t high = (uint64_t)(g->state >> 64), x = high ^ (uint64_t)g->state;
    const unsigned turn = (unsigned)(high >> 58);
    return x >> turn | x << (-turn & 63);
}

static uint32_t next32(generator *g) {
    g->has_half = !g->has_half;
    if (!g->has_half) return g->half;
    const uint64_t x = next64(g);
    g->half = (uint32_t)(x >> 32);
    return (uint32_t)x;
}

/* A number of 0 .. below - 1, of `bits` random bits times below; what would make some numbers more
 * likely is drawn again. */
static int64_t number_below(generator *g, uint64_t below) {
    const int bits = below <= UINT64_C(1) << 32 ? 32 : 64;
    const uint64_t all = bits == 32 ? UINT32_MAX : UINT64_MAX;
    const uint64_t uneven = (all - below + 1) % below;
    wide product;
    do
        product = (wide)(bits == 32 ? next32(g) : next64(g)) * below;
    while (((uint64_t)product & all) < uneven);
    return (int64_t)(uint64_t)(product >> bits);
}

void hfe_draw_integers(uint64_t seed, int64_t below, size_t n, int64_t *out) {
    generator g = new_generator(seed);
    for (size_t i = 0; i < n; i++)
        out[i] =
            below > 1 ? number_below(&g, (uint64_t)below) : 0; /* of one number none is drawn */
}

/* ---- primes ---------------------------------------------------------------------------------- */

static uint64_t power(uint64_t x, uint64_t exponent, uint64_t modulus) {
    uint64_t y = 1;
    for (; exponent; exponent >>= 1) {
        if (exponent & 1) y = (uint64_t)((wide)y * x % modulus);
        x = (uint64_t)((wide)x * x % modulus);
    }
    return y;
}

/* Miller and Rabin's test; these bases decide it for all numbers of 64 bits. */
static bool is_prime(uint64_t n) {
    static const uint64_t bases[] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37};
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++)
        if (n % bases[i] == 0) return n == bases[i];
    if (n < 2) return false;
    const int twos = __builtin_ctzll(n - 1);
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++) {
        uint64_t x = power(bases[i], (n - 1) >> twos, n);
        bool passes = x == 1 || x == n - 1;
        for (int k = 1; k < twos && !passes; k++) {
            x = (uint64_t)((wide)x * x % n);
            passes = x == n - 1;
        }
        if (!passes) return false;
    }
    return true;
}

int64_t hfe_prime_after(int64_t n) {
    uint64_t x = (uint64_t)n + 1;
    while (!is_prime(x))
        x++;
    return (int64_t)x;
}
