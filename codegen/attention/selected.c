/* The kernel form attention_selected of kernel.sequence: attention over the rows that a list
 * names.
 *
 * Tiles of the sequence of rows that a token sees (selection.h) are read where their rows lie, as in
 * attention of one token whose rows come from the L2 (attention_tile.h), and while a tile is computed
 * the rows of the next tile are prefetched (rows.c). So only rows that are seen are read, and from
 * memory once for all query heads that share them.
 *
 * One token: columns are ranges of rows of the sequence of a key/value head (hrt_list_range).
 * Several tokens: a token and head at a time, since each has rows of its own.
 */
#include "codegen/attention/attention_tile.h"
#include "codegen/attention/selection.h"
#include "codegen/attention/topk.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"
#include "codegen/emit/stream.h"
#include "codegen/program/contraction.h"
#include "codegen/program/forms.h"

typedef struct selected {
    hcg_attention a;           /* set for the token that is being computed */
    hcg_selection rows;        /* likewise */
    LLVMValueRef q, sink, out; /* of token 0 */
    hcg_key_tile tile;
    hcg_row_places places[2]; /* scratch: places of the rows of two tiles that follow each other */
} selected;

/* The first number of list[0 .. n), read in whole vectors, that is no row; INT32_MAX if all are
 * rows. */
static LLVMValueRef first_beyond(hcg_emit *e, LLVMValueRef list, LLVMValueRef rows,
                                 LLVMValueRef n) {
    const unsigned lanes = e->level->lanes;
    LLVMTypeRef type = LLVMVectorType(e->i32, lanes);
    LLVMValueRef limit = hcg_splat_value(e, LLVMBuildTrunc(e->b, rows, e->i32, ""));
    LLVMValueRef none = hcg_int_like(type, INT32_MAX), least = none;
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), n, hcg_i64(e, lanes), "listed_lanes", 1, &least);
    LLVMValueRef id = LLVMBuildLoad2(e->b, type, hcg_at(e, e->i32, list, l.index), "");
    LLVMSetAlignment(id, 4);
    LLVMValueRef at = hcg_splat_value(e, LLVMBuildTrunc(e->b, l.index, e->i32, ""));
    at = LLVMBuildAdd(e->b, at, hcg_lane_numbers(e), "");
    LLVMValueRef is_row = LLVMBuildICmp(e->b, LLVMIntULT, id, limit, ""); /* negative: large */
    at = LLVMBuildSelect(e->b, is_row, none, at, "");
    least = hcg_intrinsic(e, "llvm.smin", &type, 1, (LLVMValueRef[]){l.carried[0], at}, 2);
    hcg_loop_end(e, &l, &least);
    least = hcg_intrinsic(e, "llvm.vector.reduce.smin", &type, 1, &l.carried[0], 1);
    return LLVMBuildZExt(e->b, least, e->i64, "");
}

/* How many entries of a list, i32[length], are numbers of rows, from its start on: at most `rows`. */
static LLVMValueRef count_listed(hcg_emit *e, LLVMValueRef list, int64_t length,
                                 LLVMValueRef rows) {
    LLVMValueRef most = hcg_smaller(e, hcg_i64(e, length), rows);
    LLVMValueRef whole = LLVMBuildAnd(e->b, most, hcg_i64(e, -(int64_t)e->level->lanes), "");
    LLVMValueRef first = hcg_smaller(e, first_beyond(e, list, rows, whole), most);
    hcg_loop l = hcg_loop_begin(e, whole, most, hcg_i64(e, 1), "listed", 1, &first);
    LLVMValueRef id = LLVMBuildLoad2(e->b, e->i32, hcg_at(e, e->i32, list, l.index), "");
    LLVMSetAlignment(id, 4);
    id = LLVMBuildZExt(e->b, id, e->i64, ""); /* negative ones are large */
    LLVMValueRef is_row = LLVMBuildICmp(e->b, LLVMIntSLT, id, rows, "");
    LLVMValueRef n = LLVMBuildSelect(e->b, is_row, most, l.index, "");
    n = hcg_smaller(e, n, l.carried[0]);
    hcg_loop_end(e, &l, &n);
    return l.carried[0];
}

