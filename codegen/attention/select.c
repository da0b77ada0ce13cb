/* The kernel form select of kernel.sequence: the rows of a cache that score best.
 *
 *     q[T, H, n]  keys[C/r, G, n]  w[T, H]  ->  rows[T, G, K]
 *     score[t, g, s] = sum over the heads h of group g of w[t, h] f(q[t, h] . keys[s, g])
 *
 * Scores of a tile of keys are a product with the queries, heads in lanes (hcg_call_strip): sums of
 * f and weights stay in lanes until a vector of keys has all of its heads, and only then lanes are
 * added up, once for each key instead of once for each head of it. Few heads would leave most lanes
 * empty: their scores are made as in attention (attention_tile.h), row after row of heads, and a
 * pass over the heads leaves one number for each key. Scores go to a top-k selection (topk.h), so
 * that nothing of size T x C exists.
 *
 * One token: columns are ranges of rows of a group (hrt_list_range), which write their scores to
 * frame->shared; the thread that finishes a group's last range selects. Several tokens: a token
 * and group at a time, tile after tile. A token that sees no more than k rows needs no scores.
 *
 * Blocks of rows are chosen by their best rows: the scores of a tile become those of its blocks
 * before they go to the selection. Rows of listed blocks are read block after block.
 */
#include <math.h>
#include <string.h>

#include "codegen/attention/attention_tile.h"
#include "codegen/attention/query_tile.h"
#include "codegen/attention/topk.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"
#include "codegen/emit/stream.h"
#include "codegen/matmul/matrix.h"
#include "codegen/program/contraction.h"
#include "codegen/program/forms.h"

/* The heads of a group, in lanes. */
typedef struct head_panels {
    int64_t n;               /* how many panels; 0: scores are made row after row of heads */
    LLVMValueRef q, weights; /* scratch: [n][entries][16], [n][16] */
    LLVMValueRef wide, sums; /* a tile of keys as f32; [key][lanes] between strips; NULL: neither */
} head_panels;

typedef struct selecting {
    hcg_attention a;                /* q and the keys; no values */
    LLVMValueRef weights;           /* [T][H]; NULL: 1 */
    bool relu, positions, ahead;    /* ahead: rows come from memory, once */
    int64_t k, rate, width, window; /* width: of a list; window 0: none */
    int64_t block;                  /* rows of a block; 0: there are none */
    bool blocks;                    /* blocks are chosen */
    LLVMValueRef listed; /* i32 [T][lists][entries]: rows of these blocks are seen; NULL: all */
    int64_t lists, entries;
    LLVMValueRef block_scores, open; /* scratch, if blocks: of a tile; of the block begun, or NaN */
    hcg_best best;
    hcg_key_tile tile;
    head_panels panels;
    LLVMValueRef scores; /* scratch: of a tile, all heads together */
} selecting;

/* Rows first .. end - 1 that the token at `position` sees. */
typedef struct sight {
    LLVMValueRef position, first, end;
} sight;

static sight sight_of(hcg_emit *e, const selecting *s, LLVMValueRef position) {
    LLVMValueRef end = hcg_add(e, position, hcg_i64(e, 1));
    sight v = {.position = position, .first = hcg_i64(e, 0), .end = end};
    if (s->rate > 1) v.end = LLVMBuildUDiv(e->b, end, hcg_i64(e, s->rate), "");
    if (s->window) v.first = hcg_larger(e, hcg_sub(e, end, hcg_i64(e, s->window)), v.first);
    return v;
}

/* How many there are to select from, rows or blocks; the rows of a list of blocks are at most all. */
static LLVMValueRef offered(hcg_emit *e, const selecting *s, const sight *v) {
    if (s->blocks) return hcg_divide_up(e, v->end, hcg_i64(e, s->block));
    return hcg_sub(e, v->end, v->first);
}

/* Does the selection leave some out? A list leaves out rows itself. */
static LLVMValueRef is_choice(hcg_emit *e, const selecting *s, const sight *v) {
    if (s->listed) return LLVMConstInt(e->i1, 1, false);
    return LLVMBuildICmp(e->b, LLVMIntSGT, offered(e, s, v), hcg_i64(e, s->k), "");
}

