/* Which back end multiplies a matrix: matmul/backends.def as data, and what follows from it. */
#include "codegen/matmul/backend.h"

#include <stddef.h>
#include <string.h>

#define USE(id, rounds, weights, layouts, tokens, lanes, features, needs)                          \
    extern const hcg_backend hcg_##id;
#include "codegen/matmul/backends.def"
#undef USE

enum { HCG_ROUND_NONE, DECODE = HCG_FOR_DECODE, PREFILL = HCG_FOR_PREFILL };

static const hcg_choice choices[] = {
#define W(id) (1u << HIR_##id)
#define L(id) (1u << HIR_LAYOUT_##id)
#define ANY                                                                                        \
    { 0, 0 }
#define AT_LEAST(fact, n)                                                                          \
    { offsetof(hd_machine, fact), n }
#define USE(id, rounds, weights, layouts, tokens, lanes, features, needs)                          \
    {&hcg_##id, HCG_ROUND_##rounds, weights, layouts, tokens, lanes, features, needs},
#include "codegen/matmul/backends.def"
#undef USE
#undef AT_LEAST
#undef ANY
#undef L
#undef W
};
enum { CHOICES = sizeof choices / sizeof *choices };

size_t hcg_choices(const hcg_choice **out) {
    *out = choices;
    return CHOICES;
}

/* ---- choices --------------------------------------------------------------------------------- */
static bool multiplies(const hcg_choice *c, unsigned exact, hir_dtype dtype, hir_layout layout) {
    return !(c->rounds & exact) && (c->weights & 1u << dtype) && (c->layouts & 1u << layout);
}

static bool has_rate(const hcg_choice *c, const hd_machine *m) {
    uint32_t rate;
    if (!c->needs.least) return true;
    memcpy(&rate, (const char *)m + c->needs.fact, sizeof rate);
    return rate >= c->needs.least;
}

static bool runs_on(const hcg_choice *c, const hcg_level *level) {
    return (!c->lanes || c->lanes == level->lanes) && hcg_has_features(level, c->features) &&
           has_rate(c, &level->machine);
}

const hcg_choice *hcg_choose(const hcg_level *level, unsigned exact, hir_dtype dtype,
                             hir_layout layout, unsigned tokens) {
    for (size_t i = 0; i < CHOICES; i++)
        if (multiplies(&choices[i], exact, dtype, layout) && runs_on(&choices[i], level) &&
            (choices[i].tokens & tokens))
            return &choices[i];
    return NULL;
}

/* ---- sets of matrices ------------------------------------------------------------------------ */
bool hcg_same_choices(const hcg_level *a, const hcg_level *b, unsigned exact, uint32_t matrices) {
    for (int d = 0; d < HIR_DTYPE_COUNT; d++)
        for (int l = 0; l < HIR_LAYOUTS; l++)
            for (unsigned tokens = DECODE; tokens <= PREFILL; tokens++)
                if (matrices & hcg_matrix((hir_dtype)d, (hir_layout)l) &&
                    hcg_choose(a, exact, (hir_dtype)d, (hir_layout)l, tokens) !=
                        hcg_choose(b, exact, (hir_dtype)d, (hir_layout)l, tokens))
                    return false;
    return true;
}

unsigned hcg_roundings_on(const hcg_level *level, uint32_t matrices, unsigned exact) {
    unsigned rounds = 0;
    for (int d = 0; d < HIR_DTYPE_COUNT; d++)
        for (int l = 0; l < HIR_LAYOUTS; l++)
            for (unsigned tokens = DECODE; tokens <= PREFILL; tokens++) {
                const hcg_choice *c =
                    matrices & hcg_matrix((hir_dtype)d, (hir_layout)l)
                        ? hcg_choose(level, exact, (hir_dtype)d, (hir_layout)l, tokens)
                        : NULL;
                if (c) rounds |= c->rounds;
            }
    return rounds;
}

unsigned hcg_roundings_of(uint32_t matrices, unsigned exact) {
    unsigned rounds = 0;
    for (size_t i = 0; i < CHOICES; i++)
        for (int d = 0; d < HIR_DTYPE_COUNT; d++)
            for (int l = 0; l < HIR_LAYOUTS; l++)
                if (matrices & hcg_matrix((hir_dtype)d, (hir_layout)l) &&
                    multiplies(&choices[i], exact, (hir_dtype)d, (hir_layout)l))
                    rounds |= choices[i].rounds;
    return rounds;
}
