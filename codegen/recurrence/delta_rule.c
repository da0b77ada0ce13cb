/* The kernel form delta_rule of kernel.sequence: for each token and head
 *
 *     S = diag(d) S     e = beta (v - S^T k)     S = S + k e^T     o = scale S^T q
 *
 * with S [n, m] in the state. The columns of S (value channels) are independent of each other, so
 * each thread computes some of them, for all tokens of the call. The rows of S are channels of k
 * and q, and a row holds value channels side by side in the lanes of vectors. Nothing is summed
 * across lanes.
 *
 * With S before the decay, S^T k of the formula is S^T (d k), and o is scale (S^T (d q) + e (k.q)):
 * d k, d q and k.q are the same for all columns and are computed first, for some tokens at once.
 * A block of columns then goes through S once a token:
 *
 *     s = d_i S[i] + k_i e      S[i] = s      p += (d k)'_i s      r += (d q)'_i s
 *
 * where ' is the next token: four operations for an element of S, which stays in the L1 cache. One
 * token alone reads S for p and r and again, from there, to change it. Each element sees the same
 * operations in the same order in both, so that it does not matter how a prompt is cut into calls.
 *
 * With the rule "additive" e is beta v: p is not needed, and all else is the same.
 */
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/stream.h"
#include "codegen/program/contraction.h"
#include "codegen/program/forms.h"

enum {
    COLUMN = 64,     /* value channels of a thread's unit of work: a column of the kernel */
    MOST_VECTORS = 4 /* vectors of a block */
};

typedef struct delta {
    LLVMValueRef q, k, v, decay, beta, state, out;
    int64_t heads, groups, n, m;
    int64_t decays; /* decays of a head: n, or 1 for all rows, or 0: none */
    double scale;
    bool one_token;        /* the call has one token */
    bool additive;         /* nothing is subtracted from v */
    hir_dtype dtype;       /* type of the state */
    int64_t tokens;        /* tokens that are prepared at once */
    LLVMValueRef prepared; /* [tokens][rows of `row`][n] */
    LLVMValueRef products; /* k.q, [tokens] */
    LLVMValueRef own;      /* a block's part of S, f32 [n][vectors] */
} delta;

/* The rows that are prepared for a token. If rows have no decays of their own, d k and d q are k
 * and q, and the one decay of the head is multiplied in where the sums are used. */
enum row { KEYS, QUERIES, DECAYED_KEYS = KEYS + 2, DECAYED_QUERIES, DECAYS = 1 };

/* Value channels from .. to - 1 of one head, and the prepared tokens `first` .. `end` - 1. */
typedef struct piece {
    const delta *a;
    LLVMValueRef head, group, from, to, first, end;
} piece;

/* A block of columns: vectors side by side, the last one of `valid` lanes (NULL: all). */
typedef struct block {
    LLVMValueRef channel; /* channel of the first lane */
    LLVMValueRef valid;
    unsigned vectors;
    LLVMValueRef ahead; /* elements of the state from this block to the next one */
} block;

/* S^T (d k), unless nothing is subtracted, and S^T (d q) of one token, by vector. */
typedef struct sums {
    LLVMValueRef at[2 * MOST_VECTORS];
} sums;

/* The number of sums of a block; the sums of q are the last. */
static unsigned sums_of(const delta *a, const block *b) {
    return (a->additive ? 1 : 2) * b->vectors;
}

/* ---- addresses ------------------------------------------------------------------------------- */
static LLVMValueRef floats_at(hcg_emit *e, LLVMValueRef base, LLVMValueRef index) {
    return hcg_at(e, e->f32, base, index);
}

/* Element 0 of a row [heads, n] of token t. */
static LLVMValueRef row_of(hcg_emit *e, LLVMValueRef base, LLVMValueRef t, int64_t heads,
                           LLVMValueRef head, int64_t n) {
    return floats_at(e, base, hcg_mul_const(e, hcg_add(e, hcg_mul_const(e, t, heads), head), n));
}

static LLVMValueRef beta_of(hcg_emit *e, const piece *p, LLVMValueRef t) {
    return hcg_splat_value(
        e, hcg_load_scalar(e, HIR_F32, row_of(e, p->a->beta, t, p->a->heads, p->head, 1)));
}

static bool has_decayed(const delta *a) {
    return a->decays > 1;
}

