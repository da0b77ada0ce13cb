/* Attention of a tile of queries on the matrix unit, CPU level amx:
 *
 *     S = K Q^T      tiles of 16 keys x 16 queries: keys are left operands, as rows of a cache lie
 *                    if they are bf16; queries right ones, made once per tile of queries
 *     P              the softmax step of vectors, queries in lanes (attention/softmax.c)
 *     O += P^T V     tiles of 16 queries x 16 entries of a value: P is transposed in registers, V
 *                    put into pairs of keys once per tile of keys
 *
 * One operand of O += P V has to be transposed. It is P, since P has 16 queries where V may have
 * hundreds of entries. O stands in rows, one for each query, not in lanes.
 *
 * Numbers are sums of bf16 (amx/products.h): an f32 is a sum of three, unless activations may be
 * rounded to bf16. A tile of keys is 128 keys or fewer; it begins at a multiple of its size, and
 * strips read keys from multiples of 32 on, so that a query's sums do not depend on the other
 * queries of its strip.
 *
 * Cycles for 32 keys and 16 queries, with n entries of a key and m of a value: the unit takes n +
 * m for each pair of parts (16 for a product of tiles), of which there are 1 (rounded), 3 (exact,
 * cache of bf16), 5 (of f16) or 6 (of f32); vectors take 16 (n + m), at two multiply-adds of 16
 * lanes a cycle. The softmax step takes some 300 either way: 9 instructions on each of two ports
 * for a key. Parts of P and their transposition take 100 (rounded) to 330.
 */
#include "codegen/attention/query_amx.h"

#include "codegen/emit/arithmetic.h"
#include "codegen/matmul/backends/amx/products.h"

enum {
    TILE = HCG_AMX_TILE,
    STATE = 2 * HIR_PANEL, /* floats of a panel's M and S */
    SUM_LINE = HIR_PANEL * 4,
};

struct hcg_query_amx {
    bool exact;
    unsigned parts;               /* parts of queries and probabilities */
    int64_t q_panel;              /* bytes of a panel of queries, */
    int64_t q_at[HCG_MOST_PARTS]; /* and where in it each segment begins */
    LLVMValueRef q, keys[HCG_MOST_PARTS], values, p, maxima;
};

/* The unit has to make six products in two thirds of the time that vectors take for one, as for
 * matrices of f32 (matmul/backends.def). */
enum { LEAST_RATE = 6 * 150 };

bool hcg_attends_by_amx(const hcg_level *level) {
    return level->lanes == HIR_PANEL && hcg_has_features(level, "amx-tile amx-bf16") &&
           level->machine.matrix_unit >= LEAST_RATE;
}

/* ---- sizes ----------------------------------------------------------------------------------- */
static int64_t steps_of(int64_t n) {
    return (n + HCG_AMX_STEP - 1) / HCG_AMX_STEP;
}

/* The bytes of 16 rows of a segment as tiles, */
static int64_t segment_bytes(const hcg_query_tile *t, unsigned i, unsigned parts) {
    return steps_of(t->segment[i].n) * parts * TILE;
}

/* and those of 16 columns of all values of a tile of keys. */
static int64_t column_bytes(const hcg_query_tile *t, unsigned parts) {
    return steps_of(t->keys) * parts * TILE;
}

static LLVMValueRef tiles(hcg_emit *e, int64_t bytes) {
    return hcg_scratch(e, (uint64_t)bytes);
}

void hcg_amx_queries_begin(hcg_emit *e, hcg_query_tile *t) {
    struct hcg_query_amx *x = hd_new(e->arena, struct hcg_query_amx);
    const int64_t panels = hcg_whole_panels(t->tokens * t->a->per_group) / HIR_PANEL;
    const int64_t blocks = t->keys / HCG_AMX_LINES;
    x->exact = e->p->options.exact & HCG_ROUND_BF16;
    x->parts = hcg_amx_parts_of(HIR_F32, x->exact);
    for (unsigned i = 0; i < t->segments; i++) {
        x->q_at[i] = x->q_panel;
        x->q_panel += segment_bytes(t, i, x->parts);
        x->keys[i] = tiles(e, blocks * segment_bytes(t, i, HCG_AMX_MOST_PARTS));
    }
    x->q = tiles(e, panels * x->q_panel);
    x->values =
        tiles(e, hcg_whole_panels(t->a->m) / HIR_PANEL * column_bytes(t, HCG_AMX_MOST_PARTS));
    x->p = tiles(e, HCG_AMX_PANELS * column_bytes(t, x->parts));
    x->maxima = hcg_floats(e, HCG_AMX_PANELS * HIR_PANEL);
    t->amx = x;
}

