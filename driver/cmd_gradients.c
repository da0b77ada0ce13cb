/* hadal gradients. */
#include <stdio.h>
#include <string.h>

#include "driver/commands.h"
#include "driver/pipeline.h"
#include "driver/report.h"
#include "driver/workspace.h"

static int read_sequence(hadal_session *s, const command_line *line, const int32_t **tokens,
                         const int32_t **targets, int64_t *n) {
    int64_t n_targets;
    if (!option_given(line, OPTION_TOKENS))
        return hadal_fail(s, "usage", "--tokens is missing", "for example --tokens 1,2,3");
    if (!option_given(line, OPTION_TARGETS))
        return hadal_fail(
            s, "usage", "--targets is missing",
            "what should follow each token, -1: not counted; for example --targets 2,3,-1");
    if (hadal_read_tokens(s, option_get(line, OPTION_TOKENS), tokens, n) ||
        hadal_read_tokens(s, option_get(line, OPTION_TARGETS), targets, &n_targets))
        return 1;
    if (*n == n_targets) return 0;
    char message[96];
    snprintf(message, sizeof message, "there are %lld token%s and %lld target%s", (long long)*n,
             *n == 1 ? "" : "s", (long long)n_targets, n_targets == 1 ? "" : "s");
    return hadal_fail(s, "usage", message, "each token has a target, -1 if it is not counted");
}

/* Makes the library of the gradients in a directory of its own. */
static int build(hadal_session *s, const command_line *line, workspace *w) {
    hadal_pipeline pipeline;
    if (make_pipeline(s, line, &pipeline)) return 1;
    pipeline.gradients = 1;
    const char *level = option_get(line, OPTION_CPU_LEVEL);
    const hadal_target target = {.struct_size = sizeof target,
                                 .cc = option_get(line, OPTION_LINKER),
                                 .cpu = level ? level : "native"};
    if (hadal_check_weights(s) || run_pipeline(s, line, &pipeline) || make_workspace(s, w))
        return 1;
    report_step("compiling");
    if (hadal_emit(s, &target, "so", w->files.library)) return 1;
    report_so_far(s, line); /* what memory it will take */
    return 0;
}

static int tell(hadal_session *s, const command_line *line, const hadal_gradient_result *r,
                int64_t n) {
    char text[512];
    const bool compiled =
        !option_given(line, OPTION_INTERPRET) && !option_given(line, OPTION_BY_DEPTH);
    const char *memory = "null";
    if (!option_given(line, OPTION_JSON))
        snprintf(text, sizeof text, "%-14s %lld of %lld\n%-14s %.9g nats\n", "targets",
                 (long long)r->count, (long long)n, "loss", r->loss);
    else if (compiled && !(memory = hadal_trainer_memory(s)))
        return 1;
    else
        snprintf(text, sizeof text,
                 "{\"tokens\": %lld, \"targets\": %lld, \"loss\": %.17g,\n \"memory\": %s}\n",
                 (long long)n, (long long)r->count, r->loss, memory);
    (void)report_text(text, strlen(text));
    return 0;
}

static int make_gradients(hadal_session *s, const command_line *line, workspace *w) {
    const int32_t *tokens = NULL, *targets = NULL;
    int64_t n = 0;
    long long threads;
    hadal_gradient_result result;
    hadal_gradient_options o = {.struct_size = sizeof o,
                                .interpret = option_given(line, OPTION_INTERPRET),
                                .path = option_get(line, OPTION_OUTPUT),
                                .by_depth = option_given(line, OPTION_BY_DEPTH),
                                .cpu_level = option_get(line, OPTION_CPU_LEVEL)};
    if (!o.path)
        return hadal_fail(s, "usage", "-o is missing", "where the gradients go: -o g.safetensors");
    if (!option_number(s, line, OPTION_THREADS, 0, 1, 256, &threads) ||
        read_sequence(s, line, &tokens, &targets, &n) || load_model(s, line, "model"))
        return 1;
    o.threads = (int)threads;
    if (!o.interpret && !o.by_depth) {
        if (build(s, line, w)) return 1;
        o.library = w->files.library;
    }
    report_step("evaluating");
    if (hadal_gradients(s, &o, tokens, targets, n, &result)) return 1;
    return tell(s, line, &result, n);
}

int cmd_gradients(hadal_session *s, const command_line *line) {
    workspace w = {0};
    const int failed = make_gradients(s, line, &w);
    remove_workspace(&w);
    return failed;
}
