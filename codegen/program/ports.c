/* The inputs, outputs and name of a program, as its callers see them. */
#include <ctype.h>
#include <string.h>

#include "codegen/program/lowering.h"

bool lower_name(lowering *l) {
    const char *name = l->m->name;
    bool ok = name && (isalpha((unsigned char)*name) || *name == '_');
    for (const char *c = ok ? name : ""; *c; c++)
        ok = ok && (isalnum((unsigned char)*c) || *c == '_');
    if (!ok) {
        hd_err(l->d, HD_E_NAME, HD_NOWHERE, "the name \"%s\" is no C identifier", name ? name : "")
            ->cause = "it is the prefix of every symbol of the generated library";
        return false;
    }
    if (strcmp(name, "hrt") != 0 && strncmp(name, "hrt_", 4) != 0) return true;
    return lower_reject(l, HD_E_NAME, HD_NOWHERE,
                        "a model cannot be called hrt: the runtime's symbols are",
                        "choose another name");
}

static bool add_port(lowering *l, bool input, const char *name, hir_type type, hd_loc loc) {
    hcg_port port = {.name = name, .type = type, .offset = 0};
    if (hir_type_has_c(type) || !lower_row_bytes(type, &port.row_bytes)) {
        hd_err(l->d, HD_E_UNSUPPORTED, loc, "%s \"%s\" is %s", input ? "input" : "output", name,
               hir_type_string(l->a, type))
            ->cause = hir_type_has_c(type)
                          ? "what has the length of the cache cannot be handed over"
                          : "its size does not fit";
        return false;
    }
    if (input)
        hd_push(l->a, &l->p->inputs, port);
    else
        hd_push(l->a, &l->p->outputs, port);
    return true;
}

bool lower_inputs(lowering *l) {
    const hir_module *m = l->m;
    const bool loss = hir_has_loss(m); /* targets are no input of NAME_forward */
    for (size_t i = 0; i < m->inputs.n - loss; i++) {
        const hir_value *v = hir_value_at(m, m->inputs.at[i]);
        const char *name = v->name ? v->name : hd_printf(l->a, "x%zu", i);
        if (!add_port(l, true, name, v->type, HD_NOWHERE)) return false;
    }
    l->p->is_model = hir_is_model(m);
    if (hcg_ranks(l->p) > 0 && !l->p->is_model)
        return lower_reject(l, HD_E_UNSUPPORTED, HD_NOWHERE,
                            "only models of tokens are divided over ranks",
                            "compile the function without --ranks");
    if (l->p->is_model || m->states.n == 0 || hcg_has_gradients(l->p)) return true;
    return lower_reject(l, HD_E_UNSUPPORTED, m->states.at[0].loc,
                        "a program with state must have one input, i32[T] tokens",
                        "without state it could be any plain function");
}

/* Output 0 of a model holds the last rows of a call, so it must come from a kernel of last rows;
 * every other output holds all rows. */
static bool check_output_rows(lowering *l, const hir_op *out, hir_id maker) {
    size_t i = l->p->outputs.n - 1;
    const hir_op *kernel = hir_op_at(l->m, maker);
    const bool last = hir_rows_of(kernel) == HIR_ROWS_LAST;
    if (!l->p->is_model) return true;
    if (i == 0 && (!last || !hir_type_has_t(l->p->outputs.at[0].type)))
        return lower_reject(l, HD_E_UNSUPPORTED, lower_place(l, out),
                            "the first output of a model must be f32[T, ...] from a kernel of rows "
                            "\"last\"",
                            "the schedule pass arranges that");
    if (i > 0 && last && hir_type_has_t(l->p->outputs.at[i].type))
        return lower_reject(
            l, HD_E_UNSUPPORTED, lower_place(l, out),
            "only the first output of a model may come from a kernel of rows \"last\"",
            "give its kernel rows = \"all\"");
    return true;
}

static bool add_output(lowering *l, const hir_op *op) {
    hir_ref r = op->args[0];
    size_t i = l->p->outputs.n;
    const hir_value *v = r.kind == HIR_REF_VALUE ? hir_value_at(l->m, r.index) : NULL;
    const hir_place place = hir_is_gradient(op) ? HIR_PLACE_GRADIENT : HIR_PLACE_OUTPUT;
    if (!v || v->place != place || lower_output_number(l, v->offset) != i || v->op == HIR_NONE)
        return lower_reject(l, HD_E_TYPE, lower_place(l, op),
                            "an output must be a kernel's result in output[n]",
                            "the plan-memory pass gives every output its place");
    if (v->type.dtype != HIR_F32)
        return lower_reject(l, HD_E_TYPE, lower_place(l, op), "outputs are f32", NULL);
    return add_port(l, false, hir_attr_string(op, HIR_A_NAME, "y"), v->type, lower_place(l, op)) &&
           check_output_rows(l, op, v->op);
}

/* Does the module send values to another pipeline stage? Such a module may have no outputs. */
static bool sends(const hir_module *m) {
    HIR_EACH(m, id, m->first) {
        const hir_op *op = hir_op_at(m, id);
        if (hir_is_kernel(op) && hcg_is_collective(m, id) &&
            hir_op_at(m, op->body_first)->code == HIR_COMM_SEND_OP)
            return true;
    }
    return false;
}

bool lower_outputs(lowering *l) {
    uint64_t number = 0;
    l->loss_output = hir_loss_output(l->m);
    l->losses = UINT64_MAX;
    HIR_EACH(l->m, id, l->m->first) {
        const hir_op *op = hir_op_at(l->m, id);
        if (op->code != HIR_OUTPUT_OP) continue;
        if (id == l->loss_output)
            l->losses = number;
        else if (!add_output(l, op))
            return false;
        number++;
    }
    if (l->p->outputs.n > 0 || sends(l->m)) return true;
    return lower_reject(l, HD_E_UNSUPPORTED, HD_NOWHERE, "the program has no output", NULL);
}