/* ---- scores, heads in lanes ------------------------------------------------------------------ */
enum { MOST_LANES = 64 };

/* Do the heads of a group fill three quarters of the lanes of their panels? */
static bool fills_panels(const hcg_attention *a) {
    return 4 * a->per_group >= 3 * hcg_whole_panels(a->per_group);
}

static void panels_begin(hcg_emit *e, selecting *s) {
    const hcg_attention *a = &s->a;
    head_panels *p = &s->panels;
    if (!fills_panels(a)) return;
    const int64_t heads = hcg_whole_panels(a->per_group);
    p->n = heads / HIR_PANEL;
    p->q = hcg_floats(e, heads * a->n);
    p->weights = hcg_floats(e, heads);
    if (a->k.dtype != HIR_F32) p->wide = hcg_floats(e, HCG_TILE_KEYS * a->n + HIR_PANEL);
    if (p->n > hcg_strip_panels(e->level)) p->sums = hcg_floats(e, HCG_LD_SCORES * e->level->lanes);
}

/* Packs the queries and weights of the heads of a token and group; lanes without a head have the
 * weight 0. */
static void take_heads(hcg_emit *e, const selecting *s, LLVMValueRef token, LLVMValueRef group) {
    const hcg_attention *a = &s->a;
    const head_panels *p = &s->panels;
    if (!p->n) return;
    LLVMValueRef head =
        hcg_add(e, hcg_mul_const(e, token, a->heads), hcg_mul_const(e, group, a->per_group));
    LLVMValueRef n = hcg_i64(e, a->n);
    hcg_pack_rows(e, HIR_PANEL, hcg_at(e, e->f32, a->q, hcg_mul_const(e, head, a->n)), n,
                  hcg_i64(e, a->per_group), n, p->q);
    for (int64_t at = 0; at < p->n * HIR_PANEL; at += e->level->lanes) {
        const int64_t left = a->per_group - at, lanes = e->level->lanes;
        LLVMValueRef some = left < lanes ? hcg_i64(e, left > 0 ? left : 0) : NULL, w = NULL;
        if (s->weights)
            w = hcg_load(e, HIR_F32,
                         hcg_at(e, e->f32, s->weights, hcg_add(e, head, hcg_i64(e, at))), some);
        hcg_store(e, hcg_at(e, e->f32, p->weights, hcg_i64(e, at)), w ? w : hcg_splat(e, 1), NULL);
    }
}

/* The panels first .. first + n - 1 of a tile of keys. */
typedef struct strip {
    int64_t first, n;
} strip;

/* w f(x) of a key, of a vector of heads of a strip: lanes beyond the last head are 0, whatever x
 * is.
 */
static LLVMValueRef weigh_vector(hcg_emit *e, const selecting *s, const strip *p, LLVMValueRef key,
                                 int64_t vector, LLVMValueRef sum) {
    const int64_t lanes = e->level->lanes, each = HIR_PANEL / lanes;
    const int64_t at = vector / each * HCG_STRIP_FLOATS + vector % each * lanes;
    const int64_t head = p->first * HIR_PANEL + vector * lanes, left = s->a.per_group - head;
    if (left <= 0) return sum;
    LLVMValueRef row = hcg_at(e, e->f32, s->tile.scores, hcg_mul_const(e, key, HIR_PANEL));
    LLVMValueRef x = hcg_load(e, HIR_F32, hcg_at(e, e->f32, row, hcg_i64(e, at)), NULL);
    if (s->relu) x = hcg_max(e, x, LLVMConstNull(e->vec));
    if (left < lanes) {
        LLVMValueRef is_head = hcg_tail_mask(e, hcg_i64(e, left));
        x = LLVMBuildSelect(e->b, is_head, x, LLVMConstNull(e->vec), "");
    }
    if (!s->weights) return sum ? hcg_fadd(e, sum, x) : x;
    LLVMValueRef w =
        hcg_load(e, HIR_F32, hcg_at(e, e->f32, s->panels.weights, hcg_i64(e, head)), NULL);
    return sum ? hcg_fma(e, w, x, sum) : hcg_fmul(e, w, x);
}

