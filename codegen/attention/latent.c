/* The kernel form latent of kernel.sequence: causal attention whose key and value are one cached
 * row for several heads, by online softmax (attention/attention.h has its steps).
 *
 *     q[T, H, r]  q_shared[T, H, m]  rows c[C, G, r] p[C, G, m], side by side or in two states
 *
 * It is attention with G key/value heads of r + m and r elements, of which the values are a part of
 * the keys: a tile of queries, heads of tokens, attends to tiles of rows (query_tile.h). Once a
 * row has come to the CPU it is multiplied with all of them, 2 (H/G) (2 r + m) operations for each
 * token. Rows of 16 bits are widened once for keys and values.
 *
 * One token: columns are ranges of HRT_KEYS keys of a latent head. Each range writes partial O, M
 * and S of every query head to frame->shared; the thread that finishes the last range merges them
 * in their order. Several tokens: tiles of tokens, each over all its keys.
 */
#include "codegen/attention/latent.h"
#include "codegen/attention/attention_tile.h"
#include "codegen/attention/query_amx.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/matmul/matrix.h"
#include "codegen/program/contraction.h"
#include "codegen/program/forms.h"

enum { LEAST_KEYS = 32 };

/* ---- the op ---------------------------------------------------------------------------------- */
static hcg_cache cache_of(hcg_emit *e, const hcg_kernel *k, hir_ref r) {
    const hir_type t = hir_ref_type(e->p->m, r);
    return (hcg_cache){.base = hcg_arg(e, k, r), .dtype = t.dtype, .width = t.dim[2]};
}

bool hcg_find_latent(hcg_emit *e, const hcg_kernel *k, hir_id id, uint32_t first, uint32_t sink,
                     int64_t r, hcg_latent *out) {
    const hir_module *m = e->p->m;
    const hir_op *op = hir_op_at(m, id);
    const hir_ref *args = op->args + first;
    const hir_type q = hir_ref_type(m, args[0]), rows = hir_ref_type(m, args[1]);
    const bool own = args[3].kind != HIR_REF_NONE;
    const size_t errors = e->diags->errors;
    *out = (hcg_latent){.r = r, .groups = rows.dim[1], .shared_state = own};
    hcg_attention *a = &out->a;
    a->heads = q.dim[1], a->groups = out->groups, a->n = q.dim[2];
    a->q = hcg_arg(e, k, hir_through_reshapes(m, args[0]));
    out->state[0] = cache_of(e, k, args[1]);
    if (own) out->state[1] = cache_of(e, k, args[3]);
    out->start = hir_attr_int(op, HIR_A_START, 0);
    out->shared = args[2].kind != HIR_REF_NONE;
    if (out->shared) {
        out->q_shared = hcg_arg(e, k, hir_through_reshapes(m, args[2]));
        out->m = own ? out->state[1].width : rows.dim[2] - r;
        out->shared_at = own || out->start ? 0 : r;
    }
    a->scale = hir_attr_float(op, HIR_A_SCALE, 1);
    hcg_take_attention_options(e, k, op, sink, a);
    a->out = hcg_arg(e, k, hir_value_ref(hir_op_at(m, k->op)->results[0]));
    a->cap = hcg_frame_cap(e);
    a->past = LLVMBuildNSWSub(e->b, hcg_frame_c(e), hcg_frame_t(e), "past");
    return e->diags->errors == errors;
}

/* ---- rows as keys and values ----------------------------------------------------------------- */
typedef struct cached {
    const hcg_latent *l;
    LLVMValueRef wide[2]; /* for each state: scratch for rows of 16 bits as f32 */
} cached;

/* Keys of a tile: as many as fill a quarter of the L2 as f32, so that the products after the
 * first find them there. */
static int64_t keys_of_tile(const hcg_emit *e, const hcg_latent *l) {
    const int64_t l2 = (int64_t)e->level->machine.l2;
    int64_t keys = HCG_KEYS;
    while (keys > LEAST_KEYS && keys * (l->r + l->m) * 4 * 4 > l2)
        keys /= 2;
    return keys;
}

