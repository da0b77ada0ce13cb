/* What a kernel has to do, counted from its body alone.
 *
 * FLOPs are counted for contractions and attention; a multiplication and an addition count one
 * each. Row programs have too few to matter next to their memory traffic. Bytes are the traffic
 * that no schedule can avoid: what a body reads of outer values, each row once, and what it writes.
 * Matrices of experts are counted separately, since it depends on its rows how many of them a pass
 * reads. Weights and everything else without T are read once a pass, caches once a pass from end to
 * end; windows and carries (recurrent states) are read once a pass and written once. Of a cache
 * whose rows a list selects, each token is charged as many rows as the list can hold. What a kernel
 * reads twice because it does not fit a cache is not counted; it shows as a lower rate. */
#include <string.h>

#include "codegen/program/program.h"
#include "passes/analysis/layer_passes.h"

typedef struct outer_read { /* one operand of the kernel */
    hir_ref ref;
    bool whole;
    uint64_t elements; /* of one row, in distinct slices */
    HD_VEC(const hir_op *) slices;
} outer_read;

typedef struct counter {
    hd_arena *arena;
    const hir_module *m;
    hir_id kernel;
    HD_VEC(outer_read) reads;
} counter;

static uint64_t row_elements(hir_type t) {
    int64_t n = hir_type_row_elements(t);
    return n < 0 ? 0 : (uint64_t)n;
}

static uint64_t row_bytes(hir_type t) {
    return row_elements(t) * hir_dtype_bytes(t.dtype);
}

/* ---- reads ----------------------------------------------------------------------------------- */
static bool is_outer(const counter *c, hir_ref r) {
    if (r.kind == HIR_REF_WEIGHT) return true;
    if (r.kind != HIR_REF_VALUE) return false;
    hir_id op = hir_value_at(c->m, r.index)->op;
    return op == HIR_NONE || hir_op_at(c->m, op)->parent != c->kernel;
}

static outer_read *read_of(counter *c, hir_ref r) {
    for (size_t i = 0; i < c->reads.n; i++)
        if (hir_ref_equal(c->reads.at[i].ref, r)) return &c->reads.at[i];
    hd_push(c->arena, &c->reads, (outer_read){.ref = r});
    return &c->reads.at[c->reads.n - 1];
}

static void add_slice(counter *c, outer_read *r, const hir_op *slice) {
    for (size_t i = 0; i < r->slices.n; i++)
        if (hir_same_slice(r->slices.at[i], slice)) return;
    hd_push(c->arena, &r->slices, slice);
    r->elements += row_elements(hir_value_at(c->m, slice->results[0])->type);
}

static void add_reads(counter *c, const hir_op *o) {
    for (uint32_t i = 0; i < o->n_args; i++) {
        if (!is_outer(c, o->args[i])) continue;
        outer_read *r = read_of(c, o->args[i]);
        if (o->code == HIR_SLICE_OP)
            add_slice(c, r, o);
        else
            r->whole = true;
    }
}

/* A table that only gathers read costs one row per token; other weights are read as a whole. */
static bool is_only_gathered(const counter *c, hir_ref weight) {
    HIR_EACH(c->m, id, hir_op_at(c->m, c->kernel)->body_first) {
        const hir_op *o = hir_op_at(c->m, id);
        for (uint32_t i = 0; i < o->n_args; i++)
            if (hir_ref_equal(o->args[i], weight) && !(o->code == HIR_GATHER_OP && i == 0))
                return false;
    }
    return true;
}

/* The op that reads only those matrices of a weight which tokens have selected; NULL: none does. */
static const hir_op *expert_product_of(const counter *c, hir_ref weight) {
    HIR_EACH(c->m, id, hir_op_at(c->m, c->kernel)->body_first) {
        const hir_op *o = hir_op_at(c->m, id);
        if (o->code == HIR_EXPERT_LINEAR_OP && hir_ref_equal(o->args[1], weight)) return o;
    }
    return NULL;
}

static void charge_weight(const counter *c, hir_ref r, hcg_step_work *w) {
    const hir_weight *weight = &c->m->weights.at[r.index];
    uint64_t bytes = 0, rows = weight->type.rank > 0 ? (uint64_t)weight->type.dim[0] : 1;
    hir_weight_bytes(weight, &bytes);
    const uint64_t panel = (uint64_t)hir_panel_rows(weight->layout); /* padded to whole panels */
    rows = (rows + panel - 1) / panel * panel;
    const hir_op *product = expert_product_of(c, r);
    if (product) {
        w->expert_bytes += bytes;
        w->experts = (uint64_t)weight->type.dim[0];
        w->chosen = (uint64_t)hir_ref_type(c->m, product->args[2]).dim[1];
    } else if (is_only_gathered(c, r))
        w->row_bytes += bytes / rows;
    else
        w->pass_bytes += bytes;
}

/* The number of cache rows that a list can hold, or that a window alongside a list has; 0: the
 * cache is read from end to end, or as far as the window of its step reaches. */
static uint64_t listed_rows(const counter *c, hir_ref cache) {
    HIR_EACH(c->m, id, hir_op_at(c->m, c->kernel)->body_first) {
        const hir_op *o = hir_op_at(c->m, id);
        for (uint32_t i = 0; i < o->n_args; i++) {
            if (!hir_ref_equal(o->args[i], cache)) continue;
            const hir_row_limit most = hir_rows_read(c->m, o, i);
            const bool listed = most.chosen || o->code == HIR_ATTENTION_SELECTED_OP;
            if (listed && most.rows) return (uint64_t)most.rows;
        }
    }
    return 0;
}