void hcg_amx_queries_end(hcg_emit *e) {
    hcg_amx_release(e);
}

/* ---- queries --------------------------------------------------------------------------------- */
void hcg_amx_take_queries(hcg_emit *e, const hcg_query_tile *t) {
    const struct hcg_query_amx *x = t->amx;
    LLVMValueRef zero = hcg_i64(e, 0);
    hcg_loop l = hcg_loop_begin(e, zero, t->panels, hcg_i64(e, 1), "query_tiles", 0, NULL);
    LLVMValueRef panel = hcg_mul_const(e, l.index, t->lines * HIR_PANEL);
    LLVMValueRef to = hcg_at(e, e->i8, x->q, hcg_mul_const(e, l.index, x->q_panel));
    for (unsigned i = 0; i < t->segments; i++) {
        hcg_amx_rows r = {.dtype = HIR_F32, .parts = x->parts, .ld = HIR_PANEL, .n = HIR_PANEL};
        LLVMValueRef line = hcg_i64(e, t->segment[i].line * HIR_PANEL);
        r.x = hcg_at(e, e->f32, t->q, hcg_add(e, panel, line));
        r.first = zero, r.end = hcg_i64(e, t->segment[i].n);
        hcg_amx_pairs(e, &r, 0, hcg_at_byte(e, to, x->q_at[i]));
    }
    hcg_loop_end(e, &l, NULL);
}

/* ---- keys and values ------------------------------------------------------------------------- */
static unsigned parts_of(const hcg_query_tile *t, const hcg_key_rows *rows) {
    return hcg_amx_parts_of(rows->dtype, t->amx->exact);
}

/* Rows of bf16 whose steps are whole are tiles where they lie. */
static bool lie_as_tiles(const hcg_key_rows *rows) {
    return rows->dtype == HIR_BF16 && rows->n % HCG_AMX_STEP == 0;
}

static LLVMValueRef whole_blocks(hcg_emit *e, LLVMValueRef keys) {
    return LLVMBuildUDiv(e->b, keys, hcg_i64(e, HCG_AMX_LINES), "");
}

/* Brings those keys into tiles that are no tiles as they lie: all, or those after the last whole
 * block of 16. */
static void take_keys(hcg_emit *e, const hcg_query_tile *t, unsigned i) {
    const hcg_key_rows *rows = &t->rows[i];
    hcg_amx_rows r = {.x = rows->x, .dtype = rows->dtype, .ld = rows->ld, .n = rows->n};
    r.parts = parts_of(t, rows), r.end = t->count;
    LLVMValueRef to = t->amx->keys[i];
    if (lie_as_tiles(rows)) {
        LLVMValueRef blocks = whole_blocks(e, t->count);
        LLVMValueRef first = hcg_mul_const(e, blocks, HCG_AMX_LINES);
        r.x = hcg_at(e, hcg_element(e, r.dtype), r.x, hcg_mul_const(e, first, r.ld));
        r.end = hcg_sub(e, t->count, first);
        to = hcg_at(e, e->i8, to, hcg_mul_const(e, blocks, segment_bytes(t, i, r.parts)));
    }
    hcg_amx_left_operands(e, &r, to);
}

void hcg_amx_take_keys(hcg_emit *e, const hcg_query_tile *t) {
    const hcg_key_rows *v = &t->values;
    hcg_amx_rows r = {.x = v->x, .dtype = v->dtype, .ld = v->ld, .n = t->a->m};
    LLVMValueRef seen = hcg_sub(e, hcg_queries_first_key(e, t), t->first);
    hcg_amx_configure(e, HCG_AMX_LINE); /* what makes keys may have another configuration */
    for (unsigned i = 0; i < t->segments; i++)
        take_keys(e, t, i);
    r.parts = parts_of(t, v), r.end = t->count;
    r.first = hcg_larger(e, seen, hcg_i64(e, 0)); /* before it may be anything */
    hcg_amx_pairs(e, &r, column_bytes(t, r.parts), t->amx->values);
}

