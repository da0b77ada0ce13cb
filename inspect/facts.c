/* Facts of a module: parameters, work, bytes, op counts. */
#include "inspect/facts.h"

/* ---- collecting ------------------------------------------------------------------------------ */

static uint64_t row_elements(hir_type t) {
    int64_t n = hir_type_row_elements(t);
    return n < 0 ? UINT64_MAX : (uint64_t)n;
}

static uint64_t stored_bytes(const hir_weight *w) {
    uint64_t bytes;
    return hir_weight_bytes(w, &bytes) ? bytes : UINT64_MAX;
}

/* By weight: how many of its matrices a token chooses; 0: it reads them all. */
static void find_choices(const hir_module *m, hir_id first, uint64_t *chosen) {
    HIR_EACH(m, op, first) {
        const hir_op *o = hir_op_at(m, op);
        if (o->code == HIR_EXPERT_LINEAR_OP && o->args[1].kind == HIR_REF_WEIGHT)
            chosen[o->args[1].index] += (uint64_t)hir_arg_type(m, op, 2).dim[1];
        find_choices(m, o->body_first, chosen);
    }
}

/* Elements that a token reads of a weight. */
static uint64_t active_elements(hir_type t, uint64_t chosen) {
    const uint64_t all = row_elements(t);
    if (!chosen || chosen >= (uint64_t)t.dim[0]) return all;
    return all / (uint64_t)t.dim[0] * chosen;
}

static void count_weights(const hir_module *m, module_facts *f) {
    uint64_t *chosen = hd_new_array(m->arena, uint64_t, m->weights.n + 1);
    find_choices(m, m->first, chosen);
    for (size_t i = 0; i < m->weights.n; i++) {
        const hir_weight *w = &m->weights.at[i];
        if (w->unused) {
            f->unused++;
            continue;
        }
        uint64_t bytes = stored_bytes(w), *of_dtype = &f->dtype_bytes[w->type.dtype];
        f->weight_bytes = hd_capped_add(f->weight_bytes, bytes);
        *of_dtype = hd_capped_add(*of_dtype, bytes);
        if (hir_is_derived(w)) continue;
        f->tensors += w->stacked ? (uint32_t)w->type.dim[0] : 1;
        f->active = hd_capped_add(f->active, active_elements(w->type, chosen[i]));
        f->parameters = hd_capped_add(f->parameters, row_elements(w->type));
    }
}

static void count_work(const hir_module *m, hir_id op, module_facts *f) {
    const hir_op_work work = hir_work_of(m, op);
    f->linear_flops += (double)work.row_flops;
    f->attention_flops += (double)work.pair_flops;
}

static void count_ops(const hir_module *m, hir_id first, module_facts *f) {
    HIR_EACH(m, op, first) {
        const hir_op *o = hir_op_at(m, op);
        f->ops[o->code]++;
        if (!hir_has_trait(o->code, HIR_REGION)) f->total_ops++;
        count_work(m, op, f);
        count_ops(m, o->body_first, f);
    }
}

void facts_count(const hir_module *m, module_facts *out) {
    *out = (module_facts){0};
    count_weights(m, out);
    for (size_t i = 0; i < m->states.n; i++) {
        const hir_state *s = &m->states.at[i];
        const uint64_t bytes = hir_state_bytes(s);
        const bool grows = hir_state_kind_of(s->kind)->rows == HIR_ROWS_PER_POSITION;
        uint64_t *sum = grows ? &out->state_bytes : &out->fixed_state_bytes;
        *sum = hd_capped_add(*sum, bytes);
    }
    count_ops(m, m->first, out);
}

/* ---- beside the names ------------------------------------------------------------------------ */

static void list_values(const hir_module *m, hd_arena *a, facts *out) {
    for (size_t i = 0; i < m->inputs.n; i++) {
        const hir_value *v = hir_value_at(m, m->inputs.at[i]);
        const facts_value input = {v->name ? v->name : hd_printf(a, "%zu", i), v->type};
        hd_push(a, &out->inputs, input);
    }
    HIR_EACH(m, op, m->first) {
        const hir_op *o = hir_op_at(m, op);
        if (o->code != HIR_OUTPUT_OP) continue;
        const facts_value output = {hir_attr_string(o, HIR_A_NAME, ""), hir_arg_type(m, op, 0)};
        hd_push(a, &out->outputs, output);
    }
}

bool facts_collect(const inspect_subject *s, facts *out) {
    static const int positions[FACTS_POSITIONS] = {1, 256, 1024, 4096, 16384};
    *out = (facts){.graph = s->graph, .now = s->now};
    list_values(s->graph, s->arena, out);
    facts_count(s->graph, &out->as_loaded);
    facts_count(s->now, &out->as_now);
    layers_collect(s->now, s->arena, &out->layers);
    out->lowered = s->now->stage != s->graph->stage;
    for (int i = 0; i < FACTS_POSITIONS; i++)
        out->work[i] =
            (facts_work){positions[i], out->as_loaded.linear_flops +
                                           out->as_loaded.attention_flops * positions[i]};
    return memory_plan_collect(s, &out->plan);
}
