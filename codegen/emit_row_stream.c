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

enum { LINE = 64, FROM_BYTES = 16 << 20 };

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

/* Bytes of a token's rows that the nest may stream; 0 if that is never enough. */
static int64_t streamed_bytes(const row_run *r, const row_nest *nest) {
    int64_t bytes = 0;
    if (!r->token || strcmp(r->e->level->arch, "x86_64") != 0) return 0;
    for (size_t i = 0; i < nest->roots.n; i++) {
        const row_node *n = row_at(r->g, nest->roots.at[i]);
        if (n->kind == ROW_REDUCE && n->last) return 0; /* its result would have two makers */
        if (can_stream(r, n)) bytes += row_elements(&n->shape) * 4;
    }
    return bytes * r->e->p->chunk < FROM_BYTES ? 0 : bytes;
}

LLVMValueRef row_stream_when(row_run *r, const row_nest *nest) {
    hcg_emit *e = r->e;
    int64_t bytes = streamed_bytes(r, nest);
    LLVMValueRef where = hcg_i64(e, 0);
    if (bytes == 0) return NULL;
    for (size_t i = 0; i < nest->roots.n; i++) {
        const row_node *n = row_at(r->g, nest->roots.at[i]);
        if (!can_stream(r, n)) continue;
        LLVMValueRef address = LLVMBuildPtrToInt(e->b, r->base[n->buffer], e->i64, "");
        where = LLVMBuildOr(e->b, where, address, "");
    }
    LLVMValueRef off = LLVMBuildAnd(e->b, where, hcg_i64(e, LINE - 1), "");
    LLVMValueRef aligned = LLVMBuildICmp(e->b, LLVMIntEQ, off, hcg_i64(e, 0), "");
    if (bytes > r->most_streamed) r->most_streamed = bytes;
    return LLVMBuildAnd(e->b, aligned, at_least(e, hcg_frame_t(e), bytes), "streams");
}

bool row_stream_store(row_run *r, const row_node *n, LLVMValueRef p, LLVMValueRef v) {
    hcg_emit *e = r->e;
    bool whole_lines = (int64_t)r->copies * e->level->lanes * 4 % LINE == 0;
    if (!r->streaming || r->tail || !whole_lines || !can_stream(r, n)) return false;
    LLVMValueRef s = LLVMBuildStore(e->b, v, p);
    LLVMSetAlignment(s, e->level->lanes * 4);
    LLVMMetadataRef one = LLVMValueAsMetadata(LLVMConstInt(e->i32, 1, false));
    LLVMValueRef node = LLVMMetadataAsValue(e->cx, LLVMMDNodeInContext2(e->cx, &one, 1));
    LLVMSetMetadata(s, LLVMGetMDKindIDInContext(e->cx, "nontemporal", 11), node);
    r->has_streamed = true;
    return true;
}

/* Such stores become visible in any order: others may read only behind a fence. */
void row_stream_end(row_run *r) {
    hcg_emit *e = r->e;
    if (!r->has_streamed) return;
    LLVMBasicBlockRef fence = LLVMAppendBasicBlockInContext(e->cx, e->fn, "fence");
    LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(e->cx, e->fn, "fenced");
    LLVMBuildCondBr(e->b, at_least(e, hcg_frame_t(e), r->most_streamed), fence, done);
    LLVMPositionBuilderAtEnd(e->b, fence);
    hcg_intrinsic(e, "llvm.x86.sse.sfence", NULL, 0, NULL, 0);
    LLVMBuildBr(e->b, done);
    LLVMPositionBuilderAtEnd(e->b, done);
}