/* The rows of a state: where they lie, or widened for vectors. */
static hcg_key_rows rows_of(hcg_emit *e, const hcg_query_tile *t, unsigned state) {
    const cached *of = t->of;
    const hcg_cache *c = &of->l->state[state];
    hcg_key_rows rows = {.dtype = c->dtype, .ld = c->width};
    LLVMValueRef next = hcg_add(e, t->first, hcg_i64(e, t->keys));
    rows.x = hcg_cache_row(e, t->a, c, t->group, t->first);
    rows.next = hcg_cache_row(e, t->a, c, t->group, next);
    rows.ahead = hcg_i64(e, t->keys * c->width * (int64_t)hir_dtype_bytes(c->dtype));
    if (c->dtype == HIR_F32 || t->amx) return rows;
    hcg_widen_row(e, c->dtype, rows.x, of->wide[state], hcg_mul_const(e, t->count, c->width));
    rows.x = of->wide[state], rows.dtype = HIR_F32;
    return rows;
}

static hcg_key_rows columns_of(hcg_emit *e, hcg_key_rows rows, int64_t at, int64_t n) {
    rows.x = hcg_at(e, hcg_element(e, rows.dtype), rows.x, hcg_i64(e, at)), rows.n = n;
    return rows;
}

/* The second half of the rows' bytes that are prefetched, for the products after those that
 * prefetch the first half. */
static void halve_ahead(hcg_emit *e, hcg_key_rows *first, hcg_key_rows *second) {
    first->ahead = LLVMBuildUDiv(e->b, first->ahead, hcg_i64(e, 2), "");
    second->next = hcg_at(e, e->i8, first->next, first->ahead), second->ahead = first->ahead;
}

/* Both parts are one product where they follow each other in the rows as in the queries. */
static bool are_one(const hcg_latent *l) {
    return !l->shared_state && !l->start;
}

static void fetch(hcg_emit *e, hcg_query_tile *t) {
    const cached *of = t->of;
    const hcg_latent *l = of->l;
    const hcg_key_rows rows = rows_of(e, t, 0);
    t->values = t->rows[0] = columns_of(e, rows, l->start, l->r);
    t->rows[0].n = t->segment[0].n, t->sums = t->segments;
    halve_ahead(e, &t->rows[0], &t->values);
    if (t->segments == 1) return;
    t->rows[1] = columns_of(e, l->shared_state ? rows_of(e, t, 1) : rows, l->shared_at, l->m);
    t->rows[1].line = l->r;
    if (!l->shared_state) t->rows[1].ahead = hcg_i64(e, 0);
}

static hcg_query_tile begin(hcg_emit *e, cached *of, int64_t tokens) {
    const hcg_latent *l = of->l;
    hcg_query_tile t = {.a = &l->a, .tokens = tokens, .keys = keys_of_tile(e, l)};
    t.parts = 1 + l->shared, t.fetch = fetch, t.of = of;
    t.part[0] = (hcg_query_part){.q = l->a.q, .n = l->r};
    if (l->shared) t.part[1] = (hcg_query_part){.q = l->q_shared, .n = l->m, .line = l->r};
    t.segment[0].n = l->r, t.segments = 1;
    if (l->shared && are_one(l))
        t.segment[0].n += l->m;
    else if (l->shared)
        t.segment[1].line = l->r, t.segment[1].n = l->m, t.segments = 2;
    hcg_queries_begin(e, &t);
    for (unsigned i = 0; i <= l->shared_state; i++)
        if (l->state[i].dtype != HIR_F32 && !t.amx)
            of->wide[i] = hcg_floats(e, t.keys * l->state[i].width);
    return t;
}

/* ---- one token ------------------------------------------------------------------------------- */
/* Attends to the keys of range `number` of those that are seen; the cache has `skipped` ranges
 * before them. The first range has the sinks; which range a tile begins with is known only at run
 * time. */
