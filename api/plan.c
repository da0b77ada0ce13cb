/* hadal plan: compiles the model for each shape, as far as kernel IR, and counts what its ranks
 * would hold and do. */
#include "api/plan.h"

#include <string.h>

#include "api/session.h"

#define API_FAILED NULL

/* ---- what a rank holds and does -------------------------------------------------------------- */

/* The index of the step whose kernel contains the op. */
static size_t step_with(const hir_module *m, hir_id op) {
    const hir_id kernel = hir_op_at(m, op)->parent;
    size_t n = 0;
    HIR_EACH(m, id, m->first) {
        if (id == kernel) break;
        n += hir_op_at(m, id)->code != HIR_OUTPUT_OP;
    }
    return n;
}

static void add_crossings(hadal_session *s, const hcg_program *p, plan_stage *out) {
    hir_crossings all;
    hir_find_crossings(p->m, s->arena, &all);
    for (size_t i = 0; i < all.list.n; i++) {
        const hir_crossing *x = &all.list.at[i];
        const plan_crossing c = {*x, api_is_beside(p, step_with(p->m, x->op))};
        hd_push(s->arena, &out->crossings, c);
    }
}

static plan_stage stage_of(hadal_session *s, const hcg_program *p) {
    plan_stage out = {.m = p->m,
                      .tiles = p->options.compile.overlap,
                      .int8 = !(p->options.exact & HCG_ROUND_INT8),
                      .bf16 = !(p->options.exact & HCG_ROUND_BF16),
                      .weight_bytes = p->weights_bytes,
                      .state_bytes = hir_all_state_bytes(p->m, true),
                      .fixed_state_bytes = hir_all_state_bytes(p->m, false),
                      .arena_per_token = p->m->arena_per_token,
                      .local_per_token = p->m->local_per_token,
                      .fixed_bytes = p->m->fixed_bytes,
                      .runs = (int64_t)p->runs.n,
                      .arena_kept = p->m->arena_kept,
                      .local_kept = p->m->local_kept};
    for (size_t i = 0; i < p->m->states.n; i++)
        if (hir_is_of_call(&p->m->states.at[i]))
            out.pair_bytes = hd_capped_add(out.pair_bytes, hir_state_bytes(&p->m->states.at[i]));
    for (size_t i = 0; i < p->steps.n; i++) {
        if (p->steps.at[i].collective) continue; /* a collective, which is one of the crossings */
        const plan_step step = api_plan_step(p, i);
        hd_push(s->arena, &out.steps, step);
    }
    add_crossings(s, p, &out);
    return out;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static bool add_stage(hadal_session *s, const hadal_pipeline *pipeline, const hadal_target *t,
                      plan_shape *shape) {
    if (hadal_run_passes(s, pipeline) != 0 || !api_need_program(s, t)) return false;
    hd_push(s->arena, &shape->stage, stage_of(s, s->program));
    return true;
}

/* Takes back the diagnostics added since there were so many errors and entries: why a model cannot
 * be divided in this way belongs to the shape, and is no error of the plan. False: something else
 * is wrong. */
static bool take_rejection(hadal_session *s, size_t errors, size_t listed, plan_shape *shape) {
    for (size_t i = s->diags.list.n; i-- > listed;) {
        const hd_diag *g = &s->diags.list.at[i];
        if (g->severity != HD_ERROR) continue;
        if (g->code != HD_E_UNSUPPORTED && g->code != HD_E_VALUE) return false;
        shape->rejected = g->message;
    }
    if (!shape->rejected) return false;
    s->diags.errors = errors;
    s->diags.list.n = listed;
    return true;
}

static bool fill_shape(hadal_session *s, const hadal_pipeline *pipeline, const hadal_target *t,
                       plan_shape *shape) {
    hadal_pipeline one = *pipeline;
    one.ranks = shape->ranks;
    one.stages = shape->stages;
    const bool divided = shape->ranks * shape->stages > 1;
    /* what says how a model is divided is of the shapes that are */
    if (shape->ranks == 1) one.gather_dtype = NULL, one.divide_from = 0;
    if (shape->stages == 1) one.virtual_stages = 1;
    if (!divided) one.overlap = NULL;
    const size_t errors = s->diags.errors, listed = s->diags.list.n;
    for (one.stage = 0; one.stage < shape->stages; one.stage++)
        if (!add_stage(s, &one, t, shape))
            return divided && take_rejection(s, errors, listed, shape);
    return true;
}

/* Adds all ways to divide the model over so many hosts that the options allow. */
static bool add_shapes(hadal_session *s, const hadal_pipeline *pipeline, const hadal_target *t,
                       int64_t hosts, plan *out) {
    for (int64_t stages = 1; stages <= hosts; stages++) {
        plan_shape shape = {.ranks = hosts / stages, .stages = stages};
        if (shape.ranks * stages != hosts ||
            (pipeline->ranks > 1 && pipeline->ranks != shape.ranks) ||
            (pipeline->stages > 1 && pipeline->stages != stages))
            continue;
        if (!fill_shape(s, pipeline, t, &shape)) return false;
        hd_push(s->arena, &out->shapes, shape);
    }
    return true;
}

static bool add_all_shapes(hadal_session *s, const hadal_pipeline *pipeline,
                           const hadal_plan_options *o, plan *out) {
    const hadal_target t = {.struct_size = sizeof t, .activations = o->activations};
    for (size_t i = 0; i < o->n_hosts; i++)
        if (!add_shapes(s, pipeline, &t, o->hosts[i], out)) return false;
    if (out->shapes.n) return true;
    hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "no number of hosts is so many ranks and stages")
        ->hint = "--hosts has to be --ranks times --stages";
    return false;
}

