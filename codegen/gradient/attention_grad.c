/* The kernel form attention_grad of kernel.sequence: the gradients of the operands of causal
 * attention that the ops of the body name. The call is one sequence from position 0, T = C. Keys and
 * values come from the cache; their gradients are rows of tokens.
 *
 *     q[T, H, n]  k[C, G, n]  v[C, G, m]  dy[T, H, m]
 *     ->  dq[T, H, n]  dk[T, G, n]  dv[T, G, m]  dsink[H] or [T, H]  dbias[T, H, extent]
 *
 * Columns [c0, c1) are parts of key/value heads: some consecutive tokens of the queries of a head,
 * about equal work for all parts. How many parts a head has follows from the number of heads alone,
 * so that many threads have something to do and results do not depend on how many there are. What a
 * key has gathers over queries: the first part of a head adds it up in the results, each other part
 * in memory that threads share, and the thread that finishes the last part of a head adds those to
 * the results, in the order of the parts.
 */
#include "codegen/attention/attention_tile.h"
#include "codegen/attention/query_tile.h"
#include "codegen/emit/math.h"
#include "codegen/gradient/attention_queries.h"
#include "codegen/gradient/gradient.h"

enum { QUERIES = 3 * HIR_PANEL }; /* of a tile: a register tile of most levels is as wide */

typedef struct sums {  /* of a part: what its queries add to the gradients of their operands */
    LLVMValueRef k, v; /* a row for each token; NULL: not wanted */
    LLVMValueRef stride_k, stride_v; /* from row to row */
    LLVMValueRef sink;               /* of the group's heads; NULL: not wanted, or by token */
} sums;

typedef struct gradients { /* of one kernel */
    hcg_attention a;
    int64_t parts;       /* of a head */
    LLVMValueRef dk, dv; /* results; NULL: not wanted */
    hcg_gradient_result dsink;
    LLVMValueRef group;
    sums of_part;
} gradients;

/* Parts of all heads together, if heads are fewer. */
enum { PARTS = 16 };

static int64_t parts_of(int64_t groups) {
    return groups < PARTS ? (PARTS + groups - 1) / groups : 1;
}

static bool reject(hcg_emit *e, hir_id op, const char *what) {
    hd_err(e->diags, HD_E_INTERNAL, hir_op_at(e->p->m, op)->loc,
           "kernel.sequence cannot be emitted: %s", what);
    return false;
}

/* ---- rows of keys and values ----------------------------------------------------------------- */
static void fetch(hcg_emit *e, hcg_gradient_tile *t) {
    const gradients *g = t->of;
    t->keys = hcg_cache_row(e, &g->a, &g->a.k, t->group, t->first);
    t->values = hcg_cache_row(e, &g->a, &g->a.v, t->group, t->first);
}

static void add_parts(hcg_emit *e, const hcg_gradient_tile *t, LLVMValueRef parts, int64_t ld,
                      LLVMValueRef x, LLVMValueRef stride, int64_t n) {
    if (!x) return;
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), t->count, hcg_i64(e, 1), "row", 0, NULL);
    LLVMValueRef at = hcg_mul(e, hcg_add(e, t->first, l.index), stride);
    hcg_add_row(e, hcg_at(e, e->f32, parts, hcg_mul_const(e, l.index, ld)),
                hcg_at(e, e->f32, x, at), n);
    hcg_loop_end(e, &l, NULL);
}

static void add(hcg_emit *e, hcg_gradient_tile *t) {
    const gradients *g = t->of;
    add_parts(e, t, t->key_parts, t->ld_keys, g->of_part.k, g->of_part.stride_k, g->a.n);
    add_parts(e, t, t->value_parts, t->ld_values, g->of_part.v, g->of_part.stride_v, g->a.m);
}

/* ---- sums of parts --------------------------------------------------------------------------- */
static sums in_results(hcg_emit *e, const gradients *g) {
    const hcg_attention *a = &g->a;
    sums s = {.stride_k = hcg_i64(e, a->groups * a->n), .stride_v = hcg_i64(e, a->groups * a->m)};
    if (g->dk) s.k = hcg_at(e, e->f32, g->dk, hcg_mul_const(e, g->group, a->n));
    if (g->dv) s.v = hcg_at(e, e->f32, g->dv, hcg_mul_const(e, g->group, a->m));
    if (g->dsink.at && !a->sink_by_token)
        s.sink = hcg_at(e, e->f32, g->dsink.at, hcg_mul_const(e, g->group, a->per_group));
    return s;
}

