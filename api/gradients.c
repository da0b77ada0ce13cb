/* The gradients of a sequence, by the reference evaluator or a compiled library; what a model with
 * gradients may be asked for. */
#include "api/gradients.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "api/data.h"
#include "api/evaluator.h"
#include "api/trainer.h"
#include "inspect/by_depth.h"
#include "runtime/hadal_rt.h"

#define API_FAILED 1

struct taps *api_output_taps(hadal_session *s) {
    taps *x = hd_new(s->arena, taps);
    if (!taps_find(s->graph, s->arena, &s->diags, x)) return NULL;
    for (size_t i = 0; i < x->list.n; i++)
        x->list.at[i].measured = x->list.at[i].kind == TAP_OUTPUT;
    taps_keep(x, s->arena);
    return x;
}

/* The graph with its loss, differentiated; each gradient is an output, and so are the values of
 * `shown` (NULL: none) and their gradients. */
static hir_module *differentiated(hadal_session *s, const taps *shown) {
    static const hir_pass_id passes[] = {
        HIR_PASS_CANONICALISE,  HIR_PASS_FOLD_CONSTANTS, HIR_PASS_CSE,
        HIR_PASS_DIFFERENTIATE, HIR_PASS_LOWER_TRACES,   HIR_PASS_CSE,
        HIR_PASS_DCE,
    };
    const hir_run run = {.passes = passes,
                         .n_passes = sizeof passes / sizeof *passes,
                         .stop_after = HIR_PASS_COUNT,
                         .verify = true};
    hir_module *m = hir_module_clone(s->graph, s->arena);
    if (!hir_add_loss(m, &s->diags) || (shown && !taps_add_outputs(shown, m, &s->diags)) ||
        !hir_run_passes(m, &run, &s->pass_options, NULL, &s->diags))
        return NULL;
    return m;
}

/* Codes are no numbers that a step could change. */
static bool are_numbers(hadal_session *s) {
    const hd_tensor *t = api_find_codes(s);
    if (!t) return true;
    hd_diag *e = hd_err(&s->diags, HD_E_UNSUPPORTED, (hd_loc){.file = t->file},
                        "weight %s is quantised: it has no gradient", t->name);
    e->cause = "gradients are those of numbers, and it is stored as codes";
    e->hint = "take a checkpoint in f32, bf16 or f16";
    return false;
}

bool api_reject_gradients(hadal_session *s, const char *why, const char *hint) {
    hd_diag *e =
        hd_err(&s->diags, HD_E_UNSUPPORTED, HD_NOWHERE, "not for the gradients of a model");
    e->cause = why;
    e->hint = hint;
    return false;
}

bool api_may_differentiate(hadal_session *s, const hadal_pipeline *p) {
    enum { LONGEST = 4096 };
    hir_compile_options *o = &s->pass_options;
    if (o->ranks > 1 || o->stages > 1)
        return api_reject_gradients(s, "ranks that train together have the whole model each",
                                    "leave out --ranks and --stages: mpirun -n N hadal train .. "
                                    "divides the batch");
    if (p->weights_dtype && strcmp(p->weights_dtype, "f32") != 0)
        return api_reject_gradients(s, "parameters are f32: a step cannot change a code",
                                    "leave out --weights-dtype");
    if (p->bank_dtype || p->phase1_dtype || p->merge_norm)
        return api_reject_gradients(
            s,
            "--bank-dtype, --phase1-dtype and --merge-norm are for mixes over depth in two phases",
            "leave them out");
    if (p->keep_hidden || p->keep_traces || p->taps || p->by_depth)
        return api_reject_gradients(s, "its outputs are the loss and the gradients",
                                    "look inside the model without --gradients");
    if (!p->chunk) o->chunk = LONGEST;
    if (!s->weights_path || !hd_safetensors_exist(s->arena, s->weights_path)) return true;
    return api_need_weights(s) && are_numbers(s);
}

/* ---- results --------------------------------------------------------------------------------- */

typedef struct tensors {
    hadal_session *s;
    HD_VEC(hd_tensor) list;
    double by; /* 1 / the number of counted targets */
} tensors;

/* Elements of x, which may be NULL: zeros. */
static void add_tensor(tensors *out, const char *name, hir_type t, const double *x) {
    int64_t n = 1;
    hd_tensor tensor = {.name = name, .dtype = HD_T_F32, .rank = t.rank};
    for (uint32_t i = 0; i < t.rank; i++)
        n *= tensor.shape[i] = t.dim[i];
    float *at = hd_alloc(out->s->arena, (size_t)n, sizeof *at);
    for (int64_t i = 0; i < n; i++)
        at[i] = x ? (float)(x[i] * out->by) : 0;
    tensor.elements = (uint64_t)n;
    tensor.bytes = tensor.elements * sizeof *at;
    tensor.data = (const uint8_t *)at;
    hd_push(out->s->arena, &out->list, tensor);
}

/* The shape that the checkpoint has for a weight; one of as many elements as the model's. */
static hir_type stored_type(const tensors *out, const char *name, hir_type t) {
    const hd_tensor *stored = hd_tensors_find(&out->s->weights, name);
    if (!stored || stored->rank > HIR_MAX_RANK) return t;
    return hir_make_type(HIR_F32, stored->rank, stored->shape);
}

