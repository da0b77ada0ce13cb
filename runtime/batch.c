/* One token more for many sessions at once.
 *
 * All sessions are entered before any is looked at, and left again whatever happens: a call that
 * fails has advanced none. Whose arena holds the rows does not matter to the results; it is the
 * first session's, and what is more than it holds takes another pass. */
#include <inttypes.h>

#include "runtime/internal.h"

static void leave_all(hrt_session *const *sessions, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        (void)hrt_leave(sessions[i], HRT_OK);
}

/* Why sessions[i] could not be entered: it was a moment ago, or somebody else is in a call. */
static int refused(hrt_session *const *sessions, int64_t i) {
    for (int64_t k = 0; k < i; k++)
        if (sessions[k] == sessions[i])
            return hrt_fail(sessions[0], HRT_TWICE,
                            "sessions %" PRId64 " and %" PRId64 " of the batch are the same", k, i);
    if (i > 0)
        return hrt_fail(sessions[0], HRT_BUSY, "session %" PRId64 " of the batch is in a call", i);
    return HRT_BUSY;
}

static int enter_all(hrt_session *const *sessions, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        if (hrt_enter(sessions[i])) continue;
        int rc = refused(sessions, i);
        leave_all(sessions, i);
        return rc;
    }
    return HRT_OK;
}

static int check_row(hrt_session *first, const hrt_session *s, int64_t i, int32_t token) {
    if (s->model != first->model || s->weights != first->weights)
        return hrt_fail(first, HRT_MIXED,
                        "session %" PRId64 " of the batch has other weights than session 0", i);
    if (s->length == s->memory.cap)
        return hrt_fail(first, HRT_FULL,
                        "session %" PRId64 " of the batch is full: it holds %" PRId64 " tokens", i,
                        s->length);
    return hrt_check_token(first, first->model, i, token);
}

static int run_batch(hrt_session *const *sessions, const int32_t *tokens, int64_t count,
                     float *const *outs) {
    hrt_session *first = sessions[0];
    int rc = HRT_OK;
    if (first->model->ranks > 0)
        return hrt_fail(first, HRT_RANKS, "a model that is divided over ranks takes no batches");
    for (int64_t i = 0; i < count && rc == HRT_OK; i++)
        rc = check_row(first, sessions[i], i, tokens[i]);
    if (rc != HRT_OK) return rc;
    for (int64_t i = 0; i < count; i++)
        sessions[i]->owner =
            (hrt_owner){sessions[i]->length, sessions[i]->memory.cap, sessions[i]->memory.states};
    const void *ins[1] = {tokens};
    hrt_run(
        &(hrt_job){
            .model = first->model,
            .level = first->level,
            .memory = &first->memory,
            .weights = first->weights,
            .ins = ins,
            .outs = (void *const *)outs,
            .n = count,
            .rows = first->model->n_outputs > 0 && outs[0] ? count : 0,
            .batch = sessions,
            .profile = first->profile,
        },
        hrt_workers(first));
    for (int64_t i = 0; i < count; i++)
        sessions[i]->length++;
    return HRT_OK;
}

int hrt_forward_batch(hrt_session *const *sessions, const int32_t *tokens, int64_t count,
                      float *const *outs) {
    if (!sessions || !tokens || !outs || count < 1) return HRT_ARGUMENT;
    for (int64_t i = 0; i < count; i++)
        if (!sessions[i]) return HRT_ARGUMENT;
    int rc = enter_all(sessions, count);
    if (rc != HRT_OK) return rc;
    rc = run_batch(sessions, tokens, count, outs);
    leave_all(sessions, count);
    return rc;
}
