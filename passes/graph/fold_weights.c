/* fold-weights: expressions of weights alone become derived weights, computed when weights are
 * packed.
 *
 * Needs    a graph.
 * Does     Products of weights that are vectors or matrices (mul, through reshapes), and stacks of
 *          such vectors and concats of such matrices along axis 0, become derived weights: tables
 *          whose rows the packer computes from the checkpoint, so that no kernel computes them. A
 *          pseudo-query times the gain of its key norm is one vector to read instead of two; the
 *          queries of a block are one table. So do the softmax of a vector, a sigmoid, and slices
 *          of these: the weights of a mix that are the same for every token; and e^x, also of a
 *          slice of a weight: the rates of decay of a recurrence. The minus of -(a x), where a is
 *          such a rate and x depends on tokens, moves to a, which gives the same bits. Maximal
 *          expressions are folded: a stack of products is one weight. Equal expressions share one
 *          weight. A matrix, or each of a stack, that a checkpoint stores as a factor on the right
 *          is transposed; matrices that it stores in another shape are reshaped to the one in which
 *          they are multiplied. With gradients the matrices alone.
 * Leaves   everything that depends on tokens or contains other ops; plain weights; the ops that are
 *          now dead (dce removes them).
 */
#include <string.h>

#include "passes/util.h"

enum { MOST_FACTORS = 8 };

typedef struct product { /* each factor has all elements, those of one row, or one element */
    uint32_t n;
    hir_derived_factor factor[MOST_FACTORS];
    bool by_row; /* some factor has one row, broadcast to several */
} product;

typedef struct folder {
    hir_pass_context *c;
    hir_module *m;
    product **of;     /* by value: the product that it equals; NULL: there is none */
    bool *live;       /* by value: a live op uses it */
    bool *wanted;     /* by value: a live op that is not folded uses it */
    bool *given_out;  /* by value: an output or trace, which cannot be a weight */
    bool *multiplied; /* by value: a contraction reads it as its matrix */
    bool parameters;  /* the module has gradients: weights are parameters */
    size_t n_values;
    pass_forward forward;
} folder;

/* ---- a minus before a rate ------------------------------------------------------------------- */
/* The exp op if r, possibly through reshapes, is the exp of weights alone; otherwise HIR_NONE. */
static hir_id rate_of(const hir_module *m, hir_ref r) {
    hir_id by = pass_def(m, r);
    while (by != HIR_NONE && hir_op_at(m, by)->code == HIR_RESHAPE_OP)
        by = pass_def(m, pass_arg(m, by, 0));
    if (by == HIR_NONE || hir_op_at(m, by)->code != HIR_EXP_OP) return HIR_NONE;
    const hir_ref y = hir_value_ref(hir_op_at(m, by)->results[0]);
    return hir_type_has_t(hir_ref_type(m, y)) || hir_type_has_c(hir_ref_type(m, y)) ? HIR_NONE : by;
}

/* -(a x) becomes (-a) x where a is a rate and nothing else reads the product. */
static void move_minus(hir_pass_context *c) {
    hir_module *m = c->m;
    pass_forward forward = {.arena = c->scratch};
    uint32_t *uses = hd_new_array(c->scratch, uint32_t, m->values.n);
    HIR_EACH(m, op, m->first) {
        const hir_op *o = hir_op_at(m, op);
        for (uint32_t i = 0; i < o->n_args; i++)
            if (o->args[i].kind == HIR_REF_VALUE) uses[o->args[i].index]++;
    }
    HIR_EACH(m, op, m->first) {
        if (hir_op_at(m, op)->code != HIR_NEG_OP) continue;
        const hir_ref x = pass_arg(m, op, 0);
        const hir_id mul = pass_def_if(m, x, HIR_MUL_OP);
        if (mul == HIR_NONE || !hir_type_has_t(hir_ref_type(m, x)) || uses[x.index] > 1) continue;
        const bool second = rate_of(m, pass_arg(m, mul, 0)) == HIR_NONE;
        const hir_ref a = pass_arg(m, mul, second), other = pass_arg(m, mul, !second);
        const hir_id rate = rate_of(m, a);
        if (rate == HIR_NONE) continue;
        hir_builder b = hir_before(m, c->diags, op);
        const hir_ref e = hir_value_ref(hir_op_at(m, rate)->results[0]);
        hir_ref minus = hir_emit(&b, HIR_NEG_OP, &e, 1, NULL, 0);
        if (minus.kind == HIR_REF_NONE) return;
        minus = pass_reshape(&b, minus, hir_ref_type(m, a));
        pass_forward_op(&forward, m, op, hir_emit2(&b, HIR_MUL_OP, minus, other));
        c->changed = true;
    }
    pass_forward_finish(&forward, m);
}

