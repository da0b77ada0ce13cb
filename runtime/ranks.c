/* What the ranks of a divided model agree on before they communicate values.
 *
 * When a session is made, the ranks check that they have the same model, the same build and weights
 * that were packed together, and choose a common CPU level; before each call they check that all
 * make the same call. Ranks that share a trainer check the first as well, and their calls in
 * trainer_ranks.c. Each check is one small all_gather. A rank that rejects its arguments takes
 * part in it all the same, so that no other rank waits for it. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "runtime/internal.h"
#include "support/all_gather.h"
#include "support/clock.h"
#include "support/known.h"

enum { ALL_RANKS = HADAL_COMM_MAX_RANKS };

/* FNV-1a: differences between ranks are mistakes, not attacks. */
static uint64_t hash_bytes(uint64_t hash, const void *data, size_t n) {
    const uint8_t *at = data;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}
#define HASH_START UINT64_C(0xcbf29ce484222325)

/* Gathers one word of each rank: words[i] = the word of rank i. Returns a hadal_comm_result. */
static int tell_all(const hadal_comm *c, int64_t timeout_ns, const void *word, void *words,
                    size_t size) {
    return hd_all_gather(c, hd_all_ranks(c), timeout_ns, word, words, size);
}

/* ---- a session ------------------------------------------------------------------------------- */
typedef struct identity {
    int32_t code; /* hrt_result of this rank before it hears of the others */
    uint32_t ranks, stage, stages, runs, share;
    int64_t chunk, max_tokens;
    uint8_t model[16], build[16], set[16];
    uint8_t whole[16], source[16]; /* digests of the model and checkpoint that the pipeline stages
                                    * were cut from */
    uint32_t runs_here, slow_here; /* bits of the levels, best first: those that this machine can
                                    * run, and those that it passes over where it runs other ones */
} identity;

/* A field that must be equal on all ranks, or only on the ranks of one group, since each pipeline
 * stage is a model of its own. Numbers come first in the table: ranks that differ in a number
 * differ in their digests, too, and the number makes the clearer message. */
typedef struct fact {
    const char *what;
    size_t at, size; /* position in `identity`: a number of 4 or 8 bytes, or a digest */
    bool everywhere;
} fact;
#define FACT(what, member, everywhere)                                                             \
    { what, offsetof(identity, member), sizeof(((identity *)0)->member), everywhere }
static const fact facts[] = {
    FACT("ranks of a stage", ranks, true),
    FACT("stages", stages, true),
    FACT("runs of layers", runs, true),
    FACT("most tokens of a chunk", chunk, true),
    FACT("max_tokens", max_tokens, true),
    FACT("model of its pipeline stage, or way to cut it,", whole, true),
    FACT("checkpoint of its weights", source, true),
    FACT("model, or layout of its weights,", model, false),
    FACT("build of the library", build, false),
    FACT("packing of the weights", set, false),
};
enum { FACTS = sizeof facts / sizeof *facts, WHY = sizeof(((hrt_session *)0)->message) };

static long long number(const identity *of, const fact *f) {
    uint32_t small;
    int64_t large;
    memcpy(&small, (const char *)of + f->at, sizeof small);
    if (f->size == sizeof small) return small;
    memcpy(&large, (const char *)of + f->at, sizeof large);
    return large;
}

/* Does rank r agree with rank `as`? What differs is put into `why`. */
static bool is_alike(const identity *all, int32_t r, int32_t as, bool everywhere, char *why) {
    for (size_t i = 0; i < FACTS; i++) {
        const fact *f = &facts[i];
        if (f->everywhere != everywhere) continue;
        if (!memcmp((const char *)&all[r] + f->at, (const char *)&all[as] + f->at, f->size))
            continue;
        if (f->size > sizeof(int64_t))
            snprintf(why, WHY, "rank %" PRId32 " has another %s than rank %" PRId32, r, f->what,
                     as);
        else
            snprintf(why, WHY, "%s: rank %" PRId32 " has %lld, rank %" PRId32 " has %lld", f->what,
                     r, number(&all[r], f), as, number(&all[as], f));
        return false;
    }
    return true;
}

