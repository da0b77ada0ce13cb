/* Small matrices of a token: gates, weights of a depth mix (a weighted sum of earlier outputs),
 * the n x n matrices between residual streams.
 *
 * Loops over a few elements cost more than their arithmetic: each nest passes its result to the
 * next through memory, with masked loads and stores, and Sinkhorn's iteration on a 4 x 4 matrix is
 * forty such nests in a row. So the roots of such a nest are computed whole, in straight code: a
 * root is one vector of all its elements in row-major order, it stays in registers for the rest of
 * the token, and a reader's index map is a shuffle with constant lanes:
 *
 *     c / (reduce_sum(c, axis: 1) + eps), c of [4, 4]
 *     lanes (i, j) of the sum:  c[0, j] + c[1, j] + c[2, j] + c[3, j],  four shuffles of c
 *
 * A sum whose terms fit a register of the machine is added up in the lanes of each reader, which
 * saves the shuffle of its result. Only what other nests read is stored.
 */
#include <math.h>

#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"
#include "codegen/rowwise/emit/run.h"

enum {
    MOST_LANES = 64,
    FEW_TERMS = 4, /* terms of a sum that a reader adds up for itself */
};

/* ---- lanes ----------------------------------------------------------------------------------- */

typedef struct lane_map { /* element number for each lane */
    uint32_t n;
    row_size at[MOST_LANES];
} lane_map;

/* Evaluates `f`, over dims of `s`, for each element of `s`. */
static lane_map lanes_of(const row_shape *s, const row_index *f) {
    lane_map m = {.n = (uint32_t)row_elements(s).a};
    for (uint32_t l = 0; l < m.n; l++) {
        int64_t rest = l;
        m.at[l] = f->constant;
        for (uint32_t d = s->rank; d-- > 0; rest /= s->dim[d].a)
            m.at[l] = row_size_add(m.at[l], row_size_scale(f->by[d], rest % s->dim[d].a));
    }
    return m;
}

static bool is_run(const lane_map *m, int64_t step) {
    for (uint32_t l = 1; l < m->n; l++)
        if (!row_size_equal(m->at[l], row_size_add(m->at[l - 1], row_int(step)))) return false;
    return true;
}

/* A single element is a scalar. */
static LLVMTypeRef vector_of(const row_run *r, int64_t n) {
    return n == 1 ? r->e->f32 : LLVMVectorType(r->e->f32, (unsigned)n);
}

static uint32_t size_of(LLVMValueRef v) {
    bool vector = LLVMGetTypeKind(LLVMTypeOf(v)) == LLVMVectorTypeKind;
    return vector ? LLVMGetVectorSize(LLVMTypeOf(v)) : 1;
}

static LLVMValueRef spread(row_run *r, LLVMValueRef scalar, uint32_t n) {
    hcg_emit *e = r->e;
    if (n == 1) return scalar;
    LLVMValueRef none = LLVMGetPoison(vector_of(r, n));
    LLVMValueRef v = LLVMBuildInsertElement(e->b, none, scalar, LLVMConstInt(e->i32, 0, 0), "");
    LLVMValueRef zero = LLVMConstNull(LLVMVectorType(e->i32, n));
    return LLVMBuildShuffleVector(e->b, v, none, zero, "");
}

/* Elements m->at[l] of v, those past its end being `past`. */
static LLVMValueRef shuffled(row_run *r, LLVMValueRef v, const lane_map *m, double past) {
    hcg_emit *e = r->e;
    const uint32_t size = size_of(v);
    LLVMValueRef at[MOST_LANES];
    if (size == 1) return spread(r, v, m->n);
    if (m->n == 1) return LLVMBuildExtractElement(e->b, v, row_i64(r, m->at[0]), "");
    if (m->n == size && row_size_is(m->at[0], 0) && is_run(m, 1)) return v;
    for (uint32_t l = 0; l < m->n; l++)
        at[l] = LLVMConstInt(e->i32, (uint64_t)(m->at[l].a < size ? m->at[l].a : size), false);
    LLVMValueRef beyond = hcg_real_like(LLVMTypeOf(v), past);
    return LLVMBuildShuffleVector(e->b, v, beyond, LLVMConstVector(at, m->n), "");
}

