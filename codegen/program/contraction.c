/* Reads a kernel.contract's body into an hcg_contraction (program/contraction.h), and numbers
 * columns. */
#include "codegen/program/contraction.h"

#include <string.h>

typedef struct dependence {
    hir_id value;    /* a value of the body, [T, N] */
    uint32_t linear; /* a linear that it depends on; HIR_NONE: none known yet */
} dependence;

typedef struct planner {
    hd_arena *arena;
    hd_diags *diags;
    const hir_module *m;
    hir_id kernel;
    hcg_contraction *out;
    HD_VEC(uint32_t) parent; /* union-find over linears: those that one epilogue combines */
    HD_VEC(dependence) values;
    hir_head_epilogue head_epilogue;
    hir_id first_linear;
    hir_id parts; /* cross_entropy.parts; HIR_NONE: there is none */
} planner;

static hir_id maker(const hir_module *m, hir_ref r) {
    return r.kind == HIR_REF_VALUE ? hir_value_at(m, r.index)->op : HIR_NONE;
}

hir_ref hcg_result_of(const hir_module *m, hir_id kernel, hir_id op) {
    const hir_op *k = hir_op_at(m, kernel), *yield = hir_op_at(m, k->body_last);
    for (uint32_t i = 0; i < yield->n_args; i++) {
        hir_id by = maker(m, hir_through_reshapes(m, yield->args[i]));
        while (by != HIR_NONE && by != op && hir_is_view_of_rows(m, hir_op_at(m, by)))
            by = maker(m, hir_through_reshapes(m, hir_op_at(m, by)->args[0]));
        if (by == op) return hir_value_ref(k->results[i]);
    }
    return hir_no_ref();
}

static bool reject(planner *p, hir_id op, const char *what) {
    hd_err(p->diags, HD_E_INTERNAL, *hir_op_at(p->m, op)->loc,
           "kernel.contract cannot be emitted: %s", what);
    return false;
}

static uint32_t find_root(const planner *p, uint32_t linear) {
    while (p->parent.at[linear] != linear)
        linear = p->parent.at[linear];
    return linear;
}

/* The dependence of r; NULL if r is not a value of the body. */
static dependence *find_value(const planner *p, hir_ref r) {
    r = hir_through_reshapes(p->m, r);
    for (size_t i = 0; r.kind == HIR_REF_VALUE && i < p->values.n; i++)
        if (p->values.at[i].value == r.index) return &p->values.at[i];
    return NULL;
}

/* The linear a value depends on, or HIR_NONE. */
static uint32_t linear_of(const planner *p, hir_ref r) {
    const dependence *v = find_value(p, r);
    return v ? v->linear : HIR_NONE;
}

static void join(planner *p, uint32_t a, uint32_t b) {
    p->parent.at[find_root(p, a)] = find_root(p, b);
}

static bool is_matrix(hir_type t, int64_t n) {
    return t.rank == 2 && hir_is_tokens(t.dim[0]) && (n < 0 || t.dim[1] == n);
}

static bool plan_linear(planner *p, hir_id id) {
    const hir_op *op = hir_op_at(p->m, id);
    hir_ref x = hir_through_reshapes(p->m, op->args[0]);
    hir_type type = hir_value_at(p->m, op->results[0])->type;
    if (op->args[1].kind != HIR_REF_WEIGHT) return reject(p, id, "a matrix that is no weight");
    const hir_weight *w = &p->m->weights.at[op->args[1].index];
    if (w->layout == HIR_LAYOUT_ROWS || w->type.rank != 2)
        return reject(p, id, "a matrix that is not in panels");
    if (w->type.dtype == HIR_I32) return reject(p, id, "a matrix of a dtype that has no loads");
    if (!is_matrix(type, -1) || !is_matrix(hir_ref_type(p->m, op->args[0]), -1))
        return reject(p, id, "a linear op that is not [T, K] to [T, N]");
    if (p->out->linears.n > 0 && !hir_ref_equal(x, p->out->x))
        return reject(p, id, "linear ops of different inputs");
    p->out->x = x;
    p->out->k = w->type.dim[1];
    uint32_t index = (uint32_t)p->out->linears.n;
    hd_push(p->arena, &p->out->linears,
            ((hcg_linear){.value = op->results[0],
                          .w = op->args[1],
                          .bias = op->n_args > 2 ? op->args[2] : hir_no_ref(),
                          .dtype = w->type.dtype,
                          .layout = w->layout}));
    hd_push(p->arena, &p->parent, index);
    hd_push(p->arena, &p->values, ((dependence){op->results[0], index}));
    return true;
}

