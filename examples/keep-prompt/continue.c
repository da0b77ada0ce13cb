/* Reads a prompt once and continues it in several ways.
 *
 *   continue jargon.weights TOKENS PROMPT BEGINNING...
 *
 * The state of the session after the prompt is saved to memory. For each BEGINNING it is restored,
 * so that only the beginning has to be read; then the most likely bytes follow, up to the end of a
 * line. The saved bytes could as well be written to a file, and be restored by another process with
 * the same library and weights. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jargon.h"

static float logits[JARGON_LOGITS];

static void need(int code, const jargon_session *session) {
    if (!code) return;
    fprintf(stderr, "continue: %s %s\n", jargon_strerror(code), jargon_session_message(session));
    exit(1);
}

static void read_text(jargon_session *session, const char *text) {
    for (; *text; text++) {
        const int32_t id = (unsigned char)*text;
        need(jargon_forward(session, &id, 1, logits, 1), session);
    }
}

static int32_t likeliest(void) {
    int32_t best = 0;
    for (int32_t i = 1; i < JARGON_LOGITS; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static void write_line(jargon_session *session, int tokens) {
    for (int i = 0; i < tokens; i++) {
        const int32_t next = likeliest();
        if (next == '\n') break;
        putchar(next);
        need(jargon_forward(session, &next, 1, logits, 1), session);
    }
    putchar('\n');
}

int main(int argc, char **argv) {
    const int tokens = argc > 2 ? atoi(argv[2]) : 0;
    if (argc < 5 || tokens < 1) {
        fprintf(stderr, "usage: continue jargon.weights TOKENS PROMPT BEGINNING...\n");
        return 2;
    }
    size_t longest = 0;
    for (int i = 4; i < argc; i++)
        if (strlen(argv[i]) > longest) longest = strlen(argv[i]);
    const int64_t room = (int64_t)(strlen(argv[3]) + longest) + tokens;
    const size_t size = jargon_session_size(room);
    void *memory = aligned_alloc(JARGON_ALIGN, size);
    jargon_weights *weights = NULL;
    jargon_session *session = NULL;
    need(memory ? jargon_weights_open(argv[1], &weights) : JARGON_MEMORY, NULL);
    need(jargon_session_init(memory, size, weights, room, &session), NULL);

    read_text(session, argv[3]);
    const size_t saved_size = jargon_session_save_size(session);
    void *saved = malloc(saved_size);
    need(saved ? jargon_session_save(session, saved, saved_size) : JARGON_MEMORY, session);
    for (int i = 4; i < argc; i++) {
        need(jargon_session_restore(session, saved, saved_size), session);
        read_text(session, argv[i]);
        printf("%s%s", argv[3], argv[i]);
        write_line(session, tokens);
    }
    free(saved);
    free(memory);
    jargon_weights_close(weights);
    return 0;
}