/* ---- values ---------------------------------------------------------------------------------- */

static LLVMValueRef read_lanes(row_run *r, const row_ref *ref, const row_shape *s,
                               const row_index *loops);

static LLVMValueRef load_lanes(row_run *r, const row_node *n, const lane_map *m) {
    hcg_emit *e = r->e;
    LLVMValueRef base = r->pointer[n->buffer];
    if (is_run(m, 0)) {
        LLVMValueRef p = hcg_at(e, e->f32, base, row_i64(r, m->at[0]));
        return spread(r, hcg_load_scalar(e, HIR_F32, p), m->n);
    }
    LLVMValueRef v = LLVMGetPoison(vector_of(r, m->n));
    if (is_run(m, 1)) {
        LLVMValueRef p = hcg_at(e, e->f32, base, row_i64(r, m->at[0]));
        v = LLVMBuildLoad2(e->b, vector_of(r, m->n), p, "");
        LLVMSetAlignment(v, 4);
        return v;
    }
    for (uint32_t l = 0; l < m->n; l++) {
        LLVMValueRef p = hcg_at(e, e->f32, base, row_i64(r, m->at[l]));
        LLVMValueRef x = hcg_load_scalar(e, HIR_F32, p);
        v = LLVMBuildInsertElement(e->b, v, x, LLVMConstInt(e->i32, l, false), "");
    }
    return v;
}

/* Sum or maximum of n vectors: one after the other, or, of lanes of a vector, in pairs. */
static LLVMValueRef combined(row_run *r, const row_node *n, LLVMValueRef *x, uint32_t count) {
    for (uint32_t i = 1; !n->last && i < count; i++)
        x[0] = row_combine(r, n, x[0], x[i]);
    for (; n->last && count > 1; count = (count + 1) / 2)
        for (uint32_t i = 0; i < count / 2; i++)
            x[i] = row_combine(r, n, x[i], x[i + (count + 1) / 2]);
    return row_finish(r, n, x[0]);
}

/* The elements `m` of a reduction, combined from its remaining terms. */
static LLVMValueRef reduced_lanes(row_run *r, const row_node *n, const lane_map *m) {
    LLVMValueRef x[FEW_TERMS] = {NULL};
    const row_made *made = row_made_of(r, n);
    for (uint32_t i = 0; i < made->n_terms; i++) {
        lane_map term = *m;
        for (uint32_t l = 0; l < m->n; l++)
            term.at[l] = row_int(m->at[l].a * made->n_terms + i);
        x[i] = shuffled(r, made->terms, &term, 0);
    }
    return combined(r, n, x, made->n_terms);
}

/* If `ref` reads a product that is computed on the spot: its factors, for a fused add. */
static bool product_lanes(row_run *r, const row_ref *ref, const row_shape *s,
                          const row_index *loops, LLVMValueRef *a, LLVMValueRef *b) {
    const row_node *n = row_at(r->g, ref->node);
    row_index at[ROW_VARS] = {0};
    if (!row_may_fuse(r, n)) return false;
    for (uint32_t d = 0; d < n->shape.rank; d++)
        at[d] = row_substitute(&ref->at[d], loops);
    *a = read_lanes(r, &n->args[0], s, at);
    *b = read_lanes(r, &n->args[1], s, at);
    return true;
}

static LLVMValueRef map_lanes(row_run *r, const row_node *n, const row_shape *s,
                              const row_index *at) {
    LLVMValueRef a, b, x, y = NULL;
    for (uint32_t i = 0; n->op->code == HIR_ADD_OP && row_fuses_adds(r) && i < 2; i++)
        if (product_lanes(r, &n->args[i], s, at, &a, &b))
            return hcg_fma(r->e, a, b, read_lanes(r, &n->args[1 - i], s, at));
    x = read_lanes(r, &n->args[0], s, at);
    if (n->n_args > 1) y = read_lanes(r, &n->args[1], s, at);
    row_at_op(r, n);
    return hcg_elementwise(r->e, n->op, x, y);
}

