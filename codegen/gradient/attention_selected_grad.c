/* The kernel form attention_selected_grad of kernel.sequence: the gradients of the operands of
 * attention over the rows that a list names, or over entries, each a row for several positions. The
 * call is one sequence from position 0, T = C; which rows are seen is constant.
 *
 * The query heads of a token that share keys are a tile of queries, unless they are few
 * (selected_few.c). Tiles of keys, of the sequence
 * of rows that the token sees (attention/selection.h), are copies of the rows that they name;
 * gradients are added to the rows where they belong.
 *
 * An entry is key and value: its gradient is the sum of both. The gradients of all kinds of rows
 * are rows of tokens; that of an entry stands at the last of its positions, and other tokens have
 * zeros.
 */
#include "codegen/attention/attention_tile.h"
#include "codegen/attention/query_tile.h"
#include "codegen/attention/selection.h"
#include "codegen/gradient/attention_parts.h"
#include "codegen/gradient/attention_queries.h"
#include "codegen/gradient/selected_few.h"

enum { K, V, ENTRY }; /* what gathers over queries */

typedef struct selected {
    hcg_attention a;
    hcg_attention_parts parts;
    hcg_gradient_tile tile;
    hcg_selection rows;
    hcg_sight seen;            /* by the token */
    LLVMValueRef keys, values; /* scratch: copies of the rows of a tile */
    hcg_few few;               /* in place of tiles, if few heads share keys */
} selected;

/* ---- rows ------------------------------------------------------------------------------------ */
/* A loop over those rows of the tile, numbers in the token's sequence, that are positions of its
 * window (`near`), or over the others. */
static hcg_loop each_row(hcg_emit *e, const selected *s, bool near) {
    const hcg_gradient_tile *t = &s->tile;
    LLVMValueRef end = hcg_add(e, t->first, t->count), one = hcg_i64(e, 1);
    if (near)
        return hcg_loop_begin(e, t->first, hcg_smaller(e, end, s->seen.near), one, "near", 0, NULL);
    return hcg_loop_begin(e, hcg_larger(e, t->first, s->seen.near), end, one, "far", 0, NULL);
}

/* Row number i of the sequence: its position, or its number among entries. */
static LLVMValueRef row_of(hcg_emit *e, const selected *s, LLVMValueRef i, bool near) {
    if (near) return hcg_add(e, s->seen.first, i);
    return hcg_selected_row(e, &s->rows, hcg_sub(e, i, s->seen.near));
}

static void copy_rows(hcg_emit *e, const selected *s, bool near) {
    const hcg_selection *r = &s->rows;
    const bool entry = !near && r->entries.base;
    LLVMValueRef cap = entry ? r->entries_cap : s->a.cap, one = hcg_splat(e, 1);
    const hcg_cache *const of[] = {entry ? &r->entries : &s->a.k, entry ? &r->entries : &s->a.v};
    LLVMValueRef const to[] = {s->keys, s->values};
    hcg_loop l = each_row(e, s, near);
    LLVMValueRef row = row_of(e, s, l.index, near), number = hcg_sub(e, l.index, s->tile.first);
    for (int i = 0; i < (r->same ? 1 : 2); i++)
        hcg_scale_row(e, hcg_row_in(e, of[i], cap, s->tile.group, row),
                      hcg_at(e, e->f32, to[i], hcg_mul_const(e, number, of[i]->width)),
                      of[i]->width, one);
    hcg_loop_end(e, &l, NULL);
}

static void fetch(hcg_emit *e, hcg_gradient_tile *t) {
    const selected *s = t->of;
    if (s->rows.entries.base) copy_rows(e, s, true);
    copy_rows(e, s, false);
    t->keys = s->keys, t->values = s->values;
}

static void add_rows(hcg_emit *e, const selected *s, bool near) {
    const hcg_gradient_tile *t = &s->tile;
    const bool entry = !near && s->rows.entries.base;
    const hcg_gathered *const to[] = {&s->parts.of[entry ? ENTRY : K],
                                      &s->parts.of[entry ? ENTRY : V]};
    const hcg_row_gradients *const from[] = {&t->of_keys, &t->of_values};
    hcg_loop l = each_row(e, s, near);
    LLVMValueRef token = row_of(e, s, l.index, near), number = hcg_sub(e, l.index, t->first);
    if (entry && s->rows.rate > 1) {
        token = hcg_mul_const(e, hcg_add(e, token, hcg_i64(e, 1)), s->rows.rate);
        token = hcg_sub(e, token, hcg_i64(e, 1));
    }
    for (int i = 0; i < 2; i++)
        if (to[i]->result)
            hcg_add_row(e, hcg_at(e, e->f32, from[i]->parts, hcg_mul_const(e, number, from[i]->ld)),
                        hcg_gathered_at(e, to[i], token), to[i]->n);
    hcg_loop_end(e, &l, NULL);
}

static void add(hcg_emit *e, hcg_gradient_tile *t) {
    const selected *s = t->of;
    if (s->rows.entries.base) add_rows(e, s, true);
    add_rows(e, s, false);
}

