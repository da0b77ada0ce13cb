/* The kernel form delta_rule_grad of kernel.sequence: the gradients of the operands of the gated
 * delta rule. For each head, token by token from the last to the first, with S the state before the
 * token, e = v - S'^T k its change (S' = diag(d) S), and R the gradient of the state after it:
 *
 *     c = R^T k    de = beta c    dv = de    dbeta = c.e    dk = beta R e - d (S de)
 *     dq = scale (d (S dy) + beta k (e.dy))      R' = R - k de^T     ddecay = rows of R' times S
 *     R = diag(d) R' + scale q dy^T, with q and dy of the token before: R of the next step
 *
 * Columns of S and R (value channels) are independent of each other, as in delta_rule: a block of
 * them, some vectors wide, goes through all tokens; rows are channels of k and q. One pass over R
 * and S makes a step: what is summed over rows stays in registers; what is summed over value
 * channels is kept for each row, summed over lanes for as many rows as a vector has lanes at once,
 * and added to dq, dk and ddecay, block by block and head by head of those that share q and k.
 *
 * Columns of the kernel are parts of the heads of q and k. A part is some of the UNIT value channels
 * of the heads that share one, and heads of q and k are cut into several where they are fewer than
 * PARTS: the shape alone says into how many, so that results do not depend on the number of threads.
 * The first part adds up dq, dk, ddecay and dbeta in the results, each other one in memory that
 * threads share, and the thread that finishes the last part adds those, in the order of the parts.
 *
 * The states are made forward, and used backward. Of a sequence of any length those before each
 * CHUNK-th token are kept, in memory of the call (hrt_frame.shared); the states of a chunk are made
 * again from the one at its border. With 16 tokens the states of a chunk, 128 x 64 elements each,
 * are 512 KB, half of the L2 cache of the levels with vectors of 16, and the states at borders take
 * a sixteenth of n m floats for each token and head. Longer chunks would leave the cache, shorter
 * ones cost more memory. For 512 tokens of 4 heads of 128 x 128 with decays of rows, one thread of
 * an Emerald Rapids took 9.3 ms; with blocks of half the width 12.
 */
#include "codegen/attention/attention_tile.h"
#include "codegen/gradient/attention_parts.h"
#include "codegen/gradient/attention_queries.h"

enum { CHUNK = 16, MOST_VECTORS = 4, PARTS = 16, UNIT = 64 };

/* What is summed over the value channels of the heads that share q and k: a row of each for a token
 * and a head of q and k. */
enum sum { SUM_Q, SUM_K, SUM_DECAY, SUM_BETA, SUMS };

typedef struct delta {
    LLVMValueRef q, k, v, decay, beta, dy; /* decay, beta NULL: 1 */
    LLVMValueRef dv;
    hcg_gathered sums[SUMS]; /* of the present part */
    int64_t heads, groups, n, m;
    int64_t decays; /* of a head: n, or 1 for all rows, or 0: none */
    double scale;
    bool additive;        /* e is v: S does not change it */
    LLVMValueRef borders; /* S before each chunk: f32 [chunks][heads][n][m] */
    LLVMValueRef others;  /* sums of parts but the first: f32 [groups][parts - 1][T of each sum] */
    /* Of a block, with its vectors side by side, in scratch: */
    LLVMValueRef states;  /* S before each token of a chunk, [CHUNK][n][vectors] */
    LLVMValueRef changes; /* e of each, [CHUNK][vectors] */
    LLVMValueRef r;       /* R, [n][vectors] */
    LLVMValueRef by_row;  /* what is to be summed over lanes, [ROW_SUMS][n, whole vectors][lanes] */
} delta;

enum row_sum { OF_Q, OF_K, OF_DECAY, ROW_SUMS };

/* A block of columns of a head: vectors side by side, the last one of `valid` lanes (NULL: all). */
typedef struct block {
    const delta *a;
    LLVMValueRef head, group, channel, valid;
    unsigned vectors;
} block;

/* ---- addresses ------------------------------------------------------------------------------- */
static LLVMValueRef floats_at(hcg_emit *e, LLVMValueRef base, LLVMValueRef index) {
    return hcg_at(e, e->f32, base, index);
}

/* Element 0 of a row [heads, n] of token t. */
static LLVMValueRef row_of(hcg_emit *e, LLVMValueRef base, LLVMValueRef t, int64_t heads,
                           LLVMValueRef head, int64_t n) {
    return floats_at(e, base, hcg_mul_const(e, hcg_add(e, hcg_mul_const(e, t, heads), head), n));
}

static LLVMValueRef key_row(hcg_emit *e, const block *b, LLVMValueRef base, LLVMValueRef t) {
    return row_of(e, base, t, b->a->groups, b->group, b->a->n);
}

static LLVMValueRef decay_row(hcg_emit *e, const block *b, LLVMValueRef base, LLVMValueRef t) {
    return row_of(e, base, t, b->a->heads, b->head, b->a->decays);
}

static LLVMValueRef beta_at(hcg_emit *e, const block *b, LLVMValueRef base, LLVMValueRef t) {
    return row_of(e, base, t, b->a->heads, b->head, 1);
}

