/* Rows by expert: a counting sort of slots, and a gather of rows of x (contract/expert_rows.h). */
#include "codegen/contract/expert_rows.h"

#include "codegen/contract/epilogue.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/shared.h"

static LLVMValueRef load_i32(hcg_emit *e, LLVMValueRef base, LLVMValueRef i) {
    return hcg_row_number(e, base, i);
}

static void store_i32(hcg_emit *e, LLVMValueRef base, LLVMValueRef i, LLVMValueRef v) {
    v = LLVMBuildTrunc(e->b, v, e->i32, "");
    LLVMSetAlignment(LLVMBuildStore(e->b, v, hcg_at(e, e->i32, base, i)), 4);
}

LLVMValueRef hcg_chosen_expert(hcg_emit *e, LLVMValueRef ids, LLVMValueRef i,
                               LLVMValueRef experts) {
    LLVMValueRef id = LLVMBuildLoad2(e->b, e->i32, hcg_at(e, e->i32, ids, i), "id");
    LLVMSetAlignment(id, 4);
    id = LLVMBuildSExt(e->b, id, e->i64, "");
    LLVMValueRef in = LLVMBuildICmp(e->b, LLVMIntULT, id, experts, "");
    return LLVMBuildSelect(e->b, in, id, experts, "expert");
}

/* ---- the sort -------------------------------------------------------------------------------- */
enum { IDS, FROM, TO, EXPERTS, LIST, END, WEIGHT, SORT_PARAMS };

/* end[e + 1] = how many slots chose e. Counts stand one place after their experts, so that the sum
 * of the counts before an expert is where its slots begin. */
static void count(hcg_emit *e, const LLVMValueRef *s) {
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    LLVMValueRef counters = hcg_add(e, s[EXPERTS], hcg_i64(e, 2));
    hcg_loop l = hcg_loop_begin(e, zero, counters, one, "clear", 0, NULL);
    store_i32(e, s[END], l.index, zero);
    hcg_loop_end(e, &l, NULL);
    l = hcg_loop_begin(e, s[FROM], s[TO], one, "count", 0, NULL);
    LLVMValueRef at = hcg_add(e, hcg_chosen_expert(e, s[IDS], l.index, s[EXPERTS]), one);
    store_i32(e, s[END], at, hcg_add(e, load_i32(e, s[END], at), one));
    hcg_loop_end(e, &l, NULL);
}

/* Counts become the places where each expert's slots begin. */
static void add_up(hcg_emit *e, const LLVMValueRef *s) {
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), init[] = {zero, zero};
    LLVMValueRef counters = hcg_add(e, s[EXPERTS], hcg_i64(e, 2));
    hcg_loop l = hcg_loop_begin(e, zero, counters, one, "sum", 2, init);
    LLVMValueRef n = load_i32(e, s[END], l.index), all = hcg_add(e, l.carried[0], n);
    LLVMValueRef any = LLVMBuildICmp(e->b, LLVMIntSGT, n, zero, "");
    LLVMValueRef own = hcg_add(e, n, hcg_i64(e, HCG_PANEL_ROWS));
    own = LLVMBuildSelect(e->b, any, own, zero, "");
    store_i32(e, s[END], l.index, all);
    LLVMValueRef next[] = {all, hcg_add(e, l.carried[1], own)};
    hcg_loop_end(e, &l, next);
    LLVMSetAlignment(LLVMBuildStore(e->b, l.carried[1], s[WEIGHT]), 8);
}

/* Writes each slot to its place. Each write advances the beginning of the slot's expert, which so
 * becomes the expert's end. */
static void place(hcg_emit *e, const LLVMValueRef *s) {
    LLVMValueRef one = hcg_i64(e, 1);
    hcg_loop l = hcg_loop_begin(e, s[FROM], s[TO], one, "place", 0, NULL);
    LLVMValueRef expert = hcg_chosen_expert(e, s[IDS], l.index, s[EXPERTS]);
    LLVMValueRef at = load_i32(e, s[END], expert);
    store_i32(e, s[LIST], at, l.index);
    store_i32(e, s[END], expert, hcg_add(e, at, one));
    hcg_loop_end(e, &l, NULL);
}

