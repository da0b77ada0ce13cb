/* The form latent of kernel.sequence: causal attention whose key and value are one cached row for
 * all heads, by online softmax (sequence/attention.h has its steps).
 *
 *     q[T, H, r]  q_shared[T, H, m]  rows c[C, 1, r] p[C, 1, m], side by side or in two states
 *
 * The queries of a tile are heads of tokens: query j is head j % H of token j / H. All of them meet
 * a row of the cache once it has come to the CPU, which makes 2 H (2 r + m) operations of it: two
 * matrix products with the softmax step between them. Queries stand in lanes throughout.
 *
 *     S = K Q^T     [keys][16]     rows as they lie; Q scaled and packed, [r + m][16], once
 *     P             softmax step of S, in place
 *     O += C^T P    [r][16]        r columns of the same rows
 *
 * Rows of 16 bits are widened once for both. One token: columns are ranges of HRT_KEYS keys, of
 * which each leaves O, M and S of every head in frame->shared; who does the last of them merges
 * them in their order. Several tokens: tiles of tokens, each over all its keys.
 */
#include "codegen/contract/contraction.h"
#include "codegen/contract/matrix.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/forms.h"
#include "codegen/library/library.h"
#include "codegen/sequence/attention.h"

enum { MOST_PARTS = 2, LEAST_KEYS = 32 };

typedef struct part { /* columns of cached rows, and the queries that meet them */
    LLVMValueRef q;   /* [T][H][n] */
    unsigned state;   /* number of latent.state */
    int64_t start, n;
    int64_t line; /* of a packed query: its first */
} part;

typedef struct latent {
    hcg_cache state[MOST_PARTS];
    part part[MOST_PARTS]; /* the latent first */
    unsigned states, parts;
    int64_t heads, r, lines; /* lines: r + m */
    int64_t keys;            /* of a tile */
    LLVMValueRef out;        /* [T][H][r] */
    double scale;
    LLVMValueRef past;
} latent;

typedef struct tile {
    const latent *a;
    LLVMValueRef rows_q, q;        /* scratch: queries of a part as rows; packed */
    LLVMValueRef wide[MOST_PARTS]; /* rows of 16 bits as f32 */
    LLVMValueRef scores;           /* of a strip of panels */
    LLVMValueRef states, o;        /* of all panels */
    LLVMValueRef rows_o;           /* of one */
    LLVMValueRef row, rows;        /* tokens */
    LLVMValueRef queries, panels;  /* the last panel filled up with repetitions */
    LLVMValueRef first, count;     /* keys of the present tile of keys */
    LLVMValueRef later;            /* 0: the first tile of keys */
    LLVMValueRef keys[MOST_PARTS], next[MOST_PARTS]; /* their rows, and those behind them */
} tile;

/* ---- the op -------------------------------------------------------------------------------- */
static bool refuse(hcg_emit *e, hir_id op, const char *what) {
    hd_err(e->diags, HD_E_INTERNAL, hir_op_at(e->p->m, op)->loc,
           "kernel.sequence cannot be emitted: %s", what);
    return false;
}

static hcg_cache cache_of(hcg_emit *e, const hcg_kernel *k, hir_ref r) {
    const hir_type t = hir_ref_type(e->p->m, r);
    return (hcg_cache){.base = hcg_arg(e, k, r), .dtype = t.dtype, .width = t.dim[2]};
}

/* Keys of a tile: as many as fill a quarter of the L2 as f32, so that the products after the
 * first find them there. */
static int64_t keys_of_tile(const hcg_emit *e, const latent *a) {
    const int64_t l2 = (int64_t)e->level->machine.l2;
    int64_t keys = HCG_KEYS;
    while (keys > LEAST_KEYS && keys * a->lines * 4 * 4 > l2)
        keys /= 2;
    return keys;
}