/* ---- products -------------------------------------------------------------------------------- */
/* A strip's share of what is prefetched, which is `rows->ahead` bytes from rows->next on. */
static void prefetch_share(hcg_emit *e, const hcg_query_tile *t, const hcg_amx_strip *s,
                           const hcg_key_rows *rows, hcg_amx_product *p) {
    LLVMValueRef strips = hcg_divide_up(e, t->panels, hcg_i64(e, HCG_AMX_PANELS));
    p->ahead = hcg_divide_up(e, rows->ahead, strips);
    p->next = hcg_at(e, e->i8, rows->next, hcg_mul(e, s->number, p->ahead));
}

/* The scores of some blocks of 16 keys, from `block` on. */
static void multiply_keys(hcg_emit *e, const hcg_query_tile *t, const hcg_amx_strip *s, unsigned i,
                          hcg_amx_product *p, LLVMValueRef block) {
    const struct hcg_query_amx *x = t->amx;
    LLVMValueRef first = LLVMBuildUDiv(e->b, s->from, hcg_i64(e, HCG_AMX_LINES), "");
    LLVMValueRef panel = hcg_mul_const(e, s->panel, x->q_panel);
    p->a_parts = parts_of(t, &t->rows[i]), p->b_parts = x->parts;
    p->b = hcg_at_byte(e, hcg_at(e, e->i8, x->q, panel), x->q_at[i]);
    p->b_tile = hcg_i64(e, x->q_panel), p->b_tiles = s->panels;
    p->steps = hcg_i64(e, steps_of(t->segment[i].n));
    p->c = hcg_at(e, e->i8, t->scores,
                  hcg_mul_const(e, hcg_sub(e, block, first), HCG_AMX_LINES * SUM_LINE));
    p->c_line = hcg_i64(e, SUM_LINE), p->c_a = hcg_i64(e, HCG_AMX_LINES * SUM_LINE);
    p->c_b = hcg_i64(e, HCG_STRIP_FLOATS * 4), p->add = hcg_i64(e, i > 0);
    hcg_loop some = hcg_loop_begin(e, hcg_i64(e, 0), hcg_smaller(e, p->a_tiles, hcg_i64(e, 1)),
                                   hcg_i64(e, 1), "some_keys", 0, NULL);
    hcg_amx_multiply_tiles(e, p);
    hcg_loop_end(e, &some, NULL);
}

/* The scores of blocks of keys where they lie, then of those that were brought into tiles. */
static void multiply_segment(hcg_emit *e, const hcg_query_tile *t, const hcg_amx_strip *s,
                             unsigned i) {
    const hcg_key_rows *rows = &t->rows[i];
    LLVMValueRef first = whole_blocks(e, s->from), made = first;
    LLVMValueRef end = hcg_divide_up(e, s->to, hcg_i64(e, HCG_AMX_LINES));
    hcg_amx_product p = {0};
    prefetch_share(e, t, s, rows, &p);
    if (lie_as_tiles(rows)) {
        made = hcg_smaller(e, whole_blocks(e, t->count), end);
        p.a = hcg_at(e, hcg_element(e, rows->dtype), rows->x,
                     hcg_mul_const(e, first, HCG_AMX_LINES * rows->ld));
        p.a_line = hcg_i64(e, 2 * rows->ld), p.a_tile = hcg_i64(e, HCG_AMX_LINES * 2 * rows->ld);
        p.a_step = hcg_i64(e, HCG_AMX_LINE), p.a_tiles = hcg_sub(e, made, first);
        multiply_keys(e, t, s, i, &p, first);
        p.ahead = hcg_i64(e, 0);
    }
    const unsigned parts = parts_of(t, rows);
    p.a_tile = hcg_i64(e, segment_bytes(t, i, parts)), p.a_tiles = hcg_sub(e, end, made);
    p.a = hcg_at(e, e->i8, t->amx->keys[i], hcg_mul(e, made, p.a_tile));
    p.a_line = hcg_i64(e, HCG_AMX_LINE), p.a_step = hcg_i64(e, parts * TILE);
    multiply_keys(e, t, s, i, &p, made);
}

