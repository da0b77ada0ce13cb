/* Communication between ranks: turns each kernel.comm into a row of hrt_model.collectives and a
 * step, and finds the steps that run while collectives are under way. */

#include <string.h>

#include "codegen/program/lowering.h"
#include "ir/kernel/layer_ranges.h"
#include "ir/kernel/overlap.h"

static hir_id comm_op(const hir_module *m, hir_id kernel) {
    HIR_EACH(m, id, hir_op_at(m, kernel)->body_first)
    if (hir_has_trait(hir_op_at(m, id)->code, HIR_COMM)) return id;
    return HIR_NONE;
}

/* With an axis, ranks share the units of a row; without one, they share rows. */
static hrt_collective_kind kind_of(const hir_op *op) {
    const bool units = hir_find_attr(op, HIR_A_AXIS) != NULL;
    switch (op->code) {
    case HIR_COMM_ALL_REDUCE_OP: return HRT_ALL_REDUCE;
    case HIR_COMM_REDUCE_SCATTER_OP: return HRT_REDUCE_SCATTER;
    case HIR_COMM_ALL_GATHER_OP: return units ? HRT_GATHER_UNITS : HRT_GATHER_ROWS;
    case HIR_COMM_PART_OP: return units ? HRT_PART_UNITS : HRT_PART_ROWS;
    case HIR_COMM_SEND_OP: return HRT_SEND;
    default: return HRT_RECV;
    }
}

/* The units repeat in a row as often as the dims between the tokens and the axis say; what follows
 * the axis is one unit. */
static void find_units(const hir_module *m, const hir_op *op, hir_type x, hir_type y,
                       hrt_collective *e) {
    const uint32_t axis = (uint32_t)hir_attr_int(op, HIR_A_AXIS, 0);
    const hir_type whole = e->kind == HRT_GATHER_UNITS ? y : x;
    hd_share s;
    hir_share_of_op(m, op, whole.dim[axis], &s);
    e->outer = 1;
    e->unit = (uint64_t)hd_unit_elements(&s);
    for (uint32_t i = 1; i < whole.rank; i++) {
        if (i < axis) e->outer *= (uint64_t)whole.dim[i];
        if (i > axis) e->unit *= (uint64_t)whole.dim[i];
    }
    e->groups = (uint64_t)s.groups;
    e->units = (uint64_t)s.units;
    e->repeat = s.repeat;
}

/* False, with a diagnostic: the runtime cannot make this collective. */
static bool make_collective(hd_diags *d, const hir_module *m, hir_id kernel, hrt_collective *out) {
    const hir_op *op = hir_op_at(m, comm_op(m, kernel));
    const hir_type y = hir_value_at(m, op->results[0])->type;
    const hir_type x = op->code == HIR_COMM_RECV_OP ? y : hir_ref_type(m, op->args[0]);
    const int64_t row = hir_type_row_elements(x);
    hrt_collective e = {
        .kind = kind_of(op), .element = hir_dtype_bytes(x.dtype), .row = (uint64_t)row};
    if (!hir_type_has_t(x) || row < 0 || m->ranks > HADAL_COMM_MAX_RANKS) {
        hd_diag *g = hd_err(d, HD_E_UNSUPPORTED, hir_place_of(m, kernel),
                            "a collective of this kind has no step in the library");
        g->cause = m->ranks > HADAL_COMM_MAX_RANKS
                       ? hd_printf(d->arena, "there are more than %d ranks", HADAL_COMM_MAX_RANKS)
                       : "what crosses has rows of tokens";
        return false;
    }
    const char *dtype = hir_attr_string(op, HIR_A_DTYPE, "f32");
    e.narrow = x.dtype == HIR_F32 && strcmp(dtype, hir_dtype_name(HIR_BF16)) == 0;
    if (e.kind == HRT_GATHER_UNITS || e.kind == HRT_PART_UNITS) find_units(m, op, x, y, &e);
    e.local = hir_is_row_share(x.dim[0]);
    if (e.kind == HRT_SEND) e.peer = (uint32_t)hir_attr_int(op, HIR_A_TO, 0);
    if (e.kind == HRT_RECV) e.peer = (uint32_t)hir_attr_int(op, HIR_A_FROM, 0);
    *out = e;
    return true;
}

