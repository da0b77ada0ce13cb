/* The kernel forms attention and carried (carried.c) of kernel.sequence. Rows are tokens [r0, r1), columns [c0, c1) are
 * key/value heads or, for one token and small batches, ranges of their keys (attention.h). Keys
 * and values come from the cache, where a head's positions follow each other: position s of head g
 * at (g cap + s) n.
 *
 *     q[T, H, n]  k[C, G, n]  v[C, G, m]  ->  o[T, H, m],  head h reads group h / (H / G)
 *
 * Options: a window of keys, a soft cap and a bias of the scores, a sink (attention.h). Nothing of
 * size T x C exists: the code for one token and that for many both go over the keys in tiles.
 */
#include "codegen/attention/attention.h"

#include <float.h>
#include <math.h>

#include "codegen/attention/query_tile.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"
#include "codegen/program/contraction.h"
#include "codegen/program/forms.h"

static bool reject(hcg_emit *e, hir_id op, const char *what) {
    hd_err(e->diags, HD_E_INTERNAL, *hir_op_at(e->p->m, op)->loc,
           "kernel.sequence cannot be emitted: %s", what);
    return false;
}

/* The attention op of the body, which yields its result and nothing else. */
static hir_id find_attention(const hir_module *m, hir_id kernel) {
    const hir_op *op = hir_op_at(m, kernel);
    if (op->n_results != 1 || op->body_last == HIR_NONE) return HIR_NONE;
    const hir_op *yield = hir_op_at(m, op->body_last);
    if (yield->code != HIR_YIELD_OP || yield->n_args != 1) return HIR_NONE;
    hir_ref r = hir_through_reshapes(m, yield->args[0]);
    hir_id by = r.kind == HIR_REF_VALUE ? hir_value_at(m, r.index)->op : HIR_NONE;
    if (by == HIR_NONE) return HIR_NONE;
    const hir_kernel_form form = hir_form_by_op(hir_op_at(m, by)->code);
    return form == HIR_FORM_ATTENTION || form == HIR_FORM_CARRIED ? by : HIR_NONE;
}

static bool is_state(const hir_module *m, hir_ref r) {
    return r.kind == HIR_REF_STATE ||
           (r.kind == HIR_REF_VALUE && hir_value_at(m, r.index)->place == HIR_PLACE_STATE);
}

LLVMValueRef hcg_row_in(hcg_emit *e, const hcg_cache *c, LLVMValueRef cap, LLVMValueRef group,
                        LLVMValueRef at) {
    LLVMValueRef row = hcg_add(e, hcg_mul(e, group, cap), at);
    return hcg_at(e, hcg_element(e, c->dtype), c->base, hcg_mul_const(e, row, c->width));
}

LLVMValueRef hcg_cache_row(hcg_emit *e, const hcg_attention *a, const hcg_cache *c,
                           LLVMValueRef group, LLVMValueRef at) {
    return hcg_row_in(e, c, a->cap, group, at);
}

hcg_cache hcg_cache_of(hcg_emit *e, const hcg_kernel *k, hir_ref r) {
    hir_type t = hir_ref_type(e->p->m, r);
    return (hcg_cache){.base = hcg_arg(e, k, r), .dtype = t.dtype, .width = t.dim[2]};
}

void hcg_take_sink(hcg_emit *e, const hcg_kernel *k, hir_ref sink, hcg_attention *a) {
    if (sink.kind == HIR_REF_NONE) return;
    a->sink = hcg_arg(e, k, hir_through_reshapes(e->p->m, sink));
    a->sink_by_token = hir_ref_type(e->p->m, sink).rank == 2;
}

static void take_carried(hcg_emit *e, const hcg_kernel *k, const hir_op *op, hcg_attention *a) {
    a->window = hir_attr_int(op, HIR_A_WINDOW, 0);
    a->begins = hir_attr_int(op, HIR_A_BEGIN, 0);
    a->factor = hir_attr_float(op, HIR_A_FACTOR, 1);
    a->carried = hcg_arg(e, k, op->args[4]);
    hcg_take_sink(e, k, op->args[3], a);
}

