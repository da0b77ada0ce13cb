/* shard-tensor: one module for P ranks that share each layer.
 *
 * Needs    whole values, at the depth stage or before; `ranks` in the options (1: nothing is done).
 * Does     divides heads, features of feed-forward layers and the vocabulary over ranks, with the
 *          weights, caches and recurrent states that belong to them (shard_find.c says which). All
 *          else that is local to a token's row is done for the rows of one rank: the residual
 *          stream, norms, depth mixes and their stored sources. Where the two kinds of division
 *          touch, rows are gathered before a contraction whose outputs are divided, and the partial
 *          sums after one whose inputs are divided are scattered; both where the value that is sent
 *          is smallest, which is the normed row before the first and the sublayer's output after
 *          the last.
 * Leaves   what reads other tokens of the sequence and cannot be divided: each rank does it for all
 *          rows, and a remark says why. No residual system is named: a value is divided as its
 *          users need it.
 *
 * It works on what the depth passes have decided, so that none of them has to know of ranks.
 */
#include <string.h>

#include "passes/shard/shard.h"

/* Where the elements of a value with tokens are. */
typedef enum where {
    SAME,  /* it has no tokens: the same on every rank, or a share of that */
    ALL,   /* all rows on every rank */
    ROWS,  /* the rows of this rank */
    SHARE, /* all rows, of each the share of this rank */
    SUMS,  /* all rows; the sum over ranks is meant */
} where;

typedef enum role { PLAIN, DIVIDED, BEGINS, ENDS } role;

typedef struct op_plan {
    role role;
    shard_axis *of; /* DIVIDED: by operand */
} op_plan;

typedef struct rewriter {
    shard *s;
    hir_pass_context *c;
    hir_module *m;
    size_t n_values; /* before values were made here */
    hir_type *whole; /* by value: its type on one machine */
    where *at;       /* by value */
    bool *cheap;     /* by value: made of tables of positions and constants, on every rank */
    bool *leaves;    /* by value: an output or a trace reads it */
    hir_ref *rows, *all, *share; /* by value: it in another place; none: not made yet */
    op_plan *plan;               /* by op */
    uint32_t gathers, scatters;
    bool failed;
} rewriter;

/* ---- what each op does, before any type changes ---------------------------------------------- */

static bool is_leaving(const hir_op *o) {
    return o->code == HIR_OUTPUT_OP || o->code == HIR_TRACE_OP;
}

static void plan_op(rewriter *w, hir_id op) {
    const hir_op *o = hir_op_at(w->m, op);
    op_plan *p = &w->plan[op];
    for (uint32_t i = 0; is_leaving(o) && i < o->n_args; i++)
        if (o->args[i].kind == HIR_REF_VALUE) w->leaves[o->args[i].index] = true;
    if (w->s->is_end[op]) p->role = ENDS;
    if (o->n_results != 1 || hir_is_kernel(o)) return;
    const shard_slot *slot = shard_slot_of(w->s, o->results[0]);
    if (!slot) return;
    p->role = w->s->is_begin[op] ? BEGINS : DIVIDED;
    p->of = hd_new_array(w->c->scratch, shard_axis, SHARD_MAX_ARGS);
    if (p->role == DIVIDED) shard_axes(w->m, op, slot->axis, p->of);
}

/* ---- a value in another place ---------------------------------------------------------------- */

static hir_ref emit(rewriter *w, hir_id before, hir_opcode code, hir_ref x, const hir_attr *attrs,
                    uint32_t n) {
    hir_builder b = hir_before(w->m, w->c->diags, before);
    const hir_ref y = hir_emit(&b, code, &x, 1, attrs, n);
    w->failed |= y.kind == HIR_REF_NONE;
    return y;
}

