/* The value of a node at an index: remembered, loaded from memory, or computed from its operands.
 * Values that are the same for all lanes stay scalars until an operation with a vector. */
#include <math.h>
#include <string.h>

#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"
#include "codegen/rowwise/emit/run.h"

/* ---- scopes ---------------------------------------------------------------------------------- */

row_scope row_scope_begin(const row_run *r) {
    return (row_scope){r->memo.n, r->splats.n, r->pointers.n, r->next.n};
}

void row_scope_end(row_run *r, row_scope s) {
    r->memo.n = s.memo;
    r->splats.n = s.splats;
    r->pointers.n = s.pointers;
    r->next.n = s.next;
}

void row_remember(row_run *r, uint32_t node, const row_index *at, row_pack pack) {
    row_memo m = {.node = node, .pack = pack};
    for (uint32_t d = 0; d < row_at(r->g, node)->shape.rank; d++)
        m.at[d] = at[d];
    hd_push(r->g->arena, &r->memo, m);
}

static bool recall(const row_run *r, uint32_t node, const row_index *at, row_pack *pack) {
    uint32_t rank = row_at(r->g, node)->shape.rank;
    for (size_t i = r->memo.n; i-- > 0;) {
        const row_memo *m = &r->memo.at[i];
        if (m->node != node) continue;
        bool same = true;
        for (uint32_t d = 0; same && d < rank; d++)
            same = row_index_equal(&m->at[d], &at[d]);
        if (same) {
            *pack = m->pack;
            return true;
        }
    }
    return false;
}

static LLVMValueRef splat(row_run *r, LLVMValueRef scalar) {
    for (size_t i = r->splats.n; i-- > 0;)
        if (r->splats.at[i].from == scalar) return r->splats.at[i].value;
    row_known k = {.from = scalar, .value = hcg_splat_value(r->e, scalar)};
    hd_push(r->g->arena, &r->splats, k);
    return k.value;
}

/* Vector `u` of a pack. */
static LLVMValueRef vector_of(row_run *r, const row_pack *p, unsigned u) {
    return p->uniform ? splat(r, p->v[0]) : p->v[u];
}

static row_pack uniform(LLVMValueRef scalar) {
    return (row_pack){.uniform = true, .v = {scalar}};
}

/* ---- addresses ------------------------------------------------------------------------------- */

static row_size lane_stride(const row_run *r, const row_index *at) {
    return r->lane_var < 0 ? row_int(0) : at->by[r->lane_var];
}

static bool depends(const row_index *at, uint32_t rank, int var) {
    bool does = false;
    for (uint32_t d = 0; var >= 0 && d < rank; d++)
        does |= !row_size_is(at[d].by[var], 0);
    return does;
}

/* The number that `at` is for lane `lane` (counted on through unrolled vectors). */
LLVMValueRef row_number(row_run *r, const row_index *at, int64_t lane) {
    hcg_emit *e = r->e;
    LLVMValueRef sum =
        row_i64(r, row_size_add(at->constant, row_size_scale(lane_stride(r, at), lane)));
    for (unsigned v = 0; v < ROW_VARS; v++) {
        if (row_size_is(at->by[v], 0)) continue;
        LLVMValueRef term = r->var[v];
        if (!row_size_is(at->by[v], 1)) term = LLVMBuildMul(e->b, term, row_i64(r, at->by[v]), "");
        sum = LLVMBuildAdd(e->b, term, sum, "");
    }
    return sum;
}

static row_index scaled(const row_index *at, int64_t by) {
    return row_scaled_sum(row_fixed(row_int(0)), row_int(by), at);
}

/* The row of a ROW_MULTI that entry `at` names, for one lane. */
static LLVMValueRef row_pointer(row_run *r, uint32_t node, const row_index *at, int64_t lane) {
    bool same = row_size_is(lane_stride(r, at), 0);
    for (size_t i = r->pointers.n; same && i-- > 0;)
        if (r->pointers.at[i].node == node && row_index_equal(&r->pointers.at[i].index, at))
            return r->pointers.at[i].value;
    hcg_emit *e = r->e;
    LLVMValueRef slot = hcg_at(e, e->ptr, r->rows[node], row_number(r, at, lane));
    LLVMValueRef p = LLVMBuildLoad2(e->b, e->ptr, slot, "row");
    if (r->shift[node]) p = LLVMBuildGEP2(e->b, e->i8, p, &r->shift[node], 1, "");
    if (same) {
        row_known k = {.node = node, .index = *at, .value = p};
        hd_push(r->g->arena, &r->pointers, k);
    }
    return p;
}

