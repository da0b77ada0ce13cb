/* hadal gradients. */
#include <stdio.h>
#include <string.h>

#include "driver/commands.h"
#include "driver/pipeline.h"
#include "driver/report.h"

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
    snprintf(message, sizeof message, "there are %lld tokens and %lld targets", (long long)*n,
             (long long)n_targets);
    return hadal_fail(s, "usage", message, "each token has a target, -1 if it is not counted");
}

int cmd_gradients(hadal_session *s, const command_line *line) {
    const int32_t *tokens = NULL, *targets = NULL;
    int64_t n = 0;
    hadal_gradient_result result;
    const hadal_gradient_options o = {.struct_size = sizeof o,
                                      .interpret = option_given(line, OPTION_INTERPRET),
                                      .path = option_get(line, OPTION_OUTPUT),
                                      .by_depth = option_given(line, OPTION_BY_DEPTH)};
    if (!o.path)
        return hadal_fail(s, "usage", "-o is missing", "where the gradients go: -o g.safetensors");
    if (apply_definitions(s, line, OPTION_DEFINE) ||
        read_sequence(s, line, &tokens, &targets, &n) || load_model(s, line, "model"))
        return 1;
    report_step("evaluating");
    if (hadal_gradients(s, &o, tokens, targets, n, &result)) return 1;
    char text[128];
    snprintf(text, sizeof text, "%-14s %lld of %lld\n%-14s %.9g nats\n", "targets",
             (long long)result.count, (long long)n, "loss", result.loss);
    (void)report_text(text, strlen(text));
    return 0;
}
