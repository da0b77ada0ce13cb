/* fuse, after ops have sunk: sums over tokens in row programs.
 *
 * Each sum over tokens has a kernel of its own so far, which reads its operands from memory. Where a
 * row program reads or makes the longest of them anyway, the sum moves there: what a token adds is
 * then added while its row is at hand, and the row is not read again. So it is with
 *
 *     sum_tokens    of a row, as the gradient of a gain or of a bias
 *     linear_grad   the products of two rows of which one is short: the gradients of queries of mixes
 *
 * A row that an epilogue makes for nothing but a sum sinks into the row program after it (u n, of a
 * norm whose gradient is there). A sum of two sums of one row program is made there as well, so
 * that what belongs to all sources of a block is added up in one place.
 *
 * Left where they are: sums of more elements than a row program should go through for each token in a
 * cache that has other things to hold, and products of more rows than pay for that; what would be in
 * a row program that calls for losses alone need; and all sums with `--token-sums kernels`. The
 * limits are no facts of the machine that compiles: where a sum is made decides its bits, which are
 * the same for all machines of a CPU level.
 */
#include "passes/analysis/depth_backward.h"
#include "passes/kernels/fuse.h"

enum {
    MOST_ELEMENTS = 65536, /* of a sum */
    MOST_OF_ALL = 131072,  /* of the sums of a row program: half a MB */
    MOST_MADE = 4 << 20,   /* bytes of rows that it makes of a token: after more of them sums are no
                              longer in a cache when the next token comes */
    ROWS_OF_SOURCE = 8,    /* of a sum of products, for each of these: longer ones are matrices, for
                              the tiles of dW */
};

static bool is_row(hir_type t, uint32_t rank) {
    return t.dtype == HIR_F32 && t.rank > 0 && t.dim[0] == HIR_T && (!rank || t.rank == rank);
}

/* Is it a sum of what are sums over tokens? */
static bool is_sum_of_sums(const fuse *f, hir_id op) {
    const fuse_node *n = &f->node[op];
    const hir_op *o = hir_op_at(f->m, op);
    return o->code == HIR_ADD_OP && (n->sum || (n->kind == FUSE_FIXED && n->late)) &&
           hir_type_equal(hir_ref_type(f->m, o->args[0]), hir_ref_type(f->m, o->args[1]));
}

/* The sum that it goes into with others of its type. */
static hir_id whole_sum(const fuse *f, hir_id op) {
    for (;;) {
        const uint32_t v = hir_result(f->m, op);
        if (f->uses.count[v] != 1) return op;
        const hir_id user = f->uses.user[f->uses.first[v]];
        if (f->node[user].kind == FUSE_OUTPUT || !is_sum_of_sums(f, user)) return op;
        if (pass_def(f->m, pass_arg(f->m, user, 0)) != op &&
            pass_def(f->m, pass_arg(f->m, user, 1)) != op)
            return op; /* reshaped in between */
        op = user;
    }
}

static uint32_t count_sources(const fuse *f, hir_id sum) {
    if (!is_sum_of_sums(f, sum)) return 1;
    uint32_t n = 0;
    for (uint32_t i = 0; i < 2; i++) {
        const hir_id part = pass_def(f->m, pass_arg(f->m, sum, i));
        n += part == HIR_NONE ? 0 : count_sources(f, part);
    }
    return n;
}

/* Can a row program make it, as far as its types go? */
static bool fits(const fuse *f, hir_id op) {
    const hir_op *o = hir_op_at(f->m, op);
    const hir_type y = pass_result_type(f->m, op);
    if (pass_elements(y) > MOST_ELEMENTS) return false;
    if (o->code == HIR_SUM_TOKENS_OP) return is_row(hir_arg_type(f->m, op, 0), 0);
    if (o->code != HIR_LINEAR_GRAD_OP || !is_row(hir_arg_type(f->m, op, 0), 2) ||
        !is_row(hir_arg_type(f->m, op, 1), 2))
        return false;
    const int64_t rows = y.dim[1] == 1 ? 1 : y.dim[0]; /* vectors run along them */
    return rows <= ROWS_OF_SOURCE * (int64_t)count_sources(f, whole_sum(f, op));
}