static int64_t rows_of_token(const delta *a) {
    return has_decayed(a) ? 4 : 2;
}

static LLVMValueRef prepared(hcg_emit *e, const piece *p, int row, LLVMValueRef t) {
    const delta *a = p->a;
    LLVMValueRef at = hcg_mul_const(e, hcg_sub(e, t, p->first), rows_of_token(a) * a->n);
    return floats_at(e, floats_at(e, a->prepared, at), hcg_i64(e, row * a->n));
}

/* The address of vector v of row i of a block in the state, */
static LLVMValueRef state_vector(hcg_emit *e, const piece *p, const block *b, LLVMValueRef i,
                                 unsigned v) {
    const delta *a = p->a;
    LLVMValueRef row = hcg_add(e, hcg_mul_const(e, p->head, a->n), i);
    LLVMValueRef at = hcg_add(e, hcg_mul_const(e, row, a->m), b->channel);
    at = hcg_at(e, hcg_element(e, a->dtype), a->state, at);
    return hcg_at(e, hcg_element(e, a->dtype), at, hcg_i64(e, v * e->level->lanes));
}

/* and its address in the thread's own copy. */
static LLVMValueRef block_vector(hcg_emit *e, const piece *p, const block *b, LLVMValueRef i,
                                 unsigned v) {
    const int64_t lanes = e->level->lanes;
    LLVMValueRef row = floats_at(e, p->a->own, hcg_mul_const(e, i, b->vectors * lanes));
    return floats_at(e, row, hcg_i64(e, v * lanes));
}

static LLVMValueRef lanes_of(const block *b, unsigned v) {
    return v + 1 == b->vectors ? b->valid : NULL;
}

/* Reads the state. With one token, where reading is most of the work, the first pass prefetches
 * the same place of the next block. */
static LLVMValueRef load_state(hcg_emit *e, const piece *p, const block *b, LLVMValueRef i,
                               unsigned v, bool first) {
    LLVMValueRef at = state_vector(e, p, b, i, v);
    if (p->a->one_token && first)
        hcg_prefetch(e, hcg_at(e, hcg_element(e, p->a->dtype), at, b->ahead), 0);
    return hcg_load(e, p->a->dtype, at, lanes_of(b, v));
}

static void store_state(hcg_emit *e, const piece *p, const block *b, LLVMValueRef i, unsigned v,
                        LLVMValueRef x) {
    hcg_store_as(e, p->a->dtype, state_vector(e, p, b, i, v), x, lanes_of(b, v));
}

static LLVMValueRef load_block(hcg_emit *e, const piece *p, const block *b, LLVMValueRef i,
                               unsigned v) {
    return hcg_load(e, HIR_F32, block_vector(e, p, b, i, v), NULL);
}

/* x rounded to the type of the state. */
static LLVMValueRef rounded(hcg_emit *e, const delta *a, LLVMValueRef x) {
    return a->dtype == HIR_F32 ? x : hcg_widen(e, a->dtype, hcg_narrow(e, a->dtype, x));
}

/* x[i] in all lanes */
static LLVMValueRef broadcast(hcg_emit *e, LLVMValueRef x, LLVMValueRef i) {
    return hcg_splat_value(e, hcg_load_scalar(e, HIR_F32, floats_at(e, x, i)));
}

/* ---- what all columns share ------------------------------------------------------------------ */
/* A vector of a row [heads, n] of token t, from element i on. */
static LLVMValueRef take(hcg_emit *e, LLVMValueRef base, LLVMValueRef t, int64_t heads,
                         LLVMValueRef head, int64_t n, LLVMValueRef i, LLVMValueRef valid) {
    return hcg_load(e, HIR_F32, floats_at(e, row_of(e, base, t, heads, head, n), i), valid);
}

static void keep(hcg_emit *e, const piece *p, int row, LLVMValueRef t, LLVMValueRef i,
                 LLVMValueRef x, LLVMValueRef valid) {
    hcg_store(e, floats_at(e, prepared(e, p, row, t), i), x, valid);
}

