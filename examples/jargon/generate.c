/* Generates text with the compiled jargon model.
 *
 *   generate --weights jargon.weights --prompt TEXT [--tokens N] [--temperature X] [--top-k K]
 * [--seed S]
 *
 * Temperature 0 is greedy. Tokens are bytes, so the text is streamed as it comes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jargon.h"

typedef struct settings {
    const char *weights, *prompt;
    long tokens, top_k;
    double temperature;
    uint64_t seed;
} settings;

static int parse(int argc, char **argv, settings *s) {
    *s = (settings){"jargon.weights", "hacker\n n.\n\n    ", 300, 0, 0.8, 1};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--weights"))
            s->weights = argv[i + 1];
        else if (!strcmp(argv[i], "--prompt"))
            s->prompt = argv[i + 1];
        else if (!strcmp(argv[i], "--tokens"))
            s->tokens = atol(argv[i + 1]);
        else if (!strcmp(argv[i], "--temperature"))
            s->temperature = atof(argv[i + 1]);
        else if (!strcmp(argv[i], "--top-k"))
            s->top_k = atol(argv[i + 1]);
        else if (!strcmp(argv[i], "--seed"))
            s->seed = strtoull(argv[i + 1], NULL, 10);
        else
            return 0;
    }
    return argc % 2 == 1 && *s->prompt && s->tokens >= 0;
}

static double uniform(uint64_t *state) { /* xorshift64*, 0 <= x < 1 */
    *state ^= *state >> 12, *state ^= *state << 25, *state ^= *state >> 27;
    return (double)((*state * 0x2545F4914F6CDD1DULL) >> 11) / 9007199254740992.0;
}

static int descending(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* Chooses the next byte: the most likely one, or one drawn from the softmax of the top k. */
static int32_t sample(const float *logits, const settings *s, uint64_t *state) {
    int32_t best = 0;
    for (int32_t i = 1; i < JARGON_VOCAB; i++)
        if (logits[i] > logits[best]) best = i;
    if (s->temperature <= 0) return best;

    float sorted[JARGON_VOCAB];
    memcpy(sorted, logits, sizeof sorted);
    qsort(sorted, JARGON_VOCAB, sizeof *sorted, descending);
    const float least = s->top_k > 0 && s->top_k < JARGON_VOCAB ? sorted[s->top_k - 1] : -INFINITY;
    double weight[JARGON_VOCAB], sum = 0;
    for (int32_t i = 0; i < JARGON_VOCAB; i++) {
        weight[i] = logits[i] < least ? 0 : exp((logits[i] - logits[best]) / s->temperature);
        sum += weight[i];
    }
    double left = uniform(state) * sum;
    for (int32_t i = 0; i < JARGON_VOCAB; i++)
        if ((left -= weight[i]) < 0) return i;
    return best;
}

static int fail(const char *what, int code) {
    fprintf(stderr, "generate: %s: %s\n", what, jargon_strerror(code));
    return 1;
}

int main(int argc, char **argv) {
    settings s;
    if (!parse(argc, argv, &s)) {
        fprintf(stderr, "usage: generate --weights FILE --prompt TEXT [--tokens N] "
                        "[--temperature X] [--top-k K] [--seed S]\n");
        return 2;
    }
    const int64_t n = (int64_t)strlen(s.prompt), capacity = n + s.tokens;
    uint64_t state = s.seed * 0x9E3779B97F4A7C15ULL + 1;

    jargon_weights *weights;
    int code = jargon_weights_open(s.weights, &weights);
    if (code) return fail(s.weights, code);

    const size_t size = jargon_session_size(capacity);
    void *memory = size ? aligned_alloc(JARGON_ALIGN, size) : NULL;
    int32_t *prompt = malloc((size_t)n * sizeof *prompt);
    if (!memory || !prompt) return fail("memory for the session", JARGON_MEMORY);
    jargon_session *session;
    if ((code = jargon_session_init(memory, size, weights, capacity, &session)))
        return fail("session", code);

    for (int64_t i = 0; i < n; i++)
        prompt[i] = (unsigned char)s.prompt[i];
    fputs(s.prompt, stdout);

    float logits[JARGON_VOCAB];
    code = jargon_forward(session, prompt, n, logits, 1); /* prefill: only the last row is needed */
    for (long i = 0; i < s.tokens && !code; i++) {
        const int32_t next = sample(logits, &s, &state);
        putchar(next);
        fflush(stdout);
        code = jargon_forward(session, &next, 1, logits, 1);
    }
    putchar('\n');
    free(prompt);
    free(memory);
    jargon_weights_close(weights);
    return code ? fail("forward", code) : 0;
}
