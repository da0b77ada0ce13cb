/* The form attention of kernel.sequence. Rows are tokens [r0, r1), columns [c0, c1) key/value heads
 * or, for decode and small batches, ranges of their keys (attention.h). Keys and values
 * come from the cache, where a head's positions follow each other: position s of head g at (g cap +
 * s) n.
 *
 *     q[T, H, n]  k[C, G, n]  v[C, G, m]  ->  o[T, H, m],  head h reads group h / (H / G)
 *
 * Options: a window of keys, a soft cap and a bias of the scores, a sink (attention.h). Nothing of
 * size T x C exists: both bodies go over the keys in tiles.
 */
#include "codegen/attention/attention.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/program/contraction.h"
#include "codegen/program/forms.h"

static bool refuse(hcg_emit *e, hir_id op, const char *what) {
    hd_err(e->diags, HD_E_INTERNAL, hir_op_at(e->p->m, op)->loc,
           "kernel.sequence cannot be emitted: %s", what);
    return false;
}

/* The attention op of the body, which yields it and nothing else. */
static hir_id find_attention(const hir_module *m, hir_id kernel) {
    const hir_op *op = hir_op_at(m, kernel);
    if (op->n_results != 1 || op->body_last == HIR_NONE) return HIR_NONE;
    const hir_op *yield = hir_op_at(m, op->body_last);
    if (yield->code != HIR_YIELD_OP || yield->n_args != 1) return HIR_NONE;
    hir_ref r = hcg_through_reshapes(m, yield->args[0]);
    hir_id by = r.kind == HIR_REF_VALUE ? hir_value_at(m, r.index)->op : HIR_NONE;
    return by != HIR_NONE && hir_op_at(m, by)->code == HIR_ATTENTION_OP ? by : HIR_NONE;
}

static bool is_state(const hir_module *m, hir_ref r) {
    return r.kind == HIR_REF_STATE ||
           (r.kind == HIR_REF_VALUE && hir_value_at(m, r.index)->place == HIR_PLACE_STATE);
}

LLVMValueRef hcg_cache_row(hcg_emit *e, const hcg_attention *a, const hcg_cache *c,
                           LLVMValueRef group, LLVMValueRef at) {
    LLVMValueRef row = hcg_mul(e, group, a->cap);
    row = hcg_add(e, row, at);
    row = hcg_mul_const(e, row, c->width);
    return hcg_at(e, hcg_element(e, c->dtype), c->base, row);
}

hcg_cache hcg_cache_of(hcg_emit *e, const hcg_kernel *k, hir_ref r) {
    hir_type t = hir_ref_type(e->p->m, r);
    return (hcg_cache){.base = hcg_arg(e, k, r), .dtype = t.dtype, .width = t.dim[2]};
}

void hcg_take_attention_options(hcg_emit *e, const hcg_kernel *k, const hir_op *op, uint32_t first,
                                hcg_attention *a) {
    const hir_module *m = e->p->m;
    const hir_ref sink = op->args[first], bias = op->args[first + 1];
    a->window = hir_attr_int(op, HIR_A_WINDOW, 0);
    a->softcap = hir_attr_float(op, HIR_A_SOFTCAP, 0);
    if (sink.kind != HIR_REF_NONE) {
        a->sink = hcg_arg(e, k, hcg_through_reshapes(m, sink));
        a->sink_by_token = hir_ref_type(m, sink).rank == 2;
    }
    if (bias.kind != HIR_REF_NONE) {
        a->bias = hcg_arg(e, k, hcg_through_reshapes(m, bias));
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
    if (id == HIR_NONE) return refuse(e, k->op, "its body is not one attention op");
    const hir_op *op = hir_op_at(m, id);
    hir_type q = hir_ref_type(m, op->args[0]), key = hir_ref_type(m, op->args[1]);
    hir_type value = hir_ref_type(m, op->args[2]);
    if (!is_state(m, op->args[1]) || !is_state(m, op->args[2]))
        return refuse(e, id, "keys or values that are not in the cache");
    hcg_attention a = {.heads = q.dim[1], .groups = key.dim[1], .n = q.dim[2], .m = value.dim[2]};
    a.per_group = a.heads / a.groups;
    a.scale = hir_attr_float(op, HIR_A_SCALE, 1);
    size_t errors = e->diags->errors;
    hcg_take_attention_options(e, k, op, 3, &a);
    a.q = hcg_arg(e, k, hcg_through_reshapes(m, op->args[0]));
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
