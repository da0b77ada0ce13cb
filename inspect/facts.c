/* Facts of a module: parameters, work, bytes, op counts. */
#include "inspect/facts.h"

#include <string.h>

/* ---- collecting ------------------------------------------------------------------------------ */

static uint64_t row_elements(hir_type t) {
    int64_t n = hir_type_row_elements(t);
    return n < 0 ? UINT64_MAX : (uint64_t)n;
}

static uint64_t stored_bytes(const hir_weight *w) {
    uint64_t bytes;
    return hir_weight_bytes(w, &bytes) ? bytes : UINT64_MAX;
}

/* The weight that r is, or that it is of by transposing each matrix; HIR_NONE: another value. */
static hir_id weight_of(const hir_module *m, hir_ref r) {
    if (r.kind == HIR_REF_WEIGHT) return r.index;
    if (r.kind != HIR_REF_VALUE || hir_value_at(m, r.index)->op == HIR_NONE) return HIR_NONE;
    const hir_op *o = hir_op_at(m, hir_value_at(m, r.index)->op);
    const bool transposed = o->code == HIR_TRANSPOSE_OP && o->args[0].kind == HIR_REF_WEIGHT;
    return transposed && hir_find_attr(o, HIR_A_PERM)->ints[0] == 0 ? o->args[0].index : HIR_NONE;
}

typedef struct reads {
    uint64_t
        *chosen; /* by weight: how many of its matrices a token chooses; 0: it reads them all */
    bool *by_op; /* by weight: an op reads it; else others may be made of it */
} reads;

static void find_reads(const hir_module *m, hir_id first, reads *r) {
    HIR_EACH(m, op, first) {
        const hir_op *o = hir_op_at(m, op);
        for (uint32_t i = 0; i < o->n_args; i++)
            if (o->args[i].kind == HIR_REF_WEIGHT) r->by_op[o->args[i].index] = true;
        if (o->code == HIR_EXPERT_LINEAR_OP && weight_of(m, o->args[1]) != HIR_NONE)
            r->chosen[weight_of(m, o->args[1])] += (uint64_t)hir_arg_type(m, op, 2).dim[1];
        find_reads(m, o->body_first, r);
    }
}

/* What is chosen of a weight that others hold transposed is what is chosen of these. */
static void pass_to_sources(const hir_module *m, reads *r) {
    for (size_t i = 0; i < m->weights.n; i++) {
        const hir_id source = hir_transposed_source(m, &m->weights.at[i]);
        if (source != HIR_NONE) r->chosen[source] += r->chosen[i];
    }
}

/* Others are made of it when weights are packed, and that is all: it is not stored. */
static bool is_only_source(const hir_module *m, const reads *r, size_t weight) {
    const char *name = m->weights.at[weight].name;
    for (size_t i = 0; !r->by_op[weight] && i < m->weights.n; i++) {
        const hir_weight *w = &m->weights.at[i];
        for (uint32_t k = 0; hir_is_derived(w) && k < w->n_rows; k++)
            for (uint32_t f = 0; f < w->rows[k].n; f++)
                if (strcmp(w->rows[k].factor[f].name, name) == 0) return true;
    }
    return false;
}

/* Elements that a token reads of a weight. */
static uint64_t active_elements(hir_type t, uint64_t chosen) {
    const uint64_t all = row_elements(t);
    if (!chosen || chosen >= (uint64_t)t.dim[0]) return all;
    return all / (uint64_t)t.dim[0] * chosen;
}

static void count_weights(const hir_module *m, module_facts *f) {
    reads r = {hd_new_array(m->arena, uint64_t, m->weights.n + 1),
               hd_new_array(m->arena, bool, m->weights.n + 1)};
    find_reads(m, m->first, &r);
    pass_to_sources(m, &r);
    for (size_t i = 0; i < m->weights.n; i++) {
        const hir_weight *w = &m->weights.at[i];
        if (w->unused) {
            f->unused++;
            continue;
        }
        uint64_t bytes = is_only_source(m, &r, i) ? 0 : stored_bytes(w),
                 *of_dtype = &f->dtype_bytes[w->type.dtype];
        f->weight_bytes = hd_capped_add(f->weight_bytes, bytes);
        *of_dtype = hd_capped_add(*of_dtype, bytes);
        if (hir_is_derived(w)) continue;
        f->tensors += w->stacked ? (uint32_t)w->type.dim[0] : 1;
        f->active = hd_capped_add(f->active, active_elements(w->type, r.chosen[i]));
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
        if (!hir_is_kernel(o)) f->total_ops++;
        count_work(m, op, f);
        count_ops(m, o->body_first, f);
    }
}

void facts_count(const hir_module *m, module_facts *out) {
    *out = (module_facts){0};
    count_weights(m, out);
    out->state_bytes = hir_all_state_bytes(m, true);
    out->fixed_state_bytes = hir_all_state_bytes(m, false);
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
