/* Ranks that make one model: what they tell each other before they exchange values.
 *
 * When a session is made, that they have the same model, build, CPU level and weights of one
 * packing; before each call, that it is the same call. Both are one small all_gather, in which a
 * rank that refuses takes part all the same, so that nobody waits for it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/internal.h"
#include "support/clock.h"
#include "support/known.h"
#include "support/tell.h"

enum { ALL_RANKS = HADAL_COMM_MAX_RANKS };

/* FNV-1a: differences between ranks are mistakes, not attacks. */
static uint64_t hash_bytes(uint64_t hash, const void *data, size_t n) {
    const uint8_t *at = data;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}
#define HASH_START UINT64_C(0xcbf29ce484222325)

/* words[i] = that of rank i. A hadal_comm_result. */
static int tell_all(const hadal_comm *c, int64_t timeout_ns, const void *word, void *words,
                    size_t size) {
    return hd_tell(c, hd_all_ranks(c), timeout_ns, word, words, size);
}

/* ---- a session ------------------------------------------------------------------------------- */
typedef struct identity {
    int32_t code; /* hrt_result of this rank alone */
    uint32_t ranks, stage, stages, runs;
    int64_t chunk;
    uint8_t model[16], build[16], set[16];
    uint8_t whole[16], source[16]; /* what the stages were cut from */
    uint64_t level;
    int64_t max_tokens;
} identity;

/* What has to be the same on all ranks of a group; `everywhere`: on all there are, stages being
 * models of their own. */
static bool are_alike(const identity *a, const identity *b, bool everywhere) {
    if (a->ranks != b->ranks || a->stages != b->stages || a->runs != b->runs ||
        a->chunk != b->chunk || a->level != b->level || a->max_tokens != b->max_tokens ||
        memcmp(a->whole, b->whole, sizeof a->whole) != 0 ||
        memcmp(a->source, b->source, sizeof a->source) != 0)
        return false;
    return everywhere || (a->stage == b->stage && memcmp(a->set, b->set, sizeof a->set) == 0 &&
                          memcmp(a->model, b->model, sizeof a->model) == 0 &&
                          memcmp(a->build, b->build, sizeof a->build) == 0);
}

static int judge(const hadal_comm *c, const identity *all) {
    for (int32_t r = 0; r < c->size; r++)
        if (all[r].code) return all[r].code;
    for (int32_t r = 0; r < c->size; r++) {
        const int32_t stage = r / (int32_t)all[r].ranks;
        const identity *first = &all[stage * (int32_t)all[r].ranks];
        if (!are_alike(&all[0], &all[r], true) || all[r].stage != (uint32_t)stage ||
            !are_alike(first, &all[r], false))
            return HRT_RANKS;
    }
    return HRT_OK;
}

static bool is_usable(const hadal_comm *c) {
    return c && c->version == HADAL_COMM_VERSION && c->size >= 1 && c->size <= ALL_RANKS &&
           c->rank >= 0 && c->rank < c->size;
}

/* Without a session there is no message: what the code says has to do. */
static int check_ranks(const hrt_model *m, const hrt_weights *w, const hadal_comm *c) {
    if ((uint64_t)c->size != (uint64_t)m->ranks * m->stages) return HRT_RANKS;
    if (w && w->rank != (uint32_t)c->rank % m->ranks) return HRT_RANKS;
    return HRT_OK;
}

static int agree(const hadal_comm *c, int64_t timeout_ns, const hrt_model *m, const hrt_weights *w,
                 int64_t max_tokens, const hrt_session *s, int code) {
    identity mine, all[ALL_RANKS];
    memset(&mine, 0, sizeof mine); /* gaps too: it is sent as bytes */
    mine.code = code;
    mine.ranks = m->ranks;
    mine.stage = m->stage;
    mine.stages = m->stages;
    mine.runs = m->n_runs;
    mine.chunk = m->chunk;
    mine.max_tokens = max_tokens;
    memcpy(mine.model, m->digest, sizeof mine.model);
    memcpy(mine.build, m->build, sizeof mine.build);
    memcpy(mine.whole, m->whole, sizeof mine.whole);
    if (w) memcpy(mine.set, w->set, sizeof mine.set);
    if (w) memcpy(mine.source, w->source, sizeof mine.source);
    if (s) mine.level = hash_bytes(HASH_START, s->level->name, strlen(s->level->name));
    if (tell_all(c, timeout_ns, &mine, all, sizeof mine)) return HRT_EXCHANGE;
    return judge(c, all);
}

/* What a message takes: measured right after another exchange, from which all come at once. The
 * least of a few, since a rank may lose its CPU in any of them, and with a latency of that length
 * no tile would ever pay. */
