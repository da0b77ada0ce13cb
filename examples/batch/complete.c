/* Continues several texts at once: one session for each text, one batch for all.
 *
 *   complete jargon.weights TOKENS PROMPT...
 *
 * Prompts are read one by one (prefill). Then every step gives each text one more byte, and reads
 * the weights once for all texts. A text that has reached the end of a line is finished and leaves
 * the batch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jargon.h"

typedef struct text {
    jargon_session *session;
    char *bytes; /* the prompt and what the model wrote */
    size_t length;
    float logits[JARGON_LOGITS];
} text;

static void need(int code, const jargon_session *session) {
    if (!code) return;
    fprintf(stderr, "complete: %s %s\n", jargon_strerror(code), jargon_session_message(session));
    exit(1);
}

static void *memory(size_t size) {
    void *p =
        size ? aligned_alloc(JARGON_ALIGN, (size + JARGON_ALIGN - 1) / JARGON_ALIGN * JARGON_ALIGN)
             : NULL;
    if (!p) need(JARGON_MEMORY, NULL);
    return p;
}

static void begin(text *t, const jargon_weights *weights, const char *prompt, size_t tokens) {
    const size_t n = strlen(prompt), capacity = n + tokens;
    const size_t size = jargon_session_size((int64_t)capacity);
    int32_t *ids = memory(n * sizeof *ids);
    for (size_t i = 0; i < n; i++)
        ids[i] = (unsigned char)prompt[i];
    need(jargon_session_init(memory(size), size, weights, (int64_t)capacity, &t->session), NULL);
    need(jargon_forward(t->session, ids, (int64_t)n, t->logits, 1), t->session);
    free(ids);
    t->bytes = strcpy(memory(capacity + 1), prompt);
    t->length = n;
}

/* Appends the most likely byte. */
static int32_t next_byte(text *t) {
    int32_t best = 0;
    for (int32_t i = 1; i < JARGON_VOCAB; i++)
        if (t->logits[i] > t->logits[best]) best = i;
    t->bytes[t->length++] = (char)best;
    t->bytes[t->length] = '\0';
    return best;
}

static int done(const text *t) {
    return t->bytes[t->length - 1] == '\n';
}

int main(int argc, char **argv) {
    const int n = argc - 3;
    const long tokens = argc > 3 ? atol(argv[2]) : 0;
    if (n < 1 || tokens < 1) {
        fprintf(stderr, "usage: complete jargon.weights TOKENS PROMPT...\n");
        return 2;
    }
    jargon_weights *weights;
    need(jargon_weights_open(argv[1], &weights), NULL);
    const size_t texts = (size_t)n;
    text *all = calloc(texts, sizeof *all), **active = calloc(texts, sizeof *active);
    jargon_session **sessions = calloc(texts, sizeof *sessions);
    int32_t *ids = calloc(texts, sizeof *ids);
    float *logits = calloc(texts * JARGON_LOGITS, sizeof *logits);
    if (!all || !active || !sessions || !ids || !logits) need(JARGON_MEMORY, NULL);
    for (size_t i = 0; i < texts; i++)
        begin(&all[i], weights, argv[3 + i], (size_t)tokens);

    for (size_t i = 0; i < texts; i++)
        active[i] = &all[i];
    size_t left = texts;
    for (long step = 0; step < tokens && left > 0; step++) {
        size_t kept = 0;
        for (size_t i = 0; i < left; i++) { /* one byte each; unfinished texts move up */
            const int32_t byte = next_byte(active[i]);
            if (done(active[i])) continue;
            active[kept] = active[i];
            sessions[kept] = active[i]->session;
            ids[kept++] = byte;
        }
        left = kept;
        if (left == 0 || step + 1 == tokens) break;
        need(jargon_forward_batch(sessions, ids, (int64_t)left, logits), sessions[0]);
        for (size_t i = 0; i < left; i++)
            memcpy(active[i]->logits, logits + i * JARGON_LOGITS, sizeof active[i]->logits);
    }

    for (size_t i = 0; i < texts; i++) {
        printf("%s%s", all[i].bytes, done(&all[i]) ? "" : "\n");
        free(all[i].bytes);
        free(all[i].session); /* the session starts where its memory does */
    }
    free(logits), free(ids), free(sessions), free(active), free(all);
    jargon_weights_close(weights);
    return 0;
}