static uint32_t share_attrs(const rewriter *w, hir_id value, bool gather, hir_attr out[5]) {
    const shard_part *p = w->s->part_of[value];
    const shard_slot *slot = &p->slots.at[w->s->slot_of[value]];
    const hd_share share = shard_share(p, slot);
    uint32_t n = 0;
    out[n++] = hir_int(HIR_A_AXIS, slot->axis);
    out[n++] = hir_int(HIR_A_GROUPS, share.groups);
    out[n++] = hir_int(HIR_A_UNITS, share.units);
    out[n++] = hir_string(HIR_A_PAD, "repeat");
    if (gather) out[n++] = hir_int(HIR_A_LENGTH, w->whole[value].dim[slot->axis]);
    return n;
}

/* The option rounds rows that matrices read, not those that leave the program. */
static hir_ref gather_rows(rewriter *w, hir_id before, hir_ref x, bool narrow) {
    const hir_dtype own = hir_ref_type(w->m, x).dtype;
    const bool bf16 =
        own == HIR_BF16 || (own == HIR_F32 && narrow && w->c->options->gather_dtype == HIR_BF16);
    const hir_attr dtype = hir_string(HIR_A_DTYPE, "bf16");
    w->gathers++;
    return emit(w, before, HIR_COMM_ALL_GATHER_OP, x, &dtype, bf16);
}

static hir_ref all_of(rewriter *w, hir_id before, hir_id v);

/* Makes a constant again, with the rows or the share that are needed; none: the value is no
 * constant. */
static hir_ref constant(rewriter *w, hir_id before, hir_id v, hir_type t) {
    const hir_id op = hir_value_at(w->m, v)->op;
    if (op == HIR_NONE || hir_op_at(w->m, op)->code != HIR_CONST_OP) return hir_no_ref();
    const hir_attr attrs[] = {hir_ints(HIR_A_SHAPE, t.dim, t.rank),
                              *hir_find_attr(hir_op_at(w->m, op), HIR_A_VALUE)};
    hir_builder b = hir_before(w->m, w->c->diags, before);
    const hir_ref y = hir_emit(&b, HIR_CONST_OP, NULL, 0, attrs, 2);
    w->failed |= y.kind == HIR_REF_NONE;
    return y;
}

static hir_ref rows_of(rewriter *w, hir_id before, hir_id v) {
    const hir_ref x = hir_value_ref(v);
    if (w->at[v] == SAME || w->at[v] == ROWS) return x;
    if (w->rows[v].kind != HIR_REF_NONE) return w->rows[v];
    hir_type t = hir_value_at(w->m, v)->type;
    t.dim[0] = hir_t_over(w->m->ranks);
    w->rows[v] = constant(w, before, v, t);
    if (w->rows[v].kind != HIR_REF_NONE) return w->rows[v];
    w->scatters += w->at[v] == SUMS;
    if (w->at[v] == SUMS)
        w->rows[v] = emit(w, before, HIR_COMM_REDUCE_SCATTER_OP, x, NULL, 0);
    else
        w->rows[v] = emit(w, before, HIR_COMM_PART_OP, all_of(w, before, v), NULL, 0);
    return w->rows[v];
}

static hir_ref all_of(rewriter *w, hir_id before, hir_id v) {
    hir_attr attrs[5];
    const hir_ref x = hir_value_ref(v);
    if (w->at[v] == SAME || w->at[v] == ALL) return x;
    if (w->all[v].kind != HIR_REF_NONE) return w->all[v];
    if (w->at[v] == SHARE) {
        const uint32_t n = share_attrs(w, v, true, attrs);
        w->gathers++;
        w->all[v] = emit(w, before, HIR_COMM_ALL_GATHER_OP, x, attrs, n);
    } else {
        w->all[v] = gather_rows(w, before, rows_of(w, before, v), !w->leaves[v]);
    }
    return w->all[v];
}

static hir_ref share_of(rewriter *w, hir_id before, hir_id v) {
    hir_attr attrs[5];
    if (shard_slot_of(w->s, v)) return hir_value_ref(v);
    if (w->share[v].kind != HIR_REF_NONE) return w->share[v];
    const uint32_t n = share_attrs(w, v, false, attrs);
    w->share[v] = emit(w, before, HIR_COMM_PART_OP, all_of(w, before, v), attrs, n);
    return w->share[v];
}

/* ---- operands and types ---------------------------------------------------------------------- */

