/* Gradients against differences of the loss, for --check-passes: along one random direction u in
 * the space of all weights w, <g, u> = (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / (12 h), f(t) being
 * the sum of the losses at w + t u. What `detach` gives is a constant for the gradients, and so it is
 * for the differences: in f(t) it has its numbers of f(0).
 *
 * Differences show nothing where f is not smooth between -2h and 2h: (f(h) - f(-h)) / 2h and (f(2h) -
 * f(-2h)) / 4h are not the same then. Scores of some thousands, which gains make of random weights,
 * move too far, and not with a smaller h; where a choice (top-k, the larger of two) changes, another
 * direction is taken. */
#include <math.h>
#include <string.h>

#include "ir/eval/eval.h"
#include "ir/eval/random.h"

enum { TOKENS = 6, TRIES = 8 };
static const double steps[] = {1e-7, 1e-9}; /* rounding leaves 1e-11 and 1e-9 */

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

/* The results of `detach` at w, by value; NULL: it has not run yet. */
typedef struct constants {
    hd_arena *arena;
    double **at;
} constants;

static bool has_constants(const hir_module *m) {
    HIR_EACH(m, op, m->first)
    if (hir_op_at(m, op)->code == HIR_DETACH_OP) return true;
    return false;
}

static void hold(void *context, const hir_module *m, hir_id op, hir_id value, const hir_array *a) {
    constants *c = context;
    const size_t bytes = (size_t)a->n * sizeof *a->at;
    if (hir_op_at(m, op)->code != HIR_DETACH_OP) return;
    if (c->at[value])
        memcpy(a->at, c->at[value], bytes);
    else
        c->at[value] = memcpy(hd_new_array(c->arena, double, (size_t)a->n), a->at, bytes);
}

/* A model and the module of its gradients, at w along u. */
typedef struct place {
    const hir_module *before, *after;
    const double *const *inputs;
    uint64_t seed;
    constants *still; /* NULL: there are none */
    hd_arena *arena;
    hd_diags *d;
} place;

static bool run(const place *p, const hir_module *m, double by, constants *still,
                hir_results *out) {
    moved move = {p->seed, by};
    return hir_eval_call(hir_eval_new(p->arena, m, moved_weights, &move), p->arena, p->d, TOKENS,
                         p->inputs, out, still ? hold : NULL, still);
}

static bool loss_at(const place *p, double by, double *sum) {
    hir_results out = {0};
    if (!run(p, p->before, by, p->still, &out)) return false;
    const hir_array *losses = hir_find_output(&out, HIR_LOSSES);
    *sum = 0;
    for (int64_t t = 0; losses && t < losses->n; t++)
        *sum += losses->at[t];
    return losses != NULL;
}

/* <g, u>, and the sum of the absolute values of its terms. */
static bool along(const place *p, double *sum, double *scale) {
    hir_results out = {0};
    *sum = 0, *scale = 1;
    if (!run(p, p->after, 0, NULL, &out)) return false;
    for (uint32_t w = 0; w < p->after->weights.n; w++) {
        const hir_weight *weight = &p->after->weights.at[w];
        const hir_array *g =
            hir_find_output(&out, hd_printf(p->arena, HIR_GRADIENT "%s", weight->name));
        hir_random r = direction_of(p->seed, weight);
        for (int64_t i = 0; g && i < g->n; i++) {
            const double term = g->at[i] * hir_random_normal(&r);
            *sum += term, *scale += fabs(term);
        }
    }
    return true;
}

/* The slope by differences, with the largest step with which they are those of a smooth function,
 * whose two slopes differ by terms of h^2 and rounding. */
static bool by_differences(const place *p, double tolerance, double *slope, bool *smooth) {
    *smooth = false;
    for (size_t k = 0; k < sizeof steps / sizeof *steps && !*smooth; k++) {
        const double h = steps[k];
        double f[4];
        for (int i = 0; i < 4; i++)
            if (!loss_at(p, h * (double[]){1, -1, 2, -2}[i], &f[i])) return false;
        const double near = (f[0] - f[1]) / (2 * h), far = (f[2] - f[3]) / (4 * h);
        *slope = (4 * near - far) / 3;
        *smooth = fabs(near - far) <= tolerance;
    }
    return true;
}

bool hir_right_gradients(const hir_module *before, const hir_module *after, double tolerance,
                         uint64_t seed, hd_arena *scratch, hd_diags *d) {
    double ids[TOKENS], targets[TOKENS], want = 0, got = 0, scale, loss;
    bool smooth = false;
    const double *const inputs[] = {ids, targets};
    place p = {before, after, inputs, seed, NULL, scratch, d};
    hir_random r = hir_random_stream(seed, "tokens");
    const int64_t vocab = hir_fewest_ids(before, 0), logits = hir_fewest_ids(before, 1);
    for (int t = 0; t < TOKENS; t++) {
        ids[t] = (double)hir_random_below(&r, (uint64_t)vocab);
        targets[t] = t == 1 ? -1 : (double)hir_random_below(&r, (uint64_t)logits);
    }
    for (int tries = 0; tries < TRIES && !smooth; tries++, p.seed++) {
        constants still = {scratch, hd_new_array(scratch, double *, before->values.n)};
        p.still = has_constants(before) ? &still : NULL;
        if (p.still && !loss_at(&p, 0, &loss)) return false;
        if (!along(&p, &got, &scale)) return false;
        if (!by_differences(&p, tolerance * scale / 10, &want, &smooth)) return false;
        if (smooth && fabs(got - want) <= tolerance * scale) return true;
    }
    hd_err(d, HD_E_PASS, HD_NOWHERE, "the gradients say %.9g along a direction of the weights", got)
        ->cause = smooth ? hd_printf(d->arena, "differences of the loss say %.9g", want)
                         : "the loss jumps along each of several directions: nothing is shown";
    return false;
}
