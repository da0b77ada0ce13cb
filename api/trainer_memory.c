/* The memory of a trainer: holding a bound, and telling what the plan is. */
#include <string.h>

#include "api/gradients.h"
#include "inspect/format.h"
#include "inspect/trainer_memory.h"
#include "ir/kernel/tiled.h"

#define API_FAILED NULL

/* ---- a bound --------------------------------------------------------------------------------- */

/* The model with its gradients, compiled without a bound, as far as code generation. */
static hcg_program *without_bound(hadal_session *s) {
    const hir_run run = hir_run_of(hir_gradient_pipeline());
    hir_module *m = hir_module_clone(s->graph, s->arena);
    if (!hir_add_loss(m, &s->diags)) return NULL;
    api_recast_states(s, m);
    if (!hir_run_passes(m, &run, &s->pass_options, NULL, &s->diags)) return NULL;
    const hcg_options options = {.exact = hcg_exact_by_default(), .compile = s->pass_options};
    return hcg_lower(s->arena, &s->diags, m, &options);
}

/* The values of a sequence have what all else leaves of the bound. */
bool api_bound_memory(hadal_session *s, const hadal_pipeline *p) {
    hir_compile_options *o = &s->pass_options;
    trainer_memory all;
    o->bounded = false;
    if (!o->memory) return true;
    if (!p->gradients || s->graph->stage == HIR_STAGE_KERNEL) {
        hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "--memory bounds the memory of gradients")->hint =
            p->gradients ? "this is kernel IR, whose memory is planned: compile the model"
                         : "give --gradients, too";
        return false;
    }
    const hcg_program *program = without_bound(s);
    if (!program) return false;
    trainer_memory_find(program, o->chunk, s->arena, &all);
    o->bounded = true;
    o->free_bytes = (int64_t)all.all;
    o->rest_bytes = (int64_t)(all.all - all.arena);
    o->arena_bytes = o->memory - o->rest_bytes;
    return true;
}

bool api_holds_bound(hadal_session *s) {
    const hir_compile_options *o = &s->pass_options;
    if (!o->bounded || s->m->stage != HIR_STAGE_KERNEL) return true;
    const uint64_t bytes = hir_bytes_of_call(s->arena, s->m, o->chunk);
    if (o->arena_bytes >= 0 && bytes <= (uint64_t)o->arena_bytes) return true;
    hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "the bound of --memory is not held")->hint =
        "--passes leaves out rematerialise, before fuse";
    return false;
}

/* ---- the plan -------------------------------------------------------------------------------- */

static const char *repeated(const hadal_session *s) {
    for (size_t i = 0; i < s->remarks.list.n; i++) {
        const hir_remark *r = &s->remarks.list.at[i];
        if (r->taken && strcmp(r->pass, hir_pass(HIR_PASS_REMATERIALISE)->name) == 0)
            return r->text;
    }
    return NULL;
}

static void find_plan(hadal_session *s, trainer_memory *out) {
    trainer_memory_find(s->program, s->program->chunk, s->arena, out);
}

void api_tell_trainer_memory(hadal_session *s) {
    trainer_memory x;
    const char *again = repeated(s);
    find_plan(s, &x);
    hd_note(&s->diags, HD_NOWHERE,
            "a trainer for sequences of up to %lld tokens takes %s, and %s for each thread",
            (long long)x.tokens, inspect_bytes(s->arena, x.all), inspect_bytes(s->arena, x.thread))
        ->cause = hd_printf(s->arena, "%s%s%s", trainer_memory_text(&x, s->arena),
                            again ? "; " : "", again ? again : "");
}

static const char *plan_text(hadal_session *s) {
    trainer_memory x;
    hd_text text;
    hd_text_init(&text, s->arena);
    if (!s->program || !hir_has_gradients(s->program->m)) {
        hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "no gradients have been compiled");
        return NULL;
    }
    find_plan(s, &x);
    trainer_memory_json(&x, &text);
    return text.at;
}

const char *hadal_trainer_memory(hadal_session *s) {
    API_ENTER(s);
    const char *text = plan_text(s);
    API_RETURN(s, text);
}
