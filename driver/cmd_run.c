/* hadal run. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "driver/by_depth.h"
#include "driver/commands.h"
#include "driver/pipeline.h"
#include "driver/profile.h"
#include "driver/prompt.h"
#include "driver/ranks.h"
#include "driver/report.h"
#include "driver/workspace.h"

/* ---- the most likely next tokens ------------------------------------------------------------- */

static int fail(hadal_session *s) {
    return hadal_fail(s, "memory", "no memory for the text of tokens", NULL);
}

static void print_line(const char *text) {
    (void)report_text(text, strlen(text)); /* main reports a failed write */
}

static int print_text(hadal_session *s, hadal_text_stream *stream, int32_t token) {
    size_t n = 0;
    const char *bytes = hadal_text_stream_bytes(stream, token, &n);
    const size_t length = bytes ? hadal_text_quote(bytes, n, NULL, 0) : 0;
    char *quoted = bytes ? malloc(length + 1) : NULL;
    if (!quoted) return fail(s);
    hadal_text_quote(bytes, n, quoted, length + 1);
    print_line("  ");
    print_line(quoted);
    free(quoted);
    return 0;
}

/* `stream`: NULL if there is no text. */
static int print_rows(hadal_session *s, hadal_text_stream *stream) {
    size_t n;
    char line[96];
    const hadal_next_token *next = hadal_next_tokens(s, &n);
    snprintf(line, sizeof line, "rank        id  probability       logit%s\n",
             stream ? "  text" : "");
    print_line(line);
    for (size_t i = 0; i < n; i++) {
        snprintf(line, sizeof line, "%4zu  %8d  %11.4g  %10.4f", i + 1, next[i].token,
                 next[i].probability, (double)next[i].logit);
        print_line(line);
        if (stream && print_text(s, stream, next[i].token)) return 1;
        print_line("\n");
    }
    return 0;
}

/* Prints a table of the next tokens of the last hadal_run to standard output. */
static int print_next_tokens(hadal_session *s, const prompt *p) {
    if (!p->tokenizer) return print_rows(s, NULL);
    hadal_text_stream *stream = hadal_text_stream_open(p->tokenizer, 0);
    if (!stream) return fail(s);
    for (int64_t i = 0; i < p->n; i++) /* decoding a token depends on the text before it */
        (void)hadal_text_stream_add(stream, p->ids[i], NULL);
    const int failed = print_rows(s, stream);
    hadal_text_stream_close(stream);
    return failed;
}

static bool stores_any(const command_line *line) {
    return option_given(line, OPTION_LOGITS) || option_given(line, OPTION_HIDDEN) ||
           option_given(line, OPTION_TRACE_DEPTH) || option_given(line, OPTION_TAPS) ||
           option_given(line, OPTION_BY_DEPTH);
}

static int options_of(hadal_session *s, const command_line *line, option_number_list *split,
                      hadal_run_options *o) {
    long long threads, rounds, top;
    if (!option_numbers(s, line, OPTION_SPLIT, "", split)) return 1;
    if (!option_number(s, line, OPTION_THREADS, 0, 1, 256, &threads)) return 1;
    if (!option_number(s, line, OPTION_ROUNDS, 1, 1, 1000, &rounds)) return 1;
    const bool profile = option_given(line, OPTION_PROFILE);
    if (check_by_depth(s, line)) return 1;
    const bool alone = !stores_any(line) && !profile; /* then next tokens are the result */
    if (!option_number(s, line, OPTION_TOP, alone ? 5 : 0, 1, 1LL << 31, &top)) return 1;
    if (hadal_weights_load(s, option_get(line, OPTION_WEIGHTS_LOAD))) return 1;
    *o = (hadal_run_options){
        .struct_size = sizeof *o,
        .split = split->at,
        .n_split = split->n,
        .interpret = option_given(line, OPTION_INTERPRET),
        .cpu_level = option_get(line, OPTION_CPU_LEVEL),
        .threads = (int)threads,
        .profile = profile ? (int)rounds : 0,
        .hidden_path = option_get(line, OPTION_HIDDEN),
        .taps_path = option_get(line, OPTION_TAPS_OUT),
        .top = top,
        .rows = alone ? 1 : 0,
    };
    return 0;
}

