/* Attention of one token (T = 1): the keys and values of a head are read once from memory, a tile
 * at a time, and the query heads that share them take the tile in turn from the first level cache.
 *
 * Scores of as many keys as a vector has lanes are made at once: one accumulator per key, then a
 * tree of shuffles and adds that leaves key i's sum in lane i.
 */
#include "codegen/attention.h"
#include "codegen/emit_math.h"

enum { M_VECTORS = 8 /* of an output row held in registers while the tile's values pass */ };

typedef struct query {
    const hcg_attention *a;
    LLVMValueRef q, keys, values; /* of this head: the query; row 0 of the tile */
    LLVMValueRef count;           /* keys in the tile */
    LLVMValueRef scores, state, o;
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
    int64_t lanes = e->level->lanes, whole = c->a->n / lanes * lanes;
    LLVMValueRef key = hcg_at(e, e->f32, c->keys, mul_const(e, s, c->a->groups * c->a->n));
    for (unsigned i = 0; i < keys; i++)
        acc[i] = LLVMConstNull(e->vec);
    hcg_loop l =
        hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, whole), hcg_i64(e, lanes), "dot", keys, acc);
    for (unsigned i = 0; i < keys; i++)
        acc[i] = l.carried[i];
    dot_step(e, c, key, keys, l.index, NULL, acc);
    hcg_loop_end(e, &l, acc);
    for (unsigned i = 0; i < keys; i++)
        acc[i] = l.carried[i];
    if (whole < c->a->n)
        dot_step(e, c, key, keys, hcg_i64(e, whole), hcg_i64(e, c->a->n - whole), acc);
}

/* scores[s] = scale q . k_s for the tile's keys: vectors of them, then the rest one by one. */
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
    LLVMValueRef v = hcg_at(e, e->f32, c->values, at);
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

static void emit_query(hcg_emit *e, const query *c, LLVMValueRef width) {
    int64_t lanes = e->level->lanes;
    emit_scores(e, c);
    LLVMValueRef n = plus(e, c->count, hcg_i64(e, lanes - 1));
    n = LLVMBuildAnd(e->b, n, hcg_i64(e, -lanes), "");
    hcg_softmax s = {.scores = c->scores, .valid = c->count, .n = n, .state = c->state};
    s.o = c->o, s.width = width;
    hcg_softmax_tile(e, &s);
    emit_values(e, c);
}

typedef struct head_group { /* scratch of the query heads that share keys */
    LLVMValueRef scores, states, o;
    int64_t ld; /* of o: m rounded up to whole vectors */
} head_group;

static query query_of(hcg_emit *e, const hcg_attention *a, const head_group *h, LLVMValueRef i) {
    query c = {.a = a, .scores = h->scores};
    c.state = hcg_at(e, e->f32, h->states, mul_const(e, i, 2));
    c.o = hcg_at(e, e->f32, h->o, mul_const(e, i, h->ld));
    return c;
}

/* All keys of group g for the token at `row`. */
static void emit_group(hcg_emit *e, const hcg_attention *a, const head_group *h, LLVMValueRef row,
                       LLVMValueRef g) {
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), heads = hcg_i64(e, a->per_group);
    LLVMValueRef width = hcg_i64(e, h->ld);
    LLVMValueRef first = plus(e, mul_const(e, row, a->heads), mul_const(e, g, a->per_group));
    hcg_loop start = hcg_loop_begin(e, zero, heads, one, "head", 0, NULL);
    query c = query_of(e, a, h, start.index);
    hcg_softmax_start(e, c.state, c.o, width);
    hcg_loop_end(e, &start, NULL);

    LLVMValueRef seen = plus(e, plus(e, a->past, row), one);
    hcg_loop tile = hcg_loop_begin(e, zero, seen, hcg_i64(e, HCG_KEYS), "tile", 0, NULL);
    LLVMValueRef left = LLVMBuildNSWSub(e->b, seen, tile.index, ""), most = hcg_i64(e, HCG_KEYS);
    LLVMValueRef count =
        LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, left, most, ""), left, most, "");
    LLVMValueRef place = plus(e, mul_const(e, tile.index, a->groups), g);
    hcg_loop head = hcg_loop_begin(e, zero, heads, one, "head", 0, NULL);
    c = query_of(e, a, h, head.index);
    c.count = count;
    c.q = hcg_at(e, e->f32, a->q, mul_const(e, plus(e, first, head.index), a->n));
    c.keys = hcg_at(e, e->f32, a->k, mul_const(e, place, a->n));
    c.values = hcg_at(e, e->f32, a->v, mul_const(e, place, a->m));
    emit_query(e, &c, width);
    hcg_loop_end(e, &head, NULL);
    hcg_loop_end(e, &tile, NULL);

    hcg_loop end = hcg_loop_begin(e, zero, heads, one, "head", 0, NULL);
    c = query_of(e, a, h, end.index);
    hcg_softmax_end(e, c.state, c.o, a->m,
                    hcg_at(e, e->f32, a->out, mul_const(e, plus(e, first, end.index), a->m)));
    hcg_loop_end(e, &end, NULL);
}

void hcg_attention_one(hcg_emit *e, const hcg_attention *a) {
    int64_t lanes = e->level->lanes;
    head_group h = {.ld = (a->m + lanes - 1) / lanes * lanes};
    h.scores = hcg_scratch(e, HCG_LD_SCORES * 4);
    h.states = hcg_scratch(e, (uint64_t)a->per_group * 8);
    h.o = hcg_scratch(e, (uint64_t)a->per_group * (uint64_t)h.ld * 4);
    hcg_loop rows = hcg_loop_begin(e, e->r0, e->r1, hcg_i64(e, 1), "row", 0, NULL);
    hcg_loop groups = hcg_loop_begin(e, e->c0, e->c1, hcg_i64(e, 1), "group", 0, NULL);
    emit_group(e, a, &h, rows.index, groups.index);
    hcg_loop_end(e, &groups, NULL);
    hcg_loop_end(e, &rows, NULL);
}
