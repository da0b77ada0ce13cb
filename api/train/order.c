#include "api/train/order.h"

#include <stdio.h>

#include "ir/eval/random.h"

/* A permutation of the numbers below 4^bits: a Feistel network of rounds that are keyed by an epoch's
 * random numbers. */
enum { ROUNDS = 6 };
typedef struct shuffle {
    unsigned bits; /* of each half */
    uint64_t keys[ROUNDS];
} shuffle;

static uint64_t permuted(const shuffle *f, uint64_t x) {
    const uint64_t mask = (UINT64_C(1) << f->bits) - 1;
    uint64_t left = x >> f->bits, right = x & mask;
    for (int i = 0; i < ROUNDS; i++) {
        const uint64_t next = left ^ (hir_random_mix(right ^ f->keys[i]) & mask);
        left = right, right = next;
    }
    return left << f->bits | right;
}

/* A permutation of the numbers below n: what falls out of them goes on until it is back. */
static uint64_t permuted_below(const shuffle *f, uint64_t x, uint64_t n) {
    do
        x = permuted(f, x);
    while (x >= n);
    return x;
}

train_order train_order_of(uint64_t seed, int64_t tokens, int64_t context) {
    return (train_order){.seed = seed,
                         .context = context,
                         .windows = (tokens - 1) / context,
                         .spare = (tokens - 1) % context};
}

int64_t train_window(const train_order *o, int64_t i) {
    char name[48];
    snprintf(name, sizeof name, "data of epoch %lld", (long long)(i / o->windows));
    hir_random r = hir_random_stream(o->seed, name);
    shuffle f = {.bits = 1};
    while ((o->windows - 1) >> (2 * f.bits))
        f.bits++;
    const int64_t begin = (int64_t)hir_random_below(&r, (uint64_t)o->spare + 1);
    for (int k = 0; k < ROUNDS; k++)
        f.keys[k] = hir_random_next(&r);
    const uint64_t at = permuted_below(&f, (uint64_t)(i % o->windows), (uint64_t)o->windows);
    return begin + (int64_t)at * o->context;
}
