/* A library's choice of level where a matrix unit is granted, refused or not saved by the operating
 * system (run.sh).
 *
 *   check model.weights granted|refused|unsaved
 *
 * Refused is what Linux answers a process that has a thread with a small alternate signal stack, a
 * sandbox that knows no such request, or a kernel from before it. Logits differ from level to level
 * by less than 0.15 of the largest, as for rounded activations elsewhere (docs/testing.md). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

enum { TOKENS = 20 };

static int failed;

static void expect(int ok, const char *what, const char *got) {
    if (ok) return;
    fprintf(stderr, "%s: %s\n", what, got);
    failed = 1;
}

static void need(int code, const char *what) {
    if (!code) return;
    fprintf(stderr, "%s: %s\n", what, model_strerror(code));
    exit(1);
}

static void forward(model_session *s, float *logits) {
    int32_t tokens[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        tokens[i] = i * 13 % MODEL_VOCAB;
    need(model_session_rewind(s, 0), "rewind");
    need(model_forward(s, tokens, TOKENS, logits, 1), "forward");
}

/* What a level that does not run says when it is asked for, and why it was passed over. Without the
 * unit the next level is the one with dot products of bf16, on CPUs where these pay. */
static void check_without(model_session *s, const char *why) {
    const char *level = model_session_cpu(s);
    expect(strcmp(level, "avx512bf16") == 0 || strcmp(level, "avx512") == 0, "the level", level);
    expect(strstr(model_session_machine(s), why) != NULL, "passed over", model_session_machine(s));
    const int code = model_session_set_cpu(s, "amx");
    expect(code == MODEL_CPU, "forcing amx", model_strerror(code));
    expect(strstr(model_session_message(s), why) != NULL, "its reason", model_session_message(s));
}

int main(int argc, char **argv) {
    static float by_default[MODEL_VOCAB], plain[MODEL_VOCAB];
    model_weights *weights;
    model_session *s;
    if (argc != 3) return 2;
    need(model_weights_open(argv[1], &weights), argv[1]);
    const size_t size = model_session_size(TOKENS);
    void *memory = aligned_alloc(MODEL_ALIGN, size);
    if (!memory) return 1;
    need(model_session_init(memory, size, weights, TOKENS, &s), "session");
    if (strcmp(argv[2], "granted") == 0)
        expect(strcmp(model_session_cpu(s), "amx") == 0, "the level", model_session_cpu(s));
    else if (strcmp(argv[2], "refused") == 0)
        check_without(s, "the operating system does not allow amx-tile amx-bf16 amx-int8");
    else
        check_without(s, "the CPU lacks amx-tile amx-bf16 amx-int8");
    forward(s, by_default);
    need(model_session_set_cpu(s, "avx512"), "avx512");
    forward(s, plain);
    float most = 0, worst = 0;
    for (int i = 0; i < MODEL_VOCAB; i++) {
        most = fmaxf(most, fabsf(plain[i]));
        worst = fmaxf(worst, fabsf(plain[i] - by_default[i]));
    }
    expect(worst < 0.15f * most, "logits", "too far from those of avx512");
    free(memory);
    model_weights_close(weights);
    return failed;
}