/* Splits element `to` of a state's row into the number of its head and the element within the
 * head. Strides of dims that count heads are multiples of the head size. */
static row_index split_head(const row_buffer *b, const row_index *to, row_index *within) {
    row_index head = row_fixed(row_int(0));
    *within = *to;
    for (unsigned v = 0; v < ROW_VARS; v++)
        if (row_size_divisible(to->by[v], row_int(b->head))) {
            head.by[v] = (row_size){.a = to->by[v].a / b->head, .b = to->by[v].b / b->head};
            within->by[v] = row_int(0);
        }
    return head;
}

/* This token's row of one head: states are [heads][cap][head]. */
static LLVMValueRef head_pointer(row_run *r, const row_node *n, const row_index *at, int64_t lane,
                                 row_index *element) {
    hcg_emit *e = r->e;
    const row_buffer *b = &r->g->buffers.at[n->buffer];
    row_index within, head = split_head(b, &n->to, &within);
    head = row_substitute(&head, at);
    *element = row_substitute(&within, at);
    LLVMValueRef apart = r->apart[n->buffer];
    LLVMValueRef heads = LLVMBuildMul(e->b, row_number(r, &head, lane), apart, "");
    int64_t bytes = b->head * (int64_t)hir_dtype_bytes(b->dtype);
    LLVMValueRef offset = LLVMBuildMul(e->b, heads, hcg_i64(e, bytes), "");
    return hcg_at(e, e->i8, r->pointer[n->buffer], offset);
}

/* Where a node's elements are: a base address for one lane, and the element numbers from it. */
static LLVMValueRef base_of(row_run *r, uint32_t node, const row_index *at, int64_t lane,
                            row_index *element) {
    const row_node *n = row_at(r->g, node);
    if (n->kind == ROW_MULTI) {
        *element = row_substitute(&n->within, at);
        return row_pointer(r, node, &at[n->axis], lane);
    }
    if (r->g->buffers.at[n->buffer].where == ROW_STATE)
        return head_pointer(r, n, at, lane, element);
    row_index i = row_substitute(&n->to, at);
    *element = scaled(&i, r->g->buffers.at[n->buffer].step);
    return r->pointer[n->buffer];
}

static LLVMValueRef address(row_run *r, uint32_t node, hir_dtype dtype, const row_index *at,
                            int64_t lane) {
    row_index element;
    LLVMValueRef base = base_of(r, node, at, lane, &element);
    return hcg_at(r->e, hcg_element(r->e, dtype), base, row_number(r, &element, lane));
}

/* The number of lanes that may be valid. */
static int64_t most_lanes(const row_run *r) {
    const bool known = r->tail && LLVMIsAConstantInt(r->tail);
    return known ? LLVMConstIntGetSExtValue(r->tail) : r->e->level->lanes;
}

/* i1: is lane l of a tail of unknown length valid? NULL: it always is. */
static LLVMValueRef is_valid(row_run *r, int64_t l) {
    hcg_emit *e = r->e;
    if (!r->tail || LLVMIsAConstantInt(r->tail) || l == 0) return NULL;
    return LLVMBuildICmp(e->b, LLVMIntSLT, hcg_i64(e, l), r->tail, "");
}

/* The address of lane l of vector 0. For lanes beyond a tail of dynamic length it is the address
 * of lane 0, which is valid. */
static LLVMValueRef lane_address(row_run *r, uint32_t node, hir_dtype dtype, const row_index *at,
                                 int64_t first, int64_t l) {
    LLVMValueRef valid = is_valid(r, l);
    LLVMValueRef p = address(r, node, dtype, at, first + l);
    return valid ? LLVMBuildSelect(r->e->b, valid, p, address(r, node, dtype, at, first), "") : p;
}