hcg_sight hcg_sight_of(hcg_emit *e, const hcg_attention *a, const hcg_selection *s,
                       LLVMValueRef position) {
    LLVMValueRef zero = hcg_i64(e, 0), rows = hcg_add(e, position, hcg_i64(e, 1));
    hcg_sight v = {.first = zero, .near = zero, .rows = rows};
    if (s->entries.base) {
        v.first = hcg_first_seen(e, a, position);
        v.near = hcg_sub(e, rows, v.first);
        if (s->rate > 1) v.rows = LLVMBuildUDiv(e->b, rows, hcg_i64(e, s->rate), "");
    }
    v.far = s->list ? count_listed(e, s->own_list, s->most, v.rows) : v.rows;
    return v;
}

void hcg_take_list(hcg_emit *e, hcg_selection *s, LLVMValueRef token, LLVMValueRef group) {
    if (!s->list) return;
    LLVMValueRef number = hcg_mul_const(e, token, s->lists);
    if (s->lists > 1) number = hcg_add(e, number, group);
    s->own_list = hcg_at(e, e->i32, s->list, hcg_mul_const(e, number, s->most));
}

LLVMValueRef hcg_selected_row(hcg_emit *e, const hcg_selection *s, LLVMValueRef at) {
    if (!s->list) return at;
    LLVMValueRef id = LLVMBuildLoad2(e->b, e->i32, hcg_at(e, e->i32, s->own_list, at), "row");
    LLVMSetAlignment(id, 4);
    return LLVMBuildZExt(e->b, id, e->i64, "");
}

void hcg_take_selection(hcg_emit *e, const hcg_kernel *k, const hir_op *op, hcg_attention *a,
                        hcg_selection *s) {
    const hir_module *m = e->p->m;
    const hir_type q = hir_ref_type(m, op->args[0]), v = hir_ref_type(m, op->args[2]);
    const hir_ref list = op->args[3], entries = op->args[5];
    a->heads = q.dim[1], a->groups = v.dim[1], a->n = q.dim[2], a->m = v.dim[2];
    a->per_group = a->heads / a->groups, s->lists = s->rate = 1;
    a->scale = hir_attr_float(op, HIR_A_SCALE, 1);
    a->softcap = hir_attr_float(op, HIR_A_SOFTCAP, 0);
    a->window = hir_attr_int(op, HIR_A_WINDOW, 0);
    a->k = hcg_cache_of(e, k, op->args[1]), a->v = hcg_cache_of(e, k, op->args[2]);
    s->same = hir_ref_equal(op->args[1], op->args[2]);
    if (list.kind != HIR_REF_NONE) {
        s->list = hcg_arg(e, k, hir_through_reshapes(m, list));
        s->lists = hir_ref_type(m, list).dim[1], s->most = hir_ref_type(m, list).dim[2];
    }
    hcg_take_sink(e, k, op->args[4], a);
    if (entries.kind == HIR_REF_NONE) return;
    s->entries = hcg_cache_of(e, k, entries);
    s->rate = hir_rate(hir_ref_type(m, entries).dim[0]);
    s->entries_cap = hcg_frame_cap(e);
    if (s->rate > 1) s->entries_cap = LLVMBuildUDiv(e->b, s->entries_cap, hcg_i64(e, s->rate), "");
}

/* ---- where rows lie -------------------------------------------------------------------------- */
/* The row number i of the sequence after the positions. */
static LLVMValueRef far_row(hcg_emit *e, const selected *s, const hcg_sight *v, LLVMValueRef i) {
    LLVMValueRef at = hcg_sub(e, i, v->near);
    if (s->rows.list) /* which is read for positions, too, where it means nothing */
        at = hcg_larger(e, at, hcg_i64(e, 0));
    return hcg_selected_row(e, &s->rows, at);
}

