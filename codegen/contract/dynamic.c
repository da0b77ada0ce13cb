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
    LLVMValueRef at = offered_at(e, &d->on);
    d->counter = load(e, e->ptr, at, offsetof(hrt_dynamic, next));
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

void hcg_dynamic_begin(hcg_emit *e, hcg_dynamic *d, LLVMValueRef each, LLVMValueRef of_block,
                       LLVMValueRef own_each) {
    LLVMValueRef offered, at = offered_at(e, &offered);
    LLVMValueRef threads = load(e, e->i64, at, offsetof(hrt_dynamic, threads));
    LLVMValueRef rows = hcg_sub(e, d->r1, d->r0);
    LLVMValueRef items = hcg_mul(e, hcg_divide_up(e, rows, each), of_block);
    LLVMValueRef least = hcg_mul_const(e, threads, LEAST);
    LLVMValueRef enough = LLVMBuildICmp(e->b, LLVMIntSGE, items, least, "");
    LLVMValueRef many = LLVMBuildICmp(e->b, LLVMIntSGE, rows, hcg_i64(e, LEAST_ROWS), "");
    d->on = LLVMBuildAnd(e->b, offered, LLVMBuildAnd(e->b, enough, many, ""), "dynamic");
    d->r0 = choose(e, d->on, d->r0, e->r0), d->r1 = choose(e, d->on, d->r1, e->r1);
    d->c0 = choose(e, d->on, d->c0, e->c0), d->c1 = choose(e, d->on, d->c1, e->c1);
    d->each = choose(e, d->on, each, own_each), d->of_block = of_block;
    d->hand = hcg_scratch(e, 2 * WORD);
    LLVMBasicBlockRef after = begin_if(e, d->on);
    for (int i = 0; i < 2; i++)
        put_in_hand(e, d, i, take(e, d));
    end_if(e, after);
}

/* ---- work items ------------------------------------------------------------------------------ */
LLVMValueRef hcg_dynamic_passes(hcg_emit *e, hcg_dynamic *d, LLVMValueRef row) {
    LLVMValueRef block = LLVMBuildUDiv(e->b, hcg_sub(e, row, d->r0), d->each, "block");
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
