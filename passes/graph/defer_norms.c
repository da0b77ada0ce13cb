/* defer-norms: a norm before linear ops of few outputs is applied to their outputs.
 *
 * Needs    a graph, also with depth ops; before fold-weights, which derives the new weights.
 * Does     The factor of a norm is the same for all elements of a row, so it can be applied before
 *          or after a linear op:
 *
 *              W (x r g) = r ((W g) x)      r = 1 / sqrt(mean(x^2) + eps), g the gain
 *
 *          Where linear ops with few outputs and many inputs are the only users of the normed row,
 *          and x has other users, the normed row is not computed: N elements are scaled instead of
 *          K, and g is multiplied into the weights when they are packed. All linear ops of the same
 *          row become one, W = [W1; W2; ..].
 * Leaves   wide matrices; weights with other users, or that are not to be stored as f32 (W g would
 *          be rounded instead of W); an x that only the norm reads: then storing the normed row
 *          costs no more. W x must not overflow: it does not for rows of up to 1e30.
 */
#include "passes/depth/depth.h"
#include "passes/weight_types.h"

enum { LEAST_RATIO = 32 }; /* inputs per output */

typedef struct reader { /* a linear op that reads a normed row */
    hir_id op;
    struct reader *next;
} reader;

typedef struct deferrer {
    hir_pass_context *c;
    hir_module *m;
    uint32_t *reads, *weight_reads; /* by value, by weight: number of uses */
    reader **maps;                  /* by value: the linear ops that read it, in order */
    pass_forward forward;
} deferrer;

/* ---- which norms ----------------------------------------------------------------------------- */
static bool is_stored_as_f32(const deferrer *d, const hir_weight *w) {
    const hir_compile_options *o = d->c->options;
    if (hir_is_derived(w) || w->type.dtype != HIR_F32 || o->matrix_dtype != HIR_F32) return false;
    for (size_t i = 0; i < o->n_weight_rules; i++)
        if (hir_rule_matches(&o->weight_rules[i], w->name)) return false;
    return true;
}

/* Is it [T, K] times a weight [N, K], with a weight as bias or without a bias? */
static bool is_map(const deferrer *d, hir_id op) {
    const hir_op *o = hir_op_at(d->m, op);
    if (o->code != HIR_LINEAR_OP || o->args[1].kind != HIR_REF_WEIGHT) return false;
    const hir_ref bias = pass_arg(d->m, op, 2);
    const hir_type x = hir_ref_type(d->m, o->args[0]);
    return x.rank == 2 && x.dim[0] == HIR_T && bias.kind != HIR_REF_VALUE;
}

static void note_reads(deferrer *d, hir_id op) {
    const hir_op *o = hir_op_at(d->m, op);
    for (uint32_t i = 0; i < o->n_args; i++) {
        if (o->args[i].kind == HIR_REF_VALUE) d->reads[o->args[i].index]++;
        if (o->args[i].kind == HIR_REF_WEIGHT) d->weight_reads[o->args[i].index]++;
    }
    if (!is_map(d, op) || o->args[0].kind != HIR_REF_VALUE) return;
    reader **last = &d->maps[o->args[0].index];
    while (*last)
        last = &(*last)->next;
    *last = hd_new(d->c->scratch, reader);
    **last = (reader){.op = op};
}

static hir_type matrix_of(const deferrer *d, const reader *r) {
    return hir_ref_type(d->m, pass_arg(d->m, r->op, 1));
}

/* Does x, or the value of which x is a view, have other users? */
static bool has_other_readers(const deferrer *d, hir_ref x) {
    hir_id view = pass_def_if(d->m, x, HIR_RESHAPE_OP);
    while (view != HIR_NONE && d->reads[x.index] == 1) {
        x = pass_arg(d->m, view, 0);
        view = pass_def_if(d->m, x, HIR_RESHAPE_OP);
    }
    return x.kind == HIR_REF_VALUE && d->reads[x.index] > 1;
}

/* Are all users of the norm linear ops that together have few outputs? */
static bool is_candidate(const deferrer *d, hir_id norm) {
    const hir_id value = hir_result(d->m, norm);
    int64_t outputs = 0;
    uint32_t n = 0;
    if (!d->maps[value]) return false;
    const int64_t inputs = matrix_of(d, d->maps[value]).dim[1];
    for (const reader *r = d->maps[value]; r; r = r->next, n++)
        outputs += matrix_of(d, r).dim[0];
    return n == d->reads[value] && inputs / LEAST_RATIO >= outputs;
}

/* Why a candidate is not deferred; NULL: it can be. */
static const char *why_not(const deferrer *d, hir_id norm) {
    const reader *maps = d->maps[hir_result(d->m, norm)];
    const hir_ref gain = pass_arg(d->m, norm, 1);
    hir_type all = matrix_of(d, maps);
    all.dim[0] = 0;
    if (gain.kind == HIR_REF_VALUE) return "its gain is computed";
    if (hir_arg_type(d->m, norm, 0).dtype != HIR_F32) return "its rows are not f32";
    for (const reader *r = maps; r; r = r->next) {
        const uint32_t w = pass_arg(d->m, r->op, 1).index;
        if (!is_stored_as_f32(d, &d->m->weights.at[w]))
            return "a matrix is not stored as f32, so that its product with the gain would be "
                   "rounded";
        if (d->weight_reads[w] > 1) return "a matrix has other readers";
        all.dim[0] += matrix_of(d, r).dim[0];
    }
    return hir_fits_narrow(all) ? NULL : "the matrix would not be stored as a narrow one";
}