/* Element 0 of what heads have of a sum; `of` elements each. */
static LLVMValueRef sum_at(hcg_emit *e, const block *b, enum sum sum, LLVMValueRef t, int64_t of) {
    LLVMValueRef row = hcg_gathered_at(e, &b->a->sums[sum], t);
    const int64_t each = b->a->heads / b->a->groups;
    LLVMValueRef head = hcg_sub(e, b->head, hcg_mul_const(e, b->group, each));
    return floats_at(e, row, hcg_mul_const(e, head, of));
}

/* x[i] in all lanes */
static LLVMValueRef broadcast(hcg_emit *e, LLVMValueRef x, LLVMValueRef i) {
    return hcg_splat_value(e, hcg_load_scalar(e, HIR_F32, floats_at(e, x, i)));
}

static LLVMValueRef lanes_of(const block *b, unsigned v) {
    return v + 1 == b->vectors ? b->valid : NULL;
}

/* Vector v of the block's channels of a row [heads, m] of token t. */
static LLVMValueRef value_at(hcg_emit *e, const block *b, LLVMValueRef base, LLVMValueRef t,
                             unsigned v) {
    LLVMValueRef row = row_of(e, base, t, b->a->heads, b->head, b->a->m);
    return floats_at(e, row, hcg_add(e, b->channel, hcg_i64(e, v * e->level->lanes)));
}

static void load_values(hcg_emit *e, const block *b, LLVMValueRef base, LLVMValueRef t,
                        LLVMValueRef *x) {
    for (unsigned v = 0; v < b->vectors; v++)
        x[v] = hcg_load(e, HIR_F32, value_at(e, b, base, t, v), lanes_of(b, v));
}

/* Row i of [..][vectors] in scratch, vector v. */
static LLVMValueRef own_at(hcg_emit *e, const block *b, LLVMValueRef base, LLVMValueRef i,
                           unsigned v) {
    const int64_t lanes = e->level->lanes;
    LLVMValueRef row = floats_at(e, base, hcg_mul_const(e, i, b->vectors * lanes));
    return floats_at(e, row, hcg_i64(e, v * lanes));
}

/* S of a place in a chunk. */
static LLVMValueRef state_of(hcg_emit *e, const block *b, LLVMValueRef place) {
    const int64_t elements = b->a->n * b->vectors * e->level->lanes;
    return floats_at(e, b->a->states, hcg_mul_const(e, place, elements));
}

static int64_t whole_rows(const hcg_emit *e, const delta *a) {
    return (a->n + e->level->lanes - 1) / e->level->lanes * e->level->lanes;
}

static LLVMValueRef row_sum_at(hcg_emit *e, const delta *a, enum row_sum which, LLVMValueRef i) {
    LLVMValueRef at = hcg_add(e, hcg_i64(e, which * whole_rows(e, a)), i);
    return floats_at(e, a->by_row, hcg_mul_const(e, at, e->level->lanes));
}

/* ---- forward --------------------------------------------------------------------------------- */
/* The decay of row i of token t in all lanes; NULL: none. */
static LLVMValueRef decay_of(hcg_emit *e, const block *b, LLVMValueRef t, LLVMValueRef i) {
    if (!b->a->decays) return NULL;
    return broadcast(e, decay_row(e, b, b->a->decay, t), b->a->decays == 1 ? hcg_i64(e, 0) : i);
}

/* What S is multiplied with to read it for token t: k, times the decays of rows. */
static LLVMValueRef reading_key(hcg_emit *e, const block *b, LLVMValueRef t, LLVMValueRef i) {
    LLVMValueRef k = broadcast(e, key_row(e, b, b->a->k, t), i);
    return b->a->decays > 1 ? hcg_fmul(e, k, decay_of(e, b, t, i)) : k;
}

static void no_sums(hcg_emit *e, const block *b, LLVMValueRef *sum) {
    for (unsigned v = 0; v < b->vectors; v++)
        sum[v] = hcg_splat(e, 0);
}

/* S^T k for the first token of a chunk. */
static void read_state(hcg_emit *e, const block *b, LLVMValueRef s, LLVMValueRef t,
                       LLVMValueRef *sum) {
    no_sums(e, b, sum);
    if (b->a->additive) return;
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, b->a->n), hcg_i64(e, 1), "read",
                                b->vectors, sum);
    LLVMValueRef k = reading_key(e, b, t, l.index), next[MOST_VECTORS];
    for (unsigned v = 0; v < b->vectors; v++)
        next[v] =
            hcg_fma(e, hcg_load(e, HIR_F32, own_at(e, b, s, l.index, v), NULL), k, l.carried[v]);
    hcg_loop_end(e, &l, next);
    for (unsigned v = 0; v < b->vectors; v++)
        sum[v] = l.carried[v];
}

/* e of token t, from S^T k; it is kept. */
static void find_change(hcg_emit *e, const block *b, LLVMValueRef t, LLVMValueRef place,
                        const LLVMValueRef *sum, LLVMValueRef *change) {
    const delta *a = b->a;
    load_values(e, b, a->v, t, change);
    LLVMValueRef decay = a->decays == 1 && !a->additive ? decay_of(e, b, t, NULL) : NULL;
    for (unsigned v = 0; v < b->vectors; v++) {
        LLVMValueRef read = decay ? hcg_fmul(e, sum[v], decay) : sum[v];
        if (!a->additive) change[v] = hcg_fsub(e, change[v], read);
        hcg_store(e, own_at(e, b, a->changes, place, v), change[v], NULL);
    }
}

