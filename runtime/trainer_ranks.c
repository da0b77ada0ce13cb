/* A trainer that ranks share: each computes the gradients of its own sequences, and changes a share of
 * the parameters, of which it alone has the moments.
 *
 *     gradients   each rank of its own sequences; sums of losses and counts are those of all
 *     step        reduce-scatter of gradients | norm | update of the share | all-gather of parameters
 *
 * Shares are ranges, so that each of the two parts of the parameters crosses in one collective: of
 * elements equal numbers of lines, of matrices whole ones of about equal work. Sums are taken in the
 * order of ranks (hadal_comm.h), and parameters come from the one rank that has changed them: results
 * do not depend on timing, and all ranks have the same bits.
 *
 * Before a call ranks compare what they are called with, as those of a divided model do (ranks.c).
 * After a collective that has failed a trainer cannot go on. */
#include <inttypes.h>

#include "runtime/trainer.h"
#include "support/all_gather.h"
#include "support/known.h"

enum { LINE = HRT_ALIGN / sizeof(float), MOST = HADAL_COMM_MAX_RANKS };

/* ---- shares ---------------------------------------------------------------------------------- */
static int64_t end_of_part(const hrt_model *m, int part) {
    const uint64_t bytes = part == HRT_ELEMENTS ? m->muon_offset : m->parameters_bytes;
    return (int64_t)(bytes / sizeof(float));
}

/* Multiply-adds of a matrix in a step of Muon, but for a factor. */
static double work_of(const hrt_parameter *p) {
    const double rows = (double)p->rows, columns = (double)p->columns;
    return rows < columns ? rows * rows * columns : rows * columns * columns;
}

static int64_t matrices_of(const hrt_parameter *p) {
    return hrt_part_of(p) == HRT_MATRICES ? (int64_t)(p->elements / (p->rows * p->columns)) : 0;
}

/* A matrix goes to the rank in whose equal share of the work its middle is. */
static void divide_matrices(const hrt_model *m, int32_t ranks, int64_t *first) {
    double all = 0, before = 0;
    int32_t next = 1;
    for (uint32_t i = 0; i < m->n_parameters; i++)
        all += work_of(&m->parameters[i]) * (double)matrices_of(&m->parameters[i]);
    for (uint32_t i = 0; i < m->n_parameters; i++) {
        const hrt_parameter *p = &m->parameters[i];
        const double work = work_of(p);
        for (int64_t k = 0; k < matrices_of(p); k++, before += work)
            while (next < ranks && before + work / 2 >= all / ranks * next)
                first[next++] =
                    (int64_t)(p->offset / sizeof(float)) + k * (int64_t)(p->rows * p->columns);
    }
    while (next < ranks)
        first[next++] = end_of_part(m, HRT_MATRICES);
}

/* first[r]: where the share of rank r begins, in floats; first[ranks]: the end. */
static void divide_part(const hrt_model *m, int part, int32_t ranks, int64_t *first) {
    const int64_t lines = (int64_t)m->muon_offset / HRT_ALIGN;
    first[0] = part == HRT_ELEMENTS ? 0 : end_of_part(m, HRT_ELEMENTS);
    if (part == HRT_MATRICES) divide_matrices(m, ranks, first);
    for (int32_t r = 1; part == HRT_ELEMENTS && r < ranks; r++)
        first[r] = hadal_comm_first_row(lines, r, ranks) * LINE;
    first[ranks] = end_of_part(m, part);
}

void hrt_divide(const hrt_model *m, int32_t rank, int32_t ranks, hrt_span mine[HRT_PARTS]) {
    int64_t first[MOST + 1];
    for (int part = 0; part < HRT_PARTS; part++) {
        divide_part(m, part, ranks, first);
        mine[part] = (hrt_span){first[rank], first[rank + 1]};
    }
}

hrt_span hrt_mine_of(const hrt_trainer *t, const hrt_parameter *p) {
    const hrt_span mine = t->mine[hrt_part_of(p)];
    const int64_t first = (int64_t)(p->offset / sizeof(float)), n = (int64_t)p->elements;
    const int64_t from = mine.from - first, to = mine.to - first;
    if (to <= 0 || from >= n) return (hrt_span){0, 0};
    return (hrt_span){from > 0 ? from : 0, to < n ? to : n};
}

/* ---- what is agreed on ----------------------------------------------------------------------- */
typedef struct call_word {
    int32_t code;
    uint32_t call; /* hrt_trainer_call */
    int64_t steps, count;
    uint64_t level, facts;
} call_word;