static bool is_old(const rewriter *w, hir_ref r) {
    return r.kind == HIR_REF_VALUE && r.index < w->n_values;
}

static void set_arg(rewriter *w, hir_id op, uint32_t i, hir_ref to) {
    hir_op_at(w->m, op)->args[i] = to;
}

static void take_all(rewriter *w, hir_id op, uint32_t i) {
    const hir_ref x = pass_arg(w->m, op, i);
    if (is_old(w, x)) set_arg(w, op, i, all_of(w, op, x.index));
}

static void take_rows(rewriter *w, hir_id op) {
    for (uint32_t i = 0; i < hir_op_at(w->m, op)->n_args; i++) {
        const hir_ref x = pass_arg(w->m, op, i);
        if (is_old(w, x)) set_arg(w, op, i, rows_of(w, op, x.index));
    }
}

/* Sets the shape attribute of an op: with the rows of a rank, or a share of its axis. */
static void set_shape(rewriter *w, hir_id op, where at) {
    const hir_attr *shape = hir_find_attr(hir_op_at(w->m, op), HIR_A_SHAPE);
    int64_t dims[HIR_MAX_RANK];
    if (!shape || !shape->n) return;
    memcpy(dims, shape->ints, shape->n * sizeof *dims);
    if (at == ROWS && dims[0] == HIR_T) dims[0] = hir_t_over(w->m->ranks);
    const hir_id v = hir_result(w->m, op);
    const shard_slot *slot = shard_slot_of(w->s, v);
    if (slot) {
        hd_share share = shard_share(w->s->part_of[v], slot);
        share.whole = dims[slot->axis];
        dims[slot->axis] = hd_local_elements(&share);
    }
    hir_set_attr(w->m, op, hir_ints(HIR_A_SHAPE, dims, shape->n));
}

/* Sets the type of the result to the type that the operands now give. */
static void finish_op(rewriter *w, hir_id op, where at) {
    hir_type t;
    if (w->failed || !hir_op_at(w->m, op)->n_results) return;
    const hir_id v = hir_result(w->m, op);
    set_shape(w, op, at);
    w->at[v] = hir_type_has_t(hir_value_at(w->m, v)->type) ? at : SAME;
    if (hir_infer(w->m, hir_op_at(w->m, op), w->c->diags, &t))
        hir_value_at(w->m, v)->type = t;
    else
        w->failed = true;
}

/* ---- ops that are not divided ---------------------------------------------------------------- */

static bool has_rows(const rewriter *w, hir_ref r) {
    return r.kind == HIR_REF_VALUE && hir_type_has_t(hir_ref_type(w->m, r));
}

static bool is_sum(const rewriter *w, hir_ref r) {
    return is_old(w, r) && w->at[r.index] == SUMS && w->s->uses.count[r.index] == 1;
}

/* Is the op's result the sum over ranks of what it computes from partial sums? Of a product only
 * one factor may be partial sums, and the other must be on all ranks, which it is where it is much
 * smaller. */
static bool keeps_sums(const rewriter *w, hir_id op) {
    const hir_op *o = hir_op_at(w->m, op);
    uint32_t sums = 0;
    for (uint32_t i = 0; i < o->n_args; i++)
        sums += is_sum(w, o->args[i]);
    switch ((int)o->code) {
    case HIR_ADD_OP:
    case HIR_SUB_OP:
    case HIR_STACK_OP:
    case HIR_CONCAT_OP: return sums == o->n_args;
    case HIR_NEG_OP:
    case HIR_RESHAPE_OP:
    case HIR_TRANSPOSE_OP:
    case HIR_SLICE_OP:
    case HIR_REDUCE_SUM_OP:
    case HIR_REDUCE_MEAN_OP: return sums == 1;
    case HIR_MUL_OP: {
        if (sums != 1) return false;
        const bool second = is_sum(w, o->args[1]);
        const hir_ref x = o->args[second], factor = o->args[!second];
        return !has_rows(w, factor) || pass_elements(hir_ref_type(w->m, factor)) * 4 <=
                                           pass_elements(hir_ref_type(w->m, x));
    }
    default: return false;
    }
}

