/* Attention of one token (T = 1): the keys and values of a head are read once from memory. Within a
 * tile of positions, key and value head by head, they pass in blocks of 16 that stay in the first
 * level cache while the query heads that share them take turns: first all scores of the tile, then
 * the softmax step, then the values.
 *
 * Scores of as many keys as a vector has lanes are made at once: one accumulator per key, then a
 * tree of shuffles and adds that leaves key i's sum in lane i.
 */
#include "codegen/attention.h"
#include "codegen/matrix.h"

enum {
    M_VECTORS = 8, /* of an output row held in registers while a block's values pass */
    LINE = 16,     /* floats of a cache line */
    BLOCK = 16,    /* keys between turns of the heads; the next block is prefetched meanwhile: a
                    * head's rows lie too far apart for the hardware to see the stream */
};

/* One query head and a block of the keys it looks at. */
typedef struct query {
    const hcg_attention *a;
    LLVMValueRef number;  /* of the (token, head) pair: its row of q and of out */
    LLVMValueRef q, rows; /* the query; row 0 of the block's keys or values */
    LLVMValueRef count;   /* rows in the block */
    LLVMValueRef scores;  /* of the block */
    LLVMValueRef state, o;
} query;

static LLVMValueRef mul_const(hcg_emit *e, LLVMValueRef x, int64_t n) {
    return LLVMBuildNSWMul(e->b, x, hcg_i64(e, n), "");
}

static LLVMValueRef plus(hcg_emit *e, LLVMValueRef x, LLVMValueRef y) {
    return LLVMBuildNSWAdd(e->b, x, y, "");
}

/* [a0+a1, a2+a3, .. b0+b1, b2+b3, ..] */
static LLVMValueRef add_pairs(hcg_emit *e, LLVMValueRef a, LLVMValueRef b) {
    LLVMValueRef even[64], odd[64];
    unsigned lanes = e->level->lanes;
    for (unsigned i = 0; i < lanes; i++) {
        even[i] = LLVMConstInt(e->i32, 2 * i, false);
        odd[i] = LLVMConstInt(e->i32, 2 * i + 1, false);
    }
    LLVMValueRef x = LLVMBuildShuffleVector(e->b, a, b, LLVMConstVector(even, lanes), "");
    LLVMValueRef y = LLVMBuildShuffleVector(e->b, a, b, LLVMConstVector(odd, lanes), "");
    return LLVMBuildFAdd(e->b, x, y, "");
}

/* Lane i: the sum of v[i]'s lanes. v is used up. */
static LLVMValueRef sum_each(hcg_emit *e, LLVMValueRef *v) {
    for (unsigned n = e->level->lanes; n > 1; n /= 2)
        for (unsigned i = 0; i < n / 2; i++)
            v[i] = add_pairs(e, v[2 * i], v[2 * i + 1]);
    return v[0];
}

/* acc[i] += q[at ..] keys[i][at ..] for `keys` keys in a row, `valid` lanes */
static void dot_step(hcg_emit *e, const query *c, LLVMValueRef key, unsigned keys, LLVMValueRef at,
                     LLVMValueRef valid, LLVMValueRef *acc) {
    LLVMValueRef x = hcg_load(e, HIR_F32, hcg_at(e, e->f32, c->q, at), valid);
    LLVMValueRef row = hcg_at(e, e->f32, key, at);
    for (unsigned i = 0; i < keys; i++) {
        LLVMValueRef place = hcg_at(e, e->f32, row, hcg_i64(e, i * c->a->groups * c->a->n));
        acc[i] = hcg_fma(e, x, hcg_load(e, HIR_F32, place, valid), acc[i]);
    }
}

/* acc[i] = lane-wise products of the query with `keys` keys from key number s on, summed over n */
static void dot_keys(hcg_emit *e, const query *c, LLVMValueRef s, unsigned keys,
                     LLVMValueRef *acc) {
    int64_t lanes = e->level->lanes, n = c->a->n, stride = c->a->groups * n;
    LLVMValueRef key = hcg_at(e, e->f32, c->rows, mul_const(e, s, stride));
    for (unsigned i = 0; i < keys; i++)
        acc[i] = LLVMConstNull(e->vec);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, n / LINE * LINE), hcg_i64(e, LINE),
                                "dot", keys, acc);
    for (unsigned i = 0; i < keys; i++)
        acc[i] = l.carried[i];
    for (int64_t j = 0; j < LINE; j += lanes)
        dot_step(e, c, key, keys, plus(e, l.index, hcg_i64(e, j)), NULL, acc);
    hcg_loop_end(e, &l, acc);
    for (unsigned i = 0; i < keys; i++)
        acc[i] = l.carried[i];
    for (int64_t j = n / LINE * LINE; j < n; j += lanes)
        dot_step(e, c, key, keys, hcg_i64(e, j), n - j < lanes ? hcg_i64(e, n - j) : NULL, acc);
}

