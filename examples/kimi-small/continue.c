/* Reads a prompt once, saves the state of the session, and continues the prompt in two ways.
 *
 *   continue kimi_small.weights
 *
 * A layer of linear attention keeps a summary of all tokens so far, which cannot be shortened: a
 * session of such a model goes back to an earlier token only by restoring what was saved there.
 * Each continuation is compared with a second session that reads all of it from the beginning, and
 * must give the same bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kimi_small.h"

enum { PROMPT = 300, MORE = 12, ROOM = PROMPT + MORE };

typedef struct run { /* a session in memory of its own */
    void *memory;
    kimi_small_session *session;
} run;

static void need(int code, const kimi_small_session *session) {
    if (!code) return;
    fprintf(stderr, "continue: %s %s\n", kimi_small_strerror(code),
            session ? kimi_small_session_message(session) : "");
    exit(1);
}

static run start(const kimi_small_weights *weights) {
    const size_t size = kimi_small_session_size(ROOM);
    run r = {aligned_alloc(KIMI_SMALL_ALIGN, size), NULL};
    need(r.memory ? kimi_small_session_init(r.memory, size, weights, ROOM, &r.session)
                  : KIMI_SMALL_MEMORY,
         NULL);
    return r;
}

/* Writes the most likely tokens after `first`, one by one; `logits` are those of the last. */
static void write_on(run r, int32_t first, int32_t *tokens, float *logits) {
    for (int i = 0; i < MORE; i++) {
        int32_t best = 0;
        tokens[i] = first;
        need(kimi_small_forward(r.session, &first, 1, logits, 1), r.session);
        for (int32_t j = 1; j < KIMI_SMALL_LOGITS; j++)
            if (logits[j] > logits[best]) best = j;
        first = best;
    }
}

int main(int argc, char **argv) {
    static float kept_logits[KIMI_SMALL_LOGITS], fresh_logits[KIMI_SMALL_LOGITS];
    int32_t prompt[PROMPT], kept_tokens[MORE], fresh_tokens[MORE];
    kimi_small_weights *weights = NULL;
    int same = 1;
    if (argc != 2) return fprintf(stderr, "usage: continue kimi_small.weights\n"), 2;
    need(kimi_small_weights_open(argv[1], &weights), NULL);
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = (i * i + 7 * i) % KIMI_SMALL_VOCAB;

    run kept = start(weights);
    need(kimi_small_forward(kept.session, prompt, PROMPT, kept_logits, 1), kept.session);
    const size_t saved_size = kimi_small_session_save_size(kept.session);
    void *saved = malloc(saved_size);
    need(saved ? kimi_small_session_save(kept.session, saved, saved_size) : KIMI_SMALL_MEMORY,
         kept.session);
    printf("a prompt of %d tokens in %zu bytes\n", PROMPT, saved_size);

    for (int32_t first = 65; first <= 66; first++) {
        need(kimi_small_session_restore(kept.session, saved, saved_size), kept.session);
        write_on(kept, first, kept_tokens, kept_logits);
        run fresh = start(weights);
        need(kimi_small_forward(fresh.session, prompt, PROMPT, fresh_logits, 1), fresh.session);
        write_on(fresh, first, fresh_tokens, fresh_logits);
        same &= !memcmp(kept_tokens, fresh_tokens, sizeof kept_tokens) &&
                !memcmp(kept_logits, fresh_logits, sizeof kept_logits);
        for (int i = 0; i < MORE; i++)
            printf("%d%c", (int)kept_tokens[i], i + 1 < MORE ? ' ' : '\n');
        free(fresh.memory);
    }
    puts(same ? "as if the prompt had been read again" : "DIFFERENT from reading the prompt again");
    free(saved);
    free(kept.memory);
    kimi_small_weights_close(weights);
    return !same;
}
