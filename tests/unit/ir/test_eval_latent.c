/* Latent attention in its naive form, in every way in which it may be written, against plain loops:
 * graph ops over the rows of a cache. */
#include "tests/unit/ir/support_eval.h"

#include "passes/pass.h"
#include "tests/unit/passes/latent_models.h"

TestSuite(eval_latent, .init = open_arena, .fini = close_arena);

enum { TOKENS = 7 };

typedef struct problem {
    const latent_model *l;
    double *q, *c, *p, *k_b, *v_b; /* maps as [heads][..][latent] */
    double *kv_b, *o;
    double *bias, *sink; /* [T][H][extent]; [H] or [T][H] */
} problem;

static double *waves(int64_t n, double step) {
    double *x = hd_new_array(arena, double, (size_t)(n + 1));
    for (int64_t i = 0; i < n; i++)
        x[i] = sin(step * (double)(i * i % 1009));
    return x;
}

/* Rows of both maps in the order in which the one map has them. */
static void join_maps(problem *p) {
    const latent_model *l = p->l;
    const int64_t n = (int64_t)l->nope * l->latent, m = (int64_t)l->value * l->latent;
    p->kv_b = hd_new_array(arena, double, (size_t)(latent_kv_heads(l) * (n + m)));
    for (int h = 0; h < latent_kv_heads(l); h++) {
        double *to = p->kv_b + h * (n + m);
        memcpy(to + (l->value_first ? m : 0), p->k_b + h * n, (size_t)n * sizeof *to);
        memcpy(to + (l->value_first ? 0 : n), p->v_b + h * m, (size_t)m * sizeof *to);
    }
}

/* The head of k and v that head h of q meets. */
static int kv_head(const latent_model *l, int h) {
    return h / (l->heads / latent_kv_heads(l));
}

/* The logit of token t, head h and position s: k_n = W_k c is multiplied out from behind. */
static double score(const problem *p, int t, int h, int s) {
    const latent_model *l = p->l;
    const double *q = p->q + (t * l->heads + h) * (l->nope + l->rope);
    const double *q_n = q + (l->rope_first ? l->rope : 0), *q_p = q + (l->rope_first ? 0 : l->nope);
    double sum = 0;
    for (int j = 0; j < l->rope; j++)
        sum += q_p[j] * p->p[s * l->rope + j];
    for (int i = l->latent; i-- > 0;)
        for (int j = 0; j < l->nope; j++)
            sum += q_n[j] * p->k_b[(kv_head(l, h) * l->nope + j) * l->latent + i] *
                   p->c[s * l->latent + i];
    sum *= 0.3;
    if (l->softcap > 0) sum = l->softcap * tanh(sum / l->softcap);
    return t - s < l->extent ? sum + p->bias[(t * l->heads + h) * l->extent + t - s] : sum;
}

static void plain_head(const problem *p, int t, int h) {
    const latent_model *l = p->l;
    double total = 0;
    if (l->sink) total = exp(p->sink[l->sink == LATENT_SINK ? h : t * l->heads + h]);
    for (int s = l->window && t >= l->window ? t - l->window + 1 : 0; s <= t; s++) {
        const double weight = exp(score(p, t, h, s));
        total += weight;
        for (int j = 0; j < l->value; j++)
            for (int i = 0; i < l->latent; i++)
                p->o[(t * l->heads + h) * l->value + j] +=
                    weight * p->v_b[(kv_head(l, h) * l->value + j) * l->latent + i] *
                    p->c[s * l->latent + i];
    }
    for (int j = 0; j < l->value; j++)
        p->o[(t * l->heads + h) * l->value + j] /= total;
}

static problem make(const latent_model *l) {
    problem p = {.l = l};
    p.q = waves(TOKENS * l->heads * (l->nope + l->rope), 0.7);
    p.c = waves(TOKENS * l->latent, 1.1);
    p.p = waves(TOKENS * l->rope, 0.4);
    p.k_b = waves((int64_t)latent_kv_heads(l) * l->nope * l->latent, 1.9);
    p.v_b = waves((int64_t)latent_kv_heads(l) * l->value * l->latent, 2.3);
    p.bias = waves(TOKENS * l->heads * l->extent, 0.9);
    p.sink = waves(TOKENS * l->heads, 1.3);
    p.o = hd_new_array(arena, double, (size_t)(TOKENS * l->heads * l->value));
    join_maps(&p);
    for (int t = 0; t < TOKENS; t++)
        for (int h = 0; h < l->heads; h++)
            plain_head(&p, t, h);
    return p;
}

static void feed(hir_eval *e, const problem *p, int from, int n) {
    const latent_model *l = p->l;
    const double *inputs[5] = {p->q + from * l->heads * (l->nope + l->rope),
                               p->c + from * l->latent};
    int given = 2;
    if (l->rope) inputs[given++] = p->p + from * l->rope;
    if (l->extent) inputs[given++] = p->bias + from * l->heads * l->extent;
    if (l->sink == LATENT_SINK_BY_TOKEN) inputs[given++] = p->sink + from * l->heads;
    hir_results out;
    if (!hir_eval_call(e, arena, &diags, n, inputs, &out, NULL, NULL)) cr_assert_fail("%s", said());
    expect_near(out.outputs.at[0].at, p->o + from * l->heads * l->value, out.outputs.at[0].n, 1e-12,
                "latent attention");
}

/* With attention.latent and, where that is less for many tokens, attention.expanded. */
static const hir_module *after_pass(const problem *p) {
    hir_module *m = parse(latent_text(arena, p->l));
    const hir_pass_id passes[] = {HIR_PASS_ABSORB_LATENT, HIR_PASS_COUNT};
    const hir_run run = {
        .passes = passes, .n_passes = 1, .stop_after = HIR_PASS_COUNT, .verify = true};
    const hir_compile_options options = {.bank_dtype = HIR_F32, .phase1_dtype = HIR_F32};
    hir_remarks remarks = {.arena = arena};
    cr_assert(hir_run_passes(m, &run, &options, &remarks, &diags), "%s", said());
    return m;
}

static void check_cuts(const problem *p, const hir_module *m) {
    static const int cuts[][TOKENS + 1] = {{TOKENS}, {1, 1, 1, 1, 1, 1, 1}, {3, 4}, {5, 1, 1}};
    givens all = {(given[]){{"kv_b", p->kv_b}, {"k_b", p->k_b}, {"v_b", p->v_b}, {"sink", p->sink}},
                  4};
    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
        hir_eval *e = hir_eval_new(arena, m, given_weights, &all);
        for (int at = 0, k = 0; at < TOKENS; at += cuts[c][k++])
            feed(e, p, at, cuts[c][k]);
    }
}

Test(eval_latent, is_what_the_formula_says_however_it_is_written_and_cut) {
    for (int i = 0; i < LATENT_MODELS; i++) {
        const problem p = make(&latent_models[i]);
        for (int absorbed = 0; absorbed < 2; absorbed++)
            check_cuts(&p, absorbed ? after_pass(&p) : parse(latent_text(arena, p.l)));
    }
}

static const char *printed(const hir_module *m) {
    hd_text text;
    hd_text_init(&text, arena);
    hir_print(m, (hir_print_options){0}, &text);
    return text.at;
}

Test(eval_latent, text_comes_back_byte_for_byte) {
    for (int i = 0; i < LATENT_MODELS; i++) {
        const char *once = printed(parse(latent_text(arena, &latent_models[i])));
        cr_assert_str_eq(printed(parse(once)), once);
    }
}
