/* Panels of a contraction scheduled dynamically among threads (contract/dynamic.h). */
#include "codegen/contract/dynamic.h"

#include <stddef.h>

#include "codegen/emit/arithmetic.h"
#include "runtime/hadal_rt.h"

enum {
    LEAST = 16,      /* items for each thread: at the end one may have two left */
    LEAST_ROWS = 32, /* fewer rows wait for weights, whose long sequences are read fastest */
    WORD = 8,
};

static LLVMValueRef choose(hcg_emit *e, LLVMValueRef test, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildSelect(e->b, test, a, b, "");
}

static LLVMValueRef load(hcg_emit *e, LLVMTypeRef type, LLVMValueRef base, size_t offset) {
    return LLVMBuildLoad2(e->b, type, hcg_at_byte(e, base, (int64_t)offset), "");
}

/* ---- at the start ---------------------------------------------------------------------------- */
/* The offered work (hrt_dynamic). Without an offer its fields are read from the frame, which is at
 * least as long; those values are not used. */
static LLVMValueRef offered_at(hcg_emit *e, LLVMValueRef *offered) {
    _Static_assert(sizeof(hrt_dynamic) <= sizeof(hrt_frame), "one may be read as the other");
    LLVMValueRef dynamic = hcg_frame_dynamic(e);
    *offered = LLVMBuildIsNotNull(e->b, dynamic, "offered");
    return choose(e, *offered, dynamic, e->frame);
}

void hcg_dynamic_offer(hcg_emit *e, hcg_dynamic *d) {
    LLVMValueRef at = d->offer = offered_at(e, &d->on);
    d->r0 = choose(e, d->on, load(e, e->i64, at, offsetof(hrt_dynamic, r0)), e->r0);
    d->r1 = choose(e, d->on, load(e, e->i64, at, offsetof(hrt_dynamic, r1)), e->r1);
    d->c0 = choose(e, d->on, hcg_i64(e, 0), e->c0);
    d->c1 = choose(e, d->on, load(e, e->i64, at, offsetof(hrt_dynamic, cols)), e->c1);
}

static LLVMValueRef in_hand(hcg_emit *e, const hcg_dynamic *d, int i) {
    return load(e, e->i64, d->hand, (size_t)i * WORD);
}

static void put_in_hand(hcg_emit *e, const hcg_dynamic *d, int i, LLVMValueRef item) {
    LLVMBuildStore(e->b, item, hcg_at_byte(e, d->hand, i * WORD));
}

static LLVMValueRef take(hcg_emit *e, const hcg_dynamic *d) {
    return LLVMBuildAtomicRMW(e->b, LLVMAtomicRMWBinOpAdd, d->counter, hcg_i64(e, 1),
                              LLVMAtomicOrderingMonotonic, false);
}

/* Begins code that runs only where panels are scheduled dynamically; gives the block after it. */
static LLVMBasicBlockRef begin_if(hcg_emit *e, LLVMValueRef on) {
    LLVMBasicBlockRef then = LLVMAppendBasicBlockInContext(e->cx, e->fn, "dynamic");
    LLVMBasicBlockRef after = LLVMAppendBasicBlockInContext(e->cx, e->fn, "on");
    LLVMBuildCondBr(e->b, on, then, after);
    LLVMPositionBuilderAtEnd(e->b, then);
    return after;
}

static void end_if(hcg_emit *e, LLVMBasicBlockRef after) {
    LLVMBuildBr(e->b, after);
    LLVMPositionBuilderAtEnd(e->b, after);
}

/* One for each thread, but no more than there are blocks or counters. */
static LLVMValueRef count_queues(hcg_emit *e, LLVMValueRef threads, LLVMValueRef blocks) {
    return hcg_smaller(e, hcg_smaller(e, threads, blocks), hcg_i64(e, HRT_QUEUES));
}