static void emit_range(hcg_emit *e, hcg_query_tile *t, LLVMValueRef number, LLVMValueRef skipped) {
    LLVMValueRef keys = hcg_i64(e, HRT_KEYS), seen = hcg_queries_first_key(e, t);
    LLVMValueRef start = hcg_mul(e, hcg_add(e, number, skipped), keys);
    hcg_queries_start(e, t);
    if (t->a->sink) {
        LLVMValueRef is_first = LLVMBuildICmp(e->b, LLVMIntEQ, number, hcg_i64(e, 0), "first");
        hcg_loop sinks = hcg_loop_begin(e, hcg_i64(e, 0), LLVMBuildZExt(e->b, is_first, e->i64, ""),
                                        hcg_i64(e, 1), "sinks", 0, NULL);
        hcg_queries_take_sinks(e, t);
        hcg_loop_end(e, &sinks, NULL);
    }
    hcg_multiply_queries(e, t, hcg_larger(e, start, seen),
                         hcg_smaller(e, hcg_add(e, start, keys), hcg_frame_c(e)));
}

typedef struct row_ranges { /* of a group */
    hcg_query_tile *t;
    hcg_ranged_head h;
    LLVMValueRef skipped;
} row_ranges;

static void do_range(hcg_emit *e, void *with, LLVMValueRef range, LLVMValueRef partials) {
    const row_ranges *r = with;
    emit_range(e, r->t, range, r->skipped);
    hcg_queries_leave_partials(e, r->t, partials);
}

/* Computes columns c0 .. c1 - 1: column g R + r is range r of group g, where R ranges cover the
 * part of the cache that is seen. */
static void emit_decode(hcg_emit *e, const hcg_latent *l) {
    const hcg_attention *a = &l->a;
    LLVMValueRef keys = hcg_i64(e, HRT_KEYS), one = hcg_i64(e, 1), zero = hcg_i64(e, 0);
    const hcg_key_tile heads = {.a = a, .heads = hcg_i64(e, a->per_group)};
    cached of = {.l = l};
    hcg_query_tile t = begin(e, &of, 1);
    t.row = zero, t.n = one;
    row_ranges r = {.t = &t};
    r.skipped = LLVMBuildUDiv(e->b, hcg_first_seen(e, a, a->past), keys, "");
    LLVMValueRef ranges = hcg_sub(e, hcg_divide_up(e, hcg_frame_c(e), keys), r.skipped);
    hcg_loop groups = hcg_loop_begin(e, LLVMBuildUDiv(e->b, e->c0, ranges, ""),
                                     hcg_divide_up(e, e->c1, ranges), one, "group", 0, NULL);
    LLVMValueRef column = hcg_mul(e, groups.index, ranges);
    r.h = (hcg_ranged_head){.group = groups.index, .ranges = ranges};
    r.h.partials = hcg_frame_ranges(e);
    r.h.partials = hcg_range_at(e, &heads, &r.h, column);
    t.group = groups.index;
    hcg_queries_take(e, &t);
    hcg_each_range(e, &heads, &r.h, hcg_larger(e, hcg_sub(e, e->c0, column), zero),
                   hcg_smaller(e, hcg_sub(e, e->c1, column), ranges), do_range, &r);
    hcg_loop_end(e, &groups, NULL);
    hcg_queries_end(e, &t);
}

/* Whether one token is computed as in ordinary attention (decode.c), with elements of a row in
 * lanes, where key and value are columns of one row. With half a panel of heads or fewer, half of
 * the lanes of a query tile would hold repetitions. More heads also read a row from the L1, eight
 * at once in vectors of 16 lanes and four in vectors of 8, without a copy of narrow rows as f32.
 * Not so for two panels of heads or more with rows of f32, whose bytes are all that the L2
 * delivers: there two panels of a query tile share each row. More heads go to the matrix unit.
 */
static bool goes_as_attention(const hcg_emit *e, const hcg_latent *l) {
    if (l->shared_state) return false;
    const bool panels = hcg_strip_panels(e->level) > 1 && l->a.per_group >= 2 * HIR_PANEL &&
                        l->state[0].dtype == HIR_F32;
    const bool vectors =
        e->level->lanes >= HIR_PANEL / 2 && !hcg_attends_by_amx(e->level) && !panels;
    return l->a.per_group <= HIR_PANEL / 2 || vectors;
}