/* Adds the weighted scores of a strip's heads, for as many keys as there are lanes, from `at` on,
 * to the sums of the strips before. The last strip adds up lanes and leaves the keys' scores. */
static void weigh_keys(hcg_emit *e, const selecting *s, const strip *p, LLVMValueRef at,
                       LLVMValueRef to) {
    const int64_t lanes = e->level->lanes, vectors = p->n * (HIR_PANEL / lanes);
    const bool last = p->first + p->n == s->panels.n;
    LLVMValueRef sums[MOST_LANES], kept = NULL;
    if (s->panels.sums) kept = hcg_at(e, e->f32, s->panels.sums, hcg_mul_const(e, at, lanes));
    for (int64_t i = 0; i < lanes; i++) {
        LLVMValueRef place = kept ? hcg_at(e, e->f32, kept, hcg_i64(e, i * lanes)) : NULL;
        sums[i] = p->first ? hcg_load(e, HIR_F32, place, NULL) : NULL;
        for (int64_t v = 0; v < vectors; v++)
            sums[i] = weigh_vector(e, s, p, hcg_add(e, at, hcg_i64(e, i)), v, sums[i]);
        if (!last) hcg_store(e, place, sums[i], NULL);
    }
    if (last) hcg_store(e, hcg_at(e, e->f32, to, at), hcg_sum_each(e, sums, (unsigned)lanes), NULL);
}

static void weigh_strip(hcg_emit *e, const selecting *s, const strip *p, LLVMValueRef to) {
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), s->tile.count, hcg_i64(e, e->level->lanes),
                                "weigh", 0, NULL);
    weigh_keys(e, s, p, l.index, to);
    hcg_loop_end(e, &l, NULL);
}

/* The tile's rows as f32: where they lie, or widened. */
static LLVMValueRef rows_as_f32(hcg_emit *e, const selecting *s) {
    const hcg_attention *a = &s->a;
    if (!s->panels.wide) return s->tile.keys;
    hcg_widen_row(e, a->k.dtype, s->tile.keys, s->panels.wide,
                  hcg_mul_const(e, s->tile.count, a->n));
    return s->panels.wide;
}

/* Computes strips of nearly equally many panels, each over all rows of the tile; the first strip
 * prefetches the tile that follows. */
static void score_by_panels(hcg_emit *e, const selecting *s, LLVMValueRef to) {
    const hcg_attention *a = &s->a;
    const int64_t most = hcg_strip_panels(e->level), n = s->panels.n;
    const int64_t strips = (n + most - 1) / most;
    LLVMValueRef rows = rows_as_f32(e, s), ld = hcg_i64(e, a->n);
    hcg_strip kq = {.x = rows, .ldx = ld, .rows = s->tile.count, .k = ld};
    kq.ldb = hcg_i64(e, a->n * HIR_PANEL), kq.ldc = hcg_i64(e, HCG_STRIP_FLOATS);
    kq.c = s->tile.scores, kq.accumulate = hcg_i64(e, 0);
    for (int64_t i = 0; i < strips; i++) {
        const strip p = {.first = n * i / strips, .n = n * (i + 1) / strips - n * i / strips};
        kq.next = rows;
        if (i == 0)
            kq.next =
                hcg_cache_row(e, a, &a->k, s->tile.group, hcg_add(e, s->tile.first, s->tile.count));
        kq.b = hcg_at(e, e->f32, s->panels.q, hcg_i64(e, p.first * HIR_PANEL * a->n));
        kq.panels = hcg_i64(e, p.n);
        hcg_call_strip(e, &kq);
        weigh_strip(e, s, &p, to);
    }
}

