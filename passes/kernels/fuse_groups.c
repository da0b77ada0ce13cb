/* fuse, between: the kernels of each phase, in order (fuse.c says what a phase is).
 *
 * Where several phases 1 of AttnRes have the same sources, their mixes are in one phase. A row
 * program of all of them would be as long as the block, and the time that LLVM takes for a function
 * grows faster than its length. So a row program has MOST_MIXES at most, and another goes on, which
 * reads the sources again: no more of d than sources / MOST_MIXES for each sublayer. Those that
 * follow are alike and share their code, however deep the model is. In the backward half a mix is of
 * the gradients of a block, for one of its sources; what is added to it is in the row program that
 * has it.
 *
 * A row program that computes nothing but the x of one contraction becomes its prologue: it runs
 * for a block of rows just before they are multiplied, in every thread that has columns of them.
 * That saves a kernel, and writing and reading x; but as every thread repeats it, it is done only
 * if it reads few rows.
 */
#include "passes/kernels/fuse.h"

enum {
    MOST_MIXES = 64,    /* mixes over depth of one row program: twice those of a phase 1 */
    MOST_PROLOGUE = 2,  /* whole rows that a prologue may read for a row of x */
    FEW_NUMBERS = 1024, /* bytes of a token that may be stored between row programs of a phase */
};

/* ---- groups of rows, order of kernels ------------------------------------------------------ */
/* Does the op run over the rows of one rank? Ops over all rows and ops over a rank's rows are in
 * two row programs. */
static bool has_rows_of_rank(const fuse *f, hir_id op) {
    const hir_type t = pass_result_type(f->m, op);
    return t.rank > 0 && hir_is_row_share(t.dim[0]);
}

typedef struct phase_rows { /* by phase: its row programs, HIR_NONE: there is none */
    uint32_t *first, *last;
} phase_rows;

/* Does a row program with so many mixes end before the op? The scores of a phase 1 are followed by
 * a mix for each query. */
static bool is_full(const fuse *f, uint32_t mixes, hir_id op) {
    const hir_opcode code = hir_op_at(f->m, op)->code;
    int64_t more = code == HIR_DEPTH_MIX_OP;
    if (code == HIR_DEPTH_SCORES_OP) more = pass_result_type(f->m, op).dim[2];
    return mixes && more && mixes + more > MOST_MIXES;
}

static void note_part(const fuse *f, hir_id op, uint32_t mixes) {
    const hir_op *o = hir_op_at(f->m, op);
    int64_t bytes = 0;
    for (uint32_t i = 0; i < o->n_args; i++)
        if (o->args[i].kind == HIR_REF_VALUE && hir_type_has_t(hir_ref_type(f->m, o->args[i])))
            bytes += fuse_row_size(f, o->args[i]);
    hir_remark_add(f->c, true, op,
                   "begins another row program, since the one before has %u mixes over depth: %lld "
                   "bytes of each token are read again",
                   mixes, (long long)bytes);
}

/* The first row program of its phase that the op may be in: that of its newest operand there; the
 * very first for a few numbers that are made of nothing in the phase. The last one, `last`, for a mix over
 * depth, for its scores, and for rows that are made of nothing in the phase. */
static uint32_t group_of_operands(const fuse *f, hir_id op, uint32_t first, uint32_t last) {
    const hir_op *o = hir_op_at(f->m, op);
    uint32_t group = HIR_NONE;
    if (o->code == HIR_DEPTH_MIX_OP || o->code == HIR_DEPTH_SCORES_OP ||
        hir_has_trait(o->code, HIR_EFFECT))
        return last;
    for (uint32_t i = 0; i < o->n_args; i++) {
        const fuse_node *n = fuse_node_of(f, fuse_base(f, o->args[i]));
        if (!n || n->kind != f->node[op].kind || n->phase != f->node[op].phase) continue;
        if (n->group <= last && (group == HIR_NONE || n->group > group)) group = n->group;
    }
    if (group != HIR_NONE) return group;
    return fuse_row_size(f, hir_value_ref(o->results[0])) <= FEW_NUMBERS ? first : last;
}