/* Do only gradients, and what is made of sums, read it? */
static bool is_for_gradients(const fuse *f, hir_id op) {
    const uint32_t v = hir_result(f->m, op);
    for (uint32_t i = 0; i < f->uses.count[v]; i++) {
        const hir_id user = f->uses.user[f->uses.first[v] + i];
        const fuse_node *n = &f->node[user];
        if (n->kind == FUSE_OUTPUT ? !hir_is_gradient(hir_op_at(f->m, user))
                                   : n->kind != FUSE_FIXED && n->kind != FUSE_NONE)
            return false;
    }
    return true;
}

/* Does the row program of the phase read or make the value? */
static bool has_row(const fuse *f, hir_ref base, uint32_t phase) {
    const fuse_node *made = fuse_node_of(f, base);
    if (base.kind != HIR_REF_VALUE) return false;
    if (made && made->kind == FUSE_ROW && made->phase == phase) return true;
    for (uint32_t i = 0; i < f->uses.count[base.index]; i++) {
        const fuse_node *n = &f->node[f->uses.user[f->uses.first[base.index] + i]];
        if (n->kind == FUSE_ROW && n->phase == phase && !n->sum) return true;
    }
    return false;
}

/* Is the row made by an epilogue for this sum alone, of a row that the row program of the phase
 * has? */
static bool may_sink(const fuse *f, hir_ref base, uint32_t phase) {
    const hir_id made = pass_def(f->m, base);
    if (made == HIR_NONE || f->uses.count[base.index] != 1) return false;
    const fuse_node *n = &f->node[made];
    if (n->kind != FUSE_CONTRACT || !hir_has_trait(hir_op_at(f->m, made)->code, HIR_ELEMENTWISE))
        return false;
    for (uint32_t i = 0; i < hir_op_at(f->m, made)->n_args; i++) {
        const hir_ref x = fuse_base(f, pass_arg(f->m, made, i));
        if (x.kind == HIR_REF_VALUE && hir_type_has_t(hir_ref_type(f->m, x)) &&
            fuse_row_size(f, x) == fuse_row_size(f, base) && has_row(f, x, phase))
            return true;
    }
    return false;
}

/* The longest of its operands. */
static hir_ref longest(const fuse *f, hir_id op) {
    hir_ref x = fuse_base(f, pass_arg(f->m, op, 0));
    for (uint32_t i = 1; i < hir_op_at(f->m, op)->n_args; i++) {
        const hir_ref other = fuse_base(f, pass_arg(f->m, op, i));
        if (fuse_row_size(f, other) > fuse_row_size(f, x)) x = other;
    }
    return x;
}

static void move(fuse *f, hir_id op, uint32_t phase) {
    fuse_move_to_rows(f, op, phase);
    f->node[op].sum = true;
    if (f->last < phase + 1) f->last = phase + 1; /* what reads it comes after it */
}

typedef struct row_programs { /* by phase */
    bool *forward;            /* the loss needs what it makes */
    int64_t *made;            /* bytes of a token */
    int64_t *elements;        /* of its sums */
    bool *counted;            /* by op: a whole sum, which is in there */
} row_programs;

static row_programs find_programs(const fuse *f) {
    hd_arena *a = f->c->scratch;
    row_programs p = {.forward = hd_new_array(a, bool, f->front + 1),
                      .made = hd_new_array(a, int64_t, f->front + 1),
                      .elements = hd_new_array(a, int64_t, f->front + 1),
                      .counted = hd_new_array(a, bool, f->n_ops)};
    const bool has_loss = hir_loss_sum_output(f->m) != HIR_NONE;
    const bool *needed = has_loss ? hir_needed_by_loss(f->m, a) : NULL;
    for (size_t k = 0; k < f->program.n; k++) {
        const fuse_node *n = &f->node[f->program.at[k]];
        if (n->kind != FUSE_ROW) continue;
        const uint32_t v = hir_result(f->m, f->program.at[k]);
        p.forward[n->phase] |= needed && needed[v];
        p.made[n->phase] += fuse_row_size(f, hir_value_ref(v));
    }
    return p;
}