/* to[h][at .. at + n - 1] = q[h], all heads of the token, rows `width` apart */
static void place_queries(hcg_emit *e, const hcg_latent *l, LLVMValueRef q, int64_t n, int64_t at,
                          LLVMValueRef to) {
    const int64_t width = l->r + l->m;
    hcg_loop h =
        hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, l->a.heads), hcg_i64(e, 1), "head", 0, NULL);
    LLVMValueRef row = hcg_add(e, hcg_mul_const(e, h.index, width), hcg_i64(e, at));
    hcg_scale_row(e, hcg_at(e, e->f32, q, hcg_mul_const(e, h.index, n)), hcg_at(e, e->f32, to, row),
                  n, hcg_splat(e, 1));
    hcg_loop_end(e, &h, NULL);
}

static void decode_as_attention(hcg_emit *e, const hcg_latent *l) {
    hcg_attention a = l->a;
    a.k = a.v = l->state[0];
    a.v.base = hcg_at(e, hcg_element(e, a.v.dtype), a.v.base, hcg_i64(e, l->start));
    a.n = l->r + l->m, a.one_row = true;
    if (l->shared) {
        a.q = hcg_floats(e, a.heads * a.n);
        place_queries(e, l, l->a.q, l->r, l->start, a.q);
        place_queries(e, l, l->q_shared, l->m, l->shared_at, a.q);
    }
    hcg_attention_decode(e, &a);
}

/* ---- several tokens -------------------------------------------------------------------------- */
static void emit_prefill(hcg_emit *e, const hcg_latent *l) {
    cached of = {.l = l};
    const int64_t tokens = HIR_QUERY_TILE / l->a.per_group; /* 0: more heads */
    hcg_query_tile t = begin(e, &of, tokens ? tokens : 1);
    hcg_queries_all_rows(e, &t);
}

/* ---- the form -------------------------------------------------------------------------------- */
static bool emit_latent(hcg_emit *e, const hcg_kernel *k) {
    const hir_id id = hir_form_op(e->p->m, k->op);
    hcg_latent l;
    if (!hcg_find_latent(e, k, id, 0, 4, hir_arg_type(e->p->m, id, 0).dim[2], &l)) return false;
    l.a.per_group = l.a.heads / l.a.groups, l.a.m = l.r;
    hcg_at_op(e, id);
    if (k->phase == HIR_DECODE && goes_as_attention(e, &l))
        decode_as_attention(e, &l);
    else if (k->phase == HIR_DECODE)
        emit_decode(e, &l);
    else
        emit_prefill(e, &l);
    return true;
}

static int64_t latent_heads(const hir_module *m, hir_id kernel) {
    return hir_arg_type(m, hir_form_op(m, kernel), 1).dim[1];
}

static void count_shared(const hir_module *m, hir_id kernel, uint64_t *counters, uint64_t *range) {
    const hir_type q = hir_arg_type(m, hir_form_op(m, kernel), 0);
    *counters = hcg_counter_bytes(latent_heads(m, kernel));
    *range = (uint64_t)q.dim[1] * (uint64_t)hcg_partial_floats(q.dim[2]) * 4;
}

static uint32_t cached_matrices(const hir_module *m, hir_id kernel) {
    const hir_id op = hir_form_op(m, kernel);
    const hir_type q = hir_arg_type(m, op, 0), rows = hir_arg_type(m, op, 1);
    const bool apart = hir_op_at(m, op)->args[3].kind != HIR_REF_NONE;
    const bool pairs = !apart && hcg_pairs_fit(rows.dim[2], q.dim[2]);
    return pairs ? hcg_matrix(rows.dtype, HIR_LAYOUT_ROWS) : 0;
}

const hcg_form hcg_form_latent = {.emit = emit_latent,
                                  .columns = latent_heads,
                                  .shared = count_shared,
                                  .cached = cached_matrices};
