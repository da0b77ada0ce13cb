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
        .matrix = matrix_of(p->m, p->kernels.at[s->kernel_prefill].op),
    };
}

static plan_stage stage_of(hadal_session *s, const hcg_program *p) {
    plan_stage out = {.weight_bytes = p->weights_bytes,
                      .arena_per_token = p->m->arena_per_token,
                      .fixed_bytes = p->m->fixed_bytes};
    for (size_t i = 0; i < p->m->states.n; i++) {
        const hir_state *state = &p->m->states.at[i];
        const bool grows = hir_state_kind_of(state->kind)->rows == HIR_ROWS_PER_POSITION;
        uint64_t *sum = grows ? &out.state_bytes : &out.fixed_state_bytes;
        *sum = hd_capped_add(*sum, hir_state_bytes(state));
    }
    for (size_t i = 0; i < p->steps.n; i++)
        hd_push(s->arena, &out.steps, step_of(p, i));
    return out;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static bool add_stages(hadal_session *s, const hadal_pipeline *pipeline, plan_shape *shape) {
    if (hadal_run_passes(s, pipeline) != 0) return false;
    if (!api_need_program(s, NULL)) return false;
    hd_push(s->arena, &shape->stage, stage_of(s, s->program));
    return true;
}

static bool add_shapes(hadal_session *s, const hadal_pipeline *pipeline,
                       const hadal_plan_options *o, plan *out) {
    for (size_t i = 0; i < o->n_hosts; i++) {
        plan_shape shape = {.ranks = 1, .stages = 1};
        if (!add_stages(s, pipeline, &shape)) return false;
        hd_push(s->arena, &out->shapes, shape);
    }
    return true;
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
