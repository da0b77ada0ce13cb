/* One more token for many sessions at once.
 *
 * All sessions are entered before any is read, and left again whatever happens: a call that fails
 * has advanced none of them. The rows lie in the arena of the first session; which session's arena
 * it is does not matter to the results. Rows that exceed its chunk are done in further passes. */
#include <inttypes.h>

#include "runtime/internal.h"
#include "support/known.h"

static void leave_all(hrt_session *const *sessions, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        (void)hrt_leave(sessions[i], HRT_OK);
}

/* Why sessions[i], which is not the first, could not be entered. */
static int rejected(hrt_session *const *sessions, int64_t i) {
    for (int64_t k = 0; k < i; k++)
        if (sessions[k] == sessions[i])
            return hrt_fail(sessions[0], HRT_TWICE,
                            "sessions %" PRId64 " and %" PRId64 " of the batch are the same", k, i);
    if (hrt_why_not(sessions[i]) == HRT_MOVED)
        return hrt_fail(sessions[0], HRT_MOVED, "session %" PRId64 " of the batch was moved", i);
    return hrt_fail(sessions[0], HRT_BUSY, "session %" PRId64 " of the batch is in a call", i);
}

/* Enters all sessions but the first, which the caller has entered. *entered counts the entered
 * ones, the first included. */
static int enter_others(hrt_session *const *sessions, int64_t count, int64_t *entered) {
    for (; *entered < count; ++*entered)
        if (!hrt_enter(sessions[*entered])) return rejected(sessions, *entered);
    return HRT_OK;
}

static int check_pointers(hrt_session *const *sessions, const int32_t *tokens, int64_t count,
                          float *const *outs) {
    bool there = tokens && outs;
    for (int64_t i = 0; i < count; i++)
        there &= sessions[i] != NULL;
    return there ? HRT_OK : HRT_ARGUMENT;
}

static int check_row(hrt_session *first, const hrt_session *s, int64_t i, int32_t token) {
    if (s->model != first->model || s->weights != first->weights)
        return hrt_fail(first, HRT_MIXED,
                        "session %" PRId64 " of the batch has other weights than session 0", i);
    if (s->side.comm != first->side.comm)
        return hrt_fail(first, HRT_MIXED,
                        "session %" PRId64 " of the batch has other ranks than session 0", i);
    if (s->length == s->memory.cap)
        return hrt_fail(first, HRT_FULL,
                        "session %" PRId64 " of the batch is full: it holds %" PRId64 " tokens", i,
                        s->length);
    return hrt_check_token(first, first->model, i, token);
}

static int check_rows(hrt_session *const *sessions, const int32_t *tokens, int64_t count) {
    int rc = HRT_OK;
    for (int64_t i = 0; i < count && rc == HRT_OK; i++)
        rc = check_row(sessions[0], sessions[i], i, tokens[i]);
    return rc;
}

/* Marks all sessions as broken, since the state that each has written for this token may be
 * incomplete. */
static int break_all(hrt_session *const *sessions, int64_t count, int comm_code) {
    for (int64_t i = 0; i < count; i++)
        (void)hrt_break(sessions[i], comm_code);
    return HRT_COLLECTIVE;
}

static int run_batch(hrt_session *const *sessions, const int32_t *tokens, int64_t count,
                     float *const *outs) {
    hrt_session *first = sessions[0];
    hd_known(outs); /* check_pointers */
    for (int64_t i = 0; i < count; i++)
        sessions[i]->owner =
            (hrt_owner){sessions[i]->length, sessions[i]->memory.cap, sessions[i]->memory.states};
    const void *ins[1] = {tokens};
    const int failed = hrt_run(
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
            .side = first->side.comm ? &first->side : NULL,
            .figures = first->side.comm ? &first->figures : NULL,
        },
        hrt_workers(first));
    if (failed) return break_all(sessions, count, failed);
    for (int64_t i = 0; i < count; i++)
        sessions[i]->length++;
    return HRT_OK;
}

/* The other ranks of a divided model must learn of a rejected batch, too. This rank can report it
 * as soon as one session is there, whose communicator it then uses. */
int hrt_forward_batch(hrt_session *const *sessions, const int32_t *tokens, int64_t count,
                      float *const *outs) {
    int64_t entered = 1;
    if (!sessions || count < 1 || !sessions[0]) return HRT_ARGUMENT;
    if (!hrt_enter(sessions[0])) return hrt_why_not(sessions[0]);
    int rc = check_pointers(sessions, tokens, count, outs);
    if (!rc) rc = enter_others(sessions, count, &entered);
    if (!rc) rc = check_rows(sessions, tokens, count);
    if (sessions[0]->side.comm)
        rc = hrt_agree_on_batch(sessions, rc, tokens, count, outs && outs[0]);
    if (!rc) rc = run_batch(sessions, tokens, count, outs);
    leave_all(sessions, entered);
    return rc;
}