/* Gathers one word of each rank: words[i] = the word of rank i. */
static int tell_all(hrt_trainer *t, const void *word, void *words, size_t size) {
    const hrt_side *side = &t->session.side;
    const int failed = hd_all_gather(side->comm, side->group, side->timeout_ns, word, words, size);
    return failed ? hrt_break(&t->session, failed) : HRT_OK;
}

static const char *difference_of(const call_word *theirs, const call_word *mine) {
    if (theirs->call != mine->call) return "makes another call";
    if (theirs->level != mine->level) return "has another CPU level";
    if (theirs->steps != mine->steps) return "has taken another number of steps";
    if (theirs->count != mine->count) return "has cleared its gradients, or has not";
    return mine->call == HRT_CALL_STEP ? "has other options" : "has other parameters";
}

static int compare(hrt_session *s, const call_word *all, const call_word *mine) {
    for (int32_t r = 0; r < s->side.group.count; r++) {
        if (all[r].code)
            return hrt_fail(s, HRT_PEER, "rank %" PRId32 " rejected the call: %s", r,
                            hrt_strerror(all[r].code));
        if (memcmp(&all[r], mine, sizeof *mine) != 0)
            return hrt_fail(s, HRT_PEER, "rank %" PRId32 " %s", r, difference_of(&all[r], mine));
    }
    return HRT_OK;
}

int hrt_agree_on_training(hrt_trainer *t, hrt_trainer_call call, int code, uint64_t facts) {
    hrt_session *s = &t->session;
    if (!s->side.comm) return code;
    if (s->side.over)
        return hrt_fail(s, s->side.over, "%s",
                        s->side.over == HRT_COLLECTIVE
                            ? "a collective has failed in an earlier call"
                            : "the trainer was rejected when it was made");
    call_word all[MOST], mine = {.code = code,
                                 .call = call,
                                 .level = hrt_checksum(s->level->name, strlen(s->level->name)),
                                 .facts = facts};
    if (call != HRT_CALL_RESTORE) mine.steps = t->steps, mine.count = t->count;
    const int failed = tell_all(t, &mine, all, sizeof mine);
    if (failed) return failed;
    return code ? code : compare(s, all, &mine);
}

/* ---- sums ------------------------------------------------------------------------------------ */
typedef struct loss_word {
    double sum;
    int64_t count, code;
} loss_word;

int hrt_sum_losses(hrt_trainer *t, int code, double *sum, int64_t *count) {
    hrt_session *s = &t->session;
    if (!s->side.comm) return code;
    loss_word all[MOST], mine = {*sum, *count, code};
    const int failed = tell_all(t, &mine, all, sizeof mine);
    if (failed || code) return failed ? failed : code;
    *sum = 0, *count = 0;
    for (int32_t r = 0; r < s->side.group.count; r++) {
        if (all[r].code)
            return hrt_fail(s, (int)all[r].code, "rank %" PRId32 ": %s", r,
                            hrt_strerror((int)all[r].code));
        *sum += all[r].sum, *count += all[r].count;
    }
    return HRT_OK;
}

int hrt_sum_squares(hrt_trainer *t, hrt_norm_part *of_all) {
    hrt_norm_part all[MOST];
    const uint32_t none = t->session.model->n_parameters;
    if (!t->session.side.comm) return HRT_OK;
    const int failed = tell_all(t, of_all, all, sizeof *all);
    if (failed) return failed;
    *of_all = (hrt_norm_part){.parameter = none};
    for (int32_t r = 0; r < t->session.side.group.count; r++) {
        const double sum = of_all->sum + all[r].sum;
        if (of_all->parameter == none) *of_all = all[r];
        of_all->sum = sum;
    }
    return HRT_OK;
}

/* ---- what crosses ---------------------------------------------------------------------------- */
/* The share of each rank of a part, in floats; false: the part is empty. */
static bool count_shares(const hrt_trainer *t, int part, uint64_t *counts, int64_t *begin) {
    const int32_t ranks = t->session.side.group.count;
    int64_t first[MOST + 1];
    divide_part(t->session.model, part, ranks, first);
    for (int32_t r = 0; r < ranks; r++)
        counts[r] = (uint64_t)(first[r + 1] - first[r]);
    *begin = first[0];
    return first[ranks] > first[0];
}

static float *floats_at(uint8_t *memory, int64_t at) {
    void *const to = memory;
    return (float *)to + at;
}