static void times_beta(hcg_emit *e, const block *b, LLVMValueRef t, LLVMValueRef *x) {
    if (!b->a->beta) return;
    LLVMValueRef beta = broadcast(e, beta_at(e, b, b->a->beta, t), hcg_i64(e, 0));
    for (unsigned v = 0; v < b->vectors; v++)
        x[v] = hcg_fmul(e, x[v], beta);
}

/* The state after token t, from that before it; `next`, if there is one, is the token that reads it
 * then: sum is its S^T k. */
static void change_state(hcg_emit *e, const block *b, LLVMValueRef from, LLVMValueRef to,
                         LLVMValueRef t, LLVMValueRef next, LLVMValueRef *change,
                         LLVMValueRef *sum) {
    const delta *a = b->a;
    const unsigned n = next && !a->additive ? b->vectors : 0;
    times_beta(e, b, t, change);
    no_sums(e, b, sum);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, a->n), hcg_i64(e, 1), "row", n, sum);
    LLVMValueRef k = broadcast(e, key_row(e, b, a->k, t), l.index), sums[MOST_VECTORS];
    LLVMValueRef decay = decay_of(e, b, t, l.index);
    LLVMValueRef reads = n ? reading_key(e, b, next, l.index) : NULL;
    for (unsigned v = 0; v < b->vectors; v++) {
        LLVMValueRef s = hcg_load(e, HIR_F32, own_at(e, b, from, l.index, v), NULL);
        if (decay) s = hcg_fmul(e, s, decay);
        s = hcg_fma(e, change[v], k, s);
        hcg_store(e, own_at(e, b, to, l.index, v), s, NULL);
        if (n) sums[v] = hcg_fma(e, s, reads, l.carried[v]);
    }
    hcg_loop_end(e, &l, sums);
    for (unsigned v = 0; v < n; v++)
        sum[v] = l.carried[v];
}

/* Tokens first .. end - 1, of a chunk whose state at its border is in place 0: their changes, and
 * the states before each of them; or, if it is to be `passed`, the state after them in place 0. */
static void go_forward(hcg_emit *e, const block *b, LLVMValueRef first, LLVMValueRef end,
                       bool passed) {
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), last = hcg_sub(e, end, one);
    LLVMValueRef sum[MOST_VECTORS], change[MOST_VECTORS];
    read_state(e, b, state_of(e, b, zero), first, sum);
    hcg_loop l = hcg_loop_begin(e, first, last, one, "forward", b->vectors, sum);
    for (unsigned v = 0; v < b->vectors; v++)
        sum[v] = l.carried[v];
    LLVMValueRef place = hcg_sub(e, l.index, first), next = hcg_add(e, l.index, one);
    find_change(e, b, l.index, place, sum, change);
    change_state(e, b, state_of(e, b, passed ? zero : place),
                 state_of(e, b, passed ? zero : hcg_add(e, place, one)), l.index, next, change,
                 sum);
    hcg_loop_end(e, &l, sum);
    for (unsigned v = 0; v < b->vectors; v++)
        sum[v] = l.carried[v];
    find_change(e, b, last, hcg_sub(e, last, first), sum, change);
    if (!passed) return;
    LLVMValueRef s = state_of(e, b, zero);
    change_state(e, b, s, s, last, NULL, change, sum);
}

/* Copies place 0 to the border of a chunk, or back. */
static void copy_border(hcg_emit *e, const block *b, LLVMValueRef chunk, bool back) {
    const delta *a = b->a;
    LLVMValueRef rows = row_of(e, a->borders, chunk, a->heads, b->head, a->n * a->m);
    hcg_loop l =
        hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, a->n), hcg_i64(e, 1), "border", 0, NULL);
    LLVMValueRef row = hcg_add(e, hcg_mul_const(e, l.index, a->m), b->channel);
    for (unsigned v = 0; v < b->vectors; v++) {
        LLVMValueRef own = own_at(e, b, a->states, l.index, v);
        LLVMValueRef at = floats_at(e, rows, hcg_add(e, row, hcg_i64(e, v * e->level->lanes)));
        if (back)
            hcg_store(e, own, hcg_load(e, HIR_F32, at, lanes_of(b, v)), NULL);
        else
            hcg_store(e, at, hcg_load(e, HIR_F32, own, NULL), lanes_of(b, v));
    }
    hcg_loop_end(e, &l, NULL);
}

static void clear_state(hcg_emit *e, const block *b) {
    hcg_loop l =
        hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, b->a->n), hcg_i64(e, 1), "clear", 0, NULL);
    for (unsigned v = 0; v < b->vectors; v++)
        hcg_store(e, own_at(e, b, b->a->states, l.index, v), hcg_splat(e, 0), NULL);
    hcg_loop_end(e, &l, NULL);
}

/* ---- backward: sums over lanes --------------------------------------------------------------- */
/* Adds pairs of vectors, of which the first is of rows without `bit` in their number and the other
 * of the rows with it; lanes then go by this bit as rows did. */