/* Floats of the sums of a part: sinks, and so many for each token. */
static int64_t sink_floats(int64_t per_group) {
    return hcg_whole_panels(per_group);
}

static sums in_shared(hcg_emit *e, const gradients *g, LLVMValueRef part) {
    const hcg_attention *a = &g->a;
    const int64_t sink = sink_floats(a->per_group);
    LLVMValueRef tokens = hcg_frame_t(e), after_k = hcg_mul_const(e, tokens, a->n);
    LLVMValueRef each = hcg_add(e, hcg_mul_const(e, tokens, a->n + a->m), hcg_i64(e, sink));
    LLVMValueRef number = hcg_add(e, hcg_mul_const(e, g->group, g->parts - 1), part);
    number = hcg_sub(e, number, hcg_i64(e, 1)); /* the first part has none */
    LLVMValueRef at = hcg_at(e, e->f32, hcg_frame_ranges(e), hcg_mul(e, number, each));
    sums s = {.stride_k = hcg_i64(e, a->n), .stride_v = hcg_i64(e, a->m)};
    if (g->dsink.at && !a->sink_by_token) s.sink = at;
    at = hcg_at(e, e->f32, at, hcg_i64(e, sink));
    if (g->dk) s.k = at;
    if (g->dv) s.v = hcg_at(e, e->f32, at, after_k);
    return s;
}

static void count_shared(const hir_module *m, hir_id kernel, uint64_t *counters, uint64_t *range) {
    const hir_id op = hir_form_op(m, kernel);
    const hir_type q = hir_arg_type(m, op, 0), v = hir_arg_type(m, op, 2);
    const int64_t groups = v.dim[1], others = parts_of(groups) - 1;
    if (others == 0) return;
    const int64_t each = HRT_KEYS * (q.dim[2] + v.dim[2]) + sink_floats(q.dim[1] / groups);
    *counters = (uint64_t)groups * HCG_COUNTER_BYTES;
    *range = (uint64_t)(groups * others * each) * 4;
}

static LLVMValueRef select_if(hcg_emit *e, LLVMValueRef holds, LLVMValueRef a, LLVMValueRef b) {
    return a ? LLVMBuildSelect(e->b, holds, a, b, "") : NULL;
}

static sums select_sums(hcg_emit *e, LLVMValueRef holds, const sums *a, const sums *b) {
    return (sums){select_if(e, holds, a->k, b->k), select_if(e, holds, a->v, b->v),
                  select_if(e, holds, a->stride_k, b->stride_k),
                  select_if(e, holds, a->stride_v, b->stride_v),
                  select_if(e, holds, a->sink, b->sink)};
}

static void zero_rows(hcg_emit *e, LLVMValueRef x, LLVMValueRef stride, int64_t n,
                      LLVMValueRef from, LLVMValueRef to) {
    if (!x) return;
    hcg_loop l = hcg_loop_begin(e, from, to, hcg_i64(e, 1), "start", 0, NULL);
    hcg_zero_row(e, hcg_at(e, e->f32, x, hcg_mul(e, l.index, stride)), n);
    hcg_loop_end(e, &l, NULL);
}

/* Sums of no query, of the keys from .. to - 1. */
static void start_sums(hcg_emit *e, const gradients *g, LLVMValueRef is_first, LLVMValueRef from,
                       LLVMValueRef to) {
    const sums *s = &g->of_part;
    zero_rows(e, s->k, s->stride_k, g->a.n, from, to);
    zero_rows(e, s->v, s->stride_v, g->a.m, from, to);
    if (!s->sink) return;
    LLVMValueRef times = hcg_i64(e, 1);
    if (g->dsink.adds) times = LLVMBuildZExt(e->b, LLVMBuildNot(e->b, is_first, ""), e->i64, "");
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), times, hcg_i64(e, 1), "start", 0, NULL);
    hcg_zero_row(e, s->sink, g->a.per_group);
    hcg_loop_end(e, &l, NULL);
}