static bool all_cheap(const rewriter *w, hir_id op) {
    const hir_op *o = hir_op_at(w->m, op);
    for (uint32_t i = 0; i < o->n_args; i++)
        if (has_rows(w, o->args[i]) && !(is_old(w, o->args[i]) && w->cheap[o->args[i].index]))
            return false;
    return true;
}

/* Do the ranks have logits that lie side by side in the row, made by a contraction, which can end
 * with the parts of a loss? Others are gathered. */
static bool has_parts(const rewriter *w, hir_id op) {
    const hir_ref logits = pass_arg(w->m, op, 0);
    const shard_slot *slot = is_old(w, logits) ? shard_slot_of(w->s, logits.index) : NULL;
    if (!slot) return false;
    const hd_share share = shard_share(w->s->part_of[logits.index], slot);
    hir_id by = pass_def(w->m, logits);
    while (by != HIR_NONE && hir_has_trait(hir_op_at(w->m, by)->code, HIR_ELEMENTWISE)) {
        const hir_op *o = hir_op_at(w->m, by);
        uint32_t i = 0;
        while (i + 1 < o->n_args &&
               !(is_old(w, o->args[i]) && shard_slot_of(w->s, o->args[i].index)))
            i++;
        by = pass_def(w->m, o->args[i]);
    }
    return by != HIR_NONE && w->plan[by].role == BEGINS &&
           hir_op_at(w->m, by)->code == HIR_LINEAR_OP && share.units == 1 &&
           share.ranks <= share.groups && hir_ref_type(w->m, logits).dim[1] >= HIR_PANEL;
}

/* The op becomes the merge of what all ranks find in their shares of the logits. */
static void rewrite_loss(rewriter *w, hir_id op) {
    const hir_ref logits = pass_arg(w->m, op, 0), targets = pass_arg(w->m, op, 1);
    const hir_attr attrs[] = {hir_int(HIR_A_LENGTH, HIR_HEAD_PANELS * HIR_PANEL),
                              hir_int(HIR_A_WHOLE, w->whole[logits.index].dim[1])};
    const hir_ref args[] = {logits, all_of(w, op, targets.index)};
    hir_builder b = hir_before(w->m, w->c->diags, op);
    const hir_ref parts = hir_emit(&b, HIR_CROSS_ENTROPY_PARTS_OP, args, 2, attrs, 2);
    w->failed |= parts.kind == HIR_REF_NONE;
    if (w->failed) return;
    const int64_t n = hir_ref_type(w->m, parts).dim[2] * w->m->ranks;
    const hir_attr gather[] = {hir_int(HIR_A_AXIS, 2), hir_int(HIR_A_GROUPS, n),
                               hir_int(HIR_A_LENGTH, n)};
    const hir_ref all = emit(w, op, HIR_COMM_ALL_GATHER_OP, parts, gather, 3);
    if (w->failed) return;
    w->gathers++;
    hir_op *o = hir_op_at(w->m, op);
    o->code = HIR_CROSS_ENTROPY_MERGE_OP;
    o->args[0] = all, o->n_args = 1;
    finish_op(w, op, ALL);
}

static void rewrite_plain(rewriter *w, hir_id op) {
    const hir_op *o = hir_op_at(w->m, op);
    const bool leaves = is_leaving(o);
    const bool sequence = hir_has_trait(o->code, HIR_POSITION | HIR_SEQUENCE);
    const uint32_t n = o->n_args;
    where at = ROWS;
    bool cheap = false;
    if (o->code == HIR_COMM_RECV_OP || o->code == HIR_COMM_SEND_OP) {
        take_rows(w, op); /* pipeline stages send the rows of a rank */
    } else if (leaves || sequence) {
        at = ALL;
        cheap = hir_has_trait(o->code, HIR_PURE_CONST);
        for (uint32_t i = 0; i < n; i++)
            take_all(w, op, i);
    } else if (keeps_sums(w, op)) {
        at = SUMS;
        for (uint32_t i = 0; i < n; i++)
            if (is_old(w, pass_arg(w->m, op, i)) && !is_sum(w, pass_arg(w->m, op, i)))
                take_all(w, op, i);
    } else if (all_cheap(w, op)) {
        at = ALL;
        cheap = true;
    } else {
        take_rows(w, op);
    }
    finish_op(w, op, at);
    if (hir_op_at(w->m, op)->n_results) w->cheap[hir_result(w->m, op)] = cheap;
}