/* The gradient of a weight under its name; of a stacked one those of its parts. */
static void add_weight(tensors *out, const hir_weight *w, const double *x) {
    hd_arena *a = out->s->arena;
    if (!w->stacked) {
        add_tensor(out, hd_printf(a, HIR_GRADIENT "%s", w->name),
                   stored_type(out, w->name, w->type), x);
        return;
    }
    const hir_type part = hir_make_type(HIR_F32, w->type.rank - 1, w->type.dim + 1);
    const int64_t n = hir_type_row_elements(part);
    for (int64_t i = 0; i < w->type.dim[0]; i++)
        add_tensor(out, hd_printf(a, HIR_GRADIENT "%s", hir_part_name(a, w, i)), part,
                   x ? x + i * n : NULL);
}

/* ---- by depth -------------------------------------------------------------------------------- */

/* By tap the root mean square of a value, or of its gradient; 0 where there is none. `what` comes
 * before the name of the output. */
static void add_rms(tensors *out, const char *name, const taps *shown, const char *what,
                    const hir_results *results, int64_t rows) {
    hd_arena *a = out->s->arena;
    by_depth sums;
    double *rms = hd_new_array(a, double, shown->list.n);
    by_depth_start(shown, a, &sums);
    for (uint32_t i = 0; i < shown->values.n; i++) {
        const char *of = hd_printf(a, "%s%s", what, taps_output_name(i, a));
        const hir_array *x = hir_find_output(results, of);
        if (x) by_depth_add_exact(&sums, i, x->at, x->n / rows, rows);
    }
    sums.tokens = rows;
    for (size_t i = 0; i < shown->list.n; i++)
        rms[i] = by_depth_rms(&sums, i);
    add_tensor(out, name, hir_make_type(HIR_F32, 1, (int64_t[]){(int64_t)shown->list.n}), rms);
}

static bool write_gradients(hadal_session *s, const char *path, const taps *shown,
                            const hir_results *results, int64_t n,
                            const hadal_gradient_result *result) {
    tensors out = {.s = s, .by = 1};
    add_tensor(&out, HIR_LOSS, hir_make_type(HIR_F32, 1, (int64_t[]){1}), &result->loss);
    out.by = result->count ? 1 / (double)result->count : 0;
    for (size_t i = 0; i < s->graph->weights.n; i++) {
        const hir_weight *w = &s->graph->weights.at[i];
        const hir_array *x =
            hir_find_output(results, hd_printf(s->arena, HIR_GRADIENT "%s", w->name));
        if (!hir_is_derived(w)) add_weight(&out, w, x ? x->at : NULL);
    }
    const double by = out.by;
    out.by = 1;
    if (shown) add_rms(&out, "out_rms", shown, "", results, n);
    out.by = by;
    if (shown) add_rms(&out, "out_grad_rms", shown, HIR_GRADIENT_AT, results, n);
    return hd_safetensors_write(s->arena, &s->diags, path, out.list.at, out.list.n);
}

/* ---- numbers that float32 cannot hold --------------------------------------------------------- */

static bool holds(const hir_array *x, int64_t *at) {
    for (*at = 0; *at < x->n; ++*at)
        if (!(fabs(x->at[*at]) <= (double)FLT_MAX)) return false;
    return true;
}

typedef struct found { /* the first value with such a number */
    hir_id op;
    double x;
} found;

static void look(void *context, const hir_module *m, hir_id op, hir_id value, const hir_array *x) {
    (void)m, (void)value;
    found *first = context;
    int64_t at;
    if (first->op == HIR_NONE && !holds(x, &at)) *first = (found){op, x->at[at]};
}

/* Where all results can be held: true. Else the call is made once more, and the first value that
 * cannot is the error. */
static bool check_results(hadal_session *s, const hir_module *m, hir_eval *e, int64_t n,
                          const double *const *inputs, const hir_results *results) {
    found first = {HIR_NONE, 0};
    hir_results again;
    bool all = true;
    int64_t at;
    for (size_t i = 0; i < results->outputs.n; i++)
        all &= holds(&results->outputs.at[i], &at);
    if (all) return true;
    (void)hir_eval_rewind(e, 0);
    if (!hir_eval_call(e, s->arena, &s->diags, n, inputs, &again, look, &first)) return false;
    hd_diag *d = hd_err(&s->diags, HD_E_RUNTIME,
                        first.op == HIR_NONE ? HD_NOWHERE : hir_place_of(m, first.op),
                        "the loss or a gradient is more than float32 holds, or no number");
    d->hint = "weights of another model, or numbers beyond what a type can hold";
    if (first.op == HIR_NONE) return false;
    hd_text text;
    hd_text_init(&text, s->arena);
    hir_print_op(m, first.op, &text);
    d->cause =
        hd_printf(s->arena, "the first value that has such a number, %g: %s", first.x, text.at);
    return false;
}

/* ---- the call -------------------------------------------------------------------------------- */

