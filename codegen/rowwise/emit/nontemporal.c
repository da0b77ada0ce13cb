/* Non-temporal stores.
 *
 * A store to memory first reads the line that it will overwrite. Where a nest of loops leaves more
 * than the L3 cache holds before anybody reads it (phase 1 of Attention Residuals in blocks: a row
 * for each query), that read is a third of the traffic, and what it brings in evicts what is still
 * wanted. Whether results are so large depends on the number of tokens and on the machine that the
 * call runs on (hrt_frame.l3), so an iteration of the loops keeps its stores to its end, and a
 * branch there stores one way or the other:
 *
 *     non-temporal if  results >= L3 / 2  or  results + what is read >= L3     (bytes of the call)
 *
 * Measured with an L3 of 32 MB (docs/experiments.md): a depth mix (a weighted sum of earlier
 * outputs) and its readers gain a sixth from 32 MB of results on; in whole programs, where the
 * kernels between them evict the results, from 16 MB on. Below that they lose as much, and so does
 * a kernel that reads again what it has stored. A kernel that reads many other rows (a mix of 17
 * sources) has evicted its own first results before it ends.
 */
#include "codegen/emit/math.h"
#include "codegen/rowwise/emit/run.h"

/* Bytes of an element of what node `n` is stored to. */
static int64_t element_bytes(const row_run *r, const row_node *n) {
    return (int64_t)hir_dtype_bytes(r->g->buffers.at[n->buffer].dtype);
}

/* The bytes of a token's rows in memory that the kernel reads, and that it writes. */
static row_size touched_bytes(const row_run *r) {
    row_size bytes = row_int(0);
    for (size_t i = 0; i < r->g->buffers.n; i++) {
        const row_buffer *b = &r->g->buffers.at[i];
        const bool row = b->used && b->where == ROW_ARG && b->has_t && !b->in_place;
        if (!row) continue;
        const int64_t element = (int64_t)hir_dtype_bytes(b->dtype);
        bytes = row_size_add(bytes, row_size_scale(b->elements, element));
    }
    for (size_t i = 0; i < r->g->nodes.n; i++) {
        const row_node *n = &r->g->nodes.at[i];
        const bool rows = n->kind == ROW_MULTI && n->run && row_of(r->s, n)->uses;
        if (!rows) continue;
        const int64_t element = (int64_t)hir_dtype_bytes(n->dtype);
        bytes = row_size_add(bytes, row_size_scale(row_elements(&n->shape), element));
    }
    return bytes;
}

/* Do so many bytes a token make at least the size of the L3 in this call? */
static LLVMValueRef fills_l3(row_run *r, row_size row_bytes) {
    hcg_emit *e = r->e;
    LLVMValueRef bytes = LLVMBuildMul(e->b, hcg_frame_t(e), row_i64(r, row_bytes), "");
    return LLVMBuildICmp(e->b, LLVMIntSGE, bytes, hcg_frame_l3(e), "");
}

/* Does the call write, or touch, so much that stores of `row_bytes` a token are non-temporal? */
static LLVMValueRef is_much(row_run *r, int64_t row_bytes) {
    LLVMValueRef leaves = fills_l3(r, row_int(2 * row_bytes));
    return LLVMBuildOr(r->e->b, leaves, fills_l3(r, touched_bytes(r)), "");
}

/* The same, as far as it is known at compile time: true if stores are non-temporal on no machine
 * of the level. */
static bool is_never_much(const row_run *r, int64_t row_bytes) {
    const int64_t touched = row_most(r->g, touched_bytes(r)), chunk = r->e->p->chunk;
    const int64_t l3 = (int64_t)r->e->level->machine.l3;
    return 2 * row_bytes * chunk < l3 && touched * chunk < l3;
}

/* Bytes of a token's rows that the nest may store non-temporally; 0 if they are never enough. */
static int64_t streamed_bytes(const row_run *r, const row_nest *nest) {
    int64_t bytes = 0;
    if (!r->token) return 0;
    for (size_t i = 0; i < nest->roots.n; i++) {
        const row_node *n = row_at(r->g, nest->roots.at[i]);
        if (row_of(r->s, n)->nontemporal) bytes += row_elements(&n->shape).a * element_bytes(r, n);
    }
    return is_never_much(r, bytes) ? 0 : bytes;
}