static void rewrite(rewriter *w, hir_id op) {
    const op_plan *p = &w->plan[op];
    const uint32_t n = hir_op_at(w->m, op)->n_args;
    if (p->role == PLAIN) {
        if (hir_op_at(w->m, op)->code == HIR_CROSS_ENTROPY_OP && has_parts(w, op))
            rewrite_loss(w, op);
        else
            rewrite_plain(w, op);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        const hir_ref x = pass_arg(w->m, op, i);
        const bool divided = p->role == ENDS ? i == 0 : p->role == DIVIDED && p->of[i].axis >= 0;
        if (!is_old(w, x)) continue;
        if (divided)
            set_arg(w, op, i, share_of(w, op, x.index));
        else
            take_all(w, op, i);
    }
    finish_op(w, op, p->role == ENDS ? SUMS : SHARE);
}

/* ---- weights and states ---------------------------------------------------------------------- */

typedef struct request { /* an operand that needs a share of a weight */
    uint32_t weight, dim, arg;
    hir_id op;
    hd_share share;
} request;

typedef struct requests {
    HD_VEC(request) list;
} requests;

static hd_share share_for(const rewriter *w, const shard_part *p, const shard_slot *slot) {
    hd_share share = shard_share(p, slot);
    share.whole = hir_ref_type(w->m, slot->ref).dim[slot->axis];
    share.repeat = !slot->zero;
    return share;
}

/* The bias of partial sums is added by rank 0 alone. */
static void request_bias(rewriter *w, hir_id op, requests *r) {
    const hir_op *o = hir_op_at(w->m, op);
    if (!hir_is_linear(o->code)) return;
    const uint32_t arg = hir_bias_of(o->code);
    if (pass_arg(w->m, op, arg).kind != HIR_REF_WEIGHT) return;
    const uint32_t weight = o->args[arg].index, dim = o->code != HIR_LINEAR_OP;
    const hd_share once = {w->m->ranks, w->m->weights.at[weight].type.dim[dim], 1, 1, false};
    hd_push(w->c->scratch, &r->list, ((request){weight, dim, arg, op, once}));
}

static void collect(rewriter *w, requests *r) {
    for (size_t i = 0; i < w->s->parts.n; i++) {
        const shard_part *p = w->s->parts.at[i];
        for (size_t k = 0; k < p->slots.n; k++) {
            const shard_slot *slot = &p->slots.at[k];
            const hd_share share = share_for(w, p, slot);
            if (slot->ref.kind == HIR_REF_STATE)
                w->m->states.at[slot->ref.index].type.dim[slot->axis] = hd_local_elements(&share);
            if (slot->ref.kind == HIR_REF_WEIGHT)
                hd_push(w->c->scratch, &r->list,
                        ((request){slot->ref.index, slot->axis, slot->arg, slot->op, share}));
        }
        for (size_t k = 0; k < p->ends.n; k++)
            request_bias(w, p->ends.at[k], r);
    }
}

static bool same_share(const request *a, const request *b) {
    return a->dim == b->dim && a->share.groups == b->share.groups &&
           a->share.units == b->share.units && a->share.repeat == b->share.repeat;
}

/* Adds a weight of its own with the same elements. */
static uint32_t copy_of_weight(rewriter *w, uint32_t weight) {
    const hir_weight from = w->m->weights.at[weight];
    const hir_derived_factor factor = {.name = from.name};
    const hir_derived_row row = {1, (hir_derived_factor *)&factor};
    const char *name = hd_printf(w->c->scratch, "%s.share", from.name);
    for (int i = 2; hir_find_weight(w->m, name) != HIR_NONE; i++)
        name = hd_printf(w->c->scratch, "%s.share%d", from.name, i);
    if (hir_is_derived(&from))
        return hir_add_derived_weight(w->m, name, from.type, from.rows, from.n_rows, from.loc);
    return hir_add_derived_weight(w->m, name, from.type, &row, 1, from.loc);
}