void hcg_dynamic_begin(hcg_emit *e, hcg_dynamic *d, LLVMValueRef each, LLVMValueRef of_block,
                       LLVMValueRef own_each) {
    LLVMValueRef threads = load(e, e->i64, d->offer, offsetof(hrt_dynamic, threads));
    LLVMValueRef rows = hcg_sub(e, d->r1, d->r0);
    LLVMValueRef blocks = hcg_divide_up(e, rows, each);
    LLVMValueRef items = hcg_mul(e, blocks, of_block);
    LLVMValueRef least = hcg_mul_const(e, threads, LEAST);
    LLVMValueRef enough = LLVMBuildICmp(e->b, LLVMIntSGE, items, least, "");
    LLVMValueRef many = LLVMBuildICmp(e->b, LLVMIntSGE, rows, hcg_i64(e, LEAST_ROWS), "");
    d->on = LLVMBuildAnd(e->b, d->on, LLVMBuildAnd(e->b, enough, many, ""), "dynamic");
    d->r0 = choose(e, d->on, d->r0, e->r0), d->r1 = choose(e, d->on, d->r1, e->r1);
    d->c0 = choose(e, d->on, d->c0, e->c0), d->c1 = choose(e, d->on, d->c1, e->c1);
    d->each = choose(e, d->on, each, own_each), d->of_block = of_block;
    d->queues = choose(e, d->on, count_queues(e, threads, blocks), hcg_i64(e, 1));
    d->hand = hcg_scratch(e, 2 * WORD);
}

void hcg_dynamic_queue(hcg_emit *e, hcg_dynamic *d, LLVMValueRef i) {
    LLVMValueRef thread = load(e, e->i64, d->offer, offsetof(hrt_dynamic, thread));
    LLVMValueRef queue = LLVMBuildURem(e->b, hcg_add(e, thread, i), d->queues, "queue");
    d->counter = load(e, e->ptr, d->offer, offsetof(hrt_dynamic, queues));
    d->counter = hcg_at(e, e->i8, d->counter, hcg_mul_const(e, queue, sizeof(hrt_counter)));
    d->row = hcg_add(e, d->r0, hcg_mul(e, queue, d->each));
    d->step = hcg_mul(e, d->each, d->queues);
    LLVMBasicBlockRef after = begin_if(e, d->on);
    for (int n = 0; n < 2; n++)
        put_in_hand(e, d, n, take(e, d));
    end_if(e, after);
}

/* ---- work items ------------------------------------------------------------------------------ */
LLVMValueRef hcg_dynamic_passes(hcg_emit *e, hcg_dynamic *d, LLVMValueRef row) {
    LLVMValueRef block = LLVMBuildUDiv(e->b, hcg_sub(e, row, d->row), d->step, "block");
    d->first = hcg_mul(e, block, d->of_block);
    LLVMValueRef end = hcg_add(e, d->first, d->of_block);
    LLVMValueRef beyond = LLVMBuildICmp(e->b, LLVMIntSGE, in_hand(e, d, 0), end, "");
    return LLVMBuildSelect(e->b, d->on, beyond, LLVMConstInt(e->i1, 0, false), "passes");
}

static LLVMValueRef panel_of(hcg_emit *e, const hcg_dynamic *d, int i, LLVMValueRef most) {
    return hcg_mul(e, hcg_sub(e, in_hand(e, d, i), d->first), most);
}

LLVMValueRef hcg_dynamic_first(hcg_emit *e, const hcg_dynamic *d, LLVMValueRef from,
                               LLVMValueRef most) {
    return d->on ? choose(e, d->on, panel_of(e, d, 0, most), from) : from;
}

LLVMValueRef hcg_dynamic_next(hcg_emit *e, const hcg_dynamic *d, LLVMValueRef panel,
                              LLVMValueRef most) {
    LLVMValueRef behind = hcg_add(e, panel, most);
    return d->on ? choose(e, d->on, panel_of(e, d, 1, most), behind) : behind;
}

void hcg_dynamic_done(hcg_emit *e, const hcg_dynamic *d) {
    if (!d->on) return;
    LLVMBasicBlockRef after = begin_if(e, d->on);
    put_in_hand(e, d, 0, in_hand(e, d, 1));
    put_in_hand(e, d, 1, take(e, d));
    end_if(e, after);
}

void hcg_dynamic_group(hcg_emit *e, hcg_dynamic *d, LLVMValueRef panels, LLVMValueRef most) {
    if (d->on) d->first = hcg_add(e, d->first, hcg_divide_up(e, panels, most));
}
