/* hadal eval. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "driver/by_depth.h"
#include "driver/commands.h"
#include "driver/pipeline.h"
#include "driver/prompt.h"
#include "driver/ranks.h"
#include "driver/report.h"
#include "driver/workspace.h"

/* ---- results --------------------------------------------------------------------------------- */
static void print_number(const char *name, double x, const char *unit) {
    char line[96];
    snprintf(line, sizeof line, "%-14s %.6g%s\n", name, x, unit);
    (void)report_text(line, strlen(line)); /* main reports a failed write */
}

static void print_text(const hadal_evaluation *e) {
    char line[96];
    snprintf(line, sizeof line, "%-14s %lld of %lld\n", "tokens", (long long)e->tokens,
             (long long)e->data_tokens);
    (void)report_text(line, strlen(line));
    print_number("loss", e->loss, " nats");
    print_number("perplexity", e->perplexity, "");
    if (e->bytes) print_number("bits per byte", e->bits_per_byte, "");
}

/* JSON has no infinite numbers: e^loss of a large loss is null. */
static void add_number(char *out, size_t size, const char *name, double x) {
    const size_t n = strlen(out);
    if (isfinite(x))
        snprintf(out + n, size - n, ", \"%s\": %.17g", name, x);
    else
        snprintf(out + n, size - n, ", \"%s\": null", name);
}

/* `by_depth`: JSON that becomes a member; NULL: none. */
static void print_json(const hadal_evaluation *e, const hadal_eval_options *o,
                       const char *by_depth) {
    char out[512];
    snprintf(out, sizeof out, "{\"tokens\": %lld, \"data_tokens\": %lld", (long long)e->tokens,
             (long long)e->data_tokens);
    add_number(out, sizeof out, "loss", e->loss);
    add_number(out, sizeof out, "perplexity", e->perplexity);
    if (e->bytes) {
        add_number(out, sizeof out, "bits_per_byte", e->bits_per_byte);
        add_number(out, sizeof out, "bytes", (double)e->bytes);
    }
    add_number(out, sizeof out, "context", (double)o->context);
    if (o->stride) add_number(out, sizeof out, "stride", (double)o->stride);
    add_number(out, sizeof out, "seconds", e->seconds);
    (void)report_text(out, strlen(out));
    if (by_depth) {
        static const char key[] = ", \"by_depth\": ";
        (void)report_text(key, sizeof key - 1);
        (void)report_text(by_depth, strlen(by_depth) - 1); /* without the end of the line */
    }
    (void)report_text("}\n", 2);
}

/* Prints all results, or writes the picture of what is by depth. */
static int deliver(hadal_session *s, const command_line *line, const hadal_evaluation *e,
                   const hadal_eval_options *o) {
    const bool json = option_given(line, OPTION_JSON), deep = option_given(line, OPTION_BY_DEPTH);
    const bool picture = by_depth_is_picture(line);
    if (json)
        print_json(e, o, deep && !picture ? hadal_by_depth_text(s, "json") : NULL);
    else
        print_text(e);
    return deep && (picture || !json) ? deliver_by_depth(s, line) : 0;
}

static void tell_rate(const command_line *line, const hadal_evaluation *e) {
    if (option_given(line, OPTION_QUIET)) return;
    report_end();
    fprintf(stderr, "%lld tokens in %.3f s (%.1f/s)\n", (long long)e->data_tokens, e->seconds,
            e->seconds > 0 ? (double)e->data_tokens / e->seconds : 0);
}

/* ---- the work -------------------------------------------------------------------------------- */
static int options_of(hadal_session *s, const command_line *line, hadal_eval_options *o) {
    long long context, stride, threads;
    if (!option_given(line, OPTION_DATA))
        return hadal_fail(s, "usage", "--data is missing",
                          "a text, or token ids in a .npy or .i32 file");
    if (!option_number(s, line, OPTION_CONTEXT, 1024, 2, 1LL << 30, &context) ||
        !option_number(s, line, OPTION_STRIDE, 0, 1, 1LL << 30, &stride) ||
        !option_number(s, line, OPTION_THREADS, 0, 1, 256, &threads))
        return 1;
    const bool interpret = option_given(line, OPTION_INTERPRET);
    if (hadal_weights_load(s, option_get(line, OPTION_WEIGHTS_LOAD))) return 1;
    const char *form = option_get(line, OPTION_BY_DEPTH);
    if (check_by_depth(s, line)) return 1;
    if (form && strcmp(form, "json") == 0)
        return hadal_fail(s, "usage", "--by-depth=json of eval is --by-depth --json",
                          "one JSON text has the loss and what is by depth");
    *o = (hadal_eval_options){
        .struct_size = sizeof *o,
        .interpret = interpret,
        .cpu_level = option_get(line, OPTION_CPU_LEVEL),
        .threads = (int)threads,
        .context = context,
        .stride = stride,
        .losses_path = option_get(line, OPTION_LOSSES),
    };
    return 0;
}

