/* Attention whose scores are added to those of earlier layers (the form carried): the tiles of scores
 * that attention makes are added to what the state holds of them, which then holds the sums.
 *
 * The layers of a call are all done by functions of one phase, so each phase lays the state out as
 * its tiles lie in scratch, and sums go by whole vectors:
 *
 *     one token, small batches   [T][H][cap]              a row of keys for each query
 *     more tokens                [panel][G][cap][w]       w queries for each key, 8 or 16
 *
 * A panel is w queries of a key/value head, counted from the first token of the call on, H/G of
 * each token. Tiles of queries begin with a panel (hir_carried_tokens); but for kernels of the last
 * rows alone, whose few queries are looked up one by one. Positions that a query does not see may
 * hold anything.
 */
#include "codegen/attention/attention.h"
#include "codegen/attention/query_tile.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"

typedef struct sums { /* scores in scratch, what is carried of them, and how far apart they are */
    LLVMValueRef scores, carried;
    int64_t scores_apart, carried_apart;
    double factor; /* of the sums where the scores were */
} sums;

/* The sum of score number `at` and the following ones, `lanes` of them, or one, goes to the state, and
 * its multiple to where the score was. */
static void carry(hcg_emit *e, const hcg_attention *a, const sums *s, LLVMValueRef at,
                  bool vector) {
    LLVMValueRef score = hcg_at(e, e->f32, s->scores, hcg_mul_const(e, at, s->scores_apart));
    LLVMValueRef place = hcg_at(e, e->f32, s->carried, hcg_mul_const(e, at, s->carried_apart));
    LLVMValueRef c =
        vector ? hcg_load(e, HIR_F32, score, NULL) : hcg_load_scalar(e, HIR_F32, score);
    if (!a->begins)
        c = hcg_fadd(
            e, c, vector ? hcg_load(e, HIR_F32, place, NULL) : hcg_load_scalar(e, HIR_F32, place));
    hcg_store(e, place, c, NULL);
    if (s->factor == 1 && a->begins) return;
    LLVMValueRef factor = vector ? hcg_splat(e, s->factor) : LLVMConstReal(e->f32, s->factor);
    hcg_store(e, score, s->factor == 1 ? c : hcg_fmul(e, c, factor), NULL);
}

/* All n scores of a row without gaps: whole vectors, then the rest one by one. */
static void carry_all(hcg_emit *e, const hcg_attention *a, const sums *s, LLVMValueRef n) {
    const int64_t lanes = e->level->lanes;
    LLVMValueRef end = hcg_add(e, n, hcg_i64(e, 1 - lanes));
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), end, hcg_i64(e, lanes), "carried", 0, NULL);
    carry(e, a, s, l.index, true);
    hcg_loop_end(e, &l, NULL);
    hcg_loop rest = hcg_loop_begin(e, l.index, n, hcg_i64(e, 1), "rest", 0, NULL);
    carry(e, a, s, rest.index, false);
    hcg_loop_end(e, &rest, NULL);
}

void hcg_carry_row(hcg_emit *e, const hcg_attention *a, const hcg_query *q) {
    if (!a->carried) return;
    LLVMValueRef at = hcg_add(e, hcg_mul(e, q->number, a->cap), q->first);
    const sums s = {q->scores, hcg_at(e, e->f32, a->carried, at), 1, 1, a->factor};
    carry_all(e, a, &s, q->count);
}

/* Key `first` of a panel of the tile's key/value head; panels count from token 0 on. */
static LLVMValueRef panel_at(hcg_emit *e, const hcg_query_tile *t, LLVMValueRef panel,
                             LLVMValueRef first) {
    const hcg_attention *a = t->a;
    LLVMValueRef row = hcg_add(e, hcg_mul_const(e, panel, a->groups), t->group);
    row = hcg_add(e, hcg_mul(e, row, a->cap), first);
    return hcg_at(e, e->f32, a->carried, hcg_mul_const(e, row, t->width));
}