/* Can the norm be deferred? Only candidates that cannot leave a remark. */
static bool can_wait(const deferrer *d, hir_id norm) {
    if (!is_candidate(d, norm)) return false;
    const char *why = why_not(d, norm);
    const bool others = has_other_readers(d, pass_arg(d->m, norm, 0));
    const long long bytes = 4 * hir_arg_type(d->m, norm, 0).dim[1];
    if (!others)
        hir_remark_add(
            d->c, false, norm,
            "applied before the linear ops: nothing else reads the row, which would have "
            "to be written in place of the normed one, so that nothing would have been "
            "gained");
    else if (why)
        hir_remark_add(
            d->c, false, norm,
            "applied before the linear ops: %s; %lld bytes of each token are written for "
            "it",
            why, bytes);
    return others && !why;
}

/* ---- the rewrite ----------------------------------------------------------------------------- */
/* The matrices W g of all linear ops, joined along their rows. */
static hir_ref joined_matrix(deferrer *d, hir_builder *b, const reader *maps, hir_ref gain) {
    HD_VEC(hir_ref) parts = {0};
    for (const reader *r = maps; r; r = r->next) {
        hir_ref w = pass_arg(d->m, r->op, 1);
        if (depth_is_given(gain)) w = hir_emit2(b, HIR_MUL_OP, w, gain);
        if (!depth_is_given(w)) return w;
        hd_push(d->c->scratch, &parts, w);
    }
    const hir_attr axis = hir_int(HIR_A_AXIS, 0);
    return parts.n == 1 ? parts.at[0]
                        : hir_emit(b, HIR_CONCAT_OP, parts.at, (uint32_t)parts.n, &axis, 1);
}

/* Columns [at, at + n) of y, plus the bias of that linear op. */
static hir_ref part_of(deferrer *d, hir_builder *b, hir_ref y, int64_t at, const reader *r) {
    const int64_t n = matrix_of(d, r).dim[0];
    const hir_ref bias = pass_arg(d->m, r->op, 2);
    const hir_attr attrs[] = {hir_int(HIR_A_AXIS, 1), hir_int(HIR_A_START, at),
                              hir_int(HIR_A_LENGTH, n)};
    if (n < hir_ref_type(d->m, y).dim[1]) y = hir_emit(b, HIR_SLICE_OP, &y, 1, attrs, 3);
    return depth_is_given(y) && depth_is_given(bias) ? hir_emit2(b, HIR_ADD_OP, y, bias) : y;
}

static bool defer(deferrer *d, hir_id norm) {
    const reader *maps = d->maps[hir_result(d->m, norm)];
    const hir_ref x = pass_arg(d->m, norm, 0), gain = pass_arg(d->m, norm, 1);
    hir_builder b = hir_before(d->m, d->c->diags, norm);
    const hir_attr eps = hir_float(HIR_A_EPS, hir_attr_float(hir_op_at(d->m, norm), HIR_A_EPS, 0));
    const hir_ref w = joined_matrix(d, &b, maps, gain);
    if (!depth_is_given(w)) return false;
    hir_ref y = hir_emit(&b, HIR_LINEAR_OP, (hir_ref[]){x, w, hir_no_ref()}, 3, NULL, 0);
    const hir_ref factor = hir_emit(&b, HIR_DEPTH_INVERSE_RMS_OP, &x, 1, &eps, 1);
    if (!depth_is_given(y) || !depth_is_given(factor)) return false;
    y = hir_emit2(&b, HIR_MUL_OP, y, factor);
    int64_t at = 0;
    for (const reader *r = maps; r && depth_is_given(y); r = r->next) {
        const hir_ref part = part_of(d, &b, y, at, r);
        if (!depth_is_given(part)) return false;
        pass_forward_op(&d->forward, d->m, r->op, part);
        at += matrix_of(d, r).dim[0];
    }
    hir_remark_add(d->c, true, norm,
                   "applied after the linear ops: %lld number%s to scale, not %lld", (long long)at,
                   hd_s((uint64_t)at), (long long)hir_ref_type(d->m, x).dim[1]);
    d->c->changed = true;
    return depth_is_given(y);
}

bool pass_defer_norms(hir_pass_context *c) {
    deferrer d = {.c = c, .m = c->m, .forward = {.arena = c->scratch}};
    d.reads = hd_new_array(c->scratch, uint32_t, c->m->values.n);
    d.weight_reads = hd_new_array(c->scratch, uint32_t, c->m->weights.n);
    d.maps = hd_new_array(c->scratch, reader *, c->m->values.n);
    HIR_EACH(d.m, op, d.m->first) note_reads(&d, op);
    HIR_EACH(d.m, op, d.m->first) {
        if (hir_op_at(d.m, op)->code == HIR_RMSNORM_OP && can_wait(&d, op) && !defer(&d, op))
            return false;
    }
    pass_forward_finish(&d.forward, d.m);
    return true;
}