static bool find_parts(hcg_emit *e, const hcg_kernel *k, hir_id id, latent *a) {
    const hir_module *m = e->p->m;
    const hir_op *op = hir_op_at(m, id);
    const hir_type q = hir_ref_type(m, op->args[0]), rows = hir_ref_type(m, op->args[1]);
    const int64_t start = hir_attr_int(op, HIR_A_START, 0);
    const bool own = op->args[3].kind != HIR_REF_NONE, shared = op->args[2].kind != HIR_REF_NONE;
    const size_t errors = e->diags->errors;
    a->heads = q.dim[1], a->r = a->lines = q.dim[2];
    a->states = own ? 2 : 1, a->parts = shared ? 2 : 1;
    a->state[0] = cache_of(e, k, op->args[1]);
    if (own) a->state[1] = cache_of(e, k, op->args[3]);
    a->part[0] = (part){.q = hcg_arg(e, k, hcg_through_reshapes(m, op->args[0]))};
    a->part[0].start = start, a->part[0].n = a->r;
    if (shared) {
        part *p = &a->part[1];
        *p = (part){.state = own, .line = a->r, .start = own || start ? 0 : a->r};
        p->n = own ? a->state[1].width : rows.dim[2] - a->r;
        p->q = hcg_arg(e, k, hcg_through_reshapes(m, op->args[2]));
        a->lines += p->n;
    }
    a->scale = hir_attr_float(op, HIR_A_SCALE, 1);
    a->out = hcg_arg(e, k, hir_value_ref(hir_op_at(m, k->op)->results[0]));
    a->keys = keys_of_tile(e, a);
    return e->diags->errors == errors;
}

/* ---- small facts --------------------------------------------------------------------------- */
static LLVMValueRef at_most(hcg_emit *e, LLVMValueRef n, int64_t most) {
    return hcg_smaller(e, n, hcg_i64(e, most));
}

static LLVMValueRef over(hcg_emit *e, LLVMValueRef x, int64_t d) {
    return LLVMBuildUDiv(e->b, x, hcg_i64(e, d), "");
}

static LLVMValueRef floats(hcg_emit *e, int64_t n) {
    return hcg_scratch(e, (uint64_t)n * 4);
}

static LLVMValueRef row_of(hcg_emit *e, const hcg_cache *c, LLVMValueRef at) {
    return hcg_at(e, hcg_element(e, c->dtype), c->base, hcg_mul_const(e, at, c->width));
}

static int64_t whole_panels(int64_t n) {
    return (n + HIR_PANEL - 1) / HIR_PANEL * HIR_PANEL;
}

static tile make_tile(hcg_emit *e, const latent *a, int64_t tokens) {
    const int64_t queries = whole_panels(tokens * a->heads);
    int64_t widest = a->r;
    if (a->parts > 1 && a->part[1].n > widest) widest = a->part[1].n;
    tile t = {.a = a};
    t.rows_q = floats(e, queries * widest);
    t.q = floats(e, queries * a->lines);
    for (unsigned i = 0; i < a->states; i++)
        if (a->state[i].dtype != HIR_F32) t.wide[i] = floats(e, a->keys * a->state[i].width);
    t.scores = floats(e, hcg_strip_panels(e->level) * HCG_STRIP_FLOATS);
    t.states = floats(e, queries * 2);
    t.o = floats(e, queries * a->r);
    t.rows_o = floats(e, HIR_PANEL * a->r);
    return t;
}

/* ---- queries ------------------------------------------------------------------------------- */
/* The lines of a part, of all panels: packed apart from the others, and then put where the lines of
 * a panel follow each other. With one part they are there already. */
static void take_part(hcg_emit *e, const tile *t, const part *p) {
    const latent *a = t->a;
    const int64_t row = a->heads * p->n;
    LLVMValueRef n = hcg_i64(e, p->n);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), t->rows, hcg_i64(e, 1), "query_row", 0, NULL);
    LLVMValueRef from = hcg_mul_const(e, hcg_add(e, t->row, l.index), row);
    hcg_scale_row(e, hcg_at(e, e->f32, p->q, from),
                  hcg_at(e, e->f32, t->rows_q, hcg_mul_const(e, l.index, row)), row,
                  hcg_splat(e, a->scale));
    hcg_loop_end(e, &l, NULL);
    hcg_loop each =
        hcg_loop_begin(e, hcg_i64(e, 0), t->panels, hcg_i64(e, 1), "query_panel", 0, NULL);
    LLVMValueRef query = hcg_mul_const(e, each.index, HIR_PANEL);
    LLVMValueRef rows = hcg_at(e, e->f32, t->rows_q, hcg_mul_const(e, query, p->n));
    LLVMValueRef to =
        hcg_add(e, hcg_mul_const(e, query, a->lines), hcg_i64(e, p->line * HIR_PANEL));
    hcg_pack_rows(e, HIR_PANEL, rows, n, at_most(e, hcg_sub(e, t->queries, query), HIR_PANEL), n,
                  hcg_at(e, e->f32, t->q, to));
    hcg_loop_end(e, &each, NULL);
}