static bool evaluate(hadal_session *s, const hadal_gradient_options *o, const int32_t *tokens,
                     const int32_t *targets, int64_t n, hadal_gradient_result *out) {
    double *ids = hd_new_array(s->arena, double, (size_t)n);
    double *wanted = hd_new_array(s->arena, double, (size_t)n);
    *out = (hadal_gradient_result){0};
    for (int64_t i = 0; i < n; i++) {
        ids[i] = tokens[i], wanted[i] = targets[i];
        out->count += targets[i] >= 0;
    }
    const taps *shown = o->by_depth ? api_output_taps(s) : NULL;
    const hir_module *m = o->by_depth && !shown ? NULL : differentiated(s, shown);
    if (!m) return false;
    hir_eval *e = hir_eval_new(s->arena, m, hcg_weight_source, &s->weights);
    hir_results results = {0};
    const double *const inputs[] = {ids, wanted};
    if (!hir_eval_call(e, s->arena, &s->diags, n, inputs, &results, NULL, NULL) ||
        !check_results(s, m, e, n, inputs, &results))
        return false;
    const hir_array *loss = hir_find_output(&results, HIR_LOSS);
    if (loss && out->count) out->loss = loss->at[0] / (double)out->count;
    return !o->path || write_gradients(s, o->path, shown, &results, n, out);
}

/* ---- a compiled library ---------------------------------------------------------------------- */

/* The gradients as the evaluator gives them; those of a stacked weight follow each other, in one
 * piece. */
static hir_results results_of(api_trainer *t) {
    hadal_session *s = t->s;
    hir_results all = {0};
    for (uint32_t i = 0; i < s->graph->weights.n; i++) {
        const hir_weight *w = &s->graph->weights.at[i];
        const char *name = w->stacked ? hir_part_name(s->arena, w, 0) : w->name;
        const api_parameter *p = hir_is_derived(w) ? NULL : api_trainer_find(t, name);
        if (!p) continue;
        const size_t n = (size_t)hir_type_row_elements(w->type);
        hir_array x = {.name = hd_printf(s->arena, HIR_GRADIENT "%s", w->name),
                       .type = w->type,
                       .n = (int64_t)n,
                       .at = hd_alloc(s->arena, n, sizeof *x.at)};
        for (size_t k = 0; k < n; k++)
            x.at[k] = (double)p->gradient[k];
        hd_push(s->arena, &all.outputs, x);
    }
    return all;
}

static bool call_library(const api_trainer *t, const int32_t *tokens, const int32_t *targets,
                         int64_t n, double *sum, int64_t *count) {
    const int code = t->gradients(t->at, tokens, targets, &n, 1, sum, count);
    if (api_trainer_ok(t, code, "gradients")) return true;
    if (code == HRT_FINITE)
        hd_note(&t->s->diags, HD_NOWHERE,
                "--interpret names the first such value, and its place in the page");
    return false;
}

static bool run_library(hadal_session *s, const hadal_gradient_options *o, const int32_t *tokens,
                        const int32_t *targets, int64_t n, hadal_gradient_result *out) {
    api_trainer *t = hd_new(s->arena, api_trainer);
    double sum = 0;
    *out = (hadal_gradient_result){0};
    bool ok = api_trainer_open(t, s, o->library, n, o->threads, o->cpu_level) &&
              api_trainer_load(t) && call_library(t, tokens, targets, n, &sum, &out->count);
    if (ok && out->count) out->loss = sum / (double)out->count;
    if (ok && o->path) {
        const hir_results results = results_of(t);
        ok = write_gradients(s, o->path, NULL, &results, n, out);
    }
    api_trainer_close(t);
    return ok;
}

static bool gradients(hadal_session *s, const hadal_gradient_options *o, const int32_t *tokens,
                      const int32_t *targets, int64_t n, hadal_gradient_result *out) {
    if (!api_need_module(s) || !api_need_weights(s) || !are_numbers(s)) return false;
    if (!o->interpret && !o->by_depth && !o->library) {
        hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "gradients of what is not compiled")->hint =
            "name a library, or let the reference compute them";
        return false;
    }
    if (!o->interpret && o->by_depth)
        hd_note(&s->diags, HD_NOWHERE, "the reference evaluator computes the magnitudes by depth")
            ->cause =
            "a library gives the gradients of parameters alone; those in the file are the "
            "evaluator's, too";
    if (o->path && !api_may_write(s, o->path)) return false;
    if (!o->interpret && !o->by_depth)
        return hcg_check_weights(s->graph, &s->diags, &s->weights) &&
               run_library(s, o, tokens, targets, n, out);
    return hcg_check_weights(s->graph, &s->diags, &s->weights) &&
           evaluate(s, o, tokens, targets, n, out);
}

int hadal_gradients(hadal_session *s, const hadal_gradient_options *o, const int32_t *tokens,
                    const int32_t *targets, int64_t n, hadal_gradient_result *out) {
    API_ENTER(s);
    API_TAKE(hadal_gradient_options, all, o);
    API_LEAVE(s, gradients(s, &all, tokens, targets, n, out));
}
