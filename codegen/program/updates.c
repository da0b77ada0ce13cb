/* How a step changes each parameter (runtime/updates.def).
 *
 * What gives a parameter's gradient tells what it is: a matrix has a sum of outer products over
 * tokens, the table of an embedding has rows that ids name, and all else has another sum. Of the
 * matrices the head is the one whose products are multiplied by what comes straight from the targets:
 * between them and its gradient there are row programs alone. A tensor of one row or one column is a
 * vector, as the query of a mix over depth is. */
#include <string.h>

#include "codegen/program/lowering.h"

typedef struct search {
    const hir_module *m;
    uint32_t *seen, now; /* by value: the number of the last search that came there */
} search;

/* Begins another search. */
static search *again(search *s) {
    s->now++;
    return s;
}

/* Is it a value at which the search has not been? */
static bool enter(search *s, hir_ref r) {
    if (r.kind != HIR_REF_VALUE || s->seen[r.index] == s->now) return false;
    s->seen[r.index] = s->now;
    return true;
}

/* What a kernel yields as the value. */
static hir_ref yielded(const hir_module *m, const hir_op *kernel, hir_id value) {
    uint32_t i = 0;
    while (kernel->results[i] != value)
        i++;
    return hir_op_at(m, kernel->body_last)->args[i];
}

/* Is the value made of the targets by row programs alone? */
static bool is_of_targets(search *s, hir_ref r) {
    const hir_module *m = s->m;
    if (!enter(s, r)) return false;
    const hir_value *v = hir_value_at(m, r.index);
    if (v->op == HIR_NONE) return r.index == m->inputs.at[1];
    const hir_op *op = hir_op_at(m, v->op);
    if (hir_is_kernel(op))
        return op->code == HIR_KERNEL_ROW_OP && is_of_targets(s, yielded(m, op, r.index));
    for (uint32_t i = 0; i < op->n_args; i++)
        if (is_of_targets(s, op->args[i])) return true;
    return false;
}

/* The op that sums over tokens to make a gradient, which row programs may change afterwards;
 * HIR_NONE: there is none. */
static hir_id sum_of(search *s, hir_ref r) {
    const hir_module *m = s->m;
    if (!enter(s, r)) return HIR_NONE;
    const hir_id id = hir_value_at(m, r.index)->op;
    if (id == HIR_NONE) return HIR_NONE;
    const hir_op *op = hir_op_at(m, id);
    if (hir_is_kernel(op)) return sum_of(s, yielded(m, op, r.index));
    if (hir_has_trait(op->code, HIR_REDUCES_TOKENS)) return id;
    hir_id sum = HIR_NONE;
    for (uint32_t i = 0; i < op->n_args && sum == HIR_NONE; i++)
        sum = sum_of(s, op->args[i]);
    return sum;
}

/* What its gradients tell of a weight: a set of these. */
enum { IS_MATRIX = 1, IS_TABLE = 2, IS_HEAD = 4 };

static unsigned read_gradient(search *s, const hir_op *output) {
    const hir_id id = sum_of(again(s), output->args[0]);
    if (id == HIR_NONE) return 0;
    const hir_op *sum = hir_op_at(s->m, id);
    switch (sum->code) {
    case HIR_LINEAR_GRAD_OP:
    case HIR_BLOCK_LINEAR_GRAD_OP:
    case HIR_EXPERT_LINEAR_GRAD_OP:
        return IS_MATRIX | (is_of_targets(again(s), sum->args[0]) ? IS_HEAD : 0);
    case HIR_SCATTER_ROWS_OP:
    case HIR_NGRAM_GATHER_GRAD_OP: return IS_MATRIX | IS_TABLE;
    default: return 0;
    }
}

/* By weight. Finds a kernel that makes the gradient of a matrix, too. */
static const unsigned *read_gradients(lowering *l) {
    const hir_module *m = l->m;
    unsigned *found = hd_new_array(l->a, unsigned, m->weights.n + 1);
    search s = {.m = m, .seen = hd_new_array(l->a, uint32_t, m->values.n + 1)};
    HIR_EACH(m, id, m->first) {
        const hir_op *op = hir_op_at(m, id);
        if (op->code != HIR_OUTPUT_OP || !hir_is_gradient(op)) continue;
        const char *name = hir_attr_string(op, HIR_A_NAME, "") + strlen(HIR_GRADIENT);
        const uint32_t w = hir_find_weight(m, name);
        if (w == HIR_NONE) continue;
        found[w] |= read_gradient(&s, op);
        if (found[w] & IS_MATRIX) l->matrix = hir_value_at(m, op->args[0].index)->op;
    }
    return found;
}