/* ---- products ------------------------------------------------------------------------------- */
static int64_t elements(const folder *f, hir_ref r) {
    hir_type t = hir_ref_type(f->m, r);
    return hir_type_has_t(t) ? 0 : pass_elements(t);
}

/* Is r a weight of the checkpoint, or a product that was found before? */
static bool product_of(const folder *f, hir_ref r, product *out) {
    if (r.kind == HIR_REF_WEIGHT && !hir_is_derived(&f->m->weights.at[r.index])) {
        *out = (product){.n = 1, .factor = {{.name = f->m->weights.at[r.index].name}}};
        return true;
    }
    if (r.kind != HIR_REF_VALUE || r.index >= f->n_values) return false;
    if (f->of[r.index]) *out = *f->of[r.index];
    return f->of[r.index];
}

static void note(folder *f, hir_id op, const product *p) {
    product *kept = hd_new(f->c->scratch, product);
    *kept = *p;
    f->of[hir_result(f->m, op)] = kept;
}

/* Does r have all elements of op's result, those of one row, or one element? */
static bool spreads(const folder *f, hir_id op, hir_ref r) {
    const hir_type t = pass_result_type(f->m, op), x = hir_ref_type(f->m, r);
    const int64_t n = elements(f, r);
    const bool row = t.rank == 2 && x.rank > 0 && n == t.dim[1] && x.dim[x.rank - 1] == n;
    return n == pass_elements(t) || n == 1 || row;
}

static bool is_repeated(const folder *f, hir_id op, hir_ref r) {
    const int64_t n = elements(f, r);
    return n > 1 && n < pass_elements(pass_result_type(f->m, op));
}

static void read_mul(folder *f, hir_id op) {
    hir_ref a = pass_arg(f->m, op, 0), b = pass_arg(f->m, op, 1);
    product p = {0}, q = {0};
    if (!spreads(f, op, a) || !spreads(f, op, b)) return;
    if (!product_of(f, a, &p) || !product_of(f, b, &q)) return;
    if (p.n + q.n > MOST_FACTORS) return;
    memcpy(p.factor + p.n, q.factor, q.n * sizeof *q.factor);
    p.n += q.n;
    p.by_row |= q.by_row || is_repeated(f, op, a) || is_repeated(f, op, b);
    note(f, op, &p);
}

/* ---- functions and slices of one weight ---------------------------------------------- */
/* Is r one factor: a weight of the checkpoint or a function of one, such as sigmoid or softmax? */
static bool one_factor(const folder *f, hir_ref r, product *p) {
    return product_of(f, r, p) && p->n == 1;
}

/* Restricts one factor to the elements of `slice`; false if these are not contiguous. */
static bool cut_factor(const folder *f, hir_id slice, product *p) {
    const hir_op *o = hir_op_at(f->m, slice);
    const hir_type t = hir_ref_type(f->m, o->args[0]), y = pass_result_type(f->m, slice);
    const int64_t axis = hir_attr_int(o, HIR_A_AXIS, 0), start = hir_attr_int(o, HIR_A_START, 0);
    int64_t outer = 1;
    if (!one_factor(f, o->args[0], p)) return false;
    for (int64_t i = 0; i < axis; i++)
        outer *= t.dim[i];
    p->factor[0].first += start * (pass_elements(t) / t.dim[axis]);
    p->factor[0].n = pass_elements(y);
    return outer == 1;
}

/* Notes a function of each element of a weight, or of a slice of one, which is a slice of the
 * function. */
