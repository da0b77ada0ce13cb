/* Sums over tokens in a row program.
 *
 * The tokens are cut into parts, as many as their number says: of PART tokens or more, PARTS at most.
 * A part has rows of its own in the memory that threads share, to which its tokens add theirs one after
 * the other. The thread that finishes the last part adds these rows up, in the order of the parts, and
 * to what is there if the result is a gradient of the model. So neither the number of threads nor
 * the order in which they come changes a bit, and the error of a long sum grows with the tokens of a
 * part and the number of parts.
 *
 * A column is a 64th of the parts, and threads have columns that follow each other: with many parts
 * some each, with few parts some have none. */
#include "codegen/emit/arithmetic.h"
#include "codegen/rowwise/emit/run.h"

enum {
    PARTS = 64, /* the most */
    PART = 32,  /* tokens of a part, at least: a divisor of HRT_KEYS, for which memory is given */
};
_Static_assert(HRT_KEYS % PART == 0, "parts have memory by ranges of positions");

/* Floats of a sum in the rows of a part: whole lines. */
static int64_t floats_of(int64_t elements) {
    return (elements + HIR_PANEL - 1) / HIR_PANEL * HIR_PANEL;
}

/* Of a result of so many elements, whatever its rows: a row that is a line from the next has 1024
 * elements or more (graph/totals.c). */
static int64_t most_floats(int64_t elements) {
    return elements + elements / 1024 * HIR_PANEL;
}

int64_t row_sum_columns(const hir_module *m, hir_id kernel) {
    (void)m, (void)kernel;
    return PARTS;
}

void row_sum_shared(const hir_module *m, hir_id kernel, uint64_t *counters, uint64_t *range) {
    const hir_op *k = hir_op_at(m, kernel);
    uint64_t floats = 0;
    for (uint32_t i = 0; i < k->n_results; i++) {
        const hir_type t = hir_value_at(m, k->results[i])->type;
        if (!hir_type_has_t(t) && !hir_type_has_c(t))
            floats += (uint64_t)floats_of(most_floats(hir_type_row_elements(t)));
    }
    *counters = HCG_COUNTER_BYTES;
    *range = HRT_KEYS / PART * floats * sizeof(float);
}

static int64_t elements_of(const row_run *r, const row_sum *s) {
    return r->g->buffers.at[s->buffer].elements.a;
}

static int64_t floats_of_part(const row_run *r) {
    int64_t floats = 0;
    for (size_t i = 0; i < r->g->sums.n; i++)
        floats += floats_of(elements_of(r, &r->g->sums.at[i]));
    return floats;
}

static LLVMValueRef rows_of_part(row_run *r, LLVMValueRef part) {
    hcg_emit *e = r->e;
    return hcg_at(e, e->f32, hcg_frame_ranges(e), hcg_mul_const(e, part, floats_of_part(r)));
}

/* ---- parts ----------------------------------------------------------------------------------- */
static void store_zeros(hcg_emit *e, const void *rows, LLVMValueRef at, LLVMValueRef valid) {
    hcg_store(e, hcg_at(e, e->f32, *(const LLVMValueRef *)rows, at), hcg_splat(e, 0), valid);
}

/* Sums of no token, and where they are. */
static void begin_part(row_run *r, LLVMValueRef part) {
    hcg_emit *e = r->e;
    LLVMValueRef rows = rows_of_part(r, part);
    const int64_t floats = floats_of_part(r);
    int64_t at = 0;
    hcg_each_vector(e, hcg_i64(e, 0), hcg_i64(e, floats), floats, store_zeros, &rows);
    for (size_t i = 0; i < r->g->sums.n; i++) {
        const row_sum *s = &r->g->sums.at[i];
        r->base[s->buffer] = hcg_at(e, e->f32, rows, hcg_i64(e, at));
        at += floats_of(elements_of(r, s));
    }
}

static LLVMValueRef first_token(hcg_emit *e, LLVMValueRef part, LLVMValueRef parts) {
    LLVMValueRef tokens = hcg_mul(e, part, hcg_sub(e, e->r1, e->r0));
    return hcg_add(e, e->r0, LLVMBuildUDiv(e->b, tokens, parts, ""));
}

