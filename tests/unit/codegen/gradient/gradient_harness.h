/* For tests of the kernels of gradients: a module in IR text, whose last kernel is compiled at every
 * CPU level of this machine and held against the evaluator. The other kernels make what it reads of
 * caches, and do nothing else: a row program with cache_append of inputs.
 *
 * Every kernel is run whole, and with its columns cut at random as threads would cut them, which must
 * give the same bits. What is to be added to an output that is called grad.NAME is there before. */
#ifndef GRADIENT_HARNESS_H
#define GRADIENT_HARNESS_H

#include <criterion/criterion.h>
#include <math.h>

#include "ir/eval/eval.h"
#include "tests/unit/codegen/emit_harness.h"

enum { GRADIENT_OPERANDS = 16, GRADIENT_SLACK = 3 /* positions of caches after the last */ };

#define GRADIENT_KERNEL                                                                            \
    "kernel.sequence {name = \"s\", rows = \"all\", split_decode = \"channels\", split_prefill = " \
    "\"channels\"}"

/* A kernel of row ops that makes %NAME of the input %xNAME: the rows of state $NAME. type: "C, 2, 8" */
static inline void gradient_put_cache(hd_text *text, const char *name, const char *type) {
    hd_text_f(text,
              "  %%%s = kernel.row {name = \"%s\", rows = \"all\", split_decode = \"none\", "
              "split_prefill = \"rows\"} : f32[%s] {\n"
              "    %%%s_row = cache_append %%x%s, $%s : f32[%s]\n    yield %%%s_row\n  }\n",
              name, name, type, name, name, name, type, name);
}

typedef struct gradient_problem {
    bench b;
    uint64_t seed;
    hir_id kernel;
    int64_t t;
    float *in[GRADIENT_OPERANDS]; /* by input of the module; ids as their bits */
    hir_results want;
} gradient_problem;

static inline size_t gradient_elements(const gradient_problem *p, hir_type t) {
    const bool by_token = hir_type_has_t(t) || hir_type_has_c(t);
    return (size_t)((by_token ? p->t : 1) * hir_type_row_elements(t));
}

/* Ids are from -2 to `ids` - 1. */
static inline void gradient_open(gradient_problem *p, const char *text, int64_t t, int64_t ids,
                                 uint64_t seed) {
    *p = (gradient_problem){.b = bench_new(), .seed = seed * 2654435761u + 1, .t = t};
    bench_start(&p->b);
    p->b.exact = HCG_ROUND_ALL;
    p->b.m = hir_parse(p->b.arena, &p->b.diags, "test.hir", text);
    cr_assert(p->b.m, "%s\n%s", bench_errors(&p->b), text);
    uint64_t outputs = 0;
    HIR_EACH(p->b.m, op, p->b.m->first) {
        const hir_op *o = hir_op_at(p->b.m, op);
        if (hir_is_kernel(o)) p->kernel = op;
        if (o->code != HIR_OUTPUT_OP) continue;
        hir_value *v = hir_value_at(p->b.m, o->args[0].index);
        v->offset = outputs++;
        if (hir_is_gradient(o)) v->place = HIR_PLACE_GRADIENT;
    }
    cr_assert(hir_verify(p->b.m, &p->b.diags), "%s\n%s", bench_errors(&p->b), text);
    cr_assert_leq(p->b.m->inputs.n, GRADIENT_OPERANDS);
    for (size_t i = 0; i < p->b.m->inputs.n; i++) {
        const hir_type type = hir_value_at(p->b.m, p->b.m->inputs.at[i])->type;
        p->in[i] = random_floats(&p->seed, gradient_elements(p, type));
        for (size_t k = 0; type.dtype == HIR_I32 && k < gradient_elements(p, type); k++) {
            const int32_t id = (int32_t)random_below(&p->seed, ids + 2) - 2;
            memcpy(&p->in[i][k], &id, sizeof id);
        }
    }
}

static inline void gradient_close(gradient_problem *p) {
    for (size_t i = 0; i < p->b.m->inputs.n; i++)
        guarded_free(p->in[i]);
    bench_free(&p->b);
}