/* Does rank r, in stages of `ranks` ranks each, have its own stage and its own share of the
 * weights? */
static bool has_place(const identity *all, int32_t r, int32_t ranks, char *why) {
    const uint32_t stage = (uint32_t)(r / ranks), share = (uint32_t)(r % ranks);
    if (all[r].stage == stage && all[r].share == share) return true;
    if (all[r].stage != stage)
        snprintf(why, WHY, "rank %" PRId32 " has stage %" PRIu32 ", and not %" PRIu32, r,
                 all[r].stage, stage);
    else
        snprintf(why, WHY, "rank %" PRId32 " has the weights of rank %" PRIu32 " of its stage", r,
                 all[r].share);
    return false;
}

/* The levels that all ranks of a group can run, without those that any rank has to pass over if
 * other levels remain. All ranks have one build, and so the same levels. */
static uint32_t common_levels(const identity *first, int32_t count, int32_t *without_best) {
    uint32_t runs = UINT32_MAX, slow = 0;
    *without_best = -1;
    for (int32_t i = 0; i < count; i++) {
        runs &= first[i].runs_here;
        slow |= first[i].slow_here;
        if (*without_best < 0 && !(first[i].runs_here & 1)) *without_best = i;
    }
    return runs & ~slow ? runs & ~slow : runs;
}

static int judge(const hadal_comm *c, const identity *all, char *why) {
    for (int32_t r = 0; r < c->size; r++) {
        if (!all[r].code) continue;
        snprintf(why, WHY, "rank %" PRId32 ": %s", r, hrt_strerror(all[r].code));
        return all[r].code;
    }
    for (int32_t r = 1; r < c->size; r++)
        if (!is_alike(all, r, 0, true, why)) return HRT_RANKS;
    if ((uint64_t)c->size != (uint64_t)all->ranks * all->stages) {
        snprintf(why, WHY, "there are %" PRId32 " ranks, and the model is for %llu", c->size,
                 (unsigned long long)all->ranks * all->stages);
        return HRT_RANKS;
    }
    const int32_t ranks = (int32_t)all->ranks;
    int32_t without;
    if (ranks < 1) return HRT_RANKS; /* a model that is not divided makes no such session */
    for (int32_t r = 0; r < c->size; r++)
        if (!has_place(all, r, ranks, why) || !is_alike(all, r, r - r % ranks, false, why))
            return HRT_RANKS;
    for (int32_t r = 0; r < c->size; r += ranks) {
        if (common_levels(&all[r], ranks, &without)) continue;
        snprintf(why, WHY, "there is no CPU level that all ranks of stage %" PRIu32 " can run",
                 all[r].stage);
        return HRT_CPU;
    }
    return HRT_OK;
}

bool hrt_is_usable(const hadal_comm *c) {
    return c && c->version == HADAL_COMM_VERSION && c->size >= 1 && c->size <= ALL_RANKS &&
           c->rank >= 0 && c->rank < c->size;
}

/* `ranks`: those that the model is divided over, or that share a trainer. */
static identity identity_of(const hrt_model *m, const hrt_weights *w, int64_t max_tokens,
                            int32_t ranks, int32_t rank, int code) {
    identity mine;
    memset(&mine, 0, sizeof mine); /* padding too: the struct is sent as bytes */
    mine.code = code;
    mine.ranks = (uint32_t)ranks;
    mine.stage = m->stage;
    mine.stages = m->ranks ? m->stages : 1;
    mine.runs = m->n_runs;
    mine.share = w ? w->rank : ranks > 0 ? (uint32_t)(rank % ranks) : 0; /* a stage may have none */
    mine.chunk = m->chunk;
    mine.max_tokens = max_tokens;
    memcpy(mine.model, m->digest, sizeof mine.model);
    memcpy(mine.build, m->build, sizeof mine.build);
    memcpy(mine.whole, m->whole, sizeof mine.whole);
    if (w) memcpy(mine.set, w->set, sizeof mine.set);
    if (w) memcpy(mine.source, w->source, sizeof mine.source);
    hrt_levels_here(m, &mine.runs_here, &mine.slow_here);
    return mine;
}