/* The address of row number i of the sequence, in keys or values. */
static LLVMValueRef row_of(hcg_emit *e, const selected *s, const hcg_sight *v, const hcg_cache *c,
                           LLVMValueRef i) {
    const hcg_selection *r = &s->rows;
    LLVMValueRef group = s->tile.group, far = far_row(e, s, v, i);
    if (!r->entries.base) return hcg_row_in(e, c, s->a.cap, group, far);
    LLVMValueRef is_near = LLVMBuildICmp(e->b, LLVMIntSLT, i, v->near, "near");
    LLVMValueRef one = hcg_row_in(e, c, s->a.cap, group, hcg_add(e, v->first, i));
    LLVMValueRef other = hcg_row_in(e, &r->entries, r->entries_cap, group, far);
    return LLVMBuildSelect(e->b, is_near, one, other, "row");
}

/* places[i] = where row first + i is, i < n; rows after `end` - 1 get the place of that one. The
 * first line of each row is prefetched: rows lie in different pages, whose addresses are so
 * translated for all of them at once (as in hcg_translate_pages). */
static void find_places(hcg_emit *e, const selected *s, const hcg_sight *v,
                        const hcg_row_places *to, LLVMValueRef first, LLVMValueRef n,
                        LLVMValueRef end) {
    LLVMValueRef last = hcg_larger(e, hcg_sub(e, end, hcg_i64(e, 1)), hcg_i64(e, 0));
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), n, hcg_i64(e, 1), "place", 0, NULL);
    LLVMValueRef row = hcg_smaller(e, hcg_add(e, first, l.index), last);
    const hcg_cache *const of[] = {&s->a.k, &s->a.v};
    LLVMValueRef const at[] = {to->keys, to->values};
    for (int i = 0; i < (s->rows.same ? 1 : 2); i++) {
        LLVMValueRef place = row_of(e, s, v, of[i], row);
        LLVMValueRef store = LLVMBuildStore(e->b, place, hcg_at(e, e->ptr, at[i], l.index));
        LLVMSetAlignment(store, 8);
        hcg_prefetch_l2(e, place, 0);
    }
    hcg_loop_end(e, &l, NULL);
}

/* The array of places of tile `number`: two arrays are used in turn. */
static hcg_row_places places_of(hcg_emit *e, const selected *s, LLVMValueRef number) {
    LLVMValueRef odd = LLVMBuildTrunc(e->b, number, e->i1, "");
    const hcg_row_places *const p = s->places;
    hcg_row_places r = {.keys = LLVMBuildSelect(e->b, odd, p[1].keys, p[0].keys, "")};
    r.values = s->rows.same ? r.keys : LLVMBuildSelect(e->b, odd, p[1].values, p[0].values, "");
    return r;
}

/* Prefetches the rows of a tile at `first` that no tile before it has prefetched. */
static void ask_first(hcg_emit *e, selected *s, const hcg_sight *v, LLVMValueRef first,
                      LLVMValueRef end) {
    s->tile.ahead = s->places[0];
    LLVMValueRef rows = hcg_smaller(e, hcg_sub(e, end, first), hcg_i64(e, s->tile.most));
    find_places(e, s, v, &s->tile.ahead, first, rows, end);
    hcg_ask_all(e, &s->tile, rows);
}

/* Attends to rows from .. to - 1 of the sequence; `range` 0: these are the first rows. Rows up to
 * `end` are read after them. */
