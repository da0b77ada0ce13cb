/* Sessions: the state of one sequence, in memory that the caller owns.
 *
 * A session belongs to one thread at a time. The runtime checks this instead of trusting the
 * caller: a call that finds the session in use returns HRT_BUSY and touches nothing. A call that
 * fails for any reason leaves the session as it was, apart from its message. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/hadal_rt.h"
#include "runtime/internal.h"

/* The number of threads whose workspace session_size counts: the machine's processors, since no
 * more threads ever run. These are the configured processors, not those that the process may use,
 * whose number could change between size and init. */
size_t hrt_usual_threads(void) {
    long processors = sysconf(_SC_NPROCESSORS_CONF);
    if (processors < 1) return 1;
    return processors > HRT_MAX_THREADS ? HRT_MAX_THREADS : (size_t)processors;
}

/* May a call leave out an output? That of a trainer has all of them: they are its gradients. */
static bool has_sinks(const hrt_model *m) {
    return m->parameters_bytes == 0;
}

bool hrt_lay_out_session(const hrt_model *m, int64_t max_tokens, size_t head, hrt_layout *l) {
    return hrt_lay_out(m, max_tokens, head, hrt_usual_threads(), has_sinks(m), l);
}

size_t hrt_session_size(const hrt_model *m, int64_t max_tokens) {
    hrt_layout l;
    return m && hrt_lay_out_session(m, max_tokens, sizeof(hrt_session), &l) ? l.total : 0;
}

/* Threads that `size` bytes hold workspace for. */
static int thread_capacity(const hrt_layout *l, size_t size) {
    if (l->worker_bytes == 0) return HRT_MAX_THREADS;
    size_t capacity = hrt_usual_threads() + (size - l->total) / l->worker_bytes;
    return capacity > HRT_MAX_THREADS ? HRT_MAX_THREADS : (int)capacity;
}

/* Why the best level of the library does not run here, or not on all ranks; nothing if it does.
 * Names of levels and features need no escapes. */
static size_t print_passed_over(const hrt_session *s, char *out, size_t size) {
    const hrt_level *best = &s->model->levels[0];
    char why[160];
    if (!hrt_print_lacks(best, why, sizeof why)) {
        if (s->without_best < 0) return 0;
        snprintf(why, sizeof why, "rank %" PRId32 " cannot run it", s->without_best);
    }
    return (size_t)snprintf(out, size, ", \"passed_over\": {\"%.40s\": \"%s\"}", best->name, why);
}

/* Takes the level, and describes the machine as its kernels see it. */
void hrt_take_level(hrt_session *s, const hrt_level *level) {
    const hd_machine m = hrt_machine_facts(s->model, level);
    char *out = s->machine;
    s->level = level;
    size_t n = (size_t)snprintf(out, sizeof s->machine, "{\"level\": \"%.40s\"", level->name);
    n += print_passed_over(s, out + n, sizeof s->machine - n);
#define F(name, type, least, most, text)                                                           \
    if (m.name)                                                                                    \
        n += (size_t)snprintf(out + n, sizeof s->machine - n, ", \"" #name "\": %" PRIu64,         \
                              (uint64_t)m.name);
    HD_MACHINE_FACTS(F)
#undef F
    snprintf(out + n, sizeof s->machine - n, "}"); /* 50 + 230 + seven numbers: they fit */
}

int hrt_session_make(const hrt_model *m, void *mem, size_t size, const hrt_weights *w,
                     int64_t max_tokens, hrt_session **out) {
    if (!m || !mem || !out || (!w && m->weights_bytes > 0)) return HRT_ARGUMENT;
    const int code = hrt_session_place(m, w, mem, size, sizeof(hrt_session), max_tokens);
    if (code == HRT_OK) *out = mem;
    return code;
}

