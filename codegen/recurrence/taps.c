/* Taps of convolutions, transposed (taps.h). */
#include "codegen/recurrence/taps.h"

#include "codegen/emit/arithmetic.h"

enum { MOST_SHUFFLED = 8 }; /* taps of a channel that are transposed in registers */

LLVMValueRef hcg_turned_at(hcg_emit *e, const hcg_taps *w, unsigned v, LLVMValueRef tap) {
    const int64_t lanes = e->level->lanes;
    LLVMValueRef at = hcg_add(e, tap, hcg_i64(e, v * w->n));
    return hcg_at(e, e->f32, w->turned, hcg_mul_const(e, at, lanes));
}

LLVMValueRef hcg_tap(hcg_emit *e, const hcg_taps *w, unsigned v, LLVMValueRef tap) {
    return hcg_load(e, HIR_F32, hcg_turned_at(e, w, v, tap), NULL);
}

LLVMValueRef hcg_taps_at(hcg_emit *e, const hcg_taps *w, LLVMValueRef t, LLVMValueRef channel) {
    LLVMValueRef group = LLVMBuildUDiv(e->b, channel, hcg_i64(e, w->channels / w->groups), "group");
    if (w->own) group = hcg_add(e, hcg_mul_const(e, t, w->groups), group);
    return hcg_at(e, e->f32, w->at, hcg_mul_const(e, group, w->n));
}

/* ---- in registers ---------------------------------------------------------------------------- */
/* How many of the elements of vector i of [lanes][n] belong to valid lanes; NULL: all. */
static LLVMValueRef valid_of(hcg_emit *e, const hcg_taps *w, unsigned i, LLVMValueRef valid) {
    if (!valid) return NULL;
    const int64_t left = LLVMConstIntGetSExtValue(valid) * w->n - (int64_t)i * e->level->lanes;
    return hcg_i64(e, left < 0 ? 0 : left);
}

static bool is_shuffled(const hcg_taps *w, LLVMValueRef valid) {
    return w->n <= MOST_SHUFFLED && (!valid || LLVMIsAConstantInt(valid));
}

/* A vector whose lane l is lane from(l) of x[which(l)]: one shuffle for each x that is needed.
 * Transposing [lanes][n]: lane l of tap j is element l n + j, and back. */
static LLVMValueRef collect(hcg_emit *e, const LLVMValueRef *x, unsigned n_x, const unsigned *which,
                            const unsigned *from) {
    const unsigned lanes = e->level->lanes;
    LLVMValueRef y = LLVMGetPoison(e->vec), mask[64];
    for (unsigned i = 0; i < n_x; i++) {
        bool any = false;
        for (unsigned l = 0; l < lanes; l++) {
            any |= which[l] == i;
            mask[l] = LLVMConstInt(e->i32, which[l] == i ? lanes + from[l] : l, false);
        }
        if (any) y = LLVMBuildShuffleVector(e->b, y, x[i], LLVMConstVector(mask, lanes), "");
    }
    return y;
}

static void shuffle_taps(hcg_emit *e, const hcg_taps *w, LLVMValueRef from, LLVMValueRef valid,
                         unsigned v) {
    const unsigned lanes = e->level->lanes, n = (unsigned)w->n;
    LLVMValueRef x[MOST_SHUFFLED];
    unsigned which[64] = {0}, lane[64] = {0};
    for (unsigned i = 0; i < n; i++)
        x[i] = hcg_load(e, HIR_F32, hcg_at(e, e->f32, from, hcg_i64(e, i * lanes)),
                        valid_of(e, w, i, valid));
    for (unsigned j = 0; j < n; j++) {
        for (unsigned l = 0; l < lanes; l++)
            which[l] = (l * n + j) / lanes, lane[l] = (l * n + j) % lanes;
        hcg_store(e, hcg_turned_at(e, w, v, hcg_i64(e, j)), collect(e, x, n, which, lane), NULL);
    }
}

