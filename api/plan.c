/* hadal plan: the model compiled for each shape, as far as kernel IR, and what its ranks would hold
 * and do. */
#include <string.h>

#include "api/session.h"
#include "codegen/program.h"
#include "inspect/plan.h"

#define API_FAILED NULL

/* ---- what a rank holds and does -------------------------------------------------------------- */

/* How the matrix that a kernel multiplies with is stored; f32: it has none. */
static hir_dtype matrix_of(const hir_module *m, hir_id kernel) {
    HIR_EACH(m, id, hir_op_at(m, kernel)->body_first) {
        const hir_op *o = hir_op_at(m, id);
        const bool product = o->code == HIR_LINEAR_OP || o->code == HIR_EXPERT_LINEAR_OP ||
                             o->code == HIR_BLOCK_LINEAR_OP;
        if (product && o->args[1].kind == HIR_REF_WEIGHT) return hir_arg_type(m, id, 1).dtype;
    }
    return HIR_F32;
}

static plan_step step_of(const hcg_program *p, size_t i) {
    const hrt_step *s = &p->steps.at[i];
    const hcg_step_work *k = &p->work.at[i];
    const hd_two_forms *f = &s->choice.forms;
    return (plan_step){
        .work = {.name = s->name,
                 .last_rows = s->last_rows,
                 .row_flops = k->row_flops,
                 .pair_flops = k->pair_flops,
                 .pass_bytes = k->pass_bytes,
                 .row_bytes = k->row_bytes,
                 .position_bytes = k->position_bytes,
                 .expert_bytes = k->expert_bytes,
                 .experts = k->experts,
                 .chosen = k->chosen,
                 .window = s->list_rate ? 0 : s->window,
                 .state_bytes = k->state_bytes,
                 .when = s->choice.when,
                 .few_pair = (uint64_t)f->few_pair,
                 .many_pair = (uint64_t)f->many_pair,
                 .few_row = (uint64_t)f->few_row,
                 .many_position = (uint64_t)f->many_position},
        .matrix = s->exchange ? HIR_F32 : matrix_of(p->m, p->kernels.at[s->kernel_prefill].op),
        .local = s->local,
    };
}

static plan_stage stage_of(hadal_session *s, const hcg_program *p) {
    plan_stage out = {.m = p->m,
                      .weight_bytes = p->weights_bytes,
                      .arena_per_token = p->m->arena_per_token,
                      .local_per_token = p->m->local_per_token,
                      .fixed_bytes = p->m->fixed_bytes};
    for (size_t i = 0; i < p->m->states.n; i++) {
        const hir_state *state = &p->m->states.at[i];
        const bool grows = hir_state_kind_of(state->kind)->rows == HIR_ROWS_PER_POSITION;
        uint64_t *sum = grows ? &out.state_bytes : &out.fixed_state_bytes;
        *sum = hd_capped_add(*sum, hir_state_bytes(state));
    }
    for (size_t i = 0; i < p->steps.n; i++) {
        const plan_step step = step_of(p, i);
        if (!p->steps.at[i].exchange) hd_push(s->arena, &out.steps, step);
    }
    hir_find_crossings(p->m, s->arena, &out.crossings);
    return out;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static bool add_stage(hadal_session *s, const hadal_pipeline *pipeline, plan_shape *shape) {
    if (hadal_run_passes(s, pipeline) != 0 || !api_need_program(s, NULL)) return false;
    hd_push(s->arena, &shape->stage, stage_of(s, s->program));
    return true;
}

/* The first error since there were `errors`, in short; they do not count: the shape is no good. */
static const char *take_refusal(hadal_session *s, size_t errors, size_t listed) {
    const char *why = "it cannot be compiled so";
    for (size_t i = s->diags.list.n; i-- > listed;)
        if (s->diags.list.at[i].severity == HD_ERROR) why = s->diags.list.at[i].message;
    s->diags.errors = errors;
    s->diags.list.n = listed;
    return why;
}

static plan_shape shape_of(hadal_session *s, const hadal_pipeline *pipeline, int64_t ranks,
                           int64_t stages) {
    plan_shape shape = {.ranks = ranks, .stages = stages};
    hadal_pipeline one = *pipeline;
    one.ranks = ranks;
    one.stages = stages;
    const size_t errors = s->diags.errors, listed = s->diags.list.n;
    for (one.stage = 0; one.stage < stages; one.stage++)
        if (!add_stage(s, &one, &shape)) {
            shape.refused = take_refusal(s, errors, listed);
            break;
        }
    return shape;
}

static bool add_shapes(hadal_session *s, const hadal_pipeline *pipeline,
                       const hadal_plan_options *o, plan *out) {
    for (size_t i = 0; i < o->n_hosts; i++)
        for (int64_t stages = 1; stages <= o->hosts[i]; stages++) {
            if (o->hosts[i] % stages) continue;
            const int64_t ranks = o->hosts[i] / stages;
            const bool wanted = (pipeline->ranks <= 1 || pipeline->ranks == ranks) &&
                                (pipeline->stages <= 1 || pipeline->stages == stages);
            if (!wanted) continue;
            hd_push(s->arena, &out->shapes, shape_of(s, pipeline, ranks, stages));
        }
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
                       .chunk = pipeline->chunk > 0 ? pipeline->chunk : 512}};
    hd_text text;
    hd_text_init(&text, s->arena);
    if (!plan_host_parse(&s->diags, o->host, &p.host) ||
        !plan_host_check(&s->diags, &p.host, most_hosts(o)) || !api_need_module(s) ||
        !add_shapes(s, pipeline, o, &p))
        return NULL;
    p.model = s->graph->name;
    plan_predict(&p);
    (o->json ? plan_json : plan_text)(&p, &text);
    return text.at;
}

const char *hadal_plan(hadal_session *s, const hadal_pipeline *p, const hadal_plan_options *o) {
    API_ENTER(s);
    hadal_plan_options all = {0}; /* what an older caller does not know is 0 */
    memcpy(&all, o, o->struct_size < sizeof all ? o->struct_size : sizeof all);
    const char *text = make_plan(s, p, &all);
    API_RETURN(s, text);
}
