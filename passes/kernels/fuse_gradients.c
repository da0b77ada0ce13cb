/* fuse, before it groups: gradients in the form that their kernels make.
 *
 * Needs    a graph with sums over tokens (differentiate).
 * Does     1 rows   the gradient of a cache leaves its kernel by rows, [T, ..]. What is made of it as
 *                   [C, ..] by ops that are local to a row is made of its rows instead.
 *          2 sums   a gradient that is a sum becomes several outputs of its name: kernels add to a
 *                   gradient, so that each summand is added where it is made, and the sum is no
 *                   kernel and no memory.
 * Leaves   all else.
 */
#include "passes/kernels/fuse.h"

/* ---- rows of caches -------------------------------------------------------------------------- */
typedef struct rows {
    hir_pass_context *c;
    hir_module *m;
    hir_builder b;
    pass_forward forward;
} rows;

static hir_ref rows_of(rows *r, hir_ref x);

/* Are all operands rows of a cache? */
static bool reads_rows_alone(const hir_module *m, const hir_op *o) {
    for (uint32_t i = 0; i < o->n_args; i++)
        if (!hir_type_has_c(hir_ref_type(m, o->args[i]))) return false;
    return true;
}

/* May the op be done for rows of tokens as well as for rows of a cache? Of a cache with a row for
 * several positions the rows of other tokens are zeros, and must stay so. */
static bool is_local_to_rows(const hir_module *m, hir_id op) {
    const hir_op *o = hir_op_at(m, op);
    if (o->code == HIR_RESHAPE_OP) return true;
    if (hir_value_at(m, o->results[0])->type.dim[0] == HIR_C)
        return o->code == HIR_CONST_OP || hir_has_trait(o->code, HIR_ELEMENTWISE);
    const bool linear = o->code == HIR_ADD_OP || o->code == HIR_SUB_OP || o->code == HIR_NEG_OP;
    return linear && reads_rows_alone(m, o);
}

static hir_attr by_token(const rows *r, hir_attr a) {
    if (a.id != HIR_A_SHAPE || a.n == 0 || !hir_is_length(a.ints[0])) return a;
    int64_t *dims = hd_new_array(r->m->arena, int64_t, a.n);
    for (uint32_t i = 0; i < a.n; i++)
        dims[i] = i ? a.ints[i] : HIR_T;
    return hir_ints(HIR_A_SHAPE, dims, a.n);
}

/* The op of rows of tokens. */
static hir_ref again(rows *r, hir_id op) {
    const hir_op o = *hir_op_at(r->m, op);
    hir_ref *args = hd_new_array(r->c->scratch, hir_ref, o.n_args + 1);
    hir_attr *attrs = hd_new_array(r->c->scratch, hir_attr, o.n_attrs + 1);
    for (uint32_t i = 0; i < o.n_args; i++) {
        args[i] = rows_of(r, o.args[i]);
        if (args[i].kind == HIR_REF_NONE) return args[i];
    }
    for (uint32_t i = 0; i < o.n_attrs; i++)
        attrs[i] = by_token(r, o.attrs[i]);
    r->b.loc = *o.loc;
    return hir_emit(&r->b, o.code, args, o.n_args, attrs, o.n_attrs);
}

/* The rows of x, [C, ..], of tokens; x itself where it is the same for every position. */
static hir_ref rows_of(rows *r, hir_ref x) {
    if (x.kind != HIR_REF_VALUE || !hir_type_has_c(hir_ref_type(r->m, x))) return x;
    const hir_id op = pass_def(r->m, x);
    if (op != HIR_NONE && is_local_to_rows(r->m, op)) return again(r, op);
    return hir_emit(&r->b, HIR_CACHE_ROWS_OP, &x, 1, NULL, 0);
}

static bool move_rows(hir_pass_context *c) {
    rows r = {.c = c, .m = c->m, .forward = {.arena = c->scratch}};
    HIR_EACH(c->m, op, c->m->first) {
        pass_forward_args(&r.forward, c->m, op);
        if (hir_op_at(c->m, op)->code != HIR_CACHE_ROWS_OP) continue;
        const hir_ref x = pass_arg(c->m, op, 0);
        const hir_id made = pass_def(c->m, x);
        if (made == HIR_NONE || !is_local_to_rows(c->m, made)) continue;
        r.b = hir_before(c->m, c->diags, op);
        const hir_ref y = again(&r, made);
        if (y.kind == HIR_REF_NONE) return false;
        pass_forward_op(&r.forward, c->m, op, y);
    }
    pass_forward_finish(&r.forward, c->m);
    return true;
}