static void read_elementwise(folder *f, hir_id op, hir_derived_by by) {
    const hir_ref x = pass_arg(f->m, op, 0);
    const hir_id slice = pass_def_if(f->m, x, HIR_SLICE_OP);
    product p = {0};
    if (hir_type_has_t(hir_ref_type(f->m, x))) return;
    if (!one_factor(f, x, &p) && (slice == HIR_NONE || !cut_factor(f, slice, &p))) return;
    if (p.factor[0].by) return;
    p.factor[0].by = by;
    note(f, op, &p);
}

/* The minus is applied to a factor that is a plain weight or an exp. */
static void read_neg(folder *f, hir_id op) {
    product p = {0};
    if (hir_type_has_t(pass_result_type(f->m, op)) || !product_of(f, pass_arg(f->m, op, 0), &p))
        return;
    for (uint32_t k = 0; k < p.n; k++) {
        hir_derived_by *by = &p.factor[k].by;
        if (*by != HIR_DERIVED_AS_IS && *by != HIR_DERIVED_EXP) continue;
        *by = *by == HIR_DERIVED_EXP ? HIR_DERIVED_NEG_EXP : HIR_DERIVED_NEG;
        note(f, op, &p);
        return;
    }
}

/* Notes the softmax of all elements of a vector, or a sigmoid. */
static void read_function(folder *f, hir_id op, hir_derived_by by) {
    const hir_ref x = pass_arg(f->m, op, 0);
    const hir_type t = hir_ref_type(f->m, x);
    product p = {0};
    if (!one_factor(f, x, &p) || p.factor[0].by || p.factor[0].n) return;
    const int64_t axis = hir_attr_int(hir_op_at(f->m, op), HIR_A_AXIS, 0);
    if (by == HIR_DERIVED_SOFTMAX && t.dim[axis] != pass_elements(t)) return;
    p.factor[0].by = by;
    note(f, op, &p);
}

/* Notes contiguous slices of a function of a weight. Slices of a plain weight are not folded: they
 * are read in place. */
static void read_slice(folder *f, hir_id op) {
    product p = {0};
    if (!one_factor(f, pass_arg(f->m, op, 0), &p) || !p.factor[0].by) return;
    if (cut_factor(f, op, &p)) note(f, op, &p);
}

static void read_op(folder *f, hir_id op) {
    const hir_op *o = hir_op_at(f->m, op);
    if (o->n_results != 1 || f->given_out[o->results[0]]) return;
    if (o->code == HIR_SOFTMAX_OP) read_function(f, op, HIR_DERIVED_SOFTMAX);
    if (o->code == HIR_SIGMOID_OP) read_function(f, op, HIR_DERIVED_SIGMOID);
    if (o->code == HIR_EXP_OP) read_elementwise(f, op, HIR_DERIVED_EXP);
    if (o->code == HIR_NEG_OP) read_neg(f, op);
    if (o->code == HIR_SLICE_OP) read_slice(f, op);
    if (o->code == HIR_MUL_OP && !hir_type_has_t(pass_result_type(f->m, op))) read_mul(f, op);
    if (o->code == HIR_RESHAPE_OP) {
        product p = {0};
        const hir_type from = hir_ref_type(f->m, o->args[0]), to = pass_result_type(f->m, op);
        const bool rows = from.rank > 0 && to.rank > 0 &&
                          from.dim[from.rank - 1] == to.dim[to.rank - 1]; /* rows are kept */
        if (product_of(f, o->args[0], &p) && (rows || !p.by_row)) note(f, op, &p);
    }
}

/* ---- which to fold ----------------------------------------------------------------------- */
static bool has_function(const product *p) {
    bool by = false;
    for (uint32_t k = 0; k < p->n; k++)
        by |= p->factor[k].by != HIR_DERIVED_AS_IS;
    return by;
}

/* A single element is not worth a weight, unless a function is needed to compute it. */
static bool is_vector(hir_type t, const product *p) {
    return t.rank == 1 && (t.dim[0] > 1 || has_function(p));
}

static bool is_matrix(hir_type t) {
    return t.rank == 2 && t.dim[1] > 1;
}