static void merge_rows(hcg_emit *e, LLVMValueRef from, LLVMValueRef from_stride, LLVMValueRef to,
                       LLVMValueRef to_stride, int64_t n, LLVMValueRef first, LLVMValueRef end) {
    if (!from) return;
    hcg_loop l = hcg_loop_begin(e, first, end, hcg_i64(e, 1), "merge", 0, NULL);
    hcg_add_row(e, hcg_at(e, e->f32, from, hcg_mul(e, l.index, from_stride)),
                hcg_at(e, e->f32, to, hcg_mul(e, l.index, to_stride)), n);
    hcg_loop_end(e, &l, NULL);
}

/* ---- parts of a head ------------------------------------------------------------------------- */
/* The first token of a part, a multiple of the tokens of a tile; of part number `parts`: T. Later
 * tokens see more keys: with the square roots, parts have as many pairs of both. With a window most
 * tokens see as many. */
static LLVMValueRef first_token(hcg_emit *e, const hcg_gradient_tile *t, int64_t parts,
                                LLVMValueRef part) {
    LLVMValueRef tokens = hcg_frame_t(e), step = hcg_i64(e, t->tokens);
    LLVMValueRef tiles = hcg_divide_up(e, tokens, step), at;
    if (t->a->window) {
        at = LLVMBuildUDiv(e->b, hcg_mul(e, tiles, part), hcg_i64(e, parts), "");
    } else {
        at = LLVMBuildSIToFP(e->b, part, e->f32, "");
        at = LLVMBuildFDiv(e->b, at, LLVMConstReal(e->f32, (double)parts), "");
        at = hcg_fmul(e, hcg_sqrt(e, at), LLVMBuildSIToFP(e->b, tiles, e->f32, ""));
        at = LLVMBuildFPToSI(e->b, at, e->i64, "");
    }
    return hcg_smaller(e, hcg_mul(e, at, step), tokens);
}

static void emit_part(hcg_emit *e, hcg_gradient_tile *t, const gradients *g, LLVMValueRef from,
                      LLVMValueRef to) {
    LLVMValueRef step = hcg_i64(e, t->tokens);
    if (g->dsink.at) t->dsink = g->a.sink_by_token ? g->dsink.at : g->of_part.sink;
    hcg_loop rows = hcg_loop_begin(e, from, to, step, "rows", 0, NULL);
    t->row = rows.index, t->n = hcg_smaller(e, hcg_sub(e, to, rows.index), step);
    hcg_gradient_queries(e, t, hcg_first_seen(e, t->a, t->row), hcg_add(e, t->row, t->n));
    hcg_loop_end(e, &rows, NULL);
}

/* The thread that has finished the last part of a head adds up the parts. */
static void merge_parts(hcg_emit *e, const hcg_gradient_tile *t, const gradients *g) {
    LLVMValueRef one = hcg_i64(e, 1), parts = hcg_i64(e, g->parts);
    const hcg_arrival last = hcg_arrive(e, g->group, parts, one);
    const sums all = in_results(e, g);
    hcg_loop p = hcg_loop_begin(e, one, parts, one, "part", 0, NULL);
    const sums s = in_shared(e, g, p.index);
    LLVMValueRef from = first_token(e, t, g->parts, p.index);
    LLVMValueRef to = first_token(e, t, g->parts, hcg_add(e, p.index, one));
    LLVMValueRef some = LLVMBuildICmp(e->b, LLVMIntSLT, from, to, "");
    from = LLVMBuildSelect(e->b, some, hcg_first_seen(e, t->a, from), to, "");
    merge_rows(e, s.k, s.stride_k, all.k, all.stride_k, g->a.n, from, to);
    merge_rows(e, s.v, s.stride_v, all.v, all.stride_v, g->a.m, from, to);
    if (s.sink) hcg_add_row(e, s.sink, all.sink, g->a.per_group);
    hcg_loop_end(e, &p, NULL);
    hcg_arrive_end(e, &last);
}