/* ---- tokens ---------------------------------------------------------------------------------- */
static bool has_few_heads(const selected *s) {
    return s->a.per_group <= HCG_FEW_HEADS;
}

static void emit_token(hcg_emit *e, selected *s) {
    hcg_gradient_tile *t = &s->tile;
    if (has_few_heads(s)) {
        s->few.group = t->group, s->few.row = t->row, s->few.seen = s->seen;
        s->few.dsink = t->dsink;
        hcg_few_token(e, &s->few);
        return;
    }
    hcg_gradient_queries(e, t, hcg_i64(e, 0), hcg_add(e, s->seen.near, s->seen.far));
}

static void emit_part(hcg_emit *e, hcg_attention_parts *p, LLVMValueRef from, LLVMValueRef to) {
    selected *s = p->with;
    hcg_gradient_tile *t = &s->tile;
    t->group = p->group, t->dsink = p->sinks;
    hcg_loop rows = hcg_loop_begin(e, from, to, hcg_i64(e, 1), "token", 0, NULL);
    t->row = rows.index, t->n = hcg_i64(e, 1);
    hcg_take_list(e, &s->rows, t->row, t->group);
    s->seen = hcg_sight_of(e, &s->a, &s->rows, t->row);
    emit_token(e, s);
    hcg_loop_end(e, &rows, NULL);
}

/* ---- the kernel ------------------------------------------------------------------------------ */
static bool is_f32(const selected *s) {
    const hcg_cache *c = &s->rows.entries;
    const bool entries = !c->base || c->dtype == HIR_F32;
    return s->a.k.dtype == HIR_F32 && s->a.v.dtype == HIR_F32 && entries;
}

static bool emit_attention_selected_grad(hcg_emit *e, const hcg_kernel *k) {
    const hir_id id = hir_form_op(e->p->m, k->op);
    const hir_op *op = hir_op_at(e->p->m, id);
    const size_t errors = e->diags->errors;
    selected s = {0};
    hcg_take_selection(e, k, op, &s.a, &s.rows);
    s.a.cap = hcg_frame_cap(e), s.a.past = hcg_i64(e, 0);
    if (!is_f32(&s)) {
        hd_err(e->diags, HD_E_INTERNAL, *op->loc,
               "kernel.sequence cannot be emitted: rows of its gradient are not f32");
        return false;
    }
    hcg_gradient_tile *t = &s.tile;
    *t = (hcg_gradient_tile){.a = &s.a, .tokens = 1, .fetch = fetch, .add = add, .of = &s};
    t->q = (hcg_gradient_rows){.from = hcg_gradient_operand(e, k, op, 0), .n = s.a.n};
    t->dy = (hcg_gradient_rows){.from = hcg_gradient_operand(e, k, op, 6), .n = s.a.m};
    hcg_attention_parts *p = &s.parts;
    *p = (hcg_attention_parts){.a = &s.a, .tokens = 1, .emit = emit_part, .with = &s};
    p->even = s.rows.list != NULL;
    p->of[K] = (hcg_gathered){.result = hcg_take_gradient(e, k, "k").at, .n = s.a.n};
    p->of[V] = (hcg_gathered){.result = hcg_take_gradient(e, k, "v").at, .n = s.a.m};
    if (s.rows.entries.base)
        p->of[ENTRY] = (hcg_gathered){.result = hcg_take_gradient(e, k, "entries").at, .n = s.a.n};
    p->sink = hcg_take_gradient(e, k, "sink");
    t->dq = hcg_take_gradient(e, k, "q").at, t->dsink = p->sink.at;
    t->of_keys.wanted = p->of[K].result || p->of[ENTRY].result;
    t->of_values.wanted = p->of[V].result || p->of[ENTRY].result;
    if (e->diags->errors != errors) return false;
    hcg_at_op(e, id);
    if (has_few_heads(&s)) {
        s.few = (hcg_few){.a = &s.a, .rows = &s.rows, .q = t->q.from, .dy = t->dy.from};
        s.few.dq = t->dq, s.few.dsink = t->dsink;
        s.few.k = &p->of[K], s.few.v = &p->of[V], s.few.entry = &p->of[ENTRY];
        hcg_few_begin(e, &s.few);
    } else {
        hcg_gradient_begin(e, t);
        s.keys = s.values = hcg_floats(e, HCG_GRADIENT_KEYS * s.a.n);
        if (!s.rows.same) s.values = hcg_floats(e, HCG_GRADIENT_KEYS * s.a.m);
    }
    hcg_emit_parts(e, p);
    return true;
}

static void count_shared(const hir_module *m, hir_id kernel, uint64_t *counters, uint64_t *range) {
    const hir_id op = hir_form_op(m, kernel);
    const int64_t n = hir_arg_type(m, op, 1).dim[2];
    const bool entries = hir_op_at(m, op)->args[5].kind != HIR_REF_NONE;
    const int64_t floats = n + hir_arg_type(m, op, 2).dim[2] + (entries ? n : 0);
    hcg_count_parts_shared(m, kernel, floats, counters, range);
}

const hcg_form hcg_form_attention_selected_grad = {
    .emit = emit_attention_selected_grad, .columns = hcg_count_parts, .shared = count_shared};