void hcg_take_attention_options(hcg_emit *e, const hcg_kernel *k, const hir_op *op, uint32_t first,
                                hcg_attention *a) {
    const hir_module *m = e->p->m;
    const hir_ref bias = op->args[first + 1];
    a->window = hir_attr_int(op, HIR_A_WINDOW, 0);
    a->softcap = hir_attr_float(op, HIR_A_SOFTCAP, 0);
    hcg_take_sink(e, k, op->args[first], a);
    if (bias.kind != HIR_REF_NONE) {
        a->bias = hcg_arg(e, k, hir_through_reshapes(m, bias));
        a->extent = hir_ref_type(m, bias).dim[2];
    }
}

static bool emit_attention(hcg_emit *e, const hcg_kernel *k) {
    static void (*const emit_phase[])(hcg_emit *, const hcg_attention *) = {
        [HIR_DECODE] = hcg_attention_decode,
        [HIR_PREFILL] = hcg_attention_prefill,
        [HIR_SMALL_BATCH] = hcg_attention_small_batch,
    };
    const hir_module *m = e->p->m;
    hir_id id = find_attention(m, k->op);
    if (id == HIR_NONE) return reject(e, k->op, "its body is not one attention op");
    const hir_op *op = hir_op_at(m, id);
    hir_type q = hir_ref_type(m, op->args[0]), key = hir_ref_type(m, op->args[1]);
    hir_type value = hir_ref_type(m, op->args[2]);
    if (!is_state(m, op->args[1]) || !is_state(m, op->args[2]))
        return reject(e, id, "keys or values that are not in the cache");
    hcg_attention a = {.heads = q.dim[1], .groups = key.dim[1], .n = q.dim[2], .m = value.dim[2]};
    a.per_group = a.heads / a.groups;
    a.scale = hir_attr_float(op, HIR_A_SCALE, 1);
    size_t errors = e->diags->errors;
    if (hir_form_by_op(op->code) == HIR_FORM_CARRIED)
        take_carried(e, k, op, &a);
    else
        hcg_take_attention_options(e, k, op, 3, &a);
    a.q = hcg_arg(e, k, hir_through_reshapes(m, op->args[0]));
    a.k = hcg_cache_of(e, k, op->args[1]);
    a.v = hcg_cache_of(e, k, op->args[2]);
    a.out = hcg_arg(e, k, hir_value_ref(hir_op_at(m, k->op)->results[0]));
    if (e->diags->errors != errors) return false;
    a.cap = hcg_frame_cap(e);
    a.past = LLVMBuildNSWSub(e->b, hcg_frame_c(e), hcg_frame_t(e), "past");
    hcg_at_op(e, id);
    emit_phase[k->phase](e, &a);
    return true;
}

static void count_shared(const hir_module *m, hir_id kernel, uint64_t *counters, uint64_t *range) {
    hir_id id = find_attention(m, kernel);
    if (id == HIR_NONE) return;
    hir_type q = hir_arg_type(m, id, 0), v = hir_arg_type(m, id, 2);
    *counters = hcg_counter_bytes(v.dim[1]);
    *range = (uint64_t)q.dim[1] * HRT_SMALL_BATCH * (uint64_t)hcg_partial_floats(v.dim[2]) * 4;
}

static int64_t key_value_heads(const hir_module *m, hir_id kernel) {
    return hir_arg_type(m, hir_form_op(m, kernel), 1).dim[1];
}

const hcg_form hcg_form_attention = {
    .emit = emit_attention, .columns = key_value_heads, .shared = count_shared};
const hcg_form hcg_form_carried = {
    .emit = emit_attention, .columns = key_value_heads, .shared = count_shared};

/* ---- options: windows, sinks, soft caps, biases ---------------------------------------------- */
/* What the options of attention do to the scores of a tile and to the values M and S that a query
 * starts with (attention.h):
 *
 *     l = scale q . k        ->  c tanh(l / c)          softcap c
 *                            ->  l + bias[t, h, p - s]  where p - s < extent
 *     M = lowest, S = 0      ->  M = z, S = 1           sink z
 */

enum { MOST_LANES = 64 };

