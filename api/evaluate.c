/* The loss of a sequence of tokens under a model, window by window. */
#include <math.h>
#include <string.h>

#include "api/data.h"
#include "api/evaluator.h"
#include "api/library.h"
#include "api/ranks.h"
#include "api/taps.h"
#include "inspect/by_depth.h"
#include "support/clock.h"

#define API_FAILED 1

/* Tokens begin .. end - 1 of the data, of which those from `from` on are predicted, from > begin. */
typedef struct window {
    int64_t begin, from, end;
} window;

/* The model takes the tokens from window.begin on, but the last, and gives the losses of the
 * predicted ones. `tokens` are those of the window. */
typedef struct measurer measurer;
typedef bool (*measure_fn)(measurer *m, window w, const int32_t *tokens, float *losses);
struct measurer {
    hadal_session *s;
    const hadal_eval_options *o;
    const hadal_data *data;
    int64_t context; /* at most the data */
    measure_fn measure;
    api_library library; /* not open: the evaluator is used */
    hir_eval *eval;
    float *losses; /* of all predicted tokens; NULL: they are not wanted */
    bool silent;   /* another pipeline stage has the losses, and this one none */
    /* of the taps that are measured, if s->by_depth is there: */
    float **outs;      /* by output of the library; NULL: not wanted */
    api_tapped tapped; /* the same by value of the taps */
};

/* ---- windows --------------------------------------------------------------------------------- */
static window first_window(const measurer *m) {
    return (window){0, 1, m->context};
}

/* The window after w; its begin is the end of the data if there is none. */
static window next_window(const measurer *m, window w) {
    const int64_t n = m->data->n, stride = m->o->stride;
    const int64_t most = stride ? stride : m->context;
    const int64_t end = n - w.end < most ? n : w.end + most;
    if (stride && w.end < n) return (window){end - m->context, w.end, end};
    return (window){w.end, w.end + 1, end};
}

static int64_t predicted(const measurer *m) {
    const int64_t n = m->data->n;
    return m->o->stride ? n - 1 : n - (n + m->context - 1) / m->context;
}

static bool check_options(hadal_session *s, const hadal_eval_options *o) {
    const char *wrong = NULL, *hint = NULL;
    if (o->context < 2) wrong = "a window has at least two tokens, one of which is predicted";
    if (!wrong && (o->stride < 0 || o->stride >= o->context)) {
        wrong = "a stride is from 1 to one less than the context";
        hint = "without a stride windows do not overlap";
    }
    if (wrong) hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "%s", wrong)->hint = hint;
    return !wrong;
}

/* ---- compiled models ------------------------------------------------------------------------- */
/* Tokens before those whose row predicts one need no row: they only fill the caches. */
static bool begin_window(measurer *m, const int32_t *tokens, int64_t before) {
    api_library *l = &m->library;
    return api_library_ok(l, l->session_rewind(l->session, 0), "rewind") &&
           (before == 0 ||
            api_library_ok(l, l->forward(l->session, tokens, before, NULL, 0), "forward"));
}

/* The values of taps at the tokens that predict: NAME_loss gives losses alone, so they take a call
 * of their own, which computes no logits. */
static bool measure_outputs(measurer *m, const int32_t *tokens, int64_t before, int64_t n) {
    api_library *l = &m->library;
    if (!begin_window(m, tokens, before) ||
        !api_library_ok(l, l->forward_outputs(l->session, tokens + before, n, m->outs, 0),
                        "forward_outputs"))
        return false;
    m->tapped.rows = n;
    api_measure_taps(m->s, &m->tapped);
    return true;
}

static bool measure_library(measurer *m, window w, const int32_t *tokens, float *losses) {
    api_library *l = &m->library;
    const int64_t before = w.from - 1 - w.begin, n = w.end - w.from;
    if (!begin_window(m, tokens, before) ||
        !api_library_ok(l, l->loss(l->session, tokens + before, tokens + before + 1, n, losses),
                        "loss"))
        return false;
    return !m->s->by_depth || measure_outputs(m, tokens, before, n);
}

static bool make_room_for_taps(measurer *m) {
    hadal_session *s = m->s;
    if (!s->by_depth) return true;
    if (!m->library.forward_outputs || !api_check_taps(s, m->context, api_memory())) return false;
    size_t n;
    const uint32_t *shown = api_tapped_outputs(s, &n);
    const float **at = hd_new_array(s->arena, const float *, n + 1);
    m->outs = hd_new_array(s->arena, float *, n + 1);
    for (size_t i = 0; i < n; i++) {
        if (shown[i] == HIR_NONE) continue;
        const hir_type t = hir_ref_type(s->graph, s->taps->values.at[shown[i]]);
        at[shown[i]] = m->outs[i] = hd_alloc(s->arena, (size_t)m->context,
                                             (size_t)hir_type_row_elements(t) * sizeof(float));
    }
    m->tapped.at = at;
    return true;
}

