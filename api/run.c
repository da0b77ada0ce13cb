/* Running a model: in the reference evaluator, or as a compiled library opened with dlopen
 * (library.c). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/data.h"
#include "api/evaluator.h"
#include "api/hidden.h"
#include "api/library.h"
#include "api/look.h"
#include "api/sample.h"
#include "api/stats.h"
#include "api/taps.h"
#include "codegen/program/program.h"
#include "inspect/profile.h"
#include "inspect/taps.h"

#define API_FAILED 1

/* ---- tokens ---------------------------------------------------------------------------------- */

typedef HD_VEC(int32_t) token_list;

static bool tokens_from_list(hadal_session *s, const char *text, token_list *out) {
    const char *at = text;
    for (;;) {
        char *end;
        errno = 0;
        const long v = strtol(at, &end, 10);
        if (end == at || errno || v < INT32_MIN || v > INT32_MAX || (*end && *end != ',')) {
            hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "\"%s\" is not a list of token ids", text)
                ->hint = "ids are separated by commas: 1,2,3; or name a .npy file, or "
                         "FILE.safetensors:TENSOR";
            return false;
        }
        hd_push(s->arena, out, (int32_t)v);
        if (!*end) return true;
        at = end + 1;
    }
}

static bool tokens_from_tensor(hadal_session *s, const char *name, const hd_tensor *t,
                               token_list *out) {
    if (!hd_tensor_is_number(t)) {
        hd_err(&s->diags, HD_E_VALUE, HD_NOWHERE, "a token of %s is beyond all vocabularies", name)
            ->cause = "token ids are 0 to 2147483647";
        return false;
    }
    for (uint64_t i = 0; i < t->elements; i++) {
        const double v = hd_tensor_get(t, i);
        if (v < INT32_MIN || v > INT32_MAX) {
            hd_err(&s->diags, HD_E_VALUE, HD_NOWHERE, "token %llu of %s is %.0f, out of range",
                   (unsigned long long)i, name, v);
            return false;
        }
        hd_push(s->arena, out, (int32_t)v);
    }
    return true;
}

static bool read_tokens(hadal_session *s, const char *text, token_list *out) {
    hd_tensor t;
    if (!hd_ends_with(text, ".npy") && !strchr(text, ':')) return tokens_from_list(s, text, out);
    return api_open_token_tensor(s, text, &t) && tokens_from_tensor(s, text, &t, out);
}

int hadal_read_tokens(hadal_session *s, const char *text, const int32_t **tokens, int64_t *n) {
    API_ENTER(s);
    token_list list = {0};
    const bool ok = read_tokens(s, text, &list);
    *tokens = list.at;
    *n = (int64_t)list.n;
    if (ok && list.n == 0) hd_err(&s->diags, HD_E_VALUE, HD_NOWHERE, "%s holds no tokens", text);
    API_LEAVE(s, ok && list.n > 0);
}

/* ---- collecting results ---------------------------------------------------------------------- */

typedef struct output { /* the rows of one output, which calls fill one after the other */
    const char *name;
    hir_type type; /* as in the IR: dim 0 is T, or the type has no T */
    int64_t row;   /* elements of a row */
    int64_t filled;
    float *at;
} output;

typedef struct outputs {
    output *at;
    size_t n;
    int64_t rows, skipped; /* rows of the last positions are kept; those before are not */
} outputs;

static outputs outputs_of(const hadal_run_options *o, int64_t tokens) {
    const bool some = o->rows > 0 && o->rows < tokens && !o->profile;
    const int64_t rows = some ? o->rows : tokens;
    return (outputs){.rows = rows, .skipped = tokens - rows};
}

/* The number of rows kept of a call of n tokens with `past` tokens before it. */
static int64_t kept_rows(const outputs *out, int64_t past, int64_t n) {
    const int64_t rows = past + n - out->skipped;
    return rows < 0 ? 0 : rows < n ? rows : n;
}

