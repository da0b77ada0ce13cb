/* Several sessions on one weights object, each in a thread of its own.
 *
 *   sessions jargon.weights [THREADS]
 *
 * Weights are immutable and shared; a session belongs to one thread at a time. Each session runs
 * single-threaded here: the parallelism is between them. All must agree to the last bit. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jargon.h"

enum { TOKENS = 64, MAX_THREADS = 64 };

typedef struct job {
    const jargon_weights *weights;
    pthread_t thread;
    int code;
    float logits[JARGON_VOCAB];
} job;

static void *run(void *argument) {
    job *j = argument;
    const size_t size = jargon_session_size(TOKENS);
    void *memory = aligned_alloc(JARGON_ALIGN, size);
    jargon_session *session;
    j->code =
        memory ? jargon_session_init(memory, size, j->weights, TOKENS, &session) : JARGON_MEMORY;
    if (!j->code) j->code = jargon_session_set_threads(session, 1);
    for (int32_t i = 0; i < TOKENS && !j->code; i++) {
        const int32_t token = (i * 37 + 11) % JARGON_VOCAB;
        j->code = jargon_forward(session, &token, 1, j->logits, 1);
    }
    free(memory);
    return NULL;
}

int main(int argc, char **argv) {
    const int n = argc > 2 ? atoi(argv[2]) : 4;
    if (argc < 2 || n < 1 || n > MAX_THREADS) {
        fprintf(stderr, "usage: sessions jargon.weights [1..%d]\n", MAX_THREADS);
        return 2;
    }
    jargon_weights *weights;
    int code = jargon_weights_open(argv[1], &weights);
    if (code) {
        fprintf(stderr, "%s: %s\n", argv[1], jargon_strerror(code));
        return 1;
    }
    static job jobs[MAX_THREADS];
    for (int i = 0; i < n; i++) {
        jobs[i].weights = weights;
        if (pthread_create(&jobs[i].thread, NULL, run, &jobs[i])) return 1;
    }
    for (int i = 0; i < n; i++) {
        pthread_join(jobs[i].thread, NULL);
        if (jobs[i].code) code = jobs[i].code;
    }
    jargon_weights_close(weights);
    if (code) {
        fprintf(stderr, "sessions: %s\n", jargon_strerror(code));
        return 1;
    }
    for (int i = 1; i < n; i++)
        if (memcmp(jobs[i].logits, jobs[0].logits, sizeof jobs[0].logits)) {
            fprintf(stderr, "session %d differs\n", i);
            return 1;
        }
    printf("%d sessions on one weights object agree\n", n);
    return 0;
}