/* Prepares the elements from i on of a token: k.q in lanes, and the rows in memory. */
static LLVMValueRef prepare_some(hcg_emit *e, const piece *p, LLVMValueRef t, LLVMValueRef i,
                                 LLVMValueRef valid, LLVMValueRef product) {
    const delta *a = p->a;
    LLVMValueRef k = take(e, a->k, t, a->groups, p->group, a->n, i, valid);
    LLVMValueRef q = take(e, a->q, t, a->groups, p->group, a->n, i, valid);
    keep(e, p, KEYS, t, i, k, valid);
    if (has_decayed(a)) {
        LLVMValueRef d = take(e, a->decay, t, a->heads, p->head, a->n, i, valid);
        keep(e, p, DECAYS, t, i, d, valid);
        keep(e, p, DECAYED_KEYS, t, i, hcg_fmul(e, d, k), valid);
        keep(e, p, DECAYED_QUERIES, t, i, hcg_fmul(e, d, q), valid);
    } else
        keep(e, p, QUERIES, t, i, q, valid);
    return hcg_fma(e, k, q, product);
}

/* Prefetches elements from .. to - 1 of a row [heads, n] of token t. */
static void prefetch_row(hcg_emit *e, LLVMValueRef base, LLVMValueRef t, int64_t heads,
                         LLVMValueRef head, int64_t n, LLVMValueRef from, LLVMValueRef to) {
    LLVMValueRef row = row_of(e, base, t, heads, head, n);
    LLVMValueRef line = hcg_i64(e, e->level->machine.line / 4);
    hcg_loop l = hcg_loop_begin(e, from, to, line, "line", 0, NULL);
    hcg_prefetch(e, floats_at(e, row, l.index), 0);
    hcg_loop_end(e, &l, NULL);
}

/* Prefetches the rows of a token of the next group to be prepared, while there is arithmetic to
 * do: the rows of one head are far from each other, so that no hardware prefetcher finds them. The
 * first block of a piece does it for all blocks. */
static void prefetch_token(hcg_emit *e, const piece *p, const block *b, LLVMValueRef t) {
    const delta *a = p->a;
    if (a->one_token) return;
    LLVMValueRef zero = hcg_i64(e, 0), n = hcg_i64(e, a->n), later;
    LLVMValueRef first = LLVMBuildICmp(e->b, LLVMIntEQ, b->channel, p->from, "");
    hcg_loop l = hcg_loop_begin(e, zero, LLVMBuildZExt(e->b, first, e->i64, ""), hcg_i64(e, 1),
                                "ahead", 0, NULL);
    later = hcg_add(e, t, hcg_i64(e, a->tokens));
    prefetch_row(e, a->k, later, a->groups, p->group, a->n, zero, n);
    prefetch_row(e, a->q, later, a->groups, p->group, a->n, zero, n);
    if (has_decayed(a)) prefetch_row(e, a->decay, later, a->heads, p->head, a->n, zero, n);
    prefetch_row(e, a->v, later, a->heads, p->head, a->m, p->from, p->to);
    hcg_loop_end(e, &l, NULL);
}

static void prepare_tokens(hcg_emit *e, const piece *p) {
    const delta *a = p->a;
    const int64_t lanes = e->level->lanes, whole = a->n / lanes * lanes;
    LLVMValueRef none = LLVMConstNull(e->vec);
    hcg_loop tokens = hcg_loop_begin(e, p->first, p->end, hcg_i64(e, 1), "prepare", 0, NULL);
    LLVMValueRef t = tokens.index;
    hcg_loop l =
        hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, whole), hcg_i64(e, lanes), "element", 1, &none);
    LLVMValueRef product = prepare_some(e, p, t, l.index, NULL, l.carried[0]);
    hcg_loop_end(e, &l, &product);
    product = l.carried[0];
    if (whole < a->n)
        product = prepare_some(e, p, t, hcg_i64(e, whole), hcg_i64(e, a->n - whole), product);
    LLVMValueRef to = floats_at(e, a->products, hcg_sub(e, t, p->first));
    hcg_store(e, to, hcg_sum_lanes(e, product), NULL);
    hcg_loop_end(e, &tokens, NULL);
}

/* ---- passes over S --------------------------------------------------------------------------- */
/* What a pass multiplies S with: the rows of one token, which change S, and the rows of the next
 * token (or the first), which are summed. */
typedef struct factors {
    LLVMValueRef k, decay, for_k, for_q;
    LLVMValueRef one_decay;     /* the head's decay in all lanes; NULL: each row has its own, or
                                   there is none */
    const LLVMValueRef *change; /* e, by vector */
} factors;

