/* hadal train. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/commands.h"
#include "driver/generate.h"
#include "driver/interrupt.h"
#include "driver/pipeline.h"
#include "driver/profile.h"
#include "driver/prompt.h"
#include "driver/ranks.h"
#include "driver/report.h"

typedef struct data_list {
    const hadal_data **at;
    size_t n;
} data_list;

/* ---- options --------------------------------------------------------------------------------- */

/* Opens the files of an option that may be given several times. */
static int open_all(hadal_session *s, const command_line *line, option_id id,
                    const hadal_tokenizer *t, data_list *out) {
    out->at = calloc(line->n_options + 1, sizeof *out->at);
    if (!out->at) return hadal_fail(s, "memory", "no memory for a list of files", NULL);
    for (size_t i = 0; i < line->n_options; i++) {
        if (line->options[i].id != id) continue;
        if (hadal_data_open(s, line->options[i].value, t, !option_given(line, OPTION_RAW_PROMPT),
                            &out->at[out->n++]))
            return 1;
    }
    return 0;
}

static int read_separation(hadal_session *s, const command_line *line, hadal_train_options *o) {
    const char *text = option_get(line, OPTION_SEPARATE);
    long long id = -1;
    o->separate_documents = text != NULL;
    if (text && *text && !option_number(s, line, OPTION_SEPARATE, -1, 0, INT32_MAX, &id)) return 1;
    o->document_end = (int32_t)id;
    return 0;
}

static int read_numbers(hadal_session *s, const command_line *line, hadal_train_options *o) {
    enum { MOST = 1 << 30 };
    long long context, batch, steps, warmup, seed, eval_every, save_every, depth_every, keep,
        threads;
    if (!option_number(s, line, OPTION_CONTEXT, 256, 1, 1 << 20, &context) ||
        !option_number(s, line, OPTION_BATCH, 8, 1, 1 << 20, &batch) ||
        !option_number(s, line, OPTION_STEPS, 1000, 1, MOST, &steps) ||
        !option_number(s, line, OPTION_WARMUP, 50, 0, MOST, &warmup) ||
        !option_number(s, line, OPTION_SEED, 1, 0, INT64_MAX, &seed) ||
        !option_number(s, line, OPTION_EVAL_EVERY, 100, 0, MOST, &eval_every) ||
        !option_number(s, line, OPTION_SAVE_EVERY, 100, 0, MOST, &save_every) ||
        !option_number(s, line, OPTION_DEPTH_EVERY, 0, 0, MOST, &depth_every) ||
        !option_number(s, line, OPTION_KEEP, 3, 0, MOST, &keep) ||
        !option_number(s, line, OPTION_THREADS, 0, 1, 256, &threads) ||
        !option_decimal(s, line, OPTION_LR, 0.001, 0, 1e6, &o->learning_rate) ||
        !option_decimal(s, line, OPTION_WEIGHT_DECAY, 0.1, 0, 1e6, &o->weight_decay) ||
        !option_decimal(s, line, OPTION_CLIP, 1, 0, 1e30, &o->clip))
        return 1;
    o->context = context, o->batch = batch, o->steps = steps, o->warmup = warmup, o->seed = seed;
    o->eval_every = eval_every, o->save_every = save_every, o->keep = keep;
    o->depth_every = depth_every;
    o->threads = (int)threads;
    return read_separation(s, line, o);
}

static int read_options(hadal_session *s, const command_line *line, hadal_train_options *o) {
    const char *schedule = option_get(line, OPTION_SCHEDULE);
    o->struct_size = sizeof *o;
    o->run = option_get(line, OPTION_OUTPUT);
    o->schedule = schedule ? schedule : "cosine";
    o->cpu_level = option_get(line, OPTION_CPU_LEVEL);
    o->cc = option_get(line, OPTION_LINKER);
    if (!o->run) return hadal_fail(s, "usage", "-o is missing", "the folder of the run: -o RUN");
    if (!option_given(line, OPTION_DATA))
        return hadal_fail(s, "usage", "--data is missing",
                          "a text, or token ids in a .npy or .i32 file");
    return read_numbers(s, line, o);
}

/* ---- what is said of it ---------------------------------------------------------------------- */

typedef struct listener {
    hadal_session *s;
    const command_line *line;
    size_t told; /* diagnostics that were told */
} listener;

static void tell_step(void *context, const hadal_train_event *e) {
    listener *l = context;
    const command_line *line = l->line;
    const double rate = e->seconds > 0 ? (double)e->tokens / e->seconds : 0;
    char text[512];
    if (hadal_diagnostics(l->s) != l->told) report_so_far(l->s, line); /* what memory it takes */
    l->told = hadal_diagnostics(l->s);
    int n = snprintf(text, sizeof text, "step %lld of %lld  loss %.4f", (long long)e->step,
                     (long long)e->steps, e->loss);
    if (e->evaluated)
        n += snprintf(text + n, sizeof text - (size_t)n, "  eval loss %.4f", e->eval_loss);
    n += snprintf(text + n, sizeof text - (size_t)n, "  %.0f tokens/s, %.2f of multiply-add", rate,
                  e->multiply_add);
    if (e->checkpoint)
        snprintf(text + n, sizeof text - (size_t)n, "  %.300s", e->checkpoint);
    else
        snprintf(text + n, sizeof text - (size_t)n, "  %lld:%02lld left",
                 (long long)(e->seconds_left / 60), (long long)e->seconds_left % 60);
    if (e->evaluated || e->checkpoint)
        report_line(line, text);
    else
        report_progress(text);
}

