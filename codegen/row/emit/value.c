/* The value of a node at an index: what is remembered, loaded from memory, or computed from
 * operands on the spot. Values that are the same for all lanes stay scalars until they meet a
 * vector. */
#include <math.h>
#include <string.h>

#include "codegen/emit/math.h"
#include "codegen/library/library.h"
#include "codegen/row/emit/run.h"

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

/* Copy `u` of a pack as a vector. */
static LLVMValueRef copy_of(row_run *r, const row_pack *p, unsigned u) {
    return p->uniform ? splat(r, p->v[0]) : p->v[u];
}

static row_pack uniform(LLVMValueRef scalar) {
    return (row_pack){.uniform = true, .v = {scalar}};
}

/* ---- addresses ------------------------------------------------------------------------------- */

static int64_t lane_stride(const row_run *r, const row_index *at) {
    return r->lane_var < 0 ? 0 : at->by[r->lane_var];
}

static bool depends(const row_index *at, uint32_t rank, int var) {
    bool does = false;
    for (uint32_t d = 0; var >= 0 && d < rank; d++)
        does |= at[d].by[var] != 0;
    return does;
}

/* The number that `at` is for lane `lane` (counted on through the copies). */
LLVMValueRef row_number(row_run *r, const row_index *at, int64_t lane) {
    hcg_emit *e = r->e;
    LLVMValueRef sum = row_i64(r, at->constant + lane * lane_stride(r, at));
    for (unsigned v = 0; v < ROW_VARS; v++) {
        if (!at->by[v]) continue;
        LLVMValueRef term = r->var[v];
        if (at->by[v] != 1) term = LLVMBuildMul(e->b, term, row_i64(r, at->by[v]), "");
        sum = LLVMBuildAdd(e->b, term, sum, "");
    }
    return sum;
}

static row_index scaled(const row_index *at, int64_t by) {
    return row_scaled_sum(row_fixed(0), by, at);
}

