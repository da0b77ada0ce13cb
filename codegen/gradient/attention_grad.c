/* The kernel form attention_grad of kernel.sequence: the gradients of the operands of causal
 * attention that the ops of the body name. The call is one sequence from position 0, T = C. Keys
 * and values come from the cache; their gradients are rows of tokens. Columns are parts of heads
 * (attention_parts.h).
 *
 *     q[T, H, n]  k[C, G, n]  v[C, G, m]  dy[T, H, m]
 *     ->  dq[T, H, n]  dk[T, G, n]  dv[T, G, m]  dsink[H] or [T, H]  dbias[T, H, extent]
 */
#include "codegen/gradient/attention_parts.h"
#include "codegen/gradient/attention_queries.h"

enum { QUERIES = 3 * HIR_PANEL }; /* of a tile: a register tile of most levels is as wide */
enum { K, V };                    /* what gathers over queries */

typedef struct gradients { /* of one kernel */
    hcg_attention a;
    hcg_attention_parts parts;
    hcg_gradient_tile tile;
} gradients;

static bool reject(hcg_emit *e, hir_id op, const char *what) {
    hd_err(e->diags, HD_E_INTERNAL, *hir_op_at(e->p->m, op)->loc,
           "kernel.sequence cannot be emitted: %s", what);
    return false;
}

/* Rows of whole panels are added to as products are made. */
static void aim(hcg_emit *e, const hcg_gradient_tile *t, hcg_row_gradients *rows,
                const hcg_gathered *to) {
    if (!to->result || to->n != rows->ld) return;
    rows->at = hcg_gathered_at(e, to, t->first), rows->stride = to->stride;
}

static void fetch(hcg_emit *e, hcg_gradient_tile *t) {
    const gradients *g = t->of;
    t->keys = hcg_cache_row(e, &g->a, &g->a.k, t->group, t->first);
    t->values = hcg_cache_row(e, &g->a, &g->a.v, t->group, t->first);
    aim(e, t, &t->of_keys, &g->parts.of[K]);
    aim(e, t, &t->of_values, &g->parts.of[V]);
}

static void add_rows(hcg_emit *e, const hcg_gradient_tile *t, const hcg_row_gradients *rows,
                     const hcg_gathered *to) {
    if (!to->result || rows->at) return;
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), t->count, hcg_i64(e, 1), "row", 0, NULL);
    hcg_add_row(e, hcg_at(e, e->f32, rows->parts, hcg_mul_const(e, l.index, rows->ld)),
                hcg_gathered_at(e, to, hcg_add(e, t->first, l.index)), to->n);
    hcg_loop_end(e, &l, NULL);
}

static void add(hcg_emit *e, hcg_gradient_tile *t) {
    const gradients *g = t->of;
    add_rows(e, t, &t->of_keys, &g->parts.of[K]);
    add_rows(e, t, &t->of_values, &g->parts.of[V]);
}

static void emit_part(hcg_emit *e, hcg_attention_parts *p, LLVMValueRef from, LLVMValueRef to) {
    gradients *g = p->with;
    hcg_gradient_tile *t = &g->tile;
    LLVMValueRef step = hcg_i64(e, t->tokens);
    t->group = p->group, t->dsink = p->sinks;
    hcg_loop rows = hcg_loop_begin(e, from, to, step, "rows", 0, NULL);
    t->row = rows.index, t->n = hcg_smaller(e, hcg_sub(e, to, rows.index), step);
    hcg_gradient_queries(e, t, hcg_first_seen(e, t->a, t->row), hcg_add(e, t->row, t->n));
    hcg_loop_end(e, &rows, NULL);
}

/* ---- the kernel ------------------------------------------------------------------------------ */
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
    const hir_id id = hir_form_op(e->p->m, k->op);
    const hir_op *op = hir_op_at(e->p->m, id);
    const size_t errors = e->diags->errors;
    gradients g = {0};
    take_operands(e, k, op, &g);
    if (g.a.k.dtype != HIR_F32 || g.a.v.dtype != HIR_F32)
        return reject(e, id, "keys or values of its gradient are not f32");
    hcg_gradient_tile *t = &g.tile;
    *t = (hcg_gradient_tile){.a = &g.a, .causal = true, .fetch = fetch, .add = add, .of = &g};
    t->tokens = QUERIES / g.a.per_group;
    if (t->tokens < 1) t->tokens = 1; /* a group of more heads */
    t->q = (hcg_gradient_rows){.from = hcg_gradient_operand(e, k, op, 0), .n = g.a.n};
    t->dy = (hcg_gradient_rows){.from = hcg_gradient_operand(e, k, op, 5), .n = g.a.m};
    hcg_attention_parts *p = &g.parts;
    *p = (hcg_attention_parts){.a = &g.a, .tokens = t->tokens, .emit = emit_part, .with = &g};
    p->even = p->only_window = g.a.window > 0;
    p->of[K] = (hcg_gathered){.result = hcg_take_gradient(e, k, "k").at, .n = g.a.n};
    p->of[V] = (hcg_gathered){.result = hcg_take_gradient(e, k, "v").at, .n = g.a.m};
    p->sink = hcg_take_gradient(e, k, "sink");
    t->dq = hcg_take_gradient(e, k, "q").at, t->dsink = p->sink.at;
    t->dbias = hcg_take_gradient(e, k, "bias").at;
    t->of_keys.wanted = p->of[K].result != NULL, t->of_values.wanted = p->of[V].result != NULL;
    if (e->diags->errors != errors) return false;
    hcg_at_op(e, id);
    hcg_gradient_begin(e, t);
    hcg_emit_parts(e, p);
    return true;
}

static void count_shared(const hir_module *m, hir_id kernel, uint64_t *counters, uint64_t *range) {
    const hir_id op = hir_form_op(m, kernel);
    const int64_t floats = hir_arg_type(m, op, 1).dim[2] + hir_arg_type(m, op, 2).dim[2];
    hcg_count_parts_shared(m, kernel, floats, counters, range);
}

const hcg_form hcg_form_attention_grad = {
    .emit = emit_attention_grad, .columns = hcg_count_parts, .shared = count_shared};
