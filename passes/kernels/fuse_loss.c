/* fuse, third part: the loss of a model.
 *
 * Needs    kernels, among them one that is nothing but the cross_entropy of the first output, the
 *          logits, made as a rule by a contraction of one matrix with elementwise ops.
 * Does     makes two kernels of it, which run in calls of NAME_loss alone (rows = "loss"): a copy of
 *          the contraction, which gives cross_entropy.parts in place of logits, and a row program
 *          that merges the parts of a row:
 *
 *              M = max m_i    S = sum e^(m_i - M) s_i    loss = ln S + (M - logit of the target)
 *
 *          Four numbers stand for LENGTH logits, and no row of logits is stored. Where another
 *          kernel makes the logits (a row program that leaves out the padding of a vocabulary), it
 *          is copied as it is, and the cross_entropy of the copy's result is taken.
 * Leaves   all other kernels: NAME_forward does what it does without a loss.
 */
#include "passes/kernels/fuse.h"

enum { LENGTH = HIR_HEAD_PANELS * HIR_PANEL }; /* logits of a part */

typedef struct loss {
    hir_pass_context *c;
    hir_module *m;
    hir_id output, kernel, op; /* of the losses; the kernel that reads logits, its cross_entropy */
    hir_id head;               /* makes the logits */
} loss;

static bool reject(const loss *l) {
    hd_diag *e = hd_err(l->c->diags, HD_E_UNSUPPORTED, hir_op_at(l->m, l->output)->loc,
                        "no code can be made for the losses of this model");
    e->cause = "they are computed from what cross_entropy gives";
    e->hint = "let the output " HIR_LOSSES " be the cross_entropy of the logits itself";
    return false;
}

static bool find_loss(loss *l) {
    l->output = hir_loss_output(l->m);
    if (l->output == HIR_NONE) return false;
    l->kernel = pass_def(l->m, pass_arg(l->m, l->output, 0));
    HIR_EACH(l->m, op, hir_op_at(l->m, l->kernel)->body_first)
    if (hir_op_at(l->m, op)->code == HIR_CROSS_ENTROPY_OP) l->op = op;
    return true;
}

/* Why the kernel that makes the logits cannot end with cross_entropy.parts; NULL: it can. */
static const char *why_no_parts(const loss *l) {
    const hir_op *k = l->head == HIR_NONE ? NULL : hir_op_at(l->m, l->head);
    uint32_t linears = 0;
    hir_head_epilogue heads;
    if (!k || !hir_is_kernel(k) || hir_form_of(l->m, l->head) != HIR_FORM_CONTRACTION)
        return "its logits are not made by the kernel of a matrix";
    HIR_EACH(l->m, op, k->body_first) linears += hir_op_at(l->m, op)->code == HIR_LINEAR_OP;
    if (linears != 1 || k->n_results != 1)
        return "the kernel of its logits makes other values, too";
    if (!hir_find_head_epilogue(l->m, l->c->scratch, l->head, &heads) || heads.roots.n ||
        pass_def_if(l->m, pass_arg(l->m, k->body_last, 0), HIR_RESHAPE_OP) != HIR_NONE)
        return "its logits are not made column by column";
    return NULL;
}

/* Can the kernel be copied, so that what the copy makes is for the loss alone? */
static bool can_be_copied(const loss *l) {
    const hir_op *k = l->head == HIR_NONE ? NULL : hir_op_at(l->m, l->head);
    return k && hir_is_kernel(k) && k->n_results == 1 && hir_may_skip_rows(l->m, l->head) &&
           hir_has_form_trait(l->m, l->head, HIR_LAST_ROWS) &&
           hir_type_equal(pass_result_type(l->m, l->head), hir_arg_type(l->m, l->op, 0));
}