int hrt_session_place(const hrt_model *m, const hrt_weights *w, void *mem, size_t size, size_t head,
                      int64_t max_tokens) {
    hrt_layout l;
    if (!hrt_lay_out_session(m, max_tokens, head, &l)) return HRT_ARGUMENT;
    if ((uintptr_t)mem % HRT_ALIGN != 0) return HRT_ALIGNMENT;
    if (size < l.total) return HRT_SIZE;
    if (w && !hrt_weights_fit(m, w)) return HRT_DIGEST;
    const hrt_level *level = hrt_pick_level(m, NULL);
    if (!level) return HRT_CPU;

    hrt_session *s = mem;
    *s = (hrt_session){
        .busy = ATOMIC_FLAG_INIT,
        .self = s,
        .threads = hrt_default_threads(),
        .processors = hrt_processors(),
        .thread_capacity = thread_capacity(&l, size),
        .model = m,
        .weights = w ? w->data : NULL,
        .without_best = -1,
    };
    hrt_take_level(s, level);
    hrt_carve(m, max_tokens, &l, mem, has_sinks(m), &s->memory);
    hrt_clear_states(m, &s->memory);
    return HRT_OK;
}

int hrt_session_init(const hrt_model *m, void *mem, size_t size, const hrt_weights *w,
                     int64_t max_tokens, hrt_session **out) {
    if (out) *out = NULL;
    if (m && m->ranks > 0) return HRT_RANKS; /* sessions need a communicator: .._init_on */
    return hrt_session_make(m, mem, size, w, max_tokens, out);
}

/* ---- one caller at a time -------------------------------------------------------------------- */
bool hrt_enter(hrt_session *s) {
    if (s->self != s) return false;
    if (atomic_flag_test_and_set_explicit(&s->busy, memory_order_acquire)) return false;
    s->message[0] = '\0';
    return true;
}

int hrt_why_not(const hrt_session *s) {
    return s->self == s ? HRT_BUSY : HRT_MOVED;
}

int hrt_leave(hrt_session *s, int code) {
    atomic_flag_clear_explicit(&s->busy, memory_order_release);
    return code;
}

int hrt_fail(hrt_session *s, int code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(s->message, sizeof s->message, format, args);
    va_end(args);
    return code;
}

/* ---- settings -------------------------------------------------------------------------------- */
int hrt_session_set_threads(hrt_session *s, int threads) {
    if (!s) return HRT_ARGUMENT;
    if (!hrt_enter(s)) return hrt_why_not(s);
    if (threads < 1 || threads > HRT_MAX_THREADS)
        return hrt_leave(
            s, hrt_fail(s, HRT_ARGUMENT, "%d threads: not in 1 .. %d", threads, HRT_MAX_THREADS));
    s->threads = threads;
    s->processors = hrt_processors();
    return hrt_leave(s, HRT_OK);
}

/* Threads beyond the number of CPUs are not started: they would wait for each other's time slices
 * at every barrier. Work is divided among the threads that run, and results do not depend on their
 * number. */
int hrt_workers(const hrt_session *s) {
    int most = s->processors < s->thread_capacity ? s->processors : s->thread_capacity;
    return s->threads < most ? s->threads : most;
}

static int no_level(hrt_session *s, const char *name) {
    char names[100] = "", why[120] = "";
    size_t n = 0;
    for (uint32_t i = 0; i < s->model->n_levels && n < sizeof names; i++) {
        if (strcmp(name, s->model->levels[i].name) == 0) {
            hrt_print_lacks(&s->model->levels[i], why, sizeof why);
            return hrt_fail(s, HRT_CPU, "level \"%.40s\" does not run here: %s", name, why);
        }
        int k =
            snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", s->model->levels[i].name);
        n += k < 0 ? 0 : (size_t)k;
    }
    return hrt_fail(s, HRT_CPU, "there is no level \"%.40s\" in this library, which has: %s", name,
                    names);
}

int hrt_session_set_cpu(hrt_session *s, const char *name) {
    if (!s) return HRT_ARGUMENT;
    if (!hrt_enter(s)) return hrt_why_not(s);
    const hrt_level *level = !name && s->common ? s->common : hrt_pick_level(s->model, name);
    if (!level) return hrt_leave(s, no_level(s, name ? name : ""));
    hrt_take_level(s, level);
    return hrt_leave(s, HRT_OK);
}