static void shuffle_back(hcg_emit *e, const hcg_taps *w, LLVMValueRef to, LLVMValueRef valid,
                         bool adds) {
    const unsigned lanes = e->level->lanes, n = (unsigned)w->n;
    LLVMValueRef x[MOST_SHUFFLED];
    unsigned which[64] = {0}, lane[64] = {0};
    for (unsigned j = 0; j < n; j++)
        x[j] = hcg_tap(e, w, 0, hcg_i64(e, j));
    for (unsigned i = 0; i < n; i++) {
        for (unsigned l = 0; l < lanes; l++)
            which[l] = (i * lanes + l) % n, lane[l] = (i * lanes + l) / n;
        LLVMValueRef at = hcg_at(e, e->f32, to, hcg_i64(e, i * lanes)), y;
        LLVMValueRef some = valid_of(e, w, i, valid);
        y = collect(e, x, n, which, lane);
        if (adds) y = hcg_fadd(e, hcg_load(e, HIR_F32, at, some), y);
        hcg_store(e, at, y, some);
    }
}

/* ---- lane by lane ---------------------------------------------------------------------------- */
static void turn_lane(hcg_emit *e, const hcg_taps *w, LLVMValueRef from, unsigned v,
                      LLVMValueRef lane) {
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, w->n), hcg_i64(e, 1), "tap", 0, NULL);
    LLVMValueRef x = hcg_load_scalar(e, HIR_F32, hcg_at(e, e->f32, from, l.index));
    hcg_store(e, hcg_at(e, e->f32, hcg_turned_at(e, w, v, l.index), lane), x, NULL);
    hcg_loop_end(e, &l, NULL);
}

/* All lanes have the taps of one group. */
static void spread_taps(hcg_emit *e, const hcg_taps *w, LLVMValueRef from, unsigned v) {
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, w->n), hcg_i64(e, 1), "tap", 0, NULL);
    LLVMValueRef x = hcg_load_scalar(e, HIR_F32, hcg_at(e, e->f32, from, l.index));
    hcg_store(e, hcg_turned_at(e, w, v, l.index), hcg_splat_value(e, x), NULL);
    hcg_loop_end(e, &l, NULL);
}

void hcg_turn_taps(hcg_emit *e, const hcg_taps *w, LLVMValueRef t, LLVMValueRef channel,
                   LLVMValueRef valid, unsigned v) {
    LLVMValueRef from = hcg_taps_at(e, w, t, channel);
    if (w->shared) {
        spread_taps(e, w, from, v);
        return;
    }
    if (w->groups == w->channels && is_shuffled(w, valid)) {
        shuffle_taps(e, w, from, valid, v);
        return;
    }
    LLVMValueRef lanes = valid ? valid : hcg_i64(e, e->level->lanes);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), lanes, hcg_i64(e, 1), "lane", 0, NULL);
    turn_lane(e, w, hcg_taps_at(e, w, t, hcg_add(e, channel, l.index)), v, l.index);
    hcg_loop_end(e, &l, NULL);
}

static void turn_lane_back(hcg_emit *e, const hcg_taps *w, LLVMValueRef to, LLVMValueRef lane,
                           bool adds) {
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, w->n), hcg_i64(e, 1), "tap", 0, NULL);
    LLVMValueRef at = hcg_at(e, e->f32, to, l.index);
    LLVMValueRef x = hcg_at(e, e->f32, hcg_turned_at(e, w, 0, l.index), lane);
    x = hcg_load_scalar(e, HIR_F32, x);
    if (adds) x = hcg_fadd(e, hcg_load_scalar(e, HIR_F32, at), x);
    hcg_store(e, at, x, NULL);
    hcg_loop_end(e, &l, NULL);
}

void hcg_turn_back(hcg_emit *e, const hcg_taps *w, LLVMValueRef to, LLVMValueRef valid, bool adds) {
    if (is_shuffled(w, valid)) {
        shuffle_back(e, w, to, valid, adds);
        return;
    }
    LLVMValueRef lanes = valid ? valid : hcg_i64(e, e->level->lanes);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), lanes, hcg_i64(e, 1), "lane", 0, NULL);
    turn_lane_back(e, w, hcg_at(e, e->f32, to, hcg_mul_const(e, l.index, w->n)), l.index, adds);
    hcg_loop_end(e, &l, NULL);
}