/* scores[s] = scale q . k_s for the block's keys: vectors of them, then the rest one by one. */
static void emit_scores(hcg_emit *e, const query *c) {
    unsigned lanes = e->level->lanes;
    LLVMValueRef acc[64], to = plus(e, c->count, hcg_i64(e, 1 - (int64_t)lanes));
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), to, hcg_i64(e, lanes), "keys", 0, NULL);
    dot_keys(e, c, l.index, lanes, acc);
    LLVMValueRef v = LLVMBuildFMul(e->b, sum_each(e, acc), hcg_splat(e, c->a->scale), "");
    hcg_store(e, hcg_at(e, e->f32, c->scores, l.index), v, NULL);
    hcg_loop_end(e, &l, NULL);
    hcg_loop rest = hcg_loop_begin(e, l.index, c->count, hcg_i64(e, 1), "key", 0, NULL);
    dot_keys(e, c, rest.index, 1, acc);
    LLVMValueRef one =
        LLVMBuildFMul(e->b, hcg_sum_lanes(e, acc[0]), LLVMConstReal(e->f32, c->a->scale), "");
    hcg_store(e, hcg_at(e, e->f32, c->scores, rest.index), one, NULL);
    hcg_loop_end(e, &rest, NULL);
}

/* o[at + i lanes] += sum_s p_s v_s[at + i lanes] for `n` vectors, the last with `valid` lanes */
static void add_values(hcg_emit *e, const query *c, LLVMValueRef at, unsigned n,
                       LLVMValueRef valid) {
    LLVMValueRef acc[M_VECTORS], o = hcg_at(e, e->f32, c->o, at);
    LLVMValueRef v = hcg_at(e, e->f32, c->rows, at);
    for (unsigned i = 0; i < n; i++)
        acc[i] = hcg_load(e, HIR_F32, hcg_at(e, e->f32, o, hcg_i64(e, i * e->level->lanes)), NULL);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), c->count, hcg_i64(e, 1), "value", n, acc);
    LLVMValueRef p = hcg_load_scalar(e, HIR_F32, hcg_at(e, e->f32, c->scores, l.index));
    LLVMValueRef row = hcg_at(e, e->f32, v, mul_const(e, l.index, c->a->groups * c->a->m));
    p = hcg_splat_value(e, p);
    for (unsigned i = 0; i < n; i++) {
        LLVMValueRef place = hcg_at(e, e->f32, row, hcg_i64(e, i * e->level->lanes));
        LLVMValueRef x = hcg_load(e, HIR_F32, place, i + 1 == n ? valid : NULL);
        acc[i] = hcg_fma(e, p, x, l.carried[i]);
    }
    hcg_loop_end(e, &l, acc);
    for (unsigned i = 0; i < n; i++)
        hcg_store(e, hcg_at(e, e->f32, o, hcg_i64(e, i * e->level->lanes)), l.carried[i], NULL);
}

static void emit_values(hcg_emit *e, const query *c) {
    int64_t lanes = e->level->lanes, chunk = lanes * M_VECTORS;
    int64_t whole = c->a->m / chunk * chunk, left = c->a->m - whole;
    if (whole) {
        hcg_loop l =
            hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, whole), hcg_i64(e, chunk), "m", 0, NULL);
        add_values(e, c, l.index, M_VECTORS, NULL);
        hcg_loop_end(e, &l, NULL);
    }
    if (left)
        add_values(e, c, hcg_i64(e, whole), (unsigned)((left + lanes - 1) / lanes),
                   left % lanes ? hcg_i64(e, left % lanes) : NULL);
}

static void prefetch_lines(hcg_emit *e, LLVMValueRef p, int64_t n) {
    for (int64_t j = 0; j < n; j += LINE)
        hcg_prefetch(e, p, j * 4);
}

/* Asks for the block after this one: rows of n floats, `stride` apart. */
static void prefetch_block(hcg_emit *e, LLVMValueRef rows, int64_t n, int64_t stride) {
    enum { CHUNK = 16 * LINE };
    int64_t whole = n / CHUNK * CHUNK;
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, BLOCK), hcg_i64(e, 2 * BLOCK), hcg_i64(e, 1), "ahead",
                                0, NULL);
    LLVMValueRef row = hcg_at(e, e->f32, rows, mul_const(e, l.index, stride));
    if (whole) {
        hcg_loop chunk = hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, whole), hcg_i64(e, CHUNK),
                                        "chunk", 0, NULL);
        prefetch_lines(e, hcg_at(e, e->f32, row, chunk.index), CHUNK);
        hcg_loop_end(e, &chunk, NULL);
    }
    prefetch_lines(e, hcg_at(e, e->f32, row, hcg_i64(e, whole)), n - whole);
    hcg_loop_end(e, &l, NULL);
}

typedef struct turns { /* the query heads that share a key and value head */
    const hcg_attention *a;
    LLVMValueRef scores, states, o; /* scratch: scores of these heads, the rest of all heads */
    int64_t ld;                     /* of o: m rounded up to whole vectors */
    LLVMValueRef row, head;         /* the token, the first of the heads */
} turns;

