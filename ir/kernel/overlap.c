#include "ir/kernel/overlap.h"

#include "ir/kernel/kernels.h"

typedef struct finder {
    hd_arena *a;
    const hir_module *m;
    HD_VEC(hir_id) kernels;
} finder;

/* The collective that kernel k is; NULL: it is none. */
static const hir_op *collective_of(const finder *f, uint32_t k) {
    HIR_EACH(f->m, id, hir_op_at(f->m, f->kernels.at[k])->body_first)
    if (hir_has_trait(hir_op_at(f->m, id)->code, HIR_COMM)) return hir_op_at(f->m, id);
    return NULL;
}

/* Is kernel k a collective of this kind on the rows of all tokens? */
static bool collectives_rows(const finder *f, uint32_t k, hir_opcode code) {
    if (k >= f->kernels.n) return false;
    const hir_op *op = collective_of(f, k);
    return op && op->code == code && !hir_find_attr(op, HIR_A_AXIS) &&
           hir_rows_of(hir_op_at(f->m, f->kernels.at[k])) == HIR_ROWS_ALL;
}

/* Experts read their matrices for the tokens that selected them: tiles of few rows would read all
 * of the matrices again and again. */
static bool goes_row_by_row(hir_opcode code) {
    return !hir_has_trait(code, HIR_SEQUENCE | HIR_COMM) && code != HIR_EXPERT_LINEAR_OP;
}

static bool has_local_rows(const finder *f, uint32_t k) {
    const hir_op *kernel = hir_op_at(f->m, f->kernels.at[k]);
    for (uint32_t i = 0; i < kernel->n_results; i++) {
        const hir_type t = hir_value_at(f->m, kernel->results[i])->type;
        if (t.rank > 0 && hir_is_row_share(t.dim[0])) return true;
    }
    return false;
}

/* May the kernel run over any range of rows by itself? `local`: over the rows of one rank. */
static bool goes_by_tiles(const finder *f, uint32_t k, bool local) {
    const hir_id id = f->kernels.at[k];
    const hir_op *kernel = hir_op_at(f->m, id);
    const hir_split split = hir_split_of(kernel, HIR_A_SPLIT_PREFILL);
    if (split != HIR_SPLIT_ROWS && split != HIR_SPLIT_COLS) return false;
    if (hir_rows_of(kernel) != HIR_ROWS_ALL || hir_runs_once(f->m, id) ||
        hir_otherwise(f->m, id) != HIR_NONE || has_local_rows(f, k) != local)
        return false;
    HIR_EACH(f->m, op, kernel->body_first)
    if (!goes_row_by_row(hir_op_at(f->m, op)->code)) return false;
    return true;
}

/* Does kernel k compute what collective `by` sends? */
static bool makes_operand(const finder *f, uint32_t k, uint32_t by) {
    const hir_ref x = collective_of(f, by)->args[0];
    return x.kind == HIR_REF_VALUE && hir_value_at(f->m, x.index)->op == f->kernels.at[k];
}

/* Finds an overlap that begins with the collective at `at`; no kernel before `from` is available.
 * False: nothing would run while the collective is under way. */
static bool find_from(const finder *f, uint32_t at, uint32_t from, hir_overlap *o) {
    const uint32_t n = (uint32_t)f->kernels.n;
    const bool scatters = collectives_rows(f, at, HIR_COMM_REDUCE_SCATTER_OP);
    *o = (hir_overlap){.front = at, .scatter = at, .middle = at + scatters};
    if (scatters && at > from && goes_by_tiles(f, at - 1, false) && makes_operand(f, at - 1, at))
        o->front--;
    if (!scatters) /* the kernel that makes the rows that are gathered */
        while (o->middle > from && goes_by_tiles(f, o->middle - 1, true))
            o->front = o->scatter = --o->middle;
    o->gather = scatters ? o->middle : at;
    while (scatters && o->gather < n && goes_by_tiles(f, o->gather, true))
        o->gather++;
    const bool gathers = collectives_rows(f, o->gather, HIR_COMM_ALL_GATHER_OP);
    if (!gathers) o->gather = o->middle;
    o->back = o->end = o->gather + gathers;
    while (gathers && o->end < n && goes_by_tiles(f, o->end, false) &&
           !(o->end + 1 < n && collectives_rows(f, o->end + 1, HIR_COMM_REDUCE_SCATTER_OP)))
        o->end++;
    return o->scatter > o->front || o->gather > o->middle || o->end > o->back;
}

hir_overlaps hir_find_overlaps(hd_arena *a, const hir_module *m) {
    finder f = {.a = a, .m = m};
    hir_overlaps out = {0};
    uint32_t from = 0;
    HIR_EACH(m, id, m->first)
    if (hir_is_kernel(hir_op_at(m, id))) hd_push(a, &f.kernels, id);
    for (uint32_t k = 0; m->ranks > 1 && k < f.kernels.n; k++) {
        hir_overlap o;
        if (!collectives_rows(&f, k, HIR_COMM_REDUCE_SCATTER_OP) &&
            !collectives_rows(&f, k, HIR_COMM_ALL_GATHER_OP))
            continue;
        if (!find_from(&f, k, from, &o)) continue;
        hd_push(a, &out.list, o);
        from = o.end;
        k = o.end - 1;
    }
    return out;
}
