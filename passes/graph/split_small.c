/* split-small-contractions: linear ops that do not suit a contraction kernel become row operations.
 *
 * Needs    a graph.
 * Does     A contraction kernel multiplies rows x [T, K] with the packed panels of a weight [N, K].
 *          linear ops that are not of this form, or whose N fills less than half a panel, are
 *          written as mul and reduce_sum (and add), which fuse with the ops around them: a stack of
 *          n sources [T, n, d] times a pseudo-query [1, d] gives [T, n, 1] inside the row program
 *          that mixes them. Where N fills a vector the sum is taken over the columns of the weight,
 *          transposed when it is packed, for all lanes at once. The rules:
 *            - a bias that is not a weight becomes a separate add;
 *            - N <= 8, unless N > 2 and the matrix is too large to be read for every token, a
 *              matrix that is not a weight, an x without T, or a weight that is also read element
 *              by element (its rows must stay rows): row operations;
 *            - x [T, .., K] with a large weight: one linear per slice x[:, s], stacked again, as
 *              long as there are at most 64; small weights and longer ones: row operations.
 *          block_linear whose matrices are no weight, or whose x has no T: row operations.
 * Leaves   linear ops on [T, K] with a weight of more than 8 rows, or a large one of 3 to 8: the
 *          contraction kernels.
 */
#include "passes/util.h"

enum {
    FEW_COLUMNS = 8,          /* half a panel */
    LEAST_COLUMNS = 3,        /* fewer would leave most of a narrow panel empty */
    NEAR_WEIGHT = 8 * 1024,   /* elements: 32 KB, which stay in the L1 cache from row to row */
    SMALL_WEIGHT = 128 * 128, /* elements: of smaller ones the products of a row fit the L1 cache */
    MOST_SLICES = 64,
};

typedef struct splitter {
    hir_pass_context *c;
    hir_module *m;
    bool *by_element; /* weights that an op other than linear and gather reads */
    pass_forward forward;
} splitter;

/* ---- which ops ----------------------------------------------------------------- */
/* The reason to make it row operations; NULL: none. */
static const char *reason_for_rows(const splitter *s, hir_ref x, hir_ref w) {
    hir_type xt = hir_ref_type(s->m, x), wt = hir_ref_type(s->m, w);
    if (w.kind != HIR_REF_WEIGHT) return "its matrix is not a weight";
    if (!hir_type_has_t(xt)) return "its x is the same for every token";
    const bool near = wt.dim[0] < LEAST_COLUMNS || pass_elements(wt) <= NEAR_WEIGHT;
    if (wt.dim[0] <= FEW_COLUMNS && (near || xt.rank > 2)) return "it has few outputs";
    const bool heads = xt.rank > 2;
    if (heads && pass_elements(wt) <= SMALL_WEIGHT)
        return "its x has more than two dims and its weight is small";
    if (s->by_element[w.index]) return "its weight is also read element by element";
    const int64_t slices = pass_elements(xt) / wt.dim[1];
    return heads && slices > MOST_SLICES ? "its x has too many slices" : NULL;
}

/* The reason to make a block_linear row operations; NULL: none. */
static const char *blocks_as_rows(const hir_module *m, hir_id op) {
    if (pass_arg(m, op, 1).kind != HIR_REF_WEIGHT) return "its matrices are not a weight";
    return hir_type_has_t(hir_arg_type(m, op, 0)) ? NULL : "its x is the same for every token";
}

/* Marks weights that are read element by element: by all ops except gather, which reads rows, and
 * those linear ops that stay contractions, which read panels. */