static int measure_latency(const hadal_comm *c, int64_t timeout_ns, int64_t *out) {
    enum { TRIES = 5 };
    uint64_t words[ALL_RANKS];
    *out = INT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        const int64_t begun = hd_nanoseconds();
        if (tell_all(c, timeout_ns, &(uint64_t){0}, words, sizeof *words)) return HRT_EXCHANGE;
        const int64_t taken = hd_nanoseconds() - begun;
        if (taken < *out) *out = taken;
    }
    return HRT_OK;
}

int hrt_session_init_on(const hrt_model *m, void *mem, size_t size, const hrt_weights *w,
                        int64_t max_tokens, const hadal_comm *c, int64_t timeout_ns,
                        hrt_session **out) {
    hrt_session *s = NULL;
    if (out) *out = NULL;
    if (!m || m->ranks == 0 || !is_usable(c)) return HRT_ARGUMENT;
    int code = out ? check_ranks(m, w, c) : HRT_ARGUMENT;
    if (!code) code = hrt_session_make(m, mem, size, w, max_tokens, &s);
    code = agree(c, timeout_ns, m, w, max_tokens, s, code);
    if (code) return code;
    hd_known(s);
    code = measure_latency(c, timeout_ns, &s->figures.latency_ns);
    if (code) return code;
    const int32_t ranks = (int32_t)m->ranks;
    s->side = (hrt_side){.comm = c,
                         .timeout_ns = timeout_ns,
                         .group = {c->rank / ranks * ranks, ranks},
                         .rank = c->rank % ranks};
    *out = s;
    return HRT_OK;
}

/* ---- a call ---------------------------------------------------------------------------------- */
enum { ANY_ROWS = -1 };
typedef struct call_word {
    int32_t code;
    uint32_t batch; /* 1: of several sessions, a token each */
    int64_t n, rows, position;
    uint64_t tokens, level;
    uint64_t lengths; /* of a batch, of all its sessions */
    uint64_t reserved;
} call_word;
_Static_assert(sizeof(call_word) == 64, "docs/many-machines.md says 64 bytes");

int hrt_break(hrt_session *s, int comm_code) {
    const hadal_comm *c = s->side.comm;
    s->side.broken = true;
    return hrt_fail(s, HRT_EXCHANGE, "%s (%d)", c->message(c->context), comm_code);
}

static int refused_elsewhere(hrt_session *s, const call_word *mine, call_word *all) {
    for (int32_t r = 0; r < s->side.comm->size; r++) {
        /* a stage without outputs has no wish */
        if (mine->rows == ANY_ROWS || all[r].rows == ANY_ROWS) all[r].rows = mine->rows;
        if (all[r].code)
            return hrt_fail(s, HRT_PEER, "rank %" PRId32 " refused the call: %s", r,
                            hrt_strerror(all[r].code));
        if (memcmp(&all[r], mine, sizeof *mine) != 0)
            return hrt_fail(s, HRT_PEER,
                            "rank %" PRId32 " was called with %s: %" PRId64 " at %" PRId64, r,
                            all[r].level != mine->level ? "another CPU level" : "other tokens",
                            all[r].n, all[r].position);
    }
    return HRT_OK;
}

static int agree_on(hrt_session *s, call_word *mine) {
    call_word all[ALL_RANKS];
    if (s->side.broken)
        return hrt_fail(s, HRT_EXCHANGE, "an exchange has failed in an earlier call");
    mine->level = hash_bytes(HASH_START, s->level->name, strlen(s->level->name));
    const int failed = tell_all(s->side.comm, s->side.timeout_ns, mine, all, sizeof *mine);
    if (failed) return hrt_break(s, failed);
    return mine->code ? mine->code : refused_elsewhere(s, mine, all);
}

int hrt_agree_on_call(hrt_session *s, int code, const int32_t *tokens, int64_t n, int64_t rows) {
    call_word mine = {.code = code, .n = n, .rows = rows, .position = s->length};
    if (!code) mine.tokens = hash_bytes(HASH_START, tokens, (size_t)n * sizeof *tokens);
    return agree_on(s, &mine);
}

int hrt_agree_on_batch(hrt_session *const *sessions, int code, const int32_t *tokens, int64_t count,
                       bool wanted) {
    hrt_session *first = sessions[0];
    call_word mine = {.code = code, .batch = 1, .n = count, .position = first->length};
    mine.rows = first->model->n_outputs == 0 ? ANY_ROWS : wanted ? count : 0;
    if (!code) {
        mine.tokens = hash_bytes(HASH_START, tokens, (size_t)count * sizeof *tokens);
        mine.lengths = HASH_START;
        for (int64_t i = 0; i < count; i++)
            mine.lengths = hash_bytes(mine.lengths, &sessions[i]->length, sizeof(int64_t));
    }
    return agree_on(first, &mine);
}