static void emit_range(hcg_emit *e, selected *s, const hcg_sight *v, LLVMValueRef range,
                       LLVMValueRef from, LLVMValueRef to, LLVMValueRef end) {
    hcg_key_tile *t = &s->tile;
    LLVMValueRef most = hcg_i64(e, t->most), one = hcg_i64(e, 1);
    hcg_start_range(e, t, range);
    find_places(e, s, v, &s->places[0], from, hcg_smaller(e, hcg_sub(e, to, from), most), end);
    hcg_loop l = hcg_loop_begin(e, from, to, most, "tile", 0, NULL);
    LLVMValueRef number = LLVMBuildUDiv(e->b, hcg_sub(e, l.index, from), most, "");
    t->first = l.index, t->count = hcg_smaller(e, hcg_sub(e, to, l.index), most);
    t->listed = places_of(e, s, number), t->ahead = places_of(e, s, hcg_add(e, number, one));
    find_places(e, s, v, &t->ahead, hcg_add(e, t->first, t->count), t->count, end);
    hcg_tile_scores(e, t);
    hcg_tile_softmax(e, t);
    hcg_tile_values(e, t);
    hcg_loop_end(e, &l, NULL);
}

/* ---- tokens ---------------------------------------------------------------------------------- */
static void take_head(hcg_emit *e, selected *s, LLVMValueRef token, LLVMValueRef group) {
    hcg_attention *a = &s->a;
    LLVMValueRef heads = hcg_mul_const(e, token, a->heads);
    LLVMValueRef first = hcg_add(e, heads, hcg_mul_const(e, group, a->per_group));
    s->tile.group = group;
    s->tile.q = hcg_at(e, e->f32, s->q, hcg_mul_const(e, first, a->n));
    a->out = hcg_at(e, e->f32, s->out, hcg_mul_const(e, heads, a->m));
    if (s->tile.words) hcg_words_take_queries(e, &s->tile);
    if (s->sink) a->sink = a->sink_by_token ? hcg_at(e, e->f32, s->sink, heads) : s->sink;
}

static void emit_prefill(hcg_emit *e, selected *s) {
    LLVMValueRef one = hcg_i64(e, 1), zero = hcg_i64(e, 0);
    const int64_t floats = s->a.per_group * hcg_partial_floats(s->a.m);
    LLVMValueRef partial = hcg_scratch(e, (uint64_t)floats * 4);
    hcg_loop t = hcg_loop_begin(e, e->r0, e->r1, one, "token", 0, NULL);
    hcg_loop g = hcg_loop_begin(e, e->c0, e->c1, one, "group", 0, NULL);
    take_head(e, s, t.index, g.index);
    hcg_take_list(e, &s->rows, t.index, g.index);
    const hcg_sight v = hcg_sight_of(e, &s->a, &s->rows, hcg_add(e, s->a.past, t.index));
    s->tile.partial = partial;
    LLVMValueRef rows = hcg_add(e, v.near, v.far);
    ask_first(e, s, &v, zero, rows);
    emit_range(e, s, &v, zero, zero, rows, rows);
    const hcg_ranged_head h = {.group = g.index, .ranges = one, .partials = partial};
    hcg_finish_heads(e, &s->tile, &h);
    hcg_loop_end(e, &g, NULL);
    hcg_loop_end(e, &t, NULL);
}

/* How the rows that a token may see are cut into ranges (hrt_step.list_rate); its list may have
 * fewer rows. */
typedef struct cut {
    LLVMValueRef each, ranges;
} cut;

static cut cut_rows(hcg_emit *e, const selected *s, const hcg_sight *v) {
    LLVMValueRef far = v->rows;
    if (s->rows.list) far = hcg_smaller(e, far, hcg_i64(e, s->rows.most));
    LLVMValueRef rows = hcg_add(e, v->near, far), each = hcg_list_range(e, rows);
    return (cut){each, hcg_larger(e, hcg_divide_up(e, rows, each), hcg_i64(e, 1))};
}

typedef struct list_ranges { /* of a head */
    selected *s;
    const hcg_sight *v;
    hcg_ranged_head h;
    LLVMValueRef each, end; /* rows of a range; the number after the last row that the call
                               reads */
} list_ranges;