static hcg_softmax_strip softmax_of(hcg_emit *e, const tile *t, LLVMValueRef panel,
                                    LLVMValueRef n) {
    hcg_softmax_strip s = {.panels = n, .scores = t->scores, .per_group = t->a->heads};
    s.states = hcg_at(e, e->f32, t->states, hcg_mul_const(e, panel, 2 * HIR_PANEL));
    s.o = hcg_at(e, e->f32, t->o, hcg_mul_const(e, panel, t->a->r * HIR_PANEL));
    s.lines = hcg_i64(e, t->a->r);
    return s;
}

/* Tokens row .. row + rows - 1. */
static void take_queries(hcg_emit *e, tile *t, LLVMValueRef row, LLVMValueRef rows) {
    t->row = row, t->rows = rows;
    t->queries = hcg_mul_const(e, rows, t->a->heads);
    t->panels = over(e, hcg_add(e, t->queries, hcg_i64(e, HIR_PANEL - 1)), HIR_PANEL);
    for (unsigned i = 0; i < t->a->parts; i++)
        take_part(e, t, &t->a->part[i]);
}

/* ---- keys ---------------------------------------------------------------------------------- */
/* to[0 .. n) = from[0 .. n) as f32; both may be read and written up to whole vectors. */
static void widen(hcg_emit *e, hir_dtype dtype, LLVMValueRef from, LLVMValueRef to,
                  LLVMValueRef n) {
    LLVMTypeRef elem = hcg_element(e, dtype);
    LLVMValueRef lanes = hcg_i64(e, e->level->lanes);
    LLVMValueRef end = hcg_add(e, n, hcg_i64(e, 1 - (int64_t)e->level->lanes));
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), end, lanes, "widen", 0, NULL);
    LLVMValueRef x = hcg_load(e, dtype, hcg_at(e, elem, from, l.index), NULL);
    hcg_store(e, hcg_at(e, e->f32, to, l.index), x, NULL);
    hcg_loop_end(e, &l, NULL);
    hcg_loop rest = hcg_loop_begin(e, l.index, n, hcg_i64(e, 1), "rest", 0, NULL);
    x = hcg_load_scalar(e, dtype, hcg_at(e, elem, from, rest.index));
    hcg_store(e, hcg_at(e, e->f32, to, rest.index), x, NULL);
    hcg_loop_end(e, &rest, NULL);
}

static void find_keys(hcg_emit *e, tile *t) {
    for (unsigned i = 0; i < t->a->states; i++) {
        const hcg_cache *c = &t->a->state[i];
        LLVMValueRef rows = row_of(e, c, t->first);
        t->next[i] = row_of(e, c, hcg_add(e, t->first, hcg_i64(e, t->a->keys)));
        t->keys[i] = rows;
        if (c->dtype == HIR_F32) continue;
        widen(e, c->dtype, rows, t->wide[i], hcg_mul_const(e, t->count, c->width));
        t->keys[i] = t->wide[i];
    }
}

/* Keys of this tile of keys that the token of a query sees. */
static LLVMValueRef seen_by(hcg_emit *e, const tile *t, LLVMValueRef query) {
    LLVMValueRef own = hcg_sub(e, hcg_add(e, t->a->past, t->row), t->first);
    query = hcg_smaller(e, query, hcg_sub(e, t->queries, hcg_i64(e, 1)));
    LLVMValueRef n = hcg_add(e, hcg_add(e, own, over(e, query, t->a->heads)), hcg_i64(e, 1));
    return hcg_larger(e, hcg_smaller(e, n, t->count), hcg_i64(e, 0));
}

/* One product does both parts where they follow each other in the rows as in the queries. */
static bool adjoin(const latent *a) {
    return a->parts == 2 && a->states == 1 && a->part[0].start == 0;
}