LLVMValueRef hcg_soft_cap(hcg_emit *e, const hcg_attention *a, LLVMValueRef x) {
    if (!(a->softcap > 0)) return x;
    LLVMValueRef y = hcg_tanh(e, hcg_fmul(e, x, hcg_splat(e, 1 / a->softcap)));
    return hcg_fmul(e, y, hcg_splat(e, a->softcap));
}

LLVMValueRef hcg_first_seen(hcg_emit *e, const hcg_attention *a, LLVMValueRef position) {
    if (!a->window) return hcg_i64(e, 0);
    return hcg_larger(e, hcg_add(e, position, hcg_i64(e, 1 - a->window)), hcg_i64(e, 0));
}

/* ---- bias ------------------------------------------------------------------------------------ */
static LLVMValueRef reversed(hcg_emit *e, LLVMValueRef v) {
    LLVMValueRef mask[MOST_LANES];
    for (unsigned i = 0; i < e->level->lanes; i++)
        mask[i] = LLVMConstInt(e->i32, e->level->lanes - 1 - i, false);
    return LLVMBuildShuffleVector(e->b, v, LLVMGetPoison(e->vec),
                                  LLVMConstVector(mask, e->level->lanes), "");
}

/* Adds the bias to the scores of the keys from .. to - 1, counted in the tile, or (`leave`) writes
 * the scores in its place: `lanes` at once, or one. Distances fall as keys rise, so a vector of the
 * bias is read backwards. */
static LLVMValueRef some_distances(hcg_emit *e, const hcg_query *q, LLVMValueRef bias,
                                   LLVMValueRef from, LLVMValueRef to, unsigned lanes, bool leave) {
    LLVMValueRef end = hcg_add(e, to, hcg_i64(e, 1 - (int64_t)lanes));
    hcg_loop l = hcg_loop_begin(e, from, end, hcg_i64(e, lanes), "bias", 0, NULL);
    LLVMValueRef at = hcg_at(e, e->f32, q->scores, hcg_mul_const(e, l.index, q->apart));
    LLVMValueRef key = hcg_add(e, q->first, hcg_add(e, l.index, hcg_i64(e, lanes - 1)));
    LLVMValueRef distance = hcg_sub(e, q->position, key);
    LLVMValueRef place = hcg_at(e, e->f32, bias, distance);
    LLVMValueRef x = lanes == 1 ? hcg_load_scalar(e, HIR_F32, at) : hcg_load(e, HIR_F32, at, NULL);
    if (leave) {
        hcg_store(e, place, lanes == 1 ? x : reversed(e, x), NULL);
    } else {
        LLVMValueRef y = lanes == 1 ? hcg_load_scalar(e, HIR_F32, place)
                                    : reversed(e, hcg_load(e, HIR_F32, place, NULL));
        if (q->by_two) y = hcg_fmul(e, y, hcg_real_like(LLVMTypeOf(y), HCG_LOG2_E));
        hcg_store(e, at, hcg_fadd(e, x, y), NULL);
    }
    hcg_loop_end(e, &l, NULL);
    return l.index;
}

static void each_distance(hcg_emit *e, const hcg_attention *a, const hcg_query *q,
                          LLVMValueRef bias, bool leave) {
    LLVMValueRef zero = hcg_i64(e, 0), own = hcg_sub(e, q->position, q->first);
    LLVMValueRef from = hcg_larger(e, hcg_add(e, own, hcg_i64(e, 1 - a->extent)), zero);
    LLVMValueRef to = hcg_smaller(e, hcg_add(e, own, hcg_i64(e, 1)), q->count);
    bias = hcg_at(e, e->f32, bias, hcg_mul_const(e, q->number, a->extent));
    if (q->apart == 1) from = some_distances(e, q, bias, from, to, e->level->lanes, leave);
    some_distances(e, q, bias, from, to, 1, leave);
}

void hcg_add_bias(hcg_emit *e, const hcg_attention *a, const hcg_query *q) {
    if (a->bias) each_distance(e, a, q, a->bias, false);
}

void hcg_leave_bias(hcg_emit *e, const hcg_attention *a, const hcg_query *q, LLVMValueRef bias) {
    each_distance(e, a, q, bias, true);
}

