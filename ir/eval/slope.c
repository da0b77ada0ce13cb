/* Gradients against differences of the loss, for --check-passes: along one random direction u in
 * the space of all weights w, <g, u> = (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / (12 h), f(t) being
 * the sum of the losses at w + t u. Where a choice (top-k, the larger of two) changes between -2h and
 * 2h, differences show nothing: (f(h) - f(-h)) / 2h and (f(2h) - f(-2h)) / 4h are far from each
 * other, and another direction is taken. */
#include <math.h>

#include "ir/eval/eval.h"
#include "ir/eval/random.h"

enum { TOKENS = 6, TRIES = 8 };
/* So small that hardly ever a choice (top-k, max) changes between -2h and 2h; rounding then leaves
 * 1e-10. */
#define STEP  1e-5
#define ROUGH 1e-4

typedef struct moved {
    uint64_t seed;
    double by;
} moved;

static hir_random direction_of(uint64_t seed, const hir_weight *w) {
    return hir_random_stream(seed + 1, w->name);
}

static bool moved_weights(void *context, const hir_module *m, uint32_t w, double *out,
                          hd_diags *d) {
    moved *move = context;
    hir_random r = direction_of(move->seed, &m->weights.at[w]);
    const int64_t n = hir_type_row_elements(m->weights.at[w].type);
    if (!hir_random_weights(&move->seed, m, w, out, d)) return false;
    for (int64_t i = 0; i < n; i++)
        out[i] += move->by * hir_random_normal(&r);
    return true;
}

static bool run(const hir_module *m, moved *move, const double *const *inputs, hd_arena *a,
                hd_diags *d, hir_results *out) {
    return hir_eval_call(hir_eval_new(a, m, moved_weights, move), a, d, TOKENS, inputs, out, NULL,
                         NULL);
}

static bool loss_at(const hir_module *m, uint64_t seed, double by, const double *const *inputs,
                    hd_arena *a, hd_diags *d, double *sum) {
    moved move = {seed, by};
    hir_results out = {0};
    if (!run(m, &move, inputs, a, d, &out)) return false;
    const hir_array *losses = hir_find_output(&out, HIR_LOSSES);
    *sum = 0;
    for (int64_t t = 0; losses && t < losses->n; t++)
        *sum += losses->at[t];
    return losses != NULL;
}

/* <g, u>, and the sum of the absolute values of its terms. */
static double along(const hir_module *m, uint64_t seed, const hir_results *out, hd_arena *a,
                    double *scale) {
    double sum = 0;
    for (uint32_t w = 0; w < m->weights.n; w++) {
        const hir_array *g =
            hir_find_output(out, hd_printf(a, HIR_GRADIENT "%s", m->weights.at[w].name));
        hir_random r = direction_of(seed, &m->weights.at[w]);
        for (int64_t i = 0; g && i < g->n; i++) {
            const double term = g->at[i] * hir_random_normal(&r);
            sum += term, *scale += fabs(term);
        }
    }
    return sum;
}

/* The slope by differences from f(h), f(-h), f(2h), f(-2h); false: they are not those of a smooth
 * function, whose two slopes differ by terms of h^2 and rounding. */
static bool slope_of(const double f[4], double scale, double *slope) {
    const double near = (f[0] - f[1]) / (2 * STEP), far = (f[2] - f[3]) / (4 * STEP);
    *slope = (4 * near - far) / 3;
    return fabs(near - far) <= ROUGH * (scale + fabs(near));
}

bool hir_right_gradients(const hir_module *before, const hir_module *after, double tolerance,
                         uint64_t seed, hd_arena *scratch, hd_diags *d) {
    double ids[TOKENS], targets[TOKENS], f[4], want = 0, got = 0;
    bool smooth = false;
    const double *const inputs[] = {ids, targets};
    hir_random r = hir_random_stream(seed, "tokens");
    const int64_t vocab = hir_fewest_ids(before, 0), logits = hir_fewest_ids(before, 1);
    for (int t = 0; t < TOKENS; t++) {
        ids[t] = (double)hir_random_below(&r, (uint64_t)vocab);
        targets[t] = t == 1 ? -1 : (double)hir_random_below(&r, (uint64_t)logits);
    }
    for (int tries = 0; tries < TRIES && !smooth; tries++, seed++) {
        moved still = {seed, 0};
        hir_results out = {0};
        double scale = 1;
        for (int i = 0; i < 4; i++)
            if (!loss_at(before, seed, STEP * (double[]){1, -1, 2, -2}[i], inputs, scratch, d,
                         &f[i]))
                return false;
        if (!run(after, &still, inputs, scratch, d, &out)) return false;
        got = along(after, seed, &out, scratch, &scale);
        smooth = slope_of(f, scale, &want);
        if (smooth && fabs(got - want) <= tolerance * scale) return true;
    }
    hd_err(d, HD_E_PASS, HD_NOWHERE, "the gradients say %.9g along a direction of the weights", got)
        ->cause = smooth ? hd_printf(d->arena, "differences of the loss say %.9g", want)
                         : "the loss jumps along each of several directions: nothing is shown";
    return false;
}
