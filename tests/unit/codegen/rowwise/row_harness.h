/* For tests of row programs, alone or in contractions: a module without sequences, run through
 * compiled code and through the evaluator, every result of every kernel compared. */
#ifndef ROW_HARNESS_H
#define ROW_HARNESS_H

#include <criterion/criterion.h>
#include <math.h>

#include "codegen/program/keys.h"
#include "ir/eval/eval.h"
#include "runtime/grid.h"
#include "support/tensorfile.h"
#include "tests/unit/codegen/emit_harness.h"

enum { ROWS_CAPACITY = 64 };

typedef struct rows {
    bench *b;
    const hcg_level *level;
    uint64_t seed;
    compiled *kernels, *ones; /* per op; for one token */
    bool *present;
    hcg_program p; /* with bench.shared: its functions, ... */
    compiled *functions;
    const hcg_use *uses;                /* ... and what each op calls */
    int threads;                        /* that contractions are cut for, 0: one */
    void **values, **weights, **states; /* memory of each */
    bool *replaced;                     /* per value: a result overwrites it */
    hir_eval *eval;
    int64_t length;
    double worst;
} rows;

/* The random weights as the evaluator shall see them: those in groups as they are stored. */
static inline bool stored_weights(void *seed, const hir_module *m, uint32_t w, double *out,
                                  hd_diags *d) {
    const hir_weight *weight = &m->weights.at[w];
    if (!hir_random_weights(seed, m, w, out, d)) return false;
    if (!hir_is_quantised(weight->type.dtype)) return true;
    size_t n = (size_t)hir_type_row_elements(weight->type);
    float *f = malloc(n * 4);
    for (size_t i = 0; i < n; i++)
        f[i] = (float)out[i];
    const int64_t *dim = weight->type.dim, stack = weight->type.rank == 3 ? dim[0] : 1;
    if (weight->type.rank == 3) dim++;
    guarded_free(pack_stack(f, stack, dim[0], dim[1], weight->type.dtype, HIR_LAYOUT_PANEL));
    for (size_t i = 0; i < n; i++)
        out[i] = (double)f[i];
    free(f);
    return true;
}

/* Storage of weight `w` as the packer lays it out. */
static inline void *pack_weight(rows *r, uint32_t w) {
    const hir_weight *weight = &r->b->m->weights.at[w];
    int64_t n = hir_type_row_elements(weight->type);
    double *x = hd_new_array(r->b->arena, double, (size_t)n);
    hir_random_weights(&r->seed, r->b->m, w, x, &r->b->diags);
    float *f = guarded((size_t)n * 4);
    for (int64_t i = 0; i < n; i++)
        f[i] = (float)x[i];
    if (weight->layout != HIR_LAYOUT_ROWS && weight->type.rank == 3)
        return pack_stack(f, weight->type.dim[0], weight->type.dim[1], weight->type.dim[2],
                          weight->type.dtype, weight->layout);
    if (weight->layout != HIR_LAYOUT_ROWS)
        return pack_matrix(f, weight->type.dim[0], weight->type.dim[1], weight->type.dtype,
                           weight->layout);
    if (weight->type.dtype == HIR_F32) return f;
    uint16_t *half = guarded((size_t)n * 2);
    for (int64_t i = 0; i < n; i++)
        half[i] = weight->type.dtype == HIR_BF16 ? hd_bf16_from_f32(f[i]) : hd_f16_from_f64(x[i]);
    return half;
}

static inline size_t value_bytes(hir_type t) {
    int64_t rows = t.rank && t.dim[0] < 0 ? ROWS_CAPACITY : 1;
    return (size_t)(rows * hir_type_row_elements(t)) * 4;
}

/* The functions that the kernels share, all of them row programs. */
static inline bool rows_share(rows *r) {
    bench *b = r->b;
    r->p = (hcg_program){.arena = b->arena, .m = b->m, .chunk = 512};
    r->p.op_lines = hd_new_array(b->arena, uint32_t, b->m->ops.n + 1);
    cr_assert(hcg_plan_contractions(&r->p, &r->b->diags));
    r->uses = hcg_share_kernels(&r->p);
    r->functions = hd_new_array(b->arena, compiled, r->p.kernels.n + 1);
    for (size_t i = 0; i < r->p.kernels.n; i++)
        if (!compile_function(b, &r->p, &r->p.kernels.at[i], r->level, &r->functions[i]))
            return false;
    return true;
}

