/* Helpers of the passes: constants, views, replacing many values at once. */
#include "passes/util.h"

#include <string.h>

/* ---- reading ------------------------------------------------------------------------------- */
hir_id pass_def(const hir_module *m, hir_ref r) {
    return r.kind == HIR_REF_VALUE ? hir_value_at(m, r.index)->op : HIR_NONE;
}

hir_id pass_def_if(const hir_module *m, hir_ref r, hir_opcode code) {
    hir_id op = pass_def(m, r);
    return op != HIR_NONE && hir_op_at(m, op)->code == code ? op : HIR_NONE;
}

bool pass_const(const hir_module *m, hir_ref r, double *value) {
    hir_id op = pass_def_if(m, r, HIR_CONST_OP);
    if (op == HIR_NONE) return false;
    *value = hir_attr_float(hir_op_at(m, op), HIR_A_VALUE, 0);
    return true;
}

bool pass_type_has_c(hir_type t) {
    for (uint32_t i = 0; i < t.rank; i++)
        if (hir_is_length(t.dim[i])) return true;
    return false;
}

int64_t pass_elements(hir_type t) {
    int64_t n = hir_type_row_elements(t);
    return n < 0 ? INT64_MAX : n;
}

bool pass_is_scalar(hir_type t) {
    return t.rank == 0 || (t.rank == 1 && t.dim[0] == 1);
}

bool pass_is_commutative(hir_opcode code) {
    return code == HIR_ADD_OP || code == HIR_MUL_OP || code == HIR_MAX_OP || code == HIR_MIN_OP;
}

bool pass_broadcast(hir_type a, hir_type b, hir_type *out) {
    uint32_t rank = a.rank > b.rank ? a.rank : b.rank;
    *out = (hir_type){.dtype = HIR_F32, .rank = rank};
    for (uint32_t i = 0; i < rank; i++) { /* i counts from the right */
        int64_t x = i < a.rank ? a.dim[a.rank - 1 - i] : 1;
        int64_t y = i < b.rank ? b.dim[b.rank - 1 - i] : 1;
        if (x != y && x != 1 && y != 1) return false;
        out->dim[rank - 1 - i] = x == 1 ? y : x;
    }
    return true;
}

const char *pass_value_name(const hir_module *m, hir_id value, hd_arena *a) {
    const char *name = hir_value_at(m, value)->name;
    return name ? hd_printf(a, "%%%s", name) : hd_printf(a, "%%%u", value);
}

const char *pass_op_text(const hir_module *m, hir_id op, hd_arena *a) {
    hd_text t;
    hd_text_init(&t, a);
    hir_print_op(m, op, &t);
    return t.at;
}

/* ---- building ------------------------------------------------------------------------------ */
static bool same_shape(hir_type a, hir_type b) {
    a.dtype = b.dtype;
    return hir_type_equal(a, b);
}

void pass_kernel_attrs(const char *name, hir_attr attrs[PASS_KERNEL_ATTRS]) {
    attrs[0] = hir_string(HIR_A_NAME, name);
    attrs[1] = hir_string(HIR_A_ROWS, hir_rows_name(HIR_ROWS_ALL));
    attrs[2] = hir_string(HIR_A_SPLIT_DECODE, hir_split_name(HIR_SPLIT_NONE));
    attrs[3] = hir_string(HIR_A_SPLIT_PREFILL, hir_split_name(HIR_SPLIT_NONE));
}

hir_ref pass_reshape(hir_builder *b, hir_ref x, hir_type t) {
    if (same_shape(hir_ref_type(b->m, x), t)) return x;
    hir_attr shape = hir_ints(HIR_A_SHAPE, t.dim, t.rank);
    return hir_emit(b, HIR_RESHAPE_OP, &x, 1, &shape, 1);
}

hir_ref pass_reduce(hir_builder *b, hir_opcode code, hir_ref x, uint32_t axis) {
    hir_attr at = hir_int(HIR_A_AXIS, axis);
    return hir_emit(b, code, &x, 1, &at, 1);
}

hir_type pass_with_one(hir_type t, uint32_t axis) {
    for (uint32_t i = t.rank; i > axis; i--)
        t.dim[i] = t.dim[i - 1];
    t.dim[axis] = 1;
    t.rank++;
    return t;
}

hir_type pass_keep_one(hir_type t, uint32_t axis) {
    t.dim[axis] = 1;
    return t;
}

/* [T, a, b, K] as [T, ab, K] and [a, b, K] as [ab, K]: merges all dims between T and the last. */
static hir_type flat_rows(hir_type t) {
    uint32_t lead = hir_type_has_t(t);
    hir_type flat = {.dtype = t.dtype, .rank = lead};
    if (lead) flat.dim[0] = t.dim[0];
    int64_t n = 1;
    for (uint32_t i = lead; i + 1 < t.rank; i++)
        n *= t.dim[i]; /* cannot overflow: n divides the row size, which was checked */
    if (t.rank > lead + 1) flat.dim[flat.rank++] = n;
    flat.dim[flat.rank++] = t.dim[t.rank - 1];
    return flat;
}