static LLVMValueRef scores_of(hcg_emit *e, const hcg_query_tile *t, LLVMValueRef panel) {
    return hcg_at(e, e->f32, t->scores, hcg_mul_const(e, panel, HCG_LD_SCORES * t->width));
}

static LLVMValueRef panels_before(hcg_emit *e, const hcg_query_tile *t, LLVMValueRef query) {
    return LLVMBuildUDiv(e->b, query, hcg_i64(e, t->width), "");
}

/* The tile begins with panel number `before` of its head. */
static void carry_whole_panels(hcg_emit *e, const hcg_query_tile *t, const hcg_scored_panels *s,
                               LLVMValueRef before) {
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), s->n, hcg_i64(e, 1), "panel", 0, NULL);
    LLVMValueRef panel = hcg_add(e, hcg_add(e, before, s->panel), l.index);
    const sums x = {scores_of(e, t, l.index), panel_at(e, t, panel, s->first), 1, 1,
                    t->a->factor * HCG_LOG2_E};
    carry_all(e, t->a, &x, hcg_mul_const(e, s->count, t->width));
    hcg_loop_end(e, &l, NULL);
}

/* The tile begins with query number `begin` of its head, within a panel. */
static void carry_each_query(hcg_emit *e, const hcg_query_tile *t, const hcg_scored_panels *s,
                             LLVMValueRef begin) {
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), panel = hcg_i64(e, t->width);
    LLVMValueRef n =
        hcg_smaller(e, hcg_mul_const(e, s->n, t->width), hcg_sub(e, t->queries, s->query));
    hcg_loop q = hcg_loop_begin(e, zero, n, one, "query", 0, NULL);
    LLVMValueRef own = hcg_add(e, hcg_add(e, begin, s->query), q.index);
    LLVMValueRef lane = LLVMBuildURem(e->b, own, panel, "");
    LLVMValueRef from = LLVMBuildURem(e->b, q.index, panel, "");
    const sums x = {
        hcg_at(e, e->f32, scores_of(e, t, panels_before(e, t, q.index)), from),
        hcg_at(e, e->f32, panel_at(e, t, panels_before(e, t, own), s->first), lane),
        t->width,
        t->width,
        t->a->factor * HCG_LOG2_E,
    };
    hcg_loop k = hcg_loop_begin(e, zero, s->count, one, "key", 0, NULL);
    carry(e, t->a, &x, k.index, false);
    hcg_loop_end(e, &k, NULL);
    hcg_loop_end(e, &q, NULL);
}

static hcg_loop if_equal(hcg_emit *e, LLVMValueRef x, uint64_t to, const char *name) {
    LLVMValueRef is = LLVMBuildICmp(e->b, LLVMIntEQ, x, hcg_i64(e, (int64_t)to), "");
    is = LLVMBuildZExt(e->b, is, e->i64, "");
    return hcg_loop_begin(e, hcg_i64(e, 0), is, hcg_i64(e, 1), name, 0, NULL);
}

void hcg_carry_panels(hcg_emit *e, const hcg_query_tile *t, const hcg_scored_panels *s) {
    LLVMValueRef begin = hcg_mul_const(e, t->row, t->a->per_group);
    LLVMValueRef within = LLVMBuildURem(e->b, begin, hcg_i64(e, t->width), "");
    LLVMValueRef whole = LLVMBuildICmp(e->b, LLVMIntEQ, within, hcg_i64(e, 0), "");
    whole = LLVMBuildZExt(e->b, whole, e->i64, "");
    hcg_loop all = if_equal(e, whole, 1, "whole");
    carry_whole_panels(e, t, s, panels_before(e, t, begin));
    hcg_loop_end(e, &all, NULL);
    hcg_loop some = if_equal(e, whole, 0, "within");
    carry_each_query(e, t, s, begin);
    hcg_loop_end(e, &some, NULL);
}