static inline bool rows_open(rows *r, bench *b, const hcg_level *level, uint64_t seed) {
    *r = (rows){.b = b, .level = level, .seed = seed};
    hir_module *m = b->m;
    r->kernels = hd_new_array(b->arena, compiled, m->ops.n + 1);
    r->ones = hd_new_array(b->arena, compiled, m->ops.n + 1);
    r->present = hd_new_array(b->arena, bool, m->ops.n + 1);
    r->values = hd_new_array(b->arena, void *, m->values.n + 1);
    r->replaced = hd_new_array(b->arena, bool, m->values.n + 1);
    r->weights = hd_new_array(b->arena, void *, m->weights.n + 1);
    r->states = hd_new_array(b->arena, void *, m->states.n + 1);
    for (uint32_t w = 0; w < m->weights.n; w++)
        r->weights[w] = pack_weight(r, w);
    for (uint32_t s = 0; s < m->states.n; s++)
        r->states[s] = guarded(value_bytes(m->states.at[s].type));
    if (b->shared && !rows_share(r)) return false;
    HIR_EACH(m, op, m->first) {
        const hir_op *o = hir_op_at(m, op);
        bool contract = o->code == HIR_KERNEL_CONTRACT_OP;
        if (o->code != HIR_KERNEL_ROW_OP && !contract) continue;
        for (uint32_t i = 0; i < o->n_results; i++) {
            hir_value *v = hir_value_at(m, o->results[i]);
            bool state = v->place == HIR_PLACE_STATE;
            hir_id over = hir_in_place_of(m, op, i);
            if (over != HIR_NONE) {
                r->values[o->results[i]] = r->values[over];
                r->replaced[over] = true;
                continue;
            }
            r->values[o->results[i]] = state ? r->states[v->offset] : guarded(value_bytes(v->type));
        }
        r->present[op] = true;
        if (b->shared) continue;
        hir_kernel_kind kind = contract ? HIR_KERNEL_CONTRACT : HIR_KERNEL_ROW;
        if (!compile_kernel(b, kind, op, false, level, &r->kernels[op])) return false;
        if (contract && !compile_kernel(b, kind, op, true, level, &r->ones[op])) return false;
    }
    r->eval = hir_eval_new(b->arena, m, stored_weights, &r->seed);
    return true;
}

static inline void rows_close(rows *r) {
    hir_module *m = r->b->m;
    for (size_t i = 0; i < r->p.kernels.n; i++)
        compiled_free(&r->functions[i]);
    for (uint32_t i = 0; i < m->ops.n; i++)
        if (r->present[i] && r->kernels[i].call) compiled_free(&r->kernels[i]);
    for (uint32_t i = 0; i < m->ops.n; i++)
        if (r->present[i] && r->ones[i].call) compiled_free(&r->ones[i]);
    for (uint32_t i = 0; i < m->values.n; i++)
        if (hir_value_at(m, i)->place != HIR_PLACE_STATE && !r->replaced[i])
            guarded_free(r->values[i]);
    for (uint32_t i = 0; i < m->weights.n; i++)
        guarded_free(r->weights[i]);
    for (uint32_t i = 0; i < m->states.n; i++)
        guarded_free(r->states[i]);
}

static inline void *memory_of(rows *r, hir_ref ref) {
    if (ref.kind == HIR_REF_WEIGHT) return r->weights[ref.index];
    if (ref.kind == HIR_REF_STATE) return r->states[ref.index];
    return r->values[ref.index];
}

/* Element i of a compiled value in the evaluator's order. A state is [G][capacity][n] where the
 * evaluator has [C][G][n]. */
static inline double compiled_element(const rows *r, hir_id value, int64_t i) {
    const hir_value *v = hir_value_at(r->b->m, value);
    if (v->place == HIR_PLACE_STATE) {
        int64_t groups = v->type.dim[1], n = v->type.dim[2], row = i / n;
        i = (row % groups * ROWS_CAPACITY + row / groups) * n + i % n;
    }
    const void *at = r->values[value];
    if (v->type.dtype == HIR_I32) return ((const int32_t *)at)[i];
    uint16_t half = v->type.dtype == HIR_F32 ? 0 : ((const uint16_t *)at)[i];
    if (v->type.dtype == HIR_BF16) return hd_bf16_to_f32(half);
    if (v->type.dtype == HIR_F16) return hd_f16_to_f32(half);
    return ((const float *)at)[i];
}