static void do_range(hcg_emit *e, void *with, LLVMValueRef range, LLVMValueRef partials) {
    const list_ranges *l = with;
    LLVMValueRef start = hcg_mul(e, range, l->each);
    LLVMValueRef stop = hcg_smaller(e, hcg_add(e, start, l->each), l->end);
    l->s->tile.partial = partials;
    emit_range(e, l->s, l->v, range, start, stop, l->end);
}

static void emit_decode(hcg_emit *e, selected *s) {
    LLVMValueRef one = hcg_i64(e, 1), zero = hcg_i64(e, 0);
    hcg_take_list(e, &s->rows, zero, zero);
    hcg_sight v = hcg_sight_of(e, &s->a, &s->rows, s->a.past);
    const cut c = cut_rows(e, s, &v);
    LLVMValueRef ranges = c.ranges, partials = hcg_frame_ranges(e);
    LLVMValueRef first = LLVMBuildUDiv(e->b, e->c0, ranges, "");
    hcg_loop l = hcg_loop_begin(e, first, hcg_divide_up(e, e->c1, ranges), one, "group", 0, NULL);
    LLVMValueRef column = hcg_mul(e, l.index, ranges);
    take_head(e, s, zero, l.index);
    if (s->rows.lists > 1) {
        hcg_take_list(e, &s->rows, zero, l.index);
        v = hcg_sight_of(e, &s->a, &s->rows, s->a.past);
    }
    list_ranges r = {.s = s, .v = &v, .each = c.each};
    r.h = (hcg_ranged_head){.group = l.index, .ranges = ranges, .partials = partials};
    r.h.partials = hcg_range_at(e, &s->tile, &r.h, column);
    LLVMValueRef from = hcg_larger(e, hcg_sub(e, e->c0, column), zero);
    LLVMValueRef to = hcg_smaller(e, hcg_sub(e, e->c1, column), ranges);
    r.end = hcg_smaller(e, hcg_mul(e, to, c.each), hcg_add(e, v.near, v.far));
    ask_first(e, s, &v, hcg_mul(e, from, c.each), r.end);
    hcg_each_range(e, &s->tile, &r.h, from, to, do_range, &r);
    hcg_loop_end(e, &l, NULL);
}

/* ---- the form -------------------------------------------------------------------------------- */
static void make_tile(hcg_emit *e, selected *s) {
    hcg_attention *a = &s->a;
    a->one_row = true; /* rows are read from the L2, even where values are other rows than keys */
    s->tile = (hcg_key_tile){.a = a, .heads = hcg_i64(e, a->per_group)};
    s->tile.most = hcg_rows_of_listed_tile(e, &s->tile);
    s->tile.scores = hcg_scratch(e, (uint64_t)(a->per_group * HCG_LD_SCORES) * 4);
    if (a->v.dtype == a->k.dtype && hcg_words_fit(e, a)) hcg_words_begin(e, &s->tile);
    const uint64_t bytes = (uint64_t)s->tile.most * 8;
    for (int i = 0; i < 2; i++) {
        s->places[i].keys = s->places[i].values = hcg_scratch(e, bytes);
        if (!s->rows.same) s->places[i].values = hcg_scratch(e, bytes);
    }
}

static bool emit_attention_selected(hcg_emit *e, const hcg_kernel *k) {
    const hir_module *m = e->p->m;
    const hir_id id = hir_form_op(m, k->op);
    const hir_op *op = hir_op_at(m, id);
    const size_t errors = e->diags->errors;
    selected s = {.q = hcg_arg(e, k, hir_through_reshapes(m, op->args[0]))};
    hcg_take_selection(e, k, op, &s.a, &s.rows);
    s.sink = s.a.sink;
    s.out = hcg_arg(e, k, hir_value_ref(hir_op_at(m, k->op)->results[0]));
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

/* With entries there may be one and a half times as many ranges as the positions have. */
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
