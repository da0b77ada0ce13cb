#include "passes/analysis/crossing.h"

#include <string.h>

#include "hadal/hadal_comm.h"
#include "ir/kernel/kernels.h"

/* ---- finding --------------------------------------------------------------------------------- */

static uint64_t elements(const hir_module *m, hir_ref r) {
    const int64_t n = hir_type_row_elements(hir_ref_type(m, r));
    return n < 0 ? 0 : (uint64_t)n;
}

static bool find(const hir_module *m, hir_id id, hir_crossing *x) {
    const hir_op *o = hir_op_at(m, id);
    const hir_ref y = hir_value_ref(hir_result(m, id));
    const hir_type t = hir_ref_type(m, y);
    const bool by_element = hir_find_attr(o, HIR_A_AXIS) != NULL;
    const bool bf16 = strcmp(hir_attr_string(o, HIR_A_DTYPE, "f32"), "bf16") == 0;
    *x = (hir_crossing){.op = id, .code = o->code, .row = elements(m, y)};
    if (o->code == HIR_COMM_ALL_GATHER_OP && by_element) x->local = elements(m, o->args[0]);
    x->element_bytes = bf16 ? 2 : t.dtype == HIR_I32 ? 4 : hir_dtype_bytes(t.dtype);
    x->rows_of_rank = t.rank > 0 && hir_is_row_share(t.dim[0]);
    x->last = o->parent != HIR_NONE && hir_rows_of(hir_op_at(m, o->parent)) == HIR_ROWS_LAST;
    return o->code != HIR_COMM_PART_OP;
}

static void find_in(const hir_module *m, hir_id first, hd_arena *a, hir_crossings *out) {
    HIR_EACH(m, op, first) {
        hir_crossing x;
        const hir_op *o = hir_op_at(m, op);
        if (o->body_first != HIR_NONE) find_in(m, o->body_first, a, out);
        if (hir_has_trait(o->code, HIR_COMM) && find(m, op, &x)) hd_push(a, &out->list, x);
    }
}

void hir_find_crossings(const hir_module *m, hd_arena *a, hir_crossings *out) {
    memset(out, 0, sizeof *out);
    find_in(m, m->first, a, out);
}

/* ---- counting -------------------------------------------------------------------------------- */

/* The number of a rank's rows among the last `rows` rows of the call. */
static uint64_t rows_of(const hir_module *m, int64_t rank, int64_t tokens, int64_t rows) {
    int64_t first = hd_first_row(tokens, rank, m->ranks, m->divide_from);
    const int64_t end = hd_end_row(tokens, rank, m->ranks, m->divide_from);
    if (first < tokens - rows) first = tokens - rows;
    return end > first ? (uint64_t)(end - first) : 0;
}

static uint64_t sent_by_sum(const hir_module *m, int64_t rank, uint64_t n, uint64_t bytes) {
    const int32_t ranks = (int32_t)m->ranks;
    if (hadal_comm_is_direct(n, bytes, ranks)) return ((uint64_t)ranks - 1) * n * bytes;
    const int64_t all = (int64_t)n;
    const uint64_t part = (uint64_t)(hadal_comm_first_row(all, (int32_t)rank + 1, ranks) -
                                     hadal_comm_first_row(all, (int32_t)rank, ranks));
    return (n - part) * bytes + ((uint64_t)ranks - 1) * part * sizeof(float);
}

uint64_t hir_crossing_sent(const hir_module *m, const hir_crossing *x, int64_t rank, int64_t tokens,
                           int64_t rows) {
    const uint64_t others = m->ranks ? m->ranks - 1 : 0;
    const bool divided = m->ranks && tokens >= m->divide_from;
    if (!x->last || rows > tokens) rows = tokens;
    const uint64_t all = (uint64_t)rows;
    const uint64_t mine = m->ranks ? rows_of(m, rank, tokens, rows) : all;
    switch ((int)x->code) {
    case HIR_COMM_ALL_REDUCE_OP: return sent_by_sum(m, rank, all * x->row, x->element_bytes);
    case HIR_COMM_REDUCE_SCATTER_OP:
        return divided ? (all - mine) * x->row * x->element_bytes
                       : sent_by_sum(m, rank, all * x->row, x->element_bytes);
    case HIR_COMM_ALL_GATHER_OP:
        if (x->local) return others * all * x->local * x->element_bytes;
        return divided ? others * mine * x->row * x->element_bytes : 0;
    case HIR_COMM_SEND_OP: return (x->rows_of_rank ? mine : all) * x->row * x->element_bytes;
    default: return 0;
    }
}

uint64_t hir_crossing_received(const hir_module *m, const hir_crossing *x, int64_t rank,
                               int64_t tokens, int64_t rows) {
    hir_crossing sent = *x;
    if (x->code != HIR_COMM_RECV_OP) return 0;
    sent.code = HIR_COMM_SEND_OP;
    return hir_crossing_sent(m, &sent, rank, tokens, rows);
}

int hir_crossing_messages(const hir_module *m, const hir_crossing *x, int64_t tokens,
                          int64_t rows) {
    if (hir_crossing_sent(m, x, 0, tokens, rows) == 0) return 0;
    const bool divided = m->ranks && tokens >= m->divide_from;
    const bool sum =
        x->code == HIR_COMM_ALL_REDUCE_OP || (x->code == HIR_COMM_REDUCE_SCATTER_OP && !divided);
    if (!x->last || rows > tokens) rows = tokens;
    const uint64_t n = (uint64_t)rows * x->row;
    return sum && !hadal_comm_is_direct(n, x->element_bytes, (int32_t)m->ranks) ? 2 : 1;
}

uint64_t hir_bytes_sent(const hir_module *m, const hir_crossings *all, int64_t rank, int64_t tokens,
                        int64_t rows) {
    uint64_t sum = 0;
    for (size_t i = 0; i < all->list.n; i++)
        sum += hir_crossing_sent(m, &all->list.at[i], rank, tokens, rows);
    return sum;
}