/* Compiled results against the evaluator's, in the order in which values are made. */
static inline void rows_observe(void *context, const hir_module *m, hir_id op, hir_id value,
                                const hir_array *a) {
    rows *r = context;
    if (!hir_is_kernel(hir_op_at(m, op)) || r->replaced[value]) return;
    double most = 0, error = 0;
    for (int64_t i = 0; i < a->n; i++) {
        double want = a->at[i], got = compiled_element(r, value, i), d = fabs(want - got);
        if (isnan(want) && isnan(got)) d = 0;
        if (isinf(want) && want == got) d = 0;
        if (isfinite(want)) most = fmax(most, fabs(want));
        if (isnan(d)) d = INFINITY;
        error = fmax(error, d);
    }
    double relative = error / fmax(most, 1e-3);
    if (relative > r->worst) r->worst = relative;
}

/* A contraction as the runtime shares it among threads, one after the other. */
static inline void rows_contract(rows *r, hir_id op, const compiled *c, const hrt_frame *frame,
                                 void *const *args) {
    int64_t columns = hcg_columns(r->b->m, op);
    hrt_grid g = hrt_cut(frame->T, columns, r->threads > 0 ? r->threads : 1);
    for (int64_t i = 0; i < g.rows; i++)
        for (int64_t j = 0; j < g.cols; j++) {
            memset(frame->scratch, 0xff, c->scratch); /* NaN: not read before it is written */
            c->call(frame, args, frame->T * i / g.rows, frame->T * (i + 1) / g.rows,
                    columns * j / g.cols, columns * (j + 1) / g.cols);
        }
}

/* The arguments of op, as lower.c has them. */
static inline size_t rows_args(rows *r, hir_id op, const compiled *c, void **args) {
    size_t n = 0;
    const hcg_use *use = r->b->shared ? &r->uses[op] : NULL;
    for (size_t i = 0; !use && i < c->k.operands.n; i++)
        args[n++] = memory_of(r, c->k.operands.at[i]);
    for (size_t i = 0; use && i < use->operands.list.n; i++)
        args[n++] = memory_of(r, use->operands.list.at[i]);
    for (uint32_t i = 0; use && i < c->k.n_sizes; i++)
        args[n++] = (void *)(uintptr_t)use->size[i];
    for (size_t i = 0; use && i < use->runs.n; i++)
        args[n++] = memory_of(r, use->runs.at[i]);
    return n;
}

/* One call of all kernels over `tokens` rows, cut at `cut` as threads would; gives the worst error
 * over all results, relative to the largest element of each. INFINITY: something was wrong. */
static inline double rows_call(rows *r, int64_t tokens, int64_t cut, const double *const *inputs) {
    hir_module *m = r->b->m;
    hrt_frame frame = {.T = tokens, .C = r->length + tokens, .cap = ROWS_CAPACITY};
    for (size_t i = 0; i < m->inputs.n; i++) {
        hir_type t = hir_value_at(m, m->inputs.at[i])->type;
        int64_t n = hir_type_row_elements(t) * (hir_type_has_t(t) ? tokens : 1);
        guarded_free(r->values[m->inputs.at[i]]);
        float *x = r->values[m->inputs.at[i]] = guarded((size_t)n * 4);
        for (int64_t j = 0; j < n; j++) {
            int32_t id = (int32_t)inputs[i][j];
            if (t.dtype == HIR_I32)
                memcpy(&x[j], &id, 4);
            else
                x[j] = (float)inputs[i][j];
        }
    }
    HIR_EACH(m, op, m->first) {
        if (!r->present[op]) continue;
        bool contract = hir_op_at(m, op)->code == HIR_KERNEL_CONTRACT_OP;
        compiled *c = contract && tokens == 1 ? &r->ones[op] : &r->kernels[op];
        void *args[256];
        if (r->b->shared) c = &r->functions[r->uses[op].function[HIR_PREFILL]];
        cr_assert_lt(rows_args(r, op, c, args), 256);
        char *scratch = guarded((c->scratch + 63) / 64 * 64);
        frame.scratch = scratch;
        if (contract) {
            rows_contract(r, op, c, &frame, args);
        } else {
            if (cut > 0) c->call(&frame, args, 0, cut, 0, 1);
            c->call(&frame, args, cut, tokens, 0, 1);
        }
        guarded_free(scratch);
    }
    hir_results out;
    hd_arena *temporary = hd_arena_new();
    bool ok =
        hir_eval_call(r->eval, temporary, &r->b->diags, tokens, inputs, &out, rows_observe, r);
    hd_arena_free(temporary);
    r->length += tokens;
    return ok ? r->worst : INFINITY;
}