static inline void gradient_evaluate(gradient_problem *p) {
    const double *in[GRADIENT_OPERANDS];
    for (size_t i = 0; i < p->b.m->inputs.n; i++) {
        const hir_type type = hir_value_at(p->b.m, p->b.m->inputs.at[i])->type;
        const size_t n = gradient_elements(p, type);
        double *x = hd_new_array(p->b.arena, double, n + 1);
        for (size_t k = 0; k < n; k++) {
            int32_t id;
            memcpy(&id, &p->in[i][k], sizeof id);
            x[k] = type.dtype == HIR_I32 ? id : (double)p->in[i][k];
        }
        in[i] = x;
    }
    hir_eval *e = hir_eval_new(p->b.arena, p->b.m, NULL, NULL);
    cr_assert(hir_eval_call(e, p->b.arena, &p->b.diags, p->t, in, &p->want, NULL, NULL), "%s",
              bench_errors(&p->b));
}

/* ---- running --------------------------------------------------------------------------------- */
/* The number of the input that a value of the module is; the inputs: it is none. */
static inline size_t gradient_input(const gradient_problem *p, hir_ref r) {
    size_t i = 0;
    while (i < p->b.m->inputs.n && (r.kind != HIR_REF_VALUE || p->b.m->inputs.at[i] != r.index))
        i++;
    return i;
}

/* A cache [G][cap][n] that holds an input [T, G, n], in the type of the state, and NaN after it; or
 * one row for `rate` positions, which are those of every token number `rate`. */
static inline void *gradient_cache(const gradient_problem *p, hir_id value) {
    const hir_module *m = p->b.m;
    const hir_op *kernel = hir_op_at(m, hir_value_at(m, value)->op);
    uint32_t i = 0;
    while (kernel->results[i] != value)
        i++;
    const hir_ref yielded = hir_op_at(m, kernel->body_last)->args[i];
    const hir_op *append = hir_op_at(m, hir_value_at(m, yielded.index)->op);
    cr_assert_eq(append->code, HIR_CACHE_APPEND_OP);
    const float *x = p->in[gradient_input(p, append->args[0])];
    const hir_type t = hir_value_at(m, value)->type;
    cr_assert_eq(t.dtype, HIR_F32);
    const int64_t heads = t.dim[1], n = t.dim[2], rate = hir_rate(t.dim[0]);
    const int64_t cap = (p->t + GRADIENT_SLACK) / rate;
    const size_t bytes = (size_t)(cap * heads * n) * sizeof *x;
    float *to = memset(guarded(bytes), 0xff, bytes);
    for (int64_t at = 0; at < p->t / rate * heads; at++) {
        const int64_t token = at / heads * rate + rate - 1, head = at % heads;
        memcpy(to + (head * cap + at / heads) * n, x + (token * heads + head) * n,
               (size_t)n * sizeof *to);
    }
    return to;
}

/* The output that gives out a value; NULL: none does. */
static inline const hir_op *gradient_output(const gradient_problem *p, hir_id value) {
    HIR_EACH(p->b.m, op, p->b.m->first) {
        const hir_op *o = hir_op_at(p->b.m, op);
        if (o->code == HIR_OUTPUT_OP && hir_ref_equal(o->args[0], hir_value_ref(value))) return o;
    }
    return NULL;
}

/* Results by result of the kernel; NaN before, or what they are added to. */
static inline void gradient_run(gradient_problem *p, const compiled *c, bool cut, float **out) {
    const hir_module *m = p->b.m;
    const hir_op *kernel = hir_op_at(m, p->kernel);
    hrt_frame frame = {.T = p->t, .C = p->t, .cap = p->t + GRADIENT_SLACK};
    void *args[2 * GRADIENT_OPERANDS], *caches[2 * GRADIENT_OPERANDS] = {NULL};
    uint64_t before = 77;
    for (uint32_t r = 0; r < kernel->n_results; r++) {
        const hir_value *v = hir_value_at(m, kernel->results[r]);
        const size_t n = gradient_elements(p, v->type);
        out[r] = guarded(n * sizeof *out[r]);
        for (size_t k = 0; k < n; k++)
            out[r][k] = v->place == HIR_PLACE_GRADIENT ? random_float(&before) : NAN;
    }
    for (size_t i = 0; i < c->k.operands.n; i++) {
        const hir_ref r = c->k.operands.at[i];
        const size_t input = gradient_input(p, r);
        args[i] = input < m->inputs.n ? p->in[input] : NULL;
        for (uint32_t k = 0; k < kernel->n_results; k++)
            if (hir_ref_equal(r, hir_value_ref(kernel->results[k]))) args[i] = out[k];
        if (!args[i]) args[i] = caches[i] = gradient_cache(p, r.index);
    }
    uint64_t counters, range;
    shared_in_program(&p->b, p->kernel, &counters, &range);
    const size_t shared = counters + range * (uint64_t)((p->t + HRT_KEYS - 1) / HRT_KEYS);
    frame.shared = guarded(shared);
    memset(frame.shared, 0xff, shared), memset(frame.shared, 0, counters);
    const int64_t cols = hcg_columns(m, p->kernel);
    for (int64_t to = cols, c0; to > 0; to = c0) {
        c0 = cut ? random_below(&p->seed, to) : 0;
        frame.scratch = guarded((c->scratch + 63) / 64 * 64);
        memset(frame.scratch, 0xff, c->scratch);
        c->call(&frame, args, 0, p->t, c0, to);
        guarded_free(frame.scratch);
    }
    for (uint64_t i = 0; i < counters; i++)
        cr_assert_eq(((const char *)frame.shared)[i], 0, "a counter is left");
    guarded_free(frame.shared);
    for (size_t i = 0; i < c->k.operands.n; i++)
        guarded_free(caches[i]);
}