void hcg_amx_scores(hcg_emit *e, const hcg_query_tile *t, const hcg_amx_strip *s) {
    for (unsigned i = 0; i < t->segments; i++)
        multiply_segment(e, t, s, i);
}

static LLVMValueRef maxima_of(hcg_emit *e, const hcg_query_tile *t, const hcg_amx_strip *s,
                              LLVMValueRef i) {
    LLVMValueRef panel = hcg_add(e, s->panel, i);
    return hcg_at(e, e->f32, t->states, hcg_mul_const(e, panel, STATE));
}

static LLVMValueRef kept_of(hcg_emit *e, const hcg_query_tile *t, LLVMValueRef i) {
    return hcg_at(e, e->f32, t->amx->maxima, hcg_mul_const(e, i, HIR_PANEL));
}

void hcg_amx_keep_maxima(hcg_emit *e, const hcg_query_tile *t, const hcg_amx_strip *s) {
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), s->panels, hcg_i64(e, 1), "kept", 0, NULL);
    LLVMValueRef m = hcg_load(e, HIR_F32, maxima_of(e, t, s, l.index), NULL);
    hcg_store(e, kept_of(e, t, l.index), m, NULL);
    hcg_loop_end(e, &l, NULL);
}

/* Rescales O of the strip's panels where their maxima grew; makes P tiles. */
static void prepare_panels(hcg_emit *e, const hcg_query_tile *t, const hcg_amx_strip *s) {
    const struct hcg_query_amx *x = t->amx;
    const int64_t ld = hcg_whole_panels(t->a->m);
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    hcg_loop l = hcg_loop_begin(e, zero, s->panels, one, "panel", 0, NULL);
    LLVMValueRef o = hcg_mul_const(e, hcg_add(e, s->panel, l.index), HIR_PANEL * ld);
    hcg_loop more = hcg_loop_begin(e, zero, s->later, one, "later", 0, NULL);
    hcg_amx_rescale(e, hcg_at(e, e->f32, t->o, o), ld, ld, kept_of(e, t, l.index),
                    maxima_of(e, t, s, l.index));
    hcg_loop_end(e, &more, NULL);
    LLVMValueRef p = hcg_at(e, e->f32, t->scores, hcg_mul_const(e, l.index, HCG_STRIP_FLOATS));
    LLVMValueRef to = hcg_mul_const(e, l.index, column_bytes(t, x->parts));
    hcg_amx_probabilities(e, x->parts, p, hcg_sub(e, s->to, s->from), hcg_at(e, e->i8, x->p, to));
    hcg_loop_end(e, &l, NULL);
}

void hcg_amx_values(hcg_emit *e, const hcg_query_tile *t, const hcg_amx_strip *s) {
    const struct hcg_query_amx *x = t->amx;
    const int64_t ld = hcg_whole_panels(t->a->m);
    const unsigned parts = parts_of(t, &t->values);
    prepare_panels(e, t, s);
    hcg_amx_product p = {.a_parts = x->parts, .b_parts = parts, .a = x->p, .add = s->later};
    LLVMValueRef step = LLVMBuildUDiv(e->b, s->from, hcg_i64(e, HCG_AMX_KEYS), "");
    LLVMValueRef o = hcg_mul_const(e, s->panel, HIR_PANEL * ld);
    p.a_line = hcg_i64(e, HCG_AMX_LINE), p.a_tile = hcg_i64(e, column_bytes(t, x->parts));
    p.a_step = hcg_i64(e, x->parts * TILE), p.a_tiles = s->panels;
    p.b = hcg_at(e, e->i8, x->values, hcg_mul_const(e, step, parts * TILE));
    p.b_tile = hcg_i64(e, column_bytes(t, parts)), p.b_tiles = hcg_i64(e, ld / HIR_PANEL);
    p.steps = hcg_divide_up(e, hcg_sub(e, s->to, s->from), hcg_i64(e, HCG_AMX_KEYS));
    p.c = hcg_at(e, e->f32, t->o, o), p.c_line = hcg_i64(e, ld * 4);
    p.c_a = hcg_i64(e, HIR_PANEL * ld * 4), p.c_b = hcg_i64(e, SUM_LINE);
    prefetch_share(e, t, s, &t->values, &p);
    hcg_amx_multiply_tiles(e, &p);
}
