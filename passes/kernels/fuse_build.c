/* fuse, second half: building kernels from groups.
 *
 * First every value that another kernel reads gets the list of shapes it must be stored in. Most
 * readers accept any shape, because they can begin with a reshape, which is free: row programs, the
 * x of a contraction, the q of an attention. Outputs and epilogues need the exact shape; for them
 * the kernel that computes the value reshapes it before its yield. Then the kernels are built in
 * order: a group's ops move into the body, constants and views are copied before their users, and
 * there is one result per stored shape.
 */
#include "passes/kernels/fuse.h"

enum { MAX_SHAPES = 4 };

typedef struct storage { /* of a value that another kernel or an output reads */
    uint32_t n;          /* shapes that readers need exactly */
    hir_type shape[MAX_SHAPES];
    hir_id at[MAX_SHAPES]; /* kernel results, in the order of shape */
} storage;

typedef struct building {
    fuse *f;
    hir_module *m;
    storage **stored; /* by value of the graph; NULL: nothing outside of its kernel reads it */
    size_t n_values;  /* of the graph */
    /* by value of the graph: its copy in the present body */
    hir_id *copy_in; /* the kernel */
    hir_ref *copy;
    bool *copy_ahead; /* copies for the linear ops of a contraction and what precedes them */
    bool ahead;       /* is the present op one of these? */
    hir_builder body;
    uint32_t group;
} building;

/* ---- what is stored, in which shapes ------------------------------------------------------- */
/* Readers that need the exact shape: outputs, other operands of epilogues, writes to state. */
static bool reads_as_is(const hir_op *o, fuse_kind kind, uint32_t arg) {
    if (kind == FUSE_OUTPUT) return true;
    if (kind == FUSE_CONTRACT) return o->code != HIR_LINEAR_OP || arg > 0;
    if (hir_has_trait(o->code, HIR_ELEMENTWISE)) return kind == FUSE_SEQUENCE;
    return kind == FUSE_SEQUENCE && arg > 0 && !hir_takes_views(o->code);
}

/* The storage of a value, which is wanted from now on. */
static storage *want(building *b, uint32_t v) {
    if (!b->stored[v]) b->stored[v] = hd_new(b->f->c->scratch, storage);
    return b->stored[v];
}

static bool want_shape(building *b, hir_id op, storage *s, hir_type t) {
    for (uint32_t i = 0; i < s->n; i++)
        if (hir_type_equal(s->shape[i], t)) return true;
    if (s->n == MAX_SHAPES) {
        hd_err(b->f->c->diags, HD_E_LIMIT, *hir_op_at(b->m, op)->loc,
               "a value is stored in more than %d shapes at once", MAX_SHAPES);
        return false;
    }
    s->shape[s->n++] = t;
    return true;
}

static bool note_reads(building *b, hir_id op) {
    const fuse_node *n = &b->f->node[op];
    const hir_op *o = hir_op_at(b->m, op);
    if (n->kind == FUSE_NONE || (n->kind == FUSE_COPIED && o->code == HIR_RESHAPE_OP)) return true;
    for (uint32_t i = 0; i < o->n_args; i++) {
        hir_ref base = fuse_base(b->f, o->args[i]);
        const fuse_node *made = fuse_node_of(b->f, base);
        if (!made || made->kind == FUSE_COPIED) continue;
        if (n->kind != FUSE_COPIED && n->kind != FUSE_OUTPUT && made->group == n->group) continue;
        storage *s = want(b, base.index);
        if (reads_as_is(o, n->kind, i) && !want_shape(b, op, s, hir_ref_type(b->m, o->args[i])))
            return false;
    }
    return true;
}

/* Every kernel has a result: if the state that it writes has no reader, it yields the state. */
static void keep_effects(building *b, const fuse_group *g) {
    hir_id effect = HIR_NONE;
    for (size_t i = 0; i < g->ops.n; i++) {
        const hir_op *o = hir_op_at(b->m, g->ops.at[i]);
        for (uint32_t r = 0; r < o->n_results; r++)
            if (b->stored[o->results[r]]) return;
        if (hir_has_trait(o->code, HIR_EFFECT)) effect = o->results[0];
    }
    if (effect != HIR_NONE) want(b, effect);
}

static bool find_stored(building *b) {
    fuse *f = b->f;
    for (size_t k = 0; k < f->program.n; k++)
        if (!note_reads(b, f->program.at[k])) return false;
    for (size_t k = 0; k < f->kernels.n; k++)
        keep_effects(b, &f->groups.at[f->kernels.at[k]]);
    for (size_t v = 0; v < b->n_values; v++) {
        storage *s = b->stored[v];
        if (s && !s->n) s->shape[s->n++] = hir_value_at(b->m, (hir_id)v)->type;
    }
    return true;
}

