#include "inspect/plan_rates.h"

static const double share[] = {
#define S(id, value, text) value,
#include "inspect/plan_shares.def"
#undef S
};
enum {
#define S(id, value, text) SHARE_##id,
#include "inspect/plan_shares.def"
#undef S
};

/* ---- measured on the host -------------------------------------------------------------------- */

typedef enum activations { EXACT, ROUNDED, ANY } activations;

static const struct reached {
    hir_dtype matrix;
    plan_calls calls;
    activations activations;
} reached[PLAN_FACTS - PLAN_REACHED] = {
#define R(id, key, matrix, calls, activations, text)                                               \
    {HIR_##matrix, PLAN_CALLS_##calls, activations},
#include "inspect/plan_reached.def"
#undef R
};

plan_fact plan_reached(plan_calls calls, hir_dtype matrix, bool rounded) {
    for (int i = 0; i < PLAN_FACTS - PLAN_REACHED; i++) {
        const struct reached *r = &reached[i];
        const bool fits = r->activations == ANY || r->activations == (rounded ? ROUNDED : EXACT);
        if (r->calls == calls && r->matrix == matrix && fits) return (plan_fact)(PLAN_REACHED + i);
    }
    return PLAN_FACTS;
}

int plan_reached_known(const plan_host *h) {
    int n = 0;
    for (int f = PLAN_REACHED; f < PLAN_FACTS; f++)
        n += h->fact[f] > 0;
    return n;
}

/* The share measured on the host; 0: it was not measured. Kernels of nvfp4 are those of mxfp4 with
 * a second scale for each group. */
static double measured(const plan_host *h, plan_calls calls, hir_dtype matrix, bool rounded) {
    if (matrix == HIR_NVFP4) matrix = HIR_MXFP4;
    const plan_fact f = plan_reached(calls, matrix, rounded);
    return f < PLAN_FACTS ? h->fact[f] : 0;
}

/* ---- from the table -------------------------------------------------------------------------- */

typedef enum work { PRODUCT, ATTENTION, OTHER } work;
typedef enum rounds { ROUNDS_NONE, ROUNDS_INT8, ROUNDS_BF16 } rounds;
typedef enum calls { CALLS_ANY, CALLS_MANY } calls;
#define M(type) (1U << HIR_##type)

static const struct unit {
    plan_fact limit;
    work work;
    unsigned matrices;
    rounds rounds;
    calls calls;
    int share;
} units[] = {
#define U(fact, work, matrices, activations, calls, share)                                         \
    {PLAN_##fact, work, matrices, ROUNDS_##activations, CALLS_##calls, SHARE_##share},
#include "inspect/plan_units.def"
#undef U
};

static work work_of(const plan_step *s) {
    return s->other ? OTHER : s->work.pair_flops ? ATTENTION : PRODUCT;
}

static bool fits(const struct unit *u, const plan_stage *stage, const plan_step *s, bool many) {
    const bool allowed = u->rounds == ROUNDS_NONE || (u->rounds == ROUNDS_INT8 && stage->int8) ||
                         (u->rounds == ROUNDS_BF16 && stage->bf16);
    return u->work == work_of(s) && u->matrices & 1U << s->matrix && allowed &&
           (many || u->calls == CALLS_ANY);
}

/* Attention of one row goes by the rate of multiply-adds, as a product does: memory is what limits
 * it. */
static double rate_of_table(const plan_host *h, const plan_stage *stage, const plan_step *s,
                            bool many) {
    const bool attends = many && work_of(s) == ATTENTION;
    double best = h->fact[PLAN_FMA] * share[attends ? SHARE_ATTEND : SHARE_FMA];
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        const double rate = h->fact[units[i].limit] * share[units[i].share];
        if (fits(&units[i], stage, s, many) && rate > best) best = rate;
    }
    return best;
}

/* ---- measured or from the table -------------------------------------------------------------- */

bool plan_may_round(hir_dtype matrix, bool int8, bool bf16) {
    const bool groups =
        matrix == HIR_Q8 || matrix == HIR_Q4 || matrix == HIR_MXFP4 || matrix == HIR_NVFP4;
    return (groups && int8) || (matrix == HIR_BF16 && bf16);
}

static bool is_rounded(const plan_stage *stage, hir_dtype matrix) {
    return plan_may_round(matrix, stage->int8, stage->bf16);
}

double plan_rate(const plan_host *h, const plan_stage *stage, const plan_step *s, bool many) {
    double x = 0;
    if (work_of(s) == PRODUCT)
        x = measured(h, many ? PLAN_CALLS_MANY : PLAN_CALLS_ROW, s->matrix,
                     is_rounded(stage, s->matrix));
    else if (work_of(s) == ATTENTION && many)
        x = measured(h, PLAN_CALLS_ATTENTION, HIR_F32, false);
    return x > 0 ? h->fact[PLAN_FMA] * x : rate_of_table(h, stage, s, many);
}

double plan_read_share(const plan_host *h, hir_dtype matrix) {
    const double x = measured(h, PLAN_CALLS_READ, matrix, false);
    return x > 0 ? x : share[SHARE_READ];
}

double plan_overhead(double barrier) {
    return share[SHARE_BEGIN] + barrier;
}