/* Takes the best level that all ranks of the group can run: what several ranks each compute for
 * themselves, such as norms and the experts that a token selects, must have the same bits. */
static void take_common_level(hrt_session *s, const identity *all) {
    const hadal_comm_group group = s->side.group;
    const uint32_t levels = common_levels(&all[group.first], group.count, &s->without_best);
    if (s->without_best >= 0) s->without_best += group.first;
    s->common = &s->model->levels[__builtin_ctz(levels)]; /* bit 0: best; judge found one */
    hrt_take_level(s, s->common);
}

/* Makes the ranks agree on the session. The reason why a session is rejected becomes its message.
 */
static int agree(hrt_session *s, const hadal_comm *c, int64_t timeout_ns, const identity *mine) {
    identity all[ALL_RANKS];
    char why[WHY] = "";
    const int failed = tell_all(c, timeout_ns, mine, all, sizeof *mine);
    if (failed) return s ? hrt_break(s, failed) : HRT_COLLECTIVE;
    const int code = judge(c, all, why);
    if (code) return s ? hrt_fail(s, code, "%s", why) : code;
    hd_known(s); /* without a session this rank had an error code */
    take_common_level(s, all);
    return HRT_OK;
}

/* Measures the latency of a message, right after another collective, which all ranks leave at once.
 * It takes the least of a few measurements, since a rank may lose its CPU in any of them, and with
 * so large a latency no tile would ever pay. */
static int measure_latency(hrt_session *s) {
    enum { TRIES = 5 };
    const hrt_side *side = &s->side;
    uint64_t words[ALL_RANKS];
    int64_t least = INT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        const int64_t begun = hd_nanoseconds();
        const int failed =
            tell_all(side->comm, side->timeout_ns, &(uint64_t){0}, words, sizeof *words);
        if (failed) return hrt_break(s, failed);
        const int64_t taken = hd_nanoseconds() - begun;
        if (taken < least) least = taken;
    }
    s->figures.latency_ns = least;
    return HRT_OK;
}

/* A session that was made but rejected is still returned, for its message. */
static int reject(hrt_session *s, int code, hrt_session **out) {
    if (s) s->side.over = code;
    if (out) *out = s;
    return code;
}

int hrt_join_ranks(hrt_session *s, const hrt_model *m, const hrt_weights *w, int64_t max_tokens,
                   int32_t ranks, const hadal_comm *c, int64_t timeout_ns, int code) {
    if (s)
        s->side = (hrt_side){.comm = c,
                             .timeout_ns = timeout_ns,
                             .group = {c->rank / ranks * ranks, ranks},
                             .rank = c->rank % ranks};
    const identity mine = identity_of(m, w, max_tokens, ranks, c->rank, code);
    code = agree(s, c, timeout_ns, &mine);
    if (s && code) s->side.over = code;
    return code;
}

int hrt_session_init_on(const hrt_model *m, void *mem, size_t size, const hrt_weights *w,
                        int64_t max_tokens, const hadal_comm *c, int64_t timeout_ns,
                        hrt_session **out) {
    hrt_session *s = NULL;
    if (out) *out = NULL;
    if (!m || m->ranks == 0 || !hrt_is_usable(c)) return HRT_ARGUMENT;
    int code = out ? hrt_session_make(m, mem, size, w, max_tokens, &s) : HRT_ARGUMENT;
    code = hrt_join_ranks(s, m, w, max_tokens, (int32_t)m->ranks, c, timeout_ns, code);
    if (code) return reject(s, code, out);
    hd_known(s);
    code = measure_latency(s);
    if (code) return reject(s, code, out);
    *out = s;
    return HRT_OK;
}

/* ---- a call ---------------------------------------------------------------------------------- */
enum { ANY_ROWS = -1 };
enum { OF_FORWARD, OF_BATCH, OF_LOSS };
typedef struct call_word {
    int32_t code;
    uint32_t kind; /* 0: forward; 1: a batch of several sessions, one token each; 2: a loss */
    int64_t n, rows, position;
    uint64_t tokens, level;
    uint64_t lengths; /* of a batch: hash of the lengths of all its sessions */
    uint64_t targets; /* of a loss: hash of the targets, the same in a stage */
} call_word;
_Static_assert(sizeof(call_word) == 64, "docs/many-machines.md says 64 bytes");