/* The weight of the checkpoint that the op reads, perhaps reshaped; NULL: it reads something else. */
static const hir_weight *weight_of(const folder *f, hir_id op) {
    hir_ref x = pass_arg(f->m, op, 0);
    const hir_id reshape = pass_def_if(f->m, x, HIR_RESHAPE_OP);
    if (reshape != HIR_NONE) x = pass_arg(f->m, reshape, 0);
    const hir_weight *w = x.kind == HIR_REF_WEIGHT ? &f->m->weights.at[x.index] : NULL;
    /* parameters lie in one piece, however a checkpoint stores them */
    const bool stacked = w && w->stacked && !f->parameters;
    return !w || hir_is_derived(w) || stacked ? NULL : w;
}

/* Does the op swap the last two dims of a weight of the checkpoint, or of its reshape? */
static bool is_transposed(const folder *f, hir_id op) {
    if (hir_op_at(f->m, op)->code != HIR_TRANSPOSE_OP) return false;
    const hir_weight *w = weight_of(f, op);
    const uint32_t rank = hir_arg_type(f->m, op, 0).rank;
    if (!w || rank < 2 || rank > 3 || w->type.rank < 2 || w->type.rank > 3) return false;
    const int64_t *perm = hir_find_attr(hir_op_at(f->m, op), HIR_A_PERM)->ints;
    return perm[rank - 2] == rank - 1 && perm[rank - 1] == rank - 2;
}

/* Does the op reshape a weight of the checkpoint to the matrices as which it is multiplied?
 * Contraction kernels read panels, whose layout depends on the shape; other kernels read a reshaped
 * weight in place. */
static bool is_reshaped(const folder *f, hir_id op) {
    const hir_op *o = hir_op_at(f->m, op);
    if (o->code != HIR_RESHAPE_OP || o->args[0].kind != HIR_REF_WEIGHT) return false;
    const hir_weight *w = &f->m->weights.at[o->args[0].index];
    const uint32_t rank = pass_result_type(f->m, op).rank;
    return !hir_is_derived(w) && !w->stacked && (rank == 2 || rank == 3) &&
           f->multiplied[o->results[0]];
}

/* The derived rows of a transposed weight: one for each matrix. */
static uint32_t transposed_rows(const folder *f, hir_id op, hir_derived_row **rows) {
    const hir_weight *w = weight_of(f, op);
    const hir_type t = hir_arg_type(f->m, op, 0);
    const uint32_t n = t.rank == 3 ? (uint32_t)t.dim[0] : 1;
    const int64_t each = t.dim[t.rank - 2] * t.dim[t.rank - 1];
    *rows = hd_new_array(f->c->scratch, hir_derived_row, n);
    for (uint32_t i = 0; i < n; i++) {
        hir_derived_factor *factor = hd_new(f->c->scratch, hir_derived_factor);
        *factor = (hir_derived_factor){
            .name = w->name, .by = HIR_DERIVED_TRANSPOSED, .first = i * each, .n = each};
        (*rows)[i] = (hir_derived_row){1, factor};
    }
    return n;
}

/* Is it a stack of products of vectors along a new first axis, or a concat of matrices, or of
 * functions of vectors? */
static bool is_table(const folder *f, hir_id op) {
    if (f->parameters) return false;
    const hir_op *o = hir_op_at(f->m, op);
    const bool stack = o->code == HIR_STACK_OP;
    if ((!stack && o->code != HIR_CONCAT_OP) || hir_attr_int(o, HIR_A_AXIS, 0) != 0) return false;
    product p = {0};
    for (uint32_t i = 0; i < o->n_args; i++) {
        const hir_type t = hir_ref_type(f->m, o->args[i]);
        if (!product_of(f, o->args[i], &p)) return false;
        const bool function = has_function(&p) && is_vector(t, &p);
        if (!(stack ? is_vector(t, &p) : function || is_matrix(t))) return false;
    }
    return true;
}

static bool is_product(const folder *f, hir_id op) {
    const hir_op *o = hir_op_at(f->m, op);
    const product *p = o->n_results == 1 ? f->of[o->results[0]] : NULL;
    if (!p || (p->n < 2 && !has_function(p))) return false;
    const hir_type t = pass_result_type(f->m, op);
    return is_vector(t, p) || is_matrix(t);
}

