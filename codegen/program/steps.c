/* The steps of a program: for each step its kernel function, the places of its operands, and how it
 * is split among threads. */
#include "codegen/program/contraction.h"
#include "codegen/program/forms.h"
#include "codegen/program/lowering.h"
#include "ir/kernel/tiled.h"

/* ---- operands -------------------------------------------------------------------------------- */
/* Bytes from one token's row to the next. */
static uint64_t bytes_between_rows(hir_type t) {
    uint64_t bytes;
    return hir_type_has_t(t) && lower_row_bytes(t, &bytes) ? bytes : 0; /* plan-memory checked it */
}

/* The part of an arena that is kept for each chunk in flight is a separate area. */
static void split_arena(const hir_module *m, hir_place place, hrt_operand *o) {
    if (place != HIR_PLACE_ARENA && place != HIR_PLACE_LOCAL) return;
    const uint64_t kept = place == HIR_PLACE_ARENA ? m->arena_kept : m->local_kept;
    if (o->offset >= kept)
        o->offset -= kept;
    else
        o->base = place == HIR_PLACE_ARENA ? HRT_KEPT : HRT_LOCAL_KEPT;
}

/* Is it what NAME_loss takes besides tokens, or gives? */
static bool is_loss_port(const lowering *l, hir_id id, const hir_value *v) {
    if (l->loss_output == HIR_NONE) return false;
    if (v->op == HIR_NONE) return id == l->m->inputs.at[1];
    return hir_ref_equal(hir_op_at(l->m, l->loss_output)->args[0], hir_value_ref(id));
}

/* Does a call for losses alone want the output? With gradients it is the first one, the sum of the
 * losses; else all but that, the logits. */
static bool is_wanted(const lowering *l, const hir_value *v) {
    return v->place == HIR_PLACE_OUTPUT && (v->offset > 0) != hir_has_gradients(l->m);
}

/* Finds the kernels that do not run in calls for losses alone, for logits or for gradients: what they
 * make is not needed for the loss, nor for another output, and they change no state. */
static void find_others(lowering *l) {
    const size_t values = l->m->values.n;
    l->not_in_loss = hd_new_array(l->a, bool, l->m->ops.n);
    if (!hir_has_loss(l->m) && !hir_has_gradients(l->m)) return;
    bool *needed = hd_new_array(l->a, bool, values); /* by value, in calls of NAME_loss */
    for (hir_id id = l->m->last; id != HIR_NONE; id = hir_op_at(l->m, id)->prev) {
        const hir_op *k = hir_op_at(l->m, id);
        bool need = k->n_results == 0;
        for (uint32_t i = 0; i < k->n_results; i++) {
            const hir_value *v = hir_value_at(l->m, k->results[i]);
            need |= needed[k->results[i]] || is_wanted(l, v);
        }
        if (k->code == HIR_OUTPUT_OP) continue;
        HIR_EACH(l->m, op, k->body_first)
        need |= hir_has_trait(hir_op_at(l->m, op)->code, HIR_EFFECT) && op != k->body_last;
        l->not_in_loss[id] = !need;
        HIR_EACH(l->m, op, k->body_first) {
            const hir_op *o = hir_op_at(l->m, op);
            for (uint32_t i = 0; need && i < o->n_args; i++)
                if (o->args[i].kind == HIR_REF_VALUE) needed[o->args[i].index] = true;
        }
    }
}

uint32_t lower_calls_of(const lowering *l, hir_id kernel) {
    if (hir_rows_of(hir_op_at(l->m, kernel)) == HIR_ROWS_LOSS) return HRT_IN_LOSS;
    return l->not_in_loss[kernel] ? HRT_NOT_IN_LOSS : HRT_ALWAYS;
}