static bool reject_library(hadal_session *s, const api_library *l) {
    hd_diag *e = hd_err(&s->diags, HD_E_UNSUPPORTED, HD_NOWHERE, "%s has no %s_loss", l->path,
                        l->info->name);
    e->cause = "it was compiled without --loss";
    e->hint = "hadal compile SPEC --loss, or hadal eval SPEC";
    return false;
}

/* The ids that the library takes and may predict. Of a pipeline the stages know different ones: the
 * first its tables, the last its logits. */
static bool vocabulary_of_library(api_library *l, int64_t *vocab) {
    const int64_t logits = api_has_logits(l) ? (int64_t)api_logits_row(l->info) : 0;
    const int64_t mine[2] = {(int64_t)l->info->vocab, logits};
    int64_t all[HADAL_COMM_MAX_RANKS][2];
    if (!api_all_gather(l, mine, all, sizeof mine)) return false;
    *vocab = 0;
    for (int32_t i = 0; i < 2 * api_ranks_here(l); i++) {
        const int64_t n = all[i / 2][i % 2];
        if (n > 0 && (!*vocab || n < *vocab)) *vocab = n;
    }
    return true;
}

/* ---- the evaluator --------------------------------------------------------------------------- */
static bool call_evaluator(measurer *m, hd_arena *scratch, window w, const int32_t *tokens,
                           float *losses) {
    const int64_t n = w.end - w.begin - 1, before = w.from - 1 - w.begin;
    double *ids = hd_new_array(scratch, double, (size_t)n);
    double *targets = hd_new_array(scratch, double, (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        ids[i] = tokens[i];
        targets[i] = i < before ? -1 : tokens[i + 1];
    }
    hir_results results = {0};
    if (!hir_eval_rewind(m->eval, 0) ||
        !hir_eval_call(m->eval, scratch, &m->s->diags, n, (const double *const[]){ids, targets},
                       &results, NULL, NULL))
        return false;
    const hir_array *found = NULL;
    uint32_t shown = 0;
    for (size_t i = 0; i < results.outputs.n; i++) {
        const hir_array *a = &results.outputs.at[i];
        if (strcmp(a->name, HIR_LOSSES) == 0) found = a;
        if (!m->s->by_depth || !taps_is_output(a->name)) continue;
        const int64_t row = a->n / n;
        by_depth_add_exact(m->s->by_depth, shown++, a->at + before * row, row, n - before);
    }
    if (m->s->by_depth) m->s->by_depth->tokens += n - before;
    for (int64_t i = before; found && i < n; i++)
        losses[i - before] = (float)found->at[i];
    return found != NULL;
}

static bool measure_evaluator(measurer *m, window w, const int32_t *tokens, float *losses) {
    hd_arena *scratch = hd_arena_new();
    jmp_buf here;
    bool ok = false;
    if (scratch) hd_arena_guard(scratch, &here);
    if (!scratch || setjmp(here)) {
        if (scratch) hd_arena_free(scratch);
        hd_err(&m->s->diags, HD_E_MEMORY, HD_NOWHERE, "no memory for a call of the evaluator");
        return false;
    }
    ok = call_evaluator(m, scratch, w, tokens, losses);
    hd_arena_free(scratch);
    return ok;
}

/* ---- all windows ----------------------------------------------------------------------------- */
static bool take_losses(const measurer *m, window w, const float *losses, int64_t done,
                        double *sum) {
    const int64_t n = m->silent ? 0 : w.end - w.from;
    for (int64_t i = 0; i < n; i++) {
        if (isfinite(losses[i])) {
            *sum += (double)losses[i];
            continue;
        }
        hd_err(&m->s->diags, HD_E_RUNTIME, HD_NOWHERE, "the loss of token %lld of '%s' is %s",
               (long long)(w.from + i), m->data->path, isnan(losses[i]) ? "no number" : "infinite")
            ->hint = "weights of another model, or numbers beyond what a type can hold";
        return false;
    }
    if (m->losses) memcpy(m->losses + done, losses, (size_t)n * sizeof *losses);
    return true;
}

static bool measure_all(measurer *m, hadal_evaluation *out) {
    const int64_t n = m->data->n;
    int32_t *tokens = hd_new_array(m->s->arena, int32_t, (size_t)m->context);
    float *losses = hd_new_array(m->s->arena, float, (size_t)m->context);
    double sum = 0;
    const double began = hd_seconds();
    out->tokens = 0;
    for (window w = first_window(m); w.begin < n; w = next_window(m, w)) {
        if (w.from >= w.end) continue; /* a last token that nothing precedes */
        hd_progress(&m->s->diags, "evaluating", (uint64_t)out->tokens, (uint64_t)predicted(m));
        api_data_copy(m->data, w.begin, w.end - w.begin, tokens);
        if (!m->measure(m, w, tokens, losses) || !take_losses(m, w, losses, out->tokens, &sum))
            return false;
        out->tokens += w.end - w.from;
    }
    out->seconds = hd_seconds() - began;
    out->loss = sum / (double)out->tokens;
    out->perplexity = exp(out->loss);
    out->data_tokens = n;
    out->bytes = m->data->bytes;
    if (m->data->bytes)
        out->bits_per_byte =
            out->loss / log(2) * ((double)m->data->text_tokens / (double)m->data->bytes);
    return true;
}

static bool write_losses(const measurer *m, const hadal_evaluation *done) {
    const hd_tensor t = {.name = "losses",
                         .dtype = HD_T_F32,
                         .rank = 1,
                         .shape = {done->tokens},
                         .data = (const uint8_t *)m->losses};
    return hd_npy_write(m->s->arena, &m->s->diags, m->o->losses_path, &t);
}

static bool measure_to_file(measurer *m, hadal_evaluation *out) {
    if (m->o->losses_path) m->losses = hd_new_array(m->s->arena, float, (size_t)predicted(m));
    return measure_all(m, out) && (!m->losses || write_losses(m, out));
}

/* The ids that the model takes and may predict: those of its logits, or of its smallest table. */
static int64_t vocabulary_of_graph(const hir_module *m) {
    int64_t vocab = 0;
    HIR_EACH(m, id, m->first) {
        const hir_op *o = hir_op_at(m, id);
        int64_t n = 0;
        if (o->code == HIR_CROSS_ENTROPY_OP) n = hir_arg_type(m, id, 0).dim[1];
        if (o->code == HIR_GATHER_OP && hir_attr_int(o, HIR_A_BEYOND, -1) < 0 &&
            hir_ref_equal(o->args[1], hir_value_ref(m->inputs.at[0])))
            n = hir_arg_type(m, id, 0).dim[0];
        if (n > 0 && (!vocab || n < vocab)) vocab = n;
    }
    return vocab;
}

bool api_vocabulary(hadal_session *s, int64_t *vocab) {
    if (!api_need_module(s)) return false;
    hir_module *with_loss = hir_module_clone(s->graph, s->arena);
    if (!hir_add_loss(with_loss, &s->diags)) return false;
    *vocab = vocabulary_of_graph(with_loss);
    return true;
}

static bool check_data(hadal_session *s, const hadal_data *data) {
    int64_t vocab;
    return api_vocabulary(s, &vocab) && (vocab == 0 || api_data_check(s, data, vocab));
}

static bool evaluate_graph(measurer *m, hadal_evaluation *out) {
    hadal_session *s = m->s;
    if (!api_need_weights(s) || !hcg_check_weights(s->graph, &s->diags, &s->weights)) return false;
    m->eval = api_evaluator(s, (api_added){.loss = true});
    m->measure = measure_evaluator;
    return m->eval && check_data(s, m->data) && measure_to_file(m, out);
}

static bool evaluate_open_library(measurer *m, hadal_evaluation *out) {
    api_library *l = &m->library;
    int64_t vocab;
    if (!l->loss) return reject_library(m->s, l);
    m->measure = measure_library;
    m->silent = !api_has_logits(l);
    return vocabulary_of_library(l, &vocab) && api_data_check(m->s, m->data, vocab) &&
           api_library_start(l, m->o->packed, m->context - 1, m->o->threads, m->o->cpu_level) &&
           make_room_for_taps(m) && measure_to_file(m, out);
}

static bool evaluate_library(measurer *m, hadal_evaluation *out) {
    const char *model = m->s->graph ? m->s->m->name : api_library_model(m->s, m->o->library);
    if (!model || !api_library_open(&m->library, m->s, m->o->library, model)) return false;
    const bool ok = evaluate_open_library(m, out);
    api_library_close(&m->library);
    return ok;
}

static bool evaluate(hadal_session *s, const hadal_eval_options *o, const hadal_data *data,
                     hadal_evaluation *out) {
    measurer m = {.s = s, .o = o, .data = data};
    *out = (hadal_evaluation){0};
    if (!check_options(s, o)) return false;
    if (o->losses_path &&
        (!api_may_write(s, o->losses_path) || !api_data_may_write(s, data, o->losses_path)))
        return false;
    m.context = o->context < data->n ? o->context : data->n;
    api_start_measuring(s);
    if (!o->interpret) return evaluate_library(&m, out);
    return api_need_module(s) && evaluate_graph(&m, out);
}

int hadal_evaluate(hadal_session *s, const hadal_eval_options *o, const hadal_data *data,
                   hadal_evaluation *out) {
    API_ENTER(s);
    API_TAKE(hadal_eval_options, all, o);
    API_LEAVE(s, evaluate(s, &all, data, out));
}

int hadal_check_data(hadal_session *s, const hadal_data *data) {
    API_ENTER(s);
    API_LEAVE(s, check_data(s, data));
}