/* ---- sink ------------------------------------------------------------------------------------ */
/* A sink of -inf counts as no sink; NaN stays. */
void hcg_softmax_origin(hcg_emit *e, const hcg_attention *a, LLVMValueRef token, LLVMValueRef head,
                        LLVMValueRef *maximum, LLVMValueRef *sum) {
    *maximum = LLVMConstReal(e->f32, -FLT_MAX), *sum = LLVMConstReal(e->f32, 0);
    if (!a->sink) return;
    LLVMValueRef at = a->sink_by_token ? hcg_add(e, hcg_mul_const(e, token, a->heads), head) : head;
    LLVMValueRef z = hcg_load_scalar(e, HIR_F32, hcg_at(e, e->f32, a->sink, at));
    LLVMValueRef none =
        LLVMBuildFCmp(e->b, LLVMRealOEQ, z, LLVMConstReal(e->f32, -INFINITY), "none");
    *sum = LLVMBuildSelect(e->b, none, *sum, LLVMConstReal(e->f32, 1), "");
    *maximum = hcg_min(e, hcg_max(e, z, *maximum), LLVMConstReal(e->f32, FLT_MAX));
}

/* ---- many queries ---------------------------------------------------------------------------- */
/* Attention of several tokens (T > 1): tiles of queries of one key/value head attend to the rows
 * of the cache (query_tile.h). Rows are used where they lie; for vectors, rows of 16 bits are
 * widened once for all queries of the tile. */

typedef struct cached { /* keys and values */
    const hcg_attention *a;
    LLVMValueRef wide_k, wide_v; /* scratch: rows of 16 bits as f32 */
} cached;

/* Rows of the tile of keys: where they lie, or as f32 in `wide`. The next rows follow in memory: a
 * prefetch of as many bytes as this tile's rows have in f32 covers, where rows have 16 bits, the
 * next tile and as many bytes after it. */
static hcg_key_rows rows_of(hcg_emit *e, const hcg_query_tile *t, const hcg_cache *c,
                            LLVMValueRef wide) {
    const cached *of = t->of;
    hcg_key_rows rows = {.dtype = c->dtype, .ld = c->width, .n = c->width};
    LLVMValueRef next = hcg_add(e, t->first, hcg_i64(e, t->keys));
    rows.x = hcg_cache_row(e, of->a, c, t->group, t->first);
    rows.next = hcg_cache_row(e, of->a, c, t->group, next);
    rows.ahead = hcg_i64(e, t->keys * c->width * (int64_t)hir_dtype_bytes(c->dtype));
    if (c->dtype == HIR_F32 || t->amx) return rows;
    hcg_widen_row(e, c->dtype, rows.x, wide, hcg_mul_const(e, t->count, c->width));
    rows.x = wide, rows.dtype = HIR_F32;
    return rows;
}

static void fetch(hcg_emit *e, hcg_query_tile *t) {
    const cached *of = t->of;
    t->rows[0] = rows_of(e, t, &of->a->k, of->wide_k), t->sums = 1;
    t->values = rows_of(e, t, &of->a->v, of->wide_v);
}

void hcg_attention_prefill(hcg_emit *e, const hcg_attention *a) {
    cached of = {.a = a};
    hcg_query_tile t = {
        .a = a, .keys = hcg_most_keys(e->level), .parts = 1, .fetch = fetch, .of = &of};
    t.tokens = HIR_QUERY_TILE / a->per_group;
    if (t.tokens < 1) t.tokens = 1; /* a group of more heads */
    if (a->carried) t.tokens = hir_carried_tokens(a->per_group);
    t.part[0] = (hcg_query_part){.q = a->q, .n = a->n};
    t.segment[0].n = a->n, t.segments = 1;
    hcg_queries_begin(e, &t);
    if (a->k.dtype != HIR_F32 && !t.amx) of.wide_k = hcg_floats(e, t.keys * a->n);
    if (a->v.dtype != HIR_F32 && !t.amx) of.wide_v = hcg_floats(e, t.keys * a->m);
    hcg_queries_all_rows(e, &t);
}