/* Collects the model's outputs, logits first; `m` has traces as outputs. */
static bool collect(hadal_session *s, const hir_module *m, outputs *out) {
    HD_VEC(output) list = {0};
    HIR_EACH(m, op, m->first) {
        const hir_op *o = hir_op_at(m, op);
        if (o->code != HIR_OUTPUT_OP) continue;
        output item = {.name = hir_attr_string(o, HIR_A_NAME, ""), .type = hir_arg_type(m, op, 0)};
        item.row = hir_type_row_elements(item.type);
        if (!hir_type_has_t(item.type)) {
            hd_err(&s->diags, HD_E_UNSUPPORTED, HD_NOWHERE, "output \"%s\" has no row per token",
                   item.name);
            return false;
        }
        item.at = hd_alloc(s->arena, (size_t)out->rows, (size_t)item.row * sizeof(float));
        hd_push(s->arena, &list, item);
    }
    out->at = list.at, out->n = list.n;
    const bool model =
        m->inputs.n == 1 && list.n > 0 && hir_value_at(m, m->inputs.at[0])->type.dtype == HIR_I32;
    if (!model)
        hd_err(&s->diags, HD_E_UNSUPPORTED, HD_NOWHERE,
               "%s is a plain function: run takes models, whose one input is i32[T] tokens",
               m->name);
    return model;
}

static hd_tensor as_tensor(const output *o, int64_t tokens) {
    hd_tensor t = {.name = o->name, .dtype = HD_T_F32, .rank = o->type.rank};
    for (uint32_t i = 0; i < o->type.rank; i++)
        t.shape[i] = o->type.dim[i] == HIR_T ? tokens : o->type.dim[i];
    t.elements = (uint64_t)(tokens * o->row);
    t.bytes = t.elements * sizeof(float);
    t.data = (const uint8_t *)o->at;
    return t;
}

static bool is_hidden(const output *o) {
    return strcmp(o->name, API_HIDDEN) == 0;
}

/* Is it of the model and its spec, not added for this run? */
static bool is_own(const output *o) {
    return !is_hidden(o) && !taps_is_output(o->name);
}

static bool write_rows(hadal_session *s, const output *o, int64_t tokens, const char *path) {
    const hd_tensor rows = as_tensor(o, tokens);
    return hd_npy_write(s->arena, &s->diags, path, &rows);
}

static bool write_traces(hadal_session *s, const outputs *out, const char *path) {
    hd_tensor *traces = hd_new_array(s->arena, hd_tensor, out->n);
    size_t n = 0;
    for (size_t i = 1; i < out->n; i++)
        if (is_own(&out->at[i])) traces[n++] = as_tensor(&out->at[i], out->rows);
    if (n == 0)
        hd_warn(&s->diags, HD_E_UNSUPPORTED, HD_NOWHERE, "%s traces nothing: %s is empty",
                s->m ? s->m->name : "the library", path)
            ->hint = "mixes over depth are traced as depth_weights; --mixing-matrix of inspect "
                     "looks at any system";
    return hd_safetensors_write(s->arena, &s->diags, path, traces, n);
}

/* Checks, before any work, that there are logits to choose next tokens by. A pipeline stage before
 * the last has none. */
static bool check_next(hadal_session *s, const hadal_run_options *o, const outputs *out) {
    const output *first = out->n ? &out->at[0] : NULL;
    if (o->top < 0) {
        hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "%lld next tokens are wanted", (long long)o->top);
        return false;
    }
    const bool logits = first && strcmp(first->name, "logits") == 0 && first->type.rank == 2;
    if (o->top == 0 || !first || logits) return true;
    hd_text type;
    hd_text_init(&type, s->arena);
    hir_print_type(&type, first->type);
    hd_err(&s->diags, HD_E_UNSUPPORTED, HD_NOWHERE,
           "next tokens are found by logits, and the first output is \"%s\", %s", first->name,
           type.at)
        ->hint = "logits [T, vocab] must be the first output; --logits OUT.npy stores any";
    return false;
}

static api_tapped tapped_rows(hadal_session *s, const outputs *out) {
    api_tapped x = {.at = hd_new_array(s->arena, const float *, out->n + 1), .rows = out->rows};
    for (size_t i = 0, n = 0; i < out->n; i++)
        if (taps_is_output(out->at[i].name)) x.at[n++] = out->at[i].at;
    return x;
}

/* Writes the results. Logits are the first output. */
static bool write_results(hadal_session *s, const hadal_run_options *o, const outputs *out,
                          const char *logits_path, const char *trace_path) {
    const output *first = &out->at[0];
    if (logits_path && !write_rows(s, first, out->rows, logits_path)) return false;
    for (size_t i = 1; o->hidden_path && i < out->n; i++)
        if (is_hidden(&out->at[i]) && !write_rows(s, &out->at[i], out->rows, o->hidden_path))
            return false;
    if (trace_path && !write_traces(s, out, trace_path)) return false;
    const api_tapped tapped = tapped_rows(s, out);
    if (!api_write_taps(s, &tapped, o->taps_path)) return false;
    api_start_measuring(s);
    api_measure_taps(s, &tapped);
    return o->top == 0 || out->n == 0 ||
           api_keep_next(s, first->at + (out->rows - 1) * first->row, (size_t)first->row, o->top);
}