/* S: the sum of the products of all parts. */
static void emit_scores(hcg_emit *e, const tile *t, LLVMValueRef panel, LLVMValueRef panels,
                        LLVMValueRef count) {
    const latent *a = t->a;
    const int64_t ldb = a->lines * HIR_PANEL;
    for (unsigned i = 0; i < (adjoin(a) ? 1 : a->parts); i++) {
        const part *p = &a->part[i];
        hcg_strip s = {.rows = count, .panels = panels};
        s.k = hcg_i64(e, adjoin(a) ? a->lines : p->n);
        s.ldx = hcg_i64(e, a->state[p->state].width);
        s.x = hcg_at(e, e->f32, t->keys[p->state], hcg_i64(e, p->start));
        s.next = t->next[p->state];
        LLVMValueRef lines =
            hcg_add(e, hcg_mul_const(e, panel, ldb), hcg_i64(e, p->line * HIR_PANEL));
        s.b = hcg_at(e, e->f32, t->q, lines), s.ldb = hcg_i64(e, ldb);
        s.c = t->scores, s.ldc = hcg_i64(e, HCG_STRIP_FLOATS);
        s.accumulate = hcg_i64(e, i);
        hcg_call_strip(e, &s);
    }
}

/* The panels from `panel` on, `panels` of them; count: keys that the last of them sees, not 0. */
static void emit_strip(hcg_emit *e, const tile *t, LLVMValueRef panel, LLVMValueRef panels,
                       LLVMValueRef count) {
    const latent *a = t->a;
    const hcg_cache *c = &a->state[0];
    LLVMValueRef query = hcg_mul_const(e, panel, HIR_PANEL);
    hcg_softmax_strip softmax = softmax_of(e, t, panel, panels);
    softmax.count = count, softmax.hidden = seen_by(e, t, query), softmax.later = t->later;
    /* key k is that of token past + row + q / H if it is not before (k - own) H */
    LLVMValueRef own = hcg_sub(e, hcg_add(e, a->past, t->row), t->first);
    softmax.own = hcg_add(e, hcg_mul_const(e, own, a->heads), query);
    emit_scores(e, t, panel, panels, count);
    hcg_softmax_strip_tile(e, &softmax);
    hcg_strip o = {.across = a->r, .stride = c->width, .ldx = hcg_i64(e, c->width), .k = count};
    o.x = hcg_at(e, e->f32, t->keys[0], hcg_i64(e, a->part[0].start));
    o.rows = hcg_i64(e, a->r), o.panels = panels, o.next = t->next[0];
    o.b = t->scores, o.ldb = hcg_i64(e, HCG_STRIP_FLOATS);
    o.c = softmax.o, o.ldc = hcg_i64(e, a->r * HIR_PANEL), o.accumulate = t->later;
    hcg_call_strip(e, &o);
}

/* A loop that runs once or, if x is 0, never. */
static hcg_loop once_if(hcg_emit *e, LLVMValueRef x, const char *name) {
    LLVMValueRef times = LLVMBuildICmp(e->b, LLVMIntNE, x, hcg_i64(e, 0), "");
    times = LLVMBuildZExt(e->b, times, e->i64, "");
    return hcg_loop_begin(e, hcg_i64(e, 0), times, hcg_i64(e, 1), name, 0, NULL);
}

/* Keys from .. to - 1, for all queries that see some of them. */
static void emit_keys(hcg_emit *e, tile *t, LLVMValueRef from, LLVMValueRef to) {
    const int64_t most = hcg_strip_panels(e->level);
    hcg_softmax_strip all = softmax_of(e, t, hcg_i64(e, 0), t->panels);
    hcg_softmax_strip_start(e, &all);
    hcg_loop l = hcg_loop_begin(e, from, to, hcg_i64(e, t->a->keys), "keys", 0, NULL);
    t->first = l.index, t->count = at_most(e, hcg_sub(e, to, l.index), t->a->keys);
    t->later = LLVMBuildICmp(e->b, LLVMIntSGT, l.index, from, "");
    t->later = LLVMBuildZExt(e->b, t->later, e->i64, "");
    find_keys(e, t);
    hcg_loop s = hcg_loop_begin(e, hcg_i64(e, 0), t->panels, hcg_i64(e, most), "strip", 0, NULL);
    LLVMValueRef n = at_most(e, hcg_sub(e, t->panels, s.index), most);
    LLVMValueRef last = hcg_mul_const(e, hcg_add(e, s.index, n), HIR_PANEL);
    LLVMValueRef count = seen_by(e, t, hcg_sub(e, last, hcg_i64(e, 1)));
    hcg_loop some = once_if(e, count, "some");
    emit_strip(e, t, s.index, n, count);
    hcg_loop_end(e, &some, NULL);
    hcg_loop_end(e, &s, NULL);
    hcg_loop_end(e, &l, NULL);
}

