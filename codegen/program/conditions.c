/* Which steps of a program run in which calls (hrt_condition).
 *
 * The result of an attention.expanded is computed in one of two ways: by its own kernel, or as its
 * operand `otherwise`, in whose memory the result lies. Its kernel runs in calls of many rows.
 * Kernels whose results are read for `otherwise` alone, directly or by other such kernels, run in
 * calls of few rows. Layers of the same sizes have the same condition, so that kernels whose
 * results several of them read for `otherwise` (the positions that one layer has selected for
 * others) are skipped in the same calls. */
#include <string.h>

#include "codegen/program/lowering.h"

#include "ir/kernel/kernels.h"

/* The reader of a value or the user of an op: NOBODY, the attention.expanded of this number alone,
 * or ANYBODY: something else. */
enum { NOBODY = HIR_NONE, ANYBODY = HIR_NONE - 1 };

typedef struct readers {
    const hir_module *m;
    hir_id *of;           /* by value */
    HD_VEC(hir_id) alike; /* one attention.expanded for each distinct condition */
    hd_arena *arena;
} readers;

/* Do two attention.expanded have the same condition, so that each call computes both in the same
 * way? */
static bool choose_alike(const hir_module *m, hir_id a, hir_id b) {
    const hd_latent_costs x = hir_forms_of(m, a), y = hir_forms_of(m, b);
    const hir_rows rows = hir_rows_of(hir_op_at(m, hir_op_at(m, a)->parent));
    return memcmp(&x, &y, sizeof x) == 0 &&
           rows == hir_rows_of(hir_op_at(m, hir_op_at(m, b)->parent));
}

/* The attention.expanded that represents all with the same condition as `op`. */
static hir_id condition_of(readers *r, hir_id op) {
    for (size_t i = 0; i < r->alike.n; i++)
        if (choose_alike(r->m, r->alike.at[i], op)) return r->alike.at[i];
    hd_push(r->arena, &r->alike, op);
    return op;
}

static hir_id both(hir_id a, hir_id b) {
    if (a == NOBODY || a == b) return b;
    return b == NOBODY ? a : (hir_id)ANYBODY;
}

static void add_reader(const readers *r, hir_ref x, hir_id reader) {
    if (x.kind == HIR_REF_VALUE) r->of[x.index] = both(r->of[x.index], reader);
}

/* The attention.expanded that alone needs the results of the kernel, NOBODY, or ANYBODY. */
static hir_id served_by(const readers *r, hir_id kernel) {
    const hir_op *k = hir_op_at(r->m, kernel);
    hir_id all = NOBODY;
    if (hir_writes_state(r->m, kernel)) return ANYBODY;
    for (uint32_t i = 0; i < k->n_results; i++)
        all = both(all, r->of[k->results[i]]);
    if (all == NOBODY || all == ANYBODY) return ANYBODY;
    /* the condition depends on the rows that the kernel does */
    const hir_op *expanded = hir_op_at(r->m, hir_op_at(r->m, all)->parent);
    return hir_rows_of(k) == hir_rows_of(expanded) ? all : (hir_id)ANYBODY;
}

static void read_operands(readers *r, hir_id kernel, hir_id reader) {
    HIR_EACH(r->m, op, hir_op_at(r->m, kernel)->body_first) {
        const hir_op *o = hir_op_at(r->m, op);
        const bool expanded = o->code == HIR_ATTENTION_EXPANDED_OP;
        for (uint32_t i = 0; i < o->n_args; i++)
            add_reader(r, o->args[i], expanded && i == 0 ? condition_of(r, op) : reader);
    }
}

const hrt_condition *hcg_find_conditions(hd_arena *a, const hir_module *m) {
    hrt_condition *conditions = hd_new_array(a, hrt_condition, m->ops.n);
    readers r = {.m = m, .arena = a, .of = hd_new_array(a, hir_id, m->values.n + 1)};
    for (size_t v = 0; v < m->values.n; v++)
        r.of[v] = NOBODY;
    for (hir_id op = m->last; op != HIR_NONE; op = hir_op_at(m, op)->prev) {
        const hir_op *o = hir_op_at(m, op);
        if (!hir_is_kernel(o)) {
            for (uint32_t i = 0; i < o->n_args; i++)
                add_reader(&r, o->args[i], ANYBODY);
            continue;
        }
        const hir_id form = hir_form_op(m, op);
        const bool many = form != HIR_NONE && hir_op_at(m, form)->code == HIR_ATTENTION_EXPANDED_OP;
        const hir_id reader = many ? (hir_id)ANYBODY : served_by(&r, op);
        read_operands(&r, op, reader);
        if (many)
            conditions[op] = (hrt_condition){HRT_MANY, hir_forms_of(m, form)};
        else if (reader != ANYBODY)
            conditions[op] = (hrt_condition){HRT_FEW, hir_forms_of(m, reader)};
    }
    return conditions;
}