static bool value_operand(lowering *l, hd_loc loc, hir_id id, hrt_operand *out) {
    const hir_value *v = hir_value_at(l->m, id);
    static const uint32_t bases[] = {
        [HIR_PLACE_ARENA] = HRT_ARENA,     [HIR_PLACE_FIXED] = HRT_FIXED,
        [HIR_PLACE_INPUT] = HRT_INPUT,     [HIR_PLACE_OUTPUT] = HRT_OUTPUT,
        [HIR_PLACE_STATE] = HRT_STATE,     [HIR_PLACE_LOCAL] = HRT_LOCAL,
        [HIR_PLACE_GRADIENT] = HRT_OUTPUT, [HIR_PLACE_TILE] = HRT_TILE,
    };
    if (is_loss_port(l, id, v)) {
        const uint32_t base = v->op == HIR_NONE ? HRT_TARGETS : HRT_LOSSES;
        *out = (hrt_operand){.base = base, .row_bytes = bytes_between_rows(v->type)};
        return true;
    }
    if (v->op == HIR_NONE) { /* an input of the module */
        size_t i = 0;
        while (i < l->m->inputs.n && l->m->inputs.at[i] != id)
            i++;
        *out = (hrt_operand){
            .base = HRT_INPUT, .index = (uint32_t)i, .row_bytes = bytes_between_rows(v->type)};
        return true;
    }
    if (v->place == HIR_PLACE_NONE)
        return lower_reject(l, HD_E_TYPE, loc, "a value that leaves a kernel has no place",
                            "the plan-memory pass gives every such value its place");
    const bool output = v->place == HIR_PLACE_OUTPUT || v->place == HIR_PLACE_GRADIENT;
    const bool area = v->place == HIR_PLACE_ARENA || v->place == HIR_PLACE_FIXED ||
                      v->place == HIR_PLACE_LOCAL || v->place == HIR_PLACE_TILE;
    *out = (hrt_operand){.base = bases[v->place],
                         .index = area     ? 0
                                  : output ? (uint32_t)lower_output_number(l, v->offset)
                                           : (uint32_t)v->offset,
                         .offset = area ? v->offset : 0,
                         .row_bytes = bytes_between_rows(v->type)};
    split_arena(l->m, v->place, out);
    return true;
}

/* Finds which columns of the kernel the panels of a weight are (program/contraction.h); c NULL: no
 * contraction reads it. */
static void find_columns(lowering *l, const hcg_contraction *c, hir_ref r, hrt_operand *o) {
    const hir_weight *w = &l->m->weights.at[r.index];
    const uint64_t rows = (uint64_t)hir_panel_rows(w->layout);
    uint64_t bytes;
    for (size_t i = 0; c && i < c->linears.n; i++) {
        const hcg_column_group *g = &c->groups.at[c->linears.at[i].group];
        if (!hir_ref_equal(c->linears.at[i].w, r) || !hir_weight_bytes(w, &bytes)) continue;
        const uint64_t panels = ((uint64_t)g->n + rows - 1) / rows;
        o->first_col = (uint32_t)g->first_column;
        o->cols = (uint32_t)((g->panels + c->width - 1) / c->width);
        o->col_bytes = bytes / panels * (HIR_PANEL / rows) * (uint64_t)c->width;
    }
}

bool lower_operand(lowering *l, hd_loc loc, hir_ref r, const hcg_contraction *c) {
    hrt_operand o = {0};
    switch ((hir_ref_kind)r.kind) {
    case HIR_REF_WEIGHT:
        o = (hrt_operand){.base = HRT_WEIGHT, .offset = l->p->weight_offsets.at[r.index]};
        find_columns(l, c, r, &o);
        break;
    case HIR_REF_STATE: o = (hrt_operand){.base = HRT_STATE, .index = r.index}; break;
    case HIR_REF_VALUE:
        if (!value_operand(l, loc, r.index, &o)) return false;
        break;
    case HIR_REF_NONE: break;
    }
    hd_push(l->a, &l->p->operands, o);
    return true;
}

/* The runtime gets splits by number, so both enums must agree. */
#define S(id, name, doc)                                                                           \
    _Static_assert((int)HIR_SPLIT_##id == (int)HRT_SPLIT_##id,                                     \
                   "ir/kernel/splits.def and hrt_split differ");
