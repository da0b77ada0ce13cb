/* The form attention_selected of kernel.sequence: attention over the rows that a list names.
 *
 * The rows that a token sees form a sequence: with entries the positions of its window, then the
 * entries (those listed, or all complete ones); without, the listed positions. A tile of the
 * sequence is brought together in scratch, as f32, and from there on all is as in attention of one
 * token (attention_tile.h). So only rows that are seen are read, and a head's rows once for all
 * query heads that share them.
 *
 * One token: columns are ranges of HRT_KEYS rows of the sequence of a key/value head. Several: a
 * token and head at a time, since each has rows of its own.
 */
#include "codegen/contract/contraction.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/forms.h"
#include "codegen/library/library.h"
#include "codegen/sequence/attention_tile.h"
#include "codegen/sequence/choose.h"

enum { TILE = 64 }; /* rows brought together; divides HRT_KEYS */

typedef struct selected {
    hcg_attention a;       /* as it is for the token that is being done */
    hcg_attention tile_a;  /* the same with keys and values in scratch */
    hcg_cache entries;     /* base NULL: none */
    bool same;             /* k and v are one cache */
    LLVMValueRef list;     /* i32 [T][lists][most]; NULL: all entries */
    LLVMValueRef own_list; /* of the token and head */
    int64_t lists, most, rate;
    LLVMValueRef entries_cap;
    LLVMValueRef q, sink, out; /* of token 0 */
    hcg_key_tile tile;
} selected;

/* What a token sees: positions first .. first + near - 1, then `far` rows of the list. */
typedef struct sight {
    LLVMValueRef first, near, far, rows;
} sight;

/* How many entries of the list are rows, from its start on: at most `rows`. */
static LLVMValueRef listed(hcg_emit *e, const selected *s, LLVMValueRef rows) {
    LLVMValueRef most = hcg_smaller(e, hcg_i64(e, s->most), rows);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), most, hcg_i64(e, 1), "listed", 1, &most);
    LLVMValueRef id = LLVMBuildLoad2(e->b, e->i32, hcg_at(e, e->i32, s->own_list, l.index), "");
    LLVMSetAlignment(id, 4);
    id = LLVMBuildZExt(e->b, id, e->i64, ""); /* negative ones are large */
    LLVMValueRef is_row = LLVMBuildICmp(e->b, LLVMIntSLT, id, rows, "");
    LLVMValueRef n = LLVMBuildSelect(e->b, is_row, most, l.index, "");
    n = hcg_smaller(e, n, l.carried[0]);
    hcg_loop_end(e, &l, &n);
    return l.carried[0];
}

static sight sight_of(hcg_emit *e, const selected *s, LLVMValueRef position) {
    LLVMValueRef zero = hcg_i64(e, 0), rows = hcg_add(e, position, hcg_i64(e, 1));
    sight v = {.first = zero, .near = zero, .rows = rows};
    if (s->entries.base) {
        v.first = hcg_first_seen(e, &s->a, position);
        v.near = hcg_sub(e, rows, v.first);
        if (s->rate > 1) v.rows = LLVMBuildUDiv(e->b, rows, hcg_i64(e, s->rate), "");
    }
    v.far = s->list ? listed(e, s, v.rows) : v.rows;
    return v;
}

/* ---- bringing rows together ------------------------------------------------------------------ */
static LLVMValueRef row_in(hcg_emit *e, const hcg_cache *c, LLVMValueRef cap, LLVMValueRef group,
                           LLVMValueRef row) {
    LLVMValueRef at = hcg_mul_const(e, hcg_add(e, hcg_mul(e, group, cap), row), c->width);
    return hcg_at(e, hcg_element(e, c->dtype), c->base, at);
}

static void copy_row(hcg_emit *e, const hcg_cache *c, LLVMValueRef from, LLVMValueRef to) {
    const int64_t lanes = e->level->lanes;
    LLVMTypeRef elem = hcg_element(e, c->dtype);
    const int64_t whole = c->width / lanes * lanes;
    hcg_loop l =
        hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, whole), hcg_i64(e, lanes), "copy", 0, NULL);
    LLVMValueRef x = hcg_load(e, c->dtype, hcg_at(e, elem, from, l.index), NULL);
    hcg_store(e, hcg_at(e, e->f32, to, l.index), x, NULL);
    hcg_loop_end(e, &l, NULL);
    if (whole == c->width) return;
    LLVMValueRef at = hcg_i64(e, whole), left = hcg_i64(e, c->width - whole);
    x = hcg_load(e, c->dtype, hcg_at(e, elem, from, at), left);
    hcg_store(e, hcg_at(e, e->f32, to, at), x, left);
}