static LLVMValueRef fold(hcg_emit *e, LLVMValueRef x, LLVMValueRef y, unsigned bit) {
    const unsigned lanes = e->level->lanes;
    LLVMValueRef kept[64], other[64];
    for (unsigned l = 0; l < lanes; l++) {
        kept[l] = LLVMConstInt(e->i32, l & bit ? lanes + l : l, false);
        other[l] = LLVMConstInt(e->i32, l & bit ? lanes + (l ^ bit) : l ^ bit, false);
    }
    return hcg_fadd(e, LLVMBuildShuffleVector(e->b, x, y, LLVMConstVector(kept, lanes), ""),
                    LLVMBuildShuffleVector(e->b, x, y, LLVMConstVector(other, lanes), ""));
}

/* The sums over lanes of as many rows as there are lanes, from row i on; lane l is row i + l. */
static LLVMValueRef sum_rows(hcg_emit *e, const delta *a, enum row_sum which, LLVMValueRef i) {
    const unsigned lanes = e->level->lanes;
    LLVMValueRef x[64] = {NULL};
    for (unsigned l = 0; l < lanes; l++)
        x[l] = hcg_load(e, HIR_F32, row_sum_at(e, a, which, hcg_add(e, i, hcg_i64(e, l))), NULL);
    for (unsigned bit = 1; bit < lanes; bit *= 2)
        for (unsigned l = 0; l < lanes; l += 2 * bit)
            x[l] = fold(e, x[l], x[l + bit], bit);
    return x[0];
}

static void add_at(hcg_emit *e, LLVMValueRef at, LLVMValueRef x, LLVMValueRef valid) {
    hcg_store(e, at, hcg_fadd(e, hcg_load(e, HIR_F32, at, valid), x), valid);
}

/* Adds a token's sums of rows i .. to dq, dk and ddecay. product: beta e.dy in all lanes. */
static void give_rows(hcg_emit *e, const block *b, LLVMValueRef t, LLVMValueRef i,
                      LLVMValueRef valid, LLVMValueRef product) {
    const delta *a = b->a;
    if (a->sums[SUM_Q].result) {
        LLVMValueRef k = floats_at(e, key_row(e, b, a->k, t), i), dq;
        dq = hcg_fma(e, hcg_load(e, HIR_F32, k, valid), product, sum_rows(e, a, OF_Q, i));
        if (a->scale != 1) dq = hcg_fmul(e, dq, hcg_splat(e, a->scale));
        add_at(e, floats_at(e, sum_at(e, b, SUM_Q, t, 0), i), dq, valid);
    }
    if (a->sums[SUM_K].result)
        add_at(e, floats_at(e, sum_at(e, b, SUM_K, t, 0), i), sum_rows(e, a, OF_K, i), valid);
    if (a->sums[SUM_DECAY].result && a->decays > 1)
        add_at(e, floats_at(e, sum_at(e, b, SUM_DECAY, t, a->n), i), sum_rows(e, a, OF_DECAY, i),
               valid);
}

static void give_all_rows(hcg_emit *e, const block *b, LLVMValueRef t, LLVMValueRef product) {
    const int64_t lanes = e->level->lanes, whole = b->a->n / lanes * lanes;
    hcg_loop l =
        hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, whole), hcg_i64(e, lanes), "give", 0, NULL);
    give_rows(e, b, t, l.index, NULL, product);
    hcg_loop_end(e, &l, NULL);
    if (whole < b->a->n)
        give_rows(e, b, t, hcg_i64(e, whole), hcg_i64(e, b->a->n - whole), product);
}

static LLVMValueRef dot(hcg_emit *e, const block *b, const LLVMValueRef *x, const LLVMValueRef *y) {
    LLVMValueRef sum = hcg_fmul(e, x[0], y[0]);
    for (unsigned v = 1; v < b->vectors; v++)
        sum = hcg_fma(e, x[v], y[v], sum);
    return hcg_sum_lanes(e, sum);
}

/* Adds a number to one at `at`. */
static void add_number(hcg_emit *e, LLVMValueRef at, LLVMValueRef x) {
    hcg_store(e, at, hcg_fadd(e, hcg_load_scalar(e, HIR_F32, at), x), NULL);
}

/* ---- backward -------------------------------------------------------------------------------- */
/* A token's step back. */
typedef struct step {
    LLVMValueRef t, next;              /* the token, and the one before it, which is next */
    LLVMValueRef s;                    /* the state before the token */
    LLVMValueRef change[MOST_VECTORS]; /* beta e */
    LLVMValueRef de[MOST_VECTORS], dy[MOST_VECTORS], next_dy[MOST_VECTORS];
} step;

/* scale q[i] of token t */
static LLVMValueRef query(hcg_emit *e, const block *b, LLVMValueRef t, LLVMValueRef i) {
    LLVMValueRef q = broadcast(e, key_row(e, b, b->a->q, t), i);
    return b->a->scale == 1 ? q : hcg_fmul(e, q, hcg_splat(e, b->a->scale));
}