/* ---- profiles -------------------------------------------------------------------------------- */

/* An empty profile for the steps of an open library in the calls of its session. */
static profile *new_profile(hd_arena *a, const api_library *l, int threads) {
    const hd_info *info = l->info;
    profile *p = hd_new(a, profile);
    hd_info_step *steps = hd_new_array(a, hd_info_step, info->n_steps + 1);
    for (size_t i = 0; i < info->n_steps; i++) {
        steps[i] = info->steps[i];
        steps[i].name = hd_strdup(a, steps[i].name);
        steps[i].kind = hd_strdup(a, steps[i].kind);
        steps[i].scope = hd_strdup(a, steps[i].scope);
    }
    *p = (profile){.model = hd_strdup(a, info->name),
                   .cpu = hd_strdup(a, l->session_cpu(l->session)),
                   .machine = hd_strdup(a, l->session_machine(l->session)),
                   .threads = threads,
                   .n_steps = info->n_steps,
                   .max_chunk = info->max_chunk,
                   .steps = steps};
    for (int i = 0; i < PROFILE_PHASES; i++) {
        p->phases[i].steps = hd_new_array(a, step_time, info->n_steps + 1);
        p->phases[i].work = hd_new_array(a, step_work, info->n_steps + 1);
    }
    return p;
}

static profile_phase *phase_of(profile *p, int64_t n) {
    return &p->phases[n == 1 ? PROFILE_DECODE : PROFILE_PREFILL];
}

/* Called before and after a call of n tokens with `past` tokens before it, which requests n rows of
 * logits. */
static bool start_profile(profile *p, api_library *l, int64_t n) {
    profile_phase *phase = phase_of(p, n);
    const bool ok =
        api_library_ok(l, l->session_profile(l->session, phase->steps, p->n_steps), "profile");
    phase->seconds -= now(ON_THE_WALL);
    return ok;
}

static void end_profile(profile *p, int64_t n, int64_t past) {
    profile_phase *phase = phase_of(p, n);
    phase->seconds += now(ON_THE_WALL);
    phase->calls++;
    phase->tokens += (uint64_t)n;
    const int64_t chunk = (int64_t)p->max_chunk;
    for (int64_t done = 0, part; done < n; done += part) {
        part = n - done < chunk ? n - done : chunk;
        for (size_t i = 0; i < p->n_steps; i++)
            step_work_add(&phase->work[i], step_work_of(&p->steps[i], part, past + done, part));
    }
}

/* ---- evaluator and library ------------------------------------------------------------------- */

typedef bool (*call_fn)(void *context, const int32_t *tokens, int64_t n, outputs *out);

/* Makes calls of as many tokens as `split` says, then one token at a time. Without `split` one call
 * takes all tokens. */
static bool in_calls(const hadal_run_options *o, const int32_t *tokens, int64_t n, outputs *out,
                     call_fn call, void *context) {
    if (!o->n_split) return call(context, tokens, n, out);
    int64_t done = 0;
    for (size_t i = 0; i < o->n_split; done += o->split[i++])
        if (!call(context, tokens + done, o->split[i], out)) return false;
    for (; done < n; done++)
        if (!call(context, tokens + done, 1, out)) return false;
    return true;
}

static bool check_split(hadal_session *s, const hadal_run_options *o, int64_t n) {
    int64_t left = n;
    for (size_t i = 0; i < o->n_split; left -= o->split[i++]) {
        if (o->split[i] >= 1 && o->split[i] <= left) continue;
        hd_err(&s->diags, HD_E_USAGE, HD_NOWHERE, "a split after %lld of %lld tokens",
               (long long)o->split[i], (long long)left)
            ->hint = "each call takes at least one token, and all together at most those given";
        return false;
    }
    return true;
}

typedef struct interpreter {
    hadal_session *s;
    hir_eval *eval;
    int64_t past; /* tokens of earlier calls */
} interpreter;

static const hir_array *named(const hir_results *r, const char *name) {
    for (size_t i = 0; i < r->outputs.n; i++)
        if (strcmp(r->outputs.at[i].name, name) == 0) return &r->outputs.at[i];
    for (size_t i = 0; i < r->traces.n; i++)
        if (strcmp(r->traces.at[i].name, name) == 0) return &r->traces.at[i];
    return NULL;
}