/* ---- operands ------------------------------------------------------------------------------ */
static hir_ref operand(building *b, hir_ref r);

/* The stored form of a value, with the shape of t if there is one. */
static hir_ref stored_as(const building *b, uint32_t v, hir_type t) {
    const storage *s = b->stored[v];
    for (uint32_t i = 0; i < s->n; i++)
        if (hir_type_equal(s->shape[i], t)) return hir_value_ref(s->at[i]);
    return hir_value_ref(s->at[0]);
}

/* A constant or a cheap value without T, rematerialised in this body. */
static hir_ref copied(building *b, hir_id op) {
    hir_op o = *hir_op_at(b->m, op);
    hir_ref *args = hd_new_array(b->f->c->scratch, hir_ref, o.n_args);
    for (uint32_t i = 0; i < o.n_args; i++)
        args[i] = operand(b, o.args[i]);
    b->body.loc = *o.loc;
    return hir_emit(&b->body, o.code, args, o.n_args, o.attrs, o.n_attrs);
}

static hir_ref base_operand(building *b, hir_ref base, hir_type t) {
    const fuse_node *n = fuse_node_of(b->f, base);
    if (!n) return base; /* weight, state, input */
    if (n->kind == FUSE_COPIED) return copied(b, hir_value_at(b->m, base.index)->op);
    return n->group == b->group ? base : stored_as(b, base.index, t);
}

/* Is there a copy of a value in the present body that the present op can use? A constant copied for
 * a prologue cannot be used by an epilogue, which runs elsewhere. */
static bool is_copied_here(const building *b, uint32_t v) {
    if (b->copy_in[v] != b->body.parent) return false;
    return b->copy_ahead[v] == b->ahead || pass_def_if(b->m, b->copy[v], HIR_CONST_OP) == HIR_NONE;
}

/* The ref in the present body for an operand of the graph. */
static hir_ref operand(building *b, hir_ref r) {
    if (r.kind != HIR_REF_VALUE) return r;
    if (is_copied_here(b, r.index)) return b->copy[r.index];
    hir_id def = pass_def(b->m, r);
    hir_type t = hir_ref_type(b->m, r);
    hir_ref x = base_operand(b, fuse_base(b->f, r), t);
    if (def != HIR_NONE) b->body.loc = *hir_op_at(b->m, def)->loc;
    x = x.kind == HIR_REF_NONE ? x : pass_reshape(&b->body, x, t);
    b->copy_in[r.index] = b->body.parent;
    b->copy[r.index] = x;
    b->copy_ahead[r.index] = b->ahead;
    return x;
}

/* ---- bodies -------------------------------------------------------------------------------- */
static hir_kernel_kind kernel_kind(fuse_kind kind) {
    if (kind == FUSE_CONTRACT) return HIR_KERNEL_CONTRACT;
    if (kind == FUSE_BLOCKS) return HIR_KERNEL_BLOCKS;
    if (kind == FUSE_COMM) return HIR_KERNEL_COMM;
    return kind == FUSE_SEQUENCE ? HIR_KERNEL_SEQUENCE : HIR_KERNEL_ROW;
}

/* Creates the kernel; its results are the values of its group that others read. */
static hir_id new_kernel(building *b, const fuse_group *g) {
    HD_VEC(hir_type) types = {0};
    for (size_t i = 0; i < g->ops.n; i++) {
        const hir_op *o = hir_op_at(b->m, g->ops.at[i]);
        for (uint32_t r = 0; r < o->n_results; r++) {
            const storage *s = b->stored[o->results[r]];
            for (uint32_t k = 0; s && k < s->n; k++)
                hd_push(b->f->c->scratch, &types, s->shape[k]);
        }
    }
    const hir_kind_info *kind = hir_kind(kernel_kind(g->kind));
    hir_attr attrs[PASS_KERNEL_ATTRS];
    pass_kernel_attrs(kind->name, attrs);
    hir_builder top = hir_at_end(b->m, b->f->c->diags);
    top.loc = *hir_op_at(b->m, g->ops.at[0])->loc;
    return hir_build_kernel(&top, kind->op, attrs, PASS_KERNEL_ATTRS, types.at, (uint32_t)types.n);
}

