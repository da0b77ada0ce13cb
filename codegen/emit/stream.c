/* Prefetches, and loops over weights that are read once (emit/stream.h). */
#include "codegen/emit/stream.h"

#include <string.h>

#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"
#include "codegen/target/prefetch_distance.h"
#include "support/known.h"

enum {
    PAGE = 4096, /* the smallest pages there are */
    PAGES = 2,   /* pages in an iteration of the outer loop, which takes ten instructions */
};

static void prefetch(hcg_emit *e, LLVMValueRef p, int64_t bytes_ahead, unsigned locality) {
    LLVMValueRef args[] = {hcg_at(e, e->i8, p, hcg_i64(e, bytes_ahead)),
                           LLVMConstInt(e->i32, 0, false), LLVMConstInt(e->i32, locality, false),
                           LLVMConstInt(e->i32, 1, false)};
    hcg_intrinsic(e, "llvm.prefetch", &e->ptr, 1, args, 4);
}

void hcg_prefetch(hcg_emit *e, LLVMValueRef p, int64_t bytes_ahead) {
    prefetch(e, p, bytes_ahead, 3);
}

void hcg_keep_order(hcg_emit *e) {
    LLVMBuildFence(e->b, LLVMAtomicOrderingAcquireRelease, true, "");
}

void hcg_keep_together(hcg_emit *e, LLVMValueRef *x, unsigned n) {
    LLVMTypeRef types[HCG_MOST_TOGETHER];
    const char *list = "=x";
    hd_known(n > 0 && n <= HCG_MOST_TOGETHER);
    for (unsigned i = 0; i < n; i++)
        types[i] = LLVMTypeOf(x[i]);
    for (unsigned i = 1; i < n; i++)
        list = hd_printf(e->arena, "%s,=x", list);
    for (unsigned i = 0; i < n; i++)
        list = hd_printf(e->arena, "%s,%u", list, i);
    LLVMTypeRef all = LLVMStructTypeInContext(e->cx, types, n, false);
    LLVMTypeRef same = LLVMFunctionType(all, types, n, false);
    LLVMValueRef hidden = LLVMGetInlineAsm(same, "", 0, list, strlen(list), true, false,
                                           LLVMInlineAsmDialectATT, false);
    LLVMValueRef after = LLVMBuildCall2(e->b, same, hidden, x, n, "");
    for (unsigned i = 0; i < n; i++)
        x[i] = LLVMBuildExtractValue(e->b, after, i, "");
}

void hcg_prefetch_l2(hcg_emit *e, LLVMValueRef p, int64_t bytes_ahead) {
    prefetch(e, p, bytes_ahead, 2);
}

/* ---- loops ----------------------------------------------------------------------------------- */
/* The number of steps in an iteration of the outer loop. */
static int64_t steps_of_pages(const hcg_streamed *w) {
    const int64_t iterations = PAGES * PAGE / (w->bytes * w->each);
    return (iterations > 1 ? iterations : 1) * w->each;
}

int64_t hcg_stream_pages(int64_t bytes) {
    const int64_t pages = (bytes + PAGE - 1) / PAGE;
    return pages <= PAGES ? pages : 0;
}

static void ask_for_pages(hcg_emit *e, LLVMValueRef at, int64_t pages) {
    const int64_t bytes = hcg_prefetch_distance(&e->level->machine, HCG_PREFETCH_PAGES);
    const int64_t ahead = (bytes + PAGE - 1) / PAGE;
    for (int64_t i = 0; i < pages; i++)
        hcg_prefetch_l2(e, at, (ahead + i) * PAGE);
}

void hcg_translate_pages(hcg_emit *e, LLVMValueRef at, LLVMValueRef bytes) {
    LLVMValueRef page = hcg_i64(e, PAGE);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), bytes, page, "translate", 0, NULL);
    hcg_prefetch_l2(e, hcg_at(e, e->i8, at, l.index), 0);
    hcg_loop_end(e, &l, NULL);
}

hcg_stream hcg_stream_begin(hcg_emit *e, const hcg_streamed *w, const char *name, unsigned n,
                            const LLVMValueRef *init) {
    LLVMValueRef zero = hcg_i64(e, 0), each = hcg_i64(e, w->each);
    hcg_stream s = {.pages = w->pages};
    if (w->pages) {
        ask_for_pages(e, w->from, w->pages);
        s.step = hcg_loop_begin(e, zero, w->steps, each, name, n, init);
        return s;
    }
    LLVMValueRef many = hcg_i64(e, steps_of_pages(w));
    s.page = hcg_loop_begin(e, zero, w->steps, many, "page", n, init);
    LLVMValueRef at = hcg_at(e, e->i8, w->from, hcg_mul_const(e, s.page.index, w->bytes));
    ask_for_pages(e, at, PAGES);
    LLVMValueRef end = hcg_smaller(e, hcg_add(e, s.page.index, many), w->steps);
    s.step = hcg_loop_begin(e, s.page.index, end, each, name, n, s.page.carried);
    return s;
}

void hcg_stream_end(hcg_emit *e, hcg_stream *s, const LLVMValueRef *next) {
    hcg_loop_end(e, &s->step, next);
    if (s->pages)
        s->page = s->step;
    else
        hcg_loop_end(e, &s->page, s->step.carried);
}
