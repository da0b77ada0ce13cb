/* Parts of heads, and the sums that they have (attention_parts.h). */
#include "codegen/gradient/attention_parts.h"

#include "codegen/attention/attention_tile.h"
#include "codegen/attention/query_tile.h"
#include "codegen/emit/math.h"
#include "codegen/gradient/attention_queries.h"

typedef hcg_attention_parts parts;

/* Parts of all heads together, if heads are fewer. */
enum { PARTS = 16 };

static int64_t parts_of(int64_t groups) {
    return groups < PARTS ? (PARTS + groups - 1) / groups : 1;
}

LLVMValueRef hcg_gathered_at(hcg_emit *e, const hcg_gathered *g, LLVMValueRef token) {
    return hcg_at(e, e->f32, g->at, hcg_mul(e, token, g->stride));
}

/* ---- where sums are -------------------------------------------------------------------------- */
typedef struct sums {
    hcg_gathered of[HCG_GATHERED];
    LLVMValueRef sinks; /* by head; NULL: none */
} sums;

static bool gathers_sinks(const parts *p) {
    return p->sink.at && !p->a->sink_by_token;
}

static sums in_results(hcg_emit *e, const parts *p) {
    sums s = {0};
    for (int i = 0; i < HCG_GATHERED; i++) {
        hcg_gathered *g = &s.of[i];
        *g = p->of[i];
        if (!g->result) continue;
        g->at = hcg_at(e, e->f32, g->result, hcg_mul_const(e, p->group, g->n));
        g->stride = hcg_i64(e, p->a->groups * g->n);
    }
    LLVMValueRef head = hcg_mul_const(e, p->group, p->a->per_group);
    if (gathers_sinks(p)) s.sinks = hcg_at(e, e->f32, p->sink.at, head);
    return s;
}

/* Sums of a part in shared memory: sinks, then a row of each gradient for each token. */
static int64_t sink_floats(int64_t per_group) {
    return hcg_whole_panels(per_group);
}

static sums in_shared(hcg_emit *e, const parts *p, LLVMValueRef part) {
    const int64_t sinks = sink_floats(p->a->per_group), others = parts_of(p->a->groups) - 1;
    LLVMValueRef tokens = hcg_frame_t(e), each = hcg_i64(e, sinks);
    for (int i = 0; i < HCG_GATHERED; i++)
        each = hcg_add(e, each, hcg_mul_const(e, tokens, p->of[i].n));
    LLVMValueRef number = hcg_add(e, hcg_mul_const(e, p->group, others), part);
    number = hcg_sub(e, number, hcg_i64(e, 1)); /* the first part has none */
    LLVMValueRef at = hcg_at(e, e->f32, hcg_frame_ranges(e), hcg_mul(e, number, each));
    sums s = {0};
    if (gathers_sinks(p)) s.sinks = at;
    at = hcg_at(e, e->f32, at, hcg_i64(e, sinks));
    for (int i = 0; i < HCG_GATHERED; i++) {
        s.of[i] = p->of[i];
        s.of[i].at = at, s.of[i].stride = hcg_i64(e, p->of[i].n);
        at = hcg_at(e, e->f32, at, hcg_mul_const(e, tokens, p->of[i].n));
    }
    return s;
}

static void select_sums(hcg_emit *e, LLVMValueRef holds, sums *a, const sums *b) {
    for (int i = 0; i < HCG_GATHERED; i++) {
        hcg_gathered *g = &a->of[i];
        if (!g->result) continue;
        g->at = LLVMBuildSelect(e->b, holds, g->at, b->of[i].at, "");
        g->stride = LLVMBuildSelect(e->b, holds, g->stride, b->of[i].stride, "");
    }
    if (a->sinks) a->sinks = LLVMBuildSelect(e->b, holds, a->sinks, b->sinks, "");
}

/* Sums of no query, of the tokens from .. to - 1. */
static void start_sums(hcg_emit *e, const parts *p, const sums *s, LLVMValueRef is_first,
                       LLVMValueRef from, LLVMValueRef to) {
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), times = one;
    for (int i = 0; i < HCG_GATHERED; i++) {
        if (!s->of[i].result) continue;
        hcg_loop l = hcg_loop_begin(e, from, to, one, "start", 0, NULL);
        hcg_zero_row(e, hcg_gathered_at(e, &s->of[i], l.index), s->of[i].n);
        hcg_loop_end(e, &l, NULL);
    }
    if (!s->sinks) return;
    if (p->sink.adds) times = LLVMBuildZExt(e->b, LLVMBuildNot(e->b, is_first, ""), e->i64, "");
    hcg_loop l = hcg_loop_begin(e, zero, times, one, "start", 0, NULL);
    hcg_zero_row(e, s->sinks, p->a->per_group);
    hcg_loop_end(e, &l, NULL);
}

/* ---- parts of a head ------------------------------------------------------------------------- */
/* The first token of a part; of part number `parts`: T. Where later tokens see more keys, square
 * roots give parts as many pairs of both. Of few tokens the first parts have more: their sums are
 * the results. */
