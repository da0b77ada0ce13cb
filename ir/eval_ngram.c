/* Evaluator rule of ngram_gather. Ids are whole numbers in f64; hashes have 64 bits, whose products
 * wrap around. */
#include <string.h>

#include "ir/eval_private.h"

/* The id of a position of this call, or of one that the window still holds. */
static int64_t id_at(const eval_call *c, const hir_array *const *x, int64_t position) {
    const int64_t past = c->C - c->T;
    if (position >= past) return (int64_t)x[0]->at[position - past];
    return (int64_t)x[2]->at[position % x[2]->n];
}

/* What the token at p sees s positions back, for s < n: eos from the first eos before p on, and
 * before the start. */
static void context(const eval_call *c, const hir_array *const *x, int64_t p, int64_t n,
                    int64_t eos, int64_t *ids) {
    bool ended = false;
    ids[0] = id_at(c, x, p);
    for (int64_t s = 1; s < n; s++) {
        ended |= s > p;
        ids[s] = ended ? eos : id_at(c, x, p - s);
        ended |= ids[s] == eos;
    }
}

static uint64_t multiplier(const hir_attr *halves, int64_t s) {
    const uint64_t low = (uint64_t)(int64_t)halves->floats[2 * s];
    return low + ((uint64_t)(int64_t)halves->floats[2 * s + 1] << 32);
}

static int64_t remainder_of(uint64_t hash, int64_t size) {
    const int64_t rest = (int64_t)hash % size;
    return rest < 0 ? rest + size : rest;
}

bool eval_ngram_gather(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    const hir_attr *halves = hir_find_attr(op, HIR_A_MULTIPLIERS);
    const hir_attr *sizes = hir_find_attr(op, HIR_A_SIZES);
    const hir_attr *offsets = hir_find_attr(op, HIR_A_OFFSETS);
    const int64_t n = halves->n / 2, heads = sizes->n, each = heads / (n - 1);
    const int64_t width = y->type.dim[2], past = c->C - c->T;
    int64_t *ids = hd_new_array(c->scratch, int64_t, (size_t)n);
    for (int64_t t = 0; t < c->T; t++) {
        context(c, x, past + t, n, hir_attr_int(op, HIR_A_EOS, 0), ids);
        uint64_t hash = (uint64_t)ids[0] * multiplier(halves, 0);
        for (int64_t j = 0; j < heads; j++) {
            if (j % each == 0)
                hash ^= (uint64_t)ids[j / each + 1] * multiplier(halves, j / each + 1);
            const int64_t row =
                remainder_of(hash, (int64_t)sizes->floats[j]) + (int64_t)offsets->floats[j];
            memcpy(y->at + (t * heads + j) * width, x[1]->at + row * width,
                   (size_t)width * sizeof *y->at);
        }
    }
    for (int64_t t = c->T > x[2]->n ? c->T - x[2]->n : 0; t < c->T; t++)
        x[2]->at[(past + t) % x[2]->n] = x[0]->at[t];
    return true;
}