/* scatter: gradients of all ranks are summed; otherwise parameters are gathered. */
static int cross(hrt_trainer *t, bool scatter) {
    const hrt_side *side = &t->session.side;
    const hadal_comm *c = side->comm;
    uint64_t counts[MOST];
    int64_t begin;
    int failed = 0;
    for (int part = 0; c && part < HRT_PARTS && !failed; part++) {
        uint8_t *const memory = scatter ? t->gradients : t->weights;
        if (!count_shares(t, part, counts, &begin)) continue;
        float *const all = floats_at(memory, begin), *mine = floats_at(memory, t->mine[part].from);
        failed = scatter ? c->reduce_scatter(c->context, side->group, HADAL_COMM_F32, all, mine,
                                             counts, side->timeout_ns)
                         : c->all_gather(c->context, side->group, HADAL_COMM_F32, mine, all, counts,
                                         side->timeout_ns);
    }
    return failed ? hrt_break(&t->session, failed) : HRT_OK;
}

int hrt_sum_gradients(hrt_trainer *t) {
    return cross(t, true);
}

int hrt_gather_parameters(hrt_trainer *t) {
    return cross(t, false);
}

/* ---- what is kept ---------------------------------------------------------------------------- */
/* Bytes that cross from or to another rank, of which rank 0 has the memory. */
static int cross_bytes(const hrt_trainer *t, int32_t other, void *at, uint64_t bytes, bool sends) {
    const hrt_side *side = &t->session.side;
    const hadal_comm *c = side->comm;
    if (bytes == 0) return HADAL_COMM_OK;
    return sends ? c->send(c->context, other, at, bytes, side->timeout_ns)
                 : c->recv(c->context, other, at, bytes, side->timeout_ns);
}

/* A moment of all ranks, which is `whole` of rank 0; save: to there. */
static int move_moment(hrt_trainer *t, int which, uint8_t *whole, bool save) {
    void *const own = t->moments[which];
    const hrt_side *side = &t->session.side;
    const int part = hrt_part_of_moment(which);
    const hrt_span mine = t->mine[part];
    const uint64_t bytes = (uint64_t)(mine.to - mine.from) * sizeof(float);
    int64_t first[MOST + 1];
    if (!hrt_is_first(t)) return cross_bytes(t, 0, own, bytes, save);
    hd_known(whole); /* the memory of the first rank */
    memcpy(save ? (void *)whole : own, save ? own : (void *)whole, (size_t)bytes);
    divide_part(t->session.model, part, side->comm ? side->group.count : 1, first);
    for (int32_t r = 1; side->comm && r < side->group.count; r++) {
        const uint64_t from = (uint64_t)(first[r] - first[0]) * sizeof(float),
                       to = (uint64_t)(first[r + 1] - first[0]) * sizeof(float);
        const int failed = cross_bytes(t, r, whole + from, to - from, !save);
        if (failed) return failed;
    }
    return HADAL_COMM_OK;
}

static int move_moments(hrt_trainer *t, uint8_t *whole, bool save) {
    const hrt_model *m = t->session.model;
    for (int which = 0; which < HRT_MOMENTS; which++) {
        const int failed = move_moment(t, which, whole, save);
        if (failed) return hrt_break(&t->session, failed);
        if (whole && which != HRT_MOMENTUM) whole += m->muon_offset;
    }
    return HRT_OK;
}

int hrt_save_moments(hrt_trainer *t, uint8_t *to) {
    return move_moments(t, to, true);
}

int hrt_restore_moments(hrt_trainer *t, const uint8_t *from) {
    return move_moments(t, (uint8_t *)(uintptr_t)from, false);
}

int hrt_share_parameters(hrt_trainer *t, const uint8_t *from, int64_t *steps) {
    const hrt_side *side = &t->session.side;
    const size_t bytes = (size_t)t->session.model->parameters_bytes;
    uint64_t counts[MOST] = {bytes};
    int64_t all[MOST];
    if (!side->comm) {
        memcpy(t->weights, from, bytes);
        return HRT_OK;
    }
    int failed = tell_all(t, steps, all, sizeof *all);
    if (failed) return failed;
    *steps = all[0];
    failed = side->comm->all_gather(side->comm->context, side->group, HADAL_COMM_BYTES, from,
                                    t->weights, counts, side->timeout_ns);
    return failed ? hrt_break(&t->session, failed) : HRT_OK;
}