/* ---- scores, head after head ----------------------------------------------------------------- */
/* Adds up a vector of scores over all heads of a group: `at` counts keys of the tile. */
static void add_heads(hcg_emit *e, const selecting *s, LLVMValueRef weights, LLVMValueRef at,
                      LLVMValueRef to) {
    LLVMValueRef sum = LLVMConstNull(e->vec);
    LLVMValueRef heads = hcg_i64(e, s->a.per_group);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), heads, hcg_i64(e, 1), "head", 1, &sum);
    LLVMValueRef row = hcg_at(e, e->f32, s->tile.scores, hcg_mul_const(e, l.index, HCG_LD_SCORES));
    LLVMValueRef x = hcg_load(e, HIR_F32, hcg_at(e, e->f32, row, at), NULL);
    if (s->relu) x = hcg_max(e, x, LLVMConstNull(e->vec));
    if (weights) {
        LLVMValueRef w = hcg_load_scalar(e, HIR_F32, hcg_at(e, e->f32, weights, l.index));
        sum = hcg_fma(e, hcg_splat_value(e, w), x, l.carried[0]);
    } else {
        sum = hcg_fadd(e, l.carried[0], x);
    }
    hcg_loop_end(e, &l, &sum);
    hcg_store(e, hcg_at(e, e->f32, to, at), l.carried[0], NULL);
}

/* Writes the scores of the rows first .. first + count - 1 of the group, count <= HCG_TILE_KEYS,
 * to `to`, which is filled up to a whole vector. */
static void score_tile(hcg_emit *e, selecting *s, LLVMValueRef token, LLVMValueRef group,
                       LLVMValueRef first, LLVMValueRef count, LLVMValueRef to) {
    const hcg_attention *a = &s->a;
    LLVMValueRef head =
        hcg_add(e, hcg_mul_const(e, token, a->heads), hcg_mul_const(e, group, a->per_group));
    hcg_key_tile *t = &s->tile;
    t->q = hcg_at(e, e->f32, a->q, hcg_mul_const(e, head, a->n));
    t->group = group, t->first = first, t->count = count;
    t->keys = hcg_cache_row(e, a, &a->k, group, first);
    const int64_t bytes = HCG_TILE_KEYS * a->n * (int64_t)hir_dtype_bytes(a->k.dtype);
    if (s->ahead) hcg_translate_pages(e, hcg_at_byte(e, t->keys, bytes), hcg_i64(e, bytes));
    if (s->panels.n) {
        score_by_panels(e, s, to);
        return;
    }
    hcg_tile_scores(e, t);
    LLVMValueRef weights = s->weights ? hcg_at(e, e->f32, s->weights, head) : NULL;
    hcg_loop l =
        hcg_loop_begin(e, hcg_i64(e, 0), count, hcg_i64(e, e->level->lanes), "sum", 0, NULL);
    add_heads(e, s, weights, l.index, to);
    hcg_loop_end(e, &l, NULL);
}

/* ---- blocks of rows -------------------------------------------------------------------------- */

/* Scores of the blocks that end among the rows first .. first + count - 1 of a group, in
 * block_scores, from scores of these rows; returns how many there are. The newest row is the last
 * of its block. A NaN is no score, which every other one exceeds. */
static LLVMValueRef fold_blocks(hcg_emit *e, const selecting *s, const sight *v,
                                LLVMValueRef scores, LLVMValueRef first, LLVMValueRef count) {
    LLVMValueRef none = hcg_real_like(e->f32, NAN), zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    LLVMValueRef begun[] = {hcg_load_scalar(e, HIR_F32, s->open), zero};
    hcg_loop l = hcg_loop_begin(e, zero, count, one, "fold", 2, begun);
    LLVMValueRef best = l.carried[0], n = l.carried[1];
    LLVMValueRef x = hcg_load_scalar(e, HIR_F32, hcg_at(e, e->f32, scores, l.index));
    LLVMValueRef more = LLVMBuildFCmp(e->b, LLVMRealOGT, x, best, "");
    LLVMValueRef empty = LLVMBuildFCmp(e->b, LLVMRealUNO, best, best, "");
    best = LLVMBuildSelect(e->b, LLVMBuildOr(e->b, more, empty, ""), x, best, "");
    LLVMValueRef next = hcg_add(e, hcg_add(e, first, l.index), one);
    LLVMValueRef newest = LLVMBuildICmp(e->b, LLVMIntEQ, next, v->end, "newest");
    LLVMValueRef rest = LLVMBuildURem(e->b, next, hcg_i64(e, s->block), "");
    LLVMValueRef ends = LLVMBuildICmp(e->b, LLVMIntEQ, rest, zero, "");
    ends = LLVMBuildOr(e->b, ends, newest, "ends");
    LLVMValueRef score = LLVMBuildSelect(e->b, newest, hcg_real_like(e->f32, INFINITY), best, "");
    LLVMSetAlignment(LLVMBuildStore(e->b, score, hcg_at(e, e->f32, s->block_scores, n)), 4);
    LLVMValueRef then[] = {LLVMBuildSelect(e->b, ends, none, best, ""),
                           hcg_add(e, n, LLVMBuildZExt(e->b, ends, e->i64, ""))};
    hcg_loop_end(e, &l, then);
    LLVMSetAlignment(LLVMBuildStore(e->b, l.carried[0], s->open), 4);
    return l.carried[1];
}