static factors to_sum(hcg_emit *e, const piece *p, LLVMValueRef t) {
    const bool decayed = has_decayed(p->a);
    return (factors){.for_k = prepared(e, p, decayed ? DECAYED_KEYS : KEYS, t),
                     .for_q = prepared(e, p, decayed ? DECAYED_QUERIES : QUERIES, t)};
}

/* The one decay of the head, in all lanes. */
static LLVMValueRef one_decay(hcg_emit *e, const piece *p, LLVMValueRef t) {
    LLVMValueRef at = row_of(e, p->a->decay, t, p->a->heads, p->head, 1);
    return hcg_splat_value(e, hcg_load_scalar(e, HIR_F32, at));
}

static void to_change(hcg_emit *e, const piece *p, LLVMValueRef t, const LLVMValueRef *change,
                      factors *f) {
    f->k = prepared(e, p, KEYS, t);
    f->change = change;
    if (has_decayed(p->a)) f->decay = prepared(e, p, DECAYS, t);
    if (p->a->decays == 1) f->one_decay = one_decay(e, p, t);
}

/* Goes through S once, reading it from `from` and writing it to `to`: changes S if f has a change,
 * and sums if f has rows to multiply S with. */
enum place { OF_STATE, OF_BLOCK, NOWHERE };
static sums pass(hcg_emit *e, const piece *p, const block *b, const factors *f, enum place from,
                 enum place to) {
    const delta *a = p->a;
    const unsigned n = f->for_q ? sums_of(a, b) : 0, of_q = n - (n ? b->vectors : 0);
    sums s;
    for (unsigned v = 0; v < n; v++)
        s.at[v] = LLVMConstNull(e->vec);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, a->n), hcg_i64(e, 1), "row", n, s.at);
    LLVMValueRef i = l.index, k = f->change ? broadcast(e, f->k, i) : NULL, decay = f->one_decay;
    LLVMValueRef for_k = of_q ? broadcast(e, f->for_k, i) : NULL;
    LLVMValueRef for_q = n ? broadcast(e, f->for_q, i) : NULL;
    if (f->decay) decay = broadcast(e, f->decay, i);
    for (unsigned v = 0; v < b->vectors; v++) {
        LLVMValueRef x =
            from == OF_STATE ? load_state(e, p, b, i, v, !f->change) : load_block(e, p, b, i, v);
        if (f->change) {
            if (decay) x = hcg_fmul(e, x, decay);
            x = rounded(e, a, hcg_fma(e, f->change[v], k, x));
        }
        if (to == OF_STATE)
            store_state(e, p, b, i, v, x);
        else if (to == OF_BLOCK)
            hcg_store(e, block_vector(e, p, b, i, v), x, NULL);
        if (!n) continue;
        if (of_q) s.at[v] = hcg_fma(e, x, for_k, l.carried[v]);
        s.at[of_q + v] = hcg_fma(e, x, for_q, l.carried[of_q + v]);
    }
    hcg_loop_end(e, &l, s.at);
    for (unsigned v = 0; v < n; v++)
        s.at[v] = l.carried[v];
    return s;
}

/* ---- tokens ---------------------------------------------------------------------------------- */
/* Computes the change of S and the result of token t from the token's sums. */
static void finish(hcg_emit *e, const piece *p, const block *b, LLVMValueRef t, const sums *s,
                   LLVMValueRef *change) {
    const delta *a = p->a;
    const unsigned of_q = sums_of(a, b) - b->vectors;
    LLVMValueRef at = hcg_add(e, hcg_mul_const(e, t, a->heads), p->head);
    LLVMValueRef beta = a->beta ? beta_of(e, p, t) : NULL;
    at = hcg_add(e, hcg_mul_const(e, at, a->m), b->channel);
    LLVMValueRef product = broadcast(e, a->products, hcg_sub(e, t, p->first)), decay = NULL;
    if (a->decays == 1) decay = one_decay(e, p, t);
    for (unsigned v = 0; v < b->vectors; v++) {
        LLVMValueRef lanes = lanes_of(b, v), o = s->at[of_q + v];
        LLVMValueRef here = hcg_add(e, at, hcg_i64(e, v * e->level->lanes));
        if (decay) o = hcg_fmul(e, o, decay);
        change[v] = hcg_load(e, HIR_F32, floats_at(e, a->v, here), lanes);
        if (of_q) {
            LLVMValueRef read = decay ? hcg_fmul(e, s->at[v], decay) : s->at[v];
            change[v] = hcg_fsub(e, change[v], read);
        }
        if (beta) change[v] = hcg_fmul(e, beta, change[v]);
        o = hcg_fma(e, change[v], product, o);
        if (a->scale != 1) o = hcg_fmul(e, o, hcg_splat(e, a->scale));
        hcg_store(e, floats_at(e, a->out, here), o, lanes);
    }
}

