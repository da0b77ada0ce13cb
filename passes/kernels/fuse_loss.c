/* fuse, third part: the loss of a model.
 *
 * Needs    kernels, among them one that is nothing but the cross_entropy of the first output, the
 *          logits, made as a rule by a contraction of one matrix with elementwise ops; of a module
 *          for several ranks that share the vocabulary, its cross_entropy.parts.
 * Does     lets what reads targets run in calls of NAME_loss alone (rows = "loss"), and makes two
 *          kernels of the cross_entropy: a copy of the contraction, which gives cross_entropy.parts
 *          in place of logits, and a row program that merges the parts of a row. Four numbers stand
 *          for LENGTH logits, and no row of logits is stored. Of several ranks the parts are
 *          gathered in between. Where another kernel makes the logits (a row program that leaves
 *          out the padding of a vocabulary), it is copied as it is, and the cross_entropy of the
 *          copy's result is taken.
 * Leaves   all other kernels: NAME_forward does what it does without a loss.
 */
#include "passes/kernels/fuse.h"

enum { LENGTH = HIR_HEAD_PANELS * HIR_PANEL }; /* logits of a part */

typedef struct loss {
    hir_pass_context *c;
    hir_module *m;
    hir_id output, kernel, op; /* of the losses; the kernel that reads logits, its cross_entropy, or
                                * that of its parts */
    hir_id head;               /* makes the logits */
} loss;

static bool reject(const loss *l) {
    hd_diag *e = hd_err(l->c->diags, HD_E_UNSUPPORTED, *hir_op_at(l->m, l->output)->loc,
                        "no code can be made for the losses of this model");
    e->cause = "they are computed from what cross_entropy gives";
    e->hint = "let the output " HIR_LOSSES " be the cross_entropy of the logits itself";
    return false;
}

/* Finds the cross_entropy, between which and the output there are a merge and collectives. */
static bool find_loss(loss *l) {
    hir_ref x = pass_arg(l->m, l->output, 0);
    for (;;) {
        l->kernel = pass_def(l->m, x);
        if (l->kernel == HIR_NONE) return false;
        x = hir_no_ref();
        HIR_EACH(l->m, id, hir_op_at(l->m, l->kernel)->body_first) {
            const hir_op *o = hir_op_at(l->m, id);
            l->op = id;
            if (hir_takes_targets(o->code)) return true;
            if (o->code == HIR_CROSS_ENTROPY_MERGE_OP || hir_has_trait(o->code, HIR_COMM))
                x = o->args[0];
        }
    }
}

static void set_rows(const loss *l, hir_id kernel) {
    hir_set_attr(l->m, kernel, hir_string(HIR_A_ROWS, hir_rows_name(HIR_ROWS_LOSS)));
}

/* What is made of targets exists in calls of NAME_loss alone. */
static void mark_kernels(const loss *l) {
    bool *of_loss = hd_new_array(l->c->scratch, bool, l->m->values.n);
    of_loss[l->m->inputs.at[1]] = true;
    HIR_EACH(l->m, kernel, l->m->first) {
        const hir_op *k = hir_op_at(l->m, kernel);
        bool marked = false;
        HIR_EACH(l->m, id, k->body_first) {
            const hir_op *o = hir_op_at(l->m, id);
            for (uint32_t i = 0; i < o->n_args; i++)
                marked |= o->args[i].kind == HIR_REF_VALUE && of_loss[o->args[i].index];
        }
        if (!marked) continue;
        set_rows(l, kernel);
        for (uint32_t i = 0; i < k->n_results; i++)
            of_loss[k->results[i]] = true;
    }
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
    b.loc = *hir_op_at(l->m, l->op)->loc;
    const hir_id kernel =
        hir_build_kernel(&b, hir_kind(kind)->op, attrs, PASS_KERNEL_ATTRS, &result, 1);
    if (kernel != HIR_NONE) set_rows(l, kernel);
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
        body->loc = *o.loc;
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
    body.loc = *hir_op_at(l->m, l->op)->loc;
    const int64_t whole = hir_attr_int(hir_op_at(l->m, l->op), HIR_A_WHOLE, 0);
    const hir_attr attrs[] = {hir_int(HIR_A_LENGTH, LENGTH), hir_int(HIR_A_WHOLE, whole)};
    const hir_ref parts =
        hir_emit(&body, HIR_CROSS_ENTROPY_PARTS_OP, args, 2, attrs, whole ? 2 : 1);
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
    hir_remark_add(l->c, false, l->output, "rows of logits are stored for the loss: %s", why);
    return true;
}

/* The row program that merges the parts; gives the losses. */
static hir_ref make_merge(const loss *l, hir_ref parts) {
    const hir_id kernel = new_kernel(l, HIR_KERNEL_ROW, pass_result_type(l->m, l->kernel));
    if (kernel == HIR_NONE) return hir_no_ref();
    hir_builder body = hir_in_body(l->m, l->c->diags, kernel);
    body.loc = *hir_op_at(l->m, l->op)->loc;
    const hir_ref y = hir_emit1(&body, HIR_CROSS_ENTROPY_MERGE_OP, parts);
    if (y.kind == HIR_REF_NONE || hir_build(&body, HIR_YIELD_OP, &y, 1, NULL, 0) == HIR_NONE)
        return hir_no_ref();
    return hir_value_ref(hir_result(l->m, kernel));
}

/* Puts a value in the place of what the kernel of the cross_entropy gives. */
static void replace_kernel(const loss *l, hir_id first, hir_ref with) {
    const hir_ref old = hir_value_ref(hir_result(l->m, l->kernel));
    HIR_EACH(l->m, id, first) {
        const hir_op *o = hir_op_at(l->m, id);
        if (o->body_first != HIR_NONE) replace_kernel(l, o->body_first, with);
        for (uint32_t i = 0; i < o->n_args; i++)
            if (hir_ref_equal(o->args[i], old)) o->args[i] = with;
    }
}

/* Ranks that share a vocabulary have no whole rows of logits. */
static bool reject_shares(const loss *l, const char *why) {
    hd_diag *e = hd_err(l->c->diags, HD_E_UNSUPPORTED, *hir_op_at(l->m, l->output)->loc,
                        "no code can be made for the losses of this model on several ranks");
    e->cause = why;
    e->hint = "leave out --ranks, or --loss";
    return false;
}

bool fuse_loss(hir_pass_context *c) {
    loss l = {.c = c, .m = c->m, .op = HIR_NONE};
    l.output = hir_loss_output(c->m);
    if (l.output == HIR_NONE) return true;
    if (!find_loss(&l)) return reject(&l);
    mark_kernels(&l);
    const bool shares = hir_op_at(l.m, l.op)->code == HIR_CROSS_ENTROPY_PARTS_OP;
    l.head = pass_def(l.m, pass_arg(l.m, l.op, 0));
    const char *why = why_no_parts(&l);
    if (why) return shares ? reject_shares(&l, why) : with_logits(&l, why);
    hir_ref made = make_parts(&l);
    if (made.kind != HIR_REF_NONE && !shares) made = make_merge(&l, made);
    if (made.kind == HIR_REF_NONE) return false;
    replace_kernel(&l, l.m->first, made);
    hir_erase(l.m, l.kernel);
    hir_remark_add(
        c, true, l.output,
        "a copy of the contraction of the logits gives 4 numbers for each %d of them, and "
        "stores none%s",
        LENGTH, shares ? "; those of all ranks are gathered" : "");
    return true;
}