/* Joins the linears that the operands depend on: one epilogue combines them. */
static bool plan_elementwise(planner *p, hir_id id) {
    const hir_op *op = hir_op_at(p->m, id);
    uint32_t linear = HIR_NONE;
    if (!is_matrix(hir_value_at(p->m, op->results[0])->type, -1))
        return reject(p, id, "an epilogue value that is not [T, N]");
    for (uint32_t i = 0; i < op->n_args; i++) {
        uint32_t of = linear_of(p, op->args[i]);
        if (of == HIR_NONE) continue;
        if (linear != HIR_NONE) join(p, of, linear);
        linear = of;
    }
    hd_push(p->arena, &p->values, ((dependence){op->results[0], linear}));
    return true;
}

/* Joins ops to their users, from the last op to the first, since an op of outer values only (such
 * as a gate from elsewhere) belongs to the group of its users. */
static void join_with_users(planner *p) {
    for (hir_id id = hir_op_at(p->m, p->kernel)->body_last; id != HIR_NONE;
         id = hir_op_at(p->m, id)->prev) {
        const hir_op *op = hir_op_at(p->m, id);
        if (!hir_has_trait(op->code, HIR_ELEMENTWISE)) continue;
        uint32_t linear = linear_of(p, hir_value_ref(op->results[0]));
        for (uint32_t i = 0; linear != HIR_NONE && i < op->n_args; i++) {
            dependence *v = find_value(p, op->args[i]);
            if (v && v->linear == HIR_NONE)
                v->linear = linear;
            else if (v)
                join(p, v->linear, linear);
        }
    }
}

static bool is_head_op(const planner *p, const hir_op *o) {
    return o->n_results == 1 && o->code != HIR_LINEAR_OP &&
           hir_find_head_op(&p->head_epilogue, hir_value_ref(o->results[0])) != NULL;
}

static bool is_inner(const planner *p, hir_ref r) {
    hir_id op = r.kind == HIR_REF_VALUE ? hir_value_at(p->m, r.index)->op : HIR_NONE;
    return op != HIR_NONE && hir_op_at(p->m, op)->parent == p->kernel;
}

/* The prologue: ops in front of the first linear, unless all of them are views of x. */
static void plan_prologue(planner *p) {
    hir_id op = hir_op_at(p->m, p->kernel)->body_first;
    for (; op != HIR_NONE && hir_op_at(p->m, op)->code != HIR_LINEAR_OP;
         op = hir_op_at(p->m, op)->next)
        hd_push(p->arena, &p->out->prologue, op);
    p->first_linear = op;
    if (op == HIR_NONE) return;
    hir_ref x = hir_through_reshapes(p->m, hir_op_at(p->m, op)->args[0]);
    if (!is_inner(p, x)) p->out->prologue.n = 0;
}

static bool plan_body(planner *p) {
    if (!hir_find_head_epilogue(p->m, p->arena, p->kernel, &p->head_epilogue))
        return reject(p, p->head_epilogue.rejected, p->head_epilogue.why);
    plan_prologue(p);
    for (hir_id id = p->first_linear; id != HIR_NONE; id = hir_op_at(p->m, id)->next) {
        hir_opcode code = hir_op_at(p->m, id)->code;
        if (code == HIR_RESHAPE_OP || code == HIR_CONST_OP || code == HIR_YIELD_OP) continue;
        if (is_head_op(p, hir_op_at(p->m, id))) continue;
        if (code == HIR_LINEAR_OP) {
            if (!plan_linear(p, id)) return false;
        } else if (hir_has_trait(code, HIR_ELEMENTWISE)) {
            if (!plan_elementwise(p, id)) return false;
        } else if (code == HIR_CROSS_ENTROPY_PARTS_OP) {
            p->parts = id;
        } else {
            return reject(p, id, "an op that is neither linear nor of an epilogue");
        }
    }
    if (!p->out->linears.n) return reject(p, p->kernel, "no linear op");
    if (p->parts != HIR_NONE && p->out->linears.n > 1)
        return reject(p, p->parts, "logits next to other linear ops");
    join_with_users(p);
    return true;
}