#include "ir/kernel/splits.def"
#undef S
_Static_assert((int)HIR_SPLITS == HRT_SPLIT_HEADS + 1,
               "hrt_split has more than ir/kernel/splits.def");

/* Row programs whose results are the same for every token run once, on one thread. */
static bool is_token_free(const lowering *l, hir_id kernel) {
    return hir_op_at(l->m, kernel)->code == HIR_KERNEL_ROW_OP && hir_runs_once(l->m, kernel);
}

static void raise(uint64_t *most, uint64_t x) {
    if (x > *most) *most = x;
}

/* The number of positions that a row of the kernel attends to; for a kernel that belongs to an
 * attention with two forms, those of this attention. 0: all positions up to its own. */
static uint32_t window_of(const lowering *l, hir_id kernel) {
    if (l->conditions[kernel].when != HRT_ALWAYS)
        return (uint32_t)l->conditions[kernel].forms.window;
    return (uint32_t)hir_attr_int(hir_op_at(l->m, hir_form_op(l->m, kernel)), HIR_A_WINDOW, 0);
}

/* A window only limits ranges of positions: with a list, rows of listed entries are read in
 * addition, and gradients are of all positions. */
static void ask_for_shared(lowering *l, hir_id kernel, const hrt_step *step) {
    const bool all = step->list_rate || hir_reduces_tokens(l->m, kernel);
    const uint64_t window = all ? 0 : step->window;
    uint64_t counters, range;
    hcg_shared_bytes(l->m, kernel, &counters, &range);
    raise(&l->p->counter_bytes, counters);
    raise(window ? &l->p->window_range_bytes : &l->p->range_bytes, range);
    if (step->list_rate) raise(&l->p->least_ranges, HRT_LIST_RANGES);
    if (window) raise(&l->p->window_ranges, hcg_window_ranges(window));
}

/* Are rows of a batch computed one by one? They are, unless the kernel form finds the session of
 * each row itself. */
static bool goes_by_row(const lowering *l, hir_id kernel) {
    if (hir_has_form_trait(l->m, kernel, HIR_OWNERS)) return false;
    HIR_EACH(l->m, id, hir_op_at(l->m, kernel)->body_first)
    if (hir_has_trait(hir_op_at(l->m, id)->code, HIR_POSITION)) return true;
    return false;
}

/* With one token, splitting a contraction saves half of the time to read its weights, and costs a
 * barrier before and one after it, 0.1 us each: together as long as reading 32 KB takes. */
static bool is_small(const lowering *l, const hrt_step *step) {
    enum { SMALL = 32 << 10 };
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < step->n_operands; i++) {
        const hrt_operand *o = &l->p->operands.at[step->first_operand + i];
        bytes += o->cols * o->col_bytes;
    }
    return bytes <= SMALL;
}