void row_at_op(row_run *r, const row_node *n) {
    hcg_at_op(r->e, n->at);
}

/* ---- loads and stores ------------------------------------------------------------------------ */

static LLVMValueRef gather_lanes(row_run *r, uint32_t node, hir_dtype dtype, const row_index *at,
                                 int64_t first) {
    hcg_emit *e = r->e;
    LLVMValueRef v = LLVMConstNull(e->vec);
    for (int64_t l = 0; l < most_lanes(r); l++) {
        LLVMValueRef x = hcg_load_scalar(e, dtype, lane_address(r, node, dtype, at, first, l));
        v = LLVMBuildInsertElement(e->b, v, x, LLVMConstInt(e->i32, (unsigned)l, false), "");
    }
    return v;
}

static row_pack load(row_run *r, uint32_t node, const row_index *at) {
    const row_node *n = row_at(r->g, node);
    bool multi = n->kind == ROW_MULTI;
    row_at_op(r, n);
    hir_dtype dtype = multi ? n->dtype : r->g->buffers.at[n->buffer].dtype;
    if (!depends(at, n->shape.rank, r->lane_var))
        return uniform(hcg_load_scalar(r->e, dtype, address(r, node, dtype, at, 0)));
    row_index element = row_substitute(multi ? &n->within : &n->to, at);
    int64_t step = multi ? 1 : r->g->buffers.at[n->buffer].step;
    bool scattered = multi && !row_size_is(lane_stride(r, &at[n->axis]), 0);
    bool in_line = !scattered && row_size_is(row_size_scale(lane_stride(r, &element), step), 1);
    row_pack p = {0};
    if (multi && in_line)
        row_prefetch_issue(r, node, &at[n->axis], row_number(r, &element, 0),
                           address(r, node, dtype, at, 0));
    for (unsigned u = 0; u < r->unroll; u++) {
        int64_t first = (int64_t)u * r->e->level->lanes;
        p.v[u] = in_line ? hcg_load(r->e, dtype, address(r, node, dtype, at, first), r->tail)
                         : gather_lanes(r, node, dtype, at, first);
    }
    return p;
}

/* Stores an element or a vector, or adds it to what is there. */
static void store(row_run *r, const row_buffer *b, LLVMValueRef p, LLVMValueRef v, LLVMValueRef n) {
    hcg_emit *e = r->e;
    const bool one = LLVMGetTypeKind(LLVMTypeOf(v)) != LLVMVectorTypeKind;
    if (b->adds)
        v = hcg_fadd(e, one ? hcg_load_scalar(e, b->dtype, p) : hcg_load(e, b->dtype, p, n), v);
    hcg_store_as(e, b->dtype, p, v, n);
}