/* The row number i of the sequence behind the positions. */
static LLVMValueRef far_row(hcg_emit *e, const selected *s, const sight *v, LLVMValueRef i) {
    LLVMValueRef at = hcg_sub(e, i, v->near);
    if (!s->list) return at;
    at = hcg_larger(e, at, hcg_i64(e, 0)); /* read for positions, too, where it means nothing */
    LLVMValueRef id = LLVMBuildLoad2(e->b, e->i32, hcg_at(e, e->i32, s->own_list, at), "row");
    LLVMSetAlignment(id, 4);
    return LLVMBuildZExt(e->b, id, e->i64, "");
}

/* Row number i of the sequence, of keys or of values. */
static LLVMValueRef row_of(hcg_emit *e, const selected *s, const sight *v, const hcg_cache *c,
                           LLVMValueRef i) {
    LLVMValueRef group = s->tile.group, far = far_row(e, s, v, i);
    if (!s->entries.base) return row_in(e, c, s->a.cap, group, far);
    LLVMValueRef is_near = LLVMBuildICmp(e->b, LLVMIntSLT, i, v->near, "near");
    LLVMValueRef one = row_in(e, c, s->a.cap, group, hcg_add(e, v->first, i));
    return LLVMBuildSelect(e->b, is_near, one, row_in(e, &s->entries, s->entries_cap, group, far),
                           "row");
}

static void bring(hcg_emit *e, const selected *s, const sight *v, const hcg_cache *c,
                  LLVMValueRef to) {
    LLVMValueRef first = s->tile.first;
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), s->tile.count, hcg_i64(e, 1), "bring", 0, NULL);
    copy_row(e, c, row_of(e, s, v, c, hcg_add(e, first, l.index)),
             hcg_at(e, e->f32, to, hcg_mul_const(e, l.index, c->width)));
    hcg_loop_end(e, &l, NULL);
}

/* Rows from .. to - 1 of the sequence; `range`: 0, these are the first. */
static void emit_range(hcg_emit *e, selected *s, const sight *v, LLVMValueRef range,
                       LLVMValueRef from, LLVMValueRef to) {
    hcg_key_tile *t = &s->tile;
    hcg_start_range(e, t, range);
    hcg_loop l = hcg_loop_begin(e, from, to, hcg_i64(e, TILE), "tile", 0, NULL);
    t->first = l.index, t->count = hcg_smaller(e, hcg_sub(e, to, l.index), hcg_i64(e, TILE));
    bring(e, s, v, &s->a.k, t->keys);
    if (!s->same) bring(e, s, v, &s->a.v, t->values);
    hcg_tile_scores(e, t);
    hcg_tile_softmax(e, t);
    hcg_tile_values(e, t);
    hcg_loop_end(e, &l, NULL);
}

/* ---- tokens ---------------------------------------------------------------------------------- */
static void take_head(hcg_emit *e, selected *s, LLVMValueRef token, LLVMValueRef group) {
    hcg_attention *a = &s->tile_a;
    LLVMValueRef heads = hcg_mul_const(e, token, a->heads);
    LLVMValueRef first = hcg_add(e, heads, hcg_mul_const(e, group, a->per_group));
    s->tile.group = group;
    s->tile.q = hcg_at(e, e->f32, s->q, hcg_mul_const(e, first, a->n));
    a->out = hcg_at(e, e->f32, s->out, hcg_mul_const(e, heads, a->m));
    if (s->sink) a->sink = a->sink_by_token ? hcg_at(e, e->f32, s->sink, heads) : s->sink;
    if (!s->list) return;
    LLVMValueRef number = hcg_mul_const(e, token, s->lists);
    if (s->lists > 1) number = hcg_add(e, number, group);
    s->own_list = hcg_at(e, e->i32, s->list, hcg_mul_const(e, number, s->most));
}

