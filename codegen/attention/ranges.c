/* Ranges of the keys of a key/value head, for one token or a few: the partial results of each in
 * frame->shared, and how they are merged.
 *
 * For every range a query head has partial O, M and S (attention.h). Ranges are merged in blocks:
 * the thread that finishes the last range of a block merges the block, and the thread that merges
 * the last block merges the blocks. So most partial results are read by all threads while they are
 * still in a cache, and only the results of a few blocks by one thread. A thread that computes a
 * whole block merges each range as soon as it is computed, so that two ranges' places are enough.
 * Which thread merges differs from call to call; the order of merging is the same for any number of
 * threads, and so is the result.
 */
#include <float.h>

#include "codegen/attention/attention_tile.h"
#include "codegen/emit/arithmetic.h"

enum { BLOCKS = HCG_COUNTERS - 1, LEAST_RANGES = 4 /* ranges of a block */ };

/* ---- query heads ----------------------------------------------------------------------------- */
hcg_partial hcg_partial_of(hcg_emit *e, const hcg_key_tile *t, LLVMValueRef first,
                           LLVMValueRef head) {
    const int64_t ld = hcg_partial_floats(t->a->m);
    LLVMValueRef o = hcg_at(e, e->f32, first, hcg_mul_const(e, head, ld));
    return (hcg_partial){o, hcg_at(e, e->f32, o, hcg_i64(e, ld - HIR_PANEL))};
}

hcg_loop hcg_each_head(hcg_emit *e, const hcg_key_tile *t) {
    return hcg_loop_begin(e, hcg_i64(e, 0), t->heads, hcg_i64(e, 1), "head", 0, NULL);
}

LLVMValueRef hcg_output_width(hcg_emit *e, const hcg_attention *a) {
    const int64_t lanes = e->level->lanes;
    return hcg_i64(e, (a->m + lanes - 1) / lanes * lanes);
}

LLVMValueRef hcg_token_of(hcg_emit *e, const hcg_key_tile *t, LLVMValueRef j) {
    if (!t->small_batch) return hcg_i64(e, 0);
    return LLVMBuildUDiv(e->b, j, hcg_i64(e, t->a->per_group), "token");
}

/* The number of the query head. */
static LLVMValueRef query_head(hcg_emit *e, const hcg_key_tile *t, LLVMValueRef group,
                               LLVMValueRef j) {
    const int64_t per_group = t->a->per_group;
    LLVMValueRef first = hcg_mul_const(e, group, per_group);
    if (!t->small_batch) return hcg_add(e, first, j);
    LLVMValueRef within = hcg_sub(e, j, hcg_mul_const(e, hcg_token_of(e, t, j), per_group));
    return hcg_add(e, first, within);
}

LLVMValueRef hcg_head_number(hcg_emit *e, const hcg_key_tile *t, LLVMValueRef group,
                             LLVMValueRef j) {
    LLVMValueRef head = query_head(e, t, group, j);
    if (!t->small_batch) return head;
    return hcg_add(e, hcg_mul_const(e, hcg_token_of(e, t, j), t->a->heads), head);
}

/* ---- one range ------------------------------------------------------------------------------- */
void hcg_start_range(hcg_emit *e, const hcg_key_tile *t, LLVMValueRef range) {
    const hcg_attention *a = t->a;
    hcg_loop l = hcg_each_head(e, t);
    const hcg_partial p = hcg_partial_of(e, t, t->partial, l.index);
    hcg_softmax_start(e, p.state, p.o, hcg_output_width(e, a));
    if (a->sink) {
        LLVMValueRef m, s, first = LLVMBuildICmp(e->b, LLVMIntEQ, range, hcg_i64(e, 0), "first");
        hcg_softmax_origin(e, a, hcg_token_of(e, t, l.index), query_head(e, t, t->group, l.index),
                           &m, &s);
        m = LLVMBuildSelect(e->b, first, m, LLVMConstReal(e->f32, -FLT_MAX), "");
        s = LLVMBuildSelect(e->b, first, s, LLVMConstReal(e->f32, 0), "");
        hcg_store(e, p.state, m, NULL);
        hcg_store(e, hcg_at(e, e->f32, p.state, hcg_i64(e, 1)), s, NULL);
    }
    hcg_loop_end(e, &l, NULL);
}

LLVMValueRef hcg_range_at(hcg_emit *e, const hcg_key_tile *t, const hcg_ranged_head *h,
                          LLVMValueRef range) {
    LLVMValueRef heads = hcg_mul(e, range, t->heads);
    return hcg_at(e, e->f32, h->partials, hcg_mul_const(e, heads, hcg_partial_floats(t->a->m)));
}