/* R = scale q dy^T of the last token; c is its R^T k. */
static void begin_r(hcg_emit *e, const block *b, LLVMValueRef t, LLVMValueRef *c) {
    LLVMValueRef dy[MOST_VECTORS], next[MOST_VECTORS];
    no_sums(e, b, c);
    load_values(e, b, b->a->dy, t, dy);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, b->a->n), hcg_i64(e, 1), "begin",
                                b->vectors, c);
    LLVMValueRef q = query(e, b, t, l.index), k = broadcast(e, key_row(e, b, b->a->k, t), l.index);
    for (unsigned v = 0; v < b->vectors; v++) {
        LLVMValueRef r = hcg_fmul(e, q, dy[v]);
        hcg_store(e, own_at(e, b, b->a->r, l.index, v), r, NULL);
        next[v] = hcg_fma(e, k, r, l.carried[v]);
    }
    hcg_loop_end(e, &l, next);
    for (unsigned v = 0; v < b->vectors; v++)
        c[v] = l.carried[v];
}

/* What a row of R and S gives, still in lanes. */
static void keep_row(hcg_emit *e, const block *b, LLVMValueRef i, LLVMValueRef decay,
                     LLVMValueRef s_dy, LLVMValueRef r_change, LLVMValueRef s_de,
                     LLVMValueRef r_s) {
    const delta *a = b->a;
    if (a->sums[SUM_Q].result) {
        if (decay) s_dy = hcg_fmul(e, s_dy, decay);
        hcg_store(e, row_sum_at(e, a, OF_Q, i), s_dy, NULL);
    }
    if (a->sums[SUM_K].result) {
        if (decay && !a->additive) s_de = hcg_fmul(e, s_de, decay);
        if (!a->additive) r_change = hcg_fsub(e, r_change, s_de);
        hcg_store(e, row_sum_at(e, a, OF_K, i), r_change, NULL);
    }
    if (a->sums[SUM_DECAY].result && a->decays > 1)
        hcg_store(e, row_sum_at(e, a, OF_DECAY, i), r_s, NULL);
}

/* One row: R becomes that of the next token, which adds to its c. Returns the row's part of the
 * gradient of a decay. */
static LLVMValueRef step_row(hcg_emit *e, const block *b, const step *p, LLVMValueRef i,
                             LLVMValueRef *c) {
    const delta *a = b->a;
    LLVMValueRef k = broadcast(e, key_row(e, b, a->k, p->t), i), decay = decay_of(e, b, p->t, i);
    LLVMValueRef next_k = broadcast(e, key_row(e, b, a->k, p->next), i);
    LLVMValueRef next_q = query(e, b, p->next, i), minus_k = hcg_fsub(e, hcg_splat(e, 0), k);
    LLVMValueRef none = hcg_splat(e, 0), s_dy = none, r_change = none, s_de = none, r_s = none;
    for (unsigned v = 0; v < b->vectors; v++) {
        LLVMValueRef at = own_at(e, b, a->r, i, v), r = hcg_load(e, HIR_F32, at, NULL);
        LLVMValueRef s = hcg_load(e, HIR_F32, own_at(e, b, p->s, i, v), NULL);
        if (a->sums[SUM_Q].result) s_dy = hcg_fma(e, s, p->dy[v], s_dy);
        if (a->sums[SUM_K].result) r_change = hcg_fma(e, r, p->change[v], r_change);
        if (a->sums[SUM_K].result && !a->additive) s_de = hcg_fma(e, s, p->de[v], s_de);
        if (!a->additive) r = hcg_fma(e, minus_k, p->de[v], r);
        if (a->sums[SUM_DECAY].result) r_s = hcg_fma(e, r, s, r_s);
        if (decay) r = hcg_fmul(e, r, decay);
        r = hcg_fma(e, next_q, p->next_dy[v], r);
        c[v] = hcg_fma(e, next_k, r, c[v]);
        hcg_store(e, at, r, NULL);
    }
    keep_row(e, b, i, decay, s_dy, r_change, s_de, r_s);
    return r_s;
}

/* All rows: c becomes that of the next token. Returns the gradient of a decay of all rows, in
 * lanes. */
static LLVMValueRef step_rows(hcg_emit *e, const block *b, const step *p, LLVMValueRef *c) {
    LLVMValueRef sum[MOST_VECTORS + 1];
    no_sums(e, b, sum);
    sum[b->vectors] = hcg_splat(e, 0);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, b->a->n), hcg_i64(e, 1), "row",
                                b->vectors + 1, sum);
    for (unsigned v = 0; v <= b->vectors; v++)
        sum[v] = l.carried[v];
    LLVMValueRef part = step_row(e, b, p, l.index, sum);
    sum[b->vectors] = hcg_fadd(e, l.carried[b->vectors], part);
    hcg_loop_end(e, &l, sum);
    for (unsigned v = 0; v < b->vectors; v++)
        c[v] = l.carried[v];
    return l.carried[b->vectors];
}

