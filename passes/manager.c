/* The pass manager: the table of passes, and the loop that runs them.
 *
 * The loop checks that a pass may run at the module's IR stage, gives it a scratch arena, times it,
 * and runs the verifier, the evaluator and the caller's hooks on the result. All errors name the
 * pass.
 */
#include <string.h>

#include "ir/eval/eval.h"
#include "ir/text/text.h"
#include "passes/analysis/layer_passes.h"
#include "passes/shard/shard.h"
#include "passes/weigh_depth.h"
#include "support/clock.h"

/* Bound for the difference of two float64 evaluations of one model, which differ by rounding only:
 * a pass may reorder sums and factors (1e-16 per op, amplified by some 1e3 over deep models), while
 * a wrong rewrite shows at 1e-6 and above even where it drops a single eps. */
static const double check_tolerance = 1e-9;
static const double gradient_tolerance = 1e-6; /* of differences */
enum { CHECK_SEED = 20 };

/* ---- the table ----------------------------------------------------------------------------- */
#define P(id, name, fn, stage_in, stage_out, doc) bool fn(hir_pass_context *c);
#include "passes/passes.def"
#undef P

static const hir_pass_info table[] = {
#define P(id, name, fn, stage_in, stage_out, doc)                                                  \
    {name, fn, HIR_STAGE_##stage_in, HIR_STAGE_##stage_out, doc},
#include "passes/passes.def"
#undef P
    {"(extra)", NULL, HIR_STAGE_KERNEL, HIR_STAGE_KERNEL, "a pass given by the caller"},
};

const hir_pass_info *hir_pass(hir_pass_id id) {
    size_t n;
    const hir_pass_info *own = hir_own_passes(&n);
    if (id >= HIR_PASS_OWN && id - HIR_PASS_OWN < n) return &own[id - HIR_PASS_OWN];
    return &table[id < HIR_PASS_COUNT ? id : HIR_PASS_COUNT];
}

bool hir_pass_by_name(const char *name, hir_pass_id *out) {
    size_t n;
    hir_own_passes(&n);
    for (size_t i = 0; i < HIR_PASS_OWN + n; i++)
        if (i != HIR_PASS_COUNT && !strcmp(hir_pass((hir_pass_id)i)->name, name)) {
            *out = (hir_pass_id)i;
            return true;
        }
    return false;
}

const char **hir_pass_names(hd_arena *a, size_t *n) {
    size_t own;
    hir_own_passes(&own);
    const char **names = hd_new_array(a, const char *, HIR_PASS_COUNT + own);
    *n = 0;
    for (size_t i = 0; i < HIR_PASS_OWN + own; i++)
        if (i != HIR_PASS_COUNT) names[(*n)++] = hir_pass((hir_pass_id)i)->name;
    return names;
}

/* ---- remarks ------------------------------------------------------------------------------- */
/* The first weight that an op reads, or of a kernel that of its first product: it says which of the
 * ops at one place of the spec is meant. */
static const char *weight_read(const hir_module *m, hir_id op, hd_arena *a) {
    const hir_op *o = hir_op_at(m, op);
    if (hir_is_kernel(o)) {
        HIR_EACH(m, inner, o->body_first)
        if (hir_is_linear(hir_op_at(m, inner)->code)) return weight_read(m, inner, a);
        return NULL;
    }
    for (uint32_t i = 0; i < o->n_args; i++)
        if (o->args[i].kind == HIR_REF_WEIGHT)
            return hd_strdup(a, m->weights.at[o->args[i].index].name);
    return NULL;
}

void hir_remark_add(hir_pass_context *c, bool taken, hir_id op, const char *format, ...) {
    if (!c->remarks) return;
    va_list args;
    va_start(args, format);
    hir_remark r = {.taken = taken, .op = op, .op_name = "module"};
    r.text = hd_vprintf(c->remarks->arena, format, args);
    va_end(args);
    r.pass = c->pass;
    if (op != HIR_NONE) {
        r.op_name = hir_info(hir_op_at(c->m, op)->code)->name;
        r.loc = *hir_op_at(c->m, op)->loc;
        r.weight = weight_read(c->m, op, c->remarks->arena);
    }
    hd_push(c->remarks->arena, &c->remarks->list, r);
}

static bool has_result(const hir_module *m, hir_id op) {
    return op < m->ops.n && !hir_op_at(m, op)->erased && hir_op_at(m, op)->n_results > 0;
}

void hir_remarks_name(hir_remarks *remarks, size_t from, const hir_module *m) {
    const uint32_t *numbers = NULL; /* by value; computed only if a remark needs them */
    const hir_layer_passes *passes = NULL;
    for (size_t i = from; i < remarks->list.n; i++) {
        hir_remark *r = &remarks->list.at[i];
        if (!has_result(m, r->op)) continue;
        if (!numbers) {
            numbers = hir_number_values(m, remarks->arena);
            passes = hir_layer_passes_find(m, remarks->arena);
        }
        r->layer_pass = hir_layer_pass(passes, r->op, r->weight);
        hd_text text;
        hd_text_init(&text, remarks->arena);
        hir_print_ref(m, hir_value_ref(hir_op_at(m, r->op)->results[0]), numbers, &text);
        r->value = text.at;
    }
}

/* ---- one pass ------------------------------------------------------------------------------ */
typedef struct step { /* one pass of the pipeline */
    int index;
    hir_pass_id id;
    const hir_pass_info *info;
    const hir_pass_id *rest; /* this pass and the listed ones after it */
    size_t n_rest;
    depth_weighed *weighed;
} step;

/* Passes on kernels assume that every op is in a kernel; this checks the assumption, as hand-edited
 * IR may violate it.
 */
static bool all_in_kernels(const hir_module *m, const step *s, hd_diags *d) {
    HIR_EACH(m, op, m->first) {
        const hir_op *o = hir_op_at(m, op);
        if (hir_is_kernel(o) || o->code == HIR_OUTPUT_OP) continue;
        hd_err(d, HD_E_TYPE, hir_place_of(m, op),
               "pass '%s' cannot run: %s stands outside of a kernel", s->info->name,
               hir_info(o->code)->name)
            ->hint = "at the kernel stage every op but output is in a kernel";
        return false;
    }
    return true;
}

static bool stage_fits(const hir_module *m, const step *s, hd_diags *d) {
    if (!s->info->run) return false;
    if (m->stage > s->info->stage_in) {
        hd_err(d, HD_E_VALUE, HD_NOWHERE, "pass '%s' cannot run: the module is at the %s stage",
               s->info->name, hir_stage_name(m->stage))
            ->cause =
            hd_printf(d->arena, "it works on the %s stage", hir_stage_name(s->info->stage_in));
        return false;
    }
    if (s->info->stage_in == HIR_STAGE_KERNEL && m->stage != HIR_STAGE_KERNEL &&
        s->id != HIR_PASS_COUNT) {
        hd_diag *e = hd_err(d, HD_E_VALUE, HD_NOWHERE, "pass '%s' cannot run: there are no kernels",
                            s->info->name);
        e->cause = hd_printf(d->arena, "the module is at the %s stage", hir_stage_name(m->stage));
        e->hint = "run fuse first";
        return false;
    }
    if (s->info->stage_in == HIR_STAGE_KERNEL && s->id != HIR_PASS_COUNT)
        return all_in_kernels(m, s, d);
    return true;
}

/* Prefixes all diagnostics from number `from` on with the pass's name. */
static void blame(hd_diags *d, size_t from, const step *s) {
    for (size_t i = from; i < d->list.n; i++)
        if (d->list.at[i].severity == HD_ERROR)
            d->list.at[i].message =
                hd_printf(d->arena, "pass '%s': %s", s->info->name, d->list.at[i].message);
}

/* A module that fails verification after a pass is a defect of the pass. */
static bool verify_after(const hir_module *m, const step *s, hd_diags *d) {
    size_t from = d->list.n;
    if (hir_verify(m, d)) return true;
    for (size_t i = from; i < d->list.n; i++)
        d->list.at[i].code = HD_E_PASS;
    hd_err(d, HD_E_PASS, HD_NOWHERE, "the module is not legal any more");
    blame(d, from, s);
    return false;
}

/* After the last pass the kernels are checked for code generation. This is cheap, so it is always
 * done. */
static bool verify_kernels_after(const hir_module *m, const step *s, hd_diags *d) {
    size_t from = d->list.n;
    if (hir_verify_kernels(m, d)) return true;
    blame(d, from, s);
    return false;
}

/* narrow-depth rounds where the options ask for it: its conversions are removed before the
 * comparison. */
static const hir_module *without_conversions(const hir_module *m, hd_arena *a) {
    hir_module *exact = hir_module_clone(m, a);
    pass_forward forward = {.arena = a};
    HIR_EACH(exact, op, exact->first)
    if (hir_op_at(exact, op)->code == HIR_CONVERT_OP)
        pass_forward_op(&forward, exact, op, pass_arg(exact, op, 0));
    pass_forward_finish(&forward, exact);
    return exact;
}

/* shard-tensor rounds gathered rows where the options ask for it: for the comparison they are sent
 * as f32. */
static const hir_module *with_f32_crossing(const hir_module *m, hd_arena *a) {
    hir_module *exact = hir_module_clone(m, a);
    HIR_EACH(exact, op, exact->first)
    if (hir_has_trait(hir_op_at(exact, op)->code, HIR_COMM) &&
        hir_find_attr(hir_op_at(exact, op), HIR_A_DTYPE))
        hir_set_attr(exact, op, hir_string(HIR_A_DTYPE, hir_dtype_name(HIR_F32)));
    return exact;
}

/* The gradient of what is rounded to a code is that of its operand: y = x + detach(round x - x). For
 * the comparison that is what it is. */
static const hir_module *with_constant_rounding(const hir_module *m, hd_arena *a, hd_diags *d) {
    hir_module *straight = hir_module_clone(m, a);
    pass_forward forward = {.arena = a};
    HIR_EACH(straight, op, straight->first) {
        const hir_opcode code = hir_op_at(straight, op)->code;
        if (code != HIR_ROUND_E4M3_OP && code != HIR_ROUND_E2M1_OP) continue;
        hir_builder b = hir_before(straight, d, op);
        const hir_ref x = pass_arg(straight, op, 0), rounded = hir_emit1(&b, code, x);
        const hir_ref rest = hir_emit1(&b, HIR_DETACH_OP, hir_emit2(&b, HIR_SUB_OP, rounded, x));
        pass_forward_op(&forward, straight, op, hir_emit2(&b, HIR_ADD_OP, x, rest));
    }
    pass_forward_finish(&forward, straight);
    return straight;
}

/* A single pipeline stage does not compute the model's answer: all stages are built and evaluated
 * together. */
static bool check_stages(const hir_module *before, const hir_compile_options *options,
                         hd_arena *scratch, hd_diags *d) {
    const hir_module **stages = hd_new_array(scratch, const hir_module *, (size_t)options->stages);
    return shard_all_stages(before, options, d, scratch, stages) &&
           hir_same_answer_of_stages(before, stages, (size_t)options->stages, check_tolerance,
                                     CHECK_SEED, d);
}

static bool check_after(const hir_module *before, const hir_module *after, const step *s,
                        const hir_compile_options *options, hd_arena *scratch, hd_diags *d) {
    size_t from = d->list.n;
    if (s->id == HIR_PASS_SHARD_PIPELINE) {
        if (check_stages(before, options, scratch, d)) return true;
        blame(d, from, s);
        return false;
    }
    if (s->id == HIR_PASS_DIFFERENTIATE) {
        before = with_constant_rounding(before, scratch, d);
        if (hir_right_gradients(before, after, gradient_tolerance, CHECK_SEED, scratch, d))
            return true;
        blame(d, from, s);
        return false;
    }
    if (s->id == HIR_PASS_SHARD_TENSOR) after = with_f32_crossing(after, scratch);
    if (s->id == HIR_PASS_NARROW_DEPTH) after = without_conversions(after, scratch);
    if (hir_same_answer(before, after, check_tolerance, CHECK_SEED, d)) return true;
    blame(d, from, s);
    return false;
}

/* Runs the pass; false: it failed, with a diagnostic. */
static bool run_pass(hir_pass_context *c, const step *s, double *seconds) {
    size_t from = c->diags->list.n, errors = c->diags->errors;
    c->pass = s->info->name;
    double start = hd_seconds();
    bool ok = s->info->run(c);
    *seconds = hd_seconds() - start;
    blame(c->diags, from, s);
    if (ok && c->diags->errors == errors) {
        if (c->changed && c->m->stage < s->info->stage_out && s->id != HIR_PASS_COUNT)
            c->m->stage = s->info->stage_out;
        return true;
    }
    if (c->diags->errors == errors)
        hd_err(c->diags, HD_E_INTERNAL, HD_NOWHERE, "pass '%s' failed without a reason",
               s->info->name);
    return false;
}

/* Is it a depth pass that is skipped because the ledger predicts no gain? */
static bool is_left_out(const step *s, hir_pass_context *c, const hir_run *run) {
    depth_weighed *w = s->weighed;
    if (run->all || s->id == HIR_PASS_COUNT || !depth_is_weighed(s->id)) return false;
    if (!w->done) depth_weigh(c->m, s->rest, s->n_rest, c->options, c->scratch, c->m->arena, w);
    c->pass = s->info->name;
    if (w->speaks[s->id]) hir_remark_add(c, false, HIR_NONE, "%s", w->why);
    return w->skip[s->id];
}

static bool run_step(const step *s, hir_pass_context *c, const hir_run *run) {
    const hir_hooks *h = &run->hooks;
    if (!stage_fits(c->m, s, c->diags)) return false;
    if (h->before) h->before(h->context, s->index, s->id, c->m);
    const hir_module *before = run->check ? hir_module_clone(c->m, c->scratch) : NULL;
    double seconds = 0;
    if (!is_left_out(s, c, run) && !run_pass(c, s, &seconds)) return false;
    if (run->verify && !verify_after(c->m, s, c->diags)) return false;
    if (s->id == HIR_PASS_PLAN_MEMORY && !verify_kernels_after(c->m, s, c->diags)) return false;
    if (before && c->changed && !check_after(before, c->m, s, c->options, c->scratch, c->diags))
        return false;
    return !h->after || h->after(h->context, s->index, s->id, c->m, c->changed, seconds, c->diags);
}

/* ---- the pipeline -------------------------------------------------------------------------- */
/* If scratch runs out of memory, control goes to the guard of the module's arena. */
static bool run_in_scratch(const step *s, hir_module *m, const hir_run *run,
                           const hir_compile_options *options, hir_remarks *remarks, hd_diags *d) {
    hd_arena **scratch = hd_scratch_new(m->arena);
    hir_pass_context c = {
        .m = m,
        .diags = d,
        .options = options ? options : &hir_default_options,
        .scratch = *scratch,
        .remarks = remarks,
    };
    const bool ok = run_step(s, &c, run);
    hd_scratch_free(scratch);
    return ok;
}

bool hir_run_passes(hir_module *m, const hir_run *run, const hir_compile_options *options,
                    hir_remarks *remarks, hd_diags *d) {
    size_t n = run->n_passes + run->n_extra;
    size_t at = run->extra_at ? run->extra_at : run->n_passes;
    depth_weighed weighed = {0};
    for (size_t i = 0; i < n; i++) {
        bool extra = i >= at && i - at < run->n_extra;
        size_t listed = i < at ? i : i - run->n_extra;
        step s = {.index = (int)i,
                  .id = extra ? HIR_PASS_COUNT : run->passes[listed],
                  .rest = run->passes + listed,
                  .n_rest = run->n_passes - listed,
                  .weighed = &weighed};
        s.info = extra ? &run->extra[i - at] : hir_pass(s.id);
        if (!run_in_scratch(&s, m, run, options, remarks, d)) return false;
        if (!extra && s.id == run->stop_after) break;
    }
    return true;
}