/* Computes all prepared tokens for one block of columns. */
static void emit_block(hcg_emit *e, const piece *p, const block *b) {
    const delta *a = p->a;
    LLVMValueRef one = hcg_i64(e, 1), last = hcg_sub(e, p->end, one), change[MOST_VECTORS];
    factors f = to_sum(e, p, p->first);
    sums s = pass(e, p, b, &f, OF_STATE, a->one_token ? NOWHERE : OF_BLOCK);
    if (a->one_token) {
        finish(e, p, b, last, &s, change);
        f = (factors){0};
        to_change(e, p, last, change, &f);
        pass(e, p, b, &f, OF_STATE, OF_STATE);
        return;
    }
    hcg_loop l = hcg_loop_begin(e, p->first, last, one, "token", sums_of(a, b), s.at);
    for (unsigned i = 0; i < sums_of(a, b); i++)
        s.at[i] = l.carried[i];
    prefetch_token(e, p, b, l.index);
    finish(e, p, b, l.index, &s, change);
    f = to_sum(e, p, hcg_add(e, l.index, one));
    to_change(e, p, l.index, change, &f);
    s = pass(e, p, b, &f, OF_BLOCK, OF_BLOCK);
    hcg_loop_end(e, &l, s.at);
    for (unsigned i = 0; i < sums_of(a, b); i++)
        s.at[i] = l.carried[i];
    finish(e, p, b, last, &s, change);
    f = (factors){0};
    to_change(e, p, last, change, &f);
    pass(e, p, b, &f, OF_BLOCK, OF_STATE);
}

/* ---- columns --------------------------------------------------------------------------------- */
static unsigned block_vectors(const hcg_emit *e) {
    return e->level->registers >= 32 ? MOST_VECTORS : MOST_VECTORS / 2;
}

/* The block of a piece that begins at a channel. */
static block block_at(hcg_emit *e, const piece *p, LLVMValueRef channel, unsigned vectors) {
    const delta *a = p->a;
    block b = {.channel = channel, .vectors = vectors};
    LLVMValueRef width = hcg_i64(e, (int64_t)vectors * e->level->lanes);
    LLVMValueRef next_head = hcg_sub(e, hcg_i64(e, a->n * a->m), channel);
    LLVMValueRef more = LLVMBuildICmp(e->b, LLVMIntSLT, hcg_add(e, channel, width), p->to, "");
    b.ahead = LLVMBuildSelect(e->b, more, width, next_head, "ahead");
    return b;
}

/* Computes blocks of `vectors` from channel `from` on that end within the piece; returns where the
 * rest begins. */
static LLVMValueRef emit_blocks(hcg_emit *e, const piece *p, LLVMValueRef from, unsigned vectors) {
    const int64_t width = (int64_t)vectors * e->level->lanes;
    LLVMValueRef end = hcg_sub(e, p->to, hcg_i64(e, width - 1));
    hcg_loop l = hcg_loop_begin(e, from, end, hcg_i64(e, width), "block", 0, NULL);
    const block b = block_at(e, p, l.index, vectors);
    emit_block(e, p, &b);
    hcg_loop_end(e, &l, NULL);
    return l.index;
}

static void emit_channels(hcg_emit *e, const piece *p) {
    const int64_t lanes = e->level->lanes, m = p->a->m, rest = m % lanes;
    const unsigned most = block_vectors(e);
    LLVMValueRef from = p->from;
    if (m >= lanes * (int64_t)most) from = emit_blocks(e, p, from, most);
    if (m % (lanes * (int64_t)most) >= lanes) from = emit_blocks(e, p, from, 1);
    if (!rest) return;
    hcg_loop l = hcg_loop_begin(e, from, p->to, hcg_i64(e, lanes), "rest", 0, NULL);
    block b = block_at(e, p, l.index, 1);
    b.valid = hcg_i64(e, rest);
    emit_block(e, p, &b);
    hcg_loop_end(e, &l, NULL);
}

static int64_t columns_of_head(int64_t m) {
    return (m + COLUMN - 1) / COLUMN;
}