/* Offers rows by their scores to the selection, or the blocks that they end. */
static void offer_rows(hcg_emit *e, const selecting *s, const sight *v, LLVMValueRef scores,
                       LLVMValueRef first, LLVMValueRef count) {
    if (!s->blocks) {
        hcg_best_offer(e, &s->best, scores, first, count);
        return;
    }
    LLVMValueRef n = fold_blocks(e, s, v, scores, first, count);
    LLVMValueRef block = LLVMBuildUDiv(e->b, first, hcg_i64(e, s->block), "");
    hcg_best_offer(e, &s->best, s->block_scores, block, n);
}

/* Runs of rows that a token sees, one after the other, of at most `most` rows: of all rows from ..
 * to - 1, or of the listed blocks among them. */
typedef struct runs {
    hcg_loop blocks, rows;
    LLVMValueRef first, count;
    bool listed;
} runs;

static runs runs_begin(hcg_emit *e, const selecting *s, LLVMValueRef group, LLVMValueRef token,
                       LLVMValueRef from, LLVMValueRef to, int64_t most) {
    runs r = {.listed = s->listed};
    if (r.listed) {
        LLVMValueRef list = hcg_mul_const(e, token, s->lists);
        if (s->lists > 1) list = hcg_add(e, list, group);
        list = hcg_at(e, e->i32, s->listed, hcg_mul_const(e, list, s->entries));
        r.blocks = hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, s->entries), hcg_i64(e, 1), "block",
                                  0, NULL);
        LLVMValueRef number =
            LLVMBuildLoad2(e->b, e->i32, hcg_at(e, e->i32, list, r.blocks.index), "number");
        LLVMSetAlignment(number, 4);
        number = LLVMBuildSExt(e->b, number, e->i64, "");
        LLVMValueRef there = LLVMBuildICmp(e->b, LLVMIntSGE, number, hcg_i64(e, 0), "");
        LLVMValueRef begin = hcg_mul_const(e, number, s->block);
        LLVMValueRef end = hcg_smaller(e, hcg_add(e, begin, hcg_i64(e, s->block)), to);
        from = hcg_larger(e, begin, from);
        to = LLVMBuildSelect(e->b, there, end, from, "");
    }
    r.rows = hcg_loop_begin(e, from, to, hcg_i64(e, most), "run", 0, NULL);
    r.first = r.rows.index;
    r.count = hcg_smaller(e, hcg_sub(e, to, r.rows.index), hcg_i64(e, most));
    return r;
}

static void runs_end(hcg_emit *e, runs *r) {
    hcg_loop_end(e, &r->rows, NULL);
    if (r->listed) hcg_loop_end(e, &r->blocks, NULL);
}

/* ---- lists ----------------------------------------------------------------------------------- */
static void store_entry(hcg_emit *e, LLVMValueRef list, LLVMValueRef at, LLVMValueRef row) {
    LLVMSetAlignment(LLVMBuildStore(e->b, row, hcg_at(e, e->i32, list, at)), 4);
}

/* list[from ..] = from - shift .. below to - shift; returns where that ends. */
static LLVMValueRef count_up(hcg_emit *e, LLVMValueRef list, LLVMValueRef from, LLVMValueRef row,
                             LLVMValueRef end) {
    hcg_loop l = hcg_loop_begin(e, row, end, hcg_i64(e, 1), "next", 0, NULL);
    LLVMValueRef at = hcg_add(e, from, hcg_sub(e, l.index, row));
    store_entry(e, list, at, LLVMBuildTrunc(e->b, l.index, e->i32, ""));
    hcg_loop_end(e, &l, NULL);
    return hcg_add(e, from, hcg_larger(e, hcg_sub(e, end, row), hcg_i64(e, 0)));
}

