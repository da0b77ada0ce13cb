/* Models, and the loss of a model. */
#include <string.h>

#include "ir/ir.h"

static bool is_ids(const hir_module *m, hir_id value) {
    const hir_type t = hir_value_at(m, value)->type;
    return t.dtype == HIR_I32 && t.rank == 1 && t.dim[0] == HIR_T;
}

static bool is_output(const hir_op *o, const char *name) {
    return o->code == HIR_OUTPUT_OP && (!name || !strcmp(hir_attr_string(o, HIR_A_NAME, ""), name));
}

/* The first output, or the one called `name`. */
static hir_id find_output(const hir_module *m, const char *name) {
    hir_id op = m->first;
    while (op != HIR_NONE && !is_output(hir_op_at(m, op), name))
        op = hir_op_at(m, op)->next;
    return op;
}

bool hir_takes_targets(hir_opcode code) {
    return code == HIR_CROSS_ENTROPY_OP || code == HIR_CROSS_ENTROPY_PARTS_OP;
}

/* Are the inputs tokens and targets? */
static bool takes_both(const hir_module *m) {
    if (m->inputs.n != 2 || !is_ids(m, m->inputs.at[0]) || !is_ids(m, m->inputs.at[1]))
        return false;
    const char *name = hir_value_at(m, m->inputs.at[1])->name;
    return name && strcmp(name, HIR_TARGETS) == 0;
}

hir_id hir_loss_sum_output(const hir_module *m) {
    const hir_id first = takes_both(m) ? find_output(m, NULL) : HIR_NONE;
    const bool is_sum = first != HIR_NONE && is_output(hir_op_at(m, first), HIR_LOSS) &&
                        hir_arg_type(m, first, 0).rank == 0;
    return is_sum ? first : HIR_NONE;
}

bool hir_is_gradient(const hir_op *output) {
    return output->code == HIR_OUTPUT_OP &&
           !strncmp(hir_attr_string(output, HIR_A_NAME, ""), HIR_GRADIENT, strlen(HIR_GRADIENT));
}

hir_id hir_loss_output(const hir_module *m) {
    const hir_id op = takes_both(m) ? find_output(m, HIR_LOSSES) : HIR_NONE;
    if (op == HIR_NONE || op == find_output(m, NULL)) return HIR_NONE;
    const hir_type t = hir_arg_type(m, op, 0);
    return t.rank == 1 && t.dim[0] == HIR_T ? op : HIR_NONE;
}

/* Does an op from `first` on, or in its body, send to another stage? Sets *reads where one reads the
 * value. */
static bool sends(const hir_module *m, hir_id first, hir_id value, bool *reads) {
    bool any = false;
    HIR_EACH(m, id, first) {
        const hir_op *o = hir_op_at(m, id);
        any |= o->code == HIR_COMM_SEND_OP;
        if (o->body_first != HIR_NONE) any |= sends(m, o->body_first, value, reads);
        for (uint32_t i = 0; i < o->n_args; i++)
            *reads |= hir_ref_equal(o->args[i], hir_value_ref(value));
    }
    return any;
}

bool hir_has_loss(const hir_module *m) {
    bool reads = false;
    if (hir_loss_output(m) != HIR_NONE) return true;
    return takes_both(m) && sends(m, m->first, m->inputs.at[1], &reads) && !reads;
}

bool hir_is_model(const hir_module *m) {
    return (m->inputs.n == 1 && is_ids(m, m->inputs.at[0])) || hir_has_loss(m);
}

static bool reject(const hir_module *m, hd_diags *d, const char *why, const char *hint) {
    hd_diag *e = hd_err(d, HD_E_UNSUPPORTED, HD_NOWHERE, "%s has no loss", m->name);
    e->cause = why;
    e->hint = hint;
    return false;
}

static const char *why_no_loss(const hir_module *m, hir_id logits) {
    if (m->stage == HIR_STAGE_KERNEL) return "it is kernel IR, to which nothing can be added";
    if (m->inputs.n != 1 || !is_ids(m, m->inputs.at[0]))
        return "it is a plain function: a model takes one i32[T], its tokens";
    if (logits == HIR_NONE) return "it has no output";
    const hir_type t = hir_arg_type(m, logits, 0);
    return t.dtype == HIR_F32 && t.rank == 2 && t.dim[0] == HIR_T
               ? NULL
               : "its first output is no logits, f32[T, V]";
}

bool hir_add_loss(hir_module *m, hd_diags *d) {
    if (hir_loss_output(m) != HIR_NONE) return true;
    const hir_id logits = find_output(m, NULL);
    const char *why = why_no_loss(m, logits);
    if (why) return reject(m, d, why, m->stage == HIR_STAGE_KERNEL ? "take the spec" : NULL);
    if (find_output(m, HIR_LOSSES) != HIR_NONE)
        return reject(m, d, "it has another output called \"" HIR_LOSSES "\"",
                      "give that output another name");
    const hir_type ids = hir_value_at(m, m->inputs.at[0])->type;
    hir_builder b = hir_at_end(m, d);
    b.loc = *hir_op_at(m, logits)->loc;
    const hir_ref args[] = {hir_op_at(m, logits)->args[0],
                            hir_value_ref(hir_add_input(m, HIR_TARGETS, ids))};
    const hir_ref losses = hir_emit(&b, HIR_CROSS_ENTROPY_OP, args, 2, NULL, 0);
    const hir_attr name = hir_string(HIR_A_NAME, HIR_LOSSES);
    return losses.kind != HIR_REF_NONE &&
           hir_build(&b, HIR_OUTPUT_OP, &losses, 1, &name, 1) != HIR_NONE;
}