/* ---- results ------------------------------------------------------------------------------- */
/* What a range leaves of a head: O, then M and S in a line of their own. */
static LLVMValueRef partial_at(hcg_emit *e, const latent *a, LLVMValueRef first,
                               LLVMValueRef head) {
    return hcg_at(e, e->f32, first, hcg_mul_const(e, head, hcg_partial_floats(a->r)));
}

static LLVMValueRef state_of(hcg_emit *e, const latent *a, LLVMValueRef partial) {
    return hcg_at(e, e->f32, partial, hcg_i64(e, hcg_partial_floats(a->r) - HIR_PANEL));
}

static void copy_number(hcg_emit *e, LLVMValueRef from, LLVMValueRef to) {
    hcg_store(e, to, hcg_load_scalar(e, HIR_F32, from), NULL);
}

/* The queries of all panels: to `to` row after row, or with their states as partials. */
static void leave(hcg_emit *e, const tile *t, LLVMValueRef to, bool partial) {
    const latent *a = t->a;
    hcg_loop p = hcg_loop_begin(e, hcg_i64(e, 0), t->panels, hcg_i64(e, 1), "leave", 0, NULL);
    LLVMValueRef query = hcg_mul_const(e, p.index, HIR_PANEL);
    LLVMValueRef o = hcg_at(e, e->f32, t->o, hcg_mul_const(e, query, a->r));
    LLVMValueRef state = hcg_at(e, e->f32, t->states, hcg_mul_const(e, query, 2));
    hcg_unpack_panel(e, o, hcg_i64(e, a->r), t->rows_o);
    LLVMValueRef n = at_most(e, hcg_sub(e, t->queries, query), HIR_PANEL);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), n, hcg_i64(e, 1), "query", 0, NULL);
    LLVMValueRef number = hcg_add(e, query, l.index);
    LLVMValueRef from = hcg_at(e, e->f32, t->rows_o, hcg_mul_const(e, l.index, a->r));
    LLVMValueRef row = partial ? partial_at(e, a, to, number)
                               : hcg_at(e, e->f32, to, hcg_mul_const(e, number, a->r));
    hcg_scale_row(e, from, row, a->r, hcg_splat(e, 1));
    if (partial) {
        LLVMValueRef at = state_of(e, a, row), m = hcg_at(e, e->f32, state, l.index);
        copy_number(e, m, at);
        copy_number(e, hcg_at(e, e->f32, m, hcg_i64(e, HIR_PANEL)),
                    hcg_at(e, e->f32, at, hcg_i64(e, 1)));
    }
    hcg_loop_end(e, &l, NULL);
    hcg_loop_end(e, &p, NULL);
}

/* ---- one token ----------------------------------------------------------------------------- */
static LLVMValueRef range_at(hcg_emit *e, const latent *a, LLVMValueRef range) {
    const int64_t each = a->heads * hcg_partial_floats(a->r);
    return hcg_at(e, e->f32, hcg_frame_ranges(e), hcg_mul_const(e, range, each));
}

static void merge_ranges(hcg_emit *e, const latent *a, LLVMValueRef ranges) {
    const int64_t lanes = e->level->lanes;
    LLVMValueRef width = hcg_i64(e, (a->r + lanes - 1) / lanes * lanes), one = hcg_i64(e, 1);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, a->heads), one, "head", 0, NULL);
    LLVMValueRef all = partial_at(e, a, range_at(e, a, hcg_i64(e, 0)), l.index);
    hcg_loop r = hcg_loop_begin(e, one, ranges, one, "range", 0, NULL);
    LLVMValueRef other = partial_at(e, a, range_at(e, a, r.index), l.index);
    hcg_softmax_merge(e, state_of(e, a, all), all, state_of(e, a, other), other, width);
    hcg_loop_end(e, &r, NULL);
    hcg_softmax_end(e, state_of(e, a, all), all, a->r,
                    hcg_at(e, e->f32, a->out, hcg_mul_const(e, l.index, a->r)));
    hcg_loop_end(e, &l, NULL);
}