/* The row program of its phase that the op is in, when all before it have theirs. */
static uint32_t row_group(fuse *f, phase_rows *rows, fuse_kind kind, hir_id op) {
    const uint32_t phase = f->node[op].phase, last = rows->last[phase];
    const bool full = last != HIR_NONE && is_full(f, f->groups.at[last].mixes, op);
    if (full) note_part(f, op, f->groups.at[last].mixes);
    if (last == HIR_NONE || full) {
        const uint32_t fresh = fuse_new_group(f, kind, phase);
        *(full ? &f->groups.at[last].after : &rows->first[phase]) = fresh;
        rows->last[phase] = fresh;
    } else if (last != rows->first[phase]) {
        const uint32_t group = group_of_operands(f, op, rows->first[phase], last);
        if (group != last) return group;
    }
    f->groups.at[rows->last[phase]].mixes += hir_op_at(f->m, op)->code == HIR_DEPTH_MIX_OP;
    return rows->last[phase];
}

static phase_rows no_rows(fuse *f, uint32_t phases) {
    return (phase_rows){fuse_no_groups(f, phases), fuse_no_groups(f, phases)};
}

static void order_rows(fuse *f, const phase_rows *rows, uint32_t phase) {
    for (uint32_t g = rows->first[phase]; g != HIR_NONE; g = f->groups.at[g].after)
        hd_push(f->c->scratch, &f->kernels, g);
}

/* Linear ops come first in a contraction, and gradients in their kernel. */
static bool comes_first(hir_opcode code, fuse_kind kind) {
    if (kind == FUSE_SEQUENCE) return hir_has_trait(code, HIR_REDUCES_TOKENS);
    return kind == FUSE_CONTRACT && hir_is_linear(code);
}

static void fill_groups(fuse *f) {
    uint32_t phases = (f->last > f->front ? f->last : f->front) + 1;
    uint32_t contractions = (uint32_t)f->groups.n;
    phase_rows rows = no_rows(f, phases), fixed = no_rows(f, phases), of_rank = no_rows(f, phases);
    for (int first = 1; first >= 0; first--)
        for (size_t k = 0; k < f->program.n; k++) {
            hir_id op = f->program.at[k];
            fuse_node *n = &f->node[op];
            if (comes_first(hir_op_at(f->m, op)->code, n->kind) != first) continue;
            fuse_keep_sum_whole(f, op);
            if (n->kind == FUSE_ROW)
                n->group = row_group(f, has_rows_of_rank(f, op) ? &of_rank : &rows, FUSE_ROW, op);
            if (n->kind == FUSE_FIXED) n->group = row_group(f, &fixed, FUSE_FIXED, op);
            if (n->kind >= FUSE_FIXED && n->kind <= FUSE_SEQUENCE)
                hd_push(f->c->scratch, &f->groups.at[n->group].ops, op);
        }
    /* counting sort of contraction and sequence groups by phase, stable in order of creation */
    uint32_t *first = hd_new_array(f->c->scratch, uint32_t, phases + 2);
    uint32_t *sorted = hd_new_array(f->c->scratch, uint32_t, contractions);
    for (uint32_t g = 0; g < contractions; g++)
        first[f->groups.at[g].phase + 1]++;
    for (uint32_t p = 0; p < phases; p++)
        first[p + 1] += first[p];
    for (uint32_t g = 0; g < contractions; g++)
        sorted[first[f->groups.at[g].phase]++] = g;
    for (uint32_t p = 0, k = 0; p < phases; p++) {
        order_rows(f, &fixed, p);
        order_rows(f, &rows, p);
        order_rows(f, &of_rank, p);
        for (; k < contractions && f->groups.at[sorted[k]].phase == p; k++)
            if (f->groups.at[sorted[k]].ops.n) hd_push(f->c->scratch, &f->kernels, sorted[k]);
    }
}

/* ---- prologues ----------------------------------------------------------------------------- */
/* The contraction whose x the value is, if it has no other use; else HIR_NONE. */
static uint32_t only_contraction(const fuse *f, uint32_t value, uint32_t group) {
    uint32_t reader = HIR_NONE;
    for (uint32_t i = 0; i < f->uses.count[value]; i++) {
        hir_id user = f->uses.user[f->uses.first[value] + i];
        const fuse_node *n = &f->node[user];
        if (n->kind == FUSE_NONE || (n->kind == FUSE_ROW && n->group == group)) continue;
        bool linear = hir_op_at(f->m, user)->code == HIR_LINEAR_OP && n->kind == FUSE_CONTRACT;
        if (!linear || (reader != HIR_NONE && reader != n->group)) return HIR_NONE;
        reader = n->group;
    }
    return reader;
}