static void emit_prefill(hcg_emit *e, selected *s) {
    LLVMValueRef one = hcg_i64(e, 1), zero = hcg_i64(e, 0);
    const int64_t floats = s->a.per_group * hcg_partial_floats(s->a.m);
    LLVMValueRef partial = hcg_scratch(e, (uint64_t)floats * 4);
    hcg_loop t = hcg_loop_begin(e, e->r0, e->r1, one, "token", 0, NULL);
    hcg_loop g = hcg_loop_begin(e, e->c0, e->c1, one, "group", 0, NULL);
    take_head(e, s, t.index, g.index);
    const sight v = sight_of(e, s, hcg_add(e, s->a.past, t.index));
    s->tile.partial = partial;
    emit_range(e, s, &v, zero, zero, hcg_add(e, v.near, v.far));
    const hcg_ranged_head h = {.group = g.index, .ranges = one, .partials = partial};
    hcg_finish_heads(e, &s->tile, &h);
    hcg_loop_end(e, &g, NULL);
    hcg_loop_end(e, &t, NULL);
}

/* As many ranges as hold what a token may see (hrt_step.list_rate): a list may have fewer rows. */
static LLVMValueRef count_ranges(hcg_emit *e, const selected *s, const sight *v) {
    LLVMValueRef far = v->rows;
    if (s->list) far = hcg_smaller(e, far, hcg_i64(e, s->most));
    LLVMValueRef n = hcg_divide_up(e, hcg_add(e, v->near, far), hcg_i64(e, HRT_KEYS));
    return hcg_larger(e, n, hcg_i64(e, 1));
}

typedef struct list_ranges { /* of a head */
    selected *s;
    const sight *v;
    hcg_ranged_head h;
} list_ranges;

static void do_range(hcg_emit *e, void *with, LLVMValueRef range) {
    const list_ranges *l = with;
    LLVMValueRef keys = hcg_i64(e, HRT_KEYS), start = hcg_mul(e, range, keys);
    LLVMValueRef stop = hcg_smaller(e, hcg_add(e, start, keys), hcg_add(e, l->v->near, l->v->far));
    l->s->tile.partial = hcg_range_at(e, &l->s->tile, &l->h, range);
    emit_range(e, l->s, l->v, range, start, stop);
}

static void emit_decode(hcg_emit *e, selected *s) {
    LLVMValueRef one = hcg_i64(e, 1), zero = hcg_i64(e, 0);
    take_head(e, s, zero, zero);
    sight v = sight_of(e, s, s->a.past);
    LLVMValueRef ranges = count_ranges(e, s, &v), partials = hcg_frame_ranges(e);
    LLVMValueRef first = LLVMBuildUDiv(e->b, e->c0, ranges, "");
    hcg_loop l = hcg_loop_begin(e, first, hcg_divide_up(e, e->c1, ranges), one, "group", 0, NULL);
    LLVMValueRef column = hcg_mul(e, l.index, ranges);
    take_head(e, s, zero, l.index);
    if (s->lists > 1) v = sight_of(e, s, s->a.past);
    list_ranges r = {.s = s, .v = &v};
    r.h = (hcg_ranged_head){.group = l.index, .ranges = ranges, .partials = partials};
    r.h.partials = hcg_range_at(e, &s->tile, &r.h, column);
    hcg_each_range(e, &s->tile, &r.h, hcg_larger(e, hcg_sub(e, e->c0, column), zero),
                   hcg_smaller(e, hcg_sub(e, e->c1, column), ranges), do_range, &r);
    hcg_loop_end(e, &l, NULL);
}

/* ---- the form -------------------------------------------------------------------------------- */
static void take_operands(hcg_emit *e, const hcg_kernel *k, const hir_op *op, selected *s) {
    const hir_module *m = e->p->m;
    const hir_ref list = op->args[3], sink = op->args[4], entries = op->args[5];
    s->q = hcg_arg(e, k, hcg_through_reshapes(m, op->args[0]));
    s->a.k = hcg_cache_of(e, k, op->args[1]);
    s->a.v = hcg_cache_of(e, k, op->args[2]);
    s->same = hir_ref_equal(op->args[1], op->args[2]);
    if (list.kind != HIR_REF_NONE) {
        const hir_type t = hir_ref_type(m, list);
        s->list = hcg_arg(e, k, hcg_through_reshapes(m, list));
        s->lists = t.dim[1], s->most = t.dim[2];
    }
    if (sink.kind != HIR_REF_NONE) {
        s->sink = hcg_arg(e, k, hcg_through_reshapes(m, sink));
        s->a.sink_by_token = hir_ref_type(m, sink).rank == 2;
    }
    if (entries.kind != HIR_REF_NONE) {
        s->entries = hcg_cache_of(e, k, entries);
        s->rate = hir_rate(hir_ref_type(m, entries).dim[0]);
        s->entries_cap = hcg_frame_cap(e);
        if (s->rate > 1)
            s->entries_cap = LLVMBuildUDiv(e->b, s->entries_cap, hcg_i64(e, s->rate), "");
    }
    s->out = hcg_arg(e, k, hir_value_ref(hir_op_at(m, k->op)->results[0]));
}