/* A few operations on sums, which are as cheap when they are computed anew in a reader's lanes? */
static bool stretched(const row_run *r, const row_node *n, uint32_t size) {
    bool all = n->kind == ROW_MAP && !row_of(r->s, n)->costly && row_elements(&n->shape).a < size;
    for (uint32_t a = 0; all && a < n->n_args; a++) {
        const row_node *x = row_at(r->g, n->args[a].node);
        const row_made *made = row_made_of(r, x);
        all = x->kind == ROW_CONST || made->terms || made->scalar;
    }
    return all;
}

/* The value of the node that `ref` reads, at `loops` over the dims of `s`: a lane for each element
 * of `s`. */
static LLVMValueRef read_lanes(row_run *r, const row_ref *ref, const row_shape *s,
                               const row_index *loops) {
    const row_node *n = row_at(r->g, ref->node);
    row_index at[ROW_VARS] = {0}, element = row_major(&n->shape);
    const uint32_t size = (uint32_t)row_elements(s).a;
    for (uint32_t d = 0; d < n->shape.rank; d++)
        at[d] = row_substitute(&ref->at[d], loops);
    const row_made *made = row_made_of(r, n);
    row_at_op(r, n);
    if (n->kind == ROW_CONST) return hcg_real_like(vector_of(r, size), n->value);
    if (row_of(r->s, n)->root && made->scalar) return spread(r, made->scalar, size);
    if (n->kind == ROW_COPY && !row_of(r->s, n)->root) return read_lanes(r, &n->args[0], s, at);
    if (n->kind == ROW_MAP && !row_of(r->s, n)->root) return map_lanes(r, n, s, at);
    if (!made->whole) element = n->to;
    element = row_substitute(&element, at);
    lane_map m = lanes_of(s, &element);
    if (!made->whole) return load_lanes(r, n, &m);
    if (size <= r->e->level->lanes && made->terms) return reduced_lanes(r, n, &m);
    if (size <= r->e->level->lanes && stretched(r, n, size)) return map_lanes(r, n, s, at);
    return shuffled(r, made->whole, &m, 0);
}

/* ---- roots ----------------------------------------------------------------------------------- */

/* What is reduced, [elements][extent] in one vector: x, or the products of a and b. */
typedef struct reduced {
    const row_node *n;
    uint32_t elements, extent;
    LLVMValueRef x, a, b; /* x NULL: a b */
} reduced;

/* sum (+)= terms from .. from + n - 1 of each element, in n lanes for each; NULL: nothing yet. */
static LLVMValueRef add_terms(row_run *r, const reduced *d, uint32_t from, uint32_t n,
                              LLVMValueRef sum) {
    const double nothing = d->n->op->code == HIR_REDUCE_MAX_OP ? -INFINITY : 0;
    lane_map m = {.n = d->elements * n};
    for (uint32_t l = 0; l < m.n; l++) {
        const uint32_t i = from + l % n;
        m.at[l] = row_int(i < d->extent ? l / n * d->extent + i : MOST_LANES);
    }
    if (d->x) {
        LLVMValueRef x = shuffled(r, d->x, &m, nothing);
        return sum ? row_combine(r, d->n, sum, x) : x;
    }
    LLVMValueRef a = shuffled(r, d->a, &m, 0), b = shuffled(r, d->b, &m, 0);
    return sum ? hcg_fma(r->e, a, b, sum) : hcg_fmul(r->e, a, b);
}

/* Combines the upper half of the terms of each element with the lower one, until few are left. */
static void halve_terms(row_run *r, const row_node *n, uint32_t elements) {
    row_made *made = row_made_of(r, n);
    while (made->n_terms > FEW_TERMS) {
        uint32_t half = 1;
        while (2 * half < made->n_terms)
            half *= 2;
        const reduced d = {.n = n, .elements = elements, .extent = made->n_terms, .x = made->terms};
        LLVMValueRef low = add_terms(r, &d, 0, half, NULL);
        made->terms = add_terms(r, &d, half, half, low);
        made->n_terms = half;
    }
}