/* Called in reverse program order. */
static void note_reads(folder *f, hir_id op) {
    const hir_op *o = hir_op_at(f->m, op);
    bool live = hir_has_trait(o->code, HIR_EFFECT);
    for (uint32_t i = 0; i < o->n_results; i++)
        live |= f->live[o->results[i]];
    const bool folded = is_table(f, op) || is_product(f, op); /* its operands become parts of it */
    for (uint32_t i = 0; live && i < o->n_args; i++) {
        if (o->args[i].kind != HIR_REF_VALUE) continue;
        f->live[o->args[i].index] = true;
        f->wanted[o->args[i].index] |= !folded;
    }
}

/* ---- derived weights ------------------------------------------------------------------------- */
static hir_derived_row row_of(const folder *f, const product *p) {
    hir_derived_row row = {p->n, hd_new_array(f->c->scratch, hir_derived_factor, p->n)};
    memcpy(row.factor, p->factor, p->n * sizeof *p->factor);
    return row;
}

static void replace(folder *f, hir_id op, const hir_derived_row *rows, uint32_t n) {
    const hir_type t = pass_result_type(f->m, op);
    const uint32_t w = pass_derived_weight(f->c, t, rows, n, *hir_op_at(f->m, op)->loc);
    hir_remark_add(f->c, true, op, "becomes derived weight @%s, computed when weights are packed",
                   f->m->weights.at[w].name);
    pass_forward_op(&f->forward, f->m, op, hir_weight_ref(w));
    f->c->changed = true;
}

static void fold(folder *f, hir_id op) {
    const hir_op *o = hir_op_at(f->m, op);
    if (is_transposed(f, op) && f->wanted[o->results[0]] && !f->given_out[o->results[0]]) {
        hir_derived_row *rows;
        const uint32_t n = transposed_rows(f, op, &rows);
        replace(f, op, rows, n);
    } else if (is_reshaped(f, op) && !f->given_out[o->results[0]]) {
        const hir_weight *w = &f->m->weights.at[o->args[0].index];
        hir_derived_factor factor = {.name = w->name};
        replace(f, op, &(hir_derived_row){1, &factor}, 1);
    } else if (is_table(f, op) && o->n_args > 1 && f->wanted[o->results[0]] &&
               !f->given_out[o->results[0]]) {
        uint32_t n = o->n_args;
        hir_derived_row *rows = hd_new_array(f->c->scratch, hir_derived_row, n);
        for (uint32_t i = 0; i < n; i++) {
            product p = {0};
            product_of(f, o->args[i], &p);
            rows[i] = row_of(f, &p);
        }
        replace(f, op, rows, n);
    } else if (is_product(f, op) && f->wanted[o->results[0]]) {
        const product *p = f->of[o->results[0]];
        const hir_derived_row row = row_of(f, p);
        replace(f, op, &row, 1);
    }
}

/* ---- remarks on expressions that are not folded ---------------------------------------------- */
static bool is_free(hir_opcode code) {
    return code == HIR_CONST_OP || hir_has_trait(code, HIR_MOVE);
}

/* By value: is it computed from weights and constants alone, from at least one weight? */
static bool *made_of_weights(const folder *f) {
    bool *made = hd_new_array(f->c->scratch, bool, f->n_values);
    bool *is_const = hd_new_array(f->c->scratch, bool, f->n_values);
    HIR_EACH(f->m, op, f->m->first) {
        const hir_op *o = hir_op_at(f->m, op);
        if (o->n_results != 1 || o->results[0] >= f->n_values) continue;
        bool weight = false, all = !hir_has_trait(o->code, HIR_EFFECT);
        for (uint32_t i = 0; i < o->n_args; i++) {
            const hir_ref r = o->args[i];
            const bool value = r.kind == HIR_REF_VALUE && r.index < f->n_values;
            const bool known = value && (made[r.index] || is_const[r.index]);
            weight |= r.kind == HIR_REF_WEIGHT || (value && made[r.index]);
            all &= r.kind == HIR_REF_WEIGHT || r.kind == HIR_REF_NONE || known;
        }
        made[o->results[0]] = all && weight;
        is_const[o->results[0]] = all && !weight;
    }
    return made;
}