/* The columns among c0 .. c1 - 1 that belong to this head. */
static void emit_head(hcg_emit *e, const delta *a, LLVMValueRef head) {
    LLVMValueRef zero = hcg_i64(e, 0), first = hcg_mul_const(e, head, columns_of_head(a->m));
    piece p = {.a = a, .head = head};
    p.group = LLVMBuildUDiv(e->b, head, hcg_i64(e, a->heads / a->groups), "group");
    p.from = hcg_mul_const(e, hcg_larger(e, hcg_sub(e, e->c0, first), zero), COLUMN);
    p.to = hcg_mul_const(e, hcg_sub(e, e->c1, first), COLUMN);
    p.to = hcg_smaller(e, p.to, hcg_i64(e, a->m));
    hcg_loop l = hcg_loop_begin(e, e->r0, e->r1, hcg_i64(e, a->tokens), "tokens", 0, NULL);
    p.first = l.index;
    p.end = hcg_smaller(e, hcg_add(e, l.index, hcg_i64(e, a->tokens)), e->r1);
    prepare_tokens(e, &p);
    emit_channels(e, &p);
    hcg_loop_end(e, &l, NULL);
}

static void emit_heads(hcg_emit *e, const delta *a) {
    LLVMValueRef each = hcg_i64(e, columns_of_head(a->m));
    LLVMValueRef from = LLVMBuildUDiv(e->b, e->c0, each, ""), to = hcg_divide_up(e, e->c1, each);
    hcg_loop l = hcg_loop_begin(e, from, to, hcg_i64(e, 1), "head", 0, NULL);
    emit_head(e, a, l.index);
    hcg_loop_end(e, &l, NULL);
}

/* ---- the kernel ------------------------------------------------------------------------------ */
/* The number of tokens that are prepared at once: their rows stay in a part of the L2 cache. */
static void make_scratch(hcg_emit *e, delta *a) {
    enum { MOST_TOKENS = 32, PART = 8 };
    const int64_t token = rows_of_token(a) * a->n * 4;
    a->tokens = e->level->machine.l2 / PART / token;
    if (a->tokens > MOST_TOKENS) a->tokens = MOST_TOKENS;
    if (a->tokens < 1) a->tokens = 1;
    a->own = hcg_scratch(e, (uint64_t)(a->n * block_vectors(e) * e->level->lanes) * 4);
    a->prepared = hcg_scratch(e, (uint64_t)(a->tokens * token));
    a->products = hcg_scratch(e, (uint64_t)a->tokens * 4);
}

static bool emit_delta_rule(hcg_emit *e, const hcg_kernel *k) {
    const hir_module *m = e->p->m;
    const hir_id id = hir_form_op(m, k->op);
    const hir_op *op = hir_op_at(m, id);
    const hir_type q = hir_ref_type(m, op->args[0]), v = hir_ref_type(m, op->args[2]);
    delta a = {.heads = v.dim[1], .groups = q.dim[1], .n = q.dim[2], .m = v.dim[2]};
    LLVMValueRef *const operands[] = {&a.q, &a.k, &a.v, &a.decay, &a.beta, &a.state};
    const size_t errors = e->diags->errors;
    if (op->args[3].kind != HIR_REF_NONE) a.decays = hir_ref_type(m, op->args[3]).dim[2];
    a.scale = hir_attr_float(op, HIR_A_SCALE, 1);
    a.dtype = hir_ref_type(m, op->args[5]).dtype;
    a.one_token = k->phase == HIR_DECODE;
    a.additive = hir_is_additive(op);
    for (uint32_t i = 0; i < 6; i++)
        if (op->args[i].kind != HIR_REF_NONE)
            *operands[i] = hcg_arg(e, k, hir_through_reshapes(m, op->args[i]));
    a.out = hcg_arg(e, k, hir_value_ref(hir_op_at(m, k->op)->results[0]));
    if (e->diags->errors != errors) return false;
    make_scratch(e, &a);
    hcg_at_op(e, id);
    emit_heads(e, &a);
    return true;
}

static int64_t columns(const hir_module *m, hir_id kernel) {
    const hir_type v = hir_arg_type(m, hir_form_op(m, kernel), 2);
    return v.dim[1] * columns_of_head(v.dim[2]);
}

const hcg_form hcg_form_delta_rule = {.emit = emit_delta_rule, .columns = columns};