static int ask_interrupted(void *context) {
    (void)context;
    return was_interrupted();
}

static void print_row(const char *name, const char *text) {
    char row[4400];
    const int n = snprintf(row, sizeof row, "%-14s %.4300s\n", name, text);
    (void)report_text(row, (size_t)n); /* main reports a failed write */
}

static void print_number(const char *name, const char *format, double x) {
    char text[64];
    snprintf(text, sizeof text, format, x);
    print_row(name, text);
}

static void print_result(const hadal_trained *r) {
    char text[96];
    if (r->finished) print_row("run", "finished before");
    if (r->parameters) print_number("parameters", "%.0f", (double)r->parameters);
    snprintf(text, sizeof text, "%lld of %lld%s", (long long)r->step, (long long)r->steps,
             r->interrupted ? ", interrupted" : "");
    print_row("steps", text);
    if (r->step > r->begun) print_number("loss", "%.6g nats", r->loss);
    if (r->evaluated) print_number("eval loss", "%.6g nats", r->eval_loss);
    if (r->checkpoint) print_row("checkpoint", r->checkpoint);
}

/* ---- the work -------------------------------------------------------------------------------- */

/* Makes the folders that the run's is in. */
static int make_place(hadal_session *s, const char *run) {
    char dir[4096];
    size_t n = strlen(run);
    while (n > 1 && run[n - 1] == '/')
        n--;
    while (n > 0 && run[n - 1] != '/')
        n--;
    if (n < 2) return 0;
    if (n >= sizeof dir) return hadal_fail(s, "usage", "a path is too long", NULL);
    memcpy(dir, run, n - 1);
    dir[n - 1] = 0;
    return make_folders(s, dir);
}

/* Around texts a tokenizer puts tokens of its own; ids, and bytes, are taken as they are. */
static int reject_raw_prompt(hadal_session *s, const command_line *line, const prompt *text) {
    bool any = false;
    if (!option_given(line, OPTION_RAW_PROMPT)) return 0;
    for (size_t i = 0; i < line->n_options; i++) {
        const option_value *o = &line->options[i];
        any |= (o->id == OPTION_DATA || o->id == OPTION_EVAL_DATA) && hadal_data_is_text(o->value);
    }
    if (any && text->tokenizer) return 0;
    return hadal_fail(s, "usage", "--raw-prompt is for texts and a tokenizer",
                      any ? "the bytes of a text are its tokens where there is none"
                          : "the data hold token ids");
}

static int compile(hadal_session *s, const command_line *line, const hadal_train_options *o) {
    hadal_pipeline pipeline;
    if (make_pipeline(s, line, &pipeline) || load_model(s, line, "model")) return 1;
    pipeline.gradients = 1;
    pipeline.chunk = o->context;
    const bool begins = option_given(line, OPTION_WEIGHTS) && !hadal_is_run(o->run);
    if ((begins || hadal_weights_exist(s)) && hadal_check_weights(s)) return 1;
    return run_pipeline(s, line, &pipeline);
}

static int train(hadal_session *s, const command_line *line, data_list *data, data_list *eval,
                 ranks *group) {
    hadal_train_options o = {0};
    hadal_trained result;
    prompt text = {0};
    listener l = {.s = s, .line = line};
    if (read_options(s, line, &o) || join_training(s, line, group)) return 1;
    report_step("reading the data");
    if (find_tokenizer_of_text(s, line, &text) || reject_raw_prompt(s, line, &text) ||
        open_all(s, line, OPTION_DATA, text.tokenizer, data) ||
        open_all(s, line, OPTION_EVAL_DATA, text.tokenizer, eval) || compile(s, line, &o) ||
        (!group->silent && make_place(s, o.run)))
        return 1;
    const char *given = option_get(line, OPTION_TOKENIZER);
    o.tokenizer = text.tokenizer ? given ? given : text.folder : NULL;
    o.optimizer = option_get(line, OPTION_OPTIMIZER);
    o.data = data->at, o.n_data = data->n;
    o.eval_data = eval->at, o.n_eval_data = eval->n;
    o.profile = option_given(line, OPTION_PROFILE);
    o.event = tell_step, o.interrupted = ask_interrupted, o.context_of_calls = &l;
    report_step("training");
    clean_in(group->silent ? temporary_folder() : o.run);
    defer_ends();
    if (hadal_train(s, &o, &result)) return 1;
    if (!group->silent) print_result(&result);
    if (o.profile && !result.finished && deliver_profile(s, line)) return 1;
    if (!result.interrupted) return 0;
    return was_interrupted() ? 128 + interrupted_by() : EXIT_INTERRUPTED; /* or another rank */
}

int cmd_train(hadal_session *s, const command_line *line) {
    data_list data = {0}, eval = {0};
    ranks group = {0};
    const int failed = train(s, line, &data, &eval, &group);
    free(data.at);
    free(eval.at);
    const int left = leave_ranks(&group, failed == EXIT_INTERRUPTED ? 0 : failed);
    return left ? left : failed;
}