/* Is there space for it beside the other sums of the row program? */
static bool take_space(const fuse *f, row_programs *p, hir_id op, uint32_t phase) {
    const hir_id all = whole_sum(f, op);
    const int64_t n = pass_elements(pass_result_type(f->m, all));
    if (p->counted[all]) return true;
    if (p->elements[phase] + n > MOST_OF_ALL) return false;
    p->counted[all] = true;
    p->elements[phase] += n;
    return true;
}

static void move_sum(fuse *f, hir_id op, row_programs *p) {
    uint32_t phase = 0;
    if (f->node[op].kind != FUSE_SEQUENCE || !fits(f, op) || !is_for_gradients(f, op)) return;
    for (uint32_t i = 0; i < hir_op_at(f->m, op)->n_args; i++) {
        const uint32_t at = fuse_phase_for_rows(f, pass_arg(f->m, op, i));
        if (at > phase) phase = at;
    }
    const hir_ref x = longest(f, op);
    const char *why_not = NULL;
    if (phase > f->front || (!has_row(f, x, phase) && !may_sink(f, x, phase)))
        why_not = "no row program has what it sums";
    else if (p->forward[phase])
        why_not = "the loss alone needs the row program that has what it sums";
    else if (p->made[phase] > MOST_MADE)
        why_not = "the row program that has what it sums makes much of a token";
    else if (!take_space(f, p, op, phase))
        why_not = "the row program that has what it sums has many sums";
    if (why_not) {
        hir_remark_add(f->c, false, op, "a kernel of its own: %s%s", why_not,
                       fuse_through_memory(f, x));
        return;
    }
    hir_remark_add(f->c, true, op,
                   "is summed in a row program, which has the rows: %lld bytes of each token are "
                   "not read again",
                   (long long)fuse_row_size(f, x));
    move(f, op, phase);
}

/* The phase of the row program that makes the sum, which nothing else reads; HIR_NONE: none does. */
static uint32_t phase_of_sum(const fuse *f, hir_ref r) {
    const fuse_node *n = fuse_node_of(f, r);
    return n && n->sum && f->uses.count[r.index] == 1 ? n->phase : HIR_NONE;
}

static void move_sum_of_sums(fuse *f, hir_id op) {
    const hir_op *o = hir_op_at(f->m, op);
    if (f->node[op].sum || !is_sum_of_sums(f, op)) return;
    const uint32_t phase = phase_of_sum(f, o->args[0]);
    if (phase != HIR_NONE && phase_of_sum(f, o->args[1]) == phase) move(f, op, phase);
}

bool fuse_sums(fuse *f) {
    bool any = false;
    if (f->c->options->token_sums != HIR_SUMS_IN_ROWS) return false;
    row_programs p = find_programs(f);
    for (size_t k = 0; k < f->program.n; k++) {
        move_sum(f, f->program.at[k], &p);
        move_sum_of_sums(f, f->program.at[k]);
        any |= f->node[f->program.at[k]].sum;
    }
    for (size_t k = 0; any && k < f->program.n; k++) {
        const hir_id op = f->program.at[k];
        if (f->node[op].kind == FUSE_FIXED && f->node[op].late) fuse_place_once(f, op);
    }
    return any;
}

/* ---- row programs of a phase ------------------------------------------------------------------- */
void fuse_keep_sum_whole(fuse *f, hir_id op) {
    const hir_op *o = hir_op_at(f->m, op);
    fuse_node *n = &f->node[op];
    if (!n->sum || o->code != HIR_ADD_OP) return;
    const fuse_node *a = fuse_node_of(f, o->args[0]), *b = fuse_node_of(f, o->args[1]);
    if (a->kind == FUSE_ROW && b->kind == FUSE_ROW && a->group == b->group) return;
    fuse_place(f, op, FUSE_FIXED, n->phase + 1, HIR_NONE);
    n->late = true;
    n->sum = false;
}