/* ---- sums ------------------------------------------------------------------------------------ */
static bool is_sum_of_tokens(const hir_module *m, hir_ref x) {
    for (hir_id op; (op = pass_def(m, x)) != HIR_NONE; x = pass_arg(m, op, 0)) {
        if (hir_has_trait(hir_op_at(m, op)->code, HIR_REDUCES_TOKENS)) return true;
        if (hir_op_at(m, op)->code != HIR_RESHAPE_OP) return false;
    }
    return false;
}

typedef struct cutter {
    hir_pass_context *c;
    uint32_t
        *uses; /* by value of the graph; what is created here is a view that one output reads */
    size_t n;
} cutter;

/* The sum whose operands the output may add one by one, as nothing else reads it; HIR_NONE: there
 * is none. Where no operand is the result of a kernel of its own, one row program adds them. */
static hir_id sum_of(const cutter *u, hir_ref x) {
    const hir_module *m = u->c->m;
    for (hir_id op; (op = pass_def(m, x)) != HIR_NONE; x = pass_arg(m, op, 0)) {
        const hir_op *o = hir_op_at(m, op);
        if (x.index < u->n && u->uses[x.index] != 1) return HIR_NONE;
        if (o->code == HIR_ADD_OP) {
            const bool same =
                hir_type_equal(hir_ref_type(m, o->args[0]), hir_ref_type(m, o->args[1]));
            const bool own = is_sum_of_tokens(m, o->args[0]) || is_sum_of_tokens(m, o->args[1]);
            return same && own ? op : HIR_NONE;
        }
        if (o->code != HIR_RESHAPE_OP) return HIR_NONE;
    }
    return HIR_NONE;
}

/* Gives out `x` as a summand of what `output` gives out. */
static hir_id add_output(hir_pass_context *c, hir_id output, hir_ref x) {
    const hir_op o = *hir_op_at(c->m, output);
    hir_builder b = hir_before(c->m, c->diags, output);
    b.loc = *o.loc;
    x = pass_reshape(&b, x, hir_ref_type(c->m, o.args[0]));
    if (x.kind == HIR_REF_NONE) return HIR_NONE;
    return hir_build(&b, HIR_OUTPUT_OP, &x, 1, o.attrs, o.n_attrs);
}

static bool cut_sum(const cutter *u, hir_id output) {
    hir_pass_context *c = u->c;
    for (hir_id sum; (sum = sum_of(u, pass_arg(c->m, output, 0))) != HIR_NONE;) {
        const hir_ref a = pass_arg(c->m, sum, 0), b = pass_arg(c->m, sum, 1);
        const hir_id first = add_output(c, output, a), second = add_output(c, output, b);
        if (first == HIR_NONE || second == HIR_NONE) return false;
        hir_remark_add(c, true, output, "its summands are added to it one by one");
        hir_erase(c->m, output);
        if (!cut_sum(u, first)) return false;
        output = second;
    }
    return true;
}

static bool cut_sums(hir_pass_context *c) {
    cutter u = {.c = c, .n = c->m->values.n};
    u.uses = hd_new_array(c->scratch, uint32_t, u.n + 1);
    HIR_EACH(c->m, op, c->m->first) {
        const hir_op *o = hir_op_at(c->m, op);
        for (uint32_t i = 0; i < o->n_args; i++)
            if (o->args[i].kind == HIR_REF_VALUE) u.uses[o->args[i].index]++;
    }
    HIR_EACH(c->m, op, c->m->first)
    if (hir_is_gradient(hir_op_at(c->m, op)) && !cut_sum(&u, op)) return false;
    return true;
}

bool fuse_gradients(hir_pass_context *c) {
    bool any = false;
    HIR_EACH(c->m, op, c->m->first)
    any |= hir_has_trait(hir_op_at(c->m, op)->code, HIR_REDUCES_TOKENS);
    return !any || (move_rows(c) && cut_sums(c));
}