static LLVMValueRef first_part(hcg_emit *e, LLVMValueRef column, LLVMValueRef parts) {
    return LLVMBuildUDiv(e->b, hcg_mul(e, column, parts), hcg_i64(e, PARTS), "");
}

/* ---- all parts ------------------------------------------------------------------------------- */
typedef struct adding { /* the rows of all parts to a result */
    row_run *r;
    const row_sum *s;
    LLVMValueRef to, from; /* from: those of part 0 */
    LLVMValueRef parts;
} adding;

static void add_parts(hcg_emit *e, const void *context, LLVMValueRef at, LLVMValueRef valid) {
    const adding *a = context;
    LLVMValueRef to = hcg_at(e, e->f32, a->to, at), from = hcg_at(e, e->f32, a->from, at);
    LLVMValueRef sum = a->s->adds ? hcg_load(e, HIR_F32, to, valid) : hcg_splat(e, 0);
    const int64_t floats = floats_of_part(a->r);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), a->parts, hcg_i64(e, 1), "part", 1, &sum);
    LLVMValueRef p = hcg_at(e, e->f32, from, hcg_mul_const(e, l.index, floats));
    sum = hcg_fadd(e, l.carried[0], hcg_load(e, HIR_F32, p, valid));
    hcg_loop_end(e, &l, &sum);
    hcg_store(e, to, l.carried[0], valid);
}

/* The rows of a result one after the other. */
static void add_rows(adding *a) {
    hcg_emit *e = a->r->e;
    LLVMValueRef to = a->to, from = a->from;
    const row_sum *s = a->s;
    hcg_loop row =
        hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, s->rows), hcg_i64(e, 1), "row", 0, NULL);
    a->to = hcg_at(e, e->f32, to, hcg_mul_const(e, row.index, s->width));
    a->from = hcg_at(e, e->f32, from, hcg_mul_const(e, row.index, s->apart));
    hcg_each_vector(e, hcg_i64(e, 0), hcg_i64(e, s->width), s->width, add_parts, a);
    hcg_loop_end(e, &row, NULL);
}

static void end_parts(row_run *r, LLVMValueRef parts, LLVMValueRef done) {
    hcg_emit *e = r->e;
    const hcg_arrival last = hcg_arrive(e, hcg_i64(e, 0), parts, done);
    LLVMValueRef rows = rows_of_part(r, hcg_i64(e, 0));
    int64_t at = 0;
    for (size_t i = 0; i < r->g->sums.n; i++) {
        const row_sum *s = &r->g->sums.at[i];
        adding a = {.r = r,
                    .s = s,
                    .to = hcg_arg(e, r->g->k, s->result),
                    .from = hcg_at(e, e->f32, rows, hcg_i64(e, at)),
                    .parts = parts};
        add_rows(&a);
        at += floats_of(elements_of(r, s));
    }
    hcg_arrive_end(e, &last);
}

void row_emit_parts(row_run *r, row_tokens_fn *each_token) {
    hcg_emit *e = r->e;
    LLVMValueRef one = hcg_i64(e, 1), tokens = hcg_sub(e, e->r1, e->r0);
    LLVMValueRef parts =
        hcg_smaller(e, hcg_divide_up(e, tokens, hcg_i64(e, PART)), hcg_i64(e, PARTS));
    LLVMValueRef from = first_part(e, e->c0, parts), to = first_part(e, e->c1, parts);
    LLVMValueRef n = hcg_sub(e, to, from);
    hcg_loop own = hcg_loop_begin(e, from, to, n, "own", 0, NULL); /* once, or not at all */
    hcg_loop l = hcg_loop_begin(e, from, to, one, "part", 0, NULL);
    begin_part(r, l.index);
    each_token(r, first_token(e, l.index, parts), first_token(e, hcg_add(e, l.index, one), parts));
    hcg_loop_end(e, &l, NULL);
    end_parts(r, parts, n);
    hcg_loop_end(e, &own, NULL);
}