/* Token t, in its place of the chunk. c is its R^T k, and becomes that of the token before. */
static void go_back(hcg_emit *e, const block *b, LLVMValueRef t, LLVMValueRef place,
                    LLVMValueRef *c) {
    const delta *a = b->a;
    LLVMValueRef zero = hcg_i64(e, 0), decay;
    step p = {.t = t, .next = hcg_larger(e, hcg_sub(e, t, hcg_i64(e, 1)), zero)};
    p.s = state_of(e, b, place);
    for (unsigned v = 0; v < b->vectors; v++) {
        p.change[v] = hcg_load(e, HIR_F32, own_at(e, b, a->changes, place, v), NULL);
        p.de[v] = c[v];
    }
    if (a->sums[SUM_BETA].result)
        add_number(e, sum_at(e, b, SUM_BETA, t, 1), dot(e, b, c, p.change));
    times_beta(e, b, t, p.change);
    times_beta(e, b, t, p.de);
    for (unsigned v = 0; a->dv && v < b->vectors; v++)
        hcg_store(e, value_at(e, b, a->dv, t, v), p.de[v], lanes_of(b, v));
    load_values(e, b, a->dy, t, p.dy);
    load_values(e, b, a->dy, p.next, p.next_dy);
    decay = step_rows(e, b, &p, c);
    if (a->sums[SUM_DECAY].result && a->decays == 1)
        add_number(e, sum_at(e, b, SUM_DECAY, t, 1), hcg_sum_lanes(e, decay));
    LLVMValueRef product =
        a->sums[SUM_Q].result ? hcg_splat_value(e, dot(e, b, p.change, p.dy)) : NULL;
    if (a->sums[SUM_Q].result || a->sums[SUM_K].result ||
        (a->sums[SUM_DECAY].result && a->decays > 1))
        give_all_rows(e, b, t, product);
}

/* ---- chunks ---------------------------------------------------------------------------------- */
static LLVMValueRef end_of(hcg_emit *e, LLVMValueRef first) {
    return hcg_smaller(e, hcg_add(e, first, hcg_i64(e, CHUNK)), e->r1);
}

/* The states before all chunks; those of the last one are not gone through yet. */
static void find_borders(hcg_emit *e, const block *b, LLVMValueRef chunks) {
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), last = hcg_sub(e, chunks, one);
    clear_state(e, b);
    hcg_loop l = hcg_loop_begin(e, zero, last, one, "chunk", 0, NULL);
    LLVMValueRef first = hcg_mul_const(e, l.index, CHUNK);
    copy_border(e, b, l.index, false);
    go_forward(e, b, first, end_of(e, first), true);
    hcg_loop_end(e, &l, NULL);
    copy_border(e, b, last, false);
}

static void emit_block(hcg_emit *e, const block *b) {
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), c[MOST_VECTORS];
    LLVMValueRef chunks = hcg_divide_up(e, e->r1, hcg_i64(e, CHUNK));
    find_borders(e, b, chunks);
    begin_r(e, b, hcg_sub(e, e->r1, one), c);
    hcg_loop l = hcg_loop_begin(e, zero, chunks, one, "back", b->vectors, c);
    LLVMValueRef chunk = hcg_sub(e, hcg_sub(e, chunks, one), l.index);
    LLVMValueRef first = hcg_mul_const(e, chunk, CHUNK), end = end_of(e, first);
    copy_border(e, b, chunk, true);
    go_forward(e, b, first, end, false);
    hcg_loop token =
        hcg_loop_begin(e, zero, hcg_sub(e, end, first), one, "token", b->vectors, l.carried);
    for (unsigned v = 0; v < b->vectors; v++)
        c[v] = token.carried[v];
    LLVMValueRef t = hcg_sub(e, hcg_sub(e, end, one), token.index);
    go_back(e, b, t, hcg_sub(e, t, first), c);
    hcg_loop_end(e, &token, c);
    hcg_loop_end(e, &l, token.carried);
}

/* ---- columns --------------------------------------------------------------------------------- */
static unsigned block_vectors(const hcg_emit *e) {
    return e->level->registers >= 32 ? MOST_VECTORS : MOST_VECTORS / 2;
}

/* Blocks of `vectors` in channels from .. to - 1; returns where the rest begins. */
static LLVMValueRef emit_blocks(hcg_emit *e, block b, LLVMValueRef from, LLVMValueRef to,
                                unsigned vectors) {
    const int64_t width = (int64_t)vectors * e->level->lanes;
    LLVMValueRef end = hcg_sub(e, to, hcg_i64(e, width - 1));
    hcg_loop l = hcg_loop_begin(e, from, end, hcg_i64(e, width), "block", 0, NULL);
    b.channel = l.index, b.vectors = vectors;
    emit_block(e, &b);
    hcg_loop_end(e, &l, NULL);
    return l.index;
}

/* Channels from .. to - 1 of a head: UNIT, or what is left of m. */
static void emit_unit(hcg_emit *e, block b, LLVMValueRef from, LLVMValueRef to) {
    const int64_t lanes = e->level->lanes, wide = lanes * block_vectors(e), m = b.a->m;
    const int64_t left = m % UNIT, rest = left % lanes;
    if (m >= wide) from = emit_blocks(e, b, from, to, block_vectors(e));
    if (left % wide >= lanes || (m >= UNIT && UNIT % wide >= lanes))
        from = emit_blocks(e, b, from, to, 1);
    if (!rest) return;
    hcg_loop l = hcg_loop_begin(e, from, to, hcg_i64(e, lanes), "rest", 0, NULL);
    b.channel = l.index, b.vectors = 1, b.valid = hcg_i64(e, rest);
    emit_block(e, &b);
    hcg_loop_end(e, &l, NULL);
}