static int64_t most_hosts(const hadal_plan_options *o) {
    int64_t most = 1;
    for (size_t i = 0; i < o->n_hosts; i++)
        if (o->hosts[i] > most) most = o->hosts[i];
    return most;
}

static const char *make_plan(hadal_session *s, const hadal_pipeline *pipeline,
                             const hadal_plan_options *o) {
    plan p = {.call = {.prompt = o->prompt,
                       .position = o->position,
                       .chunk = o->any_chunk          ? 0
                                : pipeline->chunk > 0 ? pipeline->chunk
                                                      : 512}};
    hd_text text;
    hd_text_init(&text, s->arena);
    if (!api_read_options(s, pipeline) || !plan_host_parse(&s->diags, o->host, &p.host) ||
        !plan_host_check(&s->diags, &p.host, most_hosts(o)) || !api_need_module(s) ||
        !add_all_shapes(s, pipeline, o, &p))
        return NULL;
    p.model = s->graph->name;
    plan_predict(&p);
    (o->json ? plan_json : plan_text)(&p, &text);
    return text.at;
}

const char *hadal_plan(hadal_session *s, const hadal_pipeline *p, const hadal_plan_options *o) {
    API_ENTER(s);
    API_TAKE(hadal_plan_options, all, o);
    const char *text = make_plan(s, p, &all);
    API_RETURN(s, text);
}

/* ---- what a kernel multiplies with ----------------------------------------------------------- */

/* Does the op multiply with argument i as a matrix of weights? */
static bool is_matrix(const hir_op *o, uint32_t i) {
    return hir_is_matrix(o->code, i) && o->args[i].kind == HIR_REF_WEIGHT;
}

/* Does the op read along a cache that is argument i? */
static bool is_cache(const hir_module *m, hir_id op, uint32_t i) {
    const hir_opcode code = hir_op_at(m, op)->code;
    return hir_has_trait(code, HIR_SEQUENCE) && !hir_has_trait(code, HIR_WRITES_STATE) &&
           hir_type_has_c(hir_arg_type(m, op, i));
}

/* Notes what the op is to the step: a matrix takes precedence over a cache. */
static void take(const hir_module *m, hir_id op, plan_step *s) {
    const hir_op *o = hir_op_at(m, op);
    for (uint32_t i = 0; i < o->n_args; i++) {
        if (o->args[i].kind == HIR_REF_NONE) continue;
        const bool matrix = is_matrix(o, i);
        if (!matrix && !is_cache(m, op, i)) continue;
        s->matrix = hir_arg_type(m, op, i).dtype;
        s->other = !matrix && !s->work.pair_flops;
        if (matrix) return;
    }
}

bool api_is_beside(const hcg_program *p, size_t step) {
    for (size_t i = 0; i < p->overlaps.n; i++)
        if (p->overlaps.at[i].front <= step && step < p->overlaps.at[i].end) return true;
    return false;
}

plan_step api_plan_step(const hcg_program *p, size_t i) {
    const hrt_step *s = &p->steps.at[i];
    const hir_id kernel = p->kernels.at[s->kernel_prefill].op;
    plan_step out = {.work = hcg_step_info(p, i),
                     .matrix = HIR_F32,
                     .other = true,
                     .local = s->local,
                     .beside = api_is_beside(p, i)};
    HIR_EACH(p->m, op, hir_op_at(p->m, kernel)->body_first) {
        take(p->m, op, &out);
        if (!out.other) break;
    }
    return out;
}