static void charge_read(const counter *c, const outer_read *r, hcg_step_work *w) {
    if (r->ref.kind == HIR_REF_WEIGHT) {
        charge_weight(c, r->ref, w);
        return;
    }
    const hir_type t = hir_ref_type(c->m, r->ref);
    const uint64_t whole = row_elements(t);
    const uint64_t elements = r->whole || r->elements > whole ? whole : r->elements;
    const uint64_t bytes = elements * hir_dtype_bytes(t.dtype);
    const uint64_t listed = hir_type_has_c(t) ? listed_rows(c, r->ref) : 0;
    if (listed)
        w->row_bytes += listed * bytes;
    else if (hir_type_has_c(t))
        w->position_bytes += bytes / (uint64_t)hir_rate(t.dim[0]);
    else if (hir_type_has_t(t))
        w->row_bytes += bytes;
    else
        w->pass_bytes += bytes;
}

/* A result in a cache is written for the tokens of the call only. */
static void charge_result(hir_type t, hcg_step_work *w) {
    if (hir_type_has_c(t) || hir_type_has_t(t))
        w->row_bytes += row_bytes(t);
    else
        w->pass_bytes += row_bytes(t);
}

/* An op that changes a window or a carry reads all of it and writes all of it. To a cache only rows
 * are added (charge_result). */
static void charge_state(const counter *c, hir_id op, hcg_step_work *w) {
    const uint32_t written = hir_written_state(c->m, op);
    if (written == HIR_NONE) return;
    const hir_type t = c->m->states.at[written].type;
    if (hir_is_of_call(&c->m->states.at[written])) /* read and written for each position */
        w->position_bytes += 2 * row_bytes(t);
    if (hir_type_has_c(t)) return;
    w->pass_bytes += 2 * row_bytes(t);
    w->state_bytes += 2 * row_bytes(t);
}

/* ---- arithmetic ------------------------------------------------------------------------------ */
static void add_flops(const counter *c, hir_id id, hcg_step_work *w) {
    const hir_op_work work = hir_work_of(c->m, id);
    w->row_flops += work.row_flops;
    w->pair_flops += work.pair_flops;
}

/* ---- scope ----------------------------------------------------------------------------------- */
static const char *name_of(const hir_module *m, hir_ref r) {
    if (r.kind == HIR_REF_WEIGHT) return m->weights.at[r.index].name;
    if (r.kind == HIR_REF_STATE) return m->states.at[r.index].name;
    if (r.kind != HIR_REF_VALUE) return NULL;
    const hir_value *v = hir_value_at(m, r.index);
    return v->place == HIR_PLACE_STATE ? m->states.at[v->offset].name : NULL;
}

/* The common prefix of the names of a body's weights and caches, without the last component. */
static const char *find_scope(const counter *c) {
    const char *scope = NULL;
    size_t n = 0;
    HIR_EACH(c->m, id, hir_op_at(c->m, c->kernel)->body_first) {
        const hir_op *o = hir_op_at(c->m, id);
        for (uint32_t i = 0; i < o->n_args; i++) {
            const char *name = name_of(c->m, o->args[i]);
            if (!name) continue;
            const char *last = strrchr(name, '.');
            if (scope)
                n = hd_shared_components(scope, n, name);
            else
                scope = name, n = last ? (size_t)(last - name) : 0;
        }
    }
    return scope ? hd_strndup(c->arena, scope, n) : "";
}

hcg_step_work hcg_count_work(hd_arena *a, const hir_module *m, hir_id kernel,
                             const hir_layer_passes *passes) {
    counter c = {.arena = a, .m = m, .kernel = kernel};
    const hir_op *k = hir_op_at(m, kernel);
    hcg_step_work w = {.scope = find_scope(&c), .kind = hir_kind_of(k->code)};
    w.scope = hir_with_pass(a, w.scope, hir_layer_pass(passes, kernel, w.scope));
    HIR_EACH(m, id, k->body_first) {
        if (hir_op_at(m, id)->code == HIR_YIELD_OP) continue;
        add_reads(&c, hir_op_at(m, id));
        add_flops(&c, id, &w);
        charge_state(&c, id, &w);
    }
    for (size_t i = 0; i < c.reads.n; i++)
        charge_read(&c, &c.reads.at[i], &w);
    for (uint32_t i = 0; i < k->n_results; i++)
        charge_result(hir_value_at(m, k->results[i])->type, &w);
    return w;
}

/* ---- as a library reports it ----------------------------------------------------------------- */
hd_info_step hcg_step_info(const hcg_program *p, size_t step) {
    const hrt_step *s = &p->steps.at[step];
    const hcg_step_work *k = &p->work.at[step];
    const hd_latent_costs *f = &s->condition.forms;
    return (hd_info_step){.name = s->name,
                          .kind = hir_kind(k->kind)->name,
                          .scope = k->scope,
                          .line = k->line,
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
                          .when = s->condition.when,
                          .few_pair = (uint64_t)f->few_pair,
                          .many_pair = (uint64_t)f->many_pair,
                          .few_row = (uint64_t)f->few_row,
                          .many_position = (uint64_t)f->many_position,
                          .many_most = (uint64_t)f->most};
}