/* A kernel before that of the cross_entropy, for the rows of a loss. */
static hir_id new_kernel(const loss *l, hir_kernel_kind kind, hir_type result) {
    hir_attr attrs[PASS_KERNEL_ATTRS];
    pass_kernel_attrs(hir_kind(kind)->name, attrs);
    hir_builder b = hir_before(l->m, l->c->diags, l->kernel);
    b.loc = hir_op_at(l->m, l->op)->loc;
    const hir_id kernel =
        hir_build_kernel(&b, hir_kind(kind)->op, attrs, PASS_KERNEL_ATTRS, &result, 1);
    if (kernel != HIR_NONE)
        hir_set_attr(l->m, kernel, hir_string(HIR_A_ROWS, hir_rows_name(HIR_ROWS_LOSS)));
    return kernel;
}

static hir_ref mapped(const pass_forward *f, hir_ref r) {
    return r.kind == HIR_REF_VALUE ? pass_forward_get(f, r) : r;
}

/* Copies the ops of the head into the body, up to its yield; gives the logits. */
static hir_ref copy_head(const loss *l, hir_builder *body) {
    pass_forward copies = {.arena = l->c->scratch};
    HIR_EACH(l->m, id, hir_op_at(l->m, l->head)->body_first) {
        const hir_op o = *hir_op_at(l->m, id);
        hir_ref *args = hd_new_array(l->c->scratch, hir_ref, o.n_args + 1);
        for (uint32_t i = 0; i < o.n_args; i++)
            args[i] = mapped(&copies, o.args[i]);
        if (o.code == HIR_YIELD_OP) return args[0];
        body->loc = o.loc;
        const hir_ref y = hir_emit(body, o.code, args, o.n_args, o.attrs, o.n_attrs);
        if (y.kind == HIR_REF_NONE) return y;
        pass_forward_set(&copies, o.results[0], y);
    }
    return hir_no_ref();
}

/* The copy of the head, which gives the parts. */
static hir_ref make_parts(const loss *l) {
    const hir_type logits = hir_arg_type(l->m, l->op, 0);
    const int64_t dims[] = {logits.dim[0], HIR_LOSS_PARTS, (logits.dim[1] + LENGTH - 1) / LENGTH};
    const hir_id kernel = new_kernel(l, HIR_KERNEL_CONTRACT, hir_make_type(HIR_F32, 3, dims));
    if (kernel == HIR_NONE) return hir_no_ref();
    hir_builder body = hir_in_body(l->m, l->c->diags, kernel);
    hir_ref args[] = {copy_head(l, &body), pass_arg(l->m, l->op, 1)};
    if (args[0].kind == HIR_REF_NONE) return args[0];
    body.loc = hir_op_at(l->m, l->op)->loc;
    const hir_attr length = hir_int(HIR_A_LENGTH, LENGTH);
    const hir_ref parts = hir_emit(&body, HIR_CROSS_ENTROPY_PARTS_OP, args, 2, &length, 1);
    if (parts.kind == HIR_REF_NONE ||
        hir_build(&body, HIR_YIELD_OP, &parts, 1, NULL, 0) == HIR_NONE)
        return hir_no_ref();
    return hir_value_ref(hir_result(l->m, kernel));
}

/* The copy of a head that is no contraction, which stores its logits. */
static hir_ref make_logits(const loss *l) {
    const hir_kernel_kind kind = hir_kind_of(hir_op_at(l->m, l->head)->code);
    const hir_id kernel = new_kernel(l, kind, pass_result_type(l->m, l->head));
    if (kernel == HIR_NONE) return hir_no_ref();
    hir_builder body = hir_in_body(l->m, l->c->diags, kernel);
    const hir_ref y = copy_head(l, &body);
    if (y.kind == HIR_REF_NONE || hir_build(&body, HIR_YIELD_OP, &y, 1, NULL, 0) == HIR_NONE)
        return hir_no_ref();
    return hir_value_ref(hir_result(l->m, kernel));
}

/* The kernel of the cross_entropy stays, and reads logits: the copy's, or where the head makes other
 * values as well those of the head, of which schedule gives NAME_forward a copy. */
