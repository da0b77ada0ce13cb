/* Building ops and changing op lists. */
#include <string.h>

#include "ir/signature.h"

/* ---- lists --------------------------------------------------------------------------------- */
static hir_id *list_first(hir_module *m, hir_id parent) {
    return parent == HIR_NONE ? &m->first : &hir_op_at(m, parent)->body_first;
}

static hir_id *list_last(hir_module *m, hir_id parent) {
    return parent == HIR_NONE ? &m->last : &hir_op_at(m, parent)->body_last;
}

static void link_before(hir_module *m, hir_id op, hir_id parent, hir_id before) {
    hir_id *last = list_last(m, parent);
    hir_id prev = before == HIR_NONE ? *last : hir_op_at(m, before)->prev;
    hir_op *o = hir_op_at(m, op);
    o->parent = parent;
    o->prev = prev;
    o->next = before;
    if (prev == HIR_NONE)
        *list_first(m, parent) = op;
    else
        hir_op_at(m, prev)->next = op;
    if (before == HIR_NONE)
        *last = op;
    else
        hir_op_at(m, before)->prev = op;
}

static void unlink_op(hir_module *m, hir_id op) {
    hir_op *o = hir_op_at(m, op);
    if (o->prev == HIR_NONE)
        *list_first(m, o->parent) = o->next;
    else
        hir_op_at(m, o->prev)->next = o->next;
    if (o->next == HIR_NONE)
        *list_last(m, o->parent) = o->prev;
    else
        hir_op_at(m, o->next)->prev = o->prev;
    o->prev = o->next = HIR_NONE;
}

/* ---- building ------------------------------------------------------------------------------ */
hir_builder hir_at_end(hir_module *m, hd_diags *d) {
    return (hir_builder){m, d, HIR_NONE, HIR_NONE, HD_NOWHERE};
}

hir_builder hir_before(hir_module *m, hd_diags *d, hir_id op) {
    const hir_op *o = hir_op_at(m, op);
    return (hir_builder){m, d, o->parent, op, *o->loc};
}

hir_builder hir_in_body(hir_module *m, hd_diags *d, hir_id kernel) {
    return (hir_builder){m, d, kernel, HIR_NONE, *hir_op_at(m, kernel)->loc};
}

static hir_op blank_op(hir_opcode code, const hd_loc *loc) {
    return (hir_op){.code = code,
                    .prev = HIR_NONE,
                    .next = HIR_NONE,
                    .parent = HIR_NONE,
                    .body_first = HIR_NONE,
                    .body_last = HIR_NONE,
                    .loc = loc};
}

void hir_new_lists(hd_arena *a, hir_op *op) {
    const size_t attrs = op->n_attrs * sizeof *op->attrs, args = op->n_args * sizeof *op->args;
    char *at = hd_alloc(a, 1, attrs + args + op->n_results * sizeof *op->results);
    op->attrs = (void *)at;
    op->args = (void *)(at + attrs);
    op->results = (void *)(at + attrs + args);
}

/* How many operands an op has with none refs for optional ones left out at the end. */
static uint32_t padded(const hir_signature *s, uint32_t n) {
    while (n < s->n_operands && s->operands[n].optional)
        n++;
    return n;
}

static void set_attrs(hd_arena *a, hir_op *op, const hir_attr *attrs) {
    for (uint32_t i = 0; i < op->n_attrs; i++) { /* insertion sort: ops have a handful */
        uint32_t at = i;
        for (; at > 0 && op->attrs[at - 1].id > attrs[i].id; at--)
            op->attrs[at] = op->attrs[at - 1];
        op->attrs[at] = attrs[i];
    }
    for (uint32_t i = 0; i < op->n_attrs; i++)
        op->attrs[i] = hir_copy_attr(a, op->attrs[i]);
}

/* Is a required operand missing because the op that should compute it was rejected? Then that error
 * has been reported already. */
static bool follows_an_error(const hir_builder *b, const hir_signature *s, const hir_ref *args,
                             uint32_t n) {
    if (!hd_diags_failed(b->diags)) return false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t spec = i < s->n_operands ? i : s->n_operands - 1;
        if (args[i].kind == HIR_REF_NONE && s->n_operands && !s->operands[spec].optional)
            return true;
    }
    return false;
}

/* Adds a checked op and its results to the module. */
static hir_id insert(hir_builder *b, hir_op op, const hir_type *types) {
    hir_module *m = b->m;
    hir_id id = (hir_id)m->ops.n;
    op.loc = hir_keep_loc(m, b->loc);
    for (uint32_t i = 0; i < op.n_results; i++) {
        hir_value v = {.type = types[i], .op = id};
        op.results[i] = (hir_id)m->values.n;
        hd_push(m->arena, &m->values, v);
    }
    hd_push(m->arena, &m->ops, op);
    link_before(m, id, b->parent, b->before);
    return id;
}