static int open_data(hadal_session *s, const command_line *line, const hadal_data **data) {
    const char *path = option_get(line, OPTION_DATA);
    prompt text = {0};
    report_step("reading the data");
    if (!hadal_data_is_text(path)) {
        if (option_given(line, OPTION_TOKENIZER) || option_given(line, OPTION_RAW_PROMPT))
            return hadal_fail(s, "usage", "--tokenizer and --raw-prompt are for a text",
                              "the data hold token ids");
    } else if (find_tokenizer_of_text(s, line, &text)) {
        return 1;
    }
    if (!text.tokenizer && option_given(line, OPTION_RAW_PROMPT))
        return hadal_fail(s, "usage", "--raw-prompt is for a tokenizer",
                          "the bytes of a text are its tokens where there is none");
    return hadal_data_open(s, path, text.tokenizer, !option_given(line, OPTION_RAW_PROMPT), data);
}

/* Makes what the evaluation needs of SPEC: code, or the types of weights alone. */
static int prepare(hadal_session *s, const command_line *line, const hadal_data *data,
                   hadal_eval_options *o, workspace *w, ranks *group) {
    hadal_pipeline pipeline;
    char name[256];
    if (find_compiled_stages(line->positional[0], &w->files, name, sizeof name)) {
        if (o->interpret)
            return hadal_fail(s, "usage", "--interpret is for a SPEC",
                              "a compiled model has no graph");
        if (option_given(line, OPTION_BY_DEPTH))
            return hadal_fail(s, "usage", "--by-depth is for a SPEC",
                              "a compiled model gives the outputs that it was compiled with");
        return reject_spec_options(s, line) ||
               join_ranks(s, line, line->positional[0], &w->files, group);
    }
    if ((option_given(line, OPTION_RANKS) || option_given(line, OPTION_STAGES)) && !o->interpret)
        return hadal_fail(s, "usage", "--ranks and --stages of eval are for --interpret",
                          "hadal compile SPEC --loss --ranks P --stages S -o DIR/NAME, then mpirun "
                          "-n N hadal eval DIR/NAME, N = P S");
    if (reject_rank_options(s, line) || make_pipeline(s, line, &pipeline) ||
        load_model(s, line, NULL) || hadal_check_weights(s) || hadal_check_data(s, data))
        return 1;
    pipeline.loss = !o->interpret;
    pipeline.by_depth = option_given(line, OPTION_BY_DEPTH);
    if (o->interpret) stop_for_evaluator(s, &pipeline);
    if (run_pipeline(s, line, &pipeline)) return 1;
    return o->interpret ? 0 : make_workspace(s, w) || build_library(s, line, &w->files);
}

static int evaluate(hadal_session *s, const command_line *line, workspace *w, ranks *group) {
    hadal_eval_options o = {0};
    hadal_evaluation result;
    const hadal_data *data = NULL;
    if (options_of(s, line, &o) || open_data(s, line, &data) ||
        prepare(s, line, data, &o, w, group))
        return 1;
    o.library = w->files.library, o.packed = w->files.weights;
    if (group->silent) o.losses_path = NULL;
    report_tokens("evaluating");
    if (hadal_evaluate(s, &o, data, &result)) return 1;
    if (group->silent) return 0;
    if (deliver(s, line, &result, &o)) return 1;
    tell_rate(line, &result);
    return 0;
}

int cmd_eval(hadal_session *s, const command_line *line) {
    workspace w = {0};
    ranks group = {0};
    const int failed = leave_ranks(&group, evaluate(s, line, &w, &group));
    remove_workspace(&w);
    return failed;
}