static bool with_logits(const loss *l, const char *why) {
    if (can_be_copied(l)) {
        const hir_ref logits = make_logits(l);
        if (logits.kind == HIR_REF_NONE) return false;
        hir_op_at(l->m, l->op)->args[0] = logits;
    }
    hir_set_attr(l->m, l->kernel, hir_string(HIR_A_ROWS, hir_rows_name(HIR_ROWS_LOSS)));
    hir_remark_add(l->c, false, l->output, "rows of logits are stored for the loss: %s", why);
    return true;
}

/* Value `i` of all parts, [T, parts]. */
static hir_ref part(hir_builder *b, hir_ref parts, int64_t i) {
    const hir_attr attrs[] = {hir_int(HIR_A_AXIS, 1), hir_int(HIR_A_START, i),
                              hir_int(HIR_A_LENGTH, 1)};
    hir_type t = hir_ref_type(b->m, parts);
    const hir_ref x = hir_emit(b, HIR_SLICE_OP, &parts, 1, attrs, 3);
    t.dim[1] = t.dim[2], t.rank = 2;
    return x.kind == HIR_REF_NONE ? x : pass_reshape(b, x, t);
}

static hir_ref sum(hir_builder *b, hir_ref x) {
    return x.kind == HIR_REF_NONE ? x : pass_reduce(b, HIR_REDUCE_SUM_OP, x, 1);
}

static hir_ref merged(hir_builder *b, hir_ref parts) {
    const hir_ref m = part(b, parts, HIR_LOSS_MOST), s = part(b, parts, HIR_LOSS_SUM);
    const hir_ref most = pass_reduce(b, HIR_REDUCE_MAX_OP, m, 1);
    if (most.kind == HIR_REF_NONE || s.kind == HIR_REF_NONE) return hir_no_ref();
    const hir_type keep = pass_keep_one(hir_ref_type(b->m, m), 1);
    hir_ref below = hir_emit2(b, HIR_SUB_OP, m, pass_reshape(b, most, keep));
    const hir_ref powers = hir_emit2(b, HIR_MUL_OP, s, hir_emit1(b, HIR_EXP_OP, below));
    const hir_ref all = hir_emit1(b, HIR_LOG_OP, sum(b, powers));
    const hir_ref target = sum(b, part(b, parts, HIR_LOSS_TARGET));
    const hir_ref counted = sum(b, part(b, parts, HIR_LOSS_COUNTED));
    below = hir_emit2(b, HIR_SUB_OP, most, target);
    return hir_emit2(b, HIR_WHEN_OP, counted, hir_emit2(b, HIR_ADD_OP, all, below));
}

/* The row program that merges the parts; gives the losses. */
static hir_ref make_merge(const loss *l, hir_ref parts) {
    const hir_id kernel = new_kernel(l, HIR_KERNEL_ROW, hir_arg_type(l->m, l->output, 0));
    if (kernel == HIR_NONE) return hir_no_ref();
    hir_builder body = hir_in_body(l->m, l->c->diags, kernel);
    body.loc = hir_op_at(l->m, l->op)->loc;
    const hir_ref y = merged(&body, parts);
    if (y.kind == HIR_REF_NONE || hir_build(&body, HIR_YIELD_OP, &y, 1, NULL, 0) == HIR_NONE)
        return hir_no_ref();
    return hir_value_ref(hir_result(l->m, kernel));
}

bool fuse_loss(hir_pass_context *c) {
    loss l = {.c = c, .m = c->m, .op = HIR_NONE};
    if (!find_loss(&l)) return true;
    if (l.op == HIR_NONE) return reject(&l);
    l.head = pass_def(l.m, pass_arg(l.m, l.op, 0));
    const char *why = why_no_parts(&l);
    if (why) return with_logits(&l, why);
    const hir_ref parts = make_parts(&l);
    const hir_ref losses = parts.kind == HIR_REF_NONE ? parts : make_merge(&l, parts);
    if (losses.kind == HIR_REF_NONE) return false;
    hir_op_at(l.m, l.output)->args[0] = losses;
    hir_erase(l.m, l.kernel);
    hir_remark_add(
        c, true, l.output,
        "a copy of the contraction of the logits gives 4 numbers for each %d of them, and "
        "stores none",
        LENGTH);
    return true;
}