/* Is the value used outside of the row program? */
static bool leaves(const fuse *f, uint32_t value, uint32_t group) {
    bool outside = false;
    for (uint32_t i = 0; i < f->uses.count[value]; i++) {
        const fuse_node *n = &f->node[f->uses.user[f->uses.first[value] + i]];
        outside |= n->kind != FUSE_NONE && (n->kind != FUSE_ROW || n->group != group);
    }
    return outside;
}

static bool may_repeat(const hir_op *o) {
    return !hir_has_trait(o->code, HIR_EFFECT | HIR_POSITION | HIR_REDUCES_TOKENS) &&
           o->code != HIR_LINEAR_OP;
}

/* Bytes per token that a row program reads from other kernels. */
static int64_t bytes_read(const fuse *f, uint32_t group) {
    const fuse_group *g = &f->groups.at[group];
    uint32_t *seen = f->seen;
    int64_t bytes = 0;
    for (size_t k = 0; k < g->ops.n; k++) {
        const hir_op *o = hir_op_at(f->m, g->ops.at[k]);
        for (uint32_t i = 0; i < o->n_args; i++) {
            hir_ref base = fuse_base(f, o->args[i]);
            const fuse_node *made = fuse_node_of(f, base);
            if (base.kind != HIR_REF_VALUE || !hir_type_has_t(hir_ref_type(f->m, base))) continue;
            if ((made && made->group == group) || seen[base.index] == group + 1) continue;
            seen[base.index] = group + 1;
            bytes += fuse_row_size(f, base);
        }
    }
    return bytes;
}

/* NULL: the row program can be the prologue of *contraction; else the reason why not. */
static const char *prologue(const fuse *f, uint32_t group, uint32_t *contraction) {
    const fuse_group *g = &f->groups.at[group];
    int64_t made = 0;
    *contraction = HIR_NONE;
    for (size_t k = 0; k < g->ops.n; k++) {
        const hir_op *o = hir_op_at(f->m, g->ops.at[k]);
        uint32_t y = o->results[0];
        if (!may_repeat(o)) return "it must run only once";
        if (!leaves(f, y, group)) continue;
        if (made) return "it computes more than the x of a contraction";
        made = fuse_row_size(f, hir_value_ref(y));
        *contraction = only_contraction(f, y, group);
        if (*contraction == HIR_NONE) return "its result has uses other than one contraction";
    }
    if (made && bytes_read(f, group) / made > MOST_PROLOGUE)
        return "every thread would read too many rows for each row of x";
    return NULL;
}

/* Turns row programs that compute only the x of one contraction into its prologue. */
static void place_prologues(fuse *f) {
    size_t kept = 0;
    f->seen = hd_new_array(f->c->scratch, uint32_t, f->m->values.n);
    for (size_t k = 0; k < f->kernels.n; k++) {
        uint32_t group = f->kernels.at[k], contraction;
        f->kernels.at[kept++] = group;
        if (f->groups.at[group].kind != FUSE_ROW) continue;
        const char *why_not = prologue(f, group, &contraction);
        hir_id first = f->groups.at[group].ops.at[0];
        if (why_not && contraction != HIR_NONE)
            hir_remark_add(f->c, false, first, "no prologue of the contraction: %s%s", why_not,
                           fuse_through_memory(f, f->groups.at[contraction].x));
        if (why_not) continue;
        hir_remark_add(f->c, true, first, "becomes a prologue of the contraction");
        kept--;
        fuse_group *g = &f->groups.at[contraction];
        HD_VEC(hir_id) ops = {0};
        for (size_t i = 0; i < f->groups.at[group].ops.n; i++) {
            hd_push(f->c->scratch, &ops, f->groups.at[group].ops.at[i]);
            f->node[ops.at[i]].group = contraction;
        }
        for (size_t i = 0; i < g->ops.n; i++)
            hd_push(f->c->scratch, &ops, g->ops.at[i]);
        g->ops.n = 0;
        for (size_t i = 0; i < ops.n; i++)
            hd_push(f->c->scratch, &g->ops, ops.at[i]);
    }
    f->kernels.n = kept;
}

void fuse_make_groups(fuse *f) {
    fill_groups(f);
    place_prologues(f);
}