/* How many operands read each weight. */
static uint32_t *count_reads(const rewriter *w) {
    uint32_t *reads = hd_new_array(w->c->scratch, uint32_t, w->m->weights.n);
    HIR_EACH(w->m, op, w->m->first) {
        const hir_op *o = hir_op_at(w->m, op);
        for (uint32_t i = 0; i < o->n_args; i++)
            if (o->args[i].kind == HIR_REF_WEIGHT) reads[o->args[i].index]++;
    }
    return reads;
}

/* Makes the share for the first of several requests for the same one; the others use it, too. */
static void divide_weight(rewriter *w, const requests *r, size_t i, const uint32_t *next,
                          uint32_t reads) {
    const request *q = &r->list.at[i];
    hir_ref *arg = &hir_op_at(w->m, q->op)->args[q->arg];
    uint32_t same = 0;
    for (size_t k = i; k != HIR_NONE; k = next[k])
        same += same_share(&r->list.at[k], q);
    if (same != reads) *arg = hir_weight_ref(copy_of_weight(w, q->weight));
    hir_shard_weight(&w->m->weights.at[arg->index], q->dim, q->share);
    for (size_t k = next[i]; k != HIR_NONE; k = next[k])
        if (same_share(&r->list.at[k], q))
            hir_op_at(w->m, r->list.at[k].op)->args[r->list.at[k].arg] = *arg;
}

/* A weight of which all readers need the same share becomes that share. Where they need different
 * ones, as with a table that is embedding and head, each reader has its own. */
static bool divide_weights(rewriter *w, const requests *r) {
    const size_t weights = w->m->weights.n, n = r->list.n;
    const uint32_t *reads = count_reads(w);
    uint32_t *first = hd_new_array(w->c->scratch, uint32_t, weights);
    uint32_t *next = hd_new_array(w->c->scratch, uint32_t, n); /* request for the same weight */
    memset(first, 0xff, weights * sizeof *first);
    for (size_t i = n; i-- > 0;) {
        const hir_weight *of = &w->m->weights.at[r->list.at[i].weight];
        next[i] = first[r->list.at[i].weight];
        first[r->list.at[i].weight] = (uint32_t)i;
        if (!of->stacked || reads[r->list.at[i].weight] == 1) continue;
        hd_err(w->c->diags, HD_E_UNSUPPORTED, of->loc,
               "the stacked weight @%s is read by several ops, and ranks cannot share it",
               of->name);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        bool made = false;
        for (size_t k = first[r->list.at[i].weight]; k != i; k = next[k])
            made |= same_share(&r->list.at[k], &r->list.at[i]);
        if (!made) divide_weight(w, r, i, next, reads[r->list.at[i].weight]);
    }
    return true;
}

/* ---- the number of tokens from which on rows are divided ------------------------------------- */

/* The bytes that memory moves in the time of one more collective: 20 us at 13 GB/s. */
enum { COLLECTIVE_BYTES = 1 << 18 };

/* Bytes of a token that a rank does not move where what is local to rows is divided. */
static uint64_t bytes_divided(const rewriter *w) {
    const uint64_t ranks = w->m->ranks;
    uint64_t row = 0;
    for (size_t v = 0; v < w->n_values; v++)
        if (w->at[v] == ROWS) row += (uint64_t)pass_elements(hir_value_at(w->m, (hir_id)v)->type);
    return row * 8 * (ranks - 1) / ranks;
}

/* Few tokens: the alternative, columns over ranks, is not implemented (docs/decisions/sharding.md).
 */
static void remark_columns(const rewriter *w) {
    hir_remark_add(
        w->c, false, HIR_NONE,
        "calls of fewer tokens than that have all rows on all ranks: columns over ranks "
        "would save each %llu bytes of a token, and wait for %u message%s more at least, "
        "of norms' sums",
        (unsigned long long)bytes_divided(w), w->scatters, hd_s(w->scatters));
}