/* Counts ranges that are done. Who finds them complete merges them: all that was written before the
 * others counted is visible then. */
static void arrive(hcg_emit *e, const latent *a, LLVMValueRef done, LLVMValueRef ranges) {
    LLVMValueRef counter = hcg_frame_shared(e);
    LLVMValueRef before = LLVMBuildAtomicRMW(e->b, LLVMAtomicRMWBinOpAdd, counter, done,
                                             LLVMAtomicOrderingAcquireRelease, false);
    LLVMBasicBlockRef last = LLVMAppendBasicBlockInContext(e->cx, e->fn, "last");
    LLVMBasicBlockRef after = LLVMAppendBasicBlockInContext(e->cx, e->fn, "arrived");
    LLVMValueRef complete =
        LLVMBuildICmp(e->b, LLVMIntEQ, hcg_add(e, before, done), ranges, "complete");
    LLVMBuildCondBr(e->b, complete, last, after);
    LLVMPositionBuilderAtEnd(e->b, last);
    LLVMBuildStore(e->b, hcg_i64(e, 0), counter);
    merge_ranges(e, a, ranges);
    LLVMBuildBr(e->b, after);
    LLVMPositionBuilderAtEnd(e->b, after);
}

static void emit_decode(hcg_emit *e, const latent *a) {
    LLVMValueRef keys = hcg_i64(e, HRT_KEYS), one = hcg_i64(e, 1);
    tile t = make_tile(e, a, 1);
    take_queries(e, &t, hcg_i64(e, 0), one);
    hcg_loop l = hcg_loop_begin(e, e->c0, e->c1, one, "range", 0, NULL);
    LLVMValueRef from = hcg_mul(e, l.index, keys);
    emit_keys(e, &t, from, hcg_smaller(e, hcg_add(e, from, keys), hcg_frame_c(e)));
    leave(e, &t, range_at(e, a, l.index), true);
    hcg_loop_end(e, &l, NULL);
    arrive(e, a, hcg_sub(e, e->c1, e->c0), hcg_divide_up(e, hcg_frame_c(e), keys));
}

/* ---- several tokens ------------------------------------------------------------------------ */
static void emit_prefill(hcg_emit *e, const latent *a) {
    int64_t tokens = HIR_QUERY_TILE / a->heads;
    if (tokens < 1) tokens = 1; /* more heads */
    tile t = make_tile(e, a, tokens);
    hcg_loop l = hcg_loop_begin(e, e->r0, e->r1, hcg_i64(e, tokens), "rows", 0, NULL);
    take_queries(e, &t, l.index, at_most(e, hcg_sub(e, e->r1, l.index), tokens));
    LLVMValueRef seen = hcg_add(e, hcg_add(e, a->past, l.index), t.rows);
    emit_keys(e, &t, hcg_i64(e, 0), seen);
    hcg_softmax_strip all = softmax_of(e, &t, hcg_i64(e, 0), t.panels);
    hcg_softmax_strip_end(e, &all);
    leave(e, &t, hcg_at(e, e->f32, a->out, hcg_mul_const(e, l.index, a->heads * a->r)), false);
    hcg_loop_end(e, &l, NULL);
}

/* ---- the form ------------------------------------------------------------------------------ */
static bool emit_latent(hcg_emit *e, const hcg_kernel *k) {
    const hir_id id = hir_form_op(e->p->m, k->op);
    if (id == HIR_NONE) return refuse(e, k->op, "it has no latent attention");
    latent a = {0};
    if (!find_parts(e, k, id, &a)) return false;
    a.past = LLVMBuildNSWSub(e->b, hcg_frame_c(e), hcg_frame_t(e), "past");
    hcg_at_op(e, id);
    if (k->phase == HIR_DECODE)
        emit_decode(e, &a);
    else
        emit_prefill(e, &a);
    return true;
}

static void count_shared(const hir_module *m, hir_id kernel, uint64_t *counters, uint64_t *range) {
    const hir_id id = hir_form_op(m, kernel);
    if (id == HIR_NONE) return;
    const hir_type q = hir_arg_type(m, id, 0);
    *counters = HCG_COUNTER_BYTES;
    *range = (uint64_t)q.dim[1] * (uint64_t)hcg_partial_floats(q.dim[2]) * 4;
}

const hcg_form hcg_form_latent = {.emit = emit_latent, .shared = count_shared};