static LLVMValueRef first_token(hcg_emit *e, const parts *p, LLVMValueRef part) {
    const int64_t n = parts_of(p->a->groups);
    LLVMValueRef tokens = hcg_frame_t(e), step = hcg_i64(e, p->tokens);
    LLVMValueRef tiles = hcg_divide_up(e, tokens, step), left; /* tiles from the part on */
    if (p->even) {
        left = hcg_mul(e, tiles, hcg_sub(e, hcg_i64(e, n), part));
        left = LLVMBuildUDiv(e->b, left, hcg_i64(e, n), "");
    } else {
        left = LLVMBuildSIToFP(e->b, part, e->f32, "");
        left = LLVMBuildFDiv(e->b, left, LLVMConstReal(e->f32, (double)n), "");
        left = hcg_fsub(e, LLVMConstReal(e->f32, 1), hcg_sqrt(e, left));
        left = hcg_fmul(e, left, LLVMBuildSIToFP(e->b, tiles, e->f32, ""));
        left = LLVMBuildFPToSI(e->b, left, e->i64, "");
    }
    return hcg_smaller(e, hcg_mul(e, hcg_sub(e, tiles, left), step), tokens);
}

/* The first token to whose rows a part from token `from` on adds. */
static LLVMValueRef first_row(hcg_emit *e, const parts *p, LLVMValueRef from) {
    return p->only_window ? hcg_first_seen(e, p->a, from) : hcg_i64(e, 0);
}

/* The thread that has finished the last part of a head adds up the parts. */
static void merge_parts(hcg_emit *e, const parts *p) {
    LLVMValueRef one = hcg_i64(e, 1), n = hcg_i64(e, parts_of(p->a->groups));
    const hcg_arrival last = hcg_arrive(e, p->group, n, one);
    const sums all = in_results(e, p);
    hcg_loop part = hcg_loop_begin(e, one, n, one, "part", 0, NULL);
    const sums s = in_shared(e, p, part.index);
    LLVMValueRef from = first_token(e, p, part.index);
    LLVMValueRef to = first_token(e, p, hcg_add(e, part.index, one));
    LLVMValueRef some = LLVMBuildICmp(e->b, LLVMIntSLT, from, to, "some");
    from = LLVMBuildSelect(e->b, some, first_row(e, p, from), to, "");
    for (int i = 0; i < HCG_GATHERED; i++) {
        if (!all.of[i].result) continue;
        hcg_loop l = hcg_loop_begin(e, from, to, one, "merge", 0, NULL);
        hcg_add_row(e, hcg_gathered_at(e, &s.of[i], l.index),
                    hcg_gathered_at(e, &all.of[i], l.index), s.of[i].n);
        hcg_loop_end(e, &l, NULL);
    }
    if (s.sinks) hcg_add_row(e, s.sinks, all.sinks, p->a->per_group);
    hcg_loop_end(e, &part, NULL);
    hcg_arrive_end(e, &last);
}

void hcg_emit_parts(hcg_emit *e, parts *p) {
    const int64_t n = parts_of(p->a->groups);
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    hcg_loop columns = hcg_loop_begin(e, e->c0, e->c1, one, "column", 0, NULL);
    p->group = LLVMBuildUDiv(e->b, columns.index, hcg_i64(e, n), "");
    LLVMValueRef part = LLVMBuildURem(e->b, columns.index, hcg_i64(e, n), "part");
    LLVMValueRef from = first_token(e, p, part), to = first_token(e, p, hcg_add(e, part, one));
    LLVMValueRef is_first = LLVMBuildICmp(e->b, LLVMIntEQ, part, zero, "");
    sums s = in_results(e, p);
    if (n > 1) {
        const sums shared = in_shared(e, p, part);
        select_sums(e, is_first, &s, &shared);
    }
    /* to rows that the first part does not add to, others do */
    start_sums(e, p, &s, is_first, LLVMBuildSelect(e->b, is_first, zero, first_row(e, p, from), ""),
               LLVMBuildSelect(e->b, is_first, hcg_frame_t(e), to, ""));
    for (int i = 0; i < HCG_GATHERED; i++)
        p->of[i] = s.of[i];
    p->sinks = gathers_sinks(p) ? s.sinks : p->sink.at;
    p->emit(e, p, from, to);
    if (n > 1) merge_parts(e, p);
    hcg_loop_end(e, &columns, NULL);
}

int64_t hcg_count_parts(const hir_module *m, hir_id kernel) {
    const int64_t groups = hir_arg_type(m, hir_form_op(m, kernel), 1).dim[1];
    return groups * parts_of(groups);
}

void hcg_count_parts_shared(const hir_module *m, hir_id kernel, int64_t floats, uint64_t *counters,
                            uint64_t *range) {
    const hir_id op = hir_form_op(m, kernel);
    const int64_t groups = hir_arg_type(m, op, 1).dim[1], others = parts_of(groups) - 1;
    if (others == 0) return;
    const int64_t sinks = sink_floats(hir_arg_type(m, op, 0).dim[1] / groups);
    *counters = (uint64_t)groups * HCG_COUNTER_BYTES;
    *range = (uint64_t)(groups * others * (HRT_KEYS * floats + sinks)) * 4;
}