static inline void gradient_compare(const gradient_problem *p, float *const *out, double tolerance,
                                    const char *level) {
    const hir_op *kernel = hir_op_at(p->b.m, p->kernel);
    uint64_t before = 77;
    for (uint32_t r = 0; r < kernel->n_results; r++) {
        const hir_op *output = gradient_output(p, kernel->results[r]);
        cr_assert_not_null(output);
        const char *name = hir_attr_string(output, HIR_A_NAME, "");
        const hir_array *want = hir_find_output(&p->want, name);
        const bool adds = hir_is_gradient(output);
        double largest = adds;
        for (int64_t i = 0; i < want->n; i++)
            largest = fmax(largest, fabs(want->at[i]));
        for (int64_t i = 0; i < want->n; i++) {
            const double w = want->at[i] + (adds ? (double)random_float(&before) : 0);
            cr_assert(fabs((double)out[r][i] - w) <= tolerance * (1e-3 + largest),
                      "%s, %s, %ld tokens: element %ld is %.9g, not %.9g", level, name, (long)p->t,
                      (long)i, (double)out[r][i], w);
        }
    }
}

static inline void gradient_check_level(gradient_problem *p, const hcg_level *level,
                                        double tolerance) {
    enum { CUTS = 3 };
    const hir_op *kernel = hir_op_at(p->b.m, p->kernel);
    float *whole[GRADIENT_OPERANDS], *other[GRADIENT_OPERANDS];
    compiled c;
    const hir_kernel_kind kind = hir_kind_of(kernel->code);
    cr_assert(compile_kernel(&p->b, kind, p->kernel, p->t == 1, level, &c), "%s: %s", level->name,
              bench_errors(&p->b));
    gradient_run(p, &c, false, whole);
    gradient_compare(p, whole, tolerance, level->name);
    for (int i = 0; i < CUTS; i++) {
        gradient_run(p, &c, true, other);
        for (uint32_t r = 0; r < kernel->n_results; r++) {
            const hir_type t = hir_value_at(p->b.m, kernel->results[r])->type;
            cr_assert_eq(memcmp(whole[r], other[r], gradient_elements(p, t) * sizeof **whole), 0,
                         "%s: a cut gives other bits in result %u", level->name, r);
            guarded_free(other[r]);
        }
    }
    for (uint32_t r = 0; r < kernel->n_results; r++)
        guarded_free(whole[r]);
    compiled_free(&c);
}

/* The kernel of the text at every level, for `t` tokens, with inputs that `prepare` (NULL: nothing)
 * has changed. `tolerance` is relative to the largest element of a result. */
static inline void gradient_check_of(const char *text, int64_t t, int64_t ids, uint64_t seed,
                                     double tolerance, void (*prepare)(gradient_problem *p)) {
    gradient_problem p;
    const hcg_level *levels;
    const size_t n = hcg_levels(&levels);
    gradient_open(&p, text, t, ids, seed);
    if (prepare) prepare(&p);
    gradient_evaluate(&p);
    for (size_t i = 0; i < n; i++)
        if (vectors_run(&levels[i])) gradient_check_level(&p, &levels[i], tolerance);
    gradient_close(&p);
}

static inline void gradient_check(const char *text, int64_t t, int64_t ids, uint64_t seed,
                                  double tolerance) {
    gradient_check_of(text, t, ids, seed, tolerance, NULL);
}

#endif