/* By value: is it read by an op that depends on more than weights, directly or through ops that
 * only move elements? */
static bool *read_by_others(const folder *f, const bool *made) {
    bool *read = hd_new_array(f->c->scratch, bool, f->n_values);
    for (hir_id op = f->m->last; op != HIR_NONE; op = hir_op_at(f->m, op)->prev) {
        const hir_op *o = hir_op_at(f->m, op);
        const hir_id y = o->n_results ? o->results[0] : HIR_NONE;
        if (y != HIR_NONE && (y >= f->n_values || !f->live[y])) continue;
        const bool passes_on = y != HIR_NONE && made[y] && is_free(o->code);
        const bool reads = y == HIR_NONE || !made[y] || (passes_on && read[y]);
        for (uint32_t i = 0; reads && i < o->n_args; i++)
            if (o->args[i].kind == HIR_REF_VALUE && o->args[i].index < f->n_values)
                read[o->args[i].index] = true;
    }
    return read;
}

/* Remarks on expressions of weights alone that the packer cannot compute: they are computed in each
 * call. */
static void remark_left(folder *f) {
    const bool *made = made_of_weights(f), *read = read_by_others(f, made);
    HIR_EACH(f->m, op, f->m->first) {
        const hir_op *o = hir_op_at(f->m, op);
        const hir_id y = o->n_results == 1 ? o->results[0] : HIR_NONE;
        if (y >= f->n_values || !made[y] || !read[y] || !f->wanted[y] || is_free(o->code)) continue;
        if (!hir_ref_equal(pass_forward_get(&f->forward, hir_value_ref(y)), hir_value_ref(y)))
            continue;
        const int64_t numbers = pass_elements(pass_result_type(f->m, op));
        hir_remark_add(f->c, false, op,
                       "computed in each call, not when weights are packed: %s; %lld number%s",
                       f->given_out[y] ? "it is an output"
                       : f->of[y]      ? "one number is not worth a weight"
                                       : "it is no product, stack or function of weights that the "
                                         "packer computes",
                       (long long)numbers, hd_s((uint64_t)numbers));
    }
}

/* Notes which operands of an op are outputs, and which are matrices of a contraction. */
static void note_uses(folder *f, hir_id op) {
    const hir_op *o = hir_op_at(f->m, op);
    const bool gives_out = o->code == HIR_OUTPUT_OP || o->code == HIR_TRACE_OP;
    for (uint32_t i = 0; i < o->n_args; i++) {
        const hir_ref x = o->args[i];
        if (x.kind != HIR_REF_VALUE) continue;
        f->given_out[x.index] |= gives_out && i == 0;
        f->multiplied[x.index] |= hir_is_matrix(o->code, i);
    }
}

bool pass_fold_weights(hir_pass_context *c) {
    /* parameters change from call to call, and gradients run through what is made of them: the graph
     * computes it, but for another order of the elements of a matrix */
    const bool parameters = hir_has_gradients(c->m);
    if (!parameters) move_minus(c);
    folder f = {.c = c,
                .m = c->m,
                .parameters = parameters,
                .n_values = c->m->values.n,
                .forward = {.arena = c->scratch}};
    f.of = hd_new_array(c->scratch, product *, f.n_values);
    f.live = hd_new_array(c->scratch, bool, f.n_values);
    f.wanted = hd_new_array(c->scratch, bool, f.n_values);
    f.given_out = hd_new_array(c->scratch, bool, f.n_values);
    f.multiplied = hd_new_array(c->scratch, bool, f.n_values);
    HIR_EACH(f.m, op, f.m->first) note_uses(&f, op);
    if (!parameters) HIR_EACH(f.m, op, f.m->first) read_op(&f, op);
    for (hir_id op = f.m->last; op != HIR_NONE; op = hir_op_at(f.m, op)->prev)
        note_reads(&f, op);
    HIR_EACH(f.m, op, f.m->first) fold(&f, op);
    if (c->remarks) remark_left(&f);
    pass_forward_finish(&f.forward, f.m);
    return true;
}