/* ---- merging --------------------------------------------------------------------------------- */
/* Merges the ranges at first, first + step, .., `count` of them, into the range `first`. */
static void merge(hcg_emit *e, const hcg_key_tile *t, const hcg_ranged_head *h, LLVMValueRef first,
                  LLVMValueRef step, LLVMValueRef count) {
    hcg_loop l = hcg_each_head(e, t);
    const hcg_partial all = hcg_partial_of(e, t, hcg_range_at(e, t, h, first), l.index);
    hcg_loop r = hcg_loop_begin(e, hcg_i64(e, 1), count, hcg_i64(e, 1), "range", 0, NULL);
    LLVMValueRef at = hcg_range_at(e, t, h, hcg_add(e, first, hcg_mul(e, r.index, step)));
    const hcg_partial p = hcg_partial_of(e, t, at, l.index);
    hcg_softmax_merge(e, all.state, all.o, p.state, p.o, hcg_output_width(e, t->a));
    hcg_loop_end(e, &r, NULL);
    hcg_loop_end(e, &l, NULL);
}

void hcg_finish_heads(hcg_emit *e, const hcg_key_tile *t, const hcg_ranged_head *h) {
    const hcg_attention *a = t->a;
    hcg_loop l = hcg_each_head(e, t);
    const hcg_partial all = hcg_partial_of(e, t, h->partials, l.index);
    LLVMValueRef number = hcg_head_number(e, t, h->group, l.index);
    LLVMValueRef out = hcg_at(e, e->f32, a->out, hcg_mul_const(e, number, a->m));
    hcg_softmax_end(e, all.state, all.o, a->m, out);
    if (t->words) hcg_words_in_order(e, a, out);
    hcg_loop_end(e, &l, NULL);
}

typedef struct block { /* ranges first .. end - 1, and those of them that the thread computes */
    LLVMValueRef first, end, own, own_end;
    LLVMValueRef whole; /* i1: these are all of them */
} block;

static block block_of(hcg_emit *e, LLVMValueRef number, LLVMValueRef each, LLVMValueRef ranges,
                      LLVMValueRef from, LLVMValueRef to) {
    block b = {.first = hcg_mul(e, number, each)};
    b.end = hcg_smaller(e, hcg_add(e, b.first, each), ranges);
    b.own = hcg_larger(e, from, b.first), b.own_end = hcg_smaller(e, to, b.end);
    b.whole = LLVMBuildAnd(e->b, LLVMBuildICmp(e->b, LLVMIntEQ, b.own, b.first, ""),
                           LLVMBuildICmp(e->b, LLVMIntEQ, b.own_end, b.end, ""), "whole");
    return b;
}

/* Computes the thread's ranges of a block. Those of a whole block are merged at once, in the same
 * order: the second and all later ones in the place of the second, which stays in a cache. */
static void do_ranges(hcg_emit *e, const hcg_key_tile *t, const hcg_ranged_head *h, const block *b,
                      hcg_range *f, void *with) {
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    hcg_loop r = hcg_loop_begin(e, b->own, b->own_end, one, "range", 0, NULL);
    LLVMValueRef place = hcg_smaller(e, r.index, hcg_add(e, b->first, one));
    place = LLVMBuildSelect(e->b, b->whole, place, r.index, "");
    f(e, with, r.index, hcg_range_at(e, t, h, place));
    LLVMValueRef later = LLVMBuildICmp(e->b, LLVMIntSGT, r.index, b->first, "");
    later = LLVMBuildAnd(e->b, b->whole, later, "later");
    hcg_loop any =
        hcg_loop_begin(e, zero, LLVMBuildZExt(e->b, later, e->i64, ""), one, "at_once", 0, NULL);
    merge(e, t, h, b->first, one, hcg_i64(e, 2));
    hcg_loop_end(e, &any, NULL);
    hcg_loop_end(e, &r, NULL);
}

void hcg_each_range(hcg_emit *e, const hcg_key_tile *t, const hcg_ranged_head *h, LLVMValueRef from,
                    LLVMValueRef to, hcg_range *f, void *with) {
    LLVMValueRef one = hcg_i64(e, 1), counters = hcg_mul_const(e, h->group, HCG_COUNTERS);
    LLVMValueRef each = hcg_divide_up(e, h->ranges, hcg_i64(e, BLOCKS));
    each = hcg_larger(e, each, hcg_i64(e, LEAST_RANGES));
    hcg_loop l = hcg_loop_begin(e, LLVMBuildUDiv(e->b, from, each, ""), hcg_divide_up(e, to, each),
                                one, "block", 0, NULL);
    const block b = block_of(e, l.index, each, h->ranges, from, to);
    do_ranges(e, t, h, &b, f, with);
    LLVMValueRef counter = hcg_add(e, hcg_add(e, counters, one), l.index);
    LLVMValueRef all = hcg_sub(e, b.end, b.first);
    const hcg_arrival of_block = hcg_arrive(e, counter, all, hcg_sub(e, b.own_end, b.own));
    merge(e, t, h, b.first, one, LLVMBuildSelect(e->b, b.whole, one, all, ""));
    LLVMValueRef blocks = hcg_divide_up(e, h->ranges, each);
    const hcg_arrival of_head = hcg_arrive(e, counters, blocks, one);
    merge(e, t, h, hcg_i64(e, 0), each, blocks);
    hcg_finish_heads(e, t, h);
    hcg_arrive_end(e, &of_head);
    hcg_arrive_end(e, &of_block);
    hcg_loop_end(e, &l, NULL);
}