static bool can_add_op(hir_builder *b) {
    if (b->m->ops.n < HIR_MAX_OPS) return true;
    hd_err(b->diags, HD_E_LIMIT, b->loc, "the module has more than %d ops", HIR_MAX_OPS);
    return false;
}

hir_id hir_build(hir_builder *b, hir_opcode code, const hir_ref *args, uint32_t n_args,
                 const hir_attr *attrs, uint32_t n_attrs) {
    hir_signature s = hir_signature_of(code);
    hir_op op = blank_op(code, &b->loc);
    hir_type type = {0};
    if (follows_an_error(b, &s, args, n_args) || !can_add_op(b)) return HIR_NONE;
    if (hir_has_trait(code, HIR_REGION)) {
        hd_err(b->diags, HD_E_INTERNAL, b->loc, "%s is built with hir_build_kernel",
               hir_info(code)->name);
        return HIR_NONE;
    }
    op.n_args = padded(&s, n_args);
    op.n_attrs = n_attrs;
    op.n_results = hir_result_count(code);
    hir_new_lists(b->m->arena, &op);
    if (n_args) memcpy(op.args, args, n_args * sizeof *args);
    set_attrs(b->m->arena, &op, attrs);
    if (!hir_infer(b->m, &op, b->diags, &type)) return HIR_NONE;
    return insert(b, op, &type);
}

hir_ref hir_emit(hir_builder *b, hir_opcode code, const hir_ref *args, uint32_t n_args,
                 const hir_attr *attrs, uint32_t n_attrs) {
    hir_id op = hir_build(b, code, args, n_args, attrs, n_attrs);
    if (op == HIR_NONE || hir_op_at(b->m, op)->n_results == 0) return hir_no_ref();
    return hir_value_ref(hir_result(b->m, op));
}

hir_ref hir_emit_const(hir_builder *b, double value) {
    static const int64_t scalar[1] = {0};
    hir_attr attrs[] = {hir_ints(HIR_A_SHAPE, scalar, 0), hir_float(HIR_A_VALUE, value)};
    return hir_emit(b, HIR_CONST_OP, NULL, 0, attrs, 2);
}

hir_id hir_build_kernel(hir_builder *b, hir_opcode code, const hir_attr *attrs, uint32_t n_attrs,
                        const hir_type *types, uint32_t n_types) {
    hir_op op = blank_op(code, &b->loc);
    hir_type unused;
    if (!can_add_op(b)) return HIR_NONE;
    op.n_attrs = n_attrs;
    op.n_results = n_types;
    hir_new_lists(b->m->arena, &op);
    set_attrs(b->m->arena, &op, attrs);
    if (!hir_infer(b->m, &op, b->diags, &unused)) return HIR_NONE;
    return insert(b, op, types);
}

/* ---- changing ------------------------------------------------------------------------------ */
void hir_erase(hir_module *m, hir_id op) {
    while (hir_op_at(m, op)->body_first != HIR_NONE)
        hir_erase(m, hir_op_at(m, op)->body_first); /* no deeper: bodies do not nest */
    unlink_op(m, op);
    hir_op_at(m, op)->erased = true;
}

void hir_move_before(hir_module *m, hir_id op, hir_id parent, hir_id before) {
    if (op == before) return;
    unlink_op(m, op);
    link_before(m, op, parent, before);
}

/* The op after `op` in program order, a kernel before its body; HIR_NONE at the end. */
static hir_id next_in_program(const hir_module *m, hir_id op) {
    const hir_op *o = hir_op_at(m, op);
    if (o->body_first != HIR_NONE) return o->body_first;
    while (o->next == HIR_NONE && o->parent != HIR_NONE)
        o = hir_op_at(m, o->parent);
    return o->next;
}

hir_uses hir_compute_uses(const hir_module *m, hd_arena *scratch) {
    hir_uses u = {hd_new_array(scratch, uint32_t, m->values.n),
                  hd_new_array(scratch, uint32_t, m->values.n), NULL};
    for (hir_id op = m->first; op != HIR_NONE; op = next_in_program(m, op))
        for (uint32_t i = 0; i < hir_op_at(m, op)->n_args; i++) {
            hir_ref r = hir_op_at(m, op)->args[i];
            if (r.kind == HIR_REF_VALUE) u.count[r.index]++;
        }
    uint32_t total = 0;
    for (size_t v = 0; v < m->values.n; v++) {
        u.first[v] = total;
        total += u.count[v];
    }
    u.user = hd_new_array(scratch, hir_id, total);
    uint32_t *filled = hd_new_array(scratch, uint32_t, m->values.n);
    for (hir_id op = m->first; op != HIR_NONE; op = next_in_program(m, op))
        for (uint32_t i = 0; i < hir_op_at(m, op)->n_args; i++) {
            hir_ref r = hir_op_at(m, op)->args[i];
            if (r.kind == HIR_REF_VALUE) u.user[u.first[r.index] + filled[r.index]++] = op;
        }
    return u;
}
