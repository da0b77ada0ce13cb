/* Stores past the caches.
 *
 * A store to memory first reads the line that it will overwrite. Where a nest of loops leaves more
 * than the last cache holds before anybody reads it (phase 1 of a block: a row for each query),
 * that read is a third of the traffic, and what it brings in drives out what is still wanted.
 * Whether there is so much depends on the number of tokens, so a turn of the loops keeps its stores
 * to its end, and a branch there stores one way or the other.
 *
 * Measured (docs/benchmarks.md): from 32 MB on a mix and its readers gain a sixth, below 16 MB they
 * lose as much, and so does a kernel that reads again what it has stored.
 */
#include <string.h>

#include "codegen/emit_math.h"
#include "codegen/emit_row_run.h"

enum { LINE = 64, FROM_BYTES = 16 << 20, MOST_STREAMED = 64 };

/* Whole lines of rows that begin on a line, which the kernel itself does not read. */
static bool can_stream(const row_run *r, const row_node *n) {
    if (n->buffer == ROW_NO_BUFFER || n->far_read) return false;
    const row_buffer *b = &r->g->buffers.at[n->buffer];
    bool aligned = n->to.constant * 4 % LINE == 0 && b->elements * 4 % LINE == 0;
    for (int v = 0; v < ROW_VARS; v++)
        aligned &= v == r->lane_var ? n->to.by[v] == 1 : n->to.by[v] * 4 % LINE == 0;
    return aligned && b->where == ROW_ARG && b->has_t && b->dtype == HIR_F32;
}

static LLVMValueRef at_least(hcg_emit *e, LLVMValueRef tokens, int64_t row_bytes) {
    LLVMValueRef least = hcg_i64(e, (FROM_BYTES + row_bytes - 1) / row_bytes);
    return LLVMBuildICmp(e->b, LLVMIntSGE, tokens, least, "");
}

void row_stream_begin(row_run *r, const row_nest *nest) {
    hcg_emit *e = r->e;
    int64_t bytes = 0;
    LLVMValueRef where = hcg_i64(e, 0);
    r->streams = NULL;
    r->later.n = 0;
    if (!r->token || strcmp(e->level->arch, "x86_64") != 0) return;
    for (size_t i = 0; i < nest->roots.n; i++) {
        const row_node *n = row_at(r->g, nest->roots.at[i]);
        if (!can_stream(r, n)) continue;
        bytes += row_elements(&n->shape) * 4;
    }
    if (bytes == 0 || bytes * e->p->chunk < FROM_BYTES) return;
    for (size_t i = 0; i < nest->roots.n; i++) {
        const row_node *n = row_at(r->g, nest->roots.at[i]);
        if (!can_stream(r, n)) continue;
        LLVMValueRef address = LLVMBuildPtrToInt(e->b, r->base[n->buffer], e->i64, "");
        where = LLVMBuildOr(e->b, where, address, "");
    }
    LLVMValueRef off = LLVMBuildAnd(e->b, where, hcg_i64(e, LINE - 1), "");
    LLVMValueRef aligned = LLVMBuildICmp(e->b, LLVMIntEQ, off, hcg_i64(e, 0), "");
    LLVMValueRef many = at_least(e, hcg_frame_t(e), bytes);
    r->streams = LLVMBuildAnd(e->b, aligned, many, "streams");
    r->nest_streams = bytes;
}

bool row_stream_store(row_run *r, const row_node *n, LLVMValueRef p, LLVMValueRef v) {
    bool whole_lines = (int64_t)r->copies * r->e->level->lanes * 4 % LINE == 0;
    if (!r->streams || r->tail || !whole_lines || !can_stream(r, n)) return false;
    hd_push(r->g->arena, &r->later, ((row_store_later){p, v}));
    if (r->nest_streams > r->most_streamed) r->most_streamed = r->nest_streams;
    return true;
}

static void store_all(row_run *r, bool streamed) {
    hcg_emit *e = r->e;
    for (size_t i = 0; i < r->later.n; i++) {
        LLVMValueRef s = LLVMBuildStore(e->b, r->later.at[i].value, r->later.at[i].to);
        LLVMSetAlignment(s, streamed ? e->level->lanes * 4 : 4);
        if (!streamed) continue;
        LLVMMetadataRef one = LLVMValueAsMetadata(LLVMConstInt(e->i32, 1, false));
        LLVMValueRef node = LLVMMetadataAsValue(e->cx, LLVMMDNodeInContext2(e->cx, &one, 1));
        LLVMSetMetadata(s, LLVMGetMDKindIDInContext(e->cx, "nontemporal", 11), node);
    }
}

void row_stream_flush(row_run *r) {
    hcg_emit *e = r->e;
    if (r->later.n == 0) return;
    LLVMBasicBlockRef past = LLVMAppendBasicBlockInContext(e->cx, e->fn, "past");
    LLVMBasicBlockRef through = LLVMAppendBasicBlockInContext(e->cx, e->fn, "through");
    LLVMBasicBlockRef stored = LLVMAppendBasicBlockInContext(e->cx, e->fn, "stored");
    LLVMBuildCondBr(e->b, r->streams, past, through);
    LLVMPositionBuilderAtEnd(e->b, past);
    store_all(r, true);
    LLVMBuildBr(e->b, stored);
    LLVMPositionBuilderAtEnd(e->b, through);
    store_all(r, false);
    LLVMBuildBr(e->b, stored);
    LLVMPositionBuilderAtEnd(e->b, stored);
    r->later.n = 0;
}

/* Such stores become visible in any order: others may read only behind a fence. */
void row_stream_end(row_run *r) {
    hcg_emit *e = r->e;
    if (!r->most_streamed) return;
    LLVMBasicBlockRef fence = LLVMAppendBasicBlockInContext(e->cx, e->fn, "fence");
    LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(e->cx, e->fn, "fenced");
    LLVMBuildCondBr(e->b, at_least(e, hcg_frame_t(e), r->most_streamed), fence, done);
    LLVMPositionBuilderAtEnd(e->b, fence);
    hcg_intrinsic(e, "llvm.x86.sse.sfence", NULL, 0, NULL, 0);
    LLVMBuildBr(e->b, done);
    LLVMPositionBuilderAtEnd(e->b, done);
}