static void find_elementwise_reads(splitter *s) {
    HIR_EACH(s->m, op, s->m->first) {
        const hir_op *o = hir_op_at(s->m, op);
        for (uint32_t i = 0; i < o->n_args; i++) {
            if (o->args[i].kind != HIR_REF_WEIGHT) continue;
            bool gathered = o->code == HIR_GATHER_OP && i == 0;
            bool contracted =
                o->code == HIR_LINEAR_OP && i == 1 && !reason_for_rows(s, o->args[0], o->args[1]);
            const bool blocks =
                o->code == HIR_BLOCK_LINEAR_OP && i == 1 && !blocks_as_rows(s->m, op);
            if (!gathered && !contracted && !blocks) s->by_element[o->args[i].index] = true;
        }
    }
}

static hir_ref with_bias(hir_builder *b, hir_ref y, hir_ref bias) {
    if (y.kind == HIR_REF_NONE || bias.kind == HIR_REF_NONE) return y;
    return hir_emit2(b, HIR_ADD_OP, y, bias);
}

/* ---- by columns ---------------------------------------------------------------------------- */
/* w^T [K, N], if N fills whole vectors: sums over K are then computed for a vector of outputs at
 * once, without a sum across lanes for each output. None ref: the rows of w are used. */
static hir_ref columns_of(splitter *s, hir_id op, hir_ref w) {
    if (w.kind != HIR_REF_WEIGHT) return hir_no_ref();
    const hir_weight *rows = &s->m->weights.at[w.index];
    const hir_type t = rows->type;
    if (rows->stacked || rows->share.on || t.rank != 2 || t.dim[0] < HIR_PANEL || t.dim[1] < 2)
        return hir_no_ref();
    if (hir_is_derived(rows)) {
        const hir_id whole = hir_transposed_source(s->m, rows);
        return whole == HIR_NONE ? hir_no_ref() : hir_weight_ref(whole);
    }
    const hir_type turned = hir_make_type(t.dtype, 2, (int64_t[]){t.dim[1], t.dim[0]});
    hir_derived_factor factor = {.name = rows->name, .by = HIR_DERIVED_TRANSPOSED};
    const hir_derived_row row = {1, &factor};
    return hir_weight_ref(pass_derived_weight(s->c, turned, &row, 1, *hir_op_at(s->m, op)->loc));
}

/* y[.., n] = sum over k of x[.., k, 1] columns[k, n] */
static hir_ref linear_by_columns(hir_builder *b, hir_ref x, hir_ref columns, hir_ref bias) {
    hir_type t = hir_ref_type(b->m, x);
    hir_ref product = pass_reshape(b, x, pass_with_one(t, t.rank));
    product = hir_emit2(b, HIR_MUL_OP, product, columns);
    if (product.kind == HIR_REF_NONE) return product;
    const hir_ref y = pass_reduce(b, HIR_REDUCE_SUM_OP, product, t.rank - 1);
    return with_bias(b, y, bias);
}

/* ---- rewrites ------------------------------------------------------------------------------ */
/* Takes x as [T, S, K], builds the linear of x[:, s] for each s, and reshapes their stack [T, S, N]
 * to the old shape. */
static hir_ref linear_of_slices(splitter *s, hir_builder *b, hir_ref x, hir_ref w) {
    hir_type xt = hir_ref_type(s->m, x), wt = hir_ref_type(s->m, w);
    int64_t k = wt.dim[1], n = wt.dim[0], slices = pass_elements(xt) / k;
    hir_type row = hir_make_type(HIR_F32, 2, (int64_t[]){xt.dim[0], k});
    hir_ref flat = pass_reshape(b, x, hir_make_type(HIR_F32, 3, (int64_t[]){xt.dim[0], slices, k}));
    hir_ref parts[MOST_SLICES];
    for (int64_t i = 0; i < slices; i++) {
        hir_attr at[] = {hir_int(HIR_A_AXIS, 1), hir_int(HIR_A_START, i), hir_int(HIR_A_LENGTH, 1)};
        hir_ref slice = hir_emit(b, HIR_SLICE_OP, &flat, 1, at, 3);
        if (slice.kind == HIR_REF_NONE) return slice;
        slice = pass_reshape(b, slice, row);
        parts[i] = hir_emit(b, HIR_LINEAR_OP, (hir_ref[]){slice, w, hir_no_ref()}, 3, NULL, 0);
    }
    hir_attr axis = hir_int(HIR_A_AXIS, 1);
    hir_ref y = hir_emit(b, HIR_STACK_OP, parts, (uint32_t)slices, &axis, 1);
    if (y.kind == HIR_REF_NONE) return y;
    xt.dim[xt.rank - 1] = n;
    return pass_reshape(b, y, xt);
}