static void write_list(hcg_emit *e, const selecting *s, const sight *v, LLVMValueRef list,
                       LLVMValueRef n) {
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    hcg_loop l = hcg_loop_begin(e, zero, n, one, "list", 0, NULL);
    LLVMValueRef row = LLVMBuildLoad2(e->b, e->i32, hcg_at(e, e->i32, s->best.rows, l.index), "");
    LLVMSetAlignment(row, 4);
    if (s->positions) {
        row = hcg_mul_const(e, LLVMBuildSExt(e->b, row, e->i64, ""), s->rate);
        count_up(e, list, hcg_mul_const(e, l.index, s->rate), row,
                 hcg_add(e, row, hcg_i64(e, s->rate)));
    } else {
        store_entry(e, list, l.index, row);
    }
    hcg_loop_end(e, &l, NULL);
    if (s->positions)
        n = count_up(e, list, hcg_mul_const(e, n, s->rate), hcg_mul_const(e, v->end, s->rate),
                     hcg_add(e, v->position, one));
    hcg_loop rest = hcg_loop_begin(e, n, hcg_i64(e, s->width), one, "none", 0, NULL);
    store_entry(e, list, rest.index, LLVMConstInt(e->i32, UINT32_MAX, false));
    hcg_loop_end(e, &rest, NULL);
}

static LLVMValueRef list_at(hcg_emit *e, const selecting *s, LLVMValueRef token,
                            LLVMValueRef group) {
    LLVMValueRef number = hcg_add(e, hcg_mul_const(e, token, s->a.groups), group);
    return hcg_at(e, e->i32, s->a.out, hcg_mul_const(e, number, s->width));
}

/* Begins the selection; takes all rows where none is left out. */
static void begin_choice(hcg_emit *e, const selecting *s, const sight *v, LLVMValueRef choose) {
    hcg_best_start(e, &s->best);
    if (s->blocks) LLVMSetAlignment(LLVMBuildStore(e->b, hcg_real_like(e->f32, NAN), s->open), 4);
    if (s->listed) return;
    hcg_loop all = hcg_once_if(e, LLVMBuildNot(e->b, choose, ""), "take_all");
    hcg_best_all(e, &s->best, v->first, offered(e, s, v));
    hcg_loop_end(e, &all, NULL);
}

static void end_choice(hcg_emit *e, const selecting *s, const sight *v, LLVMValueRef token,
                       LLVMValueRef group) {
    write_list(e, s, v, list_at(e, s, token, group), hcg_best_end(e, &s->best));
}

/* ---- one token ------------------------------------------------------------------------------- */
/* Copies no more than `count` of the tile's scores, as another thread may write those after them. */
static void copy_scores(hcg_emit *e, const selecting *s, LLVMValueRef count, LLVMValueRef to) {
    LLVMValueRef lanes = hcg_i64(e, e->level->lanes);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), count, lanes, "copy", 0, NULL);
    LLVMValueRef x = hcg_load(e, HIR_F32, hcg_at(e, e->f32, s->scores, l.index), NULL);
    hcg_store(e, hcg_at(e, e->f32, to, l.index), x, hcg_sub(e, count, l.index));
    hcg_loop_end(e, &l, NULL);
}

/* Writes the scores of rows from .. to - 1 of a group, of those that are seen. */
static void score_range(hcg_emit *e, selecting *s, LLVMValueRef group, LLVMValueRef from,
                        LLVMValueRef to, LLVMValueRef scores) {
    runs r = runs_begin(e, s, group, hcg_i64(e, 0), from, to, HCG_TILE_KEYS);
    LLVMValueRef place = hcg_at(e, e->f32, scores, r.first);
    score_tile(e, s, hcg_i64(e, 0), group, r.first, r.count, s->listed ? s->scores : place);
    if (s->listed) copy_scores(e, s, r.count, place);
    runs_end(e, &r);
}