/* ---- kernels as text ------------------------------------------------------------------------- */

#define KERNEL(name)                                                                               \
    "kernel.row {name = \"" name "\", rows = \"all\", split_decode = \"none\", split_prefill = "   \
    "\"rows\"}"

static inline bench *open_text(const char *text) {
    bench *b = malloc(sizeof *b);
    *b = bench_new();
    bench_start(b);
    b->m = hir_parse(b->arena, &b->diags, "test.hir", text);
    cr_assert(b->m, "%s\n%s", bench_errors(b), text);
    return b;
}

/* A kernel's text: "#c" becomes the number of letter c, the i-th of `letters`, numbers[i]. */
static inline void add_filled(hd_text *t, const char *text, const char *letters,
                              const int *numbers) {
    for (const char *mark; (mark = strchr(text, '#')) != NULL; text = mark + 2) {
        const char *letter = strchr(letters, mark[1]);
        cr_assert(letter && mark[1], "#%c is no number", mark[1]);
        hd_text_add_n(t, text, (size_t)(mark - text));
        hd_text_f(t, "%d", numbers[letter - letters]);
    }
    hd_text_add(t, text);
}

static inline const char *filled(hd_arena *a, const char *text, const char *letters,
                                 const int *numbers) {
    hd_text t;
    hd_text_init(&t, a);
    add_filled(&t, text, letters, numbers);
    return t.at;
}

static inline void close_text(bench *b) {
    bench_free(b);
    free(b);
}

static inline const double *const *random_inputs(bench *b, int64_t tokens, int64_t vocab,
                                                 uint64_t *seed) {
    double **all = hd_new_array(b->arena, double *, b->m->inputs.n + 1);
    for (size_t i = 0; i < b->m->inputs.n; i++) {
        hir_type t = hir_value_at(b->m, b->m->inputs.at[i])->type;
        int64_t n = hir_type_row_elements(t) * (hir_type_has_t(t) ? tokens : 1);
        all[i] = hd_new_array(b->arena, double, (size_t)n);
        for (int64_t j = 0; j < n; j++)
            all[i][j] = t.dtype == HIR_I32 ? (double)random_below(seed, vocab)
                                           : (double)(2 * random_float(seed));
    }
    return (const double *const *)all;
}

/* A row program at levels that this machine need not have: no call remains. */
static inline void check_no_calls(const char *text) {
    const hcg_level *levels;
    for (size_t l = 0, count = hcg_levels(&levels); l < count; l++) {
        bench *b = open_text(text);
        const char *call = calls_outside(b, HIR_KERNEL_ROW, b->m->first, false, &levels[l]);
        cr_assert(!call, "%s calls %s %s", levels[l].name, call, bench_errors(b));
        close_text(b);
    }
}

/* A call of `tokens` on random inputs, cut at `cut`: no result differs by more than `most` of its
 * largest element. */
static inline void rows_expect(rows *r, int64_t tokens, int64_t cut, uint64_t *seed, double most) {
    const int64_t before = r->length;
    const double e = rows_call(r, tokens, cut, random_inputs(r->b, tokens, 19, seed));
    if (e < most) return;
    hd_text text;
    hd_text_init(&text, r->b->arena);
    hir_print(r->b->m, (hir_print_options){0}, &text);
    cr_assert_fail("%s, %ld tokens behind %ld: error %g\n%s\n%s", r->level->name, (long)tokens,
                   (long)before, e, bench_errors(r->b), text.at);
}

/* A prefill, cut in two as by threads, and a token after it, with vectors of every size. */
static inline void check_text(const char *text, double tolerance) {
    const hcg_level *levels;
    for (size_t l = 0, n = hcg_levels(&levels); l < n; l++) {
        if (!vectors_run(&levels[l])) continue;
        bench *b = open_text(text);
        rows r;
        uint64_t seed = 7 + l;
        cr_assert(rows_open(&r, b, &levels[l], seed), "%s", bench_errors(b));
        bool tokens = b->m->inputs.n > 0 || b->m->states.n > 0;
        rows_expect(&r, 5, tokens ? 2 : 0, &seed, tolerance);
        rows_expect(&r, 1, 0, &seed, tolerance);
        rows_close(&r);
        close_text(b);
    }
}

#endif