/* ---- parts ----------------------------------------------------------------------------------- */
static int64_t units_of(int64_t heads, int64_t groups, int64_t m) {
    return heads / groups * ((m + UNIT - 1) / UNIT);
}

static int64_t parts_of(int64_t heads, int64_t groups, int64_t m) {
    const int64_t units = units_of(heads, groups, m), wanted = (PARTS + groups - 1) / groups;
    return wanted < units ? wanted : units;
}

/* Floats of all sums of a head of q and k for a token. */
static int64_t sum_floats(int64_t heads, int64_t groups, int64_t n, int64_t decays) {
    return 2 * n + heads / groups * (decays + 1);
}

static hcg_gathered in_results(hcg_emit *e, const delta *a, const hcg_gathered *g,
                               LLVMValueRef group) {
    hcg_gathered sum = *g;
    if (!g->result) return sum;
    sum.at = floats_at(e, g->result, hcg_mul_const(e, group, g->n));
    sum.stride = hcg_i64(e, a->groups * g->n);
    return sum;
}

/* The sums of a part, which is not the first. */
static void find_others(hcg_emit *e, const delta *a, LLVMValueRef group, LLVMValueRef part,
                        hcg_gathered *sums) {
    const int64_t parts = parts_of(a->heads, a->groups, a->m);
    LLVMValueRef number = hcg_add(e, hcg_mul_const(e, group, parts - 1), part);
    LLVMValueRef each = hcg_mul_const(e, e->r1, sum_floats(a->heads, a->groups, a->n, a->decays));
    number = hcg_sub(e, number, hcg_i64(e, 1));
    LLVMValueRef at = floats_at(e, a->others, hcg_mul(e, number, each));
    for (int i = 0; i < SUMS; i++) {
        sums[i] = a->sums[i];
        sums[i].at = at, sums[i].stride = hcg_i64(e, sums[i].n);
        at = floats_at(e, at, hcg_mul_const(e, e->r1, sums[i].n));
    }
}

/* Where the part adds: zeros. */
static void begin_sums(hcg_emit *e, delta *a, LLVMValueRef group, LLVMValueRef part) {
    const int64_t parts = parts_of(a->heads, a->groups, a->m);
    hcg_gathered others[SUMS];
    find_others(e, a, group, part, others);
    LLVMValueRef first = LLVMBuildICmp(e->b, LLVMIntEQ, part, hcg_i64(e, 0), "first");
    for (int i = 0; i < SUMS; i++) {
        hcg_gathered *g = &a->sums[i];
        *g = in_results(e, a, g, group);
        if (!g->result) continue;
        if (parts > 1) {
            g->at = LLVMBuildSelect(e->b, first, g->at, others[i].at, "");
            g->stride = LLVMBuildSelect(e->b, first, g->stride, others[i].stride, "");
        }
        hcg_loop l = hcg_loop_begin(e, e->r0, e->r1, hcg_i64(e, 1), "clear", 0, NULL);
        hcg_zero_row(e, hcg_gathered_at(e, g, l.index), g->n);
        hcg_loop_end(e, &l, NULL);
    }
}

static void merge_parts(hcg_emit *e, const delta *a, LLVMValueRef group) {
    LLVMValueRef one = hcg_i64(e, 1);
    LLVMValueRef parts = hcg_i64(e, parts_of(a->heads, a->groups, a->m));
    const hcg_arrival last = hcg_arrive(e, group, parts, one);
    hcg_loop part = hcg_loop_begin(e, one, parts, one, "part", 0, NULL);
    hcg_gathered others[SUMS];
    find_others(e, a, group, part.index, others);
    for (int i = 0; i < SUMS; i++) {
        const hcg_gathered sum = in_results(e, a, &a->sums[i], group);
        if (!sum.result) continue;
        hcg_loop l = hcg_loop_begin(e, e->r0, e->r1, one, "merge", 0, NULL);
        hcg_add_row(e, hcg_gathered_at(e, &others[i], l.index), hcg_gathered_at(e, &sum, l.index),
                    sum.n);
        hcg_loop_end(e, &l, NULL);
    }
    hcg_loop_end(e, &part, NULL);
    hcg_arrive_end(e, &last);
}

/* Unit u of a head of q and k is number u mod U of head u div U of those that share it. */
static void emit_units(hcg_emit *e, const delta *a, LLVMValueRef group, LLVMValueRef part) {
    const int64_t of_head = (a->m + UNIT - 1) / UNIT, each = a->heads / a->groups;
    const int64_t parts = parts_of(a->heads, a->groups, a->m);
    LLVMValueRef units = hcg_i64(e, units_of(a->heads, a->groups, a->m)), bound[2];
    for (int i = 0; i < 2; i++) {
        bound[i] = hcg_mul(e, hcg_add(e, part, hcg_i64(e, i)), units);
        bound[i] = LLVMBuildUDiv(e->b, bound[i], hcg_i64(e, parts), "");
    }
    hcg_loop l = hcg_loop_begin(e, bound[0], bound[1], hcg_i64(e, 1), "unit", 0, NULL);
    LLVMValueRef head = LLVMBuildUDiv(e->b, l.index, hcg_i64(e, of_head), "head");
    LLVMValueRef from = hcg_sub(e, l.index, hcg_mul_const(e, head, of_head));
    from = hcg_mul_const(e, from, UNIT);
    LLVMValueRef to = hcg_smaller(e, hcg_add(e, from, hcg_i64(e, UNIT)), hcg_i64(e, a->m));
    const block b = {
        .a = a, .head = hcg_add(e, hcg_mul_const(e, group, each), head), .group = group};
    emit_unit(e, b, from, to);
    hcg_loop_end(e, &l, NULL);
}