LLVMValueRef row_stream_when(row_run *r, const row_nest *nest) {
    hcg_emit *e = r->e;
    int64_t bytes = streamed_bytes(r, nest);
    LLVMValueRef where = hcg_i64(e, 0);
    if (bytes == 0) return NULL;
    for (size_t i = 0; i < nest->roots.n; i++) {
        const row_node *n = row_at(r->g, nest->roots.at[i]);
        if (!row_of(r->s, n)->nontemporal) continue;
        LLVMValueRef address = LLVMBuildPtrToInt(e->b, r->base[n->buffer], e->i64, "");
        where = LLVMBuildOr(e->b, where, address, "");
    }
    LLVMValueRef off =
        LLVMBuildAnd(e->b, where, hcg_i64(e, row_store_unit(&e->level->machine) - 1), "");
    LLVMValueRef aligned = LLVMBuildICmp(e->b, LLVMIntEQ, off, hcg_i64(e, 0), "");
    if (bytes > r->most_streamed) r->most_streamed = bytes;
    return LLVMBuildAnd(e->b, aligned, is_much(r, bytes), "streams");
}

static void store_nontemporal(row_run *r, LLVMValueRef p, LLVMValueRef v, int64_t bytes) {
    hcg_emit *e = r->e;
    LLVMValueRef s = LLVMBuildStore(e->b, v, p);
    LLVMSetAlignment(s, (unsigned)bytes);
    LLVMMetadataRef one = LLVMValueAsMetadata(LLVMConstInt(e->i32, 1, false));
    LLVMValueRef node = LLVMMetadataAsValue(e->cx, LLVMMDNodeInContext2(e->cx, &one, 1));
    LLVMSetMetadata(s, LLVMGetMDKindIDInContext(e->cx, "nontemporal", 11), node);
    r->has_streamed = true;
}

/* The lanes of a followed by those of b, as f32: LLVM 19 has no non-temporal store for vectors of
 * bf16, and would look through a cast. */
static LLVMValueRef side_by_side(hcg_emit *e, LLVMValueRef a, LLVMValueRef b) {
    enum { MOST = 64 };
    LLVMValueRef at[MOST];
    unsigned n = 2 * hcg_lanes(LLVMTypeOf(a));
    for (unsigned i = 0; i < n; i++)
        at[i] = LLVMConstInt(e->i32, i, false);
    LLVMValueRef joined = LLVMBuildShuffleVector(e->b, a, b, LLVMConstVector(at, n), "");
    LLVMTypeRef type = LLVMVectorType(e->f32, n / 2);
    joined = LLVMBuildBitCast(e->b, joined, type, "");
    return hcg_intrinsic(e, "llvm.arithmetic.fence", &type, 1, &joined, 1);
}

bool row_stream_store(row_run *r, const row_node *n, LLVMValueRef p, const LLVMValueRef *v) {
    hcg_emit *e = r->e;
    if (!r->streaming || r->tail || !row_of(r->s, n)->nontemporal) return false;
    const hir_dtype dtype = r->g->buffers.at[n->buffer].dtype;
    const int64_t lanes = e->level->lanes, bytes = element_bytes(r, n);
    if ((int64_t)r->unroll * lanes * bytes % row_store_unit(&r->e->level->machine) != 0)
        return false;
    const unsigned together = dtype == HIR_F32 ? 1 : 2; /* halves fill a vector in pairs */
    for (unsigned u = 0; u < r->unroll; u += together) {
        LLVMValueRef at = hcg_at(e, hcg_element(e, dtype), p, hcg_i64(e, u * lanes)), x = v[u];
        if (together == 2)
            x = side_by_side(e, hcg_narrow(e, dtype, v[u]), hcg_narrow(e, dtype, v[u + 1]));
        store_nontemporal(r, at, x, together * lanes * bytes);
    }
    return true;
}

/* Such stores become visible in any order: others may read only after a fence. */
void row_stream_end(row_run *r) {
    hcg_emit *e = r->e;
    if (!r->has_streamed) return;
    LLVMBasicBlockRef fence = LLVMAppendBasicBlockInContext(e->cx, e->fn, "fence");
    LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(e->cx, e->fn, "fenced");
    LLVMBuildCondBr(e->b, is_much(r, r->most_streamed), fence, done);
    LLVMPositionBuilderAtEnd(e->b, fence);
    hcg_intrinsic(e, "llvm.x86.sse.sfence", NULL, 0, NULL, 0);
    LLVMBuildBr(e->b, done);
    LLVMPositionBuilderAtEnd(e->b, done);
}