/* With rows divided, a rank does a P-th of what is local to rows, and each gathered value is a
 * collective; with all rows on all ranks there are no such collectives. The result is never more
 * tokens than a rank has rows of a whole chunk, for which there is memory anyway. */
static int64_t rows_divided_from(const rewriter *w) {
    const int64_t ranks = w->m->ranks;
    const uint64_t saved = bytes_divided(w) + 1;
    const int64_t tokens = (int64_t)((uint64_t)w->gathers * COLLECTIVE_BYTES / saved);
    const int64_t chunk = w->c->options->chunk > 0 ? w->c->options->chunk : 512;
    const int64_t most = chunk / ranks > ranks ? chunk / ranks : ranks;
    return tokens < ranks ? ranks : tokens > most ? most : tokens;
}

static void *by_value(const rewriter *w, size_t size) {
    return hd_alloc(w->c->scratch, w->n_values, size);
}

static bool is_set_up(const hir_pass_context *c) {
    if (c->options->ranks <= 1) return false;
    if (c->m->ranks) {
        hir_remark_add((hir_pass_context *)c, false, HIR_NONE, "the module is sharded already");
        return false;
    }
    return true;
}

bool pass_shard_tensor(hir_pass_context *c) {
    if (!is_set_up(c)) return true;
    if (c->options->ranks > HIR_MAX_RANKS) {
        hd_err(c->diags, HD_E_VALUE, HD_NOWHERE, "%lld ranks are too many; %d is the most",
               (long long)c->options->ranks, HIR_MAX_RANKS);
        return false;
    }
    if (!shard_split_contractions(c)) return false;
    shard s = {.c = c, .m = c->m, .uses = hir_compute_uses(c->m, c->scratch)};
    rewriter w = {.s = &s, .c = c, .m = c->m, .n_values = c->m->values.n};
    requests r = {0};
    c->m->ranks = (uint32_t)c->options->ranks;
    c->m->divide_from =
        c->options->divide_from > c->options->ranks ? c->options->divide_from : c->options->ranks;
    shard_find_parts(&s);
    w.whole = by_value(&w, sizeof *w.whole);
    for (size_t v = 0; v < w.n_values; v++)
        w.whole[v] = c->m->values.at[v].type;
    w.at = by_value(&w, sizeof *w.at);
    w.cheap = by_value(&w, sizeof *w.cheap);
    w.leaves = by_value(&w, sizeof *w.leaves);
    w.rows = by_value(&w, sizeof *w.rows);
    w.all = by_value(&w, sizeof *w.all);
    w.share = by_value(&w, sizeof *w.share);
    w.plan = hd_new_array(c->scratch, op_plan, c->m->ops.n);
    for (size_t i = 0; i < c->m->inputs.n; i++)
        w.at[c->m->inputs.at[i]] =
            hir_type_has_t(hir_value_at(c->m, c->m->inputs.at[i])->type) ? ALL : SAME;
    HIR_EACH(c->m, op, c->m->first) plan_op(&w, op);
    collect(&w, &r);
    if (!divide_weights(&w, &r)) return false;
    HIR_EACH(c->m, op, c->m->first) {
        if (!w.failed) rewrite(&w, op);
    }
    if (w.failed) return false;
    /* stages have to agree, and see only their own layers */
    if (!c->options->divide_from && c->options->stages <= 1)
        c->m->divide_from = rows_divided_from(&w);
    hir_remark_add(c, true, HIR_NONE,
                   "%zu part%s of layers %s divided over %u ranks; %u value%s gathered and %u "
                   "sum%s scattered for each token, rows being divided from %lld tokens on",
                   s.parts.n, hd_s(s.parts.n), s.parts.n == 1 ? "is" : "are", c->m->ranks,
                   w.gathers, w.gathers == 1 ? " is" : "s are", w.scatters,
                   w.scatters == 1 ? " is" : "s are", (long long)c->m->divide_from);
    remark_columns(&w);
    c->changed = true;
    return true;
}