int hrt_break(hrt_session *s, int comm_code) {
    const hadal_comm *c = s->side.comm;
    s->side.over = HRT_COLLECTIVE;
    return hrt_fail(s, HRT_COLLECTIVE, "%s (%d)", c->message(c->context), comm_code);
}

/* What differs in calls at the same CPU level. */
static const char *other_of(const call_word *theirs, const call_word *mine) {
    if (theirs->kind != mine->kind) return "another function";
    return theirs->tokens == mine->tokens && theirs->targets != mine->targets ? "other targets"
                                                                              : "other tokens";
}

static int rejected_elsewhere(hrt_session *s, const call_word *mine, call_word *all) {
    const hadal_comm_group group = s->side.group;
    for (int32_t r = 0; r < s->side.comm->size; r++) {
        /* stages need not have the same level, nor targets, which the last one alone reads; a stage
         * without outputs wants no rows */
        if (r < group.first || r >= group.first + group.count)
            all[r].level = mine->level, all[r].targets = mine->targets;
        if (mine->rows == ANY_ROWS || all[r].rows == ANY_ROWS) all[r].rows = mine->rows;
        if (all[r].code)
            return hrt_fail(s, HRT_PEER, "rank %" PRId32 " rejected the call: %s", r,
                            hrt_strerror(all[r].code));
        if (memcmp(&all[r], mine, sizeof *mine) != 0)
            return hrt_fail(
                s, HRT_PEER, "rank %" PRId32 " was called with %s: %" PRId64 " at %" PRId64, r,
                all[r].level != mine->level ? "another CPU level" : other_of(&all[r], mine),
                all[r].n, all[r].position);
    }
    return HRT_OK;
}

static int agree_on(hrt_session *s, call_word *mine) {
    call_word all[ALL_RANKS];
    if (s->side.over)
        return hrt_fail(s, s->side.over, "%s",
                        s->side.over == HRT_COLLECTIVE
                            ? "a collective has failed in an earlier call"
                            : "the session was rejected when it was made");
    mine->level = hash_bytes(HASH_START, s->level->name, strlen(s->level->name));
    const int failed = tell_all(s->side.comm, s->side.timeout_ns, mine, all, sizeof *mine);
    if (failed) return hrt_break(s, failed);
    return mine->code ? mine->code : rejected_elsewhere(s, mine, all);
}

int hrt_agree_on_call(hrt_session *s, int code, const int32_t *tokens, int64_t n, int64_t rows) {
    call_word mine = {.code = code, .n = n, .rows = rows, .position = s->length};
    if (!code) mine.tokens = hash_bytes(HASH_START, tokens, (size_t)n * sizeof *tokens);
    return agree_on(s, &mine);
}

int hrt_agree_on_loss(hrt_session *s, int code, const int32_t *tokens, const int32_t *targets,
                      int64_t n) {
    call_word mine = {.kind = OF_LOSS, .code = code, .n = n, .rows = n, .position = s->length};
    const size_t bytes = code ? 0 : (size_t)n * sizeof *tokens;
    if (!code) mine.tokens = hash_bytes(HASH_START, tokens, bytes);
    if (!code && s->model->stage + 1 >= s->model->stages)
        mine.targets = hash_bytes(HASH_START, targets, bytes);
    return agree_on(s, &mine);
}

int hrt_agree_on_batch(hrt_session *const *sessions, int code, const int32_t *tokens, int64_t count,
                       bool wanted) {
    hrt_session *first = sessions[0];
    call_word mine = {.code = code, .kind = OF_BATCH, .n = count, .position = first->length};
    mine.rows = first->model->n_outputs == 0 ? ANY_ROWS : wanted ? count : 0;
    if (!code) {
        mine.tokens = hash_bytes(HASH_START, tokens, (size_t)count * sizeof *tokens);
        mine.lengths = HASH_START;
        for (int64_t i = 0; i < count; i++)
            mine.lengths = hash_bytes(mine.lengths, &sessions[i]->length, sizeof(int64_t));
    }
    return agree_on(first, &mine);
}