static bool call_interpreter(void *context, const int32_t *tokens, int64_t n, outputs *out) {
    interpreter *in = context;
    hd_arena *scratch = hd_arena_new();
    if (!scratch) {
        hd_err(&in->s->diags, HD_E_MEMORY, HD_NOWHERE, "no memory for a call of the evaluator");
        return false;
    }
    /* an allocation failure in the scratch arena ends here, not in the session's guard */
    jmp_buf here;
    hd_arena_guard(scratch, &here);
    if (setjmp(here)) {
        hd_arena_free(scratch);
        hd_err(&in->s->diags, HD_E_MEMORY, HD_NOWHERE, "no memory for a call of the evaluator");
        return false;
    }

    double *ids = hd_new_array(scratch, double, (size_t)n);
    for (int64_t i = 0; i < n; i++)
        ids[i] = tokens[i];
    hir_results results = {0};
    const bool ok = hir_eval_call(in->eval, scratch, &in->s->diags, n, (const double *const[]){ids},
                                  &results, NULL, NULL);
    const int64_t rows = kept_rows(out, in->past, n);
    for (size_t i = 0; ok && i < out->n; i++) {
        output *o = &out->at[i];
        const hir_array *values = named(&results, o->name);
        for (int64_t j = 0; values && j < rows * o->row; j++)
            o->at[o->filled * o->row + j] = (float)values->at[(n - rows) * o->row + j];
        o->filled += rows;
    }
    in->past += n;
    hd_arena_free(scratch);
    return ok;
}

/* The module that has all outputs and traces, which a single one of several pipeline stages does
 * not. */
static const hir_module *whole_model(hadal_session *s, const hadal_run_options *o) {
    static const hir_pass_id traces[] = {HIR_PASS_LOWER_TRACES};
    const hir_run lower = {.passes = traces, .n_passes = 1, .stop_after = HIR_PASS_COUNT};
    if (s->pass_options.stages <= 1) return s->m;
    hir_module *m = hir_module_clone(s->graph, s->arena);
    if (o->hidden_path && !api_add_hidden(m, &s->diags)) return NULL;
    return hir_run_passes(m, &lower, &s->pass_options, NULL, &s->diags) ? m : NULL;
}

static bool run_interpreted(hadal_session *s, const hadal_run_options *o, const int32_t *tokens,
                            int64_t n, outputs *out) {
    if (!hcg_check_weights(s->graph, &s->diags, &s->weights)) return false;
    const api_added added = {.hidden = o->hidden_path != NULL};
    interpreter in = {s, api_evaluator(s, added), 0};
    return in.eval && in_calls(o, tokens, n, out, call_interpreter, &in);
}

typedef struct caller {
    api_library *l;
    profile *profile; /* NULL: no profile is recorded */
    int64_t past;     /* tokens that the session holds */
} caller;

static bool call_library(void *context, const int32_t *tokens, int64_t n, outputs *out) {
    caller *c = context;
    api_library *l = c->l;
    float **at = hd_new_array(l->s->arena, float *, out->n + 1); /* NULL: a stage without outputs */
    const int64_t rows = kept_rows(out, c->past, n);
    for (size_t i = 0; i < out->n; i++) {
        at[i] = out->at[i].at + out->at[i].filled * out->at[i].row;
        out->at[i].filled += rows;
    }
    if (c->profile && !start_profile(c->profile, l, n)) return false;
    const int code = l->forward_outputs ? l->forward_outputs(l->session, tokens, n, at, rows)
                                        : l->forward(l->session, tokens, n, at[0], rows);
    if (c->profile) end_profile(c->profile, n, c->past);
    c->past += n;
    return api_library_ok(l, code, "forward");
}

/* Runs all calls on an empty session. A second execution overwrites the results of the first with
 * the same values. */
static bool run_once(caller *c, const hadal_run_options *o, const int32_t *tokens, int64_t n,
                     outputs *out) {
    for (size_t i = 0; i < out->n; i++)
        out->at[i].filled = 0;
    c->past = 0;
    return api_library_ok(c->l, c->l->session_rewind(c->l->session, 0), "rewind") &&
           in_calls(o, tokens, n, out, call_library, c);
}

/* Runs once without a profile, since the first execution touches memory for the first time, and
 * once with one. */
static bool run_profiled(api_library *l, const hadal_run_options *o, const int32_t *tokens,
                         int64_t n, outputs *out) {
    caller c = {.l = l};
    bool ok = run_once(&c, o, tokens, n, out);
    c.profile = l->s->profile = new_profile(l->s->arena, l, o->threads);
    for (int i = 0; ok && i < o->profile; i++)
        ok = run_once(&c, o, tokens, n, out);
    return ok;
}