void row_write(row_run *r, const row_node *n, const row_index *at, const row_pack *pack) {
    hcg_emit *e = r->e;
    uint32_t node = (uint32_t)(n - r->g->nodes.at);
    const row_buffer *b = &r->g->buffers.at[n->buffer];
    row_index element = row_substitute(&n->to, at), within = element;
    if (b->where == ROW_STATE) {
        split_head(b, &n->to, &within);
        within = row_substitute(&within, at);
    }
    if (r->lane_var < 0 || row_size_is(lane_stride(r, &element), 0)) {
        store(r, b, address(r, node, b->dtype, at, 0), pack->v[0], NULL);
        return;
    }
    const bool in_line = row_size_is(lane_stride(r, &within), 1);
    LLVMValueRef all[ROW_UNROLL] = {NULL};
    for (unsigned u = 0; u < r->unroll; u++)
        all[u] = vector_of(r, pack, u);
    if (in_line && !b->adds && row_stream_store(r, n, address(r, node, b->dtype, at, 0), all))
        return;
    for (unsigned u = 0; u < r->unroll; u++) {
        int64_t first = (int64_t)u * e->level->lanes;
        LLVMValueRef v = all[u];
        if (in_line) {
            store(r, b, address(r, node, b->dtype, at, first), v, r->tail);
            continue;
        }
        for (int64_t l = 0; l < most_lanes(r); l++) {
            LLVMValueRef lane = LLVMConstInt(e->i32, (unsigned)l, false), valid = is_valid(r, l);
            LLVMValueRef x = LLVMBuildExtractElement(e->b, v, lane, "");
            LLVMValueRef x0 = LLVMBuildExtractElement(e->b, v, LLVMConstInt(e->i32, 0, false), "");
            if (valid) x = LLVMBuildSelect(e->b, valid, x, x0, "");
            hcg_store_as(e, b->dtype, lane_address(r, node, b->dtype, at, first, l), x, NULL);
        }
    }
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

unsigned row_width(const row_run *r, bool all_uniform) {
    return all_uniform ? 1 : r->unroll;
}

LLVMValueRef row_vector(row_run *r, const row_pack *p, bool all_uniform, unsigned u) {
    return all_uniform ? p->v[0] : vector_of(r, p, u);
}

static row_pack fused(row_run *r, const row_pack *a, const row_pack *b, const row_pack *c) {
    row_pack y = {.uniform = a->uniform && b->uniform && c->uniform};
    for (unsigned u = 0; u < row_width(r, y.uniform); u++)
        y.v[u] = hcg_fma(r->e, row_vector(r, a, y.uniform, u), row_vector(r, b, y.uniform, u),
                         row_vector(r, c, y.uniform, u));
    return y;
}

/* The node that `ref` reads, and its index. */
static const row_node *target(const row_run *r, const row_ref *ref, const row_index *loops,
                              row_index *at) {
    const row_node *n = row_at(r->g, ref->node);
    for (uint32_t d = 0; d < n->shape.rank; d++)
        at[d] = row_substitute(&ref->at[d], loops);
    return n;
}

bool row_may_fuse(const row_run *r, const row_node *n) {
    const row_nests *nests = n->token_free ? &r->s->once : &r->s->per_token;
    const row_scheduled *of = row_of(r->s, n);
    const bool here = !of->root || r->nest == &nests->list.at[of->nest];
    return here && n->kind == ROW_MAP && n->op->code == HIR_MUL_OP;
}

bool row_product(row_run *r, const row_ref *ref, const row_index *loops, row_pack *a, row_pack *b) {
    row_index at[ROW_VARS] = {0};
    row_pack known;
    const row_node *n = target(r, ref, loops, at);
    if (!row_may_fuse(r, n)) return false;
    if (!row_of(r->s, n)->root && recall(r, ref->node, at, &known)) return false;
    *a = row_read(r, &n->args[0], at);
    *b = row_read(r, &n->args[1], at);
    return true;
}

static row_pack map(row_run *r, const row_node *n, const row_index *at) {
    row_pack a, b, x, y = {0};
    if (n->op->code == HIR_ADD_OP && row_fuses_adds(r))
        for (uint32_t i = 0; i < 2; i++)
            if (row_product(r, &n->args[i], at, &a, &b)) {
                x = row_read(r, &n->args[1 - i], at);
                row_at_op(r, n);
                return fused(r, &a, &b, &x);
            }
    x = row_read(r, &n->args[0], at);
    bool all = x.uniform;
    if (n->n_args > 1) {
        y = row_read(r, &n->args[1], at);
        all &= y.uniform;
    }
    row_pack z = {.uniform = all};
    row_at_op(r, n);
    for (unsigned u = 0; u < row_width(r, all); u++)
        z.v[u] = hcg_elementwise(r->e, n->op, row_vector(r, &x, all, u),
                                 n->n_args > 1 ? row_vector(r, &y, all, u) : NULL);
    return z;
}

/* a c + sign b s */
static row_pack rotate(row_run *r, const row_node *n, const row_index *at) {
    row_pack in[4], z = {.uniform = true};
    for (unsigned i = 0; i < 4; i++) {
        in[i] = row_read(r, &n->args[i], at);
        z.uniform &= in[i].uniform;
    }
    row_at_op(r, n);
    for (unsigned u = 0; u < row_width(r, z.uniform); u++) {
        LLVMValueRef b = row_vector(r, &in[2], z.uniform, u);
        if (n->value < 0) b = LLVMBuildFNeg(r->e->b, b, "");
        LLVMValueRef bs = LLVMBuildFMul(r->e->b, b, row_vector(r, &in[3], z.uniform, u), "");
        z.v[u] = hcg_fma(r->e, row_vector(r, &in[0], z.uniform, u),
                         row_vector(r, &in[1], z.uniform, u), bs);
    }
    return z;
}

/* A number as f64, or in all lanes of a vector of f64. */
static LLVMValueRef splat_f64(const row_run *r, LLVMTypeRef type, double x) {
    LLVMValueRef all[64], one = LLVMConstReal(r->e->f64, x);
    if (type == r->e->f64) return one;
    for (unsigned i = 0; i < r->e->level->lanes; i++)
        all[i] = one;
    return LLVMConstVector(all, r->e->level->lanes);
}

/* The position that a table of frequencies is used with, in f64. */
static LLVMValueRef position_of(row_run *r, uint32_t number) {
    const int64_t offset = r->g->tables.at[number].offset;
    if (!offset) return r->position;
    return LLVMBuildFAdd(r->e->b, r->position, LLVMConstReal(r->e->f64, (double)offset), "");
}

/* The frequencies of this token's position. */
static LLVMValueRef frequencies_here(row_run *r, uint32_t number) {
    hcg_emit *e = r->e;
    const row_table *t = &r->g->tables.at[number];
    if (!t->beyond) return r->frequencies[number];
    LLVMValueRef limit = LLVMConstReal(e->f64, (double)t->beyond);
    LLVMValueRef beyond = LLVMBuildFCmp(e->b, LLVMRealOGE, position_of(r, number), limit, "beyond");
    LLVMValueRef skip = LLVMBuildSelect(e->b, beyond, hcg_i64(e, t->padded), hcg_i64(e, 0), "");
    return hcg_at(e, e->f64, r->frequencies[number], skip);
}

/* cos and sin of position times frequency. The product may be a million full circles, so it is
 * reduced in f64. The other function of cos and sin is remembered for the sibling node. */
static row_pack trig(row_run *r, uint32_t node, const row_index *at) {
    hcg_emit *e = r->e;
    const row_node *n = row_at(r->g, node);
    LLVMValueRef table = frequencies_here(r, n->frequencies);
    const double scale = r->g->tables.at[n->frequencies].scale;
    row_at_op(r, n);
    row_pack pair[2] = {{.uniform = !depends(at, n->shape.rank, r->lane_var)}};
    pair[1].uniform = pair[0].uniform;
    LLVMTypeRef type = pair[0].uniform ? e->f64 : LLVMVectorType(e->f64, e->level->lanes);
    LLVMTypeRef narrow = pair[0].uniform ? e->f32 : e->vec;
    LLVMValueRef p = position_of(r, n->frequencies);
    if (!pair[0].uniform) {
        LLVMValueRef zero = LLVMConstNull(LLVMVectorType(e->i32, e->level->lanes));
        p = LLVMBuildInsertElement(e->b, LLVMGetPoison(type), p, LLVMConstInt(e->i32, 0, false),
                                   "");
        p = LLVMBuildShuffleVector(e->b, p, LLVMGetPoison(type), zero, "");
    }
    for (unsigned u = 0; u < row_width(r, pair[0].uniform); u++) {
        int64_t first = (int64_t)u * e->level->lanes;
        LLVMValueRef j = n->shape.rank ? row_number(r, &at[0], first) : hcg_i64(e, 0);
        LLVMValueRef f = LLVMBuildLoad2(e->b, type, hcg_at(e, e->f64, table, j), "");
        LLVMSetAlignment(f, 8);
        LLVMValueRef sine, cosine;
        hcg_sincos(e, LLVMBuildFMul(e->b, f, p, ""), &sine, &cosine);
        if (scale != 1) {
            cosine = LLVMBuildFMul(e->b, cosine, splat_f64(r, type, scale), "");
            sine = LLVMBuildFMul(e->b, sine, splat_f64(r, type, scale), "");
        }
        pair[0].v[u] = LLVMBuildFPTrunc(e->b, cosine, narrow, "");
        pair[1].v[u] = LLVMBuildFPTrunc(e->b, sine, narrow, "");
    }
    row_remember(r, n->sibling, at, pair[!n->is_sine]);
    return pair[n->is_sine];
}

/* ---- reading --------------------------------------------------------------------------------- */

static row_pack compute(row_run *r, uint32_t node, const row_index *at) {
    const row_node *n = row_at(r->g, node);
    switch (n->kind) {
    case ROW_CONST: return uniform(LLVMConstReal(r->e->f32, n->value));
    case ROW_COPY: return row_read(r, &n->args[0], at);
    case ROW_MAP: return map(r, n, at);
    case ROW_ROTATE: return rotate(r, n, at);
    case ROW_TRIG: return trig(r, node, at);
    case ROW_REDUCE: return row_reduce(r, n);
    case ROW_SELECTION: /* its elements are those of the buffer that it fills */
    case ROW_MEMORY:
    case ROW_MULTI: break;
    }
    return load(r, node, at);
}

row_pack row_compute(row_run *r, uint32_t node) {
    row_pack p;
    if (recall(r, node, r->loops, &p)) return p; /* computed together with a sibling */
    p = compute(r, node, r->loops);
    row_remember(r, node, r->loops, p);
    return p;
}

row_pack row_read(row_run *r, const row_ref *ref, const row_index *loops) {
    row_index at[ROW_VARS] = {0};
    row_pack p;
    const row_node *n = target(r, ref, loops, at);
    if (recall(r, ref->node, at, &p)) return p;
    if (row_of(r->s, n)->root && row_made_of(r, n)->scalar)
        return uniform(row_made_of(r, n)->scalar);
    p = row_of(r->s, n)->root ? load(r, ref->node, at) : compute(r, ref->node, at);
    row_remember(r, ref->node, at, p);
    return p;
}

static bool is_sum(const row_node *n) {
    return n->kind == ROW_MAP && n->op->code == HIR_ADD_OP;
}

/* How many nested sums node `n` at `at` is computed from; reads the sums of nesting height
 * `level`, where 1 is innermost. */
static uint32_t sums_below(row_run *r, const row_node *n, const row_index *at, uint32_t level) {
    uint32_t highest = 0;
    for (uint32_t a = 0; a < n->n_args; a++) {
        row_index below[ROW_VARS] = {0};
        const row_node *x = target(r, &n->args[a], at, below);
        bool through = is_sum(x) || x->kind == ROW_COPY;
        if (row_of(r->s, x)->root || !through) continue;
        uint32_t height = sums_below(r, x, below, level) + is_sum(x);
        if (is_sum(x) && height == level) row_read(r, &n->args[a], at);
        if (height > highest) highest = height;
    }
    return highest;
}

void row_sum_together(row_run *r, const uint32_t *roots, size_t n) {
    bool more = true;
    for (uint32_t level = 1; more; level++) {
        more = false;
        for (size_t i = n; i-- > 0;) {
            const row_node *root = row_at(r->g, roots[i]);
            if (row_of(r->s, root)->chained) continue; /* what it reads is not made yet */
            more |= sums_below(r, root, r->loops, level) > level;
        }
    }
}

/* Does any of `at` change with a variable whose loop is still to come? */
static bool is_open(const row_run *r, const row_index *at, uint32_t n) {
    bool open = false;
    for (unsigned v = 0; v < ROW_VARS; v++)
        open |= !r->var[v] && depends(at, n, (int)v);
    return open;
}

void row_hoist(row_run *r, const row_ref *ref, const row_index *loops) {
    row_index at[ROW_VARS] = {0};
    const row_node *n = target(r, ref, loops, at);
    if (!is_open(r, at, n->shape.rank)) {
        row_pack p = row_read(r, ref, loops);
        if (p.uniform && r->lane_var >= 0) splat(r, p.v[0]);
        return;
    }
    bool multi = n->kind == ROW_MULTI;
    if (multi && !is_open(r, &at[n->axis], 1) && row_size_is(lane_stride(r, &at[n->axis]), 0)) {
        LLVMValueRef row = row_pointer(r, ref->node, &at[n->axis], 0);
        row_prefetch_find(r, ref->node, &at[n->axis], row);
    }
    for (uint32_t a = 0; !row_of(r->s, n)->root && a < n->n_args; a++)
        row_hoist(r, &n->args[a], at);
}
