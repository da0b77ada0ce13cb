/* Rows of a list, which lie anywhere in a cache, for attention of one token: each is met where it
 * lies, by its address, and asked for a tile before.
 *
 * No prefetcher of a CPU knows where the next row of a list is, and an L1 has places for few
 * misses. The list knows: while a tile is met, each step of its scores and values asks for its
 * share of the rows of the next one, into the L2, so that memory is as busy as arithmetic lets it
 * be. Of a row that is key and value scores ask for the first half, values for the second.
 */
#include "codegen/attention/attention_tile.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/stream.h"

static int64_t lines_of(const hcg_emit *e, const hcg_cache *c) {
    const int64_t bytes = c->width * (int64_t)hir_dtype_bytes(c->dtype);
    return (bytes + e->level->machine.line - 1) / e->level->machine.line;
}

static bool are_same(const hcg_key_tile *t) {
    return t->ahead.keys == t->ahead.values;
}

LLVMValueRef hcg_listed_row(hcg_emit *e, LLVMValueRef places, LLVMValueRef row) {
    LLVMValueRef place = LLVMBuildLoad2(e->b, e->ptr, hcg_at(e, e->ptr, places, row), "place");
    LLVMSetAlignment(place, 8);
    return place;
}

static void ask_for(hcg_emit *e, LLVMValueRef places, LLVMValueRef row, LLVMValueRef line) {
    LLVMValueRef at = hcg_mul_const(e, line, e->level->machine.line);
    hcg_prefetch_l2(e, hcg_at(e, e->i8, hcg_listed_row(e, places, row), at), 0);
}

/* The last step takes the place of those that are more than there are lines. */
void hcg_ask_ahead(hcg_emit *e, const hcg_key_tile *t, bool values, LLVMValueRef first,
                   int64_t rows, LLVMValueRef number, int64_t steps) {
    const int64_t all = lines_of(e, values ? &t->a->v : &t->a->k), half = all / 2;
    const int64_t from = are_same(t) && values ? half : 0, to = are_same(t) && !values ? half : all;
    const int64_t lines = to - from, total = lines * rows;
    if (total == 0 || steps == 0) return;
    const int64_t each = (total + steps - 1) / steps;
    LLVMValueRef places = values ? t->ahead.values : t->ahead.keys;
    for (int64_t i = 0; i < each; i++) {
        LLVMValueRef n = hcg_add(e, hcg_mul_const(e, number, each), hcg_i64(e, i));
        n = hcg_smaller(e, n, hcg_i64(e, total - 1));
        LLVMValueRef row = LLVMBuildUDiv(e->b, n, hcg_i64(e, lines), "");
        LLVMValueRef line = hcg_sub(e, n, hcg_mul_const(e, row, lines));
        ask_for(e, places, hcg_add(e, first, row), hcg_add(e, line, hcg_i64(e, from)));
    }
}

static void ask_for_rows(hcg_emit *e, LLVMValueRef places, int64_t lines, LLVMValueRef n) {
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    hcg_loop r = hcg_loop_begin(e, zero, n, one, "ask_row", 0, NULL);
    hcg_loop l = hcg_loop_begin(e, zero, hcg_i64(e, lines), one, "ask", 0, NULL);
    ask_for(e, places, r.index, l.index);
    hcg_loop_end(e, &l, NULL);
    hcg_loop_end(e, &r, NULL);
}

void hcg_ask_all(hcg_emit *e, const hcg_key_tile *t, LLVMValueRef n) {
    ask_for_rows(e, t->ahead.keys, lines_of(e, &t->a->k), n);
    if (!are_same(t)) ask_for_rows(e, t->ahead.values, lines_of(e, &t->a->v), n);
}