/* Makes one group for each root of the union-find, in the order of its first linear. */
static bool make_groups(planner *p) {
    hcg_contraction *c = p->out;
    uint32_t *group_of = hd_new_array(p->arena, uint32_t, c->linears.n);
    for (size_t i = 0; i < c->linears.n; i++)
        group_of[i] = HIR_NONE;
    for (uint32_t i = 0; i < c->linears.n; i++) {
        const hir_value *y = hir_value_at(p->m, c->linears.at[i].value);
        int64_t n = y->type.dim[1], heads = hir_epilogue_heads(&p->head_epilogue, y->op);
        uint32_t root = find_root(p, i);
        if (group_of[root] == HIR_NONE) {
            group_of[root] = (uint32_t)c->groups.n;
            int64_t panels = (n + HIR_PANEL - 1) / HIR_PANEL;
            int64_t unit = heads ? hir_head_panels(n / heads) : 1;
            if (p->parts != HIR_NONE)
                unit = hir_attr_int(hir_op_at(p->m, p->parts), HIR_A_LENGTH, 1) / HIR_PANEL;
            hd_push(p->arena, &c->groups,
                    ((hcg_column_group){.n = n, .panels = panels, .heads = heads, .unit = unit}));
        }
        hcg_column_group *g = &c->groups.at[group_of[root]];
        if (g->n != n)
            return reject(p, p->kernel,
                          "linear ops of different widths whose products are combined");
        if (g->heads && g->linears.n)
            return reject(p, p->kernel,
                          "linear ops with per-head epilogues whose products are combined");
        c->linears.at[i].group = group_of[root];
        hd_push(p->arena, &g->linears, i);
    }
    return true;
}

/* The greatest common divisor; units of columns are at most HIR_HEAD_PANELS. */
static int64_t divisor(int64_t a, int64_t b) {
    return b ? divisor(b, a % b) : a;
}

static void number_columns(hcg_contraction *c) {
    for (size_t i = 0; i < c->groups.n; i++)
        c->width = divisor(c->groups.at[i].unit, c->width);
    for (size_t i = 0; i < c->groups.n; i++) {
        c->groups.at[i].first_column = c->columns;
        c->columns += (c->groups.at[i].panels + c->width - 1) / c->width;
    }
}

/* Operands of an epilogue op: values of the same kernel, or outer ones that broadcast to [T, N]. */
static bool fits(const planner *p, hir_ref r, int64_t n) {
    hir_type t = hir_ref_type(p->m, r);
    if (t.dtype != HIR_F32) return false;
    if (t.rank == 0) return true;
    if (t.dim[t.rank - 1] != n && t.dim[t.rank - 1] != 1) return false;
    return t.rank == 1 || (t.rank == 2 && (hir_is_tokens(t.dim[0]) || t.dim[0] == 1));
}

static bool assign_ops(planner *p) {
    for (hir_id id = p->first_linear; id != HIR_NONE; id = hir_op_at(p->m, id)->next) {
        const hir_op *op = hir_op_at(p->m, id);
        if (!hir_has_trait(op->code, HIR_ELEMENTWISE) || is_head_op(p, op)) continue;
        uint32_t linear = linear_of(p, hir_value_ref(op->results[0]));
        if (linear == HIR_NONE)
            return reject(p, id, "an epilogue value that depends on no linear op");
        hcg_column_group *g = &p->out->groups.at[p->out->linears.at[linear].group];
        if (hir_value_at(p->m, op->results[0])->type.dim[1] != g->n)
            return reject(p, id, "an epilogue value wider than its linear op");
        for (uint32_t i = 0; i < op->n_args; i++)
            if (!fits(p, op->args[i], g->n))
                return reject(p, id, "an epilogue operand that does not broadcast to [T, N]");
        hd_push(p->arena, &g->ops, id);
    }
    return true;
}