static void choose_from(hcg_emit *e, const selecting *s, const sight *v, LLVMValueRef group,
                        LLVMValueRef choose, LLVMValueRef scores) {
    begin_choice(e, s, v, choose);
    LLVMValueRef end = LLVMBuildSelect(e->b, choose, v->end, v->first, "");
    runs r = runs_begin(e, s, group, hcg_i64(e, 0), v->first, end, HCG_OFFERED);
    offer_rows(e, s, v, hcg_at(e, e->f32, scores, r.first), r.first, r.count);
    runs_end(e, &r);
    end_choice(e, s, v, hcg_i64(e, 0), group);
}

/* Computes columns c0 .. c1 - 1: column g R + i is range i of group g, where R ranges cover all
 * rows. Scores of a group lie one after the other, those of a range at its row. */
static void emit_decode(hcg_emit *e, selecting *s) {
    LLVMValueRef one = hcg_i64(e, 1), zero = hcg_i64(e, 0);
    sight v = sight_of(e, s, s->a.past);
    LLVMValueRef keys = hcg_list_range(e, v.end);
    LLVMValueRef choose = is_choice(e, s, &v);
    LLVMValueRef ranges = hcg_larger(e, hcg_divide_up(e, v.end, keys), one);
    LLVMValueRef first = LLVMBuildUDiv(e->b, e->c0, ranges, "");
    hcg_loop l = hcg_loop_begin(e, first, hcg_divide_up(e, e->c1, ranges), one, "group", 0, NULL);
    LLVMValueRef column = hcg_mul(e, l.index, ranges);
    LLVMValueRef scores = hcg_at(e, e->f32, hcg_frame_ranges(e), hcg_mul(e, column, keys));
    LLVMValueRef from = hcg_larger(e, hcg_sub(e, e->c0, column), zero);
    LLVMValueRef to = hcg_smaller(e, hcg_sub(e, e->c1, column), ranges);
    hcg_loop some = hcg_once_if(e, choose, "some");
    take_heads(e, s, zero, l.index);
    /* tiles begin at multiples of their size in all shares: a score does not depend on threads */
    score_range(e, s, l.index, hcg_mul(e, from, keys), hcg_smaller(e, hcg_mul(e, to, keys), v.end),
                scores);
    hcg_loop_end(e, &some, NULL);
    const hcg_arrival all = hcg_arrive(e, l.index, ranges, hcg_sub(e, to, from));
    choose_from(e, s, &v, l.index, choose, scores);
    hcg_arrive_end(e, &all);
    hcg_loop_end(e, &l, NULL);
}

/* ---- several tokens -------------------------------------------------------------------------- */
static void emit_row(hcg_emit *e, selecting *s, LLVMValueRef token, LLVMValueRef group) {
    sight v = sight_of(e, s, hcg_add(e, s->a.past, token));
    LLVMValueRef choose = is_choice(e, s, &v);
    begin_choice(e, s, &v, choose);
    LLVMValueRef end = LLVMBuildSelect(e->b, choose, v.end, v.first, "");
    hcg_loop some = hcg_once_if(e, choose, "some");
    take_heads(e, s, token, group);
    hcg_loop_end(e, &some, NULL);
    runs r = runs_begin(e, s, group, token, v.first, end, HCG_TILE_KEYS);
    score_tile(e, s, token, group, r.first, r.count, s->scores);
    offer_rows(e, s, &v, s->scores, r.first, r.count);
    runs_end(e, &r);
    end_choice(e, s, &v, token, group);
}

static void emit_prefill(hcg_emit *e, selecting *s) {
    LLVMValueRef one = hcg_i64(e, 1);
    hcg_loop t = hcg_loop_begin(e, e->r0, e->r1, one, "token", 0, NULL);
    hcg_loop g = hcg_loop_begin(e, e->c0, e->c1, one, "group", 0, NULL);
    emit_row(e, s, t.index, g.index);
    hcg_loop_end(e, &g, NULL);
    hcg_loop_end(e, &t, NULL);
}