int hrt_set_profile(hrt_session *s, hrt_profile_step *steps, size_t n, uint32_t more) {
    if (!hrt_enter(s)) return hrt_why_not(s);
    const uint32_t all = s->model->n_steps + more;
    if (n != (steps ? all : 0))
        return hrt_leave(s, hrt_fail(s, HRT_ARGUMENT,
                                     "a profile of %zu steps: the model has %" PRIu32 "%s", n, all,
                                     steps ? "" : ", and there is no memory for any"));
    s->profile = steps;
    return hrt_leave(s, HRT_OK);
}

int hrt_session_profile(hrt_session *s, hrt_profile_step *steps, size_t n) {
    return s ? hrt_set_profile(s, steps, n, 0) : HRT_ARGUMENT;
}

int64_t hrt_session_length(const hrt_session *s) {
    return s ? s->length : 0;
}

/* A state that can only be cleared may stay at its length or go back to 0. */
static int rewind_states(hrt_session *s, int64_t length) {
    const hrt_state_info *fixed = hrt_state_to_clear(s->model);
    if (!fixed || length == s->length) return HRT_OK;
    if (length > 0)
        return hrt_fail(s, HRT_REWIND,
                        "cannot rewind from %" PRId64 " to %" PRId64
                        " tokens: %.60s, a %s, can only be cleared; rewind to 0, or restore what "
                        "session_save has kept",
                        s->length, length, fixed->name, hrt_state_word(fixed));
    hrt_clear_states(s->model, &s->memory);
    return HRT_OK;
}

int hrt_session_rewind(hrt_session *s, int64_t length) {
    if (!s) return HRT_ARGUMENT;
    if (!hrt_enter(s)) return hrt_why_not(s);
    if (length < 0)
        return hrt_leave(s, hrt_fail(s, HRT_ARGUMENT, "a length of %" PRId64 " tokens", length));
    if (length > s->length)
        return hrt_leave(s,
                         hrt_fail(s, HRT_LENGTH,
                                  "cannot rewind to %" PRId64 " tokens: the session holds %" PRId64,
                                  length, s->length));
    const int rc = rewind_states(s, length);
    if (rc == HRT_OK) s->length = length;
    return hrt_leave(s, rc);
}

const char *hrt_session_message(const hrt_session *s) {
    return s ? s->message : "";
}

const char *hrt_session_cpu(const hrt_session *s) {
    return s ? s->level->name : "";
}

const char *hrt_session_machine(const hrt_session *s) {
    return s ? s->machine : "";
}

/* ---- forward --------------------------------------------------------------------------------- */
int hrt_check_token(hrt_session *teller, const hrt_model *m, int64_t i, int32_t id) {
    if (m->vocab == 0 || (id >= 0 && id < m->vocab)) return HRT_OK;
    return hrt_fail(teller, HRT_TOKEN,
                    "token %" PRId64 " is %" PRId32 ": ids are 0 .. %" PRId64
                    " (vocabulary of %" PRId64 ")",
                    i, id, m->vocab - 1, m->vocab);
}

static int check_tokens(hrt_session *s, const int32_t *tokens, int64_t n) {
    if (n < 1) return hrt_fail(s, HRT_ARGUMENT, "%" PRId64 " tokens: at least one is needed", n);
    if (!tokens) return hrt_fail(s, HRT_ARGUMENT, "the tokens are a null pointer");
    if (n > s->memory.cap - s->length)
        return hrt_fail(s, HRT_FULL,
                        "no room for %" PRId64 " more tokens: %" PRId64 " of %" PRId64 " are taken",
                        n, s->length, s->memory.cap);
    int rc = HRT_OK;
    for (int64_t i = 0; i < n && rc == HRT_OK; i++)
        rc = hrt_check_token(s, s->model, i, tokens[i]);
    return rc;
}