bool hcg_is_local(const hir_module *m, hir_id kernel) {
    const hir_op *op = hir_op_at(m, kernel);
    for (uint32_t i = 0; i < op->n_results; i++) {
        const hir_type t = hir_value_at(m, op->results[i])->type;
        if (t.rank > 0 && hir_is_row_share(t.dim[0])) return true;
    }
    return false;
}

/* ---- their steps ----------------------------------------------------------------------------- */
/* The first operand is x, the last one y. */
bool lower_collective(lowering *l, hir_id id) {
    const hir_op *op = hir_op_at(l->m, id);
    const hir_operands *operands = &l->uses[id].operands;
    hrt_collective e;
    if (!make_collective(l->d, l->m, id, &e)) return false;
    hd_push(l->a, &l->p->collectives, e);
    hrt_step step = {
        .split_decode = HRT_SPLIT_NONE,
        .split_prefill = HRT_SPLIT_NONE,
        .last_rows = hir_rows_of(op) != HIR_ROWS_ALL,
        .condition = {.when = lower_calls_of(l, id)},
        .first_operand = (uint32_t)l->p->operands.n,
        .n_operands = (uint32_t)operands->list.n,
        .grain = LOWER_GRAIN,
        .cols = 1,
        .name = hir_attr_string(op, HIR_A_NAME, "comm"),
        .collective = (uint32_t)l->p->collectives.n,
    };
    for (size_t i = 0; i < operands->list.n; i++)
        if (!lower_operand(l, lower_place(l, op), operands->list.at[i], NULL)) return false;
    hd_push(l->a, &l->p->steps, step);
    hcg_step_work work = hcg_count_work(l->a, l->m, id, l->passes);
    work.line = l->p->op_lines[id];
    hd_push(l->a, &l->p->work, work);
    return true;
}

/* ---- steps alongside collectives ------------------------------------------------------------- */
/* May one operand be written for some rows while the other is in use for other rows? */
static bool are_disjoint(const hrt_operand *a, const hrt_operand *b) {
    const bool area = a->base == HRT_ARENA || a->base == HRT_LOCAL || a->base == HRT_KEPT ||
                      a->base == HRT_LOCAL_KEPT;
    if (a->base != b->base || !area) return true;
    if (a->offset == b->offset && a->row_bytes == b->row_bytes) return true; /* row by row */
    return a->offset + a->row_bytes <= b->offset || b->offset + b->row_bytes <= a->offset;
}

/* Are all operands of steps [from, end) disjoint in this sense, so that tiles of the steps may run
 * in any order? plan-memory ensures it, unless its options say that no steps overlap. */
static bool all_disjoint(const hcg_program *p, uint32_t from, uint32_t end) {
    const hrt_step *first = &p->steps.at[from], *last = &p->steps.at[end - 1];
    const uint32_t n = last->first_operand + last->n_operands;
    for (uint32_t a = first->first_operand; a < n; a++)
        for (uint32_t b = a + 1; b < n; b++)
            if (!are_disjoint(&p->operands.at[a], &p->operands.at[b])) return false;
    return true;
}

/* The steps are the kernels of the module, in the same order: numbers of kernels are numbers of
 * steps. */
void lower_overlaps(lowering *l) {
    const hir_overlaps all = hir_find_overlaps(l->a, l->m);
    for (size_t i = 0; l->p->options.compile.overlap != HIR_OVERLAP_OFF && i < all.list.n; i++) {
        const hir_overlap *o = &all.list.at[i];
        if (!all_disjoint(l->p, o->front, o->end)) continue;
        hd_push(l->a, &l->p->overlaps,
                ((hrt_overlap){o->front, o->scatter, o->middle, o->gather, o->back, o->end}));
    }
}

void lower_runs(lowering *l) {
    const hir_runs all = hir_find_layer_ranges(l->a, l->m);
    for (size_t i = 0; all.list.n > 1 && i < all.list.n; i++) {
        const hir_layer_range *r = &all.list.at[i];
        hd_push(l->a, &l->p->runs, ((hrt_layer_range){r->first, r->work, r->send, r->end}));
    }
}