static hcg_loop each_head_begin(hcg_emit *e, const turns *h, query *c) {
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, h->a->per_group), hcg_i64(e, 1),
                                "head", 0, NULL);
    LLVMValueRef head = plus(e, h->head, l.index);
    c->a = h->a;
    c->number = plus(e, mul_const(e, h->row, h->a->heads), head);
    c->q = hcg_at(e, e->f32, h->a->q, mul_const(e, c->number, h->a->n));
    c->scores = hcg_at(e, e->f32, h->scores, mul_const(e, l.index, HCG_LD_SCORES));
    c->state = hcg_at(e, e->f32, h->states, mul_const(e, head, 2));
    c->o = hcg_at(e, e->f32, h->o, mul_const(e, head, h->ld));
    return l;
}

/* All heads on all blocks of the tile's `count` rows, of keys or of values. */
static void emit_blocks(hcg_emit *e, const turns *h, LLVMValueRef rows, LLVMValueRef count,
                        int64_t n, void (*emit)(hcg_emit *e, const query *c)) {
    int64_t stride = h->a->groups * n;
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), count, hcg_i64(e, BLOCK), "block", 0, NULL);
    query c = {0};
    LLVMValueRef left = LLVMBuildNSWSub(e->b, count, l.index, ""), most = hcg_i64(e, BLOCK);
    LLVMValueRef here = hcg_at(e, e->f32, rows, mul_const(e, l.index, stride));
    prefetch_block(e, here, n, stride);
    hcg_loop head = each_head_begin(e, h, &c);
    c.rows = here;
    c.count =
        LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, left, most, ""), left, most, "");
    c.scores = hcg_at(e, e->f32, c.scores, l.index);
    emit(e, &c);
    hcg_loop_end(e, &head, NULL);
    hcg_loop_end(e, &l, NULL);
}

/* `count` keys and values whose first row of the cache is number `place` (position G + g). */
static void emit_tile(hcg_emit *e, const turns *h, LLVMValueRef place, LLVMValueRef count) {
    const hcg_attention *a = h->a;
    int64_t lanes = e->level->lanes;
    query c = {0};
    emit_blocks(e, h, hcg_at(e, e->f32, a->k, mul_const(e, place, a->n)), count, a->n, emit_scores);
    hcg_loop head = each_head_begin(e, h, &c);
    hcg_softmax s = {.scores = c.scores, .valid = count, .state = c.state, .o = c.o};
    s.n = LLVMBuildAnd(e->b, plus(e, count, hcg_i64(e, lanes - 1)), hcg_i64(e, -lanes), "");
    s.width = hcg_i64(e, h->ld);
    hcg_softmax_tile(e, &s);
    hcg_loop_end(e, &head, NULL);
    emit_blocks(e, h, hcg_at(e, e->f32, a->v, mul_const(e, place, a->m)), count, a->m, emit_values);
}

static hcg_loop each_group_begin(hcg_emit *e, turns *h) {
    hcg_loop l = hcg_loop_begin(e, e->c0, e->c1, hcg_i64(e, 1), "group", 0, NULL);
    h->head = mul_const(e, l.index, h->a->per_group);
    return l;
}

/* One token. Tiles of positions are the outer loop: a page of the cache is visited once. */
static void emit_row(hcg_emit *e, turns *h) {
    const hcg_attention *a = h->a;
    query c = {0};
    hcg_loop group = each_group_begin(e, h);
    hcg_loop start = each_head_begin(e, h, &c);
    hcg_softmax_start(e, c.state, c.o, hcg_i64(e, h->ld));
    hcg_loop_end(e, &start, NULL);
    hcg_loop_end(e, &group, NULL);

    LLVMValueRef seen = plus(e, plus(e, a->past, h->row), hcg_i64(e, 1));
    LLVMValueRef most = hcg_i64(e, HCG_KEYS);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), seen, most, "tile", 0, NULL);
    LLVMValueRef left = LLVMBuildNSWSub(e->b, seen, l.index, "");
    LLVMValueRef count =
        LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, left, most, ""), left, most, "");
    group = each_group_begin(e, h);
    emit_tile(e, h, plus(e, mul_const(e, l.index, a->groups), group.index), count);
    hcg_loop_end(e, &group, NULL);
    hcg_loop_end(e, &l, NULL);

    group = each_group_begin(e, h);
    hcg_loop end = each_head_begin(e, h, &c);
    hcg_softmax_end(e, c.state, c.o, a->m, hcg_at(e, e->f32, a->out, mul_const(e, c.number, a->m)));
    hcg_loop_end(e, &end, NULL);
    hcg_loop_end(e, &group, NULL);
}

void hcg_attention_one(hcg_emit *e, const hcg_attention *a) {
    int64_t lanes = e->level->lanes;
    uint64_t heads = (uint64_t)a->heads;
    turns h = {.a = a, .ld = (a->m + lanes - 1) / lanes * lanes};
    h.scores = hcg_scratch(e, (uint64_t)a->per_group * HCG_LD_SCORES * 4);
    h.states = hcg_scratch(e, heads * 8);
    h.o = hcg_scratch(e, heads * (uint64_t)h.ld * 4);
    hcg_loop rows = hcg_loop_begin(e, e->r0, e->r1, hcg_i64(e, 1), "row", 0, NULL);
    h.row = rows.index;
    emit_row(e, &h);
    hcg_loop_end(e, &rows, NULL);
}