static bool replace(splitter *s, hir_id op, hir_ref y) {
    if (y.kind == HIR_REF_NONE) return false;
    pass_forward_op(&s->forward, s->m, op, y);
    s->c->changed = true;
    return true;
}

/* Rewrites a block_linear as x [.., G, 1, K] times w [G, N, K], summed over K. */
static bool split_blocks(splitter *s, hir_id op, const char *reason) {
    hir_builder b = hir_before(s->m, s->c->diags, op);
    const hir_ref x = pass_arg(s->m, op, 0);
    const hir_type t = hir_ref_type(s->m, x);
    hir_ref y = pass_reshape(&b, x, pass_with_one(t, t.rank - 1));
    y = hir_emit2(&b, HIR_MUL_OP, y, pass_arg(s->m, op, 1));
    if (y.kind == HIR_REF_NONE) return false;
    hir_remark_add(s->c, true, op, "row operations instead of block contractions: %s", reason);
    return replace(s, op, pass_reduce(&b, HIR_REDUCE_SUM_OP, y, hir_ref_type(s->m, y).rank - 1));
}

static bool split(splitter *s, hir_id op) {
    hir_ref x = pass_arg(s->m, op, 0), w = pass_arg(s->m, op, 1), bias = pass_arg(s->m, op, 2);
    hir_builder b = hir_before(s->m, s->c->diags, op);
    const char *reason = reason_for_rows(s, x, w);
    if (reason) {
        const hir_ref columns = columns_of(s, op, w);
        const bool has = columns.kind != HIR_REF_NONE;
        hir_remark_add(s->c, true, op, "row operations%s instead of a contraction: %s",
                       has ? ", by columns," : "", reason);
        return replace(s, op,
                       has ? linear_by_columns(&b, x, columns, bias)
                           : pass_linear_as_rows(&b, x, w, bias));
    }
    if (hir_ref_type(s->m, x).rank > 2) {
        hir_remark_add(s->c, true, op, "one contraction per slice of x, which has %u dims",
                       hir_ref_type(s->m, x).rank);
        return replace(s, op, with_bias(&b, linear_of_slices(s, &b, x, w), bias));
    }
    if (bias.kind == HIR_REF_VALUE) {
        hir_remark_add(s->c, true, op, "the bias is not a weight: a separate add");
        hir_ref y = hir_emit(&b, HIR_LINEAR_OP, (hir_ref[]){x, w, hir_no_ref()}, 3, NULL, 0);
        return replace(s, op, with_bias(&b, y, bias));
    }
    return true;
}

bool pass_split_small(hir_pass_context *c) {
    splitter s = {
        .c = c,
        .m = c->m,
        .by_element = hd_new_array(c->scratch, bool, c->m->weights.n),
        .forward = {.arena = c->scratch},
    };
    find_elementwise_reads(&s);
    HIR_EACH(s.m, op, s.m->first) {
        pass_forward_args(&s.forward, s.m, op);
        const hir_opcode code = hir_op_at(s.m, op)->code;
        if (code == HIR_LINEAR_OP && !split(&s, op)) return false;
        const char *reason = code == HIR_BLOCK_LINEAR_OP ? blocks_as_rows(s.m, op) : NULL;
        if (reason && !split_blocks(&s, op, reason)) return false;
    }
    pass_forward_finish(&s.forward, s.m);
    return true;
}