/* ---- the form -------------------------------------------------------------------------------- */
static bool emit_select(hcg_emit *e, const hcg_kernel *k) {
    const hir_module *m = e->p->m;
    const hir_op *op = hir_op_at(m, hir_form_op(m, k->op));
    const hir_type q = hir_ref_type(m, op->args[0]), keys = hir_ref_type(m, op->args[1]);
    const size_t errors = e->diags->errors;
    selecting s = {.a = {.heads = q.dim[1], .groups = keys.dim[1], .n = q.dim[2], .scale = 1}};
    s.a.per_group = s.a.heads / s.a.groups;
    s.a.q = hcg_arg(e, k, hir_through_reshapes(m, op->args[0]));
    s.a.k = hcg_cache_of(e, k, op->args[1]);
    if (op->args[2].kind != HIR_REF_NONE)
        s.weights = hcg_arg(e, k, hir_through_reshapes(m, op->args[2]));
    if (op->args[3].kind != HIR_REF_NONE) {
        const hir_type list = hir_ref_type(m, op->args[3]);
        s.listed = hcg_arg(e, k, hir_through_reshapes(m, op->args[3]));
        s.lists = list.dim[1], s.entries = list.dim[2];
    }
    s.a.out = hcg_arg(e, k, hir_value_ref(hir_op_at(m, k->op)->results[0]));
    if (e->diags->errors != errors) return false;
    s.block = hir_attr_int(op, HIR_A_BLOCK, 0);
    s.blocks = strcmp(hir_attr_string(op, HIR_A_OF, "rows"), "blocks") == 0;
    s.relu = strcmp(hir_attr_string(op, HIR_A_ACTIVATION, "none"), "relu") == 0;
    s.positions = strcmp(hir_attr_string(op, HIR_A_OF, "rows"), "positions") == 0;
    s.k = hir_attr_int(op, HIR_A_K, 1), s.rate = hir_rate(keys.dim[0]);
    s.window = hir_attr_int(op, HIR_A_WINDOW, 0);
    s.width = hir_value_at(m, op->results[0])->type.dim[2];
    s.a.cap = hcg_frame_cap(e);
    if (s.rate > 1) s.a.cap = LLVMBuildUDiv(e->b, s.a.cap, hcg_i64(e, s.rate), "");
    s.a.past = LLVMBuildNSWSub(e->b, hcg_frame_c(e), hcg_frame_t(e), "past");
    hcg_at_op(e, hir_form_op(m, k->op));
    s.best = hcg_new_best(e, s.k);
    s.tile = (hcg_key_tile){.a = &s.a, .most = HCG_TILE_KEYS, .heads = hcg_i64(e, s.a.per_group)};
    panels_begin(e, &s);
    s.ahead = k->phase == HIR_DECODE;
    if (s.ahead && !s.panels.n) s.a.one_row = true; /* steps prefetch shares of the next tile */
    if (s.panels.n)
        s.tile.scores = hcg_floats(e, hcg_strip_panels(e->level) * HCG_STRIP_FLOATS);
    else
        s.tile.scores = hcg_floats(e, s.a.per_group * HCG_LD_SCORES);
    s.scores = hcg_scratch(e, HCG_LD_SCORES * 4);
    if (s.blocks) { /* one score more than rows are offered: a block that is not finished */
        s.block_scores = hcg_scratch(e, (HCG_OFFERED + HCG_TILE_KEYS) * 4);
        s.open = hcg_scratch(e, 16);
    }
    if (k->phase == HIR_DECODE)
        emit_decode(e, &s);
    else
        emit_prefill(e, &s);
    return true;
}

static void count_shared(const hir_module *m, hir_id kernel, uint64_t *counters, uint64_t *range) {
    const int64_t groups = hir_arg_type(m, hir_form_op(m, kernel), 1).dim[1];
    *counters = (uint64_t)groups * HCG_COUNTER_BYTES;
    *range = (uint64_t)groups * HRT_KEYS * 4;
}

static int64_t groups_of_keys(const hir_module *m, hir_id kernel) {
    return hir_arg_type(m, hir_form_op(m, kernel), 1).dim[1];
}

/* All complete rows. */
static void list_rows(const hir_module *m, hir_id kernel, hrt_step *step) {
    const int64_t rate = hir_rate(hir_arg_type(m, hir_form_op(m, kernel), 1).dim[0]);
    step->window = 0;
    step->list_only = 1, step->list_rate = (uint32_t)rate, step->list_most = UINT32_MAX;
}

const hcg_form hcg_form_select = {
    .emit = emit_select, .columns = groups_of_keys, .shared = count_shared, .list = list_rows};