static void emit_columns(hcg_emit *e, const delta *all) {
    const int64_t parts = parts_of(all->heads, all->groups, all->m);
    hcg_loop l = hcg_loop_begin(e, e->c0, e->c1, hcg_i64(e, 1), "column", 0, NULL);
    LLVMValueRef group = LLVMBuildUDiv(e->b, l.index, hcg_i64(e, parts), "group");
    LLVMValueRef part = LLVMBuildURem(e->b, l.index, hcg_i64(e, parts), "part");
    delta a = *all;
    begin_sums(e, &a, group, part);
    emit_units(e, &a, group, part);
    if (parts > 1) merge_parts(e, all, group);
    hcg_loop_end(e, &l, NULL);
}

/* ---- the kernel ------------------------------------------------------------------------------ */
static void take_operands(hcg_emit *e, const hcg_kernel *k, const hir_op *op, delta *a) {
    LLVMValueRef *const operands[] = {&a->q, &a->k, &a->v, &a->decay, &a->beta, &a->dy};
    for (uint32_t i = 0; i < 6; i++)
        *operands[i] = hcg_gradient_operand(e, k, op, i);
    static const char *const names[] = {"q", "k", "decay", "beta"};
    const int64_t each = a->heads / a->groups, n[] = {a->n, a->n, each * a->decays, each};
    for (int i = 0; i < SUMS; i++)
        a->sums[i] = (hcg_gathered){.result = hcg_take_gradient(e, k, names[i]).at, .n = n[i]};
    a->dv = hcg_take_gradient(e, k, "v").at;
}

static void make_scratch(hcg_emit *e, delta *a) {
    const uint64_t row = (uint64_t)(block_vectors(e) * e->level->lanes) * 4;
    a->states = hcg_scratch(e, (uint64_t)(CHUNK * a->n) * row);
    a->changes = hcg_scratch(e, CHUNK * row);
    a->r = hcg_scratch(e, (uint64_t)a->n * row);
    a->by_row = hcg_scratch(e, (uint64_t)(ROW_SUMS * whole_rows(e, a) * e->level->lanes) * 4);
}

static bool emit_delta_rule_grad(hcg_emit *e, const hcg_kernel *k) {
    const hir_module *m = e->p->m;
    const hir_id id = hir_form_op(m, k->op);
    const hir_op *op = hir_op_at(m, id);
    const hir_type q = hir_arg_type(m, id, 0), v = hir_arg_type(m, id, 2);
    const size_t errors = e->diags->errors;
    delta a = {.heads = v.dim[1], .groups = q.dim[1], .n = q.dim[2], .m = v.dim[2]};
    if (op->args[3].kind != HIR_REF_NONE) a.decays = hir_arg_type(m, id, 3).dim[2];
    a.scale = hir_attr_float(op, HIR_A_SCALE, 1);
    a.additive = hir_is_additive(op);
    take_operands(e, k, op, &a);
    if (e->diags->errors != errors) return false;
    make_scratch(e, &a);
    a.borders = hcg_frame_ranges(e);
    LLVMValueRef chunks = hcg_divide_up(e, e->r1, hcg_i64(e, CHUNK));
    a.others = floats_at(e, a.borders, hcg_mul_const(e, chunks, a.heads * a.n * a.m));
    hcg_at_op(e, id);
    emit_columns(e, &a);
    return true;
}

static int64_t columns(const hir_module *m, hir_id kernel) {
    const hir_id id = hir_form_op(m, kernel);
    const int64_t groups = hir_arg_type(m, id, 0).dim[1];
    const hir_type v = hir_arg_type(m, id, 2);
    return groups * parts_of(v.dim[1], groups, v.dim[2]);
}

/* The states at borders, and the sums of parts but the first. */
static void count_shared(const hir_module *m, hir_id kernel, uint64_t *counters, uint64_t *range) {
    const hir_id id = hir_form_op(m, kernel);
    const hir_type q = hir_arg_type(m, id, 0), v = hir_arg_type(m, id, 2);
    const int64_t groups = q.dim[1], heads = v.dim[1], parts = parts_of(heads, groups, v.dim[2]);
    const bool decays = hir_op_at(m, id)->args[3].kind != HIR_REF_NONE;
    const int64_t of_token =
        sum_floats(heads, groups, q.dim[2], decays ? hir_arg_type(m, id, 3).dim[2] : 0);
    *counters = parts > 1 ? (uint64_t)groups * HCG_COUNTER_BYTES : 0;
    *range = (uint64_t)(HRT_KEYS / CHUNK * heads * q.dim[2] * v.dim[2]) * 4;
    *range += (uint64_t)(HRT_KEYS * groups * (parts - 1) * of_token) * 4;
}

const hcg_form hcg_form_delta_rule_grad = {
    .emit = emit_delta_rule_grad, .columns = columns, .shared = count_shared};