hir_ref pass_linear_as_rows(hir_builder *b, hir_ref x, hir_ref w, hir_ref bias) {
    const hir_module *m = b->m;
    hir_type xt = hir_ref_type(m, x), wt = hir_ref_type(m, w);
    hir_type result = xt;
    result.dim[result.rank - 1] = wt.dim[0];
    hir_ref product;
    if (wt.dim[0] == 1) { /* w [1, K] broadcasts without a reshape of x, unless x is a vector */
        hir_type vector = hir_make_type(wt.dtype, 1, &wt.dim[1]);
        product = hir_emit2(b, HIR_MUL_OP, x, pass_reshape(b, w, vector));
    } else {
        hir_type flat = flat_rows(xt);
        hir_ref rows = pass_reshape(b, x, flat);
        rows = pass_reshape(b, rows, pass_with_one(flat, flat.rank - 1));
        product = hir_emit2(b, HIR_MUL_OP, rows, w);
    }
    if (product.kind == HIR_REF_NONE) return product;
    hir_ref y = pass_reduce(b, HIR_REDUCE_SUM_OP, product, hir_ref_type(m, product).rank - 1);
    if (y.kind == HIR_REF_NONE) return y;
    y = pass_reshape(b, y, result);
    return bias.kind == HIR_REF_NONE ? y : hir_emit2(b, HIR_ADD_OP, y, bias);
}

/* ---- derived weights ------------------------------------------------------------------------- */
/* What a weight is, as text that differs for weights that differ. */
static const char *text_of(hd_arena *a, hir_type t, const hir_derived_row *rows, uint32_t n) {
    hd_text text;
    hd_text_init(&text, a);
    hd_text_f(&text, "%d", (int)t.dtype);
    for (uint32_t i = 0; i < t.rank; i++)
        hd_text_f(&text, ",%lld", (long long)t.dim[i]);
    for (uint32_t r = 0; r < n; r++) {
        hd_text_add(&text, "\n");
        for (uint32_t k = 0; k < rows[r].n; k++) {
            const hir_derived_factor *f = &rows[r].factor[k];
            hd_text_f(&text, "%zu:%s,%d,%lld,%lld;", strlen(f->name), f->name, (int)f->by,
                      (long long)f->first, (long long)f->n);
        }
    }
    return text.at;
}

static void index_derived(hir_pass_context *c) {
    if (!c->derived.arena) hir_names_init(&c->derived, c->scratch);
    for (; c->n_derived < c->m->weights.n; c->n_derived++) {
        const hir_weight *w = &c->m->weights.at[c->n_derived];
        if (!hir_is_derived(w)) continue;
        const char *text = text_of(c->scratch, w->type, w->rows, w->n_rows);
        hir_names_add(&c->derived, text, (uint32_t)c->n_derived);
    }
}

/* A name that no weight has. The index keeps, by name, which numbers are taken. */
static const char *free_name(hir_pass_context *c, const char *base, const char *what) {
    const char *first = hd_printf(c->scratch, "%s.%s", base, what), *name = first;
    const char *key = hd_printf(c->scratch, "\n%s", first); /* no text of a weight begins so */
    uint32_t *last = hir_names_find(&c->derived, key);
    uint32_t i = last ? *last : 1;
    while (hir_find_weight(c->m, name) != HIR_NONE)
        name = hd_printf(c->scratch, "%s%u", first, ++i);
    if (last)
        *last = i;
    else
        hir_names_add(&c->derived, key, i);
    return name;
}

uint32_t pass_derived_weight(hir_pass_context *c, hir_type t, const hir_derived_row *rows,
                             uint32_t n, hd_loc loc) {
    index_derived(c);
    const uint32_t *same = hir_names_find(&c->derived, text_of(c->scratch, t, rows, n));
    if (same) return *same;
    const char *name = free_name(c, rows[0].factor[0].name, n > 1 ? "rows" : "folded");
    return hir_add_derived_weight(c->m, name, t, rows, n, loc);
}

/* ---- replacing many values at once --------------------------------------------------------- */
void pass_forward_set(pass_forward *f, hir_id value, hir_ref with) {
    while (f->to.n <= value)
        hd_push(f->arena, &f->to, hir_no_ref());
    f->to.at[value] = with;
}

hir_ref pass_forward_get(const pass_forward *f, hir_ref r) {
    while (r.kind == HIR_REF_VALUE && r.index < f->to.n && f->to.at[r.index].kind != HIR_REF_NONE)
        r = f->to.at[r.index];
    return r;
}

void pass_forward_args(const pass_forward *f, hir_module *m, hir_id op) {
    hir_op *o = hir_op_at(m, op);
    for (uint32_t i = 0; i < o->n_args; i++)
        o->args[i] = pass_forward_get(f, o->args[i]);
}

void pass_forward_op(pass_forward *f, hir_module *m, hir_id op, hir_ref with) {
    pass_forward_set(f, hir_result(m, op), with);
    hd_push(f->arena, &f->dead, op);
}

void pass_forward_finish(pass_forward *f, hir_module *m) {
    for (size_t op = 0; f->to.n && op < m->ops.n; op++)
        if (!m->ops.at[op].erased) pass_forward_args(f, m, (hir_id)op);
    for (size_t i = f->dead.n; i-- > 0;) /* users first */
        hir_erase(m, f->dead.at[i]);
    f->dead.n = 0;
}