static bool move_in(building *b, hir_id op, hir_id kernel) {
    uint32_t i = 0;
    hir_id first = hir_op_at(b->m, kernel)->body_last; /* linear ops share the same view of x */
    if (hir_op_at(b->m, op)->code == HIR_LINEAR_OP && b->f->node[op].kind == FUSE_CONTRACT &&
        first != HIR_NONE && hir_op_at(b->m, first)->code == HIR_LINEAR_OP)
        hir_op_at(b->m, op)->args[i++] = pass_arg(b->m, first, 0);
    for (; i < hir_op_at(b->m, op)->n_args; i++) {
        hir_ref r = pass_arg(b->m, op, i), now = operand(b, r);
        if (r.kind != HIR_REF_NONE && now.kind == HIR_REF_NONE) return false;
        hir_op_at(b->m, op)->args[i] = now;
    }
    hir_move_before(b->m, op, kernel, HIR_NONE);
    if (hir_op_at(b->m, op)->code == HIR_LINEAR_OP) b->ahead = false;
    return true;
}

/* Moves the name of an inner value to the kernel's result. */
static void take_name(building *b, hir_id inner, hir_id outer) {
    hir_value *from = hir_value_at(b->m, inner);
    hir_value_at(b->m, outer)->name = from->name;
    from->name = NULL;
}

static bool yield(building *b, const fuse_group *g, hir_id kernel) {
    HD_VEC(hir_ref) out = {0};
    for (size_t i = 0; i < g->ops.n; i++) {
        for (uint32_t r = 0; r < hir_op_at(b->m, g->ops.at[i])->n_results; r++) {
            hir_id v = hir_op_at(b->m, g->ops.at[i])->results[r];
            storage *s = b->stored[v];
            for (uint32_t k = 0; s && k < s->n; k++) {
                b->body.loc = *hir_op_at(b->m, g->ops.at[i])->loc;
                hir_ref x = pass_reshape(&b->body, hir_value_ref(v), s->shape[k]);
                if (x.kind == HIR_REF_NONE) return false;
                s->at[k] = hir_op_at(b->m, kernel)->results[out.n];
                if (k == 0) take_name(b, v, s->at[k]);
                hd_push(b->f->c->scratch, &out, x);
            }
        }
    }
    return hir_build(&b->body, HIR_YIELD_OP, out.at, (uint32_t)out.n, NULL, 0) != HIR_NONE;
}

static bool build_kernel(building *b, uint32_t group) {
    const fuse_group *g = &b->f->groups.at[group];
    hir_id kernel = new_kernel(b, g);
    if (kernel == HIR_NONE) return false;
    b->group = group;
    b->ahead = true;
    b->body = hir_in_body(b->m, b->f->c->diags, kernel);
    for (size_t i = 0; i < g->ops.n; i++)
        if (!move_in(b, g->ops.at[i], kernel)) return false;
    if (!yield(b, g, kernel)) return false;
    hir_remark_add(b->f->c, true, kernel, "%s of %zu op%s",
                   g->kind == FUSE_FIXED ? "row program that runs once" : "kernel", g->ops.n,
                   hd_s(g->ops.n));
    return true;
}

/* ---- the rest ------------------------------------------------------------------------------ */
/* Moves outputs after the kernels, in their old order. */
static void move_outputs(building *b) {
    for (size_t k = 0; k < b->f->program.n; k++) {
        hir_id op = b->f->program.at[k];
        if (b->f->node[op].kind != FUSE_OUTPUT) continue;
        hir_ref r = pass_arg(b->m, op, 0), base = fuse_base(b->f, r);
        if (fuse_node_of(b->f, base)) r = stored_as(b, base.index, hir_ref_type(b->m, r));
        hir_op_at(b->m, op)->args[0] = r;
        hir_move_before(b->m, op, HIR_NONE, HIR_NONE);
    }
}

static void erase_rest(building *b) {
    for (size_t k = b->f->program.n; k-- > 0;) {
        hir_id op = b->f->program.at[k];
        fuse_kind kind = b->f->node[op].kind;
        if (kind == FUSE_COPIED || kind == FUSE_NONE) hir_erase(b->m, op);
    }
}

bool fuse_build(fuse *f) {
    building b = {.f = f, .m = f->m, .n_values = f->m->values.n};
    b.stored = hd_new_array(f->c->scratch, storage *, b.n_values);
    b.copy_in = hd_new_array(f->c->scratch, hir_id, b.n_values);
    b.copy = hd_new_array(f->c->scratch, hir_ref, b.n_values);
    b.copy_ahead = hd_new_array(f->c->scratch, bool, b.n_values);
    for (size_t v = 0; v < b.n_values; v++)
        b.copy_in[v] = HIR_NONE;
    if (!find_stored(&b)) return false;
    f->m->stage = HIR_STAGE_KERNEL;
    for (size_t k = 0; k < f->kernels.n; k++)
        if (!build_kernel(&b, f->kernels.at[k])) return false;
    move_outputs(&b);
    erase_rest(&b);
    return true;
}