/* Assigns ops to per-head epilogues; constants may be read by any of them. */
static void assign_head_ops(planner *p) {
    for (hir_id id = p->first_linear; id != HIR_NONE; id = hir_op_at(p->m, id)->next) {
        const hir_op *op = hir_op_at(p->m, id);
        for (size_t i = 0; i < p->out->groups.n; i++) {
            hcg_column_group *g = &p->out->groups.at[i];
            const hcg_linear *l = &p->out->linears.at[g->linears.at[0]];
            const hir_id root = hir_value_at(p->m, l->value)->op;
            if (!g->heads) continue;
            if (op->code == HIR_CONST_OP ||
                (is_head_op(p, op) &&
                 hir_find_head_op(&p->head_epilogue, hir_value_ref(op->results[0]))->root == root))
                hd_push(p->arena, &g->ops, id);
        }
    }
}

/* The group that makes a yielded value; NULL: none. */
static hcg_column_group *maker_of(const planner *p, hir_ref r) {
    const hir_head_op *op = hir_find_head_op(&p->head_epilogue, r);
    uint32_t linear = linear_of(p, r);
    if (op) linear = linear_of(p, hir_value_ref(hir_op_at(p->m, op->root)->results[0]));
    return linear == HIR_NONE ? NULL : &p->out->groups.at[p->out->linears.at[linear].group];
}

static bool assign_yields(planner *p) {
    const hir_op *kernel = hir_op_at(p->m, p->kernel);
    const hir_op *yield = kernel->body_last == HIR_NONE ? NULL : hir_op_at(p->m, kernel->body_last);
    if (!yield || yield->code != HIR_YIELD_OP || yield->n_args != kernel->n_results)
        return reject(p, p->kernel, "no yield of its results");
    for (uint32_t i = 0; i < yield->n_args; i++) {
        hir_ref r = hir_through_reshapes(p->m, yield->args[i]);
        if (p->parts != HIR_NONE && r.index == hir_result(p->m, p->parts)) {
            p->out->groups.at[0].parts = r;
            p->out->groups.at[0].parts_result = kernel->results[i];
            continue;
        }
        hcg_column_group *g = maker_of(p, r);
        if (!g) return reject(p, p->kernel, "it yields a value that depends on no linear op");
        if (hir_value_at(p->m, kernel->results[i])->place == HIR_PLACE_STATE) continue;
        hd_push(p->arena, &g->yields, ((hcg_yield){r.index, kernel->results[i]}));
    }
    return true;
}

bool hcg_plan_contraction(hd_arena *a, hd_diags *d, const hir_module *m, hir_id kernel_op,
                          hcg_contraction *out) {
    memset(out, 0, sizeof *out);
    planner p = {.arena = a, .diags = d, .m = m, .kernel = kernel_op, .out = out};
    p.parts = HIR_NONE;
    if (!plan_body(&p) || !make_groups(&p) || !assign_ops(&p)) return false;
    assign_head_ops(&p);
    number_columns(out);
    return assign_yields(&p);
}

bool hcg_plan_contractions(hcg_program *p, hd_diags *d) {
    const hcg_contraction **all = hd_new_array(p->arena, const hcg_contraction *, p->m->ops.n + 1);
    p->contractions = all;
    HIR_EACH(p->m, id, p->m->first) {
        if (hir_op_at(p->m, id)->code != HIR_KERNEL_CONTRACT_OP) continue;
        if (hir_form_of(p->m, id) != HIR_FORM_CONTRACTION) continue; /* contract/experts.c */
        hcg_contraction *c = hd_new(p->arena, hcg_contraction);
        if (!hcg_plan_contraction(p->arena, d, p->m, id, c)) return false;
        all[id] = c;
    }
    return true;
}

int64_t hcg_contraction_columns(const hir_module *m, hir_id kernel_op) {
    hd_diags d; /* discarded: emission finds and reports the same errors */
    hcg_contraction c = {0};
    hd_diags_init(&d, m->arena);
    return hcg_plan_contraction(m->arena, &d, m, kernel_op, &c) ? c.columns : 1;
}