static const char *const texts[HRT_UPDATES] = {
#define U(id, text, moments, decays, meaning) [HRT_UPDATE_##id] = text,
#include "runtime/updates.def"
#undef U
};

static void set_shape(const hir_weight *w, hrt_parameter *p) {
    const uint32_t rank = w->type.rank;
    p->rows = rank < 2 ? 1 : (uint64_t)w->type.dim[rank - 2];
    p->columns = rank < 1 ? 1 : (uint64_t)w->type.dim[rank - 1];
}

static hrt_update choose(const lowering *l, const hir_weight *w, unsigned found) {
    hrt_parameter p = {0};
    set_shape(w, &p);
    if (!(found & IS_MATRIX) || p.rows < 2 || p.columns < 2) return HRT_UPDATE_VECTOR;
    if (l->p->options.compile.optimizer == HIR_OPTIMIZER_MUON && !(found & (IS_TABLE | IS_HEAD)))
        return HRT_UPDATE_MUON;
    return HRT_UPDATE_MATRIX;
}

void lower_choose_updates(lowering *l) {
    l->matrix = HIR_NONE;
    l->updates = hd_new_array(l->a, hrt_update, l->m->weights.n + 1);
    const unsigned *found = read_gradients(l);
    for (size_t i = 0; i < l->m->weights.n; i++)
        l->updates[i] = choose(l, &l->m->weights.at[i], found[i]);
}

/* The workspace of runtime/muon.c for a matrix: x, and x turned or the next x, each [rows][columns]; a
 * and a^2, each [rows][rows]; rows <= columns. Four times the bytes of the matrix at most, which
 * memory holds several times anyway. */
static uint64_t bytes_of_matrix(uint64_t rows, uint64_t columns) {
    const uint64_t least = rows < columns ? rows : columns;
    return hrt_aligned(2 * (rows * columns + least * least) * sizeof(float));
}

static uint64_t muon_bytes(const hcg_program *p, const hrt_parameter *of) {
    uint64_t most = 0;
    if (of->update != HRT_UPDATE_MUON) return 0;
    for (uint32_t i = 0; i < of->n_parts; i++) {
        const uint64_t bytes = bytes_of_matrix(p->parts.at[of->first_part + i].rows, of->columns);
        if (bytes > most) most = bytes;
    }
    return of->n_parts ? most : bytes_of_matrix(of->rows, of->columns);
}

/* What Muon needs, if there is a matrix for it. The kernel of its products comes after those of the
 * steps. */
static void add_muon(lowering *l) {
    for (size_t i = 0; i < l->p->parameters.n; i++) {
        const uint64_t bytes = muon_bytes(l->p, &l->p->parameters.at[i]);
        if (bytes > l->p->muon_bytes) l->p->muon_bytes = bytes;
    }
    if (!l->p->muon_bytes) return;
    l->p->products = (uint32_t)l->p->kernels.n;
    hd_push(l->a, &l->p->kernels,
            ((hcg_kernel){.kind = HIR_KERNEL_SEQUENCE,
                          .name = "products",
                          .op = l->matrix,
                          .phase = HIR_PREFILL,
                          .line = l->p->op_lines[l->matrix],
                          .products = true}));
}

bool lower_updates(lowering *l) {
    hcg_program *p = l->p;
    hrt_parameter *next = p->parameters.at;
    for (size_t i = 0; i < l->m->weights.n; i++) {
        const hir_weight *w = &l->m->weights.at[i];
        if (hir_is_derived(w)) continue;
        for (int64_t part = 0; part < hir_parts(w); part++, next++) {
            next->update = l->updates[i];
            next->how = texts[next->update];
            set_shape(w, next);
        }
    }
    /* two moments of each element, and one of each of Muon's */
    if (hd_add_overflow(p->parameters_bytes, p->muon_offset, &p->moments_bytes) ||
        p->moments_bytes > INT64_MAX) {
        hd_err(l->d, HD_E_LIMIT, HD_NOWHERE, "the moments take more than 2^63 bytes");
        return false;
    }
    lower_joined(l);
    add_muon(l);
    return true;
}