static int check_call(hrt_session *s, const int32_t *tokens, int64_t n, float *const *outs,
                      int64_t rows) {
    const hrt_model *m = s->model;
    if (n < 1 || !tokens) return check_tokens(s, tokens, n);
    if (rows < 0 || rows > n)
        return hrt_fail(s, HRT_ARGUMENT, "%" PRId64 " rows asked for of %" PRId64 " tokens", rows,
                        n);
    if (!outs || (rows > 0 && m->n_outputs > 0 && !outs[0]))
        return hrt_fail(s, HRT_ARGUMENT, "the output for %" PRId64 " rows is a null pointer", rows);
    return check_tokens(s, tokens, n);
}

/* A call of one session on tokens at its end. */
static hrt_job call_of(hrt_session *s, const void *const *tokens, int64_t n, int64_t rows) {
    const bool divided = s->side.comm != NULL;
    return (hrt_job){
        .model = s->model,
        .level = s->level,
        .memory = &s->memory,
        .weights = s->weights,
        .ins = tokens,
        .n = n,
        .rows = rows,
        .position = s->length,
        .profile = s->profile,
        .side = divided ? &s->side : NULL,
        .figures = divided ? &s->figures : NULL,
    };
}

int hrt_forward(hrt_session *s, const int32_t *tokens, int64_t n, float *const *outs,
                int64_t rows) {
    if (!s) return HRT_ARGUMENT;
    if (!hrt_enter(s)) return hrt_why_not(s);
    int rc = check_call(s, tokens, n, outs, rows);
    if (s->side.comm) rc = hrt_agree_on_call(s, rc, tokens, n, rows);
    if (rc != HRT_OK) return hrt_leave(s, rc);
    const void *ins[1] = {tokens};
    hrt_job job = call_of(s, ins, n, rows);
    job.outs = (void *const *)outs;
    const int failed = hrt_run(&job, hrt_workers(s));
    if (failed) return hrt_leave(s, hrt_break(s, failed));
    s->length += n;
    return hrt_leave(s, HRT_OK);
}

/* ---- losses ---------------------------------------------------------------------------------- */
static int check_targets(hrt_session *s, const int32_t *targets, int64_t n, const float *losses) {
    const int64_t logits = (int64_t)(s->model->outputs[0].row_bytes / sizeof(float));
    if (!targets || !losses)
        return hrt_fail(s, HRT_ARGUMENT, "the %s are a null pointer",
                        targets ? "losses" : "targets");
    for (int64_t i = 0; i < n; i++)
        if (targets[i] >= logits)
            return hrt_fail(s, HRT_TOKEN,
                            "target %" PRId64 " is %" PRId32 ": targets are 0 .. %" PRId64
                            ", or below 0: not counted",
                            i, targets[i], logits - 1);
    return HRT_OK;
}

/* All last rows are asked for, since the kernels that make what the logits are made of do no
 * others. No output is wanted: the kernel of the logits does not run. Of a pipeline the last stage
 * alone has losses. */
int hrt_loss(hrt_session *s, const int32_t *tokens, const int32_t *targets, int64_t n,
             float *losses) {
    if (!s) return HRT_ARGUMENT;
    if (!hrt_enter(s)) return hrt_why_not(s);
    const hrt_model *m = s->model;
    int rc = check_tokens(s, tokens, n);
    if (rc == HRT_OK && m->stage + 1 >= m->stages) rc = check_targets(s, targets, n, losses);
    if (s->side.comm) rc = hrt_agree_on_loss(s, rc, tokens, targets, n);
    if (rc != HRT_OK) return hrt_leave(s, rc);
    const void *ins[1] = {tokens};
    hrt_job job = call_of(s, ins, n, n);
    job.in_loss = true, job.targets = targets, job.losses = losses;
    const int failed = hrt_run(&job, hrt_workers(s));
    if (failed) return hrt_leave(s, hrt_break(s, failed));
    s->length += n;
    return hrt_leave(s, HRT_OK);
}

/* ---- texts of the result codes --------------------------------------------------------------- */

const char *hrt_strerror(int code) {
    switch (code) {
#define R(id, value, text)                                                                         \
    case HRT_##id:                                                                                 \
        return text;
#include "runtime/errors.def"
#undef R
    default: return "unknown error code";
    }
}
