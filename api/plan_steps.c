#include "api/plan_steps.h"

/* Does the op multiply with argument i as a matrix of the model's? */
static bool is_matrix(const hir_op *o, uint32_t i) {
    return hir_is_matrix(o->code, i) && o->args[i].kind == HIR_REF_WEIGHT;
}

/* Does it look along a cache that argument i is? */
static bool is_cache(const hir_module *m, hir_id op, uint32_t i) {
    const hir_opcode code = hir_op_at(m, op)->code;
    return hir_has_trait(code, HIR_SEQUENCE) && !hir_has_trait(code, HIR_WRITES_STATE) &&
           hir_type_has_c(hir_arg_type(m, op, i));
}

/* What the op is to the step: its matrix comes before a cache. */
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