static void emit_parts(hcg_emit *e, hcg_gradient_tile *t, gradients *g) {
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), parts = hcg_i64(e, g->parts);
    hcg_loop columns = hcg_loop_begin(e, e->c0, e->c1, one, "column", 0, NULL);
    t->group = g->group = LLVMBuildUDiv(e->b, columns.index, parts, "");
    LLVMValueRef part = LLVMBuildURem(e->b, columns.index, parts, "part");
    LLVMValueRef from = first_token(e, t, g->parts, part);
    LLVMValueRef to = first_token(e, t, g->parts, hcg_add(e, part, one));
    LLVMValueRef is_first = LLVMBuildICmp(e->b, LLVMIntEQ, part, zero, "");
    const sums result = in_results(e, g);
    g->of_part = result;
    if (g->parts > 1) {
        const sums shared = in_shared(e, g, part);
        g->of_part = select_sums(e, is_first, &result, &shared);
    }
    /* what the first part does not see is added by others */
    start_sums(e, g, is_first,
               LLVMBuildSelect(e->b, is_first, zero, hcg_first_seen(e, t->a, from), ""),
               LLVMBuildSelect(e->b, is_first, hcg_frame_t(e), to, ""));
    emit_part(e, t, g, from, to);
    if (g->parts > 1) merge_parts(e, t, g);
    hcg_loop_end(e, &columns, NULL);
}

/* ---- the kernel ------------------------------------------------------------------------------ */
/* Where the gradient of operand `of` goes. */
static hcg_gradient_result result_of(hcg_emit *e, const hcg_kernel *k, const char *of) {
    return hcg_find_gradient(e, k, hcg_gradient_of(e->p->m, k->op, of));
}

static void take_operands(hcg_emit *e, const hcg_kernel *k, const hir_op *op, gradients *g) {
    const hir_module *m = e->p->m;
    const hir_type q = hir_ref_type(m, op->args[0]), key = hir_ref_type(m, op->args[1]);
    hcg_attention *a = &g->a;
    a->heads = q.dim[1], a->groups = key.dim[1], a->n = q.dim[2];
    a->m = hir_ref_type(m, op->args[2]).dim[2], a->per_group = a->heads / a->groups;
    a->scale = hir_attr_float(op, HIR_A_SCALE, 1);
    hcg_take_attention_options(e, k, op, 3, a);
    a->k = hcg_cache_of(e, k, op->args[1]), a->v = hcg_cache_of(e, k, op->args[2]);
    a->cap = hcg_frame_cap(e), a->past = hcg_i64(e, 0);
}

static bool emit_attention_grad(hcg_emit *e, const hcg_kernel *k) {
    const hir_module *m = e->p->m;
    const hir_id id = hir_form_op(m, k->op);
    const hir_op *op = hir_op_at(m, id);
    const size_t errors = e->diags->errors;
    gradients g = {0};
    take_operands(e, k, op, &g);
    if (g.a.k.dtype != HIR_F32 || g.a.v.dtype != HIR_F32)
        return reject(e, id, "keys or values of its gradient are not f32");
    hcg_gradient_tile t = {.a = &g.a, .causal = true, .fetch = fetch, .add = add, .of = &g};
    t.tokens = QUERIES / g.a.per_group;
    if (t.tokens < 1) t.tokens = 1; /* a group of more heads */
    t.q = (hcg_gradient_rows){.n = g.a.n}, t.dy = (hcg_gradient_rows){.n = g.a.m};
    t.q.from = hcg_gradient_operand(e, k, op, 0);
    t.dy.from = hcg_gradient_operand(e, k, op, 5);
    t.dq = result_of(e, k, "q").at, t.dbias = result_of(e, k, "bias").at;
    g.dk = result_of(e, k, "k").at, g.dv = result_of(e, k, "v").at;
    g.dsink = result_of(e, k, "sink");
    t.dsink = g.dsink.at;
    t.of_keys = g.dk != NULL, t.of_values = g.dv != NULL;
    if (e->diags->errors != errors) return false;
    hcg_at_op(e, id);
    hcg_gradient_begin(e, &t);
    g.parts = parts_of(g.a.groups);
    emit_parts(e, &t, &g);
    return true;
}

static int64_t count_parts(const hir_module *m, hir_id kernel) {
    const int64_t groups = hir_arg_type(m, hir_form_op(m, kernel), 1).dim[1];
    return groups * parts_of(groups);
}

const hcg_form hcg_form_attention_grad = {
    .emit = emit_attention_grad, .columns = count_parts, .shared = count_shared};