/* Prints the results of an execution. */
static int deliver(hadal_session *s, const command_line *line, const hadal_run_options *o,
                   const prompt *p) {
    if (option_given(line, OPTION_BY_DEPTH) && deliver_by_depth(s, line)) return 1;
    if (o->top && print_next_tokens(s, p)) return 1;
    return o->profile ? deliver_profile(s, line) : 0;
}

/* Runs a library that was compiled earlier. If it is divided over ranks, all of them run it, and
 * the first writes. */
static int run_compiled(hadal_session *s, const command_line *line, workspace *w, prompt *p,
                        ranks *group) {
    const char *logits = option_get(line, OPTION_LOGITS);
    const char *trace = option_get(line, OPTION_TRACE_DEPTH);
    option_number_list split;
    hadal_run_options options = {0};
    if (option_given(line, OPTION_INTERPRET) || option_given(line, OPTION_HIDDEN) ||
        option_given(line, OPTION_TAPS) || option_given(line, OPTION_BY_DEPTH))
        return hadal_fail(s, "usage", "--interpret, --hidden, --taps and --by-depth are for a SPEC",
                          "a compiled model gives the outputs that it was compiled with");
    if (reject_spec_options(s, line) || options_of(s, line, &split, &options) ||
        read_prompt(s, line, p) || join_ranks(s, line, line->positional[0], &w->files, group))
        return 1;
    options.library = w->files.library;
    options.packed = w->files.weights;
    report_step("running");
    if (hadal_run(s, &options, p->ids, p->n, group->silent ? NULL : logits,
                  group->silent ? NULL : trace))
        return 1;
    return group->silent ? 0 : deliver(s, line, &options, p);
}

static int run(hadal_session *s, const command_line *line, workspace *w, prompt *p, ranks *group) {
    const char *trace = option_get(line, OPTION_TRACE_DEPTH);
    const char *logits = option_get(line, OPTION_LOGITS);
    option_number_list split;
    hadal_run_options options = {0};
    hadal_pipeline pipeline;
    if (!has_prompt(line))
        return hadal_fail(s, "usage", "--tokens is missing",
                          "for example --tokens 1,2,3, or --prompt TEXT");
    char name[256];
    if (find_compiled_stages(line->positional[0], &w->files, name, sizeof name))
        return run_compiled(s, line, w, p, group);
    if ((option_given(line, OPTION_RANKS) || option_given(line, OPTION_STAGES)) &&
        !option_given(line, OPTION_INTERPRET))
        return hadal_fail(s, "usage", "--ranks and --stages of run are for --interpret",
                          "hadal compile SPEC --ranks P --stages S -o DIR/NAME, then mpirun -n N "
                          "hadal run DIR/NAME, N = P S");
    if (reject_rank_options(s, line) || options_of(s, line, &split, &options) ||
        make_pipeline(s, line, &pipeline))
        return 1;
    if (read_prompt(s, line, p)) return 1;
    if (load_model(s, line, NULL) || hadal_check_weights(s)) return 1;
    pipeline.keep_traces = trace != NULL;
    pipeline.keep_hidden = options.hidden_path != NULL;
    pipeline.taps = option_get(line, OPTION_TAPS);
    pipeline.by_depth = option_given(line, OPTION_BY_DEPTH);
    if (options.interpret) stop_for_evaluator(s, &pipeline);
    if (run_pipeline(s, line, &pipeline)) return 1;
    if (!options.interpret) {
        if (make_workspace(s, w) || build_library(s, line, &w->files)) return 1;
        options.library = w->files.library;
        options.packed = w->files.weights;
    }
    report_step(options.interpret ? "evaluating" : "running");
    if (hadal_run(s, &options, p->ids, p->n, logits, trace)) return 1;
    return deliver(s, line, &options, p);
}

int cmd_run(hadal_session *s, const command_line *line) {
    workspace w = {0};
    prompt p = {0};
    ranks group = {0};
    const int failed = leave_ranks(&group, run(s, line, &w, &p, &group));
    free_prompt(&p);
    remove_workspace(&w);
    return failed;
}