/* experts(ids, from, to, experts, list, end, weight) */
static hcg_shared sort_function(hcg_emit *e) {
    LLVMTypeRef params[SORT_PARAMS] = {e->ptr, e->i64, e->i64, e->i64, e->ptr, e->ptr, e->ptr};
    hcg_shared s;
    if (!hcg_shared_begin(e, "experts", params, SORT_PARAMS, &s)) return s;
    count(e, s.param);
    add_up(e, s.param);
    place(e, s.param);
    hcg_shared_end(e, &s);
    return s;
}

hcg_expert_rows hcg_sort_by_expert(hcg_emit *e, LLVMValueRef ids, LLVMValueRef from,
                                   LLVMValueRef to, int64_t most, int64_t experts) {
    hcg_expert_rows rows = {.list = hcg_scratch(e, (uint64_t)most * 4),
                            .end = hcg_scratch(e, (uint64_t)(experts + 2) * 4)};
    LLVMValueRef weight = hcg_scratch(e, 8);
    LLVMValueRef args[SORT_PARAMS] = {ids,       from,     to,    hcg_i64(e, experts),
                                      rows.list, rows.end, weight};
    hcg_shared f = sort_function(e);
    hcg_shared_call(e, &f, args, SORT_PARAMS);
    rows.weight = LLVMBuildLoad2(e->b, e->i64, weight, "weight");
    LLVMSetAlignment(rows.weight, 8);
    return rows;
}

void hcg_rows_of_expert(hcg_emit *e, const hcg_expert_rows *s, LLVMValueRef expert,
                        LLVMValueRef *from, LLVMValueRef *to) {
    LLVMValueRef zero = hcg_i64(e, 0), first = LLVMBuildICmp(e->b, LLVMIntEQ, expert, zero, "");
    LLVMValueRef before = hcg_larger(e, hcg_sub(e, expert, hcg_i64(e, 1)), zero);
    *from = LLVMBuildSelect(e->b, first, zero, load_i32(e, s->end, before), "from");
    *to = load_i32(e, s->end, expert);
}

/* ---- rows of x ------------------------------------------------------------------------------- */
/* gather(x, list, from, n, each, k, out) */
static hcg_shared gather_function(hcg_emit *e) {
    LLVMTypeRef params[] = {e->ptr, e->ptr, e->i64, e->i64, e->i64, e->i64, e->ptr};
    hcg_shared s;
    if (!hcg_shared_begin(e, "gather_rows", params, 7, &s)) return s;
    LLVMValueRef k = s.param[5], zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    hcg_loop lr = hcg_loop_begin(e, zero, s.param[3], one, "row", 0, NULL);
    LLVMValueRef slot = load_i32(e, s.param[1], hcg_add(e, s.param[2], lr.index));
    LLVMValueRef row = LLVMBuildUDiv(e->b, slot, s.param[4], "");
    LLVMValueRef x = hcg_at(e, e->f32, s.param[0], hcg_mul(e, row, k));
    LLVMValueRef out = hcg_at(e, e->f32, s.param[6], hcg_mul(e, lr.index, k));
    hcg_loop lk = hcg_loop_begin(e, zero, k, hcg_i64(e, e->level->lanes), "k", 0, NULL);
    LLVMValueRef left = hcg_sub(e, k, lk.index);
    LLVMValueRef v = hcg_load(e, HIR_F32, hcg_at(e, e->f32, x, lk.index), left);
    hcg_store(e, hcg_at(e, e->f32, out, lk.index), v, left);
    hcg_loop_end(e, &lk, NULL);
    hcg_loop_end(e, &lr, NULL);
    hcg_shared_end(e, &s);
    return s;
}

void hcg_gather_rows(hcg_emit *e, LLVMValueRef x, LLVMValueRef list, LLVMValueRef from,
                     LLVMValueRef n, int64_t each, int64_t k, LLVMValueRef out) {
    LLVMValueRef args[] = {x, list, from, n, hcg_i64(e, each), hcg_i64(e, k), out};
    hcg_shared f = gather_function(e);
    hcg_shared_call(e, &f, args, 7);
}