static bool run_compiled(hadal_session *s, const hadal_run_options *o, const int32_t *tokens,
                         int64_t n, outputs *out) {
    api_library l;
    if (!api_library_open(&l, s, o->library, s->m->name)) return false;
    bool ok = api_library_start(&l, o->packed, n, o->threads, o->cpu_level);
    if (ok && o->profile > 0)
        ok = run_profiled(&l, o, tokens, n, out);
    else if (ok)
        ok = run_once(&(caller){.l = &l}, o, tokens, n, out);
    api_library_close(&l);
    return ok;
}

/* A type as libraries state it for their outputs: "f32[T, 4, 256]". */
static hir_type type_of_text(const char *text) {
    int64_t dims[HIR_MAX_RANK] = {HIR_T};
    uint32_t rank = 1;
    for (const char *c = strchr(text, ','); c && rank < HIR_MAX_RANK; c = strchr(c + 1, ','))
        dims[rank++] = strtoll(c + 1, NULL, 10);
    return hir_make_type(HIR_F32, rank, dims);
}

static void collect_from_library(hadal_session *s, const hd_info *info, outputs *out) {
    out->at = hd_new_array(s->arena, output, info->n_outputs + 1), out->n = info->n_outputs;
    for (size_t i = 0; i < info->n_outputs; i++) {
        output *o = &out->at[i];
        *o = (output){.name = info->outputs[i].name, .type = type_of_text(info->outputs[i].type)};
        o->row = hir_type_row_elements(o->type);
        o->at = hd_alloc(s->arena, (size_t)out->rows, (size_t)o->row * sizeof(float));
    }
}

/* Runs a library of which only what it states about itself is known. */
static bool run_library(hadal_session *s, const hadal_run_options *o, const int32_t *tokens,
                        int64_t n, const char *logits_path, const char *trace_path) {
    api_library l;
    outputs out = outputs_of(o, n);
    const char *model = api_library_model(s, o->library);
    if (!check_split(s, o, n) || !model || !api_library_open(&l, s, o->library, model))
        return false;
    collect_from_library(s, l.info, &out);
    bool ok =
        check_next(s, o, &out) && api_library_start(&l, o->packed, n, o->threads, o->cpu_level);
    if (ok && o->profile > 0)
        ok = run_profiled(&l, o, tokens, n, &out);
    else if (ok)
        ok = run_once(&(caller){.l = &l}, o, tokens, n, &out);
    ok = ok && write_results(s, o, &out, logits_path, trace_path);
    api_library_close(&l);
    return ok;
}

static bool run(hadal_session *s, const hadal_run_options *o, const int32_t *tokens, int64_t n,
                const char *logits_path, const char *trace_path) {
    if (!s->graph && o->library && !o->interpret)
        return run_library(s, o, tokens, n, logits_path, trace_path);
    if (!api_need_module(s)) return false;
    if (!check_split(s, o, n)) return false;
    outputs out = outputs_of(o, n);
    if (logits_path && !api_may_write(s, logits_path)) return false;
    if (trace_path && !api_may_write(s, trace_path)) return false;
    if (o->hidden_path && !api_may_write(s, o->hidden_path)) return false;
    if (o->taps_path && !api_may_write(s, o->taps_path)) return false;
    if (!api_check_taps(s, out.rows, api_memory())) return false;
    const hir_module *with_outputs = o->interpret ? whole_model(s, o) : s->m;
    if (!with_outputs || !collect(s, with_outputs, &out) || !check_next(s, o, &out)) return false;
    if (o->interpret) {
        if (!api_need_weights(s) || !run_interpreted(s, o, tokens, n, &out)) return false;
    } else if (!run_compiled(s, o, tokens, n, &out)) {
        return false;
    }
    return write_results(s, o, &out, logits_path, trace_path);
}

int hadal_run(hadal_session *s, const hadal_run_options *o, const int32_t *tokens, int64_t n,
              const char *logits_path, const char *trace_path) {
    API_ENTER(s);
    API_TAKE(hadal_run_options, all, o);
    s->next = NULL, s->n_next = 0, s->by_depth = NULL;
    API_LEAVE(s, run(s, &all, tokens, n, logits_path, trace_path));
}

#undef API_FAILED
#define API_FAILED NULL
const char *hadal_profile_text(hadal_session *s, const char *form) {
    API_ENTER(s);
    inspect_form found;
    const bool there = s->profile && inspect_find_form(form, &found);
    const char *text = there ? api_look(s, INSPECT_PROFILE, found) : NULL;
    API_RETURN(s, text);
}