/* Reduces [elements][extent] in one vector until few terms of each element are left, in the order of
 * other nests (schedule.h: row_chains): vectors of a row, and then their lanes; elements of another
 * dim one after the other. */
static void make_terms(row_run *r, const row_node *n) {
    row_made *made = row_made_of(r, n);
    row_shape s = n->shape;
    row_index loops[ROW_VARS];
    for (unsigned v = 0; v < ROW_VARS; v++)
        loops[v] = row_var(v);
    loops[ROW_INNER] = row_var(s.rank);
    s.dim[s.rank++] = n->extent;
    reduced d = {
        .n = n, .elements = (uint32_t)row_elements(&n->shape).a, .extent = (uint32_t)n->extent.a};
    const bool product =
        n->op->code != HIR_REDUCE_MAX_OP && product_lanes(r, &n->args[0], &s, loops, &d.a, &d.b);
    if (!product) d.x = read_lanes(r, &n->args[0], &s, loops);
    const uint32_t wide = n->last                           ? r->e->level->lanes
                          : product || d.extent > FEW_TERMS ? 1
                                                            : d.extent;
    const uint32_t chains = n->last ? row_chains(&s) : 1;
    LLVMValueRef sum[ROW_CHAINS] = {NULL};
    made->n_terms = d.extent < wide ? d.extent : wide;
    for (uint32_t i = 0; i * made->n_terms < d.extent; i++)
        sum[i % chains] = add_terms(r, &d, i * made->n_terms, made->n_terms, sum[i % chains]);
    made->terms = chains > 1 && sum[1] ? row_combine(r, n, sum[0], sum[1]) : sum[0];
    if (n->last) halve_terms(r, n, d.elements);
}

static void store_lanes(row_run *r, const row_node *n) {
    hcg_emit *e = r->e;
    const lane_map m = lanes_of(&n->shape, &n->to);
    const bool run = is_run(&m, 1);
    for (uint32_t l = 0; l < (run ? 1 : m.n); l++) {
        LLVMValueRef v = row_made_of(r, n)->whole, lane = LLVMConstInt(e->i32, l, false);
        if (!run) v = LLVMBuildExtractElement(e->b, v, lane, "");
        LLVMValueRef p = hcg_at(e, e->f32, r->pointer[n->buffer], row_i64(r, m.at[l]));
        if (r->g->buffers.at[n->buffer].adds) {
            LLVMValueRef before = LLVMBuildLoad2(e->b, LLVMTypeOf(v), p, "");
            LLVMSetAlignment(before, 4);
            v = hcg_fadd(e, before, v);
        }
        LLVMSetAlignment(LLVMBuildStore(e->b, v, p), 4);
    }
}

static void make_root(row_run *r, const row_node *n) {
    row_made *made = row_made_of(r, n);
    row_index self[ROW_VARS], element = row_major(&n->shape);
    for (unsigned v = 0; v < ROW_VARS; v++)
        self[v] = row_var(v);
    if (n->kind == ROW_REDUCE) {
        make_terms(r, n);
        lane_map m = lanes_of(&n->shape, &element);
        made->whole = reduced_lanes(r, n, &m);
    } else if (n->kind == ROW_COPY) {
        made->whole = read_lanes(r, &n->args[0], &n->shape, self);
    } else {
        made->whole = map_lanes(r, n, &n->shape, self);
    }
    if (n->shape.rank == 0) made->scalar = made->whole;
    if (n->buffer != ROW_NO_BUFFER) store_lanes(r, n);
}

void row_emit_small(row_run *r, const row_nest *nest) {
    r->nest = nest;
    for (size_t i = nest->roots.n; i-- > 0;)
        make_root(r, row_at(r->g, nest->roots.at[i]));
}