static void make_tile(hcg_emit *e, selected *s) {
    const hcg_attention *a = &s->a;
    s->tile_a = *a;
    s->tile_a.k.dtype = s->tile_a.v.dtype = HIR_F32;
    s->tile = (hcg_key_tile){.a = &s->tile_a, .most = TILE, .heads = hcg_i64(e, a->per_group)};
    s->tile.scores = hcg_scratch(e, (uint64_t)(a->per_group * HCG_LD_SCORES) * 4);
    s->tile.keys = s->tile.values = hcg_scratch(e, (uint64_t)(TILE * a->n) * 4);
    if (!s->same) s->tile.values = hcg_scratch(e, (uint64_t)(TILE * a->m) * 4);
}

static bool emit_attention_selected(hcg_emit *e, const hcg_kernel *k) {
    const hir_module *m = e->p->m;
    const hir_id id = hir_form_op(m, k->op);
    const hir_op *op = hir_op_at(m, id);
    const hir_type q = hir_ref_type(m, op->args[0]), v = hir_ref_type(m, op->args[2]);
    const size_t errors = e->diags->errors;
    selected s = {.a = {.heads = q.dim[1], .groups = v.dim[1], .n = q.dim[2], .m = v.dim[2]}};
    s.a.per_group = s.a.heads / s.a.groups, s.lists = s.rate = 1;
    s.a.scale = hir_attr_float(op, HIR_A_SCALE, 1);
    s.a.softcap = hir_attr_float(op, HIR_A_SOFTCAP, 0);
    s.a.window = hir_attr_int(op, HIR_A_WINDOW, 0);
    take_operands(e, k, op, &s);
    if (e->diags->errors != errors) return false;
    s.a.cap = hcg_frame_cap(e);
    s.a.past = LLVMBuildNSWSub(e->b, hcg_frame_c(e), hcg_frame_t(e), "past");
    hcg_at_op(e, id);
    make_tile(e, &s);
    if (k->phase == HIR_DECODE)
        emit_decode(e, &s);
    else
        emit_prefill(e, &s);
    return true;
}

/* With entries there may be half as many ranges again as the positions have. */
static void count_shared(const hir_module *m, hir_id kernel, uint64_t *counters, uint64_t *range) {
    const hir_id id = hir_form_op(m, kernel);
    const hir_type q = hir_arg_type(m, id, 0), v = hir_arg_type(m, id, 2);
    const bool entries = hir_op_at(m, id)->args[5].kind != HIR_REF_NONE;
    *counters = hcg_counter_bytes(v.dim[1]);
    *range = (uint64_t)q.dim[1] * (uint64_t)hcg_partial_floats(v.dim[2]) * 4 * (entries ? 2 : 1);
}

static int64_t key_value_heads(const hir_module *m, hir_id kernel) {
    return hir_arg_type(m, hir_form_op(m, kernel), 1).dim[1];
}

static void list_rows(const hir_module *m, hir_id kernel, hrt_step *step) {
    const hir_op *op = hir_op_at(m, hir_form_op(m, kernel));
    const hir_ref list = op->args[3], entries = op->args[5];
    const bool all = list.kind == HIR_REF_NONE, some = entries.kind != HIR_REF_NONE;
    step->list_only = !some;
    step->list_rate = some ? (uint32_t)hir_rate(hir_ref_type(m, entries).dim[0]) : 1;
    step->list_most = all ? UINT32_MAX : (uint32_t)hir_ref_type(m, list).dim[2];
}

const hcg_form hcg_form_attention_selected = {.emit = emit_attention_selected,
                                              .columns = key_value_heads,
                                              .shared = count_shared,
                                              .list = list_rows};