/* The row of a ROW_MULTI that entry `at` names, for one lane. */
static LLVMValueRef row_pointer(row_run *r, uint32_t node, const row_index *at, int64_t lane) {
    bool same = lane_stride(r, at) == 0;
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

/* Element `to` of a state's row is element `within` of its head number `head`: what a dim that
 * counts heads is multiplied by is divisible by their size. */
static row_index split_head(const row_buffer *b, const row_index *to, row_index *within) {
    row_index head = row_fixed(0);
    *within = *to;
    for (unsigned v = 0; v < ROW_VARS; v++)
        if (to->by[v] % b->head == 0) {
            head.by[v] = to->by[v] / b->head;
            within->by[v] = 0;
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
    LLVMValueRef heads = LLVMBuildMul(e->b, row_number(r, &head, lane), r->cap, "");
    int64_t bytes = b->head * (int64_t)hir_dtype_bytes(b->dtype);
    LLVMValueRef offset = LLVMBuildMul(e->b, heads, hcg_i64(e, bytes), "");
    return hcg_at(e, e->i8, r->pointer[n->buffer], offset);
}

/* Where a node's elements are: a base for one lane and the element numbers from it. */
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

/* Lanes that may be valid. */
static int64_t most_lanes(const row_run *r) {
    const bool known = r->tail && LLVMIsAConstantInt(r->tail);
    return known ? LLVMConstIntGetSExtValue(r->tail) : r->e->level->lanes;
}

/* Lane l of a tail of unknown length, as i1: is it valid? NULL: it is. */
static LLVMValueRef is_valid(row_run *r, int64_t l) {
    hcg_emit *e = r->e;
    if (!r->tail || LLVMIsAConstantInt(r->tail) || l == 0) return NULL;
    return LLVMBuildICmp(e->b, LLVMIntSLT, hcg_i64(e, l), r->tail, "");
}

/* Where lane l of copy 0 is, l past a tail of unknown length: where lane 0 is, which is valid. */
static LLVMValueRef lane_address(row_run *r, uint32_t node, hir_dtype dtype, const row_index *at,
                                 int64_t first, int64_t l) {
    LLVMValueRef valid = is_valid(r, l);
    LLVMValueRef p = address(r, node, dtype, at, first + l);
    return valid ? LLVMBuildSelect(r->e->b, valid, p, address(r, node, dtype, at, first), "") : p;
}

void row_at_op(row_run *r, const row_node *n) {
    hcg_at_op(r->e, (hir_id)(n->op - r->g->m->ops.at));
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
    bool scattered = multi && lane_stride(r, &at[n->axis]) != 0;
    bool in_line = !scattered && lane_stride(r, &element) * step == 1;
    row_pack p = {0};
    if (multi && in_line)
        row_prefetch_ask(r, node, &at[n->axis], row_number(r, &element, 0),
                         address(r, node, dtype, at, 0));
    for (unsigned u = 0; u < r->copies; u++) {
        int64_t first = (int64_t)u * r->e->level->lanes;
        p.v[u] = in_line ? hcg_load(r->e, dtype, address(r, node, dtype, at, first), r->tail)
                         : gather_lanes(r, node, dtype, at, first);
    }
    return p;
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
    if (r->lane_var < 0 || lane_stride(r, &element) == 0) {
        hcg_store_as(e, b->dtype, address(r, node, b->dtype, at, 0), pack->v[0], NULL);
        return;
    }
    const bool in_line = lane_stride(r, &within) == 1;
    LLVMValueRef all[ROW_COPIES] = {NULL};
    for (unsigned u = 0; u < r->copies; u++)
        all[u] = copy_of(r, pack, u);
    if (in_line && row_stream_store(r, n, address(r, node, b->dtype, at, 0), all)) return;
    for (unsigned u = 0; u < r->copies; u++) {
        int64_t first = (int64_t)u * e->level->lanes;
        LLVMValueRef v = all[u];
        if (in_line) {
            hcg_store_as(e, b->dtype, address(r, node, b->dtype, at, first), v, r->tail);
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

static unsigned width(const row_run *r, bool all_uniform) {
    return all_uniform ? 1 : r->copies;
}

static LLVMValueRef part(row_run *r, const row_pack *p, bool all_uniform, unsigned u) {
    return all_uniform ? p->v[0] : copy_of(r, p, u);
}

static row_pack fused(row_run *r, const row_pack *a, const row_pack *b, const row_pack *c) {
    row_pack y = {.uniform = a->uniform && b->uniform && c->uniform};
    for (unsigned u = 0; u < width(r, y.uniform); u++)
        y.v[u] = hcg_fma(r->e, part(r, a, y.uniform, u), part(r, b, y.uniform, u),
                         part(r, c, y.uniform, u));
    return y;
}

/* Node `ref` reads, and its index. */
static const row_node *target(const row_run *r, const row_ref *ref, const row_index *loops,
                              row_index *at) {
    const row_node *n = row_at(r->g, ref->node);
    for (uint32_t d = 0; d < n->shape.rank; d++)
        at[d] = row_substitute(&ref->at[d], loops);
    return n;
}

/* If `ref` reads a product that is computed on the spot: its factors, for a fused add. */
static bool product(row_run *r, const row_ref *ref, const row_index *loops, row_pack *a,
                    row_pack *b) {
    row_index at[ROW_VARS] = {0};
    row_pack known;
    const row_node *n = target(r, ref, loops, at);
    if (n->root || n->kind != ROW_MAP || n->op->code != HIR_MUL_OP) return false;
    if (recall(r, ref->node, at, &known)) return false;
    *a = row_read(r, &n->args[0], at);
    *b = row_read(r, &n->args[1], at);
    return true;
}

static row_pack map(row_run *r, const row_node *n, const row_index *at) {
    row_pack a, b, x, y = {0};
    if (n->op->code == HIR_ADD_OP)
        for (uint32_t i = 0; i < 2; i++)
            if (product(r, &n->args[i], at, &a, &b)) {
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
    for (unsigned u = 0; u < width(r, all); u++)
        z.v[u] = hcg_elementwise(r->e, n->op, part(r, &x, all, u),
                                 n->n_args > 1 ? part(r, &y, all, u) : NULL);
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
    for (unsigned u = 0; u < width(r, z.uniform); u++) {
        LLVMValueRef b = part(r, &in[2], z.uniform, u);
        if (n->value < 0) b = LLVMBuildFNeg(r->e->b, b, "");
        LLVMValueRef bs = LLVMBuildFMul(r->e->b, b, part(r, &in[3], z.uniform, u), "");
        z.v[u] = hcg_fma(r->e, part(r, &in[0], z.uniform, u), part(r, &in[1], z.uniform, u), bs);
    }
    return z;
}

/* cos and sin of position times frequency, in f64 until the end: position times frequency may be
 * a million turns away from what is left of it. The sibling is remembered. */
static row_pack trig(row_run *r, uint32_t node, const row_index *at) {
    hcg_emit *e = r->e;
    const row_node *n = row_at(r->g, node);
    const row_table *table = &r->g->tables.at[n->frequencies];
    row_at_op(r, n);
    row_pack pair[2] = {{.uniform = !depends(at, n->shape.rank, r->lane_var)}};
    pair[1].uniform = pair[0].uniform;
    LLVMTypeRef type = pair[0].uniform ? e->f64 : LLVMVectorType(e->f64, e->level->lanes);
    LLVMTypeRef narrow = pair[0].uniform ? e->f32 : e->vec;
    LLVMValueRef p = r->position;
    if (!pair[0].uniform) {
        LLVMValueRef zero = LLVMConstNull(LLVMVectorType(e->i32, e->level->lanes));
        p = LLVMBuildInsertElement(e->b, LLVMGetPoison(type), p, LLVMConstInt(e->i32, 0, false),
                                   "");
        p = LLVMBuildShuffleVector(e->b, p, LLVMGetPoison(type), zero, "");
    }
    for (unsigned u = 0; u < width(r, pair[0].uniform); u++) {
        int64_t first = (int64_t)u * e->level->lanes;
        LLVMValueRef j = n->shape.rank ? row_number(r, &at[0], first) : hcg_i64(e, 0);
        LLVMValueRef f = LLVMBuildLoad2(e->b, type, hcg_at(e, e->f64, table->global, j), "");
        LLVMSetAlignment(f, 8);
        LLVMValueRef sine, cosine;
        hcg_sincos(e, LLVMBuildFMul(e->b, f, p, ""), &sine, &cosine);
        pair[0].v[u] = LLVMBuildFPTrunc(e->b, cosine, narrow, "");
        pair[1].v[u] = LLVMBuildFPTrunc(e->b, sine, narrow, "");
    }
    row_remember(r, n->sibling, at, pair[!n->is_sine]);
    return pair[n->is_sine];
}

/* ---- reductions ------------------------------------------------------------------------------ */

LLVMValueRef row_start(row_run *r, const row_node *n) {
    double value = n->op->code == HIR_REDUCE_MAX_OP ? -INFINITY : 0;
    return hcg_real_like(r->lane_var < 0 ? r->e->f32 : r->e->vec, value);
}

LLVMValueRef row_combine(row_run *r, const row_node *n, LLVMValueRef a, LLVMValueRef b) {
    if (n->op->code == HIR_REDUCE_MAX_OP) return hcg_max(r->e, a, b);
    return LLVMBuildFAdd(r->e->b, a, b, "");
}

/* 1 / extent, rounded as the constant would be. */
static LLVMValueRef share_of_any(row_run *r, int64_t extent, LLVMTypeRef type) {
    hcg_emit *e = r->e;
    LLVMValueRef n = LLVMBuildSIToFP(e->b, row_i64(r, extent), e->f64, "");
    LLVMValueRef share = LLVMBuildFDiv(e->b, LLVMConstReal(e->f64, 1), n, "");
    share = LLVMBuildFPTrunc(e->b, share, e->f32, "");
    return hcg_lanes(type) ? hcg_splat_value(e, share) : share;
}

LLVMValueRef row_finish(row_run *r, const row_node *n, LLVMValueRef v) {
    if (n->op->code != HIR_REDUCE_MEAN_OP) return v;
    LLVMValueRef share = row_is_any(r->g, n->extent)
                             ? share_of_any(r, n->extent, LLVMTypeOf(v))
                             : hcg_real_like(LLVMTypeOf(v), 1.0 / (double)n->extent);
    return LLVMBuildFMul(r->e->b, v, share, "");
}

static LLVMValueRef keep_past_tail(row_run *r, LLVMValueRef next, LLVMValueRef before) {
    hcg_emit *e = r->e;
    return LLVMBuildSelect(e->b, hcg_tail_mask(e, r->tail), next, before, "");
}

void row_accumulate(row_run *r, const row_node *n, const row_index *loops, bool lanes,
                    LLVMValueRef *acc) {
    row_pack a, b;
    bool scalar = r->lane_var < 0, sum = n->op->code != HIR_REDUCE_MAX_OP;
    bool fuse = sum && product(r, &n->args[0], loops, &a, &b);
    if (!fuse) a = row_read(r, &n->args[0], loops);
    row_at_op(r, n);
    for (unsigned u = 0; u < width(r, scalar); u++) {
        LLVMValueRef next = part(r, &a, scalar, u);
        if (fuse)
            next = hcg_fma(r->e, next, part(r, &b, scalar, u), acc[u]);
        else
            next = row_combine(r, n, acc[u], next);
        acc[u] = lanes && r->tail ? keep_past_tail(r, next, acc[u]) : next;
    }
}

/* Reductions across the lanes' dim, the lanes being the accumulators, that run in one loop: what
 * several of them read is loaded once. */
typedef struct team {
    uint32_t n, member[HCG_CARRY];
    LLVMValueRef acc[HCG_CARRY]; /* copies of one member together */
} team;

/* `first` and what else of the nest is still to be reduced over as many elements, as far as there
 * are registers. What waits for other roots of the nest goes alone. */
static team make_team(row_run *r, const row_node *first) {
    team t = {.n = 1, .member = {(uint32_t)(first - r->g->nodes.at)}};
    row_pack known;
    for (size_t i = r->nest->roots.n; !first->chained && i-- > 0;) {
        uint32_t id = r->nest->roots.at[i];
        const row_node *n = row_at(r->g, id);
        if (n == first || n->kind != ROW_REDUCE || n->last || n->chained) continue;
        if (n->extent != first->extent || recall(r, id, r->loops, &known)) continue;
        if ((t.n + 1) * r->copies > row_most_sums(r->e->level)) break;
        t.member[t.n++] = id;
    }
    for (uint32_t m = 0; m < t.n; m++)
        for (unsigned u = 0; u < r->copies; u++)
            t.acc[m * r->copies + u] = row_start(r, row_at(r->g, t.member[m]));
    return t;
}

/* Element `inner` of every member. */
static void accumulate_team(row_run *r, team *t, row_index inner) {
    row_index loops[ROW_VARS];
    memcpy(loops, r->loops, sizeof loops);
    loops[ROW_INNER] = inner;
    for (uint32_t m = 0; m < t->n; m++)
        row_accumulate(r, row_at(r->g, t->member[m]), loops, false, &t->acc[m * r->copies]);
}

enum { FEW = 4, IN_A_TURN = 32 };

/* Elements that a turn of the loop over a sum takes, a power of two. With one alone the loop ends,
 * and starts again for the next lanes, before much has been asked of memory; where each meets many
 * sums there is work enough. */
static int64_t elements_together(const row_run *r, const team *t) {
    int64_t n = FEW;
    while (n > 1 && n * t->n * r->copies > IN_A_TURN)
        n /= 2;
    return n;
}

/* `n` elements of every member, from number `first` on. */
static void accumulate_some(row_run *r, team *t, row_index first, int64_t n) {
    for (int64_t i = 0; i < n; i++, first.constant++)
        accumulate_team(r, t, first);
}

/* Elements from .. to, `step` at once. */
static void accumulate_loop(row_run *r, team *t, LLVMValueRef from, LLVMValueRef to, int64_t step) {
    hcg_emit *e = r->e;
    hcg_loop l = hcg_loop_begin(e, from, to, hcg_i64(e, step), "i", t->n * r->copies, t->acc);
    row_scope s = row_scope_begin(r);
    r->var[ROW_INNER] = l.index;
    memcpy(t->acc, l.carried, sizeof t->acc);
    accumulate_some(r, t, row_var(ROW_INNER), step);
    hcg_loop_end(e, &l, t->acc);
    memcpy(t->acc, l.carried, sizeof t->acc);
    row_scope_end(r, s);
    r->var[ROW_INNER] = NULL;
}

/* As many at once as go together, and of what is left half as many, until it is one by one. */
static void accumulate_told(row_run *r, team *t, int64_t extent) {
    hcg_emit *e = r->e;
    LLVMValueRef n = row_i64(r, extent), from = hcg_i64(e, 0);
    for (int64_t step = elements_together(r, t); step > 0; step /= 2) {
        LLVMValueRef to = LLVMBuildAnd(e->b, n, hcg_i64(e, -step), "whole");
        accumulate_loop(r, t, from, to, step);
        from = to;
    }
}

static void accumulate_all(row_run *r, team *t, int64_t extent) {
    hcg_emit *e = r->e;
    if (row_is_any(r->g, extent)) {
        accumulate_told(r, t, extent);
        return;
    }
    const int64_t step = elements_together(r, t), whole = extent - extent % step;
    accumulate_loop(r, t, hcg_i64(e, 0), hcg_i64(e, whole), step);
    accumulate_some(r, t, row_fixed(whole), extent - whole);
}

static row_pack reduce(row_run *r, const row_node *n) {
    team t = make_team(r, n);
    for (uint32_t m = 0; m < t.n; m++)
        row_hoist(r, &row_at(r->g, t.member[m])->args[0], r->loops);
    if (n->extent <= FEW) { /* what is read stays known to others */
        accumulate_some(r, &t, row_fixed(0), n->extent);
    } else {
        if (t.n > 1) row_prefetch_along(r, n); /* one sum alone has little to do meanwhile */
        accumulate_all(r, &t, n->extent);
        r->along = NULL;
    }
    row_pack of_first = {0};
    for (uint32_t m = t.n; m-- > 0;) {
        const row_node *member = row_at(r->g, t.member[m]);
        row_pack p = {0};
        for (unsigned u = 0; u < r->copies; u++)
            p.v[u] = row_finish(r, member, t.acc[m * r->copies + u]);
        if (m == 0)
            of_first = p;
        else
            row_remember(r, t.member[m], r->loops, p);
    }
    return of_first;
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
    case ROW_REDUCE: return reduce(r, n);
    case ROW_MEMORY:
    case ROW_MULTI: break;
    }
    return load(r, node, at);
}

row_pack row_compute(row_run *r, uint32_t node) {
    row_pack p;
    if (recall(r, node, r->loops, &p)) return p; /* a sibling has done it */
    p = compute(r, node, r->loops);
    row_remember(r, node, r->loops, p);
    return p;
}

row_pack row_read(row_run *r, const row_ref *ref, const row_index *loops) {
    row_index at[ROW_VARS] = {0};
    row_pack p;
    const row_node *n = target(r, ref, loops, at);
    if (recall(r, ref->node, at, &p)) return p;
    if (n->root && n->scalar) return uniform(n->scalar);
    p = n->root ? load(r, ref->node, at) : compute(r, ref->node, at);
    row_remember(r, ref->node, at, p);
    return p;
}

static bool is_sum(const row_node *n) {
    return n->kind == ROW_MAP && n->op->code == HIR_ADD_OP;
}

/* How many sums, one inside the other, node `n` at `at` is computed from; reads those of height
 * `level`, 1 being innermost. */
static uint32_t sums_below(row_run *r, const row_node *n, const row_index *at, uint32_t level) {
    uint32_t highest = 0;
    for (uint32_t a = 0; a < n->n_args; a++) {
        row_index below[ROW_VARS] = {0};
        const row_node *x = target(r, &n->args[a], at, below);
        bool through = is_sum(x) || x->kind == ROW_COPY;
        if (x->root || !through) continue;
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
        for (size_t i = n; i-- > 0;)
            more |= sums_below(r, row_at(r->g, roots[i]), r->loops, level) > level;
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
    if (multi && !is_open(r, &at[n->axis], 1) && lane_stride(r, &at[n->axis]) == 0) {
        LLVMValueRef row = row_pointer(r, ref->node, &at[n->axis], 0);
        row_prefetch_find(r, ref->node, &at[n->axis], row);
    }
    for (uint32_t a = 0; !n->root && a < n->n_args; a++)
        row_hoist(r, &n->args[a], at);
}