static bool add_step(lowering *l, hir_id id) {
    if (hcg_is_collective(l->m, id)) return lower_collective(l, id);
    const hir_op *op = hir_op_at(l->m, id);
    const hcg_use *use = &l->uses[id];
    const hcg_kernel *prefill = &l->p->kernels.at[use->function[HIR_PREFILL]];
    const unsigned phases = hir_form(hir_form_of(l->m, id))->phases;
    const uint32_t n_sizes = prefill->n_sizes;
    hrt_step step = {
        .kernel_decode = use->function[HIR_DECODE],
        .kernel_prefill = use->function[HIR_PREFILL],
        .kernel_small_batch = use->function[HIR_SMALL_BATCH],
        .small_batch = phases & 1u << HIR_SMALL_BATCH ? HRT_SMALL_BATCH : 0,
        .split_decode = hir_split_of(op, HIR_A_SPLIT_DECODE),
        .split_prefill = hir_split_of(op, HIR_A_SPLIT_PREFILL),
        .last_rows = hir_rows_of(op) != HIR_ROWS_ALL,
        .first_operand = (uint32_t)l->p->operands.n,
        .n_operands = (uint32_t)(use->operands.list.n + n_sizes + use->runs.n),
        .grain = (uint32_t)hir_attr_int(op, HIR_A_GRAIN, LOWER_GRAIN),
        .by_row = goes_by_row(l, id),
        .window = window_of(l, id),
        .condition = l->conditions[id],
        .local = hcg_is_local(l->m, id),
        .name = hir_attr_string(op, HIR_A_NAME, prefill->name),
    };
    if (hir_attr_int(op, HIR_A_GRAIN, LOWER_GRAIN) < 1 ||
        hir_attr_int(op, HIR_A_GRAIN, LOWER_GRAIN) > INT32_MAX)
        return lower_reject(l, HD_E_VALUE, lower_place(l, op), "grain is not positive", NULL);
    if (step.condition.when == HRT_ALWAYS) step.condition.when = lower_calls_of(l, id);
    hcg_list_rows(l->m, id, &step);
    ask_for_shared(l, id, &step);
    if (is_token_free(l, id)) step.split_decode = step.split_prefill = HRT_SPLIT_NONE;
    const hcg_contraction *c = l->p->contractions[id];
    step.cols = c ? c->columns : hcg_columns(l->m, id);
    for (size_t i = 0; i < use->operands.list.n; i++)
        if (!lower_operand(l, lower_place(l, op), use->operands.list.at[i], c)) return false;
    for (uint32_t i = 0; i < n_sizes; i++)
        hd_push(l->a, &l->p->operands,
                ((hrt_operand){.base = HRT_NUMBER, .offset = (uint64_t)use->size[i]}));
    for (size_t i = 0; i < use->runs.n; i++)
        if (!lower_operand(l, lower_place(l, op), use->runs.at[i], c)) return false;
    if (c && step.split_decode == HRT_SPLIT_COLS && is_small(l, &step))
        step.split_decode = HRT_SPLIT_NONE;
    hd_push(l->a, &l->p->steps, step);
    hcg_step_work work = hcg_count_work(l->a, l->m, id, l->passes);
    work.line = l->p->op_lines[id];
    hd_push(l->a, &l->p->work, work);
    return true;
}

/* ---- token ids ------------------------------------------------------------------------------- */
/* Token ids must be inside every table in which they are looked up, unless the table has a row for
 * ids beyond its end. */
static void find_vocab(lowering *l, const hir_op *kernel) {
    HIR_EACH(l->m, id, kernel->body_first) {
        const hir_op *op = hir_op_at(l->m, id);
        if (op->code != HIR_GATHER_OP || hir_attr_int(op, HIR_A_BEYOND, -1) >= 0) continue;
        int64_t rows = hir_arg_type(l->m, id, 0).dim[0];
        if (rows > 0 && (l->p->vocab == 0 || rows < l->p->vocab)) l->p->vocab = rows;
    }
}

bool lower_steps(lowering *l) {
    find_others(l);
    l->passes = hir_layer_passes_find(l->m, l->a);
    HIR_EACH(l->m, id, l->m->first) {
        const hir_op *op = hir_op_at(l->m, id);
        if (op->code == HIR_OUTPUT_OP) continue;
        if (!hir_is_kernel(op)) {
            hd_err(l->d, HD_E_TYPE, lower_place(l, op), "%s stands outside of a kernel",
                   hir_info(op->code)->name)
                ->hint = "the fuse pass puts every op into a kernel";
            return false;
        }
        find_vocab(l, op);
        if (!add_step(l, id)) return false;
    }
    return true;
}

/* Kernels are steps, in the same order. */
void lower_tiled(lowering *l) {
    const hir_tiled_list all = hir_find_tiled(l->a, l->m);
    l->p->tile_tokens = all.tokens;
    for (size_t i = 0; i < all.list.n; i++)
        hd_push(l->a, &l->p->tiled, ((hrt_tiled_steps){all.list.at[i].first, all.list.at[i].end}));
}
